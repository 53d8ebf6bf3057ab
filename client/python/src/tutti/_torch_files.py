"""python -m tutti.torch put|get FILE.pt: files of torch.save to and from an agent.

Such files are pickles. They are read by torch.load(weights_only=True), which makes tensors and containers of them and
nothing else; the command `tutti` does not read them at all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch

from . import connect
from .errors import TuttiError


def load(path: str) -> dict[str, Any]:
    """Tensors by their names. Raises: ValueError: there is something else in the file, or it is no such file."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # UnpicklingError, RuntimeError, EOFError, ...: torch says what it does not take
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError("torch.load(weights_only=True) refuses it: " + lines[0]) from error
    if not isinstance(found, dict):
        raise ValueError("it holds a %s, not a dict of tensors by names" % type(found).__name__)
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            text = "%r is a %s: only a dict of tensors by names can be put, a state_dict()"
            raise ValueError(text % (name, type(value).__name__))
    return found


def _put(agent: Any, path: str, prefix: str) -> None:
    made: list[Any] = []
    try:
        for name, value in load(path).items():
            whole = prefix + "/" + name if prefix else name
            made.append(agent.put(value.detach().contiguous(), name=whole, ephemeral=False))
            print("%s  %s%s" % (whole, value.dtype, list(value.shape)))
    except BaseException:
        for tensor in made:
            tensor.delete()
        raise


def _get(agent: Any, path: str, names: Sequence[str]) -> None:
    found = {name: agent.tensor(name).torch() for name in names}
    torch.save(found, path)
    print("%s  %d tensors" % (path, len(found)))


def _parse(words: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m tutti.torch", description="Files of torch.save to and from an agent.")
    parser.add_argument("--agent", help="the agent's address; default: $TUTTI_AGENT")
    commands = parser.add_subparsers(dest="command", required=True)
    put = commands.add_parser("put", help="each tensor of a state_dict, by its name in the file")
    put.add_argument("file")
    put.add_argument("--name", default="", help="NAME/ in front of each name")
    get = commands.add_parser("get", help="tensors of the agent into a file, as a dict")
    get.add_argument("file")
    get.add_argument("names", nargs="+")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 = it failed, and standard error says why."""
    given = _parse(words)
    try:
        with connect(given.agent) as agent:
            if given.command == "put":
                _put(agent, given.file, given.name)
            else:
                _get(agent, given.file, given.names)
    except (OSError, ValueError, TuttiError) as error:
        print("tutti.torch: %s: %s" % (given.file, error), file=sys.stderr)
        return 1
    return 0
