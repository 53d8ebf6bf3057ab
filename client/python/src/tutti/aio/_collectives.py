"""Collectives: what all ranks of a group call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ._call import (
    How,
    begin,
    form_number,
    gives_list,
    is_array,
    is_list,
    parts_fields,
    receive,
    receive_inline,
    reduce_number,
    root_fields,
    run,
    send,
    size_of,
)
from ._tensor import INLINE_BYTES_MAX
from ._work import Work

if TYPE_CHECKING:
    from ._agent import Agent
    from ._groups import Group


class Collectives:
    """The part of an Agent that runs ops. Every rank of the group calls the same.

    x         what this rank gives: a Tensor, a handle or name, or an array (numpy, torch, DLPack,
              lists of numbers). The result is of the same kind: an array for an array. A list of
              Tensors or of arrays, of any shapes and dtypes, is as many ops in one, and gives a list
    group     a Group or its name; None = the world
    out       where the result goes, a Tensor or an array; out = x is in place
    async_    return a Work at once; its wait() gives the result
    timeout   seconds from the arrival at the agent after which the op fails on all ranks; None = the
              agent's --op-timeout
    sequence  the number that the op must get in its group; 0 = the next
    root      a group rank; or root_global, a rank of the job
    """

    async def _is_root(self, group: Any, root: int, root_global: int | None) -> bool:
        agent = cast("Agent", self)
        if root_global is not None:
            return agent.rank == root_global
        if group in (None, "", "world"):
            return agent.rank == root
        if isinstance(group, str):
            group = await agent.group(group)
        return bool(group.rank == root)

    def _begin(self, method: str, how: How, many: bool = False, **fields: Any) -> Any:
        return begin(cast("Agent", self), method, how, many, **fields)

    # -------------------------------------------------------------------------- reductions

    async def all_reduce(
        self,
        x: Any,
        op: str = "sum",
        *,
        factor: float | None = None,
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """Every rank gets the reduction of all inputs.

        op      sum, prod, min, max, avg (or mean), band, bor, bxor, premul_sum
        factor  of premul_sum
        """
        how = How(group, out, async_, timeout, sequence)
        call = self._begin("AllReduce", how, reduce_op=reduce_number(op), factor=factor)
        return await run(call, x)

    async def reduce(
        self,
        x: Any,
        op: str = "sum",
        root: int = 0,
        *,
        root_global: int | None = None,
        factor: float | None = None,
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """The root gets the reduction of all inputs; the others get None."""
        how = How(group, out, async_, timeout, sequence)
        call = self._begin(
            "Reduce",
            how,
            reduce_op=reduce_number(op),
            factor=factor,
            **root_fields(root, root_global),
        )
        return await run(call, x)

    async def reduce_scatter(
        self,
        x: Any,
        op: str = "sum",
        *,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        factor: float | None = None,
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """Each rank gets its part of the reduction of all inputs, cut along `axis`."""
        how = How(group, out, async_, timeout, sequence)
        call = self._begin(
            "ReduceScatter",
            how,
            reduce_op=reduce_number(op),
            factor=factor,
            **parts_fields(axis, form, out_shape),
        )
        return await run(call, x)

    # -------------------------------------------------------------------------- from and to a root

    async def broadcast(
        self,
        x: Any = None,
        root: int = 0,
        *,
        root_global: int | None = None,
        coalesced: bool = False,
        meta: bytes = b"",
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """Every rank gets the root's tensor.

        The others' x is not sent: without one the result is a Tensor, with an array of the root's
        dtype and shape it is an array.

        coalesced  of those who give nothing: a list comes
        meta       of the root: up to 16384 bytes that travel with it, into Work.meta
        """
        how = How(group, out, async_, timeout, sequence)
        fields: dict[str, Any] = {"coalesced": coalesced, "user_meta": meta}
        call = self._begin("Broadcast", how, **fields, **root_fields(root, root_global))
        if x is None or await self._is_root(group, root, root_global):
            return await run(call, x)
        call.request.coalesced = coalesced or is_list(x)
        if not is_array(x) or async_ or out is not None or size_of(x) > INLINE_BYTES_MAX:
            return (await receive(call, x if is_array(x) else None))[0]
        return (await receive_inline(call, x))[0]

    async def scatter(
        self,
        x: Any = None,
        root: int = 0,
        *,
        root_global: int | None = None,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        splits: Sequence[int] | None = None,
        coalesced: bool = False,
        meta: bytes = b"",
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """Each rank gets its part of the root's tensor, cut along `axis`.

        The others' x is not sent: without one the result is a Tensor, with any array it is an array.

        form       "concat" along `axis`, "stack": the dimension goes, "flat": into `out_shape`,
                   "list": x is a list of one for each rank, of one shape
        splits     of the root: rows of dimension 0 for each rank, instead of equal parts
        coalesced  of those who give nothing: the root gives a list that is as many ops in one
        meta       of the root: up to 16384 bytes that travel with it, into Work.meta
        """
        how = How(group, out, async_, timeout, sequence)
        fields: dict[str, Any] = {"coalesced": coalesced, "user_meta": meta, "splits": splits}
        call = self._begin(
            "Scatter",
            how,
            **fields,
            **root_fields(root, root_global),
            **parts_fields(axis, form, out_shape),
        )
        if x is None or await self._is_root(group, root, root_global):
            return await run(call, x)
        call.request.coalesced = coalesced or (is_list(x) and form.lower() != "list")
        return (await receive(call, x if is_array(x) else None))[0]

    async def gather(
        self,
        x: Any,
        root: int = 0,
        *,
        root_global: int | None = None,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """The root gets all inputs in the order of group ranks; the others get None."""
        how = How(group, out, async_, timeout, sequence)
        call = self._begin(
            "Gather",
            how,
            gives_list(form),
            **root_fields(root, root_global),
            **parts_fields(axis, form, out_shape),
        )
        return await run(call, x, None if call.many else call.agent.world_size)

    # -------------------------------------------------------------------------- among all

    async def all_gather(
        self,
        x: Any,
        *,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """Every rank gets all inputs, in the order of group ranks.

        form  "concat" along `axis`, "stack": a new dimension there, "flat": into `out_shape`,
              "list": a list of them, whose shapes may differ
        """
        how = How(group, out, async_, timeout, sequence)
        call = self._begin(
            "AllGather", how, gives_list(form), **parts_fields(axis, form, out_shape)
        )
        return await run(call, x, None if call.many else call.agent.world_size)

    async def all_to_all(
        self,
        x: Any,
        *,
        split_axis: int = 0,
        concat_axis: int = 0,
        input_splits: Sequence[int] | None = None,
        output_splits: Sequence[int] | None = None,
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """Each rank cuts x into a part for each rank, and joins what it gets. A list of one for each
        rank gives a list of one from each.

        input_splits, output_splits  rows of dimension 0 for each rank, and from each: both or none
        """
        how = How(group, out, async_, timeout, sequence)
        call = self._begin(
            "AllToAll",
            how,
            is_list(x),
            form=form_number("list") if is_list(x) else None,
            split_axis=split_axis,
            concat_axis=concat_axis,
            input_splits=input_splits,
            output_splits=output_splits,
        )
        uneven = input_splits is not None or is_list(x)
        return await run(call, x, None if uneven else 1)

    async def permute(
        self,
        x: Any,
        src_dst: Sequence[int],
        *,
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Any:
        """Group rank r gives its tensor to src_dst[r]; the same list on all ranks."""
        how = How(group, out, async_, timeout, sequence)
        return await run(self._begin("Permute", how, src_dst=src_dst), x)

    async def barrier(
        self,
        *,
        group: "Group | str | None" = None,
        monitored: bool = False,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
    ) -> Work | None:
        """Returns when every rank has called it and their earlier ops on the group have ended.

        monitored  when time is up, fail with MISSING_RANKS instead of TIMEOUT
        """
        how = How(group, None, async_, timeout, sequence)
        call = self._begin("Barrier", how, monitored=monitored)
        response = await send(call, call.request)
        return Work(call.agent, response.info.work, None) if async_ else None
