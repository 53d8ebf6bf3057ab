/*
 * Records: what of a formed job is kept in the store, for the next process on it. Private to this
 * folder.
 *
 * Only with the option `durable`; without it nothing here does anything. A record is written when
 * what it is about has changed, before anybody is told. One that cannot be written is noted: the
 * job goes on, and will not be as it is after a restart.
 *
 *   !j job NUL                        the job: id, epoch, counters
 *   !s job NUL rank                   a seat and who sits there
 *   !g job NUL id                     a group
 *   !m job NUL name                   a mesh
 *   !r job NUL mesh NUL key           the id of a mesh's group
 *   !o job NUL number                 a roster of groups that are known by their turn
 *   !t job NUL number position        a member's turns in it
 *   !a job NUL key token kind         an answer to a call with a token (retry_cache.c)
 *
 * No job's name begins with a stroke of these, so clients' keys are others.
 */
#ifndef TUTTI_SERVER_COORDINATOR_RECORD_RECORDS_H
#define TUTTI_SERVER_COORDINATOR_RECORD_RECORDS_H

#include "server/coordinator/group/mesh.h"

void coord_record_job(coord_job *job);
void coord_record_agent(coord_agent *agent); /* and its job */
void coord_record_formed(coord_job *job); /* all of it; what an older job of that name left goes */
void coord_record_group(coord_group *group); /* also one of a mesh; and its job */
void coord_record_mesh(coord_mesh *mesh);    /* and its job */
void coord_record_roster(coord_roster *roster, uint32_t position); /* and these turns */

void coord_unrecord_job(coord_job *job);
void coord_unrecord_group(const coord_group *group); /* not one of a mesh */
void coord_unrecord_mesh(const coord_mesh *mesh);    /* and its groups */
void coord_unrecord_roster(const coord_roster *roster);

/* ------------------------------------------------------------------------------ record_codec.c */

/* What a record is made of, little-endian. A value that ran over says so in `failed`. */
typedef struct coord_record {
    tutti_buf value;
    size_t key_size;
    unsigned char key[TUTTI_STORE_KEY_MAX];
    bool failed;
} coord_record;

/* Begin with the key of a job's records of this letter. */
void coord_record_begin(coord_record *record, char letter, const char *job);
void coord_record_begin_bytes(coord_record *record, tutti_bytes key); /* one that there is */
void coord_record_fini(coord_record *record);
void coord_record_key_u32(coord_record *record, uint32_t number); /* big-endian, for their order */
void coord_record_key_u64(coord_record *record, uint64_t number);
void coord_record_key_text(coord_record *record, const char *text); /* with its NUL */
void coord_record_key_bytes(coord_record *record, const void *data, size_t size);
void coord_record_u32(coord_record *record, uint32_t number);
void coord_record_u64(coord_record *record, uint64_t number);
void coord_record_bytes(coord_record *record, const void *data, size_t size);
void coord_record_text(coord_record *record, const char *text); /* NULL counts as empty */
void coord_record_ranks(coord_record *record, const uint32_t *ranks, uint32_t count);

/* Reading: each takes from the front, and 0 or nothing once there was too little. */
typedef struct coord_reading {
    const unsigned char *at;
    size_t left;
    bool failed;
} coord_reading;

uint32_t coord_reading_u32(coord_reading *reading);
uint64_t coord_reading_u64(coord_reading *reading);
uint32_t coord_reading_big_u32(coord_reading *reading); /* as in keys */
uint64_t coord_reading_big_u64(coord_reading *reading);
tutti_bytes coord_reading_bytes(coord_reading *reading); /* borrowed from the record */
const char *coord_reading_text(coord_reading *reading);  /* likewise; "" when it failed */
const char *coord_reading_key_text(coord_reading *reading);
uint32_t *coord_reading_ranks(coord_reading *reading, uint32_t world_size,
                              uint32_t *ret_count); /* [owned]; NULL = failed */

#endif
