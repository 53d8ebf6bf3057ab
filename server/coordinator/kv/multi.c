/*
 * Many keys in one call. Reads see one moment and writes are one change of the store, because the
 * core has one thread and tutti_store_apply does all or none; watches are told behind that, key
 * by key, with one version.
 */
#include "server/coordinator/kv/multi.h"

#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/kv/queue.h"

#define SHOWN_MAX 16 /* missing keys that the text lists */

bool
coord_key_exists(tutti_coordinator *self, const coord_full_key *full, bool queues_too)
{
    tutti_store_entry entry;

    return tutti_store_get(self->store, coord_full_key_bytes(full), &entry, NULL) == TUTTI_OK ||
           (queues_too && coord_queue_exists(self, full));
}

tutti_code
coord_check_key_count(size_t count, tutti_error *err)
{
    if (count == 0 || count > TUTTI_COORDINATOR_WAIT_KEYS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "KEYS_LIMIT",
                              "%zu keys in one call, need 1 to %d", count,
                              TUTTI_COORDINATOR_WAIT_KEYS_MAX);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ collect */

/*
 * Add a value to the page. Its place is an offset until all are there, because the buffer moves
 * while it grows.
 */
static tutti_code
collect_one(tutti_coordinator_page *page, const tutti_store_entry *entry, tutti_error *err)
{
    if (entry->value.size > TUTTI_COORDINATOR_MULTI_BYTES - page->bytes.size) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_RESOURCE_EXHAUSTED, "MULTI_LIMIT",
            "the values hold more than %u bytes, the limit of one answer: ask for "
            "fewer keys",
            TUTTI_COORDINATOR_MULTI_BYTES);
    }
    page->entries[page->count++] = (tutti_store_entry){
        .value = {(void *)page->bytes.size, entry->value.size}, .version = entry->version};
    return tutti_buf_add(&page->bytes, entry->value.data, entry->value.size, err);
}

static void
point_multi(tutti_coordinator_page *page)
{
    size_t i;

    for (i = 0; i < page->count && page->bytes.data != NULL; i++) {
        tutti_bytes *value = &page->entries[i].value;

        value->data = page->bytes.data + (uintptr_t)value->data;
    }
}

tutti_code
coord_keys_collect(tutti_coordinator *self, const char *job, coord_nth_key_fn nth, const void *arg,
                   size_t count, tutti_coordinator_page *ret_page, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    tutti_store_entry entry;
    coord_full_key full;
    size_t i;

    tutti_buf_init(&ret_page->bytes, TUTTI_COORDINATOR_MULTI_BYTES);
    ret_page->entries = calloc(count, sizeof(tutti_store_entry));
    if (ret_page->entries == NULL) {
        return coord_fail_memory(err, "a page of values");
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        const tutti_coordinator_key key = {job, nth(arg, i)};

        code = coord_full_key_write(self, &key, 1, &full, err);
        if (code == TUTTI_OK) {
            code = coord_key_get(self, &full, &entry, err);
        }
        if (code == TUTTI_OK) {
            code = collect_one(ret_page, &entry, err);
        }
    }
    point_multi(ret_page);
    return code;
}

/* ------------------------------------------------------------------------------ get, check */

/* Ask for each; `missing` gets the first ones' words. */
static tutti_code
check_multi(tutti_coordinator *self, const tutti_coordinator_keys *keys, bool queues_too,
            bool *ret_exist, size_t *ret_missing, tutti_text *missing, tutti_error *err)
{
    coord_full_key full;
    char text[80];
    size_t i;

    *ret_missing = 0;
    for (i = 0; i < keys->count; i++) {
        const tutti_coordinator_key key = {keys->job, keys->keys[i]};
        const tutti_code code = coord_full_key_write(self, &key, 1, &full, err);
        bool exists;

        if (code != TUTTI_OK) {
            return code;
        }
        exists = coord_key_exists(self, &full, queues_too);
        if (ret_exist != NULL) {
            ret_exist[i] = exists;
        }
        if (!exists && missing != NULL && *ret_missing < SHOWN_MAX) {
            coord_quote(key.key, 32, text, sizeof(text));
            tutti_text_add(missing, "%s\"%s\"", *ret_missing == 0 ? "" : ", ", text);
        }
        *ret_missing += exists ? 0 : 1;
    }
    return TUTTI_OK;
}

static tutti_bytes
nth_of_keys(const void *arg, size_t index)
{
    const tutti_coordinator_keys *keys = arg;

    return keys->keys[index];
}

