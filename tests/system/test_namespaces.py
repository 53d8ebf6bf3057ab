#!/usr/bin/python3
"""Goal: ops between hosts give what they must, over our TCP and over UCX's, and all of it by the wire.

Method: two and four network namespaces with an agent each, joined by veth pairs; `tutti bench --check` from outside
drives all agents and compares results with its own; the interfaces' counters say what went by them. Skipped where
there are no namespaces.
"""

import json
import os
import subprocess
import sys
import time
import unittest

import support

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "support"))

import namespaces  # noqa: E402

if namespaces.why_not() is not None:
    support.skip_all(namespaces.why_not())

PORT = 7400  # the same on every host
OPS = ["all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter", "all_to_all",
       "permute", "send"]
SIZES = [64, 65536]
BIG = 1 << 20


class Hosts:
    """A coordinator on the first host, an agent on each.

    [in] own  further options of each agent, by rank
    """

    def __init__(self, hosts, own=None):
        self.hosts = hosts
        self.coordinator = "%s:%d" % (hosts[0].address, PORT)
        self.processes = []
        self.start(hosts[0], "tutti-coordinator", "--listen", self.coordinator)
        for rank, host in enumerate(hosts):
            self.start(host, "tutti-agent", "--listen", self.address(rank), "--coordinator", self.coordinator,
                       "--rank", str(rank), "--world-size", str(len(hosts)), "--host-id", host.name,
                       "--memory-limit", "256MiB", *(own or {}).get(rank, []))

    def address(self, rank):
        return "%s:%d" % (self.hosts[rank].address, PORT + 1)

    def start(self, host, name, *options):
        words = [os.path.join(support.PROGRAMS, name), *options, "--insecure", "--log", "error"]
        self.processes.append(host.start(words, close_fds=False, stdout=subprocess.DEVNULL))

    def bench(self, *words):
        """Rows of `tutti bench`, once the agents answer."""
        until = time.monotonic() + support.START_S
        while True:
            code, out, err = support.run("tutti", "--agent", self.address(0), "bench", *words, "--check", "--json")
            if code == 0:
                return [json.loads(line) for line in out.splitlines()]
            assert "reach" in err and time.monotonic() < until, err
            time.sleep(0.05)

    def refused(self, *words):
        """What a command says that has to fail, once the agents answer."""
        until = time.monotonic() + support.START_S
        while True:
            code, _, err = support.run("tutti", "--agent", self.address(0), *words)
            assert code != 0
            if "could not reach" not in err:
                return err
            assert time.monotonic() < until, err
            time.sleep(0.05)

    def doctor(self):
        _, out, err = support.run("tutti", "--agent", self.address(0), "doctor")
        return out + err

    def sent(self):
        """Bytes that each host has sent so far."""
        return [int(host.run("cat", "/sys/class/net/%s/statistics/tx_bytes" % host.interface)) for host in self.hosts]

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        codes = [process.wait(support.STOP_S) for process in self.processes]
        assert codes == [0] * len(codes), codes


class TestNamespaces(unittest.TestCase):
    def check(self, count, *options):
        with namespaces.Network(count) as network:
            hosts = Hosts(network.hosts, {rank: options for rank in range(count)})
            for op in OPS:
                words = ["-b", str(SIZES[0]), "-e", str(SIZES[1]), "-f", str(SIZES[1] // SIZES[0])]
                rows = hosts.bench(op, *words, "-n", "2", "-w", "0")
                self.assertEqual([(row["bytes"], row["ranks"]) for row in rows], [(size, count) for size in SIZES])
                for row in rows:
                    found = [row[form]["wrong"] for form in ("out_of_place", "in_place") if row[form] is not None]
                    self.assertEqual(set(found), {0}, row)
            row, = hosts.bench("barrier", "-n", "2")
            self.assertEqual(row["out_of_place"]["wrong"], 0)
            self.check_wire(hosts, count)
            hosts.stop()

    def check_wire(self, hosts, count):
        """Of an all_gather of BIG each host sends at least its part, and of five calls five."""
        before = hosts.sent()
        row, = hosts.bench("all_gather", "-b", str(BIG), "-n", "4", "-w", "0")  # and one to check
        self.assertEqual(row["out_of_place"]["wrong"], 0)
        for sent, at_first in zip(hosts.sent(), before):
            self.assertGreater(sent - at_first, 5 * BIG // count)

    def test_ops__between_two_hosts(self):
        self.check(2)

    def test_ops__between_four_hosts(self):
        self.check(4)

    def test_ops__between_two_hosts_over_ucx(self):
        self.check(2, "--transports", "tcp,self")

    def test_ops__by_a_port_that_a_firewall_knows(self):
        self.check(2, "--transports", "tcp", "--data-port", str(PORT + 2), "--net-devices", "eth0")

    def test_hosts_that_do_not_speak_alike__are_told_so(self):
        with namespaces.Network(2) as network:
            hosts = Hosts(network.hosts, {1: ["--transports", "ucx"]})
            said = hosts.refused("barrier", "--timeout", "3s")
            self.assertRegex(said, "its data address is not one of .*--transports")
            said = hosts.doctor()
            self.assertIn("data goes between hosts by tcp on rank 0, by ucx on rank 1", said)
            hosts.stop()


if __name__ == "__main__":
    support.main()
