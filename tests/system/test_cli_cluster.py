#!/usr/bin/python3
"""Goal: `tutti cluster` and `tutti run` start what they say, end it when they say, and leave nothing.

Method: clusters and programs of their own for each test; processes are killed, ports taken. After
each test, no process of it is left.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import support
from cli_case import TUTTI, Case, environment, file_path, running, start, tutti

import numpy as np


class TestCluster(Case):
    def tearDown(self):
        for name in ("default", "two"):
            tutti("cluster", "stop", "--name", name)
        self.assertEqual(running(), [])

    def start(self, *words):
        return self.json("cluster", "start", *words)

    def test_cluster__lives_until_it_is_stopped(self):
        self.fails(["cluster", "status"], 'no cluster "default" here, and no other')
        self.fails(["status", "-c", "two"], 'no cluster "two" here, and no other: tutti cluster start --name two')
        made = self.start("-n", "2")
        self.assertEqual((made["ready"], len(made["agents"])), (True, 2))
        self.assertEqual(self.json("cluster", "status"), made)
        self.assertIn("runs", self.well("cluster", "status").text)
        self.assertEqual(os.stat(made["folder"]).st_mode & 0o777, 0o700)
        self.fails(["cluster", "start"], "cluster default runs already: tutti cluster stop")
        other = self.start("-n", "1", "--name", "two")
        self.fails(["cluster", "stop", "--name", "three"], 'no cluster "three" here, there is default, two\n')
        self.assertEqual(self.json("status", "-c", "two")["world_size"], 1)
        self.well("cluster", "stop", "--name", "two")
        self.assertFalse(os.path.exists(other["folder"]))
        self.assertEqual(self.json("status")["alive"], 2)
        self.assertEqual(self.well("cluster", "stop").text, "cluster default is stopped\n")
        self.assertEqual(os.listdir(os.path.dirname(made["folder"])), [])
        self.fails(["list"], "no agent: say --agent ADDRESS, set TUTTI_AGENT, or start a cluster")

    def test_cluster_start__passes_on_what_servers_alone_read(self):
        given = {"TUTTI_TVM_FUNCTIONS": "demo", "TUTTI_TVM_LIBRARIES": "a.so,b.so", "TUTTI_TOKEN_FILE": "/nowhere"}
        made = tutti("cluster", "start", "-n", "1", "--json", **given).json
        with open("/proc/%d/environ" % made["agents"][0]["pid"], "rb") as file:
            found = dict(one.split("=", 1) for one in file.read().decode().split("\0") if one.startswith("TUTTI_"))
        self.assertEqual({key: found.get(key) for key in given}, {**given, "TUTTI_TOKEN_FILE": None})

    def test_cluster_start__that_fails_says_why_and_leaves_nothing(self):
        first = self.start("-n", "1", "--tcp")
        port = first["coordinator"]["address"].rsplit(":", 1)[1]
        self.fails(
            ["cluster", "start", "--name", "two", "--tcp", "--port", port],
            "could not listen on 127.0.0.1:" + port,
            "in use by tutti-coordinator (pid %d)" % first["coordinator"]["pid"],
            "the coordinator ended with exit code",
        )
        self.fails(
            ["cluster", "start", "--name", "two", "--", "--nonsense"],
            "no option --nonsense",
            "the agent of rank 0 ended with exit code 2",
        )
        self.fails(["cluster", "start", "--name", "two", "--port", port], "--port is for --tcp", code=2)
        self.fails(["cluster", "start", "-n", "0"], "whole number from 1 to 1024", code=2)
        self.fails(["cluster", "start", "--name", "../x"], 'cluster name "../x"')
        self.fails(["cluster", "start", "-m", "much"], "write 512MiB", code=2)
        self.fails(["cluster", "status", "--name", "two"], 'no cluster "two" here')
        self.well("cluster", "stop")
        self.assertEqual(running(), [])

    def test_cluster_start__interrupted_leaves_nothing(self):
        starting = start("cluster", "start", "-n", "2", "--", "--world-size", "3")
        folder = file_path("run/tutti/default")
        until = time.monotonic() + support.START_S
        while not os.path.exists(os.path.join(folder, "agent-1.port")):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        starting.send_signal(signal.SIGINT)
        out, err = starting.communicate(timeout=support.START_S)
        self.assertEqual(starting.returncode, 1)
        self.assertIn(b"interrupted", err)
        self.assertEqual(running(), [])
        self.assertFalse(os.path.exists(folder))

    def test_cluster_start__with_tcp_is_reached_both_ways(self):
        made = self.start("-n", "2", "--tcp")
        self.assertRegex(made["coordinator"]["address"], r"^127\.0\.0\.1:\d+$")
        for agent in made["agents"]:
            self.assertRegex(agent["address"], r"^127\.0\.0\.1:\d+$")
            for address in (agent["address"], agent["socket"]):
                self.assertEqual(self.json("list", "--agent", address)["rank"], agent["rank"])

    def test_cluster_start__with_limits_and_agent_options(self):
        self.start("-n", "1", "-m", "64KiB", "--", "--op-timeout", "10s")
        self.save("big.npy", np.zeros(100000, np.uint8))
        self.fails(["put", "big.npy"], "97.7 KiB", "0 bytes of 64 KiB are used")
        self.assertEqual(self.json("status")["ranks"][0]["memory_limit_bytes"], 65536)

    def test_data_plane__stays_on_loopback_unless_somebody_says_where(self):
        self.start("-n", "2", "--", "--no-shm")
        ranks = self.json("doctor")["ranks"]
        self.assertEqual([rank["net_devices"] for rank in ranks], ["lo", "lo"])
        self.well("bench", "all_reduce", "-b", "64K", "-n", "3", "--check")
        self.well("cluster", "stop")
        self.fails(
            ["cluster", "start", "--", "--net-devices", "lo,eth7"],
            "to use the interface eth7, which this host does not have",
            "the agent of rank 0 ended",
        )

    def test_state__is_in_the_runtime_folder_or_else_in_that_for_temporary_files(self):
        folder = file_path("temporary")
        os.mkdir(folder)
        made = tutti("cluster", "start", "-n", "1", "--json", XDG_RUNTIME_DIR=None, TMPDIR=folder)
        self.assertEqual(made.code, 0, made)
        try:
            self.assertEqual(os.listdir(folder), ["tutti-%d" % os.geteuid()])
            self.assertEqual(tutti("cluster", "status", TMPDIR=folder).code, 1)
            self.assertEqual(tutti("cluster", "status", XDG_RUNTIME_DIR="relative", TMPDIR=folder).code, 0)
        finally:
            done = tutti("cluster", "stop", XDG_RUNTIME_DIR=None, TMPDIR=folder)
        self.assertEqual(done.code, 0, done)
        for words, folder in [("set XDG_RUNTIME_DIR or TMPDIR", file_path("nowhere")),
                              ("too long for sockets", "/" + 120 * "x")]:
            done = tutti("cluster", "start", XDG_RUNTIME_DIR=None, TMPDIR=folder)
            self.assertEqual(done.code, 1)
            self.assertIn(words, done.err)
            self.assertIn(folder, done.err)

    def test_dead_agent__is_named(self):
        made = self.start("-n", "3")
        os.kill(made["agents"][1]["pid"], signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while tutti("--json", "status").json["alive"] > 2:
            self.assertLess(time.monotonic(), until)
        done = tutti("status")
        self.assertEqual((done.code, done.err), (1, ""))
        self.assertRegex(done.text, r"(?m)^ +1 +lost .*gone$")
        self.fails(["list", "--rank", "1"], "rank 1: could not reach", "nothing listens there")
        self.fails(["barrier"], "rank 1: could not reach")
        self.fails(["barrier", "--rank", "0"], "rank 1 is gone")
        done = tutti("cluster", "status")
        self.assertEqual(done.code, 1)
        self.assertIn("is gone", done.text)
        self.fails(["cluster", "start"], "agent 1 is gone: tutti cluster restart --name default")
        self.assertIn("tutti cluster restart 1 --name default", tutti("doctor").text)
        error = tutti("list", "--rank", "1", "--json").json["error"]
        self.assertEqual(error["code"], "UNAVAILABLE")

    def test_cluster_list__shows_all_of_this_user(self):
        self.assertEqual(self.json("cluster", "list"), {"clusters": []})
        self.start("-n", "2")
        two = self.start("-n", "1", "--name", "two")
        os.makedirs(file_path("run/tutti/no-cluster"))
        self.assertEqual([one["name"] for one in self.json("cluster", "list")["clusters"]], ["default", "two"])
        os.kill(two["agents"][0]["pid"], signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while self.json("cluster", "list")["clusters"][1]["agents"][0]["alive"]:
            self.assertLess(time.monotonic(), until)
        text = self.well("cluster", "list").text
        self.assertRegex(text, r"(?m)^default +runs +2 of 2 ")
        self.assertRegex(text, r"(?m)^two +lacks agents +0 of 1 ")
        os.rmdir(file_path("run/tutti/no-cluster"))

    def test_cluster_restart__gives_seats_back(self):
        made = self.start("-n", "3", "-m", "1MiB", "--tcp", "--", "--op-timeout", "10s")
        self.fails(["cluster", "restart"], "all agents of cluster default run: name the ranks")
        self.fails(["cluster", "restart", "3"], "no rank 3 in cluster default of 3")
        self.fails(["cluster", "restart", "x"], '"x": need a list of ranks: 1, 0-3 or 1,5', code=2)
        self.save("x.npy", np.ones(3))
        self.well("put", "x.npy", "--rank", "2", "--name", "kept")
        os.kill(made["agents"][1]["pid"], signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while self.json("cluster", "status")["agents"][1]["alive"]:
            self.assertLess(time.monotonic(), until)
        again = self.json("cluster", "restart")
        self.assertEqual((again["restarted"], again["alive"]), ([1], True))
        for rank in (0, 2):
            self.assertEqual(again["agents"][rank], made["agents"][rank])
        self.well("barrier")
        self.well("stat", "kept", "--rank", "2")
        self.assertEqual(self.json("status")["ranks"][1]["memory_limit_bytes"], 1 << 20)
        self.assertEqual(self.json("list", "--agent", again["agents"][1]["address"])["rank"], 1)
        again = self.json("cluster", "restart", "0,2,0-0")  # that run
        self.assertEqual(again["restarted"], [0, 2])
        self.assertNotEqual(again["agents"][2]["pid"], made["agents"][2]["pid"])
        self.well("barrier")
        os.kill(made["coordinator"]["pid"], signal.SIGKILL)
        while self.json("cluster", "status")["coordinator"]["alive"]:
            self.assertLess(time.monotonic(), until)
        self.fails(["cluster", "restart", "0"], "the coordinator of cluster default is gone")

    def json(self, *words):
        """Also of commands that exit with 1 to say that something is not as it should be."""
        done = tutti("--json", *words)
        self.assertIn(done.code, (0, 1), done)
        self.assertNotIn("error", done.json)
        return done.json

    def test_logs__are_merged_by_time_and_followed(self):
        made = self.start("-n", "2")
        whole = self.well("logs").text.splitlines()
        stamps = [line.split(" ")[1] for line in whole if re.match(r"\[\w+\] \d{4}-", line)]
        self.assertGreater(len(stamps), 3)
        self.assertEqual(stamps, sorted(stamps))
        self.assertEqual({line.split(" ")[0] for line in whole}, {"[coordinator]", "[0]", "[1]"})
        with open(made["agents"][1]["log"]) as file:
            text = file.read()
        self.assertEqual(self.well("logs", "1").text, text)
        self.assertEqual(self.well("logs", "1", "-n", "2").text.splitlines(), text.splitlines()[-2:])
        last = json.loads(self.well("logs", "coordinator", "-n", "1", "--json").text)
        self.assertEqual(sorted(last), ["line", "rank"])
        self.assertIsNone(last["rank"])
        self.fails(["logs", "2"], '"2" is no process of cluster default: need a rank from 0 to 1, or coordinator')
        following = start("logs", "0", "-f")
        for line in self.well("logs", "0").out.splitlines(keepends=True):
            self.assertEqual(following.stdout.readline(), line)
        self.well("cluster", "restart", "1")
        while b"rank 1 is back" not in following.stdout.readline():
            self.assertIsNone(following.poll())
        with open(made["agents"][0]["log"], "ab") as file:
            file.write(b"half \xff\x00")
            file.flush()
            file.write(b"line\n")
        while (line := following.stdout.readline()) != b"half \xff\x00line\n":
            self.assertNotEqual(line, b"")
        self.assertIn("half ?", self.well("logs", "0", "--json").text)
        self.well("cluster", "stop")
        following.communicate(timeout=support.START_S)
        self.assertEqual(following.returncode, 0)
        self.fails(["logs"], 'no cluster "default" here')

    def test_dead_coordinator__is_said(self):
        made = self.start("-n", "1")
        os.kill(made["coordinator"]["pid"], signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while self.json("cluster", "status")["coordinator"]["alive"]:
            self.assertLess(time.monotonic(), until)
        address = made["coordinator"]["address"]
        self.fails(["status"], "could not reach " + address)
        self.fails(["store", "get", "a"], "could not reach " + address)
        self.assertEqual(self.json("list")["tensors"], [])

    def test_cluster__of_a_dead_machine_is_swept_away(self):
        made = self.start("-n", "1")
        for process in made["agents"] + [made["coordinator"]]:
            os.kill(process["pid"], signal.SIGKILL)
        until = time.monotonic() + support.START_S
        while self.json("cluster", "list")["clusters"][0]["alive"]:
            self.assertLess(time.monotonic(), until)
        self.assertEqual(len(self.start("-n", "2")["agents"]), 2)


class TestRun(Case):
    def tearDown(self):
        self.assertEqual(running(), [])
        folder = file_path("run/tutti")
        self.assertEqual(os.listdir(folder) if os.path.exists(folder) else [], [])

    def test_run__gives_each_rank_its_environment_and_prefix(self):
        script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $TUTTI_JOB $MASTER_ADDR"
        script += "; test -n $TUTTI_COORDINATOR; test $MASTER_PORT -gt 0; echo loud >&2; %s list"
        done = tutti("run", "-n", "3", "--", "sh", "-c", script % TUTTI)
        self.assertEqual(done.code, 0, done)
        for rank in range(3):
            self.assertIn("[%d] %d 3 %d 3 default 127.0.0.1\n" % (rank, rank, rank), done.text)
            self.assertIn("[%d] HANDLE" % rank, done.text)
            self.assertIn("[%d] loud\n" % rank, done.err)
        for line in done.text.strip().split("\n") + done.err.strip().split("\n"):
            self.assertRegex(line, r"^\[[0-2]\] ")

    def test_run__speaks_to_the_agent_beside_each_program(self):
        script = "import json, os, subprocess; seen = json.loads(subprocess.check_output(["
        script += "'%s', 'list', '--json'])); assert seen['rank'] == int(os.environ['RANK'])" % TUTTI
        done = tutti("run", "-n", "2", "--", sys.executable, "-c", script)
        self.assertEqual(done.code, 0, done)

    def test_run__one_failure_ends_all_and_is_the_exit_code(self):
        script = "if [ $RANK = 2 ]; then sleep 0.3; exit 3; fi; sleep 600 & sleep 600"
        before = time.monotonic()
        done = tutti("run", "-n", "4", "--", "sh", "-c", script)
        self.assertEqual(done.code, 3, done)
        self.assertIn("rank 2 failed with exit code 3; the others were ended", done.err)
        self.assertLess(time.monotonic() - before, 300)

    def test_run__a_signal_is_told_and_counted_as_shells_do(self):
        done = tutti("run", "-n", "2", "--", "sh", "-c", "[ $RANK = 0 ] || kill -9 $$; sleep 600")
        self.assertEqual(done.code, 137, done)
        self.assertIn("rank 1 died of signal 9 (Killed)", done.err)

    def test_run__json_keeps_standard_output_clean(self):
        done = tutti("run", "-n", "2", "--json", "--", "sh", "-c", "echo out; exit $RANK")
        self.assertEqual(done.code, 1, done)
        self.assertEqual(done.json["exit_code"], 1)
        self.assertEqual([one["rank"] for one in done.json["programs"]], [0, 1])
        self.assertEqual(done.json["programs"][1]["exit_code"], 1)
        self.assertIn("out", done.err)

    def wait_listed(self, program):
        """What `cluster list` says of the run of this program."""
        until = time.monotonic() + support.START_S
        while True:
            found = [one for one in self.json("cluster", "list")["clusters"] if program in one["program"]]
            if found and found[0]["ready"]:
                return found[0]
            self.assertLess(time.monotonic(), until, program)
            time.sleep(0.02)

    def test_run__passes_signals_on(self):
        running_one = start("run", "-n", "2", "--", "sh", "-c", "echo up; exec sleep 600")
        listed = self.wait_listed("echo up; exec sleep 600")
        self.assertEqual(listed["name"], "run-%d" % running_one.pid)
        self.assertLess(listed["age_s"], support.START_S)
        self.assertTrue(running_one.stdout.readline().endswith(b"up\n"))
        self.assertTrue(running_one.stdout.readline().endswith(b"up\n"))
        running_one.send_signal(signal.SIGTERM)
        running_one.communicate(timeout=support.START_S)
        self.assertEqual(running_one.returncode, 128 + signal.SIGTERM)

    def start_up(self, *words):
        """A run of two programs that both say that they are up."""
        one = start("run", "-n", "2", *words)
        self.addCleanup(one.kill)
        for _ in range(2):
            self.assertTrue((one.stderr if "--json" in words else one.stdout).readline().endswith(b"up\n"))
        return one

    def test_run__that_is_killed_leaves_nothing(self):
        folder = file_path("run/tutti")
        stubborn = "[ $RANK = 0 ] || trap '' TERM HUP; sleep 600 & echo up; while :; do sleep 1; done"
        one = self.start_up("--", "sh", "-c", stubborn)
        self.assertIn("run-%d" % one.pid, os.listdir(folder))
        one.kill()
        one.communicate(timeout=support.START_S)
        until = time.monotonic() + support.START_S
        while running() or os.listdir(folder):
            self.assertLess(time.monotonic(), until, (running(), os.listdir(folder)))
            time.sleep(0.05)

    def test_run__that_is_killed_leaves_the_cluster_that_it_used(self):
        made = self.json("cluster", "start", "-n", "2")
        self.addCleanup(tutti, "cluster", "stop")
        one = self.start_up("-c", "default", "--", "sh", "-c", "sleep 600 & echo up; exec sleep 600")
        before = len(running())
        one.kill()
        one.communicate(timeout=support.START_S)
        until = time.monotonic() + support.START_S
        while len(running()) > 3:  # a coordinator and two agents
            self.assertLess(time.monotonic(), until, (before, running()))
            time.sleep(0.05)
        self.assertEqual(self.json("cluster", "status"), made)
        self.well("cluster", "stop")

    def test_run__does_not_wait_for_programs_after_a_second_interrupt(self):
        one = self.start_up("--json", "--", "sh", "-c", "trap '' INT TERM; echo up; while :; do sleep 1; done")
        until = time.monotonic() + support.START_S
        while one.poll() is None and time.monotonic() < until:
            one.send_signal(signal.SIGINT)
            time.sleep(0.2)
        out, _ = one.communicate(timeout=support.START_S)
        self.assertEqual(one.returncode, 128 + signal.SIGINT)
        for program in json.loads(out)["programs"]:
            self.assertLess(program["elapsed_ms"], 5000, "it was given its 5 s")

    def test_run__gives_standard_input_to_rank_0(self):
        done = tutti("run", "-n", "2", "--", "cat", stdin=b"hello\nworld")
        self.assertEqual((done.code, done.text), (0, "[0] hello\n[0] world\n"))
        done = tutti("run", "-n", "1", "--no-prefix", "--", "cat", stdin=b"hello\nworld")
        self.assertEqual((done.code, done.text), (0, "hello\nworld"))

    def test_run__ends_after_its_time(self):
        done = tutti("run", "-n", "2", "-t", "300ms", "--", "sleep", "600")
        self.assertEqual(done.code, 124, done)
        self.assertIn("--timeout of 0.3 s", done.err)

    def test_run__says_what_it_cannot_do(self):
        self.fails(["run", "-n", "2"], "too few arguments", code=2)
        self.fails(["run", "--", "no-such-program"], "could not run no-such-program: No such file", code=127)
        self.fails(["run", "--", "/dev/null"], "could not run /dev/null: Permission denied", code=126)
        self.fails(["run", "-c", "nobody", "--", "true"], 'no cluster "nobody" here')
        self.fails(["run", "-n", "x", "--", "true"], "whole number", code=2)

    def test_run__gives_each_program_the_variables_of_torchrun(self):
        script = "env | grep -E '^(GROUP|ROLE|TORCHELASTIC|LOCAL)_' | sort"
        done = tutti("run", "-n", "2", "--", "sh", "-c", script, TORCHELASTIC_USE_AGENT_STORE="True")
        self.assertEqual(done.code, 0, done)
        for rank in range(2):
            seen = dict(line.split("] ", 1)[1].split("=", 1) for line in done.text.splitlines()
                        if line.startswith("[%d]" % rank))
            self.assertRegex(seen.pop("TORCHELASTIC_RUN_ID"), "^run-[0-9]+$")
            self.assertEqual(seen, {
                "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                "ROLE_NAME": "default", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2",
                "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0"})

    def test_run__says_what_stands_for_the_options_of_torchrun(self):
        for option, text in [("--nproc-per-node=2", "-n N"), ("--nproc_per_node", "-n N"), ("--rdzv-endpoint", "--coordinator"),
                             ("--standalone", "private cluster"), ("--max-restarts=3", "leave it out"),
                             ("--tee", "--no-prefix"), ("--log-dir", "> FILE")]:
            self.fails(["run", option, "3", "--", "true"], "no option " + option, text, code=2)

    def test_run__master_port_is_free_on_all_addresses(self):
        """In a network of its own, where all ports that the system gives away are in use on 127.0.1.1."""
        space = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo 40000 40015 > "
                 "/proc/sys/net/ipv4/ip_local_port_range && exec \"$@\"", "sh"]
        if subprocess.run([*space, "true"], capture_output=True).returncode != 0:
            self.skipTest("no network namespaces here")
        program = "import os, socket; port = int(os.environ['MASTER_PORT'])\n"
        program += "six = socket.socket(socket.AF_INET6); six.bind(('::', port)); six.listen(); six.close()\n"
        program += "four = socket.socket(); four.bind(('0.0.0.0', port)); four.listen(); print('bound')"
        holder = "import socket, subprocess, sys\nheld = [socket.socket() for port in range(40000, 40016)]\n"
        holder += "for number, one in enumerate(held): one.bind(('127.0.1.1', 40000 + number)); one.listen()\n"
        holder += "sys.exit(subprocess.run(sys.argv[1:]).returncode)"
        words = [TUTTI, "run", "-n", "1", "--no-prefix", "--", sys.executable, "-c", program]
        done = subprocess.run([*space, sys.executable, "-c", holder, *words], capture_output=True, text=True,
                              env=environment(), timeout=support.START_S)
        self.assertEqual((done.returncode, done.stdout), (0, "bound\n"), done)

    def test_run__uses_and_keeps_a_cluster(self):
        self.well("cluster", "start", "-n", "2")
        try:
            done = tutti("run", "-c", "default", "--", "sh", "-c", "echo $WORLD_SIZE")
            self.assertEqual((done.code, done.text.count("] 2\n")), (0, 2), done)
            self.fails(["run", "-n", "5", "-c", "default", "--", "true"], "5 programs", "has 2 ranks")
            self.assertEqual(self.json("status")["alive"], 2)
        finally:
            self.well("cluster", "stop")
        done = tutti("run", "-n", "1", "--keep", "--", "true")
        self.assertEqual(done.code, 0)
        name = re.search("cluster (run-[0-9]+) runs on", done.err).group(1)
        self.well("cluster", "stop", "--name", name)


if __name__ == "__main__":
    support.main()
