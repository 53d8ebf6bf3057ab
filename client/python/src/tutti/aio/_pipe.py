"""A call with messages both ways, asyncio's way. sync/_pipe.py is its twin."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from .. import errors
from ._transport import Line


class Pipe:
    """Messages go out without waiting for those that come in.

    take   called with each message that comes
    ended  called once, with the error that ended the call, or None. Both return soon
    metadata  of the call, beside what every call has
    """

    def __init__(
        self,
        line: Line,
        name: str,
        take: Callable[[Any], None],
        ended: Callable[[errors.TuttiError | None], None],
        metadata: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._line = line
        self._metadata = list(metadata)
        self._name = name
        self._take = take
        self._ended = ended
        self._out: collections.deque[Any] = collections.deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._call: Any = None

    async def open(self) -> None:
        """Start the call."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._more = asyncio.Event()
        stub = self._line._stub("stream_stream", self._name)
        self._call = stub(metadata=self._line._metadata("") + self._metadata)
        self._tasks = [asyncio.ensure_future(one()) for one in (self._write, self._read)]

    def put(self, message: Any) -> None:
        """Send; from any thread, and from finalizers. None is the last one."""
        self._out.append(message)
        if threading.get_ident() == self._thread:
            self._more.set()
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the call with it
            self._loop.call_soon_threadsafe(self._more.set)

    async def _write(self) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # _read() tells
            while True:
                self._more.clear()
                while self._out:
                    message = self._out.popleft()
                    if message is None:
                        await self._call.done_writing()
                        return
                    await self._call.write(message)
                await self._more.wait()

    async def _read(self) -> None:
        error = None
        try:
            async for message in self._call:
                self._take(message)
                self._wake()
        except grpc.RpcError as failure:
            error = errors.from_rpc(failure, self._line.address, self._name)
        self._ended(error)
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            if not one.done():
                one.set_result(None)

    async def wait_for(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it is so, which only take() and ended() change; False = it was not in time."""
        until = None if timeout is None else self._loop.time() + timeout
        while not ready():
            left = None if until is None else until - self._loop.time()
            if left is not None and left <= 0:
                return False
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await asyncio.wait([waiter], timeout=left)
        return True

    async def close(self) -> None:
        """End the call now, however far it is."""
        if self._call is not None:
            self._call.cancel()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._wake()
