"""Goal: agents of one host work in each other's memory, give the same bits as over the network, and let go of all
of it when one of them ends, stops, or was never of this host.

Method: real agents; what they share is read from /proc; ranks are killed and stopped in the middle of ops.
"""

import os
import signal
import socket
import struct
import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import (
    LONG_S, Cluster, ClusterCase, all_reduce, collectives, handle, tensors, types,
)

GONE = grpc.StatusCode.UNAVAILABLE
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
MANY = 1 << 18  # elements: far above what travels in messages


def arenas(agent):
    """How many agents' tensor memory this process has mapped, its own too."""
    with open("/proc/%d/maps" % agent.program.process.pid) as maps:
        inodes = {line.split()[4] for line in maps if "memfd:tutti-tensors" in line}
    return len(inodes)


def of_engine(agent, file):
    """What the kernel says of the engine's thread."""
    tasks = "/proc/%d/task/" % agent.program.process.pid
    for thread in os.listdir(tasks):
        with open(tasks + thread + "/comm") as name, open(tasks + thread + "/" + file) as words:
            if name.read() == "tutti-engine\n":
                return words.read()
    raise AssertionError("no thread tutti-engine")


def engine_ns(agent):
    """What it has run so far."""
    return int(of_engine(agent, "schedstat").split()[0])


def engine_sleeps(agent):
    """How often it has gone to sleep."""
    return int(of_engine(agent, "status").split("\nvoluntary_ctxt_switches:")[1].split()[0])


def descriptors(agent):
    return len(os.listdir("/proc/%d/fd" % agent.program.process.pid))


def wait_until(test, true, what):
    until = time.monotonic() + LONG_S
    while not true():
        test.assertLess(time.monotonic(), until, what)
        time.sleep(0.01)


def reduce_in_place(agent, name="x", timeout=LONG_S):
    request = collectives.AllReduceRequest(
        input=handle(name), output=name, reduce_op=types.REDUCE_OP_SUM
    )
    return agent.ops.AllReduce(request, timeout=timeout)


def create(agent, count, name="x"):
    spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[count])
    agent.tensors.Create(tensors.CreateRequest(spec=spec, name=name), timeout=LONG_S)


def warm(cluster):
    """Ranks meet beside the first op; from the second or third on they share."""
    for _ in range(4):
        cluster.all(lambda agent: all_reduce(agent, np.ones(4, np.float32)))


def sockets(pid):
    """The inodes of a process's sockets."""
    found, folder = set(), "/proc/%d/fd" % pid
    for name in os.listdir(folder):
        try:
            words = os.readlink(os.path.join(folder, name))
        except OSError:
            continue
        if words.startswith("socket:["):
            found.add(words[8:-1])
    return found


class Sharing(ClusterCase):
    size = 3
    options = ("--memory-limit", "64MiB")

    def test_ranks_of_one_host_map_each_other(self):
        warm(self.cluster)
        for agent in self.cluster.agents:
            self.assertEqual(arenas(agent), 3)

    def test_large_ops_give_the_same_bits_on_every_rank(self):
        warm(self.cluster)
        random = np.random.default_rng(7)
        inputs = [random.standard_normal(MANY + 3).astype(np.float32) for _ in range(3)]
        wanted = (inputs[0] + inputs[1]) + inputs[2]
        results = self.cluster.all(lambda agent: all_reduce(agent, inputs[agent.rank]))
        for result in results:
            self.assertEqual(result.tobytes(), wanted.tobytes())

    def test_agents_sleep_again_when_an_op_has_gone_by_the_network(self):
        warm(self.cluster)
        for agent in self.cluster.agents:
            agent.put(np.zeros(3 * MANY, np.uint8), name="swapped")  # in place: nothing can be lent
        request = collectives.AllToAllRequest(input=handle("swapped"), output="swapped")
        for _ in range(3):
            self.cluster.all(lambda agent: agent.ops.AllToAll(request, timeout=LONG_S))
        time.sleep(0.2)  # what still comes
        before = [engine_ns(agent) for agent in self.cluster.agents]
        time.sleep(0.5)
        for agent, at_first in zip(self.cluster.agents, before):
            self.assertLess(engine_ns(agent) - at_first, 25_000_000)
            agent.delete("swapped")

    def test_nothing_wakes_an_engine_that_has_nothing_to_do(self):
        warm(self.cluster)
        time.sleep(0.2)
        before = [engine_sleeps(agent) for agent in self.cluster.agents]
        time.sleep(1)
        for agent, at_first in zip(self.cluster.agents, before):
            self.assertLess(engine_sleeps(agent) - at_first, 50)  # two naps; an alarm for each ms was a thousand

    def test_a_stranger_at_the_socket_is_turned_away(self):
        warm(self.cluster)
        mine, names = set(), set()
        for agent in self.cluster.agents:
            mine |= sockets(agent.program.process.pid)
        with open("/proc/net/unix") as lines:
            for line in lines:
                if "@tutti-sh" in line and line.split()[6] in mine:
                    names.add(line.split()[-1][1:])
        self.assertEqual(len(names), 3)
        heard = set()
        for name in names:
            for words in (b"", b"x", struct.pack("<Q7Q", 0x69686d7369747475, *range(7)), b"y" * 5000):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                    stranger.settimeout(LONG_S)
                    stranger.connect("\0" + name)
                    nonce = stranger.recv(100)  # a number of its own for each caller
                    self.assertNotIn(nonce, heard)
                    heard.add(nonce)
                    if words:
                        stranger.send(words)
                        self.assertLessEqual(len(stranger.recv(100).strip(b"\0")), 0)
        self.assert_works()
        warm(self.cluster)


