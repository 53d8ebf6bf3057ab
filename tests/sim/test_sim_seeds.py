"""Goal: schedules from seeds that nobody has played hold their promises, too; and both compilers play the same histories.

Method: tutti-sim from a seed of the clock, which is printed, for some seconds; with "long", for ten minutes. What fails is cut
down and printed as a history: --replay plays it again.
"""

import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap

LONG = "long" in sys.argv[1:]
SECONDS = 600 if LONG else 15
BUILDS = os.path.dirname(os.environ["TUTTI_BUILD"])


def program(build):
    return os.path.join(BUILDS, build, "tests", "sim", "tutti-sim")


def sim(path, *words):
    done = subprocess.run([path, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS + 400)
    return done.returncode, done.stdout.decode(errors="replace")


class Seeds(unittest.TestCase):
    def test_schedules_of_new_seeds_hold_their_promises(self):
        seed = int(time.time())
        code, said = sim(os.path.join(os.environ["TUTTI_BUILD"], "tests", "sim", "tutti-sim"), "--jobs", 2, "--seconds", SECONDS, "--failures", 1,
                         "--seed", seed)
        sys.stderr.write("seed %d: %s\n" % (seed, said.splitlines()[-1]))
        self.assertEqual(code, 0, said[-20000:])

    if LONG and all(os.path.exists(program(build)) for build in ("dev", "clang")):

        def test_both_compilers_play_the_same_histories(self):
            hashes = [re.search(r"hash ([0-9a-f]{16})", sim(program(build), "--seed", 1, "--schedules", 300, "--seconds", 300)[1])[1]
                      for build in ("dev", "clang")]
            self.assertEqual(hashes[0], hashes[1])


if __name__ == "__main__":
    sys.argv[1:] = [word for word in sys.argv[1:] if word != "long"]
    tap.main()
