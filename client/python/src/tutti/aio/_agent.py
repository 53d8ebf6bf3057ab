"""Connecting to agents."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import _init_url, _settings, _wire, dtypes, errors
from ..status import StatusCode
from ._buckets import Buckets
from ._collectives import Collectives
from ._diagnosis import Diagnosis
from ._fast import Fast
from ._functions import Functions
from ._gpu import GpuShares
from ._groups import Group, Groups, rank_info
from ._infer import Inference
from ._leader import Leader
from ._meetings import Meetings
from ._objects import Objects
from ._pairs import Pairs
from ._pipeline import Pipelines
from ._serving import Serving
from ._store import Store
from ._tensor import Tensors
from ._tracers import Tracing
from ._line import Line
from ._waits import in_thread, now, pause
from ._view import Views

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._launch import _Seat
    from ._types import ConnectArguments, DtypeLike, NumpyArray

ASK_TIMEOUT = 5.0  # seconds of one question while connecting
ASK_AGAIN = 0.5  # seconds between two of them at most


@dataclasses.dataclass(frozen=True)
class AgentInfo:
    """The rank whose agent a connection leads to, and the facts about it.

    elastic  "world" has the ranks that are there, so group ranks in it may differ from ranks of the job
    """

    job: str
    rank: int
    world_size: int
    incarnation: int
    epoch: int
    coordinator: str
    host: str
    pid: int
    device: str
    version: str
    commands_max: int
    addresses: tuple[str, ...]
    elastic: bool = False


_OPEN: "list[weakref.ref[Agent]]" = []  # connections that nobody has closed


def _forget(one: "weakref.ref[Agent]") -> None:
    with contextlib.suppress(ValueError):  # it was closed before
        _OPEN.remove(one)


def _default() -> "Agent":
    """The connection of init_process_group(), or the only one there is."""
    found = [one for one in (each() for each in list(_OPEN)) if one is not None]
    started = [one for one in found if one._seat is not None]
    if len(started) == 1 or len(found) == 1:
        return (started if len(started) == 1 else found)[0]
    if not found:
        raise errors.invalid("NO_AGENT", "no connection is open: call tutti.connect() before")
    text = "%d connections are open: call empty() or zeros() of the one that shall have the memory"
    raise errors.invalid("NO_AGENT", text % len(found))


async def empty(shape: "int | Sequence[int]", dtype: "DtypeLike" = "FP32") -> "NumpyArray":
    """Make an array in the memory of the agent: Agent.empty() of the connection that
    init_process_group() has made, or of the only one that is open.

    Returns: the array; what is in it is undefined.
    Raises: TuttiError BAD_DTYPE; NO_AGENT: no connection is open, or several are.
    Example:
        >>> x = tutti.empty((1024, 1024), np.float32)
    """
    return await _default().empty(shape, dtype)


async def zeros(shape: "int | Sequence[int]", dtype: "DtypeLike" = "FP32") -> "NumpyArray":
    """As empty(), and all of it is 0.

    Returns: the array.
    Raises: as empty().
    Example:
        >>> tutti.zeros(4)
        array([0., 0., 0., 0.], dtype=float32)
    """
    return await _default().zeros(shape, dtype)


class Agent(
    Tensors,
    Views,
    GpuShares,
    Collectives,
    Pairs,
    Groups,
    Meetings,
    Objects,
    Tracing,
    Pipelines,
    Inference,
    Buckets,
    Functions,
    Diagnosis,
    Serving,
):
    """A connection to one agent, and so to one rank of a job. Made by connect().

    store  the job's key-value store
    """

    def __init__(self, settings: _settings.Settings, line: Line, info: AgentInfo) -> None:
        self.settings = settings
        self.line = line
        self.info = info
        self.store = Store(self)
        self._coordinator: Line | None = None
        self._seat: _Seat | None = None  # servers that end with it
        self._by_ranks: dict[object, Group] = {}  # groups of lists of ranks that ops have named
        self._fast = Fast(self)
        _OPEN.append(weakref.ref(self, _forget))

    def __repr__(self) -> str:
        return "<Agent rank %d of %d, job %s, at %s>" % (
            self.rank,
            self.world_size,
            self.info.job,
            self.line.address,
        )

    def __reduce__(self) -> Any:
        raise TypeError("a connection cannot be pickled: give its address, and connect in the other process")

    @property
    def rank(self) -> int:
        return self.info.rank

    @property
    def world_size(self) -> int:
        return self.info.world_size

    @property
    def job(self) -> str:
        return self.info.job

    @property
    def coordinator(self) -> Line:
        """The connection to the coordinator."""
        if self._coordinator is None:
            address = self.settings.coordinator or self.info.coordinator
            self._coordinator = Leader(address, self.settings)
        return self._coordinator

    def _member(self) -> Any:
        """The Member by which the coordinator knows the caller: job, rank, incarnation."""
        return _wire.new("Member", job=self.job, rank=self.rank, incarnation=self.info.incarnation)

    @property
    def copied(self) -> int:
        """Bytes of arrays that were copied for ops by the native module: into messages and into memory of
        the agent, and out of them. 0 without that module."""
        return int(self._fast.copied)

    async def empty(self, shape: "int | Sequence[int]", dtype: "DtypeLike" = "FP32") -> "NumpyArray":
        """Make an array whose memory is the agent's: ops on it copy nothing.

        The memory is the array's as long as anything refers to it, also after close(); then it is used
        again. Where there can be no such memory (another host, `TUTTI_PYTHON=grpc`, a GPU) it is
        an array of this program's memory, and ops copy it.

        shape, dtype  as numpy.empty() takes them; or a name, "FP32"

        Returns: the array; what is in it is undefined.
        Raises: TuttiError BAD_DTYPE.
        Example:
            >>> x = agent.empty((1024, 1024), np.float32)
            >>> x[:] = 1
            >>> y = agent.all_reduce(x)
        """
        kind = dtypes.numpy_dtype(dtypes.name_of(dtype))
        return cast("NumpyArray", await self._fast.empty(shape, kind))

    async def zeros(self, shape: "int | Sequence[int]", dtype: "DtypeLike" = "FP32") -> "NumpyArray":
        """As empty(), and all of it is 0.

        Returns: the array.
        Raises: as empty().
        Example:
            >>> agent.zeros(4)
            array([0., 0., 0., 0.], dtype=float32)
        """
        found = await self.empty(shape, dtype)
        found.fill(0)
        return found

    async def connect_rank(self, rank: int) -> "Agent":
        """Connect to another rank's agent of the job, as this connection was made.

        Returns: the connection; close it.
        Raises: as connect(), and RANK_RANGE: the job has no such rank.
        Example:
            >>> with agent.connect_rank(1) as other:
            ...     other.rank
            1
        """
        info = (await self.ranks([rank]))[0]
        return await _open(dataclasses.replace(self.settings, agent=list(info.addresses)))

    async def close(self) -> None:
        """End the connections. Tensors stay in the agent, but for ephemeral ones.

        Returns: None. Calls after it raise TuttiError CLOSED.
        Raises: nothing.
        Example:
            >>> agent.close()
        """
        _forget(weakref.ref(self))
        self._fast.close()
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.wait_for_others(self)
        if self._coordinator is not None:
            await self._coordinator.close()
        await self.line.close()
        if seat is not None:
            await seat.close()

    async def __aenter__(self) -> "Agent":
        self._ephemeral = self.settings.ephemeral
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


# ------------------------------------------------------------------------------ connecting


class _Patience:
    """The time that connecting may take, and the growing pauses between attempts."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = now() + seconds
        self._next = 0.01

    def left(self) -> float:
        return max(0.001, min(ASK_TIMEOUT, self._until - now()))

    async def more(self) -> bool:
        """Wait for the next attempt; False when the time is up."""
        if now() + self._next > self._until:
            return False
        await pause(self._next)
        self._next = min(self._next * 2, ASK_AGAIN)
        return True


