/*
 * Rendezvous: callers that know only a key and how many they are. A rendezvous is the list of
 * calls that wait at a key; it is made by the first and freed with the last. When the last one
 * has come, all are numbered: by the ranks that they state if all do, else by the order of their
 * names. Then they are answered in slices from the list `met`, no longer in their rendezvous, so
 * the key can be used again at once.
 *
 * Nothing is stored but answers for tokens (the retry cache). A caller whose client goes away
 * leaves, and is counted no more.
 */
#include "server/coordinator/rendezvous/rendezvous.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/retry_cache.h"
#include "server/coordinator/rendezvous/rendezvous_private.h"

/* ------------------------------------------------------------------------------ coming, going */

static void
drop_token(tutti_coordinator *self, tutti_coordinator_caller *caller)
{
    if (caller->which != NULL) {
        tutti_map_remove(&self->rendezvous_tokens, &caller->node);
        free(caller->which);
        caller->which = NULL;
    }
}

/* Out of its rendezvous, which goes with its last caller. */
static void
leave_rendezvous(tutti_coordinator *self, tutti_coordinator_caller *caller)
{
    coord_rendezvous *round = caller->round;

    tutti_list_remove(&caller->link);
    drop_token(self, caller);
    caller->round = NULL;
    if (round != NULL && --round->arrived == 0) {
        tutti_map_remove(&self->rendezvous, &round->node);
        free(round);
    }
}

static void
detach_rendezvous(tutti_coordinator_caller *caller)
{
    tutti_coordinator *self = caller->wait.owner;

    leave_rendezvous(self, caller);
    self->wait_bytes -= caller->bytes;
    coord_wait_stop(&caller->wait);
}

static void
fail_rendezvous(tutti_coordinator_caller *caller, const tutti_error *err)
{
    detach_rendezvous(caller);
    caller->on_answer(caller, NULL, err);
}

/* The caller has its answer and waits for its turn to be told. It leaves its rendezvous now. */
static void
settle_rendezvous(tutti_coordinator *self, tutti_coordinator_caller *caller)
{
    leave_rendezvous(self, caller);
    tutti_list_add(&self->met, &caller->link);
    coord_defer(self, &self->met_task);
}

void
coord_rendezvous_settle_all(tutti_coordinator *self, coord_rendezvous *round, const char *refused,
                            uint32_t other)
{
    uint32_t left = round->arrived;

    while (left-- > 0) { /* the rendezvous is freed with the last one */
        tutti_coordinator_caller *caller =
            tutti_container_of(round->callers.next, tutti_coordinator_caller, link);

        caller->refused = refused;
        caller->other = other;
        settle_rendezvous(self, caller);
    }
}

/* ------------------------------------------------------------------------------ answering */

static size_t
on_met_task(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, met_task);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&self->met)) {
        tutti_coordinator_caller *caller =
            tutti_container_of(self->met.next, tutti_coordinator_caller, link);
        tutti_error err;

        if (caller->refused != NULL) {
            coord_rendezvous_say_refused(caller, &err);
            fail_rendezvous(caller, &err);
        } else {
            const tutti_coordinator_met met = caller->met;

            detach_rendezvous(caller);
            caller->on_answer(caller, &met, NULL);
        }
        done++;
    }
    if (!tutti_list_empty(&self->met)) {
        coord_defer(self, work);
    }
    return done;
}

static void
on_end(tutti_coordinator_pending_call *base, const tutti_error *err)
{
    tutti_coordinator_caller *caller = tutti_container_of(base, tutti_coordinator_caller, wait);
    tutti_error late;

    if (err == NULL) {
        if (caller->round == NULL) {
            return; /* it has its answer, and is told in a moment */
        }
        coord_rendezvous_say_missing(caller->round, &late);
        err = &late;
    }
    fail_rendezvous(caller, err);
}

/* ------------------------------------------------------------------------------ door */

static tutti_code
check_rendezvous_request(const tutti_coordinator *self,
                         const tutti_coordinator_caller_request *request, size_t bytes,
                         tutti_error *err)
{
    if (request->count == 0 || request->count > TUTTI_RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                              "%" PRIu32 " callers to meet, need 1 to %d", request->count,
                              TUTTI_RANKS_MAX);
    }
    if (request->rank != TUTTI_COORDINATOR_NO_CALLER && request->rank >= request->count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                              "rank %" PRIu32 " among %" PRIu32
                              " callers, need a rank below their number",
                              request->rank, request->count);
    }
    if (request->name.size > TUTTI_COORDINATOR_CALLER_NAME_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NAME_LIMIT",
                              "caller's name of %zu bytes, at most %d", request->name.size,
                              TUTTI_COORDINATOR_CALLER_NAME_MAX);
    }
    if (bytes > self->options.wait_bytes_limit - self->wait_bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "WAITER_LIMIT",
                              "keys that are waited for hold %llu bytes, %zu more pass the limit "
                              "(--wait-bytes-limit)",
                              (unsigned long long)self->wait_bytes, bytes);
    }
    return TUTTI_OK;
}

