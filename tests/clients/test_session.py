#!/usr/bin/python3
"""Goal: programs that drive workers as TVM Disco's controller does work on real agents: its own tests'
scenarios, and what goes wrong: functions that fail and crash, workers and leaders that die, clients
that go.

Method: the Python package in the world of Debian's grpcio; four agents with the plug-in of
tests/plugins, and beside each a host with disco_functions.py.
"""

import asyncio
import os
import subprocess
import sys
import time
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap
import worlds
from worlds import support

HERE = os.path.dirname(os.path.abspath(__file__))
PLUGIN_FOLDER = os.path.join(support.BUILD, "tests", "plugins")
PLUGIN = os.path.join(PLUGIN_FOLDER, "tests_plugin.so")
LONG_S = 60
SIZE = 4

if __name__ == "__main__" and "TUTTI_TEST_PACKAGE" not in os.environ:
    python, folder = worlds.install("debian", "session")
    known = {"TUTTI_TEST_PACKAGE": folder, "PYTHONPATH": os.pathsep.join([folder, HERE])}
    words = [python, os.path.abspath(__file__)]
    sys.exit(subprocess.run(words, env=dict(os.environ, **known), close_fds=False).returncode)

import numpy as np

import tutti
import tutti.aio

OPTIONS = ("--plugin", PLUGIN, "--module-path", PLUGIN_FOLDER, "--functions", "disco,disco_later")


def start_hosts(cluster, ranks=range(SIZE)):
    """A host beside each agent; they are there when each agent has their functions."""
    words = [sys.executable, "-m", "tutti.host", "disco_functions", "--agent"]
    hosts = [
        subprocess.Popen(
            words + [cluster.agents[rank].address],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            close_fds=False,
        )
        for rank in ranks
    ]
    for host in hosts:
        assert b"serving" in host.stdout.readline()
    return hosts


def end_hosts(hosts):
    for host in hosts:
        host.terminate()
    for host in hosts:
        host.communicate(timeout=LONG_S)


class SessionCase(unittest.TestCase):
    size = SIZE

    @classmethod
    def setUpClass(cls):
        cls.cluster = worlds.Cluster(cls.size, agent_options=OPTIONS)
        cls.addresses = [agent.address for agent in cls.cluster.agents]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def session(self, leader=0, **how):
        session = tutti.session(self.addresses[leader], **how)
        self.addCleanup(session.shutdown)
        return session

    def two_workers(self):
        """A group of the first two ranks, and a session on it."""
        agents = [tutti.connect(one) for one in self.addresses[:2]]
        name = "two-%s" % self.id().rsplit(".", 1)[1]
        agents[0].new_group([0, 1], name=name[:127])
        for agent in agents:
            agent.close()
        return self.session(group=name[:127])

    def values(self, ref):
        return ref.debug_get_from_all()

    def arrays(self, ref):
        return [None if one is None else one.tolist() for one in ref.debug_get_from_all()]

    def set_each(self, session, *arrays):
        """A register with an array for each worker."""
        ref = session.value(None)
        for worker, array in enumerate(arrays):
            if array is not None:
                ref.debug_copy_from(worker, array)
        return ref

    def fails(self, reason, call, *args, **how):
        with self.assertRaises(tutti.TuttiError) as caught:
            call(*args, **how)
        self.assertEqual(caught.exception.reason, reason, caught.exception)
        return caught.exception

    def wait_empty(self, addresses=None, within=LONG_S):
        """No agent keeps anything of a session that is over."""
        until = time.monotonic() + within
        for address in addresses or self.addresses:
            with tutti.connect(address) as agent:
                while agent.tensors():
                    self.assertLess(time.monotonic(), until, agent.tensors())
                    time.sleep(0.01)


