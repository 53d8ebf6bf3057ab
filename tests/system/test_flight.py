"""Goal: what an agent did can be read while it runs and after something went wrong.

Method: real agents; ops that succeed, fail and wait; the record by RPC and as the file of --flight-dir.
"""

import json
import os
import signal
import tempfile
import time
import unittest

import numpy as np

import support
from cluster_case import LONG_S, Cluster, ClusterCase, all_reduce, collectives, diagnostics, handle

INVALID = support.grpc.StatusCode.INVALID_ARGUMENT


def record(agent, first=0, size=0):
    """All pages of an agent's flight record: entries, and the first page."""
    entries = []
    page = None
    while True:
        request = diagnostics.GetFlightRecordRequest(from_record_id=first, page_size=size)
        answer = agent.diagnostics.GetFlightRecord(request, timeout=LONG_S)
        page = page or answer
        if not answer.entries:
            return entries, page
        entries += answer.entries
        first = answer.next_record_id


def wait_for_file(path):
    until = time.monotonic() + LONG_S
    while not os.path.exists(path):
        assert time.monotonic() < until, os.listdir(os.path.dirname(path))
        time.sleep(0.02)
    with open(path) as file:
        return json.load(file)


class Record(ClusterCase):
    size = 2

    def test_an_op_is_told_with_its_times_shapes_and_place(self):
        before = len(record(self.cluster.agents[0])[0])
        now = time.time_ns()
        self.cluster.all(lambda agent: all_reduce(agent, np.ones((2, 3), np.float32)))
        entries, page = record(self.cluster.agents[0])
        one = entries[before]
        self.assertEqual((one.profiling_name, one.state), ("nccl:all_reduce", "completed"))
        self.assertEqual((one.process_group, one.is_p2p), ("world", False))
        self.assertEqual(list(one.input_sizes[0].dims), [2, 3])
        self.assertEqual(list(one.output_sizes[0].dims), [2, 3])
        self.assertEqual((list(one.input_dtypes), one.input_count), (["FP32"], 1))
        self.assertLess(abs(one.time_created_ns - now), 10**9 * LONG_S)
        self.assertLessEqual(one.time_created_ns, one.time_discovered_started_ns)
        self.assertLess(one.time_discovered_started_ns, one.time_discovered_completed_ns)
        self.assertGreater(one.duration_ms, 0)
        self.assertEqual(one.collective_seq_id, page.groups[0].last_completed_collective)
        self.assertEqual(list(page.groups[0].ranks), [0, 1])
        self.assertEqual((page.rank, page.groups[0].name), (0, "world"))

    def test_a_refused_op_is_there_with_its_error(self):
        def call(agent):
            return all_reduce(agent, np.ones(2 + agent.rank, np.float32))

        for failure in self.cluster.all(call):
            self.assert_failed(failure, INVALID, "SHAPE_MISMATCH")
        one = record(self.cluster.agents[1])[0][-1]
        self.assertEqual((one.state, one.error_reason), ("failed", "SHAPE_MISMATCH"))
        self.assertIn("rank 1 all_reduce(sum, FP32[3])", one.error_text)
        self.assertEqual(one.error_code, "INVALID_ARGUMENT")

    def test_an_op_that_waits_is_seen_waiting(self):
        first, second = self.cluster.agents
        request = collectives.BarrierRequest()
        call = first.ops.Barrier.future(request, timeout=LONG_S)
        until = time.monotonic() + LONG_S
        while record(first)[0][-1].state != "started":
            self.assertLess(time.monotonic(), until)
        one = record(first)[0][-1]
        self.assertEqual((one.profiling_name, one.duration_ms), ("nccl:barrier", 0))
        self.assertFalse(one.retired)
        second.ops.Barrier(request, timeout=LONG_S)
        call.result()
        self.assertEqual(record(first)[0][-1].state, "completed")

    def test_sends_name_both_ends(self):
        first, second = self.cluster.agents
        name = first.put(np.arange(3, dtype=np.int32))
        taken = second.ops.Recv.future(
            collectives.RecvRequest(tag=4), timeout=LONG_S
        )
        first.ops.Send(
            collectives.SendRequest(input=handle(name), destination=1, tag=4), timeout=LONG_S
        )
        taken.result()
        sent, received = record(first)[0][-1], record(second)[0][-1]
        self.assertEqual(sent.profiling_name, "nccl:send 0->1")
        self.assertEqual(received.profiling_name, "nccl:recv 1<-0")
        self.assertTrue(sent.is_p2p and received.is_p2p)
        self.assertEqual((sent.collective_seq_id, sent.p2p_seq_id > 0), (0, True))

    def test_pages_join_and_have_a_limit(self):
        for _ in range(5):
            self.assert_works()
        agent = self.cluster.agents[0]
        small = [one.record_id for one in record(agent, size=2)[0]]
        self.assertEqual(small, [one.record_id for one in record(agent)[0]])
        self.assertEqual(small, list(range(small[0], small[0] + len(small))))
        failure = self.fails(lambda: record(agent, size=1025))
        self.assert_failed(failure, INVALID, "PAGE_LIMIT", "1025", "1024")
        self.assertEqual(record(agent, first=2**64 - 1)[0], [])


