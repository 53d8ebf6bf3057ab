"""A tensor on a GPU, opened by other processes of its machine, and events that order ops on it."""

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


class GpuEvents:
    """Events of CUDA that this process and ops share, until close() or the end of a `with` block.

    Destroy what was opened before you close them. Before its first record an event counts as complete.

    ids          their numbers, for `events` of ops
    ipc_handles  the 64 bytes of a cudaIpcEventHandle_t for each: cudaIpcOpenEventHandle() gives an event
    gpu_uuid     "GPU-...": of the GPU to select before, whatever its number is here
    host_id      of the agent; processes elsewhere cannot open them
    """

    def __init__(self, stream: Any, said: Any) -> None:
        self._stream = stream
        self.ids = tuple(int(event.id) for event in said.events)
        self.ipc_handles = tuple(bytes(event.ipc_handle) for event in said.events)
        self.gpu_uuid = str(said.gpu_uuid)
        self.host_id = str(said.host_id)

    def __repr__(self) -> str:
        return "<GpuEvents: %d on %s>" % (len(self.ids), self.gpu_uuid)

    async def close(self) -> None:
        """Give the events back. An op that waits for one that is not recorded fails.

        Returns: None.
        Raises: nothing.
        Example:
            >>> events.close()
        """
        self._stream.cancel()

    async def __aenter__(self) -> "GpuEvents":
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

    async def share_events(self, count: int = 2, device: str = "cuda") -> GpuEvents:
        """Have events of CUDA made, so that ops take their place between the work of a stream (docs/gpu.md).

        count   1 to 256
        device  a GPU of the agent; "cuda" = its first

        Returns: the events; close them when the ops that name them have ended.
        Raises: TuttiError UNIMPLEMENTED: the agent is older, or its GPU has none; NO_DEVICE: there is no such
            GPU; NO_BACKEND: it runs no ops there; BAD_EVENT: the count; EVENT_LIMIT: the agent has 4096.
        Example:
            >>> with agent.share_events() as events:
            ...     ready, done = map(cuda.ipc_open_event, events.ipc_handles)
            ...     cuda.record(ready, stream)
            ...     work = agent.all_reduce(x, out=x, async_=True, events=events.ids)
            ...     cuda.wait(stream, done)
        """
        request = _wire.new("ShareEventsRequest", count=count, device=device)
        stream = await self.line.watch("Tensors.ShareEvents", request)
        said = await stream.receive()
        if said is None:
            raise errors.lost("no events were made, and no error said why")
        return GpuEvents(stream, said)
