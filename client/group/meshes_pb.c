/* MeshService: ranks in arrays of named dimensions. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/coordinator.h"
#include "client/conn/pager.h"
#include "client/conn/types_pb.h"
#include "client/group/groups_pb.h"
#include "tutti/mesh.h"
#include "tutti/v1/mesh_service.pb-c.h"

#define SERVICE (&tutti__v1__mesh_service__descriptor)

static const tutti_rpc_stub stub_create = {SERVICE, "CreateMesh"};
static const tutti_rpc_stub stub_get = {SERVICE, "GetMesh"};
static const tutti_rpc_stub stub_list = {SERVICE, "ListMeshes"};
static const tutti_rpc_stub stub_delete = {SERVICE, "DeleteMesh"};
static const tutti_rpc_stub stub_groups = {SERVICE, "ListMeshGroups"};
static const tutti_rpc_stub stub_slice = {SERVICE, "SliceMesh"};

/* ------------------------------------------------------------------------------ reading */

void
tutti_mesh_info_free(tutti_mesh_info *info)
{
    if (info != NULL) {
        free(info->ranks);
        info->ranks = NULL;
        info->rank_count = 0;
    }
}

/* A mesh or a part of one, as both messages say it. */
typedef struct mesh_words {
    uint64_t id;
    const char *name;
    const uint32_t *shape;
    size_t dim_count;
    char *const *dims;
    size_t name_count;
    const uint32_t *ranks;
    size_t rank_count;
    const uint32_t *coordinate;
    size_t coordinate_count;
} mesh_words;

/* The struct has room for a fixed number of dimensions, so what came is checked first. */
static tutti_code
check_meshes_words(const mesh_words *words, tutti_error *err)
{
    if (words->dim_count == 0 || words->dim_count > TUTTI_MESH_DIMS_MAX ||
        words->name_count != words->dim_count || words->rank_count == 0 ||
        words->rank_count > TUTTI_RANKS_MAX ||
        (words->coordinate_count != 0 && words->coordinate_count != words->dim_count)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "BAD_ANSWER",
            "the coordinator answered a mesh of %zu dimensions, %zu names, %zu ranks",
            words->dim_count, words->name_count, words->rank_count);
    }
    return TUTTI_OK;
}

static tutti_code
read_words(const mesh_words *words, tutti_mesh_info *ret, tutti_error *err)
{
    tutti_mesh_info info = {.id = words->id,
                            .dim_count = (uint32_t)words->dim_count,
                            .rank_count = (uint32_t)words->rank_count,
                            .inside = words->coordinate_count > 0};
    size_t i;

    TUTTI_TRY(check_meshes_words(words, err));
    info.ranks = calloc(words->rank_count, sizeof(*info.ranks));
    if (info.ranks == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a mesh of %zu ranks", words->rank_count);
    }
    memcpy(info.ranks, words->ranks, words->rank_count * sizeof(*info.ranks));
    client_read_text(words->name, info.name, sizeof(info.name));
    for (i = 0; i < words->dim_count; i++) {
        info.shape[i] = words->shape[i];
        info.coordinate[i] = info.inside ? words->coordinate[i] : 0;
        client_read_text(words->dims[i], info.dims[i], sizeof(info.dims[i]));
    }
    *ret = info;
    return TUTTI_OK;
}

static tutti_code
read_mesh(const Tutti__V1__Mesh *mesh, const uint32_t *coordinate, size_t coordinate_count,
          tutti_mesh_info *ret, tutti_error *err)
{
    mesh_words words = {.coordinate = coordinate, .coordinate_count = coordinate_count};

    if (mesh != NULL) {
        words.id = mesh->id;
        words.name = mesh->name;
        words.shape = mesh->shape;
        words.dim_count = mesh->n_shape;
        words.dims = mesh->dim_names;
        words.name_count = mesh->n_dim_names;
        words.ranks = mesh->ranks;
        words.rank_count = mesh->n_ranks;
    }
    return read_words(&words, ret, err);
}

/* ------------------------------------------------------------------------------ one mesh */

