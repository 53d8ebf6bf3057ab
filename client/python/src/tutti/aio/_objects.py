"""Collectives on objects: bytes with a content type, of any size and different on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..objects import Blob, pack, unpack

if TYPE_CHECKING:
    from ._groups import Group


class Objects:
    """The part of an Agent that moves objects. A value is a Blob, bytes, text, or anything JSON.

    Results are Blobs: value() gives text and JSON back.
    """

    async def broadcast_object(
        self, value: Any = None, *, root: int = 0, group: "Group | str | None" = None
    ) -> Blob:
        """Every rank gets the root's object."""
        agent: Any = self
        if not await agent._is_root(group, root, None):
            made = await agent.broadcast(None, root=root, group=group)
            async with made:
                return unpack(await made.numpy())
        array = pack(value)
        await agent.broadcast(array, root=root, group=group)
        return Blob.of(value)

    async def all_gather_object(
        self, value: Any, *, group: "Group | str | None" = None
    ) -> list[Blob]:
        """Every rank gets all objects."""
        agent: Any = self
        found = await agent.all_gather(pack(value), form="list", group=group)
        return [unpack(one) for one in found]

    async def gather_object(
        self, value: Any, *, root: int = 0, group: "Group | str | None" = None
    ) -> list[Blob] | None:
        """The root gets all objects; the others get None."""
        agent: Any = self
        found = await agent.gather(pack(value), form="list", root=root, group=group)
        return None if found is None else [unpack(one) for one in found]

    async def scatter_object(
        self,
        values: Sequence[Any] | None = None,
        *,
        root: int = 0,
        group: "Group | str | None" = None,
    ) -> Blob:
        """Group rank i gets the root's values[i]."""
        agent: Any = self
        if not await agent._is_root(group, root, None):
            made = await agent.scatter(None, root=root, group=group)
            async with made:
                return unpack(await made.numpy())
        arrays = [pack(one) for one in values or ()]
        whole = np.concatenate(arrays) if arrays else np.zeros(0, np.uint8)
        splits = [one.size for one in arrays]
        return unpack(await agent.scatter(whole, splits=splits, root=root, group=group))

    async def send_object(
        self, value: Any, destination: int, *, tag: int = 0, group: "Group | str | None" = None
    ) -> None:
        """Give an object to one rank."""
        agent: Any = self
        await agent.send(pack(value), destination, tag=tag, group=group)

    async def recv_object(
        self, source: int | None = None, *, tag: int = 0, group: "Group | str | None" = None
    ) -> tuple[Blob, int]:
        """Take an object from one rank, or from whoever sends first; and that group rank."""
        agent: Any = self
        got = await agent.recv(source, tag=tag, group=group)
        return unpack(got.tensor), got.source
