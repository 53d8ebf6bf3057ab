/* Collectives inside of calls: ops like any others, but nobody's call waits for them. Control loop. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/function/env.h"
#include "server/agent/op/deadline.h"
#include "server/agent/op/group.h"
#include "server/agent/op/op.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/group.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

/* ------------------------------------------------------------------------------ words */

static tutti_code
read_kind(const char *name, tutti_coll_kind *ret_kind, tutti_error *err)
{
    unsigned kind;

    for (kind = 1; kind < TUTTI_COLL_KIND_COUNT; kind++) {
        if (kind != TUTTI_COLL_PERMUTE && name != NULL &&
            strcmp(tutti_coll_kind_name((tutti_coll_kind)kind), name) == 0) {
            *ret_kind = (tutti_coll_kind)kind;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                          "\"%.40s\" is no op that a function can call: all_reduce, broadcast, "
                          "send ...",
                          name == NULL ? "" : name);
}

static tutti_code
read_reduce(const char *name, tutti_reduce *ret_reduce, tutti_error *err)
{
    static const struct {
        tutti_reduce reduce;
        const char *name;
    } rows[] = {
#define ROW(upper, number, lower) {TUTTI_REDUCE_##upper, lower},
        TUTTI_REDUCE_MAP(ROW)
#undef ROW
    };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, name == NULL ? "sum" : name) == 0 &&
            rows[i].reduce != TUTTI_REDUCE_PREMUL_SUM) {
            *ret_reduce = rows[i].reduce;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(
        err, TUTTI_INVALID_ARGUMENT, "BAD_REDUCE_OP",
        "\"%.40s\" is no reduce op here: sum, prod, min, max, avg, band, bor, bxor", name);
}

tutti_code
agent_env_op_read(agent_env_op *op, const char *name, const char *reduce, tutti_error *err)
{
    TUTTI_TRY(read_kind(name, &op->kind, err));
    return read_reduce(reduce, &op->reduce, err);
}

/* ------------------------------------------------------------------------------ arguments */

static bool
needs_input(tutti_coll_kind kind)
{
    return kind != TUTTI_COLL_BARRIER && kind != TUTTI_COLL_RECV && !tutti_coll_is_from_root(kind);
}

/* Where it may be left out, the input is overwritten. */
static bool
is_in_place(tutti_coll_kind kind)
{
    return kind == TUTTI_COLL_ALL_REDUCE || kind == TUTTI_COLL_REDUCE ||
           kind == TUTTI_COLL_BROADCAST;
}

/* Tensors are what they are; only their number of elements has to fit. */
static tutti_form
choose_form(tutti_coll_kind kind)
{
    return kind == TUTTI_COLL_ALL_GATHER || kind == TUTTI_COLL_GATHER ||
                   kind == TUTTI_COLL_SCATTER || kind == TUTTI_COLL_REDUCE_SCATTER
               ? TUTTI_FORM_FLAT
               : TUTTI_FORM_CONCAT;
}

/* A result that the function gives no place to is made, so that the others can go on, and dropped. */
static void
write_args(const agent_env_op *self, agent_op *op)
{
    const agent_call_tensor *output = self->output;

    op->op.args.kind = self->kind;
    op->op.args.form = choose_form(self->kind);
    op->op.args.reduce = tutti_coll_is_reduction(self->kind) ? self->reduce : 0;
    op->op.args.root = (uint32_t)self->peer;
    op->op.args.peer = agent_op_is_p2p(op) ? (uint32_t)self->peer : 0;
    if (output == NULL && is_in_place(self->kind)) {
        output = self->input;
    }
    op->in = self->input == NULL ? NULL : self->input->lock;
    op->out = output == NULL ? NULL : output->lock;
    op->out_inline =
        op->out == NULL && self->kind != TUTTI_COLL_BARRIER && self->kind != TUTTI_COLL_SEND;
    if (self->kind == TUTTI_COLL_BARRIER) {
        op->in = NULL;
        op->out = NULL;
    }
}

