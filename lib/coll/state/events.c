/*
 * Calls upwards: rooms below the ops (net, agree) report to them through the engine's table, so
 * that no file below depends on one above. The table is set before the thread starts and never
 * changes. Engine's thread.
 */
#include "coll/state/events.h"

#include "coll/state/engine.h"
#include "coll/state/group.h"

void
tutti_coll_op_run(tutti_coll_op *op)
{
    op->group->engine->events->op_run(op);
}

void
tutti_coll_op_succeed(tutti_coll_op *op)
{
    op->group->engine->events->op_succeed(op);
}

void
tutti_coll_op_fail(tutti_coll_op *op, const tutti_error *err, bool tell)
{
    op->group->engine->events->op_fail(op, err, tell);
}

void
tutti_coll_op_release(tutti_coll_op *op)
{
    op->group->engine->events->op_release(op);
}

tutti_code
tutti_coll_announce_recv(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                         tutti_error *err)
{
    return op->group->engine->events->announce_recv(op, from, bytes, size, err);
}

void
tutti_coll_group_look(tutti_coll_group *group)
{
    group->engine->events->group_look(group);
}

void
tutti_coll_replay(tutti_coll_engine *engine, tutti_list_node *where)
{
    engine->events->replay(engine, where);
}
