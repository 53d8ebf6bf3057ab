#!/usr/bin/python3
"""Goal: functions work on tensors of a GPU in place: plug-ins on a stream, hosts in memory that they have opened.

Method: agents over the stand-ins for CUDA and NCCL, whose streams are slow; the plug-in waits for nothing. No real GPU.
"""

import os
import sys
import unittest

import worlds

PYTHON, FOLDER = worlds.install("debian")
sys.path[:0] = [FOLDER, os.path.join(worlds.support.SOURCE, "tests", "support")]

import numpy as np  # noqa: E402
import tap  # noqa: E402

import tutti  # noqa: E402

PLUGIN = os.path.join(worlds.support.BUILD, "tests", "plugins", "gpu_plugin.so")
HOSTED = os.path.join(worlds.support.SOURCE, "client", "python", "tests", "hosted")
CUDART = os.path.join(worlds.STANDIN, "libtutti_cuda_standin.so")
FOUND = os.path.exists(PLUGIN) and os.path.exists(os.path.join(worlds.STANDIN, "tutti-nccl.so"))
LONG_S = 60
COUNT = 100000


@unittest.skipUnless(FOUND, "the stand-ins for CUDA and NCCL were not built")
class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        known = {"PYTHONPATH": FOLDER + ":" + HOSTED, "TUTTI_CUDART": CUDART, "TUTTI_STANDIN_CUDA": "unified,leaks,delay:5000"}
        known["PATH"] = os.path.dirname(PYTHON) + ":" + os.environ["PATH"]
        options = ["--plugin", PLUGIN, "--python", "gpu_of_tests"]
        cls.cluster = worlds.Cluster(2, gpus=True, agent_options=options, agent_environment=known)
        cls.agents = [tutti.connect(one.address, timeout=LONG_S) for one in cls.cluster.agents]
        for agent in cls.agents:
            cls.wait_for_host(agent)

    @classmethod
    def wait_for_host(cls, agent):
        until = worlds.support.time.monotonic() + LONG_S
        while not any(one.name == "gpu.scale" for one in agent.functions()):
            assert worlds.support.time.monotonic() < until, cls.cluster.agents[0].log()

    @classmethod
    def tearDownClass(cls):
        for agent in cls.agents:
            agent.close()
        cls.cluster.__exit__(None, None, None)

    def on_all(self, work):
        """One thread for each rank."""
        import concurrent.futures

        with concurrent.futures.ThreadPoolExecutor(len(self.agents)) as pool:
            return list(pool.map(work, self.agents))

    # ------------------------------------------------------------------ plug-ins

    def test_work_on_the_stream_is_done_when_the_call_is(self):
        agent = self.agents[0]
        with agent.put(np.zeros(COUNT, np.uint8), device="cuda:0") as x:
            for byte in (7, 9):
                agent.call("gpu.fill", x, byte)
                self.assertEqual(set(x.numpy().tolist()), {byte})

    def test_a_collective_inside_comes_after_what_was_launched(self):
        def work(agent):
            with agent.call("gpu.make_and_reduce", 3, group="world") as found:
                return set(found.numpy().tolist()), found.device()

        self.assertEqual(self.on_all(work), [({3 + 4}, "cuda:0")] * 2)

    def test_calls_without_a_gpu_have_no_stream(self):
        agent = self.agents[0]
        self.assertEqual(agent.call("gpu.has_stream"), 0)
        with agent.put(np.zeros(4), device="cuda:0") as there, agent.put(np.zeros(4)) as here:
            self.assertEqual((agent.call("gpu.has_stream", here, there), agent.call("gpu.has_stream", here)), (1, 0))
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.call("gpu.fill", here, 1)
            self.assertEqual(caught.exception.reason, "NO_STREAM")

    # ------------------------------------------------------------------ hosts

    def test_a_host_gets_the_memory_itself(self):
        agent = self.agents[0]
        with agent.put(np.arange(6, dtype=np.float32).reshape(2, 3), device="cuda:0") as x:
            self.assertEqual(agent.call("gpu.describe", x), "GpuArray (2, 3) float32 <f4 3")
            with agent.call("gpu.scale", x, 2.0) as y:
                self.assertEqual((y.numpy().tolist(), y.device()), ([[0, 2, 4], [6, 8, 10]], "cuda:0"))
            self.assertEqual(x.numpy().tolist(), [[0, 2, 4], [6, 8, 10]])

    def test_a_host_makes_tensors_on_a_gpu_and_runs_ops_on_them(self):
        def work(agent):
            with agent.call("gpu.make", 4) as x, agent.call("gpu.sum", x, group="world") as y:
                return y.numpy().tolist(), y.device()

        self.assertEqual(self.on_all(work), [([1, 3, 5, 7], "cuda:0")] * 2)

    def test_what_makes_no_sense_is_named(self):
        agent = self.agents[0]
        with agent.put(np.zeros(4), device="cuda:0") as x:
            for name, args, reason in (("gpu.foreign", [x], "BAD_HANDLE"), ("gpu.nowhere", [], "NO_DEVICE")):
                with self.assertRaises(tutti.TuttiError) as caught:
                    agent.call(name, *args)
                self.assertEqual(caught.exception.reason, reason, caught.exception)

    def test_memory_comes_back_when_the_tensors_are_gone(self):
        agent = self.agents[0]
        used = agent.stats().gpus[0].memory_used_bytes
        for _ in range(20):
            with agent.put(np.zeros(COUNT), device="cuda:0") as x, agent.call("gpu.scale", x, 1.0):
                pass
        until = worlds.support.time.monotonic() + LONG_S
        while agent.stats().gpus[0].memory_used_bytes > used:
            self.assertLess(worlds.support.time.monotonic(), until)


if __name__ == "__main__":
    tap.main()
