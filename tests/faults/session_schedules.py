"""Schedules of sessions: a controller drives all agents, and the leader, a worker, the controller, a host of functions or the
coordinator is spoilt."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import types as plain

import grpc
import numpy as np

from cluster_case import LONG_S, coordinator, support, tensors, types
from fault_cluster import HEARTBEAT_S, Broken, FaultAgent, FaultCluster, coordinator_member
from fault_ops import SIZE
from relay import Relay
from schedules import Schedule
from session_stream import Failed, Session, arg_of, functions, sessions

sys.path.append(os.path.join(support.SOURCE, "tests", "support"))
import built_package  # noqa: E402

sys.path.insert(0, support.build_stubs())
from tutti.v1 import functions_service_pb2_grpc as functions_grpc  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LINGER_S = 5
SOON_S = 3  # for registers to be freed; an idle machine needs some 0.1 s
FREED_S = 1  # ... by those that a killed leader leaves behind
STREAM_S = 25  # of a whole session: who reaches this has hung
CALL_TIMEOUT_MS = 800  # of a call that hangs
PYTHON = """#!/bin/sh
PYTHONPATH=%s exec /usr/bin/python3 %s "$@"
"""


class SessionAgent(FaultAgent):
    """With session_host.py beside it."""

    def start(self, *words):
        environment = {"TUTTI_CHAOS": self.page.path, "PATH": SessionCluster.path() + ":" + os.environ["PATH"]}
        return support.Program("tutti-agent", *words, environment=environment)


class SessionCluster(FaultCluster):
    agent_class = SessionAgent
    folder_of_python = None
    making = threading.Lock()

    def __init__(self, size):
        super().__init__(size, "--python", "faults", "--session-linger", "%ds" % LINGER_S, "--op-timeout", "10s")
        self.wait_for_hosts()

    @classmethod
    def path(cls):
        """A folder with what agents start as python3."""
        with cls.making:
            if cls.folder_of_python is None:
                cls.folder_of_python = tempfile.TemporaryDirectory(prefix="tutti-python-")
                path = os.path.join(cls.folder_of_python.name, "python3")
                with open(path, "w") as file:
                    file.write(PYTHON % (support.build_stubs(), os.path.join(HERE, "session_host.py")))
                os.chmod(path, stat.S_IRWXU)
        return cls.folder_of_python.name

    def wait_for_hosts(self):
        """Those that have ended come back by themselves."""
        until = time.monotonic() + LONG_S
        for agent in self.agents:
            stub = functions_grpc.FunctionsServiceStub(agent.channel)
            while "faults.add" not in [
                one.name for one in stub.ListFunctions(functions.ListFunctionsRequest(), timeout=LONG_S).functions
            ]:
                if time.monotonic() > until:
                    raise Broken("the host of rank %d does not come back: %s" % (agent.rank, agent.program.log()[-500:]))
                time.sleep(0.02)

    def wait_until_it_works(self):
        super().wait_until_it_works()
        self.wait_for_hosts()


class SessionSchedule(Schedule):
    """`victim` is the leader, or a worker that is not; it strikes while the session is what `phase` says."""

    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        self.leader = self.victim
        if not fault.startswith("leader-"):
            self.leader = (self.victim + self.random.randrange(1, SIZE)) % SIZE
        self.others = [rank for rank in range(SIZE) if rank not in (self.victim, self.leader)]
        self.commands = self.random.choice((10, 60, 200))
        self.way = fault.split("-", 1)[1] if fault.startswith("controller-") else ""
        self.sort = self.random.randrange(100)  # of a crash, or of nonsense
        self.lingers = phase == "linger"
        self.name += " [leader %d, %d commands]" % (self.leader, self.commands)
        self.wanted = {}  # by command: what it gives on each worker; integers are in its answer
        self.relay = None

    @property
    def deadly(self):
        return self.fault.split("-", 1)[1] in ("silence", "kill") and self.fault.startswith(("leader-", "worker-"))

    @property
    def silent(self):
        return self.fault in ("leader-silence", "worker-silence")

    @property
    def of_host(self):
        return self.fault.startswith("function-")

    # ------------------------------------------------------------------ commands

    def open(self, cluster, leader, **fields):
        return Session(cluster.agents[leader], timeout=STREAM_S, **fields)

    def send_commands(self, session, first, count):
        """Many at once. Each register is written once: commands in any state leave it null, failed or right."""
        for register in range(first, first + count):
            kind = self.random.choice(("reduce", "copy", "gather", "add"))
            if kind == "reduce":
                number = session.send(all_reduce=sessions.DriveReduce(
                    src=1, into=register, reduce_op=types.REDUCE_OP_SUM))
                wanted = [[10.0, 10.0]] * SIZE
            elif kind == "copy":
                number = session.send(copy=sessions.DriveCopy(src=1, into=register))
                wanted = [[rank + 1.0] * 2 for rank in range(SIZE)]
            elif kind == "gather":
                number = session.send(all_gather=sessions.DriveMove(src=1, into=register))
                wanted = [[1.0, 1, 2, 2, 3, 3, 4, 4]] * SIZE
            else:
                number = self.send_call(session, "add", register, into=register)
                wanted = [register + rank for rank in range(SIZE)]
            self.wanted[number] = (register, kind, wanted)

    def send_call(self, session, name, *args, **fields):
        return session.send(call=sessions.DriveCall(
            function="faults." + name, args=[arg_of(one) for one in args], **fields))

    def fill(self, cluster, session):
        session.fill(cluster, 1, [np.full(2, rank + 1, np.float32) for rank in range(SIZE)])

    # ------------------------------------------------------------------ the fault

    def strike(self, cluster, session=None):
        kind = self.fault.split("-", 1)[1] if "-" in self.fault else ""
        agent = cluster.agents[self.victim]
        if self.fault in ("leader-kill", "worker-kill"):
            agent.program.kill()
        elif self.silent or self.fault in ("leader-stop", "worker-stop"):
            agent.program.send(signal.SIGSTOP)
            wait = HEARTBEAT_S + 1 if self.silent else self.random.uniform(0.02, 0.3)
            threading.Timer(wait, self.wake, (agent,)).start()
        elif self.fault == "session-coordinator":
            cluster.kill_coordinator()
            threading.Timer(self.random.uniform(0.01, 0.4), cluster.start_coordinator).start()
        elif self.fault == "function-kill":
            os.kill(self.host, signal.SIGKILL)
        elif self.of_host:
            fields = {"timeout_ms": CALL_TIMEOUT_MS} if kind == "hang" else {}
            self.bad = self.send_call(session, kind, self.victim, self.sort, **fields)

    # ------------------------------------------------------------------ its play

    def play(self, cluster):
        if self.way:
            self.play_controller(cluster)
        else:
            self.play_session(cluster)
        return {}

    def play_session(self, cluster):
        session = self.open(cluster, self.leader, linger=self.lingers)
        self.fill(cluster, session)
        if self.fault == "function-kill":
            found = session.wait(self.send_call(session, "pid", 0)).values
            self.host = [one.value.integer for one in found if one.worker == self.victim][0]
        half = self.commands // 2
        if self.phase != "idle":
            self.send_commands(session, 2, half)
        if self.phase == "call":
            slow = self.send_call(session, "sleep", 7, 300, into=900)
            self.wanted[slow] = (900, "add", [7 + rank for rank in range(SIZE)])
            session.flush()
        time.sleep(self.random.uniform(0, 0.03) if self.phase == "commands" else 0)
        self.strike(cluster, session)
        began = time.monotonic()
        if self.fault == "leader-kill" and not self.lingers:
            self.check_free(cluster, began, FREED_S)
        self.send_commands(session, 2 + half, self.commands - half)
        ended = self.collect(cluster, session)
        if self.lingers:
            session.drop()
            self.resume(cluster, session, ended)
        elif not ended:
            self.close(session)
        if self.deadly and not self.lingers:
            self.check_those_left(cluster)
        began = time.monotonic() if self.silent else began  # a leader that is silent holds its leases until it wakes
        self.check_free(cluster, began + LINGER_S if self.lingers and self.deadly else time.monotonic())

    def play_controller(self, cluster):
        """It goes away in its way, with all of its commands unanswered."""
        if self.way in ("kill", "pipeline"):
            session = self.kill_controller(cluster)
        else:
            session = self.leave(cluster)
        if self.lingers:
            self.resume(cluster, session, False)
        self.check_free(cluster, time.monotonic())

    def leave(self, cluster):
        relay = Relay(cluster.agents[self.leader].program.address)
        channel = grpc.insecure_channel(relay.address, options=[("grpc.use_local_subchannel_pool", 1)])
        session = self.open(cluster, self.leader, linger=self.lingers, channel=channel)
        self.fill(cluster, session)
        self.send_commands(session, 2, self.commands)
        time.sleep(self.random.uniform(0, 0.03))
        if self.way == "cut":
            relay.cut()
        elif self.way == "cancel":
            session.drop()
        else:
            session.half_close()
            if self.collect(cluster, session, values=False):
                raise Broken("a session that was half-closed did not answer all")
            self.close(session)
        channel.close()
        relay.close()
        return session

    def kill_controller(self, cluster):
        words = [cluster.agents[self.leader].program.address, str(int(self.lingers))]
        environment = dict(os.environ)
        if self.way == "pipeline":
            words.insert(0, "session_pipeline.py")
            environment["PYTHONPATH"] = built_package.build()
        else:
            words = ["session_controller.py"] + words + [str(self.commands)]
        process = subprocess.Popen([sys.executable, os.path.join(HERE, words[0])] + words[1:], stdout=subprocess.PIPE,
                                   close_fds=False, env=environment)
        try:
            number, secret = process.stdout.readline().decode().split()
            time.sleep(self.random.uniform(0, 0.03))
        finally:
            process.kill()
            process.communicate()
        secret = b"" if secret == "-" else bytes.fromhex(secret)
        return plain.SimpleNamespace(opened=plain.SimpleNamespace(session=number, secret=secret))

    # ------------------------------------------------------------------ judging

    def collect(self, cluster, session, values=True):
        """Every command is answered, rightly; True when the stream has ended, as it should have."""
        good = []
        for number, (register, kind, wanted) in list(self.wanted.items()):
            try:
                answer = session.wait(number)
                self.compare_values(answer, kind, wanted)
                good.append((register, kind, wanted))
            except Failed as failed:
                self.judge_failed(kind, failed)
            except grpc.RpcError as error:
                self.judge_end(support.Failure(error))
                return True
            except StopIteration:
                raise Broken("the session ended before command %d was answered" % number)
        if self.of_host and self.fault != "function-kill":
            self.judge_bad_call(session)
        if values and not self.deadly:
            self.compare_registers(cluster, session, good)
        return False

    def compare_values(self, answer, kind, wanted):
        for one in answer.values:
            if kind == "add" and one.value.integer != wanted[one.worker]:
                raise Broken("a wrong result as success: worker %d gave %s" % (one.worker, one.value))

    def compare_registers(self, cluster, session, good):
        session.sync()
        tensors_of = [one for one in good if one[1] != "add"]
        for register, kind, wanted in self.random.sample(tensors_of, min(5, len(tensors_of))):
            for rank in range(SIZE):
                found = session.read(cluster, register, rank).ravel().tolist()
                if found != wanted[rank]:
                    raise Broken("a wrong result as success: %s gave %s on rank %d" % (kind, found, rank))

    def judge_failed(self, kind, failed):
        """Of one command."""
        if self.of_host and kind == "add":  # it was in the same host, or came before that was back
            if failed.reason not in ("HOST_LOST", "UNKNOWN_FUNC", "TIMEOUT") or failed.workers != [self.victim]:
                raise Broken("a call beside %s: %s" % (self.fault, failed))
        elif not self.deadly:
            raise Broken("a command failed where none was due: %s" % failed)
        elif failed.reason == "NO_MESH" and self.fault == "leader-silence":
            return  # it does not know yet that it was given up; the end of the stream tells
        elif failed.reason != "RANK_LOST":
            raise Broken("a command: %s, not RANK_LOST: %s" % (failed.reason, failed))
        texts = [failed.text]
        if self.fault == "leader-silence":  # to who is given up it looks as if the others were gone
            texts = [one.error.text for one in failed.answer.failed if one.worker != self.victim]
        if any("rank %d" % self.victim not in text for text in texts):
            raise Broken("a command is not told that it was rank %d: %s" % (self.victim, failed))

    def judge_end(self, failure):
        if failure.code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Broken("the session hung: %s" % failure)
        if not self.fault.startswith("leader-") or not self.deadly or failure.code != grpc.StatusCode.UNAVAILABLE:
            raise Broken("the session ended: %s" % failure)
        if self.silent and (failure.reason != "RANK_LOST" or "rank %d" % self.victim not in failure.text):
            raise Broken("the end of the session does not name rank %d: %s" % (self.victim, failure))

    def judge_bad_call(self, session):
        reasons = {
            "function-crash": ("HOST_LOST",), "function-hang": ("TIMEOUT",),
            "function-nonsense": ("HOST_LOST", "BAD_VALUE"), "function-leak": (),
        }[self.fault]
        try:
            session.wait(self.bad)
            if reasons:
                raise Broken("%s succeeded" % self.fault)
        except Failed as failed:
            if failed.reason not in reasons or failed.workers != [self.victim]:
                raise Broken("%s: %s, not %s" % (self.fault, failed, reasons))
            if "rank %d" % self.victim not in failed.text:
                raise Broken("%s does not name rank %d: %s" % (self.fault, self.victim, failed))

    def close(self, session):
        try:
            session.close()
        except grpc.RpcError as error:
            raise Broken("the session did not end well: %s" % support.Failure(error))

    # ------------------------------------------------------------------ afterwards

    def resume(self, cluster, session, ended):
        """At another agent: it goes on, or is refused because of who is gone."""
        try:
            again = self.open(cluster, self.others[0], resume=session.opened.session, secret=session.opened.secret)
        except grpc.RpcError as error:
            failure = support.Failure(error)
            if failure.code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Broken("resume hung: %s" % failure)
            if not self.deadly or "rank %d" % self.victim not in failure.text:
                raise Broken("resume failed: %s" % failure)
            return
        if self.deadly:
            raise Broken("a session was resumed without rank %d" % self.victim)
        if 1 not in again.opened.registers:
            raise Broken("a session that was resumed has no register 1: %s" % again.opened)
        total = again.do(all_reduce=sessions.DriveReduce(src=1, into=60000, reduce_op=types.REDUCE_OP_SUM))
        del total
        wanted = [0.0, 0.0] if self.way in ("kill", "pipeline") else [10.0, 10.0]
        for rank in range(SIZE):
            found = again.read(cluster, 60000, rank).tolist()
            if found != wanted:
                raise Broken("a wrong result as success: after resume %s on rank %d" % (found, rank))
        self.close(again)

    def check_those_left(self, cluster):
        """The others go on with a session of their own, led by one of them."""
        rest = [rank for rank in range(SIZE) if rank != self.victim]
        name = "left%d" % self.number
        cluster.members.CreateGroup(
            coordinator.CreateGroupRequest(member=coordinator_member(cluster.agents[rest[0]]), name=name, ranks=rest),
            timeout=LONG_S, wait_for_ready=True)
        try:
            session = self.open(cluster, self.others[0], group=name)
            session.fill(cluster, 1, [np.full(2, rank + 1, np.float32) for rank in rest])
            session.do(all_reduce=sessions.DriveReduce(src=1, dst=1, reduce_op=types.REDUCE_OP_SUM))
            for worker in range(len(rest)):
                if session.read(cluster, 1, worker)[0] != sum(rank + 1 for rank in rest):
                    raise Broken("a wrong result as success in a session of those that are left")
            self.close(session)
        finally:
            cluster.drop_group(name)

    def check_free(self, cluster, since, limit_s=SOON_S):
        """Nothing but what is kept, on all that live, so soon behind `since`."""
        for agent in cluster.agents:
            if agent.program.process.poll() is not None:
                continue
            try:
                self.wait_free(agent, since, limit_s)
            except grpc.RpcError:
                if agent.rank not in self.doubtful():  # who was given up may be ending
                    raise

    def wait_free(self, agent, since, limit_s):
        while True:
            page = agent.tensors.List(tensors.ListRequest(page_size=1000), timeout=LONG_S)
            names = [info.name or info.tensor.handle for info in page.tensors if info.name != "keep"]
            if not names and agent.stats().tensor_count == 1:
                return
            if time.monotonic() > since + limit_s:
                raise Broken("a leak: rank %d keeps %d of a session for %g s: %s" % (
                    agent.rank, len(names), limit_s, names[:5]))
            time.sleep(0.02)

    def doubtful(self):
        return {self.victim} if self.deadly else set()
