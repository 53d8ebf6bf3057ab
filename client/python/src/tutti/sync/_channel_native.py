"""A connection by libtutti, which blocks its caller. sync/_channel_grpc.py is the same by grpcio; aio/_channel_native.py is its twin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import _native_door, _wire
from .._native_door import ENDED, MESSAGE, NOTHING, in_ms, pairs_of, response_of
from .._settings import Metadata, Pings, Settings


class Call:
    """A call with any number of messages both ways."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def send(self, message: bytes | None, last: bool = False) -> None:
        """Give a message, None = none; from any thread, and from finalizers. It does not wait."""
        self._call.send(message, last)

    def drain(self) -> None:
        """Wait until what was sent has left, more or less."""
        self._call.wait_sent()

    def receive(self) -> bytes | None:
        """The next message; None at the end."""
        event, found = self._call.next(None)
        if event == MESSAGE:
            return bytes(found)
        if found is not None:
            raise found
        return None

    def has_ended(self) -> bool:
        """Of one whose messages were all received."""
        return bool(self._call.next(0)[0] == ENDED)

    def cancel(self) -> None:
        self._call.cancel()


class Channel:
    def __init__(self, address: str, settings: Settings, pings: Pings) -> None:
        self._channel = _native_door.open_channel(address, settings, pings)

    def unary(
        self, method: _wire.Method, request: bytes, timeout: float | None, metadata: Metadata, wait: bool = False
    ) -> bytes:
        found: bytes = self._channel.unary(method.path, request, in_ms(timeout), wait, pairs_of(metadata))
        return found

    def start(
        self,
        method: _wire.Method,
        first: bytes | None,
        last: bool,
        timeout: float | None,
        metadata: Metadata,
    ) -> Call:
        return Call(self._channel.start(method.path, first, last, in_ms(timeout), False, pairs_of(metadata), 0))

    def give(self, method: _wire.Method, requests: Iterator[bytes], metadata: Metadata) -> bytes:
        """Many requests, which are asked for as they leave; one response."""
        raw = self._channel.start(method.path, None, False, 0, False, pairs_of(metadata), 0)
        event, found = NOTHING, None
        try:
            for request in requests:
                raw.send(request, False)
                raw.wait_sent()
                event, found = raw.next(0)
                if event != NOTHING:  # it was refused
                    break
            if event == NOTHING:
                raw.send(None, True)
                event, found = raw.next(None)
            ended = raw.next(None)[1] if event == MESSAGE else found
        finally:
            raw.cancel()
        return response_of(found, ended)

    def close(self) -> None:
        self._channel.close()
