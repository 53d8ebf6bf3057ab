#!/usr/bin/env python3
"""Goal: after a rank's return the ops of all ranks go on; none stands still until its timeout.

Method: four agents on one host, a caller per rank that sums in a loop, and SIGKILL of a random agent with a fresh
process in its seat at once, many times. A call may be told RANK_LOST or find nobody listening, and is made again. An op
that times out is a failure, and so is a wrong sum.

usage: run_restarts.py [--restarts N] [--seed S] [--clusters N] [--no-shm]
"""

import argparse
import random
import sys
import threading
import time

import fault_cluster  # noqa: F401  it knows where cluster_case is
from cluster_case import LONG_S, Cluster, all_reduce, support, types

import grpc
import numpy as np

SIZE = 4
COUNT = 2002
OP_TIMEOUT_MS = 5000  # beyond any delay of a busy machine


class Run:
    """One cluster, its callers, and its share of the restarts."""

    def __init__(self, restarts, seed, agent_options):
        self.restarts, self.random = restarts, random.Random(seed)
        self.options = agent_options
        self.sums, self.told, self.failures, self.done = [0] * SIZE, {}, [], 0
        self.over = threading.Event()

    def call(self, rank):
        """One caller: sums until the run is over."""
        array = np.full(COUNT, rank + 1, np.float64)
        options = types.OpOptions(timeout_ms=OP_TIMEOUT_MS)
        while not self.over.is_set():
            try:
                result = all_reduce(self.cluster.agents[rank], array, options=options)
                if not np.array_equal(result, np.full(COUNT, sum(range(1, SIZE + 1)))):
                    self.failures.append("rank %d: a wrong sum: %s" % (rank, result[:4]))
                self.sums[rank] += 1
            except grpc.RpcError as error:
                failure = support.Failure(error)
                if self.over.is_set():  # the other callers may have stopped before this op
                    break
                self.told[failure.reason] = self.told.get(failure.reason, 0) + 1
                if failure.reason == "TIMEOUT":
                    self.failures.append("rank %d: %s" % (rank, failure))
                time.sleep(0.01)
            except ValueError:  # the channel of a process that is gone was closed
                time.sleep(0.01)

    def run(self):
        self.cluster = Cluster(SIZE, *self.options)
        callers = [threading.Thread(target=self.call, args=(rank,)) for rank in range(SIZE)]
        for caller in callers:
            caller.start()
        try:
            self.wait_for_sums([0] * SIZE)
            while self.done < self.restarts and not self.failures:
                rank = self.random.randrange(SIZE)
                before = list(self.sums)
                self.cluster.agents[rank].program.kill()
                self.cluster.replace(rank)
                self.wait_for_sums(before)
                time.sleep(self.random.random() * 0.1)
                self.done += 1
        finally:
            self.over.set()
            for caller in callers:
                caller.join()
            self.cluster.kill()

    def wait_for_sums(self, before):
        """Two more on every rank."""
        until = time.monotonic() + LONG_S
        while any(now < old + 2 for now, old in zip(self.sums, before)) and not self.failures:
            if time.monotonic() > until:
                self.failures.append("no sums for %d s; callers were told %s" % (LONG_S, self.told))
            time.sleep(0.002)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--restarts", type=int, default=200, help="of all clusters together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=2, help="clusters side by side")
    parser.add_argument("--no-shm", action="store_true", help="agents reach each other by TCP")
    options = parser.parse_args()
    agent_options = ["--net-devices", "lo"] + (["--no-shm"] if options.no_shm else [])
    runs = []
    for number in range(options.clusters):
        share = options.restarts // options.clusters + (number < options.restarts % options.clusters)
        runs.append(Run(share, options.seed * 1000 + number, agent_options))
    begun = time.monotonic()
    threads = [threading.Thread(target=run.run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = sum(run.done for run in runs)
    failures = [failure for run in runs for failure in run.failures]
    told = {}
    for run in runs:
        for reason, count in run.told.items():
            told[reason or "unreachable"] = told.get(reason or "unreachable", 0) + count
    print("%d of %d restarts in %.0f s, %d sums, %d failures; callers were told %s" % (
        done, options.restarts, time.monotonic() - begun, sum(sum(run.sums) for run in runs), len(failures), told))
    for failure in failures:
        print("  " + failure)
    return 0 if done == options.restarts and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