def _not_there(error: errors.TuttiError) -> bool:
    return error.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)


async def _describe(line: Line, timeout: float) -> Any:
    request = _wire.new("DescribeAgentRequest")
    return await line.unary("Diagnostics.DescribeAgent", request, timeout)


async def _describe_agent(line: Line, timeout: float) -> Any:
    """As _describe(), with a better error when a coordinator's address was given by mistake."""
    try:
        return await _describe(line, timeout)
    except errors.TuttiError as error:
        if error.code is not StatusCode.UNIMPLEMENTED or not await _is_coordinator(line):
            raise
    text = "%s is a coordinator, not an agent: give the address of an agent, which tutti --coordinator %s status shows"
    code = StatusCode.FAILED_PRECONDITION
    raise errors.make(code, text % (line.address, line.address), "NOT_AN_AGENT")


async def _is_coordinator(line: Line) -> bool:
    request = _wire.new("StoreServiceQueueLenRequest", key=b"-")
    try:
        await line.unary("Store.QueueLen", request, ASK_TIMEOUT)
    except errors.TuttiError as error:
        return error.code is not StatusCode.UNIMPLEMENTED and not _not_there(error)
    return True


async def _first_that_answers(settings: _settings.Settings, left: float) -> tuple[Line, Any]:
    """A connection to the first address at which an agent answers, and its description."""
    failure: errors.TuttiError | None = None
    for address in settings.addresses():
        line = Line(address, settings)
        try:
            return line, await _describe_agent(line, left)
        except BaseException as error:
            await line.close()
            if not isinstance(error, errors.TuttiError) or not _not_there(error):
                raise
            failure = await in_thread(settings.name_certificate, error, address)
    assert failure is not None
    raise failure


