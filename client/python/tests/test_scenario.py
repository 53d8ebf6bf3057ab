"""Goal: what every client of every language does: find the ranks, upload, all-reduce, broadcast
asynchronously, download, read an error's details; blocking and asyncio.

Method: one program that drives all ranks, from one address.
"""

import asyncio
import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
import tutti.aio  # noqa: E402

COUNT = (1 << 20) + 3  # floats: several chunks, and a part of one


@unittest.skipUnless(case.ADDRESSES, "no agents: set TUTTI_TEST_AGENTS to their addresses")
class Scenario(unittest.TestCase):
    def check_error(self, error, op):
        self.assertIsInstance(error, tutti.TuttiError)
        self.assertEqual((error.code.name, error.reason), ("INVALID_ARGUMENT", "SHAPE_MISMATCH"))
        self.assertEqual((error.group, error.op > op), ("world", True))

    def check_arrays(self, total, root, size):
        self.assertEqual((total.shape, set(total.tolist())), ((COUNT,), {size * (size + 1) / 2}))
        self.assertEqual((root.shape, set(root.tolist())), ((COUNT,), {2.0}))

    def test_blocking(self):
        with tutti.connect(case.ADDRESSES[0]) as first:
            agents = [first.connect_rank(info.rank) for info in first.ranks()]
        results = case.in_threads([lambda one=one: self.rank(one) for one in agents])
        for agent, error in zip(agents, results):
            self.check_error(error, 2)
            self.assertEqual(agent.tensors(), [])
            agent.close()

    def rank(self, agent):
        with agent.put(np.full(COUNT, agent.rank + 1, np.float32)) as mine:
            with agent.all_reduce(mine) as total:
                array = total.numpy()
                work = agent.broadcast(mine if agent.rank == 1 else None, root=1, async_=True)
                made = work.wait()
                self.check_arrays(array, made.numpy(), agent.world_size)
                made.delete()
        agent.all_reduce(np.zeros(2 + agent.rank % 2))

    def test_asyncio(self):
        async def main():
            async with await tutti.aio.connect(case.ADDRESSES[0]) as first:
                agents = [await first.connect_rank(info.rank) for info in await first.ranks()]
            tasks = [self.rank_aio(one) for one in agents]
            for agent, error in zip(agents, await asyncio.gather(*tasks, return_exceptions=True)):
                self.check_error(error, 2)
                self.assertEqual(await agent.tensors(), [])
                await agent.close()

        asyncio.run(main())

    async def rank_aio(self, agent):
        async with await agent.put(np.full(COUNT, agent.rank + 1, np.float32)) as mine:
            async with await agent.all_reduce(mine) as total:
                array = await total.numpy()
                x = mine if agent.rank == 1 else None
                work = await agent.broadcast(x, root=1, async_=True)
                made = await work.wait()
                self.check_arrays(array, await made.numpy(), agent.world_size)
                await made.delete()
        await agent.all_reduce(np.zeros(2 + agent.rank % 2))


if __name__ == "__main__":
    tap.main()
