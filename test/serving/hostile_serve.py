#!/usr/bin/env python3
"""What bad input gets from the server: a clear error or a closed connection, bounded memory, and
others are served meanwhile.

    test/serving/hostile_serve.py --larder build/larder --model model/demo/larder-stories.gguf

Attacks that are named after a finding of the security review (S1, S2, S7) are processes of their
own. What they do to somebody who uses the server as it is meant (`larder bench-serve`) is held
against a calibration: a server may not add more than a millisecond to another client's token. On a
small machine an attack costs others time whatever the server does, because attacker, kernel and
client want the same cores. So each attack is first led against a sink, a program that accepts,
reads and throws away, beside a process of the nice value of the server's background thread that is
never idle; then against the server; and so on in turns. What the server adds is the difference of
the mean TPOT; the bound is a millisecond and the spread of the phases with a sink, which is what
the machine does by itself. The mean, because it has each stall in it: a server that sends nothing
for half a second every second is 0.5 s a token late for one token, and each token is late by its
share. The machine may be taken away in just the seconds of an attack, so an attack over the bound
is led again, MOST_ROUNDS times in all: a server at fault is late each time. Where a sanitizer makes
the server ten times slower (--only-print-tpot) nothing is calibrated, each attack is led once, and
what the bystander saw is printed.
"""
import json
import multiprocessing
import os
import pathlib
import re
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import hostile_access
from larder_testing import programs
from larder_testing.replies import events, read_all, split_reply
from larder_testing.server import Server
from larder_testing.waiting import until

MODEL_TIMEOUT_S = 2  # --timeout of the server under test
MOST_DELAY_MS = 1.0  # of another client's token, by an attack
MOST_ROUNDS = 5  # of an attack whose bystander was late
# What all clients may make the server hold, as serving/admission/admission.h has it
MOST_HELD = 256 << 20
# Memory that is in nobody's account: requests that are being read, what the allocator keeps
MOST_BESIDE = 64e6
BACKGROUND_NICE = 15  # as serving/admission/background.cc has it
SPAWN = multiprocessing.get_context("spawn")  # this process has threads


# Attacks: processes that are ended from outside. They get the ports of HTTP and of the text stream,
# the server's or a sink's.

