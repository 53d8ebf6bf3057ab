"""Goal: TLS on both servers and in all clients, certificates that change under load, and no way in
without credentials.
Method: real processes, certificates made here, stock Python gRPC and the tutti command."""

import queue
import socket
import ssl
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

import grpc  # noqa: E402
import numpy as np  # noqa: E402

from cluster_case import LONG_S, all_reduce, coordinator, coordinator_grpc, diagnostics  # noqa: E402
from cluster_case import diagnostics_grpc, tensors  # noqa: E402
from commands_stream import commands, commands_grpc  # noqa: E402
from secure_case import Certificates, SecureCluster, SecureProgram  # noqa: E402


def jobs(channel, timeout=LONG_S):
    stub = coordinator_grpc.CoordinatorServiceStub(channel)
    return stub.ListJobs(coordinator.ListJobsRequest(), timeout=timeout)


def failure(call):
    try:
        call()
    except grpc.RpcError as error:
        return support.Failure(error)
    raise AssertionError("it was let in")


class TlsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificates = Certificates()

    @classmethod
    def tearDownClass(cls):
        cls.certificates.remove()


class Mutual(TlsCase):
    """A coordinator and two agents, mutual TLS on every way."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = SecureCluster(2, cls.certificates)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        super().tearDownClass()

    def test_ops_work(self):
        for result in self.cluster.all(lambda agent: all_reduce(agent, np.ones(4, np.float32))):
            self.assertEqual(list(result), [2, 2, 2, 2])

    def test_the_command_speaks_tls(self):
        address = self.cluster.agents[0].program.address
        code, out, err = support.run(
            "tutti", "--agent", address, "status", environment=self.certificates.environment()
        )
        self.assertEqual(code, 0, err)
        self.assertIn("default", out)

    def test_the_command_takes_files_as_options(self):
        address = self.cluster.agents[0].program.address
        own = self.certificates.environment()
        words = ["--tls-ca", own["TUTTI_TLS_CA"], "--tls-cert", own["TUTTI_TLS_CERT"]]
        words += ["--tls-key", own["TUTTI_TLS_KEY"]]
        for command in (
            ("--agent", address, "status"),
            ("--agent", address, "stall"),
            ("--agent", address, "doctor"),
            ("--agent", address, "trace", "-o", "/dev/null"),
            ("health", address),
        ):
            code, _, err = support.run("tutti", *words, *command)
            self.assertEqual(code, 0, err)
            code, _, err = support.run(
                "tutti", *words, "--tls-name", "elsewhere.example", *command
            )
            self.assertEqual(code, 1)
            self.assertRegex(err, r"its certificate is for localhost, .*, not for elsewhere\.example: ")
            self.assertIn("--tls-name", err)

    def refused(self, environment, words):
        address = self.cluster.agents[0].program.address
        code, _, err = support.run(
            "tutti", "--agent", address, "--timeout", "20s", "status", environment=environment
        )
        self.assertEqual(code, 1, err)
        self.assertIn(words, err)

    def test_the_command_says_what_is_wrong(self):
        right = self.certificates.environment()
        self.refused({}, "for TLS give its authority: --tls-ca FILE (TUTTI_TLS_CA)")
        self.refused({"TUTTI_TLS_CA": right["TUTTI_TLS_CA"]}, "--tls-cert FILE --tls-key FILE (TUTTI_TLS_CERT")
        self.refused(dict(right, TUTTI_TLS_CA="/nonexistent.pem"), "/nonexistent.pem")
        wrong_key = dict(right, TUTTI_TLS_KEY=self.certificates.path("agent.key"))
        self.refused(wrong_key, "is not that of the certificate")
        expired = self.certificates.environment("expired")
        self.refused(expired, "has expired on")
        other = dict(right, TUTTI_TLS_CA=self.certificates.path("other-ca.pem"))
        self.refused(other, "give the authority that signed it: --tls-ca FILE (TUTTI_TLS_CA)")

    def test_a_stranger_does_not_get_past_the_handshake(self):
        for name in (None, "foreign"):
            for program in (self.cluster.coordinator, self.cluster.agents[0].program):
                with program.channel(credentials=self.certificates.credentials(name=name)) as channel:
                    self.assertEqual(failure(lambda: jobs(channel)).code, grpc.StatusCode.UNAVAILABLE)

    def test_a_plain_client_on_a_tls_port_is_turned_away(self):
        with grpc.insecure_channel(self.cluster.coordinator.address) as channel:
            self.assertEqual(failure(lambda: jobs(channel)).code, grpc.StatusCode.UNAVAILABLE)

    def test_what_speaks_no_tls_is_cut_off(self):
        host, port = self.cluster.coordinator.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=LONG_S) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            while True:
                try:
                    if not stranger.recv(65536):
                        break
                except ConnectionError:
                    break
        self.assertTrue(jobs(self.cluster.coordinator_channel).jobs)


class Sides(TlsCase):
    def test_a_tls_client_on_a_plain_port_is_told(self):
        with support.Program("tutti-coordinator") as plain:
            code, _, err = support.run(
                "tutti",
                *("--coordinator", plain.address, "--timeout", "20s", "store", "get", "key"),
                environment=dict(self.certificates.environment(), TUTTI_AGENT=""),
            )
            self.assertEqual(code, 1, err)
            self.assertIn("does not speak TLS", err)

    def shown(self):
        """What an agent gives that comes in."""
        path = self.certificates.path
        return (
            *("--coordinator-ca", path("ca.pem"), "--coordinator-cert", path("agent.pem")),
            *("--coordinator-key", path("agent.key")),
        )

    def test_an_agent_says_why_it_cannot_reach_its_coordinator(self):
        serving = self.certificates.serving()
        with SecureProgram("tutti-coordinator", *serving) as server:
            for options, words in (
                ((), "see --coordinator-ca for TLS"),
                (("--coordinator-ca", self.certificates.path("ca.pem")), "--coordinator-cert"),
                (("--coordinator-ca", self.certificates.path("other-ca.pem")), "signed it (--coordinator-ca)"),
                (
                    ("--coordinator-name", "elsewhere.example", *self.shown()),
                    "its certificate is for localhost, ",
                ),
            ):
                code, _, err = support.run(
                    "tutti-agent", "--coordinator", server.address, "--join-timeout", "3s", *options
                )
                self.assertEqual(code, 1, err)
                self.assertIn(words, err)

    def test_bad_files_are_named_at_the_start(self):
        path = self.certificates.path
        for program in ("tutti-coordinator", "tutti-agent"):
            for cert, key, words in (
                ("nothing.pem", "server.key", "nothing.pem: No such file"),
                ("server.csr.der", "server.key", "it is no PEM file"),
                ("server.pem", "agent.key", "is not that of the certificate"),
                ("expired.pem", "expired.key", "has expired on"),
            ):
                listen = ("--listen", "127.0.0.1:0")
                code, _, err = support.run(
                    program, *listen, "--tls-cert", path(cert), "--tls-key", path(key)
                )
                self.assertIn(code, (1, 2), err)
                self.assertIn(words, err)

    def test_strangers_are_not_served_without_credentials(self):
        path = self.certificates.path
        tls = ("--tls-cert", path("server.pem"), "--tls-key", path("server.key"))
        for program in ("tutti-coordinator", "tutti-agent"):
            code, _, err = support.run(program, "--listen", "0.0.0.0:0")
            self.assertNotEqual(code, 0)
            self.assertIn("--tls-cert and --tls-key, or --insecure", err)
            code, _, err = support.run(program, "--listen", "0.0.0.0:0", *tls)
            self.assertNotEqual(code, 0)
            self.assertIn("would serve anybody: give --tls-client-ca", err)
        with support.Program("tutti-coordinator", "--insecure", listen="0.0.0.0:0"):
            pass
        with support.Program(
            "tutti-coordinator", *tls, "--tls-client-ca", path("ca.pem"), listen="0.0.0.0:0"
        ):
            pass


class Rotation(TlsCase):
    """Certificates of all ends change while ops run and streams are open."""

    def setUp(self):
        self.certificates.copy("server", "live")
        self.certificates.copy("agent", "mine")
        serving = self.certificates.serving("live")
        self.cluster = SecureCluster(
            2,
            self.certificates,
            *serving,
            *("--coordinator-cert", self.certificates.path("mine.pem")),
            *("--coordinator-key", self.certificates.path("mine.key")),
            coordinator_options=serving,
        )
        self.addCleanup(self.cluster.stop)

    def test_under_load_drops_nothing(self):
        errors, counts = [], [0, 0]
        rounds = 400
        threads = []

        def work(place):
            agent = self.cluster.agents[place]
            for _ in range(rounds):
                try:
                    if list(all_reduce(agent, np.ones(64, np.float32))) != [2] * 64:
                        errors.append("wrong sum")
                    counts[place] += 1
                    time.sleep(0.01)
                except grpc.RpcError as error:
                    errors.append(support.Failure(error))
                    return

        for place in range(2):
            threads.append(threading.Thread(target=work, args=(place,)))
            threads[-1].start()
        turn = 0
        asked = queue.SimpleQueue()
        stub = commands_grpc.CommandsServiceStub(self.cluster.agents[0].channel)
        stream = stub.Run(iter(asked.get, None), timeout=LONG_S)  # one stream, from first to last
        while any(thread.is_alive() for thread in threads):
            turn += 1
            self.certificates.copy("server2" if turn % 2 else "server", "live")
            self.certificates.copy("dns-agent" if turn % 2 else "agent", "mine")
            with self.cluster.agents[0].program.channel() as fresh:  # a new connection each turn
                stub = diagnostics_grpc.DiagnosticsServiceStub(fresh)
                stub.DescribeAgent(diagnostics.DescribeAgentRequest(), timeout=LONG_S)
            asked.put(commands.RunRequest(id=turn, list=tensors.ListRequest()))
            self.assertEqual(next(stream).id, turn)
            time.sleep(0.3)
        asked.put(None)
        self.assertEqual(list(stream), [])
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(counts, [rounds, rounds])
        self.assertGreater(turn, 3)
        for agent in self.cluster.agents:
            self.assertTrue(agent.describe().joined)
            self.assertNotIn("lost the coordinator", agent.program.log())  # its session went on
            self.assertEqual(agent.describe().epoch, self.cluster.agents[0].describe().epoch)

    def test_the_new_certificate_is_shown(self):
        host, port = self.cluster.coordinator.address.rsplit(":", 1)

        def subject():
            context = ssl.create_default_context(cafile=self.certificates.path("ca.pem"))
            context.load_cert_chain(
                self.certificates.path("agent.pem"), self.certificates.path("agent.key")
            )
            context.set_alpn_protocols(["h2"])
            with socket.create_connection((host, int(port)), timeout=LONG_S) as raw:
                with context.wrap_socket(raw, server_hostname="localhost") as secure:
                    return dict(pair[0] for pair in secure.getpeercert()["subject"])["commonName"]

        self.assertEqual(subject(), "server")
        self.certificates.copy("server2", "live")
        self.assertEqual(subject(), "server2")
        self.certificates.put("live.pem", b"half written")
        self.assertEqual(subject(), "server2")


class SelfCheck(TlsCase):
    def test_a_server_with_tls_hears_itself(self):
        """It looks every 0.2 s, and would end after three silences."""
        path = self.certificates.path
        options = ["--tls-cert", path("server.pem"), "--tls-key", path("server.key"), "--self-check=200ms"]
        with support.Program("tutti-coordinator", *options, "--tls-client-ca", path("ca.pem")) as one:
            time.sleep(2)  # ten looks; there is no event for a look that went well
            self.assertIsNone(one.process.poll())
            self.assertNotIn("did not answer", one.log())


if __name__ == "__main__":
    support.main()
