"""Goal: clients of this machine map tensors of an agent, as they asked, and every share has an end.

Method: real agents; the socket is spoken to by hand, as a client of another language would; clients are killed.
"""

import mmap
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import (
    LONG_S, Cluster, ClusterCase, collectives, handle, spec_of, tensors, tracers, types,
)
from tracers_case import TracersCase, all_reduce, traced

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
MISSING = grpc.StatusCode.NOT_FOUND
MANY = 1 << 18  # elements


def wait_until(test, true, what):
    until = time.monotonic() + LONG_S
    while not true():
        test.assertLess(time.monotonic(), until, what)
        time.sleep(0.01)


def share(agent, name, **fields):
    return agent.tensors.Share(tensors.ShareRequest(handle=name, **fields), timeout=LONG_S)


def show(response):
    """(socket, refusal, writable, bytes, descriptor or None) of a token."""
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lease.settimeout(LONG_S)
    lease.connect("\0" + response.socket)
    lease.send(b"tthello1" + response.token)
    answer, fds, _, _ = socket.recv_fds(lease, 100, 4)
    magic, refusal, writable, size = struct.unpack("=8sIIQ", answer)
    assert magic == b"ttshare1", answer
    return lease, refusal, writable, size, fds[0] if fds else None


class View:
    """A tensor's memory as this process sees it."""

    def __init__(self, agent, name, writable=False):
        self.response = share(agent, name, writable=writable)
        self.lease, refusal, allowed, size, self.fd = show(self.response)
        assert (refusal, bool(allowed), size) == (0, writable, self.response.byte_count)
        self.map = mmap.mmap(
            self.fd, size, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        )
        self.array = np.frombuffer(self.map, np.float32)

    def said(self):
        """What the agent has said since: b"" = nothing yet."""
        self.lease.setblocking(False)
        try:
            return self.lease.recv(100)
        except BlockingIOError:
            return b""

    def close(self):
        self.array = None
        self.map.close()
        os.close(self.fd)
        self.lease.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def map_and_sleep(address, name, told):
    """Another process: maps a tensor, says so, and stays."""
    channel = grpc.insecure_channel(address)
    from tutti.v1 import tensors_service_pb2_grpc as tensors_grpc

    class One:
        tensors = tensors_grpc.TensorsServiceStub(channel)

    view = View(One, name, writable=True)
    view.array[0] = 42
    told.send("mapped")
    time.sleep(600)


