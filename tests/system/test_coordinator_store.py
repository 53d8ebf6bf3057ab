"""Goal: MetadataService and StoreService of the real coordinator keep every promise.
Method: the program on a free port, driven by Python stubs of stock protoc.
"""

import os

import support
import grpc
from coordinator_case import CALL_S, CODE, Case, Services

from tutti.v1 import coordinator_service_pb2 as pb
from tutti.v1 import metadata_service_pb2 as meta
from tutti.v1 import store_service_pb2 as store
from tutti.v1 import store_service_pb2_grpc as store_grpc


class Metadata(Case):
    def broadcast(self, agent, root, value=b"", **fields):
        request = meta.MetadataServiceBroadcastRequest(
            member=agent.member, root=root, payload=value, **fields
        )
        return self.services.metadata.Broadcast.future(request, timeout=CALL_S)

    def gather(self, agent, value, timeout=CALL_S, **fields):
        request = meta.MetadataServiceAllGatherRequest(
            member=agent.member, payload=value, **fields
        )
        return agent.services.metadata.AllGather.future(request, timeout=timeout)

    def test_a_broadcast_reaches_all(self):
        agents = self.world(3)
        futures = [self.broadcast(agents[i], 1, b"value" if i == 1 else b"") for i in (0, 1, 2)]
        self.assertEqual({future.result(CALL_S).payload for future in futures}, {b"value"})

    def test_a_gather_collects_by_group_rank(self):
        agents = self.world(3)
        self.services.coordinator.CreateGroup(
            pb.CreateGroupRequest(member=agents[0].member, name="g", ranks=[2, 0]), timeout=CALL_S
        )
        for round_number in range(3):
            futures = [
                self.gather(agents[i], b"%d%d" % (i, round_number), group="g", key="k")
                for i in (0, 2)
            ]
            for future in futures:
                self.assertEqual(
                    list(future.result(CALL_S).values), [b"2%d" % round_number, b"0%d" % round_number]
                )

    def test_values_of_every_size_arrive(self):
        agents = self.world(2)
        for size in (0, 1, 1000, 1 << 20):
            value = os.urandom(size)
            futures = [self.gather(agent, value) for agent in agents]
            for future in futures:
                self.assertEqual(list(future.result(CALL_S).values), [value, value])
        too_large = self.gather(agents[0], b"x" * ((1 << 20) + 1))
        self.failed(CODE.INVALID_ARGUMENT, "VALUE_LIMIT", too_large)

    def test_a_timeout_names_the_missing_ranks(self):
        agents = self.world(4)
        futures = [self.gather(agents[i], b"x", timeout_ms=300, key="shape") for i in (0, 2)]
        for future in futures:
            failure = self.failed(CODE.DEADLINE_EXCEEDED, "MISSING_RANKS", future)
            self.assertIn('key "shape"', failure.text)
            self.assertIn("missing ranks 1, 3", failure.text)
            self.assertEqual(failure.metadata["group"], "world")
            self.assertEqual(failure.metadata["rank"], "1")
        late = self.gather(agents[1], b"x", key="shape")
        self.failed(CODE.DEADLINE_EXCEEDED, "MISSING_RANKS", late)

    def test_the_words_come_before_the_clients_own_deadline(self):
        agents = self.world(2)
        future = self.gather(agents[0], b"x", timeout=1)
        failure = self.failed(CODE.DEADLINE_EXCEEDED, "MISSING_RANKS", future)
        self.assertIn("missing rank 1", failure.text)

    def test_mismatches_are_refused_on_all(self):
        agents = self.world(3)
        first = self.broadcast(agents[0], 2)
        second = self.broadcast(agents[1], 0)  # one of the two comes first
        self.failed(CODE.FAILED_PRECONDITION, "ROOT_MISMATCH", first)
        self.failed(CODE.FAILED_PRECONDITION, "ROOT_MISMATCH", second)
        third = self.broadcast(agents[2], 2, b"x")
        self.failed(CODE.FAILED_PRECONDITION, "ROOT_MISMATCH", third)
        first = self.gather(agents[0], b"x", key="other")
        second = self.broadcast(agents[1], 0, key="other")
        self.failed(CODE.FAILED_PRECONDITION, "METHOD_MISMATCH", first)
        self.failed(CODE.FAILED_PRECONDITION, "METHOD_MISMATCH", second)

    def test_a_lost_rank_fails_who_needs_it(self):
        agents = self.world(3, sessions=True)
        futures = [self.gather(agents[i], b"x") for i in (0, 1)]
        agents[2].die()
        for future in futures:
            failure = self.failed(CODE.UNAVAILABLE, "RANK_LOST", future)
            self.assertIn("rank 2", failure.text)
            self.assertEqual(failure.metadata["rank"], "2")

    def meet(self, agents):
        """A round through the server on each agent's connection: what was sent before has come."""
        futures = [self.gather(agent, b"", key="round") for agent in agents]
        for future in futures:
            self.assertEqual(len(future.result(CALL_S).values), len(agents))

    def test_a_cancelled_call_has_not_called(self):
        agents = self.world(2)
        gone = self.gather(agents[0], b"gone")
        self.meet(agents)
        gone.cancel()
        self.meet(agents)
        waiting = self.gather(agents[1], b"b")
        again = self.gather(agents[0], b"a")
        self.assertEqual(list(waiting.result(CALL_S).values), [b"a", b"b"])
        self.assertEqual(list(again.result(CALL_S).values), [b"a", b"b"])

    def test_a_token_finds_its_answer_again(self):
        agents = self.world(2)
        first = self.gather(agents[0], b"a", token=77)
        self.gather(agents[1], b"b").result(CALL_S)
        self.assertEqual(list(first.result(CALL_S).values), [b"a", b"b"])
        again = self.gather(agents[0], b"ignored", token=77)
        self.assertEqual(list(again.result(CALL_S).values), [b"a", b"b"])

    def test_bad_requests_are_refused(self):
        agents = self.world(2)
        bad = CODE.INVALID_ARGUMENT
        self.failed(bad, "BAD_ROOT", self.broadcast(agents[0], 2))
        self.failed(bad, "BAD_KEY", self.broadcast(agents[0], 0, key="k" * 128))
        self.failed(bad, "BAD_NAME", self.broadcast(agents[0], 0, group="a b"))
        self.failed(CODE.NOT_FOUND, "NO_GROUP", self.broadcast(agents[0], 0, group="none"))
        nobody = meta.MetadataServiceBroadcastRequest()
        self.refused(bad, "NO_MEMBER", self.services.metadata.Broadcast, nobody)
        agents[0].incarnation = 1
        self.failed(CODE.FAILED_PRECONDITION, "STALE_INCARNATION", self.broadcast(agents[0], 0))


