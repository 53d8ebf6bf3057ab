/*
 * What the agent says to the coordinator, and what it hears from it: Join, Session, Leave,
 * LookupRanks. Control loop. What the answers mean is in member.c and op/group.c.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/fault_inject/fault_inject.h"
#include "coll/transport.h"
#include "rpc/follow.h"
#include "server/agent/member/member.h"
#include "server/agent/op/coordinator_request.h"
#include "server/agent/op/group.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "tutti/v1/coordinator_service.pb-c.h"
#include "tutti/version.h"

#define CALL_NS (10 * TUTTI_NS_PER_S)
#define LEAVE_NS (2 * TUTTI_NS_PER_S)
#define AGENT_LOOKUP_MAX 1024 /* ranks of one call, as the coordinator has it */

#define STUB(method)                                                                               \
    {                                                                                              \
        &tutti__v1__coordinator_service__descriptor, method                                        \
    }

static const tutti_rpc_stub stub_join = STUB("Join");
static const tutti_rpc_stub stub_session = STUB("Session");
static const tutti_rpc_stub stub_leave = STUB("Leave");
static const tutti_rpc_stub stub_lookup = STUB("LookupRanks");

/* Options of a call that must end within wait_ns. */
static tutti_rpc_call_options
options_within(uint64_t wait_ns)
{
    return (tutti_rpc_call_options){.deadline_ns = tutti_clock_ns() + wait_ns};
}

static char *
get_coordinator_text(const char *text)
{
    return (char *)(uintptr_t)text; /* packed at once, never written */
}

static void
fill_member(const tutti_agent *agent, Tutti__V1__Member *member)
{
    tutti__v1__member__init(member);
    member->job = get_coordinator_text(agent_job(agent));
    member->rank = agent->rank;
    member->incarnation = agent->incarnation;
}

/* INTERNAL, UNKNOWN and the like are not here: they may be a proxy's, and pass. */
bool
agent_wire_is_final(tutti_code code)
{
    return code == TUTTI_INVALID_ARGUMENT || code == TUTTI_ALREADY_EXISTS ||
           code == TUTTI_FAILED_PRECONDITION || code == TUTTI_PERMISSION_DENIED ||
           code == TUTTI_UNAUTHENTICATED || code == TUTTI_UNIMPLEMENTED;
}

/* ------------------------------------------------------------------------------ join */

static void
fill_coordinator_info(tutti_agent *agent, char **addresses, char *gpus, Tutti__V1__AgentInfo *info)
{
    const tutti_bytes data = tutti_coll_engine_address(agent->engine);

    tutti__v1__agent_info__init(info);
    info->host = get_coordinator_text(agent->host);
    info->host_id = get_coordinator_text(agent->host_id);
    info->pid = (uint32_t)getpid();
    info->addresses = addresses;
    info->n_addresses = agent_addresses(agent, addresses);
    info->device = get_coordinator_text(agent->options->device);
    info->version = get_coordinator_text(TUTTI_VERSION);
    agent_devices_uuids(agent, gpus);
    info->gpus = gpus;
    info->allow_shared_gpu = agent->options->allow_shared_gpu;
    info->local_rank = (uint32_t)agent->options->local_rank;
    info->data_address =
        (ProtobufCBinaryData){.len = data.size, .data = (uint8_t *)(uintptr_t)data.data};
}

tutti_code
agent_wire_join(tutti_agent *agent, const tutti_rpc_flow_ops *ops, tutti_rpc_flow **ret,
                tutti_error *err)
{
    Tutti__V1__JoinRequest request = TUTTI__V1__JOIN_REQUEST__INIT;
    Tutti__V1__AgentInfo info;
    char *addresses[TUTTI_ADDRESSES_MAX];
    char gpus[AGENT_UUIDS_SIZE];
    const tutti_rpc_call_options options = {.deadline_ns = 0};
    uint64_t rank = 0;

    fill_coordinator_info(agent, addresses, gpus, &info);
    request.job = get_coordinator_text(agent_job(agent));
    request.world_size = (uint32_t)(agent->options->max_world != 0 ? agent->options->max_world
                                                                   : agent->options->world_size);
    request.min_world_size = (uint32_t)agent->options->min_world;
    request.incarnation = agent->incarnation;
    request.agent = &info;
    if (agent->job_id != 0) {
        /*
         * An agent that had a seat asks for that one, whatever --rank says: its tensors' handles
         * have it.
         */
        request.opt_rank_case = TUTTI__V1__JOIN_REQUEST__OPT_RANK_RANK;
        request.rank = agent->rank; /* the seat we had */
        request.former_job_id = agent->job_id;
        request.former_epoch = agent->epoch;
        request.former_joined_epoch = agent->joined_epoch;
    } else if (tutti_parse_uint(agent->options->rank, TUTTI_RANKS_MAX, &rank, NULL) == TUTTI_OK) {
        request.opt_rank_case = TUTTI__V1__JOIN_REQUEST__OPT_RANK_RANK;
        request.rank = (uint32_t)rank;
    }
    return tutti_rpc_flow_start(agent->coordinator, agent->control, &stub_join, &request.base, true,
                                &options, ops, agent->member, ret, err);
}

