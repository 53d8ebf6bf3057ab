/* Private to lib/coll: what is told between the agreement and the data, and the memory it is in. */
#ifndef TUTTI_COLL_ENGINE_ANNOUNCE_H
#define TUTTI_COLL_ENGINE_ANNOUNCE_H

#include "coll/engine/engine.h"

typedef struct tutti_coll_told {
    unsigned char *bytes;    /* a message on its way, or what has come of the meta bytes */
    tutti_coll_tensor *list; /* of a coalesced op, from the root */
    int64_t *splits;         /* of a scatter, from the root */
} tutti_coll_told;

/* Memory for `bytes` of a message that is told. TUTTI_RESOURCE_EXHAUSTED */
tutti_code tutti_coll_told_new(tutti_coll_op *op, size_t bytes, tutti_error *err);

#endif