tutti_code
tutti_coordinator_keys_get(tutti_coordinator *self, const tutti_coordinator_keys *keys,
                           tutti_coordinator_page *ret_page, tutti_error *err)
{
    char buffer[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    size_t missing = 0;

    TUTTI_TRY(coord_check_key_count(keys->count, err));
    TUTTI_TRY(check_multi(self, keys, false, NULL, &missing, &text, err));
    if (missing > 0) {
        if (missing > SHOWN_MAX) {
            tutti_text_add(&text, ", and %zu more", missing - SHOWN_MAX);
        }
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_KEY", "%zu of %zu keys are not there: %s",
                              missing, keys->count, buffer);
    }
    return coord_keys_collect(self, keys->job, nth_of_keys, keys, keys->count, ret_page, err);
}

tutti_code
tutti_coordinator_keys_check(tutti_coordinator *self, const tutti_coordinator_keys *keys,
                             bool *ret_exist, bool *ret_all, tutti_error *err)
{
    size_t missing = 0;

    TUTTI_TRY(coord_check_key_count(keys->count, err));
    TUTTI_TRY(check_multi(self, keys, true, ret_exist, &missing, NULL, err));
    *ret_all = missing == 0;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ set */

/* Changes, the full keys they point to, and what they do to leases. */
typedef struct batch {
    tutti_store_change *changes; /* those of the keys, then those of their leases */
    coord_full_key *full;
    coord_lease_change *leased;
    size_t change_count;
    size_t leased_count;
} batch;

static tutti_code
batch_fill(tutti_coordinator *self, const tutti_coordinator_keys *keys, const tutti_bytes *values,
           uint64_t lease, batch *whole, tutti_error *err)
{
    size_t bytes = 0;
    size_t i;

    for (i = 0; i < keys->count; i++) {
        const tutti_coordinator_key key = {keys->job, keys->keys[i]};

        TUTTI_TRY(coord_full_key_write(self, &key, 1, &whole->full[i], err));
        bytes += key.key.size + values[i].size;
        whole->changes[i] =
            (tutti_store_change){.key = coord_full_key_bytes(&whole->full[i]), .value = values[i]};
    }
    if (bytes > TUTTI_COORDINATOR_MULTI_BYTES) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MULTI_LIMIT",
                              "keys and values of %zu bytes in one call, at most %u", bytes,
                              TUTTI_COORDINATOR_MULTI_BYTES);
    }
    whole->change_count = keys->count;
    for (i = 0; i < keys->count; i++) {
        TUTTI_TRY(coord_lease_change_begin(self, &whole->full[i], lease, &whole->leased[i], err));
        whole->leased_count++;
        whole->change_count +=
            coord_lease_change_write(&whole->leased[i], &whole->changes[whole->change_count]);
    }
    return TUTTI_OK;
}

static tutti_code
batch_new(size_t count, batch *ret_whole, tutti_error *err)
{
    ret_whole->changes = calloc(2 * count, sizeof(*ret_whole->changes));
    ret_whole->full = calloc(count, sizeof(*ret_whole->full));
    ret_whole->leased = calloc(count, sizeof(*ret_whole->leased));
    return ret_whole->changes == NULL || ret_whole->full == NULL || ret_whole->leased == NULL
               ? coord_fail_memory(err, "keys to store")
               : TUTTI_OK;
}

/* [in] done  the store has it */
static void
batch_end(tutti_coordinator *self, batch *whole, bool done)
{
    size_t i;

    for (i = 0; i < whole->leased_count; i++) {
        coord_lease_change_end(self, &whole->leased[i], done);
    }
}

static void
tell_all(tutti_coordinator *self, const batch *whole, size_t count, uint64_t version)
{
    size_t i;

    for (i = 0; i < count; i++) {
        const coord_news news = {.kind = TUTTI_COORDINATOR_SET,
                                 .full = whole->changes[i].key,
                                 .job_size = whole->full[i].job_size,
                                 .value = whole->changes[i].value,
                                 .version = version};

        coord_key_tell(self, &news);
    }
}

tutti_code
tutti_coordinator_keys_set(tutti_coordinator *self, const tutti_coordinator_keys *keys,
                           const tutti_bytes *values, uint64_t *ret_version, tutti_error *err)
{
    return tutti_coordinator_keys_set_leased(self, keys, values, 0, ret_version, err);
}

tutti_code
tutti_coordinator_keys_set_leased(tutti_coordinator *self, const tutti_coordinator_keys *keys,
                                  const tutti_bytes *values, uint64_t lease, uint64_t *ret_version,
                                  tutti_error *err)
{
    batch whole = {0};
    tutti_code code;

    TUTTI_TRY(coord_check_key_count(keys->count, err));
    code = batch_new(keys->count, &whole, err);
    if (code == TUTTI_OK) {
        code = batch_fill(self, keys, values, lease, &whole, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_store_apply(self->store, whole.changes, whole.change_count, ret_version, err);
    }
    batch_end(self, &whole, code == TUTTI_OK);
    if (code == TUTTI_OK) {
        tell_all(self, &whole, keys->count, *ret_version);
    }
    free(whole.changes);
    free(whole.full);
    free(whole.leased);
    return code;
}
