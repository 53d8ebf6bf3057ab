/*
 * Collectives on memory of the caller's. Small data travels inside the call; larger data becomes
 * temporary tensors. These have random names, given by the client: if the answer that would have
 * told the handle is lost, they can be deleted by name all the same.
 *
 * All ranks must call an op, or the others wait for their deadlines. So a rank whose call cannot go
 * well (a bad spec, no memory for a tensor) calls the op nevertheless (call_in_vain), and the
 * agent's refusal tells the others.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "client/conn/client.h"
#include "client/op/collectives.h"
#include "client/op/op.h"
#include "client/op/place.h"
#include "client/tensor/arena.h"
#include "client/tensor/tensor.h"
#include "client/tensor/tensors.h"
#include "tutti/group.h"
#include "tutti/op_data.h"
#include "tutti/tensor.h"

/* Which ranks give an input, and which take a result. */
typedef enum data_role {
    DATA_ALL,       /* every rank does both */
    DATA_TO_ROOT,   /* all ranks give, the root alone takes */
    DATA_FROM_ROOT, /* the root alone gives, all ranks take */
    DATA_BROADCAST, /* the root gives and takes nothing, the others take */
    DATA_SEND,      /* this rank gives */
    DATA_RECV,      /* this rank takes */
} data_role;

/* An op on the caller's memory. */
typedef struct data_op {
    tutti_client *client;
    client_op_fn wire;
    data_role role;
    bool keeps_size; /* as much is taken as is given */
    tutti_op op;     /* taken */
    client_inline memory;
    tutti_op_result result; /* of the op alone */
    tutti_error *err;
} data_op;

static bool
fits_inline(uint64_t bytes)
{
    return bytes <= TUTTI_INLINE_BYTES_MAX;
}

static tutti_code
run_inline(data_op *self)
{
    self->memory.expects = self->memory.takes && !(self->memory.gives && self->keeps_size);
    return self->wire(self->client, &self->op, &self->memory, &self->result, self->err);
}

/* ------------------------------------------------------------------------------ temporaries */

/*
 * Delete a temporary tensor by its name. An error is ignored: a tensor that was never made needs
 * no deleting, and the op's own error is worth more.
 */
static void
drop_op_data(data_op *self, const char *handle)
{
    (void)client_wire_delete(self->client, &handle, 1, NULL);
}

static tutti_code
upload_op_data(data_op *self, const char *name)
{
    const client_put put = {.spec = self->memory.spec, .data = self->memory.data, .name = name};
    tutti_handle handle;

    return client_put_any(self->client, &put, NULL, &handle, self->err);
}

/*
 * Make the tensor for a result. Its shape does not matter: the agent compares dtype and number of
 * elements.
 */
static tutti_code
create_result(data_op *self, const char *name)
{
    const tutti_spec spec = client_inline_room(&self->memory);
    tutti_handle handle;

    return tutti_tensor_create(self->client, &spec, name, &handle, self->err);
}

static tutti_code
download_op_data(data_op *self, const char *handle)
{
    return tutti_tensor_read(self->client, handle, self->memory.result, self->memory.result_bytes,
                             NULL, self->err);
}

/*
 * This rank has nothing to give to the op, and the others wait. The call names a tensor that is not
 * there: it is refused, but it takes its turn in the group (decision 0002), and the others hear of
 * it at once.
 */
static void
call_in_vain(const data_op *self)
{
    char name[CLIENT_DRAWN_NAME_SIZE];
    tutti_op op = self->op;
    tutti_op_result result;

    client_draw_name(name);
    op.input = name;
    op.output = name;
    (void)self->wire(self->client, &op, NULL, &result, NULL);
}

/* One tensor is enough: the result overwrites the input, or was there as nothing but memory. */
static tutti_code
run_in_place(data_op *self)
{
    char name[CLIENT_DRAWN_NAME_SIZE];
    tutti_code code;

    client_draw_name(name);
    self->op.output = name;
    if (self->memory.gives) {
        self->op.input = name;
        code = upload_op_data(self, name);
    } else {
        code = create_result(self, name);
    }
    if (code == TUTTI_OK) {
        code = self->wire(self->client, &self->op, NULL, &self->result, self->err);
    } else {
        call_in_vain(self);
    }
    if (code == TUTTI_OK && self->memory.takes) {
        code = download_op_data(self, name);
    }
    drop_op_data(self, name);
    return code;
}