def send(port, data, seconds):
    """What can be sent in that time; nobody reads the answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
            connection.sendall(data)
    except OSError:
        pass


def s1_large_requests_of_who_has_left(http, text):
    del text
    body = json.dumps({"content": "wonderful words " * 60000}).encode()
    request = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
               b" application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    while True:
        send(http, request, 1)


def s1_large_lines_of_who_has_left(http, text):
    del http
    line = b'{"n_predict":1,"prompt":[' + b"1," * 480000 + b"1]}\n"
    while True:
        send(text, line, 1)


def s2_tiny_requests_in_a_row(http, text):
    del text
    while True:
        send(http, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2500, 0.2)


def s2_tiny_lines_in_a_row(http, text):
    del http
    while True:
        send(text, b"{}\n" * 21000, 0.2)


def s7_connections_in_a_row(http, text):
    held = []
    while True:
        for port in (http, text):
            try:
                held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                held[-1].sendall(b"\n")
            except OSError:
                pass
        for connection in held[:-500]:
            connection.close()
        held = held[-500:]


def sink(ports):
    """Accepts, reads and throws away; ends when its parent does."""
    selector = selectors.DefaultSelector()
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=1024) for _ in range(2)]
    for listener in listeners:
        selector.register(listener, selectors.EVENT_READ)
    ports.send([listener.getsockname()[1] for listener in listeners])
    parent = os.getppid()
    while os.getppid() == parent:
        for key, _ in selector.select(1):
            try:
                if key.fileobj in listeners:
                    selector.register(key.fileobj.accept()[0], selectors.EVENT_READ)
                elif not key.fileobj.recv(65536):
                    raise ConnectionError
            except OSError:
                if key.fileobj not in listeners:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def burn():
    os.nice(BACKGROUND_NICE)
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(100000))


class Processes:
    """Runs processes for the length of a with statement."""

    def __init__(self, *targets):
        self.processes = [
            SPAWN.Process(target=target, args=args, daemon=True) for target, *args in targets
        ]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


class Bystander:
    """Somebody who uses the server as it is meant, one request after another, while others misuse
    it. A process of its own: this one's interpreter is busy."""

    def __init__(self, larder, server, once):
        self.once = once
        self.command = [
            larder, "bench-serve", "--endpoint", "text", "--port",
            str(server.text), "--max-concurrency", "1", "--num-prompts", "2" if once else "10",
            "--input-len", "8", "--output-len", "20" if once else "100", "--ignore-eos", "-o",
            "json"
        ]
        self.done = threading.Event()

    def tpot_ms(self):
        result = json.loads(
            subprocess.run(self.command, capture_output=True, check=True, timeout=300).stdout)
        assert result["failed"] == 0, result
        return result["mean_tpot_ms"]

    def during_seconds(self, seconds):
        deadline = time.monotonic() + seconds
        seen = [self.tpot_ms()]
        while time.monotonic() < deadline:
            if self.once:
                time.sleep(0.1)
            else:
                seen.append(self.tpot_ms())
        return statistics.mean(seen)

    def during(self, attack, server):
        """The mean of what it sees from the attack's begin to its end, or at its begin."""
        seen = []

        def watch():
            seen.append(self.tpot_ms())
            while not self.once and not self.done.is_set():
                seen.append(self.tpot_ms())
        self.done.clear()
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            attack(server)
        finally:
            self.done.set()
            thread.join()
        return statistics.mean(seen)


class Calibration:
    """What a bystander's token takes while attacks are led against a sink."""

    def __init__(self, bystander, only_print):
        self.bystander, self.only_print = bystander, only_print
        self.sink_ms = []
        here, there = SPAWN.Pipe()
        self.sink = SPAWN.Process(target=sink, args=(there,), daemon=True)
        self.sink.start()
        self.ports = here.recv()

    def against_sink(self, attack, seconds):
        if self.only_print:
            return
        with Processes((attack, *self.ports), (burn,)):
            self.sink_ms.append(self.bystander.during_seconds(seconds))

    def check(self, attempt):
        """attempt(), which returns its name and what the bystander saw, until that is within the
        bound; an error after MOST_ROUNDS.
        """
        for _ in range(MOST_ROUNDS):
            name, attacked_ms = attempt()
            if self.only_print:
                print(f"{name}: others' TPOT {attacked_ms:.3f} ms", flush=True)
                return
            noise_ms = max(self.sink_ms) - min(self.sink_ms)
            bound_ms = statistics.mean(self.sink_ms) + MOST_DELAY_MS + noise_ms
            print(
                f"{name}: others' TPOT {attacked_ms:.3f} ms, bound {bound_ms:.3f} ms (against a"
                f" sink {statistics.mean(self.sink_ms):.3f}, spread {noise_ms:.3f})", flush=True,
            )
            if attacked_ms <= bound_ms:
                return
        raise AssertionError(f"{name}: others' tokens were late {MOST_ROUNDS} times in a row")

    def end(self):
        self.sink.kill()
        self.sink.join()


def named(server, calibration, attack, rounds, seconds):
    """Against the sink and against the server in turns. Memory stays within the server's budget,
    and goes back when the attack is over.
    """
    before = server.resident_bytes()

    def attempt():
        seen, grown = [], 0
        for _ in range(rounds):
            calibration.against_sink(attack, min(seconds, 2))
            with Processes((attack, server.http, server.text)):
                seen.append(calibration.bystander.during_seconds(seconds))
                grown = max(grown, server.resident_bytes() - before)
            server.idle()
        kept = server.resident_bytes() - before
        name = (f"{attack.__name__}: {rounds} x {seconds} s, memory {grown / 1e6:+.1f} MB, then "
                f"{kept / 1e6:+.1f}")
        assert grown < MOST_HELD + MOST_BESIDE, f"{name}: more than the server's budget"
        assert kept < MOST_BESIDE, f"{name}: still held when all have left"
        return name, statistics.mean(seen)
    calibration.check(attempt)


