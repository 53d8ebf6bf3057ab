/*
 * The coordinator's core on a loop. All handlers, timers and turns run on the loop's thread; each
 * handler begins with service_loop_enter (tells the core the time) and ends with
 * service_loop_leave (lets due timers and one slice of work run, and arms the timer).
 *
 * Work that is left after a slice waits until the loop is idle (tutti_rpc_loop_post_idle), so
 * received messages are read first. That is what makes the core's idle turns trustworthy:
 * heartbeats that have arrived were handed over.
 *
 * With a store that is behind its changes, each handler, timer and turn ends with a flush of the
 * store: what it has changed is one transaction, or part of one. Answers and events pass a gate
 * (rpc/gate.h), which opens when the store has made durable what they can tell of.
 */
#include "server/coordinator/service/service_loop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "lane_offer/lane_offer.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/status.h"

struct tutti_service_loop {
    const tutti_coordinator_options *options; /* borrowed */
    tutti_coordinator *core;
    tutti_rpc_loop *loop; /* borrowed */
    tutti_timer timer;
    tutti_rpc_task turn; /* what waits for a turn goes on when the loop is idle */
    bool waiting;        /* ... and that is asked for */
    uint64_t now_ns;
    tutti_store *store;     /* borrowed */
    tutti_rpc_gate gate;    /* what is answered waits here until it is durable */
    tutti_rpc_task settled; /* a transaction of the store is over */
    atomic_bool settled_posted;
    uint64_t (*leads_until)(void *arg); /* NULL = for ever */
    void *leads_arg;
    pthread_mutex_t lock;           /* guards below */
    char leader[TUTTI_ADDRESS_MAX]; /* of several: who leads */
    service_loop_kept kept;
    tutti_lane_offers *lanes; /* [owned] NULL = none */
};

#define EXIT_LOST 1

/*
 * What was changed cannot be made durable, so nothing that has been seen since may be told: the
 * process ends as if it had been killed, and the next one begins with what was told.
 */
static void
lose_store(void *arg, const tutti_error *why)
{
    (void)arg;
    TUTTI_LOG("coordinator", ERROR,
              "the store cannot be written, so this process ends without answering the calls that "
              "wait for it: repair it and start the coordinator again: %s%s%s",
              why->reason, why->reason[0] == '\0' ? "" : ": ", why->text);
    _exit(EXIT_LOST);
}

/* A leader whose time is over answers nothing: another one may lead, and have changed what it would
 * tell of. Its process ends soon. */
static bool
may_answer(const tutti_service_loop *self)
{
    return self->leads_until == NULL || tutti_clock_ns() < self->leads_until(self->leads_arg);
}

/* For the gate: everything that is known now is in the store's present version. */
static uint64_t
get_gate_number(void *arg)
{
    const tutti_service_loop *self = arg;
    const uint64_t version = tutti_store_version(self->store);

    if (!may_answer(self)) {
        return UINT64_MAX;
    }
    return version == tutti_store_durable(self->store) ? 0 : version;
}

service_loop_kept *
service_loop_kept_of(tutti_service_loop *service_loop)
{
    return &service_loop->kept;
}

/* Begin the next transaction, unless one is under way; on_settled calls again then. */
static void
flush_store(tutti_service_loop *self)
{
    tutti_error err = {0};

    if (tutti_store_flush(self->store, &err) != TUTTI_OK) {
        lose_store(self, &err);
    }
}

/* True = the store has nothing to write now. */
static bool
is_written(const tutti_service_loop *self)
{
    return tutti_store_version(self->store) == tutti_store_durable(self->store);
}

static void
post_settled(tutti_service_loop *self)
{
    if (!atomic_exchange(&self->settled_posted, true)) {
        tutti_rpc_loop_post(self->loop, &self->settled);
    }
}

static void
open_gate(tutti_service_loop *self)
{
    if (may_answer(self)) {
        tutti_rpc_gate_open(&self->gate, tutti_store_durable(self->store));
    }
}

