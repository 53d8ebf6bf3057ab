"""The programs that a wheel brings: `tutti`, `tutti-agent`, `tutti-coordinator`, and `python -m tutti`."""

from __future__ import annotations

import os
import shutil
import sys

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bundle", "bin")


def _run(name: str) -> int:
    """Become that program; without one beside this package, the one on the PATH."""
    path: str | None = os.path.join(_FOLDER, name)
    if not os.path.exists(path or ""):
        path = shutil.which(name) if os.path.basename(sys.argv[0]) != name else None
    if path is None:
        text = "tutti: this package was installed without programs: install a wheel that was made for this system, or %s\n"
        sys.stderr.write(text % name)
        return 127
    os.execv(path, [name] + sys.argv[1:])


def tutti() -> int:
    return _run("tutti")


def agent() -> int:
    return _run("tutti-agent")


def coordinator() -> int:
    return _run("tutti-coordinator")
