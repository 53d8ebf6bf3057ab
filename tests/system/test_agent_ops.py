"""Goal: every op, called through gRPC, gives every rank the right result, for 1, 2, 4 and 8 agents.

Method: real clusters; inline and by handle, sync and async; what numpy computes is the reference.
The first argument is the number of agents.
"""

import sys
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import (
    DTYPES, LONG_S, ClusterCase, all_reduce, array_of, collectives, coordinator, diagnostics,
    handle, inline, spec_of, tensors, types,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
MISSING = grpc.StatusCode.NOT_FOUND
LATE = grpc.StatusCode.DEADLINE_EXCEEDED

SIZE = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 2


class Ops(ClusterCase):
    size = SIZE
    options = ("--memory-limit", "256MiB", "--works-max", "64")

    def reduce(self, agent, name, output="", op=types.REDUCE_OP_SUM, **options):
        request = collectives.AllReduceRequest(
            input=handle(name), output=output, reduce_op=op,
            options=types.OpOptions(**options),
        )
        return agent.ops.AllReduce(request, timeout=LONG_S)

    def wait(self, agent, *works):
        return agent.ops.Wait(collectives.WaitRequest(works=works), timeout=LONG_S).works

    # ------------------------------------------------------------------ all_reduce

    def test_all_reduce_knows_what_the_agent_says_it_knows(self):
        said = self.cluster.agents[0].diagnostics.GetCapabilities(
            diagnostics.GetCapabilitiesRequest()
        ).capabilities
        self.assertEqual(len(said), 17)
        numpy_ops = {
            types.REDUCE_OP_SUM: np.add, types.REDUCE_OP_PROD: np.multiply,
            types.REDUCE_OP_MIN: np.fmin, types.REDUCE_OP_MAX: np.fmax,
            types.REDUCE_OP_BAND: np.bitwise_and, types.REDUCE_OP_BOR: np.bitwise_or,
            types.REDUCE_OP_BXOR: np.bitwise_xor,
        }
        tried = 0
        for dtype, number in DTYPES.items():
            ops = next(one.reduce_ops for one in said if one.dtype == number)
            for op in ops:
                if op in numpy_ops and dtype != np.bool_:
                    self.check_reduction(dtype, op, numpy_ops[op])
                    tried += 1
        self.assertGreater(tried, 60)

    def check_reduction(self, dtype, op, function):
        arrays = [(np.arange(7) % 3 + rank % 2 + 1).astype(dtype) for rank in range(self.size)]
        with np.errstate(over="ignore"):
            wanted = arrays[0]
            for array in arrays[1:]:
                wanted = function(wanted, array).astype(dtype)
        for result in self.cluster.all(lambda agent: all_reduce(agent, arrays[agent.rank], op)):
            np.testing.assert_array_equal(result, wanted)

    def test_all_reduce_of_booleans_is_logic(self):
        arrays = [np.array([rank > 0, True, False]) for rank in range(self.size)]
        some, every = self.size > 1, self.size == 1
        wanted = {
            types.REDUCE_OP_SUM: [some, True, False],
            types.REDUCE_OP_PROD: [False, True, False],
            types.REDUCE_OP_BXOR: [(self.size - 1) % 2 == 1, self.size % 2 == 1, False],
        }
        del every
        for op, values in wanted.items():
            for result in self.cluster.all(lambda agent: all_reduce(agent, arrays[agent.rank], op)):
                self.assertEqual(list(result), values)

    def test_all_reduce_average_and_scaled_sum(self):
        n = self.size
        result = self.cluster.all(
            lambda agent: all_reduce(
                agent, np.array([agent.rank, -7 * agent.rank], np.int32), types.REDUCE_OP_AVG
            )
        )[0]
        total = n * (n - 1) // 2
        self.assertEqual(list(result), [total // n, -(7 * total // n)])
        result = self.cluster.all(
            lambda agent: all_reduce(
                agent, np.full(2, 3, np.float32), types.REDUCE_OP_PREMUL_SUM,
                factor=0.5 * (agent.rank + 1),
            )
        )[0]
        self.assertEqual(list(result), [1.5 * n * (n + 1) / 2] * 2)

    def test_all_reduce_of_resident_tensors_makes_a_new_one_or_works_in_place(self):
        big = 300_000  # the large algorithm
        for agent in self.cluster.agents:
            agent.put(np.full(big, agent.rank + 1, np.float32), name="x")
        wanted = self.size * (self.size + 1) / 2
        made = self.cluster.all(lambda agent: self.reduce(agent, "x").output)
        for agent, output in zip(self.cluster.agents, made):
            self.assertEqual(list(output.spec.shape), [big])
            self.assertTrue((agent.get(output.handle) == wanted).all())
            self.assertTrue((agent.get("x") == agent.rank + 1).all())  # the input stays
        again = self.cluster.all(lambda agent: self.reduce(agent, "x", "x").output)
        for agent, output in zip(self.cluster.agents, again):
            self.assertTrue((agent.get("x") == wanted).all())
            self.assertEqual(agent.get(output.handle)[0], wanted)

    def test_results_have_the_same_bits_on_every_rank(self):
        generator = np.random.default_rng(3)
        for dtype in (np.float16, np.float32, np.float64):
            for count in (33, 70_001):
                arrays = [generator.standard_normal(count).astype(dtype) for _ in range(self.size)]
                for agent in self.cluster.agents:
                    agent.put(arrays[agent.rank], name="noise")
                outputs = self.cluster.all(lambda agent: self.reduce(agent, "noise").output.handle)
                bits = {agent.get(name).tobytes() for agent, name in zip(self.cluster.agents, outputs)}
                self.assertEqual(len(bits), 1)
                for agent in self.cluster.agents:
                    agent.delete("noise")

    # ------------------------------------------------------------------ the other ops

    def test_broadcast_tells_receivers_shape_and_dtype(self):
        for root in range(self.size):
            array = np.arange(6, dtype=np.int16).reshape(2, 3) + root

            def call(agent):
                request = collectives.BroadcastRequest(root=root, inline_result=True)
                if agent.rank == root:
                    request.input.CopyFrom(inline(array))
                    request.payload = array.tobytes()
                response = agent.ops.Broadcast(request, timeout=LONG_S)
                return array_of(response.output, response.payload)

            for result in self.cluster.all(call):
                np.testing.assert_array_equal(result, array)

    def test_broadcast_by_handle_into_new_and_given_tensors(self):
        count = 700_000  # the chain
        root = self.size - 1
        self.cluster.agents[root].put(np.arange(count, dtype=np.float32), name="source")

        def call(agent):
            request = collectives.BroadcastRequest(root_global=root)
            if agent.rank == root:
                request.input.CopyFrom(handle("source"))
            elif agent.rank % 2 == 1:
                request.output = agent.put(np.zeros((count // 2, 2), np.float32))
            return agent.ops.Broadcast(request, timeout=LONG_S).output

        for agent, output in zip(self.cluster.agents, self.cluster.all(call)):
            np.testing.assert_array_equal(
                agent.get(output.handle).ravel(), np.arange(count, dtype=np.float32)
            )

    def test_all_gather_joins_along_any_axis(self):
        def call(agent, axis, stack):
            array = np.arange(6, dtype=np.int64).reshape(2, 3) + 10 * agent.rank
            request = collectives.AllGatherRequest(
                input=inline(array), axis=axis, form=collectives.FORM_STACK if stack else collectives.FORM_CONCAT, payload=array.tobytes()
            )
            response = agent.ops.AllGather(request, timeout=LONG_S)
            return array_of(response.output, response.payload)

        arrays = [np.arange(6, dtype=np.int64).reshape(2, 3) + 10 * r for r in range(self.size)]
        for axis in (0, 1, -1, -2):
            for result in self.cluster.all(lambda agent: call(agent, axis, False)):
                np.testing.assert_array_equal(result, np.concatenate(arrays, axis))
        for axis in (0, 1, 2, -1, -3):
            for result in self.cluster.all(lambda agent: call(agent, axis, True)):
                np.testing.assert_array_equal(result, np.stack(arrays, axis))

    def test_all_gather_of_scalars_makes_a_vector(self):
        def call(agent):
            scalar = np.float64(agent.rank).reshape(())
            request = collectives.AllGatherRequest(input=inline(scalar), payload=scalar.tobytes())
            response = agent.ops.AllGather(request, timeout=LONG_S)
            return array_of(response.output, response.payload)

        for result in self.cluster.all(call):
            self.assertEqual(list(result), list(range(self.size)))

    def test_barrier_holds_until_the_last_one_comes(self):
        if self.size == 1:
            self.skipTest("one rank waits for nobody")
        last = self.size - 1
        calls = [
            agent.ops.Barrier.future(collectives.BarrierRequest(), timeout=LONG_S)
            for agent in self.cluster.agents[:last]
        ]
        for agent in self.cluster.agents[:last]:
            while agent.stats().op_running_count == 0:
                time.sleep(0.005)
        self.assertFalse(any(call.done() for call in calls))
        self.cluster.agents[last].ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)
        for call in calls:
            call.result(LONG_S)

    def test_send_and_recv_go_round_the_ring(self):
        if self.size == 1:
            self.skipTest("one rank has nobody to send to")

        def call(agent):
            right, left = (agent.rank + 1) % self.size, (agent.rank - 1) % self.size
            name = agent.put(np.full(5, agent.rank, np.int32))
            sent = agent.ops.Send(
                collectives.SendRequest(
                    input=handle(name), destination=right, tag=3,
                    options=types.OpOptions(**{"async": True}),
                )
            ).info.work
            got = agent.ops.Recv(
                collectives.RecvRequest(source=left, tag=3, inline_result=True), timeout=LONG_S
            )
            status = self.wait(agent, sent)[0]
            self.assertTrue(status.done and not status.HasField("error"))
            return got.source_global, list(array_of(got.output, got.payload))

        for rank, (source, data) in enumerate(self.cluster.all(call)):
            left = (rank - 1) % self.size
            self.assertEqual((source, data), (left, [left] * 5))

    def test_recv_from_anybody_says_who(self):
        if self.size == 1:
            self.skipTest("one rank has nobody to receive from")
        array = np.arange(3, dtype=np.float32)

        def call(agent):
            if agent.rank > 0:
                request = collectives.SendRequest(
                    input=inline(array), destination_global=0, payload=array.tobytes()
                )
                agent.ops.Send(request, timeout=LONG_S)
                return None
            seen = set()
            for _ in range(self.size - 1):
                got = agent.ops.Recv(collectives.RecvRequest(inline_result=True), timeout=LONG_S)
                self.assertEqual(list(array_of(got.output, got.payload)), [0, 1, 2])
                seen.add(got.source)
            return seen

        self.assertEqual(self.cluster.all(call)[0], set(range(1, self.size)))

    # ------------------------------------------------------------------ async, order, groups

    def test_async_results_may_be_used_at_once(self):
        def call(agent):
            name = agent.put(np.ones(1000, np.float64))
            works = []
            for _ in range(4):
                response = self.reduce(agent, name, **{"async": True})
                works.append(response.info.work)
                name = response.output.handle
            value = agent.get(name)[0]  # waits by itself
            statuses = self.wait(agent, *works)
            self.assertTrue(all(one.done and not one.HasField("error") for one in statuses))
            self.assertEqual([one.work for one in statuses], works)
            again = self.wait(agent, works[0])[0]
            tested = agent.ops.Test(collectives.TestRequest(works=works)).works
            self.assertTrue(again.done and all(one.done for one in tested))
            return value

        self.assertEqual(self.cluster.all(call), [float(self.size**4)] * self.size)

    def test_a_retry_does_not_meet_the_next_step_of_others(self):
        if self.size == 1:
            self.skipTest("one rank cannot differ from itself")

        def call(agent, step):
            options = types.OpOptions(step=step, timeout_ms=LONG_S * 1000)
            return list(all_reduce(agent, np.ones(2, np.int32), options=options))

        self.assertEqual(self.cluster.all(lambda agent: call(agent, 5)), [[self.size] * 2] * self.size)
        # rank 0 has lost the answer, and calls step 5 again
        for failure in self.cluster.all(lambda agent: call(agent, 5 if agent.rank == 0 else 6)):
            self.assert_failed(failure, PRECONDITION, "OP_MISMATCH", "step differs", "at step 5", "at step 6")
        self.assertEqual(self.cluster.all(lambda agent: call(agent, 6)), [[self.size] * 2] * self.size)

    def test_a_tensor_left_by_a_failed_op_is_whole_again_when_another_op_has_written_it(self):
        if self.size == 1:
            self.skipTest("one rank cannot differ from itself")

        def call(agent):
            name = agent.put(np.full(4, 2, np.int32))
            odd = types.REDUCE_OP_MAX if agent.rank == 0 else types.REDUCE_OP_SUM
            left = self.reduce(agent, name, op=odd, **{"async": True}).output.handle
            with self.assertRaises(grpc.RpcError) as caught:
                agent.get(left)
            self.assertEqual(support.Failure(caught.exception).reason, "OP_MISMATCH")
            self.reduce(agent, name, output=left)
            info = agent.tensors.Stat(tensors.StatRequest(handle=left)).info
            self.assertEqual((info.error.code, list(agent.get(left))), (0, [2 * self.size] * 4))
            return True

        self.assertEqual(self.cluster.all(call), [True] * self.size)

    def test_wait_gives_up_and_leaves_the_work_running(self):
        if self.size == 1:
            self.skipTest("one rank waits for nobody")
        first = self.cluster.agents[0]
        name = first.put(np.ones(2, np.float32))
        work = self.reduce(first, name, **{"async": True}).info.work
        request = collectives.WaitRequest(works=[work], timeout_ms=50)
        failure = self.fails(lambda: first.ops.Wait(request, timeout=LONG_S))
        self.assert_failed(failure, LATE, "TIMEOUT", work)
        self.assertFalse(first.ops.Test(collectives.TestRequest(works=[work])).works[0].done)
        others = range(1, self.size)
        self.cluster.on(others, lambda agent: all_reduce(agent, np.ones(2, np.float32)))
        self.assertTrue(self.wait(first, work)[0].done)

    def test_works_that_never_were_are_unknown(self):
        agent = self.cluster.agents[0]
        for work, code, reason in (
            ("work:0.%016x.99999" % agent.describe().incarnation, MISSING, "NO_WORK"),
            ("work:0.0123456789abcdef.1", PRECONDITION, "STALE_HANDLE"),
            ("nonsense", INVALID, "BAD_HANDLE"),
        ):
            failure = self.fails(lambda: self.wait(agent, work))
            self.assert_failed(failure, code, reason)
        failure = self.fails(lambda: self.wait(agent))
        self.assertEqual(failure.code, INVALID)

    def test_finished_works_are_forgotten_in_the_end(self):
        def call(agent):
            name = agent.put(np.zeros(1, np.int8))
            works = [self.reduce(agent, name, name, **{"async": True}).info.work for _ in range(80)]
            self.wait(agent, works[-1])
            return agent, works

        for agent, works in self.cluster.all(call):
            self.assertLessEqual(agent.stats().work_count, 64)
            self.assert_failed(self.fails(lambda: self.wait(agent, works[0])), MISSING, "NO_WORK")

    def test_ops_of_a_group_count_alike_and_may_be_numbered(self):
        def call(agent):
            got = agent.ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S).info.sequence
            options = types.OpOptions(sequence=got + 2)
            failure = self.fails(
                lambda: agent.ops.Barrier(collectives.BarrierRequest(options=options))
            )
            self.assert_failed(failure, PRECONDITION, "OUT_OF_SEQUENCE", str(got + 1))
            options = types.OpOptions(sequence=got + 1)
            request = collectives.BarrierRequest(options=options)
            return got, agent.ops.Barrier(request, timeout=LONG_S).info.sequence

        results = self.cluster.all(call)
        self.assertEqual(len(set(results)), 1)
        self.assertEqual(results[0][1], results[0][0] + 1)

    def test_groups_of_some_ranks_work_beside_each_other(self):
        if self.size < 4:
            self.skipTest("needs four ranks")
        self.cluster.group("even", [2, 0])
        self.cluster.group("odd", [1, 3])

        def call(agent):
            total = 0
            for _ in range(20):
                group = ("even", "odd")[agent.rank % 2] if agent.rank < 4 else None
                if group:
                    array = np.array([agent.rank], np.int32)
                    total += all_reduce(agent, array, group=group)[0]
            return total

        self.assertEqual(self.cluster.all(call)[:4], [40, 80, 40, 80])
        gathered = self.cluster.on(
            [0, 2],
            lambda agent: agent.ops.AllGather(
                collectives.AllGatherRequest(
                    group="even", input=inline(np.array([agent.rank], np.int32)),
                    payload=np.array([agent.rank], np.int32).tobytes(),
                ),
                timeout=LONG_S,
            ),
        )
        for response in gathered:  # in the order of the group's list
            self.assertEqual(list(array_of(response.output, response.payload)), [2, 0])
        failure = self.fails(
            lambda: all_reduce(self.cluster.agents[1], np.ones(1, np.int32), group="even")
        )
        self.assert_failed(failure, PRECONDITION, "NOT_IN_GROUP")
        failure = self.fails(
            lambda: all_reduce(self.cluster.agents[1], np.ones(1, np.int32), group="nobody")
        )
        self.assert_failed(failure, MISSING, "NO_GROUP")
        member = types.Member(rank=0, incarnation=self.cluster.agents[0].describe().incarnation)
        self.cluster.members.DeleteGroup(
            coordinator.DeleteGroupRequest(member=member, name="even"), timeout=LONG_S
        )
        until = time.monotonic() + LONG_S
        while True:  # the news travels
            failure = self.cluster.on(
                [0], lambda agent: all_reduce(agent, np.ones(1, np.int32), group="even", timeout=1)
            )[0]
            if failure.reason == "NO_GROUP":
                break
            self.assertLess(time.monotonic(), until)


if __name__ == "__main__":
    support.main()
