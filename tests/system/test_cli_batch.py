#!/usr/bin/python3
"""Goal: `tutti batch`, `infer` and `sync`, uneven parts and monitored barriers do what their pages say.

Method: the program itself, a cluster of four agents that it starts; NumPy is the reference.
"""

import concurrent.futures
import json
import os

import support
from cli_case import RANKS, ClusterCase, file_path, start, tutti

import numpy as np


class BatchCase(ClusterCase):
    def lines(self, *calls):
        """A file with a line for each call; a text as it is."""
        with open(file_path("calls"), "w") as file:
            for call in calls:
                file.write((call if isinstance(call, str) else json.dumps(call)) + "\n")
        return "calls"

    def run_all(self, *words):
        """On all ranks at once: the answers by line, and the exit code, of each."""
        running = [start("batch", "calls", "--rank", str(rank), *words) for rank in range(RANKS)]
        found = []
        with concurrent.futures.ThreadPoolExecutor(RANKS) as pool:  # who is not read from waits
            read = list(pool.map(lambda one: one.communicate(timeout=support.START_S), running))
        for one, (out, err) in zip(running, read):
            self.assertEqual(err, b"")
            answers = [json.loads(line) for line in out.splitlines()]
            found.append(({answer["line"]: answer for answer in answers}, one.returncode))
            self.assertEqual(len(found[-1][0]), len(answers))
        return found


