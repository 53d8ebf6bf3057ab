/*
 * Writing and removing records (records.h). Each is written where the change happens, by way of
 * core/hooks.h, and before anybody is told. A record that cannot be written (no room, no memory)
 * is noted in the log and the job goes on: being able to restart is worth less than running.
 *
 * Order for a crash in between: when a job is formed its own record is written last; when it ends
 * that record is removed first. So a job's record means that the rest was complete.
 */
#include "server/coordinator/record/records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/mesh.h"
#include "server/coordinator/group/registry.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

#define BATCH_MAX 32

/* ------------------------------------------------------------------------------ put, remove */

static bool
is_kept(const coord_job *job)
{
    return job->owner->options.durable && job->epoch > 0;
}

static void
note_unkept(const coord_job *job, const char *why)
{
    coord_note(job->owner,
               "job %s: a change of it could not be written to the store, and will be lost when "
               "this process ends: %s",
               job->name, why);
}

/* The store refuses what its limits allow: it is told, and whoever owns the coordinator ends. */
static void
lose_record(const coord_job *job, const tutti_error *why)
{
    note_unkept(job, why->text);
    if (job->owner->on_lost != NULL) {
        job->owner->on_lost(job->owner->lost_arg, why);
    }
}

/* Write a record and free it. */
static void
put_record(const coord_job *job, coord_record *record)
{
    const tutti_store_change change = {.key = {record->key, record->key_size},
                                       .value = {record->value.data, record->value.size},
                                       .exempt = true};
    tutti_error err = {0};

    if (record->failed) {
        note_unkept(job, "it is too large");
    } else if (tutti_store_apply(job->owner->store, &change, 1, NULL, &err) != TUTTI_OK) {
        lose_record(job, &err);
    }
    coord_record_fini(record);
}

/* Many records in few changes: a store that waits for the disk waits for each. */
typedef struct batch {
    const coord_job *job;
    size_t count;
    tutti_store_change changes[BATCH_MAX];
    coord_record records[BATCH_MAX];
} batch;

/* False: it could not be, which is noted. */
static bool
batch_flush(batch *self)
{
    tutti_error err = {0};
    const tutti_code code =
        tutti_store_apply(self->job->owner->store, self->changes, self->count, NULL, &err);
    size_t i;

    if (code != TUTTI_OK) {
        lose_record(self->job, &err);
    }
    for (i = 0; i < self->count; i++) {
        coord_record_fini(&self->records[i]);
    }
    self->count = 0;
    return code == TUTTI_OK;
}

/* The next record to be filled; then call batch_added. */
static coord_record *
batch_next(batch *self)
{
    if (self->count == BATCH_MAX) {
        (void)batch_flush(self);
    }
    return &self->records[self->count];
}

static void
batch_added(batch *self, bool remove)
{
    coord_record *record = &self->records[self->count];

    if (record->failed) {
        note_unkept(self->job, "it is too large");
        coord_record_fini(record);
        return;
    }
    self->changes[self->count++] =
        (tutti_store_change){.key = {record->key, record->key_size},
                             .value = {record->value.data, record->value.size},
                             .remove = remove,
                             .exempt = true};
}

/* NULL = no memory, which is noted. */
static batch *
batch_new(const coord_job *job)
{
    batch *self = malloc(sizeof(*self));

    if (self == NULL) {
        note_unkept(job, "no memory");
        return NULL;
    }
    self->job = job;
    self->count = 0;
    return self;
}

/*
 * Collect the next records to remove, as many as one change takes. They are collected first and
 * removed then, because what the store lends ends with a change.
 */
static void
collect_record(batch *gone, tutti_bytes start)
{
    tutti_store *store = gone->job->owner->store;
    tutti_store_entry entry = {0};

    while (gone->count < BATCH_MAX &&
           tutti_store_next(store, start, entry.key, &entry, NULL) == TUTTI_OK) {
        coord_record_begin_bytes(batch_next(gone), entry.key);
        batch_added(gone, true);
    }
}

