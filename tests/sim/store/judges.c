/* What the store has done, as it was seen below the coordinator, and what is judged by it (stores.c says what). */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/store/stores_private.h"

/* ------------------------------------------------------------------------------ what the store does */

/* Which lease a key has by the changes so far. */
static uint64_t *
lease_of(const char *key)
{
    size_t i;

    for (i = stores.change_count; i > 0; i--) {
        if (strcmp(stores.changes[i - 1].key, key) == 0) {
            return &stores.change_leases[i - 1];
        }
    }
    return NULL;
}

static held_lease *
find_lease(uint64_t id)
{
    uint32_t i;
    uint32_t k;

    for (i = 0; i < stores.holder_count; i++) {
        for (k = 0; k < stores.holders[i].count; k++) {
            if (stores.holders[i].leases[k].id == id) {
                return &stores.holders[i].leases[k];
            }
        }
    }
    return NULL;
}

leases_event *
stores_add_event(held_lease *lease, leases_kind kind, uint64_t begin_ns, uint64_t end_ns)
{
    leases_event *event = &lease->events[lease->count++];

    assert(lease->count <= EVENTS_MAX);
    *event = (leases_event){.kind = kind, .begin_ns = begin_ns, .end_ns = end_ns, .answered = true};
    return event;
}

static void
note_gone(uint64_t id, uint64_t version)
{
    held_lease *lease = id == 0 ? NULL : find_lease(id);

    if (lease != NULL && lease->era == stores.era) {
        (void)stores_add_event(lease, LEASES_GONE, sim_now_ns(), sim_now_ns());
        lease->versions[lease->count - 1] = version;
    }
}

static void
keep_raw(const tutti_store_change *change, uint64_t version)
{
    raw_change *raw = &stores.raws[stores.raw_count++];
    const size_t value_size = change->remove ? 0 : change->value.size;

    assert(stores.raw_count <= CHANGES_LIMIT);
    *raw = (raw_change){.version = version, .remove = change->remove, .value_size = value_size};
    raw->bytes = malloc(change->key.size + value_size + 1);
    assert(raw->bytes != NULL);
    memcpy(raw->bytes, change->key.data, change->key.size);
    if (value_size > 0) {
        memcpy(raw->bytes + change->key.size, change->value.data, value_size);
    }
    raw->node.key = (tutti_bytes){raw->bytes, change->key.size};
}

/* The client's key of a key of the store; NULL: it is none of this era. */
static const char *
client_key(const raw_change *raw, char text[WATCHES_KEY_MAX])
{
    static const char job[] = "default";
    char own[PREFIX_BYTES];

    (void)snprintf(own, sizeof(own), "e%" PRIu64 "/", stores.era);
    if (raw->node.key.size <= sizeof(job) || memcmp(raw->bytes, job, sizeof(job)) != 0) {
        return NULL;
    }
    (void)snprintf(text, WATCHES_KEY_MAX, "%.*s", (int)(raw->node.key.size - sizeof(job)),
                   (const char *)raw->bytes + sizeof(job));
    return strncmp(text, own, strlen(own)) == 0 ? text : NULL;
}

static bool
sets_lease(linear_kind kind)
{
    return kind == LINEAR_SET || kind == LINEAR_SET_ALL;
}

void
stores_on_change(const tutti_store_change *changes, size_t count, uint64_t version)
{
    size_t i;

    for (i = 0; i < count; i++) {
        const room_call *now = room_handling();
        char key[WATCHES_KEY_MAX];
        char value[32];
        raw_change *raw = &stores.raws[stores.raw_count];
        uint64_t before;
        uint64_t *lease;

        keep_raw(&changes[i], version);
        if (client_key(raw, key) == NULL) {
            continue;
        }
        lease = lease_of(key);
        before = lease == NULL ? 0 : *lease;
        (void)snprintf(value, sizeof(value), "%.*s", (int)raw->value_size,
                       (const char *)raw->bytes + raw->node.key.size);
        stores.changes[stores.change_count] =
            (watches_change){.kind = raw->remove ? WATCHES_DELETED : WATCHES_SET,
                             .version = version,
                             .at_ns = sim_now_ns(),
                             .value = raw->remove ? 0 : strtoll(value, NULL, 10)};
        memcpy(stores.changes[stores.change_count].key, key, sizeof(key));
        stores.change_leases[stores.change_count++] =
            raw->remove                                                       ? 0
            : now != NULL && now->kind == ROOM_OP && sets_lease(now->op.kind) ? now->op.lease
                                                                              : before;
        if (raw->remove) {
            note_gone(before, version);
        }
    }
    if (stores.kill_at > 0 && --stores.kill_at == 0) {
        stores_kill_soon();
    }
}

