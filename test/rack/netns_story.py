#!/usr/bin/env python3
"""A story through two servers of two sockets each, over TCP between network namespaces: equal to
one process's, to the byte. Then with all attention on a third server, also if that server's link is
cut in between.

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
TOKENS_OF_CUT = 450  # so many that the link is cut long before the last
CONTEXT = 512


def check(rack, request, expected, what):
    """The text of a request is that of one process; ends the test if it is not."""
    status, text = request.wait(200), request.text()
    request.kill()
    if status == 0 and text == expected:
        return
    for name, text_of_log in rack.logs().items():
        print(f"--- {name}\n{text_of_log}")
    print(f"--- {what}: status {status}\n{request.err()}")
    raise SystemExit(f"the cluster's text:\n{text}\nis not the one process's:\n{expected}")


def tell(rack, protocol, expected):
    started = time.monotonic()
    if rack.serving:
        until(lambda: rack.health().startswith("200"), 100,
              lambda: f"/health says {rack.health()}; {rack.logs()}", pause_s=0.1)
    check(rack, rack.request(TOKENS, protocol), expected, protocol)
    seconds = time.monotonic() - started
    print(f"{protocol}: {TOKENS} tokens over TCP through {len(rack.logs())} sockets of "
          f"{len(rack.servers)} servers equal the one process's, {seconds:.1f} s")


def cut_link(rack, server, expected):
    """A request pauses while a server's link is cut, and goes on."""
    started = time.monotonic()
    request = rack.request(TOKENS_OF_CUT)
    until(lambda: len(request.text()) > 100 or not request.running(), 100,
          lambda: f"no text: {request.err()} {rack.logs()}", pause_s=0.01)
    if not request.running():
        raise SystemExit(f"the request ended before the link was cut: {request.said()}")
    rack.mark_logs()
    rack.servers[server].cut()
    until(lambda: "requests wait" in rack.new_logs()[cluster.SERVING], 100,
          lambda: f"nothing was lost: {rack.new_logs()}", pause_s=0.05)
    rack.servers[server].mend()
    check(rack, request, expected, f"link of {server} cut")
    print(f"link of {server} cut: {TOKENS_OF_CUT} tokens equal the one process's, "
          f"{time.monotonic() - started:.1f} s")


def main():
    o = programs.parser(__doc__, "larder", "model").parse_args()
    larder, model = str(pathlib.Path(o.larder).resolve()), str(pathlib.Path(o.model).resolve())
    expected = cluster.truth(larder, model, TOKENS, CONTEXT)
    # The last one waits for as long as a sanitizer's build takes to come back.
    for serving, attention, patience_s in ((True, None, None), (False, None, None),
                                           (True, "k", 120)):
        try:
            rack = netns.NetCluster(["a", "b"], larder, model, CONTEXT, serving, attention,
                                    patience_s)
        except image.Missing as missing:
            programs.skip(missing)
        with rack:
            rack.bring_up()
            # Twice: the sockets serve a second run after the first has ended.
            for protocol in ("http", "text") if serving else ("join", "join"):
                tell(rack, protocol, expected)
            if attention:
                cut_link(rack, attention, cluster.truth(larder, model, TOKENS_OF_CUT, CONTEXT))


if __name__ == "__main__":
    main()
