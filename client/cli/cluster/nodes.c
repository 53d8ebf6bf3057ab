/*
 * How the nodes of a run meet, hear of each other and part.
 *
 * A meeting leaves nothing behind, so runs one after the other at one coordinator do not mix: each
 * node puts a random number into its name, and the meeting's hash over all names is the ID of this
 * run alone. All keys have it in front.
 */
#include "client/cli/cluster/nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cluster/programs.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"

#define MEET_MS 300000 /* until all nodes are there */
#define SLICE_MS 1000  /* of waiting, so that signals are seen meanwhile */
#define START_MS 60000 /* until a node that was met says where it is */
#define PART_MS 5000   /* until the other agents have ended */
#define CALL_MS 10000  /* of one call */
#define AWAY_MS 30000  /* until a coordinator that does not answer is given up */
#define RETRY_MS 100   /* while the coordinator does not answer */
#define MEETING "tutti-run"
#define KEY_MAX 96

static void
sleep_ms(uint32_t ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&time, NULL);
}

/* "tutti-run/ID/what", or "tutti-run/ID/what/RANK". Returns its length. */
static size_t
run_key(const nodes *self, const char *what, int64_t rank, char ret[KEY_MAX])
{
    return rank < 0
               ? (size_t)snprintf(ret, KEY_MAX, MEETING "/%s/%s", self->run, what)
               : (size_t)snprintf(ret, KEY_MAX, MEETING "/%s/%s/%" PRId64, self->run, what, rank);
}

tutti_code
nodes_init(nodes *self, tutti_error *err)
{
    tutti_client_options options;
    tutti_code code;

    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->changed, NULL);
    if (gethostname(self->here.host, sizeof(self->here.host) - 1) != 0) {
        (void)snprintf(self->here.host, sizeof(self->here.host), "?");
    }
    self->here.rank_count = self->rank_count;
    code = nodes_own_address(self->coordinator, self->here.address, err);
    if (code != TUTTI_OK) {
        return code;
    }
    tutti_client_options_init(&options);
    options.agent = "";
    options.coordinator = self->coordinator;
    options.job = self->job;
    options.timeout_ms = CALL_MS;
    cli_options_secure(self->cli, &options);
    return tutti_connect_with(&options, &self->client, err);
}

/* While the coordinator serves, it takes no time. */
static void
stop_watching(nodes *self)
{
    char key[KEY_MAX];
    const size_t size = run_key(self, "bye", self->rank, key);

    atomic_store(&self->over, true);
    tutti_member_watch_stop(self->members);
    self->members = NULL;
    if (self->watching && !atomic_load(&self->away)) {
        (void)tutti_kv_set(self->client, key, size, "", 0, NULL); /* wakes our own watch */
        (void)tutti_kv_delete(self->client, key, size, NULL, NULL);
    }
    if (self->watching) {
        (void)pthread_join(self->thread, NULL);
        self->watching = false;
    }
}

void
nodes_fini(nodes *self)
{
    stop_watching(self);
    tutti_close(self->client);
    free(self->all);
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
}

/* ------------------------------------------------------------------------------ hearing */

