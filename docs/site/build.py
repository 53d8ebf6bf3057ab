"""Builds the site of the docs: build.py [--check] SOURCE OUT; in OUT/site is the site. ./run docs runs it.

The pages of the tree are copied to OUT/pages, where their links are made to fit; beside them the reference of C, Python
and the protos is written. Sphinx makes the site of both, and every warning is an error. Then every link of the site is
followed, within the site. It also fails if a public function of C, an RPC or a public name of Python has no comment.
With --check Sphinx follows the links of the pages and writes nothing.

Sphinx with MyST, because it reads Markdown as a forge does: the pages are read there too. MkDocs' Markdown is another one
(lists need a blank line, anchors differ). Comments are read by scripts of ours, as the form of the house is none that
Doxygen or autodoc know.
"""

import html.parser
import os
import re
import shutil
import subprocess
import sys
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "cmake"))
import c_api  # noqa: E402
import proto_api  # noqa: E402
import python_api  # noqa: E402
import tree  # noqa: E402

FIRST = "docs/README.md"  # the first page
LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.S | re.M)

# ------------------------------------------------------------------------------ pages


def place_of(path):
    """Where a page of the tree lies in the site."""
    return "index.md" if path == FIRST else path


class Pages:
    """The tree's own pages, copied."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.files = set(tree.files(source, new=True))
        self.folders = {os.path.dirname(path) for path in self.files}
        self.shown = set()

    def link(self, page, where):
        """Where a link of a page leads, from its place in the site."""
        if re.match(r"[a-z]+:|#", where):
            return where
        name, hash_, anchor = where.partition("#")
        goal = os.path.normpath(os.path.join(os.path.dirname(page), name))
        if goal not in self.files:
            goal = self.of_folder(goal) or goal
        if goal in self.files and not goal.endswith(".md"):
            self.show(goal)
        return os.path.relpath(place_of(goal), os.path.dirname(place_of(page)) or ".") + hash_ + anchor

    def of_folder(self, goal):
        """The page of a folder: its README, or for what has none a list of its files."""
        if os.path.join(goal, "README.md") in self.files:
            return os.path.join(goal, "README.md")
        below = sorted(path for path in self.files if path.startswith(goal + "/"))
        if not below:
            return None
        made = os.path.join(goal, "files.md")
        if made not in self.shown:
            self.shown.add(made)
            lines = ["---\norphan: true\n---\n\n# %s\n" % goal, *("- `%s`" % path for path in below)]
            self.write(made, "\n".join(lines) + "\n")
        return made

    def show(self, path):
        """A file that is no page: what follows is its text."""
        goal = os.path.join(self.target, path)
        os.makedirs(os.path.dirname(goal), exist_ok=True)
        shutil.copyfile(os.path.join(self.source, path), goal)

    def write(self, path, text):
        goal = os.path.join(self.target, path)
        os.makedirs(os.path.dirname(goal), exist_ok=True)
        with open(goal, "w") as file:
            file.write(text)

    def copy(self, page, more=""):
        with open(os.path.join(self.source, page)) as file:
            parts = CODE.split(file.read())
        for place in range(0, len(parts), 2):
            parts[place] = LINK.sub(lambda match: "%s(%s)" % (match[1], self.link(page, match[2])), parts[place])
        text = "".join(parts)
        # A link whose words are code has been cut in two.
        text = re.sub(r"(\[`[^`\n]+`\])\(([^)\s]+)\)", lambda match: "%s(%s)" % (match[1], self.link(page, match[2])), text)
        orphan = "" if page == FIRST else "---\norphan: true\n---\n\n"
        self.write(place_of(page), orphan + text + more)


def trees(pages, reference):
    """The parts of the first page's list, as tables of contents; and which pages of docs/ they lack."""
    with open(os.path.join(pages.source, FIRST)) as file:
        text = file.read()
    made, named = [], set()
    for head, body in re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", text, re.M):
        links = [os.path.normpath(os.path.join("docs", link)) for link in re.findall(r"^\| \[[^\]]*\]\(([^)#]+\.md)\)", body, re.M)]
        named.update(links)
        if links:
            made.append(tree(head, [os.path.splitext(link)[0] for link in links]))
    made += [tree(head, names) for head, names in reference]
    known = {path for path in pages.files if re.match(r"docs/[^/]+\.md$", path)} - {FIRST}
    return "\n".join(made), ["docs/README.md does not list %s" % path for path in sorted(known - named)]


def tree(head, names):
    return "\n```{toctree}\n:hidden:\n:caption: %s\n\n%s\n```\n" % (head, "\n".join(names))


# ------------------------------------------------------------------------------ the site


class Html(html.parser.HTMLParser):
    """What a page of the site links to, and what can be linked to in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken_links(site):
    """Links from page to page of a built site that arrive nowhere."""
    read = {}
    for at, _, files in os.walk(site):
        for file in files:
            if file.endswith(".html"):
                with open(os.path.join(at, file)) as opened:
                    read[os.path.normpath(os.path.join(at, file))] = Html(opened.read())
    found = []
    for page, said in sorted(read.items()):
        for link in said.links:
            where, anchor = urllib.parse.urldefrag(link)
            if re.match(r"[a-z]+:|//", where):
                continue
            path = urllib.parse.unquote(where.split("?")[0])
            goal = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.isfile(goal):
                found.append("%s: %s does not exist" % (os.path.relpath(page, site), link))
            elif anchor and goal in read and urllib.parse.unquote(anchor) not in read[goal].ids:
                found.append("%s: %s has no such anchor" % (os.path.relpath(page, site), link))
    return found, len(read)


def stage(source, target):
    """The pages in `target`; returns complaints."""
    shutil.rmtree(target, ignore_errors=True)
    pages = Pages(source, target)
    reference, complaints = [], []
    for head, folder, write in (
        ("Reference: C", "api/c", c_api.write),
        ("Reference: Python", "api", python_api.write),
        ("Reference: protos", "api/proto", proto_api.write),
    ):
        names, said = write(source, os.path.join(target, folder))
        reference.append((head, [os.path.join(folder, name) for name in names]))
        complaints += said
    contents, said = trees(pages, reference)
    complaints += said
    for page in sorted(path for path in pages.files if path.endswith(".md")):
        pages.copy(page, contents if page == FIRST else "")
    shutil.copyfile(os.path.join(HERE, "conf.py"), os.path.join(target, "conf.py"))
    return complaints


def sphinx(pages, out, builder):
    """Runs Sphinx; returns complaints."""
    goal = os.path.join(out, "site" if builder == "html" else builder)
    shutil.rmtree(goal, ignore_errors=True)
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2"]
    words += ["-b", builder, "-d", os.path.join(out, "trees")]
    failed = subprocess.run([*words, pages, goal]).returncode != 0
    return ["sphinx has found what is above"] if failed else []


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    source, out = os.path.abspath(words[0]), os.path.abspath(words[1])
    pages, site = os.path.join(out, "pages"), os.path.join(out, "site")
    complaints = stage(source, pages)
    if "--check" in sys.argv[1:]:
        complaints += sphinx(pages, out, "dummy")
        said = "every link arrives, and everything public has a comment"
    else:
        complaints += sphinx(pages, out, "html")
        broken, count = broken_links(site)
        complaints += broken
        said = "%d pages, every link arrives: %s" % (count, os.path.join(site, "index.html"))
    print("\n".join(complaints) or said, file=sys.stderr if complaints else sys.stdout)
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
