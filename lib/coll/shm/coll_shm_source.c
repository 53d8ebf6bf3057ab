#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os/log.h"
#include "coll/shm/coll_shm_chaos.h"
#include "coll/shm/coll_shm_wire.h"

#define POLL_MOST 16 /* packets of one peer before the next one's turn */

static void
free_source(shm_source *source)
{
    assert(source->parcels == 0);
    tutti_shm_regions_close(source);
    if (source->memory != NULL) {
        (void)munmap(source->memory, (size_t)source->memory_size);
    }
    tutti_shm_bell_close(source->wire, &source->bell);
    tutti_shm_segment_close(source->wire, source->segment);
    free(source);
}

void
tutti_shm_source_gone(shm_source *source)
{
    if (source->gone) {
        return;
    }
    while (tutti_shm_source_progress(source) > 0) { /* its last words */
    }
    source->gone = true;
    source->wire->source_count--;
    tutti_list_remove(&source->link);
    tutti_local_close_all(source->fds, source->fd_count); /* of a hello that waited */
    source->fd_count = 0;
    tutti_shm_unwatch(source->wire, &source->watch);
    if (source->parcels == 0) {
        free_source(source);
    }
}

/* ------------------------------------------------------------------------------ packets in */

/* Where a range of the peer's memory is here, and the region it is in. False: it has no such bytes.
 */
static bool
find(shm_source *source, uint32_t id, uint64_t at, uint64_t size, void **ret, shm_region **region)
{
    uint64_t room = source->memory_size;
    unsigned char *memory = source->memory;

    *ret = NULL;
    if (size == 0) {
        return true;
    }
    if (source->wire->options.inside) {
        *ret = (void *)(uintptr_t)at;
        return true;
    }
    if (id != 0) {
        *region = tutti_shm_region_get(source, id);
        room = *region == NULL ? 0 : (*region)->size;
        memory = *region == NULL ? NULL : (*region)->data;
    }
    *ret = memory + at;
    return memory != NULL && at <= room && size <= room - at;
}

static void
free_parcel(tutti_wire_parcel *parcel)
{
    tutti_shm_region_drop(parcel->input_region);
    tutti_shm_region_drop(parcel->output_region);
    free(parcel);
}

/* NULL: it makes no sense, or there is no memory. */
static tutti_wire_parcel *
new_parcel(shm_source *source, const shm_record *record)
{
    tutti_wire_parcel *parcel = calloc(1, sizeof(*parcel));
    void *input = NULL;
    void *output = NULL;

    if (parcel == NULL) {
        return NULL;
    }
    if (!find(source, record->input_region, record->input, record->input_size, &input,
              &parcel->input_region) ||
        !find(source, record->output_region, record->output, record->output_size, &output,
              &parcel->output_region)) {
        free_parcel(parcel);
        return NULL;
    }
    parcel->source = source;
    parcel->id = record->id;
    parcel->is_loan = record->kind == SHM_LOAN;
    parcel->loan = (tutti_wire_loan){input, record->input_size, output, record->output_size};
    tutti_list_init(&parcel->link);
    source->parcels++;
    return parcel;
}

static void
hand_over(shm_source *source, const shm_record *record, const unsigned char *bytes)
{
    const wire_shm *self = source->wire;
    unsigned char header[TUTTI_WIRE_HEADER_MAX];
    tutti_wire_parcel *parcel = NULL;

    memcpy(header, bytes, record->header_size);
    if (record->kind != SHM_EAGER) {
        parcel = new_parcel(source, record);
        if (parcel == NULL) {
            TUTTI_LOG("coll/shm", ERROR, "dropped a parcel of a peer: no memory for it");
            return;
        }
    }
    self->events->on_packet(
        self->arg, header, record->header_size, parcel == NULL ? bytes + record->header_size : NULL,
        (size_t)(parcel == NULL ? record->data_size : record->input_size), parcel);
}

