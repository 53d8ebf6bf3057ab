/*
 * An op that is late asks every member where it stands, and says so in its error: which ranks have
 * not called it, what they did last, and which do not answer; or which rank waits for which when
 * all are in it, as when two of them do not reach each other.
 *
 * Engine's thread. op->inquiry is made at the deadline and freed when the op ends. If the op goes
 * on meanwhile and ends well, the inquiry is forgotten. Answers are given for ops and groups that
 * do not exist here: "has not called it" is an answer.
 */
#include "coll/engine/inquiry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "coll/engine/engine.h"
#include "coll/engine/group.h"
#include "coll/net/io.h"
#include "coll/packet/packet.h"
#include "coll/state/events.h"
#include "coll/state/lookup.h"

#define WORDS_MAX 96
#define NAMED_MAX 8
#define WAITED_MAX 4 /* ranks that one rank is said to wait for */
#define WAITS "waits for rank"

/* In this order: find_culprit takes the first two for a rank that holds the op up. The numbers
 * travel in a REPORT's `tag`. A member moves once, from SILENT to what it reports. */
enum standing {
    STANDING_SILENT,  /* no answer */
    STANDING_ABSENT,  /* has not called it */
    STANDING_CALLED,  /* is in it */
    STANDING_THROUGH, /* has left it */
};

typedef struct standing_of {
    uint8_t standing;
    char last[WORDS_MAX]; /* what an absent rank called last; whom a rank in it waits for */
} standing_of;

struct tutti_coll_inquiry {
    uint32_t waiting; /* members that are SILENT, without this rank */
    standing_of members[];
};

void
tutti_coll_inquiry_free(tutti_coll_op *op)
{
    free(op->inquiry);
    op->inquiry = NULL;
}

static tutti_packet
packet_for(const tutti_coll_engine *engine, tutti_packet_kind kind)
{
    return (tutti_packet){.kind = kind,
                          .from = engine->rank,
                          .job_id = engine->job_id,
                          .incarnation = engine->incarnation};
}

/* Ask all others. */
static void
begin_inquiry(tutti_coll_op *op)
{
    const tutti_coll_group *group = op->group;
    tutti_packet packet = packet_for(group->engine, TUTTI_PACKET_QUERY);
    uint32_t i;

    packet.group = group->id;
    packet.epoch = op->epoch;
    packet.sequence = op->sequence;
    op->inquiry->waiting = group->size - 1;
    for (i = 0; i < group->size; i++) {
        if (i != group->rank) {
            tutti_coll_note(group->engine, group->ranks[i], &packet, NULL, 0);
        }
    }
}

static uint32_t
add_waited(const tutti_coll_op *op, bool incoming, tutti_text *text)
{
    uint32_t count = 0;
    const tutti_list_node *link;

    for (link = op->ios.next; link != &op->ios; link = link->next) {
        const coll_io *io = tutti_container_of(link, coll_io, in_op);

        if (io->incoming != incoming || io->peer == NULL) {
            continue;
        }
        if (count < WAITED_MAX) {
            tutti_text_add(text, "%s %" PRIu32, count == 0 ? WAITS : ",", io->peer->rank);
        }
        count++;
    }
    if (count > WAITED_MAX) {
        tutti_text_add(text, " and %" PRIu32 " more", count - WAITED_MAX);
    }
    return count;
}

/* The ranks whose messages have not come; or, if all have, the ranks that have not taken ours. */
static void
say_waited(const tutti_coll_op *op, char *words)
{
    tutti_text text = tutti_text_in(words, WORDS_MAX);

    words[0] = '\0';
    if (add_waited(op, true, &text) == 0) {
        (void)add_waited(op, false, &text);
    }
}

/* Where does this rank stand with that op? Only an op of the same epoch counts: in another one the
 * numbers mean other ops. */
