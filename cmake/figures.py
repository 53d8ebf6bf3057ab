#!/usr/bin/env python3
"""Count what makes the code hard or easy to live in: circles, folders, headers, functions, names, comments, tests.

usage: figures.py [--json] [ROOT ...]   a table with a column for each tree (by default the one this script lies in)

It reads text alone, no build: a file uses another when it names a function that the other defines. The code is
clang-formatted, so a definition is a name at the start of a line behind its type, and ends with a brace there.
"""
import collections
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from objects import circles  # noqa: E402

FOLDERS = ("include", "lib", "store", "server", "client")
AGENT_CORE = ("op", "tensor", "autograd")
DEFINITION = re.compile(r"^(?P<type>[a-z][^\n;{}#]*)\n(?P<name>[a-z_]\w*)\((?P<body>.*?)^\}", re.M | re.S)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
CIRCLE_MAX = 6
SHORT = 12  # lines
SERVED_MAX = 8  # .c files that one header may declare functions of
NAME_MAX = 2  # files in which a static name may stand
TABLE_NAMES = re.compile(r"^(main|on_\w+|test_\w+)$")  # entry points and callbacks that a table names


def c_files(root, folders, ending=".c"):
    for top in folders:
        for folder, below, files in os.walk(os.path.join(root, top)):
            below.sort()
            for name in sorted(files):
                if name.endswith(ending):
                    yield os.path.relpath(os.path.join(folder, name), root)


def count_lines(text):
    """(lines of code, lines that are a comment alone)"""
    code = comment = 0
    inside = False
    for line in text.splitlines():
        line = line.strip()
        if inside:
            comment += 1
            inside = "*/" not in line
        elif line.startswith("/*"):
            comment += 1
            inside = "*/" not in line
        elif line.startswith("//"):
            comment += 1
        elif line:
            code += 1
    return code, comment


class Source:
    def __init__(self, root, path):
        self.path = path
        self.text = open(os.path.join(root, path), encoding="utf-8").read()
        self.code, self.comments = count_lines(self.text)
        plain = STRING.sub('""', COMMENT.sub(lambda m: "\n" * m[0].count("\n"), self.text))
        self.words = collections.Counter(re.findall(r"[A-Za-z_]\w*", plain))
        self.statics, self.publics = {}, {}  # name -> lines, signature and braces included
        for match in DEFINITION.finditer(plain):
            if "{" not in match["body"] or match["type"].startswith(("typedef", "struct", "enum", "return")) \
                    and "{" in match["type"]:
                continue
            kind = self.statics if match["type"].startswith("static") else self.publics
            kind[match["name"]] = match[0].count("\n") + 1


def share(part, whole):
    return f"{part / whole:.2f}" if whole else "-"


def percentile(values, part):
    return sorted(values)[int(part * (len(values) - 1))] if values else 0


def figures(root):
    sources = [Source(root, path) for path in c_files(root, FOLDERS)]
    headers = [Source(root, path) for path in c_files(root, FOLDERS, ".h")]
    home = {name: source.path for source in sources for name in source.publics}
    graph = {source.path: {home[word] for word in source.words if word in home and word not in source.statics}
             - {source.path} for source in sources}
    found = circles(graph)
    sizes = collections.Counter(os.path.dirname(file.path) for file in sources + headers)
    served = {}
    for header in headers:
        names = set(re.findall(r"\b([a-z_]\w*)\(", COMMENT.sub("", header.text)))
        served[header.path] = {home[name] for name in names if name in home}
    private = {path: files for path, files in served.items() if not path.startswith("include/")}
    lengths = [lines for source in sources for lines in (*source.statics.values(), *source.publics.values())]
    once = [lines for source in sources for name, lines in source.statics.items() if source.words[name] == 2]
    places = collections.Counter(name for source in sources for name in source.statics)
    often = {name: count for name, count in places.items() if count > NAME_MAX and not TABLE_NAMES.match(name)}
    api = [header for header in headers if header.path.startswith("include/")]
    others = [header for header in headers if not header.path.startswith("include/")]
    tests = [Source(root, path) for path in c_files(root, ("tests",))]
    core = [source for source in sources
            if source.path.startswith(tuple(f"server/agent/{room}/" for room in AGENT_CORE))]
    core_tests = [test for test in tests
                  if test.path.startswith(tuple(f"tests/server/agent/{room}/" for room in AGENT_CORE))]
    agent = [source for source in sources if source.path.startswith("server/agent/")]
    agent_tests = [test for test in tests if re.match(r"tests/server/(agent|test_agent)", test.path)]
    lines = lambda files: sum(file.code for file in files)  # noqa: E731
    remarks = lambda files: sum(file.comments for file in files)  # noqa: E731
    statics = sum(len(source.statics) for source in sources)
    largest = max(sizes, key=lambda folder: (sizes[folder], folder))
    return {
        "files, .c / .h": f"{len(sources)} / {len(headers)}",
        "lines of code": lines(sources) + lines(headers),
        "functions": len(lengths),
        "function, median / p95 / longest":
            f"{percentile(lengths, .5)} / {percentile(lengths, .95)} / {max(lengths, default=0)}",
        "call circles": len(found),
        "files in call circles": sum(map(len, found)),
        f"call circles above {CIRCLE_MAX} files": sum(len(circle) > CIRCLE_MAX for circle in found),
        "largest call circle, files": len(found[0]) if found else 0,
        "largest folder, files": f"{sizes[largest]} ({largest})",
        "private headers without functions of a file / of one / of more":
            " / ".join(str(sum(test(len(files)) for files in private.values()))
                       for test in (lambda n: n == 0, lambda n: n == 1, lambda n: n > 1)),
        f"private headers of more than {SERVED_MAX} files":
            sum(len(files) > SERVED_MAX for files in private.values()),
        "most files that one private header serves": max(map(len, private.values()), default=0),
        "static functions": statics,
        "statics with one caller": f"{len(once)} ({100 * len(once) // max(statics, 1)} %)",
        f"statics with one caller, below {SHORT} lines": sum(length < SHORT for length in once),
        "names of one word": sum("_" not in name for source in sources
                                 for name in (*source.statics, *source.publics)),
        f"static names in more than {NAME_MAX} files": len(often),
        "comment lines for 100 of code: include / other .h / .c":
            " / ".join(f"{100 * remarks(files) / max(lines(files), 1):.0f}" for files in (api, others, sources)),
        "C tests to code": share(lines(tests), lines(sources)),
        "C tests to code, server/agent": share(lines(agent_tests), lines(agent)),
        "C tests to code, agent's op, tensor, autograd": share(lines(core_tests), lines(core)),
    }


def main():
    words = [word for word in sys.argv[1:] if word != "--json"]
    roots = words or [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    columns = [figures(root) for root in roots]
    if "--json" in sys.argv:
        print(json.dumps(columns if len(columns) > 1 else columns[0], indent=2))
        return
    for name in columns[0]:
        print("| " + " | ".join([name, *(str(column[name]) for column in columns)]) + " |")


if __name__ == "__main__":
    main()
