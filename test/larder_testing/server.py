"""A server to speak to over bare sockets: `larder serve` on free ports, or one that runs
already.
"""
import json
import re
import signal
import socket
import subprocess
import threading

from larder_testing.replies import read_all, split_reply
from larder_testing.waiting import until

# Of an answer, of a start, of an end. An answer of milliseconds takes a minute beside other tests,
# with a sanitizer and threads that wait for each other on two CPUs; what hangs is found all the
# same.
LIMIT_S = 180


class Endpoint:
    """A server on this machine. `http` and `text` are its ports."""

    def __init__(self, http, text=None):
        self.http, self.text = http, text

    def connect(self, port, timeout=LIMIT_S):
        connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def post(self, path, body, headers="", method="POST"):
        """Status and body of a request; the body may be a dict or bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Length: {len(data)}\r\n{headers}\r\n")
        with self.connect(self.http) as connection:
            connection.sendall(head.encode() + data)
            return split_reply(read_all(connection))

    def get(self, path, headers=""):
        return self.post(path, b"", headers, "GET")

    def health(self):
        """What /health says: 200, 503; None if nobody answers."""
        try:
            return self.get("/health")[0]
        except (OSError, ValueError, IndexError):
            return None

    def has_read(self, port):
        """Waits until the server has read all that its clients of this port have sent: what the
        kernel holds for it is nothing.
        """
        def held():
            with open("/proc/net/tcp", encoding="ascii") as sockets:
                for line in list(sockets)[1:]:
                    _, local, _, state, queues = line.split()[:5]
                    if local.endswith(f":{port:04X}") and state in ("01", "08") and int(
                            queues.split(":")[1], 16) > 0:
                        return True
            return False
        until(lambda: not held(), LIMIT_S, f"the server does not read from port {port}")

    def idle(self):
        """Waits until no slot is in use, nobody waits and nobody is connected."""
        status = {}

        def nobody():
            status.update(json.loads(self.get("/v1/larder/status")[1]))
            others = status["connections"]["http"] - 1 + status["connections"]["text"]
            return status["queue"]["waiting"] == 0 and others == 0 and all(
                slot["state"] == "idle" for slot in status["slots"])
        until(nobody, LIMIT_S, lambda: f"slots are still in use: {status}")
        return status


class Server(Endpoint):
    """`larder serve`, on ports of the system's choice; ended by the with statement, which wants
    exit code 0.

    `url` is HTTP's. What it says on standard error is the test's to show.
    """

    def __init__(self, larder, model, *options, stderr=None):
        super().__init__(None)
        self.stderr = stderr
        self.ends_with = 0
        self.command = [larder, "serve", "-m", model, "--port", "0", "--text-port", "0", *options]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        self.lines = []
        self.url = None
        self.ready = threading.Event()
        # To its end: a full pipe would stop the server
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(LIMIT_S) or self.text is None:
            self.process.kill()
            raise RuntimeError(f"larder serve did not come up, status {self.process.wait()}: "
                               f"{''.join(self.lines)[-300:]}")
        return self

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"http://\S+:(\d+)", line):
                self.url, self.http = found[0], int(found[1])
            if found := re.search(r"^text stream +\S+:(\d+)", line):
                self.text = int(found[1])
                self.ready.set()
        self.ready.set()

    def __exit__(self, kind, *_):
        code = self.end()
        if kind is None:
            assert code == self.ends_with, f"larder serve ended with {code}"

    def kill(self):
        """SIGKILL; the with statement expects it."""
        self.ends_with = -signal.SIGKILL
        self.process.kill()
        self.process.wait()

    def end(self, timeout_s=LIMIT_S):
        """SIGTERM, unless it has ended; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError("larder serve did not end on SIGTERM") from None
        self.reader.join()
        self.process.stdout.close()
        return self.process.returncode

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096
