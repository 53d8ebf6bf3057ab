/* Who asks for a group: the calls of all its members are for the same one. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_CLAIM_H
#define TUTTI_SERVER_COORDINATOR_GROUP_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "server/coordinator/core/types.h"
#include "tutti/error.h"

/* What a member wants, in ranks of the job. */
typedef struct coord_claim {
    const coord_agent *agent; /* a member */
    const char *name;         /* "" = we name it */
    const char *tag;          /* "" = none */
    uint64_t token;           /* 0 = none */
    const uint32_t *ranks;    /* distinct, in the world */
    uint32_t count;
    uint32_t timeout_ms; /* of the group, if it is made */
    const char *caller;  /* likewise; NULL = unknown */
} coord_claim;

/*
 * Find or make the group.
 *
 * TUTTI_INVALID_ARGUMENT    BAD_NAME
 * TUTTI_ALREADY_EXISTS      NAME_TAKEN
 * TUTTI_UNAVAILABLE         RANK_LOST
 * TUTTI_NOT_FOUND           NO_GROUP: what this call is for was deleted; the call has counted
 * TUTTI_RESOURCE_EXHAUSTED  GROUP_LIMIT; no memory
 */
tutti_code coord_group_claim(const coord_claim *claim, coord_group **ret_group, bool *ret_created,
                             tutti_error *err);

#endif
