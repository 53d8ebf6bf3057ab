"""What a session's registers are in a program."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

from .. import errors
from ..status import StatusCode

if TYPE_CHECKING:
    from ..values import Plain
    from ._session import Session
    from ._types import Array, NumpyArray


class DRef:
    """A register of a session: a value, which each worker has its own of.

    The register is free as soon as nothing in the program refers to it any more, or after drop().

    session  whose it is
    """

    def __init__(self, session: "Session", register: int) -> None:
        self.session = session
        self._register: int | None = register
        self._command = 0  # the last one that wrote it

    def __repr__(self) -> str:
        where = "dropped" if self._register is None else self.session._name(self._register)
        return "<%s %s>" % (type(self).__name__, where)

    @property
    def reg_id(self) -> int:
        """Its number, from 1."""
        if self._register is None:
            raise errors.invalid("BAD_REGISTER", "this register was dropped")
        return self._register

    async def debug_get_from_remote(self, worker_id: int) -> "Plain | NumpyArray":
        """Read what a worker has in it. Waits for what writes it.

        worker_id  0 to num_workers - 1

        Returns: a tensor's bytes as an array of its shape; else the value: None, int, float, str,
            bytes, Dtype, Device, Shape or Function.
        Raises: TuttiError BAD_WORKER, BAD_REGISTER; RANK_LOST; the error of the command that was to
            write it.
        Example:
            >>> d = session.call_packed("runtime.disco.worker_rank")
            >>> d.debug_get_from_remote(1)
            1
        """
        found = await self.session._read(self, [worker_id])
        return cast("Plain | NumpyArray", found[0])

    async def debug_get_from_all(self) -> "list[Plain | NumpyArray]":
        """Read what each worker has in it.

        Returns: a list, by worker, of what debug_get_from_remote() gives.
        Raises: as debug_get_from_remote().
        Example:
            >>> session.call_packed("runtime.disco.worker_rank").debug_get_from_all()
            [0, 1]
        """
        return await self.session._read(self, [])

    async def debug_copy_from(self, worker_id: int, value: "Plain | Array") -> None:
        """Set what a worker has in it; the others keep what they have.

        An array overwrites the tensor that is there, if it has its dtype and number of elements;
        else the register gets a new tensor. Waits until the bytes are at the worker.

        value  an array, or a plain value

        Returns: None.
        Raises: TuttiError BAD_VALUE, BAD_DTYPE, BAD_WORKER, BAD_REGISTER; RANK_LOST.
        Example:
            >>> d = session.empty((2,), "float32")
            >>> d.debug_copy_from(1, np.ones(2, np.float32))
        """
        await self.session._set(self, worker_id, value)

    def drop(self) -> None:
        """Free the register now. Dropping again is fine.

        Returns: None. Other calls raise BAD_REGISTER afterwards.
        Raises: nothing.
        Example:
            >>> d.drop()
        """
        register, self._register = self._register, None
        if register is not None:
            self.session._free_register(register)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self.drop()


class DPackedFunc(DRef):
    """A function that each worker has, by its register: call it.

    name  by which the workers have it
    """

    def __init__(self, session: "Session", register: int, name: str) -> None:
        super().__init__(session, register)
        self.name = name

    async def __call__(self, *args: "DRef | Plain") -> DRef:
        """Call it on each worker: Session.call_packed()."""
        return await self.session.call_packed(self, *args)


class DModule(DRef):
    """A module that each worker has loaded: module["function"] is one of its functions.

    functions  the names of what it has
    """

    def __init__(self, session: "Session", register: int, functions: list[str]) -> None:
        super().__init__(session, register)
        self.functions = functions

    async def __getitem__(self, name: str) -> DPackedFunc:
        """One of its functions, by its name in the module or its full name."""
        for known in self.functions:
            if known == name or known.endswith("." + name):
                return await self.session.get_global_func(known)
        text = "the module has no function %s; it has %s"
        said = text % (name, ", ".join(self.functions) or "none")
        raise errors.make(StatusCode.NOT_FOUND, said, "UNKNOWN_FUNC")


def register_of(session: "Session", ref: Any) -> int:
    """The number of a session's own register."""
    if not isinstance(ref, DRef):
        text = "%s is no register of a session (DRef)" % type(ref).__name__
        raise errors.invalid("BAD_REGISTER", text)
    if ref.session is not session:
        raise errors.invalid("BAD_REGISTER", "%r is a register of another session" % ref)
    return ref.reg_id
