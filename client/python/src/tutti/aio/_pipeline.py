"""Many calls through one stream, without waiting for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import _wire, dtypes, errors
from ..status import StatusCode
from ._collectives import Collectives
from ._infer import Synced, synced
from ._pairs import Pairs
from ._tensor import INLINE_BYTES_MAX, Tensor, copy_request, handle_of, tensor_of
from ._waits import Lock
from ._types import (
    AllToAllArguments,
    Array,
    BroadcastArguments,
    DtypeLike,
    GroupLike,
    Input,
    NumpyArray,
    OpArguments,
    PartsArguments,
    RecvArguments,
    ReduceArguments,
    ReduceScatterArguments,
    Result,
    RootedPartsArguments,
    RootedReduceArguments,
    ScatterArguments,
    SendArguments,
    TensorLike,
)
from ._work import Received, Work, as_ms

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._agent import Agent


def _members() -> dict[str, str]:
    """The field of RunRequest for each request, by the request's name."""
    command = _wire.message("tutti.v1.RunRequest").DESCRIPTOR.oneofs_by_name["command"]
    return {field.message_type.full_name: field.name for field in command.fields}


_MEMBERS = _members()


class Reply:
    """A submitted call. wait() gives what the call of the same name of an Agent gives."""

    def __init__(self, pipeline: "Pipeline", number: int, read: Callable[[Any], Any]) -> None:
        self.id = number
        self._pipeline = pipeline
        self._read = read
        self._error: errors.TuttiError | None = None
        self._result: Any = None
        self.done = False

    def __repr__(self) -> str:
        return "<Reply %d%s>" % (self.id, " done" if self.done else "")

    def _settle(self, response: Any, error: errors.TuttiError | None) -> None:
        self.done = True
        try:
            self._result = None if error is not None else self._read(response)
        except errors.TuttiError as unreadable:
            error = unreadable
        self._error = error

    async def wait(
        self,
    ) -> "Result | Received | Tensor | Work | Synced | Sequence[Tensor] | None":
        """Wait for the call. Waiting again is fine.

        Returns: what the call outside of a pipeline gives.
        Raises: TuttiError: the call's error; SKIPPED: an earlier call failed, with stop_on_error;
            CONNECTION_LOST: the stream broke, and the call may have been done or not.
        Example:
            >>> with agent.pipeline() as calls:
            ...     calls.all_reduce(np.ones(2)).wait()
            array([2., 2.])
        """
        await self._pipeline._read_until(lambda: self.done)
        if self._error is not None:
            raise self._error
        return cast(
            "Result | Received | Tensor | Work | Synced | Sequence[Tensor] | None", self._result
        )


class _Ops(Collectives, Pairs):
    """The ops of an Agent, which give Replies here; what they ask else is the agent's."""

    def __init__(self, pipeline: "Pipeline") -> None:
        self._pipeline = pipeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline.agent, name)


