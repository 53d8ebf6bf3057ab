"""The cluster of fault_cluster.py, every process on a host of its own: network namespaces that can be cut apart."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import namespaces  # noqa: E402
from fault_cluster import FaultAgent, FaultCluster  # noqa: E402
from cluster_case import Agent, support  # noqa: E402


class NetAgent(FaultAgent):
    def __init__(self, cluster, rank, *options):
        self.host = cluster.host_of(rank)
        Agent.__init__(self, cluster, rank, *options)
        self.kept = None

    def start(self, *words):
        # Each says that it is another host: the boot id is the same, and memory is not to be shared.
        return support.Program("tutti-agent", *words, "--insecure", "--host-id", self.host.name,
                               listen=self.host.address + ":0", host=self.host)

    def close(self):
        Agent.close(self)


class NetCluster(FaultCluster):
    agent_class = NetAgent

    def __init__(self, size):
        self.network = namespaces.Network(size + 1)
        super().__init__(size, "--net-devices", "eth0")

    @property
    def seat(self):
        """The coordinator's host."""
        return self.network.hosts[-1]

    def host_of(self, rank):
        return self.network.hosts[rank]

    def run_coordinator(self, listen):
        if listen.startswith("127."):
            listen = self.seat.address + ":0"
        return support.Program("tutti-coordinator", *self.options, "--insecure", listen=listen, host=self.seat)

    def mend(self):
        self.network.join()

    def kill(self):
        super().kill()
        self.network.close()

    def end(self):
        try:
            super().end()
        finally:
            self.network.close()
