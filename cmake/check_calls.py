#!/usr/bin/env python3
"""Compare what object files use of each other with cmake/layers.txt: no room calls one above it.

usage: check_calls.py BUILD [ROOT]     prints the symbols that are used where they must not; exit 1 if any
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from layers import ROOT, Layers  # noqa: E402
from objects import symbols  # noqa: E402

EXCEPTIONS_MAX = 5


def main():
    layers = Layers(sys.argv[2] if len(sys.argv) > 2 else ROOT)
    defined, used = symbols(sys.argv[1], layers.root)
    wrong, needed = 0, set()
    for source in sorted(used):
        room = layers.room_of(source)
        for name in sorted(used[source]):
            target = defined.get(name)
            other = target and layers.room_of(target)
            if room is None or other is None or other == room or layers.may_call(room, other):
                continue
            if (source, name) in layers.exceptions:
                needed.add((source, name))
                continue
            print(f"{source}: {room} may not call {name} of {target}")
            wrong += 1
    calls = {(path, name) for path, name in layers.exceptions if not name.endswith(".h")}
    for path, name in sorted(calls - needed):
        print(f"cmake/layers.txt: the exception of {path} for {name} is not needed")
        wrong += 1
    if len(layers.exceptions) > EXCEPTIONS_MAX:
        print(f"cmake/layers.txt: {len(layers.exceptions)} exceptions, at most {EXCEPTIONS_MAX}")
        wrong += 1
    print(f"calls: {wrong} wrong of {sum(map(len, used.values()))} uses in {len(used)} files")
    return 1 if wrong or not used else 0


sys.exit(main())
