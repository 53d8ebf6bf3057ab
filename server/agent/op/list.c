/*
 * Ops that take or make lists of tensors. The files of an op call this room at the same places as
 * for one tensor: when the call comes (agent_list_take: copy or lock inputs, lock or make outputs),
 * when the op's turn has come (agent_list_inputs, agent_list_results), and at its end.
 *
 * When the number of results is known at the call, the new results have entries in the op's own
 * lock set and their handles can be told at once. Else (a receiver of a broadcast list, a gather of
 * lists) they are made when another rank has said how many there are, in the lock set list->made:
 * on the thread that runs the engine. Nobody can wait for such a new entry, so it is granted at
 * once.
 *
 * Control loop, but for on_list and what it calls. Then the op's list belongs to the engine's
 * thread.
 */
#include "server/agent/op/list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/op/check.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

#define ALIGNMENT 64 /* of tensors that share memory: enough for any kernel */

/* ------------------------------------------------------------------------------ memory */

static tutti_code
fail_memory(size_t count, tutti_error *err)
{
    return TUTTI_FAIL_MEMORY(err, "no memory for a list of %zu tensors", count);
}

/*
 * One element more than asked for: calloc of zero bytes may return NULL. A caller that finds one of
 * the arrays NULL frees all by agent_list_free.
 */
static agent_list *
new_list(size_t inputs)
{
    agent_list *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->in = calloc(inputs + 1, sizeof(*self->in));
    self->in_locks = calloc(inputs + 1, sizeof(tutti_lock *));
    self->axes = calloc(inputs + 1, sizeof(*self->axes));
    self->in_count = (uint32_t)inputs;
    return self;
}

void
agent_list_free(agent_op *op)
{
    agent_list *self = op->list;

    if (self == NULL) {
        return;
    }
    tutti_table_release(op->agent->table, &self->made);
    tutti_tensor_unref(self->in_memory);
    tutti_tensor_unref(self->out_memory);
    free(self->in);
    free(self->in_locks);
    free(self->axes);
    free(self->out);
    free(self->out_locks);
    free(self);
    op->list = NULL;
}

/* The bytes, rounded up to a multiple of ALIGNMENT. */
static uint64_t
align_bytes(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/*
 * One allocation for all inline tensors of a list: a list may have thousands of small ones, and
 * each allocation of a space costs a call. The limit of a message is checked with each step, so the
 * sums cannot overflow.
 */
tutti_code
agent_list_share(const agent_op *op, tutti_coll_tensor *tensors, uint32_t count, tutti_tensor **ret,
                 tutti_error *err)
{
    tutti_spec spec = {.dtype = TUTTI_DTYPE_UINT8, .dim_count = 1};
    uint64_t bytes = 0;
    uint64_t total = 0;
    uint32_t i;
    tutti_code code = TUTTI_OK;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        bytes += tutti_spec_bytes(&tensors[i].spec);
        total += align_bytes(tutti_spec_bytes(&tensors[i].spec));
        code = agent_check_inline(bytes, err);
    }
    spec.dims[0] = (int64_t)total;
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(op->agent->space, &spec, false, ret, err);
    }
    total = 0;
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        tensors[i].data = (unsigned char *)(*ret)->data + total;
        total += align_bytes(tutti_spec_bytes(&tensors[i].spec));
    }
    return code;
}

/* ------------------------------------------------------------------------------ its coming */

/* The payload has the tensors' bytes one behind the other, without the padding of the memory. */
static tutti_code
read_payload(agent_op *op, const agent_request *request, tutti_error *err)
{
    const agent_list *list = op->list;
    uint64_t bytes = 0;
    const size_t got =
        request->payload == NULL ? 0 : tutti_rpc_message_payload_bytes(request->payload);
    uint32_t i;

    for (i = 0; i < list->in_count; i++) {
        bytes += tutti_spec_bytes(&list->in[i].spec);
    }
    if (bytes != got) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "%zu bytes in the payload, the inline tensors have %" PRIu64, got,
                              bytes);
    }
    for (i = 0; i < list->in_count; i++) {
        bytes = tutti_spec_bytes(&list->in[i].spec);
        if (bytes > 0) {
            tutti_rpc_message_read(request->payload, list->in[i].data, (size_t)bytes);
        }
    }
    return TUTTI_OK;
}

