/* The ways out: each has a key of the present epoch, and a number that nobody else has. */
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/seal/coll_seal_private.h"

/* One packet that is out: its header has to stay where it is. */
typedef struct seal_send {
    tutti_wire_ticket ticket; /* the inner wire's */
    tutti_link spare;
    seal *wire;
    tutti_wire_ticket *theirs;
    unsigned char header[TUTTI_WIRE_HEADER_MAX];
} seal_send;

static void
give_back(seal_send *send)
{
    tutti_list_add(&send->wire->spare, &send->spare);
}

static void
on_sent(tutti_wire_ticket *ticket, bool ok)
{
    seal_send *send = tutti_container_of(ticket, seal_send, ticket);
    tutti_wire_ticket *theirs = send->theirs;

    give_back(send);
    theirs->on_done(theirs, ok);
}

/* NULL without memory. */
static seal_send *
take_send(seal *self)
{
    tutti_link *link = tutti_list_pop(&self->spare);
    seal_send *send =
        link != NULL ? tutti_container_of(link, seal_send, spare) : calloc(1, sizeof(*send));

    if (send != NULL) {
        send->wire = self;
        send->ticket.on_done = on_sent;
        tutti_list_init(&send->spare);
    }
    return send;
}

/* Has the way the present epoch's key? */
static bool
renew(tutti_wire_link *link)
{
    const seal_epoch *epoch = seal_present(link->wire);

    if (epoch == NULL || link->turn == epoch->turn) {
        return epoch != NULL;
    }
    if (!seal_derive(link->wire, epoch, link->wire->incarnation, link->to, link->key)) {
        return false;
    }
    link->turn = epoch->turn;
    return true;
}

/* The header with the seal behind it; 0 = no key, or OpenSSL could not. */
static size_t
write_header(tutti_wire_link *link, const void *header, size_t size, uint64_t data_size,
             unsigned char ret_header[TUTTI_WIRE_HEADER_MAX])
{
    unsigned char *at = ret_header + size;

    if (!renew(link)) {
        return 0;
    }
    memcpy(ret_header, header, size);
    memcpy(at, link->id, sizeof(link->id));
    seal_put_u64(at + 8, ++link->count);
    memcpy(at + 16, link->pass, sizeof(link->pass));
    seal_put_u64(at + 24, seal_present(link->wire)->name);
    seal_put_u64(at + 32, link->wire->incarnation);
    return seal_tag(link->wire, link->key, ret_header, size + 40, data_size, at + 40)
               ? size + TUTTI_WIRE_SEAL_BYTES
               : 0;
}

tutti_wire_result
seal_wire_send(tutti_wire_link *link, const void *header, size_t header_size, const void *data,
               size_t size, tutti_wire_ticket *ticket)
{
    seal *self = link->wire;
    seal_send *send = take_send(self);
    tutti_wire_result result = TUTTI_WIRE_FAILED;
    size_t sealed;

    assert(header_size <= TUTTI_WIRE_HEADER_MAX - TUTTI_WIRE_SEAL_BYTES);
    if (send == NULL) {
        return TUTTI_WIRE_FAILED;
    }
    send->theirs = ticket;
    sealed = write_header(link, header, header_size, size, send->header);
    if (sealed != 0) {
        result =
            self->inner->ops->send(link->inner, send->header, sealed, data, size, &send->ticket);
    }
    if (result != TUTTI_WIRE_LATER) {
        give_back(send);
    }
    return result;
}

static tutti_code
new_link(seal *self, tutti_bytes address, void *owner, tutti_wire_link **ret_link, tutti_error *err)
{
    tutti_wire_link *link;

    if (address.size <= TUTTI_WIRE_SEAL_ADDRESS_BYTES) {
        return TUTTI_FAIL(err, TUTTI_UNAVAILABLE,
                          "a data address of %zu bytes holds no key: the "
                          "coordinator keeps it from who may not join",
                          address.size);
    }
    link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a connection");
    }
    link->wire = self;
    link->owner = owner;
    memcpy(link->to, address.data, sizeof(link->to));
    if (RAND_bytes(link->id, sizeof(link->id)) != 1 ||
        !seal_pass(self, link->to, link->id, link->pass)) {
        free(link);
        return TUTTI_FAIL(err, TUTTI_INTERNAL, "OpenSSL could not make the key of a connection");
    }
    *ret_link = link;
    return TUTTI_OK;
}

static void
free_link(tutti_wire_link *link)
{
    OPENSSL_cleanse(link, sizeof(*link));
    free(link);
}

tutti_code
seal_wire_connect(tutti_wire *wire, tutti_bytes address, void *owner, tutti_wire_link **ret_link,
                  tutti_error *err)
{
    const size_t ours = TUTTI_WIRE_SEAL_ADDRESS_BYTES;
    seal *self = seal_from(wire);
    tutti_wire_link *link = NULL;
    tutti_code code = new_link(self, address, owner, &link, err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = self->inner->ops->connect(
        self->inner, (tutti_bytes){(const unsigned char *)address.data + ours, address.size - ours},
        link, &link->inner, err);
    if (code != TUTTI_OK) {
        free_link(link);
        return code;
    }
    *ret_link = link;
    return TUTTI_OK;
}

void
seal_wire_disconnect(tutti_wire_link *link)
{
    link->wire->inner->ops->disconnect(link->inner);
    free_link(link);
}

void
seal_links_fini(seal *self)
{
    tutti_link *link;

    while ((link = tutti_list_pop(&self->spare)) != NULL) {
        free(tutti_container_of(link, seal_send, spare));
    }
}
