/*
 * The server's lanes and the thread that serves them.
 *
 * Threads. What has to do with messages that come is done in the loop's turn: `ready`, `written`,
 * `call` and the reading side of a lane. Writing is done by whichever thread answers, one at a time,
 * behind the lane's lock, as the lanes' thread may have to write later what found no room. The list
 * of all lanes and the references are behind the lock of `lanes`. Memory is unmapped on the lanes'
 * thread alone, which may look at the rings of all lanes without any lock.
 *
 * A lane sleeps (the client has to ring) while a message is wanted and none is there. While none is
 * wanted, because a command is being worked on, the client need not ring: rpc_lane_read looks
 * whether one has come meanwhile. With --busy-poll the lanes in `recent`, and no others, are awake
 * while the thread looks at them without sleeping: each one is put to sleep again when it leaves
 * `recent` and before the thread sleeps (docs/models/lane_sleep.pml).
 */
#include "rpc/server/lane.h"

#include <assert.h>
#include <errno.h>
#include <grpc/byte_buffer.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/bell.h"
#include "base/os/clock.h"
#include "base/os/cpu.h"
#include "base/os/local.h"
#include "base/os/thread.h"
#include "lane/lane.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message/lane_message.h"

#define EVENTS_AT_ONCE 16
#define MESSAGES_A_TURN 32 /* then others who want the turn get it */
#define RECENT_MAX 8       /* lanes that are looked at without sleeping */
#define YIELDS_A_POLL 16   /* then the poller is asked, too */

struct tutti_rpc_lane {
    tutti_list_node link; /* in the lanes' all, or their dead; behind their lock */
    tutti_rpc_lanes *lanes;
    tutti_lane rings;
    char name[TUTTI_RPC_LANE_NAME_SIZE]; /* "" = it has none yet, or a stream has it */
    char *identity;                      /* [owned] */
    unsigned refs;                       /* the offer, and the call; behind the lanes' lock */

    tutti_rpc_call *call; /* NULL: none, or it has ended; in the turn */
    tutti_list_node ready;
    tutti_list_node written; /* in the list while on_written has to run */
    atomic_bool wants;       /* a message was asked for */

    pthread_mutex_t lock;      /* guards the writing side */
    grpc_byte_buffer *pending; /* [ref] what found no room; NULL = nothing */
    bool lost;                 /* nobody makes room any more */
    tutti_rpc_task told;       /* runs on_written, when another thread has written */
    bool telling;              /* told is posted, or about to be */
    tutti_rpc_task closed;     /* runs what was put off behind told */
};

struct tutti_rpc_lanes {
    tutti_rpc_loop *loop;
    uint64_t busy_ns;
    int poller;
    int bell; /* for us, and no other process's: lanes are dead, or it stops */
    pthread_t thread;
    bool started;
    atomic_bool stopping;

    /* The thread's own. */
    tutti_rpc_lane *recent[RECENT_MAX]; /* the last ones that had a message; NULL = none */
    size_t recent_next;
    uint64_t last_ns; /* when a message came last */
    bool often;       /* and the one before it came shortly before */

    /* In the turn. */
    tutti_list_node ready;         /* something may be done for them */
    tutti_list_node written;       /* on_written has to run */
    tutti_rpc_lane *serving;       /* the thread works on it */
    atomic_uint_fast64_t messages; /* written in the turn; read by anybody */

    pthread_mutex_t lock; /* guards what follows */
    tutti_list_node all;
    tutti_list_node dead; /* no reference is left */
    size_t count;
};

/* ------------------------------------------------------------------ references */

static void
drop_ref(tutti_rpc_lane *lane)
{
    tutti_rpc_lanes *lanes = lane->lanes;
    bool last;

    (void)pthread_mutex_lock(&lanes->lock);
    last = --lane->refs == 0;
    if (last) {
        tutti_list_remove(&lane->link);
        tutti_list_add(&lanes->dead, &lane->link);
        lanes->count--;
    }
    (void)pthread_mutex_unlock(&lanes->lock);
    if (last) {
        tutti_local_ring(lanes->bell);
    }
}

