/*
 * Sockets: the poller, what is asked of a connection, and where we listen. Engine's thread, except
 * tutti_tcp_listen, which runs inside open.
 *
 * Running out of descriptors must not end the process or spin: the listener leaves the poller and
 * is tried again each second.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/tcp/tcp_private.h"

#define BACKLOG 1024   /* all ranks of a job may come at once */
#define ACCEPTS_MAX 16 /* in a turn */
#define ACCEPT_AGAIN_NS TUTTI_NS_PER_S

/* A host that fell silent: an idle connection is given up after a minute, one with data too. */
#define KEEP_IDLE_S 20
#define KEEP_INTERVAL_S 10
#define KEEP_COUNT 4
#define SILENCE_MS 60000

/* watch->events remembers what the poller has, so a change that is none costs no system call. Also
 * for a closed one: false. */
bool
tutti_tcp_watch(transport_tcp *transport, tcp_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    const int how = watch->events != 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (watch->fd < 0 || watch->events == events) {
        return watch->fd >= 0;
    }
    if (epoll_ctl(transport->poller, how, watch->fd, &event) != 0) {
        return false;
    }
    watch->events = events;
    return true;
}

void
tutti_tcp_unwatch(transport_tcp *transport, tcp_watch *watch)
{
    if (watch->fd < 0) {
        return;
    }
    if (watch->events != 0) {
        (void)epoll_ctl(transport->poller, EPOLL_CTL_DEL, watch->fd, NULL);
    }
    (void)close(watch->fd);
    watch->fd = -1;
    watch->events = 0;
}

static bool
set_congestion(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

void
tutti_tcp_tune(const transport_tcp *transport, int fd)
{
    static const struct {
        int level, name, value;
    } wanted[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS},
    };
    size_t i;

    for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) { /* better without than not at all */
        (void)setsockopt(fd, wanted[i].level, wanted[i].name, &wanted[i].value,
                         sizeof(wanted[i].value));
    }
    if (transport->congestion[0] != '\0') {
        (void)set_congestion(fd, transport->congestion);
    }
}

/* What this system has, in words; "" = it does not say. */
static const char *
known_congestions(char *ret_text, size_t size)
{
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");
    size_t got = file != NULL ? fread(ret_text, 1, size - 1, file) : 0;

    if (file != NULL) {
        (void)fclose(file);
    }
    ret_text[got] = '\0';
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return ret_text;
}

/* Only a BBR is replaced: its pacing by timers keeps fast networks from carrying what they can
 * (docs/decisions/0023-own-tcp.md). Any other choice of the system is its administrator's. */
static const char *
better_congestion(int fd)
{
    char name[16] = "";
    socklen_t size = sizeof(name) - 1;

    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0 ||
        strncmp(name, "bbr", 3) != 0) {
        return NULL;
    }
    return set_congestion(fd, "cubic") ? "cubic" : set_congestion(fd, "reno") ? "reno" : NULL;
}

static tutti_code
choose_congestion(transport_tcp *transport, const char *wanted, tutti_error *err)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *name = wanted[0] != '\0' ? wanted : NULL;
    tutti_code code = TUTTI_OK;
    char known[128];

    if (fd < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make a socket");
    }
    if (name == NULL) {
        name = better_congestion(fd);
    } else if (strlen(name) >= sizeof(transport->congestion) || !set_congestion(fd, name)) {
        code = TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_OPTION",
                              "no congestion control %s for this process; the kernel has: %s", name,
                              known_congestions(known, sizeof(known)));
    }
    if (code == TUTTI_OK && name != NULL) {
        (void)snprintf(transport->congestion, sizeof(transport->congestion), "%s", name);
    }
    (void)close(fd);
    return code;
}

/* ------------------------------------------------------------------------------ those who call */

/* A listener with a waiting connection that cannot be accepted stays readable: left in the poller,
 * it would keep the engine from ever sleeping. */
static void
run_out(tcp_listener *listener, uint64_t now_ns)
{
    transport_tcp *transport = listener->transport;

    TUTTI_LOG("coll/tcp", WARN,
              "no descriptor is left for a connection of a rank: trying again each second; raise "
              "the limit (ulimit -n)");
    transport->accept_again_ns = now_ns + ACCEPT_AGAIN_NS;
    transport->hurry = true;
    (void)epoll_ctl(transport->poller, EPOLL_CTL_DEL, listener->watch.fd, NULL);
    listener->watch.events = 0;
}