/*
 * The store's thread. On a quiet coordinator it answers itself: waking the loop for that is one more
 * thread that has to get a core, and costs a single client a tenth of its calls (much more on a busy
 * machine). With more to write, or a loop that is at work, the disk comes first and the loop answers.
 */
static void
on_durable(void *arg)
{
    tutti_service_loop *self = arg;
    bool is_quiet = false;

    if (tutti_rpc_loop_try_enter(self->loop)) {
        flush_store(self);
        is_quiet = is_written(self);
        if (is_quiet) {
            open_gate(self);
        }
        tutti_rpc_loop_leave(self->loop);
    }
    if (!is_quiet) {
        post_settled(self); /* behind the turn: in it this thread would run the task */
    }
}

static void
on_settled(tutti_rpc_task *task)
{
    tutti_service_loop *self = tutti_container_of(task, tutti_service_loop, settled);

    atomic_store(&self->settled_posted, false);
    flush_store(self); /* first: the disk works while the answers leave */
    open_gate(self);
}

static void
arm_service_loop(tutti_service_loop *self)
{
    uint64_t next_ns = tutti_coordinator_next(self->core);

    flush_store(self);
    /*
     * At least one nanosecond from now: a timer that is due at once would run before the loop's
     * other events, again and again.
     */
    if (next_ns <= self->now_ns) {
        next_ns = self->now_ns + 1;
    }
    tutti_rpc_loop_timer_start(self->loop, &self->timer, next_ns);
    if (!self->waiting && tutti_coordinator_busy(self->core)) {
        self->waiting = true;
        tutti_rpc_loop_post_idle(self->loop, &self->turn);
    }
}

tutti_coordinator *
service_loop_enter(tutti_service_loop *service_loop)
{
    service_loop->now_ns = tutti_clock_ns();
    tutti_coordinator_set_time(service_loop->core, service_loop->now_ns, tutti_clock_wall_ns());
    return service_loop->core;
}

/*
 * A short piece of work is done at once. Of a long one, such as an event that 10 000 sessions have
 * to be told, what is left after a slice waits until all that has been received is read.
 */
void
service_loop_leave(tutti_service_loop *service_loop)
{
    if (tutti_coordinator_next(service_loop->core) <= service_loop->now_ns) {
        tutti_coordinator_run(service_loop->core);
    }
    /* Not while an idle turn is asked for: the work would overtake what has been received. */
    if (!service_loop->waiting) {
        tutti_coordinator_turn(service_loop->core, false);
    }
    arm_service_loop(service_loop);
}

static void
on_timer(tutti_timer *timer)
{
    tutti_service_loop *self = tutti_container_of(timer, tutti_service_loop, timer);

    (void)service_loop_enter(self);
    service_loop_leave(self);
}

static void
on_turn(tutti_rpc_task *task)
{
    tutti_service_loop *self = tutti_container_of(task, tutti_service_loop, turn);

    self->waiting = false;
    tutti_coordinator_turn(service_loop_enter(self), tutti_rpc_loop_is_idle(self->loop));
    arm_service_loop(self);
}

static void
on_note(void *arg, const char *sentence)
{
    (void)arg;
    TUTTI_LOG("coordinator", INFO, "%s", sentence);
}

tutti_code
tutti_service_loop_new(const tutti_coordinator_options *options, tutti_store *store,
                       tutti_rpc_loop *loop, tutti_service_loop **ret_loop, tutti_error *err)
{
    tutti_service_loop *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a coordinator");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    self->options = options;
    self->loop = loop;
    self->timer.on_expiry = on_timer;
    self->turn.on_run = on_turn;
    self->settled.on_run = on_settled;
    atomic_init(&self->settled_posted, false);
    tutti_rpc_gate_init(&self->gate, get_gate_number, self);
    code = store == NULL ? TUTTI_OK : tutti_service_loop_begin(self, store, NULL, NULL, err);
    if (code != TUTTI_OK) {
        tutti_service_loop_free(self);
        return code;
    }
    *ret_loop = self;
    return TUTTI_OK;
}