class Apart(unittest.TestCase):
    """Ranks that must not, or do not, share."""

    def world(self, size, *options):
        cluster = Cluster(size, "--memory-limit", "64MiB", *options)
        self.addCleanup(cluster.kill)
        return cluster

    def check(self, cluster, wanted):
        warm(cluster)
        ones = np.ones(MANY, np.float32)
        for result in cluster.all(lambda agent: all_reduce(agent, ones)):
            self.assertEqual(result.tobytes(), (ones * cluster.size).tobytes())
        self.assertEqual([arenas(agent) for agent in cluster.agents], wanted)

    def test_no_shm_goes_by_the_network(self):
        self.check(self.world(2, "--no-shm"), [1, 1])

    def test_one_rank_without_it_is_enough(self):
        cluster = self.world(2)
        cluster.agents[1].program.kill()
        cluster.agent_options += ("--no-shm",)
        cluster.replace(1)
        warm(cluster)
        self.check(cluster, [1, 1])

    def test_another_host_id_goes_by_the_network_and_the_others_share(self):
        cluster = self.world(3)
        cluster.agents[1].program.kill()
        cluster.agent_options += ("--host-id", "elsewhere")
        cluster.replace(1)
        self.check(cluster, [2, 1, 2])

    def test_eight_ranks_share_and_progress(self):
        self.check(self.world(8), [8] * 8)


class Ends(unittest.TestCase):
    def world(self, size):
        cluster = Cluster(size, "--memory-limit", "256MiB")
        self.addCleanup(cluster.kill)
        warm(cluster)
        for agent in cluster.agents:
            create(agent, 8 << 20)
        return cluster

    def loop_until_failure(self, cluster, ranks, during):
        """All ranks reduce 32 MiB again and again while `during` does what it does; their failures, and when."""
        ended = {}

        def call(agent):
            try:
                while True:
                    reduce_in_place(agent)
            finally:
                ended[agent.rank] = time.monotonic()

        thread = threading.Thread(target=during)
        thread.start()
        failures = cluster.on(ranks, call)
        thread.join()
        return failures, ended

    def test_a_kill_in_the_middle_is_named_at_once_and_nothing_is_kept(self):
        cluster = self.world(3)
        before = [descriptors(cluster.agents[rank]) for rank in (0, 2)]
        died = []

        def kill():
            time.sleep(0.2)
            died.append(time.monotonic())
            cluster.agents[1].program.kill()

        failures, ended = self.loop_until_failure(cluster, [0, 1, 2], kill)
        for rank in (0, 2):
            agent = cluster.agents[rank]
            self.assertEqual((failures[rank].code, failures[rank].reason), (GONE, "RANK_LOST"))
            self.assertIn("rank 1 is gone", failures[rank].text)
            self.assertLess(ended[rank] - died[0], 1.5)
            wait_until(self, lambda: agent.stats().op_running_count == 0, "an op keeps its memory")
            wait_until(self, lambda: arenas(agent) == 2, "the dead rank's memory stays mapped")
            agent.delete("x")
            self.assertEqual(agent.stats().memory_used_bytes, 0)
        for rank, count in zip((0, 2), before):
            wait_until(self, lambda: descriptors(cluster.agents[rank]) <= count, "descriptors leak")

    def test_a_rank_that_came_back_shares_again(self):
        cluster = self.world(2)
        cluster.agents[1].program.kill()
        cluster.replace(1)
        create(cluster.agents[1], 8 << 20)
        wait_until(self, lambda: not any(isinstance(result, support.Failure) for result in
                                         cluster.all(reduce_in_place)), "the world does not work")
        warm(cluster)
        self.assertEqual([arenas(agent) for agent in cluster.agents], [2, 2])

    def test_memory_that_a_stopped_rank_holds_comes_back_when_it_goes_on(self):
        cluster = self.world(2)
        stopped = cluster.agents[1].program

        def call(agent):
            for _ in range(1000):
                reduce_in_place(agent, timeout=2)

        def stop():
            time.sleep(0.15)
            stopped.send(signal.SIGSTOP)

        results = {}
        calls = [threading.Thread(target=lambda rank: results.update({rank: cluster.on([rank], call)[0]}),
                                  args=(rank,)) for rank in (0, 1)]
        for one in calls:
            one.start()
        stop()
        calls[0].join()
        self.assertIn(results[0].code, (LATE, GONE), results[0])
        stopped.send(signal.SIGCONT)
        calls[1].join()
        agent = cluster.agents[0]
        wait_until(self, lambda: agent.stats().op_running_count == 0, "an op keeps its memory")
        agent.delete("x")
        self.assertEqual(agent.stats().memory_used_bytes, 0)

    def test_an_agent_ends_although_a_stopped_rank_holds_its_memory(self):
        cluster = self.world(2)

        def stop():
            time.sleep(0.15)
            cluster.agents[1].program.send(signal.SIGSTOP)

        thread = threading.Thread(target=stop)
        thread.start()
        calls = [threading.Thread(target=cluster.on, args=([rank], self.forever)) for rank in (0, 1)]
        for call in calls:
            call.start()
        thread.join()
        self.assertEqual(cluster.agents[0].program.stop(), 0)
        cluster.agents[1].program.send(signal.SIGCONT)
        for call in calls:
            call.join()

    @staticmethod
    def forever(agent):
        while True:
            reduce_in_place(agent, timeout=20)


if __name__ == "__main__":
    support.main()
