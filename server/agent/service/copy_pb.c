/*
 * TensorsService.Copy: a tensor's bytes to another tensor, within a kind of memory or between two.
 * Bulk loop.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"
#include "server/agent/transfer/access.h"
#include "server/agent/transfer/gpu.h"
#include "tensor/space.h"
#include "tutti/v1/tensors_service.pb-c.h"

/* The last lock is the target; there is one lock only when a tensor is copied onto itself. */
static void
answer_copy(agent_access *access)
{
    Tutti__V1__CopyResponse response = TUTTI__V1__COPY_RESPONSE__INIT;
    const uint32_t last = access->lock_set.count - 1;
    const tutti_tensor *to =
        tutti_table_tensor(access->agent->table, &access->lock_set.locks[last]);
    wire_use ref;

    agent_write_use(access, last, &to->spec, &ref);
    response.tensor = &ref.message;
    agent_access_written(access, last);
    tutti_rpc_call_reply(access->call, &response.base, NULL);
    agent_access_drop(access);
}

static void
on_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;

    if (err != NULL) {
        agent_access_fail(access, err);
    } else {
        answer_copy(access);
    }
    agent_gpu_chunk_free(piece);
}

/* What is copied to where. */
typedef struct copy_pair {
    tutti_tensor *from;
    tutti_tensor *to;
    tutti_move_range range; /* in bytes */
} copy_pair;

/* The chunk has no bytes of its own: it only keeps the access until the device's copy has ended. */
static void
copy_staged(agent_access *access, const copy_pair *pair)
{
    agent_gpu_chunk *piece = agent_gpu_chunk_new(access, 0, 0);
    tutti_error err;

    if (piece == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a copy");
        agent_access_fail(access, &err);
        return;
    }
    agent_gpu_chunk_copy(piece, pair->from, pair->to, &pair->range, on_copied);
}

/* A new tensor, where the call says, or where the original is. */
static tutti_code
make_copy(agent_access *access, const tutti_spec *spec, copy_pair *pair, tutti_error *err)
{
    const Tutti__V1__CopyRequest *request = tutti_rpc_call_request(access->call);
    tutti_space *space = pair->from->space;

    if (request->device[0] != '\0') {
        TUTTI_TRY(agent_devices_find(access->agent, request->device, &space, err));
    }
    TUTTI_TRY(tutti_tensor_new(space, spec, false, &pair->to, err));
    tutti_table_fill(access->agent->table, &access->lock_set.locks[access->lock_set.count - 1],
                     pair->to);
    return TUTTI_OK;
}

static tutti_code
prepare_whole_copy(agent_access *access, copy_pair *pair, tutti_error *err)
{
    const Tutti__V1__CopyRequest *request = tutti_rpc_call_request(access->call);
    const tutti_spec *spec = &pair->from->spec;

    pair->range = (tutti_move_range){.bytes = pair->from->bytes};
    if (request->into[0] == '\0') {
        return make_copy(access, spec, pair, err);
    }
    return agent_access_check(access, access->lock_set.count - 1, spec, &pair->to, err);
}

/* ------------------------------------------------------------------------------ a part */

static tutti_code
check_copy_range(const char *words, uint64_t offset, uint64_t count, const tutti_tensor *tensor,
                 tutti_error *err)
{
    const uint64_t all = tutti_spec_count(&tensor->spec);

    if (offset > all || count > all - offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OFFSET",
                              "%s: %" PRIu64 " elements from element %" PRIu64 ", the tensor has "
                              "%" PRIu64,
                              words, count, offset, all);
    }
    return TUTTI_OK;
}

static tutti_code
make_part(agent_access *access, const Tutti__V1__CopyRange *range, uint64_t count, copy_pair *pair,
          tutti_error *err)
{
    tutti_spec spec = {.dtype = pair->from->spec.dtype, .dim_count = 1, .dims = {(int64_t)count}};
    uint64_t found = 0;
    size_t i;

    if (range->n_shape > TUTTI_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                              "%zu dimensions, at most %d", range->n_shape, TUTTI_DIMS_MAX);
    }
    for (i = 0; i < range->n_shape; i++) {
        spec.dims[i] = range->shape[i];
    }
    spec.dim_count = range->n_shape > 0 ? (uint32_t)range->n_shape : 1;
    TUTTI_TRY(tutti_spec_check(&spec, &found, NULL, err));
    if (found != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SHAPE_MISMATCH",
                              "a shape of %" PRIu64 " elements for a range of %" PRIu64, found,
                              count);
    }
    return make_copy(access, &spec, pair, err);
}

