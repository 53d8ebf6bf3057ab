/*
 * All-to-all in parts of any length: every rank tells every other one how many rows it will send,
 * before any row moves. A difference is found by the receiver, who tells the group; a second
 * agreement makes sure that everybody has compared.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "coll/engine/engine.h"

#define SHOWN_MAX 16

tutti_code
tutti_coll_send_splits(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    uint32_t i;

    op->counts = calloc(group->size, sizeof(*op->counts));
    if (op->counts == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to compare splits");
    }
    for (i = 0; i < group->size; i++) {
        const uint64_t rows = (uint64_t)op->args.send_splits[i];

        if (i == group->rank) {
            op->counts[i] = rows;
            continue;
        }
        tutti_coll_post_packet(op, TUTTI_PACKET_DATA, STEP_ANNOUNCE, group->ranks[i], NULL, 0,
                               rows);
        tutti_coll_expect(op, STEP_ANNOUNCE, group->ranks[i], NULL, 0, false, &op->counts[i]);
    }
    return TUTTI_OK;
}

static void
add_counts(const char *words, const uint64_t *counts, uint32_t size, tutti_text *text)
{
    uint32_t i;

    tutti_text_add(text, "%s [", words);
    for (i = 0; i < size && i < SHOWN_MAX; i++) {
        tutti_text_add(text, "%s%" PRIu64, i == 0 ? "" : ", ", counts[i]);
    }
    tutti_text_add(text, size > SHOWN_MAX ? ", ...]" : "]");
}

tutti_code
tutti_coll_compare_splits(const tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    const uint64_t *expected = (const uint64_t *)op->args.recv_splits;
    char words[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(words, sizeof(words));
    uint32_t i = 0;

    while (i < group->size && op->counts[i] == expected[i]) {
        i++;
    }
    if (i == group->size) {
        return TUTTI_OK;
    }
    add_counts(" expects", expected, group->size, &text);
    add_counts(", ranks send", op->counts, group->size, &text);
    (void)TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                         "group %s op %" PRIu64 ": splits differ: rank %" PRIu32 "%s", group->name,
                         op->sequence, group->ranks[group->rank], words);
    tutti_error_set_op(err, group->name, op->sequence, (int32_t)group->ranks[i]);
    return err->code;
}
