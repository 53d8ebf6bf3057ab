"""Comments of the house as Markdown: paragraphs, tables of `name  meaning`, lists, and code.

Headers, protos and docstrings have one form, which is read here:

    a line indented by four         code
    `[in] name  meaning`            an argument; so are `STATUS  meaning`, and `name  meaning` of docstrings
      `  name  meaning`             likewise, indented by two; lines that are indented deeper go on
    `- text`                        an item of a list
    else                            a paragraph
"""

import re

DIRECTION = r"\[(?:in|out)[a-z, ]*\]"
ROW = re.compile(r"^(?P<cell>(?:%s\s+)?[^\s.](?:[^.]*?[^\s.:])?)\s{2,}(?P<text>\S.*)$" % DIRECTION)
NAME = re.compile(r"(?<![\w`./-])(?:(?:tutti|TUTTI)_\w+(?:\(\))?|[A-Z]+_[A-Z_]+)")
REASON = re.compile(r"^[A-Z]+_?[A-Z_]+:")
CELL_WORDS_MAX = 4


def depth(line):
    return len(line) - len(line.lstrip())


def row_of(line):
    """The two cells of a line that is a row of a table, or None."""
    match = ROW.match(line.strip())
    if not match or line.strip().startswith(("- ", "* ")):
        return None
    cell = re.sub(r"^%s\s+" % DIRECTION, "", match["cell"])
    named = match["cell"] != cell
    if not named and (len(cell.split()) > CELL_WORDS_MAX and "," not in cell):
        return None
    return match["cell"], match["text"]


class Markdown:
    def __init__(self, known=(), language="c"):
        """known  names that have an anchor of the same name, for links"""
        self.known = known
        self.language = language

    def prose(self, text):
        """Words in which nothing is Markdown but what stands in backticks."""
        parts = re.split(r"(`[^`]+`)", text)
        return "".join(part if place % 2 else self.words(part) for place, part in enumerate(parts))

    def words(self, text):
        made, end = [], 0
        for match in NAME.finditer(text):
            made += [self.escaped(text[end : match.start()]), self.named(match[0])]
            end = match.end()
        return "".join(made + [self.escaped(text[end:])])

    @staticmethod
    def escaped(text):
        return re.sub(r"([\\*_<>\[\]#~$|{}])", r"\\\1", text)

    def named(self, name):
        code = "`%s`" % name
        bare = name.removesuffix("()")
        return "[%s](#%s)" % (code, bare) if bare in self.known else code

    def cell(self, cell):
        match = re.match(r"^(%s)\s+(.*)$" % DIRECTION, cell)
        if match:
            return "`%s` %s" % (match[2], self.escaped(match[1]))
        return ", ".join("`%s`" % one.strip().strip("`") for one in cell.split(","))

    def render(self, text):
        """The whole comment, as Markdown without headings."""
        lines = text.strip("\n").split("\n")
        made, place = [], 0
        while place < len(lines):
            line = lines[place]
            if not line.strip():
                place += 1
            elif depth(line) >= 4:
                place = self.code(lines, place, made)
            elif line.lstrip().startswith(("- ", "* ")):
                place = self.items(lines, place, made)
            elif row_of(line) or self.hangs(lines, place):
                place = self.rows(lines, place, made)
            else:
                place = self.paragraph(lines, place, made)
        return "\n\n".join(made) + "\n"

    @staticmethod
    def hangs(lines, place):
        """A first cell that is alone in its line: it is indented, and what it means is indented deeper."""
        below = lines[place + 1] if place + 1 < len(lines) else ""
        return depth(lines[place]) in (2, 3) and below.strip() and depth(below) > depth(lines[place]) + 3

    def code(self, lines, place, made):
        begin = place
        while place < len(lines) and (not lines[place].strip() or depth(lines[place]) >= 4):
            place += 1
        block = [line[4:] for line in lines[begin:place]]
        made.append("```%s\n%s\n```" % (self.language, "\n".join(block).strip("\n")))
        return place

    def items(self, lines, place, made):
        items = []
        base = depth(lines[place])
        while place < len(lines) and lines[place].strip():
            line = lines[place]
            if depth(line) == base and line.lstrip().startswith(("- ", "* ")):
                items.append(line.strip()[2:].strip())
            elif depth(line) > base:
                items[-1] += " " + line.strip()
            else:
                break
            place += 1
        made.append("\n".join("- " + self.prose(item) for item in items))
        return place

    def rows(self, lines, place, made):
        rows = []
        base = depth(lines[place])
        while place < len(lines) and lines[place].strip():
            line = lines[place]
            row = row_of(line)
            if depth(line) > base and rows:
                self.go_on(rows[-1][1], line.strip())
            elif row:
                rows.append((row[0], [row[1]]))
            elif self.hangs(lines, place):
                rows.append((line.strip(), []))
            else:
                break
            place += 1
        made += ["%s\n: %s" % (self.cell(cell), self.prose(" ".join(texts))) for cell, texts in rows]
        return place

    @staticmethod
    def go_on(texts, text):
        """A reason that begins a line begins something new, though nothing stands in front of it."""
        if texts and REASON.match(text) and texts[-1][-1] not in ".,;:":
            texts[-1] += ";"
        texts.append(text)

    def paragraph(self, lines, place, made):
        begin = place
        while place < len(lines) and lines[place].strip():
            if place > begin and (row_of(lines[place]) and depth(lines[place]) == 0 or lines[place].startswith("- ")):
                break
            if place > begin and depth(lines[place]) >= 4 and lines[place - 1].rstrip().endswith(":"):
                break
            place += 1
        made.append(self.prose(" ".join(line.strip() for line in lines[begin:place])))
        return place


def within(text, prefix="  "):
    """Text as part of a definition: indented from its second line on."""
    return "\n".join(prefix + line if place and line else line for place, line in enumerate(text.split("\n")))
