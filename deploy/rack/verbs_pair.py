#!/usr/bin/env python3
"""Two guests talk to each other through verbs links over soft-RoCE: frames of both directions arrive, and both ends come to an end.

    deploy/rack/verbs_pair.py --program build/bench/bench_link --cache build/rack

What it prints is the link's half round trip under emulation, which says nothing about real adapters.
"""
import argparse
import pathlib

import guest
import image

JOB = """
rdma link add rxe0 type rxe netdev eth0 || exit 1
: >/share/$GUEST.mark
until [ -e /share/server.mark ] && [ -e /share/client.mark ]; do sleep 0.1; done
{program} verbs-$GUEST --host 10.7.0.1 --port 7431 --sleep --rounds 50 --repetitions 3
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="bench_link")
    parser.add_argument("--cache", required=True, help="folder for the kernel and the like")
    o = parser.parse_args()
    try:
        boot = image.boot_files(image.cache_folder(o.cache))
    except image.Missing as missing:
        guest.skip(missing)
    with guest.Rack(boot) as rack:
        rack.add("server")
        client = rack.add("client")
        passed = rack.run_job(JOB.format(program=pathlib.Path(o.program).resolve()), 240)
        if not passed or not client.said("half round trip"):
            raise SystemExit("the guests did not talk to each other")


if __name__ == "__main__":
    main()
