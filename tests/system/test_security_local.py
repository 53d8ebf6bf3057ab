"""Goal: what was not opened can be reached from this machine alone, and what `tutti cluster start` made by
its user alone: an agent's data plane keeps to loopback where its --listen does, whatever carries it; a
cluster serves on sockets of a folder that no other user may enter.
Method: real programs; where they listen is read from /proc; root tries as another user."""

import ipaddress
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

from cli_case import Case, tutti  # noqa: E402

LISTEN = "0A"
SO_PASSRIGHTS = 83  # of Linux 6.16
NOBODY = 65534
# Whether each of these sockets lets in who runs it.
KNOCK = """
import os, socket, sys
os.setgroups([]), os.setgid(%d), os.setuid(%d)
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("in", path)
    except PermissionError:
        print("out", path)
""" % (NOBODY, NOBODY)


def _address(text):
    """Of /proc/net/tcp: words of four bytes as this machine has them."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))
    return getattr(found, "ipv4_mapped", None) or found


def listening_ports(pid):
    """The IP addresses and ports on which the process listens."""
    sockets = set()
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, name)))
        except OSError:
            continue  # closed meanwhile
        if found:
            sockets.add(found[1])
    found = []
    for table in ("tcp", "tcp6"):
        with open("/proc/%d/net/%s" % (pid, table)) as file:
            rows = [line.split() for line in file.readlines()[1:]]
        ours = [row[1].split(":") for row in rows if row[3] == LISTEN and row[9] in sockets]
        found += [(_address(address), int(port, 16)) for address, port in ours]
    return found


class Plane(unittest.TestCase):
    def heard_by_others(self, *options, listen="127.0.0.1:0"):
        """At how many sockets; and at least one more is there."""
        words = ["--coordinator", "127.0.0.1:1", *options]  # there is none: it waits, and listens
        with support.Program("tutti-agent", *words, listen=listen) as agent:
            found = listening_ports(agent.process.pid)
        self.assertTrue(found)
        return len([one for one, _ in found if not one.is_loopback])

    def test_keeps_to_loopback_where_listen_does(self):
        with tempfile.TemporaryDirectory(prefix="tutti-local-") as folder:
            for listen in ("127.0.0.1:0", "[::1]:0,127.0.0.1:0", "unix:" + os.path.join(folder, "agent")):
                for transports in ("tcp", "ucx"):
                    found = self.heard_by_others("--transports", transports, listen=listen)
                    self.assertEqual(found, 0, (listen, transports))

    def test_is_heard_by_others_where_listen_is(self):
        own = ("--insecure", "--net-devices", "lo")
        self.assertEqual(self.heard_by_others(*own, listen="0.0.0.0:0"), 1)  # gRPC
        self.assertGreater(self.heard_by_others("--insecure", listen="0.0.0.0:0"), 1)

    def test_who_joins_elsewhere_is_told(self):
        words = ["--join-timeout", "1s", "--coordinator", "nobody.invalid:1"]
        _, _, err = support.run("tutti-agent", *words)
        self.assertIn("agents of other hosts cannot reach this one", err)
        _, _, err = support.run("tutti-agent", *words, "--net-devices", "lo")
        self.assertNotIn("cannot reach this one", err)


class Descriptors(unittest.TestCase):
    def test_no_server_takes_any_of_a_client(self):
        """It would have to close them, and may wait in that: a TCP socket with SO_LINGER."""
        with tempfile.TemporaryDirectory(prefix="tutti-local-") as folder, socket.socket(socket.AF_UNIX) as client:
            try:
                client.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
            except OSError:
                self.skipTest("Linux before 6.16 lets a guest send descriptors")
            for name in ("tutti-agent", "tutti-coordinator"):
                path = os.path.join(folder, name)
                words = ["--coordinator", "127.0.0.1:1"] if name == "tutti-agent" else []
                with support.Program(name, *words, listen="unix:" + path), socket.socket(socket.AF_UNIX) as one:
                    one.connect(path)
                    with self.assertRaises(PermissionError, msg=name):
                        socket.send_fds(one, [b"P"], [client.fileno()])
                    one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                    self.assertTrue(one.recv(100), name)


class Cluster(Case):
    @classmethod
    def setUpClass(cls):
        done = tutti("--json", "cluster", "start", "-n", "2")
        assert done.code == 0, done
        cls.made = done.json
        cls.processes = [cls.made["coordinator"], *cls.made["agents"]]

    @classmethod
    def tearDownClass(cls):
        assert tutti("cluster", "stop").code == 0

    def test_no_port_is_open_but_that_of_the_data_plane(self):
        """Which hears who shows the number that is in its address."""
        for process in self.processes:
            with open(process["log"]) as file:
                data = re.findall(r"data goes between hosts by TCP: \S+:(\d+)", file.read())
            ports = listening_ports(process["pid"])
            self.assertEqual({str(port) for _, port in ports}, set(data), process)
            self.assertEqual([one for one, _ in ports if not one.is_loopback], [], process)

    def test_addresses_are_sockets_in_a_folder_of_its_user(self):
        for process in self.processes:
            self.assertEqual(process["address"], process["socket"])
            path = process["address"][len("unix:") :]
            folder = os.stat(os.path.dirname(path))
            self.assertEqual((folder.st_mode & 0o777, folder.st_uid), (0o700, os.geteuid()))
            self.assertEqual(os.stat(path).st_mode & 0o077, 0)

    def test_another_user_comes_in_nowhere(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        paths = [process["socket"][len("unix:") :] for process in self.processes]
        words = [sys.executable, "-c", KNOCK, *paths]
        said = subprocess.run(words, stdout=subprocess.PIPE, close_fds=False, check=True).stdout
        self.assertEqual(said.decode().split("\n")[:-1], ["out " + path for path in paths])

    def test_programs_find_it(self):
        self.assertEqual(self.json("status")["alive"], 2)
        self.well("store", "set", "key", "value")
        seen = self.well("run", "-c", "default", "--no-prefix", "--", "printenv", "TUTTI_COORDINATOR").text
        self.assertEqual(set(seen.split()), {self.made["coordinator"]["socket"]})


if __name__ == "__main__":
    support.main()
