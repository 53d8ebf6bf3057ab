"""Goal: on an agent's host clients take its Unix socket, whichever address they were given; on others they never do.

Method: agents that listen on both, the socket first; who is connected to a socket is read from /proc. Another host id
stands for another host.
"""

import json
import os
import subprocess
import tempfile
import time
import unittest

import support
from cluster_case import LONG_S, Agent, Cluster

PATIENT = os.path.join(support.BUILD, "tests", "client", "patient_program")


class BothAgent(Agent):
    """Its socket comes first in what it advertises."""

    def start(self, *words):
        self.socket = os.path.join(self.cluster.folder.name, "agent-%d" % len(self.cluster.agents))
        return support.Program("tutti-agent", *words, listen="unix:%s,127.0.0.1:0" % self.socket)

    @property
    def tcp(self):
        return self.program.addresses[1]

    def callers(self):
        """Connections to its socket."""
        with open("/proc/net/unix") as lines:
            found = [line.split() for line in lines if line.rstrip().endswith(" " + self.socket)]
        return sum(words[5] == "03" for words in found)


class BothCluster(Cluster):
    agent_class = BothAgent

    def __init__(self, size):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-near-")
        super().__init__(size)


class Near(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = BothCluster(2)
        for agent in cls.cluster.agents:  # its own connections are Unix ones too
            agent.channel.close()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        cls.cluster.folder.cleanup()

    def setUp(self):
        self.agent = self.cluster.agents[0]
        self.wait(lambda: self.agent.callers() == 0, "somebody is connected still")

    def wait(self, true, what):
        until = time.monotonic() + LONG_S
        while not true():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.01)

    def stay(self, address, **environment):
        """A client that has been answered, and stays while the test lasts."""
        client = subprocess.Popen(
            [PATIENT, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, **environment),
        )
        self.addCleanup(client.communicate, timeout=LONG_S)
        client.stdin.write(b"\n")
        client.stdin.flush()
        self.assertTrue(client.stdout.readline().strip().isdigit())

    def test_a_client_moves_to_the_socket(self):
        self.stay(self.agent.tcp)
        self.assertGreaterEqual(self.agent.callers(), 1)

    def test_a_client_of_another_host_does_not(self):
        self.stay(self.agent.tcp, TUTTI_HOST_ID="elsewhere")
        self.assertEqual(self.agent.callers(), 0)

    def test_a_socket_that_was_asked_for_is_taken_anywhere(self):
        self.stay(self.agent.program.addresses[0], TUTTI_HOST_ID="elsewhere")
        self.assertGreaterEqual(self.agent.callers(), 1)

    def test_a_socket_that_is_not_here_is_no_way(self):
        os.rename(self.agent.socket, self.agent.socket + ".away")
        try:
            self.stay(self.agent.tcp)
        finally:
            os.rename(self.agent.socket + ".away", self.agent.socket)
        self.assertEqual(self.agent.callers(), 0)

    def test_another_agents_socket_is_no_way(self):
        other = self.cluster.agents[1]
        os.rename(self.agent.socket, self.agent.socket + ".away")
        os.symlink(other.socket, self.agent.socket)
        try:
            self.stay(self.agent.tcp)
        finally:
            os.unlink(self.agent.socket)
            os.rename(self.agent.socket + ".away", self.agent.socket)
        self.assertEqual(self.agent.callers(), 0)

    def addresses(self, **environment):
        code, out, err = support.run(
            "tutti", "status", "--json", "--agent", self.agent.tcp, environment=environment
        )
        self.assertEqual(code, 0, err)
        return [rank["address"] for rank in json.loads(out)["ranks"]]

    def test_ranks_are_found_by_their_sockets_here_alone(self):
        agents = self.cluster.agents
        self.assertEqual(self.addresses(), ["unix:" + agent.socket for agent in agents])
        self.assertEqual(
            self.addresses(TUTTI_HOST_ID="elsewhere"), [agent.tcp for agent in agents]
        )


class Certified(unittest.TestCase):
    """Who is known by a certificate alone is nobody on a socket, where there is no TLS."""

    def test_a_client_that_a_socket_does_not_know_stays_where_it_is(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-near-")
        self.addCleanup(folder.cleanup)
        self.tutti("certs", "make", folder.name, "--address", "localhost,127.0.0.1")
        self.tutti(
            *("certs", "make", folder.name, "--name", "known", "--address", "localhost"),
            *("--grant", "client@default"),
        )
        self.tutti("token", "key", folder.name + "/key")
        self.tutti(
            *("token", "make", folder.name + "/key", "--role", "agent"),
            *("-o", folder.name + "/agent.token"),
        )
        serving = ["--tls-cert", folder.name + "/server.pem", "--tls-key", folder.name + "/server.key"]
        serving += ["--tls-client-ca", folder.name + "/ca.pem", "--token-keys", folder.name + "/key"]
        coordinator = support.Program("tutti-coordinator", *serving)
        self.addCleanup(coordinator.kill)
        socket = folder.name + "/socket"
        agent = support.Program(
            *("tutti-agent", "--coordinator", coordinator.address),
            *("--coordinator-ca", folder.name + "/ca.pem"),
            *("--coordinator-token", folder.name + "/agent.token", *serving),
            listen="unix:%s,127.0.0.1:0" % socket,
        )
        self.addCleanup(agent.kill)
        shown = {
            "TUTTI_TLS_CA": folder.name + "/ca.pem",
            "TUTTI_TLS_CERT": folder.name + "/known.pem",
            "TUTTI_TLS_KEY": folder.name + "/known.key",
        }
        code, out, err = support.run(
            "tutti", "list", "--agent", agent.addresses[1], environment=shown, timeout=LONG_S
        )
        self.assertEqual(code, 0, err)
        code, out, err = support.run(
            "tutti", "list", "--agent", "unix:" + socket, environment=shown, timeout=LONG_S
        )
        self.assertNotEqual(code, 0, "the socket knows everybody: " + out)

    def tutti(self, *words):
        code, out, err = support.run("tutti", *words)
        self.assertEqual(code, 0, out + err)


if __name__ == "__main__":
    support.main()
