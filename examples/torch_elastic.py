"""Data-parallel training that goes on when a rank is lost, with the ranks that are left:

    python examples/torch_elastic.py --ranks 3      # starts a coordinator and three ranks; kill -9 one of them

or, with a coordinator that runs already, a program for each rank by any launcher that leaves the others alone when one ends:

    TUTTI_COORDINATOR=HOST:PORT RANK=0 WORLD_SIZE=3 python examples/torch_elastic.py
"""

import argparse
import os
import shutil
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import tutti_torch
from torch import nn

# ---------------------------------------------------------------------------- one rank


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.step = 0
        self.wrap()

    def wrap(self):
        """DDP holds its process group, so each group needs a new one."""
        self.ddp = nn.parallel.DistributedDataParallel(self.net, gradient_as_bucket_view=True)

    def train_step(self):
        draw = torch.Generator().manual_seed(self.step * 1000 + dist.get_rank())
        inputs = torch.randn(32, 64, generator=draw)
        loss = nn.functional.cross_entropy(self.ddp(inputs), inputs[:, :10].argmax(1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def recover(self):
        """A rank may have died when some had all gradients of a step and others had not: all go on from the newest state."""
        before = dist.get_rank()
        ranks = tutti_torch.shrink(timedelta(seconds=30))
        steps = [None] * len(ranks)
        dist.all_gather_object(steps, self.step)
        newest = steps.index(max(steps))
        tutti_torch.broadcast_state_dict(self.net, newest)
        state = [self.optimizer.state_dict(), self.step]
        dist.broadcast_object_list(state, newest)
        self.optimizer.load_state_dict(state[0])
        self.step = state[1]
        self.wrap()
        print("rank %d is rank %d of %d now, and goes on from step %d" % (before, dist.get_rank(), len(ranks), self.step), flush=True)


def work(steps):
    dist.init_process_group("tutti", init_method="tutti://", timeout=timedelta(seconds=60))
    trainer = Trainer()
    while trainer.step < steps:
        try:
            loss = trainer.train_step()
        except dist.DistBackendError as error:
            print("rank %d: step %d: %s" % (dist.get_rank(), trainer.step, error), flush=True)
            trainer.recover()
            continue
        if trainer.step % 10 == 0:
            print("rank %d: step %d: loss %.3f" % (dist.get_rank(), trainer.step, loss), flush=True)
    total = sum(parameter.detach().double().sum() for parameter in trainer.net.parameters())
    totals = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(totals, total)
    print("%d ranks at the end, weights are equal: %s" % (len(totals), all(torch.equal(total, one) for one in totals)), flush=True)
    dist.barrier()
    dist.destroy_process_group()


# ---------------------------------------------------------------------------- all of them, on this machine


def start(ranks, steps):
    """A coordinator that no rank takes along when it dies, and the ranks. The exit code: 0 = some rank has ended well."""
    program = shutil.which("tutti-coordinator", path=os.environ.get("TUTTI_PROGRAMS", os.environ["PATH"]))
    if program is None:
        sys.exit("there is no tutti-coordinator in $TUTTI_PROGRAMS or PATH")
    read, write = os.pipe()
    coordinator = subprocess.Popen([program, "--listen", "127.0.0.1:0", "--log", "warn", "--parent-pid",
                                    str(os.getpid()), "--port-file", "fd:%d" % write], pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as file:
        address = file.readline().strip()
    children = []
    for rank in range(ranks):
        known = dict(os.environ, TUTTI_COORDINATOR=address, RANK=str(rank), WORLD_SIZE=str(ranks))
        children.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), "--steps", str(steps)], env=known))
        print("rank %d is process %d" % (rank, children[-1].pid), flush=True)
    codes = [child.wait() for child in children]
    coordinator.terminate()
    coordinator.wait()
    return 0 if 0 in codes else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    if "RANK" in os.environ:
        work(given.steps)
    else:
        sys.exit(start(given.ranks, given.steps))