/* ------------------------------------------------------------------------------ judges */

static size_t
add_expiry(linear_op *ops, size_t count, const held_lease *lease, uint32_t key)
{
    ops[count] = (linear_op){.kind = LINEAR_EXPIRE,
                             .keys = {key},
                             .key_count = 1,
                             .lease = lease->id,
                             .begin = lease->begin_ns,
                             .end = LINEAR_OPEN};
    return count + 1;
}

#define EXPIRIES_MAX (HOLDERS_MAX * HELD_MAX * (1 + MANY))

static size_t
add_expiries(linear_op *ops, size_t count)
{
    uint32_t i;
    uint32_t k;
    uint32_t n;

    for (i = 0; i < stores.holder_count; i++) {
        for (k = 0; k < stores.holders[i].count; k++) {
            const held_lease *lease = &stores.holders[i].leases[k];

            if (lease->era == stores.era) {
                count = add_expiry(ops, count, lease, KEY_LEASED + i);
            }
            for (n = 0; n < MANY && lease->era == stores.era && lease->has_many; n++) {
                count = add_expiry(ops, count, lease, KEY_MANY + i * MANY + n);
            }
        }
    }
    return count;
}

void
stores_judge_answers(void)
{
    linear_op *ops = calloc(stores.op_count + EXPIRIES_MAX, sizeof(ops[0]));
    size_t count = 0;
    size_t i;

    assert(ops != NULL);
    for (i = 0; i < stores.op_count; i++) {
        if (stores.ops[i].key_count > 0) { /* else it has not happened */
            ops[count++] = stores.ops[i];
        }
    }
    if (!linear_check_versions(ops, count, stores.words, sizeof(stores.words))) {
        sim_fail("%s", stores.words);
    }
    count = add_expiries(ops, count);
    if (linear_check(ops, count, stores.words, sizeof(stores.words)) == LINEAR_BROKEN) {
        sim_fail("%s", stores.words);
    }
    free(ops);
}

void
stores_judge_watches(bool complete)
{
    uint32_t i;

    for (i = 0; i < stores.watcher_count; i++) {
        const watcher *one = &stores.watchers[i];

        if (one->era == stores.era &&
            !watches_check(stores.changes, stores.change_count, one->told, one->told_count,
                           one->prefix, complete, stores.words, sizeof(stores.words))) {
            sim_fail("watcher %u of \"%s\": %s", i, one->prefix, stores.words);
        }
    }
}

static int
compare_times(const void *left, const void *right)
{
    const leases_event *a = left;
    const leases_event *b = right;

    return a->begin_ns == b->begin_ns ? 0 : a->begin_ns < b->begin_ns ? -1 : 1;
}

/* One whose key another lease has taken ends unseen: judge_rest finds it if it does not. */
void
stores_judge_leases(void)
{
    uint32_t i;
    uint32_t k;

    for (i = 0; i < stores.holder_count; i++) {
        for (k = 0; k < stores.holders[i].count; k++) {
            held_lease *lease = &stores.holders[i].leases[k];

            qsort(lease->events, lease->count, sizeof(lease->events[0]), compare_times);
            if (lease->era == stores.era && lease->granted &&
                !leases_check(lease->events, lease->count, SLACK_NS, 0, stores.words,
                              sizeof(stores.words))) {
                sim_fail("holder %u, lease %016" PRIx64 ": %s", i, lease->id, stores.words);
            }
        }
    }
}

/* Records of leases, and keys that were set with one. */
void
stores_judge_leftovers(tutti_store *store)
{
    tutti_store_entry entry = {0};
    size_t i;

    while (tutti_store_next(store, tutti_bytes_of("!"), entry.key, &entry, NULL) == TUTTI_OK) {
        const char letter = ((const char *)entry.key.data)[1];

        if (letter == 'l' || letter == 'k') {
            sim_fail("all leases are over, and there is a record of %s",
                     letter == 'l' ? "one" : "a key of one");
        }
    }
    for (i = 0; i < stores.change_count; i++) {
        const uint64_t *lease = lease_of(stores.changes[i].key);

        if (*lease != 0) {
            sim_fail("all leases are over, and \"%s\" is there, which goes with one",
                     stores.changes[i].key);
        }
    }
}

