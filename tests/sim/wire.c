#include "wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "kernel.h"

#define LATENCY_NS (20 * TUTTI_NS_PER_US)
#define LATER_ONE_IN 4 /* small sends whose memory is needed for a while */
#define MEET_NS (200 * TUTTI_NS_PER_US)
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
    bool shared; /* large, by the memory of a host: it does not go with its way */
    bool region; /* exposed; then `over` when it was given back */
    bool over;
    bool patient;
    wire *from;                     /* of a shared one; NULL: closed */
    tutti_transport_ticket *ticket; /* until it was told */
    tutti_transport_region memory;
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
    uint64_t meets_ns; /* from then on both sides have each other's memory */
    bool broken;
    bool told;
};

struct wire {
    tutti_transport base;
    uint32_t number;
    uint32_t host;
    bool shares;
    int descriptor;
    bool armed; /* what comes has to wake it */
    bool idle;  /* ... but for patient packets */
    bool dead;
    bool silent; /* ... and nothing says so */
    uint64_t died_ns;
    tutti_list_node coming;
    tutti_list_node here;
    tutti_list_node held;
    tutti_list_node pulled; /* until the data is here */
    tutti_list_node over;   /* regions that were given back: nobody touches them again */
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
    uint64_t regions; /* that were ever exposed */
    bool (*holds)(uint32_t number, const void *data, uint64_t size);
} net;

static wire *
wire_of(tutti_transport *transport)
{
    return tutti_container_of(transport, wire, base);
}

/* Of who shares memory, as a doorbell: the first one wakes who sleeps, and the others need not. Else as a
 * socket, which says that it is readable in any case. */
static void
ring(wire *self)
{
    const uint64_t one = 1;

    if (self->armed || !self->shares) {
        const ssize_t put = write(self->descriptor, &one, sizeof(one));

        (void)put;
        self->armed = false;
    }
}

static void
tell(wire *self, tutti_transport_ticket *ticket, bool ok)
{
    news *one = sim_new(1, sizeof(*one));

    *one = (news){.ticket = ticket, .ok = ok};
    tutti_list_add(&self->news, &one->link);
    ring(self);
}

static void
settle(tutti_transport_rndv *packet, bool ok)
{
    if (packet->ticket != NULL) {
        tell(packet->shared ? packet->from : packet->way->from, packet->ticket, ok);
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
        if (!packet->patient || !to->idle) {
            ring(to);
        }
    }
}

/* Processes of one host, which no network is between. */
static bool
are_near(const wire *a, const wire *b)
{
    return a->shares && b->shares && a->host == b->host;
}

static uint64_t
time_of_arrival(const wire *from, const wire *to)
{
    const bool near = are_near(from, to);
    const uint64_t cut_ns = near ? 0 : net.cut_ns[from->number][to->number];
    const uint64_t begins_ns = cut_ns > sim_now_ns() ? cut_ns : sim_now_ns();
    const uint64_t usual_ns = LATENCY_NS / 4 + sim_draw(LATENCY_NS);

    return begins_ns + usual_ns +
           sim_draw(near ? 0 : net.slow_ns); /* one draw a statement: compilers differ */
}

static bool
shares_memory(const tutti_transport_conn *way)
{
    const wire *to = way->to;

    return !way->broken && are_near(way->from, to) && sim_now_ns() >= way->meets_ns &&
           (!to->dead || way->meets_ns <= to->died_ns);
}

static tutti_transport_rndv *
new_packet(tutti_transport_conn *way, const void *header, size_t header_size, const void *data,
           size_t size)
{
    tutti_transport_rndv *self = sim_new(1, sizeof(*self));

    assert(header_size <= TUTTI_TRANSPORT_HEADER_MAX);
    self->to = way->to;
    self->way = way;
    self->header_size = header_size;
    self->size = size;
    self->from = way->from;
    self->large = size > TUTTI_TRANSPORT_EAGER_MAX;
    self->shared = self->large && shares_memory(way);
    self->data = (void *)(uintptr_t)data;
    self->number = ++net.packets;
    memcpy(self->header, header, header_size);
    if (!self->large) {
        self->data = sim_new(1, size + 1);
        if (size > 0) {
            memcpy(self->data, data, size);
        }
    }
    return self;
}

