"""Goal: schedules of the simulation hold their promises, the same ones in each run; a seed plays the same schedule again, and
what is wrong is found.

Method: tutti-sim. Other seeds are for ./run sim, and ./run sim --mutants has bugs that are put in.
"""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap

PROGRAM = os.path.join(os.environ["TUTTI_BUILD"], "tests", "sim", "tutti-sim")
SCHEDULES = 500


def sim(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=280)
    sys.stderr.write(done.stderr.decode(errors="replace"))  # of a sanitizer, with the numbers of processes
    return done.returncode, done.stdout.decode(errors="replace")


class Sim(unittest.TestCase):
    def test_schedules_hold_their_promises(self):
        code, said = sim("--kinds", "--jobs", 2, "--seed", 1, "--schedules", SCHEDULES, "--seconds", 270)
        self.assertEqual(code, 0, said[-6000:])
        self.assertIn("\n%d schedules, 0 failed" % SCHEDULES, said)
        self.assertEqual(re.findall(r"^ +0  (.*)", said, re.M), [], "what has never occurred")

    def test_a_seed_plays_the_same_history_again(self):
        first, second = sim("--replay", 11), sim("--replay", 11)
        self.assertEqual(first[0], 0, first[1][-6000:])
        self.assertEqual(first, second)
        self.assertTrue(re.search(r"\nhash [0-9a-f]{16}\n", first[1]), first[1][-200:])
        self.assertNotEqual(first, sim("--replay", 12))

    def test_seeds_that_have_failed_are_well(self):
        for kind, seed in (("engine", 401683), ("cluster", 211), ("cluster", 321), ("cluster", 461), ("cluster", 100348), ("store", 6003358),
                           ("store", 6009556), ("store", 6012372), ("store", 6013081)):
            with self.subTest(kind=kind, seed=seed):
                code, said = sim("--kind", kind, "--replay", seed)
                self.assertEqual(code, 0, said[-6000:])

    def test_clusters_hold_their_promises(self):
        code, said = sim("--kind", "cluster", "--seed", 1, "--schedules", 60, "--seconds", 270)
        self.assertEqual(code, 0, said[-6000:])
        self.assertIn("\n60 schedules, 0 failed", said)

    def test_stores_hold_their_promises(self):
        code, said = sim("--kind", "store", "--seed", 1, "--schedules", 400, "--seconds", 270)
        self.assertEqual(code, 0, said[-6000:])
        self.assertIn("\n400 schedules, 0 failed", said)

    def test_a_store_has_the_same_history_again(self):
        first, second = sim("--kind", "store", "--replay", 11), sim("--kind", "store", "--replay", 11)
        self.assertEqual(first[0], 0, first[1][-6000:])
        self.assertEqual(first, second)
        self.assertTrue(re.search(r"\nhash [0-9a-f]{16}\n", first[1]), first[1][-200:])

    def test_a_cluster_has_the_same_history_again(self):
        first, second = sim("--kind", "cluster", "--replay", 11), sim("--kind", "cluster", "--replay", 11)
        self.assertEqual(first[0], 0, first[1][-6000:])
        self.assertEqual(first, second)
        self.assertTrue(re.search(r"\nhash [0-9a-f]{16}\n", first[1]), first[1][-200:])

    def test_a_broken_promise_of_a_cluster_is_found(self):
        code, said = sim("--kind", "cluster", "--break", 3, "--replay", 2)
        self.assertEqual(code, 1, said[-3000:])
        self.assertRegex(said, r"BROKEN at .*: step 3 .* is \d+ and not \d+")

    def test_a_broken_promise_is_cut_down_to_what_it_needs(self):
        code, said = sim("--break", 3, "--seed", 1, "--schedules", 40, "--seconds", 270)
        self.assertEqual(code, 1, said[-3000:])
        least = re.search(r"--replay (\d+:([0-9a-f]+):([0-9a-f]+))", said)
        self.assertEqual(bin(int(least[2], 16)).count("1"), 1, said[-3000:])
        self.assertEqual(int(least[3], 16), 0, said[-3000:])
        code, said = sim("--break", 3, "--replay", least[1])
        self.assertEqual(code, 1)
        self.assertIn("BROKEN", said)


if __name__ == "__main__":
    tap.main()