static tutti_code
create_mesh(tutti_client *client, const Tutti__V1__CreateMeshRequest *request,
            tutti_mesh_info *ret_info, tutti_error *err)
{
    const client_call call = client_ask_coordinator(client, &stub_create);
    const Tutti__V1__CreateMeshResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code = client_invoke(client, &call, &request->base, &message, err);

    if (code == TUTTI_OK && ret_info != NULL) {
        response = tutti_rpc_message_get(message);
        code =
            read_mesh(response->mesh, response->coordinate, response->n_coordinate, ret_info, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

/* [in] ranks, dims  NULL = the coordinator's own choice */
tutti_code
tutti_mesh_create(tutti_client *client, const char *name, const uint32_t *shape,
                  const char *const *dims, uint32_t dim_count, const uint32_t *ranks, size_t count,
                  tutti_mesh_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(shape, dim_count, err);

    Tutti__V1__CreateMeshRequest request = TUTTI__V1__CREATE_MESH_REQUEST__INIT;
    Tutti__V1__Member member;

    TUTTI_TRY(client_check_member(client, err));
    client_write_member(client, &member);
    request.member = &member;
    request.name = client_write_text(name);
    request.shape = (int32_t *)(uintptr_t)shape;
    request.n_shape = dim_count;
    request.ranks = (int32_t *)(uintptr_t)ranks;
    request.n_ranks = ranks == NULL ? 0 : count;
    request.dim_names = (char **)(uintptr_t)dims;
    request.n_dim_names = dims == NULL ? 0 : dim_count;
    return create_mesh(client, &request, ret_info, err);
}

tutti_code
tutti_mesh_get(tutti_client *client, const char *name, tutti_mesh_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_info, err);

    Tutti__V1__GetMeshRequest request = TUTTI__V1__GET_MESH_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_get);
    const tutti_agent_info *own = tutti_whoami(client);
    const Tutti__V1__GetMeshResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    request.name = client_write_text(name);
    if (own != NULL) {
        request.opt_rank_case = TUTTI__V1__GET_MESH_REQUEST__OPT_RANK_RANK;
        request.rank = own->rank;
    }
    code = client_invoke_again(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code =
            read_mesh(response->mesh, response->coordinate, response->n_coordinate, ret_info, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_mesh_delete(tutti_client *client, const char *name, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__DeleteMeshRequest request = TUTTI__V1__DELETE_MESH_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_delete);
    Tutti__V1__Member member;

    TUTTI_TRY(client_check_member(client, err));
    client_write_member(client, &member);
    request.member = &member;
    request.name = client_write_text(name);
    return client_invoke(client, &call, &request.base, NULL, err);
}

/* ------------------------------------------------------------------------------ all meshes */

static tutti_code
ask_meshes(tutti_client *client, const char *token, tutti_rpc_message **ret_response,
           client_page *ret_page, tutti_error *err)
{
    Tutti__V1__ListMeshesRequest request = TUTTI__V1__LIST_MESHES_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_list);
    const Tutti__V1__ListMeshesResponse *response;

    request.job = client_write_text(client_job(client));
    request.page_size = CLIENT_PAGE_SIZE;
    request.page_token = client_write_text(token);
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, ret_response, err));
    response = tutti_rpc_message_get(*ret_response);
    *ret_page = (client_page){.items = (void *const *)response->meshes,
                              .count = response->n_meshes,
                              .next_token = response->next_page_token};
    return TUTTI_OK;
}

static tutti_code
read_mesh_item(const void *item, void *ret_item, tutti_error *err)
{
    return read_mesh(item, NULL, 0, ret_item, err);
}

static void
free_mesh_item(void *item)
{
    tutti_mesh_info_free(item);
}

tutti_code
tutti_mesh_list(tutti_client *client, tutti_mesh_info **ret_infos, size_t *ret_count,
                tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_infos, err);
    TUTTI_NEED(ret_count, err);

    static const client_pager pager = {.what = "meshes",
                                       .item_size = sizeof(tutti_mesh_info),
                                       .ask = ask_meshes,
                                       .read = read_mesh_item,
                                       .free = free_mesh_item};

    return client_list_pages(client, &pager, (void **)ret_infos, ret_count, err);
}

/* ------------------------------------------------------------------------------ groups, parts */

tutti_code
tutti_mesh_groups(tutti_client *client, const char *name, const char *dim,
                  tutti_rank_lists *ret_lists, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_lists, err);

    Tutti__V1__ListMeshGroupsRequest request = TUTTI__V1__LIST_MESH_GROUPS_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_groups);
    const Tutti__V1__ListMeshGroupsResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    request.name = client_write_text(name);
    if (dim != NULL) {
        request.opt_dim_case = TUTTI__V1__LIST_MESH_GROUPS_REQUEST__OPT_DIM_DIM_NAME;
        request.dim_name = client_write_text(dim);
    }
    code = client_invoke_again(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_lists(response->groups, response->n_groups, ret_lists, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

static tutti_code
read_meshes_part(const Tutti__V1__SliceMeshResponse *response, tutti_mesh_info *ret_info,
                 tutti_error *err)
{
    const mesh_words words = {.name = response->group_name,
                              .shape = response->shape,
                              .dim_count = response->n_shape,
                              .dims = response->dim_names,
                              .name_count = response->n_dim_names,
                              .ranks = response->ranks,
                              .rank_count = response->n_ranks,
                              .coordinate = response->coordinate,
                              .coordinate_count = response->n_coordinate};

    return read_words(&words, ret_info, err);
}

/* [in] rank  below 0 = that of this client's agent */
tutti_code
tutti_mesh_slice(tutti_client *client, const char *name, int64_t rank, const char *const *dims,
                 uint32_t dim_count, bool flatten, tutti_mesh_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_info, err);
    TUTTI_NEED_LIST(dims, dim_count, err);

    Tutti__V1__SliceMeshRequest request = TUTTI__V1__SLICE_MESH_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_slice);
    tutti_rpc_message *message = NULL;
    tutti_code code = rank < 0 ? client_check_member(client, err) : TUTTI_OK;

    if (code == TUTTI_OK) {
        request.job = client_write_text(client_job(client));
        request.name = client_write_text(name);
        request.rank = rank < 0 ? tutti_whoami(client)->rank : (uint32_t)rank;
        request.dim_names = (char **)(uintptr_t)dims;
        request.n_dim_names = dim_count;
        request.flatten = flatten;
        code = client_invoke_again(client, &call, &request.base, &message, err);
    }
    if (code == TUTTI_OK) {
        code = read_meshes_part(tutti_rpc_message_get(message), ret_info, err);
    }
    tutti_rpc_message_free(message);
    return code;
}