/* The result is larger or smaller than what is given: it becomes a tensor of its own. */
static tutti_code
run_with_result(data_op *self)
{
    char name[CLIENT_DRAWN_NAME_SIZE];
    char result_name[CLIENT_DRAWN_NAME_SIZE];
    tutti_code code;

    client_draw_name(name);
    client_draw_name(result_name);
    self->op.input = name;
    self->op.output = result_name;
    code = upload_op_data(self, name);
    if (code == TUTTI_OK) {
        code = create_result(self, result_name);
    }
    if (code == TUTTI_OK) {
        code = self->wire(self->client, &self->op, NULL, &self->result, self->err);
    } else {
        call_in_vain(self);
    }
    if (code == TUTTI_OK) {
        code = download_op_data(self, result_name);
    }
    drop_op_data(self, result_name);
    drop_op_data(self, name);
    return code;
}

/* ------------------------------------------------------------------------------ the arena */

static tutti_code
run_placed(data_op *self, client_place *place)
{
    const client_inline *memory = &self->memory;
    tutti_code code;

    self->op.input = memory->gives ? place->give : NULL;
    self->op.output = memory->takes ? place->take : NULL;
    code = self->wire(self->client, &self->op, NULL, &self->result, self->err);
    if (code == TUTTI_OK) {
        client_blocks_take(self->client, &place->blocks, memory->result, memory->result_bytes);
    }
    client_blocks_free(self->client, &place->blocks, code != TUTTI_OK);
    return code;
}

/* Two tensors are needed only where the result has another size than what is given. */
static tutti_code
run_data(data_op *self)
{
    const client_inline *memory = &self->memory;
    const bool both = memory->gives && memory->takes;
    client_place place; /* the texts are written where they are used */

    if (client_place_find(self->client, memory, CLIENT_STAGE_BYTES_MIN, both && self->keeps_size,
                          &place)) {
        return run_placed(self, &place);
    }
    client_arena_count_copy(self->client, (memory->gives ? memory->bytes : 0) +
                                              (memory->takes ? memory->result_bytes : 0));
    if ((!memory->gives || fits_inline(memory->bytes)) &&
        (!memory->takes || fits_inline(memory->result_bytes))) {
        return run_inline(self);
    }
    return both && !self->keeps_size ? run_with_result(self) : run_in_place(self);
}

/* ------------------------------------------------------------------------------ roles */

static tutti_code
take_sizes(data_op *self)
{
    TUTTI_TRY(tutti_spec_size(self->memory.spec, NULL, &self->memory.bytes, self->err));
    if (self->keeps_size) {
        self->memory.result_bytes = self->memory.bytes;
    }
    return TUTTI_OK;
}

/*
 * Are group ranks and ranks of the job the same? In "world" they are, unless it has only the ranks
 * that are there.
 */
static bool
has_job_ranks(const data_op *self, const char *group)
{
    return !self->client->agent.elastic && strcmp(group, "world") == 0;
}

/*
 * Is this rank the op's root? The root is a group rank unless `global`, so for groups with other
 * ranks than the job the coordinator is asked, once for each op.
 */
static tutti_code
find_root(const data_op *self, bool *ret_root)
{
    const tutti_op *op = &self->op;
    const uint32_t rank = self->client->agent.rank;
    const char *name = op->group == NULL || op->group[0] == '\0' ? "world" : op->group;
    tutti_group_info group;

    TUTTI_TRY(client_check_member(self->client, self->err));
    if (op->global || has_job_ranks(self, name)) {
        *ret_root = op->root >= 0 && (uint32_t)op->root == rank;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_group_get(self->client, name, &group, self->err));
    *ret_root =
        op->root >= 0 && (uint32_t)op->root < group.rank_count && group.ranks[op->root] == rank;
    tutti_group_info_free(&group);
    return TUTTI_OK;
}

static tutti_code
take_role(data_op *self)
{
    client_inline *memory = &self->memory;
    bool root = true;
    tutti_code code = TUTTI_OK;

    if (self->role == DATA_SEND || self->role == DATA_RECV) {
        memory->gives = self->role == DATA_SEND;
        memory->takes = !memory->gives;
        return TUTTI_OK;
    }
    if (self->role != DATA_ALL) {
        code = find_root(self, &root);
    }
    memory->gives = root || self->role == DATA_TO_ROOT;
    memory->takes = self->role == DATA_BROADCAST ? !root : root || self->role == DATA_FROM_ROOT;
    return code;
}

static tutti_code
check_memory(const data_op *self)
{
    const client_inline *memory = &self->memory;
    const uint64_t bytes = memory->result_bytes;
    const void *data = memory->data;
    const void *result = memory->result;

    if (memory->gives || self->role == DATA_BROADCAST) { /* whose data is its result */
        TUTTI_NEED_LIST(data, memory->bytes, self->err);
    }
    if (memory->takes && self->role != DATA_BROADCAST) {
        TUTTI_NEED_LIST(result, bytes, self->err);
    }
    if (memory->takes &&
        (bytes > INT64_MAX || bytes % tutti_dtype_bytes(memory->spec->dtype) != 0)) {
        return TUTTI_FAIL_FOR(self->err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "the result has room for %" PRIu64
                              " bytes, need a multiple of the size of a %s element",
                              bytes, tutti_dtype_name(memory->spec->dtype));
    }
    return TUTTI_OK;
}

