"""Clusters for --lane: the callers of ops are clients of libtutti, one for each agent, whose calls go through lanes."""

import os

import lane_ops
from fault_cluster import FaultAgent, FaultCluster
from points import WireCluster

import metrics_page

SHARE = 0.5  # of the ops by libtutti that must be seen in lanes: agents that are killed take their counts along


class LaneAgent(FaultAgent):
    """Its `ops` go by libtutti from the time that it has joined, and until then by gRPC."""

    native = None  # the module, of all agents

    def __init__(self, *words):
        self.by_stubs = None
        self.counted = 0
        super().__init__(*words)
        self.by_stubs = self.ops

    def start(self, *words):
        self.metrics_file = self.page.path + ".metrics"
        return super().start("--metrics=127.0.0.1:0", "--metrics-port-file=" + self.metrics_file, *words)

    def wait_joined(self):
        super().wait_joined()
        self.connect()

    def connect(self):
        if self.ops is self.by_stubs:
            self.ops = lane_ops.Stub(self.native, self.by_stubs, self.program.address, self.rank, self.cluster.size)

    def count(self):
        """Adds up the messages of clients that came by lanes since the last time."""
        with open(self.metrics_file) as file:
            page = metrics_page.read(file.read().strip())
        now = int(page.value("tutti_agent_lane_messages_total"))
        lane_ops.COUNTS.add("messages", now - self.counted)
        self.counted = now

    def renew_client(self):
        self.disconnect()
        super().renew_client()
        self.by_stubs = self.ops
        self.connect()

    def disconnect(self):
        if self.ops is not self.by_stubs:
            self.ops.close()
        self.ops = self.by_stubs

    def close(self):
        self.disconnect()
        super().close()
        if os.path.exists(self.metrics_file):
            os.remove(self.metrics_file)


class Lanes:
    """Of a cluster whose agents are LaneAgents."""

    agent_class = LaneAgent

    def check_rest(self):
        """Of a client that has gone nothing is left; then there is another one."""
        for agent in self.agents:
            agent.disconnect()
        super().check_rest()
        for agent in self.agents:
            agent.count()
            agent.connect()

    def is_member(self, rank):
        """Who joined while a schedule waited for it has its connection yet to come."""
        return super().is_member(rank) and self.agents[rank].ops is not self.agents[rank].by_stubs


class LaneCluster(Lanes, FaultCluster):
    pass


class LaneWireCluster(Lanes, WireCluster):
    pass


def prepare():
    """Load what is needed; why it cannot be, or None."""
    LaneAgent.native = lane_ops.load()
    if LaneAgent.native is None:
        return "the package's native module is not built (cmake --build --preset dev --target tutti_native)"
    return None


def wrong():
    """What is wrong with the way that ops took; None = nothing."""
    found = lane_ops.COUNTS.found
    if found["libtutti"] == 0 or found["messages"] < SHARE * found["libtutti"]:
        return "%(libtutti)d ops went by libtutti, and only %(messages)d messages through lanes" % found
    return None


def told():
    return "%(libtutti)d ops by libtutti, of which lanes have carried %(messages)d messages or more; " \
        "%(stubs)d ops by stubs" % lane_ops.COUNTS.found
