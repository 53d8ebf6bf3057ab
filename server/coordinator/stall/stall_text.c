/*
 * A stall as a sentence: what it is, who is in it, and of each other rank what it does instead. And
 * a group whose ranks stand at different ops.
 */
#include <inttypes.h>

#include "server/coordinator/stall/progress.h"

#define NAMED_MAX 8

static void
add_seconds(tutti_text *text, uint64_t ms)
{
    tutti_text_add(text, "%.3g s", (double)ms / 1000.0);
}

/* "op 40 all_reduce(sum, FP32[4])" */
static void
add_last(const tutti_coordinator_stalled_rank *one, tutti_text *text)
{
    if (one->last_sequence != 0) {
        tutti_text_add(text, "op %" PRIu64 " ", one->last_sequence);
    }
    tutti_text_add(text, "%s", one->last_op);
}

static void
add_absent(const tutti_coordinator_stalled_rank *one, tutti_text *text)
{
    if (one->last_op[0] == '\0') {
        tutti_text_add(text, "is alive and has not called it, nor anything else here");
        return;
    }
    tutti_text_add(text, "is alive and has not called it; its last op, ");
    add_last(one, text);
    tutti_text_add(text, ", ended ");
    add_seconds(text, one->last_ms);
    tutti_text_add(text, " ago");
}

static void
add_busy(const tutti_coordinator_stalled_rank *one, const char *doing, tutti_text *text)
{
    tutti_text_add(text, "%s ", doing);
    add_last(one, text);
    tutti_text_add(text, ", for ");
    add_seconds(text, one->last_ms);
}

static void
add_stall_text_rank(const tutti_coordinator_stalled_rank *one, tutti_text *text)
{
    tutti_text_add(text, "rank %" PRIu32 " ", one->rank);
    switch (one->standing) {
    case TUTTI_COORDINATOR_ABSENT:
        add_absent(one, text);
        break;
    case TUTTI_COORDINATOR_SLOW:
        add_busy(one, "is behind and moves:", text);
        break;
    case TUTTI_COORDINATOR_QUEUED:
        add_busy(one, "has called it and waits for its tensors:", text);
        break;
    case TUTTI_COORDINATOR_SILENT:
        tutti_text_add(text, "%sdoes not answer (stopped, starved or cut off), heard last ",
                       one->arrived ? "is in it and " : "");
        add_seconds(text, one->silent_ms);
        tutti_text_add(text, " ago");
        break;
    case TUTTI_COORDINATOR_GONE:
        tutti_text_add(text, "is gone: %s", one->reason);
        break;
    case TUTTI_COORDINATOR_ARRIVED:
        tutti_text_add(text, "is in it");
        break;
    }
}

static void
add_stall_text_head(const tutti_coordinator_stall *stall, tutti_text *text)
{
    tutti_text_add(text, "group %s ", stall->group);
    if (stall->sequence != 0) {
        tutti_text_add(text, "op %" PRIu64 " ", stall->sequence);
    }
    tutti_text_add(text, "%s: ", stall->op);
    if (stall->sequence != 0) {
        tutti_text_add(text, "%" PRIu32 " of %" PRIu32 " ranks are in it", stall->arrived_count,
                       stall->group_size);
    } else {
        tutti_text_add(text, "rank %" PRIu32 " is in it", stall->arrived[0]);
    }
    tutti_text_add(text, ", for ");
    add_seconds(text, stall->waited_ms);
}

void
tutti_coordinator_stall_describe(const tutti_coordinator_stall *stall, tutti_text *text)
{
    uint32_t i;

    add_stall_text_head(stall, text);
    for (i = 0; i < stall->other_count && i < NAMED_MAX; i++) {
        tutti_text_add(text, "; ");
        add_stall_text_rank(&stall->others[i], text);
    }
    if (stall->other_count > NAMED_MAX) {
        tutti_text_add(text, "; and %" PRIu32 " more", stall->other_count - NAMED_MAX);
    }
    if (stall->other_count == 0 && stall->sequence != 0) {
        tutti_text_add(text, "; every rank has called it, data is moving");
    }
}

/* ------------------------------------------------------------------------------ uneven groups */

static void
add_count(const tutti_coordinator_counted_rank *one, tutti_text *text)
{
    if (one->sequence == 0) {
        tutti_text_add(text, "no op");
        return;
    }
    tutti_text_add(text, "%" PRIu64 " op%s", one->sequence, one->sequence == 1 ? "" : "s");
    if (one->last_op[0] != '\0') {
        tutti_text_add(text, " (the last, %s, ended ", one->last_op);
        add_seconds(text, one->last_ms);
        tutti_text_add(text, " ago)");
    }
}

void
tutti_coordinator_uneven_describe(const tutti_coordinator_uneven *uneven, tutti_text *text)
{
    uint32_t i;

    tutti_text_add(text, "group %s: ", uneven->group);
    for (i = 0; i < uneven->behind_count && i < NAMED_MAX; i++) {
        tutti_text_add(text, "rank %" PRIu32 " is behind, it has called ", uneven->behind[i].rank);
        add_count(&uneven->behind[i], text);
        tutti_text_add(text, "; ");
    }
    if (uneven->behind_count > NAMED_MAX) {
        tutti_text_add(text, "%" PRIu32 " more are behind; ", uneven->behind_count - NAMED_MAX);
    }
    tutti_text_add(text, "rank %" PRIu32 " has called ", uneven->ahead.rank);
    add_count(&uneven->ahead, text);
    tutti_text_add(text, "; nothing runs there");
}
