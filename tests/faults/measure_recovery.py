#!/usr/bin/env python3
"""How long it takes until a death is known, and until a seat works again: a table for docs/measured/.

usage: measure_recovery.py [AGENTS] [ROUNDS]; the environment as tests/system/support.py wants it.
Each round: all but one agent wait in an all_reduce, that one is killed; the times from SIGKILL to the
error at each of the others; then a fresh agent takes the seat, and the time from its start until an
all_reduce of world succeeds everywhere. Victims take turns.
"""

import os
import platform
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

import support  # noqa: E402
from cluster_case import Cluster, all_reduce  # noqa: E402

import numpy as np  # noqa: E402


def kill_one(cluster, victim):
    """Milliseconds from SIGKILL to the error, for each survivor."""
    others = [rank for rank in range(cluster.size) if rank != victim]
    heard = {}
    died = []

    def call(agent):
        try:
            return all_reduce(agent, np.zeros(1000, np.float32))
        finally:
            heard[agent.rank] = time.monotonic()

    def killer():
        for rank in others:
            while rank not in heard and cluster.agents[rank].stats().op_running_count == 0:
                time.sleep(0.005)
        died.append(time.monotonic())
        cluster.agents[victim].program.kill()

    thread = threading.Thread(target=killer)
    thread.start()
    failures = cluster.on(others, call)
    thread.join()
    for failure in failures:
        assert isinstance(failure, support.Failure) and failure.reason == "RANK_LOST", failure
        assert failure.metadata["rank"] == str(victim), failure
    return [(heard[rank] - died[0]) * 1e3 for rank in others]


def bring_back(cluster, victim):
    """Milliseconds from the start of a fresh agent until world works."""
    began = time.monotonic()
    cluster.replace(victim)
    joined = time.monotonic()
    while True:
        results = cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), timeout=2))
        if not any(isinstance(one, support.Failure) for one in results):
            now = time.monotonic()
            return (now - began) * 1e3, (now - joined) * 1e3


def row(name, values):
    values = sorted(values)

    def at(share):
        return values[min(len(values) - 1, int(share * len(values)))]

    print("| %s | %d | %.0f | %.0f | %.0f | %.0f |"
          % (name, len(values), at(0.5), at(0.9), at(0.99), values[-1]))


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    cluster = Cluster(size)
    errors, whole, joined = [], [], []
    try:
        for number in range(rounds):
            errors += kill_one(cluster, number % size)
            one, two = bring_back(cluster, number % size)
            whole.append(one)
            joined.append(two)
    finally:
        cluster.kill()
    print("%d agents, %d rounds, %d CPUs, Linux %s\n" % (size, rounds, os.cpu_count(), platform.release()))
    print("| milliseconds | values | p50 | p90 | p99 | most |")
    print("|---|---|---|---|---|---|")
    row("SIGKILL to the error, each survivor", errors)
    row("start of the fresh agent to a working world", whole)
    row("of it, after the agent has joined", joined)


if __name__ == "__main__":
    main()
