"""Goal: broadcast_state_dict gives all ranks the state of one, or says on all of them what differs and changes nothing.
Method: two ranks, forks of this process.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

place.enter()

import unittest

import torch
from torch import nn

import ranks
import tap
import tutti_torch


def make_net(seed, width=300):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(7, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    net(torch.randn(16, 7))  # gives the buffers values
    return net


def equal(rank, size):
    net, theirs = make_net(rank), make_net(1)
    tutti_torch.broadcast_state_dict(net, 1)
    for name, value in theirs.state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name
    assert all(parameter.requires_grad for parameter in net.parameters())


def different(rank, size):
    net, before = make_net(rank, 10 + rank), make_net(rank, 10 + rank)
    try:
        tutti_torch.broadcast_state_dict(net)
    except ValueError as error:
        assert "0.weight" in str(error) and "(11, 7)" in str(error) and "(10, 7)" in str(error), error
    else:
        raise AssertionError("nothing was raised")
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before.parameters()))


class State(unittest.TestCase):
    def test_equal(self):
        ranks.run(2, equal)

    def test_different(self):
        ranks.run(2, different)


if __name__ == "__main__":
    tap.main()