/* It is on its way, and stays with its receiver until that is done with it. */
static void
post_packet(tutti_transport_rndv *packet, const char *what)
{
    const wire *from = packet->from;

    tutti_list_add(&packet->to->coming, &packet->link);
    sim_at(time_of_arrival(from, packet->to), arrive, (void *)(uintptr_t)packet->to->number,
           packet->number);
    sim_note("%u -> %u: %s %llu, kind %u, %zu bytes", from->number, packet->to->number, what,
             (unsigned long long)packet->number, packet->header[0], packet->size);
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
    packet->patient = ticket->patient && shares_memory(way);
    post_packet(packet, packet->shared ? "shared packet" : "packet");
    if (packet->large || sim_chance(LATER_ONE_IN)) {
        packet->ticket = ticket;
        return TUTTI_TRANSPORT_LATER;
    }
    return TUTTI_TRANSPORT_DONE;
}

/* ------------------------------------------------------------------------------ regions */

static tutti_transport_result
wire_expose(tutti_transport_conn *way, const void *header, size_t header_size,
            const tutti_transport_region *region, tutti_transport_ticket *ticket)
{
    tutti_transport_rndv *packet;

    if (way->broken || way->from->dead || way->to->dead) { /* broken: the other may be gone */
        return TUTTI_TRANSPORT_FAILED;
    }
    if (!are_near(way->from, way->to)) {
        sim_fail("process %u exposes memory to process %u, which cannot map it", way->from->number,
                 way->to->number);
    }
    packet = new_packet(way, header, header_size, NULL, 0);
    free(packet->data);
    packet->data = NULL;
    packet->large = true;
    packet->shared = true;
    packet->region = true;
    net.regions++;
    packet->memory = *region;
    packet->ticket = ticket;
    post_packet(packet, "region");
    return TUTTI_TRANSPORT_LATER;
}

static bool
wire_view(tutti_transport *transport, tutti_transport_rndv *packet,
          tutti_transport_region *ret_region)
{
    if (packet->over) {
        sim_fail("process %u looks at region %llu, which it has given back",
                 wire_of(transport)->number, (unsigned long long)packet->number);
    }
    *ret_region = packet->memory;
    return packet->region;
}

/* Its owner hears of it in a while. */
static void
end_region(void *arg, uint64_t number)
{
    wire *self = net.wires[(uint32_t)(uintptr_t)arg];
    tutti_transport_rndv *packet = self == NULL ? NULL : find_packet(&self->over, number);

    if (packet != NULL && packet->from != NULL) {
        settle(packet, true);
    }
}

static void
wire_give_back(tutti_transport *transport, tutti_transport_rndv *packet, bool done)
{
    wire *self = wire_of(transport);

    if (packet->over) {
        sim_fail("process %u gives region %llu back twice", self->number,
                 (unsigned long long)packet->number);
    }
    packet->over = true;
    tutti_list_remove(&packet->link);
    tutti_list_add(&self->over, &packet->link);
    if (packet->ticket != NULL) {
        packet->ticket->unfinished = !done;
    }
    sim_at(sim_now_ns() + sim_draw(LATENCY_NS), end_region, (void *)(uintptr_t)self->number,
           packet->number);
}

static bool
wire_same_host(const tutti_transport_conn *way)
{
    return shares_memory(way);
}

static bool
wire_can_map_peer(tutti_transport *transport, tutti_bytes address)
{
    const wire *self = wire_of(transport);
    uint32_t number;

    memcpy(&number, address.data, sizeof(number));
    return self->shares && (net.wires[number] == NULL ||
                            (net.wires[number]->shares && net.wires[number]->host == self->host));
}

static bool
wire_holds(tutti_transport *transport, const void *data, uint64_t size)
{
    return net.holds != NULL && net.holds(wire_of(transport)->number, data, size);
}

static uint64_t
wire_host(const tutti_transport *transport)
{
    return wire_of((tutti_transport *)(uintptr_t)transport)->host;
}

/* ------------------------------------------------------------------------------ large data */

/* The data has come over, if the connection has held. Returns whether. */
static bool
finish_pull(tutti_transport_rndv *packet)
{
    const bool held = packet->shared ? packet->from != NULL && !packet->to->dead
                                     : packet->way != NULL && !packet->way->broken;
    const bool good = held && packet->ticket != NULL;

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

    assert(size == packet->size && !packet->region);
    packet->dest = dest;
    packet->pull = ticket;
    if (packet->shared || packet->way == NULL || sim_chance(2)) {
        return finish_pull(packet) ? TUTTI_TRANSPORT_DONE : TUTTI_TRANSPORT_FAILED;
    }
    tutti_list_remove(&packet->link);
    tutti_list_add(&self->pulled, &packet->link);
    sim_at(sim_now_ns() + sim_draw(10 * LATENCY_NS), end_pull, (void *)(uintptr_t)self->number,
           packet->number);
    return TUTTI_TRANSPORT_LATER;
}

