"""A leader that is no agent: it answers a session's commands by a few rules, and notes them."""

import concurrent.futures
import threading

import grpc

from tutti import _wire

WORKERS = 2


def handler(kind, name, behaviour):
    method = _wire.method(name)
    make = getattr(grpc, kind + "_rpc_method_handler")
    return method, make(
        behaviour,
        request_deserializer=method.request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


class Leader:
    """Of two workers. Registers hold what `echo` was called with; `fail` fails on worker 1.

    go    not set: nothing is answered
    seen  the commands that came, as (kind, message)
    """

    def __init__(self):
        self.go = threading.Event()
        self.go.set()
        self.seen = []
        self.values = {}
        self.broken = set()
        self.calls = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        services = {}
        for kind, name, behaviour in (
            ("stream_stream", "Session.Drive", self.drive),
            ("unary_unary", "Diagnostics.DescribeAgent", self.describe),
        ):
            method, one = handler(kind, name, behaviour)
            service, rpc = method.path[1:].split("/")
            services.setdefault(service, {})[rpc] = one
        for service, methods in services.items():
            generic = grpc.method_handlers_generic_handler(service, methods)
            self.server.add_generic_rpc_handlers((generic,))
        self.server.start()

    def describe(self, _request, _context):
        return _wire.new("DescribeAgentResponse", joined=True, world_size=WORKERS)

    def drive(self, requests, context):
        self.calls.append(context)
        for request in requests:
            kind = request.WhichOneof("command")
            self.seen.append((kind, getattr(request, kind)))
            self.go.wait(60)
            response = _wire.new("DriveResponse", id=request.id)
            getattr(self, "on_" + kind, self.on_other)(getattr(request, kind), response)
            yield response

    def fail(self, response, text):
        error = _wire.new("Error", code=10, reason="FUNCTION_FAILED", text=text, rank=1)
        response.error.CopyFrom(error)
        response.failed.append(_wire.new("WorkerStatus", worker=1, rank=1, error=error))

    def on_open(self, command, response):
        opened = response.opened
        opened.session = command.resume or "7f3a"
        opened.num_groups = command.num_groups or 1
        opened.registers_max = 1000
        opened.secret = b"s" * 16 if command.linger else b""
        opened.registers.extend([2, 5] if command.resume else [])
        for worker in range(WORKERS):
            opened.workers.add(worker=worker, rank=worker, addresses=[self.address])

    def on_call(self, command, response):
        if command.function == "fail":
            self.broken.add(command.into)
            self.fail(response, "it said no")
        elif command.args:
            self.values[command.into] = command.args[0].value

    def on_get(self, command, response):
        if command.src in self.broken:
            self.fail(response, "it said no before")
            return
        for worker in command.workers or range(WORKERS):
            value = self.values.get(command.src, _wire.new("Value", null=True))
            response.values.add(worker=worker, value=value)

    def on_other(self, command, response):
        pass

    def of(self, kind):
        return [message for said, message in self.seen if said == kind]

    def stop(self):
        self.go.set()
        self.server.stop(None).wait()
