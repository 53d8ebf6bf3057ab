"""The job's key-value store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _wire, errors
from ._work import as_ms

if TYPE_CHECKING:
    from ._agent import Agent

_WATCH = {number: name for name, number in _wire.enum_numbers("WatchKind", "WATCH_KIND_").items()}


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
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    async def _ask(self, method: str, timeout: float | None = None, **fields: Any) -> Any:
        request = _wire.new("StoreService%sRequest" % method, job=self._agent.job, **fields)
        return await self._agent.coordinator.unary("Store." + method, request, timeout)

    async def get(self, key: str | bytes) -> bytes:
        """TuttiError NOT_FOUND NO_KEY: wait() waits for it."""
        return bytes((await self._ask("Get", key=_bytes(key))).value)

    async def set(self, key: str | bytes, value: str | bytes) -> None:
        """Overwrites."""
        await self._ask("Set", key=_bytes(key), value=_bytes(value))

    async def multi_get(
        self, keys: Iterable[str | bytes], at_once: bool = False, timeout: float | None = None
    ) -> list[bytes]:
        """Values of several keys at one moment; waits until all exist, unless at_once."""
        asked = [_bytes(key) for key in keys]
        ms = as_ms(timeout)
        response = await self._ask("MultiGet", keys=asked, at_once=at_once, timeout_ms=ms)
        return list(response.values)

    async def multi_set(self, entries: Mapping[Any, Any]) -> None:
        """Several keys, all or none."""
        found = [
            _wire.new("Entry", key=_bytes(key), value=_bytes(value))
            for key, value in entries.items()
        ]
        await self._ask("MultiSet", entries=found)

    async def check(self, *keys: str | bytes) -> bool:
        """Are all of them there?"""
        return bool((await self._ask("Check", keys=[_bytes(key) for key in keys])).all_exist)

    async def append(self, key: str | bytes, value: str | bytes) -> int:
        """Bytes behind a value; how many bytes it has now."""
        return int((await self._ask("Append", key=_bytes(key), value=_bytes(value))).size)

    async def compare_and_set(
        self, key: str | bytes, expected: str | bytes | None, value: str | bytes
    ) -> tuple[bool, bytes | None]:
        """Store `value` if `expected` (None = no key) is there; whether, and what is there now."""
        fields: dict[str, Any] = {} if expected is None else {"expected": _bytes(expected)}
        said = await self._ask("CompareAndSet", key=_bytes(key), value=_bytes(value), **fields)
        return bool(said.swapped), bytes(said.value) if said.exists else None

    async def add(self, key: str | bytes, delta: int = 1) -> int:
        """Add to a counter, which begins at 0; its new value."""
        return int((await self._ask("Add", key=_bytes(key), delta=delta)).value)

    async def delete(self, key: str | bytes) -> bool:
        """Was there a key?"""
        return bool((await self._ask("Delete", key=_bytes(key))).existed)

    async def wait(self, *keys: str | bytes, timeout: float | None = None) -> None:
        """Until all exist at one moment."""
        asked = [_bytes(key) for key in keys]
        await self._ask("Wait", keys=asked, timeout_ms=as_ms(timeout))

    async def take(
        self, key: str | bytes, at_once: bool = False, timeout: float | None = None
    ) -> bytes:
        """Wait until a key exists, and take it away."""
        ms = as_ms(timeout)
        return bytes(
            (await self._ask("Take", key=_bytes(key), at_once=at_once, timeout_ms=ms)).value
        )

    async def push(self, queue: str | bytes, value: str | bytes) -> int:
        """A value to the end of a queue; how many it holds."""
        return int((await self._ask("QueuePush", key=_bytes(queue), value=_bytes(value))).length)

    async def pop(
        self, queue: str | bytes, at_once: bool = False, timeout: float | None = None
    ) -> bytes:
        """The first value of a queue; waits while there is none."""
        ms = as_ms(timeout)
        said = await self._ask("QueuePop", key=_bytes(queue), at_once=at_once, timeout_ms=ms)
        return bytes(said.value)

    async def length(self, queue: str | bytes) -> int:
        """How many values a queue holds."""
        return int((await self._ask("QueueLen", key=_bytes(queue))).length)

    async def count(self, prefix: str | bytes = b"") -> int:
        """How many keys begin so."""
        return int((await self._ask("Count", prefix=_bytes(prefix))).count)

    async def list(self, prefix: str | bytes = b"") -> AsyncIterator[Entry]:
        """All keys that begin so, in order, with their values."""
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
        """Every change to keys that begin so. First comes None: the watch stands.

        timeout  seconds after which the iteration ends
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
