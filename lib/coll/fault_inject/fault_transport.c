/* Chaos as a wire around a wire: packets are held, lost or doubled, and ways break. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "coll/fault_inject/fault_inject.h"
#include "coll/packet/packet.h"

typedef struct chaos_wire {
    tutti_wire base;
    tutti_wire *inner;
    const tutti_wire_events *events;
    void *arg;
    tutti_link links;
    tutti_link held;
} chaos_wire;

struct tutti_wire_link {
    chaos_wire *wire;
    tutti_wire_link *inner;
    void *owner;
    tutti_link link; /* in wire->links */
    bool cut;        /* its owner is to be told that it broke */
};

/* A send that has not left yet. Its ticket is out: all that it needs stays where it is. */
typedef struct held_send {
    tutti_link link; /* in wire->held */
    tutti_wire_link *way;
    const void *header;
    size_t header_size;
    const void *data;
    size_t size;
    tutti_wire_ticket *ticket;
    uint64_t due_ns; /* 0 = it will not leave */
} held_send;

/* A packet that goes a second time, with all that it needs. */
typedef struct double_send {
    tutti_wire_ticket ticket;
    unsigned char header[TUTTI_WIRE_HEADER_MAX];
    unsigned char data[];
} double_send;

static const tutti_wire_ops chaos_ops;

static chaos_wire *
chaos_from(tutti_wire *wire)
{
    assert(wire->ops == &chaos_ops);
    return tutti_container_of(wire, chaos_wire, base);
}

/* ------------------------------------------------------------------------------ packets out */

static void
on_double_sent(tutti_wire_ticket *ticket, bool ok)
{
    (void)ok;
    free(tutti_container_of(ticket, double_send, ticket));
}

static void
send_double(tutti_wire_link *link, const void *header, size_t header_size, const void *data,
            size_t size)
{
    double_send *self = calloc(1, sizeof(*self) + size);

    if (self == NULL) {
        return;
    }
    self->ticket.on_done = on_double_sent;
    tutti_list_init(&self->ticket.link);
    memcpy(self->header, header, header_size);
    if (size > 0) {
        memcpy(self->data, data, size);
    }
    if (link->wire->inner->ops->send(link->inner, self->header, header_size, self->data, size,
                                     &self->ticket) != TUTTI_WIRE_LATER) {
        free(self);
    }
}

static tutti_wire_result
hold(const held_send *send)
{
    held_send *self = malloc(sizeof(*self));

    if (self == NULL) {
        return TUTTI_WIRE_FAILED;
    }
    *self = *send;
    tutti_list_init(&self->link);
    tutti_list_add(&self->way->wire->held, &self->link);
    return TUTTI_WIRE_LATER;
}

static tutti_wire_result
chaos_send(tutti_wire_link *link, const void *header, size_t header_size, const void *data,
           size_t size, tutti_wire_ticket *ticket)
{
    held_send send = {.way = link,
                      .header = header,
                      .header_size = header_size,
                      .data = data,
                      .size = size,
                      .ticket = ticket};
    uint32_t delay_ms = 0;
    tutti_packet packet;

    if (tutti_packet_read(header, header_size, &packet)) {
        switch (tutti_chaos_packet(packet.kind, &delay_ms)) {
        case TUTTI_CHAOS_DROP:
            return TUTTI_WIRE_DONE;
        case TUTTI_CHAOS_DUPLICATE:
            send_double(link, header, header_size, data, size);
            break;
        case TUTTI_CHAOS_CUT:
            link->cut = true;
            return hold(&send);
        case TUTTI_CHAOS_DELAY:
            send.due_ns = tutti_clock_ns() + delay_ms * TUTTI_NS_PER_MS;
            return hold(&send);
        default:
            break;
        }
    }
    return link->wire->inner->ops->send(link->inner, header, header_size, data, size, ticket);
}

/* ------------------------------------------------------------------------------ later */

/* Its time has come, or its way is gone. */
static void
let_go(held_send *self, bool leave)
{
    tutti_wire *inner = self->way->wire->inner;
    tutti_wire_result result = TUTTI_WIRE_FAILED;
    tutti_wire_ticket *ticket = self->ticket;

    tutti_list_remove(&self->link);
    if (leave) {
        result = inner->ops->send(self->way->inner, self->header, self->header_size, self->data,
                                  self->size, ticket);
    }
    free(self);
    if (result != TUTTI_WIRE_LATER) {
        ticket->on_done(ticket, result == TUTTI_WIRE_DONE);
    }
}

/* One that may leave now, or one of this way; NULL. */
static held_send *
find_held(const chaos_wire *self, const tutti_wire_link *way)
{
    const uint64_t now = tutti_clock_ns();
    tutti_link *link;

    for (link = self->held.next; link != &self->held; link = link->next) {
        held_send *send = tutti_container_of(link, held_send, link);

        if (way != NULL ? send->way == way : send->due_ns != 0 && send->due_ns <= now) {
            return send;
        }
    }
    return NULL;
}

/* A way whose owner is to be told; it disconnects inside, and others may, too. */
static tutti_wire_link *
find_cut(const chaos_wire *self)
{
    tutti_link *link;

    for (link = self->links.next; link != &self->links; link = link->next) {
        tutti_wire_link *way = tutti_container_of(link, tutti_wire_link, link);

        if (way->cut) {
            return way;
        }
    }
    return NULL;
}

