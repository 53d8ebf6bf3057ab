/*
 * Data that waits at its sender: a rndv of the inner transport with the seal of its packet. Words of the
 * engine are compared with the digest that the packet's tag covers, when they have been fetched. Engine's
 * thread.
 */
#include <openssl/crypto.h>
#include <stdlib.h>

#include "base/os/log.h"
#include "coll/transport_auth/transport_auth_private.h"

tutti_transport_rndv *
auth_rndv_new(auth *self, tutti_transport_rndv *inner, const auth_seal *seal)
{
    tutti_transport_rndv *rndv = calloc(1, sizeof(*rndv));

    if (rndv == NULL) {
        auth_drop(self, inner);
        return NULL;
    }
    rndv->transport = self;
    rndv->inner = inner;
    rndv->seal = *seal;
    return rndv;
}

static void
free_rndv(tutti_transport_rndv *rndv)
{
    OPENSSL_cleanse(&rndv->seal, sizeof(rndv->seal));
    free(rndv);
}

/* Over with `ok`: is it what was sent? The rndv is gone. */
static bool
end_fetch(tutti_transport_rndv *rndv, bool ok)
{
    unsigned char digest[AUTH_TAG_BYTES];
    const bool forged =
        ok && rndv->seal.covered &&
        (!auth_digest(rndv->transport, rndv->seal.key, rndv->fetched, rndv->size, digest) ||
         CRYPTO_memcmp(digest, rndv->seal.digest, sizeof(digest)) != 0);

    if (forged) {
        rndv->theirs->forged = true;
        rndv->transport->stats.strange++;
        TUTTI_LOG("coll", WARN, "data that a member has sent was changed on the way");
    }
    free_rndv(rndv);
    return ok && !forged;
}

static void
on_fetched(tutti_transport_ticket *ticket, bool ok)
{
    tutti_transport_rndv *rndv = tutti_container_of(ticket, tutti_transport_rndv, ticket);
    tutti_transport_ticket *theirs = rndv->theirs;

    theirs->on_done(theirs, end_fetch(rndv, ok));
}

tutti_transport_result
auth_transport_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest,
                     size_t size, tutti_transport_ticket *ticket)
{
    tutti_transport *inner = auth_from(transport)->inner;
    tutti_transport_result result;

    rndv->theirs = ticket;
    rndv->fetched = dest;
    rndv->size = size;
    rndv->ticket.on_done = on_fetched;
    tutti_list_init(&rndv->ticket.link);
    result = inner->ops->fetch(inner, rndv->inner, dest, size, &rndv->ticket);
    if (result == TUTTI_TRANSPORT_LATER) {
        return result;
    }
    return end_fetch(rndv, result == TUTTI_TRANSPORT_DONE) ? TUTTI_TRANSPORT_DONE
                                                           : TUTTI_TRANSPORT_FAILED;
}

void
auth_transport_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    auth_drop(auth_from(transport), rndv->inner);
    free_rndv(rndv);
}
