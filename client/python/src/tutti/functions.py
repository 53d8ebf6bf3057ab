"""Functions that this program offers to callers of agents: `@tutti.function("name")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from . import errors
from .status import StatusCode

F = TypeVar("F", bound=Callable[..., Any])

ARRAYS = ("numpy", "torch")


class Definition(NamedTuple):
    """A function that can be called by its name.

    takes_env  its first parameter is called `env`
    arrays     what its tensors are: "numpy" or "torch"
    """

    name: str
    call: Callable[..., Any]
    signature: str
    takes_env: bool
    arrays: str


_known: dict[str, Definition] = {}


def known() -> dict[str, Definition]:
    """All functions that modules of this process have defined so far, by name."""
    return dict(_known)


def _takes_env(call: Callable[..., Any]) -> bool:
    try:
        names = list(inspect.signature(call).parameters)
    except (TypeError, ValueError):  # a function in C that does not say
        return False
    return names[:1] == ["env"]


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """The same function of a module that was loaded again."""
    names = ("__module__", "__qualname__")
    return all(getattr(one, name, 1) == getattr(other, name, 2) for name in names)


def function(name: str, *, signature: str = "", arrays: str = "numpy") -> Callable[[F], F]:
    """Offer a function by a name, once this process is a host: Agent.serve(), or
    `python3 -m tutti.host MODULE` with the module that the function is in.

    If the function's first parameter is called `env`, it gets the tutti.host.Env of the call, with
    the worker's number and collectives. The other arguments are values (None, int, float, str,
    bytes, Dtype, Device, Shape, Function) and arrays. An array is the memory of the tensor itself:
    it is not a copy, and must not be used after the function has returned. What the function writes
    into it stays. The result is a value or an array: one of the arguments or of env.empty() without
    a copy, any other with one. A tensor on a GPU comes as a GpuArray, which cupy.asarray() and
    torch.as_tensor() take without a copy; all that was launched is waited for when the function has
    returned. The process needs a CUDA runtime: $TUTTI_CUDART, or libcudart on the loader's path.

    name       by which it is called; must begin with one of the agent's --functions
    signature  what it takes and gives, for people
    arrays     "numpy", or "torch": tensors come as torch tensors

    Returns: a decorator, which leaves the function as it is.
    Raises: TuttiError ALREADY_EXISTS FUNCTION_TAKEN: another function of this process has the name.
    Example:
        >>> @tutti.function("demo.scale", signature="tensor, float -> tensor")
        ... def scale(x, factor):
        ...     return x * factor
    """
    if arrays not in ARRAYS:
        text = "arrays is %r: it is one of %s"
        raise errors.invalid("BAD_OPTION", text % (arrays, ", ".join(ARRAYS)))

    def register(call: F) -> F:
        before = _known.get(name)
        if before is not None and not _is_same(before.call, call):
            text = "two functions are called %s: %r and %r" % (name, before.call, call)
            raise errors.make(StatusCode.ALREADY_EXISTS, text, "FUNCTION_TAKEN")
        said = signature or (inspect.getdoc(call) or "").split("\n")[0]
        _known[name] = Definition(name, call, said, _takes_env(call), arrays)
        return call

    return register
