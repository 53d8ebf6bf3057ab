#!/usr/bin/python3
"""Goal: what `./run install` moves into a prefix is there as a whole, or the prefix is as it was.

Method: cmake/prefix.py with a folder of a few files, into prefixes that are new, have an older version, or cannot take it.
"""

import os
import resource
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

FILES = {"bin/tutti": "new", "lib/libtutti.so.0": "new", "lib/tutti/tutti-tvm.so": "new", "share/man/man1/tutti.1": "new"}


class TestPrefix(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="tutti-prefix-")
        self.addCleanup(place.cleanup)
        self.folder, self.prefix = os.path.join(place.name, "stage"), os.path.join(place.name, "a", "prefix")
        self.write(self.folder, FILES)
        os.chmod(os.path.join(self.folder, "bin/tutti"), 0o755)
        os.symlink("libtutti.so.0", os.path.join(self.folder, "lib/libtutti.so"))

    def write(self, root, files):
        for name, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w") as file:
                file.write(text)

    def tree(self):
        """All that is in the prefix: a file's text, a link's target, None of a folder; and what it lies in."""
        found = {}
        for at, folders, names in os.walk(os.path.dirname(os.path.dirname(self.prefix))):
            for name in folders + names:
                path = os.path.join(at, name)
                place = os.path.relpath(path, self.prefix)
                if path.startswith(self.folder):
                    continue
                if os.path.islink(path):
                    found[place] = os.readlink(path)
                elif os.path.isdir(path):
                    found[place] = None
                else:
                    with open(path) as file:
                        found[place] = file.read()
        return found

    def move(self, **more):
        words = [sys.executable, os.path.join(SOURCE, "cmake", "prefix.py"), self.folder, self.prefix]
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)

    def assert_unchanged(self, **more):
        before = self.tree()
        done = self.move(**more)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.tree(), before)
        self.assertIn(self.prefix + " is as it was: ", done.stdout)
        return done.stdout

    def files(self):
        return {place: text for place, text in self.tree().items() if text is not None}

    def test_a_prefix_that_is_not_there_is_made(self):
        self.assertEqual(self.move().returncode, 0)
        self.assertEqual(self.files(), {**FILES, "lib/libtutti.so": "libtutti.so.0"})
        self.assertEqual(os.stat(os.path.join(self.prefix, "bin/tutti")).st_mode & 0o777, 0o755)

    def test_what_others_have_in_the_prefix_stays(self):
        self.write(self.prefix, {"bin/tutti": "old", "bin/other": "other"})
        self.assertEqual(self.move().returncode, 0)
        self.assertEqual(self.files(), {**FILES, "lib/libtutti.so": "libtutti.so.0", "bin/other": "other"})

    def test_a_name_that_cannot_be_taken_leaves_the_prefix_as_it_was(self):
        self.write(self.prefix, {"bin/tutti": "old", "lib/libtutti.so.0": "old", "share/man/man1/tutti.1/user": "a folder"})
        self.assertIn("share/man/man1/tutti.1 is a folder", self.assert_unchanged())

    def test_a_file_where_a_folder_has_to_be_leaves_the_prefix_as_it_was(self):
        self.write(self.prefix, {"bin/tutti": "old", "share": "a file"})
        self.assertIn("share", self.assert_unchanged())

    def test_a_full_disk_leaves_no_prefix(self):
        """Of files that may be no larger than one byte, as a disk that is full."""
        self.assert_unchanged(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1)))


if __name__ == "__main__":
    tap.main()