/* `core` is set last: calls are refused without it. */
tutti_code
tutti_service_loop_begin(tutti_service_loop *service_loop, tutti_store *store,
                         uint64_t (*leads_until)(void *arg), void *arg, tutti_error *err)
{
    tutti_coordinator *core = NULL;
    tutti_code code;

    service_loop->store = store;
    service_loop->leads_until = leads_until;
    service_loop->leads_arg = arg;
    service_loop->now_ns = tutti_clock_ns();
    TUTTI_TRY(tutti_coordinator_new(service_loop->options, store, &core, err));
    tutti_coordinator_set_observer(core, on_note, NULL);
    tutti_coordinator_set_lost(core, lose_store, NULL);
    tutti_coordinator_set_time(core, service_loop->now_ns, tutti_clock_wall_ns());
    code = tutti_coordinator_restore(core, err);
    if (code != TUTTI_OK) {
        tutti_coordinator_free(core);
        return code;
    }
    service_loop->core = core;
    tutti_store_on_durable(store, on_durable, service_loop);
    arm_service_loop(service_loop);
    return TUTTI_OK;
}

void
tutti_service_loop_follow(tutti_service_loop *service_loop, const char *leader)
{
    (void)pthread_mutex_lock(&service_loop->lock);
    (void)snprintf(service_loop->leader, sizeof(service_loop->leader), "%s", leader);
    (void)pthread_mutex_unlock(&service_loop->lock);
}

/* The address is in the error's details as well, where programs find it (`leader`). */
tutti_code
service_loop_admit(void *service_loop, tutti_error *err)
{
    tutti_service_loop *self = service_loop;
    char leader[TUTTI_ADDRESS_MAX];
    tutti_error own;

    if (self->core != NULL) {
        return TUTTI_OK;
    }
    (void)pthread_mutex_lock(&self->lock);
    (void)snprintf(leader, sizeof(leader), "%s", self->leader);
    (void)pthread_mutex_unlock(&self->lock);
    if (leader[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "NOT_LEADER",
                              "this coordinator does not lead, and none does now: call again soon");
    }
    (void)TUTTI_FAIL_FOR(&own, TUTTI_UNAVAILABLE, "NOT_LEADER",
                         "this coordinator does not lead: %s does", leader);
    (void)snprintf(own.group, sizeof(own.group), "%.*s", TUTTI_ERROR_GROUP_MAX - 1, leader);
    return tutti_error_pass(err, &own);
}

/* Nobody writes `leader` any more once this process leads. */
const char *
service_loop_own_address(const tutti_service_loop *service_loop)
{
    return service_loop->leads_until == NULL ? "" : service_loop->leader;
}

void
tutti_service_loop_open_lanes(tutti_service_loop *service_loop, tutti_rpc_server *server)
{
    const tutti_coordinator_options *options = service_loop->options;
    const tutti_lane_offers_options offers = {.server = "coordinator",
                                              .host_id = options->host_id,
                                              .off = options->no_lane ? "--no-lane" : NULL,
                                              .lanes_max = options->lanes_max,
                                              .busy_poll_ns = options->busy_poll_ns,
                                              .any_user = options->share_any_user};

    service_loop->lanes = tutti_lane_offers_open(&offers, service_loop->loop, server);
}

void
tutti_service_loop_close_lanes(tutti_service_loop *service_loop)
{
    if (service_loop != NULL) {
        tutti_lane_offers_close(service_loop->lanes);
        service_loop->lanes = NULL;
    }
}

tutti_lane_offers *
service_loop_lanes(const tutti_service_loop *service_loop)
{
    return service_loop->lanes;
}

void
tutti_service_loop_end(tutti_service_loop *service_loop)
{
    if (service_loop != NULL && service_loop->store != NULL) {
        tutti_store_on_durable(service_loop->store, NULL, NULL);
    }
}

