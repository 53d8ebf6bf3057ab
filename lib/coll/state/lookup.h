/* Private to lib/coll: finding groups, ranks and ops, and words about them. */
#ifndef TUTTI_COLL_STATE_LOOKUP_H
#define TUTTI_COLL_STATE_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"

/* Is it a Send or Recv: without a sequence, not in group->ops? Any thread. */
bool tutti_coll_op_is_p2p(const tutti_coll_op *op);

/* NULL: there is none. Ops that have ended are found until they are released. Engine's thread. */
tutti_coll_op *tutti_coll_op_by_id(tutti_coll_engine *engine, uint64_t id);
tutti_coll_group *tutti_coll_group_by_id(tutti_coll_engine *engine, uint64_t id);

/* The rank in the group of a rank of the job; NO_RANK = none. Any thread. */
uint32_t tutti_coll_group_rank_of(const tutti_coll_group *group, uint32_t rank);

/* The error RANK_LOST of an op that needs this rank of the job; `reason` says how it was lost. */
void tutti_coll_lost_words(tutti_coll_op *op, uint32_t rank, const char *reason, tutti_error *err);

#endif