static tutti_code
keep_inline(agent_op *op, const agent_request *request, tutti_error *err)
{
    agent_list *list = op->list;
    uint32_t i;

    for (i = 0; i < list->in_count; i++) {
        if (request->inputs[i].handle != NULL) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "UNEXPECTED_INPUT",
                                  "tensor %" PRIu32
                                  " of the list is a handle, others are inline: all must be alike",
                                  i);
        }
        list->in[i].spec = request->inputs[i].spec;
        TUTTI_TRY(tutti_spec_check(&list->in[i].spec, NULL, NULL, err));
    }
    TUTTI_TRY(agent_list_share(op, list->in, list->in_count, &list->in_memory, err));
    tutti_tensor_mark(list->in_memory, TUTTI_HOLDER_STAGED);
    return read_payload(op, request, err);
}

static tutti_code
lock_inputs(agent_op *op, const agent_request *request, tutti_error *err)
{
    agent_list *list = op->list;
    uint32_t i;

    for (i = 0; i < list->in_count; i++) {
        TUTTI_TRY(tutti_table_lock_range(op->agent->table, &op->lock_set, request->inputs[i].handle,
                                         false, err));
        list->in_locks[i] = &op->lock_set.locks[op->lock_set.count - 1];
    }
    return TUTTI_OK;
}

/* A lock that has bytes in common with the last one, among those before it. */
static tutti_lock *
find_same(const tutti_lock_set *lock_set, const tutti_lock *lock)
{
    uint32_t i;

    for (i = 0; i + 1 < lock_set->count; i++) {
        if (tutti_lock_meets(&lock_set->locks[i], lock)) {
            return &lock_set->locks[i];
        }
    }
    return NULL;
}

/*
 * An output may be the input at the same place of the list (in-place), and else none of the tensors
 * named before it: two locks of one op on one tensor would wait for each other. `same->exclusive`
 * is true when the tensor is already an output.
 */
static tutti_code
lock_output(agent_op *op, uint32_t at, const char *handle, tutti_lock **ret, tutti_error *err)
{
    const agent_list *list = op->list;
    const bool pairs = op->op.args.coalesced && op->op.args.form != TUTTI_FORM_LIST;
    tutti_lock *same;
    bool equal;

    TUTTI_TRY(tutti_table_lock_range(op->agent->table, &op->lock_set, handle, true, err));
    *ret = &op->lock_set.locks[op->lock_set.count - 1];
    same = find_same(&op->lock_set, *ret);
    if (same == NULL) {
        return TUTTI_OK;
    }
    equal = tutti_lock_equals(same, *ret);
    tutti_table_unwant(op->agent->table, &op->lock_set);
    if (!equal || !pairs || at >= list->in_count || list->in_locks[at] != same || same->exclusive) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "OUTPUT_ALIAS",
            "output %" PRIu32
            " is given twice, or is the input of another tensor's op, need a tensor of its own",
            at);
    }
    same->exclusive = true;
    *ret = same;
    return TUTTI_OK;
}

static tutti_code
lock_outputs(agent_op *op, const agent_request *request, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    list->given_count = (uint32_t)request->output_count;
    for (i = 0; i < list->given_count && code == TUTTI_OK; i++) {
        code = lock_output(op, i, request->outputs[i], &list->out_locks[i], err);
    }
    if (code == TUTTI_OK && request->output[0] != '\0') { /* of a list of parts: one result */
        code = lock_output(op, UINT32_MAX, request->output, &op->out, err);
    }
    return code;
}

/*
 * New results get their entries here when their number is known: a coalesced op makes one for each
 * input. What comes from a root has the root's number.
 */
static tutti_code
make_outputs(agent_op *op, tutti_error *err)
{
    agent_list *list = op->list;
    const bool known = op->op.args.coalesced && op->op.args.form != TUTTI_FORM_LIST &&
                       !tutti_coll_is_from_root(op->op.args.kind);
    uint32_t i;

    list->out_is_new = list->given_count == 0 && !op->out_inline;
    for (i = 0; i < list->in_count && known && list->out_is_new; i++) {
        TUTTI_TRY(tutti_table_create_locked(op->agent->table, &op->lock_set, "", err));
        list->out_locks[i] = &op->lock_set.locks[op->lock_set.count - 1];
        list->out_count = i + 1;
    }
    return TUTTI_OK;
}

