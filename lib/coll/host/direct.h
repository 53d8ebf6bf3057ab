/* Private to coll/host: the state of a direct op, and which memory it is about. */
#ifndef TUTTI_COLL_HOST_DIRECT_H
#define TUTTI_COLL_HOST_DIRECT_H

#include "coll/host/exchange.h"

/* `fallen` and `done` are set once. How far the work is: `copy` and `at` for ops that copy; `at`,
 * `first` and `bytes` for ops that reduce. */
typedef struct host_direct {
    tutti_coll_mapping *views; /* [size]; ours too, not borrowed */
    host_start_fn by_messages; /* what it falls back to */
    bool reduces;
    bool lends;  /* our part can be exposed */
    bool fallen; /* back to messages */
    bool done;
    bool huge;            /* far more than caches hold */
    unsigned char *block; /* of huge ones that reduce: where a block stays in the cache */
    uint32_t copy;        /* how many transfers are through */
    uint64_t at;          /* bytes of this one, or of the slice */
    uint64_t first;       /* of the slice, in the input */
    uint64_t bytes;       /* of the slice */
} host_direct;

/*
 * Fill the pieces of the exchange, for the ops that copy.
 * [out] ret_in_place  the op would overwrite what other ranks still read
 */
tutti_code tutti_host_direct_set_up(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place,
                                    tutti_error *err);

/* For the ops that reduce: the elements that are this rank's. */
void tutti_host_direct_take_slice(const tutti_coll_op *op, const host_exchange *exchange);

/* All bytes of a piece lie in here, to be read. */
tutti_transport_region tutti_host_direct_region_of(const tutti_strided *piece);

/* What rank `to` needs of ours. */
tutti_transport_region tutti_host_direct_region_for(const tutti_coll_op *op,
                                                    const host_exchange *exchange, uint32_t to);
bool tutti_host_direct_can_expose(const tutti_coll_op *op, const host_exchange *exchange);

/*
 * Is what the others exposed as long as was agreed?
 * TUTTI_INTERNAL  no; the text names the rank that exposed less
 */
tutti_code tutti_host_direct_check_regions(const tutti_coll_op *op, const host_exchange *exchange,
                                           tutti_error *err);

/* ------------------------------------------------------------------ copies shared between ranks */

/* Bytes that one rank copies: [at, end) of a piece. */
typedef struct host_transfer {
    tutti_strided to;
    tutti_strided from;
    uint64_t at;
    uint64_t end;
} host_transfer;

/* Where in our memory rank `to` may help us by writing what it has for us; empty: nowhere. */
tutti_transport_region tutti_host_direct_help_for(const tutti_coll_op *op,
                                                  const host_exchange *exchange, uint32_t to);

/* How long the memory is in which we help rank `to`, if it exposes it to us. */
uint64_t tutti_host_direct_helped(const tutti_coll_op *op, const host_exchange *exchange,
                                  uint32_t to);

/* The transfer `number` of this rank, of twice the group's size; many are empty. */
host_transfer tutti_host_direct_transfer(const tutti_coll_op *op, const host_exchange *exchange,
                                         uint32_t number);

#endif
