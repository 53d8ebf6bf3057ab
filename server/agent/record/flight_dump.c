/*
 * The flight record as a file, when an op has failed and --flight-dir is given; in the format that
 * readers of PyTorch's flight recorder take.
 *
 * Control loop: it waits a little, so that ops that fail together are in one record, takes a copy
 * of all entries (snapshot), and hands it to a thread. The thread formats and writes, since disks
 * may take their time and the control loop has none. At most one thread runs: `busy` is its last
 * store, and the control loop joins it before it starts the next one, so path and shot are only
 * written while no thread reads them.
 *
 * Failures are logged and otherwise ignored: a record must not make anything worse.
 */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "base/os/file.h"
#include "base/os/log.h"
#include "server/agent/record/flight.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/group.h"
#include "server/agent/state/state.h"

/*
 * A failure usually fails several ops within some milliseconds; and a program that fails in a loop
 * must not write a file for each.
 */
#define SOON_NS (100 * TUTTI_NS_PER_MS)
#define AGAIN_NS TUTTI_NS_PER_S /* between one file and the next */
#define PATH_SIZE 4096

/* The contents of one file: made by the control loop, freed by the thread that has written it. */
typedef struct snapshot {
    size_t count;
    uint64_t offset_ns; /* from our clock to 1970 */
    json_t *document;   /* what is not an entry */
    agent_flight_entry entries[AGENT_FLIGHT_OPS];
} snapshot;

struct agent_dump {
    tutti_agent *agent;
    tutti_timer timer;
    bool due;
    uint64_t last_ns;
    char path[PATH_SIZE];
    snapshot *shot;
    bool started; /* the thread is to be joined */
    pthread_t thread;
    atomic_bool busy;
};

static void on_due(tutti_timer *timer);

tutti_code
agent_dump_open(tutti_agent *agent, tutti_error *err)
{
    const char *folder = agent->options->flight_dir;

    if (folder[0] != '\0' && access(folder, W_OK | X_OK) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "--flight-dir %s cannot be written to", folder);
    }
    agent->flight = agent_flight_new();
    agent->dump = calloc(1, sizeof(*agent->dump));
    if (agent->flight == NULL || agent->dump == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the flight recorder");
    }
    agent->dump->agent = agent;
    agent->dump->timer.on_expiry = on_due;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ its words */

/* "[0, 1, 2]": a text, as readers expect it. */
static json_t *
ranks_text(const agent_group *group)
{
    const uint32_t *ranks = tutti_coll_group_ranks(group->coll);
    const uint32_t count = tutti_coll_group_size(group->coll);
    char *words = malloc((size_t)count * 12 + 3);
    json_t *text;
    size_t used = 0;
    uint32_t i;

    if (words == NULL) {
        return json_string("[]");
    }
    words[used++] = '[';
    for (i = 0; i < count; i++) {
        used += (size_t)snprintf(words + used, 12, "%s%u", i == 0 ? "" : ", ", (unsigned)ranks[i]);
    }
    words[used++] = ']';
    text = json_stringn(words, used);
    free(words);
    return text;
}

/* Groups are named here and not by the thread: they belong to the control loop. */
static json_t *
write_head(const tutti_agent *agent)
{
    json_t *config = json_object();
    json_t *status = json_object();
    tutti_map_node *node;

    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        const agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll == NULL || agent->engine == NULL) { /* they went with it */
            continue;
        }
        (void)json_object_set_new(config, group->name,
                                  json_pack("{s:s, s:s, s:o}", "name", group->name, "desc", "tutti",
                                            "ranks", ranks_text(group)));
        (void)json_object_set_new(status, group->name,
                                  json_pack("{s:I, s:I, s:I}", "last_enqueued_collective",
                                            (json_int_t)group->sequence, "last_started_collective",
                                            (json_int_t)group->entered, "last_completed_collective",
                                            (json_int_t)agent_group_left(group)));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o}", "version", AGENT_FLIGHT_VERSION, "job",
                     agent_job(agent), "host", agent->host, "rank", (json_int_t)agent->rank,
                     "pg_config", config, "pg_status", status);
}

