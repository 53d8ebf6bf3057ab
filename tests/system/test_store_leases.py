"""Goal: the keys of a client that is killed go, in time and with an event; a restart of the coordinator
gives every lease its whole time. Method: the command `tutti` as the client, and stubs, against real
coordinators with a store in memory and one on a disk.
"""

import queue
import signal
import tempfile
import threading

import cli_case
import support
import grpc
from cli_case import Case

support.build_stubs()

from tutti.v1 import store_service_pb2 as pb  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402

SHORT = ("--lease-min", "100ms")
CODE = grpc.StatusCode


class LeaseCase(Case):
    coordinator = None

    def begin(self, *options):
        """A coordinator, instead of the one that there was."""
        if self.coordinator is not None:
            self.coordinator.stop()
        self.options = (*SHORT, *options)
        self.coordinator = support.Program("tutti-coordinator", *self.options)
        self.addCleanup(lambda: self.coordinator.stop())
        self.connect()

    def connect(self):
        channel = self.coordinator.channel()
        self.addCleanup(channel.close)
        self.store = store_grpc.StoreServiceStub(channel)

    def restart(self):
        self.coordinator.kill()
        self.coordinator = support.Program(
            "tutti-coordinator", *self.options, listen=self.coordinator.address
        )
        self.connect()

    def watch(self):
        """Changes of all keys, from now on, as a queue of (kind, key)."""
        changes = queue.Queue()
        stream = self.store.Watch(pb.StoreServiceWatchRequest())
        self.assertEqual(next(stream).kind, pb.WATCH_KIND_BEGUN)

        def read():
            try:
                for change in stream:
                    changes.put((change.kind, change.entry.key))
            except grpc.RpcError as error:
                changes.put(error)

        threading.Thread(target=read, daemon=True).start()
        return changes

    def grant(self, ttl_ms):
        request = pb.StoreServiceGrantRequest(ttl_ms=ttl_ms)
        return self.store.Grant(request, timeout=support.CALL_S).lease.lease

    def set(self, key, lease):
        request = pb.StoreServiceSetRequest(key=key, value=b"1", lease=lease)
        self.store.Set(request, timeout=support.CALL_S)

    def leases(self):
        request = pb.StoreServiceLeasesRequest()
        return self.store.Leases(request, timeout=support.CALL_S).leases

    def hold(self, *words):
        """A client that holds a key, as a process."""
        holder = cli_case.start("store", "set", *words, TUTTI_COORDINATOR=self.coordinator.address)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        return holder

    def command(self, *words):
        return self.well("store", *words, TUTTI_COORDINATOR=self.coordinator.address).text

    def assert_killed_client_goes(self):
        changes = self.watch()
        holder = self.hold("alive", "yes", "--lease", "500ms")
        other = self.hold("other", "yes", "--lease", "1m")
        seen = {changes.get(timeout=support.CALL_S) for _ in range(2)}
        self.assertEqual(seen, {(pb.WATCH_KIND_SET, b"alive"), (pb.WATCH_KIND_SET, b"other")})
        self.assertIsNone(holder.poll())
        holder.send_signal(signal.SIGKILL)
        gone = (pb.WATCH_KIND_DELETED, b"alive")
        self.assertEqual(changes.get(timeout=support.CALL_S), gone)
        other.send_signal(signal.SIGTERM)  # it revokes, long before its minute
        gone = (pb.WATCH_KIND_DELETED, b"other")
        self.assertEqual(changes.get(timeout=support.CALL_S), gone)
        self.assertEqual(other.wait(support.CALL_S), 0)
        self.assertEqual(len(self.leases()), 0)


class Leases(LeaseCase):
    def test_the_keys_of_a_killed_client_go(self):
        self.begin()
        self.assert_killed_client_goes()

    def test_the_same_with_a_store_on_a_disk(self):
        with tempfile.TemporaryDirectory(prefix="tutti-store-") as folder:
            for sync in ("none", "full"):
                self.begin("--store", "lmdb:%s/%s" % (folder, sync), "--store-sync", sync)
                self.assert_killed_client_goes()

    def test_a_restart_gives_leases_their_whole_time(self):
        with tempfile.TemporaryDirectory(prefix="tutti-store-") as folder:
            self.begin("--store", "lmdb:" + folder)
            short, long = self.grant(700), self.grant(600000)
            self.set(b"short", short)
            self.set(b"long", long)
            self.restart()
            changes = self.watch()
            self.assertEqual({one.lease: one.key_count for one in self.leases()}, {short: 1, long: 1})
            for one in self.leases():
                self.assertLessEqual(one.left_ms, one.ttl_ms)
                if one.lease == long:  # nothing of it had gone: it began with this process
                    self.assertGreater(one.left_ms, one.ttl_ms - 1000 * support.CALL_S)
            gone = (pb.WATCH_KIND_DELETED, b"short")
            self.assertEqual(changes.get(timeout=support.CALL_S), gone)
            self.assertEqual([one.lease for one in self.leases()], [long])
            self.restart()
            self.assertEqual([one.key_count for one in self.leases()], [1])

    def test_a_holder_outlives_a_restart(self):
        with tempfile.TemporaryDirectory(prefix="tutti-store-") as folder:
            self.begin("--store", "lmdb:" + folder)
            holder = self.hold("alive", "yes", "--lease", "10s")
            self.command("wait", "alive")
            self.restart()
            self.command("get", "alive")
            holder.send_signal(signal.SIGINT)
            out, err = holder.communicate(timeout=support.CALL_S)
            self.assertEqual((holder.returncode, err), (0, b""))
            self.fails(("store", "get", "alive"), "no key", TUTTI_COORDINATOR=self.coordinator.address)

    def test_commands_and_their_errors(self):
        self.begin()
        lease = self.command("lease", "grant", "1m").strip()
        self.command("set", "a", "1", "--lease-id", lease)
        self.assertIn(lease, self.command("lease", "list"))
        self.command("lease", "keep", lease)
        self.command("lease", "keep", lease, "--hold", "-t", "100ms")  # and then it is revoked
        where = {"TUTTI_COORDINATOR": self.coordinator.address}
        self.fails(("store", "get", "a"), "no key", **where)
        self.fails(("store", "lease", "keep", lease), "there is no lease", lease, **where)
        self.fails(("store", "lease", "revoke", lease), "no such lease", **where)
        self.fails(("store", "lease", "grant", "1ms"), "--lease-min", **where)
        self.fails(("store", "lease", "revoke", "7"), "16 hex digits", code=2, **where)
        self.fails(("store", "set", "a", "1", "--lease", "x"), "write a time", code=2, **where)
        self.fails(("store", "set", "a", "1", "--lease-id", "0" * 15 + "9"), "no lease", **where)
        for field, reason in (({"ttl_ms": 1}, "LEASE_TTL"), ({"ttl_ms": 2**32 - 1}, "LEASE_TTL")):
            with self.assertRaises(grpc.RpcError) as caught:
                self.store.Grant(pb.StoreServiceGrantRequest(**field), timeout=support.CALL_S)
            self.assertEqual(caught.exception.code(), CODE.INVALID_ARGUMENT)
            self.assertIn("--lease-max", caught.exception.details())


if __name__ == "__main__":
    support.main()
