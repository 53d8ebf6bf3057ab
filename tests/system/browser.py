"""A real Chromium without a screen, driven by its own protocol over two pipes: no package is needed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

import support

WAIT_S = 60


def find():
    """The program, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One tab."""

    def __init__(self, width=1100, height=1400):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-browser-", ignore_cleanup_errors=True)
        theirs, self.write = os.pipe()
        self.read, theirs_out = os.pipe()

        def place():
            os.dup2(os.dup(theirs), 3)  # not onto each other: both may be 3 or 4 already
            os.dup2(saved, 4)

        saved = os.dup(theirs_out)
        os.set_inheritable(saved, True)
        words = [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir=" + self.folder.name,
                 "--window-size=%d,%d" % (width, height), "about:blank"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=place, close_fds=False)
        for number in (theirs, theirs_out, saved):
            os.close(number)
        self.buffer, self.number, self.session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(domain + ".enable")

    def _message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.read, 1 << 20)
            assert more, "the browser has ended"
            self.buffer += more
        one, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        words = {"id": self.number, "method": method, "params": params}
        if self.session:
            words["sessionId"] = self.session
        os.write(self.write, json.dumps(words).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self.number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self.events.append(message)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of an expression; a promise is waited for."""
        said = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, (script, said["exceptionDetails"])
        return said["result"].get("value")

    def until(self, script, within=WAIT_S):
        """Ask again and again until it is true: the page changes when events come."""
        until = time.monotonic() + within
        while True:
            value = self.run(script)
            if value:
                return value
            assert time.monotonic() < until, (script, self.run("document.body.innerText"))

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.kill()
        self.process.wait(support.STOP_S)
        os.close(self.read)
        os.close(self.write)
        self.folder.cleanup()
