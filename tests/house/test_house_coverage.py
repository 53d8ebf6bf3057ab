#!/usr/bin/python3
"""Goal: docs/coverage.md names nothing that is not there, counts its own rows, and names a check for what it claims.

Method: each name in the columns `here` and `checked by` is looked for: methods in the Python package's sources,
functions in include/tutti, methods in the protos, words in the table of commands, cases and test scripts. A script has to
be in a list of tests that run. Nothing is run.
"""

import fnmatch
import json
import os
import re
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", one) for one in ("support", "clients")]
import tap  # noqa: E402
import test_rpcs  # noqa: E402

KINDS = {
    "method": r"[A-Z]\w+\.[a-z_]\w*",
    "rpc": r"[A-Z]\w+\.[A-Z]\w+",
    "public": r"tutti\.[\w.]+",
    "c": r"tutti_\w+",
    "command": r"tutti [a-z -]+",
    "argument": r"[a-z_]+=.*",
}


WAYS = ("wire", "C", "command", "package", "Go", "torch")
STATES = {"F", "P", "s", "(F)", "-"}


class Page:
    """The sections, each a list of rows: theirs, here, a state for each way, what checks it."""

    def __init__(self, text):
        head, *parts = text.split("\n## ")
        self.counts = [tuple(map(int, one)) for one in re.findall(r"^\| [^|]+" + r" \| (\d+)" * 8 + r" \|$", head, re.M)]
        self.sections = []
        for part in parts:
            rows = [line for line in part.splitlines() if line.startswith("| ") and not line.startswith("| theirs")]
            self.sections.append([[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows])
        self.rows = [row for section in self.sections for row in section]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def kind_of(word):
    for kind, form in KINDS.items():
        if re.fullmatch(form, word):
            return kind
    return None


class Names:
    """What there is."""

    def __init__(self):
        self.python = test_rpcs.Python()
        self.rpcs = set(test_rpcs.rpcs())
        self.headers = test_rpcs.headers()
        self.commands = test_rpcs.read("client", "cli", "main", "commands.c")
        self.init = test_rpcs.read("client", "python", "src", "tutti", "__init__.py")
        self.objects = test_rpcs.read("client", "python", "src", "tutti", "objects.py")
        self.cases = [one["id"] for one in json.loads(test_rpcs.read("tests", "conformance", "cases.json"))]

    def has(self, kind, word):
        if kind == "method":
            attribute = r"\bself\.%s(: [^=]+)? = " % word.split(".")[1]
            blob = word.startswith("Blob.") and re.search(r"\bdef %s\(" % word.split(".")[1], self.objects)
            return self.python.has(word) or re.search(attribute, self.python.text) or blob
        if kind == "rpc":
            return word in self.rpcs
        if kind == "public":
            name = word.split(".")[1]
            folder = os.path.join(SOURCE, "client", "python", "src", "tutti")
            return '"%s"' % name in self.init or any(os.path.exists(os.path.join(folder, name + end)) for end in (".py", ""))
        if kind == "c":
            return re.search(r"\b%s\(" % word, self.headers)
        if kind == "command":
            return '{"%s",' % word.partition(" ")[2] in self.commands
        return re.search(r"\b%s:" % word.partition("=")[0], self.python.text + test_rpcs.read(
            "client", "python", "src", "tutti", "aio", "_types.py"))

    def checks(self, word):
        if "/" in word:
            return os.path.exists(os.path.join(SOURCE, word)) and self.is_run(word)
        return bool(fnmatch.filter(self.cases, word))

    def is_run(self, path):
        """Is the script in a list of tests?"""
        name = os.path.basename(path)
        if path.startswith("client/python/tests/"):
            return '"%s"' % name in test_rpcs.read("tests", "clients", "test_python.py")
        folder = os.path.dirname(path)
        return re.search(r"\b%s\b" % re.escape(name), test_rpcs.read(folder, "CMakeLists.txt")) is not None


class Coverage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = Page(test_rpcs.read("docs", "coverage.md"))
        cls.names = Names()

    def test_every_row_has_a_state_for_each_way_and_is_counted(self):
        self.assertEqual(len(self.page.counts), 5)
        for counted, rows in zip(self.page.counts, self.page.sections):
            for row in rows:
                self.assertEqual(len(row), 2 + len(WAYS) + 1, row)
                self.assertEqual(set(row[2:-1]) - STATES, set(), row)
            ways = [sum(row[2 + place] == "F" for row in rows) for place in range(len(WAYS))]
            some = sum("F" in row[2:-1] for row in rows)
            self.assertEqual(counted, (len(rows), some, *ways), rows[0][0])

    def test_every_name_is_there(self):
        seen = 0
        for row in self.page.rows:
            for word in quoted(row[1]):
                kind = kind_of(word)
                if kind:
                    seen += 1
                    self.assertTrue(self.names.has(kind, word), "%s (%s) in the row of %s" % (word, kind, row[0]))
        self.assertGreater(seen, 150)

    def test_what_is_claimed_names_a_check(self):
        """Not by torch alone: tests of torch check no other way."""
        for row in self.page.rows:
            words = quoted(row[-1])
            for word in words:
                self.assertTrue(self.names.checks(word), "%s in the row of %s" % (word, row[0]))
            torch = [word for word in words if word.startswith("client/torch/tests/")]
            self.assertTrue(torch or row[-2] != "F", "torch in the row of %s" % row[0])
            self.assertTrue(len(words) > len(torch) or "F" not in row[2:-2], row[0])

    def test_names_that_are_not_there_are_noticed(self):
        for word in ("Agent.none", "Collectives.None", "tutti.none", "tutti_none", "tutti none", "none_such=1"):
            self.assertFalse(self.names.has(kind_of(word), word), word)
        for word in ("none.*", "tests/none.py", "client/python/tests/case.py", "tests/clients/worlds.py"):
            self.assertFalse(self.names.checks(word), word)


if __name__ == "__main__":
    tap.main()
