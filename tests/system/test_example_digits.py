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
import train  # noqa: E402


def run_workers(*command):
    """Four workers beside four agents; what they print."""
    words = [os.path.join(support.PROGRAMS, "tutti"), "run", "-n", "4", "--no-prefix", "--"]
    done = subprocess.run(
        words + list(command), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, "exit code %d\n%s\n%s" % (
        done.returncode, done.stdout, done.stderr,
    )
    return done.stdout


def train_alone():
    """The training of train.py in this process: the four gradients of a step averaged here."""
    pixels, labels = train.load(DATA)
    held_out = len(labels) // 5
    length = (len(labels) - held_out) // train.SHARDS
    weights = np.zeros((train.CLASSES, train.PIXELS + 1), np.float32)
    for _ in range(train.EPOCHS):
        for step in range(length // train.BATCH):
            parts = []
            for rank in range(train.SHARDS):
                first = held_out + rank * length + step * train.BATCH
                rows = slice(first, first + train.BATCH)
                parts.append(train.gradient(pixels[rows], labels[rows], weights)[0])
            averaged = np.sum(parts, axis=0, dtype=np.float32) / np.float32(train.SHARDS)
            weights = weights - train.RATE * averaged.astype(np.float32)
    return weights


class Digits(unittest.TestCase):
    def assert_learns(self, text):
        """A line for each epoch, the loss goes down, and the last accuracy is good."""
        epochs = re.findall(r"epoch +\d+ +loss ([\d.]+) +accuracy ([\d.]+) %", text)
        self.assertEqual(len(epochs), train.EPOCHS, text)
        self.assertLess(float(epochs[-1][0]), float(epochs[0][0]) / 4)
        self.assertGreaterEqual(float(epochs[-1][1]), 95)

    def test_python_workers_with_stock_stubs_train_what_one_process_trains(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.npy")
            script = os.path.join(EXAMPLES, "digits", "train.py")
            self.assert_learns(run_workers(sys.executable, script, DATA, "--save", path))
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
