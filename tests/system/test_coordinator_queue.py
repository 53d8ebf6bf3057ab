"""Goal: the store does what PyTorch's c10d stores and MegEngine's control plane do, for any gRPC
client. Method: the real coordinator; compositions that README.md of server/coordinator names are
written out here.
"""

import threading

import support
from coordinator_case import CALL_S, CODE, Case

from tutti.v1 import rendezvous_service_pb2 as rendezvous
from tutti.v1 import rendezvous_service_pb2_grpc as rendezvous_grpc
from tutti.v1 import store_service_pb2 as store

LONG_MS = int(CALL_S * 1000)


class Keys(Case):
    """The store's methods by name: self.ask("Append", key=..., ...)."""

    def ask(self, method, **fields):
        return self.begin(method, **fields).result(CALL_S)

    def begin(self, method, **fields):
        request = getattr(store, "StoreService%sRequest" % method)(job=self.job, **fields)
        return getattr(self.services.store, method).future(request, timeout=CALL_S)

    def wrong(self, code, reason, method, **fields):
        return self.failed(code, reason, self.begin(method, **fields))


class Many(Keys):
    def test_append_and_multi_calls_work_together(self):
        self.ask("Set", key=b"foo", value=b"po")
        self.assertEqual(self.ask("Append", key=b"foo", value=b"tato").size, 6)
        self.assertEqual(self.ask("Append", key=b"bar", value=b"po").size, 2)
        entries = [store.Entry(key=b"a", value=b"c"), store.Entry(key=b"b", value=b"d")]
        version = self.ask("MultiSet", entries=entries).version
        got = self.ask("MultiGet", keys=[b"foo", b"bar", b"a", b"b"])
        self.assertEqual(list(got.values), [b"potato", b"po", b"c", b"d"])
        self.assertEqual(got.versions[2:], [version, version])
        at_once = self.ask("MultiGet", keys=[b"a"], at_once=True)
        self.assertEqual(list(at_once.values), [b"c"])

    def test_a_multi_get_waits_for_the_last_key(self):
        self.ask("Set", key=b"a", value=b"1")
        waiting = self.begin("MultiGet", keys=[b"a", b"later"], timeout_ms=LONG_MS)
        self.ask("Set", key=b"later", value=b"x")
        self.assertEqual(list(waiting.result(CALL_S).values), [b"1", b"x"])

    def test_a_multi_get_names_what_is_missing(self):
        self.ask("Set", key=b"a")
        failure = self.wrong(CODE.NOT_FOUND, "NO_KEY", "MultiGet", keys=[b"a", b"x"], at_once=True)
        self.assertIn('1 of 2 keys are not there: "x"', failure.text)
        failure = self.wrong(
            CODE.DEADLINE_EXCEEDED, "TIMEOUT", "MultiGet", keys=[b"a", b"x"], timeout_ms=100
        )
        self.assertIn('1 of 2 keys did not come in time: "x"', failure.text)

    def test_a_multi_set_stores_all_or_none(self):
        large = [store.Entry(key=b"a"), store.Entry(key=b"b", value=b"v" * ((1 << 20) + 1))]
        self.wrong(CODE.INVALID_ARGUMENT, "VALUE_LIMIT", "MultiSet", entries=large)
        bad = [store.Entry(key=b"a"), store.Entry()]
        self.wrong(CODE.INVALID_ARGUMENT, "BAD_KEY", "MultiSet", entries=bad)
        self.wrong(CODE.INVALID_ARGUMENT, "KEYS_LIMIT", "MultiSet")
        many = [store.Entry(key=b"%d" % i) for i in range(1025)]
        self.wrong(CODE.INVALID_ARGUMENT, "KEYS_LIMIT", "MultiSet", entries=many)
        self.assertFalse(self.ask("Check", keys=[b"a"]).all_exist)
        self.ask("MultiSet", entries=many[:1024])
        self.assertEqual(self.ask("Count").count, 1024)

    def test_answers_have_a_limit_and_large_ones_arrive(self):
        for key in (b"a", b"b", b"c"):
            self.ask("Set", key=key, value=b"v" * (1 << 20))
        self.assertEqual(len(self.ask("MultiGet", keys=[b"a", b"b", b"c"]).values), 3)
        self.wrong(CODE.RESOURCE_EXHAUSTED, "MULTI_LIMIT", "MultiGet", keys=[b"a"] * 4)

    def test_check_answers_for_each_key_and_for_all(self):
        self.ask("Set", key=b"a")
        answer = self.ask("Check", keys=[b"a", b"x"])
        self.assertEqual((answer.all_exist, list(answer.exist)), (False, [True, False]))
        self.assertTrue(self.ask("Check", keys=[b"a"]).all_exist)
        self.wrong(CODE.INVALID_ARGUMENT, "KEYS_LIMIT", "Check")

    def compare_set(self, key, expected, desired):
        """PyTorch's."""
        found = self.ask(
            "CompareAndSet", key=key, expected=expected, value=desired, missing_is_empty=True
        )
        return found.value if found.exists else expected

    def test_compare_set_follows_pytorch(self):
        self.assertEqual(self.compare_set(b"k0", b"wrong", b"new"), b"wrong")
        self.assertFalse(self.ask("Check", keys=[b"k0"]).all_exist)
        self.ask("Set", key=b"k0", value=b"value0")
        self.assertEqual(self.compare_set(b"k0", b"wrong", b"new"), b"value0")
        self.assertEqual(self.compare_set(b"k0", b"value0", b"new"), b"new")
        self.assertEqual(self.compare_set(b"k1", b"", b"new1"), b"new1")


