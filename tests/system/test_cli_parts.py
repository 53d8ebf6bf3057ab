#!/usr/bin/python3
"""Goal: the `tutti` command runs the ops that cut, join or have a root, from files, names and ranks.

Method: the program itself, a cluster of four agents that it starts; NumPy is the reference. Each test
cleans up after itself.
"""

import os

import support
from cli_case import RANKS, Case, ClusterCase, file_path, start

import numpy as np


class PartsCase(ClusterCase):
    def parts(self, *shape, dtype=np.int32):
        """One array for each rank, and its file."""
        arrays = [
            (np.arange(np.prod(shape)).reshape(shape) * 3 + 100 * rank).astype(dtype)
            for rank in range(RANKS)
        ]
        return arrays, [self.save("in.%d.npy" % rank, array) for rank, array in enumerate(arrays)]

    def assert_each(self, wanted, name="out.%d.npy"):
        for rank, array in enumerate(wanted):
            self.assert_same(self.load(name % rank), np.ascontiguousarray(array))
            os.unlink(file_path(name % rank))

    def assert_empty(self):
        for rank in range(RANKS):
            self.assertEqual(self.json("list", "--rank", str(rank))["tensors"], [])


class TestRanges(PartsCase):
    def test_an_op_takes_a_part_of_a_named_tensor(self):
        arrays, files = self.parts(2, 3)
        for rank, name in enumerate(files):
            self.well("put", name, "--rank", str(rank), "--name", "w")
        self.well("all-reduce", "w@8:INT32[2,1]", "-o", "out.npy")
        self.assert_same(self.load("out.npy"), sum(arrays).reshape(-1)[2:4].reshape(2, 1))
        self.fails(["all-reduce", "w@20:INT32[2]"], "8 bytes from byte 20 on are not in the tensor, which has 24")
        for rank in range(RANKS):
            self.well("delete", "w", "--rank", str(rank))
        self.assert_empty()


class TestRooted(PartsCase):
    def test_reduce__gives_the_root_alone_the_result(self):
        arrays, files = self.parts(2, 3)
        done = self.json("reduce", *files, "--root", "2")
        self.assertEqual((done["op"], len(done["results"])), ("reduce", RANKS))
        for rank, result in enumerate(done["results"]):
            self.assertEqual(result["handle"] != "", rank == 2)
            count = len(self.json("list", "--rank", str(rank))["tensors"])
            self.assertEqual(count, 1 if rank == 2 else 0)
        self.well("get", done["results"][2]["handle"], "-o", "out.npy")
        self.assert_same(self.load("out.npy"), sum(arrays))
        self.well("delete", done["results"][2]["handle"])
        said = self.well("reduce", *files, "--op", "max", "--root-global", "3", "-o", "out.npy").text
        self.assertEqual(said, "out.npy  INT32[2, 3]\n")
        self.assert_same(self.load("out.npy"), arrays[3])
        self.assert_empty()

    def test_gather__joins_in_every_form(self):
        arrays, files = self.parts(2, 3)
        for words, wanted in [
            ([], np.concatenate(arrays)),
            (["--axis", "-1"], np.concatenate(arrays, -1)),
            (["--form", "stack", "--axis", "1"], np.stack(arrays, 1)),
            (["--form", "flat"], np.stack(arrays).reshape(-1)),
            (["--form", "flat", "--shape", "3,8"], np.stack(arrays).reshape(3, 8)),
        ]:
            self.well("gather", *files, "--root", "1", *words, "-o", "out.npy")
            self.assert_same(self.load("out.npy"), np.ascontiguousarray(wanted))
            self.well("all-gather", *files, *words, "-o", "out.npy")
            self.assert_same(self.load("out.npy"), np.ascontiguousarray(wanted))
        self.assert_empty()

    def test_scatter__cuts_a_file_or_a_name(self):
        array = np.arange(6 * RANKS, dtype=np.float64).reshape(2, 3 * RANKS)
        name = self.save("in.npy", array)
        done = self.json("scatter", name, "--root", "3", "--axis", "1", "-o", "out.%d.npy")
        files = [result["file"] for result in done["results"]]
        self.assertEqual(files, ["out.%d.npy" % rank for rank in range(RANKS)])
        self.assert_each(np.split(array, RANKS, 1))
        self.assert_empty()
        self.well("put", self.save("rows.npy", array.reshape(RANKS, 6)), "--name", "x", "--rank", "1")
        self.well("scatter", "x", "--root", "1", "--form", "stack", "-o", "out.%d.npy")
        self.assert_each(array.reshape(RANKS, 6))
        self.well("scatter", "x", "--root", "1", "--form", "flat", "--shape", "3,2", "-o", "out.%d.npy")
        self.assert_each(array.reshape(RANKS, 3, 2))

    def test_root_global__is_a_rank_of_the_job(self):
        arrays, files = self.parts(2)
        self.well("group", "create", "back", "3,1")
        whole = self.save("in.npy", np.arange(4, dtype=np.int8))
        self.well("scatter", whole, "-g", "back", "--root-global", "1", "-o", "out.%d.npy")
        self.assert_each([np.array([0, 1], np.int8), np.array([2, 3], np.int8)])
        self.well("gather", *files[:2], "-g", "back", "--root-global", "1", "-o", "out.npy")
        self.assert_same(self.load("out.npy"), np.concatenate(arrays[:2]))
        self.well("broadcast", whole, "-g", "back", "--root-global", "1", "--name", "w")
        self.well("get", "w", "--rank", "3", "-o", "out.npy")
        self.fails(["reduce", *files[:2], "-g", "back", "--root-global", "0"], "rank 0 is not in group")
        self.fails(["reduce", *files[:2], "-g", "back", "--root", "2"], "root 2")
        self.well("group", "delete", "back")