/* All that begins with this key. */
static void
remove_all(const coord_job *job, const coord_record *prefix)
{
    const tutti_bytes start = {prefix->key, prefix->key_size};
    batch *gone = batch_new(job);

    while (gone != NULL) {
        collect_record(gone, start);
        if (gone->count == 0 || !batch_flush(gone)) {
            break;
        }
    }
    free(gone);
}

/* ------------------------------------------------------------------------------ jobs, seats */

static uint64_t
world_id(const coord_job *job)
{
    return coord_group_from(tutti_map_find(&job->groups, tutti_bytes_of("world")))->id;
}

void
coord_record_job(coord_job *job)
{
    coord_record record;

    if (!is_kept(job)) {
        return;
    }
    coord_record_begin(&record, 'j', job->name);
    coord_record_u64(&record, job->id);
    coord_record_u32(&record, job->world_size);
    coord_record_u64(&record, job->epoch);
    coord_record_u64(&record, job->since_ms);
    coord_record_u64(&record, job->group_ids);
    coord_record_u64(&record, job->registry_numbers);
    coord_record_u32(&record, job->min_world);
    coord_record_u64(&record, world_id(job));
    coord_record_bytes(&record, job->epoch_key, sizeof(job->epoch_key));
    put_record(job, &record);
}

static void
add_info(coord_record *record, const tutti_coordinator_agent *info)
{
    size_t i;

    coord_record_text(record, info->host);
    coord_record_text(record, info->host_id);
    coord_record_text(record, info->device);
    coord_record_text(record, info->version);
    coord_record_bytes(record, info->data_address.data, info->data_address.size);
    coord_record_u32(record, info->pid);
    coord_record_u32(record, info->local_rank);
    coord_record_u32(record, (uint32_t)info->address_count);
    for (i = 0; i < info->address_count; i++) {
        coord_record_text(record, info->addresses[i]);
    }
    coord_record_text(record, info->gpus);
}

static void
fill_seat(coord_record *record, const coord_agent *agent)
{
    coord_record_begin(record, 's', agent->job->name);
    coord_record_key_u32(record, agent->rank);
    coord_record_u64(record, agent->incarnation);
    coord_record_u32(record, (uint32_t)agent->state);
    coord_record_u64(record, agent->joined_epoch);
    coord_record_u64(record, agent->changed_epoch);
    coord_record_u64(record, agent->since_ms);
    coord_record_text(record, agent->reason);
    add_info(record, &agent->info);
}

void
coord_record_agent(coord_agent *agent)
{
    coord_record record;

    if (is_kept(agent->job)) {
        fill_seat(&record, agent);
        put_record(agent->job, &record);
        coord_record_job(agent->job);
    }
}

/* The job comes last: without it the rest is not looked at. */
void
coord_record_formed(coord_job *job)
{
    batch *seats = is_kept(job) ? batch_new(job) : NULL;
    uint32_t rank;

    if (seats == NULL) {
        return;
    }
    coord_unrecord_job(job);
    for (rank = 0; rank < job->world_size; rank++) {
        fill_seat(batch_next(seats), job->seats[rank]);
        batch_added(seats, false);
    }
    (void)batch_flush(seats);
    free(seats);
    coord_record_job(job);
}

/* The job goes first. */
void
coord_unrecord_job(coord_job *job)
{
    static const char letters[] = "jsgmrot";
    coord_record prefix;
    size_t i;

    for (i = 0; is_kept(job) && letters[i] != '\0'; i++) {
        coord_record_begin(&prefix, letters[i], job->name);
        remove_all(job, &prefix);
    }
}

/* ------------------------------------------------------------------------------ groups */

static void
put_row(const coord_group *group)
{
    coord_record record;

    coord_record_begin(&record, 'r', group->job->name);
    coord_record_key_text(&record, group->mesh->name);
    coord_record_key_bytes(&record, group->key, sizeof(group->key));
    coord_record_u64(&record, group->id);
    coord_record_text(&record, group->name);
    put_record(group->job, &record);
}

