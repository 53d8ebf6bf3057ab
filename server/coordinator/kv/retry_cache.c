/*
 * The retry cache: answers to calls with tokens, kept for --retry-window, so that a call that is
 * made again (its answer was lost) is not done twice. Within the window an answer may go earlier
 * if all together pass --retry-bytes-limit: the oldest first.
 *
 * With the option `durable` each answer has a record in the store, written in one change with
 * what it answers: either both are there after a crash, or neither. Times in records are wall
 * time, since the monotonic clock begins anew.
 *
 * The list `answered` is in order of age. Expired answers without a record are dropped whenever
 * the cache is used; those with one go with the next change, FORGET_MAX at a time, so that no
 * call pays for many.
 */
#include "server/coordinator/kv/retry_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"

#define RECORD_LETTER 'a'
#define FORGET_MAX 2 /* records of old answers that go with a new one */
#define KIND_BYTES 1 /* behind the token, at the end of a key */
#define TOKEN_BYTES 8

/* An answer that is kept: its key, then its value. */
typedef struct kept_answer {
    tutti_map_node node;
    tutti_list_node link; /* the oldest first */
    uint64_t until_ns;
    bool stored; /* it has a record */
    coord_answer answer;
    size_t bytes;
    unsigned char data[];
} kept_answer;

/*
 * In busy times a hundred thousand answers are kept, and each level of a tree of them is a cache miss: with one tree,
 * looking for tokens was a fifth of what an Add cost. Tokens are random, so trees by their last bits are small;
 * a client that chooses its tokens has a tree as deep as one for all would be. A key that came from a store may be
 * of any size.
 */
static tutti_map *
answers_by(tutti_coordinator *self, tutti_bytes key)
{
    const unsigned char *token_end;

    if (key.size < TOKEN_BYTES + KIND_BYTES) {
        return &self->answers[0];
    }
    token_end = (const unsigned char *)key.data + key.size - KIND_BYTES;
    return &self->answers[((size_t)token_end[-2] << 8 | token_end[-1]) % COORD_ANSWER_MAPS];
}

static void
drop_kept(tutti_coordinator *self, kept_answer *one)
{
    tutti_map_remove(answers_by(self, one->node.key), &one->node);
    self->answer_count--;
    tutti_list_remove(&one->link);
    self->answer_bytes -= one->bytes;
    free(one);
}

static void write_record(coord_record *record, tutti_bytes key);

static void
drop_with_record(tutti_coordinator *self, kept_answer *one)
{
    coord_record record;

    if (one->stored) {
        write_record(&record, one->node.key);
        (void)tutti_store_delete(self->store, (tutti_bytes){record.key, record.key_size}, NULL,
                                 NULL, NULL); /* what stays behind goes after a restart */
        coord_record_fini(&record);
    }
    drop_kept(self, one);
}

/*
 * Drop expired answers from the front. No timer is needed: an expired answer is only memory, and
 * that has its limit.
 */
static void
drop_old(tutti_coordinator *self)
{
    while (!tutti_list_empty(&self->answered)) {
        kept_answer *one = tutti_container_of(self->answered.next, kept_answer, link);

        if (one->stored || one->until_ns > self->now_ns) {
            return;
        }
        drop_kept(self, one);
    }
}

static kept_answer *
find_kept_answer(tutti_coordinator *self, const coord_answer_key *key)
{
    const tutti_bytes bytes = {key->data, key->size};
    tutti_map_node *node = key->size == 0 ? NULL : tutti_map_find(answers_by(self, bytes), bytes);

    return node == NULL ? NULL : tutti_container_of(node, kept_answer, node);
}

void
coord_answer_key_write(coord_answer_key *key, coord_answer_kind kind, const coord_full_key *full,
                       uint64_t token)
{
    key->size = 0;
    if (token != 0) {
        memcpy(key->data, full->data, full->size);
        (void)tutti_map_key_u64(key->data + full->size, token);
        key->data[full->size + 8] = (unsigned char)kind;
        key->size = full->size + 9;
    }
}

bool
coord_answer_find(tutti_coordinator *self, const coord_answer_key *key, coord_answer *ret_answer)
{
    const kept_answer *one;

    drop_old(self);
    one = find_kept_answer(self, key);
    if (one == NULL || one->until_ns <= self->now_ns) {
        return false;
    }
    *ret_answer = one->answer;
    return true;
}

static kept_answer *
kept_new(const coord_answer_key *key, const coord_answer *answer)
{
    const size_t bytes = sizeof(kept_answer) + key->size + answer->value.size;
    kept_answer *one = calloc(1, bytes);

    if (one == NULL) {
        return NULL;
    }
    one->bytes = bytes;
    one->answer = *answer;
    memcpy(one->data, key->data, key->size);
    if (answer->value.size > 0) {
        memcpy(one->data + key->size, answer->value.data, answer->value.size);
    }
    one->answer.value.data = one->data + key->size;
    one->node.key = (tutti_bytes){one->data, key->size};
    return one;
}

