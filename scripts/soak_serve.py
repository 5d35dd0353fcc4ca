#!/usr/bin/env python3
"""Many clients for a while: requests of all kinds over both protocols, some cancelled, some dropped in the middle. Each text that arrives is
compared with that of the same request alone; afterwards no slot is in use, and the server's memory has not grown.

    scripts/soak_serve.py --larder build/larder --model model/demo/larder-stories.gguf --clients 64 --seconds 600
"""
import argparse
import json
import random
import sys
import threading
import time

from serve_testing import Server, events, read_all, split_reply

BEGINNINGS = ["Once upon a time", "The cat", "One day, a little girl named", "Tom and Amy went to the", "It was raining. The duck", "In the garden"]
KINDS = ["text-json", "text-plain", "http-whole", "http-stream"]


def make_requests(count, seed):
    rng = random.Random(seed)
    requests = []
    for i in range(count):
        prompt = " ".join(rng.choice(BEGINNINGS) for _ in range(rng.choice([1, 1, 2, 12])))
        requests.append({"prompt": prompt, "max_tokens": rng.randint(1, 60), "temperature": rng.choice([0, 0.7, 1.2]), "seed": i,
                         "top_k": rng.choice([0, 40]), "repeat_penalty": rng.choice([1, 1.1]), **({"stop": ["."]} if rng.random() < 0.2 else {})})
    return requests


class Client(threading.Thread):
    """Asks again and again; `wrong` holds what was not as expected."""

    def __init__(self, server, requests, expected, plain, seed, until):
        super().__init__()
        self.server, self.requests, self.expected, self.plain, self.until = server, requests, expected, plain, until
        self.rng, self.wrong, self.done, self.dropped = random.Random(seed), [], 0, 0

    def run(self):
        try:
            while time.monotonic() < self.until and not self.wrong:
                self.one()
        except (OSError, ValueError, AssertionError, KeyError) as error:
            self.wrong.append(repr(error))

    def one(self):
        at, kind, fate = self.rng.randrange(len(self.requests)), self.rng.choice(KINDS), self.rng.random()
        if fate < 0.15:
            return self.drop(kind, at)
        if fate < 0.25:
            return self.cancel(at)
        text = self.plain_text() if kind == "text-plain" else ask(self.server, kind, self.requests[at])
        expected = self.plain if kind == "text-plain" else self.expected[at]
        if text != expected:
            self.wrong.append(f"{kind} {self.requests[at]}: {text!r}, alone {expected!r}")
        self.done += 1

    def plain_text(self):
        with self.server.connect(self.server.text) as connection:
            connection.sendall(b"The cat\n")
            return read_all(connection).decode()

    def drop(self, kind, at):
        """Goes away after some bytes, or before any."""
        text = kind.startswith("text")
        with self.server.connect(self.server.text if text else self.server.http) as connection:
            body = json.dumps({**self.requests[at], "max_tokens": 300, "stream": True}).encode()
            head = b"" if text else b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(head + body + b"\n")
            if self.rng.random() < 0.7:
                connection.recv(self.rng.randint(1, 2000))
        self.dropped += 1

    def cancel(self, at):
        """What came before the end must be the beginning of the text alone."""
        with self.server.connect(self.server.text) as connection:
            connection.sendall(json.dumps({**self.requests[at], "id": "a"}).encode() + b"\n")
            lines = connection.makefile("rb")
            text, sent = "", False
            for line in lines:
                part = json.loads(line)
                text += part["content"]
                if part["stop"]:
                    break
                if not sent:
                    connection.sendall(b'{"cancel":"a"}\n')
                    sent = True
            if not self.expected[at].startswith(text):
                self.wrong.append(f"cancelled {self.requests[at]}: {text!r}, alone {self.expected[at]!r}")
        self.dropped += 1


def ask(server, kind, request):
    if kind == "text-json":
        with server.connect(server.text) as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            text = ""
            for line in connection.makefile("rb"):
                part = json.loads(line)
                assert "error" not in part, part
                text += part["content"]
                if part["stop"]:
                    return text
            raise AssertionError("the text stream ended without a last line")
    stream = kind == "http-stream"
    status, body = server.post("/v1/completions", {**request, "stream": stream})
    assert status == 200, body
    if stream:
        return "".join(choice["text"] for event in events(body) for choice in event["choices"])
    return json.loads(body)["choices"][0]["text"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=24, help="different ones")
    parser.add_argument("--growth-mb", type=float, default=64, help="of memory that is allowed, 64: allocator and buffers")
    args = parser.parse_args()
    requests = make_requests(args.requests, args.seed)
    # A seed and temperature 0: a plain prompt has one text too.
    with Server(args.larder, args.model, "--parallel", "6", "--temp", "0", "-n", "40", "--queue", str(4 * args.clients)) as server:
        expected = [ask(server, "http-whole", request) for request in requests]
        with server.connect(server.text) as connection:
            connection.sendall(b"The cat\n")
            plain = read_all(connection).decode()
        server.idle()
        before = server.resident_bytes()
        until = time.monotonic() + args.seconds
        clients = [Client(server, requests, expected, plain, args.seed * 1000 + i, until) for i in range(args.clients)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        wrong = [line for client in clients for line in client.wrong]
        server.idle()
        grown = (server.resident_bytes() - before) / 1e6
        done, dropped = sum(client.done for client in clients), sum(client.dropped for client in clients)
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
