"""A connection by grpcio, which blocks its caller. sync/_channel_native.py is the same by libtutti; aio/_channel_grpc.py is its twin."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc

from .. import _wire, errors
from .._settings import Metadata, Pings, Settings


class Call:
    """A call with any number of messages both ways."""

    def __init__(self, stub: Any, first: bytes | None, last: bool, timeout: float | None, metadata: Metadata) -> None:
        # Its put() may be called by a finalizer that has interrupted another put().
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._address, self._name = stub.address, stub.method.name
        if first is not None:
            self._out.put(first)
        if last:
            self._out.put(None)
        make = stub.of("stream_stream")
        self._call = make(iter(self._out.get, None), timeout=timeout, metadata=metadata)

    def send(self, message: bytes | None, last: bool = False) -> None:
        """Give a message, None = none; from any thread, and from finalizers. It does not wait."""
        if message is not None:
            self._out.put(message)
        if last:
            self._out.put(None)

    def drain(self) -> None:
        """Wait until what was sent has left, more or less."""

    def receive(self) -> bytes | None:
        """The next message; None at the end."""
        try:
            found: bytes | None = next(self._call, None)
        except grpc.RpcError as error:
            self._out.put(None)  # grpc's thread that takes requests ends with it
            raise errors.from_rpc(error, self._address, self._name) from None
        if found is None:
            self._out.put(None)
        return found

    def has_ended(self) -> bool:
        return not self._call.is_active()

    def cancel(self) -> None:
        self._call.cancel()
        self._out.put(None)


class _Stub:
    def __init__(self, channel: Any, address: str, method: _wire.Method) -> None:
        self._channel = channel
        self.address = address
        self.method = method

    def of(self, kind: str) -> Any:
        return getattr(self._channel, kind)(self.method.path)


class Channel:
    def __init__(self, address: str, settings: Settings, pings: Pings) -> None:
        options = settings.channel_options(pings)
        credentials = settings.credentials(address)
        self._address = address
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=options)

    def unary(
        self, method: _wire.Method, request: bytes, timeout: float | None, metadata: Metadata, wait: bool = False
    ) -> bytes:
        stub = self._channel.unary_unary(method.path)
        try:
            found: bytes = stub(request, timeout=timeout, metadata=metadata, wait_for_ready=wait or None)
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self._address, method.name) from None
        except ValueError:
            raise errors.closed(self._address) from None  # by another thread
        return found

    def start(
        self,
        method: _wire.Method,
        first: bytes | None,
        last: bool,
        timeout: float | None,
        metadata: Metadata,
    ) -> Call:
        return Call(_Stub(self._channel, self._address, method), first, last, timeout, metadata)

    def give(self, method: _wire.Method, requests: Iterator[bytes], metadata: Metadata) -> bytes:
        """Many requests, which are asked for as they leave; one response."""
        try:
            found: bytes = self._channel.stream_unary(method.path)(requests, metadata=metadata)
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self._address, method.name) from None
        return found

    def close(self) -> None:
        self._channel.close()
