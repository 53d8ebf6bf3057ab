/*
 * Wait and MultiGet: wait until all of some keys exist at one moment.
 *
 * Only the keys that are missing are subscribed to, and each subscription ends when its key
 * comes. When none is missing any more the call is ready; in its turn all keys are looked up
 * again, because one that came may be gone by now: then the call waits on for those. So the
 * answer is true at the moment at which it is given, and a key that comes and goes between two
 * turns may be missed.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/key_subscription.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/multi.h"

#define SHOWN_MAX 16  /* missing keys that the text lists */
#define CHECK_COST 16 /* keys that are looked up in the time of one answer */

/* One key that a call waits for. */
typedef struct coord_wanted_key {
    tutti_list_node link;                 /* in its subscription */
    coord_key_subscription *subscription; /* NULL = the key was there */
    tutti_coordinator_key_wait *wait;
    tutti_bytes key; /* borrowed from the request */
} coord_wanted_key;

static void
unregister_wait(tutti_coordinator *self, tutti_coordinator_key_wait *wait)
{
    size_t i;

    for (i = 0; i < wait->count; i++) {
        coord_wanted_key *want = &wait->wants[i];

        if (want->subscription != NULL) {
            (void)coord_key_subscription_remove(&self->wanted, want->subscription, &want->link);
            want->subscription = NULL;
        }
    }
    wait->missing = 0;
}

/* Wait for those keys that are not there now. On failure for none. */
static tutti_code
register_missing(tutti_coordinator *self, tutti_coordinator_key_wait *wait, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    coord_full_key full;
    size_t i;

    wait->missing = 0;
    for (i = 0; i < wait->count && code == TUTTI_OK; i++) {
        coord_wanted_key *want = &wait->wants[i];
        const tutti_coordinator_key key = {wait->job, want->key};

        code = coord_full_key_write(self, &key, 1, &full, err);
        if (code == TUTTI_OK && !coord_key_exists(self, &full, !wait->with_values)) {
            code = coord_key_subscription_add(&self->wanted, coord_full_key_bytes(&full),
                                              &want->link, &want->subscription, NULL, err);
            wait->missing += code == TUTTI_OK ? 1 : 0;
        }
    }
    if (code != TUTTI_OK) {
        unregister_wait(self, wait);
    }
    return code;
}

static void
detach_wait(tutti_coordinator_key_wait *wait)
{
    tutti_coordinator *self = wait->wait.owner;

    unregister_wait(self, wait);
    tutti_list_remove(&wait->link);
    coord_wait_stop(&wait->wait);
    self->wait_bytes -= wait->bytes;
    free(wait->wants);
    wait->wants = NULL;
}

static tutti_bytes
nth_of_wait(const void *arg, size_t index)
{
    const tutti_coordinator_key_wait *wait = arg;

    return wait->wants[index].key;
}

static void
answer_wait(tutti_coordinator_key_wait *wait, const tutti_error *err)
{
    tutti_coordinator *self = wait->wait.owner;
    tutti_coordinator_page values = {0};
    tutti_error other;

    if (err == NULL && wait->with_values &&
        coord_keys_collect(self, wait->job, nth_of_wait, wait, wait->count, &values, &other) !=
            TUTTI_OK) {
        err = &other;
    }
    detach_wait(wait);
    wait->values = &values;
    wait->on_answer(wait, err == NULL ? tutti_store_version(self->store) : 0, err);
    tutti_coordinator_page_fini(&values); /* the call may be gone by now */
}

static void
say_wait_missing(const tutti_coordinator_key_wait *wait, tutti_error *err)
{
    char buffer[TUTTI_ERROR_TEXT_MAX];
    char key[80];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    size_t shown = 0;
    size_t i;

    for (i = 0; i < wait->count && shown < SHOWN_MAX; i++) {
        if (wait->wants[i].subscription != NULL) {
            coord_quote(wait->wants[i].key, 32, key, sizeof(key));
            tutti_text_add(&text, "%s\"%s\"", shown == 0 ? "" : ", ", key);
            shown++;
        }
    }
    if (wait->missing > shown) {
        tutti_text_add(&text, ", and %zu more", wait->missing - shown);
    }
    (void)TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                         "%zu of %zu keys did not come in time: %s", wait->missing, wait->count,
                         buffer);
}

/*
 * All keys had come at some time: are they there together? Else it waits on for those that went,
 * and this returns false.
 */
static bool
try_answer(tutti_coordinator_key_wait *wait)
{
    tutti_error err;
    const tutti_code code = register_missing(wait->wait.owner, wait, &err);

    if (code != TUTTI_OK) {
        answer_wait(wait, &err);
    } else if (wait->missing == 0) {
        answer_wait(wait, NULL);
    } else {
        return false;
    }
    return true;
}

