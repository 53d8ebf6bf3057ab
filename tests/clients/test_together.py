#!/usr/bin/python3
"""Goal: ranks in different languages take part in the same ops, and understand each other's objects.

Method: rank 0 is the Python package, rank 1 libtutti; both print what they got.
"""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap
import worlds
from worlds import support

HERE = os.path.dirname(os.path.abspath(__file__))
RUN_S = 60
WANT = """broadcast: text/plain; charset=utf-8: a text
all_gather: application/json: {"rank": 0}
all_gather: application/json: {"rank": 1}
"""


class Together(unittest.TestCase):
    def test_objects_of_c_and_python(self):
        python, folder = worlds.install("debian", "together")
        program = worlds.compile_c("cc", os.path.join(HERE, "together.c"))
        ranks = [[python, os.path.join(HERE, "together.py")], [program]]
        with worlds.Cluster(len(ranks)) as cluster:
            started = [
                subprocess.Popen(
                    words,
                    env=dict(os.environ, TUTTI_AGENT=agent.address, PYTHONPATH=folder),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    close_fds=False,
                )
                for words, agent in zip(ranks, cluster.agents)
            ]
            said = [one.communicate(timeout=RUN_S)[0].decode() for one in started]
        self.assertEqual(said, [WANT, WANT])


if __name__ == "__main__":
    tap.main()