class Pipeline:
    """A stream of calls to an agent, begun in exactly the order in which they are submitted and
    answered as they end. A small op costs a fraction of a call of its own, and ops overlap.

    Each call returns a Reply at once, but for `in_flight_max` of them that are not answered: then it
    waits for answers. Arrays are of at most 3 MiB, and so are results. A call that fails does not end
    the pipeline. The end of a `with` block waits for all calls.

    One thread or task at a time uses it. In asyncio a wait() that is cancelled ends the stream.
    """

    def __init__(self, agent: "Agent", stream: Any, in_flight_max: int, stop: bool) -> None:
        self.agent = agent
        self._stream = stream
        self._max = in_flight_max
        self._options: Any = _wire.new("RunOptions", stop_on_error=stop, in_flight_max=in_flight_max)
        self._ops = _Ops(self)
        self._waiting: dict[int, Reply] = {}
        self._count = 0
        self._over: errors.TuttiError | None = None
        self._reading = Lock()

    def __repr__(self) -> str:
        return "<Pipeline to %s, %d unanswered>" % (self.agent.line.address, len(self._waiting))

    # -------------------------------------------------------------------------- the stream

    async def _submit(self, request: Any, read: Callable[[Any], Any]) -> Reply:
        await self._read_until(lambda: len(self._waiting) < self._max)
        if self._over is not None:
            raise self._over
        message, payload = request, memoryview(b"")
        if isinstance(request, _wire.Framed):
            message, payload = request
        self._count += 1
        run = _wire.new("RunRequest", id=self._count)
        member = getattr(run, _MEMBERS[message.DESCRIPTOR.full_name])
        member.CopyFrom(message)
        member.SetInParent()
        if self._options is not None:
            run.options.CopyFrom(self._options)
            self._options = None
        reply = Reply(self, self._count, read)
        self._waiting[reply.id] = reply
        await self._stream.send(_wire.Framed(run, payload) if payload.nbytes else run)
        return reply

    async def _read_until(self, done: Callable[[], bool]) -> None:
        """One answer after the other; others may read in between."""
        while not done() and self._over is None:
            async with self._reading:
                if not done() and self._over is None:
                    await self._read_one()

    async def _read_one(self) -> None:
        try:
            said = await self._stream.receive()
        except errors.TuttiError as error:
            self._end(error)
            return
        if said is None:
            text = "the pipeline to %s is closed" % self.agent.line.address
            self._end(errors.make(StatusCode.FAILED_PRECONDITION, text, "CLOSED"))
            return
        reply = self._waiting.pop(said.id, None)
        kind = said.WhichOneof("result")
        if reply is None or kind is None:
            self._stream.cancel()
            self._end(errors.lost("an answer to call %d, which nobody made" % said.id))
        elif kind == "error":
            reply._settle(None, errors.from_value(said.error))
        else:
            response = getattr(said, kind)
            if "payload" in response.DESCRIPTOR.fields_by_name:
                response.payload = said.payload
            reply._settle(response, None)

    def _end(self, error: errors.TuttiError) -> None:
        self._over = error
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            reply._settle(None, error)

    async def close(self) -> None:
        """Wait for all calls, and end the stream. Their errors are told by their replies alone.

        Returns: None.
        Raises: TuttiError CONNECTION_LOST: the stream broke before all were answered.
        Example:
            >>> calls = agent.pipeline()
            >>> calls.close()
        """
        if self._over is None:
            await self._stream.finish()
            await self._read_until(lambda: False)
        if self._over is not None and self._over.reason != "CLOSED":
            raise self._over

    def cancel(self) -> None:
        """Give up: calls that have not begun never will, those that run are cancelled on all ranks.

        Returns: None.
        Raises: nothing.
        Example:
            >>> calls.cancel()
        """
        self._stream.cancel()

    async def __aenter__(self) -> "Pipeline":
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self.cancel()
            return
        await self.close()

    # -------------------------------------------------------------------------- ops

    async def _run(self, name: str, *given: Any, **how: Any) -> Reply:
        found = await getattr(self._ops, name)(*given, **how)
        return cast(Reply, found)

    async def all_reduce(
        self, x: Input, op: str = "sum", **how: Unpack[ReduceArguments]
    ) -> Reply:
        """Submit Agent.all_reduce().

        Returns: a Reply; its wait() gives what Agent.all_reduce() gives.
        Raises: TuttiError INLINE_LIMIT: arrays of more than 3 MiB; BAD_REDUCE_OP.
        Example:
            >>> reply = calls.all_reduce(x, out=x)
        """
        return await self._run("all_reduce", x, op, **how)

    async def reduce(
        self, x: Input, op: str = "sum", root: int = 0, **how: Unpack[RootedReduceArguments]
    ) -> Reply:
        """Submit Agent.reduce().

        Returns: a Reply; its wait() gives what Agent.reduce() gives.
        Raises: as all_reduce().
        Example:
            >>> reply = calls.reduce(x, root=1)
        """
        return await self._run("reduce", x, op, root, **how)

    async def reduce_scatter(
        self, x: Input, op: str = "sum", **how: Unpack[ReduceScatterArguments]
    ) -> Reply:
        """Submit Agent.reduce_scatter().

        Returns: a Reply; its wait() gives what Agent.reduce_scatter() gives.
        Raises: as all_reduce().
        Example:
            >>> reply = calls.reduce_scatter(x)
        """
        return await self._run("reduce_scatter", x, op, **how)

    async def broadcast(
        self, x: Input | None = None, root: int = 0, **how: Unpack[BroadcastArguments]
    ) -> Reply:
        """Submit Agent.broadcast().

        Returns: a Reply; its wait() gives what Agent.broadcast() gives.
        Raises: TuttiError INLINE_LIMIT: arrays of more than 3 MiB.
        Example:
            >>> reply = calls.broadcast(x if agent.rank == 0 else None)
        """
        return await self._run("broadcast", x, root, **how)

    async def scatter(
        self, x: Input | None = None, root: int = 0, **how: Unpack[ScatterArguments]
    ) -> Reply:
        """Submit Agent.scatter(). Who receives gives no array: a Tensor comes.

        Returns: a Reply; its wait() gives what Agent.scatter() gives.
        Raises: as broadcast().
        Example:
            >>> reply = calls.scatter(x if agent.rank == 0 else None)
        """
        return await self._run("scatter", x, root, **how)

    async def gather(
        self, x: Input, root: int = 0, **how: Unpack[RootedPartsArguments]
    ) -> Reply:
        """Submit Agent.gather().

        Returns: a Reply; its wait() gives what Agent.gather() gives.
        Raises: as broadcast().
        Example:
            >>> reply = calls.gather(x, root=1)
        """
        return await self._run("gather", x, root, **how)

    async def all_gather(self, x: Input, **how: Unpack[PartsArguments]) -> Reply:
        """Submit Agent.all_gather().

        Returns: a Reply; its wait() gives what Agent.all_gather() gives.
        Raises: as broadcast().
        Example:
            >>> reply = calls.all_gather(x)
        """
        return await self._run("all_gather", x, **how)

    async def all_to_all(self, x: Input, **how: Unpack[AllToAllArguments]) -> Reply:
        """Submit Agent.all_to_all().

        Returns: a Reply; its wait() gives what Agent.all_to_all() gives.
        Raises: as broadcast().
        Example:
            >>> reply = calls.all_to_all(x)
        """
        return await self._run("all_to_all", x, **how)

    async def permute(
        self, x: Input, src_dst: Sequence[int], **how: Unpack[OpArguments]
    ) -> Reply:
        """Submit Agent.permute().

        Returns: a Reply; its wait() gives what Agent.permute() gives.
        Raises: as broadcast().
        Example:
            >>> reply = calls.permute(x, [1, 0])
        """
        return await self._run("permute", x, src_dst, **how)

    async def barrier(
        self,
        *,
        group: GroupLike = None,
        monitored: bool = False,
        timeout: float | None = None,
    ) -> Reply:
        """Submit Agent.barrier().

        Returns: a Reply; its wait() gives None.
        Raises: TuttiError CONNECTION_LOST: the stream has ended.
        Example:
            >>> reply = calls.barrier()
        """
        return await self._run("barrier", group=group, monitored=monitored, timeout=timeout)

    async def send(
        self, x: TensorLike, destination: int | None = None, **how: Unpack[SendArguments]
    ) -> Reply:
        """Submit Agent.send().

        Returns: a Reply; its wait() gives None.
        Raises: TuttiError INLINE_LIMIT: an array of more than 3 MiB.
        Example:
            >>> reply = calls.send(x, 1, tag=7)
        """
        return await self._run("send", x, destination, **how)

    async def recv(self, source: int | None = None, **how: Unpack[RecvArguments]) -> Reply:
        """Submit Agent.recv(), with `dtype` and `shape` for an array, or `keep` for a Tensor.

        Returns: a Reply; its wait() gives a Received.
        Raises: TuttiError INLINE_LIMIT: an array of more than 3 MiB, or of unknown size.
        Example:
            >>> reply = calls.recv(0, tag=7, keep=True)
        """
        return await self._run("recv", source, **how)

    # -------------------------------------------------------------------------- tensors

    async def put(
        self,
        array: Array,
        name: str = "",
        dtype: str | None = None,
        device: str = "",
        into: "Tensor | str | None" = None,
    ) -> Reply:
        """Submit Agent.put(). Later calls may use the tensor by its name before it is answered.

        into  instead of a new tensor: one of the same dtype and number of elements

        Returns: a Reply; its wait() gives the Tensor.
        Raises: TuttiError INLINE_LIMIT: an array of more than 3 MiB; BAD_DTYPE.
        Example:
            >>> calls.put(np.ones(4), name="x")
            >>> calls.all_reduce("x", out="x")
        """
        data = dtypes.data_of(array, dtype)
        if data.payload.nbytes > INLINE_BYTES_MAX:
            text = "%d bytes in a pipeline, at most %d: use put() of the agent"
            raise errors.invalid("INLINE_LIMIT", text % (data.payload.nbytes, INLINE_BYTES_MAX))
        request = _wire.new("PutRequest", spec=data.spec, name=name, device=device)
        if into is not None:
            request.into = handle_of(into)
        return await self._submit(_wire.Framed(request, data.payload), self._tensor)

    def _tensor(self, said: Any) -> Tensor:
        return tensor_of(self.agent, said.tensor)

    async def create(
        self,
        shape: Sequence[int],
        dtype: DtypeLike = "FP32",
        name: str = "",
        device: str = "",
    ) -> Reply:
        """Submit Agent.create().

        Returns: a Reply; its wait() gives the Tensor.
        Raises: TuttiError BAD_DTYPE.
        Example:
            >>> reply = calls.create((2, 3), name="x")
        """
        spec = dtypes.spec(dtypes.name_of(dtype), shape)
        request = _wire.new("CreateRequest", spec=spec, name=name, device=device)
        return await self._submit(request, self._tensor)

    async def get(self, tensor: "Tensor | str") -> Reply:
        """Submit Tensor.numpy(), of a tensor of at most 3 MiB.

        Returns: a Reply; its wait() gives a numpy array.
        Raises: TuttiError CONNECTION_LOST: the stream has ended.
        Example:
            >>> reply = calls.get("x")
        """

        def read(said: Any) -> NumpyArray:
            kind = dtypes.kind_of(said.tensor.spec)
            if kind is None:
                raise errors.lost("a tensor of dtype %d" % said.tensor.spec.dtype)
            return cast(NumpyArray, dtypes.array_of(kind, said.payload))

        return await self._submit(_wire.new("GetRequest", handle=handle_of(tensor)), read)

    async def copy(
        self,
        tensor: "Tensor | str",
        name: str = "",
        into: "Tensor | str | None" = None,
        device: str = "",
        *,
        offset: int = 0,
        count: int = 0,
        into_offset: int = 0,
        shape: Sequence[int] = (),
    ) -> Reply:
        """Submit Tensor.copy(); arguments as it has them.

        Returns: a Reply; its wait() gives the copy.
        Raises: TuttiError CONNECTION_LOST: the stream has ended.
        Example:
            >>> reply = calls.copy("x", name="backup")
        """
        part = (offset, count, into_offset, shape)
        return await self._submit(copy_request(tensor, name, into, device, part), self._tensor)

    async def delete(self, *tensors: "Tensor | str") -> Reply:
        """Submit Agent.delete(). Ops that were submitted before still use the memory.

        Returns: a Reply; its wait() gives None.
        Raises: TuttiError CONNECTION_LOST: the stream has ended.
        Example:
            >>> reply = calls.delete("x")
        """
        request = _wire.new("DeleteRequest", handles=[handle_of(one) for one in tensors])
        return await self._submit(request, lambda said: None)

    async def sync(self, group: GroupLike = None, timeout: float | None = None) -> Reply:
        """Submit Agent.sync(): answered when all ops that the agent had before have ended.

        Returns: a Reply; its wait() gives a Synced.
        Raises: TuttiError CONNECTION_LOST: the stream has ended.
        Example:
            >>> calls.sync().wait().failed
            0
        """
        name = (await self.agent._group_and_timeout(group))[0]
        request = _wire.new("SyncRequest", group=name, timeout_ms=as_ms(timeout))
        return await self._submit(request, synced)


class Pipelines:
    """The part of an Agent that opens streams of calls."""

    line: Any

    async def pipeline(self, in_flight_max: int = 0, stop_on_error: bool = False) -> Pipeline:
        """Open a stream for many calls, that need not be waited for one by one.

        in_flight_max  how many calls may be unanswered; 0, and more than the agent's --commands-max,
                       mean that
        stop_on_error  begin each call when the one before it has ended well, and skip those behind one
                       that failed

        Returns: the Pipeline; the end of a `with` block waits for all calls.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> with agent.pipeline() as calls:
            ...     replies = [calls.all_reduce(np.full(2, i)) for i in range(3)]
            >>> [reply.wait()[0] for reply in replies]
            [0, 2, 4]
        """
        agent = cast("Agent", self)
        most = agent.info.commands_max or 256
        limit = min(in_flight_max, most) if in_flight_max else most
        stream = await self.line.stream("Commands.Run", await agent._lease())
        return Pipeline(agent, stream, limit, stop_on_error)
