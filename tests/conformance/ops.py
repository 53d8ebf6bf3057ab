"""Collectives: a case's op and params become a request; a response or work becomes tensors."""

import values
import wire
from wire import Failed, Missing, Refused, collectives, types

METHODS = {
    "all_reduce": "AllReduce",
    "reduce": "Reduce",
    "broadcast": "Broadcast",
    "all_gather": "AllGather",
    "gather": "Gather",
    "scatter": "Scatter",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AllToAll",
    "permute": "Permute",
    "barrier": "Barrier",
}
ROOTED = ("reduce", "broadcast", "gather", "scatter")
REDUCE_NAMES = {"product": "PROD"}
UNKNOWN = 1000  # a number of no enum's value: what a client with an unknown name has to say
# Forms that are said by other fields: axes, splits.
PLAIN_FORMS = ("concat", "axes", "splits", "split")
FORMS = ("stack", "list", "flat")


class Way:
    """How tensors travel and how the call returns."""

    def __init__(self, name, inline=False, waits=False, into=False):
        self.name = name
        self.inline = inline  # bytes in the messages, else handles
        self.waits = waits  # async, then Wait
        self.into = into  # results go into given tensors


INLINE = Way("inline", inline=True)
HANDLE = Way("handle")
ASYNC = Way("async", waits=True)
INTO = Way("into", into=True)
INTO_ASYNC = Way("into async", into=True, waits=True)


class Call:
    """One rank's part in a collective."""

    def __init__(self, op, params, members, given, group=""):
        self.op = op
        self.params = params
        self.members = members  # global ranks by group rank
        self.given = given  # None, a Tensor or a list of them
        self.group = group  # its name
        self.want = None  # what should come: for the given outputs
        self.timeout_ms = 0
        self.handle = None  # of an input that is there already
        self.output = None  # the handle of a given output

    def root(self):
        """The root's global rank, or None when what is said is no rank of the group."""
        if "root_global" in self.params:
            return self.params["root_global"]
        root = self.params.get("root", 0)
        return self.members[root] if 0 <= root < len(self.members) else None


class Sent:
    """A request on its way: made first, so that all ranks can start at once."""

    def __init__(self, seat, name, request):
        self.seat = seat
        self.name = name
        self.request = request
        self.inputs = []  # handles, and what is in them
        self.work = None
        self.references = []  # of the results
        self.source = None  # of a receive: the sender's global rank

    def start(self):
        """The response."""
        method = wire.method_of(self.seat.agent.ops, "CollectivesService", self.name)
        return wire.call(method, self.request)

    def run(self):
        """The op's tensors, after a Wait if it is async."""
        response = self.start()
        if not getattr(self.request.options, "async"):
            return self.finish(response)
        self.begun(response)
        return self.wait()

    def finish(self, response):
        if not hasattr(response, "output"):
            return []
        self.references = wire.refs_of(response)
        self.source = getattr(response, "source_global", None)
        return self.seat.read_refs(self.references, response.payload)

    def begun(self, response):
        self.work = response.info.work
        if hasattr(response, "output"):
            self.references = wire.refs_of(response)
            for reference in self.references:
                self.seat.keep(reference.handle)

    def wait(self, timeout_ms=0):
        return self.ended(wait(self.seat, self.work, timeout_ms))

    def ended(self, status):
        """The tensors of a work that has ended."""
        if status.error.code:
            raise Refused(Failed.of_work(status.error))
        if wire.has_field(status, "outputs") or len(self.references) < 2:
            self.references = wire.refs_of(status)  # a rank without a result learns it here
        self.source = status.source_global
        return self.seat.read_refs(self.references, b"")


def wait(seat, work, timeout_ms=0):
    request = collectives.WaitRequest(works=[work], timeout_ms=timeout_ms)
    return wire.call(seat.agent.ops.Wait, request).works[0]


# ---------------------------------------------------------------------------- requests


def reduce_number(name):
    name = REDUCE_NAMES.get(name.lower(), name).upper()
    known = dict(types.ReduceOp.items())
    return known.get("REDUCE_OP_" + name, UNKNOWN)


def set_form(request, form):
    if form in PLAIN_FORMS:
        return
    wire.need_field(request, "form")
    number = wire.enum_number(request, "form", form)
    if number is None and form in FORMS:
        raise Missing("Form has no value for %s" % form)
    request.form = UNKNOWN if number is None else number