/*
 * The key of an epoch, before anything else that the message says: ranks that came with this epoch
 * send packets under it at once.
 */
static void
take_key(tutti_agent *agent, uint64_t job_id, const Tutti__V1__EpochKey *wire)
{
    tutti_transport_key key = {.job_id = job_id};

    if (wire == NULL) {
        return;
    }
    if (wire->key.len != sizeof(key.bytes)) {
        TUTTI_LOG("agent", ERROR, "an epoch's key of %zu bytes from the coordinator, need %zu",
                  wire->key.len, sizeof(key.bytes));
        return;
    }
    key.epoch = wire->epoch;
    memcpy(key.bytes, wire->key.data, sizeof(key.bytes));
    tutti_coll_engine_rekey(agent->engine, &key);
}

void
agent_wire_join_message(tutti_agent *agent, tutti_rpc_message *message)
{
    const Tutti__V1__JoinResponse *response = tutti_rpc_message_get(message);

    if (response->answer_case == TUTTI__V1__JOIN_RESPONSE__ANSWER_WAITING) {
        agent_join_waits(agent, response->waiting->joined_count, response->waiting->world_size,
                         response->waiting->missing_ranks, response->waiting->n_missing_ranks);
    } else if (response->answer_case == TUTTI__V1__JOIN_RESPONSE__ANSWER_JOINED) {
        /* The seat before the key: the key opens packets that members have sent already, and the
         * engine drops packets of a job in which it has no seat. */
        tutti_coll_engine_sit(agent->engine, response->joined->job_id, response->joined->rank,
                              agent->incarnation);
        take_key(agent, response->joined->job_id, response->joined->key);
        tutti_fault_at(TUTTI_FAULT_AFTER_KEY);
        agent->joined_epoch = response->joined->joined_epoch;
        agent->elastic = response->joined->min_world_size != 0 &&
                         response->joined->min_world_size < response->joined->world_size;
        agent_joined(
            agent, response->joined->rank, response->joined->world_size, response->joined->epoch,
            response->joined->job_id, response->joined->heartbeat_interval_ms,
            response->joined->answers_heartbeats ? response->joined->heartbeat_timeout_ms : 0);
    }
}

/* ------------------------------------------------------------------------------ session */

tutti_code
agent_wire_session(tutti_agent *agent, const tutti_rpc_flow_ops *ops, tutti_rpc_flow **ret,
                   tutti_error *err)
{
    Tutti__V1__SessionRequest request = TUTTI__V1__SESSION_REQUEST__INIT;
    Tutti__V1__SessionOpen open = TUTTI__V1__SESSION_OPEN__INIT;
    Tutti__V1__StoreMark seen = TUTTI__V1__STORE_MARK__INIT;
    Tutti__V1__Member member;
    const tutti_rpc_call_options options = {.deadline_ns = 0};

    fill_member(agent, &member);
    open.member = &member;
    seen.version = agent->store_version;
    seen.teller = agent->store_teller;
    open.seen = &seen;
    request.kind_case = TUTTI__V1__SESSION_REQUEST__KIND_OPEN;
    request.open = &open;
    return tutti_rpc_flow_start(agent->coordinator, agent->control, &stub_session, &request.base,
                                false, &options, ops, agent->member, ret, err);
}

static void
take_lost(tutti_agent *agent, const Tutti__V1__RankLost *lost)
{
    agent_rank_lost(agent, lost->rank, lost->incarnation, lost->epoch, lost->reason, lost->left);
}

static void
take_abort(tutti_agent *agent, const Tutti__V1__GroupAborted *aborted)
{
    if (aborted->abort != NULL) { /* else it is of a coordinator that knows no abort */
        const agent_group_abort abort = {aborted->abort->text, aborted->abort->rank,
                                         aborted->abort->epoch};

        agent_group_aborted(agent, aborted->name, aborted->id, &abort);
    }
}

