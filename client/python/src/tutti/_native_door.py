"""The native module `tutti._native`: whether this process uses it.

TUTTI_PYTHON  "grpc" = never; "native" = always, and an error where it is not there; else where it is
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import grpc

from . import errors

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _make(
    code: int, text: str, reason: str, scope: int, group: str, sequence: int, rank: int
) -> errors.TuttiError:
    known = {"group": group, "op": sequence, "rank": rank}
    return errors.make(_CODES.get(code, grpc.StatusCode.UNKNOWN), text, reason, **known)


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
            raise errors.make(grpc.StatusCode.UNIMPLEMENTED, text % error, "NO_NATIVE") from None
        return None
    module.set_error(_make)
    return module


native = _load()
