/*
 * Which server a channel calls, of several of which one leads.
 *
 * A move makes a new channel of gRPC, which has no backoff from earlier attempts; the one before is
 * kept until the next move, since streams may still wait for its connection. Several calls may fail
 * for one reason at the same time: only those that began after the last move may cause another.
 *
 * A name may stand for several servers. At first gRPC takes the first one that it can connect to, so that not all clients
 * have connections to all servers. If that one is left, calls to the name go to all in turns (round_robin), of
 * which a server that accepts connections and then says nothing is none: a connection counts when the server has
 * said something on it.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/follow.h"

/* As long as others may take a silent leader for one that leads. */
#define LEFT_NS (3 * TUTTI_NS_PER_S)

tutti_code
rpc_channel_targets_open(tutti_rpc_channel *channel, const char *target, bool follow,
                         tutti_error *err)
{
    tutti_address list[TUTTI_ADDRESSES_MAX];
    size_t count = 1;

    if (follow) {
        TUTTI_TRY(tutti_address_parse_list(target, list, &count, err));
    } else {
        TUTTI_TRY(tutti_address_parse(target, &list[0], err));
    }
    channel->targets = calloc(count + (follow ? TUTTI_RPC_TOLD_MAX : 0), sizeof(list[0]));
    if (channel->targets == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a channel");
    }
    memcpy(channel->targets, list, count * sizeof(list[0]));
    channel->target_count = count;
    channel->address = &channel->targets[0];
    return TUTTI_OK;
}

/* Is it a name of DNS, which may stand for several servers? */
static bool
is_name(const tutti_address *address)
{
    unsigned char number[sizeof(struct in6_addr)];

    return address->path[0] == '\0' && inet_pton(AF_INET, address->host, number) != 1 &&
           inet_pton(AF_INET6, address->host, number) != 1;
}

/*
 * Servers behind one name have no names of their own that a certificate could have: a number that one of them
 * has told stands for that name. Who told it was a server of the name by its certificate.
 */
const char *
rpc_channel_certified_name(const tutti_rpc_channel *channel)
{
    const tutti_address *address = channel->address;

    if (rpc_is_given(channel->options.tls_name)) {
        return channel->options.tls_name;
    }
    if (channel->target_count > 1 || address < channel->targets + channel->target_count ||
        is_name(address) || !is_name(&channel->targets[0])) {
        return NULL;
    }
    return channel->targets[0].host;
}

void
tutti_rpc_channel_expect_others(tutti_rpc_channel *channel, const char *leader)
{
    if (channel->options.follow) {
        (void)pthread_mutex_lock(&channel->lock);
        (void)snprintf(channel->leader, sizeof(channel->leader), "%s", leader);
        (void)pthread_mutex_unlock(&channel->lock);
        atomic_store(&channel->others, true);
    }
}

bool
tutti_rpc_channel_has_others(const tutti_rpc_channel *channel)
{
    return rpc_channel_has_others(channel);
}

/* With the lock held. What the server's answer told need not be in the list: behind a name there may
 * be several. Where a token would travel in plaintext it is not followed. */
static const tutti_address *
find_told(tutti_rpc_channel *self, const char *text)
{
    const size_t known = self->told < TUTTI_RPC_TOLD_MAX ? self->told : TUTTI_RPC_TOLD_MAX;
    tutti_address told;
    size_t i;

    if (text[0] == '\0' || tutti_address_parse(text, &told, NULL) != TUTTI_OK) {
        return NULL;
    }
    for (i = 0; i < self->target_count + known; i++) {
        if (strcmp(self->targets[i].text, told.text) == 0) {
            return &self->targets[i];
        }
    }
    if (told.path[0] != '\0' || (self->secrets.metadata_count > 0 && !self->secrets.tls &&
                                 !tutti_address_is_local(&told))) {
        return NULL;
    }
    i = self->target_count + self->told++ % TUTTI_RPC_TOLD_MAX;
    self->targets[i] = told;
    return &self->targets[i];
}

/* With the lock held: the next of the list. Behind a told one it is the first. */
static const tutti_address *
find_next(const tutti_rpc_channel *self)
{
    const size_t at = (size_t)(self->address - self->targets);

    return &self->targets[at + 1 < self->target_count ? at + 1 : 0];
}

