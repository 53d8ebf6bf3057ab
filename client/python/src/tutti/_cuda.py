"""Memory of a GPU that an agent has handed over, by the CUDA runtime that is there."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any

import numpy as np

from .dtypes import Kind, numpy_dtype
from .errors import TuttiError, make
from .status import StatusCode

NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
IPC_BYTES = 64
UUID_AT, UUID_BYTES = 256, 16  # in a cudaDeviceProp, since CUDA 10
PROPERTIES_BYTES = 8192  # more than any runtime writes
LAZY_PEER_ACCESS = 1
NON_BLOCKING = 1
COPY_DEFAULT = 4  # cudaMemcpyKind: by the addresses

_lock = threading.Lock()
_runtimes: list["Runtime"] = []


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * IPC_BYTES)]


def _failed(text: str) -> TuttiError:
    return make(StatusCode.FAILED_PRECONDITION, text, "CANNOT_SHARE")


def _load() -> ctypes.CDLL:
    """$TUTTI_CUDART, else the first of NAMES. torch and cupy bring one along: import them before."""
    stated = os.environ.get("TUTTI_CUDART", "")
    for name in [stated] if stated else NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    text = "no CUDA runtime for a tensor on a GPU: no %s; set TUTTI_CUDART to its file"
    raise _failed(text % (stated or " or ".join(NAMES)))


class Runtime:
    """The few functions of cudart that a host needs. Any thread."""

    def __init__(self) -> None:
        self._library = _load()
        self.streams: dict[int, ctypes.c_void_p] = {}

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            said = self._library.cudaGetErrorString
            said.restype = ctypes.c_char_p
            raise _failed("%s: %s" % (name, said(code).decode()))

    def number_of(self, uuid: str) -> int:
        """The number that a GPU has in this process."""
        count = ctypes.c_int()
        self.call("cudaGetDeviceCount", ctypes.byref(count))
        for number in range(count.value):
            found = ctypes.create_string_buffer(PROPERTIES_BYTES)
            newer = hasattr(self._library, "cudaGetDeviceProperties_v2")
            name = "cudaGetDeviceProperties_v2" if newer else "cudaGetDeviceProperties"
            self.call(name, found, ctypes.c_int(number))
            digits = found.raw[UUID_AT : UUID_AT + UUID_BYTES].hex()
            if digits == uuid.replace("GPU-", "").replace("-", ""):
                return number
        text = "%s is none of the %d GPUs that this process may use (CUDA_VISIBLE_DEVICES)"
        raise _failed(text % (uuid, count.value))

    def open(self, number: int, handle: bytes) -> int:
        self.call("cudaSetDevice", ctypes.c_int(number))
        found = ctypes.c_void_p()
        words = _Handle.from_buffer_copy(handle)
        self.call("cudaIpcOpenMemHandle", ctypes.byref(found), words, LAZY_PEER_ACCESS)
        return int(found.value or 0)

    def close(self, number: int, pointer: int) -> None:
        self.call("cudaSetDevice", ctypes.c_int(number))
        self.call("cudaIpcCloseMemHandle", ctypes.c_void_p(pointer))

    def _stream(self, number: int) -> ctypes.c_void_p:
        with _lock:
            if number not in self.streams:
                made = ctypes.c_void_p()
                self.call("cudaStreamCreateWithFlags", ctypes.byref(made), NON_BLOCKING)
                self.streams[number] = made
            return self.streams[number]

    def copy(self, number: int, to: int, origin: int, size: int) -> None:
        """Copy, and wait for it."""
        self.call("cudaSetDevice", ctypes.c_int(number))
        stream = self._stream(number)
        known = (ctypes.c_void_p(to), ctypes.c_void_p(origin), ctypes.c_size_t(size))
        self.call("cudaMemcpyAsync", *known, ctypes.c_int(COPY_DEFAULT), stream)
        self.call("cudaStreamSynchronize", stream)

    def finish(self, number: int) -> None:
        """Wait for all work of this process on a GPU."""
        self.call("cudaSetDevice", ctypes.c_int(number))
        if hasattr(self._library, "cudaDeviceSynchronize"):  # not in the stand-in of our tests
            self.call("cudaDeviceSynchronize")


def runtime() -> Runtime:
    """The process' own, loaded at its first use."""
    with _lock:
        if not _runtimes:
            _runtimes.append(Runtime())
        return _runtimes[0]


class GpuArray:
    """A tensor of the agent on a GPU, as a function of a host gets it. CuPy, Numba and torch take it as
    it is: cupy.asarray(x), torch.as_tensor(x). It ends with the call.

    shape, dtype, nbytes  as numpy's; of BF16 and FP8 the dtype of the bits
    device                "cuda:0": the GPU's number in this process
    """

    def __init__(self, kind: Kind, number: int, pointer: int) -> None:
        self.kind = kind
        self.number = number
        self.pointer = pointer
        self.shape = tuple(kind.shape)
        self.dtype = np.dtype(numpy_dtype(kind.name))
        self.nbytes = kind.nbytes
        self.device = "cuda:%d" % number

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        bits = self.dtype.str if self.dtype.kind != "V" else "<u%d" % self.dtype.itemsize
        data = (self.pointer, False)
        return {"shape": self.shape, "typestr": bits, "data": data, "version": 3, "strides": None}

    def __repr__(self) -> str:
        return "<GpuArray %s on %s>" % (self.kind, self.device)

    def numpy(self) -> Any:
        """A copy in host memory."""
        array = np.empty(self.shape, self.dtype)
        if array.nbytes:
            at = array.__array_interface__["data"][0]
            runtime().copy(self.number, at, self.pointer, array.nbytes)
        return array

    def set(self, array: Any) -> None:
        """Write what an array in host memory has, of this shape; converted to this dtype."""
        given = np.ascontiguousarray(np.broadcast_to(array, self.shape), self.dtype)
        if given.nbytes:
            at = given.__array_interface__["data"][0]
            runtime().copy(self.number, self.pointer, at, given.nbytes)

    def torch(self) -> Any:
        """As a torch tensor, without a copy."""
        import torch

        tensor = torch.as_tensor(self, device=self.device)
        return tensor.view(torch.bfloat16) if self.kind.name == "BF16" else tensor


class GpuMemory:
    """A tensor's memory, opened; closed with the call."""

    def __init__(self, kind: Kind, uuid: str, handle: bytes) -> None:
        found = runtime()
        number = found.number_of(uuid)
        self.array: GpuArray | None = GpuArray(kind, number, found.open(number, handle))

    def close(self) -> None:
        array, self.array = self.array, None
        if array is not None:
            runtime().close(array.number, array.pointer)


def pointer_of(thing: Any) -> tuple[int, int] | None:
    """Address and bytes of what is on a GPU: ours, torch's or anybody's; None = it is not there."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor) and not thing.is_cuda:
        return None
    words = getattr(thing, "__cuda_array_interface__", None)
    if not isinstance(words, dict):
        return None
    if words.get("strides") is not None:
        return words["data"][0], -1  # no whole tensor of the agent's
    count = int(np.prod(words["shape"], dtype=np.int64))
    return words["data"][0], count * np.dtype(words["typestr"]).itemsize

