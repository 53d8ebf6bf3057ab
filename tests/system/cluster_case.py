"""A cluster of real processes for tests: one coordinator, any number of agents, a channel to each."""

import os
import signal
import sys
import tempfile
import threading
import time
import unittest

import grpc
import numpy as np

import metrics_page
import support

support.build_stubs()
from tutti.v1 import collectives_service_pb2 as collectives  # noqa: E402
from tutti.v1 import collectives_service_pb2_grpc as collectives_grpc  # noqa: E402
from tutti.v1 import coordinator_service_pb2 as coordinator  # noqa: E402
from tutti.v1 import coordinator_service_pb2_grpc as coordinator_grpc  # noqa: E402
from tutti.v1 import diagnostics_service_pb2 as diagnostics  # noqa: E402
from tutti.v1 import diagnostics_service_pb2_grpc as diagnostics_grpc  # noqa: E402
from tutti.v1 import tensors_service_pb2 as tensors  # noqa: E402
from tutti.v1 import tensors_service_pb2_grpc as tensors_grpc  # noqa: E402
from tutti.v1 import tracers_service_pb2 as tracers  # noqa: E402
from tutti.v1 import tracers_service_pb2_grpc as tracers_grpc  # noqa: E402
from tutti.v1 import types_pb2 as types  # noqa: E402

LONG_S = 60  # for what should be quick: sanitizers on a busy machine are slow

DTYPES = {
    np.dtype(np.bool_): types.DTYPE_BOOL,
    np.dtype(np.uint8): types.DTYPE_UINT8,
    np.dtype(np.uint16): types.DTYPE_UINT16,
    np.dtype(np.uint32): types.DTYPE_UINT32,
    np.dtype(np.uint64): types.DTYPE_UINT64,
    np.dtype(np.int8): types.DTYPE_INT8,
    np.dtype(np.int16): types.DTYPE_INT16,
    np.dtype(np.int32): types.DTYPE_INT32,
    np.dtype(np.int64): types.DTYPE_INT64,
    np.dtype(np.float16): types.DTYPE_FP16,
    np.dtype(np.float32): types.DTYPE_FP32,
    np.dtype(np.float64): types.DTYPE_FP64,
    np.dtype(np.complex64): types.DTYPE_COMPLEX64,
    np.dtype(np.complex128): types.DTYPE_COMPLEX128,
}
NUMPY = {number: dtype for dtype, number in DTYPES.items()}


def spec_of(array):
    return types.TensorSpec(dtype=DTYPES[array.dtype], shape=array.shape)


def array_of(reference, payload):
    return np.frombuffer(payload, NUMPY[reference.spec.dtype]).reshape(list(reference.spec.shape))


def inline(array):
    return types.TensorArg(inline_tensor=spec_of(array))


def handle(text):
    return types.TensorArg(handle=text)


class Agent:
    """One rank's process and stubs."""

    def __init__(self, cluster, rank, *options):
        self.rank = rank
        self.cluster = cluster
        words = ["--coordinator", cluster.coordinator.address, "--world-size", str(cluster.size)]
        if rank is not None:
            words += ["--rank", str(rank)]
        self.program = self.start(*words, *options)
        self.open_channel()

    def open_channel(self):
        self.channel = self.program.channel()
        self.ops = collectives_grpc.CollectivesServiceStub(self.channel)
        self.tensors = tensors_grpc.TensorsServiceStub(self.channel)
        self.tracers = tracers_grpc.TracersServiceStub(self.channel)
        self.diagnostics = diagnostics_grpc.DiagnosticsServiceStub(self.channel)

    def start(self, *words):
        return support.Program("tutti-agent", *words)

    def describe(self):
        return self.diagnostics.DescribeAgent(
            diagnostics.DescribeAgentRequest(), timeout=LONG_S, wait_for_ready=True
        )

    def stats(self):
        return self.diagnostics.GetStats(diagnostics.GetStatsRequest(), timeout=LONG_S)

    def wait_joined(self):
        until = time.monotonic() + LONG_S
        while not self.describe().joined:
            assert time.monotonic() < until, "not joined: " + self.program.log()
            time.sleep(0.01)

    def put(self, array, **fields):
        """A tensor in the agent; its handle."""
        request = tensors.PutRequest(spec=spec_of(array), payload=array.tobytes(), **fields)
        return self.tensors.Put(request, timeout=LONG_S).tensor.handle

    def get(self, name):
        response = self.tensors.Get(tensors.GetRequest(handle=name), timeout=LONG_S)
        return array_of(response.tensor, response.payload)

    def delete(self, *names):
        self.tensors.Delete(tensors.DeleteRequest(handles=names), timeout=LONG_S)

    def close(self):
        self.channel.close()


class MeteredAgent(Agent):
    """With a page of metrics."""

    def start(self, *words):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-metrics-")
        self.port_file = os.path.join(self.folder.name, "port")
        return support.Program("tutti-agent", "--metrics=127.0.0.1:0", "--metrics-port-file=" + self.port_file, *words)

    def count(self, metric):
        with open(self.port_file) as file:
            return int(metrics_page.read(file.read().strip()).value(metric))

    def received_bytes(self):
        """Of tensors, by Put and Upload. An upload whose bytes are counted is in line for its tensor; its call is
        counted (call_running_count) some time before."""
        return self.count("tutti_agent_received_bytes_total")

    def wait_received(self, byte_count):
        until = time.monotonic() + LONG_S
        while self.received_bytes() < byte_count:
            assert time.monotonic() < until, "not %d bytes: %s" % (byte_count, self.program.log())
            time.sleep(0.005)


