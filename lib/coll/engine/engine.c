/*
 * The engine's loop, its start and stop, progress by a poster, and the way of a packet from the
 * transport to its op.
 *
 * Threads: the engine's own thread runs run_engine. A poster may run the same step inside
 * tutti_coll_post (tutti_coll_progress_inline). progress_lock says which of them runs the engine;
 * all state below it in state/engine.h belongs to its holder. The own thread holds progress_lock
 * always, except while it sleeps in epoll_wait. Other threads touch only the inbox, `awake`,
 * `stopping` and the numbers that engine->lock guards.
 *
 * Lock order: progress_lock before lock. No callback and no item runs under lock, so a callback may
 * post.
 *
 * End: tutti_coll_engine_stop pushes end_groups, which fails all ops on all ranks, and joins the
 * thread. The thread leaves when all ops are released and the last aborts have left, or when the
 * times ENDING_NS and ENDING_REGIONS_NS are over. After the join there is no other thread, and
 * free_engine needs no lock.
 */
#include "coll/engine/engine.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/engine/abort.h"
#include "coll/engine/announce.h"
#include "coll/engine/device_pending.h"
#include "coll/engine/group.h"
#include "coll/engine/inquiry.h"
#include "coll/engine/op.h"
#include "coll/engine/p2p.h"
#include "coll/net/expose.h"
#include "coll/net/io.h"
#include "coll/net/peer.h"
#include "coll/net/probe.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/events.h"
#include "coll/state/inbox.h"
#include "coll/state/lookup.h"

#define SPIN_NS (20 * TUTTI_NS_PER_US) /* look around before sleeping, while ops run */
#define POLL_TIMEOUT_NS                                                                            \
    (500 * TUTTI_NS_PER_MS) /* the transport keeps its connections alive in progress */
#define PROGRESS_MAX 64

/*
 * The whole list is taken under the lock and run outside of it: an item may push, and its callback
 * may post. What is pushed meanwhile runs in the next step, so the transport gets its turn in
 * between.
 */
static unsigned
run_inbox(tutti_coll_engine *engine)
{
    tutti_list_node mine;
    tutti_list_node *link;
    unsigned count = 0;

    tutti_list_init(&mine);
    (void)pthread_mutex_lock(&engine->lock);
    tutti_list_splice(&mine, &engine->inbox);
    (void)pthread_mutex_unlock(&engine->lock);
    while ((link = tutti_list_pop(&mine)) != NULL) {
        tutti_coll_item *item = tutti_container_of(link, tutti_coll_item, link);

        item->run(engine, item);
        count++;
    }
    return count;
}

/*
 * Until the transport finds nothing more to do, but not for ever: with packets that come without a
 * pause, the inbox, the timers and the devices still have their turn after about PROGRESS_MAX
 * events.
 */
static unsigned
progress_transport(tutti_coll_engine *engine)
{
    unsigned total = 0;
    unsigned did = 1;

    while (did > 0 && total < PROGRESS_MAX) {
        did = engine->transport->ops->progress(engine->transport);
        total += did;
    }
    return total;
}

/* An engine without ops is not woken by what others send for ops that may be called here; but then, if
 * nobody will call them (tutti_coll_group_orphan). */
static bool
arm_transport(tutti_coll_engine *engine)
{
    const bool idle = engine->ops.count == 0 && atomic_load(&engine->orphans) == 0;

    return engine->transport->ops->arm(engine->transport, idle);
}

/*
 * A device is looked at after parts of a millisecond, which Linux before 5.11 and some seccomp
 * filters refuse. Then the time is rounded up to whole milliseconds: rounded down, the engine would
 * wake before its timer is due and turn in a circle until it is.
 */
static void
wait_for_events(int poller, uint64_t wait_ns)
{
    const struct timespec wait = {.tv_sec = (time_t)(wait_ns / TUTTI_NS_PER_S),
                                  .tv_nsec = (long)(wait_ns % TUTTI_NS_PER_S)};
    struct epoll_event events[2];

    if (epoll_pwait2(poller, events, 2, &wait, NULL) < 0 && (errno == ENOSYS || errno == EPERM)) {
        (void)epoll_wait(poller, events, 2, (int)((wait_ns + 999999) / TUTTI_NS_PER_MS));
    }
}

