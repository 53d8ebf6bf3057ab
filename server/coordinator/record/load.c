/*
 * What an earlier process left in the store becomes jobs again: one walk over the store for each
 * kind of record, in an order in which each finds what it belongs to (jobs, seats, registries,
 * turns, groups, meshes, rows, answers).
 *
 * A process may have died between two records. Records of a job without its own record were on
 * their way in or out (the job's record is written last and removed first) and are ignored.
 * Everything else must fit together: a store that does not is refused as a whole (STORE_FORMAT),
 * since a coordinator that knows half of a job would give out ranks twice.
 *
 * Ranks that were alive have heartbeat_timeout to open a session under their incarnation; the
 * others are lost.
 */
#include "server/coordinator/record/load.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/group/world.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/kv/retry_cache.h"
#include "server/coordinator/kv/watch_history.h"
#include "server/coordinator/member/agent.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/seats.h"

typedef tutti_code (*load_fn)(tutti_coordinator *self, coord_job *job, coord_reading *key,
                              coord_reading *value, tutti_error *err);

tutti_code
coord_fail_record(const coord_job *job, const char *what, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                          "the store has an invalid record of %s of job %s: start with another "
                          "--store, then its ranks join again",
                          what, job->name);
}

static coord_job *
find_job(tutti_coordinator *self, const char *name)
{
    tutti_map_node *node = tutti_map_find(&self->jobs, tutti_bytes_of(name));

    return node == NULL ? NULL : tutti_container_of(node, coord_job, node);
}

/* ------------------------------------------------------------------------------ jobs */

/* A store that is older than epoch keys has none: draw another one. */
static void
load_key(coord_job *job, coord_reading *value)
{
    const tutti_bytes key = value->left == 0 ? (tutti_bytes){0} : coord_reading_bytes(value);

    if (key.size == sizeof(job->epoch_key)) {
        memcpy(job->epoch_key, key.data, key.size);
    } else {
        coord_job_draw_key(job);
    }
}

