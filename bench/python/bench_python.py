#!/usr/bin/env python3
"""The Python package beside PyTorch/Gloo: all_reduce of FP32 by processes of one rank each, all ways in turn.

Each process runs each way in each round, beginning with another one each time, so that a load of the machine meets all
of them alike. A time is the median over the rounds of the mean of a round, and the smallest mean stands in brackets. A round's
figure is the slowest rank's.

  gloo         torch.distributed, tensors of torch; "-" without torch
  array        agent.all_reduce(x, "sum"), x an array of NumPy's
  array, out   the same with out=x
  born         x from agent.empty(): agent.all_reduce(x, out=x)
  libtutti     tutti_all_reduce in place on a tensor of the agent, by the native module: no Python around it
  data         tutti_all_reduce_data on memory of the program, likewise
  grpc         agent.all_reduce(x), TUTTI_PYTHON=grpc: in a process of its own, but in the same rounds

usage: bench_python.py BUILD [-n RANKS] [--rounds N] [--sizes BYTES,...] [--json FILE]
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

HERE = os.path.abspath(__file__)
WAYS = ("gloo", "array", "array, out", "born", "libtutti", "data", "grpc")
SIZES = (8, 64 << 10, 1 << 20, 64 << 20)
SUM = 1
FP32 = 12


def times_of(size):
    """How often a round calls."""
    return 200 if size < 1 << 16 else 50 if size < 1 << 20 else 20 if size < 1 << 24 else 3


# ------------------------------------------------------------------------------ one rank


def gloo_ways(meeting, rank, ranks):
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return lambda size: None
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)

    def of(size):
        x = torch.zeros(size // 4, dtype=torch.float32)
        return lambda: dist.all_reduce(x)

    return of


def tutti_ways(size):
    import numpy as np
    import tutti
    from tutti._native_door import native

    if "agent" not in KEPT:
        KEPT["agent"] = tutti.connect(os.environ["TUTTI_AGENT"])
    agent = KEPT["agent"]
    x = np.zeros(size // 4, np.float32)
    if native is None:
        return {"grpc": lambda: agent.all_reduce(x)}
    if "client" not in KEPT:
        KEPT["client"] = native.Client(os.environ["TUTTI_AGENT"])
    client, tensor, born = KEPT["client"], agent.create(x.shape, "FP32", ephemeral=True), agent.zeros(x.shape)
    told = ("", SUM, 1.0, 0, 0, 0, 0, 0)
    y = x.copy()
    return {
        "array": lambda: agent.all_reduce(x),
        "array, out": lambda: agent.all_reduce(y, out=y),
        "born": lambda: agent.all_reduce(born, out=born),
        "libtutti": lambda: client.op(1, tensor.handle, tensor.handle, 0, *told),
        "data": lambda: client.op(1, x, y, FP32, *told),
    }


KEPT = {}


def rank_main(meeting, rank, ranks):
    """Commands on stdin, "WAY SIZE TIMES"; a mean in microseconds on stdout, -1 = there is no such way."""
    gloo = gloo_ways(meeting, rank, ranks) if meeting != "-" else lambda size: None
    calls, made = {}, 0
    for line in sys.stdin:
        way, size, times = line.rstrip("\n").split("|")
        if made != size:
            calls = {"gloo": gloo(int(size)), **tutti_ways(int(size))}
            made = size
        call = calls.get(way)
        if call is not None:
            call()
            call()
            began = time.perf_counter()
            for _ in range(int(times)):
                call()
        print("-1" if call is None else (time.perf_counter() - began) / int(times) * 1e6, flush=True)


# ------------------------------------------------------------------------------ all of them


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(meeting, rank, ranks, cluster, mode):
    environment = dict(os.environ, TUTTI_AGENT=cluster % rank, TUTTI_PYTHON=mode)
    words = [sys.executable, HERE, "--rank", meeting, str(rank), str(ranks)]
    return subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(programs, way, size, times):
    for one in programs:
        one.stdin.write("%s|%d|%d\n" % (way, size, times))
        one.stdin.flush()
    return max(float(one.stdout.readline()) for one in programs)


def measure(ranks, cluster, rounds, sizes):
    meeting = "tcp://127.0.0.1:%d" % free_port()
    near = [start(meeting, rank, ranks, cluster, "native") for rank in range(ranks)]
    far = [start("-", rank, ranks, cluster, "grpc") for rank in range(ranks)]
    found = {}
    for size in sizes:
        for number in range(rounds + 1):  # the first one warms up
            for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
                took = ask(far if way == "grpc" else near, way, size, times_of(size))
                if number:
                    found.setdefault((size, way), []).append(took)
    for one in near + far:
        one.stdin.close()
        one.wait()
    return found


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def table(ranks, found, sizes):
    lines = ["%d ranks, load %.1f" % (ranks, os.getloadavg()[0]), ""]
    lines += ["| bytes | " + " | ".join(WAYS) + " | gloo / array | gloo / born | array / data |"]
    lines += ["|---|" + "---|" * (len(WAYS) + 3)]
    for size in sizes:
        mid = {way: median(found[size, way]) for way in WAYS}
        cells = ["-" if mid[way] < 0 else "%.0f (%.0f)" % (mid[way], min(found[size, way])) for way in WAYS]
        ratios = [("gloo", "array"), ("gloo", "born"), ("array", "data")]
        cells += ["-" if mid[a] < 0 else "%.2f" % (mid[a] / mid[b]) for a, b in ratios]
        lines.append("| %d | %s |" % (size, " | ".join(cells)))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.rpartition("usage: ")[2])
    parser.add_argument("build")
    parser.add_argument("-n", type=int, action="append", help="ranks; may be repeated: 2 and 4 by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--json")
    options = parser.parse_args()
    sizes = [int(one) for one in options.sizes.split(",")]
    tutti = os.path.join(options.build, "tutti")
    everything = {}
    for ranks in options.n or [2, 4]:
        name = "bench-python-%d" % os.getpid()
        subprocess.run([tutti, "cluster", "start", "-n", str(ranks), "--name", name], check=True, stdout=subprocess.DEVNULL)
        try:
            said = subprocess.run([tutti, "cluster", "status", "--name", name, "--json"], check=True, capture_output=True)
            cluster = sorted(one["address"] for one in json.loads(said.stdout)["agents"])
            found = measure(ranks, cluster[0].replace("agent-0", "agent-%d"), options.rounds, sizes)
        finally:
            subprocess.run([tutti, "cluster", "stop", "--name", name], stdout=subprocess.DEVNULL)
        print(table(ranks, found, sizes) + "\n", flush=True)
        everything[ranks] = {"%d %s" % key: values for key, values in found.items()}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(everything, file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
