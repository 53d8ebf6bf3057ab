/*
 * Watches of keys by prefix. Each watch has a backlog, a ring of changes that it has not been
 * sent; a change is one allocation that all its watches share by count. What does not fit
 * (changes or bytes of one watch, bytes of all) makes the watch `slow`: its backlog is dropped at
 * once, and with its next turn it ends with SLOW_WATCHER, so that the client reads the keys anew.
 * A change of a key never fails because of its watchers.
 *
 * Prefixes are found by their lengths: for each length that some watch has, the key's first bytes
 * are looked up. The cost of a change is the number of different lengths, not of watches.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/key_subscription.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"

/* A change that waits to be told, shared by all that it is told. */
typedef struct coord_change {
    size_t refs;
    tutti_coordinator_change_kind kind;
    uint64_t version;
    size_t key_size;
    size_t value_size;
    unsigned char data[]; /* key, value */
} coord_change;

/*
 * How many subscriptions have a prefix of this length. The array `lengths` has each length once.
 */
typedef struct coord_length {
    size_t length;
    size_t topics;
} coord_length;

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
    } else if (watch->count == options->watch_changes_limit) {
        watch->slow = "changes (--watch-changes-limit)";
    } else if (change_bytes(change) > options->watch_backlog_limit - watch->bytes) {
        watch->slow = "bytes of changes (--watch-backlog-limit)";
    } else if (watch->count == watch->capacity &&
               !grow_watch(watch, options->watch_changes_limit)) {
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

/* ------------------------------------------------------------------------------ prefixes */

static bool
add_length(tutti_coordinator *self, size_t length)
{
    size_t i;

    for (i = 0; i < self->length_count; i++) {
        if (self->lengths[i].length == length) {
            self->lengths[i].topics++;
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
    if (--self->lengths[i].topics == 0) {
        self->lengths[i] = self->lengths[--self->length_count];
    }
}

void
coord_watches_tell(tutti_coordinator *self, const coord_news *news)
{
    coord_change *change = NULL;
    bool tried = false;
    tutti_list_node *link;
    tutti_list_node *spare;
    size_t i;

    for (i = 0; i < self->length_count; i++) {
        coord_key_subscription *subscription = NULL;

        if (self->lengths[i].length <= news->full.size) {
            subscription = coord_key_subscription_find(
                &self->watched, (tutti_bytes){news->full.data, self->lengths[i].length});
        }
        if (subscription == NULL) {
            continue;
        }
        /* The change is made when the first watch needs it. */
        if (!tried) {
            change = change_new(self, news);
            tried = true;
        }
        tutti_list_each(link, spare, &subscription->members)
        {
            enqueue_watch(self, tutti_container_of(link, tutti_coordinator_watch, link), change);
        }
    }
    /* Ours; each backlog has its own reference. NULL is fine. */
    change_unref(self, change);
}

/* ------------------------------------------------------------------------------ watches */

static void
detach_watch(tutti_coordinator_watch *watch)
{
    tutti_coordinator *self = watch->wait.owner;
    const size_t length = watch->subscription->node.key.size;

    if (coord_key_subscription_remove(&self->watched, watch->subscription, &watch->link)) {
        remove_length(self, length);
    }
    watch->subscription = NULL;
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

static tutti_code
add_subscription(tutti_coordinator *self, const coord_full_key *full,
                 tutti_coordinator_watch *watch, tutti_error *err)
{
    bool created = false;

    TUTTI_TRY(coord_key_subscription_add(&self->watched, coord_full_key_bytes(full), &watch->link,
                                         &watch->subscription, &created, err));

    if (created && !add_length(self, full->size)) {
        (void)coord_key_subscription_remove(&self->watched, watch->subscription, &watch->link);
        watch->subscription = NULL;
        TUTTI_TRY(coord_fail_memory(err, "a prefix to watch"));
    }
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_watch_start(tutti_coordinator *self, const tutti_coordinator_key *prefix,
                              tutti_coordinator_watch *watch, tutti_error *err)
{
    coord_full_key full;
    tutti_code code = coord_watch_check(self, err);

    if (code == TUTTI_OK) {
        code = coord_full_key_write(self, prefix, 0, &full, err);
    }
    if (code == TUTTI_OK) {
        code = add_subscription(self, &full, watch, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    watch->begin = true;
    watch->begun = tutti_store_version(self->store);
    watch->wait.on_end = on_end;
    coord_wait_start(self, &watch->wait, false, TUTTI_TIMERS_NEVER);
    self->watcher_count++;
    tutti_list_add(&self->due, &watch->due);
    coord_defer(self, &self->due_task);
    return TUTTI_OK;
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