class Queues(Keys):
    def push(self, key, value, **fields):
        return self.ask("QueuePush", key=key, value=value, **fields).length

    def pop(self, key, **fields):
        return self.ask("QueuePop", key=key, **fields).value

    def test_a_queue_is_first_in_first_out(self):
        self.assertEqual(self.ask("QueueLen", key=b"q").length, 0)
        self.assertEqual([self.push(b"q", b"%d" % i) for i in range(3)], [1, 2, 3])
        self.assertTrue(self.ask("Check", keys=[b"q"]).all_exist)
        self.ask("Wait", keys=[b"q"])
        self.assertEqual([self.pop(b"q") for _ in range(3)], [b"0", b"1", b"2"])
        self.assertFalse(self.ask("Check", keys=[b"q"]).all_exist)
        self.assertEqual(self.ask("QueueLen", key=b"q").length, 0)
        self.wrong(CODE.NOT_FOUND, "QUEUE_EMPTY", "QueuePop", key=b"q", at_once=True)

    def test_a_pop_waits_and_its_deadline_names_the_queue(self):
        waiting = self.begin("QueuePop", key=b"q", timeout_ms=LONG_MS)
        self.push(b"q", b"x")
        self.assertEqual(waiting.result(CALL_S).value, b"x")
        failure = self.wrong(
            CODE.DEADLINE_EXCEEDED, "TIMEOUT", "QueuePop", key=b"q\n", timeout_ms=100
        )
        self.assertIn('nothing came to queue "q\\x0a" in time', failure.text)
        self.assertEqual(self.push(b"q", b"y"), 1)

    def test_each_value_goes_to_one_of_many(self):
        waiting = [self.begin("QueuePop", key=b"q", timeout_ms=LONG_MS) for _ in range(50)]
        for i in range(50):
            self.push(b"q", b"%02d" % i)
        got = [one.result(CALL_S).value for one in waiting]
        self.assertEqual(sorted(got), [b"%02d" % i for i in range(50)])

    def test_a_caller_that_goes_away_takes_nothing(self):
        gone = self.begin("QueuePop", key=b"q", timeout_ms=LONG_MS)
        self.ask("Set", key=b"k")  # the call has arrived: same connection, later stream
        gone.cancel()
        stays = self.begin("QueuePop", key=b"q", timeout_ms=LONG_MS)
        self.push(b"q", b"x")
        self.assertEqual(stays.result(CALL_S).value, b"x")

    def test_a_token_makes_a_call_count_once(self):
        self.assertEqual(self.push(b"q", b"a", token=1), 1)
        self.assertEqual(self.push(b"q", b"a", token=1), 1)
        self.push(b"q", b"b")
        self.assertEqual(self.pop(b"q", token=2), b"a")
        self.assertEqual(self.pop(b"q", token=2), b"a")
        self.assertEqual(self.pop(b"q", token=3), b"b")
        for _ in range(2):
            self.assertEqual(self.ask("Add", key=b"n", delta=5, token=4).value, 5)
            self.assertEqual(self.ask("Append", key=b"t", value=b"x", token=4).size, 1)
        first = self.begin("QueuePop", key=b"q", timeout_ms=LONG_MS, token=9)
        self.ask("QueueLen", key=b"q")
        second = self.begin("QueuePop", key=b"q", timeout_ms=LONG_MS, token=9)
        self.failed(CODE.ABORTED, "SUPERSEDED", first)
        self.push(b"q", b"c")
        self.assertEqual(second.result(CALL_S).value, b"c")

    def test_take_gets_and_deletes(self):
        waiting = self.begin("Take", key=b"k", timeout_ms=LONG_MS)
        self.ask("Set", key=b"k", value=b"v")
        self.assertEqual(waiting.result(CALL_S).value, b"v")
        self.wrong(CODE.NOT_FOUND, "NO_KEY", "Take", key=b"k", at_once=True)
        failure = self.wrong(CODE.DEADLINE_EXCEEDED, "TIMEOUT", "Take", key=b"k", timeout_ms=100)
        self.assertIn('key "k" did not come in time', failure.text)

    # MegEngine's control plane, as compositions.

    def test_set_is_grad_waits_until_it_was_checked(self):
        def set_is_grad():
            self.push(b"0->1", b"true")
            self.pop(b"0->1/checked", timeout_ms=LONG_MS)
            passed.set()

        passed = threading.Event()
        setting = threading.Thread(target=set_is_grad)
        setting.start()
        self.ask("Wait", keys=[b"0->1"], timeout_ms=LONG_MS)
        self.assertFalse(passed.is_set())
        value = self.pop(b"0->1")
        self.push(b"0->1/checked", b"")
        setting.join(CALL_S)
        self.assertEqual(value, b"true")
        self.assertTrue(passed.is_set())
        self.assertEqual(self.ask("Count").count, 0)

    def bcast_val(self, key, call, size, value=None):
        """The k-th call on a key meets the k-th calls of the others; the last one cleans up."""
        key = b"%s/%d" % (key, call)
        if value is not None:
            self.ask("Set", key=key, value=value)
        found = self.ask("MultiGet", keys=[key], timeout_ms=LONG_MS).values[0]
        if self.ask("Add", key=key + b"/read", delta=1).value == size:
            self.ask("Delete", key=key)
            self.ask("Delete", key=key + b"/read")
        return found

    def test_bcast_val_matches_calls_by_their_order(self):
        got = {}

        def receive(rank):
            got[rank] = [self.bcast_val(b"k", call, 3) for call in range(3)]

        threads = [threading.Thread(target=receive, args=(rank,)) for rank in (1, 2)]
        for thread in threads:
            thread.start()
        for call in range(3):
            self.bcast_val(b"k", call, 3, b"value %d" % call)
        for thread in threads:
            thread.join(CALL_S)
        self.assertEqual(got[1], [b"value 0", b"value 1", b"value 2"])
        self.assertEqual(got[1], got[2])
        self.assertEqual(self.ask("Count").count, 0)


