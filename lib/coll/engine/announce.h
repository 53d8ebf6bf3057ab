/* Private to lib/coll: what ranks tell each other between the agreement and the data: splits,
 * shapes, what the root says. */
#ifndef TUTTI_COLL_ENGINE_ANNOUNCE_H
#define TUTTI_COLL_ENGINE_ANNOUNCE_H

#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

typedef struct tutti_coll_announced {
    unsigned char *bytes;    /* a message on its way, or what has come of the meta bytes */
    tutti_coll_tensor *list; /* of a coalesced op, from the root */
    int64_t *splits;         /* of a scatter, from the root */
} tutti_coll_announced;

/* Memory for `bytes` of a message that is told. TUTTI_RESOURCE_EXHAUSTED */
tutti_code tutti_coll_announced_new(tutti_coll_op *op, size_t bytes, tutti_error *err);

/* PHASE_ANNOUNCE, which has two rounds. [in] reference  the call that all others fit */
void tutti_coll_tell_what(tutti_coll_op *op, const tutti_coll_args *reference);
tutti_code tutti_coll_announce(tutti_coll_op *op, tutti_error *err);
tutti_code tutti_coll_use_announced(tutti_coll_op *op, tutti_error *err);
void tutti_coll_free_announced(tutti_coll_op *op);

/* What a rank has told: the event of events.h. */
tutti_code coll_announce_recv(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                              tutti_error *err);

#endif
