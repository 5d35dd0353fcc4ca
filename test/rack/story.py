#!/usr/bin/env python3
"""A story from a rack of guests: two servers of two CPU packages, Larder's package installed,
started by larder-cluster over ssh, verbs.

    test/rack/story.py --build build --model model/demo/larder-stories.gguf --cache build/rack

The links are verbs over soft-RoCE. The text must be that of one process, to the byte; then the
cluster is drained and stopped. --attention-server: with all attention in a third guest.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cluster
import guest_cluster
import image
from larder_testing import programs

TOKENS = 120


def main():
    parser = programs.parser(__doc__, "build", "model", "cache")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--transport", default="verbs", choices=["verbs", "tcp"])
    parser.add_argument("--attention-server", action="store_true")
    o = parser.parse_args()
    larder = str(pathlib.Path(o.build, "larder").resolve())
    expected = cluster.truth(larder, o.model, TOKENS, 512)
    try:
        rack = guest_cluster.GuestCluster("abcdefgh"[:o.servers], larder, o.model, o.build, o.cache,
                                          o.transport, "k" if o.attention_server else None)
    except image.Missing as missing:
        programs.skip(missing)
    with rack:
        rack.bring_up()
        for protocol in ("http", "text"):
            request = rack.request(TOKENS, protocol)
            status, text = request.wait(120), request.text()
            request.kill()
            rack.say(f"{protocol}: status {status}\n{text}")
            if status != 0 or text != expected:
                rack.tool("logs", check=False)
                raise SystemExit(f"{request.err()}\nnot the one process's text:\n{expected}")
        rack.say("both are the one process's text, to the byte")
        rack.tool("status")
        logs = rack.tool("logs", "-n", "200")
        for server in "abcdefgh"[:o.servers]:
            links = [f"stage {server}-weight"]
            if o.attention_server:
                links.append(f"attention socket {server}-attention")
            for socket in links:
                if not re.search(rf"{socket}: receives from .* by {o.transport},", logs):
                    raise SystemExit(f"{socket} does not say that its link is {o.transport}")
        rack.tool("drain")
        rack.tool("down")
        for server in rack.servers.values():
            left = server.ssh("pgrep -x larder || true").strip()
            if left:
                raise SystemExit(f"{server.name}: processes left after `down`: {left}")
        rack.say("shut down")


if __name__ == "__main__":
    main()