static void
set_tensors(json_t *entry, const char *sizes, const char *dtypes, const tutti_spec *spec,
            uint32_t count)
{
    json_t *shapes = json_array();
    json_t *types = json_array();
    json_t *dims = json_array();
    uint32_t i;

    for (i = 0; i < spec->dim_count; i++) {
        (void)json_array_append_new(dims, json_integer(spec->dims[i]));
    }
    if (count > 0) {
        (void)json_array_append(shapes, dims);
        (void)json_array_append_new(types, json_string(tutti_dtype_name(spec->dtype)));
    }
    json_decref(dims);
    (void)json_object_set_new(entry, sizes, shapes);
    (void)json_object_set_new(entry, dtypes, types);
}

/* Python writes None where there is no time. */
static json_t *
time_of(uint64_t at_ns, uint64_t offset_ns)
{
    return at_ns == 0 ? json_null() : json_integer((json_int_t)(at_ns + offset_ns));
}

static json_t *
write_entry(const agent_flight_entry *one, uint64_t offset_ns)
{
    const bool timed = one->started_ns != 0 && one->completed_ns != 0;
    char name[AGENT_FLIGHT_NAME_SIZE];
    json_t *entry;

    agent_flight_name(one, name);
    entry = json_pack(
        "{s:I, s:I, s:[ss], s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:s, s:o, s:b, s:I, s:b, s:[]}",
        "record_id", (json_int_t)one->record_id, "pg_id", (json_int_t)one->group_id,
        "process_group", one->group, "tutti", "collective_seq_id", (json_int_t)one->sequence,
        "p2p_seq_id", (json_int_t)one->p2p_number, "op_id", (json_int_t)one->op_number,
        "profiling_name", name, "time_created_ns", time_of(one->created_ns, offset_ns),
        "time_discovered_started_ns", time_of(one->started_ns, offset_ns),
        "time_discovered_completed_ns", time_of(one->completed_ns, offset_ns), "state",
        agent_flight_state_name(one->state), "duration_ms",
        timed ? json_real((double)(one->completed_ns - one->started_ns) / TUTTI_NS_PER_MS)
              : json_null(),
        "retired", (int)one->retired, "timeout_ms", (json_int_t)one->timeout_ms, "is_p2p",
        (int)(one->p2p_number != 0), "frames");
    (void)json_object_set_new(entry, "epoch", json_integer((json_int_t)one->epoch));
    if (one->trace[0] != '\0') {
        (void)json_object_set_new(entry, "trace_id", json_string(one->trace));
    }
    set_tensors(entry, "input_sizes", "input_dtypes", &one->input, one->input_count);
    set_tensors(entry, "output_sizes", "output_dtypes", &one->output, one->output_count);
    if (one->code != TUTTI_OK) {
        (void)json_object_set_new(entry, "error",
                                  json_pack("{s:s, s:s, s:s}", "code", tutti_code_name(one->code),
                                            "reason", one->reason, "text", one->error));
    }
    return entry;
}

/* ------------------------------------------------------------------------------ writing it */