class Examine(ClusterCase):
    size = 3

    def examine(self, agent, **fields):
        return agent.diagnostics.Examine(diagnostics.ExamineRequest(**fields), timeout=LONG_S)

    def test_an_agent_tells_its_limits_and_whom_it_reaches(self):
        agent = self.cluster.agents[1]
        answer = self.examine(agent, ranks=[0, 1, 2])
        self.assertEqual([(one.rank, one.reached) for one in answer.reaches], [(0, True), (2, True)])
        self.assertEqual((answer.rank, answer.pid), (1, agent.program.process.pid))
        self.assertEqual(list(answer.addresses), [agent.program.address])
        self.assertGreater(answer.files, 255)
        self.assertGreater(answer.files_open, 5)
        self.assertTrue(answer.kernel.startswith("Linux "))
        self.assertEqual(len(self.examine(agent).reaches), 0)

    def test_a_stopped_rank_is_not_reached(self):
        victim = self.cluster.agents[2].program
        victim.send(signal.SIGSTOP)
        try:
            answer = self.examine(self.cluster.agents[0], ranks=[1, 2], wait_ms=200)
        finally:
            victim.send(signal.SIGCONT)
        self.assertEqual([one.reached for one in answer.reaches], [True, False])
        self.assertIn("no answer in 0.2", answer.reaches[1].why)

    def test_what_makes_no_sense_is_refused(self):
        agent = self.cluster.agents[0]
        failure = self.fails(lambda: self.examine(agent, wait_ms=10001))
        self.assert_failed(failure, INVALID, "BAD_WAIT", "10001")
        failure = self.fails(lambda: self.examine(agent, ranks=[3]))
        self.assert_failed(failure, INVALID, "RANK_RANGE", "rank 3")
        failure = self.fails(lambda: self.examine(agent, ranks=[1] * 1025))
        self.assert_failed(failure, INVALID, "LOOKUP_LIMIT", "1025")


class Dump(unittest.TestCase):
    def test_a_failure_leaves_a_file_that_readers_of_pytorch_take(self):
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(2, "--flight-dir", folder, "--job", "a/b")
            try:
                cluster.all(lambda agent: all_reduce(agent, np.ones(4, np.float32)))
                cluster.all(lambda agent: all_reduce(agent, np.ones(4 + agent.rank, np.float32)))
                dumps = [
                    wait_for_file(os.path.join(folder, "flight-a_b-%d.json" % rank))
                    for rank in range(2)
                ]
            finally:
                cluster.stop()
            path = os.path.join(folder, "t.json")
            code, out, err = support.run("tutti", "trace", "--from", folder, "-o", path)
            self.assertEqual((code, err), (0, ""))
            self.assertIn("4 ops of 2 of 2 ranks, clocks as they were", out)
            with open(path) as file:
                events = json.load(file)["traceEvents"]
            names = [event["name"] for event in events if event["ph"] == "X"]
            self.assertEqual((names.count("all_reduce"), names.count("all_reduce (failed)")), (2, 2))
        for rank, dump in enumerate(dumps):
            self.assertEqual(dump["rank"], rank)
            self.assertEqual(
                dump["pg_config"],
                {"world": {"name": "world", "desc": "tutti", "ranks": "[0, 1]"}},
            )
            self.assertEqual(dump["pg_status"]["world"]["last_completed_collective"], 2)
            good, bad = dump["entries"]
            self.assertEqual(good["process_group"], ["world", "tutti"])
            self.assertEqual((good["state"], good["input_sizes"]), ("completed", [[4]]))
            self.assertEqual((good["input_dtypes"], good["frames"]), (["FP32"], []))
            self.assertEqual((bad["state"], bad["collective_seq_id"]), ("failed", 2))
            self.assertEqual(bad["error"]["reason"], "SHAPE_MISMATCH")
            self.assertGreater(good["time_discovered_completed_ns"], good["time_created_ns"])

    def test_a_folder_that_is_not_there_is_told_at_the_start(self):
        code, _, err = support.run("tutti-agent", "--flight-dir", "/nonexistent/folder")
        self.assertEqual(code, 1)
        self.assertIn("--flight-dir /nonexistent/folder cannot be written to: No such file", err)

    def test_a_folder_that_goes_is_told_and_nothing_breaks(self):
        folder = tempfile.mkdtemp(prefix="tutti-flights-")
        cluster = Cluster(1, "--flight-dir", folder)
        try:
            os.rmdir(folder)
            agent = cluster.agents[0]
            request = collectives.AllReduceRequest(input=handle("none"))
            failure = cluster.on([0], lambda one: one.ops.AllReduce(request, timeout=LONG_S))[0]
            self.assertIsInstance(failure, support.Failure)
            agent.program.wait_for_log("the flight record was not written: could not write")
        finally:
            cluster.stop()


if __name__ == "__main__":
    support.main()
