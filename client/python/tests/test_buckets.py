"""Goal: packing inside the agent, gradients in buckets and functions that wait for all ranks.

Method: one thread for each rank; numpy says what must come. With TUTTI_TEST_DEVICE also on a GPU.
"""

import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402

DEVICES = ["cpu"] + [one for one in [os.environ.get("TUTTI_TEST_DEVICE")] if one]


class Parts(case.AgentCase):
    def test_elements_are_copied_into_a_new_tensor(self):
        agent = self.agents[0]
        for device in DEVICES:
            for dtype in (np.int32, np.complex128, np.uint8):
                with agent.put(np.arange(10).astype(dtype), device=device) as x:
                    for how, want in (
                        (dict(offset=2, count=4, shape=(2, 2)), [[2, 3], [4, 5]]),
                        (dict(offset=7), [7, 8, 9]),
                        (dict(offset=10), []),
                        (dict(count=1, shape=(1, 1)), [[0]]),
                    ):
                        with x.copy(**how) as made:
                            self.assertEqual(made.numpy().tolist(), want)
                            self.assertEqual(made.device(), device)

    def test_elements_are_copied_into_another_and_the_rest_stays(self):
        agent = self.agents[0]
        for there in DEVICES:
            for here in DEVICES:
                with agent.put(np.arange(6), device=here) as x, agent.put(
                    np.full((2, 3), 9), device=there
                ) as y:
                    x.copy(into=y, offset=1, count=2, into_offset=2)
                    self.assertEqual(y.numpy().tolist(), [[9, 9, 1], [2, 9, 9]])
                    y.copy(into=y, offset=2, count=2, into_offset=4)
                    self.assertEqual(y.numpy().tolist(), [[9, 9, 1], [2, 1, 2]])

    def test_large_parts_are_copied_in_pieces(self):
        agent = self.agents[0]
        data = np.arange(3 << 20, dtype=np.int32)
        for there in DEVICES:
            for here in DEVICES:
                with agent.put(data, device=here) as x:
                    with agent.create(data.shape, "INT32", device=there) as y:
                        x.copy(into=y, offset=5, into_offset=3)
                        found = y.numpy()
                np.testing.assert_array_equal(found[3:-2], data[5:])
                self.assertEqual(found[:3].tolist() + found[-2:].tolist(), [0] * 5)

    def test_what_is_not_inside_is_refused(self):
        agent = self.agents[0]
        with agent.put(np.arange(6)) as x, agent.put(np.zeros(4)) as other, agent.put(
            np.arange(4)
        ) as small:
            for how, reason in (
                (dict(offset=7), "BAD_OFFSET"),
                (dict(offset=5, count=2), "BAD_OFFSET"),
                (dict(offset=(1 << 64) - 1, count=2), "BAD_OFFSET"),
                (dict(into=small, count=2, into_offset=3), "BAD_OFFSET"),
                (dict(into=small, count=2, into_offset=(1 << 64) - 1), "BAD_OFFSET"),
                (dict(into=x, count=2, into_offset=1), "BAD_OFFSET"),
                (dict(into=other, count=2), "DTYPE_MISMATCH"),
                (dict(count=2, shape=(3,)), "SHAPE_MISMATCH"),
                (dict(count=2, shape=(-2,)), "BAD_SHAPE"),
                (dict(count=2, shape=(1,) * 17), "BAD_SHAPE"),
            ):
                with self.assertRaises(tutti.TuttiError) as caught:
                    x.copy(**how)
                self.assertEqual(caught.exception.reason, reason, how)
            self.assertEqual(small.numpy().tolist(), [0, 1, 2, 3])


