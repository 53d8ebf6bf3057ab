"""Goal: nothing waits for ever: joining, ops in line, uploads and downloads that do not move, a group
that nobody can ask for, a job that nobody answers for.

Method: real processes; clients, ranks and coordinators that stop in the middle.
"""

import signal
import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import (
    LONG_S, Cluster, ClusterCase, MeteredCluster, all_reduce, collectives, coordinator, coordinator_grpc,
    diagnostics, handle, tensors, tracers, types,
)
from tutti.v1 import commands_service_pb2 as commands  # noqa: E402
from tutti.v1 import mesh_service_pb2 as meshes  # noqa: E402
from tutti.v1 import metadata_service_pb2 as metadata  # noqa: E402
from tutti.v1 import rendezvous_service_pb2 as rendezvous  # noqa: E402
from tutti.v1 import store_service_pb2 as store  # noqa: E402

LATE = grpc.StatusCode.DEADLINE_EXCEEDED


class Deadlines(unittest.TestCase):
    assert_failed = ClusterCase.assert_failed
    fails = ClusterCase.fails

    def cluster_of(self, size, *options, **more):
        cluster = Cluster(size, *options, **more)
        self.addCleanup(cluster.stop)
        return cluster

    # ------------------------------------------------------------------ joining

    def join_fails(self, coordinator_, *words):
        began = time.monotonic()
        code, _, text = support.run(
            "tutti-agent", "--listen", "127.0.0.1:0", "--coordinator", coordinator_.address, *words
        )
        self.assertEqual(code, 1, text)
        self.assertLess(time.monotonic() - began, 30)
        return text

    def test_joining_ends_in_time_and_says_who_is_missing(self):
        with support.Program("tutti-coordinator") as server:
            text = self.join_fails(
                server, "--world-size", "4", "--rank", "1", "--join-timeout", "1500ms"
            )
            self.assertIn("not joined within 1.5 s (--join-timeout): job default: 1 of 4 ranks are "
                          "here, missing: rank 0, 2, 3", text)
            text = self.join_fails(server, "--world-size", "4", "--join-timeout", "1500ms")
            self.assertIn("job default: 1 of 4 ranks are here", text)

    def test_joining_ends_in_time_while_the_coordinator_is_frozen(self):
        with support.Program("tutti-coordinator") as server:
            server.send(signal.SIGSTOP)
            try:
                text = self.join_fails(server, "--join-timeout", "1s")
            finally:
                server.send(signal.SIGCONT)
            self.assertIn("not joined within 1 s (--join-timeout): ", text)

    def test_a_join_call_ends_with_its_deadline_and_says_who_is_missing(self):
        with support.Program("tutti-coordinator") as server, server.channel() as channel:
            join = coordinator_grpc.CoordinatorServiceStub(channel).Join
            request = coordinator.JoinRequest(world_size=3, rank=2, incarnation=7)
            for _ in range(20):
                failure = self.fails(lambda: list(join(request, timeout=1)))
                if failure.reason:
                    break  # else this process stood still, and its own deadline came before the answer
            self.assertEqual((failure.code, failure.reason), (LATE, "JOIN_TIMEOUT"), failure)
            self.assertIn("0", failure.text)

    # ------------------------------------------------------------------ in line

    def test_a_first_call_on_a_group_ends_in_time_while_the_coordinator_is_frozen(self):
        cluster = self.cluster_of(2)
        cluster.group("pair", [1, 0])
        cluster.coordinator.send(signal.SIGSTOP)
        try:
            began = time.monotonic()
            failure = self.fails(lambda: all_reduce(
                cluster.agents[0], np.ones(2, np.int32), group="pair",
                options=types.OpOptions(timeout_ms=1000),
            ))
            self.assertLess(time.monotonic() - began, 8)
        finally:
            cluster.coordinator.send(signal.SIGCONT)
        self.assert_failed(failure, LATE, "TIMEOUT", "group pair")
        # Who is in it is asked of the coordinator, unless the agent has heard of it in time.
        self.assertRegex(failure.text, "coordinator.*who is in|rank 1 does not answer")

    def start_upload(self, agent, name, count=4, chunks=1):
        """An upload that stops in the middle: the queue of its messages stays open."""
        done = threading.Event()

        def messages():
            spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[count])
            start = tensors.UploadStart(spec=spec, into=name)
            yield tensors.UploadRequest(start=start, payload=b"\0" * 4)
            done.wait(LONG_S)

        self.addCleanup(done.set)
        return agent.tensors.Upload.future(messages()), done

    def test_an_upload_that_does_not_move_ends_and_lets_ops_go_on(self):
        cluster = MeteredCluster(2, "--op-timeout", "4s")
        self.addCleanup(cluster.stop)
        one, other = cluster.agents
        name = one.put(np.ones(4, np.float32))
        upload, _ = self.start_upload(one, name)
        one.wait_received(16 + 4)
        request = collectives.AllReduceRequest(
            input=handle(name), reduce_op=types.REDUCE_OP_SUM,
            options=types.OpOptions(timeout_ms=500),
        )
        failure = self.fails(lambda: one.ops.AllReduce(request, timeout=LONG_S))
        # It is before the upload is over, else the tensor would be free.
        self.assert_failed(failure, LATE, "TIMEOUT", "its tensors are in use by an earlier op or")
        with self.assertRaises(grpc.RpcError) as caught:
            upload.result(LONG_S)
        stalled = support.Failure(caught.exception)
        self.assert_failed(stalled, LATE, "TIMEOUT",
                           "an upload has not moved for 4 s (--op-timeout), after 4 of 16 bytes")
        # The late call has had its turn, so both count alike and the group goes on.
        late = self.fails(lambda: all_reduce(other, np.ones(1, np.int32)))
        self.assert_failed(late, LATE, "TIMEOUT", "rank 0")
        for result in cluster.all(lambda agent: all_reduce(agent, np.ones(1, np.int32))):
            self.assertEqual(list(result), [2])

    def test_a_download_that_nobody_reads_ends_and_lets_writers_go_on(self):
        cluster = self.cluster_of(1, "--op-timeout", "2s")
        agent = cluster.agents[0]
        name = agent.put(np.zeros(1, np.float32))
        agent.delete(name)
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[16 << 20])
        name = agent.tensors.Create(tensors.CreateRequest(spec=spec), timeout=LONG_S).tensor.handle
        with agent.program.channel(("grpc.http2.lookahead_bytes", 1 << 16)) as channel:
            download = channel.unary_stream(
                "/tutti.v1.TensorsService/Download",
                request_serializer=tensors.DownloadRequest.SerializeToString,
                response_deserializer=tensors.DownloadResponse.FromString,
            )(tensors.DownloadRequest(handle=name))
            next(download)
            began = time.monotonic()
            until = began + LONG_S
            while agent.stats().call_running_count > 0:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)
            with self.assertRaises(grpc.RpcError) as caught:
                for _ in download:
                    pass
            self.assertEqual(caught.exception.code(), LATE)
            self.assertIn("a download has not moved for 2 s", caught.exception.details())
        agent.delete(name)
        self.assertEqual(agent.stats().memory_used_bytes, 0)

    def test_a_slow_upload_that_moves_may_take_its_time(self):
        cluster = self.cluster_of(1, "--op-timeout", "1s")
        agent = cluster.agents[0]

        def messages():
            spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[5])
            for place in range(5):
                start = tensors.UploadStart(spec=spec) if place == 0 else None
                yield tensors.UploadRequest(start=start, offset=4 * place, payload=b"\0" * 4)
                time.sleep(0.5)

        handle_ = agent.tensors.Upload(messages(), timeout=LONG_S).tensor.handle
        self.assertEqual(list(agent.get(handle_)), [0] * 5)

    # ------------------------------------------------------------------ every call

    def methods(self, *modules):
        for module in modules:
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    yield "/%s/%s" % (service.full_name, method.name), method

    def end_of(self, channel, path, method):
        """How a call of nothing ends that has a second for it, and says nothing more."""
        kind = ("stream" if method.client_streaming else "unary") + "_" + (
            "stream" if method.server_streaming else "unary"
        )
        call = getattr(channel, kind)(path)
        request = b""
        ended = threading.Event()
        if method.client_streaming:
            request = iter(lambda: ended.wait(LONG_S) and None, None)
        try:
            answer = call(request, timeout=1)
            if method.server_streaming:
                list(answer)
            return grpc.StatusCode.OK
        except grpc.RpcError as error:
            return error.code()
        finally:
            ended.set()

    def test_every_call_of_both_servers_ends_with_its_deadline(self):
        cluster = self.cluster_of(2)
        sides = (
            (cluster.coordinator, (coordinator, meshes, metadata, store, rendezvous)),
            (cluster.agents[0].program, (collectives, tensors, tracers, diagnostics, commands)),
        )
        tried = 0
        for program, modules in sides:
            with program.channel() as channel:
                for path, method in self.methods(*modules):
                    began = time.monotonic()
                    code = self.end_of(channel, path, method)
                    self.assertLess(time.monotonic() - began, 20, path)
                    self.assertNotEqual(code, grpc.StatusCode.UNKNOWN, path)
                    self.assertNotEqual(code, grpc.StatusCode.INTERNAL, path)
                    tried += 1
        self.assertGreater(tried, 70)
        until = time.monotonic() + LONG_S
        while cluster.agents[0].stats().call_running_count > 0:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    # ------------------------------------------------------------------ tutti status

    def test_status_fails_when_nobody_answers_and_says_who(self):
        cluster = self.cluster_of(2, coordinator_options=("--heartbeat-timeout", "60s"))
        words = ("tutti", "status", "--coordinator", cluster.coordinator.address)
        self.assertEqual(support.run(*words)[0], 0)
        for agent in cluster.agents:
            agent.program.send(signal.SIGSTOP)
        try:
            code, text, said = support.run(*words)
        finally:
            for agent in cluster.agents:
                agent.program.send(signal.SIGCONT)
        self.assertEqual(code, 1, said)
        self.assertIn("silent", text)
        self.assertIn("no agent answers: rank 0 at %s, rank 1 at %s" % tuple(
            agent.program.address for agent in cluster.agents), said)

    def test_status_of_a_job_whose_ranks_are_all_lost_fails(self):
        cluster = self.cluster_of(1)
        cluster.agents[0].program.kill()
        while "is lost" not in cluster.coordinator.log():
            time.sleep(0.01)
        code, _, said = support.run("tutti", "status", "--coordinator", cluster.coordinator.address)
        self.assertEqual(code, 1)
        self.assertIn("no agent answers: all ranks are lost", said)


if __name__ == "__main__":
    support.main()