/* An op that was never initialised cannot be called in vain: its group is not known. */
static tutti_code
perform_op_data(data_op *self, const tutti_op *op)
{
    tutti_code code;

    TUTTI_TRY(client_take_op(op, &self->op, self->err));
    assert(self->op.input == NULL && self->op.output == NULL && !self->op.async);

    code = take_sizes(self);
    if (code == TUTTI_OK) {
        code = take_role(self);
    }
    if (code == TUTTI_OK) {
        code = check_memory(self);
    }
    if (code != TUTTI_OK) {
        call_in_vain(self);
        return code;
    }
    return run_data(self);
}

/* ------------------------------------------------------------------------------ the ops */

tutti_code
tutti_all_reduce_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                      const void *data, void *result, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {.client = client,
                    .wire = client_wire_all_reduce,
                    .role = DATA_ALL,
                    .keeps_size = true,
                    .memory = {.spec = spec, .data = data, .result = result},
                    .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_reduce_to_root_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                          const void *data, void *result, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {.client = client,
                    .wire = client_wire_reduce,
                    .role = DATA_TO_ROOT,
                    .keeps_size = true,
                    .memory = {.spec = spec, .data = data, .result = result},
                    .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_reduce_scatter_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                          const void *data, void *result, uint64_t result_bytes, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {
        .client = client,
        .wire = client_wire_reduce_scatter,
        .role = DATA_ALL,
        .memory = {.spec = spec, .data = data, .result = result, .result_bytes = result_bytes},
        .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_broadcast_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec, void *data,
                     tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {.client = client,
                    .wire = client_wire_broadcast,
                    .role = DATA_BROADCAST,
                    .keeps_size = true,
                    .memory = {.spec = spec, .data = data, .result = data},
                    .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_all_gather_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                      const void *data, void *result, uint64_t result_bytes, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {
        .client = client,
        .wire = client_wire_all_gather,
        .role = DATA_ALL,
        .memory = {.spec = spec, .data = data, .result = result, .result_bytes = result_bytes},
        .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_gather_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                  const void *data, void *result, uint64_t result_bytes, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {
        .client = client,
        .wire = client_wire_gather,
        .role = DATA_TO_ROOT,
        .memory = {.spec = spec, .data = data, .result = result, .result_bytes = result_bytes},
        .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_scatter_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                   const void *data, void *result, uint64_t result_bytes, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {
        .client = client,
        .wire = client_wire_scatter,
        .role = DATA_FROM_ROOT,
        .memory = {.spec = spec, .data = data, .result = result, .result_bytes = result_bytes},
        .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_all_to_all_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                      const void *data, void *result, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {.client = client,
                    .wire = client_wire_all_to_all,
                    .role = DATA_ALL,
                    .keeps_size = true,
                    .memory = {.spec = spec, .data = data, .result = result},
                    .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_permute_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                   const void *data, void *result, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {.client = client,
                    .wire = client_wire_permute,
                    .role = DATA_ALL,
                    .keeps_size = true,
                    .memory = {.spec = spec, .data = data, .result = result},
                    .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_all_to_allv_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec,
                       const void *data, void *result, uint64_t result_bytes, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {
        .client = client,
        .wire = client_wire_all_to_all,
        .role = DATA_ALL,
        .memory = {.spec = spec, .data = data, .result = result, .result_bytes = result_bytes},
        .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_send_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec, const void *data,
                tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {.client = client,
                    .wire = client_wire_send,
                    .role = DATA_SEND,
                    .keeps_size = true,
                    .memory = {.spec = spec, .data = data},
                    .err = err};

    return perform_op_data(&self, op);
}

tutti_code
tutti_recv_data(tutti_client *client, const tutti_op *op, const tutti_spec *spec, void *result,
                tutti_op_result *ret_result, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    data_op self = {.client = client,
                    .wire = client_wire_recv,
                    .role = DATA_RECV,
                    .keeps_size = true,
                    .memory = {.spec = spec, .result = result},
                    .err = err};

    TUTTI_TRY(perform_op_data(&self, op));
    if (ret_result != NULL) {
        *ret_result = self.result;
        ret_result->output = (tutti_handle){0}; /* it was a temporary one, if any */
    }
    return TUTTI_OK;
}