static void
on_end(tutti_coordinator_pending_call *base, const tutti_error *err)
{
    tutti_coordinator_key_wait *wait = tutti_container_of(base, tutti_coordinator_key_wait, wait);
    tutti_error late;

    if (err == NULL) {
        if (wait->missing == 0 && try_answer(wait)) {
            return;
        }
        say_wait_missing(wait, &late);
        err = &late;
    }
    answer_wait(wait, err);
}

size_t
coord_on_ready_task(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, ready_task);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&self->ready)) {
        tutti_coordinator_key_wait *wait =
            tutti_container_of(tutti_list_pop(&self->ready), tutti_coordinator_key_wait, link);

        done += 1 + wait->count / CHECK_COST;
        (void)try_answer(wait);
    }
    if (!tutti_list_empty(&self->ready)) {
        coord_defer(self, work);
    }
    return done;
}

void
coord_waits_wake(tutti_coordinator *self, tutti_bytes full)
{
    coord_key_subscription *subscription = coord_key_subscription_find(&self->wanted, full);
    bool last = subscription == NULL;

    while (!last) {
        coord_wanted_key *want =
            tutti_container_of(subscription->members.next, coord_wanted_key, link);

        last = coord_key_subscription_remove(&self->wanted, subscription, &want->link);
        want->subscription = NULL;
        want->wait->missing--;
        if (want->wait->missing == 0) {
            tutti_list_add(&self->ready, &want->wait->link);
            coord_defer(self, &self->ready_task);
        }
    }
}

/* ------------------------------------------------------------------------------ door */

static tutti_code
check_wait_request(const tutti_coordinator *self, const tutti_coordinator_wait_request *request,
                   size_t *ret_bytes, tutti_error *err)
{
    size_t bytes = 0;
    size_t i;

    if (request->with_values) {
        const tutti_code code = coord_check_key_count(request->count, err);

        if (code != TUTTI_OK) {
            return code;
        }
    }
    if (request->count == 0 || request->count > TUTTI_COORDINATOR_WAIT_KEYS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WAIT_LIMIT",
                              "%zu keys to wait for, need 1 to %d", request->count,
                              TUTTI_COORDINATOR_WAIT_KEYS_MAX);
    }
    for (i = 0; i < request->count; i++) {
        /*
         * Its request, its want and its subscription; a key that is too long is refused when it
         * is registered.
         */
        bytes +=
            2 * request->keys[i].size + sizeof(coord_wanted_key) + sizeof(coord_key_subscription);
    }
    if (bytes > self->options.wait_bytes_limit - self->wait_bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "WAITER_LIMIT",
                              "keys that are waited for hold %llu bytes, %zu more pass the limit "
                              "(--wait-bytes-limit)",
                              (unsigned long long)self->wait_bytes, bytes);
    }
    *ret_bytes = bytes;
    return TUTTI_OK;
}

static tutti_code
start_wait(tutti_coordinator *self, const tutti_coordinator_wait_request *request,
           tutti_coordinator_key_wait *wait, tutti_error *err)
{
    tutti_code code;
    size_t i;

    wait->wants = calloc(request->count, sizeof(coord_wanted_key));
    if (wait->wants == NULL) {
        return coord_fail_memory(err, "keys to wait for");
    }
    wait->job = request->job;
    wait->with_values = request->with_values;
    wait->count = request->count;
    for (i = 0; i < request->count; i++) {
        wait->wants[i].wait = wait;
        wait->wants[i].key = request->keys[i];
    }
    code = register_missing(self, wait, err);
    if (code != TUTTI_OK) {
        free(wait->wants);
        wait->wants = NULL;
    }
    return code;
}

tutti_code
tutti_coordinator_key_wait_start(tutti_coordinator *self,
                                 const tutti_coordinator_wait_request *request,
                                 tutti_coordinator_key_wait *wait, tutti_error *err)
{
    size_t bytes = 0;
    tutti_code code = coord_wait_check(self, err);

    if (code == TUTTI_OK) {
        code = check_wait_request(self, request, &bytes, err);
    }
    if (code == TUTTI_OK) {
        code = start_wait(self, request, wait, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    wait->bytes = bytes;
    self->wait_bytes += bytes;
    tutti_list_init(&wait->link);
    wait->wait.on_end = on_end;
    coord_wait_start(self, &wait->wait, true, request->deadline_ns);
    if (wait->missing == 0) {
        tutti_list_add(&self->ready, &wait->link);
        coord_defer(self, &self->ready_task);
    }
    return TUTTI_OK;
}

void
tutti_coordinator_key_wait_withdraw(tutti_coordinator_key_wait *wait)
{
    if (wait->wait.owner != NULL) {
        detach_wait(wait);
    }
}
