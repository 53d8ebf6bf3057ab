#!/usr/bin/env python3
"""How much of the product the simulation runs: line coverage (gcov) of a build of its own, by schedules alone.

usage: coverage.py FOLDER [--seconds N] [--kind KIND] [--rooms PREFIX ...]

Prints, for each file, what has been run, and the lines that never were; then each room. FOLDER keeps the build.
"""

import argparse
import collections
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ROOMS = {"engine": ["lib/coll/engine", "lib/coll/net", "lib/coll/state", "lib/coll/agree", "lib/coll/infer", "lib/coll/packet", "lib/coll/host"],
         "cluster": ["server/coordinator", "server/agent", "lib/coll/engine", "lib/coll/net", "store/memory"]}


def call(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit("coverage: %s fails\n%s" % (" ".join(words[:3]), done.stdout.decode(errors="replace")[-3000:]))
    return done.stdout


def build(folder):
    call("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DTUTTI_TESTS=ON", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=--coverage")
    call("cmake", "--build", folder, "-j", str(os.cpu_count()), "--target", "tutti-sim")


def find(folder, suffix):
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in names if name.endswith(suffix))


def count_lines(folder, rooms):
    """{file: {line: how often}}"""
    files = collections.defaultdict(collections.Counter)
    for data in find(folder, ".gcda"):
        if not any(room + "/" in data for room in rooms):
            continue
        said = call("gcov", "--json-format", "--stdout", data, cwd=folder)
        for one in json.loads(said)["files"]:
            name = os.path.relpath(os.path.join(folder, one["file"]), ROOT)
            if any(name.startswith(room + "/") for room in rooms) and name.endswith(".c"):
                for line in one["lines"]:
                    files[name][line["line_number"]] += line["count"]
    return files


def ranges(lines):
    """"3-5 9": lines that follow each other as one."""
    parts = []
    for line in lines:
        if parts and line <= parts[-1][1] + 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return " ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in parts)


def say(name, run, total):
    print("%5.1f %%  %5d of %5d  %s" % (100.0 * run / total, run, total, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--coverage", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="engine")
    parser.add_argument("--rooms", nargs="+")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    rooms = arguments.rooms or ROOMS[arguments.kind]
    build(folder)
    for data in list(find(folder, ".gcda")):
        os.remove(data)
    said = call(os.path.join(folder, "tests", "sim", "tutti-sim"), "--kind", arguments.kind, "--seed", str(arguments.seed), "--seconds",
                str(arguments.seconds), "--jobs", str(os.cpu_count()))
    files = count_lines(folder, rooms)
    sums = collections.defaultdict(lambda: [0, 0])
    for name in sorted(files):
        missed = sorted(line for line, count in files[name].items() if count == 0)
        say(name, len(files[name]) - len(missed), len(files[name]))
        if missed:
            print("          never: %s" % ranges(missed))
        for room in rooms:
            if name.startswith(room + "/"):
                sums[room][0] += len(files[name]) - len(missed)
                sums[room][1] += len(files[name])
    print()
    for room, (run, total) in sums.items():
        say(room, run, total)
    print(said.decode().splitlines()[-1])


if __name__ == "__main__":
    main()
