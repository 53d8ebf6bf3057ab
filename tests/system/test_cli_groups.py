#!/usr/bin/python3
"""Goal: `tutti group` and `tutti mesh` make, split and show what their pages say, and say what is wrong.

Method: the program itself, with a cluster of four agents that it starts.
"""

import support
from cli_case import RANKS, ClusterCase


def ageless(group):
    return {key: value for key, value in group.items() if key != "age_ms"}


class TestGroups(ClusterCase):
    def ranks(self, groups):
        return {one["name"]: one["ranks"] for one in groups["groups"]}

    def test_group_create__without_name_makes_another_one_each_time(self):
        first = self.json("group", "create", "-", "3,1")
        second = self.json("group", "create", "-", "3,1")
        self.assertEqual((first["ranks"], second["ranks"]), ([3, 1], [3, 1]))
        self.assertNotEqual(first["id"], second["id"])
        self.assertEqual(ageless(self.json("group", "get", first["name"])), ageless(first))
        self.well("barrier", "--group", second["name"])
        for one in (first, second):
            self.well("group", "delete", one["name"])

    def test_group_create__with_an_empty_name_is_refused(self):
        self.fails(["group", "create", "", "0,1"], "an empty name: write - for", code=2)

    def test_group_create__with_a_tag_finds_it_again(self):
        first = self.json("group", "create", "-", "2,0", "--tag", "blu")
        self.assertEqual(ageless(self.json("group", "create", "-", "2,0", "--tag", "blu")), ageless(first))
        other = self.json("group", "create", "-", "2,0", "--sort", "--tag", "blu")
        self.assertEqual((other["ranks"], other["tag"]), ([0, 2], "blu"))
        self.fails(["group", "create", "x", "2,0", "--tag", "blu"], "exists already, with ranks")
        for one in (first, other):
            self.well("group", "delete", one["name"])

    def test_group_create__ephemeral_is_said_to_the_coordinator(self):
        self.well("group", "create", "eph", "0,1", "--ephemeral")
        self.well("group", "split", "--size", "1", "--name", "ephs", "--ephemeral")
        self.assertIn("ephs/1", [one["name"] for one in self.json("group", "list")["groups"]])
        for name in ["eph"] + ["ephs/%d" % rank for rank in range(RANKS)]:
            self.well("group", "delete", name)

    def test_group_abort__ends_its_ops_with_the_reason(self):
        self.well("group", "create", "ill", "0,1")
        self.well("group", "abort", "ill", "--reason", "nan")
        self.fails(["barrier", "--group", "ill"], "group ill was aborted by rank 0: nan")
        self.fails(["group", "abort", "ill", "--rank", "3"], "rank 3 is not in group ill")
        self.fails(["group", "abort", "none"], "there is no group none")
        self.well("group", "delete", "ill")

    def test_group_shrink__leaves_out_who_does_not_call(self):
        self.well("group", "create", "four", "0-3")
        self.assertEqual(
            self.json("group", "shrink", "four", "--rank", "2", "--timeout", "100ms")["ranks"], [2])
        self.fails(["group", "shrink", "four", "--rank", "1"],
                   "group four was shrunk to four.2 with ranks 2 (rank 0 did not call")
        self.fails(["barrier", "--group", "four"], "group four was aborted by rank 2: it was shrunk to four.2")
        for name in ("four", "four.2"):
            self.well("group", "delete", name)

    def test_group_split__makes_all_parts(self):
        parts = self.json("group", "split", "--size", "2", "--name", "half")
        self.assertEqual(self.ranks(parts), {"half/0": [0, 1], "half/1": [2, 3]})
        parts = self.json("group", "split", "half/1", "--lists", "1/0", "--name", "one")
        self.assertEqual(self.ranks(parts), {"one/0": [3], "one/1": [2]})
        parts = self.json("group", "split", "--count", "1", "--rank", "2", "--name", "all")
        self.assertEqual(self.ranks(parts), {"all/0": [0, 1, 2, 3]})
        self.assertRegex(self.well("group", "list").text, r"half/1 +\d+ +2 +1 +2-3 +\d+[sm] +rank 2: local")
        for name in ("half/0", "half/1", "one/0", "one/1", "all/0"):
            self.well("group", "delete", name)

    def test_group_split__says_what_is_wrong(self):
        self.fails(["group", "split", "--size", "3"], "size 3 does not divide group world of 4")
        self.fails(["group", "split", "--size", "0"], "size 0 does not divide")
        self.fails(["group", "split", "--lists", "0,1/1,2"], "rank 1 is in list 0 and in list 1")
        self.fails(["group", "split", "--lists", "0/1,2", "--equal"], "need equal sizes")
        self.fails(["group", "split", "--lists", "0/x"], "no lists of ranks", code=2)
        self.fails(["group", "split"], "say one of --size, --count and --lists", code=2)
        self.fails(["group", "split", "--size", "1", "--count", "1"], "say one of", code=2)

    def test_group_translate__goes_both_ways(self):
        self.fails(["group", "create", "odd", "3", "1"], 'unexpected argument "1": ranks are one word, with commas', code=2)
        self.well("group", "create", "odd", "3,1")
        there = self.json("group", "translate", "0-3", "--to", "odd")
        self.assertEqual(there["ranks"], [-1, 1, -1, 0])
        self.assertEqual(self.json("group", "translate", "0,1", "--from", "odd")["ranks"], [3, 1])
        self.assertRegex(self.well("group", "translate", "0", "--to", "odd").text, r"0 +-")
        self.fails(["group", "translate", "2", "--from", "odd"], "rank 2 in group odd of 2")
        self.well("group", "delete", "odd")


