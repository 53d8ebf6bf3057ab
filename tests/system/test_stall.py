"""Goal: who asks what hangs is told the op, who is in it, and of each other rank what it does.

Method: real processes that do not call, are stopped, are killed, wait for a tensor, or differ.
"""

import signal
import threading
import time
import unittest

import numpy as np

import support
from cluster_case import LONG_S, Cluster, ClusterCase, all_reduce, collectives, handle
from tutti.v1 import progress_pb2 as progress

INVALID = support.grpc.StatusCode.INVALID_ARGUMENT
MISSING = support.grpc.StatusCode.NOT_FOUND


def ask(cluster, **fields):
    return cluster.members.DescribeStall(progress.DescribeStallRequest(**fields), timeout=LONG_S)


def wait_for(cluster, fits, **fields):
    """The first answer with a stall that fits: calls travel, too."""
    until = time.monotonic() + LONG_S
    while True:
        answer = ask(cluster, **fields)
        for stall in answer.stalls:
            if fits(stall):
                return stall
        assert time.monotonic() < until, answer
        time.sleep(0.02)


class Stalls(unittest.TestCase):
    assert_failed = ClusterCase.assert_failed
    fails = ClusterCase.fails

    def setUp(self):
        self.cluster = Cluster(3)
        self.calls = []

    def tearDown(self):
        self.cluster.stop()

    def enter(self, *ranks, group=""):
        """These ranks call a barrier."""
        request = collectives.BarrierRequest(group=group)
        for rank in ranks:
            self.calls.append(self.cluster.agents[rank].ops.Barrier.future(request, timeout=LONG_S))

    def leave(self, *ranks, group=""):
        self.enter(*ranks, group=group)
        for call in self.calls:
            call.result()

    def test_who_has_not_called_is_named_with_what_it_did_last(self):
        self.cluster.all(lambda agent: all_reduce(agent, np.ones(4, np.float32)))
        time.sleep(1.1)  # else rank 2 counts as slow
        self.enter(0, 1)
        stall = wait_for(self.cluster, lambda stall: stall.arrived_count == 2)
        self.assertEqual((stall.group, stall.sequence, stall.op), ("world", 2, "barrier()"))
        self.assertEqual((list(stall.arrived), stall.missing_count), ([0, 1], 1))
        one = stall.ranks[0]
        self.assertEqual((one.rank, one.standing), (2, progress.STANDING_ABSENT))
        self.assertEqual((one.last_sequence, one.last_op), (1, "all_reduce(sum, FP32[4])"))
        self.assertGreater(one.last_ms, 1000)
        self.assertIn("2 of 3 ranks are in it", stall.text)
        self.assertIn("rank 2 is alive and has not called it; its last op, op 1", stall.text)
        self.leave(2)
        self.assertEqual(len(ask(self.cluster).stalls), 0)

    def test_a_stopped_process_is_told_apart_from_a_dead_one(self):
        victim = self.cluster.agents[2]
        self.enter(0, 1)
        wait_for(self.cluster, lambda stall: stall.arrived_count == 2)
        victim.program.send(signal.SIGSTOP)
        stall = wait_for(
            self.cluster, lambda one: one.ranks[0].standing == progress.STANDING_SILENT,
            wait_ms=200,
        )
        self.assertIn("rank 2 does not answer (stopped, starved or cut off)", stall.text)
        answer = ask(self.cluster, wait_ms=200)
        self.assertEqual((answer.silent_count, answer.lost_count), (1, 0))
        victim.program.send(signal.SIGCONT)
        wait_for(self.cluster, lambda one: one.ranks[0].standing == progress.STANDING_ABSENT)
        victim.program.kill()
        for call in self.calls:
            failure = self.fails(call.result)
            self.assertEqual(failure.reason, "RANK_LOST")
        until = time.monotonic() + LONG_S
        while ask(self.cluster).lost_count != 1:
            self.assertLess(time.monotonic(), until)
        one = ask(self.cluster).ranks[0]
        self.assertEqual((one.rank, one.standing), (2, progress.STANDING_LOST))
        self.assertEqual(one.reason, "the connection to it broke")

    def test_a_rank_in_the_op_that_is_stopped_is_named(self):
        victim = self.cluster.agents[1]
        self.enter(0, 1)
        wait_for(self.cluster, lambda stall: stall.arrived_count == 2)
        victim.program.send(signal.SIGSTOP)
        stall = wait_for(self.cluster, lambda one: len(one.ranks) == 2, wait_ms=200)
        self.assertIn("rank 1 is in it and does not answer", stall.text)
        self.assertEqual([one.arrived for one in stall.ranks], [True, False])
        victim.program.send(signal.SIGCONT)
        self.leave(2)

    def test_a_call_that_waits_for_its_tensor_is_told(self):
        agent = self.cluster.agents[2]
        empty = agent.put(np.zeros(4, np.float32))
        first = collectives.RecvRequest(output=empty, source=0, tag=1)
        self.calls.append(agent.ops.Recv.future(first, timeout=LONG_S))  # it writes `empty`
        wait_for(self.cluster, lambda stall: stall.op.startswith("recv("))
        reduced = collectives.AllReduceRequest(input=handle(empty), reduce_op=1)
        self.calls.append(agent.ops.AllReduce.future(reduced, timeout=LONG_S))
        for rank in (0, 1):
            name = self.cluster.agents[rank].put(np.zeros(4, np.float32))
            reduced = collectives.AllReduceRequest(input=handle(name), reduce_op=1)
            self.calls.append(
                self.cluster.agents[rank].ops.AllReduce.future(reduced, timeout=LONG_S)
            )
        stall = wait_for(
            self.cluster, lambda one: one.sequence == 1 and one.arrived_count == 2
        )
        self.assertEqual(stall.ranks[0].standing, progress.STANDING_QUEUED)
        self.assertIn("rank 2 has called it and waits for its tensors", stall.text)
        name = self.cluster.agents[0].put(np.ones(4, np.float32))
        sent = collectives.SendRequest(input=handle(name), destination=2, tag=1)
        self.cluster.agents[0].ops.Send(sent, timeout=LONG_S)
        for call in self.calls:
            call.result()

    def test_a_receive_names_who_has_not_sent(self):
        request = collectives.RecvRequest(source=2, tag=7)
        self.calls.append(self.cluster.agents[0].ops.Recv.future(request, timeout=LONG_S))
        stall = wait_for(self.cluster, lambda one: one.sequence == 0)
        self.assertEqual((list(stall.arrived), stall.ranks[0].rank), ([0], 2))
        self.assertIn("recv(from group rank 2, tag 7): rank 0 is in it", stall.text)
        name = self.cluster.agents[2].put(np.ones(4, np.float32))
        sent = collectives.SendRequest(input=handle(name), destination=0, tag=7)
        self.cluster.agents[2].ops.Send(sent, timeout=LONG_S)
        self.calls[0].result()

    def test_groups_and_age_choose(self):
        self.cluster.group("pair", [2, 0])
        self.enter(0, group="pair")
        wait_for(self.cluster, lambda one: one.group == "pair")
        self.assertEqual(len(ask(self.cluster, group="world").stalls), 0)
        self.assertEqual(len(ask(self.cluster, older_than_ms=3600000).stalls), 0)
        stall = ask(self.cluster, group="pair").stalls[0]
        self.assertEqual((stall.group_size, stall.ranks[0].rank), (2, 2))
        self.leave(2, group="pair")

    def test_a_mismatch_leaves_no_stall(self):
        results = self.cluster.all(
            lambda agent: all_reduce(agent, np.ones(4 + agent.rank, np.float32))
        )
        self.assertEqual({one.reason for one in results}, {"SHAPE_MISMATCH"})
        self.assertEqual(len(ask(self.cluster).stalls), 0)

    def test_questions_that_make_no_sense_are_refused(self):
        self.assert_failed(
            self.fails(lambda: ask(self.cluster, wait_ms=10001)), INVALID, "BAD_WAIT", "10000"
        )
        self.assert_failed(self.fails(lambda: ask(self.cluster, job="none")), MISSING, "NO_JOB")

    def test_many_may_ask_at_once(self):
        self.enter(0)
        wait_for(self.cluster, lambda stall: stall.arrived_count == 1)
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(ask(self.cluster))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([one.stalls[0].missing_count for one in answers], [2] * 8)
        self.leave(1, 2)


if __name__ == "__main__":
    support.main()
