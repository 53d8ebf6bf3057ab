/* Records: keys and values of the store, written and read field by field. */
#ifndef TUTTI_SERVER_COORDINATOR_CORE_RECORD_CODEC_H
#define TUTTI_SERVER_COORDINATOR_CORE_RECORD_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/coordinator/coordinator.h"
#include "store/store.h"

/*
 * A record to be written: numbers in values are little-endian, in keys big-endian, so that the
 * store's order is theirs. What does not fit sets `failed`; the rest of the calls may go on, and
 * the writer looks once at the end.
 */
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

/*
 * Put the record into the store, or take away the one that has its key, and fini it. The store's
 * limits do not hold for it. Returns false when it is not there now: too large, or the store
 * fails.
 */
bool coord_record_put(tutti_store *store, coord_record *record);
void coord_record_drop(tutti_store *store, coord_record *record);

/* Call `load` with each record of a letter, in the order of their keys. It must not call the store. */
void coord_records_each(tutti_coordinator *self, char letter,
                        void (*load)(tutti_coordinator *self, const tutti_store_entry *entry));

/*
 * Reading: each function takes from the front. When too little is left it sets `failed` and gives
 * 0, "" or nothing, now and from then on, so a reader takes all fields and looks at `failed`
 * once.
 */
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
