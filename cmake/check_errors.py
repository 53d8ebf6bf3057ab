#!/usr/bin/env python3
"""docs/errors.md has an entry for every reason that the code gives, and each entry says what a reader needs.

An entry is a heading of one or more reasons, a line with its status codes, and three parts. The codes are those with which the code
gives the reason; the options and commands that an entry names exist.
"""

import pathlib
import re
import sys

FOLDERS = ("lib", "server", "store", "client")
# A reason is a constant: second-to-last before the words of an error, or handed around by name.
REASON = re.compile(r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]{5,})"')
OTHERS = re.compile(
    r"^(TUTTI|UCX|XDG|MASTER|NO_COLOR|NET_DEVICES|CONN_NB|LOCAL|SLURM|POD|TRACEPARENT$|GOAWAY$)"
)
# An error without a reason; and where one is right: the macro, and two readers of errors, which have theirs from others.
BARE = re.compile(r'\bTUTTI_FAIL\(|\bTUTTI_FAIL_FOR\([^,;]+,[^,;]+,\s*"",')
BARE_FINE = ("lib/base/error/fail.h", "lib/coll/packet/packet.c", "lib/rpc/message/status_pb.c")
PYTHON_BARE = re.compile(r"\bmake\(StatusCode\.\w+, \w+\)")
TESTS = (".c", ".h", ".py", ".go", ".cpp", ".json", ".java")
# What makes an error in the Python package, with its arguments.
PYTHON = re.compile(r"\b(?:make|invalid)\((?:[^()]|\([^()]*\))*\)")
# A code and a reason that stand beside each other.
PAIR = re.compile(r'TUTTI_FAIL_FOR\([^,;]+,\s*TUTTI_([A-Z_]+),\s*"([A-Z_]+)"')
ENTRY = re.compile(r"^### (.*)\n\n(`.*`)\n\n((?:(?!^#).*\n?)*)", re.M)
PARTS = ("What happened", "What it means", "What to do")
CODES = set(
    "INVALID_ARGUMENT FAILED_PRECONDITION NOT_FOUND ALREADY_EXISTS OUT_OF_RANGE RESOURCE_EXHAUSTED DEADLINE_EXCEEDED CANCELLED "
    "UNAVAILABLE ABORTED UNAUTHENTICATED PERMISSION_DENIED DATA_LOSS UNIMPLEMENTED INTERNAL".split()
)


def sources(root):
    """Files of C that give errors to callers, and their text without comments."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]")):
            if root / "client" / "cli" not in path.parents:
                yield path.relative_to(root), re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)


def reasons_of_code(root):
    found = {}
    for path, text in sources(root):
        for match in re.finditer(r"(?:FAIL|fail|reason|return|\?|:|=|,)[^;]*?;", text, flags=re.S):
            for word in REASON.findall(match[0]):
                found.setdefault(word, path)
    for path in sorted((root / "client" / "python" / "src").rglob("*.py")):
        for match in PYTHON.finditer(path.read_text()):
            for word in REASON.findall(match[0]):
                found.setdefault(word, path.relative_to(root))
    return {word: path for word, path in found.items() if not OTHERS.match(word)}


def bare_errors(root):
    """Errors without a reason."""
    for path, text in sources(root):
        if BARE.search(text) and str(path) not in BARE_FINE:
            yield "%s: an error without a reason: TUTTI_FAIL_FOR" % path
    for path in sorted((root / "client" / "python" / "src").rglob("*.py")):
        if PYTHON_BARE.search(path.read_text()):
            yield "%s: an error without a reason: make(code, text, reason)" % path.relative_to(root)


def untested(root, listed):
    """Reasons that no test names."""
    words = set()
    for folder in ("tests", "client", "plugins"):
        for path in (root / folder).rglob("*.*"):
            if path.suffix in TESTS and ("test" in path.name or folder == "tests" or path.parent.name == "tests"):
                words.update(re.findall(r"[A-Z][A-Z0-9_]{4,}", path.read_text(errors="replace")))
    for word in sorted(set(listed) - words):
        yield "docs/errors.md: no test names %s" % word


def codes_of_code(root):
    found = {}
    for _, text in sources(root):
        for code, reason in PAIR.findall(text):
            found.setdefault(reason, set()).add(code)
    return found


def names_of_code(root):
    """Names in the option tables and the table of commands: the first word of a row."""
    found = {"help", "version", "config", "print-config", "man"}
    for folder in ("server", "lib", "client/cli"):
        for path in (root / folder).rglob("*.[ch]"):
            found.update(re.findall(r'\{[\s\\]*"([a-z][a-z0-9 -]*)",', path.read_text()))
    return found


def entries(page):
    """Reasons, codes and text of each entry."""
    return [(head.split(", "), set(re.findall(r"[A-Z_]+", codes)), text) for head, codes, text in ENTRY.findall(page)]


def wrong_with_entry(reasons, codes, text, given, names):
    where = "docs/errors.md: %s" % ", ".join(reasons)
    for code in sorted(codes - CODES):
        yield "%s: %s is no code" % (where, code)
    for code in sorted(set().union(*(given.get(reason, set()) for reason in reasons)) - codes):
        yield "%s: the code gives it with %s, too" % (where, code)
    said = dict(re.findall(r"^\* \*\*(.*?):\*\* ((?:.|\n(?!\*))*)", text, re.M))
    for part in PARTS:
        if not re.search(r"\w.{8,}\.\s*$", said.get(part, ""), re.S):
            yield "%s: no sentence for \"%s\"" % (where, part)
    for option in re.findall(r"--([a-z][a-z-]+)", text):
        if option not in names:
            yield "%s: there is no option --%s" % (where, option)
    for command in re.findall(r"`tutti (?:--\S+ [A-Z]+ )*([a-z][a-z-]*(?: [a-z-]+)?)", re.sub(r"\s+", " ", text)):
        if command not in names and command.split()[0] not in names:
            yield "%s: there is no command tutti %s" % (where, command)


def main(root):
    page = (root / "docs" / "errors.md").read_text()
    code = reasons_of_code(root)
    given = codes_of_code(root)
    names = names_of_code(root)
    found = []
    listed = []
    for reasons, codes, text in entries(page):
        listed += reasons
        found += wrong_with_entry(reasons, codes, text, given, names)
    headings = len(re.findall(r"^### ", page, re.M))
    if headings != len(entries(page)):
        found.append("docs/errors.md: %d headings, %d entries: an entry is a heading, a line of codes, three parts"
                     % (headings, len(entries(page))))
    found += ["%s: reason %s is not in docs/errors.md" % (code[word], word) for word in sorted(set(code) - set(listed))]
    found += ["docs/errors.md: no code gives %s" % word for word in sorted(set(listed) - set(code))]
    found += ["docs/errors.md: %s has two entries" % word for word in sorted(set(listed)) if listed.count(word) > 1]
    found += bare_errors(root)
    found += untested(root, listed) if (root / "tests").is_dir() else []
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent))
