"""Goal: a tensor that comes or goes over several streams is one tensor: all of it or none; ranges that
do not fit, streams that end and streams that never come are refused by name and leave nothing.

Method: a real agent; the streams are written by hand, and libtutti writes them (streams_program.c).
"""

import os
import queue
import subprocess
import tempfile
import time
import unittest

import grpc
import numpy as np

import support
import tokens
from cluster_case import LONG_S, ClusterCase, MeteredCluster, spec_of, tensors, tensors_grpc

PROGRAM = os.path.join(support.BUILD, "tests", "client", "streams_program")
INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXISTS = grpc.StatusCode.ALREADY_EXISTS
ABORTED = grpc.StatusCode.ABORTED
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
SIZE = 10 << 20
PARTS_MAX = 16
CROSSINGS = 200  # of an end of one stream and a cancel of the next


def pattern(size=SIZE):
    return np.arange(size, dtype=np.uint32).astype(np.uint8)


class Whole:
    """An upload into a tensor that is there, by one stream."""

    def __init__(self, stub, into, array):
        self.data, self.sent = array.tobytes(), 0
        self.start = tensors.UploadStart(spec=spec_of(array), into=into)
        self.messages = queue.Queue()
        self.call = stub.Upload.future(iter(self.messages.get, None), timeout=LONG_S)

    def begin(self, size):
        self.messages.put(tensors.UploadRequest(start=self.start, payload=self.data[:size]))
        self.sent = size

    def rest(self):
        self.messages.put(tensors.UploadRequest(offset=self.sent, payload=self.data[self.sent :]))


class Part:
    """A stream of an upload: messages are sent when the test says so."""

    def __init__(self, stub, token, first, end, array=None, metadata=None, **start):
        self.data = pattern().tobytes() if array is None else array.tobytes()
        self.first, self.end = first, end
        self.start = tensors.UploadStart(
            transfer=token, part_offset=first, part_bytes=max(end - first, 0) % 2**64, **start
        )
        if first == 0:
            self.start.spec.CopyFrom(spec_of(pattern() if array is None else array))
        self.messages = queue.Queue()
        self.call = stub.Upload.future(iter(self.messages.get, None), timeout=LONG_S,
                                       metadata=metadata)

    def begin(self, size=1000):
        until = min(self.first + size, self.end)
        self.messages.put(tensors.UploadRequest(
            start=self.start, offset=self.first, payload=self.data[self.first : until]))
        self.sent = until
        return self

    def rest(self):
        while self.sent < self.end:
            until = min(self.sent + (1 << 20), self.end)
            self.messages.put(tensors.UploadRequest(
                offset=self.sent, payload=self.data[self.sent : until]))
            self.sent = until
        self.messages.put(None)
        return self

    def all(self):
        return self.begin().rest()

    def failure(self):
        error = self.call.exception(LONG_S)
        self.messages.put(None)
        return support.Failure(error)


class StreamsCase(ClusterCase):
    size = 1
    cluster_class = MeteredCluster

    def setUp(self):
        self.agent = self.cluster.agents[0]
        self.stub = self.agent.tensors
        self.received = self.agent.received_bytes()
        self.token = os.urandom(16)
        self.channels = []

    def tearDown(self):
        for channel in self.channels:
            channel.close()
        super().tearDown()

    def part(self, first, end, token=None, **more):
        """Of a connection of its own."""
        channel = self.agent.program.channel()
        self.channels.append(channel)
        stub = type(self.stub)(channel)
        return Part(stub, self.token if token is None else token, first, end, **more)

    def wait_until_begun(self, *parts):
        """The agent has what these have sent since the last time. (A call is counted before its first message is read.)"""
        self.received += sum(part.sent - part.first for part in parts)
        self.agent.wait_received(self.received)


