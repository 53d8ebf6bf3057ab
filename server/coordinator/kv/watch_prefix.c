/*
 * Prefixes that are watched (watch_history.h). A key's prefixes are found by their lengths: for
 * each length that some prefix has, the key's first bytes are looked up. So the cost of a change is
 * the number of different lengths, not of watches.
 *
 * A prefix stays for the retry window after its last watch, since that may have lost its
 * connection and come back. With the option `durable` it has a record, by which the next leader
 * knows of whose keys the changes have to be kept before the watches have found it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/watch_history.h"

#define PREFIX_LETTER 'w'

/* How many prefixes have this length. The array `lengths` has each length once. */
typedef struct coord_length {
    size_t length;
    size_t prefixes;
} coord_length;

/* ------------------------------------------------------------------------------ lengths */

static bool
add_length(tutti_coordinator *self, size_t length)
{
    size_t i;

    for (i = 0; i < self->length_count; i++) {
        if (self->lengths[i].length == length) {
            self->lengths[i].prefixes++;
            return true;
        }
    }
    if (self->length_count == self->length_capacity) {
        const size_t capacity = self->length_capacity == 0 ? 8 : self->length_capacity * 2;
        coord_length *more = realloc(self->lengths, capacity * sizeof(*more));

        if (more == NULL) {
            return false;
        }
        self->lengths = more;
        self->length_capacity = capacity;
    }
    self->lengths[self->length_count++] = (coord_length){length, 1};
    return true;
}

static void
remove_length(tutti_coordinator *self, size_t length)
{
    size_t i = 0;

    while (self->lengths[i].length != length) {
        i++;
        assert(i < self->length_count);
    }
    if (--self->lengths[i].prefixes == 0) {
        self->lengths[i] = self->lengths[--self->length_count];
    }
}

/* ------------------------------------------------------------------------------ records */

static void
begin_prefix_record(coord_record *record, const coord_prefix *prefix)
{
    coord_record_begin(record, PREFIX_LETTER, (const char *)prefix->key);
    coord_record_key_bytes(record, prefix->key + prefix->job_size,
                           prefix->node.key.size - prefix->job_size);
}

void
coord_prefix_record(tutti_coordinator *self, const coord_prefix *prefix)
{
    coord_record record;

    if (!self->options.durable) {
        return;
    }
    begin_prefix_record(&record, prefix);
    coord_record_u64(&record, prefix->since);
    coord_record_put(self->store, &record);
}

/* ------------------------------------------------------------------------------ prefixes */

coord_prefix *
coord_prefix_find(const tutti_coordinator *self, tutti_bytes full)
{
    tutti_map_node *node = tutti_map_find(&self->watched, full);

    return node == NULL ? NULL : tutti_container_of(node, coord_prefix, node);
}

static void
free_prefix(tutti_coordinator *self, coord_prefix *prefix)
{
    remove_length(self, prefix->node.key.size);
    tutti_list_remove(&prefix->idle);
    tutti_map_remove(&self->watched, &prefix->node);
    free(prefix);
}

static void
drop_prefix(tutti_coordinator *self, coord_prefix *prefix)
{
    coord_record record;

    if (self->options.durable) {
        begin_prefix_record(&record, prefix);
        coord_record_drop(self->store, &record);
    }
    free_prefix(self, prefix);
}

static coord_prefix *
prefix_new(tutti_coordinator *self, tutti_bytes full, size_t job_size)
{
    coord_prefix *prefix = calloc(1, sizeof(*prefix) + full.size);
    tutti_map_node *there;

    if (prefix == NULL || !add_length(self, full.size)) {
        free(prefix);
        return NULL;
    }
    memcpy(prefix->key, full.data, full.size);
    prefix->job_size = job_size;
    prefix->node.key = (tutti_bytes){prefix->key, full.size};
    tutti_list_init(&prefix->members);
    tutti_list_init(&prefix->idle);
    there = tutti_map_add(&self->watched, &prefix->node);
    assert(there == NULL);
    return prefix;
}

static coord_prefix *
first_idle(const tutti_coordinator *self)
{
    return tutti_container_of(self->idle_prefixes.next, coord_prefix, idle);
}

static void
schedule_idle(tutti_coordinator *self)
{
    tutti_timers_start(&self->timers, &self->idle_timer,
                       tutti_list_empty(&self->idle_prefixes) ? TUTTI_TIMERS_NEVER
                                                              : first_idle(self)->idle_until_ns);
}

