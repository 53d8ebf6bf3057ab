"""Calls that move no data: infer() and sync()."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _wire, dtypes, errors
from ._call import form_number, reduce_number
from ._work import as_ms

if TYPE_CHECKING:
    from ._tracers import Gradients
    from ._types import DtypeLike, GroupLike, Result
    from ._work import Received, Work

OPS = {
    "all_reduce": "AllReduce",
    "reduce": "Reduce",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "scatter": "Scatter",
    "gather": "Gather",
    "all_gather": "AllGather",
    "all_to_all": "AllToAll",
    "permute": "Permute",
}


class Synced(NamedTuple):
    """How many ops were running, how many of them failed, and the first error."""

    waited: int
    failed: int
    error: errors.TuttiError | None


def synced(said: Any) -> Synced:
    """Of a SyncResponse."""
    error = errors.from_value(said.error) if said.failed_count else None
    return Synced(said.waited_count, said.failed_count, error)


class Inference:
    """The part of an Agent that infers results, and waits for all ops."""

    async def infer(
        self,
        name: str,
        shape: Sequence[int],
        dtype: "DtypeLike" = "FP32",
        /,
        *,
        group_size: int = 0,
        group_rank: int = 0,
        **params: "str | int | float | Sequence[int]",
    ) -> dtypes.Kind | list[dtypes.Kind] | None:
        """Ask which result an op would have on such a tensor, without running it.

        name        "all_gather": a method of this class
        group_size  0 = the world size; group_rank: the rank whose result is asked for
        params      as the op takes them: op, root, axis, form, out_shape, ...

        Returns: dtype and shape of the result, a list for an op that makes one; None where this rank
            gets nothing.
        Raises: TuttiError NO_OP, and what the op would raise.
        Example:
            >>> agent.infer("all_gather", [2, 3], "FP32", group_size=4)
            Kind(name='FP32', shape=(8, 3))
        """
        agent: Any = self
        known: dict[str, Any] = dict(params)
        if name not in OPS:
            raise errors.invalid("NO_OP", "no op %s, need one of %s" % (name, ", ".join(OPS)))
        if name in ("all_reduce", "reduce", "reduce_scatter"):
            known["reduce_op"] = reduce_number(known.pop("op", "sum"))
        if "form" in known:
            known["form"] = form_number(known["form"])
        argument = _wire.new("TensorArg", inline_tensor=dtypes.spec(dtypes.name_of(dtype), shape))
        inner = _wire.new(OPS[name] + "Request", input=argument, **known)
        request = _wire.new(
            "InferRequest", group_size=group_size, group_rank=group_rank, **{name: inner}
        )
        said = await agent.line.unary("Collectives.Infer", request)
        if said.results:
            kinds = [dtypes.kind_of(one) for one in said.results]
            return [one for one in kinds if one is not None]
        return dtypes.kind_of(said.result) if said.HasField("result") else None

    async def sync(
        self, group: "GroupLike" = None, timeout: float | None = None
    ) -> Synced:
        """Wait until all ops that the agent was given before have ended, also other clients'.

        group    only ops of this one; None = all
        timeout  seconds; None = as long as they take

        Returns: how many were running, how many of them failed, and the first error.
        Raises: TuttiTimeout: the timeout is up.
        Example:
            >>> agent.sync(timeout=60).failed
            0
        """
        agent: Any = self
        name = (await agent._group_and_timeout(group))[0]
        request = _wire.new("SyncRequest", group=name, timeout_ms=as_ms(timeout))
        return synced(await agent.line.unary("Collectives.Sync", request))

    async def wait(
        self, works: "Sequence[Work]", timeout: float | None = None
    ) -> "list[Result | Received | Gradients | None]":
        """Wait for several async ops in one call.

        works    up to 1024 of this agent
        timeout  seconds; None = as long as they take

        Returns: what the wait() of each gives, in their order.
        Raises: TuttiError: the first error of an op, when all have ended; TuttiTimeout: the timeout is
            up, and the ops go on.
        Example:
            >>> works = [agent.all_reduce(np.full(2, i), async_=True) for i in range(3)]
            >>> [one[0] for one in agent.wait(works)]
            [0, 2, 4]
        """
        agent: Any = self
        asked = [one for one in works if not one._ended]
        if asked:
            ids = [one.id for one in asked]
            request = _wire.new("WaitRequest", works=ids, timeout_ms=as_ms(timeout))
            said = await agent.line.unary("Collectives.Wait", request)
            failures = []
            for one, status in zip(asked, said.works):
                try:
                    await one._end(status)
                except errors.TuttiError as error:
                    failures.append(error)
            if failures:
                raise failures[0]
        return [await one.wait() for one in works]
