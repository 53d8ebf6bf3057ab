#!/usr/bin/python3
"""Goal: several coordinators on one etcd lose nothing that was answered, whoever of them dies, stands still or is cut off.

Method: etcd, three coordinators that are started again when they end, and three agents, each on a host of its own (network
namespaces; without them all on this machine, and nobody is cut off). Meanwhile programs of libtutti add, push, pop, append and take, and
compare each answer with the one to come (tests/client/kills_program.c); agents reduce on groups that are open; groups are made and jobs
formed. In each round the leader gets SIGKILL, SIGSTOP, or is parted from etcd, the agents and the others.

usage: test_leaders.py [test names]    TUTTI_LEADER_KILLS=100 for as many rounds as that; TUTTI_LEADER_TABLE=1 prints them as a table
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import support

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "support"))

import namespaces  # noqa: E402

import etcd_case  # noqa: E402
import numpy as np  # noqa: E402

import cluster_case as cases  # noqa: E402
from etcd_case import Etcd, end, free_port, running, spawn  # noqa: E402

from tutti.v1 import store_service_pb2 as store  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402

etcd_case.skip_all_without()

KILLS = int(os.environ.get("TUTTI_LEADER_KILLS", "10"))
LEASE = "3s"
SILENCE = "20s"  # until agents take themselves for cut off: on a busy machine a new leader may need seconds to load
PORT = 29600
WAIT_S = 60  # for another leader


class Coordinators:
    """Some coordinators on one etcd, each started again when it ends, as a supervisor does."""

    def __init__(self, etcd, folder, hosts, *options, addresses=None, name=None):
        """addresses: where they listen; name: what stands for all of them, instead of a list."""
        self.etcd, self.folder, self.hosts, self.options, self.name = etcd, folder, hosts, options, name
        self.addresses = addresses or ["%s:%d" % (host.address, PORT) if host is not None else "127.0.0.1:%d" % free_port()
                          for host in hosts]
        self.processes = [None] * len(hosts)
        self.codes = []  # of those that have ended by themselves
        self.closing = False
        self.lock = threading.Lock()
        for number in range(len(hosts)):
            self.start(number)
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def log(self, number):
        return os.path.join(self.folder, "coordinator%d.log" % number)

    def start(self, number):
        words = [os.path.join(support.PROGRAMS, "tutti-coordinator"), "--listen", self.addresses[number], "--insecure",
                 "--leader-lease", LEASE, "--store", "etcd:%s/test" % self.etcd.endpoints(), *self.options]
        self.processes[number] = spawn(self.hosts[number], words, self.log(number))

    def watch(self):
        while not self.closing:
            with self.lock:
                for number, process in enumerate(self.processes):
                    if not self.closing and process.poll() is not None:
                        self.codes.append(process.returncode)
                        running.discard(process)
                        self.start(number)
            time.sleep(0.05)

    def address(self):
        return self.name or ",".join(self.addresses)

    def leader(self):
        """Who leads by etcd's word; None = nobody."""
        rows = json.loads(self.etcd.ctl("get", "-w", "json", "test/leader", check=False) or "{}").get("kvs")
        if not rows:
            return None
        import base64

        return self.addresses.index(base64.b64decode(rows[0]["value"]).decode())

    def revision(self):
        """In which revision of etcd the present leader began; 0 = nobody leads."""
        rows = json.loads(self.etcd.ctl("get", "-w", "json", "test/leader", check=False) or "{}").get("kvs")
        return rows[0]["create_revision"] if rows else 0

    def wait_for_leader(self, after=0):
        until = time.monotonic() + WAIT_S
        while True:
            if self.revision() > after:
                found = self.leader()
                if found is not None:
                    return found
            assert time.monotonic() < until, "nobody leads: " + self.logs()
            time.sleep(0.02)

    def logs(self):
        return "".join(open(self.log(number)).read()[-3000:] for number in range(len(self.hosts)))

    def close(self):
        self.closing = True
        self.watcher.join()
        return [end(process, signal.SIGTERM) for process in self.processes]


