"""Goal: who watches the members of a job hears every change once, in order, whatever becomes of the
coordinator.

Method: real processes; `tutti watch`, a program on libtutti, and WatchMembers itself.
"""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import grpc

import support
from cluster_case import LONG_S, Cluster, coordinator

QUICK = ("--heartbeat-interval", "250ms", "--heartbeat-timeout", "5s")


class Lines:
    """A program whose lines are read as they come."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [os.path.join(support.PROGRAMS, words[0]), *words[1:]], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, close_fds=False,
        )
        self.queue = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def next(self):
        return self.queue.get(timeout=LONG_S)

    def end(self):
        """Its exit code, with its input at an end."""
        self.process.stdin.close()
        code = self.process.wait(LONG_S)
        self.process.stdout.close()
        self.errors = self.process.stderr.read()
        self.process.stderr.close()
        return code


class Watch(unittest.TestCase):
    def cluster_of(self, size, *options, durable=True):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-watch-")
        self.addCleanup(self.folder.cleanup)
        self.options = (*QUICK, *(("--store", "lmdb:" + self.folder.name) if durable else ()))
        cluster = Cluster(size, *options, coordinator_options=self.options)
        self.addCleanup(cluster.stop)
        return cluster

    def revive(self, cluster):
        cluster.coordinator = support.Program(
            "tutti-coordinator", *self.options, listen=cluster.coordinator.address
        )

    def watch(self, cluster, *words):
        lines = Lines("tutti", "watch", "--json", "--coordinator", cluster.coordinator.address, *words)
        self.addCleanup(lines.process.kill)
        return lines

    def event(self, lines):
        return json.loads(lines.next())

    def test_a_death_a_return_and_a_leave_are_told(self):
        cluster = self.cluster_of(2)
        lines = self.watch(cluster, "--count", "4")
        now = self.event(lines)
        self.assertEqual((now["event"], now["epoch"], now["alive"]), ("now", 1, 2))
        cluster.agents[1].program.kill()
        lost = self.event(lines)
        self.assertEqual(
            (lost["event"], lost["rank"], lost["epoch"], lost["left"]), ("lost", 1, 2, False)
        )
        self.assertIn("the connection to it broke", lost["reason"])
        cluster.replace(1)
        self.assertEqual(self.event(lines), {"event": "joined", "rank": 1, "epoch": 3})
        self.assertEqual(cluster.agents[1].program.stop(), 0)
        self.assertEqual(
            self.event(lines), {"event": "leaving", "rank": 1, "epoch": 4, "reason": "stopped"}
        )
        lost = self.event(lines)
        self.assertEqual((lost["epoch"], lost["left"], lost["reason"]), (5, True, "left: stopped"))
        self.assertIsNone(lines.next())
        self.assertEqual(lines.end(), 0)

    def test_nothing_is_lost_or_repeated_over_a_restart_of_the_coordinator(self):
        cluster = self.cluster_of(3)
        lines = self.watch(cluster)
        self.assertEqual(self.event(lines)["event"], "now")
        cluster.agents[1].program.kill()
        self.assertEqual(self.event(lines)["epoch"], 2)
        cluster.coordinator.kill()
        away = self.event(lines)
        self.assertEqual((away["event"], away["epoch"]), ("away", 2))
        self.assertEqual(away["error"]["code"], "UNAVAILABLE")
        cluster.agents[2].program.kill()  # nobody is there to tell it
        self.revive(cluster)
        now = self.event(lines)
        self.assertIn((now["event"], now["epoch"]), (("now", 2), ("now", 3)))
        lost = self.event(lines)  # its seat was kept for a heartbeat timeout
        self.assertEqual((lost["event"], lost["rank"], lost["epoch"]), ("lost", 2, 3))
        cluster.replace(1)
        self.assertEqual(self.event(lines), {"event": "joined", "rank": 1, "epoch": 4})
        lines.process.kill()
        lines.end()

    def test_another_job_of_that_name_is_told_from_its_beginning(self):
        cluster = self.cluster_of(2, durable=False)
        lines = self.watch(cluster)
        first = self.event(lines)
        cluster.coordinator.kill()
        self.assertEqual(self.event(lines)["event"], "away")
        cluster.agents[1].program.kill()  # of the same processes it would be the same job
        self.revive(cluster)
        cluster.agents[0].program.wait_for_log("joining again")
        cluster.replace(1)
        event = self.event(lines)
        while event["event"] == "now" and event["epoch"] == 0:  # not formed again yet
            event = self.event(lines)
        self.assertEqual((event["event"], event["epoch"], first["epoch"]), ("now", 1, 1))
        cluster.agents[0].program.kill()
        self.assertEqual(self.event(lines)["epoch"], 2)
        lines.process.kill()
        lines.end()

    def test_the_lines_for_people(self):
        cluster = self.cluster_of(2)
        cluster.agents[1].program.kill()
        while "is lost" not in cluster.coordinator.log():
            time.sleep(0.01)
        code, text, _ = support.run(
            "tutti", "watch", "--coordinator", cluster.coordinator.address, "--after", "0", "-n", "1"
        )
        self.assertEqual(code, 0)
        lines = text.splitlines()
        self.assertEqual(lines[0], "epoch 2: 1 of 2 ranks alive")
        self.assertEqual(lines[1], "EPOCH  RANK  EVENT    WHY")
        self.assertRegex(lines[2], "^    2     1  lost     (the connection to it broke|no session came)$")
        code, text, _ = support.run(
            "tutti", "watch", "--coordinator", cluster.coordinator.address, "--timeout", "300ms"
        )
        self.assertEqual((code, len(text.splitlines())), (0, 2))

    def test_what_cannot_be_watched_is_said(self):
        cluster = self.cluster_of(1)
        address = cluster.coordinator.address
        code, _, text = support.run("tutti", "watch", "--coordinator", address, "--job", "none")
        self.assertEqual(code, 1)
        self.assertIn("there is no job none", text)
        code, _, text = support.run("tutti", "watch", "--coordinator", "127.0.0.1:9")
        self.assertEqual(code, 1)
        self.assertIn("127.0.0.1:9", text)
        self.assertEqual(support.run("tutti", "watch", "--after", "x")[0], 2)

    def test_a_frozen_coordinator_is_named_in_time(self):
        cluster = self.cluster_of(1)
        cluster.coordinator.send(signal.SIGSTOP)
        self.addCleanup(cluster.coordinator.send, signal.SIGCONT)
        began = time.monotonic()
        code, _, text = support.run(
            "tutti", "watch", "--coordinator", cluster.coordinator.address, "--timeout", "500ms"
        )
        self.assertEqual(code, 1, text)
        self.assertLess(time.monotonic() - began, 30)
        cluster.coordinator.send(signal.SIGCONT)

    def test_callbacks_may_call_and_the_watch_ends_while_the_coordinator_is_away(self):
        cluster = self.cluster_of(2)
        program = os.path.join("tests", "client", "members_program")
        lines = Lines(program, cluster.coordinator.address)
        self.addCleanup(lines.process.kill)
        once = Lines(program, cluster.coordinator.address, "1")
        self.addCleanup(once.process.kill)
        self.assertEqual(lines.next(), "now 1 0 ")
        self.assertEqual(once.next(), "now 1 0 ")
        cluster.agents[1].program.kill()
        self.assertEqual(lines.next(), "lost 2 1 the connection to it broke")
        self.assertEqual(once.next(), "lost 2 1 the connection to it broke")
        cluster.coordinator.kill()
        self.assertTrue(lines.next().startswith("away 2 0 "))
        self.assertEqual(lines.end(), 0)
        self.assertEqual(lines.next(), "over")
        self.assertEqual(once.end(), 0)
        self.assertEqual(once.next(), "over")  # it had heard enough
        self.revive(cluster)

    def test_a_watch_that_is_cut_off_leaves_nothing(self):
        cluster = self.cluster_of(1)
        for _ in range(20):
            call = cluster.members.WatchMembers(coordinator.WatchMembersRequest())
            self.assertEqual(next(call).now.world_size, 1)
            call.cancel()
        with self.assertRaises(grpc.RpcError) as caught:
            next(cluster.members.WatchMembers(coordinator.WatchMembersRequest(job="/x")))
        self.assertEqual(support.Failure(caught.exception).reason, "BAD_NAME")
        with self.assertRaises(grpc.RpcError) as caught:
            list(cluster.members.WatchMembers(coordinator.WatchMembersRequest(), timeout=0.3))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


if __name__ == "__main__":
    support.main()