unsigned
tutti_shm_source_progress(shm_source *source)
{
    const unsigned char *bytes;
    shm_record record;
    unsigned did = 0;

    if (!source->met) {
        return 0;
    }
    while (did < POLL_MOST && tutti_shm_peek(&source->in, &record, &bytes)) {
        did++;
        if (record.header_size > TUTTI_WIRE_HEADER_MAX || record.kind > SHM_LOAN) {
            source->in.broken = true;
            break;
        }
        hand_over(source, &record, bytes);
        tutti_shm_took(&source->in, &record);
        if (tutti_shm_unblocks(&source->in)) {
            tutti_shm_ring_bell(&source->bell, false);
        }
    }
    return did;
}

/* ------------------------------------------------------------------------------ parcels */

/* Of the inner wire; our wrapping goes. */
static tutti_wire_parcel *
unwrap(tutti_wire_parcel *parcel)
{
    tutti_wire_parcel *inner = parcel->inner;

    free(parcel);
    return inner;
}

void
tutti_shm_give_back(tutti_wire *wire, tutti_wire_parcel *parcel, bool done)
{
    shm_source *source = parcel->source;
    shm_record record = {.kind = done ? SHM_BACK : SHM_UNDONE, .id = parcel->id};

    (void)wire;
    assert(parcel->inner == NULL);
    tutti_list_remove(&parcel->link);
    free_parcel(parcel);
    source->parcels--;
    tutti_shm_chaos();
    if (!source->gone) {
        (void)tutti_shm_put(&source->back, &record, NULL, NULL); /* has room: SHM_LOANS_MAX */
        tutti_shm_ring_bell(&source->bell, false);
    } else if (source->parcels == 0) {
        free_source(source);
    }
}

void
tutti_shm_drop(tutti_wire *wire, tutti_wire_parcel *parcel)
{
    wire_shm *self = tutti_wire_shm_from(wire);

    if (parcel->inner != NULL) {
        self->inner->ops->drop(self->inner, unwrap(parcel));
    } else {
        tutti_shm_give_back(wire, parcel, !parcel->is_loan);
    }
}

bool
tutti_shm_view(tutti_wire *wire, tutti_wire_parcel *parcel, tutti_wire_loan *ret_loan)
{
    (void)wire;
    if (parcel->inner != NULL || !parcel->is_loan) {
        return false;
    }
    *ret_loan = parcel->loan;
    return true;
}

/* Copy the next bytes. True: that was all. */
static bool
copy_some(tutti_wire_parcel *parcel)
{
    const uint64_t rest = parcel->loan.input_size - parcel->copied;
    const uint64_t size = rest < SHM_COPY_BYTES ? rest : SHM_COPY_BYTES;

    memcpy(parcel->dest + parcel->copied, (const char *)parcel->loan.input + parcel->copied,
           (size_t)size);
    parcel->copied += size;
    return size == rest;
}

tutti_wire_result
tutti_shm_pull(tutti_wire *wire, tutti_wire_parcel *parcel, void *dest, size_t size,
               tutti_wire_ticket *ticket)
{
    wire_shm *self = tutti_wire_shm_from(wire);

    if (parcel->inner != NULL) {
        return self->inner->ops->pull(self->inner, unwrap(parcel), dest, size, ticket);
    }
    assert(size == parcel->loan.input_size);
    parcel->dest = dest;
    if (size <= SHM_COPY_BYTES) {
        (void)copy_some(parcel);
        tutti_shm_give_back(wire, parcel, true);
        return TUTTI_WIRE_DONE;
    }
    parcel->ticket = ticket;
    tutti_list_add(&self->pulls, &parcel->link);
    return TUTTI_WIRE_LATER;
}

unsigned
tutti_shm_pulls_progress(wire_shm *self)
{
    tutti_link *first = tutti_list_pop(&self->pulls);
    tutti_wire_parcel *parcel;
    tutti_wire_ticket *ticket;

    if (first == NULL) {
        return 0;
    }
    parcel = tutti_container_of(first, tutti_wire_parcel, link);
    ticket = parcel->ticket;
    if (!copy_some(parcel)) {
        tutti_list_add(&self->pulls, &parcel->link);
        return 1;
    }
    tutti_shm_give_back(&self->base, parcel, true);
    ticket->on_done(ticket, true);
    return 1;
}
