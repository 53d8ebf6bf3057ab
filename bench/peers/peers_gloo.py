"""PyTorch/Gloo's side: one of its processes. usage: peers_gloo.py FOLDER RANK RANKS tcp://HOST:PORT"""
import sys
import time

import torch
import torch.distributed as dist


def op_of(name, size, ranks):
    whole = torch.zeros(size // 4, dtype=torch.float32)
    other = torch.zeros(size // 4, dtype=torch.float32)
    part = torch.zeros(size // 4 // ranks, dtype=torch.float32)
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if name == "broadcast":
        return lambda: dist.broadcast(whole, 0)
    if name == "all_gather":
        parts = list(other.chunk(ranks))
        return lambda: dist.all_gather(parts, part)
    if name == "all_to_all":
        return lambda: dist.all_to_all_single(other, whole)
    return None  # this Gloo knows no reduce_scatter


def main():
    folder, rank, ranks, meeting = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    kept = (None, None, None)
    with open(f"{folder}/in.{rank}") as commands, open(f"{folder}/out.{rank}", "w", buffering=1) as out:
        for line in commands:
            name, size, times = line.split()
            if kept[:2] != (name, size):
                kept = (name, size, op_of(name, int(size), ranks))
            if kept[2] is None:
                out.write("-1\n")
                continue
            kept[2]()
            kept[2]()
            dist.barrier()
            began = time.perf_counter()
            for _ in range(int(times)):
                kept[2]()
            out.write(f"{(time.perf_counter() - began) / int(times) * 1e6:.3f}\n")


main()
