/*
 * Outgoing: one connection to each peer, by its ring or by the inner transport. Engine's
 * thread.
 *
 * States: MEETING, then SAME_HOST or REMOTE, for ever. `broken` is added when the peer is dead.
 * Messages wait in `queue` while the link is MEETING or the ring is full; they leave in order.
 *
 * A message with a rndv moves from `queue` to `lent` when its record is in the ring, and ends when
 * the peer gives it back, or when the peer is dead (its socket has ended: no thread of it runs any
 * more). disconnect does not end what is in `lent`: a peer that is stopped may go on writing when
 * it wakes up. Then the link lives on without an owner and is freed with its last region.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "coll/shm/shm_private.h"

static void
end_out(shm_out *out, bool ok)
{
    tutti_transport_ticket *ticket = out->ticket;

    tutti_list_remove(&out->link);
    free(out);
    if (ticket != NULL) {
        ticket->on_done(ticket, ok);
    }
}

static void
end_all(tutti_list_node *list, bool ok)
{
    while (!tutti_list_empty(list)) {
        end_out(tutti_container_of(list->next, shm_out, link), ok);
    }
}

/* ------------------------------------------------------------------------------ by the inner
 * transport
 */

/* The inner transport's connection, made when it is first needed. */
static tutti_code
have_inner(tutti_transport_conn *link, tutti_error *err)
{
    const tutti_bytes address = {link->inner_address, link->inner_size};
    tutti_transport *inner = link->transport->inner;
    tutti_code code;

    if (link->inner != NULL) {
        return TUTTI_OK;
    }
    if (link->owner == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                              "this agent closed the connection to it");
    }
    code = inner->ops->connect(inner, address, link->owner, &link->inner, err);
    if (code != TUTTI_OK) {
        link->inner = NULL;
        return code;
    }
    link->transport->remote_count++;
    return TUTTI_OK;
}

static tutti_transport_result
send_inner(tutti_transport_conn *link, const void *header, size_t header_size, const void *data,
           size_t size, tutti_transport_ticket *ticket)
{
    if (have_inner(link, NULL) != TUTTI_OK) {
        return TUTTI_TRANSPORT_FAILED;
    }
    return link->transport->inner->ops->send(link->inner, header, header_size, data, size, ticket);
}

/*
 * A message that waited while the peers met, and they are not of one host: the inner transport
 * takes it, with its ticket. A region cannot go that way: it fails, and the op falls back or fails.
 */
static void
send_waiting(tutti_transport_conn *link, shm_out *out)
{
    tutti_transport_result result = TUTTI_TRANSPORT_FAILED;

    if (out->kind != SHM_REGION) {
        tutti_list_remove(&out->link);
        result = send_inner(link, out->header, out->header_size, out->data, out->size, out->ticket);
    }
    if (result == TUTTI_TRANSPORT_LATER) {
        out->ticket = NULL; /* the inner transport has it */
    }
    end_out(out, result == TUTTI_TRANSPORT_DONE);
}

void
tutti_shm_set_remote(tutti_transport_conn *link)
{
    link->state = SHM_REMOTE;
    if (link->watch.fd >= 0) {
        tutti_shm_unwatch(link->transport, &link->watch);
    }
    while (!tutti_list_empty(&link->queue)) {
        send_waiting(link, tutti_container_of(link->queue.next, shm_out, link));
    }
}

/* ------------------------------------------------------------------------------ by the ring */

/*
 * False: not now, or the link has broken. The number of rndvs in the peer's hands is bounded so
 * that its returns always have room in the ring. When there is no room, the peer is woken even if
 * it is idle: only it can make some.
 */
static bool
put_shm_conn(tutti_transport_conn *link, shm_out *out)
{
    const bool has_data = out->kind == SHM_EAGER;
    shm_record record = {.kind = out->kind,
                         .header_size = (uint16_t)out->header_size,
                         .id = out->id,
                         .data_size = has_data ? out->size : 0};

    if (link->broken || (!has_data && link->lent_count >= SHM_REGION_MAX)) {
        return false;
    }
    if (out->kind == SHM_RNDV) {
        out->rma = (tutti_transport_region){.input = out->data, .input_size = out->size};
    }
    if (!has_data && !tutti_shm_place(link, out, &record)) {
        return false;
    }
    if (!tutti_shm_put(&link->out, &record, out->header, out->data)) {
        tutti_shm_ring_doorbell(&link->doorbell, false); /* make room, though nothing runs there */
        return false;
    }
    tutti_shm_ring_doorbell(&link->doorbell, out->ticket != NULL && out->ticket->patient);
    return true;
}

/* A copy on the heap, for what is not over at once. */
static tutti_transport_result
keep_shm_conn(tutti_transport_conn *link, const shm_out *model, tutti_list_node *where)
{
    shm_out *out = malloc(sizeof(*out));

    if (out == NULL) {
        return TUTTI_TRANSPORT_FAILED;
    }
    *out = *model;
    tutti_list_init(&out->link);
    tutti_list_add(where, &out->link);
    if (where == &link->lent) {
        link->lent_count++;
    }
    return TUTTI_TRANSPORT_LATER;
}

