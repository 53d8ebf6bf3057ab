"""Goal: a Backward that cannot go on fails on all ranks that it needs, in time, and the rest goes on.

Method: real processes; mistakes of one rank, tapes that differ, callers that leave, agents that are
killed, stopped and started again, groups that are deleted, limits that are reached.
"""

import signal
import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, Cluster, ClusterCase, collectives, coordinator, handle, tracers, types
from tracers_case import (
    TracersCase, all_reduce, attach, backward, call, clear, create, floats, listed, options,
    traced,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
MISSING = grpc.StatusCode.NOT_FOUND
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
GONE = grpc.StatusCode.UNAVAILABLE
CANCELLED = grpc.StatusCode.CANCELLED
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class Faults(TracersCase):
    options = ("--tape-max", "50", "--tracers-max", "4")

    def prepared(self, agent, count=1):
        name = traced(agent, floats(1, 2))
        results = [all_reduce(agent, name) for _ in range(count)]
        return name, results[-1]

    def assert_all_failed(self, found, code, reason, *words):
        for failure in found:
            self.assert_failed(failure, code, reason, *words)
        self.on_all(clear)
        self.assert_works()

    def test_what_one_rank_does_wrong_all_hear_at_once(self):
        def work(agent):
            _, result = self.prepared(agent)
            gradient = floats(1, 2, 3) if agent.rank == 1 else floats(1, 2)
            return backward(agent, [(result, gradient)])

        found = self.cluster.all(work)
        self.assert_all_failed(found, INVALID, "SHAPE_MISMATCH", "FP32[3]", "FP32[2]")

    def test_all_groups_of_the_tape_hear_of_it(self):
        self.cluster.group("left", [0, 1])
        self.cluster.group("right", [1, 2])

        def work(agent):
            name = traced(agent, floats(1))
            if agent.rank > 0:
                name = all_reduce(agent, name, group="right")
            if agent.rank < 2:  # rank 1 has to come through this one first
                all_reduce(agent, name, group="left")
            given = [("tensor:9.0123456789abcdef.1", floats(1))] if agent.rank == 0 else []
            return backward(agent, given)

        began = time.monotonic()
        found = self.cluster.all(work)
        self.assertLess(time.monotonic() - began, LONG_S / 2)
        self.assert_all_failed(found, PRECONDITION, "FOREIGN_HANDLE")
        for group, ranks in (("left", [0, 1]), ("right", [1, 2])):  # and both go on
            sums = self.cluster.on(ranks, lambda agent, group=group: agent.get(
                all_reduce(agent, agent.put(floats(1)), group=group)))
            self.assertEqual([list(one) for one in sums], [[2], [2]])

    def test_tapes_that_differ_are_found(self):
        def work(agent):
            name = traced(agent, floats(1))
            first = all_reduce(agent, name)
            no_grad = options(no_grad=agent.rank == 2)
            second = all_reduce(agent, name, options=no_grad)
            return backward(agent, [(first if agent.rank == 2 else second, floats(1))])

        self.assert_all_failed(self.cluster.all(work), PRECONDITION, "TAPE_MISMATCH", "world")

    def test_a_rank_that_does_not_come_is_named(self):
        def work(agent):
            _, result = self.prepared(agent)
            if agent.rank == 1:
                return None
            return backward(agent, [(result, floats(1, 2))], options=options(timeout_ms=700))

        found = self.cluster.all(work)
        for failure in (found[0], found[2]):
            self.assert_failed(failure, LATE, "TIMEOUT", "rank 1")
        late = self.cluster.on([1], lambda agent: backward(agent))[0]
        self.assert_failed(late, LATE, "TIMEOUT")  # its op has ended like that
        self.on_all(clear)
        self.assert_works()

    def test_a_caller_that_goes_away_ends_it_for_all(self):
        def work(agent):
            _, result = self.prepared(agent)
            request = tracers.BackwardRequest(tracer="t")
            request.gradients.add(tensor=result, gradient=agent.put(floats(1, 2)))
            if agent.rank == 0:
                future = agent.tracers.Backward.future(request, timeout=LONG_S)
                time.sleep(0.3)
                future.cancel()
                return None
            if agent.rank == 2:
                time.sleep(1)
            return agent.tracers.Backward(request, timeout=LONG_S)

        found = self.cluster.all(work)
        for failure in found[1:]:
            self.assert_failed(failure, CANCELLED, "CALLER_GONE", "rank 0")
        self.on_all(clear)
        self.assert_works()

    def test_an_op_without_a_gradient_is_refused_on_all_ranks(self):
        def product(agent):
            name = traced(agent, floats(1, 2)) if agent.rank == 0 else agent.put(floats(1, 2))
            return all_reduce(agent, name, types.REDUCE_OP_PROD)

        found = self.cluster.all(product)
        self.assert_all_failed(found, INVALID, "BAD_REDUCE_OP", "prod")

    def test_lists_by_rank_and_from_a_root_are_refused_on_traced_tensors(self):
        def by_rank(agent):
            request = collectives.AllGatherRequest(
                input=handle(traced(agent, floats(1))), form=collectives.FORM_LIST)
            return agent.ops.AllGather(request, timeout=LONG_S)

        def from_root(agent):
            request = collectives.BroadcastRequest(coalesced=True)
            if agent.rank == 0:
                request.inputs.extend([handle(traced(agent, floats(1)))] * 2)
            return agent.ops.Broadcast(request, timeout=LONG_S)

        self.assert_all_failed(self.cluster.all(by_rank), INVALID, "TRACED_LIST")
        self.assert_all_failed(self.cluster.all(from_root), INVALID, "TRACED_LIST")

    def test_tapes_do_not_grow_without_limit(self):
        def work(agent):
            name = traced(agent, floats(1))
            for _ in range(60):
                agent.delete(all_reduce(agent, name))

        found = self.cluster.all(work)
        self.assert_all_failed(found, EXHAUSTED, "TAPE_LIMIT", "50", "--tape-max")
        agent = self.cluster.agents[0]
        for name in ("a", "b", "c"):
            create(agent, name)
        failure = self.fails(lambda: create(agent, "d"))
        self.assert_failed(failure, EXHAUSTED, "TRACER_LIMIT", "4", "--tracers-max")

    def test_tensors_are_attached_all_or_none(self):
        agent = self.cluster.agents[0]
        create(agent, "many")
        handles = [agent.put(floats(1)) for _ in range(51)]
        failure = self.fails(lambda: attach(agent, *handles, tracer="many"))
        self.assert_failed(failure, EXHAUSTED, "TAPE_LIMIT", "50")
        self.assertEqual(listed(agent)["many"].attached_count, 0)

    def test_a_tensor_without_a_shape_cannot_be_attached_or_asked_about(self):
        first, second = self.cluster.agents[:2]
        request = collectives.RecvRequest(source=1, options=options(wait=True))
        coming = first.ops.Recv(request, timeout=LONG_S)
        name = coming.output.handle
        self.assert_failed(self.fails(lambda: attach(first, name)), PRECONDITION, "PENDING", name)
        asked = collectives.InferRequest(all_gather=collectives.AllGatherRequest(input=handle(name)))
        self.assert_failed(self.fails(lambda: first.ops.Infer(asked, timeout=LONG_S)), PRECONDITION, "PENDING", name)
        second.ops.Send(collectives.SendRequest(input=handle(second.put(floats(1, 2))), destination=0), timeout=LONG_S)
        first.ops.Wait(collectives.WaitRequest(works=[coming.info.work]), timeout=LONG_S)
        self.assertEqual(list(first.ops.Infer(asked, timeout=LONG_S).result.shape), [2 * self.size])
        attach(first, name)

    def test_wrong_words_have_answers(self):
        agent = self.cluster.agents[0]
        name = agent.put(floats(1))
        number = agent.put(np.array([1], np.int32))
        self.assert_failed(self.fails(lambda: create(agent)), grpc.StatusCode.ALREADY_EXISTS,
                           "NAME_TAKEN")
        self.assert_failed(self.fails(lambda: create(agent, "")), INVALID, "BAD_NAME")
        self.assert_failed(self.fails(lambda: attach(agent, name, tracer="u")), MISSING,
                           "NO_TRACER")
        self.assert_failed(self.fails(lambda: attach(agent)), INVALID, "TENSOR_COUNT")
        self.assert_failed(self.fails(lambda: attach(agent, *[name] * 1025)), INVALID,
                           "TENSOR_COUNT")
        self.assert_failed(self.fails(lambda: attach(agent, name, number)), INVALID,
                           "DTYPE_UNSUPPORTED", "INT32")
        self.assertEqual(listed(agent)["t"].attached_count, 0)  # all or none
        self.assert_failed(self.fails(lambda: backward(agent, tracer="u")), MISSING, "NO_TRACER")
        self.assert_failed(self.fails(lambda: backward(agent, wanted=[name] * 1025)), INVALID,
                           "GRADIENT_COUNT")
        self.assert_failed(self.fails(lambda: backward(agent, wanted=[name])), PRECONDITION,
                           "NOT_ON_TAPE")
        self.assert_failed(self.fails(lambda: clear(agent, "u")), MISSING, "NO_TRACER")
        failure = self.fails(lambda: agent.tracers.DeleteTracer(
            tracers.DeleteTracerRequest(tracer="u"), timeout=LONG_S))
        self.assert_failed(failure, MISSING, "NO_TRACER")

    def test_names_of_tracers_in_ops_are_checked_for_all(self):
        def unknown(agent):
            names = ["nobody"] if agent.rank == 0 else []
            return all_reduce(agent, agent.put(floats(1)), options=options(tracers=names))

        self.assert_all_failed(self.cluster.all(unknown), MISSING, "NO_TRACER", "nobody")

        def many(agent):
            names = ["t"] * 17 if agent.rank == 0 else []
            return all_reduce(agent, agent.put(floats(1)), options=options(tracers=names))

        self.assert_all_failed(self.cluster.all(many), INVALID, "TRACER_COUNT", "17")

    def test_tags_of_gradients_are_not_for_callers(self):
        agent = self.cluster.agents[0]
        for tag in (2**31, 2**32 - 1):
            failure = self.fails(lambda: call(agent, "Send", agent.put(floats(1)),
                                              destination=1, tag=tag))
            self.assert_failed(failure, INVALID, "BAD_TAG", str(tag))
            failure = self.fails(lambda: call(agent, "Recv", source=1, tag=tag))
            self.assert_failed(failure, INVALID, "BAD_TAG", str(tag))

    def test_a_tracer_that_is_walked_can_be_deleted_and_not_cleared(self):
        deleted = threading.Event()

        def work(agent):
            name, result = self.prepared(agent)
            if agent.rank == 1:
                deleted.wait(LONG_S)
            request = tracers.BackwardRequest(tracer="t", options=options(wait=True))
            request.gradients.add(tensor=result, gradient=agent.put(floats(1, 2)))
            response = agent.tracers.Backward(request, timeout=LONG_S)
            if agent.rank == 0:
                self.assertEqual(self.fails(lambda: clear(agent)).reason, "TRACER_BUSY")
                agent.tracers.DeleteTracer(tracers.DeleteTracerRequest(tracer="t"), timeout=LONG_S)
                deleted.set()
            return list(agent.get(response.gradients[0].gradient.handle))

        self.assertEqual(self.on_all(work), [[3, 6]] * 3)


class Deaths(unittest.TestCase):
    """Clusters that lose ranks."""

    options = ()
    assert_failed = ClusterCase.assert_failed

    def setUp(self):
        self.cluster = Cluster(3, *self.options)
        self.cluster.all(create)

    def tearDown(self):
        self.cluster.stop()

    def record(self, agent):
        name = traced(agent, floats(1))
        return name, all_reduce(agent, name)

    def stop_in_the_middle(self, closes):
        """What the other rank hears when rank 0's agent stops, its client going away or not."""
        self.cluster.group("pair", [0, 1])

        def record(agent):
            name, result = self.record(agent)
            if agent.rank < 2:
                all_reduce(agent, name, group="pair")
            return name, result

        made = self.cluster.all(record)
        found = {}

        def walk(rank, wait):
            agent = self.cluster.agents[rank]
            request = tracers.BackwardRequest(tracer="t", options=options(wait=wait))
            request.gradients.add(tensor=made[rank][1], gradient=agent.put(floats(1)))
            try:
                found[rank] = agent.tracers.Backward(request, timeout=LONG_S)
            except grpc.RpcError as error:
                found[rank] = support.Failure(error)

        threads = [threading.Thread(target=walk, args=(rank, False)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        walk(0, True)  # behind the first one: of the same tape
        if closes:
            self.cluster.agents[0].close()
        self.cluster.agents[0].program.send(signal.SIGTERM)
        for thread in threads:
            thread.join()
        self.assertEqual(self.cluster.agents[0].program.stop(), 0)
        return found[1]

    def test_an_agent_that_stops_ends_its_backwards(self):
        self.assertIn(self.stop_in_the_middle(False).reason, ("STOPPING", "RANK_LOST"))

    def test_an_agent_that_stops_as_its_client_leaves_ends_its_backwards(self):
        reason = self.stop_in_the_middle(True).reason
        self.assertIn(reason, ("STOPPING", "RANK_LOST", "CALLER_GONE"))

    def test_a_group_that_is_deleted_takes_its_records_along(self):
        self.cluster.group("short", [0, 1, 2])

        def record(agent):
            name = traced(agent, floats(1))
            return all_reduce(agent, name, group="short")

        made = self.cluster.all(record)
        member = types.Member(rank=0, incarnation=self.cluster.agents[0].describe().incarnation)
        self.cluster.members.DeleteGroup(
            coordinator.DeleteGroupRequest(member=member, name="short"), timeout=LONG_S)
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            found = self.cluster.all(
                lambda agent: backward(agent, [(made[agent.rank], floats(1))],
                                       options=options(timeout_ms=300)))
            if all(one.reason == "NO_GROUP" for one in found):
                break
            time.sleep(0.05)
        for failure in found:
            self.assert_failed(failure, MISSING, "NO_GROUP", "short")

    def test_a_death_in_the_middle_is_told_and_a_tape_does_not_outlive_it(self):
        made = self.cluster.all(self.record)
        found = {}

        def walk(rank):
            agent = self.cluster.agents[rank]
            try:
                found[rank] = backward(agent, [(made[rank][1], floats(1))])
            except grpc.RpcError as error:
                found[rank] = support.Failure(error)

        threads = [threading.Thread(target=walk, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        self.cluster.agents[2].program.send(signal.SIGKILL)
        for thread in threads:
            thread.join()
        for rank in (0, 1):
            self.assert_failed(found[rank], GONE, "RANK_LOST", "rank 2")
        create(self.cluster.replace(2))
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            late = self.cluster.on([0], lambda agent: backward(agent, [(made[0][1], floats(1))]))[0]
            if late.reason == "TAPE_STALE":
                break
            self.assertIn(late.reason, ("RANK_LOST", "EPOCH_CHANGED"))
            time.sleep(0.05)
        self.assert_failed(late, PRECONDITION, "TAPE_STALE", "world")
        self.cluster.group("fresh", [0, 1, 2])
        sums = self.cluster.all(lambda agent: agent.get(
            all_reduce(agent, agent.put(floats(1)), group="fresh")))
        self.assertEqual([list(one) for one in sums], [[3]] * 3)


if __name__ == "__main__":
    support.main()