/* Of another node. Our programs are ended for it. */
static void
note_failure(nodes *self, const char *text)
{
    bool first;

    (void)pthread_mutex_lock(&self->lock);
    first = !self->failed && !atomic_load(&self->over);
    if (first) {
        self->failed = true;
        (void)snprintf(self->failure, sizeof(self->failure), "%s", text);
        (void)pthread_cond_broadcast(&self->changed);
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (first) {
        programs_end();
    }
}

bool
nodes_have_failed(nodes *self, char ret[NODES_TEXT_MAX])
{
    bool failed;

    (void)pthread_mutex_lock(&self->lock);
    failed = self->failed;
    (void)snprintf(ret, NODES_TEXT_MAX, "%s", self->failure);
    (void)pthread_mutex_unlock(&self->lock);
    return failed;
}

static uint32_t
count_keys(const nodes *self, const char *what)
{
    char key[KEY_MAX];
    uint64_t count = 0;

    (void)tutti_kv_count(self->client, key, run_key(self, what, -1, key), &count, NULL);
    return (uint32_t)count;
}

/* What the keys say now. The key of a failure of our own is not there: we do not look any more. */
static void
read_keys(nodes *self)
{
    char key[KEY_MAX];
    const size_t size = run_key(self, "failed", -1, key);
    void *text = NULL;
    uint32_t ended = 0;
    uint32_t gone = 0;

    if (tutti_kv_get(self->client, key, size, &text, NULL, NULL) == TUTTI_OK) {
        note_failure(self, text);
        tutti_free(text);
    }
    if (self->count > 0) {
        ended = count_keys(self, "ended/");
        gone = count_keys(self, "gone/");
    }
    (void)pthread_mutex_lock(&self->lock);
    self->ended = self->ended || (self->count > 0 && ended >= self->count);
    self->gone = gone > self->gone ? gone : self->gone;
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

/* Without a key it says that the watch stands. */
static bool
on_key(void *arg, const tutti_kv_entry *entry)
{
    nodes *self = arg;

    (void)entry;
    if (!atomic_load(&self->over)) {
        read_keys(self);
    }
    return !atomic_load(&self->over);
}

/*
 * A coordinator that is being started again is asked again, for a while. One that was cut off shows
 * here alone: the watch of members hears nothing, and gRPC pings seldom.
 */
static void *
watch_keys(void *arg)
{
    nodes *self = arg;
    uint64_t heard_ms = cli_now_ms();
    char text[NODES_TEXT_MAX];
    char key[KEY_MAX];
    const size_t size = run_key(self, "", -1, key);
    tutti_error err;

    while (!atomic_load(&self->over)) {
        if (tutti_kv_watch(self->client, key, size, SLICE_MS, on_key, self, &err) == TUTTI_OK) {
            heard_ms = cli_now_ms();
            continue;
        }
        if (cli_now_ms() - heard_ms > AWAY_MS) {
            (void)snprintf(text, sizeof(text), "the coordinator %.200s does not answer: %.250s",
                           self->coordinator, err.text);
            atomic_store(&self->away, true);
            note_failure(self, text);
        }
        sleep_ms(RETRY_MS);
    }
    return NULL;
}

static tutti_code
start_watching(nodes *self, tutti_error *err)
{
    const int failed = pthread_create(&self->thread, NULL, watch_keys, self);

    self->watching = failed == 0;
    return failed == 0 ? TUTTI_OK : cli_fail_errno(err, failed, "could not start a thread");
}

/* ------------------------------------------------------------------------------ meeting */

static tutti_code
fail_meeting(const nodes *self, tutti_code code, const tutti_error *why, tutti_error *err)
{
    if (strcmp(why->reason, "DUPLICATE_RANK") == 0) {
        return cli_fail(err, code, "--node-rank %" PRIu32 " is taken: two nodes state it (%.600s)",
                        self->rank, why->text);
    }
    if (strcmp(why->reason, "GROUP_SIZE") == 0) {
        return cli_fail(err, code,
                        "--nnodes %" PRIu32 ": another node states another number (%.600s)",
                        self->count, why->text);
    }
    return cli_fail(err, code, "the nodes did not meet at %.200s: %.600s", self->coordinator,
                    why->text);
}

/*
 * In slices, since nothing interrupts a call: who comes back within a slice has not left for the
 * others. The coordinator may start later than we, too.
 */
static tutti_code
meet_once(nodes *self, tutti_error *err)
{
    const uint64_t until = cli_now_ms() + MEET_MS;
    tutti_meeting meeting;
    char name[NODES_HOST_MAX + 24];
    uint64_t number = 0;
    tutti_error why;
    tutti_code code;

    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
        return cli_fail_errno(err, errno, "no random numbers");
    }
    (void)snprintf(name, sizeof(name), "%s %016" PRIx64, self->here.host, number);
    tutti_meeting_init(&meeting);
    meeting.count = self->count;
    meeting.rank = self->rank;
    meeting.name = name;
    meeting.timeout_ms = SLICE_MS;
    while (!nodes_are_served(self->coordinator) && cli_now_ms() < until && !programs_must_end()) {
        sleep_ms(RETRY_MS); /* gRPC would try again ever more seldom */
    }
    for (;;) {
        code = tutti_meet(self->client, MEETING, sizeof(MEETING) - 1, &meeting, &why);
        if (code == TUTTI_OK) {
            (void)snprintf(self->run, sizeof(self->run), "%016" PRIx64, meeting.group_hash);
            return TUTTI_OK;
        }
        if (programs_must_end()) {
            return cli_fail(err, TUTTI_CANCELLED, "interrupted");
        }
        if ((code != TUTTI_DEADLINE_EXCEEDED && code != TUTTI_UNAVAILABLE) ||
            cli_now_ms() > until) {
            return fail_meeting(self, code, &why, err);
        }
        sleep_ms(code == TUTTI_UNAVAILABLE ? RETRY_MS : 0);
    }
}

/* "COUNT PORT ADDRESS HOST" */
static bool
read_node_value(const char *text, node *ret)
{
    return sscanf(text, "%" SCNu32 " %" SCNu16 " %255s %255s", &ret->rank_count, &ret->port,
                  ret->address, ret->host) == 4;
}

/* Where our ranks begin: behind those of the nodes before us. */
static tutti_code
number_ranks(nodes *self, tutti_error *err)
{
    uint64_t world = 0;
    uint32_t i;

    for (i = 0; i < self->count; i++) {
        self->rank_start = i == self->rank ? (uint32_t)world : self->rank_start;
        world += self->all[i].rank_count;
    }
    if (world > TUTTI_RANKS_MAX) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%" PRIu64 " ranks on all nodes, a job has at most %d", world,
                        TUTTI_RANKS_MAX);
    }
    self->world_size = (uint32_t)world;
    return TUTTI_OK;
}

