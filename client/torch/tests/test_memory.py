"""Goal: ops on memory of the agent's copy nothing, and DDP and FSDP2 take such memory. Method: two ranks, forks of this
process; the package counts the bytes that it copies.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

place.enter()

import concurrent.futures
import unittest

import torch
import torch.distributed as dist
from torch import nn

import older
import ranks
import tap
import tutti_torch

COUNT = 1 << 20


def copies_of(call):
    before = tutti_torch.copied_bytes()
    call()
    return tutti_torch.copied_bytes() - before


def ops(rank, size):
    assert tutti_torch.why_not_shared() == "", tutti_torch.why_not_shared()
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


def own_part(rank, size):
    """What a rank gives is its part of what it takes, or the other way round: one of them is copied."""
    whole = tutti_torch.empty(size, COUNT)
    whole.fill_(-1)
    whole[rank].fill_(rank)
    dist.all_gather_into_tensor(whole.view(-1), whole[rank])
    assert torch.equal(whole, torch.arange(size, dtype=torch.float32).view(size, 1).expand(size, COUNT))
    whole.fill_(rank + 1)
    dist.reduce_scatter_tensor(whole[rank], whole.view(-1))
    assert torch.equal(whole[rank], torch.full((COUNT,), size * (size + 1) / 2))


def lifetime(rank, size):
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


def ddp(rank, size):
    assert os.environ["DDP_DISABLE_COMM_MEM"] == "0"
    net = nn.parallel.DistributedDataParallel(make_net(), gradient_as_bucket_view=True)
    train(net, 2)  # after the first step the buckets are made anew
    assert copies_of(lambda: train(net)) == 0, "gradients are in memory of the agent's"


def fsdp(rank, size):
    net = older.fully_shard(make_net())
    train(net)
    ordinary = copies_of(lambda: train(net))
    assert ordinary > 0
    net.set_allocate_memory_from_process_group_for_comm(True)
    train(net)
    assert copies_of(lambda: train(net)) < ordinary


def allocator(rank, size):
    """agent_memory(): what is made in the block, on this thread."""
    ordinary = torch.ones(COUNT)
    with tutti_torch.agent_memory():
        made = [torch.ones(COUNT), torch.arange(COUNT, dtype=torch.float32), ordinary * 2, torch.empty(0).resize_(COUNT).fill_(1)]
        small = torch.ones(COUNT // 8)
        net = make_net()
        net(torch.randn(4, 256)).sum().backward()
        made.append(net[0].weight.grad)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            other = pool.submit(torch.ones, COUNT).result()
        with tutti_torch.agent_memory(1 << 30):
            made_not = torch.ones(COUNT)
        made.append(ordinary.clone())
    for tensor in made:
        assert copies_of(lambda: dist.all_reduce(tensor)) == 0
    assert torch.equal(made[2], torch.full((COUNT,), 2.0 * size))
    for tensor in (ordinary, small, other, made_not, torch.ones(COUNT)):
        assert copies_of(lambda: dist.all_reduce(tensor)) == 2 * tensor.nbytes
    for wrong in (0, -1):
        try:
            with tutti_torch.agent_memory(wrong):
                raise AssertionError("taken")
        except ValueError as error:
            assert "give 1 byte or more" in str(error)
    dist.barrier()
    dist.destroy_process_group()
    assert made[1][7] == 7.0 * size, "it outlives the group"


def beyond_the_limit(rank, size):
    """160 MiB, of which the agent has 64: the others are in ordinary memory; ops on that need some of the agent's as well."""
    with tutti_torch.agent_memory():
        made = [torch.full((COUNT,), number) for number in range(40)]
    assert copies_of(lambda: dist.all_reduce(made[3])) == 0
    del made[4:8]
    dist.all_reduce(made[-1])
    assert (made[3][-1], made[-1][-1], made[-2][0]) == (3 * size, 39 * size, 38)


def chained(rank, size):
    """A callback of a work that waits for another op, as PowerSGD's hook does."""
    first, second = torch.ones(COUNT), torch.full((4,), float(rank))

    def then(future):
        return dist.all_reduce(second, async_op=True).get_future().wait()[0]

    result = dist.all_reduce(first, async_op=True).get_future().then(then).wait()
    assert torch.equal(result, torch.full((4,), size * (size - 1) / 2))


class Memory(unittest.TestCase):
    """Each function in two ranks."""

    def test_beyond_the_limit(self):
        os.environ["TUTTI_MEMORY_LIMIT"] = "64MiB"  # of the agents that are launched
        self.addCleanup(os.environ.pop, "TUTTI_MEMORY_LIMIT")
        ranks.run(2, beyond_the_limit)


for _function in (ops, own_part, lifetime, ddp, fsdp, allocator, chained):
    def _test(self, function=_function):
        if function in (ddp, fsdp) and not older.ASKS_FOR_MEMORY:
            self.skipTest("torch %s does not ask backends for memory" % torch.__version__)
        ranks.run(2, function)
    setattr(Memory, "test_" + _function.__name__, _test)

if __name__ == "__main__":
    tap.main()