static void
write_file(const char *path, snapshot *shot)
{
    json_t *entries = json_array();
    char *words = NULL;
    tutti_error err;
    size_t i;

    for (i = 0; i < shot->count; i++) {
        (void)json_array_append_new(entries, write_entry(&shot->entries[i], shot->offset_ns));
    }
    (void)json_object_set_new(shot->document, "entries", entries);
    words = json_dumps(shot->document, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (words == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for the flight record");
    } else if (tutti_file_write(path, words, strlen(words), 0644, &err) == TUTTI_OK) {
        TUTTI_LOG("agent", INFO, "an op failed: the last %zu ops are in %s", shot->count, path);
        err.code = TUTTI_OK;
    }
    if (words == NULL || err.code != TUTTI_OK) {
        TUTTI_LOG("agent", WARN, "the flight record was not written: %s", err.text);
    }
    free(words);
    json_decref(shot->document);
    free(shot);
}

static void *
run_writer(void *arg)
{
    struct agent_dump *self = arg;

    write_file(self->path, self->shot);
    atomic_store(&self->busy, false);
    return NULL;
}

/* DIR/flight-JOB-RANK.json; a job's name may hold slashes. */
static void
write_path(struct agent_dump *self)
{
    tutti_text text = tutti_text_in(self->path, sizeof(self->path));
    char *at;

    tutti_text_add(&text, "%s/", self->agent->options->flight_dir);
    at = self->path + text.used;
    tutti_text_add(&text, "flight-%s-%u.json", agent_job(self->agent), (unsigned)self->agent->rank);
    while ((at = strchr(at, '/')) != NULL) {
        *at = '_';
    }
}

static snapshot *
take_snapshot(const tutti_agent *agent)
{
    snapshot *shot = malloc(sizeof(*shot));

    if (shot == NULL) {
        TUTTI_LOG("agent", WARN, "no memory for the flight record");
        return NULL;
    }
    shot->count = agent_flight_read(agent->flight, 0, shot->entries, AGENT_FLIGHT_OPS);
    shot->offset_ns = tutti_clock_wall_ns() - tutti_clock_ns();
    shot->document = write_head(agent);
    return shot;
}

/*
 * Joins a thread that is done or about to be. Blocks only where that is wanted: at the agent's end.
 */
static void
wait_for_dump(struct agent_dump *self)
{
    if (self->started) {
        (void)pthread_join(self->thread, NULL);
        self->started = false;
    }
}

static void
arm_dump(struct agent_dump *self, uint64_t at_ns)
{
    self->due = true;
    tutti_rpc_loop_timer_start(self->agent->control, &self->timer, at_ns);
}

/*
 * Without a thread it is written here: late is better than never, and the agent is in trouble
 * anyway.
 */
static void
on_due(tutti_timer *timer)
{
    struct agent_dump *self = tutti_container_of(timer, struct agent_dump, timer);

    if (atomic_load(&self->busy)) { /* a slow disk */
        arm_dump(self, tutti_clock_ns() + AGAIN_NS);
        return;
    }
    wait_for_dump(self);
    self->due = false;
    self->last_ns = tutti_clock_ns();
    self->shot = take_snapshot(self->agent);
    if (self->shot == NULL) {
        return;
    }
    write_path(self);
    atomic_store(&self->busy, true);
    self->started = pthread_create(&self->thread, NULL, run_writer, self) == 0;
    if (!self->started) {
        (void)run_writer(self);
    }
}

void
agent_dump_soon(tutti_agent *agent)
{
    struct agent_dump *self = agent->dump;
    const uint64_t soon_ns = tutti_clock_ns() + SOON_NS;

    if (agent->options->flight_dir[0] == '\0' || self->due) {
        return;
    }
    arm_dump(self, self->last_ns != 0 && self->last_ns + AGAIN_NS > soon_ns
                       ? self->last_ns + AGAIN_NS
                       : soon_ns);
}

/*
 * What is due is written before the groups go, as it names them. on_due finds no thread busy: it
 * was joined.
 */
void
agent_dump_flush(tutti_agent *agent)
{
    struct agent_dump *self = agent->dump;

    if (self->due) {
        tutti_rpc_loop_timer_stop(agent->control, &self->timer);
        wait_for_dump(self);
        on_due(&self->timer);
    }
}

void
agent_dump_close(tutti_agent *agent)
{
    if (agent->dump != NULL) {
        wait_for_dump(agent->dump);
    }
    free(agent->dump);
    agent_flight_free(agent->flight);
    agent->dump = NULL;
    agent->flight = NULL;
}
