/*
 * Take and QueuePop: a value goes to one caller, in the order in which callers came. Callers of a
 * key are in its subscription's list. A new call looks once, in its turn; later only the first of
 * the list is woken (`takes_ready`), and when it goes, served or not, it wakes the next. So a
 * value is never offered to two, and a caller that leaves between the wake-up and its turn loses
 * nothing.
 *
 * A call with a token that comes again while the first still waits takes its place; if the first
 * was answered, it gets the same answer from the retry cache.
 */
#include "server/coordinator/kv/take.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/key_subscription.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/queue.h"
#include "server/coordinator/kv/retry_cache.h"

/* What a parked call is about. */
typedef struct coord_take_place {
    tutti_map_node node; /* by `which`, while it has a token */
    tutti_coordinator_take *take;
    bool from_queue;
    bool at_once; /* it was there, but somebody before us may take it */
    size_t bytes; /* against wait_bytes_limit */
    coord_full_key full;
    coord_answer_key which;
} coord_take_place;

static bool
has_token(const coord_take_place *place)
{
    return place->which.size > 0;
}

static void
wake_first(tutti_coordinator *self, const coord_key_subscription *subscription)
{
    tutti_coordinator_take *first =
        tutti_container_of(subscription->members.next, tutti_coordinator_take, link);

    if (tutti_list_empty(&first->ready)) {
        tutti_list_add(&self->takes_ready, &first->ready);
        coord_defer(self, &self->take_task);
    }
}

void
coord_takes_wake(tutti_coordinator *self, tutti_bytes key)
{
    const coord_key_subscription *subscription = coord_key_subscription_find(&self->takers, key);

    if (subscription != NULL) {
        wake_first(self, subscription);
    }
}

/*
 * The call no longer waits. The caller that is first now may find what this one was about to
 * take, so it is woken.
 */
static void
detach_take(tutti_coordinator_take *take)
{
    tutti_coordinator *self = take->wait.owner;
    coord_take_place *place = take->place;

    tutti_list_remove(&take->ready);
    if (!coord_key_subscription_remove(&self->takers, take->subscription, &take->link)) {
        wake_first(self, take->subscription);
    }
    if (has_token(place)) {
        tutti_map_remove(&self->take_tokens, &place->node);
    }
    self->wait_bytes -= place->bytes;
    coord_wait_stop(&take->wait);
    free(place);
    take->place = NULL;
    take->subscription = NULL;
}

static void
fail_take(tutti_coordinator_take *take, const tutti_error *err)
{
    detach_take(take);
    take->on_answer(take, NULL, err);
}

/* ------------------------------------------------------------------------------ serving */

static tutti_code
check_take(tutti_coordinator *self, const coord_take_place *place, tutti_store_entry *ret_entry,
           tutti_error *err)
{
    return place->from_queue ? coord_queue_first(self, &place->full, ret_entry, err)
                             : coord_key_get(self, &place->full, ret_entry, err);
}

static tutti_code
drop_take(tutti_coordinator *self, const coord_take_place *place, coord_ride *ride,
          tutti_error *err)
{
    const tutti_store_change gone = {.key = coord_full_key_bytes(&place->full), .remove = true};
    coord_news news = {.kind = TUTTI_COORDINATOR_DELETED,
                       .full = coord_full_key_bytes(&place->full),
                       .job_size = place->full.job_size};

    if (place->from_queue) {
        return coord_queue_drop(self, &place->full, ride, err);
    }
    TUTTI_TRY(coord_retry_cache_apply(self, ride, &gone, 1, &news.version, err));
    coord_key_tell(self, &news);
    return TUTTI_OK;
}

/* Answer. `entry` points to memory of the caller's, not to the store's, which has changed. */
static void
give_value(tutti_coordinator_take *take, const tutti_store_entry *entry)
{
    detach_take(take);
    take->on_answer(take, entry, NULL);
}

static tutti_code
take_value(tutti_coordinator_take *take, const tutti_store_entry *lent, tutti_error *err)
{
    tutti_store_entry own = *lent;
    coord_ride ride = {.key = &take->place->which};
    void *copy = malloc(lent->value.size + 1);
    tutti_code code;

    /* The value stays in the store, for the next caller. */
    if (copy == NULL) {
        return coord_fail_memory(err, "a value");
    }
    if (lent->value.size > 0) {
        memcpy(copy, lent->value.data, lent->value.size);
    }
    own.key = (tutti_bytes){0};
    own.value.data = copy;
    ride.answer = (coord_answer){.version = own.version, .value = own.value};
    code = drop_take(take->wait.owner, take->place, &ride, err);
    if (code == TUTTI_OK) {
        give_value(take, &own);
    }
    free(copy);
    return code;
}

/* The answer that was given to a call with this token. */
static bool
repeat_take(tutti_coordinator_take *take)
{
    coord_answer answer;
    tutti_store_entry entry = {0};

    if (!coord_answer_find(take->wait.owner, &take->place->which, &answer)) {
        return false;
    }
    entry.value = answer.value;
    entry.version = answer.version;
    detach_take(take);
    take->on_answer(take, &entry, NULL);
    return true;
}

/* False: there is nothing, and it waits on. */
static bool
serve_take(tutti_coordinator_take *take)
{
    tutti_store_entry entry;
    tutti_error err;
    tutti_code code;

    if (repeat_take(take)) {
        return true;
    }
    code = check_take(take->wait.owner, take->place, &entry, &err);
    if (code == TUTTI_NOT_FOUND && !take->place->at_once) {
        return false;
    }
    if (code == TUTTI_OK) {
        code = take_value(take, &entry, &err);
    }
    if (code != TUTTI_OK) {
        fail_take(take, &err);
    }
    return true;
}

