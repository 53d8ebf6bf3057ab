"""Goal: all that an outsider can make grow has a limit; one who passes it is told its name, and nobody
else suffers.
Method: the options of the two programs and the table of docs/security.md are held against each other,
so that neither forgets one; then real processes with small limits, each of them passed."""

import os
import re
import subprocess
import sys
import threading
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

import grpc  # noqa: E402
import numpy as np  # noqa: E402

from cluster_case import (  # noqa: E402
    Cluster,
    LONG_S,
    collectives,
    collectives_grpc,
    coordinator,
    spec_of,
)
from cluster_case import tensors, tracers  # noqa: E402
from tutti.v1 import store_service_pb2 as store  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402

CODE = grpc.StatusCode
PROGRAMS = ("tutti-agent", "tutti-coordinator")
# Options with a limit in their name, or whose text says that they bound something.
LIMITS = re.compile(r"(-limit|-max|-quota|^handshake-timeout|^keepalive-timeout|-interval-min)$")
PAGE = os.path.join(support.SOURCE, "docs", "security.md")


def options_of(program):
    path = os.path.join(support.PROGRAMS, program)
    done = subprocess.run([path, "--print-config"], stdout=subprocess.PIPE, close_fds=False)
    return set(re.findall(r"^(?:# )?([a-z-]+) = ", done.stdout.decode(), re.M))


class Table(unittest.TestCase):
    def listed(self):
        with open(PAGE) as file:
            (section,) = re.findall(r"^## Limits\n(.*?)^## ", file.read(), re.M | re.S)
        rows = [line for line in section.split("\n") if line.startswith("|")]
        return set(re.findall(r"--([a-z][a-z-]+)", "\n".join(rows)))

    def test_every_limit_is_in_the_table_and_every_row_is_an_option(self):
        known = set().union(*(options_of(program) for program in PROGRAMS))
        self.assertGreater(len(known), 50)
        limits = {name for name in known if LIMITS.search(name)}
        self.assertEqual(limits - self.listed(), set(), "put them into docs/security.md, Limits")
        self.assertEqual(self.listed() - known, set(), "no program has these options")


class Passed(unittest.TestCase):
    def refused(self, reason, call):
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (CODE.RESOURCE_EXHAUSTED, reason), failure)
        return failure.text


class OfOneClient(Passed):
    """What one client has begun and left leaves places for others."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(2, "--ops-max", "4", "--client-ops-max", "2")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def client(self, name):
        """A connection of a client that shows such a name."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.primary_user_agent", name)]
        channel = self.cluster.agents[0].program.channel(*options)
        self.addCleanup(channel.close)
        return collectives_grpc.CollectivesServiceStub(channel)

    def test_ops_in_flight(self):
        request = collectives.BarrierRequest(options={"async": True})
        began = [self.client("tutti/0.1.0 a").Barrier(request, timeout=LONG_S) for _ in range(2)]
        same = self.client("tutti/0.1.0 a")  # another connection of it
        said = self.refused("OP_LIMIT", lambda: same.Barrier(request, timeout=LONG_S))
        self.assertIn("--client-ops-max", said)
        began.append(self.client("tutti/0.1.0 b").Barrier(request, timeout=LONG_S))
        foreign = self.client("whoever/1")  # these are told apart by their connections
        began.append(foreign.Barrier(request, timeout=LONG_S))
        said = self.refused("OP_LIMIT", lambda: foreign.Barrier(request, timeout=LONG_S))
        self.assertIn("(--ops-max)", said)
        for _ in began:
            self.cluster.agents[1].ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)
        names = [work.info.work for work in began]
        same.Wait(collectives.WaitRequest(works=names), timeout=LONG_S)
        again = same.Barrier(request, timeout=LONG_S)  # its places are free again
        self.cluster.agents[1].ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)
        same.Wait(collectives.WaitRequest(works=[again.info.work]), timeout=LONG_S)


