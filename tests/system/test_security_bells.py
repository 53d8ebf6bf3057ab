"""Goal: who has a lane cannot hold up the other side by their bells, which are open files that both have: it goes on,
serves others, and ends when it is told to.
Method: clients by hand, which make both bells full and blocking, against an agent and a coordinator; and the same done
to the bells of an agent that libtutti rings."""

import ctypes
import os
import queue
import struct
import sys
import time
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

from cluster_case import LONG_S, diagnostics  # noqa: E402
from commands_stream import commands, commands_grpc, tensors  # noqa: E402
from lane_case import Client, WatchedCluster  # noqa: E402
from store_stream_case import Lane, pb, store_grpc  # noqa: E402

TAIL_UP, HEAD_UP, SLEEPS_UP = 256, 256 + 64, 256 + 128
SLEEPS_DOWN = 64 + 128
AT_BELL = 2
COMMANDS = 50
PIDFD_OPEN, PIDFD_GETFD = 434, 438
FULL = struct.pack("<Q", 2**64 - 2)


def spoil(bell):
    """From here on a write to it would block, whichever process makes it."""
    os.set_blocking(bell, False)
    try:
        os.read(bell, 8)
    except BlockingIOError:
        pass  # it is empty
    os.write(bell, FULL)
    os.set_blocking(bell, True)


class HostileLane(Lane):
    """It has a bell of its own, and takes no care of what is sent to it."""

    written = 0

    def read(self, offset):
        return struct.unpack_from("<I", self.memory, offset)[0]

    def put(self, request, rings=True):
        message = request.SerializeToString()
        entry = struct.pack("<II", len(message), 0) + message + bytes(-len(message) % 8)
        self.write(self.RING_DOWN + self.written, "<%ds" % len(entry), entry)
        self.written += len(entry)
        self.write(self.TAIL_DOWN, "<I", self.written)
        if rings and self.read(SLEEPS_DOWN):
            self.write(SLEEPS_DOWN, "<I", 0)
            self.ring()

    def wait_for_more_than(self, tail):
        until = time.monotonic() + LONG_S
        while self.read(TAIL_UP) <= tail:
            assert time.monotonic() < until, tail
            time.sleep(0.002)
        return self.read(TAIL_UP)


class Bells(unittest.TestCase):
    def setUp(self):
        self.cluster = WatchedCluster(1)
        self.addCleanup(self.cluster.stop)

    def harm(self, stub, lane, request):
        """The server has both bells, and rings each of them once at least."""
        held = queue.SimpleQueue()
        call = stub.Run(iter(held.get, None), metadata=lane.metadata, timeout=LONG_S)
        self.addCleanup(held.put, None)
        self.addCleanup(call.cancel)
        lane.put(request(1))
        tail = lane.wait_for_more_than(0)
        lane.write(HEAD_UP, "<I", tail)
        spoil(lane.fds[2])
        lane.write(SLEEPS_UP, "<I", AT_BELL)
        lane.put(request(2))
        lane.wait_for_more_than(tail)
        spoil(lane.fds[1])
        for number in range(3, COMMANDS):  # one after the other, so that it finds some when it asks for more
            lane.write(SLEEPS_UP, "<I", AT_BELL)
            lane.put(request(number), rings=False)

    def ends_when_it_is_told_to(self, program):
        self.assertEqual(program.stop(), 0)

    def test_an_agent_serves_others_and_ends(self):
        agent = self.cluster.agents[0]
        stub = commands_grpc.CommandsServiceStub(agent.channel)
        lane = HostileLane(stub, commands.OpenLaneRequest, bell=True)
        self.addCleanup(lane.close)
        self.harm(stub, lane, lambda number: commands.RunRequest(id=number, stat=tensors.StatRequest(handle="none")))
        other = Client(self, agent)
        other.say("ops", 20)
        self.assertEqual(other.hear(), "ok")
        self.assertTrue(agent.diagnostics.DescribeAgent(diagnostics.DescribeAgentRequest(), timeout=LONG_S).joined)
        self.ends_when_it_is_told_to(agent.program)

    def test_a_coordinator_serves_others_and_ends(self):
        stub = store_grpc.StoreServiceStub(self.cluster.coordinator_channel)
        lane = HostileLane(stub, bell=True)
        self.addCleanup(lane.close)
        self.harm(stub, lane, lambda number: pb.StoreServiceRunRequest(
            id=number, get=pb.StoreServiceGetRequest(key=b"none")))
        for _ in range(20):
            stub.Set(pb.StoreServiceSetRequest(key=b"key", value=b"1"), timeout=LONG_S)
        self.assertTrue(self.cluster.agents[0].describe().joined)
        self.ends_when_it_is_told_to(self.cluster.coordinator)

    def test_an_agent_that_does_so_does_not_hold_up_libtutti(self):
        agent = self.cluster.agents[0]
        client = Client(self, agent)
        client.say("ops", 20)
        self.assertEqual(client.hear(), "ok")
        self.assertEqual(spoil_shared(agent.program.process.pid, client.process.pid), 1)
        client.say("ops", 200)
        self.assertEqual(client.hear(), "ok")


def _eventfds(pid):
    """By their numbers in the kernel: of this process's descriptors one each."""
    found = {}
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            with open("/proc/%d/fdinfo/%s" % (pid, fd)) as file:
                found.update({line: int(fd) for line in file if line.startswith("eventfd-id")})
        except OSError:
            pass  # closed meanwhile
    return found


def spoil_shared(pid, other):
    """Spoil all bells that both processes have; how many."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    ours, theirs = _eventfds(pid), _eventfds(other)
    shared = [ours[name] for name in ours if name in theirs]
    process = call(PIDFD_OPEN, pid, 0)
    for fd in shared:
        bell = call(PIDFD_GETFD, process, fd, 0)
        assert bell >= 0, os.strerror(ctypes.get_errno())
        spoil(bell)
        os.close(bell)
    os.close(process)
    return len(shared)


if __name__ == "__main__":
    support.main()
