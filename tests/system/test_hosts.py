"""Goal: processes beside an agent offer functions, with tensors in mapped memory, and may die at any time.

Method: hosts written by hand on stock stubs, and a stand-in for python3 that the agent starts.
"""

import os
import signal
import stat
import tempfile
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, Cluster, tensors, types
from host_fake import Host, Mapped
from test_functions import PLUGIN, FunctionsCase, call_of, functions, functions_grpc

INVALID = grpc.StatusCode.INVALID_ARGUMENT
DENIED = grpc.StatusCode.PERMISSION_DENIED
LOST = grpc.StatusCode.UNAVAILABLE


class Hosts(FunctionsCase):
    size = 2
    options = ("--functions", "fake,other.", "--hosts-max", "3", "--shares-max", "64", "--plugin", PLUGIN)

    def host(self, *names, rank=0, **more):
        return Host(self.cluster.agents[rank].channel, names, **more).started()

    def begin(self, function, *args, rank=0, **fields):
        return self.stub(rank).Call.future(call_of(function, *args, **fields), timeout=LONG_S)

    def calls(self):
        listed = self.stub().ListFunctions(functions.ListFunctionsRequest(), timeout=LONG_S).functions
        return sum(one.calls for one in listed)

    def gone(self, host):
        """The host ends, and its functions are gone."""
        host.end()
        self.assertIsNone(host.ended())

    def test_a_signature_does_not_steer_a_terminal(self):
        """Clients show it, and a host says it: escapes, C1, and what turns the writing around."""
        info = functions.FunctionInfo(
            name="fake.esc", signature="\x1b[2J\x9b31m\u202eint -> \u00e4\u2069")
        host = self.host(info, name="h\x1b]0;x\x07")
        listed = self.stub().ListFunctions(functions.ListFunctionsRequest(), timeout=LONG_S).functions
        self.assertEqual([one.signature for one in listed if one.name == "fake.esc"],
                         [" [2J 31m int -> \u00e4 "])
        self.gone(host)

    def test_a_host_answers_calls(self):
        host = self.host("fake.add", name="one")
        future = self.begin("fake.add", 1, 2.5, "x", None, b"y", [3], worker=1, worker_count=4)
        call = host.next("call")
        self.assertEqual(call.function, "fake.add")
        self.assertEqual([arg.value.WhichOneof("kind") for arg in call.args],
                         ["integer", "real", "text", "null", "data", "shape"])
        self.assertEqual((call.worker, call.worker_count, call.group_size, call.rank,
                          call.world_size), (1, 4, 4, 0, 2))
        self.assertTrue(0 < call.timeout_ms <= LONG_S * 1000)
        host.give(call.call, integer=7)
        self.assertEqual(future.result().result.integer, 7)
        listed = self.stub().ListFunctions(functions.ListFunctionsRequest(), timeout=LONG_S).functions
        self.assertEqual([one.source for one in listed if one.name == "fake.add"], ["host one"])
        self.gone(host)
        self.refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_FUNC", self.call, "fake.add")

    def test_tensors_are_mapped_and_locked(self):
        agent, host = self.cluster.agents[0], self.host("fake.twice")
        x = np.arange(5, dtype=np.float32)
        agent.put(x, name="x")
        future = self.begin("fake.twice", {"tensor": "x"})
        reading = agent.tensors.Get.future(tensors.GetRequest(handle="x"), timeout=LONG_S)
        call = host.next("call")
        mapped = Mapped(call.args[0].memory)
        np.testing.assert_array_equal(mapped.array, x)
        mapped.array *= 2
        self.assertFalse(reading.done())
        host.give(call.call, null=True)
        future.result()
        np.testing.assert_array_equal(np.frombuffer(reading.result().payload, np.float32), 2 * x)
        mapped.close()
        self.gone(host)

    def test_an_empty_tensor_has_no_memory(self):
        agent, host = self.cluster.agents[0], self.host("fake.f")
        agent.put(np.zeros((0, 3), np.float32), name="x")
        future = self.begin("fake.f", {"tensor": "x"}, result="y")
        call = host.next("call")
        self.assertEqual(call.args[0].memory.token, b"")
        host.give(call.call, tensor=call.args[0].memory.handle)
        future.result()
        self.assertEqual(agent.get("y").shape, (0, 3))
        self.gone(host)

    def test_a_host_makes_its_result(self):
        agent, host = self.cluster.agents[0], self.host("fake.make")
        future = self.begin("fake.make", result="made")
        call = host.next("call")
        array = np.arange(6, dtype=np.int32).reshape(2, 3)
        mapped = Mapped(host.make(call.call, array).memory)
        wasted = host.make(call.call, array, request=9).memory
        mapped.array[...] = array
        host.give(call.call, tensor=mapped.handle)
        self.assertEqual(list(future.result().result.spec.shape), [2, 3])
        np.testing.assert_array_equal(agent.get("made"), array)
        mapped.close()
        self.assertEqual(len(self.names()), 1)
        self.refused(grpc.StatusCode.NOT_FOUND, "NO_TENSOR", agent.get, wasted.handle)
        self.gone(host)

    def test_hosts_call_collectives(self):
        hosts = [self.host("fake.sum", rank=rank) for rank in range(2)]
        for rank, agent in enumerate(self.cluster.agents):
            agent.put(np.full(3, rank + 1, np.float32), name="x")
        futures = [self.begin("fake.sum", {"tensor": "x"}, rank=rank, group="world") for rank in range(2)]
        calls = [host.next("call") for host in hosts]
        for host, call in zip(hosts, calls):
            host.send(op=functions.HostOp(
                call=call.call, request=5, op="all_reduce", input=call.args[0].memory.handle,
                reduce_op=types.REDUCE_OP_SUM))
        for host, call in zip(hosts, calls):
            self.assertFalse(host.next("done").HasField("error"))
            host.give(call.call, null=True)
        for future in futures:
            future.result()
        np.testing.assert_array_equal(self.cluster.agents[1].get("x"), [3, 3, 3])
        for host in hosts:
            self.gone(host)

    def test_what_a_host_asks_for_wrongly_is_answered(self):
        host = self.host("fake.f")
        future = self.begin("fake.f")
        call = host.next("call").call
        for fields, reason in (
            (dict(name="dance"), "BAD_VALUE"),
            (dict(name="all_reduce", input="tensor:0.0.1"), "BAD_VALUE"),
            (dict(name="barrier"), "NO_CALL_GROUP"),
        ):
            name = fields.pop("name")
            self.assertEqual(host.op(call, name, **fields).error.reason, reason)
        big = functions.HostMake(call=call, request=3)
        big.spec.dtype = types.DTYPE_FP32
        big.spec.shape.append(1 << 50)
        host.send(make=big)
        self.assertEqual(host.next("done").error.reason, "MEMORY_LIMIT")
        host.give(call, tensor="tensor:0.0.1")
        self.refused(INVALID, "BAD_VALUE", future.result)
        self.gone(host)

    def test_a_host_says_why_a_call_failed(self):
        host = self.host("fake.f")
        for error, code, reason in (
            (dict(reason="NO_INK", text="äöü"), grpc.StatusCode.ABORTED, "NO_INK"),
            (dict(text="x" * 5000), grpc.StatusCode.ABORTED, "FUNCTION_FAILED"),
            (dict(code=14, reason="RANK_LOST", text="rank 3 is gone"), LOST, "RANK_LOST"),
            (dict(code=99, reason="no reason"), grpc.StatusCode.ABORTED, "FUNCTION_FAILED"),
        ):
            future = self.begin("fake.f")
            host.fail(host.next("call").call, **error)
            self.refused(code, reason, future.result)
        self.gone(host)

    def test_as_many_calls_are_sent_as_the_host_wants(self):
        host = self.host("fake.f", calls_max=2)
        futures = [self.begin("fake.f", number) for number in range(4)]
        first, second = host.next("call"), host.next("call")
        host.give(second.call, integer=second.args[0].value.integer)
        third = host.next("call")
        host.give(first.call, integer=first.args[0].value.integer)
        fourth = host.next("call")
        for one in (third, fourth):
            host.give(one.call, integer=one.args[0].value.integer)
        self.assertEqual([future.result().result.integer for future in futures], [0, 1, 2, 3])
        self.gone(host)

    def test_a_host_that_ends_fails_its_calls_and_frees_their_tensors(self):
        agent, host = self.cluster.agents[0], self.host("fake.f", calls_max=1)
        agent.put(np.ones(3, np.float32), name="x")
        running = self.begin("fake.f", {"tensor": "x"}, result="y")
        host.next("call")
        waiting = self.begin("fake.f")
        while self.calls() < 2:
            pass
        host.call.cancel()
        for future in (running, waiting):
            failure = self.refused(LOST, "HOST_LOST", future.result)
            self.assertIn("fake.f", failure.text)
        self.assertEqual(agent.get("x").tolist(), [1, 1, 1])
        self.refused(LOST, "HOST_LOST", agent.get, "y")
        again = self.host("fake.f")
        self.gone(again)

    def test_a_host_that_ends_within_a_collective(self):
        host = self.host("fake.f")
        future = self.begin("fake.f", group="world")
        call = host.next("call").call
        host.send(op=functions.HostOp(call=call, request=1, op="barrier"))
        while self.cluster.agents[0].stats().op_running_count == 0:
            pass
        host.call.cancel()
        self.refused(LOST, "HOST_LOST", future.result)
        self.refused(LOST, "HOST_LOST", self.call, "tests.op", "barrier", None, None, 0,
                     group="world", rank=1)

    def test_a_call_whose_caller_goes_away_is_cancelled_in_its_host(self):
        host = self.host("fake.f", calls_max=1)
        future = self.begin("fake.f")
        call = host.next("call").call
        waits = self.begin("fake.f")
        future.cancel()
        self.assertEqual(host.next("cancel"), call)
        host.send(stopped=call)
        host.give(host.next("call").call, integer=1)
        self.assertEqual(waits.result().result.integer, 1)
        self.gone(host)

    def test_a_call_that_overruns_is_told_and_its_result_is_dropped(self):
        host = self.host("fake.f")
        future = self.begin("fake.f", timeout_ms=100, result="late")
        call = host.next("call").call
        self.refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT", future.result)
        self.assertEqual(host.next("cancel"), call)
        host.give(call, integer=1)
        self.refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT", self.get_value, "late")
        self.gone(host)

    def test_names_have_to_be_allowed_and_free(self):
        channel = self.cluster.agents[0].channel
        for name in ("demo.f", "fakes.f", "tests.add_one", "fak"):
            failure = Host(channel, [name]).ended()
            self.assertEqual((failure.code, failure.reason), (DENIED, "NOT_ALLOWED"), failure)
        host = self.host("fake.f", "other.g", "fake")
        failure = Host(channel, ["fake.h", "fake.f"]).ended()
        self.assertEqual((failure.code, failure.reason),
                         (grpc.StatusCode.ALREADY_EXISTS, "FUNCTION_TAKEN"))
        self.refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_FUNC", self.call, "fake.h")
        failure = Host(channel, ["fake." + "x" * 300]).ended()
        self.assertEqual(failure.reason, "BAD_NAME")
        self.gone(host)

    def test_hosts_have_a_limit(self):
        hosts = [self.host("fake.f%d" % i) for i in range(3)]
        failure = Host(self.cluster.agents[0].channel, ["fake.f9"]).ended()
        self.assertEqual((failure.code, failure.reason),
                         (grpc.StatusCode.RESOURCE_EXHAUSTED, "HOST_LIMIT"))
        for host in hosts:
            self.gone(host)

    def test_a_host_out_of_order_is_cut_off(self):
        for messages, reason in (
            ([dict(start=functions.HostStart())], "BAD_ORDER"),
            ([dict(stopped=1)], "BAD_ORDER"),
            ([dict(returned=functions.HostReturn(call=7, result=functions.Value(null=True)))], "BAD_ORDER"),
            ([dict(make=functions.HostMake(call=7))], "BAD_SHAPE"),
            ([dict(op=functions.HostOp(call=7))], "BAD_ORDER"),
            ([dict(imported=functions.HostImported(request=3))], "BAD_ORDER"),
            ([dict()], "BAD_ORDER"),
            ([dict(returned=functions.HostReturn(call=7))], "BAD_VALUE"),
        ):
            host = self.host("fake.f")
            for message in messages:
                host.send(**message)
            failure = host.ended()
            self.assertEqual((failure.code, failure.reason), (INVALID, reason), messages)
        stub = self.stub()
        with self.assertRaises(grpc.RpcError) as caught:
            list(stub.Serve(iter([functions.ServeRequest(stopped=1)]), timeout=LONG_S))
        self.assertEqual(support.Failure(caught.exception).reason, "NO_START")

    def test_a_host_imports_modules(self):
        importing = self.stub().ImportModule
        request = functions.ImportModuleRequest(module="fake.more")
        self.refused(grpc.StatusCode.NOT_FOUND, "NO_HOST", importing, request, timeout=LONG_S)
        host = self.host(imports=True)
        self.refused(DENIED, "NOT_ALLOWED", importing,
                     functions.ImportModuleRequest(module="os"), timeout=LONG_S)
        future = importing.future(request, timeout=LONG_S)
        asked = getattr(host.next(), "import")
        self.assertEqual(asked.module, "fake.more")
        host.send(imported=functions.HostImported(
            request=asked.request, functions=[functions.FunctionInfo(name="fake.more.f")]))
        self.assertEqual([one.name for one in future.result().functions], ["fake.more.f"])
        called = self.begin("fake.more.f")
        host.give(host.next("call").call, integer=1)
        self.assertEqual(called.result().result.integer, 1)
        future = importing.future(request, timeout=LONG_S)
        asked = getattr(host.next(), "import")
        host.send(imported=functions.HostImported(
            request=asked.request, error=types.Error(text="no such module")))
        failure = self.refused(grpc.StatusCode.FAILED_PRECONDITION, "IMPORT_FAILED", future.result)
        self.assertIn("no such module", failure.text)
        future = importing.future(request, timeout=LONG_S)
        host.next()
        host.call.cancel()
        self.refused(LOST, "HOST_LOST", future.result)

    def test_the_next_host_is_asked_if_one_cannot_import(self):
        importing = self.stub().ImportModule
        request = functions.ImportModuleRequest(module="fake.more")
        hosts = [self.host(name="one", imports=True), self.host(name="none"), self.host(name="two", imports=True)]
        cannot = lambda host: host.send(imported=functions.HostImported(
            request=getattr(host.next(), "import").request, error=types.Error(text="not in " + str(id(host)))))
        future = importing.future(request, timeout=LONG_S)
        cannot(hosts[0])
        asked = getattr(hosts[2].next(), "import")
        self.assertEqual(asked.module, "fake.more")
        hosts[2].send(imported=functions.HostImported(
            request=asked.request, functions=[functions.FunctionInfo(name="fake.more.g")]))
        self.assertEqual([one.name for one in future.result().functions], ["fake.more.g"])
        called = self.begin("fake.more.g")
        hosts[2].give(hosts[2].next("call").call, integer=2)
        self.assertEqual(called.result().result.integer, 2)
        future = importing.future(request, timeout=LONG_S)
        cannot(hosts[0])
        cannot(hosts[2])
        failure = self.refused(grpc.StatusCode.FAILED_PRECONDITION, "IMPORT_FAILED", future.result)
        self.assertIn("host one cannot import fake.more: not in %d" % id(hosts[0]), failure.text)
        future = importing.future(request, timeout=LONG_S)  # who is lost by it is not followed by others
        hosts[0].next()
        hosts[0].call.cancel()
        self.refused(LOST, "HOST_LOST", future.result)


