"""Goal: a group is whatever says which ranks: names, lists, nested lists, meshes; and ends as it is told.

Method: one thread for each of four ranks; sums tell who took part.
"""

import os
import sys
import time
import unittest
from unittest import mock

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402


def total(agent, group):
    return float(agent.all_reduce(np.array([10.0 ** agent.rank]), group=group)[0])


class Words(case.AgentCase):
    def test_a_list_of_ranks_is_a_group_in_its_order(self):
        def work(agent):
            if agent.rank not in (2, 0):
                return None
            found = agent.all_gather(np.array([agent.rank]), group=[2, 0]).tolist()
            return found, agent.broadcast(np.array([agent.rank]), 0, group=[2, 0]).tolist()

        want = ([2, 0], [2])
        self.assertEqual(self.all(work), [want, None, want, None])

    def test_it_is_made_once(self):
        self.all(lambda agent: total(agent, [0, 1]) if agent.rank < 2 else None)
        before = [one.name for one in self.agents[0].groups()]
        self.all(lambda agent: total(agent, (0, 1)) if agent.rank < 2 else None)
        self.assertEqual([one.name for one in self.agents[0].groups()], before)

    def test_all_ranks_are_the_world(self):
        before = len(self.agents[0].groups())
        self.assertEqual(self.all(lambda agent: total(agent, range(4))), [1111.0] * 4)
        self.assertEqual(len(self.agents[0].groups()), before)

    def test_aborted_it_is_shrunk_to_those_who_call(self):
        def work(agent):
            group = agent.new_group([0, 1, 2, 3], name="aborted")
            agent.barrier()
            if agent.rank == 3:
                group.abort("the loss is nan")
                return None
            with self.assertRaises(tutti.TuttiError) as caught:
                total(agent, group)  # rank 3 does not call it
            self.assertEqual(caught.exception.reason, "GROUP_ABORTED")
            self.assertIn("aborted by rank 3: the loss is nan", str(caught.exception))
            left = group.shrink(timeout=0.5)
            self.assertEqual((left.name, list(left.ranks)), ("aborted.2", [0, 1, 2]))
            return total(agent, left)

        self.assertEqual(self.all(work), [111.0, 111.0, 111.0, None])
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[3].group("aborted").shrink()
        self.assertEqual(caught.exception.reason, "SHRUNK_WITHOUT")

    def test_of_lists_it_is_the_one_with_us(self):
        found = self.all(lambda agent: total(agent, [[0, 2], [1, 3]]))
        self.assertEqual(found, [101.0, 1010.0, 101.0, 1010.0])

    def test_lists_of_different_sizes_are_refused(self):
        errors = self.all_fail(lambda agent: total(agent, [[0], [1, 2, 3]]))
        self.assertEqual({one.reason for one in errors}, {"GROUP_SIZE"})

    def test_objects_have_a_root_of_the_job_too(self):
        def work(agent):
            if agent.rank not in (3, 1):
                return None
            how = dict(group=[3, 1], root_global=1)
            one = agent.broadcast_object(agent.rank, **how).value()
            part = agent.scatter_object(["a", "b"] if agent.rank == 1 else None, **how).value()
            found = agent.gather_object(agent.rank, **how)
            return one, part, found and [blob.value() for blob in found]

        want = [None, (1, "b", [3, 1]), None, (1, "a", None)]
        self.assertEqual(self.all(work), want)

    def test_a_mesh_of_one_dimension_and_a_dimension_of_a_mesh(self):
        def work(agent):
            line = agent.new_mesh([4], ["all"], name="words-line")
            grid = agent.new_mesh([2, 2], ["data", "model"], name="words-grid")
            with self.assertRaises(tutti.TuttiError) as caught:
                total(agent, grid)
            self.assertEqual(caught.exception.reason, "MESH_DIM")
            ways = (line, (grid, "data"), (grid, 1), (grid, -1), grid.group_name("data", "model"))
            return [total(agent, one) for one in ways]

        low, high = [1111.0, 101.0, 11.0, 11.0, 1111.0], [1111.0, 1010.0, 11.0, 11.0, 1111.0]
        low2, high2 = [1111.0, 101.0, 1100.0, 1100.0, 1111.0], [1111.0, 1010.0, 1100.0, 1100.0, 1111.0]
        self.assertEqual(self.all(work), [low, high, low2, high2])

    def test_who_is_no_member_is_told_so_and_others_are_not_disturbed(self):
        def work(agent):
            try:
                return total(agent, [1, 2])
            except tutti.TuttiError as error:
                return error.reason

        self.assertEqual(self.all(work), ["NOT_IN_GROUP", 110.0, 110.0, "NOT_IN_GROUP"])

    def test_nonsense_is_no_group(self):
        for bad in ([], [[]], ["x"], {"a": 1}, [0, [1]]):
            with self.assertRaises(tutti.TuttiError) as caught:
                total(self.agents[0], bad)
            self.assertEqual(caught.exception.reason, "BAD_GROUP")

    def test_rank_and_size_are_minus_one_for_who_is_none(self):
        agent = self.agents[0]
        group = self.agents[1].new_group([1, 2], name="others")
        for other in ("others", [1, 2], agent.group("others")):
            self.assertEqual((agent.get_rank(other), agent.get_world_size(other)), (-1, -1))
        self.assertEqual((agent.get_rank(), agent.get_world_size()), (0, 4))
        two = self.agents[2]
        self.assertEqual((two.get_rank("others"), two.get_world_size(group)), (1, 2))
        with self.assertRaises(tutti.TuttiError) as caught:
            agent.get_rank("nobody")
        self.assertEqual(caught.exception.reason, "NO_GROUP")
        group.delete()


