"""The parts of requests and responses that all ops have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _wire, dtypes, errors
from ._ask import DEADLINE_SLACK
from ._tensor import INLINE_BYTES_MAX, Tensor, handle_of, tensor_of
from ._work import Received, Staged, Work, as_ms, finish, pick

if TYPE_CHECKING:
    from ._agent import Agent


class How(NamedTuple):
    """The arguments that all ops take."""

    group: Any
    out: Any
    async_: bool
    timeout: float | None
    sequence: int = 0
    step: int = 0
    token: int = 0
    tracers: tuple[Any, ...] = ()
    no_grad: bool = False
    local_grad: bool = False
    events: tuple[int, int] = (0, 0)


class Call(NamedTuple):
    """One op, before it is run. many: its result is a list, whatever goes in; received: it is a
    recv, whose result is a Received; pipeline: through which it goes, or None."""

    agent: "Agent"
    method: str
    request: Any
    how: How
    many: bool
    received: bool = False
    pipeline: Any = None


def number_of(enum: str, prefix: str, word: str) -> int:
    numbers = _wire.enum_numbers(enum, prefix)
    if word.upper() not in numbers or numbers[word.upper()] == 0 and word.upper() == "UNSPECIFIED":
        known = ", ".join(name.lower() for name in numbers if name != "UNSPECIFIED")
        raise errors.invalid("BAD_" + prefix[:-1], "%s is unknown, need %s" % (word, known))
    return numbers[word.upper()]


# Others' words for reduce ops: numpy's and the `tutti` command's, torch.distributed's.
_REDUCE_ALIASES = {"mean": "avg", "product": "prod"}


def reduce_number(op: str) -> int:
    return number_of("ReduceOp", "REDUCE_OP_", _REDUCE_ALIASES.get(op.lower(), op))


def form_number(form: str) -> int:
    return number_of("Form", "FORM_", form)


def root_fields(root: int, root_global: int | None) -> dict[str, Any]:
    return {"root": root} if root_global is None else {"root_global": root_global}


def parts_fields(axis: int | Sequence[int], form: str, out_shape: Sequence[int]) -> dict[str, Any]:
    """The fields of parts: one axis for each tensor of a list, or one for all."""
    where = {"axis": axis} if isinstance(axis, int) else {"axes": axis}
    return {"form": form_number(form), "out_shape": out_shape, **where}


def gives_list(form: str) -> bool:
    return form.lower() == "list"


def size_of(x: Any) -> int:
    return sum(dtypes.data_of(one).payload.nbytes for one in (x if is_list(x) else [x]))


def _options(how: How, timeout: float | None) -> Any:
    fields: dict[str, Any] = {"async": how.async_, "sequence": how.sequence, "step": how.step}
    fields.update(token=how.token, no_grad=how.no_grad, local_grad=how.local_grad)
    fields.update(after_event=how.events[0], done_event=how.events[1])
    if timeout is not None:
        fields["timeout_ms"] = as_ms(timeout)
    fields["tracers"] = [one if isinstance(one, str) else one.name for one in how.tracers]
    return _wire.new("OpOptions", **fields)


async def begin(agent: "Agent", method: str, how: How, many: bool = False, **fields: Any) -> Call:
    """A call whose request has the fields that all ops have."""
    pipeline = getattr(agent, "_pipeline", None)
    agent = agent if pipeline is None else pipeline.agent
    name, timeout = await agent._group_and_timeout(how.group)
    how = how._replace(timeout=timeout if how.timeout is None else how.timeout)
    request = _wire.new(
        method + "Request",
        group=name,
        options=_options(how, how.timeout),
        **{name: value for name, value in fields.items() if value is not None},
    )
    return Call(agent, method, request, how, many, pipeline=pipeline)


def _say_outs(call: Call, name: str | None = None) -> bool:
    """Tell the agent which results the arrays of `out` can take, so that all ranks hear it if they cannot
    take what comes. False: they can take nothing, and the call is to be refused on all ranks.

    name  of the dtype that goes in, or must come
    """
    out = call.how.out
    if not is_array(out):
        return True
    outs = list(out) if is_list(out) else [out]
    mixed = any(_is_handle(one) for one in outs)
    fault = "out is a list of tensors and arrays: give only one kind" if mixed else dtypes.fault_of(outs)
    if fault is None:
        call.request.options.expect.extend([dtypes.expected(one, name) for one in outs])
        return True
    call.request.options.refusal = fault
    if _has(call.request, "tell_refusal"):
        call.request.tell_refusal = True
    return False


def say_results(call: Call, arrays: Any) -> None:
    """Results must be as these arrays, or all ranks are refused."""
    call.request.options.expect.extend(dtypes.expected(one, None) for one in (arrays if is_list(arrays) else [arrays]))


async def refuse(call: Call, why: str) -> Any:
    """The call cannot be made as it is: all ranks hear why."""
    call.request.options.refusal = why
    return await _refuse(call)


async def _refuse(call: Call) -> Any:
    """The call takes its place among the group's ops, and fails there with its refusal on all ranks."""
    return await answer(call, call.request, lambda said: None)