class Streams(StreamsCase):
    options = ("--memory-limit", "256MiB")

    def read(self, name, **fields):
        parts = list(self.stub.Download(tensors.DownloadRequest(handle=name, **fields), timeout=LONG_S))
        return b"".join(part.payload for part in parts), parts[0].version

    # ------------------------------------------------------------------ uploads

    def test_parts_in_any_order_are_one_tensor(self):
        borders = [0, 1 << 20, (3 << 20) + 1, 4 << 20, SIZE]
        ranges = list(zip(borders, borders[1:]))
        for order in (ranges, ranges[::-1], ranges[2:] + ranges[:2]):
            self.token = os.urandom(16)
            parts = [self.part(*one).all() for one in order]
            answers = {part.first: part.call.result(LONG_S) for part in parts}
            self.assertEqual(answers[0].byte_count, SIZE)
            self.assertEqual(answers[borders[1]].byte_count, borders[2] - borders[1])
            self.assertFalse(answers[borders[1]].tensor.handle)
            self.assertEqual(self.read(answers[0].tensor.handle)[0], pattern().tobytes())
            self.assertEqual(self.agent.stats().memory_used_bytes, SIZE)
            self.agent.delete(answers[0].tensor.handle)

    def test_the_tensor_is_there_when_all_parts_are(self):
        first = self.part(0, 1 << 20, name="big").all()
        last = self.part(1 << 20, SIZE).begin()
        info = self.wait_for("big")
        self.assertTrue(info.pending)
        reader = self.stub.Download(tensors.DownloadRequest(handle="big"), timeout=LONG_S)
        self.assertFalse(first.call.done())
        last.rest()
        self.assertEqual(first.call.result(LONG_S).byte_count, SIZE)
        self.assertEqual(b"".join(one.payload for one in reader), pattern().tobytes())

    def wait_for(self, name):
        until = time.monotonic() + LONG_S
        while True:
            try:
                return self.stub.Stat(tensors.StatRequest(handle=name)).info
            except grpc.RpcError:
                self.assertLess(time.monotonic(), until, "no " + name)
                time.sleep(0.01)

    def test_an_existing_tensor_is_overwritten_by_parts(self):
        name = self.agent.put(np.zeros(1000, np.uint8))
        small = pattern(1000)
        parts = [self.part(first, first + 500, array=small, **more).all()
                 for first, more in ((500, {}), (0, {"into": name}))]
        for part in parts:
            part.call.result(LONG_S)
        np.testing.assert_array_equal(self.agent.get(name), small)
        other = self.part(0, 500, os.urandom(16), array=pattern(999), into=name).begin()
        self.assert_failed(other.failure(), INVALID, "SHAPE_MISMATCH", "999", "1000")

    def test_ranges_that_do_not_fit_are_refused(self):
        leader = self.part(0, 4000, name="t").begin()
        self.wait_for("t")
        for first, end, word in (
            (3999, 5000, "overlap with the part of 0 to 4000"),
            (1, 2, "overlap"),
            (4000, SIZE + 1, "of a tensor of %d" % SIZE),
            (2**63, 2**63 + 1, "2^63 - 1"),
            (4000, 2**63 + 4000, "2^63 - 1"),
            (4000, 4000, "0 bytes"),
        ):
            failure = self.part(first, end).begin().failure()
            self.assert_failed(failure, INVALID, "BAD_PART", word)
        self.assert_failed(self.part(9, 99, b"short").begin().failure(), INVALID, "BAD_PART", "need 16")
        self.assert_failed(self.part(9, 99, b"").begin().failure(), INVALID, "BAD_PART", "need 16")
        self.assert_failed(self.part(0, SIZE + 1, os.urandom(16)).begin().failure(), INVALID, "BAD_PART")
        self.assertFalse(leader.call.done())  # nobody else's mistake is its own
        second = self.part(4000, SIZE).all()
        leader.rest()
        self.assertEqual(leader.call.result(LONG_S).byte_count, SIZE)
        self.assertEqual(second.call.result(LONG_S).byte_count, SIZE - 4000)

    def test_a_transfer_has_one_first_part_and_not_too_many(self):
        leader = self.part(0, 4000).begin()
        parts = [self.part(4000 + 10 * i, 4010 + 10 * i).begin() for i in range(PARTS_MAX - 1)]
        self.wait_until_begun(leader, *parts)
        for part in parts:
            self.assertEqual(part.rest().call.result(LONG_S).byte_count, 10)
        again = self.part(4000, 4010).begin().failure()
        self.assert_failed(again, INVALID, "BAD_PART", "overlap")  # also when it has arrived
        many = self.part(4990, 5000).begin().failure()
        self.assert_failed(many, INVALID, "BAD_PART", "more than %d parts" % PARTS_MAX)
        failure = self.part(0, 100).begin().failure()
        self.assert_failed(failure, EXISTS, "TRANSFER_TAKEN", "16 random bytes")
        leader.call.cancel()

    def test_bytes_beyond_a_part_end_all_of_it(self):
        leader = self.part(0, 4000, name="t").begin()
        part = self.part(4000, 5000).begin()
        self.wait_until_begun(leader, part)  # a first part that comes behind the end of another waits for it
        part.messages.put(tensors.UploadRequest(offset=5000, payload=b"x"))
        self.assert_failed(part.failure(), INVALID, "SIZE_MISMATCH", "1001 bytes are too many: its part has 1000")
        self.assert_failed(leader.failure(), ABORTED, "PART_FAILED", "bytes 4000 to 5000")

    def test_when_one_stream_ends_early_all_do(self):
        for cut in ("call", "connection", "half close"):
            self.token = os.urandom(16)
            leader = self.part(0, 4000, name="t").begin()
            part = self.part(4000, 9000).begin()
            other = self.part(9000, SIZE).begin()
            self.wait_until_begun(leader, part, other)
            if cut == "call":
                part.call.cancel()
            elif cut == "connection":
                self.channels[-2].close()
            else:
                part.messages.put(None)
                self.assert_failed(part.failure(), INVALID, "SIZE_MISMATCH", "after 1000 bytes, its part has 5000")
            self.assert_failed(leader.failure(), ABORTED, "PART_FAILED", "bytes 4000 to 9000")
            self.assert_failed(other.failure(), ABORTED, "PART_FAILED")
            self.wait_empty(self.agent)

    def test_a_part_that_comes_too_late_waits_for_nobody(self):
        leader = self.part(0, 4000, name="t").begin()
        self.wait_for("t")
        leader.call.cancel()
        self.wait_empty(self.agent)
        late = self.part(4000, SIZE).begin()
        self.assert_failed(late.failure(), ABORTED, "PART_FAILED", "ended before this part came")

    def test_when_the_first_stream_ends_all_do(self):
        leader = self.part(0, 4000).begin()
        part = self.part(4000, SIZE).begin()
        self.token = os.urandom(16)
        waiting = self.part(5, 6).begin()
        self.wait_until_begun(leader, part, waiting)
        leader.call.cancel()
        self.assert_failed(part.failure(), ABORTED, "PART_FAILED", "first byte")
        self.assertFalse(waiting.call.done())
        waiting.call.cancel()

    def test_a_stream_whose_caller_goes_as_its_turn_comes_ends_once(self):
        array = pattern(4096)
        self.stub.Put(tensors.PutRequest(name="both", spec=spec_of(array), payload=array.tobytes()))
        for _ in range(CROSSINGS):
            holder, waiter = (Whole(self.stub, "both", array) for _ in range(2))
            holder.begin(1000)
            time.sleep(0.001)
            waiter.begin(1000)
            time.sleep(0.002)
            holder.rest()
            holder.messages.put(None)
            waiter.call.cancel()
            holder.call.result()
        self.assertEqual(self.read("both")[0], array.tobytes())

    def test_who_waits_for_a_tensor_that_does_not_come_gets_none_of_its_bytes(self):
        for others in range(2):
            leader = self.part(0, 4000, name="t").begin()
            self.wait_for("t")
            reader = self.stub.Download(tensors.DownloadRequest(handle="t"), timeout=LONG_S)
            parts = [self.part(4000, SIZE).begin() for _ in range(others)]
            self.wait_until_begun(leader, *parts)
            while self.agent.stats().call_running_count < 2 + others:
                time.sleep(0.005)  # a download is in line when it is counted
            leader.call.cancel()
            failure = self.fails(lambda: next(reader))
            self.assert_failed(failure, PRECONDITION, "FAILED_PRECONDITION", "never written")
            for part in parts:
                self.assert_failed(part.failure(), ABORTED, "PART_FAILED")
            self.wait_empty(self.agent)

    # ------------------------------------------------------------------ downloads

    def test_the_version_of_a_tensor_grows_when_it_is_written(self):
        name = self.agent.put(np.zeros(100, np.uint8))
        _, before = self.read(name)
        self.assertGreater(before, 0)
        self.assertEqual(self.read(name, offset=50, length=10)[1], before)
        self.agent.put(np.ones(100, np.uint8), into=name)
        self.assertGreater(self.read(name)[1], before)

    def test_libtutti_moves_tensors_over_several_streams(self):
        self.assertEqual(self.agent.describe().transfer_streams_max, PARTS_MAX)
        environment = dict(os.environ, TUTTI_AGENT=self.agent.program.address)
        done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True,
                              timeout=4 * support.START_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Late(StreamsCase):
    options = ("--op-timeout", "2s")

    def test_parts_that_never_come_end_the_upload(self):
        alone = self.part(100, 200, os.urandom(16)).begin()
        leader = self.part(0, 100).all()
        self.assert_failed(leader.failure(), LATE, "TIMEOUT", "the other parts of its tensor have not come")
        self.assert_failed(alone.failure(), LATE, "TIMEOUT", "first byte has not come", "--op-timeout")