class Cluster:
    agent_class = Agent

    def __init__(self, size, *agent_options, coordinator_options=()):
        self.size = size
        self.agent_options = agent_options
        self.coordinator = self.make_coordinator(*coordinator_options)
        self.agents = []
        self.coordinator_channel = self.coordinator.channel()
        self.members = coordinator_grpc.CoordinatorServiceStub(self.coordinator_channel)
        try:
            for rank in range(size):
                self.agents.append(self.agent_class(self, rank, *agent_options))
            for agent in self.agents:
                agent.wait_joined()
        except BaseException:
            self.kill()
            raise

    def make_coordinator(self, *options):
        return support.Program("tutti-coordinator", *options)

    def kill(self):
        for agent in self.agents:
            agent.program.kill()
        self.coordinator.kill()

    def replace(self, rank):
        """A fresh process for a seat whose process is gone."""
        self.agents[rank].close()
        self.agents[rank] = self.agent_class(self, rank, *self.agent_options)
        self.agents[rank].wait_joined()
        return self.agents[rank]

    def group(self, name, ranks, by=None):
        member = types.Member(
            rank=ranks[0] if by is None else by,
            incarnation=self.agents[ranks[0] if by is None else by].describe().incarnation,
        )
        request = coordinator.CreateGroupRequest(member=member, name=name, ranks=ranks)
        return self.members.CreateGroup(request, timeout=LONG_S).group

    def on(self, ranks, call):
        """call(agent) on all these ranks at once; results in their order, errors as Failures."""
        results = [None] * len(ranks)

        def work(place, rank):
            try:
                results[place] = call(self.agents[rank])
            except grpc.RpcError as error:
                results[place] = support.Failure(error)

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def all(self, call):
        return self.on(range(self.size), call)

    def stop(self):
        codes = []
        for agent in self.agents:
            agent.close()
            if agent.program.process.poll() is None:
                agent.program.send(signal.SIGTERM)
        for agent in self.agents:
            codes.append((agent.program.stop(), agent.program))
        self.coordinator_channel.close()
        codes.append((self.coordinator.stop(), self.coordinator))
        for code, program in codes:
            if code != 0 and code != -signal.SIGKILL:
                raise AssertionError("exit code %d: %s" % (code, program.log()))


def all_reduce(agent, array, op=types.REDUCE_OP_SUM, timeout=LONG_S, **fields):
    """Inline in, inline out."""
    request = collectives.AllReduceRequest(
        input=inline(array), reduce_op=op, payload=array.tobytes(), **fields
    )
    response = agent.ops.AllReduce(request, timeout=timeout)
    return array_of(response.output, response.payload)


class MeteredCluster(Cluster):
    agent_class = MeteredAgent


class ClusterCase(unittest.TestCase):
    """Tests that share one cluster of `size`, and leave no tensor behind."""

    size = 2
    options = ()
    cluster_class = Cluster

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.cluster_class(cls.size, *cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def tearDown(self):
        for agent in self.cluster.agents:
            page = agent.tensors.List(tensors.ListRequest(page_size=1000), timeout=LONG_S)
            for info in page.tensors:
                self.delete_left(agent, info.tensor.handle)
        for agent in self.cluster.agents:
            self.wait_empty(agent)

    def delete_left(self, agent, name):
        """What a test left; an upload that was cut takes its tensor away by itself."""
        try:
            agent.delete(name)
        except grpc.RpcError as error:
            self.assertEqual(support.Failure(error).reason, "NO_TENSOR")

    def wait_empty(self, agent):
        """Everything is given back: gRPC may hold the last bytes for a moment."""
        until = time.monotonic() + LONG_S
        while True:
            stats = agent.stats()
            if (
                stats.tensor_count == 0
                and stats.memory_used_bytes == 0
                and all(gpu.tensor_count == gpu.memory_used_bytes == 0 for gpu in stats.gpus)
                and stats.op_running_count == 0
                and stats.call_running_count == 0
            ):
                return
            self.assertLess(time.monotonic(), until, "rank %s keeps %s" % (agent.rank, stats))
            time.sleep(0.01)

    def assert_works(self, cluster=None):
        """The world still works: sums of ones."""
        cluster = cluster or self.cluster
        for result in cluster.all(lambda agent: all_reduce(agent, np.ones(3, np.float32))):
            self.assertNotIsInstance(result, support.Failure, result)
            self.assertEqual(list(result), [cluster.size] * 3)

    def assert_failed(self, failure, code, reason, *words):
        self.assertIsInstance(failure, support.Failure)
        self.assertEqual((failure.code, failure.reason), (code, reason), failure)
        for word in words:
            self.assertIn(word, failure.text)

    def fails(self, call):
        """The Failure of a call that must fail."""
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        return support.Failure(caught.exception)
