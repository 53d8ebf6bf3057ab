"""Ranks, groups and meshes, as the coordinator knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import _settings, _wire, errors

if TYPE_CHECKING:
    from ._agent import Agent

_STATES = {number: name for name, number in _wire.enum_numbers("RankState", "RANK_STATE_").items()}


@dataclasses.dataclass(frozen=True)
class RankInfo:
    """A rank and who has its seat. state: FREE, WAITING, ALIVE, LOST; reason: why it is lost;
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
    """What became of a rank. kind: now, joined, leaving, lost.

    now     the watch stands behind `epoch`: rank is None, `reason` says how many ranks are alive
    epoch   of the job since then: what to go on behind
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


class Group:
    """An ordered list of ranks.

    ranks  of the job; the position is the group rank
    rank   our group rank, -1 = we are no member
    """

    def __init__(self, agent: "Agent", said: Any, rank: int) -> None:
        self.agent = agent
        self.id = int(said.id)
        self.name = str(said.name)
        self.tag = str(said.tag)
        self.ranks = tuple(said.ranks)
        self.rank = rank

    def __repr__(self) -> str:
        return "<Group %s of ranks %s>" % (self.name, list(self.ranks))

    @property
    def size(self) -> int:
        return len(self.ranks)

    async def delete(self) -> None:
        """Members may all call it."""
        request = _wire.new(
            "DeleteGroupRequest",
            member=self.agent.member(),
            name=self.name,
            id=self.id,
            allow_missing=True,
        )
        await self.agent.coordinator.unary("Coordinator.DeleteGroup", request)


class Mesh:
    """Ranks in an array of named dimensions.

    coordinate  ours, () = we are not in it
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
        """The name of our group along dimensions: it serves wherever a group is wanted."""
        return "mesh:%s/%s" % (self.name, "+".join(dims))

    async def group(self, *dims: str) -> Group:
        """Our group along one dimension, or several flattened into one."""
        return await self.agent.group(self.group_name(*dims))

    async def groups(self, dim: str | int) -> list[tuple[int, ...]]:
        """All groups of a dimension."""
        request = _wire.new("ListMeshGroupsRequest", job=self.agent.job, name=self.name)
        setattr(request, "dim_name" if isinstance(dim, str) else "dim", dim)
        response = await self.agent.coordinator.unary("Mesh.ListMeshGroups", request)
        return [tuple(one.ranks) for one in response.groups]

    async def delete(self) -> None:
        """Members may all call it. Its groups go with it."""
        request = _wire.new(
            "DeleteMeshRequest", member=self.agent.member(), name=self.name, allow_missing=True
        )
        await self.agent.coordinator.unary("Mesh.DeleteMesh", request)


class Groups:
    """The part of an Agent that asks the coordinator who is who."""

    async def _ask(self, method: str, request: Any) -> Any:
        return await self.coordinator.unary(method, request)  # type: ignore[attr-defined]

    async def ranks(self, ranks: Sequence[int] = ()) -> list[RankInfo]:
        """Where ranks are; none given = the first 1024 of the job."""
        agent: Any = self
        request = _wire.new("LookupRanksRequest", job=agent.job, ranks=ranks)
        response = await self._ask("Coordinator.LookupRanks", request)
        return [rank_info(one) for one in response.ranks]

    async def job_info(self) -> Any:
        """A tutti.v1.Job."""
        agent: Any = self
        request = _wire.new("GetJobRequest", job=agent.job)
        return (await self._ask("Coordinator.GetJob", request)).job

    async def watch_members(
        self, after: MemberEvent | None = None, timeout: float | None = None
    ) -> AsyncIterator[MemberEvent]:
        """Who comes and goes, as it happens; first comes "now".

        When the coordinator goes away the iteration ends with its error: go on with `after`.

        after    the last event heard: what happened since is told, and nothing twice
        timeout  seconds after which the iteration ends
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
        """A group by name; "mesh:NAME/DIM" is ours along that dimension."""
        agent: Any = self
        request = _wire.new("GetGroupRequest", job=agent.job, name=name, rank=agent.rank)
        response = await self._ask("Coordinator.GetGroup", request)
        return Group(agent, response.group, response.group_rank)

    async def groups(self) -> list[Group]:
        """All of the job, but those of meshes. `rank` is by their lists."""
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

        parent  the group whose ranks `ranks` counts
        """
        agent: Any = self
        request = _wire.new(
            "CreateGroupRequest",
            member=agent.member(),
            name=name,
            ranks=ranks,
            tag=tag,
            parent=parent,
        )
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
        """Split a group into blocks of a size, so many blocks, or lists; our part, None = in none."""
        agent: Any = self
        request = _wire.new(
            "CreateSubgroupsRequest", member=agent.member(), parent=parent, name=name, tag=tag
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
        """From group ranks of one group to those of another; -1 = no member of that."""
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

        ranks  row-major; none = 0, 1, 2, ...
        """
        agent: Any = self
        request = _wire.new(
            "CreateMeshRequest",
            member=agent.member(),
            name=name,
            shape=shape,
            ranks=ranks,
            dim_names=dim_names,
        )
        response = await self._ask("Mesh.CreateMesh", request)
        return Mesh(agent, response.mesh, response.coordinate)

    async def mesh(self, name: str) -> Mesh:
        """A mesh by name."""
        agent: Any = self
        request = _wire.new("GetMeshRequest", job=agent.job, name=name, rank=agent.rank)
        response = await self._ask("Mesh.GetMesh", request)
        return Mesh(agent, response.mesh, response.coordinate)
