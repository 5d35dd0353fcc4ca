"""Processes whose output is in files, so that it can be read while they run and no full pipe stops
them.
"""
import pathlib
import signal
import subprocess
import threading
import time

RESTART_S = 1.0  # as RestartSec of larder@.service


class Process:
    """A program from now on; killed at the end of a with statement."""

    def __init__(self, command, log):
        """Its standard output goes to LOG.out, its standard error to LOG.err."""
        self.command, self.log = [str(word) for word in command], str(log)
        with open(f"{log}.out", "w", encoding="utf-8") as out, open(f"{log}.err", "w",
                                                                    encoding="utf-8") as err:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    # By handles of their own: the program's has its place in the file, which must stay where the
    # program left it.
    def out(self):
        return pathlib.Path(f"{self.log}.out").read_text(encoding="utf-8", errors="replace")

    def err(self):
        return pathlib.Path(f"{self.log}.err").read_text(encoding="utf-8", errors="replace")

    def said(self):
        return self.out() + self.err()

    def running(self):
        return self.process.poll() is None

    def status(self):
        """The exit status, None while it runs."""
        return self.process.poll()

    def wait(self, limit_s):
        """The exit status, None if it did not end in time."""
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Unit:
    """The process of one socket, started again a second after it ended, as systemd would. All that
    its processes say is in the file `log`.
    """

    def __init__(self, name, command, log):
        self.name, self.command, self.log = name, [str(word) for word in command], pathlib.Path(log)
        self.process, self.started, self.wanted = None, None, False
        self.ends = []  # (exit status, when) of each process
        self.lock = threading.Lock()

    def start(self):
        with self.lock:
            self.wanted = True
            self._spawn()

    def _spawn(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)
        self.started = time.monotonic()
        self.noted = threading.Event()  # how it ended is in the log
        threading.Thread(target=self._watch, args=(self.process, self.noted), daemon=True).start()

    def _watch(self, process, noted):
        status = process.wait()
        self.ends.append((status, time.monotonic()))
        try:
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"unit: {self.name} ended with {status}\n")
        finally:
            noted.set()
        time.sleep(RESTART_S)
        with self.lock:
            if self.wanted and self.process is process:
                self._spawn()

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def signal(self, number):
        with self.lock:
            if self.process and self.process.poll() is None:
                self.process.send_signal(number)

    def kill(self):
        """kill -9, and no new start. Nothing is written to the log any more."""
        with self.lock:
            self.wanted = False
            if self.process and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        if self.process:
            self.noted.wait()

    def stop(self, limit_s=90):
        """SIGTERM, then SIGKILL, and no new start. The exit status, None if it had to be killed.
        Nothing is written to the log any more.
        """
        with self.lock:
            self.wanted = False
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            status = self.process.wait(limit_s)
            self.noted.wait()
            return status
        except subprocess.TimeoutExpired:
            self.kill()
            return None
