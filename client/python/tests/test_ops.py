"""Goal: collectives, sends and receives through the blocking API: every call gives what its words say.

Method: one thread for each rank; numpy says what must come.
"""

import os
import sys
import threading

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
from case import ramp  # noqa: E402


class Collectives(case.AgentCase):
    def stack(self, dtype=np.float32):
        return np.stack([ramp(agent, 8, dtype) for agent in self.agents])

    def each(self, call, want):
        """call(agent, array) gives want[rank] for small and for staged arrays."""
        for found, one in zip(self.all(lambda agent: call(agent, ramp(agent, 8))), want):
            if one is None:
                self.assertIsNone(found)
            else:
                np.testing.assert_allclose(found, one)

    def test_a_broadcast_of_another_size_than_is_said_is_an_error_on_every_rank(self):
        def call(agent):
            agent.broadcast(np.ones(4 if agent.rank else 3, np.float32), 0)

        self.assertEqual({error.reason for error in self.all_fail(call)}, {"OUT_SHAPE"})
        self.assertEqual(self.all(lambda agent: agent.all_reduce(np.ones(1)))[0][0], self.size)

    def test_reductions(self):
        all_of = self.stack()
        for op, want in (
            ("sum", all_of.sum(0)),
            ("max", all_of.max(0)),
            ("avg", all_of.mean(0)),
            ("min", all_of.min(0)),
            ("product", all_of.prod(0)),
        ):
            self.each(lambda agent, x, op=op: agent.all_reduce(x, op), [want] * self.size)
        want = (all_of * 0.5).sum(0)
        self.each(
            lambda agent, x: agent.all_reduce(x, "premul_sum", factor=0.5), [want] * self.size
        )
        only = [None] * (self.size - 1) + [all_of.sum(0)]
        self.each(lambda agent, x: agent.reduce(x, root=self.size - 1), only)
        parts = np.split(all_of.sum(0), self.size)
        self.each(lambda agent, x: agent.reduce_scatter(x), parts)

    def test_joining_and_cutting(self):
        all_of = self.stack()
        n = self.size
        self.each(lambda agent, x: agent.all_gather(x), [all_of.reshape(-1)] * n)
        self.each(lambda agent, x: agent.all_gather(x, form="stack", axis=1), [all_of.T] * n)
        self.each(
            lambda agent, x: agent.gather(x, form="stack", root_global=0),
            [all_of] + [None] * (n - 1),
        )
        self.each(lambda agent, x: agent.scatter(x, root=1), np.split(all_of[1], n))
        parts = [np.concatenate([np.split(row, n)[r] for row in all_of]) for r in range(n)]
        self.each(lambda agent, x: agent.all_to_all(x), parts)
        ring = [(r + 1) % n for r in range(n)]
        self.each(lambda agent, x: agent.permute(x, ring), [all_of[r - 1] for r in range(n)])

    def test_a_broadcast_gives_everyone_the_roots(self):
        root = ramp(self.agents[1], 8)
        self.each(lambda agent, x: agent.broadcast(x, root=1), [root] * self.size)
        made = self.all(
            lambda agent: agent.broadcast(agent.put(root) if agent.rank == 1 else None, root=1)
        )
        for tensor in made:
            np.testing.assert_array_equal(tensor.numpy(), root)
            tensor.delete()

    def test_large_arrays_leave_nothing_behind(self):
        count = 1 << 20
        for found in self.all(lambda agent: agent.all_reduce(np.ones(count, np.float32))):
            self.assertEqual((found.shape, set(found.tolist())), ((count,), {float(self.size)}))
        for found in self.all(
            lambda agent: agent.broadcast(np.full(count, agent.rank, np.int32), root=1)
        ):
            self.assertEqual(set(found.tolist()), {1})

    def test_results_go_where_out_says(self):
        def into_array(agent):
            x = ramp(agent)
            self.assertIs(agent.all_reduce(x, out=x), x)
            return x

        def into_tensor(agent):
            with agent.put(ramp(agent)) as x:
                self.assertIs(agent.all_reduce(x, out=x), x)
                return x.numpy()

        want = np.stack([ramp(agent) for agent in self.agents]).sum(0)
        for found in self.all(into_array) + self.all(into_tensor):
            np.testing.assert_array_equal(found, want)

    def test_parts_of_a_tensor_go_in_and_out(self):
        def call(agent):
            with agent.put(ramp(agent, 8)) as x, agent.put(np.zeros(32, np.uint8)) as arena:
                middle = x.range(8, (2, 2))
                agent.all_reduce(middle, out=middle)
                new = agent.all_reduce(x.range(0, ()))
                agent.all_gather(x.range(0, (1,)), out=arena.range(0, (self.size,), "FP32"))
                work = agent.all_reduce(x.range(24, (1,)), out=x.range(24, (1,)), async_=True)
                work.wait()
                end = x.range(8, (6,)).range(16, (1,))  # bytes 24 to 27
                found = (x.numpy(), middle.numpy(), new.numpy(), end.numpy(), x.range(32, (0,)).numpy())
                new.delete()
                return found + (arena.numpy(),)

        total = self.stack().sum(0)
        for rank, (x, middle, new, end, none, arena) in enumerate(self.all(call)):
            want = self.stack()[rank]
            want[2:7] = total[2:7]
            want[6] = total[6]
            self.assertEqual(x.tolist(), want.tolist())
            self.assertEqual(middle.tolist(), total[2:6].reshape(2, 2).tolist())
            self.assertEqual((new.tolist(), end.tolist(), none.shape), (total[0], [total[6]], (0,)))
            first = arena[: 4 * self.size].view(np.float32)
            self.assertEqual(first.tolist(), [10.0 * one for one in range(self.size)])

    def test_parts_that_cannot_be_are_refused_on_all_ranks(self):
        rows = [
            (lambda x: (x.range(28, (2,)), None), "RANGE_OUTSIDE", "8 bytes from byte 28 on are not in the tensor, which has 32"),
            (lambda x: (x.range(2, (2,)), None), "RANGE_ALIGN", "2"),
            (lambda x: (x.range(0, (2,)), x.range(4, (2,))), "RANGE_OVERLAP", "common"),
        ]
        for make, reason, words in rows:
            def call(agent):
                with agent.put(ramp(agent, 8)) as x:
                    part, out = make(x) if agent.rank == 0 else (x.range(0, (2,)), None)
                    agent.all_reduce(part, out=out)

            found = self.all_fail(call)
            self.assertEqual([one.reason for one in found], [reason] * self.size)
            self.assertIn(words, found[0].text)
            self.assertIn("rank 0", found[1].text)
        with self.agents[0].put(ramp(self.agents[0], 8)) as x:
            with self.assertRaises(tutti.TuttiError) as caught:
                x.range(0, (2,), "FP7")
            self.assertEqual(caught.exception.reason, "BAD_DTYPE")
            with self.assertRaises(tutti.TuttiError) as caught:
                x.range(0, (2,)).write(np.zeros(2, np.float32))
            self.assertEqual(caught.exception.reason, "BAD_HANDLE")

    def test_async_ops_are_waited_for(self):
        def work(agent):
            with agent.put(ramp(agent)) as x:
                first = agent.all_reduce(x, async_=True)
                second = agent.all_reduce(first.tensor, async_=True)  # of what is not there yet
                array = agent.all_reduce(ramp(agent), async_=True)
                made = second.wait(case.LONG_S)
                self.assertTrue(second.test() and first.test())
                found = made.numpy(), array.wait(), made.refresh().shape
                self.free(first.wait(), made)
                return found

        want = np.stack([ramp(agent) for agent in self.agents]).sum(0)
        for twice, once, shape in self.all(work):
            np.testing.assert_array_equal(twice, want * self.size)
            np.testing.assert_array_equal(once, want)
            self.assertEqual(shape, (6,))

    def test_a_cancelled_work_ends_on_all_ranks(self):
        cancelled = threading.Event()  # else the op may have succeeded before

        def work(agent):
            with agent.put(ramp(agent)) as x, agent.create(x.shape, x.dtype_name) as y:
                if agent.rank == 1:  # the op of x is posted; that of its result, and what is behind it, wait in line
                    first = agent.all_reduce(x, out=y, async_=True)
                    second = agent.all_reduce(y, out=y, async_=True)
                    receive = agent.recv(0, async_=True)
                    found = [one.cancel() for one in (receive, second, first)]
                    cancelled.set()
                    for one in (first, second, receive):
                        with self.assertRaises(tutti.TuttiError) as caught:
                            one.wait(case.LONG_S)
                        self.assertEqual((caught.exception.reason, caught.exception.rank), ("CALLER_GONE", 1))
                        self.assertIn("the caller of rank 1 has cancelled it", caught.exception.text)
                    return found, agent.all_reduce(np.ones(1)).tolist()
                cancelled.wait(case.LONG_S)
                for _ in range(2):
                    with self.assertRaises(tutti.TuttiError) as caught:
                        agent.all_reduce(x, out=y)
                    self.assertEqual((caught.exception.reason, caught.exception.rank), ("CALLER_GONE", 1))
                return None, agent.all_reduce(np.ones(1)).tolist()

        for rank, (found, after) in enumerate(self.all(work)):
            self.assertEqual((found, after), ([True] * 3 if rank == 1 else None, [4.0]))

    def test_a_work_that_has_ended_is_not_cancelled(self):
        def work(agent):
            work = agent.all_reduce(np.ones(1), async_=True)
            while not work.test():
                pass
            return work.cancel(), work.wait().tolist(), work.cancel()

        self.assertEqual(self.all(work), [(False, [4.0], False)] * self.size)
        agent = self.agents[0]
        for works, reason in (([], "WORK_COUNT"), (["x"], "BAD_HANDLE"), (["work:0.%016x.999999" % agent.info.incarnation], "NO_WORK")):
            request = tutti._wire.new("CancelRequest", works=works)
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.line.unary("Collectives.Cancel", request)
            self.assertIn(caught.exception.reason, (reason, "NO_WORK"))

    def test_the_last_call_of_who_is_missing_may_be_one_that_was_refused(self):
        def work(agent):
            agent.barrier()
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.all_reduce("tensor-that-is-not-there" if agent.rank == 1 else np.ones(1), out=None)
            self.assertEqual(caught.exception.reason, "NO_TENSOR")
            if agent.rank == 0:
                with self.assertRaises(tutti.TuttiTimeout) as caught:
                    agent.all_reduce(np.ones(1), timeout=0.2)
                return str(caught.exception)
            return None

        found = self.all(work)[0]
        self.assertRegex(found, r"rank 1 has not called it \(last: op \d+, which was refused or had failed\)")
        self.all(lambda agent: agent.rank == 0 or self.assertRaises(tutti.TuttiError, agent.barrier))

    def test_send_and_receive(self):
        def work(agent):
            if agent.rank == 0:
                agent.send(ramp(agent), 1, tag=5)
                agent.send(np.arange(3), 1)
                work = agent.send(np.arange(2), 1, async_=True)
                self.assertIsNone(work.wait())
            if agent.rank == 1:
                got = agent.recv(0, tag=5, dtype="FP32", shape=[6])
                out = np.zeros(3, np.int64)
                self.assertIs(agent.recv(out=out).tensor, out)
                work = agent.recv(0, async_=True)
                third = work.wait()
                self.assertEqual((work.source, third.source, third.source_global), (0, 0, 0))
                return got.tensor, got.source, out, third.tensor
            return None

        array, source, out, third = self.all(work)[1]
        np.testing.assert_array_equal(array, ramp(self.agents[0]))
        self.assertEqual((source, out.tolist(), third.tolist()), (0, [0, 1, 2], [0, 1]))

    def test_what_is_received_is_an_array_unless_it_is_kept(self):
        large = np.arange(1 << 20, dtype=np.float32)  # more than one message carries

        def work(agent):
            if agent.rank == 0:
                for array in (large, np.arange(3), np.arange(3), np.arange(3)):
                    agent.send(array, 1)
            if agent.rank == 1:
                np.testing.assert_array_equal(agent.recv(0).tensor, large)
                self.assertEqual(agent.recv(0, async_=True).wait().tensor.tolist(), [0, 1, 2])
                for found in (agent.recv(0, keep=True), agent.recv(0, keep=True, async_=True).wait()):
                    with found.tensor as kept:
                        self.assertIsInstance(kept, tutti.Tensor)
                        self.assertEqual(kept.numpy().tolist(), [0, 1, 2])

        self.all(work)

    def test_words_of_others_are_understood(self):
        def work(agent):
            mean = agent.all_reduce(np.full(1, 2.0 * agent.rank), "mean")
            part = agent.scatter(np.arange(float(self.size)), 1)
            whole = agent.gather(part, 1)
            total = agent.reduce(part, "sum", 1)
            return mean[0], agent.broadcast(np.full(1, agent.rank), 1)[0], part[0], whole is None, total is None

        for rank, found in enumerate(self.all(work)):
            self.assertEqual(found, (self.size - 1.0, 1, float(rank), rank != 1, rank != 1))

    def test_blocks_of_ranks_pass_on(self):
        def work(agent):
            blocks = dict(group_count=self.size)
            array = np.array([agent.rank])
            last = agent.rank == self.size - 1
            sent = None if last else agent.send(array, group_offset=1, async_=True, **blocks)
            found = np.zeros(1, int)
            if agent.rank > 0:
                agent.recv(group_offset=-1, out=found, **blocks)
            self.assertIsNone(sent and sent.wait())
            return found.tolist()

        self.assertEqual(self.all(work), [[0]] + [[rank] for rank in range(self.size - 1)])
        self.assertEqual({one.failed for one in self.all(lambda agent: agent.sync())}, {0})

    def test_results_are_inferred(self):
        agent = self.agents[0]
        self.assertEqual(agent.infer("all_gather", [2, 3], axis=1), ("FP32", (2, 3 * self.size)))
        self.assertEqual(agent.infer("reduce", [2], "int64", op="max", root=1), None)
        found = agent.infer("all_gather", [2], group_size=3, form="list")
        self.assertEqual(found, [("FP32", (2,))] * 3)
        with self.assertRaises(tutti.TuttiError) as caught:
            agent.infer("reduce_scatter", [7], group_size=2)
        self.assertEqual(caught.exception.reason, "INDIVISIBLE")

    def test_torch_tensors_give_torch_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        for found in self.all(lambda agent: agent.all_reduce(torch.ones(3, dtype=torch.bfloat16))):
            self.assertTrue(torch.equal(found, torch.full((3,), self.size, dtype=torch.bfloat16)))
        x = [torch.full((2,), float(agent.rank)) for agent in self.agents]
        self.all(lambda agent: agent.broadcast(x[agent.rank], root=1, out=x[agent.rank]))
        self.assertEqual([one.tolist() for one in x], [[1.0, 1.0]] * self.size)
        with self.agents[0].put(x[0]) as tensor:
            self.assertTrue(torch.equal(tensor.torch(), x[0]))

    def test_a_mismatch_names_group_and_op(self):
        sequence = self.agents[0].stats().groups[0].sequence
        for error in self.all_fail(lambda agent: agent.all_reduce(np.ones(2 + agent.rank % 2))):
            self.assertEqual(
                (error.code.name, error.reason), ("INVALID_ARGUMENT", "SHAPE_MISMATCH")
            )
            self.assertEqual((error.group, error.op), ("world", sequence + 1))
            self.assertIn("all_reduce", error.text)

    def test_a_mismatch_of_async_ops_comes_with_wait(self):
        def work(agent):
            return agent.all_reduce(np.ones(2 + agent.rank % 2), async_=True).wait()

        for error in self.all_fail(work):
            self.assertEqual(error.reason, "SHAPE_MISMATCH")

    def test_time_that_is_up_is_a_timeout(self):
        with self.assertRaises(TimeoutError) as caught:
            self.agents[0].all_reduce(np.ones(2), timeout=0.2)
        self.assertEqual(caught.exception.reason, "TIMEOUT")
        self.assertIn("rank", caught.exception.text)
        for error in self.all_fail(
            lambda agent: agent.all_reduce(np.ones(2)) if agent.rank else agent.tensor("no")
        ):
            self.assertIn(error.reason, ("TIMEOUT", "NO_TENSOR"))  # the others hear of it too
        self.all(lambda agent: agent.barrier())

    def test_ranks_at_different_steps_are_refused(self):
        for error in self.all_fail(lambda agent: agent.barrier(step=4 + agent.rank % 2)):
            self.assertEqual(error.reason, "OP_MISMATCH")
            self.assertIn("at step 4", error.text)
        self.all(lambda agent: agent.all_gather([1.0], step=5))

    def test_bad_words_are_refused_here(self):
        for call in (
            lambda agent: agent.all_reduce([1.0], "middle"),
            lambda agent: agent.all_gather([1.0], form="heap"),
        ):
            with self.assertRaises(tutti.TuttiError) as caught:
                call(self.agents[0])
            self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT")


if __name__ == "__main__":
    tap.main()
