/*
 * Rendezvous messages: data that waits at its sender, or comes unasked, or has come before it was
 * asked for. Engine's thread.
 *
 * OFFERED   in source->offers or orphans; the engine holds it; pushed data comes to `unexpected`
 * PULLED    in source->coming; dest and ticket are set
 * DROPPED   in source->coming: pushed data that nobody wants comes all the same and is thrown away
 *
 * The engine's hold ends with fetch or drop. A rndv is freed when all has come, when it is dropped,
 * or with an error when its source ends.
 */
#include <stdlib.h>
#include <string.h>

#include "coll/tcp/tcp_private.h"

tutti_transport_rndv *
tutti_tcp_rndv_new(tcp_source *source, const tcp_head *head)
{
    tutti_transport_rndv *rndv = calloc(1, sizeof(*rndv));

    if (rndv == NULL) {
        return NULL;
    }
    rndv->source = source;
    rndv->id = head->id;
    rndv->size = head->size;
    rndv->pushed = head->kind == TCP_PUSH;
    source->pushed += rndv->pushed ? head->size : 0;
    tutti_list_add(&source->offers, &rndv->link);
    return rndv;
}

/* What it took of the credit is free again; the peer hears of it when half of the credit has
 * gathered, not for each message. */
static void
give_credit(tcp_source *source, uint64_t size)
{
    source->owed += size;
    if (source->owed >= source->credit / 2) {
        source->pushed -= source->owed;
        (void)tutti_tcp_source_say(source, TCP_CREDIT, 0, source->owed);
        source->owed = 0;
    }
}

void
tutti_tcp_rndv_free(tutti_transport_rndv *rndv)
{
    tcp_source *source = rndv->source;

    tutti_list_remove(&rndv->link);
    if (source != NULL && source->watch.fd >= 0 && rndv->pushed) {
        give_credit(source, rndv->size);
    }
    free(rndv->unexpected);
    free(rndv);
}

void
tutti_tcp_rndv_end(tutti_transport_rndv *rndv, bool ok)
{
    tutti_transport_ticket *ticket = rndv->ticket;

    tutti_tcp_rndv_free(rndv);
    if (ticket != NULL) {
        ticket->on_done(ticket, ok);
    }
}

/* ------------------------------------------------------------------------------ what comes */

/* Memory for early data is taken only when bytes come and nobody has asked yet; the credit bounds
 * it. What was dropped needs a place too: it must be read from the socket. */
unsigned char *
tutti_tcp_rndv_place(tutti_transport_rndv *rndv)
{
    if (rndv->dest == NULL && rndv->unexpected == NULL) {
        rndv->unexpected = malloc((size_t)rndv->size);
    }
    if (rndv->dest == NULL && rndv->unexpected == NULL) {
        return NULL;
    }
    return (rndv->dest != NULL ? rndv->dest : rndv->unexpected) + rndv->got;
}

void
tutti_tcp_rndv_count(tutti_transport_rndv *rndv, uint64_t size)
{
    rndv->got += size;
    if (rndv->got == rndv->size && rndv->state != TCP_OFFERED) {
        tutti_tcp_rndv_end(rndv, true);
    }
}

/* ------------------------------------------------------------------------------ what is wanted */

static void
expect_rndv(tutti_transport_rndv *rndv, tcp_rndv_state state)
{
    rndv->state = state;
    tutti_list_remove(&rndv->link);
    tutti_list_add(&rndv->source->coming, &rndv->link);
}

/* Pushed data is on its way already, so the rndv stays until it has come. For an offer the sender
 * is told; its ticket comes back as done. */
void
tutti_tcp_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    (void)transport;
    if (rndv->source != NULL && rndv->pushed && rndv->got < rndv->size) {
        expect_rndv(rndv, TCP_DROPPED);
        return;
    }
    if (rndv->source != NULL && !rndv->pushed) {
        (void)tutti_tcp_source_say(rndv->source, TCP_DROP, rndv->id, 0);
    }
    tutti_tcp_rndv_free(rndv);
}

static void
take_early(tutti_transport_rndv *rndv)
{
    if (rndv->unexpected != NULL) {
        memcpy(rndv->dest, rndv->unexpected, (size_t)rndv->got);
        free(rndv->unexpected);
        rndv->unexpected = NULL;
    }
}

/* The three cases: all of it is here (pushed, and early); part of it is here, the rest comes; it
 * waits at the sender and is asked for. What came early is copied once. */
tutti_transport_result
tutti_tcp_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest, size_t size,
                tutti_transport_ticket *ticket)
{
    if (size != rndv->size) {
        tutti_tcp_drop(transport, rndv);
        return TUTTI_TRANSPORT_FAILED;
    }
    tutti_list_init(&ticket->link);
    rndv->dest = dest;
    rndv->ticket = ticket;
    take_early(rndv);
    if (rndv->got == rndv->size) {
        tutti_tcp_rndv_free(rndv);
        return TUTTI_TRANSPORT_DONE;
    }
    if (rndv->source == NULL ||
        (!rndv->pushed && !tutti_tcp_source_say(rndv->source, TCP_FETCH, rndv->id, 0))) {
        tutti_tcp_rndv_free(rndv);
        return TUTTI_TRANSPORT_FAILED;
    }
    expect_rndv(rndv, TCP_PULLED);
    return TUTTI_TRANSPORT_LATER;
}
