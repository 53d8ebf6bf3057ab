"""A connection, asyncio's way. sync/_transport.py is its twin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from .. import _wire, errors
from .._settings import Settings


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def in_thread(call: Any, *given: Any) -> Any:
    """Run a function that may block in a thread, so that other tasks go on."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *given)


class Line:
    """A connection to one server."""

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        self._settings = settings
        self._closed = False
        self.answered = False  # somebody was there once
        self._lease: tuple[Any, str] | None = None  # the call that keeps it, its number
        options = settings.channel_options()
        credentials = settings.credentials(address)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=options)

    def _stub(self, kind: str, name: str) -> Any:
        if self._closed:
            raise errors.closed(self.address)
        method = _wire.method(name)
        return getattr(self._channel, kind)(
            method.path,
            request_serializer=_wire.encode,
            response_deserializer=method.response.FromString,
        )

    def _metadata(self, lease: str) -> list[tuple[str, str]]:
        return self._settings.metadata() + ([("tutti-lease", lease)] if lease else [])

    async def unary(
        self, name: str, request: Any, timeout: float | None = None, lease: str = ""
    ) -> Any:
        """One request, one response. Tensors that it makes end with the lease."""
        stub = self._stub("unary_unary", name)
        try:
            response = await stub(request, timeout=timeout, metadata=self._metadata(lease))
        except grpc.RpcError as error:
            found = errors.from_rpc(error, self.address, name)
            self.answered = self.answered or errors.was_there(found)
            raise found from None
        self.answered = True
        return response

    async def is_back(self, timeout: float) -> bool:
        """Wait until a server that was there once answers again; False = it did not."""
        stub = self._stub("unary_unary", "Store.QueueLen")
        request = _wire.new("StoreServiceQueueLenRequest", key=b"-")
        known = self._settings.metadata()
        try:
            await stub(request, timeout=timeout, metadata=known, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    async def give(self, name: str, requests: Iterable[Any], lease: str = "") -> Any:
        """Many requests, one response. Tensors that they make end with the lease."""
        stub = self._stub("stream_unary", name)
        try:
            return await stub(iter(requests), metadata=self._metadata(lease))
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self.address, name) from None

    async def take(
        self, name: str, request: Any, timeout: float | None = None
    ) -> AsyncIterator[Any]:
        """One request, many responses; the call ends with the iteration."""
        stub = self._stub("unary_stream", name)
        call = stub(request, timeout=timeout, metadata=self._settings.metadata())
        try:
            async for response in call:
                yield response
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self.address, name) from None
        finally:
            call.cancel()

    def _held(self) -> str:
        """The number of the lease that is open; "" = none."""
        return "" if self._lease is None or self._lease[0].done() else self._lease[1]

    async def lease(self) -> str:
        """A lease that ends with this connection, or with the process."""
        if self._held():
            return self._held()
        stub = self._stub("unary_stream", "Tensors.Lease")
        call = stub(_wire.new("LeaseRequest"), metadata=self._settings.metadata())
        try:
            number = str((await call.read()).lease)
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self.address, "Tensors.Lease") from None
        if self._held():  # another task was faster
            call.cancel()
        else:
            self._lease = (call, number)
        return self._held()

    async def close(self) -> None:
        self._closed = True
        if self._lease is not None:
            self._lease[0].cancel()
        await self._channel.close()


now = time.monotonic
