"""A container of a manifest as a process of this machine: the same words, environment and files.

Each container gets an address of its own in 127.0.0.0/8, so ports stay as the manifest has them; where
it says 0.0.0.0 or 127.0.0.1 it gets that address, and names of other containers become theirs. Paths
of volumes become folders. All else is taken as it stands: a manifest that drifts from the programs fails.
"""

import os
import re
import subprocess
import tempfile
import time

import support

LONG_S = 60
PROGRAMS = ("tutti-agent", "tutti-coordinator", "tutti")


def free_network():
    """The start of addresses that no other test of this machine uses now."""
    number = os.getpid()
    return "127.%d.%d." % (1 + number // 250 % 250, 1 + number % 250)


class Container:
    def __init__(self, name, words, environment, address, hosts, paths):
        self.name = name
        self.address = address
        self.hosts = hosts  # name -> address; name:port -> address:port
        self.paths = paths  # of the container -> of this machine
        self.words = [self.here(word) for word in words]
        self.environment = {key: self.here(value) for key, value in environment.items()}
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-container-")
        self.log_path = os.path.join(self.folder.name, "log")
        self.process = None

    def here(self, text):
        """The text with what is different on this machine."""
        for name in sorted(self.hosts, key=len, reverse=True):
            if ":" in name:  # a port that is published: "localhost:29601"
                text = text.replace(name, self.hosts[name])
                continue
            text = re.sub(r"(?<![\w.-])%s(?=:\d)" % re.escape(name), self.hosts[name], text)
        text = re.sub(r"(?<![\d.])(?:0\.0\.0\.0|127\.0\.0\.1)(?=:\d)", self.address, text)
        for path in sorted(self.paths, key=len, reverse=True):
            text = re.sub(r"(?<![\w.-])%s(?=/|\b)" % re.escape(path), self.paths[path], text)
        return text

    def _environment(self):
        kept = {key: os.environ[key] for key in ("LANG", "ASAN_OPTIONS") if key in os.environ}
        kept["PATH"] = support.PROGRAMS + ":" + os.environ.get("PATH", "/usr/bin:/bin")
        return dict(kept, **self.environment)

    def program(self, words):
        return [os.path.join(support.PROGRAMS, words[0]) if words[0] in PROGRAMS else words[0]] + words[1:]

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.program(self.words), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=self._environment(), cwd=self.folder.name, close_fds=False,
            )
        return self

    def run(self, words, timeout=LONG_S):
        """A command inside: `exec`. Exit code and what it said."""
        done = subprocess.run(
            self.program([self.here(word) for word in words]), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self._environment(),
            cwd=self.folder.name, close_fds=False, timeout=timeout,
        )
        return done.returncode, done.stdout.decode()

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def wait_for(self, what, words):
        """Until a probe succeeds, as an engine would."""
        until = time.monotonic() + LONG_S
        while True:
            code, said = self.run(words)
            if code == 0:
                return
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError("%s ended: %s" % (self.name, self.log()))
            assert time.monotonic() < until, "%s is not %s: %s %s" % (self.name, what, said, self.log())
            time.sleep(0.1)

    def wait(self):
        return self.process.wait(LONG_S)

    def stop(self):
        """SIGTERM, as an engine; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(LONG_S)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(LONG_S)
        self.folder.cleanup()


def check_starts(test, words, environment):
    """A server is not refused with the addresses as the manifest has them, ports apart."""
    open_ports = lambda text: re.sub(r"(0\.0\.0\.0|127\.0\.0\.1|\[::\]):\d+", r"\1:0", text)
    with tempfile.TemporaryDirectory(prefix="tutti-container-") as folder:
        socket_in = lambda text: text.replace("/run/tutti", folder)
        path = os.path.join(folder, "port")
        options = [socket_in(open_ports(word)) for word in words[1:]] + ["--port-file=" + path]
        kept = {key: socket_in(open_ports(value)) for key, value in environment.items()}
        kept.pop("TUTTI_COORDINATOR", None)
        process = subprocess.Popen(
            [os.path.join(support.PROGRAMS, words[0])] + options, env=dict(os.environ, **kept),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, close_fds=False,
        )
        try:
            until = time.monotonic() + LONG_S
            while not os.path.exists(path) and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            if not os.path.exists(path):
                process.kill()
                test.fail("%s: %s" % (" ".join(words), process.stdout.read().decode()))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
