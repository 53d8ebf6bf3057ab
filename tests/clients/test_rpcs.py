#!/usr/bin/python3
"""Goal: each client has a call for each RPC, or the table says that it has none.

Method: rpcs.txt against the protos, the sources of the clients and the headers of libtutti. Nothing is run.
"""

import ast
import glob
import os
import re
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
AIO = os.path.join(SOURCE, "client", "python", "src", "tutti", "aio")
CLIENTS = ("python", "c", "go")
NONE = ("-agents", "-libtutti", "-unary", "-later")


def read(*path):
    with open(os.path.join(SOURCE, *path)) as file:
        return file.read()


def table():
    """The call of each client, by the RPC: {"Store.Get": {"python": "Store.get", ...}}."""
    found = {}
    with open(os.path.join(HERE, "rpcs.txt")) as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                found[words[0]] = dict(zip(CLIENTS, words[1:]))
    return found


def rpcs():
    """"Store.Get" of each method of the protos."""
    found = []
    for path in sorted(glob.glob(os.path.join(SOURCE, "proto/tutti/v1/*_service.proto"))):
        text = read(path)
        service = re.search(r"^service (\w+)Service", text, re.M)[1]
        found += ["%s.%s" % (service, one) for one in re.findall(r"^  rpc (\w+)\(", text, re.M)]
    return found


class Python:
    """The package's classes with those that they are made of, its functions, and the RPCs it names."""

    def __init__(self):
        self.bases, self.methods, self.functions, self.text = {}, {}, set(), ""
        for path in sorted(glob.glob(os.path.join(AIO, "*.py")) + [os.path.join(AIO, "..", "host.py")]):
            self.text += read(path)
            for node in ast.parse(read(path)).body:
                self._learn(node)

    def _learn(self, node):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, ast.ClassDef):
            self.bases[node.name] = [one.id for one in node.bases if isinstance(one, ast.Name)]
            self.methods[node.name] = {one.name for one in node.body if isinstance(one, kinds)}
        elif isinstance(node, kinds):
            self.functions.add(node.name)

    def has(self, call):
        if "." not in call:
            return call in self.functions
        kind, name = call.split(".")
        if name in self.methods.get(kind, ()):
            return True
        return any(self.has("%s.%s" % (base, name)) for base in self.bases.get(kind, ()))

    def names(self, rpc):
        """Is it called somewhere? Some are written in two parts: "Store." and the method."""
        service, method = rpc.split(".")
        parts = '"%s." +' % service in self.text and '"%s"' % method in self.text
        return '"%s"' % rpc in self.text or parts


def headers():
    return "".join(read(path) for path in glob.glob(os.path.join(SOURCE, "include/tutti/*.h")))


def go_sources():
    return "".join(
        read(path)
        for path in glob.glob(os.path.join(SOURCE, "client/go/*.go"))
        if not path.endswith("_test.go")
    )


def go_has(text, call):
    """A method of Agent, or a field that has the stub."""
    name = re.escape(call.rpartition(".")[2])
    return bool(
        re.search(r"^func (\(\w+ \*?\w+\) )?%s[\[(]" % name, text, re.M)
        or re.search(r"^\s%s +tuttiv1\.\w+Client$" % name, text, re.M)
    )


class Rpcs(unittest.TestCase):
    def test_the_table_has_a_row_for_each_rpc(self):
        self.assertEqual(sorted(table()), sorted(rpcs()))
        for rpc, calls in table().items():
            with self.subTest(rpc):
                self.assertEqual(tuple(calls), CLIENTS)
                for call in calls.values():
                    self.assertTrue(not call.startswith("-") or call in NONE, call)

    def test_the_calls_of_python_are_there(self):
        package = Python()
        for rpc, calls in table().items():
            call = calls["python"]
            with self.subTest("%s: %s" % (rpc, call)):
                if call in NONE:
                    self.assertFalse(package.names(rpc), "it is called: name the method")
                else:
                    self.assertTrue(package.has(call) and package.names(rpc))

    def test_the_calls_of_c_are_there(self):
        text = headers()
        for rpc, calls in table().items():
            if calls["c"] not in NONE:
                with self.subTest("%s: %s" % (rpc, calls["c"])):
                    self.assertRegex(text, r"\b%s\(" % re.escape(calls["c"]))

    def test_the_calls_of_go_are_there(self):
        text = go_sources()
        for rpc, calls in table().items():
            if calls["go"] not in NONE:
                with self.subTest("%s: %s" % (rpc, calls["go"])):
                    self.assertTrue(go_has(text, calls["go"]))

    def test_python_has_all(self):
        gaps = [rpc for rpc, calls in table().items() if calls["python"] == "-later"]
        self.assertEqual(gaps, [])


class TheTest(unittest.TestCase):
    """It can fail."""

    def test_what_is_not_there_is_not_found(self):
        package = Python()
        for call in ("Agent.nothing", "nothing", "Nobody.get"):
            self.assertFalse(package.has(call))
        self.assertFalse(package.names("Store.Nothing"))
        self.assertFalse(go_has(go_sources(), "Agent.Nothing"))


if __name__ == "__main__":
    tap.main()
