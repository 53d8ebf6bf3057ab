"""Goal: values between ranks, meeting, pipelines, views of the store and diagnosis work as their words say.

Method: one thread for each rank against real agents; errors by their reasons.
"""

import os
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402


class Values(case.AgentCase):
    def test_any_value_of_json_is_broadcast_also_false_and_none(self):
        for value in ({"shape": [2, 3]}, False, None, 0, "", [1.5, "x"]):
            found = self.all(
                lambda agent: agent.broadcast_value(value if agent.rank == 1 else "mine", 1)
            )
            self.assertEqual(found, [value] * self.size)

    def test_calls_of_a_key_match_in_their_order(self):
        def work(agent):
            first = agent.broadcast_value(agent.rank, 0, key="grads")
            other = agent.broadcast_value(agent.rank, 2, key="shapes")
            return first, other, agent.broadcast_value(agent.rank, 1, key="grads")

        self.assertEqual(self.all(work), [(0, 2, 1)] * self.size)

    def test_every_member_gets_the_values_of_all_in_the_order_of_the_group(self):
        ranks = [2, 0]
        found = self.all(
            lambda agent: agent.all_gather_values(agent.rank == 0, group=ranks)
            if agent.rank in ranks
            else None
        )
        self.assertEqual(found[:3], [[False, True], None, [False, True]])
        found = self.all(lambda agent: agent.all_gather_bytes(b"%d" % agent.rank))
        self.assertEqual(found, [[b"%d" % rank for rank in range(self.size)]] * self.size)

    def test_who_does_not_come_is_named(self):
        agent = self.agents[0]
        with self.assertRaises(tutti.TuttiTimeout) as caught:
            agent.broadcast_value(root=1, key="alone", timeout=0.2)
        self.assertEqual(caught.exception.reason, "MISSING_RANKS")
        with self.assertRaises(tutti.TuttiError) as caught:
            agent.broadcast_value(root=99)
        self.assertEqual(caught.exception.reason, "BAD_ROOT")

    def test_bytes_that_are_no_json_are_no_value(self):
        def work(agent):
            if agent.rank == 0:
                return agent.broadcast_bytes(b"\xff", key="raw")
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.broadcast_value(key="raw")
            return caught.exception.code.name

        self.assertEqual(self.all(work), [b"\xff"] + ["DATA_LOSS"] * (self.size - 1))

    def test_callers_meet_by_a_key(self):
        size = self.size
        found = self.all(
            lambda agent: agent.meet(
                "stage", size, name="host-%d" % (size - agent.rank), is_root=agent.rank == 0
            )
        )
        self.assertEqual([one.group_rank for one in found], list(reversed(range(size))))
        self.assertEqual({one.root_rank for one in found}, {size - 1})
        self.assertEqual(len({one.group_hash for one in found}), 1)
        again = self.all(lambda agent: agent.meet("stage", size, group_rank=agent.rank))
        self.assertEqual([one.group_rank for one in again], list(range(size)))
        self.assertEqual({one.root_rank for one in again}, {None})

    def test_who_is_missing_is_counted(self):
        with self.assertRaises(tutti.TuttiTimeout) as caught:
            self.agents[0].meet("nobody", 2, timeout=0.1)
        self.assertEqual(caught.exception.reason, "TIMEOUT")
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].meet("nobody", 0)
        self.assertEqual(caught.exception.reason, "GROUP_SIZE")


