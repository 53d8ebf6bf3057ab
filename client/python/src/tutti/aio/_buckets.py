"""Many small tensors as few large ones: packing, and all-reduces of gradients in buckets."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np

from .. import dtypes, errors
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._agent import Agent
    from ._types import GroupLike, NumpyArray, TorchTensor
    from ._work import Work

BUCKET_BYTES = 10 << 20

P = ParamSpec("P")
R = TypeVar("R")


def _begins(counts: Sequence[int], offsets: Sequence[int] | None) -> list[int]:
    """Where each of the parts begins: one behind the other, or as the offsets say."""
    if offsets is None:
        return [sum(counts[:place]) for place in range(len(counts))]
    if len(offsets) == 2 * len(counts):
        pairs = list(zip(offsets[::2], offsets[1::2]))
        for count, (begin, end) in zip(counts, pairs):
            if end - begin != count:
                text = "a part of %d elements at the offsets %d to %d"
                raise errors.invalid("BAD_OFFSET", text % (count, begin, end))
        return [int(begin) for begin, _ in pairs]
    text = "%d offsets for %d parts: give begin and end of each"
    raise errors.invalid("BAD_OFFSET", text % (len(offsets), len(counts)))


def _check(begins: Sequence[int], counts: Sequence[int], size: int | None) -> int:
    """The elements of the whole; parts must not overlap."""
    last = 0
    for begin, count in sorted(zip(begins, counts)):
        if begin < last:
            text = "parts overlap: one begins at element %d, another ends at %d"
            raise errors.invalid("BAD_OFFSET", text % (begin, last))
        last = begin + count
    if size is not None and last > size:
        raise errors.invalid("BAD_OFFSET", "a part ends at element %d of %d" % (last, size))
    return last


class GradientBuckets:
    """All-reduces gradients while more of them are made: those of a dtype gather in a bucket, and a full
    one is all-reduced in one op behind the program's back. Every rank adds the same, in the same order.

    Results are written in place, and are there when finish(), or a `with` block, has ended.
    """

    def __init__(self, agent: "Agent", op: str, bucket_bytes: int, group: "GroupLike") -> None:
        self.agent = agent
        self.op = op
        self.bucket_bytes = bucket_bytes
        self.group = group
        self._buckets: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}
        self._works: list[Work] = []

    def __repr__(self) -> str:
        waiting = sum(len(one) for one in self._buckets.values())
        return "<GradientBuckets, %d waiting, %d begun>" % (waiting, len(self._works))

    async def add(self, *gradients: "Tensor | NumpyArray | TorchTensor") -> None:
        """Add gradients; a bucket that is full is begun.

        gradients  Tensors, numpy arrays or torch tensors of any shapes, which get the result

        Returns: None.
        Raises: as all_reduce().
        Example:
            >>> for gradient in gradients:
            ...     buckets.add(gradient)
        """
        for one in gradients:
            name, nbytes = await self._kind(one)
            key = name + (" tensor" if isinstance(one, Tensor) else "")
            self._buckets.setdefault(key, []).append(one)
            self._sizes[key] = self._sizes.get(key, 0) + nbytes
            if self._sizes[key] >= self.bucket_bytes:
                await self._begin(key)

    async def _kind(self, gradient: Any) -> tuple[str, int]:
        if not isinstance(gradient, Tensor):
            data = dtypes.data_of(gradient)
            return data.name, data.payload.nbytes
        known = gradient if gradient.dtype_name else await gradient.refresh()
        return str(known.dtype_name), int(known.nbytes or 0)

    async def _begin(self, key: str) -> None:
        bucket: Any = self._buckets.pop(key)
        del self._sizes[key]
        how: Any = {"group": self.group, "out": bucket, "async_": True}
        self._works.append(cast("Work", await self.agent.all_reduce(bucket, self.op, **how)))

    async def finish(self) -> None:
        """Begin what is left, and wait for all; then the buckets can be filled again.

        Returns: None.
        Raises: as all_reduce().
        Example:
            >>> buckets.finish()
        """
        for key in list(self._buckets):
            await self._begin(key)
        works, self._works = self._works, []
        if works:
            await self.agent.wait(works)

    async def __aenter__(self) -> "GradientBuckets":
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            await self.finish()


class Buckets:
    """The part of an Agent that packs tensors."""

    async def pack(
        self,
        tensors: "Sequence[Tensor] | Sequence[NumpyArray]",
        offsets: Sequence[int] | None = None,
        name: str = "",
    ) -> "Tensor | NumpyArray":
        """Put tensors of one dtype one behind the other into a flat one, inside the agent.

        tensors  any shapes; arrays are packed here, and give an array
        offsets  begin and end of each in elements, b0, e0, b1, e1, ...: gaps are zeros; None = without
                 gaps
        name     of the new tensor

        Returns: a tensor of one dimension, of all their elements; unpack() takes it apart.
        Raises: TuttiError EMPTY_LIST; BAD_OFFSET: offsets overlap, or do not fit; DTYPE_MISMATCH.
        Example:
            >>> agent.pack([np.arange(2), np.ones((2, 2), int)])
            array([0, 1, 1, 1, 1, 1])
        """
        if not len(tensors):
            raise errors.invalid("EMPTY_LIST", "nothing to pack")
        if not isinstance(tensors[0], Tensor):
            return _pack_arrays([np.asarray(one) for one in tensors], offsets)
        agent = cast("Agent", self)
        parts = [
            one if one.shape is not None else await one.refresh()
            for one in cast("Sequence[Tensor]", tensors)
        ]
        counts = [math.prod(one.shape or ()) for one in parts]
        begins = _begins(counts, offsets)
        size = _check(begins, counts, None)
        device = await parts[0].device()
        whole = await agent.create([size], str(parts[0].dtype_name), name, device)
        try:
            async with await agent.pipeline() as calls:
                replies = [
                    await calls.copy(one, into=whole, count=count, into_offset=begin)
                    for one, count, begin in zip(parts, counts, begins)
                    if count
                ]
            for reply in replies:
                await reply.wait()
        except BaseException:
            await whole.delete()
            raise
        return whole

    async def unpack(
        self,
        packed: "Tensor | NumpyArray",
        shapes: "Sequence[Sequence[int]]",
        offsets: Sequence[int] | None = None,
    ) -> "Sequence[Tensor | NumpyArray]":
        """Take tensors out of a flat one, inside the agent.

        packed   as pack() gives it; an array gives arrays
        shapes   of each
        offsets  begin and end of each in elements, as pack() has them; None = without gaps

        Returns: a new tensor of each shape.
        Raises: TuttiError BAD_OFFSET: offsets overlap, do not fit, or are beyond the end.
        Example:
            >>> agent.unpack(np.arange(5), [(1,), (2, 2)])
            [array([0]), array([[1, 2],
                   [3, 4]])]
        """
        counts = [math.prod(shape) for shape in shapes]
        begins = _begins(counts, offsets)
        if not isinstance(packed, Tensor):
            flat = np.asarray(packed).reshape(-1)
            _check(begins, counts, flat.size)
            return [
                flat[begin : begin + count].reshape(shape).copy()
                for begin, count, shape in zip(begins, counts, shapes)
            ]
        if packed.shape is None:
            await packed.refresh()
        _check(begins, counts, math.prod(packed.shape or ()))
        async with await cast("Agent", self).pipeline() as calls:
            replies = [
                await calls.copy(packed, offset=begin, count=count, shape=shape)
                if count
                else await calls.create(shape, str(packed.dtype_name))
                for begin, count, shape in zip(begins, counts, shapes)
            ]
        return [cast(Tensor, await reply.wait()) for reply in replies]

    async def gradient_buckets(
        self,
        op: str = "avg",
        bucket_bytes: int = BUCKET_BYTES,
        *,
        group: "GroupLike" = None,
    ) -> GradientBuckets:
        """Make buckets in which gradients are all-reduced while more of them are made.

        op            as all_reduce() has it
        bucket_bytes  of the gradients of a dtype that one op takes

        Returns: the buckets; a `with` block waits for all of them at its end.
        Raises: nothing.
        Example:
            >>> with agent.gradient_buckets() as buckets:
            ...     for gradient in gradients:
            ...         buckets.add(gradient)
        """
        return GradientBuckets(cast("Agent", self), op, bucket_bytes, group)

    async def all_reduce_gradients(
        self,
        gradients: "Sequence[Tensor | NumpyArray | TorchTensor]",
        op: str = "avg",
        bucket_bytes: int = BUCKET_BYTES,
        *,
        group: "GroupLike" = None,
    ) -> None:
        """All-reduce gradients in place, in buckets of one dtype. Every rank gives the same list.

        gradients, op, bucket_bytes  as gradient_buckets() and its add() have them

        Returns: None; the gradients have the result.
        Raises: as all_reduce().
        Example:
            >>> agent.all_reduce_gradients([gradient of each parameter])
        """
        async with await self.gradient_buckets(op, bucket_bytes, group=group) as buckets:
            await buckets.add(*gradients)

    def synchronized(
        self, function: Callable[P, Awaitable[R]], group: "GroupLike" = None
    ) -> Callable[P, Awaitable[R]]:
        """Make a function wait at its end until it has ended on all ranks, as a decorator too.

        Returns: the function, with a barrier behind it.
        Raises: nothing; the function raises what it raises, and what barrier() raises.
        Example:
            >>> @agent.synchronized
            ... def load():
            ...     return model.load()
        """

        @functools.wraps(function)
        async def call(*given: P.args, **named: P.kwargs) -> R:
            found = await function(*given, **named)
            await cast("Agent", self).barrier(group=group)
            return found

        return call


def _pack_arrays(arrays: list[Any], offsets: Sequence[int] | None) -> "NumpyArray":
    counts = [one.size for one in arrays]
    begins = _begins(counts, offsets)
    whole = np.zeros(_check(begins, counts, None), arrays[0].dtype)
    for one, begin in zip(arrays, begins):
        if one.dtype != whole.dtype:
            text = "arrays of %s and of %s: pack() takes one dtype"
            raise errors.invalid("DTYPE_MISMATCH", text % (whole.dtype, one.dtype))
        whole[begin : begin + one.size] = one.reshape(-1)
    return whole
