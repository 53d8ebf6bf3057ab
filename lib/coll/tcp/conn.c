/*
 * Outgoing: a connection that this process makes, to the first of a peer's addresses that
 * answers; and how it is left. Engine's thread.
 *
 * CONNECTING -> GREETING (hello is sent) -> OPEN (welcome has come) -> BROKEN. From CONNECTING and
 * GREETING it goes back to CONNECTING with the next address; after the last one it is BROKEN.
 * Packets wait in link->packets until it is OPEN.
 *
 * A BROKEN link keeps its sends until the engine, told by on_broken, disconnects it: so tickets
 * come back at one place. A link that was OPEN when it is disconnected may live on in
 * transport->leaving until the peer has all that was written.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/tcp/tcp_private.h"

#define PATIENCE_NS (2 * TUTTI_NS_PER_S) /* with one address while there is another */
#define GREETING_NS (10 * TUTTI_NS_PER_S)
#define LEAVE_NS (60 * TUTTI_NS_PER_S)   /* for a peer to take what was sent before we left */
#define AWAY_MAX 64                      /* reads, in a turn */
#define SHORTAGE_NS (5 * TUTTI_NS_PER_S) /* of descriptors, that costs no connection */
#define DESCRIPTOR_AGAIN_NS (100 * TUTTI_NS_PER_MS)

/* Only noted: on_broken runs at the end of the turn (tell_broken), since this may be called inside
 * of a send. */
void
tutti_tcp_link_break(tutti_transport_conn *link, const char *why)
{
    if (link->state == TCP_BROKEN) {
        return;
    }
    link->state = TCP_BROKEN;
    (void)snprintf(link->why, sizeof(link->why), "%s", why);
    tutti_tcp_unwatch(link->transport, &link->watch);
    tutti_list_add(&link->transport->broken, &link->broken);
}

/* ------------------------------------------------------------------------------ addresses in turn
 */

/* False: this address does not work, errno says why. */
static bool
try_one(tutti_transport_conn *link, const struct sockaddr_storage *address)
{
    const int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int number;

    if (fd < 0) {
        return false;
    }
    tutti_tcp_tune(link->transport, fd);
    link->watch.fd = fd;
    if ((connect(fd, (const struct sockaddr *)address, tutti_tcp_address_size(address)) == 0 ||
         errno == EINPROGRESS) &&
        tutti_tcp_watch(link->transport, &link->watch, EPOLLOUT)) {
        return true;
    }
    number = errno;
    tutti_tcp_unwatch(link->transport, &link->watch);
    errno = number;
    return false;
}

/* Words about the address that was tried last. */
static void
note_tcp_conn(tutti_transport_conn *link, const char *what)
{
    char text[80];

    tutti_tcp_address_text(&link->to.targets[link->next - 1].address, text, sizeof(text));
    (void)snprintf(link->why, sizeof(link->why), "%s: %s", text, what);
    TUTTI_LOG("coll/tcp", DEBUG, "could not connect to %s", link->why);
}

/* For `number` of try_one: the same address again soon, and not too often. */
static bool
wait_for_descriptor(tutti_transport_conn *link, int number)
{
    const uint64_t now_ns = tutti_clock_ns();

    if (number != EMFILE && number != ENFILE) {
        return false;
    }
    if (link->shortage_ns == 0) {
        TUTTI_LOG("coll/tcp", WARN,
                  "no descriptor is left for a connection to a rank: trying again for %d s; raise "
                  "the limit (ulimit -n)",
                  (int)(SHORTAGE_NS / TUTTI_NS_PER_S));
        link->shortage_ns = now_ns + SHORTAGE_NS;
    }
    link->patience = now_ns + DESCRIPTOR_AGAIN_NS;
    return now_ns < link->shortage_ns;
}

/* Each address but the last has a limited time: one that a firewall swallows must not hold up the
 * others. Sends wait meanwhile. */
