"""Clients of the store for tests, coordinators that tell how many lanes they have, and a lane taken by hand."""

import mmap
import os
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import metrics_page
import support

support.build_stubs()

from tutti.v1 import store_service_pb2 as pb  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402

PROGRAM = os.path.join(support.BUILD, "tests", "client", "store_program")
LONG_S = 30


def host_id():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() + "/" + os.readlink("/proc/self/ns/ipc")


class Client:
    """One store_program."""

    def __init__(self, case, address, *words, **environment):
        self.process = subprocess.Popen([PROGRAM, address, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=dict(os.environ, **environment))
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        case.addCleanup(self.process.stdin.close)

    def say(self, word, number=0):
        self.process.stdin.write("%s %d\n" % (word, number))
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def ask(self, word, number=0):
        self.say(word, number)
        return self.hear()


class Coordinator(support.Program):
    """One with metrics."""

    def __init__(self, *options, **more):
        self.metrics = tempfile.TemporaryDirectory(prefix="tutti-store-stream-")
        self.metrics_file = os.path.join(self.metrics.name, "metrics")
        super().__init__("tutti-coordinator", "--metrics=127.0.0.1:0", "--metrics-port-file=" + self.metrics_file,
                         *options, **more)

    def page(self):
        with open(self.metrics_file) as file:
            return metrics_page.read(file.read().strip())

    def lanes(self):
        return int(self.page().value("tutti_coordinator_lanes"))

    def messages(self):
        return int(self.page().value("tutti_coordinator_lane_messages_total"))

    def calls(self, method):
        return int(self.page().sum("tutti_rpc_calls_total", service="tutti.v1.StoreService", method=method, code="OK"))


class Case(unittest.TestCase):
    """Each test has a coordinator of its own, whose options are the class's."""

    options = ()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-store-stream-")
        self.addCleanup(self.folder.cleanup)
        self.coordinator = self.start(*self.options)

    def start(self, *options, **more):
        words = [word.replace("FOLDER", os.path.join(self.folder.name, "store")) for word in options]
        coordinator = Coordinator(*words, **more)
        self.addCleanup(coordinator.kill)
        return coordinator

    def client(self, *words, **environment):
        return Client(self, self.coordinator.address, *words, **environment)

    def stub(self):
        channel = self.coordinator.channel()
        self.addCleanup(channel.close)
        return store_grpc.StoreServiceStub(channel)

    def wait_lanes(self, count):
        until = time.monotonic() + LONG_S
        while self.coordinator.lanes() != count:
            self.assertLess(time.monotonic(), until, self.coordinator.lanes())
            time.sleep(0.02)


class Lane:
    """A lane as docs/lanes.md has it, far enough to do harm."""

    TAIL_DOWN, RING_DOWN, RING_BYTES = 64, 448, 65536

    def __init__(self, stub, request=pb.StoreServiceOpenLaneRequest, **fields):
        offer = stub.OpenLane(request(host_id=host_id(), **fields), timeout=support.CALL_S)
        self.token = offer.token
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(b"\0" + offer.socket.encode())
        self.socket.send(b"tthello1" + offer.token)
        said, self.fds, _, _ = socket.recv_fds(self.socket, 64, 4)
        assert struct.unpack("<8sIIQ", said) == (b"ttshare1", 0, 1, offer.byte_count), said
        self.memory = mmap.mmap(self.fds[0], offer.byte_count)

    @property
    def metadata(self):
        return [("tutti-lane", self.token.hex())]

    def write(self, offset, form, *numbers):
        struct.pack_into(form, self.memory, offset, *numbers)

    def ring(self):
        os.write(self.fds[1], struct.pack("<Q", 1))

    def close(self):
        self.memory.close()
        for fd in self.fds:
            os.close(fd)
        self.socket.close()
