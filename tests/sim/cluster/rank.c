/*
 * The program of a rank: its steps in the order of the plan, by libtutti, and the judges of each call.
 *
 *   results    what succeeds has the result of the model
 *   agreement  an op that ranks call differently succeeds on none; each op says which one it is (`step`), so ranks that
 *              have lost their place among each other fail, and never mix two ops
 *   errors     a code and a reason that what has befallen allows
 *   time       a call returns within what tutti/op.h and tutti/client.h say, not counting time for which its process
 *              was stopped
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster/cluster_private.h"
#include "sim/model.h"

#define CALL_MS 5000                     /* of the client */
#define LATE_NS (2500 * TUTTI_NS_PER_MS) /* behind an op's time; 2 s are promised */

typedef struct step_call {
    cluster_user *user;
    tutti_client *client;
    model_call part;
    tutti_op op;
    int32_t to[RANKS_MAX];
    int64_t *given;
    int64_t given_count;
    int64_t *got;
    int64_t got_count;
    tutti_handle input;
    tutti_op_result result;
    bool has_input;
    tutti_error err;
} step_call;

uint32_t
cluster_member(const plan_group *group, uint32_t rank)
{
    uint32_t i;

    for (i = 0; i < group->size && group->ranks[i] != rank; i++) {
    }
    return i;
}

/* ------------------------------------------------------------------------------ judges */

static bool
is_odd(const step_call *self)
{
    return self->part.what->odd < self->part.size;
}

static const char *
name_of(const step_call *self)
{
    return tutti_coll_kind_name(self->part.what->kind);
}

static bool
may_be(tutti_code code)
{
    switch (code) {
    case TUTTI_UNAVAILABLE:
    case TUTTI_DEADLINE_EXCEEDED:
    case TUTTI_ABORTED:
    case TUTTI_CANCELLED:
    case TUTTI_FAILED_PRECONDITION:
    case TUTTI_INVALID_ARGUMENT:
    case TUTTI_NOT_FOUND:
        return true;
    default:
        return false;
    }
}

static void
judge_error(const step_call *self, tutti_code code)
{
    const tutti_error *err = &self->err;

    if (self->user->killed) {
        return;
    }
    if (!may_be(code) || err->reason[0] == '\0' || err->text[0] == '\0') {
        sim_fail("rank %u, step %u (%s): %d, reason \"%s\" is none for what has befallen: %s",
                 self->user->who - CLUSTER_PROGRAM, self->part.number, name_of(self), (int)code,
                 err->reason, err->text);
    }
    if (cluster.plan.kind == PLAN_GENTLE && !is_odd(self)) {
        sim_fail("rank %u, step %u (%s) failed, and nothing has befallen: %s: %s",
                 self->user->who - CLUSTER_PROGRAM, self->part.number, name_of(self), err->reason,
                 err->text);
    }
}

static uint64_t
stopped_until_now(const cluster_user *self)
{
    return self->stopped_ns + (self->stopped ? sim_now_ns() - self->stopped_since_ns : 0);
}

typedef struct watch {
    uint64_t begun_ns;
    uint64_t stopped_ns;
} watch;

static watch
begin_watch(const step_call *self)
{
    return (watch){.begun_ns = sim_now_ns(), .stopped_ns = stopped_until_now(self->user)};
}

static void
judge_time(const step_call *self, watch begun, uint64_t allowed_ns, const char *what)
{
    const uint64_t took_ns = sim_now_ns() - begun.begun_ns;
    const uint64_t stopped_ns = stopped_until_now(self->user) - begun.stopped_ns;

    if (!self->user->killed && took_ns > allowed_ns + LATE_NS + stopped_ns) {
        sim_fail("rank %u, step %u (%s): %s took %.3f s (%.3f stopped), and %.3f are allowed",
                 self->user->who - CLUSTER_PROGRAM, self->part.number, name_of(self), what,
                 (double)took_ns / 1e9, (double)stopped_ns / 1e9, (double)allowed_ns / 1e9);
    }
}

static void
judge_result(const step_call *self)
{
    int64_t i;

    if (self->user->killed) {
        return;
    }
    if (is_odd(self) && self->part.what->kind != TUTTI_COLL_SEND) {
        sim_fail("step %u (%s) succeeded on rank %u, and group rank %u called another",
                 self->part.number, name_of(self), self->user->who - CLUSTER_PROGRAM,
                 self->part.what->odd);
    }
    for (i = 0; i < self->got_count; i++) {
        if (self->got[i] != model_element(&self->part, i)) {
            sim_fail("step %u (%s) on rank %u: element %lld is %lld and not %lld",
                     self->part.number, name_of(self), self->user->who - CLUSTER_PROGRAM,
                     (long long)i, (long long)self->got[i],
                     (long long)model_element(&self->part, i));
        }
    }
}

