"""Goal: tests/skips.txt has the reasons for which tests of ./run test may be skipped, and no other; and ./run sees each of them.

Method: the texts with which tests skip are read out of their sources: each is listed, or is one of FORGOTTEN; and each line of
the list is given by a test, or by a program that a test asks.
"""

import ast
import os
import re
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), os.path.join(SOURCE, "cmake")]
import tap  # noqa: E402
import tree  # noqa: E402

# What ./run installs, builds or sets: if one of these were given, ./run would have forgotten it, and has to fail.
FORGOTTEN = (
    r"no \S+: install 7", r"no (C\+\+ compiler|pkg-config|nm)( here)?: install .*", r"7: install python3-(numpy|grpcio)",
    r"no grpcio here: .*", r"no /usr/bin/grpc_python_plugin: .*", "no pip: .*", "no python3-yaml", "no setpriv: .*",
    "no patchelf.*", "no 7: install libgrpc-java .*", "no 7: ./run test containers installs it", "built without libedit",
    "the Python package cannot be built: .*", "no events_program: .*", "the stand-ins for CUDA and NCCL were not built",
    "no 7 in 7", "no 7", "no agents", "no (programs|certificates): set TUTTI_.*", "7 lacks torch .*: set TUTTI_TORCH_PYTHON",
    "this runner does not know the kind 7", "needs a user with a number of his own",
)
SKIPS = ("skipTest", "skip_all", "SkipTest", "skipIf", "skipUnless")
WHY = re.compile(r"(why_not|missing|reason_to_skip)$")  # functions that say why


def texts(node):
    """The texts that an expression of Python may be, with 7 for what only a run knows."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [re.sub(r"%[sdr]", "7", node.value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [text + "7" for text in texts(node.left)]
    if isinstance(node, ast.BinOp):
        return texts(node.left)
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in texts(value)]
    return texts(node.body) + texts(node.orelse) if isinstance(node, ast.IfExp) else []


def given_in_python(source):
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            found += texts(node.args[-1]) if name in SKIPS else []
        elif isinstance(node, ast.FunctionDef) and WHY.match(node.name):
            found += [text for one in ast.walk(node) if isinstance(one, ast.Return) and one.value for text in texts(one.value)]
    return [text for text in found if text]


def given_in_c(source):
    """In C and Go."""
    found = re.findall(r'(?:\bSKIP|\bt\.Skip)\("((?:[^"\\]|\\.)*)"\)', source) + re.findall(r'"1\.\.0 # SKIP ([^"%]+)"', source)
    return [text.replace("\\n", "") for text in found]


def is_listed(text, patterns):
    return any(re.fullmatch(pattern, text) for pattern in patterns)


class Skips(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sources = {}
        for path in tree.files(SOURCE):
            if re.match(r"(tests/(?!skips|house/test_house_skips)|client/(python|torch)/tests/|client/go/|lib/tensor/cuda/)", path):
                with open(os.path.join(SOURCE, path), errors="replace") as file:
                    cls.sources[path] = file.read()
        with open(os.path.join(SOURCE, "tests", "skips.txt")) as file:
            cls.listed = [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]
        cls.given = list(cls.find_given())

    @classmethod
    def find_given(cls):
        for path, source in cls.sources.items():
            read = {".py": given_in_python, ".c": given_in_c, ".go": given_in_c}.get(os.path.splitext(path)[1], lambda _: [])
            for text in read(source):
                yield path, text

    def test_every_reason_that_a_test_gives_is_listed(self):
        self.assertGreater(len(self.given), 100)
        unknown = [(path, text) for path, text in self.given if not is_listed(text, self.listed) and not is_listed(text, FORGOTTEN)]
        self.assertEqual(unknown, [])

    def test_every_reason_that_is_judged_here_is_given(self):
        given = [text for _, text in self.given]
        self.assertEqual([one for one in FORGOTTEN if not any(re.fullmatch(one, text) for text in given)], [])

    def test_every_reason_that_is_listed_is_given_by_a_test(self):
        """Or by a program that a test asks; `./run test` looks the other way round."""
        given = set()
        for source in self.sources.values():
            for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', source):
                text = re.sub(r"%(s|d|u|\.\d+s)", "7", text.split("# SKIP ")[-1].replace("\\n", ""))
                given.update((text, text + "7"))
        self.assertGreater(len(self.listed), 20)
        self.assertEqual([one for one in self.listed if not any(re.fullmatch(one, text) for text in given)], [])

    def test_every_script_tells_its_tests_in_lines_of_tap(self):
        """What unittest.main() says is counted by nobody: neither the tests nor the reasons to skip them."""
        self.assertEqual([path for path, source in self.sources.items() if re.search(r"\bunittest\.main\(", source)], [])

    def test_reasons_are_found_however_they_are_written(self):
        source = """
@unittest.skipUnless(cake, "no cake")
def test_a(self):
    self.skipTest("no bread: %s" % why)
    support.skip_all("no butter: " + why)
    raise unittest.SkipTest("at most %d" % count)
def why_not():
    return "no milk" if cake else ""
def other():
    return "no reason"
"""
        self.assertEqual(sorted(given_in_python(source)), ["at most 7", "no bread: 7", "no butter: 7", "no cake", "no milk"])
        self.assertEqual(given_in_c('SKIP("no tea"); printf("1..0 # SKIP no sugar\\n"); t.Skip("no go")'), ["no tea", "no go", "no sugar"])


if __name__ == "__main__":
    tap.main()
