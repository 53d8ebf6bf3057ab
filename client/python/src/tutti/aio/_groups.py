"""Ranks, groups and meshes, as the coordinator knows them."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import _settings, _wire, errors
from ..status import StatusCode
from ._ask import ask_and_wait
from ._work import as_ms

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ._agent import Agent
    from ._types import GroupLike

_RANKS_MAX = 65536
_SPANS_MAX = 64

_STATES = {number: name for name, number in _wire.enum_numbers("RankState", "RANK_STATE_").items()}


@dataclasses.dataclass(frozen=True)
class RankInfo:
    """A rank, and the agent that has its seat. state: FREE, WAITING, ALIVE, LOST; reason: why lost;
    addresses: of its agent, in the order in which to try them from here; host_id: alike where agents
    share memory."""

    rank: int
    state: str
    reason: str
    incarnation: int
    host: str
    pid: int
    device: str
    version: str
    addresses: tuple[str, ...]
    host_id: str = ""


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
        agent.host_id,
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

    ranks    of the job; the position is the group rank
    rank     the group rank of this rank, -1 = it is no member
    timeout  seconds of ops on it that have none of their own, by any client; None = the agents'
             --op-timeout
    backend  "host" or "nccl", as new_group() was told; "" = where an op's tensors are decides
    """

    backend: str = ""
    _destroyed = False

    def __init__(self, agent: "Agent", said: Any, rank: int) -> None:
        self.agent = agent
        self.id = int(said.id)
        self.name = str(said.name)
        self.tag = str(said.tag)
        self.ranks = _group_ranks(said)
        self.rank = rank
        self.timeout: float | None = said.timeout_ms / 1000 if said.timeout_ms else None

    def __repr__(self) -> str:
        return "<Group %s of ranks %s>" % (self.name, list(self.ranks))

    def _check_member(self) -> None:
        """A group that this rank named with others, and is not in, has no name here."""
        if self.id == 0:
            raise self.agent._not_in(self.name or "of ranks %s" % list(self.ranks))

    @property
    def size(self) -> int:
        return len(self.ranks)

    async def is_single_host(self) -> bool:
        """Ask whether the agents of all its ranks are on one host, as MegEngine's is_single_machine.

        Returns: whether they are.
        Raises: TuttiError NO_JOB.
        Example:
            >>> agent.new_group().is_single_host()
            True
        """
        return len({one.host_id for one in await self.agent.ranks(self.ranks)}) == 1

    async def destroy(self) -> None:
        """Be done with it, alone: ops of this object are refused from now on, other members go on.

        When each member has called it, the group is deleted. Calling it again is fine.

        Returns: None.
        Raises: TuttiError WORLD_GROUP: the world ends with close(); NOT_IN_GROUP.
        Example:
            >>> group.destroy()
        """
        if self.name == "world":
            raise errors.make(
                StatusCode.FAILED_PRECONDITION, "the world is left by close()", "WORLD_GROUP"
            )
        if self.id == 0:
            return  # as torch.distributed takes NON_GROUP_MEMBER
        if self.rank < 0:
            raise self.agent._not_in(self.name)
        if self._destroyed:
            return
        self._destroyed = True
        self.agent._forget(self)
        key = b"tutti/destroyed/%d" % self.id  # a queue: no key that anybody sees
        if await self.agent.store.push(key, b"%d" % self.rank) == self.size:
            for _ in self.ranks:
                await self.agent.store.pop(key, at_once=True)
            await self.delete()

    async def abort(self, reason: str = "") -> None:
        """End all ops of the group on all its ranks, and refuse later ones.

        They fail with GROUP_ABORTED; the text has the reason and the rank that asked. It stays so
        until the group is made anew (the world: until a rank joins). Of several aborts the first
        counts.

        reason  for the other ranks, at most 256 bytes

        Returns: None.
        Raises: TuttiError NOT_IN_GROUP, NO_GROUP, REASON_LIMIT.
        Example:
            >>> pair = agent.new_group([0, 1], name="pair")
            >>> pair.abort("the loss is not a number")
        """
        self._check_member()
        request = _wire.new(
            "AbortGroupRequest",
            member=self.agent._member(),
            name=self.name,
            id=self.id,
            reason=reason,
        )
        await self.agent.coordinator.unary("Coordinator.AbortGroup", request)

    async def shrink(self, timeout: float | None = None) -> "Group":
        """Make a group of the ranks that are alive. All of them call, and get the same group.

        It returns when every rank that is alive has called, or when the time of one caller is over:
        who has not called by then is left out. The old group is aborted.

        timeout  seconds to wait for ranks that are alive; None = those of the agent's calls

        Returns: the new Group, named after this one: NAME.2.
        Raises: TuttiError SHRUNK_WITHOUT: it was shrunk without this rank; NO_GROUP, MESH_GROUP.
        Example:
            >>> left = group.shrink(timeout=10)
        """
        self._check_member()
        request = _wire.new(
            "ShrinkGroupRequest", member=self.agent._member(), name=self.name, id=self.id
        )
        said = await ask_and_wait(self.agent, "Coordinator.ShrinkGroup", request, timeout)
        made = Group(self.agent, said.group, said.group_rank)
        made.backend = self.backend
        return made

    async def delete(self) -> None:
        """Delete it for all. Members may all call it.

        Returns: None.
        Raises: TuttiError NOT_IN_GROUP.
        Example:
            >>> group.delete()
        """
        self._check_member()
        self.agent._forget(self)
        request = _wire.new(
            "DeleteGroupRequest",
            member=self.agent._member(),
            name=self.name,
            id=self.id,
            allow_missing=True,
        )
        await self.agent.coordinator.unary("Coordinator.DeleteGroup", request)


