/* Jobs whose world is whoever is there. */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_ELASTIC_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_ELASTIC_H

#include <stdbool.h>
#include <stdint.h>

#include "server/coordinator/core/types.h"
#include "tutti/error.h"

/*
 * [in] min_world  as somebody who joins has it; 0 = all. The first one decides.
 *
 * TUTTI_INVALID_ARGUMENT  WORLD_SIZE
 */
tutti_code coord_elastic_check(coord_job *job, uint32_t min_world, tutti_error *err);

/* May it begin now, without those who have not come? */
bool coord_elastic_ripe(const coord_job *job);

/* Somebody lost for each seat that nobody asked for. False = no memory: later. */
bool coord_elastic_fill(coord_job *job);

/* Is the world whoever is there? */
bool coord_elastic_is(const coord_job *job);

#endif
