"""Goal: agents take the algorithms they are told to, give the same results whatever they take, and do not wait for
ever when they were told different things; wrong words are refused at the start, with what would be right.

Method: real agents; a host id of its own for every agent, or for every second one, makes several hosts of this
machine.
"""

import os
import tempfile
import unittest

import numpy as np

import support
from cluster_case import LONG_S, Agent, Cluster, ClusterCase, all_reduce

SIZES = (1, 5, 1000, 4097, 70001, 120001)


def start(cluster, size, options):
    """A cluster whose agents have options of their own."""
    for rank in range(size):
        cluster.agents.append(Agent(cluster, rank, *options(rank)))
    for agent in cluster.agents:
        agent.wait_joined()


class Apart(unittest.TestCase):
    """Each test makes its own cluster: agents differ in their options."""

    def check(self, size, options, sizes=SIZES, dtype=np.int64):
        cluster = Cluster(0)
        try:
            cluster.size = size
            start(cluster, size, options)
            for count in sizes:
                inputs = [(np.arange(count) * (rank + 1) % 97).astype(dtype) for rank in range(size)]
                wanted = sum(inputs[1:], inputs[0].copy())
                for result in cluster.all(lambda agent: all_reduce(agent, inputs[agent.rank])):
                    self.assertEqual(result.tobytes(), wanted.tobytes(), count)
        finally:
            cluster.stop()

    def test_every_algorithm_of_all_reduce_between_hosts_of_one_rank(self):
        for name in ("flat", "direct", "bruck", "chain", "recursive_doubling", "ring", "rabenseifner"):
            self.check(3, lambda rank: ("--host-id", "h%d" % rank,
                                        "--algorithm", "all_reduce=" + name), SIZES[::2])

    def test_two_hosts_of_two_ranks(self):
        for name in ("hierarchical", "chain", "ring"):
            self.check(4, lambda rank: ("--host-id", "h%d" % (rank // 2),
                                        "--algorithm", "all_reduce=" + name))

    def test_agents_that_were_told_different_things_still_agree(self):
        names = ("ring", "chain", "rabenseifner")
        self.check(3, lambda rank: ("--host-id", "h%d" % rank,
                                    "--algorithm", "all_reduce=" + names[rank]), dtype=np.float64)


class Words(unittest.TestCase):
    def refused(self, *options):
        code, out, err = support.run("tutti-agent", "--coordinator", "127.0.0.1:1", *options)
        self.assertNotEqual(code, 0)
        return out + err

    def test_an_algorithm_that_is_none_is_refused_with_those_there_are(self):
        said = self.refused("--algorithm", "all_reduce=fastest")
        self.assertIn("fastest is no algorithm of all_reduce", said)
        self.assertIn("recursive_doubling", said)

    def test_an_op_that_is_none_is_refused_with_those_there_are(self):
        said = self.refused("--algorithm", "reduce_all=ring")
        self.assertIn("reduce_all is no op", said)
        self.assertIn("reduce_scatter", said)

    def test_a_table_that_is_none_is_refused_with_the_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table")
            with open(path, "w") as file:
                file.write("tutti-table 1\nall_reduce any * * * ring\nall_reduce any 7q * * ring\n")
            self.assertIn("line 3 of the table: 7q is no bytes", self.refused("--tune-table", path))
            with open(path, "wb") as file:
                file.write(os.urandom(4096))
            self.assertIn('not "tutti-table 1"', self.refused("--tune-table", path))
        self.assertIn("No such file", self.refused("--tune-table", path))


if __name__ == "__main__":
    support.main()
