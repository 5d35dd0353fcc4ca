#!/usr/bin/env python3
"""A story through two servers of two sockets each, over TCP between network namespaces: equal to
one process's, to the byte.

    test/rack/netns_story.py --larder build/larder --model model/demo/larder-stories.gguf
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cluster
import image
import netns
from larder_testing import programs
from larder_testing.waiting import until

TOKENS = 80


def main():
    o = programs.parser(__doc__, "larder", "model").parse_args()
    larder, model = str(pathlib.Path(o.larder).resolve()), str(pathlib.Path(o.model).resolve())
    expected = cluster.truth(larder, model, TOKENS, 512)
    for serving in (True, False):
        try:
            rack = netns.NetCluster(["a", "b"], larder, model, 512, serving)
        except image.Missing as missing:
            programs.skip(missing)
        with rack:
            rack.bring_up()
            # Twice: the sockets serve a second run after the first has ended.
            for protocol in ("http", "text") if serving else ("join", "join"):
                started = time.monotonic()
                if serving:
                    until(lambda: rack.health().startswith("200"), 100,
                          lambda: f"/health says {rack.health()}; {rack.logs()}", pause_s=0.1)
                request = rack.request(TOKENS, protocol)
                status, text = request.wait(200), request.text()
                request.kill()
                if status != 0 or text != expected:
                    for name, text_of_log in rack.logs().items():
                        print(f"--- {name}\n{text_of_log}")
                    print(f"--- {protocol}: status {status}\n{request.err()}")
                    raise SystemExit("the cluster's text:\n" + text +
                                     "\nis not the one process's:\n" + expected)
                print(f"{protocol}: {TOKENS} tokens over TCP through {5 if serving else 4} sockets "
                      f"equal the one process's, {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
