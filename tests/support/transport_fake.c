#include "support/transport_fake.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/data/list.h"
#include "base/error/fail.h"

typedef struct fake_transport fake_transport;

/* One packet on its way, or one that waits at its sender. */
struct tutti_transport_rndv {
    tutti_list_node link;
    fake_transport *from;
    tutti_transport_conn *way;
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    size_t header_size;
    void *data; /* a copy when small, the sender's own when large */
    size_t size;
    bool large;
    bool revoked;
    tutti_transport_ticket *ticket; /* of a large one, until it has been told */
};

/* What a transport has to tell its owner when it makes progress. */
typedef struct news {
    tutti_list_node link;
    tutti_transport_ticket *ticket;
    bool ok;
} news;

struct tutti_transport_conn {
    tutti_list_node link;
    fake_transport *from;
    fake_transport *to;
    void *owner;
    bool told;
};

struct fake_transport {
    tutti_transport base;
    fake_network *network;
    uint64_t number;
    int descriptor;
    tutti_list_node inbox;
    tutti_list_node news;
    tutti_list_node ways;
    tutti_list_node sent; /* large rendezvous messages of ours that are still out: by nothing but
                             the walk below */
    const tutti_transport_events *events;
    void *arg;
    bool dead;
    bool frozen;
    bool closed;
};

struct fake_network {
    pthread_mutex_t lock;
    fake_transport *wires[256];
    size_t count;
    unsigned one_in;
    unsigned seed;
    unsigned per_host;
    fake_change_fn change;
    void *change_arg;
};

static const tutti_transport_ops fake_ops;

static fake_transport *
wire_from(tutti_transport *transport)
{
    assert(transport->ops == &fake_ops);
    return tutti_container_of(transport, fake_transport, base);
}

static void
nudge(const fake_transport *transport)
{
    const uint64_t one = 1;
    const ssize_t put = write(transport->descriptor, &one, sizeof(one));

    (void)put;
}

static void
lock(fake_transport *transport)
{
    (void)pthread_mutex_lock(&transport->network->lock);
}

static void
unlock(fake_transport *transport)
{
    (void)pthread_mutex_unlock(&transport->network->lock);
}

static void
tell(fake_transport *transport, tutti_transport_ticket *ticket, bool ok)
{
    news *one = malloc(sizeof(*one));

    assert(one != NULL);
    *one = (news){.ticket = ticket, .ok = ok};
    tutti_list_add(&transport->news, &one->link);
    nudge(transport);
}

/* The sender of a large rndv may go on. */
static void
settle(tutti_transport_rndv *rndv, bool ok)
{
    if (rndv->ticket != NULL) {
        tell(rndv->from, rndv->ticket, ok);
        rndv->ticket = NULL;
    }
}

static void
free_rndv(tutti_transport_rndv *rndv)
{
    if (!rndv->large) {
        free(rndv->data);
    }
    free(rndv);
}

/* ------------------------------------------------------------------------------ packets */

static bool
chance(fake_network *network)
{
    network->seed = network->seed * 1103515245u + 12345u;
    return network->one_in > 0 && (network->seed >> 16) % network->one_in == 0;
}

static tutti_transport_result
fake_send(tutti_transport_conn *way, const void *header, size_t header_size, const void *data,
          size_t size, tutti_transport_ticket *ticket)
{
    tutti_transport_rndv *rndv = calloc(1, sizeof(*rndv));

    assert(rndv != NULL && header_size <= TUTTI_TRANSPORT_HEADER_MAX);
    rndv->from = way->from;
    rndv->way = way;
    rndv->header_size = header_size;
    rndv->size = size;
    rndv->large = size > TUTTI_TRANSPORT_EAGER_MAX;
    rndv->data = (void *)(uintptr_t)data;
    rndv->ticket = rndv->large ? ticket : NULL;
    memcpy(rndv->header, header, header_size);
    if (!rndv->large) {
        rndv->data = malloc(size + 1);
        assert(rndv->data != NULL);
        if (size > 0) {
            memcpy(rndv->data, data, size);
        }
    }
    lock(way->from);
    if (way->to->dead || way->from->dead || way->to->closed) {
        unlock(way->from);
        free_rndv(rndv);
        return TUTTI_TRANSPORT_FAILED;
    }
    if (way->from->network->change != NULL && !rndv->large) { /* large: when it is fetched */
        way->from->network->change(way->from->network->change_arg, header, rndv->data, size);
    }
    if (chance(way->from->network) && !tutti_list_empty(&way->to->inbox)) {
        tutti_list_add(way->to->inbox.before, &rndv->link); /* before the last one */
    } else {
        tutti_list_add(&way->to->inbox, &rndv->link);
    }
    nudge(way->to);
    unlock(way->from);
    return size > TUTTI_TRANSPORT_EAGER_MAX ? TUTTI_TRANSPORT_LATER : TUTTI_TRANSPORT_DONE;
}

