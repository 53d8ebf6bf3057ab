"""The job's key-value store."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from .. import _wire, errors
from ._call import DEADLINE_SLACK
from ._transport import now, pause
from ._work import as_ms

if TYPE_CHECKING:
    from ._agent import Agent

_WATCH = {number: name for name, number in _wire.enum_numbers("WatchKind", "WATCH_KIND_").items()}


# With a token a call counts once, however often it is made.
_WITH_TOKEN = frozenset(("Append", "Add", "Take", "QueuePush", "QueuePop"))
# What changes nothing may be asked again.
_READING = frozenset(("Get", "MultiGet", "Check", "Wait", "QueueLen", "Count", "List"))
_PAUSE = 0.005  # seconds before a call is made again at first; pauses double
_PAUSE_MAX = 0.2

_random = random.SystemRandom()  # two processes never draw the same


def _may_ask_again(method: str, answered: bool, error: errors.TuttiError) -> bool:
    """Is the coordinator stopping or gone? The next one on its store may answer."""
    if error.code is not grpc.StatusCode.UNAVAILABLE:
        return False
    if error.reason == "UNREACHABLE":  # nobody has heard of the call
        return answered
    return method in _WITH_TOKEN | _READING and error.reason in ("CONNECTION_LOST", "DRAINING", "")


class Entry(NamedTuple):
    """A key, and its value; None = the key was deleted."""

    key: bytes
    value: bytes | None
    version: int


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


class Store:
    """Keys of 1 to 1024 bytes, values of up to 1 MiB; text is taken as UTF-8, values come as bytes.

    Waiting calls take a timeout in seconds; None = for ever.

    A coordinator that is started again on its store is a delay: calls wait for it, and those that its
    end has broken off are made again, until their time is over, or for connect()'s timeout where they
    have none. add, append, push, pop and take count once. set, multi_set, compare_and_set and delete
    are not made again once they may have been heard: they raise CONNECTION_LOST.
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    async def _ask(self, method: str, **fields: Any) -> Any:
        """Make a call that the coordinator answers at once."""
        request = self._request(method, **fields)
        return await self._call(method, request, now() + self._agent.settings.timeout)

    async def _ask_and_wait(self, method: str, timeout: float | None, **fields: Any) -> Any:
        """Make a call that is answered within `timeout` seconds; None = at any time."""
        request = self._request(method, timeout_ms=as_ms(timeout), **fields)
        until = None if timeout is None else now() + timeout + DEADLINE_SLACK
        return await self._call(method, request, until)

    def _request(self, method: str, **fields: Any) -> Any:
        if method in _WITH_TOKEN:
            fields["token"] = _random.randrange(1, 1 << 64)
        return _wire.new("StoreService%sRequest" % method, job=self._agent.job, **fields)

    async def _call(self, method: str, request: Any, until: float | None) -> Any:
        """Call again while the coordinator is gone, until the time or connect()'s timeout is over."""
        line, away, nap = self._agent.coordinator, now(), _PAUSE
        while True:
            left = None if until is None else max(0.001, until - now())
            try:
                return await line.unary("Store." + method, request, left)
            except errors.TuttiError as error:
                if error.reason != "UNREACHABLE":  # it was there until now
                    away = now()
                end = away + self._agent.settings.timeout if until is None else until
                left = end - nap - now()
                if not _may_ask_again(method, line.answered, error) or left <= 0:
                    raise
                await pause(nap)  # a server that shuts down says so at once
                nap = min(nap * 2, _PAUSE_MAX)
                if not await line.is_back(left):
                    raise

    async def get(self, key: str | bytes) -> bytes:
        """Read a key that is there.

        Returns: the value.
        Raises: TuttiError NO_KEY: it is not there; wait() waits for it.
        Example:
            >>> agent.store.set("lr", "0.1")
            >>> agent.store.get("lr")
            b'0.1'
        """
        return bytes((await self._ask("Get", key=_bytes(key))).value)

    async def set(self, key: str | bytes, value: str | bytes) -> None:
        """Write a key, whether it is there or not.

        Returns: None.
        Raises: TuttiError BAD_KEY, VALUE_LIMIT.
        Example:
            >>> agent.store.set("lr", "0.1")
        """
        await self._ask("Set", key=_bytes(key), value=_bytes(value))

    async def multi_get(
        self, keys: Iterable[str | bytes], at_once: bool = False, timeout: float | None = None
    ) -> list[bytes]:
        """Read several keys at one moment.

        at_once  do not wait until all exist

        Returns: the values, in the order of the keys.
        Raises: TuttiError NO_KEY, with at_once; TuttiTimeout.
        Example:
            >>> agent.store.multi_get(["a", "b"], timeout=10)
        """
        asked = [_bytes(key) for key in keys]
        response = await self._ask_and_wait("MultiGet", timeout, keys=asked, at_once=at_once)
        return list(response.values)

    async def multi_set(self, entries: Mapping[str, str | bytes] | Mapping[bytes, str | bytes]) -> None:
        """Write several keys, all or none.

        Returns: None.
        Raises: TuttiError BAD_KEY, VALUE_LIMIT.
        Example:
            >>> agent.store.multi_set({"a": "1", "b": "2"})
        """
        found = [
            _wire.new("Entry", key=_bytes(key), value=_bytes(value))
            for key, value in entries.items()
        ]
        await self._ask("MultiSet", entries=found)

    async def check(self, *keys: str | bytes) -> bool:
        """Ask whether keys are there.

        Returns: True when all are.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.check("a", "b")
            True
        """
        return bool((await self._ask("Check", keys=[_bytes(key) for key in keys])).all_exist)

    async def append(self, key: str | bytes, value: str | bytes) -> int:
        """Add bytes behind a value; a key that is not there begins empty.

        Returns: how many bytes it has now.
        Raises: TuttiError VALUE_LIMIT.
        Example:
            >>> agent.store.append("log", "line\n")
            5
        """
        return int((await self._ask("Append", key=_bytes(key), value=_bytes(value))).size)

    async def compare_and_set(
        self, key: str | bytes, expected: str | bytes | None, value: str | bytes
    ) -> tuple[bool, bytes | None]:
        """Write `value` if the key's value is `expected`.

        expected  None = the key is not there

        Returns: whether it was written, and what is there now; None = no key.
        Raises: TuttiError VALUE_LIMIT.
        Example:
            >>> agent.store.compare_and_set("leader", None, "rank 0")
            (True, b'rank 0')
        """
        fields: dict[str, Any] = {} if expected is None else {"expected": _bytes(expected)}
        said = await self._ask("CompareAndSet", key=_bytes(key), value=_bytes(value), **fields)
        return bool(said.swapped), bytes(said.value) if said.exists else None

    async def add(self, key: str | bytes, delta: int = 1) -> int:
        """Add to a counter, which begins at 0.

        Returns: its new value.
        Raises: TuttiError NOT_A_NUMBER: the value is no number; OVERFLOW: beyond 64 bits.
        Example:
            >>> agent.store.add("epoch")
            1
        """
        return int((await self._ask("Add", key=_bytes(key), delta=delta)).value)

    async def delete(self, key: str | bytes) -> bool:
        """Delete a key.

        Returns: whether it was there.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.delete("lr")
            True
        """
        return bool((await self._ask("Delete", key=_bytes(key))).existed)

    async def wait(self, *keys: str | bytes, timeout: float | None = None) -> None:
        """Wait until all keys exist at one moment.

        Returns: None.
        Raises: TuttiTimeout.
        Example:
            >>> agent.store.wait("ready/0", "ready/1", timeout=60)
        """
        asked = [_bytes(key) for key in keys]
        await self._ask_and_wait("Wait", timeout, keys=asked)

    async def take(
        self, key: str | bytes, at_once: bool = False, timeout: float | None = None
    ) -> bytes:
        """Wait until a key exists, and take it away: one caller gets it.

        at_once  do not wait

        Returns: the value.
        Raises: TuttiError NO_KEY, with at_once; TuttiTimeout.
        Example:
            >>> agent.store.take("job/17", timeout=60)
        """
        said = await self._ask_and_wait("Take", timeout, key=_bytes(key), at_once=at_once)
        return bytes(said.value)

    async def push(self, queue: str | bytes, value: str | bytes) -> int:
        """Put a value at the end of a queue.

        Returns: how many values it holds.
        Raises: TuttiError VALUE_LIMIT.
        Example:
            >>> agent.store.push("batches", "17")
            1
        """
        return int((await self._ask("QueuePush", key=_bytes(queue), value=_bytes(value))).length)

    async def pop(
        self, queue: str | bytes, at_once: bool = False, timeout: float | None = None
    ) -> bytes:
        """Take the first value of a queue; waits while there is none.

        at_once  do not wait

        Returns: the value.
        Raises: TuttiError QUEUE_EMPTY, with at_once; TuttiTimeout.
        Example:
            >>> agent.store.pop("batches", timeout=60)
            b'17'
        """
        said = await self._ask_and_wait("QueuePop", timeout, key=_bytes(queue), at_once=at_once)
        return bytes(said.value)

    async def length(self, queue: str | bytes) -> int:
        """Count the values of a queue.

        Returns: how many it holds; 0 where there is no such queue.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.length("batches")
            0
        """
        return int((await self._ask("QueueLen", key=_bytes(queue))).length)

    async def count(self, prefix: str | bytes = b"") -> int:
        """Count the keys that begin with a prefix.

        Returns: how many there are.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.count("ready/")
            2
        """
        return int((await self._ask("Count", prefix=_bytes(prefix))).count)

    async def list(self, prefix: str | bytes = b"") -> AsyncIterator[Entry]:
        """List the keys that begin with a prefix, in order, with their values.

        Returns: an iterator of Entries.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> [entry.key for entry in agent.store.list("ready/")]
            [b'ready/0', b'ready/1']
        """
        token = b""
        while True:
            page = await self._ask("List", prefix=_bytes(prefix), page_token=token, page_size=1000)
            for one in page.entries:
                yield Entry(one.key, one.value, one.version)
            token = page.next_page_token
            if not token:
                return

    async def watch(
        self, prefix: str | bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[Entry | None]:
        """Watch the keys that begin with a prefix.

        timeout  seconds after which the iteration ends

        Returns: an iterator: first None, from then on no change is missed; then an Entry of each.
        Raises: TuttiError UNREACHABLE, CONNECTION_LOST, SLOW_WATCHER.
        Example:
            >>> for entry in agent.store.watch("config/"):
            ...     print(entry)
        """
        request = _wire.new("StoreServiceWatchRequest", job=self._agent.job, prefix=_bytes(prefix))
        stands = False
        try:
            async for said in self._agent.coordinator.take("Store.Watch", request, timeout):
                kind = _WATCH.get(said.kind)
                if kind == "BEGUN":
                    stands = True
                    yield None
                else:
                    value = said.entry.value if kind == "SET" else None
                    yield Entry(said.entry.key, value, said.entry.version)
        except errors.TuttiTimeout:
            if not stands:
                raise
