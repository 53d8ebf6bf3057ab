"""The cluster that schedules spoil: a durable coordinator, a relay before each agent, and what must not leak."""

import os
import signal
import sys
import tempfile
import threading
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

import support  # noqa: E402
from cluster_case import (  # noqa: E402
    LONG_S, Agent, Cluster, all_reduce, collectives, coordinator, coordinator_grpc, tensors,
)
from cluster_case import types as messages  # noqa: E402
from chaos_page import Page  # noqa: E402
from relay import Relay  # noqa: E402

import grpc  # noqa: E402
import numpy as np  # noqa: E402

HEARTBEAT_S = 2.5  # silence after which a rank is lost; a busy machine must not be taken for it
KEEP_BYTES = 65536
AGENT_OPTIONS = ("--memory-limit", "256MiB", "--net-devices", "lo")  # others' interfaces come and go


class Broken(Exception):
    """An invariant does not hold."""


class FaultAgent(Agent):
    def __init__(self, cluster, rank, *options):
        self.relay = Relay(cluster.coordinator.address)
        self.page = Page()
        behind = types.SimpleNamespace(
            coordinator=types.SimpleNamespace(address=self.relay.address), size=cluster.size
        )
        super().__init__(behind, rank, *options)
        self.cluster = cluster
        self.kept = None

    def start(self, *words):
        return support.Program("tutti-agent", *words, environment={"TUTTI_CHAOS": self.page.path})

    def close(self):
        super().close()
        self.relay.close()
        self.page.close()

    def renew_client(self):
        """As if another program came: its first op is behind what has ended before it came (docs/decisions/0049)."""
        self.channel.close()
        self.open_channel()

    def keep(self):
        """A tensor that must outlive whatever happens to others."""
        self.kept = np.frombuffer(os.urandom(KEEP_BYTES), np.uint8)
        self.put(self.kept, name="keep")


class FaultCluster(Cluster):
    agent_class = FaultAgent

    def __init__(self, size, *agent_options):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-faults-")
        self.starting = threading.Lock()
        self.size, self.agent_options, self.agents = size, AGENT_OPTIONS + agent_options, []
        self.options = (
            "--store", "lmdb:" + self.folder.name, "--heartbeat-interval", "250ms",
            "--heartbeat-timeout", "%dms" % (HEARTBEAT_S * 1000),
        )
        self.coordinator = self.run_coordinator("127.0.0.1:0")
        self.connect()
        try:
            for rank in range(size):
                self.agents.append(self.agent_class(self, rank, *self.agent_options))
            for agent in self.agents:
                agent.wait_joined()
                agent.keep()
        except BaseException:
            self.kill()
            raise

    def run_coordinator(self, listen):
        return support.Program("tutti-coordinator", *self.options, listen=listen)

    def connect(self):
        self.coordinator_channel = self.coordinator.channel()
        self.members = coordinator_grpc.CoordinatorServiceStub(self.coordinator_channel)

    def kill_coordinator(self):
        self.coordinator.kill()

    def start_coordinator(self):
        with self.starting:  # a schedule's timer may be at it
            if self.coordinator.process.poll() is not None:
                self.coordinator = self.run_coordinator(self.coordinator.address)

    def begin_replacing(self, rank):
        old = self.agents[rank]
        old.program.kill()
        old.close()
        self.agents[rank] = self.agent_class(self, rank, *self.agent_options)
        return self.agents[rank]

    def replace(self, rank):
        agent = self.begin_replacing(rank)
        agent.wait_joined()
        agent.keep()

    def is_member(self, rank):
        """Its process runs and sits in its seat."""
        agent = self.agents[rank]
        if agent.program.process.poll() is not None:
            return False
        try:
            return agent.describe().joined and agent.kept is not None
        except grpc.RpcError:
            return False

    def mend(self):
        """The network is whole again."""
        for agent in self.agents:
            agent.relay.silence(False)

    def heal(self, doubtful):
        """Everything that can run runs again. `doubtful`: ranks that may have lost their seats."""
        self.start_coordinator()
        self.mend()
        for agent in self.agents:
            if agent.program.process.poll() is None:
                agent.program.send(signal.SIGCONT)
        for rank in range(self.size):
            if rank in doubtful or not self.is_member(rank):
                self.replace(rank)
        self.wait_until_it_works()

    def wait_until_it_works(self):
        until = time.monotonic() + 40
        while True:
            results = self.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), timeout=3))
            if not any(isinstance(one, support.Failure) for one in results):
                for result in results:
                    if list(result) != [self.size]:
                        raise Broken("world sums to %s" % result)
                return
            if time.monotonic() > until:
                raise Broken("world does not work again: %s" % results)

    # ------------------------------------------------------------------ invariants

    def check_rest(self):
        """Nothing runs, nothing is left but what is kept, and that is what it was."""
        for agent in self.agents:
            self.delete_left(agent)
            until = time.monotonic() + 10
            while True:
                stats = agent.stats()
                if (stats.tensor_count, stats.op_running_count, stats.call_running_count) == (1, 0, 0) \
                        and stats.memory_used_bytes == KEEP_BYTES:
                    break
                if time.monotonic() > until:
                    raise Broken("rank %d keeps %s" % (agent.rank, str(stats).replace("\n", " ")))
                time.sleep(0.01)
            if not np.array_equal(agent.get("keep"), agent.kept):
                raise Broken("the tensor of rank %d has changed" % agent.rank)

    def delete_left(self, agent):
        page = agent.tensors.List(tensors.ListRequest(page_size=1000), timeout=LONG_S)
        for info in page.tensors:
            if info.name != "keep":
                try:
                    agent.delete(info.tensor.handle)
                except grpc.RpcError:
                    pass  # an upload that was cut takes its tensor away by itself

    def drop_group(self, name):
        for agent in self.agents:
            if agent.program.process.poll() is not None:
                continue
            member = coordinator_member(agent)
            try:
                self.members.DeleteGroup(
                    coordinator.DeleteGroupRequest(member=member, name=name, allow_missing=True),
                    timeout=LONG_S, wait_for_ready=True,
                )
                return
            except grpc.RpcError:
                continue

    def end(self):
        for agent in self.agents:
            if agent.program.process.poll() is None:
                agent.program.send(signal.SIGCONT)
        codes, log = [], ""
        for agent in self.agents:
            codes.append(agent.program.stop())
            log = agent.program.log() if codes[-1] else log
            agent.close()
        codes.append(self.coordinator.stop())
        log = self.coordinator.log() if codes[-1] else log
        self.coordinator_channel.close()
        self.folder.cleanup()
        if any(codes):
            raise Broken("exit codes %s: %s" % (codes, log[-500:]))


def coordinator_member(agent):
    return messages.Member(rank=agent.rank, incarnation=agent.describe().incarnation)
