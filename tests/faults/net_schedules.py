"""Schedules between hosts: what is cut, lossy or slow is the network, and one side keeps the job."""

import threading

from cluster_case import LONG_S, all_reduce, coordinator, support
from deck import HARMLESS
from fault_cluster import Broken, coordinator_member
from fault_ops import SIZE
from schedules import Schedule

import numpy as np

SLOW_TIMEOUT_MS = 9000  # of ops that must end well


class NetSchedule(Schedule):
    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        self.cut = {self.victim}
        if fault in ("split", "apart") and (fault == "apart" or self.random.random() < 0.5):
            self.cut.add((self.victim + self.random.randrange(1, SIZE)) % SIZE)
        if fault in HARMLESS:
            self.timeout_ms = SLOW_TIMEOUT_MS

    def strike(self, cluster):
        hosts = cluster.network.hosts
        mine = [cluster.host_of(rank) for rank in sorted(self.cut)]
        rest = [host for host in hosts if host not in mine]
        if self.fault in ("split", "blink"):
            cluster.network.part(mine, rest)
        elif self.fault == "alone":
            cluster.network.part(mine, [cluster.seat])
        elif self.fault == "apart":
            cluster.network.part(mine[:1], mine[1:])
        elif self.fault == "loss":
            every = self.random.randrange(15, 40)
            mine[0].drop(*(other.address for other in rest), every=every)
            for other in rest:
                other.drop(mine[0].address, every=every)
        elif self.fault == "slow":
            mine[0].slow("%dmbit" % self.random.choice((40, 100, 200)))
        if self.fault == "blink":
            self.timer = threading.Timer(self.random.uniform(0.05, 0.4), cluster.mend)
            self.timer.start()

    def play(self, cluster):
        results = super().play(cluster)
        if self.fault == "blink":
            self.timer.join(LONG_S)
        if self.fault == "split" and self.phase in ("before", "during", "after", "wait", "group"):
            self.check_the_job_goes_on(cluster)
        return results

    def check_the_job_goes_on(self, cluster):
        """While they are apart, the side with the coordinator makes a group of its own and uses it."""
        rest = [rank for rank in range(SIZE) if rank not in self.cut]
        name = "rest%d" % self.number
        cluster.members.CreateGroup(
            coordinator.CreateGroupRequest(member=coordinator_member(cluster.agents[rest[0]]), name=name, ranks=rest),
            timeout=LONG_S, wait_for_ready=True)
        for result in cluster.on(rest, lambda agent: all_reduce(agent, np.ones(5, np.int32), group=name)):
            if isinstance(result, support.Failure) or list(result) != [len(rest)] * 5:
                raise Broken("the side of the coordinator does not go on: %s" % result)
        cluster.drop_group(name)

    def must_fail(self, rank):
        """An op that needs both sides succeeds on neither."""
        if self.fault != "split" or self.op.rooted or (self.phase == "wait" and rank == self.victim):
            return False  # where only two are apart some may have all they need; their results are looked at
        if self.op.name == "barrier" and self.phase == "during" and rank in self.cut:
            return False  # all the others had come, and had told the victim so, which may tell its side
        return self.phase in ("before", "during", "after", "wait", "group")

    def reasons(self):
        return ("RANK_LOST", "TIMEOUT", "CUT_OFF")  # whichever time is up first; who is named is looked at

    def culprits(self):
        return self.cut

    def doubtful(self):
        return self.cut if self.fault in ("split", "alone") else set()
