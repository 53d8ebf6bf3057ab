#!/usr/bin/python3
"""Goal: a backup that is taken while a coordinator runs is of one moment and comes back as it was; a store moves to
etcd and back with its jobs; what could spoil a store is refused in words.

Method: the command `tutti` against real coordinators on folders, and on Debian's etcd; agents that go on meanwhile.
"""

import json
import os
import signal
import tempfile
import threading
import time
import unittest

import cli_case
import etcd_case
import grpc
import support
import tokens
from cli_case import Case

support.build_stubs()

from tutti.v1 import coordinator_service_pb2 as coordinator  # noqa: E402
from tutti.v1 import coordinator_service_pb2_grpc as coordinator_grpc  # noqa: E402
from tutti.v1 import store_service_pb2 as store  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402

MIB = b"x" * (1 << 20)


class BackupCase(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-backup-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def lmdb(self, name):
        return "lmdb:" + self.path(name)

    def serve(self, where, *options, **more):
        """A coordinator on a store; it ends with the test."""
        program = support.Program("tutti-coordinator", "--store", where, *options, **more)

        def end():
            if program.process.poll() is None:
                program.stop()

        self.addCleanup(end)
        return program

    def keys(self, program):
        """All that clients have stored in the job "default", as the command shows it."""
        rows = self.json("store", "list", TUTTI_COORDINATOR=program.address)["keys"]
        return {row["key"]: row["value"] for row in rows}

    def stub(self, program):
        channel = program.channel()
        self.addCleanup(channel.close)
        return store_grpc.StoreServiceStub(channel), coordinator_grpc.CoordinatorServiceStub(channel)


class Writer:
    """Sets two keys to the same number, in one change, again and again; what lies between them takes long to copy."""

    def __init__(self, stub):
        self.stub, self.number, self.stopping = stub, 0, False
        for place in range(8):
            stub.Set(store.StoreServiceSetRequest(key=b"large/%d" % place, value=MIB), timeout=support.CALL_S)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopping:
            value = b"%d" % (self.number + 1)
            entries = [store.Entry(key=b"a", value=value), store.Entry(key=b"z", value=value)]
            self.stub.MultiSet(store.StoreServiceMultiSetRequest(entries=entries), timeout=support.CALL_S)
            self.number += 1

    def end(self):
        self.stopping = True
        self.thread.join()


class Backup(BackupCase):
    def test_a_backup_is_of_one_moment_and_has_what_was_answered(self):
        program = self.serve(self.lmdb("a"), "--store-sync", "order")
        writer = Writer(self.stub(program)[0])
        self.addCleanup(writer.end)
        for turn in range(3):
            before = writer.number
            said = self.json("backup", self.path("b%d" % turn), TUTTI_COORDINATOR=program.address)
            after = writer.number + 1
            self.assertEqual(said["file_bytes"], os.path.getsize(self.path("b%d" % turn)))
            self.assertEqual(os.stat(self.path("b%d" % turn)).st_mode & 0o777, 0o600)
            done = self.json("restore", self.path("b%d" % turn), self.lmdb("r%d" % turn))
            self.assertEqual((done["keys"], done["bytes"], done["version"]), (said["keys"], said["bytes"], said["version"]))
            other = self.serve(self.lmdb("r%d" % turn))
            found = self.keys(other)
            other.stop()
            self.assertEqual(found["a"], found["z"])
            self.assertLessEqual(before, int(found["a"]))
            self.assertLessEqual(int(found["a"]), after)
            self.assertEqual(len(found), 10)

    def test_a_backup_goes_through_a_pipe(self):
        program = self.serve("memory")  # whatever the store is
        self.well("store", "set", "k", "v", TUTTI_COORDINATOR=program.address)
        piped = self.well("backup", "-", TUTTI_COORDINATOR=program.address).out
        self.well("restore", "-", self.lmdb("a"), stdin=piped)
        self.assertEqual(self.keys(self.serve(self.lmdb("a"))), {"k": "v"})

    def test_what_cannot_be_restored_is_refused_and_leaves_nothing(self):
        program = self.serve(self.lmdb("a"))
        self.well("store", "set", "k", "v", TUTTI_COORDINATOR=program.address)
        self.well("backup", self.path("b"), TUTTI_COORDINATOR=program.address)
        whole = open(self.path("b"), "rb").read()
        self.fails(("restore", self.path("b"), self.lmdb("a")), "another process has the store")
        self.fails(("restore", self.path("none"), self.lmdb("n")), "could not open the backup", "No such file")
        self.fails(("restore", self.path("b"), "memory"), "need lmdb:FOLDER or etcd:", code=2)
        self.fails(("restore", support.__file__, self.lmdb("n")), "is not a backup", code=2)
        done = self.fails(("restore", "--json", "-", self.lmdb("n")), "is cut: it ends at byte 60", stdin=whole[:60])
        self.assertEqual((done.json["error"]["code"], done.json["error"]["reason"]), ("DATA_LOSS", "BACKUP_FORMAT"))
        spoilt = whole[:70] + bytes([whole[70] ^ 1]) + whole[71:]
        self.fails(("restore", "-", self.lmdb("n")), "is damaged", stdin=spoilt)
        self.well("restore", self.path("b"), self.lmdb("n"))
        done = self.fails(("restore", "--json", self.path("b"), self.lmdb("n")), "the store holds")
        self.assertEqual(done.json["error"]["reason"], "STORE_NOT_EMPTY")
        program.stop()
        self.fails(("restore", self.path("b"), self.lmdb("a")), "the store holds")
        self.fails(("restore", self.path("b"), self.lmdb("x"), "--", "--no-such-option"), "--no-such-option", code=2)

    def test_the_file_is_there_as_a_whole_or_not_at_all(self):
        program = self.serve("memory")
        self.fails(("backup", self.path("no/b")), "could not write", TUTTI_COORDINATOR=program.address)
        self.well("backup", self.path("b"), TUTTI_COORDINATOR=program.address)
        before = open(self.path("b"), "rb").read()
        program.stop()
        self.fails(("backup", self.path("b"), "-t", "1s"), TUTTI_COORDINATOR=program.address)
        self.assertEqual(open(self.path("b"), "rb").read(), before)
        self.assertEqual(os.listdir(self.folder), ["b"])

    def test_only_an_admin_of_all_jobs_may(self):
        secret = self.path("secret")
        with open(secret, "wb") as file:
            file.write(tokens.SECRET)
        program = self.serve("memory", "--token-keys", secret)
        for role, job, allowed in (("client", None, False), ("agent", None, False), ("admin", "j", False), ("admin", None, True)):
            shown = self.path("%s-%s" % (role, job))
            with open(shown, "w") as file:
                file.write(tokens.hs256(tokens.claims(role, job)))
            words = ("backup", self.path("b"), "--token-file", shown)
            if allowed:
                self.well(*words, TUTTI_COORDINATOR=program.address)
            else:
                done = self.fails(words + ("--json",), TUTTI_COORDINATOR=program.address)
                self.assertEqual(done.json["error"]["code"], "PERMISSION_DENIED", role)

    def test_slow_readers_are_few_and_keep_nobody_waiting(self):
        program = self.serve("memory")
        keys, jobs = self.stub(program)
        for place in range(16):
            keys.Set(store.StoreServiceSetRequest(key=b"large/%d" % place, value=MIB), timeout=support.CALL_S)
        slow = [jobs.Backup(coordinator.BackupRequest()) for _ in range(4)]
        for stream in slow:
            next(stream)
        with self.assertRaises(grpc.RpcError) as failed:
            next(jobs.Backup(coordinator.BackupRequest(), timeout=support.CALL_S))
        self.assertEqual(support.Failure(failed.exception).reason, "BACKUP_LIMIT")
        for place in range(16):  # all of it is kept for the four, and nobody waits
            keys.Set(store.StoreServiceSetRequest(key=b"large/%d" % place, value=b"new"), timeout=support.CALL_S)
        pieces = b"".join(one.piece for one in slow[0])
        self.assertEqual(pieces.count(b"new"), 0)
        for stream in slow[1:]:
            stream.cancel()
        until = time.monotonic() + support.CALL_S
        while "ended" not in self.try_backup(jobs):
            self.assertLess(time.monotonic(), until)
        waiting = jobs.Backup(coordinator.BackupRequest())
        next(waiting)
        self.assertEqual(program.stop(), 0)  # a reader that has stopped delays no end

    def try_backup(self, jobs):
        try:
            for _ in jobs.Backup(coordinator.BackupRequest(), timeout=support.CALL_S):
                pass
        except grpc.RpcError as error:
            return support.Failure(error).reason
        return "ended"


@unittest.skipUnless(etcd_case.is_there(), "no etcd: apt-get install etcd-server etcd-client")
class Move(BackupCase):
    def etcd(self):
        found = etcd_case.Etcd(self.folder)
        self.addCleanup(found.close)
        return found, "etcd:%s/moved" % found.endpoints()

    def agents(self, address, count=2):
        """A world, with options that let it wait for a coordinator that is away."""
        found = [support.Program("tutti-agent", "--coordinator", address, "--world-size", str(count), "--rank", str(rank),
                                 "--memory-limit", "64MiB") for rank in range(count)]
        for program in found:
            self.addCleanup(program.kill)
        return found

    def test_a_job_moves_to_etcd_and_back(self):
        etcd, there = self.etcd()
        program = self.serve(self.lmdb("a"))
        address, listen = program.address, program.address
        agents = self.agents(address)
        variables = {"TUTTI_AGENT": agents[0].address}
        self.well("group", "create", "pair", "0,1", **variables)
        self.well("store", "set", "k", "v", **variables)
        self.well("store", "push", "q", "first", **variables)
        for place in range(40):  # more than one transaction of etcd takes
            self.well("store", "set", "many/%d" % place, "-", stdin=b"%d" % place * 40000, **variables)
        self.assertEqual(program.stop(), 0)
        done = self.json("store", "move", self.lmdb("a"), there)
        self.assertGreater(done["keys"], 42)
        self.fails(("store", "move", self.lmdb("a"), there), "the store holds")
        program = self.serve(there, listen=listen)
        program.wait_for_log("this coordinator leads")
        self.check(variables, first=True)
        self.fails(("store", "move", there, self.lmdb("b")), "leads on " + there)
        self.fails(("store", "move", self.lmdb("a"), there), "leads on " + there)
        self.assertFalse(os.path.exists(self.path("b")))
        self.assertEqual(program.stop(), 0)
        back = self.json("store", "move", there, self.lmdb("b"))
        self.assertGreater(back["version"], done["version"])
        program = self.serve(self.lmdb("b"), listen=listen)
        self.check(variables, first=False)
        for agent in agents:
            self.assertEqual(agent.stop(), 0)

    def check(self, variables, first):
        """The world is as it was, once its agents have come back; the first time the queue has its value."""
        until = time.monotonic() + support.START_S
        while self.json("status", **variables)["alive"] < 2:
            self.assertLess(time.monotonic(), until)
        self.assertEqual(self.json("group", "get", "pair", **variables)["ranks"], [0, 1])
        self.assertEqual(self.well("store", "get", "k", **variables).text, "v\n")
        self.assertEqual(self.well("store", "len", "q", **variables).text, "1\n" if first else "0\n")
        if first:
            self.assertEqual(self.well("store", "pop", "q", **variables).text, "first\n")
        self.assertEqual(self.well("store", "count", "many/", **variables).text, "40\n")
        self.well("barrier", "--group", "pair", **variables)

    def test_what_cannot_be_moved_is_refused(self):
        move = ("--json", "store", "move")
        done = self.fails((*move, self.lmdb("none"), self.lmdb("x")), "there is no store in", "data.mdb")
        self.assertEqual(done.json["error"]["reason"], "NO_STORE")
        self.assertEqual(os.listdir(self.folder), [])
        etcd, there = self.etcd()
        done = self.fails((*move, there, self.lmdb("x")), "nothing to be moved")
        self.assertEqual(done.json["error"]["reason"], "NO_STORE")
        self.serve(self.lmdb("a")).stop()
        program = self.serve(self.lmdb("a"))
        self.well("store", "set", "k", "v", TUTTI_COORDINATOR=program.address)
        self.fails(("store", "move", self.lmdb("a"), there), "another process has the store")
        program.stop()
        self.fails(("store", "move", self.lmdb("a"), self.lmdb("a")), "another process has the store")
        etcd.close()
        begun = time.monotonic()
        done = self.fails(("store", "move", "--json", self.lmdb("a"), there), "etcd")
        self.assertEqual(done.json["error"]["reason"], "ETCD_LOST")
        self.assertLess(time.monotonic() - begun, support.START_S / 2)

    def test_a_move_that_is_killed_leaves_all_or_nothing(self):
        etcd, there = self.etcd()
        program = self.serve(self.lmdb("a"))
        keys, _ = self.stub(program)
        for place in range(24):
            keys.Set(store.StoreServiceSetRequest(key=b"large/%d" % place, value=MIB), timeout=support.CALL_S)
        program.stop()
        mover = cli_case.start("store", "move", self.lmdb("a"), there)
        while mover.poll() is None and "log/" not in etcd.ctl("get", "--prefix", "--keys-only", "moved/log/", check=False):
            pass
        mover.send_signal(signal.SIGKILL)  # the coordinator that it runs goes with it
        mover.communicate(timeout=support.STOP_S)
        until = time.monotonic() + support.START_S
        while etcd.ctl("get", "--keys-only", "moved/leader"):  # until its lease is over
            self.assertLess(time.monotonic(), until)
        said = etcd.ctl("get", "--print-value-only", "moved/version")
        counts = said != "" and ", version 0, " not in said
        program = self.serve(there)
        program.wait_for_log("this coordinator leads")
        count = self.well("store", "count", TUTTI_COORDINATOR=program.address).text
        self.assertEqual(count, "24\n" if counts else "0\n")

    def test_a_coordinator_whose_etcd_was_restored_ends_and_answers_nothing_more(self):
        etcd, there = self.etcd()
        program = self.serve(there, "--leader-lease", "60s")
        program.wait_for_log("this coordinator leads")
        variables = {"TUTTI_COORDINATOR": program.address}
        self.well("store", "set", "kept", "1", **variables)
        etcd.ctl("snapshot", "save", self.path("snapshot"))
        self.well("store", "set", "lost", "2", **variables)
        etcd.restore(self.path("snapshot"))
        self.fails(("store", "set", "refused", "3"), **variables)
        self.assertEqual(program.wait(), 1)
        self.assertIn("is not the one that it was", program.log())
        etcd.ctl("del", "moved/leader")  # the lease was restored, too
        other = self.serve(there)
        other.wait_for_log("this coordinator leads")
        self.assertEqual(self.keys(other), {"kept": "1"})


if __name__ == "__main__":
    support.main()
