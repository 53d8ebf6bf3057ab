/* MeshService. Meshes are sent as they lie in the core, without copies. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/meshes.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/groups_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/v1/mesh_service.pb-c.h"

#define PAGE_RANKS_MAX 262144 /* ranks of all meshes of a page: it stays below a mebibyte */

/* protobuf-c's pointers are not const; what it is lent here it only reads. */
static uint32_t *
numbers_to_wire(const uint32_t *numbers)
{
    return (uint32_t *)(uintptr_t)numbers;
}

static char **
texts_to_wire(const char *const *texts)
{
    return (char **)(uintptr_t)texts;
}

/* Borrows from the mesh. */
static void
mesh_to_wire(const tutti_coordinator_mesh *mesh, Tutti__V1__Mesh *ret_wire)
{
    tutti__v1__mesh__init(ret_wire);
    ret_wire->id = mesh->id;
    ret_wire->name = text_to_wire(mesh->name);
    ret_wire->shape = numbers_to_wire(mesh->shape);
    ret_wire->n_shape = mesh->dim_count;
    ret_wire->dim_names = texts_to_wire(mesh->dims);
    ret_wire->n_dim_names = mesh->dim_count;
    ret_wire->ranks = numbers_to_wire(mesh->ranks);
    ret_wire->n_ranks = mesh->count;
}

