"""How a program with an event loop waits. sync/_waits.py is its twin."""

from __future__ import annotations

import asyncio
import time
from typing import Any


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def in_thread(call: Any, *given: Any) -> Any:
    """Run a function that may block in a thread, so that other tasks go on."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *given)


Lock = asyncio.Lock


def run_whole(coroutine: Any) -> Any:
    """Run it to its end, in a process that has no loop."""
    return asyncio.run(coroutine)


now = time.monotonic