static coord_rendezvous *
find_or_begin(tutti_coordinator *self, const coord_full_key *full, uint32_t count)
{
    tutti_map_node *node = tutti_map_find(&self->rendezvous, coord_full_key_bytes(full));
    coord_rendezvous *round;

    if (node != NULL) {
        return tutti_container_of(node, coord_rendezvous, node);
    }
    round = calloc(1, sizeof(*round));
    if (round != NULL) {
        round->full = *full;
        round->count = count;
        tutti_list_init(&round->callers);
        round->node.key = coord_full_key_bytes(&round->full);
        (void)tutti_map_add(&self->rendezvous, &round->node);
    }
    return round;
}

/*
 * A call with the token of one that still waits takes its place: the old one is told SUPERSEDED.
 */
static tutti_code
take_token(tutti_coordinator *self, const coord_answer_key *which, tutti_coordinator_caller *caller,
           tutti_error *err)
{
    tutti_map_node *node =
        tutti_map_find(&self->rendezvous_tokens, (tutti_bytes){which->data, which->size});
    coord_answer_key *own = malloc(sizeof(*own));
    tutti_error superseded;

    if (own == NULL) {
        return coord_fail_memory(err, "a token");
    }
    if (node != NULL) {
        (void)TUTTI_FAIL_FOR(&superseded, TUTTI_ABORTED, "SUPERSEDED",
                             "another call with the same token took this one's place");
        fail_rendezvous(tutti_container_of(node, tutti_coordinator_caller, node), &superseded);
    }
    *own = *which;
    caller->which = own;
    caller->node.key = (tutti_bytes){own->data, own->size};
    (void)tutti_map_add(&self->rendezvous_tokens, &caller->node);
    return TUTTI_OK;
}

static void
wait_for_rendezvous(tutti_coordinator *self, tutti_coordinator_caller *caller, uint64_t deadline_ns)
{
    self->wait_bytes += caller->bytes;
    caller->wait.on_end = on_end;
    coord_wait_start(self, &caller->wait, true, deadline_ns);
}

/*
 * Enter the rendezvous, and complete it if this is the last caller. A count that differs ends it
 * for all that wait: one of them is wrong, and nobody knows which.
 */
static tutti_code
enter_rendezvous(tutti_coordinator *self, const coord_full_key *full,
                 const tutti_coordinator_caller_request *request, tutti_coordinator_caller *caller,
                 tutti_error *err)
{
    coord_rendezvous *round = find_or_begin(self, full, request->count);

    if (round == NULL) {
        return coord_fail_memory(err, "a rendezvous");
    }
    if (round->count != request->count) {
        caller->refused = "GROUP_SIZE";
        caller->other = round->count;
        coord_rendezvous_settle_all(self, round, "GROUP_SIZE", request->count);
        coord_rendezvous_say_refused(caller, err);
        return TUTTI_INVALID_ARGUMENT;
    }
    caller->round = round;
    caller->order = round->next_order++;
    tutti_list_add(&round->callers, &caller->link);
    round->arrived++;
    return round->arrived == round->count ? coord_rendezvous_complete(self, round, err) : TUTTI_OK;
}

