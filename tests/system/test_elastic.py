"""Goal: an elastic job begins with fewer ranks than it has seats, and goes on without those that die.

Method: real processes; the world is whoever is there, and an all_reduce of ones counts it.
"""

import tempfile
import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, Agent, Cluster, all_reduce, coordinator, coordinator_grpc

SEATS = 4
NEEDED = 2


class Seats(Cluster):
    """Agents without ranks, for some of the seats."""

    def __init__(self, count):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-elastic-")
        self.size = SEATS
        self.options = (
            "--store", "lmdb:" + self.folder.name, "--elastic-wait", "500ms",
            "--heartbeat-interval", "250ms", "--heartbeat-timeout", "3s",
        )
        self.coordinator = support.Program("tutti-coordinator", *self.options)
        self.coordinator_channel = self.coordinator.channel()
        self.members = coordinator_grpc.CoordinatorServiceStub(self.coordinator_channel)
        self.agents = []
        for _ in range(count):
            self.agents.append(Agent(self, None, "--min-world", str(NEEDED)))
        for agent in self.agents:
            agent.wait_joined()
        self.agents.sort(key=lambda agent: agent.describe().rank)  # seats are given as they come

    def add(self):
        self.agents.append(Agent(self, None, "--min-world", str(NEEDED), "--max-world", str(SEATS)))
        self.agents[-1].wait_joined()
        return self.agents[-1]

    def kill_one(self, place):
        agent = self.agents.pop(place)
        agent.program.kill()
        agent.close()

    def call(self):
        """An all_reduce of ones by all who are there."""
        return self.on(
            range(len(self.agents)), lambda agent: all_reduce(agent, np.ones(1, np.int32), timeout=2)
        )

    def world(self):
        request = coordinator.GetGroupRequest(name="world")
        return list(self.members.GetGroup(request, timeout=LONG_S, wait_for_ready=True).group.ranks)


class Elastic(unittest.TestCase):
    def cluster_of(self, count):
        cluster = Seats(count)
        self.addCleanup(self.end, cluster)
        return cluster

    def end(self, cluster):
        cluster.stop()
        cluster.folder.cleanup()

    def wait_for_sum(self, cluster, wanted):
        """Until all get this sum; whoever is told of a change calls again."""
        began = time.monotonic()
        while True:
            results = cluster.call()
            if all(not isinstance(one, support.Failure) for one in results):
                self.assertEqual({int(one[0]) for one in results}, {wanted})
                return time.monotonic() - began
            for one in results:
                if isinstance(one, support.Failure):
                    self.assertIn(one.reason, ("RANK_LOST", "EPOCH_CHANGED", "TIMEOUT"), one)
            self.assertLess(time.monotonic() - began, LONG_S, results)

    def test_a_job_begins_with_fewer_ranks_and_newcomers_get_free_seats(self):
        cluster = self.cluster_of(2)
        self.wait_for_sum(cluster, 2)
        self.assertEqual(cluster.world(), [0, 1])
        third = cluster.add()
        self.assertEqual(third.describe().rank, 2)
        self.assertTrue(third.describe().elastic)
        self.wait_for_sum(cluster, 3)
        self.assertEqual(cluster.world(), [0, 1, 2])

    def test_a_job_goes_on_without_the_dead(self):
        cluster = self.cluster_of(3)
        self.wait_for_sum(cluster, 3)
        kept = cluster.agents[2].put(np.arange(5))
        cluster.kill_one(0)
        self.assertLess(self.wait_for_sum(cluster, 2), 10)
        self.assertEqual(cluster.world(), [1, 2])
        self.assertEqual(list(cluster.agents[1].get(kept)), [0, 1, 2, 3, 4])
        cluster.add()
        self.wait_for_sum(cluster, 3)
        self.assertEqual(cluster.world(), [0, 1, 2])

    def test_a_job_goes_on_without_who_leaves_and_no_op_under_way_fails(self):
        cluster = self.cluster_of(3)
        self.wait_for_sum(cluster, 3)
        stop = threading.Event()
        told = []

        def work(agent):
            sums = set()
            while not stop.is_set():
                try:
                    sums.add(int(all_reduce(agent, np.ones(1, np.int32), timeout=5)[0]))
                except grpc.RpcError as error:
                    if not stop.is_set():  # then the others may have stopped a round before
                        told.append(support.Failure(error))
            return sums

        results = []
        stayers = threading.Thread(target=lambda: results.extend(cluster.on([0, 1], work)))
        leaver = threading.Thread(target=lambda: cluster.on([2], work))
        stayers.start()
        leaver.start()
        time.sleep(0.3)
        self.assertEqual(cluster.agents[2].program.stop(), 0)
        time.sleep(1)
        stop.set()
        stayers.join()
        leaver.join()
        for sums in results:
            self.assertEqual(sums, {3, 2})  # before, and after
        for failure in told:
            if failure.metadata.get("rank") is not None or failure.reason == "EPOCH_CHANGED":
                self.assertIn(failure.reason, ("RANK_LEAVING", "EPOCH_CHANGED"), failure)
        cluster.agents.pop().close()
        self.assertEqual(cluster.world(), [0, 1])
        cluster.add()
        self.wait_for_sum(cluster, 3)

    def test_fewer_than_needed_wait_for_somebody_by_name(self):
        cluster = self.cluster_of(2)
        self.wait_for_sum(cluster, 2)
        cluster.kill_one(1)
        until = time.monotonic() + LONG_S
        while cluster.members.GetJob(coordinator.GetJobRequest(), timeout=LONG_S).job.alive_count != 1:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        failure = cluster.call()[0]
        self.assertIsInstance(failure, support.Failure)
        self.assertEqual((failure.code, failure.reason), (grpc.StatusCode.UNAVAILABLE, "RANK_LOST"))
        cluster.add()
        self.wait_for_sum(cluster, 2)

    def test_the_world_outlives_the_coordinator(self):
        cluster = self.cluster_of(2)
        self.wait_for_sum(cluster, 2)
        before = cluster.members.GetGroup(coordinator.GetGroupRequest(), timeout=LONG_S).group.id
        cluster.coordinator.kill()
        self.wait_for_sum(cluster, 2)
        cluster.coordinator = support.Program(
            "tutti-coordinator", *cluster.options, listen=cluster.coordinator.address
        )
        for agent in cluster.agents:
            agent.program.wait_for_log("in touch with the coordinator again")
        self.assertEqual(cluster.world(), [0, 1])
        after = cluster.members.GetGroup(coordinator.GetGroupRequest(), timeout=LONG_S).group.id
        self.assertEqual(after, before)
        cluster.add()
        self.wait_for_sum(cluster, 3)

    def test_all_must_ask_for_the_same(self):
        cluster = self.cluster_of(2)
        code, _, text = support.run(
            "tutti-agent", "--coordinator", cluster.coordinator.address, "--world-size", str(SEATS),
            "--listen", "127.0.0.1:0",
        )
        self.assertEqual(code, 1)
        self.assertIn("begun with --min-world 2 of 4 ranks, not 4", text)


if __name__ == "__main__":
    support.main()
