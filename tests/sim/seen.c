/* What has been seen, by name; and the algorithms, as the host backend asks for them (ld --wrap). */
#include <stdio.h>

#include "job.h"

tutti_algorithm __real_tutti_selection_pick(const tutti_selection *, const tutti_selection_query *,
                                            tutti_selection_why *, size_t *);
tutti_algorithm __wrap_tutti_selection_pick(const tutti_selection *, const tutti_selection_query *,
                                            tutti_selection_why *, size_t *);
tutti_algorithm __real_tutti_selection_base(const tutti_selection_query *);
tutti_algorithm __wrap_tutti_selection_base(const tutti_selection_query *);

void
play_see(uint32_t what)
{
    our.counts.seen[what]++;
}

static tutti_algorithm
see_algorithm(const tutti_selection_query *query, tutti_algorithm algorithm)
{
    play_see(SEEN_ALGORITHMS + (uint32_t)query->kind * TUTTI_ALGORITHM_COUNT + (uint32_t)algorithm);
    return algorithm;
}

tutti_algorithm
__wrap_tutti_selection_pick(const tutti_selection *selection, const tutti_selection_query *query,
                            tutti_selection_why *ret_why, size_t *ret_rule)
{
    return see_algorithm(query, __real_tutti_selection_pick(selection, query, ret_why, ret_rule));
}

tutti_algorithm
__wrap_tutti_selection_base(const tutti_selection_query *query)
{
    return see_algorithm(query, __real_tutti_selection_base(query));
}

/* ------------------------------------------------------------------------------ names */

static bool
name_op(uint32_t number, char *ret_name, size_t size)
{
    static const char *const shapes[] = {"", " of lists", ", coalesced", " in splits",
                                         " with words"};
    const tutti_coll_kind kind = (tutti_coll_kind)(number / SHAPE_COUNT);
    const plan_shape shape = (plan_shape)(number % SHAPE_COUNT);

    (void)snprintf(ret_name, size, "%s%s", tutti_coll_kind_name(kind), shapes[shape]);
    return kind > 0 && plan_shape_fits(shape, kind);
}

/* A barrier moves nothing, and sends have one way. */
static bool
name_algorithm(uint32_t number, char *ret_name, size_t size)
{
    const tutti_coll_kind kind = (tutti_coll_kind)(number / TUTTI_ALGORITHM_COUNT);
    const tutti_algorithm algorithm = (tutti_algorithm)(number % TUTTI_ALGORITHM_COUNT);

    (void)snprintf(ret_name, size, "%s by %s", tutti_coll_kind_name(kind),
                   tutti_algorithm_name(algorithm));
    return kind != TUTTI_COLL_BARRIER && tutti_algorithm_does(algorithm, kind);
}

bool
play_seen_name(uint32_t what, char *ret_name, size_t size)
{
    static const char *const events[] = {"a group is made in the middle",
                                         "a group is deleted",
                                         "a group is aborted",
                                         "a rank comes back",
                                         "a call is cancelled",
                                         "a call is refused",
                                         "a new program passes over",
                                         "memory is lent"};

    if (what < SEEN_ALGORITHMS) {
        return name_op(what - SEEN_OPS, ret_name, size);
    }
    if (what < SEEN_FAULTS) {
        return name_algorithm(what - SEEN_ALGORITHMS, ret_name, size);
    }
    (void)snprintf(ret_name, size, "%s",
                   what < SEEN_MADE ? plan_fault_name((plan_fault_kind)(what - SEEN_FAULTS))
                                    : events[what - SEEN_MADE]);
    return true;
}
