"""A call by grpcio, which blocks its caller. aio/_call_grpc.py is its twin; _channel_grpc.py has the connection."""

from __future__ import annotations

import queue
from typing import Any

import grpc

from .. import _wire, errors
from .._settings import Metadata

library: Any = grpc


class Call:
    """A call with any number of messages both ways."""

    def __init__(
        self,
        channel: Any,
        address: str,
        method: _wire.Method,
        first: bytes | None,
        last: bool,
        timeout: float | None,
        metadata: Metadata,
    ) -> None:
        # Its put() may be called by a finalizer that has interrupted another put().
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._address = address
        self._name = method.name
        if first is not None:
            self._out.put(first)
        if last:
            self._out.put(None)
        requests = iter(self._out.get, None)
        self._call = channel.stream_stream(method.path)(requests, timeout=timeout, metadata=metadata)

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