/*
 * Sleep until the inbox, the transport or a timer has work.
 *
 * No wakeup is lost. The transport: arm returns false if there is work already, and after it has
 * returned true, the descriptor becomes readable for all that comes. The inbox: `awake` is cleared
 * under the same lock under which a poster adds its item, so either this thread finds the item
 * here, or the poster finds `awake` false and wakes it (by the eventfd, or by running the engine
 * itself). The eventfd keeps a write that comes before epoll_wait.
 */
static void
sleep_for_work(tutti_coll_engine *engine)
{
    const uint64_t due = tutti_timers_next(&engine->timers);
    const uint64_t next = due < engine->device_ns ? due : engine->device_ns;
    uint64_t wait_ns = POLL_TIMEOUT_NS;
    uint64_t count;
    bool work;

    if (next != TUTTI_TIMERS_NEVER) {
        wait_ns = next <= engine->now_ns ? 0 : next - engine->now_ns;
        wait_ns = wait_ns < POLL_TIMEOUT_NS ? wait_ns : POLL_TIMEOUT_NS;
    }
    if (!arm_transport(engine)) {
        return;
    }
    (void)pthread_mutex_lock(&engine->lock);
    work = !tutti_list_empty(&engine->inbox);
    engine->awake = work;
    (void)pthread_mutex_unlock(&engine->lock);
    if (work) {
        return;
    }
    /* A poster that runs the engine compares its new timers with this: the sleep below cannot be
     * made shorter by it. */
    engine->sleeps_to_ns = engine->now_ns + wait_ns;
    (void)pthread_mutex_unlock(&engine->progress_lock);
    wait_for_events(engine->poller, wait_ns);
    (void)pthread_mutex_lock(&engine->progress_lock);
    (void)pthread_mutex_lock(&engine->lock);
    engine->awake = true;
    (void)pthread_mutex_unlock(&engine->lock);
    /* Emptied after `awake` is set and before the next look at the inbox: an item whose write is
     * read away here is in the inbox already. */
    while (read(engine->wake, &count, sizeof(count)) == (ssize_t)sizeof(count)) {
    }
}

/*
 * The engine's thread ends when all ops are released and the notes (aborts, mostly) have left;
 * notes get ENDING_NS. An op whose exposed memory is still with a stopped process gets
 * ENDING_REGIONS_NS more; then closing the transport takes the memory back.
 */
static bool
is_stop_over(const tutti_coll_engine *engine)
{
    if (!engine->ending || engine->now_ns > engine->ending_ns + ENDING_REGIONS_NS) {
        return engine->ending;
    }
    return engine->ops.count == 0 && (engine->notes == 0 || engine->now_ns > engine->ending_ns);
}

/*
 * The order matters in one place: peers_ask is the last, so ranks that ops of this step need are
 * asked for in few calls. Timers run after packets: a message that came in time is taken before the
 * deadline of its op is looked at.
 */
unsigned
tutti_coll_engine_step(tutti_coll_engine *engine)
{
    unsigned did;

    engine->now_ns = tutti_clock_ns();
    did = run_inbox(engine);
    did += progress_transport(engine);
    did += tutti_coll_run_turns(engine);
    did += tutti_coll_poll_devices(engine);
    tutti_timers_run(&engine->timers, engine->now_ns);
    tutti_coll_peers_ask(engine);
    return did;
}

static void *
run_engine(void *arg)
{
    tutti_coll_engine *engine = arg;
    uint64_t busy_ns = tutti_clock_ns();

    (void)pthread_setname_np(pthread_self(), "tutti-engine");
    (void)pthread_mutex_lock(&engine->progress_lock);
    while (!is_stop_over(engine)) {
        /* While ops run, the next packet is often microseconds away, and a sleep costs more than
         * that. sched_yield leaves the core to clients and other agents that share it. */
        if (tutti_coll_engine_step(engine) > 0) {
            busy_ns = engine->now_ns;
        } else if (engine->ops.count == 0 || engine->now_ns - busy_ns > SPIN_NS) {
            sleep_for_work(engine);
        } else {
            (void)sched_yield();
        }
    }
    (void)pthread_mutex_unlock(&engine->progress_lock);
    return NULL;
}

static tutti_code
watch_fd(tutti_coll_engine *engine, int descriptor, tutti_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (descriptor >= 0 && epoll_ctl(engine->poller, EPOLL_CTL_ADD, descriptor, &event) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not watch a descriptor of the engine");
    }
    return TUTTI_OK;
}

