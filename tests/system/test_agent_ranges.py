"""Goal: ops read and write ranges of tensors, of every kind of op and in lists; ops on disjoint ranges do not wait for
each other; what is no range is refused on all ranks, and nothing outside of a range is ever written.

Method: a real cluster of three; each op on ranges beside the same op on tensors of their own; drawn ranges against a
model of the bytes.
"""

import random

import grpc
import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, collectives, handle, tensors, tracers, types

SUM = types.REDUCE_OP_SUM
SIZE = 3
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def text(name, offset, array):
    """The range of a tensor that has room for an array like this."""
    names = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64", np.dtype(np.uint8): "UINT8", np.dtype(np.int16): "INT16"}
    return "%s@%d:%s[%s]" % (name, offset, names[array.dtype], ",".join(str(one) for one in array.shape))


class Ranges(ClusterCase):
    size = SIZE

    def setUp(self):
        for agent in self.cluster.agents:
            agent.put(np.arange(4096, dtype=np.uint8), name="arena")

    def tearDown(self):
        for agent in self.cluster.agents:
            agent.delete("arena")

    def write(self, agent, offset, array):
        """Into the arena: an op of one rank alone would need a group, so the whole tensor is written."""
        whole = bytearray(agent.get("arena").tobytes())
        whole[offset:offset + array.nbytes] = array.tobytes()
        agent.put(np.frombuffer(bytes(whole), np.uint8), into="arena")

    def read(self, agent, offset, like):
        return np.frombuffer(agent.get("arena").tobytes()[offset:offset + like.nbytes], like.dtype).reshape(like.shape)

    def reduce(self, agent, source, target="", **fields):
        request = collectives.AllReduceRequest(input=handle(source), output=target, reduce_op=SUM, **fields)
        return agent.ops.AllReduce(request, timeout=LONG_S)

    def test_all_reduce_from_one_range_to_another_writes_nothing_else(self):
        def call(agent):
            array = np.full((2, 5), agent.rank + 1, np.float32)
            self.write(agent, 64, array)
            before = agent.get("arena").tobytes()
            answer = self.reduce(agent, text("arena", 64, array), text("arena", 1024, array))
            after = agent.get("arena").tobytes()
            self.assertEqual(self.read(agent, 1024, array).tolist(), [[6] * 5] * 2)
            self.assertEqual(after[:1024] + after[1064:], before[:1024] + before[1064:])
            return list(answer.output.spec.shape), answer.output.spec.dtype

        self.assertEqual(self.cluster.all(call), [([2, 5], types.DTYPE_FP32)] * SIZE)

    def test_in_place_and_to_a_new_tensor(self):
        def call(agent):
            array = np.full(7, agent.rank, np.int64)
            self.write(agent, 8, array)
            made = self.reduce(agent, text("arena", 8, array)).output.handle
            self.reduce(agent, text("arena", 8, array), text("arena", 8, array))
            new = agent.get(made)
            agent.delete(made)
            return new.tolist(), self.read(agent, 8, array).tolist()

        self.assertEqual(self.cluster.all(call), [([3] * 7, [3] * 7)] * SIZE)

    def test_a_name_and_a_handle_of_the_same_range_are_in_place(self):
        def call(agent):
            array = np.full(3, agent.rank, np.float32)
            self.write(agent, 0, array)
            found = agent.tensors.Stat(tensors.StatRequest(handle="arena"), timeout=LONG_S).info.tensor.handle
            self.reduce(agent, text("arena", 0, array), text(found, 0, array))
            return self.read(agent, 0, array).tolist()

        self.assertEqual(self.cluster.all(call), [[3] * 3] * SIZE)

    def test_gather_scatter_broadcast_all_to_all_and_a_list(self):
        def call(agent):
            mine = np.full(2, agent.rank, np.int16)
            all_of = np.repeat(np.arange(SIZE, dtype=np.int16), 2)
            self.write(agent, 0, mine)
            agent.ops.AllGather(collectives.AllGatherRequest(
                input=handle(text("arena", 0, mine)), output=text("arena", 100, all_of)), timeout=LONG_S)
            self.assertEqual(self.read(agent, 100, all_of).tolist(), all_of.tolist())
            agent.ops.AllToAll(collectives.AllToAllRequest(
                input=handle(text("arena", 100, all_of)), output=text("arena", 200, all_of)), timeout=LONG_S)
            self.assertEqual(self.read(agent, 200, all_of).tolist(), [agent.rank] * 6)
            source = {"input": handle(text("arena", 100, all_of))} if agent.rank == 1 else {}
            agent.ops.Broadcast(collectives.BroadcastRequest(root=1, output=text("arena", 300, all_of), **source),
                                timeout=LONG_S)
            self.assertEqual(self.read(agent, 300, all_of).tolist(), all_of.tolist())
            agent.ops.ReduceScatter(collectives.ReduceScatterRequest(
                input=handle(text("arena", 300, all_of)), output=text("arena", 400, mine), reduce_op=SUM), timeout=LONG_S)
            self.assertEqual(self.read(agent, 400, mine).tolist(), [SIZE * agent.rank] * 2)
            ranges = [text("arena", 500 + 4 * i, mine) for i in range(3)]
            agent.ops.AllReduce(collectives.AllReduceRequest(
                inputs=[handle(one) for one in ranges], outputs=ranges, reduce_op=SUM), timeout=LONG_S)
            return self.read(agent, 500, np.zeros(1, np.int16)).tolist()

        found = self.cluster.all(call)
        self.assertFalse(any(isinstance(one, support.Failure) for one in found), found)

    def test_send_and_recv(self):
        def call(agent):
            array = np.full(9, 5 + agent.rank, np.float32)
            if agent.rank == 0:
                self.write(agent, 40, array)
                agent.ops.Send(collectives.SendRequest(input=handle(text("arena", 40, array)), destination=2), timeout=LONG_S)
            if agent.rank == 2:
                agent.ops.Recv(collectives.RecvRequest(source=0, output=text("arena", 80, array)), timeout=LONG_S)
                return self.read(agent, 80, array).tolist()

        self.assertEqual(self.cluster.all(call)[2], [5] * 9)

    def test_an_op_on_a_range_does_not_wait_for_one_on_another(self):
        """Rank 0 receives what nobody has sent yet, into one half; the other half is reduced meanwhile."""
        array = np.zeros(64, np.float32)

        def call(agent):
            work = ""
            if agent.rank == 0:
                request = collectives.RecvRequest(source=1, output=text("arena", 0, array))
                setattr(request.options, "async", True)
                work = agent.ops.Recv(request, timeout=LONG_S).info.work
            half = text("arena", array.nbytes, array)
            self.reduce(agent, half, half)
            if agent.rank == 1:
                agent.ops.Send(collectives.SendRequest(input=handle(text("arena", 0, array)), destination=0), timeout=LONG_S)
            if work:
                agent.ops.Wait(collectives.WaitRequest(works=[work]), timeout=LONG_S)
            return True

        self.assertEqual(self.cluster.all(call), [True] * SIZE)

    def test_what_is_no_range_is_refused_on_all_ranks(self):
        rows = [("arena@", "", "BAD_RANGE"), ("arena@4", "", "BAD_RANGE"), ("arena@0:FP32[1025]", "", "RANGE_OUTSIDE"),
                ("arena@4096:UINT8[1]", "", "RANGE_OUTSIDE"), ("arena@2:FP32[1]", "", "RANGE_ALIGN"),
                ("nobody@0:FP32[1]", "", "NO_TENSOR"), ("arena@0:FP32[4]", "arena@4:FP32[4]", "RANGE_OVERLAP"),
                ("arena@0:FP32[4]", "arena", "RANGE_OVERLAP"), ("arena@0:FP32[4]", "arena@0:INT32[4]", "RANGE_OVERLAP"),
                ("arena@0:FP32[4]", "arena@64:FP32[5]", "OUT_SHAPE"), ("arena@0:UINT8[%s]" % ("1," * 400), "", "BAD_RANGE"),
                ("arena@0:FP64[4294967296,4294967296]", "", "BAD_SHAPE")]
        good = np.zeros(4, np.float32)
        for source, target, reason in rows:
            def call(agent):
                if agent.rank == 1:
                    return self.reduce(agent, source, target)
                return self.reduce(agent, text("arena", 0, good), text("arena", 0, good))

            for found in self.cluster.all(call):
                self.assertIsInstance(found, support.Failure, (source, target))
                self.assertEqual(found.reason, reason, (source, target, found))
        self.assertEqual(len(self.cluster.all(lambda agent: self.reduce(agent, text("arena", 0, good)))), SIZE)

    def test_a_range_is_refused_where_a_tensor_is_wanted(self):
        agent = self.cluster.agents[0]
        for call in (lambda: agent.get("arena@0:UINT8[1]"), lambda: agent.delete("arena@0:UINT8[1]"),
                     lambda: agent.put(np.zeros(1, np.uint8), into="arena@0:UINT8[1]")):
            with self.assertRaises(grpc.RpcError) as caught:
                call()
            self.assertEqual(caught.exception.code(), INVALID)

    def test_a_traced_range_is_refused_and_passes_with_no_grad(self):
        good = np.zeros(4, np.float32)

        def call(agent):
            agent.put(np.zeros(64, np.float32), name="w")
            agent.tracers.CreateTracer(tracers.CreateTracerRequest(name="t"), timeout=LONG_S)
            agent.tracers.Attach(tracers.AttachRequest(tracer="t", tensors=["w"]), timeout=LONG_S)
            try:
                with self.assertRaises(grpc.RpcError) as caught:
                    self.reduce(agent, text("w", 0, good))
                request = collectives.AllReduceRequest(input=handle(text("w", 0, good)), reduce_op=SUM)
                request.options.no_grad = True
                agent.delete(agent.ops.AllReduce(request, timeout=LONG_S).output.handle)
                return support.Failure(caught.exception).reason
            finally:
                agent.tracers.DeleteTracer(tracers.DeleteTracerRequest(tracer="t"), timeout=LONG_S)
                agent.delete("w")

        self.assertEqual(self.cluster.all(call), ["TRACED_RANGE"] * SIZE)

    def test_drawn_ranges_leave_what_a_model_says(self):
        """All ranks draw the same ops on disjoint or equal ranges, many in flight, and the same model."""
        draw = random.Random(7)
        ops = []
        for _ in range(60):
            count = draw.randint(1, 40)
            source = 4 * draw.randint(0, 1024 - count)
            target = draw.choice([source, 4 * draw.randint(0, 1024 - count)])
            if target == source or abs(target - source) >= 4 * count:
                ops.append((source, target, count))
        start = np.random.default_rng(3).integers(0, 50, 1024).astype(np.int32)
        model = [(start + rank).astype(np.int32) for rank in range(SIZE)]
        for source, target, count in ops:
            total = sum(one[source // 4:source // 4 + count].copy() for one in model)
            for one in model:
                one[target // 4:target // 4 + count] = total

        def call(agent):
            agent.put((start + agent.rank).astype(np.int32).view(np.uint8), into="arena")
            works = []
            for source, target, count in ops:
                request = collectives.AllReduceRequest(
                    input=handle("arena@%d:INT32[%d]" % (source, count)), output="arena@%d:INT32[%d]" % (target, count), reduce_op=SUM)
                setattr(request.options, "async", True)
                works.append(agent.ops.AllReduce(request, timeout=LONG_S).info.work)
            for one in agent.ops.Wait(collectives.WaitRequest(works=works), timeout=LONG_S).works:
                self.assertEqual(one.error.text, "")
            return agent.get("arena").tobytes()

        for rank, found in enumerate(self.cluster.all(call)):
            self.assertEqual(found, model[rank].tobytes(), rank)


if __name__ == "__main__":
    support.main()