class Agent(cases.Agent):
    """On a host of its own."""

    def __init__(self, cluster, rank, host, job="default", size=None):
        self.rank, self.cluster, self.host = rank, cluster, host
        words = ["--coordinator", cluster.coordinators.address(), "--world-size", str(size or cluster.size),
                 "--rank", str(rank), "--job", job, "--memory-limit", "64MiB", "--insecure"]
        listen = "127.0.0.1:0" if host is None else host.address + ":0"
        self.program = support.Program("tutti-agent", *words, listen=listen, host=host)
        self.channel = self.program.channel()
        self.ops = cases.collectives_grpc.CollectivesServiceStub(self.channel)
        self.diagnostics = cases.diagnostics_grpc.DiagnosticsServiceStub(self.channel)


class Rig:
    """Everything: etcd, coordinators, agents, and hosts where this machine can have some."""

    size = 3

    def __init__(self, members=1, coordinators=3, etcd_options=(), with_hosts=True, agent_host=None, **named):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-leaders-")
        self.network = None
        hosts = [None] * (coordinators + 1 + self.size)
        if with_hosts and namespaces.why_not() is None:
            self.network = namespaces.Network(len(hosts))
            hosts = self.network.hosts
        self.agents = []
        self.coordinators = None
        self.etcd = Etcd(self.folder.name, hosts[0], members, *etcd_options)
        try:
            self.coordinators = Coordinators(self.etcd, self.folder.name, hosts[1:coordinators + 1],
                                             "--heartbeat-timeout", SILENCE, **named)
            self.agent_hosts = [agent_host or host for host in hosts[coordinators + 1:]]
            self.coordinators.wait_for_leader()
            self.agents = [Agent(self, rank, self.agent_hosts[rank]) for rank in range(self.size)]
            for agent in self.agents:
                agent.wait_joined()
        except BaseException:
            self.close(False)
            raise

    def cli(self, *words):
        return support.run("tutti", "--agent", self.agents[0].program.address, *words, timeout=120)

    def close(self, well=True):
        if self.network is not None:
            self.network.join()
        for agent in self.agents:
            agent.close()
            if agent.program.process.poll() is None:
                agent.program.send(signal.SIGTERM)
        codes = []
        for agent in self.agents:
            try:
                codes.append(agent.program.stop())
            except AssertionError:
                agent.program.kill()
                codes.append("killed")
        logs = "" if well and codes == [0] * len(codes) else "".join(agent.program.log() for agent in self.agents)
        if self.coordinators is not None:
            logs += "" if well else self.coordinators.logs()
            self.coordinators.close()
        self.etcd.close()
        if self.network is not None:
            self.network.close()
        self.folder.cleanup()
        if not well:
            sys.stderr.write(logs)
        elif codes != [0] * len(codes):
            raise AssertionError("agents ended with %r: %s" % (codes, logs))


class Load:
    """A program of libtutti that calls the store, until end()."""

    def __init__(self, agent, mode, name, words=None, environment=None):
        """`words`: of another client than libtutti, without the address."""
        path = os.path.join(support.BUILD, "tests", "client", "kills_program")
        words = words or [path, "ADDRESS", mode, name]
        words = [agent.program.address if word == "ADDRESS" else word for word in words]
        self.name = name
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False, text=True,
                                        env=dict(os.environ, **(environment or {})))
        running.add(self.process)

    def end(self):
        out, _ = self.process.communicate(timeout=120)
        running.discard(self.process)
        assert self.process.returncode == 0, "%s: %s" % (self.name, out[-2000:])
        lines = [line.split(" ", 1) for line in out.splitlines()]
        return [words for words in lines if words[0] in ("popped", "turns", "gap")]


class Watch(Load):
    """One that watches all keys, and compares each change with the one to come."""

    def __init__(self, *given):
        super().__init__(*given)
        line = self.process.stdout.readline()
        assert line == "stands\n", line

    def end(self):
        """The last number of each key that it was told."""
        out, _ = self.process.communicate(timeout=120)
        running.discard(self.process)
        assert self.process.returncode == 0, "%s: %s" % (self.name, out[-2000:])
        self.changes = int(out.rpartition("changes ")[2].split()[0])
        lines = [line.split(" ", 1)[1].rpartition(" ") for line in out.splitlines() if line.startswith("told ")]
        return {key: int(number) for key, _, number in lines}


