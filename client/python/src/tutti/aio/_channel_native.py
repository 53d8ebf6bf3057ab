"""A connection by libtutti, asyncio's way. aio/_channel_grpc.py is the same by grpcio; sync/_channel_native.py is its twin.

No thread waits: the event loop reads the connection's descriptor, and a task that waits is woken when something has
come of its call.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

from .. import _native_door, _wire
from .._native_door import ENDED, MESSAGE, NOTHING, in_ms, pairs_of, response_of
from .._settings import Metadata, Pings, Settings


class Call:
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

    def send(self, message: bytes | None, last: bool = False) -> None:
        """Give a message, None = none; from any thread, and from finalizers. It does not wait."""
        self.raw.send(message, last)

    async def drain(self) -> None:
        """Wait until most of what was sent has left."""
        while self.raw.unsent() > _native_door.UNSENT_BYTES:
            await self._wait()

    async def next(self) -> tuple[int, Any]:
        """The next event, and what it brings."""
        while True:
            event, found = self.raw.next(0)
            if event != NOTHING:
                return event, found
            await self._wait()

    async def receive(self) -> bytes | None:
        """The next message; None at the end."""
        event, found = await self.next()
        if event == MESSAGE:
            return bytes(found)
        if found is not None:
            raise found
        return None

    def has_ended(self) -> bool:
        """Of one whose messages were all received."""
        return bool(self.raw.next(0)[0] == ENDED)

    def cancel(self) -> None:
        self.raw.cancel()


class Channel:
    def __init__(self, address: str, settings: Settings, pings: Pings) -> None:
        self._channel = _native_door.open_channel(address, settings, pings)
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

    def _start(
        self, method: _wire.Method, first: bytes | None, last: bool, timeout: float | None, metadata: Metadata, wait: bool
    ) -> Call:
        key = next(self._keys)
        call = self._calls[key] = Call(self._bind())
        call.raw = self._channel.start(method.path, first, last, in_ms(timeout), wait, pairs_of(metadata), key)
        return call

    async def unary(
        self, method: _wire.Method, request: bytes, timeout: float | None, metadata: Metadata, wait: bool = False
    ) -> bytes:
        call = self._start(method, request, True, timeout, metadata, wait)
        try:
            event, found = await call.next()
            ended = (await call.next())[1] if event == MESSAGE else found
        finally:
            call.cancel()  # of a task that was cancelled
        return response_of(found, ended)

    def start(
        self,
        method: _wire.Method,
        first: bytes | None,
        last: bool,
        timeout: float | None,
        metadata: Metadata,
    ) -> Call:
        return self._start(method, first, last, timeout, metadata, False)

    async def give(self, method: _wire.Method, requests: Iterator[bytes], metadata: Metadata) -> bytes:
        """Many requests, which are asked for as they leave; one response."""
        call = self._start(method, None, False, None, metadata, False)
        event, found = NOTHING, None
        try:
            for request in requests:
                call.send(request)
                await call.drain()
                event, found = call.raw.next(0)
                if event != NOTHING:  # it was refused
                    break
            if event == NOTHING:
                call.send(None, True)
                event, found = await call.next()
            ended = (await call.next())[1] if event == MESSAGE else found
        finally:
            call.cancel()
        return response_of(found, ended)

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._channel.fileno())
        self._channel.close()  # it cancels the calls, and waits until they have ended
        for call in list(self._calls.values()):
            call.wake()
