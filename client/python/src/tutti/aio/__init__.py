"""Tutti's API; `tutti.aio` has every call as a coroutine."""

from __future__ import annotations

from ..errors import TuttiError, TuttiTimeout
from ..functions import function
from ..objects import Blob
from ..values import Device, Dtype, Function, Shape
from ._agent import Agent, AgentInfo, connect, connect_job
from ._groups import Group, MemberEvent, Mesh, RankInfo
from ._infer import Synced
from ._register import DModule, DPackedFunc, DRef
from ._session import Session, WorkerInfo, session
from ._store import Entry, Store
from ._tensor import Tensor
from ._view import View
from ._work import Received, Work

__all__ = [
    "Agent",
    "AgentInfo",
    "Blob",
    "DModule",
    "DPackedFunc",
    "DRef",
    "Device",
    "Dtype",
    "Entry",
    "Function",
    "Group",
    "MemberEvent",
    "Mesh",
    "RankInfo",
    "Received",
    "Session",
    "Shape",
    "Store",
    "Synced",
    "Tensor",
    "TuttiError",
    "TuttiTimeout",
    "View",
    "Work",
    "WorkerInfo",
    "connect",
    "connect_job",
    "function",
    "session",
]
