"""Where tensors live in a run: in host memory, or on GPUs, real ones or stand-ins."""

import os

import cluster_case
import lane_case
from wire import support

# Functions that sessions call, of tests/plugins.
PLUGIN = os.path.join(support.BUILD, "tests", "plugins", "tests_plugin.so")
HOST = "host"
NCCL = "nccl"


class GpuAgent(cluster_case.Agent):
    """One of several agents on a GPU: for NCCL each is a host of its own."""

    def start(self, *words):
        environment = {"NCCL_HOSTID": "tutti-rank-%s" % self.rank, "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
        return support.Program("tutti-agent", *words, environment=environment)


class GpuCluster(cluster_case.Cluster):
    agent_class = GpuAgent


class LaneCluster(lane_case.WatchedCluster):
    """Adds up the messages that came by lanes, before its agents end."""

    messages = 0  # of all clusters

    def note_messages(self):
        for agent in self.agents:
            try:
                LaneCluster.messages += agent.messages()
            except OSError:
                pass  # it has ended, and what it has counted is lost

    def stop(self):
        self.note_messages()
        super().stop()

    def kill(self):
        self.note_messages()
        super().kill()


class Place:
    """Which agents a world is made of."""

    def __init__(self, make=cluster_case.Cluster, options=()):
        self.make = make
        self.options = (*options, "--plugin", PLUGIN) if os.path.exists(PLUGIN) else options


def prepare(backend, stand_in):
    """A Place; or None and the reason."""
    if backend == HOST:
        return Place(), ""
    modules = os.path.join(support.BUILD, "standin") if stand_in else support.BUILD
    for name in ("tutti-cuda.so", "tutti-nccl.so"):
        if not os.path.exists(os.path.join(modules, name)):
            return None, "no %s in %s" % (name, modules)
    os.environ["TUTTI_MODULES"] = modules
    if stand_in:
        os.environ["TUTTI_STANDIN_CUDA"] = "memory:256"
    options = ("--device", "cuda:0", "--allow-shared-gpu")
    code, _, said = support.run("tutti-agent", "--device", "cuda:0", "--join-timeout", "1ms",
                                "--coordinator", "127.0.0.1:1")
    if "cuda:0: " in said:
        return None, said.strip()
    return Place(GpuCluster, options), ""
