/*
 * The transport of one host: its loop, its sleep, its opening and closing, its address. Engine's
 * thread, except open and close; the peers' processes touch the page, the rings and the doorbell.
 *
 * Two things wake it. Sockets (callers, notes, deaths) are in self->poller beside the inner
 * transport's descriptor and the doorbell. Rings have no descriptor: the peer that puts rings the
 * doorbell if the page says that we sleep. While the engine is awake, progress looks at all rings,
 * at sockets only each EVENTS_EVERY turns, and at an inner transport without links each INNER_EVERY
 * turns, since these cost a system call.
 *
 * If something is missing at the open, the transport is off, and all goes by the inner one.
 */
#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/bell.h"
#include "base/os/log.h"
#include "coll/shm/shm.h"
#include "coll/shm/shm_private.h"

#define INNER_EVERY                                                                                \
    16                  /* turns between looks at an inner transport that carries no link of ours  \
                         */
#define EVENTS_MAX 16   /* of sockets, per look */
#define EVENTS_EVERY 64 /* turns between looks at sockets while we do not sleep */

transport_shm *
tutti_transport_shm_from(tutti_transport *transport)
{
    assert(transport->ops == &tutti_transport_shm_ops);
    return tutti_container_of(transport, transport_shm, base);
}

static bool
watch_events(transport_shm *self, shm_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    return epoll_ctl(self->poller, EPOLL_CTL_ADD, watch->fd, &event) == 0;
}

bool
tutti_shm_watch(transport_shm *self, shm_watch *watch)
{
    return watch_events(self, watch, EPOLLIN);
}

void
tutti_shm_pause(transport_shm *self, shm_watch *watch)
{
    (void)epoll_ctl(self->poller, EPOLL_CTL_DEL, watch->fd, NULL);
}

void
tutti_shm_unwatch(transport_shm *self, shm_watch *watch)
{
    if (watch->fd >= 0) {
        tutti_shm_pause(self, watch);
        (void)close(watch->fd);
        watch->fd = -1;
    }
}

/*
 * Called after something was put into a ring of that process. The load is seq_cst behind the
 * seq_cst write of tail: either the sleeper's look at the ring finds what was put, or this finds it
 * asleep (docs/decisions/0012-shared-memory.md, 2). The exchange lets one of many producers ring.
 *
 * A patient message does not wake an idle engine: it is of use only when an op is posted there, and
 * the poster looks.
 */
void
tutti_shm_ring_doorbell(const shm_doorbell *doorbell, bool patient)
{
    uint32_t asleep;

    tutti_shm_fault();
    asleep = atomic_load_explicit(&doorbell->page->asleep, memory_order_seq_cst);
    if (asleep != SHM_AWAKE && !(patient && asleep == SHM_IDLE) &&
        atomic_exchange_explicit(&doorbell->page->asleep, SHM_AWAKE, memory_order_seq_cst) !=
            SHM_AWAKE) {
        tutti_bell_ring(doorbell->fd);
    }
}

/* The difference is computed on integers: `data` may be anywhere, and a pointer difference outside
 * of one object is undefined. A data pointer below base gives a huge `at`. */
bool
tutti_shm_holds(tutti_transport *transport, const void *data, uint64_t size)
{
    const transport_shm *self = tutti_transport_shm_from(transport);
    const uint64_t at = (uint64_t)((uintptr_t)data - (uintptr_t)self->options.base);

    if (!self->on || self->options.inside || self->options.memory < 0) {
        return self->on && self->options.inside;
    }
    return (at <= self->options.size && size <= self->options.size - at) ||
           tutti_shm_is_in_region(self, data, size);
}

static bool
is_same_host(const tutti_transport_conn *link)
{
    return link->state == SHM_SAME_HOST && !link->broken;
}

/* FNV-1a (Fowler, Noll, Vo 1991) of its id: compared among the ranks of a group, where a collision
 * would only make an algorithm a poor choice. */
static uint64_t
host_number(const tutti_transport *transport)
{
    const transport_shm *self = (const transport_shm *)(const void *)transport;
    uint64_t number = UINT64_C(14695981039346656037);
    const char *at;

    for (at = self->host_id; *at != '\0'; at++) {
        number = (number ^ (unsigned char)*at) * UINT64_C(1099511628211);
    }
    return self->host_id[0] != '\0' ? number : 0;
}