async def _reach(settings: _settings.Settings, patience: _Patience) -> tuple[Line, Any]:
    while True:
        try:
            return await _first_that_answers(settings, patience.left())
        except errors.TuttiError as error:
            if not settings.wait or not _not_there(error) or not await patience.more():
                raise


async def _nearer(settings: _settings.Settings, line: Line, said: Any) -> Line:
    """A connection by the agent's Unix socket, where this host has it; else `line`."""
    first = (_settings.in_order(said.addresses, said.host_id) or [""])[0]
    if not first.startswith("unix:") or line.address.startswith("unix:"):
        return line
    nearer = Line(first, settings)
    try:
        if (await _describe(nearer, ASK_TIMEOUT)).incarnation == said.incarnation:
            await line.close()
            return nearer
    except errors.TuttiError:
        pass
    await nearer.close()
    return line


async def _open(settings: _settings.Settings) -> Agent:
    """Connect, and wait until the agent has joined its job."""
    patience = _Patience(settings.timeout)
    line, said = await _reach(settings, patience)
    try:
        while not said.joined:
            if not await patience.more():
                text = "the agent at %s has not joined job %s in %g s"
                raise errors.make(
                    StatusCode.DEADLINE_EXCEEDED,
                    text % (line.address, said.job, settings.timeout),
                    "NOT_JOINED",
                )
            said = await _describe(line, patience.left())
    except BaseException:
        await line.close()
        raise
    line = await _nearer(settings, line, said)
    fields = {field.name: getattr(said, field.name) for field in dataclasses.fields(AgentInfo)}
    fields["addresses"] = tuple(said.addresses)
    return Agent(settings, line, AgentInfo(**fields))


async def _look_up(settings: _settings.Settings, ranks: list[int], timeout: float) -> list[Any]:
    """Ask the coordinator about ranks; no ranks = all ranks."""
    line = Leader(settings.coordinator or "", settings)
    try:
        request = _wire.new("LookupRanksRequest", job=settings.job, ranks=ranks)
        response = await line.unary("Coordinator.LookupRanks", request, timeout)
        return [rank_info(one) for one in response.ranks]
    finally:
        await line.close()


def _may_come(error: errors.TuttiError) -> bool:
    return _not_there(error) or (
        error.code is StatusCode.NOT_FOUND and error.reason != "RANK_RANGE"
    )


async def _find(init: _init_url.Init, settings: _settings.Settings, patience: _Patience) -> Any:
    """The settings, with the addresses of the agent of the rank in an init address."""
    while True:
        found = dataclasses.replace(settings, coordinator=settings.coordinator or init.resolve())
        why = "the file %s with the coordinator's address does not exist" % init.path
        try:
            if found.coordinator:
                info = (await _look_up(found, [init.rank], patience.left()))[0]
                if info.state == "ALIVE" and info.addresses:
                    return dataclasses.replace(found, agent=list(info.addresses), wait=True)
                why = "it is %s" % info.state
        except errors.TuttiError as error:
            if not _may_come(error):
                raise
            why = error.text
        if not await patience.more():
            text = "rank %d did not come in %g s: %s" % (init.rank, patience.seconds, why)
            raise errors.make(StatusCode.DEADLINE_EXCEEDED, text, "NOT_JOINED")


