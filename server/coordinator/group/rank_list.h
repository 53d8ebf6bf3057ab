/* Lists of ranks, as a request gives them. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_RANK_LIST_H
#define TUTTI_SERVER_COORDINATOR_GROUP_RANK_LIST_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/group/groups.h"

/* Lists of ranks of the job, one after the other. [owned] both arrays */
typedef struct coord_rank_lists {
    uint32_t *ranks;
    uint32_t *ends; /* of list i: behind its last rank */
    uint32_t list_count;
} coord_rank_lists;

void coord_rank_lists_fini(coord_rank_lists *rank_lists);

/*
 * Check lists of group ranks of `parent`, and say them in ranks of the job.
 *
 * [in] what  who lists them, for errors: "group tp"; with several lists their numbers are added
 *
 * TUTTI_INVALID_ARGUMENT    EMPTY_GROUP, RANK_RANGE, DUPLICATE_RANK, OVERLAP
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_rank_lists_take(const coord_group *parent, const char *what,
                                 const tutti_coordinator_list *lists, size_t count,
                                 coord_rank_lists *ret_layout, tutti_error *err);

/* Consecutive blocks; `size` divides. TUTTI_RESOURCE_EXHAUSTED no memory */
tutti_code coord_rank_lists_blocks(const coord_group *parent, uint32_t size,
                                   coord_rank_lists *ret_layout, tutti_error *err);

/* Where a rank is; false = in no list. */
bool coord_rank_lists_find(const coord_rank_lists *rank_lists, uint32_t rank, uint32_t *ret_list,
                           uint32_t *ret_position);

/* The ranks of each list; 0 = they differ. */
uint32_t coord_rank_lists_size(const coord_rank_lists *rank_lists);

/* The rank's place in the group; false = it is no member. */
bool coord_group_position(const coord_group *group, uint32_t rank, uint32_t *ret_position);

/* The rank at a place below count. */
uint32_t coord_group_rank(const coord_group *group, uint32_t position);

/* The first member that is not alive; NULL = all are. */
const coord_agent *coord_group_find_lost(const coord_group *group);

#endif
