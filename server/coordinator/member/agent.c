/*
 * An agent of a job: its struct, what it says of itself, and the timer by which it loses its seat
 * or its rank.
 *
 * States: WAITING (joined, the job is not complete) -> ALIVE (has a rank) -> LOST (stays in its
 * seat until another process takes it). A waiting agent that goes is freed. `timer` runs while
 * nobody speaks for the agent: no Join call (waiting), no session (alive).
 *
 * All texts are copied behind the struct, in one allocation, so an agent cannot be half made.
 */
#include "server/coordinator/member/agent.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/gpus.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/seats.h"
#include "server/coordinator/member/session.h"

static const char *
or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

/*
 * What an agent says of itself goes into errors, logs and other clients' messages, so it has to
 * be printable and short.
 */
static tutti_code
check_text(const char *text, const char *what, size_t most, tutti_error *err)
{
    const size_t size = strlen(or_empty(text));
    size_t i;

    if (size > most) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_AGENT",
                              "the agent's %s has %zu bytes, at most %zu", what, size, most);
    }
    for (i = 0; i < size; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_AGENT",
                                  "the agent's %s has the byte 0x%02x, need printable ASCII", what,
                                  (unsigned char)text[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_code
check_addresses(const tutti_coordinator_agent *info, tutti_error *err)
{
    size_t i;

    if (info->address_count > TUTTI_COORDINATOR_ADDRESSES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_AGENT",
                              "the agent has %zu addresses, at most %d", info->address_count,
                              TUTTI_COORDINATOR_ADDRESSES_MAX);
    }
    for (i = 0; i < info->address_count; i++) {
        TUTTI_TRY(check_text(info->addresses[i], "address", TUTTI_COORDINATOR_HOST_MAX, err));
    }
    return TUTTI_OK;
}

tutti_code
coord_agent_check(const tutti_coordinator_agent *info, tutti_error *err)
{
    TUTTI_TRY(check_text(info->host, "host", TUTTI_COORDINATOR_HOST_MAX, err));

    TUTTI_TRY(check_text(info->host_id, "host_id", TUTTI_COORDINATOR_WORD_MAX, err));
    TUTTI_TRY(check_text(info->device, "device", TUTTI_COORDINATOR_WORD_MAX, err));
    TUTTI_TRY(check_text(info->version, "version", TUTTI_COORDINATOR_WORD_MAX, err));
    TUTTI_TRY(check_text(info->gpus, "list of GPUs", TUTTI_COORDINATOR_GPUS_MAX, err));
    TUTTI_TRY(check_addresses(info, err));
    if (info->data_address.size > TUTTI_COORDINATOR_DATA_ADDRESS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_AGENT",
                              "the agent's data_address has %zu bytes, at most %d",
                              info->data_address.size, TUTTI_COORDINATOR_DATA_ADDRESS_MAX);
    }
    return TUTTI_OK;
}

static size_t
data_bytes(const tutti_coordinator_agent *info)
{
    size_t bytes = strlen(or_empty(info->host)) + strlen(or_empty(info->host_id)) +
                   strlen(or_empty(info->device)) + strlen(or_empty(info->version)) +
                   strlen(or_empty(info->gpus)) + 5;
    size_t i;

    for (i = 0; i < info->address_count; i++) {
        bytes += strlen(or_empty(info->addresses[i])) + 1;
    }
    /* The list of addresses comes first, where the alignment is right. */
    return bytes + info->address_count * sizeof(char *) + info->data_address.size;
}

/* Copy a text to *at, which moves behind it. */
static const char *
keep_agent(char **at, const char *text)
{
    const size_t size = strlen(or_empty(text)) + 1;
    char *kept = *at;

    memcpy(kept, or_empty(text), size);
    *at += size;
    return kept;
}

static void
keep_info(coord_agent *agent, const tutti_coordinator_agent *info)
{
    const char **addresses = (const char **)(void *)agent->data;
    char *at = agent->data + info->address_count * sizeof(char *);
    size_t i;

    agent->info = *info;
    for (i = 0; i < info->address_count; i++) {
        addresses[i] = keep_agent(&at, info->addresses[i]);
    }
    agent->info.addresses = addresses;
    agent->info.host = keep_agent(&at, info->host);
    agent->info.host_id = keep_agent(&at, info->host_id);
    agent->info.device = keep_agent(&at, info->device);
    agent->info.version = keep_agent(&at, info->version);
    agent->info.gpus = keep_agent(&at, info->gpus);
    agent->info.data_address.data = at;
    if (info->data_address.size > 0) {
        memcpy(at, info->data_address.data, info->data_address.size);
    }
}

static const char *
why_gone(const coord_agent *agent)
{
    if (agent->restored) {
        return "it did not connect again after the coordinator was started again";
    }
    return agent->had_session ? "the connection to it broke" : "no session came";
}

static void
on_timer(tutti_timer *timer)
{
    coord_agent *agent = tutti_container_of(timer, coord_agent, timer);

    /* While the coordinator drains it ends all sessions itself; that is no agent's fault. */
    if (agent->job->owner->draining) {
        return;
    }
    if (agent->state == TUTTI_COORDINATOR_WAITING) {
        coord_seat_return(agent);
    } else if (agent->state == TUTTI_COORDINATOR_ALIVE) {
        coord_agent_lose(agent, why_gone(agent), NULL);
    }
}

tutti_code
coord_agent_new(coord_job *job, uint64_t incarnation, const tutti_coordinator_agent *info,
                coord_agent **ret_agent, tutti_error *err)
{
    coord_agent *agent = calloc(1, sizeof(*agent) + data_bytes(info));
    tutti_map_node *there;
    tutti_code code;

    _Static_assert(offsetof(coord_agent, data) % _Alignof(char *) == 0, "addresses lie there");
    if (agent == NULL) {
        return coord_fail_memory(err, "an agent");
    }
    agent->job = job;
    agent->incarnation = incarnation;
    agent->state = TUTTI_COORDINATOR_WAITING;
    agent->timer.on_expiry = on_timer;
    tutti_list_init(&agent->unassigned);
    tutti_list_init(&agent->joins);
    tutti_map_init(&agent->told);
    keep_info(agent, info);
    agent->node.key = tutti_map_key_u64(agent->key, incarnation);
    code = coord_gpus_keep(agent, err);
    if (code != TUTTI_OK) {
        free(agent);
        return code;
    }
    there = tutti_map_add(&job->agents, &agent->node);
    assert(there == NULL); /* the caller has looked */
    *ret_agent = agent;
    return TUTTI_OK;
}

/*
 * The caller has ended its Join calls and its session. Everything that points to the agent lets
 * it go: timer, event, lists, maps, progress, seat.
 */
void
coord_agent_free(coord_agent *agent)
{
    coord_job *job;

    if (agent == NULL) {
        return;
    }
    assert(tutti_list_empty(&agent->joins) && agent->session == NULL);
    job = agent->job;
    tutti_timers_stop(&job->owner->timers, &agent->timer);
    coord_event_remove(job, &agent->event);
    tutti_list_remove(&agent->unassigned);
    tutti_map_remove(&job->agents, &agent->node);
    job->owner->hooks->agent_freed(agent);
    coord_gpus_forget(agent);
    if (agent->seated && job->seats[agent->rank] == agent) {
        job->seats[agent->rank] = NULL;
    }
    free(agent);
}

coord_agent *
coord_agent_find(const coord_job *job, uint64_t incarnation)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&job->agents, tutti_map_key_u64(key, incarnation));

    return node == NULL ? NULL : tutti_container_of(node, coord_agent, node);
}