static void
on_call(tcp_watch *watch, uint32_t events)
{
    tcp_listener *listener = tutti_container_of(watch, tcp_listener, watch);
    const uint64_t now_ns = tutti_clock_ns();
    unsigned i;

    (void)events;
    for (i = 0; i < ACCEPTS_MAX; i++) {
        const int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            tutti_tcp_source_new(listener->transport, fd, now_ns);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            run_out(listener, now_ns);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

void
tutti_tcp_accept_again(transport_tcp *transport, uint64_t now_ns)
{
    size_t i;

    if (transport->accept_again_ns == 0 || now_ns < transport->accept_again_ns) {
        return;
    }
    transport->accept_again_ns = 0;
    for (i = 0; i < transport->listener_count; i++) {
        (void)tutti_tcp_watch(transport, &transport->listeners[i].watch, EPOLLIN);
    }
}

/* ------------------------------------------------------------------------------ where we listen */

/* SO_REUSEADDR: an agent that is started again need not wait for old connections of its port. One
 * IPv6 socket takes IPv4 too. */
static int
listen_at(const struct sockaddr_storage *address)
{
    const int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1, both = 0;
    int number;

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->ss_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both));
    }
    if (bind(fd, (const struct sockaddr *)address, tutti_tcp_address_size(address)) == 0 &&
        listen(fd, BACKLOG) == 0) {
        return fd;
    }
    number = errno;
    (void)close(fd);
    errno = number;
    return -1;
}

static bool
add_listener(transport_tcp *transport, const struct sockaddr_storage *at, uint16_t *ret_port)
{
    tcp_listener *listener = &transport->listeners[transport->listener_count];
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof(bound);

    listener->transport = transport;
    listener->watch.on_ready = on_call;
    listener->watch.fd = listen_at(at);
    if (listener->watch.fd < 0) {
        return false;
    }
    if (!tutti_tcp_watch(transport, &listener->watch, EPOLLIN)) {
        const int number = errno;

        tutti_tcp_unwatch(transport, &listener->watch);
        errno = number;
        return false;
    }
    transport->listener_count++;
    (void)getsockname(listener->watch.fd, (struct sockaddr *)&bound, &size);
    *ret_port = tutti_tcp_port(&bound);
    return true;
}

static tutti_code
refuse_socket(const struct sockaddr_storage *at, tutti_error *err)
{
    char text[80];
    const int number = errno;
    tutti_code code;

    tutti_tcp_address_text(at, text, sizeof(text));
    code = TUTTI_FAIL_ERRNO(err, number, "the data plane could not listen on %s", text);
    if (err != NULL && (number == EADDRINUSE || number == EADDRNOTAVAIL || number == EACCES)) {
        err->code = TUTTI_FAILED_PRECONDITION;
    }
    return code == TUTTI_OK || err == NULL ? code : err->code;
}

/* One socket for all addresses, of either family. */
static tutti_code
listen_everywhere(transport_tcp *transport, uint16_t port, tutti_error *err)
{
    struct sockaddr_storage any = {.ss_family = AF_INET6};
    uint16_t bound = 0;
    size_t i;

    tutti_tcp_set_port(&any, port);
    if (!add_listener(transport, &any, &bound)) { /* a kernel without IPv6 */
        any = (struct sockaddr_storage){.ss_family = AF_INET};
        tutti_tcp_set_port(&any, port);
        if (!add_listener(transport, &any, &bound)) {
            return refuse_socket(&any, err);
        }
    }
    for (i = 0; i < transport->own.count; i++) {
        tutti_tcp_set_port(&transport->own.targets[i].address, bound);
    }
    return TUTTI_OK;
}

/* At a port like the others', or where any will do at another one. */
static bool
listen_one(transport_tcp *transport, struct sockaddr_storage *at, uint16_t wanted, bool any)
{
    uint16_t bound = 0;
    bool ok;

    tutti_tcp_set_port(at, wanted);
    ok = add_listener(transport, at, &bound);
    if (!ok && any && wanted != 0 && errno == EADDRINUSE) {
        tutti_tcp_set_port(at, 0);
        ok = add_listener(transport, at, &bound);
    }
    if (ok) {
        tutti_tcp_set_port(at, bound);
    }
    return ok;
}

/* A socket for each address, so nothing listens on interfaces that were not named. An IPv6 address
 * that is not ready yet, or never, is left out. */
static tutti_code
listen_there(transport_tcp *transport, uint16_t port, tutti_error *err)
{
    tcp_address *own = &transport->own;
    uint16_t wanted = port;
    size_t i = 0;

    while (i < own->count) {
        struct sockaddr_storage *at = &own->targets[i].address;

        if (listen_one(transport, at, wanted, port == 0)) {
            wanted = tutti_tcp_port(at);
            i++;
        } else if (errno == EADDRNOTAVAIL && own->count > 1) {
            own->targets[i] = own->targets[--own->count];
        } else {
            return refuse_socket(at, err);
        }
    }
    return TUTTI_OK;
}

tutti_code
tutti_tcp_listen(transport_tcp *transport, const tutti_transport_tcp_options *options,
                 tutti_error *err)
{
    const char *devices = options != NULL && options->devices != NULL ? options->devices : "";
    const uint16_t port = options != NULL ? options->port : 0;
    const char *congestion =
        options != NULL && options->congestion != NULL ? options->congestion : "";

    TUTTI_TRY(tutti_tcp_find_own(devices, &transport->own, err));
    TUTTI_TRY(choose_congestion(transport, congestion, err));
    return devices[0] == '\0' ? listen_everywhere(transport, port, err)
                              : listen_there(transport, port, err);
}
