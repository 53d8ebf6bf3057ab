"""Goal: one controller drives all agents of a group as if they were one machine, and nothing of it is
left when it is gone.

Method: stock stubs against two and four real agents; what commands do on each worker, how they
fail, and what processes that die leave behind.
"""

import os
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, tensors, types
from session_stream import Failed, Register, Session, arg_of, functions, sessions, sessions_stub

INVALID = int(grpc.StatusCode.INVALID_ARGUMENT.value[0])
MISSING = int(grpc.StatusCode.NOT_FOUND.value[0])
SUM = types.REDUCE_OP_SUM
PLUGINS = os.path.join(support.BUILD, "tests", "plugins")


def reduce_of(src, reduce_op=SUM, **fields):
    return {"all_reduce": sessions.DriveReduce(src=src, reduce_op=reduce_op, **fields)}


def floats(*values):
    return np.array(values, np.float32)


class Pair(ClusterCase):
    size = 2

    def open(self, leader=0, **fields):
        return Session(self.cluster.agents[leader], **fields)

    def test_open_tells_the_workers_and_where_they_are(self):
        session = self.open(leader=1)
        opened = session.opened
        self.assertEqual([worker.rank for worker in opened.workers], [0, 1])
        self.assertEqual([worker.worker for worker in opened.workers], [0, 1])
        self.assertEqual(opened.leader, 1)
        self.assertEqual(opened.num_groups, 1)
        for worker in opened.workers:
            self.assertIn(self.cluster.agents[worker.rank].program.address, worker.addresses)
        session.close()

    def test_an_all_reduce_of_registers_is_read_at_the_workers(self):
        session = self.open()
        session.fill(self.cluster, 1, [floats(1, 2), floats(10, 20)])
        session.do(**reduce_of(1, into=2))
        for worker in range(2):
            self.assertEqual(list(session.read(self.cluster, 2, worker)), [11, 22])
        session.do(**reduce_of(1, dst=1))
        self.assertEqual(list(session.read(self.cluster, 1, 0)), [11, 22])
        session.sync()
        session.close()