async def connect(
    agent: str | Sequence[str] | None = None,
    *,
    coordinator: str | None = None,
    job: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    tls_name: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
    traceparent: str | Callable[[], str] | None = None,
    timeout: float = 30.0,
    wait: bool = False,
    ephemeral: bool = True,
    options: Sequence[tuple[str, int | str]] = (),
) -> Agent:
    """Connect to an agent, and wait until it has joined its job.

    agent        "host:port", "[v6]:port", "unix:/path"; several: the first that answers; or an init
                 address: env://, tcp://host:port?rank=0&world_size=4, file:///path?rank=...;
                 None = $TUTTI_AGENT
    coordinator  None = $TUTTI_COORDINATOR, else what the agent says
    job          of an init address: None = $TUTTI_JOB, else "default"
    tls_ca       PEM file, makes it TLS; tls_cert, tls_key: the client's own; tls_name: what the
                 certificate says instead of the address. None = $TUTTI_TLS_CA, _CERT, _KEY
    token        bearer token; or token_file, read anew for each call: None = $TUTTI_TOKEN_FILE
    traceparent  W3C trace context of all calls, or what gives that of the next one; None =
                 $TRACEPARENT. It is in the records of ops
    timeout      seconds that connecting may take, and a call of the store that need not wait
    wait         while nobody answers try again, until the time is up
    ephemeral    what a `with` block of the connection makes, by put(), create(), copy() and as results
                 of ops, is deleted when the block ends, or when this process dies. False: it stays.
                 put() and create() can say so for one tensor
    options      more gRPC channel options

    Returns: the connection; close it, or use it in a `with` block.
    Raises: TuttiError UNAVAILABLE UNREACHABLE: nobody answers there; DEADLINE_EXCEEDED NOT_JOINED;
        FAILED_PRECONDITION NOT_AN_AGENT: a coordinator is there;
        UNAUTHENTICATED: no token, or a wrong one; INVALID_ARGUMENT BAD_URL, NO_AGENT, WORLD_SIZE: the
        job has another size than the init address says.
    Example:
        >>> with tutti.connect("127.0.0.1:7001") as agent:
        ...     agent.all_reduce([1.0])
        array([2.])
    """
    known: dict[str, Any] = dict(locals())
    settings = _settings.Settings(**known)
    first = settings.addresses()[0]
    if not _init_url.is_init(first):
        return await _open(settings)
    init = _init_url.parse_init(first)
    found = await _open(await _find(init, settings, _Patience(settings.timeout)))
    if found.world_size != init.world_size:
        await found.close()
        text = "the init address says %d ranks, but job %s has %d"
        raise errors.invalid("WORLD_SIZE", text % (init.world_size, found.job, found.world_size))
    return found


async def connect_job(
    coordinator: str, job: str = "default", **how: Unpack[ConnectArguments]
) -> list[Agent]:
    """Connect to each rank of a job (up to 1024), for a program that drives them all.

    how  as connect() takes it

    Returns: the connections, by rank.
    Raises: as connect(), and RANK_LOST: a rank is not there.
    Example:
        >>> agents = tutti.connect_job("127.0.0.1:7000")
        >>> [agent.rank for agent in agents]
        [0, 1]
    """
    settings = _settings.Settings(agent="", coordinator=coordinator, job=job, **how)
    found: list[Agent] = []
    try:
        for info in await _look_up(settings, [], settings.timeout):
            if info.state != "ALIVE":
                text = "rank %d of job %s is %s" % (info.rank, job, info.state)
                raise errors.make(StatusCode.UNAVAILABLE, text, "RANK_LOST")
            found.append(await _open(dataclasses.replace(settings, agent=list(info.addresses))))
    except BaseException:
        for agent in found:
            await agent.close()
        raise
    return found
