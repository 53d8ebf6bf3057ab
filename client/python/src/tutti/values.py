"""Plain values: what a function takes and gives besides tensors, and what registers of a session hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

import numpy as np

from . import _wire, dtypes
from .errors import invalid, lost

TEXT_BYTES_MAX = 1 << 20  # of a text, and of bytes


class Shape(tuple[int, ...]):
    """The dimensions of a tensor, as a value: `Shape([2, 3])`."""

    def __new__(cls, dims: Iterable[int] = ()) -> "Shape":
        return super().__new__(cls, [int(n) for n in dims])

    def __repr__(self) -> str:
        return "Shape(%s)" % list(self)


class Device(str):
    """Where a tensor is, as a value: `Device("cuda:0")`. A plain str is text."""

    def __repr__(self) -> str:
        return "Device(%s)" % super().__repr__()


class Dtype(str):
    """What an element is, as a value, in the wire's words: `Dtype("BF16")`, `Dtype(np.float32)`."""

    def __new__(cls, dtype: Any) -> "Dtype":
        return super().__new__(cls, dtypes.name_of(dtype))

    def __repr__(self) -> str:
        return "Dtype(%s)" % super().__repr__()

    @property
    def numpy(self) -> "np.dtype[Any]":
        """numpy's dtype; that of the bits for BF16 and FP8 without ml_dtypes."""
        found: np.dtype[Any] = dtypes.numpy_dtype(self)
        return found


class Function(str):
    """A function by its name, as a value. A plain str is text."""

    def __repr__(self) -> str:
        return "Function(%s)" % super().__repr__()


# What functions take and give besides tensors.
Plain = Union[
    None, bool, int, float, str, bytes, "tuple[int, ...]", "np.dtype[Any]", type,
    Shape, Device, Dtype, Function,
]  # fmt: skip

# ------------------------------------------------------------------------------ to the wire


def _integer(number: Any) -> Any:
    number = int(number)
    if not -(1 << 63) <= number < 1 << 63:
        raise invalid("BAD_VALUE", "the int %d does not fit into 64 bits" % number)
    return _wire.new("Value", integer=number)


def _text(text: str) -> Any:
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise invalid("BAD_VALUE", "a text of more than %d bytes" % TEXT_BYTES_MAX)
    return _wire.new("Value", text=text)


def _data(data: Any) -> Any:
    if len(data) > TEXT_BYTES_MAX:
        said = "%d bytes, at most %d are a value: make a UINT8 tensor of them"
        raise invalid("BAD_VALUE", said % (len(data), TEXT_BYTES_MAX))
    return _wire.new("Value", data=bytes(data))


def _shape(dims: Any) -> Any:
    if not all(isinstance(n, (int, np.integer)) for n in dims):
        raise invalid("BAD_VALUE", "a tuple is a shape, and %r has more than ints" % (dims,))
    return _wire.new("Value", shape=_wire.new("Shape", dims=[int(n) for n in dims]))


def _dtype(dtype: Any) -> Any:
    spec = dtypes.spec(dtypes.name_of(dtype), ())
    return _wire.new("Value", dtype=spec.dtype)


def _is_dtype(thing: Any) -> bool:
    return isinstance(thing, np.dtype) or (isinstance(thing, type) and issubclass(thing, np.generic))


# The first that fits: kinds of str come before it.
_WRITERS: list[tuple[Any, Any]] = [
    ((bool, int, np.integer, np.bool_), _integer),
    ((float, np.floating), lambda one: _wire.new("Value", real=float(one))),
    (Device, lambda one: _wire.new("Value", device=str(one))),
    (Function, lambda one: _wire.new("Value", function=str(one))),
    (Dtype, _dtype),
    (str, _text),
    ((bytes, bytearray, memoryview), _data),
    (tuple, _shape),
]


def _refusal(thing: Any) -> str:
    if hasattr(thing, "__dlpack__") or isinstance(thing, np.ndarray):
        return "an array is no value: send it to the workers first, with broadcast() or scatter()"
    if isinstance(thing, list):
        return "a list is no value: a tuple of ints is a shape"
    known = "None, int, float, str, bytes, a dtype, a Device, a Shape, a Function"
    return "a %s is no value: it is none of %s" % (type(thing).__name__, known)


def to_wire(thing: Any) -> Any:
    """A tutti.v1.Value of a plain value."""
    if thing is None:
        return _wire.new("Value", null=True)
    for kinds, write in _WRITERS:
        if isinstance(thing, kinds):
            return write(thing)
    if _is_dtype(thing):
        return _dtype(thing)
    raise invalid("BAD_VALUE", _refusal(thing))


# ------------------------------------------------------------------------------ from the wire


def _dtype_of(number: int) -> Dtype:
    kind = dtypes.kind_of(_wire.new("TensorSpec", dtype=number))
    if kind is None:
        raise lost("a dtype of number %d, which is unknown here" % number)
    return Dtype(kind.name)


_READERS: dict[str, Any] = {
    "null": lambda _: None,
    "integer": int,
    "real": float,
    "text": str,
    "data": bytes,
    "dtype": _dtype_of,
    "device": Device,
    "shape": lambda shape: Shape(shape.dims),
    "function": Function,
}


def of_wire(value: Any) -> Any:
    """The plain value that a tutti.v1.Value is; not of a tensor."""
    kind = value.WhichOneof("kind") or "null"
    if kind not in _READERS:
        raise lost("a value of the kind %s, which is none of a register" % kind)
    return _READERS[kind](getattr(value, kind))
