#include "support/wire_fake.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/data/list.h"
#include "base/error/fail.h"

typedef struct fake_wire fake_wire;

/* One packet on its way, or one that waits at its sender. */
struct tutti_wire_parcel {
    tutti_link link;
    fake_wire *from;
    tutti_wire_link *way;
    unsigned char header[TUTTI_WIRE_HEADER_MAX];
    size_t header_size;
    void *data; /* a copy when small, the sender's own when large */
    size_t size;
    bool large;
    bool revoked;
    tutti_wire_ticket *ticket; /* of a large one, until it has been told */
};

/* What a wire has to tell its owner when it makes progress. */
typedef struct news {
    tutti_link link;
    tutti_wire_ticket *ticket;
    bool ok;
} news;

struct tutti_wire_link {
    tutti_link link;
    fake_wire *from;
    fake_wire *to;
    void *owner;
    bool told;
};

struct fake_wire {
    tutti_wire base;
    fake_network *network;
    uint64_t number;
    int descriptor;
    tutti_link inbox;
    tutti_link news;
    tutti_link ways;
    tutti_link sent; /* large parcels of ours that are still out: by nothing but the walk below */
    const tutti_wire_events *events;
    void *arg;
    bool dead;
    bool frozen;
    bool closed;
};

struct fake_network {
    pthread_mutex_t lock;
    fake_wire *wires[256];
    size_t count;
    unsigned one_in;
    unsigned seed;
    unsigned per_host;
};

static const tutti_wire_ops fake_ops;

static fake_wire *
wire_from(tutti_wire *wire)
{
    assert(wire->ops == &fake_ops);
    return tutti_container_of(wire, fake_wire, base);
}

static void
nudge(const fake_wire *wire)
{
    const uint64_t one = 1;
    const ssize_t put = write(wire->descriptor, &one, sizeof(one));

    (void)put;
}

static void
lock(fake_wire *wire)
{
    (void)pthread_mutex_lock(&wire->network->lock);
}

static void
unlock(fake_wire *wire)
{
    (void)pthread_mutex_unlock(&wire->network->lock);
}

static void
tell(fake_wire *wire, tutti_wire_ticket *ticket, bool ok)
{
    news *one = malloc(sizeof(*one));

    assert(one != NULL);
    *one = (news){.ticket = ticket, .ok = ok};
    tutti_list_add(&wire->news, &one->link);
    nudge(wire);
}

/* The sender of a large parcel may go on. */
static void
settle(tutti_wire_parcel *parcel, bool ok)
{
    if (parcel->ticket != NULL) {
        tell(parcel->from, parcel->ticket, ok);
        parcel->ticket = NULL;
    }
}

static void
free_parcel(tutti_wire_parcel *parcel)
{
    if (!parcel->large) {
        free(parcel->data);
    }
    free(parcel);
}

/* ------------------------------------------------------------------------------ packets */

static bool
chance(fake_network *network)
{
    network->seed = network->seed * 1103515245u + 12345u;
    return network->one_in > 0 && (network->seed >> 16) % network->one_in == 0;
}

static tutti_wire_result
fake_send(tutti_wire_link *way, const void *header, size_t header_size, const void *data,
          size_t size, tutti_wire_ticket *ticket)
{
    tutti_wire_parcel *parcel = calloc(1, sizeof(*parcel));

    assert(parcel != NULL && header_size <= TUTTI_WIRE_HEADER_MAX);
    parcel->from = way->from;
    parcel->way = way;
    parcel->header_size = header_size;
    parcel->size = size;
    parcel->large = size > TUTTI_WIRE_EAGER_MAX;
    parcel->data = (void *)(uintptr_t)data;
    parcel->ticket = parcel->large ? ticket : NULL;
    memcpy(parcel->header, header, header_size);
    if (!parcel->large) {
        parcel->data = malloc(size + 1);
        assert(parcel->data != NULL);
        if (size > 0) {
            memcpy(parcel->data, data, size);
        }
    }
    lock(way->from);
    if (way->to->dead || way->from->dead || way->to->closed) {
        unlock(way->from);
        free_parcel(parcel);
        return TUTTI_WIRE_FAILED;
    }
    if (chance(way->from->network) && !tutti_list_empty(&way->to->inbox)) {
        tutti_list_add(way->to->inbox.before, &parcel->link); /* before the last one */
    } else {
        tutti_list_add(&way->to->inbox, &parcel->link);
    }
    nudge(way->to);
    unlock(way->from);
    return size > TUTTI_WIRE_EAGER_MAX ? TUTTI_WIRE_LATER : TUTTI_WIRE_DONE;
}

