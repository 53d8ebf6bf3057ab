"""Goal: the code stays one that can be lived in: small circles of calls, small folders, no catch-all header, names once.

Method: cmake/figures.py over the tree, and over a small tree that breaks each limit.
"""

import os
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
sys.path.insert(0, os.path.join(SOURCE, "cmake"))
import figures  # noqa: E402
import tap  # noqa: E402

FOLDER_MAX = 30  # files


def measure(files):
    with tempfile.TemporaryDirectory(prefix="tutti-house-") as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w") as file:
                file.write(text)
        return figures.figures(root)


def call(name, *others):
    return "void\n%s(void)\n{\n%s}\n" % (name, "".join("    %s();\n" % other for other in others))


class TheTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = figures.figures(SOURCE)

    def test_circles_of_calls_have_six_files_at_most(self):
        self.assertEqual(self.found["call circles above 6 files"], 0)

    def test_folders_have_thirty_files_at_most(self):
        self.assertLessEqual(int(self.found["largest folder, files"].split()[0]), FOLDER_MAX,
                             self.found["largest folder, files"])

    def test_no_private_header_serves_more_than_eight_files(self):
        self.assertEqual(self.found["private headers of more than 8 files"], 0)

    def test_no_static_name_stands_in_more_than_two_files(self):
        self.assertEqual(self.found["static names in more than 2 files"], 0)


class SmallTrees(unittest.TestCase):
    def test_a_circle_is_counted(self):
        ring = {"lib/a/f%d.c" % i: call("f%d" % i, "f%d" % ((i + 1) % 7)) for i in range(7)}
        self.assertEqual(measure(ring)["call circles above 6 files"], 1)
        ring["lib/a/f6.c"] = call("f6")
        self.assertEqual(measure(ring)["call circles"], 0)

    def test_a_call_in_a_comment_or_a_text_is_none(self):
        files = {"lib/a/f.c": call("f", "g"), "lib/a/g.c": call("g") + '/* f() */ const char *a = "f()";\n'}
        self.assertEqual(measure(files)["call circles"], 0)

    def test_a_static_name_in_three_files_is_counted(self):
        files = {"lib/a/f%d.c" % i: "static " + call("take") for i in range(3)}
        self.assertEqual(measure(files)["static names in more than 2 files"], 1)
        del files["lib/a/f2.c"]
        self.assertEqual(measure(files)["static names in more than 2 files"], 0)

    def test_a_header_of_nine_files_is_counted(self):
        files = {"lib/a/f%d.c" % i: call("f%d" % i) for i in range(9)}
        files["lib/a/all.h"] = "".join("void f%d(void);\n" % i for i in range(9))
        self.assertEqual(measure(files)["private headers of more than 8 files"], 1)

    def test_functions_and_their_callers_are_counted(self):
        found = measure({"lib/a/f.c": "static " + call("once") + "static " + call("twice") + call("f", "once", "twice", "twice")})
        self.assertEqual(found["functions"], 3)
        self.assertEqual(found["statics with one caller"], "1 (50 %)")


if __name__ == "__main__":
    tap.main()
