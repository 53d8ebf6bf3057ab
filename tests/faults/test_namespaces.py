#!/usr/bin/env python3
"""Goal: hosts in namespaces are what tests and benchmarks take them for, and nothing of them stays.

Method: small programs in them that connect to each other; cut, slowed, killed. Skipped where there are none.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import namespaces  # noqa: E402
import tap  # noqa: E402

PORT = 7400
START_S = 60
ECHO = """
import socket, threading
listener = socket.create_server(("", %d))
print("ready", flush=True)
def echo(one):
    while True:
        data = one.recv(65536)
        if not data:
            return
        one.sendall(data)
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
""" % PORT
REACH = """
import socket, sys
try:
    one = socket.create_connection((sys.argv[1], %d), timeout=float(sys.argv[2]))
    one.sendall(b"x")
    print(one.recv(1).decode())
except OSError as error:
    print(type(error).__name__)
""" % PORT
LEAVE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import namespaces
network = namespaces.Network(1)
process = network.hosts[0].start(["sleep", "1000"])
while os.readlink("/proc/%d/ns/net" % process.pid) == os.readlink("/proc/self/ns/net"):
    time.sleep(0.01)  # until it is in the namespace, nobody can find it there
print(network.prefix, network.interface, network.outside, process.pid, flush=True)
time.sleep(1000)
"""


def left(prefix):
    return [name for name in os.listdir("/run/netns") if name.startswith(prefix)]


def wait_until(is_so, words):
    until = time.monotonic() + START_S
    while not is_so():
        assert time.monotonic() < until, "not within its time: " + words
        time.sleep(0.01)


def wait_interface_gone(name):
    """The kernel takes interfaces away a moment after their namespace."""
    wait_until(lambda: not os.path.exists("/sys/class/net/" + name), name + " is gone")


def is_dead(pid):
    try:
        with open("/proc/%s/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"  # nobody may be there to ask for its end
    except OSError:
        return True


class Namespaces(unittest.TestCase):
    def setUp(self):
        reason = namespaces.why_not()
        if reason is not None:
            self.skipTest(reason)

    def echoes(self, network):
        for host in network.hosts:
            process = host.start([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.stdout.close()

    def reach(self, one, other, wait_s=START_S):
        return one.run(sys.executable, "-c", REACH, other.address, str(wait_s)).strip()

    def reach_from_outside(self, host):
        with socket.create_connection((host.address, PORT), timeout=START_S) as one:
            one.sendall(b"x")
            return one.recv(1)

    def test_hosts__reach_each_other_and_we_reach_them(self):
        with namespaces.Network(3) as network:
            self.echoes(network)
            for one in network.hosts:
                self.assertEqual(self.reach_from_outside(one), b"x")
                for other in network.hosts:
                    self.assertEqual(self.reach(one, other), "x", (one.name, other.name))

    def test_part__cuts_the_sides_apart_until_join(self):
        with namespaces.Network(3) as network:
            self.echoes(network)
            a, b, c = network.hosts
            network.part([a, b], [c])
            self.assertEqual(self.reach(a, b), "x")
            self.assertIn(self.reach(a, c, 0.5), ("timeout", "TimeoutError"))
            self.assertIn(self.reach(c, b, 0.5), ("timeout", "TimeoutError"))
            self.assertEqual(self.reach_from_outside(c), b"x")
            network.join()
            self.assertEqual(self.reach(a, c), "x")
            self.assertEqual(self.reach(c, b), "x")

    def test_drop__of_one_packet_in_three_drops_some_and_lets_others_through(self):
        with namespaces.Network(2) as network:
            self.echoes(network)
            a, b = network.hosts
            b.drop(a.address, every=3)
            for _ in range(3):
                self.assertEqual(self.reach(a, b), "x")
            rule = b.run("iptables", "-w", "-nvxL", "INPUT").splitlines()[2].split()
            self.assertGreater(int(rule[0]), 0, rule)

    def test_slow__limits_what_passes(self):
        with namespaces.Network(1) as network:
            self.echoes(network)
            network.hosts[0].slow("16mbit")  # 2 MB a second each way
            data = bytes(1 << 20)
            began = time.monotonic()
            with socket.create_connection((network.hosts[0].address, PORT), timeout=START_S) as one:
                got = 0
                for at in range(0, len(data), 65536):
                    one.sendall(data[at:at + 65536])
                while got < len(data):
                    got += len(one.recv(65536))
            self.assertGreater(time.monotonic() - began, (len(data) - 2 * namespaces.BURST_BYTES) / 2e6)

    def test_close__ends_what_runs_and_leaves_nothing(self):
        network = namespaces.Network(2)
        process = network.hosts[1].start(["sleep", "1000"])
        self.assertEqual(len(left(network.prefix)), 3)
        network.close()
        network.close()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertEqual(left(network.prefix), [])
        wait_interface_gone(network.interface)

    def test_interface__outside_has_no_address_that_others_could_use(self):
        with namespaces.Network(1) as network:
            said = subprocess.run(["ip", "-o", "address", "show", "dev", network.interface], stdout=subprocess.PIPE)
            self.assertEqual((said.returncode, said.stdout), (0, b""))
            self.assertIn(network.outside, self.addresses())
        self.assertNotIn(network.outside, self.addresses())

    def addresses(self):
        return subprocess.run(["ip", "-o", "address"], stdout=subprocess.PIPE).stdout.decode()

    def test_sweep__takes_away_what_a_killed_process_left(self):
        child = subprocess.Popen([sys.executable, "-c", LEAVE, os.path.dirname(namespaces.__file__)],
                                 stdout=subprocess.PIPE)
        prefix, interface, outside, pid = child.stdout.readline().decode().split()
        child.kill()
        child.wait()
        child.stdout.close()
        self.assertEqual(len(left(prefix)), 2)
        namespaces.sweep()
        self.assertEqual(left(prefix), [])
        self.assertNotIn(" %s/" % outside, self.addresses())
        wait_until(lambda: is_dead(pid), "the program is dead")
        wait_interface_gone(interface)


if __name__ == "__main__":
    tap.main()
