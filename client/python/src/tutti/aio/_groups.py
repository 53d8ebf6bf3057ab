"""Ranks, groups and meshes, as the coordinator knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import _settings, _wire, errors

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ._agent import Agent

_RANKS_MAX = 65536
_SPANS_MAX = 64

_STATES = {number: name for name, number in _wire.enum_numbers("RankState", "RANK_STATE_").items()}


@dataclasses.dataclass(frozen=True)
class RankInfo:
    """A rank, and the agent that has its seat. state: FREE, WAITING, ALIVE, LOST; reason: why lost;
    addresses: of its agent, in the order in which to try them from here."""

    rank: int
    state: str
    reason: str
    incarnation: int
    host: str
    pid: int
    device: str
    version: str
    addresses: tuple[str, ...]


def rank_info(said: Any) -> RankInfo:
    agent = said.agent
    return RankInfo(
        said.rank,
        _STATES.get(said.state, "UNSPECIFIED"),
        said.reason,
        said.incarnation,
        agent.host,
        agent.pid,
        agent.device,
        agent.version,
        tuple(_settings.in_order(agent.addresses, agent.host_id)),
    )


@dataclasses.dataclass(frozen=True)
class MemberEvent:
    """A change of a rank's state. kind: now, joined, leaving, lost.

    now     the watch has begun after `epoch`: rank is None, `reason` says how many ranks are alive
    epoch   of the job since then: after it another watch can go on
    job_id  another number is another job of that name, with epochs of its own
    """

    kind: str
    epoch: int
    job_id: int
    rank: int | None = None
    incarnation: int = 0
    reason: str = ""
    left: bool = False


_CHANGES = {"rank_lost": "lost", "rank_leaving": "leaving", "rank_joined": "joined"}


def _member_event(said: Any, job_id: int) -> MemberEvent:
    field = said.WhichOneof("event")
    if field == "now":
        alive = "%d of %d ranks alive" % (said.now.alive_count, said.now.world_size)
        return MemberEvent("now", said.now.epoch, said.now.job_id, reason=alive)
    one = getattr(said, field)
    return MemberEvent(
        _CHANGES[field],
        one.epoch,
        job_id,
        one.rank,
        one.incarnation,
        getattr(one, "reason", ""),
        getattr(one, "left", False),
    )


def _pack_spans(ranks: list[int]) -> list[int]:
    """The first rank, count and step of each span of a list; [] = send the list itself."""
    spans: list[int] = []
    i = 0
    while i < len(ranks):
        step, length = 1, 1
        if i + 1 < len(ranks) and ranks[i + 1] > ranks[i]:
            step = ranks[i + 1] - ranks[i]
            while i + length < len(ranks) and ranks[i + length] - ranks[i + length - 1] == step:
                length += 1
        spans += [ranks[i], length, step]
        i += length
        fits = 0 <= spans[-3] and ranks[i - 1] < _RANKS_MAX
        if not fits or len(spans) > min(len(ranks) - 1, 3 * _SPANS_MAX):
            return []  # wrong ranks are refused as the list they are
    return spans


def _group_ranks(said: Any) -> tuple[int, ...]:
    """The ranks of a group that came as a list or as spans."""
    ranks = list(said.ranks)
    for i in range(0, len(said.spans), 3):
        first, count, step = said.spans[i : i + 3]
        ranks += range(first, first + count * step, step)
    return tuple(ranks)


class Group:
    """An ordered list of ranks.

    ranks  of the job; the position is the group rank
    rank   the group rank of this rank, -1 = it is no member
    """

    def __init__(self, agent: "Agent", said: Any, rank: int) -> None:
        self.agent = agent
        self.id = int(said.id)
        self.name = str(said.name)
        self.tag = str(said.tag)
        self.ranks = _group_ranks(said)
        self.rank = rank

    def __repr__(self) -> str:
        return "<Group %s of ranks %s>" % (self.name, list(self.ranks))

    @property
    def size(self) -> int:
        return len(self.ranks)

    async def delete(self) -> None:
        """Delete it. Members may all call it.

        Returns: None.
        Raises: TuttiError NOT_IN_GROUP.
        Example:
            >>> group.delete()
        """
        request = _wire.new(
            "DeleteGroupRequest",
            member=self.agent._member(),
            name=self.name,
            id=self.id,
            allow_missing=True,
        )
        await self.agent.coordinator.unary("Coordinator.DeleteGroup", request)


class Mesh:
    """Ranks in an array of named dimensions.

    coordinate  of this rank, () = it is not in the mesh
    """

    def __init__(self, agent: "Agent", said: Any, coordinate: Sequence[int]) -> None:
        self.agent = agent
        self.name = str(said.name)
        self.shape = tuple(said.shape)
        self.dim_names = tuple(said.dim_names)
        self.ranks = tuple(said.ranks)  # row-major
        self.coordinate = tuple(coordinate)

    def __repr__(self) -> str:
        dims = ", ".join("%s=%d" % pair for pair in zip(self.dim_names, self.shape))
        return "<Mesh %s %s>" % (self.name, dims)

    def group_name(self, *dims: str) -> str:
        """The name of this rank's group along dimensions: ops take it as `group`.

        Returns: "mesh:NAME/DIM+DIM".
        Raises: nothing.
        Example:
            >>> agent.all_reduce(x, group=mesh.group_name("data"))
        """
        return "mesh:%s/%s" % (self.name, "+".join(dims))

    async def group(self, *dims: str) -> Group:
        """Find this rank's group along one dimension, or along several flattened into one.

        Returns: the group.
        Raises: TuttiError NO_GROUP.
        Example:
            >>> mesh.group("data").ranks
            (0, 2)
        """
        return await self.agent.group(self.group_name(*dims))

    async def groups(self, dim: str | int) -> list[tuple[int, ...]]:
        """List all groups of a dimension.

        dim  a name, or its number

        Returns: the ranks of each group.
        Raises: TuttiError MESH_DIM.
        Example:
            >>> mesh.groups("data")
            [(0, 2), (1, 3)]
        """
        request = _wire.new("ListMeshGroupsRequest", job=self.agent.job, name=self.name)
        setattr(request, "dim_name" if isinstance(dim, str) else "dim", dim)
        response = await self.agent.coordinator.unary("Mesh.ListMeshGroups", request)
        return [tuple(one.ranks) for one in response.groups]

    async def delete(self) -> None:
        """Delete it, and its groups. Members may all call it.

        Returns: None.
        Raises: TuttiError NO_MESH.
        Example:
            >>> mesh.delete()
        """
        request = _wire.new(
            "DeleteMeshRequest", member=self.agent._member(), name=self.name, allow_missing=True
        )
        await self.agent.coordinator.unary("Mesh.DeleteMesh", request)


class Groups:
    """The part of an Agent that asks the coordinator about ranks, groups and meshes."""

    async def _ask(self, method: str, request: Any) -> Any:
        return await self.coordinator.unary(method, request)  # type: ignore[attr-defined]

    async def ranks(self, ranks: Sequence[int] = ()) -> list[RankInfo]:
        """Ask the coordinator where ranks are.

        ranks  none given = the first 1024 of the job

        Returns: a RankInfo of each.
        Raises: TuttiError NO_JOB, RANK_RANGE.
        Example:
            >>> [one.state for one in agent.ranks()]
            ['ALIVE', 'ALIVE']
        """
        agent: Any = self
        request = _wire.new("LookupRanksRequest", job=agent.job, ranks=ranks)
        response = await self._ask("Coordinator.LookupRanks", request)
        return [rank_info(one) for one in response.ranks]

    async def job_info(self) -> "Message":
        """Ask the coordinator about the job.

        Returns: a tutti.v1.Job (proto/tutti/v1/coordinator_service.proto).
        Raises: TuttiError NO_JOB.
        Example:
            >>> agent.job_info().world_size
            2
        """
        agent: Any = self
        request = _wire.new("GetJobRequest", job=agent.job)
        return (await self._ask("Coordinator.GetJob", request)).job

    async def watch_members(
        self, after: MemberEvent | None = None, timeout: float | None = None
    ) -> AsyncIterator[MemberEvent]:
        """Watch ranks join, leave and get lost, as it happens; the first event is "now".

        after    the last event received: the watch goes on after it, without a gap
        timeout  seconds after which the iteration ends

        Returns: an iterator of MemberEvents.
        Raises: TuttiError UNREACHABLE, CONNECTION_LOST: the coordinator went away; go on with `after`.
        Example:
            >>> for event in agent.watch_members(timeout=60):
            ...     print(event.kind, event.rank)
        """
        agent: Any = self
        request = _wire.new("WatchMembersRequest", job=agent.job)
        if after is not None:
            request.after_epoch, request.job_id = after.epoch, after.job_id
        heard, job_id = 0, 0
        try:
            async for said in agent.coordinator.take("Coordinator.WatchMembers", request, timeout):
                if said.WhichOneof("event") is None:
                    continue
                event = _member_event(said, job_id)
                if event.kind == "now" and job_id == 0 and after is not None:
                    same = event.job_id == after.job_id  # else it is told from its beginning
                    event = dataclasses.replace(event, epoch=after.epoch if same else 0)
                if event.kind == "now":
                    heard, job_id = event.epoch, event.job_id
                if event.kind == "now" or event.epoch > heard:
                    yield event
        except errors.TuttiTimeout:
            if job_id == 0:
                raise

    # -------------------------------------------------------------------------- groups

    async def group(self, name: str = "world") -> Group:
        """Find a group by name; "mesh:NAME/DIM" is this rank's group along that dimension.

        Returns: the group.
        Raises: TuttiError NO_GROUP.
        Example:
            >>> agent.group().size
            2
        """
        agent: Any = self
        request = _wire.new(
            "GetGroupRequest", job=agent.job, name=name, rank=agent.rank, accept_spans=True
        )
        response = await self._ask("Coordinator.GetGroup", request)
        return Group(agent, response.group, response.group_rank)

    async def groups(self) -> list[Group]:
        """List all groups of the job, but those of meshes.

        Returns: the groups; `rank` is this rank's position in their lists.
        Raises: TuttiError NO_JOB.
        Example:
            >>> [one.name for one in agent.groups()]
            ['world']
        """
        agent: Any = self
        found: list[Group] = []
        token = ""
        while True:
            request = _wire.new("ListGroupsRequest", job=agent.job, page_token=token)
            page = await self._ask("Coordinator.ListGroups", request)
            for one in page.groups:
                ranks = list(one.ranks)
                rank = ranks.index(agent.rank) if agent.rank in ranks else -1
                found.append(Group(agent, one, rank))
            token = page.next_page_token
            if not token:
                return found

    async def new_group(
        self, ranks: Sequence[int], name: str = "", tag: str = "", parent: str = ""
    ) -> Group:
        """Make a group of an ordered list of ranks, or find it: members call it, all or one.

        The same name, or the same tag and ranks, is the same group; without both each call makes a
        new one, the k-th call of each member the same.

        ranks   of the job, in the order of the group; tag: joins the calls of members
        parent  the group whose ranks `ranks` counts

        Returns: the group; its `rank` is -1 where this rank is no member.
        Raises: TuttiError RANK_RANGE, BAD_NAME, NAME_TAKEN: there is a group of that name with
            other ranks.
        Example:
            >>> even = agent.new_group([0, 2], name="even")
        """
        agent: Any = self
        request = _wire.new(
            "CreateGroupRequest",
            member=agent._member(),
            name=name,
            tag=tag,
            parent=parent,
            accept_spans=True,
        )
        request.spans.extend(_pack_spans(list(ranks)))
        if not request.spans:
            request.ranks.extend(ranks)
        response = await self._ask("Coordinator.CreateGroup", request)
        return Group(agent, response.group, response.group_rank)

    async def split(
        self,
        *,
        size: int | None = None,
        count: int | None = None,
        lists: Sequence[Sequence[int]] | None = None,
        parent: str = "",
        name: str = "",
        tag: str = "",
    ) -> Group | None:
        """Split a group into parts. Each member calls it with the same arguments.

        size, count, lists  of ranks in each part; of parts; or the parts themselves: one of these
        parent              the group; "" = the world
        name                of the parts, with their numbers behind it

        Returns: the part with this rank, or None: it is in none.
        Raises: TuttiError GROUP_SIZE, RANK_RANGE.
        Example:
            >>> agent.split(size=2).ranks                      # on rank 3 of 4
            (2, 3)
        """
        agent: Any = self
        request = _wire.new(
            "CreateSubgroupsRequest",
            member=agent._member(),
            parent=parent,
            name=name,
            tag=tag,
            accept_spans=True,
        )
        if size is not None:
            request.group_size = size
        elif count is not None:
            request.group_count = count
        else:
            for one in lists or ():
                request.lists.lists.add(ranks=one)
            request.lists.SetInParent()
        response = await self._ask("Coordinator.CreateSubgroups", request)
        if not response.HasField("group"):
            return None
        return Group(agent, response.group, response.group_rank)

    async def translate(
        self, ranks: Sequence[int], from_group: str = "", to_group: str = ""
    ) -> list[int]:
        """Translate group ranks of one group to those of another.

        Returns: a rank for each; -1 = no member of that group.
        Raises: TuttiError NO_GROUP, RANK_NOT_IN_GROUP.
        Example:
            >>> agent.translate([0, 1], from_group="even")
            [0, 2]
        """
        agent: Any = self
        request = _wire.new(
            "TranslateRanksRequest",
            job=agent.job,
            from_group=from_group,
            to_group=to_group,
            ranks=ranks,
            rank=agent.rank,
        )
        return list((await self._ask("Coordinator.TranslateRanks", request)).ranks)

    # -------------------------------------------------------------------------- meshes

    async def new_mesh(
        self,
        shape: Sequence[int],
        dim_names: Sequence[str] = (),
        ranks: Sequence[int] = (),
        name: str = "",
    ) -> Mesh:
        """Make a mesh, or find the one of the same name and content. Any rank may call it.

        shape      of the array of ranks; dim_names: a name for each dimension
        ranks      row-major; none = 0, 1, 2, ...

        Returns: the mesh.
        Raises: TuttiError MESH_SHAPE, MESH_DIM, RANK_RANGE, NAME_TAKEN.
        Example:
            >>> mesh = agent.new_mesh([2, 2], ["data", "model"])
            >>> agent.all_reduce(x, group=mesh.group_name("data"))
        """
        agent: Any = self
        request = _wire.new(
            "CreateMeshRequest",
            member=agent._member(),
            name=name,
            shape=shape,
            ranks=ranks,
            dim_names=dim_names,
        )
        response = await self._ask("Mesh.CreateMesh", request)
        return Mesh(agent, response.mesh, response.coordinate)

    async def mesh(self, name: str) -> Mesh:
        """Find a mesh by name.

        Returns: the mesh.
        Raises: TuttiError NO_MESH.
        Example:
            >>> agent.mesh("grid").coordinate
            (0, 1)
        """
        agent: Any = self
        request = _wire.new("GetMeshRequest", job=agent.job, name=name, rank=agent.rank)
        response = await self._ask("Mesh.GetMesh", request)
        return Mesh(agent, response.mesh, response.coordinate)
