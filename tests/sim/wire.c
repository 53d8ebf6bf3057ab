#include "wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "kernel.h"

#define LATENCY_NS (20 * TUTTI_NS_PER_US)
#define LATER_ONE_IN 4                  /* small sends whose memory is needed for a while */
#define HEARD_NS (20 * TUTTI_NS_PER_MS) /* until the others hear of a death */

typedef struct wire wire;

/* A packet on its way, or, if large, until its receiver has pulled or dropped it. */
struct tutti_transport_rndv {
    tutti_list_node link; /* of its receiver: coming, here; large ones then: held, pulled */
    wire *to;
    tutti_transport_conn *way; /* NULL: it is gone */
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    size_t header_size;
    void *data; /* a copy, or the sender's own */
    size_t size;
    bool large;
    tutti_transport_ticket *ticket; /* until it was told */
    uint64_t number;
    void *dest; /* while it is pulled */
    tutti_transport_ticket *pull;
};

typedef struct news {
    tutti_list_node link;
    tutti_transport_ticket *ticket;
    bool ok;
} news;

struct tutti_transport_conn {
    tutti_list_node link;
    wire *from;
    wire *to;
    void *owner;
    bool broken;
    bool told;
};

struct wire {
    tutti_transport base;
    uint32_t rank;
    int descriptor;
    bool dead;
    bool silent; /* ... and nothing says so */
    bool closed;
    tutti_list_node coming;
    tutti_list_node here;
    tutti_list_node held;
    tutti_list_node pulled; /* until the data is here */
    tutti_list_node news;
    tutti_list_node ways;
    const tutti_transport_events *events;
    void *arg;
};

static struct {
    wire *wires[WIRES_MAX];
    uint64_t cut_ns[WIRES_MAX][WIRES_MAX];
    uint64_t slow_ns;
    uint64_t packets;
} net;

static wire *
wire_of(tutti_transport *transport)
{
    return tutti_container_of(transport, wire, base);
}

static void
ring(const wire *self)
{
    const uint64_t one = 1;
    const ssize_t put = write(self->descriptor, &one, sizeof(one));

    (void)put;
}

static void
tell(wire *self, tutti_transport_ticket *ticket, bool ok)
{
    news *one = malloc(sizeof(*one));

    assert(one != NULL);
    *one = (news){.ticket = ticket, .ok = ok};
    tutti_list_add(&self->news, &one->link);
    ring(self);
}

static void
settle(tutti_transport_rndv *packet, bool ok)
{
    if (packet->ticket != NULL) {
        tell(packet->way->from, packet->ticket, ok);
        packet->ticket = NULL;
    }
}

static void
free_packet(tutti_transport_rndv *packet)
{
    tutti_list_remove(&packet->link);
    if (!packet->large) {
        free(packet->data);
    }
    free(packet);
}

/* ------------------------------------------------------------------------------ on the way */

static tutti_transport_rndv *
find_packet(tutti_list_node *list, uint64_t number)
{
    tutti_list_node *at;

    for (at = list->next; at != list; at = at->next) {
        if (tutti_container_of(at, tutti_transport_rndv, link)->number == number) {
            return tutti_container_of(at, tutti_transport_rndv, link);
        }
    }
    return NULL; /* lost with its way, or its wire is closed */
}

static void
arrive(void *arg, uint64_t number)
{
    wire *to = net.wires[(uint32_t)(uintptr_t)arg];
    tutti_transport_rndv *packet = to == NULL ? NULL : find_packet(&to->coming, number);

    if (packet != NULL) {
        tutti_list_remove(&packet->link);
        tutti_list_add(&to->here, &packet->link);
        if (!packet->large) {
            settle(packet, true);
        }
        ring(to);
    }
}

static uint64_t
time_of_arrival(const wire *from, const wire *to)
{
    const uint64_t cut_ns = net.cut_ns[from->rank][to->rank];
    const uint64_t begins_ns = cut_ns > sim_now_ns() ? cut_ns : sim_now_ns();
    const uint64_t usual_ns = LATENCY_NS / 4 + sim_draw(LATENCY_NS);

    return begins_ns + usual_ns +
           sim_draw(net.slow_ns); /* one draw a statement: compilers differ */
}

static tutti_transport_rndv *
new_packet(tutti_transport_conn *way, const void *header, size_t header_size, const void *data,
           size_t size)
{
    tutti_transport_rndv *self = calloc(1, sizeof(*self));

    assert(self != NULL && header_size <= TUTTI_TRANSPORT_HEADER_MAX);
    self->to = way->to;
    self->way = way;
    self->header_size = header_size;
    self->size = size;
    self->large = size > TUTTI_TRANSPORT_EAGER_MAX;
    self->data = (void *)(uintptr_t)data;
    self->number = ++net.packets;
    memcpy(self->header, header, header_size);
    if (!self->large) {
        self->data = malloc(size + 1);
        assert(self->data != NULL);
        if (size > 0) {
            memcpy(self->data, data, size);
        }
    }
    return self;
}

