"""Goal: calls of libtutti to an agent of its machine go through shared memory, unless somebody says no; whoever
dies on one side is noticed on the other; limits send calls by gRPC and fail none; an idle lane costs nothing.

Method: tests/client/lane_program.c makes the calls; the agents' /metrics say how many lanes there are.
"""

import signal
import time

import support
from cluster_case import LONG_S
from lane_case import Client, LaneCase

LANES_MAX = 20
PORTION = 200  # ops that a ring holds; what it does not hold leaves when completions are taken
FLOOD = 4000  # ops whose answers a ring of 64 KiB cannot hold, as each has a handle; a queue takes 4095
NOTICED_S = 5  # a second is promised; a loaded machine may take longer


class Lanes(LaneCase):
    def one_second(self, client):
        """Did the client use no processor but a tick, and did the agent's thread of lanes not run at all?

        Threads of gRPC may have something to do in one second or another; a lane that is not idle has it in each.
        """
        before, slept = client.cpu_ticks(), self.cluster.agents[0].lane_switches()
        time.sleep(1)
        return client.cpu_ticks() - before <= 1, self.cluster.agents[0].lane_switches() == slept

    def test_small_ops_go_through_a_lane_that_costs_nothing_while_idle(self):
        clients = self.pair()
        self.assertEqual(self.all_say(clients, "ops", 500), ["ok", "ok"])
        self.assertEqual([self.lanes(0), self.lanes(1)], [1, 1])
        self.assertIn((True, True), (self.one_second(clients[0]) for _ in range(5)))
        self.assertEqual(self.all_say(clients, "ops", 5), ["ok", "ok"])
        for client in clients:
            client.process.stdin.close()
        self.wait_lanes(0)

    def test_a_client_that_says_no_has_none(self):
        clients = self.pair(TUTTI_NO_LANE="1")
        for words in (("ops", 20), ("queue", 300), ("fd", 20), ("line", 300)):
            self.assertEqual(self.all_say(clients, *words), ["ok", "ok"])
        self.assertEqual(self.lanes(), 0)

    def test_queues_and_pipelines_have_a_lane_each(self):
        clients = self.pair()
        for count, words in enumerate((("queue", 2000), ("fd", 300)), 1):
            self.assertEqual(self.all_say(clients, *words), ["ok", "ok"])
            self.assertEqual([self.lanes(0), self.lanes(1)], [count, count])
        self.assertEqual(self.all_say(clients, "line", 2000), ["ok", "ok"])
        self.assertEqual(self.all_say(clients, "ops", 20), ["ok", "ok"])
        self.wait_lanes(3)
        before = clients[0].cpu_ticks()
        time.sleep(1)  # with the thread of the queue that has a descriptor
        self.assertLessEqual(clients[0].cpu_ticks() - before, 1)
        for client in clients:
            client.process.stdin.close()
        self.wait_lanes(0)

    def check_a_killed_agent_is_noticed(self, ops, waits):
        """ops, waits: words of the program, which run ops and one that rank 1 never calls."""
        clients = self.pair()
        self.assertEqual(self.all_say(clients, ops, 10), ["ok", "ok"])
        clients[0].say(waits, 60)
        time.sleep(0.2)
        self.cluster.agents[0].program.kill()
        words = clients[0].hear().split(" ", 2)
        self.assertEqual(words[1], "CONNECTION_LOST", words)
        self.assertLess(int(words[0]), (NOTICED_S + 1) * 1000, words)

    def check_a_late_op_fails(self, ops, waits):
        clients = self.pair()
        self.assertEqual(self.all_say(clients, ops, 10), ["ok", "ok"])
        clients[0].say(waits, 1)
        self.assertRegex(clients[0].hear(), "rank 1")

    def test_a_killed_agent_is_noticed_by_a_queue(self):
        self.check_a_killed_agent_is_noticed("queue", "hang")

    def test_an_op_of_a_queue_that_is_late_fails_in_the_agents_words(self):
        self.check_a_late_op_fails("queue", "hang")

    def test_a_killed_client_frees_its_lane_and_its_op_fails_on_the_others(self):
        clients = self.pair()
        self.assertEqual(self.all_say(clients, "ops", 10), ["ok", "ok"])
        clients[0].say("wait", 60)
        time.sleep(0.2)  # it is in the op, or will be: both are fine
        clients[0].process.kill()
        self.wait_lanes(0, 0)
        clients[1].say("wait", 60)
        self.assertIn("CALLER_GONE", clients[1].hear())
        fresh = Client(self, self.cluster.agents[0])
        self.assertEqual(self.all_say([fresh, clients[1]], "ops", 10), ["ok", "ok"])

    def test_clients_that_are_killed_with_full_rings_harm_no_one(self):
        clients = self.pair()
        until = time.monotonic() + LONG_S
        for done in range(PORTION, FLOOD + 1, PORTION):
            self.assertEqual(self.all_say(clients, "flood", PORTION), ["ok", "ok"])
            while min(agent.stats().tensor_count for agent in self.cluster.agents) < done:  # results: all ops have run
                self.assertLess(time.monotonic(), until, done)
                time.sleep(0.002)
        for client in clients:
            client.process.kill()
        for rank in (0, 1):
            self.wait_lanes(0, rank)
        fresh = self.pair()
        self.assertEqual(self.all_say(fresh, "ops", 10), ["ok", "ok"])
        self.assertEqual(self.all_say(fresh, "queue", 1000), ["ok", "ok"])

    def test_a_killed_agent_is_noticed_by_who_waits(self):
        self.check_a_killed_agent_is_noticed("ops", "wait")

    def test_an_op_that_is_late_fails_in_the_agents_words(self):
        self.check_a_late_op_fails("ops", "wait")

    def test_a_stopped_agent_goes_on_where_it_was(self):
        clients = self.pair()
        self.assertEqual(self.all_say(clients, "ops", 10), ["ok", "ok"])
        process = self.cluster.agents[0].program
        for words in (("ops", 10), ("queue", 10), ("fd", 10), ("line", 10)):
            process.send(signal.SIGSTOP)
            for client in clients:
                client.say(*words)
            time.sleep(0.3)
            process.send(signal.SIGCONT)
            self.assertEqual([client.hear() for client in clients], ["ok", "ok"])

    def test_a_child_of_fork_is_told_so(self):
        clients = self.pair()
        self.assertEqual(self.all_say(clients, "ops", 10), ["ok", "ok"])
        clients[0].say("fork")
        self.assertEqual(clients[0].hear(), "FORKED")
        self.assertEqual(self.all_say(clients, "ops", 10), ["ok", "ok"])


