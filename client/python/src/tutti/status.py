"""The status codes of gRPC."""

from __future__ import annotations

import enum
from typing import Any


class StatusCode(enum.Enum):
    """How a call has failed: gRPC's codes. They are equal to those of `grpc.StatusCode`, which this package does not import
    where libtutti makes its calls."""

    OK = (0, "ok")
    CANCELLED = (1, "cancelled")
    UNKNOWN = (2, "unknown")
    INVALID_ARGUMENT = (3, "invalid argument")
    DEADLINE_EXCEEDED = (4, "deadline exceeded")
    NOT_FOUND = (5, "not found")
    ALREADY_EXISTS = (6, "already exists")
    PERMISSION_DENIED = (7, "permission denied")
    RESOURCE_EXHAUSTED = (8, "resource exhausted")
    FAILED_PRECONDITION = (9, "failed precondition")
    ABORTED = (10, "aborted")
    OUT_OF_RANGE = (11, "out of range")
    UNIMPLEMENTED = (12, "unimplemented")
    INTERNAL = (13, "internal")
    UNAVAILABLE = (14, "unavailable")
    DATA_LOSS = (15, "data loss")
    UNAUTHENTICATED = (16, "unauthenticated")

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, enum.Enum) and type(other).__name__ == "StatusCode":
            return bool(self.value == other.value)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)  # as grpc's


_BY_NUMBER = {code.value[0]: code for code in StatusCode}


def code_of(number: int) -> StatusCode:
    """The code with this number; UNKNOWN for one that there is not."""
    return _BY_NUMBER.get(number, StatusCode.UNKNOWN)
