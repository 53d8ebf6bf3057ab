"""A call by libtutti, which blocks its caller. aio/_call_native.py is its twin; _channel_native.py has the connection."""

from __future__ import annotations

from typing import Any

from .._native_door import ENDED, MESSAGE


class Call:
    """A call with any number of messages both ways."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def send(self, message: bytes | None, last: bool = False) -> None:
        """Give a message, None = none; from any thread, and from finalizers. It does not wait."""
        self._raw.send(message, last)

    def drain(self) -> None:
        """Wait until most of what was sent has left."""
        self._raw.wait_sent()

    def look(self) -> tuple[int, Any]:
        """The next event, if there is one, and what it brings."""
        found: tuple[int, Any] = self._raw.next(0)
        return found

    def next(self) -> tuple[int, Any]:
        """The next event."""
        found: tuple[int, Any] = self._raw.next(None)
        return found

    def receive(self) -> bytes | None:
        """The next message; None at the end."""
        event, found = self.next()
        if event == MESSAGE:
            return bytes(found)
        if found is not None:
            raise found
        return None

    def has_ended(self) -> bool:
        """Of one whose messages were all received."""
        return self.look()[0] == ENDED

    def cancel(self) -> None:
        self._raw.cancel()


class Calls:
    """Those of one connection."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def start(
        self, path: str, first: bytes | None, last: bool, timeout_ms: int, wait: bool, pairs: tuple[str, ...]
    ) -> Call:
        return Call(self._channel.start(path, first, last, timeout_ms, wait, pairs, 0))

    def unary(self, path: str, request: bytes, timeout_ms: int, wait: bool, pairs: tuple[str, ...]) -> bytes:
        found: bytes = self._channel.unary(path, request, timeout_ms, wait, pairs)
        return found

    def close(self) -> None:
        self._channel.close()
