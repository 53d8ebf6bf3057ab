"""Gradients of collectives: tracers in the agent, and a tape for numpy arrays."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import _wire, dtypes, errors
from ._ask import DEADLINE_SLACK
from ._tensor import Tensor, handle_of, tensor_of
from ._work import Work, as_ms

if TYPE_CHECKING:
    from ._agent import Agent
    from ._types import Array, NumpyArray, TensorLike


@dataclasses.dataclass(frozen=True)
class TracerInfo:
    """A tracer of an agent. walking: a backward() goes through it."""

    name: str
    op_count: int
    attached_count: int
    walking: bool


class Gradients(Mapping["Tensor | str", "Tensor | None"]):
    """What backward() found: by the tensors that were asked for, or their handles or names.

    None stands for a tensor without a gradient: nobody gave one for what was made of it. Delete the
    tensors when they are not needed any more.
    """

    def __init__(self, found: dict[str, "Tensor | None"]) -> None:
        self._found = found

    def __getitem__(self, tensor: "Tensor | str") -> "Tensor | None":
        return self._found[handle_of(tensor)]

    def __iter__(self) -> "Iterator[str]":
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return "<Gradients %r>" % self._found

    async def delete(self) -> None:
        """Free all of them.

        Returns: None.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> found = tracer.backward({y: dy})
            >>> found.delete()
        """
        for tensor in self._found.values():
            if tensor is not None:
                await tensor.delete()


class Tracer:
    """A tape in the agent: ops on tensors that are attached to it are recorded, and so are ops on
    what they make. backward() goes through it from its end, together with the other ranks.

    Every rank of a group records the same ops, and calls backward(). A rank that receives, or that
    gives a constant, names the tracer at the op: `tracers=[tracer]`. Ops on arrays are recorded
    nowhere: put() them first.

    name  in the agent
    """

    def __init__(self, agent: "Agent", name: str) -> None:
        self.agent = agent
        self.name = name

    def __repr__(self) -> str:
        return "<Tracer %s>" % self.name

    async def attach(self, *tensors: Tensor | str) -> None:
        """Record ops on these tensors from now on, and give their gradients.

        tensors  up to 1024, of floats or complex numbers; attaching again changes nothing

        Returns: None.
        Raises: TuttiError NO_TRACER, NO_TENSOR, DTYPE_UNSUPPORTED, TENSOR_COUNT, TAPE_LIMIT; PENDING:
            the op that makes it has not said its shape.
        Example:
            >>> with agent.put([1.0, 2.0]) as x, agent.tracer() as tracer:
            ...     tracer.attach(x)
        """
        handles = [handle_of(one) for one in tensors]
        request = _wire.new("AttachRequest", tracer=self.name, tensors=handles)
        await self.agent.line.unary("Tracers.Attach", request)

    async def backward(
        self,
        gradients: "Mapping[Tensor, TensorLike] | Mapping[str, TensorLike] | Sequence[tuple[Tensor | str, TensorLike]]" = (),
        wanted: "Sequence[Tensor | str]" = (),
        *,
        keep: bool = False,
        async_: bool = False,
        timeout: float | None = None,
    ) -> "Gradients | Work":
        """Go back through the tape. Every rank that has recorded its ops calls it.

        gradients  of the loss by tensors that are attached or were made by recorded ops: a Tensor or
                   an array of the same dtype and shape for each; pairs, where one has several, which
                   are added. None = this rank has no gradient, and only takes part
        wanted     of which tensors the gradient is wanted; none = of all that were attached
        keep       leave the tape as it is, for another backward(); else it is empty afterwards, and
                   what was attached still is
        async_     return a Work at once; its wait() gives the Gradients

        Returns: the Gradients, new Tensors of the shapes and dtypes of `wanted`.
        Raises: TuttiError NOT_ON_TAPE, TAPE_MISMATCH: ranks have recorded different ops; TAPE_STALE,
            DTYPE_MISMATCH, SHAPE_MISMATCH, GRADIENT_COUNT; and what the ops fail with.
        Example:
            >>> with agent.put([1.0, 2.0]) as x, agent.tracer() as tracer:
            ...     tracer.attach(x)
            ...     with agent.all_reduce(x) as y:
            ...         print(tracer.backward({y: np.ones(2)})[x].numpy())   # of 2 ranks
            [2. 2.]
        """
        pairs: Any = gradients.items() if isinstance(gradients, Mapping) else gradients
        made: list[Tensor] = []
        request = _wire.new("BackwardRequest", tracer=self.name, keep=keep)
        request.wanted.extend([handle_of(one) for one in wanted])
        setattr(request.options, "async", async_)
        request.options.timeout_ms = as_ms(timeout)
        try:
            for tensor, gradient in pairs:
                handle = await self._handle(tensor, gradient, made)
                request.gradients.add(tensor=handle_of(tensor), gradient=handle)
            limit = None if timeout is None else timeout + DEADLINE_SLACK
            lease = await self.agent._lease()
            said = await self.agent.line.unary("Tracers.Backward", request, limit, lease)
        finally:
            for one in made:
                await one.delete()
        return await self._found(said, request, async_)

    async def _handle(self, tensor: Any, gradient: Any, made: list[Tensor]) -> str:
        """Of a gradient: an array goes to the agent for the time of the call."""
        if isinstance(gradient, (Tensor, str)):
            return handle_of(gradient)
        known = tensor if isinstance(tensor, Tensor) else await self.agent.tensor(tensor)
        if known.dtype_name is None:
            await known.refresh()
        data = dtypes.data_of(gradient, known.dtype_name)
        made.append(await self.agent.upload(data, device=await known.device()))
        return made[-1].handle

    async def _found(self, said: Any, request: Any, async_: bool) -> "Gradients | Work":
        found: dict[str, Tensor | None] = {}
        asked = list(request.wanted) or [one.tensor for one in said.gradients]
        for name, one in zip(asked, said.gradients):
            has = one.gradient.handle
            found[name] = tensor_of(self.agent, one.gradient) if has else None
        if not async_:
            return Gradients(found)
        work = Work(self.agent, said.info.work, Gradients(found))
        work._gradients = found
        return work

    async def clear(self) -> None:
        """Forget the recorded ops that have ended; what was attached still is.

        Returns: None.
        Raises: TuttiError NO_TRACER; TRACER_BUSY: a backward() goes through it.
        Example:
            >>> tracer.clear()
        """
        request = _wire.new("ClearTracerRequest", tracer=self.name)
        await self.agent.line.unary("Tracers.ClearTracer", request)

    async def delete(self) -> None:
        """Forget it all. Deleting again is fine.

        Returns: None.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> tracer.delete()
        """
        request = _wire.new("DeleteTracerRequest", tracer=self.name)
        try:
            await self.agent.line.unary("Tracers.DeleteTracer", request)
        except errors.TuttiError as error:
            if error.reason != "NO_TRACER":
                raise

    async def __aenter__(self) -> "Tracer":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.delete()


class Tape:
    """A Tracer for programs that have numpy arrays. What watch() made ends with the `with` block, and
    so does the tape; results of ops are the program's.

    tracer  for ops that name it: `tracers=[tape.tracer]`
    """

    def __init__(self, agent: "Agent", tracer: Tracer) -> None:
        self.agent = agent
        self.tracer = tracer
        self._made: list[Tensor] = []

    def __repr__(self) -> str:
        return "<Tape %s>" % self.tracer.name

    async def watch(self, array: "Array", dtype: str | None = None) -> Tensor:
        """Put an array into the agent, and record ops on it.

        array  of floats or complex numbers; dtype as put() has it

        Returns: the tensor, for ops.
        Raises: as put() and Tracer.attach().
        Example:
            >>> x = tape.watch(np.array([1.0, 2.0]))
        """
        tensor = await self.agent.put(array, dtype=dtype)
        self._made.append(tensor)
        await self.tracer.attach(tensor)
        return tensor

    async def gradient(
        self,
        gradients: "Mapping[Tensor, TensorLike] | Mapping[str, TensorLike] | Sequence[tuple[Tensor | str, TensorLike]]" = (),
        sources: "Sequence[Tensor]" = (),
        *,
        timeout: float | None = None,
    ) -> "list[NumpyArray | None]":
        """Go back through the tape. Every rank calls it.

        gradients  of this rank's loss by results of ops, as Tracer.backward() has them
        sources    of which tensors; none = of all that are watched, in their order

        Returns: an array of the shape and dtype of each source; None = it has no gradient.
        Raises: as Tracer.backward().
        Example:
            >>> with agent.tape() as tape:
            ...     x = tape.watch(np.array([1.0, 2.0]))
            ...     with agent.all_reduce(x) as y:
            ...         print(tape.gradient({y: 2 * y.numpy()}))
            [array([ 8., 16.])]
        """
        asked = list(sources) or self._made
        found = cast(Gradients, await self.tracer.backward(gradients, asked, timeout=timeout))
        try:
            arrays: list[NumpyArray | None] = []
            for one in asked:
                gradient = found[one]
                arrays.append(None if gradient is None else await gradient.numpy())
            return arrays
        finally:
            await found.delete()

    async def close(self) -> None:
        """Forget the tape, and free what watch() made.

        Returns: None.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> tape.close()
        """
        await self.tracer.delete()
        made, self._made = self._made, []
        for tensor in made:
            await tensor.delete()

    async def __aenter__(self) -> "Tape":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class Tracing:
    """The part of an Agent that records ops for their gradients."""

    line: Any

    async def tracer(self, name: str = "") -> Tracer:
        """Make a tracer with an empty tape; it stays until it is deleted.

        name  1 to 127 of letters, digits and . _ / - ; "" = drawn. Where a root gives a traced tensor
              receivers record on their tracer of the same name by themselves

        Returns: the tracer; in a `with` block it ends with the block.
        Raises: TuttiError NAME_TAKEN, BAD_NAME, TRACER_LIMIT.
        Example:
            >>> with agent.tracer("step") as tracer:
            ...     tracer.attach(x)
        """
        name = name or "python/" + secrets.token_hex(8)
        await self.line.unary("Tracers.CreateTracer", _wire.new("CreateTracerRequest", name=name))
        return Tracer(cast("Agent", self), name)

    async def tracers(self) -> list[TracerInfo]:
        """List the agent's tracers.

        Returns: a TracerInfo of each, by name.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> [(one.name, one.op_count) for one in agent.tracers()]
            [('step', 3)]
        """
        said = await self.line.unary("Tracers.ListTracers", _wire.new("ListTracersRequest"))
        return [
            TracerInfo(one.name, one.op_count, one.attached_count, one.walking)
            for one in said.tracers
        ]

    async def tape(self, name: str = "") -> Tape:
        """Make a tape for numpy arrays.

        name  as tracer() has it

        Returns: the tape; use it in a `with` block.
        Raises: as tracer().
        Example:
            >>> with agent.tape() as tape:
            ...     x = tape.watch(np.array([1.0, 2.0]))
        """
        agent = cast("Agent", self)
        return Tape(agent, await self.tracer(name))
