/*
 * One tensor over several streams, so that one upload can use several connections and cores. Bulk
 * loop, which runs all streams of all parts: so nothing here has a lock.
 *
 * The stream that brings byte 0 is the leader. It names the tensor, has the lock set, and its
 * answer is the answer of the whole. Other parts name only the transfer, 16 bytes that the client
 * has drawn. Streams begin in any order:
 *
 * - a part that finds its leader takes its byte range there and follows it (self->leader, a
 *   reference);
 * - a part that comes before its leader waits in the list, --op-timeout at most (stall.c), and
 *   gather_part attaches it when the leader comes;
 * - a part that comes when its leader has gone is refused at once, as long as the leader's transfer
 *   is among the last ENDED_KEPT.
 *
 * All end together. If a part's stream ends early, the leader fails, and with it the other parts.
 * If the leader's stream ends, all of its parts fail. The tensor is released when the last part has
 * let go of the leader.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"
#include "server/agent/transfer/access.h"

#define ENDED_KEPT 256 /* transfers whose first byte's stream has ended, and may miss parts yet */

struct agent_uploads {
    tutti_list_node parts; /* that live */
    unsigned char ended[ENDED_KEPT][AGENT_TRANSFER_BYTES];
    size_t ended_count; /* ever; `ended` is a ring of the newest */
};

tutti_code
agent_parts_open(tutti_agent *agent, tutti_error *err)
{
    agent->uploads = calloc(1, sizeof(*agent->uploads));
    if (agent->uploads == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for uploads");
    }
    tutti_list_init(&agent->uploads->parts);
    return TUTTI_OK;
}

void
agent_parts_close(tutti_agent *agent)
{
    free(agent->uploads);
    agent->uploads = NULL;
}

static agent_access *
access_from(tutti_list_node *link)
{
    return tutti_container_of(link, agent_access, part);
}

static bool
is_leader(const agent_access *access)
{
    return access->parted && access->begin_offset == 0;
}

/*
 * The same transfer and the same caller. Without the second, a caller that has seen the transfer of
 * another (in a log, say) could write into its tensor.
 */
static bool
does_part_belong(const agent_access *left, const agent_access *right)
{
    return memcmp(left->transfer, right->transfer, sizeof(left->transfer)) == 0 &&
           strcmp(tutti_rpc_call_identity(left->call), tutti_rpc_call_identity(right->call)) == 0;
}

/* A walk over all parts that live: they are few, and this is once for each stream. */
static agent_access *
find_leader(const agent_access *access)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &access->agent->uploads->parts)
    {
        agent_access *other = access_from(link);

        if (is_leader(other) && does_part_belong(access, other)) {
            return other;
        }
    }
    return NULL;
}

static void
remember_ended(const agent_access *leader)
{
    struct agent_uploads *uploads = leader->agent->uploads;

    memcpy(uploads->ended[uploads->ended_count++ % ENDED_KEPT], leader->transfer,
           AGENT_TRANSFER_BYTES);
}

/* Without this a part that is late would wait --op-timeout for a leader that has been here. */
static tutti_code
check_ended(const agent_access *access, tutti_error *err)
{
    const struct agent_uploads *uploads = access->agent->uploads;
    const size_t count =
        uploads->ended_count < ENDED_KEPT ? uploads->ended_count : (size_t)ENDED_KEPT;
    size_t i;

    for (i = 0; i < count; i++) {
        if (memcmp(uploads->ended[i], access->transfer, AGENT_TRANSFER_BYTES) == 0) {
            return TUTTI_FAIL_FOR(err, TUTTI_ABORTED, "PART_FAILED",
                                  "the stream of the first byte of this tensor ended before this "
                                  "part came");
        }
    }
    return TUTTI_OK;
}

/*
 * Take a range of the leader's bytes. It stays taken when its stream has ended: arrived_bytes is a
 * sum, and a range that came twice would count twice and commit a tensor with a gap. The leader
 * calls this for its own range, too.
 */
