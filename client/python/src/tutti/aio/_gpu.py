"""A tensor on a GPU, opened by other processes of its machine."""

from __future__ import annotations

from typing import Any

from .. import _wire, errors
from ._tensor import Tensor, handle_of, tensor_of


class GpuShare:
    """A tensor on a GPU that this process may open, until close() or the end of a `with` block.

    Its memory stays where it is as long as the share is open. Close what was opened before the share.
    Nobody keeps reads and writes of the program and of ops apart.

    tensor      whose memory it is
    ipc_handle  the 64 bytes of a cudaIpcMemHandle_t: cudaIpcOpenMemHandle() gives the first byte
    gpu_uuid    "GPU-...": of the GPU to select before, whatever its number is here
    nbytes      of the tensor
    host_id     of the agent; processes elsewhere cannot open it
    """

    def __init__(self, stream: Any, tensor: Tensor, said: Any) -> None:
        self._stream = stream
        self.tensor = tensor
        self.ipc_handle = bytes(said.ipc_handle)
        self.gpu_uuid = str(said.gpu_uuid)
        self.nbytes = int(said.byte_count)
        self.host_id = str(said.host_id)

    def __repr__(self) -> str:
        return "<GpuShare of %r on %s>" % (self.tensor, self.gpu_uuid)

    async def close(self) -> None:
        """End the share.

        Returns: None.
        Raises: nothing.
        Example:
            >>> share.close()
        """
        self._stream.cancel()

    async def __aenter__(self) -> "GpuShare":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class GpuShares:
    """The part of an Agent that hands over GPU memory."""

    line: Any

    async def share_gpu(self, tensor: Tensor | str) -> GpuShare:
        """Let this process open a tensor on a GPU. Waits for the ops that use it.

        Returns: the share; end it when the memory is closed.
        Raises: TuttiError CANNOT_SHARE: it is in host memory, or has no bytes; NO_TENSOR.
        Example:
            >>> with agent.share_gpu(x) as share:
            ...     pointer = cuda.ipc_open(share.ipc_handle)
        """
        request = _wire.new("ShareGpuRequest", handle=handle_of(tensor))
        stream = await self.line.watch("Tensors.ShareGpu", request)
        said = await stream.receive()
        if said is None:
            raise errors.lost("%s was not shared, and no error said why" % handle_of(tensor))
        return GpuShare(stream, tensor_of(self, said.tensor), said)  # type: ignore[arg-type]