/* ------------------------------------------------------------------------------ arguments */

static const char *
group_name(uint32_t group)
{
    static const char *const names[CLUSTER_GROUPS] = {"world", "left", "right"};

    return names[group];
}

static void
fill_op(step_call *self)
{
    const plan_op *what = self->part.what;
    const uint32_t rank = self->user->who - CLUSTER_PROGRAM;
    uint32_t i;

    tutti_op_init(&self->op);
    self->op.group = group_name(what->group);
    self->op.timeout_ms = (uint32_t)(what->timeout_ns[rank] / TUTTI_NS_PER_MS);
    self->op.root = (int32_t)what->root;
    self->op.step = self->part.number + 1;
    if (what->kind == TUTTI_COLL_SEND) {
        self->op.peer = (int32_t)(self->part.group_rank == what->root ? what->peer : what->root);
        self->op.tag = self->part.number;
    }
    for (i = 0; i < self->part.size && what->kind == TUTTI_COLL_PERMUTE; i++) {
        self->to[i] = (int32_t)((i + 1) % self->part.size);
        self->op.src_dst = self->to;
        self->op.src_dst_count = self->part.size;
    }
}

static void
fill_arrays(step_call *self)
{
    const plan_op *what = self->part.what;
    int64_t i;

    self->given_count = model_parts_given(&self->part) * what->count;
    self->got_count = model_parts_got(&self->part) * what->count;
    self->given = calloc((size_t)self->given_count + 1, sizeof(int64_t));
    self->got = calloc((size_t)self->got_count + 1, sizeof(int64_t));
    if (self->given == NULL || self->got == NULL) {
        sim_fail("no memory");
    }
    for (i = 0; i < self->given_count; i++) {
        self->given[i] = model_value(self->part.number, self->part.group_rank, i);
    }
}

static tutti_spec
spec_of(int64_t count)
{
    return (tutti_spec){.dtype = TUTTI_DTYPE_INT64, .dim_count = 1, .dims = {count}};
}

/* ------------------------------------------------------------------------------ on arrays */

static tutti_code
call_broadcast(step_call *self, const tutti_spec *spec)
{
    const bool is_root = self->part.group_rank == self->part.what->root;
    tutti_code code;

    code = tutti_broadcast_data(self->client, &self->op, spec, is_root ? self->given : self->got,
                                &self->err);
    if (is_root) {
        memcpy(self->got, self->given, (size_t)self->got_count * sizeof(int64_t));
    }
    return code;
}

static tutti_code
call_data(step_call *self)
{
    tutti_client *c = self->client;
    const tutti_op *op = &self->op;
    const plan_op *what = self->part.what;
    const tutti_spec spec = spec_of(self->given_count > 0 ? self->given_count : what->count);
    const uint64_t bytes = (uint64_t)self->got_count * sizeof(int64_t);

    switch (what->kind) {
    case TUTTI_COLL_ALL_REDUCE:
        return tutti_all_reduce_data(c, op, &spec, self->given, self->got, &self->err);
    case TUTTI_COLL_BROADCAST:
        return call_broadcast(self, &spec);
    case TUTTI_COLL_REDUCE:
        return tutti_reduce_to_root_data(c, op, &spec, self->given, self->got, &self->err);
    case TUTTI_COLL_ALL_GATHER:
        return tutti_all_gather_data(c, op, &spec, self->given, self->got, bytes, &self->err);
    case TUTTI_COLL_REDUCE_SCATTER:
        return tutti_reduce_scatter_data(c, op, &spec, self->given, self->got, bytes, &self->err);
    case TUTTI_COLL_GATHER:
        return tutti_gather_data(c, op, &spec, self->given, self->got, bytes, &self->err);
    case TUTTI_COLL_SCATTER:
        return tutti_scatter_data(c, op, &spec, self->given, self->got, bytes, &self->err);
    case TUTTI_COLL_ALL_TO_ALL:
        return tutti_all_to_all_data(c, op, &spec, self->given, self->got, &self->err);
    case TUTTI_COLL_PERMUTE:
        return tutti_permute_data(c, op, &spec, self->given, self->got, &self->err);
    case TUTTI_COLL_SEND:
        return self->part.group_rank == what->root
                   ? tutti_send_data(c, op, &spec, self->given, &self->err)
                   : tutti_recv_data(c, op, &spec, self->got, NULL, &self->err);
    default:
        return tutti_barrier(c, op, NULL, &self->err);
    }
}

/* ------------------------------------------------------------------------------ on tensors */

