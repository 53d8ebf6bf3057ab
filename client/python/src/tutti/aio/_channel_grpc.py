"""A connection by grpcio. _channel_native.py is the same by libtutti."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import grpc

from .. import _wire, errors
from .._settings import Metadata, Pings, Settings
from ._call_grpc import Call, library


class Channel:
    def __init__(self, address: str, settings: Settings, pings: Pings) -> None:
        options = settings.channel_options(pings)
        credentials = settings.credentials(address)
        self._address = address
        self._calls: weakref.WeakSet[Call] = weakref.WeakSet()
        if credentials is None:
            self._channel = library.insecure_channel(address, options=options)
        else:
            self._channel = library.secure_channel(address, credentials, options=options)

    async def unary(
        self, method: _wire.Method, request: bytes, timeout: float | None, metadata: Metadata, wait: bool = False
    ) -> bytes:
        stub = self._channel.unary_unary(method.path)
        try:
            found: bytes = await stub(request, timeout=timeout, metadata=metadata, wait_for_ready=wait or None)
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self._address, method.name) from None
        except ValueError:
            raise errors.closed(self._address) from None  # by another thread
        return found

    def start(
        self,
        method: _wire.Method,
        first: bytes | None,
        last: bool,
        timeout: float | None,
        metadata: Metadata,
    ) -> Call:
        call = Call(self._channel, self._address, method, first, last, timeout, metadata)
        self._calls.add(call)
        return call

    async def give(self, method: _wire.Method, requests: Iterator[bytes], metadata: Metadata) -> bytes:
        """Many requests, which are asked for as they leave; one response."""
        try:
            found: bytes = await self._channel.stream_unary(method.path)(requests, metadata=metadata)
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self._address, method.name) from None
        return found

    async def close(self) -> None:
        for call in list(self._calls):  # what reads from one would wait for ever
            call.cancel()
        await self._channel.close()
