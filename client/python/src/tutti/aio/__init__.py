"""Tutti's API; `tutti.aio` has every call as a coroutine."""

from __future__ import annotations

from ..errors import LaunchError, TuttiError, TuttiTimeout
from ..functions import function
from ..objects import Blob
from ..status import StatusCode
from ..values import Device, Dtype, Function, Shape
from ._agent import Agent, AgentInfo, connect, connect_job, empty, zeros
from ._buckets import GradientBuckets
from ._functions import FunctionInfo
from ._gpu import GpuEvents, GpuShare
from ._groups import Group, MemberEvent, Mesh, MeshPart, RankInfo
from ._infer import Synced
from ._launch import ProcessSession, Server, get_device_count, init_process_group, launch, launcher
from ._meetings import Met
from ._pipeline import Pipeline, Reply
from ._register import DModule, DPackedFunc, DRef
from ._session import Session, WorkerInfo, session
from ._store import Entry, KeyLease, Store
from ._tensor import Tensor
from ._tracers import Gradients, Tape, Tracer, TracerInfo
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
    "FunctionInfo",
    "GpuEvents",
    "GpuShare",
    "GradientBuckets",
    "Gradients",
    "Group",
    "KeyLease",
    "LaunchError",
    "MemberEvent",
    "Mesh",
    "MeshPart",
    "Met",
    "Pipeline",
    "ProcessSession",
    "RankInfo",
    "Received",
    "Reply",
    "Server",
    "Session",
    "Shape",
    "StatusCode",
    "Store",
    "Synced",
    "Tape",
    "Tensor",
    "Tracer",
    "TracerInfo",
    "TuttiError",
    "TuttiTimeout",
    "View",
    "Work",
    "WorkerInfo",
    "connect",
    "connect_job",
    "empty",
    "function",
    "get_device_count",
    "init_process_group",
    "launch",
    "launcher",
    "session",
    "zeros",
]