static tutti_transport_result
wire_send(tutti_transport_conn *way, const void *header, size_t header_size, const void *data,
          size_t size, tutti_transport_ticket *ticket)
{
    tutti_transport_rndv *packet;

    if (way->broken || way->from->dead) {
        return TUTTI_TRANSPORT_FAILED;
    }
    packet = new_packet(way, header, header_size, data, size);
    tutti_list_add(&way->to->coming, &packet->link);
    sim_at(time_of_arrival(way->from, way->to), arrive, (void *)(uintptr_t)way->to->rank,
           packet->number);
    sim_note("%u -> %u: packet %llu, kind %u, %zu bytes", way->from->rank, way->to->rank,
             (unsigned long long)packet->number, packet->header[0], size);
    if (packet->large || sim_chance(LATER_ONE_IN)) {
        packet->ticket = ticket;
        return TUTTI_TRANSPORT_LATER;
    }
    return TUTTI_TRANSPORT_DONE;
}

/* The data has come over, if the connection has held. Returns whether. */
static bool
finish_pull(tutti_transport_rndv *packet)
{
    const bool good = packet->way != NULL && !packet->way->broken && packet->ticket != NULL;

    if (good) {
        memcpy(packet->dest, packet->data, packet->size);
        settle(packet, true);
    }
    free_packet(packet);
    return good;
}

static void
end_pull(void *arg, uint64_t number)
{
    wire *self = net.wires[(uint32_t)(uintptr_t)arg];
    tutti_transport_rndv *packet = self == NULL ? NULL : find_packet(&self->pulled, number);
    tutti_transport_ticket *pull;

    if (packet != NULL) {
        pull = packet->pull;
        tell(self, pull, finish_pull(packet));
    }
}

static tutti_transport_result
wire_fetch(tutti_transport *transport, tutti_transport_rndv *packet, void *dest, size_t size,
           tutti_transport_ticket *ticket)
{
    wire *self = wire_of(transport);

    assert(size == packet->size);
    packet->dest = dest;
    packet->pull = ticket;
    if (packet->way == NULL || sim_chance(2)) {
        return finish_pull(packet) ? TUTTI_TRANSPORT_DONE : TUTTI_TRANSPORT_FAILED;
    }
    tutti_list_remove(&packet->link);
    tutti_list_add(&self->pulled, &packet->link);
    sim_at(sim_now_ns() + sim_draw(10 * LATENCY_NS), end_pull, (void *)(uintptr_t)self->rank,
           packet->number);
    return TUTTI_TRANSPORT_LATER;
}

static void
wire_drop(tutti_transport *transport, tutti_transport_rndv *packet)
{
    (void)transport;
    if (packet->way != NULL) {
        settle(packet, true);
    }
    free_packet(packet);
}

/* ------------------------------------------------------------------------------ ways */

/* What one way has in a list, which it does not see any more: small packets are lost, large ones
 * stay for their receiver, empty. */
static void
clear_way(tutti_list_node *list, const tutti_transport_conn *way, bool lose)
{
    tutti_list_node *at;
    tutti_list_node *next;

    for (at = list->next; at != list; at = next) {
        tutti_transport_rndv *packet = tutti_container_of(at, tutti_transport_rndv, link);

        next = at->next;
        if (packet->way != way) {
            continue;
        }
        settle(packet, false);
        packet->way = NULL;
        if (lose) {
            free_packet(packet);
        }
    }
}

static void
break_way(tutti_transport_conn *way, const char *why)
{
    if (!way->broken) {
        sim_note("%u -> %u: the connection breaks: %s", way->from->rank, way->to->rank, why);
        way->broken = true;
        clear_way(&way->to->coming, way, true);
        clear_way(&way->to->here, way, true);
        clear_way(&way->to->held, way, false);
        clear_way(&way->to->pulled, way, false);
        ring(way->from);
    }
}

static void hear_of_death(void *arg, uint64_t rank);

