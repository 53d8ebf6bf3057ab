#!/usr/bin/env python3
"""Goal: an op takes its place between the work of its caller's streams, by events, and no program waits for it; what goes
wrong is told, and the caller's stream goes on.

Method: two agents with --device cuda:0, and CUDA in this process, which is a client of both: streams that are held back
show who waits for whom. TUTTI_GPU=1: on a real GPU. Else over the stand-ins.
"""

import os
import signal
import subprocess
import sys
import unittest

import grpc
import numpy as np

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("system", "conformance"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
import support  # noqa: E402
import cuda_process as cuda  # noqa: E402
import places  # noqa: E402
from cluster_case import LONG_S, collectives, handle, tensors, tracers, types  # noqa: E402
from cuda_process import REAL  # noqa: E402

PLACE, REASON = places.prepare(places.NCCL, not REAL)
if PLACE is None:
    support.skip_all(REASON)
if cuda.is_sanitized():
    support.skip_all("this interpreter cannot load a library with a sanitizer")
OPTIONS = PLACE.options + ("--device-memory-limit", "64MiB")
SIZE = 1 << 20
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def failure_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return support.Failure(error)
    raise AssertionError("the call did not fail")


class Client:
    """A program beside an agent: memory and events that are lent, and a stream of its own."""

    def __init__(self, process, agent, count=2):
        self.process = process
        self.agent = agent
        self.lease = agent.tensors.ShareEvents(tensors.ShareEventsRequest(count=count))
        self.offer = next(self.lease)
        self.events = [process.open_event(event.ipc_handle) for event in self.offer.events]
        self.after, self.done = (event.id for event in self.offer.events[:2])
        self.shares = []
        self.memory, self.name = self.borrow()
        self.copy, _ = self.borrow()
        self.stream = cuda.Stream(process)

    def borrow(self):
        name = self.agent.put(np.zeros(SIZE, np.uint8))
        stream = self.agent.tensors.ShareGpu(tensors.ShareGpuRequest(handle=name))
        pointer = self.process.open(next(stream).ipc_handle)
        self.shares.append((stream, pointer, name))
        return pointer, name

    def prepare(self, value):
        """What a training step does before an op, on the stream alone."""
        self.stream.fill(self.memory, value, SIZE)
        self.stream.record(self.events[0])

    def request(self, **fields):
        options = dict({"async": True, "after_event": self.after, "done_event": self.done}, **fields)
        return collectives.AllReduceRequest(input=handle(self.name), output=self.name, reduce_op=types.REDUCE_OP_SUM,
                                            options=types.OpOptions(**options))

    def reduce(self, **fields):
        return self.agent.ops.AllReduce(self.request(**fields), timeout=LONG_S)

    def take(self):
        """... and behind it."""
        self.stream.wait_event(self.events[1])
        self.stream.copy(self.copy, self.memory, SIZE)

    def taken(self):
        self.stream.synchronize()
        return set(self.process.read(self.copy, SIZE))

    def status(self, response):
        """How the op of an answer has ended."""
        request = collectives.WaitRequest(works=[response.info.work])
        return self.agent.ops.Wait(request, timeout=LONG_S).works[0]

    def leave(self):
        for event in self.events:
            self.process.destroy_event(event)
        self.events = []
        self.lease.cancel()

    def close(self):
        self.stream.close()
        self.leave()
        for stream, pointer, name in self.shares:
            self.process.close(pointer)
            stream.cancel()
            self.agent.delete(name)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = cuda.Process()
        cls.cluster = PLACE.make(2, *OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def clients(self, **fields):
        made = [Client(self.process, agent, **fields) for agent in self.cluster.agents]
        for client in made:
            self.addCleanup(client.close)
        return made

    def on_all(self, clients, call):
        """call(client) on both at once: the answers, errors as Failures."""
        return self.cluster.on([client.agent.rank for client in clients],
                               lambda agent: call(clients[agent.rank]))


class Rules(Case):
    """What the design reads out of CUDA's documentation."""

    def test_an_event_of_other_processes_has_no_times(self):
        with self.assertRaises(cuda.Failed):
            self.process.make_event(cuda.INTERPROCESS)
        plain = self.process.make_event(cuda.DISABLE_TIMING)
        with self.assertRaises(cuda.Failed):
            self.process.export(plain)
        self.process.destroy_event(plain)

    def test_a_process_does_not_open_its_own_event(self):
        event = self.process.make_event(cuda.INTERPROCESS | cuda.DISABLE_TIMING)
        with self.assertRaises(cuda.Failed):
            self.process.open_event(self.process.export(event))
        self.process.destroy_event(event)

    def test_an_event_is_complete_until_it_is_recorded_and_when_the_stream_has_come_there(self):
        client = self.clients()[0]
        self.assertTrue(self.process.is_complete(client.events[0]))
        client.stream.wait_event(client.events[0])
        client.stream.synchronize()
        client.stream.hold()
        client.stream.record(client.events[0])
        self.assertFalse(self.process.is_complete(client.events[0]))
        client.stream.release()
        client.stream.synchronize()
        self.assertTrue(self.process.is_complete(client.events[0]))


class Order(Case):
    def test_the_op_waits_for_the_stream_and_the_stream_for_the_op_and_no_program_waits(self):
        clients = self.clients()
        for turn in range(3):
            for client in clients:
                client.stream.hold()
                client.prepare(value=3 + turn + client.agent.rank)
            answers = self.on_all(clients, Client.reduce)  # they return though no GPU has done anything
            for client, answer in zip(clients, answers):
                self.assertTrue(answer.info.work, answer)
                client.take()
                self.assertFalse(self.process.is_complete(client.events[0]))
                self.assertFalse(self.process.is_complete(client.events[1]))
            for client in clients:
                client.stream.release()
            for client, answer in zip(clients, answers):
                self.assertEqual(client.taken(), {7 + 2 * turn})
                self.assertEqual(client.status(answer).error.code, 0)

    def test_each_op_of_a_chain_waits_for_the_one_before(self):
        clients = self.clients()
        for client in clients:
            client.prepare(value=1)
        for _ in range(6):
            for client in clients:
                client.stream.hold()
                client.stream.record(client.events[0])
            answers = self.on_all(clients, Client.reduce)
            for client in clients:
                client.take()
                client.stream.release()
        for client, answer in zip(clients, answers):
            self.assertEqual(client.taken(), {64})
            self.assertEqual(client.status(answer).error.code, 0)

    def test_a_call_that_waits_for_the_result_waits_for_the_event_too(self):
        clients = self.clients()
        for client in clients:
            client.stream.hold()
            client.prepare(value=5)
        fields = {"async": False, "done_event": 0}
        calls = [client.agent.ops.AllReduce.future(client.request(**fields), timeout=LONG_S) for client in clients]
        for client in clients:
            client.stream.release()
        for call, client in zip(calls, clients):
            call.result()
            self.assertEqual(set(self.process.read(client.memory, SIZE)), {10})

    def test_one_rank_may_have_events_and_another_one_none(self):
        first, second = self.clients()
        first.stream.hold()
        first.prepare(value=4)
        second.agent.put(np.full(SIZE, 2, np.uint8), into=second.name)
        fields = {"async": False, "done_event": 0, "after_event": 0}
        call = second.agent.ops.AllReduce.future(second.request(**fields), timeout=LONG_S)
        answer = first.reduce()
        first.take()
        first.stream.release()
        self.assertEqual(first.taken(), {6})
        self.assertEqual(first.status(answer).error.code, 0)
        call.result()
        self.assertEqual(set(self.process.read(second.memory, SIZE)), {6})

    def test_an_op_without_bytes_is_answered(self):
        clients = self.clients()

        def call(client):
            name = client.agent.put(np.zeros(0, np.uint8))
            answer = client.agent.ops.AllReduce(collectives.AllReduceRequest(
                input=handle(name), output=name, reduce_op=types.REDUCE_OP_SUM,
                options=types.OpOptions(**{"async": True, "after_event": client.after, "done_event": client.done})), timeout=LONG_S)
            said = client.status(answer).error.code
            client.agent.delete(name)
            return said, self.process.is_complete(client.events[1])

        self.assertEqual(self.on_all(clients, call), [(0, True)] * 2)


class Refused(Case):
    def refusals(self, clients, **fields):
        """Of a call that is wrong on rank 0: of both ranks, and the group goes on."""
        fields_of = {0: fields, 1: {}}
        said = self.on_all(clients, lambda client: client.reduce(**fields_of[client.agent.rank]))
        for client in clients:
            client.prepare(value=1)
        for answer, client in zip(self.on_all(clients, Client.reduce), clients):
            self.assertEqual(client.status(answer).error.code, 0)
        return said

    def test_an_event_that_is_none(self):
        clients = self.clients()
        for fields in ({"after_event": 12345}, {"done_event": 12345}):
            for said in self.refusals(clients, **fields):
                self.assertEqual((said.code, said.reason), (NOT_FOUND, "NO_EVENT"), said)

    def test_an_event_of_another_agent(self):
        clients = self.clients()
        for said in self.refusals(clients, after_event=clients[1].after):
            self.assertEqual((said.code, said.reason), (NOT_FOUND, "NO_EVENT"), said)

    def test_done_of_a_call_that_waits_and_one_event_for_both(self):
        clients = self.clients()
        for fields in ({"async": False}, {"done_event": clients[0].after}):
            for said in self.refusals(clients, **fields):
                self.assertEqual((said.code, said.reason), (INVALID, "BAD_EVENT"), said)

    def test_ops_that_differ_fail_before_the_event(self):
        clients = self.clients()
        first = clients[0].request()
        first.reduce_op = types.REDUCE_OP_MAX
        requests = {0: first, 1: clients[1].request()}
        said = self.on_all(clients, lambda client: client.agent.ops.AllReduce(requests[client.agent.rank], timeout=LONG_S))
        for failure, client in zip(said, clients):
            self.assertEqual((failure.code, failure.reason), (PRECONDITION, "OP_MISMATCH"), failure)
            self.assertTrue(self.process.is_complete(client.events[1]))

    def test_tensors_in_host_memory_sends_and_backward(self):
        clients = self.clients()
        client = clients[0]
        options = types.OpOptions(after_event=client.after)
        host = [one.agent.put(np.zeros(4, np.uint8), device="cpu") for one in clients]

        def on_host(one):
            return one.agent.ops.AllReduce(collectives.AllReduceRequest(
                input=handle(host[one.agent.rank]), reduce_op=types.REDUCE_OP_SUM,
                options=options if one is client else types.OpOptions()), timeout=LONG_S)

        for said in self.on_all(clients, on_host):
            self.assertEqual((said.code, said.reason), (INVALID, "BAD_EVENT"), said)
        said = failure_of(lambda: client.agent.ops.Send(collectives.SendRequest(
            input=handle(client.name), destination=1, options=options), timeout=LONG_S))
        self.assertEqual((said.code, said.reason), (INVALID, "BAD_EVENT"), said)
        said = failure_of(lambda: client.agent.tracers.Backward(tracers.BackwardRequest(tracer="t", options=options),
                                                                timeout=LONG_S))
        self.assertEqual((said.code, said.reason), (INVALID, "BAD_EVENT"), said)
        for one in clients:
            one.agent.delete(host[one.agent.rank])

    def test_counts_and_devices(self):
        stub = self.cluster.agents[0].tensors

        def refused(**fields):
            said = failure_of(lambda: next(stub.ShareEvents(tensors.ShareEventsRequest(**fields))))
            return said.code, said.reason

        self.assertEqual(refused(count=0), (INVALID, "BAD_EVENT"))
        self.assertEqual(refused(count=257), (INVALID, "BAD_EVENT"))
        self.assertEqual(refused(count=1, device="cuda:7"), (PRECONDITION, "NO_DEVICE"))
        self.assertEqual(refused(count=1, device="cpu"), (PRECONDITION, "NO_DEVICE"))

    def test_there_is_a_limit_and_streams_that_end_make_room(self):
        agent = self.cluster.agents[0]
        request = tensors.ShareEventsRequest(count=256, device="cuda:0")
        streams = [agent.tensors.ShareEvents(request) for _ in range(16)]
        offers = [next(stream) for stream in streams]
        self.assertEqual(len({event.id for offer in offers for event in offer.events}), 4096)
        self.assertEqual(offers[0].gpu_uuid, agent.stats().gpus[0].uuid)
        said = failure_of(lambda: next(agent.tensors.ShareEvents(tensors.ShareEventsRequest(count=1))))
        self.assertEqual((said.code, said.reason), (EXHAUSTED, "EVENT_LIMIT"))
        for stream in streams:
            stream.cancel()
        self.assertEqual(self.soon(agent, 256), 256)

    def soon(self, agent, count):
        """The end of a stream is heard in a moment."""
        for _ in range(10000):
            try:
                stream = agent.tensors.ShareEvents(tensors.ShareEventsRequest(count=count), timeout=LONG_S)
                made = len(next(stream).events)
                stream.cancel()
                return made
            except grpc.RpcError as error:
                said = support.Failure(error)
                self.assertEqual(said.reason, "EVENT_LIMIT", said)
        return said


class Calls(Case):
    """Of the call that is answered when the event is recorded, and not before."""

    def succeed(self, clients):
        for client in clients:
            client.prepare(value=1)
        for answer, client in zip(self.on_all(clients, Client.reduce), clients):
            self.assertEqual(client.status(answer).error.code, 0)

    def test_a_rank_that_does_not_call_fails_the_call_at_its_time(self):
        clients = self.clients()
        request = clients[0].request()
        request.options.timeout_ms = 200
        said = failure_of(lambda: clients[0].agent.ops.AllReduce(request, timeout=LONG_S))
        self.assertEqual((said.code, said.reason), (grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT"), said)
        self.assertIn("rank 1", said.text)
        said = failure_of(clients[1].reduce)
        self.assertEqual((said.code, said.reason), (grpc.StatusCode.DEADLINE_EXCEEDED, "TIMEOUT"), said)
        self.succeed(clients)

    def test_a_call_that_is_given_up_fails_on_all_ranks(self):
        clients = self.clients()
        call = clients[0].agent.ops.AllReduce.future(clients[0].request(), timeout=LONG_S)
        while clients[0].agent.stats().op_running_count == 0:
            pass
        call.cancel()
        said = failure_of(clients[1].reduce)
        self.assertEqual((said.code, said.reason), (grpc.StatusCode.CANCELLED, "CALLER_GONE"), said)
        self.succeed(clients)

    def test_a_call_that_is_repeated_gets_the_same_answer(self):
        clients = self.clients()
        for client in clients:
            client.prepare(value=1)
        answers = self.on_all(clients, lambda client: client.reduce(token=77 + client.agent.rank))
        again = self.on_all(clients, lambda client: client.reduce(token=77 + client.agent.rank))
        for answer, other, client in zip(answers, again, clients):
            self.assertEqual(answer.info.work, other.info.work)
            self.assertEqual(client.status(answer).error.code, 0)
            self.assertEqual(set(self.process.read(client.memory, SIZE)), {2})

    def test_a_result_that_the_op_makes_is_known_and_what_names_it_waits(self):
        clients = self.clients()
        for client in clients:
            client.stream.hold()
            client.prepare(value=3)

        def call(client):
            request = client.request()
            request.output = ""
            return client.agent.ops.AllReduce(request, timeout=LONG_S).output.handle

        made = self.on_all(clients, call)
        gets = [client.agent.tensors.Get.future(tensors.GetRequest(handle=name), timeout=LONG_S)
                for client, name in zip(clients, made)]
        for client in clients:
            client.stream.release()
        for get, client, name in zip(gets, clients, made):
            self.assertEqual(set(get.result().payload), {6})
            client.agent.delete(name)


class TwoGpus(unittest.TestCase):
    @unittest.skipIf(REAL, "one GPU is enough for all else")
    def test_an_event_of_another_gpu_than_the_tensors(self):
        cluster = PLACE.make(1, "--device", "cuda:0,cuda:1")
        self.addCleanup(cluster.stop)
        agent = cluster.agents[0]
        stream = agent.tensors.ShareEvents(tensors.ShareEventsRequest(count=1, device="cuda:1"))
        event = next(stream).events[0].id
        name = agent.put(np.zeros(3, np.uint8), device="cuda:0")
        said = failure_of(lambda: agent.ops.AllReduce(collectives.AllReduceRequest(
            input=handle(name), reduce_op=types.REDUCE_OP_SUM, options=types.OpOptions(after_event=event)), timeout=LONG_S))
        self.assertEqual((said.code, said.reason), (INVALID, "DEVICE_MISMATCH"), said)
        self.assertIn("is an event of cuda:1, and the tensors are on cuda:0", said.text)
        stream.cancel()
        agent.delete(name)


class Deaths(unittest.TestCase):
    """Each has agents of its own."""

    def setUp(self):
        self.process = cuda.Process()
        self.cluster = PLACE.make(2, *OPTIONS)
        self.addCleanup(self.cluster.kill)
        self.make_communicator()

    def make_communicator(self):
        """Its first op goes into the stream only when all before that is done."""
        names = [agent.put(np.zeros(SIZE, np.uint8)) for agent in self.cluster.agents]

        def reduce(agent):
            return agent.ops.AllReduce(collectives.AllReduceRequest(
                input=handle(names[agent.rank]), output=names[agent.rank], reduce_op=types.REDUCE_OP_SUM), timeout=LONG_S)

        for said in self.cluster.on([0, 1], reduce):
            self.assertNotIsInstance(said, support.Failure, said)
        for agent, name in zip(self.cluster.agents, names):
            agent.delete(name)

    def on_all(self, clients, call):
        return self.cluster.on([0, 1], lambda agent: call(clients[agent.rank]))

    def test_an_agent_that_is_killed_in_the_op_lets_the_streams_of_the_others_go_on(self):
        clients = [Client(self.process, agent) for agent in self.cluster.agents]
        clients[1].stream.hold()  # so no rank's op can end
        for client in clients:
            client.prepare(value=1)
        answers = self.on_all(clients, Client.reduce)
        clients[0].take()
        self.assertFalse(self.process.is_complete(clients[0].events[1]))
        self.cluster.agents[1].program.send(signal.SIGKILL)
        said = clients[0].status(answers[0])
        self.assertEqual(said.error.code, grpc.StatusCode.UNAVAILABLE.value[0], said)
        clients[0].taken()  # whatever it is, it comes
        failure = failure_of(lambda: next(clients[1].lease))
        self.assertEqual(failure.code, grpc.StatusCode.UNAVAILABLE)
        clients[1].stream.release()
        clients[1].stream.synchronize()
        clients[0].close()

    def test_a_client_that_leaves_before_its_record_fails_the_op_and_no_other(self):
        clients = [Client(self.process, agent) for agent in self.cluster.agents]
        clients[0].stream.hold()
        for client in clients:
            client.prepare(value=1)
        answers = self.on_all(clients, Client.reduce)
        clients[0].lease.cancel()
        for client, answer in reversed(list(zip(clients, answers))):
            said = client.status(answer).error
            self.assertEqual((said.code, said.reason), (grpc.StatusCode.CANCELLED.value[0], "CALLER_GONE"), said)
            self.assertIn("the client of rank 0 went away before its GPU came to the event", said.text)
            clients[0].stream.release()  # the GPU comes there after all: till then rank 0's op has its memory
        clients[0].stream.synchronize()
        again = [Client(self.process, agent) for agent in self.cluster.agents]
        for client in again:
            client.prepare(value=3)
        answers = self.on_all(again, Client.reduce)
        for client, answer in zip(again, answers):
            client.take()
            self.assertEqual(client.taken(), {6})
            self.assertEqual(client.status(answer).error.code, 0)
        for client in clients + again:
            client.close()
        self.cluster.stop()

    def test_a_client_that_is_killed_before_its_record_fails_the_op_on_all_ranks(self):
        program = subprocess.Popen([sys.executable, os.path.abspath(__file__), "client",
                                    self.cluster.agents[0].program.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), b"recorded\n")
        other = Client(self.process, self.cluster.agents[1])
        other.prepare(value=1)
        answer = other.reduce()
        self.assertEqual(program.stdout.readline(), b"answered\n")
        program.kill()
        said = other.status(answer).error
        self.assertEqual((said.code, said.reason), (grpc.StatusCode.CANCELLED.value[0], "CALLER_GONE"), said)
        other.take()
        other.taken()
        other.close()
        if REAL:
            print("# a wait for the record of a process that died: " + self.what_comes_behind())

    def what_comes_behind(self):
        """CUDA does not say it, and a GPU shows it: can the agent whose client was killed go on?"""
        for _ in range(3):
            clients = [Client(self.process, agent) for agent in self.cluster.agents]  # what has failed has its memory still
            for client in clients:
                client.prepare(value=1)
            requests = [client.request(**{"async": False, "done_event": 0}) for client in clients]
            for request in requests:
                request.options.timeout_ms = 12000
            said = self.on_all(clients, lambda client: client.agent.ops.AllReduce(requests[client.agent.rank], timeout=LONG_S))
            if not isinstance(said[0], support.Failure):
                return "the driver lets it go"
        return "it stays, and the agent says %s" % said[0].reason


class First(unittest.TestCase):
    """Of a communicator that has to connect first: nothing is in the stream while the event is waited for."""

    def test_a_client_that_is_killed_before_its_record_fails_the_op_and_the_gpu_goes_on(self):
        process, cluster = cuda.Process(), PLACE.make(2, *OPTIONS)
        self.addCleanup(cluster.kill)
        program = subprocess.Popen([sys.executable, os.path.abspath(__file__), "client", cluster.agents[0].program.address],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), b"recorded\n")
        other = Client(process, cluster.agents[1])
        other.prepare(value=1)
        call = other.agent.ops.AllReduce.future(other.request(), timeout=LONG_S)
        while any(agent.stats().op_running_count == 0 for agent in cluster.agents):
            pass
        program.kill()
        try:
            said = other.status(call.result()).error
        except grpc.RpcError as error:
            said = support.Failure(error)
            said.code = said.code.value[0]
        self.assertEqual((said.code, said.reason), (grpc.StatusCode.CANCELLED.value[0], "CALLER_GONE"), said)
        clients = [Client(process, agent) for agent in cluster.agents]
        for client in clients:
            client.prepare(value=3)
        for answer, client in zip(cluster.on([0, 1], lambda agent: clients[agent.rank].reduce()), clients):
            self.assertNotIsInstance(answer, support.Failure, answer)
            client.take()
            self.assertEqual(client.taken(), {6}, client.status(answer))
            self.assertEqual(client.status(answer).error.code, 0)
        for client in clients + [other]:
            client.close()
        program.stdout.close()
        program.stdin.close()
        cluster.stop()


class OneStub:
    """As cluster_case.Agent, of an agent that another process has started."""

    def __init__(self, address):
        import cluster_case

        channel = grpc.insecure_channel(address)
        self.rank = 0
        self.ops = cluster_case.collectives_grpc.CollectivesServiceStub(channel)
        self.tensors = cluster_case.tensors_grpc.TensorsServiceStub(channel)
        self.put = lambda array: cluster_case.Agent.put(self, array)


def be_a_client(address):
    """One that is killed between the call and its record."""
    client = Client(cuda.Process(), OneStub(address))
    client.stream.hold()
    client.prepare(value=1)
    print("recorded", flush=True)
    client.reduce()
    print("answered", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        be_a_client(sys.argv[2])
    else:
        support.main()
