"""A connection by libtutti. _channel_grpc.py is the same by grpcio."""

from __future__ import annotations

from collections.abc import Iterator

from .. import _native_door, _wire
from .._native_door import MESSAGE, NOTHING, in_ms, pairs_of, response_of
from .._settings import Metadata, Pings, Settings
from ._call_native import Call, Calls


class Channel:
    def __init__(self, address: str, settings: Settings, pings: Pings) -> None:
        self._calls = Calls(_native_door.open_channel(address, settings, pings))

    async def unary(
        self, method: _wire.Method, request: bytes, timeout: float | None, metadata: Metadata, wait: bool = False
    ) -> bytes:
        return await self._calls.unary(method.path, request, in_ms(timeout), wait, pairs_of(metadata))

    def start(
        self,
        method: _wire.Method,
        first: bytes | None,
        last: bool,
        timeout: float | None,
        metadata: Metadata,
    ) -> Call:
        return self._calls.start(method.path, first, last, in_ms(timeout), False, pairs_of(metadata))

    async def give(self, method: _wire.Method, requests: Iterator[bytes], metadata: Metadata) -> bytes:
        """Many requests, which are asked for as they leave; one response."""
        call = self.start(method, None, False, None, metadata)
        event, found = NOTHING, None
        try:
            for request in requests:
                call.send(request)
                await call.drain()
                event, found = call.look()
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
        await self._calls.close()
