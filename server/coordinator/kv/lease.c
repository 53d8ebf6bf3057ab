/*
 * Leases and the keys that go with them.
 *
 * How a lease ends. Its timer says that it was not kept in time, but the call that keeps it may lie
 * unread in a socket. So it is judged in an idle turn, as a silent session is, and time in which
 * this process did not run does not count. Then its keys go in slices.
 *
 * In the store, if that outlives the process, a lease is a record `!l job id` with its time, and
 * its key has a record `!k job key` with the lease's number, written by the same change as the key.
 * A key that is deleted loses its record behind that: a crash in between leaves a record without a
 * key, which is dropped at the start. A record that the store does not remove (its disk is full) is
 * stale: a set of its key takes it along, and else the store is asked again. If it stayed, the key
 * might be set anew, and would go with the lease behind a restart. A lease that has ended has no time
 * in its record until its keys have gone, so a restart goes on with that and does not bring it back:
 * callers may have been told.
 */
#include "server/coordinator/kv/lease.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"

#define LEASE_LETTER 'l'
#define KEY_LETTER 'k'
#define AGAIN_NS TUTTI_NS_PER_S /* until the store is asked again to delete a key or a record */

typedef struct coord_lease {
    tutti_map_node node; /* `job NUL number` */
    tutti_coordinator *owner;
    tutti_timer timer;
    tutti_list_node link; /* in leases_due or leases_ending, or in neither */
    tutti_list_node keys;
    size_t key_count;
    uint64_t id;
    uint64_t ttl_ns;
    uint64_t kept_ns;
    bool ended; /* nobody can keep it, and its keys go */
    unsigned char name[TUTTI_NAME_MAX + 1 + 8];
} coord_lease;

typedef struct coord_leased_key {
    tutti_map_node node; /* the full key */
    tutti_list_node link;
    coord_lease *lease; /* NULL: its record is stale, or they are being restored */
    unsigned char full[];
} coord_leased_key;

/* ------------------------------------------------------------------------------ finding */

/* `job NUL number`; `job` has been checked. */
static tutti_bytes
write_name(const char *job, uint64_t id, unsigned char ret_name[TUTTI_NAME_MAX + 1 + 8])
{
    const size_t size = strlen(job) + 1;

    memcpy(ret_name, job, size);
    (void)tutti_map_key_u64(ret_name + size, id);
    return (tutti_bytes){ret_name, size + 8};
}

/* Also one that has ended; NULL = there is none. */
static coord_lease *
find_any_lease(tutti_coordinator *self, const char *job, uint64_t id)
{
    unsigned char name[TUTTI_NAME_MAX + 1 + 8];
    tutti_map_node *node = tutti_map_find(&self->leases, write_name(job, id, name));

    return node == NULL ? NULL : tutti_container_of(node, coord_lease, node);
}

/* One that can still be kept; NULL = there is none. */
static coord_lease *
find_lease(tutti_coordinator *self, const char *job, uint64_t id)
{
    coord_lease *lease = find_any_lease(self, job, id);

    return lease == NULL || lease->ended ? NULL : lease;
}

static tutti_code
get_lease(tutti_coordinator *self, const char *job, uint64_t id, coord_lease **ret_lease,
          tutti_error *err)
{
    *ret_lease = find_lease(self, job, id);
    if (*ret_lease == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_LEASE",
                              "there is no lease %016" PRIx64 " in job %s: it was not kept in "
                              "time, was revoked, or was never granted: grant one, and set its "
                              "keys again",
                              id, job);
    }
    return TUTTI_OK;
}

static coord_leased_key *
find_leased(tutti_coordinator *self, tutti_bytes full)
{
    tutti_map_node *node = tutti_map_find(&self->leased, full);

    return node == NULL ? NULL : tutti_container_of(node, coord_leased_key, node);
}

/* When it ends, if nobody keeps it. */
static uint64_t
ends_at(const coord_lease *lease)
{
    const uint64_t awake_ns = lease->owner->awake_ns;

    return tutti_clock_add(lease->kept_ns > awake_ns ? lease->kept_ns : awake_ns, lease->ttl_ns);
}

/* ------------------------------------------------------------------------------ records */

