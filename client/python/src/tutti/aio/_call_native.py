"""A call by libtutti, asyncio's way. sync/_call_native.py is its twin; _channel_native.py has the connection.

No thread waits: the event loop reads the connection's descriptor, and a task that waits is woken when something has
come of its call.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Any

from .._native_door import MESSAGE, NOTHING, UNSENT_BYTES, response_of
from ._messages import Messages


class Call(Messages):
    """A call with any number of messages both ways."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[None]] = []
        self.raw: Any = None

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            if not one.done():
                one.set_result(None)

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    async def drain(self) -> None:
        """Wait until most of what was sent has left."""
        while self.raw.unsent() > UNSENT_BYTES:
            await self._wait()

    async def next(self) -> tuple[int, Any]:
        """The next event."""
        while True:
            event, found = self.look()
            if event != NOTHING:
                return event, found
            await self._wait()


class Calls:
    """Those of one connection."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        # A call that nobody has any more is given up by its end.
        self._calls: weakref.WeakValueDictionary[int, Call] = weakref.WeakValueDictionary()
        self._keys = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None

    def _take(self) -> None:
        for key in self._channel.ready():
            call = self._calls.get(key)
            if call is not None:
                call.wake()

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._channel.fileno(), self._take)
        return loop

    def start(
        self, path: str, first: bytes | None, last: bool, timeout_ms: int, wait: bool, pairs: tuple[str, ...]
    ) -> Call:
        key = next(self._keys)
        call = self._calls[key] = Call(self._bind())
        call.raw = self._channel.start(path, first, last, timeout_ms, wait, pairs, key)
        return call

    async def unary(self, path: str, request: bytes, timeout_ms: int, wait: bool, pairs: tuple[str, ...]) -> bytes:
        call = self.start(path, request, True, timeout_ms, wait, pairs)
        try:
            event, found = await call.next()
            ended = (await call.next())[1] if event == MESSAGE else found
        finally:
            call.cancel()  # of a task that was cancelled
        return response_of(found, ended)

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._channel.fileno())
        self._channel.close()  # it cancels the calls, and waits until they have ended
        for call in list(self._calls.values()):
            call.wake()
