"""Starting from a script: a coordinator, agents, and a function on each of several ranks."""

from __future__ import annotations

import functools
import inspect
import io
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _init_url, _native_door, errors
from ..status import StatusCode
from ._agent import Agent, connect
from ._session import Session, session
from ._waits import now, pause, run_whole

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._types import ConnectArguments, LaunchArguments

R = TypeVar("R")

START_S = 60.0  # until a server listens
STOP_S = 20.0  # until a server that was told to stop is killed
PATIENCE_S = 5.0  # between a polite end of a rank and the other one
POLL_S = 0.01
LOG_BYTES = 4096


def _find(name: str) -> str:
    """A program: in $TUTTI_PROGRAMS, or on the PATH."""
    folder = os.environ.get("TUTTI_PROGRAMS", "")
    found = os.path.join(folder, name) if folder else shutil.which(name)
    if not found or not os.access(found, os.X_OK):
        text = "no %s on the PATH: install it, or set TUTTI_PROGRAMS to its folder" % name
        raise errors.make(StatusCode.FAILED_PRECONDITION, text, "NO_PROGRAM")
    return found


class Program:
    """A server that this process has started, and that ends with it."""

    def __init__(self, name: str, options: Sequence[str]) -> None:
        self.name = name
        self._folder = tempfile.mkdtemp(prefix="tutti-")
        self._port_file = os.path.join(self._folder, "port")
        self._log = os.path.join(self._folder, "log")
        words = [_find(name), "--port-file", self._port_file, *options]
        if shutil.which("setpriv"):  # it is asked to end when its parent dies
            words = ["setpriv", "--pdeathsig", "TERM", *words]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=True
            )

    async def address(self, timeout: float) -> str:
        """Where it listens, once it does."""
        until = now() + timeout
        while True:
            try:
                with open(self._port_file, encoding="utf-8") as file:
                    line = file.readline()
                if line.endswith("\n"):
                    return line.strip()
            except FileNotFoundError:
                pass
            if self._process.poll() is not None or now() > until:
                raise self._not_started()
            await pause(POLL_S)

    def _not_started(self) -> errors.TuttiError:
        code = self._process.poll()
        how = "does not listen" if code is None else "ended with exit code %d" % code
        text = "%s %s: %s" % (self.name, how, self.log())
        return errors.make(StatusCode.UNAVAILABLE, text, "NOT_STARTED")

    def log(self) -> str:
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()[-LOG_BYTES:].strip()

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        self.ask_to_stop()
        until = now() + STOP_S
        while self._process.poll() is None and now() < until:
            await pause(POLL_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class Server:
    """A coordinator that ends with this program: `tutti-coordinator` of $TUTTI_PROGRAMS or the PATH.

    address  where it listens, once it was started: "127.0.0.1:43210"
    """

    def __init__(
        self, listen: str = "127.0.0.1:0", options: Sequence[str] = (), timeout: float = START_S
    ) -> None:
        self.address = ""
        self._words = ["--listen", listen, *options]
        self._timeout = timeout
        self._program: Program | None = None

    def __repr__(self) -> str:
        return "<Server at %s>" % (self.address or "nowhere yet")

    @property
    def port(self) -> int:
        """Its port; 0 where it was not started."""
        return int(self.address.rpartition(":")[2] or 0)

    async def start(self) -> "Server":
        """Start it, and wait until it listens. Starting again is fine.

        Returns: itself.
        Raises: TuttiError NO_PROGRAM: there is no tutti-coordinator; NOT_STARTED: it ended, and said
            why.
        Example:
            >>> server = tutti.Server().start()
            >>> server.stop()
        """
        if self._program is None:
            self._program = Program("tutti-coordinator", self._words)
            try:
                self.address = await self._program.address(self._timeout)
            except BaseException:
                await self.stop()
                raise
        return self

    async def stop(self) -> None:
        """End it.

        Returns: None.
        Raises: nothing.
        Example:
            >>> server.stop()
        """
        program, self._program = self._program, None
        if program is not None:
            await program.stop()

    async def __aenter__(self) -> "Server":
        return await self.start()

    async def __aexit__(self, *_: Any) -> None:
        await self.stop()


def _start_agent(coordinator: str, rank: int, world_size: int, more: Sequence[str]) -> Program:
    words = ["--coordinator", coordinator, "--rank", str(rank), "--world-size", str(world_size)]
    return Program("tutti-agent", [*words, "--listen", "127.0.0.1:0", *more])


class _Cluster:
    """A coordinator, unless one is named, and the agents of ranks in a row.

    addresses  of the agents
    """

    def __init__(self, coordinator: str) -> None:
        self.coordinator = coordinator
        self.addresses: list[str] = []
        self._server: Server | None = None
        self._agents: list[Program] = []

    async def start(
        self, n: int, first: int, world: int, devices: Sequence[str] | None, more: Sequence[str]
    ) -> None:
        if not self.coordinator:
            self._server = await Server().start()
            self.coordinator = self._server.address
        for place in range(n):
            words = ["--device", devices[place]] if devices else []
            words += ["--local-rank", str(place), *more]
            self._agents.append(_start_agent(self.coordinator, first + place, world, words))
        for one in self._agents:
            self.addresses.append(await one.address(START_S))

    async def stop(self) -> None:
        for one in self._agents:
            one.ask_to_stop()
        for one in self._agents:
            await one.stop()
        if self._server is not None:
            await self._server.stop()


# ------------------------------------------------------------------------------ one rank of a job


class _Seat:
    """What init_process_group() has started for a rank; it ends with the Agent."""

    def __init__(self, server: Server | None, agent: Program) -> None:
        self._server = server
        self._agent = agent

    async def wait_for_others(self, agent: Agent) -> None:
        """Who has the server stays until the others have left, for a while."""
        until = now() + STOP_S
        while self._server is not None and now() < until:
            try:
                job: Any = await agent.job_info()
            except errors.TuttiError:
                return
            if job.alive_count <= 1:
                return
            await pause(POLL_S)

    async def close(self) -> None:
        await self._agent.stop()
        if self._server is not None:
            await self._server.stop()


async def _server_of(init: _init_url.Init, options: Sequence[str], timeout: float) -> Server | None:
    if init.rank != 0:
        return None
    listen = init.address or "127.0.0.1:0"
    server = await Server(listen, options, timeout).start()
    if init.path:
        with open(init.path + ".new", "w", encoding="utf-8") as file:
            file.write(server.address + "\n")
        os.replace(init.path + ".new", init.path)
    return server


async def _coordinator_of(init: _init_url.Init, timeout: float) -> str:
    until = now() + timeout
    while not init.resolve():
        if now() > until:
            text = "rank 0 did not write its address into %s in %g s" % (init.path, timeout)
            raise errors.make(StatusCode.DEADLINE_EXCEEDED, text, "NOT_JOINED")
        await pause(POLL_S)
    return init.resolve()


async def init_process_group(
    init_method: str = "",
    *,
    rank: int | None = None,
    world_size: int | None = None,
    host: str | None = None,
    port: int | None = None,
    device: str = "",
    server_options: Sequence[str] = (),
    agent_options: Sequence[str] = (),
    **how: Unpack[ConnectArguments],
) -> Agent:
    """Make this program a rank of a job, without servers that run already: rank 0 starts the coordinator
    at the init address, and each rank an agent of its own. They end with close(), or with the program.

    init_method     env://: $RANK, $WORLD_SIZE, $MASTER_ADDR, $MASTER_PORT, as torchrun sets them;
                    tcp://host:port?rank=0&world_size=4; file:///path?rank=0&world_size=4: a file that
                    is not there yet. "" = env://
    rank            of this program, and world_size: where the address does not say them
    host            of rank 0, and port: tcp://host:port, instead of an address
    device          of the agent: "cuda:0", as its --device; "" = "cpu"
    server_options  more options of tutti-coordinator; agent_options: of tutti-agent. Over several hosts
                    both need certificates, or --insecure, and agents a --listen
    how             as connect() takes it; without a timeout the ranks have 60 s to come

    Returns: the connection to this rank's agent. On rank 0 its close() waits for the others to close.
    Raises: TuttiError BAD_URL, NO_PROGRAM; NOT_STARTED: a server ended, and said why; NOT_JOINED: not
        all ranks came.
    Example:
        >>> with tutti.init_process_group() as agent:      # of `torchrun --nproc-per-node 2`
        ...     agent.all_reduce([1.0])
        array([2.])
    """
    init = _init_url.parse_init(_init_url.join_parts(init_method, rank, world_size, host, port))
    timeout = how.setdefault("timeout", START_S)
    server = await _server_of(init, server_options, timeout)
    program: Program | None = None
    try:
        coordinator = await _coordinator_of(init, timeout)
        more = (["--device", device] if device else []) + list(agent_options)
        program = _start_agent(coordinator, init.rank, init.world_size, more)
        address = await program.address(timeout)
        agent = await connect(address, **how)
    except BaseException:
        if program is not None:
            await program.stop()
        if server is not None:
            await server.stop()
        raise
    agent._seat = _Seat(server, program)
    return agent


# ------------------------------------------------------------------------------ all ranks of a job


def _in_main_without_file(function: Any) -> bool:
    """Was it typed: in a notebook, `python3 -c`, a shell? A new process would not find it."""
    main = sys.modules.get("__main__")
    return getattr(function, "__module__", "") == "__main__" and not hasattr(main, "__file__")


def _packed(work: tuple[Any, ...]) -> Any:
    """A function and its arguments, as bytes for a new process; or as they are, for a fork of this one."""
    file = io.BytesIO()
    try:
        pickle.dump(work, file)
        if not _in_main_without_file(work[0]):
            return file.getvalue()
        why = "it was typed, and is in no file"
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        why = str(error)
    if _native_door.connected or (_native_door.native is None and "grpc" in sys.modules):
        text = "launch() would fork this process for a function that cannot be pickled (%s), and gRPC runs in it: launch before the first connection, or give a function of a module"
        raise errors.make(StatusCode.FAILED_PRECONDITION, text % why, "FORKED")
    return work


def _child(sender: Any, environment: Mapping[str, str], work: Any) -> None:
    """In the process of a rank: what its function gives, or how it failed, goes to the parent."""
    os.environ.update(environment)
    try:
        function, given, named = pickle.loads(work) if isinstance(work, bytes) else work  # of our own parent
        found = function(*given, **named)
        if inspect.iscoroutine(found):
            found = run_whole(found)
        answer = pickle.dumps((True, found))
    except BaseException:
        answer = pickle.dumps((False, traceback.format_exc()))
    sender.send_bytes(answer)
    sender.close()
    sys.stdout.flush()


class _Rank:
    """A process of launch()."""

    def __init__(self, rank: int, environment: Mapping[str, str], work: Any) -> None:
        context: Any = multiprocessing.get_context("spawn" if isinstance(work, bytes) else "fork")
        self.rank = rank
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_child, args=(sender, environment, work))
        self._process.start()
        sender.close()
        self.ended = False
        self.result: Any = None

    def look(self) -> None:
        """Has it ended? Raises LaunchError where it failed."""
        over = self._process.exitcode is not None
        heard = self._receiver.poll()
        if self.ended or not (heard or over):
            return
        self.ended = True
        try:
            if not heard:  # a fork of this process may still hold its end of the pipe
                raise EOFError
            good, found = pickle.loads(self._receiver.recv_bytes())  # of our own child
        except (EOFError, OSError):
            self._process.join()
            raise errors.LaunchError(self.rank, self._process.exitcode or 0, "") from None
        if not good:
            raise errors.LaunchError(self.rank, 1, found)
        self.result = found

    async def stop(self, patience: float) -> None:
        until = now() + patience
        while self._process.is_alive() and now() < until:
            await pause(POLL_S)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._receiver.close()

    def ask_to_stop(self) -> None:
        if self._process.is_alive():
            self._process.terminate()


