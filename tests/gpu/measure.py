#!/usr/bin/env python3
"""Figures of one agent on one GPU: upload and download beside cudaMemcpy, time to the first op, memory of an idle agent.

usage: measure.py BUILD [--stand-in]

With --stand-in the times mean nothing: it is seen that the script works.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("system", "conformance"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
import support  # noqa: E402
import places  # noqa: E402

MIB = 1 << 20
TURNS = 5


def fastest_copies(stand_in, size):
    """GB/s of cudaMemcpy from and to pinned memory; None: there is no libcudart to call."""
    if stand_in:
        return None
    cuda = ctypes.CDLL("libcudart.so.13", use_errno=False)
    device, host = ctypes.c_void_p(), ctypes.c_void_p()
    for code in (cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(size)), cuda.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(size))):
        if code != 0:
            raise SystemExit("cuda error %d" % code)
    found = []
    for to, source, kind in ((device, host, 1), (host, device, 2)):
        times = []
        for _ in range(TURNS):
            began = time.monotonic()
            cuda.cudaMemcpy(to, source, ctypes.c_size_t(size), kind)
            times.append(time.monotonic() - began)
        found.append(size / min(times) / 1e9)
    return found


def rss_of(pid):
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) // 1024


def gpu_memory_of(pid):
    """MiB on the GPU, as nvidia-smi says; None: it does not."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=20).stdout
    except OSError:
        return None
    return next((int(line.split(",")[1]) for line in said.splitlines() if line.split(",")[0].strip() == str(pid)), None)


def timed(*words):
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise SystemExit("%s: %s" % (" ".join(words), done.stderr.strip()))
    return time.monotonic() - began, done.stdout


def measure_transfers(tutti, agent, size, device):
    """Seconds of `tutti put` and `tutti get`, less those of an array of one byte."""
    with tempfile.TemporaryDirectory() as folder:
        large, small, back = (os.path.join(folder, name) for name in ("large.npy", "small.npy", "back.npy"))
        np.save(large, np.zeros(size, np.uint8))
        np.save(small, np.zeros(1, np.uint8))
        rows = {"put": [], "get": []}
        for _ in range(TURNS):
            for path, sign in ((large, 1), (small, -1)):
                put, out = timed(tutti, "--agent", agent, "put", path, "--device", device, "--json")
                handle = json.loads(out)["handle"] if "handle" in out else json.loads(out)["tensors"][0]["handle"]
                get, _ = timed(tutti, "--agent", agent, "get", handle, "-o", back)
                timed(tutti, "--agent", agent, "delete", handle)
                for key, seconds in (("put", put), ("get", get)):
                    if sign > 0:
                        rows[key].append(seconds)
                    else:
                        rows[key][-1] -= seconds
        return {key: statistics.median(values) for key, values in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build")
    parser.add_argument("--stand-in", action="store_true")
    arguments = parser.parse_args()
    size = (64 if arguments.stand_in else 1024) * MIB
    place, reason = places.prepare(places.NCCL, arguments.stand_in)
    if place is None:
        print("1..0 # SKIP " + reason)
        return support.SKIPPED
    tutti = os.path.join(arguments.build, "tutti")
    with support.Program("tutti-coordinator") as coordinator:
        began = time.monotonic()
        words = ["--coordinator", coordinator.address, "--world-size", "1", "--device", "cuda:0"]
        with support.Program("tutti-agent", *words) as agent:
            started = time.monotonic() - began
            print("idle agent: %d MiB of host memory, %s MiB of the GPU" %
                  (rss_of(agent.process.pid), gpu_memory_of(agent.process.pid)))
            timed(tutti, "--agent", agent.address, "bench", "all_reduce", "-b", "8", "-n", "1", "-w", "0", "--device", "cuda:0")
            print("agent listens after %.2f s, first op (communicator included) done after %.2f s" % (started, time.monotonic() - began))
            rates = {device: {key: size / seconds / 1e9 for key, seconds in
                              measure_transfers(tutti, agent.address, size, device).items()} for device in ("cuda:0", "cpu")}
    copies = fastest_copies(arguments.stand_in, size)
    print("| %d MiB | GPU, GB/s | host memory, GB/s | cudaMemcpy, pinned, GB/s | share of the less |\n|---|---|---|---|---|" % (size // MIB))
    for at, key in enumerate(("put", "get")):
        ours, host = rates["cuda:0"][key], rates["cpu"][key]
        theirs = copies[at] if copies else None
        less = host if theirs is None else min(host, theirs)
        print("| %s | %.2f | %.2f | %s | %.0f %% |" % (key, ours, host, "-" if theirs is None else "%.2f" % theirs, 100 * ours / less))
    return 0


if __name__ == "__main__":
    sys.exit(main())
