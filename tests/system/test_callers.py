"""Goal: on agents that outlive programs, the others know at once that a program has died between two of its ops.

Method: lane_program holds a lease, as torch's trainers and Python's `with` do, calls some ops and is killed, or ends in good order.
"""

import time
import unittest

import support
from cluster_case import LONG_S, ClusterCase
from lane_case import Client, LaneCase

support.build_stubs()
from tutti.v1 import progress_pb2 as progress  # noqa: E402

SOON_MS = 5000  # a loaded machine; without the news it is LONG_S


class Programs:
    """What both kinds of tests do with their three agents."""

    size = 3

    def start(self, rank, lease=1):
        client = Client(self, self.cluster.agents[rank])
        if lease:
            self.assertEqual(client.ask("lease", lease), "ok")
        return client

    def run_ops(self, clients, count=3, first=None):
        """first: the rank whose program was started anew: the others' ops are refused until it calls one."""
        if first is not None:
            clients[first].say("ops", count)
            self.wait_entered(first)
        for client in clients:
            if first is None or client is not clients[first]:
                client.say("ops", count)
        for client in clients:
            self.assertEqual(client.hear(), "ok")

    def kill(self, client):
        client.process.kill()
        client.process.wait()

    def assert_told(self, client, rank, pid):
        took, reason, text = client.hear().split(" ", 2)
        self.assertEqual(reason, "CALLER_GONE", text)
        self.assertLess(int(took), SOON_MS)
        self.assertRegex(text, r"^group world op \d+: rank %d does not call it: its program lane_program "
                               r"\(pid %d\) has ended$" % (rank, pid))

    def wait_entered(self, rank):
        until = time.monotonic() + LONG_S
        while self.cluster.agents[rank].stats().op_running_count == 0:
            self.assertLess(time.monotonic(), until)


