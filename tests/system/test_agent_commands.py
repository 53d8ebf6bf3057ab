"""Goal: a stream of commands does what the calls of their own would, in its order, and survives all.

Method: stock stubs against two real agents; what is sent, how it ends, and what is left behind.
"""

import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import (
    LONG_S, Cluster, ClusterCase, array_of, collectives, handle, inline, spec_of, tensors, types,
)
from commands_stream import Stream, commands, run

INVALID = int(grpc.StatusCode.INVALID_ARGUMENT.value[0])
MISSING = int(grpc.StatusCode.NOT_FOUND.value[0])
PRECONDITION = int(grpc.StatusCode.FAILED_PRECONDITION.value[0])
STOPPED = int(grpc.StatusCode.UNAVAILABLE.value[0])


from tutti.v1 import functions_service_pb2 as functions  # noqa: E402
from tutti.v1 import tracers_service_pb2 as tracers  # noqa: E402


def put(number, array, name="", into="", **more):
    request = tensors.PutRequest(spec=spec_of(array), name=name, into=into)
    return run(number, put=request, payload=array.tobytes(), **more)


def get(number, name, **more):
    return run(number, get=tensors.GetRequest(handle=name), **more)


def reduce_of(number, array, **more):
    request = collectives.AllReduceRequest(input=inline(array), reduce_op=types.REDUCE_OP_SUM)
    return run(number, all_reduce=request, payload=array.tobytes(), **more)


def reduce_in_place(number, name, **options):
    return run(
        number,
        all_reduce=collectives.AllReduceRequest(
            input=handle(name), output=name, reduce_op=types.REDUCE_OP_SUM,
            options=types.OpOptions(**options),
        ),
    )


