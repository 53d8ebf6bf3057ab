/*
 * Watches of keys by prefix. Each watch has a backlog, a ring of changes that it has not been
 * sent; a change is one allocation that all its watches share by count. What does not fit
 * (changes or bytes of one watch, bytes of all) makes the watch `slow`: its backlog is dropped at
 * once, and with its next turn it ends with SLOW_WATCHER, so that the client reads the keys anew.
 * A change of a key never fails because of its watchers.
 *
 * A watch that goes on where another one ended begins with a backlog from the history
 * (watch_history.h), which does not count against its limits.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/watch_history.h"

/* A change that waits to be told, shared by all that it is told. */
typedef struct coord_change {
    size_t refs;
    tutti_coordinator_change_kind kind;
    uint64_t version;
    size_t key_size;
    size_t value_size;
    unsigned char data[]; /* key, value */
} coord_change;

/* ------------------------------------------------------------------------------ changes */

static size_t
change_bytes(const coord_change *change)
{
    return sizeof(*change) + change->key_size + change->value_size;
}

static coord_change *
change_new(tutti_coordinator *self, const coord_news *news)
{
    const size_t key_size = news->full.size - news->job_size;
    const size_t bytes = sizeof(coord_change) + key_size + news->value.size;
    coord_change *change;

    if (bytes > self->options.watch_bytes_limit - self->watch_bytes) {
        return NULL;
    }
    change = malloc(bytes);
    if (change == NULL) {
        return NULL;
    }
    *change = (coord_change){.refs = 1,
                             .kind = news->kind,
                             .version = news->version,
                             .key_size = key_size,
                             .value_size = news->value.size};
    memcpy(change->data, (const unsigned char *)news->full.data + news->job_size, key_size);
    if (news->value.size > 0) {
        memcpy(change->data + key_size, news->value.data, news->value.size);
    }
    self->watch_bytes += bytes;
    return change;
}

static void
change_unref(tutti_coordinator *self, coord_change *change)
{
    if (change != NULL && --change->refs == 0) {
        self->watch_bytes -= change_bytes(change);
        free(change);
    }
}

/* ------------------------------------------------------------------------------ backlog */

static bool
grow_watch(tutti_coordinator_watch *watch, size_t most)
{
    const size_t wanted = watch->capacity == 0 ? 8 : watch->capacity * 2;
    const size_t capacity = wanted > most ? most : wanted;
    coord_change **changes = calloc(capacity, sizeof(coord_change *));
    size_t i;

    if (changes == NULL) {
        return false;
    }
    for (i = 0; i < watch->count; i++) {
        changes[i] = watch->changes[(watch->first + i) % watch->capacity];
    }
    free(watch->changes);
    watch->changes = changes;
    watch->capacity = capacity;
    watch->first = 0;
    return true;
}

static coord_change *
take_watch(tutti_coordinator_watch *watch)
{
    coord_change *change = watch->changes[watch->first];

    watch->first = (watch->first + 1) % watch->capacity;
    watch->count--;
    watch->bytes -= change_bytes(change);
    return change;
}

static void
drop_backlog(tutti_coordinator *self, tutti_coordinator_watch *watch)
{
    while (watch->count > 0) {
        change_unref(self, take_watch(watch));
    }
    free(watch->changes);
    watch->changes = NULL;
    watch->capacity = 0;
    watch->first = 0;
}

