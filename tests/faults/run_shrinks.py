"""Goal: whichever rank dies or stops, whenever, the others abort, shrink and go on with right sums; nothing
hangs.

Method: runs of four agents, a seed each: a group in a storm of all-reduces, of which some move data and some
are async; a victim is killed or stopped at a drawn moment, or nobody is; all that are left abort at once (some
several times), shrink with a drawn timeout, and sum in the new group; then the next victim of that one, until
two ranks are left. A killed agent is replaced before the next run.

usage: run_shrinks.py [--runs N] [--seed S] [--only I]
"""

import argparse
import random
import signal
import sys
import threading
import time

import fault_cluster  # noqa: F401  it knows where cluster_case is
from cluster_case import Cluster, all_reduce, coordinator, support, types

import grpc
import numpy as np

SIZE = 4
HANG_S = 30
QUICK = ("--heartbeat-interval", "100ms", "--heartbeat-timeout", "1s", "--lost-grace", "200ms")
ENDS = ("RANK_LOST", "GROUP_ABORTED")


class Run:
    def __init__(self, cluster, seed, number):
        self.cluster = cluster
        self.random = random.Random("%d/%d" % (seed, number))
        self.members = [
            types.Member(rank=agent.rank, incarnation=agent.describe().incarnation)
            for agent in cluster.agents
        ]
        self.killed, self.stopped, self.wrong = set(), set(), []
        self.count = self.random.choice((1, 1000, 1 << 18))
        self.words = []

    def abort(self, rank, name):
        request = coordinator.AbortGroupRequest(
            member=self.members[rank], name=name, reason="by rank %d" % rank
        )
        return self.cluster.members.AbortGroup(request, timeout=HANG_S).abort.text

    def shrink(self, rank, name, timeout_ms):
        request = coordinator.ShrinkGroupRequest(
            member=self.members[rank], name=name, timeout_ms=timeout_ms
        )
        return self.cluster.members.ShrinkGroup(request, timeout=HANG_S)

    def reduce(self, rank, name, scale=1.0):
        data = np.full(self.count, scale, np.float32)
        return all_reduce(self.cluster.agents[rank], data, group=name, timeout=HANG_S)

    def until_it_ends(self, rank, name):
        """All-reduces until one fails; its reason."""
        while True:
            try:
                self.reduce(rank, name)
            except grpc.RpcError as error:
                return support.Failure(error)

    def survivor(self, rank, name, plan, found):
        failure = self.until_it_ends(rank, name)
        if failure.reason not in ENDS:
            self.wrong.append("rank %d in %s: %s" % (rank, name, failure))
        texts = {self.abort(rank, name) for _ in range(plan["aborts"][rank])}
        if failure.reason == "GROUP_ABORTED":
            texts.add(failure.text)
        made = self.shrink(rank, name, plan["timeout_ms"])
        texts.add(self.until_it_ends(rank, name).text)  # the old group is over for good
        total = self.reduce(rank, made.group.name, 10.0**rank)
        found[rank] = (made.group, texts, {float(one) for one in total})

    def round_of(self, name, ranks):
        """One victim of the group; the next group and its ranks."""
        how = self.random.choice(("kill", "stop", "nobody"))
        victim = self.random.choice(ranks)
        left = [rank for rank in ranks if rank != victim]
        plan = {
            "aborts": {rank: self.random.choice((0, 1, 1, 3)) for rank in left},
            # An op whose memory a stopped rank holds is told to its caller after a second, so a
            # survivor may come so late.
            "timeout_ms": self.random.choice((2000, 3000)),
        }
        plan["aborts"][left[0]] = max(1, plan["aborts"][left[0]])
        self.words.append("%s %d of %s" % (how, victim, name))
        found = {}
        threads = [
            threading.Thread(target=self.guarded, args=(rank, self.survivor, name, plan, found), daemon=True)
            for rank in left
        ]
        threads.append(threading.Thread(target=self.victim, args=(victim, name), daemon=True))
        for thread in threads:
            thread.start()
        time.sleep(self.random.uniform(0, 0.05))  # the moment that is drawn
        agent = self.cluster.agents[victim]
        if how == "kill":
            agent.program.kill()
            self.killed.add(victim)
        elif how == "stop":
            agent.program.send(signal.SIGSTOP)
            self.stopped.add(victim)
        # Someone has to notice a rank that is only stopped, or a wish of the program.
        self.guarded(left[0], lambda rank: self.abort(rank, name))
        for thread in threads[:-1]:
            thread.join(HANG_S * 4)
            if thread.is_alive():
                raise AssertionError("%s: a survivor hangs" % ", ".join(self.words))
        if self.wrong:
            raise AssertionError("%s: %s" % (", ".join(self.words), "; ".join(self.wrong)))
        self.judge(found, left)
        if how == "stop":
            agent.program.send(signal.SIGCONT)
        return found[left[0]][0].name, left

    def guarded(self, rank, call, *arguments):
        try:
            call(rank, *arguments)
        except grpc.RpcError as error:
            self.wrong.append("rank %d: %s" % (rank, support.Failure(error)))
        except Exception as error:  # noqa: BLE001  the thread's own, told by the main one
            self.wrong.append("rank %d: %r" % (rank, error))

    def victim(self, rank, name):
        try:
            self.until_it_ends(rank, name)
        except Exception:  # noqa: BLE001  what a victim reads is not judged
            pass

    def judge(self, found, left):
        groups = {(group.id, group.name, tuple(group.ranks)) for group, _, _ in found.values()}
        # The text may say beside that a stopped rank holds memory of that op.
        texts = {text.split(" (rank ")[0] for _, all_texts, _ in found.values() for text in all_texts}
        sums = [total for _, _, total in found.values()]
        want = {float(sum(10.0**rank for rank in left))}
        if len(groups) != 1 or list(groups)[0][2] != tuple(left):
            raise AssertionError("%s: groups %s, want %s" % (self.words, groups, left))
        if len(texts) != 1:
            raise AssertionError("%s: aborts differ: %s" % (self.words, texts))
        if any(total != want for total in sums):
            raise AssertionError("%s: sums %s, want %s" % (self.words, sums, want))

    def play(self, number):
        name, ranks = "shrink/%d" % number, list(range(SIZE))
        self.cluster.group(name, ranks)
        while len(ranks) > 2:
            name, ranks = self.round_of(name, ranks)

    def mend(self):
        """Who was killed, or was lost while it was stopped, is replaced."""
        for rank in self.killed | self.stopped:
            program = self.cluster.agents[rank].program
            if rank in self.stopped:
                program.send(signal.SIGCONT)
                program.kill()
            until = time.monotonic() + HANG_S
            while not self.is_lost(rank):
                assert time.monotonic() < until, "rank %d is not lost" % rank
                time.sleep(0.01)
            self.cluster.replace(rank)

    def is_lost(self, rank):
        request = coordinator.LookupRanksRequest(ranks=[rank])
        return self.cluster.members.LookupRanks(request, timeout=HANG_S).ranks[0].state == 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, default=-1)
    options = parser.parse_args()
    numbers = range(options.runs) if options.only < 0 else [options.only]
    broken, began = 0, time.monotonic()
    cluster = Cluster(SIZE, coordinator_options=QUICK)
    try:
        for number in numbers:
            run = Run(cluster, options.seed, number)
            try:
                run.play(number)
            except AssertionError as error:
                broken += 1
                print("# run %d: %s" % (number, error), flush=True)
            run.mend()
    finally:
        cluster.stop()
    print("%s 1 - shrinks: %d runs of seed %d, %d broken, %.0f s" % (
        "not ok" if broken else "ok", len(numbers), options.seed, broken, time.monotonic() - began))
    print("1..1")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