class Reduces:
    """All agents reduce on `group`, op after op, until end(); an op that fails is noted."""

    def __init__(self, agents, group):
        self.agents, self.group = agents, group
        self.count, self.errors, self.stopping = 0, [], False
        self.gate = threading.Barrier(len(agents), action=self.turn)
        self.threads = [threading.Thread(target=self.work, args=(rank,)) for rank in range(len(agents))]
        for thread in self.threads:
            thread.start()

    def turn(self):
        self.count += 1
        self.over = self.stopping

    def work(self, rank):
        while True:
            self.gate.wait()
            if self.over:
                return
            number = float(self.count)
            try:
                got = cases.all_reduce(self.agents[rank], np.full(16, number + rank, np.float64), group=self.group)
                wanted = sum(number + other for other in range(len(self.agents)))
                if not (got == wanted).all():
                    self.errors.append("op %d on rank %d: %r" % (number, rank, got))
            except cases.grpc.RpcError as error:
                self.errors.append("op %d on rank %d: %r" % (number, rank, support.Failure(error)))

    def end(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()
        return self.errors


def stop_and_wake(rig, number):
    """The leader stands still until another one leads; then it wakes, says nothing more, and ends."""
    process = rig.coordinators.processes[number]
    process.send_signal(signal.SIGSTOP)
    before = rig.coordinators.revision()
    rig.coordinators.wait_for_leader(before)
    count = len(rig.coordinators.codes)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: len(rig.coordinators.codes) > count, "the leader that woke has not ended")
    return before


def part(rig, number):
    """It hears nobody, and nobody hears it, until another one leads."""
    host = rig.coordinators.hosts[number]
    before = rig.coordinators.revision()
    rig.network.part([host], [other for other in rig.network.hosts if other is not host])
    rig.coordinators.wait_for_leader(before)
    rig.network.join()
    return before


def kill(rig, number):
    before = rig.coordinators.revision()
    rig.coordinators.processes[number].kill()
    return before


def wait_until(condition, words):
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, words
        time.sleep(0.01)


