/*
 * The loop of the TCP transport: its turn, its sleep, its opening and closing. Engine's thread,
 * except open.
 *
 * Two epoll sets. `poller` holds all sockets and is read by progress. `doorbell`, which the
 * engine's thread sleeps on, holds the poller and the alarm. While a poster runs the engine, or in
 * the first millisecond of idleness, the poller is switched off in the doorbell: what comes is
 * found by the thread that looks, and the sleeping one is not woken for it
 * (docs/decisions/0023-own-tcp.md).
 *
 * Nothing is freed by a handler: links and sources that end inside a turn go to gone_links and
 * gone_sources, and are freed before the next one. So an event of this turn may be about one that
 * has just ended, but never about freed memory; its descriptor is -1 then.
 */
#include "coll/tcp/tcp.h"

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
#include "coll/tcp/tcp_private.h"

#define EVENTS_MAX 16 /* in a turn */
#define LULL_NS TUTTI_NS_PER_MS
#define LOOK_EVERY_NS (50 * TUTTI_NS_PER_MS)
#define SEE_OFF_NS TUTTI_NS_PER_S
#define CREDIT_BYTES (64ULL << 20) /* that all peers together may send unasked */

static const tutti_transport_ops transport_tcp_ops;

transport_tcp *
tutti_tcp_from(tutti_transport *transport)
{
    assert(transport->ops == &transport_tcp_ops);
    return tutti_container_of(transport, transport_tcp, base);
}

/* ------------------------------------------------------------------------------ the loop */

static void
free_gone(transport_tcp *self)
{
    tutti_list_node *at, *spare;

    tutti_list_each(at, spare, &self->gone_links)
    {
        tutti_tcp_link_free(tutti_container_of(at, tutti_transport_conn, link));
    }
    tutti_list_each(at, spare, &self->gone_sources)
    {
        tutti_tcp_source_free(tutti_container_of(at, tcp_source, link));
    }
}

/* Links that are being made: is the time of an address over? Returns whether there are any left. */
static bool
hurry_links(transport_tcp *self, uint64_t now_ns)
{
    tutti_list_node *at, *spare;
    bool stop_conns = false;

    tutti_list_each(at, spare, &self->links)
    {
        tutti_transport_conn *link = tutti_container_of(at, tutti_transport_conn, link);

        tutti_tcp_link_hurry(link, now_ns);
        stop_conns = stop_conns || link->state == TCP_CONNECTING || link->state == TCP_GREETING;
    }
    return stop_conns;
}

/* Is there one left? */
static bool
hurry_leaving(transport_tcp *self, uint64_t now_ns)
{
    tutti_list_node *at, *spare;

    tutti_list_each(at, spare, &self->leaving)
    {
        tutti_tcp_link_leave(tutti_container_of(at, tutti_transport_conn, link), now_ns);
    }
    return !tutti_list_empty(&self->leaving);
}

/* Strangers and links that are being made or left have a time. Looked at each LOOK_EVERY_NS, and
 * only while `hurry` says that there are any, since the clock and the walk cost. */
static void
stop_conns(transport_tcp *self)
{
    const uint64_t now_ns = tutti_clock_ns();
    tutti_list_node *at, *spare;
    bool leaving;

    if (now_ns < self->look_ns) {
        return;
    }
    self->look_ns = now_ns + LOOK_EVERY_NS;
    tutti_list_each(at, spare, &self->strangers)
    {
        tcp_source *source = tutti_container_of(at, tcp_source, link);

        if (now_ns >= source->patience) {
            tutti_tcp_source_end(source, "no packet came on it");
        }
    }
    tutti_tcp_accept_again(self, now_ns);
    leaving = hurry_leaving(self, now_ns);
    self->hurry = hurry_links(self, now_ns) || leaving || !tutti_list_empty(&self->strangers) ||
                  self->accept_again_ns != 0;
}

/* After the events, not inside of them: on_broken disconnects links and fails ops, which send on
 * others. */
static unsigned
tell_broken(transport_tcp *self)
{
    tutti_list_node *first;
    unsigned did = 0;

    while ((first = tutti_list_pop(&self->broken)) != NULL) {
        tutti_transport_conn *link = tutti_container_of(first, tutti_transport_conn, broken);

        self->events->on_broken(self->arg, link->owner, link->why);
        did++;
    }
    return did;
}

