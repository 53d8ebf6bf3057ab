#!/usr/bin/python3
"""Goal: the programs of docs/clients.md do what the page says.

Method: each block is a program; two of it, one for each rank, run against real processes and print the
sum. C and C++ against the built libtutti, Go and Python against the packages of this tree, Java on stubs.
"""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap
import worlds
from worlds import support

import go_world
import java_world

SIZE = 2
RUN_S = 60
WORK = os.path.join(worlds.WORK, "docs")
PAGE = os.path.join(support.SOURCE, "docs", "clients.md")


def blocks(language):
    with open(PAGE) as file:
        return re.findall(r"^```%s\n(.*?)^```$" % re.escape(language), file.read(), re.M | re.S)


def write(name, text):
    path = os.path.join(WORK, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    return path


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = worlds.Cluster(SIZE)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def check(self, words, **more):
        """Two of it at once, one for each rank; both print the sum."""
        started = [
            subprocess.Popen(
                words,
                env=dict(os.environ, TUTTI_AGENT=agent.address, **more),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                close_fds=False,
            )
            for agent in self.cluster.agents
        ]
        said = [one.communicate(timeout=RUN_S)[0].decode() for one in started]
        self.assertEqual(said, ["2 4 6\n"] * SIZE)
        self.assertEqual([one.returncode for one in started], [0] * SIZE)

    def test_python_blocking_and_asyncio(self):
        python, folder = worlds.install("debian", "docs")
        found = blocks("python")
        self.assertEqual(len(found), 2)
        for place, text in enumerate(found):
            self.check([python, write("%d.py" % place, text)], PYTHONPATH=folder)

    def test_c(self):
        found = blocks("c")
        self.assertEqual(len(found), 2)
        for place, text in enumerate(found):
            self.check([worlds.compile_c("cc", write("example%d.c" % place, text))])

    def test_cxx(self):
        (text,) = blocks("c++")
        self.check([worlds.compile_c("c++", write("example.cc", text))])

    def test_go(self):
        missing = go_world.missing()
        if missing:
            self.skipTest(missing)
        (text,) = blocks("go")
        world = go_world.World("go-docs")
        program = os.path.join(WORK, "example_go")
        world.go("build", "-o", program, write("example.go", text))
        self.check([program])

    def test_java(self):
        missing = java_world.missing()
        if missing:
            self.skipTest(missing)
        (text,) = blocks("java")
        self.check(java_world.compile_program("java-docs", text))

    def test_the_table_says_what_is_run_here(self):
        """Each language of the page has a row, and a test of this file if that says so."""
        with open(PAGE) as file:
            rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", file.read(), re.M)
        said = {row[0]: row[2] for row in rows if "this page" in row[2] or "not run" in row[2]}
        tested = {"Python", "Go", "C", "C++", "Java"}
        self.assertEqual({name for name in said if "this page" in said[name]}, tested)
        self.assertEqual({name for name in said if "not run" in said[name]}, {"Node", "Rust"})
        for name in ("js", "rust"):
            self.assertEqual(len(blocks(name)), 1)


if __name__ == "__main__":
    tap.main()