@dataclasses.dataclass(frozen=True)
class MeshPart:
    """The part of a mesh that a rank is in, along some of its dimensions.

    ranks       of the job, row-major
    coordinate  of the rank in this part
    group_name  of the ranks as a group
    """

    shape: tuple[int, ...]
    dim_names: tuple[str, ...]
    ranks: tuple[int, ...]
    coordinate: tuple[int, ...]
    group_name: str


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

    async def slice(self, *dims: str, flatten: bool = False, rank: int | None = None) -> MeshPart:
        """Take the part that a rank is in, along some dimensions.

        dims     to keep, in the order of the mesh
        flatten  make them one dimension
        rank     whose part; None = ours

        Returns: the part.
        Raises: TuttiError MESH_DIM, NOT_IN_GROUP: the rank is not in the mesh.
        Example:
            >>> mesh.slice("data", "model", flatten=True).ranks
            (0, 1, 2, 3)
        """
        request = _wire.new(
            "SliceMeshRequest",
            job=self.agent.job,
            name=self.name,
            rank=self.agent.rank if rank is None else rank,
            dim_names=dims,
            flatten=flatten,
        )
        said = await self.agent.coordinator.unary("Mesh.SliceMesh", request)
        return MeshPart(
            tuple(said.shape),
            tuple(said.dim_names),
            tuple(said.ranks),
            tuple(said.coordinate),
            str(said.group_name),
        )

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


def _coordinate(said: Any, rank: int) -> tuple[int, ...]:
    """Of a rank in a mesh; () = it is not in it."""
    ranks, found = list(said.ranks), []
    if rank not in ranks:
        return ()
    place = ranks.index(rank)
    for size in reversed(said.shape):
        place, at = divmod(place, size)
        found.append(at)
    return tuple(reversed(found))


def _mesh_group(mesh: Mesh, dim: "str | int | None") -> str:
    """The name of our group along a dimension; None = the only one."""
    if dim is None and len(mesh.shape) > 1:
        text = "mesh %s has the dimensions %s: give (mesh, dim)"
        raise errors.invalid("MESH_DIM", text % (mesh.name, ", ".join(mesh.dim_names)))
    if isinstance(dim, str):
        return mesh.group_name(dim)
    place = 0 if dim is None else dim
    if not -len(mesh.shape) <= place < len(mesh.shape):
        text = "mesh %s has %d dimensions, none is number %d"
        raise errors.invalid("MESH_DIM", text % (mesh.name, len(mesh.shape), place))
    return mesh.group_name(mesh.dim_names[place])


