#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "coll/shm/coll_shm_wire.h"

static void
end_out(shm_out *out, bool ok)
{
    tutti_wire_ticket *ticket = out->ticket;

    tutti_list_remove(&out->link);
    free(out);
    if (ticket != NULL) {
        ticket->on_done(ticket, ok);
    }
}

static void
end_all(tutti_link *list, bool ok)
{
    while (!tutti_list_empty(list)) {
        end_out(tutti_container_of(list->next, shm_out, link), ok);
    }
}

/* ------------------------------------------------------------------------------ by the inner wire
 */

/* The inner way, made when it is not there. */
static tutti_code
have_inner(tutti_wire_link *link, tutti_error *err)
{
    const tutti_bytes address = {link->inner_address, link->inner_size};
    tutti_wire *inner = link->wire->inner;
    tutti_code code;

    if (link->inner != NULL) {
        return TUTTI_OK;
    }
    if (link->owner == NULL) {
        return TUTTI_FAIL(err, TUTTI_UNAVAILABLE, "the way to it was torn");
    }
    code = inner->ops->connect(inner, address, link->owner, &link->inner, err);
    if (code != TUTTI_OK) {
        link->inner = NULL;
        return code;
    }
    link->wire->far_count++;
    return TUTTI_OK;
}

static tutti_wire_result
send_inner(tutti_wire_link *link, const void *header, size_t header_size, const void *data,
           size_t size, tutti_wire_ticket *ticket)
{
    if (have_inner(link, NULL) != TUTTI_OK) {
        return TUTTI_WIRE_FAILED;
    }
    return link->wire->inner->ops->send(link->inner, header, header_size, data, size, ticket);
}

/* It had to wait; its ticket is out. */
static void
send_waiting(tutti_wire_link *link, shm_out *out)
{
    tutti_wire_result result = TUTTI_WIRE_FAILED;

    if (out->kind != SHM_LOAN) {
        tutti_list_remove(&out->link);
        result = send_inner(link, out->header, out->header_size, out->data, out->size, out->ticket);
    }
    if (result == TUTTI_WIRE_LATER) {
        out->ticket = NULL; /* the inner wire has it */
    }
    end_out(out, result == TUTTI_WIRE_DONE);
}

void
tutti_shm_go_far(tutti_wire_link *link)
{
    link->state = SHM_FAR;
    if (link->watch.fd >= 0) {
        tutti_shm_unwatch(link->wire, &link->watch);
    }
    while (!tutti_list_empty(&link->queue)) {
        send_waiting(link, tutti_container_of(link->queue.next, shm_out, link));
    }
}

/* ------------------------------------------------------------------------------ by the ring */

static bool
put(tutti_wire_link *link, shm_out *out)
{
    const bool has_data = out->kind == SHM_EAGER;
    shm_record record = {.kind = out->kind,
                         .header_size = (uint16_t)out->header_size,
                         .id = out->id,
                         .data_size = has_data ? out->size : 0};

    if (link->broken || (!has_data && link->lent_count >= SHM_LOANS_MAX)) {
        return false;
    }
    if (out->kind == SHM_PARCEL) {
        out->loan = (tutti_wire_loan){.input = out->data, .input_size = out->size};
    }
    if (!has_data && !tutti_shm_place(link, out, &record)) {
        return false;
    }
    if (!tutti_shm_put(&link->out, &record, out->header, out->data)) {
        tutti_shm_ring_bell(&link->bell, false); /* make room, though nothing runs there */
        return false;
    }
    tutti_shm_ring_bell(&link->bell, out->ticket != NULL && out->ticket->patient);
    return true;
}

/* A copy on the heap, for what is not over at once. */
static tutti_wire_result
keep(tutti_wire_link *link, const shm_out *model, tutti_link *where)
{
    shm_out *out = malloc(sizeof(*out));

    if (out == NULL) {
        return TUTTI_WIRE_FAILED;
    }
    *out = *model;
    tutti_list_init(&out->link);
    tutti_list_add(where, &out->link);
    if (where == &link->lent) {
        link->lent_count++;
    }
    return TUTTI_WIRE_LATER;
}

static tutti_wire_result
submit(tutti_wire_link *link, shm_out *model)
{
    const bool has_data = model->kind == SHM_EAGER;
    tutti_wire_result result;

    model->id = ++link->next_id;
    if (link->state != SHM_NEAR || !tutti_list_empty(&link->queue)) {
        return keep(link, model, &link->queue);
    }
    if (has_data) {
        return put(link, model) ? TUTTI_WIRE_DONE : keep(link, model, &link->queue);
    }
    result = keep(link, model, &link->lent); /* before it can come back */
    if (result == TUTTI_WIRE_LATER) {
        shm_out *out = tutti_container_of(link->lent.before, shm_out, link);

        if (!put(link, out)) {
            tutti_list_remove(&out->link);
            tutti_list_add(&link->queue, &out->link);
            link->lent_count--;
        }
    }
    return result;
}

