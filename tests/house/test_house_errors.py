"""Goal: a reader of docs/errors.md finds every reason, and for each what happened, what it means and what to do.

Method: cmake/check_errors.py over the tree, and over a small tree whose page is wrong in one way at a time.
"""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

CHECK = os.path.join(SOURCE, "cmake", "check_errors.py")
CODE = 'return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_CAKE", "there is no cake");\n'
COMMANDS = '{"cake bake", 0},\n{"heat", 0},\n'
PAGE = """# Errors

### NO_CAKE

`NOT_FOUND`

* **What happened:** There is no cake.
* **What it means:** Nobody can eat it.
* **What to do:** Run `tutti cake bake --heat 9`.
"""


def check(page, code=CODE, test="NO_CAKE"):
    """The exit code of check_errors.py over a tree of that page, code and test, and what it prints."""
    with tempfile.TemporaryDirectory(prefix="tutti-house-") as root:
        files = {"docs/errors.md": page, "lib/cake.c": code, "client/cli/rows.c": COMMANDS, "tests/test_cake.c": test}
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as file:
                file.write(text)
        done = subprocess.run([sys.executable, CHECK, root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode()


class Errors(unittest.TestCase):
    def found(self, words, page, code=CODE):
        self.assertNotEqual((page, code), (PAGE, CODE))
        result, said = check(page, code)
        self.assertEqual(result, 1, said)
        self.assertIn(words, said)

    def test_the_page_of_the_tree_is_complete(self):
        done = subprocess.run([sys.executable, CHECK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((done.returncode, done.stdout.decode()), (0, ""))

    def test_a_complete_page_passes(self):
        self.assertEqual(check(PAGE), (0, ""))

    def test_a_reason_without_an_entry_is_found(self):
        self.found("NO_BREAD is not in", PAGE, CODE + CODE.replace("CAKE", "BREAD"))

    def test_an_entry_that_no_code_gives_is_found(self):
        self.found("no code gives NO_CAKE", PAGE, "\n")

    def test_a_reason_that_no_test_names_is_found(self):
        self.assertEqual(check(PAGE, test="NO_CAKES"), (1, "docs/errors.md: no test names NO_CAKE\n"))

    def test_a_reason_with_two_entries_is_found(self):
        self.found("NO_CAKE has two entries", PAGE + PAGE)

    def test_a_part_that_is_missing_is_found(self):
        for part in ("What happened", "What it means", "What to do"):
            with self.subTest(part):
                lines = [line for line in PAGE.splitlines(True) if part not in line]
                self.found('no sentence for "%s"' % part, "".join(lines))

    def test_a_part_without_a_sentence_is_found(self):
        self.found('no sentence for "What it means"', PAGE.replace("Nobody can eat it.", "see above"))

    def test_a_heading_without_codes_is_found(self):
        self.found("1 headings, 0 entries", PAGE.replace("`NOT_FOUND`\n\n", ""))

    def test_a_code_that_the_entry_does_not_have_is_found(self):
        self.found("the code gives it with NOT_FOUND", PAGE.replace("`NOT_FOUND`", "`INTERNAL`"))

    def test_a_word_that_is_no_code_is_found(self):
        self.found("NOT_THERE is no code", PAGE.replace("`NOT_FOUND`", "`NOT_FOUND`, `NOT_THERE`"))

    def test_an_option_or_command_that_does_not_exist_is_found(self):
        self.found("no option --cool", PAGE.replace("--heat", "--cool"))
        self.found("no command tutti bread bake", PAGE.replace("cake bake", "bread bake"))


if __name__ == "__main__":
    tap.main()
