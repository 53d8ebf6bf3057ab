"""An agent that is none: it takes hosts of functions, and gives them tensors in memory of its own."""

import concurrent.futures
import fcntl
import itertools
import os
import queue
import secrets
import socket
import struct
import threading

import grpc
import numpy as np
from leader_fake import handler

from tutti import _wire, dtypes

ADD_SEALS, SEAL_SHRINK = 1033, 2
LONG_S = 60


class Tensor:
    """In a file of its own, as a host maps it."""

    def __init__(self, handle, array):
        self.handle = handle
        self.spec = dtypes.data_of(array).spec
        self.size = array.nbytes
        self.kind = array
        self.fd = os.memfd_create("tensor", os.MFD_ALLOW_SEALING)
        os.pwrite(self.fd, array.tobytes(), 0)
        fcntl.fcntl(self.fd, ADD_SEALS, SEAL_SHRINK)

    def array(self):
        data = os.pread(self.fd, self.size, 0)
        return np.frombuffer(data, self.kind.dtype).reshape(self.kind.shape)

    def write(self, array):
        os.pwrite(self.fd, array.tobytes(), 0)


class Agent:
    """Of rank 1 of 2. A collective gives what it would if the other rank had the same.

    starts   the HostStart of each host that came
    refuse   not empty: the next host is refused with this text
    ops      what hosts asked for: (op, input, output)
    """

    def __init__(self):
        self.starts = []
        self.refuse = ""
        self.ops = []
        self.broken = threading.Event()  # a host has gone
        self.tensors = {}
        self.tokens = {}
        self._out = queue.Queue()
        self._answers = {}
        self._numbers = itertools.count(1)
        self._came = threading.Condition()
        self._share = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._name = "tutti-test-" + secrets.token_hex(8)
        self._share.bind("\0" + self._name)
        self._share.listen()
        threading.Thread(target=self._give_memory, daemon=True).start()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        for kind, name, behaviour in (
            ("stream_stream", "Functions.Serve", self.serve),
            ("unary_unary", "Diagnostics.DescribeAgent", self.describe),
        ):
            method, one = handler(kind, name, behaviour)
            service, rpc = method.path[1:].split("/")
            generic = grpc.method_handlers_generic_handler(service, {rpc: one})
            self.server.add_generic_rpc_handlers((generic,))
        self.server.start()

    def describe(self, _request, _context):
        return _wire.new("DescribeAgentResponse", joined=True, world_size=2, rank=1)

    # ------------------------------------------------------------------ memory

    def _give_memory(self):
        while True:
            try:
                peer, _ = self._share.accept()
            except OSError:
                return
            said = peer.recv(64)
            tensor = self.tokens.pop(said[8:])
            answer = struct.pack("=8sIIQ", b"ttshare1", 0, 1, tensor.size)
            socket.send_fds(peer, [answer], [tensor.fd])
            tensor.peer = peer

    def put(self, array):
        tensor = Tensor("tensor:1.0.%d" % next(self._numbers), np.asarray(array))
        self.tensors[tensor.handle] = tensor
        return tensor

    def memory(self, tensor):
        token = secrets.token_bytes(16)
        self.tokens[token] = tensor
        return _wire.new(
            "TensorMemory", handle=tensor.handle, spec=tensor.spec, token=token,
            socket=self._name, byte_count=tensor.size,
        )  # fmt: skip

    # ------------------------------------------------------------------ the stream

    def serve(self, requests, context):
        if self.refuse:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, self.refuse)
        reader = threading.Thread(target=self._read, args=[requests], daemon=True)
        reader.start()
        while True:
            message = self._out.get()
            if message is None:
                return
            yield message

    def _read(self, requests):
        try:
            for request in requests:
                kind = request.WhichOneof("kind")
                getattr(self, "on_" + kind)(getattr(request, kind))
        except grpc.RpcError:
            pass
        except Exception as error:  # the stream broke: grpc raises a bare Exception
            print("# the stream of functions: %s" % error)
        self.broken.set()
        self._out.put(None)

    def say(self, **kind):
        self._out.put(_wire.new("ServeResponse", **kind))

    def on_start(self, start):
        with self._came:
            self.starts.append(start)
            self._came.notify_all()
        self.say(started=True)

    def wait_started(self, count=1):
        with self._came:
            assert self._came.wait_for(lambda: len(self.starts) >= count, LONG_S)

    def _answer(self, number, said):
        with self._came:
            self._answers[number] = said
            self._came.notify_all()

    def on_returned(self, returned):
        self._answer(returned.call, returned)

    def on_stopped(self, call):
        self._answer(call, "stopped")

    def on_imported(self, imported):
        self._answer(imported.request, imported)

    def on_make(self, make):
        kind = dtypes.kind_of(make.spec)
        tensor = self.put(np.zeros(kind.shape, dtypes.numpy_dtype(kind.name)))
        memory = self.memory(tensor)
        self.say(done=_wire.new("HostDone", call=make.call, request=make.request, memory=memory))

    def on_op(self, op):
        self.ops.append((op.op, op.input, op.output))
        done = _wire.new("HostDone", call=op.call, request=op.request)
        given = self.tensors[op.input].array() if op.input else None
        if op.op == "all_reduce" and given.shape == (13,):
            done.error.code, done.error.reason, done.error.text = 14, "RANK_LOST", "rank 0 is gone"
        elif op.op == "all_reduce":
            self.tensors[op.output].write(given + given)
        elif op.op == "all_gather":
            self.tensors[op.output].write(np.concatenate([given, given]))
        self.say(done=done)

    # ------------------------------------------------------------------ what tests do

    def begin(self, function, *args, **fields):
        """Call a function of the host: the call's number."""
        number = next(self._numbers)
        said = []
        for one in args:
            if isinstance(one, Tensor):
                value = _wire.new("Value", tensor=one.handle)
                said.append(_wire.new("HostArg", value=value, memory=self.memory(one)))
            else:
                said.append(_wire.new("HostArg", value=one))
        known = {"worker": 1, "worker_count": 2, "group_size": 1, "rank": 1, "world_size": 2}
        call = _wire.new("HostCall", call=number, function=function, args=said, **known, **fields)
        self.say(call=call)
        return number

    def wait(self, number):
        """A HostReturn, HostImported, or "stopped"."""
        with self._came:
            assert self._came.wait_for(lambda: number in self._answers, LONG_S)
            return self._answers.pop(number)

    def call(self, function, *args, **fields):
        return self.wait(self.begin(function, *args, **fields))

    def load(self, module):
        number = next(self._numbers)
        self.say(**{"import": _wire.new("HostImport", request=number, module=module)})
        return self.wait(number)

    def stop(self):
        self._out.put(None)
        self.server.stop(None).wait()
        self._share.close()