class Rendezvous(Case):
    def setUp(self):
        super().setUp()
        self.stub = rendezvous_grpc.RendezvousServiceStub(self.services.channel)

    def meet(self, count, name=b"", **fields):
        request = rendezvous.RendezvousServiceMeetRequest(
            job=self.job, key=b"k", count=count, name=name, timeout_ms=LONG_MS
        )
        for field, value in fields.items():
            setattr(request, field, value)
        return self.stub.Meet.future(request, timeout=CALL_S)

    def test_callers_with_ranks_keep_them(self):
        calls = [self.meet(3, group_rank=rank, is_root=rank == 0) for rank in (2, 0, 1)]
        answers = [call.result(CALL_S) for call in calls]
        self.assertEqual([answer.group_rank for answer in answers], [2, 0, 1])
        self.assertEqual({answer.root_rank for answer in answers}, {0})
        self.assertEqual(len({answer.group_hash for answer in answers}), 1)

    def test_callers_without_ranks_are_numbered_by_name(self):
        calls = [self.meet(3, name=name) for name in (b"c", b"a", b"b")]
        answers = [call.result(CALL_S) for call in calls]
        self.assertEqual([answer.group_rank for answer in answers], [2, 0, 1])
        self.assertIsNone(answers[0].WhichOneof("opt_root_rank"))

    def test_different_counts_are_told_to_all(self):
        first = self.meet(2)
        self.services.store.Count(store.StoreServiceCountRequest(), timeout=CALL_S)
        self.failed(CODE.INVALID_ARGUMENT, "GROUP_SIZE", self.meet(3))
        self.failed(CODE.INVALID_ARGUMENT, "GROUP_SIZE", first)
        self.meet(1).result(CALL_S)

    def test_who_waits_too_long_hears_who_is_missing(self):
        failure = self.failed(
            CODE.DEADLINE_EXCEEDED, "TIMEOUT", self.meet(3, name=b"me", timeout_ms=100)
        )
        self.assertIn('2 of 3 callers did not come to "k" in time; here: "me"', failure.text)

    def test_a_caller_that_comes_again_counts_once(self):
        first = self.meet(2, token=5)
        self.services.store.Count(store.StoreServiceCountRequest(), timeout=CALL_S)
        second = self.meet(2, token=5)
        self.failed(CODE.ABORTED, "SUPERSEDED", first)
        self.assertFalse(second.done())
        self.meet(2).result(CALL_S)
        rank = second.result(CALL_S).group_rank
        self.assertEqual(self.meet(2, token=5).result(CALL_S).group_rank, rank)


if __name__ == "__main__":
    support.main()
