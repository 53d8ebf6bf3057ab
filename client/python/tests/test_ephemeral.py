"""What a `with` block makes ends with it, and with its process; what was asked to stay stays."""

import os
import signal
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap  # noqa: E402
import tutti  # noqa: E402
from case import ADDRESSES, LONG_S, AgentCase, in_threads  # noqa: E402
from tutti import _wire  # noqa: E402

DIES = """
import sys, time
import numpy as np
import tutti

with tutti.connect(sys.argv[1]) as agent:
    agent.put(np.ones(4), name="dies/put")
    agent.put(np.ones(2 << 20), name="dies/upload")
    agent.create((3,), name="dies/create")
    agent.tensor("dies/put").copy(name="dies/copy")
    agent.put(np.ones(4), name="dies/stays", ephemeral=False)
    print("made", flush=True)
    time.sleep(600)
"""

CALLS = """
import sys, time
import numpy as np
import tutti

with tutti.connect(sys.argv[1]) as agent:
    agent.put(np.ones(4))
    print(agent.all_reduce(np.ones(4))[0], flush=True)
    sys.stdin.readline()
"""


class Ephemeral(AgentCase):
    def names(self, agent):
        listed = agent.line.unary("Tensors.List", _wire.new("ListRequest")).tensors
        return sorted(one.name for one in listed)

    def wait_for_names(self, agent, wanted):
        until = time.monotonic() + LONG_S
        while self.names(agent) != wanted:
            self.assertLess(time.monotonic(), until, self.names(agent))
            time.sleep(0.01)

    def test_a_block_ends_what_it_made(self):
        watcher = self.agents[0]
        with tutti.connect(ADDRESSES[0]) as agent:
            made = agent.put(np.ones(4), name="block/put")
            agent.put(np.ones(4), name="block/stays", ephemeral=False)
            self.assertTrue(agent.stat(made).info.ephemeral)
            self.assertFalse(agent.stat("block/stays").info.ephemeral)
            self.assertEqual(self.names(watcher), ["block/put", "block/stays"])
        self.wait_for_names(watcher, ["block/stays"])
        watcher.delete("block/stays")

    def test_without_a_block_tensors_stay_unless_told(self):
        agent = tutti.connect(ADDRESSES[0])
        agent.put(np.ones(4), name="plain/stays")
        agent.put(np.ones(4), name="plain/ends", ephemeral=True)
        agent.close()
        self.wait_for_names(self.agents[0], ["plain/stays"])
        self.agents[0].delete("plain/stays")
        with tutti.connect(ADDRESSES[0], ephemeral=False) as agent:
            agent.put(np.ones(4), name="plain/stays")
        self.assertEqual(self.names(self.agents[0]), ["plain/stays"])
        self.agents[0].delete("plain/stays")

    def test_results_of_ops_end_with_the_block_as_well(self):
        def work(address):
            with tutti.connect(address) as agent:
                given = agent.put(np.ones(4, np.float32))
                agent.all_reduce(given)  # a tensor that nobody deletes
                result = agent.all_gather(given)
                return result.numpy().tolist(), len(agent.tensors())

        for said in in_threads([lambda one=one: work(one) for one in ADDRESSES]):
            self.assertEqual(said, ([1.0] * 4 * self.size, 3))
        for agent in self.agents:
            self.wait_for_names(agent, [])

    def test_a_client_that_dies_leaves_nothing_behind(self):
        command = [sys.executable, "-c", DIES, ADDRESSES[0]]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            try:
                self.assertEqual(client.stdout.readline(), b"made\n")
                wanted = ["dies/copy", "dies/create", "dies/put", "dies/stays", "dies/upload"]
                self.assertEqual(self.names(self.agents[0]), wanted)
            finally:
                os.kill(client.pid, signal.SIGKILL)
        self.wait_for_names(self.agents[0], ["dies/stays"])
        self.agents[0].delete("dies/stays")

    def run_first(self, end):
        """A program of rank 0 calls one op with the others, and is ended."""
        command = [sys.executable, "-c", CALLS, ADDRESSES[0]]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            try:
                self.all_but_first(lambda agent: agent.all_reduce(np.ones(4)))
                self.assertEqual(float(client.stdout.readline()), self.size)
                end(client)
                client.wait()
            finally:
                client.kill()
        return client.pid

    def all_but_first(self, call):
        return in_threads([lambda one=one: call(one) for one in self.agents[1:]])

    def test_the_others_hear_at_once_that_a_client_has_died(self):
        def call(agent):
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.all_reduce(np.ones(4), timeout=LONG_S)
            return caught.exception

        pid = self.run_first(lambda client: client.kill())
        for error in self.all_but_first(call):
            self.assertEqual((error.reason, error.rank), ("CALLER_GONE", 0))
            self.assertIn("its program python (pid %d) has ended" % pid, error.text)
        given = self.agents[0].put(np.ones(4))  # the next client of rank 0 has to call first
        work = self.agents[0].all_reduce(given, out=given, async_=True)
        sums = self.all_but_first(lambda agent: agent.all_reduce(np.ones(4))[0])
        work.wait()
        self.assertEqual(set(sums), {self.size})
        given.delete()

    def test_a_client_that_ends_its_block_is_not_missed(self):
        self.run_first(lambda client: client.stdin.close())
        self.assertEqual({one[0] for one in self.all(lambda agent: agent.all_reduce(np.ones(4)))}, {self.size})

    def groups(self):
        return sorted(one.name for one in self.agents[0].groups() if one.name.startswith("eph"))

    def wait_for_groups(self, wanted):
        until = time.monotonic() + LONG_S
        while self.groups() != wanted:
            self.assertLess(time.monotonic(), until, self.groups())
            time.sleep(0.01)

    def test_groups_end_with_the_last_connection_that_has_made_them(self):
        first, second = tutti.connect(ADDRESSES[0]), tutti.connect(ADDRESSES[1])
        both = [one.new_group([0, 1], name="eph/both", ephemeral=True) for one in (first, second)]
        second.split(size=self.size, name="eph/split", ephemeral=True)
        stays = first.new_group([0], name="eph/stays")
        self.assertEqual(self.groups(), ["eph/both", "eph/split/0", "eph/stays"])
        sums = in_threads([lambda g=g: g.agent.all_reduce(np.ones(1), group=g)[0] for g in both])
        self.assertEqual(sums, [2, 2])
        first.close()
        self.assertEqual(self.groups(), ["eph/both", "eph/split/0", "eph/stays"])
        second.close()
        self.wait_for_groups(["eph/stays"])
        self.agents[0].group(stays.name).delete()

    def test_groups_of_a_process_that_dies_are_gone_while_its_agent_lives(self):
        program = (
            "import sys, time, tutti\nagent = tutti.connect(sys.argv[1])\n"
            "agent.new_group([0, 1], name='eph/dies', ephemeral=True)\nprint('made', flush=True)\ntime.sleep(600)"
        )
        with subprocess.Popen([sys.executable, "-c", program, ADDRESSES[0]], stdout=subprocess.PIPE) as client:
            try:
                self.assertEqual(client.stdout.readline(), b"made\n")
                self.assertEqual(self.groups(), ["eph/dies"])
            finally:
                os.kill(client.pid, signal.SIGKILL)
        self.wait_for_groups([])

    def test_a_lease_that_is_over_is_said(self):
        agent = tutti.connect(ADDRESSES[0])
        self.addCleanup(agent.close)
        for lease, reason in (("12345", "LEASE_OVER"), ("nonsense", "BAD_LEASE"), ("0", "BAD_LEASE")):
            agent.line.lease = lambda lease=lease: lease
            with self.assertRaises(tutti.TuttiError) as caught:
                agent.put(np.ones(4), ephemeral=True)
            self.assertEqual(caught.exception.reason, reason)


if __name__ == "__main__":
    tap.main()
