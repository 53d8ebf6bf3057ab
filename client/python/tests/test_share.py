"""Goal: a tensor's memory is an array of ours where it can be, and a copy that passes for it elsewhere.

Method: agents of this machine; another host id stands for another machine.
"""

import asyncio
import os
import sys
import time
import unittest.mock
import warnings

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
import tutti._memory  # noqa: E402
import tutti.aio  # noqa: E402
from case import ramp  # noqa: E402


def elsewhere():
    return unittest.mock.patch.dict(os.environ, TUTTI_HOST_ID="elsewhere")


class Shared(case.AgentCase):
    def test_an_array_is_the_tensor(self):
        agent = self.agents[0]
        with agent.put(ramp(agent, 100).reshape(10, 10)) as tensor:
            with agent.share(tensor, writable=True) as view:
                self.assertTrue(view.shared)
                self.assertEqual((view.array.shape, view.array.dtype), ((10, 10), np.float32))
                view.array[3, 4] = 99
                view.push()
                self.assertEqual(tensor.numpy()[3, 4], 99)
                tensor.write(np.zeros((10, 10), np.float32))
                view.pull()
                self.assertFalse(view.array.any())

    def test_every_dtype_has_its_shape(self):
        agent = self.agents[0]
        for name in ("BOOL", "UINT8", "INT64", "FP16", "BF16", "FP64", "COMPLEX64"):
            with agent.create((3, 5), name) as tensor, agent.share(tensor) as view:
                self.assertEqual(view.array.shape, (3, 5))
                self.assertEqual(view.array.dtype, tensor.dtype)

    def test_for_reading_it_is_not_written(self):
        agent = self.agents[0]
        with agent.put(ramp(agent)) as tensor, agent.share(tensor) as view:
            with self.assertRaises(ValueError):
                view.array[0] = 1
            with self.assertRaises(ValueError):
                view.array.flags.writeable = True
            with self.assertRaises(tutti.TuttiError) as caught:
                view.push()
            self.assertEqual(caught.exception.reason, "READ_ONLY")

    def test_torch_sees_the_same_memory(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch here: install python3-torch")
        agent = self.agents[0]
        for name in ("FP32", "BF16", "INT64"):
            with agent.create((2, 3), name) as tensor:
                with agent.share(tensor, writable=True) as view:
                    view.torch().fill_(1)
                    self.assertTrue((tensor.torch() == torch.ones(2, 3)).all())
                with agent.share(tensor) as view, self.assertRaises(tutti.TuttiError):
                    view.torch()

    def test_ops_run_in_place_on_it(self):
        def work(agent):
            with agent.put(np.zeros(50000, np.float32)) as tensor:
                with agent.share(tensor, writable=True) as view:
                    view.array[:] = agent.rank
                    agent.all_reduce(tensor, out=tensor)
                    return view.array.copy()

        wanted = sum(range(self.size))
        for result in self.all(work):
            self.assertTrue((result == wanted).all())

    def test_arrays_outlive_the_view_and_the_tensor(self):
        agent = self.agents[0]
        tensor = agent.put(ramp(agent, 1000))
        with agent.share(tensor) as view:
            part = view.array[10:20]
            self.assertFalse(view.revoked)
            tensor.delete()
            until = time.monotonic() + case.LONG_S
            while not view.revoked:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.001)
        self.assertEqual(list(part), list(range(10, 20)))

    def test_the_agent_gets_its_memory_back(self):
        agent = self.agents[0]
        size = 4 << 20  # more than tests before this one may still be giving back
        with agent.share(agent.create((size // 4,), name="lent")) as view:
            view.tensor.delete()
            self.assertGreaterEqual(agent.stats().memory_used_bytes, size)
        until = time.monotonic() + case.LONG_S
        while agent.stats().memory_used_bytes >= size:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.001)

    def test_bad_handles_are_told(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].share("nobody")
        self.assertEqual(caught.exception.reason, "NO_TENSOR")


class Copied(case.AgentCase):
    def test_a_copy_passes_for_it(self):
        agent = self.agents[0]
        with agent.put(ramp(agent)) as tensor, elsewhere(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with agent.share(tensor, writable=True) as view:
                self.assertFalse(view.shared or view.revoked)
                view.array[0] = 42
                self.assertEqual(tensor.numpy()[0], 0)
                view.push()
                self.assertEqual(tensor.numpy()[0], 42)
                tensor.write(np.full(6, 7, np.float32))
                view.pull()
                self.assertEqual(list(view.array), [7] * 6)
            with agent.share(tensor) as view:
                with self.assertRaises(ValueError):
                    view.array[0] = 1
                view.pull()
                with self.assertRaises(ValueError):
                    view.array[0] = 1

    def test_it_warns_once_and_says_why(self):
        agent = self.agents[0]
        tutti._memory._said.clear()
        with agent.put(ramp(agent)) as tensor, elsewhere():
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for _ in range(3):
                    agent.share(tensor).close()
        self.assertEqual(len(said), 1)
        self.assertIn("elsewhere", str(said[0].message))

    def test_without_copies_it_fails_and_says_why(self):
        agent = self.agents[0]
        with agent.put(ramp(agent)) as tensor, elsewhere():
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.share(tensor, copy=False)
            self.assertEqual(caught.exception.reason, "OTHER_HOST")

    def test_no_bytes_are_no_news(self):
        agent = self.agents[0]
        tutti._memory._said.clear()
        with agent.create((0, 3)) as tensor, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with agent.share(tensor, writable=True) as view:
                self.assertEqual(view.array.shape, (0, 3))
        self.assertEqual(said, [])


class Aio(case.AgentCase):
    def test_the_same_with_coroutines(self):
        async def work():
            async with await tutti.aio.connect(case.ADDRESSES[0]) as agent:
                async with await agent.put(np.zeros(10)) as tensor:
                    async with await agent.share(tensor, writable=True) as view:
                        view.array[:] = 3
                        await view.push()
                        found = await tensor.numpy()
                        await view.pull()
                        return view.shared, found

        shared, found = asyncio.run(work())
        self.assertTrue(shared)
        self.assertEqual(list(found), [3.0] * 10)


if __name__ == "__main__":
    tap.main()
