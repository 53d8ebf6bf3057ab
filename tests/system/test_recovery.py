"""Goal: what dies comes back, and the rest goes on meanwhile.

Method: real processes. The coordinator is killed while ops run and started again on the same store;
agents die while it is away, and are started again; clocks say how long everybody waited.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np

import support
from cluster_case import (
    LONG_S, Agent, Cluster, ClusterCase, all_reduce, collectives, coordinator, handle, tensors, types,
)

support.build_stubs()
import grpc  # noqa: E402
from tutti.v1 import coordinator_service_pb2_grpc as coordinator_grpc  # noqa: E402
from tutti.v1 import progress_pb2 as progress  # noqa: E402
from tutti.v1 import store_service_pb2 as store  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
GONE = grpc.StatusCode.UNAVAILABLE
PAGE = 4096  # of LMDB
QUICK = ("--heartbeat-interval", "250ms", "--heartbeat-timeout", "2s")


class Durable(Cluster):
    """A cluster whose coordinator keeps what it knows in a folder."""

    def __init__(self, size, *agent_options, coordinator_options=()):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-store-")
        self.options = ("--store", "lmdb:" + self.folder.name, *coordinator_options)
        super().__init__(size, *agent_options, coordinator_options=self.options)

    def kill_coordinator(self):
        self.coordinator.kill()

    def revive_coordinator(self):
        self.coordinator = support.Program(
            "tutti-coordinator", *self.options, listen=self.coordinator.address
        )

    def job(self):
        return self.members.GetJob(
            coordinator.GetJobRequest(), timeout=LONG_S, wait_for_ready=True
        ).job

    def wait_for_job(self, check):
        until = time.monotonic() + LONG_S
        while not check(self.job()):
            assert time.monotonic() < until, self.job()
            time.sleep(0.02)


class Recovery(unittest.TestCase):
    assert_failed = ClusterCase.assert_failed
    assert_works = ClusterCase.assert_works
    fails = ClusterCase.fails

    def cluster_of(self, size, *options, **more):
        cluster = Durable(size, *options, **more)
        self.addCleanup(self.end, cluster)
        return cluster

    def end(self, cluster):
        for agent in cluster.agents:
            if agent.program.process.poll() is None:
                agent.program.send(signal.SIGCONT)
        cluster.stop()
        cluster.folder.cleanup()

    def wait_for_answers(self, cluster):
        """All agents have a session, by which they answer."""
        until = time.monotonic() + LONG_S
        silent = cluster.size
        with cluster.coordinator.channel() as channel:  # not one of the coordinator before
            members = coordinator_grpc.CoordinatorServiceStub(channel)
            while silent > 0:
                self.assertLess(time.monotonic(), until)
                silent = members.DescribeStall(progress.DescribeStallRequest(), timeout=LONG_S).silent_count

    def ops_run_while(self, cluster, change):
        """All ranks reduce without a pause while `change` runs. Returns the rounds of each rank."""
        stop = threading.Event()
        rounds = [0] * cluster.size
        last = [None]

        def work(agent):
            while True:
                # All must leave after the same round: rank 0's word travels with the data.
                word = 1 if agent.rank == 0 and stop.is_set() else 0
                result = all_reduce(agent, np.array([1, word], np.int32))
                assert result[0] == cluster.size, result
                rounds[agent.rank] += 1
                if result[1] == 1:
                    return rounds[agent.rank]

        def run():
            try:
                change()
                before = rounds[0]
                until = time.monotonic() + LONG_S
                while rounds[0] < before + 20 and time.monotonic() < until:
                    time.sleep(0.01)
            except BaseException as error:  # noqa: B902
                last[0] = error
            stop.set()

        thread = threading.Thread(target=run)
        thread.start()
        results = cluster.all(work)
        thread.join()
        if last[0] is not None:
            raise last[0]
        for result in results:
            self.assertIsInstance(result, int, result)
        return results

    def test_ops_run_on_while_the_coordinator_is_killed_and_started_again(self):
        cluster = self.cluster_of(3)
        cluster.group("pair", [0, 2])
        before = cluster.job()

        def change():
            time.sleep(0.2)
            cluster.kill_coordinator()
            time.sleep(1)
            cluster.revive_coordinator()
            for agent in cluster.agents:
                agent.program.wait_for_log("in touch with the coordinator again")

        self.ops_run_while(cluster, change)
        after = cluster.job()
        self.assertEqual((after.id, after.epoch), (before.id, before.epoch))
        self.assertEqual((after.alive_count, after.lost_count), (3, 0))
        for agent in cluster.agents:
            self.assertNotIn("joining again", agent.program.log())
        for result in cluster.on(
            [0, 2], lambda agent: all_reduce(agent, np.ones(2, np.int32), group="pair")
        ):
            self.assertEqual(list(result), [2, 2])

    def test_a_rank_that_skips_ops_of_others_is_not_behind_them(self):
        """After a restart of a rank all ranks skip what one of them has called in vain."""
        cluster = self.cluster_of(2)
        self.assert_works(cluster)
        cluster.agents[1].program.kill()
        cluster.replace(1)
        until = time.monotonic() + LONG_S
        reason = ""
        while reason != "TIMEOUT":  # the first ones may hear of the loss, or of the return
            self.assertLess(time.monotonic(), until)
            with self.assertRaises(grpc.RpcError) as caught:
                all_reduce(cluster.agents[0], np.ones(1, np.int32), timeout=0.5)
            reason = support.Failure(caught.exception).reason
        ask = progress.DescribeStallRequest(older_than_ms=1)
        while cluster.members.DescribeStall(ask, timeout=LONG_S).uneven_groups:
            self.assertLess(time.monotonic(), until)

    def test_a_coordinator_says_that_its_store_is_older_than_what_agents_have_heard_of(self):
        """It was restored while nobody led: agents alone remember what was there."""
        cluster = self.cluster_of(2)
        file = os.path.join(cluster.folder.name, "data.mdb")
        cluster.kill_coordinator()
        shutil.copy(file, file + ".old")
        cluster.revive_coordinator()
        with cluster.coordinator.channel() as channel:
            request = store.StoreServiceSetRequest(key=b"k", value=b"lost")
            store_grpc.StoreServiceStub(channel).Set(request, timeout=LONG_S)
        cluster.kill_coordinator()
        cluster.revive_coordinator()
        self.wait_for_answers(cluster)  # with their sessions the agents have heard of what is there
        self.assertNotIn("STORE_WENT_BACK", cluster.coordinator.log())
        cluster.kill_coordinator()
        os.replace(file + ".old", file)
        cluster.revive_coordinator()
        cluster.coordinator.wait_for_log("STORE_WENT_BACK: the store had version ")
        self.wait_for_answers(cluster)
        self.assert_works(cluster)

    def test_ops_run_on_however_long_nobody_is_where_the_coordinator_was(self):
        """It is not silent: its host refuses. A rank that is cut off stops instead (test_partitions). When one is there
        again, they find it within the time that it gives them."""
        cluster = self.cluster_of(4, coordinator_options=QUICK)
        self.assert_works(cluster)
        epoch = cluster.job().epoch

        def change():
            cluster.kill_coordinator()
            time.sleep(5)

        self.ops_run_while(cluster, change)
        cluster.revive_coordinator()
        for agent in cluster.agents:
            agent.program.wait_for_log("in touch with the coordinator again")
        self.assertEqual(cluster.job().epoch, epoch)  # nobody was lost

    def test_a_coordinator_that_is_silent_stops_the_ops_until_it_speaks(self):
        """As far as anybody here can know, another side of a network that is cut has it."""
        cluster = self.cluster_of(2, coordinator_options=QUICK)
        self.assert_works(cluster)
        waiting = cluster.agents[0].ops.Barrier.future(
            collectives.BarrierRequest(), timeout=LONG_S
        )
        cluster.coordinator.send(signal.SIGSTOP)
        try:
            failure = support.Failure(waiting.exception(LONG_S))
            self.assert_failed(failure, GONE, "CUT_OFF", "heard nothing from the coordinator")
            for agent in cluster.agents:
                agent.program.wait_for_log("rank %d has heard nothing" % agent.rank)
                failure = self.fails(lambda: all_reduce(agent, np.ones(1, np.int32)))
                self.assert_failed(failure, GONE, "CUT_OFF", "--silence-timeout")
        finally:
            cluster.coordinator.send(signal.SIGCONT)
        for agent in cluster.agents:
            agent.program.wait_for_log("ops may begin")
        failure = self.fails(lambda: all_reduce(cluster.agents[1], np.ones(1, np.int32)))
        self.assert_failed(failure, GONE, "CUT_OFF", "rank 0 has heard")  # of the op that rank 0 had begun
        self.assert_works(cluster)

    def test_an_op_that_waits_in_line_is_told_of_the_silence_too(self):
        cluster = self.cluster_of(1, coordinator_options=QUICK)
        agent = cluster.agents[0]
        more = threading.Event()

        def some():
            spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[4])
            yield tensors.UploadRequest(
                start=tensors.UploadStart(spec=spec, name="late"), payload=bytes(4)
            )
            more.wait(LONG_S)

        upload = agent.tensors.Upload.future(some(), timeout=LONG_S)
        request = collectives.AllReduceRequest(
            input=handle("late"), reduce_op=types.REDUCE_OP_SUM
        )
        until = time.monotonic() + LONG_S
        while not agent.tensors.List(tensors.ListRequest(), timeout=LONG_S).tensors:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        waiting = agent.ops.AllReduce.future(request, timeout=LONG_S)
        cluster.coordinator.send(signal.SIGSTOP)
        try:
            failure = support.Failure(waiting.exception(LONG_S))
            self.assert_failed(failure, GONE, "CUT_OFF", "heard nothing from the coordinator")
        finally:
            cluster.coordinator.send(signal.SIGCONT)
            more.set()
        agent.program.wait_for_log("ops may begin")
        upload.exception(LONG_S)  # it was cut short
        self.assert_works(cluster)

    def test_a_rank_may_be_told_to_bear_more_silence(self):
        cluster = self.cluster_of(2, "--silence-timeout", "1h", coordinator_options=QUICK)
        self.assert_works(cluster)
        cluster.coordinator.send(signal.SIGSTOP)
        try:
            time.sleep(3)
            self.assert_works(cluster)
        finally:
            cluster.coordinator.send(signal.SIGCONT)

    def test_a_process_that_stood_still_blames_itself(self):
        """The others have given it up meanwhile, and its connections to them break as it goes on."""
        for options in ((), ("--no-shm",)):
            with self.subTest(options=options):
                self.check_a_process_that_stood_still(self.cluster_of(3, *options, coordinator_options=QUICK))

    def check_a_process_that_stood_still(self, cluster):
        for agent in cluster.all(lambda agent: all_reduce(agent, np.ones(2, np.int32))):
            self.assertNotIsInstance(agent, support.Failure, agent)
        stopped = cluster.agents[1]
        calls = [
            agent.ops.Barrier.future(collectives.BarrierRequest(), timeout=LONG_S)
            for agent in cluster.agents[1:]
        ]
        until = time.monotonic() + LONG_S
        while any(agent.stats().op_running_count == 0 for agent in cluster.agents[1:]):
            self.assertLess(time.monotonic(), until)
        stopped.program.send(signal.SIGSTOP)
        cluster.wait_for_job(lambda job: job.lost_count == 1)
        failure = support.Failure(calls[1].exception(LONG_S))
        self.assertEqual(failure.metadata.get("rank"), "1", failure)
        stopped.program.send(signal.SIGCONT)
        failure = support.Failure(calls[0].exception(LONG_S))
        self.assertEqual(failure.metadata.get("rank"), "1", failure)
        cluster.agents.remove(stopped)  # it ends by itself: the coordinator has declared it lost
        stopped.close()
        stopped.program.kill()

    def test_a_first_call_on_a_group_waits_for_the_coordinator(self):
        cluster = self.cluster_of(2)
        cluster.group("pair", [1, 0])
        cluster.kill_coordinator()
        timer = threading.Timer(1.0, cluster.revive_coordinator)
        timer.start()
        results = cluster.all(lambda agent: all_reduce(agent, np.ones(2, np.int32), group="pair"))
        timer.join()
        for result in results:
            self.assertNotIsInstance(result, support.Failure, result)
            self.assertEqual(list(result), [2, 2])

    def test_world_needs_no_coordinator_for_its_first_op(self):
        cluster = self.cluster_of(3, "--log", "info,agent=debug")
        for agent in cluster.agents:
            agent.program.wait_for_log("knows the addresses of 2 ranks more")
        cluster.kill_coordinator()
        results = cluster.all(lambda agent: all_reduce(agent, np.ones(2, np.int32), timeout=LONG_S))
        for result in results:
            self.assertNotIsInstance(result, support.Failure, result)
            self.assertEqual(list(result), [3, 3])

    def test_a_first_call_on_a_group_ends_in_time_without_a_coordinator(self):
        cluster = self.cluster_of(2)
        cluster.group("pair", [1, 0])
        cluster.kill_coordinator()
        began = time.monotonic()
        failure = self.fails(
            lambda: all_reduce(cluster.agents[0], np.ones(2, np.int32), group="pair", timeout=1.5)
        )
        self.assertIn(failure.code, (GONE, grpc.StatusCode.DEADLINE_EXCEEDED), failure)
        self.assertLess(time.monotonic() - began, 5)

    def test_a_client_waits_for_a_coordinator_that_it_knew(self):
        cluster = self.cluster_of(1)
        program = os.path.join(support.BUILD, "tests", "client", "patient_program")
        client = subprocess.Popen(
            [program, cluster.agents[0].program.address], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1, close_fds=False,
        )
        self.addCleanup(client.wait, LONG_S)
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.stdin.close)

        def add():
            client.stdin.write("\n")
            return client.stdout.readline().strip()

        self.assertEqual(add(), "1")
        cluster.kill_coordinator()
        timer = threading.Timer(0.7, cluster.revive_coordinator)
        timer.start()
        self.assertEqual(add(), "2")
        timer.join()
        self.assertEqual(add(), "3")

    def test_a_death_is_named_within_a_second_without_a_coordinator(self):
        cluster = self.cluster_of(4)
        self.assert_works(cluster)
        cluster.kill_coordinator()
        heard = {}

        def call(agent):
            try:
                return all_reduce(agent, np.zeros(1000, np.float32))
            finally:
                heard[agent.rank] = time.monotonic()

        died = []

        def killer():
            for rank in (0, 1, 3):
                while cluster.agents[rank].stats().op_running_count == 0:
                    time.sleep(0.005)
            died.append(time.monotonic())
            cluster.agents[2].program.kill()

        thread = threading.Thread(target=killer)
        thread.start()
        failures = cluster.on([0, 1, 3], call)
        thread.join()
        for failure in failures:
            self.assert_failed(failure, GONE, "RANK_LOST", "rank 2 is gone")
        self.assertLess(max(heard.values()) - died[0], 1.0)

    def test_who_died_while_the_coordinator_was_away_is_lost_and_may_come_back(self):
        cluster = self.cluster_of(
            3, coordinator_options=("--heartbeat-interval", "250ms", "--heartbeat-timeout", "2s")
        )
        self.assert_works(cluster)
        cluster.kill_coordinator()
        cluster.agents[1].program.kill()
        cluster.revive_coordinator()
        cluster.wait_for_job(lambda job: job.lost_count == 1)
        self.assertIn("did not connect again", cluster.coordinator.log())
        failure = cluster.on([0], lambda agent: all_reduce(agent, np.ones(1, np.int32)))[0]
        self.assert_failed(failure, GONE, "RANK_LOST", "rank 1 is gone")
        self.assertLess(self.replace_until_it_works(cluster, 1), 2.0)

    def replace_until_it_works(self, cluster, rank):
        """Seconds from the new agent's start until world works, calls made over and over."""
        began = time.monotonic()
        cluster.replace(rank)
        while True:
            results = cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32), timeout=2))
            if not any(isinstance(one, support.Failure) for one in results):
                took = time.monotonic() - began
                break
            self.assertLess(time.monotonic() - began, LONG_S, results)
        self.assert_works(cluster)
        return took

    def test_a_restarted_agent_makes_world_work(self):
        """How long it takes stands in docs/measured; a busy machine may take its time."""
        cluster = self.cluster_of(3)
        self.assert_works(cluster)
        for rank in (1, 0, 2) * 5:  # ranks that call in rounds must not count them apart
            cluster.agents[rank].program.kill()
            self.assertLess(self.replace_until_it_works(cluster, rank), 15)

    def test_a_call_with_a_token_counts_once_over_a_restart(self):
        cluster = self.cluster_of(1)
        for number in range(5):  # the answer is lost with the coordinator, wherever that dies
            request = store.StoreServiceAddRequest(key=b"n", delta=1, token=number + 1)
            push = store.StoreServiceQueuePushRequest(key=b"q", value=b"%d" % number, token=7 + number)
            for _ in range(2):
                with cluster.coordinator.channel() as channel:  # the old one may think it stands
                    keys = store_grpc.StoreServiceStub(channel)
                    added = keys.Add(request, timeout=LONG_S)
                    pushed = keys.QueuePush(push, timeout=LONG_S)
                self.assertEqual((added.value, pushed.length), (number + 1, number + 1))
                cluster.kill_coordinator()
                cluster.revive_coordinator()

    def test_the_store_waits_for_the_disk_only_when_told(self):
        for word in ("none", "order", "full"):
            with tempfile.TemporaryDirectory(prefix="tutti-store-") as folder:
                options = ("--store", "lmdb:" + folder, "--store-sync", word)
                first = support.Program("tutti-coordinator", *options)
                first.kill()
                with open(os.path.join(folder, "tutti.lock")) as lock:
                    life, holds = lock.read().splitlines()
                self.assertEqual(life != "", word != "order")
                self.assertEqual(life == "full", word == "full")
                self.assertEqual(holds, "holds a store")
                with support.Program("tutti-coordinator", *options) as again:
                    self.assertNotIn("may be missing", again.log())
        with tempfile.TemporaryDirectory(prefix="tutti-store-") as folder:
            options = ("--store", "lmdb:" + folder)
            with open(os.path.join(folder, "tutti.lock"), "w") as lock:
                lock.write("another life")
            with support.Program("tutti-coordinator", *options) as again:
                again.wait_for_log("its last changes may be missing")
        code, _, text = support.run(
            "tutti-coordinator", "--store", "lmdb:/tmp/x", "--store-sync", "often"
        )
        self.assertEqual(code, 2)
        self.assertIn('"often", need none, order or full', text)

    def cut(self, cluster, pages):
        path = os.path.join(cluster.folder.name, "data.mdb")
        os.truncate(path, os.stat(path).st_size - pages * PAGE)
        return path

    def refuse_cut_store(self, cluster, path):
        """A coordinator on the store ends with words, not by a signal."""
        code, _, text = support.run("tutti-coordinator", "--listen", "127.0.0.1:0", *cluster.options)
        self.assertEqual(code, 1, text)
        self.assertIn(path + " is damaged, page ", text)
        self.assertIn("move it away to begin with an empty store", text)

    def fill(self, keys, count):
        for number in range(count):
            request = store.StoreServiceSetRequest(key=b"k%d" % number, value=b"v" * 2000)
            keys.Set(request, timeout=LONG_S)

    def test_a_store_that_is_cut_is_refused(self):
        cluster = self.cluster_of(1)
        self.fill(store_grpc.StoreServiceStub(cluster.coordinator_channel), 50)
        cluster.kill_coordinator()
        for pages in (1, 10):
            self.refuse_cut_store(cluster, self.cut(cluster, pages))

    def test_a_store_that_is_cut_while_it_serves_can_be_read_and_not_changed(self):
        cluster = self.cluster_of(2)
        keys = store_grpc.StoreServiceStub(cluster.coordinator_channel)
        self.fill(keys, 50)
        path = self.cut(cluster, 1)
        for _ in range(3):
            failure = self.fails(lambda: self.fill(keys, 1))
            self.assert_failed(failure, grpc.StatusCode.DATA_LOSS, "STORE_FORMAT", path)
        self.assertEqual(
            keys.Get(store.StoreServiceGetRequest(key=b"k49"), timeout=LONG_S).value, b"v" * 2000
        )
        self.assert_works(cluster)
        cluster.coordinator.wait_for_log("changes are refused, and what is stored can be read: STORE_FORMAT: ")
        cluster.kill_coordinator()
        self.refuse_cut_store(cluster, path)

    def test_answers_of_a_store_that_waits_for_the_disk_are_kept_over_kills(self):
        """Adds of many clients share a transaction; a kill may fall between memory and disk."""
        cluster = self.cluster_of(1, coordinator_options=("--store-sync", "full"))
        answered = [0] * 16
        ending = threading.Event()

        def add(place):
            keys = store_grpc.StoreServiceStub(cluster.coordinator_channel)
            token = place << 32
            while not ending.is_set():
                token += 1
                request = store.StoreServiceAddRequest(key=b"k%d" % (place % 4), delta=1,
                                                       token=token)
                while True:  # with its token, until it is answered
                    try:
                        keys.Add(request, timeout=LONG_S, wait_for_ready=True)
                        break
                    except grpc.RpcError as error:
                        assert error.code() == GONE, error
                answered[place] += 1

        threads = [threading.Thread(target=add, args=(1 + n,)) for n in range(len(answered) - 1)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            before = sum(answered)
            while sum(answered) < before + 50:
                time.sleep(0.001)
            cluster.kill_coordinator()
            cluster.revive_coordinator()
        ending.set()
        for thread in threads:
            thread.join()
        keys = store_grpc.StoreServiceStub(cluster.coordinator_channel)
        for key in range(4):
            got = keys.Get(store.StoreServiceGetRequest(key=b"k%d" % key), timeout=LONG_S).value
            self.assertEqual(int(got), sum(answered[key::4]))
        self.assert_works(cluster)

    def assert_gave_up(self, cluster):
        cluster.coordinator.wait_for_log("the store cannot be written, so this process ends")
        self.assertEqual(cluster.coordinator.wait(), 1)
        cluster.coordinator.stop = lambda: 0  # it has been looked at

    def test_a_store_that_cannot_be_written_any_more_ends_the_coordinator(self):
        cluster = self.cluster_of(1, coordinator_options=("--store-sync", "order"))
        keys = store_grpc.StoreServiceStub(cluster.coordinator_channel)
        self.fill(keys, 50)
        path = self.cut(cluster, 1)
        failure = self.fails(lambda: self.fill(keys, 1))
        self.assertEqual(failure.code, GONE)
        self.assert_gave_up(cluster)
        self.refuse_cut_store(cluster, path)

    def test_a_record_that_cannot_be_written_ends_the_coordinator(self):
        cluster = self.cluster_of(2)  # with --store-sync none: keys are refused, and it goes on
        keys = store_grpc.StoreServiceStub(cluster.coordinator_channel)
        self.fill(keys, 50)
        self.cut(cluster, 1)
        failure = self.fails(lambda: self.fill(keys, 1))
        self.assert_failed(failure, grpc.StatusCode.DATA_LOSS, "STORE_FORMAT")
        cluster.agents[1].program.kill()  # its loss would be a record
        self.assert_gave_up(cluster)

    def test_a_second_coordinator_on_the_store_is_refused(self):
        cluster = self.cluster_of(1)
        code, _, text = support.run("tutti-coordinator", "--listen", "127.0.0.1:0", *cluster.options)
        self.assertEqual(code, 1)
        self.assertIn("another process has the store", text)
        code, _, text = support.run("tutti-coordinator", "--store", "disk:/x")
        self.assertEqual(code, 2)
        self.assertIn("need memory, lmdb:FOLDER or etcd:", text)


if __name__ == "__main__":
    support.main()