class Stores(case.AgentCase):
    def test_get_waits_where_it_is_asked_to(self):
        store, other = self.agents[0].store, self.agents[1].store
        with self.assertRaises(tutti.TuttiTimeout):
            store.get("late", wait=True, timeout=0.05)
        setter = threading.Timer(0.05, lambda: other.set("late", "1"))
        setter.start()
        self.assertEqual(store.get("late", wait=True, timeout=case.LONG_S), b"1")
        setter.join()
        store.delete("late")

    def test_a_view_has_keys_of_its_own(self):
        store = self.agents[0].store
        view = store.view("a").view("b")
        view.set("x", "1")
        self.assertEqual(store.get("a/b/x"), b"1")
        self.assertEqual((view.get("x"), view.add("n", 2), view.count()), (b"1", 2, 2))
        self.assertEqual(view.keys(), [b"n", b"x"])
        self.assertEqual([(one.key, one.value) for one in view.list("x")], [(b"x", b"1")])
        watch = iter(view.watch(timeout=case.LONG_S))
        self.assertIsNone(next(watch))
        store.set("a/b/y", "2")
        self.assertEqual(next(watch).key, b"y")
        watch.close()
        self.assertTrue(view.check("x", "y") and view.delete("x") and not store.check("a/b/x"))
        self.assertEqual((view.push("q", "1"), view.length("q"), view.pop("q")), (1, 1, b"1"))
        view.multi_set({"x": "3"})
        self.assertEqual(view.multi_get(["x"]), [b"3"])
        for key in view.keys():
            view.delete(key)
        with self.assertRaises(tutti.TuttiError) as caught:
            store.view("")
        self.assertEqual(caught.exception.reason, "BAD_KEY")

    def test_a_missing_key_may_count_as_empty(self):
        store = self.agents[0].store
        self.assertEqual(store.compare_and_set("e", "", "1"), (False, None))
        self.assertEqual(store.compare_and_set("e", "", "1", missing_is_empty=True), (True, b"1"))
        store.delete("e")

    def test_an_offer_ends_when_it_was_taken(self):
        giver, taker = self.agents[0].store, self.agents[1].store
        with self.assertRaises(tutti.TuttiTimeout):
            giver.offer("grad", "0", timeout=0.05)
        self.assertEqual(taker.accept("grad", timeout=case.LONG_S), b"0")
        giver.pop("grad taken", timeout=case.LONG_S)
        found = case.in_threads(
            [lambda: giver.offer("grad", "1", case.LONG_S), lambda: taker.accept("grad", case.LONG_S)]
        )
        self.assertEqual(case.good(found), [None, b"1"])
        self.assertEqual(giver.count("grad"), 0)


