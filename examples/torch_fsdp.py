"""Sharded training (FSDP2) on Tutti: torchrun --nproc-per-node 2 examples/torch_fsdp.py"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("tutti")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    net.set_allocate_memory_from_process_group_for_comm(True)  # of the root; each layer says it for its own parameters
    for layer in (net[0], net[2]):
        layer.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(dist.get_rank())
    for step in range(20):
        inputs = torch.randn(32, 64, generator=draw)
        loss = nn.functional.cross_entropy(net(inputs), inputs[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 5 == 4:
            print("step %d: loss %.3f" % (step + 1, loss.item()), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
