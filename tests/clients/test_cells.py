#!/usr/bin/python3
"""Goal: an F of docs/coverage.md in the column of the package is checked by the tests that its row names.

Method: of the rows whose `checked by` has scripts of client/python/tests, twenty are drawn by a printed seed. For each,
what the row names of the package is replaced by a no-op, one name after the other, and the row's scripts run
against agents: one of them must fail. Rows that only cases of conformance check are left out.

First the scripts run as they are: one that fails anyway would notice nothing.

usage: test_cells.py [SEED [COUNT]]
"""

import os
import random
import re
import subprocess
import sys

import worlds

SOURCE = worlds.support.SOURCE
TESTS = os.path.join(SOURCE, "client", "python", "tests")
COUNT = 20
MODULES = [("tutti", "aio"), ("tutti", "torch")]
LIMIT_S = 120  # of one script; a call that does nothing may leave the other ranks waiting

# Replaces a name of the package before the script runs. What has a context gives one.
RUNNER = """
import runpy, sys
import tutti
path, name, script = sys.argv[1:4]
owner = tutti if path == "tutti" else getattr(tutti, path)
class Nothing:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None
def nothing(*_, **__):
    return None
if hasattr(owner, name):
    setattr(owner, name, nothing)
else:  # of its instances: what they set is not kept
    setattr(owner, name, property(lambda self: Nothing(), lambda self, value: None))
sys.argv = [script]
sys.path.insert(0, %r)
runpy.run_path(script, run_name="__main__")
"""


def rows():
    """(what the row is about, the package's names in it, its scripts)."""
    with open(os.path.join(SOURCE, "docs", "coverage.md"), encoding="utf-8") as file:
        lines = [line for line in file if line.startswith("| ") and line.count(" | ") == 8]
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        names = re.findall(r"`(tutti|Agent|Session|Store|Group|Work|Tensor|Mesh)\.(\w+)`", cells[1])
        names = [one for one in names if one not in MODULES]
        scripts = re.findall(r"`client/python/tests/(test_\w+\.py)`", cells[8])
        if cells[5] == "F" and names and scripts:
            yield cells[0], names, scripts


def check_control(python, folder, scripts):
    """Scripts that fail anyway would notice nothing."""
    with worlds.Cluster(4) as cluster:
        environment = dict(os.environ, PYTHONPATH=folder, TUTTI_PYTHON="", **cluster.environment())
        broken = [one for one in scripts if fails(python, environment, "tutti", "nobody_uses_this", one)]
    assert not broken, "these fail without a change: %s" % broken


def is_there(python, environment, owner, name):
    words = "import tutti; o = tutti if %r == 'tutti' else getattr(tutti, %r); print(callable(getattr(o, %r, None)))"
    done = subprocess.run([python, "-c", words % (owner, owner, name)], env=environment, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() == "True" or sets_itself(name)


def sets_itself(name):
    """Is it an attribute that instances have?"""
    folder = os.path.join(SOURCE, "client", "python", "src", "tutti", "aio")
    for path in os.listdir(folder):
        if path.endswith(".py"):
            with open(os.path.join(folder, path), encoding="utf-8") as file:
                if re.search(r"self\.%s(: [^=]*)? = " % name, file.read()):
                    return True
    return False


def fails(python, environment, owner, name, script):
    """Does the script notice?"""
    words = [python, "-c", RUNNER % TESTS, owner, name, os.path.join(TESTS, script)]
    try:
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
                              close_fds=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main():
    seed = int((sys.argv[1:] or [random.randrange(1 << 32)])[0])
    count = int((sys.argv[2:] or [COUNT])[0])
    print("# seed %d" % seed, flush=True)
    drawn = random.Random(seed).sample(sorted(rows()), count)
    sys.argv[1:] = []
    python, folder = worlds.install("debian", "cells")
    check_control(python, folder, sorted({one for _, _, scripts in drawn for one in scripts}))
    bad = 0
    for number, (theirs, names, scripts) in enumerate(drawn, 1):
        noticed = []
        # Ranks go out of step where one leaves out a call: each row has agents of its own.
        with worlds.Cluster(4, agent_options=["--op-timeout", "5s"]) as cluster:
            environment = dict(os.environ, PYTHONPATH=folder, TUTTI_PYTHON="", **cluster.environment())
            there = [one for one in names if is_there(python, environment, *one)]
            owner, name = (there or names)[0]
            noticed = [one for one in scripts if there and fails(python, environment, owner, name, one)]
        bad += not noticed
        print("%s %d - %s.%s does nothing: %s (row of %s)" % (
            "ok" if noticed else "not ok", number, owner, name, ", ".join(noticed) or "no test notices", theirs), flush=True)
    print("1..%d" % len(drawn))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