class Pipelines(case.AgentCase):
    def test_ops_on_arrays_are_answered_in_any_order(self):
        def work(agent):
            with agent.pipeline() as calls:
                replies = [calls.all_reduce(np.full(2, i)) for i in range(600)]
                calls.barrier()
                last = replies[-1].wait().tolist()
            return last, [int(reply.wait()[0]) for reply in replies[:3]]

        size = self.size
        want = ([599 * size] * 2, [0, size, 2 * size])
        self.assertEqual(self.all(work), [want] * size)

    def test_tensors_are_named_before_they_are_there(self):
        def work(agent):
            with agent.pipeline() as calls:
                calls.put(np.full(3, agent.rank, np.float32), name="piped")
                calls.all_reduce("piped", out="piped")
                copied = calls.copy("piped", name="piped2")
                found = calls.get("piped2")
                calls.delete("piped", "piped2")
                created = calls.create((2,), "INT32", name="piped")
                calls.delete("piped")
                self.assertEqual(calls.sync().wait().failed, 0)
            self.assertTrue(copied.done)
            return found.wait().tolist(), created.wait().dtype_name

        total = float(sum(range(self.size)))
        self.assertEqual(self.all(work), [([total] * 3, "INT32")] * self.size)

    def test_all_ops_go_through_it(self):
        def work(agent):
            size, rank, after = self.size, agent.rank, (agent.rank + 1) % self.size
            x = np.arange(size, dtype=np.float32) + rank
            with agent.pipeline() as calls:
                replies = [
                    calls.reduce(x, root=1),
                    calls.reduce_scatter(x),
                    calls.broadcast(x, 2),
                    calls.scatter(x if rank == 0 else None),
                    calls.gather(x, form="stack"),
                    calls.all_gather(x, form="stack"),
                    calls.all_to_all(x),
                    calls.permute(x, [(r + 1) % size for r in range(size)]),
                    calls.send(x, after, tag=3),
                    calls.recv((rank - 1) % size, tag=3, dtype="FP32", shape=[size]),
                ]
            found = [reply.wait() for reply in replies]
            base = np.arange(size, dtype=np.float32)
            all_x = np.stack([base + r for r in range(size)])
            self.assertEqual(found[0] is None, rank != 1)
            np.testing.assert_array_equal(found[1], all_x.sum(0)[rank : rank + 1])
            np.testing.assert_array_equal(found[2], base + 2)
            part = found[3]
            if rank != 0:
                with part as made:
                    part = made.numpy()
            np.testing.assert_array_equal(part, base[rank : rank + 1])
            self.assertEqual(found[4] is None, rank != 0)
            np.testing.assert_array_equal(found[5], all_x)
            np.testing.assert_array_equal(found[6], all_x[:, rank])
            np.testing.assert_array_equal(found[7], base + (rank - 1) % size)
            self.assertIsNone(found[8])
            self.assertEqual(found[9].source, (rank - 1) % size)
            np.testing.assert_array_equal(found[9].tensor, base + (rank - 1) % size)

        self.all(work)

    def test_a_call_that_fails_does_not_end_it_unless_asked(self):
        agent = self.agents[0]
        with agent.pipeline() as calls:
            bad, good = calls.get("nothing"), calls.sync()
        self.assertEqual(good.wait().failed, 0)
        with self.assertRaises(tutti.TuttiError) as caught:
            bad.wait()
        self.assertEqual(caught.exception.reason, "NO_TENSOR")
        with agent.pipeline(stop_on_error=True) as calls:
            calls.get("nothing")
            skipped = calls.sync()
        with self.assertRaises(tutti.TuttiError) as caught:
            skipped.wait()
        self.assertEqual(caught.exception.reason, "SKIPPED")

    def test_what_is_too_large_is_refused_before_it_is_sent(self):
        agent = self.agents[0]
        with agent.pipeline() as calls:
            for call in (
                lambda: calls.put(np.zeros(1 << 20)),
                lambda: calls.all_reduce(np.zeros(1 << 20)),
                lambda: calls.recv(1),
            ):
                with self.assertRaises(tutti.TuttiError) as caught:
                    call()
                self.assertEqual(caught.exception.reason, "INLINE_LIMIT")

    def test_given_up_it_says_so(self):
        calls = self.agents[0].pipeline()
        reply = calls.recv(1, tag=77, keep=True)
        calls.cancel()
        with self.assertRaises(tutti.TuttiError) as caught:
            reply.wait()
        self.assertEqual(caught.exception.code.name, "CANCELLED")
        with self.assertRaises(tutti.TuttiError):
            calls.sync()
        until = time.monotonic() + case.LONG_S
        while self.agents[0].tensors():  # the agent hears of it a moment later
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)


class Works(case.AgentCase):
    def test_several_are_waited_for_in_one_call(self):
        def work(agent):
            works = [agent.all_reduce(np.full(2, i), async_=True) for i in range(3)]
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.wait(works + [tutti.Work(agent, "work:0.1.1", None)])
            found = [one.tolist() for one in agent.wait(works, case.LONG_S)]
            return found, bool(caught.exception.reason)

        size = self.size
        self.assertEqual(self.all(work), [([[0, 0], [size, size], [2 * size] * 2], True)] * size)

    def test_the_first_error_is_told_when_all_have_ended(self):
        def work(agent):
            good = agent.all_reduce(np.ones(2), async_=True)
            bad = agent.all_reduce(np.ones(2 + agent.rank % 2), async_=True)
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.wait([bad, good])
            return caught.exception.reason, good.wait().tolist()

        want = ("SHAPE_MISMATCH", [float(self.size)] * 2)
        self.assertEqual(self.all(work), [want] * self.size)

    def test_a_shape_without_a_dtype_is_no_expectation(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].recv(1, shape=[2])
        self.assertEqual(caught.exception.reason, "BAD_META")


