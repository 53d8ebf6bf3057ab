"""The ops that schedules call: a request for each rank, and what must come out."""

import threading

import grpc
import numpy as np

import fault_cluster  # noqa: F401  it knows where cluster_case is
from cluster_case import LONG_S, array_of, collectives, handle, inline, types

SIZE = 4
TIMEOUT_MS = 3500  # the op's own end
CALL_S = 12  # of the call: whoever reaches this has hung
OUTSIDE = "outside"  # `odd` of a range that ends behind its tensor; True = of another shape
LARGE = 175000 * SIZE  # elements of what moves for a while, and fits into one message when it comes out


def _input(rank, count):
    return (np.arange(count) % 17 + rank * 100).astype(np.int32)


def _sum(count):
    return sum(_input(rank, count) for rank in range(SIZE))


def _all_gather(count):
    return np.concatenate([_input(rank, count) for rank in range(SIZE)])


class Op:
    """One collective. `wanted(rank, count)` is None where nothing comes out.

    `given_by`: the one rank that has an input, or None when all have. `rooted`: a rank may be through before all
    others have come. `shapes_compared`: ranks that give different shapes are refused.
    """

    by_handle = True

    def __init__(self, name, method, request, wanted, given_by=None, rooted=False, shapes_compared=True, **fields):
        self.name, self.method, self.request, self.wanted = name, method, request, wanted
        self.given_by, self.rooted, self.fields = given_by, rooted, fields
        self.shapes_compared = shapes_compared

    @property
    def large(self):
        return LARGE // SIZE if self.name in ("all_gather", "gather") else LARGE

    def gives(self, rank):
        return self.given_by is None or self.given_by == rank

    def call(self, agent, group, count, odd=False, timeout_ms=TIMEOUT_MS):
        """With inline tensors. The answer, or an AssertionError when a result is wrong."""
        options = types.OpOptions(timeout_ms=timeout_ms)
        request = self.request(**dict(self.fields, group=group, options=options))
        if self.gives(agent.rank):
            array = _input(agent.rank, count + (SIZE if odd else 0))
            request.input.CopyFrom(inline(array))
            request.payload = array.tobytes()
        if self.given_by is not None:
            request.inline_result = True
        response = getattr(agent.ops, self.method)(request, timeout=CALL_S)
        if self.wanted(agent.rank, count) is not None:
            self.compare(agent.rank, count, array_of(response.output, response.payload))
        return response

    def put(self, agent, count):
        """Its input, for start()."""
        if self.gives(agent.rank):
            agent.put(_input(agent.rank, count), name="x")

    def start(self, agent, asynchronous=False, timeout_ms=TIMEOUT_MS):
        """With the tensor of put(); a future of the answer."""
        options = types.OpOptions(**{"async": asynchronous, "timeout_ms": timeout_ms})
        request = self.request(**dict(self.fields, options=options))
        if self.gives(agent.rank):
            request.input.CopyFrom(handle("x"))
        return getattr(agent.ops, self.method).future(request, timeout=CALL_S)

    def check(self, agent, count, output):
        """What has come out of start()."""
        if self.wanted(agent.rank, count) is not None:
            self.compare(agent.rank, count, agent.get(output.handle))

    def compare(self, rank, count, got):
        if not np.array_equal(got.ravel(), self.wanted(rank, count)):
            raise AssertionError("rank %d: %s gave %s" % (rank, self.name, got.ravel()[:8]))


class Barrier(Op):
    by_handle = False

    def call(self, agent, group, count, odd=False, timeout_ms=TIMEOUT_MS):
        request = self.request(group=group, options=types.OpOptions(timeout_ms=timeout_ms))
        return agent.ops.Barrier(request, timeout=CALL_S)


class Exchange(Op):
    """A send to the next rank and a receive from the one before, at once."""

    by_handle = False

    def call(self, agent, group, count, odd=False, timeout_ms=TIMEOUT_MS):
        array = _input(agent.rank, count)
        options = types.OpOptions(timeout_ms=timeout_ms)
        failed = []

        def send():
            try:
                agent.ops.Send(collectives.SendRequest(
                    group=group, input=inline(array), payload=array.tobytes(), options=options,
                    destination=(agent.rank + 1) % SIZE), timeout=CALL_S)
            except grpc.RpcError as error:
                failed.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            request = collectives.RecvRequest(
                group=group, source=(agent.rank - 1) % SIZE, inline_result=True, options=options)
            if getattr(agent.ops, "says_shapes", False):
                request.expect.CopyFrom(inline(array).inline_tensor)
            response = agent.ops.Recv(request, timeout=CALL_S)
        finally:
            thread.join(LONG_S)
        self.compare(agent.rank, count, array_of(response.output, response.payload))
        if failed:
            raise failed[0]
        return response


