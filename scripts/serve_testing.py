"""For the tests of the server: starts `larder serve` on free ports and speaks to it over bare sockets."""
import json
import re
import signal
import socket
import subprocess
import time


class Server:
    """`larder serve`, on ports of the system's choice; ended by the with statement."""

    def __init__(self, larder, model, *options):
        self.command = [larder, "serve", "-m", model, "--port", "0", "--text-port", "0", *options]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.http = self.text = None
        while self.text is None:
            line = self.process.stdout.readline()
            assert line, f"larder serve ended with {self.process.wait()}"
            if found := re.search(r"http://\S+:(\d+)", line):
                self.http = int(found[1])
            if found := re.search(r"^text stream +\S+:(\d+)", line):
                self.text = int(found[1])
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        if kind is None:
            assert self.process.returncode == 0, f"larder serve ended with {self.process.returncode}"

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096

    def connect(self, port, timeout=60):
        connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def post(self, path, body, headers="", method="POST"):
        """Status and body of a request; the body may be a dict or bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
        with self.connect(self.http) as connection:
            connection.sendall(head.encode() + data)
            return split_reply(read_all(connection))

    def get(self, path, headers=""):
        return self.post(path, b"", headers, "GET")

    def idle(self):
        """Waits until no slot is in use, nobody waits and nobody is connected."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            status = json.loads(self.get("/v1/larder/status")[1])
            others = status["connections"]["http"] - 1 + status["connections"]["text"]
            if status["queue"]["waiting"] == 0 and others == 0 and all(slot["state"] == "idle" for slot in status["slots"]):
                return status
            time.sleep(0.05)
        raise AssertionError(f"slots are still in use: {status}")


def read_all(connection):
    parts = []
    while data := connection.recv(65536):
        parts.append(data)
    return b"".join(parts)


def split_reply(reply):
    """(status, body) of an HTTP reply, its chunks joined."""
    head, _, body = reply.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if b"transfer-encoding: chunked" in head.lower():
        joined = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            joined += body[:int(size, 16)]
            body = body[int(size, 16) + 2:]
        body = joined
    return status, body


def events(body):
    """The objects of a stream of server-sent events; it must end with [DONE]."""
    lines = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines[-1]
    return [json.loads(line) for line in lines[:-1]]
