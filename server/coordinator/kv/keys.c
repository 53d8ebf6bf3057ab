/*
 * Keys of jobs over the store: names, get, set, compare-and-set, delete. The store has one name
 * space for all jobs: a full key is "job NUL key". Each change goes to the store first and is
 * told to waits, takes and watches only when the store has it, so nobody sees a value that is not
 * stored.
 */
#include "server/coordinator/kv/keys.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/kv/retry_cache.h"

/* ------------------------------------------------------------------------------ full keys */

tutti_code
coord_full_key_write(tutti_coordinator *self, const tutti_coordinator_key *key, size_t least,
                     coord_full_key *ret_full, tutti_error *err)
{
    const char *job;

    TUTTI_TRY(coord_check_job(key->job, &job, err));
    if (key->key.size < least || key->key.size > TUTTI_COORDINATOR_KEY_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_KEY",
                              "key of %zu bytes, need %zu to %d", key->key.size, least,
                              TUTTI_COORDINATOR_KEY_MAX);
    }
    ret_full->job_size = strlen(job) + 1;
    ret_full->size = ret_full->job_size + key->key.size;
    memcpy(ret_full->data, job, ret_full->job_size);
    if (key->key.size > 0) {
        memcpy(ret_full->data + ret_full->job_size, key->key.data, key->key.size);
    }
    /*
     * Each use of a key comes through here, so the old keys of an ended job of this name are gone
     * before.
     */
    self->hooks->finish_gc(self, ret_full);
    return TUTTI_OK;
}

tutti_bytes
coord_full_key_bytes(const coord_full_key *full)
{
    return (tutti_bytes){full->data, full->size};
}

tutti_bytes
coord_full_key_client(const coord_full_key *full)
{
    return (tutti_bytes){full->data + full->job_size, full->size - full->job_size};
}

void
coord_full_key_strip(const coord_full_key *full, tutti_store_entry *entry)
{
    assert(entry->key.size >= full->job_size);
    entry->key.data = (const unsigned char *)entry->key.data + full->job_size;
    entry->key.size -= full->job_size;
}

/* ------------------------------------------------------------------------------ get, set, ... */

/* The error in the client's words: the store knows only the full key. */
tutti_code
coord_fail_no_key(const coord_full_key *full, tutti_error *err)
{
    char text[200];

    coord_quote(coord_full_key_client(full), 48, text, sizeof(text));
    return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_KEY", "there is no key \"%s\" in job %s", text,
                          (const char *)full->data);
}

tutti_code
coord_key_get(tutti_coordinator *self, const coord_full_key *full, tutti_store_entry *ret_entry,
              tutti_error *err)
{
    const tutti_code code =
        tutti_store_get(self->store, coord_full_key_bytes(full), ret_entry, err);

    if (code == TUTTI_NOT_FOUND) {
        return coord_fail_no_key(full, err);
    }
    if (code == TUTTI_OK) {
        coord_full_key_strip(full, ret_entry);
    }
    return code;
}

