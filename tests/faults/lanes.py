"""Several clusters side by side, each with schedules of its own to play: most of a schedule is waiting."""

import collections
import os
import queue
import threading
import time
import traceback

import uses
from fault_cluster import Broken
from fault_ops import SIZE

LOG_BYTES = 1000000 if "TUTTI_LOG" in os.environ else 1500  # of each agent, when a schedule broke
FIRST = 5  # schedules after which a process has made all that it keeps
SETTLE_S = 40  # a lane that was offered, and not taken, is kept for 30 s
SOCKETS = SIZE - 1  # two ranks have one connection or two, depending on who began


class Lane:
    """A cluster and who plays on it. `kind` makes a schedule, `make` a cluster of SIZE ranks."""

    def __init__(self, report, options, kind, make):
        self.report, self.options, self.kind, self.make = report, options, kind, make
        self.base = {}
        self.cluster = None

    def work(self, cards, until):
        """Play what `cards` has until it is empty or time is up."""
        try:
            while until is None or time.monotonic() < until:
                card = cards.get_nowait()
                if self.cluster is None:
                    self.cluster = self.make(SIZE)
                self.play(self.kind(self.options.seed, *card))
        except queue.Empty:
            pass
        except BaseException as error:  # a lane that is lost must be seen
            self.report.lost_lane("%s: %s" % (self.make.__name__, error))
            traceback.print_exc()

    def play(self, schedule):
        began = time.monotonic()
        try:
            results = schedule.play(self.cluster)
            schedule.judge(results)
            self.cluster.heal(schedule.doubtful())
            schedule.cleanup()
            self.cluster.check_rest()
            self.check_uses()
        except (Broken, AssertionError, Exception) as error:  # noqa: B902: whatever it is, it is a finding
            logs = [(agent.rank, "exit code %s; %s" % (agent.program.process.poll(), agent.program.log()[-LOG_BYTES:]))
                    for agent in self.cluster.agents]
            self.report.broke(schedule, error, logs)
            self.begin_again()
        if schedule.fault == "descriptors":
            self.base = {}  # ranks that could not share memory then go on by other connections
        self.report.played(schedule, time.monotonic() - began)

    def begin_again(self):
        self.cluster.kill()
        self.cluster = None
        self.base = {}

    def check_uses(self):
        """A process that outlives many schedules holds no more than after its first ones."""
        for agent in self.cluster.agents:
            pid = agent.program.process.pid
            seen, base = self.base.setdefault(pid, (0, collections.Counter()))
            if seen < FIRST:
                self.base[pid] = (seen + 1, base | uses.of(pid))
            else:
                self.check_growth(agent, pid, base)

    def check_growth(self, agent, pid, base):
        """What is on its way to be given back has a while for it."""
        until = time.monotonic() + SETTLE_S
        while True:
            now = uses.of(pid)
            grown = uses.grown(now, base, SOCKETS)
            if not grown:
                break
            if time.monotonic() > until:
                raise Broken("a leak: rank %d holds more than after its first schedules: %s" % (agent.rank, grown))
            time.sleep(0.05)
        self.report.gained([one - two for one, two in zip(uses.totals(now), uses.totals(base))])

    def end(self):
        """Everybody is asked to end, and does."""
        if self.cluster is None:
            return
        cluster, self.cluster = self.cluster, None
        try:
            cluster.end()
        except (Broken, AssertionError) as error:
            cluster.kill()
            self.report.lost_lane("at the end: %s" % error)

    def kill(self):
        if self.cluster is not None:
            self.cluster.kill()


def play(lanes_and_cards, minutes):
    """All lanes until their cards are played, or the minutes are over."""
    until = time.monotonic() + minutes * 60 if minutes else None
    threads = [threading.Thread(target=lane.work, args=(cards, until), daemon=True) for lane, cards in lanes_and_cards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lane, _ in lanes_and_cards:
        lane.end()
