/*
 * Listing and counting keys by prefix. A page is copied, so its bytes outlive the store's next
 * change; a client goes on behind the last key, so keys that come or go meanwhile may be in or
 * not. A count of many keys waits in `counting` and is done in slices, all such calls by turns.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"

#define COUNT_SLICE 16 /* keys that are counted in the time of one answer */

/* ------------------------------------------------------------------------------ list */

/* Copy an entry to the page; the pointers are offsets until the page is full. */
static tutti_code
keep_listing(tutti_coordinator_page *page, const tutti_store_entry *entry, bool keys_only,
             tutti_error *err)
{
    tutti_store_entry *kept = &page->entries[page->count];
    const tutti_bytes value = keys_only ? (tutti_bytes){0} : entry->value;

    *kept = (tutti_store_entry){.key = {(void *)page->bytes.size, entry->key.size},
                                .value = {(void *)(page->bytes.size + entry->key.size), value.size},
                                .version = entry->version};
    TUTTI_TRY(tutti_buf_add(&page->bytes, entry->key.data, entry->key.size, err));
    TUTTI_TRY(tutti_buf_add(&page->bytes, value.data, value.size, err));
    page->count++;
    return TUTTI_OK;
}

static void
point_listing(tutti_coordinator_page *page)
{
    size_t i;

    for (i = 0; i < page->count; i++) {
        tutti_store_entry *entry = &page->entries[i];

        entry->key.data = page->bytes.data + (uintptr_t)entry->key.data;
        entry->value.data = page->bytes.data + (uintptr_t)entry->value.data;
    }
}

static bool
is_full(const tutti_coordinator_page *page, size_t page_size, const tutti_store_entry *entry,
        bool keys_only)
{
    const size_t more = entry->key.size + (keys_only ? 0 : entry->value.size);

    return page->count == page_size ||
           (page->count > 0 && more > TUTTI_COORDINATOR_PAGE_BYTES - page->bytes.size);
}

static tutti_code
fill_listing(tutti_coordinator *self, const coord_full_key *prefix, const coord_full_key *after,
             const tutti_coordinator_list_request *request, tutti_coordinator_page *page,
             tutti_error *err)
{
    const size_t page_size =
        request->page_size == 0 ? TUTTI_COORDINATOR_PAGE_DEFAULT : request->page_size;
    tutti_bytes from = request->after.size == 0 ? (tutti_bytes){0} : coord_full_key_bytes(after);
    tutti_store_entry entry;
    tutti_code code;

    for (;;) {
        code = tutti_store_next(self->store, coord_full_key_bytes(prefix), from, &entry, err);
        /* NOT_FOUND is the end of the prefix. */
        if (code != TUTTI_OK) {
            return code == TUTTI_NOT_FOUND ? TUTTI_OK : code;
        }
        from = entry.key;
        coord_full_key_strip(prefix, &entry);
        if (is_full(page, page_size, &entry, request->keys_only)) {
            page->more = true;
            return TUTTI_OK;
        }
        code = keep_listing(page, &entry, request->keys_only, err);
        if (code != TUTTI_OK) {
            return code;
        }
    }
}

tutti_code
tutti_coordinator_key_list(tutti_coordinator *self, const tutti_coordinator_list_request *request,
                           tutti_coordinator_page *ret_page, tutti_error *err)
{
    const tutti_coordinator_key after_key = {request->prefix.job, request->after};
    coord_full_key prefix;
    coord_full_key after;

    TUTTI_TRY(coord_full_key_write(self, &request->prefix, 0, &prefix, err));
    TUTTI_TRY(coord_full_key_write(self, &after_key, 0, &after, err));
    if (request->page_size > TUTTI_COORDINATOR_PAGE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "PAGE_LIMIT",
                              "page of %u entries, at most %d", request->page_size,
                              TUTTI_COORDINATOR_PAGE_MAX);
    }
    tutti_buf_init(&ret_page->bytes, TUTTI_COORDINATOR_PAGE_BYTES);
    ret_page->entries = calloc(TUTTI_COORDINATOR_PAGE_MAX, sizeof(tutti_store_entry));
    if (ret_page->entries == NULL) {
        return coord_fail_memory(err, "a page of keys");
    }
    TUTTI_TRY(fill_listing(self, &prefix, &after, request, ret_page, err));
    point_listing(ret_page);
    return TUTTI_OK;
}

void
tutti_coordinator_page_fini(tutti_coordinator_page *page)
{
    free(page->entries);
    tutti_buf_fini(&page->bytes);
    *page = (tutti_coordinator_page){0};
}

/* ------------------------------------------------------------------------------ count */

static void
detach_listing(tutti_coordinator_count *count)
{
    coord_wait_stop(&count->wait);
    tutti_list_remove(&count->link);
}

static void
on_end(tutti_coordinator_pending_call *wait, const tutti_error *err)
{
    tutti_coordinator_count *count = tutti_container_of(wait, tutti_coordinator_count, wait);

    assert(err != NULL); /* it has no deadline */
    detach_listing(count);
    count->on_answer(count, 0, err);
}

/*
 * Count the next `most` keys. TUTTI_NOT_FOUND: all are counted; another code: the store has
 * failed. The last key is copied, because what the store lends ends with its next change.
 */
static tutti_code
resume_listing(tutti_coordinator_count *count, size_t most, tutti_error *err)
{
    tutti_store *store = count->wait.owner->store;
    const tutti_bytes prefix = {count->prefix, count->prefix_size};
    tutti_store_entry entry = {.key = {count->after, count->after_size}};
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < most; i++) {
        code = tutti_store_next(store, prefix, entry.key, &entry, err);
        if (code != TUTTI_OK) {
            return code;
        }
        count->number++;
    }
    memcpy(count->after, entry.key.data, entry.key.size);
    count->after_size = entry.key.size;
    return TUTTI_OK;
}

size_t
coord_on_count_task(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, count_task);
    tutti_list_node *link = tutti_list_pop(&self->counting);
    tutti_coordinator_count *count;
    tutti_code code;
    tutti_error err;

    if (link == NULL) {
        return 0;
    }
    count = tutti_container_of(link, tutti_coordinator_count, link);
    code = resume_listing(count, budget * COUNT_SLICE, &err);
    if (code == TUTTI_OK) {
        tutti_list_add(&self->counting, link);
    } else {
        detach_listing(count);
        count->on_answer(count, count->number, code == TUTTI_NOT_FOUND ? NULL : &err);
    }
    if (!tutti_list_empty(&self->counting)) {
        coord_defer(self, work);
    }
    return budget;
}

tutti_code
tutti_coordinator_count_start(tutti_coordinator *self, const tutti_coordinator_key *prefix,
                              tutti_coordinator_count *count, tutti_error *err)
{
    coord_full_key full;
    tutti_code code = coord_wait_check(self, err);

    if (code == TUTTI_OK) {
        code = coord_full_key_write(self, prefix, 0, &full, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    count->number = 0;
    count->after_size = 0;
    count->prefix_size = full.size;
    memcpy(count->prefix, full.data, full.size);
    count->wait.on_end = on_end;
    coord_wait_start(self, &count->wait, true, TUTTI_TIMERS_NEVER);
    tutti_list_add(&self->counting, &count->link);
    coord_defer(self, &self->count_task);
    return TUTTI_OK;
}

void
tutti_coordinator_count_withdraw(tutti_coordinator_count *count)
{
    if (count->wait.owner != NULL) {
        detach_listing(count);
    }
}
