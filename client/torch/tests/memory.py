"""Memory of the agent's: ops on it copy nothing, DDP and FSDP2 take it. Two ranks; prints "ok" lines and fails by an exception."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import tutti_torch
from torch import nn

COUNT = 1 << 20


def copies_of(call):
    before = tutti_torch.copied_bytes()
    call()
    return tutti_torch.copied_bytes() - before


def check_ops(rank, size):
    tensor = tutti_torch.empty(4, COUNT // 4)
    tensor.fill_(rank + 1)
    assert copies_of(lambda: dist.all_reduce(tensor)) == 0
    assert torch.equal(tensor, torch.full((4, COUNT // 4), size * (size + 1) / 2))
    part = tensor[1:3]
    part.fill_(rank)
    assert copies_of(lambda: dist.all_reduce(part)) == 0, "a view of it needs no copy"
    assert torch.equal(tensor[1:3], torch.full((2, COUNT // 4), size * (size - 1) / 2))
    assert tensor[0, 0] == size * (size + 1) / 2, "what is beside the view is as it was"
    ordinary = torch.ones(COUNT)
    assert copies_of(lambda: dist.all_reduce(ordinary)) == 2 * ordinary.nbytes, "in and out"


def check_lifetime():
    pieces = [tutti_torch.empty(COUNT) for _ in range(4)]
    kept = pieces[0].view(-1)[5:10]
    kept.fill_(7)
    del pieces
    assert torch.equal(kept, torch.full((5,), 7.0)), "a view keeps the memory"
    assert tutti_torch.empty(0).numel() == 0
    assert tutti_torch.empty((2, 3), dtype=torch.int64).dtype == torch.int64


def train(net, steps=3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(4, 256, generator=draw)).square().mean().backward()
        optimizer.step()


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 16))


def check_ddp():
    assert os.environ["DDP_DISABLE_COMM_MEM"] == "0"
    net = nn.parallel.DistributedDataParallel(make_net(), gradient_as_bucket_view=True)
    train(net, 2)  # after the first step the buckets are made anew
    assert copies_of(lambda: train(net)) == 0, "gradients are in memory of the agent's"


def check_fsdp():
    from torch.distributed.fsdp import fully_shard

    net = fully_shard(make_net())
    train(net)
    ordinary = copies_of(lambda: train(net))
    assert ordinary > 0
    net.set_allocate_memory_from_process_group_for_comm(True)
    train(net)
    assert copies_of(lambda: train(net)) < ordinary


def check_chained(rank, size):
    """A callback of a work that waits for another op, as PowerSGD's hook does."""
    first, second = torch.ones(COUNT), torch.full((4,), float(rank))

    def then(future):
        return dist.all_reduce(second, async_op=True).get_future().wait()[0]

    result = dist.all_reduce(first, async_op=True).get_future().then(then).wait()
    assert torch.equal(result, torch.full((4,), size * (size - 1) / 2))


def work(rank, size, path):
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=size)
    assert tutti_torch.why_not_shared() == "", tutti_torch.why_not_shared()
    for name, check in (("ops", lambda: check_ops(rank, size)), ("lifetime", check_lifetime), ("ddp", check_ddp),
                        ("fsdp", check_fsdp), ("chained", lambda: check_chained(rank, size))):
        check()
        dist.barrier()
        if rank == 0:
            print("ok", name, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (2, os.path.join(folder, "store")), nprocs=2)
