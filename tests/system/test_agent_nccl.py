"""Goal: ops on tensors of GPUs are called, fail and come back as those on host memory do.

Method: agents over the stand-ins for CUDA and NCCL (tests/support), whose groups hang, fail and break on
demand; a process is killed under an op; agents with and without a GPU are in one job. What the ops
compute is for tests/conformance, with --backend nccl.
"""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import grpc
import numpy as np

import standin
import support

standin.use("leaks")

from cluster_case import (  # noqa: E402
    LONG_S, Agent, Cluster, ClusterCase, collectives, coordinator, handle, tensors, types)

INTERNAL = grpc.StatusCode.INTERNAL
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
GPU = ("--device", "cuda:0", "--allow-shared-gpu", "--device-memory-limit", "64MiB")


class MixedAgent(Agent):
    """Rank 0 has no GPU; what the stand-ins do is said by `settings`, by rank."""

    settings = {}
    plain = ()

    def __init__(self, cluster, rank, *options):
        self.environment = {"TUTTI_STANDIN_NCCL": self.settings.get(rank, "")}
        super().__init__(cluster, rank, *(options if rank in self.plain else options + GPU))

    def start(self, *words):
        return support.Program("tutti-agent", *words, environment=self.environment)


def world(size, settings=None, plain=()):
    kind = type("SetAgent", (MixedAgent,), {"settings": settings or {}, "plain": plain})
    return type("SetCluster", (Cluster,), {"agent_class": kind})(size)


def reduce_there(agent, array, timeout=LONG_S, **fields):
    """By handle, where the agent's tensors live; both are deleted."""
    name = agent.put(array)
    try:
        request = collectives.AllReduceRequest(input=handle(name), reduce_op=types.REDUCE_OP_SUM, **fields)
        made = agent.ops.AllReduce(request, timeout=timeout).output.handle
        try:
            return agent.get(made)
        finally:
            agent.delete(made)
    finally:
        agent.delete(name)


def ones(agent):
    return reduce_there(agent, np.ones(5, np.float32))


class Ops(ClusterCase):
    size = 3
    options = GPU

    def test_a_sum_of_tensors_on_gpus_is_a_tensor_there(self):
        def call(agent):
            name = agent.put(np.arange(1000, dtype=np.float32))
            request = collectives.AllReduceRequest(input=handle(name), reduce_op=types.REDUCE_OP_SUM)
            made = agent.ops.AllReduce(request, timeout=LONG_S).output.handle
            page = agent.tensors.List(tensors.ListRequest(page_size=1000), timeout=LONG_S)
            places = {info.tensor.handle: info.device for info in page.tensors}
            return places[made], agent.get(made)

        for place, array in self.cluster.all(call):
            self.assertEqual(place, "cuda:0")
            self.assertTrue(np.array_equal(array, 3 * np.arange(1000, dtype=np.float32)))

    def test_many_groups_at_once_in_any_order_of_calls(self):
        names = [("ab", [0, 1]), ("bc", [1, 2]), ("ca", [2, 0]), ("", [0, 1, 2])]
        for name, ranks in names[:3]:
            self.cluster.group(name, ranks)

        def call(agent):
            name = agent.put(np.ones(100, np.int64))
            works = []
            for k in range(40):
                group, ranks = names[(k + agent.rank) % 4]
                if agent.rank in ranks:
                    request = collectives.AllReduceRequest(
                        input=handle(name), reduce_op=types.REDUCE_OP_SUM, group=group)
                    setattr(request.options, "async", True)
                    response = agent.ops.AllReduce(request, timeout=LONG_S)
                    works.append((response.info.work, response.output.handle, len(ranks)))
            for work, made, count in works:
                agent.ops.Wait(collectives.WaitRequest(works=[work]), timeout=LONG_S)
                self.assertEqual(list(agent.get(made)), [count] * 100)
            return len(works)

        self.assertEqual(self.cluster.all(call), [30, 30, 30])

    def test_bench_measures_on_the_gpu_of_each_rank(self):
        words = ("tutti", "--agent", self.cluster.agents[0].program.address, "bench", "all_reduce", "-b", "4K", "-n", "3", "--json")
        for device in ("cuda", "cuda:0"):
            code, out, err = support.run(*words, "--device", device, "--check")
            self.assertEqual(code, 0, err)
            row = json.loads(out)
            self.assertEqual((row["device"], row["ranks"]), (device, 3))
            self.assertEqual((row["in_place"]["wrong"], row["out_of_place"]["wrong"]), (0, 0))
        code, _, err = support.run(*words, "--device", "cuda", "--share")
        self.assertEqual(code, 0, err)
        self.assertIn("tensors could not be mapped, so their data is copied", err)
        for more, said in ((("--device", "cuda:1"), 'no device "cuda:1": it has cpu, cuda:0'),
                           (("--device", "cuda", "--inline"), "tensors are in this process")):
            code, _, err = support.run(*words, *more)
            self.assertNotEqual(code, 0)
            self.assertIn(said, err)

    def test_a_deleted_group_is_made_anew_with_its_communicator(self):
        for _ in range(3):
            name = self.cluster.group("again", [2, 1]).name
            for array in self.cluster.on([1, 2], lambda agent: reduce_there(agent, np.ones(3), group=name)):
                self.assertEqual(list(array), [2] * 3)
            self.cluster.members.DeleteGroup(delete_group(self.cluster, name), timeout=LONG_S)