def unnamed(server, bystander, attack, before):
    """A check for Calibration.check(): one of the attacks that are made in this process."""
    def attempt():
        begin = time.monotonic()
        attacked_ms = bystander.during(attack, server)
        seconds = time.monotonic() - begin
        server.idle()
        return ((f"{attack.__name__}: {seconds:.1f} s, memory"
                 f" {(server.resident_bytes() - before) / 1e6:+.1f} MB"), attacked_ms,
                )
    return attempt


def nothing_is_held(server):
    """The budget is as it was before the first client."""
    held = {}

    def nothing():
        held.update(
            re.findall(r'^larder_held\{resource="(\w+)"\} (\S+)$',
                       server.get("/metrics")[1].decode(), re.MULTILINE))
        assert set(held) == {"connections", "requests", "bytes", "queued_bytes"}, held
        return all(float(held[name]) == 0 for name in ("requests", "bytes", "queued_bytes"))
    until(nothing, 30, lambda: f"still held: {held}")


def expect_error(reply, status, *words):
    got, body = reply
    assert got == status, (got, status, body[:300])
    error = json.loads(body)["error"]
    overflow = {"n_prompt_tokens", "n_ctx"} if error["code"] == "context_length_exceeded" else set()
    assert set(error) == {"message", "type", "param", "code"} | overflow, error
    for word in words:
        assert word in error["message"], (word, error)


def bad_bodies(server):
    post = lambda body: server.post("/v1/completions", body)
    expect_error(post(b"{"), 400, "not JSON")
    expect_error(post(b""), 400, "not JSON")
    expect_error(post(b"[" * 100000), 400, "nested")
    expect_error(post(b'{"prompt":"\xff\xfe"}'), 400, "not JSON")
    expect_error(post(b'{"prompt":"a","temperature":NaN}'), 400, "not JSON")
    expect_error(post(b'{"prompt":"a","temperature":1e999}'), 400)
    expect_error(post(b'{"prompt":"a","temperature":1e30}'), 400, "temperature")
    expect_error(post(b'{"prompt":"a","max_tokens":1e300}'), 400, "max_tokens")
    expect_error(post(b'{"prompt":"a","max_tokens":99999999999999999999999}'), 400, "max_tokens")
    expect_error(post(b'{"prompt":"a","seed":-99999999999999999999999}'), 400, "seed")
    expect_error(post({"prompt": 5}), 400, "prompt")
    expect_error(post({"prompt": []}), 400, "prompt")
    expect_error(post({"prompt": [1, -1]}), 400, "prompt")
    expect_error(post({"prompt": [1, 10**9]}), 400, "prompt")
    expect_error(post({"prompt": {"a": 1}}), 400, "prompt")
    expect_error(post({}), 400, "prompt is missing")
    expect_error(post([1]), 400, "object")
    expect_error(post({"prompt": "a", "temperature": "hot"}), 400, "temperature")
    expect_error(post({"prompt": "a", "top_p": 2}), 400, "top_p")
    expect_error(post({"prompt": "a", "stop": [""]}), 400, "stop")
    expect_error(post({"prompt": "a", "stop": ["x"] * 1000}), 400, "stop")
    expect_error(post({"prompt": "a", "n": 10**6}), 400, "n is")
    expect_error(post({"prompt": "a", "stream": "yes"}), 400, "stream")
    expect_error(post({"prompt": "a", "logit_bias": {"99999999": 1}}), 400, "logit_bias")
    assert post({"prompt": "a", "model": "gpt-4", "max_tokens": 1})[0] == 200
    expect_error(post({"prompt": "a", "model": 4}), 400, "model")
    expect_error(post({"prompt": "word " * 5000}), 400, "context length is 512", "tokens")
    expect_error(post({"prompt": "a", "suffix": "b"}), 400, "suffix")
    chat = lambda body: server.post("/v1/chat/completions", body)
    expect_error(chat({"messages": "hi"}), 400, "messages")
    expect_error(chat({"messages": [{"role": "wizard", "content": "hi"}]}), 400, "messages")
    expect_error(chat({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), 400,
                 "type")
    expect_error(
        chat({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]}),
        400, "tools")
    expect_error(server.get("/nothing"), 404, "/nothing")
    expect_error(server.get("/v1/completions"), 405, "POST")
    expect_error(server.post("/health", b""), 405)


