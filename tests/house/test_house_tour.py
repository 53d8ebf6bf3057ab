"""Goal: a reader who follows the tour of docs/architecture.md finds each function where the tour says.

Method: each file of the tour's tables exists and defines the functions beside it; no way passes more files than a reader
can take in, and the glossary stays short.
"""

import os
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
import tap  # noqa: E402

ROW = re.compile(r"^\| `([\w/]+\.[ch])` \| ([^|]+) \|", re.M)
GLOSSARY_MAX = 60
FILES_MAX = 45


def wrong_stops(text, tree):
    """The stops of a tour whose file, or whose function in it, does not exist."""
    wrong = []
    for path, names in ROW.findall(text):
        file = tree / path
        if not file.is_file():
            wrong.append(f"{path}: no such file")
            continue
        source = file.read_text()
        wrong += [f"{path}: no function {name}" for name in re.findall(r"`(\w+)`", names)
                  if not re.search(rf"^{name}\(.*?\)\n\{{", source, re.M | re.S)]
    return wrong


def part(text, heading):
    """What stands below a heading, up to the next of the same or a higher level."""
    level = heading.split(" ")[0]
    below = text.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", below, maxsplit=1, flags=re.M)[0]


class TheTour(unittest.TestCase):
    def setUp(self):
        self.text = (SOURCE / "docs/architecture.md").read_text()

    def test_every_function_it_names_exists(self):
        self.assertGreater(len(ROW.findall(self.text)), 40)
        self.assertEqual(wrong_stops(self.text, SOURCE), [])

    def test_a_function_that_is_gone_is_found(self):
        row = "| `client/op/op.c` | `run_op`, `no_such_function` | x |\n| `no/such.c` | `f` | x |\n"
        self.assertEqual(wrong_stops(row, SOURCE),
                         ["client/op/op.c: no function no_such_function", "no/such.c: no such file"])

    def test_no_way_passes_more_than_45_files(self):
        for way in ("### AllReduce of a tensor by its handle", "### Upload", "### Join"):
            files = {path for path, _ in ROW.findall(part(self.text, way))}
            self.assertGreater(len(files), 8, way)
            self.assertLessEqual(len(files), FILES_MAX, way)

    def test_the_glossary_has_at_most_60_words(self):
        words = re.findall(r"^\| (?!word|-)", part(self.text, "## Glossary"), re.M)
        self.assertGreater(len(words), 30)
        self.assertLessEqual(len(words), GLOSSARY_MAX)


if __name__ == "__main__":
    tap.main()