/* ------------------------------------------------------------------------------ its life */

static void
end_env_op(agent_env_op *self)
{
    self->call->op = NULL;
    self->op = NULL;
    self->on_end(self);
}

static void
on_end(agent_op *op)
{
    agent_env_op *self = op->owner;

    if (op->failed) {
        self->err = op->err;
    }
    end_env_op(self);
}

static tutti_code
check_env_op(const agent_env_op *self, tutti_error *err)
{
    const agent_function_call *call = self->call;

    if (call->failed) {
        return tutti_error_pass(err, &call->err);
    }
    if (call->group[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_CALL_GROUP",
                              "%s inside of %s: this call has no group for its own collectives",
                              tutti_coll_kind_name(self->kind), call->function_name);
    }
    if (call->agent->engine == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                              call->agent->rank);
    }
    return call->agent->hooks->check_begin(call->agent, err);
}

static agent_op *
new_op(agent_env_op *self, agent_group *group)
{
    tutti_agent *agent = self->call->agent;
    agent_op *op = calloc(1, sizeof(*op));

    if (op == NULL) {
        return NULL;
    }
    op->agent = agent;
    op->group = group;
    op->on_end = on_end;
    op->owner = self;
    op->options.async = true; /* no call waits for it */
    op->ready = true;
    op->lock_set.loop = agent->control;
    op->enqueued_ns = tutti_clock_ns();
    op->deadline_ns = tutti_clock_deadline(op->enqueued_ns, self->timeout_ms,
                                           self->call->deadline_ns, agent->options->op_timeout_ns);
    tutti_list_init(&op->link);
    tutti_list_init(&op->live);
    agent->ops_live++;
    return op;
}

/* An op without what it needs takes its turn all the same, so that the other ranks hear why. */
static void
check_tensors(const agent_env_op *self, agent_op *op)
{
    if (self->input == NULL && needs_input(self->kind)) {
        (void)TUTTI_FAIL_FOR(&op->err, TUTTI_INVALID_ARGUMENT, "NO_INPUT",
                             "%s inside of %s without an input", tutti_coll_kind_name(self->kind),
                             self->call->function_name);
        op->failed = true;
    }
}

static void
enter_op(agent_env_op *self, agent_op *op)
{
    agent_group *group = op->group;

    write_args(self, op);
    check_tensors(self, op);
    if (group->barriers == 0 && !agent_op_is_p2p(op)) {
        op->sequence = ++group->sequence;
    }
    agent_op_record_enqueued(op);
    agent_group_changed(group);
    if (group->coll == NULL || !tutti_list_empty(&group->queue)) {
        agent_op_watch(op);
    }
    self->op = op;
    self->call->op = self;
    agent_group_add(group, op);
}

void
agent_env_op_start(agent_env_op *self)
{
    agent_group *group = NULL;
    agent_op *op = NULL;

    self->err.code = TUTTI_OK;
    if (check_env_op(self, &self->err) == TUTTI_OK) {
        group = agent_group_of(self->call->agent, self->call->group, &self->err);
    }
    if (group != NULL) {
        op = new_op(self, group);
        if (op == NULL) {
            (void)TUTTI_FAIL_MEMORY(&self->err, "no memory for an op");
        }
    }
    if (op == NULL) {
        end_env_op(self);
        return;
    }
    enter_op(self, op);
}

void
agent_env_op_cancel(agent_function_call *call, const tutti_error *err)
{
    agent_op *op = call->op == NULL ? NULL : call->op->op;

    if (op == NULL || op->failed) {
        return;
    }
    if (op->state == AGENT_OP_POSTED) {
        tutti_coll_cancel(call->agent->engine, op->op.id, err);
    } else {
        op->failed = true;
        op->err = *err;
        agent_group_dispatch(op->group);
    }
}
