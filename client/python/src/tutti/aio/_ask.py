"""Calls to the coordinator that outlive its restarts: made again where that changes nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from .. import errors
from ..status import StatusCode
from ._waits import now, pause
from ._work import as_ms

if TYPE_CHECKING:
    from ._agent import Agent

DEADLINE_SLACK = 2.0  # seconds for the server to say in words that the time was up

# With a token a call counts once, however often it is made.
WITH_TOKEN = frozenset(
    (
        "Store.Append",
        "Store.Add",
        "Store.Take",
        "Store.QueuePush",
        "Store.QueuePop",
        "Metadata.Broadcast",
        "Metadata.AllGather",
        "Rendezvous.Meet",
    )
)
# What changes nothing may be asked again, and so may leases: their numbers are drawn here.
_READING = frozenset(
    "Store." + name
    for name in (
        "Get",
        "MultiGet",
        "Check",
        "Wait",
        "QueueLen",
        "Count",
        "List",
        "Grant",
        "KeepAlive",
        "Revoke",
        "Leases",
    )
)
_PAUSE = 0.005  # seconds before a call is made again at first; pauses double
_PAUSE_MAX = 0.2

_random = random.SystemRandom()  # two processes never draw the same


def draw_token() -> int:
    return _random.randrange(1, 1 << 64)


def _may_ask_again(method: str, answered: bool, error: errors.TuttiError) -> bool:
    """The coordinator goes, or is gone: the next one on its store may answer."""
    if error.code is not StatusCode.UNAVAILABLE:
        return False
    if error.reason == "UNREACHABLE":  # nobody has heard of the call
        return answered
    return method in WITH_TOKEN | _READING and error.reason in ("CONNECTION_LOST", "DRAINING", "")


async def ask(agent: "Agent", method: str, request: Any, until: float | None) -> Any:
    """Again while the coordinator is gone: until then, else for connect()'s timeout."""
    line, away, nap = agent.coordinator, now(), _PAUSE
    while True:
        left = None if until is None else max(0.001, until - now())
        try:
            return await line.unary(method, request, left)
        except errors.TuttiError as error:
            if error.reason != "UNREACHABLE":  # it was there until now
                away = now()
            end = away + agent.settings.timeout if until is None else until
            left = end - nap - now()
            if not _may_ask_again(method, line.answered, error) or left <= 0:
                raise
            await pause(nap)  # a server that shuts down says so at once
            nap = min(nap * 2, _PAUSE_MAX)
            if not await line.is_back(left):
                raise


async def ask_and_wait(agent: "Agent", method: str, request: Any, timeout: float | None) -> Any:
    """What the coordinator may answer `timeout` seconds later; None = as long as it lets wait."""
    request.timeout_ms = as_ms(timeout)
    until = None if timeout is None else now() + timeout + DEADLINE_SLACK
    return await ask(agent, method, request, until)