class TestMeshes(ClusterCase):
    def test_mesh__shows_its_groups_places_and_parts(self):
        made = self.json("mesh", "create", "m", "2x2", "--dims", "dp,tp", "--ranks", "3,2,1,0")
        self.assertEqual((made["shape"], made["dims"]), ([2, 2], ["dp", "tp"]))
        self.assertEqual(self.json("mesh", "get", "m", "--rank", "2")["coordinate"], [0, 1])
        self.assertEqual(self.json("mesh", "groups", "m", "dp")["groups"], [[3, 1], [2, 0]])
        self.assertEqual(self.json("mesh", "slice", "m", "tp", "--rank", "1")["ranks"], [1, 0])
        whole = self.json("mesh", "slice", "m", "dp,tp", "--flatten", "--rank", "1")
        self.assertEqual((whole["name"], whole["coordinate"]), ("mesh:m/dp+tp", [2]))
        self.assertEqual([one["name"] for one in self.json("mesh", "list")["meshes"]], ["m"])
        group = self.json("group", "get", "mesh:m/tp", "--rank", "1")
        self.assertEqual(group["ranks"], [1, 0])
        self.well("barrier", "--group", "mesh:m/dp+tp")
        self.well("mesh", "delete", "m")
        self.assertEqual(self.json("mesh", "list")["meshes"], [])

    def test_mesh__says_what_is_wrong(self):
        self.fails(["mesh", "create", "m", "3x3"], "9 places in a world of 4")
        self.fails(["mesh", "create", "m", "2", "--ranks", "1,1"], "rank 1 twice")
        self.fails(["mesh", "create", "m", "2xa"], "need a shape: 2x4", code=2)
        self.fails(["mesh", "create", "m", "2x2", "--dims", "a"], "not 2 names", code=2)
        self.fails(["mesh", "get", "m"], "no mesh m in job default")
        self.well("mesh", "create", "m", "2x2")
        self.fails(["mesh", "groups", "m"], "say which")
        self.fails(["mesh", "slice", "m", "1,0"], "in the order of the mesh")
        self.fails(["group", "get", "mesh:m/0"], "depends on the rank")
        self.well("mesh", "delete", "m")


if __name__ == "__main__":
    support.main()
