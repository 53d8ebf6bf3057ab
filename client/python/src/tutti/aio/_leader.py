"""The connection to the coordinator that leads, of several."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from .. import errors
from .._settings import NO_PINGS, Pings, Settings
from ._line import Line
from ._waits import Lock, now, pause

_ELSEWHERE = ("NOT_LEADER", "UNREACHABLE")  # nobody has heard of the call
_GONE = ("UNREACHABLE", "CONNECTION_LOST", "DRAINING")
_PAUSE = 0.005  # seconds before a call is made again at first; pauses double
_PAUSE_MAX = 0.2
_OLD_MAX = 4  # channels that were left are kept so long: calls may still run on them


class Leader(Line):
    """A connection to the coordinator that leads, of a list "HOST:PORT,HOST:PORT".

    Calls go to one of them. When it does not lead, or is gone, further calls go to the one that it
    has named, else to the next. A call of which nobody has heard is made again until its time is over.
    """

    def __init__(self, addresses: str, settings: Settings) -> None:
        self._list = [one.strip() for one in addresses.split(",")]
        self._old: list[Any] = []
        self._moves = 0
        self._moving = Lock()
        super().__init__(self._list[0], settings)

    def _pings(self) -> Pings:
        # Of several one that is silent is soon left. The server's least interval is 3 s.
        return NO_PINGS if len(self._list) == 1 else (4000, 2000)

    def has_others(self) -> bool:
        return len(self._list) > 1 or self._moves > 0

    def _elsewhere(self, error: errors.TuttiError) -> str:
        """Where to go on: the one that was named, else the next; "" = the same."""
        told = error.metadata.get("leader", "") if error.reason == "NOT_LEADER" else ""
        place = self._list.index(self.address) + 1 if self.address in self._list else 0
        found = told if told not in ("", self.address) else self._list[place % len(self._list)]
        return "" if found == self.address else found

    async def _follow(self, error: errors.TuttiError, moves: int) -> None:
        """Go on to another one, unless that was done since the call that failed began."""
        async with self._moving:
            address = self._elsewhere(error)
            if moves != self._moves or not address:
                return
            try:
                channel = self._open(address)
            except errors.TuttiError:  # a token would travel in plaintext
                return
            self._old.append(self._channel)
            self.address, self._channel = address, channel
            self._moves += 1
            if len(self._old) > _OLD_MAX:
                await self._old.pop(0).close()

    async def unary(
        self, name: str, request: Any, timeout: float | None = None, lease: str = ""
    ) -> Any:
        until = now() + (self._settings.timeout if timeout is None else timeout)
        nap = _PAUSE
        while True:
            left = None if timeout is None else max(0.001, until - now())
            moves = self._moves
            try:
                return await super().unary(name, request, left, lease)
            except errors.TuttiError as error:
                if error.reason == "NOT_LEADER" or error.reason in _GONE:
                    await self._follow(error, moves)
                again = self.has_others() and error.reason in _ELSEWHERE
                if not again or now() + nap > until:
                    raise
            await pause(nap)
            nap = min(nap * 2, _PAUSE_MAX)

    async def take(
        self, name: str, request: Any, timeout: float | None = None
    ) -> AsyncIterator[Any]:
        until = now() + (self._settings.timeout if timeout is None else timeout)
        nap = _PAUSE
        heard = False
        while True:
            left = None if timeout is None else max(0.001, until - now())
            moves = self._moves
            try:
                async for response in super().take(name, request, left):
                    heard = True
                    yield response
                return
            except errors.TuttiError as error:
                if error.reason == "NOT_LEADER" or error.reason in _GONE:
                    await self._follow(error, moves)
                again = self.has_others() and error.reason in _ELSEWHERE
                if heard or not again or now() + nap > until:
                    raise
            await pause(nap)
            nap = min(nap * 2, _PAUSE_MAX)

    async def is_back(self, timeout: float) -> bool:
        # Of several there is always another to ask.
        return True if self.has_others() else await super().is_back(timeout)

    async def close(self) -> None:
        await super().close()
        for channel in self._old:
            await channel.close()