class AtAnAgent(Passed):
    @classmethod
    def setUpClass(cls):
        limits = ("--ops-max", "4", "--handles-max", "8", "--tracers-max", "2", "--tape-max", "3")
        cls.cluster = Cluster(2, *limits, "--memory-limit", "64MiB")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def works(self):
        for agent in self.cluster.agents:
            for entry in agent.tensors.List(tensors.ListRequest(), timeout=LONG_S).tensors:
                agent.delete(entry.tensor.handle)
        barrier = lambda agent: agent.ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)  # noqa: E731
        self.cluster.all(barrier)

    def test_ops_in_flight(self):
        first, second = self.cluster.agents
        request = collectives.BarrierRequest(options={"async": True})
        works = [first.ops.Barrier(request, timeout=LONG_S) for _ in range(4)]
        said = self.refused("OP_LIMIT", lambda: first.ops.Barrier(request, timeout=LONG_S))
        self.assertIn("--ops-max", said)
        for _ in works:
            second.ops.Barrier(collectives.BarrierRequest(), timeout=LONG_S)
        names = [work.info.work for work in works]
        first.ops.Wait(collectives.WaitRequest(works=names), timeout=LONG_S)
        self.works()

    def test_tensors(self):
        agent = self.cluster.agents[0]
        for _ in range(8):
            agent.put(np.ones(4, np.float32))
        said = self.refused("HANDLE_LIMIT", lambda: agent.put(np.ones(4, np.float32)))
        self.assertIn("--handles-max", said)
        self.works()

    def test_bytes_of_tensors(self):
        agent = self.cluster.agents[0]
        spec = spec_of(np.ones(1, np.uint8))
        spec.shape[0] = 65 << 20
        request = tensors.CreateRequest(spec=spec)
        large = lambda: agent.tensors.Create(request, timeout=LONG_S)  # noqa: E731
        self.assertIn("of 64 MiB", self.refused("MEMORY_LIMIT", large))
        self.works()

    def test_tracers(self):
        agent = self.cluster.agents[0]
        create = lambda name: agent.tracers.CreateTracer(  # noqa: E731
            tracers.CreateTracerRequest(name=name), timeout=LONG_S
        )
        for name in ("a", "b"):
            create(name)
        self.assertIn("--tracers-max", self.refused("TRACER_LIMIT", lambda: create("c")))
        for name in ("a", "b"):
            agent.tracers.DeleteTracer(tracers.DeleteTracerRequest(tracer=name), timeout=LONG_S)
        self.works()

    def test_a_message_besides_its_payload(self):
        request = collectives.BarrierRequest(group="g" * (5 << 20))
        agent = self.cluster.agents[0]
        self.refused("MESSAGE_LIMIT", lambda: agent.ops.Barrier(request, timeout=LONG_S))
        self.works()


class AtTheCoordinator(Passed):
    @classmethod
    def setUpClass(cls):
        limits = ("--job-limit", "1", "--group-limit", "2", "--store-keys-limit", "3")
        limits += ("--store-bytes-limit", "64KiB", "--waiter-limit", "8", "--watcher-limit", "2")
        cls.cluster = Cluster(2, coordinator_options=limits)
        cls.channel = cls.cluster.coordinator_channel
        cls.store = store_grpc.StoreServiceStub(cls.channel)
        cls.jobs = cls.cluster.members

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def set(self, key, value=b""):
        request = store.StoreServiceSetRequest(key=key, value=value)
        return self.store.Set(request, timeout=LONG_S)

    def delete(self, key):
        self.store.Delete(store.StoreServiceDeleteRequest(key=key), timeout=LONG_S)

    def test_keys_and_their_bytes(self):
        for key in (b"a", b"b", b"c"):
            self.set(key)
        self.assertIn("--store-keys-limit", self.refused("STORE_LIMIT", lambda: self.set(b"d")))
        said = self.refused("STORE_LIMIT", lambda: self.set(b"a", b"x" * (65 << 10)))
        self.assertIn("--store-bytes-limit", said)
        for key in (b"a", b"b", b"c"):
            self.delete(key)
        self.set(b"d")
        self.delete(b"d")

    def test_groups(self):
        found = self.jobs.LookupRanks(coordinator.LookupRanksRequest(ranks=[0]), timeout=LONG_S)
        member = {"rank": 0, "incarnation": found.ranks[0].incarnation}

        def make(name):
            request = coordinator.CreateGroupRequest(member=member, name=name, ranks=[0])
            return self.jobs.CreateGroup(request, timeout=LONG_S)

        made = []
        with self.assertRaises(grpc.RpcError) as caught:
            for number in range(9):  # "world" counts, or does not
                make("g%d" % number)
                made.append("g%d" % number)
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (CODE.RESOURCE_EXHAUSTED, "GROUP_LIMIT"))
        self.assertLessEqual(len(made), 2)
        for name in made:
            request = coordinator.DeleteGroupRequest(member=member, name=name)
            self.jobs.DeleteGroup(request, timeout=LONG_S)
        make("again")

    def test_jobs(self):
        agent = {"host": "h"}
        request = coordinator.JoinRequest(job="other", world_size=2, incarnation=9, agent=agent)
        said = self.refused("JOB_LIMIT", lambda: list(self.jobs.Join(request, timeout=LONG_S)))
        self.assertIn("--job-limit", said)

    def test_who_waits_and_who_watches(self):
        wait = store.StoreServiceWaitRequest(keys=[b"never"])
        parked = [self.store.Wait.future(wait, timeout=LONG_S) for _ in range(20)]
        codes, ended = [], threading.Event()

        def on_end(call):
            codes.append(call.code())
            ended.set() if len(codes) >= 12 else None

        for call in parked:
            call.add_done_callback(on_end)
        self.assertTrue(ended.wait(LONG_S))  # those above the limit, and what else waits counts too
        self.assertEqual(set(codes), {CODE.RESOURCE_EXHAUSTED})
        for call in parked:
            call.cancel()
        watch = store.StoreServiceWatchRequest(prefix=b"x")
        watching = [self.store.Watch(watch, timeout=LONG_S) for _ in range(2)]
        for call in watching:
            next(call)  # it has begun
        third = lambda: next(self.store.Watch(watch, timeout=LONG_S))  # noqa: E731
        self.assertIn("--watcher-limit", self.refused("WAITER_LIMIT", third))
        for call in watching:
            call.cancel()


if __name__ == "__main__":
    support.main()
