#!/usr/bin/python3
"""Goal: `tutti run` on several hosts is one job: ranks and variables as torchrun has them, and one end for all.

Method: the command once for each node: on loopback, and in network namespaces of their own where the machine has them.
"""

import os
import signal
import subprocess
import sys
import unittest

import support
from cli_case import TUTTI, Case, environment, file_path, running, start, tutti, work

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import namespaces  # noqa: E402

VARIABLES = "env | grep -E '^(RANK|WORLD_SIZE|LOCAL|GROUP|ROLE|MASTER|TORCHELASTIC)' | sort"


class Node:
    """One command, with its end."""

    def __init__(self, process):
        self.process = process
        self.code = self.text = self.err = None

    def end(self, timeout=support.START_S):
        out, err = self.process.communicate(timeout=timeout)
        self.code, self.text, self.err = self.process.returncode, out.decode(), err.decode()
        return self

    def __repr__(self):
        return "exit code %s\n%s\n%s" % (self.code, self.text, self.err)


def variables(text, rank):
    mark = "[%d] " % rank
    return dict(line[len(mark):].split("=", 1) for line in text.splitlines() if line.startswith(mark) and "=" in line)


class NodesCase(Case):
    def setUp(self):
        self.address = "127.0.0.1:%d" % support.free_port()
        self.nodes = []

    def tearDown(self):
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()
                node.end()
        until = support.time.monotonic() + support.START_S
        while running():  # agents of a command that was killed end by themselves
            self.assertLess(support.time.monotonic(), until, running())

    def node(self, rank, count, program, *options, nodes=2):
        words = ["run", "--nnodes", str(nodes), "--node-rank", str(rank), "--coordinator", self.address, "-n", str(count)]
        self.nodes.append(Node(start(*words, *options, "--", *program)))
        return self.nodes[-1]