class Strangers(unittest.TestCase):
    """Callers with tokens, of one role."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-streams-")
        self.addCleanup(folder.cleanup)

        def write(name, data):
            with open(os.path.join(folder.name, name), "wb") as file:
                file.write(data)
            return file.name

        asks = ["--token-keys", write("keys", tokens.SECRET), "--token-issuer", ""]
        own = write("own", tokens.hs256(tokens.claims("agent")).encode())
        coordinator = support.Program("tutti-coordinator", *asks)
        self.addCleanup(coordinator.stop)
        agent = support.Program("tutti-agent", "--coordinator", coordinator.address, "--coordinator-token", own,
                                *asks)
        self.addCleanup(agent.stop)
        agent.wait_for_log("joined job")
        channel = agent.channel()
        self.addCleanup(channel.close)
        self.stub = tensors_grpc.TensorsServiceStub(channel)
        self.token = os.urandom(16)

    def part(self, who, first, end):
        token = tokens.hs256(tokens.claims("client", sub=who))
        return Part(self.stub, self.token, first, end, metadata=[("authorization", "Bearer " + token)])

    def test_a_stranger_brings_no_part(self):
        theirs = self.part("mallory", 4000, SIZE).begin()
        ours = [self.part("alice", 0, 4000).begin()]
        ours.append(self.part("alice", 4000, SIZE).all())  # or it would overlap
        ours[0].rest()
        self.assertEqual([part.call.result(LONG_S).byte_count for part in ours], [SIZE, SIZE - 4000])
        self.assertFalse(theirs.call.done())
        theirs.call.cancel()


if __name__ == "__main__":
    support.main()
