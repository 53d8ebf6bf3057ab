#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/os/log.h"
#include "coll/shm/coll_shm_chaos.h"
#include "coll/shm/coll_shm_wire.h"

#define INNER_EVERY 16  /* turns between looks at an inner wire that carries no link of ours */
#define EVENTS_MOST 16  /* of sockets, per look */
#define EVENTS_EVERY 64 /* turns between looks at sockets while we do not sleep */

wire_shm *
tutti_wire_shm_from(tutti_wire *wire)
{
    assert(wire->ops == &tutti_wire_shm_ops);
    return tutti_container_of(wire, wire_shm, base);
}

bool
tutti_shm_watch(wire_shm *self, shm_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

    return epoll_ctl(self->poller, EPOLL_CTL_ADD, watch->fd, &event) == 0;
}

void
tutti_shm_unwatch(wire_shm *self, shm_watch *watch)
{
    if (watch->fd >= 0) {
        (void)epoll_ctl(self->poller, EPOLL_CTL_DEL, watch->fd, NULL);
        (void)close(watch->fd);
        watch->fd = -1;
    }
}

void
tutti_shm_ring_bell(const shm_bell *bell, bool patient)
{
    const uint64_t one = 1;
    uint32_t asleep;

    tutti_shm_chaos();
    asleep = atomic_load_explicit(&bell->page->asleep, memory_order_seq_cst);
    if (asleep != SHM_AWAKE && !(patient && asleep == SHM_IDLE) &&
        atomic_exchange_explicit(&bell->page->asleep, SHM_AWAKE, memory_order_seq_cst) !=
            SHM_AWAKE) {
        const ssize_t put = write(bell->fd, &one, sizeof(one));

        (void)put; /* full is rung */
    }
}

bool
tutti_shm_holds(tutti_wire *wire, const void *data, uint64_t size)
{
    const wire_shm *self = tutti_wire_shm_from(wire);
    const uint64_t at = (uint64_t)((uintptr_t)data - (uintptr_t)self->options.base);

    if (!self->on || self->options.inside || self->options.memory < 0) {
        return self->on && self->options.inside;
    }
    return (at <= self->options.size && size <= self->options.size - at) ||
           tutti_shm_is_in_region(self, data, size);
}

static bool
is_near(const tutti_wire_link *link)
{
    return link->state == SHM_NEAR && !link->broken;
}

/* FNV-1a (Fowler, Noll, Vo 1991) of its id. */
static uint64_t
host_number(const tutti_wire *wire)
{
    const wire_shm *self = (const wire_shm *)(const void *)wire;
    uint64_t number = UINT64_C(14695981039346656037);
    const char *at;

    for (at = self->host_id; *at != '\0'; at++) {
        number = (number ^ (unsigned char)*at) * UINT64_C(1099511628211);
    }
    return self->host_id[0] != '\0' ? number : 0;
}

static bool
maybe_near(tutti_wire *wire, tutti_bytes bytes)
{
    const wire_shm *self = tutti_wire_shm_from(wire);
    shm_address address;

    return self->on && tutti_shm_address_read(bytes, &address) && address.host_size > 0 &&
           address.host_size == strlen(self->host_id) &&
           memcmp(address.host_id, self->host_id, address.host_size) == 0;
}

/* ------------------------------------------------------------------------------ the inner wire */

static void
on_inner_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
                tutti_wire_parcel *inner)
{
    wire_shm *self = arg;
    tutti_wire_parcel *parcel = NULL;

    if (inner != NULL) {
        parcel = calloc(1, sizeof(*parcel));
        if (parcel == NULL) {
            self->inner->ops->drop(self->inner, inner);
            return;
        }
        parcel->inner = inner;
    }
    self->events->on_packet(self->arg, header, header_size, data, size, parcel);
}

static void
on_inner_broken(void *arg, void *owner, const char *why)
{
    wire_shm *self = arg;

    self->events->on_broken(self->arg, owner, why);
}

const tutti_wire_events tutti_shm_inner_events = {on_inner_packet, on_inner_broken};

static void
wire_shm_listen(tutti_wire *wire, const tutti_wire_events *events, void *arg)
{
    wire_shm *self = tutti_wire_shm_from(wire);

    self->events = events;
    self->arg = arg;
    self->inner->ops->listen(self->inner, &tutti_shm_inner_events, self);
}

/* ------------------------------------------------------------------------------ the loop */

/* Handlers may free what other events are about, so one event is fetched at a time. */
static unsigned
look_at_sockets(wire_shm *self)
{
    struct epoll_event event;
    unsigned did = 0;

    while (did < EVENTS_MOST && epoll_wait(self->poller, &event, 1, 0) == 1) {
        shm_watch *watch = event.data.ptr;

        watch->on_event(watch);
        did++;
    }
    return did;
}

