/*
 * The last changes of keys that are watched (watch_history.h): a ring, so that it is bounded
 * whatever is changed. In the store each place of the ring is a row, `!h PLACE`, which the next
 * change of this place overwrites; what a process finds there is the run of numbers that ends
 * with the highest one. `!h` alone is the id.
 *
 * A change and its row are two changes of the store, made by one handler: one transaction where
 * answers wait for the disk (`--store-sync order` and `full`, etcd).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/watch_history.h"

#define HISTORY_LETTER 'h'

/* A change that is kept. Its place in the ring is `number` modulo the ring's size. */
typedef struct coord_kept_change {
    uint64_t number;
    coord_news news; /* its bytes are in `data` */
    unsigned char data[];
} coord_kept_change;

static size_t
kept_bytes(const coord_kept_change *kept)
{
    return sizeof(*kept) + kept->news.full.size + kept->news.value.size;
}

static coord_kept_change **
ring_place(const tutti_coordinator *self, uint64_t number)
{
    return &self->history[number % COORD_HISTORY_CHANGES];
}

/* ------------------------------------------------------------------------------ rows */

static void
begin_row(coord_record *record, uint64_t number)
{
    const char start[] = {'!', HISTORY_LETTER};

    coord_record_begin_bytes(record, (tutti_bytes){start, sizeof(start)});
    coord_record_key_u32(record, (uint32_t)(number % COORD_HISTORY_CHANGES));
}

/* False = it has no room in a row. */
static bool
write_row(tutti_coordinator *self, const coord_kept_change *kept)
{
    coord_record record;

    if (!self->options.durable) {
        return true;
    }
    begin_row(&record, kept->number);
    coord_record_u64(&record, kept->number);
    coord_record_u64(&record, kept->news.version);
    coord_record_u32(&record, (uint32_t)kept->news.kind);
    coord_record_bytes(&record, kept->news.full.data, kept->news.full.size);
    coord_record_bytes(&record, kept->news.value.data, kept->news.value.size);
    return coord_record_put(self->store, &record);
}

static void
drop_row(tutti_coordinator *self, uint64_t number)
{
    coord_record record;

    if (self->options.durable) {
        begin_row(&record, number);
        coord_record_drop(self->store, &record);
    }
}

uint64_t
coord_history_id(tutti_coordinator *self)
{
    const char start[] = {'!', HISTORY_LETTER};
    coord_record record;

    if (self->history_id == 0) {
        self->history_id = tutti_id_draw();
        if (self->options.durable) {
            coord_record_begin_bytes(&record, (tutti_bytes){start, sizeof(start)});
            coord_record_u64(&record, self->history_id);
            (void)coord_record_put(self->store, &record);
        }
    }
    return self->history_id;
}

/* ------------------------------------------------------------------------------ the ring */

static void
pass_version(tutti_coordinator *self, coord_prefix *prefix, void *arg)
{
    const uint64_t *version = arg;

    if (prefix->since <= *version) {
        prefix->since = *version + 1;
        coord_prefix_record(self, prefix);
    }
}

static void
forget_version(tutti_coordinator *self, tutti_bytes full, uint64_t version)
{
    coord_prefixes_match(self, full, pass_version, &version);
}

static void
free_oldest(tutti_coordinator *self)
{
    coord_kept_change **place = ring_place(self, self->history_first);

    self->history_bytes -= kept_bytes(*place);
    free(*place);
    *place = NULL;
    self->history_first++;
}

/* `keep_row`: another change will have it. */
static void
drop_oldest(tutti_coordinator *self, bool keep_row)
{
    const coord_kept_change *kept = *ring_place(self, self->history_first);

    forget_version(self, kept->news.full, kept->news.version);
    if (!keep_row) {
        drop_row(self, kept->number);
    }
    free_oldest(self);
}

static coord_kept_change *
kept_new(const coord_news *news)
{
    coord_kept_change *kept = calloc(1, sizeof(*kept) + news->full.size + news->value.size);

    if (kept != NULL) {
        kept->news = *news;
        kept->news.full.data = kept->data;
        kept->news.value.data = kept->data + news->full.size;
        memcpy(kept->data, news->full.data, news->full.size);
        if (news->value.size > 0) {
            memcpy(kept->data + news->full.size, news->value.data, news->value.size);
        }
    }
    return kept;
}

static bool
have_ring(tutti_coordinator *self)
{
    if (self->history == NULL) {
        self->history = calloc(COORD_HISTORY_CHANGES, sizeof(coord_kept_change *));
    }
    return self->history != NULL;
}