static void
take_change(tutti_agent *agent, const Tutti__V1__SessionChange *change)
{
    switch (change->what_case) {
    case TUTTI__V1__SESSION_CHANGE__WHAT_RANK_LOST:
        take_lost(agent, change->rank_lost);
        break;
    case TUTTI__V1__SESSION_CHANGE__WHAT_RANK_LEAVING:
        agent_rank_leaving(agent, change->rank_leaving->rank, change->rank_leaving->epoch,
                           change->rank_leaving->reason);
        break;
    case TUTTI__V1__SESSION_CHANGE__WHAT_GROUP_DELETED:
        agent_group_deleted(agent, change->group_deleted->name);
        if (agent->engine != NULL) {
            tutti_coll_group_gone(agent->engine, change->group_deleted->id);
        }
        break;
    case TUTTI__V1__SESSION_CHANGE__WHAT_GROUP_ABORTED:
        take_abort(agent, change->group_aborted);
        break;
    default:
        break; /* a rank that joined, or a change of a newer coordinator */
    }
}

/*
 * Ranks that have come are looked up together, behind what else has changed: after a restart of
 * many, one call serves up to 1024 of them.
 */
static void
take_changes(tutti_agent *agent, const Tutti__V1__SessionChanges *changes)
{
    uint32_t joined[AGENT_LOOKUP_MAX];
    uint64_t epoch = 0;
    size_t count = 0;
    size_t i;

    for (i = 0; i < changes->n_changes; i++) {
        const Tutti__V1__SessionChange *change = changes->changes[i];

        if (change->what_case != TUTTI__V1__SESSION_CHANGE__WHAT_RANK_JOINED) {
            take_change(agent, change);
        } else if (agent_rank_joined(agent, change->rank_joined->rank,
                                     change->rank_joined->epoch)) {
            joined[count++] = change->rank_joined->rank;
            epoch = change->rank_joined->epoch;
        }
        if (count == AGENT_LOOKUP_MAX || (count > 0 && i + 1 == changes->n_changes)) {
            agent_wire_lookup(agent, joined, count, epoch);
            count = 0;
        }
    }
}

static void
take_mark(tutti_agent *agent, const Tutti__V1__StoreMark *mark)
{
    if (mark != NULL && mark->version > 0) {
        agent->store_version = mark->version;
        agent->store_teller = mark->teller;
    }
}

bool
agent_wire_session_message(tutti_agent *agent, tutti_rpc_message *message)
{
    const Tutti__V1__SessionResponse *event = tutti_rpc_message_get(message);
    size_t i;

    take_key(agent, agent->job_id, event->key);
    switch (event->event_case) {
    case TUTTI__V1__SESSION_RESPONSE__EVENT_HEARTBEAT_HEARD:
        take_mark(agent, event->heartbeat_heard->store);
        return false;
    case TUTTI__V1__SESSION_RESPONSE__EVENT_ACCEPTED:
        take_mark(agent, event->accepted->store);
        for (i = 0; i < event->accepted->n_lost; i++) {
            take_lost(agent, event->accepted->lost[i]);
        }
        if (event->accepted->leader[0] != '\0') {
            tutti_rpc_channel_expect_others(agent->coordinator, event->accepted->leader);
        }
        return true;
    case TUTTI__V1__SESSION_RESPONSE__EVENT_CHANGES:
        take_changes(agent, event->changes);
        return false;
    case TUTTI__V1__SESSION_RESPONSE__EVENT_PROGRESS_WANTED:
        agent->progress_wanted = event->progress_wanted->number;
        agent_beat_now(agent);
        return false;
    default:
        return false; /* an event of a newer coordinator */
    }
}

tutti_code
agent_wire_leave(tutti_agent *agent, bool announce, tutti_rpc_reply_fn on_reply, tutti_error *err)
{
    Tutti__V1__LeaveRequest request = TUTTI__V1__LEAVE_REQUEST__INIT;
    Tutti__V1__Member member;
    const tutti_rpc_call_options options = options_within(LEAVE_NS);

    fill_member(agent, &member);
    request.member = &member;
    request.reason = get_coordinator_text(agent->leave_reason);
    request.announce = announce;
    return tutti_rpc_request_start(agent->coordinator, agent->control, &stub_leave, &request.base,
                                   &options, on_reply, agent, NULL, err);
}

/* The epoch that it has begun comes with a key. */
void
agent_wire_leave_answer(tutti_agent *agent, tutti_rpc_message *message)
{
    const Tutti__V1__LeaveResponse *response = tutti_rpc_message_get(message);

    take_key(agent, agent->job_id, response->key);
}

/* ------------------------------------------------------------------------------ lookup */