class Range(Op):
    """An all-reduce from one part of a tensor to another one; the bytes around them must stay (docs/decisions/0030)."""

    GUARD = 64  # bytes before, between and behind the two parts

    @property
    def large(self):
        return LARGE // 2  # both parts go in by one message

    def _places(self, count):
        return self.GUARD, 2 * self.GUARD + 4 * count

    def _arena(self, rank, count):
        arena = np.full(3 * self.GUARD + 8 * count, 0xA5, np.uint8)
        source = self._places(count)[0]
        arena[source:source + 4 * count] = _input(rank, count).view(np.uint8)
        return arena

    def _texts(self, name, count, outside=False):
        source, target = self._places(count)
        if outside:
            target += self.GUARD + 4  # it ends one element behind the tensor
        return ["%s@%d:INT32[%d]" % (name, one, count) for one in (source, target)]

    def call(self, agent, group, count, odd=False, timeout_ms=TIMEOUT_MS):
        count += SIZE if odd is True else 0
        made = agent.put(self._arena(agent.rank, count))
        source, target = self._texts(made, count, odd == OUTSIDE)
        try:
            request = self.request(**dict(
                self.fields, group=group, input=handle(source), output=target,
                options=types.OpOptions(timeout_ms=timeout_ms)))
            response = agent.ops.AllReduce(request, timeout=CALL_S)
            self.compare(agent.rank, count, agent.get(made))
        finally:
            self._delete(agent, made)
        return response

    def _delete(self, agent, made):
        try:
            agent.delete(made)
        except grpc.RpcError:
            pass  # the agent may be gone

    def put(self, agent, count):
        agent.put(self._arena(agent.rank, count), name="x")

    def start(self, agent, asynchronous=False, timeout_ms=TIMEOUT_MS):
        count = (agent.get("x").size - 3 * self.GUARD) // 8
        source, target = self._texts("x", count)
        options = types.OpOptions(**{"async": asynchronous, "timeout_ms": timeout_ms})
        request = self.request(**dict(self.fields, input=handle(source), output=target, options=options))
        return agent.ops.AllReduce.future(request, timeout=CALL_S)

    def check(self, agent, count, output):
        self.compare(agent.rank, count, agent.get("x"))

    def compare(self, rank, count, got):
        """The whole tensor."""
        want = self._arena(rank, count)
        target = self._places(count)[1]
        want[target:target + 4 * count] = _sum(count).astype(np.int32).view(np.uint8)
        if not np.array_equal(got, want):
            wrong = np.flatnonzero(got != want)
            raise AssertionError("rank %d: %s of %d elements: bytes from %d to %d are wrong" % (
                rank, self.name, count, wrong[0], wrong[-1]))


def _left(rank, count):
    return _input((rank - 1) % SIZE, count)


OPS = [
    Op("all_reduce", "AllReduce", collectives.AllReduceRequest,
       lambda rank, count: _sum(count), reduce_op=types.REDUCE_OP_SUM),
    Op("reduce", "Reduce", collectives.ReduceRequest,
       lambda rank, count: _sum(count) if rank == 0 else None, rooted=True, reduce_op=types.REDUCE_OP_SUM),
    Op("broadcast", "Broadcast", collectives.BroadcastRequest,
       lambda rank, count: _input(0, count), given_by=0, rooted=True, shapes_compared=False),
    Op("all_gather", "AllGather", collectives.AllGatherRequest,
       lambda rank, count: _all_gather(count)),
    Op("gather", "Gather", collectives.GatherRequest,
       lambda rank, count: _all_gather(count) if rank == 0 else None, rooted=True),
    Op("scatter", "Scatter", collectives.ScatterRequest,
       lambda rank, count: np.split(_input(0, count), SIZE)[rank], given_by=0, rooted=True, shapes_compared=False),
    Op("reduce_scatter", "ReduceScatter", collectives.ReduceScatterRequest,
       lambda rank, count: np.split(_sum(count), SIZE)[rank], reduce_op=types.REDUCE_OP_SUM),
    Op("all_to_all", "AllToAll", collectives.AllToAllRequest,
       lambda rank, count: np.concatenate(
           [np.split(_input(one, count), SIZE)[rank] for one in range(SIZE)])),
    Op("permute", "Permute", collectives.PermuteRequest, _left, rooted=True, shapes_compared=False,
       src_dst=[(rank + 1) % SIZE for rank in range(SIZE)]),
    Range("range", "AllReduce", collectives.AllReduceRequest,
          lambda rank, count: _sum(count), reduce_op=types.REDUCE_OP_SUM),
    Barrier("barrier", "Barrier", collectives.BarrierRequest, lambda rank, count: None, shapes_compared=False),
    Exchange("send_recv", None, None, _left, rooted=True, shapes_compared=False),
]
BY_NAME = {op.name: op for op in OPS}
SESSION = Op("session", None, None, None)  # many commands
