"""Schedules in which a trainer is killed, a client of libtutti with memory under its lease, and its agent lives on."""

import os
import subprocess
import sys
import time

import grpc

from cluster_case import LONG_S, support
from fault_cluster import Broken
from fault_ops import SIZE, TIMEOUT_MS
from schedules import Schedule

sys.path.append(os.path.join(support.SOURCE, "tests", "support"))
import built_package  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = {"during": "idle", "data": "calls", "wait": "async"}


class TrainerSchedule(Schedule):
    """The victim's rank has a trainer in the place of our calls. The others call until a call fails."""

    def play(self, cluster):
        self.longest = 0
        words = [sys.executable, os.path.join(HERE, "trainer.py"), cluster.agents[self.victim].program.address,
                 str(self.count), str(TIMEOUT_MS / 1000), WAYS[self.phase]]
        trainer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=False,
                                   env=dict(os.environ, PYTHONPATH=built_package.build()))
        try:
            if trainer.stdout.readline() != "up\n":
                raise Broken("the trainer does not come up")
            others = [rank for rank in range(SIZE) if rank != self.victim]
            begun = self.begin(cluster, others, self.until_it_fails)
            self.wait_running(cluster, others, begun[1])
            time.sleep(self.random.uniform(0, 0.05))
            if trainer.poll() is not None:
                raise Broken("the trainer has ended by itself")
        finally:
            trainer.kill()
            trainer.communicate()
        results = self.finish(begun)
        self.go_on(cluster)
        return results

    def go_on(self, cluster):
        """A new program takes the seat of the dead one; who was told of an end calls again."""
        cluster.agents[self.victim].renew_client()
        until = time.monotonic() + LONG_S
        again = self.begin(cluster, range(SIZE), lambda agent: self.until_it_works(agent, until))
        for rank, failed in self.finish(again).items():
            if failed is not None:
                raise Broken("rank %d does not go on: %s" % (rank, failed))

    def until_it_works(self, agent, until):
        while True:
            try:
                self.plain(agent)
                return None
            except grpc.RpcError:
                if time.monotonic() > until:
                    raise

    def until_it_fails(self, agent):
        while True:
            begun = time.monotonic()
            try:
                self.plain(agent)
            finally:
                self.longest = max(self.longest, time.monotonic() - begun)

    def one(self, agent, results, call):
        super().one(agent, results, call)
        self.took = self.longest  # of one call, not of all

    def reasons(self):
        return ("TIMEOUT", "CALLER_GONE")
