"""broadcast_state_dict. Two ranks; prints "ok" lines and fails by an exception."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import tutti_torch
from torch import nn


def make_net(seed, width=300):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(7, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    net(torch.randn(16, 7))  # gives the buffers values
    return net


def check_equal(rank):
    net, theirs = make_net(rank), make_net(1)
    tutti_torch.broadcast_state_dict(net, 1)
    for name, value in theirs.state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name
    assert all(parameter.requires_grad for parameter in net.parameters())


def check_different(rank):
    net, before = make_net(rank, 10 + rank), make_net(rank, 10 + rank)
    try:
        tutti_torch.broadcast_state_dict(net)
    except ValueError as error:
        assert "0.weight" in str(error) and "(11, 7)" in str(error) and "(10, 7)" in str(error), error
    else:
        raise AssertionError("nothing was raised")
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before.parameters()))


def work(rank, size, path):
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=size)
    for check in (check_equal, check_different):
        check(rank)
        dist.barrier()
        if rank == 0:
            print("ok", check.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (2, os.path.join(folder, "store")), nprocs=2)
