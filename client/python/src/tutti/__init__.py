"""Collectives on tensors that live in Tutti's agents.

    import numpy as np
    import tutti

    with tutti.connect("127.0.0.1:7001") as agent:          # every rank does this
        mean = agent.all_reduce(np.ones(4, np.float32), "avg")   # arrays in, arrays out
        with agent.put(np.arange(6.0)) as x:                # a tensor that stays in the agent
            work = agent.all_reduce(x, async_=True)
            total = work.wait()                             # a Tensor
            print(total.numpy())

`tutti.aio` is the same for asyncio: `agent = await tutti.aio.connect(...)`.

An agent speaks for one rank. Ops of one group are matched by order: threads or tasks that call ops
on the same group race for their places in it, so give each a group of its own. Do not fork while
connected: gRPC does not survive it.
"""

import os as _os

# Where libtutti is not, this package uses grpcio, whose core stops its threads in the parent at each fork() if this
# variable is not 0. With core 1.51 the fork then sometimes never returns (a thread that is being stopped waits for the
# fork to end). That would help a child that uses the parent's channels, which this package refuses. grpcio reads it once.
_os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from .status import StatusCode
from .sync import (
    Agent,
    AgentInfo,
    Blob,
    DModule,
    DPackedFunc,
    DRef,
    Device,
    Dtype,
    Entry,
    Function,
    FunctionInfo,
    GpuEvents,
    GpuShare,
    GradientBuckets,
    Gradients,
    Group,
    KeyLease,
    LaunchError,
    MemberEvent,
    Mesh,
    MeshPart,
    Met,
    Pipeline,
    ProcessSession,
    RankInfo,
    Received,
    Reply,
    Server,
    Session,
    Shape,
    Store,
    Synced,
    Tape,
    Tensor,
    Tracer,
    TracerInfo,
    TuttiError,
    TuttiTimeout,
    View,
    Work,
    WorkerInfo,
    connect,
    connect_job,
    empty,
    function,
    get_device_count,
    init_process_group,
    launch,
    launcher,
    session,
    zeros,
)

__version__ = "0.1.0"
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
