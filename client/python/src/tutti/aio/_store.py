"""The job's key-value store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _wire, errors
from ..status import StatusCode
from ._ask import WITH_TOKEN, ask, ask_and_wait, draw_token
from ._waits import now, pause
from ._work import as_ms

if TYPE_CHECKING:
    from ._agent import Agent

_WATCH = {number: name for name, number in _wire.enum_numbers("WatchKind", "WATCH_KIND_").items()}


_WATCH_AGAIN = 30.0  # seconds: the coordinator's --retry-window
_WATCH_PAUSE = 0.1


class KeyLease(NamedTuple):
    """A lease of keys: its number, its time and what is left of it in seconds, its keys."""

    lease: int
    ttl: float
    left: float
    keys: int


def _read_lease(wire: Any) -> KeyLease:
    return KeyLease(wire.lease, wire.ttl_ms / 1000, wire.left_ms / 1000, wire.key_count)


class Entry(NamedTuple):
    """A key, and its value; None = the key was deleted."""

    key: bytes
    value: bytes | None
    version: int


class _Place:
    """Where a watch is, so that another call can go on there."""

    def __init__(self, timeout: float | None) -> None:
        self.stands = False  # the caller was told so
        self._until = None if timeout is None else now() + timeout
        self._history = 0  # 0 = that coordinator keeps none
        self._version = 0  # of the next change, or of the last ...
        self._skip = 0  # ... of which so many were told
        self._lost: float | None = None  # since then nobody has answered

    def left(self) -> float | None:
        return None if self._until is None else max(0.001, self._until - now())

    def fields(self) -> dict[str, int]:
        if self._history == 0:
            return {}
        return {"history": self._history, "from_version": self._version, "skip": self._skip}

    def hear(self, said: Any) -> bool:
        """Is it for the caller?"""
        self._lost = None
        if _WATCH.get(said.kind) != "BEGUN":
            self._skip = self._skip + 1 if said.entry.version == self._version else 1
            self._version = said.entry.version
            return True
        if self.stands:
            return False
        self.stands = True
        self._history, self._version = said.history, said.entry.version + 1
        return True

    def goes_on(self, error: errors.TuttiError) -> bool:
        """Whoever served it has gone: is another call worth it?"""
        self._lost = now() if self._lost is None else self._lost
        gone = error.code is StatusCode.UNAVAILABLE
        return gone and self._history != 0 and now() < self._lost + _WATCH_AGAIN


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


class Store:
    """Keys of 1 to 1024 bytes, values of up to 1 MiB; text is taken as UTF-8, values come as bytes.

    prefix  in front of all keys; b"" = none. See view()

    Waiting calls take a timeout in seconds; None = as long as the coordinator lets a call wait: its
    --wait-timeout, five minutes.

    A coordinator that is started again on its store is a delay: calls wait for it, and those that its
    end has broken off are made again, until their time is over, or for connect()'s timeout where they
    have none. add, append, push, pop and take count once. set, multi_set, compare_and_set and delete
    are not made again once they may have been heard: they raise CONNECTION_LOST.
    """

    def __init__(self, agent: "Agent", prefix: bytes = b"") -> None:
        self._agent = agent
        self.prefix = prefix

    async def _ask(self, method: str, **fields: Any) -> Any:
        """Make a call that the coordinator answers at once."""
        request = self._request(method, **fields)
        until = now() + self._agent.settings.timeout
        return await ask(self._agent, "Store." + method, request, until)

    async def _ask_and_wait(self, method: str, timeout: float | None, **fields: Any) -> Any:
        request = self._request(method, **fields)
        return await ask_and_wait(self._agent, "Store." + method, request, timeout)

    def _request(self, method: str, **fields: Any) -> Any:
        if "Store." + method in WITH_TOKEN:
            fields["token"] = draw_token()
        return _wire.new("StoreService%sRequest" % method, job=self._agent.job, **fields)

    def _key(self, key: str | bytes) -> bytes:
        return self.prefix + _bytes(key)

    def view(self, prefix: str | bytes) -> "Store":
        """Look at the keys behind a prefix alone, as a store of their own.

        prefix  "model" makes the view's key "lr" the store's key "model/lr"; a view of a view goes on
                behind its prefix

        Returns: the view, which has the calls of a store; its keys come without the prefix.
        Raises: TuttiError BAD_KEY: an empty prefix.
        Example:
            >>> agent.store.view("model").set("lr", "0.1")
            >>> agent.store.get("model/lr")
            b'0.1'
        """
        if not prefix:
            raise errors.invalid("BAD_KEY", "a view without a prefix")
        return Store(self._agent, self._key(prefix) + b"/")

    async def get(
        self, key: str | bytes, wait: bool = False, timeout: float | None = None
    ) -> bytes:
        """Read a key.

        wait     until the key is there, for `timeout` seconds

        Returns: the value.
        Raises: TuttiError NO_KEY: it is not there; with `wait` TuttiTimeout.
        Example:
            >>> agent.store.set("lr", "0.1")
            >>> agent.store.get("lr")
            b'0.1'
        """
        if wait:  # what MultiGet reads when the key comes is what made it come
            return (await self.multi_get([key], timeout=timeout))[0]
        return bytes((await self._ask("Get", key=self._key(key))).value)

    async def set(self, key: str | bytes, value: str | bytes, lease: int = 0) -> None:
        """Write a key, whether it is there or not.

        lease    the key is deleted when this lease ends: see grant(); 0 = it stays

        Returns: None.
        Raises: TuttiError BAD_KEY, VALUE_LIMIT; NO_LEASE: the lease has ended.
        Example:
            >>> agent.store.set("lr", "0.1")
        """
        await self._ask("Set", key=self._key(key), value=_bytes(value), lease=lease)

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
        asked = [self._key(key) for key in keys]
        response = await self._ask_and_wait("MultiGet", timeout, keys=asked, at_once=at_once)
        return list(response.values)

    async def multi_set(
        self,
        entries: Mapping[str, str | bytes] | Mapping[bytes, str | bytes],
        lease: int = 0,
    ) -> None:
        """Write several keys, all or none.

        lease    of all of these keys, as of set()

        Returns: None.
        Raises: TuttiError BAD_KEY, VALUE_LIMIT.
        Example:
            >>> agent.store.multi_set({"a": "1", "b": "2"})
        """
        found = [
            _wire.new("Entry", key=self._key(key), value=_bytes(value))
            for key, value in entries.items()
        ]
        await self._ask("MultiSet", entries=found, lease=lease)

    async def check(self, *keys: str | bytes) -> bool:
        """Ask whether keys are there.

        Returns: True when all are.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.check("a", "b")
            True
        """
        return bool((await self._ask("Check", keys=[self._key(key) for key in keys])).all_exist)

    async def append(self, key: str | bytes, value: str | bytes) -> int:
        """Add bytes behind a value; a key that is not there begins empty.

        Returns: how many bytes it has now.
        Raises: TuttiError VALUE_LIMIT.
        Example:
            >>> agent.store.append("log", "line\n")
            5
        """
        return int((await self._ask("Append", key=self._key(key), value=_bytes(value))).size)

    async def compare_and_set(
        self,
        key: str | bytes,
        expected: str | bytes | None,
        value: str | bytes,
        missing_is_empty: bool = False,
        lease: int = 0,
    ) -> tuple[bool, bytes | None]:
        """Write `value` if the key's value is `expected`.

        expected          None = the key is not there
        missing_is_empty  a key that is not there counts as one with the empty value
        lease             as of set(), if `value` is written

        Returns: whether it was written, and what is there now; None = no key.
        Raises: TuttiError VALUE_LIMIT.
        Example:
            >>> agent.store.compare_and_set("leader", None, "rank 0")
            (True, b'rank 0')
        """
        fields: dict[str, Any] = {"missing_is_empty": missing_is_empty, "lease": lease}
        if expected is not None:
            fields["expected"] = _bytes(expected)
        said = await self._ask("CompareAndSet", key=self._key(key), value=_bytes(value), **fields)
        return bool(said.swapped), bytes(said.value) if said.exists else None

    async def add(self, key: str | bytes, delta: int = 1) -> int:
        """Add to a counter, which begins at 0.

        Returns: its new value.
        Raises: TuttiError NOT_A_NUMBER: the value is no number; OVERFLOW: beyond 64 bits.
        Example:
            >>> agent.store.add("epoch")
            1
        """
        return int((await self._ask("Add", key=self._key(key), delta=delta)).value)

    async def delete(self, key: str | bytes) -> bool:
        """Delete a key.

        Returns: whether it was there.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.delete("lr")
            True
        """
        return bool((await self._ask("Delete", key=self._key(key))).existed)

    async def wait(self, *keys: str | bytes, timeout: float | None = None) -> None:
        """Wait until all keys exist at one moment.

        Returns: None.
        Raises: TuttiTimeout.
        Example:
            >>> agent.store.wait("ready/0", "ready/1", timeout=60)
        """
        asked = [self._key(key) for key in keys]
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
        said = await self._ask_and_wait("Take", timeout, key=self._key(key), at_once=at_once)
        return bytes(said.value)

    async def push(self, queue: str | bytes, value: str | bytes) -> int:
        """Put a value at the end of a queue.

        Returns: how many values it holds.
        Raises: TuttiError VALUE_LIMIT.
        Example:
            >>> agent.store.push("batches", "17")
            1
        """
        return int((await self._ask("QueuePush", key=self._key(queue), value=_bytes(value))).length)

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
        said = await self._ask_and_wait("QueuePop", timeout, key=self._key(queue), at_once=at_once)
        return bytes(said.value)

    async def offer(
        self, key: str | bytes, value: str | bytes, timeout: float | None = None
    ) -> None:
        """Give a value, and wait until somebody has taken it by accept().

        The k-th offer of a key is taken by its k-th accept.

        Returns: None, when the value was taken.
        Raises: TuttiError VALUE_LIMIT; TuttiTimeout: nobody took it, and it stays offered.
        Example:
            >>> agent.store.offer("grad/7", "1")               # on rank 0
        """
        await self.push(_bytes(key) + b" offered", value)
        await self.pop(_bytes(key) + b" taken", timeout=timeout)

    async def accept(self, key: str | bytes, timeout: float | None = None) -> bytes:
        """Take what offer() gives, and let the one that gave it go on.

        Returns: the value.
        Raises: TuttiTimeout: nobody offered one.
        Example:
            >>> agent.store.accept("grad/7")                   # on rank 1
            b'1'
        """
        value = await self.pop(_bytes(key) + b" offered", timeout=timeout)
        await self.push(_bytes(key) + b" taken", b"1")
        return value

    async def length(self, queue: str | bytes) -> int:
        """Count the values of a queue.

        Returns: how many it holds; 0 where there is no such queue.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.length("batches")
            0
        """
        return int((await self._ask("QueueLen", key=self._key(queue))).length)

    async def count(self, prefix: str | bytes = b"") -> int:
        """Count the keys that begin with a prefix.

        Returns: how many there are.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.count("ready/")
            2
        """
        return int((await self._ask("Count", prefix=self._key(prefix))).count)

    async def keys(self, prefix: str | bytes = b"") -> "Sequence[bytes]":
        """List the keys that begin with a prefix, in order, without their values.

        Returns: the keys.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.keys("ready/")
            [b'ready/0', b'ready/1']
        """
        found: list[bytes] = []
        fields: dict[str, Any] = {"page_size": 1000, "keys_only": True}
        while True:
            page = await self._ask("List", prefix=self._key(prefix), **fields)
            found += [one.key[len(self.prefix) :] for one in page.entries]
            fields["page_token"] = page.next_page_token
            if not page.next_page_token:
                return found

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
            page = await self._ask("List", prefix=self._key(prefix), page_token=token, page_size=1000)
            for one in page.entries:
                yield Entry(one.key[len(self.prefix) :], one.value, one.version)
            token = page.next_page_token
            if not token:
                return

    async def grant(self, ttl: float) -> int:
        """Grant a lease: keys that are set with it are deleted when it was not kept for ttl seconds.

        ttl     --lease-min (1 s) to --lease-max (24 h) of the coordinator

        Returns: its number, for set() and keep_alive(). A restart of a coordinator on its disk gives
            each lease its whole time again.
        Raises: TuttiError LEASE_TTL, LEASE_LIMIT.
        Example:
            >>> lease = agent.store.grant(10)
            >>> agent.store.set("alive/7", "", lease=lease)
        """
        said = await self._ask("Grant", lease=draw_token(), ttl_ms=as_ms(ttl))
        return int(said.lease.lease)

    async def keep_alive(self, lease: int) -> KeyLease:
        """Begin the time of a lease again: two or three times in this time.

        Returns: the lease.
        Raises: TuttiError NO_LEASE: it has ended: grant another one, and set its keys again.
        Example:
            >>> agent.store.keep_alive(lease).left
            10.0
        """
        return _read_lease((await self._ask("KeepAlive", lease=lease)).lease)

    async def revoke(self, lease: int) -> bool:
        """End a lease and delete its keys.

        Returns: whether there was such a lease.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> agent.store.revoke(lease)
            True
        """
        return bool((await self._ask("Revoke", lease=lease)).existed)

    async def leases(self) -> "Sequence[KeyLease]":
        """List the leases of the job.

        Returns: the leases, in the order of their numbers.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> [one.keys for one in agent.store.leases()]
            [1]
        """
        found: list[KeyLease] = []
        more = True
        while more:
            page = await self._ask("Leases", after=found[-1].lease if found else 0)
            found += [_read_lease(one) for one in page.leases]
            more = page.more
        return found

    def _heard(self, said: Any) -> "Entry | None":
        kind = _WATCH.get(said.kind)
        if kind == "BEGUN":
            return None
        value = said.entry.value if kind == "SET" else None
        return Entry(said.entry.key[len(self.prefix) :], value, said.entry.version)

    async def watch(
        self, prefix: str | bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[Entry | None]:
        """Watch the keys that begin with a prefix.

        timeout  seconds after which the iteration ends

        It goes on where it was when the coordinator is started again on its store, or another one leads.

        Returns: an iterator: first None, from then on no change is missed; then an Entry of each.
        Raises: TuttiError UNREACHABLE, CONNECTION_LOST: for 30 s; SLOW_WATCHER, WATCH_GAP: read the
            keys, and watch again.
        Example:
            >>> for entry in agent.store.watch("config/"):
            ...     print(entry)
        """
        place = _Place(timeout)
        while True:
            request = _wire.new(
                "StoreServiceWatchRequest",
                job=self._agent.job,
                prefix=self._key(prefix),
                **place.fields(),
            )
            line = self._agent.coordinator
            try:
                async for said in line.take("Store.Watch", request, place.left()):
                    if place.hear(said):
                        yield self._heard(said)
                return
            except errors.TuttiTimeout:
                if place.stands:
                    return
                raise
            except errors.TuttiError as error:
                if not place.goes_on(error):
                    raise
            await pause(_WATCH_PAUSE)
