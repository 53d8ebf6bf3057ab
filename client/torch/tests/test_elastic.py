"""Goal: training goes on with the ranks that are left, whichever one is lost, and their weights are equal. Method:
examples/torch_elastic.py, whose ranks are killed by SIGKILL while they train.
"""

import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

sys.path.insert(0, os.path.join(place.SOURCE, "tests", "support"))
import tap

EXAMPLE = os.path.join(place.SOURCE, "examples", "torch_elastic.py")
STEPS = 400
LIMIT_S = 300


class Run:
    """The example, and what it has said."""

    def __init__(self, ranks):
        words = ["timeout", "-k", "5", str(LIMIT_S), place.PYTHON, EXAMPLE, "--ranks", str(ranks), "--steps", str(STEPS)]
        self.said = ""
        # Whole lines: the ranks share the pipe, and an unbuffered Python writes a line's end by itself.
        known = place.environment(PYTHONUNBUFFERED="")
        self.process = subprocess.Popen(words, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def read_until(self, pattern, times=1):
        """All matches, once there are so many; the example ends by itself, at its limit at last."""
        while len(re.findall(pattern, self.said, re.MULTILINE)) < times:
            line = self.process.stdout.readline()
            assert line, "it has ended before it said %r:\n%s" % (pattern, self.said)
            self.said += line
        return re.findall(pattern, self.said, re.MULTILINE)

    def kill(self, rank):
        pids = dict(self.read_until(r"^rank (\d+) is process (\d+)", 1 + rank))
        os.kill(int(pids[str(rank)]), signal.SIGKILL)

    def end(self):
        self.said += self.process.stdout.read()
        return self.process.wait()


class Elastic(unittest.TestCase):
    def check_end(self, run, ranks):
        code = run.end()
        self.assertEqual(code, 0, run.said)
        ends = re.findall(r"(\d+) ranks at the end, weights are equal: (\w+)", run.said)
        self.assertEqual(ends, [(str(ranks), "True")] * ranks, run.said)

    def check_one(self, victim):
        run = Run(3)
        run.read_until(r"rank %d: step 30: " % victim)
        run.kill(victim)
        goes_on = run.read_until(r"rank \d+ is rank \d of 2 now, and goes on from step (\d+)", 2)
        self.assertEqual(len(set(goes_on)), 1, run.said)
        self.assertGreaterEqual(int(goes_on[0]), 30)
        self.check_end(run, 2)
        self.assertEqual(len(re.findall(r"^rank \d: step \d+: tutti: UNAVAILABLE RANK_\w+: .*rank %d" % victim, run.said,
                                        re.MULTILINE)), 2, run.said)

    def test_the_last_rank_is_lost(self):
        self.check_one(2)

    def test_the_first_rank_is_lost(self):
        """With a coordinator of its own it is a rank as the others."""
        self.check_one(0)

    def test_one_after_the_other(self):
        run = Run(3)
        run.read_until(r"rank 1: step 30: ")
        run.kill(1)
        run.read_until(r"rank \d+ is rank \d of 2 now", 2)
        run.kill(0)
        run.read_until(r"rank 1 is rank 0 of 1 now", 1)
        self.check_end(run, 1)


if __name__ == "__main__":
    place.prepare()
    tap.main()