static tutti_code
exchange_nodes(nodes *self, tutti_error *err)
{
    char(*keys)[KEY_MAX] = calloc(self->count, sizeof(*keys));
    tutti_kv_bytes *wanted = calloc(self->count, sizeof(*wanted));
    void **values = calloc(self->count, sizeof(*values));
    char text[2 * NODES_HOST_MAX + 32];
    bool good = true;
    tutti_code code;
    uint32_t i;

    self->all = calloc(self->count, sizeof(*self->all));
    if (keys == NULL || wanted == NULL || values == NULL || self->all == NULL) {
        abort();
    }
    for (i = 0; i < self->count; i++) {
        wanted[i] = (tutti_kv_bytes){keys[i], run_key(self, "node", i, keys[i])};
    }
    (void)snprintf(text, sizeof(text), "%" PRIu32 " %u %s %s", self->here.rank_count,
                   (unsigned)self->here.port, self->here.address, self->here.host);
    code = tutti_kv_set(self->client, keys[self->rank], wanted[self->rank].size, text, strlen(text),
                        err);
    if (code == TUTTI_OK) {
        code = tutti_kv_multi_get(self->client, wanted, self->count, START_MS, values, NULL, err);
    }
    for (i = 0; i < self->count && code == TUTTI_OK; i++) {
        good = good && read_node_value(values[i], &self->all[i]);
        tutti_free(values[i]);
    }
    free(values);
    free(wanted);
    free(keys);
    return code == TUTTI_OK && !good
               ? cli_fail(err, TUTTI_DATA_LOSS, "a key of " MEETING "/%s makes no sense", self->run)
               : code;
}

