"""Goal: a host of functions in C does what tutti/function.h says.

Method: tests/client/host_program.c beside each of two agents; its functions are called by stock stubs.
"""

import os
import subprocess
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, Cluster
from test_functions import FunctionsCase, call_of, functions, functions_grpc

PROGRAM = os.path.join(support.BUILD, "tests", "client", "host_program")
INVALID = grpc.StatusCode.INVALID_ARGUMENT
ABORTED = grpc.StatusCode.ABORTED
LOST = grpc.StatusCode.UNAVAILABLE


def listed(stub):
    return stub.ListFunctions(functions.ListFunctionsRequest(), timeout=LONG_S).functions


class Program:
    """The host; `line` reads what it says."""

    def __init__(self, address, *words):
        environment = dict(os.environ, TUTTI_AGENT=address)
        self.process = subprocess.Popen(
            [PROGRAM, *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment)

    def line(self):
        return self.process.stdout.readline().decode().strip()

    def end(self):
        """Exit code and what it still said."""
        said = self.process.stdout.read().decode().split()
        self.process.stdout.close()
        return self.process.wait(LONG_S), said

    def kill(self):
        self.process.kill()
        return self.end()


class TestHostProgram(FunctionsCase):
    size = 2
    options = ("--functions", "demo")

    def setUp(self):
        super().setUp()
        self.hosts = [Program(agent.program.address) for agent in self.cluster.agents]
        for host in self.hosts:
            self.addCleanup(host.process.stdout.close)
            self.addCleanup(host.process.wait)
            self.addCleanup(host.process.kill)
            self.assertEqual(host.line(), "serving")

    def tearDown(self):
        for rank, host in enumerate(self.hosts):
            if host.process.poll() is None:
                self.assertEqual(self.call("demo.stop", rank=rank).text, "stopped")
                self.assertEqual(host.end(), (0, ["OK"]))
        super().tearDown()

    def test_values_and_tensors_go_in_and_come_back(self):
        agent = self.cluster.agents[0]
        x = np.arange(5, dtype=np.float32)
        agent.put(x, name="x")
        self.call("demo.scale", {"tensor": "x"}, 2.0)
        np.testing.assert_array_equal(agent.get("x"), 2 * x)
        for one in (None, 7, -1, 0.25, "ä€", b"\x00\xff", [2, -1], {"device": "cpu"}, {"dtype": 10}):
            with self.subTest(value=one):
                self.set_value("kept", one)
                self.assertEqual(self.call("demo.identity", one), self.get_value("kept"))
        copy = self.call("demo.identity", {"tensor": "x"}, result="y").tensor
        np.testing.assert_array_equal(agent.get(copy), 2 * x)
        agent.put(np.zeros((0, 3), np.float32), name="none")
        self.assertTrue(self.call("demo.identity", {"tensor": "none"}).tensor)

    def test_a_function_makes_its_result(self):
        self.call("demo.range", 1 << 16, result="r")
        np.testing.assert_array_equal(
            self.cluster.agents[0].get("r"), np.arange(1 << 16, dtype=np.float32))
        self.refused(INVALID, "BAD_SHAPE", self.call, "demo.range", -1)

    def test_functions_call_collectives(self):
        for rank, agent in enumerate(self.cluster.agents):
            agent.put(np.full(3, rank + 1, np.float32), name="s")
        said = self.on_all("demo.sum", {"tensor": "s"}, "sum", group="world")
        self.assertEqual([one.integer for one in said], [2, 12])
        for agent in self.cluster.agents:
            np.testing.assert_array_equal(agent.get("s"), np.full(3, 3, np.float32))
        self.refused(INVALID, "BAD_REDUCE_OP", self.call, "demo.sum", {"tensor": "s"}, "mean",
                     group="world")

    def test_what_a_function_does_wrongly_is_told_by_name(self):
        for argument, code, reason, text in (
            (0, INVALID, "BAD_VALUE", "neither an argument nor of env->make"),
            (1, INVALID, "BAD_VALUE", "not UTF-8"),
            (2, INVALID, "BAD_VALUE", "no value"),
            (3, ABORTED, "FUNCTION_FAILED", "is no text"),
            (4, ABORTED, "FUNCTION_FAILED", "demo.nonsense failed"),
        ):
            failure = self.refused(code, reason, self.call, "demo.nonsense", argument)
            self.assertIn(text, failure.text)
        self.refused(ABORTED, "BAD_ARGS", self.call, "demo.range")

    def test_a_call_that_nobody_waits_for_is_cancelled(self):
        def begin():
            return self.stub().Call.future(call_of("demo.linger"), timeout=LONG_S)

        futures = [begin(), begin()]
        self.assertEqual([self.hosts[0].line() for _ in range(2)], ["lingering"] * 2)
        third = begin()
        while self.calls() < 3:  # it waits for one of them, and must not begin when they are cancelled
            pass
        third.cancel()
        while self.calls() > 2:
            pass
        for one in futures:
            one.cancel()
        self.assertEqual([self.hosts[0].line() for _ in range(2)], ["cancelled"] * 2)
        while self.calls() > 0:
            pass
        self.assertEqual(self.call("demo.identity", 5).integer, 5)

    def calls(self):
        return sum(one.calls for one in listed(self.stub()))

    def test_a_host_that_dies_fails_its_calls_alone(self):
        self.refused(LOST, "HOST_LOST", self.call, "demo.crash")
        self.assertEqual(self.hosts[0].end(), (-9, []))
        self.refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_FUNC", self.call, "demo.identity", 1)
        self.hosts[0] = Program(self.cluster.agents[0].program.address)
        self.assertEqual(self.hosts[0].line(), "serving")
        self.assertEqual(self.call("demo.identity", 1).integer, 1)

    def test_what_the_agent_does_not_allow_is_refused(self):
        other = Program(self.cluster.agents[0].program.address)
        self.assertEqual(other.end(), (1, ["ALREADY_EXISTS", "FUNCTION_TAKEN"]))
        self.assertEqual(self.call("demo.stop").text, "stopped")
        self.assertEqual(self.hosts[0].end(), (0, ["OK"]))
        for name, said in (("other.f", ["PERMISSION_DENIED", "NOT_ALLOWED"]),
                           ("demo.stop", ["ALREADY_EXISTS", "FUNCTION_TAKEN"]),
                           ("", ["INVALID_ARGUMENT", "BAD_NAME"])):
            other = Program(self.cluster.agents[0].program.address, name)
            self.assertEqual(other.end(), (1, said))


class TestHostOutlivesItsAgent(unittest.TestCase):
    def test_it_is_told_and_ends(self):
        cluster = Cluster(1, "--functions", "demo")
        self.addCleanup(cluster.kill)
        host = Program(cluster.agents[0].program.address)
        self.addCleanup(host.process.wait)
        self.addCleanup(host.process.kill)
        self.assertEqual(host.line(), "serving")
        stub = functions_grpc.FunctionsServiceStub(cluster.agents[0].channel)
        future = stub.Call.future(call_of("demo.linger"), timeout=LONG_S)
        self.assertEqual(host.line(), "lingering")
        cluster.agents[0].program.kill()
        self.assertEqual(host.line(), "cancelled")
        self.assertEqual(host.end(), (1, ["UNAVAILABLE", "CONNECTION_LOST"]))
        self.assertIsNotNone(future.exception())


if __name__ == "__main__":
    support.main()
