/*
 * Fault injection as a transport around a transport: packets are held, lost or doubled, and
 * connections break. Engine's thread. A held packet keeps its ticket, so its memory stays; it
 * leaves in progress, or fails with its connection. A doubled one is a copy, as the original may be
 * over first.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "coll/fault_inject/fault_inject.h"
#include "coll/packet/packet.h"

typedef struct fault_transport {
    tutti_transport base;
    tutti_transport *inner;
    const tutti_transport_events *events;
    void *arg;
    tutti_list_node links;
    tutti_list_node held;
} fault_transport;

struct tutti_transport_conn {
    fault_transport *transport;
    tutti_transport_conn *inner;
    void *owner;
    tutti_list_node link; /* in transport->links */
    bool cut;             /* its owner is to be told that it broke */
};

/* A send that has not left yet. Its ticket is out: all that it needs stays where it is. */
typedef struct held_send {
    tutti_list_node link; /* in transport->held */
    tutti_transport_conn *conn;
    const void *header;
    size_t header_size;
    const void *data;
    size_t size;
    tutti_transport_ticket *ticket;
    uint64_t due_ns; /* 0 = it will not leave */
} held_send;

/* A packet that goes a second time, with all that it needs. */
typedef struct double_send {
    tutti_transport_ticket ticket;
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    unsigned char data[];
} double_send;

static const tutti_transport_ops fault_ops;

static fault_transport *
fault_from(tutti_transport *transport)
{
    assert(transport->ops == &fault_ops);
    return tutti_container_of(transport, fault_transport, base);
}

/* ------------------------------------------------------------------------------ packets out */

static void
on_double_sent(tutti_transport_ticket *ticket, bool ok)
{
    (void)ok;
    free(tutti_container_of(ticket, double_send, ticket));
}

static void
send_double(tutti_transport_conn *link, const void *header, size_t header_size, const void *data,
            size_t size, bool words)
{
    double_send *self = calloc(1, sizeof(*self) + size);

    if (self == NULL) {
        return;
    }
    self->ticket.on_done = on_double_sent;
    self->ticket.words = words;
    tutti_list_init(&self->ticket.link);
    memcpy(self->header, header, header_size);
    if (size > 0) {
        memcpy(self->data, data, size);
    }
    if (link->transport->inner->ops->send(link->inner, self->header, header_size, self->data, size,
                                          &self->ticket) != TUTTI_TRANSPORT_LATER) {
        free(self);
    }
}

static tutti_transport_result
delay_packet(const held_send *send)
{
    held_send *self = malloc(sizeof(*self));

    if (self == NULL) {
        return TUTTI_TRANSPORT_FAILED;
    }
    *self = *send;
    tutti_list_init(&self->link);
    tutti_list_add(&self->conn->transport->held, &self->link);
    return TUTTI_TRANSPORT_LATER;
}

static tutti_transport_result
fault_send(tutti_transport_conn *link, const void *header, size_t header_size, const void *data,
           size_t size, tutti_transport_ticket *ticket)
{
    held_send send = {.conn = link,
                      .header = header,
                      .header_size = header_size,
                      .data = data,
                      .size = size,
                      .ticket = ticket};
    uint32_t delay_ms = 0;
    tutti_packet packet;

    if (tutti_packet_read(header, header_size, &packet)) {
        switch (tutti_fault_packet(packet.kind, &delay_ms)) {
        case TUTTI_FAULT_DROP:
            return TUTTI_TRANSPORT_DONE;
        case TUTTI_FAULT_DUPLICATE:
            send_double(link, header, header_size, data, size, ticket->words);
            break;
        case TUTTI_FAULT_CUT:
            link->cut = true;
            return delay_packet(&send);
        case TUTTI_FAULT_DELAY:
            send.due_ns = tutti_clock_ns() + delay_ms * TUTTI_NS_PER_MS;
            return delay_packet(&send);
        default:
            break;
        }
    }
    return link->transport->inner->ops->send(link->inner, header, header_size, data, size, ticket);
}

/* ------------------------------------------------------------------------------ later */

/* Its time has come, or its way is gone. */
static void
release_packets(held_send *self, bool leave)
{
    tutti_transport *inner = self->conn->transport->inner;
    tutti_transport_result result = TUTTI_TRANSPORT_FAILED;
    tutti_transport_ticket *ticket = self->ticket;

    tutti_list_remove(&self->link);
    if (leave) {
        result = inner->ops->send(self->conn->inner, self->header, self->header_size, self->data,
                                  self->size, ticket);
    }
    free(self);
    if (result != TUTTI_TRANSPORT_LATER) {
        ticket->on_done(ticket, result == TUTTI_TRANSPORT_DONE);
    }
}

/* One that may leave now, or one of this way; NULL. */
static held_send *
find_held(const fault_transport *self, const tutti_transport_conn *conn)
{
    const uint64_t now = tutti_clock_ns();
    tutti_list_node *link;

    for (link = self->held.next; link != &self->held; link = link->next) {
        held_send *send = tutti_container_of(link, held_send, link);

        if (conn != NULL ? send->conn == conn : send->due_ns != 0 && send->due_ns <= now) {
            return send;
        }
    }
    return NULL;
}

