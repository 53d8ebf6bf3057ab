"""How ops by libtutti wait: they block their caller. aio/_engine.py is its twin."""

from __future__ import annotations

from typing import Any


class Engine:
    """op(...) is one op, as native/call.c takes it: what it has given."""

    def __init__(self, client: Any) -> None:
        self.op = client.op
        self.close = client.close
