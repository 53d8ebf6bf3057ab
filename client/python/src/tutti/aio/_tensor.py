"""Tensors in an agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import _wire, dtypes, errors

if TYPE_CHECKING:
    from ._agent import Agent

INLINE_BYTES_MAX = 3 << 20  # of a tensor in one message
CHUNK_BYTES = 2 << 20  # of a message of a stream


def _chunks(start: Any, payload: memoryview) -> Iterator[Any]:
    """The messages of an upload."""
    first = payload[:CHUNK_BYTES]
    yield _wire.Framed(_wire.new("UploadRequest", start=start), first)
    for offset in range(CHUNK_BYTES, payload.nbytes, CHUNK_BYTES):
        chunk = payload[offset : offset + CHUNK_BYTES]
        yield _wire.Framed(_wire.new("UploadRequest", offset=offset), chunk)


class Tensor:
    """A tensor in an agent, by its handle.

    The memory is the agent's and stays until delete(), or the end of a `with` block. A tensor that
    an async op makes may be used at once: what reads it waits in the agent.
    """

    def __init__(self, agent: "Agent", handle: str, kind: dtypes.Kind | None = None) -> None:
        self.agent = agent
        self.handle = handle
        self._kind = kind

    def __repr__(self) -> str:
        kind = (
            "pending" if self._kind is None else "%s%s" % (self._kind.name, list(self._kind.shape))
        )
        return "<Tensor %s %s>" % (self.handle, kind)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """None while an async op has not said it: refresh() asks."""
        return self._kind.shape if self._kind else None

    @property
    def dtype(self) -> Any:
        """As numpy has it; None while it is not known."""
        return dtypes.numpy_dtype(self._kind.name) if self._kind else None

    @property
    def dtype_name(self) -> str | None:
        """As the wire has it: "FP32"."""
        return self._kind.name if self._kind else None

    @property
    def nbytes(self) -> int | None:
        return self._kind.nbytes if self._kind else None

    def _learn(self, ref: Any) -> None:
        self._kind = dtypes.kind_of(ref.spec) or self._kind

    async def refresh(self) -> "Tensor":
        """Ask what it is, without waiting for it. Fails with the error of the op that was to write
        it."""
        info = (await self.agent.stat(self.handle)).info
        if info.error.code:
            raise errors.from_value(info.error)
        self._learn(info.tensor)
        return self

    async def numpy(self) -> Any:
        """Its bytes as a new array, any size. Waits for the op that writes it."""
        size = self.nbytes
        if size is None or size > INLINE_BYTES_MAX:
            return await self._download()
        request = _wire.new("GetRequest", handle=self.handle)
        response = await self.agent.line.unary("Tensors.Get", request)
        self._learn(response.tensor)
        return dtypes.array_of(self._known(), response.payload)

    async def _download(self) -> Any:
        request = _wire.new("DownloadRequest", handle=self.handle, chunk_bytes=CHUNK_BYTES)
        array, view, done = None, memoryview(b""), 0
        async for part in self.agent.line.take("Tensors.Download", request):
            if array is None:
                self._learn(part.tensor)
                array = self._known().empty()
                view = dtypes.bytes_of(array)
            if part.offset != done or len(part.payload) > len(view) - done:
                raise errors.lost("%s: a chunk out of its place" % self.handle)
            view[done : done + len(part.payload)] = part.payload
            done += len(part.payload)
        if array is None or done != len(view):
            raise errors.lost("%s: %d of %d bytes came" % (self.handle, done, len(view)))
        return array

    def _known(self) -> dtypes.Kind:
        """What it is, once somebody has said it."""
        if self._kind is None:
            raise errors.lost("%s: nobody said what it is" % self.handle)
        return self._kind

    async def torch(self) -> Any:
        """Its bytes as a new torch tensor on the CPU."""
        array = await self.numpy()
        return dtypes.to_torch(array, self._known().name)

    async def read(self, offset: int = 0, length: int = 0) -> bytes:
        """A range of its bytes; a length of 0 = to the end."""
        request = _wire.new("DownloadRequest", handle=self.handle, offset=offset, length=length)
        found = []
        async for part in self.agent.line.take("Tensors.Download", request):
            found.append(part.payload)
        return b"".join(found)

    async def write(self, array: Any) -> "Tensor":
        """Overwrite all of it: the same dtype and number of elements."""
        data = dtypes.data_of(array, self.dtype_name)
        await self.agent.upload(data, into=self.handle)
        return self

    async def device(self) -> str:
        """Where it is: "cpu", "cuda:0"; "" while an async op has not said it."""
        return str((await self.agent.stat(self.handle)).info.device)

    async def copy(
        self, name: str = "", into: "Tensor | str | None" = None, device: str = ""
    ) -> "Tensor":
        """A copy, as a new tensor or into one of the same dtype and number of elements.

        device  where a new one goes: "cpu", "cuda:0", as put() has it; "" = where this one is
        """
        request = _wire.new("CopyRequest", handle=self.handle, name=name, device=device)
        if into is not None:
            request.into = handle_of(into)
        response = await self.agent.line.unary("Tensors.Copy", request)
        return tensor_of(self.agent, response.tensor)

    async def delete(self) -> None:
        """Free it. Deleting again is fine."""
        try:
            await self.agent.delete(self)
        except errors.TuttiError as error:
            if error.reason != "NO_TENSOR":
                raise

    async def __aenter__(self) -> "Tensor":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.delete()


def handle_of(tensor: Tensor | str) -> str:
    """The handle of a Tensor; handles and names are what they are."""
    return tensor if isinstance(tensor, str) else tensor.handle


def tensor_of(agent: "Agent", ref: Any) -> Tensor:
    """Of a TensorRef."""
    return Tensor(agent, ref.handle, dtypes.kind_of(ref.spec))


class Tensors:
    """The part of an Agent that keeps tensors."""

    line: Any

    async def put(
        self, array: Any, name: str = "", dtype: str | None = None, device: str = ""
    ) -> Tensor:
        """Store an array of any size in the agent.

        array  numpy's, torch's, anything with DLPack, or numbers in lists
        name   by which it is found beside its handle: 1 to 127 of letters, digits and . _ / -
        dtype  "FP32", "BF16", ...: convert first; bits of BF16 and FP8 in uint16 and uint8 are taken
               as they are
        device where: one of the agent's --device, or "cpu"; "" = the first of --device
        """
        return await self.upload(dtypes.data_of(array, dtype), name, device=device)

    async def upload(
        self, data: dtypes.Data, name: str = "", into: str = "", device: str = ""
    ) -> Tensor:
        """Bytes to the agent, in one message or in chunks."""
        payload = data.payload
        if payload.nbytes <= INLINE_BYTES_MAX:
            request = _wire.new("PutRequest", spec=data.spec, name=name, into=into, device=device)
            response = await self.line.unary("Tensors.Put", _wire.Framed(request, payload))
        else:
            start = _wire.new("UploadStart", spec=data.spec, name=name, into=into, device=device)
            response = await self.line.give("Tensors.Upload", _chunks(start, payload))
        return tensor_of(self, response.tensor)  # type: ignore[arg-type]

    async def create(
        self, shape: Any, dtype: Any = "FP32", name: str = "", device: str = ""
    ) -> Tensor:
        """Memory for a tensor, filled with zeros; `device` as in put()."""
        spec = dtypes.spec(dtypes.name_of(dtype), shape)
        request = _wire.new("CreateRequest", spec=spec, name=name, device=device)
        response = await self.line.unary("Tensors.Create", request)
        return tensor_of(self, response.tensor)  # type: ignore[arg-type]

    async def stat(self, tensor: Tensor | str) -> Any:
        """The StatResponse of a tensor."""
        request = _wire.new("StatRequest", handle=handle_of(tensor))
        return await self.line.unary("Tensors.Stat", request)

    async def tensor(self, name: str) -> Tensor:
        """A tensor that is there, by handle or name."""
        response = await self.stat(name)
        return tensor_of(self, response.info.tensor)  # type: ignore[arg-type]

    async def tensors(self) -> list[Tensor]:
        """All, in the order they were made."""
        found, token = [], ""
        while True:
            request = _wire.new("ListRequest", page_size=1000, page_token=token)
            page = await self.line.unary("Tensors.List", request)
            found += [tensor_of(self, one.tensor) for one in page.tensors]  # type: ignore[arg-type]
            token = page.next_page_token
            if not token:
                return found

    async def delete(self, *tensors: Tensor | str) -> None:
        """Free tensors, all or none of up to 1024."""
        request = _wire.new("DeleteRequest", handles=[handle_of(one) for one in tensors])
        await self.line.unary("Tensors.Delete", request)
