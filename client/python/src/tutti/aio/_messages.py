"""The messages of a call by libtutti, however its caller waits: _call_native.py has that."""

from __future__ import annotations

from typing import Any

from .._native_door import ENDED, MESSAGE


class Messages:
    """raw  the native module's Call"""

    raw: Any

    def send(self, message: bytes | None, last: bool = False) -> None:
        """Give a message, None = none; from any thread, and from finalizers. It does not wait."""
        self.raw.send(message, last)

    def look(self) -> tuple[int, Any]:
        """The next event, if there is one, and what it brings."""
        found: tuple[int, Any] = self.raw.next(0)
        return found

    async def next(self) -> tuple[int, Any]:
        """The next event."""
        raise NotImplementedError

    async def receive(self) -> bytes | None:
        """The next message; None at the end."""
        event, found = await self.next()
        if event == MESSAGE:
            return bytes(found)
        if found is not None:
            raise found
        return None

    def has_ended(self) -> bool:
        """Of one whose messages were all received."""
        return self.look()[0] == ENDED

    def cancel(self) -> None:
        self.raw.cancel()