static bool
can_map_peer(tutti_transport *transport, tutti_bytes bytes)
{
    const transport_shm *self = tutti_transport_shm_from(transport);
    shm_address address;

    return self->on && tutti_shm_address_read(bytes, &address) && address.host_size > 0 &&
           address.host_size == strlen(self->host_id) &&
           memcmp(address.host_id, self->host_id, address.host_size) == 0;
}

/* ------------------------------------------------------------------------------ the inner
 * transport */

/* The rndv of the inner transport is wrapped, so that the engine's later calls, which come to this
 * transport, can be passed on. */
static void
on_inner_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
                tutti_transport_rndv *inner)
{
    transport_shm *self = arg;
    tutti_transport_rndv *rndv = NULL;

    if (inner != NULL) {
        rndv = calloc(1, sizeof(*rndv));
        if (rndv == NULL) {
            self->inner->ops->drop(self->inner, inner);
            return;
        }
        rndv->inner = inner;
    }
    self->events->on_packet(self->arg, header, header_size, data, size, rndv);
}

static void
on_inner_broken(void *arg, void *owner, const char *why)
{
    transport_shm *self = arg;

    self->events->on_broken(self->arg, owner, why);
}

const tutti_transport_events tutti_shm_inner_events = {on_inner_packet, on_inner_broken};

static void
transport_shm_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    transport_shm *self = tutti_transport_shm_from(transport);

    self->events = events;
    self->arg = arg;
    self->inner->ops->listen(self->inner, &tutti_shm_inner_events, self);
}

/* ------------------------------------------------------------------------------ the loop */

/* Handlers may free what other events are about, so one event is fetched at a time. */
static unsigned
look_at_sockets(transport_shm *self)
{
    struct epoll_event event;
    unsigned did = 0;

    tutti_shm_knock_again(self);
    while (did < EVENTS_MAX && epoll_wait(self->poller, &event, 1, 0) == 1) {
        shm_watch *watch = event.data.ptr;

        watch->on_event(watch);
        did++;
    }
    return did;
}

/*
 * tutti_list_each allows the current entry to be freed: a link or a source may end in its own
 * progress. No handler frees another source: tutti_shm_source_gone is called from socket events,
 * revoke and rekey alone.
 */
static unsigned
progress_rings(transport_shm *self)
{
    tutti_list_node *at;
    tutti_list_node *spare;
    unsigned did = 0;

    tutti_list_each(at, spare, &self->sources)
    {
        did += tutti_shm_source_progress(tutti_container_of(at, shm_source, link));
    }
    tutti_list_each(at, spare, &self->links)
    {
        did += tutti_shm_link_progress(tutti_container_of(at, tutti_transport_conn, link));
    }
    did += tutti_shm_links_judge(self);
    return did + tutti_shm_pulls_progress(self);
}

static unsigned
transport_shm_progress(tutti_transport *transport)
{
    transport_shm *self = tutti_transport_shm_from(transport);
    unsigned did = progress_rings(self);

    self->turn++;
    if (self->remote_count > 0 || self->turn % INNER_EVERY == 0) {
        did += self->inner->ops->progress(self->inner);
    }
    if (self->on && self->turn % EVENTS_EVERY == 0) {
        tutti_shm_forget_gone(self);
        (void)look_at_sockets(self);
    }
    return did;
}

static int
transport_shm_descriptor(tutti_transport *transport)
{
    const transport_shm *self = tutti_transport_shm_from(transport);

    return self->on ? self->poller : self->inner->ops->descriptor(self->inner);
}

/* Nothing came back, and a producer that waits for room still has none: room that was made while we
 * did not sleep yet rang no doorbell. This is the look that the model found missing. */
static bool
is_quiet(const tutti_transport_conn *link)
{
    return link->state != SHM_SAME_HOST ||
           (tutti_shm_is_empty(&link->back) && !tutti_shm_was_unblocked(&link->out));
}

static bool
are_empty(const transport_shm *self)
{
    const tutti_list_node *at;

    for (at = self->sources.next; at != &self->sources; at = at->next) {
        const shm_source *source = tutti_container_of(at, shm_source, link);

        if (source->met && !tutti_shm_is_empty(&source->in)) {
            return false;
        }
    }
    for (at = self->links.next; at != &self->links; at = at->next) {
        if (!is_quiet(tutti_container_of(at, tutti_transport_conn, link))) {
            return false;
        }
    }
    return tutti_list_empty(&self->pulls);
}

