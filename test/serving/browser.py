"""Headless Chromium over the DevTools protocol on its pipe (two file descriptors, JSON ended by
NUL): no driver, no websocket, nothing but Python's library."""

import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Failed(Exception):
    pass


class Browser:
    """One browser with one page. Keeps what the page logged, threw and asked for."""

    def __init__(self, path, width=1400, height=900, dark=False):
        self.profile = tempfile.mkdtemp(prefix="larder-browser-")
        command_out, self.command_in = os.pipe()
        self.answer_out, answer_in = os.pipe()
        arguments = [
            path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--disable-extensions", "--disable-background-networking", "--disable-component-update",
            "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
            "about:blank"
        ]

        def descriptors_3_and_4():
            # Through high numbers first: either pipe may already be 3 or 4.
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate((command_out, answer_in))]
            for target, fd in zip((3, 4), high):
                os.dup2(fd, target)
            os.setsid()

        self.process = subprocess.Popen(arguments, preexec_fn=descriptors_3_and_4, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(command_out)
        os.close(answer_in)
        self.ids = itertools.count(1)
        self.rest = b""
        self.answers, self.problems, self.urls = {}, [], []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.show(width, height, dark)

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.command_in)
        os.close(self.answer_out)
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- the protocol

    def call(self, method, timeout_s=20, **parameters):
        message = {"id": next(self.ids), "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.command_in, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout_s
        while message["id"] not in self.answers:
            self._receive(deadline, method)
        answer = self.answers.pop(message["id"])
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']}")
        return answer["result"]

    def _receive(self, deadline, what):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.answer_out], [], [], left)[0]:
            raise Failed(f"{what}: no answer from the browser")
        piece = os.read(self.answer_out, 1 << 20)
        if not piece:
            raise Failed(f"{what}: the browser is gone")
        *messages, self.rest = (self.rest + piece).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self._event(message["method"], message["params"])

    def _event(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning",
                                                                             "assert"):
            self.problems.append(f"console: {parameters['args']}")
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(
                f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.urls.append(parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog opened: {parameters['message']}")

    # --- what tests do

    def show(self, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        """Leaves the page before, forgets what it did, and goes there."""
        self.call("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.problems.clear()
        self.urls.clear()
        self.call("Page.navigate", url=url)

    def run(self, expression):
        """The value of a JavaScript expression (awaited) in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failed(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression, timeout_s=15):
        """Waits until the expression is true."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if self.run(f"Boolean({expression})"):
                    return
            except Failed as error:  # while a page is being replaced there is nothing to ask
                if "context" not in str(error) and "navigat" not in str(error):
                    raise
            time.sleep(0.03)
        raise Failed(
            f"never true: {expression}; the page says: {self.run('document.body.innerText')[:2000]}"
        )

    def press(self, key, modifiers=0, text=None):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        common = {
            "key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0),
            "modifiers": modifiers
        }
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text or
                  ("\r" if key == "Enter" else ""), **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self):
        """The whole page as PNG, base64."""
        return self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
