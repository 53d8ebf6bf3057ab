#!/usr/bin/python3
"""Goal: clients in other languages and on other gRPC implementations do all they need on a real cluster:
find the ranks, upload, all-reduce, broadcast asynchronously, download, read an error's details; in plaintext, and with TLS, client certificates and a token.

Method: build the client from the source tree with the distribution's tools, in the build folder, and run
it against fresh processes; it prints what it did.

usage: test_scenario.py go | cxx | grpclib
"""

import glob
import os
import re
import shutil
import subprocess
import sys

import go_world
import worlds
from worlds import support

SIZE = 3
RUN_S = 120
PROTOS = os.path.join(support.SOURCE, "proto")


def need(*programs):
    for program, package in programs:
        if shutil.which(program) is None:
            support.skip_all("no %s: install %s" % (program, package))


# ------------------------------------------------------------------------------ Go


def prepare_go():
    if go_world.missing():
        support.skip_all(go_world.missing())
    said = worlds.must(["gofmt", "-l", go_world.SOURCE])
    assert said == "", "gofmt would change " + said
    world = go_world.World("go")
    program = os.path.join(world.root, "scenario")
    world.go("vet", "./...")
    world.go("test", "-c", "-o", program, ".")
    os.environ["TUTTI_TEST_HOST"] = os.path.join(world.root, "host")
    world.go("build", "-o", os.environ["TUTTI_TEST_HOST"], "tutti/examples/host")
    return [program, "-test.v"]


def go_to_tap(said):
    """What `go test -v` says, as TAP."""
    count, why = 0, ""
    for line in said.split("\n"):
        found = re.match(r" *--- (PASS|FAIL|SKIP): (\S+)", line)
        if not found:
            why = re.sub(r"^ *\w+\.go:\d+: ", "", line)  # t.Skip says why in the line before
            print("# " + line)
            continue
        count += 1
        word = "not ok" if found[1] == "FAIL" else "ok"
        comment = " # SKIP " + why if found[1] == "SKIP" else ""
        print("%s %d - go: %s%s" % (word, count, found[2], comment))
    print("1..%d" % count)


# ------------------------------------------------------------------------------ C++, grpclib


def prepare_cxx():
    need(("cmake", "cmake"), ("c++", "g++"), ("grpc_cpp_plugin", "protobuf-compiler-grpc"))
    if worlds.call(["pkg-config", "grpc++"])[0] != 0:
        support.skip_all("no grpc++: install libgrpc++-dev")
    source = os.path.join(support.SOURCE, "examples", "clients", "cxx")
    build = os.path.join(worlds.WORK, "cxx")
    worlds.must(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE="])
    worlds.must(["cmake", "--build", build, "-j", str(os.cpu_count())])
    return [os.path.join(build, "scenario")]


def prepare_grpclib():
    python = worlds.environment("grpclib", "protobuf")
    protoset = os.path.join(worlds.WORK, "grpclib.protoset")
    roots = [PROTOS, os.path.join(support.SOURCE, "lib", "rpc", "proto")]
    names = [
        os.path.relpath(path, root)
        for root in roots
        for path in glob.glob(os.path.join(root, "**", "*.proto"), recursive=True)
    ]
    flags = ["-I" + root for root in roots] + ["--include_imports"]
    worlds.must(["protoc"] + flags + ["--descriptor_set_out=" + protoset] + sorted(names))
    source = os.path.join(support.SOURCE, "examples", "clients", "grpclib", "scenario.py")
    return [python, source, protoset]


PREPARE = {"go": prepare_go, "cxx": prepare_cxx, "grpclib": prepare_grpclib}


def run(client, words, cluster):
    """Run a client to its end; did it do all?"""
    address = [] if client == "go" else [cluster.agents[0].address]
    done = subprocess.run(
        words + address,
        env=dict(os.environ, **cluster.environment()),
        timeout=RUN_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        close_fds=False,
    )
    said = done.stdout.decode(errors="replace")
    if client == "go":
        go_to_tap(said)
    else:
        print(said, end="")
    if done.returncode != 0:
        print("# exit code %d" % done.returncode)
    sys.stdout.flush()
    return done.returncode == 0


def main():
    client = sys.argv[1]
    words = PREPARE[client]()
    fine = True
    for secure in (False, True):
        print(
            "# " + ("TLS, client certificates and a token" if secure else "plaintext"), flush=True
        )
        with worlds.Cluster(SIZE, secure, agent_options=["--functions", "demo"]) as cluster:
            fine = run(client, words, cluster) and fine
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