class Closed(unittest.TestCase):
    def test_without_functions_nobody_may_be_a_host(self):
        cluster = Cluster(1)
        try:
            failure = Host(cluster.agents[0].channel, ["fake.f"]).ended()
            self.assertEqual((failure.code, failure.reason), (DENIED, "NOT_ALLOWED"))
        finally:
            cluster.stop()

    def test_an_agent_that_stops_ends_its_hosts(self):
        cluster = Cluster(1, "--functions", "*", "--leave-timeout", "100ms")
        host = Host(cluster.agents[0].channel, ["fake.f"]).started()
        stub = functions_grpc.FunctionsServiceStub(cluster.agents[0].channel)
        future = stub.Call.future(call_of("fake.f"), timeout=LONG_S)
        host.next("call")
        self.assertEqual(cluster.agents[0].program.stop(), 0)
        with self.assertRaises(grpc.RpcError):
            future.result()
        cluster.stop()


FAKE_PYTHON = """#!/bin/sh
# In the place of python3: runs the system's with the host of the test.
exec /usr/bin/python3 %s "$@"
"""

FAKE_HOST = """
import os, sys, threading
sys.path[:0] = %r
import grpc
from tutti.v1 import functions_service_pb2 as functions, functions_service_pb2_grpc as stubs
import queue
assert sys.argv[1:4] == ["-m", "tutti.host", "--agent"], sys.argv
names = sys.argv[5:]
def watch():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
print("serving", names, flush=True)
out = queue.SimpleQueue()
channel = grpc.insecure_channel(sys.argv[4])
stub = stubs.FunctionsServiceStub(channel)
out.put(functions.ServeRequest(start=functions.HostStart(name="fake python",
    functions=[functions.FunctionInfo(name=one + "." + f) for one in names for f in ("pid", "crash")])))
for message in stub.Serve(iter(out.get, None), metadata=[("tutti-host-key", os.environ["TUTTI_HOST_KEY"])]):
    if message.HasField("call"):
        if message.call.function.endswith("crash"):
            print("Traceback: something \\x1b[31mbad", file=sys.stderr, flush=True)
            os._exit(3)
        out.put(functions.ServeRequest(returned=functions.HostReturn(call=message.call.call,
            result=functions.Value(integer=os.getpid()))))
"""


