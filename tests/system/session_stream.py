"""A session of a controller, as a Python client writes it: send commands, then read answers."""

import queue

import support
from cluster_case import DTYPES, LONG_S

support.build_stubs()
from tutti.v1 import functions_service_pb2 as functions  # noqa: E402
from tutti.v1 import session_service_pb2 as sessions  # noqa: E402
from tutti.v1 import session_service_pb2_grpc as sessions_grpc  # noqa: E402
from tutti.v1 import types_pb2 as types  # noqa: E402


def sessions_stub(agent):
    return sessions_grpc.SessionServiceStub(agent.channel)


class Register(int):
    """As an argument of a call: what it holds."""


def arg_of(value):
    if isinstance(value, Register):
        return sessions.DriveArg(register=value)
    kinds = {int: "integer", float: "real", str: "text", bytes: "data"}
    return sessions.DriveArg(value=functions.Value(**{kinds[type(value)]: value}))


class Failed(Exception):
    """A command that failed: the answer's error."""

    def __init__(self, answer):
        super().__init__("%s %s" % (answer.error.reason, answer.error.text))
        self.answer = answer
        self.code = answer.error.code
        self.reason = answer.error.reason
        self.text = answer.error.text
        self.workers = [status.worker for status in answer.failed]


class Session:
    """Requests come from a queue; None half-closes."""

    def __init__(self, agent, timeout=LONG_S, metadata=(), channel=None, **fields):
        self.queue = queue.SimpleQueue()
        self.ids = 0
        self.answers = {}
        stub = sessions_grpc.SessionServiceStub(channel or agent.channel)
        self.call = stub.Drive(iter(self.queue.get, None), timeout=timeout, metadata=metadata)
        self.opened = self.wait(self.send(open=sessions.DriveOpen(**fields))).opened

    def send(self, **command):
        """One command; its id."""
        self.ids += 1
        self.queue.put(sessions.DriveRequest(id=self.ids, **command))
        return self.ids

    def wait(self, number):
        """The answer to a command, whatever comes before it."""
        while number not in self.answers:
            answer = next(self.call)
            assert answer.id not in self.answers, "two answers to command %d" % answer.id
            self.answers[answer.id] = answer
        answer = self.answers.pop(number)
        if answer.HasField("error"):
            raise Failed(answer)
        return answer

    def do(self, **command):
        return self.wait(self.send(**command))

    def name(self, register):
        return "reg:%s/%d" % (self.opened.session, register)

    def half_close(self):
        self.queue.put(None)

    def close(self):
        """Half-close, and see that it ends well."""
        self.half_close()
        for answer in self.call:
            self.answers[answer.id] = answer

    def drop(self):
        """As a client that is gone."""
        self.call.cancel()

    # ------------------------------------------------------------------ commands

    def empty(self, into, shape, dtype=types.DTYPE_FP32, **fields):
        spec = types.TensorSpec(dtype=dtype, shape=shape)
        return self.send(empty=sessions.DriveEmpty(into=into, spec=spec, **fields))

    def values(self, register, **fields):
        """What a register holds, by worker."""
        answer = self.do(get=sessions.DriveGet(src=register, **fields))
        return {value.worker: value.value for value in answer.values}

    def sync(self, *workers):
        return self.do(sync=sessions.DriveSync(workers=workers))

    def flush(self, *workers):
        return self.do(flush=sessions.DriveFlush(workers=workers))

    # ------------------------------------------------------------------ tensors, at the workers

    def agent(self, cluster, worker):
        return cluster.agents[self.opened.workers[worker].rank]

    def fill(self, cluster, register, arrays):
        """A tensor of each worker's own in a register; `arrays` by worker, or a list; of one shape."""
        arrays = arrays if isinstance(arrays, dict) else dict(enumerate(arrays))
        first = next(iter(arrays.values()))
        self.wait(self.empty(register, first.shape, DTYPES[first.dtype], workers=arrays))
        for worker, array in arrays.items():
            self.agent(cluster, worker).put(array, into=self.name(register))

    def read(self, cluster, register, worker):
        return self.agent(cluster, worker).get(self.name(register))