static void
forget_recent(tutti_rpc_lanes *lanes, const tutti_rpc_lane *lane)
{
    size_t i;

    for (i = 0; i < RECENT_MAX; i++) {
        if (lanes->recent[i] == lane) {
            lanes->recent[i] = NULL;
        }
    }
}

static bool
is_recent(const tutti_rpc_lanes *lanes, const tutti_rpc_lane *lane)
{
    size_t i;

    for (i = 0; i < RECENT_MAX && lanes->recent[i] != lane; i++) {
    }
    return i < RECENT_MAX;
}

static void
free_lane(tutti_rpc_lane *lane)
{
    tutti_lane_close(&lane->rings);
    (void)pthread_mutex_destroy(&lane->lock);
    free(lane->identity);
    free(lane);
}

/* The lanes' thread, or behind its end. */
static void
free_dead(tutti_rpc_lanes *lanes)
{
    tutti_list_node dead;
    tutti_list_node *link;

    tutti_list_init(&dead);
    (void)pthread_mutex_lock(&lanes->lock);
    tutti_list_splice(&dead, &lanes->dead);
    (void)pthread_mutex_unlock(&lanes->lock);
    while ((link = tutti_list_pop(&dead)) != NULL) {
        forget_recent(lanes, tutti_container_of(link, tutti_rpc_lane, link));
        free_lane(tutti_container_of(link, tutti_rpc_lane, link));
    }
}

tutti_code
tutti_rpc_lane_new(tutti_rpc_lanes *lanes, const char *identity, int *ret_memory, int *ret_bell,
                   tutti_rpc_lane **ret_lane, tutti_error *err)
{
    tutti_rpc_lane *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self != NULL) {
        self->identity = strdup(identity);
    }
    if (self == NULL || self->identity == NULL) {
        free(self);
        return TUTTI_FAIL_MEMORY(err, "no memory for a lane");
    }
    code = tutti_lane_create(&self->rings, lanes->busy_ns, ret_memory, err);
    if (code != TUTTI_OK) {
        free(self->identity);
        free(self);
        return code;
    }
    self->lanes = lanes;
    self->refs = 1;
    tutti_list_init(&self->ready);
    tutti_list_init(&self->written);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_mutex_lock(&lanes->lock);
    tutti_list_add(&lanes->all, &self->link);
    lanes->count++;
    (void)pthread_mutex_unlock(&lanes->lock);
    *ret_bell = self->rings.bell;
    *ret_lane = self;
    return TUTTI_OK;
}

tutti_code
tutti_rpc_lane_add_client_bell(tutti_rpc_lane *lane, int *ret_bell, tutti_error *err)
{
    TUTTI_TRY(tutti_lane_add_client_bell(&lane->rings, err));
    *ret_bell = lane->rings.client_bell;
    return TUTTI_OK;
}

void
tutti_rpc_lane_name(tutti_rpc_lane *lane, const unsigned char name[TUTTI_RPC_LANE_NAME_BYTES])
{
    char text[TUTTI_RPC_LANE_NAME_SIZE];
    size_t i;

    for (i = 0; i < TUTTI_RPC_LANE_NAME_BYTES; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", name[i]);
    }
    (void)pthread_mutex_lock(&lane->lanes->lock);
    memcpy(lane->name, text, sizeof(text));
    (void)pthread_mutex_unlock(&lane->lanes->lock);
}

void
tutti_rpc_lane_drop(tutti_rpc_lane *lane)
{
    drop_ref(lane);
}

uint64_t
tutti_rpc_lanes_messages(tutti_rpc_lanes *lanes)
{
    return atomic_load_explicit(&lanes->messages, memory_order_relaxed);
}

size_t
tutti_rpc_lanes_count(tutti_rpc_lanes *lanes)
{
    size_t count;

    (void)pthread_mutex_lock(&lanes->lock);
    count = lanes->count;
    (void)pthread_mutex_unlock(&lanes->lock);
    return count;
}

/* ------------------------------------------------------------------ a stream gets its lane */

