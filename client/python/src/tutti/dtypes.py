"""Arrays and dtypes: numpy's, torch's, and the wire's.

BF16 and FP8 are numpy types when ml_dtypes is installed; without it their bits come as uint16 and
uint8, and `dtype="BF16"` says on the way in what such bits are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _wire
from .errors import TuttiError, invalid, lost

ml_dtypes: Any
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

NAMES: dict[str, Any] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "COMPLEX64": np.complex64,
    "COMPLEX128": np.complex128,
}
# What numpy has no type for: ml_dtypes' name, and what holds the bits.
_FOREIGN: dict[str, tuple[str, Any]] = {
    "BF16": ("bfloat16", np.uint16),
    "FP8_E4M3": ("float8_e4m3fn", np.uint8),
    "FP8_E5M2": ("float8_e5m2", np.uint8),
}


def _table() -> dict[str, Any]:
    table = {name: np.dtype(kind) for name, kind in NAMES.items()}
    for name, (theirs, bits) in _FOREIGN.items():
        table[name] = np.dtype(getattr(ml_dtypes, theirs) if ml_dtypes else bits)
    return table


_DTYPES = _table()
# Bits without a type of their own are what they look like.
_NAME_OF = {dtype: name for name, dtype in reversed(_DTYPES.items())}
_NUMBERS = _wire.enum_numbers("Dtype", "DTYPE_")
_NAME_OF_NUMBER = {number: name for name, number in _NUMBERS.items()}


def numpy_dtype(name: str) -> Any:
    """The numpy dtype for a name such as "FP32"."""
    if name not in _DTYPES:
        raise invalid("BAD_DTYPE", "no dtype %s, need one of %s" % (name, ", ".join(_DTYPES)))
    return _DTYPES[name]


def name_of(dtype: Any) -> str:
    """The name, "FP32" say, of a numpy dtype, of what numpy makes one of, or of a name."""
    if isinstance(dtype, str) and dtype.upper() in _DTYPES:
        return dtype.upper()
    try:
        known = np.dtype(dtype)
    except TypeError:
        names = ", ".join(_DTYPES)
        raise invalid("BAD_DTYPE", "there is no dtype %s: need one of numpy's, or %s" % (dtype, names)) from None
    name = _NAME_OF.get(known.newbyteorder("=") if known.byteorder in "<>" else known)
    if name is None:
        raise invalid("BAD_DTYPE", "a tensor cannot have numpy's dtype %s" % known)
    return name


def spec(name: str, shape: Any) -> Any:
    """A TensorSpec."""
    return _wire.new("TensorSpec", dtype=_NUMBERS[name], shape=[int(n) for n in shape])


class Kind(NamedTuple):
    """The dtype and shape of a TensorSpec."""

    name: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        count = numpy_dtype(self.name).itemsize
        for n in self.shape:
            count *= n
        return int(count)

    def __str__(self) -> str:
        return "%s%s" % (self.name, list(self.shape))

    def empty(self) -> Any:
        return np.empty(self.shape, numpy_dtype(self.name))


def kind_of(message: Any) -> Kind | None:
    """The Kind of a TensorSpec; None while its dtype is not known."""
    name = _NAME_OF_NUMBER.get(message.dtype, "UNSPECIFIED")
    return Kind(name, tuple(message.shape)) if name in _DTYPES else None


# ------------------------------------------------------------------------------ arrays


class Data(NamedTuple):
    """An array as it travels, row-major and little-endian; and the object that the caller gave."""

    array: Any
    name: str
    given: Any

    @property
    def spec(self) -> Any:
        return spec(self.name, self.array.shape)

    @property
    def payload(self) -> memoryview:
        return bytes_of(self.array)


def bytes_of(array: Any) -> memoryview:
    """The memory of a row-major array."""
    return memoryview(array.reshape(-1).view(np.uint8))


def is_torch(thing: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def _from_torch(tensor: Any) -> tuple[Any, str | None]:
    import torch

    plain = tensor.detach().cpu().contiguous()
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(np.uint16), "BF16"
    return np.from_dlpack(plain), None


def _as(array: Any, name: str) -> Any:
    """An array converted to a dtype; bits of BF16 and FP8 are taken as they are."""
    wanted = numpy_dtype(name)
    if name in _FOREIGN and array.dtype in (wanted, np.dtype(_FOREIGN[name][1])):
        return array
    if name in _FOREIGN and ml_dtypes is None:
        raise invalid("BAD_DTYPE", "%s from %s needs the package ml_dtypes" % (name, array.dtype))
    return array.astype(wanted, copy=False)


def data_of(thing: Any, dtype: str | None = None) -> Data:
    """The Data of an array: numpy's, torch's, any with DLPack, or lists of numbers."""
    name = name_of(dtype) if dtype is not None else None
    if is_torch(thing):
        array, bits = _from_torch(thing)
        name = name or bits
    elif isinstance(thing, np.ndarray) or not hasattr(thing, "__dlpack__"):
        array = np.asarray(thing)
    else:
        array = np.from_dlpack(thing)
    if name is not None:
        array = _as(array, name)
    name = name or name_of(array.dtype)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return Data(np.asarray(array, order="C"), name, thing)


def array_of(kind: Kind, payload: Any) -> Any:
    """A writable array with these bytes."""
    if len(payload) != kind.nbytes:
        raise lost("%d bytes came for %s" % (len(payload), kind))
    array = kind.empty()
    bytes_of(array)[:] = payload
    return array


def to_torch(array: Any, name: str, like: Any = None) -> Any:
    """A torch tensor that shares the array's memory, unless `like` is on another device."""
    import torch

    if name == "BF16":
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_dlpack(array)
    return tensor if like is None else tensor.to(like.device)


