/*
 * A transport around a transport, which changes, cuts, doubles, keeps and drops the packets that come, and
 * whose offers are fetched as the input says.
 */
#include "fuzz_coll_meddler.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"

static const tutti_transport_ops *inner_ops; /* of all, as a connection does not say whose it is */
static offers *made;

static meddler *
meddler_of(tutti_transport *transport)
{
    return tutti_container_of(transport, meddler, base);
}

void
meddler_hand_on(meddler *self, const void *header, size_t header_size, const void *data,
                size_t size, tutti_transport_rndv *rndv)
{
    void *own_header = fuzz_copy(header, header_size);
    void *own_data = rndv == NULL ? fuzz_copy(data, size) : NULL;

    self->events->on_packet(self->arg, own_header, header_size, own_data, size, rndv);
    free(own_header);
    free(own_data);
}

static void
keep(meddler *self, const void *header, size_t header_size, const void *data, size_t size)
{
    if (self->held_count < HELD_MAX) {
        self->held[self->held_count++] = (held){.header = fuzz_copy(header, header_size),
                                                .header_size = header_size,
                                                .data = fuzz_copy(data, size),
                                                .size = size};
    }
}

void
meddler_let_go(meddler *self, size_t which)
{
    held one = self->held[which];

    self->held[which] = self->held[--self->held_count];
    meddler_hand_on(self, one.header, one.header_size, one.data, one.size, NULL);
    free(one.header);
    free(one.data);
}

/* Fields are 4 bytes up to the incarnation's, and 8 from the job on; numbers that mean something are small. */
static void
change_header(unsigned char *header, size_t size)
{
    const unsigned place = (unsigned)fuzz_take(1);

    if (place >= 128) {
        header[place % size] ^= (unsigned char)(1U << fuzz_take(1) % 8);
    } else {
        header[place / 4 * 4 % size] = (unsigned char)fuzz_take(1);
    }
}

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    meddler *self = arg;
    const unsigned how = (unsigned)fuzz_take(1);
    unsigned char *changed;
    size_t cut;

    if (how < 128 || (rndv != NULL && how % 8 > 1)) {
        meddler_hand_on(self, header, header_size, data, size, rndv);
        return;
    }
    switch (how % 8) {
    case 0:
    case 1:
        changed = fuzz_copy(header, header_size);
        change_header(changed, header_size);
        meddler_hand_on(self, changed, header_size, data, size, rndv);
        free(changed);
        break;
    case 2:
    case 3:
        changed = fuzz_copy(data, size);
        if (size > 0) {
            changed[fuzz_take(2) % size] = (unsigned char)fuzz_take(1);
        }
        meddler_hand_on(self, header, header_size, changed, size, NULL);
        free(changed);
        break;
    case 4:
        cut = (size_t)fuzz_take(1);
        meddler_hand_on(self, header, header_size, NULL,
                        how % 16 == 4 ? size + cut : size / (cut + 1), NULL);
        break;
    case 5:
        keep(self, header, header_size, data, size);
        meddler_hand_on(self, header, header_size, data, size, NULL);
        break;
    case 6:
        keep(self, header, header_size, data, size);
        break;
    default: /* it is lost */
        break;
    }
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    meddler *self = arg;

    self->events->on_broken(self->arg, owner, why);
}

static const tutti_transport_events inner_events = {on_packet, on_broken};

static offer *
offer_of(tutti_transport_rndv *rndv)
{
    const uintptr_t at = (uintptr_t)rndv - (uintptr_t)made->list;

    return at < sizeof(made->list) ? &made->list[at / sizeof(made->list[0])] : NULL;
}

tutti_transport_rndv *
meddler_offer(meddler *self)
{
    offer *it = made->count < OFFERS_MAX ? &made->list[made->count++] : NULL;

    if (it != NULL) {
        *it = (offer){.out = true, .owner = self};
    }
    return (tutti_transport_rndv *)(void *)it;
}

static tutti_bytes
meddler_address(tutti_transport *transport)
{
    return inner_ops->address(meddler_of(transport)->inner);
}

static void
meddler_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    meddler *self = meddler_of(transport);

    self->events = events;
    self->arg = arg;
    inner_ops->listen(self->inner, &inner_events, self);
}

static tutti_code
meddler_connect(tutti_transport *transport, tutti_bytes address, void *owner,
                tutti_transport_conn **ret_link, tutti_error *err)
{
    if (fuzz_take(1) > 250) {
        return TUTTI_FAIL(err, TUTTI_UNAVAILABLE, "no way today");
    }
    return inner_ops->connect(meddler_of(transport)->inner, address, owner, ret_link, err);
}

