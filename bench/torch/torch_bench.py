"""Tutti beside Gloo under torch.distributed: both in the same processes, taking turns in one run.

    ./run bench torch [--ranks N] [--turns N] [--only SUBSTRING] [--markdown FILE] [--svg FILE]

All-reduces of ordinary tensors and of tensors whose memory is the agent's (tutti_torch.empty), and training steps of
DistributedDataParallel. What a step costs for communication is the step less one without communication.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import torch_svg
import tutti_torch  # an installed package needs no import

SIZES = ((2, "8 B", 40), (16 << 10, "64 KiB", 20), (256 << 10, "1 MiB", 5), (16 << 20, "64 MiB", 1))
STEPS = ((160, "0.5 MiB", 10), (1660, "32 MiB", 1))  # widths of two square layers


def take_turns(ways, turns, inner, gloo):
    """Seconds of one call, of each turn of each way; a turn is `inner` calls behind a barrier."""
    times = {name: [] for name in ways}
    for turn in range(turns + 2):
        for name, call in ways.items():
            dist.barrier(group=gloo)
            begin = time.perf_counter()
            for _ in range(inner):
                call()
            if turn >= 2:
                times[name].append((time.perf_counter() - begin) / inner)
    return times


def all_reduces(gloo, turns, only):
    rows = []
    for count, title, inner in SIZES:
        if only not in "all_reduce " + title:
            continue
        plain, other = torch.ones(count), torch.ones(count)
        agents = tutti_torch.empty(count)
        agents.fill_(1)
        most = dist.ReduceOp.MAX  # leaves the numbers as they are
        times = take_turns({
            "gloo": lambda: dist.all_reduce(other, most, group=gloo),
            "tutti": lambda: dist.all_reduce(plain, most),
            "tutti, agent's memory": lambda: dist.all_reduce(agents, most),
        }, max(5, turns // (8 if count > 1 << 20 else 1)), inner, gloo)
        rows.append(("all_reduce " + title, times))
    return rows


def make_net(width, group):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    if group is not None:
        net = nn.parallel.DistributedDataParallel(net, process_group=group, gradient_as_bucket_view=True)
    return net


def make_step(net, width):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(dist.get_rank())
    inputs, labels = torch.randn(8, width, generator=draw), torch.randint(0, 10, (8,), generator=draw)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()

    return step


def steps(gloo, turns, only):
    rows = []
    for width, title, inner in STEPS:
        if only not in "DDP step, gradients of " + title:
            continue
        ways, nets = {}, {}
        for name, group, ordinary in (("gloo", gloo, "1"), ("tutti, ordinary buckets", dist.group.WORLD, "1"),
                                      ("tutti", dist.group.WORLD, "0"), ("no communication", None, "1")):
            os.environ["DDP_DISABLE_COMM_MEM"] = ordinary
            nets[name] = make_net(width, group)
            ways[name] = make_step(nets[name], width)
            ways[name](), ways[name]()  # the second one has rebuilt the buckets
        times = take_turns(ways, max(5, turns // (2 if inner == 1 else 1)), inner, gloo)
        for name in ("tutti", "tutti, ordinary buckets"):
            same = all(torch.equal(a, b) for a, b in zip(nets["gloo"].parameters(), nets[name].parameters()))
            assert dist.get_world_size() > 2 or same, "weights of %s are not those of gloo" % name
        rows.append(("DDP step, gradients of " + title, times))
    return rows


def least_and_median(values):
    return min(values), statistics.median(values)


def faster(gloo, ours):
    return "%.2f, %.2f" % (min(gloo) / min(ours), statistics.median(gloo) / statistics.median(ours))


def table(rows):
    lines = ["| what | way | least | median | Gloo's by it: of the least, of the medians |", "|---|---|---|---|---|"]
    for title, times in rows:
        without = times.get("no communication")
        for name, values in times.items():
            lines.append("| %s | %s | %.0f us | %.0f us | %s |" % (
                title, name, *(value * 1e6 for value in least_and_median(values)),
                "" if name in ("gloo", "no communication") else faster(times["gloo"], values)))
        for name, values in times.items() if without else ():
            if name != "no communication":
                part = [value - base for value, base in zip(least_and_median(values), least_and_median(without))]
                base = [value - base for value, base in zip(least_and_median(times["gloo"]), least_and_median(without))]
                lines.append("| %s: communication | %s | %.0f us | %.0f us | %s |" % (
                    title, name, part[0] * 1e6, part[1] * 1e6,
                    "" if name == "gloo" else "%.2f, %.2f" % (base[0] / part[0], base[1] / part[1])))
    return "\n".join(lines)


def work(rank, args, path):
    sys.stdout.reconfigure(line_buffering=True)
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=args.ranks)
    gloo = dist.new_group(list(range(args.ranks)), backend="gloo")
    rows = all_reduces(gloo, args.turns, args.only) + steps(gloo, args.turns, args.only)
    if rank == 0:
        text = "torch %s, %d ranks, load %.1f\n\n%s\n" % (torch.__version__, args.ranks, os.getloadavg()[0], table(rows))
        print(text)
        if args.markdown:
            with open(args.markdown, "w", encoding="utf-8") as file:
                file.write(text)
        if args.svg:
            torch_svg.write(args.svg, [(title, times) for title, times in rows if title.startswith("DDP")])
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--only", default="", help="only rows whose name has this")
    parser.add_argument("--markdown")
    parser.add_argument("--svg", help="a plot of step times")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (args, os.path.join(folder, "store")), nprocs=args.ranks)


if __name__ == "__main__":
    main()
