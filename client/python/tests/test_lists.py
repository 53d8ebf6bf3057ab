"""Goal: lists of tensors, uneven parts, and bytes beside tensors, through the blocking API.

Method: one thread for each rank; numpy says what must come.
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
from case import ramp  # noqa: E402


class Lists(case.AgentCase):
    """Several tensors in one op, and a tensor for each rank."""

    def given(self, agent):
        return [ramp(agent, 3), ramp(agent, 4, np.int64).reshape(2, 2)]

    def want(self):
        every = [self.given(agent) for agent in self.agents]
        return [sum(one[place] for one in every) for place in range(2)]

    def same(self, found, want):
        self.assertEqual(len(found), len(want))
        for one, other in zip(found, want):
            np.testing.assert_array_equal(one, other)
            self.assertEqual(one.dtype, other.dtype)

    def sequence(self):
        """The number of the world's last op; 0 = there was none."""
        groups = {one.group: one.sequence for one in self.agents[0].stats().groups}
        return groups.get("world", 0)

    def test_a_list_is_as_many_ops_in_one(self):
        before = self.sequence()
        for found in self.all(lambda agent: agent.all_reduce(self.given(agent))):
            self.same(found, self.want())
        self.assertEqual(self.sequence(), before + 1)
        for error in self.all_fail(lambda agent: agent.all_reduce([])):
            self.assertEqual(error.reason, "EMPTY_LIST")
        found = self.all(lambda agent: agent.reduce(self.given(agent), root=1))
        self.same(found[1], self.want())
        self.assertEqual(found[0], None)

    def test_lists_of_tensors_and_async_ones(self):
        def work(agent):
            tensors = [agent.put(one) for one in self.given(agent)]
            work = agent.all_reduce(tensors, out=tensors, async_=True)
            arrays = agent.all_reduce(self.given(agent), async_=True)
            made = work.wait()
            self.assertEqual([one.handle for one in made], [one.handle for one in tensors])
            found = [one.numpy() for one in made], arrays.wait()
            agent.delete(*tensors)
            return found

        for first, second in self.all(work):
            self.same(first, self.want())
            self.same(second, self.want())

    def test_large_lists_leave_nothing_behind(self):
        large = [np.ones(1 << 19), np.ones(1 << 18, np.int32)]
        for found in self.all(lambda agent: agent.all_reduce(large)):
            self.same(found, [one * self.size for one in large])

    def test_a_root_gives_a_list(self):
        root = self.given(self.agents[1])
        for found in self.all(lambda agent: agent.broadcast(self.given(agent), root=1)):
            self.same(found, root)
        found = self.all(
            lambda agent: agent.broadcast(
                [agent.put(one) for one in root] if agent.rank == 1 else None,
                root=1,
                coalesced=True,
            )
        )
        for one in found:
            self.same([tensor.numpy() for tensor in one], root)
            self.free(*one)

    def test_a_tensor_for_each_rank(self):
        def part(rank, size=1):
            return np.full(rank + size, rank, np.int16)

        every = [part(rank) for rank in range(self.size)]
        for found in self.all(lambda agent: agent.all_gather(part(agent.rank), form="list")):
            self.same(found, every)
        found = self.all(lambda agent: agent.gather(part(agent.rank), form="list", root=2))
        self.same(found[2], every)
        self.assertIsNone(found[0])
        rows = [np.full(2, rank) for rank in range(self.size)]
        for rank, found in enumerate(
            self.all(lambda agent: agent.scatter(rows if agent.rank == 1 else rows[0], form="list", root=1))
        ):
            self.same([found], [rows[rank]])
        for rank, found in enumerate(
            self.all(
                lambda agent: agent.all_to_all(
                    [part(agent.rank, other) for other in range(self.size)]
                )
            )
        ):
            self.same(found, [part(source, rank) for source in range(self.size)])
        for rank, found in enumerate(
            self.all(lambda agent: agent.reduce_scatter(every, form="list"))
        ):
            self.same([found], [every[rank] * self.size])

    def test_a_list_of_parts_on_a_wrong_rank_is_refused(self):
        rows = [np.full(2, rank) for rank in range(self.size)]
        for error in self.all_fail(lambda agent: agent.scatter(rows, form="list", root=1)):
            self.assertEqual(error.reason, "UNEXPECTED_INPUT")
            self.assertIn("only the root gives one", error.text)
        for error in self.all_fail(lambda agent: agent.scatter(None, form="list", root=1)):
            self.assertEqual(error.reason, "ROOT_INPUT_MISSING")

        for wrong, listed in ((2, (1, 2)), (0, (0,))):
            found = self.all_fail(lambda agent: self.gather_rows(agent, rows, listed))
            for rank, error in enumerate(found):
                self.assertEqual((error.reason, error.rank), ("BAD_OUT", -1 if rank == wrong else wrong))
                self.assertIn("gives a list for the parts: only the root gives one", error.text)
        self.same(self.all(lambda agent: self.gather_rows(agent, rows, (1,)))[1], rows)

    def gather_rows(self, agent, rows, listed):
        outs = [np.zeros(2, np.int64) for _ in range(self.size)]
        agent.gather(rows[agent.rank], form="list", root=1, out=outs if agent.rank in listed else None)
        return outs

    def test_uneven_parts(self):
        whole = np.arange(10)
        splits = [1, 2, 3, 4]
        found = self.all(
            lambda agent: agent.scatter(whole, splits=splits if agent.rank == 0 else None)
        )
        self.same(found, np.split(whole, np.cumsum(splits)[:-1]))
        found = self.all(
            lambda agent: agent.all_to_all(
                np.full(sum(splits), agent.rank),
                input_splits=splits,
                output_splits=[splits[agent.rank]] * self.size,
            )
        )
        self.same(found, [np.repeat(np.arange(self.size), size) for size in splits])

    def test_bytes_travel_with_a_tensor(self):
        def work(agent):
            if agent.rank == 0:
                agent.send(np.arange(2), 1, meta=b"with it")
            meta = b""
            if agent.rank == 1:
                meta = agent.recv(0).meta
            began = agent.broadcast(np.arange(3), meta=b"root's", async_=True)
            began.wait()
            return meta, began.meta

        found = self.all(work)
        self.assertEqual([one[0] for one in found], [b"", b"with it", b"", b""])
        self.assertEqual([one[1] for one in found[1:]], [b"root's"] * 3)

    def test_mixed_lists_are_refused(self):
        agent = self.agents[0]
        with agent.put([1.0]) as tensor, self.assertRaises(tutti.TuttiError) as caught:
            agent.all_reduce([tensor, np.ones(1)])
        self.assertEqual(caught.exception.reason, "UNEXPECTED_INPUT")


if __name__ == "__main__":
    tap.main()