class Groups(ClusterCase):
    """Two groups of two workers."""

    size = 4

    def setUp(self):
        self.session = Session(self.cluster.agents[2], num_groups=2)
        self.assertEqual(self.session.opened.leader, 2)

    def tearDown(self):
        self.session.close()
        super().tearDown()

    def fill(self, register, arrays):
        self.session.fill(self.cluster, register, arrays)

    def do(self, **command):
        return self.session.do(**command)

    def fails(self, code, reason, **command):
        with self.assertRaises(Failed) as caught:
            self.do(**command)
        self.assertEqual((caught.exception.code, caught.exception.reason), (code, reason))
        return caught.exception

    def assert_holds(self, register, *arrays):
        """Of each worker; None = null."""
        self.session.sync()
        for worker, array in enumerate(arrays):
            if array is None:
                self.assert_null(register, worker)
                continue
            found = self.session.read(self.cluster, register, worker)
            self.assertEqual(found.tolist(), np.array(array).tolist(), "worker %d" % worker)

    def assert_null(self, register, worker):
        with self.assertRaises(grpc.RpcError) as caught:
            self.session.read(self.cluster, register, worker)
        self.assertEqual(support.Failure(caught.exception).reason, "NO_TENSOR")

    def test_empty_is_zero_where_it_is_wanted_and_null_elsewhere(self):
        self.session.wait(self.session.empty(1, [2]))
        self.assert_holds(1, [0, 0], [0, 0], [0, 0], [0, 0])
        self.session.wait(self.session.empty(1, [], worker0_only=True))
        self.assert_holds(1, 0, None, None, None)
        self.session.wait(self.session.empty(1, [1], worker0_only=True, in_group=True))
        self.assert_holds(1, [0], None, [0], None)
        self.session.wait(self.session.empty(1, [2], workers=[3, 0]))
        self.assert_holds(1, [0, 0], None, [0], [0, 0])

    def test_a_register_that_is_dropped_is_null_everywhere(self):
        self.session.empty(1, [1])
        self.session.empty(2, [1])
        self.do(drop=sessions.DriveDrop(registers=[1, 2, 777]))
        self.assert_holds(1, None, None, None, None)
        self.assert_holds(2, None, None, None, None)

    def test_copies_go_to_a_new_register_or_over_a_tensor(self):
        self.fill(1, [floats(rank) for rank in range(4)])
        self.do(copy=sessions.DriveCopy(src=1, into=2))
        self.assert_holds(2, [0], [1], [2], [3])
        self.fill(1, [floats(rank + 10) for rank in range(4)])
        self.assert_holds(2, [0], [1], [2], [3])
        self.do(copy=sessions.DriveCopy(src=1, dst=2, workers=[1]))
        self.assert_holds(2, [0], [11], [2], [3])

    def test_all_reduce_is_of_all_or_of_each_group(self):
        self.fill(1, [floats(rank) for rank in range(4)])
        self.session.send(**reduce_of(1, into=2))
        self.session.send(**reduce_of(1, into=3, in_group=True))
        self.session.send(**reduce_of(1, types.REDUCE_OP_MAX, into=4))
        self.session.send(**reduce_of(1, types.REDUCE_OP_AVG, dst=1))
        self.assert_holds(2, [6], [6], [6], [6])
        self.assert_holds(3, [1], [1], [5], [5])
        self.assert_holds(4, [3], [3], [3], [3])
        self.assert_holds(1, [1.5], [1.5], [1.5], [1.5])

    def test_all_gather_multiplies_the_first_dimension(self):
        self.fill(1, [np.full((1, 2), rank, np.float32) for rank in range(4)])
        self.session.empty(4, [2, 2, 2])
        self.session.send(all_gather=sessions.DriveMove(src=1, into=2))
        self.session.send(all_gather=sessions.DriveMove(src=1, into=3, in_group=True))
        self.session.send(all_gather=sessions.DriveMove(src=1, dst=4))
        self.assert_holds(2, *[[[0, 0], [1, 1], [2, 2], [3, 3]]] * 4)
        self.assert_holds(3, *[[[0, 0], [1, 1]]] * 2 + [[[2, 2], [3, 3]]] * 2)
        self.assert_holds(4, *[[[[0, 0], [1, 1]], [[2, 2], [3, 3]]]] * 4)

    def test_a_broadcast_takes_the_tensor_of_the_first_worker_alone(self):
        self.fill(1, {0: floats(7, 8), 2: floats(9, 10)})
        self.session.empty(4, [2, 1])
        self.session.send(broadcast_from_worker0=sessions.DriveMove(src=1, into=2))
        self.session.send(broadcast_from_worker0=sessions.DriveMove(src=1, into=3, in_group=True))
        self.session.send(broadcast_from_worker0=sessions.DriveMove(src=1, dst=4))
        self.assert_holds(2, *[[7, 8]] * 4)
        self.assert_holds(3, *[[7, 8]] * 2 + [[9, 10]] * 2)
        self.assert_holds(4, *[[[7], [8]]] * 4)
        self.do(drop=sessions.DriveDrop(registers=[1]))
        self.assert_holds(2, *[[7, 8]] * 4)

    def test_a_scatter_cuts_the_first_dimension_and_takes_it_away_if_it_has_a_row_for_each(self):
        whole = np.arange(16, dtype=np.float32).reshape(8, 2)
        self.fill(1, {0: whole, 2: whole + 100})
        self.fill(6, {0: whole[:4], 2: whole[:4]})
        self.session.empty(4, [2, 1, 2])
        self.session.send(scatter_from_worker0=sessions.DriveMove(src=1, into=2))
        self.session.send(scatter_from_worker0=sessions.DriveMove(src=1, into=3, in_group=True))
        self.session.send(scatter_from_worker0=sessions.DriveMove(src=1, dst=4))
        self.session.send(scatter_from_worker0=sessions.DriveMove(src=6, into=5))
        self.assert_holds(2, *[whole[2 * rank:2 * rank + 2] for rank in range(4)])
        self.assert_holds(3, whole[:4], whole[4:], whole[:4] + 100, whole[4:] + 100)
        self.assert_holds(4, *[whole[2 * rank:2 * rank + 2].reshape(2, 1, 2) for rank in range(4)])
        self.assert_holds(5, *whole[:4])

    def test_a_gather_gives_the_first_worker_all(self):
        self.fill(1, [floats(rank, -rank) for rank in range(4)])
        self.session.empty(4, [4, 2], worker0_only=True)
        self.session.send(gather_to_worker0=sessions.DriveMove(src=1, into=2))
        self.session.send(gather_to_worker0=sessions.DriveMove(src=1, into=3, in_group=True))
        self.session.send(gather_to_worker0=sessions.DriveMove(src=1, dst=4))
        self.assert_holds(2, [0, 0, 1, -1, 2, -2, 3, -3], None, None, None)
        self.assert_holds(3, [0, 0, 1, -1], None, [2, -2, 3, -3], None)
        self.assert_holds(4, [[0, 0], [1, -1], [2, -2], [3, -3]], None, None, None)

    def test_the_next_group_gets_what_the_one_before_sends(self):
        self.fill(1, [floats(rank) for rank in range(4)])
        self.session.send(send_to_next_group=sessions.DriveMove(src=1))
        self.do(recv_from_prev_group=sessions.DriveMove(into=2))
        self.assert_holds(2, None, None, [0], [1])
        self.session.send(send_to_next_group=sessions.DriveMove(src=1))
        self.do(recv_from_prev_group=sessions.DriveMove(dst=1))
        self.assert_holds(1, [0], [1], [0], [1])

    def test_a_transfer_goes_from_one_worker_to_another(self):
        self.fill(1, [floats(rank) for rank in range(4)])
        self.session.send(send_to_next_group=sessions.DriveMove(src=1))
        self.do(transfer=sessions.DriveTransfer(src=1, into=2, **{"from": 0, "to": 2}))
        self.do(recv_from_prev_group=sessions.DriveMove(into=3))
        self.assert_holds(2, None, None, [0], None)
        self.assert_holds(3, None, None, [0], [1])
        self.do(transfer=sessions.DriveTransfer(src=1, dst=1, **{"from": 3, "to": 0}))
        self.do(transfer=sessions.DriveTransfer(src=1, into=4, **{"from": 1, "to": 1}))
        self.assert_holds(1, [3], [1], [2], [3])
        self.assert_holds(4, None, [1], None, None)

    # ------------------------------------------------------------------ errors

    def test_a_null_register_fails_the_command_by_rank_and_the_session_goes_on(self):
        self.fill(1, {0: floats(1), 1: floats(2), 3: floats(4)})
        error = self.fails(MISSING, "NO_TENSOR", **reduce_of(1, into=2))
        self.assertIn("ranks 0-3: ", error.text)
        self.assertIn("register 1 of session", error.text)
        self.assertEqual(error.workers, [0, 1, 2, 3])
        error = self.fails(MISSING, "NO_TENSOR", copy=sessions.DriveCopy(src=1, into=3))
        self.assertIn("rank 2: ", error.text)
        self.assertEqual(error.workers, [2])
        self.assert_works_still()

    def assert_works_still(self):
        self.session.empty(9, [1])
        self.do(**reduce_of(9, into=10))
        self.assert_holds(10, *[[0]] * 4)

    def test_what_depends_on_a_value_that_failed_fails_with_its_cause(self):
        self.fill(1, {rank: np.ones(2 if rank == 3 else 3, np.float32) for rank in [3]})
        self.session.wait(self.session.empty(2, [3]))
        self.do(transfer=sessions.DriveTransfer(src=1, into=2, **{"from": 3, "to": 0}))
        first = self.session.send(**reduce_of(2, into=3))
        second = self.session.send(copy=sessions.DriveCopy(src=3, into=4))
        for number in (first, second):
            with self.assertRaises(Failed) as caught:
                self.session.wait(number)
            self.assertEqual(caught.exception.reason, "SHAPE_MISMATCH")
            self.assertEqual(caught.exception.workers, [0, 1, 2, 3])
        self.assert_works_still()

    def test_both_ends_of_a_message_hear_that_one_has_nothing_to_send_or_to_write_to(self):
        self.fill(1, {0: floats(1), 1: floats(2)})
        before = time.monotonic()
        hop = {"from": 3, "to": 0}
        error = self.fails(MISSING, "NO_TENSOR", transfer=sessions.DriveTransfer(src=1, into=2, **hop))
        self.assertEqual(error.workers, [0, 3])
        error = self.fails(MISSING, "NO_TENSOR", copy=sessions.DriveCopy(src=2, into=3, workers=[0]))
        self.assertIn("rank 3 could not send: register 1 of session", error.text)
        hop = {"from": 0, "to": 3}
        error = self.fails(MISSING, "NO_TENSOR", transfer=sessions.DriveTransfer(src=1, dst=1, **hop))
        self.assertEqual(error.workers, [0, 3])
        sent = self.session.send(send_to_next_group=sessions.DriveMove(src=1))
        self.fails(MISSING, "NO_TENSOR", recv_from_prev_group=sessions.DriveMove(dst=9))
        with self.assertRaises(Failed) as caught:
            self.session.wait(sent)
        self.assertIn("rank 2 could not receive", caught.exception.text)
        self.assertLess(time.monotonic() - before, 5)
        self.assert_works_still()

    def test_what_the_leader_refuses_reaches_no_worker(self):
        limit = int(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
        self.session.wait(self.session.empty(1, [1]))
        self.fails(INVALID, "NO_COMMAND")
        self.fails(INVALID, "BAD_REGISTER", **reduce_of(0, into=1))
        self.fails(INVALID, "BAD_REGISTER", **reduce_of(1))
        self.fails(INVALID, "BAD_REGISTER", **reduce_of(1, into=2, dst=3))
        self.fails(INVALID, "BAD_REGISTER", drop=sessions.DriveDrop())
        self.fails(INVALID, "BAD_REDUCE_OP", **reduce_of(1, types.REDUCE_OP_BAND, into=2))
        self.fails(INVALID, "BAD_REDUCE_OP", all_reduce=sessions.DriveReduce())
        self.fails(INVALID, "BAD_WORKER", sync=sessions.DriveSync(workers=[4]))
        self.fails(INVALID, "BAD_WORKER", copy=sessions.DriveCopy(src=1, into=2, workers=[9]))
        self.fails(limit, "REGISTER_LIMIT", drop=sessions.DriveDrop(registers=[1, 65537]))
        self.assert_holds(1, *[[0]] * 4)
        self.assert_holds(2, *[None] * 4)

    def test_what_the_workers_refuse_is_told(self):
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[-1])
        self.fails(INVALID, "BAD_SHAPE", empty=sessions.DriveEmpty(into=1, spec=spec))
        self.fails(INVALID, "BAD_SHAPE", empty=sessions.DriveEmpty(into=1))
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[1])
        error = self.fails(int(grpc.StatusCode.FAILED_PRECONDITION.value[0]), "NO_DEVICE",
                           empty=sessions.DriveEmpty(into=1, spec=spec, device="cuda:7"))
        self.assertIn("ranks 0-3: ", error.text)

    def test_flush_lets_a_client_of_a_worker_come_behind(self):
        for _ in range(20):
            self.session.empty(1, [1])
            self.session.flush(3)
            self.cluster.agents[3].put(floats(5), into=self.session.name(1))
            self.assertEqual(list(self.cluster.agents[3].get(self.session.name(1))), [5])

    def test_many_commands_are_sent_without_waiting(self):
        self.fill(1, [floats(rank == 0) for rank in range(4)])
        numbers = [self.session.send(**reduce_of(1 + i % 50, into=2 + i % 50)) for i in range(1000)]
        for number in numbers:
            self.session.wait(number)
        self.session.sync()