static tutti_wire_result
fake_pull(tutti_wire *wire, tutti_wire_parcel *parcel, void *dest, size_t size,
          tutti_wire_ticket *ticket)
{
    fake_wire *self = wire_from(wire);
    bool good;

    (void)ticket;
    lock(self);
    good = !parcel->revoked;
    if (good) {
        memcpy(dest, parcel->data, size);
        settle(parcel, true);
    }
    tutti_list_remove(&parcel->link);
    unlock(self);
    free_parcel(parcel);
    return good ? TUTTI_WIRE_DONE : TUTTI_WIRE_FAILED;
}

static void
fake_drop(tutti_wire *wire, tutti_wire_parcel *parcel)
{
    fake_wire *self = wire_from(wire);

    lock(self);
    settle(parcel, true);
    tutti_list_remove(&parcel->link);
    unlock(self);
    free_parcel(parcel);
}

/* Held parcels hang on their sender, so that it can take them back. */
static void
deliver(fake_wire *self, tutti_wire_parcel *parcel)
{
    tutti_wire_parcel *waits = parcel->large ? parcel : NULL;

    if (waits != NULL) {
        lock(self);
        tutti_list_add(&parcel->from->sent, &parcel->link);
        unlock(self);
    }
    self->events->on_packet(self->arg, parcel->header, parcel->header_size,
                            waits == NULL ? parcel->data : NULL, parcel->size, waits);
    if (waits == NULL) {
        free_parcel(parcel);
    }
}

/* ------------------------------------------------------------------------------ ways */

