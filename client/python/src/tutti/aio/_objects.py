"""Collectives on objects: bytes with a content type, of any size and different on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..objects import Blob, Object, pack, unpack

if TYPE_CHECKING:
    from ._types import GroupLike


class Objects:
    """The part of an Agent that moves objects. A value is bytes, text, what JSON can say, arrays, dtypes, sets,
    tuples, in lists and dicts, too; or a Blob, such as Blob.pickled() of anything.

    A root is a group rank; or root_global, a rank of the job. Results are Blobs: value() gives the value back,
    and unpickle() what was pickled.
    """

    async def broadcast_object(
        self,
        value: "Object | None" = None,
        root: int = 0,
        *,
        root_global: int | None = None,
        group: "GroupLike" = None,
    ) -> Blob:
        """Every rank gets the root's object.

        value  of the root; the others' is not looked at

        Returns: the object, a Blob: value() gives it back.
        Raises: as broadcast().
        Example:
            >>> agent.broadcast_object({"step": 3}).value()
            {'step': 3}
        """
        agent: Any = self
        if not await agent._is_root(group, root, root_global):
            made = await agent.broadcast(None, root=root, root_global=root_global, group=group)
            async with made:
                return unpack(await made.numpy())
        array = pack(value)
        await agent.broadcast(array, root=root, root_global=root_global, group=group)
        return Blob.of(value)

    async def all_gather_object(
        self, value: "Object", *, group: "GroupLike" = None
    ) -> list[Blob]:
        """Every rank gets all objects.

        value  of any size and type, different on each rank

        Returns: a Blob of each rank, in the order of group ranks.
        Raises: as all_gather().
        Example:
            >>> [one.value() for one in agent.all_gather_object("rank %d" % agent.rank)]
            ['rank 0', 'rank 1']
        """
        agent: Any = self
        found = await agent.all_gather(pack(value), form="list", group=group)
        return [unpack(one) for one in found]

    async def gather_object(
        self,
        value: "Object",
        root: int = 0,
        *,
        root_global: int | None = None,
        group: "GroupLike" = None,
    ) -> list[Blob] | None:
        """The root gets all objects.

        Returns: on the root a Blob of each rank, in the order of group ranks; on the others None.
        Raises: as gather().
        Example:
            >>> agent.gather_object(agent.rank, root=1)
        """
        agent: Any = self
        found = await agent.gather(pack(value), form="list", root=root, root_global=root_global, group=group)
        return None if found is None else [unpack(one) for one in found]

    async def scatter_object(
        self,
        values: "Sequence[Object] | None" = None,
        root: int = 0,
        *,
        root_global: int | None = None,
        group: "GroupLike" = None,
    ) -> Blob:
        """Each rank gets one of the root's objects.

        values  of the root: one for each group rank

        Returns: the object of this rank, a Blob.
        Raises: as scatter().
        Example:
            >>> agent.scatter_object(["a", "b"]).value()       # on rank 0; rank 1 gets 'b'
            'a'
        """
        agent: Any = self
        if not await agent._is_root(group, root, root_global):
            made = await agent.scatter(None, root=root, root_global=root_global, group=group)
            async with made:
                return unpack(await made.numpy())
        arrays = [pack(one) for one in values or ()]
        whole = np.concatenate(arrays) if arrays else np.zeros(0, np.uint8)
        splits = [one.size for one in arrays]
        return unpack(await agent.scatter(whole, splits=splits, root=root, root_global=root_global, group=group))

    async def send_object(
        self, value: "Object", destination: int, *, tag: int = 0, group: "GroupLike" = None
    ) -> None:
        """Give an object to one rank, and wait until that rank has it.

        Returns: None.
        Raises: as send().
        Example:
            >>> agent.send_object({"done": True}, 1)           # on rank 0
        """
        agent: Any = self
        await agent.send(pack(value), destination, tag=tag, group=group)

    async def recv_object(
        self, source: int | None = None, *, tag: int = 0, group: "GroupLike" = None
    ) -> tuple[Blob, int]:
        """Take an object from one rank, or from whoever sends first.

        Returns: the object, a Blob, and the group rank that sent it.
        Raises: as recv(); DATA_LOSS: what came is no object.
        Example:
            >>> blob, source = agent.recv_object()             # on rank 1
            >>> blob.value(), source
            ({'done': True}, 0)
        """
        agent: Any = self
        got = await agent.recv(source, tag=tag, group=group)
        return unpack(got.tensor), got.source
