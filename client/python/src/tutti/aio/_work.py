"""Ops that were started asynchronously."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .. import _wire, dtypes, errors
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._agent import Agent
    from ._call import Call
    from ._tracers import Gradients
    from ._types import NumpyArray, Result


MS_MAX = 2**32 - 1  # 49 days


def as_ms(timeout: float | None) -> int:
    """A timeout in milliseconds, as the wire has it; 0 = no timeout."""
    if timeout is None:
        return 0
    if not isinstance(timeout, numbers.Real) or not timeout >= 0:  # nan, too
        raise errors.invalid("BAD_TIMEOUT", "timeout is %.60r, need a number of seconds, 0 or more" % (timeout,))
    return max(1, int(min(timeout * 1000, MS_MAX)))


class Received(NamedTuple):
    """The result of recv().

    tensor         an array; a Tensor where recv() was to keep it, or where `out` is one
    source         who sent it, a group rank; source_global: a rank of the job
    meta           what came with it
    """

    tensor: "Tensor | NumpyArray"
    source: int
    source_global: int
    meta: bytes = b""

    @classmethod
    def of(cls, tensor: Any, said: Any) -> "Received":
        """The Received of a RecvResponse or a WorkStatus."""
        return cls(tensor, said.source, said.source_global, bytes(said.user_meta))


class Work:
    """An op that runs in the agent.

    tensor   what it will make, where that is known at once: other calls may use it already; a list
             where the op makes one
    meta     of a finished op: the bytes that came with its tensor
    source   of a finished recv: who sent it, as a group rank
    elapsed  of a finished op: seconds from its arrival at the agent to its end
    """

    def __init__(self, agent: "Agent", work: str, tensor: Any) -> None:
        self.agent = agent
        self.id = work
        self.tensor = tensor
        self.source: int | None = None
        self.meta = b""
        self.elapsed: float | None = None
        self._call: "Call | None" = None
        self._staged: "Staged | None" = None
        self._gradients: "dict[str, Tensor | None] | None" = None  # of a backward()
        self._ended = False
        self._result: Any = None

    def __repr__(self) -> str:
        return "<Work %s%s>" % (self.id, " ended" if self._ended else "")

    async def wait(self, timeout: float | None = None) -> "Result | Received | Gradients | None":
        """Wait for the op. Waiting again is fine.

        timeout  seconds; None = as long as the op takes

        Returns: what the call without async_ would have given.
        Raises: TuttiError: the op's error; TuttiTimeout: the timeout is up, and the op goes on.
        Example:
            >>> work = agent.all_reduce(np.ones(2), async_=True)
            >>> work.wait()
            array([2., 2.])
        """
        if self._ended:
            return cast("Result | Received | Gradients | None", self._result)
        request = _wire.new("WaitRequest", works=[self.id], timeout_ms=as_ms(timeout))
        response = await self.agent.line.unary("Collectives.Wait", request)
        return cast("Result | Received | Gradients | None", await self._end(response.works[0]))

    async def test(self) -> bool:
        """Has the op ended? Without waiting.

        Returns: True also when it failed: wait() raises its error.
        Raises: TuttiError NO_WORK: the agent does not know it.
        Example:
            >>> work.test()
            False
        """
        if self._ended:
            return True
        request = _wire.new("TestRequest", works=[self.id])
        response = await self.agent.line.unary("Collectives.Test", request)
        return bool(response.works[0].done)

    async def cancel(self) -> bool:
        """End the op on all ranks, if it still runs: wait() raises CALLER_GONE then, there too. The op of
        another rank may have succeeded before.

        Returns: False: it had ended before.
        Raises: TuttiError NO_WORK: the agent does not know it.
        Example:
            >>> work = agent.all_reduce(np.ones(2), async_=True)      # on one rank alone
            >>> work.cancel()
            True
        """
        if self._ended:
            return False
        request = _wire.new("CancelRequest", works=[self.id])
        status = (await self.agent.line.unary("Collectives.Cancel", request)).works[0]
        return not status.done or status.error.reason == "CALLER_GONE"

    async def _end_gradients(self, found: "dict[str, Tensor | None]") -> None:
        """The handle of a gradient that nobody had is gone."""
        for name, tensor in found.items():
            if tensor is not None and not await _is_there(tensor):
                found[name] = None

    async def _end(self, status: Any) -> Any:
        from ._call import as_asked, references, tensors_of

        self.source, self.elapsed = status.source, status.elapsed_us / 1e6
        self.meta = bytes(status.user_meta)
        if status.error.code:
            if self._staged is not None:
                await self._staged.clean()
            raise errors.from_value(status.error)
        self._ended = True
        if self._gradients is not None:
            await self._end_gradients(self._gradients)
            self._result = self.tensor
        if self._call is None:
            return self._result
        made = tensors_of(self._call, [ref for ref in references(self._call, status) if ref.handle])
        self.tensor = as_asked(self._call, list(made))
        found = made if self._staged is None else await self._staged.collect(made)
        self._result = as_asked(self._call, list(found))
        if self._call.received:
            self._result = Received.of(self._result, status)
        return self._result


async def _is_there(tensor: Tensor) -> bool:
    try:
        await tensor.refresh()
    except errors.TuttiError as error:
        if error.reason != "NO_TENSOR":
            raise
        return False
    return True


DELETE_MAX = 1024  # in one call


class Staged:
    """The tensors in the agent that hold arrays while an op runs on them."""

    def __init__(self, agent: "Agent", given: Any, out: Any) -> None:
        self.agent = agent
        self.given = given
        self.out = out
        self.made: list[Tensor] = []
        self.uploaded: dict[str, dtypes.Data] = {}

    async def collect(self, results: list[Tensor]) -> list[Any]:
        """The results as arrays; the tensors in the agent are deleted."""
        known = {one.handle for one in self.made}
        self.made += [one for one in results if one.handle not in known]
        try:
            return [await self._array(place, one) for place, one in enumerate(results)]
        finally:
            await self.clean()

    async def _array(self, place: int, result: Tensor) -> Any:
        given, out = pick(self.given, place), pick(self.out, place)
        data = self.uploaded.get(result.handle)
        if data is not None:  # of a broadcast's root: what it gave
            return finish(data.array.copy(), data.name, given, out)
        array = await result.numpy()
        return finish(array, result._known().name, given, out)

    async def clean(self) -> None:
        made, self.made = self.made, []
        try:
            for place in range(0, len(made), DELETE_MAX):
                await self.agent.delete(*made[place : place + DELETE_MAX])
            return
        except errors.TuttiError:
            pass  # one of them is not there: the others by themselves
        for tensor in made:
            try:
                await tensor.delete()
            except errors.TuttiError:
                pass  # its agent is gone, and the tensor with it


def pick(things: Any, place: int) -> Any:
    """The item that belongs to a result: that one of a list, else the only one."""
    if not isinstance(things, (list, tuple)) or not things:
        return None if isinstance(things, (list, tuple)) else things
    return things[place] if place < len(things) else things[0]


def finish(array: Any, name: str, given: Any, out: Any) -> Any:
    """A result's array, in the kind that the caller wants."""
    if out is not None:
        return dtypes.copy_into(out, array, name)
    return dtypes.like(array, name, given)
