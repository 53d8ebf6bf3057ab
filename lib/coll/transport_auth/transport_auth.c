/*
 * The transport that adds a tag to each packet that leaves, and drops packets without a good one.
 * Engine's thread, all of it, but the open.
 *
 * Connections and sleeping are the inner transport's and are passed through. A packet
 * that leaves has a header of our own, in an auth_send, since the caller's header has no room for
 * the tag; the send is kept in `spare` after its ticket is back. Data is not copied.
 *
 * If OpenSSL fails or there is no key yet, a send fails as on a broken connection: nothing leaves
 * without a tag.
 */
#include <assert.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/transport_auth/transport_auth_private.h"

static const tutti_transport_ops auth_ops;

auth *
auth_from(tutti_transport *transport)
{
    assert(transport->ops == &auth_ops);
    return tutti_container_of(transport, auth, base);
}

/* ------------------------------------------------------------------------------ packets in */

void
auth_drop(auth *self, tutti_transport_rndv *rndv)
{
    if (rndv != NULL) {
        self->inner->ops->drop(self->inner, rndv);
    }
}

/* A stranger can make us say it as often as he likes: each power of two is enough. */
static void
refuse_frame(auth *self, tutti_transport_rndv *rndv)
{
    self->stats.strange++;
    if ((self->stats.strange & (self->stats.strange - 1)) == 0) {
        TUTTI_LOG("coll", WARN,
                  "dropped packets that no member of the job has sealed, or that came twice: "
                  "%" PRIu64 " so far",
                  self->stats.strange);
    }
    auth_drop(self, rndv);
}

/* The engine gets the header without what stands behind it. */
void
auth_hear(auth *self, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv, const auth_seal *seal)
{
    tutti_transport_rndv *ours = rndv == NULL ? NULL : auth_rndv_new(self, rndv, seal);

    if (rndv == NULL || ours != NULL) {
        self->events->on_packet(self->arg, header, header_size - TUTTI_TRANSPORT_AUTH_BYTES, data,
                                size, ours);
    }
}

/* OVER is not counted as strange: auth_is_over has counted it. */
static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    auth *self = arg;
    auth_seal seal;

    switch (auth_accept(self, header, header_size, rndv == NULL ? data : NULL, size, &seal)) {
    case TUTTI_TRANSPORT_MEMBER:
        auth_hear(self, header, header_size, data, size, rndv, &seal);
        break;
    case TUTTI_TRANSPORT_AHEAD:
        if (!auth_wait(self, header, header_size, data, size, rndv)) {
            refuse_frame(self, rndv);
        }
        break;
    case TUTTI_TRANSPORT_OVER:
        auth_drop(self, rndv);
        break;
    case TUTTI_TRANSPORT_REFUSED:
        refuse_frame(self, rndv);
        break;
    }
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    auth *self = arg;
    const tutti_transport_conn *link = owner;

    self->events->on_broken(self->arg, link->owner, why);
}

static const tutti_transport_events inner_events = {on_packet, on_broken};

/* ------------------------------------------------------------------------------ passed through */

static tutti_bytes
auth_transport_address(tutti_transport *transport)
{
    const auth *self = auth_from(transport);

    return (tutti_bytes){self->address, self->address_size};
}

static void
auth_transport_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    auth *self = auth_from(transport);

    self->events = events;
    self->arg = arg;
    self->inner->ops->listen(self->inner, &inner_events, self);
}

static unsigned
auth_transport_progress(tutti_transport *transport)
{
    tutti_transport *inner = auth_from(transport)->inner;

    return inner->ops->progress(inner);
}

static int
auth_transport_descriptor(tutti_transport *transport)
{
    tutti_transport *inner = auth_from(transport)->inner;

    return inner->ops->descriptor(inner);
}

static bool
auth_transport_arm(tutti_transport *transport, bool idle)
{
    tutti_transport *inner = auth_from(transport)->inner;

    return inner->ops->arm(inner, idle);
}

static void
auth_transport_disarm(tutti_transport *transport)
{
    tutti_transport_disarm(auth_from(transport)->inner);
}

/* Waiting packets first, as their rndvs are the inner transport's; then the inner one, which gives
 * back all tickets, whose on_sent puts sends into `spare`; then what is left. Keys are wiped. */