static void
on_create_mesh(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__CreateMeshRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__CreateMeshResponse response = TUTTI__V1__CREATE_MESH_RESPONSE__INIT;
    const tutti_coordinator_mesh_request request = {.member = member_from_wire(wire->member),
                                                    .name = wire->name,
                                                    .shape = wire->shape,
                                                    .dim_count = wire->n_shape,
                                                    .ranks = wire->ranks,
                                                    .rank_count = wire->n_ranks,
                                                    .dims = (const char *const *)wire->dim_names,
                                                    .name_count = wire->n_dim_names,
                                                    .ephemeral = wire->ephemeral != 0};
    tutti_coordinator_mesh mesh;
    Tutti__V1__Mesh made;
    bool created = false;
    tutti_error err;

    if (tutti_coordinator_mesh_create(service_loop_enter(arg), &request, &mesh, &created, &err) ==
        TUTTI_OK) {
        mesh_to_wire(&mesh, &made);
        response.mesh = &made;
        response.created = created;
        response.coordinate = mesh.coordinate;
        response.n_coordinate = mesh.inside ? mesh.dim_count : 0;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

static void
on_get_mesh(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__GetMeshRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__GetMeshResponse response = TUTTI__V1__GET_MESH_RESPONSE__INIT;
    const bool asked = wire->opt_rank_case == TUTTI__V1__GET_MESH_REQUEST__OPT_RANK_RANK;
    tutti_coordinator_mesh mesh;
    Tutti__V1__Mesh found;
    tutti_error err;

    if (tutti_coordinator_mesh_get(service_loop_enter(arg), wire->job, wire->name,
                                   asked ? (int64_t)wire->rank : -1, &mesh, &err) == TUTTI_OK) {
        mesh_to_wire(&mesh, &found);
        response.mesh = &found;
        response.coordinate = mesh.coordinate;
        response.n_coordinate = mesh.inside ? mesh.dim_count : 0;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

static void
on_delete_mesh(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__DeleteMeshRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__DeleteMeshResponse response = TUTTI__V1__DELETE_MESH_RESPONSE__INIT;
    const tutti_coordinator_member member = member_from_wire(wire->member);
    bool deleted = false;
    tutti_error err;

    if (tutti_coordinator_mesh_delete(service_loop_enter(arg), &member, wire->name,
                                      wire->allow_missing, &deleted, &err) == TUTTI_OK) {
        response.deleted = deleted;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ list */

/* A page of meshes, on its way to the wire. */
typedef struct mesh_page {
    Tutti__V1__Mesh *wires;
    Tutti__V1__Mesh **pointers;
    size_t count;
    size_t ranks;
    bool more;
} mesh_page;

static tutti_code
page_init(mesh_page *page, size_t size, tutti_error *err)
{
    page->wires = calloc(size, sizeof(*page->wires));
    page->pointers = calloc(size, sizeof(*page->pointers));
    return page->wires == NULL || page->pointers == NULL ? coord_fail_answer(err) : TUTTI_OK;
}

/*
 * Ends at the size of the page, or when the ranks become too many for a message; the first mesh
 * is always taken.
 */
static tutti_code
page_fill(mesh_page *page, size_t size, tutti_coordinator *core,
          const Tutti__V1__ListMeshesRequest *wire, tutti_error *err)
{
    const char *after = wire->page_token;
    tutti_coordinator_mesh mesh;

    for (;;) {
        const tutti_code code =
            tutti_coordinator_mesh_next(core, wire->job, after, &mesh, &page->more, err);

        if (code != TUTTI_OK || !page->more || page->count == size ||
            (page->count > 0 && page->ranks + mesh.count > PAGE_RANKS_MAX)) {
            return code;
        }
        mesh_to_wire(&mesh, &page->wires[page->count]);
        page->pointers[page->count] = &page->wires[page->count];
        page->ranks += mesh.count;
        page->count++;
        after = mesh.name;
    }
}

static void
on_list_meshes(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__ListMeshesRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__ListMeshesResponse response = TUTTI__V1__LIST_MESHES_RESPONSE__INIT;
    tutti_coordinator *core = service_loop_enter(arg);
    mesh_page page = {0};
    size_t size = 0;
    tutti_error err;
    tutti_code code = coord_page_size(wire->page_size, &size, &err);

    if (code == TUTTI_OK) {
        code = page_init(&page, size, &err);
    }
    if (code == TUTTI_OK) {
        code = page_fill(&page, size, core, wire, &err);
    }
    if (code == TUTTI_OK) {
        response.meshes = page.pointers;
        response.n_meshes = page.count;
        response.next_page_token = page.more ? page.wires[page.count - 1].name : NULL;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    free(page.wires);
    free(page.pointers);
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ groups, slices */

static tutti_code
reply_mesh_groups(tutti_rpc_call *call, const tutti_coordinator_mesh_groups *groups,
                  tutti_error *err)
{
    Tutti__V1__ListMeshGroupsResponse response = TUTTI__V1__LIST_MESH_GROUPS_RESPONSE__INIT;
    coord_wire_lists lists = {0};
    size_t i;

    TUTTI_TRY(coord_wire_lists_init(&lists, groups->group_count, err));
    for (i = 0; i < groups->group_count; i++) {
        coord_wire_lists_set(&lists, i, groups->ranks + i * groups->size, groups->size);
    }
    response.groups = lists.pointers;
    response.n_groups = lists.count;
    tutti_rpc_call_reply(call, &response.base, NULL);
    coord_wire_lists_fini(&lists);
    return TUTTI_OK;
}

static void
on_list_mesh_groups(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__ListMeshGroupsRequest *wire = tutti_rpc_call_request(call);
    const bool named = wire->opt_dim_case == TUTTI__V1__LIST_MESH_GROUPS_REQUEST__OPT_DIM_DIM_NAME;
    const bool numbered = wire->opt_dim_case == TUTTI__V1__LIST_MESH_GROUPS_REQUEST__OPT_DIM_DIM;
    const tutti_coordinator_mesh_dim dim = {.given = named || numbered,
                                            .name = named ? wire->dim_name : NULL,
                                            .number = numbered ? wire->dim : 0};
    tutti_coordinator_mesh_groups groups = {0};
    tutti_error err;
    tutti_code code = tutti_coordinator_mesh_list(service_loop_enter(arg), wire->job, wire->name,
                                                  &dim, &groups, &err);

    if (code == TUTTI_OK) {
        code = reply_mesh_groups(call, &groups, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
    }
    free(groups.ranks);
    service_loop_leave(arg);
}

/* Flattened, a slice is one dimension whose coordinate is the position in it. */
static void
reply_slice(tutti_rpc_call *call, const tutti_coordinator_slice *slice, bool flatten)
{
    Tutti__V1__SliceMeshResponse response = TUTTI__V1__SLICE_MESH_RESPONSE__INIT;
    const char *const *dims = flatten ? &slice->group_dims : slice->dims;
    const size_t count = flatten ? 1 : slice->dim_count;

    response.shape = numbers_to_wire(flatten ? &slice->count : slice->shape);
    response.n_shape = count;
    response.dim_names = texts_to_wire(dims);
    response.n_dim_names = count;
    response.ranks = slice->ranks;
    response.n_ranks = slice->count;
    response.coordinate = numbers_to_wire(flatten ? &slice->position : slice->coordinate);
    response.n_coordinate = count;
    response.group_name = text_to_wire(slice->group);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_slice_mesh(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__SliceMeshRequest *wire = tutti_rpc_call_request(call);
    const tutti_coordinator_slice_request request = {.job = wire->job,
                                                     .name = wire->name,
                                                     .rank = wire->rank,
                                                     .dims = (const char *const *)wire->dim_names,
                                                     .dim_count = wire->n_dim_names};
    tutti_coordinator_slice slice = {0};
    tutti_error err;

    if (tutti_coordinator_mesh_slice(service_loop_enter(arg), &request, &slice, &err) == TUTTI_OK) {
        reply_slice(call, &slice, wire->flatten);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    free(slice.ranks);
    service_loop_leave(arg);
}

static const tutti_rpc_method methods[] = {
    TUTTI_RPC_UNARY("CreateMesh", on_create_mesh),
    TUTTI_RPC_UNARY("GetMesh", on_get_mesh),
    TUTTI_RPC_UNARY("ListMeshes", on_list_meshes),
    TUTTI_RPC_UNARY("DeleteMesh", on_delete_mesh),
    TUTTI_RPC_UNARY("ListMeshGroups", on_list_mesh_groups),
    TUTTI_RPC_UNARY("SliceMesh", on_slice_mesh),
};

const tutti_rpc_service coord_mesh_service = {
    .descriptor = &tutti__v1__mesh_service__descriptor,
    .methods = methods,
    .method_count = sizeof(methods) / sizeof(methods[0]),
};
