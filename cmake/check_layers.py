#!/usr/bin/env python3
"""Compare every #include of the tree with cmake/layers.txt.

usage: check_layers.py [ROOT]      prints the includes that go where they must not; exit 1 if any
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from layers import ROOT, Layers  # noqa: E402

FOREIGN = ("bsd/", "grpc/", "openssl/", "protobuf-c/", "ucp/", "ucs/", "jansson.h", "jwt.h", "microhttpd.h",
           "cmocka.h", "lmdb.h", "nccl.h", "cuda")
GENERATED = ("_pb.c", "_pb.h")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def path_of(name, root):
    """The file of a header of ours as an #include names it, e.g. lib/coll/coll.h of "coll/coll.h"."""
    for top in ("lib", "."):
        path = os.path.normpath(os.path.join(root, top, name))
        if os.path.isfile(path):
            return os.path.relpath(path, root)
    return None


def allowed(path, quoted, name, room, layers):
    rights = layers.rights[room]
    if name.startswith("tutti/") and not name.startswith("tutti/v1/"):
        return True
    if name.endswith(".pb-c.h") or name.startswith("protobuf-c/"):
        in_rpc = layers.top_of(room) == "lib/rpc" and name.startswith("protobuf-c/")
        return (path.endswith(GENERATED) or in_rpc) and "wire" in rights
    if any(name.startswith(prefix) for prefix in FOREIGN):
        return any(right[0] == "<" and name.startswith(right[1:]) for right in rights)
    if not quoted:
        return True
    target = path_of(name, layers.root)
    if target is None:
        return True  # generated into the build folder
    if (path, name) in layers.exceptions:
        return True
    used = layers.room_of(target)
    return used is None or layers.may_include(room, used, name)


def main():
    layers = Layers(sys.argv[1] if len(sys.argv) > 1 else ROOT)
    wrong = 0
    for folder, _, files in os.walk(layers.root):
        relative = os.path.relpath(folder, layers.root)
        if relative.startswith(("build", ".git", "tests")):
            continue
        for name in sorted(files):
            path = os.path.normpath(os.path.join(relative, name))
            room = layers.room_of(path)
            if not name.endswith((".c", ".h")) or room is None:
                continue
            text = open(os.path.join(layers.root, path)).read()
            bare = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
            if "__v1__" in bare.lower() and not name.endswith(GENERATED):
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
