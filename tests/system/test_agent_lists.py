"""Goal: one op takes and gives lists of tensors, and bytes of the caller's travel with a tensor.

Method: a real cluster of three; inline, by handle, into outputs, async; every way to misuse a list
is refused on all ranks, and leaves no tensor behind.
"""

import time

import grpc
import numpy as np

import support
from cluster_case import LONG_S, NUMPY, ClusterCase, array_of, collectives, handle, inline
from cluster_case import tensors, types

SUM = types.REDUCE_OP_SUM
LIST = collectives.FORM_LIST
SIZE = 3


class Lists(ClusterCase):
    size = SIZE
    options = ("--memory-limit", "256MiB", "--handles-max", "4000")

    def tearDown(self):
        for agent in self.cluster.agents:
            for one in self.listed(agent):
                try:
                    agent.delete(one.tensor.handle)
                except grpc.RpcError as error:  # a failed op's result went by itself
                    self.assertEqual(support.Failure(error).reason, "NO_TENSOR")

    def listed(self, agent):
        request = tensors.ListRequest(page_size=1000)
        return agent.tensors.List(request, timeout=LONG_S).tensors

    def call(self, agent, name, request):
        return getattr(agent.ops, name)(request, timeout=LONG_S)

    def arrays(self, rank):
        """Any shapes and dtypes: also scalars, also nothing."""
        return [
            np.arange(4, dtype=np.int32) + rank,
            np.array(rank + 0.5, np.float32),
            np.zeros((0, 3), np.int8),
            np.arange(6, dtype=np.float16).reshape(2, 3) * (rank + 1),
        ]

    def inline_list(self, request, arrays):
        request.inputs.extend([inline(one) for one in arrays])
        request.payload = b"".join(one.tobytes() for one in arrays)
        return request

    def handles(self, agent, request, arrays):
        request.inputs.extend([handle(agent.put(one)) for one in arrays])
        return request

    def read_inline(self, response):
        found, at = [], 0
        for one in response.outputs:
            count = int(np.prod(one.spec.shape)) if one.spec.shape else 1
            size = count * NUMPY[one.spec.dtype].itemsize
            found.append(array_of(one, response.payload[at : at + size]))
            at += size
        self.assertEqual(at, len(response.payload))
        return found

    def read(self, agent, references):
        return [agent.get(one.handle) for one in references]

    def same(self, found, wanted):
        self.assertEqual(len(found), len(wanted))
        for got, want in zip(found, wanted):
            np.testing.assert_array_equal(got, want)
            self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))

    def sums(self):
        lists = [self.arrays(rank) for rank in range(SIZE)]
        return [sum(column[1:], column[0]).astype(column[0].dtype) for column in zip(*lists)]

    # ------------------------------------------------------------------ coalesced

    def test_a_list_of_any_shapes_is_reduced_in_one_op(self):
        before = self.cluster.agents[0].stats().groups[0].sequence if self.started() else 0

        def work(agent):
            plain = collectives.AllReduceRequest(reduce_op=SUM)
            return (
                self.read_inline(
                    self.call(agent, "AllReduce", self.inline_list(plain, self.arrays(agent.rank)))
                ),
                self.read(
                    agent,
                    self.call(
                        agent,
                        "AllReduce",
                        self.handles(
                            agent,
                            collectives.AllReduceRequest(reduce_op=SUM),
                            self.arrays(agent.rank),
                        ),
                    ).outputs,
                ),
            )

        for rank, (first, second) in enumerate(self.checked(self.cluster.all(work))):
            self.same(first, self.sums())
            self.same(second, self.sums())
        after = self.cluster.agents[0].stats().groups[0].sequence
        self.assertEqual(after - before, 2)

    def started(self):
        return len(self.cluster.agents[0].stats().groups) > 0

    def checked(self, found):
        for one in found:
            self.assertNotIsInstance(one, support.Failure, one)
        return found

    def test_results_go_into_outputs_or_into_the_inputs(self):
        def work(agent):
            arrays = self.arrays(agent.rank)
            names = [agent.put(one) for one in arrays]
            into = [agent.put(np.zeros_like(one)) for one in arrays]
            into[1] = names[1]  # in place, among others
            request = collectives.AllReduceRequest(reduce_op=SUM, outputs=into)
            request.inputs.extend([handle(one) for one in names])
            response = self.call(agent, "AllReduce", request)
            self.assertEqual([one.handle for one in response.outputs], into)
            self.same(self.read(agent, response.outputs), self.sums())
            np.testing.assert_array_equal(agent.get(names[0]), arrays[0])

        self.checked(self.cluster.all(work))

    def test_results_of_an_async_list_are_usable_at_once(self):
        def work(agent):
            request = collectives.AllReduceRequest(reduce_op=SUM)
            request.options.CopyFrom(types.OpOptions(**{"async": True}))
            self.handles(agent, request, self.arrays(agent.rank))
            first = self.call(agent, "AllReduce", request)
            again = collectives.AllReduceRequest(reduce_op=SUM)
            again.inputs.extend([handle(one.handle) for one in first.outputs])
            second = self.call(agent, "AllReduce", again)
            wait = collectives.WaitRequest(works=[first.info.work])
            status = agent.ops.Wait(wait, timeout=LONG_S).works[0]
            self.assertEqual(
                [one.handle for one in status.outputs], [one.handle for one in first.outputs]
            )
            return self.read(agent, second.outputs)

        wanted = [(one * SIZE).astype(one.dtype) for one in self.sums()]
        for found in self.checked(self.cluster.all(work)):
            self.same(found, wanted)

    def test_a_list_is_broadcast_to_receivers_who_know_nothing(self):
        def work(agent, **fields):
            request = collectives.BroadcastRequest(root=1, coalesced=True, **fields)
            if agent.rank == 1:
                self.handles(agent, request, self.arrays(1))
            return agent, self.call(agent, "Broadcast", request).outputs

        for agent, outputs in self.checked(self.cluster.all(work)):
            self.same(self.read(agent, outputs), self.arrays(1))
        asynchronous = types.OpOptions(**{"async": True})

        def later(agent):
            request = collectives.BroadcastRequest(root=1, coalesced=True, options=asynchronous)
            if agent.rank == 1:
                self.handles(agent, request, self.arrays(1))
            work = self.call(agent, "Broadcast", request).info.work
            status = agent.ops.Wait(collectives.WaitRequest(works=[work]), timeout=LONG_S).works[0]
            return self.read(agent, status.outputs)

        for found in self.checked(self.cluster.all(later)):
            self.same(found, self.arrays(1))

    def test_a_thousand_tensors_are_one_op_and_one_more_is_refused(self):
        def work(agent, count):
            request = collectives.AllReduceRequest(reduce_op=SUM)
            self.inline_list(request, [np.array([agent.rank, k]) for k in range(count)])
            return self.read_inline(self.call(agent, "AllReduce", request))

        for found in self.checked(self.cluster.all(lambda agent: work(agent, 1024))):
            self.same(found, [np.array([3, 3 * k]) for k in range(1024)])
        self.all_refused("LIST_SIZE", lambda agent: work(agent, 1025))

    # ------------------------------------------------------------------ lists by rank

    def test_gathered_lists_keep_each_ranks_shape(self):
        shape = [(2,), (0, 3), ()]

        def work(agent, name, **fields):
            request = getattr(collectives, name + "Request")(form=LIST, **fields)
            request.input.CopyFrom(handle(agent.put(np.full(shape[agent.rank], agent.rank, "i4"))))
            return self.read(agent, self.call(agent, name, request).outputs)

        wanted = [np.full(shape[rank], rank, "i4") for rank in range(SIZE)]
        for found in self.checked(self.cluster.all(lambda agent: work(agent, "AllGather"))):
            self.same(found, wanted)
        found = self.checked(self.cluster.all(lambda agent: work(agent, "Gather", root=2)))
        self.same(found[2], wanted)
        self.assertEqual(found[:2], [[], []])

    # ------------------------------------------------------------------ what is refused

    def refused(self, found, reason):
        for one in found:
            self.assertIsInstance(one, support.Failure, one)
            self.assertEqual(one.reason, reason, one)

    def counts(self):
        return [len(self.listed(agent)) for agent in self.cluster.agents]

    def all_refused(self, reason, work):
        """Every rank hears it, no tensor stays, and the group goes on."""
        before = self.counts()
        self.refused(self.cluster.all(work), reason)
        until = time.monotonic() + LONG_S
        while self.counts() != before:  # results go just behind the answer
            self.assertLess(time.monotonic(), until, (self.counts(), before))
        request = collectives.AllReduceRequest(reduce_op=SUM)
        self.inline_list(request, [np.array([1])])
        for one in self.checked(
            self.cluster.all(lambda agent: self.call(agent, "AllReduce", request))
        ):
            self.same(self.read_inline(one), [np.array([SIZE])])

    def test_lists_that_differ_or_make_no_sense_are_refused_on_all_ranks(self):
        names = [agent.put(np.arange(3)) for agent in self.cluster.agents]

        def one_wrong(agent, wrong, right):
            request = wrong if agent.rank == 1 else right
            return self.call(agent, "AllReduce", request)

        right = self.inline_list(
            collectives.AllReduceRequest(reduce_op=SUM), [np.arange(2), np.arange(3)]
        )
        shorter = self.inline_list(collectives.AllReduceRequest(reduce_op=SUM), [np.arange(2)])
        other = self.inline_list(
            collectives.AllReduceRequest(reduce_op=SUM), [np.arange(2), np.arange(4)]
        )
        typed = self.inline_list(
            collectives.AllReduceRequest(reduce_op=SUM), [np.arange(2), np.arange(3, dtype="f4")]
        )
        empty = collectives.AllReduceRequest(reduce_op=SUM, coalesced=True)
        both = collectives.AllReduceRequest(reduce_op=SUM)
        both.CopyFrom(right)
        both.input.CopyFrom(inline(np.arange(2)))
        short = collectives.AllReduceRequest(reduce_op=SUM)
        short.CopyFrom(right)
        short.payload = short.payload[:-1]
        alias = collectives.AllReduceRequest(reduce_op=SUM, outputs=[names[1], names[1]])
        alias.inputs.extend([handle(names[1]), handle(names[1])])
        mixed = collectives.AllReduceRequest(reduce_op=SUM)
        mixed.inputs.extend([handle(names[1]), inline(np.arange(3))])
        neither = collectives.AllReduceRequest(reduce_op=SUM)
        neither.inputs.extend([types.TensorArg()])
        for wrong, reason in [
            (shorter, "LIST_SIZE"),
            (other, "SHAPE_MISMATCH"),
            (typed, "DTYPE_MISMATCH"),
            (empty, "EMPTY_LIST"),
            (both, "UNEXPECTED_INPUT"),
            (short, "SIZE_MISMATCH"),
            (alias, "OUTPUT_ALIAS"),
            (mixed, "UNEXPECTED_INPUT"),
            (neither, "NO_INPUT"),
        ]:
            with self.subTest(reason=reason, wrong=str(wrong)[:80]):
                self.all_refused(reason, lambda agent: one_wrong(agent, wrong, right))

    def test_a_gather_into_too_few_outputs_is_refused_on_all_ranks(self):
        into = [[agent.put(np.zeros(2, "i4")) for _ in range(2)] for agent in self.cluster.agents]

        def work(agent):
            request = collectives.AllGatherRequest(form=LIST)
            request.input.CopyFrom(inline(np.zeros(2, "i4")))
            request.payload = bytes(8)
            if agent.rank == 0:
                request.outputs.extend(into[0])
            return self.call(agent, "AllGather", request)

        self.all_refused("LIST_SIZE", work)

    def test_splits_come_from_the_root_and_must_fill_its_tensor(self):
        def work(agent, splits):
            request = collectives.ScatterRequest(root=2, splits=splits if agent.rank == 2 else [])
            if agent.rank == 2:
                request.input.CopyFrom(handle(agent.put(np.arange(12).reshape(6, 2))))
            return agent.get(self.call(agent, "Scatter", request).output.handle)

        found = self.checked(self.cluster.all(lambda agent: work(agent, [1, 5, 0])))
        self.same(found, np.split(np.arange(12).reshape(6, 2), [1, 6]))
        for splits in [[1, 2], [2, 2, 3], [7, -1, 0]]:
            self.refused(self.cluster.all(lambda agent: work(agent, splits)), "SPLITS_MISMATCH")

    # ------------------------------------------------------------------ inference

    def test_shapes_of_lists_are_inferred_without_an_op(self):
        agent = self.cluster.agents[0]
        gather = collectives.AllGatherRequest(coalesced=True, axes=[0, -1])
        gather.inputs.extend([inline(np.zeros((2, 3))), inline(np.zeros((4, 5)))])
        request = collectives.InferRequest(all_gather=gather)
        found = agent.ops.Infer(request, timeout=LONG_S)
        self.assertEqual([list(one.shape) for one in found.results], [[6, 3], [4, 15]])
        self.assertFalse(found.HasField("result"))
        swap = collectives.AllToAllRequest(form=LIST)
        swap.inputs.extend([inline(np.zeros(k)) for k in (1, 2, 3)])
        request = collectives.InferRequest(all_to_all=swap, group_rank=1)
        found = agent.ops.Infer(request, timeout=LONG_S)
        self.assertEqual([list(one.shape) for one in found.results], [[2]] * 3)
        del request.all_to_all.inputs[2]
        with self.assertRaises(grpc.RpcError) as raised:
            agent.ops.Infer(request, timeout=LONG_S)
        self.assertIn("2 tensors for 3 ranks", raised.exception.details())

    # ------------------------------------------------------------------ user_meta

    def test_bytes_travel_with_a_tensor(self):
        meta = b"tape: a\0b\xff"

        def rooted(agent, name, asynchronous):
            request = getattr(collectives, name + "Request")(root=1)
            request.options.CopyFrom(types.OpOptions(**{"async": asynchronous}))
            if agent.rank == 1:
                request.input.CopyFrom(handle(agent.put(np.arange(6))))
                request.user_meta = meta
            response = self.call(agent, name, request)
            if not asynchronous:
                return response.user_meta
            wait = collectives.WaitRequest(works=[response.info.work])
            return agent.ops.Wait(wait, timeout=LONG_S).works[0].user_meta

        for name in ("Broadcast", "Scatter"):
            for asynchronous in (False, True):
                found = self.checked(
                    self.cluster.all(lambda agent: rooted(agent, name, asynchronous))
                )
                self.assertEqual(found, [meta] * SIZE, name)

    def test_bytes_travel_with_what_is_sent(self):
        large = bytes(range(256)) * 64

        def work(agent):
            if agent.rank == 0:
                for meta in (b"small", large, b""):
                    request = collectives.SendRequest(destination=2, user_meta=meta)
                    request.input.CopyFrom(inline(np.arange(3)))
                    request.payload = np.arange(3).tobytes()
                    self.call(agent, "Send", request)
            elif agent.rank == 2:
                return [
                    self.call(agent, "Recv", collectives.RecvRequest(inline_result=True)).user_meta
                    for _ in range(3)
                ]
            return None

        found = self.checked(self.cluster.all(work))
        self.assertEqual(found[2], [b"small", large, b""])

    def test_too_many_bytes_are_refused_on_all_ranks(self):
        def work(agent):
            request = collectives.BroadcastRequest(inline_result=True)
            if agent.rank == 0:
                request.input.CopyFrom(inline(np.arange(1)))
                request.payload = np.arange(1).tobytes()
                request.user_meta = bytes(16385)
            return self.call(agent, "Broadcast", request)

        self.all_refused("META_LIMIT", work)


if __name__ == "__main__":
    support.main()
