"""Cases of kind `collective`: the op on every rank at once, in each way that tensors can travel."""

import threading

import ops
import values
from wire import CALL_S, Failed, Refused, Wrong

WAYS = (ops.INLINE, ops.HANDLE, ops.ASYNC, ops.INTO, ops.INTO_ASYNC)


def groups_of(case):
    if case.get("groups"):
        return case["groups"]
    return [case["group"] or list(range(case["world"]))]


def together(jobs):
    """Each job on its thread, all started at once: rank -> what it returned, or a Failed."""
    gate = threading.Barrier(len(jobs))
    found = {}

    def work(rank, job):
        gate.wait()
        try:
            found[rank] = job()
        except Refused as refused:
            found[rank] = refused.failed
        except Exception as error:  # the runner's own mistakes must not look like a pass
            found[rank] = error

    threads = [threading.Thread(target=work, args=pair) for pair in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * CALL_S)
    for rank in jobs:
        late = Failed("DEADLINE_EXCEEDED", "", "no answer within the runner's limit")
        found.setdefault(rank, late)
    for one in found.values():
        if isinstance(one, Exception):
            raise one
    return found


def check_error(rank, got, error):
    if not isinstance(got, Failed):
        raise Wrong("rank %d: expected %s %s, got %s"
                    % (rank, error["code"], error["reason"], got))
    if (got.code, got.reason) != (error["code"], error["reason"]):
        raise Wrong("rank %d: expected %s %s, got %s"
                    % (rank, error["code"], error["reason"], got))


def alternatives(want):
    if isinstance(want, dict) and list(want) == ["any_of"]:
        return want["any_of"]
    return [want]


def check_result(rank, got, want, case):
    if isinstance(got, Failed):
        raise Wrong("rank %d: expected %s, got %s" % (rank, want, got))
    how = {
        "tolerance": case.get("cmp"),
        "exact": "bytes_exact" in (case.get("checks") or ()),
    }
    for one in alternatives(want):
        wanted = values.flat(one)
        if len(got) == len(wanted) and all(
            values.equal(a, b, **how) for a, b in zip(got, wanted)
        ):
            return
    raise Wrong("rank %d: expected %s, got %s" % (rank, want, got))


def check_same_bits(found):
    bits = {tuple((one.dtype, one.data) for one in got) for got in found.values()}
    if len(bits) != 1:
        raise Wrong("expected the same bits on all ranks, got %s" % found)


def check_inputs(sent):
    """What the op must not touch: its inputs, unless they are its outputs too."""
    for handle, tensor in sent.inputs:
        now = sent.seat.get(handle)
        if now.data != tensor.data:
            raise Wrong("rank %d: the op changed its input %s to %s"
                        % (sent.seat.rank, tensor, now))


def error_ranks(case, members):
    said = case["error"].get("ranks", "all")
    return members if said == "all" else [rank for rank in said if rank in members]


def check(case, members, found):
    if case.get("error"):
        for rank in error_ranks(case, members):
            check_error(rank, found[rank], case["error"])
        return
    expect = values.read(case["expect"])
    for rank in members:
        check_result(rank, found[rank], expect.get(str(rank)), case)
    if "bitwise_equal_across_ranks" in (case.get("checks") or ()):
        check_same_bits({rank: found[rank] for rank in members})


def sum_of_ones(world, members, rank):
    one = values.Tensor("int32", [1], values.encode("int32", [1]))
    call = ops.Call("all_reduce", {"reduce_op": "sum"}, members, one, world.group(members))
    return ops.prepare(world.seats[rank], call, ops.INLINE).run


def catch_up(world, members):
    """Calls match by their number: who missed ops that failed is told so once for each of them."""
    numbers = {rank: world.sequence(rank, members) for rank in members}
    for rank in members:
        for _ in range(max(numbers.values()) - numbers[rank]):
            got = together({rank: sum_of_ones(world, members, rank)})[rank]
            if not isinstance(got, Failed):
                raise Wrong("rank %d: a call late for an op that failed got %s" % (rank, got))


def still_usable(world, groups):
    """After an error: a sum of ones on every group."""
    jobs = {}
    for members in groups:
        catch_up(world, members)
        for rank in members:
            jobs[rank] = sum_of_ones(world, members, rank)
    found = together(jobs)
    for members in groups:
        want = values.Tensor("int32", [1], values.encode("int32", [len(members)]))
        for rank in members:
            got = found[rank]
            if isinstance(got, Failed) or not values.equal(got, [want]):
                raise Wrong("rank %d: after the error the group should sum to %s, it says %s"
                            % (rank, want, got))


def calls_of(case, world, groups):
    inputs = values.read(case["inputs"])
    expect = values.read(case.get("expect") or {})
    for members in groups:
        name = world.group(members)
        for rank in members:
            call = ops.Call(case["op"], case["params"], members, inputs.get(str(rank)), name)
            call.want = expect.get(str(rank))
            yield rank, call


def run_way(case, world, way):
    groups = groups_of(case)
    world.use(way)
    sent = {
        rank: ops.prepare(world.seats[rank], call, way)
        for rank, call in calls_of(case, world, groups)
    }
    found = together({rank: one.run for rank, one in sent.items()})
    for members in groups:
        check(case, members, found)
    if not case.get("error"):
        for one in sent.values():
            check_inputs(one)
    if case.get("error"):
        still_usable(world, groups)


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
