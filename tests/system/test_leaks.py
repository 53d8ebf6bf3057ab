"""Goal: programs that are killed at any moment leave nothing in the agents.

Method: controllers that broadcast, scatter and reduce arrays in a pipeline, and trainers, which reduce arrays and tensors
of a lease with another one or wait for it, all with Python's package; each is killed a drawn time after its first
call. Then the agents must hold nothing. TUTTI_LEAK_KILLS is how many (20); TUTTI_LEAK_SEED draws the same again.
"""

import os
import random
import signal
import subprocess
import sys
import time

import support
from cluster_case import LONG_S, ClusterCase

sys.path.append(os.path.join(support.SOURCE, "tests", "support"))
import built_package  # noqa: E402

KILLS = int(os.environ.get("TUTTI_LEAK_KILLS", "20"))
SEED = int(os.environ.get("TUTTI_LEAK_SEED", str(random.randrange(1 << 30))))
LATEST_S = 0.05  # after the first call
AT_ONCE = 4

# Forks a program for each line "KIND ADDRESS", since to import numpy takes longer than to be killed.
NURSERY = """
import os, sys
import numpy as np, tutti

LARGE = np.ones(60000, np.float32)

def say(word):
    os.write(1, f"{word} {os.getpid()}\\n".encode())

def controller(address):
    session = tutti.session(address)
    registers = [session.scatter(np.ones((2, 60000), np.float32))]
    session.sync()
    say("up")
    while True:
        registers.append(session.broadcast(LARGE))
        registers.append(session.allreduce(registers[0], op="sum"))
        registers.append(session.scatter(np.ones((2, 30000), np.float32)))
        del registers[1:-4]

def trainer(address):
    with tutti.connect(address) as agent:
        mine = agent.put(LARGE)
        agent.empty(60000, np.float32)
        say("up")
        while True:
            try:
                agent.all_reduce(mine, timeout=5)
                agent.all_reduce(LARGE, timeout=5)
            except tutti.TuttiError:
                pass  # the other one is killed

for line in sys.stdin:
    kind, address = line.split()
    if os.fork() == 0:
        say("born")
        try:
            {"controller": controller, "trainer": trainer}[kind](address)
        except Exception as error:
            print("failed", os.getpid(), kind, repr(error)[:500], flush=True)
        os._exit(1)
"""


class Leaks(ClusterCase):
    size = 2

    def setUp(self):
        super().setUp()
        self.alive = set()
        self.nursery = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env=dict(os.environ, PYTHONPATH=built_package.build()))
        self.addCleanup(self.end_nursery)

    def end_nursery(self):
        self.nursery.kill()
        self.nursery.communicate()
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)

    def start(self, kind, rank):
        self.nursery.stdin.write("%s %s\n" % (kind, self.cluster.agents[rank].program.address))

    def next_up(self):
        """The next program that has made its first call."""
        while True:
            word, pid, *why = self.nursery.stdout.readline().split()
            self.assertIn(word, ("born", "up"), " ".join(why))
            if word == "up":
                return int(pid)
            self.alive.add(int(pid))

    def kill(self, pid):
        self.alive.discard(pid)
        os.kill(pid, signal.SIGKILL)

    def wait_forgotten(self):
        for agent in self.cluster.agents:
            self.wait_empty(agent)
        until = time.monotonic() + LONG_S
        while any("session" in group.group for agent in self.cluster.agents for group in agent.stats().groups):
            self.assertLess(time.monotonic(), until, [agent.stats() for agent in self.cluster.agents])
            time.sleep(0.01)

    def test_killed_programs_leave_nothing(self):
        draw = random.Random(SEED)
        print("# TUTTI_LEAK_SEED=%d" % SEED, flush=True)
        wanted = [(draw.choice(("controller", "controller", "trainer")), draw.randrange(2)) for _ in range(KILLS)]
        for one in wanted[:AT_ONCE]:
            self.start(*one)
        for number in range(KILLS):
            pid = self.next_up()
            if number + AT_ONCE < KILLS:
                self.start(*wanted[number + AT_ONCE])
            time.sleep(draw.random() * LATEST_S)  # it is killed in the middle of something
            self.kill(pid)
        self.wait_forgotten()


if __name__ == "__main__":
    support.main()
