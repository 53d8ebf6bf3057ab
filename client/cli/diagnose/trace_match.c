/*
 * Finding what belongs together: entries of several ranks that are one collective. They have the
 * same group, epoch and number in the group's order of ops. So all entries are sorted by these,
 * and neighbours are compared.
 */
#include <stdlib.h>
#include <string.h>

#include "client/cli/diagnose/trace.h"

/* An entry that is one of several ranks'. */
typedef struct place {
    uint32_t rank;
    size_t index;
    const tutti_flight_entry *entry;
} place;

/* Sends, receives and ops that never began have no others to be compared with. */
static bool
is_shared(const tutti_flight_entry *entry)
{
    return entry->sequence != 0 && entry->group_id != 0 && entry->started_ns != 0;
}

static int
compare_u64(uint64_t left, uint64_t right)
{
    return left == right ? 0 : left < right ? -1 : 1;
}

static int
compare_entries(const tutti_flight_entry *left, const tutti_flight_entry *right)
{
    int order = compare_u64(left->group_id, right->group_id);

    if (order == 0) {
        order = compare_u64(left->epoch, right->epoch);
    }
    return order != 0 ? order : compare_u64(left->sequence, right->sequence);
}

static int
compare_places(const void *left, const void *right)
{
    const place *a = left;
    const place *b = right;
    const int order = compare_entries(a->entry, b->entry);

    return order != 0 ? order : compare_u64(a->rank, b->rank);
}

/* All shared entries of all ranks, sorted. [out, owned] the list, which is freed by the caller */
static place *
list_places(const trace *self, size_t *ret_count)
{
    size_t total = 0;
    size_t count = 0;
    place *places;
    uint32_t rank;
    size_t i;

    for (rank = 0; rank < self->fan_out->count; rank++) {
        total += self->flown[rank].count;
    }
    places = calloc(total + 1, sizeof(*places));
    if (places == NULL) {
        abort();
    }
    for (rank = 0; rank < self->fan_out->count; rank++) {
        for (i = 0; i < self->flown[rank].count; i++) {
            const tutti_flight_entry *entry = &self->flown[rank].entries[i];

            if (is_shared(entry)) {
                places[count++] = (place){rank, i, entry};
            }
        }
    }
    qsort(places, count, sizeof(*places), compare_places);
    *ret_count = count;
    return places;
}

/*
 * Adds one rank's entry to its collective: who began first, who last, and when the last one left.
 */
static void
join_match(trace_meet *meet, const place *one)
{
    const tutti_flight_entry *entry = one->entry;

    if (meet->rank_count == 0) {
        *meet = (trace_meet){.one = entry,
                             .first_ns = entry->started_ns,
                             .last_ns = entry->started_ns,
                             .last_rank = one->rank};
    }
    meet->rank_count++;
    if (entry->started_ns < meet->first_ns) {
        meet->first_ns = entry->started_ns;
    }
    if (entry->started_ns > meet->last_ns) {
        meet->last_ns = entry->started_ns;
        meet->last_rank = one->rank;
    }
    if (entry->completed_ns > meet->end_ns) {
        meet->end_ns = entry->completed_ns;
    }
    meet->open = meet->open || entry->completed_ns == 0;
}

/* From the first entry to the last time that any entry has. */
static void
find_bounds(trace *self)
{
    uint32_t rank;
    size_t i;

    self->begin_ns = UINT64_MAX;
    self->end_ns = 0;
    for (rank = 0; rank < self->fan_out->count; rank++) {
        for (i = 0; i < self->flown[rank].count; i++) {
            const tutti_flight_entry *entry = &self->flown[rank].entries[i];

            if (entry->created_ns < self->begin_ns) {
                self->begin_ns = entry->created_ns;
            }
            if (entry->completed_ns > self->end_ns) {
                self->end_ns = entry->completed_ns;
            }
            if (entry->created_ns > self->end_ns) {
                self->end_ns = entry->created_ns;
            }
            if (entry->started_ns > self->end_ns) {
                self->end_ns = entry->started_ns;
            }
        }
    }
    self->begin_ns = self->begin_ns == UINT64_MAX ? 0 : self->begin_ns;
}

void
trace_match(trace *self)
{
    size_t count = 0;
    place *places = list_places(self, &count);
    uint32_t rank;
    size_t i;

    self->meets = calloc(count + 1, sizeof(*self->meets));
    for (rank = 0; rank < self->fan_out->count; rank++) {
        trace_flown *flown = &self->flown[rank];

        flown->meets = malloc((flown->count + 1) * sizeof(*flown->meets));
        if (flown->meets == NULL || self->meets == NULL) {
            abort();
        }
        for (i = 0; i < flown->count; i++) {
            flown->meets[i] = TRACE_ALONE;
        }
    }
    for (i = 0; i < count; i++) {
        if (i == 0 || compare_entries(places[i - 1].entry, places[i].entry) != 0) {
            self->meet_count++;
        }
        join_match(&self->meets[self->meet_count - 1], &places[i]);
        self->flown[places[i].rank].meets[places[i].index] = self->meet_count - 1;
    }
    free(places);
    find_bounds(self);
}

/* An op that still runs has no end, so all that came after its begin is shown. */
bool
trace_around(trace *self, const char *group, uint64_t sequence, uint64_t window_ns)
{
    const trace_meet *found = NULL;
    size_t i;

    for (i = 0; i < self->meet_count; i++) {
        const trace_meet *meet = &self->meets[i];

        if (meet->one->sequence == sequence && strcmp(meet->one->group, group) == 0) {
            found = meet; /* of several epochs the newest */
        }
    }
    if (found == NULL) {
        return false;
    }
    if (found->first_ns > self->begin_ns + window_ns) {
        self->begin_ns = found->first_ns - window_ns;
    }
    if (!found->open && found->end_ns + window_ns < self->end_ns) {
        self->end_ns = found->end_ns + window_ns;
    }
    return true;
}

uint64_t
trace_late_ns(const trace_meet *meet)
{
    return meet->last_ns - meet->first_ns;
}