void
tutti_coll_answer_query(tutti_coll_engine *engine, const tutti_packet *query)
{
    tutti_coll_group *group = tutti_coll_group_by_id(engine, query->group);
    tutti_packet packet = packet_for(engine, TUTTI_PACKET_REPORT);
    char words[WORDS_MAX] = "nothing on this group";
    unsigned char key[8];
    tutti_map_node *node;

    packet.group = query->group;
    packet.epoch = query->epoch;
    packet.sequence = query->sequence;
    packet.tag = STANDING_ABSENT;
    if (group != NULL && group->live_epoch == query->epoch && group->begun > 0) {
        tutti_text text = tutti_text_in(words, sizeof(words));

        tutti_text_add(&text, "op %" PRIu64 "%s", group->begun,
                       group->begun_args.kind != 0 ? " " : ", which was refused or had failed");
        if (group->begun_args.kind != 0) {
            tutti_coll_describe(&group->begun_args, &text);
        }
        node = tutti_map_find(&group->ops, tutti_map_key_u64(key, query->sequence));
        if (node != NULL) {
            packet.tag = STANDING_CALLED;
            say_waited(tutti_container_of(node, tutti_coll_op, by_sequence), words);
        } else if (group->begun >= query->sequence) {
            packet.tag = STANDING_THROUGH;
        }
    }
    tutti_coll_note(engine, query->from, &packet, words, strlen(words));
}

static void
add_named(const tutti_coll_op *op, enum standing wanted, const char *words, tutti_text *text)
{
    const tutti_coll_group *group = op->group;
    uint32_t count = 0;
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        const standing_of *one = &op->inquiry->members[i];

        if (i == group->rank || one->standing != wanted) {
            continue;
        }
        if (count < NAMED_MAX) {
            tutti_text_add(text, "%s rank %" PRIu32 " %s", count == 0 ? ";" : ",", group->ranks[i],
                           words);
            if (wanted == STANDING_ABSENT) {
                tutti_text_add(text, " (last: %s)", one->last);
            }
        }
        count++;
    }
    if (count > NAMED_MAX) {
        tutti_text_add(text, ", and %" PRIu32 " more", count - NAMED_MAX);
    }
}

/* All are in it. An answer is put into the text only if it has the form that say_waited makes: a
 * member's free words cannot get into another rank's error. */
static void
add_waits(tutti_coll_op *op, tutti_text *text)
{
    const tutti_coll_group *group = op->group;
    uint32_t count = 0;
    uint32_t i;

    tutti_text_add(text, "; every rank has called it, data was still moving");
    say_waited(op, op->inquiry->members[group->rank].last);
    for (i = 0; i < group->size && count < NAMED_MAX; i++) {
        const standing_of *one = &op->inquiry->members[i];

        if (one->standing != STANDING_THROUGH &&
            strncmp(one->last, WAITS, sizeof(WAITS) - 1) == 0) {
            tutti_text_add(text, "%s rank %" PRIu32 " %s", count == 0 ? ":" : ",", group->ranks[i],
                           one->last);
            count++;
        }
    }
}

/* The one rank that is to blame, if there is exactly one; with several, or none, the error blames
 * none. */
static int32_t
find_culprit(const tutti_coll_op *op)
{
    int32_t culprit = TUTTI_ERROR_RANK_NONE;
    uint32_t count = 0;
    uint32_t i;

    for (i = 0; i < op->group->size; i++) {
        if (i != op->group->rank && op->inquiry->members[i].standing <= STANDING_ABSENT) {
            culprit = (int32_t)op->group->ranks[i];
            count++;
        }
    }
    return count == 1 ? culprit : TUTTI_ERROR_RANK_NONE;
}

static void
add_inquiry_head(const tutti_coll_op *op, tutti_text *text)
{
    const double seconds =
        (double)(op->group->engine->now_ns - op->started_ns) / (double)TUTTI_NS_PER_S;

    tutti_text_add(text, "group %s ", op->group->name);
    if (op->sequence != 0) {
        tutti_text_add(text, "op %" PRIu64 " ", op->sequence);
    }
    tutti_coll_describe(&op->args, text);
    tutti_text_add(text, " timed out after %.3g s", seconds);
}

