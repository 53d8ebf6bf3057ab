"""How ops by libtutti wait: they block their caller. aio/_engine.py is its twin."""

from __future__ import annotations

from typing import Any

# Arrays of so many bytes are copied into a Stage. libtutti's call copies smaller ones itself, into its arena
# and back: two copies, which cost less than the care for a Stage in Python.
STAGE_BYTES = 128 << 10


class Engine:
    """op(...) is one op, as native/call.c takes it: what it has given."""

    def __init__(self, client: Any) -> None:
        self.op = client.op
        self.close = client.close
