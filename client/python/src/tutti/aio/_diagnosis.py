"""What an agent is, what it does, and what may be wrong: DiagnosticsService, and where ops wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _wire, dtypes, errors
from ..status import StatusCode
from ._call import reduce_number

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ._types import DtypeLike, GroupLike


class Diagnosis:
    """The part of an Agent that tells how things are. Messages are those of the protos."""

    line: Any

    async def stats(self) -> "Message":
        """Ask what the agent holds and has done.

        Returns: a tutti.v1.GetStatsResponse (proto/tutti/v1/diagnostics_service.proto).
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.stats().tensor_count
            0
        """
        return await self._of_agent("GetStats", _wire.new("GetStatsRequest"))

    async def capabilities(self) -> "Message":
        """Ask which reduce ops work on which dtypes.

        Returns: a tutti.v1.GetCapabilitiesResponse (proto/tutti/v1/diagnostics_service.proto).
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.capabilities()
        """
        return await self._of_agent("GetCapabilities", _wire.new("GetCapabilitiesRequest"))

    async def _of_agent(self, method: str, request: Any) -> Any:
        return await self.line.unary("Diagnostics." + method, request)

    async def flight_record(self, from_record_id: int = 0) -> "Message":
        """Read the agent's last 4096 ops, as PyTorch's flight recorder has them.

        from_record_id  the first one wanted

        Returns: a tutti.v1.GetFlightRecordResponse (proto/tutti/v1/diagnostics_service.proto) with
            the entries of all pages.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> [one.profiling_name for one in agent.flight_record().entries]
            ['nccl:all_reduce']
        """
        request = _wire.new("GetFlightRecordRequest", page_size=1024)
        request.from_record_id = from_record_id
        whole: Any = await self._of_agent("GetFlightRecord", request)
        page = whole
        while page.entries:
            request.from_record_id = page.next_record_id
            page = await self._of_agent("GetFlightRecord", request)
            whole.entries.extend(page.entries)
            whole.next_record_id = page.next_record_id
        found: "Message" = whole
        return found

    async def examine(self, ranks: Sequence[int] = (), wait: float = 2.0) -> "Message":
        """Ask what may be wrong where the agent runs, and whether it reaches other ranks.

        ranks  to be reached as ops reach them; wait: seconds that this may take, at most 10

        Returns: a tutti.v1.ExamineResponse (proto/tutti/v1/diagnostics_service.proto).
        Raises: TuttiError BAD_WAIT, LOOKUP_LIMIT, RANK_RANGE.
        Example:
            >>> [one.reached for one in agent.examine([1]).reaches]
            [True]
        """
        request = _wire.new("ExamineRequest", ranks=ranks, wait_ms=int(wait * 1000))
        return await self._of_agent("Examine", request)

    async def explain(
        self,
        op: str,
        nbytes: int,
        dtype: "DtypeLike" = "FP32",
        reduce_op: str = "sum",
        *,
        group: "GroupLike" = None,
        host_count: int = 0,
    ) -> "Message":
        """Ask which algorithm an op would take, and why.

        op          "all_reduce": any but send and recv
        nbytes      of the tensor that a rank gives; of broadcast and scatter the root
        host_count  on how many hosts the ranks are; 0 = not known. It counts until an op has run

        Returns: a tutti.v1.ExplainResponse (proto/tutti/v1/diagnostics_service.proto).
        Raises: TuttiError BAD_ALGORITHM: an op that has none; BAD_DTYPE, BAD_REDUCE_OP; NO_GROUP: the
            agent has not called an op of that group.
        Example:
            >>> agent.explain("all_reduce", 1 << 20).algorithm
        """
        agent: Any = self
        request = _wire.new(
            "ExplainRequest",
            op=op,
            group=(await agent._group_and_timeout(group))[0],
            bytes=nbytes,
            dtype=dtypes.spec(dtypes.name_of(dtype), ()).dtype,
            reduce_op=reduce_number(reduce_op),
            host_count=host_count,
        )
        return await self._of_agent("Explain", request)

    async def set_algorithms(self, table: str = "", forced: str = "") -> int:
        """Say which algorithms the agent takes from now on. Tell all agents of a job the same.

        table   as --tune-table reads it; "" = that of the start
        forced  as --algorithm takes it; "" = none. Both "" = all as at the start

        Returns: how many rules are in use.
        Raises: TuttiError BAD_TABLE, BAD_ALGORITHM, CHOICE_LIMIT.
        Example:
            >>> agent.set_algorithms(forced="all_reduce=ring")
        """
        request = _wire.new("SetAlgorithmsRequest", table=table, forced=forced)
        return int((await self._of_agent("SetAlgorithms", request)).rule_count)

    async def stalls(
        self, group: "GroupLike" = None, older_than: float = 0.0, wait: float = 0.5
    ) -> "Message":
        """Ask the coordinator which ops wait, for whom, and since when.

        group       its ops alone; None = all
        older_than  seconds that an op must have waited; 0 = all in flight
        wait        seconds that agents may take to say where they stand, at most 10

        Returns: a tutti.v1.DescribeStallResponse (proto/tutti/v1/progress.proto).
        Raises: TuttiError NO_JOB, BAD_WAIT.
        Example:
            >>> [one.text for one in agent.stalls(older_than=1).stalls]
            []
        """
        agent: Any = self
        request = _wire.new(
            "DescribeStallRequest",
            job=agent.job,
            group=(await agent._group_and_timeout(group))[0],
            older_than_ms=int(older_than * 1000),
            wait_ms=int(wait * 1000),
        )
        found: "Message" = await agent._ask("Coordinator.DescribeStall", request)
        return found

    async def is_nccl_available(self) -> bool:
        """Ask whether ops of this agent can run on NCCL: a GPU is among its --device, and
        tutti-nccl.so was loaded for it.

        Returns: whether they can.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.is_nccl_available()
            False
        """
        stats: Any = await self.stats()
        return any(one.backend == "nccl" for one in stats.gpus)

    async def device_count(self, kind: str = "cuda") -> int:
        """Count the agent's devices.

        kind  "cuda", or "cpu": the host's memory, which every agent has

        Returns: how many there are.
        Raises: TuttiError BAD_DEVICE: another kind.
        Example:
            >>> agent.device_count("cpu")
            1
        """
        if kind == "cpu":
            return 1
        if kind not in ("cuda", "gpu"):
            raise errors.invalid("BAD_DEVICE", "%s: devices are cpu and cuda" % kind)
        stats: Any = await self.stats()
        return len(stats.gpus)

    async def get_backend(self, group: "GroupLike" = None, device: str = "") -> str:
        """Ask what runs the ops of a group. It goes by where tensors are, alike for all groups.

        device  of the tensors; "" = what new_group() was told as `backend`, else where new ones are
                put: the first of the agent's --device

        Returns: "nccl" for tensors on a GPU, "host" for those in host memory; "" where tensors of a
            GPU are held, and ops on them refused: tutti-nccl.so was not loaded.
        Raises: TuttiError NO_DEVICE: the agent has no such device; NOT_IN_GROUP, NO_GROUP.
        Example:
            >>> agent.get_backend()
            'host'
        """
        agent: Any = self
        if await agent.get_rank(group) < 0:
            raise agent._not_in(str(group))
        stated: Any = group
        backend = str(getattr(stated, "backend", ""))
        if backend and not device:
            return backend
        where = device or agent.info.device.split(",")[0]
        if where == "cpu":
            return "host"
        stats: Any = await self.stats()
        for one in stats.gpus:
            if where in ("cuda", one.device):
                return str(one.backend)
        text = "%s is none of the agent's devices: it has %s" % (where, agent.info.device)
        raise errors.make(StatusCode.FAILED_PRECONDITION, text, "NO_DEVICE")
