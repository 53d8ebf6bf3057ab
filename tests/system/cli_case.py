"""The `tutti` command for tests: run in a folder of its own, with clusters of its own.

What it prints and its exit code are the result; NumPy writes and reads the files.
"""

import json
import os
import subprocess
import tempfile
import unittest

import support

try:
    import numpy as np
except ImportError as missing:
    support.skip_all("%s: install python3-numpy" % missing)

RANKS = 4
TUTTI = os.path.join(support.PROGRAMS, "tutti")

work = tempfile.TemporaryDirectory(prefix="tutti-cli-")  # a short path: sockets are below it
os.mkdir(os.path.join(work.name, "run"), 0o700)
support.LOG_FOLDERS.append(os.path.join(work.name, "run"))


def environment(**more):
    """Ours, without what would lead the command elsewhere; NAME=None unsets."""
    result = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    result["XDG_RUNTIME_DIR"] = os.path.join(work.name, "run")
    result.update(more)
    return {key: value for key, value in result.items() if value is not None}


def file_path(name):
    return os.path.join(work.name, name)


def start(*words, **more):
    return subprocess.Popen(
        [TUTTI, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=work.name,
        env=environment(**more),
        close_fds=False,
    )


class Done:
    def __init__(self, code, out, err):
        self.code = code
        self.out = out
        self.err = err.decode(errors="replace")

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return "exit code %d\n%r\n%s" % (self.code, self.out, self.err)


def tutti(*words, stdin=b"", **more):
    done = subprocess.run(
        [TUTTI, *words],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=work.name,
        env=environment(**more),
        timeout=support.START_S,
        close_fds=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def running():
    """Processes that this test's clusters have left: their environment names our folder."""
    found = []
    mark = ("XDG_RUNTIME_DIR=" + os.path.join(work.name, "run")).encode()
    for entry in os.listdir("/proc"):
        try:
            with open("/proc/%s/environ" % entry, "rb") as file:
                if entry.isdigit() and mark in file.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            pass  # gone, or not ours
    return found


class Case(unittest.TestCase):
    def well(self, *words, **more):
        done = tutti(*words, **more)
        self.assertEqual(done.code, 0, "%s: %s" % (" ".join(words), done))
        self.assertEqual(done.err, "", words)
        return done

    def fails(self, words, *texts, code=1, **more):
        """A failure is told on standard error, in words; with --json it is a document on standard output too."""
        done = tutti(*words, **more)
        self.assertEqual(done.code, code, "%s: %s" % (" ".join(words), done))
        for text in texts:
            self.assertIn(text, done.err)
        if "--json" in words:
            self.assertIn("error", done.json, words)
        else:
            self.assertEqual(done.out, b"", words)
        return done

    def json(self, *words, **more):
        return self.well("--json", *words, **more).json

    def save(self, name, array):
        np.save(file_path(name), array)
        return name

    def load(self, name):
        return np.load(file_path(name))

    def assert_same(self, left, right):
        self.assertEqual(left.dtype, right.dtype)
        self.assertEqual(left.shape, right.shape)
        self.assertEqual(left.tobytes(), right.tobytes())


class ClusterCase(Case):
    """Tests that share one cluster, and leave nothing in it."""

    @classmethod
    def setUpClass(cls):
        done = tutti("cluster", "start", "-n", str(RANKS))
        assert done.code == 0, done

    @classmethod
    def tearDownClass(cls):
        done = tutti("cluster", "stop")
        assert done.code == 0, done

    def tearDown(self):
        for rank in range(RANKS):
            tensors = self.json("list", "--rank", str(rank))["tensors"]
            for tensor in tensors:
                self.well("delete", tensor["handle"])