class Streams(ClusterCase):
    """What is not a session."""

    size = 2
    options = ("--sessions-max", "2", "--registers-max", "10", "--commands-max", "16")
    options += ("--op-timeout", "2s")

    def refused(self, code, reason, *requests, leader=0):
        stub = sessions_stub(self.cluster.agents[leader])
        with self.assertRaises(grpc.RpcError) as caught:
            list(stub.Drive(iter(requests), timeout=LONG_S))
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code.name, failure.reason), (code, reason), failure)
        return failure

    def open_of(self, **fields):
        return sessions.DriveRequest(id=1, open=sessions.DriveOpen(**fields))

    def test_the_first_message_opens_and_no_other_does(self):
        self.refused("INVALID_ARGUMENT", "NO_START")
        self.refused("INVALID_ARGUMENT", "NO_START",
                     sessions.DriveRequest(id=1, sync=sessions.DriveSync()))
        self.refused("INVALID_ARGUMENT", "BAD_ORDER", self.open_of(),
                     sessions.DriveRequest(id=2, open=sessions.DriveOpen()))

    def test_ids_that_are_not_answered_are_not_used_again(self):
        waits = sessions.DriveRequest(id=5, recv_from_prev_group=sessions.DriveMove(into=2))
        self.refused("INVALID_ARGUMENT", "DUPLICATE_ID", self.open_of(num_groups=2), waits, waits)

    def test_groups_that_do_not_fit_are_refused(self):
        failure = self.refused("INVALID_ARGUMENT", "GROUP_SIZE", self.open_of(num_groups=3))
        self.assertIn("3 groups of the 2 ranks of group world", failure.text)
        self.refused("NOT_FOUND", "NO_GROUP", self.open_of(group="nobody"))
        self.cluster.group("one", [1])
        self.refused("FAILED_PRECONDITION", "NOT_IN_GROUP", self.open_of(group="one"))
        session = Session(self.cluster.agents[1], group="one")
        self.assertEqual([worker.rank for worker in session.opened.workers], [1])
        session.empty(1, [1])
        session.do(**reduce_of(1, into=2))
        session.close()

    def test_limits_are_named(self):
        held = [Session(self.cluster.agents[0]) for _ in range(2)]
        failure = self.refused("RESOURCE_EXHAUSTED", "SESSION_LIMIT", self.open_of())
        self.assertIn("--sessions-max", failure.text)
        Session(self.cluster.agents[1]).close()
        with self.assertRaises(Failed) as caught:
            held[0].wait(held[0].empty(11, [1]))
        self.assertEqual(caught.exception.reason, "REGISTER_LIMIT")
        for session in held:
            session.close()
        Session(self.cluster.agents[0]).close()

    def test_a_session_that_has_ended_does_not_count(self):
        """The controller that was told that its session is over opens the next one at once."""
        other = Session(self.cluster.agents[0])
        for _ in range(200):
            Session(self.cluster.agents[0]).close()
        other.close()

    def test_two_sessions_do_not_meet(self):
        pair = [Session(self.cluster.agents[rank]) for rank in range(2)]
        for number, session in enumerate(pair):
            session.fill(self.cluster, 1, [floats(number + 1)] * 2)
        sent = [(session, session.send(**reduce_of(1, dst=1))) for _ in range(8) for session in pair]
        for session, number in sent:
            session.wait(number)
        for number, session in enumerate(pair):
            self.assertEqual(list(session.read(self.cluster, 1, 0)), [(number + 1) * 2.0 ** 8])
            session.close()

    def test_a_controller_that_is_gone_leaves_nothing(self):
        session = Session(self.cluster.agents[0])
        session.wait(session.empty(1, [1000]))
        session.drop()
        for agent in self.cluster.agents:
            self.wait_empty(agent)

    def test_what_is_no_message_ends_the_stream(self):
        call = self.cluster.agents[0].channel.stream_stream(
            "/tutti.v1.SessionService/Drive", request_serializer=bytes,
            response_deserializer=bytes)
        with self.assertRaises(grpc.RpcError) as caught:
            list(call(iter([self.open_of().SerializeToString(), b"\xff\xff\xff"]), timeout=LONG_S))
        self.assertEqual(support.Failure(caught.exception).reason, "MALFORMED_MESSAGE")
        Session(self.cluster.agents[0]).close()


