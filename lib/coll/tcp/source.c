/*
 * Incoming: connections that peers make, and what we answer on them. Engine's thread.
 *
 * A source is a stranger until it has said our token, within STRANGER_NS; strangers are few
 * (STRANGERS_MAX, the oldest goes), and nothing but their hello is read. Then it is known and has
 * its part of the credit, which is given back when it ends.
 *
 * Its end: the descriptor is closed at once, rndvs that are being pulled fail, and rndvs that
 * nobody has asked for become orphans: the engine still holds them, and asking for one fails. The
 * source itself is freed before the next turn.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/tcp/tcp_private.h"

#define STRANGERS_MAX 256 /* connections that have not said the token; the oldest goes first */
#define STRANGER_NS (10 * TUTTI_NS_PER_S)
#define OUT_MAX (1U << 20)
#define OUT_ENOUGH (64U << 10) /* with so much unread by the peer we read no more of its words */

/* ------------------------------------------------------------------------------ its life */

static void
on_ready(tcp_watch *watch, uint32_t events)
{
    tcp_source *source = tutti_container_of(watch, tcp_source, watch);

    if ((events & EPOLLOUT) != 0) {
        tutti_tcp_source_answer(source);
    }
    if (watch->fd >= 0 && (events & ~(uint32_t)EPOLLOUT) != 0) {
        tutti_tcp_source_hear(source);
    }
}

static tcp_source *
new_source(transport_tcp *transport, int fd, uint64_t now_ns)
{
    tcp_source *source = calloc(1, sizeof(*source));

    if (source == NULL) {
        return NULL;
    }
    source->transport = transport;
    source->watch = (tcp_watch){.fd = fd, .on_ready = on_ready};
    source->patience = now_ns + STRANGER_NS;
    tutti_list_init(&source->offers);
    tutti_list_init(&source->coming);
    tutti_buf_init(&source->out, OUT_MAX);
    if (!tutti_tcp_watch(transport, &source->watch, EPOLLIN)) {
        free(source);
        return NULL;
    }
    return source;
}

/* The descriptor is ours from now on, also if there is no memory. */
void
tutti_tcp_source_new(transport_tcp *transport, int fd, uint64_t now_ns)
{
    tcp_source *source;

    tutti_tcp_tune(transport, fd);
    if (transport->stranger_count >= STRANGERS_MAX) {
        tutti_tcp_source_end(tutti_container_of(transport->strangers.next, tcp_source, link),
                             "too many connections on which no packet has come");
    }
    source = new_source(transport, fd, now_ns);
    if (source == NULL) {
        tutti_tcp_unwatch(transport, &(tcp_watch){.fd = fd});
        return;
    }
    tutti_list_add(&transport->strangers, &source->link);
    transport->stranger_count++;
    transport->hurry = true;
}

/* The credit bounds what all peers together can make us keep: when it is used up, further peers get
 * 0 and offer all that is large. */
bool
tutti_tcp_source_know(tcp_source *source)
{
    transport_tcp *transport = source->transport;

    source->credit = transport->credit < TCP_CREDIT_MAX ? transport->credit : TCP_CREDIT_MAX;
    transport->credit -= source->credit;
    source->known = true;
    transport->stranger_count--;
    tutti_list_remove(&source->link);
    tutti_list_add(&transport->sources, &source->link);
    return tutti_tcp_source_say(source, TCP_WELCOME, TCP_VERSION, source->credit);
}

/* They are the engine's until it pulls or drops them. */
static void
drop_source_conn(tcp_source *source)
{
    tutti_list_node *at, *spare;

    tutti_list_each(at, spare, &source->offers)
    {
        tutti_container_of(at, tutti_transport_rndv, link)->source = NULL;
    }
    tutti_list_splice(&source->transport->orphans, &source->offers);
}

/* Harmless twice. The callbacks at the end may post; they find the source closed. */
void
tutti_tcp_source_end(tcp_source *source, const char *why)
{
    transport_tcp *transport = source->transport;
    tutti_list_node *first;

    if (source->watch.fd < 0) {
        return;
    }
    if (why != NULL) {
        TUTTI_LOG("coll/tcp", DEBUG, "closed a connection: %s", why);
    }
    tutti_tcp_unwatch(transport, &source->watch);
    transport->stranger_count -= !source->known;
    transport->credit += source->credit;
    tutti_list_remove(&source->link);
    tutti_list_add(&transport->gone_sources, &source->link);
    source->body = NULL;
    drop_source_conn(source);
    while ((first = tutti_list_pop(&source->coming)) != NULL) {
        tutti_tcp_rndv_end(tutti_container_of(first, tutti_transport_rndv, link), false);
    }
}

void
tutti_tcp_source_free(tcp_source *source)
{
    tutti_list_remove(&source->link);
    tutti_buf_fini(&source->out);
    free(source);
}

/* ------------------------------------------------------------------------------ what we say */

/* It ends in a next turn, which finds the socket closed: this may be inside of a call of the engine
 * that holds a rndv of it. */
static void
hang_up_later(tcp_source *source)
{
    (void)shutdown(source->watch.fd, SHUT_RDWR);
    source->out.size = 0;
}

/* A peer that does not read its answers must not fill our memory: from OUT_ENOUGH on we read
 * nothing more of it, so it cannot ask for more either. OUT_MAX is the bound of the buffer. */
void
tutti_tcp_source_answer(tcp_source *source)
{
    tutti_buf *out = &source->out;
    const ssize_t wrote = send(source->watch.fd, out->data, out->size, MSG_NOSIGNAL);

    if (wrote < 0 && errno != EAGAIN && errno != EINTR) {
        hang_up_later(source);
        return;
    }
    out->size -= wrote > 0 ? (size_t)wrote : 0;
    memmove(out->data, out->data + (wrote > 0 ? wrote : 0), out->size);
    if (!tutti_tcp_watch(source->transport, &source->watch,
                         (out->size < OUT_ENOUGH ? EPOLLIN : 0U) |
                             (out->size > 0 ? EPOLLOUT : 0U))) {
        hang_up_later(source);
    }
}

/* Sent at once if nothing waits before it; otherwise with the rest, when there is room. */
bool
tutti_tcp_source_say(tcp_source *source, tcp_kind kind, uint64_t id, uint64_t size)
{
    const bool idle = source->out.size == 0;
    unsigned char bytes[TCP_HEAD_BYTES];

    tutti_tcp_head_write(&(tcp_head){.kind = kind, .id = id, .size = size}, bytes);
    if (tutti_buf_add(&source->out, bytes, sizeof(bytes), NULL) != TUTTI_OK) {
        hang_up_later(source);
        return false;
    }
    if (idle || (source->out.size >= OUT_ENOUGH && (source->watch.events & EPOLLIN) != 0)) {
        tutti_tcp_source_answer(source);
    }
    return true;
}
