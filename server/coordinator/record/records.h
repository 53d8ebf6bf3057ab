/*
 * Records: what of a formed job is kept in the store, for the next process on it. Private to this
 * folder.
 *
 * Only with the option `durable`; without it nothing here does anything. A record is written when
 * what it is about has changed, before anybody is told. One that cannot be written is noted in
 * the log: the job goes on, and will not be as it is now after a restart.
 *
 *   !j job NUL                        the job: id, epoch, counters
 *   !s job NUL rank                   a seat and its agent
 *   !g job NUL id                     a group
 *   !m job NUL name                   a mesh
 *   !r job NUL mesh NUL key           the id of a mesh's group
 *   !o job NUL number                 a group registry of groups that are known by their turn
 *   !t job NUL number position        a member's turns in it
 *   !a job NUL key token kind         an answer to a call with a token (retry_cache.c)
 *
 * No job's name begins with "!", so these keys never meet those of clients.
 */
#ifndef TUTTI_SERVER_COORDINATOR_RECORD_RECORDS_H
#define TUTTI_SERVER_COORDINATOR_RECORD_RECORDS_H

#include <stdint.h>

#include "server/coordinator/core/types.h"

void coord_record_job(coord_job *job);
void coord_record_agent(coord_agent *agent); /* and its job */
void coord_record_formed(coord_job *job); /* all of it; what an older job of that name left goes */
void coord_record_group(coord_group *group); /* also one of a mesh; and its job */
void coord_record_mesh(coord_mesh *mesh);    /* and its job */
void coord_record_registry(coord_group_registry *registry, uint32_t position); /* and these turns */

void coord_unrecord_job(coord_job *job);
void coord_unrecord_group(const coord_group *group); /* not one of a mesh */
void coord_unrecord_mesh(const coord_mesh *mesh);    /* and its groups */
void coord_unrecord_registry(const coord_group_registry *registry);

#endif
