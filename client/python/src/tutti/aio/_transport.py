"""A connection, asyncio's way. sync/_transport.py is its twin."""

from __future__ import annotations

import asyncio
import os
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


Lock = asyncio.Lock


def run_whole(coroutine: Any) -> Any:
    """Run it to its end, in a process that has no loop."""
    return asyncio.run(coroutine)


class Stream:
    """A call with many requests and many responses."""

    def __init__(self, call: Any, address: str, name: str) -> None:
        self._call = call
        self._address = address
        self._name = name
        self._given_up = False

    async def send(self, request: Any) -> None:
        """Give a request; that the call has failed is told by receive()."""
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass

    async def receive(self) -> Any:
        """The next response; None at the end."""
        try:
            response = await self._call.read()
        except asyncio.CancelledError:
            if not self._given_up:  # it is the task that was cancelled, and the call with it
                raise
            raise errors.cancelled(self._address, self._name) from None
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self._address, self._name) from None
        return None if response is grpc.aio.EOF else response

    async def finish(self) -> None:
        """No more requests."""
        try:
            await self._call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass

    def cancel(self) -> None:
        self._given_up = True
        self._call.cancel()


class Line:
    """A connection to one server."""

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        self._settings = settings
        self._closed = False
        self._process = os.getpid()
        self.answered = False  # somebody was there once
        self._lease: tuple[Any, str] | None = None  # the call that keeps it, its number
        self._channel = self._open(address)

    def _open(self, address: str) -> Any:
        options = self._settings.channel_options() + self._more_options()
        credentials = self._settings.credentials(address)
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, credentials, options=options)

    def _more_options(self) -> list[tuple[str, Any]]:
        return []

    def _stub(self, kind: str, name: str) -> Any:
        if self._closed:
            raise errors.closed(self.address)
        if self._process != os.getpid():
            raise errors.forked(self.address)
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

    async def stream(self, name: str, lease: str = "") -> Stream:
        """Many requests, many responses. What they make ends with the lease."""
        call = self._stub("stream_stream", name)(metadata=self._metadata(lease))
        return Stream(call, self.address, name)

    async def watch(self, name: str, request: Any) -> Stream:
        """One request, many responses, which are read one by one."""
        call = self._stub("unary_stream", name)(request, metadata=self._settings.metadata())
        return Stream(call, self.address, name)

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