class Results(LaneCase):
    """Of agents whose answers leave by another thread than that which hears of a stream's end."""

    options = ("--no-shm", "--net-devices", "lo")

    def test_a_result_stays_when_its_queue_ends_right_behind_the_completion(self):
        clients = self.pair()
        for _ in range(5):
            self.assertEqual(self.all_say(clients, "leave", 60), ["ok", "ok"])
        self.assertGreaterEqual(self.cluster.agents[0].messages(), 5 * 60)


class Limits(LaneCase):
    size = 1
    options = ("--lanes-max", str(LANES_MAX))

    def test_clients_beyond_the_limit_go_by_grpc(self):
        client = Client(self, self.cluster.agents[0])
        client.say("many", 3 * LANES_MAX)
        self.assertEqual(client.hear(), "ok")
        self.assertEqual(self.lanes(), LANES_MAX)
        client.process.stdin.close()
        self.wait_lanes(0)


class Busy(LaneCase):
    options = ("--busy-poll", "100us")

    def test_agents_that_poll_answer_the_same(self):
        clients = self.pair()
        for words in (("ops", 500), ("queue", 1000), ("fd", 100), ("line", 1000)):
            self.assertEqual(self.all_say(clients, *words), ["ok", "ok"])
        for rank in (0, 1):
            self.wait_lanes(3, rank)


class BusyForMany(LaneCase):
    size = 1
    options = ("--busy-poll", "10ms")  # so that it is busy between any two calls

    def test_an_agent_that_polls_answers_the_client_that_it_has_not_heard_of_lately(self):
        for count in (2, 4, 64):
            with self.subTest(clients=count):
                client = Client(self, self.cluster.agents[0])
                self.assertEqual(client.ask("many", count), "ok")
                self.assertEqual(client.ask("turns", 3), "ok")
                self.assertGreaterEqual(self.lanes(), count)
                client.process.stdin.close()
                self.wait_lanes(0)


class Off(LaneCase):
    options = ("--no-lane",)

    def test_an_agent_without_lanes_serves_by_grpc(self):
        clients = self.pair()
        for words in (("ops", 20), ("queue", 300), ("fd", 20), ("line", 300)):
            self.assertEqual(self.all_say(clients, *words), ["ok", "ok"])
        self.assertEqual(self.lanes(), 0)


if __name__ == "__main__":
    support.main()