class Packing(case.AgentCase):
    def test_tensors_are_packed_and_taken_apart(self):
        agent = self.agents[0]
        arrays = [np.arange(1), np.arange(9).reshape(3, 3), np.zeros((0, 2), int), np.array(7)]
        for device in DEVICES:
            tensors = [agent.put(one, device=device) for one in arrays]
            packed = agent.pack(tensors, name="packed")
            self.assertEqual(packed.numpy().tolist(), [0] + list(range(9)) + [7])
            self.assertEqual(packed.device(), device)
            parts = agent.unpack(packed, [one.shape for one in arrays])
            for part, one in zip(parts, arrays):
                np.testing.assert_array_equal(part.numpy(), one)
            self.free(packed, *tensors, *parts)

    def test_arrays_are_packed_here(self):
        agent = self.agents[0]
        packed = agent.pack([np.arange(2), np.ones((2, 2), int)])
        self.assertEqual(packed.tolist(), [0, 1, 1, 1, 1, 1])
        parts = agent.unpack(packed, [(1,), (2, 2)])
        self.assertEqual([one.tolist() for one in parts], [[0], [[1, 1], [1, 1]]])

    def test_offsets_leave_gaps(self):
        agent = self.agents[0]
        given = [np.ones(2, int), np.full(2, 2)]
        with agent.put(given[0]) as x, agent.put(given[1]) as y:
            with agent.pack([x, y], [4, 6, 1, 3]) as packed:
                self.assertEqual(packed.numpy().tolist(), [0, 2, 2, 0, 1, 1])
                parts = agent.unpack(packed, [(2,), (2, 1)], [4, 6, 1, 3])
                self.assertEqual([one.numpy().tolist() for one in parts], [[1, 1], [[2], [2]]])
                self.free(*parts)
        self.assertEqual(agent.pack(given, [4, 6, 1, 3]).tolist(), [0, 2, 2, 0, 1, 1])

    def test_what_does_not_fit_is_refused(self):
        agent = self.agents[0]
        two = [np.ones(2), np.ones(2)]
        for call, reason in (
            (lambda: agent.pack([]), "EMPTY_LIST"),
            (lambda: agent.pack(two, [0, 2]), "BAD_OFFSET"),
            (lambda: agent.pack(two, [0, 2, 1, 3]), "BAD_OFFSET"),
            (lambda: agent.pack(two, [0, 3, 3, 5]), "BAD_OFFSET"),
            (lambda: agent.pack([np.ones(2), np.ones(2, int)]), "DTYPE_MISMATCH"),
            (lambda: agent.unpack(np.ones(3), [(2, 2)]), "BAD_OFFSET"),
        ):
            with self.assertRaises(tutti.TuttiError) as caught:
                call()
            self.assertEqual(caught.exception.reason, reason)
        with agent.put(np.ones(2)) as x, agent.put(np.ones(2, int)) as y:
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.pack([x, y])
            self.assertEqual(caught.exception.reason, "DTYPE_MISMATCH")


class Gradients(case.AgentCase):
    def test_gradients_are_averaged_in_place_in_buckets_of_a_dtype(self):
        mean = (self.size - 1) / 2

        def work(agent):
            arrays = [np.full((i + 1, 2), agent.rank, np.float32) for i in range(20)]
            arrays.append(np.full(3, agent.rank, np.float64))
            before = agent.stats().op_done_count
            with agent.gradient_buckets(bucket_bytes=800) as buckets:
                for one in arrays:
                    buckets.add(one)
            ops = agent.stats().op_done_count - before
            return all((one == mean).all() for one in arrays), ops

        self.assertEqual(self.all(work), [(True, 3)] * self.size)

    def test_tensors_of_the_agent_have_the_result_too(self):
        def work(agent):
            with agent.put(np.full(2, agent.rank + 1.0)) as x:
                with agent.put(np.full((2, 2), agent.rank + 2.0)) as y:
                    agent.all_reduce_gradients([x, y], "sum")
                    return x.numpy().tolist(), y.numpy().tolist()

        ranks = sum(range(self.size))
        low, high = float(ranks + self.size), float(ranks + 2 * self.size)
        self.assertEqual(self.all(work), [([low] * 2, [[high] * 2] * 2)] * self.size)

    def test_torch_gradients_are_averaged(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")

        def work(agent):
            layer = torch.nn.Linear(2, 1)
            layer(torch.full((1, 2), float(agent.rank))).sum().backward()
            agent.all_reduce_gradients([one.grad for one in layer.parameters()])
            return layer.weight.grad.tolist(), layer.bias.grad.tolist()

        mean = (self.size - 1) / 2
        self.assertEqual(self.all(work), [([[mean, mean]], [1.0])] * self.size)

    def test_a_synchronized_function_ends_when_all_have_ended(self):
        ended = []

        def work(agent):
            @agent.synchronized
            def load(value, more=0):
                """Words."""
                ended.append(agent.rank)
                return value + more

            self.assertEqual(load.__doc__, "Words.")
            return load(1, more=2), len(ended)

        self.assertEqual(self.all(work), [(3, self.size)] * self.size)


if __name__ == "__main__":
    tap.main()
