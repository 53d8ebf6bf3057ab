"""Gradients: cases of kind `grad`, and what programs say of tapes.

A case is run by handle: inputs are attached to a tracer, the op is recorded, Backward gets the
upstream gradients. A rank without an input has a tracer of the same name.
"""

import collective_case
import ops
import values
import wire
from wire import Failed, Refused, Wrong, tracers

WAYS = (ops.HANDLE, ops.ASYNC, ops.INTO, ops.INTO_ASYNC)


class Tape:
    """A tracer on one rank."""

    def __init__(self, seat, name):
        self.seat = seat
        self.stub = seat.agent.tracers
        self.name = name
        wire.call(self.stub.CreateTracer, tracers.CreateTracerRequest(name=name))

    def attach(self, *handles):
        wire.call(self.stub.Attach, tracers.AttachRequest(tracer=self.name, tensors=handles))

    def delete(self):
        wire.call(self.stub.DeleteTracer, tracers.DeleteTracerRequest(tracer=self.name))

    def backward(self, given, wanted, way):
        """Gradients of `wanted`, None where there is none. `given`: handles and their gradients."""
        request = tracers.BackwardRequest(tracer=self.name, wanted=wanted)
        setattr(request.options, "async", way.waits)
        for handle, gradient in given:
            request.gradients.add(tensor=handle, gradient=self.seat.put(gradient))
        response = wire.call(self.stub.Backward, request)
        if way.waits:
            status = ops.wait(self.seat, response.info.work)
            if status.error.code:
                raise Refused(Failed.of_work(status.error))
        found = [self.seat.keep(one.gradient.handle) for one in response.gradients]
        return [self._get(one, way) for one in found[:len(wanted)]]

    def _get(self, handle, way):
        """Of an async Backward the handle is gone when there is no gradient."""
        if not handle:
            return None
        try:
            return self.seat.get(handle)
        except Refused as refused:
            if not way.waits or refused.failed.reason != "NO_TENSOR":
                raise
        return None


# ---------------------------------------------------------------------------- cases


class Part:
    """One rank of a case."""

    def __init__(self, seat, call, way, gradients):
        self.seat = seat
        self.call = call
        self.way = way
        self.gradients = gradients  # upstream: of each result, None where there is none
        self.sent = ops.prepare(seat, call, way)
        self.handles = [handle for handle, _ in self.sent.inputs]
        self.sent.request.options.local_grad = call.params.get("local_grad", False)
        self.tape = None

    def open(self, name):
        self.tape = Tape(self.seat, name)
        if self.handles:  # else the op is recorded here because the root says so
            self.tape.attach(*self.handles)

    def forward(self):
        self.sent.run()
        return []

    def results(self):
        return [one.handle for one in self.sent.references] or self.handles

    def backward(self):
        given = [pair for pair in zip(self.results(), self.gradients) if pair[1] is not None]
        return [one for one in self.tape.backward(given, self.handles, self.way) if one is not None]


def refuse_failures(found):
    for rank, got in found.items():
        if isinstance(got, Failed):
            raise Wrong("rank %d: expected success, got %s" % (rank, got))


def run_parts(case, parts, name):
    try:
        for part in parts.values():
            part.open(name)
        found = collective_case.together({rank: part.forward for rank, part in parts.items()})
        if not case.get("error") or not any(isinstance(one, Failed) for one in found.values()):
            refuse_failures(found)
            found = collective_case.together({rank: part.backward for rank, part in parts.items()})
        collective_case.check(case, list(parts), found)
    finally:
        for part in parts.values():
            if part.tape:
                part.tape.delete()


def run_way(case, world, way):
    upstream = values.read(case.get("grad_out") or {})
    groups = collective_case.groups_of(case)
    parts = {}
    for rank, call in collective_case.calls_of(case, world, groups):
        gradients = upstream.get(str(rank))
        gradients = gradients if isinstance(gradients, list) else [gradients]
        if None not in gradients:
            call.want = upstream[str(rank)]  # as large as the results
        parts[rank] = Part(world.seats[rank], call, way, gradients)
    run_parts(case, parts, world.unique())
    if case.get("error"):
        collective_case.still_usable(world, groups)


def ways_of(case):
    """Into given outputs only where results are said: an error has none."""
    return [way for way in WAYS if not (way.into and case.get("error"))]


def run(case, world):
    """Raises Wrong or Missing; the text begins with the way."""
    for way in ways_of(case):
        try:
            run_way(case, world, way)
        except Wrong as wrong:
            raise Wrong("%s: %s" % (way.name, wrong)) from None
        finally:
            world.clear()
        world.check_empty()
    return [way.name for way in ways_of(case)]


# ---------------------------------------------------------------------------- steps


def own(rank, handle):
    """What a program sends on it has calculated of what it got: a tensor of its own."""
    if handle in rank.handles.values():
        handle = rank.seat.put(rank.seat.get(handle))
    return handle


def traced(rank, sent, name=""):
    """A tape for one step, with the tensor that its call reads."""
    tape = Tape(rank.seat, "%s-%s" % (rank.world.unique(), name or "step"))
    rank.program.cleanups.append(tape.delete)
    if wire.has_field(sent.request, "input") and sent.request.input.handle:
        sent.request.input.handle = own(rank, sent.request.input.handle)
        tape.attach(sent.request.input.handle)
    else:
        sent.request.options.tracers.append(tape.name)
    return tape


def backward(rank, said):
    """Of a receive: its gradient goes to the sender. Of a send: what comes back."""
    tape, handle, reads = rank.tapes[said["of"]]
    gradient = values.read(said.get("grad"))
    given = [(handle, gradient)] if gradient is not None else []
    found = tape.backward(given, [handle] if reads else [], rank.program.way)
    return found[0] if found else None


def remember(rank, said, sent, tape):
    reads = wire.has_field(sent.request, "input")
    handle = sent.request.input.handle if reads else sent.references[0].handle
    rank.tapes[said["as"]] = (tape, handle, reads)