static void
on_idle(tutti_timer *timer)
{
    tutti_coordinator *self = tutti_container_of(timer, tutti_coordinator, idle_timer);
    size_t i;

    for (i = 0; i < COORD_SLICE && !tutti_list_empty(&self->idle_prefixes) &&
                first_idle(self)->idle_until_ns <= self->now_ns;
         i++) {
        drop_prefix(self, first_idle(self));
    }
    schedule_idle(self);
}

static void
begin_idle(tutti_coordinator *self, coord_prefix *prefix)
{
    prefix->idle_until_ns = tutti_clock_add(self->now_ns, self->options.retry_window_ns);
    tutti_list_add(&self->idle_prefixes, &prefix->idle);
    schedule_idle(self);
}

tutti_code
coord_prefix_add(tutti_coordinator *self, const coord_full_key *full, tutti_list_node *link,
                 coord_prefix **ret_prefix, tutti_error *err)
{
    coord_prefix *prefix = coord_prefix_find(self, coord_full_key_bytes(full));

    if (prefix == NULL) {
        /* Prefixes that were left are no way to have more of them than watches are allowed. */
        while (self->watched.count >= self->options.watcher_limit &&
               !tutti_list_empty(&self->idle_prefixes)) {
            drop_prefix(self, first_idle(self));
        }
        prefix = prefix_new(self, coord_full_key_bytes(full), full->job_size);
        if (prefix == NULL) {
            return coord_fail_memory(err, "a prefix to watch");
        }
        prefix->since = tutti_store_version(self->store) + 1;
        coord_prefix_record(self, prefix);
    }
    tutti_list_remove(&prefix->idle);
    tutti_list_add(&prefix->members, link);
    *ret_prefix = prefix;
    return TUTTI_OK;
}

void
coord_prefix_remove(tutti_coordinator *self, coord_prefix *prefix, tutti_list_node *link)
{
    tutti_list_remove(link);
    if (!tutti_list_empty(&prefix->members)) {
        return;
    }
    if (self->options.retry_window_ns == 0) {
        drop_prefix(self, prefix);
    } else {
        begin_idle(self, prefix);
    }
}

void
coord_prefixes_match(tutti_coordinator *self, tutti_bytes full,
                     void (*each)(tutti_coordinator *self, coord_prefix *prefix, void *arg),
                     void *arg)
{
    size_t i;

    for (i = 0; i < self->length_count; i++) {
        coord_prefix *prefix = NULL;

        if (self->lengths[i].length <= full.size) {
            prefix = coord_prefix_find(self, (tutti_bytes){full.data, self->lengths[i].length});
        }
        if (prefix != NULL) {
            each(self, prefix, arg);
        }
    }
}

/* ------------------------------------------------------------------------------ restoring */

static void
load_prefix(tutti_coordinator *self, const tutti_store_entry *entry)
{
    const tutti_bytes full = {(const unsigned char *)entry->key.data + 2, entry->key.size - 2};
    coord_reading key = {full.data, full.size, false};
    coord_reading value = {entry->value.data, entry->value.size, false};
    const char *job = coord_reading_key_text(&key);
    const uint64_t since = coord_reading_u64(&value);
    coord_prefix *prefix;

    if (key.failed || value.failed || key.left > TUTTI_COORDINATOR_KEY_MAX ||
        coord_check_job(job, &job, NULL) != TUTTI_OK || *job == '\0') {
        return; /* none of ours */
    }
    prefix = prefix_new(self, full, full.size - key.left);
    if (prefix != NULL) {
        prefix->since = since > self->history_hole ? since : self->history_hole + 1;
        begin_idle(self, prefix);
    }
}

void
coord_prefixes_restore(tutti_coordinator *self)
{
    coord_records_each(self, PREFIX_LETTER, load_prefix);
}

void
coord_prefixes_init(tutti_coordinator *self)
{
    tutti_map_init(&self->watched);
    tutti_list_init(&self->idle_prefixes);
    self->idle_timer = (tutti_timer){.on_expiry = on_idle};
}

void
coord_prefixes_fini(tutti_coordinator *self)
{
    while (!tutti_list_empty(&self->idle_prefixes)) {
        free_prefix(self, first_idle(self));
    }
    tutti_timers_stop(&self->timers, &self->idle_timer);
    assert(self->watched.count == 0 && self->length_count == 0);
    free(self->lengths);
}