static void
begin_lease_record(coord_record *record, const coord_lease *lease)
{
    coord_record_begin(record, LEASE_LETTER, (const char *)lease->name);
    coord_record_key_u64(record, lease->id);
    coord_record_u64(record, lease->ended ? 0 : lease->ttl_ns);
}

/* A full key begins with its job. */
static void
begin_key_record(coord_record *record, tutti_bytes full)
{
    const char *job = full.data;
    const size_t job_size = strlen(job) + 1;

    coord_record_begin(record, KEY_LETTER, job);
    coord_record_key_bytes(record, job + job_size, full.size - job_size);
}

/* That one has ended must not fail because clients have filled the store: its keys are what fills it. */
static tutti_code
put_lease_record(const coord_lease *lease, tutti_error *err)
{
    tutti_store_change change = {.exempt = lease->ended};
    coord_record record;
    tutti_code code = TUTTI_OK;

    if (!lease->owner->options.durable) {
        return TUTTI_OK;
    }
    begin_lease_record(&record, lease);
    change.key = (tutti_bytes){record.key, record.key_size};
    change.value = (tutti_bytes){record.value.data, record.value.size};
    code = record.failed ? coord_fail_memory(err, "a lease")
                         : tutti_store_apply(lease->owner->store, &change, 1, NULL, err);
    coord_record_fini(&record);
    return code;
}

static tutti_code
remove_record(tutti_coordinator *self, coord_record *record, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (self->options.durable) {
        code = record->failed
                   ? coord_fail_memory(err, "a record of a lease")
                   : tutti_store_delete(self->store, (tutti_bytes){record->key, record->key_size},
                                        NULL, NULL, err);
    }
    coord_record_fini(record);
    return code;
}

/* ------------------------------------------------------------------------------ keys */

static coord_leased_key *
leased_key_new(tutti_bytes full)
{
    coord_leased_key *one = calloc(1, sizeof(*one) + full.size);

    if (one != NULL) {
        memcpy(one->full, full.data, full.size);
        one->node.key = (tutti_bytes){one->full, full.size};
        tutti_list_init(&one->link);
    }
    return one;
}

static void
detach_key(tutti_coordinator *self, coord_leased_key *one)
{
    tutti_map_remove(&self->leased, &one->node);
    tutti_list_remove(&one->link);
    if (one->lease != NULL) {
        one->lease->key_count--;
    }
    free(one);
}

static void
attach_key(tutti_coordinator *self, coord_leased_key *one)
{
    (void)tutti_map_add(&self->leased, &one->node);
    tutti_list_add(&one->lease->keys, &one->link);
    one->lease->key_count++;
}

tutti_code
coord_lease_change_begin(tutti_coordinator *self, const coord_full_key *full, uint64_t lease,
                         coord_lease_change *ret_change, tutti_error *err)
{
    const tutti_bytes bytes = coord_full_key_bytes(full);
    coord_lease *found = NULL;

    *ret_change = (coord_lease_change){.full = full};
    if (lease != 0) {
        TUTTI_TRY(get_lease(self, (const char *)full->data, lease, &found, err));
        ret_change->made = leased_key_new(bytes);
        if (ret_change->made == NULL) {
            return coord_fail_memory(err, "a key of a lease");
        }
        ret_change->made->lease = found;
    }
    if (self->options.durable && (lease != 0 || find_leased(self, bytes) != NULL)) {
        begin_key_record(&ret_change->record, bytes);
        coord_record_u64(&ret_change->record, lease);
        ret_change->recorded = true;
    }
    return TUTTI_OK;
}

size_t
coord_lease_change_write(const coord_lease_change *change, tutti_store_change *ret_change)
{
    const coord_record *record = &change->record;

    if (change->recorded) {
        *ret_change = (tutti_store_change){.key = {record->key, record->key_size},
                                           .value = {record->value.data, record->value.size},
                                           .remove = change->made == NULL};
    }
    return change->recorded ? 1 : 0;
}

void
coord_lease_change_end(tutti_coordinator *self, coord_lease_change *change, bool done)
{
    coord_leased_key *before;

    if (done) {
        before = find_leased(self, coord_full_key_bytes(change->full));
        if (before != NULL) {
            detach_key(self, before);
        }
        if (change->made != NULL) {
            attach_key(self, change->made);
        }
    } else {
        free(change->made);
    }
    if (change->recorded) {
        coord_record_fini(&change->record);
    }
}