class Store(Case):
    def setUp(self):
        super().setUp()
        self.store = self.services.store

    def set(self, key, value=b"", job=None):
        request = store.StoreServiceSetRequest(job=job or self.job, key=key, value=value)
        return self.store.Set(request, timeout=CALL_S).version

    def get(self, key):
        request = store.StoreServiceGetRequest(job=self.job, key=key)
        return self.store.Get(request, timeout=CALL_S)

    def test_values_are_read_back(self):
        for value in (b"", b"x", bytes(range(256)), b"v" * (1 << 20)):
            version = self.set(b"k\x00\xff", value)
            got = self.get(b"k\x00\xff")
            self.assertEqual((got.value, got.version), (value, version))

    def test_bad_keys_and_values_are_refused(self):
        bad = CODE.INVALID_ARGUMENT
        request = store.StoreServiceSetRequest
        self.refused(bad, "BAD_KEY", self.store.Set, request(job=self.job))
        self.refused(bad, "BAD_KEY", self.store.Set, request(job=self.job, key=b"k" * 1025))
        large = request(job=self.job, key=b"k", value=b"v" * ((1 << 20) + 1))
        self.refused(bad, "VALUE_LIMIT", self.store.Set, large)
        self.refused(bad, "BAD_NAME", self.store.Set, request(job="a b", key=b"k"))
        missing = store.StoreServiceGetRequest(job=self.job, key=b"none")
        failure = self.refused(CODE.NOT_FOUND, "NO_KEY", self.store.Get, missing)
        self.assertIn('"none"', failure.text)

    def test_compare_and_set_swaps_what_is_expected(self):
        def swap(value, **fields):
            return self.store.CompareAndSet(
                store.StoreServiceCompareAndSetRequest(
                    job=self.job, key=b"k", value=value, **fields
                ),
                timeout=CALL_S,
            )

        self.assertFalse(swap(b"1", expected=b"0").exists)
        first = swap(b"1")
        self.assertEqual((first.swapped, first.exists, first.value), (True, True, b"1"))
        second = swap(b"2")
        self.assertEqual((second.swapped, second.value), (False, b"1"))
        self.assertEqual(second.version, first.version)
        third = swap(b"2", expected=b"1")
        self.assertEqual((third.swapped, third.value), (True, b"2"))
        self.assertGreater(third.version, first.version)

    def test_counters_count(self):
        def add(delta, key=b"n"):
            return self.store.Add(
                store.StoreServiceAddRequest(job=self.job, key=key, delta=delta), timeout=CALL_S
            )

        self.assertEqual(add(5).value, 5)
        self.assertEqual(add(-7).value, -2)
        self.assertEqual(self.get(b"n").value, b"-2")
        self.set(b"n", b"%d" % (2**63 - 1))
        request = store.StoreServiceAddRequest(job=self.job, key=b"n", delta=1)
        self.refused(CODE.OUT_OF_RANGE, "OVERFLOW", self.store.Add, request)
        self.set(b"n", b"seven")
        self.refused(CODE.FAILED_PRECONDITION, "NOT_A_NUMBER", self.store.Add, request)

    def test_adding_from_many_clients_loses_nothing(self):
        futures = []
        channels = [self.program.channel() for _ in range(4)]
        for channel in channels:
            stub = store_grpc.StoreServiceStub(channel)
            request = store.StoreServiceAddRequest(job=self.job, key=b"n", delta=1)
            futures += [stub.Add.future(request, timeout=CALL_S) for _ in range(50)]
        values = sorted(future.result(CALL_S).value for future in futures)
        self.assertEqual(values, list(range(1, 201)))
        for channel in channels:
            channel.close()

    def test_deleting_says_whether_there_was_something(self):
        def delete():
            request = store.StoreServiceDeleteRequest(job=self.job, key=b"k")
            return self.store.Delete(request, timeout=CALL_S).existed

        self.set(b"k")
        self.assertTrue(delete())
        self.assertFalse(delete())

    def test_keys_are_listed_and_counted(self):
        for i in range(25):
            self.set(b"a/%02d" % i, b"%d" % i)
        self.set(b"b")
        keys = []
        token = b""
        while True:
            page = self.store.List(
                store.StoreServiceListRequest(
                    job=self.job, prefix=b"a/", page_size=10, page_token=token
                ),
                timeout=CALL_S,
            )
            keys += [(entry.key, entry.value) for entry in page.entries]
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(keys, [(b"a/%02d" % i, b"%d" % i) for i in range(25)])
        request = store.StoreServiceCountRequest(job=self.job, prefix=b"a/")
        self.assertEqual(self.store.Count(request, timeout=CALL_S).count, 25)
        request = store.StoreServiceCountRequest(job=self.job)
        self.assertEqual(self.store.Count(request, timeout=CALL_S).count, 26)
        page = self.store.List(
            store.StoreServiceListRequest(job=self.job, keys_only=True), timeout=CALL_S
        )
        self.assertEqual({entry.value for entry in page.entries}, {b""})
        request = store.StoreServiceListRequest(job=self.job, page_size=1001)
        self.refused(CODE.INVALID_ARGUMENT, "PAGE_LIMIT", self.store.List, request)

    def wait(self, *keys, timeout=CALL_S, **fields):
        request = store.StoreServiceWaitRequest(job=self.job, keys=keys, **fields)
        return self.store.Wait.future(request, timeout=timeout)

    def test_a_wait_is_over_when_all_keys_are_there(self):
        waiting = self.wait(b"a", b"b")
        self.set(b"a")
        self.set(b"a", job="elsewhere")
        self.assertFalse(waiting.done())
        version = self.set(b"b")
        self.assertGreaterEqual(waiting.result(CALL_S).version, version)
        self.assertGreaterEqual(self.wait(b"a").result(CALL_S).version, version)

    def test_a_wait_that_times_out_lists_the_missing(self):
        self.set(b"here")
        keys = [b"here"] + [b"k%02d" % i for i in range(20)]
        failure = self.failed(
            CODE.DEADLINE_EXCEEDED, "TIMEOUT", self.wait(*keys, timeout_ms=100)
        )
        self.assertIn('20 of 21 keys did not come in time: "k00", "k01"', failure.text)
        self.assertIn('"k15", and 4 more', failure.text)
        failure = self.failed(CODE.DEADLINE_EXCEEDED, "TIMEOUT", self.wait(b"x\n\xff", timeout=0.5))
        self.assertIn('"x\\x0a\\xff"', failure.text)

    def test_bad_waits_are_refused(self):
        bad = CODE.INVALID_ARGUMENT
        self.failed(bad, "WAIT_LIMIT", self.wait())
        self.failed(bad, "WAIT_LIMIT", self.wait(*[b"k"] * 1025))
        self.failed(bad, "BAD_KEY", self.wait(b"a", b""))

    def watch(self, prefix=b"", services=None):
        request = store.StoreServiceWatchRequest(job=self.job, prefix=prefix)
        return (services or self.services).store.Watch(request, timeout=CALL_S)

    def test_a_watch_tells_every_change(self):
        before = self.set(b"a/1", b"before")
        watching = self.watch(b"a/")
        begun = next(watching)
        self.assertEqual(begun.kind, store.WATCH_KIND_BEGUN)
        self.assertGreaterEqual(begun.entry.version, before)
        version = self.set(b"a/1", b"x")
        self.set(b"b/1", b"no")
        self.set(b"a/1", b"no", job="elsewhere")
        self.store.Delete(
            store.StoreServiceDeleteRequest(job=self.job, key=b"a/1"), timeout=CALL_S
        )
        change = next(watching)
        self.assertEqual(change.kind, store.WATCH_KIND_SET)
        self.assertEqual((change.entry.key, change.entry.value), (b"a/1", b"x"))
        self.assertEqual(change.entry.version, version)
        change = next(watching)
        self.assertEqual(change.kind, store.WATCH_KIND_DELETED)
        self.assertEqual(change.entry.key, b"a/1")
        watching.cancel()

    def test_a_watch_loses_nothing_of_many_changes(self):
        watching = self.watch()
        next(watching)
        for i in range(500):
            self.set(b"k", b"%d" % i)
        got = [next(watching).entry.value for _ in range(500)]
        self.assertEqual(got, [b"%d" % i for i in range(500)])
        watching.cancel()

    def test_a_watcher_that_does_not_read_is_ended(self):
        # A small window and large values: its messages soon do not leave.
        channel = self.program.channel(("grpc.http2.bdp_probe", 0))
        watching = self.watch(services=Services(channel))
        next(watching)
        value = b"v" * (1 << 20)
        for _ in range(40):
            self.set(b"k", value)
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in watching:
                pass
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (CODE.RESOURCE_EXHAUSTED, "SLOW_WATCHER"))
        channel.close()


if __name__ == "__main__":
    support.main()
