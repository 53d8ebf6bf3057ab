"""Schedules that strike at named points of the data plane (lib/coll/fault_inject/fault_inject.h), inside one agent."""

import threading
import time

import numpy as np

from cluster_case import all_reduce, support, types
from deck import HARMLESS
from fault_cluster import LONG_S, Broken, FaultCluster
from fault_ops import CALL_S, SIZE, TIMEOUT_MS
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


class AnswerSchedule(PointSchedule):
    """The victim's agent is killed between an op's success and its answer. Its caller does not know that the step is
    done, and repeats it, while the others call their next one: the two must not become one op."""

    TRANSIENT = ("RANK_LOST", "EPOCH_CHANGED", "TIMEOUT", "")  # until the victim's successor has its seat everywhere

    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, "kill-at", phase, op)
        self.fault = fault
        self.rule = "before-done:kill:1"
        self.name = "%s %s %s" % (fault, phase, op.name)
        self.step = 2 * number + 1

    def sum(self, agent, step):
        """Each step has numbers of its own: a sum of two steps is wrong."""
        array = np.full(self.count, step % 1000, np.int64)
        options = types.OpOptions(step=step, timeout_ms=TIMEOUT_MS)
        if not (all_reduce(agent, array, timeout=CALL_S, options=options) == SIZE * (step % 1000)).all():
            raise AssertionError("step %d: a wrong sum" % step)
        return step

    def play(self, cluster):
        agent = cluster.agents[self.victim]
        agent.page.set(self.rule)
        first = self.call_all(cluster, {rank: self.step for rank in range(SIZE)})
        self.struck = agent.page.struck > 0
        if not self.struck:
            raise Broken("the point before-done was not reached")
        done = [rank for rank, result in first.items() if result == self.step]
        cluster.replace(self.victim)
        steps = {rank: self.step + (rank in done) for rank in range(SIZE)}
        if done:
            self.repeat(cluster, steps, self.check_refused)
        self.repeat(cluster, {rank: self.step for rank in range(SIZE)}, self.check_done)
        return {}

    def call_all(self, cluster, steps):
        results = self.finish(self.begin(cluster, range(SIZE), lambda agent: self.sum(agent, steps[agent.rank])))
        for result in results.values():
            if isinstance(result, AssertionError):
                raise Broken("a wrong result as success: %s" % result)
        return results

    def repeat(self, cluster, steps, check):
        """Until nothing transient is left of the victim's return."""
        until = time.monotonic() + LONG_S
        while True:
            results = self.call_all(cluster, steps)
            if check(results):
                return
            for rank, result in results.items():
                if isinstance(result, support.Failure) and result.reason not in self.TRANSIENT + ("OP_MISMATCH",):
                    raise Broken("rank %d: %s" % (rank, result))
            if time.monotonic() > until:
                raise Broken("after the return: %s" % results)
            time.sleep(0.02)

    def check_refused(self, results):
        """All ranks are told who is at which step; nobody has succeeded."""
        for rank, result in results.items():
            if not isinstance(result, support.Failure):
                raise Broken("rank %d succeeded with another step than the others" % rank)
        words = ("at step %d" % self.step, "at step %d" % (self.step + 1))
        return all(result.reason == "OP_MISMATCH" and all(word in result.text for word in words)
                   for result in results.values())

    def check_done(self, results):
        return all(result == self.step for result in results.values())

    def doubtful(self):
        return set()  # its successor has its seat
