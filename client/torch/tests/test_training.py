"""Goal: what is trained on "tutti" has the weights that Gloo gives: equal bits on two ranks, to 1e-6 on four, where sums
have another order. Method: training.py on both, in forks of this process.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

place.enter()

import unittest

import torch

import older
import ranks
import tap
import training

CLOSE = 1e-6


def both(function, size):
    """Weights of all ranks, by Gloo and by tutti."""
    found = []
    for backend in ("gloo", "tutti"):
        said = ranks.run(size, lambda rank, size: [one.numpy() for one in function(rank, size)], backend)
        found.append([torch.from_numpy(one) for weights in said for one in weights])
    return found


class Training(unittest.TestCase):
    def check(self, function, size):
        ours, theirs = both(function, size)
        self.assertEqual(len(ours), len(theirs))
        for one, other in zip(ours, theirs):
            if size == 2:
                self.assertTrue(torch.equal(one, other), "apart by %g" % (one - other).abs().max())
            else:
                self.assertLessEqual((one - other).abs().max().item(), CLOSE * max(1.0, other.abs().max().item()))


for _function in training.ALL:
    for _size in (2, 4):
        def _test(self, function=_function, size=_size):
            if function is training.fsdp and older.VERSION < (2, 5):
                self.skipTest("fully_shard of torch %s needs CUDA" % torch.__version__)
            self.check(function, size)
        setattr(Training, "test_%s_%d" % (_function.__name__, _size), _test)

if __name__ == "__main__":
    tap.main()
