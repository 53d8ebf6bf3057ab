/* A rendezvous. Private to this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_RENDEZVOUS_RENDEZVOUS_PRIVATE_H
#define TUTTI_SERVER_COORDINATOR_RENDEZVOUS_RENDEZVOUS_PRIVATE_H

#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/rendezvous/rendezvous.h"

/* Those that wait at one key. */
typedef struct coord_rendezvous {
    tutti_map_node node;
    tutti_list_node callers;
    coord_full_key full;
    uint32_t count;
    uint32_t arrived;
    uint64_t next_order;
} coord_rendezvous;

/* All callers get their answer: `refused` NULL = it went well. The rendezvous is freed. */
void coord_rendezvous_settle_all(tutti_coordinator *self, coord_rendezvous *round,
                                 const char *refused, uint32_t other);

/*
 * All have come: number them, and settle.
 *
 * TUTTI_RESOURCE_EXHAUSTED no memory; the rendezvous is as before
 */
tutti_code coord_rendezvous_complete(tutti_coordinator *self, coord_rendezvous *round,
                                     tutti_error *err);

/* Why this caller was refused. */
void coord_rendezvous_say_refused(const tutti_coordinator_caller *caller, tutti_error *err);

/* How many are missing, and who is here. */
void coord_rendezvous_say_missing(const coord_rendezvous *round, tutti_error *err);

void coord_rendezvous_init(tutti_coordinator *self);

#endif