/* A list goes in, one tensor comes out. */
static tutti_code
make_output(agent_op *op, const agent_request *request, tutti_error *err)
{
    if (op->out_inline || request->output[0] != '\0') {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_table_create_locked(op->agent->table, &op->lock_set, "", err));
    op->out = &op->lock_set.locks[op->lock_set.count - 1];
    op->out_is_new = true;
    return TUTTI_OK;
}

static tutti_code
check_list_request(const agent_request *request, tutti_error *err)
{
    const size_t most =
        request->input_count > request->output_count ? request->input_count : request->output_count;

    if (most > TUTTI_COLL_LIST_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                              "a list of %zu tensors, at most %d", most, TUTTI_COLL_LIST_MAX);
    }
    if (request->axis_count > 0 && request->axis_count != request->input_count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                              "%zu axes for %zu tensors: give one for each, or none",
                              request->axis_count, request->input_count);
    }
    return TUTTI_OK;
}

/*
 * Locks must not move once they are made (op->in points to one), so room for all of them is made
 * first: inputs, given outputs, one new output for each input, and one single output.
 */
static tutti_code
prepare_list(agent_op *op, const agent_request *request, tutti_error *err)
{
    const size_t locks = 2 * request->input_count + request->output_count + 1;
    agent_list *list = new_list(request->input_count);
    uint32_t i;

    op->list = list;
    if (list == NULL || list->in == NULL || list->in_locks == NULL || list->axes == NULL) {
        return fail_memory(request->input_count, err);
    }
    list->out_locks = calloc(locks, sizeof(tutti_lock *));
    if (list->out_locks == NULL) {
        return fail_memory(request->output_count, err);
    }
    for (i = 0; i < list->in_count; i++) {
        list->axes[i] = request->axis_count > 0 ? request->axes[i] : request->options.axis;
    }
    return tutti_table_reserve(&op->lock_set, (uint32_t)locks, err);
}