/* What had to wait for room. */
static unsigned
flush(tutti_wire_link *link)
{
    unsigned did = 0;

    while (!tutti_list_empty(&link->queue)) {
        shm_out *out = tutti_container_of(link->queue.next, shm_out, link);

        if (!put(link, out)) {
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
tutti_shm_go_near(tutti_wire_link *link)
{
    link->state = SHM_NEAR;
    (void)flush(link);
}

/* ------------------------------------------------------------------------------ what comes back */

static void
take_back(tutti_wire_link *link, const shm_record *record)
{
    tutti_link *at;
    tutti_link *spare;

    tutti_list_each(at, spare, &link->lent)
    {
        shm_out *out = tutti_container_of(at, shm_out, link);

        if (out->id == record->id) {
            link->lent_count--;
            if (out->ticket != NULL) {
                out->ticket->unfinished = record->kind == SHM_UNDONE && out->kind == SHM_LOAN;
            }
            end_out(out, true);
            return;
        }
    }
}

static unsigned
take_backs(tutti_wire_link *link)
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

/* The peer is dead: what it said before counts, what it holds is free. */
void
tutti_shm_hang_up(tutti_wire_link *link)
{
    wire_shm *self = link->wire;
    void *owner = link->owner;
    tutti_link *at;
    tutti_link *spare;

    tutti_list_each(at, spare, &self->sources) /* its last words */
    {
        (void)tutti_shm_source_progress(tutti_container_of(at, shm_source, link));
    }
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
tutti_shm_link_progress(tutti_wire_link *link)
{
    unsigned did = 0;

    if (link->state != SHM_NEAR || link->broken) {
        return 0;
    }
    did = take_backs(link);
    if (!tutti_list_empty(&link->queue)) {
        did += flush(link);
    }
    if (link->out.broken || link->back.broken) {
        tutti_shm_hang_up(link); /* it writes what makes no sense: as good as dead */
        return did + 1;
    }
    if (link->owner == NULL && link->lent_count == 0) {
        tutti_shm_link_free(link);
    }
    return did;
}

/* ------------------------------------------------------------------------------ opening, closing
 */

void
tutti_shm_link_free(tutti_wire_link *link)
{
    wire_shm *self = link->wire;

    tutti_list_remove(&link->link);
    end_all(&link->queue, false);
    end_all(&link->lent, false);
    if (link->watch.fd >= 0) {
        tutti_shm_unwatch(self, &link->watch);
    }
    free(link->told);
    tutti_shm_bell_close(self, &link->bell);
    tutti_shm_segment_close(self, link->segment);
    free(link);
}

tutti_code
tutti_shm_link_open(tutti_wire *wire, tutti_bytes bytes, void *owner, tutti_wire_link **ret_link,
                    tutti_error *err)
{
    wire_shm *self = tutti_wire_shm_from(wire);
    shm_address address = {.inner = bytes};
    const bool ours = tutti_shm_address_read(bytes, &address);
    tutti_wire_link *link = calloc(1, sizeof(*link) + address.inner.size);
    tutti_code code;

    if (link == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a connection");
    }
    link->wire = self;
    link->owner = owner;
    link->watch.fd = -1;
    link->bell.fd = -1;
    tutti_list_init(&link->link);
    tutti_list_init(&link->queue);
    tutti_list_init(&link->lent);
    link->inner_size = address.inner.size;
    memcpy(link->inner_address, address.inner.data, address.inner.size);
    tutti_list_add(&self->links, &link->link);
    if (!ours || !wire->ops->maybe_near(wire, bytes) || !tutti_shm_meet(link, &address)) {
        link->state = SHM_FAR;
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
tutti_shm_disconnect(tutti_wire_link *link)
{
    wire_shm *self = link->wire;

    link->owner = NULL;
    if (link->inner != NULL) {
        tutti_wire_link *inner = link->inner;

        link->inner = NULL;
        self->far_count--;
        self->inner->ops->disconnect(inner);
    }
    end_all(&link->queue, false);
    if (link->lent_count == 0) { /* else it waits for its loans: see tutti_wire_ops.lend */
        tutti_shm_link_free(link);
    }
}

/* ------------------------------------------------------------------------------ sending */

tutti_wire_result
tutti_shm_send_packet(tutti_wire_link *link, const void *header, size_t header_size,
                      const void *data, size_t size, tutti_wire_ticket *ticket)
{
    shm_out model = {.ticket = ticket,
                     .kind = size > TUTTI_WIRE_EAGER_MAX ? SHM_PARCEL : SHM_EAGER,
                     .header = header,
                     .header_size = header_size,
                     .data = data,
                     .size = size};

    if (link->broken) {
        return TUTTI_WIRE_FAILED;
    }
    if (link->state == SHM_FAR ||
        (model.kind == SHM_PARCEL && !tutti_shm_holds(&link->wire->base, data, size))) {
        return send_inner(link, header, header_size, data, size, ticket);
    }
    return submit(link, &model);
}

tutti_wire_result
tutti_shm_lend(tutti_wire_link *link, const void *header, size_t header_size,
               const tutti_wire_loan *loan, tutti_wire_ticket *ticket)
{
    shm_out model = {.ticket = ticket,
                     .kind = SHM_LOAN,
                     .header = header,
                     .header_size = header_size,
                     .loan = *loan};

    ticket->unfinished = false;
    if (link->broken || link->state != SHM_NEAR) {
        return TUTTI_WIRE_FAILED;
    }
    return submit(link, &model);
}
