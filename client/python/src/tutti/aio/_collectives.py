"""Collectives: the ops that all ranks of a group call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from .. import dtypes, errors
from ._types import (
    AllToAllArguments,
    BroadcastArguments,
    Input,
    OpArguments,
    PartsArguments,
    ReduceArguments,
    ReduceScatterArguments,
    Result,
    RootedPartsArguments,
    RootedReduceArguments,
    ScatterArguments,
    X,
)
from ._call import (
    How,
    begin,
    form_number,
    gives_list,
    is_array,
    is_list,
    parts_fields,
    receive,
    receive_inline,
    reduce_number,
    refuse,
    root_fields,
    run,
    say_results,
    size_of,
)
from ._fast import NO
from ._tensor import INLINE_BYTES_MAX
from ._work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._agent import Agent
    from ._tracers import Tracer
    from ._types import GroupLike


def _as_promised(made: Any, x: Any) -> Any:
    """What came, if it is what the receiver has said."""
    got, said = dtypes.data_of(made), dtypes.data_of(x)
    if got.name != said.name:
        raise errors.invalid("DTYPE_MISMATCH", "the root gave %s, this rank said %s" % (got.name, said.name))
    if got.payload.nbytes != said.payload.nbytes:
        text = "the root gave %d bytes, this rank's array has %d: give one of the root's shape, or None"
        raise errors.invalid("SIZE_MISMATCH", text % (got.payload.nbytes, said.payload.nbytes))
    return made


class Collectives:
    """The part of an Agent that runs ops. Every rank of the group calls the same.

    x         what this rank gives: a Tensor, a handle or name, or an array (numpy, torch, DLPack,
              lists of numbers). The result is of the same kind: an array for an array. A list of
              Tensors or of arrays, of any shapes and dtypes, is as many ops in one, and gives a list
    group     a Group, its name, or what says which ranks: a list of ranks of the job, in the order of
              the group; lists of ranks, of which ours is taken; a Mesh of one dimension, (mesh, "dim"),
              (mesh, 0). Groups of lists are made at first use and kept. None = the world
    out       where the result goes, a Tensor or an array; out = x is in place
    async_    return a Work at once; its wait() gives the result
    timeout   seconds from the arrival at the agent after which the op fails on all ranks; None = the
              group's, if it has one, else the agent's --op-timeout
    sequence  the number that the op must get in its group; 0 = the next
    step      your own count, such as a training step: ranks that are at another are refused with
              OP_MISMATCH. Give it where you call again what has failed: it may have succeeded on other
              ranks, which are at their next step then. 0 = none
    token     for calling again when an answer was lost: a random number (secrets.randbits(64)), drawn
              anew for each op; the agent gives the answer of the first call for --retry-window, and
              ABORTED TOKEN_IN_FLIGHT while that runs. 0 = none
    root      a group rank; or root_global, a rank of the job
    tracers   record the op on these Tracers too: where a rank receives, or gives a constant
    no_grad   record it on no Tracer; local_grad: gradients go back through this rank's part alone
    events    (after, done): numbers of share_events(), 0 = none. On the GPU the op begins when that one
              comes to the first, and records the second behind it: an op that is async_ then gives its
              Work when all ranks have called it. For Tensors on that GPU

    Every op raises TuttiError on every rank when one of them cannot take part: INVALID_ARGUMENT with
    SHAPE_MISMATCH, DTYPE_MISMATCH; FAILED_PRECONDITION OP_MISMATCH (the text names the rank and what
    it called); UNAVAILABLE RANK_LOST; and TuttiTimeout TIMEOUT, which names who had not come. See
    docs/errors.md. In the examples each of two ranks calls what stands there.
    """

    _fast: Any = None  # of an Agent: the ops that need no message made here

    async def _run_fast(self, method: str, x: Any, how: How, *more: Any) -> Any:
        """The result, if this op can go without a message made here; else NO."""
        if self._fast is None or any(how.events):
            return NO
        return await self._fast.run(method, x, how, *more)

    def _roots(self, how: How, root: int, root_global: int | None) -> bool | None:
        """Is this rank the root? None: that cannot be said here."""
        agent = cast("Agent", self)
        if self._fast is None or root_global is not None or how.group not in (None, "", "world"):
            return None
        if type(root) is not int or not 0 <= root < agent.world_size or agent.info.elastic:
            return None
        return agent.rank == root

    def _cut(self, x: Any, how: How, joined: bool, *as_usual: bool) -> float:
        """How many times larger than x the result is, of an op on the world that joins or cuts dimension
        0; 0 = that cannot be said here."""
        agent = cast("Agent", self)
        simple = all(as_usual) and how.group in (None, "", "world")
        if self._fast is None or not simple or agent.info.elastic or agent.world_size == 1:
            return 0
        shape = getattr(x, "shape", ())
        if not shape or not (joined or shape[0] % agent.world_size == 0):
            return 0
        return agent.world_size if joined else 1 / agent.world_size

    async def _is_root(self, group: Any, root: int, root_global: int | None) -> bool:
        agent = cast("Agent", self)
        if root_global is not None:
            return agent.rank == root_global
        if group in (None, "", "world"):
            if not agent.info.elastic:
                return agent.rank == root
            group = "world"
        return bool(await agent.get_rank(group) == root)

    async def _begin(self, method: str, how: How, many: bool = False, **fields: Any) -> Any:
        return await begin(cast("Agent", self), method, how, many, **fields)

    # -------------------------------------------------------------------------- reductions

    @overload
    async def all_reduce(
        self, x: Input, op: str = ..., *, async_: Literal[True], **how: Unpack[ReduceArguments]
    ) -> Work: ...
    @overload
    async def all_reduce(
        self, x: X, op: str = ..., *, async_: Literal[False] = ..., **how: Unpack[ReduceArguments]
    ) -> X: ...
    @overload
    async def all_reduce(
        self, x: Input, op: str = ..., *, async_: bool = ..., **how: Unpack[ReduceArguments]
    ) -> "Result | Work": ...
    async def all_reduce(
        self,
        x: Input,
        op: str = "sum",
        *,
        factor: float | None = None,
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work":
        """Every rank gets the reduction of all inputs.

        x       any shape, the same on all ranks
        op      sum, prod, min, max, avg (or mean), band, bor, bxor, premul_sum
        factor  of premul_sum

        Returns: the shape and dtype of x.
        Raises: TuttiError BAD_REDUCE_OP, DTYPE_UNSUPPORTED: `op` is unknown, or has no meaning on the
            dtype; and what every op raises.
        Example:
            >>> agent.all_reduce(np.array([1.0, agent.rank]), "avg")
            array([1. , 0.5])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        found = await self._run_fast("AllReduce", x, how, op, factor)
        if found is not NO:
            return cast("Result | Work", found)
        call = await self._begin("AllReduce", how, reduce_op=reduce_number(op), factor=factor)
        return cast("Result | Work", await run(call, x))

    @overload
    async def reduce(
        self, x: Input, op: str = ..., root: int = ..., *, async_: Literal[True], **how: Unpack[RootedReduceArguments]
    ) -> Work: ...
    @overload
    async def reduce(
        self, x: X, op: str = ..., root: int = ..., *, async_: Literal[False] = ..., **how: Unpack[RootedReduceArguments]
    ) -> X | None: ...
    @overload
    async def reduce(
        self, x: Input, op: str = ..., root: int = ..., *, async_: bool = ..., **how: Unpack[RootedReduceArguments]
    ) -> "Result | Work | None": ...
    async def reduce(
        self,
        x: Input,
        op: str = "sum",
        root: int = 0,
        *,
        root_global: int | None = None,
        factor: float | None = None,
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work | None":
        """The root gets the reduction of all inputs.

        x, op, factor  as all_reduce() has them

        Returns: on the root the shape and dtype of x, on the others None.
        Raises: as all_reduce(), and BAD_ROOT: the root is no rank of the group.
        Example:
            >>> agent.reduce(np.arange(3), "max", root=1)      # on rank 1; rank 0 gets None
            array([0, 1, 2])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        mine = self._roots(how, root, root_global)
        if factor is None and mine is not None:
            found = await self._run_fast("Reduce", x, how, op, root, 1, mine)
            if found is not NO:
                return cast("Result | Work | None", found)
        call = await self._begin(
            "Reduce",
            how,
            reduce_op=reduce_number(op),
            factor=factor,
            **root_fields(root, root_global),
        )
        return cast("Result | Work | None", await run(call, x))

    @overload
    async def reduce_scatter(
        self, x: Input, op: str = ..., *, async_: Literal[True], **how: Unpack[ReduceScatterArguments]
    ) -> Work: ...
    @overload
    async def reduce_scatter(
        self, x: X, op: str = ..., *, async_: Literal[False] = ..., **how: Unpack[ReduceScatterArguments]
    ) -> X: ...
    @overload
    async def reduce_scatter(
        self, x: Input, op: str = ..., *, async_: bool = ..., **how: Unpack[ReduceScatterArguments]
    ) -> "Result | Work": ...
    async def reduce_scatter(
        self,
        x: Input,
        op: str = "sum",
        *,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        factor: float | None = None,
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work":
        """Each rank gets its part of the reduction of all inputs.

        x           the same shape on all ranks; [..., n, ...] with n along `axis` divisible by the
                    group's size
        op, factor  as all_reduce() has them
        form        "concat": parts are cut along `axis`; "stack": `axis` has one entry for each rank
                    and goes; "flat": parts of all elements in their order, in the shape `out_shape`;
                    "list": x is a list of one tensor for each rank, of one shape
        out_shape   of "flat"

        Returns: [..., n / size, ...] of the dtype of x.
        Raises: as all_reduce(), and INDIVISIBLE, BAD_AXIS, BAD_FORM.
        Example:
            >>> agent.reduce_scatter(np.array([1, 2, 3, 4]))   # on rank 0; rank 1 gets [6, 8]
            array([2, 4])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        grow = self._cut(x, how, False, axis == 0, form == "concat", not out_shape)
        found = await self._run_fast("ReduceScatter", x, how, op, factor, grow) if grow else NO
        if found is not NO:
            return cast("Result | Work", found)
        call = await self._begin(
            "ReduceScatter",
            how,
            reduce_op=reduce_number(op),
            factor=factor,
            **parts_fields(axis, form, out_shape),
        )
        return cast("Result | Work", await run(call, x))

    # -------------------------------------------------------------------------- from and to a root

    @overload
    async def broadcast(
        self, x: "Input | None" = ..., root: int = ..., *, async_: Literal[True], **how: Unpack[BroadcastArguments]
    ) -> Work: ...
    @overload
    async def broadcast(
        self, x: X, root: int = ..., *, async_: Literal[False] = ..., **how: Unpack[BroadcastArguments]
    ) -> X: ...
    @overload
    async def broadcast(
        self, x: "Input | None" = ..., root: int = ..., *, async_: bool = ..., **how: Unpack[BroadcastArguments]
    ) -> "Result | Work": ...
    async def broadcast(
        self,
        x: Input | None = None,
        root: int = 0,
        *,
        root_global: int | None = None,
        coalesced: bool = False,
        meta: bytes = b"",
        device: str = "",
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work":
        """Every rank gets the root's tensor.

        x          of the root: any shape. The others' is not sent: without one the result is a Tensor,
                   with an array of the root's dtype and shape it is an array; of another size it is
                   an error
        coalesced  of those who give nothing: the root gives a list, a list comes
        meta       of the root: up to 16384 bytes that travel with it, to the Work.meta of others
        device     where a new Tensor of this rank lies: "cpu", "cuda:0"; "" = wherever the op runs, or on
                   the first of the agent's --device

        Returns: the shape and dtype of the root's x.
        Raises: TuttiError BAD_ROOT, UNEXPECTED_INPUT; SIZE_MISMATCH, DTYPE_MISMATCH, OUT_SHAPE: x is
            not as the root's; and what every op raises.
        Example:
            >>> agent.broadcast(np.full(2, agent.rank), 1)
            array([1, 1])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        mine = None if coalesced or meta or device else self._roots(how, root, root_global)
        if mine is not None and x is not None:
            fast: Any = self._fast
            more = ("sum", root, 1, True, False)
            found = await (fast.give_all(x, how, root) if mine else fast.run("Broadcast", x, how, *more))
            if found is not NO:
                return cast("Result | Work", found)
        fields: dict[str, Any] = {"coalesced": coalesced, "user_meta": meta, "device": device}
        call = await self._begin("Broadcast", how, **fields, **root_fields(root, root_global))
        if x is None or await self._is_root(group, root, root_global):
            return cast("Result | Work", await run(call, x))
        call.request.coalesced = coalesced or is_list(x)
        if is_array(x) and out is None:
            say_results(call, x)
        if not is_array(x) or async_ or out is not None:
            return cast("Result | Work", await receive(call, x if is_array(x) else None))
        large = size_of(x) > INLINE_BYTES_MAX
        made = await (receive(call, x) if large else receive_inline(call, x))
        return cast("Result | Work", made if call.pipeline or is_list(x) else _as_promised(made, x))

    @overload
    async def scatter(
        self, x: "Input | None" = ..., root: int = ..., *, async_: Literal[True], **how: Unpack[ScatterArguments]
    ) -> Work: ...
    @overload
    async def scatter(
        self, x: X, root: int = ..., *, async_: Literal[False] = ..., **how: Unpack[ScatterArguments]
    ) -> X: ...
    @overload
    async def scatter(
        self, x: "Input | None" = ..., root: int = ..., *, async_: bool = ..., **how: Unpack[ScatterArguments]
    ) -> "Result | Work": ...
    async def scatter(
        self,
        x: Input | None = None,
        root: int = 0,
        *,
        root_global: int | None = None,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        splits: Sequence[int] | None = None,
        coalesced: bool = False,
        meta: bytes = b"",
        device: str = "",
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work":
        """Each rank gets its part of the root's tensor.

        x          of the root: [..., n, ...] with n along `axis` divisible by the group's size. The
                   others' is not sent: without one the result is a Tensor, with any array an array
        form       "concat": parts are cut along `axis`; "stack": `axis` has one entry for each rank
                   and goes; "flat": parts of all elements in their order, in the shape `out_shape`;
                   "list": x is a list of one tensor for each rank, of one shape, and the others give
                   none
        splits     of the root: rows of dimension 0 for each rank, instead of equal parts
        coalesced  of those who give nothing: the root gives a list that is as many ops in one
        meta       of the root: up to 16384 bytes that travel with it, to the Work.meta of others
        device     where a new Tensor of this rank lies: "cpu", "cuda:0"; "" = wherever the op runs, or on
                   the first of the agent's --device

        Returns: [..., n / size, ...], or [splits[rank], ...], of the dtype of the root's x.
        Raises: TuttiError INDIVISIBLE, SPLITS_MISMATCH, BAD_ROOT, BAD_FORM; UNEXPECTED_INPUT: a rank that
            is not the root gave a list of parts; and what every op raises.
        Example:
            >>> agent.scatter(np.arange(4), root=0)            # on rank 0; rank 1 gets [2, 3]
            array([0, 1])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        mine = None if coalesced or meta or device else self._roots(how, root, root_global)
        usual = splits is None and axis == 0 and form == "concat" and not out_shape
        if mine is not None and usual and (mine or out is not None):
            grow = self._cut(x, how, False) if mine else 1
            like = x if mine else out
            found = await self._run_fast("Scatter", like, how, "sum", root, grow, True, mine) if grow else NO
            if found is not NO:
                return cast("Result | Work", found)
        fields: dict[str, Any] = {"coalesced": coalesced, "user_meta": meta, "device": device, "splits": splits}
        call = await self._begin(
            "Scatter",
            how,
            **fields,
            **root_fields(root, root_global),
            **parts_fields(axis, form, out_shape),
        )
        by_rank = is_list(x) and form.lower() == "list"
        if x is None or by_rank or await self._is_root(group, root, root_global):
            return cast("Result | Work", await run(call, x))  # a list of parts by another rank is refused on all
        call.request.coalesced = coalesced or is_list(x)
        return cast("Result | Work", await receive(call, x if is_array(x) else None))

    @overload
    async def gather(
        self, x: Input, root: int = ..., *, form: str = ..., async_: Literal[True], **how: Unpack[RootedPartsArguments]
    ) -> Work: ...
    @overload
    async def gather(
        self, x: X, root: int = ..., *, form: Literal["concat", "stack", "flat"] = ..., async_: Literal[False] = ..., **how: Unpack[RootedPartsArguments]
    ) -> X | None: ...
    @overload
    async def gather(
        self, x: Input, root: int = ..., *, form: str = ..., async_: bool = ..., **how: Unpack[RootedPartsArguments]
    ) -> "Result | Work | None": ...
    async def gather(
        self,
        x: Input,
        root: int = 0,
        *,
        root_global: int | None = None,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work | None":
        """The root gets all inputs, in the order of group ranks.

        x, form, axis, out_shape  as all_gather() has them

        Returns: on the root what all_gather() gives, on the others None.
        Raises: as all_gather(), and BAD_ROOT: the root is no rank of the group; BAD_OUT, on all
            ranks: one that is not the root gave a list as `out`, for the parts.
        Example:
            >>> agent.gather(np.array([agent.rank]), root=1)   # on rank 1; rank 0 gets None
            array([0, 1])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        mine = self._roots(how, root, root_global)
        if mine is not None:
            grow = self._cut(x, how, True, axis == 0, form == "concat", not out_shape)
            usual = (x, how, "sum", root, grow if mine else 1, mine)
            found = await self._run_fast("Gather", *usual) if grow else NO
            if found is not NO:
                return cast("Result | Work | None", found)
        call = await self._begin(
            "Gather",
            how,
            gives_list(form),
            **root_fields(root, root_global),
            **parts_fields(axis, form, out_shape),
        )
        if gives_list(form) and is_list(out) and not await self._is_root(group, root, root_global):
            text = "gather: this rank is not the root and gives a list for the parts: only the root gives one"
            return cast("Result | Work | None", await refuse(call, text))
        found = await run(call, x, None if call.many else call.agent.world_size)
        return cast("Result | Work | None", found)

    # -------------------------------------------------------------------------- among all

    @overload
    async def all_gather(
        self, x: Input, *, form: str = ..., async_: Literal[True], **how: Unpack[PartsArguments]
    ) -> Work: ...
    @overload
    async def all_gather(
        self, x: X, *, form: Literal["concat", "stack", "flat"] = ..., async_: Literal[False] = ..., **how: Unpack[PartsArguments]
    ) -> X: ...
    @overload
    async def all_gather(
        self, x: Input, *, form: str = ..., async_: bool = ..., **how: Unpack[PartsArguments]
    ) -> "Result | Work": ...
    async def all_gather(
        self,
        x: Input,
        *,
        axis: int | Sequence[int] = 0,
        form: str = "concat",
        out_shape: Sequence[int] = (),
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work":
        """Every rank gets all inputs, in the order of group ranks.

        x          [..., n, ...], the same shape on all ranks; of "list" any shapes
        form       "concat": joined along `axis`; "stack": a new dimension there; "flat": all elements
                   in their order, in the shape `out_shape`; "list": a list of them
        out_shape  of "flat"

        Returns: [..., n * size, ...] of the dtype of x, or a list of one for each rank.
        Raises: TuttiError BAD_AXIS, BAD_FORM, SHAPE_MISMATCH; and what every op raises.
        Example:
            >>> agent.all_gather(np.full(2, agent.rank), form="stack")
            array([[0, 0],
                   [1, 1]])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        grow = self._cut(x, how, True, axis == 0, form == "concat", not out_shape)
        found = await self._run_fast("AllGather", x, how, "sum", None, grow) if grow else NO
        if found is not NO:
            return cast("Result | Work", found)
        call = await self._begin(
            "AllGather", how, gives_list(form), **parts_fields(axis, form, out_shape)
        )
        made = await run(call, x, None if call.many else call.agent.world_size)
        return cast("Result | Work", made)

    @overload
    async def all_to_all(
        self, x: Input, *, async_: Literal[True], **how: Unpack[AllToAllArguments]
    ) -> Work: ...
    @overload
    async def all_to_all(
        self, x: X, *, async_: Literal[False] = ..., **how: Unpack[AllToAllArguments]
    ) -> X: ...
    @overload
    async def all_to_all(
        self, x: Input, *, async_: bool = ..., **how: Unpack[AllToAllArguments]
    ) -> "Result | Work": ...
    async def all_to_all(
        self,
        x: Input,
        *,
        split_axis: int = 0,
        concat_axis: int = 0,
        input_splits: Sequence[int] | None = None,
        output_splits: Sequence[int] | None = None,
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work":
        """Each rank cuts x into a part for each rank, and joins what it gets.

        x              [..., n, ...] with n along `split_axis` divisible by the group's size; or a list
                       of one tensor for each rank, of any shapes
        split_axis     along which x is cut; concat_axis: along which parts are joined
        input_splits   rows of dimension 0 for each rank, instead of equal parts; with
        output_splits  rows that come from each rank: both or none

        Returns: x with n / size along `split_axis` and its size times along `concat_axis`;
            [sum(output_splits), ...]; for a list one from each rank.
        Raises: TuttiError INDIVISIBLE, SPLITS_MISMATCH, BAD_AXIS; and what every op raises.
        Example:
            >>> agent.all_to_all(np.array([10, 11]) + 10 * agent.rank)   # on rank 0
            array([10, 20])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        usual = input_splits is None and output_splits is None
        grow = self._cut(x, how, False, split_axis == 0, concat_axis == 0, usual)
        found = await self._run_fast("AllToAll", x, how) if grow else NO
        if found is not NO:
            return cast("Result | Work", found)
        call = await self._begin(
            "AllToAll",
            how,
            is_list(x),
            form=form_number("list") if is_list(x) else None,
            split_axis=split_axis,
            concat_axis=concat_axis,
            input_splits=input_splits,
            output_splits=output_splits,
        )
        uneven = input_splits is not None or is_list(x)
        return cast("Result | Work", await run(call, x, None if uneven else 1))

    @overload
    async def permute(
        self, x: Input, src_dst: Sequence[int], *, async_: Literal[True], **how: Unpack[OpArguments]
    ) -> Work: ...
    @overload
    async def permute(
        self, x: X, src_dst: Sequence[int], *, async_: Literal[False] = ..., **how: Unpack[OpArguments]
    ) -> X: ...
    @overload
    async def permute(
        self, x: Input, src_dst: Sequence[int], *, async_: bool = ..., **how: Unpack[OpArguments]
    ) -> "Result | Work": ...
    async def permute(
        self,
        x: Input,
        src_dst: Sequence[int],
        *,
        group: "GroupLike" = None,
        out: Input | None = None,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
        tracers: "Sequence[Tracer | str]" = (),
        no_grad: bool = False,
        local_grad: bool = False,
        events: tuple[int, int] = (0, 0),
    ) -> "Result | Work":
        """Group rank r gives its tensor to rank src_dst[r].

        x        any shape, the same on all ranks
        src_dst  each group rank once, the same list on all ranks

        Returns: the shape and dtype of x.
        Raises: TuttiError BAD_PERMUTATION; and what every op raises.
        Example:
            >>> agent.permute(np.array([agent.rank]), [1, 0])  # on rank 0; rank 1 gets [0]
            array([1])
        """
        how = How(group, out, async_, timeout, sequence, step, token, tuple(tracers), no_grad, local_grad, events)
        found = await self._run_fast("Permute", x, how, "sum", None, 1, True, True, 0, src_dst)
        if found is not NO:
            return cast("Result | Work", found)
        call = await self._begin("Permute", how, src_dst=src_dst)
        return cast("Result | Work", await run(call, x))

    async def barrier(
        self,
        *,
        group: "GroupLike" = None,
        monitored: bool = False,
        async_: bool = False,
        timeout: float | None = None,
        sequence: int = 0,
        step: int = 0,
        token: int = 0,
    ) -> Work | None:
        """Wait until every rank has called it, and the earlier ops of all on the group have ended.

        monitored  when time is up, fail with MISSING_RANKS instead of TIMEOUT

        Returns: None, or a Work with async_.
        Raises: what every op raises; TuttiTimeout MISSING_RANKS names the missing ranks.
        Example:
            >>> agent.barrier(timeout=10)
        """
        how = How(group, None, async_, timeout, sequence, step, token)
        if not monitored and await self._run_fast("Barrier", None, how) is not NO:
            return None
        call = await self._begin("Barrier", how, monitored=monitored)
        return cast("Work | None", await run(call, None))
