#include "server/agent/function/call.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/function/call_private.h"
#include "server/agent/function/env.h"
#include "server/agent/function/functions.h"
#include "server/agent/function/gpu.h"
#include "server/agent/function/host.h"
#include "server/agent/op/group.h"
#include "server/agent/record/metrics.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

static void try_begin(agent_function_call *call);

/* ------------------------------------------------------------------------------ scopes */

typedef struct agent_scope {
    tutti_map_node node;
    char name[AGENT_SCOPE_MAX + 1];
    tutti_list_node calls; /* agent_function_call.in_scope, in the order in which they came */
} agent_scope;

static tutti_code
enter_scope(agent_function_call *call, const char *name, tutti_error *err)
{
    tutti_map *scopes = &call->agent->functions->scopes;
    tutti_map_node *node = tutti_map_find(scopes, tutti_bytes_of(name));
    agent_scope *scope = node == NULL ? NULL : tutti_container_of(node, agent_scope, node);

    if (name[0] == '\0') {
        return TUTTI_OK;
    }
    if (scope == NULL) {
        scope = calloc(1, sizeof(*scope));
        if (scope == NULL) {
            return TUTTI_FAIL_MEMORY(err, "no memory for the order of calls");
        }
        (void)snprintf(scope->name, sizeof(scope->name), "%s", name);
        scope->node.key = tutti_bytes_of(scope->name);
        tutti_list_init(&scope->calls);
        (void)tutti_map_add(scopes, &scope->node);
    }
    tutti_list_add(&scope->calls, &call->in_scope);
    call->scope = scope;
    return TUTTI_OK;
}

static bool
is_its_turn(const agent_function_call *call)
{
    return call->scope == NULL || call->scope->calls.next == &call->in_scope;
}

static void
run_begin(tutti_rpc_task *task)
{
    agent_function_call *call = tutti_container_of(task, agent_function_call, done);

    call->begin_posted = false;
    try_begin(call);
}

#define DEPTH_MAX 16

/* Calls that fail at once end one inside the other: not without an end. */
static void
begin_next(agent_function_call *call)
{
    agent_functions *functions = call->agent->functions;

    if (functions->depth < DEPTH_MAX) {
        functions->depth++;
        try_begin(call);
        functions->depth--;
    } else if (call->state == AGENT_FUNCTION_WAITING && call->ready && !call->begin_posted) {
        call->begin_posted = true;
        call->done.on_run = run_begin;
        tutti_rpc_loop_post(call->agent->control, &call->done);
    }
}

/* The next one may begin. */
static void
leave_scope(agent_function_call *call)
{
    agent_scope *scope = call->scope;

    if (scope == NULL) {
        return;
    }
    call->scope = NULL;
    tutti_list_remove(&call->in_scope);
    if (tutti_list_empty(&scope->calls)) {
        tutti_map_remove(&call->agent->functions->scopes, &scope->node);
        free(scope);
        return;
    }
    begin_next(tutti_container_of(scope->calls.next, agent_function_call, in_scope));
}

/* ------------------------------------------------------------------------------ the end */

/* A caller learns the handle of a result without a name from the answer alone. */
static void
forget_result(agent_function_call *call)
{
    char *handle = call->handle;
    tutti_error err;

    if (handle[0] != '\0' && tutti_rpc_call_cancelled(call->rpc)) {
        (void)tutti_table_delete(call->agent->table, &handle, 1, false,
                                 &err); /* may be gone already */
    }
}

/* The call and its rpc end in any order. */
static void
free_if_over(agent_function_call *call)
{
    if (call->state == AGENT_FUNCTION_OVER && call->rpc_over) {
        forget_result(call);
        tutti_rpc_call_unref(call->rpc);
        free(call);
    }
}

static void
on_rpc_end(tutti_rpc_call *rpc, void *self)
{
    agent_function_call *call = tutti_rpc_call_user(rpc);

    (void)self;
    call->rpc_over = true;
    free_if_over(call);
}

static void
tell_failure(agent_function_call *call)
{
    if (!call->answered) {
        call->answered = true;
        agent_note_call(call->agent, call->err.code, tutti_clock_ns() - call->arrived_ns);
        tutti_rpc_call_fail(call->rpc, &call->err);
    }
}

/* Who reads the result next gets the error. */
static void
end_failed(agent_function_call *call)
{
    if (call->result != NULL) {
        tutti_table_mark(call->agent->table, call->result, &call->err);
    }
    tell_failure(call);
}

static void
end_well(agent_function_call *call)
{
    agent_call_result result;
    uint64_t elapsed_ns;

    if (agent_call_settle(call, &result, &call->err) != TUTTI_OK) {
        end_failed(call);
        return;
    }
    elapsed_ns = tutti_clock_ns() - call->arrived_ns;
    result.elapsed_us = elapsed_ns / TUTTI_NS_PER_US;
    call->answered = true;
    agent_note_call(call->agent, TUTTI_OK, elapsed_ns);
    call->answer(call->rpc, &result);
}