/* With the lock held. */
static void
move_to(tutti_rpc_channel *self, const tutti_address *to)
{
    const tutti_address *from = self->address;
    const bool spread = self->spread;
    grpc_channel *fresh = NULL;
    tutti_error err;

    self->address = to;
    self->spread = is_name(to);
    self->leader[0] = '\0';
    if (rpc_channel_make(self, &fresh, &err) != TUTTI_OK) {
        TUTTI_LOG("rpc/channel", WARN, "could not go on to %s: %s", to->text, err.text);
        self->address = from;
        self->spread = spread;
        return;
    }
    rpc_connections_replace(self, fresh);
    atomic_fetch_add(&self->moves, 1);
}

/* With the lock held. */
static void
leave_for_a_while(tutti_rpc_channel *self)
{
    const tutti_address *address = self->address;
    const char *name = self->leader[0] != '\0' ? self->leader : address->text;

    (void)snprintf(self->left, sizeof(self->left), "%s", name);
    self->left_until_ns = tutti_clock_add(tutti_clock_ns(), LEFT_NS);
}

/* With the lock held: told by a server that has not heard yet that this one is silent? */
static bool
was_left(const tutti_rpc_channel *self, const tutti_address *told)
{
    return strcmp(told->text, self->left) == 0 && tutti_clock_ns() < self->left_until_ns;
}

void
tutti_rpc_channel_move_on(tutti_rpc_channel *channel)
{
    if (channel->options.follow) {
        (void)pthread_mutex_lock(&channel->lock);
        leave_for_a_while(channel);
        move_to(channel, find_next(channel));
        (void)pthread_mutex_unlock(&channel->lock);
    }
}

/* With the lock held: a new channel of gRPC to the same target. */
static void
make_anew(tutti_rpc_channel *self)
{
    grpc_channel *fresh = NULL;

    if (rpc_channel_make(self, &fresh, NULL) == TUTTI_OK) {
        rpc_connections_replace(self, fresh);
    }
}

/* The old channel of gRPC fails calls at once between its attempts. */
void
tutti_rpc_channel_try_now(tutti_rpc_channel *channel)
{
    if (channel->options.follow) {
        (void)pthread_mutex_lock(&channel->lock);
        make_anew(channel);
        (void)pthread_mutex_unlock(&channel->lock);
    }
}

static bool
is_reason(const tutti_error *err, const char *reason)
{
    return strcmp(err->reason, reason) == 0;
}

bool
tutti_rpc_was_elsewhere(const tutti_error *err)
{
    return is_reason(err, "NOT_LEADER") || is_reason(err, "UNREACHABLE");
}

/* A deadline that the server itself has told is about the call, not about the server. */
static bool
is_gone(const tutti_error *err, bool from_peer)
{
    return is_reason(err, "UNREACHABLE") || is_reason(err, "CONNECTION_LOST") ||
           is_reason(err, "DRAINING") ||
           (!from_peer && (err->code == TUTTI_UNAVAILABLE || err->code == TUTTI_DEADLINE_EXCEEDED));
}

/* With the lock held: does the present target stand for several? */
static bool
has_more(const tutti_rpc_channel *self)
{
    return rpc_channel_has_others(self) && is_name(self->address);
}

void
rpc_channel_follow(tutti_rpc_channel *channel, const tutti_error *err, bool from_peer, size_t moves)
{
    const bool leads_not = err->code == TUTTI_UNAVAILABLE && is_reason(err, "NOT_LEADER");

    if (!channel->options.follow || (!leads_not && !is_gone(err, from_peer))) {
        return;
    }
    (void)pthread_mutex_lock(&channel->lock);
    if (atomic_load(&channel->moves) == moves) {
        const tutti_address *told = leads_not ? find_told(channel, err->group) : NULL;

        told = told != NULL && told != channel->address && !was_left(channel, told)
                   ? told
                   : find_next(channel);
        if (told != channel->address || (!leads_not && has_more(channel))) {
            move_to(channel, told);
        } else if (!leads_not && !channel->spread && is_name(channel->address)) {
            channel->spread = true; /* once: there may be others, of which nobody has told */
            make_anew(channel);
        } /* else there is only one: gRPC connects to it again */
    }
    (void)pthread_mutex_unlock(&channel->lock);
}