/* A name is good once. The reference is the call's. */
static tutti_rpc_lane *
claim_lane(tutti_rpc_lanes *lanes, tutti_bytes name, const char *identity)
{
    tutti_rpc_lane *found = NULL;
    tutti_list_node *link;

    (void)pthread_mutex_lock(&lanes->lock);
    for (link = lanes->all.next; link != &lanes->all && found == NULL; link = link->next) {
        tutti_rpc_lane *lane = tutti_container_of(link, tutti_rpc_lane, link);

        if (lane->name[0] != '\0' && strlen(lane->name) == name.size &&
            memcmp(lane->name, name.data, name.size) == 0 &&
            strcmp(lane->identity, identity) == 0) {
            lane->name[0] = '\0';
            lane->refs++;
            found = lane;
        }
    }
    (void)pthread_mutex_unlock(&lanes->lock);
    return found;
}

static void
on_opened(tutti_rpc_tag *tag, bool ok)
{
    (void)ok; /* CLOSE tells */
    rpc_call_drop(tutti_container_of(tag, tutti_rpc_call, opened), 1);
}

/*
 * The initial metadata leave at once: no message will take them, and the status must not go before
 * them.
 */
static void
send_initial(tutti_rpc_call *call)
{
    const grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};

    call->initial_sent = true;
    (void)atomic_fetch_add(&call->parts, 1);
    call->opened.on_done = on_opened;
    rpc_batch_start(call->call, &op, 1, &call->opened);
}

static void on_told(tutti_rpc_task *task);
static void on_put_off(tutti_rpc_task *task);

tutti_code
rpc_lane_bind(tutti_rpc_call *call, tutti_error *err)
{
    const tutti_bytes name = tutti_rpc_call_metadata(call, "tutti-lane");
    tutti_rpc_lanes *lanes = call->server_loop->server->lanes;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    tutti_rpc_lane *lane = NULL;

    if (name.size == 0) {
        return TUTTI_OK;
    }
    if (lanes != NULL && call->route->client_streams && call->route->server_streams &&
        call->server_loop->loop == lanes->loop) {
        lane = claim_lane(lanes, name, tutti_rpc_call_identity(call));
    }
    event.data.ptr = lane;
    if (lane != NULL && epoll_ctl(lanes->poller, EPOLL_CTL_ADD, lane->rings.bell, &event) != 0) {
        drop_ref(lane);
        lane = NULL;
    }
    if (lane == NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_FAILED_PRECONDITION, "NO_LANE",
            "the stream asks for a lane that is not there for it: open another one");
    }
    lane->told.on_run = on_told;
    lane->closed.on_run = on_put_off;
    lane->call = call;
    call->lane = lane;
    send_initial(call);
    return TUTTI_OK;
}

void
rpc_lane_unbind(tutti_rpc_call *call)
{
    tutti_rpc_lane *lane = call->lane;

    if (lane == NULL) {
        return;
    }
    (void)epoll_ctl(lane->lanes->poller, EPOLL_CTL_DEL, lane->rings.bell, NULL);
    call->lane = NULL;
    lane->call = NULL;
    atomic_store_explicit(&lane->wants, false, memory_order_relaxed); /* what is left is nobody's */
    tutti_list_remove(&lane->ready);
    tutti_list_init(&lane->ready);
    tutti_list_remove(&lane->written);
    tutti_list_init(&lane->written);
    if (lane->pending != NULL) {
        grpc_byte_buffer_destroy(lane->pending);
        lane->pending = NULL;
    }
    drop_ref(lane);
}

/* ------------------------------------------------------------------ writing */

/* With the lock: the message, or the note that it goes by gRPC. False: there is no room. */
static bool
put_message(tutti_rpc_lane *lane, grpc_byte_buffer *message)
{
    return !tutti_lane_is_crowded(&lane->rings, rpc_lane_message_bytes(message)) &&
           rpc_lane_message_put(&lane->rings, message);
}

static void
on_told(tutti_rpc_task *task)
{
    tutti_rpc_lane *lane = tutti_container_of(task, tutti_rpc_lane, told);

    (void)pthread_mutex_lock(&lane->lock);
    lane->telling = false;
    (void)pthread_mutex_unlock(&lane->lock);
    rpc_call_on_written(lane->call, true);
}