tutti_code
coord_key_set(tutti_coordinator *self, const coord_full_key *full, tutti_bytes value,
              coord_ride *ride, uint64_t *ret_version, tutti_error *err)
{
    const tutti_bytes bytes = coord_full_key_bytes(full);
    const tutti_store_change change = {.key = bytes, .value = value};
    coord_news news = {
        .kind = TUTTI_COORDINATOR_SET, .full = bytes, .job_size = full->job_size, .value = value};

    TUTTI_TRY(coord_retry_cache_apply(self, ride, &change, 1, &news.version, err));

    coord_key_tell(self, &news);
    *ret_version = news.version;
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_key_get(tutti_coordinator *self, const tutti_coordinator_key *key,
                          tutti_store_entry *ret_entry, tutti_error *err)
{
    coord_full_key full;

    TUTTI_TRY(coord_full_key_write(self, key, 1, &full, err));
    return coord_key_get(self, &full, ret_entry, err);
}

/* The key and what it has to do with a lease are one change. */
static tutti_code
set_leased(tutti_coordinator *self, const coord_full_key *full, tutti_bytes value, uint64_t lease,
           uint64_t *ret_version, tutti_error *err)
{
    const tutti_bytes bytes = coord_full_key_bytes(full);
    coord_news news = {
        .kind = TUTTI_COORDINATOR_SET, .full = bytes, .job_size = full->job_size, .value = value};
    tutti_store_change changes[2] = {{.key = bytes, .value = value}};
    coord_lease_change leased;
    tutti_code code;

    TUTTI_TRY(coord_lease_change_begin(self, full, lease, &leased, err));
    code =
        tutti_store_apply(self->store, changes, 1 + coord_lease_change_write(&leased, &changes[1]),
                          &news.version, err);
    coord_lease_change_end(self, &leased, code == TUTTI_OK);
    if (code == TUTTI_OK) {
        coord_key_tell(self, &news);
        *ret_version = news.version;
    }
    return code;
}

tutti_code
tutti_coordinator_key_set_leased(tutti_coordinator *self, const tutti_coordinator_key *key,
                                 tutti_bytes value, uint64_t lease, uint64_t *ret_version,
                                 tutti_error *err)
{
    coord_full_key full;

    TUTTI_TRY(coord_full_key_write(self, key, 1, &full, err));
    return set_leased(self, &full, value, lease, ret_version, err);
}

tutti_code
tutti_coordinator_key_set(tutti_coordinator *self, const tutti_coordinator_key *key,
                          tutti_bytes value, uint64_t *ret_version, tutti_error *err)
{
    return tutti_coordinator_key_set_leased(self, key, value, 0, ret_version, err);
}

/*
 * Does the stored value equal what the caller expects? No key equals "no key" (expected NULL),
 * and with missing_is_empty also zero bytes, as PyTorch's store has it.
 */
static bool
is_expected(const tutti_coordinator_swap_request *request, const tutti_coordinator_swap *now)
{
    if (!now->exists) {
        return request->expected == NULL ||
               (request->missing_is_empty && request->expected->size == 0);
    }
    return request->expected != NULL && tutti_bytes_equal(*request->expected, now->entry.value);
}

tutti_code
tutti_coordinator_key_swap(tutti_coordinator *self, const tutti_coordinator_swap_request *request,
                           tutti_coordinator_swap *ret_swap, tutti_error *err)
{
    tutti_coordinator_swap swap = {0};
    coord_full_key full;
    uint64_t version;
    tutti_code code;

    TUTTI_TRY(coord_full_key_write(self, &request->key, 1, &full, err));
    code = coord_key_get(self, &full, &swap.entry, err);
    if (code != TUTTI_OK && code != TUTTI_NOT_FOUND) {
        return code;
    }
    swap.exists = code == TUTTI_OK;
    swap.swapped = is_expected(request, &swap);
    code = TUTTI_OK;
    if (swap.swapped) {
        code = set_leased(self, &full, request->value, request->lease, &version, err);
        swap.exists = true;
        if (code == TUTTI_OK) {
            code = coord_key_get(self, &full, &swap.entry, err);
        }
    }
    if (code == TUTTI_OK) {
        *ret_swap = swap;
    }
    return code;
}

tutti_code
tutti_coordinator_key_delete(tutti_coordinator *self, const tutti_coordinator_key *key,
                             bool *ret_existed, tutti_error *err)
{
    coord_full_key full;
    coord_news news = {.kind = TUTTI_COORDINATOR_DELETED};

    TUTTI_TRY(coord_full_key_write(self, key, 1, &full, err));
    news.full = coord_full_key_bytes(&full);
    news.job_size = full.job_size;
    TUTTI_TRY(tutti_store_delete(self->store, news.full, ret_existed, &news.version, err));
    if (*ret_existed) {
        coord_key_tell(self, &news);
    }
    return TUTTI_OK;
}

void
coord_key_tell(tutti_coordinator *self, const coord_news *news)
{
    self->hooks->key_changed(self, news);
}
