"""Sends and receives: from one rank to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import dtypes
from ._call import How, begin, receive, receive_inline, run
from ._tensor import INLINE_BYTES_MAX
from ._work import Received, Work

if TYPE_CHECKING:
    from ._agent import Agent
    from ._groups import Group


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
        keep: bool = False,
        group: "Group | str | None" = None,
        out: Any = None,
        async_: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Take a tensor from one rank, or from whoever sends first: a Received, or a Work whose wait()
        gives it.

        dtype, shape  what it must be; without a dtype whatever comes
        keep          the tensor stays in the agent: a Tensor comes instead of an array
        out           where it goes, a Tensor or an array
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
        )._replace(received=True)
        kind = None
        if dtype is not None:
            kind = dtypes.Kind(dtypes.name_of(dtype), tuple(int(n) for n in shape))
            call.request.expect.CopyFrom(dtypes.spec(kind.name, kind.shape))
        as_array = not keep and out is None
        if as_array and kind is not None and not async_ and kind.nbytes <= INLINE_BYTES_MAX:
            got, response = await receive_inline(call, None)
        else:
            got, response = await receive(call, None, as_array)
        return got if async_ else Received.of(got, response)