/* An op has passed a point where all ways are to break. */
static void
mark_all(chaos_wire *self)
{
    tutti_link *link;

    if (tutti_chaos_take_cut()) {
        for (link = self->links.next; link != &self->links; link = link->next) {
            tutti_container_of(link, tutti_wire_link, link)->cut = true;
        }
    }
}

static unsigned
chaos_progress(tutti_wire *wire)
{
    chaos_wire *self = chaos_from(wire);
    unsigned done = self->inner->ops->progress(self->inner);
    held_send *send;
    tutti_wire_link *way;

    while ((send = find_held(self, NULL)) != NULL) {
        let_go(send, true);
        done++;
    }
    mark_all(self);
    while ((way = find_cut(self)) != NULL) {
        way->cut = false;
        self->events->on_broken(self->arg, way->owner, "TUTTI_CHAOS cut it");
        done++;
    }
    return done;
}

static void
chaos_disarm(tutti_wire *wire)
{
    tutti_wire_disarm(chaos_from(wire)->inner);
}

/* While something is held there is always work: it is for tests. */
static bool
chaos_arm(tutti_wire *wire, bool idle)
{
    chaos_wire *self = chaos_from(wire);

    mark_all(self);
    return tutti_list_empty(&self->held) && find_cut(self) == NULL &&
           self->inner->ops->arm(self->inner, idle);
}

/* ------------------------------------------------------------------------------ ways */

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_wire_parcel *parcel)
{
    chaos_wire *self = arg;

    self->events->on_packet(self->arg, header, header_size, data, size, parcel);
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    chaos_wire *self = arg;

    self->events->on_broken(self->arg, ((tutti_wire_link *)owner)->owner, why);
}

static const tutti_wire_events inner_events = {on_packet, on_broken};

static void
chaos_listen(tutti_wire *wire, const tutti_wire_events *events, void *arg)
{
    chaos_wire *self = chaos_from(wire);

    self->events = events;
    self->arg = arg;
    self->inner->ops->listen(self->inner, &inner_events, self);
}

static tutti_code
chaos_connect(tutti_wire *wire, tutti_bytes address, void *owner, tutti_wire_link **ret_link,
              tutti_error *err)
{
    chaos_wire *self = chaos_from(wire);
    tutti_wire_link *link = calloc(1, sizeof(*link));
    tutti_code code;

    if (link == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a connection");
    }
    link->wire = self;
    link->owner = owner;
    tutti_list_init(&link->link);
    code = self->inner->ops->connect(self->inner, address, link, &link->inner, err);
    if (code != TUTTI_OK) {
        free(link);
        return code;
    }
    tutti_list_add(&self->links, &link->link);
    *ret_link = link;
    return TUTTI_OK;
}

static void
chaos_disconnect(tutti_wire_link *link)
{
    held_send *send;

    tutti_list_remove(&link->link);
    link->wire->inner->ops->disconnect(link->inner);
    while ((send = find_held(link->wire, link)) != NULL) {
        let_go(send, false);
    }
    free(link);
}

/* ------------------------------------------------------------------------------ passed through */

static tutti_bytes
chaos_address(tutti_wire *wire)
{
    tutti_wire *inner = chaos_from(wire)->inner;

    return inner->ops->address(inner);
}

static tutti_wire_result
chaos_pull(tutti_wire *wire, tutti_wire_parcel *parcel, void *dest, size_t size,
           tutti_wire_ticket *ticket)
{
    tutti_wire *inner = chaos_from(wire)->inner;

    return inner->ops->pull(inner, parcel, dest, size, ticket);
}

static void
chaos_drop(tutti_wire *wire, tutti_wire_parcel *parcel)
{
    tutti_wire *inner = chaos_from(wire)->inner;

    inner->ops->drop(inner, parcel);
}

static int
chaos_descriptor(tutti_wire *wire)
{
    tutti_wire *inner = chaos_from(wire)->inner;

    return inner->ops->descriptor(inner);
}

static void
chaos_close(tutti_wire *wire)
{
    chaos_wire *self = chaos_from(wire);

    assert(tutti_list_empty(&self->links) && tutti_list_empty(&self->held));
    self->inner->ops->close(self->inner);
    free(self);
    tutti_chaos_close();
}

static const tutti_wire_ops chaos_ops = {
    .size = sizeof(tutti_wire_ops),
    .address = chaos_address,
    .listen = chaos_listen,
    .connect = chaos_connect,
    .disconnect = chaos_disconnect,
    .send = chaos_send,
    .pull = chaos_pull,
    .drop = chaos_drop,
    .progress = chaos_progress,
    .descriptor = chaos_descriptor,
    .arm = chaos_arm,
    .disarm = chaos_disarm,
    .close = chaos_close,
};

tutti_code
tutti_wire_chaos_open(tutti_wire *inner, tutti_wire **ret_wire, tutti_error *err)
{
    chaos_wire *self = calloc(1, sizeof(*self));

    assert(tutti_chaos_is_on());
    if (self == NULL) {
        inner->ops->close(inner);
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the data plane");
    }
    self->base.ops = &chaos_ops;
    self->inner = inner;
    tutti_list_init(&self->links);
    tutti_list_init(&self->held);
    *ret_wire = &self->base;
    return TUTTI_OK;
}
