"""Goal: whatever goes wrong, every caller hears of it in time, with the culprit named, and the rest goes on.

Method: real processes; calls that differ, callers that leave, agents that are killed, stopped and
started again, a coordinator that is late or away, limits that are reached.
"""

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import (
    LONG_S, Agent, Cluster, ClusterCase, all_reduce, array_of, collectives, coordinator, handle,
    inline, spec_of, tensors, tracers, types,
)
from tutti.v1 import parts_pb2 as parts  # noqa: E402


INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
MISSING = grpc.StatusCode.NOT_FOUND
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
GONE = grpc.StatusCode.UNAVAILABLE
CANCELLED = grpc.StatusCode.CANCELLED
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class Calls(ClusterCase):
    """Three ranks whose clients do not do what they should."""

    size = 3
    options = ("--memory-limit", "32MiB")

    def one_differs(self, usual, odd):
        """Rank 1 makes the odd call; all get the same error."""
        failures = self.cluster.all(lambda agent: odd(agent) if agent.rank == 1 else usual(agent))
        for failure in failures:
            self.assertIsInstance(failure, support.Failure)
            self.assertEqual(failure.text, failures[0].text)
            self.assertEqual((failure.code, failure.reason), (failures[0].code, failures[0].reason))
        self.assert_works()
        return failures[0]

    def test_shapes_that_differ_are_refused_on_every_rank(self):
        failure = self.one_differs(
            lambda agent: all_reduce(agent, np.zeros(4, np.float32)),
            lambda agent: all_reduce(agent, np.zeros(5, np.float32)),
        )
        self.assert_failed(
            failure, INVALID, "SHAPE_MISMATCH",
            "rank 1 called all_reduce(sum, FP32[5]), ranks 0, 2 all_reduce(sum, FP32[4])",
        )
        self.assertEqual(failure.metadata["group"], "world")
        self.assertEqual(failure.metadata["rank"], "1")

    def test_dtypes_that_differ_are_refused_on_every_rank(self):
        failure = self.one_differs(
            lambda agent: all_reduce(agent, np.zeros(4, np.float32)),
            lambda agent: all_reduce(agent, np.zeros(4, np.float16)),
        )
        self.assert_failed(failure, INVALID, "DTYPE_MISMATCH", "rank 1 called", "FP16[4]")

    def test_ops_that_differ_are_refused_on_every_rank(self):
        failure = self.one_differs(
            lambda agent: all_reduce(agent, np.zeros(4, np.float32)),
            lambda agent: agent.ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S),
        )
        self.assert_failed(failure, PRECONDITION, "OP_MISMATCH", "rank 1 called barrier()")
        failure = self.one_differs(
            lambda agent: all_reduce(agent, np.zeros(4, np.float32)),
            lambda agent: all_reduce(agent, np.zeros(4, np.float32), types.REDUCE_OP_MAX),
        )
        self.assert_failed(failure, PRECONDITION, "OP_MISMATCH", "all_reduce(max")

    def test_a_mismatch_touches_no_tensor(self):
        for agent in self.cluster.agents:
            agent.put(np.full(4 + agent.rank // 2, 7, np.int32), name="x")
        request = collectives.AllReduceRequest(
            input=handle("x"), output="x", reduce_op=types.REDUCE_OP_SUM
        )
        failures = self.cluster.all(lambda agent: agent.ops.AllReduce(request, timeout=LONG_S))
        self.assert_failed(failures[0], INVALID, "SHAPE_MISMATCH")
        for agent in self.cluster.agents:
            self.assertTrue((agent.get("x") == 7).all())

    def refused_on_one(self, odd, code, reason):
        """Rank 1's call is wrong in itself: it is told so, and the others hear that it was."""
        failures = self.cluster.all(
            lambda agent: odd(agent)
            if agent.rank == 1
            else all_reduce(agent, np.zeros(4, np.float32))
        )
        for failure in failures:
            self.assert_failed(failure, code or failures[1].code, reason)
        self.assertIn("rank 1 was refused", failures[0].text)
        self.assertIn("rank 1 was refused", failures[2].text)
        self.assert_works()

    def test_a_call_that_is_wrong_in_itself_is_refused_for_all(self):
        def request(**fields):
            return lambda agent: agent.ops.AllReduce(
                collectives.AllReduceRequest(**fields), timeout=LONG_S
            )

        sum_ = types.REDUCE_OP_SUM

        def inline_spec(**fields):
            return types.TensorArg(inline_tensor=types.TensorSpec(**fields))

        good = inline_spec(dtype=types.DTYPE_FP32, shape=[4])
        data = bytes(16)
        self.refused_on_one(request(input=good, payload=data), INVALID, "BAD_REDUCE_OP")
        self.refused_on_one(request(input=good, payload=data, reduce_op=77), INVALID, "BAD_REDUCE_OP")
        self.refused_on_one(
            request(input=good, payload=data, reduce_op=types.REDUCE_OP_BAND), INVALID, "BAD_REDUCE_OP"
        )
        self.refused_on_one(
            request(input=inline_spec(dtype=88, shape=[4]), payload=data, reduce_op=sum_),
            INVALID, "BAD_DTYPE",
        )
        self.refused_on_one(
            request(input=inline_spec(dtype=types.DTYPE_FP32, shape=[-4]), reduce_op=sum_),
            INVALID, "BAD_SHAPE",
        )
        self.refused_on_one(
            request(input=inline_spec(dtype=types.DTYPE_FP32, shape=[2**62, 2**62]), reduce_op=sum_),
            INVALID, "BAD_SHAPE",
        )
        self.refused_on_one(request(input=good, payload=data[:15], reduce_op=sum_), INVALID, "SIZE_MISMATCH")
        self.refused_on_one(request(reduce_op=sum_), INVALID, "NO_INPUT")
        self.refused_on_one(request(input=handle("nobody"), reduce_op=sum_), MISSING, "NO_TENSOR")
        self.refused_on_one(
            request(input=inline_spec(dtype=types.DTYPE_FP8_E4M3, shape=[4]), payload=data[:4], reduce_op=sum_),
            INVALID, "DTYPE_UNSUPPORTED",
        )

    def test_each_reason_of_one_rank_reaches_the_others(self):
        agent = self.cluster.agents[1]
        agent.put(np.zeros(6, np.float32), name="six")
        agent.put(np.zeros(6, np.float32), name="other")
        agent.put(np.float32(0), name="scalar")
        agent.tracers.CreateTracer(tracers.CreateTracerRequest(name="t"), timeout=LONG_S)
        agent.tracers.Attach(tracers.AttachRequest(tracer="t", tensors=["other"]), timeout=LONG_S)
        six, data = inline(np.zeros(6, np.float32)), bytes(24)
        sum_ = types.REDUCE_OP_SUM
        for method, fields, reason in (
            ("AllReduce", {"input": handle("six"), "inputs": [handle("six")], "reduce_op": sum_}, "UNEXPECTED_INPUT"),
            ("AllReduce", {"coalesced": True, "reduce_op": sum_}, "EMPTY_LIST"),
            ("AllReduce", {"input": handle("six"), "output": "other", "reduce_op": sum_,
                           "options": types.OpOptions(result="new")}, "UNEXPECTED_RESULT"),
            ("AllReduce", {"input": handle("tensor:none"), "reduce_op": sum_}, "BAD_HANDLE"),
            ("AllReduce", {"input": handle("six@0:FP32[7]"), "reduce_op": sum_}, "RANGE_OUTSIDE"),
            ("AllReduce", {"input": handle("six@0:FP32"), "reduce_op": sum_}, "BAD_RANGE"),
            ("AllReduce", {"input": handle("six@2:FP32[1]"), "reduce_op": sum_}, "RANGE_ALIGN"),
            ("AllReduce", {"input": handle("six@0:FP32[2]"), "output": "six@4:FP32[2]", "reduce_op": sum_}, "RANGE_OVERLAP"),
            ("AllReduce", {"inputs": [handle("six"), handle("other")], "outputs": ["scalar", "scalar"],
                           "reduce_op": sum_}, "OUTPUT_ALIAS"),
            ("AllReduce", {"input": six, "payload": data, "reduce_op": sum_,
                           "options": types.OpOptions(**{"async": True})}, "ASYNC_INLINE"),
            ("AllReduce", {"input": six, "payload": data, "reduce_op": sum_,
                           "options": types.OpOptions(tracers=["t"])}, "TRACED_INLINE"),
            ("AllReduce", {"input": handle("other@0:FP32[2]"), "reduce_op": sum_}, "TRACED_RANGE"),
            ("AllReduce", {"input": handle("six"), "reduce_op": sum_,
                           "options": types.OpOptions(tracers=["t"] * 17)}, "TRACER_COUNT"),
            ("AllReduce", {"input": handle("six"), "reduce_op": sum_,
                           "options": types.OpOptions(tracers=["none"])}, "NO_TRACER"),
            ("Broadcast", {"root": 0, "device": "cuda:0"}, "NO_DEVICE"),
            ("AllReduce", {"input": handle("six"), "reduce_op": sum_,
                           "options": types.OpOptions(after_event=7)}, "NO_EVENT"),
            ("AllReduce", {"input": handle("six"), "reduce_op": sum_,
                           "options": types.OpOptions(expect=[types.TensorSpec(dtype=types.DTYPE_FP32, shape=[5])])}, "OUT_SHAPE"),
            ("Broadcast", {"input": handle("other"), "root": 0, "root_global": 0}, "BOTH_RANKS"),
            ("Broadcast", {"input": handle("other"), "root": 3}, "BAD_ROOT"),
            ("Broadcast", {"root": 1}, "ROOT_INPUT_MISSING"),
            ("Broadcast", {"input": handle("six"), "root": 1, "user_meta": bytes(16385)}, "META_LIMIT"),
            ("Broadcast", {"input": handle("other"), "root": 1,
                           "options": types.OpOptions(local_grad=True)}, "BAD_LOCAL_GRAD"),
            ("AllGather", {"input": handle("six"), "axis": 1}, "BAD_AXIS"),
            ("AllGather", {"input": handle("six"), "form": 99}, "BAD_FORM"),
            ("AllToAll", {"inputs": [handle("other")] * 3, "form": collectives.FORM_LIST}, "TRACED_LIST"),
            ("ReduceScatter", {"input": handle("scalar"), "reduce_op": sum_}, "SCALAR_INPUT"),
            ("ReduceScatter", {"input": handle("six@0:FP32[4]"), "reduce_op": sum_}, "INDIVISIBLE"),
            ("Permute", {"input": handle("six"), "src_dst": [0, 1, 1]}, "BAD_PERMUTATION"),
            ("AllToAll", {"input": handle("six"), "input_splits": [1, 1, 1], "output_splits": [1, 1, 1]}, "SPLITS_MISMATCH"),
        ):
            request = getattr(collectives, method + "Request", None) or getattr(parts, method + "Request")
            with self.subTest(reason):
                self.refused_on_one(
                    lambda agent: getattr(agent.ops, method)(request(**fields), timeout=LONG_S), None, reason
                )

    def test_a_handle_of_another_agent_is_refused_by_name(self):
        foreign = self.cluster.agents[2].put(np.zeros(4, np.float32))
        self.refused_on_one(
            lambda agent: agent.ops.AllReduce(
                collectives.AllReduceRequest(input=handle(foreign), reduce_op=types.REDUCE_OP_SUM)
            ),
            PRECONDITION, "FOREIGN_HANDLE",
        )

    def test_outputs_that_cannot_hold_the_result_are_refused(self):
        agent = self.cluster.agents[1]
        agent.put(np.zeros(4, np.float32), name="x")
        agent.put(np.zeros(5, np.float32), name="long")
        agent.put(np.zeros(4, np.float64), name="wide")

        def into(output):
            return lambda a: a.ops.AllReduce(
                collectives.AllReduceRequest(
                    input=handle("x"), output=output, reduce_op=types.REDUCE_OP_SUM
                )
            )

        self.refused_on_one(into("long"), INVALID, "OUT_SHAPE")
        self.refused_on_one(into("wide"), INVALID, "DTYPE_MISMATCH")

    def test_roots_and_peers_that_cannot_be_are_refused(self):
        array = np.zeros(2, np.int32)

        def broadcast(agent, **root):
            request = collectives.BroadcastRequest(
                input=inline(array), inline_result=True, payload=array.tobytes(), **root
            )
            return agent.ops.Broadcast(request, timeout=LONG_S)

        for root in ({"root": 3}, {"root": -1}, {"root_global": 9}):
            for failure in self.cluster.all(lambda agent: broadcast(agent, **root)):
                self.assert_failed(failure, INVALID, "BAD_ROOT")
        failures = self.cluster.all(lambda agent: broadcast(agent, root=agent.rank % 2))
        self.assert_failed(failures[0], PRECONDITION, "OP_MISMATCH", "root differs")
        agent = self.cluster.agents[0]
        for destination, reason in ((0, "SELF_PEER"), (3, "RANK_NOT_IN_GROUP"), (-1, "RANK_NOT_IN_GROUP")):
            request = collectives.SendRequest(
                input=inline(array), destination=destination, payload=array.tobytes()
            )
            failure = self.fails(lambda: agent.ops.Send(request, timeout=LONG_S))
            self.assert_failed(failure, INVALID, reason)
        self.assert_failed(
            self.fails(lambda: agent.ops.Recv(collectives.RecvRequest(source=-1))), INVALID, "RANK_NOT_IN_GROUP"
        )
        self.assert_works()

    def test_a_receive_of_something_else_fails_on_both_sides(self):
        array = np.zeros(3, np.float32)

        def call(agent):
            if agent.rank == 0:
                request = collectives.SendRequest(
                    input=inline(array), destination=1, payload=array.tobytes()
                )
                return agent.ops.Send(request, timeout=LONG_S)
            expect = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[4])
            return agent.ops.Recv(
                collectives.RecvRequest(source=0, expect=expect, inline_result=True), timeout=LONG_S
            )

        for failure in self.cluster.on([0, 1], call):
            self.assert_failed(
                failure, INVALID, "SHAPE_MISMATCH", "rank 0 sent FP32[3]", "rank 1 expects FP32[4]"
            )

    def test_a_late_rank_is_named_to_all_and_told_itself(self):
        def call(agent):
            if agent.rank != 1:
                return agent.ops.Barrier(collectives.BarrierRequest(), timeout=1)

        failures = self.cluster.on([0, 2], call)
        for failure in failures:
            self.assert_failed(failure, LATE, "TIMEOUT", "rank 1 has not called it")
        failure = self.fails(
            lambda: self.cluster.agents[1].ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)
        )
        self.assert_failed(failure, LATE, "TIMEOUT", "rank 1 has not called it")
        self.assert_works()

    def test_a_monitored_barrier_says_who_is_missing(self):
        request = collectives.BarrierRequest(
            monitored=True, options=types.OpOptions(timeout_ms=300)
        )
        failures = self.cluster.on([1], lambda agent: agent.ops.Barrier(request, timeout=LONG_S))
        self.assert_failed(failures[0], LATE, "MISSING_RANKS", "rank 0 has not", "rank 2 has not")
        for agent in (self.cluster.agents[0], self.cluster.agents[2]):
            self.fails(lambda: agent.ops.Barrier(request, timeout=LONG_S))
        self.assert_works()

    def test_a_stated_timeout_counts_without_a_deadline(self):
        request = collectives.BarrierRequest(options=types.OpOptions(timeout_ms=200))
        began = time.monotonic()
        failure = self.fails(lambda: self.cluster.agents[0].ops.Barrier(request))
        self.assert_failed(failure, LATE, "TIMEOUT")
        self.assertLess(time.monotonic() - began, LONG_S)
        for agent in self.cluster.agents[1:]:
            self.fails(lambda: agent.ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S))
        self.assert_works()

    def test_a_caller_that_goes_away_ends_the_op_for_all(self):
        waiting = [
            agent.ops.Barrier.future(collectives.BarrierRequest(), timeout=LONG_S)
            for agent in self.cluster.agents[:2]
        ]
        for agent in self.cluster.agents[:2]:
            while agent.stats().op_running_count == 0:
                time.sleep(0.005)
        waiting[0].cancel()
        with self.assertRaises(grpc.RpcError) as caught:
            waiting[1].result(LONG_S)
        self.assert_failed(
            support.Failure(caught.exception), CANCELLED, "CALLER_GONE", "the caller of rank 0 went away"
        )
        failure = self.fails(
            lambda: self.cluster.agents[2].ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)
        )
        self.assert_failed(failure, CANCELLED, "CALLER_GONE")
        self.assert_works()

    def test_a_receiver_without_memory_fails_the_broadcast_for_all(self):
        count = 20 << 20  # of 32 MiB; rank 2 has used half
        spec = types.TensorSpec(dtype=types.DTYPE_UINT8, shape=[count])
        self.cluster.agents[0].tensors.Create(
            tensors.CreateRequest(spec=spec, name="big"), timeout=LONG_S
        )
        half = types.TensorSpec(dtype=types.DTYPE_UINT8, shape=[16 << 20])
        self.cluster.agents[2].tensors.Create(tensors.CreateRequest(spec=half), timeout=LONG_S)

        def call(agent):
            request = collectives.BroadcastRequest(root=0)
            if agent.rank == 0:
                request.input.CopyFrom(handle("big"))
            return agent.ops.Broadcast(request, timeout=LONG_S)

        for failure in self.cluster.all(call):
            self.assert_failed(failure, EXHAUSTED, "MEMORY_LIMIT", "32 MiB")
        self.assert_works()

    def test_inline_tensors_have_a_limit_and_are_never_async(self):
        array = np.zeros(4, np.float32)
        asked = types.OpOptions(**{"async": True})
        for failure in self.cluster.all(lambda agent: all_reduce(agent, array, options=asked)):
            self.assert_failed(failure, INVALID, "ASYNC_INLINE")
        many = np.zeros(2 << 20, np.uint8)  # three of them do not fit into an answer
        request = collectives.AllGatherRequest(input=inline(many), payload=many.tobytes())
        for failure in self.cluster.all(lambda agent: agent.ops.AllGather(request, timeout=LONG_S)):
            self.assert_failed(failure, INVALID, "INLINE_LIMIT")
        self.assert_works()

    def test_a_failed_async_op_is_heard_from_wait_and_from_its_result(self):
        for agent in self.cluster.agents:
            agent.put(np.zeros(4 + agent.rank // 2, np.int32), name="x")
        request = collectives.AllReduceRequest(
            input=handle("x"), reduce_op=types.REDUCE_OP_SUM,
            options=types.OpOptions(**{"async": True}),
        )

        def call(agent):
            started = agent.ops.AllReduce(request, timeout=LONG_S)
            waited = agent.ops.Wait(
                collectives.WaitRequest(works=[started.info.work]), timeout=LONG_S
            ).works[0]
            return agent, started.output.handle, waited.error

        for agent, name, error in self.cluster.all(call):
            self.assertEqual((error.code, error.reason), (3, "SHAPE_MISMATCH"))
            self.assertIn("rank 2 called", error.text)
            self.assert_failed(self.fails(lambda: agent.get(name)), INVALID, "SHAPE_MISMATCH")
            info = agent.tensors.Stat(tensors.StatRequest(handle=name)).info
            self.assertEqual(info.error.reason, "SHAPE_MISMATCH")


class Deaths(unittest.TestCase):
    """Processes that are killed, stopped, and started again; a cluster for each test."""

    assert_failed = ClusterCase.assert_failed
    assert_works = ClusterCase.assert_works
    fails = ClusterCase.fails

    def cluster_of(self, size, **options):
        cluster = Cluster(size, **options)
        self.addCleanup(self.end, cluster)
        return cluster

    def end(self, cluster):
        for agent in cluster.agents:
            if agent.program.process.poll() is None:
                agent.program.send(signal.SIGCONT)
        cluster.stop()

    def kill(self, cluster, rank):
        cluster.agents[rank].program.kill()
        return time.monotonic()

    def run_and_kill(self, cluster, call, victim):
        """Everybody else calls; then the victim dies. Failures and seconds until each was heard."""
        others = [rank for rank in range(cluster.size) if rank != victim]
        heard = {}

        def work(agent):
            try:
                return call(agent)
            finally:
                heard[agent.rank] = time.monotonic()

        died = []

        def killer():
            for rank in others:
                while cluster.agents[rank].stats().op_running_count == 0:
                    time.sleep(0.005)
            died.append(self.kill(cluster, victim))

        thread = threading.Thread(target=killer)
        thread.start()
        results = cluster.on(others, work)
        thread.join()
        return results, [heard[rank] - died[0] for rank in others]

    def test_a_killed_agent_is_named_to_all_within_a_second(self):
        cluster = self.cluster_of(4)
        self.assert_works(cluster)
        failures, seconds = self.run_and_kill(
            cluster,
            lambda agent: all_reduce(agent, np.zeros(1000, np.float32)),
            victim=2,
        )
        for failure in failures:
            self.assert_failed(failure, GONE, "RANK_LOST", "rank 2 is gone")
            self.assertEqual(failure.metadata["rank"], "2")
        self.assertLess(max(seconds), 1.0)

    def test_survivors_keep_their_tensors_and_a_fresh_process_takes_the_seat(self):
        cluster = self.cluster_of(3)
        self.assert_works(cluster)
        kept = cluster.agents[0].put(np.arange(4, dtype=np.int64))
        stale = cluster.agents[1].put(np.zeros(4, np.int64))
        self.kill(cluster, 1)
        failure = cluster.on([0], lambda agent: all_reduce(agent, np.ones(1, np.int32)))[0]
        self.assert_failed(failure, GONE, "RANK_LOST", "rank 1 is gone")
        cluster.replace(1)
        self.assertEqual(list(cluster.agents[0].get(kept)), [0, 1, 2, 3])
        self.assert_failed(
            self.fails(lambda: cluster.agents[1].get(stale)), PRECONDITION, "STALE_HANDLE"
        )
        self.wait_until_it_works(cluster)
        job = cluster.members.GetJob(coordinator.GetJobRequest(), timeout=LONG_S).job
        self.assertEqual((job.alive_count, job.lost_count), (3, 0))
        self.assertGreaterEqual(job.epoch, 3)

    def wait_until_it_works(self, cluster):
        """News of a return travels; until then calls fail at once, by name."""
        until = time.monotonic() + LONG_S
        while True:
            results = cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), timeout=2))
            if not any(isinstance(one, support.Failure) for one in results):
                break
            self.assertLess(time.monotonic(), until, results)
        self.assert_works(cluster)

    def test_a_group_without_the_dead_goes_on(self):
        cluster = self.cluster_of(3)
        cluster.group("pair", [0, 2])
        self.kill(cluster, 1)
        for result in cluster.on(
            [0, 2], lambda agent: all_reduce(agent, np.ones(2, np.int32), group="pair")
        ):
            self.assertEqual(list(result), [2, 2])
        until = time.monotonic() + LONG_S
        while True:
            job = cluster.members.GetJob(coordinator.GetJobRequest(), timeout=LONG_S).job
            if job.lost_count == 1:
                break
            self.assertLess(time.monotonic(), until)
        with self.assertRaises(grpc.RpcError) as caught:
            cluster.group("all", [0, 1, 2])
        self.assert_failed(support.Failure(caught.exception), GONE, "RANK_LOST", "rank 1")

    def test_a_stopped_process_is_lost_by_its_silence(self):
        cluster = self.cluster_of(
            3, coordinator_options=("--heartbeat-interval", "200ms", "--heartbeat-timeout", "1s")
        )
        self.assert_works(cluster)
        cluster.agents[2].program.send(signal.SIGSTOP)
        began = time.monotonic()
        failures = cluster.on([0, 1], lambda agent: all_reduce(agent, np.zeros(4, np.int32)))
        for failure in failures:
            self.assert_failed(failure, GONE, "RANK_LOST", "rank 2 is gone", "no heartbeat")
        self.assertLess(time.monotonic() - began, 10)

    def test_a_kill_in_the_middle_of_moving_data_ends_the_op_and_frees_its_memory(self):
        cluster = self.cluster_of(3)
        count = 16 << 20
        for agent in cluster.agents:
            spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[count])
            agent.tensors.Create(tensors.CreateRequest(spec=spec, name="x"), timeout=LONG_S)
        request = collectives.AllReduceRequest(
            input=handle("x"), output="x", reduce_op=types.REDUCE_OP_SUM
        )
        stop = threading.Event()

        def call(agent):
            while not stop.is_set():
                agent.ops.AllReduce(request, timeout=LONG_S)

        def killer():
            time.sleep(0.3)  # somewhere inside; where exactly does not matter
            self.kill(cluster, 1)

        thread = threading.Thread(target=killer)
        thread.start()
        failures = cluster.on([0, 1, 2], call)
        stop.set()
        thread.join()
        for failure in (failures[0], failures[2]):
            self.assert_failed(failure, GONE, "RANK_LOST", "rank 1 is gone")
        for rank in (0, 2):
            agent = cluster.agents[rank]
            until = time.monotonic() + LONG_S
            while agent.stats().op_running_count > 0:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            agent.delete("x")
            self.assertEqual(agent.stats().memory_used_bytes, 0)

    def test_an_agent_that_leaves_is_named_and_exits_well(self):
        cluster = self.cluster_of(2)
        self.assert_works(cluster)
        waiting = cluster.agents[0].ops.Barrier.future(collectives.BarrierRequest(), timeout=LONG_S)
        while cluster.agents[0].stats().op_running_count == 0:
            time.sleep(0.005)
        self.assertEqual(cluster.agents[1].program.stop(), 0)
        with self.assertRaises(grpc.RpcError) as caught:
            waiting.result(LONG_S)
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.metadata.get("rank")), (GONE, "1"), failure)

    def test_stopping_ends_what_waits(self):
        cluster = self.cluster_of(2)
        agent = cluster.agents[0]
        name = agent.put(np.zeros(4, np.int32))
        started = agent.ops.AllReduce(
            collectives.AllReduceRequest(
                input=handle(name), reduce_op=types.REDUCE_OP_SUM,
                options=types.OpOptions(**{"async": True}),
            )
        )
        barrier = agent.ops.Barrier.future(collectives.BarrierRequest(), timeout=LONG_S)
        wait = agent.ops.Wait.future(
            collectives.WaitRequest(works=[started.info.work]), timeout=LONG_S
        )
        get = agent.tensors.Get.future(
            tensors.GetRequest(handle=started.output.handle), timeout=LONG_S
        )
        while agent.stats().call_running_count == 0 or agent.stats().op_running_count < 2:
            time.sleep(0.005)
        began = time.monotonic()
        self.assertEqual(agent.program.stop(), 0)
        self.assertLess(time.monotonic() - began, 5)
        for call in (barrier, get):
            with self.assertRaises(grpc.RpcError) as caught:
                call.result(LONG_S)
            self.assertEqual(caught.exception.code(), GONE)
        try:  # one that comes behind the op's end is answered with it
            self.assertEqual(wait.result(LONG_S).works[0].error.code, GONE.value[0])
        except grpc.RpcError as error:
            self.assertEqual(error.code(), GONE)

    def test_the_coordinator_may_go_away_and_come_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = "unix:" + os.path.join(folder, "c.sock")
            first = support.Program("tutti-coordinator", listen=path)
            cluster = Cluster.__new__(Cluster)
            cluster.size, cluster.agent_options, cluster.coordinator = 2, (), first
            cluster.coordinator_channel = first.channel()
            cluster.agents = [Agent(cluster, rank) for rank in range(2)]
            try:
                for agent in cluster.agents:
                    agent.wait_joined()
                self.assert_works(cluster)
                first.kill()
                for agent in cluster.agents:
                    agent.program.wait_for_log("lost the coordinator")
                self.assert_works(cluster)  # nobody needs it to compute
                cluster.coordinator = support.Program("tutti-coordinator", listen=path)
                for agent in cluster.agents:
                    agent.program.wait_for_log("joining again")
                    agent.wait_joined()
                self.wait_until_it_works(cluster)
            finally:
                self.end(cluster)

    def test_a_rank_that_was_lost_to_the_coordinator_before_is_there(self):
        """A job that begins anew has no news of who is in it: those are of changes."""
        cluster = self.cluster_of(2)
        self.assert_works(cluster)
        cluster.agents[1].program.kill()
        failure = cluster.on([0], lambda agent: all_reduce(agent, np.ones(1, np.int32)))[0]
        self.assert_failed(failure, GONE, "RANK_LOST", "rank 1 is gone")
        cluster.agents[0].program.wait_for_log("rank 1 is lost")
        cluster.coordinator.kill()
        cluster.coordinator = support.Program("tutti-coordinator", listen=cluster.coordinator.address)
        cluster.replace(1)
        cluster.agents[0].program.wait_for_log("begun anew")
        self.wait_until_it_works(cluster)


