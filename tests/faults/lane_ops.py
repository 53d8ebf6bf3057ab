"""Ops by libtutti, whose calls go through lanes, instead of by stubs: --lane.

`Stub` wraps an agent's CollectivesService stub. It answers `stub.Method(request, timeout)` by a blocking call of
libtutti, and `stub.Method.future(request, timeout)` by a completion queue of its own; errors are grpc.RpcErrors with
the same code, reason and text. What the native module has no argument for (an async op of inline data, who only
receives without saying the shape) goes by the stub.
"""

import array as arrays
import importlib.util
import math
import os
import select
import threading

import grpc
import numpy as np

import fault_cluster  # noqa: F401  it knows where support is
import support
from cluster_case import NUMPY, collectives

NATIVE = os.path.join(os.environ["TUTTI_BUILD"], "python", "_native.abi3.so")
KINDS = {"AllReduce": 1, "Reduce": 2, "ReduceScatter": 3, "Broadcast": 4, "AllGather": 5, "Gather": 6, "Scatter": 7,
         "AllToAll": 8, "Permute": 9, "Barrier": 10, "Send": 11, "Recv": 12}  # tutti_op_kind
SAID = {"group", "input", "payload", "options", "reduce_op", "output", "inline_result", "destination", "source",
        "expect", "src_dst"}  # fields of requests that a call of libtutti has arguments for
AT_ROOT = ("Reduce", "Gather")
CODES = {code.value[0]: code for code in grpc.StatusCode}
WARM_UP = 3  # calls of a client, of which the last one opens its stream
NO_GROUP = "lane_ops.none"


class Unsaid(Exception):
    """libtutti, as the native module has it, has no argument for this."""


class LaneError(grpc.RpcError):
    """A tutti_error, as support.Failure reads it."""

    def __init__(self, code, text, reason, scope, group, sequence, rank, details):
        super().__init__(text)
        self.said = CODES[code], text, reason

    def code(self):
        return self.said[0]

    def details(self):
        return self.said[1]

    def trailing_metadata(self):
        status = support.foreign("google.rpc.Status")(code=self.said[0].value[0], message=self.said[1])
        info = support.foreign("google.rpc.ErrorInfo")(reason=self.said[2], domain="tutti")
        status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
        return (("grpc-status-details-bin", status.SerializeToString()),)


