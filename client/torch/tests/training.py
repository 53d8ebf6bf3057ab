"""What is trained, the same on every backend: each function returns weights as a list of tensors. For test_training.py and,
as a program, for test_launch.py:

    torchrun ... training.py BACKEND FILE      # rank 0 writes the weights of ddp() there
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

from older import Replicate, Shard, distribute_tensor, fully_shard

STEPS = 4


def _net():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10))


def _batches(rank):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        yield torch.randn(8, 64, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def _train(net, optimizer, rank):
    for inputs, labels in _batches(rank):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()


def _weights(net):
    return [one.detach().clone() for one in net.parameters()]


def ddp(rank, size):
    net = nn.parallel.DistributedDataParallel(_net(), gradient_as_bucket_view=True, bucket_cap_mb=0.2)
    _train(net, torch.optim.SGD(net.parameters(), lr=0.05), rank)
    return _weights(net)


def zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(_net())
    _train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9), rank)
    return _weights(net)


def fsdp(rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (size,))
    net = _net()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    _train(net, torch.optim.SGD(net.parameters(), lr=0.05), rank)
    return [one.full_tensor().detach() for one in net.parameters()]


def tensors(rank, size):
    """DTensor: from each placement to each other."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(24.0 * 7).view(24, 7)
    placements = [Shard(0), Shard(1), Replicate()]
    found = []
    for first in placements:
        for second in placements:
            found.append(distribute_tensor(whole, mesh, [first]).redistribute(mesh, [second]).full_tensor())
            assert torch.equal(found[-1], whole)
    product = distribute_tensor(whole, mesh, [Shard(1)]) @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    return found + [product.full_tensor()]  # partial sums were reduced


def pipeline(rank, size):
    """Micro-batches go from rank to rank, gradients back."""
    torch.manual_seed(rank)
    stage = nn.Linear(32, 32)
    got = []
    for batch in range(3):
        inputs = torch.full((4, 32), batch / 10)
        if rank > 0:
            dist.recv(inputs, rank - 1, tag=batch)
        inputs.requires_grad_(True)
        outputs = torch.tanh(stage(inputs))
        if rank < size - 1:
            dist.send(outputs.detach(), rank + 1, tag=batch)
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, rank + 1, tag=100 + batch)
        else:
            gradient = torch.ones_like(outputs)
        outputs.backward(gradient)
        if rank > 0:
            dist.send(inputs.grad, rank - 1, tag=100 + batch)
        got.append(outputs.detach())
    return [stage.weight.grad.clone(), stage.bias.grad.clone()] + got


def checkpoint(rank, size):
    """Of sharded weights: what is loaded is what was saved."""
    import shutil
    import tempfile

    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (size,))
    where = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(where, 0)
    saved = distribute_tensor(torch.arange(64.0).view(16, 4), mesh, [Shard(0)])
    dcp.save({"weights": saved, "step": 3}, checkpoint_id=where[0])
    loaded = {"weights": distribute_tensor(torch.zeros(16, 4), mesh, [Shard(1)]), "step": 0}
    dcp.load(loaded, checkpoint_id=where[0])
    assert loaded["step"] == 3
    whole = loaded["weights"].full_tensor()
    assert torch.equal(whole, torch.arange(64.0).view(16, 4))
    dist.barrier()
    if rank == 0:
        shutil.rmtree(where[0])
    return [whole]


ALL = [ddp, zero, fsdp, tensors, pipeline, checkpoint]


def main():
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])
    weights = ddp(dist.get_rank(), dist.get_world_size())
    if dist.get_rank() == 0:
        torch.save(weights, sys.argv[2])
        print("trained on", dist.get_backend(), "by", dist.get_world_size(), "ranks", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