/*
 * First the sockets: an event that is there already would end the sleep at once. Then say that we
 * sleep, and only then look at the rings: a peer that puts between the two finds the flag. The
 * fault points are where a peer could come between.
 *
 * Awake again is relaxed: a peer that reads the old value rings once too often.
 */
static bool
transport_shm_arm(tutti_transport *transport, bool idle)
{
    transport_shm *self = tutti_transport_shm_from(transport);

    if (!self->on) {
        return self->inner->ops->arm(self->inner, idle);
    }
    tutti_shm_forget_gone(self);
    if (look_at_sockets(self) > 0) {
        self->turn = INNER_EVERY - 1; /* one of them may be the inner transport's */
        (void)self->inner->ops->arm(self->inner, idle); /* which alone takes what only wakes it */
        return false;
    }
    tutti_shm_fault();
    atomic_store_explicit(&self->page->asleep, idle ? SHM_IDLE : SHM_ASLEEP, memory_order_seq_cst);
    tutti_shm_fault();
    if (are_empty(self) && self->inner->ops->arm(self->inner, idle)) {
        return true;
    }
    atomic_store_explicit(&self->page->asleep, SHM_AWAKE, memory_order_relaxed);
    self->turn = INNER_EVERY - 1;
    return false;
}

static void
transport_shm_disarm(tutti_transport *transport)
{
    transport_shm *self = tutti_transport_shm_from(transport);

    if (self->on) {
        atomic_store_explicit(&self->page->asleep, SHM_AWAKE, memory_order_relaxed);
    }
    tutti_transport_disarm(self->inner);
}

static tutti_bytes
transport_shm_address(tutti_transport *transport)
{
    const transport_shm *self = tutti_transport_shm_from(transport);

    return (tutti_bytes){self->address, self->address_size};
}

/* ------------------------------------------------------------------------------ members */

/* The inner transport first: it checks the proofs of callers that were ahead of us. */
static void
transport_shm_rekey(tutti_transport *transport, const tutti_transport_key *key)
{
    transport_shm *self = tutti_transport_shm_from(transport);
    tutti_list_node *at;
    tutti_list_node *spare;

    if (self->inner->ops->rekey != NULL) {
        self->inner->ops->rekey(self->inner, key);
    }
    tutti_list_each(at, spare, &self->sources)
    {
        shm_source *source = tutti_container_of(at, shm_source, link);

        if (source->fd_count > 0) { /* it was ahead of us */
            tutti_shm_judge_again(source);
        }
    }
}

/* What it has said has been heard; its ring ends here. */
static void
transport_shm_revoke(tutti_transport *transport, uint32_t rank, uint64_t incarnation)
{
    transport_shm *self = tutti_transport_shm_from(transport);
    tutti_list_node *at;
    tutti_list_node *spare;

    if (self->inner->ops->revoke != NULL) {
        self->inner->ops->revoke(self->inner, rank, incarnation);
    }
    tutti_list_each(at, spare, &self->sources)
    {
        shm_source *source = tutti_container_of(at, shm_source, link);

        if (source->incarnation == incarnation) {
            TUTTI_LOG("coll/shm", DEBUG, "rank %u is no member any more: hung up", rank);
            tutti_shm_source_gone(source);
        }
    }
}

const tutti_transport_ops tutti_transport_shm_ops = {
    .size = sizeof(tutti_transport_ops),
    .address = transport_shm_address,
    .listen = transport_shm_listen,
    .connect = tutti_shm_link_open,
    .disconnect = tutti_shm_disconnect,
    .send = tutti_shm_send_packet,
    .fetch = tutti_shm_fetch,
    .drop = tutti_shm_drop,
    .progress = transport_shm_progress,
    .descriptor = transport_shm_descriptor,
    .arm = transport_shm_arm,
    .close = tutti_shm_close,
    .disarm = transport_shm_disarm,
    .same_host = is_same_host,
    .can_map_peer = can_map_peer,
    .host = host_number,
    .holds = tutti_shm_holds,
    .expose = tutti_shm_expose,
    .view = tutti_shm_map,
    .give_back = tutti_shm_give_back,
    .rekey = transport_shm_rekey,
    .revoke = transport_shm_revoke,
};

/* ------------------------------------------------------------------------------ open */

/* ------------------------------------------------------------------------------ closing */

static void
close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

