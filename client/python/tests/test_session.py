"""Goal: what a session does in this process: numbers of registers, commands that do not wait, and who
is told what went wrong.

Method: against a leader that is no agent, which answers when the test says so.
"""

import asyncio
import gc
import os
import sys
import threading
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap  # noqa: E402
import tutti  # noqa: E402
import tutti.aio  # noqa: E402
from leader_fake import Leader  # noqa: E402

LONG_S = 60


class SessionCase(unittest.TestCase):
    def setUp(self):
        self.leader = Leader()
        self.addCleanup(self.leader.stop)

    def fails(self, reason, call, *args, **named):
        with self.assertRaises(tutti.TuttiError) as caught:
            call(*args, **named)
        self.assertEqual(caught.exception.reason, reason, caught.exception)
        return caught.exception


class Blocking(SessionCase):
    def setUp(self):
        super().setUp()
        self.session = tutti.session(self.leader.address)
        self.addCleanup(self.session.shutdown)

    def echo(self, value):
        return self.session.call_packed("echo", value)

    # -------------------------------------------------------------------- registers

    def test_numbers_begin_at_1_and_the_last_dropped_comes_first(self):
        a, b, c = [self.session.empty((1,), "int8") for _ in range(3)]
        self.assertEqual([one.reg_id for one in (a, b, c)], [1, 2, 3])
        a.drop()
        c.drop()
        again = [self.session.empty((1,), "int8") for _ in range(3)]
        self.assertEqual([one.reg_id for one in again], [3, 1, 4])

    def test_what_nothing_refers_to_is_dropped_before_its_number_is_used_again(self):
        one = self.echo(1)
        del one
        gc.collect()
        again = self.echo(2)
        self.assertEqual(again.reg_id, 1)
        self.session.sync()
        kinds = [kind for kind, _ in self.leader.seen if kind != "open"]
        self.assertEqual(kinds, ["call", "drop", "call", "sync"])

    def test_a_dropped_register_and_one_of_another_session_are_refused(self):
        ref = self.echo(1)
        ref.drop()
        ref.drop()
        self.fails("BAD_REGISTER", ref.debug_get_from_remote, 0)
        self.fails("BAD_REGISTER", self.session.call_packed, "echo", ref)
        with tutti.session(self.leader.address) as other:
            theirs = other.empty((1,), "int8")
            self.fails("BAD_REGISTER", self.session.allreduce, theirs)
        self.fails("BAD_REGISTER", self.session.allreduce, 7)

    def test_threads_share_a_session(self):
        refs = [[] for _ in range(4)]

        def work(mine):
            for number in range(300):
                mine.append(self.echo(number))

        threads = [threading.Thread(target=work, args=(one,)) for one in refs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        self.session.sync()
        numbers = sorted(ref.reg_id for mine in refs for ref in mine)
        self.assertEqual(numbers, list(range(1, 1201)))
        self.assertEqual(refs[2][250].debug_get_from_remote(0), 250)

    # -------------------------------------------------------------------- pipelining

    def test_commands_do_not_wait_for_answers(self):
        self.leader.go.clear()
        refs = [self.echo(number) for number in range(500)]
        self.leader.go.set()
        self.assertEqual(refs[499].debug_get_from_remote(1), 499)

    def test_more_commands_than_the_window_wait_for_answers(self):
        self.leader.go.clear()
        timer = threading.Timer(0.2, self.leader.go.set)
        timer.start()
        refs = [self.echo(number) for number in range(3000)]
        self.assertTrue(self.leader.go.is_set())  # they could not all go out before
        self.assertEqual(refs[-1].debug_get_from_remote(1), 2999)
        timer.join()

    # -------------------------------------------------------------------- values

    def test_values_come_back_as_they_were(self):
        for value in (None, 7, -(1 << 63), 1.5, "text", b"\0bytes", tutti.Shape([1, 2, 3]),
                      tutti.Device("cuda:0"), tutti.Dtype("BF16"), tutti.Function("f")):
            got = self.echo(value).debug_get_from_remote(0)
            self.assertEqual((type(got), got), (type(value), value))  # fmt: skip
        for value, want in ((True, 1), (np.int32(7), 7), (np.float32(0.5), 0.5), ((2, 3), (2, 3)),
                            (np.dtype("int32"), tutti.Dtype("INT32")), (np.float16, "FP16")):
            self.assertEqual(self.echo(value).debug_get_from_remote(0), want)  # fmt: skip
        self.assertEqual(self.echo("x").debug_get_from_all(), ["x", "x"])

    def test_what_is_no_value_is_refused_with_what_to_do(self):
        for value, words in (
            (np.ones(2), "broadcast"),
            ([1, 2], "tuple"),
            (1 << 63, "64 bits"),
            ("x" * (1 << 20 | 1), "1048576"),
            ((1, "a"), "ints"),
            (object(), "object"),
        ):
            error = self.fails("BAD_VALUE", self.echo, value)
            self.assertIn(words, error.text)
        self.session.sync()

    def test_a_scatter_of_another_number_of_parts_is_refused(self):
        error = self.fails("BAD_SHAPE", self.session.scatter, np.ones((3, 2)))
        self.assertIn("2 parts", error.text)
        self.fails("BAD_REDUCE_OP", self.session.allreduce, self.echo(1), op="nonsense")

    # -------------------------------------------------------------------- errors

    def test_a_failure_is_told_once_at_the_next_sync_with_its_command_and_line(self):
        failed = self.session.call_packed("fail", 1, "a", (2, 3))
        self.session.call_packed("fail")
        error = self.fails("FUNCTION_FAILED", self.session.sync)
        self.assertIn("it said no (call fail(1, 'a', (2, 3)) -> r1, ", error.text)
        self.assertIn("test_session.py:", error.text)
        self.assertIn("; 1 more commands failed", error.text)
        self.assertEqual({worker: one.rank for worker, one in error.workers.items()}, {1: 1})
        self.session.sync()
        self.assertEqual(failed.reg_id, 1)

    def test_who_reads_the_register_is_told_and_the_next_sync_is_not(self):
        ref = self.session.call_packed("fail")
        error = self.fails("FUNCTION_FAILED", ref.debug_get_from_remote, 0)
        self.assertIn("it said no before", error.text)
        self.session.sync()

    def test_a_block_tells_at_its_end(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            with tutti.session(self.leader.address) as session:
                session.call_packed("fail")
        self.assertEqual(caught.exception.reason, "FUNCTION_FAILED")
        self.fails("NO_GROUP", session.sync)

    def test_an_error_in_a_block_is_not_hidden_by_what_failed_before(self):
        with self.assertRaises(ZeroDivisionError):
            with tutti.session(self.leader.address) as session:
                session.call_packed("fail")
                1 / 0

    # -------------------------------------------------------------------- the end

    def test_after_shutdown_there_is_no_group(self):
        self.session.shutdown()
        self.session.shutdown()
        for call in (lambda: self.session.num_workers, lambda: self.echo(1), self.session.sync):
            error = self.fails("NO_GROUP", call)
            self.assertEqual(error.code.name, "NOT_FOUND")

    def test_a_leader_that_is_gone_is_told(self):
        ref = self.echo(1)
        self.session.sync()
        self.leader.stop()
        with self.assertRaises(tutti.TuttiError) as caught:
            while True:
                self.session.sync()
        self.assertEqual(caught.exception.code.name, "UNAVAILABLE")
        with self.assertRaises(tutti.TuttiError):
            ref.debug_get_from_remote(0)
        self.session.shutdown()

    def test_who_waits_is_told_when_the_leader_goes(self):
        self.leader.go.clear()
        timer = threading.Timer(0.1, lambda: self.leader.calls[0].cancel())
        timer.start()
        with self.assertRaises(tutti.TuttiError) as caught:
            self.session.sync()
        self.assertIn(caught.exception.code.name, ("CANCELLED", "UNAVAILABLE"))
        timer.join()

    def test_a_session_that_lingers_is_resumed_by_its_ticket(self):
        self.assertEqual(self.session.ticket, "")
        self.fails("NO_SESSION", self.session.detach)
        ticket = tutti.session(self.leader.address, linger=True).detach()
        with tutti.session(self.leader.address, resume=ticket) as session:
            command = self.leader.of("open")[-1]
            self.assertEqual((command.resume, command.secret), ("7f3a", b"s" * 16))
            self.assertEqual(session.registers(), [2, 5])
            ref = session.register(5)
            self.fails("BAD_REGISTER", session.register, 5)
            numbers = [session.call_packed("echo", 1) for _ in range(4)]
            self.assertEqual([one.reg_id for one in numbers], [1, 3, 4, 6])
            self.assertEqual(ref.reg_id, 5)
        self.fails("NO_SESSION", tutti.session, self.leader.address, resume="7f3a.nonsense")

    def test_shutdown_ends_a_lingering_session_for_good(self):
        with tutti.session(self.leader.address, linger=True):
            pass
        first, last = self.leader.of("open")[-2:]
        self.assertEqual((first.linger, first.resume), (True, ""))
        self.assertEqual((last.linger, last.resume, last.secret), (False, "7f3a", b"s" * 16))


class Aio(SessionCase):
    def run_it(self, work):
        async def main():
            async with await tutti.aio.session(self.leader.address) as session:
                await work(session)

        asyncio.run(asyncio.wait_for(main(), LONG_S))

    def test_commands_do_not_wait_and_values_come_back(self):
        async def work(session):
            self.leader.go.clear()
            refs = [await session.call_packed("echo", number) for number in range(500)]
            self.leader.go.set()
            self.assertEqual(await refs[499].debug_get_from_remote(1), 499)
            function = await session.get_global_func("echo")
            ref = await function("x")
            self.assertEqual(await ref.debug_get_from_all(), ["x", "x"])

        self.run_it(work)

    def test_a_register_may_be_dropped_by_another_thread(self):
        async def work(session):
            refs = [await session.call_packed("echo", 1)]
            thread = threading.Thread(target=refs.clear)
            thread.start()
            thread.join()
            await session.sync()
            while not self.leader.of("drop"):
                await session.sync()
            self.assertEqual((await session.call_packed("echo", 2)).reg_id, 1)

        self.run_it(work)

    def test_errors_are_the_same(self):
        async def work(session):
            await session.call_packed("fail")
            with self.assertRaises(tutti.TuttiError) as caught:
                await session.sync()
            self.assertIn("test_session.py:", caught.exception.text)
            await session.sync()

        self.run_it(work)

    def test_a_wait_can_be_cancelled(self):
        async def work(session):
            self.leader.go.clear()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(session.sync(), 0.05)
            self.leader.go.set()
            await session.sync()

        self.run_it(work)

    def test_many_tasks_share_a_window(self):
        async def work(session):
            async def one(number):
                return [await session.call_packed("echo", number) for _ in range(200)]

            found = await asyncio.gather(*[one(number) for number in range(10)])
            await session.sync()
            numbers = {ref.reg_id for mine in found for ref in mine}
            self.assertEqual(len(numbers), 2000)

        self.run_it(work)


if __name__ == "__main__":
    tap.main()