/* Heartbeats tell of functions with the group "world" (member/heartbeat_pb.c). */
static void
note_progress(tutti_agent *agent)
{
    agent_group *world = agent_group_find(agent, "world");

    if (world == NULL) {
        agent_group_want(agent, "world");
    } else {
        agent_group_changed(world);
    }
}

/* Its locks are granted, and no function has it. */
static void
finish_call(agent_function_call *call)
{
    tutti_agent *agent = call->agent;

    if (call->state == AGENT_FUNCTION_RUNNING) {
        note_progress(agent);
    }
    tutti_rpc_loop_timer_stop(agent->control, &call->timer);
    if (call->failed) {
        end_failed(call);
    } else {
        end_well(call);
    }
    agent_host_end(call);
    agent_call_drop_result(call);
    agent_call_drop_made(call);
    tutti_table_release(agent->table, &call->lock_set);
    agent_call_drop_args(call);
    agent_function_unref(call->function);
    tutti_list_remove(&call->link);
    agent->functions->call_count--;
    call->state = AGENT_FUNCTION_OVER;
    leave_scope(call);
    agent->hooks->op_over(agent);
    free_if_over(call);
}

static void
run_done(tutti_rpc_task *task)
{
    agent_function_call *call = tutti_container_of(task, agent_function_call, done);

    if (call->failed) {
        TUTTI_LOG("agent", INFO,
                  "function %s (call %" PRIu64 ") has returned, %.3g s after it began",
                  call->function_name, call->number,
                  (double)(tutti_clock_ns() - call->arrived_ns) / TUTTI_NS_PER_S);
    } else if (call->said.code != TUTTI_OK) {
        call->failed = true;
        call->err = call->said;
    }
    finish_call(call);
}

void
agent_call_failed(agent_function_call *call, const tutti_error *err)
{
    call->said = *err;
    tutti_rpc_loop_post(call->agent->control, &call->done);
}

/* Nobody waits for it any more. What runs is told, and its locks stay until it has returned. */
static void
abandon_call(agent_function_call *call, const tutti_error *err)
{
    if (call->failed || call->state == AGENT_FUNCTION_OVER || call->answered) {
        return;
    }
    call->failed = true;
    call->err = *err;
    atomic_store(&call->cancelled, 1);
    tell_failure(call);
    if (call->state == AGENT_FUNCTION_RUNNING) {
        agent_env_op_cancel(call, err);
        agent_host_cancel(call);
    } else if (!call->ready) {
        leave_scope(call); /* on_ready ends it */
    } else if (!call->begin_posted) {
        finish_call(call);
    } /* else run_begin does */
}

/* ------------------------------------------------------------------------------ its time */

static const char *
why_waiting(const agent_function_call *call)
{
    return call->ready ? "an earlier call of its session has not returned"
                       : "its tensors are in use by an earlier op or call";
}

static void
on_late(tutti_timer *timer)
{
    agent_function_call *call = tutti_container_of(timer, agent_function_call, timer);
    const double seconds = (double)(tutti_clock_ns() - call->arrived_ns) / TUTTI_NS_PER_S;
    tutti_error err;

    if (call->state == AGENT_FUNCTION_RUNNING) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                             "function %s timed out after %.3g s on rank %" PRIu32
                             ": it runs on, and what it uses stays locked until it returns",
                             call->function_name, seconds, call->agent->rank);
        TUTTI_LOG("agent", WARN, "%s (call %" PRIu64 ")", err.text, call->number);
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                             "function %s timed out after %.3g s on rank %" PRIu32
                             " before it could begin: %s",
                             call->function_name, seconds, call->agent->rank, why_waiting(call));
    }
    tutti_error_set_op(&err, NULL, 0, (int32_t)call->agent->rank);
    abandon_call(call, &err);
}

static void
on_cancel(tutti_rpc_call *rpc, void *self)
{
    agent_function_call *call = tutti_rpc_call_user(rpc);
    const tutti_agent *agent = self;
    tutti_error err;

    if (agent->state == AGENT_LEAVING) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                             agent->rank);
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE",
                             "the caller of %s on rank %" PRIu32 " went away", call->function_name,
                             agent->rank);
    }
    abandon_call(call, &err);
}

/* ------------------------------------------------------------------------------ running */

static void
run_function(agent_pool_job *job)
{
    agent_function_call *call = tutti_container_of(job, agent_function_call, job);
    tutti_any ret = tutti_any_null();
    tutti_error err;
    int status = -1;

    if (agent_gpu_begin(call, &err) != TUTTI_OK) {
        call->said = err;
    } else {
        status = call->function->run(&call->env, call->anys, (int32_t)call->arg_count, &ret);
    }
    if (agent_gpu_wait(call, &err) != TUTTI_OK && status == 0) {
        call->said = err; /* what it has launched failed */
        status = -1;
    }
    agent_gpu_end(call);
    agent_call_returned(call, status, &ret);
}

