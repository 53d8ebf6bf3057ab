"""Goal: the asyncio API against real agents: what differs from the blocking one, and the rest once.

Method: all ranks are tasks of one loop.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
import tutti.aio  # noqa: E402
from tutti._native_door import native  # noqa: E402

LARGE = 1 << 18  # elements: a MiB of FP32
PROGRAMS = os.environ.get("TUTTI_PROGRAMS") or os.environ.get("TUTTI_BUILD", "")


async def left_over(agent):
    """As case.AgentCase.tensors_left."""
    until = time.monotonic() + case.LONG_S
    while True:
        left = await agent.tensors()
        if not any("pending" in str(tensor) for tensor in left) or time.monotonic() > until:
            return left
        await asyncio.sleep(0.01)


@unittest.skipUnless(case.ADDRESSES, "no agents: set TUTTI_TEST_AGENTS to their addresses")
class Aio(unittest.TestCase):
    def run_all(self, work):
        """work(agent) of all ranks at once."""

        async def main():
            agents = [await tutti.aio.connect(one, timeout=case.LONG_S) for one in case.ADDRESSES]
            try:
                return await asyncio.gather(*[work(one) for one in agents], return_exceptions=True)
            finally:
                for one in agents:
                    self.assertEqual(await left_over(one), [])
                    await one.close()

        return asyncio.run(main())

    def test_a_block_ends_what_it_made(self):
        async def main():
            watcher = await tutti.aio.connect(case.ADDRESSES[0], timeout=case.LONG_S)
            async with await tutti.aio.connect(case.ADDRESSES[0], timeout=case.LONG_S) as agent:
                await asyncio.gather(*[agent.put(np.ones(4)) for _ in range(4)])
                await agent.put(np.ones(2 << 20))
                self.assertEqual(len(await watcher.tensors()), 5)
            until = time.monotonic() + case.LONG_S
            while await watcher.tensors():
                self.assertLess(time.monotonic(), until)
                await asyncio.sleep(0.01)
            await watcher.close()

        asyncio.run(main())

    def test_ops_of_one_loop_meet(self):
        async def work(agent):
            total = await agent.all_reduce(np.full(4, agent.rank, np.float32))
            async with await agent.put(total) as x:
                work = await agent.broadcast(x if agent.rank == 0 else None, async_=True)
                async with await work.wait() as made:
                    return (await made.numpy()).tolist()

        size = len(case.ADDRESSES)
        want = [float(sum(range(size)))] * 4
        self.assertEqual(self.run_all(work), [want] * size)

    def test_large_arrays_travel_in_chunks(self):
        async def work(agent):
            found = await agent.all_reduce(np.ones(1 << 20, np.float32))
            return float(found.min()), float(found.max()), found.shape

        size = len(case.ADDRESSES)
        self.assertEqual(self.run_all(work), [(size, size, (1 << 20,))] * size)

    def test_errors_are_the_same(self):
        async def work(agent):
            await agent.all_reduce(np.ones(2 + agent.rank % 2))

        for error in self.run_all(work):
            self.assertIsInstance(error, tutti.TuttiError)
            self.assertEqual((error.reason, error.group), ("SHAPE_MISMATCH", "world"))

    def test_groups_store_and_objects(self):
        async def work(agent):
            if agent.rank == 0:
                await agent.store.set("aio/1", "one")
            await agent.store.wait("aio/1", timeout=case.LONG_S)
            entries = [entry.value async for entry in agent.store.list("aio/")]
            mesh = await agent.new_mesh([len(case.ADDRESSES)], ["all"], name="aio")
            group = await mesh.group("all")
            blob = await agent.broadcast_object({"x": agent.rank}, root=1, group=group)
            return entries, blob.value()

        self.assertEqual(self.run_all(work), [([b"one"], {"x": 1})] * len(case.ADDRESSES))

    def test_tapes_values_and_groups_of_lists(self):
        async def work(agent):
            same = await agent.broadcast_value(agent.rank == 1, 1)
            met = await agent.meet("aio", len(case.ADDRESSES), group_rank=agent.rank)
            halves = [[0, 1], [2, 3]]
            sum_ = await agent.all_reduce(np.array([agent.rank]), group=halves)
            async with await agent.tape() as tape:
                x = await tape.watch(np.ones(2))
                async with await agent.all_reduce(x) as y:
                    (gradient,) = await tape.gradient({y: np.ones(2)})
            return same, met.group_rank, int(sum_[0]), gradient.tolist()

        size = len(case.ADDRESSES)
        want = [(True, rank, [1, 1, 5, 5][rank], [size, size]) for rank in range(size)]
        self.assertEqual(self.run_all(work), want)

    def test_a_task_that_is_cancelled_cancels_its_op(self):
        cancelled = []

        async def work(agent):
            while agent.rank and not cancelled:
                await asyncio.sleep(0)
            mine = asyncio.ensure_future(agent.all_reduce(np.ones(3), out=np.zeros(3)))
            if agent.rank == 0:
                while not (await agent.stats()).op_running_count:  # it is in the agent
                    await asyncio.sleep(0)
                mine.cancel()
                while (await agent.stats()).op_running_count:  # the agent has heard of it
                    await asyncio.sleep(0)
                cancelled.append(True)
            said = (await asyncio.gather(mine, return_exceptions=True))[0]
            again = await agent.all_reduce(np.ones(1))
            reason = "CANCELLED" if isinstance(said, asyncio.CancelledError) else said.reason
            return reason, float(again[0])

        size = len(case.ADDRESSES)
        want = [("CANCELLED", size)] + [("CALLER_GONE", size)] * (size - 1)
        self.assertEqual(self.run_all(work), want)

    @unittest.skipIf(native is None, "no native module")
    def test_many_ops_wait_in_no_threads(self):
        async def work(agent):
            count, before = 200, threading.active_count()
            groups = [await agent.new_group(range(len(case.ADDRESSES)), name="aio-many-%d" % i) for i in range(8)]
            waits = [asyncio.ensure_future(agent.recv(tag=i + 1, dtype=np.int64, shape=[1])) for i in range(count)]
            await asyncio.sleep(0)
            self.assertLessEqual(threading.active_count(), before + 8)  # of the executor, which maps and connects
            other = (agent.rank + 1) % len(case.ADDRESSES)
            sums = [agent.all_reduce(np.full(LARGE, i, np.float32), group=one) for i, one in enumerate(groups)]
            sends = [agent.send(np.array([i]), other, tag=i + 1) for i in reversed(range(count))]
            found = await asyncio.gather(*sums, *sends, *waits)
            return [float(one[-1]) for one in found[:8]], [int(one.tensor[0]) for one in found[-count:]]

        size = len(case.ADDRESSES)
        want = ([float(size * i) for i in range(8)], list(range(200)))
        self.assertEqual(self.run_all(work), [want] * size)

    @unittest.skipIf(native is None, "no native module")
    def test_arrays_of_the_agent_are_not_copied(self):
        async def work(agent):
            born = await agent.zeros(LARGE)
            born += 1
            before = agent.copied
            await agent.all_reduce(born, out=born)
            return agent.copied - before, float(born[0])

        size = len(case.ADDRESSES)
        self.assertEqual(self.run_all(work), [(0, float(size))] * size)

    @unittest.skipIf(native is None, "no native module")
    def test_a_connection_that_is_closed_ends_its_ops(self):
        async def main():
            agent = await tutti.aio.connect(case.ADDRESSES[0], timeout=case.LONG_S)
            waiting = asyncio.ensure_future(agent.recv(1, tag=77, dtype=np.int64, shape=[1]))
            while not agent._fast._engine or not agent._fast._engine._waiting:
                await asyncio.sleep(0)
            await agent.close()
            with self.assertRaises(tutti.TuttiError) as caught:
                await waiting
            return caught.exception.reason

        self.assertEqual(asyncio.run(main()), "CLOSED")

    def test_a_connection_that_is_closed_ends_its_watches(self):
        async def main():
            agent = await tutti.aio.connect(case.ADDRESSES[0], timeout=case.LONG_S)
            watch = agent.store.watch("aio-closed")
            self.assertIsNone(await watch.__anext__())
            waiting = asyncio.ensure_future(watch.__anext__())
            await asyncio.sleep(0)
            await agent.close()
            with self.assertRaises(tutti.TuttiError) as caught:
                await asyncio.wait_for(waiting, case.LONG_S)
            return str(caught.exception)

        self.assertRegex(asyncio.run(main()), r"^CANCELLED GIVEN_UP: \S*Watch to \S+ was cancelled by this program$")

    def test_a_pipeline_is_read_by_who_waits(self):
        async def work(agent):
            async with await agent.pipeline(in_flight_max=8) as calls:
                replies = [await calls.all_reduce(np.array([i])) for i in range(100)]
                found = await asyncio.gather(*[reply.wait() for reply in reversed(replies)])
            view = agent.store.view("aio-view").view(str(agent.rank))
            await view.set("x", "1")
            keys = await view.keys()
            await view.delete("x")
            works = [await agent.all_reduce(np.ones(1), async_=True) for _ in range(3)]
            total = sum([float(one[0]) for one in await agent.wait(works)])
            return [int(one[0]) for one in found[:2]], keys, total

        size = len(case.ADDRESSES)
        self.assertEqual(self.run_all(work), [([99 * size, 98 * size], [b"x"], 3.0 * size)] * size)

    def test_a_pipeline_that_is_given_up_says_so(self):
        async def work(agent):
            calls = await agent.pipeline()
            reply = await calls.recv((agent.rank + 1) % len(case.ADDRESSES), tag=9, keep=True)
            calls.cancel()
            with self.assertRaises(tutti.TuttiError) as caught:
                await reply.wait()
            until = time.monotonic() + case.LONG_S
            while await agent.tensors():  # the agent hears of it a moment later
                self.assertLess(time.monotonic(), until)
                await asyncio.sleep(0.01)
            return caught.exception.code.name

        self.assertEqual(self.run_all(work), ["CANCELLED"] * len(case.ADDRESSES))

    def test_a_call_can_be_cancelled(self):
        async def work(agent):
            if agent.rank:
                return None
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(agent.store.wait("never"), 0.05)
            return await agent.store.count("never")

        self.assertEqual(self.run_all(work)[0], 0)


class Deaths(unittest.TestCase):
    @unittest.skipIf(native is None, "no native module")
    def test_an_agent_that_ends_leaves_the_loop_alone_and_one_that_comes_back_is_used(self):
        with tempfile.TemporaryDirectory(prefix="tutti-aio-") as folder:
            address = "unix:" + os.path.join(folder, "agent.sock")

            def start():
                words = ["--with-coordinator", "--parent-pid", str(os.getpid()), "--world-size", "1", "--listen", address]
                found = subprocess.Popen([os.path.join(PROGRAMS, "tutti-agent"), *words], stderr=subprocess.DEVNULL)
                self.addCleanup(found.wait)
                self.addCleanup(found.kill)
                return found

            async def add(agent):
                return (await agent.all_reduce(np.ones(2, np.float32))).tolist()

            async def main():
                first = start()
                agent = await tutti.aio.connect(address, wait=True, timeout=case.LONG_S)
                self.assertEqual(await add(agent), [1, 1])
                first.kill()
                first.wait()
                with self.assertRaises(tutti.TuttiError):
                    await add(agent)
                until = time.monotonic() + case.LONG_S
                while agent._fast._engine._queue is not None:  # or the loop would never sleep again: that is readable for ever
                    self.assertLess(time.monotonic(), until)
                    await asyncio.sleep(0.01)
                start()
                until, found = time.monotonic() + case.LONG_S, None
                while found is None and time.monotonic() < until:
                    try:
                        found = await add(agent)
                    except tutti.TuttiError:
                        await asyncio.sleep(0.05)
                self.assertEqual(found, [1, 1])
                await agent.close()

            asyncio.run(main())


if __name__ == "__main__":
    tap.main()
