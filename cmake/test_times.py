#!/usr/bin/env python3
"""Seconds that the tests of each room took in their last runs: test_times.py BUILD...

The room is the folder below tests/ of a test's program (a label); seconds are those of the last run in each
build, as ctest keeps them, and sum over tests that ran side by side.
"""

import collections
import json
import pathlib
import subprocess
import sys


def room_of(labels):
    """The longest label that is a path, cut to two folders; else system, clients ..."""
    paths = sorted((label for label in labels if "/" in label), key=len)
    if paths:
        return "/".join(paths[-1].split("/")[:2])
    return next((label for label in labels if label not in ("quick", "long", "tsan", "fuzz")), "others")


def times_of(build):
    """{test: seconds} of the last run."""
    rows = (build / "Testing/Temporary/CTestCostData.txt").read_text().split("---")[0].splitlines()
    return {name: float(seconds) for name, _, seconds in (row.split() for row in rows if row)}


def labels_of(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                           capture_output=True, text=True).stdout
    return {test["name"]: next((one["value"] for one in test.get("properties", []) if one["name"] == "LABELS"), [])
            for test in json.loads(shown)["tests"]}


def main(builds):
    total = collections.Counter()
    count = collections.Counter()
    for build in map(pathlib.Path, builds):
        seconds, labels = times_of(build), labels_of(build)
        for test, took in seconds.items():
            if test in labels and took > 0:
                total[room_of(labels[test])] += took
                count[room_of(labels[test])] += 1
    print("| room | tests | seconds |\n|---|---|---|")
    for room, took in total.most_common():
        print(f"| {room} | {count[room]} | {took:.1f} |")
    print(f"| all | {sum(count.values())} | {sum(total.values()):.1f} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