def _environment(place: int, count: int, rank: int, world_size: int, server: str) -> dict[str, str]:
    host, _, port = server.rpartition(":")
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(place),
        "LOCAL_WORLD_SIZE": str(count),
        "TUTTI_COORDINATOR": server,
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
    }


async def _wait_for(ranks: Sequence[_Rank], timeout: float | None) -> list[Any]:
    until = None if timeout is None else now() + timeout
    while not all(one.ended for one in ranks):
        for one in ranks:
            one.look()
        if until is not None and now() > until:
            left = [one.rank for one in ranks if not one.ended]
            text = "the ranks %s have not ended in %g s" % (left, timeout or 0)
            raise errors.make(StatusCode.DEADLINE_EXCEEDED, text, "TIMEOUT")
        await pause(POLL_S)
    return [one.result for one in ranks]


def _check_places(
    n: int, start: int, world: int, coordinator: str, devices: Sequence[str] | None
) -> None:
    if n < 1 or start < 0 or start + n > world:
        text = "ranks %d to %d here, but the job has %d (world_size)"
        raise errors.invalid("RANK_RANGE", text % (start, start + n - 1, world))
    if n < world and not coordinator:
        text = "%d of %d ranks are started here: say at which coordinator the others are"
        raise errors.invalid("NO_COORDINATOR", text % (n, world))
    if devices is not None and len(devices) != n:
        text = "%d devices for %d ranks, need one for each"
        raise errors.invalid("BAD_DEVICE", text % (len(devices), n))


