/* What is kept of progress. Private to this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_STALL_PROGRESS_PRIVATE_H
#define TUTTI_SERVER_COORDINATOR_STALL_PROGRESS_PRIVATE_H

#include "base/data/map.h"
#include "server/coordinator/stall/progress.h"

typedef struct coord_pending {
    uint64_t sequence;
    bool queued;
    uint64_t waited_ms; /* when it was told */
    int64_t peer;
    char op[TUTTI_COORDINATOR_OP_WORDS_MAX];
} coord_pending;

/* The last word of an agent on a group. */
typedef struct coord_progress_report {
    tutti_map_node node; /* in the agent's, by id */
    unsigned char key[8];
    uint64_t id;
    uint64_t epoch;
    uint64_t came;
    uint64_t entered;
    uint64_t left;
    uint64_t at_ns; /* when it was told */
    uint64_t last_ms;
    uint64_t last_sequence;
    char group[TUTTI_NAME_MAX + 1];
    char last_op[TUTTI_COORDINATOR_OP_WORDS_MAX];
    size_t pending_count;
    coord_pending *pending;
} coord_progress_report;

coord_progress_report *coord_progress_report_find(const coord_agent *agent,
                                                  uint64_t id); /* NULL = nothing was told */

/* What is counted in ms when it was told, now. */
uint64_t coord_progress_report_ms(const coord_progress_report *told, uint64_t ms, uint64_t now_ns);

/* stall.c: who is in what. TUTTI_RESOURCE_EXHAUSTED: no memory; [owned] ret_stalls->stalls */
tutti_code coord_stalls_find(coord_job *job, const tutti_coordinator_stall_query *query,
                             tutti_coordinator_stalls *ret_stalls, tutti_error *err);

/*
 * uneven.c: groups whose ranks have called different numbers of ops, though nothing runs there; the
 * first TUTTI_COORDINATOR_UNEVEN_MAX. TUTTI_RESOURCE_EXHAUSTED: no memory; [owned] stalls->uneven
 */
tutti_code coord_uneven_find(coord_job *job, const tutti_coordinator_stall_query *query,
                             tutti_coordinator_stalls *stalls, tutti_error *err);

#endif
