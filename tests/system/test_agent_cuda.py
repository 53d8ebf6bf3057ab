"""Goal: tensors of a GPU are made, moved and freed as those of host memory are; nothing is left behind;
what goes wrong there is an error that names the device.

Method: agents with --device cuda:N over the stand-in for CUDA (tests/support/cuda_standin), whose memory
no processor can touch and whose streams run by themselves: all tests of test_agent_tensors again, and
those of devices. With TUTTI_GPU=1 the same on a real GPU, but for the failures that the stand-in makes.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import unittest

import grpc
import numpy as np

import support
from cuda_process import MODULES, REAL, Process, is_sanitized

os.environ["TUTTI_MODULES"] = MODULES
if not REAL:
    os.environ["TUTTI_STANDIN_CUDA"] = "leaks"
if not os.path.exists(os.path.join(MODULES, "tutti-cuda.so")):
    support.skip_all("no tutti-cuda.so in %s: CUDA's headers were not found" % MODULES)

import test_agent_tensors  # noqa: E402
from cluster_case import LONG_S, Cluster, ClusterCase, collectives, handle, spec_of, tensors, types  # noqa: E402
from test_agent_tensors import BIG, EXHAUSTED, INVALID, PRECONDITION, chunks_of  # noqa: E402

INTERNAL = grpc.StatusCode.INTERNAL
NO_COORDINATOR = ("--coordinator", "127.0.0.1:1")


def skip_without_device():
    """The reason is the agent's own."""
    code, _, said = support.run("tutti-agent", "--device", "cuda:0", "--join-timeout", "1ms", *NO_COORDINATOR)
    if "cuda:0: " in said:
        support.skip_all(said.strip())
    return code


def failure_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return support.Failure(error)
    raise AssertionError("the call did not fail")


def pattern(count, dtype=np.uint8, seed=0):
    return np.random.default_rng(seed).integers(0, 200, count).astype(dtype)


class SameAsHost(test_agent_tensors.Tensors):
    """What is true of host memory, with tensors on a GPU where nothing is said."""

    options = ("--memory-limit", "64MiB", "--handles-max", "500", "--device", "cuda:0",
               "--device-memory-limit", "64MiB")


