"""Who may talk to `larder serve`, over real sockets: pages of other origins, names that lead here,
requests that two readers cut differently, other protocols on the text port, keys. Each finding of
the security review by name; part of hostile_serve.py."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from larder_testing.replies import read_all, split_reply
from larder_testing.server import Server
from larder_testing.waiting import until

KEY, OTHER_KEY = "secret-1", "secret-2"


def raw(server, data, text=False):
    """All that the server says to these bytes until it closes; "" if it only closes."""
    with server.connect(server.text if text else server.http) as connection:
        try:
            connection.sendall(data)
            return read_all(connection)
        except ConnectionError:
            return b""


def s3_pages_of_others(server):
    body = {"prompt": "The cat", "max_tokens": 1}
    evil = "Origin: http://evil.example\r\n"
    for headers in (evil, evil + "Content-Type: text/plain\r\n", "Origin: null\r\n"):
        status, reply = server.post("/v1/completions", body, headers)
        assert status == 403 and b"--cors-origin" in reply, (status, reply)
    assert server.post("/v1/completions", b"", evil, "OPTIONS")[0] == 403
    reply = raw(server,
                b"GET /v1/larder/plan HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    assert split_reply(reply)[0] == 403 and b"--allowed-host" in reply, reply
    for host in (f"127.0.0.1:{server.http}", f"localhost:{server.http}", f"[::1]:{server.http}"):
        reply = raw(
            server, f"GET /health HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection:"
            " close\r\n\r\n".encode(),
        )
        assert split_reply(reply)[0] == 200 and b"access-control" not in reply.lower(), reply


def s3_nothing_is_generated_for_others(larder, model):
    """Counted where nobody else is: with other clients their tokens would be in the sum."""
    with Server(larder, model) as server:
        def tokens():
            return re.findall(r"^larder_generated_tokens_total\b.* (\S+)$",
                              server.get("/metrics")[1].decode(), re.MULTILINE)
        assert tokens() == ["0"], tokens()
        s3_pages_of_others(server)
        server.idle()  # what had begun would be counted by now
        assert tokens() == ["0"], "something was generated for a page of others"


def s3_pages_that_are_named(larder, model):
    origin = "https://chat.example"
    with Server(larder, model, "--cors-origin", "https://other.example", "--cors-origin", origin,
                "--allowed-host", "llm.example") as server:
        head = f"Host: llm.example\r\nOrigin: {origin}\r\nConnection: close\r\n"
        reply = raw(
            server, f"OPTIONS /v1/completions HTTP/1.1\r\n{head}Access-Control-Request-Headers:"
            " x-own\r\n\r\n".encode(),
        )
        assert split_reply(
            reply)[0] == 200 and b"Access-Control-Allow-Headers: x-own\r\n" in reply, reply
        reply = raw(server, f"GET /health HTTP/1.1\r\n{head}\r\n".encode())
        assert f"Access-Control-Allow-Origin: {origin}\r\n".encode() in reply, reply
        assert server.get("/health", "Origin: https://chat.example.evil.example\r\n")[0] == 403


def s4_other_protocols(server):
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"POST / HTTP/1.1\r\n\r\n{\"prompt\":\"The cat\"}\n", b"SSH-2.0-x\r\n",
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        reply = raw(server, data, text=True)
        assert reply.startswith(b"error: this is ") and reply.count(b"\n") == 1, (data, reply)


def s5_keys_that_are_none(larder, model):
    def refused(*options):
        done = subprocess.run(
            [larder, "serve", "-m", model, "--port", "0", "--text-port", "-1", *options],
            capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, (options, done)
        return done.stderr
    assert "is a variable not set?" in refused("--api-key", "")
    assert "7 bytes" in refused("--api-key", "1234567")
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write(f"# ours\n\n{KEY}\nshort\n")
        file.flush()
        said = refused("--api-key-file", file.name)
        assert f"{file.name}:4: " in said and "short" not in said.replace("shorter", ""), said


def s5_open_to_the_network(larder, model):
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [larder, "serve", "-m", model, "--host", "0.0.0.0", "--port", "0", "--text-port", "-1"],
            stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            assert "(no key: open to the network)" in process.stdout.readline()
        finally:
            process.terminate()
            process.wait(60)
        said.seek(0)
        warnings = [line for line in said if "without a key" in line]
        assert len(warnings) == 1, warnings


def s6_framing(server):
    for headers in (b"Transfer-Encoding: chunked, x", b"Transfer-Encoding: x",
                    b"Transfer-Encoding: x\r\nContent-Length: 4",
                    b"Content-Length: 4\r\nTransfer-Encoding: chunked"):
        reply = raw(
            server, b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\n" + headers +
            b"\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reply.count(b"\r\nServer: larder") == 1 and split_reply(reply)[0] in (400,
                                                                                     501), (headers,
                                                                                            reply)
    reply = raw(
        server,
        b"POST /v1/models HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health"
        b" HTTP/1.1\r\n\r\n",
    )
    assert reply.count(b"\r\nServer: larder") == 1 and split_reply(reply)[0] == 400, reply


def s8_prefixes_of_others(larder, model):
    """What one key has cached, another is not told of."""
    with Server(larder, model, "--api-key", KEY, "--api-key", OTHER_KEY, "--parallel",
                "2") as server:
        def cached(key):
            reply = server.post("/completion", {
                "prompt": "Once upon a time there was a little girl", "n_predict": 1,
                "temperature": 0
            }, f"Authorization: Bearer {key}\r\n")
            return json.loads(reply[1])["tokens_cached"]
        assert cached(KEY) == 0 and cached(KEY) > 0
        assert cached(OTHER_KEY) == 0, "the other's prompt shows"
        assert cached(OTHER_KEY) > 0 and cached(KEY) > 0


def s12_keys_change(larder, model):
    """The file is read again, by itself and on SIGHUP; nobody without a key goes unseen, nor fills
    the log.
    """
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+",
                                                       encoding="utf-8") as log:
        path = f"{folder}/keys"

        def write(text):
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(text)
            os.rename(path + ".new", path)

        def status(server, key):
            return server.get("/props", f"Authorization: Bearer {key}\r\n")[0]

        def becomes(server, key, wanted):
            until(lambda: status(server, key) == wanted, 60, f"key {key}: not {wanted}")
        write(f"{KEY}\n")
        with Server(larder, model, "--api-key-file", path, stderr=log) as server:
            assert (status(server, KEY), status(server, OTHER_KEY)) == (200, 401)
            write(f"{OTHER_KEY}\n")
            becomes(server, OTHER_KEY, 200)
            assert status(server, KEY) == 401
            write("short\n")  # a file that is no good changes nothing
            server.process.send_signal(signal.SIGHUP)
            until(lambda: f"{path}:1: " in pathlib.Path(log.name).read_text(encoding="utf-8"), 60,
                  "a file that is no good goes unseen")
            assert status(server, OTHER_KEY) == 200
            write(f"{KEY}\n{OTHER_KEY}\n")
            server.process.send_signal(signal.SIGHUP)
            becomes(server, KEY, 200)
        log.seek(0)
        said = log.read()
        assert "keys are unchanged" in said and f"{path}:1: " in said, said
        denied = [line for line in said.splitlines() if "without a good API key" in line]
        assert 1 <= len(denied) <= 12 and "127.0.0.1:" in denied[0], denied


def s11_nobody_reads_the_log(larder, model):
    """`larder serve 2>&1 | head -1`: the next line is written to nobody."""
    reader, writer = os.pipe()
    with Server(larder, model, "--api-key", KEY, stderr=writer) as server:
        os.close(writer)
        os.close(reader)
        assert server.get("/props")[0] == 401  # which is a line in the log
        assert server.get("/health")[0] == 200


def all_of_one_server(server):
    """What any server without keys has to stand; fit to be an attack of hostile_serve."""
    for check in (s3_pages_of_others, s4_other_protocols, s6_framing):
        check(server)


def all_with_servers_of_their_own(larder, model):
    for check in (s3_nothing_is_generated_for_others, s3_pages_that_are_named,
                  s5_keys_that_are_none, s5_open_to_the_network, s8_prefixes_of_others,
                  s11_nobody_reads_the_log, s12_keys_change):
        check(larder, model)
        print(f"{check.__name__}: as expected", flush=True)