class Shares(ClusterCase):
    size = 2
    options = ("--memory-limit", "64MiB", "--shares-max", "400")

    def setUp(self):
        self.agent = self.cluster.agents[0]

    def put(self, count=1000, agent=None, **fields):
        return (agent or self.agent).put(np.arange(count, dtype=np.float32), **fields)

    def test_a_reader_sees_what_ops_write(self):
        name = self.put()
        with View(self.agent, name) as view:
            np.testing.assert_array_equal(view.array, np.arange(1000))
            request = tensors.PutRequest(
                spec=spec_of(view.array), into=name, payload=np.ones(1000, np.float32).tobytes()
            )
            self.agent.tensors.Put(request, timeout=LONG_S)
            np.testing.assert_array_equal(view.array, np.ones(1000))

    def test_what_a_writer_writes_the_agent_has(self):
        name = self.put()
        with View(self.agent, name, writable=True) as view:
            view.array[:] = 5
            np.testing.assert_array_equal(self.agent.get(name), np.full(1000, 5))
            with View(self.agent, name) as other:
                view.array[7] = 6
                self.assertEqual(other.array[7], 6)

    def test_it_shows_no_other_tensor(self):
        secret = self.agent.put(np.full(1000, 0x5E, np.uint8))
        name = self.put(3)
        lease, _, _, size, fd = show(share(self.agent, name, writable=True))
        self.assertEqual(size, 12)
        self.assertEqual(os.fstat(fd).st_size, mmap.PAGESIZE)
        self.assertEqual(os.pread(fd, 1 << 20, 0)[12:].strip(b"\0"), b"")
        os.close(fd)
        lease.close()
        self.agent.delete(secret)

    def test_a_reader_cannot_write_in_any_way(self):
        name = self.put()
        lease, _, writable, size, fd = show(share(self.agent, name))
        self.assertEqual(writable, 0)
        with self.assertRaises(PermissionError):
            mmap.mmap(fd, size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        with self.assertRaises(OSError):
            os.write(fd, b"x")
        with self.assertRaises(OSError):
            os.ftruncate(fd, 0)
        os.close(fd)
        lease.close()

    def test_a_writer_cannot_cut_it(self):
        lease, _, _, _, fd = show(share(self.agent, self.put(), writable=True))
        for size in (0, 1 << 20):
            with self.assertRaises(PermissionError):
                os.ftruncate(fd, size)
        os.close(fd)
        lease.close()

    def test_collectives_run_in_place_on_mapped_memory(self):
        for count in (3, MANY):
            views = [
                View(agent, self.put(count, agent, name="x%d" % count), True)
                for agent in self.cluster.agents
            ]
            wanted = 2 * np.arange(count, dtype=np.float32)
            for turn in range(3):
                request = collectives.AllReduceRequest(
                    input=handle("x%d" % count),
                    output="x%d" % count,
                    reduce_op=types.REDUCE_OP_SUM,
                )
                self.cluster.all(lambda agent: agent.ops.AllReduce(request, timeout=LONG_S))
                for view in views:
                    np.testing.assert_array_equal(view.array, wanted)
                    view.array[:] = np.arange(count)
            for view in views:
                view.close()

    def shared_maps(self, agent):
        """Tensors with memory of their own, ours and peers', that an agent has mapped."""
        with open("/proc/%d/maps" % agent.program.process.pid) as maps:
            return len({line.split()[4] for line in maps if "memfd:tutti-shared" in line})

    def reduce_in_place(self, name, turns=1):
        request = collectives.AllReduceRequest(
            input=handle(name), output=name, reduce_op=types.REDUCE_OP_SUM
        )
        for _ in range(turns):
            for result in self.cluster.all(
                lambda agent: agent.ops.AllReduce(request, timeout=LONG_S)
            ):
                self.assertNotIsInstance(result, support.Failure)

    def test_peers_work_in_mapped_memory_and_let_go_of_it(self):
        views = [View(agent, self.put(MANY, agent, name="x"), True) for agent in self.cluster.agents]
        self.reduce_in_place("x", 4)  # ranks meet beside the first
        for view in views:
            np.testing.assert_array_equal(view.array, 16 * np.arange(MANY, dtype=np.float32))
        self.assertEqual([self.shared_maps(agent) for agent in self.cluster.agents], [2, 2])
        for agent, view in zip(self.cluster.agents, views):
            agent.delete("x")
            view.close()
        for agent in self.cluster.agents:
            wait_until(self, lambda: self.shared_maps(agent) == 0, "a peer keeps what is gone")

    def test_of_hundreds_peers_map_some_at_a_time(self):
        count, elements = 300, 4096
        for number in range(count):
            for agent in self.cluster.agents:
                self.put(elements, agent, name="many%d" % number)
                lease, _, _, _, fd = show(share(agent, "many%d" % number))
                os.close(fd)
                lease.close()
        for _ in range(2):
            for number in range(count):
                self.reduce_in_place("many%d" % number)
        for agent in self.cluster.agents:
            self.assertLessEqual(self.shared_maps(agent), count + 256)
            self.assertGreater(self.shared_maps(agent), count)
            for number in (0, 1, 255, 256, 299):
                found = agent.get("many%d" % number)
                np.testing.assert_array_equal(found, 4 * np.arange(elements, dtype=np.float32))

    def test_a_token_is_good_once(self):
        response = share(self.agent, self.put())
        lease, refusal, _, _, fd = show(response)
        self.assertEqual(refusal, 0)
        again, refusal, _, _, nothing = show(response)
        self.assertEqual((refusal, nothing), (1, None))
        again.close()
        os.close(fd)
        lease.close()

    def test_a_wrong_token_gets_nothing(self):
        response = share(self.agent, self.put())
        for token in (bytes(16), b"\xff" * 16):
            wrong = tensors.ShareResponse(socket=response.socket, token=token)
            lease, refusal, _, _, fd = show(wrong)
            self.assertEqual((refusal, fd), (1, None))
            lease.close()
        lease, refusal, _, _, fd = show(response)
        self.assertEqual(refusal, 0)
        os.close(fd)
        lease.close()

    def test_delete_takes_the_handle_at_once_and_the_bytes_last(self):
        name = self.put()
        with View(self.agent, name) as view:
            self.assertEqual(view.said(), b"")
            self.agent.delete(name)
            failure = self.fails(lambda: self.agent.get(name))
            self.assert_failed(failure, MISSING, "NO_TENSOR")
            wait_until(self, lambda: view.said() == b"ttended1", "nobody told the client")
            np.testing.assert_array_equal(view.array, np.arange(1000))
            self.assertGreater(self.agent.stats().memory_used_bytes, 0)
        self.wait_empty(self.agent)

    def test_a_killed_client_leaves_nothing(self):
        name = self.put()
        mine, its = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        client = context.Process(
            target=map_and_sleep, args=(self.agent.program.address, name, its)
        )
        client.start()
        self.assertTrue(mine.poll(LONG_S))
        mine.recv()
        self.assertEqual(self.agent.get(name)[0], 42)
        self.agent.delete(name)
        time.sleep(0.1)
        self.assertGreater(self.agent.stats().memory_used_bytes, 0)
        os.kill(client.pid, signal.SIGKILL)
        client.join()
        self.wait_empty(self.agent)

    def test_bad_calls_are_told_why(self):
        empty = self.agent.put(np.zeros((0, 3), np.float32))
        for name, code, reason in (
            ("nothing", MISSING, "NO_TENSOR"),
            ("", grpc.StatusCode.INVALID_ARGUMENT, "BAD_HANDLE"),
            (empty, PRECONDITION, "CANNOT_SHARE"),
        ):
            failure = self.fails(lambda: share(self.agent, name))
            self.assert_failed(failure, code, reason)
        failure = self.fails(lambda: share(self.agent, self.put(), host_id="elsewhere"))
        self.assert_failed(failure, PRECONDITION, "OTHER_HOST", "elsewhere")

    def test_the_host_is_told(self):
        with open("/proc/sys/kernel/random/boot_id") as file:
            mine = file.read().strip() + "/" + os.readlink("/proc/self/ns/ipc")
        self.assertEqual(share(self.agent, self.put(), host_id=mine).host_id, mine)

    def test_it_waits_for_the_op_that_writes(self):
        other = self.cluster.agents[1]
        name = self.put(MANY)
        request = collectives.AllReduceRequest(
            input=handle(name), output=name, reduce_op=types.REDUCE_OP_SUM
        )
        running = self.agent.ops.AllReduce.future(request, timeout=LONG_S)
        asked = self.agent.tensors.Share.future(tensors.ShareRequest(handle=name), timeout=LONG_S)
        time.sleep(0.2)
        self.assertFalse(asked.done())
        mine = other.put(np.arange(MANY, dtype=np.float32))
        request = collectives.AllReduceRequest(
            input=handle(mine), output=mine, reduce_op=types.REDUCE_OP_SUM
        )
        other.ops.AllReduce(request, timeout=LONG_S)
        running.result()
        lease, refusal, _, size, fd = show(asked.result())
        self.assertEqual((refusal, size), (0, 4 * MANY))
        shared = np.frombuffer(os.pread(fd, size, 0), np.float32)
        np.testing.assert_array_equal(shared, 2 * np.arange(MANY, dtype=np.float32))
        os.close(fd)
        lease.close()


class Gradients(TracersCase):
    """Tensors of which a tape has a part."""

    size = 2

    def test_a_gradient_can_be_mapped_and_is_nobody_elses(self):
        def work(agent):
            x = traced(agent, np.ones(1000, np.float32))
            found = []
            for _ in range(2):
                y = all_reduce(agent, x)
                seed = agent.put(np.full(1000, 3, np.float32))
                request = tracers.BackwardRequest(tracer="t", wanted=[x])
                request.gradients.add(tensor=y, gradient=seed)
                gradient = agent.tracers.Backward(request, timeout=LONG_S).gradients[0].gradient
                with View(agent, gradient.handle, True) as view, View(agent, seed, True) as given:
                    found.append(view.array.copy())
                    view.array[:] = 1000
                    found.append(given.array.copy())
                    given.array[:] = 1000
                found.append(agent.get(gradient.handle))
            return found

        for one in self.on_all(work):
            self.assertEqual([set(array) for array in one], [{6}, {3}, {1000}] * 2)


class Ends(unittest.TestCase):
    def world(self, *options, size=1):
        cluster = Cluster(size, "--memory-limit", "64MiB", *options)
        self.addCleanup(cluster.kill)
        return cluster

    def test_no_share_is_no_share(self):
        agent = self.world("--no-share").agents[0]
        name = agent.put(np.ones(3, np.float32))
        with self.assertRaises(grpc.RpcError) as caught:
            share(agent, name)
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (PRECONDITION, "SHARE_OFF"))
        self.assertIn("--no-share", failure.text)

    def test_an_agent_that_stops_ends_its_shares(self):
        cluster = self.world()
        agent = cluster.agents[0]
        with View(agent, agent.put(np.ones(3, np.float32))) as view:
            cluster.stop()
            view.lease.settimeout(LONG_S)
            self.assertEqual(view.lease.recv(100), b"")
            self.assertEqual(list(view.array), [1, 1, 1])

    def limited(self, call):
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (EXHAUSTED, "SHARE_LIMIT"))
        self.assertIn("--shares-max", failure.text)

    def fits(self, call):
        try:
            call()
        except grpc.RpcError:
            return False
        return True

    def test_mappings_have_a_limit(self):
        agent = self.world("--shares-max", "20").agents[0]
        name = agent.put(np.ones(3, np.float32))
        views = [View(agent, name) for _ in range(20)]
        self.limited(lambda: share(agent, name))
        for view in views:
            view.close()
        wait_until(self, lambda: self.fits(lambda: share(agent, name)), "no room again")

    def test_tensors_that_were_mapped_have_a_limit(self):
        agent = self.world("--shares-max", "20").agents[0]
        names = [agent.put(np.ones(3, np.float32)) for _ in range(21)]
        for name in names[:20]:
            wait_until(self, lambda: self.fits(lambda: View(agent, name).close()), name)
        self.limited(lambda: share(agent, names[20]))
        agent.delete(names[0])
        wait_until(self, lambda: self.fits(lambda: share(agent, names[20])), "no room again")

    def test_a_host_id_that_is_stated_counts(self):
        agent = self.world("--host-id", "rack-7").agents[0]
        name = agent.put(np.ones(3, np.float32))
        self.assertEqual(share(agent, name, host_id="rack-7").host_id, "rack-7")

    def test_a_tensor_whose_op_failed_is_not_shared(self):
        agent = self.world(size=2).agents[0]
        request = collectives.AllReduceRequest(
            input=handle(agent.put(np.ones(3, np.float32))),
            reduce_op=types.REDUCE_OP_SUM,
            options=types.OpOptions(timeout_ms=200, **{"async": True}),
        )
        made = agent.ops.AllReduce(request, timeout=LONG_S).output.handle
        with self.assertRaises(grpc.RpcError) as caught:
            share(agent, made)
        self.assertEqual(support.Failure(caught.exception).reason, "TIMEOUT")


