/*
 * The host backend: data in host memory, moved by the engine's transport, in groups of two ranks
 * and more. Groups of one rank have coll/self.
 *
 * Which algorithm an op takes is chosen by rules (coll/select; docs/algorithms.md says what each of
 * them does and costs). Where all ranks are of one host, large ops work in each other's memory
 * (direct.c). All others go by messages: most of them as plans (plan.h), made by plan_*.c and run
 * by run.c; the rest by all_reduce.c (flat, direct), all_gather.c (direct) and exchange.c (direct,
 * pairwise). The barrier is the agreement alone, which is a dissemination.
 *
 * backend_arg of the engine is its tutti_selector, borrowed; NULL: tutti_selection_base.
 */
#ifndef TUTTI_COLL_HOST_HOST_H
#define TUTTI_COLL_HOST_HOST_H

#include "coll/backend.h"
#include "coll/select/select.h"

extern const tutti_coll_backend tutti_coll_host;

/* An all-reduce of at most so many bytes, among at most TUTTI_COLL_PIGGYBACK_RANKS_MAX ranks,
 * travels with the agreement, unless an algorithm is forced. */
#define TUTTI_COLL_HOST_PIGGYBACK_BYTES 64
bool tutti_coll_host_rides(const tutti_selection *selection, const tutti_selection_query *query);

/* What the last op of a group found; all 0 before the first. */
typedef struct tutti_coll_host_facts {
    bool known;
    bool same_host; /* all ranks share memory */
    bool alike;     /* all ranks have the same selection */
    uint32_t host_count;
} tutti_coll_host_facts;

/* Of a group whose engine has this backend. Any thread. */
tutti_coll_host_facts tutti_coll_host_look(const tutti_coll_group *group);

#endif