static tutti_code
open_descriptors(tutti_coll_engine *engine, tutti_error *err)
{
    engine->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->poller = epoll_create1(EPOLL_CLOEXEC);
    if (engine->wake < 0 || engine->poller < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make the descriptors of the engine");
    }
    TUTTI_TRY(watch_fd(engine, engine->wake, err));
    return watch_fd(engine, engine->transport->ops->descriptor(engine->transport), err);
}

/*
 * Also for an engine whose start has failed. The order: parked packets are dropped and connections
 * taken down while the transport lives; its close then gives back all tickets, whose on_done still
 * reads peers, so peers are freed after it; the ios that came back are spares, freed last.
 */
static void
free_engine(tutti_coll_engine *engine)
{
    tutti_coll_unpark_all(engine, &engine->unexpected);
    tutti_coll_peers_drop_conns(engine);
    engine->transport->ops->close(engine->transport);
    tutti_coll_peers_free(engine);
    tutti_coll_close_devices(&engine->options);
    tutti_coll_ios_free(engine);
    if (engine->wake >= 0) {
        (void)close(engine->wake);
    }
    if (engine->poller >= 0) {
        (void)close(engine->poller);
    }
    (void)pthread_mutex_destroy(&engine->lock);
    (void)pthread_mutex_destroy(&engine->progress_lock);
    free(engine);
}

static const coll_events events_of_ops = {
    .op_run = coll_op_run,
    .op_succeed = coll_op_succeed,
    .op_fail = coll_op_fail,
    .op_release = coll_op_release,
    .announce_recv = coll_announce_recv,
    .group_look = coll_group_look,
    .replay = coll_route_replay,
};

/* `awake` begins as true: the thread that will be started looks at the inbox before it first
 * sleeps, so pushes before that need not wake it. */
static void
init_engine(tutti_coll_engine *engine, const tutti_coll_engine_options *options)
{
    engine->options = *options;
    engine->events = &events_of_ops;
    engine->transport = options->transport;
    engine->wake = -1;
    engine->poller = -1;
    engine->awake = true;
    engine->rank = NO_RANK;
    engine->inline_ns = TUTTI_COLL_INLINE_NS;
    engine->device_ns = TUTTI_TIMERS_NEVER;
    (void)pthread_mutex_init(&engine->lock, NULL);
    (void)pthread_mutex_init(&engine->progress_lock, NULL);
    tutti_list_init(&engine->inbox);
    tutti_list_init(&engine->unexpected);
    tutti_list_init(&engine->asks);
    tutti_list_init(&engine->probes);
    tutti_list_init(&engine->spare_ios);
    tutti_list_init(&engine->turns);
    tutti_timers_init(&engine->timers);
    tutti_map_init(&engine->groups);
    tutti_map_init(&engine->peers);
    tutti_map_init(&engine->ops);
}

tutti_code
tutti_coll_engine_start(const tutti_coll_engine_options *options, tutti_coll_engine **ret_engine,
                        tutti_error *err)
{
    static const tutti_transport_events events = {tutti_coll_arrive, tutti_coll_peer_broke};
    tutti_coll_engine *self = calloc(1, sizeof(*self));
    tutti_code code;
    int number;

    if (self == NULL) {
        options->transport->ops->close(options->transport);
        tutti_coll_close_devices(options);
        return TUTTI_FAIL_MEMORY(err, "no memory for the engine");
    }
    init_engine(self, options);
    self->transport->ops->listen(self->transport, &events, self);
    code = open_descriptors(self, err);
    if (code == TUTTI_OK) {
        number = pthread_create(&self->thread, NULL, run_engine, self);
        if (number != 0) {
            code = TUTTI_FAIL_ERRNO(err, number, "could not start the thread of the engine");
        }
    }
    if (code != TUTTI_OK) {
        free_engine(self);
        return code;
    }
    *ret_engine = self;
    return TUTTI_OK;
}

tutti_bytes
tutti_coll_engine_address(const tutti_coll_engine *engine)
{
    return engine->transport->ops->address(engine->transport);
}

/*
 * The engine's thread reads these for packets and ops. At the first join that is ordered: the push
 * of the first group or key comes after this call. An agent that joins again writes them while the
 * engine runs, so they are atomics. Mostly they get the values they have; of another seat, a packet
 * that is written in between may have one number of the old seat, and is dropped by its receiver as
 * one of no member.
 */
