"""What torch 2.4 names differently from the newest torch, or lacks. Torch before 2.5 does not load backends by itself, so there
this module does.
"""

import torch
import torch.distributed.fsdp

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

if VERSION < (2, 5):
    import tutti_torch  # noqa: F401 -- knows "tutti"
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed._tensor import Replicate, Shard, distribute_tensor
elif VERSION < (2, 6):
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
else:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

# Does it ask the backend for memory of DDP's buckets and FSDP2's communication?
ASKS_FOR_MEMORY = hasattr(getattr(torch.distributed.fsdp, "FSDPModule", None), "set_allocate_memory_from_process_group_for_comm")

__all__ = ["ASKS_FOR_MEMORY", "VERSION", "Replicate", "Shard", "distribute_tensor", "fully_shard"]
