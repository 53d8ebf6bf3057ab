"""Steps about objects (opaque bytes, here JSON), packed parameters, shapes and gradients."""

import json

import ops
import wire
from steps import recv_request, send_request, step
from values import Tensor
from wire import Missing, tensors

# ---------------------------------------------------------------------------- objects


def pack(value):
    data = json.dumps(value).encode()
    return Tensor("uint8", [len(data)], data)


def unpack(tensor):
    return json.loads(tensor.data)


def run_op(rank, said, op, given, **params):
    members, group = rank.members(said)
    call = ops.Call(op, params, members, given, group)
    return ops.prepare(rank.seat, call, rank.program.way).run()


@step("all_gather_object")
def _all_gather_object(rank, said, _index):
    found = run_op(rank, said, "all_gather", pack(said["value"]), form="list")
    return [unpack(one) for one in found]


def root_params(said):
    return {key: said[key] for key in ("root", "root_global") if key in said}


@step("gather_object")
def _gather_object(rank, said, _index):
    """Objects differ in size, so it is a list; only the root gets it."""
    found = run_op(rank, said, "gather", pack(said["value"]), form="list", **root_params(said))
    return [unpack(one) for one in found] or None


def is_root(rank, said):
    members, _ = rank.members(said)
    return ops.Call("broadcast", root_params(said), members, None).root() == rank.rank


@step("broadcast_object_list")
def _broadcast_object_list(rank, said, _index):
    given = pack(said["value"]) if is_root(rank, said) else None
    return unpack(run_op(rank, said, "broadcast", given, **root_params(said))[0])


@step("scatter_object_list")
def _scatter_object_list(rank, said, _index):
    """The sizes first, then one after the other in uneven parts."""
    root = is_root(rank, said)
    packed = [pack(one) for one in said["value"]] if root else []
    sizes = pack([one.count() for one in packed]) if root else None
    sizes = unpack(run_op(rank, said, "broadcast", sizes, **root_params(said))[0])
    data = b"".join(one.data for one in packed)
    given = Tensor("uint8", [len(data)], data) if root else None
    found = run_op(rank, said, "scatter", given, splits=sizes, **root_params(said))
    return unpack(found[0])


@step("send_object_list")
def _send_object_list(rank, said, _index):
    rank.values["object"] = pack(said["value"])
    rank.handles.pop("object", None)
    send_request(rank, dict(said, tensor="object"), rank.program.way, said["dst"]).run()


@step("recv_object_list")
def _recv_object_list(rank, said, _index):
    sent = recv_request(rank, said, rank.program.way, said.get("src"))
    found = sent.run()
    return {"source": sent.source, "value": unpack(found[0])}


# ---------------------------------------------------------------------------- packed parameters


def put_all(rank, given):
    """Tensors of the package for those of a step, in the agent."""
    client = rank.seat.client
    return [client.tensor(rank.seat.put(rank.tensor(one))) for one in given]


def read(rank, tensor):
    return rank.seat.get(rank.seat.keep(tensor.handle))


@step("param_pack_split")
def _param_pack_split(rank, said, _index):
    """Ranges of one tensor become tensors, in the agent."""
    (packed,) = put_all(rank, [said["tensor"]])
    found = rank.seat.client.unpack(packed, said["shapes"], said["offsets"])
    return [read(rank, one) for one in found]


@step("param_pack_concat")
def _param_pack_concat(rank, said, _index):
    """Tensors become ranges of one, in the agent."""
    return read(rank, rank.seat.client.pack(put_all(rank, said["tensors"]), said["offsets"]))


@step("pack_allreduce")
def _pack_allreduce(rank, said, _index):
    """In buckets, in place."""
    given = put_all(rank, said["tensors"])
    how = "avg" if said.get("mean") else "sum"
    rank.seat.client.all_reduce_gradients(given, how, group=rank.members(said)[1] or None)
    return [read(rank, one) for one in given]


# ---------------------------------------------------------------------------- shapes


def specs(dtype, shapes):
    """A shape, or a list of them, as tensors without bytes."""
    if shapes and isinstance(shapes[0], list):
        return [Tensor(dtype, one, b"") for one in shapes]
    return Tensor(dtype, shapes, b"")


def infer(rank, said, members, whose):
    """What rank `whose` would get. Of rooted ops the root's tensor is what all are asked about."""
    method = wire.method_of(rank.agent.ops, "CollectivesService", "Infer")
    call = ops.Call(said["op"], said["params"], members, None)
    shapes = said["shapes"][str(whose)]
    if shapes is None:
        shapes = said["shapes"][str(call.root())]
    call.given = specs(said["dtype"], shapes)
    request = wire.collectives.InferRequest(
        group_size=len(members), group_rank=members.index(whose)
    )
    wire.need_field(request, said["op"])
    request_of_op = ops.request_of(call, rank.seat, whose)
    getattr(request, said["op"]).CopyFrom(request_of_op)
    response = wire.call(method, request)
    if response.HasField("result"):
        return wire.tensor_of(response.result, None)
    many = list(response.results) if wire.has_field(response, "results") else []
    return [wire.tensor_of(one, None) for one in many] or None


@step("infer_shape")
def _infer_shape(rank, said, _index):
    members, _ = rank.members(said)
    return {str(whose): infer(rank, said, members, whose) for whose in members}