/*
 * EAGER data is in the ring when this returns, so its memory is free at once (DONE). What the peer
 * will read in place must be in `lent` before its record is in the ring: it may come back before
 * put returns. Behind a message that waits, all wait, so a link keeps its order.
 */
static tutti_transport_result
submit_shm_conn(tutti_transport_conn *link, shm_out *model)
{
    const bool has_data = model->kind == SHM_EAGER;
    tutti_transport_result result;

    model->id = ++link->next_id;
    if (link->state != SHM_SAME_HOST || !tutti_list_empty(&link->queue)) {
        return keep_shm_conn(link, model, &link->queue);
    }
    if (has_data) {
        return put_shm_conn(link, model) ? TUTTI_TRANSPORT_DONE
                                         : keep_shm_conn(link, model, &link->queue);
    }
    result = keep_shm_conn(link, model, &link->lent); /* before it can come back */
    if (result == TUTTI_TRANSPORT_LATER) {
        shm_out *out = tutti_container_of(link->lent.before, shm_out, link);

        if (!put_shm_conn(link, out)) {
            tutti_list_remove(&out->link);
            tutti_list_add(&link->queue, &out->link);
            link->lent_count--;
        }
    }
    return result;
}

/* What had to wait for room. */
static unsigned
flush_shm_conn(tutti_transport_conn *link)
{
    unsigned did = 0;

    while (!tutti_list_empty(&link->queue)) {
        shm_out *out = tutti_container_of(link->queue.next, shm_out, link);

        if (!put_shm_conn(link, out)) {
            break;
        }
        did++;
        if (out->kind == SHM_EAGER) {
            end_out(out, true);
        } else {
            tutti_list_remove(&out->link);
            tutti_list_add(&link->lent, &out->link);
            link->lent_count++;
        }
    }
    return did;
}

void
tutti_shm_set_same_host(tutti_transport_conn *link)
{
    link->state = SHM_SAME_HOST;
    (void)flush_shm_conn(link);
}

/* ------------------------------------------------------------------------------ what comes back */

/* An id that is not in `lent` is ignored: the peer can only end what it has. unfinished is for
 * regions: of a rendezvous message it means nothing. */
static void
take_back(tutti_transport_conn *link, const shm_record *record)
{
    tutti_list_node *at;
    tutti_list_node *spare;

    tutti_list_each(at, spare, &link->lent)
    {
        shm_out *out = tutti_container_of(at, shm_out, link);

        if (out->id == record->id) {
            link->lent_count--;
            if (out->ticket != NULL) {
                out->ticket->unfinished = record->kind == SHM_UNDONE && out->kind == SHM_REGION;
            }
            end_out(out, true);
            return;
        }
    }
}

static unsigned
take_backs(tutti_transport_conn *link)
{
    const unsigned char *unused;
    shm_record record;
    unsigned did = 0;

    while (tutti_shm_peek(&link->back, &record, &unused)) {
        tutti_shm_took(&link->back, &record);
        take_back(link, &record);
        did++;
    }
    return did;
}

static bool
is_open(const transport_shm *self, uint64_t number)
{
    const tutti_list_node *at;

    for (at = self->links.next; at != &self->links; at = at->next) {
        if (tutti_container_of(at, tutti_transport_conn, link)->number == number) {
            return true;
        }
    }
    return false;
}

/*
 * The peer is dead: what it said before counts, what it holds is free. Its packets are read first,
 * so an abort that it sent has better words than the broken connection; one of them may have this link
 * disconnected, which may free it. tickets come back with false, then on_broken, which may disconnect
 * and free the link; so it is the last thing here.
 */
void
tutti_shm_hang_up(tutti_transport_conn *link)
{
    transport_shm *self = link->transport;
    const uint64_t number = link->number;
    tutti_list_node *at;
    tutti_list_node *spare;
    void *owner;

    tutti_list_each(at, spare, &self->sources) /* its last words */
    {
        (void)tutti_shm_source_progress(tutti_container_of(at, shm_source, link));
    }
    if (!is_open(self, number)) {
        return;
    }
    owner = link->owner;
    (void)take_backs(link);
    link->broken = true;
    tutti_shm_unwatch(self, &link->watch);
    link->lent_count = 0;
    end_all(&link->lent, false);
    end_all(&link->queue, false);
    if (owner == NULL) {
        tutti_shm_link_free(link);
    } else if (self->events != NULL) {
        self->events->on_broken(self->arg, owner, "its process is gone");
    }
}

unsigned
tutti_shm_link_progress(tutti_transport_conn *link)
{
    unsigned did = 0;

    if (link->state != SHM_SAME_HOST || link->broken) {
        return 0;
    }
    did = take_backs(link);
    if (!tutti_list_empty(&link->queue)) {
        did += flush_shm_conn(link);
    }
    if (link->owner == NULL && link->lent_count == 0) {
        tutti_shm_link_free(link);
    }
    return did;
}