typedef struct lookup {
    agent_coordinator_request coord_request; /* first: what ends it frees it */
    uint64_t job_id;                         /* that the epoch is of */
    uint64_t epoch;
    size_t count;
    uint32_t ranks[];
} lookup;

static void ask_lookup(lookup *self);

/*
 * The engine takes addresses of at most 4096 bytes; a longer one cannot be an agent's of ours, and
 * the rank counts as one that cannot be reached. A process that still waits for others may be known soon;
 * one that is lost never again: the engine is told which.
 */
static void
learn_rank(tutti_agent *agent, const Tutti__V1__RankInfo *info)
{
    if (info->state == TUTTI__V1__RANK_STATE__RANK_STATE_ALIVE && info->agent != NULL &&
        info->agent->data_address.len <= 4096) {
        tutti_coll_set_peer(
            agent->engine, info->rank, info->incarnation,
            (tutti_bytes){info->agent->data_address.data, info->agent->data_address.len});
    } else {
        const bool lost = info->state == TUTTI__V1__RANK_STATE__RANK_STATE_LOST;

        tutti_coll_lose_peer(agent->engine, info->rank, lost ? info->incarnation : 0,
                             info->reason[0] != '\0' ? info->reason : "it has not joined");
    }
}

static void
on_again(tutti_timer *timer)
{
    ask_lookup(tutti_container_of(tutti_container_of(timer, agent_coordinator_request, again),
                                  lookup, coord_request));
}

/* The coordinator is away. Ops that need the ranks wait in the engine, up to their deadlines. */
static void
ask_again(lookup *self, const tutti_error *err)
{
    tutti_agent *agent = self->coord_request.agent;

    if (agent->state == AGENT_LEAVING) {
        agent_coordinator_request_end(&self->coord_request);
        return;
    }
    TUTTI_LOG("agent", WARN, "could not ask the coordinator for the address of rank %u: %s",
              self->ranks[0], err->text);
    agent_coordinator_request_later(&self->coord_request, on_again);
}

/*
 * First the engine learns where the ranks are, then groups begin the new epoch: an op of the new
 * epoch that begins at once must not go to the old process's address.
 */
static void
on_lookup(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    lookup *self = arg;
    tutti_agent *agent = self->coord_request.agent;
    const Tutti__V1__LookupRanksResponse *found;
    size_t i;

    self->coord_request.request = NULL;
    if (err != NULL) {
        ask_again(self, err);
        return;
    }
    if (agent->state == AGENT_LEAVING) {
        agent_coordinator_request_end(&self->coord_request);
        return;
    }
    if (self->job_id != agent->job_id) {
        self->epoch = 0; /* the job began anew while this was asked for */
    }
    found = tutti_rpc_message_get(response);
    for (i = 0; i < found->n_ranks; i++) {
        learn_rank(agent, found->ranks[i]);
    }
    TUTTI_LOG("agent", DEBUG, "knows the addresses of %zu ranks more", found->n_ranks);
    if (self->epoch != 0) {
        agent_world_changed(agent, self->epoch, "a member has come");
    }
    for (i = 0; i < self->count && self->epoch != 0; i++) {
        agent_groups_renew(agent, self->ranks[i], self->epoch);
    }
    agent_coordinator_request_end(&self->coord_request);
}

static void
ask_lookup(lookup *self)
{
    Tutti__V1__LookupRanksRequest request = TUTTI__V1__LOOKUP_RANKS_REQUEST__INIT;
    tutti_agent *agent = self->coord_request.agent;
    const tutti_rpc_call_options options = options_within(CALL_NS);
    tutti_error err;

    request.job = get_coordinator_text(agent_job(agent));
    request.ranks = self->ranks;
    request.n_ranks = self->count;
    if (tutti_rpc_request_start(agent->coordinator, agent->control, &stub_lookup, &request.base,
                                &options, on_lookup, self, &self->coord_request.request,
                                &err) != TUTTI_OK) {
        ask_again(self, &err);
    }
}

/*
 * Without memory nothing is asked: ops that need the ranks end by their deadlines. The log says so.
 */
void
agent_wire_lookup(tutti_agent *agent, const uint32_t *ranks, size_t count, uint64_t epoch)
{
    lookup *self = calloc(1, sizeof(*self) + count * sizeof(*ranks));

    if (self == NULL) {
        TUTTI_LOG("agent", ERROR, "no memory to look up %zu ranks", count);
        return;
    }
    agent_coordinator_request_begin(&self->coord_request, agent);
    self->job_id = agent->job_id;
    self->epoch = epoch;
    self->count = count;
    memcpy(self->ranks, ranks, count * sizeof(*ranks));
    ask_lookup(self);
}
