/*
 * The self-check of a server: does each listener still answer? See probe.h for why.
 *
 * All on the server's own loop, driven by one timer: off -> asking a target (`descriptor` is
 * open, a look every LOOK_EVERY_NS) -> the next target, or a pause of every_ns. One target at a
 * time, so one descriptor at most. Three silences in a row of one target make it deaf; the
 * process then ends with EXIT_DEAF, so that its supervisor starts a fresh one, unless `on_deaf`
 * is set. A probe that cannot get a descriptor itself is no silence.
 */
#include "rpc/server/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/log.h"
#include "rpc/loop.h"

#define LOOK_EVERY_NS (50 * TUTTI_NS_PER_MS)
/* sysexits.h: an internal error of the software. */
#define EXIT_DEAF 70 /* EX_SOFTWARE */

static void begin_probe(rpc_probe *self);

static void
set_unix(rpc_probe_target *target, const tutti_address *address)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};

    (void)snprintf(path.sun_path, sizeof(path.sun_path), "%.107s", address->path);
    memcpy(&target->address, &path, sizeof(path));
    target->address_size = sizeof(path);
}

/*
 * An address that means "all interfaces" cannot be connected to everywhere, so the loopback
 * address of its family is asked.
 */
static void
aim_home(rpc_probe_target *target)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&target->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&target->address;

    if (target->address.ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY)) {
        v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (target->address.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) {
        v6->sin6_addr = in6addr_loopback;
    }
}

static bool
set_tcp(rpc_probe_target *target, const tutti_address *address)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[8];

    (void)snprintf(port, sizeof(port), "%u", (unsigned)address->port);
    if (getaddrinfo(address->host, port, &hints, &found) != 0) {
        return false;
    }
    memcpy(&target->address, found->ai_addr, found->ai_addrlen);
    target->address_size = found->ai_addrlen;
    freeaddrinfo(found);
    aim_home(target);
    return true;
}

void
rpc_probe_init(rpc_probe *probe, tutti_rpc_loop *loop, const tutti_address *addresses, size_t count)
{
    size_t i;

    probe->loop = loop;
    probe->descriptor = -1;
    probe->count = 0;
    for (i = 0; i < count; i++) {
        rpc_probe_target *target = &probe->targets[probe->count];

        *target = (rpc_probe_target){0};
        (void)snprintf(target->text, sizeof(target->text), "%s", addresses[i].text);
        if (addresses[i].path[0] != '\0') {
            set_unix(target, &addresses[i]);
            probe->count++;
        } else if (set_tcp(target, &addresses[i])) {
            probe->count++;
        }
    }
}

static void
report_deaf(rpc_probe *self, const rpc_probe_target *target)
{
    TUTTI_LOG("rpc/server", ERROR,
              "%s does not answer any more: gRPC stopped accepting there, most likely when the "
              "process was out of descriptors",
              target->text);
    if (self->on_deaf != NULL) {
        self->on_deaf(self->arg);
        return;
    }
    _exit(EXIT_DEAF);
}

/*
 * The target has answered or not: count, and go on with the next one. The timer is started before
 * on_deaf, which may stop the probe.
 */
static void
check_probe(rpc_probe *self, bool heard)
{
    rpc_probe_target *target = &self->targets[self->current];
    const bool round_over = self->current + 1 == self->count;

    (void)close(self->descriptor);
    self->descriptor = -1;
    target->silences = heard ? 0 : target->silences + 1;
    self->current = round_over ? 0 : self->current + 1;
    tutti_rpc_loop_timer_start(self->loop, &self->timer,
                               tutti_clock_add(tutti_clock_ns(), round_over ? self->every_ns : 0));
    if (target->silences == TUTTI_RPC_PROBE_SILENCES) {
        report_deaf(self, target);
    } else if (!heard) {
        TUTTI_LOG("rpc/server", WARN, "%s did not answer within %llu ms", target->text,
                  (unsigned long long)(self->patience_ns / TUTTI_NS_PER_MS));
    }
}

/*
 * End our side of the connection. A TLS server says nothing before the client does, but it
 * answers the end of the stream. Before the connection stands, shutdown fails; the next look
 * tries again.
 */
static void
end_our_side(int descriptor)
{
    (void)shutdown(descriptor, SHUT_WR); /* not connected yet: the next look tries again */
}

/*
 * Anything to be read, the end and errors included, comes from a process that accepted the
 * connection. A connection that only stands in the kernel's backlog is silent, which is just what
 * a deaf listener looks like.
 */
static bool
does_port_answer(int descriptor)
{
    struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
    int number = 0;
    socklen_t size = sizeof(number);

    if (poll(&wanted, 1, 0) <= 0) {
        return false;
    }
    (void)getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &number, &size);
    return number != ECONNREFUSED && number != ETIMEDOUT;
}

static void
on_timer(tutti_timer *timer)
{
    rpc_probe *self = tutti_container_of(timer, rpc_probe, timer);
    const uint64_t now = tutti_clock_ns();

    if (self->descriptor >= 0) {
        end_our_side(self->descriptor);
    }
    if (self->descriptor < 0) {
        begin_probe(self);
    } else if (does_port_answer(self->descriptor)) {
        check_probe(self, true);
    } else if (now >= self->give_up_ns) {
        check_probe(self, false);
    } else {
        tutti_rpc_loop_timer_start(self->loop, &self->timer, tutti_clock_add(now, LOOK_EVERY_NS));
    }
}

static void
begin_probe(rpc_probe *self)
{
    const rpc_probe_target *target = &self->targets[self->current];
    const uint64_t now = tutti_clock_ns();
    const int family = target->address.ss_family;

    self->descriptor = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (self->descriptor < 0) {
        /* Out of descriptors: this says nothing about the listener yet, but soon it may. */
        TUTTI_LOG("rpc/server", WARN, "could not check whether %s still answers: %s", target->text,
                  strerror(errno));
        tutti_rpc_loop_timer_start(self->loop, &self->timer, tutti_clock_add(now, self->every_ns));
        return;
    }
    if (connect(self->descriptor, (const struct sockaddr *)&target->address,
                target->address_size) == 0) {
        end_our_side(self->descriptor);
        /* EAGAIN: the backlog of a Unix socket is full, which may pass. */
    } else if (errno != EINPROGRESS && errno != EAGAIN) {
        check_probe(self, false);
        return;
    }
    self->give_up_ns = tutti_clock_add(now, self->patience_ns);
    tutti_rpc_loop_timer_start(self->loop, &self->timer, tutti_clock_add(now, LOOK_EVERY_NS));
}

void
rpc_probe_start(rpc_probe *probe, uint64_t every_ns)
{
    if (every_ns == 0 || probe->count == 0) {
        return;
    }
    probe->every_ns = every_ns;
    probe->patience_ns =
        every_ns < TUTTI_RPC_PROBE_PATIENCE_NS ? every_ns : TUTTI_RPC_PROBE_PATIENCE_NS;
    probe->timer.on_expiry = on_timer;
    tutti_rpc_loop_timer_start(probe->loop, &probe->timer,
                               tutti_clock_add(tutti_clock_ns(), every_ns));
}

void
rpc_probe_stop(rpc_probe *probe)
{
    if (probe->timer.running) {
        tutti_rpc_loop_timer_stop(probe->loop, &probe->timer);
    }
    if (probe->descriptor >= 0) {
        (void)close(probe->descriptor);
        probe->descriptor = -1;
    }
}
