"""Calls through a stream of commands instead of calls of their own: --commands.

A stub that is wrapped answers `stub.Method.future(request, timeout)` as before; what is no command
(Upload, Download, diagnostics) stays a call.
"""

import concurrent.futures
import itertools
import queue
import threading

import grpc

import wire
from wire import Failed, Refused, support

support.build_stubs()
from tutti.v1 import commands_service_pb2 as commands  # noqa: E402
from tutti.v1 import commands_service_pb2_grpc as commands_grpc  # noqa: E402

MEMBERS = {
    field.message_type.full_name: field.name
    for field in commands.RunRequest.DESCRIPTOR.oneofs_by_name["command"].fields
}


class Answer(concurrent.futures.Future):
    """One command's future; to cancel it ends its stream."""

    def __init__(self, line, timeout):
        super().__init__()
        self.line = line
        self.timeout = timeout

    def result(self, timeout=None):
        try:
            return super().result(timeout or self.timeout)
        except concurrent.futures.TimeoutError:
            raise Refused(Failed("DEADLINE_EXCEEDED", "", "the command was not answered")) from None

    def cancel(self):
        self.line.call.cancel()


class Line:
    """One stream to an agent, and a thread that reads its answers."""

    def __init__(self, stub):
        self.lock = threading.Lock()
        self.running = {}  # id -> Answer
        self.numbers = itertools.count(1)
        self.queue = queue.SimpleQueue()
        self.over = None
        self.call = stub.Run(iter(self.queue.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, request, timeout):
        answer = Answer(self, timeout)
        message = commands.RunRequest(id=next(self.numbers))
        if wire.has_field(request, "payload"):
            message.payload = request.payload
        getattr(message, MEMBERS[request.DESCRIPTOR.full_name]).CopyFrom(request)
        command = getattr(message, message.WhichOneof("command"))
        command.SetInParent()
        if wire.has_field(request, "payload"):
            command.ClearField("payload")
        with self.lock:
            if self.over is not None:
                return None
            self.running[message.id] = answer
            self.queue.put(message)
        return answer

    def _read(self):
        try:
            for message in self.call:
                with self.lock:
                    answer = self.running.pop(message.id)
                self._settle(answer, message)
            self._end(Failed("UNAVAILABLE", "", "the stream of commands has ended"))
        except grpc.RpcError as error:
            self._end(Failed.of_call(error))

    def _settle(self, answer, message):
        kind = message.WhichOneof("result")
        if kind == "error":
            answer.set_exception(Refused(Failed.of_work(message.error)))
            return
        response = getattr(message, kind)
        if wire.has_field(response, "payload"):
            response.payload = message.payload
        answer.set_result(response)

    def _end(self, failed):
        with self.lock:
            self.over = failed
            left = list(self.running.values())
            self.queue.put(None)
        for answer in left:
            answer.set_exception(Refused(failed))


class Lines:
    """The agent's stream; a fresh one when the last has ended."""

    def __init__(self, channel):
        self.stub = commands_grpc.CommandsServiceStub(channel)
        self.lock = threading.Lock()
        self.line = None

    def send(self, request, timeout):
        with self.lock:
            answer = self.line.send(request, timeout) if self.line else None
            if answer is None:
                self.line = Line(self.stub)
                answer = self.line.send(request, timeout)
            return answer


class Method:
    def __init__(self, lines, method):
        self.lines = lines
        self.method = method

    def future(self, request, timeout=None):
        if request.DESCRIPTOR.full_name not in MEMBERS:
            return self.method.future(request, timeout=timeout)
        return self.lines.send(request, timeout)

    def __call__(self, *arguments, **named):
        return self.method(*arguments, **named)


class Stub:
    def __init__(self, lines, stub):
        self.lines = lines
        self.stub = stub

    def __getattr__(self, name):
        return Method(self.lines, getattr(self.stub, name))


def wrap(agent):
    """From now on this agent's ops and tensors go through one stream."""
    lines = Lines(agent.channel)
    agent.ops = Stub(lines, agent.ops)
    agent.tensors = Stub(lines, agent.tensors)
