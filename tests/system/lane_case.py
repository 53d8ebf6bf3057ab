"""Clients with lanes for tests, and agents that tell how many lanes they have."""

import os
import subprocess
import time
import unittest

import support
from cluster_case import LONG_S, Cluster, MeteredAgent

PROGRAM = os.path.join(support.BUILD, "tests", "client", "lane_program")


class Client:
    """One lane_program; `before` = a command that runs it."""

    def __init__(self, case, agent, before=(), program=PROGRAM, **environment):
        self.process = subprocess.Popen(
            [*before, program, agent.program.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=dict(os.environ, **environment))
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        case.addCleanup(self.process.stdin.close)

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def cpu_ticks(self):
        with open("/proc/%d/stat" % self.process.pid) as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))


class Watched(MeteredAgent):
    """An agent that tells of its lanes."""

    def lanes(self):
        return self.count("tutti_agent_lanes")

    def lane_switches(self):
        """How often the thread of its lanes has begun to sleep, and was made to wait for a core."""
        process = "/proc/%d/task/" % self.program.process.pid
        for task in os.listdir(process):
            with open(process + task + "/status") as file:
                lines = dict(line.split(":", 1) for line in file.read().splitlines())
            if lines["Name"].strip() == "tutti-lanes":
                return int(lines["voluntary_ctxt_switches"]) + int(lines["nonvoluntary_ctxt_switches"])
        raise AssertionError("the agent has no thread of lanes")

    def messages(self):
        """Of clients, that came by lanes since the agent began."""
        return self.count("tutti_agent_lane_messages_total")

    def close(self):
        super().close()
        self.folder.cleanup()


class WatchedCluster(Cluster):
    agent_class = Watched


class LaneCase(unittest.TestCase):
    size = 2
    options = ()

    def setUp(self):
        self.cluster = WatchedCluster(self.size, *self.options)
        self.addCleanup(self.cluster.stop)

    def lanes(self, rank=0):
        return self.cluster.agents[rank].lanes()

    def wait_lanes(self, count, rank=0):
        until = time.monotonic() + LONG_S
        while self.lanes(rank) != count:
            self.assertLess(time.monotonic(), until, self.lanes(rank))
            time.sleep(0.02)

    def pair(self, **environment):
        return [Client(self, agent, **environment) for agent in self.cluster.agents]

    def all_say(self, clients, *words):
        for client in clients:
            client.say(*words)
        return [client.hear() for client in clients]
