#!/usr/bin/python3
"""Goal: init addresses mean the same to C and to Python: both take, or both refuse, with the same words.

Method: the cases of init_urls.json by the command `tutti init` and by the package's parser, with the
environment of the case, or a usual one.
"""

import importlib.util
import json
import os
import subprocess
import sys
import types
import unittest
from unittest import mock

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TUTTI = os.path.join(os.environ["TUTTI_BUILD"], "tutti")
USUAL = {"RANK": "2", "WORLD_SIZE": "8", "MASTER_ADDR": "master", "MASTER_PORT": "1234"}


class Refused(Exception):
    pass


def parser():
    """The package's module alone: it needs nothing of the package but the way to make an error."""
    errors = types.ModuleType("tutti.errors")
    errors.TuttiError = Refused
    errors.invalid = lambda reason, text: Refused(reason, text)
    path = os.path.join(SOURCE, "client", "python", "src", "tutti", "_init_url.py")
    spec = importlib.util.spec_from_file_location("tutti._init_url", path)
    module = importlib.util.module_from_spec(spec)
    names = {"tutti": types.ModuleType("tutti"), "tutti.errors": errors, spec.name: module}
    with mock.patch.dict(sys.modules, names):
        spec.loader.exec_module(module)
    return module


def environment(case):
    return case.get("environment", USUAL)


def by_command(case):
    """What it is, or reason and text of the refusal."""
    known = {key: value for key, value in os.environ.items() if key not in USUAL}
    done = subprocess.run(
        [TUTTI, "--json", "init", case["url"]],
        env=dict(known, **environment(case)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
        close_fds=False,
    )
    found = json.loads(done.stdout)
    if "error" in found:
        return found["error"]["reason"], found["error"]["text"]
    names = {"rank": "rank", "world_size": "world_size", "address": "coordinator", "path": "path"}
    return {name: found.get(theirs) or ("" if name in ("address", "path") else 0) for name, theirs in names.items()}


def by_package(module, case):
    known = {key: value for key, value in os.environ.items() if key not in USUAL}
    with mock.patch.dict(os.environ, dict(known, **environment(case)), clear=True):
        try:
            found = module.parse_init(case["url"])
        except Refused as refused:
            return refused.args
    return {name: getattr(found, name) for name in ("rank", "world_size", "address", "path")}


class Addresses(unittest.TestCase):
    def check(self, case, got):
        if "expect" in case:
            self.assertEqual(got, case["expect"])
            return
        self.assertIsInstance(got, tuple, "it was taken: %s" % (got,))
        self.assertEqual(got[0], "BAD_URL")
        self.assertIn(case["error"], got[1])

    def test_both_read_them_alike(self):
        module = parser()
        with open(os.path.join(HERE, "init_urls.json")) as file:
            cases = json.load(file)
        self.assertGreater(len(cases), 50)
        for case in cases:
            with self.subTest(case["url"], by="tutti init", environment=case.get("environment")):
                self.check(case, by_command(case))
            with self.subTest(case["url"], by="the package", environment=case.get("environment")):
                self.check(case, by_package(module, case))

    def test_both_refuse_what_is_too_long(self):
        module = parser()
        for path, words in (("x" * 1200, "1023 bytes"), ("x" * 3000, "at most 2047")):
            case = {"url": "file:///%s?rank=0&world_size=1" % path, "error": words}
            self.check(case, by_command(case))
            self.check(case, by_package(module, case))

    def test_an_init_address_is_told_from_others(self):
        module = parser()
        for text in ("env://", "tcp://h:1", "x://"):
            self.assertTrue(module.is_init(text))
        for text in ("unix:///run/a.sock", "host:80", ""):
            self.assertFalse(module.is_init(text))


if __name__ == "__main__":
    tap.main()
