"""`larder serve` for the tests of this folder, on free ports of the loopback address."""

import re
import subprocess
import threading
import time


class Served:
    """Runs from `with` on, and answers. `url` is HTTP's, `text` the text stream's (host, port)."""

    def __init__(self, larder, model, *options):
        self.command = [larder, "serve", "-m", model, "--port", "0", "--text-port", "0", *options]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.text = None
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(60) or not self.text:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"larder serve did not come up: {''.join(self.lines)}")
        return self

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if match := re.search(r"http://\S+", line):
                self.url = match.group()
            if match := re.search(r"text stream\s+(\S+):(\d+)", line):
                self.text = (match.group(1), int(match.group(2)))
                self.ready.set()
        self.ready.set()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()

    def end(self, timeout_s=30):
        """SIGTERM; the exit code."""
        self.process.terminate()
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("larder serve did not end on SIGTERM")
            time.sleep(0.02)
        self.reader.join()
        self.process.stdout.close()
        return self.process.returncode