class TestEach(PartsCase):
    def test_reduce_scatter__gives_each_a_part(self):
        arrays, files = self.parts(RANKS, 2 * RANKS)
        self.well("reduce-scatter", *files, "-o", "out.%d.npy")
        self.assert_each(np.split(sum(arrays), RANKS))
        self.well("reduce-scatter", *files, "--axis", "1", "--op", "max", "-o", "out.%d.npy")
        self.assert_each(np.split(arrays[-1], RANKS, 1))
        done = self.json("reduce-scatter", *files, "--form", "stack")
        self.assertEqual([result["shape"] for result in done["results"]], [[2 * RANKS]] * RANKS)

    def test_all_to_all__cuts_and_joins(self):
        arrays, files = self.parts(2 * RANKS, RANKS)
        said = self.well("all-to-all", *files, "--concat-axis", "1", "-o", "out.%d.npy").text
        self.assertEqual(said.split("\n")[1], "out.1.npy  INT32[2, 16]")
        pieces = [np.split(array, RANKS) for array in arrays]
        self.assert_each([np.concatenate([p[rank] for p in pieces], 1) for rank in range(RANKS)])
        self.well("all-to-all", *files, "--split-axis", "-1", "-o", "out.%d.npy")
        pieces = [np.split(array, RANKS, 1) for array in arrays]
        self.assert_each([np.concatenate([p[rank] for p in pieces]) for rank in range(RANKS)])
        self.assert_empty()

    def test_permute__moves_whole_tensors(self):
        arrays, files = self.parts(5)
        self.well("permute", *files, "--to", "1-3,0", "-o", "out.%d.npy")
        self.assert_each([arrays[3], *arrays[:3]])
        for rank, name in enumerate(files):
            self.well("put", name, "--name", "x", "--rank", str(rank))
        done = self.json("permute", "x", "--to", "3,2,1,0")["results"]
        for rank, result in enumerate(done):
            self.well("get", result["handle"], "-o", "out.npy")
            self.assert_same(self.load("out.npy"), arrays[RANKS - 1 - rank])

    def test_large_parts__travel_whole(self):
        arrays, files = self.parts(RANKS, 1 << 19)
        self.well("all-to-all", *files, "-o", "out.%d.npy")
        self.assert_each([np.stack([array[rank] for array in arrays]) for rank in range(RANKS)])
        self.assert_empty()


class TestMemory(Case):
    def test_ops_on_memory__give_each_rank_its_part(self):
        program = os.path.join(os.environ["TUTTI_BUILD"], "tests", "client", "data_program")
        for count in ("1", "3"):
            done = self.well("run", "-n", count, "--no-prefix", "--", program)
            self.assertEqual(done.text, "well\n" * int(count))