static void
try_next(tutti_transport_conn *link)
{
    char why[sizeof(link->why)];
    int number;

    tutti_tcp_unwatch(link->transport, &link->watch);
    link->heard_size = 0;
    while (link->next < link->to.count) {
        const tcp_target *target = &link->to.targets[link->next++];

        link->state = TCP_CONNECTING;
        link->patience = link->next < link->to.count ? tutti_clock_ns() + PATIENCE_NS : UINT64_MAX;
        if (try_one(link, &target->address)) {
            return;
        }
        number = errno;
        if (wait_for_descriptor(link, number)) {
            link->next--;
            return;
        }
        note_tcp_conn(link, strerror(number));
    }
    (void)snprintf(why, sizeof(why), "%s", link->why);
    tutti_tcp_link_break(link, why);
}

void
tutti_tcp_link_hurry(tutti_transport_conn *link, uint64_t now_ns)
{
    if ((link->state == TCP_CONNECTING || link->state == TCP_GREETING) &&
        now_ns >= link->patience) {
        if (link->watch.fd >= 0) {
            note_tcp_conn(link, "no answer");
        }
        try_next(link);
    }
}

/* ------------------------------------------------------------------------------ how it is made */

/* The socket has just been made, so its buffer takes the 40 bytes at once; a short write is as good
 * as a failure. A process that answers gets more time for its welcome than a silent address. */
static void
on_connected(tutti_transport_conn *link)
{
    unsigned char hello[TCP_HEAD_BYTES + TCP_TOKEN_BYTES];
    int number = 0;
    socklen_t size = sizeof(number);

    (void)getsockopt(link->watch.fd, SOL_SOCKET, SO_ERROR, &number, &size);
    if (number != 0) {
        note_tcp_conn(link, strerror(number));
        try_next(link);
        return;
    }
    tutti_tcp_head_write(&(tcp_head){.kind = TCP_HELLO, .id = TCP_VERSION, .size = TCP_TOKEN_BYTES},
                         hello);
    memcpy(hello + TCP_HEAD_BYTES, link->to.token, TCP_TOKEN_BYTES);
    if (send(link->watch.fd, hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello) ||
        !tutti_tcp_watch(link->transport, &link->watch, EPOLLIN)) {
        note_tcp_conn(link, strerror(errno));
        try_next(link);
        return;
    }
    link->state = TCP_GREETING;
    if (link->patience != UINT64_MAX) { /* somebody is there: perhaps busy */
        link->patience = tutti_clock_ns() + GREETING_NS;
    }
}

/*
 * Whichever process listens there, only the one of our address knows the token and says welcome. It
 * hangs up on others, and this tries the next address: bridges of containers have the same number
 * on each host.
 */
static void
on_greeted(tutti_transport_conn *link)
{
    const size_t left = TCP_HEAD_BYTES - link->heard_size;
    const ssize_t got = recv(link->watch.fd, link->heard + link->heard_size, left, 0);
    tcp_head head;

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        note_tcp_conn(link, got < 0 ? strerror(errno)
                                    : "it closed the connection: another process listens there");
        try_next(link);
        return;
    }
    link->heard_size += (size_t)got;
    if (link->heard_size < TCP_HEAD_BYTES) {
        return;
    }
    link->heard_size = 0;
    if (!tutti_tcp_head_read(link->heard, &head) || head.kind != TCP_WELCOME ||
        head.id != TCP_VERSION) {
        note_tcp_conn(link, "what answers is not a rank of this version");
        try_next(link);
        return;
    }
    link->state = TCP_OPEN;
    link->credit = head.size;
    tutti_tcp_flush(link);
}

/* BROKEN in the poller: the link is leaving. tutti_tcp_heard may break the link, so the state is
 * looked at again before the flush. */
static void
on_ready(tcp_watch *watch, uint32_t events)
{
    tutti_transport_conn *link = tutti_container_of(watch, tutti_transport_conn, watch);

    switch (link->state) {
    case TCP_CONNECTING:
        on_connected(link);
        break;
    case TCP_GREETING:
        on_greeted(link);
        break;
    case TCP_OPEN:
        if ((events & ~(uint32_t)EPOLLOUT) != 0) {
            tutti_tcp_heard(link);
        }
        if (link->state == TCP_OPEN && (events & EPOLLOUT) != 0) {
            tutti_tcp_flush(link);
        }
        break;
    case TCP_BROKEN:
        tutti_tcp_link_leave(link, tutti_clock_ns());
        break;
    }
}

