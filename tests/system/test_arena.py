"""Goal: memory of libtutti's arena is the agent's; ops on it copy nothing. Method: tests/client/arena_program.c on two
ranks; and with agents that lend no memory.
"""

import os
import subprocess
import unittest

import support
from cluster_case import LONG_S, Cluster

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


if __name__ == "__main__":
    support.main()