void
tutti_coll_engine_sit(tutti_coll_engine *engine, uint64_t job_id, uint32_t rank,
                      uint64_t incarnation)
{
    const bool again = engine->job_id != 0;

    engine->job_id = job_id;
    engine->rank = rank;
    engine->incarnation = incarnation;
    if (again) {
        tutti_coll_peers_renew(engine);
    }
}

static void
say_stopping(const tutti_coll_engine *engine, tutti_error *err)
{
    (void)TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING", "rank %u is stopping", engine->rank);
    tutti_error_set_op(err, NULL, 0, (int32_t)engine->rank);
}

/*
 * The last item of the inbox: what was posted before stopping was set is in the groups by now, and
 * nothing is posted after it. Other members hear of each failed op (tell), so they do not wait for
 * their deadlines.
 */
static void
end_groups(tutti_coll_engine *engine, tutti_coll_item *item)
{
    tutti_map_node *node;
    tutti_error err;

    (void)item;
    say_stopping(engine, &err);
    while ((node = tutti_map_first(&engine->groups)) != NULL) {
        tutti_coll_group *group = tutti_container_of(node, tutti_coll_group, node);

        tutti_coll_group_fail_all(group, &err, true);
        tutti_coll_group_drop(group);
    }
    tutti_coll_probes_end(engine);
    engine->ending = true;
    engine->ending_ns = engine->now_ns + ENDING_NS;
}

static void
fail_all(tutti_coll_engine *engine, tutti_coll_item *item)
{
    tutti_map_node *node;
    tutti_error err;

    (void)item;
    tutti_coll_probes_end(engine);
    say_stopping(engine, &err);
    for (node = tutti_map_first(&engine->groups); node != NULL; node = tutti_map_next(node)) {
        tutti_coll_group_fail_all(tutti_container_of(node, tutti_coll_group, node), &err, true);
    }
}

/*
 * `stopping` is set under the lock under which ops get their numbers and enter the inbox. So each
 * op was either pushed before the refusal, which fails it, or gets STOPPING at its post.
 * engine->refusal is one item: only the first call may push it.
 */
void
tutti_coll_engine_refuse(tutti_coll_engine *engine)
{
    bool again;

    (void)pthread_mutex_lock(&engine->lock);
    again = engine->stopping;
    engine->stopping = true;
    (void)pthread_mutex_unlock(&engine->lock);
    if (!again) {
        engine->refusal.run = fail_all;
        tutti_coll_engine_push(engine, &engine->refusal);
    }
}

void
tutti_coll_engine_stop(tutti_coll_engine *engine)
{
    /* On this stack: the thread has run it when join returns. */
    tutti_coll_item last = {.run = end_groups};

    if (engine == NULL) {
        return;
    }
    tutti_coll_engine_refuse(engine);
    tutti_coll_engine_push(engine, &last);
    (void)pthread_join(engine->thread, NULL);
    free_engine(engine);
}

void
tutti_coll_stat(tutti_coll_engine *engine, tutti_coll_stats *ret_stats)
{
    (void)pthread_mutex_lock(&engine->lock);
    ret_stats->running = engine->op_count;
    (void)pthread_mutex_unlock(&engine->lock);
    ret_stats->done = atomic_load(&engine->done);
    ret_stats->failed = atomic_load(&engine->failed);
    ret_stats->parked = atomic_load(&engine->unexpected_count);
}

/* ------------------------------ progress by a poster */

#define INLINE_MAX_NS (1000 * TUTTI_NS_PER_US) /* even of work that goes well */
#define INLINE_MIN_NS (50 * TUTTI_NS_PER_US)
#define ARM_MAX 4 /* times to try: what happened meanwhile is done first */

/* This thread holds a progress_lock: what it posts from a callback is done when the callback has
 * returned.
 */
static _Thread_local bool helping;

/* This thread has other things to do than to wait for other ranks. */
static _Thread_local bool hurried;

void
tutti_coll_hurry(bool hurry)
{
    hurried = hurry;
}

/* Run the engine until no op is left; false when the time is up: inline_ns without progress, or
 * INLINE_MAX_NS in all. The poster is often a loop of the agent that has other calls to serve. */
