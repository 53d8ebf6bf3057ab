"""Schedules that strike at named points of the data plane (lib/coll/chaos.h), inside one agent."""

import threading
import time

from fault_cluster import LONG_S, Broken, FaultCluster
from deck import HARMLESS
from fault_ops import SIZE
from schedules import Schedule

OP_POINTS = ("after-agree", "before-data", "mid-data", "before-done")
PACKETS = ("agree", "data", "agree", "data", "agree", "data", "abort", "query", "report", "reset")
P2P_PACKETS = ("send", "taken")


class WireCluster(FaultCluster):
    """No shared memory: every packet takes the way between hosts, where it can be lost."""

    def __init__(self, size):
        super().__init__(size, "--no-shm")


class PointSchedule(Schedule):
    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        action = fault[: -len("-at")]
        points = OP_POINTS
        if op.name == "send_recv":
            points = ("before-done",)
        if action in ("drop", "duplicate", "cut"):
            points = P2P_PACKETS if op.name == "send_recv" else PACKETS
        if action == "delay":
            action += "=%d" % self.random.randrange(1, 200)
        self.rule = "%s:%s:%d" % (self.random.choice(points), action, self.random.choice((1, 1, 1, 2, 3)))
        self.name += " [%s]" % self.rule
        self.struck = False

    def strike(self, cluster):
        """It strikes by itself."""

    def play(self, cluster):
        agent = cluster.agents[self.victim]
        before, over = agent.page.struck, threading.Event()
        agent.page.set(self.rule)
        waker = threading.Thread(target=self.wake_later, args=(agent, before, over))
        waker.start()
        try:
            return super().play(cluster)
        finally:
            over.set()
            waker.join(LONG_S)
            self.struck = agent.page.struck != before
            agent.page.set("")

    def wake_later(self, agent, before, over):
        """Who stopped itself does not wake up by itself."""
        while self.fault == "stop-at" and not over.wait(0.005):
            if agent.page.struck != before:
                time.sleep(self.random.uniform(0.02, 0.3))
                self.wake(agent)
                return

    def must_fail(self, rank):
        return False

    def judge_failure(self, rank, failure):
        if not self.struck or self.fault in HARMLESS:
            raise Broken("rank %d failed where %s: %s" % (
                rank, "a delay was due" if self.struck else "nothing was spoilt", failure))
        super().judge_failure(rank, failure)

    def reasons(self):
        return ("RANK_LOST", "TIMEOUT") if self.fault in ("drop-at", "cut-at") else ("RANK_LOST",)

    def culprits(self):
        """Where a packet or a way is lost, each end may name the other."""
        return set(range(SIZE)) if self.fault in ("drop-at", "cut-at") else {self.victim}

    def doubtful(self):
        return {self.victim} if self.struck and self.fault == "kill-at" else set()
