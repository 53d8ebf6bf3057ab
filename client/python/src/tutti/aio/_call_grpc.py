"""A call by grpcio, asyncio's way. sync/_call_grpc.py is its twin; _channel_grpc.py has the connection."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from typing import Any

import grpc

from .. import _wire, errors
from .._settings import Metadata

library: Any = grpc.aio


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
        self._call = channel.stream_stream(method.path)(timeout=timeout, metadata=metadata)
        self._address = address
        self._name = method.name
        self._given_up = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._out: collections.deque[bytes | None] = collections.deque()
        self._more = asyncio.Event()
        self._left = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        if first is not None or last:
            self.send(first, last)

    def send(self, message: bytes | None, last: bool = False) -> None:
        """Give a message, None = none; from any thread, and from finalizers. It does not wait."""
        if message is not None:
            self._out.append(message)
        if last:
            self._out.append(None)
        if threading.get_ident() == self._thread:
            self._go_on()
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the call with it
            self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        self._left.clear()
        self._more.set()
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # receive() tells
            while True:
                self._more.clear()
                while self._out:
                    message = self._out.popleft()
                    if message is None:
                        await self._call.done_writing()
                        break
                    await self._call.write(message)
                self._left.set()
                await self._more.wait()
        self._left.set()

    async def drain(self) -> None:
        """Wait until what was sent has left."""
        if self._writer is not None and not self._writer.done():
            await self._left.wait()

    async def receive(self) -> bytes | None:
        """The next message; None at the end."""
        try:
            response = await self._call.read()
        except asyncio.CancelledError:
            if not self._given_up:  # it is the task that was cancelled, and the call with it
                raise
            raise errors.cancelled(self._address, self._name) from None
        except grpc.RpcError as error:
            self._stop()
            raise errors.from_rpc(error, self._address, self._name) from None
        if response is grpc.aio.EOF:
            self._stop()
            return None
        return bytes(response)

    def _stop(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
        self._left.set()

    def has_ended(self) -> bool:
        return bool(self._call.done())

    def cancel(self) -> None:
        self._given_up = True
        self._call.cancel()
        self._stop()