def bad_http(server):
    def raw(data):
        with server.connect(server.http) as connection:
            try:
                connection.sendall(data)
                return split_reply(read_all(connection))
            except ConnectionError:
                return None
    expect_error(raw(b"nonsense\r\n\r\n"), 400)
    expect_error(raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n"), 400)
    expect_error(
        raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
        400)
    expect_error(raw(b"GET /" + b"a" * 100000), 431)
    expect_error(raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x: y\r\n" * 20000), 431)
    expect_error(
        raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n"
            ), 413, "larger")
    raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
        b"FFFFFFFFFFFFFFFFFF\r\n")
    # 100 MB that are sent in spite of the answer: refused, and not kept.
    with server.connect(server.http) as connection:
        try:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length:"
                b" 104857600\r\n\r\n")
            for _ in range(100):
                connection.sendall(b"x" * (1 << 20))
        except ConnectionError:
            pass
    # A request in single bytes is as good as any, if it comes in time.
    with server.connect(server.http) as connection:
        for byte in b"GET /health HTTP/1.0\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert split_reply(read_all(connection))[0] == 200
    # Several at once on a connection are answered in turn.
    with server.connect(server.http) as connection:
        body = b'{"prompt":"The cat","max_tokens":3,"temperature":0}'
        one = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" %
               len(body) + body)
        connection.sendall(one * 3 +
                           b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200") == 4


def bad_lines(server):
    def say(data, end=True):
        with server.connect(server.text) as connection:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)
    assert say(b"\xff\xfe\n").startswith(b"error: ")
    assert say(b"a" * (2 << 20), end=False).startswith(b"error: the line is longer")
    for line in [
            b"{", b'{"prompt":1}', b'{"prompt":"a","id":[]}', b'{"cancel":{}}', b"{}",
            b'{"prompt":"a","temperature":"x"}', b'{"prompt":"a","n_predict":1e99}'
    ]:
        replies = say(line + b"\n").splitlines()
        assert len(replies) == 1 and "error" in json.loads(replies[0]), (line, replies)
    # An error ends the request, not the connection; half-closed clients get their answers.
    replies = [
        json.loads(line)
        for line in say(
            b'{bad\n\n{"prompt":"The cat","n_predict":2,"id":"x","stream":false}\n{"cancel":"y"}\n'
        ).splitlines()
    ]
    assert (
        "error" in replies[0] and replies[1]["id"] == "x" and replies[1]["tokens_predicted"] == 2
    ), replies
    many = b"".join(b'{"prompt":"The cat","ignore_eos":true,"id":%d}\n' % i for i in range(20))
    with server.connect(server.text) as connection:
        connection.sendall(many)
        # On a busy machine many tokens come before the last line is read.
        replies = (json.loads(line) for line, _ in zip(connection.makefile("rb"), range(5000)))
        assert any(reply.get("error", {}).get("code") == 429 for reply in replies)


