"""A host of functions, written by hand on stubs as another language would: messages in, messages out."""

import mmap
import os
import queue
import socket
import struct

import numpy as np

import support
from cluster_case import LONG_S, NUMPY, spec_of

from tutti.v1 import functions_service_pb2 as functions
from tutti.v1 import functions_service_pb2_grpc as functions_grpc


class Mapped:
    """A tensor's memory; the agent keeps it while `lease` is open."""

    def __init__(self, memory):
        self.handle = memory.handle
        self.array = np.zeros(list(memory.spec.shape), NUMPY[memory.spec.dtype])
        self.lease = None
        if not memory.token:
            return
        self.lease = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lease.settimeout(LONG_S)
        self.lease.connect("\0" + memory.socket)
        self.lease.send(b"tthello1" + memory.token)
        answer, fds, _, _ = socket.recv_fds(self.lease, 100, 4)
        magic, refusal, writable, size = struct.unpack("=8sIIQ", answer)
        assert (magic, refusal, writable) == (b"ttshare1", 0, 1), answer
        self.map = mmap.mmap(fds[0], size)
        os.close(fds[0])
        flat = np.frombuffer(self.map, self.array.dtype, self.array.size)
        self.array = flat.reshape(self.array.shape)

    def close(self):
        if self.lease is not None:
            self.array = None
            self.lease.close()


class Host:
    """One stream of Serve. What the agent says is read by `next`; nothing is answered by itself."""

    def __init__(self, channel, names=(), name="fake", metadata=(), **start):
        self.queue = queue.SimpleQueue()
        stub = functions_grpc.FunctionsServiceStub(channel)
        self.call = stub.Serve(iter(self.queue.get, None), timeout=LONG_S, metadata=metadata)
        named = [functions.FunctionInfo(name=one) if isinstance(one, str) else one for one in names]
        self.send(start=functions.HostStart(name=name, functions=named, **start))

    def send(self, **kind):
        self.queue.put(functions.ServeRequest(**kind))

    def next(self, kind=None):
        message = next(self.call)
        if kind is None:
            return message
        assert message.WhichOneof("kind") == kind, message
        return getattr(message, kind)

    def started(self):
        assert self.next("started")
        return self

    def give(self, call, **value):
        self.send(returned=functions.HostReturn(call=call, result=functions.Value(**value)))

    def fail(self, call, **error):
        from tutti.v1 import types_pb2 as types

        self.send(returned=functions.HostReturn(call=call, error=types.Error(**error)))

    def make(self, call, array, request=1):
        self.send(make=functions.HostMake(call=call, request=request, spec=spec_of(array)))
        done = self.next("done")
        assert (done.call, done.request) == (call, request), done
        return done

    def op(self, call, name, request=2, **fields):
        self.send(op=functions.HostOp(call=call, request=request, op=name, **fields))
        return self.next("done")

    def end(self):
        self.queue.put(None)

    def ended(self):
        """How the stream ended: None = well."""
        import grpc

        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return support.Failure(error)
        return None
