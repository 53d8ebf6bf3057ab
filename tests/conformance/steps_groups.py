"""Steps about groups, meshes and seats, through CoordinatorService and MeshService."""

import random

import package
import wire
from steps import step
from wire import CALL_S, Failed, Refused, coordinator

GROUPS = "CoordinatorService"
MESHES = "MeshService"


def stub(rank):
    return rank.world.cluster.members


def member(rank):
    return rank.world.members[rank.rank]


def fill(request, **fields):
    """Set fields that are there; Missing for one that is not."""
    for name, value in fields.items():
        wire.need_field(request, name)
        if isinstance(value, list):
            getattr(request, name).extend(value)
        else:
            setattr(request, name, value)
    return request


def scoped(rank, name):
    """A name or tag of the case, apart from those of other cases; none stays none."""
    return "%s/%s" % (rank.program.name, name) if name else ""


# ---------------------------------------------------------------------------- seats


@step("init")
def _init(rank, said, _index):
    """A seat in a job of the case's own; held until the case is over."""
    request = coordinator.JoinRequest(
        job=rank.program.name,
        world_size=rank.world.size,
        incarnation=random.getrandbits(63) | 1,
    )
    request.rank = wire.rank_number(request, "rank", said["as_rank"])
    stream = stub(rank).Join(request, timeout=3 * CALL_S)
    rank.program.cleanups.append(stream.cancel)
    try:
        next(stream)
    except wire.grpc.RpcError as error:
        raise Refused(Failed.of_call(error)) from None


# ---------------------------------------------------------------------------- groups


def group_rank(rank, name, whose):
    """-1 for who is no member."""
    request = coordinator.GetGroupRequest(name=name)
    fill(request, rank=whose)
    return wire.call(stub(rank).GetGroup, request)


def describe(rank, group):
    """What steps expect of a group; group ranks as the coordinator tells them to everybody."""
    ranks = list(group.ranks)
    seen = {
        str(whose): group_rank(rank, group.name, whose).group_rank
        for whose in range(rank.world.size)
    }
    key = ",".join(str(one) for one in ranks)
    return {"ranks": ranks, "size": len(ranks), "key": key, "root": ranks[0], "rank": seen}


def delete_later(rank, group):
    request = coordinator.DeleteGroupRequest(member=member(rank), name=group.name)

    def delete():
        try:
            wire.call(stub(rank).DeleteGroup, request)
        except Refused as refused:
            if refused.failed.reason != "NO_GROUP":
                raise

    rank.program.cleanups.append(delete)


def create_group(rank, said):
    return rank.seat.client.new_group(
        said["group"],
        scoped(rank, said.get("name")),
        scoped(rank, said.get("tag")),
        sort=said.get("sort_ranks", False),
    )


@step("new_group")
def _new_group(rank, said, index):
    """Who is in it makes it. Who is not is told so, and looks at the one that the members made."""
    made = rank.program.event("group of step %d" % index)
    try:
        group = create_group(rank, said)
    except wire.tutti.TuttiError as error:
        if error.reason != "NOT_IN_GROUP" or said.get("error"):
            raise
        group = None
    if group is None or group.rank < 0:
        made.wait(CALL_S)
        return describe(rank, rank.program.shared[("group", index)])
    rank.program.shared[("group", index)] = group
    made.set()
    rank.program.cleanups.append(group.delete)
    if said.get("as"):
        rank.groups[said["as"]] = group
    return describe(rank, group)


@step("same_group")
def _same_group(rank, said, _index):
    return rank.groups[said["a"]].id == rank.groups[said["b"]].id


@step("destroy_group")
def _destroy_group(rank, said, _index):
    """Each member for itself; the last one ends it."""
    rank.groups[said["group"]].destroy()


@step("delete_group")
def _delete_group(rank, said, _index):
    """At once, for all members."""
    rank.groups[said["group"]].delete()


def group_of(rank, said):
    """The group that the rank made; `made_by`: another rank's, of which it is no member."""
    if "made_by" not in said:
        return rank.groups[said["group"]]
    return rank.seat.client.group(rank.program.ranks[said["made_by"]].groups[said["group"]].name)


@step("abort_group")
def _abort_group(rank, said, _index):
    group_of(rank, said).abort(said["reason"])


@step("shrink_group")
def _shrink_group(rank, said, _index):
    timeout = said["timeout_ms"] / 1000 if "timeout_ms" in said else None
    group = group_of(rank, said).shrink(timeout)
    rank.groups[said.get("as")] = group
    rank.program.cleanups.append(group.delete)
    return describe(rank, group)


def create_subgroups(rank, lists=None, **fields):
    method = wire.method_of(stub(rank), GROUPS, "CreateSubgroups")
    request = coordinator.CreateSubgroupsRequest(member=member(rank), list_all=True)
    fill(request, **fields)
    for ranks in lists or ():
        request.lists.lists.add(ranks=ranks)
    return wire.call(method, request)


@step("expand_group")
def _expand_group(rank, said, _index):
    found = create_subgroups(rank, said["group"], equal_sizes=True, validate_only=True)
    ranks = [one for part in found.lists for one in part.ranks]
    return {"rankset": ranks, "group_size": found.group_size}


