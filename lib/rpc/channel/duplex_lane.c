/*
 * Duplex streams whose messages go through a lane (rpc/lane.h). gRPC is left with what is too large for the
 * lane, with the end, and with the half-close.
 *
 * Who polls sleeps in the lane, because almost all comes there, and looks at gRPC between slices:
 * at first soon, as a stream that is refused is so at once, and less often while nothing comes. It sleeps
 * in gRPC while only that can bring the next thing: a message that a note has announced, or the end. While gRPC has
 * a write of ours it sleeps there in short slices, and looks at the ring in between.
 *
 * Writing is behind `lock`, because what finds no room is written later by who polls. `blocked` is set before
 * the lane's flag that asks the server for a wake-up, and who polls looks at it behind its own flag that it
 * sleeps: so either it sees `blocked`, or the server sees that it sleeps.
 *
 * `woken` and `in_grpc` are Dekker's pattern, too: who wakes sets the one and looks at the other.
 */
#include <assert.h>
#include <sched.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "lane/lane.h"
#include "rpc/channel/duplex_private.h"
#include "rpc/lane.h"
#include "rpc/message/lane_message.h"

#define SLICE_FIRST_NS TUTTI_NS_PER_MS
#define SLICE_NS (50 * TUTTI_NS_PER_MS)
#define SLICE_MAX_NS (500 * TUTTI_NS_PER_MS)
#define SENDING_NS TUTTI_NS_PER_MS
#define SENDING_MAX_NS (8 * TUTTI_NS_PER_MS)
#define LOOK_NS 1 /* a time that has passed */

void
rpc_duplex_lane_init(rpc_duplex_lane *self, const tutti_rpc_lane_end *end)
{
    (void)pthread_mutex_init(&self->lock, NULL);
    if (end != NULL) {
        self->end = *end;
        self->slice_ns = SLICE_FIRST_NS;
    }
}

void
rpc_duplex_lane_fini(rpc_duplex_lane *self)
{
    if (self->pending != NULL) {
        grpc_byte_buffer_destroy(self->pending);
    }
    (void)pthread_mutex_destroy(&self->lock);
}

/* ------------------------------------------------------------------ writing */

/* With the lock: the message, its note, or the half-close. False: there is no room. */
static bool
put_in_lane(rpc_duplex_lane *self, grpc_byte_buffer *message)
{
    tutti_lane *lane = self->end.lane;
    const size_t bytes = message == NULL ? 0 : rpc_lane_message_bytes(message);

    if (!tutti_lane_fits(lane, bytes)) {
        atomic_store(&self->blocked, true);
        atomic_thread_fence(memory_order_seq_cst);
        if (tutti_lane_is_crowded(lane, bytes)) {
            return false;
        }
    }
    if (message == NULL) {
        (void)tutti_lane_put(lane, NULL, 0, TUTTI_RPC_LANE_END);
    } else {
        (void)rpc_lane_message_put(lane, message);
    }
    atomic_store_explicit(&self->blocked, false, memory_order_relaxed);
    return true;
}

/* Behind its place in the ring. True: that was all. */
static bool
finish_put(tutti_rpc_duplex *self, grpc_byte_buffer *message)
{
    if (message == NULL) {
        rpc_duplex_send_close(self);
        return false;
    }
    if (rpc_lane_message_is_large(message)) {
        rpc_duplex_send(self, message, false);
        return false;
    }
    atomic_store(&self->writing, false);
    return true;
}

/* A stream that was cancelled has not ended well: the server must not hear of a half-close. */
bool
rpc_duplex_lane_write(tutti_rpc_duplex *duplex, grpc_byte_buffer *message)
{
    rpc_duplex_lane *lane = &duplex->lane;
    bool put;

    if (message == NULL && atomic_load(&lane->cancelled)) {
        return finish_put(duplex, NULL);
    }
    (void)pthread_mutex_lock(&lane->lock);
    put = put_in_lane(lane, message);
    if (!put && message != NULL) {
        lane->pending = grpc_byte_buffer_copy(message);
    }
    (void)pthread_mutex_unlock(&lane->lock);
    return put && finish_put(duplex, message);
}