static void
append_change(tutti_coordinator *self, coord_kept_change *kept)
{
    if (self->history_next - self->history_first == COORD_HISTORY_CHANGES) {
        drop_oldest(self, true);
    }
    kept->number = self->history_next++;
    *ring_place(self, kept->number) = kept;
    self->history_bytes += kept_bytes(kept);
    while (self->history_bytes > COORD_HISTORY_BYTES) {
        drop_oldest(self, false);
    }
}

void
coord_history_add(tutti_coordinator *self, const coord_news *news)
{
    coord_kept_change *kept = have_ring(self) ? kept_new(news) : NULL;

    if (kept == NULL) {
        forget_version(self, news->full, news->version);
        return;
    }
    append_change(self, kept);
    if (!write_row(self, kept)) {
        forget_version(self, news->full, news->version);
    }
}

void
coord_history_replay(tutti_coordinator *self, const coord_prefix *prefix, uint64_t from,
                     uint32_t skip, void (*each)(void *arg, const coord_news *news), void *arg)
{
    uint64_t number;

    for (number = self->history_first; number < self->history_next; number++) {
        const coord_news *news = &(*ring_place(self, number))->news;

        if (news->version < from || news->full.size < prefix->node.key.size ||
            memcmp(news->full.data, prefix->key, prefix->node.key.size) != 0) {
            continue;
        }
        if (news->version == from && skip > 0) {
            skip--;
        } else {
            each(arg, news);
        }
    }
}

/* ------------------------------------------------------------------------------ restoring */

static bool
read_row(coord_reading value, uint64_t *ret_number, coord_news *ret_news)
{
    *ret_number = coord_reading_u64(&value);
    ret_news->version = coord_reading_u64(&value);
    ret_news->kind = (tutti_coordinator_change_kind)coord_reading_u32(&value);
    ret_news->full = coord_reading_bytes(&value);
    ret_news->value = coord_reading_bytes(&value);
    if (value.failed || ret_news->full.size == 0 ||
        ret_news->full.size > sizeof(((coord_full_key *)NULL)->data) ||
        memchr(ret_news->full.data, 0, ret_news->full.size) == NULL ||
        (ret_news->kind != TUTTI_COORDINATOR_SET && ret_news->kind != TUTTI_COORDINATOR_DELETED)) {
        return false;
    }
    ret_news->job_size = strlen(ret_news->full.data) + 1;
    return true;
}

static void
load_row(tutti_coordinator *self, const tutti_store_entry *entry)
{
    coord_reading value = {entry->value.data, entry->value.size, false};
    coord_kept_change *kept;
    coord_kept_change **place;
    uint64_t number;
    coord_news news;

    if (entry->key.size == 2) {
        self->history_id = coord_reading_u64(&value);
        return;
    }
    if (!read_row(value, &number, &news) || !have_ring(self) || (kept = kept_new(&news)) == NULL) {
        return;
    }
    kept->number = number;
    place = ring_place(self, number);
    free(*place); /* a row at a wrong place; there is none */
    *place = kept;
    self->history_next = number >= self->history_next ? number + 1 : self->history_next;
}

/* What is before a hole says nothing any more: drop it, and note up to where. */
static void
drop_before_hole(tutti_coordinator *self)
{
    size_t i;

    for (i = 0; i < COORD_HISTORY_CHANGES; i++) {
        coord_kept_change *kept = self->history[i];

        if (kept != NULL && kept->number < self->history_first) {
            self->history_hole = self->history_first == self->history_next
                                     ? tutti_store_version(self->store)
                                     : (*ring_place(self, self->history_first))->news.version;
            free(kept);
            self->history[i] = NULL;
        }
    }
}

/* The run of numbers that ends with the highest one. */
static void
cut_run(tutti_coordinator *self)
{
    const uint64_t end = self->history_next;

    self->history_first = end;
    while (self->history_first > 0 && end - self->history_first < COORD_HISTORY_CHANGES) {
        const coord_kept_change *kept = *ring_place(self, self->history_first - 1);

        if (kept == NULL || kept->number != self->history_first - 1) {
            break;
        }
        self->history_first--;
        self->history_bytes += kept_bytes(kept);
    }
    drop_before_hole(self);
}

void
coord_history_restore(tutti_coordinator *self)
{
    coord_records_each(self, HISTORY_LETTER, load_row);
    if (self->history != NULL) {
        cut_run(self);
    }
    coord_prefixes_restore(self);
}

void
coord_history_init(tutti_coordinator *self)
{
    coord_prefixes_init(self);
}

void
coord_history_fini(tutti_coordinator *self)
{
    while (self->history_first < self->history_next) {
        free_oldest(self);
    }
    free(self->history);
    coord_prefixes_fini(self);
}