/* ------------------------------------------------------------------------------ durability */

/* The last change of each key, up to a version. */
static size_t
replay(uint64_t version, tutti_map *ret_keys)
{
    size_t live = 0;
    size_t i;

    tutti_map_init(ret_keys);
    for (i = 0; i < stores.raw_count && stores.raws[i].version <= version; i++) {
        tutti_map_node *there = tutti_map_find(ret_keys, stores.raws[i].node.key);

        if (there != NULL) {
            live -= tutti_container_of(there, raw_change, node)->remove ? 0 : 1;
            tutti_map_remove(ret_keys, there);
        }
        (void)tutti_map_add(ret_keys, &stores.raws[i].node);
        live += stores.raws[i].remove ? 0 : 1;
    }
    return live;
}

void
stores_judge_contents(tutti_store *store)
{
    tutti_store_entry entry = {0};
    tutti_map keys;
    const size_t live = replay(tutti_store_version(store), &keys);
    size_t count = 0;

    while (tutti_store_next(store, (tutti_bytes){0}, entry.key, &entry, NULL) == TUTTI_OK) {
        tutti_map_node *node = tutti_map_find(&keys, entry.key);
        const raw_change *raw = node == NULL ? NULL : tutti_container_of(node, raw_change, node);

        if (raw == NULL || raw->remove || raw->version != entry.version ||
            !tutti_bytes_equal(entry.value,
                               (tutti_bytes){raw->bytes + raw->node.key.size, raw->value_size})) {
            sim_fail("behind a crash, at version %" PRIu64
                     ", a key of %zu bytes is not what it was",
                     tutti_store_version(store), entry.key.size);
        }
        count++;
    }
    if (count != live) {
        sim_fail("behind a crash, at version %" PRIu64 ", there are %zu keys, and were %zu",
                 tutti_store_version(store), count, live);
    }
}

void
stores_forget_behind(uint64_t version)
{
    uint32_t i;
    uint32_t k;
    size_t n;

    while (stores.raw_count > 0 && stores.raws[stores.raw_count - 1].version > version) {
        free(stores.raws[--stores.raw_count].bytes);
    }
    while (stores.change_count > 0 && stores.changes[stores.change_count - 1].version > version) {
        stores.change_count--;
    }
    for (i = 0; i < stores.holder_count; i++) {
        for (k = 0; k < stores.holders[i].count; k++) {
            held_lease *lease = &stores.holders[i].leases[k];
            size_t used = 0;

            for (n = 0; n < lease->count; n++) {
                if (lease->events[n].kind != LEASES_GONE || lease->versions[n] <= version) {
                    lease->versions[used] = lease->versions[n];
                    lease->events[used++] = lease->events[n];
                }
            }
            lease->count = used;
        }
    }
}

/* May the mode have lost what was answered, up to `version`? */
void
stores_judge_loss(uint64_t version)
{
    const bool may =
        stores.mode == DISK_MEMORY || (stores.power_was_cut && stores.mode != DISK_FULL);

    if (version < stores.answered && !may) {
        sim_fail("version %" PRIu64 " was answered, and behind a crash there is only %" PRIu64,
                 stores.answered, version);
    }
}

/* What an answer tells of is on the disk. */
void
stores_judge_answered(void)
{
    const uint64_t answered = room_answered(stores.room);

    stores.answered = answered > stores.answered ? answered : stores.answered;
    if ((stores.mode == DISK_ORDER || stores.mode == DISK_FULL) && !stores.power_was_cut &&
        answered > disk_synced(stores.disk)) {
        sim_fail("version %" PRIu64 " was answered, and the disk has %" PRIu64, answered,
                 disk_synced(stores.disk));
    }
}

void
stores_end_era(void)
{
    uint32_t i;

    sim_note("era %" PRIu64 " ends: answers were lost, as the store may", stores.era);
    stores_judge_answers();
    stores_judge_watches(false);
    stores_judge_leases();
    stores.era++;
    stores.op_count = 0;
    stores.change_count = 0;
    stores.seen = 0;
    for (i = 0; i < stores.watcher_count; i++) {
        stores.watchers[i].told_count = 0;
        stores.watchers[i].resumes = false;
    }
}