class Python(FunctionsCase):
    size = 1
    options = ("--python", "worker,more.worker")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-python-")
        host = os.path.join(cls.folder.name, "host.py")
        with open(host, "w") as file:
            file.write(FAKE_HOST % [support.build_stubs()])
        python = os.path.join(cls.folder.name, "python3")
        with open(python, "w") as file:
            file.write(FAKE_PYTHON % host)
        os.chmod(python, stat.S_IRWXU)
        cls.path = os.environ["PATH"]
        os.environ["PATH"] = cls.folder.name + ":" + cls.path
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        os.environ["PATH"] = cls.path
        cls.folder.cleanup()

    def pid(self):
        """Of the host, once it serves."""
        until = time.monotonic() + LONG_S
        while True:
            try:
                return self.call("worker.pid").integer
            except grpc.RpcError as error:
                self.assertIn(support.Failure(error).reason, ("UNKNOWN_FUNC", "HOST_LOST"))
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_a_host_is_started_and_its_output_is_in_the_log(self):
        self.pid()
        self.cluster.agents[0].program.wait_for_log("python: serving ['worker', 'more.worker']")
        self.assertNotEqual(self.call("more.worker.pid").integer, 0)

    def test_a_host_that_crashes_is_named_with_its_last_words_and_comes_back(self):
        pid = self.pid()
        failure = self.refused(LOST, "HOST_LOST", self.call, "worker.crash")
        self.assertIn("Traceback: something  [31mbad", failure.text)
        self.assertNotEqual(self.pid(), pid)
        self.cluster.agents[0].program.wait_for_log("has ended with code 3")

    def test_a_host_that_is_killed_comes_back(self):
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + LONG_S
        while self.pid() == pid:
            self.assertLess(time.monotonic(), until)

    def test_a_host_ends_with_its_agent(self):
        pid = self.pid()
        agent = self.cluster.agents[0]
        self.assertEqual(agent.program.stop(), 0)
        self.assertFalse(os.path.exists("/proc/%d" % pid))
        self.cluster.replace(0)
        pid = self.pid()
        self.cluster.agents[0].program.kill()
        until = time.monotonic() + LONG_S
        while os.path.exists("/proc/%d" % pid):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        self.cluster.replace(0)

    def test_a_module_that_is_none_is_refused(self):
        for name in ("-c", "a b", ","):
            status, _, err = support.run("tutti-agent", "--python", name)
            self.assertNotEqual(status, 0)
            self.assertIn("--python", err)


if __name__ == "__main__":
    support.main()
