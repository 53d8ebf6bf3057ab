/* The ways out: each has a key of the present epoch, and a number that nobody else has. */
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/transport_auth/transport_auth_private.h"

/* One packet that is out: its header has to stay where it is. */
typedef struct auth_send {
    tutti_transport_ticket ticket; /* the inner transport's */
    tutti_list_node spare;
    auth *transport;
    tutti_transport_ticket *theirs;
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
} auth_send;

static void
give_back(auth_send *send)
{
    tutti_list_add(&send->transport->spare, &send->spare);
}

static void
on_sent(tutti_transport_ticket *ticket, bool ok)
{
    auth_send *send = tutti_container_of(ticket, auth_send, ticket);
    tutti_transport_ticket *theirs = send->theirs;

    give_back(send);
    theirs->on_done(theirs, ok);
}

/* NULL without memory. */
static auth_send *
take_send(auth *self)
{
    tutti_list_node *link = tutti_list_pop(&self->spare);
    auth_send *send =
        link != NULL ? tutti_container_of(link, auth_send, spare) : calloc(1, sizeof(*send));

    if (send != NULL) {
        send->transport = self;
        send->ticket.on_done = on_sent;
        tutti_list_init(&send->spare);
    }
    return send;
}

/* Has the way the present epoch's key? */
static bool
renew_auth_conn(tutti_transport_conn *link)
{
    const auth_epoch *epoch = auth_present(link->transport);

    if (epoch == NULL || link->turn == epoch->turn) {
        return epoch != NULL;
    }
    if (!auth_derive(link->transport, epoch, link->transport->incarnation, link->to, link->key)) {
        return false;
    }
    link->turn = epoch->turn;
    return true;
}

/* The header with the authentication tag behind it; 0 = no key, or OpenSSL could not. */
static size_t
write_header(tutti_transport_conn *link, const void *header, size_t size, uint64_t data_size,
             unsigned char ret_header[TUTTI_TRANSPORT_HEADER_MAX])
{
    unsigned char *at = ret_header + size;

    if (!renew_auth_conn(link)) {
        return 0;
    }
    memcpy(ret_header, header, size);
    memcpy(at, link->id, sizeof(link->id));
    auth_put_u64(at + 8, ++link->count);
    memcpy(at + 16, link->pass, sizeof(link->pass));
    auth_put_u64(at + 24, auth_present(link->transport)->name);
    auth_put_u64(at + 32, link->transport->incarnation);
    return auth_tag(link->transport, link->key, ret_header, size + 40, data_size, at + 40)
               ? size + TUTTI_TRANSPORT_AUTH_BYTES
               : 0;
}

tutti_transport_result
auth_transport_send(tutti_transport_conn *link, const void *header, size_t header_size,
                    const void *data, size_t size, tutti_transport_ticket *ticket)
{
    auth *self = link->transport;
    auth_send *send = take_send(self);
    tutti_transport_result result = TUTTI_TRANSPORT_FAILED;
    size_t sealed;

    assert(header_size <= TUTTI_TRANSPORT_HEADER_MAX - TUTTI_TRANSPORT_AUTH_BYTES);
    if (send == NULL) {
        return TUTTI_TRANSPORT_FAILED;
    }
    send->theirs = ticket;
    sealed = write_header(link, header, header_size, size, send->header);
    if (sealed != 0) {
        result =
            self->inner->ops->send(link->inner, send->header, sealed, data, size, &send->ticket);
    }
    if (result != TUTTI_TRANSPORT_LATER) {
        give_back(send);
    }
    return result;
}

static tutti_code
new_link(auth *self, tutti_bytes address, void *owner, tutti_transport_conn **ret_link,
         tutti_error *err)
{
    tutti_transport_conn *link;

    if (address.size <= TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES) {
        return TUTTI_FAIL(err, TUTTI_UNAVAILABLE,
                          "a data address of %zu bytes holds no key: the "
                          "coordinator keeps it from who may not join",
                          address.size);
    }
    link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a connection");
    }
    link->transport = self;
    link->owner = owner;
    memcpy(link->to, address.data, sizeof(link->to));
    if (RAND_bytes(link->id, sizeof(link->id)) != 1 ||
        !auth_pass(self, link->to, link->id, link->pass)) {
        free(link);
        return TUTTI_FAIL(err, TUTTI_INTERNAL, "OpenSSL could not make the key of a connection");
    }
    *ret_link = link;
    return TUTTI_OK;
}

static void
free_link(tutti_transport_conn *link)
{
    OPENSSL_cleanse(link, sizeof(*link));
    free(link);
}

tutti_code
auth_transport_connect(tutti_transport *transport, tutti_bytes address, void *owner,
                       tutti_transport_conn **ret_link, tutti_error *err)
{
    const size_t ours = TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES;
    auth *self = auth_from(transport);
    tutti_transport_conn *link = NULL;
    tutti_code code;

    TUTTI_TRY(new_link(self, address, owner, &link, err));
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
auth_transport_disconnect(tutti_transport_conn *link)
{
    link->transport->inner->ops->disconnect(link->inner);
    free_link(link);
}

void
auth_links_fini(auth *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->spare)) != NULL) {
        free(tutti_container_of(link, auth_send, spare));
    }
}
