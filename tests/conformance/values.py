"""Tensors of the cases: bytes with dtype and shape, and when two of them are equal."""

import numpy as np

# name in the cases -> (name in proto, numpy's type of the bytes)
DTYPES = {
    "bool": ("DTYPE_BOOL", "?"),
    "uint8": ("DTYPE_UINT8", "<u1"),
    "uint16": ("DTYPE_UINT16", "<u2"),
    "uint32": ("DTYPE_UINT32", "<u4"),
    "uint64": ("DTYPE_UINT64", "<u8"),
    "int8": ("DTYPE_INT8", "<i1"),
    "int16": ("DTYPE_INT16", "<i2"),
    "int32": ("DTYPE_INT32", "<i4"),
    "int64": ("DTYPE_INT64", "<i8"),
    "float16": ("DTYPE_FP16", "<f2"),
    "bfloat16": ("DTYPE_BF16", "<u2"),
    "float32": ("DTYPE_FP32", "<f4"),
    "float64": ("DTYPE_FP64", "<f8"),
    "complex64": ("DTYPE_COMPLEX64", "<c8"),
    "complex128": ("DTYPE_COMPLEX128", "<c16"),
    "float8_e4m3fn": ("DTYPE_FP8_E4M3", "<u1"),
    "float8_e5m2": ("DTYPE_FP8_E5M2", "<u1"),
}
NAMES = {proto: name for name, (proto, _) in DTYPES.items()}
SHOWN = 8  # elements in a message


class Tensor:
    """dtype is a name of DTYPES; data is bytes, or None where only dtype and shape are said."""

    def __init__(self, dtype, shape, data):
        self.dtype = dtype
        self.shape = tuple(shape)
        self.data = data

    @classmethod
    def of_case(cls, said):
        """A tensor as cases.json writes it. `hex` is what counts; without it `data` is encoded."""
        if said.get("hex") is not None:
            data = bytes.fromhex(said["hex"])
        elif said.get("data") is not None:
            data = encode(said["dtype"], said["data"])
        else:
            data = None
        return cls(said["dtype"], said["shape"], data)

    @classmethod
    def zeros_like(cls, other):
        return cls(other.dtype, other.shape, bytes(other.byte_count()))

    def count(self):
        return int(np.prod(self.shape, dtype=np.int64))

    def byte_count(self):
        return self.count() * np.dtype(DTYPES[self.dtype][1]).itemsize

    def array(self):
        """Elements to compare and to show, flat."""
        raw = np.frombuffer(self.data, DTYPES[self.dtype][1])
        if self.dtype == "bfloat16":
            return (raw.astype("<u4") << 16).view("<f4")
        return raw

    def __str__(self):
        text = "%s%s" % (self.dtype, list(self.shape))
        if self.data is None:
            return text
        values = [str(one) for one in self.array()[:SHOWN]]
        more = " ..." if self.count() > SHOWN else ""
        return "%s(%s%s)" % (text, " ".join(values), more)

    __repr__ = __str__


def encode(dtype, data):
    """Elements as JSON writes them -> bytes."""
    if dtype == "bfloat16":
        bits = np.array([float(one) for one in data], "<f4").view("<u4")
        return (bits >> 16).astype("<u2").tobytes()
    kind = np.dtype(DTYPES[dtype][1])
    if kind.kind == "c":
        data = [complex(float(real), float(imaginary)) for real, imaginary in data]
    elif kind.kind == "f":
        data = [float(one) for one in data]
    elif kind.kind in "iu":
        data = [int(one) for one in data]
    return np.array(data, kind).tobytes()


def is_tensor(said):
    return isinstance(said, dict) and "dtype" in said and "shape" in said


def read(said):
    """What a case gives or expects, with its tensors as Tensors."""
    if is_tensor(said):
        return Tensor.of_case(said)
    if isinstance(said, dict):
        return {key: read(one) for key, one in said.items()}
    if isinstance(said, list):
        return [read(one) for one in said]
    return said


def flat(value):
    """Tensors of a value in order: None = none, a list of lists = all of them."""
    if value is None:
        return []
    if isinstance(value, list):
        return [one for part in value for one in flat(part)]
    return [value]


def _parts(array):
    return np.ascontiguousarray(array).view(array.real.dtype) if array.dtype.kind == "c" else array


def _close(got, want, tolerance):
    got, want = _parts(got), _parts(want)
    if got.dtype.kind != "f":
        return bool((got == want).all())
    with np.errstate(invalid="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        if tolerance:
            limit = tolerance.get("atol", 0) + tolerance.get("rtol", 0) * np.abs(want)
            same |= np.abs(got - want) <= limit
    return bool(same.all())


def tensors_equal(got, want, tolerance=None, exact=False):
    """By bytes; if not `exact`, NaN equals NaN, -0 equals 0, and a tolerance may be given."""
    if not isinstance(got, Tensor) or (got.dtype, got.shape) != (want.dtype, want.shape):
        return False
    if want.data is None or got.data == want.data:
        return True
    if exact or want.dtype.startswith("float8") or len(got.data) != len(want.data):
        return False
    return _close(got.array(), want.array(), tolerance)


def _multiset_equal(got, want, **how):
    left = list(got or [])
    for one in want:
        place = next((i for i, two in enumerate(left) if equal(two, one, **how)), None)
        if place is None:
            return False
        del left[place]
    return not left


def equal(got, want, **how):
    """Does what came agree with what read() made of an expectation?"""
    if isinstance(want, Tensor):
        return tensors_equal(got, want, **how)
    if isinstance(want, dict) and list(want) == ["any_of"]:
        return any(equal(got, one, **how) for one in want["any_of"])
    if isinstance(want, dict) and len(want) == 1 and next(iter(want)).startswith("multiset_of_"):
        return _multiset_equal(got, next(iter(want.values())), **how)
    if isinstance(want, dict):
        return (
            isinstance(got, dict)
            and set(want) <= set(got)
            and all(equal(got[key], one, **how) for key, one in want.items())
        )
    if isinstance(want, list):
        return (
            isinstance(got, (list, tuple))
            and len(got) == len(want)
            and all(equal(one, two, **how) for one, two in zip(got, want))
        )
    if isinstance(want, (bool, type(None))) or isinstance(got, bool):
        return got is want
    return got == want


def dtype_and_shape(want):
    """The tensors that an expectation describes, flat; of alternatives the first."""
    if isinstance(want, dict) and list(want) == ["any_of"]:
        want = want["any_of"][0]
    return flat(want)
