/*
 * Incoming: rings of peers that connected to us, and the rendezvous messages and regions that
 * came by them. Engine's thread.
 *
 * A source is freed when its peer is gone and the last rndv that points into its memory is given
 * back (`parcels`): the engine may hold a rndv, and a backend may work in a region, while the peer
 * dies. The mapping stays until then, so a dead peer's memory can still be read.
 *
 * What the peer says is checked before it is used: ring.c checks that records are whole,
 * find_source that ranges lie in mapped memory. Mappings are of sealed memfds: the peer cannot cut
 * the file under us.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/log.h"
#include "coll/shm/shm.h"
#include "coll/shm/shm_private.h"

#define POLL_MAX 16 /* packets of one peer before the next one's turn */

static void
free_source(shm_source *source)
{
    assert(source->parcels == 0);
    tutti_shm_regions_close(source);
    if (source->memory != NULL) {
        (void)munmap(source->memory, (size_t)source->memory_size);
    }
    tutti_shm_doorbell_close(source->transport, &source->doorbell);
    tutti_shm_segment_close(source->transport, source->segment);
    free(source);
}

/*
 * The packets that the peer put before it died are handed over first: an abort may be among them.
 * `gone` is set after that, since the handlers may give back a rndv of this source. With a revoke
 * it is likewise.
 */
void
tutti_shm_source_gone(shm_source *source)
{
    if (source->gone) {
        return;
    }
    while (tutti_shm_source_progress(source) > 0) { /* its last words */
    }
    source->gone = true;
    source->transport->source_count--;
    tutti_list_remove(&source->link);
    tutti_local_close_all(source->fds, source->fd_count); /* of a hello that waited */
    source->fd_count = 0;
    tutti_shm_unwatch(source->transport, &source->watch);
    if (source->parcels == 0) {
        free_source(source);
    }
}

/* ------------------------------------------------------------------------------ packets in */

/* Where a range of the peer's memory is here, and the region it is in (counted). False: it has no
 * such bytes. size <= room - at, not at + size <= room: the sum could overflow. */
