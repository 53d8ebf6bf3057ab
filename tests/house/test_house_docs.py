"""Goal: a reader who follows a link of README.md, docs or a room's README arrives.

Method: every relative link of every Markdown file names a file of the tree, and every anchor a heading of it.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

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


class Docs(unittest.TestCase):
    def test_every_link_arrives(self):
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=SOURCE, stdout=subprocess.PIPE)
        pages = listed.stdout.decode().split()
        if listed.returncode != 0:
            self.skipTest("the tree is not a git checkout")
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


if __name__ == "__main__":
    tap.main()