async def send(call: Call, request: Any) -> Any:
    """Send the request; gives the response. Without a timeout the group's applies, or the agent's --op-timeout."""
    timeout = None if call.how.timeout is None else call.how.timeout + DEADLINE_SLACK
    lease = await call.agent._lease()
    return await call.agent.line.unary("Collectives." + call.method, request, timeout, lease)


async def answer(call: Call, request: Any, read: Any) -> Any:
    """Make the call and read() its response; in a pipeline give a Reply, which reads it later."""
    if call.pipeline is not None:
        return await call.pipeline._submit(request, read)
    return read(await send(call, request))


# ------------------------------------------------------------------------------ what goes in and out


def _is_handle(thing: Any) -> bool:
    return isinstance(thing, (Tensor, str))


def is_list(x: Any) -> bool:
    """Is x a list of tensors or arrays? A list of numbers is an array."""
    return isinstance(x, (list, tuple)) and all(
        _is_handle(one) or hasattr(one, "__dlpack__") for one in x
    )


def is_array(x: Any) -> bool:
    """Is x, or a part of it, in the memory of this program?"""
    if is_list(x):
        return any(not _is_handle(one) for one in x)
    return x is not None and not _is_handle(x)


def _has(message: Any, field: str) -> bool:
    return field in message.DESCRIPTOR.fields_by_name


def _set_inputs(call: Call, x: Any, arguments: list[Any]) -> None:
    """Set the input of the request, or the inputs of a list."""
    if not is_list(x):
        call.request.input.CopyFrom(arguments[0])
        return
    call.request.inputs.extend(arguments)
    by_rank = _has(call.request, "form") and call.request.form == form_number("list")
    if _has(call.request, "coalesced") and not by_rank:
        call.request.coalesced = True


def _set_outputs(call: Call) -> None:
    out = call.how.out
    if is_list(out) and not is_array(out):
        call.request.outputs.extend([handle_of(one) for one in out])
    elif _is_handle(out):
        call.request.output = handle_of(out)


def references(call: Call, said: Any) -> list[Any]:
    """The TensorRefs of a response or a WorkStatus."""
    if _has(said, "outputs") and said.outputs:
        return list(said.outputs)
    if _has(said, "output") and said.HasField("output") and said.output.spec.dtype:
        return [said.output]
    return [said.output] if _has(said, "output") and said.output.handle else []


def _is_many(call: Call) -> bool:
    return call.many or bool(_has(call.request, "coalesced") and call.request.coalesced)


def as_asked(call: Call, found: list[Any]) -> Any:
    """The results as the caller gets them: a list, the only one, or None when there are none."""
    if not found:
        return None
    return found if _is_many(call) else found[0]


def tensors_of(call: Call, refs: list[Any]) -> list[Tensor]:
    """The Tensors of the results; those of `out` are the caller's own."""
    out = call.how.out
    outs = list(out) if is_list(out) else [out] * len(refs)
    found = []
    for ref, one in zip(refs, outs + [None] * len(refs)):
        if isinstance(one, Tensor):
            one._learn(ref)
        found.append(one if isinstance(one, Tensor) else tensor_of(call.agent, ref))
    return found


def _from_payload(call: Call, response: Any, given: Any) -> Any:
    """The results of a response that carries their bytes."""
    refs = references(call, response)
    if refs and refs[0].handle:
        return _as_received(call, as_asked(call, list(tensors_of(call, refs))), response)
    found, offset = [], 0
    payload = memoryview(response.payload) if _has(response, "payload") else memoryview(b"")
    for place, ref in enumerate(refs):
        kind = dtypes.kind_of(ref.spec)
        if kind is None:
            raise errors.lost(
                "the result has dtype %d, which this client does not know: install the agent's "
                "version" % ref.spec.dtype
            )
        array = dtypes.array_of(kind, payload[offset : offset + kind.nbytes])
        offset += kind.nbytes
        found.append(finish(array, kind.name, pick(given, place), pick(call.how.out, place)))
    return _as_received(call, as_asked(call, found), response)