static tutti_transport_result
fake_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest, size_t size,
           tutti_transport_ticket *ticket)
{
    fake_transport *self = wire_from(transport);
    bool good;

    (void)ticket;
    lock(self);
    good = !rndv->revoked;
    if (good) {
        memcpy(dest, rndv->data, size);
        if (self->network->change != NULL) {
            self->network->change(self->network->change_arg, rndv->header, dest, size);
        }
        settle(rndv, true);
    }
    tutti_list_remove(&rndv->link);
    unlock(self);
    free_rndv(rndv);
    return good ? TUTTI_TRANSPORT_DONE : TUTTI_TRANSPORT_FAILED;
}

static void
fake_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    fake_transport *self = wire_from(transport);

    lock(self);
    settle(rndv, true);
    tutti_list_remove(&rndv->link);
    unlock(self);
    free_rndv(rndv);
}

/* Held rendezvous messages hang on their sender, so that it can take them back. */
static void
deliver(fake_transport *self, tutti_transport_rndv *rndv)
{
    tutti_transport_rndv *waits = rndv->large ? rndv : NULL;

    if (waits != NULL) {
        lock(self);
        tutti_list_add(&rndv->from->sent, &rndv->link);
        unlock(self);
    }
    self->events->on_packet(self->arg, rndv->header, rndv->header_size,
                            waits == NULL ? rndv->data : NULL, rndv->size, waits);
    if (waits == NULL) {
        free_rndv(rndv);
    }
}

/* ------------------------------------------------------------------------------ ways */

static tutti_code
fake_connect(tutti_transport *transport, tutti_bytes address, void *owner,
             tutti_transport_conn **ret_link, tutti_error *err)
{
    fake_transport *self = wire_from(transport);
    tutti_transport_conn *way = calloc(1, sizeof(*way));
    uint64_t number;

    assert(way != NULL && address.size == sizeof(number));
    memcpy(&number, address.data, sizeof(number));
    lock(self);
    way->from = self;
    way->to = self->network->wires[number];
    way->owner = owner;
    if (way->to->dead) {
        unlock(self);
        free(way);
        return TUTTI_FAIL(err, TUTTI_UNAVAILABLE, "connection refused");
    }
    tutti_list_add(&self->ways, &way->link);
    unlock(self);
    *ret_link = way;
    return TUTTI_OK;
}

/* Take back what nobody has pulled yet, from a queue or from its receiver's hands. */
static void
take_back(tutti_list_node *where, const tutti_transport_conn *way)
{
    tutti_list_node *link;

    for (link = where->next; link != where; link = link->next) {
        tutti_transport_rndv *rndv = tutti_container_of(link, tutti_transport_rndv, link);

        if (rndv->way == way && rndv->large && !rndv->revoked) {
            rndv->revoked = true;
            settle(rndv, false);
        }
    }
}

static void
fake_disconnect(tutti_transport_conn *way)
{
    fake_transport *self = way->from;

    lock(self);
    take_back(&way->to->inbox, way);
    take_back(&self->sent, way);
    tutti_list_remove(&way->link);
    unlock(self);
    free(way);
}

/* ------------------------------------------------------------------------------ the loop */

static unsigned
tell_broken(fake_transport *self)
{
    tutti_list_node *link;
    tutti_transport_conn *found = NULL;

    lock(self);
    for (link = self->ways.next; link != &self->ways && found == NULL; link = link->next) {
        tutti_transport_conn *way = tutti_container_of(link, tutti_transport_conn, link);

        if (way->to->dead && !way->told) {
            way->told = true;
            found = way;
        }
    }
    unlock(self);
    if (found == NULL) {
        return 0;
    }
    self->events->on_broken(self->arg, found->owner, "reset by a test");
    return 1;
}

static unsigned
fake_progress(tutti_transport *transport)
{
    fake_transport *self = wire_from(transport);
    tutti_list_node *packet = NULL;
    tutti_list_node *word = NULL;
    uint64_t count;
    unsigned did = 0;

    lock(self);
    if (!self->frozen && !self->dead) {
        packet = tutti_list_pop(&self->inbox);
        word = tutti_list_pop(&self->news);
        if (packet == NULL && word == NULL) {
            const ssize_t got = read(self->descriptor, &count, sizeof(count));

            (void)got;
        }
    }
    unlock(self);
    if (packet != NULL) {
        deliver(self, tutti_container_of(packet, tutti_transport_rndv, link));
        did++;
    }
    if (word != NULL) {
        news one = *tutti_container_of(word, news, link);

        free(tutti_container_of(word, news, link));
        one.ticket->on_done(one.ticket, one.ok);
        did++;
    }
    return did + tell_broken(self);
}

static bool
fake_arm(tutti_transport *transport, bool idle)
{
    fake_transport *self = wire_from(transport);
    bool calm;

    (void)idle;
    lock(self);
    calm = self->frozen || self->dead ||
           (tutti_list_empty(&self->inbox) && tutti_list_empty(&self->news));
    unlock(self);
    return calm;
}

static int
fake_descriptor(tutti_transport *transport)
{
    return wire_from(transport)->descriptor;
}

static tutti_bytes
fake_address(tutti_transport *transport)
{
    return (tutti_bytes){&wire_from(transport)->number, sizeof(uint64_t)};
}