static void
ask_again(tutti_coordinator *self)
{
    tutti_timers_start(&self->timers, &self->leased_timer, tutti_clock_add(self->now_ns, AGAIN_NS));
}

/* It is in no lease any more, and its record is still there. */
static void
keep_stale(tutti_coordinator *self, coord_leased_key *one)
{
    tutti_list_remove(&one->link);
    if (one->lease != NULL) {
        one->lease->key_count--;
        one->lease = NULL;
    }
    tutti_list_add(&self->leased_stale, &one->link);
    ask_again(self);
}

void
coord_lease_drop_key(tutti_coordinator *self, tutti_bytes full)
{
    coord_leased_key *one = find_leased(self, full);
    coord_record record;

    if (one == NULL) {
        return;
    }
    begin_key_record(&record, one->node.key);
    if (remove_record(self, &record, NULL) == TUTTI_OK) {
        detach_key(self, one);
    } else {
        keep_stale(self, one);
    }
}

static void
on_leased_expiry(tutti_timer *timer)
{
    tutti_coordinator *self = tutti_container_of(timer, tutti_coordinator, leased_timer);
    size_t budget = COORD_SLICE;

    while (budget-- > 0 && !tutti_list_empty(&self->leased_stale)) {
        coord_lease_drop_key(
            self, tutti_container_of(self->leased_stale.next, coord_leased_key, link)->node.key);
    }
    if (!tutti_list_empty(&self->leased_stale)) {
        ask_again(self);
    }
}

/* ------------------------------------------------------------------------------ ending */

static void
free_lease(coord_lease *lease)
{
    tutti_timers_stop(&lease->owner->timers, &lease->timer);
    tutti_list_remove(&lease->link);
    tutti_map_remove(&lease->owner->leases, &lease->node);
    free(lease);
}

/* Delete one key of it. */
static tutti_code
end_key(coord_lease *lease, tutti_error *err)
{
    tutti_coordinator *self = lease->owner;
    coord_leased_key *one = tutti_container_of(lease->keys.next, coord_leased_key, link);
    unsigned char copy[sizeof(((coord_full_key *)NULL)->data)];
    coord_news news = {.kind = TUTTI_COORDINATOR_DELETED,
                       .full = {copy, one->node.key.size},
                       .job_size = strlen((const char *)one->full) + 1};
    bool existed = false;

    /* Those who are told drop the leased key, so they get a copy of its bytes. */
    memcpy(copy, one->node.key.data, one->node.key.size);
    TUTTI_TRY(tutti_store_delete(self->store, news.full, &existed, &news.version, err));
    if (existed) {
        coord_key_tell(self, &news);
    } else {
        coord_lease_drop_key(self, news.full);
    }
    return TUTTI_OK;
}

/* Its keys have gone. With its record there it stays, since a restart would find it. */
static tutti_code
finish_lease(coord_lease *lease, tutti_error *err)
{
    coord_record record;

    begin_lease_record(&record, lease);
    TUTTI_TRY(remove_record(lease->owner, &record, err));
    free_lease(lease);
    return TUTTI_OK;
}

/* The store does not write: ask it again later. */
static void
put_off(coord_lease *lease)
{
    tutti_list_remove(&lease->link);
    tutti_timers_start(&lease->owner->timers, &lease->timer,
                       tutti_clock_add(lease->owner->now_ns, AGAIN_NS));
}

static void
begin_ending(coord_lease *lease)
{
    tutti_coordinator *self = lease->owner;

    lease->ended = true;
    tutti_timers_stop(&self->timers, &lease->timer);
    tutti_list_remove(&lease->link);
    tutti_list_add(&self->leases_ending, &lease->link);
    coord_defer(self, &self->lease_task);
}

/* A lease whose end cannot be recorded has not ended: nobody may be told what a restart takes back. */
static tutti_code
end_lease(coord_lease *lease, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (!lease->ended) {
        lease->ended = true;
        code = put_lease_record(lease, err);
    }
    if (code != TUTTI_OK) {
        lease->ended = false;
        put_off(lease);
        return code;
    }
    begin_ending(lease);
    return TUTTI_OK;
}

