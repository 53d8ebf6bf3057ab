"""Goal: arrays go by the native module, with as few copies as is said, and what goes wrong is told.

Method: ops on arrays small and large, from the agent and not, beside the package's own counter of copied
bytes; signals, forks and a second process; all against real agents. Without the module all is skipped but
what says so.
"""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc
import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))

import tap  # noqa: E402

import case
import tutti
from tutti._native_door import native

LARGE = 1 << 18  # elements: a MiB of FP32


def copied(agent, call):
    before = agent.copied
    call()
    return agent.copied - before


@unittest.skipIf(native is None, "no native module")
class NativeCase(case.AgentCase):
    """What copies how much."""

    def test_small_arrays_are_copied_into_the_call_and_out(self):
        for agent, bytes_copied in self.counted(lambda agent: agent.all_reduce(np.ones(3, np.float32))):
            self.assertEqual(bytes_copied, 24, agent)

    def test_permute_goes_this_way(self):
        ring = [(r + 1) % self.size for r in range(self.size)]
        for agent, bytes_copied in self.counted(lambda agent: agent.permute(np.ones(3, np.float32), ring)):
            self.assertEqual(bytes_copied, 24, agent)
        for wrong in ([0] * self.size, bytes(self.size), [1 << 40] * self.size, [0.5] * self.size):
            with self.assertRaises(Exception) as caught:
                self.all(lambda agent: agent.permute(np.ones(3, np.float32), wrong))
            if wrong in ([0] * self.size, bytes(self.size)):
                self.assertEqual(caught.exception.reason, "BAD_PERMUTATION")

    def test_a_large_array_is_copied_once(self):
        x = np.ones(LARGE, np.float32)
        for agent, bytes_copied in self.counted(lambda agent: agent.all_reduce(x)):
            self.assertEqual(bytes_copied, x.nbytes, agent)

    def test_into_an_array_of_the_program_it_is_copied_twice(self):
        outs = [np.empty(LARGE, np.float32) for _ in self.agents]
        x = np.ones(LARGE, np.float32)
        for agent, bytes_copied in self.counted(lambda agent: agent.all_reduce(x, out=outs[agent.rank])):
            self.assertEqual(bytes_copied, 2 * x.nbytes, agent)
        self.assertTrue((outs[0] == self.size).all())

    def test_a_result_is_not_copied_in_the_next_op(self):
        results = self.all(lambda agent: agent.all_reduce(np.ones(LARGE, np.float32)))
        for _, bytes_copied in self.counted(lambda agent: agent.all_reduce(results[agent.rank])):
            self.assertEqual(bytes_copied, 0)

    def test_arrays_of_the_agent_are_not_copied(self):
        for shape in ((), (3,), (LARGE,), (512, 512)):
            born = [agent.zeros(shape) for agent in self.agents]
            for one in born:
                one += 1
            wanted = 0 if born[0].base is not None else 8
            for _, bytes_copied in self.counted(lambda agent: agent.all_reduce(born[agent.rank], out=born[agent.rank])):
                self.assertEqual(bytes_copied, wanted)
            self.assertTrue((born[0] == self.size).all())

    def test_parts_of_such_an_array_are_not_copied(self):
        born = [agent.zeros(2 * LARGE) for agent in self.agents]
        for part in ([one[LARGE:] for one in born], [one[LARGE + 1 : LARGE + 4] for one in born]):
            for one in part:
                one[...] = 1
            for _, bytes_copied in self.counted(lambda agent: agent.all_reduce(part[agent.rank], out=part[agent.rank])):
                self.assertEqual(bytes_copied, 0)
            self.assertTrue((part[0] == self.size).all())
        self.assertFalse(born[0][:LARGE].any())

    def test_parts_that_meet_are_copied_before(self):
        born = [agent.zeros(LARGE + 1) for agent in self.agents]
        for one in born:
            one[...] = np.arange(LARGE + 1)
        for _, bytes_copied in self.counted(lambda agent: agent.all_reduce(born[agent.rank][1:], out=born[agent.rank][:-1])):
            self.assertEqual(bytes_copied, 4 * LARGE)
        np.testing.assert_array_equal(born[0][:-1], self.size * np.arange(1, LARGE + 1, dtype=np.float32))

    def counted(self, call):
        return self.all(lambda agent: (agent, copied(agent, lambda: call(agent))))

    # -------------------------------------------------------------------------- the same results

    def test_every_op_gives_what_the_long_way_gives(self):
        n = self.size
        for count in (2 * n, 8192 * n):
            x = [np.arange(count, dtype=np.int32) + agent.rank for agent in self.agents]
            total = sum(x)
            same = self.all(lambda agent: agent.all_reduce(x[agent.rank]))
            part = self.all(lambda agent: agent.reduce_scatter(x[agent.rank], "max"))
            every = self.all(lambda agent: agent.all_gather(x[agent.rank]))
            turned = self.all(lambda agent: agent.all_to_all(x[agent.rank]))
            moved = self.all(lambda agent: agent.permute(x[agent.rank], [(r + 1) % n for r in range(n)]))
            rooted = self.all(lambda agent: agent.reduce(x[agent.rank], "sum", 1))
            for rank in range(n):
                piece = slice(rank * (count // n), (rank + 1) * (count // n))
                np.testing.assert_array_equal(same[rank], total)
                np.testing.assert_array_equal(part[rank], x[n - 1][piece])
                np.testing.assert_array_equal(every[rank], np.concatenate(x))
                np.testing.assert_array_equal(moved[rank], x[rank - 1])
                np.testing.assert_array_equal(turned[rank], np.concatenate([one[piece] for one in x]))
                np.testing.assert_array_equal(rooted[rank], total) if rank == 1 else self.assertIsNone(rooted[rank])
                self.assertEqual(same[rank].dtype, np.int32)

    def test_ops_from_and_to_a_root(self):
        n = self.size
        for count in (2 * n, 8192 * n):
            x = [np.arange(count, dtype=np.int32) + 7 * agent.rank for agent in self.agents]
            same = self.all(lambda agent: agent.broadcast(x[agent.rank], 1))
            part = self.all(lambda agent: agent.scatter(x[agent.rank], 1))
            whole = self.all(lambda agent: agent.gather(x[agent.rank], 1))
            outs = [np.empty(count // n, np.int32) for _ in x]
            self.all(lambda agent: agent.scatter(x[agent.rank] if agent.rank == 1 else None, 1, out=outs[agent.rank]))
            scaled = self.all(lambda agent: agent.reduce(x[agent.rank].astype(np.float32), "premul_sum", 1))
            for rank in range(n):
                piece = x[1][rank * (count // n) : (rank + 1) * (count // n)]
                np.testing.assert_array_equal(same[rank], x[1])
                np.testing.assert_array_equal(part[rank], piece)
                np.testing.assert_array_equal(outs[rank], piece)
                np.testing.assert_array_equal(whole[rank], np.concatenate(x)) if rank == 1 else self.assertIsNone(whole[rank])
                np.testing.assert_array_equal(scaled[rank], sum(x)) if rank == 1 else self.assertIsNone(scaled[rank])
            self.assertFalse(np.shares_memory(same[1], x[1]))  # on the root too it is an array of its own

    def test_sends_and_receives(self):
        for count in (3, 8192):
            def call(agent):
                x = np.arange(count, dtype=np.float32) + agent.rank
                out = np.empty(count, np.float32)
                if agent.rank == 0:
                    agent.send(x, 1, tag=3, meta=b"said")
                    agent.send(x, 1, tag=4)
                    agent.send(x, 1, tag=5)
                    return None
                if agent.rank > 1:
                    return None
                anyone = agent.recv(tag=3, dtype=np.float32, shape=[count])
                placed = agent.recv(0, tag=4, out=out)
                return anyone, placed, agent.recv(0, tag=5), out

            anyone, placed, free, out = self.all(call)[1]
            for one in (anyone, placed, free):
                self.assertEqual((one.source, one.source_global), (0, 0))
                np.testing.assert_array_equal(one.tensor, np.arange(count, dtype=np.float32))
            self.assertEqual((anyone.meta, placed.meta), (b"said", b""))
            self.assertIs(placed.tensor, out)

    def test_both_sides_hear_of_a_wrong_shape(self):
        def call(agent):
            if agent.rank == 0:
                agent.send(np.ones((2, 3)), 1)
            if agent.rank == 1:
                agent.recv(0, dtype=np.float64, shape=[6])

        found = case.in_threads([lambda one=one: call(one) for one in self.agents])
        self.assertEqual([one.reason for one in found[:2]], ["SHAPE_MISMATCH"] * 2)

    def test_tensors_in_place_and_new(self):
        def call(agent):
            with agent.put(np.full(3, agent.rank + 1.0)) as x:
                self.assertIs(agent.all_reduce(x, out=x), x)
                total = x.numpy().tolist()
                with agent.all_reduce(x, "max") as made:
                    return total, made.shape, made.dtype_name, made.numpy().tolist()

        total = [float(sum(range(1, self.size + 1)))] * 3
        self.assertEqual(self.all(call), [(total, (3,), "FP64", total)] * self.size)

    def test_one_rank_may_go_the_long_way(self):
        def call(agent):
            x = np.full(LARGE, 1, np.float32)
            if agent.rank:
                return agent.all_reduce(x)
            with agent.put(x) as tensor, agent.all_reduce(tensor) as total:
                return total.numpy()

        for one in self.all(call):
            self.assertTrue((one == self.size).all())

    def test_strided_and_empty_arrays(self):
        strided = self.all(lambda agent: agent.all_reduce(np.arange(12.0).reshape(3, 4)[:, ::2]))
        np.testing.assert_array_equal(strided[0], self.size * np.array([[0.0, 2], [4, 6], [8, 10]]))
        self.assertEqual(self.all(lambda agent: agent.all_reduce(np.empty((0, 3))))[0].shape, (0, 3))

    def test_an_error_is_the_same_and_leaves_the_memory_good(self):
        for count in (2, LARGE):
            found = self.all_fail(lambda agent: agent.all_reduce(np.ones(count + agent.rank, np.float32)))
            for one in found:
                self.assertEqual((one.reason, one.group), ("SHAPE_MISMATCH", "world"))
            self.assertEqual(self.all(lambda agent: agent.all_reduce(np.ones(count)))[0][0], self.size)

    # -------------------------------------------------------------------------- lives

    def test_memory_is_used_again_when_its_array_is_gone(self):
        def call(agent):
            for _ in range(300):  # more would not fit into --shares-max
                agent.all_reduce(np.ones(LARGE, np.float32))
            gc.collect()
            return len(agent._fast._stages._idle) + len(agent._fast._stages._returned)

        self.assertLess(max(self.all(call)), 20)

    def test_an_array_outlives_its_connection(self):
        agent = tutti.connect(case.ADDRESSES[0])
        born = agent.zeros(LARGE)
        born += 3
        agent.close()
        self.assertEqual(born.sum(), 3 * LARGE)
        self.assertTrue(agent.empty(4).base is None)  # of a closed connection: of this program

    def test_an_array_that_goes_while_its_op_runs(self):
        agent, others = self.agents[0], self.agents[1:]
        started = threading.Event()

        def call():
            started.set()
            return agent.all_reduce(np.full(LARGE, 2.0))  # nobody else refers to it

        def late(other):
            started.wait()
            gc.collect()
            return other.all_reduce(np.full(LARGE, 2.0))

        results = case.good(case.in_threads([call] + [lambda one=one: late(one) for one in others]))
        self.assertTrue((results[0] == 2 * self.size).all())

    def test_a_closed_connection_says_so(self):
        agent = tutti.connect(case.ADDRESSES[0])
        agent.all_reduce(np.ones(2), timeout=10, group=self.alone(agent))
        agent.close()
        for count in (2, LARGE):
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.all_reduce(np.ones(count))
            self.assertEqual(caught.exception.reason, "CLOSED")

    def alone(self, agent):
        return agent.new_group([agent.rank], name="alone-%d-%d" % (agent.rank, os.getpid()))

    # -------------------------------------------------------------------------- signals, processes

    def test_ctrl_c_ends_a_waiting_op(self):
        agent = self.agents[0]
        for count in (2, LARGE):
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            began = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                agent.all_reduce(np.ones(count))
            self.assertLess(time.monotonic() - began, 30)  # the op itself would wait for minutes
            # Their turn in that op, which is over.
            case.in_threads([lambda one=one: one.all_reduce(np.ones(count)) for one in self.agents[1:]])
        self.assertEqual(self.all(lambda agent: agent.all_reduce(np.ones(2)))[0][0], self.size)

    def test_ctrl_c_ends_a_call_that_waits(self):
        calls = [
            lambda: self.agents[0].store.get("never-%d" % os.getpid(), wait=True),
            lambda: list(self.agents[0].store.watch("never-%d" % os.getpid())),
        ]
        for call in calls:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            began = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                call()
            self.assertLess(time.monotonic() - began, 20)
        self.assertGreater(self.agents[0].store.add("after-%d" % os.getpid(), 1), 0)

    def test_a_forked_child_is_told(self):
        agent = self.agents[0]
        mine = self.alone(agent)
        agent.all_reduce(np.ones(2), group=mine)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                agent.all_reduce(np.ones(2), group=mine)
            except tutti.TuttiError as error:
                os.write(writing, error.reason.encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            self.assertEqual(said.read(), "FORKED")
        os.waitpid(child, 0)
        self.assertEqual(agent.all_reduce(np.ones(2), group=mine)[0], 1)

    def test_a_fork_leaves_the_threads_of_grpc_alone(self):
        # grpcio 1.51 has executors, and its handlers start them anew in the parent; newer ones have none.
        program = (
            "import os, tutti\n"
            "def threads():\n"
            "    found = [(open('/proc/self/task/%%s/comm' %% one).read(), one) for one in os.listdir('/proc/self/task')]\n"
            "    return sorted(one for one in found if 'execut' in one[0])\n"
            "with tutti.connect('%s', timeout=60) as agent:\n"
            "    agent.tensors()\n"
            "    before = threads()  # one more may come later\n"
            "    child = os.fork()\n"
            "    if child == 0:\n"
            "        os._exit(0)\n"
            "    os.waitpid(child, 0)\n"
            "    print(set(before) <= set(threads()))\n" % case.ADDRESSES[0]
        )
        # The variable may be in this process by now: the package sets it.
        environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.stdout, "True\n", done.stderr)

    def test_connections_and_tensors_are_not_pickled(self):
        with self.agents[0].put([1.0]) as tensor:
            for thing in (self.agents[0], tensor):
                for way in (pickle.dumps, copy.deepcopy):
                    with self.assertRaises(TypeError) as caught:
                        way(thing)
                    self.assertIn("pickle", str(caught.exception))

    def test_an_array_of_the_agent_is_pickled_by_its_numbers(self):
        born = self.agents[0].zeros(LARGE)
        born += 1
        self.assertEqual(pickle.loads(pickle.dumps(born)).sum(), LARGE)


class ModeCase(unittest.TestCase):
    """TUTTI_PYTHON."""

    def run_with(self, mode, program):
        environment = dict(os.environ, TUTTI_PYTHON=mode)
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def test_grpc_needs_no_module(self):
        said = self.run_with("grpc", "import tutti, tutti._native_door as door; print(door.native)")
        self.assertEqual(said.strip(), "None")

    def test_neither_module_nor_grpcio_is_told(self):
        program = (
            "import sys; sys.modules['tutti._native'] = None; sys.modules['grpc'] = None; import tutti\n"
            "try:\n    tutti.connect('127.0.0.1:1')\nexcept tutti.TuttiError as error:\n    print(error)"
        )
        said = self.run_with("", program)
        self.assertIn("UNIMPLEMENTED NO_NATIVE: this package has no native module for this system, and grpcio cannot", said)

    def test_codes_are_equal_to_those_of_grpcio(self):
        for code in tutti.StatusCode:
            other = grpc.StatusCode[code.name]
            self.assertTrue(code == other and other == code and not code != other, code)
            self.assertEqual(len({code, other}), 1)
        self.assertNotEqual(tutti.StatusCode.OK, grpc.StatusCode.CANCELLED)
        self.assertNotEqual(tutti.StatusCode.OK, (0, "ok"))

    @unittest.skipUnless(case.ADDRESSES, "no agents")
    def test_grpcio_is_not_imported(self):
        program = (
            "import asyncio, sys, tutti, tutti.aio\n"
            "with tutti.connect('%s') as agent:\n"
            "    agent.store.set('mode', b'1')\n"
            "    agent.put([1.0]).numpy()\n"
            "    with agent.pipeline() as calls:\n"
            "        calls.barrier(group=agent.new_group([agent.rank], name='alone-mode-%d'))\n"
            "async def main():\n"
            "    async with await tutti.aio.connect('%s') as agent:\n"
            "        return await agent.store.get('mode')\n"
            "print(asyncio.run(main()), 'grpc' in sys.modules)\n" % (case.ADDRESSES[0], os.getpid(), case.ADDRESSES[0])
        )
        self.assertEqual(self.run_with("native", program).strip(), "b'1' False")

    def test_another_word_is_refused(self):
        self.assertIn("TUTTI_PYTHON is cffi, need native, grpc, or nothing", self.run_with("cffi", "import tutti"))

    def test_native_that_is_not_there_is_an_error(self):
        program = "import sys; sys.modules['tutti._native'] = None; import tutti"
        self.assertIn("NO_NATIVE", self.run_with("native", program))

    def test_another_libtutti_is_not_used(self):
        program = (
            "import sys, types; fake = types.ModuleType('tutti._native'); fake.version = lambda: '99.1.0'; "
            "fake.built_for = lambda: '0.1.0'; sys.modules['tutti._native'] = fake; import tutti; "
            "import tutti._native_door as door; print(door.native)"
        )
        self.assertEqual(self.run_with("", program).strip(), "None")
        said = self.run_with("native", program)
        self.assertIn("NO_NATIVE", said)
        self.assertIn("built for libtutti 0.1.0, and libtutti 99.1.0 is loaded", said)

    def test_arrays_of_no_connection_are_refused(self):
        said = self.run_with("", "import tutti\ntry:\n    tutti.zeros(4)\nexcept tutti.TuttiError as error:\n    print(error)")
        self.assertIn("no connection is open: call tutti.connect() before", said)

    @unittest.skipUnless(case.ADDRESSES, "no agents")
    def test_arrays_of_the_only_connection(self):
        program = (
            "import numpy as np, tutti\n"
            "with tutti.connect('%s') as agent:\n"
            "    mine = agent.new_group([agent.rank], name='default-array')\n"
            "    x = tutti.zeros((300, 500), np.float64)\n"
            "    x += 2\n"
            "    y = tutti.empty(3, 'INT32')\n"
            "    y[:] = 7\n"
            "    before = agent.copied\n"
            "    assert (agent.all_reduce(x, group=mine) == 2).all() and x.dtype == np.float64\n"
            "    assert agent.all_reduce(y, group=mine).tolist() == [7, 7, 7] and y.dtype == np.int32\n"
            "    print(agent.copied - before)\n"
            "    mine.delete()\n"
            "    with tutti.connect('%s') as other:\n"
            "        try:\n"
            "            tutti.empty(4)\n"
            "        except tutti.TuttiError as error:\n"
            "            print(error)\n"
            "    print(tutti.zeros(2))\n" % ((case.ADDRESSES[0],) * 2)
        )
        for mode in ("native", "grpc"):
            said = self.run_with(mode, program).splitlines()
            self.assertEqual(said[0], "0" if mode == "native" else said[0], said)
            self.assertIn("2 connections are open", said[1])
            self.assertEqual(said[2], "[0. 0.]")

    @unittest.skipUnless(case.ADDRESSES, "no agents")
    def test_a_spawned_process_connects_by_itself(self):
        program = (
            "import multiprocessing as m, numpy as np, tutti\n"
            "def work(address):\n"
            "    with tutti.connect(address, timeout=60) as agent:\n"
            "        mine = agent.new_group([agent.rank], name='spawned')\n"
            "        return float(agent.all_reduce(np.ones(2), group=mine)[0])\n"
            "if __name__ == '__main__':\n"
            "    with m.get_context('spawn').Pool(1) as pool:\n"
            "        print(pool.apply(work, ('%s',)))\n" % case.ADDRESSES[0]
        )
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "spawns.py")
            with open(path, "w") as file:
                file.write(program)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.stdout.strip(), "1.0", done.stderr)


if __name__ == "__main__":
    tap.main()
