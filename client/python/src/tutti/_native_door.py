"""The native module `tutti._native`: whether this process uses it.

TUTTI_PYTHON  "grpc" = never; "native" = always, and an error where it is not there; else where it is
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterable
from typing import Any

from . import _reach, errors
from ._settings import Pings, Settings
from .status import StatusCode, code_of

# Of Call.next().
NOTHING, MESSAGE, ENDED = 0, 1, 2

# Of a call that may send more: GENERIC_UNSENT_BYTES of libtutti.
UNSENT_BYTES = 2 << 20


def _make(
    code: int, text: str, reason: str, scope: int, group: str, sequence: int, rank: int, details: bytes
) -> errors.TuttiError:
    info = errors.info_in(details) if details else None
    metadata = None if info is None else dict(info.metadata)
    text = _reach.name_options(text) if reason == "UNREACHABLE" and info is None else text
    return errors.make(code_of(code), text, reason, group=group, op=sequence, rank=rank, metadata=metadata)


def _check_version(module: Any) -> None:
    """Structs of libtutti may grow with a minor version: the one that is loaded has to be that of the build."""
    loaded, built = module.version(), module.built_for()
    if loaded.split(".")[:2] != built.split(".")[:2]:
        raise ImportError("it was built for libtutti %s, and libtutti %s is loaded" % (built, loaded))


def _load() -> Any:
    wanted = os.environ.get("TUTTI_PYTHON", "")
    if wanted not in ("", "native", "grpc"):
        text = "TUTTI_PYTHON is %s, need native, grpc, or nothing"
        raise errors.invalid("BAD_OPTION", text % wanted)
    if wanted == "grpc":
        return None
    try:
        module = importlib.import_module("tutti._native")
        _check_version(module)
    except ImportError as error:
        if wanted == "native":
            text = "TUTTI_PYTHON is native, and the native module cannot be loaded (%s): install a wheel of this system, or unset it"
            raise errors.make(StatusCode.UNIMPLEMENTED, text % error, "NO_NATIVE") from None
        return None
    module.set_error(_make)
    return module


native = _load()
connected = False  # gRPC runs in this process, with threads that no fork of it has


# ------------------------------------------------------------------------------ generic calls


def nothing_there(error: ImportError) -> errors.TuttiError:
    """The error where neither the native module nor grpcio can be loaded."""
    text = "this package has no native module for this system, and grpcio cannot be loaded (%s): pip install grpcio"
    return errors.make(StatusCode.UNIMPLEMENTED, text % error, "NO_NATIVE")


def open_channel(address: str, settings: Settings, pings: Pings) -> Any:
    """A connection of libtutti. The token travels with each call, as metadata."""
    secure = settings.certificates(address) is not None
    return native.Channel(
        address,
        tls_ca=settings.tls_ca if secure else None,
        tls_cert=settings.tls_cert if secure else None,
        tls_key=settings.tls_key if secure else None,
        tls_name=settings.tls_name if secure else None,
        keepalive_ms=pings[0],
        keepalive_timeout_ms=pings[1],
    )


def in_ms(timeout: float | None) -> int:
    """Milliseconds of libtutti, of which 0 = no limit."""
    return 0 if timeout is None else max(1, min(math.ceil(timeout * 1000), 2**32 - 2))


def pairs_of(metadata: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(text for pair in metadata for text in pair)


def response_of(found: Any, ended: errors.TuttiError | None) -> bytes:
    """The response of a call that has one, from its message and its end."""
    if ended is not None:
        raise ended
    if not isinstance(found, bytes):
        raise errors.lost("a call was answered OK without a message")
    return found
