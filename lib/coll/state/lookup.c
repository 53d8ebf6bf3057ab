/* Finding groups, ranks and ops, and words about them. */
#include "coll/state/lookup.h"

#include <inttypes.h>

#include "base/error/fail.h"
#include "coll/state/engine.h"
#include "coll/state/group.h"

uint32_t
tutti_coll_group_rank_of(const tutti_coll_group *group, uint32_t rank)
{
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        if (group->ranks[i] == rank) {
            return i;
        }
    }
    return NO_RANK;
}

tutti_coll_group *
tutti_coll_group_by_id(tutti_coll_engine *engine, uint64_t id)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&engine->groups, tutti_map_key_u64(key, id));

    return node == NULL ? NULL : tutti_container_of(node, tutti_coll_group, node);
}

tutti_coll_op *
tutti_coll_op_by_id(tutti_coll_engine *engine, uint64_t id)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&engine->ops, tutti_map_key_u64(key, id));

    return node == NULL ? NULL : tutti_container_of(node, tutti_coll_op, by_id);
}

bool
tutti_coll_op_is_p2p(const tutti_coll_op *op)
{
    return op->args.kind == TUTTI_COLL_SEND || op->args.kind == TUTTI_COLL_RECV;
}

/* "group world op 41: all_reduce(sum, FP32[4]): rank 3 is gone: the connection to it broke" */
void
tutti_coll_lost_words(tutti_coll_op *op, uint32_t rank, const char *reason, tutti_error *err)
{
    char words[256];
    tutti_text text = tutti_text_in(words, sizeof(words));

    tutti_text_add(&text, "group %s ", op->group->name);
    if (op->sequence != 0) {
        tutti_text_add(&text, "op %" PRIu64 " ", op->sequence);
    }
    tutti_coll_describe(&op->args, &text);
    (void)TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "RANK_LOST", "%s: rank %" PRIu32 " is gone: %s",
                         words, rank, reason);
    err->scope = TUTTI_SCOPE_GROUP;
    tutti_error_set_op(err, op->group->name, op->sequence, (int32_t)rank);
}