class TestBatch(BatchCase):
    def test_batch__runs_calls_in_order_and_answers_each_line(self):
        self.save("x.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
        self.lines(
            {"call": "put", "file": "x.npy", "name": "x"},
            {"call": "all_reduce", "input": "x", "output": "x"},
            "",
            {"call": "all-gather", "input": "x", "axis": -1, "form": "stack"},
            {"call": "reduce", "input": "x", "op": "max", "root": 2},
            {"call": "permute", "input": "x", "to": [1, 2, 3, 0]},
            {"call": "barrier", "monitored": True, "timeout_ms": 60000},
            {"call": "sync"},
        )
        for rank, (answers, code) in enumerate(self.run_all()):
            self.assertEqual((code, sorted(answers)), (0, [1, 2, 4, 5, 6, 7, 8]))
            self.assertEqual(answers[4]["shape"], [2, 3, RANKS])
            self.assertEqual("handle" in answers[5], rank == 2)
            self.assertEqual(answers[7]["sequence"], answers[2]["sequence"] + 4)
            self.well("get", answers[6]["handle"], "-o", "out.npy")
            self.assert_same(
                self.load("out.npy"), np.arange(6, dtype=np.int32).reshape(2, 3) * RANKS
            )
            handles = [answer["handle"] for answer in answers.values() if "handle" in answer]
            self.well("delete", *sorted(set(handles)), "--rank", str(rank))

    def test_batch__takes_and_tells_lists(self):
        self.save("x.npy", np.arange(4, dtype=np.int32))
        self.save("y.npy", np.arange(8, dtype=np.int64).reshape(2, 4))
        self.lines(
            {"call": "put", "file": "x.npy", "name": "x"},
            {"call": "put", "file": "y.npy", "name": "y"},
            {"call": "all_reduce", "inputs": ["x", "y"], "outputs": ["x", "y"]},
            {"call": "reduce_scatter", "inputs": ["x", "y"], "axes": [0, -1]},
            {"call": "all_gather", "input": "y", "form": "list"},
            {"call": "all_reduce", "inputs": "x"},
        )
        for rank, (answers, code) in enumerate(self.run_all()):
            self.assertEqual(code, 1)
            self.assertIn("need a list of texts", answers[6]["error"]["text"])
            self.assertEqual(len(answers[3]["outputs"]), 2)
            self.assertEqual([one["shape"] for one in answers[4]["outputs"]], [[1], [2, 1]])
            self.assertEqual(len(answers[5]["outputs"]), RANKS)
            self.well("get", answers[5]["outputs"][-1]["handle"], "-o", "out.npy")
            self.assert_same(
                self.load("out.npy"), np.arange(8, dtype=np.int64).reshape(2, 4) * RANKS
            )
            handles = [one["handle"] for line in (3, 4, 5) for one in answers[line]["outputs"]]
            self.well("delete", *handles, "--rank", str(rank))

    def test_batch__tells_what_is_wrong_with_a_line_and_goes_on(self):
        self.lines(
            {"call": "delete", "handle": "nobody"}, "not json", "[1]", {"call": "nope"},
            {"call": "send", "inptu": "x"}, {"call": "send", "tag": -1}, {"call": "recv", "peer": "x"},
            {"call": "all_to_all", "input_splits": [1, "2"]}, {"call": "put"},
            {"call": "put", "file": "nowhere.npy"}, {"call": "sync", "group": 3},
            {"call": "all_reduce", "op": "most"}, {"call": "sync"},
        )
        done = tutti("batch", "calls", "--rank", "0")
        self.assertEqual(done.code, 1)
        answers = {}
        for line in done.text.splitlines():
            answer = json.loads(line)
            answers[answer["line"]] = answer
        self.assertEqual(sorted(answers), list(range(1, 14)))
        self.assertEqual(answers[1]["error"]["reason"], "NO_TENSOR")
        self.assertNotIn("error", answers[13])
        for number, word in [(2, "JSON"), (3, "call"), (4, "nope"), (5, "inptu"), (6, "tag"),
                             (7, "peer"), (8, "input_splits"), (9, "file"), (10, "nowhere.npy"),
                             (11, "group"), (12, "op")]:
            self.assertIn(word, answers[number]["error"]["text"])

    def test_batch__that_stops_on_error_skips_the_rest(self):
        self.lines({"call": "delete", "handle": "nobody"}, {"call": "sync"})
        done = tutti("batch", "calls", "--rank", "1", "--stop-on-error", "--in-flight", "1")
        self.assertEqual(done.code, 1)
        self.assertEqual(json.loads(done.text.splitlines()[1])["error"]["reason"], "SKIPPED")

    def test_batch__of_thousands_of_lines(self):
        self.lines(*[{"call": "barrier"}] * 3000)
        for answers, code in self.run_all():
            self.assertEqual((code, len(answers)), (0, 3000))

    def test_batch__of_no_file_says_so(self):
        done = tutti("batch", "nowhere")
        self.assertEqual(done.code, 1)
        self.assertIn("nowhere", done.err)


class TestInfer(ClusterCase):
    def test_infer__tells_each_rank_what_it_would_get(self):
        said = self.json("infer", "all-gather", "FP32[2,3]", "--axis", "1")
        self.assertEqual((said["op"], said["group_size"]), ("all_gather", RANKS))
        self.assertEqual({tuple(one["shape"]) for one in said["results"]}, {(2, 3 * RANKS)})
        said = self.json("infer", "gather", "INT8[4]", "--root", "1", "-n", "2")
        self.assertEqual(["shape" in one for one in said["results"]], [False, True])
        said = self.json("infer", "all-to-all", "INT8[3]", "--splits", "1,2/3,0", "-n", "2",
                         "--group-rank", "0")
        self.assertEqual([one["shape"] for one in said["results"]], [[4]])
        self.save("x.npy", np.zeros((4, 2), np.float64))
        self.well("put", "x.npy", "--name", "x", "--rank", "2")
        said = self.json("infer", "scatter", "x", "--rank", "2")
        self.assertEqual(said["results"][3], {"group_rank": 3, "dtype": "FP64", "shape": [1, 2],
                                              "bytes": 16})
        self.well("delete", "x", "--rank", "2")

    def test_infer__fails_as_the_op_would(self):
        for words, word in [
            (["reduce-scatter", "FP32[5]"], "divisible"), (["all-reduce", "nobody"], "nobody"),
            (["all-reduce", "FP8_E4M3[2]", "--op", "sum"], "FP8"),
            (["gather", "FP32[1]", "--group-rank", "4"], "--group-rank 4 of 4 ranks"),
        ]:
            done = tutti("infer", *words)
            self.assertEqual(done.code, 1)
            self.assertIn(word, done.err)
        for words in (["barrier", "FP32[1]"], ["all-reduce", "FP32["], ["all-reduce", "FP99[1]"],
                      ["all-reduce", "FP32[1,,2]"],
                      ["gather", "FP32[1]", "-n", "2", "--group-rank", "2"]):
            self.assertEqual(tutti("infer", *words).code, 2)


class TestOthers(ClusterCase):
    def test_all_to_all__in_parts_of_any_length(self):
        rows = np.array([[1, 2, 0, 1], [0, 0, 4, 0], [1, 1, 1, 1], [2, 0, 1, 1]])
        arrays = [np.arange(4, dtype=np.int16) + 10 * rank for rank in range(RANKS)]
        files = [self.save("in.%d.npy" % rank, array) for rank, array in enumerate(arrays)]
        splits = "/".join(",".join(str(part) for part in row) for row in rows)
        self.well("all-to-all", *files, "--splits", splits, "-o", "out.%d.npy")
        for rank in range(RANKS):
            parts = [np.split(array, np.cumsum(row))[rank] for array, row in zip(arrays, rows)]
            self.assert_same(self.load("out.%d.npy" % rank), np.concatenate(parts))
            os.unlink(file_path("out.%d.npy" % rank))
        for bad in ("1,2", "1,1/1", "1,x/1,1", "1,1/1,1/", "1/1", ""):
            self.assertEqual(tutti("all-to-all", *files, "--splits", bad).code, 2, bad)
        done = tutti("all-to-all", *files, "--splits", "1,1/1,1")
        self.assertEqual(done.code, 1)
        self.assertIn("2 rows for 4 ranks", done.err)

    def test_barrier__that_is_monitored_has_a_reason_of_its_own(self):
        done = tutti("barrier", "--monitored", "--rank", "0", "--timeout", "200ms", "--json")
        self.assertEqual(done.code, 1)
        self.assertEqual(json.loads(done.out)["error"]["reason"], "MISSING_RANKS")
        self.well("barrier")  # levels the others

    def test_send__to_the_same_place_of_the_next_block(self):
        self.save("x.npy", np.arange(3, dtype=np.int32))
        self.well("put", "x.npy", "--name", "x", "--rank", "1")
        sending = start("send", "x", "--rank", "1", "--group-offset", "1", "--group-count", "2")
        got = self.json("recv", "--rank", "3", "--group-offset", "-1", "--group-count", "2")
        self.assertEqual(sending.wait(support.START_S), 0)
        sending.communicate()
        self.assertEqual(got["results"][0]["source"], 1)
        self.well("delete", got["results"][0]["handle"])
        for rank, offset, count, reason in [("1", "-1", "2", "NO_NEXT_GROUP"),
                                            ("1", "1", "3", "GROUP_SIZE")]:
            done = tutti("send", "x", "--rank", rank, "--group-offset", offset, "--group-count",
                         count, "--json")
            self.assertEqual(json.loads(done.out)["error"]["reason"], reason)
        self.well("delete", "x", "--rank", "1")

    def test_sync__tells_of_ops_that_failed(self):
        said = self.json("sync", "--rank", "3")
        self.assertEqual(said, {"waited": 0, "failed": 0})
        self.assertEqual(tutti("sync", "no name").code, 1)


if __name__ == "__main__":
    support.main()