class Functions(case.AgentCase):
    def test_builtins_are_called_and_found(self):
        agent = self.agents[1]
        self.assertEqual(agent.call("runtime.disco.worker_rank"), 1)
        self.assertEqual(agent.find_function("runtime.disco.worker_rank").source, "builtin")
        self.assertIn("runtime.disco.worker_rank", [one.name for one in agent.functions()])
        with agent.call("runtime.disco.empty", (2, 3), tutti.Dtype("FP32"), None) as made:
            self.assertEqual((made.shape, made.numpy().tolist()), ((2, 3), [[0.0] * 3] * 2))

    def test_names_hold_values(self):
        agent = self.agents[0]
        for value in (7, 2.5, "text", b"bytes", tutti.Shape([2]), tutti.Device("cpu"), None):
            agent.set_value("held", value)
            self.assertEqual(agent.get_value("held"), value)
        agent.delete("held")
        with agent.put(np.ones(2), name="held") as x:
            self.assertEqual(agent.get_value("held").handle, x.handle)

    def test_what_is_not_there_is_said(self):
        agent = self.agents[0]
        for call, reason in (
            (lambda: agent.call("nothing"), "UNKNOWN_FUNC"),
            (lambda: agent.find_function("nothing"), "UNKNOWN_FUNC"),
            (lambda: agent.get_value("nothing"), "NO_VALUE"),
            (lambda: agent.call("runtime.disco.worker_rank", np.ones(2)), "BAD_VALUE"),
            (lambda: agent.load_module("x.so"), "NO_MODULES"),
        ):
            with self.assertRaises(tutti.TuttiError) as caught:
                call()
            self.assertEqual(caught.exception.reason, reason)


class Diagnosis(case.AgentCase):
    def test_an_agent_tells_its_ops_and_what_is_wrong(self):
        self.all(lambda agent: agent.all_reduce(np.ones(3, np.float32)))
        agent = self.agents[0]
        record = agent.flight_record()
        self.assertIn("nccl:all_reduce", [one.profiling_name for one in record.entries])
        again = agent.flight_record(record.next_record_id)
        self.assertEqual(len(again.entries), 0)
        (reach,) = agent.examine([1]).reaches
        self.assertEqual((reach.rank, reach.reached), (1, True))
        self.assertTrue(agent.explain("all_reduce", 1 << 20).algorithm)
        self.assertEqual(len(agent.stalls().stalls), 0)
        self.assertIn("default", [job.name for job in agent.jobs()])

    def test_a_backup_is_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "b")
            self.assertGreater(self.agents[0].backup(path), 0)
            with open(path, "rb") as file:
                self.assertEqual(file.read(15), b"tutti backup 1\n")
            with self.assertRaises(OSError):
                self.agents[0].backup(os.path.join(folder, "no", "b"))
            self.assertEqual(os.listdir(folder), ["b"])

    def test_algorithms_are_chosen_and_given_back(self):
        self.all(lambda agent: agent.set_algorithms(forced="all_reduce=ring"))
        self.all(lambda agent: agent.all_reduce(np.ones(1 << 16)))
        said = self.agents[0].explain("all_reduce", 1 << 20)
        self.assertEqual((said.algorithm, said.why), ("ring", "forced"))
        self.all(lambda agent: agent.set_algorithms())
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].set_algorithms(table="nonsense")
        self.assertEqual(caught.exception.reason, "BAD_TABLE")

    def test_backends_and_devices_are_told(self):
        agent = self.agents[0]
        self.assertEqual((agent.get_backend(), agent.get_backend(device="cpu")), ("host", "host"))
        self.assertEqual((agent.device_count(), agent.device_count("cpu")), (0, 1))
        self.assertFalse(agent.is_nccl_available())
        for call, reason in (
            (lambda: agent.get_backend(device="cuda:7"), "NO_DEVICE"),
            (lambda: agent.device_count("tpu"), "BAD_DEVICE"),
            (lambda: agent.get_backend([1, 2]), "NOT_IN_GROUP"),
        ):
            with self.assertRaises(tutti.TuttiError) as caught:
                call()
            self.assertEqual(caught.exception.reason, reason)

    def test_host_memory_is_not_shared_as_a_gpus(self):
        with self.agents[0].put(np.ones(4)) as x:
            with self.assertRaises(tutti.TuttiError) as caught:
                self.agents[0].share_gpu(x)
        self.assertEqual(caught.exception.reason, "CANNOT_SHARE")

    def test_an_agent_without_a_gpu_has_no_events(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            self.agents[0].share_events()
        self.assertEqual(caught.exception.reason, "NO_DEVICE")


if __name__ == "__main__":
    tap.main()
