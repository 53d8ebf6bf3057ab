"""Goal: ops that reduce to a root, cut tensors into parts and join parts give every rank its result.

Method: real clusters; inline and by handle, sync and async, every form; numpy is the reference. The
first argument is the number of agents.
"""

import sys

import grpc
import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, array_of, collectives, handle, inline, tensors, types

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
SUM = types.REDUCE_OP_SUM
CONCAT, STACK, FLAT = collectives.FORM_CONCAT, collectives.FORM_STACK, collectives.FORM_FLAT

SIZE = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 2


class Parts(ClusterCase):
    size = SIZE
    options = ("--memory-limit", "256MiB")

    def arrays(self, *shape, dtype=np.int64):
        count = int(np.prod(shape))
        return [
            (np.arange(count) * 3 + 1000 * rank).astype(dtype).reshape(shape)
            for rank in range(self.size)
        ]

    def method(self, agent, name, request):
        return getattr(agent.ops, name)(request, timeout=LONG_S)

    def three_ways(self, name, arrays, gives=None, **fields):
        """Results of all ranks (None = no result): inline, by handle, and async, which must agree."""
        make = getattr(collectives, name + "Request")
        giver = (lambda rank: True) if gives is None else (lambda rank: rank == gives)

        def call_inline(agent):
            request = make(**fields)
            if giver(agent.rank):
                array = arrays[agent.rank]
                request.input.CopyFrom(inline(array))
                request.payload = array.tobytes()
            elif "inline_result" in request.DESCRIPTOR.fields_by_name:
                request.inline_result = True
            response = self.method(agent, name, request)
            if not response.HasField("output"):
                return None
            return array_of(response.output, response.payload)

        def call_by_handle(agent, asynchronous):
            request = make(options=types.OpOptions(**{"async": asynchronous}), **fields)
            if giver(agent.rank):
                request.input.CopyFrom(handle(agent.put(arrays[agent.rank])))
            response = self.method(agent, name, request)
            output = response.output.handle
            if asynchronous:
                wait = collectives.WaitRequest(works=[response.info.work])
                status = agent.ops.Wait(wait, timeout=LONG_S).works[0]
                self.assertEqual(status.error.code, 0, status)
                output = status.output.handle
            return agent.get(output) if output else None

        ways = [
            self.cluster.all(call_inline),
            self.cluster.all(lambda agent: call_by_handle(agent, False)),
            self.cluster.all(lambda agent: call_by_handle(agent, True)),
        ]
        for way in ways:
            for rank in range(self.size):
                self.assertNotIsInstance(way[rank], support.Failure, way[rank])
                if ways[0][rank] is None:
                    self.assertIsNone(way[rank])
                else:
                    np.testing.assert_array_equal(way[rank], ways[0][rank])
        return ways[0]

    def assert_only(self, results, root, wanted):
        for rank, result in enumerate(results):
            if rank == root:
                np.testing.assert_array_equal(result, wanted)
            else:
                self.assertIsNone(result)

    # ------------------------------------------------------------------ reduce

    def test_reduce_gives_the_root_alone_the_result(self):
        arrays = self.arrays(3, 2)
        for root in range(self.size):
            results = self.three_ways("Reduce", arrays, reduce_op=SUM, root=root)
            self.assert_only(results, root, sum(arrays))

    def test_reduce_leaves_the_outputs_of_others_as_they_are(self):
        arrays = self.arrays(5)
        root = self.size - 1
        for agent in self.cluster.agents:
            agent.put(arrays[agent.rank], name="x")
        request = collectives.ReduceRequest(input=handle("x"), output="x", reduce_op=SUM, root=root)
        self.cluster.all(lambda agent: self.method(agent, "Reduce", request))
        for agent in self.cluster.agents:
            wanted = sum(arrays) if agent.rank == root else arrays[agent.rank]
            np.testing.assert_array_equal(agent.get("x"), wanted)

    def test_reduce_scatter_gives_each_its_part(self):
        arrays = self.arrays(2 * self.size, 3 * self.size)
        for axis in (0, 1, -1):
            results = self.three_ways("ReduceScatter", arrays, reduce_op=SUM, axis=axis)
            for rank, part in enumerate(np.split(sum(arrays), self.size, axis)):
                np.testing.assert_array_equal(results[rank], part)
        arrays = self.arrays(self.size, 4)
        results = self.three_ways("ReduceScatter", arrays, reduce_op=SUM, form=STACK)
        for rank in range(self.size):
            np.testing.assert_array_equal(results[rank], sum(arrays)[rank])
        results = self.three_ways(
            "ReduceScatter", arrays, reduce_op=SUM, form=FLAT, out_shape=[2, 2]
        )
        for rank in range(self.size):
            np.testing.assert_array_equal(results[rank], sum(arrays)[rank].reshape(2, 2))

    # ------------------------------------------------------------------ gather, scatter

    def test_gather_joins_at_the_root_in_any_form(self):
        arrays = self.arrays(2, 3)
        root = self.size // 2
        for axis in (0, 1, -1):
            results = self.three_ways("Gather", arrays, root=root, axis=axis)
            self.assert_only(results, root, np.concatenate(arrays, axis))
        results = self.three_ways("Gather", arrays, root_global=root, axis=-1, form=STACK)
        self.assert_only(results, root, np.stack(arrays, -1))
        results = self.three_ways("Gather", arrays, root=root, form=FLAT, out_shape=[3, 2 * self.size])
        self.assert_only(results, root, np.concatenate(arrays).reshape(3, 2 * self.size))

    def test_scatter_tells_receivers_shape_and_dtype(self):
        root = self.size - 1
        for dtype in (np.int64, np.float16, np.complex128, np.bool_):
            arrays = self.arrays(2, 3 * self.size, dtype=dtype)
            results = self.three_ways("Scatter", arrays, gives=root, root=root, axis=-1)
            for rank, part in enumerate(np.split(arrays[root], self.size, 1)):
                self.assertEqual(results[rank].dtype, dtype)
                np.testing.assert_array_equal(results[rank], part)
        arrays = self.arrays(self.size, 2, 2)
        results = self.three_ways("Scatter", arrays, gives=root, root=root, form=STACK)
        for rank in range(self.size):
            np.testing.assert_array_equal(results[rank], arrays[root][rank])

    def test_scatter_into_given_tensors_checks_each(self):
        arrays = self.arrays(2 * self.size)
        for agent in self.cluster.agents:
            agent.put(np.zeros(2, np.int64), name="part")
            agent.put(np.zeros(3, np.int64), name="long")

        def call(agent, output):
            request = collectives.ScatterRequest(output=output)
            if agent.rank == 0:
                request.input.CopyFrom(handle(agent.put(arrays[0])))
            return self.method(agent, "Scatter", request)

        self.cluster.all(lambda agent: call(agent, "part"))
        for agent in self.cluster.agents:
            np.testing.assert_array_equal(agent.get("part"), arrays[0][2 * agent.rank :][:2])
        last = self.size - 1
        for failure in self.cluster.all(lambda a: call(a, "long" if a.rank == last else "part")):
            self.assert_failed(failure, INVALID, "OUT_SHAPE", "3 elements")
        self.assert_works()

    # ------------------------------------------------------------------ all_to_all, permute

    def test_all_to_all_cuts_and_joins(self):
        arrays = self.arrays(2 * self.size, self.size, 3)
        for split in (0, 1):
            for join in (0, 1, 2, -1):
                results = self.three_ways("AllToAll", arrays, split_axis=split, concat_axis=join)
                parts = [np.split(array, self.size, split) for array in arrays]
                for rank in range(self.size):
                    wanted = np.concatenate([part[rank] for part in parts], join)
                    np.testing.assert_array_equal(results[rank], wanted)

    def with_splits(self, counts, shape=(2,), expects=None):
        """counts[i][j] rows go from rank i to rank j; results, or failures."""
        expects = expects or [[row[j] for row in counts] for j in range(self.size)]

        def call(agent):
            rows = sum(counts[agent.rank])
            array = np.full((rows, *shape), agent.rank, np.int32) * 100 + np.arange(rows).reshape(
                (rows,) + (1,) * len(shape)
            ).astype(np.int32)
            request = collectives.AllToAllRequest(
                input=inline(array), payload=array.tobytes(),
                input_splits=counts[agent.rank], output_splits=expects[agent.rank],
            )
            response = self.method(agent, "AllToAll", request)
            return array, array_of(response.output, response.payload)

        return self.cluster.all(call)

    def test_all_to_all_in_parts_of_any_length(self):
        n = self.size
        for counts in (
            [[(3 * i + j) % 4 for j in range(n)] for i in range(n)],
            [[0] * n for _ in range(n)],
            [[n if i == 0 else 0] * n for i in range(n)],
            [[3000 * (j + 1) for j in range(n)] for i in range(n)],
        ):
            results = self.with_splits(counts)
            for rank, result in enumerate(results):
                self.assertNotIsInstance(result, support.Failure, result)
                parts = []
                for i in range(n):
                    first = sum(counts[i][:rank])
                    parts.append(results[i][0][first : first + counts[i][rank]])
                np.testing.assert_array_equal(result[1], np.concatenate(parts))

    def test_splits_that_do_not_fit_are_refused_on_every_rank(self):
        n = self.size
        counts = [[1] * n for _ in range(n)]
        expects = [[1] * n for _ in range(n)]
        expects[n - 1][0] = 2
        for failure in self.with_splits(counts, expects=expects):
            words = "rank %d expects [2" % (n - 1)
            self.assert_failed(failure, INVALID, "SPLITS_MISMATCH", words)
        self.assert_works()
        array = np.zeros(n, np.int32)
        self.refused("AllToAll", array, INVALID, "SPLITS_MISMATCH",
                     input_splits=[2] * n, output_splits=[2] * n)
        self.refused("AllToAll", array, INVALID, "SPLITS_MISMATCH", input_splits=[1] * n)
        self.refused("AllToAll", array, INVALID, "SPLITS_MISMATCH",
                     input_splits=[-1] * n, output_splits=[1] * n)
        self.refused("AllToAll", array, INVALID, "SPLITS_MISMATCH",
                     input_splits=[1] * (n + 1), output_splits=[1] * (n + 1))

    def test_all_to_all_and_permute_work_in_place(self):
        arrays = self.arrays(self.size, 3)
        to = [(rank + 1) % self.size for rank in range(self.size)]
        for agent in self.cluster.agents:
            agent.put(arrays[agent.rank], name="x")
        swap = collectives.AllToAllRequest(input=handle("x"), output="x")
        turn = collectives.PermuteRequest(input=handle("x"), output="x", src_dst=to)
        for _ in range(2):  # twice is what it was
            self.cluster.all(lambda agent: self.method(agent, "AllToAll", swap))
        self.cluster.all(lambda agent: self.method(agent, "Permute", turn))
        for agent in self.cluster.agents:
            np.testing.assert_array_equal(agent.get("x"), arrays[agent.rank - 1])

    def test_permute_moves_whole_tensors(self):
        arrays = self.arrays(4, dtype=np.float32)
        to = list(reversed(range(self.size)))
        results = self.three_ways("Permute", arrays, src_dst=to)
        for rank in range(self.size):
            np.testing.assert_array_equal(results[to[rank]], arrays[rank])

    def test_gather_of_all_to_all_is_gather_along_the_other_axis(self):
        arrays = self.arrays(self.size, 2, 2)
        swapped = self.three_ways("AllToAll", arrays, split_axis=0, concat_axis=1)
        one = self.three_ways("Gather", swapped, axis=0)[0]
        other = self.three_ways("Gather", arrays, axis=1)[0]
        np.testing.assert_array_equal(one, other)

    # ------------------------------------------------------------------ infer

    def infer(self, name, array, group_rank, **fields):
        request = collectives.InferRequest(group_rank=group_rank)
        made = getattr(request, name)
        made.CopyFrom(type(made)(input=inline(array), **fields))
        agent = self.cluster.agents[0]
        response = self.method(agent, "Infer", request)
        return list(response.result.shape) if response.HasField("result") else None

    def test_infer_says_what_ops_make_without_running_them(self):
        n = self.size
        array = np.zeros((2 * n, 3), np.float32)
        last = n - 1
        for name, fields, wanted in (
            ("all_reduce", {"reduce_op": SUM}, [2 * n, 3]),
            ("broadcast", {}, [2 * n, 3]),
            ("all_gather", {"axis": -1}, [2 * n, 3 * n]),
            ("all_gather", {"form": STACK}, [n, 2 * n, 3]),
            ("reduce_scatter", {"reduce_op": SUM}, [2, 3]),
            ("reduce", {"reduce_op": SUM, "root": last}, [2 * n, 3]),
            ("gather", {"root": last, "form": FLAT}, [6 * n * n]),
            ("scatter", {}, [2, 3]),
            ("all_to_all", {"concat_axis": 1}, [2, 3 * n]),
            ("permute", {"src_dst": list(range(n))}, [2 * n, 3]),
        ):
            self.assertEqual(self.infer(name, array, last, **fields), wanted, name)
        if n > 1:
            self.assertIsNone(self.infer("gather", array, 0, root=1))
        failure = self.fails(lambda: self.infer("all_gather", array, 0, axis=2))
        self.assert_failed(failure, INVALID, "BAD_AXIS")
        failure = self.fails(lambda: self.infer("gather", array, n))
        self.assert_failed(failure, INVALID, "RANK_NOT_IN_GROUP")
        empty = collectives.InferRequest()
        failure = self.fails(lambda: self.method(self.cluster.agents[0], "Infer", empty))
        self.assert_failed(failure, INVALID, "NO_OP")

    # ------------------------------------------------------------------ what cannot be

    def refused(self, name, array, code, reason, **fields):
        request = getattr(collectives, name + "Request")(
            input=inline(array), payload=array.tobytes(), **fields
        )
        for failure in self.cluster.all(lambda agent: self.method(agent, name, request)):
            self.assert_failed(failure, code, reason)
        self.assert_works()

    def test_what_cannot_be_is_refused_on_every_rank(self):
        odd = np.zeros(self.size + 1, np.int32)
        if self.size > 1:
            self.refused("ReduceScatter", odd, INVALID, "INDIVISIBLE", reduce_op=SUM)
            self.refused("Scatter", odd, INVALID, "INDIVISIBLE")
            self.refused("AllToAll", odd, INVALID, "INDIVISIBLE")
            self.refused("Permute", odd, INVALID, "BAD_PERMUTATION", src_dst=[1] * self.size)
        scalar = np.array(1, np.int32)
        self.refused("ReduceScatter", scalar, INVALID, "SCALAR_INPUT", reduce_op=SUM)
        self.refused("Scatter", scalar, INVALID, "SCALAR_INPUT")
        self.refused("AllToAll", scalar, INVALID, "SCALAR_INPUT")
        self.refused("Gather", odd, INVALID, "BAD_AXIS", axis=1)
        self.refused("Gather", odd, INVALID, "BAD_FORM", form=9)
        self.refused("Gather", odd, INVALID, "OUT_SHAPE", form=FLAT, out_shape=[3])
        self.refused("Gather", odd, INVALID, "BAD_SHAPE", form=FLAT, out_shape=[1] * 17)
        self.refused("Reduce", odd, INVALID, "BAD_ROOT", reduce_op=SUM, root=-1)
        self.refused("Reduce", odd, INVALID, "BAD_ROOT", reduce_op=SUM, root_global=99)
        self.refused("Reduce", odd, INVALID, "BAD_REDUCE_OP")
        self.refused("Permute", odd, INVALID, "BAD_PERMUTATION", src_dst=[])

    def test_differing_calls_are_refused_on_every_rank(self):
        if self.size == 1:
            self.skipTest("one rank cannot differ from itself")
        array = np.zeros(self.size, np.int32)

        def differ(name, code, reason, usual, odd):
            make = getattr(collectives, name + "Request")

            def call(agent):
                fields = odd if agent.rank == self.size - 1 else usual
                request = make(input=inline(array), payload=array.tobytes(), **fields)
                return self.method(agent, name, request)

            for failure in self.cluster.all(call):
                self.assert_failed(failure, code, reason)
            self.assert_works()

        turn = [(rank + 1) % self.size for rank in range(self.size)]
        same = list(range(self.size))
        differ("Reduce", PRECONDITION, "OP_MISMATCH", {"reduce_op": SUM}, {"reduce_op": SUM, "root": 1})
        differ("Gather", PRECONDITION, "OP_MISMATCH", {}, {"form": STACK})
        differ("Permute", PRECONDITION, "OP_MISMATCH", {"src_dst": turn}, {"src_dst": same})
        differ("AllToAll", INVALID, "BAD_AXIS", {}, {"concat_axis": 1})


if __name__ == "__main__":
    support.main()