static void
on_put_off(tutti_rpc_task *task)
{
    rpc_call_closed(tutti_container_of(task, tutti_rpc_lane, closed)->call);
}

/*
 * The client has the message as soon as it is in the ring, and may end its stream because of it: gRPC may
 * tell us of that before on_written has run. Then the handler would take the message for one that never
 * left, and delete a result that the client has been told of. Tasks run in the order of their posts, and
 * the lock is held from before the message is put until told is posted.
 */
bool
rpc_lane_close_later(tutti_rpc_call *call)
{
    tutti_rpc_lane *lane = call->lane;
    bool telling;

    (void)pthread_mutex_lock(&lane->lock);
    telling = lane->telling;
    (void)pthread_mutex_unlock(&lane->lock);
    if (telling) {
        tutti_rpc_loop_post(lane->lanes->loop, &lane->closed);
    }
    return telling;
}

/*
 * With the lock. It has left: on_written runs behind the handler that works now, never inside of it.
 */
static void
note_written(tutti_rpc_lane *lane)
{
    tutti_rpc_lanes *lanes = lane->lanes;

    if (tutti_rpc_loop_is_current(lanes->loop) && lanes->serving != NULL) {
        tutti_list_add(&lanes->written, &lane->written);
    } else {
        lane->telling = true;
        tutti_rpc_loop_post(lanes->loop, &lane->told);
    }
}

/*
 * With the lock: the client has to ring when it has made room. If it has made some between our look
 * and the flag, we ring.
 */
static void
await_room(tutti_rpc_lane *lane)
{
    (void)tutti_lane_may_sleep(&lane->rings);
    if (!tutti_lane_is_crowded(&lane->rings, rpc_lane_message_bytes(lane->pending))) {
        tutti_bell_ring(lane->rings.bell);
    }
}

/*
 * A write counts as a part of the call until on_written has run. What finds no room waits: the
 * client rings when it has made some.
 */
bool
rpc_lane_write(tutti_rpc_call *call, grpc_byte_buffer *message)
{
    tutti_rpc_lane *lane = call->lane;
    const bool large = rpc_lane_message_is_large(message);
    bool put;

    (void)atomic_fetch_add(&call->parts, 1);
    (void)pthread_mutex_lock(&lane->lock);
    put = put_message(lane, message);
    if (!put && !lane->lost) {
        lane->pending = grpc_byte_buffer_copy(message);
        await_room(lane);
    } else if (!put || !large) {
        note_written(lane);
    }
    (void)pthread_mutex_unlock(&lane->lock);
    if (put && large) {
        (void)atomic_fetch_sub(&call->parts, 1); /* gRPC's write is counted by itself */
        return false;
    }
    return true;
}

/* In the turn: what has waited for room. A large message goes by gRPC from here. */
static void
flush_pending(tutti_rpc_lane *lane)
{
    grpc_byte_buffer *message = NULL;

    (void)pthread_mutex_lock(&lane->lock);
    if (lane->pending != NULL && put_message(lane, lane->pending)) {
        message = lane->pending;
        lane->pending = NULL;
    } else if (lane->pending != NULL) {
        await_room(lane);
    }
    (void)pthread_mutex_unlock(&lane->lock);
    if (message == NULL) {
        return;
    }
    if (rpc_lane_message_is_large(message)) {
        rpc_call_write_grpc(lane->call, message, false, false);
        rpc_call_drop_later(lane->call);
    } else {
        tutti_list_add(&lane->lanes->written, &lane->written);
    }
    grpc_byte_buffer_destroy(message);
}

/* A write that waits for room has failed; what is written from here on goes nowhere. */
void
rpc_lane_lose(tutti_rpc_call *call)
{
    tutti_rpc_lane *lane = call->lane;
    grpc_byte_buffer *message;

    (void)pthread_mutex_lock(&lane->lock);
    message = lane->pending;
    lane->pending = NULL;
    lane->lost = true;
    (void)pthread_mutex_unlock(&lane->lock);
    if (message != NULL) {
        grpc_byte_buffer_destroy(message);
        rpc_call_on_written(call, false);
    }
}

