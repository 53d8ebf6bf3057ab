"""Goal: groups of every kind carry collectives in real agents: unnamed, tagged, split, of meshes.

Method: one cluster of eight agents, stock stubs.
"""

import time

import cluster_case
import support
import grpc
import numpy as np
from cluster_case import LONG_S, all_reduce, collectives, coordinator, types

from tutti.v1 import mesh_service_pb2 as mesh
from tutti.v1 import mesh_service_pb2_grpc as mesh_grpc

SIZE = 8


class Groups(cluster_case.ClusterCase):
    size = SIZE

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.members = [
            types.Member(rank=agent.rank, incarnation=agent.describe().incarnation)
            for agent in cls.cluster.agents
        ]
        cls.meshes = mesh_grpc.MeshServiceStub(cls.cluster.coordinator_channel)

    def call(self, name, request):
        return getattr(self.cluster.members, name)(request, timeout=LONG_S)

    def refused(self, reason, call, *arguments, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **fields)
        failure = support.Failure(caught.exception)
        self.assertEqual(failure.reason, reason, failure)
        return failure

    def create(self, rank, ranks, **fields):
        request = coordinator.CreateGroupRequest(member=self.members[rank], ranks=ranks, **fields)
        return self.call("CreateGroup", request)

    def split(self, rank, **fields):
        lists = fields.pop("lists", None)
        request = coordinator.CreateSubgroupsRequest(member=self.members[rank], **fields)
        for one in lists or ():
            request.lists.lists.add(ranks=one)
        return self.call("CreateSubgroups", request)

    def make_mesh(self, name, array, dims=()):
        return self.meshes.CreateMesh(
            mesh.CreateMeshRequest(
                member=self.members[0],
                name=name,
                shape=array.shape,
                ranks=array.flatten().tolist(),
                dim_names=dims,
            ),
            timeout=LONG_S,
        ).mesh

    def sums(self, names, ranks=range(SIZE)):
        """What an all-reduce of the ranks' own numbers makes on each, in its group of `names`."""
        return [
            int(one[0]) if isinstance(one, np.ndarray) else one.reason
            for one in self.cluster.on(
                ranks,
                lambda agent: all_reduce(
                    agent, np.array([1 << agent.rank], np.int64), group=names(agent.rank)
                ),
            )
        ]

    def assert_gone(self, reason, names, ranks=range(SIZE)):
        """Agents hear of a deletion by an event: each op ends, and soon all are refused."""
        for _ in range(100):
            told = self.sums(names, ranks)
            if told == [reason] * len(ranks):
                return
            time.sleep(0.01)
        self.fail("a second after its deletion a group still answers %s" % told)

    def bits(self, ranks):
        return sum(1 << rank for rank in ranks)

    def test_unnamed_groups_of_one_list_are_apart(self):
        pairs = [[self.create(rank, [0, 1]).group for rank in (0, 1)] for _ in range(2)]
        for first, second in pairs:
            self.assertEqual(first.id, second.id)
        self.assertNotEqual(pairs[0][0].id, pairs[1][0].id)
        for number in range(2):
            name = pairs[number][0].name
            self.assertEqual(self.sums(lambda _: name, [0, 1]), [3, 3])

    def test_tagged_groups_are_found_again(self):
        first = self.create(0, [0, 1], tag="blu")
        again = self.create(1, [0, 1], tag="blu")
        other = self.create(1, [1, 0], tag="blu")
        self.assertEqual((first.group.id, first.created), (again.group.id, not again.created))
        self.assertEqual((again.group_rank, other.group_rank), (1, 0))
        self.assertNotEqual(other.group.id, first.group.id)
        self.assertEqual(first.group.tag, "blu")

    def test_who_is_not_in_the_list_is_told_so_and_a_bad_list_goes_first(self):
        self.refused("NOT_IN_GROUP", self.create, 5, [0, 1])
        self.refused("RANK_RANGE", self.create, 5, [-1, 0])
        self.refused("DUPLICATE_RANK", self.create, 5, [0, 0])

    def test_spans_are_the_group_of_their_list(self):
        listed = self.create(1, [1, 3, 5, 7, 0, 2, 4, 6], name="spanned")
        spans = [1, 4, 2, 0, 4, 2]
        spanned = self.create(2, [], name="spanned", spans=spans)
        self.assertEqual((spanned.group.id, spanned.created), (listed.group.id, False))
        self.assertEqual((list(spanned.group.ranks), spanned.group_rank), (list(listed.group.ranks), 5))
        self.assertEqual(list(listed.group.spans), [])
        turned = self.create(3, [], name="turned", spans=[1, 1, 1, 0, 1, 1, 2, 2, 1], accept_spans=True)
        self.assertEqual(list(turned.group.ranks), [1, 0, 2, 3])  # no shorter in spans
        made = self.create(0, [], name="all", spans=[0, 8, 1], accept_spans=True)
        self.assertEqual((list(made.group.ranks), list(made.group.spans)), ([], [0, 8, 1]))
        self.assertEqual(self.sums(lambda _: "all"), [255] * SIZE)
        self.assertEqual(self.sums(lambda _: "spanned"), [255] * SIZE)

    def test_whoever_takes_spans_gets_them_and_others_lists(self):
        for taken in (False, True):
            got = self.call("GetGroup", coordinator.GetGroupRequest(accept_spans=taken)).group
            want = ([], [0, SIZE, 1]) if taken else (list(range(SIZE)), [])
            self.assertEqual((list(got.ranks), list(got.spans)), want)
            got = self.split(3, group_count=1, name="parts", accept_spans=taken).group
            self.assertEqual((list(got.ranks), list(got.spans)), want)

    def test_bad_spans_are_refused(self):
        for spans in ([0, 4], [0, 0, 1], [0, 4, 0], [0, 1 << 31, 1], [0, 4, 1] * 65, [0, 65536, 1] * 64):
            self.refused("BAD_SPANS", self.create, 0, [], spans=spans)
        failure = self.refused("BAD_SPANS", self.create, 0, [0, 1], spans=[0, 2, 1])
        self.assertIn("one of the two", failure.text)
        self.refused("RANK_RANGE", self.create, 0, [], spans=[1, SIZE, 1])
        self.refused("DUPLICATE_RANK", self.create, 0, [], spans=[0, 2, 1, 1, 2, 1])
        self.refused("NOT_IN_GROUP", self.create, 0, [], spans=[1, 3, 2])

    def test_parts_of_a_group_work_beside_each_other(self):
        parts = [self.split(rank, group_size=2) for rank in range(SIZE)]
        names = [part.group.name for part in parts]
        self.assertEqual(len(set(names)), 4)
        wanted = [self.bits([rank & ~1, rank | 1]) for rank in range(SIZE)]
        self.assertEqual(self.sums(lambda rank: names[rank]), wanted)
        own = self.split(3, group_count=2, name="half", list_all=True)
        self.assertEqual([list(one.ranks) for one in own.lists], [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual((own.group.name, own.index, own.group_rank), ("half/0", 0, 3))
        inner = self.split(2, parent="half/0", lists=[[3, 0], [2]], name="in")
        self.assertEqual((inner.group.name, list(inner.group.ranks)), ("in/1", [2]))
        none = self.split(1, parent="half/0", lists=[[3, 0], [2]], name="in")
        self.assertFalse(none.HasField("group"))
        self.assertEqual((none.index, none.group_rank), (-1, -1))

    def test_bad_splits_have_their_reasons(self):
        for fields, reason in [
            ({"group_size": 3}, "GROUP_SIZE"),
            ({"group_size": 0}, "GROUP_SIZE"),
            ({"group_size": 16}, "GROUP_SIZE"),
            ({"group_count": 3}, "GROUP_SIZE"),
            ({"lists": [[0], [1, 2]], "equal_sizes": True}, "GROUP_SIZE"),
            ({"lists": [[0, 1], [1, 2]]}, "OVERLAP"),
            ({"lists": [[0, 8]]}, "RANK_RANGE"),
            ({}, "EMPTY_GROUP"),
            ({"group_size": 2, "parent": "mesh:none/x"}, "NO_MESH"),
        ]:
            with self.subTest(fields):
                self.refused(reason, lambda: self.split(0, **fields))

    def test_ranks_are_translated(self):
        self.create(5, [5, 3, 1], name="odd")

        def translate(ranks, **groups):
            request = coordinator.TranslateRanksRequest(ranks=ranks, **groups)
            return list(self.call("TranslateRanks", request).ranks)

        self.assertEqual(translate([0, 1, 2], from_group="odd"), [5, 3, 1])
        self.assertEqual(translate([1, 2, -1], to_group="odd"), [2, -1, -1])
        self.refused("RANK_RANGE", lambda: translate([3], from_group="odd"))
        strict = lambda: translate([2], to_group="odd", members_only=True)  # noqa: E731
        self.refused("RANK_NOT_IN_GROUP", strict)

    def test_a_destroyed_group_is_gone_for_its_members(self):
        for _ in range(20):
            group = self.create(0, [0, 1], name="short").group
            self.assertEqual(self.sums(lambda _: "short", [0, 1]), [3, 3])
            request = [
                coordinator.DeleteGroupRequest(
                    member=self.members[rank], name="short", id=group.id, allow_missing=True
                )
                for rank in (0, 1)
            ]
            gone = [self.call("DeleteGroup", one).deleted for one in request]
            self.assertEqual(gone, [True, False])
            self.assert_gone("NO_GROUP", lambda _: "short", [0, 1])

    def test_a_mesh_names_groups_wherever_a_group_is_named(self):
        array = np.array([[0, 1, 2, 3], [7, 6, 5, 4]])
        self.make_mesh("m", array, ["dp", "tp"])
        rows = {rank: row for row in array for rank in row}
        columns = {rank: column for column in array.T for rank in column}
        for _ in range(2):
            self.assertEqual(
                self.sums(lambda _: "mesh:m/tp"), [self.bits(rows[rank]) for rank in range(SIZE)]
            )
            self.assertEqual(
                self.sums(lambda _: "mesh:m/dp"), [self.bits(columns[rank]) for rank in range(SIZE)]
            )
        self.assertEqual(self.sums(lambda _: "mesh:m/dp+tp"), [255] * SIZE)
        got = self.call("GetGroup", coordinator.GetGroupRequest(name="mesh:m/tp", rank=6))
        self.assertEqual((list(got.group.ranks), got.group_rank), ([7, 6, 5, 4], 1))

    def test_a_mesh_that_does_not_hold_a_rank_has_no_group_for_it(self):
        self.make_mesh("corner", np.array([[0, 1], [2, 3]]), ["a", "b"])
        self.assertEqual(self.sums(lambda _: "mesh:corner/a"), [5, 10, 5, 10] + ["NOT_IN_GROUP"] * 4)
        self.assertEqual(self.sums(lambda _: "mesh:corner/c", [0, 7]), ["MESH_DIM"] * 2)
        self.assertEqual(self.sums(lambda _: "mesh:nowhere/a", [0, 7]), ["NO_MESH"] * 2)

    def test_a_deleted_mesh_takes_its_groups_along(self):
        self.make_mesh("once", np.arange(SIZE).reshape(2, 4))
        whole = [self.bits([rank % 4, rank % 4 + 4]) for rank in range(SIZE)]
        self.assertEqual(self.sums(lambda _: "mesh:once/0"), whole)
        group = coordinator.DeleteGroupRequest(member=self.members[0], name="mesh:once/0")
        self.refused("MESH_GROUP", self.call, "DeleteGroup", group)
        request = mesh.DeleteMeshRequest(member=self.members[0], name="once")
        self.assertTrue(self.meshes.DeleteMesh(request, timeout=LONG_S).deleted)
        self.assert_gone("NO_MESH", lambda _: "mesh:once/0")
        self.make_mesh("once", np.arange(SIZE).reshape(4, 2))
        halves = [self.bits(range(rank % 2, SIZE, 2)) for rank in range(SIZE)]
        self.assertEqual(self.sums(lambda _: "mesh:once/0"), halves)

    def test_mesh_queries_answer_groups_coordinates_and_parts(self):
        cube = np.arange(SIZE).reshape(2, 2, 2)
        self.make_mesh("cube", cube, ["dp", "pp", "cp"])
        for dim in range(-3, 3):
            request = mesh.ListMeshGroupsRequest(name="cube", dim=dim)
            groups = self.meshes.ListMeshGroups(request, timeout=LONG_S).groups
            wanted = cube.swapaxes(-1, dim).reshape(-1, 2).tolist()
            self.assertEqual([list(one.ranks) for one in groups], wanted)
        got = self.meshes.GetMesh(mesh.GetMeshRequest(name="cube", rank=6), timeout=LONG_S)
        self.assertEqual((list(got.coordinate), list(got.mesh.shape)), ([1, 1, 0], [2, 2, 2]))
        part = mesh.SliceMeshRequest(name="cube", rank=3, dim_names=["dp", "cp"])
        answer = self.meshes.SliceMesh(part, timeout=LONG_S)
        self.assertEqual((list(answer.shape), list(answer.ranks)), ([2, 2], [2, 3, 6, 7]))
        self.assertEqual((answer.group_name, list(answer.coordinate)), ("mesh:cube/dp+cp", [0, 1]))
        part.flatten = True
        answer = self.meshes.SliceMesh(part, timeout=LONG_S)
        self.assertEqual((list(answer.shape), list(answer.dim_names)), ([4], ["dp+cp"]))
        self.assertEqual((list(answer.ranks), list(answer.coordinate)), ([2, 3, 6, 7], [1]))

    def test_the_world_is_first_among_too_many_groups_to_tell(self):
        agent = self.cluster.agents[0]
        self.cluster.all(lambda one: one.ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S))
        for number in range(257):  # names that come before "world"
            self.create(0, [0], name="alone-%d" % number)
            agent.ops.Barrier(collectives.BarrierRequest(group="alone-%d" % number), timeout=LONG_S)
        groups = agent.stats().groups
        self.assertEqual((len(groups), groups[0].group), (256, "world"))

    def test_meshes_are_listed_page_by_page(self):
        for number in range(5):
            self.make_mesh("list-%d" % number, np.array([number, number + 1]))
        names = []
        request = mesh.ListMeshesRequest(page_size=2)
        while not names or request.page_token:
            page = self.meshes.ListMeshes(request, timeout=LONG_S)
            names += [one.name for one in page.meshes]
            request.page_token = page.next_page_token
        wanted = ["list-%d" % number for number in range(5)]
        self.assertEqual([one for one in names if one in wanted], wanted)
        self.assertEqual(names, sorted(set(names)))


if __name__ == "__main__":
    support.main()
