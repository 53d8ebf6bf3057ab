#!/usr/bin/python3
"""Goal: `tutti bench` measures every op in every way, sees wrong results, says what makes no sense, leaves nothing.

Method: the program itself on a cluster of four agents, small sizes. That its checker counts what is wrong is the
subject of tests/client/cli/test_cli_bench.c; here the results are those of real agents.
"""

import json
import signal
import time
import xml.etree.ElementTree

import support
from cli_case import RANKS, ClusterCase, file_path, start, tutti

OPS = ["all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter", "all_to_all",
       "permute", "send"]
IN_PLACE = {"all_reduce", "reduce", "broadcast", "all_to_all", "permute"}
FIGURES = {"us", "p50_us", "p99_us", "algbw_gb_per_s", "busbw_gb_per_s", "wrong"}
BUS = {"all_reduce": 2 * (RANKS - 1) / RANKS, "reduce": 1, "broadcast": 1, "permute": 1, "send": 1}


class TestBench(ClusterCase):
    def rows(self, *words):
        done = self.well("bench", *words, "--json")
        return [json.loads(line) for line in done.text.splitlines()]

    def tearDown(self):
        for rank in range(RANKS):  # before the others take away what is left
            self.assertEqual(self.json("list", "--rank", str(rank))["tensors"], [])

    def check(self, row, op, in_place):
        self.assertEqual(row["op"], op)
        self.assertEqual(row["ranks"], RANKS)
        for form, there in (("out_of_place", True), ("in_place", in_place)):
            if not there:
                self.assertIsNone(row[form])
                continue
            figures = row[form]
            self.assertEqual(set(figures), FIGURES)
            self.assertEqual(figures["wrong"], 0, row)
            self.assertGreater(figures["us"], 0)
            self.assertGreaterEqual(figures["p99_us"], figures["p50_us"])
            speed = row["bytes"] / figures["us"] * 1e-3
            self.assertAlmostEqual(figures["algbw_gb_per_s"], speed, delta=0.01 * speed)
            factor = BUS.get(op, (RANKS - 1) / RANKS)
            self.assertAlmostEqual(figures["busbw_gb_per_s"], speed * factor, delta=0.01 * speed)

    def test_every_op__on_tensors_of_the_agents(self):
        for op in OPS:
            rows = self.rows(op, "-b", "64", "-e", "64K", "-f", "32", "-n", "3", "-w", "1", "--check")
            self.assertEqual([row["bytes"] for row in rows], [64, 2048, 65536])
            for row in rows:
                self.check(row, op, op in IN_PLACE)
                parts = 1 if op in BUS else RANKS
                self.assertEqual(row["count"], row["bytes"] / 4 / parts)

    def test_a_plot_has_every_row_and_stands_alone(self):
        self.well("bench", "all_reduce", "-b", "64", "-e", "64K", "-f", "4", "-n", "3", "-w", "1", "--plot", "p.svg", "-q")
        text = open(file_path("p.svg")).read()
        root = xml.etree.ElementTree.fromstring(text)
        name = "{http://www.w3.org/2000/svg}"
        points = list(root.iter(name + "circle"))
        self.assertEqual(len(points), 2 * 2 * 6)  # two diagrams, in place and not, six sizes
        places = [float(one.get("cx")) for one in points[:6]]
        self.assertEqual(places, sorted(set(places)))
        titles = [one.find(name + "title").text for one in points]
        self.assertRegex(titles[0], r"^64 B out of place: [0-9.e+]+ us$")
        self.assertRegex(titles[-1], r"^64 KiB in place: [0-9.e+-]+ GB/s$")
        words = "\n".join("".join(one.itertext()) for one in root.iter(name + "text"))
        for word in ("all_reduce on %d ranks of world" % RANKS, "FP32 sum", "time of a call, us", "bus bandwidth, GB/s",
                     "size of the tensor", "64 B", "in place", "out of place"):
            self.assertIn(word.lower(), words.lower())
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertNotIn("href", text)
        for one in points:  # nothing is drawn beside its diagram
            self.assertTrue(0 < float(one.get("cx")) < 860 and 0 < float(one.get("cy")) < 690, one.attrib)

    def test_a_plot_of_what_has_one_row(self):
        self.well("bench", "barrier", "-n", "3", "-w", "1", "--plot", "b.svg", "-q")
        root = xml.etree.ElementTree.fromstring(open(file_path("b.svg")).read())
        self.assertEqual(len(list(root.iter("{http://www.w3.org/2000/svg}circle"))), 1)
        self.assertNotIn("nan", open(file_path("b.svg")).read())
        self.fails(("bench", "barrier", "--plot", "no/b.svg"), "could not write no/b.svg")
        self.fails(("bench", "barrier", "--plot", "-"), "name a file")

    def test_every_op__with_the_data_in_the_call(self):
        for op in OPS[:-1]:
            rows = self.rows(op, "-b", "5000", "-n", "2", "-w", "0", "--check", "--inline")
            self.assertEqual([row["way"] for row in rows], ["inline"])
            if op == "broadcast":  # its data is what is given and what is got
                self.assertIsNone(rows[0]["out_of_place"])
                self.assertEqual(rows[0]["in_place"]["wrong"], 0)
            else:
                self.check(rows[0], op, op in IN_PLACE)

    def test_every_op__in_memory_that_is_mapped(self):
        for op in OPS:
            rows = self.rows(op, "-b", "5000", "-e", "80000", "-f", "16", "-n", "2", "-w", "1", "--check", "--share")
            self.assertEqual([row["way"] for row in rows], ["share", "share"])
            for row in rows:
                self.check(row, op, op in IN_PLACE)

    def test_every_op__begun_at_once_and_then_waited_for(self):
        for op in OPS + ["barrier"]:
            sizes = [] if op == "barrier" else ["-b", "256"]
            rows = self.rows(op.replace("_", "-"), *sizes, "-n", "70", "-w", "1", "--async", "--check")
            self.assertEqual([(row["async"], row["out_of_place"]["wrong"]) for row in rows], [(True, 0)])

    def test_types_and_reductions__are_checked_too(self):
        for dtype, op in [("INT8", "avg"), ("BF16", "sum"), ("fp16", "premul_sum"), ("BOOL", "bxor"),
                          ("UINT64", "bor"), ("COMPLEX64", "avg"), ("FP64", "prod"), ("int32", "min")]:
            row, = self.rows("all_reduce", "-b", "8K", "-n", "1", "-w", "0", "--dtype", dtype, "--op", op, "--check")
            self.assertEqual((row["dtype"], row["redop"]), (dtype.upper(), op))
            self.assertEqual((row["out_of_place"]["wrong"], row["in_place"]["wrong"]), (0, 0))
        row, = self.rows("all_gather", "-b", "64", "-n", "1", "-w", "0", "--dtype", "FP8_E4M3", "--check")
        self.assertEqual(row["out_of_place"]["wrong"], 0)

    def test_groups_and_roots(self):
        self.well("group", "create", "odd", "3,1,2")
        for op in ("gather", "all_to_all", "broadcast", "send", "reduce_scatter"):
            root = ["--root", "2"] if op in ("gather", "broadcast") else []
            row, = self.rows(op, "-b", "1000", "-n", "2", "-g", "odd", "--check", *root)
            self.assertEqual((row["ranks"], row["group"], row["out_of_place"]["wrong"]), (3, "odd", 0))
            self.assertEqual(row["root"], 2 if root else -1)
            self.assertEqual(row["bytes"], 1000 if op in BUS else 996)
        self.well("group", "delete", "odd")

    def test_table__has_the_columns_of_nccl_tests(self):
        done = self.well("bench", "reduce-scatter", "-b", "8K", "-e", "16K", "-n", "2", "--check")
        lines = done.text.splitlines()
        self.assertIn("out-of-place", lines[1])
        self.assertEqual(lines[2].split()[1:6], ["size", "count", "type", "redop", "root"])
        self.assertEqual(lines[2].split()[6:], ["time", "algbw", "busbw", "#wrong"] * 2)
        self.assertEqual(lines[4].split()[:5], ["8192", "512", "float", "sum", "-1"])
        self.assertEqual(lines[4].split()[8:], ["0"] + ["nan"] * 3 + ["N/A"])
        self.assertEqual(lines[5].split()[0], "16384")
        self.assertEqual(lines[6], "# Out of bounds values : 0 OK")
        self.assertRegex(lines[7], r"^# Avg bus bandwidth    : [0-9.e+-]+$")
        float(lines[7].split(":")[1])
        self.assertEqual([float(word) > 0 for word in lines[4].split()[5:6]], [True])
        self.assertIn("N/A", self.well("bench", "reduce", "-b", "8", "-n", "1").text)
        self.assertEqual(len(self.well("bench", "reduce", "-b", "8", "-n", "1", "-q").text.splitlines()), 1)

    def test_percentiles__stand_after_the_columns_of_nccl_tests(self):
        lines = self.well("bench", "all-reduce", "-b", "8K", "-n", "2", "--percentiles").text.splitlines()
        self.assertEqual(lines[2].split()[6:], ["time", "algbw", "busbw", "#wrong"] * 2 + ["p50", "p99"] * 2)
        self.assertEqual(len(lines[4].split()), 5 + 2 * 4 + 2 * 2)

    def test_sizes__are_rounded_to_whole_elements_as_nccl_tests_rounds_them(self):
        self.assertEqual([row["bytes"] for row in self.rows("all_reduce", "-b", "1", "-e", "3", "-n", "1")], [4])
        self.assertEqual([row["bytes"] for row in self.rows("all_reduce", "-b", "7", "-e", "28", "-n", "1")],
                         [4, 12, 28])
        self.assertEqual([row["bytes"] for row in self.rows("all_gather", "-b", "4", "-n", "1")], [16])

    def test_what_makes_no_sense__is_said(self):
        for words, text in [
            (["nope"], "no op"),
            (["all_reduce", "-b", "8", "-e", "4"], "less than"), (["all_reduce", "-b", "0"], "need a size"),
            (["all_reduce", "-f", "1"], "from 2"), (["all_reduce", "-n", "0"], "from 1"),
            (["barrier", "-b", "4"], "moves no tensors"), (["broadcast", "--op", "sum"], "reduces nothing"),
            (["all_reduce", "--dtype", "FP99"], "FP99"), (["all_reduce", "--op", "most"], "most"),
            (["send", "--inline"], "tensors in agents"), (["all_reduce", "--root", "1"], "has no root"),
            (["all_reduce", "--inline", "--handle"], "give only one"), (["all_reduce", "--inline", "--async"], "--async"),
            (["all_reduce", "--share", "--async"], "with --share"), (["all_reduce", "--share", "--handle"], "give only one"),
        ]:
            self.fails(["bench", *words], text, code=2)
        for words, text in [
            (["broadcast", "--root", "7"], "there are 4 ranks"),
            (["all_reduce", "--dtype", "FP8_E4M3", "-b", "8", "--check"], "no reduction of"),
            (["all_reduce", "-g", "nobody"], "nobody"),
        ]:
            self.fails(["bench", *words], text)
        done = tutti("bench", "all_reduce", "--dtype", "FP8_E4M3", "-b", "8", "--json")
        self.assertEqual((done.code, done.json["error"]["reason"]), (1, "DTYPE_UNSUPPORTED"))

    def test_ctrl_c__ends_it_and_leaves_nothing(self):
        for words in ([], ["--async"]):
            running = start("bench", "all_reduce", "-b", "64", "-n", "10000000", *words)
            until = time.monotonic() + support.START_S
            while not self.json("list", "--rank", str(RANKS - 1))["tensors"]:
                self.assertLess(time.monotonic(), until)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=support.START_S)
            self.assertEqual((running.returncode, err), (128 + signal.SIGINT, b"tutti: bench: interrupted\n"))
            self.well("barrier")  # nobody is a call ahead


if __name__ == "__main__":
    support.main()