/* The client reads what is in the ring, and then asks gRPC for the end. */
void
rpc_lane_shut(tutti_rpc_call *call)
{
    tutti_lane_shut(&call->lane->rings);
}

/* ------------------------------------------------------------------ reading */

/*
 * The thread that works on this lane looks again by itself. Any other one makes the client ring,
 * or rings for it if a message is there already.
 */
void
rpc_lane_read(tutti_rpc_call *call)
{
    tutti_rpc_lane *lane = call->lane;

    atomic_store_explicit(&lane->wants, true, memory_order_release);
    if (tutti_rpc_loop_is_current(lane->lanes->loop) && lane->lanes->serving == lane) {
        return;
    }
    if (!tutti_lane_may_sleep(&lane->rings)) {
        tutti_bell_ring(lane->rings.bell);
    }
}

static void
fail_broken(tutti_rpc_call *call)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BROKEN_LANE",
                         "the lane's memory has positions or sizes that no client writes");
    rpc_call_refuse(call, &err);
}

/* One message that was asked for. False: there is none. */
static bool
hear_one(tutti_rpc_lane *lane)
{
    tutti_rpc_call *call = lane->call;
    tutti_lane_found found;
    uint32_t kind = 0;
    size_t bytes = 0;

    if (!atomic_load_explicit(&lane->wants, memory_order_acquire)) {
        return false;
    }
    found = tutti_lane_peek(&lane->rings, &bytes, &kind);
    if (found == TUTTI_LANE_NOTHING) {
        return false;
    }
    atomic_store_explicit(&lane->wants, false, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&lane->lanes->messages, 1, memory_order_relaxed);
    if (found == TUTTI_LANE_BROKEN || kind > TUTTI_RPC_LANE_END) {
        fail_broken(call);
    } else if (kind == TUTTI_RPC_LANE_BYTES) {
        rpc_call_deliver(call, rpc_lane_message_take(&lane->rings, bytes));
    } else if (bytes != 0) {
        fail_broken(call);
    } else {
        tutti_lane_take(&lane->rings, &kind);
        if (kind == TUTTI_RPC_LANE_ELSEWHERE) {
            rpc_call_read_grpc(call);
        } else {
            rpc_call_half_closed(call);
        }
    }
    return true;
}

static void
run_written(tutti_rpc_lanes *lanes)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&lanes->written)) != NULL) {
        tutti_rpc_lane *lane = tutti_container_of(link, tutti_rpc_lane, written);

        tutti_list_init(&lane->written);
        rpc_call_on_written(lane->call, true);
    }
}

/*
 * One message of one lane, and what it leads to. Afterwards the lane is asleep, or in the list
 * again.
 */
static void
serve_lane(tutti_rpc_lanes *lanes, tutti_rpc_lane *lane)
{
    bool more;

    lanes->serving = lane;
    flush_pending(lane);
    more = hear_one(lane);
    run_written(lanes);
    lanes->serving = NULL;
    if (!atomic_load_explicit(&lane->wants, memory_order_acquire)) {
        return; /* rpc_lane_read looks */
    }
    if (!tutti_lane_may_sleep(&lane->rings) && !tutti_lane_is_closed(&lane->rings)) {
        tutti_lane_stay_awake(&lane->rings);
        more = true;
    } else {
        more = false;
    }
    if (more && tutti_list_empty(&lane->ready)) {
        tutti_list_add(&lanes->ready, &lane->ready);
    }
}

static void
serve_turn(tutti_rpc_lanes *lanes, const struct epoll_event *events, int count)
{
    unsigned done;
    int i;

    tutti_rpc_loop_enter(lanes->loop);
    for (i = 0; i < count; i++) {
        tutti_rpc_lane *lane = events[i].data.ptr;

        if (lane != NULL && lane->call != NULL && tutti_list_empty(&lane->ready)) {
            tutti_list_add(&lanes->ready, &lane->ready);
        }
    }
    for (done = 0; done < MESSAGES_A_TURN; done++) {
        tutti_list_node *link = tutti_list_pop(&lanes->ready);
        tutti_rpc_lane *lane;

        if (link == NULL) {
            break;
        }
        lane = tutti_container_of(link, tutti_rpc_lane, ready);
        tutti_list_init(&lane->ready);
        serve_lane(lanes, lane);
    }
    tutti_rpc_loop_leave(lanes->loop);
}