/* `change` NULL = there was no memory for it. */
static void
enqueue_watch(tutti_coordinator *self, tutti_coordinator_watch *watch, coord_change *change)
{
    const tutti_coordinator_options *options = &self->options;

    /* Its backlog is gone and its end is on the way. */
    if (watch->slow != NULL) {
        return;
    }
    if (change == NULL) {
        watch->slow = "changes for all watchers together (--watch-bytes-limit)";
    } else if (watch->count == options->watch_changes_limit + watch->missed) {
        watch->slow = "changes (--watch-changes-limit)";
    } else if (change_bytes(change) >
               options->watch_backlog_limit + watch->missed_bytes - watch->bytes) {
        watch->slow = "bytes of changes (--watch-backlog-limit)";
    } else if (watch->count == watch->capacity &&
               !grow_watch(watch, options->watch_changes_limit + watch->missed)) {
        watch->slow = "changes (no memory)";
    } else {
        watch->changes[(watch->first + watch->count) % watch->capacity] = change;
        watch->count++;
        watch->bytes += change_bytes(change);
        change->refs++;
    }
    if (watch->slow != NULL) {
        drop_backlog(self, watch);
    }
    if (tutti_list_empty(&watch->due)) {
        tutti_list_add(&self->due, &watch->due);
        coord_defer(self, &self->due_task);
    }
}

/* ------------------------------------------------------------------------------ telling */

/* A change that is told. */
typedef struct telling {
    const coord_news *news;
    coord_change *change; /* made when the first prefix needs it; NULL after that = no memory */
    bool needed;
} telling;

static void
tell_prefix(tutti_coordinator *self, coord_prefix *prefix, void *arg)
{
    telling *one = arg;
    tutti_list_node *link;
    tutti_list_node *spare;

    if (!one->needed) {
        one->change = change_new(self, one->news);
        one->needed = true;
    }
    tutti_list_each(link, spare, &prefix->members)
    {
        enqueue_watch(self, tutti_container_of(link, tutti_coordinator_watch, link), one->change);
    }
}

void
coord_watches_tell(tutti_coordinator *self, const coord_news *news)
{
    telling one = {.news = news};

    coord_prefixes_match(self, news->full, tell_prefix, &one);
    /* Ours; each backlog has its own reference. NULL is fine. */
    change_unref(self, one.change);
    if (one.needed) {
        coord_history_add(self, news);
    }
}

/* ------------------------------------------------------------------------------ watches */

static void
detach_watch(tutti_coordinator_watch *watch)
{
    tutti_coordinator *self = watch->wait.owner;
    coord_prefix_remove(self, watch->prefix, &watch->link);
    watch->prefix = NULL;
    drop_backlog(self, watch);
    tutti_list_remove(&watch->due);
    coord_wait_stop(&watch->wait);
    self->watcher_count--;
}

static void
on_end(tutti_coordinator_pending_call *wait, const tutti_error *err)
{
    tutti_coordinator_watch *watch = tutti_container_of(wait, tutti_coordinator_watch, wait);

    assert(err != NULL); /* it has no deadline */
    detach_watch(watch);
    watch->on_end(watch, err);
}

static void
end_slow(tutti_coordinator_watch *watch)
{
    const char *what = watch->slow;
    tutti_error err;

    detach_watch(watch);
    (void)TUTTI_FAIL_FOR(&err, TUTTI_RESOURCE_EXHAUSTED, "SLOW_WATCHER",
                         "more %s wait to be read than are kept: read the keys, then watch again",
                         what);
    watch->on_end(watch, &err);
}

/* Send one message, when there is one and none is in flight. */
static void
push_watch(tutti_coordinator_watch *watch)
{
    tutti_store_entry entry = {0};
    coord_change *change;

    if (watch->slow != NULL) {
        end_slow(watch);
    } else if (watch->writing) {
        return; /* tutti_coordinator_watch_written goes on */
    } else if (watch->begin) {
        watch->begin = false;
        watch->writing = true;
        entry.version = watch->begun;
        watch->on_change(watch, TUTTI_COORDINATOR_BEGUN, &entry);
    } else if (watch->count > 0) {
        change = take_watch(watch);
        entry.key = (tutti_bytes){change->data, change->key_size};
        entry.value = (tutti_bytes){change->data + change->key_size, change->value_size};
        entry.version = change->version;
        watch->writing = true;
        watch->on_change(watch, change->kind, &entry);
        change_unref(watch->wait.owner, change);
    }
}