static size_t
on_take_task(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, take_task);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&self->takes_ready)) {
        (void)serve_take(
            tutti_container_of(tutti_list_pop(&self->takes_ready), tutti_coordinator_take, ready));
        done++;
    }
    if (!tutti_list_empty(&self->takes_ready)) {
        coord_defer(self, work);
    }
    return done;
}

static void
on_end(tutti_coordinator_pending_call *base, const tutti_error *err)
{
    tutti_coordinator_take *take = tutti_container_of(base, tutti_coordinator_take, wait);
    const coord_take_place *place = take->place;
    char text[200];
    tutti_error late;

    if (err == NULL) {
        /* Its time is up, but a value has come and its turn was near: it gets the value. */
        if (!tutti_list_empty(&take->ready) && serve_take(take)) {
            return;
        }
        coord_quote(coord_full_key_client(&place->full), 48, text, sizeof(text));
        (void)TUTTI_FAIL_FOR(&late, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                             place->from_queue ? "nothing came to queue \"%s\" in time"
                                               : "key \"%s\" did not come in time",
                             text);
        err = &late;
    }
    fail_take(take, err);
}

/* ------------------------------------------------------------------------------ door */

static tutti_code
check_take_bytes(const tutti_coordinator *self, size_t bytes, tutti_error *err)
{
    if (bytes > self->options.wait_bytes_limit - self->wait_bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "WAITER_LIMIT",
                              "keys that are waited for hold %llu bytes, %zu more pass the limit "
                              "(--wait-bytes-limit)",
                              (unsigned long long)self->wait_bytes, bytes);
    }
    return TUTTI_OK;
}

/* A call with the token of one that still waits takes its place. */
static void
supersede_take(tutti_coordinator *self, const coord_take_place *place)
{
    tutti_map_node *node =
        tutti_map_find(&self->take_tokens, (tutti_bytes){place->which.data, place->which.size});
    tutti_error err;

    if (node != NULL) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "SUPERSEDED",
                             "another call with the same token took this one's place");
        fail_take(tutti_container_of(node, coord_take_place, node)->take, &err);
    }
}

/* With at_once only what has something to take is parked. */
static tutti_code
check_there(tutti_coordinator *self, const coord_take_place *place, tutti_error *err)
{
    tutti_store_entry entry;
    coord_answer answer;

    return coord_answer_find(self, &place->which, &answer) ? TUTTI_OK
                                                           : check_take(self, place, &entry, err);
}

static tutti_code
prepare_take(tutti_coordinator *self, const tutti_coordinator_take_request *request,
             coord_take_place *place, tutti_error *err)
{
    TUTTI_TRY(coord_full_key_write(self, &request->key, 1, &place->full, err));
    place->from_queue = request->from_queue;
    place->at_once = request->at_once;
    place->bytes = sizeof(*place) + sizeof(coord_key_subscription) + place->full.size;
    coord_answer_key_write(&place->which,
                           request->from_queue ? COORD_ANSWER_POP : COORD_ANSWER_TAKE, &place->full,
                           request->token);
    if (request->at_once) {
        TUTTI_TRY(check_there(self, place, err));
    }
    return check_take_bytes(self, place->bytes, err);
}

static tutti_code
wait_for_value(tutti_coordinator *self, tutti_coordinator_take *take, coord_take_place *place,
               uint64_t deadline_ns, tutti_error *err)
{
    coord_tagged_key key;

    coord_tagged_key_write(&key, place->from_queue ? COORD_TAG_QUEUE : COORD_TAG_NONE,
                           &place->full);
    if (has_token(place)) {
        supersede_take(self, place);
    }
    TUTTI_TRY(coord_key_subscription_add(&self->takers, coord_tagged_key_bytes(&key), &take->link,
                                         &take->subscription, NULL, err));
    place->take = take;
    take->place = place;
    if (has_token(place)) {
        place->node.key = (tutti_bytes){place->which.data, place->which.size};
        (void)tutti_map_add(&self->take_tokens, &place->node);
    }
    self->wait_bytes += place->bytes;
    take->wait.on_end = on_end;
    coord_wait_start(self, &take->wait, true, deadline_ns);
    tutti_list_init(&take->ready);
    tutti_list_add(&self->takes_ready, &take->ready);
    coord_defer(self, &self->take_task);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_take_start(tutti_coordinator *self, const tutti_coordinator_take_request *request,
                             tutti_coordinator_take *take, tutti_error *err)
{
    tutti_code code;
    coord_take_place *place;

    TUTTI_TRY(coord_wait_check(self, err));
    place = calloc(1, sizeof(*place));
    if (place == NULL) {
        return coord_fail_memory(err, "a call that takes");
    }
    code = prepare_take(self, request, place, err);
    if (code == TUTTI_OK) {
        code = wait_for_value(self, take, place, request->deadline_ns, err);
    }
    if (code != TUTTI_OK) {
        free(place);
    }
    return code;
}

void
tutti_coordinator_take_withdraw(tutti_coordinator_take *take)
{
    if (take->wait.owner != NULL) {
        detach_take(take);
    }
}

void
coord_takes_init(tutti_coordinator *self)
{
    tutti_map_init(&self->takers);
    tutti_map_init(&self->take_tokens);
    tutti_list_init(&self->takes_ready);
    coord_task_init(&self->take_task, on_take_task);
}

void
coord_takes_fini(tutti_coordinator *self)
{
    assert(self->takers.count == 0 && self->take_tokens.count == 0);
}