def delete_group(cluster, name):
    member = types.Member(rank=1, incarnation=cluster.agents[1].describe().incarnation)
    return coordinator.DeleteGroupRequest(member=member, name=name)


class Faults(unittest.TestCase):
    """Each with a cluster of its own, for stand-ins are told at the start what to do."""

    assert_failed = ClusterCase.assert_failed

    def run_in(self, cluster, body):
        try:
            body(cluster)
            cluster.stop()  # with code 70 when something of CUDA was left
        except BaseException:
            cluster.kill()
            raise

    def assert_sums(self, cluster):
        for array in cluster.all(ones):
            self.assertNotIsInstance(array, support.Failure, array)
            self.assertEqual(list(array), [cluster.size] * 5)

    def test_a_call_of_nccl_that_fails_on_one_rank_fails_on_all_with_its_words(self):
        def body(cluster):
            for failure in cluster.all(ones):
                self.assert_failed(failure, INTERNAL, "NCCL_FAILED", "rank 1", "ncclAllReduce: unhandled system error",
                                   "NCCL_DEBUG=WARN")
            self.assert_sums(cluster)

        self.run_in(world(3, {1: "fail:ncclAllReduce:1"}), body)

    def test_a_network_that_breaks_fails_the_op_and_the_next_one_works(self):
        def body(cluster):
            self.assert_sums(cluster)
            for failure in cluster.all(ones):
                self.assert_failed(failure, UNAVAILABLE, "NCCL_FAILED", "network error")
            self.assert_sums(cluster)

        self.run_in(world(2, {0: "async:2"}), body)

    def test_a_gpu_that_hangs_is_a_deadline_on_all_ranks_and_the_next_op_works(self):
        def body(cluster):
            self.assert_sums(cluster)
            for failure in cluster.all(lambda agent: reduce_there(agent, np.ones(5, np.float32), timeout=2)):
                self.assertIsInstance(failure, support.Failure)
                self.assertEqual(failure.code, LATE, failure)
            self.assert_sums(cluster)

        self.run_in(world(2, {1: "hang:2"}), body)

    def test_an_abort_ends_an_op_of_a_gpu_that_hangs_and_leaves_nothing(self):
        # Before or behind its launch: then the next launch hangs. So no op follows.
        def body(cluster):
            cluster.group("g", [0, 1])
            self.assert_sums(cluster)
            member = types.Member(rank=0, incarnation=cluster.agents[0].describe().incarnation)
            begun = time.monotonic()

            def abort():
                while min(agent.stats().op_running_count for agent in cluster.agents) == 0:
                    time.sleep(0.005)
                request = coordinator.AbortGroupRequest(member=member, name="g", reason="hangs")
                cluster.members.AbortGroup(request, timeout=LONG_S)

            thread = threading.Thread(target=abort)
            thread.start()
            for failure in cluster.all(lambda agent: reduce_there(agent, np.ones(5, np.float32), group="g")):
                self.assert_failed(failure, grpc.StatusCode.ABORTED, "GROUP_ABORTED", "aborted by rank 0: hangs")
            thread.join()
            self.assertLess(time.monotonic() - begun, LONG_S / 2)

        self.run_in(world(2, {1: "hang:2"}), body)

    def test_a_killed_agent_is_named_and_its_successor_joins_the_group(self):
        def body(cluster):
            self.assert_sums(cluster)

            def call(agent):
                if agent.rank == 2:
                    agent.program.send(signal.SIGKILL)
                    return None
                return ones(agent)

            for failure in cluster.all(call)[:2]:
                self.assert_failed(failure, UNAVAILABLE, failure.reason, "rank 2")
            cluster.replace(2)
            self.assert_sums_soon(cluster)

        self.run_in(world(3), body)

    def assert_sums_soon(self, cluster):
        """The survivors may hear of the return in the middle of a call."""
        for _ in range(20):
            found = cluster.all(ones)
            if not any(isinstance(one, support.Failure) for one in found):
                return
        self.fail(found)

    def test_a_gpu_and_host_memory_in_one_op_are_an_error_that_names_them(self):
        def body(cluster):
            for failure in cluster.all(ones):
                self.assert_failed(failure, PRECONDITION, "DEVICE_MISMATCH", "rank 0 called all_reduce(sum, FP32[5])",
                                   "ranks 1, 2 all_reduce(sum, FP32[5]) on cuda")
            cluster.group("gpus", [1, 2])
            for array in cluster.on([1, 2], lambda agent: reduce_there(agent, np.ones(4), group="gpus")):
                self.assertEqual(list(array), [2] * 4)

        self.run_in(world(3, plain=(0,)), body)

    def test_send_and_recv_go_between_a_gpu_and_host_memory(self):
        def body(cluster):
            array = np.arange(300000, dtype=np.int32)
            name = cluster.agents[0].put(array)

            def call(agent):
                if agent.rank == 0:
                    return agent.ops.Send(collectives.SendRequest(input=handle(name), destination=1), timeout=LONG_S)
                return agent.ops.Recv(collectives.RecvRequest(source=0), timeout=LONG_S)

            made = cluster.all(call)[1].output.handle
            self.assertTrue(np.array_equal(cluster.agents[1].get(made), array))
            cluster.agents[0].delete(name)
            cluster.agents[1].delete(made)

        self.run_in(world(2, plain=(0,)), body)


class Modules(unittest.TestCase):
    def test_without_the_module_for_nccl_tensors_live_and_ops_say_what_lacks(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(standin.MODULES, "tutti-cuda.so"), os.path.join(folder, "tutti-cuda.so"))
            os.environ["TUTTI_MODULES"] = folder
            try:
                cluster = Cluster(1, *GPU)
            finally:
                os.environ["TUTTI_MODULES"] = standin.MODULES
            try:
                with self.assertRaises(grpc.RpcError) as caught:
                    ones(cluster.agents[0])
                failure = support.Failure(caught.exception)
                self.assertEqual((failure.code, failure.reason), (PRECONDITION, "NO_BACKEND"))
                self.assertIn("tutti-nccl.so", cluster.agents[0].program.log())
            finally:
                cluster.stop()

    def test_the_agent_itself_needs_no_library_of_cuda_or_nccl(self):
        words = ["ldd", os.path.join(support.PROGRAMS, "tutti-agent")]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(said, "cuda|nccl")


if __name__ == "__main__":
    support.main()
