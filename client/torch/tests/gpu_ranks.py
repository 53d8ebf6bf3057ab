"""A rank of test_gpu.py: gpu_ranks.py STORE DEVICE HOW. Every op on tensors of DEVICE, and training on it.

HOW  opened: by memory of the agent's GPU; ordered: the same, and the agent waits for it on the GPU; host: by that of the host, since it is not to be had or not wanted; no runtime, hidden: why
     it is not; half: rank 1 alone does not see it; broken: rank 0 cannot copy its first tensor there
"""

import faulthandler
import os
import sys

import torch
import torch.distributed as dist

import tutti_torch

STORE, DEVICE, HOW = sys.argv[1:]
faulthandler.enable()  # where a rank crashed
LARGE = 2 << 20  # FP32: more than a message takes


def full(count, value):
    return torch.full((count,), float(value), device=DEVICE)


def same(got, value):
    assert got.device == torch.device(DEVICE) and bool((got == value).all()), "%s is not %s" % (got, value)


def ops(rank, size, count):
    got = full(count, rank + 1)
    dist.all_reduce(got)
    same(got, 3)
    work = dist.all_reduce(got, async_op=True)
    work.wait()
    same(got, 6)
    dist.broadcast(got.fill_(rank), 1)
    same(got, 1)
    parts = [full(count, -1) for _ in range(size)]
    dist.all_gather(parts, full(count, rank))
    for index, part in enumerate(parts):
        same(part, index)
    whole = full(size * count, -1)
    dist.all_gather_into_tensor(whole, full(count, rank))
    same(whole[:count], 0)
    same(whole[count:], 1)
    dist.reduce_scatter_tensor(got, whole)
    same(got, size * rank)
    dist.all_to_all_single(whole, torch.cat([full(count, 10 * rank + index) for index in range(size)]))
    same(whole[:count], rank)
    same(whole[count:], 10 + rank)
    dist.reduce(got.fill_(1), 0)
    if rank == 0:
        same(got, size)
        dist.send(full(count, 5), 1)
    else:
        assert dist.recv(got, 0) == 0
        same(got, 5)


def odd_ones(rank, size):
    """Not dense, and a list."""
    wide = torch.full((LARGE // 2, 2), float(rank), device=DEVICE).t()
    dist.all_reduce(wide)
    same(wide, 1)
    tensors = [full(LARGE + index, index + rank) for index in range(3)]
    with dist._coalescing_manager():
        for one in tensors:
            dist.all_reduce(one)
    for index, one in enumerate(tensors):
        same(one, 2 * index + 1)


def many(rank):
    """More at once than the agent lends events."""
    tensors = [full(1000, index + rank) for index in range(150)]
    for work in [dist.all_reduce(one, async_op=True) for one in tensors]:
        work.wait()
    for index, one in enumerate(tensors):
        same(one, 2 * index + 1)


def failures(rank, size):
    """What an op that has failed was on is not used again at once."""
    for _ in range(2):
        try:
            dist.all_reduce(full(LARGE + rank, 1))
        except RuntimeError as error:
            assert "SHAPE_MISMATCH" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    got = full(LARGE, rank)
    dist.all_reduce(got)
    same(got, 1)


def train(rank, size):
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1024, 1100), nn.ReLU(), nn.Linear(1100, 10)).to(DEVICE)
    net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    for step in range(3):
        net(torch.full((4, 1024), rank + step / 10, device=DEVICE)).square().mean().backward()
        with torch.no_grad():
            for one in net.parameters():
                one -= 0.01 * one.grad
                one.grad = None
    for one in net.parameters():
        other = one.detach().clone()
        dist.broadcast(other, 0)
        assert torch.equal(other, one)


def check_why(how, rank):
    """Why the agent's GPU is not opened here."""
    why = tutti_torch.why_no_gpu()
    if how == "half":
        how = "hidden" if rank == 1 else how
    wanted = {"half": ("rank 1 has no memory of a GPU",), "no runtime": ("/nowhere/libcudart.so", "TUTTI_CUDART"), "hidden": ("GPU-", "CUDA_VISIBLE_DEVICES")}
    assert (why == "") == (how not in wanted), why
    for word in wanted.get(how, ()):
        assert word in why, why
    assert "frame #" not in why, why


def broken(rank):
    """The others hear of it at once, and the next op works."""
    try:
        dist.all_reduce(full(LARGE, 1))
    except dist.DistBackendError as error:
        words = ("on %s" % DEVICE, "cuda:0", "cudaMemcpyAsync") if rank == 0 else ("NO_TENSOR",)
        for word in words:
            assert word in str(error), error
    else:
        raise AssertionError("nothing was raised")
    got = full(LARGE, rank)
    dist.all_reduce(got)
    same(got, 1)


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method="file://" + STORE, rank=rank, world_size=size)
    assert tutti_torch.why_not_shared() == "", tutti_torch.why_not_shared()
    check_why(HOW, rank)
    if HOW == "broken":
        broken(rank)
        dist.destroy_process_group()
        return
    before = tutti_torch.copied_bytes()
    dist.all_reduce(full(LARGE, 1))
    copied = tutti_torch.copied_bytes() - before
    assert copied == 2 * LARGE * 4, copied
    ordered = tutti_torch._module().ordered_ops()
    assert ordered == (1 if HOW == "ordered" else 0), ordered
    for count in (0, 3, 1000, LARGE):
        ops(rank, size, count)
    odd_ones(rank, size)
    many(rank)
    failures(rank, size)
    train(rank, size)
    dist.barrier()
    dist.destroy_process_group()
    print("rank %d ended well" % rank, flush=True)


if __name__ == "__main__":
    main()
