"""How ops by libtutti wait: in a completion queue, which the event loop reads. sync/_engine.py is its twin.

No thread waits for an op. A task that is cancelled cancels its op: the other ranks hear CALLER_GONE.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .. import errors
from ._waits import Lock, in_thread

# Arrays of so many bytes are copied into a Stage: the queue would send them in messages.
STAGE_BYTES = 16 << 10

class Engine:
    """op(...) is one op, as native/call.c takes it: what it has given.

    A queue ends with its stream to the agent, which may come back: the next op opens another one.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loop = asyncio.get_running_loop()
        self._opening = Lock()
        self._queue: Any = None
        self._closed = False

    async def _open(self) -> Any:
        async with self._opening:
            if self._queue is None:
                queue = await in_thread(self._client.queue)
                if self._closed:
                    queue.close()
                    raise errors.closed("the agent")
                self._loop.add_reader(queue.fileno(), self._take)
                self._queue = queue
        return self._queue

    def _end(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            self._loop.remove_reader(queue.fileno())
            queue.close()

    def _take(self) -> None:
        try:
            taken = self._queue.take()
        except errors.TuttiError:  # it is over, and would be readable for ever
            return self._end()
        for number, said, error in taken:
            future = self._waiting.pop(number, None)
            if future is None or future.done():
                continue  # its task was cancelled
            if error is None:
                future.set_result(said)
            else:
                future.set_exception(error)

    async def op(self, kind: int, given: Any, result: Any, *told: Any) -> Any:
        is_memory = result is not None and type(result) is not str
        # If the task is cancelled, a thread may still write for a moment: not to the caller's array.
        into = result.copy() if is_memory else result
        queue = self._queue or await self._open()
        number = queue.submit(kind, given, into, *told)
        future = self._waiting[number] = self._loop.create_future()
        try:
            said = await future
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None:
                queue.cancel(number)
            raise
        if is_memory:
            result[...] = into
        return said

    def close(self) -> None:
        self._closed = True
        self._end()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(errors.closed("the agent"))
        self._client.close()
