/*
 * Answers of ops with tokens, kept so that a call may be repeated when its answer was lost.
 *
 * An agent_kept is in answers->by_key from the time its op is admitted. It is in answers->kept,
 * oldest first, from agent_answers_settle on: only those count against --retry-bytes-limit and
 * expire.
 *
 *   in flight   op != NULL, noted = false    a repeated call gets TOKEN_IN_FLIGHT
 *   noted       op != NULL, noted = true     a repeated call gets the answer
 *   settled     in `kept`, until_ns is set   as noted, until it expires or there are too many
 *   released    op == NULL                   the op is freed; the entry alone owns the answer
 *
 * All of it belongs to the control loop, but for one step: agent_answers_note runs on the thread
 * that runs the engine. It writes `result` and `bytes` and then stores `noted`; readers on the
 * control loop load `noted` first. Both are sequentially consistent, so what is read behind a true
 * `noted` is complete. Nobody frees an entry whose op has not settled, so the writer cannot lose
 * its entry.
 *
 * An op that failed is not kept: the caller may run it again with the same token.
 */
#include "server/agent/op/answers.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/table.h"

/*
 * A key is token, kind, group, NUL and the caller's identity. With kind and group a token that one
 * caller uses again for another op by mistake does not get the answer of the first. With the
 * identity no caller gets the answer of another one that has drawn the same number, or guessed it.
 */
#define IDENTITY_MAX 255
#define KEY_SIZE (8 + 1 + TUTTI_NAME_MAX + 1 + IDENTITY_MAX)

struct agent_kept {
    tutti_map_node node;
    unsigned char key[KEY_SIZE];
    tutti_list_node link; /* among those whose op has ended, the oldest first; else alone */
    tutti_agent *agent;
    agent_op *op;      /* NULL: freed */
    atomic_bool noted; /* the result is complete: it can be repeated */
    bool reached;      /* some caller has the answer */
    bool out_is_new;   /* the result is the op's own, ... */
    bool list_is_new;  /* ... and those of a list */
    uint64_t until_ns;
    uint64_t bytes;
    agent_op_result result; /* its payload is counted, its outputs and meta are owned */
};

static tutti_bytes
write_key(unsigned char key[KEY_SIZE], const tutti_rpc_call *call, const agent_request *request)
{
    const char *group = request->group[0] == '\0' ? "world" : request->group;
    const char *who = tutti_rpc_call_identity(call);
    const size_t group_size = strnlen(group, TUTTI_NAME_MAX);
    const size_t who_size = strnlen(who, IDENTITY_MAX);

    (void)tutti_map_key_u64(key, request->options.token);
    key[8] = (unsigned char)request->args.kind;
    memcpy(key + 9, group, group_size);
    key[9 + group_size] = '\0';
    memcpy(key + 10 + group_size, who, who_size);
    return (tutti_bytes){key, 10 + group_size + who_size};
}

/*
 * The op may still live, when its answer is dropped because there are too many: it must not point
 * here any more.
 */
static void
free_kept(agent_kept *self)
{
    if (self->op != NULL) {
        self->op->kept_answer = NULL;
    }
    tutti_tensor_unref(self->result.payload);
    free((void *)(uintptr_t)self->result.outputs);
    free((void *)(uintptr_t)self->result.meta.data);
    free(self);
}

static void
delete_result(const agent_kept *self, const char *handle)
{
    char *handles[1] = {(char *)(uintptr_t)handle};

    if (handle[0] != '\0') {
        (void)tutti_table_delete(self->agent->table, handles, 1, false,
                                 NULL); /* it may be gone already */
    }
}

/* No caller has the answer and none can get it any more: nobody knows these handles. */
static void
delete_results(const agent_kept *self)
{
    uint32_t i;

    if (self->out_is_new) {
        delete_result(self, self->result.handle);
    }
    for (i = 0; i < self->result.output_count && self->list_is_new; i++) {
        delete_result(self, self->result.outputs[i].handle);
    }
}

/*
 * `op != NULL` means that the op is not freed yet: then release_op_memory (op.c) decides over the
 * results, when it is known whether the answer has reached the caller.
 */
static void
drop_answer(agent_kept *self)
{
    agent_answers *answers = &self->agent->answers;

    tutti_map_remove(&answers->by_key, &self->node);
    tutti_list_remove(&self->link);
    answers->bytes -= self->bytes;
    if (!self->reached && self->op == NULL) {
        delete_results(self);
    }
    free_kept(self);
}

/*
 * One timer for all, for the oldest: the window is the same for each, so they expire in their
 * order.
 */
static void
start_timer(tutti_agent *agent)
{
    agent_answers *answers = &agent->answers;

    if (!tutti_list_empty(&answers->kept)) {
        tutti_rpc_loop_timer_start(
            agent->control, &answers->expiry,
            tutti_container_of(answers->kept.next, agent_kept, link)->until_ns);
    }
}

