/*
 * tutti status: the job and its ranks, as the coordinator and the agents see them. The
 * coordinator says who is there; each agent that is alive is then asked itself, since one that
 * has just stopped is still alive to the coordinator.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/diagnose/way.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

#define RANKS_MAX 1024 /* of one lookup; more are not shown */
#define ASK_AT_ONCE 32
#define ASK_TIMEOUT_MS 3000
#define SILENT_SHOWN 4

/* What is known of one rank. */
typedef struct seen {
    tutti_rank_info info;
    tutti_agent_stats stats;
    bool answers;
    tutti_error err;     /* when it does not */
    tutti_error no_lane; /* when it does: code OK = calls from here go through a lane */
} seen;

typedef struct fan_out {
    cli *self;
    tutti_job_info job;
    seen *ranks;
    uint32_t count;
    pthread_mutex_t lock; /* guards next */
    uint32_t next;
} fan_out;

/* ------------------------------------------------------------------------------ asking */

/* Waits three seconds at most, so that a few agents that hang do not make the command slow. */
static void
ask_status(const fan_out *self, seen *one)
{
    tutti_client_options options;
    tutti_client *client = NULL;

    tutti_client_options_init(&options);
    options.agent = one->info.address;
    options.timeout_ms = ASK_TIMEOUT_MS;
    cli_options_secure(self->self, &options);
    if (self->self->local) {
        cli_options_local(&options);
    }
    one->answers = tutti_connect_with(&options, &client, &one->err) == TUTTI_OK &&
                   tutti_agent_stat(client, &one->stats, &one->err) == TUTTI_OK;
    if (one->answers) {
        one->no_lane.code = tutti_lane_check(client, &one->no_lane);
    }
    tutti_close(client);
}

/*
 * One of up to 32 threads. Each takes the next rank until there is none; what it learns goes to
 * that rank's own place, so only `next` needs the lock.
 */
static void *
run_asking(void *arg)
{
    fan_out *self = arg;

    for (;;) {
        uint32_t index;

        (void)pthread_mutex_lock(&self->lock);
        index = self->next++;
        (void)pthread_mutex_unlock(&self->lock);
        if (index >= self->count) {
            return NULL;
        }
        if (self->ranks[index].info.state == TUTTI_RANK_ALIVE) {
            ask_status(self, &self->ranks[index]);
        }
    }
}

/* Fewer threads than wanted are fine; without any, this thread does it all. */
static void
ask_all_status(fan_out *self)
{
    pthread_t threads[ASK_AT_ONCE];
    uint32_t count = 0;

    while (count < ASK_AT_ONCE && count < self->count &&
           pthread_create(&threads[count], NULL, run_asking, self) == 0) {
        count++;
    }
    if (count == 0) {
        (void)run_asking(self);
    }
    while (count > 0) {
        (void)pthread_join(threads[--count], NULL);
    }
}

static tutti_code
look_up_status(fan_out *self, tutti_client *client, tutti_error *err)
{
    uint32_t ranks[RANKS_MAX];
    tutti_rank_info *infos;
    tutti_code code;
    uint32_t i;

    self->count = self->job.world_size < RANKS_MAX ? self->job.world_size : RANKS_MAX;
    self->ranks = calloc(self->count, sizeof(*self->ranks));
    infos = calloc(self->count, sizeof(*infos));
    if (self->ranks == NULL || infos == NULL) {
        abort();
    }
    for (i = 0; i < self->count; i++) {
        ranks[i] = i;
    }
    code = tutti_ranks_get(client, ranks, self->count, infos, err);
    for (i = 0; i < self->count && code == TUTTI_OK; i++) {
        self->ranks[i].info = infos[i];
    }
    free(infos);
    return code;
}

