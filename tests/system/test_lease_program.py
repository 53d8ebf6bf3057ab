"""Goal: tensors that a C program makes under a lease end with it, as tutti/tensor.h says.

Method: tests/client/lease_program.c makes tensors in every way; a stock stub looks at what is there.
"""

import os
import subprocess
import time
import unittest

import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, coordinator, tensors, types

PROGRAM = os.path.join(support.BUILD, "tests", "client", "lease_program")


class TestLeaseProgram(ClusterCase):
    size = 1
    options = ("--leases-max", "1")

    def setUp(self):
        super().setUp()
        environment = dict(os.environ, TUTTI_AGENT=self.cluster.agents[0].program.address)
        self.process = subprocess.Popen(
            [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.addCleanup(self.process.stdin.close)
        self.cluster.agents[0].put(np.ones(3, np.float32), name="x")

    def delete(self, *names):
        for name in names:
            self.cluster.agents[0].tensors.Delete(tensors.DeleteRequest(handles=[name]), timeout=LONG_S)

    def say(self, *words):
        self.process.stdin.write((" ".join(words) + "\n").encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().strip()

    def names(self):
        listed = self.cluster.agents[0].tensors.List(tensors.ListRequest(), timeout=LONG_S).tensors
        return sorted(one.name for one in listed)

    def wait_for(self, *names):
        """Nobody answers the end of a lease."""
        until = time.monotonic() + LONG_S
        while self.names() != sorted(names):
            self.assertLess(time.monotonic(), until, self.names())

    def make_all(self):
        for number in range(5):  # from the third call on they go by a stream of commands
            self.assertEqual(self.say("small", "s%d" % number), "ok")
        self.assertEqual(self.say("large", "l"), "ok")
        self.assertEqual(self.say("result"), "ok")
        self.assertEqual(self.say("queue"), "ok")
        return ["s%d" % number for number in range(5)] + ["l", "", ""]

    def test_all_that_is_made_under_a_lease_ends_with_it(self):
        for number in range(3):
            self.assertEqual(self.say("small", "before%d" % number), "ok")
        self.assertEqual(self.say("open"), "ok")
        stays = ["x"] + ["before%d" % number for number in range(3)]
        made = self.make_all()
        self.assertEqual(self.names(), sorted(stays + made))
        self.assertEqual(self.say("open"), "RESOURCE_EXHAUSTED LEASE_LIMIT")
        self.assertEqual(self.say("close"), "ok")
        self.wait_for(*stays)
        self.assertEqual(self.say("small", "behind"), "ok")
        self.assertEqual(self.say("open"), "ok")
        self.assertEqual(self.say("small", "again"), "ok")
        self.assertEqual(self.say("close"), "ok")
        self.wait_for("behind", *stays)
        self.delete("behind", *stays[1:])

    def groups(self):
        listed = self.cluster.members.ListGroups(coordinator.ListGroupsRequest(), timeout=LONG_S).groups
        return sorted(one.name for one in listed if one.name != "world")

    def wait_for_groups(self, *names):
        until = time.monotonic() + LONG_S
        while self.groups() != sorted(names):
            self.assertLess(time.monotonic(), until, self.groups())

    def test_groups_that_are_made_under_a_lease_end_with_it(self):
        self.assertEqual(self.say("group", "agents"), "ok")
        self.assertEqual(self.say("open"), "ok")
        self.assertEqual(self.say("group", "leased"), "ok")
        self.assertEqual(self.say("split", "part"), "ok")
        self.assertEqual(self.groups(), ["agents", "leased", "part/0"])
        self.assertEqual(self.say("close"), "ok")
        self.wait_for_groups("agents")
        self.assertEqual(self.say("open"), "ok")
        self.assertEqual(self.say("group", "dies"), "ok")
        self.process.kill()
        self.wait_for_groups("agents")
        self.cluster.members.DeleteGroup(coordinator.DeleteGroupRequest(
            member=types.Member(rank=0, incarnation=self.cluster.agents[0].describe().incarnation),
            name="agents"), timeout=LONG_S)

    def test_memory_of_the_arena_goes_with_a_program_that_is_killed(self):
        self.assertEqual(self.say("open"), "ok")
        self.assertEqual(self.say("alloc"), "ok")
        self.assertEqual([name[:12] for name in self.names()], ["tutti.arena/", "x"])
        self.process.kill()
        self.wait_for("x")

    def test_what_a_program_that_is_killed_has_made_goes_with_it(self):
        self.assertEqual(self.say("open"), "ok")
        made = self.make_all()
        self.assertEqual(self.names(), sorted(made + ["x"]))
        self.process.kill()
        self.wait_for("x")


class TestTwoLeases(TestLeaseProgram):
    options = ()

    def test_all_that_is_made_under_a_lease_ends_with_it(self):
        self.assertEqual(self.say("open"), "ok")
        self.assertEqual(self.say("open"), "FAILED_PRECONDITION LEASE_OPEN")
        self.assertEqual(self.say("small", "a"), "ok")
        self.assertEqual(self.say("close"), "ok")
        self.wait_for("x")


if __name__ == "__main__":
    support.main()
