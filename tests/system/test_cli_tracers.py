#!/usr/bin/python3
"""Goal: the `tutti` command finds gradients of collectives, on all ranks or on one.

Method: the program itself, a cluster of four agents that it starts; tensors by names that all ranks
have; gradients are downloaded and compared.
"""

import os

import support
from cli_case import RANKS, ClusterCase, file_path, start

import numpy as np


class TestTracers(ClusterCase):
    def put_all(self, name, arrays):
        for rank, array in enumerate(arrays):
            path = self.save("%s.npy" % name, array)
            self.well("put", path, "--name", name, "--rank", str(rank))

    def get(self, handle):
        self.well("get", handle, "-o", "got.npy")
        found = self.load("got.npy")
        os.unlink(file_path("got.npy"))
        return found

    def tearDown(self):
        for rank in range(RANKS):
            for one in self.json("list", "--rank", str(rank))["tensors"]:
                self.well("delete", one["handle"], "--rank", str(rank))
        for one in self.json("tracer", "list")["tracers"]:
            self.well("tracer", "delete", one["name"])
        super().tearDown()

    def record(self):
        """x is attached, y is its mean."""
        self.put_all("x", [np.full(3, rank, np.float32) for rank in range(RANKS)])
        self.put_all("y", [np.zeros(3, np.float32)] * RANKS)
        self.put_all("dy", [np.float32([1, 2, 3]) * rank for rank in range(RANKS)])
        self.well("tracer", "create", "step")
        self.well("tracer", "attach", "step", "x")
        calls = [
            start("all-reduce", "x", "--op", "avg", "--into", "y", "--rank", str(rank))
            for rank in range(RANKS)
        ]
        for one in calls:
            _, said = one.communicate(timeout=support.START_S)
            self.assertEqual(one.returncode, 0, said)

    def test_backward__finds_the_gradients_of_all_ranks(self):
        self.record()
        listed = self.json("tracer", "list", "--rank", "1")["tracers"]
        self.assertEqual(listed, [{"name": "step", "op_count": 1, "attached_count": 1,
                                   "walking": False}])
        self.assertIn("step", self.well("tracer", "list").text)
        found = self.json("backward", "step", "y=dy", "--keep")["ranks"]
        self.assertEqual([one["rank"] for one in found], list(range(RANKS)))
        for one in found:
            gradient = one["gradients"][0]
            self.assertEqual(list(self.get(gradient["gradient"])), [1.5, 3, 4.5])
        said = self.well("backward", "step").text  # nobody gives a gradient
        self.assertEqual(said.count("none"), RANKS)
        self.assertEqual(self.json("tracer", "list")["tracers"][0]["op_count"], 0)

    def test_tracer__says_what_is_wrong(self):
        self.well("tracer", "create", "step", "--rank", "2")
        self.fails(("tracer", "create", "step"), "rank 2: a tracer is named \"step\" already")
        self.fails(("backward", "nobody"), "no tracer is named")
        self.fails(("backward", "step", "y"), "TENSOR=GRADIENT", code=2)
        self.fails(("tracer", "attach", "step"), code=2)
        for rank in (0, 1, 3):
            self.well("tracer", "delete", "step", "--rank", str(rank))

    def test_tracer__forgets_when_it_is_cleared(self):
        self.record()
        self.well("tracer", "clear", "step")
        self.assertEqual(self.json("tracer", "list")["tracers"][0]["op_count"], 0)
        self.fails(("backward", "step", "y=dy"), "knows nothing of")


if __name__ == "__main__":
    support.main()