static void
fake_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    wire_from(transport)->events = events;
    wire_from(transport)->arg = arg;
}

static void
fake_close(tutti_transport *transport)
{
    fake_transport *self = wire_from(transport);
    tutti_list_node *link;
    size_t i;

    lock(self);
    self->closed = true;
    while ((link = tutti_list_pop(&self->inbox)) != NULL) {
        tutti_transport_rndv *rndv = tutti_container_of(link, tutti_transport_rndv, link);

        settle(rndv, false);
        free_rndv(rndv);
    }
    for (i = 0; i < self->network->count; i++) { /* nobody reads our memory from now on */
        fake_transport *other = self->network->wires[i];

        for (link = other->inbox.next; link != &other->inbox; link = link->next) {
            tutti_transport_rndv *rndv = tutti_container_of(link, tutti_transport_rndv, link);

            rndv->revoked = rndv->revoked || rndv->from == self;
        }
    }
    unlock(self);
    while ((link = tutti_list_pop(&self->news)) != NULL) {
        news one = *tutti_container_of(link, news, link);

        free(tutti_container_of(link, news, link));
        one.ticket->on_done(one.ticket, false);
    }
    while ((link = tutti_list_pop(&self->ways)) != NULL) {
        free(tutti_container_of(link, tutti_transport_conn, link));
    }
}

static uint64_t
fake_host(const tutti_transport *transport)
{
    const fake_transport *self = (const fake_transport *)(const void *)transport;

    return self->network->per_host > 0 ? 1 + self->number / self->network->per_host : 0;
}

void
fake_network_hosts(fake_network *network, unsigned per_host)
{
    network->per_host = per_host;
}

static const tutti_transport_ops fake_ops = {
    .size = sizeof(tutti_transport_ops),
    .address = fake_address,
    .listen = fake_listen,
    .connect = fake_connect,
    .disconnect = fake_disconnect,
    .send = fake_send,
    .fetch = fake_fetch,
    .drop = fake_drop,
    .progress = fake_progress,
    .descriptor = fake_descriptor,
    .arm = fake_arm,
    .close = fake_close,
    .host = fake_host,
};

/* ------------------------------------------------------------------------------ the network */

fake_network *
fake_network_new(void)
{
    fake_network *network = calloc(1, sizeof(*network));

    assert(network != NULL);
    (void)pthread_mutex_init(&network->lock, NULL);
    return network;
}

void
fake_network_free(fake_network *network)
{
    size_t i;

    for (i = 0; i < network->count; i++) {
        tutti_list_node *link;

        while ((link = tutti_list_pop(&network->wires[i]->news)) != NULL) {
            free(tutti_container_of(link, news, link)); /* for one that has closed */
        }
        while ((link = tutti_list_pop(&network->wires[i]->sent)) != NULL) {
            free_rndv(tutti_container_of(link, tutti_transport_rndv, link));
        }
        (void)close(network->wires[i]->descriptor);
        free(network->wires[i]);
    }
    (void)pthread_mutex_destroy(&network->lock);
    free(network);
}

tutti_transport *
fake_transport_new(fake_network *network)
{
    fake_transport *transport = calloc(1, sizeof(*transport));

    assert(transport != NULL && network->count < 256);
    transport->base.ops = &fake_ops;
    transport->network = network;
    transport->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tutti_list_init(&transport->inbox);
    tutti_list_init(&transport->news);
    tutti_list_init(&transport->ways);
    tutti_list_init(&transport->sent);
    lock(transport);
    transport->number = network->count;
    network->wires[network->count++] = transport;
    unlock(transport);
    return &transport->base;
}

void
fake_transport_kill(tutti_transport *transport)
{
    fake_transport *self = wire_from(transport);
    tutti_list_node *link;
    size_t i;

    lock(self);
    self->dead = true;
    for (link = self->sent.next; link != &self->sent; link = link->next) {
        tutti_container_of(link, tutti_transport_rndv, link)->revoked = true;
    }
    for (i = 0; i < self->network->count; i++) {
        fake_transport *other = self->network->wires[i];

        for (link = other->inbox.next; link != &other->inbox; link = link->next) {
            tutti_transport_rndv *rndv = tutti_container_of(link, tutti_transport_rndv, link);

            rndv->revoked = rndv->revoked || rndv->from == self;
        }
        nudge(other);
    }
    unlock(self);
}

void
fake_transport_freeze(tutti_transport *transport, bool frozen)
{
    fake_transport *self = wire_from(transport);

    lock(self);
    self->frozen = frozen;
    nudge(self);
    unlock(self);
}

void
fake_network_shuffle(fake_network *network, unsigned one_in, unsigned seed)
{
    (void)pthread_mutex_lock(&network->lock);
    network->one_in = one_in;
    network->seed = seed;
    (void)pthread_mutex_unlock(&network->lock);
}

void
fake_network_change(fake_network *network, fake_change_fn change, void *arg)
{
    (void)pthread_mutex_lock(&network->lock);
    network->change = change;
    network->change_arg = arg;
    (void)pthread_mutex_unlock(&network->lock);
}
