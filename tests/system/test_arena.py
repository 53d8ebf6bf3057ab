"""Goal: memory of libtutti's arena is the agent's; ops on it copy nothing. Method: tests/client/arena_program.c on two
ranks; and with agents that lend no memory.
"""

import os
import resource
import subprocess
import sys
import time
import unittest

import support
from cluster_case import LONG_S, Cluster

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "faults"))
from relay import Relay  # noqa: E402

sys.path.append(os.path.join(support.SOURCE, "tests", "support"))
import built_package  # noqa: E402

REDUCES = """
import sys
import numpy as np, tutti
with tutti.connect(sys.argv[1]) as agent:
    x = agent.zeros(100000, np.float32)
    x[:] = 1
    for _ in range(5):  # the ranks meet, and the client has its lane
        agent.all_reduce(np.ones(1, np.float32))
    print("ready", flush=True)
    sys.stdin.readline()
    print(agent.all_reduce(x, out=x, timeout=5)[0])
"""
PROGRAM = os.path.join(support.BUILD, "tests", "client", "arena_program")


class Arena(unittest.TestCase):
    def run_beside(self, *options):
        """On agents of a cluster of ours; exit codes and what was said."""
        cluster = Cluster(2, *options)
        self.addCleanup(cluster.kill)
        ranks = [subprocess.Popen([PROGRAM, "none"], env=dict(os.environ, TUTTI_AGENT=agent.program.address),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for agent in cluster.agents]
        said = "".join(rank.communicate(timeout=LONG_S * 2)[0].decode() for rank in ranks)
        return [rank.returncode for rank in ranks], said

    def test_libtutti_copies_nothing(self):
        code, out, err = support.run("tutti", "run", "-n", "2", "--", PROGRAM, timeout=LONG_S * 2)
        self.assertEqual(code, 0, out + err)

    def test_an_agent_that_lends_nothing(self):
        codes, said = self.run_beside("--no-share")
        self.assertEqual(codes, [0, 0], said)

    def start_holder(self, address):
        """A program with memory of the arena that has been used; it goes on when it gets a line."""
        rank = subprocess.Popen([PROGRAM, "outlive"], env=dict(os.environ, TUTTI_AGENT=address), text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(rank.communicate)
        self.addCleanup(rank.kill)
        self.assertEqual(rank.stdout.readline(), "ready\n")
        return rank

    def go_on(self, rank):
        """What it says of each of its calls, and all of it."""
        out, _ = rank.communicate("go\n", timeout=LONG_S)
        self.assertEqual(rank.returncode, 0, out)
        return {line.split()[0]: line.split()[1] for line in out.splitlines()}, out

    def wait_empty(self, agent, mapped=False):
        """`mapped`: the program lives, and maps what was deleted."""
        until = time.monotonic() + LONG_S
        while agent.stats().tensor_count + (0 if mapped else agent.stats().memory_used_bytes) > 0:
            self.assertLess(time.monotonic(), until, agent.stats())
            time.sleep(0.01)

    def test_a_program_that_is_killed_leaves_nothing(self):
        cluster = Cluster(1)
        self.addCleanup(cluster.kill)
        agent = cluster.agents[0]
        for _ in range(3):
            rank = self.start_holder(agent.program.address)
            self.assertGreater(agent.stats().tensor_count, 0)
            rank.kill()
            self.wait_empty(agent)

    def test_a_connection_that_breaks_takes_the_memory_and_ops_go_on(self):
        cluster = Cluster(1)
        self.addCleanup(cluster.kill)
        relay = Relay(cluster.agents[0].program.address)
        self.addCleanup(relay.close)
        rank = self.start_holder(relay.address)
        relay.cut()
        self.wait_empty(cluster.agents[0], mapped=True)
        said, out = self.go_on(rank)
        self.assertIn(said["first"], ("OK", "CONNECTION_LOST", "UNREACHABLE"), out)
        self.assertEqual([said[one] for one in ("alloc", "plain", "again", "closed")], ["OK"] * 4, out)
        self.wait_empty(cluster.agents[0])

    def outlive(self, again):
        """What a program says whose agent dies, and perhaps is started again at the same address."""
        cluster = Cluster(1)
        self.addCleanup(cluster.kill)
        agent = cluster.agents[0]
        rank = self.start_holder(agent.program.address)
        agent.program.kill()
        if again:
            until = time.monotonic() + LONG_S
            while "is lost" not in cluster.coordinator.log():
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            fresh = support.Program("tutti-agent", "--coordinator", cluster.coordinator.address, "--world-size", "1",
                                    "--rank", "0", listen=agent.program.address)
            self.addCleanup(fresh.kill)
            fresh.wait_for_log("joined job")
        return self.go_on(rank)

    def test_memory_outlives_its_agent_and_ops_on_it_say_so(self):
        lost = ("CONNECTION_LOST", "UNREACHABLE")
        said, out = self.outlive(again=False)
        for one in ("first", "alloc", "plain", "again"):
            self.assertIn(said[one], lost, out)
        self.assertEqual(said["closed"], "OK", out)

    def test_memory_of_an_agent_that_was_started_again_is_memory_like_any_other(self):
        said, out = self.outlive(again=True)
        self.assertIn(said["first"], ("OK", "CONNECTION_LOST", "UNREACHABLE"), out)  # whoever notices
        self.assertEqual([said[one] for one in ("alloc", "plain", "again", "closed")], ["OK"] * 4, out)

    def test_agents_without_a_descriptor_reduce_it(self):
        """What it takes to map memory of another rank for the first time is kept for that."""
        cluster = Cluster(2)
        self.addCleanup(cluster.kill)
        ranks = []
        for agent in cluster.agents:
            ranks.append(subprocess.Popen(
                [sys.executable, "-c", REDUCES, agent.program.address], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, PYTHONPATH=built_package.build())))
            self.addCleanup(ranks[-1].communicate)
            self.addCleanup(ranks[-1].kill)
        self.assertEqual([rank.stdout.readline() for rank in ranks], ["ready\n"] * 2)
        for agent in cluster.agents:
            pid = agent.program.process.pid
            held = {int(name) for name in os.listdir("/proc/%d/fd" % pid)}
            free = min(set(range(len(held) + 1)) - held)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
        for rank in ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        said = [rank.communicate(timeout=LONG_S)[0] for rank in ranks]
        self.assertEqual(said, ["2.0\n"] * 2)


if __name__ == "__main__":
    support.main()