static void
close_pulls(transport_shm *self)
{
    tutti_list_node *at;

    while ((at = tutti_list_pop(&self->pulls)) != NULL) {
        tutti_transport_rndv *rndv = tutti_container_of(at, tutti_transport_rndv, link);
        tutti_transport_ticket *ticket = rndv->ticket;

        tutti_shm_give_back(&self->base, rndv, false);
        ticket->on_done(ticket, false);
    }
}

static void
close_ways(transport_shm *self)
{
    close_pulls(self);
    while (!tutti_list_empty(&self->links)) {
        tutti_shm_link_free(tutti_container_of(self->links.next, tutti_transport_conn, link));
    }
    while (!tutti_list_empty(&self->sources)) {
        shm_source *source = tutti_container_of(self->sources.next, shm_source, link);

        source->met = false; /* nobody listens to last words any more */
        tutti_shm_source_gone(source);
    }
}

/* In one process (tests) the page is not unmapped: a peer's thread may still look at it. */
static void
close_own(transport_shm *self)
{
    close_fd(&self->listener.fd);
    close_fd(&self->doorbell);
    close_fd(&self->page_fd);
    close_fd(&self->spare);
    close_fd(&self->poller);
    if (self->page != NULL && !self->options.inside) { /* else a peer may still ring */
        (void)munmap(self->page, sizeof(*self->page));
    }
    self->page = NULL;
}

/* Ways first: their tickets come back, and the inner connections are its own. The inner transport
 * next; the poller, which has its descriptor, last. */
void
tutti_shm_close(tutti_transport *transport)
{
    transport_shm *self = tutti_transport_shm_from(transport);

    close_ways(self);
    self->inner->ops->close(self->inner);
    close_own(self);
    free(self->address);
    free(self);
}

/* ------------------------------------------------------------------------------ opening */

/* Only wakes: progress looks at all rings anyway, and at an inner transport that has work. */
static void
on_wake(shm_watch *watch)
{
    (void)watch;
}

static bool
open_own(transport_shm *self, const unsigned char name[SHM_NAME_BYTES])
{
    self->poller = epoll_create1(EPOLL_CLOEXEC);
    self->doorbell = tutti_bell_open();
    self->page = tutti_local_create("tutti-page", sizeof(*self->page), &self->page_fd);
    self->listener = (shm_watch){.on_event = tutti_shm_on_knock,
                                 .fd = tutti_local_listen((tutti_bytes){name, SHM_NAME_BYTES})};
    self->doorbell_watch = (shm_watch){.on_event = on_wake, .fd = self->doorbell};
    tutti_shm_hold_spare(self);
    self->inner_watch =
        (shm_watch){.on_event = on_wake, .fd = self->inner->ops->descriptor(self->inner)};
    return self->poller >= 0 && self->doorbell >= 0 && self->page != NULL &&
           self->listener.fd >= 0 && tutti_shm_watch(self, &self->listener) &&
           watch_events(self, &self->doorbell_watch, EPOLLIN | EPOLLET) &&
           (self->inner_watch.fd < 0 || tutti_shm_watch(self, &self->inner_watch));
}

static void
draw_shm_name(unsigned char ret_name[SHM_NAME_BYTES])
{
    char text[TUTTI_ID_TEXT_SIZE];
    char name[SHM_NAME_BYTES + 1];

    tutti_id_format(tutti_id_draw(), text);
    (void)snprintf(name, sizeof(name), "tutti-sh%s", text);
    memcpy(ret_name, name, SHM_NAME_BYTES);
}

static void
init_shm(transport_shm *self, const tutti_transport_shm_options *options)
{
    self->base.ops = &tutti_transport_shm_ops;
    self->options = *options;
    self->inner = options->inner;
    self->poller = -1;
    self->doorbell = -1;
    self->page_fd = -1;
    self->spare = -1;
    self->listener.fd = -1;
    self->secret[0] = tutti_id_draw();
    self->secret[1] = tutti_id_draw();
    (void)snprintf(self->host_id, sizeof(self->host_id), "%s",
                   options->host_id == NULL ? "" : options->host_id);
    tutti_list_init(&self->links);
    tutti_list_init(&self->sources);
    tutti_list_init(&self->pulls);
}

