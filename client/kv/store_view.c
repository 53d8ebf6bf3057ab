/*
 * A view of the store with a prefix: "prefix/key". Only names are made here; the store knows
 * nothing of views, so two views that come to the same key meet.
 */
#include <string.h>

#include "base/error/fail.h"
#include "tutti/store.h"

/* Put bytes behind what is there. */
static bool
add_store_view(char *bytes, size_t *size, const void *more, size_t more_size)
{
    if (more_size > TUTTI_KV_KEY_MAX - *size) {
        return false;
    }
    if (more_size > 0) {
        memcpy(bytes + *size, more, more_size);
    }
    *size += more_size;
    return true;
}

tutti_code
tutti_kv_view_init(tutti_kv_view *view, const tutti_kv_view *outer, const char *prefix,
                   tutti_error *err)
{
    tutti_kv_view fresh = {0};

    TUTTI_NEED(view, err);
    if (prefix == NULL || prefix[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_KEY",
                              "a view without a prefix: need a prefix of at least 1 byte");
    }
    if ((outer != NULL && !add_store_view(fresh.bytes, &fresh.size, outer->bytes, outer->size)) ||
        !add_store_view(fresh.bytes, &fresh.size, prefix, strlen(prefix)) ||
        !add_store_view(fresh.bytes, &fresh.size, "/", 1)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_KEY",
            "prefix of %zu bytes behind a prefix of %zu bytes, at most %d together",
            strlen(prefix) + 1, outer == NULL ? 0 : outer->size, TUTTI_KV_KEY_MAX);
    }
    *view = fresh;
    return TUTTI_OK;
}

tutti_code
tutti_kv_view_key(const tutti_kv_view *view, const void *key, size_t key_size, void *ret_key,
                  size_t *ret_size, tutti_error *err)
{
    TUTTI_NEED(key, err);
    TUTTI_NEED(ret_key, err);
    TUTTI_NEED(view, err);
    TUTTI_NEED(ret_size, err);

    size_t size = 0;

    if (view->size > TUTTI_KV_KEY_MAX || key_size > TUTTI_KV_KEY_MAX - view->size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_KEY",
                              "key of %zu bytes behind a prefix of %zu, at most %d together",
                              key_size, view->size, TUTTI_KV_KEY_MAX);
    }
    (void)add_store_view(ret_key, &size, view->bytes, view->size);
    (void)add_store_view(ret_key, &size, key, key_size);
    *ret_size = size;
    return TUTTI_OK;
}
