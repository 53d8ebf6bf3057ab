#!/usr/bin/env python3
"""Goal: a network that is cut keeps nobody waiting beyond the time of the op, and the words say who is cut from whom.

Method: agents and the coordinator on hosts of their own (namespaces), cut from each other with iptables. Skipped
where there are no namespaces.
"""

import time
import unittest

from net_cluster import NetCluster, namespaces
from fault_ops import BY_NAME
from cluster_case import all_reduce, collectives, coordinator, support
from fault_cluster import coordinator_member

import numpy as np

SIZE = 4
TIMEOUT_MS = 1500
LATE_S = 8.5  # well below what a call is given at most, 12 s, and the 10 s of a question to the coordinator


class Partitions(unittest.TestCase):
    def setUp(self):
        reason = namespaces.why_not()
        if reason is not None:
            self.skipTest(reason)
        self.cluster = NetCluster(SIZE)
        self.addCleanup(self.cluster.kill)

    def call(self, name, group=""):
        """What each rank hears of an op that cannot succeed everywhere; all in time."""
        took = {}

        def one(agent):
            began = time.monotonic()
            try:
                return BY_NAME[name].call(agent, group, SIZE * 1000, timeout_ms=TIMEOUT_MS)
            finally:
                took[agent.rank] = time.monotonic() - began

        results = self.cluster.all(one)
        self.assertLess(max(took.values()), LATE_S, results)
        return results

    def assert_timeout(self, failure, *words):
        self.assertIsInstance(failure, support.Failure)
        self.assertEqual(failure.reason, "TIMEOUT", failure)
        for word in words:
            self.assertIn(word, failure.text)

    def assert_works(self):
        for result in self.cluster.all(lambda agent: all_reduce(agent, np.ones(3, np.int32))):
            self.assertEqual(list(result), [SIZE] * 3)

    def test_first_op__between_ranks_that_are_cut_ends_in_its_time_and_the_group_goes_on(self):
        hosts = self.cluster.network.hosts
        self.cluster.network.part([hosts[0]], [hosts[1]])  # before they have ever connected
        results = self.call("all_to_all")
        for rank in (0, 1):
            self.assertIsInstance(results[rank], support.Failure)
        self.cluster.network.join()
        self.cluster.wait_until_it_works()
        self.assert_works()

    def test_op__of_ranks_that_are_cut_says_who_waits_for_whom(self):
        self.assert_works()  # all ways are there
        hosts = self.cluster.network.hosts
        self.cluster.network.part([hosts[2]], [hosts[3]])
        results = self.call("all_to_all")
        for rank in (2, 3):
            self.assertIsInstance(results[rank], support.Failure)
            said = ("rank 2 waits for rank 3", "rank 3 waits for rank 2", "rank 2 does not answer",
                    "rank 3 does not answer")
            self.assertTrue(any(word in results[rank].text for word in said), results[rank])

    def test_op__on_a_new_group_of_a_rank_without_coordinator_ends_in_its_time(self):
        self.cluster.members.CreateGroup(coordinator.CreateGroupRequest(
            member=coordinator_member(self.cluster.agents[0]), name="new", ranks=range(SIZE)), timeout=60)
        self.cluster.network.part([self.cluster.host_of(1)], [self.cluster.seat])
        results = self.call("barrier", "new")
        self.assert_timeout(results[1], "group new", "coordinator")

    def test_the_side_without_the_coordinator_stops(self):
        """So of two sides one goes on, whatever groups they have."""
        cluster = self.cluster
        sides = {"here": [0, 1], "there": [2, 3]}
        for name, ranks in sides.items():
            cluster.members.CreateGroup(coordinator.CreateGroupRequest(
                member=coordinator_member(cluster.agents[ranks[0]]), name=name, ranks=ranks), timeout=60)

        def add(name):
            return cluster.on(sides[name], lambda agent: all_reduce(agent, np.ones(2, np.int32), group=name))

        for name in sides:
            self.assertEqual([list(one) for one in add(name)], [[2, 2]] * 2)
        hosts = cluster.network.hosts
        cluster.network.part(hosts[2:4], [*hosts[0:2], cluster.seat])
        waiting = cluster.agents[2].ops.Barrier.future(collectives.BarrierRequest(group="there"), timeout=60)
        failure = support.Failure(waiting.exception(60))
        self.assertEqual(failure.reason, "CUT_OFF", failure)
        cluster.agents[3].program.wait_for_log("rank 3 has heard nothing from the coordinator")
        for result in add("there"):
            self.assertEqual(result.reason, "CUT_OFF", result)
        self.assertEqual([list(one) for one in add("here")], [[2, 2]] * 2)
        cluster.network.join()
        for rank in sides["there"]:  # others have acted on their end
            self.assertNotEqual(cluster.agents[rank].program.wait(60), 0)

    def test_two_ops__on_a_new_group_of_a_rank_without_coordinator_end_in_their_time(self):
        """The question was asked once more for the second one, whose time was up meanwhile."""
        self.cluster.network.part([self.cluster.host_of(1)], [self.cluster.seat])
        results = self.call("send_recv", "unheard")
        self.assert_timeout(results[1], "group unheard", "coordinator")


if __name__ == "__main__":
    support.main()
