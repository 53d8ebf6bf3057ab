#include "coll/tcp/coll_tcp.h"

#include <assert.h>
#include <bsd/stdlib.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "coll/tcp/coll_tcp_private.h"

#define EVENTS_MOST 16 /* in a turn */
#define LULL_NS TUTTI_NS_PER_MS
#define LOOK_EVERY_NS (50 * TUTTI_NS_PER_MS)
#define SEE_OFF_NS TUTTI_NS_PER_S
#define CREDIT_BYTES (64ULL << 20) /* that all peers together may send unasked */

static const tutti_wire_ops wire_tcp_ops;

wire_tcp *
tutti_tcp_from(tutti_wire *wire)
{
    assert(wire->ops == &wire_tcp_ops);
    return tutti_container_of(wire, wire_tcp, base);
}

/* ------------------------------------------------------------------------------ the loop */

static void
free_gone(wire_tcp *self)
{
    tutti_link *at, *spare;

    tutti_list_each(at, spare, &self->gone_links)
    {
        tutti_tcp_link_free(tutti_container_of(at, tutti_wire_link, link));
    }
    tutti_list_each(at, spare, &self->gone_sources)
    {
        tutti_tcp_source_free(tutti_container_of(at, tcp_source, link));
    }
}

static bool
hurry_links(wire_tcp *self, uint64_t now_ns)
{
    tutti_link *at, *spare;
    bool hurry = false;

    tutti_list_each(at, spare, &self->links)
    {
        tutti_wire_link *link = tutti_container_of(at, tutti_wire_link, link);

        tutti_tcp_link_hurry(link, now_ns);
        hurry = hurry || link->state == TCP_CONNECTING || link->state == TCP_GREETING;
    }
    return hurry;
}

/* Is there one left? */
static bool
hurry_leaving(wire_tcp *self, uint64_t now_ns)
{
    tutti_link *at, *spare;

    tutti_list_each(at, spare, &self->leaving)
    {
        tutti_tcp_link_leave(tutti_container_of(at, tutti_wire_link, link), now_ns);
    }
    return !tutti_list_empty(&self->leaving);
}

/* Strangers and links that are being made or left have a time. */
static void
hurry(wire_tcp *self)
{
    const uint64_t now_ns = tutti_clock_ns();
    tutti_link *at, *spare;
    bool leaving;

    if (now_ns < self->look_ns) {
        return;
    }
    self->look_ns = now_ns + LOOK_EVERY_NS;
    tutti_list_each(at, spare, &self->strangers)
    {
        tcp_source *source = tutti_container_of(at, tcp_source, link);

        if (now_ns >= source->patience) {
            tutti_tcp_source_end(source, "it said nothing");
        }
    }
    tutti_tcp_accept_again(self, now_ns);
    leaving = hurry_leaving(self, now_ns);
    self->hurry = hurry_links(self, now_ns) || leaving || !tutti_list_empty(&self->strangers) ||
                  self->accept_again_ns != 0;
}

static unsigned
tell_broken(wire_tcp *self)
{
    tutti_link *first;
    unsigned did = 0;

    while ((first = tutti_list_pop(&self->broken)) != NULL) {
        tutti_wire_link *link = tutti_container_of(first, tutti_wire_link, broken);

        self->events->on_broken(self->arg, link->owner, link->why);
        did++;
    }
    return did;
}

static unsigned
wire_tcp_progress(tutti_wire *wire)
{
    wire_tcp *self = tutti_tcp_from(wire);
    struct epoll_event events[EVENTS_MOST];
    int count, i;

    free_gone(self);
    count = epoll_wait(self->poller, events, EVENTS_MOST, 0);
    for (i = 0; i < count; i++) {
        tcp_watch *watch = events[i].data.ptr;

        if (watch->fd >= 0) {
            watch->on_ready(watch, events[i].events);
        }
    }
    if (self->hurry) {
        hurry(self);
    }
    return tell_broken(self) + (count > 0 ? (unsigned)count : 0);
}

static int
wire_tcp_descriptor(tutti_wire *wire)
{
    return tutti_tcp_from(wire)->bell;
}

static bool
set_bell(wire_tcp *self, bool armed)
{
    struct epoll_event event = {.events = armed ? EPOLLIN : 0U};

    if (self->armed != armed && epoll_ctl(self->bell, EPOLL_CTL_MOD, self->poller, &event) == 0) {
        self->armed = armed;
    }
    return self->armed == armed;
}

/* It rings that long after the last op, not after the first one: nobody wants it between two. */
static void
set_alarm(wire_tcp *self)
{
    static const struct itimerspec lull = {.it_value.tv_nsec = (long)LULL_NS};

    self->alarm_set = timerfd_settime(self->alarm, 0, &lull, NULL) == 0;
    self->stirred = false;
}

/* If it has rung it is quiet now. */
static void
take_alarm(wire_tcp *self)
{
    uint64_t times;

    if (self->alarm_set && read(self->alarm, &times, sizeof(times)) == (ssize_t)sizeof(times)) {
        self->alarm_set = false;
    }
}

/*
 * Between two ops that follow each other what peers send for the next one would wake a thread for
 * nothing: who posts that op looks by itself. So the first LULL_NS of idleness only an alarm rings,
 * once.
 */
static bool
is_lull(wire_tcp *self, bool idle)
{
    take_alarm(self); /* or it rings on while an op runs */
    self->stirred = self->stirred || !idle;
    if (idle && self->stirred) {
        set_alarm(self);
    }
    return idle && self->alarm_set && set_bell(self, false);
}