static tutti_code
wire_connect(tutti_transport *transport, tutti_bytes address, void *owner,
             tutti_transport_conn **ret_link, tutti_error *err)
{
    wire *self = wire_of(transport);
    tutti_transport_conn *way;
    uint32_t rank;

    assert(address.size == sizeof(rank));
    memcpy(&rank, address.data, sizeof(rank));
    if (net.wires[rank] == NULL || self->dead) {
        return TUTTI_FAIL(err, TUTTI_UNAVAILABLE, "connection refused");
    }
    way = calloc(1, sizeof(*way));
    assert(way != NULL);
    way->from = self;
    way->to = net.wires[rank];
    way->owner = owner;
    tutti_list_add(&self->ways, &way->link);
    if (way->to->dead) { /* its kernel refuses, or its host says nothing */
        sim_at(sim_now_ns() + (way->to->silent ? BREAK_NS : sim_draw(HEARD_NS)), hear_of_death,
               NULL, rank);
    }
    *ret_link = way;
    return TUTTI_OK;
}

static void
wire_disconnect(tutti_transport_conn *way)
{
    if (!way->broken) {
        clear_way(&way->to->coming, way, true);
        clear_way(&way->to->here, way, true);
        clear_way(&way->to->held, way, false);
        clear_way(&way->to->pulled, way, false);
    }
    tutti_list_remove(&way->link);
    free(way);
}

/* ------------------------------------------------------------------------------ progress */

static void
deliver(wire *self, tutti_transport_rndv *packet)
{
    tutti_transport_rndv *waits = packet->large ? packet : NULL;

    if (waits != NULL) {
        tutti_list_add(&self->held, &packet->link);
    }
    self->events->on_packet(self->arg, packet->header, packet->header_size,
                            waits == NULL ? packet->data : NULL, packet->size, waits);
    if (waits == NULL) {
        free_packet(packet);
    }
}

static unsigned
tell_broken(wire *self)
{
    tutti_list_node *at;

    for (at = self->ways.next; at != &self->ways; at = at->next) {
        tutti_transport_conn *way = tutti_container_of(at, tutti_transport_conn, link);

        if (way->broken && !way->told) {
            way->told = true;
            self->events->on_broken(self->arg, way->owner, "the simulation has cut it");
            return 1;
        }
    }
    return 0;
}

static unsigned
wire_progress(tutti_transport *transport)
{
    wire *self = wire_of(transport);
    tutti_list_node *packet = self->dead ? NULL : tutti_list_pop(&self->here);
    tutti_list_node *word = tutti_list_pop(&self->news);
    uint64_t count;
    unsigned did = 0;

    if (packet == NULL && word == NULL) {
        const ssize_t got = read(self->descriptor, &count, sizeof(count));

        (void)got;
    }
    if (packet != NULL) {
        deliver(self, tutti_container_of(packet, tutti_transport_rndv, link));
        did++;
    }
    if (word != NULL) {
        const news one = *tutti_container_of(word, news, link);

        free(tutti_container_of(word, news, link));
        one.ticket->on_done(one.ticket, one.ok);
        did++;
    }
    return did + tell_broken(self);
}

static bool
has_broken(const wire *self)
{
    const tutti_list_node *at;

    for (at = self->ways.next; at != &self->ways; at = at->next) {
        const tutti_transport_conn *way =
            tutti_container_of((tutti_list_node *)(uintptr_t)at, tutti_transport_conn, link);

        if (way->broken && !way->told) {
            return true;
        }
    }
    return false;
}

static bool
wire_arm(tutti_transport *transport, bool idle)
{
    const wire *self = wire_of(transport);

    (void)idle;
    return (self->dead || tutti_list_empty(&self->here)) && tutti_list_empty(&self->news) &&
           !has_broken(self);
}

static int
wire_descriptor(tutti_transport *transport)
{
    return wire_of(transport)->descriptor;
}

static tutti_bytes
wire_address(tutti_transport *transport)
{
    wire *self = wire_of(transport);

    return (tutti_bytes){(const unsigned char *)&self->rank, sizeof(self->rank)};
}

static void
wire_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    wire_of(transport)->events = events;
    wire_of(transport)->arg = arg;
}

static void
free_all(tutti_list_node *list)
{
    while (!tutti_list_empty(list)) {
        tutti_transport_rndv *packet = tutti_container_of(list->next, tutti_transport_rndv, link);

        if (packet->way != NULL) {
            settle(packet, true);
        }
        free_packet(packet);
    }
}

static void
end_pulls(wire *self)
{
    while (!tutti_list_empty(&self->pulled)) {
        tutti_transport_rndv *packet =
            tutti_container_of(self->pulled.next, tutti_transport_rndv, link);
        tutti_transport_ticket *pull = packet->pull;

        packet->way = packet->way != NULL && packet->way->broken ? NULL : packet->way;
        if (packet->way != NULL) {
            settle(packet, true);
        }
        free_packet(packet);
        pull->on_done(pull, false);
    }
}