class Commands(ClusterCase):
    size = 2
    options = ("--memory-limit", "256MiB", "--commands-max", "64")

    def assert_error(self, answer, code, reason, *words):
        self.assertEqual(answer.WhichOneof("result"), "error", answer)
        self.assertEqual((answer.error.code, answer.error.reason), (code, reason), answer)
        for word in words:
            self.assertIn(word, answer.error.text)

    # ------------------------------------------------------------------ what it takes

    def test_every_unary_call_of_ops_tensors_and_tracers_is_a_command(self):
        known = {}
        for message in (commands.RunRequest, commands.RunResponse):
            for field in message.DESCRIPTOR.oneofs[0].fields:
                if field.name != "error":
                    known.setdefault(field.number, []).append(field.message_type.full_name)
        wanted = set()
        streams = {"Upload", "Download", "ShareGpu", "ShareEvents", "Lease", "Serve"}
        shares = {"Share"}  # what a stream has shared would outlast it
        shares |= {"ListFunctions"}  # for people
        shares |= {"CloseLease"}  # of the stream of a lease, which is another one
        shares |= {"Cancel"}  # it would stand behind the op that it ends; RunRequest.cancel does not
        for module in (collectives, tensors, tracers, functions):
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    if method.name not in streams | shares:
                        wanted.add((method.input_type.full_name, method.output_type.full_name))
        self.assertEqual({tuple(pair) for pair in known.values()}, wanted)

    def test_calls_of_both_services_depend_on_each_other_in_the_order_sent(self):
        array = np.arange(5, dtype=np.float32)

        def work(agent):
            return Stream(agent).all(
                put(1, array, "x"),
                reduce_in_place(2, "x"),
                get(3, "x"),
                run(4, copy=tensors.CopyRequest(handle="x", name="y")),
                reduce_in_place(5, "x", **{"async": True}),
                get(6, "x"),
                get(7, "y"),
                run(8, delete=tensors.DeleteRequest(handles=["x", "y"])),
                run(9, stat=tensors.StatRequest(handle="x")),
            )

        for answers in self.cluster.all(work):
            self.assertEqual(sorted(answers), list(range(1, 10)))
            for number, factor in ((3, 2), (6, 4), (7, 2)):
                answer = answers[number]
                np.testing.assert_array_equal(
                    array_of(answer.get.tensor, answer.payload), array * factor
                )
            self.assertTrue(answers[5].all_reduce.info.work.startswith("work:"))
            self.assert_error(answers[9], MISSING, "NO_TENSOR")

    def test_gradients_flow_through_streams(self):
        one = np.array([1, 2], np.float32)

        def work(agent):
            stream = Stream(agent)
            stream.send(
                put(1, one, "x"),
                put(2, one * 3, "g"),
                run(3, create_tracer=tracers.CreateTracerRequest(name="tape")),
                run(4, attach=tracers.AttachRequest(tracer="tape", tensors=["x"])),
                run(5, all_reduce=collectives.AllReduceRequest(
                    input=handle("x"), reduce_op=types.REDUCE_OP_SUM)),
            )
            first = {answer.id: answer for answer in (stream.read() for _ in range(5))}
            given = tracers.GradientArg(tensor=first[5].all_reduce.output.handle, gradient="g")
            stream.send(
                run(6, backward=tracers.BackwardRequest(tracer="tape", gradients=[given])),
                run(7, list_tracers=tracers.ListTracersRequest()),
                run(8, delete_tracer=tracers.DeleteTracerRequest(tracer="tape")),
                run(9, clear_tracer=tracers.ClearTracerRequest(tracer="tape")),
            )
            stream.done()
            answers = stream.rest()
            self.assertEqual(answers[7].WhichOneof("result"), "list_tracers")
            self.assert_error(answers[9], MISSING, "NO_TRACER")
            return agent.get(answers[6].backward.gradients[0].gradient.handle)

        for gradient in self.cluster.all(work):
            np.testing.assert_array_equal(gradient, one * 3 * self.size)

    def test_bytes_travel_in_the_message_itself(self):
        big = np.arange(700_000, dtype=np.float32)  # nearly what one message carries

        def work(agent):
            return Stream(agent).all(reduce_of(1, big), reduce_of(2, big[:0]))

        for answers in self.cluster.all(work):
            result = array_of(answers[1].all_reduce.output, answers[1].payload)
            np.testing.assert_array_equal(result, big * 2)
            self.assertEqual(list(answers[2].all_reduce.output.spec.shape), [0])

    def test_answers_come_as_commands_end(self):
        agent, other = self.cluster.agents
        stream = Stream(agent)
        one = np.ones(2, np.float32)
        stream.send(reduce_of(1, one), put(2, one, "early"), run(3, test=collectives.TestRequest()))
        self.assertEqual({stream.read().id, stream.read().id}, {2, 3})  # 1 waits for rank 1
        self.assertEqual(Stream(other).all(reduce_of(9, one))[9].payload, (one * 2).tobytes())
        self.assertEqual(stream.read().id, 1)
        stream.done()
        self.assertEqual(stream.rest(), {})

    def test_ten_thousand_small_ones_are_done_in_order(self):
        count = 10_000
        one = np.ones(2, np.int32)

        def work(agent):
            stream = Stream(agent, timeout=300)
            stream.send(put(0, one, "n"))
            stream.send(*[reduce_in_place(number, "n") for number in range(1, count)])
            stream.done()
            sequences = {}
            for answer in stream.call:
                if answer.id > 0:
                    self.assertEqual(answer.WhichOneof("result"), "all_reduce", answer)
                    sequences[answer.id] = answer.all_reduce.info.sequence
            first = sequences[1]
            return all(sequences[number] == first + number - 1 for number in range(1, count))

        self.assertEqual(self.cluster.all(work), [True, True])

    # ------------------------------------------------------------------ what fails

    def test_a_failed_command_is_answered_by_its_id_and_the_others_go_on(self):
        agent = self.cluster.agents[0]
        one = np.ones(1, np.float32)
        answers = Stream(agent).all(
            get(7, "nobody"),
            run(8),
            put(2**64 - 1, one, "x"),
            run(9, get=tensors.GetRequest(handle="x"), options=commands.RunOptions()),
            run(10, put=tensors.PutRequest(spec=spec_of(one), payload=one.tobytes())),
            run(11, barrier=collectives.BarrierRequest(group="none")),
            get(12, "x"),
        )
        self.assert_error(answers[7], MISSING, "NO_TENSOR", "nobody")
        self.assert_error(answers[8], INVALID, "NO_COMMAND")
        self.assert_error(answers[9], INVALID, "BAD_ORDER")
        self.assert_error(answers[10], INVALID, "COMMAND_PAYLOAD", "4 bytes")
        self.assert_error(answers[11], MISSING, "NO_GROUP")
        self.assertEqual(answers[12].payload, one.tobytes())
        self.assertEqual(answers[2**64 - 1].WhichOneof("result"), "put")

    def test_a_mismatch_is_told_on_both_streams(self):
        def work(agent):
            array = np.ones(2 + agent.rank, np.float32)
            return Stream(agent).all(reduce_of(1, array), reduce_of(2, np.ones(1, np.float32)))

        for answers in self.cluster.all(work):
            self.assert_error(answers[1], INVALID, "SHAPE_MISMATCH")
            self.assertEqual(answers[1].error.group, "world")
            self.assertGreater(answers[1].error.sequence, 0)
            self.assertEqual(answers[2].payload, np.full(1, 2, np.float32).tobytes())

    def test_stop_on_error_skips_what_is_behind(self):
        agent = self.cluster.agents[0]
        one = np.ones(1, np.float32)
        answers = Stream(agent).all(
            put(1, one, "x", stop_on_error=True),
            get(2, "nobody"),
            get(3, "nobody", stop_on_error=True),
            put(4, one, "y"),
            run(5),
        )
        self.assertEqual(answers[1].WhichOneof("result"), "put")
        self.assert_error(answers[2], MISSING, "NO_TENSOR")
        self.assert_error(answers[3], MISSING, "NO_TENSOR")
        self.assert_error(answers[4], PRECONDITION, "SKIPPED", "command 3", "NO_TENSOR")
        self.assert_error(answers[5], INVALID, "NO_COMMAND")
        answers = Stream(agent).all(
            get(1, "nobody", options=commands.RunOptions(stop_on_error=True)), put(2, one, "y")
        )
        self.assert_error(answers[2], PRECONDITION, "SKIPPED", "command 1")
        self.assertEqual(agent.stats().tensor_count, 1)

    def test_the_id_of_an_unanswered_command_ends_the_stream(self):
        agent, other = self.cluster.agents
        one = np.ones(2, np.float32)
        stream = Stream(agent)
        stream.send(reduce_of(5, one), reduce_of(5, one), put(6, one, "never"))
        until = time.monotonic() + LONG_S
        while agent.stats().op_running_count == 0:
            self.assertLess(time.monotonic(), until)
        time.sleep(0.05)  # let all come, right behind the first, before the op may end
        Stream(other).all(reduce_of(1, one))
        failure, answers = stream.end()
        self.assert_failed(failure, grpc.StatusCode.INVALID_ARGUMENT, "DUPLICATE_ID", "5")
        self.assertEqual([answer.id for answer in answers], [5])
        self.assertEqual(answers[0].payload, (one * 2).tobytes())
        self.assertEqual(agent.stats().tensor_count, 0)
        self.assert_works()

    def test_an_id_may_be_used_again_once_answered(self):
        stream = Stream(self.cluster.agents[0])
        for _ in range(200):
            stream.send(run(3, list=tensors.ListRequest()))
            self.assertEqual(stream.read().WhichOneof("result"), "list")
        stream.done()
        self.assertEqual(stream.rest(), {})

    def test_bytes_that_are_no_message_end_the_stream(self):
        agent = self.cluster.agents[0]
        raw = agent.channel.stream_stream("/tutti.v1.CommandsService/Run")
        for bad in (b"\xff\xff\xff", b"\x52\x05\x0a"):
            failure = self.fails(lambda: list(raw(iter([bad]), timeout=LONG_S)))
            self.assert_failed(failure, grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_MESSAGE")
        self.assert_works()

    # ------------------------------------------------------------------ limits

    def test_a_stream_is_not_read_from_while_too_many_are_unanswered(self):
        agent, other = self.cluster.agents
        one = np.ones(1, np.float32)
        for options, limit in ((None, 64), (commands.RunOptions(in_flight_max=3), 3)):
            stream = Stream(agent)
            stream.send(reduce_of(0, one, options=options))
            stream.send(*[reduce_of(number, one) for number in range(1, 100)])
            until = time.monotonic() + LONG_S
            while agent.stats().op_running_count < limit:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            time.sleep(0.1)
            self.assertEqual(agent.stats().op_running_count, limit)
            stream.done()
            answers = Stream(other).all(*[reduce_of(number, one) for number in range(100)])
            self.assertEqual(len(answers), 100)
            self.assertEqual(sorted(stream.rest()), list(range(100)))

    def test_a_client_that_does_not_read_costs_no_more_than_the_limit(self):
        agent = self.cluster.agents[0]
        big = np.zeros(700_000, np.float32)
        agent.put(big, name="big")
        stream = Stream(agent)
        stream.send(*[get(number, "big") for number in range(200)])
        stream.done()
        time.sleep(0.3)
        self.assertLessEqual(agent.stats().call_running_count, 64)
        self.assertEqual(len(stream.rest()), 200)

    # ------------------------------------------------------------------ going away

    def test_a_client_that_goes_away_cancels_what_it_began(self):
        agent, other = self.cluster.agents
        one = np.ones(2, np.float32)
        stream = Stream(agent)
        stream.send(put(1, one, "x"))
        stream.read()
        stream.send(*[reduce_of(number, one) for number in range(2, 10)])
        while agent.stats().op_running_count < 8:
            time.sleep(0.01)
        stream.call.cancel()
        until = time.monotonic() + LONG_S
        while agent.stats().op_running_count > 0:  # else the other rank may come before the news
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        failure = self.fails(
            lambda: other.ops.AllReduce(
                collectives.AllReduceRequest(
                    input=inline(one), reduce_op=types.REDUCE_OP_SUM, payload=one.tobytes()
                ),
                timeout=LONG_S,
            )
        )
        self.assert_failed(failure, grpc.StatusCode.CANCELLED, "CALLER_GONE")
        other_answers = Stream(other).all(*[reduce_of(number, one) for number in range(7)])
        for answer in other_answers.values():
            self.assertEqual(answer.error.reason, "CALLER_GONE")
        self.assertEqual(agent.stats().tensor_count, 1)  # what was answered stays
        self.assert_works()

    def test_a_command_is_cancelled_by_its_id(self):
        agent, other = self.cluster.agents
        one = np.ones(2, np.float32)
        stream = Stream(agent)
        stream.send(commands.RunRequest(options=commands.RunOptions(queue=True), cancel=True))
        stream.send(reduce_of(1, one), reduce_of(2, one))
        while agent.stats().op_running_count < 2:
            time.sleep(0.01)
        stream.send(commands.RunRequest(id=2, cancel=True), commands.RunRequest(id=77, cancel=True))
        cancelled = stream.read()
        self.assertEqual((cancelled.id, cancelled.error.reason), (2, "CALLER_GONE"))
        told = Stream(other).all(reduce_of(1, one), reduce_of(2, one))
        self.assertEqual([told[1].error.reason, told[2].error.reason], ["", "CALLER_GONE"])
        first = stream.read()
        self.assertEqual((first.id, first.error.reason), (1, ""))
        stream.send(commands.RunRequest(id=1, cancel=True))  # it has ended: nothing comes of it
        stream.done()
        self.assertEqual(stream.rest(), {})
        self.assert_works()

    def test_async_ops_outlive_their_stream(self):
        agent, other = self.cluster.agents
        one = np.ones(2, np.float32)
        stream = Stream(agent)
        stream.send(put(1, one, "x"), reduce_in_place(2, "x", **{"async": True}))
        work = [stream.read() for _ in range(2)][1].all_reduce.info.work
        stream.call.cancel()
        time.sleep(0.05)
        Stream(other).all(reduce_of(1, one))
        status = agent.ops.Wait(collectives.WaitRequest(works=[work]), timeout=LONG_S).works[0]
        self.assertEqual(status.error.reason, "")
        self.assertEqual(list(agent.get("x")), [2, 2])

    def test_streams_that_break_at_any_moment_leave_nothing(self):
        agent = self.cluster.agents[0]
        one = np.ones(2, np.float32)
        for turn in range(30):
            stream = Stream(agent)
            stream.send(*[put(number, one) for number in range(40)])
            stream.send(*[reduce_of(number, one) for number in range(40, 60)])
            if turn % 3 > 0:
                for _ in range(turn):
                    stream.read()
            stream.call.cancel()
        until = time.monotonic() + LONG_S
        while agent.stats().op_running_count > 0 and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(agent.stats().op_running_count, 0)
        self.level()
        self.assert_works()

    def level(self):
        """Call on each rank as many barriers as it is behind."""
        last = [
            next((group.sequence for group in agent.stats().groups if group.group == "world"), 0)
            for agent in self.cluster.agents
        ]
        for agent, sequence in zip(self.cluster.agents, last):
            for _ in range(max(last) - sequence):
                self.fails(
                    lambda: agent.ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)
                )

    def test_the_deadline_of_the_stream_is_its_commands_deadline(self):
        agent = self.cluster.agents[0]
        stream = Stream(agent, timeout=0.4)
        stream.send(reduce_of(1, np.ones(1, np.float32)))
        failure, _ = stream.end()
        self.assertEqual(failure.code, grpc.StatusCode.DEADLINE_EXCEEDED)
        self.level()
        self.assert_works()

    # ------------------------------------------------------------------ sync

    def test_sync_waits_for_all_that_was_begun_before(self):
        agent, other = self.cluster.agents
        one = np.ones(2, np.float32)
        stream = Stream(agent)
        stream.send(
            put(1, one, "x"), reduce_in_place(2, "x", **{"async": True}), reduce_of(3, one),
            run(4, sync=collectives.SyncRequest()),
            run(5, sync=collectives.SyncRequest(group="other")),
        )
        self.assertEqual({stream.read().id for _ in range(3)}, {1, 2, 5})
        answers = Stream(other).all(reduce_of(1, one), reduce_of(2, np.ones(3, np.float32)))
        self.assert_error(answers[2], INVALID, "SHAPE_MISMATCH")
        stream.done()
        rest = stream.rest()
        self.assertEqual(rest[4].sync.waited_count, 2)
        self.assertEqual(rest[4].sync.failed_count, 1)
        self.assertEqual(rest[4].sync.error.reason, "SHAPE_MISMATCH")
        done = agent.ops.Sync(collectives.SyncRequest(group="world"), timeout=LONG_S)
        self.assertEqual((done.waited_count, done.failed_count), (0, 0))

    def test_sync_gives_up_in_time_and_says_what_runs(self):
        agent, other = self.cluster.agents
        one = np.ones(2, np.float32)
        stream = Stream(agent)
        stream.send(reduce_of(1, one))
        while agent.stats().op_running_count < 1:
            time.sleep(0.01)
        late = self.fails(lambda: agent.ops.Sync(collectives.SyncRequest(timeout_ms=50)))
        self.assert_failed(
            late, grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT", "1 of 1", "of group world"
        )
        bad = self.fails(lambda: agent.ops.Sync(collectives.SyncRequest(group="no name")))
        self.assert_failed(bad, grpc.StatusCode.INVALID_ARGUMENT, "BAD_NAME")
        waiting = agent.ops.Sync.future(collectives.SyncRequest(), timeout=LONG_S)
        time.sleep(0.05)
        self.assertFalse(waiting.done())
        Stream(other).all(reduce_of(1, one))
        self.assertEqual(waiting.result().waited_count, 1)
        stream.done()
        stream.rest()


class Stopping(unittest.TestCase):
    def test_an_agent_that_stops_answers_what_it_has_and_says_so(self):
        cluster = Cluster(2, "--commands-max", "4")
        try:
            agent = cluster.agents[0]
            one = np.ones(1, np.float32)
            stream = Stream(agent)
            stream.send(put(0, one, "x"))
            self.assertEqual(stream.read().id, 0)
            stream.send(*[reduce_of(number, one) for number in range(1, 9)])
            while agent.stats().op_running_count < 4:
                time.sleep(0.01)
            stopper = threading.Thread(target=agent.program.stop)
            stopper.start()
            failure, answers = stream.end()
            stopper.join()
            self.assertEqual(failure.code, grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(failure.reason, "STOPPING")
            self.assertEqual([answer.id for answer in answers], [1, 2, 3, 4])
            for answer in answers:
                self.assertEqual((answer.error.code, answer.error.reason), (STOPPED, "STOPPING"))
            self.assertEqual(agent.program.exit_code, 0, agent.program.log())
        finally:
            cluster.stop()


if __name__ == "__main__":
    support.main()
