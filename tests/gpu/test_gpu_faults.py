#!/usr/bin/env python3
"""Goal: on one GPU shared by all ranks, a killed rank, a call that is given up and a full GPU are told by name, and
the next op works; two groups with the same ranks, called in opposite orders, never block each other.

Method: agents with --device cuda:0, each a host of its own for NCCL. TUTTI_GPU=1: on a real GPU. Else over the
stand-ins, as a rehearsal. TUTTI_GPU_SECONDS: how long the two groups run (60 on a GPU, 3 else).
"""

import os
import signal
import sys
import threading
import time
import unittest

import grpc
import numpy as np

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("system", "conformance"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
import support  # noqa: E402
import places  # noqa: E402
from cluster_case import LONG_S, collectives, handle, tensors, types  # noqa: E402

REAL = os.environ.get("TUTTI_GPU") == "1"
SECONDS = float(os.environ.get("TUTTI_GPU_SECONDS", "60" if REAL else "3"))
PLACE, REASON = places.prepare(places.NCCL, not REAL)
if PLACE is None:
    support.skip_all(REASON)
MIB = 1 << 20
LIMIT_MIB = 4096 if REAL else 64
OPTIONS = PLACE.options + ("--device-memory-limit", "%dMiB" % LIMIT_MIB)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def cluster_of(size, *options):
    return PLACE.make(size, *OPTIONS, *options)


def reduce_there(agent, name, timeout=LONG_S, **fields):
    """The sum of the tensors of this name, as a new tensor; its handle."""
    request = collectives.AllReduceRequest(input=handle(name), reduce_op=types.REDUCE_OP_SUM, **fields)
    return agent.ops.AllReduce(request, timeout=timeout).output.handle


def sum_of_ones(agent):
    name = agent.put(np.ones(5, np.float32))
    made = reduce_there(agent, name)
    array = agent.get(made)
    agent.delete(name, made)
    return list(array)


class Ranks(unittest.TestCase):
    def make(self, size, *options):
        cluster = cluster_of(size, *options)
        self.addCleanup(cluster.kill)
        return cluster

    def assert_sums_soon(self, cluster):
        """A rank hears at its next call of what has failed before on the others, and calls again."""
        def call(agent):
            for _ in range(20):
                try:
                    return sum_of_ones(agent)
                except grpc.RpcError as error:
                    said = support.Failure(error)
            return said

        self.assertEqual(cluster.all(call), [[cluster.size] * 5] * cluster.size)

    def test_a_rank_killed_in_the_middle_of_an_all_reduce_is_named_and_its_successor_works(self):
        cluster = self.make(3)
        self.assertEqual(cluster.all(sum_of_ones), [[3] * 5] * 3)
        began = threading.Event()

        def call(agent):
            spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[(16 if REAL else 1) * MIB])
            name = agent.tensors.Create(tensors.CreateRequest(spec=spec), timeout=LONG_S).tensor.handle
            for turn in range(1000000):
                agent.delete(reduce_there(agent, name))
                if turn == 3:
                    began.set()

        def kill():
            began.wait(LONG_S)
            time.sleep(0.05)  # somewhere in the middle of some op: each place must do
            cluster.agents[2].program.send(signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        failures = cluster.all(call)
        killer.join()
        for failure in failures[:2]:
            self.assertEqual(failure.code, UNAVAILABLE, failure)
            # NCCL may notice before the coordinator does; it cannot say which rank it was.
            self.assertTrue("rank 2" in failure.text or failure.reason == "NCCL_FAILED", failure)
        cluster.replace(2)
        self.assert_sums_soon(cluster)

    def test_a_call_that_is_given_up_fails_on_all_ranks_and_the_next_one_works(self):
        cluster = self.make(2)
        self.assertEqual(cluster.all(sum_of_ones), [[2] * 5] * 2)

        def late(agent):
            if agent.rank == 1:
                return None
            name = agent.put(np.ones(5, np.float32))
            request = collectives.AllReduceRequest(input=handle(name), reduce_op=types.REDUCE_OP_SUM)
            request.options.timeout_ms = 300
            agent.ops.AllReduce(request, timeout=LONG_S)

        failure = cluster.all(late)[0]
        self.assertEqual(failure.code, grpc.StatusCode.DEADLINE_EXCEEDED, failure)
        self.assertIn("rank 1", failure.text)
        # Rank 1 hears of it at its next call, which is the op that rank 0 gave up.
        self.assert_sums_soon(cluster)

    def test_a_full_gpu_refuses_by_name_and_goes_on(self):
        cluster = self.make(2)
        agent = cluster.agents[0]
        piece = tensors.CreateRequest(spec=types.TensorSpec(dtype=types.DTYPE_UINT8, shape=[LIMIT_MIB // 4 * MIB]))
        made = []
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in range(8):
                made.append(agent.tensors.Create(piece, timeout=LONG_S).tensor.handle)
        failure = support.Failure(caught.exception)
        self.assertEqual(failure.code, grpc.StatusCode.RESOURCE_EXHAUSTED, failure)
        self.assertIn(failure.reason, ("MEMORY_LIMIT", "DEVICE_MEMORY"))
        self.assertIn("cuda:0", failure.text)
        agent.delete(*made)
        self.assertEqual(cluster.all(sum_of_ones), [[2] * 5] * 2)

    def test_two_groups_of_the_same_ranks_in_opposite_orders(self):
        cluster = self.make(2)
        cluster.group("one", [0, 1])
        cluster.group("two", [1, 0])
        until = time.monotonic() + SECONDS
        agreed = [0]  # how many turns rank 0 has decided to do

        def call(agent):
            names = ("one", "two") if agent.rank == 0 else ("two", "one")
            name = agent.put(np.ones(1000, np.float32))
            turns = 0
            while True:
                if agent.rank == 0:
                    last = time.monotonic() > until
                    agent.ops.Broadcast(collectives.BroadcastRequest(
                        input=types.TensorArg(inline_tensor=types.TensorSpec(dtype=types.DTYPE_UINT8, shape=[1])),
                        payload=b"\1" if last else b"\0"), timeout=LONG_S)
                else:
                    last = agent.ops.Broadcast(collectives.BroadcastRequest(inline_result=True),
                                               timeout=LONG_S).payload == b"\1"
                works = []
                for group in names * 8:
                    request = collectives.AllReduceRequest(
                        input=handle(name), reduce_op=types.REDUCE_OP_SUM, group=group)
                    setattr(request.options, "async", True)
                    answer = agent.ops.AllReduce(request, timeout=LONG_S)
                    works.append((answer.info.work, answer.output.handle))
                agent.ops.Wait(collectives.WaitRequest(works=[work for work, _ in works]), timeout=LONG_S)
                self.assertEqual(agent.get(works[0][1])[0], 2)
                agent.delete(*[made for _, made in works])
                turns += 1
                if last:
                    agreed[0] = turns
                    return turns

        found = cluster.all(call)
        self.assertEqual(found[0], found[1], found)
        print("# %d turns of 16 ops in %.0f s" % (found[0], SECONDS))


if __name__ == "__main__":
    support.main()
