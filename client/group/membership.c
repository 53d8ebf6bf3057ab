/*
 * Watching members: a thread for each watch reads the coordinator's stream and calls on_event. If
 * the coordinator goes away the thread says so once (AWAY), and tries again with pauses that
 * double, from the epoch that it has told; so no change is told twice, and of changes missed the
 * last of each rank is told.
 *
 * `lock` guards `stream` and `stopping`: stop sets `stopping`, cancels the stream that is there,
 * and joins the thread. A stream that is opened behind that is cancelled at once
 * (begin_membership). Everything else belongs to the thread, or to start before there is one.
 * on_event runs on the thread and must not stop its own watch.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/thread.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/options.h"
#include "client/conn/stall_timer.h"
#include "client/group/members.h"
#include "tutti/membership.h"

#define PAUSE_MIN_NS (100 * TUTTI_NS_PER_MS)
#define PAUSE_MAX_NS (5 * TUTTI_NS_PER_S)

struct tutti_member_watch {
    tutti_client *client;
    client_conn *conn;
    tutti_member_fn on_event;
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock; /* guards `stream`, as seen by stop, and `stopping` */
    pthread_cond_t changed;
    tutti_rpc_stream *stream;
    bool stopping;
    /* the thread's */
    bool enough;
    bool from_now;    /* until the first answer has said what now is */
    uint64_t epoch;   /* the last one told */
    uint64_t job_id;  /* 0 = not known yet */
    uint64_t away_ns; /* since when nobody answers; 0 = somebody does */
    uint64_t pause_ns;
    tutti_rpc_message *first; /* what came while it was started */
    tutti_member_event event;
};

const char *
tutti_member_change_name(tutti_member_change kind)
{
    static const char *const names[] = {"unknown", "now",  "joined", "leaving",
                                        "lost",    "away", "end"};
    const size_t at = (size_t)kind;

    return names[at < sizeof(names) / sizeof(names[0]) ? at : 0];
}

void
tutti_member_watch_options_init(tutti_member_watch_options *options)
{
    *options = (tutti_member_watch_options){.size = sizeof(*options),
                                            .after_epoch = TUTTI_MEMBERS_FROM_NOW};
}

/* ------------------------------------------------------------------------------ telling */

static void
notify_follower(tutti_member_watch *self, tutti_member_event *event)
{
    event->job_id = self->job_id;
    self->enough = self->enough || !self->on_event(self->arg, event);
}

static void
tell_error(tutti_member_watch *self, tutti_member_change kind, const tutti_error *why)
{
    tutti_member_event event = {
        .size = sizeof(event), .kind = kind, .reason = "", .error = why, .epoch = self->epoch};

    notify_follower(self, &event);
}

/*
 * The state of the job: the first message of each stream. Another job of that name (it was begun
 * anew) has epochs of its own, so what was told of the old one does not count.
 */
static void
take_now(tutti_member_watch *self, tutti_member_event *event)
{
    if (self->from_now || (self->job_id != 0 && self->job_id != event->job_id)) {
        self->epoch = self->from_now ? event->epoch : 0;
    }
    self->from_now = false;
    self->job_id = event->job_id;
    self->away_ns = 0;
    self->pause_ns = PAUSE_MIN_NS;
    notify_follower(self, event);
}

static void
take_membership(tutti_member_watch *self, tutti_member_event *event)
{
    if (event->kind == TUTTI_MEMBERS_NOW) {
        take_now(self, event);
    } else if (event->kind != 0 && event->epoch > self->epoch) {
        self->epoch = event->epoch;
        notify_follower(self, event);
    }
}

/* ------------------------------------------------------------------------------ one stream */

static bool
is_follow_over(tutti_member_watch *self)
{
    bool over;

    (void)pthread_mutex_lock(&self->lock);
    over = self->stopping || self->enough;
    (void)pthread_mutex_unlock(&self->lock);
    return over;
}

