"""Goal: a rank that is no member any more is not heard by those who stay, whatever it knows, and they
go on; over the network and over shared memory.
Method: an agent is stopped until it is lost, with calls that wait for it, and then goes on: what it
says in its old epoch is refused by its name."""

import signal
import sys
import time
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

import numpy as np  # noqa: E402

from cluster_case import Cluster, LONG_S, all_reduce, collectives  # noqa: E402
from test_agent_shm import arenas  # noqa: E402

ONES = np.ones(4, np.float32)
STAY = [0, 1]


class Expelled(unittest.TestCase):
    def lose_one(self, *options):
        """Rank 2 of a world is stopped, with calls that wait for it, until the others have expelled it."""
        beats = ("--heartbeat-interval", "200ms", "--heartbeat-timeout", "6s")
        self.cluster = Cluster(3, *options, "--memory-limit", "64MiB", coordinator_options=beats)
        self.addCleanup(self.cluster.kill)
        for _ in range(3):
            self.cluster.all(lambda agent: all_reduce(agent, ONES))  # ways are there, keys known
        self.cluster.group("stay", STAY)
        self.gone = self.cluster.agents[2]
        self.gone.program.send(signal.SIGSTOP)
        call = collectives.BarrierRequest()
        self.futures = [self.gone.ops.Barrier.future(call, timeout=LONG_S) for _ in range(5)]
        for rank in STAY:
            self.cluster.agents[rank].program.wait_for_log("rank 2 is lost")
        time.sleep(1)  # last words are heard for 0.3 s; their end makes no event
        self.assert_stay(self.cluster)

    def let_it_go_on(self):
        """It tries to speak, and hears at last what has happened."""
        self.gone.program.send(signal.SIGCONT)
        for future in self.futures:
            self.assertIsNotNone(future.exception(timeout=LONG_S))
        self.assertEqual(self.gone.program.wait(), 1)
        self.assert_stay(self.cluster)
        self.assert_comes_back(self.cluster)

    def assert_stay(self, cluster):
        for result in cluster.on(STAY, lambda agent: all_reduce(agent, ONES, group="stay")):
            self.assertNotIsInstance(result, support.Failure, result)
            self.assertEqual(list(result), [2] * 4)

    def assert_comes_back(self, cluster):
        """In a new epoch, as a fresh process."""
        cluster.replace(2)
        for agent in cluster.agents:
            agent.program.wait_for_log("epoch 3")
        for result in cluster.all(lambda agent: all_reduce(agent, ONES)):
            self.assertEqual(list(result), [3] * 4)

    def test_is_refused_by_name_over_the_network(self):
        self.lose_one("--no-shm")
        self.let_it_go_on()
        for rank in STAY:
            log = self.cluster.agents[rank].program.log()
            self.assertIn("refused a packet that rank 2 (incarnation", log)
            self.assertIn("it is no member any more", log)

    def test_shares_no_memory_any_more(self):
        self.lose_one()
        for rank in STAY:  # its ring is hung up and its arena unmapped: of three, two are left
            self.assertEqual(arenas(self.cluster.agents[rank]), 2)
        self.let_it_go_on()


if __name__ == "__main__":
    support.main()