async def launch(
    function: Callable[..., R],
    n: int = 2,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    devices: Sequence[str] | None = None,
    world_size: int | None = None,
    rank_start: int = 0,
    coordinator: str = "",
    agent_options: Sequence[str] = (),
    timeout: float | None = None,
) -> list[R]:
    """Run a function on each of n ranks, in processes of their own with an agent beside each: there
    `tutti.connect()` finds it, and $RANK and $WORLD_SIZE are set.

    function     of a module, or of a script with `if __name__ == "__main__"`: it runs in new processes.
                 Any other one, such as a closure or a notebook's, runs in forks of this process, which
                 therefore must not have connected before
    n            how many ranks are started here
    args         of the function, alike on all ranks; kwargs: likewise
    devices      of each rank's agent, as its --device; None = "cpu"
    world_size   of the job, where other launchers start the other ranks: None = n
    rank_start   the first rank here; coordinator: of such a job; "" = one is started
    timeout      seconds until all must have ended; None = as long as they take

    Returns: what the function gave on each rank, by rank.
    Raises: LaunchError: a rank failed, with its traceback; the others were ended. TuttiError
        NO_PROGRAM, NOT_STARTED; FORKED: the function needs forks, and gRPC runs here; RANK_RANGE, NO_COORDINATOR, BAD_DEVICE: what is said of the ranks
        makes no sense; TuttiTimeout.
    Example:
        >>> def work():
        ...     with tutti.connect() as agent:
        ...         return float(agent.all_reduce([1.0])[0])
        >>> tutti.launch(work, 2)
        [2.0, 2.0]
    """
    world = n if world_size is None else world_size
    _check_places(n, rank_start, world, coordinator, devices)
    work = _packed((function, tuple(args), dict(kwargs or {})))
    cluster = _Cluster(coordinator)
    ranks: list[_Rank] = []
    failed = True
    try:
        await cluster.start(n, rank_start, world, devices, agent_options)
        for place, address in enumerate(cluster.addresses):
            known = _environment(place, n, rank_start + place, world, cluster.coordinator)
            known["TUTTI_AGENT"] = address
            ranks.append(_Rank(rank_start + place, known, work))
        found = await _wait_for(ranks, timeout)
        failed = False
        return found
    finally:
        for rank in ranks if failed else ():
            rank.ask_to_stop()
        for rank in ranks:
            await rank.stop(PATIENCE_S if failed else STOP_S)
        await cluster.stop()