void
tutti_service_loop_free(tutti_service_loop *service_loop)
{
    if (service_loop == NULL) {
        return;
    }
    if (service_loop->core != NULL) {
        tutti_rpc_loop_timer_stop(service_loop->loop, &service_loop->timer);
    }
    if (service_loop->waiting) {
        tutti_rpc_loop_cancel_idle(service_loop->loop, &service_loop->turn);
    }
    tutti_coordinator_free(service_loop->core);
    (void)pthread_mutex_destroy(&service_loop->lock);
    tutti_rpc_packed_free(service_loop->kept.packed);
    free(service_loop);
}

static void
on_drain(void *arg)
{
    tutti_service_loop *self = arg;

    if (self->core != NULL) {
        tutti_coordinator_drain(service_loop_enter(self));
        service_loop_leave(self);
    }
}

void
tutti_service_loop_expose(tutti_service_loop *service_loop, tutti_page *page)
{
    tutti_page_family(page, "tutti_coordinator_leads", "gauge",
                      "1 = this process leads, 0 = it waits for another one to go.");
    tutti_page_number(page, "tutti_coordinator_leads", "", service_loop->core == NULL ? 0 : 1);
    tutti_page_family(page, "tutti_coordinator_lanes", "gauge",
                      "Streams of clients of this host whose messages go through shared memory.");
    tutti_page_number(page, "tutti_coordinator_lanes", "",
                      tutti_lane_offers_count(service_loop->lanes));
    tutti_page_family(page, "tutti_coordinator_lane_messages_total", "counter",
                      "Messages of clients that came through shared memory.");
    tutti_page_number(page, "tutti_coordinator_lane_messages_total", "",
                      tutti_lane_offers_messages(service_loop->lanes));
    if (service_loop->core != NULL) {
        tutti_coordinator_expose(service_loop_enter(service_loop), page);
        service_loop_leave(service_loop);
    }
}

void
tutti_service_loop_show(tutti_service_loop *service_loop, const char *job, bool ranks,
                        uint32_t first, tutti_page *page)
{
    tutti_coordinator *core = NULL;

    if (service_loop->core == NULL) {
        (void)pthread_mutex_lock(&service_loop->lock);
        tutti_coordinator_show_standby(service_loop->leader, page);
        (void)pthread_mutex_unlock(&service_loop->lock);
        return;
    }
    core = service_loop_enter(service_loop);
    if (ranks) {
        tutti_coordinator_show_ranks(core, job, first, page);
    } else {
        tutti_coordinator_show_state(core, job, page);
    }
    service_loop_leave(service_loop);
}

uint64_t
service_loop_deadline(const tutti_service_loop *service_loop, const tutti_rpc_call *call,
                      uint32_t timeout_ms)
{
    return tutti_clock_deadline(service_loop->now_ns, timeout_ms, tutti_rpc_call_deadline(call),
                                service_loop->options->wait_timeout_ns);
}

const tutti_error *
service_loop_say_gone(const tutti_rpc_call *call, tutti_error *err)
{
    if (tutti_rpc_call_cancelled(call)) {
        (void)TUTTI_FAIL_FOR(err, TUTTI_CANCELLED, "CALLER_GONE", "the caller went away");
    } else {
        (void)TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "DRAINING",
                             "the coordinator is shutting down: connect again");
    }
    return err;
}

void
service_loop_add(tutti_service_loop *service_loop, tutti_rpc_server *server,
                 const tutti_rpc_service *service)
{
    tutti_rpc_service own = *service;

    own.self = service_loop;
    own.loop = service_loop->loop;
    own.gate = &service_loop->gate;
    own.admit = service_loop_admit;
    tutti_rpc_server_add(server, &own);
}

void
service_loop_drain_with(tutti_service_loop *service_loop, tutti_rpc_server *server)
{
    tutti_rpc_server_on_drain(server, on_drain, service_loop);
}
