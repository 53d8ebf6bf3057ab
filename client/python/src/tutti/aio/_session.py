"""Sessions: one program drives all agents of a group, as if they were one machine."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import _memory, dtypes, errors, values
from ..status import StatusCode
from ._agent import Agent, connect
from ._agent import _open as open_agent
from ._call import reduce_number
from ._drive import Drive
from ._groups import backend_name
from ._register import DModule, DPackedFunc, DRef, register_of
from ._tensor import Tensor
from ._view import View
from ._work import as_ms

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..values import Plain
    from ._types import Array, ConnectArguments, DtypeLike, NumpyArray

SHARE_BYTES_MIN = 1 << 20  # of a tensor that is mapped instead of sent, where both are on one host


@dataclasses.dataclass(frozen=True)
class WorkerInfo:
    """A worker of a session.

    worker  its number in the session, from 0; rank: in its job
    """

    worker: int
    rank: int
    host: str
    device: str
    addresses: tuple[str, ...]


def _check_fits(kind: dtypes.Kind, data: dtypes.Data) -> None:
    """As an agent checks what overwrites a tensor."""
    if kind.name != data.name:
        text = "the tensor is %s, the array is %s" % (kind, data.name)
        raise errors.invalid("DTYPE_MISMATCH", text)
    if kind.nbytes != data.payload.nbytes:
        text = "the tensor is %s, the array has the shape %s" % (kind, list(data.array.shape))
        raise errors.invalid("SHAPE_MISMATCH", text)


def _over() -> errors.TuttiError:
    text = "the session was shut down: open another one"
    return errors.make(StatusCode.NOT_FOUND, text, "NO_GROUP")


def _ticket(text: str) -> tuple[str, bytes]:
    """Session and secret."""
    session, _, secret = text.partition(".")
    try:
        return session, bytes.fromhex(secret)
    except ValueError:
        text = "no ticket of a session: give what Session.ticket was"
        raise errors.invalid("NO_SESSION", text) from None


class Session:
    """One program drives all workers (agents) of a group. Made by session().

    A command is sent to all workers and returns at once, with a DRef: a register, which each worker
    has its own value in. Each worker runs the commands in the order of the program; a command waits
    for the values that it needs. debug_get_from_remote() and the sync calls wait.

    How errors come. A command that fails on a worker ends neither the session nor the worker. The
    error is raised by the first of these calls: one that reads the register which the command was
    to write, or the next sync_worker_0(), sync() or end of a `with` block. Each is raised once; it
    says the command, the line of the program that sent it, and which workers failed (`workers`, a
    dict of errors by worker). What needs a value that failed fails with its cause.

    Bytes of arrays go straight between this program and the workers, through shared memory where both
    are on one host; calls that take or fill an array return when its bytes are there. Several threads
    may use a session: the commands of each thread keep their order. One thread must not use a
    register while another writes or reads an array there. Do not fork.

    agent    the connection to the leader, which is one of the workers
    workers  who they are, in their order
    """

    def __init__(self, agent: Agent, owned: bool, group: str) -> None:
        self.agent = agent
        self.workers: list[WorkerInfo] = []
        self._owned = owned
        self._group = group
        self._drive = Drive(agent.line)
        self._numbers = itertools.count(1)
        self._free: list[int] = []
        self._agents: dict[int, Agent] = {}
        self._num_groups = 1
        self._kept: dict[int, DRef] = {}
        self._far: set[int] = set()  # workers whose tensors cannot be mapped
        self._servers: Any = None  # that ProcessSession() has started

    def __repr__(self) -> str:
        return "<Session %s of %d workers>" % (self.id, len(self.workers))

    # -------------------------------------------------------------------------- what it is

    async def _begin(self, num_groups: int, linger: bool | float, resume: str | None) -> None:
        lingers = _linger(linger)
        known: dict[str, Any] = {"group": self._group, "num_groups": num_groups, **lingers}
        if resume is not None:
            session, secret = _ticket(resume)
            known = {"resume": session, "secret": secret, **lingers, "linger": True}
        opened = await self._drive.open(**known)
        self.id = str(opened.session)
        self._num_groups = opened.num_groups or 1
        self._secret = bytes(opened.secret) or known.get("secret", b"")
        self._leader = opened.leader
        self.workers = [
            WorkerInfo(one.worker, one.rank, one.host, one.device, tuple(one.addresses))
            for one in opened.workers
        ]
        self._take_over(sorted(opened.registers))

    def _take_over(self, used: list[int]) -> None:
        """Registers of a session that was resumed."""
        last = used[-1] if used else 0
        self._free = sorted(set(range(1, last)) - set(used), reverse=True)
        self._numbers = itertools.count(last + 1)
        self._kept = {number: DRef(self, number) for number in used}

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        self._drive.check()
        return len(self.workers)

    @property
    def num_groups(self) -> int:
        """Into how many groups of consecutive workers they fall."""
        self._drive.check()
        return self._num_groups

    @property
    def ticket(self) -> str:
        """With it another process can resume the session, or this one later; "" = it does not
        linger. Keep it secret."""
        return "%s.%s" % (self.id, self._secret.hex()) if self._secret else ""

    def registers(self) -> list[int]:
        """List the registers that a session which was resumed has values in, and that register()
        was not called for.

        Returns: their numbers.
        Raises: nothing.
        Example:
            >>> session.registers()
            [1, 2]
        """
        return sorted(self._kept)

    def register(self, number: int) -> DRef:
        """Take over a register of a session that was resumed.

        Returns: its DRef: the register is free when it goes.
        Raises: TuttiError BAD_REGISTER: there is none, or it was taken over before.
        Example:
            >>> session = tutti.session(resume=ticket)
            >>> weights = session.register(2)
        """
        found = self._kept.pop(number, None)
        if found is None:
            text = "register %d has no value to be taken over; those that have: %s"
            raise errors.invalid("BAD_REGISTER", text % (number, self.registers() or "none"))
        return found

    # -------------------------------------------------------------------------- registers

    def _new_register(self) -> int:
        try:
            return self._free.pop()
        except IndexError:
            return next(self._numbers)

    def _free_register(self, number: int) -> None:
        self._drive.drop([number])
        self._free.append(number)

    def _name(self, number: int) -> str:
        """Of a register, at the workers."""
        return "reg:%s/%d" % (self.id, number)

    async def _make(self, kind: str, **fields: Any) -> DRef:
        """A command whose result is a new register."""
        ref = DRef(self, self._new_register())
        ref._command = await self._drive.post(kind, into=ref.reg_id, **fields)
        return ref

    async def _write(self, kind: str, dst: DRef | None, **fields: Any) -> DRef:
        """A command that overwrites `dst`, or makes a new register."""
        if dst is None:
            return await self._make(kind, **fields)
        register = register_of(self, dst)
        dst._command = await self._drive.post(kind, dst=register, **fields)
        return dst

    # -------------------------------------------------------------------------- functions

    async def get_global_func(self, name: str) -> DPackedFunc:
        """Find a function that each worker has, and wait until they have said so.

        Returns: the function: call it.
        Raises: TuttiError UNKNOWN_FUNC: names the ranks that lack it; RANK_LOST.
        Example:
            >>> rank = session.get_global_func("runtime.disco.worker_rank")
            >>> rank().debug_get_from_all()
            [0, 1]
        """
        function = DPackedFunc(self, self._new_register(), name)
        await self._drive.ask("get_function", function=name, into=function.reg_id)
        return function

    def _argument(self, thing: Any) -> dict[str, Any]:
        if isinstance(thing, DRef):
            return {"register": register_of(self, thing)}
        return {"value": values.to_wire(thing)}

    async def call_packed(
        self,
        func: DRef | str,
        *args: "DRef | Plain",
        workers: Sequence[int] = (),
        timeout: float | None = None,
    ) -> DRef:
        """Call a function on each worker.

        func     of get_global_func() or of a module; a register that holds one; or its name
        args     at most 64: registers, None, int, float, str, bytes, dtypes (numpy's, Dtype), Device,
                 Shape or a tuple of ints, Function. An array is none: send it to the workers first
        workers  only on these; the result is null on the others
        timeout  seconds until it must have returned; None = the agents' --op-timeout

        Returns: a register with what it returns on each worker.
        Raises: TuttiError BAD_VALUE, BAD_REGISTER. Of its run: UNKNOWN_FUNC, FUNCTION_FAILED (or the
            function's own reason), HOST_LOST, RANK_LOST, BAD_WORKER; TuttiTimeout TIMEOUT.
        Example:
            >>> d = session.call_packed("tests.add_one", 1)
            >>> d.debug_get_from_remote(0)
            2
        """
        fields: dict[str, Any] = {"args": [self._argument(one) for one in args]}
        if isinstance(func, str):
            fields["function"] = func
        else:
            fields["function_register"] = register_of(self, func)
        if workers:
            fields["workers"] = list(workers)
        if timeout is not None:
            fields["timeout_ms"] = as_ms(timeout)
        return await self._make("call", **fields)

    async def import_python_module(self, module_name: str) -> list[str]:
        """Have the Python hosts of each worker import a module, and wait until they have.

        Returns: the names of functions that are new.
        Raises: TuttiError NOT_ALLOWED: the agents' --functions do not allow it; NO_HOST;
            IMPORT_FAILED.
        Example:
            >>> session.import_python_module("mlp.layers")
            ['mlp.layers.forward']
        """
        response = await self._drive.ask("import_module", module=module_name)
        return [one.name for one in response.functions]

    async def load_vm_module(self, path: str, device: str | None = None) -> DModule:
        """Have each worker load a module out of its --module-path, and wait until it has.

        path    a file name, without a folder
        device  where its tensors live; None = each agent's first

        Returns: the module: module["name"] is a function of it.
        Raises: TuttiError NO_MODULES, NO_MODULE, BAD_PATH, BAD_MODULE; RANK_LOST.
        Example:
            >>> module = session.load_vm_module("model.so")
            >>> module["main"](x)
        """
        register = self._new_register()
        module = DModule(self, register, [])
        response = await self._drive.ask(
            "load_module", path=path, device=device or "", into=register
        )
        module.functions = [one.name for one in response.functions]
        return module

    async def load_module(self, path: str, device: str | None = None) -> DModule:
        """load_vm_module() by its other name.

        Returns: the module.
        Raises: as load_vm_module().
        Example:
            >>> module = session.load_module("model.so", "cuda:0")
        """
        return await self.load_vm_module(path, device)

    async def init_ccl(self, ccl: str, *device_ids: int) -> None:
        """Check that the workers can do collectives by a library, as programs for TVM Disco ask. There is
        nothing to set up: agents find their transports by themselves, and tensors' devices decide.

        ccl         "nccl"; or "host" ("gloo" and "mpi" mean it too)
        device_ids  of "nccl": a GPU of each worker, which is among its agent's --device; none = any

        Returns: None.
        Raises: TuttiError NO_BACKEND: a worker has no such GPU, or did not load NCCL; BAD_VALUE: another
            library; BAD_DEVICE: not a GPU for each worker; NO_GROUP: the session was shut down.
        Example:
            >>> session.init_ccl("nccl", 0, 1)
        """
        self._drive.check()
        backend = backend_name(ccl)
        if device_ids and (backend != "nccl" or len(device_ids) != len(self.workers)):
            text = "%d devices for %d workers of %s: give none, or of nccl one for each"
            raise errors.invalid("BAD_DEVICE", text % (len(device_ids), len(self.workers), ccl))
        if backend == "nccl":
            for place in range(len(self.workers)):
                await self._check_nccl(place, device_ids[place] if device_ids else None)

    async def _check_nccl(self, place: int, number: int | None) -> None:
        worker = self.workers[place]
        stats: Any = await (await self._agent(place)).stats()
        found = [one.device for one in stats.gpus if one.backend == "nccl"]
        if not found or number is not None and "cuda:%d" % number not in found:
            text = "worker %d (rank %d) has no NCCL on %s: its agent's --device is %s"
            wanted = "a GPU" if number is None else "cuda:%d" % number
            text %= (place, worker.rank, wanted, worker.device)
            raise errors.make(StatusCode.FAILED_PRECONDITION, text, "NO_BACKEND")

    async def value(self, value: "Plain", workers: Sequence[int] = ()) -> DRef:
        """Put a plain value into a new register, on each worker.

        workers  only on these; null on the others

        Returns: the register.
        Raises: TuttiError BAD_VALUE. Later: BAD_WORKER.
        Example:
            >>> session.value(7).debug_get_from_all()
            [7, 7]
        """
        fields = {"value": values.to_wire(value), "workers": list(workers)}
        return await self._make("set", **fields)

    # -------------------------------------------------------------------------- tensors

    async def empty(
        self,
        shape: Sequence[int],
        dtype: "DtypeLike",
        device: str | None = None,
        worker0_only: bool = False,
        in_group: bool = True,
        workers: Sequence[int] = (),
    ) -> DRef:
        """Make a tensor on each worker, filled with zeros.

        device        "cpu", "cuda:0"; None = each agent's first
        worker0_only  only on the first worker of each group; with in_group=False only on worker 0.
                      The register is null on the others
        workers       only on these

        Returns: the register.
        Raises: TuttiError BAD_DTYPE, BAD_SHAPE. Later: MEMORY_LIMIT, NO_DEVICE, BAD_WORKER.
        Example:
            >>> d = session.empty((2, 3), "float32")
            >>> d.debug_get_from_remote(1).shape
            (2, 3)
        """
        return await self._make("empty", **self._spec(shape, dtype, device), **{
            "worker0_only": worker0_only, "in_group": in_group, "workers": list(workers),
        })  # fmt: skip

    def _spec(self, shape: Sequence[int], dtype: Any, device: str | None = None) -> dict[str, Any]:
        return {"spec": dtypes.spec(dtypes.name_of(dtype), shape), "device": device or ""}

    async def copy(self, src: DRef, dst: DRef | None = None) -> DRef:
        """Copy a register on each worker.

        dst  a tensor to overwrite; None = a new register

        Returns: dst, or the new register.
        Raises: TuttiError BAD_REGISTER. Later: DTYPE_MISMATCH, SHAPE_MISMATCH.
        Example:
            >>> backup = session.copy(weights)
        """
        return await self._write("copy", dst, src=register_of(self, src))

    async def copy_to_worker_0(self, host_array: "Array", remote_array: DRef | None = None) -> DRef:
        """Write an array to worker 0, and wait until its bytes are there.

        remote_array  a tensor of its dtype and number of elements to overwrite; None = a new one

        Returns: the register; a new one is null on the other workers.
        Raises: TuttiError BAD_DTYPE, BAD_REGISTER, DTYPE_MISMATCH, SHAPE_MISMATCH, MEMORY_LIMIT,
            NO_TENSOR: remote_array is null on worker 0.
        Example:
            >>> d = session.copy_to_worker_0(np.ones(4, np.float32))
        """
        data = dtypes.data_of(host_array)
        if remote_array is None:
            return await self._place([(0, data)])
        register = register_of(self, remote_array)
        await self._drive.ask("flush", workers=[0])
        await self._put(0, register, data)
        return remote_array

    async def copy_from_worker_0(self, host_array: "NumpyArray", remote_array: DRef) -> None:
        """Read a tensor of worker 0 into an array of the same dtype and number of elements.

        Returns: None, when the bytes are there.
        Raises: TuttiError DTYPE_MISMATCH, SHAPE_MISMATCH: of the array; as debug_get_from_remote().
        Example:
            >>> host = np.zeros((2, 3), np.float32)
            >>> session.copy_from_worker_0(host, d)
        """
        found = await remote_array.debug_get_from_remote(0)
        fits = getattr(found, "size", -1) == host_array.size
        if not fits or getattr(found, "dtype", None) != host_array.dtype:
            is_array = hasattr(found, "dtype")
            said = dtypes.data_of(found) if is_array else None
            reason = "DTYPE_MISMATCH" if fits or said is None else "SHAPE_MISMATCH"
            what = "%s%s" % (said.name, list(said.array.shape)) if said else repr(found)
            text = "worker 0 has %s, the array is %s%s"
            raise errors.invalid(
                reason, text % (what, host_array.dtype, list(host_array.shape))
            )
        dtypes.copy_into(host_array, found, dtypes.name_of(host_array.dtype))

    # -------------------------------------------------------------------------- collectives

    def _firsts(self, in_group: bool) -> list[int]:
        """The worker 0 of each group, or of all."""
        size = len(self.workers) // (self._num_groups if in_group else 1)
        return list(range(0, len(self.workers), max(1, size)))

    async def broadcast(
        self, src: "Array | DRef", dst: DRef | None = None, in_group: bool = True
    ) -> DRef:
        """Give each worker an array.

        It goes from this program to the first worker of each group, and from there to the others;
        with in_group=False to worker 0, and from there to all.

        src  an array; a register is that of worker 0: broadcast_from_worker0()
        dst  a tensor of the same dtype and number of elements to overwrite

        Returns: dst, or a new register.
        Raises: TuttiError BAD_DTYPE, BAD_REGISTER, MEMORY_LIMIT. Later: DTYPE_MISMATCH,
            SHAPE_MISMATCH, RANK_LOST.
        Example:
            >>> d = session.broadcast(np.arange(4.0))
            >>> d.debug_get_from_remote(1)
            array([0., 1., 2., 3.])
        """
        if not isinstance(src, DRef):
            data = dtypes.data_of(src)
            src = await self._place([(worker, data) for worker in self._firsts(in_group)])
        return await self.broadcast_from_worker0(src, dst, in_group)

    async def scatter(
        self, src: "Array | DRef", dst: DRef | None = None, in_group: bool = True
    ) -> DRef:
        """Give worker i the part src[i] of an array.

        The way is that of broadcast(): with in_group through the first worker of each group.

        src  its first dimension is the number of workers; a register is that of worker 0:
             scatter_from_worker0()
        dst  a tensor of the same dtype and number of elements as a part, to overwrite

        Returns: dst, or a new register, which has not the first dimension.
        Raises: TuttiError BAD_SHAPE: of another number of parts than workers; as broadcast().
        Example:
            >>> d = session.scatter(np.arange(4.0).reshape(2, 2))
            >>> d.debug_get_from_remote(1)
            array([2., 3.])
        """
        if not isinstance(src, DRef):
            src = await self._place(self._parts(dtypes.data_of(src), in_group))
        return await self.scatter_from_worker0(src, dst, in_group)

    def _parts(self, data: dtypes.Data, in_group: bool) -> list[tuple[int, dtypes.Data]]:
        """What the first worker of each group gets."""
        shape, count = data.array.shape, len(self.workers)
        if not shape or shape[0] != count:
            text = "scatter needs an array of %d parts, one for each worker; its shape is %s"
            raise errors.invalid("BAD_SHAPE", text % (count, list(shape)))
        firsts = self._firsts(in_group)
        size = count // len(firsts)
        return [(one, data._replace(array=data.array[one : one + size])) for one in firsts]

    async def broadcast_from_worker0(
        self, src: DRef, dst: DRef | None = None, in_group: bool = True
    ) -> DRef:
        """Give each worker what the first worker of its group has, or with in_group=False worker 0.

        src  is not looked at on the others
        dst  a tensor of the same dtype and number of elements, of any shape; None = a new register

        Returns: dst, or the new register.
        Raises: TuttiError BAD_REGISTER. Later: NO_TENSOR, DTYPE_MISMATCH, SHAPE_MISMATCH, RANK_LOST.
        Example:
            >>> d = session.broadcast_from_worker0(session.copy_to_worker_0(np.ones(2)))
        """
        return await self._move("broadcast_from_worker0", src, dst, in_group)

    async def scatter_from_worker0(
        self, from_array: DRef, to_array: DRef | None = None, in_group: bool = True
    ) -> DRef:
        """Cut what the first worker has into equal parts, one for each worker of its group.

        to_array  a tensor of the part's dtype and number of elements, of any shape; None = a new
                  register: its first dimension is divided, or left out if it is the number of workers

        Returns: to_array, or the new register.
        Raises: as broadcast_from_worker0(), and later BAD_SHAPE, INDIVISIBLE: there are no equal
            parts.
        Example:
            >>> d = session.scatter_from_worker0(session.copy_to_worker_0(np.ones((2, 3))))
            >>> d.debug_get_from_remote(1).shape
            (3,)
        """
        return await self._move("scatter_from_worker0", from_array, to_array, in_group)

    async def gather_to_worker0(
        self, from_array: DRef, to_array: DRef | None = None, in_group: bool = True
    ) -> DRef:
        """Put what the workers of a group have behind each other, on its first worker.

        to_array  of the first worker: a tensor of as many elements as all have, of any shape

        Returns: to_array, or a new register: the first dimension is multiplied; null on the others.
        Raises: as broadcast_from_worker0().
        Example:
            >>> session.gather_to_worker0(session.empty((3,), "float32")).debug_get_from_remote(0)
            array([0., 0., 0., 0., 0., 0.], dtype=float32)
        """
        return await self._move("gather_to_worker0", from_array, to_array, in_group)

    async def allreduce(
        self, src: DRef, dst: DRef | None = None, op: str = "sum", in_group: bool = True
    ) -> DRef:
        """Reduce what the workers of each group have, or with in_group=False all workers.

        dst  a tensor of the same dtype and number of elements; src is in place
        op   "sum", "prod", "min", "max", "avg"

        Returns: dst, or a new register.
        Raises: TuttiError BAD_REDUCE_OP, BAD_REGISTER. Later: NO_TENSOR, SHAPE_MISMATCH,
            DTYPE_MISMATCH, BAD_DTYPE, RANK_LOST.
        Example:
            >>> d = session.allreduce(session.call_packed("tests.rank_tensor"), op="max")
        """
        number = reduce_number(op)
        register = register_of(self, src)
        return await self._write(
            "all_reduce", dst, src=register, reduce_op=number, in_group=in_group
        )

    async def allgather(
        self, src: DRef, dst: DRef | None = None, in_group: bool = True
    ) -> DRef:
        """Put what the workers of each group have behind each other, on all of them.

        dst  a tensor of as many elements as all have, of any shape

        Returns: dst, or a new register: the first dimension is multiplied.
        Raises: as broadcast_from_worker0().
        Example:
            >>> session.allgather(session.empty((3, 2), "int32")).debug_get_from_remote(1).shape
            (6, 2)
        """
        return await self._move("all_gather", src, dst, in_group)

    async def _move(self, kind: str, src: DRef, dst: DRef | None, in_group: bool) -> DRef:
        return await self._write(kind, dst, src=register_of(self, src), in_group=in_group)

    async def send_to_next_group(self, src: DRef) -> None:
        """Send what each worker has to the worker in its place of the next group; those of the last
        group send nothing. recv_from_prev_group() takes it.

        Returns: None.
        Raises: TuttiError BAD_REGISTER. Later: LAST_GROUP, NO_TENSOR, RANK_LOST.
        Example:
            >>> session = tutti.session(num_groups=2)
            >>> session.send_to_next_group(d)
            >>> d = session.recv_from_prev_group(d)
        """
        await self._drive.post("send_to_next_group", src=register_of(self, src))

    async def recv_from_prev_group(self, dst: DRef | None = None) -> DRef:
        """Take what the worker in the same place of the group before has sent; those of the first
        group take nothing.

        dst  a tensor of the same dtype and number of elements; None = a new register

        Returns: dst, or the new register.
        Raises: as send_to_next_group(). Later: DTYPE_MISMATCH, SHAPE_MISMATCH.
        Example:
            >>> d = session.recv_from_prev_group()
        """
        return await self._write("recv_from_prev_group", dst)

    async def transfer(
        self, src: DRef, source: int, destination: int, dst: DRef | None = None
    ) -> DRef:
        """Copy a tensor from one worker to another.

        source, destination  workers
        dst  on the destination: a tensor of the same dtype and number of elements

        Returns: dst, or a new register, null on all workers but the destination.
        Raises: TuttiError BAD_REGISTER. Later: BAD_WORKER, NO_TENSOR, DTYPE_MISMATCH,
            SHAPE_MISMATCH, RANK_LOST.
        Example:
            >>> there = session.transfer(d, 0, 1)
        """
        fields = {"src": register_of(self, src), "from": source, "to": destination}
        return await self._write("transfer", dst, **fields)

    # -------------------------------------------------------------------------- waiting

    async def sync(self, *workers: int) -> None:
        """Wait until all that was commanded so far has ended on these workers; none = on all.

        Returns: None.
        Raises: the first error of a command that nobody was told yet; TuttiError BAD_WORKER.
        Example:
            >>> session.sync()
        """
        await self._drive.ask("sync", workers=list(workers))
        self._drive.tell_first()

    async def sync_worker_0(self) -> None:
        """Wait until all that was commanded so far has ended on worker 0.

        Returns: None.
        Raises: as sync().
        Example:
            >>> session.sync_worker_0()
        """
        await self.sync(0)

    async def _sync_worker(self, worker_id: int) -> None:
        await self.sync(worker_id)

    async def _sync_all(self) -> None:
        await self.sync()

    # -------------------------------------------------------------------------- bytes

    async def _agent(self, worker: int) -> Agent:
        """The connection to a worker."""
        if worker == self._leader:
            return self.agent
        if worker not in self._agents:
            addresses = list(self.workers[worker].addresses)
            made = await open_agent(dataclasses.replace(self.agent.settings, agent=addresses))
            if self._agents.setdefault(worker, made) is not made:  # somebody was faster
                await made.close()
        return self._agents[worker]

    async def _put(self, worker: int, register: int, data: dtypes.Data) -> None:
        """Overwrite a worker's tensor."""
        agent, name = await self._agent(worker), self._name(register)
        view = await self._map(worker, agent, name, data.payload.nbytes, True)
        if view is None:
            await agent.upload(data, into=name)
            return
        async with view:
            _check_fits(view.tensor._known(), data)
            dtypes.bytes_of(view.array)[:] = data.payload

    async def _map(
        self, worker: int, agent: Agent, name: str, nbytes: int, writable: bool
    ) -> View | None:
        """The memory of a tensor that is worth it, where the worker is on this host; else None."""
        if nbytes < SHARE_BYTES_MIN or worker in self._far:
            return None
        try:
            return await agent.share(name, writable, copy=False)
        except errors.TuttiError as error:
            if not _memory.helps_copy(error):
                raise
            if error.reason not in ("CANNOT_SHARE", "SHARE_LIMIT"):  # of this tensor, or for now
                self._far.add(worker)
            return None

    async def _place(self, parts: list[tuple[int, dtypes.Data]]) -> DRef:
        """A new register, with an array for each of some workers."""
        data, workers = parts[0][1], [worker for worker, _ in parts]
        fields = self._spec(data.array.shape, data.name)
        ref = await self._make("empty", workers=workers, **fields)
        try:
            await self._drive.ask("flush", workers=workers)
            for worker, part in parts:
                await self._put(worker, ref.reg_id, part)
        except errors.TuttiError:
            self._drive.tell(ref._command)  # what went wrong first
            raise
        return ref

    async def _set(self, ref: DRef, worker: int, value: Any) -> None:
        """Set a register of one worker."""
        register = register_of(self, ref)
        if isinstance(value, list) or dtypes.is_torch(value) or hasattr(value, "__dlpack__"):
            await self._set_array(ref, register, worker, dtypes.data_of(value))
            return
        fields = {"into": register, "value": values.to_wire(value), "workers": [worker]}
        await self._drive.ask("set", **fields)

    async def _set_array(self, ref: DRef, register: int, worker: int, data: dtypes.Data) -> None:
        if await self._holds_like(register, worker, data):
            await self._put(worker, register, data)
            return
        # A new tensor would be null on the others; a copy leaves theirs alone.
        made = await self._place([(worker, data)])
        await self._drive.ask("copy", src=made.reg_id, into=register, workers=[worker])

    async def _holds_like(self, register: int, worker: int, data: dtypes.Data) -> bool:
        """Has the worker a tensor there that the array can overwrite?"""
        try:
            response = await self._drive.ask("get", src=register, workers=[worker])
        except errors.TuttiError as error:
            if error.reason == "BAD_WORKER" or self._drive.over is not None:
                raise
            return False
        kind = dtypes.kind_of(response.values[0].value.spec) if response.values else None
        return kind is not None and (kind.name, kind.nbytes) == (data.name, data.payload.nbytes)

    async def _read(self, ref: DRef, workers: list[int]) -> list[Any]:
        """What workers have in a register; none = all."""
        register = register_of(self, ref)
        try:
            response = await self._drive.ask("get", src=register, workers=workers)
        except errors.TuttiError:
            self._drive.forget(ref._command)
            raise
        self._drive.tell(ref._command, workers)
        return [await self._value(one.worker, one.value) for one in response.values]

    async def _value(self, worker: int, value: Any) -> Any:
        if value.WhichOneof("kind") != "tensor":
            return values.of_wire(value)
        agent, kind = await self._agent(worker), dtypes.kind_of(value.spec)
        view = await self._map(worker, agent, value.tensor, kind.nbytes if kind else 0, False)
        if view is None:
            return await Tensor(agent, value.tensor, kind).numpy()
        async with view:
            return view.array.copy()

    # -------------------------------------------------------------------------- the end

    async def shutdown(self) -> None:
        """End the session: what was commanded ends first, for 10 s at most; then its registers are
        free on all workers. Errors that nobody was told are lost: sync() before tells them.

        Returns: None. Calls after it raise NOT_FOUND NO_GROUP; shutdown() again is fine.
        Raises: nothing.
        Example:
            >>> session.shutdown()
        """
        lingers = bool(self._secret) and self._drive.over is None
        await self._drive.close(_over(), gently=True)
        if lingers:
            await self._resume_to_end()
        await self._close(gently=True)

    async def detach(self) -> str:
        """Leave a session that lingers: it stays for --session-linger, for who has its ticket.

        Returns: the ticket, for session(resume=...).
        Raises: TuttiError FAILED_PRECONDITION NO_SESSION: it was opened without linger=True.
        Example:
            >>> ticket = session.detach()
            >>> session = tutti.session(resume=ticket)
        """
        self._drive.check()
        if not self._secret:
            text = "the session does not linger: open it with linger=True"
            raise errors.make(StatusCode.FAILED_PRECONDITION, text, "NO_SESSION")
        ticket = self.ticket
        await self._close(gently=True)
        return ticket

    async def _resume_to_end(self) -> None:
        """A session lingers if the stream that had it last said so: this one does not."""
        drive = Drive(self.agent.line)
        with contextlib.suppress(errors.TuttiError):  # it ends then when its time is over
            await drive.open(resume=self.id, secret=self._secret)
        await drive.close(_over(), gently=True)

    async def _close(self, gently: bool) -> None:
        servers, self._servers = self._servers, None
        try:
            await self._drive.close(_over(), gently)
            for agent in self._agents.values():
                await agent.close()
            self._agents = {}
            if self._owned:
                await self.agent.close()
        finally:
            if servers is not None:
                await servers.stop()

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            await self._close(gently=False)
            return
        try:
            if self._drive.over is None:
                await self.sync()
        finally:
            await self.shutdown()


def _linger(linger: bool | float) -> dict[str, Any]:
    """Fields of DriveOpen: a time is at least a millisecond, since 0 is --session-linger."""
    if isinstance(linger, bool):
        return {"linger": linger}
    if not 0 < linger < 2**32 / 1000:
        text = "linger is %r: give seconds, True for the agents' --session-linger, or False"
        raise errors.invalid("LINGER_LIMIT", text % linger)
    return {"linger": True, "linger_ms": max(1, round(linger * 1000))}


async def session(
    agent: Agent | str | Sequence[str] | None = None,
    group: str = "world",
    num_groups: int = 1,
    linger: bool | float = False,
    resume: str | None = None,
    **how: "Unpack[ConnectArguments]",
) -> Session:
    """Open a session: this program drives all agents of a group, its workers.

    agent       who leads: a connection, or what connect() takes: addresses, None = $TUTTI_AGENT. It
                must be in the group
    group       its ranks are the workers, numbered by their group ranks
    num_groups  blocks of consecutive workers, for commands with in_group; divides their number
    linger      keep the session when this program ends or loses its connection, for who has
                Session.ticket: for so many seconds, at most the agents' --session-linger; True =
                for --session-linger
    resume      such a ticket: go on with this session; group and num_groups are then its own
    how         of connect()

    Returns: the session; shut it down, or use it in a `with` block.
    Raises: as connect(); TuttiError NO_GROUP, GROUP_SIZE, NOT_IN_GROUP, RANK, SESSION_LIMIT,
        RANK_LOST, UNREACHABLE, LINGER_LIMIT; of a resume NO_SESSION, BAD_SECRET.
    Example:
        >>> with tutti.session("127.0.0.1:7001") as session:
        ...     x = session.scatter(np.arange(4.0).reshape(2, 2))
        ...     session.allreduce(x).debug_get_from_remote(0)
        array([2., 4.])
    """
    owned = not isinstance(agent, Agent)
    leader = await connect(agent, **how) if owned else agent  # type: ignore[arg-type]
    made = Session(cast(Agent, leader), owned, group)
    try:
        await made._begin(num_groups, linger, resume)
    except BaseException:
        await made._close(gently=False)
        raise
    return made
