"""State of modules from one rank to the others."""

import torch
import torch.distributed as dist


def _described(state):
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            return "%s is a %s: only tensors are broadcast" % (name, type(value).__name__)
    return [(name, str(value.dtype), tuple(value.shape)) for name, value in state.items()]


def _difference(mine, roots, root):
    if isinstance(mine, str) or isinstance(roots, str):
        return mine if isinstance(mine, str) else roots
    for own, other in zip(mine, roots):
        if own != other:
            return "%s, %s, %s is %s, %s, %s on rank %d" % (*own, *other, root)
    return None if len(mine) == len(roots) else "it has %d tensors, that of rank %d has %d" % (len(mine), root, len(roots))


def broadcast_state_dict(module, root=0, group=None):
    """Parameters and buffers of `module` become those of rank `root`, a rank of the first process group. All ranks of `group` call
    it. Where names, dtypes or shapes differ, all of them raise ValueError, and no tensor is changed."""
    state = module.state_dict()
    mine = _described(state)
    said = [mine]
    dist.broadcast_object_list(said, root, group=group)
    wrong = [None] * dist.get_world_size(group)
    dist.all_gather_object(wrong, _difference(mine, said[0], root), group=group)
    for rank, why in enumerate(wrong):
        if why is not None:
            raise ValueError("broadcast_state_dict: on group rank %d: %s" % (rank, why))
    with torch.no_grad():
        works = [dist.broadcast(value, root, group=group, async_op=True) for value in state.values()]
        for work in works:
            work.wait()