def slow_and_silent(server):
    """Slow senders are cut off after the time limit, whoever never reads after it too; thousands of
    idle ones hurt nobody.
    """
    idle = [server.connect(server.http)
            for _ in range(1000)] + [server.connect(server.text) for _ in range(1000)]
    greedy = server.connect(server.http)
    greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = json.dumps({
        "prompt": ["The cat"] * 8, "n": 8, "stream": True, "ignore_eos": True, "logprobs": 20,
        "max_tokens": 400
    }).encode()
    greedy.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" %
        len(body) + body)
    slow = server.connect(server.http)
    slow_line = server.connect(server.text)
    begin = time.monotonic()
    reply = b""
    try:
        while time.monotonic() - begin < 5 * MODEL_TIMEOUT_S + 20:
            slow.sendall(b"GET /health"[:1] if time.monotonic() - begin < 0.1 else b"x")
            slow_line.sendall(b"x")
            time.sleep(0.2)
    except ConnectionError:
        pass
    seconds = time.monotonic() - begin
    assert MODEL_TIMEOUT_S * 0.5 < seconds < 5 * MODEL_TIMEOUT_S + 19, seconds
    status, text = server.post("/v1/completions", {"prompt": "The cat", "max_tokens": 4})
    assert status == 200, text
    until(lambda: json.loads(server.get("/v1/larder/status")[1])["queue"]["waiting"] == 0, 60,
          "the client that never reads holds its slots")
    for connection in idle + [greedy, slow, slow_line]:
        connection.close()


def large_requests(server):
    """Megabytes to parse and to tokenize, over both protocols, for three seconds."""
    line = b'{"n_predict":1,"prompt":[' + b"1," * 400000 + b"1]}\n"
    body = json.dumps({"prompt": "word " * 180000, "max_tokens": 1}).encode()
    tokenize = json.dumps({"content": "wonderful words " * 50000}).encode()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        with server.connect(server.text) as connection:
            connection.sendall(line)
            expect_error(server.post("/v1/completions", body), 400, "context")
            assert server.post("/tokenize", tokenize)[0] == 200
            error = json.loads(connection.makefile("rb").readline())["error"]
            assert error["code"] == "context_length_exceeded", error


