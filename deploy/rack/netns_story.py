#!/usr/bin/env python3
"""A story through two servers of two sockets each, over TCP between network namespaces: equal to one process's, to the byte.

    deploy/rack/netns_story.py --larder build/larder --model model/demo/larder-stories.gguf
"""
import argparse
import pathlib
import time

import cluster
import guest
import image
import netns

TOKENS = 80


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", required=True)
    parser.add_argument("--model", required=True)
    o = parser.parse_args()
    larder, model = str(pathlib.Path(o.larder).resolve()), str(pathlib.Path(o.model).resolve())
    try:
        rack = netns.NetCluster(["a", "b"], larder, model, 512)
    except image.Missing as missing:
        guest.skip(missing)
    expected = cluster.truth(larder, model, TOKENS, 512)
    with rack:
        rack.bring_up()
        # Twice: the sockets serve whoever comes after the first has ended.
        for attempt in (1, 2):
            started = time.monotonic()
            request = rack.request(TOKENS)
            status, text = request.wait(200), request.text()
            request.kill()
            if status != 0 or text != expected:
                for name, text_of_log in rack.logs().items():
                    print(f"--- {name}\n{text_of_log}")
                print(f"--- request {attempt}: status {status}\n{request.errors()}")
                raise SystemExit("the cluster's text:\n" + text + "\nis not the one process's:\n" + expected)
            print(f"request {attempt}: {TOKENS} tokens over TCP through 4 sockets equal the one process's, {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