/* True: what has waited for room has left. */
static bool
flush_blocked(tutti_rpc_duplex *self)
{
    rpc_duplex_lane *lane = &self->lane;
    grpc_byte_buffer *message;
    bool left;
    bool put;

    (void)pthread_mutex_lock(&lane->lock);
    message = lane->pending;
    put = atomic_load(&lane->blocked) && put_in_lane(lane, message);
    lane->pending = put ? NULL : message;
    (void)pthread_mutex_unlock(&lane->lock);
    if (!put) {
        return false;
    }
    left = finish_put(self, message);
    if (message != NULL) {
        grpc_byte_buffer_destroy(message);
    }
    return left;
}

/* ------------------------------------------------------------------ reading */

/* What makes no sense ends the stream. */
static tutti_rpc_event
fail_broken_lane(tutti_rpc_duplex *self, tutti_error *err)
{
    (void)TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                         "the lane's memory has positions or sizes that no server writes");
    self->told = true;
    tutti_rpc_duplex_cancel(self);
    return TUTTI_RPC_ENDED;
}

/* The next message of the ring. NOTHING: there is none, or it is a note. */
static tutti_rpc_event
read_ring(tutti_rpc_duplex *self, tutti_rpc_message **ret_message, tutti_error *err)
{
    rpc_duplex_lane *lane = &self->lane;
    grpc_byte_buffer *received;
    uint32_t kind = 0;
    size_t bytes = 0;
    const tutti_lane_found found = tutti_lane_peek(lane->end.lane, &bytes, &kind);

    if (found == TUTTI_LANE_NOTHING) {
        return TUTTI_RPC_NOTHING;
    }
    if (found == TUTTI_LANE_BROKEN || kind > TUTTI_RPC_LANE_ELSEWHERE) {
        return fail_broken_lane(self, err);
    }
    lane->answered = true;
    received = rpc_lane_message_take(lane->end.lane, bytes);
    if (kind == TUTTI_RPC_LANE_BYTES) {
        return rpc_duplex_unpack(self, received, ret_message, err);
    }
    grpc_byte_buffer_destroy(received);
    lane->elsewhere = true;
    return TUTTI_RPC_NOTHING;
}

/* All events of gRPC's that are there; WRITTEN is told at once. */
static tutti_rpc_event
drain_grpc(tutti_rpc_duplex *self)
{
    tutti_rpc_event happened;
    bool passed;

    do {
        happened = rpc_duplex_step(self, LOOK_NS, &passed);
    } while (happened == TUTTI_RPC_NOTHING && !passed);
    return happened;
}

/* Will no more come by the lane? */
static bool
is_lane_over(const tutti_rpc_duplex *self)
{
    const rpc_duplex_lane *lane = &self->lane;

    return lane->gone || tutti_lane_is_closed(lane->end.lane) || atomic_load(&lane->cancelled) ||
           (self->arrived && self->received == NULL);
}

/* Does only gRPC bring what is next? */
static bool
waits_for_grpc(const tutti_rpc_duplex *self)
{
    return self->lane.elsewhere || is_lane_over(self);
}

static void
begin_look(rpc_duplex_lane *self, uint64_t now_ns)
{
    const uint64_t max_ns = self->answered ? SLICE_NS : SLICE_MAX_NS;

    self->slice_ns = self->slice_ns * 2 < max_ns ? self->slice_ns * 2 : max_ns;
    self->look_ns = now_ns + self->slice_ns;
    self->gone = rpc_lane_is_gone(&self->end);
    self->answered = false; /* whatever comes until then brings the slices back to SLICE_NS */
}

/*
 * What is there, without waiting. The ring is looked at behind the signs that no more will come:
 * what the server wrote last is read first.
 */
static tutti_rpc_event
look_once(tutti_rpc_duplex *self, uint64_t now_ns, tutti_rpc_message **ret_message,
          tutti_error *err)
{
    rpc_duplex_lane *lane = &self->lane;
    const bool due = now_ns >= lane->look_ns;
    tutti_rpc_event happened = TUTTI_RPC_NOTHING;
    bool over;

    if (atomic_load(&lane->blocked) && flush_blocked(self)) {
        return TUTTI_RPC_WRITTEN;
    }
    if (due) {
        begin_look(lane, now_ns);
    }
    over = is_lane_over(self);
    if (due || over || lane->elsewhere || atomic_load(&self->sending)) {
        happened = drain_grpc(self);
        over = over || is_lane_over(self);
    }
    if (happened == TUTTI_RPC_NOTHING && !lane->elsewhere) {
        happened = read_ring(self, ret_message, err);
    }
    if (happened == TUTTI_RPC_NOTHING && self->arrived && (lane->elsewhere || over)) {
        lane->elsewhere = false;
        happened = rpc_duplex_take(self, ret_message, err);
    }
    return happened;
}