static size_t
on_lease_task(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, lease_task);
    size_t done = 0;

    for (; done < budget && !tutti_list_empty(&self->leases_ending); done++) {
        coord_lease *lease = tutti_container_of(self->leases_ending.next, coord_lease, link);

        if ((tutti_list_empty(&lease->keys) ? finish_lease(lease, NULL) : end_key(lease, NULL)) !=
            TUTTI_OK) {
            put_off(lease);
        }
    }
    if (!tutti_list_empty(&self->leases_ending)) {
        coord_defer(self, work);
    }
    return done;
}

/*
 * Not kept for its time: due, and judged in an idle turn. For twice its time: a coordinator that is
 * never idle ends it now.
 */
static void
on_lease_expiry(tutti_timer *timer)
{
    coord_lease *lease = tutti_container_of(timer, coord_lease, timer);
    tutti_coordinator *self = lease->owner;
    const uint64_t end_ns = ends_at(lease);

    if (lease->ended || tutti_clock_add(end_ns, lease->ttl_ns) <= self->now_ns) {
        (void)end_lease(lease, NULL);
    } else if (end_ns > self->now_ns) {
        tutti_timers_start(&self->timers, timer, end_ns);
    } else {
        tutti_list_remove(&lease->link);
        tutti_list_add(&self->leases_due, &lease->link);
        tutti_timers_start(&self->timers, timer, tutti_clock_add(end_ns, lease->ttl_ns));
    }
}

void
coord_leases_judge(tutti_coordinator *self, size_t budget)
{
    tutti_list_node *link;

    while (budget-- > 0 && (link = tutti_list_pop(&self->leases_due)) != NULL) {
        coord_lease *lease = tutti_container_of(link, coord_lease, link);

        if (ends_at(lease) <= self->now_ns) {
            (void)end_lease(lease, NULL);
        }
    }
}

/* ------------------------------------------------------------------------------ granting */

static void
keep_lease(coord_lease *lease)
{
    tutti_coordinator *self = lease->owner;

    lease->kept_ns = self->now_ns;
    tutti_list_remove(&lease->link);
    tutti_timers_start(&self->timers, &lease->timer, ends_at(lease));
}

static tutti_coordinator_lease
describe_lease(const coord_lease *lease)
{
    const uint64_t end_ns = ends_at(lease);
    const uint64_t now_ns = lease->owner->now_ns;

    return (tutti_coordinator_lease){.id = lease->id,
                                     .ttl_ns = lease->ttl_ns,
                                     .left_ns = end_ns > now_ns ? end_ns - now_ns : 0,
                                     .key_count = lease->key_count};
}

static coord_lease *
lease_new(tutti_coordinator *self, const char *job, uint64_t id, uint64_t ttl_ns)
{
    coord_lease *lease = calloc(1, sizeof(*lease));

    if (lease != NULL) {
        lease->owner = self;
        lease->id = id;
        lease->ttl_ns = ttl_ns;
        lease->timer.on_expiry = on_lease_expiry;
        tutti_list_init(&lease->link);
        tutti_list_init(&lease->keys);
        lease->node.key = write_name(job, id, lease->name);
        (void)tutti_map_add(&self->leases, &lease->node);
    }
    return lease;
}

static tutti_code
check_ttl(const tutti_coordinator *self, uint64_t ttl_ns, tutti_error *err)
{
    const tutti_coordinator_options *options = &self->options;

    if (ttl_ns < options->lease_min_ns || ttl_ns > options->lease_max_ns) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LEASE_TTL",
                              "a lease of %" PRIu64 " ms, need %" PRIu64 " to %" PRIu64
                              " ms (--lease-min, --lease-max)",
                              (uint64_t)(ttl_ns / TUTTI_NS_PER_MS),
                              (uint64_t)(options->lease_min_ns / TUTTI_NS_PER_MS),
                              (uint64_t)(options->lease_max_ns / TUTTI_NS_PER_MS));
    }
    return TUTTI_OK;
}

