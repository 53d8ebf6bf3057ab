"""A call with messages both ways, asyncio's way. sync/_pipe.py is its twin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from .. import errors
from ._line import Line


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
        self._waiters: list[asyncio.Future[None]] = []
        self._reader: asyncio.Task[None] | None = None
        self._call: Any = None
        self._early: list[Any] = []  # given before the call began

    async def open(self) -> None:
        """Start the call."""
        self._loop = asyncio.get_running_loop()
        self._call = await self._line.stream(self._name, more=self._metadata)
        for message in self._early:
            self._call.put(message)
        self._reader = asyncio.ensure_future(self._read())

    def put(self, message: Any) -> None:
        """Send; from any thread, and from finalizers. None is the last one."""
        if self._call is None:
            self._early.append(message)
        else:
            self._call.put(message)

    async def _read(self) -> None:
        error = None
        try:
            while (message := await self._call.receive()) is not None:
                self._take(message)
                self._wake()
        except errors.TuttiError as failure:
            error = failure
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
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        self._wake()