class Program(unittest.TestCase):
    """tests/client/share_program.c: libtutti, mapped and copied."""

    program = os.path.join(support.BUILD, "tests", "client", "share_program")

    def run_ranks(self, *words):
        code, out, err = support.run("tutti", "run", "-n", "2", "--", *words, timeout=LONG_S * 2)
        self.assertEqual(code, 0, out + err)
        return out + err

    def test_libtutti_maps(self):
        self.assertNotIn("copied instead", self.run_ranks(self.program))

    def test_libtutti_copies_where_sharing_is_off_and_says_so_once(self):
        cluster = Cluster(2, "--no-share")
        self.addCleanup(cluster.kill)
        ranks = [
            subprocess.Popen(
                [self.program, "copy"],
                env=dict(os.environ, TUTTI_AGENT=agent.program.address),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for agent in cluster.agents
        ]
        said = "".join(rank.communicate(timeout=LONG_S * 2)[1].decode() for rank in ranks)
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        self.assertEqual(said.count("copied instead of mapped"), 2, said)  # once a rank
        self.assertIn("--no-share", said)

    def test_libtutti_copies_from_another_host(self):
        said = self.run_ranks("env", "TUTTI_HOST_ID=elsewhere", self.program, "copy")
        self.assertEqual(said.count("copied instead of mapped"), 2, said)
        self.assertIn("elsewhere", said)


if __name__ == "__main__":
    support.main()