def half_requests(server):
    """A megabyte each of hundreds of requests that never end: more than the server keeps."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n"
    half = []
    for i in range(400):
        connection = server.connect(server.http if i % 2 else server.text)
        half.append(connection)
        try:
            connection.sendall((head if i % 2 else b"") + b"x" * 1000000)
        except ConnectionError:
            pass  # refused already
    status, text = server.post("/v1/completions", {"prompt": "The cat", "max_tokens": 4})
    assert status == 200, text
    for connection in half:
        connection.close()


def too_many(larder, model):
    with Server(larder, model, "--max-connections", "8", "--parallel", "1", "--queue",
                "1") as server:
        held = [server.connect(server.http) for _ in range(8)]
        assert server.get("/health")[0] == 200  # the longest idle makes room
        for connection in held[1:]:
            connection.sendall(b"GET ")
        held.append(server.connect(server.http))
        held[-1].sendall(b"GET ")
        server.has_read(server.http)  # none of them is idle any more
        with server.connect(server.http) as connection:
            expect_error(split_reply(read_all(connection)), 503, "connections")
        for connection in held:
            connection.close()
        until(lambda: server.health() == 200, 60,
              "the server keeps connections that their clients closed")
        # One has the slot, one waits, the third is told.
        long = (json.dumps(
            {"prompt": "The cat", "ignore_eos": True, "stream": True, "n_predict": 480}).encode() +
                b"\n")
        with server.connect(server.text) as connection:
            connection.sendall(long * 3)
            codes = []
            for line in connection.makefile("rb"):
                reply = json.loads(line)
                if "error" in reply:
                    codes.append(reply["error"]["code"])
                    break
            assert codes == [429], codes
        assert server.idle()


def s7_one_client_fills_the_house(larder, model):
    """An address has its share of the connections; who is idle makes room."""
    def of(address, port):
        return socket.create_connection(("127.0.0.1", port), timeout=60,
                                        source_address=(address, 0))
    with Server(larder, model, "--max-connections", "16", "--max-connections-per-peer",
                "8") as server:
        idle = [of("127.0.0.3", server.http) for _ in range(100)]
        busy = [of("127.0.0.2", server.http) for _ in range(8)]
        for connection in busy:
            connection.sendall(b"GET ")
        server.has_read(server.http)
        assert json.loads(server.get("/v1/larder/status")[1])["connections"]["http"] <= 16
        with of("127.0.0.2", server.text) as connection:  # on either port
            assert read_all(connection).startswith(b"error: too many connections of this address")
        with of("127.0.0.2", server.http) as connection:
            expect_error(split_reply(read_all(connection)), 429, "address")
        ended = sum(connection.recv(1) == b"" for connection in idle[:92])
        assert ended == 92, ended
        assert b'larder_over_limit_total{resource="connections",scope="peer"} 2' in server.get(
            "/metrics")[1]
        for connection in idle + busy:
            connection.close()


def keys(larder, model, folder):
    path = f"{folder}/keys-{time.time_ns()}"
    with open(path, "w", encoding="ascii") as file:
        file.write("# ours\nsecret-1\n\nsecret-2\n")
    with Server(larder, model, "--api-key-file", path) as server:
        body = {"prompt": "The cat", "max_tokens": 1}
        expect_error(server.post("/v1/completions", body), 401, "API key")
        expect_error(server.post("/v1/completions", body, "Authorization: Bearer secret-3\r\n"),
                     401)
        expect_error(server.get("/metrics"), 401)
        assert server.post("/v1/completions", body, "Authorization: Bearer secret-2\r\n")[0] == 200
        assert server.get("/health")[0] == 200
        for line, good in [(b"The cat\n", False), (b'{"prompt":"a","api_key":"no"}\n', False),
                           (b'{"prompt":"a","n_predict":1,"api_key":"secret-1"}\n', True)]:
            with server.connect(server.text) as connection:
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                assert (b"error" not in read_all(connection)) == good, line


def drains(larder, model):
    """SIGTERM: what has begun is finished, nothing new is begun, exit 0; a second one ends at
    once.
    """
    with Server(larder, model) as server:
        with server.connect(server.text) as connection:
            connection.sendall(b'{"prompt":"The cat","ignore_eos":true,"n_predict":400}\n')
            lines = connection.makefile("rb")
            lines.readline()
            server.process.terminate()
            last = [json.loads(line) for line in lines][-1]
            assert last["stop"] and last["tokens_predicted"] == 400, last
        assert server.process.wait(30) == 0
    server = Server(larder, model, "--drain-timeout", "1000").__enter__()
    with server.connect(server.http) as connection:  # a request half sent keeps it draining
        connection.sendall(b"POST ")
        server.has_read(server.http)
        server.process.terminate()
        # A second one before the first is seen would be none
        until(lambda: server.health() != 200, 60, "SIGTERM changes nothing")
        time.sleep(0.5)
        assert server.process.poll() is None, "it did not wait for the client"
        server.process.terminate()
        assert server.process.wait(60) == 143
    server.end()


def answers(server):
    """The good cases over real sockets."""
    body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    status, reply = server.post("/v1/completions", body)
    whole = json.loads(reply)
    assert status == 200 and whole["usage"]["completion_tokens"] == 8, whole
    status, reply = server.post("/v1/completions",
                                {**body, "stream": True, "stream_options": {"include_usage": True}})
    chunks = list(events(reply.split(b"\n")))
    assert "".join(c["text"] for e in chunks for c in e["choices"]) == whole["choices"][0]["text"]
    assert chunks[-1]["usage"]["completion_tokens"] == 8 and chunks[-1]["choices"] == []
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    several = json.loads(
        server.post("/v1/completions",
                    {**body, "n": 3, "temperature": 1, "seed": 5, "logprobs": 2})[1])
    again = json.loads(
        server.post("/v1/completions",
                    {**body, "n": 3, "temperature": 1, "seed": 5, "logprobs": 2})[1])
    assert [c["text"] for c in several["choices"]] == [c["text"] for c in again["choices"]]
    assert len({c["text"] for c in several["choices"]}) > 1
    logprobs = several["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == 8 and all(value <= 0 for value in logprobs["token_logprobs"])
    stopped = json.loads(
        server.post("/v1/completions",
                    {**body, "max_tokens": 200, "stop": [" a "]})[1])["choices"][0]
    assert stopped["finish_reason"] == "stop" and " a " not in stopped["text"], stopped
    echo = json.loads(server.post("/v1/completions", {**body, "echo": True})[1])
    assert echo["choices"][0]["text"] == body["prompt"] + whole["choices"][0]["text"]
    tokens = json.loads(server.post("/tokenize", {"content": "The cat"})[1])["tokens"]
    assert json.loads(server.post("/detokenize",
                                  {"tokens": tokens})[1])["content"].strip() == "The cat"
    assert json.loads(server.get("/v1/models")[1])["data"][0]["id"] == whole["model"]
    assert server.get("/metrics")[1].count(b"larder_") > 10
    native = json.loads(
        server.post("/completion",
                    {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0})[1])
    assert (
        native["content"] == whole["choices"][0]["text"] and native["stop_type"] == "limit"
    ), native


def main():
    parser = programs.parser(__doc__, "larder", "model")
    parser.add_argument("--folder", default="/tmp", help="for small files")
    parser.add_argument("--only-print-tpot", action="store_true",
                        help="assert nothing of others' TPOT: with a sanitizer it says little")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (min(8192,
                            resource.getrlimit(resource.RLIMIT_NOFILE)[1]), ) * 2)
    # One thread computes: with two cores there is one for everybody else.
    options = [
        "--timeout",
        str(MODEL_TIMEOUT_S), "--max-connections", "1100", "--chat-template", "chatml", "-t", "1"
    ]
    with Server(args.larder, args.model, *options) as server:
        answers(server)
        before = server.resident_bytes()
        bystander = Bystander(args.larder, server, once=args.only_print_tpot)
        calibration = Calibration(bystander, args.only_print_tpot)
        for _ in range(2):  # so that there is a spread from the first attack on
            calibration.against_sink(s1_large_requests_of_who_has_left, 2)
        # It was 3.6 GB: large requests stayed queued after their clients had left.
        named(server, calibration, s1_large_requests_of_who_has_left, rounds=1,
              seconds=4 if args.only_print_tpot else 12)
        named(server, calibration, s1_large_lines_of_who_has_left, rounds=1, seconds=3)
        for attack in [s2_tiny_requests_in_a_row, s2_tiny_lines_in_a_row, s7_connections_in_a_row]:
            named(server, calibration, attack, rounds=1 if args.only_print_tpot else 2, seconds=2)
        for attack in [
                bad_bodies, bad_http, hostile_access.all_of_one_server, bad_lines, large_requests,
                half_requests, slow_and_silent
        ]:
            calibration.check(unnamed(server, bystander, attack, before))
        calibration.end()
        answers(server)
        grown = (server.resident_bytes() - before) / 1e6
        assert grown < 128, f"memory has grown by {grown:.1f} MB"
        nothing_is_held(server)
    too_many(args.larder, args.model)
    s7_one_client_fills_the_house(args.larder, args.model)
    keys(args.larder, args.model, args.folder)
    drains(args.larder, args.model)
    hostile_access.all_with_servers_of_their_own(args.larder, args.model)
    print("all as expected")


if __name__ == "__main__":
    sys.exit(main())
