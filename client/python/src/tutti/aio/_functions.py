"""Functions of one agent: calling them, and what names hold. A Session calls them on all ranks at once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

from .. import _wire, values
from ._ask import DEADLINE_SLACK
from ._tensor import Tensor, tensor_of
from ._work import as_ms

if TYPE_CHECKING:
    from ..values import Plain
    from ._agent import Agent
    from ._types import GroupLike


@dataclasses.dataclass(frozen=True)
class FunctionInfo:
    """A function of an agent.

    source     "builtin", "plugin FILE", "module NAME", "host NAME"
    signature  its arguments and result in its author's words; may be empty
    calls      how many calls of it run or wait
    """

    name: str
    source: str
    signature: str
    calls: int


def _info(said: Any) -> FunctionInfo:
    return FunctionInfo(said.name, said.source, said.signature, said.calls)


def _argument(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        return _wire.new("Value", tensor=thing.handle)
    return values.to_wire(thing)


class Functions:
    """The part of an Agent that calls functions: builtins, those of plug-ins, and those of hosts."""

    line: Any

    def _read_value(self, value: Any) -> "Plain | Tensor":
        if value.WhichOneof("kind") != "tensor":
            return cast("Plain", values.of_wire(value))
        ref = _wire.new("TensorRef", handle=value.tensor, spec=value.spec)
        return tensor_of(cast("Agent", self), ref)

    async def call(
        self,
        function: str,
        *args: "Tensor | Plain",
        result: str = "",
        scope: str = "",
        group: "GroupLike" = None,
        timeout: float | None = None,
    ) -> "Plain | Tensor":
        """Call a function on this agent. It waits for the ops that write its tensors.

        function  its name, or a name that holds one
        args      at most 64: Tensors, None, int, float, str, bytes, dtypes, Device, Shape or a tuple of
                  ints, Function. Put an array into the agent first
        result    a name that gets the result
        scope     calls of the same scope run in their order
        group     on which the function may call collectives; None = it may call none
        timeout   seconds until it must have returned; None = the agent's --op-timeout

        Returns: a Tensor, or a plain value: None, int, float, str, bytes, Dtype, Device, Shape,
            Function.
        Raises: TuttiError UNKNOWN_FUNC, BAD_VALUE, NO_TENSOR, CALL_LIMIT; FUNCTION_FAILED, or the
            function's own reason; HOST_LOST; TuttiTimeout.
        Example:
            >>> agent.call("runtime.disco.worker_rank")
            0
        """
        agent = cast("Agent", self)
        name = "" if group is None else (await agent._group_and_timeout(group))[0] or "world"
        request = _wire.new(
            "CallRequest",
            function=function,
            args=[_argument(one) for one in args],
            result=result,
            scope=scope,
            group=name,
            timeout_ms=as_ms(timeout),
        )
        limit = None if timeout is None else timeout + DEADLINE_SLACK
        lease = await agent._lease()
        said = await self.line.unary("Functions.Call", request, limit, lease)
        return self._read_value(said.result)

    async def functions(self) -> list[FunctionInfo]:
        """List the functions that can be called.

        Returns: a FunctionInfo of each, by name.
        Raises: TuttiError UNREACHABLE.
        Example:
            >>> [one.name for one in agent.functions() if one.source == "builtin"]
        """
        request = _wire.new("ListFunctionsRequest")
        said = await self.line.unary("Functions.ListFunctions", request)
        return [_info(one) for one in said.functions]

    async def find_function(self, function: str, result: str = "") -> FunctionInfo:
        """Ask whether there is a function, and give it a name.

        result  the name; "" = none

        Returns: the function.
        Raises: TuttiError UNKNOWN_FUNC, BAD_NAME.
        Example:
            >>> agent.find_function("runtime.disco.worker_rank").source
            'builtin'
        """
        request = _wire.new("GetFunctionRequest", function=function, result=result)
        return _info((await self.line.unary("Functions.GetFunction", request)).function)

    async def get_value(self, name: str) -> "Plain | Tensor":
        """Read what a name holds. Waits for the call or op that writes it.

        Returns: a Tensor, or a plain value, as call() gives it.
        Raises: TuttiError NO_VALUE: nothing has that name; the error of what was to write it.
        Example:
            >>> agent.set_value("step", 7)
            >>> agent.get_value("step")
            7
        """
        said = await self.line.unary("Functions.GetValue", _wire.new("GetValueRequest", name=name))
        return self._read_value(said.value)

    async def set_value(self, name: str, value: "Plain") -> None:
        """Give a name a plain value, instead of what it held. delete() frees the name.

        value  None, int, float, str, bytes, a dtype, Device, Shape or a tuple of ints, Function

        Returns: None.
        Raises: TuttiError BAD_VALUE, BAD_NAME.
        Example:
            >>> agent.set_value("step", 7)
        """
        request = _wire.new("SetValueRequest", name=name, value=values.to_wire(value))
        await self.line.unary("Functions.SetValue", request, None, await cast("Agent", self)._lease())

    async def load_module(
        self, path: str, device: str = "", result: str = ""
    ) -> list[FunctionInfo]:
        """Load a plug-in or a compiled module out of the agent's --module-path.

        path    a file name, without a folder
        device  where its tensors live; "" = the agent's first
        result  a name that gets the module

        Returns: its functions.
        Raises: TuttiError NO_MODULES, NO_MODULE, BAD_PATH, BAD_MODULE.
        Example:
            >>> agent.load_module("model.so")
        """
        request = _wire.new("LoadModuleRequest", path=path, device=device, result=result)
        said = await self.line.unary("Functions.LoadModule", request)
        return [_info(one) for one in said.functions]

    async def import_module(self, module: str) -> list[FunctionInfo]:
        """Have the agent's hosts import a module of their language.

        Returns: the functions that are new.
        Raises: TuttiError NOT_ALLOWED: the agent's --functions do not allow it; NO_HOST;
            IMPORT_FAILED.
        Example:
            >>> agent.import_module("mlp.layers")
        """
        request = _wire.new("ImportModuleRequest", module=module)
        said = await self.line.unary("Functions.ImportModule", request)
        return [_info(one) for one in said.functions]
