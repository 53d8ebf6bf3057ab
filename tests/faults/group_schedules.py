"""Schedules in which ranks give a group up: one aborts it, or those that are left shrink it (docs/decisions/0031)."""

import signal
import time

import grpc
import numpy as np

from cluster_case import LONG_S, all_reduce, coordinator, support
from fault_cluster import Broken, coordinator_member
from fault_ops import CALL_S, SIZE
from schedules import Schedule

SHRINK_MS = 2000  # how long survivors wait for who is only stopped


class GroupSchedule(Schedule):
    """On a group of its own, of all ranks."""

    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        self.group = "%s/%d" % (fault, number)
        if phase == "data":
            self.count = op.large
        self.members = {}

    def play(self, cluster):
        self.members = {agent.rank: coordinator_member(agent) for agent in cluster.agents}
        self.create(cluster)
        self.cleanup = lambda: cluster.drop_group(self.group)
        return super().play(cluster)

    def create(self, cluster):
        request = coordinator.CreateGroupRequest(
            member=self.members[self.random.randrange(SIZE)], name=self.group, ranks=range(SIZE))
        return cluster.members.CreateGroup(request, timeout=LONG_S, wait_for_ready=True).group

    def play_data(self, cluster):
        """A large op, struck somewhere inside."""
        begun = self.begin(cluster, range(SIZE), self.plain)
        time.sleep(self.random.uniform(0, 0.012))
        self.strike(cluster)
        return self.finish(begun)

    def abort(self, cluster, rank):
        request = coordinator.AbortGroupRequest(
            member=self.members[rank], name=self.group, reason="schedule %d" % self.number)
        return cluster.members.AbortGroup(request, timeout=CALL_S).abort.text


class AbortSchedule(GroupSchedule):
    """The victim, and perhaps others at the same time, aborts the group. All ranks read the words of the same rank."""

    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        others = [rank for rank in range(SIZE) if rank != self.victim]
        self.struck_ranks = {self.victim} | set(self.random.sample(others, self.random.choice((0, 0, 1, 3))))
        self.told = {}

    def strike(self, cluster):
        ranks = sorted(self.struck_ranks)
        self.told = self.finish(self.begin(cluster, ranks, lambda agent: self.abort(cluster, agent.rank)))

    def judge(self, results):
        super().judge(results)
        texts = set(self.told.values()) | {one.text for one in results.values() if isinstance(one, support.Failure)}
        if len(texts) != 1:
            raise Broken("aborts differ: %s" % texts)

    def must_fail(self, rank):
        return self.phase == "before" or self.phase == "during" and (rank == self.victim or not self.op.rooted)

    def reasons(self):
        return ("GROUP_ABORTED",)

    def play(self, cluster):
        results = super().play(cluster)
        self.check_it_is_over(cluster)
        self.check_the_next_one(cluster)
        return results

    def check_it_is_over(self, cluster):
        again = self.finish(self.begin(cluster, range(SIZE), self.plain))
        if any(getattr(one, "reason", "") != "GROUP_ABORTED" for one in again.values()):
            raise Broken("after the abort: %s" % again)

    def check_the_next_one(self, cluster):
        """Made anew it works, with an op whose memory the abort may have left in use."""
        cluster.drop_group(self.group)
        self.create(cluster)
        for result in self.finish(self.begin(cluster, range(SIZE), self.plain)).values():
            if isinstance(result, (support.Failure, AssertionError)):
                raise Broken("the group that was made anew: %s" % result)


class ShrinkSchedule(GroupSchedule):
    """The victim is killed, is stopped, or has only left the program. The others abort, shrink, and go on."""

    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        self.how = self.random.choice(("kill", "stop", "leave"))
        self.rest = [rank for rank in range(SIZE) if rank != self.victim]
        self.name += " [%s]" % self.how

    def strike(self, cluster):
        program = cluster.agents[self.victim].program
        if self.how == "kill":
            program.kill()
        elif self.how == "stop":
            program.send(signal.SIGSTOP)
        if self.how != "kill":  # nobody would notice before the op's timeout
            self.abort(cluster, self.random.choice(self.rest))

    def plain(self, agent):
        if agent.rank == self.victim and self.how == "stop":
            return None  # its call would wait until the agent goes on
        return super().plain(agent)

    def must_fail(self, rank):
        return False  # judged by what comes after

    def reasons(self):
        return ("RANK_LOST", "GROUP_ABORTED")

    def judge_failure(self, rank, failure):
        if rank == self.victim:
            return
        if failure.reason not in self.reasons() or self.took > CALL_S - 1:
            raise Broken("rank %d: %s" % (rank, failure))

    def doubtful(self):
        return {self.victim} if self.how != "leave" else set()

    def play(self, cluster):
        results = super().play(cluster)
        found = self.finish(self.begin(cluster, self.rest, lambda agent: self.survive(cluster, agent)))
        if any(not isinstance(one, tuple) for one in found.values()):
            raise Broken("survivors: %s" % found)
        if len(set(found.values())) != 1 or list(found[self.rest[0]][2]) != self.rest:
            raise Broken("survivors differ: %s" % found)
        drop, old = found[self.rest[0]][1], self.group
        self.cleanup = lambda: (cluster.drop_group(drop), cluster.drop_group(old))
        return results

    def survive(self, cluster, agent):
        """What a trainer does: abort, shrink, go on. Id, name and ranks of the new group, and the old one's words."""
        text = self.abort(cluster, agent.rank)
        request = coordinator.ShrinkGroupRequest(
            member=self.members[agent.rank], name=self.group, timeout_ms=SHRINK_MS)
        made = cluster.members.ShrinkGroup(request, timeout=CALL_S)
        if "rank %d" % self.victim not in made.left_out:
            raise AssertionError("who was left out: %r" % made.left_out)
        try:
            all_reduce(agent, np.ones(1, np.int32), group=self.group, timeout=CALL_S)
            raise AssertionError("the old group still works")
        except grpc.RpcError as error:
            if support.Failure(error).reason != "GROUP_ABORTED":
                raise
        total = all_reduce(agent, np.full(3, 10**agent.rank, np.int64), group=made.group.name, timeout=CALL_S)
        if list(total) != [sum(10**rank for rank in self.rest)] * 3:
            raise AssertionError("the new group sums to %s" % total)
        return made.group.id, made.group.name, tuple(made.group.ranks), text
