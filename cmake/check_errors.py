#!/usr/bin/env python3
"""Every reason that the code gives stands in docs/errors.md, and the other way round."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("lib", "server", "store", "client")
# A reason is a constant: second-to-last before the words of an error, or handed around by name.
REASON = re.compile(r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]{5,})"')
OTHERS = re.compile(r"^(TUTTI|UCX|XDG|MASTER|NO_COLOR|NET_DEVICES|CONN_NB|LOCAL|WORLD_SIZE$|SLURM|POD|TRACEPARENT$)")
# What makes an error in the Python package, with its arguments.
PYTHON = re.compile(r"\b(?:make|invalid)\((?:[^()]|\([^()]*\))*\)")


def reasons_of_code():
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            if ROOT / "client" / "cli" in path.parents:
                continue
            text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            for match in re.finditer(r"(?:FAIL|fail|reason|return|\?|:|=|,)[^;]*?;", text, flags=re.S):
                for word in REASON.findall(match[0]):
                    found.setdefault(word, path.relative_to(ROOT))
    for path in sorted((ROOT / "client" / "python" / "src").rglob("*.py")):
        for match in PYTHON.finditer(path.read_text()):
            for word in REASON.findall(match[0]):
                found.setdefault(word, path.relative_to(ROOT))
    return found


def main():
    page = (ROOT / "docs" / "errors.md").read_text()
    listed = set()
    for line in page.splitlines():
        if line.startswith("| ") and line.count("|") == 4:
            listed.update(re.findall(r"[A-Z][A-Z0-9_]{4,}", line.split("|")[1]))
    code = reasons_of_code()
    missing = {word: path for word, path in code.items() if word not in listed and not OTHERS.match(word)}
    gone = {word for word in listed if word not in code} - {
        "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "ALREADY_EXISTS", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED",
        "DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE", "ABORTED", "UNAUTHENTICATED", "UNIMPLEMENTED", "INTERNAL",
    }
    for word, path in sorted(missing.items()):
        print("%s: reason %s is not in docs/errors.md" % (path, word))
    for word in sorted(gone):
        print("docs/errors.md: no code gives %s" % word)
    return 1 if missing or gone else 0


if __name__ == "__main__":
    sys.exit(main())
