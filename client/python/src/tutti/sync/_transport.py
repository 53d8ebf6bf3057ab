"""A connection that blocks its caller. aio/_transport.py is its twin."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import grpc

from .. import _wire, errors
from .._settings import Settings


def pause(seconds: float) -> None:
    time.sleep(seconds)


def in_thread(call: Any, *given: Any) -> Any:
    return call(*given)


Lock = threading.Lock


def run_whole(coroutine: Any) -> Any:
    """Run it to its end, in a process that has no loop."""
    return asyncio.run(coroutine)


class Stream:
    """A call with many requests and many responses."""

    def __init__(self, call: Any, requests: Any, address: str, name: str) -> None:
        self._requests = requests
        self._call = call
        self._address = address
        self._name = name

    def send(self, request: Any) -> None:
        """Give a request; that the call has failed is told by receive()."""
        self._requests.put(request)

    def receive(self) -> Any:
        """The next response; None at the end."""
        try:
            return next(self._call, None)
        except grpc.RpcError as error:
            self.finish()  # grpc's thread that takes requests ends with them
            raise errors.from_rpc(error, self._address, self._name) from None

    def finish(self) -> None:
        """No more requests."""
        self._requests.put(None)

    def cancel(self) -> None:
        self._call.cancel()
        self.finish()


class Line:
    """A connection to one server. Any thread may use it."""

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        self._settings = settings
        self._closed = False
        self._process = os.getpid()
        self.answered = False  # somebody was there once
        self._lease: tuple[Any, str] | None = None  # the call that keeps it, its number
        self._leasing = threading.Lock()
        self._channel = self._open(address)

    def _open(self, address: str) -> Any:
        options = self._settings.channel_options() + self._more_options()
        credentials = self._settings.credentials(address)
        if credentials is None:
            return grpc.insecure_channel(address, options=options)
        return grpc.secure_channel(address, credentials, options=options)

    def _more_options(self) -> list[tuple[str, Any]]:
        return []

    def _stub(self, kind: str, name: str) -> Any:
        if self._closed:
            raise errors.closed(self.address)
        if self._process != os.getpid():
            raise errors.forked(self.address)
        method = _wire.method(name)
        return getattr(self._channel, kind)(
            method.path,
            request_serializer=_wire.encode,
            response_deserializer=method.response.FromString,
        )

    def _metadata(self, lease: str) -> list[tuple[str, str]]:
        return self._settings.metadata() + ([("tutti-lease", lease)] if lease else [])

    def unary(
        self, name: str, request: Any, timeout: float | None = None, lease: str = ""
    ) -> Any:
        """One request, one response. Tensors that it makes end with the lease."""
        stub = self._stub("unary_unary", name)
        try:
            response = stub(request, timeout=timeout, metadata=self._metadata(lease))
        except grpc.RpcError as error:
            found = errors.from_rpc(error, self.address, name)
            self.answered = self.answered or errors.was_there(found)
            raise found from None
        self.answered = True
        return response

    def is_back(self, timeout: float) -> bool:
        """Wait until a server that was there once answers again; False = it did not."""
        stub = self._stub("unary_unary", "Store.QueueLen")
        request = _wire.new("StoreServiceQueueLenRequest", key=b"-")
        known = self._settings.metadata()
        try:
            stub(request, timeout=timeout, metadata=known, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    def give(self, name: str, requests: Iterable[Any], lease: str = "") -> Any:
        """Many requests, one response. Tensors that they make end with the lease."""
        stub = self._stub("stream_unary", name)
        try:
            return stub(iter(requests), metadata=self._metadata(lease))
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self.address, name) from None

    def take(self, name: str, request: Any, timeout: float | None = None) -> Iterator[Any]:
        """One request, many responses; the call ends with the iteration."""
        stub = self._stub("unary_stream", name)
        call = stub(request, timeout=timeout, metadata=self._settings.metadata())
        try:
            yield from call
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self.address, name) from None
        finally:
            call.cancel()

    def stream(self, name: str, lease: str = "") -> Stream:
        """Many requests, many responses. What they make ends with the lease."""
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stub = self._stub("stream_stream", name)
        call = stub(iter(requests.get, None), metadata=self._metadata(lease))
        return Stream(call, requests, self.address, name)

    def watch(self, name: str, request: Any) -> Stream:
        """One request, many responses, which are read one by one."""
        call = self._stub("unary_stream", name)(request, metadata=self._settings.metadata())
        return Stream(call, queue.SimpleQueue(), self.address, name)

    def lease(self) -> str:
        """A lease that ends with this connection, or with the process."""
        with self._leasing:
            if self._lease is None or not self._lease[0].is_active():
                stub = self._stub("unary_stream", "Tensors.Lease")
                call = stub(_wire.new("LeaseRequest"), metadata=self._settings.metadata())
                try:
                    self._lease = (call, str(next(call).lease))
                except grpc.RpcError as error:
                    raise errors.from_rpc(error, self.address, "Tensors.Lease") from None
            return self._lease[1]

    def close(self) -> None:
        self._closed = True
        if self._lease is not None:
            self._lease[0].cancel()
        self._channel.close()


now = time.monotonic
