#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/os/log.h"
#include "coll/shm/fault.h"
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

bool
tutti_shm_watch(transport_shm *self, shm_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

    return epoll_ctl(self->poller, EPOLL_CTL_ADD, watch->fd, &event) == 0;
}

void
tutti_shm_unwatch(transport_shm *self, shm_watch *watch)
{
    if (watch->fd >= 0) {
        (void)epoll_ctl(self->poller, EPOLL_CTL_DEL, watch->fd, NULL);
        (void)close(watch->fd);
        watch->fd = -1;
    }
}

void
tutti_shm_ring_doorbell(const shm_doorbell *doorbell, bool patient)
{
    const uint64_t one = 1;
    uint32_t asleep;

    tutti_shm_fault();
    asleep = atomic_load_explicit(&doorbell->page->asleep, memory_order_seq_cst);
    if (asleep != SHM_AWAKE && !(patient && asleep == SHM_IDLE) &&
        atomic_exchange_explicit(&doorbell->page->asleep, SHM_AWAKE, memory_order_seq_cst) !=
            SHM_AWAKE) {
        const ssize_t put = write(doorbell->fd, &one, sizeof(one));

        (void)put; /* full is rung */
    }
}

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

/* FNV-1a (Fowler, Noll, Vo 1991) of its id. */
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

    while (did < EVENTS_MAX && epoll_wait(self->poller, &event, 1, 0) == 1) {
        shm_watch *watch = event.data.ptr;

        watch->on_event(watch);
        did++;
    }
    return did;
}

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

/* Nothing came back, and who waits for room still does: room that was made while we did not sleep
 * yet rang no doorbell. */
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