/* On failure the new entries are dropped; their locks are released by agent_op_start. */
tutti_code
agent_list_take(agent_op *op, agent_request *request, tutti_error *err)
{
    const bool makes_list = tutti_coll_makes_list(&op->op.args);
    tutti_code code = check_list_request(request, err);

    if (code == TUTTI_OK) {
        code = prepare_list(op, request, err);
    }
    if (code == TUTTI_OK && request->inline_input && request->input_count > 0) {
        code = keep_inline(op, request, err);
    } else if (code == TUTTI_OK) {
        code = lock_inputs(op, request, err);
    }
    if (code == TUTTI_OK) {
        code = lock_outputs(op, request, err);
    }
    if (code == TUTTI_OK) {
        code = makes_list ? make_outputs(op, err) : make_output(op, request, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ its turn */

static tutti_code
take_input(agent_op *op, uint32_t i, tutti_error *err)
{
    agent_list *list = op->list;

    if (list->in_locks[i] != NULL) {
        const tutti_tensor *tensor;
        const tutti_code code = tutti_table_check(op->agent->table, list->in_locks[i], err);

        if (code != TUTTI_OK) {
            return code;
        }
        tensor = tutti_table_tensor(op->agent->table, list->in_locks[i]);
        list->in[i].spec = tensor->spec;
        list->in[i].data = tensor->data;
    }
    return agent_take_list_axis(&op->op.args, list->axes[i], &list->in[i], err);
}

/* A list replaces the single input: args.spec is that of its first tensor. Without a list nothing
 * changes. */
tutti_code
agent_list_inputs(agent_op *op, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    if (list == NULL || list->in_count == 0) {
        return TUTTI_OK;
    }
    if (tutti_coll_is_from_root(op->op.args.kind) &&
        op->op.args.root != tutti_coll_group_rank(op->group->coll)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "UNEXPECTED_INPUT",
                              "rank %" PRIu32 " gives a list of %" PRIu32
                              " tensors and is not the root: only the root gives one",
                              op->agent->rank, list->in_count);
    }
    for (i = 0; i < list->in_count && code == TUTTI_OK; i++) {
        code = take_input(op, i, err);
    }
    op->op.args.list = list->in;
    op->op.args.list_count = list->in_count;
    op->op.args.spec = list->in[0].spec;
    op->op.args.has_spec = true;
    return code;
}

/* ------------------------------------------------------------------------------ results */

static tutti_code
use_given(agent_op *op, uint32_t i, tutti_error *err)
{
    agent_list *list = op->list;
    const tutti_tensor *tensor = tutti_table_tensor(op->agent->table, list->out_locks[i]);
    tutti_code code;

    if (tensor == NULL) {
        return tutti_table_check(op->agent->table, list->out_locks[i], err);
    }
    code = agent_check_output(&tensor->spec, &list->out[i].spec, err);
    list->out[i].data = tensor->data;
    return code;
}

static tutti_code
fill_new(agent_op *op, uint32_t i, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_tensor *tensor = NULL;

    TUTTI_TRY(tutti_tensor_new(op->space, &list->out[i].spec, false, &tensor, err));

    list->out[i].data = tensor->data;
    tutti_table_fill(op->agent->table, list->out_locks[i], tensor);
    return TUTTI_OK;
}

/*
 * out_locks had room for the number of outputs that the request named; the real number is known
 * now.
 */
static tutti_code
make_room_list(agent_list *list, uint32_t count, tutti_error *err)
{
    tutti_lock **locks = calloc((size_t)count + 1, sizeof(tutti_lock *));

    if (locks == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %" PRIu32 " tensors", count);
    }
    free(list->out_locks);
    list->out_locks = locks;
    return TUTTI_OK;
}

/*
 * Entries for results whose number another rank has said. Owner and lease are those of the call.
 * The lock set is acquired in any case: release_op releases it, and the entries that were made
 * before a failure are dropped by settle_list.
 */
static tutti_code
make_late(agent_op *op, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_code code = make_room_list(list, count, err);
    uint32_t i;

    if (code == TUTTI_OK) {
        code = tutti_table_reserve(&list->made, count, err);
        memcpy(list->made.owner, op->lock_set.owner, sizeof(list->made.owner));
        list->made.lease = op->lock_set.lease;
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = tutti_table_create_locked(op->agent->table, &list->made, "", err);
        if (code == TUTTI_OK) {
            list->out_locks[i] = &list->made.locks[i];
            list->out_count = i + 1;
        }
    }
    (void)tutti_table_acquire(op->agent->table, &list->made);
    return code;
}

static tutti_code
place_inline(agent_op *op, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_code code = make_room_list(list, count, err);

    if (code == TUTTI_OK) {
        code = agent_list_share(op, list->out, count, &list->out_memory, err);
    }
    if (code == TUTTI_OK) {
        tutti_tensor_mark(list->out_memory, TUTTI_HOLDER_RESULT);
    }
    list->out_count = code == TUTTI_OK ? count : 0;
    return code;
}

static tutti_code
place_each(agent_op *op, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    uint32_t i;

    if (list->out_is_new && list->out_count == 0) {
        TUTTI_TRY(make_late(op, count, err));
    }
    for (i = 0; i < count; i++) {
        TUTTI_TRY(list->out_is_new ? fill_new(op, i, err) : use_given(op, i, err));
    }
    return TUTTI_OK;
}

/*
 * The shapes are known: when the op is launched, or later from other ranks (on_list). An error here
 * refuses the op for the whole group, before data is moved.
 */
static tutti_code
place_list(agent_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    uint32_t i;
    tutti_code code;

    TUTTI_TRY(agent_check_expected(op->expects, op->expect_count, specs, count, err));
    if (list->given_count > 0 && list->given_count != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                              "%" PRIu32 " outputs for %" PRIu32
                              " results, need one for each result",
                              list->given_count, count);
    }
    list->out = calloc((size_t)count + 1, sizeof(*list->out));
    if (list->out == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %" PRIu32 " tensors", count);
    }
    for (i = 0; i < count; i++) {
        list->out[i].spec = specs[i];
    }
    if (list->given_count > 0) {
        list->out_count = count;
    }
    code = op->out_inline ? place_inline(op, count, err) : place_each(op, count, err);
    op->op.outputs = list->out;
    return code;
}

static tutti_code
on_list(tutti_coll_op *engine_op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    return place_list(tutti_container_of(engine_op, agent_op, op), specs, count, err);
}

/*
 * A broadcasting root that named no outputs keeps its input tensors as results: no memory, no copy.
 * They are the caller's, so they count as given.
 */
static tutti_code
place_of_root(agent_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;

    if (op->op.args.kind != TUTTI_COLL_BROADCAST || list->given_count > 0 || op->out_inline) {
        return place_list(op, specs, count, err);
    }
    TUTTI_TRY(agent_check_expected(op->expects, op->expect_count, specs, count, err));
    list->out = calloc((size_t)count + 1, sizeof(*list->out));
    if (list->out == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %" PRIu32 " tensors", count);
    }
    memcpy(list->out, list->in, count * sizeof(*list->out));
    memcpy(list->out_locks, list->in_locks, count * sizeof(tutti_lock *));
    list->out_count = count;
    list->out_is_new = false;
    op->op.outputs = list->out;
    return TUTTI_OK;
}

/*
 * A receiver learns number and shapes from the root; a rank that gives a list of parts learns those
 * of the others. Both get them by on_list.
 */
tutti_code
agent_list_results(agent_op *op, tutti_error *err)
{
    tutti_coll_group *coll = op->group->coll;
    const tutti_coll_args *args = &op->op.args;
    const uint32_t me = tutti_coll_group_rank(coll);
    const bool learns = tutti_coll_is_from_root(args->kind) && me != args->root;
    tutti_spec *specs = NULL;
    uint32_t count = 0;
    tutti_code code;

    code = learns && args->form != TUTTI_FORM_LIST
               ? TUTTI_OK
               : tutti_coll_infer_list(args, tutti_coll_group_size(coll), me, &specs, &count, err);
    if (learns || args->form == TUTTI_FORM_LIST) {
        op->op.on_list = on_list;
    } else if (code == TUTTI_OK && !op->no_result) {
        code = tutti_coll_is_from_root(args->kind) ? place_of_root(op, specs, count, err)
                                                   : place_list(op, specs, count, err);
    }
    free(specs);
    return code;
}

/* ------------------------------------------------------------------------------ what is said */

/* The specs are those of the tensors, when they exist: a given output keeps its dimensions. */
agent_output *
agent_list_outputs(const agent_op *op, uint32_t *ret_count)
{
    const agent_list *list = op->list;
    agent_output *outputs;
    uint32_t i;

    *ret_count = 0;
    if (list == NULL || list->out_count == 0 || op->no_result) {
        return NULL;
    }
    outputs = calloc(list->out_count, sizeof(*outputs));
    for (i = 0; i < list->out_count && outputs != NULL; i++) {
        if (list->out_locks[i] != NULL) {
            tutti_table_handle(list->out_locks[i], outputs[i].handle);
        }
        outputs[i].has_spec = list->out != NULL;
        if (list->out != NULL) {
            const tutti_tensor *tensor =
                list->out_locks[i] == NULL
                    ? NULL
                    : tutti_table_tensor(op->agent->table, list->out_locks[i]);

            outputs[i].spec = tensor != NULL ? tensor->spec : list->out[i].spec;
        }
    }
    *ret_count = outputs == NULL ? 0 : list->out_count;
    return outputs;
}

/*
 * The padding between the results is squeezed out in place. memmove: a result may overlap the place
 * that it goes to. Afterwards list->out[].data is not valid any more; nobody reads it behind the
 * end.
 */
uint64_t
agent_list_pack(agent_list *list)
{
    unsigned char *to = list->out_memory->data;
    uint32_t i;

    for (i = 0; i < list->out_count; i++) {
        const size_t bytes = (size_t)tutti_spec_bytes(&list->out[i].spec);

        memmove(to, list->out[i].data, bytes);
        to += bytes;
    }
    return (uint64_t)(to - (unsigned char *)list->out_memory->data);
}

void
agent_list_mark(agent_op *op, const tutti_error *err)
{
    const agent_list *list = op->list;
    uint32_t i;

    for (i = 0; i < list->out_count; i++) {
        if (list->out_locks[i] != NULL && list->out_locks[i]->exclusive &&
            list->out_locks[i]->range == NULL) {
            tutti_table_mark(op->agent->table, list->out_locks[i], err);
        }
    }
}

void
agent_list_drop_new(agent_op *op)
{
    const agent_list *list = op->list;
    uint32_t i;

    for (i = 0; i < list->out_count && list->out_is_new; i++) {
        tutti_table_drop_new(op->agent->table, list->out_locks[i]);
    }
}
