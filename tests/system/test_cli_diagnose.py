#!/usr/bin/python3
"""Goal: `tutti stall` and `tutti trace` tell a person what hangs, where, and who was late.

Method: the program itself on a cluster that it starts; ranks that do not call, are stopped, are killed.
"""

import json
import os
import signal
import tempfile
import time
import unittest

import support
from cli_case import RANKS, Case, file_path, start, tutti


def pid_of(rank):
    done = tutti("--json", "status")
    return done.json["ranks"][rank]["pid"]


class Diagnose(Case):
    """A cluster for each test: they break it."""

    def setUp(self):
        self.well("cluster", "start", "-n", str(RANKS))
        self.stopped = []
        self.calls = []

    def tearDown(self):
        for pid in self.stopped:
            os.kill(pid, signal.SIGCONT)
        for call in self.calls:
            call.communicate()
        self.well("cluster", "stop")

    def enter(self, *ranks):
        for rank in ranks:
            self.calls.append(start("barrier", "--rank", str(rank), "--timeout", "60s"))

    def stall(self, fits):
        """What tutti stall says, when that fits."""
        until = time.monotonic() + support.START_S
        while True:
            done = tutti("--json", "stall", "--older", "1ms")
            if any(fits(one) for one in done.json["stalls"]):
                self.assertEqual(done.code, 1)
                return done.json
            self.assertLess(time.monotonic(), until, done)
            time.sleep(0.05)

    def test_stall__names_who_has_not_called(self):
        self.assertEqual(self.json("stall")["stalls"], [])
        self.assertIn("0 ops wait", self.well("stall").text)
        self.enter(0, 1, 3)
        one = self.stall(lambda stall: stall["arrived"] == [0, 1, 3])["stalls"][0]
        self.assertEqual((one["group"], one["sequence"], one["op"]), ("world", 1, "barrier()"))
        self.assertEqual(
            [(rank["rank"], rank["standing"]) for rank in one["ranks"]], [(2, "absent")]
        )
        done = tutti("stall", "--older", "1ms")
        self.assertEqual(done.code, 1)
        self.assertIn("3 of 4 ranks are in it", done.text)
        self.assertIn("rank 2 is alive and has not called it, nor anything else here", done.text)
        self.assertEqual(self.json("stall", "--older", "1h")["stalls"], [])
        self.assertEqual(self.json("stall", "--group", "none")["stalls"], [])
        self.enter(2)

    def test_stall__names_the_rank_that_is_behind_when_nothing_waits(self):
        self.well("group", "create", "pair", "1,2")
        for group, rank in (("pair", "1"), ("world", "3")):
            alone = tutti("barrier", "-g", group, "--rank", rank, "--timeout", "100ms")
            self.assertEqual(alone.code, 1, alone)
        until = time.monotonic() + support.START_S
        found = self.json("stall", "--older", "1ms")
        while len(found["uneven"]) < 2 and time.monotonic() < until:  # ranks that do not answer in time are not in it
            found = self.json("stall", "--older", "1ms")
        self.assertEqual(found["stalls"], [])
        self.assertCountEqual(
            [(one["group"], one["ahead"]["rank"], [rank["rank"] for rank in one["behind"]]) for one in found["uneven"]],
            [("world", 3, [0, 1, 2]), ("pair", 1, [2])],
        )
        said = "group pair: rank 2 is behind, it has called no op; rank 1 has called 1 op (the last, barrier(), ended "
        while said not in self.well("stall", "--older", "1ms", "--group", "pair").text:
            self.assertLess(time.monotonic(), until)
        while said not in self.well("doctor").text:  # which leaves out what has just ended
            self.assertLess(time.monotonic(), until)

    def test_stall__tells_a_stopped_process_and_a_dead_one(self):
        pid = pid_of(2)
        self.enter(0, 1, 3)
        self.stall(lambda stall: stall["arrived"] == [0, 1, 3])
        os.kill(pid, signal.SIGSTOP)
        self.stopped.append(pid)
        found = self.stall(lambda stall: stall["ranks"][0]["standing"] == "silent")
        self.assertEqual((found["silent"], found["lost"]), (1, 0))
        self.assertIn("does not answer (stopped, starved or cut off)", found["stalls"][0]["text"])
        done = tutti("stall", "--older", "1ms")
        self.assertRegex(done.text, r"2 +silent +no .* ago")
        os.kill(pid, signal.SIGCONT)
        self.stopped.clear()
        self.enter(2)
        for call in self.calls:
            call.communicate()
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while tutti("--json", "stall").json["lost"] != 1:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        done = tutti("stall")
        self.assertEqual(done.code, 1)
        self.assertRegex(done.text, r"2 +lost +no +- +- +the connection to it broke")

    def test_stall__refuses_what_makes_no_sense(self):
        self.fails(["stall", "--older", "soon"], '--older "soon": need a time', code=2)
        self.fails(["stall", "--group", "a b"], "group name")

    def test_trace__is_a_timeline_that_says_who_was_late(self):
        self.enter(0, 1, 3)
        self.stall(lambda stall: stall["arrived"] == [0, 1, 3])
        time.sleep(0.3)
        self.well("barrier", "--rank", "2")
        for call in self.calls:
            call.communicate()
        found = self.json("trace", "-o", "t.json")
        one = found["latest"][0]
        self.assertEqual((one["group"], one["sequence"], one["last_rank"]), ("world", 1, 2))
        self.assertGreater(one["late_us"], 300000)
        self.assertEqual([rank["ops"] for rank in found["ranks"]], [1] * RANKS)
        for rank in found["ranks"]:  # one machine, one clock
            self.assertLessEqual(abs(rank["clock_offset_us"]), rank["clock_error_us"])
        with open(file_path("t.json")) as file:
            events = json.load(file)["traceEvents"]
        waits = [event for event in events if event["name"] == "waits for rank 2"]
        self.assertEqual(sorted(event["pid"] for event in waits), [0, 1, 3])
        self.assertGreater(min(event["dur"] for event in waits), 300000 - 2000)
        ops = [event for event in events if event["name"] == "barrier"]
        self.assertEqual(sorted(event["pid"] for event in ops), list(range(RANKS)))
        self.assertEqual({event["args"]["last_rank"] for event in ops}, {2})
        self.assertEqual(
            {event["args"]["name"] for event in events if event["name"] == "thread_name"},
            {"world"},
        )

    def test_trace__around_an_op_leaves_out_the_rest(self):
        for _ in range(3):
            self.well("barrier")
            time.sleep(0.2)
        self.well("trace", "-o", "t.json", "--around", "world:2", "--window", "50ms")
        with open(file_path("t.json")) as file:
            events = json.load(file)["traceEvents"]
        ops = [event for event in events if event["name"] == "barrier"]
        self.assertEqual({event["args"]["sequence"] for event in ops}, {2})
        self.fails(["trace", "--around", "world:9"], "op 9 of group world is in no flight record")
        for text in ["world", ":1", "world:0", "world:x"]:
            self.fails(["trace", "--around", text], "is no GROUP:SEQ", code=2)
        self.fails(["trace", "-o", "/nonexistent/x"], "could not write /nonexistent/x")
        self.fails(["trace", "--json", "-o", "-"], "both want standard output", code=2)
        self.assertIn("traceEvents", json.loads(self.well("trace", "-o", "-").out))

    def test_trace__goes_on_without_a_rank_that_is_gone(self):
        self.well("barrier")
        os.kill(pid_of(1), signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while tutti("--json", "status").json["lost"] != 1:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        done = tutti("trace", "-o", "t.json")
        self.assertEqual(done.code, 0)
        self.assertIn("the file has no ops of rank 1: the connection to it broke", done.err)
        self.assertIn("3 of 4 ranks", done.text)

    def test_doctor__finds_a_cluster_well(self):
        found = self.json("doctor")
        self.assertEqual((found["well"], found["findings"]), (True, []))
        for rank in found["ranks"]:
            self.assertEqual(
                [reach["rank"] for reach in rank["reaches"] if reach["reached"]],
                [other for other in range(RANKS) if other != rank["rank"]],
            )
            self.assertGreater(rank["files_open"], 5)
            self.assertTrue(rank["addresses"])
        text = self.well("doctor").text
        self.assertIn("all is well", text)
        self.assertIn("3 of 3", text)
        self.fails(["doctor", "--wait", "11s"], "need a time of at most 10s", code=2)

    def test_doctor__names_a_stopped_process_once(self):
        pid = pid_of(2)
        os.kill(pid, signal.SIGSTOP)
        self.stopped.append(pid)
        done = tutti("--json", "doctor", "--wait", "300ms", "--timeout", "1s")
        self.assertEqual(done.code, 1)
        one = done.json["findings"]
        self.assertEqual([(found["rank"], found["severity"]) for found in one], [(2, "bad")])
        self.assertIn("does not answer there", one[0]["what"])
        self.assertIn("--advertise", one[0]["remedy"])
        reach = done.json["ranks"][0]["reaches"][1]
        self.assertEqual((reach["rank"], reach["reached"]), (2, False))
        self.assertRegex(reach["why"], r"no answer in \d")

    def test_doctor__names_a_dead_process(self):
        os.kill(pid_of(1), signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while tutti("--json", "status").json["lost"] != 1:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        done = tutti("doctor")
        self.assertEqual(done.code, 1)
        self.assertIn("is lost: the connection to it broke", done.text)
        self.assertIn("tutti cluster restart 1 --name default", done.text)


class Files(Case):
    """tutti trace --from: files of any kind."""

    ENTRY = {
        "record_id": 0, "pg_id": 1, "process_group": ["world", "tutti"], "collective_seq_id": 1,
        "profiling_name": "nccl:barrier", "time_created_ns": 1000, "epoch": 1,
        "time_discovered_started_ns": 2000, "time_discovered_completed_ns": None,
        "state": "started", "input_sizes": [], "input_dtypes": [],
    }

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-flights-")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, document):
        with open(os.path.join(self.folder.name, name), "w") as file:
            file.write(document if isinstance(document, str) else json.dumps(document))

    def record(self, rank, job="default", entries=(ENTRY,)):
        self.write(
            "flight-%s-%s.json" % (job, rank), {"rank": rank, "job": job, "entries": entries}
        )

    def refused(self, *words, more=()):
        return self.fails(["trace", "--from", self.folder.name, "-o", "t.json", *more], *words)

    def test_trace__reads_what_agents_have_left(self):
        self.record(0)
        self.record(3, entries=[dict(self.ENTRY, time_discovered_started_ns=5000)])
        self.write("other.json", "no matter")
        found = self.json("trace", "--from", self.folder.name, "-o", "t.json")
        self.assertEqual(found["latest"][0]["last_rank"], 3)
        self.assertEqual(found["latest"][0]["late_us"], 3.0)
        done = tutti("trace", "--from", self.folder.name, "-o", "t.json")
        self.assertIn("2 ops of 2 of 4 ranks", done.text)
        self.assertIn("the file has no ops of rank 1: nothing is known of it", done.err)

    def test_trace__wants_files_of_one_job(self):
        self.record(0, job="a")
        self.record(0, job="b")
        self.refused("say which with --job")
        done = tutti("trace", "--from", self.folder.name, "-o", "t.json", "--job", "b")
        self.assertIn("1 op", done.text)

    def test_trace__refuses_files_that_are_none(self):
        self.refused("holds no flight-JOB-RANK.json")
        self.fails(["trace", "--from", "/nonexistent"], "could not read /nonexistent")
        for document, words in [
            ("{", "is no JSON: line 1"),
            ("[]", "is no flight record"),
            ({"rank": -1, "entries": []}, "is no flight record"),
            ({"rank": 1024, "entries": []}, "below 1024"),
            ({"rank": 0, "entries": {}}, "is no flight record"),
        ]:
            self.write("flight-x-0.json", document)
            self.refused(words)
        self.record(0)
        self.write("flight-x-0.json", {"rank": 0, "job": "default", "entries": []})
        self.refused("is a second file of rank 0")

    def test_trace__takes_odd_entries_as_they_are(self):
        odd = [1, None, {}, {"process_group": 7, "input_sizes": [7], "input_dtypes": ["FP32"]}]
        odd += [dict(self.ENTRY, time_created_ns=2**62, time_discovered_completed_ns=-1)]
        odd += [dict(self.ENTRY, input_sizes=[[1] * 99], input_dtypes=["?"], profiling_name=None)]
        self.record(0, entries=odd)
        self.json("trace", "--from", self.folder.name, "-o", "t.json")
        with open(file_path("t.json")) as file:
            json.load(file)


if __name__ == "__main__":
    support.main()
