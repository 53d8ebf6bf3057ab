"""What the tests of the coordinator share: stubs of its services, agents as it sees them, and a
base class for tests that share one coordinator.
"""

import queue
import threading
import unittest

import support
import grpc

support.build_stubs()

from tutti.v1 import coordinator_service_pb2 as pb  # noqa: E402
from tutti.v1 import coordinator_service_pb2_grpc as coordinator_grpc  # noqa: E402
from tutti.v1 import metadata_service_pb2_grpc as metadata_grpc  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402
from tutti.v1 import types_pb2 as types  # noqa: E402

NAME = "tutti-coordinator"
CALL_S = support.CALL_S
CODE = grpc.StatusCode


class Services:
    """The three services over one connection."""

    def __init__(self, channel):
        self.channel = channel
        self.coordinator = coordinator_grpc.CoordinatorServiceStub(channel)
        self.metadata = metadata_grpc.MetadataServiceStub(channel)
        self.store = store_grpc.StoreServiceStub(channel)


class Agent:
    """An agent as far as the coordinator sees one, on a connection of its own."""

    def __init__(self, program, rank, incarnation, world_size, job="", host="host"):
        self.channel = program.channel()
        self.services = Services(self.channel)
        self.job = job
        self.incarnation = incarnation
        self.events = queue.Queue()
        request = pb.JoinRequest(job=job, world_size=world_size, incarnation=incarnation)
        if rank is not None:
            request.rank = rank
        request.agent.host = host
        request.agent.pid = incarnation & 0xFFFF
        request.agent.addresses.append("10.0.0.%d:1" % (incarnation % 250))
        request.agent.device = "cpu"
        self.joining = self.services.coordinator.Join(request, timeout=CALL_S)
        self.result = None

    def joined(self):
        """Wait for the seat."""
        for answer in self.joining:
            if answer.HasField("joined"):
                self.result = answer.joined
        return self.result

    @property
    def member(self):
        return types.Member(job=self.job, rank=self.result.rank, incarnation=self.incarnation)

    def open_session(self):
        """Open the life line; events come to `events`, its end as an exception or None."""
        self.sending = queue.Queue()
        self.sending.put(pb.SessionRequest(open=pb.SessionOpen(member=self.member)))
        self.session = self.services.coordinator.Session(iter(self.sending.get, None))
        reading = (self.session, self.events)
        threading.Thread(target=self._read, args=reading, daemon=True).start()
        return self.events.get(timeout=CALL_S)

    @staticmethod
    def _read(session, events):
        try:
            for response in session:
                if response.HasField("changes"):
                    for change in response.changes.changes:
                        events.put(change)
                elif not response.HasField("heartbeat_heard"):  # no news
                    events.put(response)
            events.put(None)
        except grpc.RpcError as error:
            events.put(error)

    def beat(self):
        self.sending.put(pb.SessionRequest(heartbeat=pb.Heartbeat()))

    def event(self, timeout=CALL_S):
        return self.events.get(timeout=timeout)

    def die(self):
        """As a killed process: the connection is gone."""
        self.channel.close()


class Case(unittest.TestCase):
    """Tests that share one coordinator; each uses a job of its own."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.program = support.Program(NAME, *cls.options)
        cls.services = Services(cls.program.channel())

    @classmethod
    def tearDownClass(cls):
        cls.services.channel.close()
        code = cls.program.stop()
        assert code == 0, "exit code %d: %s" % (code, cls.program.log())

    def setUp(self):
        self.job = self.id().split(".")[-1].replace("_", "-")[:100]
        self.agents = []

    def tearDown(self):
        for agent in self.agents:
            agent.channel.close()

    def refused(self, code, reason, call, *args, **kwargs):
        kwargs.setdefault("timeout", CALL_S)
        with self.assertRaises(grpc.RpcError) as caught:
            answer = call(*args, **kwargs)
            for _ in answer:  # a stream fails when it is read
                pass
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (code, reason), failure)
        return failure

    def failed(self, code, reason, future):
        with self.assertRaises(grpc.RpcError) as caught:
            future.result(timeout=CALL_S)
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (code, reason), failure)
        return failure

    def agent(self, rank, incarnation, world_size, **kwargs):
        one = Agent(self.program, rank, incarnation, world_size, job=self.job, **kwargs)
        self.agents.append(one)
        return one

    def world(self, count, sessions=False):
        agents = [self.agent(rank, 100 + rank, count) for rank in range(count)]
        for agent in agents:
            agent.joined()
        if sessions:
            for agent in agents:
                self.assertTrue(agent.open_session().HasField("accepted"))
        return agents
