"""Small values between ranks, and meeting by a key: through the coordinator, without tensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .. import _wire, errors
from ..objects import Json
from ._ask import ask_and_wait, draw_token

if TYPE_CHECKING:
    from ._types import GroupLike


class Met(NamedTuple):
    """What meet() came to.

    group_rank  ours: 0 to count - 1
    root_rank   of who said is_root; None = nobody
    group_hash  alike for all callers, and for callers of other keys who are the same
    """

    group_rank: int
    root_rank: int | None
    group_hash: int


def _written(value: Any) -> bytes:
    return json.dumps(value).encode()


def _read(data: bytes) -> Json:
    try:
        return cast(Json, json.loads(data))
    except ValueError:
        raise errors.lost("%d bytes came that are no JSON: ask for bytes" % len(data)) from None


class Meetings:
    """The part of an Agent that meets others at the coordinator.

    Calls match by order: the k-th call of each member on one group and key belongs together. Each
    has a token, so that one that is made again after a lost connection does not count twice.

    A value is what JSON can say: a shape, a dtype, False, None. Other clients see its text.
    """

    async def _metadata(self, method: str, group: Any, timeout: float | None, **fields: Any) -> Any:
        agent: Any = self
        name, own = await agent._group_and_timeout(group)
        request = _wire.new(
            "MetadataService%sRequest" % method,
            member=agent._member(),
            group=name,
            token=draw_token(),
            **fields,
        )
        timeout = own if timeout is None else timeout
        return await ask_and_wait(agent, "Metadata." + method, request, timeout)

    async def broadcast_bytes(
        self,
        data: bytes | None = None,
        root: int = 0,
        *,
        key: str = "",
        group: "GroupLike" = None,
        timeout: float | None = None,
    ) -> bytes:
        """Every member gets the root's bytes.

        data  of the root: at most 1 MiB; the others' is not looked at
        root  a group rank
        key   tells sequences of calls apart: up to 127 bytes

        Returns: the root's bytes.
        Raises: TuttiError BAD_ROOT, ROOT_MISMATCH, VALUE_LIMIT, NOT_IN_GROUP, METHOD_MISMATCH,
            RANK_LOST; TuttiTimeout MISSING_RANKS: the root did not come.
        Example:
            >>> agent.broadcast_bytes(b"key" if agent.rank == 0 else None)
            b'key'
        """
        fields: dict[str, Any] = {"root": root, "key": key, "payload": data or b""}
        return bytes((await self._metadata("Broadcast", group, timeout, **fields)).payload)

    async def all_gather_bytes(
        self,
        data: bytes,
        *,
        key: str = "",
        group: "GroupLike" = None,
        timeout: float | None = None,
    ) -> list[bytes]:
        """Every member gets the bytes of all.

        data  at most 1 MiB, and 3 MiB of all members together
        key   tells sequences of calls apart: up to 127 bytes

        Returns: the bytes of each, in the order of group ranks.
        Raises: TuttiError VALUE_LIMIT, NOT_IN_GROUP, METHOD_MISMATCH, RANK_LOST; TuttiTimeout
            MISSING_RANKS names who did not come.
        Example:
            >>> agent.all_gather_bytes(b"rank %d" % agent.rank)
            [b'rank 0', b'rank 1']
        """
        said = await self._metadata("AllGather", group, timeout, key=key, payload=data)
        return [bytes(one) for one in said.values]

    async def broadcast_value(
        self,
        value: "Json" = None,
        root: int = 0,
        *,
        key: str = "",
        group: "GroupLike" = None,
        timeout: float | None = None,
    ) -> "Json":
        """Every member gets the root's value: a shape, a dtype, whether there is a gradient.

        value  of the root: what JSON can say, also False and None; the others' is not looked at
        root   a group rank
        key    tells sequences of calls apart: up to 127 bytes

        Returns: the root's value.
        Raises: as broadcast_bytes(); DATA_LOSS: another client gave bytes that are no JSON.
        Example:
            >>> agent.broadcast_value({"shape": [2, 3]} if agent.rank == 0 else None)
            {'shape': [2, 3]}
        """
        data = await self.broadcast_bytes(
            _written(value), root, key=key, group=group, timeout=timeout
        )
        return _read(data)

    async def all_gather_values(
        self,
        value: "Json",
        *,
        key: str = "",
        group: "GroupLike" = None,
        timeout: float | None = None,
    ) -> "list[Json]":
        """Every member gets the values of all.

        value  what JSON can say, also False and None
        key    tells sequences of calls apart: up to 127 bytes

        Returns: the value of each, in the order of group ranks.
        Raises: as all_gather_bytes(); DATA_LOSS: another client gave bytes that are no JSON.
        Example:
            >>> agent.all_gather_values(agent.rank == 0)
            [True, False]
        """
        found = await self.all_gather_bytes(
            _written(value), key=key, group=group, timeout=timeout
        )
        return [_read(one) for one in found]

    async def meet(
        self,
        key: str | bytes,
        count: int,
        *,
        group_rank: int | None = None,
        is_root: bool = False,
        name: str | bytes = b"",
        timeout: float | None = None,
    ) -> Met:
        """Wait until so many callers have come to a key, and get a number among them.

        Callers need not be ranks of the job. The key can be used again at once.

        count       of callers: 1 to 65536, the same of all
        group_rank  the number that this one wants; None = assign it. When one has none, all are
                    numbered in the order of their names
        is_root     tell everybody this one's number as the root's
        name        a device or a host, up to 1024 bytes

        Returns: our number, the root's, and a hash of all that is alike for all.
        Raises: TuttiError GROUP_SIZE: callers say different counts; DUPLICATE_RANK, RANK_RANGE,
            BAD_KEY, NAME_LIMIT; TuttiTimeout: the text says how many are missing.
        Example:
            >>> agent.meet("stage", 2, name="host-%d" % agent.rank).group_rank
            0
        """
        agent: Any = self
        request = _wire.new(
            "RendezvousServiceMeetRequest",
            job=agent.job,
            key=key.encode() if isinstance(key, str) else key,
            count=count,
            is_root=is_root,
            name=name.encode() if isinstance(name, str) else name,
            token=draw_token(),
        )
        if group_rank is not None:
            request.group_rank = group_rank
        said = await ask_and_wait(agent, "Rendezvous.Meet", request, timeout)
        root = said.root_rank if said.WhichOneof("opt_root_rank") else None
        return Met(said.group_rank, root, said.group_hash)