class TestCalls(PartsCase):
    def test_rank__calls_meet(self):
        arrays, files = self.parts(RANKS)
        for rank, name in enumerate(files):
            self.well("put", name, "--name", "x", "--rank", str(rank))
        for words, wanted in [
            (["reduce", "x", "--root", "1"], {1: sum(arrays)}),
            (["gather", "x", "--root-global", "2", "--form", "stack"], {2: np.stack(arrays)}),
            (["permute", "x", "--to", "1,0,3,2"], {0: arrays[1], 3: arrays[2]}),
        ]:
            calls = [start("--json", *words, "--rank", str(rank)) for rank in range(RANKS)]
            for rank, call in enumerate(calls):
                out, err = call.communicate(timeout=support.START_S)
                self.assertEqual((call.returncode, err), (0, b""))
                self.assertEqual(b'"handle": ""' in out, rank not in wanted and words[0] != "permute")
            for rank, array in wanted.items():
                newest = self.json("list", "--rank", str(rank))["tensors"][-1]["handle"]
                self.well("get", newest, "-o", "out.npy")
                self.assert_same(self.load("out.npy"), array)

    def test_scatter__of_one_rank_takes_no_tensor(self):
        name = self.save("in.npy", np.arange(RANKS))
        self.well("put", name, "--name", "x", "--rank", "0")
        self.json("scatter", "x", "--rank", "0", "--async")
        for rank in (1, 2, 3):
            self.json("scatter", "--rank", str(rank), "--async")
        tensor = self.json("list", "--rank", "3")["tensors"][0]["handle"]
        self.well("get", tensor, "-o", "out.npy")
        self.assertEqual(list(self.load("out.npy")), [3])

    def test_words__that_make_no_sense_are_refused(self):
        _, files = self.parts(3)
        for words, text in [
            (["reduce-scatter", *files, "-o", "out.npy"], "write %d for its group rank"),
            (["scatter", files[0], "-o", "-"], "every rank has a result"),
            (["permute", *files], "permute needs a destination for each group rank, such as --to 1,2,0"),
            (["permute", *files, "--to", "a,b"], "need a destination for each group rank"),
            (["gather", *files, "--form", "round"], "need concat, stack or flat"),
            (["gather", *files, "--shape", "3,4"], "--shape is for --form flat"),
            (["gather", *files, "--form", "flat", "--shape", "3,x"], "need up to 16 numbers"),
            (["gather", *files, "--form", "flat", "--shape", "3,-4"], "need up to 16 numbers"),
            (["all-gather", *files, "--form", "flat", "--stack"], "give only one"),
            (["reduce", *files, "--root", "1", "--root-global", "1"], "give only one"),
            (["reduce", "x", "--rank", "0", "-o", "out.npy"], "with tutti get"),
            (["all-reduce", "x", "--into", "y"], "--into is for one rank's call"),
            (["all-to-all", *files, "--async"], "--async is for one rank's call"),
        ]:
            self.fails(words, text, code=2)

    def test_agents__refuse_what_cannot_be(self):
        _, files = self.parts(3)
        for words, text in [
            (["reduce-scatter", *files], "dimension 0 of size 3 is not divisible"),
            (["scatter", files[0]], "dimension 0 of size 3 is not divisible"),
            (["all-to-all", *files], "dimension 0 of size 3 is not divisible"),
            (["gather", *files, "--form", "flat", "--shape", "5"], "12 elements do not fill a shape of 5"),
            (["gather", *files, "--axis", "1"], "axis 1 of a tensor of 1 dimensions"),
            (["permute", *files, "--to", "1,1,2,3"], "destination 1 of group rank 1 is there twice"),
            (["permute", *files, "--to", "1,0"], "2 destinations for 4 ranks"),
        ]:
            self.fails(words, text)
        self.fails(["scatter", *files], "unexpected argument", code=2)
        self.fails(["gather", *files[:3]], "3 files for 4 ranks")
        self.assert_empty()
        self.well("barrier")


if __name__ == "__main__":
    support.main()
