"""Goal: tensors, groups, keys and objects through the blocking API: every call gives what its words say.

Method: one thread for each rank; numpy says what must come.
"""

import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
from case import ramp  # noqa: E402
from tutti import _wire  # noqa: E402
from tutti.aio import _groups  # noqa: E402


class Connecting(case.AgentCase):
    def test_an_agent_says_who_it_is(self):
        self.assertEqual([agent.rank for agent in self.agents], list(range(self.size)))
        info = self.agents[0].info
        self.assertEqual((info.job, info.world_size), ("default", self.size))

    def test_a_coordinator_is_no_agent(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.connect(case.COORDINATOR)
        self.assertEqual(caught.exception.reason, "NOT_AN_AGENT")
        self.assertIn("give the address of an agent", caught.exception.text)

    def test_members_are_watched(self):
        agent = self.agents[0]
        (now,) = agent.watch_members(timeout=0.5)
        said = "%d of %d ranks alive" % (self.size, self.size)
        self.assertEqual((now.kind, now.rank, now.reason), ("now", None, said))
        (again,) = agent.watch_members(after=now, timeout=0.5)
        self.assertEqual(again, now)
        other = tutti.MemberEvent("now", now.epoch, now.job_id + 1)
        self.assertEqual(next(iter(agent.watch_members(after=other))).epoch, 0)

    def test_all_ranks_are_found(self):
        infos = self.agents[0].ranks()
        self.assertEqual([info.rank for info in infos], list(range(self.size)))
        self.assertEqual({info.state for info in infos}, {"ALIVE"})
        with self.agents[0].connect_rank(1) as other:
            self.assertEqual(other.rank, 1)

    def test_a_job_is_connected_as_a_whole(self):
        agents = tutti.connect_job(case.COORDINATOR)
        self.assertEqual([agent.rank for agent in agents], list(range(self.size)))
        for agent in agents:
            agent.close()

    def test_an_init_address_finds_its_rank(self):
        url = "tcp://%s?rank=1&world_size=%d" % (case.COORDINATOR, self.size)
        with tutti.connect(url) as agent:
            self.assertEqual(agent.rank, 1)
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.connect("tcp://%s?rank=0&world_size=99" % case.COORDINATOR)
        self.assertEqual(caught.exception.reason, "WORLD_SIZE")
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.connect("tcp://%s?rank=99&world_size=100" % case.COORDINATOR)
        self.assertEqual(caught.exception.reason, "RANK_RANGE")

    def test_the_first_address_that_answers_is_taken(self):
        with tutti.connect(["127.0.0.1:1", case.ADDRESSES[0]]) as agent:
            self.assertEqual(agent.rank, 0)


class Tensors(case.AgentCase):
    def test_arrays_come_back_as_they_were(self):
        agent = self.agents[0]
        for dtype in ("?", "u1", "i8", "f2", "f4", "f8", "c8", "c16"):
            for shape in ((), (0,), (2, 3)):
                array = np.ones(shape, dtype)
                with agent.put(array) as tensor:
                    back = tensor.numpy()
                    self.assertEqual((back.dtype, back.shape), (array.dtype, shape))
                    np.testing.assert_array_equal(back, array)

    def test_large_ones_travel_in_chunks(self):
        agent = self.agents[0]
        array = np.arange(5 << 20, dtype=np.uint8).reshape(5, -1)[:, :-1]  # no whole chunks
        with agent.put(array, "large") as tensor:
            np.testing.assert_array_equal(agent.tensor("large").numpy(), array)
            tensor.write(array[::-1])
            np.testing.assert_array_equal(tensor.numpy(), array[::-1])
            self.assertEqual(tensor.read(3, 4), array[::-1].tobytes()[3:7])

    def test_a_tensor_is_made_copied_listed_and_deleted(self):
        agent = self.agents[0]
        zeros = agent.create((2, 2), np.int32, "zeros")
        other = agent.put(np.full((2, 2), 7, np.int32))
        other.copy(into=zeros)
        third = zeros.copy("third")
        self.assertEqual(third.numpy().tolist(), [[7, 7], [7, 7]])
        handles = [one.handle for one in agent.tensors()]
        self.assertEqual(handles, [zeros.handle, other.handle, third.handle])
        agent.delete("zeros", other, third)
        zeros.delete()  # again

    def test_bits_of_bf16_are_kept(self):
        bits = np.array([0x3F80, 0x4000], np.uint16)
        with self.agents[0].put(bits, dtype="BF16") as tensor:
            self.assertEqual(tensor.dtype_name, "BF16")
            self.assertEqual(tensor.numpy().view(np.uint16).tolist(), bits.tolist())

    def test_errors_have_code_and_reason(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].tensor("nobody")
        self.assertEqual(caught.exception.code.name, "NOT_FOUND")
        self.assertEqual(caught.exception.reason, "NO_TENSOR")

    def test_a_closed_connection_says_so(self):
        agent = tutti.connect(case.ADDRESSES[0], timeout=case.LONG_S)
        agent.close()
        with self.assertRaises(tutti.TuttiError) as caught:
            agent.barrier()
        self.assertEqual(caught.exception.reason, "CLOSED")
        self.assertIn("is closed: connect again", caught.exception.text)

    def test_a_forked_child_is_told(self):
        agent = self.agents[0]
        agent.stats()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                agent.stats()
            except tutti.TuttiError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            self.assertIn("after a fork connect again", said.read())
        os.waitpid(child, 0)
        agent.stats()

    def test_who_sends_to_itself_is_told_what_to_do(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].recv(0)
        self.assertEqual(caught.exception.reason, "SELF_PEER")
        self.assertIn("copy the tensor instead", caught.exception.text)


class Spans(unittest.TestCase):
    def test_lists_of_ranks_come_back_from_spans(self):
        for ranks, spans in (
            (list(range(10000)), [0, 10000, 1]),
            ([*range(7, 80, 8), *range(3), 9, 8], [7, 10, 8, 0, 3, 1]),
            ([65530, 65531, 65532, 65533, 65534, 65535], [65530, 6, 1]),
        ):
            found = _groups._pack_spans(ranks)
            self.assertEqual(found[: len(spans)], spans)
            self.assertEqual(_groups._group_ranks(_wire.new("Group", spans=found)), tuple(ranks))

    def test_lists_that_are_no_shorter_as_spans_stay_lists(self):
        wrong = ([-2, -1, 0, 1], [65534, 65535, 65536, 65537])  # the coordinator says which rank
        for ranks in ([], [0], [0, 1, 2], [3, 2, 1, 0], list(range(300, 0, -1)), *wrong):
            self.assertEqual(_groups._pack_spans(ranks), [])


class Groups(case.AgentCase):
    def test_groups_have_an_order(self):
        members = self.agents[1::-1]  # ranks 1, 0
        groups = case.good(
            case.in_threads([lambda one=one: one.new_group([1, 0], "reversed") for one in members])
        )
        self.assertEqual(
            [(group.ranks, group.rank) for group in groups], [((1, 0), 0), ((1, 0), 1)]
        )
        found = case.good(
            case.in_threads(
                [
                    lambda one=one, group=group: one.all_gather(np.array([one.rank]), group=group)
                    for one, group in zip(members, groups)
                ]
            )
        )
        self.assertEqual([list(one) for one in found], [[1, 0], [1, 0]])
        self.assertIn("reversed", [group.name for group in self.agents[0].groups()])
        self.assertEqual(self.agents[0].translate([0, 1], "reversed"), [1, 0])
        for group in groups:
            group.delete()

    def test_a_root_of_a_group_is_found_by_name(self):
        case.good(
            case.in_threads(
                [lambda one=one: one.new_group([1, 0], "pair") for one in self.agents[:2]]
            )
        )
        found = case.good(
            case.in_threads(
                [
                    lambda one=one: one.broadcast(ramp(one), root=0, group="pair")
                    for one in self.agents[:2]
                ]
            )
        )
        for one in found:
            np.testing.assert_array_equal(one, ramp(self.agents[1]))
        self.agents[0].group("pair").delete()

    def test_a_world_is_split(self):
        halves = self.all(lambda agent: agent.split(size=self.size // 2, name="half"))
        self.assertEqual({group.ranks for group in halves}, {(0, 1), (2, 3)})
        lists = self.all(lambda agent: agent.split(lists=[[0, 2]], name="listed"))
        self.assertEqual([group and group.rank for group in lists], [0, None, 1, None])
        for group in [halves[0], halves[2], lists[0]]:
            group.delete()

    def test_meshes_have_groups(self):
        meshes = self.all(lambda agent: agent.new_mesh([2, 2], ["dp", "tp"], name="grid"))
        self.assertEqual([mesh.coordinate for mesh in meshes], [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertEqual(meshes[3].group("dp").ranks, (1, 3))
        self.assertEqual(meshes[0].groups("tp"), [(0, 1), (2, 3)])
        found = self.all(
            lambda agent: agent.all_reduce(
                np.array([agent.rank]), group=meshes[agent.rank].group_name("tp")
            )
        )
        self.assertEqual([int(one[0]) for one in found], [1, 1, 5, 5])
        self.assertEqual(self.agents[0].mesh("grid").shape, (2, 2))
        meshes[0].delete()


class Store(case.AgentCase):
    def test_keys_and_counters(self):
        store = self.agents[0].store
        store.set("a/1", b"\0\xff")
        self.assertEqual(store.get("a/1"), b"\0\xff")
        self.assertEqual(store.append("a/1", "x"), 3)
        self.assertEqual([store.add("a/n", 2), store.add("a/n")], [2, 3])
        store.multi_set({"a/2": "two", "a/3": "three"})
        self.assertEqual(store.multi_get(["a/2", "a/3"]), [b"two", b"three"])
        self.assertEqual(store.compare_and_set("a/2", "no", "x"), (False, b"two"))
        self.assertEqual(store.compare_and_set("a/4", None, "x"), (True, b"x"))
        self.assertEqual(
            [entry.key for entry in store.list("a/")], [b"a/1", b"a/2", b"a/3", b"a/4", b"a/n"]
        )
        self.assertEqual((store.count("a/"), store.check("a/1", "none")), (5, False))
        self.assertEqual(store.take("a/4"), b"x")
        self.assertEqual([store.delete("a/1"), store.delete("a/1")], [True, False])
        with self.assertRaises(tutti.TuttiError) as caught:
            store.get("a/1")
        self.assertEqual(caught.exception.reason, "NO_KEY")

    def test_keys_go_with_their_lease(self):
        store = self.agents[0].store
        lease = store.grant(60)
        store.set("l/1", "one", lease=lease)
        store.multi_set({"l/2": "two"}, lease=lease)
        self.assertEqual(store.compare_and_set("l/3", None, "x", lease=lease), (True, b"x"))
        kept = store.keep_alive(lease)
        self.assertEqual((kept.lease, kept.ttl, kept.keys), (lease, 60.0, 3))
        self.assertIn(lease, [one.lease for one in store.leases()])
        self.assertEqual([store.revoke(lease), store.revoke(lease)], [True, False])
        self.assertEqual(store.count("l/"), 0)
        for call in (lambda: store.keep_alive(lease), lambda: store.set("l/1", "x", lease=lease)):
            with self.assertRaises(tutti.TuttiError) as caught:
                call()
            self.assertEqual(caught.exception.reason, "NO_LEASE")

    def test_waiting_queues_and_watches(self):
        store = self.agents[0].store
        with self.assertRaises(tutti.TuttiTimeout):
            store.wait("never", timeout=0.05)
        self.assertEqual([store.push("q", "1"), store.push("q", "2"), store.length("q")], [1, 2, 2])
        self.assertEqual([store.pop("q"), store.pop("q", at_once=True)], [b"1", b"2"])
        watch = store.watch("w/", timeout=case.LONG_S)
        self.assertIsNone(next(watch))
        store.set("w/1", "x")
        store.delete("w/1")
        self.assertEqual(
            [(one.key, one.value) for one in (next(watch), next(watch))],
            [(b"w/1", b"x"), (b"w/1", None)],
        )
        watch.close()


class Objects(case.AgentCase):
    def test_objects_of_any_kind_travel(self):
        def value(agent):
            return {"rank": agent.rank, "text": "x" * agent.rank}

        def work(agent):
            said = value(agent)
            other = agent.scatter_object(
                ["a", "bb", "ccc", "dddd"] if agent.rank == 2 else None, root=2
            )
            gathered = agent.gather_object(said, root=1)
            return (
                agent.broadcast_object(said, root=3).value(),
                [one.value() for one in agent.all_gather_object(said)],
                gathered and [one.value() for one in gathered],
                other.value(),
            )

        every = [value(agent) for agent in self.agents]
        for rank, found in enumerate(self.all(work)):
            self.assertEqual(found[:2], (every[3], every))
            self.assertEqual(found[2], every if rank == 1 else None)
            self.assertEqual(found[3], "abcd"[rank] * (rank + 1))

    def test_an_object_is_sent_to_one(self):
        blob = tutti.Blob(b"\0\1", "image/png")
        found = self.all(
            lambda agent: (
                agent.send_object(blob, 1)
                if agent.rank == 0
                else agent.recv_object() if agent.rank == 1 else None
            )
        )
        self.assertEqual(found[1], (blob, 0))

    def test_arrays_sets_and_pickles_are_objects(self):
        def work(agent):
            got = agent.all_gather_object({"rank": {agent.rank}, "x": np.full(2, agent.rank)})
            pickled = agent.broadcast_object(tutti.Blob.pickled(range(agent.rank)), root=2)
            return [(one.value()["rank"], one.value()["x"].tolist()) for one in got], pickled.unpickle()

        want = [({rank}, [rank, rank]) for rank in range(self.size)]
        self.assertEqual(self.all(work), [(want, range(2))] * self.size)


if __name__ == "__main__":
    tap.main()
