"""One call of a function in a host: its arguments, its environment, its result."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _cuda, _memory, _wire, dtypes, errors, values
from .functions import Definition
from .sync._call import reduce_number

if TYPE_CHECKING:
    from .host import Host

ERROR_BYTES_MAX = 2000  # of an error's text: it goes into the trailers of gRPC
HERE = os.path.dirname(__file__)


class Cancelled(Exception):
    """Nobody waits for the result of this call any more."""


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


class Env:
    """Where a function is called. Only the function's own thread may use it, until it returns.

    worker        the worker's number in its session, from 0; without a session the rank
    worker_count  how many workers there are; without a session the size of the job
    group_size    workers in a group of the session: worker // group_size is the group's number
    rank          the agent's rank in its job
    world_size    ranks of the job
    device        of the agent's tensors, as far as a host sees them: "cpu"
    """

    device = "cpu"

    def __init__(self, host: "Host", call: Any) -> None:
        self.worker = int(call.worker)
        self.worker_count = int(call.worker_count)
        self.group_size = int(call.group_size)
        self.rank = int(call.rank)
        self.world_size = int(call.world_size)
        self._host = host
        self._call = int(call.call)
        self._until = time.monotonic() + call.timeout_ms / 1000 if call.timeout_ms else None
        self._memories: list[_memory.Memory | _cuda.GpuMemory] = []
        self._gpus: set[int] = set()  # that have tensors of the call, by their numbers here
        self._handles: dict[tuple[int, int], str] = {}  # by address and size of an array
        self._arrays: list[Any] = []  # so that no other array gets one of these addresses

    @property
    def cancelled(self) -> bool:
        """True as soon as nobody waits for the result any more: return soon."""
        return self._host.is_cancelled(self._call)

    @property
    def timeout(self) -> float | None:
        """Seconds until the function must have returned; None = there is no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    # -------------------------------------------------------------------------- tensors

    def _map(self, memory: Any) -> Any:
        """The array of a TensorMemory."""
        kind = dtypes.kind_of(memory.spec)
        if kind is None:
            raise errors.lost("a tensor of dtype %d, which is unknown here" % memory.spec.dtype)
        if memory.ipc_handle:
            opened = _cuda.GpuMemory(kind, memory.gpu_uuid, memory.ipc_handle)
            self._memories.append(opened)
            self._keep(opened.array, memory.handle)
            return opened.array
        array = kind.empty()
        if memory.byte_count:
            mapped = _memory.Memory(memory.socket, memory.token, memory.byte_count, None)
            self._memories.append(mapped)
            array = mapped.array(kind)
        self._keep(array, memory.handle)
        return array

    def _keep(self, array: Any, handle: str) -> None:
        self._handles[_cuda.pointer_of(array) or (_address(array), array.nbytes)] = handle
        self._arrays.append(array)
        self._gpus |= {array.number} if isinstance(array, _cuda.GpuArray) else set()

    def _finish_gpus(self) -> None:
        """Before the agent touches the tensors again: what was launched here is done."""
        for number in self._gpus:
            _cuda.runtime().finish(number)

    def _handle_of(self, array: Any) -> str:
        """The tensor whose memory an array is; "" = none."""
        on_gpu = _cuda.pointer_of(array)
        if on_gpu is not None:
            return self._handles.get(on_gpu, "")
        if not array.flags.c_contiguous:
            return ""
        return self._handles.get((_address(array), array.nbytes), "")

    def empty(self, shape: Sequence[int], dtype: Any = "FP32", device: str = "") -> Any:
        """Make a tensor in the agent, not filled. It is freed when the function has returned, unless
        it is the result.

        device  "cpu", or a GPU of the agent's, by its number there: "cuda:0"; "" = "cpu"

        Returns: its memory: a numpy array, or a GpuArray.
        Raises: TuttiError BAD_DTYPE, BAD_SHAPE, MEMORY_LIMIT, NO_DEVICE.
        Example:
            >>> out = env.empty(x.shape, x.dtype)
        """
        spec = dtypes.spec(dtypes.name_of(dtype), shape)
        said = self._host.request(self._call, "make", spec=spec, device=device)
        return self._map(said.memory)

    def _given(self, x: Any) -> str:
        """The handle of a tensor with the bytes of x."""
        if _cuda.pointer_of(x) is not None:
            handle = self._handle_of(x)
            if not handle:
                text = "an array on a GPU that is neither an argument nor of env.empty(device=)"
                raise errors.invalid("BAD_HANDLE", text)
            return handle
        data = dtypes.data_of(x)
        handle = self._handle_of(data.array)
        if handle:
            return handle
        made = self.empty(data.array.shape, data.name)
        dtypes.bytes_of(made)[:] = data.payload
        return self._handle_of(made)

    # -------------------------------------------------------------------------- collectives

    def _run(self, op: str, x: Any, out: Any, **fields: Any) -> Any:
        """An op; gives `out`."""
        if x is not None:
            fields["input"] = self._given(x)
        if out is not None:
            on_gpu = _cuda.pointer_of(out) is not None
            fields["output"] = self._handle_of(out if on_gpu else dtypes.data_of(out).array)
            if not fields["output"]:
                text = "out of %s is neither an argument nor of env.empty()"
                raise errors.invalid("BAD_HANDLE", text % op)
        self._finish_gpus()
        self._host.request(self._call, "op", op=op, **fields)
        return out

    def _like(self, x: Any, shape: Sequence[int]) -> Any:
        if _cuda.pointer_of(x) is not None:
            raise errors.invalid("BAD_HANDLE", "of arrays on a GPU say where the result goes: out=")
        data = dtypes.data_of(x)
        made = self.empty(shape, data.name)
        return dtypes.to_torch(made, data.name) if dtypes.is_torch(x) else made

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None) -> Any:
        """Reduce an array over all workers. Each worker's function calls it.

        out  where the result goes: an argument or of empty(); x is in place; None = a new one

        Returns: the result, of the shape of x.
        Raises: TuttiError SHAPE_MISMATCH, DTYPE_MISMATCH, BAD_REDUCE_OP, RANK_LOST; TuttiTimeout.
        Example:
            >>> y = env.all_reduce(x @ w, "sum")
        """
        out = self._like(x, x.shape) if out is None else out
        return self._run("all_reduce", x, out, reduce_op=reduce_number(op))

    def broadcast(self, x: Any, root: int = 0) -> Any:
        """Give each worker what the worker `root` has; in place on the others.

        x  on all workers of the same shape and dtype

        Returns: x, or what it was copied to, if it was none of the call's arrays.
        Raises: as all_reduce().
        Example:
            >>> env.broadcast(weights, root=0)
        """
        out = x
        if not self._handle_of(dtypes.data_of(x).array):
            out = self._like(x, x.shape)
            out[...] = x
        return self._run("broadcast", out, out, peer=root)

    def all_gather(self, x: Any, out: Any = None) -> Any:
        """Put the arrays of all workers behind each other, along the first dimension.

        Returns: the result: the first dimension is multiplied by the number of workers.
        Raises: as all_reduce().
        Example:
            >>> rows = env.all_gather(x)
        """
        shape = (x.shape[0] * self.worker_count, *x.shape[1:]) if x.ndim else (self.worker_count,)
        return self._run("all_gather", x, self._like(x, shape) if out is None else out)

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None) -> Any:
        """Reduce an array over all workers, and give each an equal part along the first dimension.

        Returns: this worker's part.
        Raises: as all_reduce(), and INDIVISIBLE, SCALAR_INPUT.
        Example:
            >>> mine = env.reduce_scatter(gradient)
        """
        if out is None:
            out = self._like(x, self._part(x))
        return self._run("reduce_scatter", x, out, reduce_op=reduce_number(op))

    def _part(self, x: Any) -> tuple[int, ...]:
        if not x.ndim:
            raise errors.invalid("SCALAR_INPUT", "a scalar has no parts")
        if x.shape[0] % self.worker_count:
            text = "the first dimension %d cannot be cut into %d equal parts"
            raise errors.invalid("INDIVISIBLE", text % (x.shape[0], self.worker_count))
        return (x.shape[0] // self.worker_count, *x.shape[1:])

    def all_to_all(self, x: Any, out: Any = None) -> Any:
        """Cut an array into equal parts along the first dimension, and give one to each worker.

        Returns: the parts that came, behind each other: of the shape of x.
        Raises: as reduce_scatter().
        Example:
            >>> y = env.all_to_all(x)
        """
        self._part(x)
        return self._run("all_to_all", x, self._like(x, x.shape) if out is None else out)

    def barrier(self) -> None:
        """Wait until the functions of all workers have called it.

        Returns: None.
        Raises: TuttiError RANK_LOST; TuttiTimeout.
        Example:
            >>> env.barrier()
        """
        self._run("barrier", None, None)

    def send(self, x: Any, worker: int) -> None:
        """Send an array to the function of another worker, which calls recv().

        Returns: None, when it has it.
        Raises: TuttiError SELF_PEER, RANK_NOT_IN_GROUP, RANK_LOST; TuttiTimeout.
        Example:
            >>> env.send(x, (env.worker + 1) % env.worker_count)
        """
        self._run("send", x, None, peer=worker)

    def recv(self, out: Any, worker: int) -> Any:
        """Receive an array of another worker's function.

        out  an argument or of empty(), of the dtype and shape of what comes

        Returns: out.
        Raises: as send(), and SHAPE_MISMATCH, DTYPE_MISMATCH.
        Example:
            >>> x = env.recv(env.empty((3, 4)), env.worker - 1)
        """
        return self._run("recv", None, out, peer=worker)

    # -------------------------------------------------------------------------- in and out

    def argument(self, said: Any, arrays: str) -> Any:
        """A HostArg as the function gets it."""
        if not said.HasField("memory"):
            return values.of_wire(said.value)
        array = self._map(said.memory)
        if isinstance(array, _cuda.GpuArray):
            return array.torch() if arrays == "torch" else array
        if arrays == "torch":
            kind = dtypes.kind_of(said.memory.spec)
            return dtypes.to_torch(array, kind.name if kind else "")
        return array

    def result(self, found: Any) -> Any:
        """What the function returned, as a tutti.v1.Value."""
        if _cuda.pointer_of(found) is not None:
            return _wire.new("Value", tensor=self._given(found))
        if isinstance(found, np.ndarray) or dtypes.is_torch(found) or hasattr(found, "__dlpack__"):
            if not isinstance(found, np.generic):
                return _wire.new("Value", tensor=self._given(found))
        return values.to_wire(found)

    def close(self) -> None:
        self._arrays, self._handles = [], {}
        for memory in self._memories:
            memory.close()
        self._memories = []


def run(host: "Host", definition: Definition, call: Any) -> Any:
    """Call a function: a HostReturn."""
    env = Env(host, call)
    args: list[Any] = []
    try:
        args = [env.argument(one, definition.arrays) for one in call.args]
        found = definition.call(*([env] if definition.takes_env else []), *args)
        env._finish_gpus()
        return _wire.new("HostReturn", call=call.call, result=env.result(found))
    except Cancelled:
        raise
    except BaseException as error:  # also SystemExit: a function does not end its host
        return _wire.new("HostReturn", call=call.call, error=error_of(error))
    finally:
        args.clear()
        found = None
        env.close()


# ------------------------------------------------------------------------------ errors


def _frames(error: BaseException) -> str:
    """Where it happened, without this package's own frames."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if os.path.dirname(one.filename) != HERE] or list(frames)
    said = ["%s:%s in %s: %s" % (one.filename, one.lineno, one.name, one.line) for one in theirs]
    return "\n  ".join([""] + said[-8:])


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode(errors="ignore")


def error_of(error: BaseException, reason: str = "FUNCTION_FAILED", code: int = 10) -> Any:
    """An exception as a tutti.v1.Error: what it says first, then where it was raised."""
    known: dict[str, Any] = {"code": code, "reason": reason, "rank": -1}
    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    if isinstance(error, errors.TuttiError):
        said = error.text
        known.update(code=error.code.value[0], reason=error.reason or reason, rank=error.rank)
        known.update(group=error.group, sequence=error.op)
    said = _cut(said, ERROR_BYTES_MAX // 2)
    return _wire.new("Error", text=_cut(said + _frames(error), ERROR_BYTES_MAX), **known)
