"""Training that goes on with the ranks that are left."""

from datetime import timedelta

import torch
import torch.distributed as dist


def shrink(timeout=timedelta(seconds=30)):
    """Called by all ranks that are left, after an op has failed because one was lost. The default process group and all others are
    destroyed; the new default group has the ranks that are left, in their order, numbered from 0. Gives the ranks that they
    had. Who has not called within `timeout` is left out, and is told so when it calls.

    It needs the coordinator: where no $TUTTI_COORDINATOR is set, that is gone with rank 0. Objects that hold the old group, as
    DistributedDataParallel does, are to be made anew; ranks may be one step apart (see docs/pytorch.md).
    """
    from . import _module

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    own = dist.get_rank()
    limit = getattr(backend, "options", None)
    ranks, name, coordinator = _module().shrink(backend, timeout.total_seconds())
    dist.destroy_process_group()
    store = _module().store(coordinator, "torch/shrunk/%s/" % name, timeout.total_seconds())
    dist.init_process_group("tutti", store=store, rank=ranks.index(own), world_size=len(ranks),
                            timeout=getattr(limit, "_timeout", None))
    return ranks