static void
begin_call(agent_function_call *call)
{
    call->state = AGENT_FUNCTION_RUNNING;
    call->began_ns = tutti_clock_ns();
    note_progress(call->agent);
    call->done.on_run = run_done;
    agent_env_open(call);
    if (call->function->run == NULL) {
        agent_host_begin(call);
        return;
    }
    call->job.on_run = run_function;
    agent_pool_add(call->agent->functions->pool, &call->job);
}

static void
try_begin(agent_function_call *call)
{
    if (call->state != AGENT_FUNCTION_WAITING || !call->ready || !is_its_turn(call)) {
        return;
    }
    if (call->failed || agent_call_open_args(call, &call->err) != TUTTI_OK) {
        call->failed = true;
        finish_call(call);
        return;
    }
    begin_call(call);
}

static void
on_ready(tutti_lock_set *lock_set)
{
    agent_function_call *call = tutti_container_of(lock_set, agent_function_call, lock_set);

    call->ready = true;
    if (call->failed) {
        finish_call(call);
    } else {
        try_begin(call);
    }
}

/* ------------------------------------------------------------------------------ its coming */

void
agent_call_request_fini(agent_call_request *request)
{
    size_t i;

    for (i = 0; i < request->arg_count; i++) {
        agent_value_unref(request->args[i].value);
    }
    free(request->args);
    request->args = NULL;
    request->arg_count = 0;
}

static agent_function_call *
new_call(tutti_agent *agent, tutti_rpc_call *rpc, const agent_call_request *request)
{
    agent_function_call *call = calloc(1, sizeof(*call));

    if (call == NULL) {
        return NULL;
    }
    call->agent = agent;
    call->rpc = rpc;
    call->lock_set.loop = agent->control;
    call->lock_set.on_ready = on_ready;
    call->number = ++agent->functions->last_number;
    call->arrived_ns = tutti_clock_ns();
    call->deadline_ns =
        tutti_clock_deadline(call->arrived_ns, request->timeout_ms, tutti_rpc_call_deadline(rpc),
                             agent->options->op_timeout_ns);
    (void)snprintf(call->function_name, sizeof(call->function_name), "%s", request->function);
    (void)snprintf(call->group, sizeof(call->group), "%s", request->group);
    call->env.worker_count = request->worker_count;
    call->env.worker = request->worker;
    call->env.group_size = request->group_size;
    tutti_list_init(&call->link);
    tutti_list_init(&call->in_scope);
    tutti_list_init(&call->made);
    return call;
}

static tutti_code
admit_call(const tutti_agent *agent, tutti_error *err)
{
    TUTTI_TRY(agent_check_open(agent, err));

    if (agent->functions->call_count >= agent->options->calls_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "CALL_LIMIT",
                              "%" PRIu32 " calls of functions run or wait, the limit (--calls-max)",
                              agent->functions->call_count);
    }
    return TUTTI_OK;
}

/* It has its place in every line. */
static void
enter_call(agent_function_call *call)
{
    tutti_agent *agent = call->agent;

    tutti_list_add(&agent->functions->calls, &call->link);
    agent->functions->call_count++;
    tutti_rpc_call_ref(call->rpc);
    tutti_rpc_call_set_user(call->rpc, call);
    tutti_rpc_call_on_cancel(call->rpc, on_cancel);
    tutti_rpc_call_on_end(call->rpc, on_rpc_end);
    call->timer.on_expiry = on_late;
    tutti_rpc_loop_timer_start(agent->control, &call->timer, call->deadline_ns);
    call->ready = tutti_table_acquire(agent->table, &call->lock_set);
    try_begin(call);
}

static void
refuse_call(agent_function_call *call, const char *result, const tutti_error *err)
{
    agent_call_mark_name(call->agent, call->rpc, result, err);
    agent_note_call(call->agent, err->code, tutti_clock_ns() - call->arrived_ns);
    tutti_rpc_call_fail(call->rpc, err);
    agent_call_drop_args(call);
    agent_function_unref(call->function);
    free(call);
}

void
agent_function_start(tutti_agent *agent, tutti_rpc_call *rpc, agent_call_request *request,
                     agent_call_answer_fn answer)
{
    agent_function_call *call = NULL;
    tutti_error err;
    tutti_code code = admit_call(agent, &err);

    if (code == TUTTI_OK) {
        call = new_call(agent, rpc, request);
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a call");
    }
    if (call == NULL) {
        agent_call_mark_name(agent, rpc, request->result, &err);
        agent_note_call(agent, err.code, 0);
        tutti_rpc_call_fail(rpc, &err);
        agent_call_request_fini(request);
        return;
    }
    call->answer = answer;
    code = agent_call_take(call, request, &err);
    code = code == TUTTI_OK ? enter_scope(call, request->scope, &err) : code;
    if (code != TUTTI_OK) {
        tutti_table_release(agent->table, &call->lock_set);
        refuse_call(call, request->result, &err);
    } else {
        enter_call(call);
    }
    agent_call_request_fini(request);
}