/* A number that no lease of the job has, those that end included. */
static uint64_t
draw_lease(tutti_coordinator *self, const char *job)
{
    unsigned char name[TUTTI_NAME_MAX + 1 + 8];
    uint64_t id;

    do {
        id = tutti_id_draw();
    } while (tutti_map_find(&self->leases, write_name(job, id, name)) != NULL);
    return id;
}

/* One of this number that just ends goes first. */
static tutti_code
make_lease(tutti_coordinator *self, const char *job, uint64_t id, uint64_t ttl_ns,
           coord_lease **ret_lease, tutti_error *err)
{
    bool existed;
    uint64_t key_count;

    TUTTI_TRY(tutti_coordinator_lease_revoke(self, job, id, &existed, &key_count, err));
    if (self->leases.count >= self->options.lease_limit) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "LEASE_LIMIT",
                              "there are %zu leases, the limit (--lease-limit): revoke some, or "
                              "set several keys with one lease",
                              self->leases.count);
    }
    *ret_lease = lease_new(self, job, id, ttl_ns);
    return *ret_lease == NULL ? coord_fail_memory(err, "a lease") : TUTTI_OK;
}

tutti_code
tutti_coordinator_lease_grant(tutti_coordinator *self, const char *job, uint64_t id,
                              uint64_t ttl_ns, tutti_coordinator_lease *ret_lease, tutti_error *err)
{
    coord_lease *lease = NULL;
    coord_lease *made = NULL;
    uint64_t before_ns;
    tutti_code code;

    TUTTI_TRY(coord_check_job(job, &job, err));
    TUTTI_TRY(check_ttl(self, ttl_ns, err));
    id = id == 0 ? draw_lease(self, job) : id;
    lease = find_lease(self, job, id);
    if (lease == NULL) {
        TUTTI_TRY(make_lease(self, job, id, ttl_ns, &made, err));
        lease = made;
    }
    before_ns = lease->ttl_ns;
    lease->ttl_ns = ttl_ns;
    code = made != NULL || before_ns != ttl_ns ? put_lease_record(lease, err) : TUTTI_OK;
    if (code != TUTTI_OK) {
        lease->ttl_ns = before_ns;
        if (made != NULL) {
            free_lease(made);
        }
        return code;
    }
    keep_lease(lease);
    *ret_lease = describe_lease(lease);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_lease_keep(tutti_coordinator *self, const char *job, uint64_t id,
                             tutti_coordinator_lease *ret_lease, tutti_error *err)
{
    coord_lease *lease;

    TUTTI_TRY(coord_check_job(job, &job, err));
    TUTTI_TRY(get_lease(self, job, id, &lease, err));
    keep_lease(lease);
    *ret_lease = describe_lease(lease);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_lease_revoke(tutti_coordinator *self, const char *job, uint64_t id,
                               bool *ret_existed, uint64_t *ret_key_count, tutti_error *err)
{
    unsigned char name[TUTTI_NAME_MAX + 1 + 8];
    tutti_map_node *node;
    coord_lease *lease;

    TUTTI_TRY(coord_check_job(job, &job, err));
    node = tutti_map_find(&self->leases, write_name(job, id, name));
    *ret_existed = node != NULL;
    *ret_key_count = 0;
    if (node == NULL) {
        return TUTTI_OK;
    }
    lease = tutti_container_of(node, coord_lease, node);
    TUTTI_TRY(end_lease(lease, err)); /* what fails below goes on by the task */
    for (; !tutti_list_empty(&lease->keys); (*ret_key_count)++) {
        TUTTI_TRY(end_key(lease, err));
    }
    return finish_lease(lease, err);
}

tutti_code
tutti_coordinator_lease_list(tutti_coordinator *self, const char *job, uint64_t after,
                             tutti_coordinator_lease *ret_leases, size_t *ret_count, bool *ret_more,
                             tutti_error *err)
{
    unsigned char name[TUTTI_NAME_MAX + 1 + 8];
    tutti_map_node *node = NULL;
    size_t job_size;

    TUTTI_TRY(coord_check_job(job, &job, err));
    job_size = strlen(job) + 1;
    *ret_count = 0;
    *ret_more = false;
    if (after < UINT64_MAX) {
        node = tutti_map_from(&self->leases, write_name(job, after + 1, name));
    }
    for (; node != NULL && node->key.size == job_size + 8 &&
           memcmp(node->key.data, job, job_size) == 0;
         node = tutti_map_next(node)) {
        *ret_more = *ret_count == TUTTI_COORDINATOR_LEASE_PAGE;
        if (*ret_more) {
            break;
        }
        ret_leases[(*ret_count)++] = describe_lease(tutti_container_of(node, coord_lease, node));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ restoring */

/* A time of another --lease-max is cut to this one's; one that cannot be read is the least. Without a time it had ended. */
static void
load_lease(tutti_coordinator *self, const tutti_store_entry *entry)
{
    coord_reading key = {(const unsigned char *)entry->key.data + 2, entry->key.size - 2, false};
    coord_reading value = {entry->value.data, entry->value.size, false};
    const char *job = coord_reading_key_text(&key);
    const uint64_t id = coord_reading_big_u64(&key);
    uint64_t ttl_ns = coord_reading_u64(&value);
    const bool had_ended = ttl_ns == 0 && !value.failed;
    coord_lease *lease;

    if (key.failed || id == 0 || coord_check_job(job, &job, NULL) != TUTTI_OK) {
        return; /* no lease of ours */
    }
    ttl_ns = ttl_ns < self->options.lease_min_ns ? self->options.lease_min_ns : ttl_ns;
    ttl_ns = ttl_ns > self->options.lease_max_ns ? self->options.lease_max_ns : ttl_ns;
    lease = lease_new(self, job, id, ttl_ns);
    if (lease != NULL && had_ended) {
        begin_ending(lease);
    } else if (lease != NULL) {
        keep_lease(lease);
    }
}

/* One without its lease is kept until drop_stale. */
static void
load_leased_key(tutti_coordinator *self, const tutti_store_entry *entry)
{
    coord_reading value = {entry->value.data, entry->value.size, false};
    const uint64_t id = coord_reading_u64(&value);
    const tutti_bytes full = {(const unsigned char *)entry->key.data + 2, entry->key.size - 2};
    const char *job = full.data;
    coord_leased_key *one;

    if (full.size == 0 || full.size > sizeof(((coord_full_key *)NULL)->data) ||
        memchr(full.data, 0, full.size) == NULL ||
        coord_check_job((const char *)full.data, &job, NULL) != TUTTI_OK ||
        (one = leased_key_new(full)) == NULL) {
        return;
    }
    one->lease = value.failed ? NULL : find_any_lease(self, job, id);
    if (one->lease != NULL) {
        attach_key(self, one);
    } else {
        (void)tutti_map_add(&self->leased, &one->node);
    }
}

/* Records without their lease or key: a crash came between a deletion and the record's. */
static void
drop_stale(tutti_coordinator *self)
{
    tutti_map_node *node = tutti_map_first(&self->leased);
    tutti_store_entry entry;

    while (node != NULL) {
        coord_leased_key *one = tutti_container_of(node, coord_leased_key, node);

        node = tutti_map_next(node);
        if (one->lease == NULL ||
            tutti_store_get(self->store, one->node.key, &entry, NULL) != TUTTI_OK) {
            coord_lease_drop_key(self, one->node.key);
        }
    }
}

void
coord_leases_restore(tutti_coordinator *self)
{
    coord_records_each(self, LEASE_LETTER, load_lease);
    coord_records_each(self, KEY_LETTER, load_leased_key);
    drop_stale(self);
}

void
coord_leases_init(tutti_coordinator *self)
{
    tutti_map_init(&self->leases);
    tutti_map_init(&self->leased);
    tutti_list_init(&self->leases_due);
    tutti_list_init(&self->leases_ending);
    tutti_list_init(&self->leased_stale);
    self->leased_timer.on_expiry = on_leased_expiry;
    coord_task_init(&self->lease_task, on_lease_task);
}

/* What is recorded stays for the next process. */
void
coord_leases_fini(tutti_coordinator *self)
{
    tutti_map_node *node;

    tutti_timers_stop(&self->timers, &self->leased_timer);
    while ((node = tutti_map_first(&self->leased)) != NULL) {
        detach_key(self, tutti_container_of(node, coord_leased_key, node));
    }
    while ((node = tutti_map_first(&self->leases)) != NULL) {
        free_lease(tutti_container_of(node, coord_lease, node));
    }
}