def _as_received(call: Call, found: Any, response: Any) -> Any:
    return Received.of(found, response) if call.received else found


# ------------------------------------------------------------------------------ the three ways


def _read_handles(call: Call, staged: Staged | None, response: Any) -> Any:
    """The Tensors of a response, or the Work of an async op."""
    made = tensors_of(call, [ref for ref in references(call, response) if ref.handle])
    if not call.how.async_:
        return _as_received(call, as_asked(call, list(made)), response)
    if staged is not None:
        staged.made += made  # there also when the op fails
    work = Work(call.agent, response.info.work, as_asked(call, list(made)))
    work._call, work._staged = call, staged
    return work


async def _with_handles(call: Call) -> Any:
    """Run an op on tensors that are in the agent."""
    _set_outputs(call)
    return await answer(call, call.request, lambda said: _read_handles(call, None, said))


async def _with_staged(call: Call, staged: Staged) -> Any:
    """Run an op on tensors that are in the agent until it has ended; results are arrays."""
    _set_outputs(call)
    try:
        response = await send(call, call.request)
    except BaseException:
        await staged.clean()
        raise
    if call.how.async_:
        return _read_handles(call, staged, response)
    made = tensors_of(call, [ref for ref in references(call, response) if ref.handle])
    found = await staged.collect(made)
    return _as_received(call, as_asked(call, list(found)), response)


async def _inline(call: Call, x: Any, datas: list[dtypes.Data]) -> Any:
    """Run an op on arrays whose bytes travel in the messages."""
    _set_outputs(call)
    _set_inputs(call, x, [_wire.new("TensorArg", inline_tensor=data.spec) for data in datas])
    payloads = [data.payload for data in datas]
    payload = payloads[0] if len(payloads) == 1 else memoryview(b"".join(payloads))
    framed = _wire.Framed(call.request, payload)
    return await answer(call, framed, lambda said: _from_payload(call, said, x))


def _needs_no_pipeline(call: Call) -> None:
    if call.pipeline is not None:
        text = "%s in a pipeline: arrays of at most %d bytes with results of that size, and no async_; put() others"
        raise errors.invalid("INLINE_LIMIT", text % (call.method, INLINE_BYTES_MAX))


async def _through_agent(call: Call, x: Any, datas: list[dtypes.Data]) -> Any:
    """Run an op on arrays that do not fit into a message: as tensors for the time of the op."""
    _needs_no_pipeline(call)
    staged = Staged(call.agent, x, call.how.out if is_array(call.how.out) else None)
    try:
        for data in datas:
            tensor = await call.agent.upload(data)
            staged.made.append(tensor)
            staged.uploaded[tensor.handle] = data
    except BaseException:
        await staged.clean()
        raise
    _set_inputs(call, x, [_wire.new("TensorArg", handle=one.handle) for one in staged.made])
    return await _with_staged(call, staged)


async def run(call: Call, x: Any, grow: int | None = 1) -> Any:
    """Run an op on x: a Tensor, a handle or name, an array, a list of these, or None.

    grow  how many times larger than x the result may be; None = unknown
    """
    if not is_array(x):
        if x is not None:
            handles = x if is_list(x) else [x]
            _set_inputs(call, x, [_wire.new("TensorArg", handle=handle_of(one)) for one in handles])
        return await receive(call)
    if is_list(x) and any(_is_handle(one) for one in x):
        raise errors.invalid("UNEXPECTED_INPUT", "a list of tensors and arrays: give only one kind")
    datas = [dtypes.data_of(one) for one in (x if is_list(x) else [x])]
    if not _say_outs(call, datas[0].name if datas else None):
        return await _refuse(call)
    size = sum(data.payload.nbytes for data in datas)
    if call.how.async_ or grow is None or size * grow > INLINE_BYTES_MAX:
        return await _through_agent(call, x, datas)
    return await _inline(call, x, datas)


async def receive(call: Call, given: Any = None, as_array: bool = False, name: str | None = None) -> Any:
    """Run an op whose request is complete; the results are of the kind of `given`, or of `out`."""
    if not _say_outs(call, name):
        return await _refuse(call)
    if not (as_array or given is not None or is_array(call.how.out)):
        return await _with_handles(call)
    _needs_no_pipeline(call)
    return await _with_staged(call, Staged(call.agent, given, call.how.out))


async def receive_inline(call: Call, given: Any) -> Any:
    """As receive(), for small results: their bytes come with the response."""
    if not _say_outs(call):
        return await _refuse(call)
    call.request.inline_result = True
    return await answer(call, call.request, lambda said: _from_payload(call, said, given))