static void
break_ways_to(const wire *to, const char *why)
{
    uint32_t i;

    for (i = 0; i < WIRES_MAX; i++) {
        tutti_list_node *at;

        for (at = net.wires[i] == NULL ? NULL : net.wires[i]->ways.next;
             at != NULL && at != &net.wires[i]->ways; at = at->next) {
            tutti_transport_conn *way = tutti_container_of(at, tutti_transport_conn, link);

            if (way->to == to) {
                break_way(way, why);
            }
        }
    }
}

static void
wire_close(tutti_transport *transport)
{
    wire *self = wire_of(transport);

    break_ways_to(self, "its engine has stopped");
    free_all(&self->coming);
    free_all(&self->here);
    free_all(&self->held);
    end_pulls(self);
    while (!tutti_list_empty(&self->news)) {
        const news one = *tutti_container_of(self->news.next, news, link);

        free(tutti_container_of(tutti_list_pop(&self->news), news, link));
        one.ticket->on_done(one.ticket, one.ok);
    }
    if (!tutti_list_empty(&self->ways)) {
        sim_fail("rank %u: a transport is closed with connections", self->rank);
    }
    (void)close(self->descriptor);
    net.wires[self->rank] = NULL;
    free(self);
}

static const tutti_transport_ops wire_ops = {
    .size = sizeof(tutti_transport_ops),
    .address = wire_address,
    .listen = wire_listen,
    .connect = wire_connect,
    .disconnect = wire_disconnect,
    .send = wire_send,
    .fetch = wire_fetch,
    .drop = wire_drop,
    .progress = wire_progress,
    .descriptor = wire_descriptor,
    .arm = wire_arm,
    .close = wire_close,
};

/* ------------------------------------------------------------------------------ faults */

void
wire_open(void)
{
    memset(&net, 0, sizeof(net));
}

tutti_transport *
wire_new(uint32_t rank)
{
    wire *self = calloc(1, sizeof(*self));

    assert(self != NULL && rank < WIRES_MAX && net.wires[rank] == NULL);
    self->base.ops = &wire_ops;
    self->rank = rank;
    self->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(self->descriptor >= 0);
    tutti_list_init(&self->coming);
    tutti_list_init(&self->here);
    tutti_list_init(&self->held);
    tutti_list_init(&self->pulled);
    tutti_list_init(&self->news);
    tutti_list_init(&self->ways);
    net.wires[rank] = self;
    return &self->base;
}

/* The connections of a dead process break where it was, too: its engine is stopped later. */
static void
hear_of_death(void *arg, uint64_t rank)
{
    wire *self = net.wires[rank];
    tutti_list_node *at;

    (void)arg;
    if (self == NULL) {
        return;
    }
    break_ways_to(self, "its process is dead");
    for (at = self->ways.next; at != &self->ways; at = at->next) {
        break_way(tutti_container_of(at, tutti_transport_conn, link), "this process is dead");
    }
}

void
wire_kill(uint32_t rank, bool silent)
{
    if (net.wires[rank] != NULL) {
        net.wires[rank]->dead = true;
        net.wires[rank]->silent = silent;
        if (!silent) {
            sim_at(sim_now_ns() + sim_draw(HEARD_NS), hear_of_death, NULL, rank);
        }
    }
}

/* Still cut? Then both ways break, as keepalive has it. */
static void
look_at_cut(void *arg, uint64_t pair)
{
    wire *from = net.wires[pair / WIRES_MAX];
    wire *to = net.wires[pair % WIRES_MAX];
    wire *ends[2] = {from, to};
    unsigned i;

    (void)arg;
    if (from == NULL || to == NULL ||
        net.cut_ns[pair / WIRES_MAX][pair % WIRES_MAX] <= sim_now_ns()) {
        return;
    }
    for (i = 0; i < 2; i++) {
        tutti_list_node *at;

        for (at = ends[i]->ways.next; at != &ends[i]->ways; at = at->next) {
            tutti_transport_conn *way = tutti_container_of(at, tutti_transport_conn, link);

            if (way->to == ends[1 - i]) {
                break_way(way, "nothing was heard for too long");
            }
        }
    }
}

void
wire_cut(uint32_t from, uint32_t to, uint64_t until_ns)
{
    net.cut_ns[from][to] = until_ns;
    if (until_ns > sim_now_ns() + BREAK_NS) {
        sim_at(sim_now_ns() + BREAK_NS, look_at_cut, NULL, (uint64_t)from * WIRES_MAX + to);
    }
}

void
wire_slow(uint64_t most_ns)
{
    net.slow_ns = most_ns;
}
