"""Schedules that leave an agent, or the coordinator, without descriptors for a while."""

import os
import resource
import socket
import threading
import time

import grpc

from cluster_case import LONG_S, coordinator, coordinator_grpc, diagnostics, diagnostics_grpc, support
from fault_cluster import Broken
from schedules import Schedule

FLOOD = 40  # connections beyond what there is room for


class DescriptorSchedule(Schedule):
    """Its limit is lowered to what it has, and connections take the rest. It must live on, and hear new clients after."""

    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        self.room = self.random.randrange(6)
        self.for_s = self.random.uniform(0.1, 1)
        self.struck, self.flood = None, []
        self.name += " [%d left for %.1f s]" % (self.room, self.for_s)

    def strike(self, cluster):
        if self.fault == "descriptors":
            self.struck = cluster.agents[self.victim].program
        else:
            self.struck = cluster.coordinator
            self.wait_in_touch(cluster)
        pid = self.struck.process.pid
        self.limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        held = [int(name) for name in os.listdir("/proc/%d/fd" % pid)]
        most = max(held) + 1 + self.room
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, self.limit[1]))
        host, port = self.struck.address.rsplit(":", 1)
        for _ in range(most - len(held) + FLOOD):
            self.flood.append(socket.create_connection((host, int(port)), timeout=LONG_S))
        self.timer = threading.Timer(self.for_s, self.give_back)
        self.timer.start()

    def wait_in_touch(self, cluster):
        """A rank whose connection the last fault has broken would not get another one now, and be lost."""
        until = time.monotonic() + LONG_S
        for agent in cluster.agents:
            while agent.program.log().rfind("lost the coordinator") > agent.program.log().rfind("in touch with the"):
                if time.monotonic() > until:
                    raise Broken("rank %d does not find the coordinator" % agent.rank)
                time.sleep(0.02)

    def give_back(self):
        for one in self.flood:
            one.close()
        if self.struck.process.poll() is None:
            resource.prlimit(self.struck.process.pid, resource.RLIMIT_NOFILE, self.limit)

    def play(self, cluster):
        results = super().play(cluster)
        self.timer.join(LONG_S)
        if self.struck.process.poll() is not None:
            raise Broken("without descriptors it ended: %s" % self.struck.log()[-500:])
        self.meet_new_client(cluster)
        return results

    def meet_new_client(self, cluster):
        began = time.monotonic()
        with grpc.insecure_channel(self.struck.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            if self.fault == "descriptors":
                stub = diagnostics_grpc.DiagnosticsServiceStub(channel)
                ask, request = stub.DescribeAgent, diagnostics.DescribeAgentRequest()
            else:
                stub = coordinator_grpc.CoordinatorServiceStub(channel)
                ask, request = stub.GetJob, coordinator.GetJobRequest()
            try:
                ask(request, timeout=LONG_S, wait_for_ready=True)
            except grpc.RpcError as error:
                raise Broken("a new client is not heard for %.0f s: %s" % (
                    time.monotonic() - began, support.Failure(error)))

    def judge_failure(self, rank, failure):
        """Who needs a descriptor may be told that there is none; the others, whose rank that is."""
        if self.fault == "descriptors" and "descriptor" in failure.text and failure.reason != "":
            return
        if failure.reason == "UNREACHABLE" or self.phase == "group" and "was refused" in failure.text:
            return  # a client that came just then: libtutti asks the coordinator who is the root of a group
        super().judge_failure(rank, failure)

    def reasons(self):
        return ()
