"""Goal: programs that come to agents that stay never get the ends of another run's calls.

Method: real programs, one for each rank; some runs lack a rank and are stopped by Ctrl-C, or by their time.
"""

import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import numpy as np  # noqa: E402
import tap  # noqa: E402

PROGRAM = """
import sys
import numpy as np
import tutti

with tutti.connect(sys.argv[1]) as agent:
    print("calls", flush=True)
    for step in range(3):
        print(float(agent.all_reduce(np.ones(1000), timeout=float(sys.argv[2]))[0]), flush=True)
"""


REFUSED = """
import sys
import numpy as np
import tutti

with tutti.connect(sys.argv[1]) as agent:
    print("calls", flush=True)
    mine = agent.put(np.ones(1))  # while this program lives
    agent.broadcast(np.ones(1000), root=99)
"""


class Runs(case.AgentCase):
    def start(self, ranks, timeout=case.LONG_S, program=PROGRAM):
        return [
            subprocess.Popen(
                [sys.executable, "-c", program, case.ADDRESSES[rank], str(timeout)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in ranks
        ]

    def succeed(self):
        for program in self.start(range(self.size)):
            self.assertEqual(program.communicate()[0].split(), ["calls"] + [str(float(self.size))] * 3)

    def fail(self, programs):
        for program in programs:
            said, errors = program.communicate()
            self.assertEqual(said.split(), ["calls"], errors)
            self.assertNotEqual(program.returncode, 0)

        self.hear()

    def hear(self):
        """What the ranks have told each other of these programs has come: messages keep their order."""
        for one in self.agents:
            for other in self.agents:
                if one is not other:
                    calls = [lambda: one.send(np.ones(1), other.rank), lambda: other.recv(one.rank)]
                    case.good(case.in_threads(calls))

    def wait_entered(self, rank):
        until = time.monotonic() + case.LONG_S
        while self.agents[rank].stats().op_running_count == 0:
            self.assertLess(time.monotonic(), until)

    def test_a_run_that_ctrl_c_ended_leaves_nothing_to_the_next_one(self):
        for ranks in ([0], [0, 2], [3, 1]):
            programs = self.start(ranks)
            for rank in ranks:
                self.wait_entered(rank)
            programs[0].send_signal(signal.SIGINT)
            self.fail(programs)
            self.succeed()

    def test_nor_one_whose_time_was_over(self):
        self.fail(self.start([1, 2], timeout=0.3))
        self.succeed()

    def test_nor_one_that_was_refused_a_moment_ago(self):
        for rank in (0, 2):
            kept = self.agents[rank].stats().tensor_count
            self.fail(self.start([rank], program=REFUSED))
            until = time.monotonic() + case.LONG_S
            while self.agents[rank].stats().tensor_count != kept:  # its agent has noticed that it is gone
                self.assertLess(time.monotonic(), until)
            self.hear()
            self.succeed()


if __name__ == "__main__":
    tap.main()