static tutti_code
call_all_agents(fan_out *self, tutti_error *err)
{
    tutti_client *client = NULL;
    tutti_code code = cli_connect_coordinator(self->self, &client, err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = tutti_job_get(client, &self->job, err);
    if (code == TUTTI_OK) {
        code = look_up_status(self, client, err);
    }
    tutti_close(client);
    if (code == TUTTI_OK) {
        ask_all_status(self);
    }
    return code;
}

/* ------------------------------------------------------------------------------ telling */

static const char *
state_word(tutti_rank_state state)
{
    switch (state) {
    case TUTTI_RANK_FREE:
        return "free";
    case TUTTI_RANK_WAITING:
        return "waiting";
    case TUTTI_RANK_ALIVE:
        return "alive";
    case TUTTI_RANK_LOST:
        return "lost";
    }
    return "unknown";
}

/* What we have seen ourselves, beside the state that the coordinator knows. */
static const char *
health_word(const seen *one)
{
    if (one->info.state == TUTTI_RANK_ALIVE) {
        return one->answers ? "serving" : "silent";
    }
    return one->info.state == TUTTI_RANK_LOST ? "gone" : "-";
}

static json_t *
json_status_rank(const seen *one)
{
    const tutti_rank_info *info = &one->info;
    json_t *rank =
        json_pack("{s:I, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:I}", "rank", (json_int_t)info->rank,
                  "state", state_word(info->state), "health", health_word(one), "host", info->host,
                  "pid", (json_int_t)info->pid, "device", info->device, "address", info->address,
                  "version", info->version, "since_ms", (json_int_t)info->since_ms);

    if (info->reason[0] != '\0') {
        (void)json_object_set_new(rank, "reason", json_string(info->reason));
    }
    if (one->answers) {
        const tutti_agent_stats *stats = &one->stats;

        (void)json_object_update_new(
            rank, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:I, s:s}",
                            "tensors", (json_int_t)stats->tensor_count, "memory_used_bytes",
                            (json_int_t)stats->memory_used_bytes, "memory_limit_bytes",
                            (json_int_t)stats->memory_limit_bytes, "gpu_used_bytes",
                            (json_int_t)stats->gpu_used_bytes, "gpu_limit_bytes",
                            (json_int_t)stats->gpu_limit_bytes, "ops_running",
                            (json_int_t)stats->op_running_count, "ops_done",
                            (json_int_t)stats->op_done_count, "ops_failed",
                            (json_int_t)stats->op_failed_count, "last_sequence",
                            (json_int_t)stats->world_sequence, "last_op", stats->world_last_op,
                            "newest_group", stats->newest_group, "newest_sequence",
                            (json_int_t)stats->newest_sequence, "newest_op", stats->newest_op));
        cli_add_way(rank, &one->no_lane);
    } else if (info->state == TUTTI_RANK_ALIVE) {
        (void)json_object_set_new(rank, "error", cli_json_error(&one->err));
    }
    return rank;
}

static json_t *
json_agents(const fan_out *self)
{
    const tutti_job_info *job = &self->job;
    json_t *ranks = json_array();
    uint32_t i;

    for (i = 0; i < self->count; i++) {
        (void)json_array_append_new(ranks, json_status_rank(&self->ranks[i]));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:o}", "job", job->name, "epoch",
                     (json_int_t)job->epoch, "world_size", (json_int_t)job->world_size, "alive",
                     (json_int_t)job->alive_count, "lost", (json_int_t)job->lost_count, "groups",
                     (json_int_t)job->group_count, "coordinator", self->self->coordinator, "ranks",
                     ranks);
}

/* Only a rank that answered has figures. */
static bool
is_answering(const json_t *row)
{
    return json_object_get(row, "tensors") != NULL;
}

static cli_style
write_memory(FILE *out, const json_t *row, const char *key)
{
    char size[CLI_WORD_SIZE];
    const json_int_t used = cli_row_number(row, key) + cli_row_number(row, "gpu_used_bytes");

    (void)fputs(is_answering(row) ? cli_format_size((uint64_t)used, size) : "-", out);
    return CLI_PLAIN;
}

/* The last op, or why there is none to be known. */
static cli_style
write_last_op(FILE *out, const json_t *row, const char *key)
{
    const json_t *error = json_object_get(row, "error");

    if (is_answering(row)) {
        const char *group = cli_row_text(row, "newest_group");

        (void)fputs(cli_row_number(row, "ops_running") > 0 ? "* " : "", out);
        if (group[0] != '\0' && strcmp(group, "world") != 0) {
            (void)fprintf(out, "%s: ", group);
        }
        return cli_cell_value(out, row, key);
    }
    if (error != NULL) {
        (void)fputs(cli_row_text(error, "text"), out);
    } else if (json_object_get(row, "reason") != NULL) {
        (void)fputs(cli_row_text(row, "reason"), out);
    }
    return CLI_PLAIN;
}

