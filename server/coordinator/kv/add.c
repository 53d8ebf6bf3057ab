/*
 * Changes that depend on the value before: counters and growing values. Read and write are one
 * step, since the core has one thread. A call with a token is answered from the retry cache if it
 * was done before; otherwise the change and its answer are written together (a "ride").
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/retry_cache.h"

#define NUMBER_MAX 24 /* bytes of a decimal number of 64 bits, its sign and the NUL */

/* -?[0-9]+ that fits. */
static bool
parse_number(tutti_bytes text, int64_t *ret_number)
{
    char copy[NUMBER_MAX];
    char *end = NULL;
    size_t digits;

    if (text.size == 0 || text.size >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    digits = strspn(copy + (copy[0] == '-' ? 1 : 0), "0123456789");
    if (digits == 0 || digits + (copy[0] == '-' ? 1 : 0) != text.size) {
        return false;
    }
    /* At most 20 digits came this far, and strtoll tells by errno if they do not fit. */
    errno = 0;
    *ret_number = strtoll(copy, &end, 10);
    return errno == 0 && *end == '\0';
}

static tutti_code
read_sum_number(tutti_coordinator *self, const coord_full_key *full, int64_t *ret_number,
                tutti_error *err)
{
    tutti_store_entry entry;
    char text[100];
    const tutti_code code = coord_key_get(self, full, &entry, err);

    *ret_number = 0;
    if (code == TUTTI_NOT_FOUND) {
        return TUTTI_OK;
    }
    if (code == TUTTI_OK && !parse_number(entry.value, ret_number)) {
        coord_quote(entry.value, 24, text, sizeof(text));
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_A_NUMBER",
                              "the value \"%s\" of %zu bytes is no decimal number of 64 bits", text,
                              entry.value.size);
    }
    return code;
}

static tutti_code
add_to_key(tutti_coordinator *self, const coord_full_key *full, int64_t delta, coord_ride *ride,
           tutti_coordinator_changed *ret_changed, tutti_error *err)
{
    char text[NUMBER_MAX];
    int64_t number = 0;
    int64_t sum = 0;

    TUTTI_TRY(read_sum_number(self, full, &number, err));

    if (__builtin_add_overflow(number, delta, &sum)) {
        return TUTTI_FAIL_FOR(err, TUTTI_OUT_OF_RANGE, "OVERFLOW",
                              "%" PRId64 " + %" PRId64
                              " does not fit into a signed number of 64 bits",
                              number, delta);
    }
    (void)snprintf(text, sizeof(text), "%" PRId64, sum);
    ride->answer.number = sum;
    TUTTI_TRY(coord_key_set(self, full, tutti_bytes_of(text), ride, &ret_changed->version, err));
    ret_changed->number = sum;
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_key_add(tutti_coordinator *self, const tutti_coordinator_change *change,
                          int64_t delta, tutti_coordinator_changed *ret_changed, tutti_error *err)
{
    coord_answer_key which;
    coord_ride ride = {&which, {0}};
    coord_full_key full;

    TUTTI_TRY(coord_full_key_write(self, &change->key, 1, &full, err));
    coord_answer_key_write(&which, COORD_ANSWER_ADD, &full, change->token);
    if (coord_answer_find_changed(self, &which, ret_changed)) {
        return TUTTI_OK;
    }
    return add_to_key(self, &full, delta, &ride, ret_changed, err);
}

/* ------------------------------------------------------------------------------ append */

/* `before` is lent by the store until it changes, so the whole is copied first. */
static tutti_code
set_both(tutti_coordinator *self, const coord_full_key *full, tutti_bytes before, tutti_bytes value,
         coord_ride *ride, tutti_coordinator_changed *ret_changed, tutti_error *err)
{
    tutti_bytes whole = {.size = before.size + value.size};
    char *bytes = malloc(whole.size + 1);
    tutti_code code;

    if (bytes == NULL) {
        return coord_fail_memory(err, "a longer value");
    }
    memcpy(bytes, before.size > 0 ? before.data : "", before.size);
    memcpy(bytes + before.size, value.size > 0 ? value.data : "", value.size);
    whole.data = bytes;
    ride->answer.number = (int64_t)whole.size;
    code = coord_key_set(self, full, whole, ride, &ret_changed->version, err);
    free(bytes);
    if (code == TUTTI_OK) {
        ret_changed->number = (int64_t)whole.size;
    }
    return code;
}

static tutti_code
append_to_key(tutti_coordinator *self, const coord_full_key *full, tutti_bytes value,
              coord_ride *ride, tutti_coordinator_changed *ret_changed, tutti_error *err)
{
    tutti_store_entry entry = {0};
    const tutti_code code = coord_key_get(self, full, &entry, err);

    if (code != TUTTI_OK && code != TUTTI_NOT_FOUND) {
        return code;
    }
    if (value.size > TUTTI_STORE_VALUE_MAX - entry.value.size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "VALUE_LIMIT",
                              "value of %zu bytes and %zu more, at most %u", entry.value.size,
                              value.size, TUTTI_STORE_VALUE_MAX);
    }
    return set_both(self, full, entry.value, value, ride, ret_changed, err);
}

tutti_code
tutti_coordinator_key_append(tutti_coordinator *self, const tutti_coordinator_change *change,
                             tutti_bytes value, tutti_coordinator_changed *ret_changed,
                             tutti_error *err)
{
    coord_answer_key which;
    coord_ride ride = {&which, {0}};
    coord_full_key full;

    TUTTI_TRY(coord_full_key_write(self, &change->key, 1, &full, err));
    coord_answer_key_write(&which, COORD_ANSWER_APPEND, &full, change->token);
    if (coord_answer_find_changed(self, &which, ret_changed)) {
        return TUTTI_OK;
    }
    return append_to_key(self, &full, value, &ride, ret_changed, err);
}