def like(array: Any, name: str, given: Any) -> Any:
    """The array in the kind that the caller gave: a torch tensor for a torch tensor."""
    return to_torch(array, name, given) if is_torch(given) else array


def _name_of_torch(dtype: Any) -> str:
    word = str(dtype).rpartition(".")[2]
    return "BF16" if word == "bfloat16" else name_of(word)


def _fault_of(out: Any, is_one: bool) -> str | None:
    """Why a result cannot be written to this array; None: it can."""
    what = "out" if is_one else "an array of out"
    if is_torch(out):
        import torch

        if out.requires_grad and out.is_leaf and torch.is_grad_enabled():
            return what + " is a leaf of autograd that requires grad: use torch.no_grad()"
        if out.device.type == "meta" or any(n > 1 and not step for n, step in zip(out.shape, out.stride())):
            return what + " has no memory of its own for each element"
    elif not isinstance(out, np.ndarray):
        return what + " is a %s: give a NumPy array, a torch tensor, or a Tensor" % type(out).__name__[:60]
    elif not out.flags.writeable:
        return what + " is read-only"
    try:
        _name_of_torch(out.dtype) if is_torch(out) else name_of(out.dtype)
    except TuttiError as error:
        return what + ": " + error.text[:180]
    return None


def fault_of(outs: Sequence[Any]) -> str | None:
    """Why results cannot be written to these arrays, whatever they are; None: they can."""
    faults = (_fault_of(one, len(outs) == 1) for one in outs)
    return next((fault for fault in faults if fault is not None), None)


def expected(out: Any, name: str | None) -> Any:
    """The TensorSpec of a result for this array. name: of the input's dtype, for bits that look alike."""
    own = _name_of_torch(out.dtype) if is_torch(out) else name_of(out.dtype)
    alike = name in _FOREIGN and ml_dtypes is None and np.dtype(_FOREIGN[name][1]) == _DTYPES[own]
    return spec(name if alike and name else own, out.shape)


def copy_into(out: Any, array: Any, name: str) -> Any:
    """Write a result into the caller's array."""
    if is_torch(out):
        out.copy_(to_torch(array, name).reshape(out.shape))
    else:
        np.copyto(out, array.reshape(out.shape), casting="equiv")
    return out
