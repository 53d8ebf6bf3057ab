"""The reference of C: each header's page from its comments. A public function without one is an error."""

import os
import re

from comments import Markdown

COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
SKIPPED = re.compile(r"^#\s*(?:ifndef|ifdef|if|endif|else|elif|include|undef|error)\b|^extern \"C\"|^}$|^#define \w+_H$")


def comment_text(body):
    """What a comment says, without its stars."""
    lines = [re.sub(r"^ ?\*( ?|$)", "", line.strip("\n")) for line in body.split("\n")]
    return "\n".join(line.lstrip(" *") if re.match(r"^\s+\*", line) else line for line in lines).strip("\n").rstrip()


def declaration_end(lines, place):
    """Behind the last line of the declaration that begins here."""
    if lines[place].startswith("#"):
        while lines[place].endswith("\\"):
            place += 1
        return place + 1
    level = 0
    while place < len(lines):
        bare = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"])*\"", "", lines[place])
        level += bare.count("{") - bare.count("}")
        if level == 0 and (bare.rstrip().endswith(";") or lines[place] == "}"):
            return place + 1
        place += 1
    return place


def name_of(text):
    bare = COMMENT.sub("", text)
    for pattern in (
        r"^#define (\w+)",
        r"^typedef [^({]*\(\*(\w+)\)",
        r"^typedef (?:struct|enum|union)[^{]*\{.*\}\s*(\w+)\s*;\s*$",
        r"^typedef [^{(]*?(\w+);\s*$",
        r"(\w+)\(",
        r"^(?:struct|enum|union) (\w+)",
        r"(\w+)(?:\[[^\]]*\])?;\s*$",
    ):
        match = re.search(pattern, bare, re.S)
        if match:
            return match[1]
    raise ValueError("a declaration without a name: " + text)


class Entry:
    """A declaration and the comment above it; without a declaration, prose of the header."""

    def __init__(self, comment, text=None):
        self.comment = comment
        self.text = text
        self.name = name_of(text) if text else None
        self.function = bool(text) and re.match(r"^(TUTTI_\w*API|static inline)\b", text) is not None


def read_header(text):
    """The entries of a header, in order."""
    lines = text.split("\n")
    entries, place, comment = [], 0, None
    while place < len(lines):
        line = lines[place]
        if line.startswith("/*"):
            begin = place
            while "*/" not in lines[place]:
                place += 1
            if comment:
                entries.append(Entry(comment))
            comment = comment_text("\n".join(lines[begin : place + 1]).strip()[2:].rsplit("*/", 1)[0])
            place += 1
        elif not line.strip() or SKIPPED.match(line):
            if comment:
                entries.append(Entry(comment))
            comment = None
            place = place + 1
        else:
            end = declaration_end(lines, place)
            entries.append(Entry(comment, "\n".join(lines[place:end])))
            comment, place = None, end
    return entries


def undocumented(entries):
    return [entry.name for entry in entries if entry.function and not (entry.comment or "").strip()]


def missed(text, entries):
    """Functions that the header exports and that were not read: the reader would not know its form."""
    exported = set(re.findall(r"^TUTTI_\w*API\b[^;]*?(\w+)\(", text, re.M))
    return sorted(exported - {entry.name for entry in entries})


FORWARD = re.compile(r"^struct \w+;$")


def page_of(header, entries, markdown):
    made = ["# %s\n\n```c\n#include <%s>\n```\n" % (header, header)]
    anchored = set()
    for entry in entries:
        prose = markdown.render(entry.comment) if entry.comment else ""
        if entry.text:
            # A macro may be defined twice, and a struct be declared first, also in other headers.
            known = entry.name in anchored or FORWARD.match(entry.text.strip())
            anchor = "" if known else "(%s)=\n" % entry.name
            anchored.add(entry.name)
            made.append("%s### `%s`\n\n```c\n%s\n```\n\n%s" % (anchor, entry.name, entry.text, prose))
        else:
            made.append(prose)
    return "\n".join(made)


def write(source, target, folders=("include/tutti", "include/tutti-rpc")):
    """Pages of all headers, in `target`. Returns (names of pages, complaints)."""
    read, texts = {}, {}
    for folder in folders:
        for file in sorted(os.listdir(os.path.join(source, folder))):
            if not file.endswith((".h", ".h.in")):
                continue
            with open(os.path.join(source, folder, file)) as opened:
                text = opened.read()
            header = "%s/%s" % (os.path.basename(folder), file.removesuffix(".in"))
            read[header], texts[header] = read_header(text), text
    complaints = []
    for header, entries in read.items():
        complaints += ["include/%s: %s has no comment" % (header, name) for name in undocumented(entries)]
        complaints += ["include/%s: %s was not read" % (header, name) for name in missed(texts[header], entries)]
    known = {entry.name for entries in read.values() for entry in entries if entry.name}
    markdown = Markdown(known)
    os.makedirs(target, exist_ok=True)
    pages = []
    for header, entries in read.items():
        page = header.replace("/", "-").removesuffix(".h") + "-h"
        with open(os.path.join(target, page + ".md"), "w") as file:
            file.write(page_of(header, entries, markdown))
        pages.append(page)
    return pages, complaints
