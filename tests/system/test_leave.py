"""Goal: an agent that is told to stop leaves politely: announced first, gone when its ops have ended.

Method: real processes; calls that are under way when SIGTERM comes, and calls that come after it.
"""

import concurrent.futures
import signal
import subprocess
import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import (
    LONG_S, Agent, Cluster, ClusterCase, all_reduce, collectives, coordinator, coordinator_grpc,
)

GONE = grpc.StatusCode.UNAVAILABLE
PATIENT = ("--leave-timeout", "40s")  # longer than a test takes, shorter than it may


class Calls(threading.Thread):
    """An all_reduce of ones by some ranks at once, each on a thread."""

    def __init__(self, cluster, *ranks):
        super().__init__()
        self.cluster, self.ranks, self.results = cluster, ranks, None
        self.wait_until_running(0)  # an op that was answered may still be counted
        self.start()
        self.wait_until_running(1)

    def wait_until_running(self, count):
        until = time.monotonic() + LONG_S
        for rank in self.ranks:
            while self.cluster.agents[rank].stats().op_running_count != count:
                assert time.monotonic() < until, self.results
                time.sleep(0.005)

    def run(self):
        self.results = self.cluster.on(
            self.ranks, lambda agent: all_reduce(agent, np.ones(1, np.int32))
        )

    def ended(self):
        self.join()
        return self.results


class Deaf(coordinator_grpc.CoordinatorServiceServicer):
    """A coordinator that seats rank 0 of 1 and never accepts its session."""

    def __init__(self):
        self.told = []
        self.asked = threading.Event()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        coordinator_grpc.add_CoordinatorServiceServicer_to_server(self, self.server)
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def Join(self, request, context):
        yield coordinator.JoinResponse(
            joined=coordinator.JoinResult(
                rank=0, world_size=1, epoch=1, job_id=7, heartbeat_interval_ms=1000,
                heartbeat_timeout_ms=10000, min_world_size=1,
                key=coordinator.EpochKey(epoch=1, key=bytes(32)),
            )
        )

    def Session(self, requests, context):
        for _ in requests:
            self.asked.set()
        return iter(())

    def Leave(self, request, context):
        self.told.append(request.announce)
        return coordinator.LeaveResponse()


