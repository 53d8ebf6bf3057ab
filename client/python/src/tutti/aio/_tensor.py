"""Tensors in an agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import _wire, dtypes, errors

if TYPE_CHECKING:
    from torch import Tensor as TorchTensor
    from google.protobuf.message import Message

    from ._agent import Agent
    from ._types import Array, DtypeLike, NumpyArray, NumpyDtype

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

    _whole: "Tensor | None" = None  # of which this is a part, from this byte on
    _offset = 0

    def __init__(self, agent: "Agent", handle: str, kind: dtypes.Kind | None = None) -> None:
        self.agent = agent
        self.handle = handle
        self._kind = kind

    def __repr__(self) -> str:
        kind = (
            "pending" if self._kind is None else "%s%s" % (self._kind.name, list(self._kind.shape))
        )
        return "<Tensor %s %s>" % (self.handle, kind)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Tensor cannot be pickled: give its handle, and use agent.tensor(handle) there"
        )

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape; None while the async op that makes it has not ended: refresh() asks again."""
        return self._kind.shape if self._kind else None

    @property
    def dtype(self) -> "NumpyDtype | None":
        """The dtype as numpy's; None while it is not known."""
        return cast("NumpyDtype", dtypes.numpy_dtype(self._kind.name)) if self._kind else None

    @property
    def dtype_name(self) -> str | None:
        """The dtype's name on the wire: "FP32"."""
        return self._kind.name if self._kind else None

    @property
    def nbytes(self) -> int | None:
        return self._kind.nbytes if self._kind else None

    def _learn(self, ref: Any) -> None:
        self._kind = dtypes.kind_of(ref.spec) or self._kind

    async def refresh(self) -> "Tensor":
        """Ask for its dtype and shape, without waiting for the op that makes it.

        Returns: itself, with shape and dtype where the op that makes it has said them.
        Raises: TuttiError NO_TENSOR; the error of the op that was to write it.
        Example:
            >>> work.tensor.refresh().shape
            (2,)
        """
        info = (await self.agent.stat(self.handle)).info
        if info.error.code:
            raise errors.from_value(info.error)
        self._learn(info.tensor)
        return self

    async def numpy(self) -> "NumpyArray":
        """Read it, whatever its size. Waits for the op that writes it.

        Returns: a new array of its shape and dtype.
        Raises: TuttiError NO_TENSOR; the error of the op that was to write it.
        Example:
            >>> with agent.put([1.0, 2.0]) as x:
            ...     x.numpy()
            array([1., 2.])
        """
        size = self.nbytes
        if self._whole is not None:
            return cast("NumpyArray", await self._read_part(self._whole))
        if size is None or size > INLINE_BYTES_MAX:
            return cast("NumpyArray", await self._download())
        request = _wire.new("GetRequest", handle=self.handle)
        response = await self.agent.line.unary("Tensors.Get", request)
        self._learn(response.tensor)
        found = dtypes.array_of(self._known(), response.payload)
        return cast("NumpyArray", found)

    def range(
        self, offset: int, shape: Sequence[int], dtype: "DtypeLike | None" = None
    ) -> "Tensor":
        """A part of it for ops, as input or `out`: bytes of the tensor, seen as this dtype and shape.

        Ops on parts without common bytes run side by side. A part is no tensor of its own: it has
        numpy() and range(), and what else asks the agent for a tensor is refused.

        offset  of its first byte; a multiple of the size of dtype's elements
        shape   () = one element
        dtype   None = the tensor's own

        Returns: the part. Nobody is asked: ops on it raise RANGE_OUTSIDE, RANGE_ALIGN, RANGE_OVERLAP.
        Raises: TuttiError BAD_DTYPE: there is no such dtype, or that of the tensor is not known yet.
        Example:
            >>> part = x.range(8, (2,))
            >>> agent.all_reduce(part, out=part)
        """
        if self._whole is not None:
            return self._whole.range(self._offset + offset, shape, dtype or self.dtype_name)
        if dtype is None and self._kind is None:
            text = "a part of %s: its dtype is not known yet, give one" % self.handle
            raise errors.invalid("BAD_DTYPE", text)
        name = dtypes.name_of(self._known().name if dtype is None else dtype)
        kind = dtypes.Kind(name, tuple(int(one) for one in shape))
        dims = ",".join(map(str, kind.shape))
        made = Tensor(self.agent, "%s@%d:%s[%s]" % (self.handle, offset, name, dims), kind)
        made._whole, made._offset = self, offset
        return made

    async def _read_part(self, whole: "Tensor") -> Any:
        kind = self._known()
        if kind.nbytes == 0:  # a length of 0 would be all of it
            return kind.empty()
        return dtypes.array_of(kind, memoryview(await whole.read(self._offset, kind.nbytes)))

    async def _download(self) -> Any:
        request = _wire.new("DownloadRequest", handle=self.handle, chunk_bytes=CHUNK_BYTES)
        array, view, done = None, memoryview(b""), 0
        async for part in self.agent.line.take("Tensors.Download", request):
            if array is None:
                self._learn(part.tensor)
                array = self._known().empty()
                view = dtypes.bytes_of(array)
            if part.offset != done or len(part.payload) > len(view) - done:
                raise errors.lost("tensor %s: a chunk came out of order" % self.handle)
            view[done : done + len(part.payload)] = part.payload
            done += len(part.payload)
        if array is None or done != len(view):
            raise errors.lost("tensor %s: %d of %d bytes came" % (self.handle, done, len(view)))
        return array

    def _known(self) -> dtypes.Kind:
        """Its dtype and shape, once the agent has told them."""
        if self._kind is None:
            raise errors.lost("tensor %s: the agent did not tell its dtype" % self.handle)
        return self._kind

    async def torch(self) -> "TorchTensor":
        """Read it as a torch tensor.

        Returns: a new torch tensor on the CPU.
        Raises: as numpy(); ImportError: there is no torch here.
        Example:
            >>> x.torch().to("cuda")
        """
        array = await self.numpy()
        return dtypes.to_torch(array, self._known().name)

    async def read(self, offset: int = 0, length: int = 0) -> bytes:
        """Read a range of its bytes.

        offset, length  in bytes; a length of 0 = to the end

        Returns: the bytes, little-endian and row-major.
        Raises: TuttiError NO_TENSOR; BAD_OFFSET: the tensor is shorter.
        Example:
            >>> x.read(0, 8)
        """
        request = _wire.new("DownloadRequest", handle=self.handle, offset=offset, length=length)
        found = []
        async for part in self.agent.line.take("Tensors.Download", request):
            found.append(part.payload)
        return b"".join(found)

    async def write(self, array: "Array") -> "Tensor":
        """Overwrite all of it.

        array  of the same dtype and number of elements

        Returns: itself.
        Raises: TuttiError DTYPE_MISMATCH, SHAPE_MISMATCH, NO_TENSOR.
        Example:
            >>> x.write(np.zeros(2))
        """
        data = dtypes.data_of(array, self.dtype_name)
        await self.agent.upload(data, into=self.handle)
        return self

    async def device(self) -> str:
        """Ask on which device it is.

        Returns: "cpu", "cuda:0"; "" while an async op has not said it.
        Raises: TuttiError NO_TENSOR.
        Example:
            >>> x.device()
            'cpu'
        """
        return str((await self.agent.stat(self.handle)).info.device)

    async def copy(
        self,
        name: str = "",
        into: "Tensor | str | None" = None,
        device: str = "",
        *,
        offset: int = 0,
        count: int = 0,
        into_offset: int = 0,
        shape: Sequence[int] = (),
    ) -> "Tensor":
        """Copy it, or some of its elements, inside the agent.

        name           of the new tensor
        into           instead of a new one: a tensor of the same dtype and number of elements
        device         of a new one: "cpu", "cuda:0", as put() has it; "" = that of this one
        offset, count  the first element that is copied, in row-major order, and how many are; a count
                       of 0 = to the end
        into_offset    where they go in `into`, which keeps its other elements
        shape          of a new tensor for `count` elements; () = one dimension

        Returns: the copy.
        Raises: TuttiError NO_TENSOR, NAME_TAKEN, MEMORY_LIMIT, DTYPE_MISMATCH, SHAPE_MISMATCH;
            BAD_OFFSET: the elements are not inside of the tensors, or overlap.
        Example:
            >>> x.copy(name="backup")
            >>> x.copy(offset=2, count=4, shape=(2, 2))
        """
        part = (offset, count, into_offset, shape)
        request = copy_request(self, name, into, device, part)
        lease = "" if request.into else await self.agent._lease()
        response = await self.agent.line.unary("Tensors.Copy", request, lease=lease)
        return tensor_of(self.agent, response.tensor)

    async def delete(self) -> None:
        """Free it. Deleting again is fine.

        Returns: None.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> x.delete()
        """
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
    """The handle of a Tensor; a handle or name as it is."""
    return tensor if isinstance(tensor, str) else tensor.handle