static tutti_code
fake_connect(tutti_wire *wire, tutti_bytes address, void *owner, tutti_wire_link **ret_link,
             tutti_error *err)
{
    fake_wire *self = wire_from(wire);
    tutti_wire_link *way = calloc(1, sizeof(*way));
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
take_back(tutti_link *where, const tutti_wire_link *way)
{
    tutti_link *link;

    for (link = where->next; link != where; link = link->next) {
        tutti_wire_parcel *parcel = tutti_container_of(link, tutti_wire_parcel, link);

        if (parcel->way == way && parcel->large && !parcel->revoked) {
            parcel->revoked = true;
            settle(parcel, false);
        }
    }
}

static void
fake_disconnect(tutti_wire_link *way)
{
    fake_wire *self = way->from;

    lock(self);
    take_back(&way->to->inbox, way);
    take_back(&self->sent, way);
    tutti_list_remove(&way->link);
    unlock(self);
    free(way);
}

/* ------------------------------------------------------------------------------ the loop */

static unsigned
tell_broken(fake_wire *self)
{
    tutti_link *link;
    tutti_wire_link *found = NULL;

    lock(self);
    for (link = self->ways.next; link != &self->ways && found == NULL; link = link->next) {
        tutti_wire_link *way = tutti_container_of(link, tutti_wire_link, link);

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
fake_progress(tutti_wire *wire)
{
    fake_wire *self = wire_from(wire);
    tutti_link *packet = NULL;
    tutti_link *word = NULL;
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
        deliver(self, tutti_container_of(packet, tutti_wire_parcel, link));
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
fake_arm(tutti_wire *wire, bool idle)
{
    fake_wire *self = wire_from(wire);
    bool calm;

    (void)idle;
    lock(self);
    calm = self->frozen || self->dead ||
           (tutti_list_empty(&self->inbox) && tutti_list_empty(&self->news));
    unlock(self);
    return calm;
}

static int
fake_descriptor(tutti_wire *wire)
{
    return wire_from(wire)->descriptor;
}

static tutti_bytes
fake_address(tutti_wire *wire)
{
    return (tutti_bytes){&wire_from(wire)->number, sizeof(uint64_t)};
}

static void
fake_listen(tutti_wire *wire, const tutti_wire_events *events, void *arg)
{
    wire_from(wire)->events = events;
    wire_from(wire)->arg = arg;
}

static void
fake_close(tutti_wire *wire)
{
    fake_wire *self = wire_from(wire);
    tutti_link *link;
    size_t i;

    lock(self);
    self->closed = true;
    while ((link = tutti_list_pop(&self->inbox)) != NULL) {
        tutti_wire_parcel *parcel = tutti_container_of(link, tutti_wire_parcel, link);

        settle(parcel, false);
        free_parcel(parcel);
    }
    for (i = 0; i < self->network->count; i++) { /* nobody reads our memory from now on */
        fake_wire *other = self->network->wires[i];

        for (link = other->inbox.next; link != &other->inbox; link = link->next) {
            tutti_wire_parcel *parcel = tutti_container_of(link, tutti_wire_parcel, link);

            parcel->revoked = parcel->revoked || parcel->from == self;
        }
    }
    unlock(self);
    while ((link = tutti_list_pop(&self->news)) != NULL) {
        news one = *tutti_container_of(link, news, link);

        free(tutti_container_of(link, news, link));
        one.ticket->on_done(one.ticket, false);
    }
    while ((link = tutti_list_pop(&self->ways)) != NULL) {
        free(tutti_container_of(link, tutti_wire_link, link));
    }
}

static uint64_t
fake_host(const tutti_wire *wire)
{
    const fake_wire *self = (const fake_wire *)(const void *)wire;

    return self->network->per_host > 0 ? 1 + self->number / self->network->per_host : 0;
}

void
fake_network_hosts(fake_network *network, unsigned per_host)
{
    network->per_host = per_host;
}

static const tutti_wire_ops fake_ops = {
    .size = sizeof(tutti_wire_ops),
    .address = fake_address,
    .listen = fake_listen,
    .connect = fake_connect,
    .disconnect = fake_disconnect,
    .send = fake_send,
    .pull = fake_pull,
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
        tutti_link *link;

        while ((link = tutti_list_pop(&network->wires[i]->news)) != NULL) {
            free(tutti_container_of(link, news, link)); /* for one that has closed */
        }
        while ((link = tutti_list_pop(&network->wires[i]->sent)) != NULL) {
            free_parcel(tutti_container_of(link, tutti_wire_parcel, link));
        }
        (void)close(network->wires[i]->descriptor);
        free(network->wires[i]);
    }
    (void)pthread_mutex_destroy(&network->lock);
    free(network);
}

tutti_wire *
fake_wire_new(fake_network *network)
{
    fake_wire *wire = calloc(1, sizeof(*wire));

    assert(wire != NULL && network->count < 256);
    wire->base.ops = &fake_ops;
    wire->network = network;
    wire->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tutti_list_init(&wire->inbox);
    tutti_list_init(&wire->news);
    tutti_list_init(&wire->ways);
    tutti_list_init(&wire->sent);
    lock(wire);
    wire->number = network->count;
    network->wires[network->count++] = wire;
    unlock(wire);
    return &wire->base;
}

void
fake_wire_kill(tutti_wire *wire)
{
    fake_wire *self = wire_from(wire);
    tutti_link *link;
    size_t i;

    lock(self);
    self->dead = true;
    for (link = self->sent.next; link != &self->sent; link = link->next) {
        tutti_container_of(link, tutti_wire_parcel, link)->revoked = true;
    }
    for (i = 0; i < self->network->count; i++) {
        fake_wire *other = self->network->wires[i];

        for (link = other->inbox.next; link != &other->inbox; link = link->next) {
            tutti_wire_parcel *parcel = tutti_container_of(link, tutti_wire_parcel, link);

            parcel->revoked = parcel->revoked || parcel->from == self;
        }
        nudge(other);
    }
    unlock(self);
}

void
fake_wire_freeze(tutti_wire *wire, bool frozen)
{
    fake_wire *self = wire_from(wire);

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
