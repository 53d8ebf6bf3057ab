"""What steps do: HANDLERS has a function (rank, step, index) -> result for each word after `do`.

This file has the ops on tensors; steps_groups.py, steps_store.py and steps_objects.py the others.
"""

import re
import time

import gradients
import ops
import values
import wire
from wire import CALL_S, Missing, Wrong, collectives

HANDLERS = {}


def step(*names):
    """Registers a handler."""

    def register(function):
        for name in names:
            HANDLERS[name] = function
        return function

    return register


class Rank:
    """One rank of a running program."""

    def __init__(self, program, rank):
        self.program = program
        self.world = program.world
        self.rank = rank
        self.seat = program.world.seats[rank]
        self.agent = self.seat.agent
        self.values = {}  # name -> Tensor
        self.handles = {}  # name -> handle
        self.works = {}  # name -> Sent
        self.tapes = {}  # name -> tape, handle, whether it is an input
        self.groups = {}  # name -> Group message

    def members(self, said):
        """Global ranks and name of the group that a step speaks of."""
        group = said.get("group")
        if group is None:
            return self.program.members, self.program.group
        if isinstance(group, list):
            return group, self.world.group(group)
        return list(self.groups[group].ranks), self.groups[group].name

    def tensor(self, said):
        """A tensor of a step: itself, or the name of an earlier result."""
        return self.values[said] if isinstance(said, str) else values.read(said)

    def bind(self, name, found, references):
        """Keep a result for later steps."""
        if name and found:
            self.values[name] = found[0]
            if references and references[0].handle:
                self.handles[name] = references[0].handle


def ranks_named(failed):
    """Ranks that an error names: behind the word rank(s) in its text, or in its metadata."""
    said = failed.text + " ".join(" rank %s" % value for key, value in failed.metadata.items()
                                  if "rank" in key)
    found = []
    for part in re.findall(r"ranks? ([-0-9, and]+)", said):
        for low, high in re.findall(r"(\d+)(?:-(\d+))?", part):
            found += range(int(low), int(high or low) + 1)
    return found


# ---------------------------------------------------------------------------- collectives

NOT_PARAMS = ("rank", "ranks", "do", "as", "expect", "error", "tensor", "tensors", "input",
              "output", "input_range", "output_range", "group", "timeout_ms", "wait_all_ranks",
              "missing", "missing_first", "says", "requires_grad")


def call_of(rank, said, op):
    members, group = rank.members(said)
    params = {key: value for key, value in said.items() if key not in NOT_PARAMS}
    given = said.get("tensors", said.get("tensor"))
    if isinstance(given, list):
        given = [rank.tensor(one) for one in given]
    elif given is not None:
        given = rank.tensor(given)
    call = ops.Call(op, params, members, given, group)
    call.timeout_ms = said.get("timeout_ms", 0)
    return call


def set_ranges(rank, said, call):
    """`input_range` and `output_range` are parts of tensors that `put_tensor` has named."""
    if "input_range" in said:
        call.handle = steps_ranges.text(rank, said["input_range"])
    if "output_range" in said:
        call.output = steps_ranges.text(rank, said["output_range"])


def set_names(rank, said, call):
    """`input` and `output` name tensors in the agent; an unknown output is a new one."""
    set_ranges(rank, said, call)
    name = said.get("input")
    if isinstance(said.get("tensor"), str):
        call.handle = rank.handles.get(said["tensor"])
    if name is None:
        return
    if call.given is not None:
        rank.handles[name] = rank.seat.put(call.given)
    call.handle = rank.handles[name]
    call.output = rank.handles.get(said.get("output"))


def one_or_list(found, said):
    if isinstance(said.get("expect"), list):
        return found
    return found[0] if found else None


def named_result(rank, said, found):
    """Where the step names tensors: what they hold now."""
    if "input" not in said:
        return one_or_list(found, said)
    output = said.get("output")
    result = {said["input"]: rank.seat.get(rank.handles[said["input"]])}
    if output and output != said["input"]:
        result[output] = found[0]
    return result


def run_collective(rank, said, _index):
    op = said["do"]
    call = call_of(rank, said, op)
    way = rank.program.way
    if ("input" in said or said.get("requires_grad")) and way.inline:
        way = ops.HANDLE
    if not way.inline:
        set_names(rank, said, call)
    sent = ops.prepare(rank.seat, call, way)
    if said.get("requires_grad"):
        gradients.traced(rank, sent)
    found = sent.run()
    rank.bind(said.get("as", said.get("output")), found, sent.references)
    return named_result(rank, said, found)