static bool
run_engine_work(tutti_coll_engine *engine)
{
    const uint64_t began = tutti_clock_ns();
    uint64_t busy_ns = began;

    do {
        if (tutti_coll_engine_step(engine) > 0) {
            busy_ns = engine->now_ns;
        } else if (engine->ops.count == 0) {
            return true;
        } else {
            (void)sched_yield();
        }
    } while (engine->now_ns - busy_ns < engine->inline_ns &&
             engine->now_ns - began < INLINE_MAX_NS);
    return false;
}

/*
 * May the engine's own thread sleep on, as it is? Only if it would now do the same: no op runs, no
 * timer is due before it wakes by itself, the transport is armed (the poster's progress has
 * disarmed it), and the inbox is empty. `awake` is cleared under the lock, as in sleep_for_work, so
 * the next poster knows that it must act. If not, the caller wakes the thread.
 *
 * Packets that come between two attempts to arm are taken by a step here; after ARM_MAX attempts
 * the own thread takes over.
 */
static bool
leave_asleep(tutti_coll_engine *engine)
{
    bool calm = !engine->ending && tutti_timers_next(&engine->timers) >= engine->sleeps_to_ns;
    bool armed = false;
    unsigned i;

    for (i = 0; i < ARM_MAX && calm && !armed; i++) {
        armed = arm_transport(engine);
        if (!armed) {
            (void)tutti_coll_engine_step(engine);
        }
        calm = engine->ops.count == 0;
    }
    calm = calm && armed;
    (void)pthread_mutex_lock(&engine->lock);
    calm = calm && tutti_list_empty(&engine->inbox);
    engine->awake = !calm;
    (void)pthread_mutex_unlock(&engine->lock);
    return calm;
}

/*
 * Why: to wake another thread costs more than a small op takes. Only if no op is in flight: the
 * loop ends when nothing runs any more, and with older ops, which may wait for ranks that are late,
 * it would only burn the poster's time. trylock fails if the own thread is awake or another poster
 * is faster; both will look at the inbox, and waking them once more is harmless.
 *
 * inline_ns adapts: it is halved each time the ops did not end within it (the other ranks are
 * late), down to INLINE_MIN_NS, and is restored by the first success.
 */
bool
tutti_coll_progress_inline(tutti_coll_engine *engine)
{
    bool calm = false;

    if (helping || hurried || pthread_mutex_trylock(&engine->progress_lock) != 0) {
        return false;
    }
    helping = true;
    if (engine->ops.count == 0 && !engine->ending) {
        bool went_well;

        tutti_transport_disarm(engine->transport);
        went_well = run_engine_work(engine);

        engine->inline_ns = went_well ? TUTTI_COLL_INLINE_NS : engine->inline_ns / 2;
        engine->inline_ns = engine->inline_ns < INLINE_MIN_NS ? INLINE_MIN_NS : engine->inline_ns;
        calm = went_well && leave_asleep(engine);
    }
    helping = false;
    (void)pthread_mutex_unlock(&engine->progress_lock);
    return calm;
}

/* ------------------------------------------------------------------------------ route */

/* A message is told from others of its op by step and sender alone; each pair occurs once in the
 * life of an op (backend.h). */
static coll_io *
find_expected(tutti_coll_op *op, const tutti_packet *packet)
{
    tutti_list_node *link;

    for (link = op->expected.next; link != &op->expected; link = link->next) {
        coll_io *io = tutti_container_of(link, coll_io, queue);

        if (io->step == packet->step && io->from == packet->from) {
            return io;
        }
    }
    return NULL;
}

/* A packet on its way through the functions below. `data` is borrowed from the transport, or from
 * the parked copy. `rndv` is owned: each way through ends in a take, a parking or a drop of it. */
typedef struct arrival {
    tutti_packet packet;
    tutti_spec spec;
    const void *data;
    size_t size;
    tutti_transport_rndv *rndv;
} arrival;

static void
drop_arrival(tutti_coll_engine *engine, const arrival *it)
{
    if (it->rndv != NULL) {
        engine->transport->ops->drop(engine->transport, it->rndv);
    }
}

/*
 * Signatures and data: for an op that runs, that is not called yet, or that is over.
 *
 * group->begun tells the last two apart: sequences up to it have been called here. Without it,
 * packets of ended ops would stay parked until the epoch ends.
 */