/* ------------------------------------------------------------------ waiting */

static bool
has_message(const tutti_rpc_lane *lane)
{
    return lane != NULL && atomic_load_explicit(&lane->wants, memory_order_acquire) &&
           tutti_lane_has_some(&lane->rings);
}

/*
 * Clients of lanes that look_busy looks at need not ring. A lane whose answer waits for room is
 * left alone: its client rings when it has made some, and no look at messages would notice that.
 */
static void
wake_recent(tutti_rpc_lanes *lanes)
{
    size_t i;

    for (i = 0; i < RECENT_MAX; i++) {
        tutti_rpc_lane *lane = lanes->recent[i];

        if (lane != NULL) {
            (void)pthread_mutex_lock(&lane->lock);
            if (lane->pending == NULL) {
                tutti_lane_stay_awake(&lane->rings);
            }
            (void)pthread_mutex_unlock(&lane->lock);
        }
    }
}

/* Nobody looks at it any more: its client rings from here on, and we do for what has come before. */
static void
put_to_sleep(tutti_rpc_lane *lane)
{
    (void)tutti_lane_may_sleep(&lane->rings);
    if (has_message(lane)) {
        tutti_bell_ring(lane->rings.bell);
    }
}

static void
put_recent_to_sleep(tutti_rpc_lanes *lanes)
{
    size_t i;

    for (i = 0; i < RECENT_MAX; i++) {
        if (lanes->recent[i] != NULL) {
            put_to_sleep(lanes->recent[i]);
        }
    }
}

/* It replaces the one that is longest in there, which need not be one that is longest without a message. */
static void
add_recent(tutti_rpc_lanes *lanes, tutti_rpc_lane *lane)
{
    tutti_rpc_lane **place = &lanes->recent[lanes->recent_next++ % RECENT_MAX];

    if (*place != NULL) {
        put_to_sleep(*place);
    }
    *place = lane;
}

/* Remember who sent last, and whether messages come more often than `busy_ns`. */
static void
note_recent(tutti_rpc_lanes *lanes, const struct epoll_event *events, int count)
{
    const uint64_t now_ns = tutti_clock_ns();
    int i;

    lanes->often = now_ns - lanes->last_ns < lanes->busy_ns;
    lanes->last_ns = now_ns;
    for (i = 0; i < count; i++) {
        tutti_rpc_lane *lane = events[i].data.ptr;

        if (lane != NULL && !is_recent(lanes, lane)) {
            add_recent(lanes, lane);
        }
    }
}

/* Recent lanes that have a message, as the poller would tell of them. */
static int
find_busy(const tutti_rpc_lanes *lanes, struct epoll_event *events)
{
    int count = 0;
    size_t i;

    for (i = 0; i < RECENT_MAX; i++) {
        if (has_message(lanes->recent[i])) {
            events[count++].data.ptr = lanes->recent[i];
        }
    }
    return count;
}

/* As often as tutti_lane_watch does, for the same reason. */
static int
find_some_times(const tutti_rpc_lanes *lanes, struct epoll_event *events)
{
    int count = 0;
    int looks;

    for (looks = 0; looks < TUTTI_LANE_LOOKS && count == 0; looks++) {
        count = find_busy(lanes, events);
        if (count == 0) {
            tutti_cpu_pause();
        }
    }
    return count;
}

/*
 * Look for messages without sleeping (--busy-poll). Clients need not ring meanwhile. sched_yield
 * gives the core to whoever else can run: on a machine with too few cores that is the client.
 */
static int
look_busy(tutti_rpc_lanes *lanes, struct epoll_event *events)
{
    const uint64_t until_ns = tutti_clock_ns() + lanes->busy_ns;
    unsigned yields = 0;
    int count = 0;

    wake_recent(lanes);
    while (count == 0 && tutti_clock_ns() < until_ns) {
        count = find_some_times(lanes, events);
        if (count == 0 && ++yields % YIELDS_A_POLL == 0) {
            count = epoll_wait(lanes->poller, events, EVENTS_AT_ONCE, 0);
        }
        if (count == 0) {
            (void)sched_yield();
        }
    }
    return count;
}

