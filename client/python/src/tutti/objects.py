"""Objects: bytes with a content type. Nothing is unpickled but by Blob.unpickle().

On the wire an object is a UINT8 tensor that holds a message tutti.v1.Object (object.proto), so ranks in
other languages read it, and libtutti's tutti_object_* calls take part in the same ops.
"""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any, NamedTuple, Union

import numpy as np

from . import _wire, dtypes
from .errors import invalid, lost


# What json.dumps() takes.
Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]

# JSON in which an object of one key that begins with "$" is a value that JSON lacks: _TAGS.
TAGGED = "application/vnd.tutti.values+json"
PICKLED = "application/vnd.tutti.pickle"


def _is_json(value: Any) -> bool:
    """Does it come back from JSON as it was?"""
    if isinstance(value, list):
        return all(_is_json(one) for one in value)
    if type(value) is dict:
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)


def _text_of(data: Any) -> str:
    return base64.b64encode(data).decode()


def _is_dtype(value: Any) -> bool:
    return isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))


def _tagged(value: Any) -> Any:
    """A value as TAGGED says it."""
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _tagged(one) for key, one in value.items()}
        return {"$dict": [[_tagged(key), _tagged(one)] for key, one in value.items()]}
    if isinstance(value, list):
        return [_tagged(one) for one in value]
    for kind, name in ((tuple, "$tuple"), (frozenset, "$frozenset"), (set, "$set")):
        if isinstance(value, kind):
            return {name: [_tagged(one) for one in value]}
    if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic):
        return value
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return {"$complex": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": _text_of(value)}
    if _is_dtype(value):
        return {"$dtype": dtypes.name_of(value)}
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__dlpack__"):
        data = dtypes.data_of(value)
        name = "$number" if isinstance(value, np.generic) else "$tensor"
        return {name: [data.name, list(data.array.shape), _text_of(data.payload)]}
    text = "a %s is no object that all clients can read: send bytes, text, JSON, arrays, sets; or Blob.pickled() of it, and unpickle() on the other side"
    raise invalid("BAD_VALUE", text % type(value).__name__)


def _array(said: Any) -> Any:
    name, shape, text = said
    return dtypes.array_of(dtypes.Kind(str(name), tuple(int(n) for n in shape)), base64.b64decode(text))


_TAGS: dict[str, Any] = {
    "$dict": lambda said: {_plain(key): _plain(one) for key, one in said},
    "$tuple": lambda said: tuple(_plain(one) for one in said),
    "$frozenset": lambda said: frozenset(_plain(one) for one in said),
    "$set": lambda said: {_plain(one) for one in said},
    "$complex": lambda said: complex(*said),
    "$bytes": base64.b64decode,
    "$dtype": lambda said: dtypes.numpy_dtype(str(said)),
    "$tensor": _array,
    "$number": lambda said: _array(said)[()],
}


def _plain(said: Any) -> Any:
    """The value that TAGGED says."""
    if isinstance(said, list):
        return [_plain(one) for one in said]
    if not isinstance(said, dict):
        return said
    tag = next(iter(said), "")
    if not tag.startswith("$"):
        return {key: _plain(one) for key, one in said.items()}
    return _TAGS[tag](said[tag])


class Blob(NamedTuple):
    """Bytes, and their content type."""

    data: bytes
    content_type: str = "application/octet-stream"

    @staticmethod
    def of(value: "Object") -> "Blob":
        """A Blob of a value: bytes as they are, text as text/plain, what JSON can say as JSON. Arrays, numbers
        of numpy, dtypes, tuples, sets, bytes and complex numbers, also in lists and dicts, as TAGGED.

        Raises: TuttiError BAD_VALUE: anything else; BAD_DTYPE: an array of a dtype that Tutti lacks.
        """
        if isinstance(value, Blob):
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return Blob(bytes(value))
        if isinstance(value, str):
            return Blob(value.encode(), "text/plain; charset=utf-8")
        if _is_json(value):
            return Blob(json.dumps(value).encode(), "application/json")
        return Blob(json.dumps(_tagged(value)).encode(), TAGGED)

    @staticmethod
    def pickled(value: Any) -> "Blob":
        """A Blob of anything that pickle takes. Only Python reads it, and only by unpickle()."""
        return Blob(pickle.dumps(value), PICKLED)

    def value(self) -> Any:
        """The value, as it was given to of(); other types, and what was pickled, as bytes.

        Raises: TuttiError DATA_LOSS: the bytes are not what the content type says.
        """
        if self.content_type.startswith("text/plain"):
            return self.data.decode()
        if self.content_type == "application/json":
            return json.loads(self.data)
        if self.content_type != TAGGED:
            return self.data
        try:
            return _plain(json.loads(self.data))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise lost("an object of %s that cannot be read: %s" % (TAGGED, error)) from None

    def unpickle(self) -> Any:
        """The value of a Blob that pickled() has made. A pickle may run any code of whoever made it: call
        this only if you trust every rank that may have sent it.

        Raises: TuttiError BAD_VALUE: it was not pickled; and what pickle raises.
        """
        if self.content_type != PICKLED:
            raise invalid("BAD_VALUE", "an object of %s was not pickled: call value()" % self.content_type)
        return pickle.loads(self.data)


# An object: a Blob, or what Blob.of() takes.
Object = Any

CONTENT_TYPE_MAX = 127  # bytes


def pack(value: Any) -> Any:
    """The array in which a value travels."""
    blob = Blob.of(value)
    if len(blob.content_type.encode()) > CONTENT_TYPE_MAX:
        raise invalid("BAD_NAME", "a content type of more than %d bytes" % CONTENT_TYPE_MAX)
    message = _wire.new("Object", content_type=blob.content_type)
    return np.frombuffer(_wire.encode(_wire.Framed(message, memoryview(blob.data))), np.uint8)


def unpack(array: Any) -> Blob:
    """The object in an array that has travelled."""
    data = array.tobytes()
    try:
        message = _wire.message("tutti.v1.Object").FromString(data)
    except Exception:  # the runtimes' DecodeErrors have no common base
        message = None
    known = message is not None and len(message.content_type.encode()) <= CONTENT_TYPE_MAX
    if not known or array.dtype != np.uint8:
        raise lost(
            "%d bytes came that are not an object: let all ranks call the op for objects"
            % len(data)
        )
    return Blob(message.payload, message.content_type)
