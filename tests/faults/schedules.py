"""One schedule: a fault, an op, a phase and its moment, drawn from a seed; played, and judged."""

import random
import signal
import threading
import time

import grpc
import numpy as np

from cluster_case import (
    LONG_S, array_of, collectives, coordinator, diagnostics, support, tensors, types,
)
from deck import CALL_FAULTS, DEADLY, HARMLESS
from fault_cluster import HEARTBEAT_S, Broken, coordinator_member
from fault_ops import CALL_S, OUTSIDE, SIZE, TIMEOUT_MS


class Schedule:
    """`number`, fault, phase and op as deck.draw() gives them; the rest is drawn here."""

    timeout_ms = TIMEOUT_MS

    def __init__(self, seed, number, fault, phase, op):
        self.random = random.Random("%d/%d" % (seed, number))
        self.number, self.fault, self.phase, self.op = number, fault, phase, op
        self.victim = self.random.randrange(SIZE)
        self.struck_ranks = self.draw_struck_ranks()
        self.count = SIZE * self.random.choice((1, 7, 1000, 20000))
        self.name = "%s %s %s" % (fault, phase, op.name)
        self.group = ""
        self.took = 0
        self.cleanup = lambda: None

    def draw_struck_ranks(self):
        """The victim; of a burst, with others, but never all."""
        if self.fault != "burst":
            return {self.victim}
        others = [rank for rank in range(SIZE) if rank != self.victim]
        return {self.victim} | set(self.random.sample(others, self.random.randrange(1, SIZE - 1)))

    # ------------------------------------------------------------------ the fault

    def strike(self, cluster):
        agent = cluster.agents[self.victim]
        if self.fault in ("kill", "burst"):
            self.kill_struck(cluster)
        elif self.fault in ("stop", "silence"):
            agent.program.send(signal.SIGSTOP)
            wait = HEARTBEAT_S + 1 if self.fault == "silence" else self.random.uniform(0.02, 0.3)
            threading.Timer(wait, self.wake, (agent,)).start()
        elif self.fault == "coordinator":
            cluster.kill_coordinator()
            threading.Timer(self.random.uniform(0.01, 0.4), cluster.start_coordinator).start()
        elif self.fault == "cut":
            agent.relay.cut()
        elif self.fault == "partition":
            agent.relay.silence(True)

    def kill_struck(self, cluster):
        """All at once: none is waited for before the next one."""
        for rank in self.struck_ranks:
            cluster.agents[rank].program.send(signal.SIGKILL)
        for rank in self.struck_ranks:
            cluster.agents[rank].program.kill()

    def wake(self, agent):
        if agent.program.process.poll() is None:
            agent.program.send(signal.SIGCONT)

    # ------------------------------------------------------------------ calls

    def one(self, agent, results, call):
        begun = time.monotonic()
        try:
            results[agent.rank] = call(agent)
        except grpc.RpcError as error:
            results[agent.rank] = support.Failure(error)
        except AssertionError as error:
            results[agent.rank] = error
        self.took = max(self.took, time.monotonic() - begun)

    def begin(self, cluster, ranks, call):
        results = {}
        threads = [
            threading.Thread(target=self.one, args=(cluster.agents[rank], results, call))
            for rank in ranks
        ]
        for thread in threads:
            thread.start()
        return threads, results

    def finish(self, *begun):
        results = {}
        for threads, some in begun:
            for thread in threads:
                thread.join(CALL_S + 20)
                if thread.is_alive():
                    raise Broken("a call has hung")
            results.update(some)
        return results

    def wait_running(self, cluster, ranks, results):
        until = time.monotonic() + 5
        for rank in ranks:
            while rank not in results and time.monotonic() < until:
                try:
                    if cluster.agents[rank].stats().op_running_count > 0:
                        break
                except grpc.RpcError:
                    break
                time.sleep(0.002)

    def plain(self, agent):
        odd = agent.rank == self.victim and {"mismatch": True, "outside": OUTSIDE}.get(self.fault, False)
        wait_ms = 800 if self.fault == "absent" else self.timeout_ms
        return self.op.call(agent, self.group, self.count, odd, wait_ms)

    # ------------------------------------------------------------------ phases

    def play(self, cluster):
        return getattr(self, "play_" + self.phase)(cluster)

    def play_before(self, cluster):
        self.strike(cluster)
        return self.finish(self.begin(cluster, range(SIZE), self.plain))

    def play_after(self, cluster):
        for result in self.finish(self.begin(cluster, range(SIZE), self.plain)).values():
            if isinstance(result, (support.Failure, AssertionError)):
                raise Broken("before any fault: %s" % result)
        return self.play_before(cluster)

    def play_during(self, cluster):
        """All but the victim have called when it happens; then the victim calls, if it can."""
        others = [rank for rank in range(SIZE) if rank != self.victim]
        if self.fault == "cancel":
            return self.play_cancel(cluster, others)
        first = self.begin(cluster, others, self.plain)
        self.wait_running(cluster, others, first[1])
        self.strike(cluster)
        if self.fault == "absent":
            results = self.finish(first)
            self.begin_late(cluster)
            return results
        return self.finish(first, self.begin(cluster, [self.victim], self.plain))

    def begin_late(self, cluster):
        """Who did not come hears so when it comes, and counts like the others again."""
        late = self.finish(self.begin(cluster, [self.victim], self.plain))[self.victim]
        if not isinstance(late, support.Failure) or late.reason not in ("TIMEOUT", "MISSING_RANKS"):
            raise Broken("the late rank was told %s" % late)

    def play_cancel(self, cluster, others):
        """The victim's caller goes away while the last rank has not called."""
        last = self.random.choice(others)
        array = np.ones(self.count, np.int32)
        request = collectives.AllReduceRequest(
            input=types.TensorArg(inline_tensor=types.TensorSpec(
                dtype=types.DTYPE_INT32, shape=array.shape)),
            payload=array.tobytes(), reduce_op=types.REDUCE_OP_SUM,
            options=types.OpOptions(timeout_ms=TIMEOUT_MS),
        )

        def call(agent):
            response = agent.ops.AllReduce(request, timeout=CALL_S)
            if not (array_of(response.output, response.payload) == SIZE).all():
                raise AssertionError("wrong sum")
            return response

        mine = cluster.agents[self.victim].ops.AllReduce.future(request, timeout=CALL_S)
        rest = [rank for rank in others if rank != last]
        first = self.begin(cluster, rest, call)
        self.wait_running(cluster, rest + [self.victim], first[1])
        mine.cancel()
        time.sleep(self.random.uniform(0, 0.02))
        return self.finish(first, self.begin(cluster, [last], call))

    def play_data(self, cluster):
        """A large op by handle, struck somewhere inside."""
        for agent in cluster.agents:
            self.op.put(agent, self.op.large)

        def call(agent):
            future = self.op.start(agent, timeout_ms=self.timeout_ms)
            if self.fault == "cancel" and agent.rank == self.victim:
                while not future.done() and agent.stats().op_running_count == 0:
                    time.sleep(0.001)
                time.sleep(self.random.uniform(0, 0.01))
                future.cancel()
                return None
            response = future.result()
            if agent.program.process.poll() is None:
                self.op.check(agent, self.op.large, response.output)
            return response

        begun = self.begin(cluster, range(SIZE), call)
        time.sleep(self.random.uniform(0, 0.012))
        self.strike(cluster)
        return self.finish(begun)

    def play_wait(self, cluster):
        """An async op of all but the victim; it happens, and then they wait."""
        for agent in cluster.agents:
            self.op.put(agent, self.count)
        works = {}
        timeout_ms = 800 if self.fault == "absent" else self.timeout_ms

        def start(agent):
            works[agent.rank] = self.op.start(agent, True, timeout_ms).result()
            return works[agent.rank]

        def wait(agent):
            response = agent.ops.Wait(
                collectives.WaitRequest(works=[works[agent.rank].info.work]), timeout=CALL_S
            )
            error = response.works[0].error
            if error.code != 0:
                return error
            self.op.check(agent, self.count, response.works[0].output)
            return response

        others = [rank for rank in range(SIZE) if rank != self.victim]
        self.finish(self.begin(cluster, others, start))
        self.strike(cluster)
        waiting = self.begin(cluster, [rank for rank in others if rank in works], wait)
        if self.fault == "absent":
            results = self.finish(waiting)
            self.begin_late(cluster)
            return results
        last = self.begin(cluster, [self.victim], start)
        return self.finish(waiting, last)

    def play_group(self, cluster):
        """A group is made, it happens, and then the group is used for the first time."""
        self.group = "g%d" % self.number
        ranks = list(range(SIZE))  # results are said in ranks of the world
        members = coordinator_member(cluster.agents[(self.victim + 1) % SIZE])
        cluster.members.CreateGroup(
            coordinator.CreateGroupRequest(member=members, name=self.group, ranks=ranks),
            timeout=LONG_S, wait_for_ready=True,
        )
        try:
            if self.fault in CALL_FAULTS:
                return self.play_during(cluster)
            return self.play_before(cluster)
        finally:
            self.cleanup = lambda: cluster.drop_group(self.group)

    def play_upload(self, cluster):
        """The victim's client uploads; it happens in the middle."""
        agent = cluster.agents[self.victim]
        data = np.arange(1 << 18, dtype=np.int32)
        middle = threading.Event()
        over = threading.Event()

        def messages():
            start = tensors.UploadStart(spec=types.TensorSpec(
                dtype=types.DTYPE_INT32, shape=data.shape), name="up")
            yield tensors.UploadRequest(start=start, payload=data[: 1 << 17].tobytes())
            middle.set()
            over.wait(5)
            yield tensors.UploadRequest(offset=data.nbytes // 2, payload=data[1 << 17:].tobytes())

        future = agent.tensors.Upload.future(messages(), timeout=CALL_S)
        middle.wait(5)
        time.sleep(self.random.uniform(0, 0.01))
        if self.fault == "cancel":
            future.cancel()
        else:
            self.strike(cluster)
        over.set()
        results = {}

        def result(one):
            response = future.result(CALL_S)
            if not np.array_equal(one.get("up"), data):
                raise AssertionError("the upload changed bytes")
            return response

        if self.fault != "cancel":
            self.one(agent, results, result)
        self.check_kept(cluster, [rank for rank in range(SIZE) if rank not in self.struck_ranks])
        return {} if self.fault in ("kill", "burst") else results

    def play_join(self, cluster):
        """The victim's successor is joining when it happens."""
        fresh = cluster.begin_replacing(self.victim)
        time.sleep(self.random.uniform(0, 0.05))
        if self.fault in ("kill", "burst"):
            self.kill_struck(cluster)
            return {}
        self.strike(cluster)
        if self.fault in DEADLY:
            time.sleep(self.random.uniform(0.3, 1))
            cluster.mend()
        self.wait_joined_or_over(fresh)
        return {}

    def wait_joined_or_over(self, agent):
        """Who was struck while it joined may have been given up; then it says so and ends."""
        until = time.monotonic() + LONG_S
        while agent.program.process.poll() is None:
            try:
                answer = agent.diagnostics.DescribeAgent(diagnostics.DescribeAgentRequest(), timeout=5)
                if answer.joined:
                    return
            except grpc.RpcError:
                pass  # it is stopped, or ending
            if time.monotonic() > until:
                raise Broken("rank %d does not join: %s" % (agent.rank, agent.program.log()[-500:]))
            time.sleep(0.01)
        if self.fault not in DEADLY:
            raise Broken("rank %d ended while it joined: %s" % (agent.rank, agent.program.log()[-500:]))

    def check_kept(self, cluster, ranks):
        for rank in ranks:
            agent = cluster.agents[rank]
            if not np.array_equal(agent.get("keep"), agent.kept):
                raise Broken("the tensor of rank %d has changed" % rank)

    # ------------------------------------------------------------------ judging

    def judge(self, results):
        """Every call ended well, or for the right reason with the right culprit."""
        for rank, result in sorted(results.items()):
            if isinstance(result, AssertionError):
                raise Broken("a wrong result as success: %s" % result)
            if isinstance(result, types.Error) or isinstance(result, support.Failure):
                self.judge_failure(rank, result)
            elif self.must_fail(rank):
                raise Broken("rank %d succeeded without rank %d" % (rank, self.victim))

    def must_fail(self, rank):
        if self.fault in ("mismatch", "outside"):
            return True
        if self.fault == "absent":
            return self.op.name != "send_recv"  # who is no neighbour has no need of it
        return (self.fault in ("kill", "burst") and self.phase in ("before", "during", "wait", "group")
                and not self.op.rooted)

    def judge_failure(self, rank, failure):
        text = failure.text
        if isinstance(failure, support.Failure) and failure.code == grpc.StatusCode.DEADLINE_EXCEEDED:
            if failure.reason == "" or self.took > CALL_S - 1:
                raise Broken("rank %d hung: %s" % (rank, failure))
        if rank in self.doubtful():
            return  # its own calls may end in any way but with a wrong result
        if self.fault in HARMLESS:
            raise Broken("rank %d failed where a delay was due: %s" % (rank, text))
        if failure.reason not in self.reasons():
            raise Broken("rank %d: %s, not %s: %s" % (rank, failure.reason, self.reasons(), text))
        if self.fault == "outside" and rank == self.victim:
            return  # it reads what is wrong with its own range
        if not any("rank %d" % one in text for one in self.culprits()):
            raise Broken("rank %d is not told that it was %s: %s" % (rank, sorted(self.culprits()), text))

    def reasons(self):
        """Of failures that are as they should be."""
        return {
            "mismatch": ("SHAPE_MISMATCH", "OP_MISMATCH", "SPLITS_MISMATCH", "LIST_SIZE"),
            "outside": ("RANGE_OUTSIDE",), "absent": ("TIMEOUT",), "cancel": ("CALLER_GONE",),
        }.get(self.fault, ("RANK_LOST",))

    def culprits(self):
        """Ranks of which one must be named."""
        return self.struck_ranks

    def doubtful(self):
        """Ranks that may have lost their seat or their turn."""
        return self.struck_ranks if self.fault in DEADLY else set()
