"""Data-parallel training on Tutti: torchrun --nproc-per-node 2 examples/torch_ddp.py"""

import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("tutti")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
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
    total = sum(parameter.detach().double().sum() for parameter in net.parameters())
    totals = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(totals, total)
    if dist.get_rank() == 0:
        print("weights are equal on all ranks:", all(torch.equal(total, other) for other in totals), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
