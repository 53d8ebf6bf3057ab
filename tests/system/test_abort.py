"""Goal: an op that cannot end well ends on every rank with the culprit's name, also when the coordinator
is gone; who was replaced is refused by name; of two sides of a partition one keeps the job.

Method: real processes, killed and frozen in the middle; requests that name old incarnations; a relay
between one agent and the coordinator through which nothing passes any more.
"""

import os
import signal
import sys
import threading
import time
import types as python_types
import unittest

import grpc
import numpy as np

import support

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "faults"))
from cluster_case import (  # noqa: E402
    LONG_S, Agent, Cluster, ClusterCase, all_reduce, collectives, coordinator, handle, tensors,
    types,
)
from relay import Relay  # noqa: E402
from tutti.v1 import mesh_service_pb2 as meshes  # noqa: E402
from tutti.v1 import mesh_service_pb2_grpc as meshes_grpc  # noqa: E402
from tutti.v1 import metadata_service_pb2 as metadata  # noqa: E402
from tutti.v1 import metadata_service_pb2_grpc as metadata_grpc  # noqa: E402

GONE = grpc.StatusCode.UNAVAILABLE
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
QUICK = ("--heartbeat-interval", "200ms", "--heartbeat-timeout", "1500ms")


class Abort(unittest.TestCase):
    assert_failed = ClusterCase.assert_failed
    assert_works = ClusterCase.assert_works
    fails = ClusterCase.fails

    def cluster_of(self, size, *options, **more):
        cluster = Cluster(size, *options, **more)
        self.addCleanup(cluster.stop)
        return cluster

    # ------------------------------------------------------------------ without a coordinator

    def test_a_death_while_data_moves_is_named_to_all_without_a_coordinator(self):
        cluster = self.cluster_of(4)
        for agent in cluster.agents:
            spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[4 << 20])
            agent.tensors.Create(tensors.CreateRequest(spec=spec, name="x"), timeout=LONG_S)
        request = collectives.AllReduceRequest(
            input=handle("x"), output="x", reduce_op=types.REDUCE_OP_SUM
        )
        began = threading.Barrier(5)

        def call(agent):
            agent.ops.AllReduce(request, timeout=LONG_S)
            began.wait(LONG_S)
            while True:
                agent.ops.AllReduce(request, timeout=LONG_S)

        def spoil():
            began.wait(LONG_S)
            cluster.coordinator.kill()
            time.sleep(0.2)  # somewhere inside; where exactly does not matter
            cluster.agents[2].program.kill()

        thread = threading.Thread(target=spoil)
        thread.start()
        failures = cluster.all(call)
        thread.join()
        for rank in (0, 1, 3):
            self.assert_failed(failures[rank], GONE, "RANK_LOST", "rank 2 is gone")
            self.assertEqual(failures[rank].metadata["rank"], "2")
            agent = cluster.agents[rank]
            until = time.monotonic() + LONG_S
            while agent.stats().op_running_count > 0:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)

    def test_a_silent_rank_is_named_at_the_deadline_without_a_coordinator(self):
        cluster = self.cluster_of(4)
        self.assert_works(cluster)
        cluster.coordinator.kill()
        cluster.agents[1].program.send(signal.SIGSTOP)
        try:
            began = time.monotonic()
            failures = cluster.on([0, 2, 3], lambda agent: all_reduce(
                agent, np.ones(4, np.int32), options=types.OpOptions(timeout_ms=1500)
            ))
            self.assertLess(time.monotonic() - began, 20)
        finally:
            cluster.agents[1].program.send(signal.SIGCONT)
        for failure in failures:
            self.assert_failed(failure, LATE, "TIMEOUT", "rank 1")

    def test_a_caller_that_goes_away_is_told_to_all_without_a_coordinator(self):
        cluster = self.cluster_of(3)
        self.assert_works(cluster)
        cluster.coordinator.kill()
        barrier = [
            cluster.agents[rank].ops.Barrier.future(collectives.BarrierRequest(), timeout=LONG_S)
            for rank in (0, 1)
        ]
        for rank in (0, 1):
            while cluster.agents[rank].stats().op_running_count == 0:
                time.sleep(0.005)
        barrier[0].cancel()
        with self.assertRaises(grpc.RpcError) as caught:
            barrier[1].result(LONG_S)
        self.assertEqual(support.Failure(caught.exception).reason, "CALLER_GONE")

    # ------------------------------------------------------------------ who was replaced

    def test_what_an_old_incarnation_asks_is_refused_by_name(self):
        cluster = self.cluster_of(2)
        self.assert_works(cluster)
        old = types.Member(rank=1, incarnation=cluster.agents[1].describe().incarnation)
        kept = cluster.agents[1].put(np.ones(1, np.int32))
        work = cluster.agents[1].ops.AllReduce(collectives.AllReduceRequest(
            input=handle(kept), reduce_op=types.REDUCE_OP_SUM, options=types.OpOptions(
                **{"async": True})), timeout=LONG_S).info.work
        cluster.agents[1].program.kill()
        while "is lost" not in cluster.coordinator.log():
            time.sleep(0.01)
        cluster.replace(1)
        ask = cluster.members
        channel = cluster.coordinator_channel
        keyed = metadata_grpc.MetadataServiceStub(channel)
        grid = meshes_grpc.MeshServiceStub(channel)
        meeting = dict(member=old, group="world", key="k")
        calls = [
            (ask.Leave, coordinator.LeaveRequest(member=old)),
            (ask.Leave, coordinator.LeaveRequest(member=old, announce=True)),
            (ask.CreateGroup, coordinator.CreateGroupRequest(member=old, name="g", ranks=[0, 1])),
            (ask.CreateSubgroups, coordinator.CreateSubgroupsRequest(member=old, group_size=1)),
            (ask.DeleteGroup, coordinator.DeleteGroupRequest(member=old, name="g")),
            (grid.CreateMesh, meshes.CreateMeshRequest(member=old, name="m", shape=[2])),
            (grid.DeleteMesh, meshes.DeleteMeshRequest(member=old, name="m")),
            (keyed.Broadcast, metadata.MetadataServiceBroadcastRequest(**meeting)),
            (keyed.AllGather, metadata.MetadataServiceAllGatherRequest(**meeting)),
            (lambda request, timeout: next(ask.Session(iter([request]), timeout=timeout)),
             coordinator.SessionRequest(open=coordinator.SessionOpen(member=old))),
        ]
        for call, request in calls:
            failure = self.fails(lambda: call(request, timeout=LONG_S))
            self.assert_failed(failure, PRECONDITION, "STALE_INCARNATION", "another process now")
        join = coordinator.JoinRequest(world_size=2, rank=1, incarnation=old.incarnation)
        failure = self.fails(lambda: list(ask.Join(join, timeout=LONG_S)))
        self.assertIn(failure.reason, ("BAD_INCARNATION", "ALREADY_JOINED"), failure)
        agent = cluster.agents[1]
        for refused in (
            lambda: agent.get(kept),
            lambda: agent.ops.Wait(collectives.WaitRequest(works=[work]), timeout=LONG_S),
        ):
            self.assert_failed(self.fails(refused), PRECONDITION, "STALE_HANDLE")

    def test_what_belongs_to_an_old_epoch_is_refused_by_name(self):
        cluster = self.cluster_of(3)
        self.assert_works(cluster)
        cluster.agents[2].program.kill()
        failures = cluster.on([0, 1], lambda agent: all_reduce(agent, np.ones(1, np.int32)))
        for failure in failures:
            self.assert_failed(failure, GONE, "RANK_LOST", "rank 2 is gone")
        cluster.replace(2)
        self.wait_until_it_works(cluster)
        for agent in cluster.agents:  # who still counts as in the epoch before
            failure = self.fails(lambda: agent.ops.Barrier(collectives.BarrierRequest(
                options=types.OpOptions(sequence=900)), timeout=LONG_S))
            self.assert_failed(failure, PRECONDITION, "OUT_OF_SEQUENCE", "op 900 of group world")
        self.assert_works(cluster)

    def wait_until_it_works(self, cluster):
        until = time.monotonic() + LONG_S
        while True:
            results = cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), timeout=2))
            if not any(isinstance(one, support.Failure) for one in results):
                return
            for one in results:
                if isinstance(one, support.Failure):
                    self.assertIn(one.reason, ("RANK_LOST", "EPOCH_CHANGED", "TIMEOUT"), one)
            self.assertLess(time.monotonic(), until, results)

    # ------------------------------------------------------------------ split brain

    def cut_off(self, *options):
        """Three agents, the last of which loses its coordinator without being told."""
        cluster = self.cluster_of(2, *options, coordinator_options=(*QUICK, "--elastic-wait", "1s"))
        relay = Relay(cluster.coordinator.address)
        self.addCleanup(relay.close)
        behind = python_types.SimpleNamespace(
            coordinator=python_types.SimpleNamespace(address=relay.address), size=cluster.size
        )
        cluster.size = 3
        behind.size = 3
        cluster.agents.append(Agent(behind, None, *options))
        cluster.agents[2].wait_joined()
        return cluster, relay

    def test_one_side_of_a_partition_keeps_the_job_and_the_other_errs(self):
        """Elastic: both sides would have enough ranks to go on, if they could decide."""
        cluster, relay = self.cut_off("--min-world", "1", "--max-world", "3")
        self.wait_until_it_works(cluster)
        relay.silence(True)
        stop = threading.Event()
        alone = []

        def cut_off(agent):
            while not stop.is_set():
                try:
                    alone.append(int(all_reduce(agent, np.ones(1, np.int32), timeout=2)[0]))
                except grpc.RpcError as error:
                    alone.append(support.Failure(error))
                    time.sleep(0.05)

        thread = threading.Thread(target=cut_off, args=(cluster.agents[2],))
        thread.start()
        try:
            until = time.monotonic() + LONG_S
            sums = [3]
            while sums != [2, 2]:
                sums = [
                    one if isinstance(one, support.Failure) else int(one[0])
                    for one in cluster.on([0, 1], lambda agent: all_reduce(
                        agent, np.ones(1, np.int32), timeout=2))
                ]
                self.assertLess(time.monotonic(), until, sums)
            time.sleep(1)
        finally:
            stop.set()
            thread.join()
        # The other side got results of all three, or errors; never one of its own.
        self.assertEqual({one for one in alone if isinstance(one, int)} - {3}, set(), alone)
        self.assertIsInstance(alone[-1], support.Failure)
        job = cluster.members.GetJob(coordinator.GetJobRequest(), timeout=LONG_S).job
        self.assertEqual((job.alive_count, job.lost_count), (2, 1))
        relay.silence(False)
        relay.cut()
        cut = cluster.agents[2].program
        self.assertEqual(cut.wait(LONG_S), 1)  # it hears that it was lost, and ends
        self.assertIn("was lost at epoch", cut.log())
        cut.exit_code = 0
        cluster.agents.pop().close()


if __name__ == "__main__":
    support.main()
