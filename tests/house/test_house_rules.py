"""Goal: the house's rules hold: who includes and calls whom, where generated names may be, how long a file is.

Method: cmake/check_layers.py and check_calls.py over the tree and its build, and over small trees that break each rule.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), os.path.join(SOURCE, "cmake")]
import tap  # noqa: E402
import tree  # noqa: E402

CHECK = os.path.join(SOURCE, "cmake", "check_layers.py")
LINES_MAX = 1000  # a file is a noun; it is not cut by length alone, and nobody reads more than this
SOURCES = (".c", ".h", ".inc", ".py", ".proto", ".cmake", ".sh")


def check_layers(root):
    done = subprocess.run(
        [sys.executable, CHECK, root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.returncode, done.stdout.decode()


class SmallTree:
    """A tree with layers.txt of its own, and files."""

    LAYERS = (
        "lib/base: <bsd/\nlib/rpc: base <grpc/ wire\nserver/agent: rpc wire\n  state\n  op\nclient/cli:\n"
    )

    def __init__(self, files):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-house-")
        every = {"cmake/layers.txt": self.LAYERS, "lib/base/fail.h": "", "lib/rpc/loop.h": ""}
        every.update(files)
        for path, text in every.items():
            full = os.path.join(self.folder.name, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w") as file:
                file.write(text)

    def __enter__(self):
        return check_layers(self.folder.name)

    def __exit__(self, *_):
        self.folder.cleanup()


class Layers(unittest.TestCase):
    def found(self, path, text, *words):
        with SmallTree({path: text}) as (code, said):
            self.assertEqual(code, 1, said)
            for word in words:
                self.assertIn(word, said)

    def allowed(self, path, text):
        with SmallTree({path: text}) as (code, said):
            self.assertEqual((code, said), (0, "layers: 0 wrong includes\n"))

    def test_the_tree_keeps_them(self):
        code, said = check_layers(SOURCE)
        self.assertEqual(code, 0, said)

    def test_what_is_allowed_passes(self):
        self.allowed("lib/rpc/a.c", '#include "rpc/loop.h"\n\n#include "base/fail.h"\n')
        self.allowed("lib/rpc/a.c", "#include <grpc/grpc.h>\n#include <stdio.h>\n")
        self.allowed("client/cli/a.c", "#include <tutti/client.h>\n")
        self.allowed("server/agent/a_pb.c", '#include "tutti/v1/types.pb-c.h"\n')

    def test_an_include_that_goes_up_is_found(self):
        self.found("lib/base/a.c", '\n#include "rpc/loop.h"\n', "lib/base/a.c:2", "rpc/loop.h")

    def test_the_rooms_of_an_open_folder_are_its_doors(self):
        layers = "lib/base: open\n  error\n  data\nlib/rpc: base\n"
        files = {"cmake/layers.txt": layers, "lib/base/error/text.h": "", "lib/rpc/a.c": '#include "base/error/text.h"\n'}
        with SmallTree(files) as (code, said):
            self.assertEqual((code, said), (0, "layers: 0 wrong includes\n"))
        files["lib/base/error/a.c"] = '#include "base/data/map.h"\n'
        files["lib/base/data/map.h"] = ""
        with SmallTree(files) as (code, said):
            self.assertEqual(code, 1, said)
            self.assertIn("lib/base/error may not include", said)

    def test_an_include_of_a_room_without_right_is_found(self):
        self.found("client/cli/a.c", '#include "base/fail.h"\n', "client/cli may not include")
        self.found("server/agent/a.c", '#  include "base/fail.h"\n', "server/agent/a.c:1")

    def test_a_foreign_header_in_the_wrong_room_is_found(self):
        self.found("lib/base/a.c", "#include <grpc/grpc.h>\n", "lib/base may not include grpc/grpc.h")
        self.found("server/agent/a.h", '#include "lmdb.h"\n', "lmdb.h")

    def test_rooms_include_those_before_them_and_their_doors(self):
        tree = {
            "server/agent/agent.h": "",
            "server/agent/state/state.h": '#include "server/agent/agent.h"\n',
            "server/agent/op/op.h": '#include "server/agent/state/state.h"\n',
            "server/agent/agent.c": '#include "server/agent/op/op.h"\n',
        }
        with SmallTree(tree) as (code, said):
            self.assertEqual((code, said), (0, "layers: 0 wrong includes\n"))
        tree["server/agent/state/state.c"] = '#include "server/agent/op/op.h"\n'
        with SmallTree(tree) as (code, said):
            self.assertEqual(code, 1)
            self.assertIn("server/agent/state may not include server/agent/op/op.h", said)

    def test_generated_code_outside_wire_files_is_found(self):
        self.found("server/agent/a.c", '#include "tutti/v1/types.pb-c.h"\n', "types.pb-c.h")
        self.found("server/agent/a.c", "Tutti__V1__Dtype x;\n", "generated names outside")
        self.found("server/agent/a.c", "grpc__health__v1__x();\n", "generated names outside")


CALLS = os.path.join(SOURCE, "cmake", "check_calls.py")
ROOMS = "lib/base:\nserver/agent: base\n  state\n  op\n"


class Calls(unittest.TestCase):
    def check(self, sources, layers=ROOMS):
        """check_calls.py over a small tree and its object files."""
        with tempfile.TemporaryDirectory(prefix="tutti-house-") as folder:
            sources = dict(sources, **{"cmake/layers.txt": layers})
            for path, text in sources.items():
                full = os.path.join(folder, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w") as file:
                    file.write(text)
                if path.endswith(".c"):
                    target = os.path.join(folder, "build/CMakeFiles/x.dir", path + ".o")
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    compiler = os.environ.get("TUTTI_CC", "cc")
                    subprocess.run([compiler, "-c", full, "-o", target], check=True)
            done = subprocess.run(
                [sys.executable, CALLS, os.path.join(folder, "build"), folder],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            return done.returncode, done.stdout.decode()

    UP = {
        "server/agent/op/op.c": "void op_run(void) {}\n",
        "server/agent/state/state.c": "void op_run(void); void look(void) { op_run(); }\n",
    }

    def test_a_call_of_a_room_below_passes(self):
        code, said = self.check(
            {
                "lib/base/fail.c": "void fail(void) {}\n",
                "server/agent/state/state.c": "void fail(void); void look(void) { fail(); }\n",
                "server/agent/op/op.c": "void look(void); void op_run(void) { look(); }\n",
                "server/agent/agent.c": "void op_run(void); void start(void) { op_run(); }\n",
            }
        )
        self.assertEqual((code, said), (0, "calls: 0 wrong of 3 uses in 4 files\n"))

    def test_a_call_that_goes_up_is_found(self):
        code, said = self.check(self.UP)
        self.assertEqual(code, 1)
        self.assertIn("server/agent/state may not call op_run of server/agent/op/op.c", said)

    def test_a_call_of_another_folder_without_right_is_found(self):
        code, said = self.check(
            {
                "server/agent/agent.c": "void start(void) {}\n",
                "lib/base/fail.c": "void start(void); void fail(void) { start(); }\n",
            }
        )
        self.assertEqual(code, 1)
        self.assertIn("lib/base may not call start of server/agent/agent.c", said)

    def test_an_exception_has_a_reason_and_is_needed(self):
        line = "except server/agent/state/state.c op_run: until it is cut\n"
        code, said = self.check(self.UP, ROOMS + line)
        self.assertEqual(code, 0, said)
        code, said = self.check({"lib/base/fail.c": "void fail(void) {}\n"}, ROOMS + line)
        self.assertEqual(code, 1)
        self.assertIn("is not needed", said)

    def test_no_objects_are_a_failure(self):
        self.assertEqual(self.check({})[0], 1)

    def test_the_build_keeps_them(self):
        build = os.environ["TUTTI_BUILD"]
        done = subprocess.run(
            [sys.executable, CALLS, build], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.assertEqual(done.returncode, 0, done.stdout.decode())


class Files(unittest.TestCase):
    def sources(self):
        for folder, folders, files in os.walk(SOURCE):
            folders[:] = [name for name in folders if not name.startswith((".", "build", "__"))]
            for name in sorted(files):
                if name.endswith(SOURCES) or name in ("run", "CMakeLists.txt"):
                    yield os.path.relpath(os.path.join(folder, name), SOURCE)

    def test_none_is_too_long(self):
        wrong = []
        for path in self.sources():
            with open(os.path.join(SOURCE, path), errors="replace") as file:
                count = sum(1 for _ in file)
            if count > LINES_MAX:
                wrong.append("%s has %d lines, at most %d" % (path, count, LINES_MAX))
        self.assertEqual(wrong, [])

    def test_every_header_is_guarded_by_its_name(self):
        for path in self.sources():
            if path.endswith(".h"):
                with open(os.path.join(SOURCE, path)) as file:
                    text = file.read()
                guard = re.search(r"^#ifndef (\w+_H)\n#define (\w+)$", text, re.M)
                self.assertIsNotNone(guard, path)
                self.assertEqual(guard[1], guard[2], path)
                stem = re.sub(r"\W", "_", os.path.basename(path)[:-2]).upper()
                self.assertTrue(guard[1].endswith(stem + "_H"), "%s: %s" % (path, guard[1]))


BYTES_MAX = 400_000  # of a tracked file: data that are larger come from a package, or are made by a test
MAGICS = {
    b"\x7fELF": "a program, a library or a core dump",
    b"!<arch>\n": "an archive of objects",
    b"MZ": "a program of Windows",
    b"\xcf\xfa\xed\xfe": "a program of macOS",
    b"\xca\xfe\xba\xbe": "classes of Java",
}


def wrong_files(root, paths):
    """What must not be in the repository: "core.42: a program, a library or a core dump"."""
    found = []
    for path in paths:
        full = os.path.join(root, path)
        if os.path.islink(full) or not os.path.isfile(full):  # gone from the work tree, or a submodule
            continue
        with open(full, "rb") as file:
            head = file.read(8)
        found += ["%s: %s" % (path, noun) for magic, noun in MAGICS.items() if head.startswith(magic)]
        if os.path.getsize(full) > BYTES_MAX:
            found.append("%s: %d bytes, at most %d" % (path, os.path.getsize(full), BYTES_MAX))
    return found


class Tracked(unittest.TestCase):
    def test_no_tracked_file_is_a_binary_or_large(self):
        paths = tree.files(SOURCE)
        self.assertGreater(len(paths), 100)
        self.assertEqual(wrong_files(SOURCE, paths), [])

    def test_without_git_what_no_gitignore_names_is_of_the_tree(self):
        files = {".gitignore": "# all of it\n/build/\n*.so\n__pycache__/\n", "build/a.c": "", "lib/build/b.c": "", "lib/c.so": "",
                 "lib/__pycache__/d.py": "", "made/.gitignore": "/sync/*\n!/sync/e.py\n", "made/sync/e.py": "", "made/sync/f.py": ""}
        with tempfile.TemporaryDirectory(prefix="tutti-house-") as root:
            for name, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                with open(os.path.join(root, name), "w") as file:
                    file.write(text)
            found = tree.files(root)
        self.assertEqual(found, [".gitignore", "lib/build/b.c", "made/.gitignore", "made/sync/e.py"])

    def test_such_files_are_found(self):
        with tempfile.TemporaryDirectory(prefix="tutti-house-") as root:
            files = {"core": b"\x7fELF\x02", "lib.a": b"!<arch>\n", "big.json": b" " * (BYTES_MAX + 1)}
            for name, data in {**files, "a.c": b"int x;\n", "empty": b""}.items():
                with open(os.path.join(root, name), "wb") as file:
                    file.write(data)
            said = wrong_files(root, ["core", "lib.a", "big.json", "a.c", "empty", "gone"])
        self.assertEqual([one.split(":")[0] for one in said], ["core", "lib.a", "big.json"])


if __name__ == "__main__":
    tap.main()