/* Yellow: the coordinator takes it for alive, but it did not answer us. */
static cli_style
write_health(FILE *out, const json_t *row, const char *key)
{
    const char *state = cli_row_text(row, "state");

    (void)cli_cell_value(out, row, key);
    return is_answering(row)             ? CLI_GREEN
           : strcmp(state, "lost") == 0  ? CLI_RED
           : strcmp(state, "alive") == 0 ? CLI_YELLOW
                                         : CLI_PLAIN;
}

static cli_style
write_text(FILE *out, const json_t *row, const char *key)
{
    (void)fputs(cli_row_text(row, key), out);
    return CLI_PLAIN;
}

static const cli_column status_columns[] = {
    {">RANK", "rank", NULL},
    {"STATE", "state", NULL},
    {"HOST", "host", write_text},
    {"DEVICE", "device", write_text},
    {">TENSORS", "tensors", NULL},
    {">MEMORY", "memory_used_bytes", write_memory},
    {"CALLS", "calls", cli_write_way},
    {"LAST OP", "newest_op", write_last_op},
    {"HEALTH", "health", write_health},
    {0},
};

static void
print_agents(const fan_out *self, const json_t *document)
{
    const tutti_job_info *job = &self->job;

    (void)fprintf(self->self->out,
                  "job %s, epoch %" PRIu64 ": %" PRIu32 " of %" PRIu32 " ranks alive, %" PRIu32
                  " group%s, coordinator %s\n",
                  job->name, job->epoch, job->alive_count, job->world_size, job->group_count,
                  job->group_count == 1 ? "" : "s", self->self->coordinator);
    cli_print_rows(self->self, json_object_get(document, "ranks"), status_columns);
    if (self->count < job->world_size) {
        (void)fprintf(self->self->out, "... and %" PRIu32 " more ranks\n",
                      job->world_size - self->count);
    }
}

/* Nobody who is said to be alive answers: the job is not, whatever its coordinator thinks. */
static bool
is_silent(const fan_out *self, tutti_error *err)
{
    char who[512];
    size_t used = 0;
    uint32_t asked = 0;
    uint32_t i;

    who[0] = '\0';
    for (i = 0; i < self->count; i++) {
        const seen *one = &self->ranks[i];

        if (one->answers) {
            return false;
        }
        if (one->info.state == TUTTI_RANK_ALIVE && asked++ < SILENT_SHOWN && used < sizeof(who)) {
            used += (size_t)snprintf(who + used, sizeof(who) - used, "%srank %" PRIu32 " at %.60s",
                                     asked > 1 ? ", " : ": ", one->info.rank, one->info.address);
        }
    }
    if (self->job.epoch == 0) {
        return false; /* it is about to begin */
    }
    (void)cli_fail(err, TUTTI_UNAVAILABLE, "no agent answers%s%s",
                   asked == 0 ? ": all ranks are lost" : who, asked > SILENT_SHOWN ? ", ..." : "");
    return true;
}

static bool
is_job_whole(const fan_out *self)
{
    uint32_t i;

    for (i = 0; i < self->count; i++) {
        const seen *one = &self->ranks[i];

        if (one->info.state == TUTTI_RANK_ALIVE && !one->answers) {
            return false;
        }
    }
    return self->job.lost_count == 0;
}

/* Exits with failure when the job lacks a rank, so that a script can ask. */
int
cli_status(cli *self)
{
    fan_out all = {.self = self};
    int status = CLI_FINE;
    tutti_error err;
    tutti_code code;

    (void)pthread_mutex_init(&all.lock, NULL);
    code = call_all_agents(&all, &err);
    if (code == TUTTI_OK) {
        json_t *document = json_agents(&all);

        status = is_job_whole(&all) ? CLI_FINE : CLI_FAILED;

        if (!self->json) {
            print_agents(&all, document);
        }
        (void)cli_print_json(self, document);
    }
    if (code == TUTTI_OK && is_silent(&all, &err)) {
        code = TUTTI_UNAVAILABLE;
    }
    free(all.ranks);
    (void)pthread_mutex_destroy(&all.lock);
    return code == TUTTI_OK ? status : cli_failed(self, NULL, &err);
}
