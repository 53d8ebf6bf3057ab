#!/usr/bin/env python3
"""The files of the source tree: those of git, or in a tree that is no checkout all that no .gitignore names.

usage: tree.py [SUFFIX ...]     prints them, each with a zero byte behind it
"""

import fnmatch
import os
import shutil
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _patterns(source, at):
    """Lines of a folder's .gitignore; of what git knows ours have names, globs, paths, and "!" for what is not meant."""
    path = os.path.join(source, at, ".gitignore")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    return [(at, line.rstrip("/")) for line in lines]


def _is_ignored(path, patterns):
    ignored = False
    for at, pattern in patterns:  # the last one that fits counts
        plain = pattern.lstrip("!")
        name = os.path.relpath(path, at or ".") if "/" in plain else os.path.basename(path)
        if fnmatch.fnmatchcase(name, plain.lstrip("/")):
            ignored = not pattern.startswith("!")
    return ignored


def _walk(source, at, patterns):
    patterns = patterns + _patterns(source, at)
    for name in sorted(os.listdir(os.path.join(source, at))):
        path = os.path.join(at, name)
        full = os.path.join(source, path)
        if path == ".git" or _is_ignored(path, patterns):
            continue
        if os.path.isdir(full) and not os.path.islink(full):
            yield from _walk(source, path, patterns)
        else:
            yield path


def _listed(source, new):
    """By git; None where it is not there, or does not know the tree."""
    if not os.path.exists(os.path.join(source, ".git")) or shutil.which("git") is None:
        return None
    words = ["git", "-C", source, "ls-files", "-z"] + ["-co", "--exclude-standard"] * new
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return {os.fsdecode(one) for one in done.stdout.split(b"\0") if one} if done.returncode == 0 else None


def files(source=SOURCE, new=False):
    """Their paths, from the folder of the tree, but of files that are gone. `new`: also those that git has not been told of."""
    listed = _listed(source, new)
    if listed is None:
        return sorted(_walk(source, "", []))
    return sorted(path for path in listed if os.path.lexists(os.path.join(source, path)))


if __name__ == "__main__":
    for one in files():
        if one.endswith(tuple(sys.argv[1:]) or ""):
            sys.stdout.write(one + "\0")
