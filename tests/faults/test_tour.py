#!/usr/bin/env python3
"""Goal: docs/operating.md shows what a person sees when something dies.

Method: play its tours, and look for each line that the page shows in what they print; numbers of seconds and ops (it
tries until a cluster works again) and the name of the host may differ.
"""

import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import namespaces  # noqa: E402
import tap  # noqa: E402

SOURCE = os.path.join(HERE, "..", "..")
TOUR_S = 200
LOG_HEAD = re.compile(r"^(\w+): (?:info|warn|error) +\w+(?: \[rank=\d+\])?: ")
SECTION = "## Failures: something dies\n"
BETWEEN_HOSTS = "2500 ms", "on rank "  # marks of what tour_partition.py prints


def alike(line):
    line = LOG_HEAD.sub(r"\1: ", line.strip())
    line = re.sub(r"after [\d.]+ s", "after N s", line)
    line = re.sub(r"at [\d.]+:\d+ for [\d.]+ s", "at ADDRESS for N s", line)
    line = re.sub(r"\bop \d+", "op N", line)
    return re.sub(r"on host \w[\w.-]*", "on host H", line)


def shown():
    with open(os.path.join(SOURCE, "docs", "operating.md")) as file:
        text = file.read()
    section = text[text.index(SECTION) + len(SECTION):]
    section = section[: section.index("\n## ")]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


class Tour(unittest.TestCase):
    def compare(self, lines, *command):
        self.assertTrue(lines)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TOUR_S)
        said = done.stdout.decode()
        heard = {alike(line) for line in said.splitlines()}
        for line in lines:
            self.assertIn(alike(line), heard, "docs/operating.md shows %r, the tour says:\n%s" % (line, said))

    def test_page__shows_what_the_tour_of_processes_says(self):
        lines = [line for line in shown() if not any(mark in line for mark in BETWEEN_HOSTS)]
        self.compare(lines, "bash", os.path.join(HERE, "tour.sh"), os.environ["TUTTI_PROGRAMS"])

    def test_page__shows_what_the_tour_of_partitions_says(self):
        reason = namespaces.why_not()
        if reason is not None:
            self.skipTest(reason)
        lines = [line for line in shown() if any(mark in line for mark in BETWEEN_HOSTS)]
        self.compare(lines, sys.executable, os.path.join(HERE, "tour_partition.py"))


if __name__ == "__main__":
    tap.main()