tutti_code
tutti_coordinator_caller_start(tutti_coordinator *self,
                               const tutti_coordinator_caller_request *request,
                               tutti_coordinator_caller *caller, tutti_error *err)
{
    coord_answer answer;
    coord_answer_key which;
    coord_full_key full;
    tutti_code code = coord_wait_check(self, err);

    if (code == TUTTI_OK) {
        code = coord_full_key_write(self, &request->key, 1, &full, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    caller->bytes = sizeof(which) + sizeof(coord_rendezvous) + request->name.size;
    code = check_rendezvous_request(self, request, caller->bytes, err);
    if (code != TUTTI_OK) {
        return code;
    }
    caller->name = request->name;
    caller->stated = request->rank;
    caller->is_root = request->is_root;
    caller->count = request->count;
    tutti_list_init(&caller->link);
    coord_answer_key_write(&which, COORD_ANSWER_MEET, &full, request->token);
    if (coord_answer_find(self, &which, &answer) &&
        answer.value.size == sizeof(caller->met)) { /* else it is of another version's store */
        memcpy(&caller->met, answer.value.data, sizeof(caller->met));
        settle_rendezvous(self, caller);
    } else {
        code = which.size > 0 ? take_token(self, &which, caller, err) : TUTTI_OK;
        if (code == TUTTI_OK) {
            code = enter_rendezvous(self, &full, request, caller, err);
        }
    }
    if (code != TUTTI_OK) {
        leave_rendezvous(self, caller);
        return code;
    }
    wait_for_rendezvous(self, caller, request->deadline_ns);
    return TUTTI_OK;
}

void
tutti_coordinator_caller_withdraw(tutti_coordinator_caller *caller)
{
    if (caller->wait.owner != NULL) {
        detach_rendezvous(caller);
    }
}

void
coord_rendezvous_init(tutti_coordinator *self)
{
    tutti_map_init(&self->rendezvous);
    tutti_map_init(&self->rendezvous_tokens);
    tutti_list_init(&self->met);
    coord_task_init(&self->met_task, on_met_task);
}

/* ------------------------------ the end of a rendezvous */

#define SHOWN_MAX 8 /* names that a text lists */
#define HASH_START 0xcbf29ce484222325ULL
#define HASH_PRIME 0x100000001b3ULL

static int
compare_callers(const void *left, const void *right)
{
    const tutti_coordinator_caller *a = *(tutti_coordinator_caller *const *)left;
    const tutti_coordinator_caller *b = *(tutti_coordinator_caller *const *)right;
    const int names = tutti_bytes_compare(a->name, b->name);

    return names != 0 ? names : a->order < b->order ? -1 : 1;
}

static uint64_t
hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    size_t i;

    for (i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * HASH_PRIME;
    }
    return hash;
}

/*
 * Sort by name (then by arrival), number, find the root, and hash all names and ranks (FNV-1a),
 * by which callers can see that they met the same others. False: two callers state the same rank,
 * *ret_twice.
 */
static bool
number_rendezvous(tutti_coordinator_caller **callers, uint32_t count, bool *seen,
                  uint32_t *ret_twice)
{
    uint32_t root = TUTTI_COORDINATOR_NO_CALLER;
    uint64_t hash = HASH_START;
    bool stated = true;
    uint32_t i;

    qsort(callers, count, sizeof(*callers), compare_callers);
    for (i = 0; i < count; i++) {
        stated = stated && callers[i]->stated != TUTTI_COORDINATOR_NO_CALLER;
    }
    for (i = 0; i < count; i++) {
        const uint32_t rank = stated ? callers[i]->stated : i;
        const uint64_t mark[2] = {callers[i]->name.size,
                                  rank}; /* so that "ab","c" and "a","bc" have different hashes */

        if (seen[rank]) {
            *ret_twice = rank;
            return false;
        }
        seen[rank] = true;
        callers[i]->met.rank = rank;
        if (callers[i]->is_root && root == TUTTI_COORDINATOR_NO_CALLER) {
            root = rank;
        }
        hash = hash_bytes(hash, callers[i]->name.data, callers[i]->name.size);
        hash = hash_bytes(hash, mark, sizeof(mark));
    }
    for (i = 0; i < count; i++) {
        callers[i]->met.root_rank = root;
        callers[i]->met.hash = hash;
    }
    return true;
}

static void
keep_answers(tutti_coordinator *self, tutti_coordinator_caller *const *callers, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        const coord_answer answer = {.value = {&callers[i]->met, sizeof(callers[i]->met)}};

        if (callers[i]->which != NULL) {
            coord_answer_keep(self, callers[i]->which, &answer);
        }
    }
}

tutti_code
coord_rendezvous_complete(tutti_coordinator *self, coord_rendezvous *round, tutti_error *err)
{
    tutti_coordinator_caller **callers = calloc(round->count, sizeof(*callers));
    bool *seen = calloc(round->count, sizeof(*seen));
    uint32_t twice = 0;
    uint32_t n = 0;
    tutti_list_node *link;
    tutti_list_node *spare;

    if (callers == NULL || seen == NULL) {
        free(callers);
        free(seen);
        return coord_fail_memory(err, "a rendezvous");
    }
    tutti_list_each(link, spare, &round->callers)
    {
        callers[n++] = tutti_container_of(link, tutti_coordinator_caller, link);
    }
    if (number_rendezvous(callers, n, seen, &twice)) {
        keep_answers(self, callers, n);
        coord_rendezvous_settle_all(self, round, NULL, 0);
    } else {
        coord_rendezvous_settle_all(self, round, "DUPLICATE_RANK", twice);
    }
    free(callers);
    free(seen);
    return TUTTI_OK;
}

void
coord_rendezvous_say_refused(const tutti_coordinator_caller *caller, tutti_error *err)
{
    if (strcmp(caller->refused, "GROUP_SIZE") == 0) {
        (void)TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                             "callers differ in how many they are: this one says %" PRIu32
                             ", another one says %" PRIu32,
                             caller->count, caller->other);
    } else {
        (void)TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK",
            "two callers ask for rank %" PRIu32 ", need a rank of its own for each", caller->other);
    }
}

void
coord_rendezvous_say_missing(const coord_rendezvous *round, tutti_error *err)
{
    char buffer[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    char name[80];
    uint32_t shown = 0;
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &round->callers)
    {
        const tutti_coordinator_caller *one =
            tutti_container_of(link, tutti_coordinator_caller, link);

        if (shown < SHOWN_MAX) {
            tutti_text_add(&text, "%s", shown == 0 ? "" : ", ");
            if (one->stated != TUTTI_COORDINATOR_NO_CALLER) {
                tutti_text_add(&text, "rank %" PRIu32 " ", one->stated);
            }
            coord_quote(one->name, 24, name, sizeof(name));
            tutti_text_add(&text, "\"%s\"", name);
            shown++;
        }
    }
    coord_quote(coord_full_key_client(&round->full), 32, name, sizeof(name));
    (void)TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                         "%" PRIu32 " of %" PRIu32 " callers did not come to \"%s\" in time; here: "
                         "%s%s",
                         round->count - round->arrived, round->count, name, buffer,
                         round->arrived > shown ? ", ..." : "");
}