tutti_code
tutti_transport_shm_open(const tutti_transport_shm_options *options,
                         tutti_transport **ret_transport, tutti_error *err)
{
    transport_shm *self = calloc(1, sizeof(*self));
    unsigned char name[SHM_NAME_BYTES];
    tutti_code code;

    if (self == NULL) {
        options->inner->ops->close(options->inner);
        return TUTTI_FAIL_MEMORY(err, "no memory for the data plane");
    }
    tutti_shm_fault_init();
    init_shm(self, options);
    draw_shm_name(name);
    self->on = !options->off && open_own(self, name);
    if (!self->on) {
        close_own(self);
    }
    if (!self->on && !options->off) {
        TUTTI_LOG("coll/shm", WARN,
                  "no descriptors for shared memory (%s): all data goes by the network; raise the "
                  "limit (ulimit -n)",
                  tutti_bell_can_ring() ? "too few" : "the system forbids io_submit");
    }
    code = tutti_shm_address_make(self, name, err);
    if (code != TUTTI_OK) {
        tutti_shm_close(&self->base);
        return code;
    }
    *ret_transport = &self->base;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ address */

static const unsigned char magic[8] = {'t', 'u', 't', 't', 'i', 's', 'm', '1'};

static unsigned char *
put_shm_address(unsigned char *at, const void *bytes, size_t size)
{
    if (size > 0) {
        memcpy(at, bytes, size);
    }
    return at + size;
}

tutti_code
tutti_shm_address_make(transport_shm *self, const unsigned char name[SHM_NAME_BYTES],
                       tutti_error *err)
{
    const tutti_bytes inner = self->inner->ops->address(self->inner);
    const size_t host_size = self->on ? strlen(self->host_id) : 0;
    const unsigned char host_bytes = (unsigned char)host_size;
    unsigned char *at;

    assert(host_size < TUTTI_TRANSPORT_SHM_HOST_MAX);
    self->address_size =
        sizeof(magic) + 1 + host_size + SHM_NAME_BYTES + sizeof(self->secret) + inner.size;
    self->address = malloc(self->address_size);
    if (self->address == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for an address");
    }
    at = put_shm_address(self->address, magic, sizeof(magic));
    at = put_shm_address(at, &host_bytes, 1);
    at = put_shm_address(at, self->host_id, host_size);
    at = put_shm_address(at, name, SHM_NAME_BYTES);
    at = put_shm_address(at, self->secret, sizeof(self->secret));
    (void)put_shm_address(at, inner.data, inner.size);
    return TUTTI_OK;
}

bool
tutti_shm_address_read(tutti_bytes bytes, shm_address *ret)
{
    const unsigned char *at = bytes.data;
    const size_t fixed = sizeof(magic) + 1 + SHM_NAME_BYTES + sizeof(ret->secret);

    if (bytes.size < fixed || memcmp(at, magic, sizeof(magic)) != 0 ||
        bytes.size < fixed + at[sizeof(magic)]) {
        return false;
    }
    ret->host_size = at[sizeof(magic)];
    at += sizeof(magic) + 1;
    ret->host_id = (const char *)at;
    ret->name = at + ret->host_size;
    at = ret->name + SHM_NAME_BYTES;
    memcpy(ret->secret, at, sizeof(ret->secret));
    at += sizeof(ret->secret);
    ret->inner.data = at;
    ret->inner.size = bytes.size - fixed - ret->host_size;
    return true;
}

/* ------------------------------------------------------------------------------ fault */

#define SLEEP_NS_MAX 200000U

static atomic_uint one_in; /* 0 = never */
static _Thread_local uint32_t state;

void
tutti_shm_fault_init(void)
{
    const char *text = getenv("TUTTI_CHAOS");
    const unsigned long number = text == NULL ? 0 : strtoul(text, NULL, 10);

    atomic_store_explicit(&one_in, number > 1000000 ? 0 : (unsigned)number, memory_order_relaxed);
}

/* xorshift32 (Marsaglia 2003): no state is shared between threads, and a fault needs no good random
 * numbers. */
static uint32_t
draw_fault(void)
{
    if (state == 0) {
        state = (uint32_t)(uintptr_t)&state | 1U; /* another one in every thread */
    }
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

void
tutti_shm_fault(void)
{
    const unsigned limit = atomic_load_explicit(&one_in, memory_order_relaxed);
    struct timespec moment = {0};

    if (limit == 0 || draw_fault() % limit != 0) {
        return;
    }
    if (draw_fault() % 2 == 0) {
        (void)sched_yield();
        return;
    }
    moment.tv_nsec = (long)(draw_fault() % SLEEP_NS_MAX);
    (void)nanosleep(&moment, NULL);
}
