"""Goal: who watches a cluster sees what it does, in a form that Prometheus takes without complaint;
who should not see it does not; and strangers at the HTTP port do no harm.

Method: real servers, urllib and raw sockets; pages are checked by rules of our own and, where it is
installed, by promtool. The dashboard is compared with what the servers really show.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import support
import grpc
import numpy as np
from cluster_case import LONG_S, Agent, Cluster, collectives, diagnostics, handle, inline, types

import metrics_page
from host_fake import Host, functions, functions_grpc
from session_stream import Failed, Session, sessions
from tutti.v1 import store_service_pb2 as store
from tutti.v1 import store_service_pb2_grpc as store_grpc

DASHBOARD = os.path.join(support.SOURCE, "docker", "grafana", "tutti.json")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00-%s-00f067aa0ba902b7-01" % TRACE


def metrics_options(folder, name):
    path = os.path.join(folder, name)
    return path, ("--metrics=127.0.0.1:0", "--metrics-port-file=" + path)


def read_address(path):
    with open(path) as file:
        return file.read().strip()


class Watched:
    """A coordinator and two agents with metrics."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-metrics-")
        path, options = metrics_options(self.folder.name, "coordinator")
        self.cluster = Cluster(0, coordinator_options=options)
        self.cluster.size = 2
        self.coordinator = read_address(path)
        self.agents = []
        for rank in range(2):
            path, options = metrics_options(self.folder.name, "agent-%d" % rank)
            options += ("--log=info,agent/op=debug", "--log-format=machine")
            self.cluster.agents.append(Agent(self.cluster, rank, *options))
            self.agents.append(read_address(path))
        for agent in self.cluster.agents:
            agent.wait_joined()

    def both(self, call):
        """call(agent) on both at once; the results, or the errors."""
        results = [None, None]

        def run(rank):
            try:
                results[rank] = call(self.cluster.agents[rank])
            except grpc.RpcError as error:
                results[rank] = error.code()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        return results

    def close(self):
        self.cluster.kill()
        self.folder.cleanup()


def all_reduce(agent, array, **fields):
    metadata = fields.pop("metadata", None)
    request = collectives.AllReduceRequest(
        input=inline(array), reduce_op=types.REDUCE_OP_SUM, payload=array.tobytes(), **fields
    )
    return agent.ops.AllReduce(request, timeout=LONG_S, metadata=metadata)


class MetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.watched = Watched()
        cls.addClassCleanup(cls.watched.close)
        cls.array = np.arange(16, dtype=np.float32)
        cls.results = cls.watched.both(lambda agent: all_reduce(agent, cls.array))
        cls.refused = cls.watched.both(
            lambda agent: all_reduce(agent, cls.array[: 4 + agent.rank])
        )
        agent = cls.watched.cluster.agents[0]
        name = agent.put(cls.array)
        agent.get(name)
        cls.store = store_grpc.StoreServiceStub(cls.watched.cluster.coordinator_channel)
        cls.store.Set(store.StoreServiceSetRequest(key=b"a", value=b"bc"), timeout=LONG_S)
        try:
            cls.store.Get(store.StoreServiceGetRequest(key=b"none"), timeout=LONG_S)
        except grpc.RpcError:
            pass

    def test_pages__keep_the_rules_of_the_format(self):
        for address in [self.watched.coordinator] + self.watched.agents:
            page = metrics_page.read(address)
            self.assertEqual(page.problems, [])
            self.assertGreater(len(page.samples), 30)

    def test_pages__please_promtool(self):
        if shutil.which("promtool") is None:
            self.skipTest("no promtool (Debian: prometheus)")
        for address in [self.watched.coordinator, self.watched.agents[0]]:
            done = subprocess.run(
                ["promtool", "check", "metrics"],
                input=metrics_page.fetch(address, "/metrics")[1].encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                close_fds=False,
                timeout=60,
            )
            self.assertEqual((done.returncode, done.stdout.decode()), (0, ""))

    def test_rules__find_what_is_wrong(self):
        """The rules can fail."""
        for text in (
            "a 1\n",
            "# HELP a A.\n# TYPE a counter\na 1\n",
            "# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n",
            "# HELP a A.\n# TYPE a gauge\na 1\na 2\n",
            '# HELP a A.\n# TYPE a gauge\na{b="c} 1\n',
            "# HELP a_seconds A.\n# TYPE a_seconds histogram\n"
            'a_seconds_bucket{le="1"} 2\na_seconds_bucket{le="+Inf"} 1\n'
            "a_seconds_sum 1\na_seconds_count 1\n",
            "# HELP a_ms A.\n# TYPE a_ms gauge\na_ms 1\n",
        ):
            self.assertNotEqual(metrics_page.Page(text).problems, [], text)

    def test_agent__counts_ops_by_kind_and_result(self):
        self.assertIsInstance(self.refused[0], grpc.StatusCode)  # lengths that differ
        self.assertEqual(self.refused[0], self.refused[1])
        for rank, address in enumerate(self.watched.agents):
            page = metrics_page.read(address)
            ended = lambda result: page.value(
                "tutti_agent_ops_total", kind="all_reduce", result=result
            )
            self.assertGreaterEqual(ended("OK"), 1)
            self.assertEqual(ended(self.refused[0].name), 1)
            self.assertEqual(
                page.value("tutti_agent_op_duration_seconds_count", kind="all_reduce"),
                page.sum("tutti_agent_ops_total", kind="all_reduce"),
            )
            self.assertEqual(
                page.value("tutti_agent_op_bytes_total", kind="all_reduce"),
                64 * ended("OK"),
            )
            self.assertEqual(page.value("tutti_agent_ops_running"), 0)
            self.assertEqual(
                page.value("tutti_agent_info", job="default", rank=str(rank), device="cpu"), 1
            )

    def test_agent__counts_what_it_holds(self):
        page = metrics_page.read(self.watched.agents[0])
        self.assertEqual(page.value("tutti_agent_tensors"), 1)
        self.assertGreaterEqual(page.value("tutti_agent_memory_used_bytes"), 64)
        self.assertEqual(page.sum("tutti_agent_memory_bytes"), page.value("tutti_agent_memory_used_bytes"))
        self.assertEqual(page.value("tutti_agent_memory_bytes", owner="tensors"), 64)
        self.assertEqual(page.value("tutti_agent_received_bytes_total"), 64)
        self.assertEqual(page.value("tutti_agent_sent_bytes_total"), 64)
        self.assertEqual(page.value("tutti_agent_epoch"), 1)
        self.assertEqual(page.value("tutti_agent_world_size"), 2)
        self.assertEqual(page.value("tutti_agent_session_up"), 1)
        self.assertEqual(page.value("tutti_agent_groups"), 1)
        self.assertEqual(page.value("tutti_agent_sessions_led"), 0)

    def test_coordinator__counts_jobs_keys_and_calls(self):
        page = metrics_page.read(self.watched.coordinator)
        self.assertEqual(page.value("tutti_coordinator_jobs"), 1)
        self.assertEqual(page.value("tutti_coordinator_job_ranks_alive", job="default"), 2)
        self.assertEqual(page.value("tutti_coordinator_job_epoch", job="default"), 1)
        self.assertGreaterEqual(page.value("tutti_coordinator_store_keys"), 1)
        self.assertEqual(page.value("tutti_build_info", program="tutti-coordinator",
                                    version=support.run("tutti", "--version")[1].split()[-1]), 1)
        store_calls = dict(service="tutti.v1.StoreService", method="Get")
        self.assertEqual(page.value("tutti_rpc_calls_total", code="NOT_FOUND", **store_calls), 1)
        self.assertEqual(page.value("tutti_rpc_call_duration_seconds_count", **store_calls), 1)
        self.assertGreaterEqual(page.value("tutti_rpc_calls_running"), 2)  # two sessions

    def test_unknown_methods__share_one_number(self):
        """A stranger cannot grow the page."""
        before = metrics_page.read(self.watched.coordinator)
        channel = self.watched.cluster.coordinator_channel
        for number in range(20):
            with self.assertRaises(grpc.RpcError):
                channel.unary_unary("/no.such.Service/M%d" % number)(b"", timeout=LONG_S)
        wanted = before.value("tutti_rpc_unknown_calls_total") + 20
        until = time.monotonic() + LONG_S
        after = metrics_page.read(self.watched.coordinator)
        while after.value("tutti_rpc_unknown_calls_total") < wanted and time.monotonic() < until:
            after = metrics_page.read(self.watched.coordinator)  # a call is counted behind its answer
        self.assertEqual(after.value("tutti_rpc_unknown_calls_total"), wanted)
        self.assertEqual({name for name, _ in before.samples}, {name for name, _ in after.samples})

    def test_health__is_told(self):
        for address in [self.watched.coordinator] + self.watched.agents:
            self.assertEqual(metrics_page.fetch(address, "/healthz"), (200, "ok\n"))
            self.assertEqual(metrics_page.fetch(address, "/readyz"), (200, "ready\n"))
            self.assertEqual(metrics_page.fetch(address, "/healthz?verbose")[0], 200)

    def test_http__refuses_what_it_does_not_have(self):
        address = self.watched.coordinator
        self.assertEqual(metrics_page.fetch(self.watched.agents[0], "/")[0], 404)  # the page is the coordinator's
        self.assertEqual(metrics_page.fetch(address, "/metrics/../../etc/passwd")[0], 404)
        self.assertEqual(metrics_page.fetch(address, "/metrics", "POST", b"x" * 100000)[0], 405)
        self.assertEqual(metrics_page.fetch(address, "/metrics", "HEAD"), (200, ""))

    def test_http__outlives_strangers(self):
        host, port = self.watched.agents[0].rsplit(":", 1)
        for words in (b"\0" * 1000, b"GET " + b"/" * 100000, b"GET / HTTP/1.1\r\nA: " + b"b" * 100000,
                      b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"):
            with socket.create_connection((host, int(port)), timeout=LONG_S) as one:
                try:
                    one.sendall(words)
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(4096):
                        pass
                except OSError:
                    pass  # it may cut us off
        idle = [socket.create_connection((host, int(port)), timeout=LONG_S) for _ in range(16)]
        try:
            self.assertEqual(metrics_page.fetch(self.watched.agents[0], "/healthz")[0], 200)
        finally:
            for one in idle:
                one.close()

    def test_trace__of_the_caller_is_in_the_log_of_every_op(self):
        self.watched.both(
            lambda agent: all_reduce(agent, self.array, metadata=(("traceparent", PARENT),))
        )
        for agent in self.watched.cluster.agents:
            agent.program.wait_for_log("trace " + TRACE)
            line = [text for text in agent.program.log().splitlines() if TRACE in text][-1]
            record = agent.diagnostics.GetFlightRecord(
                diagnostics.GetFlightRecordRequest(), timeout=LONG_S
            )
            self.assertIn(TRACE, [entry.trace_id for entry in record.entries])
            self.assertIn("", [entry.trace_id for entry in record.entries])
            self.assertRegex(line, r"level=debug room=agent/op .*rank=%d.*all_reduce: OK in" % agent.rank)

    def test_trace__of_a_program_is_in_the_records_of_its_ops(self):
        """libtutti takes it from the environment, as programs hand it to their children."""
        trace = "4bf92f3577b34da6a3ce929d0e0e4999"
        agents = self.watched.cluster.agents
        words = ["--agent", agents[0].program.address, "--timeout", "60s", "barrier"]
        parent = {"TRACEPARENT": "00-%s-00f067aa0ba902b7-01" % trace}
        code, _, err = support.run("tutti", *words, environment=parent)
        self.assertEqual(code, 0, err)
        for agent in agents:
            request = diagnostics.GetFlightRecordRequest()
            record = agent.diagnostics.GetFlightRecord(request, timeout=LONG_S)
            self.assertIn(trace, [entry.trace_id for entry in record.entries])
        bad = {"TRACEPARENT": "00-\n" + "x" * 600}  # hinders nobody
        code, _, err = support.run("tutti", *words, environment=bad)
        self.assertEqual(code, 0, err)

    def test_trace__that_is_malformed_is_left_out(self):
        bad = (PARENT[:-1], PARENT.upper(), "00-" + "0" * 32 + PARENT[35:], PARENT + "x" * 4000)
        for parent in bad:
            self.watched.both(
                lambda agent: all_reduce(agent, self.array, metadata=(("traceparent", parent),))
            )
        self.assertNotIn(TRACE.upper(), self.watched.cluster.agents[0].program.log())
        self.assertNotIn("trace 0000", self.watched.cluster.agents[0].program.log())

    def test_dashboard__asks_for_what_is_there(self):
        with open(DASHBOARD) as file:
            dashboard = json.load(file)
        there = set()
        for address in [self.watched.coordinator] + self.watched.agents:
            there |= {name for name, _ in metrics_page.read(address).samples}
        asked = set()
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                asked |= set(re.findall(r"\b(?:tutti|process)_[a-z_]+", target["expr"]))
        self.assertGreater(len(asked), 15)
        self.assertEqual(asked - there, set())


class MemoryTest(unittest.TestCase):
    def setUp(self):
        self.watched = Watched()
        self.addCleanup(self.watched.close)

    def test_agent__says_what_its_memory_is(self):
        """An op waits for rank 1: with what came in its call, and with a tensor that is deleted meanwhile."""
        agent = self.watched.cluster.agents[0]
        lent = agent.put(np.ones(64, np.float32))
        request = collectives.AllReduceRequest(
            input=inline(np.ones(48, np.float32)), payload=np.ones(48, np.float32).tobytes(),
            reduce_op=types.REDUCE_OP_SUM, options=types.OpOptions(timeout_ms=LONG_S * 1000))
        calls = [
            agent.ops.AllReduce.future(collectives.AllReduceRequest(
                input=handle(lent), output=lent, reduce_op=types.REDUCE_OP_SUM), timeout=LONG_S),
            agent.ops.AllReduce.future(request, timeout=LONG_S),
        ]
        self.wait_for_memory(ops=0, staged=192, lent=0, results=192)
        agent.delete(lent)
        self.wait_for_memory(ops=0, staged=192, lent=256, results=192)
        for call in calls:
            call.cancel()
        self.wait_for_memory(ops=0, staged=0, lent=0, results=0)

    def wait_for_memory(self, **owners):
        until = time.monotonic() + LONG_S
        while True:
            page = metrics_page.read(self.watched.agents[0])
            found = {one: page.value("tutti_agent_memory_bytes", owner=one) for one in owners}
            if found == owners:
                break
            self.assertLess(time.monotonic(), until, found)
        self.assertEqual(page.sum("tutti_agent_memory_bytes"), page.value("tutti_agent_memory_used_bytes"))


class SessionsTest(unittest.TestCase):
    """Sessions and functions: a session led by rank 0, and a host beside it that answers when the test says so."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-metrics-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.cluster = Cluster(0)
        cls.addClassCleanup(cls.cluster.kill)
        cls.cluster.size = 2
        cls.pages = []
        for rank in range(2):
            path, options = metrics_options(cls.folder.name, "agent-%d" % rank)
            cls.cluster.agents.append(Agent(cls.cluster, rank, *options, "--functions=mine"))
            cls.pages.append(read_address(path))
        for agent in cls.cluster.agents:
            agent.wait_joined()

    def value(self, rank, name, **labels):
        return metrics_page.read(self.pages[rank]).value("tutti_agent_" + name, **labels)

    def values(self, *names):
        """Of rank 0, from one page."""
        page = metrics_page.read(self.pages[0])
        return [page.value("tutti_agent_" + name) for name in names]

    def wait(self, name, wanted):
        until = time.monotonic() + LONG_S
        while self.value(0, name) != wanted:
            self.assertLess(time.monotonic(), until, "%s is %s" % (name, self.value(0, name)))
            time.sleep(0.01)

    def test_sessions_their_commands_and_registers_are_counted(self):
        before = self.values("sessions_led_total")[0]
        session = Session(self.cluster.agents[0])
        session.wait(session.empty(1, [4]))
        session.wait(session.empty(2, [4]))
        with self.assertRaises(Failed):
            session.do(copy=sessions.DriveCopy(src=9, into=3))  # there is no register 9
        self.assertEqual(self.values("sessions_led", "sessions_led_total"), [1, before + 1])
        self.assertEqual(self.value(1, "sessions_led"), 0)
        for rank in range(2):  # 1, 2, and 0, which is the session's own
            self.assertEqual(self.value(rank, "session_registers"), 3)
        self.assertEqual(self.value(0, "session_commands_total", result="OK"), 3)
        self.assertEqual(self.value(0, "session_commands_total", result="NOT_FOUND"), 1)
        self.assertEqual(self.value(0, "session_commands_running"), 0)
        session.do(drop=sessions.DriveDrop(registers=[1, 2]))
        self.assertEqual(self.value(1, "session_registers"), 1)
        session.close()
        self.wait("sessions_led", 0)
        self.wait("session_registers", 0)

    def test_calls_and_hosts_are_counted(self):
        agent = self.cluster.agents[0]
        stub = functions_grpc.FunctionsServiceStub(agent.channel)
        known, hosts = self.values("functions", "function_hosts_total")
        host = Host(agent.channel, ["mine.slow"], calls_max=8).started()
        self.assertEqual(self.values("functions", "function_hosts", "function_hosts_total"), [known + 1, 1, hosts + 1])
        request = functions.CallRequest(function="mine.slow", scope="one")
        calls = [stub.Call.future(request, timeout=LONG_S) for _ in range(2)]
        first = host.next("call")
        self.wait("function_calls_waiting", 1)  # for its turn in the scope
        self.assertEqual(self.value(0, "function_calls_running"), 1)
        host.give(first.call, integer=1)
        second = host.next("call")
        host.fail(second.call, code=9, reason="MINE", text="no")
        self.assertEqual(calls[0].result(LONG_S).result.integer, 1)
        self.assertIs(calls[1].exception(LONG_S).code(), grpc.StatusCode.FAILED_PRECONDITION)
        with self.assertRaises(grpc.RpcError):
            stub.Call(functions.CallRequest(function="mine.nothing"), timeout=LONG_S)
        for result in ("OK", "FAILED_PRECONDITION", "NOT_FOUND"):
            self.assertEqual(self.value(0, "function_calls_total", result=result), 1)
        self.assertEqual(self.value(0, "function_call_duration_seconds_count"), 3)
        self.assertEqual(self.values("function_calls_running", "function_calls_waiting"), [0, 0])
        host.call.cancel()
        self.wait("function_hosts", 0)
        self.assertEqual(self.values("functions"), [known])


class MetricsLifeTest(unittest.TestCase):
    def test_agent__is_ready_when_it_has_joined(self):
        with tempfile.TemporaryDirectory() as folder, support.Program("tutti-coordinator") as one:
            path, options = metrics_options(folder, "agent")
            options += ("--coordinator=" + one.address, "--world-size=2")
            with support.Program("tutti-agent", *options, "--rank=0"):
                address = read_address(path)
                self.assertEqual(metrics_page.fetch(address, "/healthz")[0], 200)
                status, text = metrics_page.fetch(address, "/readyz")
                self.assertEqual((status, text), (503, "job default is not joined yet\n"))
                page = metrics_page.read(address)
                self.assertEqual(page.problems, [])
                self.assertEqual(page.value("tutti_agent_joined"), 0)
                with support.Program("tutti-agent", *options[2:], "--rank=1"):
                    until = time.monotonic() + LONG_S
                    while metrics_page.fetch(address, "/readyz")[0] != 200:
                        self.assertLess(time.monotonic(), until)
                        time.sleep(0.02)

    def test_start__without_metrics_opens_no_port(self):
        with support.Program("tutti-coordinator") as one:
            listening = 0
            inodes = set()
            for name in os.listdir("/proc/%d/fd" % one.process.pid):
                try:
                    target = os.readlink("/proc/%d/fd/%s" % (one.process.pid, name))
                except OSError:
                    continue
                inodes |= set(re.findall(r"socket:\[(\d+)\]", target))
            for table in ("tcp", "tcp6"):
                with open("/proc/net/" + table) as file:
                    for line in file.readlines()[1:]:
                        words = line.split()
                        listening += words[3] == "0A" and words[9] in inodes
            self.assertEqual(listening, 1)

    def refused(self, *options):
        code, _, words = support.run("tutti-coordinator", "--listen=127.0.0.1:0", *options)
        self.assertIn(code, (1, 2))
        return words

    def test_start__refuses_addresses_that_others_reach(self):
        for address in ("0.0.0.0:0", "[::]:0"):
            self.assertIn("--metrics-open", self.refused("--metrics=" + address))

    def test_start__opens_them_when_told(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "port")
            options = ("--metrics=0.0.0.0:0", "--metrics-open", "--metrics-port-file=" + path)
            with support.Program("tutti-coordinator", *options):
                port = read_address(path).rsplit(":", 1)[1]
                self.assertEqual(metrics_page.fetch("127.0.0.1:" + port, "/healthz")[0], 200)

    def test_start__says_what_is_wrong_with_an_address(self):
        self.assertIn("Unix socket", self.refused("--metrics=unix:/tmp/x"))
        self.assertIn("--metrics", self.refused("--metrics=no.such.host.invalid:1", "--metrics-open"))
        self.refused("--metrics=127.0.0.1")
        self.refused("--metrics=127.0.0.1:0", "--metrics-port-file=/no/such/folder/port")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            words = self.refused("--metrics=127.0.0.1:%d" % taken.getsockname()[1])
            self.assertIn("in use", words)

    def test_agent__says_it_too(self):
        code, _, words = support.run("tutti-agent", "--metrics=0.0.0.0:0", "--coordinator=127.0.0.1:1")
        self.assertEqual(code, 1)
        self.assertIn("--metrics-open", words)


if __name__ == "__main__":
    support.main()