def get_device_count(kind: str = "cuda") -> int:
    """Count this machine's devices, without an agent: Agent.device_count() counts those of one.

    kind  "cuda": those that $CUDA_VISIBLE_DEVICES leaves; "cpu": the host's memory

    Returns: how many there are.
    Raises: TuttiError BAD_DEVICE: another kind.
    Example:
        >>> tutti.get_device_count("cpu")
        1
    """
    if kind == "cpu":
        return 1
    if kind not in ("cuda", "gpu"):
        raise errors.invalid("BAD_DEVICE", "%s: devices are cpu and cuda" % kind)
    count = sum(re.fullmatch("nvidia[0-9]+", one) is not None for one in os.listdir("/dev"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    words = [one.strip() for one in visible.split(",")]
    for place, one in enumerate(words):  # CUDA takes those before the first that is none
        if not one.startswith(("GPU-", "MIG-")) and not (one.isdecimal() and int(one) < count):
            return place
    return len(words)


def launcher(
    function: Callable[..., Any] | None = None, n: int | None = None, **how: "Unpack[LaunchArguments]"
) -> Callable[..., Any]:
    """Make a function that runs on each of n ranks when it is called, by launch(); as a decorator with
    or without arguments. It may be a closure.

    n    how many ranks; None = one for each of `devices`, or of this machine's GPUs with that GPU as its
         device, or else 2
    how  as launch() takes it

    Returns: the function; a call of it gives what launch() gives.
    Raises: a call of it: as launch().
    Example:
        >>> @tutti.launcher(n=2)
        ... def total(x):
        ...     with tutti.connect() as agent:
        ...         return float(agent.all_reduce([x])[0])
        >>> total(1.5)
        [3.0, 3.0]
    """
    if function is None:
        return functools.partial(launcher, n=n, **how)
    known: Any = dict(how)

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> list[Any]:
        if n is None and known.get("devices") is None:
            known["devices"] = ["cuda:%d" % place for place in range(get_device_count())] or None
        return await launch(function, n or len(known["devices"] or (1, 2)), args, kwargs, **known)

    return run


# ------------------------------------------------------------------------------ a session of its own


async def _wait_for_hosts(made: Session, module: str) -> None:
    """Until the process beside each agent has imported the module."""
    until = now() + START_S
    while True:
        try:
            await made.import_python_module(module)
            return
        except errors.TuttiError as error:
            if error.reason != "NO_HOST" or now() > until:
                raise
        await pause(POLL_S)


async def ProcessSession(  # named as TVM names it
    num_workers: int,
    num_groups: int = 1,
    entrypoint: str = "",
    *,
    devices: Sequence[str] | None = None,
    agent_options: Sequence[str] = (),
) -> Session:
    """Start agents on this machine, and open a session of them. They end with it, or with this program.

    num_groups     blocks of consecutive workers, for commands with in_group; divides num_workers
    entrypoint     a Python module whose functions each worker offers, in a process beside its agent
    devices        of each agent, as its --device; None = "cpu"
    agent_options  more options of tutti-agent

    Returns: the session; shut it down, or use it in a `with` block.
    Raises: as session(); TuttiError NO_PROGRAM, NOT_STARTED, BAD_DEVICE, RANK_RANGE; IMPORT_FAILED,
        NO_HOST: the entrypoint could not be imported, or not in 60 s.
    Example:
        >>> with tutti.ProcessSession(2) as session:
        ...     session.call_packed("runtime.disco.worker_rank").debug_get_from_all()
        [0, 1]
    """
    _check_places(num_workers, 0, num_workers, "", devices)
    cluster = _Cluster("")
    try:
        more = [*(["--python", entrypoint, "--functions", entrypoint] if entrypoint else []), *agent_options]
        await cluster.start(num_workers, 0, num_workers, devices, more)
        made = await session(cluster.addresses[0], num_groups=num_groups)
        made._servers = cluster
    except BaseException:
        await cluster.stop()
        raise
    try:
        if entrypoint:
            await _wait_for_hosts(made, entrypoint)
    except BaseException:
        await made._close(gently=False)
        raise
    return made