class Making(case.AgentCase):
    def test_no_ranks_are_all_of_the_parent(self):
        def work(agent):
            whole = agent.new_group(name="whole")
            part = agent.new_group([3, 1], name="part", sort=True) if agent.rank in (1, 3) else None
            inner = agent.new_group(name="inner", parent=part) if part else None
            return whole.ranks, inner and inner.ranks

        found = self.all(work)
        self.assertEqual(found[0], ((0, 1, 2, 3), None))
        self.assertEqual(found[1], ((0, 1, 2, 3), (1, 3)))

    def test_all_ranks_may_make_a_group_of_some(self):
        def work(agent):
            group = agent.new_group([0, 2], name="some")
            inner = agent.new_group([0, 1], parent=agent.new_group([3, 1, 2]), tag="inner")
            said = group.rank, group.ranks, inner.rank, inner.ranks, agent.get_rank(group), agent.get_world_size(group)
            if group.rank < 0:
                for call in (lambda: total(agent, group), group.abort, group.shrink, group.delete):
                    with self.assertRaises(tutti.TuttiError) as caught:
                        call()
                    self.assertEqual(caught.exception.reason, "NOT_IN_GROUP")
                    self.assertIn("rank %d is not in group some" % agent.rank, str(caught.exception))
                group.destroy()
                return said, None
            return said, total(agent, group)

        want = [
            ((0, (0, 2), -1, (3, 1), 0, 2), 101.0),
            ((-1, (0, 2), 1, (3, 1), -1, -1), None),
            ((1, (0, 2), -1, (3, 1), 1, 2), 101.0),
            ((-1, (0, 2), 0, (3, 1), -1, -1), None),
        ]
        self.assertEqual(self.all(work), want)

    def test_a_timeout_of_the_group_is_that_of_its_ops(self):
        agent = self.agents[0]
        group = agent.new_group([0, 1], name="hasty", timeout=0.2)
        began = time.monotonic()
        with self.assertRaises(tutti.TuttiTimeout) as caught:
            agent.barrier(group=group)
        self.assertEqual(caught.exception.reason, "TIMEOUT")
        self.assertLess(time.monotonic() - began, case.LONG_S)
        self.assertEqual(agent.split(size=2, name="halves", timeout=3).timeout, 3)

    def test_a_timeout_of_the_group_is_that_of_every_client(self):
        self.agents[0].new_group([0, 1], name="hasty-for-all", timeout=0.2)
        other = self.agents[1]
        self.assertEqual(other.group("hasty-for-all").timeout, 0.2)
        self.assertEqual(other.new_group([0, 1], name="hasty-for-all", timeout=9).timeout, 0.2)
        for _ in range(2):  # the agent knows the group only by the first op
            began = time.monotonic()
            with self.assertRaises(tutti.TuttiTimeout) as caught:
                other.barrier(group="hasty-for-all")
            self.assertIn("rank 0 has not called it", caught.exception.text)
            self.assertLess(time.monotonic() - began, case.LONG_S)
        work = other.all_reduce(np.ones(1), group="hasty-for-all", async_=True)
        with self.assertRaises(tutti.TuttiTimeout):
            work.wait(case.LONG_S)

    def test_destroyed_by_one_it_is_there_for_the_others_and_gone_with_the_last(self):
        groups = self.all(lambda agent: agent.new_group([0, 1, 2, 3], name="doomed"))
        before = self.agents[3].store.count()
        groups[0].destroy()
        groups[0].destroy()
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].barrier(group=groups[0])
        self.assertEqual(caught.exception.reason, "NO_GROUP")
        self.assertEqual(self.agents[1].group("doomed").size, 4)
        for group in groups[1:]:
            group.destroy()
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[1].group("doomed")
        self.assertEqual(caught.exception.reason, "NO_GROUP")
        self.assertEqual(self.agents[3].store.count(), before)
        for bad, reason in ((self.agents[0].group(), "WORLD_GROUP"),):
            with self.assertRaises(tutti.TuttiError) as caught:
                bad.destroy()
            self.assertEqual(caught.exception.reason, reason)

    def test_meshes_are_listed_and_sliced(self):
        agent = self.agents[3]
        mesh = agent.new_mesh([2, 2], ["dp", "tp"], name="sliced")
        found = {one.name: one for one in agent.meshes()}["sliced"]
        self.assertEqual((found.ranks, found.coordinate), (mesh.ranks, (1, 1)))
        part = mesh.slice("tp")
        self.assertEqual((part.ranks, part.coordinate), ((2, 3), (1,)))
        whole = mesh.slice("dp", "tp", flatten=True, rank=1)
        self.assertEqual((whole.shape, whole.dim_names, whole.coordinate), ((4,), ("dp+tp",), (1,)))
        self.assertEqual(agent.translate([0, 1], (mesh, "tp")), [2, 3])
        mesh.delete()


