"""Memory of an agent on this host: the caller gives a token, and gets a mapping."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import socket
import struct
import warnings
from typing import Any

import numpy as np

from .dtypes import Kind, numpy_dtype
from .errors import TuttiError, lost, make
from .status import StatusCode

TIMEOUT = 10.0  # seconds: it is a process of this machine that answers
HELLO = b"tthello1"
ANSWER = struct.Struct("=8sIIQ")  # "ttshare1", refusal, writable, bytes
GET_SEALS, SEAL_SHRINK = 1034, 2  # of Linux' fcntl.h

# Why there can be no mapping, where a copy helps.
REASONS = {
    "SHARE_OFF", "OTHER_HOST", "CANNOT_SHARE", "NO_SHARE_SOCKET", "OTHER_USER", "SHARE_LIMIT",
}  # fmt: skip

REFUSALS = {
    1: ("SHARE_TOKEN", "the agent does not know this token: a token is good once, for 30 s, and "
        "until the tensor is deleted"),
    2: ("OTHER_USER", "the agent shares memory with processes of its own user only: run as that "
        "user, or give the agent --share-any-user"),
}  # fmt: skip


def _no_socket(why: Any) -> TuttiError:
    text = (
        "could not connect to the agent's socket for shared memory: %s; this program and the agent "
        "need one network namespace" % why
    )
    return make(StatusCode.UNAVAILABLE, text, "NO_SHARE_SOCKET")


def _ask(lease: socket.socket, name: str, token: bytes) -> tuple[bytes, list[int]]:
    try:
        lease.settimeout(TIMEOUT)
        lease.connect("\0" + name)
        with contextlib.suppress(BrokenPipeError):  # who is not welcome is told so before
            lease.send(HELLO + token)
        answer, fds, _, _ = socket.recv_fds(lease, 256, 4)
    except OSError as error:
        raise _no_socket(error) from None
    return answer, fds


def _map(fd: int, size: int, writable: bool) -> mmap.mmap:
    if not fcntl.fcntl(fd, GET_SEALS) & SEAL_SHRINK or size > os.fstat(fd).st_size:
        raise lost("the memory that the agent sent cannot be mapped safely: it may become smaller")
    return mmap.mmap(
        fd, size, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    )


class Memory:
    """A tensor's bytes, mapped. The agent keeps them while the connection to it is open."""

    def __init__(self, name: str, token: bytes, size: int, writable: bool | None) -> None:
        if not hasattr(socket, "AF_UNIX") or not hasattr(socket, "recv_fds"):
            raise _no_socket("this system has no such sockets")
        self._lease = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds: list[int] = []
        try:
            answer, fds = _ask(self._lease, name, token)
            if len(answer) != ANSWER.size:
                raise _no_socket("the agent closed the connection")
            magic, refusal, may_write, got = ANSWER.unpack(answer)
            if refusal in REFUSALS:
                reason, text = REFUSALS[refusal]
                raise make(StatusCode.PERMISSION_DENIED, text, reason)
            writable = bool(may_write) if writable is None else writable
            if magic != b"ttshare1" or len(fds) != 1 or got != size or bool(may_write) != writable:
                raise lost("the memory that the agent sent is not the memory that was asked for")
            self._map: mmap.mmap | None = _map(fds[0], size, writable)
        except BaseException:
            self._lease.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def array(self, kind: Kind) -> Any:
        flat = np.frombuffer(self._map, np.uint8, kind.nbytes)  # type: ignore[arg-type]
        return flat.view(numpy_dtype(kind.name)).reshape(kind.shape)

    @property
    def revoked(self) -> bool:
        if self._lease.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._lease, select.POLLIN)
        return bool(poll.poll(0))  # nothing but that is ever said

    def close(self) -> None:
        self._lease.close()
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:  # arrays of the caller's: the last of them ends it
                pass
            self._map = None


_said: list[str] = []


def warn_of_copy(error: TuttiError) -> None:
    """Warn once in a process that tensors are copied; not when a tensor cannot be mapped at all."""
    if error.reason != "CANNOT_SHARE" and not _said:
        _said.append(error.text)
        warnings.warn("tensors are copied instead of mapped: %s" % error.text, stacklevel=4)


def helps_copy(error: TuttiError) -> bool:
    return error.reason in REASONS or error.code is StatusCode.UNIMPLEMENTED
