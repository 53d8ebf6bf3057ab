"""How a program that blocks waits. aio/_waits.py is its twin."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any


def pause(seconds: float) -> None:
    time.sleep(seconds)


def in_thread(call: Any, *given: Any) -> Any:
    return call(*given)


Lock = threading.Lock


def run_whole(coroutine: Any) -> Any:
    """Run it to its end, in a process that has no loop."""
    return asyncio.run(coroutine)


now = time.monotonic
