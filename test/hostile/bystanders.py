"""Other clients of a server, and what they have to wait: streams, with and without a schema, and
requests small and large. Each is a process of its own, so that neither the test's interpreter nor
another bystander's delays it. Times are CLOCK_MONOTONIC's, which all processes share."""
import json
import multiprocessing
import socket
import threading
import time

from larder_testing.waiting import until

SPAWN = multiprocessing.get_context("spawn")
PAUSE_S = 0.002  # between two requests of one bystander
TOKENS = 300  # of a stream, then it asks again
LARGE = "word " * 3000  # more than what is read on the I/O thread

_SCHEMA = {"type": "array", "items": {"enum": ["cat", "dog"]}, "minItems": 200, "maxItems": 200}
# name: (method, path, body)
KINDS = {
    "stream": ("POST", "/v1/completions", {
        "prompt": "Once upon a time", "max_tokens": TOKENS, "stream": True, "ignore_eos": True
    }),
    "stream with a schema": ("POST", "/completion", {
        "prompt": "Once", "n_predict": TOKENS, "stream": True, "json_schema": _SCHEMA
    }),
    "small request": ("GET", "/health", None),
    "request of 15 KB": ("POST", "/tokenize", {"content": LARGE}),
}


def _ask(port, method, path, body):
    """A connection on which the request has been sent; it closes after the answer."""
    data = b"" if body is None else json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=300)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length:"
        f" {len(data)}\r\n\r\n".encode() + data)
    return connection


def _run(port, kind, pipe):
    """Asks for ever. Answers each (begin, end) in the pipe with the longest wait that lies in it,
    in part, in seconds; None with whether there were some waits."""
    waits = []  # (since when, how long)
    since = [time.monotonic()]

    def answer():
        while True:
            asked, now = pipe.recv(), time.monotonic()
            if asked is None:
                pipe.send(len(waits) > 20)
                continue
            begin, end = asked
            longest = max((long for at, long in list(waits) if at < end and at + long > begin),
                          default=0)
            pipe.send(max(longest, now - since[0] if since[0] < end else 0))
            del waits[:-100_000]
    threading.Thread(target=answer, daemon=True).start()
    request = KINDS[kind]
    while True:
        since[0] = time.monotonic()
        try:
            with _ask(port, *request) as connection:
                while connection.recv(65536):
                    now = time.monotonic()
                    waits.append((since[0], now - since[0]))
                    since[0] = now
        except OSError:  # the server has ended: the test sees that
            time.sleep(0.05)
        time.sleep(PAUSE_S)


class Bystander:
    def __init__(self, server, kind):
        self.kind = kind
        self.pipe, there = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_run, args=(server.http, kind, there), daemon=True)
        self.process.start()

    def longest_wait(self, begin, end):
        self.pipe.send((begin, end))
        return self.pipe.recv()

    def has_begun(self):
        """Whether it has been answered: its interpreter takes a second to start."""
        self.pipe.send(None)
        return self.pipe.recv()

    def leave(self):
        self.process.kill()
        self.process.join()


class Bystanders:
    """One of each kind, all of them answered already, for a with statement."""

    def __init__(self, server):
        self.all = [Bystander(server, kind) for kind in KINDS]
        until(lambda: all(one.has_begun() for one in self.all), 60, "a bystander gets no answers")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.all:
            one.leave()

    def longest_waits(self, begin, end):
        """{kind: seconds}."""
        return {one.kind: one.longest_wait(begin, end) for one in self.all}