class Scenarios(SessionCase):
    """TVM Disco's own tests: test_session.py, test_callback.py, test_ccl.py."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hosts = start_hosts(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        end_hosts(cls.hosts)
        super().tearDownClass()

    def tearDown(self):
        self.doCleanups()
        self.wait_empty()

    # -------------------------------------------------------------------- test_session.py

    def test_int_float_string_and_shape(self):
        session = self.session()
        for name, given, want in (
            ("tests.add_one", 1, 2),
            ("tests.add_half", 1.5, 2.0),
            ("tests.suffix", "hello", "hello_suffix"),
            ("tests.shape_append", tutti.Shape([1, 2, 3]), (1, 2, 3, 4, 5)),
            ("tests.shape_append", (), (4, 5)),
        ):
            function = session.get_global_func(name)
            result = function(given)
            for worker in range(SIZE):
                self.assertEqual(result.debug_get_from_remote(worker), want)

    def test_every_kind_of_value_passes_through_a_function(self):
        session = self.session()
        for value in (None, -5, 0.25, "text", b"\0bytes", tutti.Shape([0, 7]), tutti.Dtype("BF16"),
                      tutti.Device("cpu")):  # fmt: skip
            got = session.call_packed("tests.identity", value)
            self.assertEqual(self.values(got), [value] * SIZE)
            again = session.call_packed("tests.identity", got)  # and as a register
            self.assertEqual(self.values(again), [value] * SIZE)

    def test_workers_know_who_they_are(self):
        session = self.session(num_groups=2)
        self.assertEqual(self.values(session.call_packed("runtime.disco.worker_id")), [0, 1, 2, 3])
        self.assertEqual(self.values(session.call_packed("runtime.disco.worker_rank")), [0, 1, 2, 3])
        self.assertEqual(self.values(session.call_packed("runtime.disco.world_size")), [4] * SIZE)
        self.assertEqual(self.values(session.call_packed("runtime.disco.device")), ["cpu"] * SIZE)
        self.assertEqual((session.num_workers, session.num_groups), (4, 2))
        self.assertEqual([one.rank for one in session.workers], [0, 1, 2, 3])

    def test_a_module_is_loaded_and_its_functions_are_called(self):
        session = self.session()
        module = session.load_vm_module("tests_plugin.so", "cpu")
        self.assertEqual(self.values(module["add_one"](41)), [42] * SIZE)
        error = self.fails("UNKNOWN_FUNC", module.__getitem__, "sing")
        self.assertIn("add_one", error.text)

    def test_a_python_module_is_imported(self):
        session = self.session()
        self.fails("UNKNOWN_FUNC", session.get_global_func, "disco_later.seven")
        self.assertIn("disco_later.seven", session.import_python_module("disco_later"))
        self.assertEqual(self.values(session.call_packed("disco_later.seven")), [7] * SIZE)
        self.fails("NOT_ALLOWED", session.import_python_module, "os")
        error = self.fails("IMPORT_FAILED", session.import_python_module, "disco.not_there")
        self.assertIn("ModuleNotFoundError", error.text)

    # -------------------------------------------------------------------- test_callback.py

    def test_a_function_calls_another_for_its_parameters(self):
        session = self.session()
        function = tutti.Function("disco.parameter")
        got = session.call_packed("disco.transform", function, 3)
        for worker, array in enumerate(self.values(got)):
            want = np.concatenate([np.full((2, 2), 10 * i + worker, np.float32) for i in range(3)])
            np.testing.assert_array_equal(array, want)

    # -------------------------------------------------------------------- test_ccl.py, one group

    def test_init_ccl_takes_what_the_workers_have(self):
        session = self.session()
        for name in ("host", "gloo", "mpi"):
            session.init_ccl(name)
        self.assertIn("worker 0", self.fails("NO_BACKEND", session.init_ccl, "nccl", 0, 1, 2, 3).text)
        self.fails("NO_BACKEND", session.init_ccl, "nccl")
        for name in ("rccl", "bogus", ""):
            self.fails("BAD_VALUE", session.init_ccl, name)
        self.fails("BAD_DEVICE", session.init_ccl, "nccl", 0)
        self.fails("BAD_DEVICE", session.init_ccl, "gloo", 0, 1, 2, 3)

    def test_allreduce(self):
        session = self.two_workers()
        a = np.arange(12, dtype=np.float32).reshape(3, 4)
        b = np.arange(start=1, stop=-11, step=-1, dtype=np.float32).reshape(3, 4)
        src = session.empty((3, 4), "float32")
        src.debug_copy_from(0, a)
        src.debug_copy_from(1, b)
        for op, expected in (
            ("sum", a + b), ("prod", a * b), ("min", np.minimum(a, b)), ("max", np.maximum(a, b)),
            ("avg", (a + b) * 0.5),
        ):  # fmt: skip
            dst = session.empty((3, 4), "float32")
            session.allreduce(src, dst, op=op)
            session.sync_worker_0()
            for worker in range(2):
                np.testing.assert_array_equal(dst.debug_get_from_remote(worker), expected)

    def test_allgather_fills_any_shape(self):
        session = self.two_workers()
        array = np.arange(36, dtype=np.float32)
        src = self.set_each(session, array[:18].reshape(3, 3, 2), array[18:].reshape(3, 3, 2))
        dst = session.empty((3, 4, 3), "float32")
        session.allgather(src, dst)
        for worker in range(2):
            got = dst.debug_get_from_remote(worker)
            np.testing.assert_array_equal(got, array.reshape(3, 4, 3))
        self.assertEqual(session.allgather(src).debug_get_from_remote(1).shape, (6, 3, 2))

    def test_broadcast(self):
        session = self.two_workers()
        array = np.arange(12, dtype=np.float32).reshape(3, 4)
        dst = session.broadcast(array)
        for worker in range(2):
            np.testing.assert_array_equal(dst.debug_get_from_remote(worker), array)
        src = session.copy_to_worker_0(array)
        flat = session.empty((12,), "float32")
        session.broadcast_from_worker0(src, flat)
        np.testing.assert_array_equal(flat.debug_get_from_remote(1), array.reshape(12))

    def test_scatter_and_gather(self):
        session = self.two_workers()
        array = np.arange(36, dtype=np.float32).reshape(2, 6, 3)
        parts = session.scatter(array)
        for worker in range(2):
            np.testing.assert_array_equal(parts.debug_get_from_remote(worker), array[worker])
        back = session.empty((3, 4, 3), "float32", worker0_only=True)
        session.gather_to_worker0(parts, back)
        np.testing.assert_array_equal(back.debug_get_from_remote(0), array.reshape(3, 4, 3))
        self.assertIsNone(back.debug_get_from_remote(1))

    def test_scatter_with_implicit_reshape(self):
        session = self.two_workers()
        array = np.arange(36, dtype=np.float32).reshape(3, 4, 3)
        src = session.empty((3, 4, 3), "float32", worker0_only=True)
        session.copy_to_worker_0(array, src)
        dst = session.empty((3, 3, 2), "float32")
        session.scatter_from_worker0(src, dst)
        halves = array.reshape(2, 3, 3, 2)
        for worker in range(2):
            np.testing.assert_array_equal(dst.debug_get_from_remote(worker), halves[worker])

    def test_copy_to_and_from_worker_0(self):
        session = self.session()
        array = np.arange(6.0).reshape(2, 3)
        ref = session.copy_to_worker_0(array)
        host = np.zeros((3, 2))
        session.copy_from_worker_0(host, ref)
        session.sync_worker_0()
        np.testing.assert_array_equal(host, array.reshape(3, 2))
        self.fails("SHAPE_MISMATCH", session.copy_from_worker_0, np.zeros(7), ref)
        self.fails("DTYPE_MISMATCH", session.copy_from_worker_0, np.zeros(6, np.float32), ref)
        self.fails("DTYPE_MISMATCH", session.copy_to_worker_0, np.zeros(6, np.float32), ref)

    # -------------------------------------------------------------------- test_ccl.py, two groups

    def four_in_two(self, in_place=False):
        session = self.session(num_groups=2)
        arrays = [np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * n for n in range(4)]
        return session, arrays, self.set_each(session, *arrays)

    def test_group_allreduce(self):
        session, arrays, src = self.four_in_two()
        dst = session.empty((3, 4), "float32")
        session.allreduce(src, dst, op="sum", in_group=True)
        for worker, want in enumerate((arrays[0] + arrays[1], arrays[2] + arrays[3])):
            for place in (2 * worker, 2 * worker + 1):
                np.testing.assert_array_equal(dst.debug_get_from_remote(place), want)
        session.allreduce(src, dst, op="sum", in_group=False)
        np.testing.assert_array_equal(dst.debug_get_from_remote(3), sum(arrays))

    def test_group_allgather(self):
        session, arrays, src = self.four_in_two()
        got = session.allgather(src)
        np.testing.assert_array_equal(got.debug_get_from_remote(1), np.concatenate(arrays[:2]))
        np.testing.assert_array_equal(got.debug_get_from_remote(2), np.concatenate(arrays[2:]))
        whole = session.allgather(src, in_group=False)
        np.testing.assert_array_equal(whole.debug_get_from_remote(2), np.concatenate(arrays))

    def test_group_broadcast_scatter_and_gather(self):
        session, arrays, src = self.four_in_two()
        got = session.broadcast_from_worker0(src)
        for worker in range(4):
            np.testing.assert_array_equal(got.debug_get_from_remote(worker), arrays[worker // 2 * 2])
        got = session.broadcast_from_worker0(src, in_group=False)
        np.testing.assert_array_equal(got.debug_get_from_remote(3), arrays[0])
        parts = session.scatter_from_worker0(src, session.empty((6,), "float32"))
        for worker in range(4):
            want = arrays[worker // 2 * 2].reshape(2, 6)[worker % 2]
            np.testing.assert_array_equal(parts.debug_get_from_remote(worker), want)
        back = self.values(session.gather_to_worker0(parts))
        np.testing.assert_array_equal(back[0], arrays[0].reshape(12))
        np.testing.assert_array_equal(back[2], arrays[2].reshape(12))
        self.assertEqual((back[1], back[3]), (None, None))

    def test_group_empty_on_the_first_workers(self):
        session = self.session(num_groups=2)
        for in_group, there in ((True, [0, 2]), (False, [0])):
            ref = session.empty((2,), "int8", worker0_only=True, in_group=in_group)
            got = self.values(ref)
            self.assertEqual([place for place in range(4) if got[place] is not None], there)

    def test_send_to_next_group_receive_from_prev_group(self):
        session, arrays, src = self.four_in_two()
        session.send_to_next_group(src)
        got = self.values(session.recv_from_prev_group())
        self.assertEqual((got[0], got[1]), (None, None))
        np.testing.assert_array_equal(got[2], arrays[0])
        np.testing.assert_array_equal(got[3], arrays[1])
        session.send_to_next_group(src)
        session.recv_from_prev_group(src)
        np.testing.assert_array_equal(src.debug_get_from_remote(3), arrays[1])
        np.testing.assert_array_equal(src.debug_get_from_remote(1), arrays[1])

    def test_worker_2_sends_to_worker_0(self):
        session, arrays, src = self.four_in_two()
        dst = session.empty((3, 4), "float32")
        session.transfer(src, 2, 0, dst)
        np.testing.assert_array_equal(dst.debug_get_from_remote(0), arrays[2])
        self.assertEqual(dst.debug_get_from_remote(1).any(), False)

    # -------------------------------------------------------------------- test_ccl.py, models

    def test_a_sharded_mlp(self):
        session = self.two_workers()
        random = np.random.default_rng(1)
        x, w1, w2 = [random.standard_normal((128, 128), np.float32) for _ in range(3)]
        d_x = session.broadcast(x)
        d_w1 = session.scatter(np.stack(np.split(w1, 2, axis=1)))
        d_w2 = session.scatter(np.stack(np.split(w2, 2, axis=0)))
        d_y = session.get_global_func("disco.mlp")(d_x, d_w1, d_w2)
        want = np.maximum(x @ w1, 0) @ w2
        for worker in range(2):
            got = d_y.debug_get_from_remote(worker)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)

    def test_a_sharded_attention(self):
        from disco_functions import softmax

        session = self.two_workers()
        random = np.random.default_rng(2)
        x = random.standard_normal((10, 128), np.float32)
        wq, wk, wv, wo = [random.standard_normal((128, 512), np.float32) / 11 for _ in range(4)]
        wo = np.ascontiguousarray(wo.T)
        columns = [session.scatter(np.stack(np.split(w, 2, axis=1))) for w in (wq, wk, wv)]
        rows = session.scatter(np.stack(np.split(wo, 2, axis=0)))
        got = session.call_packed("disco.attention", session.broadcast(x), *columns, rows, 4)
        q, k, v = [(x @ w).reshape(10, 8, 64).transpose(1, 0, 2) for w in (wq, wk, wv)]
        scores = softmax(q @ k.transpose(0, 2, 1) / 8)
        want = (scores @ v).transpose(1, 0, 2).reshape(10, 512) @ wo
        np.testing.assert_allclose(got.debug_get_from_remote(1), want, rtol=1e-3, atol=1e-3)

    # -------------------------------------------------------------------- beyond

    def test_functions_wait_for_ops_and_ops_for_functions(self):
        session = self.session()
        x = self.set_each(session, *[np.full(1000, n + 1, np.float32) for n in range(4)])
        for _ in range(20):
            session.allreduce(x, x, op="max")
            session.call_packed("disco.scale_in_place", x, 2.0)
        self.assertEqual(x.debug_get_from_remote(2)[0], 4 * 2.0**20)

    def test_functions_send_to_each_other(self):
        session = self.session()
        x = self.set_each(session, *[np.full(3, n, np.float32) for n in range(4)])
        got = session.call_packed("disco.ring", x)
        self.assertEqual(self.arrays(got), [[float(n)] * 3 for n in (3, 0, 1, 2)])

    def test_big_arrays_go_straight_to_the_workers(self):
        session = self.session(leader=1)
        big = np.arange(3 << 20, dtype=np.float32)  # 12 MiB
        ref = session.broadcast(big)
        np.testing.assert_array_equal(ref.debug_get_from_remote(3), big)
        ref.debug_copy_from(2, big + 1)
        np.testing.assert_array_equal(ref.debug_get_from_remote(2), big + 1)
        np.testing.assert_array_equal(ref.debug_get_from_remote(0), big)

    def test_on_another_host_big_arrays_are_sent_instead_of_mapped(self):
        big = np.arange(1 << 20, dtype=np.float32)
        for host, far in (("elsewhere", {0, 3}), (None, set())):
            known = {} if host is None else {"TUTTI_HOST_ID": host}
            with unittest.mock.patch.dict(os.environ, known):
                session = self.session()
                ref = session.copy_to_worker_0(big)
                there = session.transfer(ref, 0, 3)
                np.testing.assert_array_equal(there.debug_get_from_remote(3), big)
                self.assertEqual(session._far, far)
                self.fails("DTYPE_MISMATCH", session.copy_to_worker_0, big.astype(np.int32), ref)
                self.fails("SHAPE_MISMATCH", session.copy_to_worker_0, big[1:], ref)

    def test_registers_can_be_set_to_anything_at_any_time(self):
        session = self.session()
        ref = session.empty((2,), "int32")
        ref.debug_copy_from(1, np.array([7, 8], np.int32))
        self.assertEqual(self.arrays(ref), [[0, 0], [7, 8], [0, 0], [0, 0]])
        ref.debug_copy_from(2, "text")
        ref.debug_copy_from(3, np.ones((2, 2)))
        got = self.values(ref)
        self.assertEqual((got[2], got[3].shape), ("text", (2, 2)))
        ref.debug_copy_from(2, np.zeros(1, np.int8))
        self.assertEqual(ref.debug_get_from_remote(2).tolist(), [0])

    def test_every_worker_can_lead(self):
        for leader in range(SIZE):
            session = self.session(leader=leader)
            got = session.call_packed("runtime.disco.worker_rank")
            self.assertEqual(self.values(got), [0, 1, 2, 3])

    def test_asyncio_drives_too(self):
        async def main():
            async with await tutti.aio.session(self.addresses[2], num_groups=2) as session:
                x = await session.scatter(np.arange(8.0).reshape(4, 2))
                y = await session.allreduce(x)
                found = await y.debug_get_from_all()
                self.assertEqual([one.tolist() for one in found], [[2, 4], [2, 4], [10, 12], [10, 12]])
                module = await session.load_module("tests_plugin.so")
                two = await (await module["add_one"])(1)
                self.assertEqual(await two.debug_get_from_remote(3), 2)
                host = np.zeros(2)
                await session.copy_from_worker_0(host, x)
                self.assertEqual(host.tolist(), [0, 1])

        asyncio.run(asyncio.wait_for(main(), LONG_S))

    # -------------------------------------------------------------------- what goes wrong

    def test_an_unknown_function_is_told_and_the_workers_live_on(self):
        session = self.session()
        error = self.fails("UNKNOWN_FUNC", session.get_global_func, "no.such.func")
        self.assertIn("no.such.func", error.text)
        session.call_packed("no.such.func")
        self.fails("UNKNOWN_FUNC", session.sync)
        self.assertEqual(self.values(session.call_packed("tests.add_one", 1)), [2] * SIZE)

    def test_a_function_that_fails_on_one_worker_names_it_and_the_others_have_results(self):
        session = self.session()
        ref = session.call_packed("disco.fail_on", 2)
        error = self.fails("FUNCTION_FAILED", session.sync)
        self.assertIn("worker 2 does not like it", error.text)
        self.assertIn("disco_functions.py", error.text)
        self.assertEqual(list(error.workers), [2])
        self.assertEqual([ref.debug_get_from_remote(one) for one in (0, 1, 3)], [0, 1, 3])
        self.assertIn("does not like it", self.fails("FUNCTION_FAILED", ref.debug_get_from_remote, 2).text)

    def test_what_needs_a_value_that_failed_fails_with_its_cause(self):
        session = self.session()
        failed = session.call_packed("tests.fail", "BAD_LUCK", "it rains")
        after = session.call_packed("tests.add_one", failed)
        error = self.fails("BAD_LUCK", after.debug_get_from_remote, 0)
        self.assertIn("it rains", error.text)
        self.fails("BAD_LUCK", session.sync)
        session.sync()

    def test_collectives_on_what_does_not_fit_are_refused_on_all_workers(self):
        session = self.session()
        x = self.set_each(session, *[np.zeros(2 + n % 2) for n in range(4)])
        session.allreduce(x)
        error = self.fails("SHAPE_MISMATCH", session.sync)
        self.assertEqual(list(error.workers), [0, 1, 2, 3])
        session.allreduce(x, op="band")
        self.fails("BAD_REDUCE_OP", session.sync)
        session.allreduce(session.copy_to_worker_0(np.ones(1)))  # null on the others
        self.fails("NO_TENSOR", session.sync)
        self.assertEqual(self.arrays(session.allreduce(session.scatter(np.ones((4, 1))))), [[4]] * 4)

    def test_a_crash_is_told_with_its_last_lines_and_the_agent_lives_on(self):
        session = self.session()
        session.call_packed("disco.crash_on", 1)
        error = self.fails("HOST_LOST", session.sync)
        self.assertEqual(list(error.workers), [1])
        self.fails("UNKNOWN_FUNC", session.get_global_func, "disco.mlp")
        self.assertEqual(self.values(session.call_packed("tests.add_one", 1)), [2] * SIZE)
        self.hosts[1].communicate(timeout=LONG_S)
        type(self).hosts[1] = start_hosts(self.cluster, [1])[0]
        self.assertEqual(self.values(session.call_packed("disco.fail_on", 9)), [0, 1, 2, 3])

    def test_a_call_that_takes_too_long_is_given_up(self):
        session = self.session()
        session.call_packed("tests.sleep", 60000, 1, timeout=0.05)
        error = self.fails("TIMEOUT", session.sync)
        self.assertIsInstance(error, TimeoutError)
        self.assertEqual(self.values(session.call_packed("tests.add_one", 1)), [2] * SIZE)

    def test_sessions_that_cannot_be_are_refused(self):
        self.fails("GROUP_SIZE", self.session, num_groups=3)
        self.fails("NO_GROUP", self.session, group="nobody")
        self.fails("NO_SESSION", self.session, resume="0123456789abcdef." + "00" * 16)
        with tutti.connect(self.addresses[1]) as agent:
            agent.new_group([1, 2], name="without-0")
        self.fails("NOT_IN_GROUP", self.session, group="without-0")

    def test_a_connection_of_ones_own_may_lead_and_stays_open(self):
        with tutti.connect(self.addresses[0]) as agent:
            with tutti.session(agent) as session:
                self.assertEqual(session.num_workers, SIZE)
            self.assertEqual(agent.tensors(), [])

    # -------------------------------------------------------------------- who goes, who comes back

    def test_a_session_is_resumed_by_its_ticket(self):
        session = self.session(linger=True)
        kept = session.scatter(np.arange(8.0).reshape(4, 2))
        number, ticket = kept.reg_id, session.detach()
        again = self.session(resume=ticket)
        self.assertEqual(again.registers(), [number])
        got = again.allreduce(again.register(number))
        self.assertEqual(self.arrays(got), [[12, 16]] * 4)
        self.fails("NO_SESSION", self.session, resume=ticket[:-2] + "00")

    def test_a_session_stays_as_long_as_it_asked_for(self):
        session = self.session(linger=0.2)
        session.scatter(np.arange(8.0).reshape(4, 2))
        session.sync()
        session.detach()
        self.wait_empty()
        again = self.session(resume=self.session(linger=30).detach(), linger=0.2)
        again.detach()
        for wrong in (1e9, -1.0, 0.0, float("nan")):
            self.fails("LINGER_LIMIT", self.session, linger=wrong)

    def test_a_session_goes_with_its_program(self):
        text = """
