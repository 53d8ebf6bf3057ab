"""Sends and receives: from one rank to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from .. import dtypes, errors
from ._call import How, begin, receive, receive_inline, run
from ._fast import NO
from ._tensor import INLINE_BYTES_MAX
from ._types import DtypeLike, Input, RecvArguments, TensorLike
from ._work import Received, Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._agent import Agent
    from ._tracers import Tracer
    from ._types import GroupLike


def _expected(dtype: "DtypeLike | None", shape: Sequence[int] | None) -> dtypes.Kind | None:
    """What must come; None = anything. A dtype alone means a scalar."""
    if dtype is None and shape is not None:
        raise errors.invalid("BAD_META", "recv with shape %s and no dtype: give both" % (list(shape),))
    if dtype is None:
        return None
    return dtypes.Kind(dtypes.name_of(dtype), tuple(int(n) for n in shape or ()))


def _plain(peer: Any, peer_global: Any, group_offset: Any, group_count: int, tag: int) -> bool:
    """Is the other rank said by its group rank alone?"""
    numbers = type(peer) is int and 0 <= peer < 1 << 31 and type(tag) is int and 0 <= tag < 1 << 31
    return numbers and peer_global is None and group_offset is None and not group_count


class Pairs:
    """The part of an Agent that sends and receives; arguments as Collectives has them."""

    async def send(
        self,
        x: TensorLike,
        destination: int | None = None,
        *,
        destination_global: int | None = None,
        group_offset: int | None = None,
        group_count: int = 0,
        tag: int = 0,
        meta: bytes = b"",
        group: "GroupLike" = None,
        async_: bool = False,
        timeout: float | None = None,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
    ) -> Work | None:
        """Give a tensor to one rank, and wait until that rank has it.

        x             any shape and dtype
        destination   a group rank; or destination_global, a rank of the job
        group_offset  instead of a destination: the rank in the same place, so many blocks on, of
                      group_count blocks
        tag           below 2^31: a recv() takes what was sent with its tag
        meta          up to 16384 bytes that travel with it

        Returns: None, or a Work with async_.
        Raises: TuttiError SELF_PEER, RANK_NOT_IN_GROUP, NO_NEXT_GROUP, RANK_LOST; TuttiTimeout: the
            other rank did not call recv() in time.
        Example:
            >>> agent.send(np.arange(3), 1, tag=7)             # on rank 0
        """
        how = How(group, None, async_, timeout, tracers=tuple(tracers), no_grad=no_grad)
        agent = cast("Agent", self)
        if not meta and _plain(destination, destination_global, group_offset, group_count, tag):
            found = await agent._run_fast("Send", x, how, "sum", destination, 1, False, True, tag)
            if found is not NO:
                return None
        call = await begin(
            agent,
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

    @overload
    async def recv(
        self,
        source: int | None = ...,
        *,
        async_: Literal[True],
        **how: Unpack[RecvArguments],
    ) -> Work: ...
    @overload
    async def recv(
        self,
        source: int | None = ...,
        *,
        async_: Literal[False] = ...,
        **how: Unpack[RecvArguments],
    ) -> Received: ...
    async def recv(
        self,
        source: int | None = None,
        *,
        source_global: int | None = None,
        group_offset: int | None = None,
        group_count: int = 0,
        tag: int = 0,
        dtype: DtypeLike | None = None,
        shape: Sequence[int] | None = None,
        keep: bool = False,
        device: str = "",
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
    ) -> "Received | Work":
        """Take a tensor from one rank, or from whoever sends first.

        source        a group rank; or source_global, a rank of the job; None = whoever sends first
        tag           of the send() that is taken
        dtype, shape  what it must be; neither = whatever comes
        keep          the tensor stays in the agent: a Tensor comes instead of an array
        device        where the new Tensor lies: "cpu", "cuda:0"; "" = on the first of the agent's --device
        out           where it goes, a Tensor or an array
        group_offset  instead of a source: as send() has it

        Returns: a Received: the tensor as an array, who sent it and what came with it; or a Work with
            async_, whose wait() gives it.
        Raises: TuttiError SELF_PEER, DTYPE_MISMATCH, SHAPE_MISMATCH: not what `dtype` and `shape` say;
            BAD_META: a shape without a dtype; RANK_LOST; TuttiTimeout: nobody sent in time.
        Example:
            >>> agent.recv(0, tag=7).tensor                    # on rank 1
            array([0, 1, 2])
        """
        how = How(group, out, async_, timeout, tracers=tuple(tracers), no_grad=no_grad)
        agent = cast("Agent", self)
        kind = _expected(dtype, shape)
        if agent._fast is not None and not keep and not device and _plain(source or 0, source_global, group_offset, group_count, tag):
            found = await agent._fast.receive(how, source, tag, kind)
            if found is not NO:
                return Received(*found)
        call = (
            await begin(
                agent,
                "Recv",
                how,
                source=source,
                source_global=source_global,
                group_offset=group_offset,
                group_count=group_count,
                tag=tag,
                device=device,
            )
        )._replace(received=True)
        if kind is not None:
            call.request.expect.CopyFrom(dtypes.spec(kind.name, kind.shape))
        as_array = not keep and out is None
        if as_array and kind is not None and not device and not async_ and kind.nbytes <= INLINE_BYTES_MAX:
            return cast(Received, await receive_inline(call, None))
        return cast("Received | Work", await receive(call, None, as_array, kind and kind.name))