static tutti_code
take_range(const agent_access *self, agent_access *leader, tutti_error *err)
{
    agent_ranges *taken = leader->taken;
    size_t i;

    if (!agent_access_is_open(leader) || self->end_offset > leader->total_bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PART",
                              "a part of bytes %" PRIu64 " to %" PRIu64 " of %s of %" PRIu64
                              " bytes, need a range inside a tensor that is still uploaded",
                              self->begin_offset, self->end_offset,
                              !agent_access_is_open(leader) ? "an upload that has ended,"
                                                            : "a tensor",
                              leader->total_bytes);
    }
    for (i = 0; i < taken->count; i++) {
        if (self->begin_offset < taken->ends[i] && taken->begins[i] < self->end_offset) {
            return TUTTI_FAIL_FOR(
                err, TUTTI_INVALID_ARGUMENT, "BAD_PART",
                "bytes %" PRIu64 " to %" PRIu64 " overlap with the part of %" PRIu64 " to %" PRIu64,
                self->begin_offset, self->end_offset, taken->begins[i], taken->ends[i]);
        }
    }
    if (taken->count == AGENT_UPLOAD_PARTS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PART",
                              "more than %d parts of one upload, the limit",
                              AGENT_UPLOAD_PARTS_MAX);
    }
    taken->begins[taken->count] = self->begin_offset;
    taken->ends[taken->count++] = self->end_offset;
    return TUTTI_OK;
}

/* The leader is here; its turn may come later, and then agent_parts_turn grants this part. */
static tutti_code
attach_part(agent_access *self, agent_access *leader, tutti_error *err)
{
    TUTTI_TRY(take_range(self, leader, err));

    self->leader = leader;
    if (agent_access_is_granted(leader)) {
        agent_access_grant(self);
    }
    atomic_fetch_add(&leader->refs, 1);
    return TUTTI_OK;
}

/* The range must fit in 63 bits, so sums of offsets cannot overflow from here on. */
static tutti_code
join_part(agent_access *self, tutti_bytes transfer, uint64_t offset, uint64_t bytes,
          tutti_error *err)
{
    if (transfer.size != AGENT_TRANSFER_BYTES) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PART",
                              "a transfer id of %zu bytes, need %d", transfer.size,
                              AGENT_TRANSFER_BYTES);
    }
    if (bytes == 0 || offset > INT64_MAX || bytes > INT64_MAX - offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PART",
                              "a part of %" PRIu64 " bytes from byte %" PRIu64
                              " on, need at least 1 byte, and an end of at most 2^63 - 1",
                              bytes, offset);
    }
    memcpy(self->transfer, transfer.data, sizeof(self->transfer));
    self->begin_offset = offset;
    self->offset = offset;
    self->end_offset = offset + bytes;
    return TUTTI_OK;
}

static void
list_parts(agent_access *self)
{
    self->parted = true;
    tutti_list_add(&self->agent->uploads->parts, &self->part);
}

tutti_code
agent_parts_follow(agent_access *access, tutti_bytes transfer, uint64_t offset, uint64_t bytes,
                   tutti_error *err)
{
    tutti_code code = join_part(access, transfer, offset, bytes, err);
    agent_access *leader = code == TUTTI_OK ? find_leader(access) : NULL;

    if (leader != NULL) {
        code = attach_part(access, leader, err);
    } else if (code == TUTTI_OK) {
        code = check_ended(access, err);
    }
    if (code == TUTTI_OK) {
        list_parts(access);
    }
    return code;
}

/*
 * Parts that came before their leader. Each was checked alone; whether it fits is known only now.
 */
static void
gather_part(agent_access *leader)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    tutti_error err;

    tutti_list_each(link, spare, &leader->agent->uploads->parts)
    {
        agent_access *other = access_from(link);

        if (!is_leader(other) && other->leader == NULL && agent_access_is_open(other) &&
            does_part_belong(other, leader) && attach_part(other, leader, &err) != TUTTI_OK) {
            agent_stream_finish(other, &err);
        }
    }
}