static tutti_transport_conn *
find_nonsense(const transport_shm *self)
{
    tutti_list_node *at;

    for (at = self->links.next; at != &self->links; at = at->next) {
        tutti_transport_conn *link = tutti_container_of(at, tutti_transport_conn, link);

        if (link->state == SHM_SAME_HOST && !link->broken &&
            (link->out.broken || link->back.broken)) {
            return link;
        }
    }
    return NULL;
}

/*
 * A ring that makes no sense is as good as a dead peer, with one difference: the process still
 * runs, and may write into regions that are taken back here. A member can do that anyway
 * (docs/decisions/0012-shared-memory.md). The list is looked through anew each time.
 */
unsigned
tutti_shm_links_judge(transport_shm *self)
{
    tutti_transport_conn *link;
    unsigned did = 0;

    while ((link = find_nonsense(self)) != NULL) {
        tutti_shm_hang_up(link);
        did++;
    }
    return did;
}

/* ------------------------------------------------------------------------------ opening, closing
 */

void
tutti_shm_link_free(tutti_transport_conn *link)
{
    transport_shm *self = link->transport;

    tutti_list_remove(&link->link);
    end_all(&link->queue, false);
    end_all(&link->lent, false);
    if (link->watch.fd >= 0) {
        tutti_shm_unwatch(self, &link->watch);
    }
    free(link->told);
    tutti_shm_doorbell_close(self, &link->doorbell);
    tutti_shm_segment_close(self, link->segment);
    free(link);
}

/* The inner connection is made at once for a peer that is not of this host, so an address that
 * cannot be reached is an error now; for one of this host only when it is needed. */
tutti_code
tutti_shm_link_open(tutti_transport *transport, tutti_bytes bytes, void *owner,
                    tutti_transport_conn **ret_link, tutti_error *err)
{
    transport_shm *self = tutti_transport_shm_from(transport);
    shm_address address = {.inner = bytes};
    const bool ours = tutti_shm_address_read(bytes, &address);
    tutti_transport_conn *link = calloc(1, sizeof(*link) + address.inner.size);
    tutti_code code;

    if (link == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a connection");
    }
    link->transport = self;
    link->number = ++self->link_count;
    link->owner = owner;
    link->watch.fd = -1;
    link->doorbell.fd = -1;
    tutti_list_init(&link->link);
    tutti_list_init(&link->queue);
    tutti_list_init(&link->lent);
    link->inner_size = address.inner.size;
    memcpy(link->inner_address, address.inner.data, address.inner.size);
    tutti_list_add(&self->links, &link->link);
    if (!ours || !transport->ops->can_map_peer(transport, bytes) ||
        !tutti_shm_meet(link, &address)) {
        link->state = SHM_REMOTE;
        code = have_inner(link, err);
        if (code != TUTTI_OK) {
            tutti_shm_link_free(link);
            return code;
        }
    }
    *ret_link = link;
    return TUTTI_OK;
}

void
tutti_shm_disconnect(tutti_transport_conn *link)
{
    transport_shm *self = link->transport;

    link->owner = NULL;
    if (link->inner != NULL) {
        tutti_transport_conn *inner = link->inner;

        link->inner = NULL;
        self->remote_count--;
        self->inner->ops->disconnect(inner);
    }
    end_all(&link->queue, false);
    if (link->lent_count ==
        0) { /* else it waits for its exposed regions: see `expose` in transport.h */
        tutti_shm_link_free(link);
    }
}

/* ------------------------------------------------------------------------------ sending */

/* Large data outside of the memory that peers have mapped goes by the inner transport, which copies
 * it. */
tutti_transport_result
tutti_shm_send_packet(tutti_transport_conn *link, const void *header, size_t header_size,
                      const void *data, size_t size, tutti_transport_ticket *ticket)
{
    shm_out model = {.ticket = ticket,
                     .kind = size > TUTTI_TRANSPORT_EAGER_MAX ? SHM_RNDV : SHM_EAGER,
                     .header = header,
                     .header_size = header_size,
                     .data = data,
                     .size = size};

    if (link->broken) {
        return TUTTI_TRANSPORT_FAILED;
    }
    if (link->state == SHM_REMOTE ||
        (model.kind == SHM_RNDV && !tutti_shm_holds(&link->transport->base, data, size))) {
        return send_inner(link, header, header_size, data, size, ticket);
    }
    return submit_shm_conn(link, &model);
}

tutti_transport_result
tutti_shm_expose(tutti_transport_conn *link, const void *header, size_t header_size,
                 const tutti_transport_region *rma, tutti_transport_ticket *ticket)
{
    shm_out model = {.ticket = ticket,
                     .kind = SHM_REGION,
                     .header = header,
                     .header_size = header_size,
                     .rma = *rma};

    ticket->unfinished = false;
    if (link->broken || link->state != SHM_SAME_HOST) {
        return TUTTI_TRANSPORT_FAILED;
    }
    return submit_shm_conn(link, &model);
}