static void
wire_drop(tutti_transport *transport, tutti_transport_rndv *packet)
{
    if (packet->region) {
        wire_give_back(transport, packet, false);
        return;
    }
    if (packet->shared ? packet->from != NULL : packet->way != NULL) {
        settle(packet, true);
    }
    free_packet(packet);
}

/* ------------------------------------------------------------------------------ ways */

/* What one way has in a list, which it does not see any more: small packets are lost, large ones
 * stay for their receiver, empty, or, in the memory of a host, as they are. */
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
        if (packet->shared) {
            packet->way = NULL;
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
        sim_note("%u -> %u: the connection breaks: %s", way->from->number, way->to->number, why);
        way->broken = true;
        clear_way(&way->to->coming, way, true);
        clear_way(&way->to->here, way, true);
        clear_way(&way->to->held, way, false);
        clear_way(&way->to->pulled, way, false);
        ring(way->from);
    }
}

static void hear_of_death(void *arg, uint64_t number);

static tutti_code
wire_connect(tutti_transport *transport, tutti_bytes address, void *owner,
             tutti_transport_conn **ret_link, tutti_error *err)
{
    wire *self = wire_of(transport);
    tutti_transport_conn *way;
    uint32_t number;

    assert(address.size == sizeof(number));
    memcpy(&number, address.data, sizeof(number));
    if (net.wires[number] == NULL || self->dead) {
        return TUTTI_FAIL(err, TUTTI_UNAVAILABLE, "connection refused");
    }
    way = sim_new(1, sizeof(*way));
    way->from = self;
    way->to = net.wires[number];
    way->owner = owner;
    way->meets_ns = sim_now_ns() + MEET_NS / 4 + sim_draw(MEET_NS);
    tutti_list_add(&self->ways, &way->link);
    if (way->to->dead) { /* its kernel refuses, or its host says nothing */
        sim_at(sim_now_ns() + (way->to->silent ? BREAK_NS : sim_draw(HEARD_NS)), hear_of_death,
               NULL, number);
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
    wire *self = wire_of(transport);

    self->armed = (self->dead || tutti_list_empty(&self->here)) && tutti_list_empty(&self->news) &&
                  !has_broken(self);
    self->idle = idle;
    return self->armed;
}

static void
wire_disarm(tutti_transport *transport)
{
    wire_of(transport)->armed = false;
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

    return (tutti_bytes){(const unsigned char *)&self->number, sizeof(self->number)};
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

        if (packet->region && packet->ticket != NULL && !packet->over) {
            packet->ticket->unfinished = true;
        }
        if (packet->shared ? packet->from != NULL : packet->way != NULL) {
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

typedef void (*packet_fn)(tutti_transport_rndv *packet, const wire *about);

static void
each_in(tutti_list_node *list, packet_fn run, const wire *about)
{
    tutti_list_node *at;

    for (at = list->next; at != list; at = at->next) {
        run(tutti_container_of(at, tutti_transport_rndv, link), about);
    }
}

/* What others have, or will have, of this one's memory. */
static void
each_shared(packet_fn run, const wire *about)
{
    uint32_t i;

    for (i = 0; i < WIRES_MAX; i++) {
        if (net.wires[i] != NULL) {
            each_in(&net.wires[i]->coming, run, about);
            each_in(&net.wires[i]->here, run, about);
            each_in(&net.wires[i]->held, run, about);
            each_in(&net.wires[i]->over, run, about);
        }
    }
}

/* Its process ends, and with it what waits for the others: that is what stopping an engine does. */
static void
take_back(tutti_transport_rndv *packet, const wire *about)
{
    if (packet->shared && packet->from == about) {
        tutti_transport_ticket *ticket = packet->ticket;

        packet->from = NULL;
        packet->ticket = NULL;
        if (ticket != NULL) {
            ticket->on_done(ticket, false);
        }
    }
}

static void
wire_close(tutti_transport *transport)
{
    wire *self = wire_of(transport);

    each_shared(take_back, self);
    break_ways_to(self, "its engine has stopped");
    free_all(&self->coming);
    free_all(&self->here);
    free_all(&self->held);
    free_all(&self->over);
    end_pulls(self);
    while (!tutti_list_empty(&self->news)) {
        const news one = *tutti_container_of(self->news.next, news, link);

        free(tutti_container_of(tutti_list_pop(&self->news), news, link));
        one.ticket->on_done(one.ticket, one.ok);
    }
    if (!tutti_list_empty(&self->ways)) {
        sim_fail("process %u: a transport is closed with connections", self->number);
    }
    (void)close(self->descriptor);
    net.wires[self->number] = NULL;
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
    .disarm = wire_disarm,
    .same_host = wire_same_host,
    .can_map_peer = wire_can_map_peer,
    .holds = wire_holds,
    .expose = wire_expose,
    .view = wire_view,
    .give_back = wire_give_back,
    .host = wire_host,
};

/* ------------------------------------------------------------------------------ faults */

void
wire_open(bool (*holds)(uint32_t number, const void *data, uint64_t size))
{
    memset(&net, 0, sizeof(net));
    net.holds = holds;
}

tutti_transport *
wire_new(uint32_t number, uint32_t host, bool shares)
{
    wire *self = sim_new(1, sizeof(*self));

    assert(number < WIRES_MAX && net.wires[number] == NULL);
    self->base.ops = &wire_ops;
    self->number = number;
    self->host = host;
    self->shares = shares;
    self->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(self->descriptor >= 0);
    tutti_list_init(&self->coming);
    tutti_list_init(&self->here);
    tutti_list_init(&self->held);
    tutti_list_init(&self->pulled);
    tutti_list_init(&self->over);
    tutti_list_init(&self->news);
    tutti_list_init(&self->ways);
    net.wires[number] = self;
    return &self->base;
}

/* Nobody touches it any more: what it had comes back. */
static void
return_from(tutti_transport_rndv *packet, const wire *about)
{
    if (packet->shared && packet->to == about && packet->from != NULL) {
        settle(packet, false);
    }
}

static void
break_ways_of(wire *self, bool on_its_host)
{
    uint32_t i;

    for (i = 0; i < WIRES_MAX; i++) {
        tutti_list_node *at;

        for (at = net.wires[i] == NULL ? NULL : net.wires[i]->ways.next;
             at != NULL && at != &net.wires[i]->ways; at = at->next) {
            tutti_transport_conn *way = tutti_container_of(at, tutti_transport_conn, link);

            if (way->to == self && (!on_its_host || shares_memory(way))) {
                break_way(way, "its process is dead");
            }
        }
    }
}

/* The sockets of its host say it in any case. The connections of a dead process break where it was,
 * too: its engine is stopped later. */
static void
hear_of_death(void *arg, uint64_t number)
{
    const bool silent = arg != NULL;
    wire *self = net.wires[number];
    tutti_list_node *at;

    if (self == NULL) {
        return;
    }
    each_in(&self->coming, return_from, self);
    each_in(&self->here, return_from, self);
    each_in(&self->held, return_from, self);
    break_ways_of(self, silent);
    for (at = self->ways.next; at != &self->ways && !silent; at = at->next) {
        break_way(tutti_container_of(at, tutti_transport_conn, link), "this process is dead");
    }
}

void
wire_kill(uint32_t number, bool silent)
{
    if (net.wires[number] != NULL) {
        net.wires[number]->dead = true;
        net.wires[number]->silent = silent;
        net.wires[number]->died_ns = sim_now_ns();
        if (!silent || net.wires[number]->shares) {
            sim_at(sim_now_ns() + sim_draw(HEARD_NS), hear_of_death, silent ? &net : NULL, number);
        }
    }
}

typedef struct range {
    const unsigned char *begin;
    const unsigned char *end;
} range;

static bool
overlaps(const range *self, const void *data, uint64_t size)
{
    const unsigned char *bytes = data;

    return size > 0 && bytes < self->end && self->begin < bytes + size;
}

static uint64_t
count_loans(const range *within)
{
    uint64_t count = 0;
    uint32_t i;
    uint32_t k;

    for (i = 0; i < WIRES_MAX; i++) {
        wire *to = net.wires[i];
        tutti_list_node *lists[3];

        if (to == NULL || to->dead) {
            continue;
        }
        lists[0] = &to->coming;
        lists[1] = &to->here;
        lists[2] = &to->held;
        for (k = 0; k < 3; k++) {
            tutti_list_node *at;

            for (at = lists[k]->next; at != lists[k]; at = at->next) {
                const tutti_transport_rndv *packet =
                    tutti_container_of(at, tutti_transport_rndv, link);

                if (packet->region && packet->from != NULL && !packet->from->dead &&
                    (within == NULL ||
                     overlaps(within, packet->memory.input, packet->memory.input_size) ||
                     overlaps(within, packet->memory.output, packet->memory.output_size))) {
                    count++;
                }
            }
        }
    }
    return count;
}

bool
wire_is_lent(const void *data, uint64_t size)
{
    const range within = {data, (const unsigned char *)data + size};

    return size > 0 && count_loans(&within) > 0;
}

uint64_t
wire_regions(void)
{
    return net.regions;
}

uint64_t
wire_loans(void)
{
    return count_loans(NULL);
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
    if (from == NULL || to == NULL || are_near(from, to) ||
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
