/* Packets of an epoch that others know already: they wait for its key. */
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "coll/seal/coll_seal_private.h"

typedef struct waiting {
    tutti_link link;
    uint64_t since_ns;
    tutti_wire_parcel *parcel;
    size_t header_size;
    size_t size;
    unsigned char header[TUTTI_WIRE_HEADER_MAX];
    unsigned char data[]; /* when there is no parcel */
} waiting;

static size_t
bytes_of(const waiting *it)
{
    return sizeof(*it) + (it->parcel == NULL ? it->size : 0);
}

static waiting *
take_first(seal *self)
{
    tutti_link *link = tutti_list_pop(&self->waiting);
    waiting *it = link == NULL ? NULL : tutti_container_of(link, waiting, link);

    if (it != NULL) {
        self->waiting_bytes -= bytes_of(it);
        self->stats.waiting--;
    }
    return it;
}

static void
put(seal *self, waiting *it)
{
    tutti_list_init(&it->link);
    tutti_list_add(&self->waiting, &it->link);
    self->waiting_bytes += bytes_of(it);
    self->stats.waiting++;
}

static bool
is_old(const waiting *it, uint64_t now_ns)
{
    return now_ns > tutti_clock_add(it->since_ns, SEAL_NEW_JOB_NS);
}

static void
drop_old(seal *self, uint64_t now_ns)
{
    while (!tutti_list_empty(&self->waiting) &&
           is_old(tutti_container_of(self->waiting.next, waiting, link), now_ns)) {
        waiting *it = take_first(self);

        seal_drop(self, it->parcel);
        free(it);
    }
}

bool
seal_wait(seal *self, const void *header, size_t header_size, const void *data, size_t size,
          tutti_wire_parcel *parcel)
{
    const size_t copied = parcel == NULL ? size : 0;
    const uint64_t now_ns = tutti_clock_ns();
    waiting *it;

    drop_old(self, now_ns);
    if (self->stats.waiting == SEAL_WAITING_MAX || header_size > TUTTI_WIRE_HEADER_MAX ||
        self->waiting_bytes + sizeof(*it) + copied > SEAL_WAITING_BYTES_MAX) {
        return false;
    }
    it = malloc(sizeof(*it) + copied);
    if (it == NULL) {
        return false;
    }
    it->since_ns = now_ns;
    it->parcel = parcel;
    it->header_size = header_size;
    it->size = size;
    memcpy(it->header, header, header_size);
    if (copied > 0) {
        memcpy(it->data, data, copied);
    }
    put(self, it);
    return true;
}

/* As it came. */
static void
look_again(seal *self, waiting *it, uint64_t now_ns)
{
    const tutti_wire_verdict verdict = seal_accept(self, it->header, it->header_size, it->size);

    if (verdict == TUTTI_WIRE_AHEAD && !is_old(it, now_ns)) {
        put(self, it);
        return;
    }
    if (verdict == TUTTI_WIRE_MEMBER) {
        seal_hear(self, it->header, it->header_size, it->parcel == NULL ? it->data : NULL, it->size,
                  it->parcel);
    } else {
        seal_drop(self, it->parcel);
    }
    free(it);
}

void
seal_wait_over(seal *self)
{
    const uint64_t now_ns = tutti_clock_ns();
    uint64_t left = self->stats.waiting;

    while (left-- > 0) {
        look_again(self, take_first(self), now_ns);
    }
}

void
seal_wait_fini(seal *self)
{
    waiting *it;

    while ((it = take_first(self)) != NULL) {
        seal_drop(self, it->parcel);
        free(it);
    }
}
