"""How calls fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _reach, _wire
from .status import StatusCode, code_of


class TuttiError(Exception):
    """A call or op failed.

    Branch on `code`, then on `reason`; never on the text. docs/errors.md lists the reasons.

    code      the gRPC status code, a tutti.StatusCode
    reason    for programs: "SHAPE_MISMATCH"; "GRPC_STATUS" where the server gave none
    text      for people: value, limit, what to do
    group     on which group, or ""
    op        the op's number in that group, or 0
    rank      the culprit's rank, or -1
    metadata  all entries of the error's details, as text
    workers   of a command of a session: the errors of the workers on which it failed
    """

    def __init__(
        self,
        code: StatusCode,
        text: str,
        reason: str = "",
        *,
        group: str = "",
        op: int = 0,
        rank: int = -1,
        metadata: dict[str, str] | None = None,
    ) -> None:
        super().__init__(code, text, reason)
        self.code = code
        self.text = text
        self.reason = reason
        self.group = group
        self.op = op
        self.rank = rank
        self.metadata = metadata or {}
        self.workers: dict[int, TuttiError] = {}

    def __str__(self) -> str:
        words = [self.code.name] + ([self.reason] if self.reason else [])
        return "%s: %s" % (" ".join(words), self.text)


class TuttiTimeout(TuttiError, TimeoutError):
    """DEADLINE_EXCEEDED: for an op, the text names the ranks that had not called it."""


class LaunchError(Exception):
    """A rank of launch() failed; the others were ended.

    rank       the one that failed first
    exit_code  of its process, where it ended without a word; negative = the signal; else 1
    traceback  of what its function raised, as text; "" = it ended without a word
    """

    def __init__(self, rank: int, exit_code: int, trace: str) -> None:
        self.rank = rank
        self.exit_code = exit_code
        self.traceback = trace
        word = "its process ended with exit code %d" % exit_code
        super().__init__("rank %d failed: %s" % (rank, trace or word))

    def __reduce__(self) -> Any:
        return LaunchError, (self.rank, self.exit_code, self.traceback)


def make(code: StatusCode, text: str, reason: str = "", **known: Any) -> TuttiError:
    """The exception for a code."""
    late = code is StatusCode.DEADLINE_EXCEEDED
    return (TuttiTimeout if late else TuttiError)(code, text, reason, **known)


def invalid(reason: str, text: str) -> TuttiError:
    """The error of an argument that is wrong, found before a call was made."""
    return make(StatusCode.INVALID_ARGUMENT, text, reason)


def lost(text: str) -> TuttiError:
    """The error of data that is not as it was announced."""
    return make(StatusCode.DATA_LOSS, text, "BAD_ANSWER")


def _number(text: str, otherwise: int) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise


def info_in(details: bytes) -> Any:
    """The google.rpc.ErrorInfo in the google.rpc.Status of an error, or None."""
    try:
        status = _wire.message("google.rpc.Status").FromString(details)
        for detail in status.details:
            if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                return _wire.message("google.rpc.ErrorInfo").FromString(detail.value)
    except Exception:  # somebody between us and the server writes other details
        pass
    return None


def _error_info(metadata: Iterable[tuple[str, Any]]) -> Any:
    """The google.rpc.ErrorInfo in a call's trailers, or None."""
    for key, value in metadata:  # not dict(): that of grpc.aio is a mapping of its own
        if key == "grpc-status-details-bin":
            return info_in(value)
    return None


def closed(address: str) -> TuttiError:
    """The error of a call on a connection that this program has closed."""
    text = "the connection to %s is closed: connect again" % address
    return make(StatusCode.FAILED_PRECONDITION, text, "CLOSED")


def forked(address: str) -> TuttiError:
    """The error of a call on a connection of the process that this one was forked off."""
    text = "the connection to %s is of another process: after a fork connect again, or use the start method spawn"
    return make(StatusCode.FAILED_PRECONDITION, text % address, "FORKED")


def cancelled(address: str, call: str) -> TuttiError:
    """Of a stream that this program has given up."""
    return make(StatusCode.CANCELLED, *_reach.given_up(address, call))


def from_rpc(error: Any, address: str = "", call: str = "") -> TuttiError:
    """The error for a grpc.RpcError, which has code(), details() and trailing_metadata().

    address, call  the server's address, and the call that was made
    """
    info = _error_info(error.trailing_metadata() or ())
    known = dict(info.metadata) if info is not None else {}
    text, reason = error.details() or "", info.reason if info is not None else ""
    if info is None and address:
        text, reason = _reach.explain(code_of(error.code().value[0]), text, address, call)
    return make(
        code_of(error.code().value[0]),
        text,
        reason or _reach.UNKNOWN,
        group=known.get("group", ""),
        op=_number(known.get("sequence", ""), 0),
        rank=_number(known.get("rank", ""), -1),
        metadata=known,
    )


def was_there(error: TuttiError) -> bool:
    """Has the server answered, or has a connection to it been established?"""
    silent = error.code is StatusCode.DEADLINE_EXCEEDED and error.reason == _reach.UNKNOWN
    return not silent and error.reason != "UNREACHABLE"


def from_value(error: Any) -> TuttiError:
    """The error for a tutti.v1.Error: why an async op failed."""
    return make(
        code_of(error.code),
        error.text,
        error.reason,
        group=error.group,
        op=error.sequence,
        rank=error.rank,
    )