void
coord_record_group(coord_group *group)
{
    coord_record record;

    if (!is_kept(group->job) || coord_group_is_world(group)) {
        return;
    }
    coord_record_job(group->job); /* group_ids has risen: no id may be given twice */
    if (group->mesh != NULL) {
        put_row(group);
        return;
    }
    coord_record_begin(&record, 'g', group->job->name);
    coord_record_key_u64(&record, group->id);
    coord_record_text(&record, group->name);
    coord_record_text(&record,
                      group->registry == NULL ? "" : coord_group_registry_tag(group->registry));
    coord_record_u64(&record, group->turn);
    coord_record_ranks(&record, group->ranks, group->count);
    coord_record_u32(&record, group->timeout_ms);
    put_record(group->job, &record);
}

void
coord_unrecord_group(const coord_group *group)
{
    coord_record prefix;

    if (is_kept(group->job)) {
        coord_record_begin(&prefix, 'g', group->job->name);
        coord_record_key_u64(&prefix, group->id);
        remove_all(group->job, &prefix);
    }
}

/* ------------------------------------------------------------------------------ meshes */

void
coord_record_mesh(coord_mesh *mesh)
{
    coord_record record;
    uint32_t dim;

    if (!is_kept(mesh->job)) {
        return;
    }
    coord_record_job(mesh->job);
    coord_record_begin(&record, 'm', mesh->job->name);
    coord_record_key_text(&record, mesh->name);
    coord_record_u64(&record, mesh->id);
    coord_record_u32(&record, mesh->dim_count);
    for (dim = 0; dim < mesh->dim_count; dim++) {
        coord_record_u32(&record, mesh->shape[dim]);
        coord_record_text(&record, mesh->dims[dim]);
    }
    coord_record_ranks(&record, mesh->all->ranks, mesh->all->count);
    put_record(mesh->job, &record);
}

void
coord_unrecord_mesh(const coord_mesh *mesh)
{
    static const char letters[] = "mr";
    coord_record prefix;
    size_t i;

    for (i = 0; is_kept(mesh->job) && letters[i] != '\0'; i++) {
        coord_record_begin(&prefix, letters[i], mesh->job->name);
        coord_record_key_text(&prefix, mesh->name);
        remove_all(mesh->job, &prefix);
    }
}

/* ------------------------------------------------------------------------------ group registries
 */

static void
put_registry(coord_group_registry *registry)
{
    const char *tag = coord_group_registry_tag(registry);
    const unsigned char *ranks = registry->key + strlen(tag) + 1;
    coord_record record;

    coord_record_begin(&record, 'o', registry->job->name);
    coord_record_key_u64(&record, registry->number);
    coord_record_u64(&record, registry->turn_count);
    coord_record_u32(&record, registry->count);
    if (tutti_buf_add(&record.value, ranks, registry->count * sizeof(uint32_t), NULL) != TUTTI_OK) {
        record.failed = true;
    }
    put_record(registry->job, &record);
}

void
coord_record_registry(coord_group_registry *registry, uint32_t position)
{
    const coord_turns *turns = &registry->turns[position];
    coord_record record;

    if (!is_kept(registry->job)) {
        return;
    }
    if (registry->recorded_turn != registry->turn_count || registry->turn_count == 0) {
        put_registry(registry);
        registry->recorded_turn = registry->turn_count;
    }
    coord_record_begin(&record, 't', registry->job->name);
    coord_record_key_u64(&record, registry->number);
    coord_record_key_u32(&record, position);
    coord_record_u64(&record, turns->incarnation);
    coord_record_u64(&record, turns->count);
    coord_record_u64(&record, turns->token);
    put_record(registry->job, &record);
}

void
coord_unrecord_registry(const coord_group_registry *registry)
{
    static const char letters[] = "ot";
    coord_record prefix;
    size_t i;

    for (i = 0; is_kept(registry->job) && registry->turns != NULL && letters[i] != '\0'; i++) {
        coord_record_begin(&prefix, letters[i], registry->job->name);
        coord_record_key_u64(&prefix, registry->number);
        remove_all(registry->job, &prefix);
    }
}
