"""Collectives that torch's autograd goes back through.

    import tutti, tutti.torch

    with tutti.connect() as agent:                  # every rank does this
        x = torch.ones(4, requires_grad=True)
        y = tutti.torch.all_reduce(agent, x)        # on 2 ranks: 2, 2, 2, 2
        (y * y).sum().backward()                    # every rank does this too
        print(x.grad)                               # 8, 8, 8, 8

Gradients are of the sum of all ranks' losses, as torch.distributed.nn.functional has them: backward() of
one rank runs the dual op, so all ranks of the group call it, in the same order. Where a rank may have no
gradient use Agent.tracer(), which agrees before each dual op. Agents are those of the blocking API: torch
goes back in threads of its own, which cannot await.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .errors import invalid

if TYPE_CHECKING:
    from .sync._agent import Agent
    from .sync._types import GroupLike

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "permute", "reduce_scatter"]

_HAVE_DUALS = ("sum", "avg", "mean", "premul_sum", "max", "min")


def _need_dual(x: Any, op: str, known: Sequence[str]) -> str:
    """The op's name; refused before anybody waits for it in backward()."""
    name = op.lower()
    if x.requires_grad and name not in known:
        text = "%s has no gradient: it is known of %s; detach() the tensor, or take another op"
        raise invalid("BAD_REDUCE_OP", text % (op, ", ".join(known)))
    return name


class _AllReduce(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, agent: Any, op: str, factor: Any, group: Any) -> Any:
        y = agent.all_reduce(x.detach(), op, factor=factor, group=group)
        ctx.how = agent, op, factor, group
        if op in ("max", "min"):
            ctx.save_for_backward(x == y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        agent, op, factor, group = ctx.how
        dual = "avg" if op in ("avg", "mean") else "sum"
        dx = agent.all_reduce(dy.contiguous(), dual, group=group)
        if op in ("max", "min"):
            (mask,) = ctx.saved_tensors
            dx = dx * mask
        return dx if factor is None else dx * factor, None, None, None, None


class _Broadcast(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, agent: Any, root: int, group: Any) -> Any:
        ctx.how = agent, root, group, x.shape
        return agent.broadcast(x.detach(), root, group=group)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        agent, root, group, shape = ctx.how
        dx = agent.reduce(dy.contiguous(), "sum", root, group=group)
        return dy.new_zeros(shape) if dx is None else dx, None, None, None


class _AllGather(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, agent: Any, axis: int, group: Any) -> Any:
        ctx.how = agent, axis, group
        return agent.all_gather(x.detach(), axis=axis, group=group)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        agent, axis, group = ctx.how
        return agent.reduce_scatter(dy.contiguous(), axis=axis, group=group), None, None, None


class _ReduceScatter(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, agent: Any, op: str, factor: Any, axis: int, group: Any) -> Any:
        y = agent.reduce_scatter(x.detach(), op, factor=factor, axis=axis, group=group)
        parts = 1 if not y.shape[axis] else x.shape[axis] // y.shape[axis]
        scale = 1 / parts if op in ("avg", "mean") else factor
        ctx.how = agent, axis, group, scale
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        agent, axis, group, scale = ctx.how
        dx = agent.all_gather(dy.contiguous(), axis=axis, group=group)
        return dx if scale is None else dx * scale, None, None, None, None, None


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, agent: Any, axes: Any, splits: Any, group: Any) -> Any:
        ctx.how = agent, axes, splits, group
        return _exchange(agent, x.detach(), axes, splits, group)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        agent, (cut, join), (given, taken), group = ctx.how
        dx = _exchange(agent, dy.contiguous(), (join, cut), (taken, given), group)
        return dx, None, None, None, None


def _exchange(agent: Any, x: Any, axes: Any, splits: Any, group: Any) -> Any:
    return agent.all_to_all(
        x,
        split_axis=axes[0],
        concat_axis=axes[1],
        input_splits=splits[0],
        output_splits=splits[1],
        group=group,
    )


class _Permute(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, agent: Any, src_dst: list[int], group: Any) -> Any:
        ctx.how = agent, src_dst, group
        return agent.permute(x.detach(), src_dst, group=group)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        agent, src_dst, group = ctx.how
        back = [src_dst.index(rank) for rank in range(len(src_dst))]
        return agent.permute(dy.contiguous(), back, group=group), None, None, None


