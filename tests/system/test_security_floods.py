"""Goal: who may not come in can keep nobody out, and makes nothing grow: connections that say
nothing or nonsense, calls with bad tokens, everything too large.
Method: a coordinator and an agent with TLS and tokens; strangers by the hundred, and a good client
beside them whose calls have to go on; memory and descriptors of the servers before and after."""

import os
import resource
import socket
import ssl
import struct
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

import grpc  # noqa: E402

import tokens  # noqa: E402
from cluster_case import (  # noqa: E402
    LONG_S,
    Cluster,
    Agent,
    coordinator,
    coordinator_grpc,
    tensors,
    tensors_grpc,
)
from secure_case import Certificates, SecureProgram  # noqa: E402
from tokens import claims, hs256  # noqa: E402

CODE = grpc.StatusCode
MIB = 1 << 20
CROWD = 300
FLOOD_S = 3
UNREAD_S = 1.5
UNREAD_MIB = 128  # what a client who reads nothing may make a server grow by
FILES = 1024  # of a server that has few: the fewest with which a coordinator starts
DATA, HEADERS, RESET, PING, END_STREAM, END_HEADERS = 0, 1, 3, 6, 1, 4
SANITIZED = "sanitize" in support.BUILD or "asan" in support.BUILD


def bearer(token):
    return [("authorization", "Bearer " + token)]


def frame(kind, flags, stream, words):
    return struct.pack(">I", len(words))[1:] + struct.pack(">BBI", kind, flags, stream) + words


def request(path):
    """Its HPACK, without a table: POST, https, the path, and what gRPC asks for."""
    return (
        b"\x83\x87\x04%c%s" % (len(path), path)
        + b"\x01\x01x\x00\x02te\x08trailers\x0f\x10\x10application/grpc"
    )


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
REQUEST = request(b"/tutti.v1.DiagnosticsService/GetStats")
HEALTH = request(b"/grpc.health.v1.Health/Check")
STRANGE = request(b"/no/such")


