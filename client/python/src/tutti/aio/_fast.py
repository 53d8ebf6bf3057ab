"""Ops on arrays by libtutti, without a message made in Python. _engine.py, which is written twice, waits
for them: blocking calls, or a completion queue with asyncio.

An op goes this way if all that it was given is simple: NumPy arrays or torch tensors of the CPU, or
Tensors whose result has a place; a group by its name, no tracer, no `async_`. All else goes the long
way (_call.py); on the wire both are the same op, so ranks may differ in it.

Arrays of STAGE_BYTES and more do not travel in a message: they are copied into a tensor of the agent
that is mapped here (a Stage), ops work on ranges of it, and the result is given out as an array of that memory; when its last
reference is gone, the Stage is used again. So an array costs one copy, and the result of an op, or
what empty() gives, costs none in the next op.
"""

from __future__ import annotations

import array
import collections
import functools
import math
import secrets
import select
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _wire, dtypes, errors
from .._memory import helps_copy
from .._native_door import native
from ._engine import STAGE_BYTES, Engine
from ._groups import Group
from ._tensor import INLINE_BYTES_MAX, Tensor
from ._waits import Lock, in_thread
from ._work import as_ms

if TYPE_CHECKING:
    from ._agent import Agent
    from ._call import How

NO = object()  # this op goes the long way

STAGE_STEP = 32 << 10  # of their sizes
IDLE_BYTES_MAX = 1 << 30  # of Stages that nobody uses
IDLE_MAX = 64
TEXT_MAX = 127  # of a range, as the wire takes it; reached by large shapes of seven dimensions or more
TEXTS_MAX = 64  # kept of a Stage
LENT_MAX = 512  # of an agent's --shares-max (1024); beyond it results are copied

# tutti_op_kind, by the name of the method on the wire.
_KINDS = {
    "AllReduce": 1, "Reduce": 2, "ReduceScatter": 3, "Broadcast": 4, "AllGather": 5, "Gather": 6, "Scatter": 7,
    "AllToAll": 8, "Permute": 9, "Barrier": 10, "Send": 11, "Recv": 12,
}  # fmt: skip
_ANY_SOURCE = -(1 << 31)
_REDUCES = _wire.enum_numbers("ReduceOp", "REDUCE_OP_")
_SHORT = {"mean": "AVG", "product": "PROD"}
_WORDS = {name.lower(): number for name, number in _REDUCES.items()}  # as nearly all callers write them
# The number of a dtype on the wire, and what its bits look like.
_DTYPES = {dtype: (dtypes._NUMBERS[name], dtype) for dtype, name in dtypes._NAME_OF.items()}
for _name, (_, _bits) in dtypes._FOREIGN.items():
    if dtypes.ml_dtypes is not None:
        _DTYPES[dtypes.numpy_dtype(_name)] = (dtypes._NUMBERS[_name], np.dtype(_bits))