static void
route_to_op(tutti_coll_group *group, const arrival *it)
{
    tutti_coll_engine *engine = group->engine;
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->ops, tutti_map_key_u64(key, it->packet.sequence));
    tutti_coll_op *op;
    coll_io *io;

    if (node == NULL) {
        if (it->packet.sequence > group->begun) {
            tutti_coll_unexpected_add(engine, &group->unexpected, &it->packet, NULL, it->data,
                                      it->size, it->rndv);
            tutti_coll_refuse_awaited(group);
        } else {
            drop_arrival(engine, it);
        }
        return;
    }
    op = tutti_container_of(node, tutti_coll_op, by_sequence);
    io = find_expected(op, &it->packet);
    if (io != NULL) {
        tutti_coll_io_take(io, &it->packet, it->data, it->size, it->rndv);
    } else {
        tutti_coll_unexpected_add(engine, &op->stored, &it->packet, NULL, it->data, it->size,
                                  it->rndv);
    }
}

static void
route_report(tutti_coll_group *group, const arrival *it)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->ops, tutti_map_key_u64(key, it->packet.sequence));

    if (node != NULL) {
        tutti_coll_recv_report(tutti_container_of(node, tutti_coll_op, by_sequence), &it->packet,
                               it->data, it->size);
    }
}

static void
route_in_group(tutti_coll_group *group, const arrival *it)
{
    tutti_coll_engine *engine = group->engine;
    tutti_error err;

    if (group->aborted != NULL) { /* for ops that are over here; its sender hears of the abort */
        drop_arrival(engine, it);
        return;
    }
    switch (it->packet.kind) {
    case TUTTI_PACKET_AGREE:
    case TUTTI_PACKET_DATA:
        route_to_op(group, it);
        return;
    case TUTTI_PACKET_SEND:
    case TUTTI_PACKET_UNSENT:
        tutti_coll_p2p_arrive(group, &it->packet, &it->spec, it->data, it->size, it->rndv);
        return;
    case TUTTI_PACKET_META:
        tutti_coll_p2p_meta_arrive(group, &it->packet, it->data, it->size, it->rndv);
        return;
    case TUTTI_PACKET_ABORT:
        tutti_packet_read_error(it->data, it->size, &err);
        tutti_coll_recv_abort(group, &it->packet, &err);
        break;
    case TUTTI_PACKET_LEAVE:
        tutti_packet_read_error(it->data, it->size, &err);
        tutti_coll_recv_leave(group, &it->packet, &err);
        break;
    case TUTTI_PACKET_OVER:
        tutti_coll_recv_over(group, &it->packet);
        break;
    case TUTTI_PACKET_RETRACT:
        tutti_coll_p2p_retract(group, &it->packet, it->data, it->size);
        break;
    case TUTTI_PACKET_REPORT:
        route_report(group, it);
        break;
    case TUTTI_PACKET_QUERY:
    case TUTTI_PACKET_TAKEN:
    case TUTTI_PACKET_REFUSED:
    case TUTTI_PACKET_RESET:
    case TUTTI_PACKET_SILENT:
    default:
        break;
    }
    drop_arrival(engine, it);
}

/* Its rank is a member still, and its packets may have waited in the network or in a ring. */
bool
tutti_coll_is_stale(tutti_coll_engine *engine, const tutti_packet *packet)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&engine->peers, tutti_map_key_u64(key, packet->from));
    const coll_peer *peer = node == NULL ? NULL : tutti_container_of(node, coll_peer, node);

    return peer != NULL && peer->incarnation != 0 && peer->incarnation != packet->incarnation;
}

/*
 * A group that is not open here will come with the coordinator's news, so its packet waits; unless
 * the group is over, and members that hear of that later still speak. A parked packet keeps memory
 * of its sender, who has failed its op long ago and waits to get that back: nothing may be parked
 * for ever.
 */
static void
route_to_unopened(tutti_coll_engine *engine, const arrival *it)
{
    const tutti_packet *packet = &it->packet;

    if (tutti_coll_group_is_gone(engine, packet->group) ||
        (packet->kind == TUTTI_PACKET_RETRACT &&
         tutti_coll_unpark_group(engine, packet->group, packet))) {
        drop_arrival(engine, it);
    } else {
        tutti_coll_unexpected_add(engine, &engine->unexpected, packet, &it->spec, it->data,
                                  it->size, it->rndv);
    }
}