def start_collective(rank, said, _index):
    call = call_of(rank, said, said["do"][: -len("_async")])
    set_ranges(rank, said, call)
    sent = ops.prepare(rank.seat, call, ops.ASYNC)
    sent.begun(sent.start())
    rank.works[said["as"]] = sent


for _name in ops.METHODS:
    HANDLERS[_name] = run_collective
    HANDLERS[_name + "_async"] = start_collective


@step("wait")
def _wait(rank, said, index):
    if "works" in said:
        return wait_for_all(rank, said)
    if "work" not in said:
        return HANDLERS["store_wait"](rank, said, index)
    return one_or_list(rank.works[said["work"]].wait(said.get("timeout_ms", 0)), said)


def wait_for_all(rank, said):
    """One call for several works: what each gave, or the error of the first that failed."""
    sents = [rank.works[one] for one in said["works"]]
    ids = [one.work for one in sents]
    request = collectives.WaitRequest(works=ids, timeout_ms=said.get("timeout_ms", 0))
    statuses = wire.call(rank.agent.ops.Wait, request).works
    found = [sent.ended(status) for sent, status in zip(sents, statuses)]
    return [one[0] if one else None for one in found]


@step("is_completed")
def _is_completed(rank, said, _index):
    request = collectives.TestRequest(works=[rank.works[said["work"]].work])
    return wire.call(rank.agent.ops.Test, request).works[0].done


@step("monitored_barrier")
def _monitored_barrier(rank, said, _index):
    members, group = rank.members(said)
    del members
    if hasattr(collectives, "MonitoredBarrierRequest"):
        request = collectives.MonitoredBarrierRequest(group=group)
        method = wire.method_of(rank.agent.ops, "CollectivesService", "MonitoredBarrier")
    else:
        request = collectives.BarrierRequest(group=group)
        setattr(request, wire.need_field(request, "monitored"), True)
        method = rank.agent.ops.Barrier
    if wire.has_field(request, "wait_all_ranks"):  # else all that are missing are named anyway
        request.wait_all_ranks = said.get("wait_all_ranks", False)
    request.options.timeout_ms = said.get("timeout_ms", 0)
    wire.call(method, request)


# ---------------------------------------------------------------------------- send and receive


def send_request(rank, said, way, peer):
    _, group = rank.members(said)
    request = collectives.SendRequest(group=group)
    if peer is not None:
        request.destination_global = peer
    request.tag = said.get("tag", 0)
    request.options.timeout_ms = said.get("timeout_ms", 0)
    setattr(request.options, "async", way.waits)
    sent = ops.Sent(rank.seat, "Send", request)
    name = said["tensor"] if isinstance(said["tensor"], str) else None
    if name in rank.handles and not way.inline:
        request.input.handle = rank.handles[name]
    else:
        request.input.CopyFrom(ops.argument(sent, way, rank.tensor(said["tensor"])))
    return sent


def recv_request(rank, said, way, peer):
    _, group = rank.members(said)
    request = collectives.RecvRequest(group=group, inline_result=way.inline)
    if peer is not None:
        request.source_global = peer
    request.tag = said.get("tag", 0)
    request.options.timeout_ms = said.get("timeout_ms", 0)
    setattr(request.options, "async", way.waits)
    if said.get("dtype"):
        request.expect.CopyFrom(wire.spec_of(values.Tensor(said["dtype"], said["shape"], None)))
    elif "shape" in said:
        request.expect.shape.extend(said["shape"])
    return ops.Sent(rank.seat, "Recv", request)


def tape_of(rank, said, sent):
    """Messages that a later step goes back through have a tape each."""
    backs = [one["of"] for one in rank.program.case["steps"] if one["do"] == "backward"]
    return gradients.traced(rank, sent, said["as"]) if said.get("as") in backs else None


@step("backward")
def _backward(rank, said, _index):
    return gradients.backward(rank, said)


@step("send")
def _send(rank, said, _index):
    sent = send_request(rank, said, rank.program.way, said["dst"])
    tape = tape_of(rank, said, sent)
    sent.run()
    if said.get("as"):
        rank.works[said["as"]] = sent
    if tape:
        gradients.remember(rank, said, sent, tape)


