"""Goal: a server that holds keys, or a command that signs with one, leaves no core dump, and other processes of its user read neither its
memory nor its environment; one without keys, or with --core-dumps, can be debugged as any program.
Method: Linux gives the files in /proc of a process that hides its memory to root, so whose they are says
it. Run by root, the programs run as another user, for whom they are copied."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

import tokens  # noqa: E402

PROGRAMS = ("tutti-coordinator", "tutti-agent")
ROOT = os.geteuid() == 0


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tutti-memory-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.user = pwd.getpwnam("nobody").pw_uid if ROOT else os.geteuid()
        for name in (*PROGRAMS, "tutti", "libtutti.so.0"):
            shutil.copy(os.path.join(support.PROGRAMS, name), cls.folder)
        cls.put("secret", tokens.SECRET)
        cls.put("token", b"x" * 40)
        if ROOT:
            os.chmod(cls.folder, 0o700)
            os.chown(cls.folder, cls.user, -1)

    @classmethod
    def put(cls, name, data):
        path = os.path.join(cls.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o600)
        if ROOT:
            os.chown(path, cls.user, -1)
        return path

    def start(self, name, *options):
        """A program that serves, and has read its keys by then."""
        port = os.path.join(self.folder, "port")
        words = [os.path.join(self.folder, name), "--listen", "127.0.0.1:0", "--port-file", port]
        if name == "tutti-agent":
            words += ["--coordinator", "127.0.0.1:1"]  # it waits for one
        words = self.as_user(*words)
        log = open(os.path.join(self.folder, "log"), "w+")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            words + list(options), cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until = time.monotonic() + support.START_S
        while not os.path.exists(port):
            log.seek(0)
            self.assertIsNone(process.poll(), log.read())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)  # a file that appears makes no event here
        os.unlink(port)
        return process

    def is_hidden(self, name, *options):
        return self.is_hidden_by(self.start(name, *options))

    def is_hidden_by(self, process):
        owners = {os.stat("/proc/%d/%s" % (process.pid, what)).st_uid for what in ("mem", "environ")}
        self.assertIn(owners, ({0}, {self.user}))
        return owners == {0}

    def as_user(self, *words):
        """By whom it is run here."""
        return ["setpriv", "--reuid", str(self.user), "--clear-groups", *words] if ROOT else list(words)

    def setUp(self):
        if ROOT and shutil.which("setpriv") is None:
            self.skipTest("no setpriv: install util-linux")
        if not ROOT and self.user == 0:
            self.skipTest("needs a user with a number of his own")

    def test_of_a_server_without_keys_is_open(self):
        for name in PROGRAMS:
            self.assertFalse(self.is_hidden(name), name)

    def test_of_a_server_that_checks_tokens_is_hidden(self):
        for name in PROGRAMS:
            self.assertTrue(self.is_hidden(name, "--token-keys", "secret"), name)
            self.assertTrue(self.is_hidden(name, "--token-file", "token"), name)

    def test_of_an_agent_that_shows_a_token_is_hidden(self):
        self.assertTrue(self.is_hidden("tutti-agent", "--coordinator-token", "token"))

    def test_of_who_signs_is_hidden(self):
        """The key comes through a pipe, so that the command waits for it."""
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        self.addCleanup(os.unlink, pipe)
        os.chmod(pipe, 0o666)
        words = self.as_user(os.path.join(self.folder, "tutti"), "token", "make", "pipe")
        signing = subprocess.Popen(
            words,
            cwd=self.folder,
            env=dict(os.environ, LD_LIBRARY_PATH=self.folder),
            stdout=subprocess.DEVNULL,
        )
        self.addCleanup(signing.wait)
        self.addCleanup(signing.kill)
        with open(pipe, "wb"):  # it waits until the command reads
            self.assertTrue(self.is_hidden_by(signing))

    def test_is_open_where_core_dumps_are_wanted(self):
        for name in PROGRAMS:
            self.assertFalse(self.is_hidden(name, "--token-keys", "secret", "--core-dumps"), name)


if __name__ == "__main__":
    support.main()