import numpy as np, sys, time, tutti
session = tutti.session(sys.argv[1])
x = session.scatter(np.ones((4, 1000)))
session.sync()
print("there", flush=True)
time.sleep(600)
"""
        words = [sys.executable, "-c", text, self.addresses[0]]
        program = subprocess.Popen(words, stdout=subprocess.PIPE, close_fds=False)
        self.assertEqual(program.stdout.readline(), b"there\n")
        with tutti.connect(self.addresses[3]) as agent:
            self.assertNotEqual(agent.tensors(), [])
        program.kill()
        program.communicate(timeout=LONG_S)
        self.wait_empty()


class Started(SessionCase):
    """Hosts that the agents start themselves: --python."""

    @classmethod
    def setUpClass(cls):
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        cls.cluster = worlds.Cluster(
            2, agent_options=("--python", "disco_functions"), agent_environment={"PATH": path}
        )
        cls.addresses = [agent.address for agent in cls.cluster.agents]

    def get(self, session, name):
        """A function; the host may still be on its way."""
        until = time.monotonic() + LONG_S
        while True:
            try:
                return session.get_global_func(name)
            except tutti.TuttiError as error:
                self.assertEqual(error.reason, "UNKNOWN_FUNC")
                self.assertLess(time.monotonic(), until, error)
                time.sleep(0.01)

    def test_a_host_that_crashes_tells_its_last_lines_and_comes_back(self):
        session = self.session()
        x = session.scatter(np.ones((2, 3), np.float32))
        got = self.get(session, "disco.ring")(x)
        self.assertEqual(self.arrays(got), [[1, 1, 1]] * 2)
        self.get(session, "disco.crash_on")(1)
        error = self.fails("HOST_LOST", session.sync)
        self.assertIn("in crash_on", error.text)  # what faulthandler says
        self.assertEqual(list(error.workers), [1])
        self.assertEqual(self.values(self.get(session, "disco.crash_on")(7)), [0, 1])


class Secured(Started):
    """TLS, certificates of clients and tokens everywhere; with what is wrong, a host says what."""

    @classmethod
    def setUpClass(cls):
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        cls.cluster = worlds.Cluster(
            2,
            secure=True,
            agent_options=lambda secrets: [
                *("--functions", "disco", "--python", "disco_functions"),
                *("--python-token", secrets.path("client.token")),
            ],
            agent_environment={"PATH": path, "TUTTI_TLS_NAME": "not.there"},
        )
        cls.addresses = [agent.address for agent in cls.cluster.agents]
        cls.known = unittest.mock.patch.dict(os.environ, cls.cluster.environment())
        cls.known.start()

    @classmethod
    def tearDownClass(cls):
        cls.known.stop()
        super().tearDownClass()

    def test_functions_are_called_and_call_collectives(self):
        session = self.session()
        x = session.scatter(np.ones((2, 3), np.float32))
        self.assertEqual(self.arrays(self.get(session, "disco.ring")(x)), [[1, 1, 1]] * 2)

    def says(self, **environment):
        """The last line of a host that is started with an environment of its own."""
        known = {name: value for name, value in dict(os.environ, **environment).items() if value is not None}
        words = [sys.executable, "-m", "tutti.host", "--wait", "0", "--agent", self.addresses[0], "disco_functions"]
        done = subprocess.run(words, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONG_S,
                              close_fds=False)
        said = done.stdout.decode()
        self.assertEqual(done.returncode, 1, said)
        self.assertNotIn("Traceback", said)
        return said.strip().split("\n")[-1]

    def test_a_host_with_wrong_credentials_says_which(self):
        secrets = self.cluster.secrets
        other = worlds.Secrets()
        self.addCleanup(other.remove)
        none = {"TUTTI_TLS_CA": None, "TUTTI_TLS_CERT": None, "TUTTI_TLS_KEY": None}
        cases = [
            (dict(none), ["UNREACHABLE", self.addresses[0], "TLS"]),
            ({"TUTTI_TLS_CA": other.path("ca.pem")}, ["UNREACHABLE", "certificate"]),
            ({"TUTTI_TLS_CERT": None, "TUTTI_TLS_KEY": None}, ["UNREACHABLE", "certificate"]),
            ({"TUTTI_TOKEN_FILE": None}, ["UNAUTHENTICATED NO_TOKEN", "token"]),
            ({"TUTTI_TOKEN_FILE": other.path("client.token")}, ["UNAUTHENTICATED BAD_TOKEN"]),
            ({"TUTTI_TOKEN_FILE": secrets.path("agent.token")}, ["PERMISSION_DENIED WRONG_ROLE", "agent"]),
            ({"TUTTI_TOKEN_FILE": "/not/there"}, ["/not/there"]),
            ({"TUTTI_TLS_KEY": "/not/there"}, ["/not/there"]),
        ]
        for environment, words in cases:
            said = self.says(**environment)
            for word in words:
                self.assertIn(word, said, environment)

    def test_an_agent_tells_what_its_host_lacks(self):
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        options = ("--python", "disco_functions")
        known = {"PATH": path, "TUTTI_TOKEN_FILE": ""}  # of the agent it is an option
        with worlds.Cluster(1, secure=True, agent_options=options, agent_environment=known) as cluster:
            until = time.monotonic() + LONG_S
            while "NO_TOKEN" not in cluster.agents[0].log():
                self.assertLess(time.monotonic(), until, cluster.agents[0].log())
                time.sleep(0.02)
            self.assertIn("--python-token", cluster.agents[0].log())


class Losses(SessionCase):
    """Each test has a cluster of its own: it kills agents."""

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def setUp(self):
        self.cluster = worlds.Cluster(SIZE, agent_options=OPTIONS)
        self.addCleanup(self.cluster.kill)
        self.addresses = [agent.address for agent in self.cluster.agents]

    def test_a_lost_worker_is_named_and_the_rest_opens_a_session_of_its_own(self):
        session = self.session()
        x = session.scatter(np.ones((4, 2)))
        session.sync()
        self.cluster.agents[2].kill()
        session.allreduce(x)
        error = self.fails("RANK_LOST", session.sync)
        self.assertIn("rank 2", error.text)
        self.assertEqual(x.debug_get_from_remote(0).tolist(), [1, 1])  # the others' values are there
        self.fails("RANK_LOST", session.call_packed("tests.add_one", 1).debug_get_from_remote, 2)
        session.shutdown()
        with tutti.connect(self.addresses[0]) as agent:
            agent.new_group([0, 1, 3], name="left")
        with tutti.session(self.addresses[0], group="left") as left:
            y = left.scatter(np.ones((3, 2)))
            self.assertEqual(self.arrays(left.allreduce(y)), [[3, 3]] * 3)
        self.wait_empty([self.addresses[rank] for rank in (0, 1, 3)])

    def test_a_lost_leader_is_told_and_the_workers_free_all_within_a_second(self):
        session = self.session(leader=1)
        x = session.scatter(np.ones((4, 2)))
        session.sync()
        self.cluster.agents[1].kill()
        self.wait_empty([self.addresses[rank] for rank in (0, 2, 3)], within=1)
        with self.assertRaises(tutti.TuttiError) as caught:
            session.allreduce(x)
            session.sync()
        self.assertEqual(caught.exception.code.name, "UNAVAILABLE")
        self.assertIn(self.addresses[1], caught.exception.text)


if __name__ == "__main__":
    tap.main()