static unsigned
transport_tcp_progress(tutti_transport *transport)
{
    transport_tcp *self = tutti_tcp_from(transport);
    struct epoll_event events[EVENTS_MAX];
    int count, i;

    free_gone(self);
    count = epoll_wait(self->poller, events, EVENTS_MAX, 0);
    for (i = 0; i < count; i++) {
        tcp_watch *watch = events[i].data.ptr;

        if (watch->fd >= 0) {
            watch->on_ready(watch, events[i].events);
        }
    }
    if (self->hurry) {
        stop_conns(self);
    }
    return tell_broken(self) + (count > 0 ? (unsigned)count : 0);
}

static int
transport_tcp_descriptor(tutti_transport *transport)
{
    return tutti_tcp_from(transport)->doorbell;
}

/*
 * Level-triggered: when it is switched on and something is ready already, it rings at once, so
 * nothing is lost that came while it was off. False: the call failed, and the caller must not
 * sleep.
 */
static bool
set_doorbell(transport_tcp *self, bool armed)
{
    struct epoll_event event = {.events = armed ? EPOLLIN : 0U};

    if (self->armed != armed &&
        epoll_ctl(self->doorbell, EPOLL_CTL_MOD, self->poller, &event) == 0) {
        self->armed = armed;
    }
    return self->armed == armed;
}

/*
 * It rings when LULL_NS have passed since the last op. A system call for each op would cost a tenth
 * of a small one, so an alarm that is set stays: when it rings too early, it is set for the rest.
 */
static void
set_alarm(transport_tcp *self, uint64_t now_ns)
{
    const uint64_t rest_ns = self->lull_end_ns - now_ns;
    const struct itimerspec lull = {.it_value.tv_nsec = (long)rest_ns};

    self->alarm_set = timerfd_settime(self->alarm, 0, &lull, NULL) == 0;
    self->alarm_ns = self->lull_end_ns;
}

/* If it has rung it is quiet now. */
static void
take_alarm(transport_tcp *self, uint64_t now_ns)
{
    uint64_t times;

    if (self->alarm_set && now_ns >= self->alarm_ns &&
        read(self->alarm, &times, sizeof(times)) == (ssize_t)sizeof(times)) {
        self->alarm_set = false;
    }
}

/*
 * Between two ops that follow each other, what peers send for the next one would wake a thread for
 * nothing: the thread that posts that op looks by itself. So in the first LULL_NS of idleness only
 * the alarm rings; then the poller is switched on. What is not patient (an abort) waits a
 * millisecond at most.
 */
static bool
is_lull(transport_tcp *self, bool idle)
{
    const uint64_t now_ns = tutti_clock_ns();

    take_alarm(self, now_ns); /* or it rings on while an op runs */
    self->stirred = self->stirred || !idle;
    if (idle && self->stirred) {
        self->lull_end_ns = now_ns + LULL_NS;
        self->stirred = false;
    }
    if (idle && !self->alarm_set && now_ns < self->lull_end_ns) {
        set_alarm(self, now_ns);
    }
    return idle && self->alarm_set && set_doorbell(self, false);
}

/* Nothing is lost between this look and the sleep: the poller stays readable as long as something
 * is to be done. Broken links are work too: they have no descriptor any more. */
static bool
transport_tcp_arm(tutti_transport *transport, bool idle)
{
    transport_tcp *self = tutti_tcp_from(transport);
    struct epoll_event event;

    if (!tutti_list_empty(&self->broken) || epoll_wait(self->poller, &event, 1, 0) != 0) {
        return false;
    }
    return is_lull(self, idle) || set_doorbell(self, true);
}

static void
transport_tcp_disarm(tutti_transport *transport)
{
    transport_tcp *self = tutti_tcp_from(transport);

    self->stirred = true;
    (void)set_doorbell(self, false);
}

static tutti_bytes
transport_tcp_address(tutti_transport *transport)
{
    const transport_tcp *self = tutti_tcp_from(transport);

    return (tutti_bytes){self->address, self->address_size};
}

static void
transport_tcp_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    transport_tcp *self = tutti_tcp_from(transport);

    self->events = events;
    self->arg = arg;
}

/* ------------------------------------------------------------------------------ its life */

