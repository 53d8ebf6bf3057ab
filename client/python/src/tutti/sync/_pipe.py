"""A call with messages both ways, for a program that blocks. aio/_pipe.py is its twin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from .. import errors
from ._line import Line


class Pipe:
    """Messages go out without waiting for those that come in.

    take   called with each message that comes
    ended  called once, with the error that ended the call, or None. Both are called by one thread,
           which reads, and return soon
    metadata  of the call, beside what every call has
    """

    def __init__(
        self,
        line: Line,
        name: str,
        take: Callable[[Any], None],
        ended: Callable[[errors.TuttiError | None], None],
        metadata: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._line = line
        self._metadata = list(metadata)
        self._name = name
        self._take = take
        self._ended = ended
        self._moved = threading.Condition()
        self._waiting = 0
        self._call: Any = None
        self._early: list[Any] = []  # given before the call began
        self._reader: threading.Thread | None = None

    def open(self) -> None:
        """Start the call."""
        self._call = self._line.stream(self._name, more=self._metadata)
        for message in self._early:
            self._call.put(message)
        self._reader = threading.Thread(target=self._read, name="tutti pipe", daemon=True)
        self._reader.start()

    def put(self, message: Any) -> None:
        """Send; from any thread, and from finalizers. None is the last one."""
        if self._call is None:
            self._early.append(message)
        else:
            self._call.put(message)

    def _read(self) -> None:
        error = None
        try:
            while (message := self._call.receive()) is not None:
                with self._moved:
                    self._take(message)
                    if self._waiting:
                        self._moved.notify_all()
        except errors.TuttiError as failure:
            error = failure
        with self._moved:
            self._ended(error)
            self._moved.notify_all()

    def wait_for(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it is so, which only take() and ended() change; False = it was not in time."""
        with self._moved:
            self._waiting += 1
            try:
                return self._moved.wait_for(ready, timeout)
            finally:
                self._waiting -= 1

    def close(self) -> None:
        """End the call now, however far it is."""
        if self._call is not None:
            self._call.cancel()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()
