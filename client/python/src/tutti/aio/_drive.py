"""Commands of a session: they go out one after the other, and answers come when they come."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _wire, errors
from ..status import StatusCode
from ._pipe import Pipe
from ._line import Line

WINDOW = 1024  # commands that are not answered; who sends more waits
FAILURES_MAX = 100  # that are kept until somebody is told
CLOSE_S = 10.0  # until commands must have ended, of a session that ends

# What becomes of an answer: somebody waits for it; it is told at the next sync; nobody cares.
WANTED, TOLD, QUIET = range(3)


class Sent(NamedTuple):
    """A command that is not answered."""

    kind: str
    request: Any
    role: int
    where: str


def _caller() -> str:
    """The line of the program that this command comes from."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tutti."):
        frame = frame.f_back
    return "" if frame is None else "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)


def _value_text(value: Any) -> str:
    kind = value.WhichOneof("kind") or "null"
    if kind == "null":
        return "None"
    if kind == "shape":
        return str(tuple(value.shape.dims))
    return repr(getattr(value, kind))[:40]


def _call_text(call: Any) -> str:
    function = call.function or "r%d" % call.function_register
    args = [
        "r%d" % one.register if one.register else _value_text(one.value) for one in call.args
    ]
    return "%s(%s)" % (function, ", ".join(args))


def _words(sent: Sent) -> str:
    """A command for people: "all_reduce r1 -> r2"."""
    command = getattr(sent.request, sent.kind)
    said = "call " + _call_text(command) if sent.kind == "call" else sent.kind
    names = command.DESCRIPTOR.fields_by_name
    for field in ("function", "path", "module"):
        if sent.kind != "call" and field in names:
            said += " " + getattr(command, field)
    source = command.src if "src" in names else 0
    target = (command.into if "into" in names else 0) or (command.dst if "dst" in names else 0)
    return said + (" r%d" % source if source else "") + (" -> r%d" % target if target else "")


def failure_of(sent: Sent, response: Any) -> errors.TuttiError | None:
    """What an answer says went wrong; None = nothing."""
    if not response.HasField("error") and not response.failed:
        return None
    said = response.error if response.HasField("error") else response.failed[0].error
    error = errors.from_value(said)
    error.workers = {one.worker: errors.from_value(one.error) for one in response.failed}
    error.text += " (%s%s)" % (_words(sent), ", " + sent.where if sent.where else "")
    return error


class Drive:
    """The stream to the leader.

    over  why there are no more commands; None = there are
    """

    def __init__(self, line: Line) -> None:
        self.over: errors.TuttiError | None = None
        self._address = line.address
        self._pipe = Pipe(line, "Session.Drive", self._take, self._end)
        self._ids = itertools.count(1)
        self._sent: dict[int, Sent] = {}
        self._answers: dict[int, tuple[Sent, Any]] = {}
        self._failures: dict[int, errors.TuttiError] = {}
        self._failure_count = 0
        self._hushed: set[int] = set()
        self._ended = False

    async def open(self, **fields: Any) -> Any:
        """Open or resume the session: a DriveOpened."""
        await self._pipe.open()
        return (await self.ask("open", **fields)).opened

    # -------------------------------------------------------------------------- answers

    def _take(self, response: Any) -> None:
        sent = self._sent.pop(response.id, None)
        if sent is None or sent.role == QUIET or response.id in self._hushed:
            self._hushed.discard(response.id)
            return
        if sent.role == WANTED:
            self._answers[response.id] = (sent, response)
            return
        error = failure_of(sent, response)
        if error is not None:
            self._failure_count += 1
            if len(self._failures) < FAILURES_MAX:
                self._failures[response.id] = error

    def _end(self, error: errors.TuttiError | None) -> None:
        self._ended = True
        if self.over is None:
            text = "%s has ended the session" % self._address
            self.over = error or errors.make(StatusCode.UNAVAILABLE, text, "NO_SESSION")

    def _hush(self, number: int) -> None:
        """Nobody cares any more what becomes of a command."""
        if number in self._sent:
            self._hushed.add(number)

    # -------------------------------------------------------------------------- commands

    def check(self) -> None:
        """Raise if there are no more commands."""
        if self.over is not None:
            raise copy.copy(self.over)

    def _send(self, kind: str, fields: dict[str, Any], role: int, where: str) -> int:
        number = next(self._ids)
        request = _wire.new("DriveRequest", id=number, **{kind: fields})
        if not fields:
            getattr(request, kind).SetInParent()
        self._sent[number] = Sent(kind, request, role, where)
        self._pipe.put(request)
        return number

    async def post(self, kind: str, role: int = TOLD, **fields: Any) -> int:
        """Send a command; its number. Waits only while too many are unanswered."""
        self.check()
        where = _caller()
        if len(self._sent) >= WINDOW:
            half = WINDOW // 2
            await self._pipe.wait_for(lambda: len(self._sent) < half or self.over is not None)
            self.check()
        return self._send(kind, fields, role, where)

    def drop(self, registers: list[int]) -> None:
        """Of registers that nothing refers to any more; called by finalizers too."""
        if self.over is None and registers:
            self._send("drop", {"registers": registers}, QUIET, "")

    async def ask(self, kind: str, **fields: Any) -> Any:
        """Send a command and wait for its answer."""
        number = await self.post(kind, WANTED, **fields)
        try:
            await self._pipe.wait_for(lambda: number in self._answers or self.over is not None)
        finally:
            sent, response = self._answers.pop(number, (None, None))
            self._hush(number)
        if sent is None:
            self.check()
            raise errors.lost("no answer to %s" % kind)
        error = failure_of(sent, response)
        if error is not None:
            raise error
        return response

    # -------------------------------------------------------------------------- failures

    def tell(self, number: int, workers: Sequence[int] = ()) -> None:
        """Raise what became of this command, if nobody was told and it failed on one of these workers,
        or was refused as a whole; none = on any."""
        error = self._failures.get(number)
        if error is None:
            return
        if error.workers and workers and not error.workers.keys() & set(workers):
            return
        self.forget(number)
        raise error

    def forget(self, number: int) -> None:
        """Somebody was told about this command in other words."""
        self._hush(number)
        if self._failures.pop(number, None) is not None:
            self._failure_count -= 1

    def tell_first(self) -> None:
        """Raise the first failure that nobody was told; the others are counted in its text."""
        failures, self._failures = self._failures, {}
        more, self._failure_count = self._failure_count - 1, 0
        for number in sorted(failures):
            error = failures[number]
            error.text += "; %d more commands failed" % more if more else ""
            raise error

    # -------------------------------------------------------------------------- the end

    async def close(self, reason: errors.TuttiError, gently: bool) -> None:
        """No more commands; gently: those that were sent end first, for CLOSE_S at most."""
        if gently and self.over is None:
            self.over = reason
            self._pipe.put(None)
            await self._pipe.wait_for(lambda: self._ended, CLOSE_S)
        self.over = reason
        await self._pipe.close()
