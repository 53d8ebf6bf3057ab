/*
 * Private to lib/coll: what ranks tell each other between the agreement and the data: splits,
 * shapes, what the root says.
 *
 * Engine's thread. The state is in the op: op->announces (which of the three), op->counts,
 * op->shapes, op->announced; tutti_coll_free_announced frees them when the op is released.
 */
#ifndef TUTTI_COLL_ENGINE_ANNOUNCE_H
#define TUTTI_COLL_ENGINE_ANNOUNCE_H

#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

/* Memory of what was told, owned by the op. op->args.list and op->args.root_splits of a receiver,
 * and op->meta, point into it, so it lives until the op is released. */
typedef struct tutti_coll_announced {
    unsigned char *bytes;    /* a message on its way, or what has come of the meta bytes */
    tutti_coll_tensor *list; /* of a coalesced op, from the root */
    int64_t *splits;         /* of a scatter, from the root */
} tutti_coll_announced;

/* Set op->announced, with `bytes` bytes for a message. Once for an op. TUTTI_RESOURCE_EXHAUSTED:
 * what was made is freed with the op. */
tutti_code tutti_coll_announced_new(tutti_coll_op *op, size_t bytes, tutti_error *err);

/* After the verdict: sets op->announces, 0 if nothing has to be told. All ranks come to the same,
 * since `reference`, the call that all others fit, is alike on all. */
void tutti_coll_tell_what(tutti_coll_op *op, const tutti_coll_args *reference);
/* Post the messages of PHASE_ANNOUNCE. They may all be here when it returns. RESOURCE_EXHAUSTED */
tutti_code tutti_coll_announce(tutti_coll_op *op, tutti_error *err);
/*
 * All has come: compare it, or have the caller find memory for it (on_list). A failure is this
 * rank's alone; the CONFIRM rounds, or its abort, tell the others. SPLITS_MISMATCH; what on_list
 * returns
 */
tutti_code tutti_coll_use_announced(tutti_coll_op *op, tutti_error *err);
/* Frees what the above have made. Harmless when there is nothing. */
void tutti_coll_free_announced(tutti_coll_op *op);

/* What a rank has told: the event of events.h. The bytes come from another process and are checked;
 * borrowed until return. TUTTI_INTERNAL: malformed; TUTTI_RESOURCE_EXHAUSTED */
tutti_code coll_announce_recv(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                              tutti_error *err);

#endif