def tensor_of(agent: "Agent", ref: Any) -> Tensor:
    """The Tensor of a TensorRef."""
    return Tensor(agent, ref.handle, dtypes.kind_of(ref.spec))


def copy_request(
    tensor: "Tensor | str", name: str, into: "Tensor | str | None", device: str, part: Any
) -> Any:
    """A CopyRequest. part: offset, count, offset in `into`, and shape; all of it where none is set."""
    request = _wire.new("CopyRequest", handle=handle_of(tensor), name=name, device=device)
    if into is not None:
        request.into = handle_of(into)
    if any(part[:3]) or len(part[3]):
        wanted = request.range
        wanted.offset, wanted.count, wanted.into_offset = part[:3]
        wanted.shape.extend(part[3])
    return request


class Tensors:
    """The part of an Agent that keeps tensors."""

    line: Any
    _ephemeral = False  # what is made ends with the connection, unless the call says otherwise

    async def _lease(self, ephemeral: bool | None = None) -> str:
        wanted = self._ephemeral if ephemeral is None else ephemeral
        return await self.line.lease() if wanted else ""

    async def put(
        self,
        array: "Array",
        name: str = "",
        dtype: str | None = None,
        device: str = "",
        ephemeral: bool | None = None,
    ) -> Tensor:
        """Store an array of any size in the agent.

        array  numpy's, torch's, anything with DLPack, or numbers in lists
        name   by which it is found beside its handle: 1 to 127 of letters, digits and . _ / -
        dtype  "FP32", "BF16", ...: convert first; bits of BF16 and FP8 in uint16 and uint8 are taken
               as they are
        device where: one of the agent's --device, or "cpu"; "" = the first of --device
        ephemeral  the agent deletes it when this connection ends, also when the process dies; None =
               in a `with` block of the connection, unless connect() was told otherwise

        Returns: the tensor. It stays until delete(), or the end of a `with` block.
        Raises: TuttiError NAME_TAKEN, BAD_NAME, BAD_DTYPE, MEMORY_LIMIT, NO_DEVICE.
        Example:
            >>> with agent.put(np.arange(4.0), name="weights") as x:
            ...     agent.all_reduce(x, out=x)
        """
        return await self.upload(
            dtypes.data_of(array, dtype), name, device=device, ephemeral=ephemeral
        )

    async def upload(
        self,
        data: dtypes.Data,
        name: str = "",
        into: str = "",
        device: str = "",
        ephemeral: bool | None = None,
    ) -> Tensor:
        """Bytes to the agent, in one message or in chunks: what put() does with its array.

        Returns: the tensor.
        Raises: as put().
        Example:
            >>> agent.upload(tutti.dtypes.data_of([1.0, 2.0]))
        """
        payload = data.payload
        lease = "" if into else await self._lease(ephemeral)
        if payload.nbytes <= INLINE_BYTES_MAX:
            request = _wire.new("PutRequest", spec=data.spec, name=name, into=into, device=device)
            framed = _wire.Framed(request, payload)
            response = await self.line.unary("Tensors.Put", framed, lease=lease)
        else:
            start = _wire.new("UploadStart", spec=data.spec, name=name, into=into, device=device)
            response = await self.line.give("Tensors.Upload", _chunks(start, payload), lease)
        return tensor_of(self, response.tensor)  # type: ignore[arg-type]

    async def create(
        self,
        shape: Sequence[int],
        dtype: "DtypeLike" = "FP32",
        name: str = "",
        device: str = "",
        ephemeral: bool | None = None,
    ) -> Tensor:
        """Make a tensor that is filled with zeros.

        name, device, ephemeral  as put() has them

        Returns: the tensor.
        Raises: as put(), and BAD_SHAPE.
        Example:
            >>> agent.create((1024, 1024), "BF16", device="cuda:0")
        """
        spec = dtypes.spec(dtypes.name_of(dtype), shape)
        request = _wire.new("CreateRequest", spec=spec, name=name, device=device)
        lease = await self._lease(ephemeral)
        response = await self.line.unary("Tensors.Create", request, lease=lease)
        return tensor_of(self, response.tensor)  # type: ignore[arg-type]

    async def stat(self, tensor: Tensor | str) -> "Message":
        """Ask what the agent knows of a tensor, without waiting for the op that writes it.

        Returns: a tutti.v1.StatResponse (proto/tutti/v1/tensors_service.proto).
        Raises: TuttiError NO_TENSOR.
        Example:
            >>> agent.stat("weights").info.tensor.spec.shape
            [4]
        """
        request = _wire.new("StatRequest", handle=handle_of(tensor))
        return await self.line.unary("Tensors.Stat", request)

    async def tensor(self, name: str) -> Tensor:
        """Find a tensor by handle or name.

        Returns: the tensor.
        Raises: TuttiError NO_TENSOR.
        Example:
            >>> agent.tensor("weights").numpy()
        """
        response = await self.stat(name)
        return tensor_of(self, response.info.tensor)  # type: ignore[arg-type]

    async def tensors(self) -> list[Tensor]:
        """List all tensors of the agent, but for those that hold arrays of programs ("tutti.tmp/", "tutti.arena/").

        Returns: the tensors, in the order they were made.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> [one.nbytes for one in agent.tensors()]
        """
        found, token = [], ""
        while True:
            request = _wire.new("ListRequest", page_size=1000, page_token=token)
            page = await self.line.unary("Tensors.List", request)
            seen = [one for one in page.tensors if not one.name.startswith(("tutti.tmp/", "tutti.arena/"))]
            found += [tensor_of(self, one.tensor) for one in seen]  # type: ignore[arg-type]
            token = page.next_page_token
            if not token:
                return found

    async def delete(self, *tensors: Tensor | str) -> None:
        """Free tensors, all or none of up to 1024.

        Returns: None.
        Raises: TuttiError NO_TENSOR: one of them is not there, and none was freed.
        Example:
            >>> agent.delete("weights", x)
        """
        request = _wire.new("DeleteRequest", handles=[handle_of(one) for one in tensors])
        await self.line.unary("Tensors.Delete", request)
