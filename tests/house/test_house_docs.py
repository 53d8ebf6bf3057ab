"""Goal: a reader who follows a link of README.md, docs or a room's README arrives, and finds the files that it names.

Method: every relative link of every Markdown file names a file of the tree, and every anchor a heading of it. Every file of
code that stands in backticks in a README.md, in CONTRIBUTING.md or in docs/ is in the tree; of a name without a folder the
file is in the folder of the page or below it, in a room's README; else anywhere. So is every function, type and constant.
"""

import os
import re
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), os.path.join(SOURCE, "cmake")]
import tap  # noqa: E402
import tree  # noqa: E402

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(path):
    """The page without its blocks of code."""
    with open(path) as file:
        return re.sub(r"```.*?```", "", file.read(), flags=re.S)


def anchors(path):
    """The anchors of a page, as GitHub makes them from headings."""
    heads = re.findall(r"^#+ (.*)$", text_of(path), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(path):
    found = []
    for link in LINK.findall(text_of(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(target):
            found.append("%s: %s does not exist" % (path, link))
        elif anchor and anchor not in anchors(target):
            found.append("%s: %s has no such heading" % (path, link))
    return found


CODE_FILE = re.compile(r"`([^`\s]*\.(?:c|cc|h|inc|cu|py|proto|sh))`")
EXAMPLE = re.compile(r"[<*]|NAME|^\.[a-z]+$")  # test_*.py, coll_NAME.c, reduce_<level>.c, a bare .c
DATED = ("docs/decisions/", "docs/measured/")  # they tell of the tree of their day


def missing_files(page, text, files):
    """Files of code that the page names and the tree, a list of paths, does not have."""
    found = []
    here = os.path.dirname(page)
    room = os.path.basename(page) == "README.md"
    for name in CODE_FILE.findall(re.sub(r"```.*?```", "", text, flags=re.S)):
        below = here + "/" if room and here and "/" not in name else ""
        known = {os.path.normpath(os.path.join(folder, name)) for folder in (here, "", "lib")}
        if not EXAMPLE.search(name) and not known.intersection(files):
            if not any(file.startswith(below) and ("/" + file).endswith("/" + name) for file in files):
                found.append("%s: there is no %s" % (page, name))
    return found


def missing_in_comments(path, text, names):
    """Files of C that a comment names and that are not among these."""
    comments = " ".join(re.findall(r"/\*.*?\*/", text, re.S))
    named = re.findall(r"(?<![\w*])[a-z]\w*\.[ch]\b", re.sub(r"<[^>]*>", "", comments))
    return ["%s: a comment names %s" % (path, name) for name in named if name not in names]


IDENTIFIER = re.compile(r"(?<![\w.])(?:tutti|agent|coll|coord|rpc|client|TUTTI)_\w*[^\W_]\b(?!_)")
CODE = (".c", ".cc", ".h", ".inc", ".cu", ".py", ".proto", ".cmake", ".txt", ".in", ".go", ".map", ".json", ".yaml", "run")


def code_pages():
    """Paths of the tree, and of its pages that tell of the tree of today."""
    files = tree.files(SOURCE)
    pages = [
        file
        for file in files
        if (file.endswith(("README.md", "CONTRIBUTING.md")) or re.match(r"docs/.*\.md$", file))
        and not file.startswith(DATED)
    ]
    return files, pages


def text_in(path):
    with open(os.path.join(SOURCE, path), errors="replace") as file:
        return file.read()


def missing_names(page, text, known):
    """Names of ours in backticks that no file of code has."""
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    named = {name for span in spans for name in IDENTIFIER.findall(span)}
    return ["%s: no code has %s" % (page, name) for name in sorted(named - known)]


class Docs(unittest.TestCase):
    def test_every_file_that_a_page_names_exists(self):
        files, pages = code_pages()
        self.assertGreater(len(pages), 20)
        missing = [line for page in pages for line in missing_files(page, text_in(page), files)]
        self.assertEqual(missing, [])
        self.assertGreater(sum(len(CODE_FILE.findall(text_in(page))) for page in pages), 200)

    def test_every_name_that_a_page_has_is_in_the_code(self):
        files, pages = code_pages()
        known = set()
        for file in files:
            if file.endswith(CODE):
                known.update(re.findall(r"[A-Za-z]\w*", text_in(file)))
                for option in re.findall(r'\{"([a-z][a-z-]+)",', text_in(file)):  # an environment variable too
                    known.add("TUTTI_" + option.upper().replace("-", "_"))
        missing = [line for page in pages for line in missing_names(page, text_in(page), known)]
        self.assertEqual(missing, [])

    def test_a_name_that_no_code_has_is_found(self):
        text = "`tutti_coll_land(op)` `agent_op_start` rpc_gone `TUTTI_GONE=1` `tutti_agent_`, `_gone` ```\n`tutti_x`\n```"
        self.assertEqual(
            missing_names("a.md", text, {"agent_op_start"}),
            ["a.md: no code has TUTTI_GONE", "a.md: no code has tutti_coll_land"],
        )

    def test_every_file_that_a_comment_of_c_names_exists(self):
        files, _ = code_pages()
        code = [file for file in files if re.match(r"(lib|server|store|client|include)/.*\.(c|h)$", file)]
        names = {os.path.basename(file) for file in files}
        # Of LMDB, made by CMake; a user's own; of other libraries.
        names.update(("mdb.c", "version.h", "program.c", "demo.c", "tree.h", "sysexits.h", "dlpack.h", "c_api.h"))
        missing = [line for file in code for line in missing_in_comments(file, text_in(file), names)]
        self.assertEqual(missing, [])
        self.assertEqual(
            missing_in_comments("a.c", '/* b.c and\n * lib/gone.h */\n#include "own.h"\nx = "y.c"; /* z_*.c */', {"b.c"}),
            ["a.c: a comment names gone.h"],
        )

    def test_a_file_that_is_not_there_is_found(self):
        files = ["lib/a/README.md", "lib/a/b/one.c", "lib/c/two.c", "lib/c/three.h"]
        text = "`one.c` `b/one.c` `lib/c/two.c` `c/three.h` `two_NAME.c` `test_*.py` ```\n`four.c`\n``` `two.c` `four.c` `c/one.c`"
        self.assertEqual(
            missing_files("lib/a/README.md", text, files),
            ["lib/a/README.md: there is no %s" % name for name in ("two.c", "four.c", "c/one.c")],
        )
        self.assertEqual(missing_files("docs/a.md", "`two.c` `five.c`", files), ["docs/a.md: there is no five.c"])

    def test_every_link_arrives(self):
        pages = [file for file in tree.files(SOURCE) if file.endswith(".md")]
        self.assertGreater(len(pages), 20)
        broken = [line for page in pages for line in broken_links(os.path.join(SOURCE, page))]
        self.assertEqual(broken, [])

    def test_a_link_that_leads_nowhere_is_found(self):
        with tempfile.TemporaryDirectory(prefix="tutti-docs-") as folder:
            page = os.path.join(folder, "a.md")
            with open(page, "w") as file:
                file.write("# Some `words`\n[x](#some-words) [y](b.md) [z](#none) [w](https://x.example/)\n")
            broken = [line.split(": ")[1] for line in broken_links(page)]
        self.assertEqual(broken, ["b.md does not exist", "#none has no such heading"])

    def test_the_files_of_how_to_add_an_op_have_the_op_that_is_its_example(self):
        how = text_in("CONTRIBUTING.md").split("## How to add an op\n")[1].split("\n\nThen the tests")[0]
        rows = re.findall(r"^\| `([^`]+)` \|", how, re.M)
        self.assertIn(len(rows), range(5, 9), rows)
        self.assertIn("`reduce_scatter`", how)
        for row in rows:
            self.assertRegex(text_in(row), r"(?i)reduce_?scatter", row)


if __name__ == "__main__":
    tap.main()