/*
 * Keep an answer in memory. An older one of the same token goes. Without memory it is not kept: a
 * call that comes again counts again. The map is asked by adding to it, which is one walk through it less.
 */
static void
keep_kept(tutti_coordinator *self, const coord_answer_key *key, const coord_answer *answer,
          uint64_t until_ns, bool stored)
{
    kept_answer *one = kept_new(key, answer);
    tutti_map_node *there;
    tutti_map *map;

    if (one == NULL) {
        return;
    }
    map = answers_by(self, one->node.key);
    there = tutti_map_add(map, &one->node);
    if (there != NULL) {
        drop_kept(self, tutti_container_of(there, kept_answer, node));
        (void)tutti_map_add(map, &one->node);
    }
    self->answer_count++;
    one->until_ns = until_ns;
    one->stored = stored;
    tutti_list_add(&self->answered, &one->link);
    self->answer_bytes += one->bytes;
    while (self->answer_bytes > self->options.retry_bytes_limit) {
        drop_with_record(self, tutti_container_of(self->answered.next, kept_answer, link));
    }
}

/* ------------------------------------------------------------------------------ records */

/* Its key is that of the answer, which begins with the job. */
static void
write_record(coord_record *record, tutti_bytes key)
{
    const char *job = key.data;
    const size_t job_size = strlen(job) + 1;

    coord_record_begin(record, RECORD_LETTER, job);
    coord_record_key_bytes(record, job + job_size, key.size - job_size);
}

static void
fill_record(const tutti_coordinator *self, coord_record *record, const coord_answer *answer)
{
    coord_record_u64(record, (self->wall_ns + self->options.retry_window_ns) / TUTTI_NS_PER_MS);
    coord_record_u64(record, (uint64_t)answer->number);
    coord_record_u64(record, answer->version);
    coord_record_bytes(record, answer->value.data, answer->value.size);
}

/* Old answers whose records go: the first ones, as they stand in the list. */
static size_t
find_old(const tutti_coordinator *self, kept_answer *ret_old[FORGET_MAX])
{
    tutti_list_node *link = self->answered.next;
    size_t count = 0;

    while (link != &self->answered && count < FORGET_MAX) {
        kept_answer *one = tutti_container_of(link, kept_answer, link);

        if (one->until_ns > self->now_ns) {
            break;
        }
        ret_old[count++] = one;
        link = link->next;
    }
    return count;
}

static tutti_code
apply_with_record(tutti_coordinator *self, const coord_ride *ride,
                  const tutti_store_change *changes, size_t count, uint64_t *ret_version,
                  tutti_error *err)
{
    tutti_store_change all[COORD_RIDE_CHANGES_MAX + 1 + FORGET_MAX];
    coord_record records[1 + FORGET_MAX];
    kept_answer *old[FORGET_MAX];
    const size_t old_count = find_old(self, old);
    tutti_code code;
    size_t i;

    assert(count <= COORD_RIDE_CHANGES_MAX);
    /*
     * One change of the store: what the call does, old records that go, and the record of the
     * answer, the latter last, in case an old one has the same key.
     */
    memcpy(all, changes, count * sizeof(*changes));
    for (i = 0; i < old_count; i++) {
        write_record(&records[1 + i], old[i]->node.key);
        all[count + i] = (tutti_store_change){.key = {records[1 + i].key, records[1 + i].key_size},
                                              .remove = true};
    }
    write_record(&records[0], (tutti_bytes){ride->key->data, ride->key->size});
    fill_record(self, &records[0], &ride->answer);
    all[count + old_count] =
        (tutti_store_change){.key = {records[0].key, records[0].key_size},
                             .value = {records[0].value.data, records[0].value.size}};
    code = records[0].failed
               ? coord_fail_memory(err, "an answer")
               : tutti_store_apply(self->store, all, count + old_count + 1, ret_version, err);
    for (i = 0; i < 1 + old_count; i++) {
        coord_record_fini(&records[i]);
    }
    for (i = 0; i < old_count && code == TUTTI_OK; i++) {
        drop_kept(self, old[i]);
    }
    return code;
}

tutti_code
coord_retry_cache_apply(tutti_coordinator *self, coord_ride *ride,
                        const tutti_store_change *changes, size_t count, uint64_t *ret_version,
                        tutti_error *err)
{
    const bool kept = ride != NULL && ride->key->size > 0 && self->options.retry_window_ns > 0;
    const bool stored = kept && self->options.durable;
    /*
     * The version that the change will have: the answer is part of the change, so it is needed
     * before.
     */
    uint64_t version = tutti_store_version(self->store) + 1;

    if (kept && ride->answer.version == 0) {
        ride->answer.version = version;
    }
    TUTTI_TRY(stored ? apply_with_record(self, ride, changes, count, &version, err)
                     : tutti_store_apply(self->store, changes, count, &version, err));
    if (kept) {
        drop_old(self);
        keep_kept(self, ride->key, &ride->answer,
                  tutti_clock_add(self->now_ns, self->options.retry_window_ns), stored);
    }
    if (ret_version != NULL) {
        *ret_version = version;
    }
    return TUTTI_OK;
}

