/*
 * Several changes at once. All are put in place, then the whole is compared with the limits, and
 * all are taken back when it is too much. Judging them one after the other would be wrong: a
 * change that first adds and then removes may pass a limit in the middle and keep it at the end.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "store/memory/memory_private.h"

/* A change under way. */
typedef struct step {
    record *fresh; /* NULL = the key goes */
    record *old;   /* NULL = there was none */
} step;

/* All memory is taken first, so that nothing can fail while the map is being changed. */
static tutti_code
make_fresh(const tutti_store_change *changes, size_t count, step *steps, tutti_error *err)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (!changes[i].remove) {
            TUTTI_TRY(
                store_memory_record_new(changes[i].key, changes[i].value, &steps[i].fresh, err));
        }
    }
    return TUTTI_OK;
}

/* What was lent may be among the keys: those of `fresh` are our own. Returns whether it changed. */
static bool
take_steps(store_memory *self, const tutti_store_change *changes, size_t count, step *steps)
{
    bool changed = false;
    size_t i;

    for (i = 0; i < count; i++) {
        step *one = &steps[i];

        one->old = store_memory_record_from(tutti_map_find(&self->records, changes[i].key));
        if (one->old != NULL) {
            store_memory_detach(self, one->old);
        }
        if (one->fresh != NULL) {
            one->fresh->version = self->version + 1;
            store_memory_attach(self, one->fresh);
        }
        changed = changed || one->old != NULL || one->fresh != NULL;
    }
    return changed;
}

/*
 * From the last to the first: a key that comes twice must end with the entry of before the first.
 */
static void
undo_steps(store_memory *self, size_t count, step *steps)
{
    while (count-- > 0) {
        if (steps[count].fresh != NULL) {
            store_memory_detach(self, steps[count].fresh);
        }
        if (steps[count].old != NULL) {
            store_memory_attach(self, steps[count].old);
            steps[count].old = NULL;
        }
    }
}

static bool
is_exempt(const tutti_store_change *changes, size_t count)
{
    size_t i;

    for (i = 0; i < count && !changes[i].exempt; i++) {
    }
    return i < count;
}

/* The limits, once all is in place. */
static tutti_code
check_whole(const store_memory *self, tutti_error *err)
{
    if (self->records.count > self->keys_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_LIMIT",
                              "the store would hold %zu keys, at most %" PRIu64
                              " (--store-keys-limit)",
                              self->records.count, self->keys_max);
    }
    if (self->used_bytes > self->bytes_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_LIMIT",
                              "the store would hold %" PRIu64 " bytes, at most %" PRIu64
                              " (--store-bytes-limit)",
                              self->used_bytes, self->bytes_max);
    }
    return TUTTI_OK;
}

/*
 * Frees the records that are in no map now: after success the old ones, after undoing the fresh
 * ones.
 */
static void
end_steps(size_t count, step *steps, bool done)
{
    size_t i;

    for (i = 0; i < count; i++) {
        store_memory_record_free(done ? steps[i].old : steps[i].fresh);
    }
    free(steps);
}

tutti_code
store_memory_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                   uint64_t *ret_version, tutti_error *err)
{
    store_memory *self = store_memory_from(store);
    step *steps = calloc(count + 1, sizeof(*steps));
    bool changed = false;
    tutti_code code;

    if (steps == NULL) {
        return store_memory_fail_memory(err, count * sizeof(*steps));
    }
    code = make_fresh(changes, count, steps, err);
    if (code == TUTTI_OK) {
        changed = take_steps(self, changes, count, steps);
        code = is_exempt(changes, count) ? TUTTI_OK : check_whole(self, err);
        if (code != TUTTI_OK) {
            undo_steps(self, count, steps);
        }
    }
    if (code == TUTTI_OK) {
        self->version += changed ? 1 : 0;
        *ret_version = self->version;
    }
    end_steps(count, steps, code == TUTTI_OK);
    return code;
}