class Functions(ClusterCase):
    """Values, and calls of functions on the workers."""

    size = 4
    options = ("--plugin", os.path.join(PLUGINS, "tests_plugin.so"), "--module-path", PLUGINS)

    def setUp(self):
        self.session = Session(self.cluster.agents[0], num_groups=2)

    def tearDown(self):
        self.session.close()
        super().tearDown()

    def call(self, function, *args, **fields):
        """The answer; args that are numbers are ints, a `Register` is what it holds."""
        return self.session.do(call=self.call_of(function, *args, **fields))

    def call_of(self, function, *args, **fields):
        return sessions.DriveCall(function=function, args=[arg_of(one) for one in args], **fields)

    def fails(self, reason, **command):
        with self.assertRaises(Failed) as caught:
            self.session.do(**command)
        self.assertEqual(caught.exception.reason, reason)
        return caught.exception

    def integers(self, register, **fields):
        found = self.session.values(register, **fields)
        return {worker: value.integer for worker, value in found.items()}

    def test_values_are_set_and_told_by_worker(self):
        value = functions.Value(text="caf\u00e9")
        self.session.do(set=sessions.DriveSet(into=1, value=value))
        self.session.do(set=sessions.DriveSet(into=1, value=functions.Value(integer=-5), workers=[2]))
        found = self.session.values(1)
        self.assertEqual([found[worker].text for worker in (0, 1, 3)], ["caf\u00e9"] * 3)
        self.assertEqual(found[2].integer, -5)
        self.assertEqual(set(self.session.values(1, workers=[1, 3])), {1, 3})

    def test_what_holds_nothing_is_null(self):
        self.session.do(set=sessions.DriveSet(into=1, value=functions.Value(integer=1), workers=[2]))
        found = self.session.values(1)
        self.assertEqual([found[worker].WhichOneof("kind") for worker in range(4)],
                         ["null", "null", "integer", "null"])

    def test_a_tensor_is_told_by_its_handle(self):
        self.session.empty(1, [3, 2])
        for worker, value in self.session.values(1).items():
            self.assertEqual(list(value.spec.shape), [3, 2])
            self.assertEqual(self.cluster.agents[worker].get(value.tensor).shape, (3, 2))

    def test_a_call_is_made_on_each_worker_and_its_result_is_kept(self):
        answer = self.call("runtime.disco.worker_rank", into=1)
        self.assertEqual({one.worker: one.value.integer for one in answer.values},
                         {0: 0, 1: 1, 2: 2, 3: 3})
        self.call("tests.add_one", Register(1), into=1)
        self.assertEqual(self.integers(1), {0: 1, 1: 2, 2: 3, 3: 4})
        self.call("runtime.disco.group_size", into=2, workers=[3])
        found = self.session.values(2)
        self.assertEqual(found[3].integer, 2)
        self.assertEqual([found[worker].WhichOneof("kind") for worker in range(3)], ["null"] * 3)

    def test_calls_and_ops_wait_for_each_other_in_the_order_sent(self):
        self.session.fill(self.cluster, 1, [floats(1)] * 4)
        numbers = []
        for _ in range(20):
            numbers.append(self.session.send(**reduce_of(1, types.REDUCE_OP_AVG, dst=1)))
            call = self.call_of("tests.axpy", 1.0, Register(1), Register(1))
            numbers.append(self.session.send(call=call))
        for number in numbers:
            self.session.wait(number)
        self.assertEqual(list(self.session.read(self.cluster, 1, 2)), [2.0 ** 20])

    def test_a_function_that_calls_collectives_does_not_meet_those_of_the_session(self):
        self.session.fill(self.cluster, 1, [floats(1)] * 4)
        self.session.fill(self.cluster, 2, [floats(2)] * 4)
        numbers = []
        for _ in range(5):
            call = self.call_of("tests.all_reduce", Register(1), "sum", into=3)
            numbers.append(self.session.send(call=call))
            numbers.append(self.session.send(**reduce_of(2, into=4)))
        for number in numbers:
            self.session.wait(number)
        self.assertEqual(list(self.session.read(self.cluster, 3, 1)), [4])
        self.assertEqual(list(self.session.read(self.cluster, 4, 1)), [8])

    def test_a_register_may_hold_the_function(self):
        self.session.do(get_function=sessions.DriveFunction(function="tests.add_one", into=1))
        call = sessions.DriveCall(function_register=1, args=[arg_of(41)], into=2)
        self.session.do(call=call)
        self.assertEqual(self.integers(2, workers=[3]), {3: 42})
        error = self.fails("UNKNOWN_FUNC", get_function=sessions.DriveFunction(function="no.such"))
        self.assertIn("ranks 0-3: ", error.text)
        self.fails("NOT_A_FUNCTION", call=sessions.DriveCall(function_register=2))

    def test_a_call_that_fails_is_told_by_rank_and_so_is_what_needs_it(self):
        fail = self.call_of("tests.fail", "BAD_LUCK", "no luck today", into=1)
        error = self.fails("BAD_LUCK", call=fail)
        self.assertEqual(error.text, "ranks 0-3: no luck today")
        error = self.fails("BAD_LUCK", call=self.call_of("tests.add_one", Register(1), into=2))
        self.assertIn("no luck today", error.text)
        self.assertEqual(self.fails("BAD_LUCK", get=sessions.DriveGet(src=1)).workers, [0, 1, 2, 3])
        self.call("tests.add_one", 1, into=1)
        self.assertEqual(self.integers(1, workers=[0]), {0: 2})

    def test_what_cannot_be_an_argument_is_refused(self):
        name = functions.Value(name="w")
        for arg in (sessions.DriveArg(value=name), sessions.DriveArg(),
                    sessions.DriveArg(value=functions.Value(tensor="tensor:0.1.1"))):
            self.fails("BAD_VALUE", call=sessions.DriveCall(function="tests.kind", args=[arg]))
        self.fails("ARGUMENT_LIMIT", call=self.call_of("tests.kind", *range(65)))
        self.fails("BAD_VALUE", set=sessions.DriveSet(into=1, value=name))
        self.fails("BAD_VALUE", set=sessions.DriveSet(into=1))
        self.fails("BAD_REGISTER", call=sessions.DriveCall())
        self.fails("BAD_REGISTER", call=self.call_of("tests.kind", Register(0)))

    def test_a_module_is_loaded_on_all_workers(self):
        load = sessions.DriveModule(path="tests_plugin.so", into=1)
        answer = self.session.do(load_module=load)
        self.assertIn("tests_plugin.tests.add_one", [info.name for info in answer.functions])
        self.call("tests_plugin.tests.add_one", 1, into=2)
        self.assertEqual(self.integers(2, workers=[0]), {0: 2})
        self.fails("NO_MODULE", load_module=sessions.DriveModule(path="absent.so"))
        with self.assertRaises(Failed) as caught:
            self.session.do(import_module=sessions.DriveImport(module="os"))
        self.assertEqual(caught.exception.workers, [0, 1, 2, 3])

    def test_sync_waits_for_one_worker_and_flush_for_none(self):
        slow = self.session.send(call=self.call_of("tests.sleep", 600, workers=[1]))
        before = time.monotonic()
        self.session.flush()
        self.session.sync(0, 2, 3)
        self.assertLess(time.monotonic() - before, 0.5)
        self.session.sync(1)
        self.assertGreater(time.monotonic() - before, 0.5)
        self.assertIn(slow, self.session.answers)

    def test_no_more_than_commands_max_are_taken(self):
        self.session.send(call=self.call_of("tests.sleep", 300))
        numbers = [self.session.send(call=self.call_of("tests.add_one", 1)) for _ in range(600)]
        for number in numbers:
            self.session.wait(number)