static int
wait_events(tutti_rpc_lanes *lanes, struct epoll_event *events)
{
    int count = 0;

    if (!tutti_list_empty(&lanes->ready)) {
        return epoll_wait(lanes->poller, events, EVENTS_AT_ONCE, 0);
    }
    if (lanes->often) {
        count = look_busy(lanes, events);
    }
    if (count != 0) {
        return count;
    }
    put_recent_to_sleep(lanes);
    return epoll_wait(lanes->poller, events, EVENTS_AT_ONCE, -1);
}

static void *
run_lanes(void *arg)
{
    tutti_rpc_lanes *lanes = arg;
    struct epoll_event events[EVENTS_AT_ONCE];

    (void)pthread_setname_np(pthread_self(), "tutti-lanes");
    while (!atomic_load(&lanes->stopping)) {
        const int count = wait_events(lanes, events);

        if (count > 0 || !tutti_list_empty(&lanes->ready)) {
            if (lanes->busy_ns > 0) {
                note_recent(lanes, events, count > 0 ? count : 0);
            }
            serve_turn(lanes, events, count > 0 ? count : 0);
        }
        free_dead(lanes);
    }
    return NULL;
}

/* ------------------------------------------------------------------ lifetime */

static tutti_code
open_poller(tutti_rpc_lanes *self, tutti_error *err)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};

    self->poller = epoll_create1(EPOLL_CLOEXEC);
    self->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!tutti_bell_can_ring() || self->poller < 0 || self->bell < 0 ||
        epoll_ctl(self->poller, EPOLL_CTL_ADD, self->bell, &event) != 0) {
        const int number = errno;

        return TUTTI_FAIL_ERRNO(err, number, "could not open what lanes are polled with");
    }
    return TUTTI_OK;
}

tutti_code
tutti_rpc_lanes_open(tutti_rpc_loop *loop, uint64_t busy_ns, tutti_rpc_lanes **ret_lanes,
                     tutti_error *err)
{
    tutti_rpc_lanes *self = calloc(1, sizeof(*self));
    tutti_code code;
    int failed;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for lanes");
    }
    self->loop = loop;
    self->busy_ns = busy_ns;
    self->poller = -1;
    self->bell = -1;
    tutti_list_init(&self->ready);
    tutti_list_init(&self->written);
    tutti_list_init(&self->all);
    tutti_list_init(&self->dead);
    (void)pthread_mutex_init(&self->lock, NULL);
    code = open_poller(self, err);
    if (code == TUTTI_OK) {
        failed = tutti_thread_start(&self->thread, run_lanes, self);
        self->started = failed == 0;
        code = failed == 0 ? TUTTI_OK
                           : TUTTI_FAIL_ERRNO(err, failed, "could not start the thread of lanes");
    }
    if (code != TUTTI_OK) {
        tutti_rpc_lanes_close(self);
        return code;
    }
    *ret_lanes = self;
    return TUTTI_OK;
}

/* Lanes that are still offered keep their reference until the share ends, which is before. */
void
tutti_rpc_lanes_close(tutti_rpc_lanes *lanes)
{
    if (lanes == NULL) {
        return;
    }
    if (lanes->started) {
        atomic_store(&lanes->stopping, true);
        tutti_local_ring(lanes->bell);
        (void)pthread_join(lanes->thread, NULL);
    }
    free_dead(lanes);
    assert(tutti_list_empty(&lanes->all));
    if (lanes->poller >= 0) {
        (void)close(lanes->poller);
    }
    if (lanes->bell >= 0) {
        (void)close(lanes->bell);
    }
    (void)pthread_mutex_destroy(&lanes->lock);
    free(lanes);
}

void
tutti_rpc_server_lanes(tutti_rpc_server *server, tutti_rpc_lanes *lanes)
{
    server->lanes = lanes;
}
