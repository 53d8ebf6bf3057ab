#include <assert.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/seal/coll_seal_private.h"

static const tutti_wire_ops seal_ops;

seal *
seal_from(tutti_wire *wire)
{
    assert(wire->ops == &seal_ops);
    return tutti_container_of(wire, seal, base);
}

/* ------------------------------------------------------------------------------ packets in */

void
seal_drop(seal *self, tutti_wire_parcel *parcel)
{
    if (parcel != NULL) {
        self->inner->ops->drop(self->inner, parcel);
    }
}

/* A stranger can make us say it as often as he likes: each power of two is enough. */
void
seal_refuse(seal *self, tutti_wire_parcel *parcel)
{
    self->stats.strange++;
    if ((self->stats.strange & (self->stats.strange - 1)) == 0) {
        TUTTI_LOG("coll", WARN,
                  "dropped packets that no member of the job has sealed, or that came twice: "
                  "%" PRIu64 " so far",
                  self->stats.strange);
    }
    seal_drop(self, parcel);
}

void
seal_hear(seal *self, const void *header, size_t header_size, const void *data, size_t size,
          tutti_wire_parcel *parcel)
{
    self->events->on_packet(self->arg, header, header_size - TUTTI_WIRE_SEAL_BYTES, data, size,
                            parcel);
}

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_wire_parcel *parcel)
{
    seal *self = arg;

    switch (seal_accept(self, header, header_size, size)) {
    case TUTTI_WIRE_MEMBER:
        seal_hear(self, header, header_size, data, size, parcel);
        break;
    case TUTTI_WIRE_AHEAD:
        if (!seal_wait(self, header, header_size, data, size, parcel)) {
            seal_refuse(self, parcel);
        }
        break;
    case TUTTI_WIRE_OVER:
        seal_drop(self, parcel);
        break;
    case TUTTI_WIRE_REFUSED:
        seal_refuse(self, parcel);
        break;
    }
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    seal *self = arg;
    const tutti_wire_link *link = owner;

    self->events->on_broken(self->arg, link->owner, why);
}

static const tutti_wire_events inner_events = {on_packet, on_broken};

/* ------------------------------------------------------------------------------ passed through */

static tutti_bytes
seal_wire_address(tutti_wire *wire)
{
    const seal *self = seal_from(wire);

    return (tutti_bytes){self->address, self->address_size};
}

static void
seal_wire_listen(tutti_wire *wire, const tutti_wire_events *events, void *arg)
{
    seal *self = seal_from(wire);

    self->events = events;
    self->arg = arg;
    self->inner->ops->listen(self->inner, &inner_events, self);
}

static tutti_wire_result
seal_wire_pull(tutti_wire *wire, tutti_wire_parcel *parcel, void *dest, size_t size,
               tutti_wire_ticket *ticket)
{
    tutti_wire *inner = seal_from(wire)->inner;

    return inner->ops->pull(inner, parcel, dest, size, ticket);
}

static void
seal_wire_drop(tutti_wire *wire, tutti_wire_parcel *parcel)
{
    tutti_wire *inner = seal_from(wire)->inner;

    inner->ops->drop(inner, parcel);
}

static unsigned
seal_wire_progress(tutti_wire *wire)
{
    tutti_wire *inner = seal_from(wire)->inner;

    return inner->ops->progress(inner);
}

static int
seal_wire_descriptor(tutti_wire *wire)
{
    tutti_wire *inner = seal_from(wire)->inner;

    return inner->ops->descriptor(inner);
}

static bool
seal_wire_arm(tutti_wire *wire, bool idle)
{
    tutti_wire *inner = seal_from(wire)->inner;

    return inner->ops->arm(inner, idle);
}

static void
seal_wire_disarm(tutti_wire *wire)
{
    tutti_wire_disarm(seal_from(wire)->inner);
}

static void
seal_wire_close(tutti_wire *wire)
{
    seal *self = seal_from(wire);

    seal_wait_fini(self);
    self->inner->ops->close(self->inner); /* what is out comes back first */
    seal_links_fini(self);
    seal_forget(self, UINT64_MAX);
    EVP_KDF_CTX_free(self->derive);
    EVP_MAC_CTX_free(self->context);
    EVP_MAC_free(self->mac);
    if (self->address != NULL) {
        OPENSSL_cleanse(self->address, self->address_size);
    }
    free(self->address);
    OPENSSL_cleanse(self, sizeof(*self));
    free(self);
}

static const tutti_wire_ops seal_ops = {
    .size = sizeof(tutti_wire_ops),
    .address = seal_wire_address,
    .listen = seal_wire_listen,
    .connect = seal_wire_connect,
    .disconnect = seal_wire_disconnect,
    .send = seal_wire_send,
    .pull = seal_wire_pull,
    .drop = seal_wire_drop,
    .progress = seal_wire_progress,
    .descriptor = seal_wire_descriptor,
    .arm = seal_wire_arm,
    .disarm = seal_wire_disarm,
    .close = seal_wire_close,
    .rekey = seal_wire_rekey,
    .expel = seal_wire_expel,
    .prove = seal_wire_prove,
    .check = seal_wire_check,
};

tutti_code
tutti_wire_seal_open(tutti_wire *inner, uint64_t incarnation, tutti_wire **ret_wire,
                     tutti_error *err)
{
    seal *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        inner->ops->close(inner);
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the data plane");
    }
    self->base.ops = &seal_ops;
    self->inner = inner;
    self->incarnation = incarnation;
    self->grace_ns = TUTTI_WIRE_SEAL_GRACE_NS;
    tutti_map_init(&self->senders);
    tutti_list_init(&self->waiting);
    tutti_list_init(&self->spare);
    code = seal_make_address(self, err);
    if (code != TUTTI_OK) {
        seal_wire_close(&self->base);
        return code;
    }
    *ret_wire = &self->base;
    return TUTTI_OK;
}

void
tutti_wire_seal_set_grace(tutti_wire *wire, uint64_t grace_ns)
{
    seal_from(wire)->grace_ns = grace_ns;
}

void
tutti_wire_seal_stat(const tutti_wire *wire, tutti_wire_seal_stats *ret_stats)
{
    *ret_stats = tutti_container_of(wire, const seal, base)->stats;
}