class Devices(ClusterCase):
    size = 1
    options = ("--device", "cuda:0,cpu" if REAL else "cuda:1,cuda:0,cpu", "--device-memory-limit", "32MiB",
               "--memory-limit", "64MiB")
    first = "cuda:0" if REAL else "cuda:1"

    def setUp(self):
        self.agent = self.cluster.agents[0]
        self.stub = self.agent.tensors

    def device_of(self, name):
        return self.stub.Stat(tensors.StatRequest(handle=name), timeout=LONG_S).info.device

    def copy(self, original, **fields):
        return self.stub.Copy(tensors.CopyRequest(handle=original, **fields), timeout=LONG_S).tensor.handle

    def download(self, name, **fields):
        request = tensors.DownloadRequest(handle=name, **fields)
        return b"".join(part.payload for part in self.stub.Download(request, timeout=LONG_S))

    def test_a_tensor_lives_on_the_first_device_where_none_is_said(self):
        name = self.agent.put(np.arange(10))
        self.assertEqual(self.device_of(name), self.first)
        self.agent.delete(name)

    def test_a_tensor_lives_where_the_call_says(self):
        for device in ("cpu", "cuda:0", self.first):
            with self.subTest(device):
                array = pattern(1000)
                name = self.agent.put(array, device=device)
                self.assertEqual(self.device_of(name), device)
                np.testing.assert_array_equal(self.agent.get(name), array)
                self.agent.delete(name)

    def test_a_device_that_the_agent_has_not_is_refused_with_those_it_has(self):
        failure = failure_of(lambda: self.agent.put(np.arange(3), device="cuda:9"))
        self.assertEqual((failure.code, failure.reason), (PRECONDITION, "NO_DEVICE"))
        self.assertIn('"cuda:9": it has cpu, ' + self.first, failure.text)

    def test_a_tensor_that_is_overwritten_stays_where_it_is(self):
        name = self.agent.put(np.arange(3))
        failure = failure_of(lambda: self.agent.put(np.arange(3), into=name, device="cpu"))
        self.assertEqual((failure.code, failure.reason), (INVALID, "BAD_NAME"))
        self.agent.delete(name)

    def test_copies_go_from_each_place_to_each(self):
        places = ("cpu", "cuda:0", self.first)
        for count in (0, 1, 4095, 4 << 20, BIG):
            array = pattern(count, seed=count)
            for source in places:
                first = self.stub.Upload(chunks_of(array, device=source), timeout=LONG_S).tensor.handle
                for target in places:
                    with self.subTest((count, source, target)):
                        second = self.copy(first, device=target)
                        self.assertEqual(self.device_of(second), target)
                        self.assertEqual(self.download(second), array.tobytes())
                        self.agent.delete(second)
                self.assertEqual(self.device_of(self.copy(first, name="same")), source)
                self.agent.delete(first, "same")

    def test_a_copy_into_a_tensor_of_another_place(self):
        array = pattern(BIG)
        here = self.stub.Upload(chunks_of(array, device="cpu"), timeout=LONG_S).tensor.handle
        there = self.stub.Create(tensors.CreateRequest(spec=spec_of(array)), timeout=LONG_S).tensor.handle
        self.copy(here, into=there)
        self.assertEqual(self.download(there), array.tobytes())
        self.agent.delete(here, there)

    def test_many_transfers_at_once_share_the_slots(self):
        """More of them than there are slots, with downloads that nobody reads among them."""
        arrays = [pattern(BIG + i, seed=i) for i in range(6)]
        left = self.stub.Upload(chunks_of(pattern(20 << 20), device=self.first), timeout=LONG_S).tensor.handle
        slow = [self.stub.Download(tensors.DownloadRequest(handle=left)) for _ in range(10)]
        for one in slow:
            next(one)
        wrong = []

        def move(array):
            for _ in range(3):
                name = self.stub.Upload(chunks_of(array, device="cuda:0"), timeout=LONG_S).tensor.handle
                if self.download(name) != array.tobytes():
                    wrong.append(name)
                self.agent.delete(name)

        self.agent.delete(left)
        if self.first == "cuda:0":  # there is less room
            arrays = arrays[:1]
        threads = [threading.Thread(target=move, args=(array,)) for array in arrays[:3]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        for one in slow:
            one.cancel()

    def test_uploads_that_stop_half_way_hold_up_nobody(self):
        array = pattern(3 << 20)
        stop = threading.Event()

        def half():
            for i, message in enumerate(chunks_of(array, chunk=1 << 20)):
                if i == 2:
                    stop.wait(LONG_S)
                    return
                yield message

        stuck = [self.stub.Upload.future(half(), timeout=LONG_S) for _ in range(8)]
        name = self.agent.put(array[:1000])
        np.testing.assert_array_equal(self.agent.get(name), array[:1000])
        stop.set()
        for one in stuck:
            self.assertEqual(failure_of(one.result).reason, "SIZE_MISMATCH")
        self.agent.delete(name)

    def test_a_gpu_has_a_limit_of_its_own(self):
        spec = types.TensorSpec(dtype=types.DTYPE_UINT8, shape=[40 << 20])
        request = tensors.CreateRequest(spec=spec, device="cuda:0")
        failure = failure_of(lambda: self.stub.Create(request, timeout=LONG_S))
        self.assertEqual((failure.code, failure.reason), (EXHAUSTED, "MEMORY_LIMIT"))
        self.assertIn("of 32 MiB are used", failure.text)
        name = self.stub.Create(tensors.CreateRequest(spec=spec, device="cpu"), timeout=LONG_S).tensor.handle
        self.agent.delete(name)

    def test_inline_values_are_worked_on_in_host_memory(self):
        array = np.arange(12, dtype=np.float32)
        request = collectives.AllReduceRequest(
            input=types.TensorArg(inline_tensor=spec_of(array)), reduce_op=types.REDUCE_OP_SUM, payload=array.tobytes()
        )
        response = self.agent.ops.AllReduce(request, timeout=LONG_S)
        self.assertEqual(response.payload, array.tobytes())

    def test_the_command_says_where_tensors_go(self):
        def tutti(*words):
            code, out, err = support.run("tutti", *words, "--json", "--agent", self.agent.program.address)
            self.assertEqual(code, 0, err)
            return json.loads(out)

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.npy")
            np.save(path, pattern(BIG))  # more than one message: an upload
            put = tutti("put", path, "--device", "cpu")["handle"]
            copy = tutti("copy", put, "--device", self.first)["handle"]
            self.assertEqual([tutti("stat", name)["device"] for name in (put, copy)], ["cpu", self.first])
            self.assertEqual(self.download(copy), pattern(BIG).tobytes())
            small = os.path.join(folder, "b.npy")
            np.save(small, pattern(10))
            self.assertEqual(tutti("stat", tutti("put", small)["handle"])["device"], self.first)
            code, _, err = support.run("tutti", "put", small, "--device", "cuda:9", "--agent", self.agent.program.address)
            self.assertEqual(code, 1)
            self.assertIn("it has cpu, " + self.first, err)

    def test_tensors_of_one_op_are_in_one_place(self):
        here = self.agent.put(np.arange(4), device="cpu")
        there = self.agent.put(np.arange(4))
        request = collectives.AllReduceRequest(input=handle(here), output=there, reduce_op=types.REDUCE_OP_SUM)
        failure = failure_of(lambda: self.agent.ops.AllReduce(request, timeout=LONG_S))
        self.assertEqual((failure.code, failure.reason), (INVALID, "DEVICE_MISMATCH"))
        self.assertIn("on cpu and on " + self.first, failure.text)
        self.agent.delete(here, there)

    @unittest.skipIf(REAL, "one GPU may be all there is")
    def test_an_op_on_another_gpu_than_the_first_is_an_op(self):
        there = self.agent.put(np.arange(4), device="cuda:0")
        request = collectives.AllReduceRequest(input=handle(there), reduce_op=types.REDUCE_OP_SUM)
        made = self.agent.ops.AllReduce(request, timeout=LONG_S).output.handle
        info = self.agent.tensors.Stat(tensors.StatRequest(handle=made), timeout=LONG_S).info
        self.assertEqual((info.device, list(self.agent.get(made))), ("cuda:0", [0, 1, 2, 3]))
        self.agent.delete(there, made)


@unittest.skipIf(is_sanitized(), "this interpreter cannot load a library with a sanitizer")
class SharedMemory(ClusterCase):
    """Handles of CUDA: the stream is the share."""

    size = 1
    options = ("--device", "cuda:0", "--device-memory-limit", "32MiB")

    def setUp(self):
        self.agent = self.cluster.agents[0]
        self.stub = self.agent.tensors
        self.process = Process()

    def share(self, name):
        stream = self.stub.ShareGpu(tensors.ShareGpuRequest(handle=name))
        return stream, next(stream)

    def used(self):
        return self.agent.stats().gpus[0].memory_used_bytes

    def test_another_process_reads_and_writes_it(self):
        array = pattern(5000)
        name = self.agent.put(array)
        stream, answer = self.share(name)
        self.assertEqual((answer.byte_count, len(answer.ipc_handle)), (5000, 64))
        self.assertEqual(answer.gpu_uuid, self.agent.stats().gpus[0].uuid)
        there = self.process.open(answer.ipc_handle)
        self.assertEqual(self.process.read(there, 5000), array.tobytes())
        self.process.write(there, b"7" * 5000)
        self.assertEqual(self.agent.get(name).tobytes(), b"7" * 5000)
        self.agent.put(array, into=name)
        self.assertEqual(self.process.read(there, 5000), array.tobytes())
        self.process.close(there)
        stream.cancel()
        self.agent.delete(name)

    def test_its_memory_stays_as_long_as_one_stream_is_open(self):
        array = pattern(5000)
        name = self.agent.put(array)
        streams = [self.share(name) for _ in range(3)]
        self.assertEqual(len({answer.ipc_handle for _, answer in streams}), 1)
        self.agent.delete(name)
        there = self.process.open(streams[0][1].ipc_handle)
        for stream, _ in streams[1:]:
            stream.cancel()
        self.assertEqual(self.used(), 2 << 20)
        self.assertEqual(self.process.read(there, 5000), array.tobytes())
        self.process.close(there)
        streams[0][0].cancel()  # tearDown waits until it is given back

    def test_what_cannot_be_shared_is_refused(self):
        for fields, words in (({"device": "cpu"}, "host memory"), ({}, "0 bytes")):
            name = self.agent.put(pattern(10 if fields else 0), **fields)
            failure = failure_of(lambda: self.share(name))
            self.assertEqual((failure.code, failure.reason), (PRECONDITION, "CANNOT_SHARE"))
            self.assertIn(words, failure.text)
            self.agent.delete(name)
        self.assertEqual(failure_of(lambda: self.share("nobody")).reason, "NO_TENSOR")

    def test_a_file_of_it_cannot_be_had(self):
        name = self.agent.put(pattern(10))
        stream, _ = self.share(name)
        failure = failure_of(lambda: self.stub.Share(tensors.ShareRequest(handle=name), timeout=LONG_S))
        self.assertEqual((failure.code, failure.reason), (PRECONDITION, "CANNOT_SHARE"))
        stream.cancel()
        self.agent.delete(name)

    def test_an_agent_that_stops_ends_its_shares(self):
        cluster = Cluster(1, *self.options)
        try:
            stub = cluster.agents[0].tensors
            stream = stub.ShareGpu(tensors.ShareGpuRequest(handle=cluster.agents[0].put(pattern(10))))
            next(stream)
            cluster.agents[0].program.send(signal.SIGTERM)
            self.assertEqual(failure_of(lambda: next(stream)).reason, "STOPPING")
        finally:
            cluster.stop()


@unittest.skipIf(REAL, "a real GPU does not fail when it is told to")
class Failing(unittest.TestCase):
    """Errors on demand: the call fails, the agent goes on, and has nothing left at its end."""

    @contextlib.contextmanager
    def start(self, settings):
        """An agent that ends well, whatever its device did."""
        os.environ["TUTTI_STANDIN_CUDA"] = "leaks," + settings
        try:
            cluster = Cluster(1, "--device", "cuda:0")
        finally:
            os.environ["TUTTI_STANDIN_CUDA"] = "leaks"
        try:
            yield cluster.agents[0]
        except BaseException:
            cluster.kill()
            raise
        cluster.stop()

    def test_a_call_that_fails_is_named_and_the_next_one_works(self):
        array = pattern(1000)
        for call, at in (("cudaMemsetAsync", 1), ("cudaMemcpyAsync", 1), ("cudaMallocFromPoolAsync", 1)):
            with self.subTest(call), self.start("fail:%s:%d" % (call, at)) as agent:
                failure = failure_of(lambda: agent.put(array))
                if call == "cudaMallocFromPoolAsync":
                    self.assertEqual((failure.code, failure.reason), (EXHAUSTED, "DEVICE_MEMORY"))
                else:
                    self.assertEqual((failure.code, failure.reason), (INTERNAL, "DEVICE_FAILED"))
                    self.assertIn(call, failure.text)
                np.testing.assert_array_equal(agent.get(agent.put(array)), array)

    def test_a_device_that_breaks_fails_all_calls_and_hangs_none(self):
        array = pattern(BIG)
        for at in (3, 9, 14):
            with self.subTest(at), self.start("break:%d" % at) as agent:
                stub = agent.tensors

                def move():
                    name = stub.Upload(chunks_of(array), timeout=LONG_S).tensor.handle
                    for _ in range(3):
                        list(stub.Download(tensors.DownloadRequest(handle=name), timeout=LONG_S))

                failure = failure_of(move)
                self.assertEqual((failure.code, failure.reason), (INTERNAL, "DEVICE_FAILED"))
                self.assertIn("illegal memory access", failure.text)
                host = agent.put(array[:100], device="cpu")
                np.testing.assert_array_equal(agent.get(host), array[:100])

    def test_slow_streams_change_nothing(self):
        array = pattern(BIG)
        with self.start("delay:300") as agent:
            stub = agent.tensors
            name = stub.Upload(chunks_of(array, chunk=300_000), timeout=LONG_S).tensor.handle
            request = tensors.DownloadRequest(handle=name, chunk_bytes=200_000)
            got = b"".join(part.payload for part in stub.Download(request, timeout=LONG_S))
            self.assertEqual(got, array.tobytes())


class Sharing(unittest.TestCase):
    """Two agents of one job on one GPU."""

    def start(self, coordinator, rank, *options, **environment):
        words = ["--coordinator", coordinator.address, "--world-size", "2", "--rank", str(rank)]
        return support.Program("tutti-agent", *words, "--device", "cuda:0", *options, environment=environment)

    def refused(self, coordinator, *options, **environment):
        words = ["--coordinator", coordinator.address, "--world-size", "2", "--rank", "1"]
        code, _, said = support.run(
            "tutti-agent", *words, "--device", "cuda:0", *options, environment=environment
        )
        self.assertEqual(code, 1, said)
        return said

    def test_they_are_found_by_the_uuid_and_told_what_to_do(self):
        with support.Program("tutti-coordinator") as coordinator, self.start(coordinator, 0) as first:
            first.wait_for_log("1 of 2 ranks are here")
            said = self.refused(coordinator)
            self.assertRegex(said, "GPU-[0-9a-f-]{36} has an agent already: the one of pid %d on host" % first.process.pid)
            self.assertIn("--allow-shared-gpu", said)

    @unittest.skipIf(REAL, "there may be one GPU only")
    def test_the_name_of_the_device_does_not_count(self):
        with support.Program("tutti-coordinator") as coordinator:
            with self.start(coordinator, 0, CUDA_VISIBLE_DEVICES="1,0") as first:
                first.wait_for_log("1 of 2 ranks are here")
                self.refused(coordinator, CUDA_VISIBLE_DEVICES="1")
                with self.start(coordinator, 1) as second:
                    second.wait_for_log("joined")

    def test_it_can_be_allowed(self):
        cluster = Cluster(2, "--device", "cuda:0", "--allow-shared-gpu", "--device-memory-limit", "32MiB")
        try:
            for agent in cluster.agents:
                array = pattern(100, seed=agent.rank)
                np.testing.assert_array_equal(agent.get(agent.put(array)), array)
        finally:
            cluster.stop()


class Starting(unittest.TestCase):
    def refused(self, device, environment=None):
        code, out, err = support.run(
            "tutti-agent", "--device", device, *NO_COORDINATOR, environment=environment
        )
        self.assertEqual((code, out), (1, ""))
        lines = [line for line in err.splitlines() if " info " not in line]
        self.assertEqual(len(lines), 1, err)
        return lines[0]

    def test_a_machine_without_cuda_is_told_so_in_one_line(self):
        said = self.refused("cuda:0", {"TUTTI_MODULES": "/nowhere"})
        self.assertIn("cuda:0: there is no /nowhere/tutti-cuda.so", said)

    @unittest.skipIf(REAL, "there is a driver")
    def test_a_machine_without_a_driver_is_told_so_in_one_line(self):
        said = self.refused("cuda:0", {"TUTTI_STANDIN_CUDA": "devices:0"})
        self.assertIn("cuda:0: no CUDA driver here", said)

    def test_devices_that_cannot_be_are_refused(self):
        self.assertIn("need cpu or cuda:N", self.refused("gpu"))
        self.assertIn("given twice", self.refused("cuda:0,cuda:0"))
        self.assertIn("no such device: this process sees", self.refused("cuda:99"))

    def test_the_agent_is_linked_with_no_cuda_library(self):
        out = subprocess.check_output(["ldd", os.path.join(support.PROGRAMS, "tutti-agent")]).decode()
        self.assertNotIn("cuda", out)


if __name__ == "__main__":
    if REAL:
        skip_without_device()
    support.main()