void
coord_answer_keep(tutti_coordinator *self, const coord_answer_key *key, const coord_answer *answer)
{
    coord_ride ride = {key, *answer};

    if (coord_retry_cache_apply(self, &ride, NULL, 0, NULL, NULL) != TUTTI_OK) {
        drop_old(self);
        keep_kept(self, key, answer, tutti_clock_add(self->now_ns, self->options.retry_window_ns),
                  false);
    }
}

/* ------------------------------------------------------------------------------ restoring */

/*
 * A record that cannot be read is forgotten with the next change, as an expired one. A clock that
 * was set back does not make an answer live longer than the window.
 */
static void
load_kept(tutti_coordinator *self, const tutti_store_entry *entry)
{
    coord_reading value = {entry->value.data, entry->value.size, false};
    coord_answer_key key = {.size = entry->key.size - 2};
    uint64_t until_ms = coord_reading_u64(&value);
    const uint64_t now_ms = self->wall_ns / TUTTI_NS_PER_MS;
    const uint64_t most_ms = self->options.retry_window_ns / TUTTI_NS_PER_MS;
    coord_answer answer = {.number = (int64_t)coord_reading_u64(&value)};

    answer.version = coord_reading_u64(&value);
    answer.value = coord_reading_bytes(&value);
    if (key.size > sizeof(key.data) || key.size == 0) {
        return;
    }
    memcpy(key.data, (const unsigned char *)entry->key.data + 2, key.size);
    if (value.failed || until_ms < now_ms) {
        until_ms = now_ms; /* it goes with the next change */
    }
    until_ms = until_ms - now_ms > most_ms ? now_ms + most_ms : until_ms;
    keep_kept(self, &key, &answer, self->now_ns + (until_ms - now_ms) * TUTTI_NS_PER_MS, true);
}

static int
compare_ages(const void *left, const void *right)
{
    const uint64_t a = (*(kept_answer *const *)left)->until_ns;
    const uint64_t b = (*(kept_answer *const *)right)->until_ns;

    return a == b ? 0 : a < b ? -1 : 1;
}

/*
 * The store gave them in the order of their keys. In that order one that is still needed would hold up
 * all that are expired behind it, and the limit of bytes would drop needed ones.
 */
static void
sort_by_age(tutti_coordinator *self)
{
    kept_answer **all = calloc(self->answer_count + 1, sizeof(kept_answer *));
    size_t count = 0;
    tutti_list_node *link;
    tutti_list_node *spare;
    size_t i;

    if (all == NULL) {
        return; /* as they are: bounded by the limit all the same */
    }
    tutti_list_each(link, spare, &self->answered)
    {
        all[count++] = tutti_container_of(link, kept_answer, link);
    }
    tutti_list_init(&self->answered);
    qsort(all, count, sizeof(kept_answer *), compare_ages);
    for (i = 0; i < count; i++) {
        tutti_list_add(&self->answered, &all[i]->link);
    }
    free(all);
}

void
coord_retry_cache_restore(tutti_coordinator *self)
{
    const char prefix[] = {'!', RECORD_LETTER};
    const uint64_t limit = self->options.retry_bytes_limit;
    tutti_store_entry entry = {0};

    self->options.retry_bytes_limit = UINT64_MAX; /* the walk stands on the store's entry */
    while (tutti_store_next(self->store, (tutti_bytes){prefix, sizeof(prefix)}, entry.key, &entry,
                            NULL) == TUTTI_OK) {
        load_kept(self, &entry);
    }
    self->options.retry_bytes_limit = limit;
    sort_by_age(self);
    while (self->answer_bytes > limit) {
        drop_with_record(self, tutti_container_of(self->answered.next, kept_answer, link));
    }
}

bool
coord_answer_find_changed(tutti_coordinator *self, const coord_answer_key *key,
                          tutti_coordinator_changed *ret_changed)
{
    coord_answer answer;
    const bool found = coord_answer_find(self, key, &answer);

    if (found) {
        *ret_changed =
            (tutti_coordinator_changed){.number = answer.number, .version = answer.version};
    }
    return found;
}

void
coord_retry_cache_init(tutti_coordinator *self)
{
    size_t i;

    for (i = 0; i < COORD_ANSWER_MAPS; i++) {
        tutti_map_init(&self->answers[i]);
    }
    tutti_list_init(&self->answered);
}

void
coord_retry_cache_fini(tutti_coordinator *self)
{
    while (!tutti_list_empty(&self->answered)) {
        drop_kept(self, tutti_container_of(self->answered.next, kept_answer, link));
    }
}
