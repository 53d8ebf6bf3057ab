"""Collectives, sends and receives by the Python package instead of stubs: --python.

A stub that is wrapped answers `stub.Method.future(request, timeout)` as before. A request is turned into a
call of `tutti.aio`, and what that gives into a response; the rest of a case (tensors, groups, Wait) stays as
it is. What the package has no argument for in one op (a list, async_, a tracer, a number of no enum) goes by
the stub. TUTTI_PYTHON says whether the package goes by libtutti or by grpcio.
"""

import asyncio
import concurrent.futures
import re
import threading

import wire
from wire import Failed, Refused, collectives, tutti, types

from tutti import _wire, aio, dtypes

COUNTS = {"native": 0, "package": 0, "stubs": 0}
LISTS = ("inputs", "outputs", "axes")
PLAIN = ("root", "root_global", "axis", "out_shape", "splits", "split_axis", "concat_axis", "input_splits",
         "output_splits", "src_dst", "factor", "monitored", "destination", "destination_global", "source",
         "source_global", "group_offset", "group_count", "tag")
NAMES = {"AllReduce": "all_reduce", "Reduce": "reduce", "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast",
         "AllGather": "all_gather", "Gather": "gather", "Scatter": "scatter", "AllToAll": "all_to_all",
         "Permute": "permute", "Barrier": "barrier", "Send": "send", "Recv": "recv"}
NO_INPUT = ("Barrier", "Recv")


class Unsaid(Exception):
    """The package has no argument for this."""


class Loop:
    """One event loop, on a thread, for the connections of all ranks."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def start(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)


class Counted(aio._fast.Engine):
    """Counts the ops that go by libtutti."""

    async def op(self, *given):
        COUNTS["native"] += 1
        return await super().op(*given)


# ------------------------------------------------------------------------------ requests


def word(enum, prefix, number):
    """The word for an enum's number; "" = it was left out."""
    for name, known in _wire.enum_numbers(enum, prefix).items():
        if known == number:
            return "" if name == "UNSPECIFIED" else name.lower()
    raise Unsaid("%s has no %d" % (enum, number))


def options_of(request, name):
    options = request.options
    if getattr(options, "async") or options.tracers or options.no_grad or options.local_grad:
        raise Unsaid("async, or a tracer")
    found = {"timeout": options.timeout_ms / 1000 if options.timeout_ms else None}
    if name not in ("Send", "Recv"):
        found.update(sequence=options.sequence, step=options.step, token=options.token)
    elif options.sequence or options.step or options.token:
        raise Unsaid("a sequence, step or token")
    return found


def is_said(request, field):
    if field.label == field.LABEL_REPEATED:
        return len(getattr(request, field.name)) > 0
    if field.has_presence:
        return request.HasField(field.name)
    return getattr(request, field.name) != field.default_value


def arguments_of(request, name):
    """The words of the call, but x and out."""
    found = dict(options_of(request, name), group=request.group or None)
    for field in request.DESCRIPTOR.fields:
        if not is_said(request, field):
            continue
        value = getattr(request, field.name)
        if field.name in LISTS or field.name in ("coalesced", "tell_refusal"):
            raise Unsaid(field.name)
        if field.name in PLAIN:
            found[field.name] = list(value) if field.label == field.LABEL_REPEATED else value
        elif field.name == "reduce_op":
            found["op"] = word("ReduceOp", "REDUCE_OP_", value) or "sum"
        elif field.name == "form":
            found["form"] = word("Form", "FORM_", value) or "concat"
        elif field.name == "user_meta":
            found["meta"] = value
        elif field.name == "expect":
            kind = kind_of(value)
            found.update(dtype=kind.name, shape=kind.shape)
    if found.get("form") == "list":
        raise Unsaid("a list")
    if any(one in found and one + "_global" in found for one in ("root", "source", "destination")):
        raise Unsaid("a rank of the group and one of the job")
    return found


def kind_of(spec):
    kind = dtypes.kind_of(spec)
    if kind is None or dtypes.name_of(dtypes.numpy_dtype(kind.name)) != kind.name:
        raise Unsaid("a dtype that NumPy lacks")
    return kind


def input_of(client, request):
    """A Tensor, an array, or None."""
    if not request.HasField("input"):
        return None
    if request.input.HasField("handle"):
        return tensor_of(client, request.input.handle)
    if not request.input.HasField("inline_tensor"):
        raise Unsaid("an empty input")
    kind = kind_of(request.input.inline_tensor)
    if kind.nbytes != len(request.payload):
        raise Unsaid("a payload of another size")
    return dtypes.array_of(kind, memoryview(request.payload))