/* The op fails for the whole group with what this rank has found. Members whose deadline is a
 * little later get this abort instead of asking for themselves. */
static void
end_inquiry(tutti_coll_op *op)
{
    char words[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(words, sizeof(words));
    const int32_t culprit = find_culprit(op);
    tutti_error err;
    size_t head;

    add_inquiry_head(op, &text);
    head = text.used;
    add_named(op, STANDING_ABSENT, "has not called it", &text);
    add_named(op, STANDING_SILENT, "does not answer", &text);
    if (text.used == head) {
        add_waits(op, &text);
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED,
                         op->args.monitored ? "MISSING_RANKS" : "TIMEOUT", "%s", words);
    tutti_error_set_op(&err, op->group->name, op->sequence, culprit);
    tutti_coll_op_fail(op, &err, true);
}

void
tutti_coll_recv_report(tutti_coll_op *op, const tutti_packet *packet, const void *words,
                       size_t size)
{
    const uint32_t member = tutti_coll_group_rank_of(op->group, packet->from);
    standing_of *one;

    if (op->inquiry == NULL || member == NO_RANK ||
        op->inquiry->members[member].standing != STANDING_SILENT ||
        packet->tag > STANDING_THROUGH || words == NULL) {
        return;
    }
    one = &op->inquiry->members[member];
    one->standing = (uint8_t)packet->tag;
    /* The words need not end with a zero: the precision bounds the read, `last` bounds what is
     * kept. */
    (void)snprintf(one->last, sizeof(one->last), "%.*s", (int)size, (const char *)words);
    op->inquiry->waiting--;
    if (op->inquiry->waiting == 0) {
        end_inquiry(op);
    }
}

static void
fail_p2p(tutti_coll_op *op)
{
    const bool sends = op->args.kind == TUTTI_COLL_SEND;
    char words[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(words, sizeof(words));
    int32_t culprit = TUTTI_ERROR_RANK_NONE;
    tutti_error err;

    add_inquiry_head(op, &text);
    if (op->args.peer == TUTTI_COLL_ANY_SOURCE) {
        tutti_text_add(&text, "; no rank has sent");
    } else {
        culprit = (int32_t)op->group->ranks[op->args.peer];
        tutti_text_add(&text, "; rank %" PRId32 " has not %s", culprit,
                       sends ? "received it" : "sent");
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT", "%s", words);
    tutti_error_set_op(&err, op->group->name, 0, culprit);
    tutti_coll_op_fail(op, &err, true);
}

/*
 * Sends and receives have one partner: there is nothing to ask. Of a collective the timer runs
 * twice: at the deadline it begins the inquiry and is set to INQUIRY_NS more; then it ends it with
 * the answers that have come.
 */
void
tutti_coll_on_deadline(tutti_timer *timer)
{
    tutti_coll_op *op = tutti_container_of(timer, tutti_coll_op, timer);
    tutti_coll_engine *engine = op->group->engine;
    const size_t members = op->group->size;

    if (op->args.kind == TUTTI_COLL_SEND || op->args.kind == TUTTI_COLL_RECV) {
        fail_p2p(op);
        return;
    }
    if (op->inquiry != NULL) {
        end_inquiry(op);
        return;
    }
    op->inquiry = calloc(1, sizeof(*op->inquiry) + members * sizeof(op->inquiry->members[0]));
    if (op->inquiry == NULL) {
        tutti_error err;

        (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                             "group %s op %" PRIu64 " timed out", op->group->name, op->sequence);
        tutti_coll_op_fail(op, &err, true);
        return;
    }
    tutti_timers_start(&engine->timers, &op->timer, engine->now_ns + INQUIRY_NS);
    begin_inquiry(op);
}