class Floods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificates = Certificates()
        with open(cls.certificates.path("secret"), "wb") as file:
            file.write(tokens.SECRET)
        with open(cls.certificates.path("token"), "w") as file:
            file.write(hs256(claims("agent")))
        serving = cls.certificates.serving(client_ca=None)
        # --core-dumps: an ordinary user counts their descriptors, too.
        serving += ["--token-keys", cls.certificates.path("secret"), "--handshake-timeout", "2s", "--core-dumps"]
        trusts = cls.certificates.credentials()
        cls.coordinator = SecureProgram("tutti-coordinator", *serving, credentials=trusts)
        cls.agent = SecureProgram(
            "tutti-agent",
            *serving,
            *("--coordinator", cls.coordinator.address),
            *("--coordinator-ca", cls.certificates.path("ca.pem")),
            *("--coordinator-token", cls.certificates.path("token")),
            credentials=trusts,
        )
        cls.agent.wait_for_log("joined job")
        cls.good = bearer(hs256(claims("client")))

    @classmethod
    def tearDownClass(cls):
        for program in (cls.agent, cls.coordinator):
            assert program.stop() == 0, program.log()
        cls.certificates.remove()

    def setUp(self):
        self.programs = (self.coordinator, self.agent)
        self.channels = [program.channel() for program in self.programs]
        for channel in self.channels:
            self.addCleanup(channel.close)
        self.ask()  # both are connected
        self.before = [self.size(program) for program in self.programs]
        self.addCleanup(self.check_size)

    def size(self, program):
        """Resident MiB, and open descriptors."""
        with open("/proc/%d/status" % program.process.pid) as file:
            lines = dict(line.split(":", 1) for line in file)
        files = len(os.listdir("/proc/%d/fd" % program.process.pid))
        return int(lines["VmRSS"].split()[0]) / 1024, files

    def check_size(self):
        """What they took is given back: descriptors all, memory but for what an allocator keeps."""
        until = time.monotonic() + LONG_S
        for program, before in zip(self.programs, self.before):
            while self.size(program)[1] > before[1] + 2:
                self.assertLess(time.monotonic(), until, "descriptors: %s" % (self.size(program),))
                time.sleep(0.05)
            grown = self.size(program)[0] - before[0]
            if not SANITIZED:
                self.assertLess(grown, 200, "MiB more")

    def ask(self):
        """Both servers answer a good client; how long the slower one took."""
        began = time.monotonic()
        stub = coordinator_grpc.CoordinatorServiceStub(self.channels[0])
        stub.LookupRanks(coordinator.LookupRanksRequest(), metadata=self.good, timeout=LONG_S)
        stub = tensors_grpc.TensorsServiceStub(self.channels[1])
        stub.List(tensors.ListRequest(), metadata=self.good, timeout=LONG_S)
        return time.monotonic() - began

    def connect(self, program):
        host, port = program.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=LONG_S)

    def crowd(self, first_words):
        """Many that say this and then nothing: all are sent away, the good client is served."""
        strangers = [self.connect(program) for program in self.programs for _ in range(CROWD)]
        for stranger in strangers:
            stranger.sendall(first_words)
        slowest = max(self.ask() for _ in range(20))
        with self.agent.channel() as fresh:  # new ones come in as well
            stub = tensors_grpc.TensorsServiceStub(fresh)
            stub.List(tensors.ListRequest(), metadata=self.good, timeout=LONG_S)
        for stranger in strangers:
            self.wait_closed(stranger)
        return slowest

    def wait_closed(self, stranger):
        try:
            while stranger.recv(65536):
                pass
        except ConnectionError:
            pass
        stranger.close()

    def test_connections_that_say_nothing_are_closed(self):
        self.assertLess(self.crowd(b""), 10)

    def test_half_a_handshake_is_closed(self):
        hello = ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=self.certificates.path("ca.pem"))
        shaking = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
        with self.assertRaises(ssl.SSLWantReadError):
            shaking.do_handshake()
        words = hello.read()
        self.crowd(words[: len(words) // 2])
        self.crowd(words)

    def test_nonsense_is_closed(self):
        self.crowd(os.urandom(4096))
        self.crowd(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 9)
        self.crowd(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000)

    def secure(self, program):
        context = ssl.create_default_context(cafile=self.certificates.path("ca.pem"))
        context.set_alpn_protocols(["h2"])
        return context.wrap_socket(self.connect(program), server_hostname="localhost")

    def test_a_handshake_without_http2_behind_it_is_closed(self):
        strangers = [self.secure(program) for program in self.programs for _ in range(60)]
        self.assertLess(max(self.ask() for _ in range(20)), 10)
        for stranger in strangers:
            self.wait_closed(stranger)

    def test_a_header_that_never_ends_is_closed(self):
        """HEADERS without END_HEADERS, and nothing more: keepalive or the size ends it."""
        begun = frame(HEADERS, 0, 1, b"\x82")  # one byte of a header, not the last
        strangers = [self.secure(program) for program in self.programs for _ in range(20)]
        for stranger in strangers:
            stranger.sendall(PREFACE + begun)
        self.assertLess(max(self.ask() for _ in range(20)), 10)
        for stranger in strangers:
            stranger.close()

    def refuse(self, channel, stop, counts, place):
        call = channel.unary_unary("/tutti.v1.StoreService/Get")
        forged = hs256(claims("admin"), b"another secret, of more than 32 bytes")
        while not stop.is_set():
            try:
                call(b"", metadata=bearer(forged), timeout=LONG_S)
                counts[place] = -1 << 30
            except grpc.RpcError as error:
                counts[place] += 1 if error.code() == CODE.UNAUTHENTICATED else -1 << 30

    def pour(self, program, first, again, stop, counts):
        """Say what flow control does not slow down, as fast as the server takes it."""
        while not stop.is_set():
            try:
                with self.secure(program) as stranger:
                    stranger.settimeout(LONG_S)
                    stranger.sendall(PREFACE + first)
                    stream = 1
                    while not stop.is_set():
                        words, stream = again(stream)
                        stranger.sendall(words)
                        counts[0] += 1
            except OSError:  # sent away
                counts[1] += 1

    def pour_over(self, program, first, again, strangers=1, seconds=FLOOD_S):
        """Others are served meanwhile, and no rank is lost over it: nothing of gRPC's tells the
        loops to let go of a socket that is never empty (server/fair_reads.h). Returns by how many
        MiB the program grew at most."""
        stop, counts = threading.Event(), [0, 0]
        asked, sizes = [], [self.size(program)[0]]
        threads = [
            threading.Thread(target=self.pour, args=(program, first, again, stop, counts))
            for _ in range(strangers)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(asked) < 3:
            asked.append(self.ask())
            sizes.append(self.size(program)[0])
        stop.set()
        for thread in threads:
            thread.join()
        print("%d bursts, sent away %d times, %d calls beside it, the slowest %.0f ms, +%.0f MiB"
              % (counts[0], counts[1], len(asked), 1000 * max(asked), max(sizes) - sizes[0]))
        self.assertGreater(counts[0], 100)
        self.assertNotIn("lost", self.coordinator.log())
        self.assertNotIn("lost", self.agent.log())
        return max(sizes) - sizes[0]

    def resets(self, stream):
        burst = b""
        for stream in range(stream, stream + 100, 2):
            burst += frame(HEADERS, END_HEADERS, stream, REQUEST)
            burst += frame(RESET, 0, stream, b"\0\0\0\x08")
        return burst, stream + 2

    def test_calls_taken_back_at_once_keep_nobody_out(self):
        """CVE-2023-44487, by strangers without a token."""
        for program in self.programs:
            self.pour_over(program, b"", self.resets)
        self.pour_over(self.agent, b"", self.resets, strangers=4)

    def test_calls_of_no_method_keep_nobody_out(self):
        def calls(stream):
            burst = b""
            for stream in range(stream, stream + 100, 2):
                burst += frame(HEADERS, END_HEADERS | END_STREAM, stream, STRANGE)
                burst += frame(RESET, 0, stream, b"\0\0\0\x08")
            return burst, stream + 2

        self.pour_over(self.agent, b"", calls)

    def test_answers_that_nobody_reads_fill_no_memory(self):
        """Complete calls, from who neither reads nor acknowledges anything: refused ones, allowed
        ones, and those of a good client."""
        token = self.good[0][1].encode()
        size = len(token) - 127  # as HPACK has it, above 127
        self.assertTrue(0 <= size < 1 << 14)
        word = b"\x00\x0dauthorization\x7f%c%c" % (size & 0x7F | 0x80, size >> 7) + token
        for program, header in (
            (self.agent, REQUEST),
            (self.agent, HEALTH),
            (self.agent, REQUEST + word),
            (self.coordinator, HEALTH),
        ):

            def calls(stream, header=header):
                burst = b""
                for stream in range(stream, stream + 100, 2):
                    burst += frame(HEADERS, END_HEADERS, stream, header)
                    burst += frame(DATA, END_STREAM, stream, b"\0\0\0\0\0")
                return burst, stream + 2

            grown = self.pour_over(program, b"", calls, seconds=UNREAD_S)
            if not SANITIZED:
                self.assertLess(grown, UNREAD_MIB)

    def test_pings_without_end_keep_nobody_out(self):
        pings = frame(PING, 0, 0, b"12345678") * 50
        self.pour_over(self.coordinator, b"", lambda stream: (pings, stream))

    def test_a_flood_of_bad_tokens_keeps_nobody_out(self):
        stop, counts, threads = threading.Event(), [0] * 8, []
        channels = [self.coordinator.channel() for _ in counts]
        for place, channel in enumerate(channels):
            threads.append(
                threading.Thread(target=self.refuse, args=(channel, stop, counts, place))
            )
            threads[-1].start()
        slowest = max(self.ask() for _ in range(100))
        stop.set()
        for thread in threads:
            thread.join()
        for channel in channels:
            channel.close()
        self.assertTrue(all(count > 10 for count in counts), counts)
        self.assertLess(slowest, 10)

    def test_parked_streams_of_a_stranger_end_at_once(self):
        """Bidirectional calls without a message: nothing is kept for who shows no token."""
        with self.coordinator.channel() as channel:
            call = channel.stream_stream("/tutti.v1.CoordinatorService/Session")
            hold = threading.Event()

            def silent():
                hold.wait(LONG_S)
                yield b""

            answers = [call(silent(), timeout=LONG_S) for _ in range(200)]
            for answer in answers:
                with self.assertRaises(grpc.RpcError):
                    next(answer)
                self.assertEqual(answer.code(), CODE.UNAUTHENTICATED)
            hold.set()

    def fails(self, call, *codes):
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        self.assertIn(caught.exception.code(), codes, caught.exception.details())

    def test_all_that_is_too_large_is_refused(self):
        limits = [("grpc.max_send_message_length", -1), ("grpc.max_metadata_size", 64 * MIB)]
        for program in self.programs:
            with program.channel(*limits) as channel:
                store = program is self.coordinator
                call = channel.unary_unary(
                    "/tutti.v1.StoreService/Get" if store else "/tutti.v1.TensorsService/Put"
                )
                self.fails(
                    lambda: call(b"\0" * (9 * MIB), metadata=self.good, timeout=LONG_S),
                    CODE.RESOURCE_EXHAUSTED,
                )
                for size in (8100, 15000):  # a token; both, and more than all metadata may be
                    self.fails(
                        lambda: call(b"", metadata=bearer("a" * size), timeout=LONG_S),
                        CODE.UNAUTHENTICATED,
                        CODE.RESOURCE_EXHAUSTED,
                    )
                twice = self.good + self.good
                self.fails(lambda: call(b"", metadata=twice, timeout=LONG_S), CODE.UNAUTHENTICATED)
                # The last one: gRPC closes the connection over it.
                many = [("x-%d" % number, "y" * 1000) for number in range(100)]
                self.fails(
                    lambda: call(b"", metadata=many, timeout=LONG_S),
                    *(CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE, CODE.INTERNAL),
                )
        self.ask()


class Few:
    """Where a program starts with few descriptors; as `host` of support.Program."""

    @staticmethod
    def words(*words):
        return ["prlimit", "--nofile=%d:%d" % (FILES, FILES), *words]


class FewAgent(Agent):
    def start(self, *words):
        return support.Program("tutti-agent", *words, host=Few)


class FewCluster(Cluster):
    agent_class = FewAgent

    def make_coordinator(self, *options):
        return support.Program("tutti-coordinator", *options, host=Few)


class Crowds(unittest.TestCase):
    """More connections than a server has descriptors: it goes on with its clients, sends the newest
    ones away, and serves others as soon as there is room. gRPC's listener would be deaf."""

    @classmethod
    def setUpClass(cls):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY and most < 2 * FILES:
            raise unittest.SkipTest("at most %d descriptors" % most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        patient = ("--handshake-timeout", "120s")  # nobody but us ends the crowd
        cls.cluster = FewCluster(1, *patient, coordinator_options=patient)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def ask(self, channel):
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        call(b"", timeout=LONG_S, wait_for_ready=True)

    def is_away(self, stranger):
        """Closed at once; a server greets those that it keeps."""
        try:
            return stranger.recv(100) == b""
        except ConnectionError:
            return True

    def crowd_out(self, program):
        host, port = program.address.rsplit(":", 1)
        with program.channel() as known:
            self.ask(known)
            crowd = []
            for _ in range(FILES + 100):
                crowd.append(socket.create_connection((host, int(port)), LONG_S))
            self.assertGreater(sum(map(self.is_away, crowd)), FILES / 4)
            self.ask(known)
            for one in crowd:
                one.close()
        with program.channel() as fresh:
            self.ask(fresh)

    def test_a_crowd_makes_no_server_deaf(self):
        for program in (self.cluster.coordinator, self.cluster.agents[0].program):
            for _ in range(3):
                self.crowd_out(program)
        self.assertIn("turned a connection away", self.cluster.coordinator.log())


if __name__ == "__main__":
    support.main()