size_t
coord_on_due_task(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, due_task);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&self->due)) {
        push_watch(tutti_container_of(tutti_list_pop(&self->due), tutti_coordinator_watch, due));
        done++;
    }
    if (!tutti_list_empty(&self->due)) {
        coord_defer(self, work);
    }
    return done;
}

/* ------------------------------------------------------------------------------ beginning */

static tutti_code
fail_gap(const coord_full_key *full, uint64_t from, const char *why, tutti_error *err)
{
    char text[200];

    coord_quote(coord_full_key_client(full), 48, text, sizeof(text));
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "WATCH_GAP",
                          "not all changes of keys with the prefix \"%s\" from version %" PRIu64
                          " on are known: %s: read the keys, then watch anew",
                          text, from, why);
}

/* May a watch go on there? TUTTI_FAILED_PRECONDITION  WATCH_GAP */
static tutti_code
check_place(tutti_coordinator *self, const coord_full_key *full,
            const tutti_coordinator_watch_place *place, tutti_error *err)
{
    const coord_prefix *prefix = coord_prefix_find(self, coord_full_key_bytes(full));
    char why[80];

    if (prefix == NULL) {
        return fail_gap(full, place->from, "nobody watched them within --retry-window", err);
    }
    if (place->history != self->history_id || place->from > tutti_store_version(self->store) + 1) {
        return fail_gap(full, place->from, "this is another store", err);
    }
    if (place->from < prefix->since) {
        (void)snprintf(why, sizeof(why), "those from %" PRIu64 " on are", prefix->since);
        return fail_gap(full, place->from, why, err);
    }
    return TUTTI_OK;
}

static void
count_missed(void *arg, const coord_news *news)
{
    tutti_coordinator_watch *watch = arg;

    watch->missed++;
    watch->missed_bytes += sizeof(coord_change) + news->full.size + news->value.size;
}

static void
queue_missed(void *arg, const coord_news *news)
{
    tutti_coordinator_watch *watch = arg;
    tutti_coordinator *self = watch->wait.owner;
    coord_change *change = change_new(self, news);

    enqueue_watch(self, watch, change);
    change_unref(self, change);
}

tutti_code
tutti_coordinator_watch_start(tutti_coordinator *self, const tutti_coordinator_key *prefix,
                              const tutti_coordinator_watch_place *place,
                              tutti_coordinator_watch *watch, tutti_error *err)
{
    coord_full_key full;

    TUTTI_TRY(coord_watch_check(self, err));
    TUTTI_TRY(coord_full_key_write(self, prefix, 0, &full, err));
    if (place != NULL) {
        TUTTI_TRY(check_place(self, &full, place, err));
    }
    TUTTI_TRY(coord_prefix_add(self, &full, &watch->link, &watch->prefix, err));

    watch->begin = true;
    watch->begun = tutti_store_version(self->store);
    watch->wait.on_end = on_end;
    coord_wait_start(self, &watch->wait, false, TUTTI_TIMERS_NEVER);
    self->watcher_count++;
    tutti_list_add(&self->due, &watch->due);
    coord_defer(self, &self->due_task);
    if (place != NULL) {
        coord_history_replay(self, watch->prefix, place->from, place->skip, count_missed, watch);
        coord_history_replay(self, watch->prefix, place->from, place->skip, queue_missed, watch);
    }
    return TUTTI_OK;
}

uint64_t
tutti_coordinator_watch_history(tutti_coordinator *self)
{
    return coord_history_id(self);
}

void
tutti_coordinator_watch_written(tutti_coordinator_watch *watch)
{
    if (watch->wait.owner != NULL && watch->writing) {
        watch->writing = false;
        push_watch(watch);
    }
}

void
tutti_coordinator_watch_withdraw(tutti_coordinator_watch *watch)
{
    if (watch->wait.owner != NULL) {
        detach_watch(watch);
    }
}