/* What comes behind this look rings: the poller is readable as long as something is to be done. */
static bool
wire_tcp_arm(tutti_wire *wire, bool idle)
{
    wire_tcp *self = tutti_tcp_from(wire);
    struct epoll_event event;

    if (!tutti_list_empty(&self->broken) || epoll_wait(self->poller, &event, 1, 0) != 0) {
        return false;
    }
    return is_lull(self, idle) || set_bell(self, true);
}

static void
wire_tcp_disarm(tutti_wire *wire)
{
    wire_tcp *self = tutti_tcp_from(wire);

    self->stirred = true;
    (void)set_bell(self, false);
}

static tutti_bytes
wire_tcp_address(tutti_wire *wire)
{
    const wire_tcp *self = tutti_tcp_from(wire);

    return (tutti_bytes){self->address, self->address_size};
}

static void
wire_tcp_listen(tutti_wire *wire, const tutti_wire_events *events, void *arg)
{
    wire_tcp *self = tutti_tcp_from(wire);

    self->events = events;
    self->arg = arg;
}

/* ------------------------------------------------------------------------------ its life */

static void
end_sources(tutti_link *sources)
{
    tutti_link *at, *spare;

    tutti_list_each(at, spare, sources)
    {
        tutti_tcp_source_end(tutti_container_of(at, tcp_source, link), NULL);
    }
}

static void
close_one(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* What was sent before a way was left gets some time to arrive, then none. */
static void
see_off(wire_tcp *self)
{
    const uint64_t until = tutti_clock_ns() + SEE_OFF_NS;
    const struct timespec nap = {.tv_nsec = (long)TUTTI_NS_PER_MS};

    while (hurry_leaving(self, tutti_clock_ns()) && tutti_clock_ns() < until) {
        (void)nanosleep(&nap, NULL);
    }
    (void)hurry_leaving(self, UINT64_MAX);
}

static void
wire_tcp_close(tutti_wire *wire)
{
    wire_tcp *self = tutti_tcp_from(wire);
    tutti_link *first;
    size_t i;

    assert(tutti_list_empty(&self->links));
    self->events = NULL;
    end_sources(&self->sources);
    end_sources(&self->strangers);
    see_off(self);
    while ((first = tutti_list_pop(&self->orphans)) != NULL) {
        tutti_tcp_parcel_free(tutti_container_of(first, tutti_wire_parcel, link));
    }
    free_gone(self);
    for (i = 0; i < self->listener_count; i++) {
        tutti_tcp_unwatch(self, &self->listeners[i].watch);
    }
    close_one(self->poller);
    close_one(self->bell);
    close_one(self->alarm);
    explicit_bzero(self, sizeof(*self));
    free(self);
}

static const tutti_wire_ops wire_tcp_ops = {
    .size = sizeof(tutti_wire_ops),
    .address = wire_tcp_address,
    .listen = wire_tcp_listen,
    .connect = tutti_tcp_connect,
    .disconnect = tutti_tcp_disconnect,
    .send = tutti_tcp_send,
    .pull = tutti_tcp_pull,
    .drop = tutti_tcp_drop,
    .progress = wire_tcp_progress,
    .descriptor = wire_tcp_descriptor,
    .arm = wire_tcp_arm,
    .disarm = wire_tcp_disarm,
    .close = wire_tcp_close,
};

const char *
tutti_wire_tcp_describe(tutti_wire *wire, char *ret_text, size_t size)
{
    const tcp_address *own = &tutti_tcp_from(wire)->own;
    tutti_text text = tutti_text_in(ret_text, size);
    char one[80];
    size_t i;

    for (i = 0; i < own->count; i++) {
        tutti_tcp_address_text(&own->targets[i].address, one, sizeof(one));
        tutti_text_add(&text, "%s%s", i > 0 ? ", " : "", one);
    }
    return ret_text;
}

static wire_tcp *
new_wire(void)
{
    wire_tcp *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->base.ops = &wire_tcp_ops;
    tutti_list_init(&self->links);
    tutti_list_init(&self->broken);
    tutti_list_init(&self->leaving);
    tutti_list_init(&self->gone_links);
    tutti_list_init(&self->sources);
    tutti_list_init(&self->strangers);
    tutti_list_init(&self->gone_sources);
    tutti_list_init(&self->orphans);
    self->credit = CREDIT_BYTES;
    arc4random_buf(self->own.token, sizeof(self->own.token));
    self->poller = epoll_create1(EPOLL_CLOEXEC);
    self->bell = epoll_create1(EPOLL_CLOEXEC);
    self->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return self;
}

static tutti_code
hang_bell(wire_tcp *self, tutti_error *err)
{
    struct epoll_event off = {.events = 0};
    struct epoll_event on = {.events = EPOLLIN};

    if (self->poller < 0 || self->bell < 0 || self->alarm < 0 ||
        epoll_ctl(self->bell, EPOLL_CTL_ADD, self->poller, &off) != 0 ||
        epoll_ctl(self->bell, EPOLL_CTL_ADD, self->alarm, &on) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make a poller");
    }
    return TUTTI_OK;
}

tutti_code
tutti_wire_tcp_open(const tutti_wire_tcp_options *options, tutti_wire **ret_wire, tutti_error *err)
{
    wire_tcp *self = new_wire();
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the data plane");
    }
    code = hang_bell(self, err);
    if (code == TUTTI_OK) {
        code = tutti_tcp_listen(self, options, err);
    }
    if (code != TUTTI_OK) {
        wire_tcp_close(&self->base);
        return code;
    }
    self->address_size = tutti_tcp_address_write(&self->own, self->address);
    *ret_wire = &self->base;
    return TUTTI_OK;
}