static tutti_code
call_op(step_call *self, const tutti_op *op, tutti_op_result *ret_result)
{
    static tutti_code (*const functions[])(tutti_client *, const tutti_op *, tutti_op_result *,
                                           tutti_error *) = {
        [TUTTI_COLL_ALL_REDUCE] = tutti_all_reduce,
        [TUTTI_COLL_BROADCAST] = tutti_broadcast,
        [TUTTI_COLL_REDUCE] = tutti_reduce_to_root,
        [TUTTI_COLL_ALL_GATHER] = tutti_all_gather,
        [TUTTI_COLL_REDUCE_SCATTER] = tutti_reduce_scatter,
        [TUTTI_COLL_GATHER] = tutti_gather,
        [TUTTI_COLL_SCATTER] = tutti_scatter,
        [TUTTI_COLL_ALL_TO_ALL] = tutti_all_to_all,
        [TUTTI_COLL_PERMUTE] = tutti_permute,
        [TUTTI_COLL_BARRIER] = tutti_barrier,
        [TUTTI_COLL_SEND] = tutti_send,
        [TUTTI_COLL_RECV] = tutti_recv,
    };
    tutti_coll_kind kind = self->part.what->kind;

    if (kind == TUTTI_COLL_SEND && self->part.group_rank != self->part.what->root) {
        kind = TUTTI_COLL_RECV;
    }
    return functions[kind](self->client, op, ret_result, &self->err);
}

static tutti_code
put_input(step_call *self)
{
    const tutti_spec spec = spec_of(self->given_count);
    const watch begun = begin_watch(self);
    tutti_code code;

    if (model_parts_given(&self->part) == 0) {
        return TUTTI_OK;
    }
    code = tutti_tensor_put(self->client, &spec, self->given, NULL, NULL, &self->input, &self->err);
    judge_time(self, begun, CALL_MS * TUTTI_NS_PER_MS, "an upload");
    self->has_input = code == TUTTI_OK;
    self->op.input = self->has_input ? self->input.text : NULL;
    return code;
}

/* A result is read, whatever else the program does with it; the root of a broadcast has its input. */
static tutti_code
take_output(step_call *self)
{
    const char *handle = self->result.output.text[0] == '\0' && self->has_input
                             ? self->input.text
                             : self->result.output.text;
    const watch begun = begin_watch(self);
    tutti_code code;

    if (self->got_count == 0) {
        return TUTTI_OK;
    }
    code = tutti_tensor_read(self->client, handle, self->got,
                             (uint64_t)self->got_count * sizeof(int64_t), NULL, &self->err);
    judge_time(self, begun, CALL_MS * TUTTI_NS_PER_MS, "a download");
    return code;
}

static void
delete_tensor(step_call *self, const char *handle)
{
    const watch begun = begin_watch(self);

    if (handle[0] != '\0') {
        (void)tutti_tensor_delete(self->client, handle, NULL);
        judge_time(self, begun, CALL_MS * TUTTI_NS_PER_MS, "a deletion");
    }
}

static tutti_code
wait_for_work(step_call *self)
{
    const char *const works[] = {self->result.work};
    tutti_work_status *status = calloc(1, sizeof(*status));
    const watch begun = begin_watch(self);
    tutti_code code;

    if (status == NULL) {
        sim_fail("no memory");
    }
    code = tutti_wait(self->client, works, 1, self->op.timeout_ms + 2000, status, &self->err);
    judge_time(self, begun, (self->op.timeout_ms + 2000) * TUTTI_NS_PER_MS, "a wait");
    if (code == TUTTI_OK && status->error.code != TUTTI_OK) {
        self->err = status->error;
        code = self->err.code;
    }
    free(status);
    return code;
}

static tutti_code
run_tensors(step_call *self, bool async)
{
    const uint64_t time_ns = (async ? CALL_MS : self->op.timeout_ms) * TUTTI_NS_PER_MS;
    tutti_code code = put_input(self);
    watch begun;

    if (code != TUTTI_OK) {
        return code;
    }
    self->op.async = async;
    begun = begin_watch(self);
    code = call_op(self, &self->op, &self->result);
    judge_time(self, begun, time_ns, "an op");
    if (code == TUTTI_OK && async) {
        code = wait_for_work(self);
    }
    if (code == TUTTI_OK) {
        code = take_output(self);
    }
    if (self->has_input) {
        delete_tensor(self, self->input.text);
    }
    delete_tensor(self, self->result.output.text);
    return code;
}

static tutti_code
run_data(step_call *self)
{
    const watch begun = begin_watch(self);
    tutti_code code;

    code = call_data(self);
    judge_time(self, begun, (self->op.timeout_ms + 2 * CALL_MS) * TUTTI_NS_PER_MS, "an op");
    return code;
}

