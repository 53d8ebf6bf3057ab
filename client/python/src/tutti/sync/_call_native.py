"""A call by libtutti, which blocks its caller. aio/_call_native.py is its twin; _channel_native.py has the connection."""

from __future__ import annotations

from typing import Any

from ._messages import Messages


class Call(Messages):
    """A call with any number of messages both ways."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def drain(self) -> None:
        """Wait until most of what was sent has left."""
        self.raw.wait_sent()

    def next(self) -> tuple[int, Any]:
        """The next event."""
        found: tuple[int, Any] = self.raw.next(None)
        return found


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
