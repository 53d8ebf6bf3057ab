"""Types of arguments and results, for editors, type checkers and readers of help()."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Union

import numpy as np

if TYPE_CHECKING:
    from ._groups import Group, Mesh
    from ._tensor import Tensor
    from ._tracers import Tracer


class SupportsDLPack(Protocol):
    """An array of another library: JAX, CuPy, ..."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class TorchTensor(Protocol):
    """A torch.Tensor: the result of an op on a torch.Tensor is a torch.Tensor."""

    def detach(self) -> Any: ...

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


NumpyArray = np.ndarray[Any, Any]
NumpyDtype = np.dtype[Any]
# Numbers in lists, as numpy.array() takes them.
Numbers = Union[complex, Sequence["Numbers"]]
# What becomes a numpy array.
Array = Union[NumpyArray, SupportsDLPack, Numbers]
# One tensor: a Tensor, its handle or name, or an array.
TensorLike = Union["Tensor", str, Array]
# What an op takes: a tensor, or a list of tensors that is as many ops in one.
Input = Union[TensorLike, Sequence[TensorLike]]
# What an op gives: of the kind of its input.
Result = Union["Tensor", NumpyArray, TorchTensor, Sequence["Result"]]
# A dtype: "FP32", numpy.float32, or what numpy.dtype() takes.
DtypeLike = Union[str, type, NumpyDtype]
# Which ranks an op is for: a Group, its name, ranks of the job in the order of the group, lists of
# ranks of which ours is taken, a mesh of one dimension, or a mesh and one of its dimensions.
GroupLike = Union[
    "Group", "Mesh", str, Sequence[int], Sequence[Sequence[int]], "tuple[Mesh, str | int]", None
]
# An input whose result is of the same type.
X = TypeVar(
    "X",
    bound=Union[
        "Tensor",
        NumpyArray,
        TorchTensor,
        "list[Tensor]",
        "list[NumpyArray]",
    ],
)


class OpArguments(TypedDict, total=False):
    """Arguments of all collectives; see the class Collectives."""

    group: "GroupLike"
    out: Input | None
    timeout: float | None
    sequence: int
    step: int
    token: int
    tracers: "Sequence[Tracer | str]"
    no_grad: bool
    local_grad: bool
    events: tuple[int, int]


class ReduceArguments(OpArguments, total=False):
    """Arguments of all_reduce()."""

    factor: float | None


class RootedReduceArguments(ReduceArguments, total=False):
    """Arguments of reduce()."""

    root_global: int | None


class PartsArguments(OpArguments, total=False):
    """Arguments of all_gather()."""

    axis: int | Sequence[int]
    out_shape: Sequence[int]


class RootedPartsArguments(PartsArguments, total=False):
    """Arguments of gather()."""

    root_global: int | None


class ReduceScatterArguments(PartsArguments, total=False):
    """Arguments of reduce_scatter()."""

    factor: float | None
    form: str


class BroadcastArguments(OpArguments, total=False):
    """Arguments of broadcast()."""

    root_global: int | None
    coalesced: bool
    meta: bytes
    device: str


class ScatterArguments(BroadcastArguments, total=False):
    """Arguments of scatter()."""

    axis: int | Sequence[int]
    form: str
    out_shape: Sequence[int]
    splits: Sequence[int] | None


class AllToAllArguments(OpArguments, total=False):
    """Arguments of all_to_all()."""

    split_axis: int
    concat_axis: int
    input_splits: Sequence[int] | None
    output_splits: Sequence[int] | None


class SendArguments(TypedDict, total=False):
    """Of send, without async_."""

    destination_global: int | None
    group_offset: int | None
    group_count: int
    tag: int
    meta: bytes
    group: "GroupLike"
    timeout: float | None
    tracers: "Sequence[Tracer | str]"
    no_grad: bool


class RecvArguments(TypedDict, total=False):
    """Arguments of recv()."""

    source_global: int | None
    group_offset: int | None
    group_count: int
    tag: int
    dtype: DtypeLike | None
    shape: Sequence[int] | None
    keep: bool
    device: str
    group: "GroupLike"
    out: Input | None
    timeout: float | None
    tracers: "Sequence[Tracer | str]"
    no_grad: bool


class LaunchArguments(TypedDict, total=False):
    """Arguments of launch(), without the function, how many ranks, and what they are given."""

    devices: Sequence[str] | None
    world_size: int | None
    rank_start: int
    coordinator: str
    agent_options: Sequence[str]
    timeout: float | None


class ConnectArguments(TypedDict, total=False):
    """Arguments of connect(), without the address of the agent."""

    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_name: str | None
    token: str | None
    token_file: str | None
    traceparent: str | Callable[[], str] | None
    timeout: float
    wait: bool
    ephemeral: bool
    options: Sequence[tuple[str, int | str]]
