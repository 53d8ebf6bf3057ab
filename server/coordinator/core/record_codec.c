/*
 * One record of the store: its key and its value, written and read field by field. A record may
 * be damaged or come from another version: reading never runs beyond the bytes, checks counts and
 * ranks before it allocates, and reports all of it by `failed`. New fields go to the end, where
 * an older record has no bytes (`left` is 0).
 */
#include "server/coordinator/core/record_codec.h"

#include <stdlib.h>
#include <string.h>

#include "base/data/map.h"
#include "server/coordinator/core/core.h"

/* ------------------------------------------------------------------------------ writing */

void
coord_record_begin(coord_record *record, char letter, const char *job)
{
    const char start[] = {'!', letter};

    tutti_buf_init(&record->value, TUTTI_STORE_VALUE_MAX);
    record->key_size = 0;
    record->failed = false;
    coord_record_key_bytes(record, start, sizeof(start));
    coord_record_key_text(record, job);
}

void
coord_record_begin_bytes(coord_record *record, tutti_bytes key)
{
    tutti_buf_init(&record->value, TUTTI_STORE_VALUE_MAX);
    record->key_size = 0;
    record->failed = false;
    coord_record_key_bytes(record, key.data, key.size);
}

void
coord_record_fini(coord_record *record)
{
    tutti_buf_fini(&record->value);
}

void
coord_record_key_bytes(coord_record *record, const void *data, size_t size)
{
    if (size > sizeof(record->key) - record->key_size) {
        record->failed = true;
        return;
    }
    memcpy(record->key + record->key_size, data, size);
    record->key_size += size;
}

void
coord_record_key_text(coord_record *record, const char *text)
{
    coord_record_key_bytes(record, text, strlen(text) + 1);
}

void
coord_record_key_u64(coord_record *record, uint64_t number)
{
    unsigned char storage[8];

    (void)tutti_map_key_u64(storage, number);
    coord_record_key_bytes(record, storage, sizeof(storage));
}

void
coord_record_key_u32(coord_record *record, uint32_t number)
{
    unsigned char storage[8];

    (void)tutti_map_key_u64(storage, number);
    coord_record_key_bytes(record, storage + 4, 4);
}

static void
add_number(coord_record *record, uint64_t number, size_t bytes)
{
    unsigned char storage[8];
    size_t i;

    for (i = 0; i < bytes; i++) {
        storage[i] = (unsigned char)(number >> (8 * i));
    }
    if (tutti_buf_add(&record->value, storage, bytes, NULL) != TUTTI_OK) {
        record->failed = true;
    }
}

void
coord_record_u32(coord_record *record, uint32_t number)
{
    add_number(record, number, 4);
}

void
coord_record_u64(coord_record *record, uint64_t number)
{
    add_number(record, number, 8);
}

void
coord_record_bytes(coord_record *record, const void *data, size_t size)
{
    coord_record_u32(record, (uint32_t)size);
    if (size > 0 && tutti_buf_add(&record->value, data, size, NULL) != TUTTI_OK) {
        record->failed = true;
    }
}

void
coord_record_text(coord_record *record, const char *text)
{
    const char *words = text == NULL ? "" : text;

    coord_record_bytes(record, words, strlen(words) + 1);
}

void
coord_record_ranks(coord_record *record, const uint32_t *ranks, uint32_t count)
{
    uint32_t i;

    coord_record_u32(record, count);
    for (i = 0; i < count && !record->failed; i++) {
        coord_record_u32(record, ranks[i]);
    }
}

static tutti_code
apply_record(tutti_store *store, coord_record *record, bool remove)
{
    const tutti_store_change change = {.key = {record->key, record->key_size},
                                       .value = {record->value.data, record->value.size},
                                       .remove = remove,
                                       .exempt = true};
    const tutti_code code = record->failed ? TUTTI_RESOURCE_EXHAUSTED
                                           : tutti_store_apply(store, &change, 1, NULL, NULL);

    coord_record_fini(record);
    return code;
}

bool
coord_record_put(tutti_store *store, coord_record *record)
{
    return apply_record(store, record, false) == TUTTI_OK;
}

/* What stays behind is told apart when it is loaded. */
void
coord_record_drop(tutti_store *store, coord_record *record)
{
    (void)apply_record(store, record, true);
}

void
coord_records_each(tutti_coordinator *self, char letter,
                   void (*load)(tutti_coordinator *self, const tutti_store_entry *entry))
{
    const char prefix[] = {'!', letter};
    tutti_store_entry entry = {0};

    while (tutti_store_next(self->store, (tutti_bytes){prefix, sizeof(prefix)}, entry.key, &entry,
                            NULL) == TUTTI_OK) {
        load(self, &entry);
    }
}

/* ------------------------------------------------------------------------------ reading */

static const unsigned char *
take_field(coord_reading *reading, size_t size)
{
    const unsigned char *at = reading->at;

    if (size > reading->left) {
        reading->failed = true;
        reading->left = 0;
        return NULL;
    }
    reading->at += size;
    reading->left -= size;
    return at;
}

static uint64_t
take_number(coord_reading *reading, size_t bytes, bool big)
{
    const unsigned char *at = take_field(reading, bytes);
    uint64_t number = 0;
    size_t i;

    for (i = 0; at != NULL && i < bytes; i++) {
        number = number << 8 | at[big ? i : bytes - 1 - i];
    }
    return number;
}

uint32_t
coord_reading_u32(coord_reading *reading)
{
    return (uint32_t)take_number(reading, 4, false);
}

uint64_t
coord_reading_u64(coord_reading *reading)
{
    return take_number(reading, 8, false);
}

uint32_t
coord_reading_big_u32(coord_reading *reading)
{
    return (uint32_t)take_number(reading, 4, true);
}

uint64_t
coord_reading_big_u64(coord_reading *reading)
{
    return take_number(reading, 8, true);
}

tutti_bytes
coord_reading_bytes(coord_reading *reading)
{
    const uint32_t size = coord_reading_u32(reading);
    const unsigned char *at = take_field(reading, size);

    return (tutti_bytes){at, at == NULL ? 0 : size};
}

const char *
coord_reading_text(coord_reading *reading)
{
    const tutti_bytes text = coord_reading_bytes(reading);
    const char *words = text.data;

    if (text.size == 0 || words[text.size - 1] != '\0') {
        reading->failed = true;
        return "";
    }
    return words;
}

const char *
coord_reading_key_text(coord_reading *reading)
{
    const size_t size = strnlen((const char *)reading->at, reading->left);
    const unsigned char *at = take_field(reading, size + 1);

    return at == NULL ? "" : (const char *)at;
}

uint32_t *
coord_reading_ranks(coord_reading *reading, uint32_t world_size, uint32_t *ret_count)
{
    const uint32_t count = coord_reading_u32(reading);
    uint32_t *ranks;
    uint32_t i;

    if (count == 0 || count > world_size) {
        reading->failed = true;
        return NULL;
    }
    ranks = malloc(count * sizeof(*ranks));
    for (i = 0; ranks != NULL && i < count; i++) {
        ranks[i] = coord_reading_u32(reading);
        if (ranks[i] >= world_size) {
            reading->failed = true;
        }
    }
    if (ranks == NULL || reading->failed) {
        reading->failed = true;
        free(ranks);
        return NULL;
    }
    *ret_count = count;
    return ranks;
}
