"""Goal: an abort of a group ends its ops on every rank, with the words of who asked, and nothing hangs;
the ranks that are left shrink the group and go on with right sums.

Method: real processes, some of them killed or stopped; stock stubs.
"""

import os
import signal
import sys
import threading
import time
import unittest

import grpc
import numpy as np

import support

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "faults"))
from cluster_case import (  # noqa: E402
    LONG_S, Cluster, ClusterCase, all_reduce, collectives, coordinator, handle, tensors,
    types,
)
from fault_cluster import FaultCluster  # noqa: E402

ABORTED = grpc.StatusCode.ABORTED
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


class GroupAbort(unittest.TestCase):
    assert_failed = ClusterCase.assert_failed
    assert_works = ClusterCase.assert_works
    fails = ClusterCase.fails

    def cluster_of(self, size, *options, **more):
        cluster = Cluster(size, *options, **more)
        self.addCleanup(cluster.stop)
        return cluster

    def behind_relays(self, size):
        """A cluster whose agents hear late of what happens at the coordinator."""
        cluster = FaultCluster(size)
        self.addCleanup(cluster.end)
        return cluster

    def member(self, cluster, rank):
        return types.Member(rank=rank, incarnation=cluster.agents[rank].describe().incarnation)

    def abort(self, cluster, rank, name, reason="", **fields):
        request = coordinator.AbortGroupRequest(
            member=self.member(cluster, rank), name=name, reason=reason, **fields
        )
        return cluster.members.AbortGroup(request, timeout=LONG_S)

    def start_on(self, cluster, ranks, group, count=1):
        """Barriers that wait for others: their futures, once they are under way."""
        futures = [
            cluster.agents[rank].ops.Barrier.future(
                collectives.BarrierRequest(group=group), timeout=LONG_S
            )
            for rank in ranks
            for _ in range(count)
        ]
        for rank in ranks:
            while cluster.agents[rank].stats().op_running_count < count:
                time.sleep(0.005)
        return futures

    def failure_of(self, future):
        with self.assertRaises(grpc.RpcError) as caught:
            future.result(LONG_S)
        return support.Failure(caught.exception)

    def test_ops_under_way_end_with_the_words_of_who_asked_and_later_ones_too(self):
        cluster = self.cluster_of(4)
        cluster.group("g", [0, 1, 2, 3])
        futures = self.start_on(cluster, [0, 1, 2], "g", count=3)
        said = self.abort(cluster, 3, "g", "the loss is nan")
        self.assertTrue(said.aborted)
        words = "group g was aborted by rank 3: the loss is nan"
        self.assertEqual(said.abort.text, words)
        for future in futures:
            failure = self.failure_of(future)
            self.assert_failed(failure, ABORTED, "GROUP_ABORTED", words)
            self.assertEqual(failure.metadata["rank"], "3")
        for failure in cluster.all(lambda agent: all_reduce(agent, np.ones(3, np.int32), group="g")):
            self.assert_failed(failure, ABORTED, "GROUP_ABORTED", words)
        self.assert_works(cluster)
        cluster.group("h", [0, 1, 2, 3])
        for result in cluster.all(lambda agent: all_reduce(agent, np.ones(3, np.int32), group="h")):
            self.assertEqual(list(result), [4, 4, 4], result)

    def test_made_anew_it_works_at_once_however_late_the_news_of_it_is(self):
        """The agents hear of the old one's end by their sessions, which relays make late, and of the op by callers."""
        cluster = self.behind_relays(2)
        for turn in range(30):
            cluster.group("g", [0, 1])
            self.assert_sums(cluster)
            self.abort(cluster, turn % 2, "g", "again")
            self.wait_until_aborted(cluster, "again")
            cluster.members.DeleteGroup(
                coordinator.DeleteGroupRequest(member=self.member(cluster, 0), name="g"), timeout=LONG_S)
            cluster.group("g", [1, 0])
            self.assert_sums(cluster)
            cluster.members.DeleteGroup(
                coordinator.DeleteGroupRequest(member=self.member(cluster, 0), name="g"), timeout=LONG_S)
            self.wait_until_forgotten(cluster, "g")

    def assert_sums(self, cluster):
        for total in cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), group="g")):
            self.assertEqual(getattr(total, "tolist", lambda: total)(), [2])

    def wait_until_aborted(self, cluster, reason):
        def call(agent):
            while True:
                all_reduce(agent, np.ones(1, np.int32), group="g")

        for failure in cluster.all(call):
            self.assert_failed(failure, ABORTED, "GROUP_ABORTED", reason)

    def wait_until_forgotten(self, cluster, name):
        """A group that was not aborted is only known to be gone when the news has come."""
        until = time.monotonic() + LONG_S
        while any(one.group == name for agent in cluster.agents for one in agent.stats().groups):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.002)

    def test_an_aborted_group_that_was_deleted_is_no_group(self):
        cluster = self.behind_relays(2)
        for _ in range(20):
            cluster.group("g", [0, 1])
            self.assert_sums(cluster)
            self.abort(cluster, 0, "g", "over")
            self.wait_until_aborted(cluster, "over")
            cluster.members.DeleteGroup(
                coordinator.DeleteGroupRequest(member=self.member(cluster, 0), name="g"), timeout=LONG_S)
            for failure in cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), group="g")):
                self.assertEqual(failure.reason, "NO_GROUP", failure)

    def test_ops_of_an_aborted_group_are_refused_without_a_coordinator(self):
        cluster = self.cluster_of(2)
        cluster.group("g", [0, 1])
        self.assert_sums(cluster)
        self.abort(cluster, 0, "g", "enough")
        self.wait_until_aborted(cluster, "enough")
        cluster.coordinator.kill()
        for failure in cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), group="g")):
            self.assert_failed(failure, ABORTED, "GROUP_ABORTED", "enough")

    def test_made_anew_it_works(self):
        cluster = self.cluster_of(2)
        cluster.group("g", [0, 1])
        member = self.member(cluster, 0)
        self.abort(cluster, 0, "g", "once")
        for result in cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), group="g")):
            self.assert_failed(result, ABORTED, "GROUP_ABORTED")
        cluster.members.DeleteGroup(
            coordinator.DeleteGroupRequest(member=member, name="g"), timeout=LONG_S
        )
        cluster.group("g", [0, 1])

        def again(agent):
            """Until the news of the deletion has come."""
            until = time.monotonic() + LONG_S
            while True:
                try:
                    return all_reduce(agent, np.ones(1, np.int32), group="g")
                except grpc.RpcError as error:
                    if support.Failure(error).reason not in ("GROUP_ABORTED", "NO_GROUP"):
                        raise
                    self.assertLess(time.monotonic(), until)

        for result in cluster.all(again):
            self.assertEqual(list(result), [2], result)

    def test_a_rank_that_has_never_used_the_group_is_told(self):
        cluster = self.cluster_of(2)
        cluster.group("g", [0, 1])
        self.abort(cluster, 0, "g", "early")
        failure = cluster.on([1], lambda agent: all_reduce(agent, np.ones(1), group="g"))[0]
        self.assert_failed(failure, ABORTED, "GROUP_ABORTED", "aborted by rank 0: early")

    def test_of_many_at_once_one_counts_and_all_read_the_same(self):
        cluster = self.cluster_of(4)
        for turn in range(5):
            name = "storm/%d" % turn
            cluster.group(name, [0, 1, 2, 3])
            futures = self.start_on(cluster, [0, 1, 2], name)
            said = []
            threads = [
                threading.Thread(target=lambda rank=rank: said.append(
                    self.abort(cluster, rank, name, "by %d" % rank)))
                for rank in range(4) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            texts = {one.abort.text for one in said}
            texts |= {self.failure_of(future).text for future in futures}
            self.assertEqual(len(texts), 1, texts)
            self.assertEqual(sum(one.aborted for one in said), 1)
        self.assert_works(cluster)

    def test_a_stopped_rank_holds_nothing_up_while_data_moves(self):
        cluster = self.cluster_of(3)
        cluster.group("g", [0, 1, 2])
        for agent in cluster.agents:
            spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[4 << 20])
            agent.tensors.Create(tensors.CreateRequest(spec=spec, name="x"), timeout=LONG_S)
        request = collectives.AllReduceRequest(
            group="g", input=handle("x"), output="x", reduce_op=types.REDUCE_OP_MAX
        )
        counts = [0] * 3

        def work(agent):
            while True:
                agent.ops.AllReduce(request, timeout=LONG_S)
                counts[agent.rank] += 1

        def spoil():
            while min(counts) < 3:
                time.sleep(0.001)
            cluster.agents[2].program.send(signal.SIGSTOP)
            self.abort_as(cluster, members[0], "g", "stopped")

        members = [self.member(cluster, rank) for rank in range(3)]
        thread = threading.Thread(target=spoil)
        thread.start()
        began = time.monotonic()
        others = threading.Thread(target=lambda: cluster.on([2], work))
        others.start()
        try:
            failures = cluster.on([0, 1], work)
        finally:
            thread.join()
            took = time.monotonic() - began
            cluster.agents[2].program.send(signal.SIGCONT)
        others.join()
        for failure in failures:
            self.assert_failed(failure, ABORTED, "GROUP_ABORTED", "aborted by rank 0: stopped")
        self.assertLess(took, 30)
        self.assert_works(cluster)
        for agent in cluster.agents:  # memory is given back, too
            until = time.monotonic() + LONG_S
            while agent.stats().op_running_count > 0:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)

    def abort_as(self, cluster, member, name, reason):
        request = coordinator.AbortGroupRequest(member=member, name=name, reason=reason)
        return cluster.members.AbortGroup(request, timeout=LONG_S)

    def test_sends_and_receives_end_too(self):
        cluster = self.cluster_of(2)
        cluster.group("g", [0, 1])
        future = cluster.agents[1].ops.Recv.future(
            collectives.RecvRequest(group="g", source=0), timeout=LONG_S
        )
        while cluster.agents[1].stats().op_running_count == 0:
            time.sleep(0.005)
        self.abort(cluster, 0, "g", "enough")
        self.assert_failed(self.failure_of(future), ABORTED, "GROUP_ABORTED", "enough")

    def test_world_is_aborted_until_a_rank_joins(self):
        cluster = self.cluster_of(2)
        futures = self.start_on(cluster, [0], "world")
        self.abort(cluster, 1, "", "restart")
        self.assert_failed(self.failure_of(futures[0]), ABORTED, "GROUP_ABORTED", "restart")
        cluster.agents[1].program.kill()
        while "is lost" not in cluster.coordinator.log():
            time.sleep(0.01)
        cluster.replace(1)
        until = time.monotonic() + LONG_S
        while True:
            results = cluster.all(lambda agent: all_reduce(agent, np.ones(3, np.float32)))
            if not any(isinstance(one, support.Failure) for one in results):
                break
            self.assertLess(time.monotonic(), until, results)
        self.assertEqual([list(one) for one in results], [[2] * 3] * 2)

    def shrink(self, cluster, member, name, timeout_s=LONG_S):
        request = coordinator.ShrinkGroupRequest(
            member=member, name=name, timeout_ms=int(timeout_s * 1000)
        )
        return cluster.members.ShrinkGroup(request, timeout=timeout_s + LONG_S)

    def test_a_rank_dies_in_an_all_reduce_and_the_others_abort_shrink_and_go_on(self):
        cluster = self.cluster_of(4)
        cluster.group("g", [0, 1, 2, 3])
        members = [self.member(cluster, rank) for rank in range(4)]
        sent = np.ones(1 << 18, np.float32)
        started = threading.Barrier(5)
        found = [None] * 4

        def train(agent):
            rank, name = agent.rank, "g"
            all_reduce(agent, sent, group=name)
            started.wait(LONG_S)
            try:
                while True:
                    all_reduce(agent, sent, group=name)
            except grpc.RpcError as error:
                if rank == 2:
                    raise
                reason = support.Failure(error).reason
                self.assertIn(reason, ("RANK_LOST", "GROUP_ABORTED"), error)
            self.abort_as(cluster, members[rank], name, "rank %d lost somebody" % rank)
            made = self.shrink(cluster, members[rank], name)
            found[rank] = made
            return [float(one) for one in (
                all_reduce(agent, sent * (rank + 1), group=made.group.name)[:2]
            )]

        def spoil():
            started.wait(LONG_S)
            cluster.agents[2].program.kill()

        thread = threading.Thread(target=spoil)
        thread.start()
        results = cluster.all(train)
        thread.join()
        for rank in (0, 1, 3):
            self.assertEqual(results[rank], [7, 7], results)  # 1 + 2 + 4
            self.assertEqual(list(found[rank].group.ranks), [0, 1, 3])
            self.assertEqual(found[rank].group.name, "g.2")
            self.assertIn("rank 2 is lost", found[rank].left_out)
        self.assertEqual(len({found[rank].group.id for rank in (0, 1, 3)}), 1)

    def test_a_rank_that_does_not_call_is_left_out_and_hears_of_it(self):
        cluster = self.cluster_of(3)
        cluster.group("g", [0, 1, 2])
        members = [self.member(cluster, rank) for rank in range(3)]
        made = cluster.on([0, 1], lambda agent: self.shrink(cluster, members[agent.rank], "g", 0.3))
        for one in made:
            self.assertEqual(list(one.group.ranks), [0, 1], one)
            self.assertIn("rank 2 did not call within", one.left_out)
        found = self.fails(lambda: self.shrink(cluster, members[2], "g"))
        self.assert_failed(found, PRECONDITION, "SHRUNK_WITHOUT", "to g.2 with ranks 0, 1")
        for result in cluster.on([0, 1], lambda agent: all_reduce(agent, np.ones(1), group="g.2")):
            self.assertEqual(list(result), [2], result)

    def test_an_abort_while_a_shrink_waits_counts_and_the_shrink_goes_on(self):
        cluster = self.cluster_of(3)
        cluster.group("g", [0, 1, 2])
        members = [self.member(cluster, rank) for rank in range(3)]
        barriers = self.start_on(cluster, [2], "g")
        request = coordinator.ShrinkGroupRequest(name="g", timeout_ms=int(LONG_S * 1000))
        shrinks = []
        for rank in (0, 1):  # they wait for rank 2
            request.member.CopyFrom(members[rank])
            shrinks.append(cluster.members.ShrinkGroup.future(request, timeout=2 * LONG_S))
        said = self.abort(cluster, 2, "g", "the loss is NaN")
        self.assertTrue(said.aborted)
        self.assert_failed(self.failure_of(barriers[0]), ABORTED, "GROUP_ABORTED", "the loss is NaN")
        self.assertFalse(any(one.done() for one in shrinks))
        made = [self.shrink(cluster, members[2], "g")] + [one.result(LONG_S) for one in shrinks]
        for one in made:
            self.assertEqual((list(one.group.ranks), one.left_out), ([0, 1, 2], ""), one)
        self.assertEqual(len({one.group.id for one in made}), 1)
        for failure in cluster.all(lambda agent: all_reduce(agent, np.ones(1), group="g")):
            self.assert_failed(failure, ABORTED, "GROUP_ABORTED", "rank 2: the loss is NaN")
        name = made[0].group.name
        for result in cluster.all(lambda agent: all_reduce(agent, np.ones(1), group=name)):
            self.assertEqual(list(result), [3], result)

    def test_what_is_wrong_is_refused_by_name(self):
        cluster = self.cluster_of(3)
        cluster.group("g", [0, 1])
        found = self.fails(lambda: self.abort(cluster, 2, "g"))
        self.assert_failed(found, PRECONDITION, "NOT_IN_GROUP", "rank 2 is not in group g")
        found = self.fails(lambda: self.abort(cluster, 0, "none"))
        self.assert_failed(found, grpc.StatusCode.NOT_FOUND, "NO_GROUP", "none")
        found = self.fails(lambda: self.abort(cluster, 0, "g", id=99))
        self.assert_failed(found, grpc.StatusCode.NOT_FOUND, "NO_GROUP", "id 99")
        found = self.fails(lambda: self.abort(cluster, 0, "g", "x" * 257))
        self.assert_failed(found, grpc.StatusCode.INVALID_ARGUMENT, "REASON_LIMIT", "257", "256")
        said = self.abort(cluster, 0, "g", "a\nb\x01" + "y" * 200).abort.text
        self.assertIn(r"a\x0ab\x01yyy", said)


if __name__ == "__main__":
    support.main()