def own_groups(rank, found):
    """For each rank the group it is in; the caller's as it was made for it."""
    delete_later(rank, found.group)
    own = {str(one): list(part.ranks) for part in found.lists for one in part.ranks}
    own[str(rank.rank)] = list(found.group.ranks)
    return own


@step("new_subgroups")
def _new_subgroups(rank, said, _index):
    return own_groups(rank, create_subgroups(rank, group_size=said["group_size"]))


@step("new_subgroups_by_enumeration")
def _new_subgroups_by_enumeration(rank, said, _index):
    return own_groups(rank, create_subgroups(rank, said["groups"]))


@step("new_session")
def _new_session(rank, said, _index):
    """Only opened; what sessions do is another kind of case."""
    address = rank.agent.program.address
    session = package.open_session(address, num_groups=said["num_groups"])
    session.shutdown()


# ---------------------------------------------------------------------------- ranks


@step("get_rank")
def _get_rank(rank, said, _index):
    return rank.seat.client.get_rank(rank.members(said)[1])


@step("get_world_size")
def _get_world_size(rank, said, _index):
    return rank.seat.client.get_world_size(rank.members(said)[1])


def translate(rank, ranks, **groups):
    method = wire.method_of(stub(rank), GROUPS, "TranslateRanks")
    request = coordinator.TranslateRanksRequest(ranks=ranks, **groups)
    if wire.has_field(request, "members_only"):
        request.members_only = True
    return list(wire.call(method, request).ranks)


@step("group_rank_of_global")
def _group_rank_of_global(rank, said, _index):
    return translate(rank, [said["global"]], to_group=rank.members(said)[1])[0]


@step("global_rank_of_group")
def _global_rank_of_group(rank, said, _index):
    return translate(rank, [said["group_rank"]], from_group=rank.members(said)[1])[0]


# ---------------------------------------------------------------------------- meshes


def mesh_service(rank):
    try:
        from tutti.v1 import mesh_service_pb2 as mesh
        from tutti.v1 import mesh_service_pb2_grpc as mesh_grpc
    except ImportError:
        raise wire.Missing("no service %s" % MESHES) from None
    return mesh, mesh_grpc.MeshServiceStub(rank.world.cluster.coordinator_channel)


def shape_of(nested):
    """By the first of each: a ragged list then has another number of ranks than places."""
    shape = []
    while isinstance(nested, list):
        shape.append(len(nested))
        nested = nested[0] if nested else None
    return shape


def flat(nested):
    if not isinstance(nested, list):
        return [nested]
    return [one for part in nested for one in flat(part)]


def nested_of(ranks, shape):
    if len(shape) <= 1:
        return list(ranks)
    size = len(ranks) // shape[0]
    return [nested_of(ranks[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


def create_mesh(rank, said):
    """Modules and stub of the service, and the mesh."""
    mesh, meshes = mesh_service(rank)
    request = mesh.CreateMeshRequest(
        member=member(rank),
        name="%s/%s" % (rank.program.name, rank.world.unique()),  # ranks of one case do this beside each other
        shape=shape_of(said["mesh"]),
        ranks=flat(said["mesh"]),
        dim_names=said.get("names", []),
    )
    made = wire.call(meshes.CreateMesh, request).mesh
    inside = rank.world.members[made.ranks[0]]  # only who is in a mesh may delete it
    delete = mesh.DeleteMeshRequest(member=inside, name=made.name, allow_missing=True)
    rank.program.cleanups.append(lambda: wire.call(meshes.DeleteMesh, delete))
    return mesh, meshes, made


@step("mesh_groups")
def _mesh_groups(rank, said, _index):
    mesh, meshes, made = create_mesh(rank, said)
    request = mesh.ListMeshGroupsRequest(name=made.name)
    dim = said.get("dim")
    if isinstance(dim, str):
        request.dim_name = dim
    elif dim is not None:
        request.dim = dim
    return [list(one.ranks) for one in wire.call(meshes.ListMeshGroups, request).groups]


@step("mesh_coordinate")
def _mesh_coordinate(rank, said, _index):
    """None for who is not in the mesh."""
    mesh, meshes, made = create_mesh(rank, said)
    request = mesh.GetMeshRequest(name=made.name, rank=rank.rank)
    return list(wire.call(meshes.GetMesh, request).coordinate) or None


def slice_mesh(rank, said, pick, flatten=False):
    mesh, meshes, made = create_mesh(rank, said)
    names = [made.dim_names[one] if isinstance(one, int) else one for one in pick]
    request = mesh.SliceMeshRequest(
        name=made.name, rank=rank.rank, dim_names=names, flatten=flatten
    )
    return wire.call(meshes.SliceMesh, request)


@step("mesh_local_rank")
def _mesh_local_rank(rank, said, _index):
    return slice_mesh(rank, said, [said["dim"]]).coordinate[0]


@step("mesh_slice")
def _mesh_slice(rank, said, _index):
    found = slice_mesh(rank, said, said["pick"])
    return nested_of(list(found.ranks), list(found.shape))


@step("mesh_flatten")
def _mesh_flatten(rank, said, _index):
    return list(slice_mesh(rank, said, said["pick"], flatten=True).ranks)
