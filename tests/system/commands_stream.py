"""A stream of commands to one agent, as a Python client writes it: send, then read answers."""

import queue

import grpc

import support
from cluster_case import LONG_S, collectives, tensors

support.build_stubs()
from tutti.v1 import commands_service_pb2 as commands  # noqa: E402
from tutti.v1 import commands_service_pb2_grpc as commands_grpc  # noqa: E402

SERVICES = (collectives, tensors)


def run(command_id, stop_on_error=False, options=None, payload=b"", **call):
    """A RunRequest; `call` is one member of its oneof."""
    return commands.RunRequest(
        id=command_id, stop_on_error=stop_on_error, options=options, payload=payload, **call
    )


class Stream:
    """Requests come from a queue; None half-closes."""

    def __init__(self, agent, timeout=LONG_S):
        self.queue = queue.SimpleQueue()
        stub = commands_grpc.CommandsServiceStub(agent.channel)
        self.call = stub.Run(iter(self.queue.get, None), timeout=timeout)

    def send(self, *requests):
        for request in requests:
            self.queue.put(request)

    def done(self):
        self.queue.put(None)

    def read(self):
        return next(self.call)

    def rest(self):
        """All answers to the end, which must be OK, by id."""
        answers = {}
        for answer in self.call:
            assert answer.id not in answers, "two answers to command %d" % answer.id
            answers[answer.id] = answer
        return answers

    def all(self, *requests):
        """Send these, half-close, and give all answers by id."""
        self.send(*requests)
        self.done()
        return self.rest()

    def end(self):
        """How it failed, and the answers before that."""
        answers = []
        try:
            for answer in self.call:
                answers.append(answer)
        except grpc.RpcError as error:
            return support.Failure(error), answers
        return None, answers
