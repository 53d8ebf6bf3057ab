"""Sends and receives: from one rank to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .. import dtypes
from ._call import How, begin, receive, run
from ._work import Work

if TYPE_CHECKING:
    from ._agent import Agent
    from ._groups import Group


class Received(NamedTuple):
    """What recv() got, from whom (a group rank, and a rank of the job), and what came with it."""

    tensor: Any
    source: int
    source_global: int
    meta: bytes = b""


class Pairs:
    """The part of an Agent that sends and receives; arguments as Collectives has them."""

    async def send(
        self,
        x: Any,
        destination: int | None = None,
        *,
        destination_global: int | None = None,
        group_offset: int | None = None,
        group_count: int = 0,
        tag: int = 0,
        meta: bytes = b"",
        group: "Group | str | None" = None,
        async_: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """Give a tensor to one rank, and up to 16384 bytes with it; returns when that rank has it.

        group_offset  instead of a destination: the rank in our place so many blocks further, of
                      group_count blocks
        """
        how = How(group, None, async_, timeout, 0)
        call = begin(
            cast("Agent", self),
            "Send",
            how,
            destination=destination,
            destination_global=destination_global,
            group_offset=group_offset,
            group_count=group_count,
            tag=tag,
            user_meta=meta,
        )
        return cast("Work | None", await run(call, x))

    async def recv(
        self,
        source: int | None = None,
        *,
        source_global: int | None = None,
        group_offset: int | None = None,
        group_count: int = 0,
        tag: int = 0,
        dtype: Any = None,
        shape: Sequence[int] = (),
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Take a tensor from one rank, or from whoever sends first: a Received, or a Work.

        dtype, shape  what it must be; without a dtype whatever comes
        group_offset  instead of a source: as send() has it
        """
        how = How(group, out, async_, timeout, 0)
        call = begin(
            cast("Agent", self),
            "Recv",
            how,
            source=source,
            source_global=source_global,
            group_offset=group_offset,
            group_count=group_count,
            tag=tag,
        )
        if dtype is not None:
            call.request.expect.CopyFrom(dtypes.spec(dtypes.name_of(dtype), shape))
        got, response = await receive(call)
        if async_:
            return got
        meta = bytes(response.user_meta)
        return Received(got, response.source, response.source_global, meta)
