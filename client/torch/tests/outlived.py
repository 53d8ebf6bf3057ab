"""One rank of `tutti run`, whose trainer dies while its agent lives: for test_launch.py.

    tutti run -n 2 -- python outlived.py

Says what groups and tensors of the trainer's the job has before its death, and ends when there are none any more.
"""

import os
import signal
import subprocess
import sys
import time

TUTTI = os.path.join(os.environ["TUTTI_PROGRAMS"], "tutti")
LIMIT_S = 60


def train():
    """In a process of its own: dies when it is told to, in any state."""
    import torch
    import torch.distributed as dist

    import tutti_torch

    dist.init_process_group("tutti")
    pair = dist.new_group([0, 1])
    kept = tutti_torch.empty(1 << 18)
    for memory in (kept.fill_(1), torch.ones(1 << 18)):
        dist.all_reduce(memory, group=pair)
    print("trained", flush=True)
    signal.pause()


def left():
    """Groups of torch's, and tensors of this rank's agent."""
    groups = subprocess.run([TUTTI, "group", "list"], check=True, stdout=subprocess.PIPE, text=True).stdout
    tensors = subprocess.run([TUTTI, "list", "--agent", os.environ["TUTTI_AGENT"]], check=True, stdout=subprocess.PIPE,
                             text=True).stdout
    return sum(line.startswith("torch/") for line in groups.splitlines()), len(tensors.splitlines()) - 1


def main():
    trainer = subprocess.Popen([sys.executable, __file__, "train"], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout.readline() == "trained\n"
    print("before: %d groups, %d tensors" % left(), flush=True)
    trainer.kill()
    trainer.wait()
    ends = time.monotonic() + LIMIT_S
    while left() != (0, 0):
        assert time.monotonic() < ends, "%d groups and %d tensors are left" % left()
    print("nothing is left", flush=True)


if __name__ == "__main__":
    train() if sys.argv[1:] == ["train"] else main()
