"""A connection to one server, in messages of protobuf: by libtutti where its module is there, else by grpcio."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

from google.protobuf.message import DecodeError

from .. import _native_door, _wire, errors
from .._settings import NO_PINGS, Metadata, Pings, Settings
from ..status import StatusCode
from ._waits import Lock


def _open_channel(address: str, settings: Settings, pings: Pings) -> Any:
    _native_door.connected = True
    # Options of a channel are grpcio's.
    if _native_door.native is not None and not settings.options:
        from ._channel_native import Channel

        return Channel(address, settings, pings)
    try:
        from ._channel_grpc import Channel as GrpcChannel
    except ImportError as error:
        raise _native_door.nothing_there(error) from None
    return GrpcChannel(address, settings, pings)


def _program() -> str:
    """For the other ranks' errors, should this process die: "train.py (pid 4711)", in at most 63 bytes."""
    name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c") else "python"
    return "%s (pid %d)" % (name.encode("ascii", "replace")[:40].decode(), os.getpid())


def _decoded(method: _wire.Method, found: bytes) -> Any:
    try:
        return method.response.FromString(found)
    except DecodeError:
        raise errors.lost("%s answered with a message that is not its response" % method.name) from None


class Stream:
    """A call with any number of messages both ways."""

    def __init__(self, call: Any, address: str, method: _wire.Method) -> None:
        self._call = call
        self._address = address
        self._method = method
        self._given_up = False

    def put(self, request: Any) -> None:
        """Give a request, without waiting; from any thread, and from finalizers. None = there is no other one."""
        if request is None:
            self._call.send(None, True)
        else:
            self._call.send(_wire.encode(request))

    async def send(self, request: Any) -> None:
        """Give a request, and wait until most has left; that the call has failed is told by receive()."""
        self._call.send(_wire.encode(request))
        await self._call.drain()

    async def receive(self) -> Any:
        """The next response; None at the end."""
        try:
            found = await self._call.receive()
        except errors.TuttiError as error:
            if self._given_up and error.code is StatusCode.CANCELLED:
                raise errors.cancelled(self._address, self._method.name) from None
            raise
        return None if found is None else _decoded(self._method, found)

    async def finish(self) -> None:
        """No more requests."""
        self._call.send(None, True)

    def cancel(self) -> None:
        self._given_up = True
        self._call.cancel()


class Line:
    """A connection to one server. Any thread may use it."""

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        self._settings = settings
        self._closed = False
        self._process = os.getpid()
        self.answered = False  # somebody was there once
        self._lease: tuple[Any, str] | None = None  # the call that keeps it, its number
        self._leasing = Lock()
        self._channel = self._open(address)

    def _open(self, address: str) -> Any:
        return _open_channel(address, self._settings, self._pings())

    def _pings(self) -> Pings:
        return NO_PINGS

    def _checked(self, name: str) -> _wire.Method:
        """The method, of a connection that may be used."""
        if self._closed:
            raise errors.closed(self.address)
        if self._process != os.getpid():
            raise errors.forked(self.address)
        return _wire.method(name)

    def _metadata(self, lease: str = "") -> Metadata:
        return self._settings.metadata() + ([("tutti-lease", lease)] if lease else [])

    async def unary(
        self, name: str, request: Any, timeout: float | None = None, lease: str = ""
    ) -> Any:
        """One request, one response. Tensors that it makes end with the lease."""
        method = self._checked(name)
        try:
            found = await self._channel.unary(
                method, _wire.encode(request), timeout, self._metadata(lease)
            )
        except errors.TuttiError as error:
            self.answered = self.answered or errors.was_there(error)
            raise
        self.answered = True
        return _decoded(method, found)

    async def is_back(self, timeout: float) -> bool:
        """Wait until a server that was there once answers again; False = it did not."""
        method = self._checked("Store.QueueLen")
        request = _wire.encode(_wire.new("StoreServiceQueueLenRequest", key=b"-"))
        try:
            await self._channel.unary(method, request, timeout, self._metadata(), True)
        except errors.TuttiError as error:
            return error.code is not StatusCode.DEADLINE_EXCEEDED
        return True

    async def give(self, name: str, requests: Iterable[Any], lease: str = "") -> Any:
        """Many requests, one response. Tensors that they make end with the lease."""
        method = self._checked(name)
        packed = (_wire.encode(one) for one in requests)
        return _decoded(method, await self._channel.give(method, packed, self._metadata(lease)))

    async def take(
        self, name: str, request: Any, timeout: float | None = None
    ) -> AsyncIterator[Any]:
        """One request, many responses; the call ends with the iteration."""
        method = self._checked(name)
        call = self._channel.start(method, _wire.encode(request), True, timeout, self._metadata())
        try:
            while (found := await call.receive()) is not None:
                yield _decoded(method, found)
        finally:
            call.cancel()

    async def stream(self, name: str, lease: str = "", more: Iterable[tuple[str, str]] = ()) -> Stream:
        """Many requests, many responses. What they make ends with the lease. more: other metadata."""
        method = self._checked(name)
        call = self._channel.start(method, None, False, None, self._metadata(lease) + list(more))
        return Stream(call, self.address, method)

    async def watch(self, name: str, request: Any) -> Stream:
        """One request, many responses, which are read one by one."""
        method = self._checked(name)
        call = self._channel.start(method, _wire.encode(request), True, None, self._metadata())
        return Stream(call, self.address, method)

    async def lease(self) -> str:
        """A lease that ends with this connection, or with the process."""
        async with self._leasing:
            if self._lease is None or self._lease[0].has_ended():
                method = self._checked("Tensors.Lease")
                request = _wire.encode(_wire.new("LeaseRequest", program=_program()))
                call = self._channel.start(method, request, True, None, self._metadata())
                found = await call.receive()
                if found is None:
                    raise errors.lost("%s has ended without a lease" % method.name)
                self._lease = (call, str(_decoded(method, found).lease))
            return self._lease[1]

    async def close(self) -> None:
        if self._lease is not None and not self._closed and not self._lease[0].has_ended():
            await self._close_lease(self._lease[1])
        self._closed = True
        if self._lease is not None:
            self._lease[0].cancel()
        await self._channel.close()

    async def _close_lease(self, number: str) -> None:
        """Without this word, the agent takes the end of the lease for the death of the program."""
        with contextlib.suppress(errors.TuttiError):
            await self.unary("Tensors.CloseLease", _wire.new("CloseLeaseRequest", lease=int(number)), 1)
