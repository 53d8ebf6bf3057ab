"""Between the cases' words and the services' messages: what is served, errors, tensors, calls.

What a service does not have (no such method or field in proto/) is Missing: the case is skipped.
"""

import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "system"))
sys.path.append(os.path.join(HERE, "..", "support"))

import grpc  # noqa: E402

import support  # noqa: E402
import built_package  # noqa: E402

# The client, before anything imports the stubs: both are called `tutti`.
try:
    tutti = built_package.load(support.build_stubs())
except (ImportError, OSError) as missing:
    support.skip_all("the Python package cannot be built: %s" % missing)

import cluster_case  # noqa: E402
from values import DTYPES, NAMES, Tensor  # noqa: E402

collectives = cluster_case.collectives
coordinator = cluster_case.coordinator
diagnostics = cluster_case.diagnostics
tensors = cluster_case.tensors
tracers = cluster_case.tracers
types = cluster_case.types

CALL_S = float(os.environ.get("TUTTI_CONFORMANCE_CALL_S", "20"))  # no step of a case takes so long

CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class Missing(Exception):
    """The services do not offer what a case needs; the text says what."""


class Wrong(Exception):
    """A case failed; the text says what was expected and what came."""


class Failed:
    """A refusal: of a call, or of a work."""

    def __init__(self, code, reason, text, metadata=None):
        self.code = code
        self.reason = reason
        self.text = text
        self.metadata = metadata or {}

    @classmethod
    def of_call(cls, error):
        said = support.Failure(error)
        return cls(said.code.name, said.reason, said.text, said.metadata)

    @classmethod
    def of_work(cls, error):
        return cls(CODES.get(error.code, str(error.code)), error.reason, error.text)

    @classmethod
    def of_client(cls, error):
        """What the Python package raised."""
        return cls(error.code.name, error.reason, error.text, error.metadata)

    def __str__(self):
        return "%s %s (%s)" % (self.code, self.reason or "-", self.text)

    __repr__ = __str__


class Refused(Exception):
    """A Failed on its way up."""

    def __init__(self, failed):
        super().__init__(str(failed))
        self.failed = failed


# ---------------------------------------------------------------------------- what is there


def has_field(message, name):
    return name in message.DESCRIPTOR.fields_by_name


def need_field(message, *names):
    """The first of these fields that the message has."""
    for name in names:
        if has_field(message, name):
            return name
    raise Missing("%s has no field %s" % (message.DESCRIPTOR.name, " or ".join(names)))


def method_of(stub, service, name):
    if not hasattr(stub, name):
        raise Missing("%s has no method %s" % (service, name))
    return getattr(stub, name)


def message_of(module, name):
    if not hasattr(module, name):
        raise Missing("no message %s" % name)
    return getattr(module, name)


def enum_number(field_of, field, name):
    """The number of an enum's value by its short name, or None."""
    enum = field_of.DESCRIPTOR.fields_by_name[field].enum_type
    prefix = "".join("_" + c if c.isupper() else c for c in enum.name).lstrip("_").upper()
    value = enum.values_by_name.get("%s_%s" % (prefix, name.upper()))
    return None if value is None else value.number


def rank_number(message, field, rank):
    """A rank as the field takes it. Clients in C pass -1 to an unsigned field as its bits."""
    signed = message.DESCRIPTOR.fields_by_name[field].cpp_type in (1, 2)  # int32, int64
    return rank if signed else rank & 0xFFFFFFFF


# ---------------------------------------------------------------------------- calls


_running = set()
_running_lock = threading.Lock()


def call(method, request, timeout=None):
    future = method.future(request, timeout=timeout or CALL_S)
    with _running_lock:
        _running.add(future)
    try:
        return future.result()
    except grpc.FutureCancelledError:
        raise Refused(Failed("CANCELLED", "", "the case was over")) from None
    except grpc.RpcError as error:
        raise Refused(Failed.of_call(error)) from None
    finally:
        with _running_lock:
            _running.discard(future)


def cancel_all():
    """One rank's step failed: the others must not wait for it until their deadlines."""
    with _running_lock:
        futures = list(_running)
    for future in futures:
        future.cancel()


def spec_of(tensor):
    return types.TensorSpec(dtype=getattr(types, DTYPES[tensor.dtype][0]), shape=tensor.shape)


def tensor_of(spec, data):
    return Tensor(NAMES[types.Dtype.Name(spec.dtype)], spec.shape, data)


class Seat:
    """One rank as its client sees it: its agent, and the tensors that the client made there."""

    def __init__(self, agent):
        self.agent = agent
        self.rank = agent.rank
        self.handles = set()
        self.device = ""  # where new tensors go: the agent's first one
        self._client = None

    @property
    def client(self):
        """The Python package's connection to the same agent."""
        if self._client is None:
            self._client = tutti.connect(self.agent.program.address, timeout=CALL_S)
        return self._client

    def close(self):
        if self._client is not None:
            self._client.close()
            self._client = None

    def put(self, tensor):
        request = tensors.PutRequest(spec=spec_of(tensor), payload=tensor.data, device=self.device)
        return self.keep(call(self.agent.tensors.Put, request).tensor.handle)

    def get(self, handle):
        response = call(self.agent.tensors.Get, tensors.GetRequest(handle=handle))
        return tensor_of(response.tensor.spec, response.payload)

    def keep(self, handle):
        if handle:
            self.handles.add(handle)
        return handle

    def clear(self):
        """Free all; results of ops that were refused may be gone already."""
        for handle in self.handles:
            try:
                call(self.agent.tensors.Delete, tensors.DeleteRequest(handles=[handle]))
            except Refused as refused:
                if refused.failed.reason != "NO_TENSOR":
                    raise
        self.handles = set()

    def read_refs(self, references, payload):
        """Tensors of TensorRefs: by handle, or from the payload, one behind the other."""
        found, offset = [], 0
        for reference in references:
            if reference.handle:
                self.keep(reference.handle)
                found.append(self.get(reference.handle))
            else:
                tensor = tensor_of(reference.spec, None)
                end = offset + tensor.byte_count()
                tensor.data = payload[offset:end]
                offset = end
                found.append(tensor)
        if offset != len(payload):
            raise Wrong("rank %d: a payload of %d bytes, its tensors have %d"
                        % (self.rank, len(payload), offset))
        return found


def refs_of(message):
    """The TensorRefs of a response or work: `output` if there is one, else `outputs`."""
    one = message.output
    if one.handle or one.spec.dtype:
        return [one]
    return list(message.outputs) if has_field(message, "outputs") else []