static bool
find_source(shm_source *source, uint32_t id, uint64_t at, uint64_t size, void **ret,
            shm_region **region)
{
    uint64_t room = source->memory_size;
    unsigned char *memory = source->memory;

    *ret = NULL;
    if (size == 0) {
        return true;
    }
    if (source->transport->options.inside) {
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

/* The record has room always: a peer has at most SHM_REGION_MAX rndvs with us, and the ring of
 * returns holds more than that. */
static void
put_back(shm_source *source, uint64_t id, bool done)
{
    shm_record record = {.kind = done ? SHM_BACK : SHM_UNDONE, .id = id};

    (void)tutti_shm_put(&source->back, &record, NULL, NULL);
    tutti_shm_ring_doorbell(&source->doorbell, false);
}

static void
free_rndv(tutti_transport_rndv *rndv)
{
    tutti_shm_region_drop(rndv->input_region);
    tutti_shm_region_drop(rndv->output_region);
    free(rndv);
}

/* NULL: it makes no sense, or there is no memory. */
static tutti_transport_rndv *
new_rndv(shm_source *source, const shm_record *record)
{
    tutti_transport_rndv *rndv = calloc(1, sizeof(*rndv));
    void *input = NULL;
    void *output = NULL;

    if (rndv == NULL) {
        return NULL;
    }
    if (!find_source(source, record->input_region, record->input, record->input_size, &input,
                     &rndv->input_region) ||
        !find_source(source, record->output_region, record->output, record->output_size, &output,
                     &rndv->output_region)) {
        free_rndv(rndv);
        return NULL;
    }
    rndv->source = source;
    rndv->id = record->id;
    rndv->is_region = record->kind == SHM_REGION;
    rndv->rma = (tutti_transport_region){input, record->input_size, output, record->output_size};
    tutti_list_init(&rndv->link);
    source->parcels++;
    return rndv;
}

/* The header is copied, since the engine reads it several times and the peer could change it
 * between. Eager data is not: the engine bounds each read of it by its size. */
static void
hand_over_source(shm_source *source, const shm_record *record, const unsigned char *bytes)
{
    const transport_shm *self = source->transport;
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    tutti_transport_rndv *rndv = NULL;

    memcpy(header, bytes, record->header_size);
    if (record->kind != SHM_EAGER) {
        rndv = new_rndv(source, record);
        if (rndv == NULL) {
            TUTTI_LOG("coll/shm", ERROR, "hung up on a peer: its memory could not be mapped");
            put_back(source, record->id, false); /* else it would wait for its memory for ever */
            (void)shutdown(source->watch.fd, SHUT_RDWR); /* ... and its op for what it has sent */
            return;
        }
    }
    self->events->on_packet(self->arg, header, record->header_size,
                            rndv == NULL ? bytes + record->header_size : NULL,
                            (size_t)(rndv == NULL ? record->data_size : record->input_size), rndv);
}

/*
 * A bounded number of packets, so one busy peer does not keep the others waiting. tutti_shm_took
 * comes after on_packet: the data is read in place until then. A record that makes no sense breaks
 * the ring for ever; its sender's death or disconnect ends the source.
 */
unsigned
tutti_shm_source_progress(shm_source *source)
{
    const unsigned char *bytes;
    shm_record record;
    unsigned did = 0;

    if (!source->met) {
        return 0;
    }
    while (did < POLL_MAX && tutti_shm_peek(&source->in, &record, &bytes)) {
        did++;
        if (record.header_size > TUTTI_TRANSPORT_HEADER_MAX || record.kind > SHM_REGION) {
            source->in.broken = true;
            break;
        }
        hand_over_source(source, &record, bytes);
        tutti_shm_took(&source->in, &record);
        if (tutti_shm_unblocks(&source->in)) {
            tutti_shm_ring_doorbell(&source->doorbell, false);
        }
    }
    return did;
}

/* ------------------------------------------------------------------------------ rendezvous
 * messages */

/* Of the inner transport; our wrapping goes. */
static tutti_transport_rndv *
unwrap_source(tutti_transport_rndv *rndv)
{
    tutti_transport_rndv *inner = rndv->inner;

    free(rndv);
    return inner;
}

/*
 * The record of return is put after the last access to the memory, and its release order is what
 * makes our writes into an exposed output visible to the owner.
 */
void
tutti_shm_give_back(tutti_transport *transport, tutti_transport_rndv *rndv, bool done)
{
    shm_source *source = rndv->source;
    const uint64_t id = rndv->id;

    (void)transport;
    assert(rndv->inner == NULL);
    tutti_list_remove(&rndv->link);
    free_rndv(rndv);
    source->parcels--;
    tutti_shm_fault();
    if (!source->gone) {
        put_back(source, id, done);
    } else if (source->parcels == 0) {
        free_source(source);
    }
}

/* To the sender of a rendezvous message a dropped one has left (transport.h), so it counts as done.
 * A dropped region was not worked in: its owner must know. */
void
tutti_shm_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    transport_shm *self = tutti_transport_shm_from(transport);

    if (rndv->inner != NULL) {
        self->inner->ops->drop(self->inner, unwrap_source(rndv));
    } else {
        tutti_shm_give_back(transport, rndv, !rndv->is_region);
    }
}

bool
tutti_shm_map(tutti_transport *transport, tutti_transport_rndv *rndv,
              tutti_transport_region *ret_region)
{
    (void)transport;
    if (rndv->inner != NULL || !rndv->is_region) {
        return false;
    }
    *ret_region = rndv->rma;
    return true;
}

/* Copy the next bytes. True: that was all. */
static bool
copy_some(tutti_transport_rndv *rndv)
{
    const uint64_t rest = rndv->rma.input_size - rndv->copied;
    const uint64_t size = rest < SHM_COPY_BYTES ? rest : SHM_COPY_BYTES;

    memcpy(rndv->dest + rndv->copied, (const char *)rndv->rma.input + rndv->copied, (size_t)size);
    rndv->copied += size;
    return size == rest;
}

/* One copy, from the sender's memory to its place. A large one goes in steps of SHM_COPY_BYTES by
 * progress, so that other ops have their turn. */
tutti_transport_result
tutti_shm_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest, size_t size,
                tutti_transport_ticket *ticket)
{
    transport_shm *self = tutti_transport_shm_from(transport);

    if (rndv->inner != NULL) {
        return self->inner->ops->fetch(self->inner, unwrap_source(rndv), dest, size, ticket);
    }
    assert(size == rndv->rma.input_size);
    rndv->dest = dest;
    if (size <= SHM_COPY_BYTES) {
        (void)copy_some(rndv);
        tutti_shm_give_back(transport, rndv, true);
        return TUTTI_TRANSPORT_DONE;
    }
    rndv->ticket = ticket;
    tutti_list_add(&self->pulls, &rndv->link);
    return TUTTI_TRANSPORT_LATER;
}

/* One step of the first; then it goes to the end of the list, so pulls share the time. The rndv is
 * freed before the ticket's callback, which may post the next pull. */
unsigned
tutti_shm_pulls_progress(transport_shm *self)
{
    tutti_list_node *first = tutti_list_pop(&self->pulls);
    tutti_transport_rndv *rndv;
    tutti_transport_ticket *ticket;

    if (first == NULL) {
        return 0;
    }
    rndv = tutti_container_of(first, tutti_transport_rndv, link);
    ticket = rndv->ticket;
    if (!copy_some(rndv)) {
        tutti_list_add(&self->pulls, &rndv->link);
        return 1;
    }
    tutti_shm_give_back(&self->base, rndv, true);
    ticket->on_done(ticket, true);
    return 1;
}