def _frozen(group: Any) -> Any:
    """A list of ranks, or of such lists, as a key."""
    if group and all(isinstance(one, (int, np.integer)) for one in group):
        return tuple(int(one) for one in group)
    nested = all(isinstance(one, (list, tuple, range, np.ndarray)) and len(one) for one in group)
    if not group or not nested:
        text = "%r is no group: give a Group, a name, ranks, lists of ranks, or a mesh and a dimension"
        raise errors.invalid("BAD_GROUP", text % (group,))
    return tuple(tuple(int(rank) for rank in one) for one in group)


def backend_name(said: str) -> str:
    """The name of ours for one of theirs."""
    if said.lower() in ("host", "gloo", "mpi"):
        return "host"
    if said.lower() != "nccl":
        raise errors.invalid("BAD_VALUE", "backend %s: need host or nccl" % said)
    return "nccl"


BY_RANKS = "by-ranks"  # the tag of groups that ops make from lists of ranks


class Groups:
    """The part of an Agent that asks the coordinator about ranks, groups and meshes."""

    def _not_in(self, name: str) -> errors.TuttiError:
        agent: Any = self
        text = "rank %d is not in group %s" % (agent.rank, name)
        return errors.make(StatusCode.FAILED_PRECONDITION, text, "NOT_IN_GROUP")

    def _forget(self, group: Group) -> None:
        """What was made from lists of ranks is not used again."""
        agent: Any = self
        for key, one in list(agent._by_ranks.items()):
            if one.id == group.id:
                del agent._by_ranks[key]

    async def _group_and_timeout(self, group: "GroupLike") -> tuple[str, float | None]:
        """The name that the wire takes, and the timeout of its ops."""
        found = await self._found(group)
        if isinstance(found, str):
            return found, None
        if found._destroyed:
            text = "group %s was destroyed by this program" % found.name
            raise errors.make(StatusCode.NOT_FOUND, text, "NO_GROUP")
        found._check_member()
        return found.name, found.timeout

    async def _found(self, group: "GroupLike") -> "Group | str":
        """A Group, or a name where that is all that is needed."""
        agent: Any = self
        if group is None or isinstance(group, (str, Group)):
            return group or ""
        if isinstance(group, Mesh):
            return _mesh_group(group, None)
        listed: Any = list(group)
        if len(listed) == 2 and isinstance(listed[0], Mesh):
            return _mesh_group(listed[0], listed[1])
        key = _frozen(listed)
        if key == tuple(range(agent.world_size)):
            return ""
        if key not in agent._by_ranks:
            agent._by_ranks[key] = await self._by_list(key)
        return cast("Group", agent._by_ranks[key])

    async def _by_list(self, key: Any) -> Group:
        """Found or made by its ranks: of several lists ours."""
        agent: Any = self
        if not isinstance(key[0], tuple):
            if agent.rank not in key:
                raise self._not_in("of ranks %s" % list(key))
            return await self.new_group(key, tag=BY_RANKS)
        mine = await self.split(lists=key, tag=BY_RANKS, equal_sizes=True)
        if mine is None:
            raise self._not_in("any of %s" % [list(one) for one in key])
        return mine

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

    async def jobs(self) -> "list[Message]":
        """List all jobs of the coordinator.

        Returns: a tutti.v1.Job (proto/tutti/v1/coordinator_service.proto) of each, by name.
        Raises: TuttiError UNREACHABLE; PERMISSION_DENIED: the token is for one job.
        Example:
            >>> [one.name for one in agent.jobs()]
            ['default']
        """
        found: "list[Message]" = []
        token = ""
        while True:
            page = await self._ask("Coordinator.ListJobs", _wire.new("ListJobsRequest", page_token=token))
            found += list(page.jobs)
            token = page.next_page_token
            if not token:
                return found

    async def backup(self, path: "str | os.PathLike[str]", timeout: float | None = None) -> int:
        """Copy all that the coordinator has stored, of all jobs, into a file for `tutti restore`.

        path     of the file, for its owner alone; it appears as a whole or not at all
        timeout  seconds that it may take; None = as long as it takes

        Returns: how many keys it has.
        Raises: TuttiError BACKUP_LIMIT; PERMISSION_DENIED: it needs the role admin, for all jobs.
        Example:
            >>> agent.backup("tutti.backup")
            12
        """
        agent: Any = self
        handle, name = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".tutti-")
        try:
            said: Any = None
            size = 0
            with os.fdopen(handle, "wb") as file:
                async for said in agent.coordinator.take("Coordinator.Backup", _wire.new("BackupRequest"), timeout):
                    size += file.write(said.piece)
                file.flush()
                os.fsync(file.fileno())
            if said is None or size != said.file_bytes:
                raise errors.make(StatusCode.DATA_LOSS, "the backup has ended too early: make another one", "BACKUP_FORMAT")
            os.replace(name, path)
            return int(said.key_count)
        except BaseException:
            os.unlink(name)
            raise

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
        self,
        ranks: Sequence[int] | None = None,
        name: str = "",
        tag: str = "",
        parent: "Group | str" = "",
        *,
        timeout: float | None = None,
        backend: str | None = None,
        sort: bool = False,
        ephemeral: bool = False,
    ) -> Group:
        """Make a group of an ordered list of ranks, or find it: members call it, all or one. Others may
        call it too, as all ranks do with torch.distributed: they get a Group whose rank is -1.

        The same name, or the same tag and ranks, is the same group; without both each call makes a
        new one, the k-th call of each member the same. A process that has come back counts from one
        again: give groups that are made later a name or a tag.

        ranks    of the job, in the order of the group; None = all. tag: joins the calls of members
        parent   the group whose ranks `ranks` counts
        timeout  seconds of its ops that have no timeout of their own, by any client of any rank; the call
                 that makes the group decides
        backend  what get_backend() says of it: "host" ("gloo" and "mpi" mean it too) or "nccl", which
                 the agent must have. An op still runs where its tensors are. None = it decides alone
        sort     put the ranks in ascending order first, as torch.distributed does
        ephemeral  the group is deleted when this connection has ended, also when the process dies; of
                 several members that make it so, when the last one's has. Also with its agents

        Returns: the group. On a rank that is no member its `rank` is -1, and ops on it raise NOT_IN_GROUP.
        Raises: TuttiError RANK_RANGE, BAD_NAME, NAME_TAKEN: there is a group of that name with
            other ranks; NO_BACKEND: this agent has no NCCL; BAD_VALUE: there is no such backend.
        Example:
            >>> even = agent.new_group([0, 2], name="even")
        """
        agent: Any = self
        known = await self._backend_of(backend)
        request = _wire.new(
            "CreateGroupRequest",
            member=agent._member(),
            name=name,
            tag=tag,
            parent=parent if isinstance(parent, str) else parent.name,
            accept_spans=True,
            timeout_ms=as_ms(timeout),
            **await self._held(ephemeral),
        )
        listed = await self._all_of(parent) if ranks is None else [int(one) for one in ranks]
        listed = sorted(listed) if sort else listed
        if isinstance(parent, Group) and parent.id == 0:
            return await self._of_others(listed, parent, name, tag)
        request.spans.extend(_pack_spans(listed))
        if not request.spans:
            request.ranks.extend(listed)
        try:
            response = await self._ask("Coordinator.CreateGroup", request)
        except errors.TuttiError as error:
            if error.reason != "NOT_IN_GROUP":
                raise
            return await self._of_others(listed, parent, name, tag)
        made = Group(agent, response.group, response.group_rank)
        made.backend = known
        return made

    async def _of_others(self, ranks: list[int], parent: "Group | str", name: str, tag: str) -> Group:
        """A group that this rank is not in, as it was named; 0 is no group's id."""
        agent: Any = self
        whole = await self.group(parent or "world") if isinstance(parent, str) else parent
        of_job = [whole.ranks[rank] for rank in ranks]
        return Group(agent, _wire.new("Group", name=name, tag=tag, ranks=of_job), -1)

    async def _held(self, ephemeral: bool) -> dict[str, Any]:
        """What a request says of a group that goes with this connection."""
        agent: Any = self
        return {"ephemeral": True, "lease": int(await agent._lease(True))} if ephemeral else {}

    async def _backend_of(self, said: str | None) -> str:
        """The name of ours for one of theirs; a backend that this agent has."""
        agent: Any = self
        name = "" if (said or "auto").lower() == "auto" else backend_name(said or "")
        if name == "nccl" and not await agent.is_nccl_available():
            text = "backend nccl: this agent has no GPU with NCCL, it has %s" % agent.info.device
            raise errors.make(StatusCode.FAILED_PRECONDITION, text, "NO_BACKEND")
        return name

    async def _all_of(self, parent: "Group | str") -> list[int]:
        """Group ranks of all members."""
        agent: Any = self
        if parent in ("", "world"):
            return list(range(agent.world_size))
        whole = await self.group(parent) if isinstance(parent, str) else parent
        return list(range(whole.size))

    async def get_rank(self, group: "GroupLike" = None) -> int:
        """Our rank in a group, as torch.distributed has it.

        Returns: the group rank; -1 = we are no member.
        Raises: TuttiError NO_GROUP, MESH_DIM.
        Example:
            >>> agent.get_rank([2, 1, 0])                      # on rank 0
            2
        """
        return (await self._rank_and_size(group))[0]

    async def get_world_size(self, group: "GroupLike" = None) -> int:
        """How many ranks a group has, as torch.distributed has it.

        Returns: the number of ranks; -1 = we are no member.
        Raises: as get_rank().
        Example:
            >>> agent.get_world_size([0, 1])                   # on rank 2
            -1
        """
        return (await self._rank_and_size(group))[1]

    async def _rank_and_size(self, group: "GroupLike") -> tuple[int, int]:
        agent: Any = self
        if group is None or group == "" or group == "world":
            return int(agent.rank), int(agent.world_size)
        try:
            found = await self._found(group)
            known = await self.group(found or "world") if isinstance(found, str) else found
        except errors.TuttiError as error:
            if error.reason != "NOT_IN_GROUP":
                raise
            return -1, -1
        return known.rank, known.size if known.rank >= 0 else -1

    async def split(
        self,
        *,
        size: int | None = None,
        count: int | None = None,
        lists: Sequence[Sequence[int]] | None = None,
        parent: "Group | str" = "",
        name: str = "",
        tag: str = "",
        equal_sizes: bool = False,
        timeout: float | None = None,
        ephemeral: bool = False,
    ) -> Group | None:
        """Split a group into parts. Each member calls it with the same arguments.

        size, count, lists  of ranks in each part; of parts; or the parts themselves: one of these
        parent              the group; "" = the world
        name                of the parts, with their numbers behind it
        equal_sizes         refuse lists of different sizes
        timeout, ephemeral  as new_group() has them

        Returns: the part with this rank, or None: it is in none.
        Raises: TuttiError GROUP_SIZE, RANK_RANGE.
        Example:
            >>> agent.split(size=2).ranks                      # on rank 3 of 4
            (2, 3)
        """
        agent: Any = self
        if isinstance(parent, Group):
            parent._check_member()
        request = _wire.new(
            "CreateSubgroupsRequest",
            member=agent._member(),
            parent=parent if isinstance(parent, str) else parent.name,
            name=name,
            tag=tag,
            equal_sizes=equal_sizes,
            accept_spans=True,
            timeout_ms=as_ms(timeout),
            **await self._held(ephemeral),
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
        self, ranks: Sequence[int], from_group: "GroupLike" = None, to_group: "GroupLike" = None
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
            from_group=(await self._group_and_timeout(from_group))[0],
            to_group=(await self._group_and_timeout(to_group))[0],
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

    async def meshes(self) -> list[Mesh]:
        """List all meshes of the job.

        Returns: the meshes, by name.
        Raises: TuttiError NO_JOB.
        Example:
            >>> [one.name for one in agent.meshes()]
            ['grid']
        """
        agent: Any = self
        found: list[Mesh] = []
        token = ""
        while True:
            request = _wire.new("ListMeshesRequest", job=agent.job, page_token=token)
            page = await self._ask("Mesh.ListMeshes", request)
            found += [Mesh(agent, one, _coordinate(one, agent.rank)) for one in page.meshes]
            token = page.next_page_token
            if not token:
                return found

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