tutti_code
nodes_meet(nodes *self, tutti_error *err)
{
    tutti_code code;

    if (self->count == 0) {
        return TUTTI_OK;
    }
    code = meet_once(self, err);
    if (code == TUTTI_OK) {
        code = exchange_nodes(self, err);
    }
    if (code == TUTTI_OK) {
        code = number_ranks(self, err);
    }
    if (code == TUTTI_OK) {
        code = start_watching(self, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ members */

/* "rank 5 of node 1 (host)", as far as it is known. */
static void
name_rank(const nodes *self, uint32_t rank, char *ret, size_t size)
{
    uint32_t first = 0;
    uint32_t i;

    for (i = 0; self->all != NULL && i < self->count; i++) {
        if (rank >= first && rank - first < self->all[i].rank_count) {
            (void)snprintf(ret, size, "rank %" PRIu32 " of node %" PRIu32 " (%s)", rank, i,
                           self->all[i].host);
            return;
        }
        first += self->all[i].rank_count;
    }
    (void)snprintf(ret, size, "rank %" PRIu32, rank);
}

/*
 * A rank that says goodbye is none of our business where nodes do not wait for each other; where
 * they do, all programs have ended first.
 */
static void
note_lost(nodes *self, const tutti_member_event *event)
{
    char text[NODES_TEXT_MAX];
    char name[NODES_HOST_MAX + 64];

    if (event->left && (self->count == 0 || count_keys(self, "ended/") >= self->count)) {
        return;
    }
    read_keys(self); /* a failure that was told explains more */
    name_rank(self, event->rank, name, sizeof(name));
    (void)snprintf(text, sizeof(text), "%.300s is gone: %.150s", name, event->reason);
    note_failure(self, text);
}

static bool
on_member(void *arg, const tutti_member_event *event)
{
    nodes *self = arg;

    if (event->kind == TUTTI_MEMBERS_NOW && self->run[0] == '\0') {
        (void)pthread_mutex_lock(&self->lock);
        (void)snprintf(self->run, sizeof(self->run), "job-%016" PRIx64, event->job_id);
        (void)pthread_cond_broadcast(&self->changed);
        (void)pthread_mutex_unlock(&self->lock);
    }
    if (event->kind == TUTTI_MEMBER_LOST && !atomic_load(&self->over)) {
        note_lost(self, event);
    }
    return true;
}

/* Nodes that have not met share the number of the job, which the first event has. */
tutti_code
nodes_watch(nodes *self, tutti_error *err)
{
    tutti_member_watch_options options;
    tutti_code code;

    tutti_member_watch_options_init(&options);
    options.after_epoch = 0; /* a rank may have gone already */
    code = tutti_member_watch_start(self->client, &options, on_member, self, &self->members, err);
    if (code == TUTTI_OK && !self->watching) {
        (void)pthread_mutex_lock(&self->lock);
        while (self->run[0] == '\0') {
            (void)pthread_cond_wait(&self->changed, &self->lock);
        }
        (void)pthread_mutex_unlock(&self->lock);
        code = start_watching(self, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ parting */

/* Before the agents end here: what they do then is no news to the others. */
void
nodes_tell(nodes *self, const char *text)
{
    char key[KEY_MAX];

    if (self->run[0] != '\0' && !atomic_load(&self->away)) {
        (void)tutti_kv_compare_and_set(self->client, key, run_key(self, "failed", -1, key), NULL, 0,
                                       text, strlen(text), NULL, NULL, NULL, NULL);
    }
}

/* Until a change, a while. The caller has the lock. */
static void
wait_slice(nodes *self)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)RETRY_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&self->changed, &self->lock, &until);
}

void
nodes_wait(nodes *self)
{
    char key[KEY_MAX];

    if (self->count == 0) {
        return;
    }
    (void)tutti_kv_set(self->client, key, run_key(self, "ended", self->rank, key), "", 0, NULL);
    (void)pthread_mutex_lock(&self->lock);
    while (!self->ended && !self->failed && !programs_must_end()) {
        wait_slice(self);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* The keys go with the job. */
void
nodes_leave(nodes *self, bool serve)
{
    const uint64_t until = cli_now_ms() + PART_MS;
    char key[KEY_MAX];

    if (self->count > 0 && self->watching && !atomic_load(&self->away)) {
        (void)tutti_kv_set(self->client, key, run_key(self, "gone", self->rank, key), "", 0, NULL);
        (void)pthread_mutex_lock(&self->lock);
        while (serve && self->gone < self->count && cli_now_ms() < until) {
            wait_slice(self);
        }
        (void)pthread_mutex_unlock(&self->lock);
    }
    stop_watching(self);
}