def load():
    """The native module; None where it is not built."""
    if not os.path.exists(NATIVE):
        return None
    spec = importlib.util.spec_from_file_location("tutti._native", NATIVE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.set_error(LaneError)
    return module


# ------------------------------------------------------------------------------ requests


class Call:
    """A request as Client.op() takes it, and the response that is made of what it gives."""

    def __init__(self, name, request, rank, size, timeout):
        unsaid = {field.name for field, _ in request.ListFields()} - SAID
        if name not in KINDS or unsaid:
            raise Unsaid(name)
        self.name, self.request, self.rank, self.size = name, request, rank, size
        self.given = self.taken = None
        self.by_handle = name not in ("Barrier", "Recv") and request.input.HasField("handle")
        if self.by_handle:
            self.given, self.taken = request.input.handle, getattr(request, "output", "") or None
        elif name == "Recv":
            self.taken = self.expected()
        elif name != "Barrier":
            self.read_inline()
        options = request.options
        self.is_async = getattr(options, "async")
        if self.is_async and not self.by_handle:
            raise Unsaid("an async op of inline data")
        self.timeout_ms = options.timeout_ms or math.ceil((timeout or 0) * 1000)

    def expected(self):
        if not self.request.HasField("expect"):
            raise Unsaid("an array of unknown shape")
        return np.empty(list(self.request.expect.shape), NUMPY[self.request.expect.dtype])

    def read_inline(self):
        if not self.request.input.HasField("inline_tensor"):
            raise Unsaid("an array of unknown shape")
        spec = self.request.input.inline_tensor
        self.given = np.frombuffer(self.request.payload, NUMPY[spec.dtype]).reshape(list(spec.shape))
        count = self.taken_count(len(self.given))
        self.taken = None if count is None else np.empty(count, self.given.dtype)

    def taken_count(self, count):
        if self.name in AT_ROOT and self.rank != 0 or self.name in ("Broadcast", "Send"):
            return None
        if self.name in ("AllGather", "Gather"):
            return count * self.size
        return count // self.size if self.name in ("ReduceScatter", "Scatter") else count

    def arguments(self):
        request, options = self.request, self.request.options
        array = self.given if isinstance(self.given, np.ndarray) else self.taken
        dtype = array.dtype if isinstance(array, np.ndarray) else None
        kinds = {value: number for number, value in NUMPY.items()}
        peer = request.destination if self.name == "Send" else request.source if self.name == "Recv" else 0
        return (KINDS[self.name], self.given, self.taken, kinds.get(dtype, 0), request.group or None,
                getattr(request, "reduce_op", 0), float(peer), self.timeout_ms, getattr(options, "sequence", 0),
                options.step, options.token, 0, arrays.array("i", getattr(request, "src_dst", ())) or None,
                self.is_async)

    def response(self, said):
        message = getattr(collectives, self.name + "Response")()
        if self.is_async:
            message.info.work, message.output.handle = said
        elif self.by_handle:
            message.output.handle = said[0] if said else (self.taken or self.given).partition("@")[0]
        if self.by_handle:
            return message
        array = self.given if self.name == "Broadcast" else self.taken
        if array is not None:
            message.output.spec.dtype = {value: number for number, value in NUMPY.items()}[array.dtype]
            message.output.spec.shape.extend(array.shape)
            message.payload = array.tobytes()
        return message


# ------------------------------------------------------------------------------ calls


class Future:
    """An op of a completion queue that is opened for it. It may be cancelled."""

    def __init__(self, client, call):
        self.call, self.over, self.found = call, threading.Event(), None
        self.queue = client.queue()
        try:
            self.number = self.queue.submit(*call.arguments())
        except grpc.RpcError:
            self.queue.close()
            raise
        threading.Thread(target=self.wait, daemon=True).start()

    def wait(self):
        done = []
        try:
            while not done:
                select.select([self.queue.fileno()], [], [])
                done = self.queue.take()
            self.found = done[0]
        except BaseException as error:
            self.found = (0, None, error)
            raise
        finally:
            self.over.set()
            self.queue.close()

    def done(self):
        return self.over.is_set()

    def cancel(self):
        if not self.done():
            self.queue.cancel(self.number)

    def result(self, timeout=None):
        if not self.over.wait(timeout):
            raise AssertionError("an op of a queue has hung")
        if self.found[2] is not None:
            raise self.found[2]
        return self.call.response(self.found[1])


class Refused:
    """The future of an op that could not be submitted."""

    def __init__(self, error):
        self.error = error

    def done(self):
        return True

    def cancel(self):
        pass

    def result(self, timeout=None):
        raise self.error


class Method:
    def __init__(self, seat, name, method):
        self.seat, self.name, self.method = seat, name, method

    def prepare(self, request, timeout):
        """None: it goes by the stub."""
        try:
            call = Call(self.name, request, self.seat.rank, self.seat.size, timeout)
        except Unsaid:
            call = None
        self.seat.counts.add("stubs" if call is None else "libtutti")
        return call

    def __call__(self, request, timeout=None, **named):
        call = self.prepare(request, timeout)
        if call is None:
            return self.method(request, timeout=timeout, **named)
        return call.response(self.seat.client.op(*call.arguments()))

    def future(self, request, timeout=None, **named):
        call = self.prepare(request, timeout)
        if call is None:
            return self.method.future(request, timeout=timeout, **named)
        try:
            return Future(self.seat.client, call)
        except grpc.RpcError as error:
            return Refused(error)


class Counts:
    """How ops went, of all agents. Any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.found = {"libtutti": 0, "stubs": 0, "messages": 0}

    def add(self, what, count=1):
        with self.lock:
            self.found[what] += count


COUNTS = Counts()


class Stub:
    """A connection of libtutti to one agent; `stub` has the rest of the methods."""

    says_shapes = True  # who receives says what: a call of libtutti has an array for it

    def __init__(self, native, stub, address, rank, size):
        self.stub, self.rank, self.size, self.counts = stub, rank, size, COUNTS
        self.client = native.Client(agent=address)
        for _ in range(WARM_UP):
            self.warm_up()

    def warm_up(self):
        """A client opens its stream for its third call. Ops of a group that is not there disturb no one."""
        try:
            self.client.op(KINDS["Barrier"], None, None, 0, NO_GROUP, 0, 0.0, 10000, 0, 0, 0, 0)
        except grpc.RpcError as error:
            if support.Failure(error).reason != "NO_GROUP":
                raise

    def __getattr__(self, name):
        return Method(self, name, getattr(self.stub, name))

    def close(self):
        self.client.close()