/* The bytes around the range stay, so the target must be a good tensor already. */
static tutti_code
find_part(agent_access *access, const Tutti__V1__CopyRange *range, uint64_t count, copy_pair *pair,
          tutti_error *err)
{
    const tutti_spec *spec = &pair->from->spec;

    TUTTI_TRY(agent_access_tensor(access, access->lock_set.count - 1, &pair->to, err));
    if (pair->to->spec.dtype != spec->dtype) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH",
                              "the original is %s, the target is %s, need the same dtype",
                              tutti_dtype_name(spec->dtype),
                              tutti_dtype_name(pair->to->spec.dtype));
    }
    TUTTI_TRY(check_copy_range("the target", range->into_offset, count, pair->to, err));
    if (pair->from == pair->to && range->offset < range->into_offset + count &&
        range->into_offset < range->offset + count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OFFSET",
                              "elements from %" PRIu64 " and from %" PRIu64
                              " of one tensor overlap",
                              range->offset, range->into_offset);
    }
    return TUTTI_OK;
}

static tutti_code
prepare_part_copy(agent_access *access, copy_pair *pair, tutti_error *err)
{
    const Tutti__V1__CopyRequest *request = tutti_rpc_call_request(access->call);
    const Tutti__V1__CopyRange *range = request->range;
    const uint64_t size = tutti_dtype_bytes(pair->from->spec.dtype);
    uint64_t count = range->count;

    TUTTI_TRY(check_copy_range("the original", range->offset, count, pair->from, err));
    if (count == 0) {
        count = tutti_spec_count(&pair->from->spec) - range->offset;
    }
    TUTTI_TRY(request->into[0] == '\0' ? make_part(access, range, count, pair, err)
                                       : find_part(access, range, count, pair, err));
    pair->range = (tutti_move_range){
        .from_offset = range->offset * size,
        .to_offset = request->into[0] == '\0' ? 0 : range->into_offset * size,
        .bytes = count * size,
    };
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the call */

static void
copy_bytes(const copy_pair *pair)
{
    const tutti_move_range *range = &pair->range;

    memcpy((unsigned char *)pair->to->data + range->to_offset,
           (const unsigned char *)pair->from->data + range->from_offset, (size_t)range->bytes);
}

static void
start_copy(agent_access *access)
{
    const Tutti__V1__CopyRequest *request = tutti_rpc_call_request(access->call);
    copy_pair pair = {0};
    tutti_error err;
    tutti_code code = agent_access_tensor(access, 0, &pair.from, &err);

    if (code == TUTTI_OK) {
        code = request->range != NULL ? prepare_part_copy(access, &pair, &err)
                                      : prepare_whole_copy(access, &pair, &err);
    }
    if (code != TUTTI_OK) {
        agent_access_fail(access, &err);
        return;
    }
    if (pair.range.bytes == 0 || (pair.from == pair.to && request->range == NULL)) {
        answer_copy(access);
    } else if (tutti_tensor_is_host(pair.from) && tutti_tensor_is_host(pair.to)) {
        copy_bytes(&pair);
        answer_copy(access);
    } else {
        copy_staged(access, &pair);
    }
}

static tutti_code
check_copy(const agent_access *access, const Tutti__V1__CopyRequest *request, tutti_error *err)
{
    tutti_space *space = NULL;

    if (request->into[0] != '\0' && (request->name[0] != '\0' || request->device[0] != '\0')) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME", AGENT_SAY_INTO);
    }
    return agent_devices_find(access->agent, request->device, &space, err);
}

/*
 * A copy onto itself is one exclusive lock; two of one call on one tensor would wait for each
 * other.
 */
static tutti_code
lock_copy_tensors(agent_access *access, const Tutti__V1__CopyRequest *request, tutti_error *err)
{
    tutti_table *table = access->agent->table;
    tutti_code code = check_copy(access, request, err);

    if (code == TUTTI_OK) {
        code = tutti_table_lock_by_name(table, &access->lock_set, request->handle, false, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (request->into[0] == '\0') {
        code = agent_access_make(access, request->name, err);
        access->entry = code == TUTTI_OK ? AGENT_ENTRY_NEW : AGENT_ENTRY_FOUND;
        return code;
    }
    code = tutti_table_lock_by_name(table, &access->lock_set, request->into, true, err);
    if (code == TUTTI_OK && access->lock_set.locks[0].entry == access->lock_set.locks[1].entry) {
        tutti_table_unwant(table, &access->lock_set);
        access->lock_set.locks[0].exclusive = true;
    }
    return code;
}

void
agent_on_copy(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__CopyRequest *request = tutti_rpc_call_request(call);
    agent_access *access = agent_access_new(self, call, start_copy);
    tutti_error err;

    if (access == NULL) {
        return;
    }
    if (lock_copy_tensors(access, request, &err) != TUTTI_OK) {
        agent_access_refuse(access, request->name, &err);
        return;
    }
    agent_access_go(access);
}
