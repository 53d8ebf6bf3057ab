"""Goal: libtutti's completion queues do what their header says, against real agents.

Method: tests/client/queue_program.c and list_data_program.c, which are two ranks, and queue_sweep_program.c, which is
one; its own words when it fails.
"""

import os
import unittest

import cluster_case
import support

LISTS = os.path.join(support.BUILD, "tests", "client", "list_data_program")
SWEEP = os.path.join(support.BUILD, "tests", "client", "queue_sweep_program")
PROGRAM = os.path.join(support.BUILD, "tests", "client", "queue_program")


class TestQueue(unittest.TestCase):
    def run_ranks(self, program, count=2):
        code, out, err = support.run(
            "tutti", "run", "-n", str(count), "--", program, timeout=4 * support.START_S
        )
        self.assertEqual(code, 0, out + err)

    def test_a_queue_is_what_its_header_says(self):
        self.run_ranks(PROGRAM)

    def test_lists_of_memory_are_one_op(self):
        self.run_ranks(LISTS)

    def test_each_submission_has_one_completion_whichever_allocation_fails(self):
        self.run_ranks(SWEEP, 1)

    def run_alone(self, mode):
        cluster = cluster_case.Cluster(2)
        self.addCleanup(cluster.stop)
        for agent in cluster.agents:
            agent.wait_joined()
        code, out, err = support.run(
            PROGRAM,
            mode,
            timeout=4 * support.START_S,
            environment={"TUTTI_AGENT": cluster.agents[0].program.address},
        )
        self.assertEqual(code, 0, out + err)

    def test_all_is_completed_when_the_agent_is_killed(self):
        self.run_alone("outlive")

    def test_it_is_shut_down_beside_an_agent_that_stands_still(self):
        self.run_alone("stopped")


if __name__ == "__main__":
    support.main()
