/* How a rendezvous ends: numbers, or words. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "server/coordinator/rendezvous/rendezvous_private.h"

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

/* Sort, number, find the root. Returns false when two callers state the same rank, *ret_twice. */
static bool
number(tutti_coordinator_caller **callers, uint32_t count, bool *seen, uint32_t *ret_twice)
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
        const uint64_t mark[2] = {callers[i]->name.size, rank}; /* where a name ends */

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
coord_rendezvous_complete(tutti_coordinator *self, coord_rendezvous *meeting, tutti_error *err)
{
    tutti_coordinator_caller **callers = calloc(meeting->count, sizeof(*callers));
    bool *seen = calloc(meeting->count, sizeof(*seen));
    uint32_t twice = 0;
    uint32_t n = 0;
    tutti_link *link;
    tutti_link *spare;

    if (callers == NULL || seen == NULL) {
        free(callers);
        free(seen);
        return coord_fail_memory(err, "a rendezvous");
    }
    tutti_list_each(link, spare, &meeting->callers)
    {
        callers[n++] = tutti_container_of(link, tutti_coordinator_caller, link);
    }
    if (number(callers, n, seen, &twice)) {
        keep_answers(self, callers, n);
        coord_rendezvous_settle_all(self, meeting, NULL, 0);
    } else {
        coord_rendezvous_settle_all(self, meeting, "DUPLICATE_RANK", twice);
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
                             "callers do not agree on how many they are: %" PRIu32 " here, %" PRIu32
                             " another one says",
                             caller->count, caller->other);
    } else {
        (void)TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK",
                             "two callers state rank %" PRIu32, caller->other);
    }
}

void
coord_rendezvous_say_missing(const coord_rendezvous *meeting, tutti_error *err)
{
    char buffer[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    char name[80];
    uint32_t shown = 0;
    tutti_link *link;
    tutti_link *spare;

    tutti_list_each(link, spare, &meeting->callers)
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
    coord_quote(coord_full_key_client(&meeting->full), 32, name, sizeof(name));
    (void)TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                         "%" PRIu32 " of %" PRIu32 " callers did not come to \"%s\" in time; here: "
                         "%s%s",
                         meeting->count - meeting->arrived, meeting->count, name, buffer,
                         meeting->arrived > shown ? ", ..." : "");
}