def tensor_of(client, handle):
    """A Tensor, or the part of one that a range names."""
    whole, _, said = handle.partition("@")
    part = re.fullmatch(r"(\d+):(\w+)\[(.*)\]", said)
    if part is None:
        return aio.Tensor(client, handle)
    dims = [int(one) for one in part.group(3).split(",") if one]
    return aio.Tensor(client, whole).range(int(part.group(1)), dims, part.group(2))


async def output_of(client, handle):
    if not handle:
        return None
    if "@" in handle:
        return tensor_of(client, handle)
    try:
        return await aio.Tensor(client, handle).refresh()
    except tutti.TuttiError as error:
        raise Unsaid(str(error)) from None


async def call_of(client, name, request):
    """The method, its x and its words."""
    words = arguments_of(request, name)
    given = []
    if name not in NO_INPUT:
        x = input_of(client, request)
        if x is None and (name not in ("Broadcast", "Scatter") or request.inline_result):
            raise Unsaid("no input, or an array of unknown shape")
        given = [x]
    if wire.has_field(request, "output"):
        words["out"] = await output_of(client, request.output)
    if name == "Recv" and not words.get("out"):
        words["keep"] = not (request.inline_result and "dtype" in words)  # else its dtype could get lost
    if name == "Permute":
        given.append(words.pop("src_dst", []))
    return getattr(client, NAMES[name]), given, words


# ------------------------------------------------------------------------------ responses


def response_of(name, found):
    message = getattr(collectives, name + "Response")()
    if isinstance(found, aio.Received):
        message.source, message.source_global = found.source, found.source_global
        message.user_meta = found.meta
        found = found.tensor
    if isinstance(found, aio.Tensor):
        message.output.handle = found.handle.partition("@")[0]  # an agent tells the whole tensor
        if found._kind:
            spec_into(message.output.spec, found._kind)
    elif found is not None:
        data = dtypes.data_of(found)
        spec_into(message.output.spec, dtypes.Kind(data.name, data.array.shape))
        message.payload = bytes(data.payload)
    return message


def spec_into(spec, kind):
    spec.dtype = types.Dtype.Value("DTYPE_" + kind.name)
    spec.shape.extend(kind.shape)


# ------------------------------------------------------------------------------ stubs


class Answer:
    """A call's future, as grpc has it."""

    def __init__(self, future, timeout):
        self.future = future
        self.timeout = timeout

    def result(self, timeout=None):
        try:
            return self.future.result(timeout or self.timeout)
        except tutti.TuttiError as error:
            raise Refused(Failed.of_client(error)) from None
        except concurrent.futures.TimeoutError:
            self.future.cancel()
            raise Refused(Failed("DEADLINE_EXCEEDED", "", "the package did not answer")) from None
        except concurrent.futures.CancelledError:
            raise Refused(Failed("CANCELLED", "", "the call was cancelled")) from None

    def cancel(self):
        self.future.cancel()


class Method:
    def __init__(self, seat, name, method):
        self.seat = seat
        self.name = name
        self.method = method

    def future(self, request, timeout=None):
        if self.name not in NAMES:
            return self.method.future(request, timeout=timeout)
        try:
            ready = self.seat.loop.start(self.seat.prepare(self.name, request)).result(timeout)
        except Unsaid:
            COUNTS["stubs"] += 1
            return self.method.future(request, timeout=timeout)
        COUNTS["package"] += 1
        return Answer(self.seat.loop.start(self.seat.call(self.name, *ready)), timeout)

    def __call__(self, *arguments, **named):
        return self.method(*arguments, **named)


class Connection:
    """The package's connection to one agent."""

    def __init__(self, loop, address):
        self.loop = loop
        self.address = address
        self.client = None

    async def prepare(self, name, request):
        if self.client is None:
            self.client = await aio.connect(self.address, timeout=wire.CALL_S)
        return await call_of(self.client, name, request)

    async def call(self, name, method, given, words):
        return response_of(name, await method(*given, **words))


class Stub:
    def __init__(self, connection, stub):
        self.connection = connection
        self.stub = stub

    def __getattr__(self, name):
        return Method(self.connection, name, getattr(self.stub, name))


LOOP = []


def wrap(agent):
    """From now on this agent's ops go by the package."""
    if not LOOP:
        LOOP.append(Loop())
        aio._fast.Engine = Counted
    agent.ops = Stub(Connection(LOOP[0], agent.program.address), agent.ops)


def has_native():
    """Does this process use libtutti?"""
    return aio._fast.native is not None


def counts():
    """For people: how calls went."""
    return "%(package)d ops by the package, of which %(native)d by libtutti; %(stubs)d by stubs" % COUNTS