class Starts(unittest.TestCase):
    """Agents that find no coordinator, no port, no seat."""

    def fails_to_start(self, *words, code=1):
        status, _, text = support.run("tutti-agent", *words)
        self.assertEqual(status, code, text)
        last = text.strip().rsplit("\n", 1)[-1]
        self.assertTrue(last.startswith("tutti-agent: "), text)
        return last

    def test_an_agent_waits_for_a_coordinator_that_is_late(self):
        with tempfile.TemporaryDirectory() as folder:
            address = "unix:" + os.path.join(folder, "c.sock")
            agent = support.Program("tutti-agent", "--coordinator", address)
            try:
                agent.wait_for_log("waiting for the coordinator at " + address)
                agent.wait_for_log("or say where it is (--coordinator) (tried for ever; --join-timeout says how long)")
                with support.Program("tutti-coordinator", listen=address):
                    agent.wait_for_log("joined job default as rank 0 of 1")
                    self.assertEqual(agent.stop(), 0)
            finally:
                agent.kill()

    def test_an_agent_says_who_is_missing_and_may_give_up(self):
        with support.Program("tutti-coordinator") as coordinator_:
            words = ("--coordinator", coordinator_.address, "--world-size", "3", "--rank", "1")
            agent = support.Program("tutti-agent", *words)
            try:
                agent.wait_for_log("1 of 3 ranks are here, missing: rank 0, 2")
                self.assertEqual(agent.stop(), 0)
            finally:
                agent.kill()
        text = self.fails_to_start(
            "--coordinator", "unix:/nonexistent/c.sock", "--join-timeout", "300ms"
        )
        self.assertIn("not joined within 0.3 s", text)
        self.assertIn("/nonexistent/c.sock", text)

    def test_a_seat_that_is_taken_or_out_of_range_is_refused(self):
        with support.Program("tutti-coordinator") as coordinator_:
            words = ("--coordinator", coordinator_.address, "--world-size", "2")
            first = support.Program("tutti-agent", *words, "--rank", "0")
            try:
                first.wait_for_log("1 of 2 ranks")
                text = self.fails_to_start(*words, "--rank", "0")
                self.assertIn("rank 0 of job default is taken", text)
                self.assertIn("pid %d" % first.process.pid, text)
                self.assertIn("rank 2", self.fails_to_start(*words, "--rank", "2"))
                text = self.fails_to_start("--coordinator", coordinator_.address, "--world-size", "3")
                self.assertIn("3", text)
            finally:
                first.kill()

    def test_a_port_in_use_names_its_holder(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            address = "127.0.0.1:%d" % holder.getsockname()[1]
            text = self.fails_to_start("--listen", address)
            self.assertIn(address, text)
            self.assertIn("pid %d" % os.getpid(), text)

    def test_plaintext_for_strangers_needs_to_be_asked_for(self):
        text = self.fails_to_start("--listen", "0.0.0.0:0")
        self.assertIn("--insecure", text)

    def test_bad_options_are_refused_with_exit_code_2(self):
        self.assertIn("--wrold-size", self.fails_to_start("--wrold-size", "2", code=2))
        self.assertIn("need 1 to 65536", self.fails_to_start("--world-size", "0", code=2))
        self.assertIn("64KiB", self.fails_to_start("--memory-limit", "lots", code=2))
        self.assertIn("cuda:0", self.fails_to_start("--device", "cuda:0"))

    def test_launchers_environments_are_understood(self):
        with support.Program("tutti-coordinator") as coordinator_:
            host, port = coordinator_.address.split(":")
            environment = {
                "MASTER_ADDR": host, "MASTER_PORT": port, "WORLD_SIZE": "1", "RANK": "0",
            }
            agent = support.Program("tutti-agent", environment=environment)
            try:
                agent.wait_for_log("joined job default as rank 0 of 1")
                self.assertEqual(agent.stop(), 0)
            finally:
                agent.kill()

    def test_help_version_and_config_are_there(self):
        for program in ("tutti-agent", "tutti-coordinator"):
            status, text, _ = support.run(program, "--help")
            self.assertEqual(status, 0)
            self.assertIn("--listen", text)
            status, text, _ = support.run(program, "--version")
            self.assertRegex(text, r"^%s \d+\.\d+\.\d+" % program)
            status, text, _ = support.run(program, "--listen", "[::1]:0", "--print-config")
            self.assertIn("# flag:\nlisten = [::1]:0\n", text)


if __name__ == "__main__":
    support.main()