class Callers(Programs, ClusterCase):
    def test_ranks_that_wait_for_a_killed_program_are_told_at_once(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        for client in clients[1:]:
            client.say("wait", LONG_S)
        self.wait_entered(1)
        self.wait_entered(2)
        self.kill(clients[0])
        for client in clients[1:]:
            self.assert_told(client, 0, clients[0].process.pid)

    def test_and_so_are_those_that_call_later(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        self.kill(clients[2])
        for _ in range(3):
            for client in clients[:2]:
                client.say("wait", LONG_S)
            for client in clients[:2]:
                self.assert_told(client, 2, clients[2].process.pid)
        stalls = self.cluster.members.DescribeStall(progress.DescribeStallRequest(), timeout=LONG_S)
        self.assertEqual(list(stalls.uneven_groups), [])  # refusals count

    def test_the_next_program_of_that_rank_goes_on_with_the_others(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        for victim in (1, 0, 2):
            self.kill(clients[victim])
            others = [client for rank, client in enumerate(clients) if rank != victim]
            for _ in range(2):
                for client in others:
                    client.say("wait", LONG_S)
                for client in others:
                    self.assert_told(client, victim, clients[victim].process.pid)
            clients[victim] = self.start(victim)
            self.run_ops(clients, first=victim)

    def test_a_program_that_ends_in_good_order_is_waited_for(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        self.assertEqual(clients[1].ask("lease", 0), "ok")
        self.kill(clients[1])
        for client in (clients[0], clients[2]):
            client.say("wait", LONG_S)
        self.wait_entered(0)
        clients[1] = self.start(1)
        clients[1].say("wait", LONG_S)
        for client in clients:
            self.assertEqual(client.hear(), "ok")
        self.run_ops(clients)

    def test_a_program_without_a_lease_is_waited_for(self):
        """As clients of older versions are: nothing tells their end from a pause."""
        clients = [self.start(rank, lease=0) for rank in range(3)]
        self.run_ops(clients)
        self.kill(clients[1])
        for client in (clients[0], clients[2]):
            client.say("wait", 1)
        for client in (clients[0], clients[2]):
            self.assertEqual(client.hear().split()[1], "TIMEOUT")

    def test_a_new_run_is_not_told_of_the_one_before(self):
        """All programs have died, and the next ones do not start at one moment."""
        for first in range(3):
            clients = [self.start(rank) for rank in range(3)]
            self.run_ops(clients)
            for client in clients:
                self.kill(client)
            clients = {}
            for rank in (first, (first + 1) % 3, (first + 2) % 3):
                clients[rank] = self.start(rank)
                clients[rank].say("ops", 3)
                if len(clients) < 3:
                    self.wait_entered(rank)
            for client in clients.values():
                self.assertEqual(client.hear(), "ok")

    def test_another_program_of_the_rank_is_no_reason_to_fail(self):
        """The one that is killed did not call the last op."""
        clients = [self.start(rank) for rank in range(3)]
        bystander = self.start(1)
        self.run_ops(clients)
        self.kill(bystander)
        self.run_ops(clients)


class Messages(Programs, ClusterCase):
    """Sends and receives, which have no order that a refusal could stand in."""

    def assert_message_told(self, client, rank, pid):
        took, reason, text = client.hear().split(" ", 2)
        self.assertEqual(reason, "CALLER_GONE", text)
        self.assertLess(int(took), SOON_MS)
        self.assertEqual(text, "group world tag 0: rank %d does not call it: its program lane_program (pid %d) has ended"
                         % (rank, pid))

    def assert_meets(self, sender, source, receiver, target):
        """A receive may come before the news that somebody sends again."""
        until = time.monotonic() + LONG_S
        sender.say("send", target)
        while (said := receiver.ask("recv", source)) != "ok":
            self.assertIn("CALLER_GONE", said)
            self.assertLess(time.monotonic(), until)
        self.assertEqual(sender.hear(), "ok")

    def test_who_waits_for_a_killed_program_is_told_at_once_and_later(self):
        """The program has called collectives only, and then messages only."""
        for first in ("ops", "send"):
            clients = [self.start(rank) for rank in range(3)]
            if first == "ops":
                self.run_ops(clients)
            else:
                self.assert_meets(clients[0], 0, clients[1], 1)
            clients[1].say("recv", 0)
            clients[2].say("send", 0)
            self.wait_entered(1)
            self.wait_entered(2)
            self.kill(clients[0])
            for client in clients[1:]:
                self.assert_message_told(client, 0, clients[0].process.pid)
            clients[1].say("send", 0)
            clients[2].say("recv", 0)
            for client in clients[1:]:
                self.assert_message_told(client, 0, clients[0].process.pid)
            self.assert_meets(clients[1], 1, clients[2], 2)  # the others go on
            clients[0] = self.start(0)
            self.assert_meets(clients[0], 0, clients[1], 1)
            self.assert_meets(clients[1], 1, clients[0], 0)
            for client in clients:
                self.kill(client)

    def test_a_receive_from_any_ends_when_no_program_is_left(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        clients[1].say("recv", 1000)
        self.wait_entered(1)
        self.kill(clients[0])
        self.kill(clients[2])
        took, reason, _ = clients[1].hear().split(" ", 2)
        self.assertEqual(reason, "CALLER_GONE")
        self.assertLess(int(took), SOON_MS)

    def test_while_another_program_of_the_rank_sends_and_receives_nobody_is_told(self):
        clients = [self.start(rank) for rank in range(3)]
        other = self.start(0)
        self.assert_meets(other, 0, clients[1], 1)
        self.assert_meets(clients[0], 0, clients[1], 1)
        clients[1].say("recv", 0)
        self.wait_entered(1)
        self.kill(clients[0])
        self.assertEqual(other.ask("send", 1), "ok")
        self.assertEqual(clients[1].hear(), "ok")
        clients[1].say("recv", 0)
        self.kill(other)
        self.assertEqual(clients[1].hear().split()[1], "CALLER_GONE")

    def test_a_program_without_a_lease_or_that_has_closed_it_is_waited_for(self):
        for lease in (0, 1):
            clients = [self.start(rank, lease) for rank in range(3)]
            self.run_ops(clients)
            if lease:
                self.assertEqual(clients[0].ask("lease", 0), "ok")
            self.kill(clients[0])
            for client, word in zip(clients[1:], ("recv", "send")):
                self.assertEqual(client.ask("within", 1), "ok")
                client.say(word, 0)
            for client in clients[1:]:
                self.assertEqual(client.hear().split()[1], "TIMEOUT")


class Shrinks(Programs, LaneCase):
    def test_shrink_does_not_wait_for_it(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        self.kill(clients[0])
        for client in clients[1:]:
            client.say("wait", LONG_S)
        for client in clients[1:]:
            self.assert_told(client, 0, clients[0].process.pid)
        for client in clients[1:]:
            client.say("shrink", LONG_S)
        for client in clients[1:]:
            took, ranks = map(int, client.hear().split())
            self.assertEqual(ranks, 2)
            self.assertLess(took, SOON_MS)

    def test_a_program_that_has_come_since_is_waited_for(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        self.kill(clients[0])
        for client in clients[1:]:
            client.say("wait", LONG_S)
        for client in clients[1:]:
            self.assert_told(client, 0, clients[0].process.pid)
        clients[0] = self.start(0)
        self.run_ops(clients, first=0)
        for client in reversed(clients):  # rank 0 is the last one
            client.say("shrink", LONG_S)
        for client in clients:
            self.assertEqual(client.hear().split()[1], "3")

    def test_nor_does_one_that_waits_already_when_it_dies(self):
        clients = [self.start(rank) for rank in range(3)]
        self.run_ops(clients)
        for client in clients[1:]:
            client.say("shrink", LONG_S)
        time_at = time.monotonic()
        self.kill(clients[0])
        for client in clients[1:]:
            self.assertEqual(client.hear().split()[1], "2")
        self.assertLess(time.monotonic() - time_at, SOON_MS / 1000)


if __name__ == "__main__":
    support.main()