/*
 * QUERY, RESET and answers to sends need no open group: they are about ranks and ids. An epoch that
 * is newer than ours will come with the coordinator's news, so the packet waits. An older epoch is
 * over on all ranks; but programs live through epochs, so SILENT is news of any.
 */
static void
route_packet(tutti_coll_engine *engine, const arrival *it)
{
    bool member;

    tutti_coll_group *group;

    if (it->packet.kind == TUTTI_PACKET_QUERY) {
        tutti_coll_answer_query(engine, &it->packet);
    } else if (it->packet.kind == TUTTI_PACKET_RESET) {
        tutti_coll_recv_reset(engine, &it->packet);
    } else if (it->packet.kind == TUTTI_PACKET_REPORT && it->packet.group == NO_GROUP) {
        tutti_coll_probe_heard(engine, &it->packet);
    } else if (it->packet.kind == TUTTI_PACKET_TAKEN || it->packet.kind == TUTTI_PACKET_REFUSED) {
        tutti_coll_p2p_answer(engine, &it->packet, it->data, it->size);
    } else {
        group = tutti_coll_group_by_id(engine, it->packet.group);
        if (group == NULL) {
            route_to_unopened(engine, it);
            return;
        }
        if (it->packet.epoch > group->live_epoch) {
            tutti_coll_unexpected_add(engine, &group->unexpected, &it->packet, &it->spec, it->data,
                                      it->size, it->rndv);
            return;
        }
        member = !tutti_coll_is_stale(engine, &it->packet) &&
                 tutti_coll_group_rank_of(group, it->packet.from) != NO_RANK;
        if (member && it->packet.kind == TUTTI_PACKET_SILENT) {
            tutti_coll_p2p_silent(group, &it->packet, it->data, it->size);
        } else if (member && it->packet.epoch == group->live_epoch) {
            route_in_group(group, it);
            return;
        }
    }
    drop_arrival(engine, it);
}

/*
 * The first look at bytes from another process: version, kind and length are checked before
 * anything is believed. A SEND's spec must have the size of its data: receivers find memory by the
 * spec. Words (aborts, reports ...) must have come with their header, since they are read in place.
 */
void
tutti_coll_arrive(void *arg, const void *header, size_t header_size, const void *data, size_t size,
                  tutti_transport_rndv *rndv)
{
    tutti_coll_engine *engine = arg;
    arrival it = {.data = data, .size = size, .rndv = rndv};
    bool good = tutti_packet_read(header, header_size, &it.packet);

    if (good && it.packet.kind == TUTTI_PACKET_SEND) {
        good = tutti_packet_read_spec((const unsigned char *)header + TUTTI_PACKET_BYTES,
                                      header_size - TUTTI_PACKET_BYTES, &it.spec) > 0 &&
               tutti_spec_bytes(&it.spec) == size;
    }
    if (good && rndv != NULL && it.packet.kind > TUTTI_PACKET_DATA &&
        it.packet.kind != TUTTI_PACKET_SEND && it.packet.kind != TUTTI_PACKET_META) {
        good = false; /* words are small and come at once */
    }
    if (!good || it.packet.job_id != engine->job_id) {
        TUTTI_LOG("coll", DEBUG, "dropped a packet that is none of ours");
        drop_arrival(engine, &it);
        return;
    }
    if (it.packet.kind == TUTTI_PACKET_ABORT || it.packet.kind == TUTTI_PACKET_OVER ||
        it.packet.kind == TUTTI_PACKET_SILENT) {
        it.packet.came_ns = tutti_clock_ns();
    }
    route_packet(engine, &it);
}

/*
 * Each packet is taken off the list first, since routing may park it in the same list again; the
 * caller hands a list of its own for that reason.
 */
void
coll_route_replay(tutti_coll_engine *engine, tutti_list_node *where)
{
    while (!tutti_list_empty(where)) {
        coll_unexpected *stored = tutti_container_of(where->next, coll_unexpected, link);
        const arrival it = {.packet = stored->packet,
                            .spec = stored->spec,
                            .data = stored->data,
                            .size = stored->size,
                            .rndv = tutti_coll_take_parked(stored)};

        route_packet(engine, &it);
        tutti_coll_unpark(engine, stored);
    }
}
