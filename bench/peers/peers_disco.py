#!/usr/bin/env python3
"""What does TVM Disco's ProcessSession do in a second? Needs PyPI's apache-tvm, and no CCL.

usage: peers_disco.py [WORKERS]

Disco starts this file again, as its worker. Ways take turns, nine times; printed are medians.
"""
import ctypes
import importlib.util
import os
import statistics
import sys
import time

import tvm_ffi

ROUNDS = 9
PIPELINED = 20000
SINGLE = 2000
WORKER_WORDS = 6  # how Disco calls a worker

# tvm itself does not load libtvm_runtime_extra.so, in which Disco is
for name in ("libtvm_runtime.so", "libtvm_runtime_extra.so"):
    root = os.path.dirname(importlib.util.find_spec("tvm").origin)
    ctypes.CDLL(os.path.join(root, "lib", name), ctypes.RTLD_GLOBAL)
import tvm  # noqa: E402
from tvm.exec import disco_worker  # noqa: E402
from tvm.runtime import disco  # noqa: E402


@tvm_ffi.register_global_func("bench.add_one", override=True)
def add_one(number):
    return number + 1


def sync(session):
    for worker in range(session.num_workers):
        session._sync_worker(worker)  # what _sync_all does


def rate(count, work, *arguments):
    began = time.perf_counter()
    work(count, *arguments)
    return count / (time.perf_counter() - began)


def pipelined(count, session, function, *arguments):
    for _ in range(count):
        session.call_packed(function, *arguments)
    sync(session)


def one_by_one(count, session, function, *arguments):
    for _ in range(count):
        session.call_packed(function, *arguments)
        sync(session)


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    session = disco.ProcessSession(num_workers=workers, num_groups=1, entrypoint="peers_disco")
    native = session.get_global_func("ffi.String")
    python = session.get_global_func("bench.add_one")
    ways = {
        "function in C++, pipelined": (PIPELINED, pipelined, session, native, "x"),
        "function in C++, 1 in flight": (SINGLE, one_by_one, session, native, "x"),
        "function in Python, pipelined": (PIPELINED, pipelined, session, python, 1),
        "function in Python, 1 in flight": (SINGLE, one_by_one, session, python, 1),
    }
    rates = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, words in ways.items():
            rates[way].append(rate(*words))
    print("apache-tvm %s, %d workers, commands/s, median (least, most) of %d" % (tvm.__version__, workers, ROUNDS))
    for way, found in rates.items():
        print("%-32s %8.0f (%.0f, %.0f)" % (way, statistics.median(found), min(found), max(found)))
    session.shutdown()


if __name__ == "__main__":
    if len(sys.argv) == WORKER_WORDS:
        disco_worker.main()
    else:
        os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__)) + ":" + os.environ.get("PYTHONPATH", "")
        main()