static unsigned
progress_rings(wire_shm *self)
{
    tutti_link *at;
    tutti_link *spare;
    unsigned did = 0;

    tutti_list_each(at, spare, &self->sources)
    {
        did += tutti_shm_source_progress(tutti_container_of(at, shm_source, link));
    }
    tutti_list_each(at, spare, &self->links)
    {
        did += tutti_shm_link_progress(tutti_container_of(at, tutti_wire_link, link));
    }
    return did + tutti_shm_pulls_progress(self);
}

static unsigned
wire_shm_progress(tutti_wire *wire)
{
    wire_shm *self = tutti_wire_shm_from(wire);
    unsigned did = progress_rings(self);

    self->turn++;
    if (self->far_count > 0 || self->turn % INNER_EVERY == 0) {
        did += self->inner->ops->progress(self->inner);
    }
    if (self->on && self->turn % EVENTS_EVERY == 0) {
        tutti_shm_forget_gone(self);
        (void)look_at_sockets(self);
    }
    return did;
}

static int
wire_shm_descriptor(tutti_wire *wire)
{
    const wire_shm *self = tutti_wire_shm_from(wire);

    return self->on ? self->poller : self->inner->ops->descriptor(self->inner);
}

/* Nothing came back, and who waits for room still does: room that was made while we did not sleep
 * yet rang no bell. */
static bool
is_quiet(const tutti_wire_link *link)
{
    return link->state != SHM_NEAR ||
           (tutti_shm_is_empty(&link->back) && !tutti_shm_was_unblocked(&link->out));
}

static bool
are_empty(const wire_shm *self)
{
    const tutti_link *at;

    for (at = self->sources.next; at != &self->sources; at = at->next) {
        const shm_source *source = tutti_container_of(at, shm_source, link);

        if (source->met && !tutti_shm_is_empty(&source->in)) {
            return false;
        }
    }
    for (at = self->links.next; at != &self->links; at = at->next) {
        if (!is_quiet(tutti_container_of(at, tutti_wire_link, link))) {
            return false;
        }
    }
    return tutti_list_empty(&self->pulls);
}

static bool
wire_shm_arm(tutti_wire *wire, bool idle)
{
    wire_shm *self = tutti_wire_shm_from(wire);

    if (!self->on) {
        return self->inner->ops->arm(self->inner, idle);
    }
    tutti_shm_forget_gone(self);
    if (look_at_sockets(self) > 0) {
        self->turn = INNER_EVERY - 1;                   /* one of them may be the inner wire's */
        (void)self->inner->ops->arm(self->inner, idle); /* which alone takes what only wakes it */
        return false;
    }
    tutti_shm_chaos();
    atomic_store_explicit(&self->page->asleep, idle ? SHM_IDLE : SHM_ASLEEP, memory_order_seq_cst);
    tutti_shm_chaos();
    if (are_empty(self) && self->inner->ops->arm(self->inner, idle)) {
        return true;
    }
    atomic_store_explicit(&self->page->asleep, SHM_AWAKE, memory_order_relaxed);
    self->turn = INNER_EVERY - 1;
    return false;
}

static void
wire_shm_disarm(tutti_wire *wire)
{
    wire_shm *self = tutti_wire_shm_from(wire);

    if (self->on) {
        atomic_store_explicit(&self->page->asleep, SHM_AWAKE, memory_order_relaxed);
    }
    tutti_wire_disarm(self->inner);
}

static tutti_bytes
wire_shm_address(tutti_wire *wire)
{
    const wire_shm *self = tutti_wire_shm_from(wire);

    return (tutti_bytes){self->address, self->address_size};
}

/* ------------------------------------------------------------------------------ members */

static void
wire_shm_rekey(tutti_wire *wire, const tutti_wire_key *key)
{
    wire_shm *self = tutti_wire_shm_from(wire);
    tutti_link *at;
    tutti_link *spare;

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
wire_shm_expel(tutti_wire *wire, uint32_t rank, uint64_t incarnation)
{
    wire_shm *self = tutti_wire_shm_from(wire);
    tutti_link *at;
    tutti_link *spare;

    if (self->inner->ops->expel != NULL) {
        self->inner->ops->expel(self->inner, rank, incarnation);
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

const tutti_wire_ops tutti_wire_shm_ops = {
    .size = sizeof(tutti_wire_ops),
    .address = wire_shm_address,
    .listen = wire_shm_listen,
    .connect = tutti_shm_link_open,
    .disconnect = tutti_shm_disconnect,
    .send = tutti_shm_send_packet,
    .pull = tutti_shm_pull,
    .drop = tutti_shm_drop,
    .progress = wire_shm_progress,
    .descriptor = wire_shm_descriptor,
    .arm = wire_shm_arm,
    .close = tutti_shm_close,
    .disarm = wire_shm_disarm,
    .near = is_near,
    .maybe_near = maybe_near,
    .host = host_number,
    .holds = tutti_shm_holds,
    .lend = tutti_shm_lend,
    .view = tutti_shm_view,
    .give_back = tutti_shm_give_back,
    .rekey = wire_shm_rekey,
    .expel = wire_shm_expel,
};
