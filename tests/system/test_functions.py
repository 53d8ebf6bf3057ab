"""Goal: functions that an operator has put beside the tensors are called by name, in order with ops.

Method: stock stubs against two real agents with the plug-in tests/plugins/tests_plugin.c; what is
called, what comes back, and what is left behind.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, Cluster, ClusterCase, array_of, spec_of, tensors, types
from commands_stream import Stream, run

from tutti.v1 import collectives_service_pb2 as collectives
from tutti.v1 import functions_service_pb2 as functions
from tutti.v1 import functions_service_pb2_grpc as functions_grpc
from tutti.v1 import progress_pb2 as progress

Value = functions.Value
PLUGINS = os.path.join(support.BUILD, "tests", "plugins")
LOADER = os.path.join(PLUGINS, "loader_plugin.so")
PLUGIN = os.path.join(PLUGINS, "tests_plugin.so")
INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def value(thing):
    """A Value of what Python has; a dict names the field."""
    if thing is None:
        return Value(null=True)
    if isinstance(thing, dict):
        return Value(**thing)
    if isinstance(thing, int):
        return Value(integer=thing)
    if isinstance(thing, float):
        return Value(real=thing)
    if isinstance(thing, str):
        return Value(text=thing)
    if isinstance(thing, bytes):
        return Value(data=thing)
    return Value(shape=functions.Shape(dims=thing))


def call_of(function, *args, **fields):
    return functions.CallRequest(function=function, args=[value(arg) for arg in args], **fields)


class FunctionsCase(ClusterCase):
    """Calls on agents of a cluster."""

    def stub(self, rank=0):
        return functions_grpc.FunctionsServiceStub(self.cluster.agents[rank].channel)

    def call(self, function, *args, rank=0, wait=LONG_S, **fields):
        return self.stub(rank).Call(call_of(function, *args, **fields), timeout=wait).result

    def on_all(self, function, *args, **fields):
        """The same call on all ranks at once; their results."""
        futures = [
            self.stub(rank).Call.future(call_of(function, *args, **fields), timeout=LONG_S)
            for rank in range(self.size)
        ]
        return [future.result().result for future in futures]

    def set_value(self, name, thing, rank=0):
        request = functions.SetValueRequest(name=name, value=value(thing))
        self.stub(rank).SetValue(request, timeout=LONG_S)

    def get_value(self, name, rank=0):
        request = functions.GetValueRequest(name=name)
        return self.stub(rank).GetValue(request, timeout=LONG_S).value

    def refused(self, code, reason, what, *args, **fields):
        """How a call failed."""
        with self.assertRaises(grpc.RpcError) as caught:
            what(*args, **fields)
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (code, reason), failure)
        return failure

    def names(self, rank=0):
        """Handles and names of all tensors."""
        return [one.tensor.handle for one in self.cluster.agents[rank].tensors.List(
            tensors.ListRequest(), timeout=LONG_S).tensors]


class Values(FunctionsCase):
    size = 1
    options = ("--plugin", PLUGIN, "--calls-max", "64")

    def test_values_go_in_and_come_back(self):
        self.assertEqual(self.call("tests.add_one", 1).integer, 2)
        self.assertEqual(self.call("tests.add_one", -(2**63)).integer, 1 - 2**63)
        self.assertEqual(self.call("tests.add_half", 1.5).real, 2.0)
        self.assertEqual(self.call("tests.suffix", "hello").text, "hello_suffix")
        self.assertEqual(list(self.call("tests.shape_append", [1, 2, 3]).shape.dims), [1, 2, 3, 4, 5])
        self.assertEqual(list(self.call("tests.shape_append", []).shape.dims), [4, 5])

    def test_every_kind_of_value_comes_back_as_it_was(self):
        for one in (
            None, 0, 7, -1, 0.25, float("inf"), "", "ä€😀", b"", b"\x00\xff", [], [2, -1],
            {"dtype": types.DTYPE_BF16}, {"device": "cpu"}, {"device": "cuda:3"},
        ):
            sent = value(one)
            self.assertEqual(self.call("tests.identity", one), sent)
            self.set_value("kept", one)
            self.assertEqual(self.get_value("kept"), sent)
            self.assertEqual(self.call("tests.identity", {"name": "kept"}), sent)

    def test_a_result_goes_to_its_name(self):
        self.call("tests.add_one", 1, result="n")
        self.call("tests.add_one", {"name": "n"}, result="n")
        self.assertEqual(self.get_value("n").integer, 3)
        self.call("tests.suffix", "x", result="n")
        self.assertEqual(self.get_value("n").text, "x_suffix")

    def test_a_name_that_holds_nothing_is_null(self):
        self.assertEqual(self.call("tests.kind", {"name": "nothing"}).integer, 0)
        self.refused(MISSING, "NO_VALUE", self.get_value, "nothing")
        self.refused(MISSING, "NO_TENSOR", self.call, "tests.kind", {"tensor": "nothing"})

    def test_a_function_may_be_in_a_name(self):
        request = functions.GetFunctionRequest(function="tests.add_one", result="f")
        info = self.stub().GetFunction(request, timeout=LONG_S).function
        self.assertEqual((info.name, info.source), ("tests.add_one", "plugin tests_plugin.so"))
        self.assertEqual(self.call("f", 4).integer, 5)
        self.assertEqual(self.get_value("f").function, "tests.add_one")
        self.set_value("g", 5)
        self.refused(PRECONDITION, "NOT_A_FUNCTION", self.call, "g", 4)

    def test_what_is_called_wrongly_is_refused_by_name(self):
        failure = self.refused(MISSING, "UNKNOWN_FUNC", self.call, "tests.add_two", 1)
        self.assertIn("tests.add_two", failure.text)
        self.refused(MISSING, "UNKNOWN_FUNC", self.call, "no such function")
        self.refused(grpc.StatusCode.ABORTED, "BAD_ARGS", self.call, "tests.add_one", "1")
        self.refused(INVALID, "BAD_VALUE", self.call, "tests.kind", {})
        self.refused(INVALID, "BAD_VALUE", self.call, "tests.kind", {"device": "gpu"})
        self.refused(INVALID, "BAD_VALUE", self.call, "tests.kind", "x" * (2**20 + 1))
        self.refused(INVALID, "BAD_VALUE", self.call, "tests.kind", [1] * 65)
        self.refused(INVALID, "BAD_VALUE", self.call, "tests.kind", *range(65))
        self.refused(INVALID, "BAD_NAME", self.call, "tests.add_one", 1, result="-x")
        self.refused(INVALID, "BAD_NAME", self.set_value, "", 1)
        self.refused(INVALID, "BAD_VALUE", self.set_value, "x", {"tensor": "y"})
        self.refused(INVALID, "BAD_VALUE", self.call, "tests.add_one", 1, worker=2, worker_count=2)

    def test_a_function_says_why_it_failed(self):
        aborted = grpc.StatusCode.ABORTED
        self.assertEqual(self.refused(aborted, "OUT_OF_INK", self.call, "tests.fail", "OUT_OF_INK",
                                    "no ink").text, "no ink")
        self.refused(aborted, "FUNCTION_FAILED", self.call, "tests.fail", "not a reason", "text")
        self.assertIn("tests.fail_mutely", self.refused(aborted, "FUNCTION_FAILED", self.call,
                                                      "tests.fail_mutely").text)
        for which in range(4):
            self.refused(INVALID, "BAD_VALUE", self.call, "tests.nonsense", which)

    def test_what_needs_the_result_of_a_failed_call_fails_with_its_cause(self):
        aborted = grpc.StatusCode.ABORTED
        self.refused(aborted, "WORN", self.call, "tests.fail", "WORN", "worn out", result="bad")
        self.refused(aborted, "WORN", self.get_value, "bad")
        self.refused(aborted, "WORN", self.call, "tests.add_one", {"name": "bad"}, result="worse")
        self.refused(aborted, "WORN", self.cluster.agents[0].get, "worse")
        self.refused(MISSING, "UNKNOWN_FUNC", self.call, "no.such", result="bad")
        self.refused(MISSING, "UNKNOWN_FUNC", self.get_value, "bad")

    def test_an_op_on_a_plain_value_says_what_it_is(self):
        self.set_value("lr", 0.1)
        failure = self.refused(PRECONDITION, "NOT_A_TENSOR", self.cluster.agents[0].get, "lr")
        self.assertEqual(failure.text, "lr holds a float, not a tensor")
        self.refused(PRECONDITION, "NOT_A_TENSOR", self.call, "tests.kind", {"tensor": "lr"})

    def test_all_functions_are_listed(self):
        listed = self.stub().ListFunctions(functions.ListFunctionsRequest(), timeout=LONG_S).functions
        names = [one.name for one in listed]
        self.assertEqual(names, sorted(names))
        by_name = {one.name: one for one in listed}
        self.assertEqual(by_name["runtime.disco.worker_rank"].source, "builtin")
        self.assertEqual(by_name["tests.add_one"].signature, "int -> int")

    def test_the_load_of_a_plug_in_is_in_the_log(self):
        self.assertIn("tests_plugin.so: 15 functions", self.cluster.agents[0].program.log())


class Tensors(FunctionsCase):
    size = 2
    options = ("--plugin", PLUGIN, "--function-threads", "2")

    def setUp(self):
        super().setUp()
        self.x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def test_a_function_writes_tensors_in_place(self):
        agent = self.cluster.agents[0]
        agent.put(self.x, name="x")
        agent.put(np.ones_like(self.x), name="y")
        self.assertTrue(self.call("tests.axpy", 2.0, {"tensor": "x"}, {"tensor": "y"}).null)
        np.testing.assert_array_equal(agent.get("y"), 1 + 2 * self.x)
        self.call("tests.axpy", 1.0, {"tensor": "x"}, {"tensor": "x"})  # named twice
        np.testing.assert_array_equal(agent.get("x"), 2 * self.x)
        agent.delete("x", "y")

    def test_a_tensor_that_is_made_is_the_result(self):
        agent = self.cluster.agents[0]
        made = self.call("tests.make", [2, 3])
        np.testing.assert_array_equal(agent.get(made.tensor), self.x)
        self.assertEqual(list(made.spec.shape), [2, 3])
        named = self.call("tests.make", [6], result="made")
        np.testing.assert_array_equal(agent.get("made"), self.x.ravel())
        self.assertEqual(self.get_value("made").tensor, named.tensor)
        agent.delete(made.tensor, "made")
        self.assertEqual(self.names(), [])

    def test_what_is_made_and_not_returned_is_gone(self):
        self.assertEqual(self.call("tests.waste").integer, 8)
        self.assertEqual(self.names(), [])
        self.wait_empty(self.cluster.agents[0])

    def test_an_argument_that_is_returned_is_copied(self):
        agent = self.cluster.agents[0]
        agent.put(self.x, name="x")
        self.call("tests.identity", {"name": "x"}, result="same")
        self.call("tests.axpy", 1.0, {"tensor": "x"}, {"tensor": "x"})
        np.testing.assert_array_equal(agent.get("same"), self.x)
        np.testing.assert_array_equal(agent.get("x"), 2 * self.x)
        self.call("tests.identity", {"name": "x"}, result="x")  # itself: nobody else has it
        np.testing.assert_array_equal(agent.get("x"), 2 * self.x)
        agent.delete("x", "same")
        self.assertEqual(self.names(), [])

    def test_calls_wait_for_ops_and_ops_for_calls(self):
        """One stream on each rank, all sent before the first answer is read."""
        streams = [Stream(agent) for agent in self.cluster.agents]
        for rank, stream in enumerate(streams):
            x = self.x + rank
            reduce = collectives.AllReduceRequest(
                input=types.TensorArg(handle="x"), output="x", reduce_op=types.REDUCE_OP_SUM)
            twice = call_of("tests.axpy", 1.0, {"tensor": "x"}, {"tensor": "x"})
            stream.send(
                run(1, put=tensors.PutRequest(spec=spec_of(x), name="x"), payload=x.tobytes()),
                run(2, call=twice),
                run(3, all_reduce=reduce),
                run(4, call=twice),
                run(5, call=call_of("tests.identity", {"name": "x"}, result="y")),
                run(6, get=tensors.GetRequest(handle="y")),
                run(7, call=call_of("tests.add_one", 41, result="n", scope="s")),
                run(8, call=call_of("tests.add_one", {"name": "n"}, result="n", scope="s")),
                run(9, get_value=functions.GetValueRequest(name="n")),
                run(10, delete=tensors.DeleteRequest(handles=["x", "y", "n"])),
            )
            stream.done()
        for stream in streams:
            answers = stream.rest()
            self.assertEqual([], [a for a in answers.values() if a.WhichOneof("result") == "error"])
            got = array_of(answers[6].get.tensor, answers[6].payload)
            np.testing.assert_array_equal(got, 2 * 2 * (2 * self.x + 1))
            self.assertEqual(answers[9].get_value.value.integer, 43)

    def test_functions_call_collectives(self):
        for rank, agent in enumerate(self.cluster.agents):
            agent.put(self.x + rank, name="x")
        results = self.on_all("tests.all_reduce", {"tensor": "x"}, group="world", result="sum")
        for agent in self.cluster.agents:
            np.testing.assert_array_equal(agent.get("sum"), 2 * self.x + 1)
        self.on_all("runtime.disco.allreduce", {"tensor": "x"}, "max", group="world", result="max")
        np.testing.assert_array_equal(self.cluster.agents[0].get("max"), self.x + 1)
        self.on_all("tests.op", "barrier", None, None, 0, group="world")
        self.on_all("tests.op", "broadcast", {"name": "x"}, {"name": "x"}, 1, group="world")
        np.testing.assert_array_equal(self.cluster.agents[0].get("x"), self.x + 1)
        for agent in self.cluster.agents:
            agent.delete("x", "sum", "max")

    def test_every_collective_can_be_called(self):
        half, whole = np.arange(2, dtype=np.float32), np.arange(4, dtype=np.float32)
        for op, size_in, size_out in (
            ("all_reduce", 4, 4), ("reduce", 4, 4), ("broadcast", 4, 4), ("all_gather", 2, 4),
            ("gather", 2, 4), ("scatter", 4, 2), ("reduce_scatter", 4, 2), ("all_to_all", 4, 4),
        ):
            for agent in self.cluster.agents:
                agent.put(whole[:size_in], name="in")
                agent.put(np.zeros(size_out, np.float32), name="out")
            self.on_all("tests.op", op, {"name": "in"}, {"name": "out"}, 0, group="world")
            for agent in self.cluster.agents:
                agent.delete("in", "out")
        futures = []
        for rank, op in enumerate(("send", "recv")):
            self.cluster.agents[rank].put(half + rank, name="m")
            tensor = {"name": "m"}
            args = (tensor, None) if op == "send" else (None, tensor)
            futures.append(self.stub(rank).Call.future(
                call_of("tests.op", op, *args, 1 - rank, group="world"), timeout=LONG_S))
        for future in futures:
            future.result()
        np.testing.assert_array_equal(self.cluster.agents[1].get("m"), half)
        for agent in self.cluster.agents:
            agent.delete("m")

    def test_collectives_that_differ_or_lack_something_fail_on_all_ranks(self):
        for agent in self.cluster.agents:
            agent.put(self.x, name="x")
        futures = []
        for rank in range(2):
            what = "tests.op", "all_reduce", {"name": "x"} if rank else None, None, 0
            futures.append(self.stub(rank).Call.future(
                call_of(*what, group="world"), timeout=LONG_S))
        for future in futures:
            self.refused(INVALID, "NO_INPUT", future.result)
        self.refused(PRECONDITION, "NO_CALL_GROUP", self.call, "tests.all_reduce", {"tensor": "x"})
        self.refused(INVALID, "BAD_VALUE", self.call, "tests.op", "all_together", None, None, 0,
                   group="world")
        self.refused(MISSING, "NO_GROUP", self.call, "tests.op", "barrier", None, None, 0,
                   group="nobody")
        for agent in self.cluster.agents:
            agent.delete("x")

    def test_a_collective_that_one_rank_does_not_call_ends_in_time(self):
        late = self.refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT", self.call, "tests.op",
                          "barrier", None, None, 1500, group="world")
        self.assertIn("rank 1", late.text)
        try:  # what rank 0 has sent before its end is enough, if it comes before the news of that end
            self.call("tests.op", "barrier", None, None, 0, group="world", rank=1)
        except grpc.RpcError as error:
            self.assertEqual(support.Failure(error).reason, "TIMEOUT")

    def test_more_functions_than_threads_wait_for_each_other(self):
        """Each rank begins them in another order, with two threads."""
        futures = []
        groups = ["g%d" % i for i in range(6)]
        for group in groups:
            self.cluster.group(group, [0, 1])
        for rank in range(2):
            for group in groups if rank == 0 else reversed(groups):
                futures.append(self.stub(rank).Call.future(
                    call_of("tests.op", "barrier", None, None, 0, group=group), timeout=LONG_S))
        for future in futures:
            future.result()

    def test_workers_are_told_their_place(self):
        ranks = self.on_all("runtime.disco.worker_rank")
        self.assertEqual([one.integer for one in ranks], [0, 1])
        self.assertEqual(self.call("runtime.disco.world_size").integer, 2)
        where = dict(worker=5, worker_count=8, group_size=2)
        for name, wanted in (("worker_id", 5), ("worker_rank", 5), ("world_size", 8),
                             ("num_groups", 4), ("group_size", 2), ("group_id", 2)):
            self.assertEqual(self.call("runtime.disco." + name, **where).integer, wanted, name)
        self.assertEqual(self.call("runtime.disco.device").device, "cpu")

    def test_builtins_make_and_copy(self):
        agent = self.cluster.agents[0]
        self.call("runtime.disco.empty", [2, 2], {"dtype": types.DTYPE_INT8}, result="e")
        self.assertEqual(agent.get("e").shape, (2, 2))
        self.call("runtime.disco.empty", [3], "float64", {"device": "cpu"}, result="e")
        self.assertEqual(agent.get("e").dtype, np.float64)
        self.call("runtime.disco.copy", {"name": "e"}, result="f")
        self.assertEqual(agent.get("f").shape, (3,))
        agent.delete("e", "f")
        self.refused(grpc.StatusCode.ABORTED, "BAD_ARGS", self.call, "runtime.disco.empty", [2], "f33")


class Time(FunctionsCase):
    size = 1
    options = ("--plugin", PLUGIN, "--function-threads", "3", "--calls-max", "8",
               "--memory-limit", "64MiB")

    def setUp(self):
        super().setUp()
        self.cluster.agents[0].put(np.ones(4, np.float32), name="t")

    def tearDown(self):
        self.cluster.agents[0].delete("t")
        super().tearDown()

    def test_a_call_that_overruns_is_told_and_keeps_its_tensors(self):
        late = self.refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT", self.call, "tests.sleep",
                          1500, {"tensor": "t"}, {"tensor": "t"}, timeout_ms=100)
        self.assertIn("tests.sleep", late.text)
        self.cluster.agents[0].program.wait_for_log("function tests.sleep timed out")
        self.cluster.agents[0].get("t")  # waits for the function

    def test_the_calls_of_a_scope_run_one_at_a_time_and_others_pass(self):
        first = self.stub().Call.future(call_of("tests.sleep", 60000, True, scope="s"), timeout=LONG_S)
        while self.calls() == 0:
            pass
        second = self.stub().Call.future(call_of("tests.add_one", 1, scope="s"), timeout=LONG_S)
        while self.calls() == 1:
            pass
        self.assertEqual(self.call("tests.add_one", 1).integer, 2)
        self.assertFalse(second.done())
        first.cancel()
        self.assertEqual(second.result().result.integer, 2)

    def test_what_waits_in_a_scope_has_its_time_too(self):
        first = self.stub().Call.future(call_of("tests.sleep", 60000, True, scope="s"), timeout=LONG_S)
        while self.calls() == 0:
            pass
        late = self.refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT", self.call, "tests.add_one",
                          1, scope="s", timeout_ms=50)
        self.assertIn("an earlier call of its session", late.text)
        first.cancel()

    def calls(self):
        listed = self.stub().ListFunctions(functions.ListFunctionsRequest(), timeout=LONG_S).functions
        return sum(one.calls for one in listed)

    def test_a_caller_that_goes_away_cancels_the_function(self):
        future = self.stub().Call.future(call_of("tests.sleep", 60000, True), timeout=LONG_S)
        while self.calls() == 0:
            pass
        future.cancel()
        until = time.monotonic() + LONG_S
        while self.calls() > 0:
            self.assertLess(time.monotonic(), until)

    def test_a_function_that_runs_is_a_stall(self):
        future = self.stub().Call.future(call_of("tests.sleep", 60000, True), timeout=LONG_S)
        until = time.monotonic() + LONG_S
        stalls = []
        while not any(one.op == "function tests.sleep" for one in stalls):
            self.assertLess(time.monotonic(), until)
            stalls = self.cluster.members.DescribeStall(
                progress.DescribeStallRequest(), timeout=LONG_S).stalls
        self.assertIn("function tests.sleep: rank 0 is in it, for", stalls[0].text)
        future.cancel()
        while self.cluster.members.DescribeStall(
                progress.DescribeStallRequest(), timeout=LONG_S).stalls:
            self.assertLess(time.monotonic(), until)

    def test_calls_have_a_limit(self):
        sleepy = [self.stub().Call.future(call_of("tests.sleep", 60000, True), timeout=LONG_S)
                  for _ in range(8)]
        while self.calls() < 8:
            pass
        self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "CALL_LIMIT", self.call, "tests.add_one", 1)
        for future in sleepy:
            future.cancel()
        while self.calls() > 0:
            pass
        self.assertEqual(self.call("tests.add_one", 1).integer, 2)

    def test_memory_that_is_not_there_is_said(self):
        self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "MEMORY_LIMIT", self.call, "tests.make",
                   [1 << 30])
        self.refused(INVALID, "BAD_SHAPE", self.call, "tests.make", [1] * 17)


class Stopping(unittest.TestCase):
    def test_an_agent_ends_though_a_function_does_not_return(self):
        cluster = Cluster(1, "--plugin", PLUGIN, "--leave-timeout", "100ms")
        try:
            agent = cluster.agents[0]
            stub = functions_grpc.FunctionsServiceStub(agent.channel)
            future = stub.Call.future(call_of("tests.sleep", 600000), timeout=LONG_S)
            while not any(one.calls for one in stub.ListFunctions(
                    functions.ListFunctionsRequest(), timeout=LONG_S).functions):
                pass
            self.assertEqual(agent.program.stop(), 0)
            self.assertIn("tests.sleep", agent.program.log())
            with self.assertRaises(grpc.RpcError):
                future.result()
        finally:
            cluster.stop()


class Modules(FunctionsCase):
    size = 1

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-modules-")
        cls.options = ("--module-path", cls.folder.name)
        for name in ("tests_plugin.so", "refusing_plugin.so", "twice_plugin.so"):
            shutil.copy(os.path.join(PLUGINS, name), cls.folder.name)
        shutil.copy(PLUGIN, os.path.join(cls.folder.name, "open.so"))
        os.chmod(os.path.join(cls.folder.name, "open.so"), 0o777)
        with open(os.path.join(cls.folder.name, "text.so"), "w") as file:
            file.write("no library")
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def load(self, path, **fields):
        request = functions.LoadModuleRequest(path=path, **fields)
        return self.stub().LoadModule(request, timeout=LONG_S)

    def test_a_module_is_loaded_once_and_called_by_its_name(self):
        futures = [self.stub().LoadModule.future(
            functions.LoadModuleRequest(path="tests_plugin.so"), timeout=LONG_S) for _ in range(8)]
        for future in futures:
            answer = future.result()
            self.assertEqual(answer.module, "tests_plugin")
            self.assertEqual(len(answer.functions), 15)
        self.load("tests_plugin.so", result="mod")
        self.assertEqual(self.get_value("mod").text, "tests_plugin")
        self.assertEqual(self.call("tests_plugin.tests.add_one", 1).integer, 2)
        self.assertEqual(self.cluster.agents[0].program.log().count("/tests_plugin.so: "), 1)

    def test_what_is_no_module_is_refused(self):
        for path in ("", ".", "..", "/etc/passwd", "../tests_plugin.so", "a/b.so", ".hidden.so",
                     "x" * 300, "a b.so"):
            self.refused(INVALID, "BAD_PATH", self.load, path)
        self.refused(MISSING, "NO_MODULE", self.load, "nothing.so")
        for path, words in (("text.so", "cannot load"), ("refusing_plugin.so", "returned 7"),
                            ("open.so", "chmod")):
            self.assertIn(words, self.refused(PRECONDITION, "BAD_MODULE", self.load, path).text)
        self.refused(PRECONDITION, "NO_DEVICE", self.load, "tests_plugin.so", device="cuda:7")
        self.load("twice_plugin.so")  # its names have a prefix, so they are not taken

    def test_a_folder_where_others_may_put_files_is_refused(self):
        """Also a sticky one, where a link could be another one when it is loaded; and by which way
        the file is reached does not matter."""
        folder = self.cluster.agents[0].program.folder.name
        link = os.path.join(self.folder.name, "link.so")
        shutil.copy(PLUGIN, os.path.join(folder, "linked.so"))
        os.symlink(os.path.join(folder, "linked.so"), link)
        for open_one in (self.folder.name, folder):
            before = os.stat(open_one).st_mode & 0o7777
            os.chmod(open_one, 0o1777)
            try:
                text = self.refused(PRECONDITION, "BAD_MODULE", self.load, "link.so").text
            finally:
                os.chmod(open_one, before)
            self.assertIn(os.path.join(open_one, " can be written by others (mode 1777)"), text)
        self.load("link.so")

    def test_a_module_finds_libraries_beside_it(self):
        def build(name, text, *words):
            source = os.path.join(self.folder.name, name + ".c")
            with open(source, "w") as file:
                file.write(text)
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-o", os.path.join(self.folder.name, name + ".so"),
                 source, "-I", os.path.join(support.SOURCE, "include"), *words],
                check=True, close_fds=False)

        build("libbeside", "int beside(void) { return 0; }\n")
        build("needs", '#include "tutti/plugin.h"\nint beside(void);\n'
              "int tutti_plugin_1(const tutti_registry *registry) { (void)registry; return beside(); }\n",
              "-L" + self.folder.name, "-lbeside", "-Wl,-rpath,$ORIGIN")
        self.load("needs.so")

    def test_a_loader_s_words_name_the_file(self):
        text = self.refused(PRECONDITION, "BAD_MODULE", self.load, "text.so").text
        self.assertIn("cannot load: %s/text.so: " % os.path.realpath(self.folder.name), text)

    def test_an_agent_with_a_bad_plug_in_does_not_start(self):
        for path, words in ((os.path.join(PLUGINS, "none.so"), "there is no"),
                            (os.path.join(PLUGINS, "twice_plugin.so"), "runtime.disco.device"),
                            (os.path.join(PLUGINS, "refusing_plugin.so"), "returned 7")):
            status, _, err = support.run("tutti-agent", "--plugin", path)
            self.assertNotEqual(status, 0)
            self.assertIn(words, err)

    def test_without_a_folder_nothing_is_loaded(self):
        cluster = Cluster(1)
        try:
            stub = functions_grpc.FunctionsServiceStub(cluster.agents[0].channel)
            self.refused(grpc.StatusCode.PERMISSION_DENIED, "NO_MODULES", stub.LoadModule,
                       functions.LoadModuleRequest(path="tests_plugin.so"), timeout=LONG_S)
        finally:
            cluster.stop()


class Documents(FunctionsCase):
    size = 1

    @classmethod
    def setUpClass(cls):
        """The plug-in of docs/functions.md, as a reader would make it."""
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-docs-")
        with open(os.path.join(support.SOURCE, "docs", "functions.md")) as file:
            blocks = re.findall(r"```c\n(.*?)```", file.read(), re.S)
        source = os.path.join(cls.folder.name, "mine.c")
        with open(source, "w") as file:
            file.write(blocks[0])
        plugin = os.path.join(cls.folder.name, "mine.so")
        subprocess.run(
            ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2", "-o", plugin, source,
             "-I", os.path.join(support.SOURCE, "include")], check=True, close_fds=False)
        cls.options = ("--plugin", plugin)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_the_plug_in_of_the_page_works(self):
        agent = self.cluster.agents[0]
        agent.put(np.ones(3, np.float32), name="x")
        agent.put(np.ones(3, np.float32), name="y")
        self.call("mine.axpy", 2.0, {"tensor": "x"}, {"tensor": "y"})
        self.assertEqual(agent.get("y").tolist(), [3, 3, 3])

    def test_the_header_is_c_plus_plus_too(self):
        text = '#include "tutti/plugin.h"\nint main() { return tutti_any_int(0).kind - 1; }\n'
        source = os.path.join(self.folder.name, "one.cc")
        with open(source, "w") as file:
            file.write(text)
        subprocess.run(
            ["c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source,
             "-I", os.path.join(support.SOURCE, "include")], check=True, close_fds=False)


class Loaders(FunctionsCase):
    """Files that are no plug-ins, with a plug-in that knows them."""

    size = 1

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-modules-")
        cls.options = ("--module-path", cls.folder.name, "--plugin", LOADER)
        for name in ("other_kind.so", "refused.so", "mute.so", "nested.so"):
            shutil.copy(os.path.join(PLUGINS, "other_kind.so"), os.path.join(cls.folder.name, name))
        for number in range(4):
            shutil.copy(LOADER, os.path.join(cls.folder.name, "more%d.so" % number))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", os.path.join(cls.folder.name, "unknown.so"),
                        "-x", "c", "/dev/null"], check=True)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def load(self, path):
        return self.stub().LoadModule(functions.LoadModuleRequest(path=path), timeout=LONG_S)

    def test_a_loader_adds_functions_with_a_context(self):
        names = [one.name for one in self.load("other_kind.so").functions]
        self.assertEqual(names, ["other_kind.first", "other_kind.second"])
        self.assertEqual(self.call("other_kind.first").integer, 7)
        self.assertEqual(self.call("other_kind.second").integer, 8)

    def test_a_loader_may_refuse_a_file(self):
        for path, words in (("refused.so", "not this one"), ("mute.so", "did not say why"),
                            ("nested.so", "a loader adds a loader"), ("unknown.so", "no loader knows it")):
            self.assertIn(words, self.refused(PRECONDITION, "BAD_MODULE", self.load, path).text)

    def test_there_are_8_loaders_at_most(self):
        for number in range(3):
            self.load("more%d.so" % number)
        self.assertIn("8 already", self.refused(PRECONDITION, "BAD_MODULE", self.load, "more3.so").text)

    def test_without_a_loader_such_a_file_is_refused(self):
        status, _, err = support.run("tutti-agent", "--plugin", os.path.join(PLUGINS, "other_kind.so"))
        self.assertNotEqual(status, 0)
        self.assertIn("no plug-in of this version", err)


if __name__ == "__main__":
    support.main()
