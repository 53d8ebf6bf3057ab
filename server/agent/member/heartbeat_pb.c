/*
 * Heartbeats, and the progress of groups that goes with them: what `tutti stall` knows. Control
 * loop.
 *
 * A group is told when something has changed on it since the last heartbeat (group->changes, told).
 * At most GROUPS_MAX groups go with one heartbeat, and PENDING_MAX ops of each; groups that had no
 * room stay changed and go with the next one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/function/functions.h"
#include "server/agent/member/member.h"
#include "server/agent/op/caller.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define GROUPS_MAX 256
#define PENDING_MAX 8
#define FUNCTIONS_MAX 4 /* of these */
#define WORDS_SIZE 128

/* One group out, with the memory that it points to. */
typedef struct wire_group {
    Tutti__V1__GroupProgress message;
    Tutti__V1__PendingOp pending[PENDING_MAX];
    Tutti__V1__PendingOp *pointers[PENDING_MAX];
    char words[PENDING_MAX][WORDS_SIZE];
    char last[WORDS_SIZE];
} wire_group;

typedef struct wire_progress {
    uint64_t now_ns;
    size_t count;
    Tutti__V1__GroupProgress *pointers[GROUPS_MAX];
    wire_group groups[GROUPS_MAX];
} wire_progress;

/*
 * Words of the op's arguments. Those of a running op come from op->said: `op.args` is the engine's.
 */
static void
describe_heartbeat(const tutti_coll_args *args, char ret_words[WORDS_SIZE])
{
    tutti_text text = tutti_text_in(ret_words, WORDS_SIZE);

    tutti_coll_describe(args, &text);
}

/*
 * `queued` tells an op in line from one that the engine has: the caller passes said for the latter.
 * A queued op's peer may still be a rank of the job, so it is not translated.
 */
static void
add_pending(const agent_op *op, const tutti_coll_args *args, uint64_t now_ns, wire_group *wire)
{
    const size_t at = wire->message.n_pending;
    Tutti__V1__PendingOp *message = &wire->pending[at];
    const tutti_coll_group *group = op->group->coll;

    if (at == PENDING_MAX) {
        return;
    }
    tutti__v1__pending_op__init(message);
    if (op->barriers) {
        (void)snprintf(wire->words[at], WORDS_SIZE, "backward");
    } else {
        describe_heartbeat(args, wire->words[at]);
    }
    message->op = wire->words[at];
    message->sequence = op->sequence;
    message->waited_ms = (now_ns - op->enqueued_ns) / TUTTI_NS_PER_MS;
    message->queued = args != &op->said;
    if (!message->queued && agent_op_is_p2p(op) && args->peer < tutti_coll_group_size(group)) {
        message->opt_peer_case = TUTTI__V1__PENDING_OP__OPT_PEER_PEER;
        message->peer = tutti_coll_group_ranks(group)[args->peer];
    }
    wire->pointers[at] = message;
    wire->message.n_pending++;
}

/* Functions that run, the oldest first: they have no number, and wait for no rank. */
static void
add_functions(const tutti_agent *agent, uint64_t now_ns, wire_group *wire)
{
    const tutti_list_node *calls = &agent->functions->calls;
    const tutti_list_node *link;

    for (link = calls->next; link != calls && wire->message.n_pending < FUNCTIONS_MAX;
         link = link->next) {
        const agent_function_call *call = tutti_container_of(link, agent_function_call, link);
        const size_t at = wire->message.n_pending;

        if (call->state == AGENT_FUNCTION_RUNNING) {
            tutti__v1__pending_op__init(&wire->pending[at]);
            (void)snprintf(wire->words[at], WORDS_SIZE, "function %.100s", call->function_name);
            wire->pending[at].op = wire->words[at];
            wire->pending[at].waited_ms = (now_ns - call->began_ns) / TUTTI_NS_PER_MS;
            wire->pointers[at] = &wire->pending[at];
            wire->message.n_pending++;
        }
    }
}

static void
fill_group(const agent_group *group, uint64_t now_ns, wire_group *wire)
{
    Tutti__V1__GroupProgress *message = &wire->message;
    tutti_list_node *link;

    tutti__v1__group_progress__init(message);
    message->group = (char *)(uintptr_t)group->name;
    message->id = tutti_coll_group_id(group->coll);
    message->epoch = group->epoch;
    message->came = group->sequence;
    message->entered = group->entered;
    message->left = agent_group_left(group);
    message->pending = wire->pointers;
    if (group->orphan) {
        message->gone_program = (char *)(uintptr_t)group->gone;
    }
    if (group->last_ns != 0) {
        describe_heartbeat(&group->last_args, wire->last);
        message->last_op = wire->last;
        message->last_ms = (now_ns - group->last_ns) / TUTTI_NS_PER_MS;
        message->last_sequence = group->last_sequence;
    }
    if (strcmp(group->name, "world") == 0) {
        add_functions(group->agent, now_ns, wire);
    }
    for (link = group->running.next; link != &group->running; link = link->next) {
        const agent_op *op = tutti_container_of(link, agent_op, link);

        add_pending(op, &op->said, now_ns, wire);
    }
    for (link = group->queue.next; link != &group->queue; link = link->next) {
        const agent_op *op = tutti_container_of(link, agent_op, link);

        add_pending(op, &op->op.args, now_ns, wire);
    }
}

static void
fill_heartbeat(tutti_agent *agent, wire_progress *self)
{
    tutti_map_node *node;

    self->now_ns = tutti_clock_ns();
    for (node = tutti_map_first(&agent->groups); node != NULL && self->count < GROUPS_MAX;
         node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll == NULL || (!agent_caller_count(group) && group->told == group->changes)) {
            continue;
        }
        group->told = group->changes;
        fill_group(group, self->now_ns, &self->groups[self->count]);
        self->pointers[self->count] = &self->groups[self->count].message;
        self->count++;
    }
}

/* All that has ended, well or not, and what was given to it. */
static void
count_ops(const tutti_agent *agent, Tutti__V1__Heartbeat *ret_heartbeat)
{
    size_t kind;
    size_t code;

    for (kind = 0; kind < AGENT_KINDS; kind++) {
        for (code = 0; code < AGENT_CODES; code++) {
            ret_heartbeat->ops += agent->numbers.ops[kind][code];
        }
        ret_heartbeat->bytes += agent->numbers.op_bytes[kind];
    }
}

/*
 * Without memory for the progress the heartbeat goes without it: a rank must not be lost for that.
 */
void
agent_wire_heartbeat(tutti_agent *agent, tutti_rpc_flow *flow, uint64_t number)
{
    Tutti__V1__SessionRequest request = TUTTI__V1__SESSION_REQUEST__INIT;
    Tutti__V1__Heartbeat heartbeat = TUTTI__V1__HEARTBEAT__INIT;
    wire_progress *progress = calloc(1, sizeof(*progress)); /* pages come as groups do */

    heartbeat.number = number;
    heartbeat.answers = agent->progress_wanted;
    count_ops(agent, &heartbeat);
    agent->progress_wanted = 0;
    if (progress != NULL) {
        fill_heartbeat(agent, progress);
        heartbeat.progress = progress->pointers;
        heartbeat.n_progress = progress->count;
    } else {
        TUTTI_LOG("agent", WARN, "no memory to tell the coordinator where ops stand");
    }
    request.kind_case = TUTTI__V1__SESSION_REQUEST__KIND_HEARTBEAT;
    request.heartbeat = &heartbeat;
    tutti_rpc_flow_write(flow, &request.base);
    free(progress);
}
