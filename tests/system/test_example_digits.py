"""Goal: what examples/ promises holds, in C and in Python.

Method: both as a reader would start them, with `tutti run`; the Python one with stubs that a stock
protoc made. Its weights are compared with the same training in one process.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import support

os.environ["TUTTI_STUBS"] = support.build_stubs()
EXAMPLES = os.path.join(support.SOURCE, "examples")
DATA = os.path.join(EXAMPLES, "data", "digits.csv.gz")
TIMEOUT_S = 240
sys.path.insert(0, os.path.join(EXAMPLES, "digits"))
sys.path.append(os.path.join(support.SOURCE, "tests", "support"))
import built_package  # noqa: E402
import digits  # noqa: E402


def run_workers(*command, environment=None):
    """Four workers beside four agents; what they print."""
    words = [os.path.join(support.PROGRAMS, "tutti"), "run", "-n", "4", "--no-prefix", "--"]
    done = subprocess.run(
        words + list(command), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env=dict(os.environ, **(environment or {})),
    )
    assert done.returncode == 0, "exit code %d\n%s\n%s" % (
        done.returncode, done.stdout, done.stderr,
    )
    return done.stdout


def train_alone():
    """The training of digits.py in this process: the four gradients of a step averaged here."""
    shards = [digits.Shard(DATA, rank) for rank in range(digits.SHARDS)]
    weights = np.zeros((digits.CLASSES, digits.PIXELS + 1), np.float32)
    for _ in range(digits.EPOCHS):
        for step in range(shards[0].steps):
            parts = [shard.gradient(step, weights)[0] for shard in shards]
            averaged = np.sum(parts, axis=0, dtype=np.float32) / np.float32(digits.SHARDS)
            weights = weights - digits.RATE * averaged.astype(np.float32)
    return weights


class Digits(unittest.TestCase):
    def assert_learns(self, text):
        """A line for each epoch, the loss goes down, and the last accuracy is good."""
        epochs = re.findall(r"epoch +\d+ +loss ([\d.]+) +accuracy ([\d.]+) %", text)
        self.assertEqual(len(epochs), digits.EPOCHS, text)
        self.assertLess(float(epochs[-1][0]), float(epochs[0][0]) / 4)
        self.assertGreaterEqual(float(epochs[-1][1]), 95)

    def test_python_workers_with_stock_stubs_train_what_one_process_trains(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.npy")
            script = os.path.join(EXAMPLES, "digits", "train.py")
            self.assert_learns(run_workers(sys.executable, script, DATA, "--save", path))
            together = np.load(path)
        self.assertLess(np.abs(together - train_alone()).max(), 1e-5)

    def test_python_workers_with_the_package_train_what_one_process_trains(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.npy")
            script = os.path.join(EXAMPLES, "digits", "train_package.py")
            self.assert_learns(run_workers(
                sys.executable, script, DATA, "--save", path, environment={"PYTHONPATH": built_package.build()}))
            together = np.load(path)
        self.assertLess(np.abs(together - train_alone()).max(), 1e-5)

    def test_c_workers_train_what_one_process_trains(self):
        program = os.path.join(support.BUILD, "examples", "digits", "digits-train")
        text = run_workers(program, DATA)
        self.assert_learns(text)
        differ = re.search(r"differ by at most ([\d.e+-]+)", text)
        self.assertIsNotNone(differ, text)
        self.assertLessEqual(float(differ[1]), 1e-5)


if __name__ == "__main__":
    support.main()
