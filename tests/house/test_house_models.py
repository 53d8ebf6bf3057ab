"""Goal: the protocols of shared memory, of lanes and of joining are right, and the models that say so can fail.

Method: Spin looks at every interleaving of docs/models; with any of their orders changed it must find
what goes wrong.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

MODELS = os.path.join(SOURCE, "docs", "models")
CC = os.environ.get("TUTTI_CC", "cc")


@unittest.skipUnless(shutil.which("spin"), "no spin here: apt-get install spin")
class TestModels(unittest.TestCase):
    def check(self, model, *defines):
        """What Spin finds wrong first, "" for nothing; and how many states it saw."""
        source = os.path.join(MODELS, model + ".pml")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["spin", "-a", *defines, source], cwd=folder, check=True, stdout=subprocess.DEVNULL
            )
            pan = [CC, "-w", "-O1", "-DSAFETY", "-DVECTORSZ=1024", "-DCOLLAPSE", "-DMEMLIM=1024"]
            subprocess.run([*pan, "-o", "pan", "pan.c"], cwd=folder, check=True)
            out = subprocess.run(
                ["./pan", "-m100000"], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
            ).stdout
        self.assertNotIn("max search depth too small", out)
        wrong = re.search(r"pan:1: (.*?)(?: \(at depth|$)", out, re.M)
        states = re.search(r"(\d+) states, stored", out)
        return "" if wrong is None else wrong.group(1), int(states.group(1))

    def test_ring__loses_no_record_and_no_bell(self):
        wrong, states = self.check("shm_ring", "-DRECORDS=4")
        print("# %d states" % states)
        self.assertEqual(wrong, "")
        self.assertGreater(states, 10000)

    def test_ring__needs_each_of_its_orders(self):
        for define, what in [
            ("WEAK_TAIL", "assertion violated (view[1].at"),  # reads what is not there yet
            ("WEAK_HEAD", "assertion violated (view[0].at"),  # writes over what is being read
            ("WEAK_SLEEP", "invalid end state"),  # sleeps for ever
            ("NO_LOOK", "invalid end state"),
        ]:
            with self.subTest(define):
                wrong, _ = self.check("shm_ring", "-DRECORDS=3", "-D" + define)
                self.assertIn(what, wrong)

    def test_lanes__of_which_one_thread_serves_several_lose_no_message(self):
        for recent in (1, 2):
            with self.subTest(recent=recent):
                wrong, states = self.check("lane_sleep", "-DRECENT=%d" % recent)
                print("# %d states" % states)
                self.assertEqual(wrong, "")
                self.assertGreater(states, 10000)

    def test_lanes__need_each_of_their_rules(self):
        for define, recent in [("KEEP_REPLACED", 1), ("KEEP_OTHERS", 2), ("WAKE_CROWDED", 2)]:
            with self.subTest(define):
                wrong, _ = self.check("lane_sleep", "-DRECENT=%d" % recent, "-D" + define)
                self.assertIn("invalid end state", wrong)

    def test_join__drops_no_signature(self):
        wrong, states = self.check("join")
        self.assertEqual(wrong, "")
        self.assertGreater(states, 30)

    def test_join__needs_the_seat_before_the_key(self):
        wrong, _ = self.check("join", "-DKEY_FIRST")
        self.assertIn("invalid end state", wrong)


if __name__ == "__main__":
    tap.main()