tutti_code
agent_parts_lead(agent_access *access, tutti_bytes transfer, uint64_t bytes, tutti_error *err)
{
    TUTTI_TRY(join_part(access, transfer, 0, bytes, err));

    if (find_leader(access) != NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_ALREADY_EXISTS, "TRANSFER_TAKEN",
            "another upload has this transfer id: draw 16 random bytes for each upload");
    }
    access->taken = calloc(1, sizeof(*access->taken));
    TUTTI_TRY(access->taken != NULL ? take_range(access, access, err)
                                    : TUTTI_FAIL_MEMORY(err, "no memory for an upload in parts"));
    list_parts(access);
    gather_part(access);
    return TUTTI_OK;
}

/* The leader's turn is that of its parts: the lock set is granted once, for the tensor. */
void
agent_parts_turn(agent_access *access)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    if (!is_leader(access)) {
        return;
    }
    tutti_list_each(link, spare, &access->agent->uploads->parts)
    {
        agent_access *other = access_from(link);

        if (other->leader == access && agent_access_is_open(other) &&
            !agent_access_is_granted(other)) {
            agent_access_grant(other);
            agent_access_moved(other);
            agent_upload_turn(other);
        }
    }
}

/*
 * The part is complete. A follower's call is answered now; the leader's call is answered with the
 * part that comes last, whichever it is. Returns true when the caller is the leader and has to
 * commit.
 */
bool
agent_parts_arrived(agent_access *access)
{
    agent_access *leader = access->leader != NULL ? access->leader : access;
    bool all;

    access->whole = true;
    leader->arrived_bytes += access->end_offset - access->begin_offset;
    all = leader->arrived_bytes == leader->total_bytes;
    if (leader == access) {
        return all;
    }
    agent_access_answered(access);
    access->agent->hooks->answer_upload(access, NULL);
    if (all && agent_access_is_open(leader)) {
        agent_upload_commit(leader);
    }
    return false;
}

static void
end_followers(agent_access *leader)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "PART_FAILED",
                         "the stream of the first byte of this tensor has ended");
    tutti_list_each(link, spare, &leader->agent->uploads->parts)
    {
        agent_access *other = access_from(link);

        if (other->leader == leader && agent_access_is_open(other)) {
            agent_stream_finish(other, &err);
        }
    }
}

/*
 * The stream has ended, well or not, as the last call for this part. Out of the list first: the
 * ends of other streams that follow from here must not find it.
 */
void
agent_parts_end(agent_access *access)
{
    tutti_error err;

    if (!access->parted) {
        return;
    }
    tutti_list_remove(&access->part);
    if (is_leader(access)) {
        remember_ended(access);
        end_followers(access);
    } else if (access->leader != NULL && !access->whole && agent_access_is_open(access->leader)) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "PART_FAILED",
                             "the stream of bytes %" PRIu64 " to %" PRIu64
                             " of this tensor ended after %" PRIu64 " bytes",
                             access->begin_offset, access->end_offset,
                             access->offset - access->begin_offset);
        agent_stream_finish(access->leader, &err);
    }
}

bool
agent_parts_waits(const agent_access *access)
{
    return access->leader != NULL && !agent_access_is_granted(access->leader);
}

void
agent_parts_say_stalled(const agent_access *access, double seconds, tutti_error *err)
{
    const char *what = "send, or end the call";

    if (access->whole) {
        what = "the other parts of its tensor have not come";
    } else if (!is_leader(access) && access->leader == NULL) {
        what = "the stream of the tensor's first byte has not come";
    }
    (void)TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                         "a part of an upload has not moved for %.3g s (--op-timeout), after "
                         "%" PRIu64 " of %" PRIu64 " bytes: %s",
                         seconds, access->offset - access->begin_offset,
                         access->end_offset - access->begin_offset, what);
}