class Leaders(unittest.TestCase):
    def form_job(self, rig, number):
        """A job of two agents is formed while the leader dies, and ends."""
        agents = [Agent(rig, rank, rig.agent_hosts[rank], "round-%d" % number, 2) for rank in range(2)]
        try:
            for agent in agents:
                agent.wait_joined()
            for agent in agents:
                agent.close()
                self.assertEqual(agent.program.stop(), 0)
        finally:
            for agent in agents:
                agent.program.kill()

    def wait_in_touch(self, rig):
        """Until the agents have their sessions with the present leader: who loses two leaders in ten seconds may be cut off."""
        for agent in rig.agents:
            wait_until(lambda: agent.program.log().rfind("in touch with the coordinator again")
                       >= agent.program.log().rfind("lost the coordinator"), "no session: " + agent.program.log()[-2000:])

    def make_group(self, rig, number):
        name = "group-%d" % number
        code, _, err = rig.cli("group", "create", name, "0,1,2")
        self.assertEqual(code, 0, err)
        got = [None] * rig.size

        def work(rank):
            got[rank] = cases.all_reduce(rig.agents[rank], np.ones(4), group=name)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(rig.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in got:
            self.assertEqual(list(one), [3.0] * 4)

    def play(self, rig, rounds):
        kinds = [("SIGKILL", kill), ("SIGSTOP", stop_and_wake)]
        if rig.network is not None:
            kinds.append(("partition", part))
        watches = [Watch(rig.agents[1], "watch", "watch a"), Watch(rig.agents[2], "watch", "watch b")]
        watches += self.python_loads(rig, Watch, "watch") + self.go_loads(rig, Watch, "watch")
        gaps = Load(rig.agents[2], "gaps", "gaps")
        loads = [Load(rig.agents[0], "load", "a"), Load(rig.agents[1], "load", "b")]
        loads += self.python_loads(rig, Load, "load") + self.go_loads(rig, Load, "load")
        world = Reduces(rig.agents, "world")
        done = []
        try:
            for number in range(rounds):
                kind, act = kinds[number % len(kinds)]
                self.wait_in_touch(rig)
                leader = rig.coordinators.wait_for_leader()
                time.sleep(random.uniform(0.3, 1.0))  # at no particular moment of the load
                before = act(rig, leader)
                if number % 2 == 0:
                    self.make_group(rig, number)
                else:
                    self.form_job(rig, number)
                rig.coordinators.wait_for_leader(before)
                done.append(kind)
                assert not world.errors, world.errors
        finally:
            errors = world.end()
        lines = gaps.end()
        said = dict(zip([load.name for load in loads], [load.end() for load in loads]))
        self.judge_watches(rig, watches, dict(said, gaps=lines))
        return done, errors, world.count, lines, said

    def judge_watches(self, rig, watches, said):
        """Each was told the last change of each counter, behind all those before it."""
        code, _, err = rig.cli("store", "set", "stop", "now")
        self.assertEqual(code, 0, err)
        wanted = {"count " + name: int(dict(words)["turns"]) for name, words in said.items()}
        for watch in watches:
            told = watch.end()
            counts = {key: number for key, number in told.items() if key.startswith("count ")}
            self.assertEqual(counts, wanted, watch.name)
        print("# %d watches were told %d changes each, in order, none missing or twice"
              % (len(watches), min(watch.changes for watch in watches)))

    def python_loads(self, rig, kind_of, mode):
        """The same by the Python package, blocking and with asyncio; none where it cannot be installed."""
        sys.path.insert(0, os.path.join(support.SOURCE, "tests", "clients"))
        import worlds

        if worlds.call(["/usr/bin/python3", "-m", "pip", "--version"])[0] != 0:
            print("# without Python's package: no pip")
            return []
        python, folder = worlds.install("debian", "leaders")
        path = os.path.join(support.SOURCE, "tests", "clients", "kills_load.py")
        return [kind_of(rig.agents[2], mode, kind, [python, path, "ADDRESS", kind, mode, kind], {"PYTHONPATH": folder})
                for kind in ("sync", "aio")]

    def go_loads(self, rig, kind_of, mode):
        """The same in Go, where that is installed."""
        sys.path.insert(0, os.path.join(support.SOURCE, "tests", "clients"))
        import go_world

        if go_world.missing():
            print("# without Go: " + go_world.missing())
            return []
        world = go_world.World("go-leaders")
        program = os.path.join(world.root, "kills")
        world.go("test", "-c", "-o", program, ".")
        address = rig.agents[1].program.address
        return [kind_of(rig.agents[1], mode, "go", [program, "-test.run", "^TestKills$"],
                        {"TUTTI_TEST_KILLS": "%s %s go" % (address, mode)})]

    def judge(self, rig, said, lines):
        """All adds of all programs are in the counter, and each value was popped once."""
        turns = [int(dict(words)["turns"]) for words in said.values()]
        popped = sorted(words[1] for one in said.values() for words in one if words[0] == "popped")
        pushed = sorted("%s/%d" % (name, turn + 1) for name, count in zip(said, turns) for turn in range(count))
        self.assertEqual(popped, pushed)
        code, out, err = rig.cli("store", "get", "all")
        self.assertEqual((code, out.strip()), (0, str(sum(turns))), err)
        return sum(turns), int(dict(lines)["turns"])

    def test_nothing_is_lost_or_doubled_whoever_dies(self):
        rig = Rig()
        well = False
        try:
            done, errors, ops, lines, said = self.play(rig, KILLS)
            turns, adds = self.judge(rig, said, lines)
            self.assertEqual(errors, [])
            gaps = [int(words[1]) for words in lines if words[0] == "gap"]
            self.assertTrue(gaps)
            print("# %d kills (%s): %d turns of 8 calls and %d adds, 0 lost or doubled; %d all-reduces on %d ranks, 0 failed"
                  % (len(done), ", ".join("%d %s" % (done.count(kind), kind) for kind in sorted(set(done))), turns,
                     adds, ops, rig.size))
            print("# gaps of adds with a lease of %s: %d, median %d ms, max %d ms"
                  % (LEASE, len(gaps), statistics.median(gaps), max(gaps)))
            well = True
        finally:
            rig.close(well)


class Reader:
    """Where programs read another /etc/hosts than all others do: in a mount namespace."""

    address = "127.0.0.1"

    def __init__(self, path):
        self.path = path

    def words(self, *words):
        return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', self.path, *words]

    def why_not(self):
        done = subprocess.run(self.words("true"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              close_fds=False, text=True)
        return None if done.returncode == 0 else "no other /etc/hosts for a program: " + done.stdout.strip()


class Names(unittest.TestCase):
    """One name stands for all coordinators, as that of a service on Kubernetes does."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-names-")
        self.addCleanup(self.folder.cleanup)
        hosts = os.path.join(self.folder.name, "hosts")
        with open(hosts, "w") as file:
            file.write("127.0.0.1 localhost\n127.0.0.2 coordinators.test\n127.0.0.3 coordinators.test\n")
        self.host = Reader(hosts)
        why_not = self.host.why_not()
        if why_not is not None:
            self.skipTest(why_not)

    def test_certificates_have_the_name_alone(self):
        """A standby tells the number of the leader, which no certificate has."""
        certs = os.path.join(self.folder.name, "certs")
        code, _, err = support.run("tutti", "certs", "make", certs, "--address", "coordinators.test")
        self.assertEqual(code, 0, err)
        etcd = Etcd(self.folder.name, None, 1)
        port = free_port()
        addresses = ["127.0.0.2:%d" % port, "127.0.0.3:%d" % port]
        words = ["--store", "etcd:%s/named" % etcd.endpoints(), "--tls-cert", os.path.join(certs, "server.pem"),
                 "--tls-key", os.path.join(certs, "server.key")]
        try:
            one, two = (support.Program("tutti-coordinator", *words, listen=address)
                        for address in addresses)
            self.addCleanup(one.kill)
            self.addCleanup(two.kill)
            one.wait_for_log("this coordinator leads")
            two.wait_for_log("stands by")
            self.store("coordinators.test:%d" % port, "add", "count", "--tls-ca", os.path.join(certs, "ca.pem"))
            self.assertEqual(one.stop(), 0)
            two.wait_for_log("this coordinator leads")
            with support.Program("tutti-coordinator", *words, listen=addresses[0]) as one:
                one.wait_for_log("stands by")
                self.store("coordinators.test:%d" % port, "add", "count", "--tls-ca", os.path.join(certs, "ca.pem"))
        finally:
            etcd.close()

    def test_a_leader_that_hangs_is_left(self):
        port = free_port()
        addresses = ["127.0.0.2:%d" % port, "127.0.0.3:%d" % port]
        rig = Rig(coordinators=2, with_hosts=False, agent_host=self.host, addresses=addresses,
                  name="coordinators.test:%d" % port)
        well = False
        try:
            self.leave_each(rig)
            well = True
        finally:
            rig.close(well)

    def store(self, coordinators, *words):
        """The command finds who leads, too."""
        words = [os.path.join(support.PROGRAMS, "tutti"), "--coordinator", coordinators, "--timeout", "30s", "store", *words]
        done = subprocess.run(self.host.words(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, close_fds=False, timeout=60, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def leave_each(self, rig):
        """Each of the two leads, hangs, and is left, so that once it is the first address of the name."""
        reduces = Reduces(rig.agents, "world")
        program = os.path.join(support.BUILD, "tests", "client", "kills_program")
        load = Load(rig.agents[0], None, "named", self.host.words(program, "ADDRESS", "load", "named"))
        try:
            for _ in range(2):
                self.leave_one(rig)
        except BaseException:
            load.process.kill()
            raise
        finally:
            errors = reduces.end()
        load.end()
        self.assertEqual(errors, [])

    def leave_one(self, rig):
        number = rig.coordinators.leader()
        hung = rig.coordinators.processes[number]
        said = [agent.program.log() for agent in rig.agents]
        before = rig.coordinators.revision()
        hung.send_signal(signal.SIGSTOP)
        try:
            rig.coordinators.wait_for_leader(before)
            for rank, agent in enumerate(rig.agents):
                wait_until(lambda: "in touch with the coordinator again" in agent.program.log()[len(said[rank]):],
                           "rank %d has not found the next leader: %s" % (rank, agent.program.log()))
            self.store(rig.coordinators.name, "add", "count")
            count = self.store(rig.coordinators.name, "get", "count named")
            wait_until(lambda: self.store(rig.coordinators.name, "get", "count named") != count,
                       "a client of an agent has not found the next leader")
        finally:
            hung.send_signal(signal.SIGCONT)
        wait_until(lambda: hung.poll() is not None, "the leader that woke has not ended")
        wait_until(lambda: rig.coordinators.processes[number] is not hung, "it was not started again")


class Etcds(unittest.TestCase):
    """What becomes of the coordinators when something becomes of etcd."""

    def count(self, rig, key):
        code, out, err = rig.cli("store", "add", key)
        self.assertEqual(code, 0, err)
        return int(out)

    def run_with(self, work, **options):
        rig = Rig(coordinators=2, with_hosts=False, **options)
        well = False
        try:
            work(rig)
            well = True
        finally:
            rig.close(well)

    def test_a_member_that_dies_is_not_noticed(self):
        def work(rig):
            before = rig.coordinators.revision()
            load = Load(rig.agents[0], "load", "a")
            self.count(rig, "members")
            for number in range(3):  # one of them leads etcd
                end(rig.etcd.members[number])
                self.assertEqual(self.count(rig, "members"), number + 2)
                rig.etcd.start(number)
                rig.etcd.wait()
            load.end()
            self.assertEqual(rig.coordinators.revision(), before, "another coordinator leads: " + rig.coordinators.logs())

        self.run_with(work, members=3)

    def test_without_a_quorum_nobody_leads_and_with_it_all_goes_on(self):
        def work(rig):
            self.assertEqual(self.count(rig, "quorum"), 1)
            before = rig.coordinators.revision()
            load = Load(rig.agents[0], "load", "a")
            for number in (0, 1):
                end(rig.etcd.members[number])
            wait_until(lambda: rig.coordinators.codes, "the leader has not ended")
            for number in (0, 1):
                rig.etcd.start(number)
            rig.coordinators.wait_for_leader(before)
            self.assertEqual(self.count(rig, "quorum"), 2)
            load.end()
            self.assertIn("so this process ends", rig.coordinators.logs())

        self.run_with(work, members=3)

    def test_a_full_etcd_ends_the_leader_in_its_own_words_and_loses_nothing(self):
        def work(rig):
            answered = 0
            words = [os.path.join(support.PROGRAMS, "tutti"), "--agent", rig.agents[0].program.address, "store", "set"]
            while not rig.coordinators.codes:
                done = subprocess.run(words + ["big-%d" % answered, "-"], input=os.urandom(256 << 10), close_fds=False,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
                if done.returncode != 0:
                    wait_until(lambda: rig.coordinators.codes, "the leader goes on: " + done.stderr.decode())
                    break
                answered += 1
                self.assertLess(answered, 1000)
            self.assertGreater(answered, 0)
            wait_until(lambda: "its quota is exceeded" in rig.coordinators.logs(), rig.coordinators.logs())
            revision = json.loads(rig.etcd.ctl("get", "-w", "json", "nothing"))["header"]["revision"]
            rig.etcd.ctl("compact", str(revision))
            rig.etcd.ctl("defrag")
            rig.etcd.ctl("alarm", "disarm")
            wait_until(lambda: rig.cli("store", "count", "big-")[0] == 0, "nobody leads: " + rig.coordinators.logs())
            code, out, err = rig.cli("store", "count", "big-")
            self.assertGreaterEqual(int(out), answered, err)

        self.run_with(work, etcd_options=("--quota-backend-bytes", str(6 << 20)))

    def test_users_are_told_who_may_not(self):
        with tempfile.TemporaryDirectory(prefix="tutti-leaders-") as folder:
            etcd = Etcd(folder)
            try:
                self.check_users(etcd, folder)
            finally:
                etcd.close()

    def check_users(self, etcd, folder):
        etcd.ctl("user", "add", "root:secret")
        etcd.ctl("user", "add", "tutti:also secret")
        etcd.ctl("user", "add", "nobody:nothing")
        etcd.ctl("role", "add", "keys")
        etcd.ctl("role", "grant-permission", "keys", "readwrite", "mine/", "--prefix=true")
        etcd.ctl("user", "grant-role", "tutti", "keys")
        etcd.ctl("auth", "enable")
        words = ["--store", "etcd:%s/mine" % etcd.endpoints()]

        def write(name, text):
            path = os.path.join(folder, name)
            with open(path, "w") as file:
                file.write(text)
            return path

        def refused(*options):
            code, _, err = support.run("tutti-coordinator", "--listen", "127.0.0.1:0", *words, *options)
            self.assertEqual(code, 1, err)
            return err

        good, bad = write("good", "also secret\n"), write("bad", "wrong\n")
        self.assertIn("etcd wants a user and a password", refused())
        self.assertIn("etcd refuses the user or its password", refused("--etcd-user", "tutti", "--etcd-password-file", bad))
        other = write("other", "nothing")
        self.assertIn("may not read and write", refused("--etcd-user", "nobody", "--etcd-password-file", other))
        with support.Program("tutti-coordinator", *words, "--etcd-user", "tutti", "--etcd-password-file", good) as one:
            one.wait_for_log("this coordinator leads")
            code, out, err = support.run("tutti", "--coordinator", one.address, "store", "add", "count")
            self.assertEqual((code, out.strip()), (0, "1"), err)

    def test_tls_and_a_client_certificate(self):
        with tempfile.TemporaryDirectory(prefix="tutti-leaders-") as folder:
            certs = os.path.join(folder, "certs")
            code, _, err = support.run("tutti", "certs", "make", certs, "--address", "127.0.0.1")
            self.assertEqual(code, 0, err)
            path = lambda name: os.path.join(certs, name)  # noqa: E731
            etcd = Etcd(folder, None, 1, "--cert-file", path("server.pem"), "--key-file", path("server.key"),
                        "--trusted-ca-file", path("ca.pem"), "--client-cert-auth", scheme="https",
                        shown=("--cacert", path("ca.pem"), "--cert", path("client.pem"), "--key", path("client.key")))
            try:
                words = ["--store", "etcd:%s/tls" % etcd.endpoints(), "--etcd-ca", path("ca.pem")]
                with support.Program("tutti-coordinator", *words) as one:
                    one.wait_for_log("no election: ")
                with support.Program("tutti-coordinator", *words, "--etcd-cert", path("client.pem"),
                                     "--etcd-key", path("client.key")) as one:
                    one.wait_for_log("this coordinator leads")
                    code, out, err = support.run("tutti", "--coordinator", one.address, "store", "add", "count")
                    self.assertEqual((code, out.strip()), (0, "1"), err)
            finally:
                etcd.close()

    def test_leases_go_on_at_the_next_leader(self):
        """Keys with a lease are there when another one leads; the lease has its whole time then, can be kept, and ends."""
        def work(rig):
            def ask(call, **fields):
                address = rig.coordinators.addresses[rig.coordinators.wait_for_leader()]
                request = getattr(store, "StoreService%sRequest" % call)(**fields)
                with cases.grpc.insecure_channel(address) as channel:
                    return getattr(store_grpc.StoreServiceStub(channel), call)(request, timeout=60, wait_for_ready=True)

            def another_leads():
                before = kill(rig, rig.coordinators.wait_for_leader())
                rig.coordinators.wait_for_leader(before)
                code, _, err = rig.cli("store", "add", "leads")  # it answers
                self.assertEqual(code, 0, err)

            lease = ask("Grant", ttl_ms=6000).lease.lease
            ask("Set", key=b"mine", value=b"x", lease=lease)
            ask("Set", key=b"kept", value=b"x")
            another_leads()
            (found,) = ask("Leases").leases
            self.assertEqual((found.lease, found.ttl_ms, found.key_count), (lease, 6000, 1))
            self.assertGreater(found.left_ms, 1000, "its whole time has begun again")
            self.assertEqual(ask("KeepAlive", lease=lease).lease.lease, lease)
            another_leads()
            ask("KeepAlive", lease=lease)
            self.assertEqual(ask("Get", key=b"mine").value, b"x")
            wait_until(lambda: ask("Count", prefix=b"mine").count == 0, "the key outlives its lease")
            another_leads()
            self.assertEqual(list(ask("Leases").leases), [])
            self.assertEqual([ask("Count", prefix=key).count for key in (b"mine", b"kept")], [0, 1])

        self.run_with(work)

    def test_the_status_page_of_a_standby_names_the_leader(self):
        with tempfile.TemporaryDirectory(prefix="tutti-leaders-") as folder:
            etcd = Etcd(folder)
            programs = []
            try:
                self.check_pages(etcd, folder, programs)
            finally:
                for program in programs:
                    program.kill()
                etcd.close()

    def check_pages(self, etcd, folder, programs):
        def serve(name):
            path = os.path.join(folder, name)
            programs.append(support.Program(
                "tutti-coordinator", "--store", "etcd:%s/pages" % etcd.endpoints(), "--leader-lease", "2s",
                "--metrics=127.0.0.1:0", "--metrics-port-file=" + path))
            return programs[-1], lambda: open(path).read().strip()

        def ask(address, path):
            with urllib.request.urlopen("http://%s%s" % (address(), path), timeout=support.CALL_S) as answer:
                return answer.read().decode()

        leader, leader_page = serve("leader")
        leader.wait_for_log("this coordinator leads")
        standby, standby_page = serve("standby")
        standby.wait_for_log("this coordinator stands by")
        code, _, err = support.run("tutti", "--coordinator", leader.address, "store", "set", "x", "y")
        self.assertEqual(code, 0, err)
        self.assertNotIn("standby", json.loads(ask(leader_page, "/state")))
        state = json.loads(ask(standby_page, "/state"))
        self.assertEqual((state["standby"], state["jobs"], state["ranks"]), (leader.address, [], []))
        self.assertIn("<!doctype html>", ask(standby_page, "/").lower())
        self.assertIn("tutti_coordinator_leads 0", ask(standby_page, "/metrics"))
        self.assertIn("tutti_coordinator_leads 1", ask(leader_page, "/metrics"))
        events = urllib.request.urlopen("http://%s/events" % standby_page(), timeout=support.CALL_S)
        try:
            self.assertEqual(self.next_event(events)["standby"], leader.address)
            leader.kill()
            until = time.monotonic() + WAIT_S
            while "standby" in self.next_event(events):  # live: the page that stands open sees it lead
                self.assertLess(time.monotonic(), until)
        finally:
            events.close()
        self.assertIn("tutti_coordinator_leads 1", ask(standby_page, "/metrics"))

    def next_event(self, events):
        while True:
            line = events.readline()
            self.assertTrue(line, "the stream has ended")
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def test_standbys_refuse_calls_and_name_the_leader(self):
        def work(rig):
            leader = rig.coordinators.wait_for_leader()
            other = rig.coordinators.addresses[1 - leader]
            code, _, err = support.run("tutti", "--coordinator", other, "--timeout", "5s", "--json", "store", "get", "x")
            self.assertEqual(code, 1)
            with cases.grpc.insecure_channel(other) as channel:
                stub = cases.coordinator_grpc.CoordinatorServiceStub(channel)
                with self.assertRaises(cases.grpc.RpcError) as caught:
                    stub.LookupRanks(cases.coordinator.LookupRanksRequest(job="default"), timeout=support.CALL_S)
                said = support.Failure(caught.exception)
            self.assertEqual((said.code, said.reason), (cases.grpc.StatusCode.UNAVAILABLE, "NOT_LEADER"))
            self.assertEqual(said.metadata["leader"], rig.coordinators.addresses[leader])

        self.run_with(work)


if __name__ == "__main__":
    support.main()