static void
end_sources(tutti_list_node *sources)
{
    tutti_list_node *at, *spare;

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

/* What was sent before a connection was left, such as the aborts of a stopping agent, gets
 * SEE_OFF_NS to arrive. This blocks; the engine ends, so nobody waits for it. */
static void
see_off(transport_tcp *self)
{
    const uint64_t until = tutti_clock_ns() + SEE_OFF_NS;
    const struct timespec poll_timeout = {.tv_nsec = (long)TUTTI_NS_PER_MS};

    while (hurry_leaving(self, tutti_clock_ns()) && tutti_clock_ns() < until) {
        (void)nanosleep(&poll_timeout, NULL);
    }
    (void)hurry_leaving(self, UINT64_MAX);
}

/*
 * events is NULL from here on: nothing is handed to the engine any more. All links are disconnected
 * (transport.h); rndvs that nobody asked for are the transport's to free. The token is wiped: it
 * lets its holder connect.
 */
static void
transport_tcp_close(tutti_transport *transport)
{
    transport_tcp *self = tutti_tcp_from(transport);
    tutti_list_node *first;
    size_t i;

    assert(tutti_list_empty(&self->links));
    self->events = NULL;
    end_sources(&self->sources);
    end_sources(&self->strangers);
    see_off(self);
    while ((first = tutti_list_pop(&self->orphans)) != NULL) {
        tutti_tcp_rndv_free(tutti_container_of(first, tutti_transport_rndv, link));
    }
    free_gone(self);
    for (i = 0; i < self->listener_count; i++) {
        tutti_tcp_unwatch(self, &self->listeners[i].watch);
    }
    close_one(self->poller);
    close_one(self->doorbell);
    close_one(self->alarm);
    explicit_bzero(self, sizeof(*self));
    free(self);
}

static const tutti_transport_ops transport_tcp_ops = {
    .size = sizeof(tutti_transport_ops),
    .address = transport_tcp_address,
    .listen = transport_tcp_listen,
    .connect = tutti_tcp_connect,
    .disconnect = tutti_tcp_disconnect,
    .send = tutti_tcp_send,
    .fetch = tutti_tcp_fetch,
    .drop = tutti_tcp_drop,
    .progress = transport_tcp_progress,
    .descriptor = transport_tcp_descriptor,
    .arm = transport_tcp_arm,
    .disarm = transport_tcp_disarm,
    .close = transport_tcp_close,
};

const char *
tutti_transport_tcp_describe(tutti_transport *transport, char *ret_text, size_t size)
{
    const tcp_address *own = &tutti_tcp_from(transport)->own;
    tutti_text text = tutti_text_in(ret_text, size);
    char one[80];
    size_t i;

    for (i = 0; i < own->count; i++) {
        tutti_tcp_address_text(&own->targets[i].address, one, sizeof(one));
        tutti_text_add(&text, "%s%s", i > 0 ? ", " : "", one);
    }
    return ret_text;
}

static transport_tcp *
new_transport(void)
{
    transport_tcp *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->base.ops = &transport_tcp_ops;
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
    self->doorbell = epoll_create1(EPOLL_CLOEXEC);
    self->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return self;
}

static tutti_code
hang_doorbell(transport_tcp *self, tutti_error *err)
{
    struct epoll_event off = {.events = 0};
    struct epoll_event on = {.events = EPOLLIN};

    if (self->poller < 0 || self->doorbell < 0 || self->alarm < 0 ||
        epoll_ctl(self->doorbell, EPOLL_CTL_ADD, self->poller, &off) != 0 ||
        epoll_ctl(self->doorbell, EPOLL_CTL_ADD, self->alarm, &on) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make a poller");
    }
    return TUTTI_OK;
}

tutti_code
tutti_transport_tcp_open(const tutti_transport_tcp_options *options,
                         tutti_transport **ret_transport, tutti_error *err)
{
    transport_tcp *self = new_transport();
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the data plane");
    }
    code = hang_doorbell(self, err);
    if (code == TUTTI_OK) {
        code = tutti_tcp_listen(self, options, err);
    }
    if (code != TUTTI_OK) {
        transport_tcp_close(&self->base);
        return code;
    }
    self->address_size = tutti_tcp_address_write(&self->own, self->address);
    *ret_transport = &self->base;
    return TUTTI_OK;
}