class Lingering(ClusterCase):
    """A session that stays behind its stream."""

    size = 3
    options = ("--session-linger", "30s")

    def open(self, leader=0, **fields):
        return Session(self.cluster.agents[leader], **fields)

    def resume(self, session, leader, **fields):
        opened = session.opened
        return self.open(leader, resume=opened.session, secret=opened.secret, **fields)

    def fails_to_open(self, code, reason, leader=0, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            self.open(leader, **fields)
        self.assert_failed(support.Failure(caught.exception), code, reason)

    def test_it_is_resumed_at_any_agent_of_the_group(self):
        session = self.open(linger=True)
        self.assertEqual(len(session.opened.secret), 16)
        session.fill(self.cluster, 3, [floats(rank) for rank in range(3)])
        session.wait(session.empty(7, [1], workers=[1]))
        session.drop()
        again = self.resume(session, 2, linger=True)
        self.assertEqual(again.opened.session, session.opened.session)
        self.assertEqual(list(again.opened.registers), [3, 7])
        self.assertEqual(again.opened.secret, session.opened.secret)
        again.do(**reduce_of(3, into=4))
        self.assertEqual(list(again.read(self.cluster, 4, 0)), [3])
        again.close()
        last = self.resume(session, 0)
        self.assertEqual(list(last.opened.registers), [3, 4, 7])
        last.close()
        for agent in self.cluster.agents:
            self.wait_empty(agent)
        self.fails_to_open(grpc.StatusCode.NOT_FOUND, "NO_SESSION",
                           resume=session.opened.session, secret=session.opened.secret)

    def test_its_group_and_its_groups_are_found_again(self):
        self.cluster.group("turned", [2, 1])
        session = self.open(leader=1, group="turned", num_groups=2, linger=True)
        session.fill(self.cluster, 1, [floats(5), floats(6)])
        session.close()
        again = self.resume(session, 2)
        self.assertEqual([worker.rank for worker in again.opened.workers], [2, 1])
        self.assertEqual(again.opened.num_groups, 2)
        again.send(send_to_next_group=sessions.DriveMove(src=1))
        again.do(recv_from_prev_group=sessions.DriveMove(dst=1))
        self.assertEqual(list(again.read(self.cluster, 1, 1)), [5])
        again.close()
        self.fails_to_open(grpc.StatusCode.NOT_FOUND, "NO_SESSION", leader=0,
                           resume=session.opened.session, secret=session.opened.secret)

    def test_a_stream_that_is_still_there_hears_that_its_session_was_taken(self):
        session = self.open(linger=True)
        session.wait(session.empty(1, [1]))
        again = self.resume(session, 1)
        with self.assertRaises(grpc.RpcError) as caught:
            session.sync()
        self.assert_failed(support.Failure(caught.exception), grpc.StatusCode.ABORTED,
                           "SESSION_TAKEN")
        again.do(**reduce_of(1, into=2))
        again.close()

    def test_nobody_resumes_without_the_secret(self):
        session = self.open(linger=True)
        session.wait(session.empty(1, [1]))
        number = session.opened.session
        self.fails_to_open(grpc.StatusCode.NOT_FOUND, "NO_SESSION", resume=number, secret=b"x" * 16)
        self.fails_to_open(grpc.StatusCode.INVALID_ARGUMENT, "BAD_SECRET", resume=number)
        self.fails_to_open(grpc.StatusCode.INVALID_ARGUMENT, "BAD_NAME", resume="7", secret=b"x" * 16)
        session.sync()
        session.close()
        self.resume(session, 0).close()

    def test_without_linger_it_ends_with_its_stream(self):
        session = self.open()
        self.assertEqual(session.opened.secret, b"")
        session.wait(session.empty(1, [1]))
        session.drop()
        for agent in self.cluster.agents:
            self.wait_empty(agent)


if __name__ == "__main__":
    support.main()
