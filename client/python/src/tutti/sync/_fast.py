"""Ops on arrays by libtutti, without a message made in Python. aio/_fast.py is its twin.

An op goes this way if all that it was given is simple: NumPy arrays or torch tensors of the CPU, a
group by its name, no tracer, no `async_`. All else goes the long way (_call.py); on the wire both
are the same op, so ranks may differ in it.

Arrays of STAGE_BYTES and more do not travel in a message: they are copied into a tensor of the agent
that is mapped here (a Stage), ops work on ranges of it, and the result is given out as an array of that memory; when its last
reference is gone, the Stage is used again. So an array costs one copy, and the result of an op, or
what empty() gives, costs none in the next op.
"""

from __future__ import annotations

import collections
import functools
import math
import secrets
import select
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import dtypes, errors
from .._memory import helps_copy
from .._native_door import native
from ._groups import Group

if TYPE_CHECKING:
    from ._agent import Agent
    from ._call import How

NO = object()  # this op goes the long way

STAGE_BYTES = 32 << 10  # from here on a mapping is faster than a message
IDLE_BYTES_MAX = 1 << 30  # of Stages that nobody uses
IDLE_MAX = 64
TEXT_MAX = 127  # of a range, as the wire takes it; reached by large shapes of seven dimensions or more
LENT_MAX = 512  # of an agent's --shares-max (1024); beyond it results are copied

# tutti_op_kind, by the name of the method on the wire.
_KINDS = {"AllReduce": 1, "Reduce": 2, "ReduceScatter": 3, "AllGather": 5, "AllToAll": 8, "Barrier": 10}
_REDUCES = dtypes._wire.enum_numbers("ReduceOp", "REDUCE_OP_")
_SHORT = {"mean": "AVG", "product": "PROD"}
# The number of a dtype on the wire, and what its bits look like.
_DTYPES = {dtype: (dtypes._NUMBERS[name], dtype) for dtype, name in dtypes._NAME_OF.items()}
for _name, (_, _bits) in dtypes._FOREIGN.items():
    if dtypes.ml_dtypes is not None:
        _DTYPES[dtypes.numpy_dtype(_name)] = (dtypes._NUMBERS[_name], np.dtype(_bits))


