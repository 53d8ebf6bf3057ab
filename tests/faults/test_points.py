#!/usr/bin/env python3
"""Goal: what is lost, doubled or torn on the way between two agents costs at most the ops that needed it.

Method: agents without shared memory, and TUTTI_CHAOS (lib/coll/fault_inject/fault_inject.h) in one of them.
"""

import time
import unittest

import grpc

from fault_cluster import FaultAgent, FaultCluster
from points import WireCluster
from fault_ops import BY_NAME, SIZE
from cluster_case import LONG_S, support

TIMEOUT_MS = 6000


class Points(unittest.TestCase):
    def setUp(self):
        self.cluster = WireCluster(SIZE)
        self.addCleanup(self.cluster.kill)
        self.small()  # all ways are there

    def small(self):
        return self.cluster.all(lambda agent: BY_NAME["all_to_all"].call(agent, "", SIZE * 1000, timeout_ms=TIMEOUT_MS))

    def large(self):
        op = BY_NAME["all_gather"]
        for agent in self.cluster.agents:
            op.put(agent, op.large)
        results = self.cluster.all(lambda agent: op.start(agent, timeout_ms=TIMEOUT_MS).result())
        for agent, result in zip(self.cluster.agents, results):
            if not isinstance(result, support.Failure):
                op.check(agent, op.large, result.output)
            self.cluster.delete_left(agent)
        return results

    def spoil(self, rule):
        page = self.cluster.agents[1].page
        before = page.struck
        page.set(rule)
        results = self.small()
        page.set("")
        self.assertEqual(page.struck, before + 1, "it did not strike")
        return results

    def assert_good(self, results):
        for result in results:
            self.assertNotIsInstance(result, support.Failure)

    def test_cut__of_all_ways_of_one_rank_does_not_lose_large_data_later(self):
        for _ in range(3):
            self.assert_good(self.spoil("before-done:cut"))
            for result in self.large():  # what was under way there and then may fail, by name
                if isinstance(result, support.Failure):
                    self.assertEqual(result.reason, "RANK_LOST", result)
            self.assert_good(self.large())
            self.assert_good(self.small())

    def test_packets__that_come_twice_or_late_change_nothing(self):
        for rule in ("agree:duplicate", "data:duplicate", "agree:delay=50", "data:delay=50", "after-agree:delay=50"):
            self.assert_good(self.spoil(rule))
            self.assert_good(self.large())

    def test_packet__that_is_lost_ends_the_op_in_its_time_with_words(self):
        results = self.spoil("data:drop")
        failures = [result for result in results if isinstance(result, support.Failure)]
        self.assertTrue(failures)
        for failure in failures:
            self.assertEqual(failure.reason, "TIMEOUT", failure)
            self.assertIn("waits for rank 1", failure.text)
        self.cluster.wait_until_it_works()
        self.assert_good(self.large())

    def test_rule__that_cannot_be_read_is_refused_at_the_start(self):
        code, _, said = support.run("tutti-agent", "--listen", "127.0.0.1:0", "--coordinator", "127.0.0.1:1",
                                    environment={"TUTTI_CHAOS": "agree:dance"})
        self.assertNotEqual(code, 0)
        self.assertIn("TUTTI_CHAOS=agree:dance: need POINT:ACTION[:N]", said)


class SlowToSit(FaultAgent):
    """Its control loop stands still for a while when the engine has the key of the epoch."""

    def start(self, *words):
        self.page.set("after-key:delay=400")
        return super().start(*words)


class Returns(unittest.TestCase):
    def setUp(self):
        self.cluster = FaultCluster(SIZE)
        self.addCleanup(self.cluster.kill)
        self.cluster.wait_until_it_works()

    def call_until_done(self, agent):
        """Retries whatever a return may cost; an op that timed out is none of that."""
        until = time.monotonic() + LONG_S
        while True:
            try:
                return BY_NAME["all_reduce"].call(agent, "", SIZE * 500)
            except grpc.RpcError as error:
                failure = support.Failure(error)
                if failure.reason == "TIMEOUT" or time.monotonic() > until:
                    return failure
            time.sleep(0.01)

    def test_signatures__that_come_between_key_and_seat_of_a_fresh_process_are_heard(self):
        self.cluster.agent_class = SlowToSit
        fresh = self.cluster.begin_replacing(1)
        for result in self.cluster.all(self.call_until_done):
            self.assertNotIsInstance(result, support.Failure, result)
        self.assertEqual(fresh.page.struck, 1, "it did not strike")


if __name__ == "__main__":
    support.main()