/* ------------------------------------------------------------------------------ its life */

tutti_code
tutti_tcp_connect(tutti_transport *transport, tutti_bytes address, void *owner,
                  tutti_transport_conn **ret_link, tutti_error *err)
{
    transport_tcp *self = tutti_tcp_from(transport);
    tutti_transport_conn *link = calloc(1, sizeof(*link));

    if (link == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a connection");
    }
    if (!tutti_tcp_address_read(address, &link->to)) {
        free(link);
        return TUTTI_FAIL_FOR(
            err, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
            "its data address is not one of Tutti's TCP: it was started with other "
            "--transports than this rank; give all agents of a job the same");
    }
    tutti_tcp_address_sort(&link->to, &self->own);
    link->transport = self;
    link->owner = owner;
    link->watch = (tcp_watch){.fd = -1, .on_ready = on_ready};
    tutti_list_init(&link->broken);
    tutti_list_init(&link->packets);
    tutti_list_init(&link->offered);
    tutti_list_init(&link->pulled);
    tutti_list_add(&self->links, &link->link);
    self->hurry = true;
    try_next(link);
    *ret_link = link;
    return TUTTI_OK;
}

/* What the peer says is of no use any more. False: it hung up. */
static bool
read_away(tutti_transport_conn *link)
{
    ssize_t got = 1;
    unsigned i;

    for (i = 0; i < AWAY_MAX && got > 0; i++) {
        got = recv(link->watch.fd, link->heard, sizeof(link->heard), 0);
    }
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Is all that was written with the peer's kernel? */
static bool
has_left(const tutti_transport_conn *link)
{
    int waiting = 0;

    return ioctl(link->watch.fd, SIOCOUTQ, &waiting) != 0 || waiting == 0;
}

/* The next turn frees it. */
static void
free_dead_conn(tutti_transport_conn *link)
{
    tutti_tcp_unwatch(link->transport, &link->watch);
    tutti_list_remove(&link->link);
    tutti_list_add(&link->transport->gone_links, &link->link);
}

void
tutti_tcp_link_leave(tutti_transport_conn *link, uint64_t now_ns)
{
    if (!read_away(link) || has_left(link) || now_ns >= link->patience) {
        free_dead_conn(link);
    }
}

/*
 * If a peer says something (credit, say) to a socket that is closed, its answer is a reset, and our
 * kernel throws away what it still had to send. So a socket with unsent bytes is shut down for
 * writing and read until the peer has it all, for LEAVE_NS at most.
 */
static void
leave_tcp_conn(tutti_transport_conn *link)
{
    transport_tcp *transport = link->transport;

    link->patience = tutti_clock_ns() + LEAVE_NS;
    if (read_away(link) && !has_left(link) && shutdown(link->watch.fd, SHUT_WR) == 0 &&
        tutti_tcp_watch(transport, &link->watch, EPOLLIN)) {
        tutti_list_add(&transport->leaving, &link->link);
        transport->hurry = true;
        return;
    }
    free_dead_conn(link);
}

/* The link leaves all lists first; then its tickets come back: their callbacks may connect to the
 * same peer anew. It is freed before the next turn, so events of this turn find it closed. */
void
tutti_tcp_disconnect(tutti_transport_conn *link)
{
    const bool open = link->state == TCP_OPEN;

    link->owner = NULL;
    link->state = TCP_BROKEN;
    tutti_list_remove(&link->broken);
    tutti_list_remove(&link->link);
    if (open) {
        leave_tcp_conn(link);
    } else {
        free_dead_conn(link);
    }
    tutti_tcp_fail_sends(link);
}

void
tutti_tcp_link_free(tutti_transport_conn *link)
{
    tutti_list_remove(&link->link);
    free(link);
}
