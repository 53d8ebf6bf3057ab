#!/usr/bin/python3
"""Goal: `./run install` needs no build before it, and the lines it prints are all that programs in C and Python need.

Method: a copy of the tree without a build; with the Python, C compiler and packages of this machine.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), os.path.join(SOURCE, "cmake")]
import installed  # noqa: E402
import tap  # noqa: E402
import tree  # noqa: E402


class TestRunInstall(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="tutti-install-")
        self.addCleanup(place.cleanup)
        self.folder, self.tree = place.name, os.path.join(place.name, "tree")
        for name in tree.files(SOURCE, new=True):
            os.makedirs(os.path.dirname(os.path.join(self.tree, name)), exist_ok=True)
            shutil.copy2(os.path.join(SOURCE, name), os.path.join(self.tree, name), follow_symlinks=False)
        for name, text in (("prog.c", installed.C_PROGRAM), ("prog.py", installed.PYTHON_PROGRAM)):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)

    def type(self, line):
        """A line of a shell; what it says. It has to succeed."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("TUTTI_", "PYTHON", "LD_", "PKG_"))}
        environment["PATH"] = "/usr/bin:" + environment["PATH"]  # Debian's Python, with Debian's numpy
        done = subprocess.run(["sh", "-c", line], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, "%s: %s" % (line, done.stdout[-4000:]))
        return done.stdout

    def test_a_tree_without_a_build_is_installed_and_found(self):
        said = self.type("tree/run install prefix")
        shutil.rmtree(self.tree)  # nothing may need it
        needs = installed.exports(said) + "; "
        self.assertEqual(needs.count("export"), 4, said)
        self.type(needs + installed.BUILD)
        self.assertEqual(self.type(needs + installed.RUN_C), installed.SUMS)
        self.assertEqual(self.type(needs + installed.RUN_PYTHON), installed.SUMS)


if __name__ == "__main__":
    tap.main()