/* A connection whose owner is to be told. Looked for anew each time: on_broken disconnects it, and
 * may disconnect others. */
static tutti_transport_conn *
find_cut(const fault_transport *self)
{
    tutti_list_node *link;

    for (link = self->links.next; link != &self->links; link = link->next) {
        tutti_transport_conn *conn = tutti_container_of(link, tutti_transport_conn, link);

        if (conn->cut) {
            return conn;
        }
    }
    return NULL;
}

/* An op has passed a point where all ways are to break. */
static void
mark_all(fault_transport *self)
{
    tutti_list_node *link;

    if (tutti_fault_take_cut()) {
        for (link = self->links.next; link != &self->links; link = link->next) {
            tutti_container_of(link, tutti_transport_conn, link)->cut = true;
        }
    }
}

static unsigned
fault_progress(tutti_transport *transport)
{
    fault_transport *self = fault_from(transport);
    unsigned done = self->inner->ops->progress(self->inner);
    held_send *send;
    tutti_transport_conn *conn;

    while ((send = find_held(self, NULL)) != NULL) {
        release_packets(send, true);
        done++;
    }
    mark_all(self);
    while ((conn = find_cut(self)) != NULL) {
        conn->cut = false;
        self->events->on_broken(self->arg, conn->owner, "TUTTI_CHAOS cut it");
        done++;
    }
    return done;
}

static void
fault_disarm(tutti_transport *transport)
{
    tutti_transport_disarm(fault_from(transport)->inner);
}

/* While something is held there is always work: it is for tests. */
static bool
fault_arm(tutti_transport *transport, bool idle)
{
    fault_transport *self = fault_from(transport);

    mark_all(self);
    return tutti_list_empty(&self->held) && find_cut(self) == NULL &&
           self->inner->ops->arm(self->inner, idle);
}

/* ------------------------------------------------------------------------------ ways */

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    fault_transport *self = arg;

    self->events->on_packet(self->arg, header, header_size, data, size, rndv);
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    fault_transport *self = arg;

    self->events->on_broken(self->arg, ((tutti_transport_conn *)owner)->owner, why);
}

static const tutti_transport_events inner_events = {on_packet, on_broken};

static void
fault_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    fault_transport *self = fault_from(transport);

    self->events = events;
    self->arg = arg;
    self->inner->ops->listen(self->inner, &inner_events, self);
}

static tutti_code
fault_connect(tutti_transport *transport, tutti_bytes address, void *owner,
              tutti_transport_conn **ret_link, tutti_error *err)
{
    fault_transport *self = fault_from(transport);
    tutti_transport_conn *link = calloc(1, sizeof(*link));
    tutti_code code;

    if (link == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a connection");
    }
    link->transport = self;
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
fault_disconnect(tutti_transport_conn *link)
{
    held_send *send;

    tutti_list_remove(&link->link);
    link->transport->inner->ops->disconnect(link->inner);
    while ((send = find_held(link->transport, link)) != NULL) {
        release_packets(send, false);
    }
    free(link);
}

/* ------------------------------------------------------------------------------ passed through */

static tutti_bytes
fault_address(tutti_transport *transport)
{
    tutti_transport *inner = fault_from(transport)->inner;

    return inner->ops->address(inner);
}

static tutti_transport_result
fault_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest, size_t size,
            tutti_transport_ticket *ticket)
{
    tutti_transport *inner = fault_from(transport)->inner;

    return inner->ops->fetch(inner, rndv, dest, size, ticket);
}

static void
fault_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    tutti_transport *inner = fault_from(transport)->inner;

    inner->ops->drop(inner, rndv);
}

static int
fault_descriptor(tutti_transport *transport)
{
    tutti_transport *inner = fault_from(transport)->inner;

    return inner->ops->descriptor(inner);
}

static void
fault_close(tutti_transport *transport)
{
    fault_transport *self = fault_from(transport);

    assert(tutti_list_empty(&self->links) && tutti_list_empty(&self->held));
    self->inner->ops->close(self->inner);
    free(self);
    tutti_fault_close();
}

static const tutti_transport_ops fault_ops = {
    .size = sizeof(tutti_transport_ops),
    .address = fault_address,
    .listen = fault_listen,
    .connect = fault_connect,
    .disconnect = fault_disconnect,
    .send = fault_send,
    .fetch = fault_fetch,
    .drop = fault_drop,
    .progress = fault_progress,
    .descriptor = fault_descriptor,
    .arm = fault_arm,
    .disarm = fault_disarm,
    .close = fault_close,
};

tutti_code
tutti_transport_fault_open(tutti_transport *inner, tutti_transport **ret_transport,
                           tutti_error *err)
{
    fault_transport *self = calloc(1, sizeof(*self));

    assert(tutti_fault_is_on());
    if (self == NULL) {
        inner->ops->close(inner);
        return TUTTI_FAIL_MEMORY(err, "no memory for the data plane");
    }
    self->base.ops = &fault_ops;
    self->inner = inner;
    tutti_list_init(&self->links);
    tutti_list_init(&self->held);
    *ret_transport = &self->base;
    return TUTTI_OK;
}
