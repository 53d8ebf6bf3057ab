"""A rank exits in the first attempt that torchrun makes: for test_launch.py."""

import os
import sys

import torch
import torch.distributed as dist

import older  # noqa: F401

dist.init_process_group("tutti")
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
got = torch.ones(2)
dist.all_reduce(got)
if dist.get_rank() == 1 and attempt == 0:
    os._exit(3)
try:
    dist.barrier()
except RuntimeError as error:
    print("attempt %d: %s" % (attempt, error), flush=True)
    sys.exit(4)
assert got.tolist() == [2.0, 2.0]
print("rank %d ended well after %d restarts" % (dist.get_rank(), attempt), flush=True)
dist.destroy_process_group()
