"""The symbols that the object files of a build define and use, by source file."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INTERPOSES = ("server/fair_reads.c",)  # defines functions of libc: a use of those is no call of it
SOURCE = re.compile(r"CMakeFiles/[^/]+\.dir/((?:lib|store|server|client)/.*\.c)\.o$")


def object_files(build, root=ROOT):
    """Source file -> one of its object files; of sources that are there: an old build may have more."""
    found = {}
    for folder, folders, files in os.walk(build):
        folders[:] = [name for name in folders if name not in ("tests", "bench", "gen", "_deps")]
        for name in files:
            match = SOURCE.search(os.path.join(folder, name))
            if match and os.path.isfile(os.path.join(root, match[1])):
                found.setdefault(match[1], os.path.join(folder, name))
    return found


def symbols(build, root=ROOT):
    """(symbol -> source that defines it, source -> symbols that it uses from elsewhere)."""
    source_of = {path: source for source, path in object_files(build, root).items()}
    paths = sorted(source_of)
    defined, used = {}, {source: set() for source in source_of.values()}
    for first in range(0, len(paths), 200):
        listing = subprocess.run(["nm", "-A", "-P", "--", *paths[first:first + 200]],
                                 capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            path, _, rest = line.partition(": ")
            name, kind = rest.split()[:2]
            if kind in "TDBRVWC" and source_of[path] not in INTERPOSES:
                defined.setdefault(name, source_of[path])
            elif kind == "U":
                used[source_of[path]].add(name)
    return defined, used


def call_graph(build):
    """Source -> the sources whose symbols it uses."""
    defined, used = symbols(build)
    return {source: {defined[name] for name in names if name in defined} - {source}
            for source, names in used.items()}


def circles(graph):
    """Sets of more than one file in which each reaches each, the largest first (Tarjan 1972)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = set()
            while node not in circle:
                circle.add(stack.pop())
            on_stack.difference_update(circle)
            if len(circle) > 1:
                found.append(circle)

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)