class Begun:
    """A step that has begun an op: wait() gives what the step is about."""

    def __init__(self, wait):
        self.wait = wait


def begin(rank, said, sent):
    """Start it; by its name a later `wait` finds it."""
    sent.begun(sent.start())
    if said.get("as"):
        rank.works[said["as"]] = sent


@step("isend")
def _isend(rank, said, _index):
    sent = send_request(rank, said, ops.ASYNC, said["dst"])
    begin(rank, said, sent)
    return Begun(sent.wait)


@step("irecv")
def _irecv(rank, said, _index):
    sent = recv_request(rank, said, ops.ASYNC, said.get("src"))
    begin(rank, said, sent)

    def wait():
        found = sent.wait()
        rank.bind(said.get("as"), found, sent.references)
        return received(said, sent.source, found[0])

    return Begun(wait)


def receive(rank, said, peer):
    """Who sent, and what."""
    sent = recv_request(rank, said, rank.program.way, peer)
    tape = tape_of(rank, said, sent)
    found = sent.run()
    rank.bind(said.get("as"), found, sent.references)
    if tape:
        gradients.remember(rank, said, sent, tape)
    return sent.source, found[0]


def received(said, source, tensor):
    expect = said.get("expect")
    if isinstance(expect, dict) and "source" in expect:
        return {"source": source, "tensor": tensor}
    return tensor


@step("recv")
def _recv(rank, said, _index):
    return received(said, *receive(rank, said, said.get("src")))


def receive_any(rank, said, count):
    return [list(receive(rank, said, said.get("src"))) for _ in range(count)]


for _count in range(1, 9):
    HANDLERS["recv_any_x%d" % _count] = (
        lambda rank, said, _index, count=_count: receive_any(rank, said, count)
    )


@step("send_to_next_group", "recv_from_prev_group")
def _neighbour(rank, said, _index):
    sends = said["do"].startswith("send")
    request_of = send_request if sends else recv_request
    sent = request_of(rank, said, rank.program.way, None)
    setattr(sent.request, wire.need_field(sent.request, "group_offset"), 1 if sends else -1)
    sent.request.group_count = rank.program.case["params"]["num_groups"]
    found = sent.run()
    return None if sends else found[0]


@step("batch")
def _batch(rank, said, _index):
    """All of them begin before any is waited for."""
    sents = []
    for one in said["ops"]:
        if "send" in one:
            sents.append(send_request(rank, one, ops.ASYNC, one["send"]))
        else:
            sents.append(recv_request(rank, one, ops.ASYNC, one["recv"]))
    for sent in sents:
        sent.begun(sent.start())
    found = [sent.wait() for sent in sents]
    return [one[0] if one else None for one in found]


# ---------------------------------------------------------------------------- between ranks


@step("signal")
def _signal(rank, said, _index):
    rank.program.event(said["name"]).set()


@step("await_signal")
def _await_signal(rank, said, _index):
    if not rank.program.event(said["name"]).wait(CALL_S):
        raise Wrong("no signal %s came" % said["name"])


def barrier(rank, said, index):
    return HANDLERS["barrier"](rank, dict(said, do="barrier"), index)


@step("barrier_then_mark")
def _barrier_then_mark(rank, said, index):
    said = dict(said)
    mark = said.pop("mark")
    barrier(rank, said, index)
    rank.program.event("mark " + mark).set()


@step("check_unmarked_for_ms")
def _check_unmarked(rank, said, _index):
    if rank.program.event("mark " + said["mark"]).wait(said["ms"] / 1000):
        raise Wrong("rank %d: %s is marked too early" % (rank.rank, said["mark"]))


@step("check_marked")
def _check_marked(rank, said, _index):
    if not rank.program.event("mark " + said["mark"]).wait(CALL_S):
        raise Wrong("rank %d: %s is not marked" % (rank.rank, said["mark"]))


@step("sleep_ms")
def _sleep(_rank, said, _index):
    time.sleep(said["ms"] / 1000)


import steps_groups  # noqa: E402,F401  (they register theirs)
import steps_ranges  # noqa: E402
import steps_store  # noqa: E402,F401
import steps_objects  # noqa: E402,F401