static void
on_expiry(tutti_timer *timer)
{
    agent_answers *answers = tutti_container_of(timer, agent_answers, expiry);
    tutti_agent *agent = tutti_container_of(answers, tutti_agent, answers);
    const uint64_t now_ns = tutti_clock_ns();

    while (!tutti_list_empty(&answers->kept)) {
        agent_kept *oldest = tutti_container_of(answers->kept.next, agent_kept, link);

        if (oldest->until_ns > now_ns) {
            break;
        }
        drop_answer(oldest);
    }
    start_timer(agent);
}

void
agent_answers_init(tutti_agent *agent)
{
    tutti_map_init(&agent->answers.by_key);
    tutti_list_init(&agent->answers.kept);
    agent->answers.expiry.on_expiry = on_expiry;
}

/* The engine has stopped and no op lives. Results stay in the table, which is freed with them. */
void
agent_answers_fini(tutti_agent *agent)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&agent->answers.by_key)) != NULL) {
        agent_kept *self = tutti_container_of(node, agent_kept, node);

        tutti_map_remove(&agent->answers.by_key, node);
        free_kept(self);
    }
}

static agent_kept *
find_answer(const tutti_agent *agent, const tutti_rpc_call *call, const agent_request *request)
{
    unsigned char key[KEY_SIZE];
    tutti_map_node *node = tutti_map_find(&agent->answers.by_key, write_key(key, call, request));

    return node == NULL ? NULL : tutti_container_of(node, agent_kept, node);
}

bool
agent_answers_repeat(tutti_agent *agent, tutti_rpc_call *call, const agent_request *request,
                     agent_answer_fn answer)
{
    agent_kept *self = request->options.token == 0 ? NULL : find_answer(agent, call, request);
    tutti_error err;

    if (self == NULL) {
        return false;
    }
    if (!atomic_load(&self->noted)) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "TOKEN_IN_FLIGHT",
                             "the op with token %" PRIu64 " is in flight: call again in a moment",
                             request->options.token);
        tutti_rpc_call_fail(call, &err);
    } else {
        self->reached = true;
        answer(call, &self->result);
    }
    return true;
}

tutti_code
agent_answers_expect(agent_op *op, const tutti_rpc_call *call, const agent_request *request,
                     tutti_error *err)
{
    agent_kept *self;

    if (request->options.token == 0) {
        return TUTTI_OK;
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to keep an answer");
    }
    self->agent = op->agent;
    self->op = op;
    self->node.key = write_key(self->key, call, request);
    tutti_list_init(&self->link);
    /* The key is free: agent_answers_repeat has looked, on the same thread, just before. */
    (void)tutti_map_add(&op->agent->answers.by_key, &self->node);
    op->kept_answer = self;
    return TUTTI_OK;
}

static void *
copy_of(const void *data, size_t size)
{
    void *made = size == 0 ? NULL : malloc(size);

    if (made != NULL) {
        memcpy(made, data, size);
    }
    return made;
}

/*
 * The result points into the op and the engine, which are gone when a call is repeated: so outputs
 * and user_meta are copied, and an inline payload is counted (not copied). Without memory for a
 * copy, `noted` stays false, and agent_answers_settle drops the entry.
 */
void
agent_answers_note(agent_op *op, const agent_op_result *result)
{
    agent_kept *self = op->kept_answer;
    const size_t outputs_size = result->output_count * sizeof(*result->outputs);
    agent_op_result *to;

    if (self == NULL) {
        return;
    }
    to = &self->result;
    *to = *result;
    to->outputs = copy_of(result->outputs, outputs_size);
    to->meta.data = copy_of(result->meta.data, result->meta.size);
    if (to->payload != NULL) {
        tutti_tensor_ref(to->payload);
    }
    self->bytes = sizeof(*self) + outputs_size + result->meta.size +
                  (to->payload == NULL ? 0 : result->payload_bytes);
    atomic_store(&self->noted, (to->outputs != NULL || outputs_size == 0) &&
                                   (to->meta.data != NULL || result->meta.size == 0));
}

/*
 * A sync op settles at its end, an async op when it has its place; then its end comes here a second
 * time, and nothing is to be done.
 */
void
agent_answers_settle(agent_op *op)
{
    agent_kept *self = op->kept_answer;
    agent_answers *answers = &op->agent->answers;

    if (self == NULL || !tutti_list_empty(&self->link)) {
        return;
    }
    answers->bytes += self->bytes;
    if (op->failed || !atomic_load(&self->noted)) {
        drop_answer(self);
        return;
    }
    self->out_is_new = op->handle[0] != '\0';
    self->list_is_new = op->list_is_new;
    self->until_ns = tutti_clock_add(tutti_clock_ns(), op->agent->options->retry_window_ns);
    tutti_list_add(&answers->kept, &self->link);
    /* This may drop the entry that was just added, when it alone is above the limit. */
    while (answers->bytes > op->agent->options->retry_bytes_limit) {
        drop_answer(tutti_container_of(answers->kept.next, agent_kept, link));
    }
    start_timer(op->agent);
}

bool
agent_answers_release(agent_op *op, bool reached)
{
    agent_kept *self = op->kept_answer;

    if (self == NULL) {
        return false;
    }
    self->reached = self->reached || reached;
    self->op = NULL;
    op->kept_answer = NULL;
    return true;
}