def all_reduce(
    agent: "Agent",
    x: "torch.Tensor",
    op: str = "sum",
    *,
    factor: float | None = None,
    group: "GroupLike" = None,
) -> "torch.Tensor":
    """Every rank gets the reduction of all x.

    x       any shape, the same on all ranks
    op      as Agent.all_reduce() has it; sum, avg, premul_sum, max and min have gradients: those of max
            and min go to the ranks that have the result
    factor  of premul_sum

    Returns: the shape and dtype of x.
    Raises: TuttiError BAD_REDUCE_OP: x requires a gradient, and `op` has none; and what
        Agent.all_reduce() raises.
    Example:
        >>> tutti.torch.all_reduce(agent, torch.ones(2, requires_grad=True))
    """
    return _AllReduce.apply(x, agent, _need_dual(x, op, _HAVE_DUALS), factor, group)


def broadcast(
    agent: "Agent", x: "torch.Tensor", root: int = 0, *, group: "GroupLike" = None
) -> "torch.Tensor":
    """Every rank gets the root's x; the root's gradient is the sum of all.

    x  of the others: of the same shape and dtype; their gradients are zeros

    Returns: the shape and dtype of x.
    Raises: as Agent.broadcast().
    Example:
        >>> tutti.torch.broadcast(agent, weights, 0)
    """
    return _Broadcast.apply(x, agent, root, group)


def all_gather(
    agent: "Agent", x: "torch.Tensor", axis: int = 0, *, group: "GroupLike" = None
) -> "torch.Tensor":
    """Every rank gets all x, joined along an axis.

    x  [..., n, ...], the same shape on all ranks

    Returns: [..., n * size, ...] of the dtype of x.
    Raises: as Agent.all_gather().
    Example:
        >>> tutti.torch.all_gather(agent, torch.ones(2, 3), axis=1).shape    # of 2 ranks
        torch.Size([2, 6])
    """
    return _AllGather.apply(x, agent, axis, group)


def reduce_scatter(
    agent: "Agent",
    x: "torch.Tensor",
    op: str = "sum",
    axis: int = 0,
    *,
    factor: float | None = None,
    group: "GroupLike" = None,
) -> "torch.Tensor":
    """Each rank gets its part of the reduction of all x.

    x   [..., n, ...] with n along `axis` divisible by the group's size
    op  sum, avg and premul_sum have gradients

    Returns: [..., n / size, ...] of the dtype of x.
    Raises: TuttiError BAD_REDUCE_OP: x requires a gradient, and `op` has none; and what
        Agent.reduce_scatter() raises.
    Example:
        >>> tutti.torch.reduce_scatter(agent, torch.ones(4)).shape           # of 2 ranks
        torch.Size([2])
    """
    name = _need_dual(x, op, ("sum", "avg", "mean", "premul_sum"))
    return _ReduceScatter.apply(x, agent, name, factor, axis, group)


def all_to_all(
    agent: "Agent",
    x: "torch.Tensor",
    *,
    split_axis: int = 0,
    concat_axis: int = 0,
    input_splits: Sequence[int] | None = None,
    output_splits: Sequence[int] | None = None,
    group: "GroupLike" = None,
) -> "torch.Tensor":
    """Each rank cuts x into a part for each rank, and joins the parts that it gets.

    x, split_axis, concat_axis, input_splits, output_splits  as Agent.all_to_all() has them

    Returns: as Agent.all_to_all() gives.
    Raises: as Agent.all_to_all().
    Example:
        >>> tutti.torch.all_to_all(agent, torch.ones(4))
    """
    axes, splits = (split_axis, concat_axis), (input_splits, output_splits)
    return _AllToAll.apply(x, agent, axes, splits, group)


def permute(
    agent: "Agent", x: "torch.Tensor", src_dst: Sequence[int], *, group: "GroupLike" = None
) -> "torch.Tensor":
    """Group rank r gives its x to rank src_dst[r], and gets its gradient from there.

    src_dst  each group rank once, the same list on all ranks

    Returns: the shape and dtype of x.
    Raises: as Agent.permute().
    Example:
        >>> tutti.torch.permute(agent, torch.ones(2), [1, 0])
    """
    return _Permute.apply(x, agent, list(src_dst), group)

if __name__ == "__main__":
    import sys

    from ._torch_files import main

    sys.exit(main())
