"""Goal: a host runs functions on the agent's memory, says in full what went wrong, and ends only when
a function brings the process down.

Method: against an agent that is none, in one process; as a program where it crashes.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
sys.path.insert(0, os.path.join(HERE, "hosted"))
import functions_of_tests  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
import tutti.aio  # noqa: E402
from serve_fake import Agent  # noqa: E402

from tutti import _settings, functions, host, values  # noqa: E402
from tutti.sync._line import Line# noqa: E402

LONG_S = 60


def wire(value):
    return values.to_wire(value)


class HostCase(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.stop)


class Served(HostCase):
    def setUp(self):
        super().setUp()
        line = Line(self.agent.address, _settings.Settings(agent=self.agent.address))
        self.host = host.Host(line, threads=2)
        self.host.start()
        self.runner = threading.Thread(target=self.host.run)
        self.runner.start()
        self.addCleanup(line.close)
        self.addCleanup(self.runner.join, LONG_S)
        self.addCleanup(self.host.stop)

    def result(self, function, *args):
        returned = self.agent.call(function, *args)
        self.assertFalse(returned.HasField("error"), returned.error)
        return returned.result

    def error(self, function, *args):
        returned = self.agent.call(function, *args)
        self.assertTrue(returned.HasField("error"))
        return returned.error

    def array(self, function, *args):
        return self.agent.tensors[self.result(function, *args).tensor].array()

    # -------------------------------------------------------------------- values and tensors

    def test_the_agent_is_told_names_and_signatures(self):
        (start,) = self.agent.starts
        told = {one.name: one.signature for one in start.functions}
        self.assertEqual(told["tests.py.scale"], "tensor, float -> tensor")
        self.assertEqual(told["tests.py.add_in_place"], "tensor, int -> the same tensor")
        self.assertEqual((start.imports, start.calls_max), (True, 2))
        self.assertRegex(start.name, r"^python 3\.\d+, ")

    def test_values_go_in_and_out(self):
        for value in (None, 7, 1.5, "text", b"\0", tutti.Shape([1, 2]), tutti.Device("cpu")):
            self.assertEqual(values.of_wire(self.result("tests.py.echo", wire(value))), value)
        place = values.of_wire(self.result("tests.py.place"))
        self.assertEqual(place, (1, 2, 1, 1, 2))

    def test_a_new_array_becomes_a_tensor_of_the_agent(self):
        x = self.agent.put(np.arange(6, dtype=np.float32).reshape(2, 3))
        got = self.array("tests.py.scale", x, wire(0.5))
        self.assertEqual((got.dtype, got.shape), (np.float32, (2, 3)))
        self.assertEqual(got.tolist(), [[0, 0.5, 1], [1.5, 2, 2.5]])

    def test_what_is_written_to_an_argument_is_in_the_tensor_and_it_is_returned_by_its_handle(self):
        x = self.agent.put(np.arange(4))
        result = self.result("tests.py.add_in_place", x, wire(10))
        self.assertEqual(result.tensor, x.handle)
        self.assertEqual(x.array().tolist(), [10, 11, 12, 13])
        self.assertEqual(len(self.agent.tensors), 1)

    def test_tensors_without_bytes_have_their_shape(self):
        x = self.agent.put(np.zeros((0, 3), np.float32))
        self.assertEqual(self.array("tests.py.scale", x, wire(2.0)).shape, (0, 3))

    def test_torch_functions_get_torch_tensors(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        x = self.agent.put(np.arange(4.0))
        self.assertEqual(values.of_wire(self.result("tests.py.torch_sum", x)), 6)

    # -------------------------------------------------------------------- collectives

    def test_collectives_work_on_arguments_and_on_what_the_function_made(self):
        x = self.agent.put(np.arange(3.0))
        self.assertEqual(self.array("tests.py.sum_of_all", x).tolist(), [0, 4, 8])
        self.assertEqual([op for op, _, _ in self.agent.ops], ["all_reduce", "barrier"])
        got = self.array("tests.py.gathered", x)
        self.assertEqual(got.tolist(), [0, 1, 2, 0, 1, 2])
        self.assertEqual(self.agent.ops[-1][1], x.handle)

    def test_a_collective_that_fails_fails_the_function_with_its_reason(self):
        error = self.error("tests.py.sum_of_all", self.agent.put(np.zeros(13)))
        self.assertEqual((error.code, error.reason), (14, "RANK_LOST"))
        self.assertIn("rank 0 is gone", error.text)
        self.assertIn("functions_of_tests.py", error.text)

    # -------------------------------------------------------------------- errors

    def test_an_exception_is_told_with_its_line(self):
        error = self.error("tests.py.broken", wire("missing"))
        self.assertEqual((error.code, error.reason), (10, "FUNCTION_FAILED"))
        self.assertTrue(error.text.startswith("KeyError: 'missing'\n"), error.text)
        self.assertRegex(error.text, r"functions_of_tests\.py:\d+ in broken: return \{\}\[x\]")
        self.assertNotIn("_hosted.py", error.text)

    def test_a_long_error_is_cut(self):
        error = self.error("tests.py.broken", wire("ä" * 5000))
        self.assertLess(len(error.text.encode()), 2001)
        self.assertIn("in broken", error.text)

    def test_a_result_that_is_no_value_an_exit_and_an_unknown_name_are_errors(self):
        error = self.error("tests.py.nonsense")
        self.assertEqual(error.reason, "BAD_VALUE")
        self.assertIn("list", error.text)
        self.assertIn("SystemExit: 3", self.error("tests.py.leave").text)
        self.assertEqual(self.error("tests.py.unknown").reason, "UNKNOWN_FUNC")
        self.assertEqual(self.error("tests.py.scale", wire(1)).reason, "FUNCTION_FAILED")
        self.assertEqual(values.of_wire(self.result("tests.py.echo", wire(1))), 1)

    def test_a_call_that_nobody_waits_for_is_told_so_and_stops(self):
        functions_of_tests.BEGAN = threading.Event()
        number = self.agent.begin("tests.py.until_cancelled")
        self.assertTrue(functions_of_tests.BEGAN.wait(LONG_S))
        self.agent.say(cancel=number)
        self.assertEqual(self.agent.wait(number), "stopped")
        self.assertEqual(values.of_wire(self.result("tests.py.echo", wire(1))), 1)

    # -------------------------------------------------------------------- modules

    def test_a_module_is_imported_when_a_caller_asks(self):
        sys.modules.pop("later_of_tests", None)
        functions._known.pop("tests.later.seven", None)
        imported = self.agent.load("later_of_tests")
        self.assertEqual([one.name for one in imported.functions], ["tests.later.seven"])
        self.assertEqual(values.of_wire(self.result("tests.later.seven")), 7)
        self.assertEqual(list(self.agent.load("later_of_tests").functions), [])

    def test_a_module_that_fails_to_load_is_told_why(self):
        for name, words in (("broken_of_tests", "no such luck"), ("not_there", "not_there")):
            error = self.agent.load(name).error
            self.assertEqual((error.code, error.reason), (9, "IMPORT_FAILED"))
            self.assertIn(words, error.text)

    def test_two_functions_of_one_name_are_refused(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.function("tests.py.echo")(lambda: None)
        self.assertEqual(caught.exception.reason, "FUNCTION_TAKEN")
        tutti.function("tests.py.echo")(functions_of_tests.echo)
        with self.assertRaises(tutti.TuttiError):
            tutti.function("x", arrays="jax")


class Programs(HostCase):
    def start(self, *words):
        path = os.pathsep.join([os.path.join(HERE, "hosted"), os.environ.get("PYTHONPATH", "")])
        program = subprocess.Popen(
            [sys.executable, "-m", "tutti.host", *words],
            env=dict(os.environ, PYTHONPATH=path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        return program

    def test_a_program_serves_until_it_is_told_to_end(self):
        program = self.start("--agent", self.agent.address, "functions_of_tests")
        self.assertIn(b"serving tests.py.add_in_place, ", program.stdout.readline())
        self.assertIn("functions_of_tests", self.agent.starts[0].name)
        returned = self.agent.call("tests.py.echo", wire("x"))
        self.assertEqual(returned.result.text, "x")
        program.send_signal(signal.SIGTERM)
        _, complaints = program.communicate(timeout=LONG_S)
        self.assertEqual(program.returncode, 0, complaints)

    def test_a_crash_ends_the_stream_and_says_where_it_was(self):
        program = self.start("--agent", self.agent.address, "functions_of_tests")
        self.agent.wait_started()
        self.agent.begin("tests.py.crash")
        _, complaints = program.communicate(timeout=LONG_S)
        self.assertEqual(program.returncode, -signal.SIGABRT)
        self.assertIn(b"in crash", complaints)
        self.assertTrue(self.agent.broken.wait(LONG_S))

    def test_what_is_wrong_is_one_line(self):
        for words, wanted in (
            (["--agent", "127.0.0.1:1", "--wait", "0", "functions_of_tests"], b"UNREACHABLE"),
            (["--agent", "", "functions_of_tests"], b"NO_AGENT"),
        ):
            _, complaints = self.start(*words).communicate(timeout=LONG_S)
            self.assertIn(wanted, complaints)
            self.assertEqual(complaints.count(b"\n"), 1, complaints)

    def test_a_host_that_is_refused_says_why(self):
        self.agent.refuse = "tests. is not under --functions"
        with tutti.connect(self.agent.address) as agent:
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.serve()
        self.assertEqual(caught.exception.code.name, "PERMISSION_DENIED")
        self.assertIn("--functions", caught.exception.text)


class Connections(HostCase):
    def test_a_connection_serves_and_returns_when_the_agent_ends_the_call(self):
        with tutti.connect(self.agent.address) as agent:
            thread = threading.Thread(target=agent.serve)
            thread.start()
            self.agent.wait_started()
            self.assertEqual(self.agent.call("tests.py.echo", wire(5)).result.integer, 5)
            self.agent._out.put(None)
            thread.join(LONG_S)
            self.assertFalse(thread.is_alive())

    def test_a_task_serves_until_it_is_cancelled(self):
        async def main():
            async with await tutti.aio.connect(self.agent.address) as agent:
                task = asyncio.ensure_future(agent.serve())
                await asyncio.to_thread(self.agent.wait_started)
                returned = await asyncio.to_thread(self.agent.call, "tests.py.echo", wire(5))
                self.assertEqual(returned.result.integer, 5)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        asyncio.run(asyncio.wait_for(main(), LONG_S))
        self.assertTrue(self.agent.broken.wait(LONG_S))


if __name__ == "__main__":
    tap.main()