static tutti_transport_result
meddler_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest, size_t size,
              tutti_transport_ticket *ticket)
{
    offer *it = offer_of(rndv);
    const unsigned how = (unsigned)fuzz_take(1);
    tutti_transport_result result;

    if (it == NULL) {
        result = inner_ops->fetch(meddler_of(transport)->inner, rndv, dest, size, ticket);
        if (result == TUTTI_TRANSPORT_DONE && how >= 128 && size > 0) {
            ((unsigned char *)dest)[fuzz_take(2) % size] = (unsigned char)how;
        }
        return result;
    }
    fuzz_check(it->out && it->ticket == NULL);
    if (how % 4 == 3) {
        it->ticket = ticket;
        return TUTTI_TRANSPORT_LATER;
    }
    it->out = false;
    memset(dest, (int)how, size);
    return how % 4 == 2 ? TUTTI_TRANSPORT_FAILED : TUTTI_TRANSPORT_DONE;
}

static void
meddler_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    offer *it = offer_of(rndv);

    if (it == NULL) {
        inner_ops->drop(meddler_of(transport)->inner, rndv);
        return;
    }
    fuzz_check(it->out && it->ticket == NULL);
    it->out = false;
}

void
meddler_end_fetch(offer *it, bool ok)
{
    tutti_transport_ticket *ticket = it->ticket;

    if (ticket != NULL) {
        it->ticket = NULL;
        it->out = false;
        ticket->on_done(ticket, ok);
    }
}

static unsigned
meddler_progress(tutti_transport *transport)
{
    return inner_ops->progress(meddler_of(transport)->inner);
}

static int
meddler_descriptor(tutti_transport *transport)
{
    return inner_ops->descriptor(meddler_of(transport)->inner);
}

static bool
meddler_arm(tutti_transport *transport, bool idle)
{
    return inner_ops->arm(meddler_of(transport)->inner, idle);
}

static void
meddler_disarm(tutti_transport *transport)
{
    tutti_transport_disarm(meddler_of(transport)->inner);
}

static void
meddler_close(tutti_transport *transport)
{
    meddler *self = meddler_of(transport);
    size_t i;

    for (i = 0; i < made->count; i++) {
        if (made->list[i].owner == self) {
            meddler_end_fetch(&made->list[i], false);
        }
    }
    inner_ops->close(self->inner);
    while (self->held_count > 0) {
        self->held_count--;
        free(self->held[self->held_count].header);
        free(self->held[self->held_count].data);
    }
}

static bool
meddler_can_map_peer(tutti_transport *transport, tutti_bytes address)
{
    return inner_ops->can_map_peer(meddler_of(transport)->inner, address);
}

static bool
meddler_holds(tutti_transport *transport, const void *data, uint64_t size)
{
    return inner_ops->holds(meddler_of(transport)->inner, data, size);
}

static bool
meddler_view(tutti_transport *transport, tutti_transport_rndv *rndv,
             tutti_transport_region *ret_region)
{
    return offer_of(rndv) == NULL &&
           inner_ops->view(meddler_of(transport)->inner, rndv, ret_region);
}

static void
meddler_give_back(tutti_transport *transport, tutti_transport_rndv *rndv, bool done)
{
    inner_ops->give_back(meddler_of(transport)->inner, rndv, done);
}

static uint64_t
meddler_host(const tutti_transport *transport)
{
    return inner_ops->host(tutti_container_of(transport, const meddler, base)->inner);
}

/* Connections are the inner transport's, so what takes one is the inner one's function. */
meddler *
meddler_new(tutti_transport *inner, offers *all)
{
    meddler *self = calloc(1, sizeof(*self));

    fuzz_check(self != NULL);
    inner_ops = inner->ops;
    made = all;
    self->inner = inner;
    self->ops = (tutti_transport_ops){
        .size = sizeof(tutti_transport_ops),
        .address = meddler_address,
        .listen = meddler_listen,
        .connect = meddler_connect,
        .disconnect = inner_ops->disconnect,
        .send = inner_ops->send,
        .fetch = meddler_fetch,
        .drop = meddler_drop,
        .progress = meddler_progress,
        .descriptor = meddler_descriptor,
        .arm = meddler_arm,
        .close = meddler_close,
        .disarm = meddler_disarm,
        .same_host = inner_ops->same_host,
        .can_map_peer = inner_ops->can_map_peer != NULL ? meddler_can_map_peer : NULL,
        .holds = inner_ops->holds != NULL ? meddler_holds : NULL,
        .expose = inner_ops->expose,
        .view = inner_ops->view != NULL ? meddler_view : NULL,
        .give_back = inner_ops->give_back != NULL ? meddler_give_back : NULL,
        .host = inner_ops->host != NULL ? meddler_host : NULL,
    };
    self->base.ops = &self->ops;
    return self;
}