static tutti_code
load_job(tutti_coordinator *self, const char *name, coord_reading *value, tutti_error *err)
{
    const uint64_t id = coord_reading_u64(value);
    const uint32_t world_size = coord_reading_u32(value);
    coord_job *job = NULL;
    const char *checked;
    tutti_code code = coord_check_job(name, &checked, err);

    if (code == TUTTI_OK && (value->failed || world_size == 0 || world_size > TUTTI_RANKS_MAX)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "STORE_FORMAT",
            "the store has an invalid record of job %s: start with another --store", name);
    }
    if (code == TUTTI_OK) {
        code = coord_job_begin(self, name, world_size, &job, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    job->id = id;
    job->epoch = coord_reading_u64(value);
    job->since_ms = coord_reading_u64(value);
    job->group_ids = coord_reading_u64(value);
    job->registry_numbers = coord_reading_u64(value);
    job->min_world = coord_reading_u32(value);
    job->restored_world = coord_reading_u64(value);
    load_key(job, value);
    job->ever_formed = true;
    return value->failed || job->epoch == 0 || job->min_world > world_size
               ? coord_fail_record(job, "itself", err)
               : TUTTI_OK;
}

/* ------------------------------------------------------------------------------ seats */

static void
read_record_info(coord_reading *value, const char **addresses, tutti_coordinator_agent *info)
{
    size_t i;

    info->host = coord_reading_text(value);
    info->host_id = coord_reading_text(value);
    info->device = coord_reading_text(value);
    info->version = coord_reading_text(value);
    info->data_address = coord_reading_bytes(value);
    info->pid = coord_reading_u32(value);
    info->local_rank = coord_reading_u32(value);
    info->address_count = coord_reading_u32(value);
    info->addresses = addresses;
    if (info->address_count > TUTTI_COORDINATOR_ADDRESSES_MAX) {
        info->address_count = 0;
        value->failed = true;
    }
    for (i = 0; i < info->address_count; i++) {
        addresses[i] = coord_reading_text(value);
    }
    info->gpus = value->left == 0 ? "" : coord_reading_text(value); /* new in 0.2 */
    info->allow_shared_gpu = false;
}

static tutti_code
make_agent(coord_job *job, uint64_t incarnation, coord_reading *value, coord_agent *head,
           coord_agent **ret_agent, tutti_error *err)
{
    const char *addresses[TUTTI_COORDINATOR_ADDRESSES_MAX];
    tutti_coordinator_agent info;
    const char *reason;

    head->state = coord_reading_u32(value);
    head->joined_epoch = coord_reading_u64(value);
    head->changed_epoch = coord_reading_u64(value);
    head->since_ms = coord_reading_u64(value);
    reason = coord_reading_text(value);
    (void)snprintf(head->reason, sizeof(head->reason), "%s", reason);
    read_record_info(value, addresses, &info);
    if (value->failed || incarnation == 0 || coord_agent_find(job, incarnation) != NULL ||
        coord_agent_check(&info, NULL) != TUTTI_OK ||
        (head->state != TUTTI_COORDINATOR_ALIVE && head->state != TUTTI_COORDINATOR_LOST)) {
        return coord_fail_record(job, "a seat", err);
    }
    return coord_agent_new(job, incarnation, &info, ret_agent, err);
}

static tutti_code
load_seat(tutti_coordinator *self, coord_job *job, coord_reading *key, coord_reading *value,
          tutti_error *err)
{
    const uint32_t rank = coord_reading_big_u32(key);
    const uint64_t incarnation = coord_reading_u64(value);
    coord_agent head;
    coord_agent *agent = NULL;

    (void)self;
    if (key->failed || rank >= job->world_size || job->seats[rank] != NULL) {
        return coord_fail_record(job, "a seat", err);
    }
    TUTTI_TRY(make_agent(job, incarnation, value, &head, &agent, err));
    agent->joined_epoch = head.joined_epoch;
    agent->changed_epoch = head.changed_epoch;
    agent->since_ms = head.since_ms;
    memcpy(agent->reason, head.reason, sizeof(agent->reason));
    coord_seat_restore(agent, rank, head.state);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ together */

/* In the order of changes: events have numbers, and what changed last gets the highest. */
static int
compare_changes(const void *left, const void *right)
{
    const coord_agent *a = *(coord_agent *const *)left;
    const coord_agent *b = *(coord_agent *const *)right;

    return a->changed_epoch == b->changed_epoch ? 0 : a->changed_epoch < b->changed_epoch ? -1 : 1;
}

/*
 * An agent that comes back may have missed the last changes, so all of them are published again:
 * it is told what it knows already rather than too little.
 */
static tutti_code
publish_changes(coord_job *job, tutti_error *err)
{
    coord_agent **agents = malloc(job->world_size * sizeof(coord_agent *));
    uint32_t rank;
    uint32_t i;

    if (agents == NULL) {
        return coord_fail_memory(err, "a job");
    }
    for (rank = 0; rank < job->world_size; rank++) {
        agents[rank] = job->seats[rank];
    }
    qsort(agents, job->world_size, sizeof(coord_agent *), compare_changes);
    for (i = 0; i < job->world_size; i++) {
        if (agents[i]->state == TUTTI_COORDINATOR_LOST || agents[i]->joined_epoch > 1 ||
            agents[i]->reason[0] != '\0') {
            coord_event_publish(job, &agents[i]->event);
        }
    }
    free(agents);
    return TUTTI_OK;
}

static tutti_code
finish_job(coord_job *job, tutti_error *err)
{
    uint32_t rank;

    for (rank = 0; rank < job->world_size; rank++) {
        if (job->seats[rank] == NULL) {
            return coord_fail_record(job, "its seats", err);
        }
    }
    coord_world_restore(job, job->restored_world);
    TUTTI_TRY(publish_changes(job, err));
    coord_note(job->owner,
               "job %s: found in the store at epoch %" PRIu64 ", %" PRIu32 " of %" PRIu32
               " ranks have %" PRIu64 " s to come back",
               job->name, job->epoch, job->present, job->world_size,
               (uint64_t)(job->owner->options.heartbeat_timeout_ns / TUTTI_NS_PER_S));
    coord_job_settle(job);
    return TUTTI_OK;
}

/* One record. Those of a job that is not there were on their way in or out: they say nothing. */
static tutti_code
load_one(tutti_coordinator *self, load_fn load, const tutti_store_entry *entry, tutti_error *err)
{
    coord_reading key = {(const unsigned char *)entry->key.data + 2, entry->key.size - 2, false};
    coord_reading value = {entry->value.data, entry->value.size, false};
    const char *name = coord_reading_key_text(&key);
    coord_job *job;

    if (load == NULL) {
        return load_job(self, name, &value, err);
    }
    job = find_job(self, name);
    return job == NULL ? TUTTI_OK : load(self, job, &key, &value, err);
}

/* Nothing in here may call the store: the walk stands on what it has lent. */
static tutti_code
load_all(tutti_coordinator *self, char letter, load_fn load, tutti_error *err)
{
    const char prefix[] = {'!', letter};
    tutti_store_entry entry = {0};
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK && tutti_store_next(self->store, (tutti_bytes){prefix, sizeof(prefix)},
                                                entry.key, &entry, NULL) == TUTTI_OK) {
        code = load_one(self, load, &entry, err);
    }
    return code;
}

static tutti_code
finish_all(tutti_coordinator *self, tutti_error *err)
{
    tutti_map_node *node = tutti_map_first(&self->jobs);

    for (; node != NULL; node = tutti_map_next(node)) {
        TUTTI_TRY(finish_job(tutti_container_of(node, coord_job, node), err));
    }
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_restore(tutti_coordinator *self, tutti_error *err)
{
    static const struct {
        char letter;
        load_fn load;
    } kinds[] = {
        {'j', NULL},
        {'s', load_seat},
        {'o', coord_load_registry},
        {'t', coord_load_turns},
        {'g', coord_load_group},
        {'m', coord_load_mesh},
        {'r', coord_load_row},
    };
    tutti_code code = TUTTI_OK;
    size_t i;

    assert(self->now_ns != 0 && self->jobs.count == 0);
    for (i = 0; self->options.durable && code == TUTTI_OK && i < sizeof(kinds) / sizeof(kinds[0]);
         i++) {
        code = load_all(self, kinds[i].letter, kinds[i].load, err);
    }
    if (self->options.durable && code == TUTTI_OK) {
        coord_retry_cache_restore(self);
        coord_leases_restore(self);
        coord_history_restore(self);
    }
    return code == TUTTI_OK ? finish_all(self, err) : code;
}