class Leave(unittest.TestCase):
    assert_failed = ClusterCase.assert_failed
    fails = ClusterCase.fails

    def cluster_of(self, size, *options, **more):
        cluster = Cluster(size, *options, **more)
        self.addCleanup(cluster.stop)
        return cluster

    def tell_to_leave(self, cluster, rank):
        cluster.agents[rank].program.send(signal.SIGTERM)
        cluster.agents[rank].program.wait_for_log("leaving job default")

    def call(self, agent):
        return all_reduce(agent, np.ones(1, np.int32))

    def test_a_seat_whose_session_is_not_accepted_yet_is_given_back_too(self):
        """Or it would count as lost, half a second later."""
        deaf = Deaf()
        self.addCleanup(deaf.server.stop, None)
        agent = support.Program(
            "tutti-agent", "--coordinator", deaf.address, "--rank", "0", "--world-size", "1"
        )
        self.addCleanup(agent.kill)
        self.assertTrue(deaf.asked.wait(LONG_S), agent.log())
        self.assertEqual(agent.stop(), 0)
        self.assertEqual(deaf.told, [True, False])

    def test_the_others_read_that_its_program_has_ended(self):
        """An agent that goes with its program was told of no signal, and knows why."""
        program = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        cluster = self.cluster_of(2)
        cluster.agents[1].program.kill()
        cluster.agents[1] = Agent(cluster, 1, "--parent-pid", str(program.pid))
        cluster.agents[1].wait_joined()
        program.kill()
        words = "rank 1 is leaving: its program (pid %d) has ended" % program.pid
        cluster.agents[0].program.wait_for_log(words)
        self.assertEqual(cluster.agents[1].program.wait(LONG_S), 0)

    def test_ops_under_way_end_well_and_later_ones_do_not_begin(self):
        cluster = self.cluster_of(3, *PATIENT)
        self.until_all(cluster)
        calls = Calls(cluster, 0, 2)
        self.tell_to_leave(cluster, 2)
        for rank in (0, 1):
            cluster.agents[rank].program.wait_for_log("rank 2 is leaving: stopped (epoch 2)")
        own = self.fails(lambda: self.call(cluster.agents[2]))
        self.assert_failed(own, GONE, "STOPPING", "this agent is stopping")
        later = self.fails(lambda: self.call(cluster.agents[0]))  # rank 0's second, of the group
        self.assert_failed(later, GONE, "RANK_LEAVING", "op 3: rank 2 is leaving: stopped")
        self.assertEqual(later.metadata.get("rank"), "2")
        self.assertEqual(list(self.call(cluster.agents[1])), [3])  # after all of that
        self.assertEqual([list(one) for one in calls.ended()], [[3], [3]])
        self.assertEqual(cluster.agents[2].program.wait(LONG_S), 0)
        for rank in (0, 1):
            cluster.agents[rank].program.wait_for_log("rank 2 is lost: left: stopped (epoch 3)")
        self.assertIn("rank 2 on host", cluster.coordinator.log())
        gone = self.fails(lambda: self.call(cluster.agents[0]))
        self.assert_failed(gone, GONE, "RANK_LOST", "rank 2 is gone: left: stopped")
        cluster.replace(2)
        self.assertEqual([list(one) for one in self.until_all(cluster)], [[3]] * 3)

    def until_all(self, cluster):
        until = time.monotonic() + LONG_S
        while True:
            results = cluster.all(self.call)
            if not any(isinstance(one, support.Failure) for one in results):
                return results
            self.assertLess(time.monotonic(), until, results)

    def test_the_lookup_says_who_is_leaving(self):
        cluster = self.cluster_of(2, *PATIENT)
        self.until_all(cluster)  # rank 1 knows the group: its op is under way, not in line
        calls = Calls(cluster, 1)
        self.tell_to_leave(cluster, 1)
        cluster.agents[0].program.wait_for_log("rank 1 is leaving")
        rank = cluster.members.LookupRanks(
            coordinator.LookupRanksRequest(ranks=[1]), timeout=LONG_S
        ).ranks[0]
        self.assertEqual((rank.state, rank.reason), (coordinator.RANK_STATE_ALIVE, "stopped"))
        self.assertEqual(list(self.call(cluster.agents[0])), [2])
        calls.ended()
        self.assertEqual(cluster.agents[1].program.wait(LONG_S), 0)

    def test_nobody_waits_longer_than_the_leave_timeout(self):
        cluster = self.cluster_of(3, "--leave-timeout", "500ms")
        self.until_all(cluster)
        calls = Calls(cluster, 0, 2)  # rank 1 never calls
        began = time.monotonic()
        self.assertEqual(cluster.agents[2].program.stop(), 0)
        self.assertGreater(time.monotonic() - began, 0.4)
        self.assertIn("1 ops are still under way after 0.5 s (--leave-timeout)",
                      cluster.agents[2].program.log())
        for failure in calls.ended():
            self.assertIsInstance(failure, support.Failure)
            self.assertEqual(failure.code, GONE, failure)
            self.assertIn(failure.reason, ("STOPPING", "RANK_LOST"), failure)
            self.assertEqual(failure.metadata.get("rank"), "2", failure)

    def test_a_second_signal_ends_it_at_once(self):
        cluster = self.cluster_of(2, *PATIENT)
        self.until_all(cluster)
        calls = Calls(cluster, 1)
        self.tell_to_leave(cluster, 1)
        self.assertEqual(cluster.agents[1].program.stop(timeout=20), 0)
        self.assertEqual(calls.ended()[0].code, GONE)

    def test_the_others_hear_of_it_without_a_coordinator(self):
        cluster = self.cluster_of(3, *PATIENT)
        self.assertEqual(list(self.until_all(cluster)[1]), [3])  # rank 1 knows the group
        calls = Calls(cluster, 0, 2)
        cluster.coordinator.kill()
        self.tell_to_leave(cluster, 2)
        later = self.fails(lambda: self.call(cluster.agents[0]))
        self.assert_failed(later, GONE, "RANK_LEAVING", "op 3: rank 2 is leaving: stopped")
        self.assertEqual(list(self.call(cluster.agents[1])), [3])
        self.assertEqual([list(one) for one in calls.ended()], [[3], [3]])
        self.assertEqual(cluster.agents[2].program.wait(LONG_S), 0)

    def test_all_may_leave_at_once(self):
        cluster = self.cluster_of(3, *PATIENT)
        self.until_all(cluster)  # all know the group
        calls = Calls(cluster, 0, 1)
        for agent in cluster.agents:
            agent.program.send(signal.SIGTERM)
        for agent in cluster.agents:
            self.assertEqual(agent.program.wait(20), 0)
        for failure in calls.ended():
            self.assert_failed(failure, GONE, "RANK_LEAVING", "is leaving: stopped")

    def test_health_says_that_it_is_about_to_go(self):
        cluster = self.cluster_of(2, *PATIENT)
        calls = Calls(cluster, 1)
        self.tell_to_leave(cluster, 1)
        code, text, _ = support.run("tutti", "status", "--coordinator", cluster.coordinator.address)
        self.assertIn(code, (0, 1), text)
        cluster.agents[1].program.send(signal.SIGTERM)
        calls.ended()

    def test_an_unknown_leaver_is_refused_by_name(self):
        cluster = self.cluster_of(1)
        for announce in (True, False):
            stale = coordinator.LeaveRequest(announce=announce, reason="x")
            stale.member.incarnation = 77
            with self.assertRaises(grpc.RpcError) as caught:
                cluster.members.Leave(stale, timeout=LONG_S)
            self.assertEqual(support.Failure(caught.exception).reason, "STALE_INCARNATION")


if __name__ == "__main__":
    support.main()