def set_axis(request, axis):
    if isinstance(axis, list):
        getattr(request, wire.need_field(request, "axes")).extend(axis)
    else:
        setattr(request, wire.need_field(request, "axis"), axis)


def set_param(request, name, value, rank):
    if name == "reduce_op":
        setattr(request, wire.need_field(request, "reduce_op"), reduce_number(value))
    elif name == "form":
        set_form(request, value)
    elif name == "axis":
        set_axis(request, value)
    elif name in ("input_splits", "output_splits"):
        getattr(request, wire.need_field(request, name)).extend(value[str(rank)])
    elif name in ("out_shape", "splits", "src_dst"):
        getattr(request, wire.need_field(request, name)).extend(value)
    elif name in ("factor", "root", "root_global", "split_axis", "concat_axis"):
        setattr(request, wire.need_field(request, name), value)
    elif name not in ("coalesced", "out_dtype", "local_grad"):
        raise Missing("this runner does not know the param %s" % name)


def set_params(request, call, rank):
    for name, value in call.params.items():
        set_param(request, name, value, rank)


def argument(sent, way, tensor):
    """A tensor as an argument; its bytes go to the payload or to the agent."""
    if way.inline:
        sent.request.payload += tensor.data
        return types.TensorArg(inline_tensor=wire.spec_of(tensor))
    handle = sent.seat.put(tensor)
    sent.inputs.append((handle, tensor))
    return types.TensorArg(handle=handle)


def set_given(sent, call, way):
    request, given = sent.request, call.given
    if call.handle:
        request.input.handle = call.handle
    elif isinstance(given, list):
        wire.need_field(request, "inputs")
        request.inputs.extend([argument(sent, way, one) for one in given])
        if call.params.get("coalesced"):
            request.coalesced = True  # also when the list is empty
    elif given is not None and call.op == "broadcast" and call.root() not in (None, sent.seat.rank):
        request.output = sent.seat.put(given)  # a receiver's tensor is its destination
    elif given is not None:
        request.input.CopyFrom(argument(sent, way, given))
    if given is None and way.inline and wire.has_field(request, "inline_result"):
        request.inline_result = True


def set_outputs(sent, call, way):
    """Destinations: where the params speak of one, or the way wants them."""
    request, params = sent.request, call.params
    if call.output:
        request.output = call.output
    elif "out_dtype" in params:
        shape = params["out_shape"]
        zeros = values.Tensor.zeros_like(values.Tensor(params["out_dtype"], shape, None))
        request.output = sent.seat.put(zeros)
    elif way.into and call.want is not None and not request.output:
        handles = [
            sent.seat.put(values.Tensor.zeros_like(one))
            for one in values.dtype_and_shape(call.want)
        ]
        if isinstance(call.want, list):
            getattr(request, wire.need_field(request, "outputs")).extend(handles)
        else:
            request.output = handles[0]


def begin(seat, call, whose):
    """A request with the op's params, as rank `whose` would send it."""
    if call.op not in METHODS:
        raise Missing("this runner does not know the op %s" % call.op)
    name = METHODS[call.op]
    wire.method_of(seat.agent.ops, "CollectivesService", name)
    sent = Sent(seat, name, wire.message_of(collectives, name + "Request")(group=call.group))
    if wire.has_field(sent.request, "reduce_op"):
        sent.request.reduce_op = reduce_number("sum")  # where a case says nothing
    set_params(sent.request, call, whose)
    return sent


def request_of(call, seat, whose):
    """The request alone, of tensors without bytes: for Infer."""
    sent = begin(seat, call, whose)
    given = call.given if isinstance(call.given, list) else [call.given]
    arguments = [argument(sent, INLINE, one) for one in given]
    if isinstance(call.given, list):
        getattr(sent.request, wire.need_field(sent.request, "inputs")).extend(arguments)
    else:
        sent.request.input.CopyFrom(arguments[0])
    return sent.request


def prepare(seat, call, way):
    """Everything before the call itself. Missing when the services lack something."""
    sent = begin(seat, call, seat.rank)
    setattr(sent.request.options, "async", way.waits)
    sent.request.options.timeout_ms = call.timeout_ms
    if call.op != "barrier":
        set_given(sent, call, way)
        set_outputs(sent, call, way)
    return sent
