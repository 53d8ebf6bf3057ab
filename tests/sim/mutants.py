#!/usr/bin/env python3
"""Does the simulation find bugs? Each patch of tests/sim/mutants puts one into a copy of the sources; then schedules are
played until one fails.

usage: mutants.py FOLDER [--seconds N] [--only REGEX]

FOLDER keeps the copy and its build. The last line is "N of M found"; a mutant that is not found makes the exit status 1,
unless its first line says "not found: WHY". A first line "kind: store" has schedules of that kind played.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

def copy_sources(folder):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns("build*", ".git", "__pycache__"))


def call(*words, cwd, limit=900):
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
    return done.returncode, done.stdout.decode(errors="replace")


def build(folder):
    code, said = call("cmake", "--build", "build/dev", "-j", str(os.cpu_count()), "--target", "tutti-sim", cwd=folder)
    if code != 0:
        sys.exit("mutants: the build fails\n" + said[-3000:])


def apply(folder, patch, *options):
    code, said = call("patch", "-p1", "-s", "-i", patch, *options, cwd=folder)
    if code != 0:
        sys.exit("mutants: %s does not fit any more:\n%s" % (os.path.basename(patch), said))


def play(folder, seconds, kind):
    """The first broken promise, or None; how long it took."""
    began = time.monotonic()
    code, said = call(os.path.join(folder, "build", "dev", "tests", "sim", "tutti-sim"), "--failures", "1", "--shrink", "0", "--jobs", str(os.cpu_count()),
                      "--seconds", str(seconds), "--kind", kind,
                      cwd=folder, limit=seconds + 300)
    broken = re.search(r"^BROKEN at [^:]*: (.*)", said, re.M)
    return (broken[1] if broken else "the process ended badly") if code else None, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--mutants", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=60, help="for each of them")
    parser.add_argument("--only", default="", metavar="REGEX")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    copy_sources(folder)
    code, said = call("cmake", "--preset", "dev", "-DTUTTI_TESTS=ON", cwd=folder)
    if code != 0:
        sys.exit("mutants: configuring fails\n" + said[-3000:])
    names = sorted(name for name in os.listdir(os.path.join(HERE, "mutants")) if name.endswith(".patch") and re.search(arguments.only, name))
    found, unexcused = 0, 0
    for name in names:
        patch = os.path.join(HERE, "mutants", name)
        with open(patch) as file:
            first = file.readline().strip()
        apply(folder, patch)
        build(folder)
        broken, seconds = play(folder, arguments.seconds, first[6:] if first.startswith("kind: ") else "engine")
        apply(folder, patch, "-R")
        found += broken is not None
        unexcused += broken is None and not first.startswith("not found: ")
        print("%-28s %-9s %5.1f s  %s" % (name[:-6], "found" if broken else "NOT FOUND", seconds, (broken or first)[:150]), flush=True)
    print("%d of %d found" % (found, len(names)))
    return 1 if unexcused else 0


if __name__ == "__main__":
    sys.exit(main())
