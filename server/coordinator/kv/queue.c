/*
 * Queues: a record with the numbers of the first value and of the next to come, and a record for
 * each value. Both records of a push or pop are written by one change of the store, so a crash
 * leaves neither a value that no number points to nor a number without its value. The queue's
 * record goes with its last value, so an empty queue leaves nothing.
 */
#include "server/coordinator/kv/queue.h"

#include <assert.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/retry_cache.h"
#include "server/coordinator/kv/take.h"

/* The numbers of a queue's first value and of the one to come. */
typedef struct ends {
    uint64_t first;
    uint64_t next;
} ends;

#define ENDS_BYTES 16

/* ------------------------------------------------------------------------------ records */

void
coord_tagged_key_write(coord_tagged_key *key, coord_tag tag, const coord_full_key *full)
{
    const size_t before = tag == COORD_TAG_NONE ? 0 : 1;

    key->data[0] = (unsigned char)tag;
    memcpy(key->data + before, full->data, full->size);
    key->size = before + full->size;
}

tutti_bytes
coord_tagged_key_bytes(const coord_tagged_key *key)
{
    return (tutti_bytes){key->data, key->size};
}

static void
write_value_key(coord_tagged_key *key, const coord_full_key *full, uint64_t number)
{
    coord_tagged_key_write(key, COORD_TAG_VALUE, full);
    (void)tutti_map_key_u64(key->data + key->size, number);
    key->size += 8;
}

static uint64_t
read_u64(const unsigned char *bytes)
{
    uint64_t number = 0;
    int i;

    for (i = 0; i < 8; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

/* False: there is no queue, and both ends are 0. */
static bool
read_ends(tutti_coordinator *self, const coord_full_key *full, ends *ret_ends)
{
    coord_tagged_key key;
    tutti_store_entry entry;

    *ret_ends = (ends){0};
    coord_tagged_key_write(&key, COORD_TAG_QUEUE, full);
    if (tutti_store_get(self->store, coord_tagged_key_bytes(&key), &entry, NULL) != TUTTI_OK) {
        return false;
    }
    assert(entry.value.size == ENDS_BYTES); /* nobody else writes there */
    ret_ends->first = read_u64(entry.value.data);
    ret_ends->next = read_u64((const unsigned char *)entry.value.data + 8);
    return true;
}

/* A value comes or goes, and the ends with it, in one change. */
static tutti_code
change_queue(tutti_coordinator *self, const coord_full_key *full, const tutti_store_change *value,
             const ends *now, coord_ride *ride, uint64_t *ret_version, tutti_error *err)
{
    unsigned char bytes[ENDS_BYTES];
    tutti_store_change changes[2] = {*value, {.value = {bytes, sizeof(bytes)}}};
    coord_tagged_key key;

    (void)tutti_map_key_u64(bytes, now->first);
    (void)tutti_map_key_u64(bytes + 8, now->next);
    coord_tagged_key_write(&key, COORD_TAG_QUEUE, full);
    changes[1].key = coord_tagged_key_bytes(&key);
    changes[1].remove = now->first == now->next;
    return coord_retry_cache_apply(self, ride, changes, 2, ret_version, err);
}

bool
coord_queue_exists(tutti_coordinator *self, const coord_full_key *full)
{
    ends now;

    return read_ends(self, full, &now);
}

tutti_code
coord_queue_first(tutti_coordinator *self, const coord_full_key *full, tutti_store_entry *ret_entry,
                  tutti_error *err)
{
    coord_tagged_key key;
    char text[200];
    ends now;

    if (!read_ends(self, full, &now)) {
        coord_quote(coord_full_key_client(full), 48, text, sizeof(text));
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "QUEUE_EMPTY",
                              "queue \"%s\" of job %s is empty", text, (const char *)full->data);
    }
    write_value_key(&key, full, now.first);
    return tutti_store_get(self->store, coord_tagged_key_bytes(&key), ret_entry, err);
}

tutti_code
coord_queue_drop(tutti_coordinator *self, const coord_full_key *full, coord_ride *ride,
                 tutti_error *err)
{
    tutti_store_change gone = {.remove = true};
    coord_tagged_key key;
    ends now;

    (void)read_ends(self, full, &now);
    assert(now.first < now.next);
    write_value_key(&key, full, now.first);
    gone.key = coord_tagged_key_bytes(&key);
    now.first++;
    return change_queue(self, full, &gone, &now, ride, NULL, err);
}

/* ------------------------------------------------------------------------------ door */

static tutti_code
push_queue(tutti_coordinator *self, const coord_full_key *full, tutti_bytes value, coord_ride *ride,
           tutti_coordinator_changed *ret_changed, tutti_error *err)
{
    tutti_store_change come = {.value = value};
    coord_tagged_key key;
    ends now;

    (void)read_ends(self, full, &now);
    write_value_key(&key, full, now.next++);
    come.key = coord_tagged_key_bytes(&key);
    ride->answer.number = (int64_t)(now.next - now.first);
    TUTTI_TRY(change_queue(self, full, &come, &now, ride, &ret_changed->version, err));
    ret_changed->number = ride->answer.number;
    coord_tagged_key_write(&key, COORD_TAG_QUEUE, full);
    coord_waits_wake(self, coord_full_key_bytes(full)); /* waiters before takers */
    coord_takes_wake(self, coord_tagged_key_bytes(&key));
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_queue_push(tutti_coordinator *self, const tutti_coordinator_change *request,
                             tutti_bytes value, tutti_coordinator_changed *ret_changed,
                             tutti_error *err)
{
    coord_answer_key which;
    coord_ride ride = {&which, {0}};
    coord_full_key full;

    TUTTI_TRY(coord_full_key_write(self, &request->key, 1, &full, err));
    coord_answer_key_write(&which, COORD_ANSWER_PUSH, &full, request->token);
    if (coord_answer_find_changed(self, &which, ret_changed)) {
        return TUTTI_OK;
    }
    return push_queue(self, &full, value, &ride, ret_changed, err);
}

tutti_code
tutti_coordinator_queue_length(tutti_coordinator *self, const tutti_coordinator_key *key,
                               uint64_t *ret_length, tutti_error *err)
{
    coord_full_key full;
    ends now;

    TUTTI_TRY(coord_full_key_write(self, key, 1, &full, err));

    (void)read_ends(self, &full, &now);
    *ret_length = now.next - now.first;
    return TUTTI_OK;
}