/* ------------------------------------------------------------------ sleeping */

static tutti_rpc_event
sleep_in_grpc(tutti_rpc_duplex *self, uint64_t until_ns)
{
    rpc_duplex_lane *lane = &self->lane;
    tutti_rpc_event happened = TUTTI_RPC_NOTHING;
    bool passed;

    atomic_store(&lane->in_grpc, true);
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load(&lane->woken)) {
        happened = rpc_duplex_step(self, until_ns, &passed);
    }
    atomic_store(&lane->in_grpc, false);
    return happened;
}

/*
 * Once more behind nothing found. [in, out] asleep  the lane knows that this side sleeps, and all was
 * looked at since; [in, out] slice_ns  of sleeping in gRPC while it writes
 */
static tutti_rpc_event
sleep_once(tutti_rpc_duplex *self, uint64_t now_ns, uint64_t deadline_ns, bool *asleep,
           uint64_t *slice_ns)
{
    const rpc_duplex_lane *lane = &self->lane;
    uint64_t until_ns = deadline_ns;

    if (waits_for_grpc(self)) {
        return sleep_in_grpc(self, until_ns);
    }
    if (atomic_load(&self->sending)) {
        until_ns = now_ns + *slice_ns < until_ns ? now_ns + *slice_ns : until_ns;
        *slice_ns = *slice_ns * 2 < SENDING_MAX_NS ? *slice_ns * 2 : SENDING_MAX_NS;
        return sleep_in_grpc(self, until_ns);
    }
    if (*asleep) {
        until_ns = lane->look_ns < until_ns ? lane->look_ns : until_ns;
        tutti_lane_sleep(lane->end.lane, until_ns);
        *asleep = false;
    } else {
        *asleep =
            !tutti_lane_watch(lane->end.lane, deadline_ns) && tutti_lane_may_sleep(lane->end.lane);
    }
    return TUTTI_RPC_NOTHING;
}

/* Who only looks gives the server a chance to make room: it may be the last to look. */
static bool
is_too_late(const rpc_duplex_lane *self, uint64_t now_ns, uint64_t deadline_ns)
{
    if (now_ns < deadline_ns) {
        return false;
    }
    if (atomic_load(&self->blocked)) {
        (void)sched_yield();
    }
    return true;
}

tutti_rpc_event
rpc_duplex_lane_poll(tutti_rpc_duplex *duplex, uint64_t deadline_ns,
                     tutti_rpc_message **ret_message, tutti_error *err)
{
    rpc_duplex_lane *lane = &duplex->lane;
    uint64_t slice_ns = SENDING_NS;
    tutti_rpc_event happened;
    bool asleep = false;

    for (;;) {
        const uint64_t now_ns = tutti_clock_ns();

        happened = look_once(duplex, now_ns, ret_message, err);
        if (happened != TUTTI_RPC_NOTHING || atomic_exchange(&lane->woken, false) ||
            is_too_late(lane, now_ns, deadline_ns)) {
            break;
        }
        happened = sleep_once(duplex, now_ns, deadline_ns, &asleep, &slice_ns);
        if (happened != TUTTI_RPC_NOTHING) {
            break;
        }
    }
    tutti_lane_stay_awake(lane->end.lane);
    return happened;
}

void
rpc_duplex_lane_wake(tutti_rpc_duplex *duplex)
{
    atomic_store(&duplex->lane.woken, true);
    tutti_lane_wake_self(duplex->lane.end.lane); /* a full fence */
    if (atomic_load(&duplex->lane.in_grpc)) {
        rpc_duplex_ring(duplex);
    }
}

void
rpc_duplex_lane_cancel(tutti_rpc_duplex *duplex)
{
    atomic_store(&duplex->lane.cancelled, true);
    tutti_lane_wake_self(duplex->lane.end.lane);
}