def _size_class(nbytes: int) -> int:
    """The bytes of the Stage for so many: an eighth more at most, so that shapes of about one size share
    Stages."""
    step = max(STAGE_STEP, 1 << max(0, nbytes.bit_length() - 4))
    return -(-nbytes // step) * step


def _ranks_of(src_dst: Sequence[int]) -> "array.array[int] | None":
    """As the native module takes them; None: they are no numbers, which the long way has words for."""
    try:
        return array.array("i", list(src_dst))
    except (TypeError, OverflowError, ValueError):
        return None


class Stage:
    """A tensor of bytes in the agent whose memory is mapped here."""

    def __init__(self, tensor: Tensor, view: Any, nbytes: int) -> None:
        self.nbytes = nbytes
        self.tensor = tensor
        self.bytes = view.array
        self._memory = view._memory
        self.texts: dict[tuple[int, int, tuple[int, ...]], str] = {}  # of its Parts, made once
        self._poll = select.poll()
        self._poll.register(self._memory._lease, select.POLLIN)

    def array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.ndarray(shape, dtype, self.bytes)

    @property
    def revoked(self) -> bool:
        return bool(self._poll.poll(0))

    def unmap(self) -> None:
        self.bytes = None
        self._memory.close()


async def _make_stage(agent: "Agent", nbytes: int) -> Stage:
    name = "tutti.tmp/" + secrets.token_hex(8)
    tensor = await agent.create([nbytes], "UINT8", name, device="cpu", ephemeral=True)
    try:
        return Stage(tensor, await agent._map(tensor.handle, True), nbytes)
    except BaseException:
        await tensor.delete()
        raise


class Stages:
    """The Stages of a connection. Any thread."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._idle: collections.OrderedDict[int, Stage] = collections.OrderedDict()
        self._idle_bytes = 0
        # Put there by finalizers, which can run anywhere and so take no lock.
        self._returned: collections.deque[Stage] = collections.deque()
        self.lent = 0
        self.possible = True
        self.closed = False

    async def _drop(self, stage: Stage) -> None:
        try:
            await stage.tensor.delete()
        except errors.TuttiError:
            pass  # its agent is gone, and the tensor with it
        stage.unmap()

    def _settle(self) -> list[Stage]:
        """With the lock: take back what was returned; gives those that are too many."""
        while self._returned:
            stage = self._returned.popleft()
            self._idle[id(stage)] = stage
            self._idle_bytes += stage.nbytes
            self.lent -= 1
        surplus = []
        while len(self._idle) > IDLE_MAX or self._idle_bytes > IDLE_BYTES_MAX:
            surplus.append(self._pop(next(iter(self._idle.values()))))
        return surplus

    def _pop(self, stage: Stage) -> Stage:
        del self._idle[id(stage)]
        self._idle_bytes -= stage.nbytes
        return stage

    def _find(self, nbytes: int) -> tuple[Stage | None, list[Stage]]:
        with self._lock:
            surplus = self._settle()
            for stage in reversed(self._idle.values()):
                if stage.nbytes == nbytes:
                    self.lent += 1
                    return self._pop(stage), surplus
            return None, surplus

    async def take(self, wanted: int) -> Stage | None:
        """One of so many bytes at least; None: there can be none. give() it back."""
        if not self.possible or self.closed or self.lent >= LENT_MAX:
            return None
        nbytes = _size_class(wanted)
        stage, surplus = self._find(nbytes)
        for one in surplus:
            await self._drop(one)
        while stage is not None and stage.revoked:
            self.lent -= 1
            stage.unmap()
            stage, _ = self._find(nbytes)
        return stage or await self._make(nbytes)

    async def _make(self, nbytes: int) -> Stage | None:
        try:
            stage = await _make_stage(self._agent, nbytes)
        except errors.TuttiError as error:
            # Limits may be lower in a moment; all else stays.
            lasting = helps_copy(error) and error.reason != "SHARE_LIMIT"
            self.possible = self.possible and not lasting
            await self.clear()
            return None
        with self._lock:
            self.lent += 1
        return stage

    def give(self, stage: Stage) -> None:
        """No more used. Called by finalizers too."""
        if self.closed:
            stage.unmap()
        else:
            self._returned.append(stage)

    async def forget(self, stage: Stage) -> None:
        """One that was taken is good for nothing any more."""
        with self._lock:
            self.lent -= 1
        await self._drop(stage)

    async def clear(self) -> None:
        """Free all that nobody uses."""
        with self._lock:
            self._settle()
            idle, self._idle, self._idle_bytes = self._idle, collections.OrderedDict(), 0
        for stage in idle.values():
            await self._drop(stage)

    def close(self) -> None:
        """The tensors end with the connection's lease."""
        self.closed = True
        with self._lock:
            self._settle()
            idle, self._idle = self._idle, collections.OrderedDict()
        for stage in idle.values():
            stage.unmap()


class Part(NamedTuple):
    """A run of bytes of a Stage."""

    stage: Stage
    offset: int
    nbytes: int

    def text(self, dtype: int, shape: tuple[int, ...]) -> str:
        """As ops take it: a range (docs/decisions/0030)."""
        known = self.stage.texts
        text = known.get((self.offset, dtype, shape))
        if text is None:
            dims = ",".join(map(str, shape))
            name = dtypes._NAME_OF_NUMBER[dtype]
            text = "%s@%d:%s[%s]" % (self.stage.tensor.handle, self.offset, name, dims)
            if len(known) >= TEXTS_MAX:
                known.clear()
            known[self.offset, dtype, shape] = text
        return text

    def meets(self, other: "Part") -> bool:
        """Have they bytes in common, and are not the same?"""
        if self.stage is not other.stage or self == other:
            return False
        return self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes


def _part_of(array: Any) -> Part | None:
    """Where in a Stage an array is; None: it is not, or no op can take it there."""
    place = None if native is None else native.Block.place(array)
    if place is None:
        return None
    freed, offset, nbytes = place
    stage: Stage = freed.args[0]
    fits = nbytes and offset % array.itemsize == 0
    return None if not fits or stage.revoked else Part(stage, offset, nbytes)


class Fast:
    """The ops of a connection that go this way.

    copied  bytes of arrays that were copied for ops, into messages and Stages and out of them
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._engine: Engine | None = None
        self._opening = Lock()
        self._off = native is None or not self._fits(agent.settings)
        self._stages = Stages(agent)
        self.copied = 0

    @staticmethod
    def _fits(settings: Any) -> bool:
        """What libtutti cannot be told: a token that is no file, options of gRPC's."""
        return not (settings.token or settings.options or callable(settings.traceparent))

    def _connect(self) -> Any:
        given, agent = self._agent.settings, self._agent
        return native.Client(
            agent=agent.line.address,
            coordinator=given.coordinator or agent.info.coordinator,
            tls_ca=given.tls_ca,
            tls_cert=given.tls_cert,
            tls_key=given.tls_key,
            tls_name=given.tls_name,
            token_file=given.token_file,
            timeout_ms=int(given.timeout * 1000),
            traceparent=given.traceparent,
        )

    async def _open(self) -> Engine:
        async with self._opening:
            if self._engine is None:
                if self._off:
                    raise errors.closed(self._agent.line.address)
                self._engine = Engine(await in_thread(self._connect))
        return self._engine

    def close(self) -> None:
        self._off = True
        self._stages.close()
        if self._engine is not None:
            self._engine.close()

    # -------------------------------------------------------------------------- ops

    def _told(self, how: "How", op: str, number: float | None, tag: int) -> tuple[Any, ...] | None:
        """The end of an op's arguments; None: it goes the long way."""
        if self._off or how.async_ or how.tracers or how.no_grad or how.local_grad:
            return None
        group, timeout = how.group, how.timeout
        if isinstance(group, Group):
            if group._destroyed:
                return None
            timeout = group.timeout if timeout is None else timeout
            group = group.name
        elif group is not None and type(group) is not str:
            return None
        reduce = _WORDS.get(op) or _REDUCES.get(_SHORT.get(op.lower(), op.upper()))
        if not reduce:
            return None
        return (
            group or "",
            reduce,
            1.0 if number is None else number,
            as_ms(timeout),
            how.sequence,
            how.step,
            how.token,
            tag,
        )

    async def run(
        self,
        method: str,
        x: Any,
        how: "How",
        op: str = "SUM",
        number: float | None = None,
        grow: float = 1,
        takes: bool = True,
        gives: bool = True,
        tag: int = 0,
        src_dst: Sequence[int] | None = None,
    ) -> Any:
        """The result, or NO.

        number  the root, the peer, or the factor
        grow    how many times larger than x the result is, in its dimension 0; not of 1: x must be cut
                into as many parts as there are ranks
        takes   this rank gets a result
        gives   this rank gives x; else x says what the result will be
        src_dst of a permute
        """
        told = self._told(how, op, number, tag)
        if told is None:
            return NO
        if src_dst is not None:
            ranks = _ranks_of(src_dst)
            if ranks is None:
                return NO
            told += (ranks,)
        kind = _KINDS[method]
        if x is None:
            await (self._engine or await self._open()).op(kind, None, None, 0, *told)
            return None
        if type(x) is Tensor:
            return await self._with_tensors(kind, x, how.out, takes, gives, told)
        return await self._with_arrays(kind, x, how.out, grow, takes, gives, told)

    async def _with_tensors(
        self, kind: int, x: Tensor, out: Any, takes: bool, gives: bool, told: tuple[Any, ...]
    ) -> Any:
        """A Tensor that is made new belongs to a lease, which libtutti has not: then NO."""
        if not gives or x.agent is not self._agent or (takes and out is None and self._agent._ephemeral):
            return NO
        if out is not None and (type(out) is not Tensor or out.agent is not self._agent or not out._kind):
            return NO
        into = out.handle if takes and out is not None else None
        made = await (self._engine or await self._open()).op(kind, x.handle, into, 0, *told)
        if not takes or into is not None:
            return out if takes else None
        handle, dtype, shape = made
        return Tensor(self._agent, handle, dtypes.Kind(dtypes._NAME_OF_NUMBER[dtype], shape))

    async def _with_arrays(
        self,
        kind: int,
        x: Any,
        out: Any,
        grow: float,
        takes: bool,
        gives: bool,
        told: tuple[Any, ...],
    ) -> Any:
        known = _bits_of(x)
        if known is None or (out is not None and not _takes(out, x, known[1], grow)):
            return NO
        dtype, array = known
        shape = array.shape if grow == 1 else (round(array.shape[0] * grow),) + array.shape[1:]
        given = array if gives else None
        found, _ = await self._perform(kind, dtype, given, shape, array.dtype, out, takes, told)
        if found is None or out is not None:
            return found if found is None else out
        if type(x) is np.ndarray:
            return found if found.dtype is x.dtype or found.dtype == x.dtype else found.view(x.dtype)
        return dtypes.like(found, dtypes._NAME_OF_NUMBER[dtype], x)

    async def give_all(self, x: Any, how: "How", root: int) -> Any:
        """The root's part of a broadcast: its result is what it gives."""
        if type(x) is Tensor or how.out is not None and how.out is not x:
            return NO
        found = await self.run("Broadcast", x, how, number=root, takes=False)
        if found is NO or how.out is x:
            return found if found is NO else x
        return x.clone() if dtypes.is_torch(x) else np.array(x, order="C")

    async def receive(self, how: "How", peer: int | None, tag: int, kind: "dtypes.Kind | None") -> Any:
        """(array, source, source_global, meta), or NO. What comes must be as `how.out`, or of this kind."""
        told = self._told(how, "SUM", _ANY_SOURCE if peer is None else peer, tag)
        if told is None or (how.out is None) == (kind is None):
            return NO
        if kind is not None:
            known = _DTYPES.get(dtypes.numpy_dtype(kind.name))
            if known is None or dtypes._NAME_OF_NUMBER[known[0]] != kind.name or kind.nbytes > INLINE_BYTES_MAX:
                return NO
            shape, bits, dtype = kind.shape, known[1], known[0]
            result = np.empty(shape, bits)
            self.copied += result.nbytes
            engine = self._engine or await self._open()
            expects = told[:1] + (0,) + told[2:]
            said = await engine.op(_KINDS["Recv"], None, result, dtype, *expects)
            return (result.view(dtypes.numpy_dtype(kind.name)), *said)
        known_out = _bits_of(how.out)
        if known_out is None or not _takes(how.out, how.out, known_out[1], 1):
            return NO
        dtype, array = known_out
        _, said = await self._perform(
            _KINDS["Recv"], dtype, None, array.shape, array.dtype, how.out, True, told
        )
        return (how.out, *said)

    async def _perform(
        self,
        kind: int,
        dtype: int,
        array: Any,
        shape: tuple[int, ...],
        bits: Any,
        out: Any,
        takes: bool,
        told: tuple[Any, ...],
    ) -> tuple[Any, Any]:
        """The result, and what else the op said."""
        given = None if array is None or array.base is None else _part_of(array)
        gives = 0 if array is None else array.nbytes
        gets = 0
        if takes:
            gets = gives if array is not None and shape == array.shape else math.prod(shape) * bits.itemsize
        if given is not None or gives >= STAGE_BYTES or gets >= STAGE_BYTES:
            found = await self._staged(kind, dtype, array, given, shape, bits, out, takes, told)
            if found is not NO:
                return found  # type: ignore[no-any-return]
        result = None
        if takes and out is not None:
            result = out if out.dtype is bits else out.view(bits)
        elif takes:
            result = np.empty(shape, bits)
        self.copied += gives + gets
        engine = self._engine or await self._open()
        return result, await engine.op(kind, array, result, dtype, *told)

    async def _staged(
        self,
        kind: int,
        dtype: int,
        array: Any,
        given: Part | None,
        shape: tuple[int, ...],
        bits: Any,
        out: Any,
        takes: bool,
        told: tuple[Any, ...],
    ) -> Any:
        """The op on memory that is mapped; NO: there is no room for it."""
        stages: Stages = self._stages
        taken: list[Stage] = []
        nbytes = math.prod(shape) * bits.itemsize
        mine: Part | None = None
        if takes and out is not None and out.base is not None:
            mine = given if out is array else _part_of(out)
        source, target = given, mine
        whole = True  # no op may still be writing there
        try:
            if array is not None and (source is None or (target is not None and source.meets(target))):
                stage = await stages.take(array.nbytes)
                if stage is None:
                    return NO
                taken.append(stage)
                source = Part(stage, 0, array.nbytes)
                np.copyto(stage.array(array.shape, array.dtype), array)
                self.copied += array.nbytes
            if target is None and takes and array is not None and taken and shape == array.shape:
                target = source  # in place: the input is ours alone
            elif target is None and takes:
                stage = await stages.take(nbytes)
                if stage is None:
                    return NO
                taken.append(stage)
                target = Part(stage, 0, nbytes)
            into = None if target is None else target.text(dtype, shape)
            begins = None if source is None else source.text(dtype, array.shape)
            if max(len(begins or ""), len(into or "")) > TEXT_MAX:
                return NO
            engine = self._engine or await self._open()
            whole = False
            said = await engine.op(kind, begins, into, dtype, *told)
            whole = True
            if target is None or target is mine:
                return (None if target is None else out), said
            found = target.stage.array(shape, bits)
            if out is not None:
                np.copyto(out.view(bits).reshape(shape), found)
                self.copied += nbytes
                return out, said
            taken.remove(target.stage)
            return self._lend(target.stage, shape, bits), said
        finally:
            for stage in taken:
                if whole:
                    stages.give(stage)
                else:
                    await stages.forget(stage)

    def _lend(self, stage: Stage, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of the Stage's memory, which gives the Stage back at its end."""
        block = native.Block(stage.bytes, functools.partial(self._stages.give, stage))
        return np.ndarray(shape, dtype, block)

    async def empty(self, shape: "int | Sequence[int]", dtype: Any) -> Any:
        """An array in the agent, where that can be; else one of this program's."""
        kind = np.dtype(dtype)
        known = _DTYPES.get(kind)
        whole = (shape,) if isinstance(shape, int) else tuple(int(one) for one in shape)
        stage = None
        nbytes = math.prod(whole) * kind.itemsize
        if not self._off and known is not None and nbytes:
            stage = await self._stages.take(nbytes)
        return np.empty(whole, kind) if stage is None else self._lend(stage, whole, kind)


def _bits_of(x: Any) -> tuple[int, Any] | None:
    """The number of an array's dtype on the wire, and the array, row-major, in the dtype of its bits; None:
    it is not one that goes this way."""
    if type(x) is np.ndarray:
        array = x if x.flags.c_contiguous else np.array(x, order="C")
        known = _DTYPES.get(x.dtype)
        if known is None:
            return None
        number, bits = known
        return number, array if bits is array.dtype or bits == array.dtype else array.view(bits)
    if dtypes.is_torch(x) and x.device.type == "cpu":
        data = dtypes.data_of(x)
        return dtypes._NUMBERS[data.name], data.array
    return None


def _takes(out: Any, x: Any, array: Any, grow: float) -> bool:
    """Can the result be written to `out` as it is?"""
    return (
        type(out) is np.ndarray
        and type(x) is np.ndarray
        and out.dtype == x.dtype
        and out.size == round(array.size * grow)
        and out.flags.c_contiguous
        and out.flags.writeable
    )
