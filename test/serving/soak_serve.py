#!/usr/bin/env python3
"""Many clients for a while: requests of all kinds over both protocols, some cancelled, some dropped
in the middle. Each text that arrives is compared with that of the same request alone; afterwards no
slot is in use, and the server's memory has not grown.

    test/serving/soak_serve.py --larder build/larder --model model/demo/larder-stories.gguf
        --clients 64 --seconds 600
"""
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clients, programs
from larder_testing.replies import Failed
from larder_testing.server import Server

PLAIN = "The cat"
KINDS = ["text-json", "text-plain", "http-whole", "http-stream"]


class Client(threading.Thread):
    """Asks again and again; `wrong` holds what was not as expected."""

    def __init__(self, server, requests, expected, plain, seed, until):
        super().__init__()
        self.server, self.requests, self.expected, self.plain, self.until = (server, requests,
                                                                             expected, plain, until,
                                                                             )
        self.rng, self.wrong, self.done, self.dropped = random.Random(seed), [], 0, 0

    def run(self):
        try:
            while time.monotonic() < self.until and not self.wrong:
                self.one()
        except (Failed, OSError, ValueError, KeyError) as error:
            self.wrong.append(repr(error))

    def one(self):
        at, kind, fate = self.rng.randrange(len(
            self.requests)), self.rng.choice(KINDS), self.rng.random()
        if fate < 0.15:
            clients.leave(self.server, self.requests[at], kind.startswith("text"), self.rng)
            self.dropped += 1
        elif fate < 0.25:
            text = clients.cancelled(self.server, self.requests[at])
            if not self.expected[at].startswith(text):
                self.wrong.append(
                    f"cancelled {self.requests[at]}: {text!r}, alone {self.expected[at]!r}")
            self.dropped += 1
        else:
            text, expected = ask(self.server, kind, self.requests[at]), (
                self.plain if kind == "text-plain" else self.expected[at])
            if text != expected:
                self.wrong.append(f"{kind} {self.requests[at]}: {text!r}, alone {expected!r}")
            self.done += 1


def ask(server, kind, request):
    if kind == "text-plain":
        return clients.plain_text(server, PLAIN)
    if kind == "text-json":
        return clients.text_stream(server, request)
    if kind == "http-stream":
        return clients.streamed(server, "/v1/completions", request)
    return clients.completion(server, request)


def main():
    parser = programs.parser(__doc__, "larder", "model")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=24, help="different ones")
    parser.add_argument("--growth-mb", type=float, default=64,
                        help="of memory that is allowed, 64: allocator and buffers")
    args = parser.parse_args()
    requests = clients.make_requests(args.requests, args.seed)
    # A seed and temperature 0: a plain prompt has one text too.
    with Server(args.larder, args.model, "--parallel", "6", "--temp", "0", "-n", "40", "--queue",
                str(4 * args.clients)) as server:
        expected = [ask(server, "http-whole", request) for request in requests]
        plain = ask(server, "text-plain", None)
        server.idle()
        before = server.resident_bytes()
        until = time.monotonic() + args.seconds
        many = [
            Client(server, requests, expected, plain, args.seed * 1000 + i, until)
            for i in range(args.clients)
        ]
        for client in many:
            client.start()
        for client in many:
            client.join()
        wrong = [line for client in many for line in client.wrong]
        server.idle()
        grown = (server.resident_bytes() - before) / 1e6
        done, dropped = sum(client.done for client in many), sum(client.dropped for client in many)
        print(f"{done} texts as alone, {dropped} cancelled or dropped, memory {grown:+.1f} MB")
        if grown > args.growth_mb:
            wrong.append(f"memory has grown by {grown:.1f} MB")
        if done < args.clients:
            wrong.append("hardly anything was done")
    for line in wrong[:10]:
        print("wrong:", line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