class TestNodes(NodesCase):
    def test_run__gives_each_node_its_ranks_and_the_variables_of_torchrun(self):
        script = VARIABLES + "; %s barrier --rank $RANK; %s list --json | grep -c '\"rank\": '$RANK" % (TUTTI, TUTTI)
        late = self.node(1, 1, ["sh", "-c", script])  # before there is a coordinator
        first = self.node(0, 2, ["sh", "-c", script]).end()
        late.end()
        self.assertEqual((first.code, late.code, first.err, late.err), (0, 0, "", ""), (first, late))
        seen = [variables(first.text, 0), variables(first.text, 1), variables(late.text, 2)]
        self.assertEqual(len({(one.pop("MASTER_PORT"), one.pop("TORCHELASTIC_RUN_ID")) for one in seen}), 1)
        for rank, one in enumerate(seen):
            self.assertEqual(one, {
                "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "010"[rank], "LOCAL_WORLD_SIZE": "221"[rank],
                "GROUP_RANK": "001"[rank], "GROUP_WORLD_SIZE": "2", "ROLE_NAME": "default", "ROLE_RANK": str(rank),
                "ROLE_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "0"})
        self.assertIn("[2] 1\n", late.text)

    def test_run__twice_at_one_coordinator_does_not_mix(self):
        server = support.Program("tutti-coordinator", listen=self.address)
        try:
            for turn in ("one", "two"):
                nodes = [self.node(rank, 1, ["sh", "-c", "%s barrier --rank $RANK && echo %s" % (TUTTI, turn)])
                         for rank in range(2)]
                for rank, node in enumerate(nodes):
                    self.assertEqual((node.end().code, node.text), (0, "[%d] %s\n" % (rank, turn)), node)
        finally:
            server.stop()

    def test_run__first_failure_ends_all_nodes_and_is_named_on_each(self):
        script = "if [ $RANK = 2 ]; then exit 3; fi; sleep 600 & sleep 600"
        nodes = [self.node(0, 2, ["sh", "-c", script]), self.node(1, 1, ["sh", "-c", script])]
        for node, code in zip(nodes, (1, 3)):
            self.assertEqual(node.end().code, code, node)
            self.assertIn("rank 2 of node 1 (%s) failed with exit code 3; the others were ended" % os.uname().nodename,
                          node.err)

    def test_run__failure_on_node_0_is_heard_although_the_coordinator_is_there(self):
        script = "[ $RANK != 0 ] || kill -9 $$; sleep 600"
        nodes = [self.node(0, 1, ["sh", "-c", script]), self.node(1, 1, ["sh", "-c", script])]
        for node, code in zip(nodes, (137, 1)):
            self.assertEqual(node.end().code, code, node)
            self.assertIn("rank 0 of node 0 (%s) died of signal 9 (Killed)" % os.uname().nodename, node.err)

    def test_run__node_that_has_ended_waits_for_the_others(self):
        first = self.node(0, 1, ["sh", "-c", "%s store set ended 1" % TUTTI])
        other = self.node(1, 1, ["sh", "-c", "%s store wait ended -t 50s && exit 4" % TUTTI])
        self.assertEqual((other.end().code, first.end().code), (4, 1), (first, other))
        self.assertIn("rank 1 of node 1", first.err)

    def test_run__interrupt_on_one_node_ends_all(self):
        nodes = [self.node(rank, 1, ["sh", "-c", "echo up; exec sleep 600"]) for rank in range(2)]
        for node in nodes:
            self.assertTrue(node.process.stdout.readline().endswith(b"up\n"))
        nodes[1].process.send_signal(signal.SIGINT)
        for node, code in zip(nodes, (1, 128 + signal.SIGINT)):
            self.assertEqual(node.end().code, code, node)
        self.assertIn("node 1 (%s) was interrupted" % os.uname().nodename, nodes[0].err)

    def test_run__node_that_is_killed_ends_the_others(self):
        nodes = [self.node(rank, 1, ["sh", "-c", "echo up; exec sleep 600"]) for rank in range(2)]
        for node in nodes:
            self.assertTrue(node.process.stdout.readline().endswith(b"up\n"))
        nodes[1].process.kill()
        self.assertEqual(nodes[0].end().code, 1, nodes[0])
        self.assertIn("rank 1 of node 1 (%s) is gone" % os.uname().nodename, nodes[0].err)

    def test_run__interrupted_while_it_waits_for_a_node(self):
        node = self.node(1, 1, ["true"])
        folder = file_path("run/tutti/run-%d" % node.process.pid)
        until = support.time.monotonic() + support.START_S
        while not os.path.exists(folder):
            self.assertLess(support.time.monotonic(), until)
        node.process.send_signal(signal.SIGTERM)
        self.assertEqual(node.end().code, 1, node)
        self.assertIn("interrupted", node.err)
        self.assertFalse(os.path.exists(folder))

    def test_run__node_rank_that_is_taken_and_other_numbers_of_nodes_are_named(self):
        server = support.Program("tutti-coordinator", listen=self.address)
        try:
            for ranks, counts, text in [((1, 1), (2, 2), "--node-rank 1 is taken: two nodes state it"),
                                        ((0, 1), (2, 3), "another node states another number")]:
                nodes = [self.node(rank, 1, ["true"], nodes=count) for rank, count in zip(ranks, counts)]
                self.assertTrue(all(node.end().code == 1 and text in node.err for node in nodes), nodes)
        finally:
            server.stop()

    def test_run__more_ranks_than_the_job_has(self):
        server = support.Program("tutti-coordinator", listen=self.address)
        place = ["--coordinator", self.address, "--world-size", "3"]
        try:
            self.fails(["run", "-n", "2", "--rank-start", "2", *place, "--", "true"],
                       "ranks 2 to 3 here, but the job has 3 (--world-size)", code=2)
            words = ["run", "-n", "1", "--coordinator", self.address, "--rank-start"]
            one = Node(start(*words, "0", "--world-size", "3", "--", "true"))
            self.nodes.append(one)
            until = support.time.monotonic() + support.START_S
            while "default      3" not in tutti("--coordinator", self.address, "jobs").text:
                self.assertLess(support.time.monotonic(), until)
            self.fails([*words, "3", "--world-size", "4", "--", "true"],
                       "begun with world size 3, not 4", "ended with exit code 1")
            one.process.send_signal(signal.SIGINT)
            self.assertEqual(one.end().code, 1, one)
        finally:
            server.stop()

    def test_run__with_rank_start_joins_ranks_that_others_start(self):
        server = support.Program("tutti-coordinator", listen=self.address)
        script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $GROUP_RANK; %s barrier --rank $RANK" % TUTTI
        place = ["--coordinator", self.address, "--world-size", "3"]
        try:
            nodes = [Node(start("run", "-n", str(count), "--rank-start", str(first), *place, "--", "sh", "-c", script))
                     for first, count in ((0, 2), (2, 1))]
            self.nodes += nodes
            self.assertEqual([node.end().code for node in nodes], [0, 0], nodes)
            self.assertIn("[1] 1 3 1 0\n", nodes[0].text)
            self.assertIn("[2] 2 3 0 2\n", nodes[1].text)
            nodes = [Node(start("run", "-n", str(count), "--rank-start", str(first), *place, "--", "sh", "-c",
                                "[ $RANK = 2 ] && exit 5; sleep 600")) for first, count in ((0, 2), (2, 1))]
            self.nodes += nodes
            self.assertEqual([node.end().code for node in nodes], [1, 5], nodes)
            self.assertIn("rank 2 failed with exit code 5", nodes[0].err)
        finally:
            server.stop()

    def test_run__says_which_words_make_no_sense(self):
        where = ["--coordinator", self.address]
        for words, text in [
            (["--nnodes", "2", "-n", "1", *where], "--nnodes needs --node-rank"),
            (["--nnodes", "2", "--node-rank", "2", "-n", "1", *where], "need a number from 0 to 1"),
            (["--nnodes", "1:4", "--node-rank", "0", "-n", "1", *where], "--min-world"),
            (["--nnodes", "0", "--node-rank", "0", "-n", "1", *where], "whole number from 1 to 1024"),
            (["--nnodes", "2", "--node-rank", "0", *where], "need -n N"),
            (["--nnodes", "2", "--node-rank", "0", "-n", "1"], "need --coordinator HOST:PORT"),
            (["--nnodes", "2", "--node-rank", "0", "-n", "1", "--keep", *where], "leave them out"),
            (["--nnodes", "2", "--rank-start", "0", "-n", "1", *where], "leave out --rank-start"),
            (["--node-rank", "1"], "--node-rank is for --nnodes"),
            (["--world-size", "4"], "--world-size is for --rank-start"),
            (["--insecure"], "--insecure is for --nnodes"),
            (["--rank-start", "1", "-n", "1", *where], "--rank-start needs --world-size"),
            (["--devices", "cuda:0", "-n", "2"], "--devices cuda:0: 1 for 2 ranks"),
            (["--devices", "cuda:0,,cuda:1"], "write cuda:0,cuda:1"),
            (["--devices", "cpu", "-c", "default"], "those of --cluster run"),
        ]:
            with self.subTest(words=words):
                self.fails(["run", *words, "--", "true"], text, code=2)
        self.fails(["run", "--nnodes", "1", "-n", "1", "--coordinator", "nowhere", "--", "true"], "need HOST:PORT")

    def test_run__gives_each_agent_its_device(self):
        script = "%s list --json >&2; cat /proc/$(pgrep -f agent-$LOCAL_RANK.sock | head -1)/cmdline | tr '\\0' ' '" % TUTTI
        done = tutti("run", "--devices", "cpu", "-n", "2", "--", "sh", "-c", "echo $RANK")
        self.assertEqual(done.code, 0, done)
        done = tutti("run", "--devices", "cuda:0,cuda:7", "--", "sh", "-c", script)
        self.assertEqual(done.code, 1, done)
        self.assertRegex(done.err, "cuda:[07]")


@unittest.skipIf(namespaces.why_not(), namespaces.why_not())
class TestHosts(NodesCase):
    def test_run__on_two_hosts(self):
        with namespaces.Network(2) as network:
            self.address = network.hosts[0].address + ":29600"
            script = VARIABLES + "; hostname -I; %s barrier --rank $RANK && echo met" % TUTTI
            done = self.on_hosts(network, script, "--insecure")
            self.assertEqual([node.code for node in done], [0, 0], done)
            for rank in range(3):
                node = done[rank // 2]
                self.assertIn("[%d] met\n" % rank, node.text)
                self.assertEqual(variables(node.text, rank)["MASTER_ADDR"], network.hosts[0].address)

    def test_run__refuses_plaintext_between_hosts_unless_told(self):
        with namespaces.Network(2) as network:
            self.address = network.hosts[0].address + ":29600"
            process = network.hosts[0].start([TUTTI, "run", "--nnodes", "2", "--node-rank", "0", "--coordinator",
                                              self.address, "-n", "1", "--", "true"], env=environment(),
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work.name)
            node = Node(process).end()
            self.assertEqual(node.code, 1, node)
            self.assertRegex(node.err, "--insecure")

    def test_run__cut_off_node_ends_both(self):
        with namespaces.Network(2) as network:
            self.address = network.hosts[0].address + ":29600"
            nodes = self.start_on(network, "echo up; exec sleep 600", "--insecure",
                                  TUTTI_HEARTBEAT_TIMEOUT="2s", TUTTI_HEARTBEAT_INTERVAL="500ms")
            for node in nodes:
                self.assertTrue(node.process.stdout.readline().endswith(b"up\n"))
            network.part(network.hosts[:1], network.hosts[1:])
            self.assertEqual(nodes[0].end().code, 1, nodes[0])
            self.assertRegex(nodes[0].err, r"rank 2 of node 1 \(.*\) is gone")
            # Who has given its coordinator up, after 30 s, asks it nothing more: each call would take its whole time.
            self.assertEqual(nodes[1].end(50).code, 1, nodes[1])
            self.assertRegex(nodes[1].err, "does not answer|is gone")

    def start_on(self, network, script, *options, **more):
        words = [TUTTI, "run", "--nnodes", "2", "--coordinator", self.address, *options]
        return [Node(host.start([*words, "--node-rank", str(rank), "-n", str(2 - rank), "--", "sh", "-c", script],
                                env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work.name,
                                stdin=subprocess.DEVNULL))
                for rank, host in enumerate(network.hosts)]

    def on_hosts(self, network, script, *options):
        return [node.end() for node in self.start_on(network, script, *options)]


if __name__ == "__main__":
    support.main()
