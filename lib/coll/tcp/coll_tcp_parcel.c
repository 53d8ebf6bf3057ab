/* Parcels: data that waits at its sender, or comes unasked, or has come before it was asked for. */
#include <stdlib.h>
#include <string.h>

#include "coll/tcp/coll_tcp_private.h"

tutti_wire_parcel *
tutti_tcp_parcel_new(tcp_source *source, const tcp_head *head)
{
    tutti_wire_parcel *parcel = calloc(1, sizeof(*parcel));

    if (parcel == NULL) {
        return NULL;
    }
    parcel->source = source;
    parcel->id = head->id;
    parcel->size = head->size;
    parcel->pushed = head->kind == TCP_PUSH;
    source->pushed += parcel->pushed ? head->size : 0;
    tutti_list_add(&source->offers, &parcel->link);
    return parcel;
}

/* What it took of the credit is free again; the peer hears of it when it is worth a word. */
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
tutti_tcp_parcel_free(tutti_wire_parcel *parcel)
{
    tcp_source *source = parcel->source;

    tutti_list_remove(&parcel->link);
    if (source != NULL && source->watch.fd >= 0 && parcel->pushed) {
        give_credit(source, parcel->size);
    }
    free(parcel->early);
    free(parcel);
}

void
tutti_tcp_parcel_end(tutti_wire_parcel *parcel, bool ok)
{
    tutti_wire_ticket *ticket = parcel->ticket;

    tutti_tcp_parcel_free(parcel);
    if (ticket != NULL) {
        ticket->on_done(ticket, ok);
    }
}

/* ------------------------------------------------------------------------------ what comes */

unsigned char *
tutti_tcp_parcel_place(tutti_wire_parcel *parcel)
{
    if (parcel->dest == NULL && parcel->early == NULL) {
        parcel->early = malloc((size_t)parcel->size);
    }
    if (parcel->dest == NULL && parcel->early == NULL) {
        return NULL;
    }
    return (parcel->dest != NULL ? parcel->dest : parcel->early) + parcel->got;
}

void
tutti_tcp_parcel_count(tutti_wire_parcel *parcel, uint64_t size)
{
    parcel->got += size;
    if (parcel->got == parcel->size && parcel->state != TCP_OFFERED) {
        tutti_tcp_parcel_end(parcel, true);
    }
}

/* ------------------------------------------------------------------------------ what is wanted */

static void
expect(tutti_wire_parcel *parcel, tcp_parcel_state state)
{
    parcel->state = state;
    tutti_list_remove(&parcel->link);
    tutti_list_add(&parcel->source->coming, &parcel->link);
}

void
tutti_tcp_drop(tutti_wire *wire, tutti_wire_parcel *parcel)
{
    (void)wire;
    if (parcel->source != NULL && parcel->pushed && parcel->got < parcel->size) {
        expect(parcel, TCP_DROPPED);
        return;
    }
    if (parcel->source != NULL && !parcel->pushed) {
        (void)tutti_tcp_source_say(parcel->source, TCP_DROP, parcel->id, 0);
    }
    tutti_tcp_parcel_free(parcel);
}

static void
take_early(tutti_wire_parcel *parcel)
{
    if (parcel->early != NULL) {
        memcpy(parcel->dest, parcel->early, (size_t)parcel->got);
        free(parcel->early);
        parcel->early = NULL;
    }
}

tutti_wire_result
tutti_tcp_pull(tutti_wire *wire, tutti_wire_parcel *parcel, void *dest, size_t size,
               tutti_wire_ticket *ticket)
{
    if (size != parcel->size) {
        tutti_tcp_drop(wire, parcel);
        return TUTTI_WIRE_FAILED;
    }
    tutti_list_init(&ticket->link);
    parcel->dest = dest;
    parcel->ticket = ticket;
    take_early(parcel);
    if (parcel->got == parcel->size) {
        tutti_tcp_parcel_free(parcel);
        return TUTTI_WIRE_DONE;
    }
    if (parcel->source == NULL ||
        (!parcel->pushed && !tutti_tcp_source_say(parcel->source, TCP_PULL, parcel->id, 0))) {
        tutti_tcp_parcel_free(parcel);
        return TUTTI_WIRE_FAILED;
    }
    expect(parcel, TCP_PULLED);
    return TUTTI_WIRE_LATER;
}
