"""Objects: bytes with a content type. Nothing is ever unpickled here.

On the wire an object is a UINT8 tensor that holds a message tutti.v1.Object (object.proto), so ranks in
other languages read it, and libtutti's tutti_object_* calls take part in the same ops.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Union, cast

import numpy as np

from . import _wire
from .errors import invalid, lost


# What json.dumps() takes.
Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]


class Blob(NamedTuple):
    """Bytes, and their content type."""

    data: bytes
    content_type: str = "application/octet-stream"

    @staticmethod
    def of(value: "Object") -> "Blob":
        """A Blob of a value: bytes as they are, text as text/plain, all else as JSON."""
        if isinstance(value, Blob):
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return Blob(bytes(value))
        if isinstance(value, str):
            return Blob(value.encode(), "text/plain; charset=utf-8")
        return Blob(json.dumps(value).encode(), "application/json")

    def value(self) -> "bytes | Json":
        """The value: text and JSON as they were given, other types as bytes."""
        if self.content_type.startswith("text/plain"):
            return self.data.decode()
        if self.content_type == "application/json":
            return cast(Json, json.loads(self.data))
        return self.data


# An object: bytes as they are, text, or what JSON can say.
Object = Union[Blob, bytes, bytearray, memoryview, Json]

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
