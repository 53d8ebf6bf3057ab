#!/usr/bin/env python3
"""Compare every #include of the tree with cmake/layers.txt.

usage: check_layers.py [ROOT]      prints the includes that go where they must not; exit 1 if any
"""
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOREIGN = ("bsd/", "grpc/", "openssl/", "protobuf-c/", "ucp/", "ucs/", "jansson.h", "jwt.h", "microhttpd.h",
           "cmocka.h", "lmdb.h",
           "nccl.h", "cuda")
WIRE = ("_pb.c", "_pb.h")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def read_layers():
    layers = {}
    for line in open(os.path.join(ROOT, "cmake/layers.txt")):
        line = line.split("#")[0].strip()
        if line:
            folder, _, rights = line.partition(":")
            layers[folder] = rights.split()
    return layers


def room_of(path, layers):
    fits = [folder for folder in layers if path.startswith(folder + "/")]
    return max(fits, key=len) if fits else None


def target_room(name, layers):
    """The room of a header of ours as an #include names it, e.g. "lib/coll/host" of "coll/host/x.h"."""
    for top in ("lib", "."):
        path = os.path.normpath(os.path.join(ROOT, top, name))
        if os.path.isfile(path):
            return room_of(os.path.relpath(path, ROOT), layers)
    return None


def allowed(path, quoted, name, room, layers):
    rights = layers[room]
    wire = path.endswith(WIRE) or (room == "lib/rpc" and name.startswith("protobuf-c/"))
    if name.startswith("tutti/") and not name.startswith("tutti/v1/"):
        return True
    if name.endswith(".pb-c.h") or name.startswith("protobuf-c/"):
        return wire and "wire" in rights
    if any(name.startswith(prefix) for prefix in FOREIGN):
        return any(right[0] == "<" and name.startswith(right[1:]) for right in rights)
    if not quoted:
        return True
    target = target_room(name, layers)
    if target is None:
        return True  # generated into the build folder
    short = target[4:] if target.startswith("lib/") else target
    return target == room or short in rights or name in rights


def main():
    layers = read_layers()
    wrong = 0
    for folder, _, files in os.walk(ROOT):
        relative = os.path.relpath(folder, ROOT)
        if relative.startswith(("build", ".git", "tests")):
            continue
        for name in sorted(files):
            path = os.path.normpath(os.path.join(relative, name))
            room = room_of(path, layers)
            if not name.endswith((".c", ".h")) or room is None:
                continue
            text = open(os.path.join(ROOT, path)).read()
            bare = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
            if "__v1__" in bare.lower() and not name.endswith(WIRE):
                print(f"{path}: generated names outside a _pb file")
                wrong += 1
            for number, line in enumerate(text.splitlines(), 1):
                found = INCLUDE.match(line)
                if found and not allowed(path, found[1] == '"', found[2], room, layers):
                    print(f"{path}:{number}: {room} may not include {found[2]}")
                    wrong += 1
    print(f"layers: {wrong} wrong includes")
    return 1 if wrong else 0


sys.exit(main())
