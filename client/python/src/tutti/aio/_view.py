"""A tensor's memory as an array of this program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _memory, _settings, _wire, dtypes, errors
from ..status import StatusCode
from ._tensor import Tensor, handle_of, tensor_of
from ._waits import in_thread

if TYPE_CHECKING:
    from torch import Tensor as TorchTensor


def _read_only(tensor: Tensor) -> tuple[StatusCode, str, str]:
    text = "%s was shared for reading: share it with writable=True to write it" % tensor.handle
    return StatusCode.FAILED_PRECONDITION, text, "READ_ONLY"


class View:
    """A tensor's memory as a numpy array, until close() or the end of a `with` block.

    Ops and the array have the same bytes, and nobody keeps their reads and writes apart: touch the
    array between ops. Where there can be no mapping the array is a copy: push() and pull() bring its
    bytes to the tensor and back, and do nothing for a mapping, so a program that calls them is right
    in both cases.

    array     writable if it was asked for; what is made from it stays good after close()
    tensor    whose memory it is
    shared    it is the tensor's memory, not a copy
    writable  as it was asked for
    """

    def __init__(self, tensor: Tensor, memory: _memory.Memory | None, writable: bool) -> None:
        self.tensor = tensor
        self.array: Any = None
        self.shared = memory is not None
        self.writable = writable
        self._memory = memory

    def __repr__(self) -> str:
        return "<View of %r, %s>" % (self.tensor, "shared" if self.shared else "a copy")

    @property
    def revoked(self) -> bool:
        """Is the tensor deleted, or its agent gone? Then no other process sees the mapping."""
        return self._memory is not None and self._memory.revoked

    def torch(self) -> "TorchTensor":
        """Take the same memory as a torch tensor.

        Returns: a torch tensor on the CPU that shares the view's memory.
        Raises: TuttiError READ_ONLY: torch knows writable memory alone.
        Example:
            >>> with agent.share(x, writable=True) as view:
            ...     view.torch().zero_()
        """
        if not self.writable:
            raise errors.make(*_read_only(self.tensor))
        return dtypes.to_torch(self.array, self.tensor._known().name)

    async def push(self) -> None:
        """Write a copy back: overwrite the tensor. Does nothing for a mapping.

        Returns: None.
        Raises: TuttiError READ_ONLY: it was shared for reading.
        Example:
            >>> view.array[:] = 1
            >>> view.push()
        """
        if not self.writable:
            raise errors.make(*_read_only(self.tensor))
        if not self.shared:
            await self.tensor.write(self.array)

    async def pull(self) -> None:
        """Read a copy again, into the same array. Does nothing for a mapping.

        Returns: None.
        Raises: TuttiError NO_TENSOR.
        Example:
            >>> view.pull()
        """
        if not self.shared:
            found = await self.tensor.numpy()
            self.array.flags.writeable = True
            self.array[...] = found
            self.array.flags.writeable = self.writable

    async def close(self) -> None:
        """End the view. Bytes that were written to a copy and not pushed are lost.

        Returns: None.
        Raises: nothing.
        Example:
            >>> view.close()
        """
        self.array = None
        if self._memory is not None:
            self._memory.close()

    async def __aenter__(self) -> "View":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class Views:
    """The part of an Agent that maps tensors."""

    line: Any

    async def share(
        self, tensor: Tensor | str, writable: bool = False, copy: bool = True
    ) -> View:
        """Map a tensor's memory, where agent and program are on one host.

        Waits for the ops that use the tensor.

        writable  the array can be written, and the tensor with it
        copy      where there can be no mapping give a copy, and say so once by a warning

        Returns: a View, whose array has the tensor's shape and dtype.
        Raises: TuttiError NO_TENSOR; and with copy=False FAILED_PRECONDITION SHARE_OFF, OTHER_HOST,
            CANNOT_SHARE; UNAVAILABLE NO_SHARE_SOCKET; PERMISSION_DENIED OTHER_USER;
            RESOURCE_EXHAUSTED SHARE_LIMIT.
        Example:
            >>> with agent.share(x, writable=True) as view:
            ...     view.array[:] = 1
        """
        try:
            return await self._map(handle_of(tensor), writable)
        except errors.TuttiError as error:
            if not copy or not _memory.helps_copy(error):
                raise
            _memory.warn_of_copy(error)
        one: Tensor = Tensor(self, handle_of(tensor))  # type: ignore[arg-type]
        view = View(one, None, writable)
        view.array = await one.numpy()
        view.array.flags.writeable = writable
        return view

    async def _map(self, handle: str, writable: bool) -> View:
        request = _wire.new(
            "ShareRequest", handle=handle, writable=writable, host_id=_settings.host_id()
        )
        said = await self.line.unary("Tensors.Share", request)
        tensor = tensor_of(self, said.tensor)  # type: ignore[arg-type]
        kind = tensor._known()
        if kind.nbytes != said.byte_count:
            raise errors.lost("the agent shares %d bytes for %s" % (said.byte_count, kind))
        memory = await in_thread(
            _memory.Memory, said.socket, said.token, said.byte_count, writable
        )
        view = View(tensor, memory, writable)
        view.array = memory.array(kind)
        return view
