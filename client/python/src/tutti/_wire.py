"""The wire: message classes and methods, made from the descriptors that the build put here.

The pool is our own, so other packages' google.rpc or tutti protos cannot clash with these.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PAYLOAD_TAG = b"\xa2\x06"  # field 100, length-delimited


def _names(prefix: str, messages: Iterable[Any]) -> Iterator[str]:
    """The full names of messages, and of those inside of them."""
    for one in messages:
        yield prefix + one.name
        yield from _names(prefix + one.name + ".", one.nested_type)


def _load() -> tuple[Any, list[str]]:
    """The pool, and the names of all its messages."""
    data = resources.files("tutti").joinpath("tutti.protoset").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    names: list[str] = []
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
        names += _names(file.package + ".", file.message_type)
    return pool, names


_pool, _messages = _load()


@functools.lru_cache(maxsize=None)
def message(name: str) -> Any:
    """The class of the message with this full name."""
    descriptor = _pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_pool).GetPrototype(descriptor)


# protobuf's own cache of classes is weak. If the last message of a class goes, and another thread
# makes one of it while the garbage collector takes the class away, the runtime in C crashes
# (protobuf 7.36): so all classes stay. They are made in a few milliseconds.
for _name in _messages:
    message(_name)


def new(name: str, /, **fields: Any) -> Any:
    """A new message of tutti.v1."""
    return message("tutti.v1." + name)(**fields)


@functools.lru_cache(maxsize=None)
def enum_numbers(name: str, prefix: str) -> dict[str, int]:
    """The numbers of an enum of tutti.v1, by its names without their prefix."""
    values = _pool.FindEnumTypeByName("tutti.v1." + name).values
    return {value.name[len(prefix) :]: value.number for value in values}


class Method(NamedTuple):
    """An RPC: its name, its path, and the classes of its request and response."""

    name: str
    path: str
    request: Any
    response: Any


@functools.lru_cache(maxsize=None)
def method(name: str) -> Method:
    """The RPC with this name: the service without "Service", and the method: "Tensors.Put"."""
    service, rpc = name.split(".")
    full = "tutti.v1.%sService" % service
    found = _pool.FindServiceByName(full).methods_by_name[rpc]
    return Method(
        name,
        "/%s/%s" % (full, rpc),
        message(found.input_type.full_name),
        message(found.output_type.full_name),
    )


class Framed(NamedTuple):
    """A message and its payload, which is copied once: into the bytes that gRPC sends."""

    message: Any
    payload: memoryview


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(what: Any) -> bytes:
    """The bytes of a message or Framed."""
    if not isinstance(what, Framed):
        return bytes(what.SerializeToString())
    head = what.message.SerializeToString()
    return b"".join([head, PAYLOAD_TAG, _varint(what.payload.nbytes), what.payload])
