/* Private to lib/coll: what happens below and is acted upon above.
 *
 * Messages, connections and groups tell ops what has happened without knowing them: the functions
 * here call those of the table that the engine was opened with (engine.c). So no file that ops are
 * built from calls one that is built from ops. The engine's thread.
 */
#ifndef TUTTI_COLL_STATE_EVENTS_H
#define TUTTI_COLL_STATE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

typedef struct coll_events {
    void (*op_run)(tutti_coll_op *op);
    void (*op_succeed)(tutti_coll_op *op);
    void (*op_fail)(tutti_coll_op *op, const tutti_error *err, bool tell);
    void (*op_release)(tutti_coll_op *op);
    tutti_code (*announce_recv)(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                                tutti_error *err);
    void (*group_look)(tutti_coll_group *group);
    void (*replay)(tutti_coll_engine *engine, tutti_list_node *where);
} coll_events;

/* What the op waited for is there: it goes on, and may be over and released when this returns. Not
 * for an op that is held or ended. */
void tutti_coll_op_run(tutti_coll_op *op);
void tutti_coll_op_succeed(tutti_coll_op *op);

/* Only the first failure counts. `tell`: the other members must hear of it. `err` is copied. The op
 * may be released when this returns, unless the caller holds it (op->held) or a message is out. */
void tutti_coll_op_fail(tutti_coll_op *op, const tutti_error *err, bool tell);

/* Nothing uses the op any more: it has ended, nothing is pending, and no frame holds it. */
void tutti_coll_op_release(tutti_coll_op *op);

/* A rank has told what its signature does not hold (announce.h). */
tutti_code tutti_coll_announce_recv(tutti_coll_op *op, uint32_t from, const void *bytes,
                                    size_t size, tutti_error *err);

/* A member may be lost: the ops of the group look. */
void tutti_coll_group_look(tutti_coll_group *group);

/* Packets that waited (unexpected.h) take their way once more. `where` is empty afterwards, unless
 * routing has parked them in it again: pass a list of its own. */
void tutti_coll_replay(tutti_coll_engine *engine, tutti_list_node *where);

#endif