/* How the stream ended. */
static void
finish_membership(tutti_member_watch *self, tutti_error *ret_why)
{
    tutti_rpc_stream *stream;

    (void)pthread_mutex_lock(&self->lock);
    stream = self->stream;
    self->stream = NULL;
    (void)pthread_mutex_unlock(&self->lock);
    if (self->enough) {
        tutti_rpc_stream_cancel(stream);
    }
    if (tutti_rpc_stream_finish(stream, ret_why) == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(ret_why, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                             "the coordinator ended the watch");
    }
}

static void
follow_membership(tutti_member_watch *self, tutti_error *ret_why)
{
    tutti_rpc_message *message = self->first;

    self->first = NULL;
    while (message != NULL && !is_follow_over(self)) {
        take_membership(self, &self->event);
        tutti_rpc_message_free(message);
        message = NULL;
        if (!self->enough &&
            client_wire_members_read(self->stream, &message, &self->event, NULL) != TUTTI_OK) {
            tutti_rpc_stream_cancel(self->stream); /* it said what nobody understands */
        }
    }
    tutti_rpc_message_free(message);
    finish_membership(self, ret_why);
}

/* Ask, and wait for the first answer, which is to come within the client's time. */
static tutti_code
begin_membership(tutti_member_watch *self, tutti_error *err)
{
    client_stall_timer *patience = &self->client->watch;
    client_watched watched = {.stalled = false};
    tutti_rpc_stream *stream = NULL;
    tutti_code code = client_wire_members_open(
        self->client, self->conn, self->from_now ? 0 : self->epoch, self->job_id, &stream, err);

    if (code != TUTTI_OK) {
        return code;
    }
    (void)pthread_mutex_lock(&self->lock);
    self->stream = stream;
    if (self->stopping) {
        tutti_rpc_stream_cancel(stream);
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (client_stall_timer_add(patience, &watched, stream,
                               self->client->settings.timeout_ms * TUTTI_NS_PER_MS,
                               NULL) == TUTTI_OK) {
        (void)client_wire_members_read(stream, &self->first, &self->event, NULL);
        if (client_stall_timer_remove(patience, &watched)) {
            finish_membership(self, NULL);
            return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                                  "the coordinator gave no answer in time");
        }
    } else {
        tutti_rpc_stream_cancel(stream);
    }
    if (self->first == NULL) {
        finish_membership(self, err);
        return err == NULL ? TUTTI_UNAVAILABLE : err->code;
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the thread */

/*
 * May the job come back? A coordinator without a durable store knows the job again only when its
 * agents have reconnected, so NOT_FOUND is patient for the client's timeout_ms.
 */
static bool
may_come_back(const tutti_member_watch *self, const tutti_error *why)
{
    const uint64_t patience_ns = self->client->settings.timeout_ms * TUTTI_NS_PER_MS;

    switch (why->code) {
    case TUTTI_NOT_FOUND:
        return self->away_ns == 0 || tutti_clock_ns() - self->away_ns < patience_ns;
    case TUTTI_INVALID_ARGUMENT:
    case TUTTI_FAILED_PRECONDITION:
    case TUTTI_PERMISSION_DENIED:
    case TUTTI_UNIMPLEMENTED:
        return false;
    default:
        return true;
    }
}

/*
 * Pauses double. The random half keeps the watches of many clients from coming at the same time.
 * Stop ends the pause.
 */
static void
pause_a_while(tutti_member_watch *self)
{
    const uint64_t half = self->pause_ns / 2;
    const uint64_t until = tutti_clock_ns() + half + tutti_id_draw() % (half + 1);

    self->pause_ns = self->pause_ns * 2 < PAUSE_MAX_NS ? self->pause_ns * 2 : PAUSE_MAX_NS;
    (void)pthread_mutex_lock(&self->lock);
    while (!self->stopping && tutti_clock_ns() < until) {
        (void)tutti_cond_wait_until(&self->changed, &self->lock, until);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* False: there is no point in trying any more, or nobody listens. */
static bool
come_back(tutti_member_watch *self, tutti_error *why)
{
    do {
        if (is_follow_over(self)) {
            return false;
        }
        if (!may_come_back(self, why)) {
            tell_error(self, TUTTI_MEMBERS_END, why);
            return false;
        }
        if (self->away_ns == 0) {
            self->away_ns = tutti_clock_ns();
            tell_error(self, TUTTI_MEMBERS_AWAY, why);
        }
        pause_a_while(self);
    } while (is_follow_over(self) || begin_membership(self, why) != TUTTI_OK);
    return true;
}

static void *
run_membership(void *arg)
{
    tutti_member_watch *self = arg;
    tutti_error why;

    do {
        follow_membership(self, &why);
    } while (come_back(self, &why));
    return NULL;
}

static tutti_code
start_thread(tutti_member_watch *self, tutti_error *err)
{
    const int failed = tutti_thread_start(&self->thread, run_membership, self);

    return failed == 0
               ? TUTTI_OK
               : TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                                "could not start a thread to watch members: %s", strerror(failed));
}

/* ------------------------------------------------------------------------------ door */

static tutti_member_watch *
watch_new(tutti_client *client, const tutti_member_watch_options *options)
{
    tutti_member_watch *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->client = client;
    self->from_now = options->after_epoch == TUTTI_MEMBERS_FROM_NOW;
    self->epoch = self->from_now ? 0 : options->after_epoch;
    self->job_id = options->job_id;
    self->pause_ns = PAUSE_MIN_NS;
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    return self;
}

static void
watch_free(tutti_member_watch *self)
{
    tutti_rpc_message_free(self->first);
    if (self->stream != NULL) { /* its thread was never started */
        tutti_rpc_stream_cancel(self->stream);
        (void)tutti_rpc_stream_finish(self->stream, NULL);
    }
    if (self->conn != NULL) {
        client_conn_give(self->client, self->conn);
    }
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

/* Of several coordinators one leads; the first that is asked may be another. */
static tutti_code
begin_somewhere(tutti_member_watch *self, tutti_error *err)
{
    uint64_t until_ns = 0;
    uint64_t pause_ns = 0;
    tutti_code code;

    do {
        code = begin_membership(self, err);
    } while (code != TUTTI_OK &&
             client_stream_again(self->client, self->conn, err, &until_ns, &pause_ns));
    return code;
}

tutti_code
tutti_member_watch_start(tutti_client *client, const tutti_member_watch_options *options,
                         tutti_member_fn on_event, void *arg, tutti_member_watch **ret_watch,
                         tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(on_event, err);
    TUTTI_NEED(ret_watch, err);

    tutti_member_watch_options own;
    tutti_member_watch *self;
    tutti_error failed = {0};
    tutti_code code = TUTTI_OK;

    tutti_member_watch_options_init(&own);
    if (options != NULL) {
        code = client_take_struct(&own, sizeof(own), options, options->size,
                                  "tutti_member_watch_options", err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    self = watch_new(client, &own);
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a watch");
    }
    self->on_event = on_event;
    self->arg = arg;
    code = client_conn_take(client, CLIENT_COORDINATOR, &self->conn, &failed);
    if (code == TUTTI_OK) {
        code = begin_somewhere(self, &failed);
    }
    if (code == TUTTI_OK) {
        code = start_thread(self, &failed);
    }
    if (code != TUTTI_OK) {
        watch_free(self);
        return tutti_error_pass(err, &failed);
    }
    *ret_watch = self;
    return TUTTI_OK;
}

void
tutti_member_watch_stop(tutti_member_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    assert(!pthread_equal(pthread_self(), watch->thread));
    (void)pthread_mutex_lock(&watch->lock);
    watch->stopping = true;
    if (watch->stream != NULL) {
        tutti_rpc_stream_cancel(watch->stream);
    }
    (void)pthread_cond_signal(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
    (void)pthread_join(watch->thread, NULL);
    watch_free(watch);
}