def _size_class(nbytes: int) -> int:
    """The bytes of the Stage for so many: an eighth more at most, so that shapes of about one size share
    Stages."""
    step = max(STAGE_BYTES, 1 << max(0, nbytes.bit_length() - 4))
    return -(-nbytes // step) * step


class Stage:
    """A tensor of bytes in the agent whose memory is mapped here."""

    def __init__(self, agent: "Agent", nbytes: int) -> None:
        self.nbytes = nbytes
        name = "tutti.tmp/" + secrets.token_hex(8)
        self.tensor = agent.create([nbytes], "UINT8", name, device="cpu", ephemeral=True)
        try:
            self.view = agent._map(self.tensor.handle, True)
        except BaseException:
            self.tensor.delete()
            raise
        self.bytes = self.view.array
        self.address = self.bytes.__array_interface__["data"][0]
        self._poll = select.poll()
        self._poll.register(self.view._memory._lease, select.POLLIN)

    def array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.ndarray(shape, dtype, self.bytes)

    @property
    def revoked(self) -> bool:
        return bool(self._poll.poll(0))

    def unmap(self) -> None:
        self.bytes = None
        self.view.close()


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

    def _drop(self, stage: Stage) -> None:
        try:
            stage.tensor.delete()
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

    def take(self, wanted: int) -> Stage | None:
        """One of so many bytes at least; None: there can be none. give() it back."""
        if not self.possible or self.closed or self.lent >= LENT_MAX:
            return None
        nbytes = _size_class(wanted)
        stage, surplus = self._find(nbytes)
        for one in surplus:
            self._drop(one)
        while stage is not None and stage.revoked:
            self.lent -= 1
            stage.unmap()
            stage, _ = self._find(nbytes)
        return stage or self._make(nbytes)

    def _make(self, nbytes: int) -> Stage | None:
        try:
            stage = Stage(self._agent, nbytes)
        except errors.TuttiError as error:
            # Limits may be lower in a moment; all else stays.
            lasting = helps_copy(error) and error.reason != "SHARE_LIMIT"
            self.possible = self.possible and not lasting
            self.clear()
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

    def forget(self, stage: Stage) -> None:
        """One that was taken is good for nothing any more."""
        with self._lock:
            self.lent -= 1
        self._drop(stage)

    def clear(self) -> None:
        """Free all that nobody uses."""
        with self._lock:
            self._settle()
            idle, self._idle, self._idle_bytes = self._idle, collections.OrderedDict(), 0
        for stage in idle.values():
            self._drop(stage)

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
        dims = ",".join(map(str, shape))
        name = dtypes._NAME_OF_NUMBER[dtype]
        return "%s@%d:%s[%s]" % (self.stage.tensor.handle, self.offset, name, dims)

    def meets(self, other: "Part") -> bool:
        """Have they bytes in common, and are not the same?"""
        if self.stage is not other.stage or self == other:
            return False
        return self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes


def _part_of(array: Any) -> Part | None:
    """Where in a Stage an array is; None: it is not, or no op can take it there."""
    base = array.base
    while type(base) is np.ndarray:
        base = base.base
    if native is None or type(base) is not native.Block:
        return None
    stage: Stage = base.freed.args[0]
    offset = array.__array_interface__["data"][0] - stage.address
    fits = array.flags.c_contiguous and array.nbytes and offset % array.itemsize == 0
    return None if not fits or stage.revoked else Part(stage, offset, array.nbytes)


class Fast:
    """The ops of a connection that go this way.

    copied  bytes of arrays that were copied for ops, into messages and Stages and out of them
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._client: Any = None
        self._opening = threading.Lock()
        self._off = native is None or not self._fits(agent.settings)
        self._stages = Stages(agent)
        self.copied = 0

    @staticmethod
    def _fits(settings: Any) -> bool:
        """What libtutti cannot be told: a token that is no file, options of gRPC's."""
        return not (settings.token or settings.options or callable(settings.traceparent))

    def _open(self) -> Any:
        with self._opening:
            if self._client is None and not self._off:
                given, agent = self._agent.settings, self._agent
                client = native.Client(
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
                self._client = client
        return self._client

    def close(self) -> None:
        self._off = True
        self._stages.close()
        if self._client is not None:
            self._client.close()

    # -------------------------------------------------------------------------- ops

    def run(
        self,
        method: str,
        x: Any,
        how: "How",
        op: str = "SUM",
        number: float | None = None,
        grow: float = 1,
        root: bool = True,
    ) -> Any:
        """The result, or NO.

        number  the root, or the factor
        grow    how many times larger than x the result is, in its dimension 0; not of 1: x must be cut
                into as many parts as there are ranks
        root    this rank gets a result
        """
        if self._off or how.async_ or how.tracers or how.no_grad or how.local_grad:
            return NO
        group, timeout = how.group, how.timeout
        if isinstance(group, Group):
            if group._destroyed:
                return NO
            group, timeout = group.name, group.timeout if timeout is None else timeout
        elif group is not None and type(group) is not str:
            return NO
        word = op.upper()
        reduce = _REDUCES.get(_SHORT.get(op.lower(), word))
        if not reduce:
            return NO
        told = (
            group or "",
            reduce,
            1.0 if number is None else number,
            0 if timeout is None else max(1, int(timeout * 1000)),
            how.sequence,
            how.step,
            how.token,
        )
        kind = _KINDS[method]
        if x is None:
            (self._client or self._open()).op(kind, None, None, 0, *told)
            return None
        return self._with_arrays(kind, x, how.out, grow, root, told)

    def _with_arrays(
        self, kind: int, x: Any, out: Any, grow: float, root: bool, told: tuple[Any, ...]
    ) -> Any:
        if type(x) is np.ndarray:
            array = x if x.flags.c_contiguous else np.array(x, order="C")
            known = _DTYPES.get(x.dtype)
        elif dtypes.is_torch(x) and x.device.type == "cpu":
            data = dtypes.data_of(x)
            array = data.array
            known = (dtypes._NUMBERS[data.name], array.dtype)
        else:
            return NO
        if known is None or (out is not None and not _takes(out, x, array, grow)):
            return NO
        if known[1] is not array.dtype and known[1] != array.dtype:
            array = array.view(known[1])
        shape = array.shape
        if grow != 1:
            shape = (round(shape[0] * grow),) + shape[1:]
        found = self._perform(kind, known[0], array, shape, out, root, told)
        if found is None or out is not None:
            return found if found is None else out
        if type(x) is np.ndarray:
            return found if found.dtype is x.dtype or found.dtype == x.dtype else found.view(x.dtype)
        return dtypes.like(found, dtypes._NAME_OF_NUMBER[known[0]], x)

    def _perform(
        self,
        kind: int,
        dtype: int,
        array: Any,
        shape: tuple[int, ...],
        out: Any,
        root: bool,
        told: tuple[Any, ...],
    ) -> Any:
        given = None if array.base is None else _part_of(array)
        large = max(array.nbytes, math.prod(shape) * array.itemsize) >= STAGE_BYTES
        if given is not None or large:
            found = self._staged(kind, dtype, array, given, shape, out, root, told)
            if found is not NO:
                return found
        result = None
        if root:
            result = np.empty(shape, array.dtype) if out is None else out.view(array.dtype)
            self.copied += result.nbytes
        self.copied += array.nbytes
        (self._client or self._open()).op(kind, array, result, dtype, *told)
        return result

    def _staged(
        self,
        kind: int,
        dtype: int,
        array: Any,
        given: Part | None,
        shape: tuple[int, ...],
        out: Any,
        root: bool,
        told: tuple[Any, ...],
    ) -> Any:
        """The op on memory that is mapped; NO: there is no room for it."""
        stages, taken = self._stages, []
        nbytes = math.prod(shape) * array.itemsize
        mine = None if out is None or out.base is None else _part_of(out)
        source, target = given, mine if root else None
        whole = True  # no op may still be writing there
        try:
            if source is None or (target is not None and source.meets(target)):
                stage = stages.take(array.nbytes)
                if stage is None:
                    return NO
                taken.append(stage)
                source = Part(stage, 0, array.nbytes)
                np.copyto(stage.array(array.shape, array.dtype), array)
                self.copied += array.nbytes
            if target is None and root and taken and shape == array.shape:
                target = source  # in place: the input is ours alone
            elif target is None and root:
                stage = stages.take(nbytes)
                if stage is None:
                    return NO
                taken.append(stage)
                target = Part(stage, 0, nbytes)
            into = None if target is None else target.text(dtype, shape)
            begins = source.text(dtype, array.shape)
            if max(len(begins), len(into or "")) > TEXT_MAX:
                return NO
            client = self._client or self._open()
            whole = False
            client.op(kind, begins, into, dtype, *told)
            whole = True
            if target is None or target is mine:
                return None if target is None else out
            found = target.stage.array(shape, array.dtype)
            if out is not None:
                np.copyto(out.view(array.dtype).reshape(shape), found)
                self.copied += nbytes
                return out
            taken.remove(target.stage)
            return self._lend(target.stage, shape, array.dtype)
        finally:
            for stage in taken:
                stages.give(stage) if whole else stages.forget(stage)

    def _lend(self, stage: Stage, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of the Stage's memory, which gives the Stage back at its end."""
        block = native.Block(stage.bytes, functools.partial(self._stages.give, stage))
        return np.ndarray(shape, dtype, block)

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array in the agent, where that can be; else one of this program's."""
        kind = np.dtype(dtype)
        known = _DTYPES.get(kind)
        whole = (shape,) if isinstance(shape, int) else tuple(int(one) for one in shape)
        stage = None
        nbytes = math.prod(whole) * kind.itemsize
        if not self._off and known is not None and nbytes:
            stage = self._stages.take(nbytes)
        return np.empty(whole, kind) if stage is None else self._lend(stage, whole, kind)


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