static void
auth_transport_close(tutti_transport *transport)
{
    auth *self = auth_from(transport);

    auth_wait_fini(self);
    self->inner->ops->close(self->inner); /* what is out comes back first */
    auth_links_fini(self);
    auth_forget(self, UINT64_MAX);
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

static const tutti_transport_ops auth_ops = {
    .size = sizeof(tutti_transport_ops),
    .address = auth_transport_address,
    .listen = auth_transport_listen,
    .connect = auth_transport_connect,
    .disconnect = auth_transport_disconnect,
    .send = auth_transport_send,
    .fetch = auth_transport_fetch,
    .drop = auth_transport_drop,
    .progress = auth_transport_progress,
    .descriptor = auth_transport_descriptor,
    .arm = auth_transport_arm,
    .disarm = auth_transport_disarm,
    .close = auth_transport_close,
    .rekey = auth_transport_rekey,
    .revoke = auth_transport_revoke,
    .sign_packet = auth_transport_sign,
    .check = auth_transport_verify,
};

tutti_code
tutti_transport_auth_open(tutti_transport *inner, uint64_t incarnation,
                          tutti_transport **ret_transport, tutti_error *err)
{
    auth *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        inner->ops->close(inner);
        return TUTTI_FAIL_MEMORY(err, "no memory for the data plane");
    }
    self->base.ops = &auth_ops;
    self->inner = inner;
    self->incarnation = incarnation;
    self->grace_ns = TUTTI_TRANSPORT_AUTH_GRACE_NS;
    tutti_map_init(&self->senders);
    tutti_list_init(&self->waiting);
    tutti_list_init(&self->spare);
    code = auth_make_address(self, err);
    if (code != TUTTI_OK) {
        auth_transport_close(&self->base);
        return code;
    }
    *ret_transport = &self->base;
    return TUTTI_OK;
}

void
tutti_transport_auth_set_grace(tutti_transport *transport, uint64_t grace_ns)
{
    auth_from(transport)->grace_ns = grace_ns;
}

void
tutti_transport_auth_stat(const tutti_transport *transport, tutti_transport_auth_stats *ret_stats)
{
    *ret_stats = tutti_container_of(transport, const auth, base)->stats;
}

/* ------------------------------------------------------------------------------ conn */

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

/* The send is given back first: `theirs` may send again inside its callback. */
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

/* Is the connection's key that of the present epoch? Derived when the first packet of an epoch
 * leaves, not at each rekey: most connections are idle. */
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

/* The header with the authentication tag behind it; 0 = no key, or OpenSSL could not. `words`: the data
 * is covered, too. */
static size_t
write_header(tutti_transport_conn *link, const void *header, size_t size, const void *data,
             size_t data_size, bool words, unsigned char ret_header[TUTTI_TRANSPORT_HEADER_MAX])
{
    unsigned char *at = ret_header + size;

    if (!renew_auth_conn(link)) {
        return 0;
    }
    memcpy(ret_header, header, size);
    memcpy(at, link->id, sizeof(link->id));
    auth_put_u64(at + 8, ++link->count);
    memcpy(at + 16, link->pass, sizeof(link->pass));
    memset(at + 24, 0, AUTH_TAG_BYTES);
    if (words && data_size > 0 &&
        !auth_digest(link->transport, link->key, data, data_size, at + 24)) {
        return 0;
    }
    auth_put_u64(at + 40, auth_present(link->transport)->name);
    auth_put_u64(at + 48, link->transport->incarnation);
    return auth_tag(link->transport, link->key, ret_header, size + 56, data_size, at + 56)
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
    sealed = write_header(link, header, header_size, data, size, ticket->words, send->header);
    if (sealed != 0) {
        result =
            self->inner->ops->send(link->inner, send->header, sealed, data, size, &send->ticket);
    }
    if (result != TUTTI_TRANSPORT_LATER) {
        give_back(send);
    }
    return result;
}

/* The id is random, and new for each connection, so counts may begin at 1 again. */
static tutti_code
new_link(auth *self, tutti_bytes address, void *owner, tutti_transport_conn **ret_link,
         tutti_error *err)
{
    tutti_transport_conn *link;

    if (address.size <= TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_UNAVAILABLE, "NO_JOB_SECRET",
            "a data address of %zu bytes without a key: the coordinator gives the "
            "key only to callers that may join the job",
            address.size);
    }
    link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a connection");
    }
    link->transport = self;
    link->owner = owner;
    memcpy(link->to, address.data, sizeof(link->to));
    if (RAND_bytes(link->id, sizeof(link->id)) != 1 ||
        !auth_pass(self, link->to, link->id, link->pass)) {
        free(link);
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "CRYPTO_FAILED",
                              "OpenSSL could not make the key of a connection");
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
