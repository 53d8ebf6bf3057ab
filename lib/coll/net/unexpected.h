/* Private to lib/coll: packets that came before the op that wants them (the unexpected queue of
 * MPI). */
#ifndef TUTTI_COLL_NET_UNEXPECTED_H
#define TUTTI_COLL_NET_UNEXPECTED_H

#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/wire.h"

#define PARKED_MAX 65536 /* packets that came before they were wanted */

/* A packet that came before it was wanted. */
typedef struct coll_parked {
    tutti_link link;
    tutti_packet packet;
    tutti_wire_parcel *parcel;
    tutti_spec spec; /* of a SEND */
    size_t size;
    unsigned char data[]; /* when there is no parcel */
} coll_parked;

void tutti_coll_park(tutti_coll_engine *engine, tutti_link *where, const tutti_packet *packet,
                     const tutti_spec *spec, const void *data, size_t size,
                     tutti_wire_parcel *parcel);
void tutti_coll_unpark(tutti_coll_engine *engine, coll_parked *parked);
void tutti_coll_unpark_all(tutti_coll_engine *engine, tutti_link *where);

#endif
