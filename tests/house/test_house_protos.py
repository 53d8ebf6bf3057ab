"""Goal: the protos keep the rules of public interfaces, and nothing in them breaks a program.

Method: cmake/check_protos.py over proto/, and over small folders that break each rule.
"""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

CHECK = os.path.join(SOURCE, "cmake", "check_protos.py")
HEAD = 'syntax = "proto3";\npackage tutti.v1;\n'
GOOD = HEAD + """
enum Kind { KIND_UNSPECIFIED = 0; KIND_ONE = 1; }
message GetRequest { string name = 1; oneof opt { Kind kind = 2; } bytes payload = 100; }
message GetResponse { repeated int64 counts = 1; }
service ThingService { rpc Get(GetRequest) returns (stream GetResponse); }
"""


def check(*words):
    done = subprocess.run(
        [sys.executable, CHECK] + list(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.returncode, done.stdout.decode()


class Folder(unittest.TestCase):
    """A proto folder of its own."""

    def setUp(self):
        self.root = tempfile.TemporaryDirectory(prefix="tutti-protos-")
        self.addCleanup(self.root.cleanup)

    def write(self, text, name="tutti/v1/a.proto"):
        path = os.path.join(self.root.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def check(self, *words):
        return check("--root", self.root.name, *words)

    def found(self, text, *words, name="tutti/v1/a.proto"):
        self.write(text, name)
        code, said = self.check()
        if name != "tutti/v1/a.proto":
            os.unlink(os.path.join(self.root.name, name))  # one file at a time
        self.assertEqual(code, 1, said)
        for word in words:
            self.assertIn(word, said)


class Rules(Folder):
    def test_the_tree_keeps_them(self):
        code, said = check()
        self.assertEqual(code, 0, said)
        print("# " + said.strip())

    def test_what_is_good_passes(self):
        self.write(GOOD)
        code, said = self.check()
        self.assertEqual(code, 0, said)

    def test_files_and_packages(self):
        self.found(GOOD, "lower_snake_case", name="tutti/v1/BadName.proto")
        self.found(GOOD, "does not lie in its folder", name="tutti/v2/a.proto")
        self.found(GOOD.replace("tutti.v1", "tutti"), "no version")
        self.found(HEAD.replace("proto3", "proto2"), "the syntax is not proto3")

    def test_names(self):
        for old, new, word in (
            ("KIND_ONE", "ONE", "tutti.v1.ONE: not KIND_UPPER"),
            ("KIND_UNSPECIFIED", "KIND_NONE", "0 is not KIND_UNSPECIFIED"),
            ("string name", "string theName", "GetRequest.theName"),
            ("oneof opt", "oneof Opt", "a oneof is not"),
            ("ThingService", "Thing", "suffix Service"),
            ("rpc Get", "rpc get", "not PascalCase"),
            ("GetResponse", "Answer", "neither GetResponse nor ThingServiceGetResponse"),
            ("GetResponse", "Get_Response", "not PascalCase"),
        ):
            self.found(GOOD.replace(old, new), word)

    def test_every_method_has_messages_of_its_own(self):
        again = "  rpc Take(GetRequest) returns (GetResponse); }"
        self.found(GOOD.replace("Response); }", "Response);" + again), "is also that of")

    def test_what_the_c_generator_lacks(self):
        self.found(GOOD.replace("string name", "optional string name"), "put it into a oneof")
        self.found(GOOD.replace("string name", "map<string, string> name"), "maps")
        self.found(GOOD.replace("string name", "GetRequest name"), "is inside of itself")

    def test_a_payload_is_the_last_field(self):
        self.found(GOOD.replace("payload = 100", "payload = 9"), "payload is bytes")
        self.found(GOOD.replace("string name = 1", "string name = 101"), "behind the payload")

    def test_what_protoc_warns_of_is_found(self):
        self.write(HEAD, "tutti/v1/b.proto")
        self.found(GOOD.replace(HEAD, HEAD + 'import "tutti/v1/b.proto";\n'), "unused")


class Breaking(Folder):
    def breaks(self, old, new, word):
        self.write(GOOD.replace(old, new))
        code, said = self.check()
        self.assertEqual(code, 1, said)
        self.assertIn("breaks programs", said)
        self.assertIn(word, said)
        self.assertEqual(self.check("--update")[0], 1)  # the baseline stays as it was
        self.assertEqual(self.check()[0], 1)

    def test_changes_of_what_is_there_are_found(self):
        self.write(GOOD)
        self.assertEqual(self.check("--update")[0], 0)
        for old, new, word in (
            ("string name = 1", "string name = 3", "GetRequest 1 = name"),
            ("string name", "string title", "GetRequest 1 = name"),
            ("string name", "bytes name", "GetRequest 1 = name: string"),
            ("repeated int64", "int64", "repeated int64"),
            ("oneof opt { Kind kind = 2; }", "Kind kind = 2;", "in opt"),
            ("KIND_ONE = 1", "KIND_ONE = 2", "1 = KIND_ONE"),
            ("returns (stream", "returns (", "rpc tutti.v1.ThingService.Get"),
            ("GetResponse", "ThingServiceGetResponse", "message tutti.v1.GetResponse"),
        ):
            self.breaks(old, new, word)

    def test_what_is_new_breaks_nothing(self):
        self.write(GOOD)
        self.check("--update")
        self.write(GOOD.replace("string name = 1;", "string name = 1; string more = 3;"))
        code, said = self.check()
        self.assertEqual((code, said), (0, "protos: 0 wrong, 1 not in the baseline yet\n"))
        self.check("--update")
        self.breaks("more", "more", "GetRequest 3 = more")

    def test_who_insists_may_break(self):
        self.write(GOOD)
        self.check("--update")
        self.write(GOOD.replace("string name = 1;", ""))
        self.assertEqual(self.check("--update", "--break")[0], 0)
        self.assertEqual(self.check(), (0, "protos: 0 wrong, 0 not in the baseline yet\n"))


if __name__ == "__main__":
    tap.main()
