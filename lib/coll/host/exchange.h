/*
 * Private to coll/host: exchange, the algorithm of every op in which a rank has something of its
 * own for each other rank. Make one, fill `out` and `in` (no rows: nothing), make it ready.
 */
#ifndef TUTTI_COLL_HOST_EXCHANGE_H
#define TUTTI_COLL_HOST_EXCHANGE_H

#include "coll/host/strided_copy.h"
#include "coll/reduce/reduce.h"

typedef struct host_exchange host_exchange;

/*
 * Combine one chunk of what has come from all ranks: [group size] inputs of `bytes`, in the order of
 * group ranks, become `output`, which may be one of the inputs. It is called once for each chunk of
 * at most about 1 MiB (a multiple of 64 bytes, but for the last), so element k of the output must
 * depend on the elements k of the inputs alone.
 */
typedef void (*host_combine_fn)(const tutti_coll_op *op, const host_exchange *self,
                                const void *const *inputs, uint64_t bytes, void *output);

struct host_exchange {
    host_state base;
    /* NULL: what comes is moved to its place. Otherwise it is as long as in[own rank], and is
     * combined into that; a set-up in parts.c may put another function than the reduction. */
    host_combine_fn combine;
    tutti_strided *out; /* [size] of the input, for each rank */
    tutti_strided *in; /* [size] of the output, from each rank; both of a pair have as many bytes */
    uint64_t chunk;
    uint32_t rounds;           /* of chunks */
    uint32_t partners;         /* that are dealt with at once */
    uint32_t turns;            /* ... so a chunk takes so many rounds */
    unsigned char *send_stage; /* [size] chunks, when something must be packed */
    unsigned char *recv_stage;
    uint64_t *factor_bits;
    double *factors;
    const void **inputs;
    struct host_direct *direct; /* direct.c: the rest of its state */
    struct host_run *run;       /* run.c: ... */
};

/* [in] reduces  it combines by the op's reduction */
tutti_code tutti_host_exchange_new(tutti_coll_op *op, bool reduces, host_exchange **ret_exchange,
                                   tutti_error *err);

/* [in] in_place  bytes are written where others are still to be sent from, chunk by chunk */
tutti_code tutti_host_exchange_ready(tutti_coll_op *op, host_exchange *exchange, bool in_place,
                                     tutti_error *err);

/* Which piece goes where: fills out and in. [out] ret_in_place  as for tutti_host_exchange_ready */
tutti_code tutti_host_exchange_pieces(tutti_coll_op *op, host_exchange *exchange,
                                      bool *ret_in_place, tutti_error *err);

/* The shape that what another rank has for us has there: `base` is where it begins. */
tutti_strided tutti_host_exchange_source(const tutti_coll_op *op, const void *base, uint64_t bytes);

/* The same of where the root of a gather wants what we have for it. */
tutti_strided tutti_host_exchange_dest(const tutti_coll_op *op, void *base, uint64_t bytes);

#endif