/* The odd one calls a barrier, or, in place of one, what has a tensor. */
static tutti_code
run_odd(step_call *self)
{
    int64_t x = 0;
    const tutti_spec spec = spec_of(1);

    return self->part.what->kind == TUTTI_COLL_BARRIER
               ? tutti_all_reduce_data(self->client, &self->op, &spec, &x, &x, &self->err)
               : tutti_barrier(self->client, &self->op, NULL, &self->err);
}

/* ------------------------------------------------------------------------------ steps */

static tutti_code
run_way(step_call *self, cluster_way way)
{
    if (is_odd(self) && self->part.what->kind != TUTTI_COLL_SEND &&
        self->part.what->odd == self->part.group_rank) {
        return run_odd(self);
    }
    return way == CLUSTER_DATA ? run_data(self) : run_tensors(self, way == CLUSTER_ASYNC);
}

/* Returns false: the client is of no use any more. */
static bool
run_step(cluster_user *user, tutti_client *client, uint32_t number)
{
    const cluster_step *step = &cluster.plan.steps[number];
    const plan_group *group = &cluster.plan.groups[step->op.group];
    const uint32_t rank = user->who - CLUSTER_PROGRAM;
    step_call self = {.user = user, .client = client};
    tutti_code code;

    self.part = (model_call){.what = &step->op,
                             .number = number,
                             .size = group->size,
                             .group_rank = cluster_member(group, rank)};
    if (self.part.group_rank == group->size ||
        (step->op.kind == TUTTI_COLL_SEND && self.part.group_rank != step->op.root &&
         self.part.group_rank != step->op.peer)) {
        return true;
    }
    sim_sleep(step->op.think_ns[rank]);
    fill_op(&self);
    fill_arrays(&self);
    sim_note("rank %u: step %u (%s on %s) begins", rank, number, name_of(&self),
             group_name(step->op.group));
    cluster.counts.calls++;
    code = run_way(&self, step->way);
    sim_note("rank %u: step %u (%s) ends: %s%s%s", rank, number, name_of(&self),
             code == TUTTI_OK ? "well" : self.err.reason, code == TUTTI_OK ? "" : ": ",
             code == TUTTI_OK ? "" : self.err.text);
    if (code == TUTTI_OK) {
        judge_result(&self);
    } else {
        cluster.counts.failed++;
        judge_error(&self, code);
    }
    free(self.given);
    free(self.got);
    return code == TUTTI_OK || self.err.scope != TUTTI_SCOPE_AGENT;
}

static tutti_client *
connect_rank(const cluster_user *user)
{
    tutti_client *client = NULL;
    tutti_client_options options;
    char address[32];
    tutti_error err;

    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", 7100 + user->who - CLUSTER_PROGRAM);
    tutti_client_options_init(&options);
    options.agent = address;
    options.timeout_ms = CALL_MS;
    options.wait = true;
    while (!user->killed && tutti_connect_with(&options, &client, &err) != TUTTI_OK) {
        sim_note("rank %u cannot connect: %s", user->who - CLUSTER_PROGRAM, err.text);
        sim_sleep(100 * TUTTI_NS_PER_MS);
    }
    return client;
}

/* Each makes the groups that it is in: the first creates one, the others find it. */
static bool
make_groups(cluster_user *user, tutti_client *client)
{
    bool all = true;
    uint32_t i;

    for (i = 1; i < cluster.plan.group_count && all; i++) {
        const plan_group *group = &cluster.plan.groups[i];

        if (cluster_member(group, user->who - CLUSTER_PROGRAM) < group->size) {
            all = tutti_group_create(client, group_name(i), group->ranks, group->size, NULL,
                                     NULL) == TUTTI_OK;
        }
    }
    return all;
}

static tutti_client *
come_back(cluster_user *user)
{
    tutti_client *client = connect_rank(user);

    while (client != NULL && !user->killed && !make_groups(user, client)) {
        tutti_close(client);
        sim_sleep(100 * TUTTI_NS_PER_MS);
        client = connect_rank(user);
    }
    return client;
}

void *
cluster_run_rank(void *arg)
{
    cluster_user *self = arg;
    tutti_client *client = come_back(self);

    while (self->next < cluster.plan.step_count && !self->killed) {
        const uint32_t number = self->next++;

        if (plan_plays(cluster.plan.op_mask, number) && !run_step(self, client, number) &&
            !self->killed) {
            tutti_close(client);
            client = come_back(self);
        }
    }
    tutti_close(client);
    self->through = true;
    return NULL;
}