class Backends(case.AgentCase):
    def test_a_group_says_the_backend_that_it_was_made_with(self):
        def work(agent):
            made = agent.new_group(backend="gloo", timeout=case.LONG_S, tag="backends")
            plain = agent.new_group(tag="no-backend")
            return made.backend, agent.get_backend(made), plain.backend, agent.get_backend(plain)

        self.assertEqual(self.all(work), [("host", "host", "", "host")] * 4)

    def test_a_group_knows_whether_it_is_on_one_host(self):
        self.assertTrue(self.agents[0].new_group(tag="one-host").is_single_host())
        here = tutti.sync._groups.RankInfo(0, "ALIVE", "", 1, "a", 1, "cpu", "", (), "a")
        there = tutti.sync._groups.RankInfo(1, "ALIVE", "", 1, "b", 1, "cpu", "", (), "b")
        with mock.patch.object(self.agents[0], "ranks", lambda ranks: [here, there]):
            self.assertFalse(self.agents[0].group("world").is_single_host())

    def test_a_backend_that_is_not_there_is_refused(self):
        for name, reason in (("nccl", "NO_BACKEND"), ("ucc", "BAD_VALUE")):
            with self.assertRaises(tutti.TuttiError) as caught:
                self.agents[0].new_group(backend=name)
            self.assertEqual(caught.exception.reason, reason)


if __name__ == "__main__":
    tap.main()
