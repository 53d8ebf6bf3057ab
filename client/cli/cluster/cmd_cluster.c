/* tutti cluster ... */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/data/utf8.h"
#include "client/cli/cli.h"
#include "client/cli/cluster/cluster.h"
#include "client/cli/cluster/commands.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/result.h"
#include "client/cli/util/state.h"
#include "client/cli/util/values.h"

#define START_TIMEOUT_MS 60000
#define STOP_TIMEOUT_MS 10000
#define PROGRAM_MAX 200 /* of a command line that is shown */

/*
 * Commands about clusters take --name; all others name a cluster by --cluster. Here both are
 * good.
 */
static const char *
cluster_name(const cli *self)
{
    const char *name = cli_value(self, "name");

    name = name != NULL ? name : cli_value(self, "cluster");
    return name != NULL ? name : "default";
}

/* The cluster of --name or --cluster, whose lock we have when `lock` is said. state_fini it. */
static tutti_code
open_cluster(const cli *self, bool lock, state *ret, tutti_error *err)
{
    tutti_code code = state_init(ret, cluster_name(self), err);

    if (code == TUTTI_OK) {
        code = state_read(ret, err);
    }
    if (code == TUTTI_OK && lock) {
        code = state_lock(ret, err);
    }
    return code;
}

static json_t *
json_process(const state_process *process)
{
    json_t *object = json_pack("{s:I, s:s, s:s, s:b}", "pid", (json_int_t)process->pid, "address",
                               process->address, "log", process->log, "alive",
                               cluster_process_is_alive(process));

    if (process->socket[0] != '\0') {
        (void)json_object_set_new(object, "socket", json_string(process->socket));
    }
    return object;
}

/* One document for all commands about clusters, from which the tables are made as well. */
static json_t *
json_cluster(const state *cluster)
{
    json_t *agents = json_array();
    uint32_t i;

    for (i = 0; i < cluster->rank_count; i++) {
        json_t *agent = json_process(&cluster->ranks[i]);

        (void)json_object_set_new(agent, "rank", json_integer(i));
        (void)json_array_append_new(agents, agent);
    }
    return json_pack("{s:s, s:s, s:s, s:b, s:b, s:o, s:o}", "name", cluster->name, "folder",
                     cluster->folder, "job", cluster->job, "ready", cluster->ready, "alive",
                     cluster_is_alive(cluster), "coordinator", json_process(&cluster->coordinator),
                     "agents", agents);
}

/* The words behind the options go to each agent as they are. */
static bool
read_start_options(cli *self, cluster_plan *ret)
{
    const char *memory = cli_value(self, "memory-limit");
    uint64_t bytes;
    int64_t count = 2;
    int64_t port = 0;

    if (cli_value(self, "port") != NULL && !cli_flag(self, "tcp")) {
        (void)cli_usage(self, "--port is for --tcp, which opens the cluster to every user of this "
                              "machine; without it there are sockets in a folder of yours alone");
        return false;
    }
    if (!cli_number(self, "count", 1, STATE_RANKS_MAX, &count) ||
        !cli_number(self, "port", 0, UINT16_MAX, &port)) {
        return false;
    }
    if (memory != NULL && !cli_parse_size(memory, &bytes)) {
        (void)cli_usage(self, "--memory-limit \"%s\": write 512MiB, 4GiB ...", memory);
        return false;
    }
    *ret =
        (cluster_plan){.name = cluster_name(self),
                       .rank_count = (uint32_t)count,
                       .memory_limit = memory,
                       .tcp = cli_flag(self, "tcp"),
                       .port = (uint16_t)port,
                       .more = self->arguments,
                       .more_count = self->argument_count,
                       .timeout_ms = self->timeout_ms != 0 ? self->timeout_ms : START_TIMEOUT_MS};
    return true;
}

int
cli_cluster_start(cli *self)
{
    cluster_plan plan;
    state cluster;
    tutti_error err;

    if (!read_start_options(self, &plan)) {
        return CLI_USAGE;
    }
    if (cluster_start(self, &plan, &cluster, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    if (!cli_print_json(self, json_cluster(&cluster))) {
        cli_say(self, "cluster %s: a coordinator at %s and %" PRIu32 " agent%s", cluster.name,
                cluster.coordinator.address, cluster.rank_count,
                cluster.rank_count == 1 ? "" : "s");
        cli_say(self, "export TUTTI_AGENT=%s", cluster.ranks[0].socket);
    }
    state_fini(&cluster);
    return CLI_FINE;
}

int
cli_cluster_stop(cli *self)
{
    const uint32_t timeout_ms = self->timeout_ms != 0 ? self->timeout_ms : STOP_TIMEOUT_MS;
    state cluster;
    tutti_error err;
    tutti_code code = open_cluster(self, true, &cluster, &err);

    if (code == TUTTI_OK) {
        cli_status_line(self, "stopping %" PRIu32 " agents", cluster.rank_count);
        code = cluster_stop(&cluster, timeout_ms, &err);
        cli_status_clear(self);
    }
    if (code == TUTTI_OK &&
        !cli_print_json(self, json_pack("{s:s, s:b}", "name", cluster.name, "stopped", 1))) {
        cli_say(self, "cluster %s is stopped", cluster.name);
    }
    state_fini(&cluster);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

static cli_style
write_process(FILE *out, const json_t *row, const char *key)
{
    const json_t *rank = json_object_get(row, key);

    if (rank == NULL) {
        (void)fputs("coordinator", out);
    } else {
        (void)fprintf(out, "agent %" JSON_INTEGER_FORMAT, json_integer_value(rank));
    }
    return CLI_PLAIN;
}

static cli_style
write_alive(FILE *out, const json_t *row, const char *key)
{
    const bool alive = json_is_true(json_object_get(row, key));

    (void)fputs(alive ? "runs" : "is gone", out);
    return alive ? CLI_GREEN : CLI_RED;
}

static const cli_column process_columns[] = {
    {"PROCESS", "rank", write_process},
    {"STATE", "alive", write_alive},
    {">PID", "pid", NULL},
    {"ADDRESS", "address", NULL},
    {"LOG", "log", NULL},
    {0},
};

static void
print_cluster(const cli *self, const json_t *document)
{
    json_t *rows = json_pack("[O]", json_object_get(document, "coordinator"));

    (void)json_array_extend(rows, json_object_get(document, "agents"));
    cli_print_rows(self, rows, process_columns);
    json_decref(rows);
}

/* How many of its agents live. */
static uint32_t
count_alive(const state *cluster)
{
    uint32_t count = 0;
    uint32_t i;

    for (i = 0; i < cluster->rank_count; i++) {
        count += cluster_process_is_alive(&cluster->ranks[i]) ? 1 : 0;
    }
    return count;
}

static bool
is_whole(const state *cluster)
{
    return cluster_process_is_alive(&cluster->coordinator) &&
           count_alive(cluster) == cluster->rank_count;
}

/* The exit code says whether the cluster is whole, so that scripts need not read the table. */
int
cli_cluster_status(cli *self)
{
    state cluster;
    json_t *document;
    tutti_error err;
    bool whole = false;
    tutti_code code = open_cluster(self, false, &cluster, &err);

    if (code == TUTTI_OK) {
        whole = is_whole(&cluster);
        document = json_cluster(&cluster);
        if (!self->json) {
            print_cluster(self, document);
        }
        (void)cli_print_json(self, document);
    }
    state_fini(&cluster);
    return code != TUTTI_OK ? cli_failed(self, NULL, &err) : whole ? CLI_FINE : CLI_FAILED;
}

/* ------------------------------------------------------------------------------ all of them */

static size_t
count_agents_alive(const json_t *row)
{
    const json_t *agents = json_object_get(row, "agents");
    size_t count = 0;
    size_t i;

    for (i = 0; i < json_array_size(agents); i++) {
        count += json_is_true(json_object_get(json_array_get(agents, i), "alive")) ? 1 : 0;
    }
    return count;
}

/* A cluster that is being started has all its processes and is not ready yet. */
static cli_style
write_cluster_state(FILE *out, const json_t *row, const char *key)
{
    const bool ready = json_is_true(json_object_get(row, key));
    const bool coordinator =
        json_is_true(json_object_get(json_object_get(row, "coordinator"), "alive"));
    const size_t alive = count_agents_alive(row);

    if (coordinator && alive == json_array_size(json_object_get(row, "agents"))) {
        (void)fputs(ready ? "runs" : "starting", out);
        return ready ? CLI_GREEN : CLI_YELLOW;
    }
    (void)fputs(alive == 0 && !coordinator ? "is gone"
                : coordinator              ? "lacks agents"
                                           : "lacks its coordinator",
                out);
    return CLI_RED;
}

static cli_style
write_agents(FILE *out, const json_t *row, const char *key)
{
    (void)fprintf(out, "%zu of %zu", count_agents_alive(row),
                  json_array_size(json_object_get(row, key)));
    return CLI_PLAIN;
}

static cli_style
write_coordinator(FILE *out, const json_t *row, const char *key)
{
    return cli_cell_value(out, json_object_get(row, key), "address");
}

static cli_style
write_age(FILE *out, const json_t *row, const char *key)
{
    const uint64_t age_s = (uint64_t)cli_row_number(row, key);

    (void)fprintf(out, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, age_s / 3600, age_s / 60 % 60,
                  age_s % 60);
    return CLI_PLAIN;
}

static const cli_column cluster_columns[] = {
    {"NAME", "name", NULL},
    {"STATE", "ready", write_cluster_state},
    {"AGENTS", "agents", write_agents},
    {">AGE", "age_s", write_age},
    {"PROGRAM", "program", NULL},
    {"COORDINATOR", "coordinator", write_coordinator},
    {"FOLDER", "folder", NULL},
    {0},
};

/* What `tutti run` was called with; its process is in the name of its cluster. "": it is another cluster, or has ended. */
static void
read_program(const char *name, char ret[PROGRAM_MAX])
{
    char path[64];
    long pid = 0;
    FILE *file;
    size_t size;
    size_t i;

    ret[0] = '\0';
    if (sscanf(name, "run-%ld", &pid) != 1) {
        return;
    }
    (void)snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    size = fread(ret, 1, PROGRAM_MAX - 1, file);
    (void)fclose(file);
    for (i = 0; i + 1 < size; i++) {
        ret[i] = ret[i] == '\0' ? ' ' : ret[i];
    }
    ret[size] = '\0';
    (void)tutti_utf8_clean(ret);
}

static uint64_t
age_of(const state_process *process)
{
    struct timespec now = {0};
    uint64_t started_s = process->started / (uint64_t)sysconf(_SC_CLK_TCK);

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec > started_s ? (uint64_t)now.tv_sec - started_s : 0;
}

static json_t *
json_listed(const state *cluster)
{
    json_t *one = json_cluster(cluster);
    char program[PROGRAM_MAX];

    read_program(cluster->name, program);
    (void)json_object_set_new(one, "age_s",
                              json_integer((json_int_t)age_of(&cluster->coordinator)));
    (void)json_object_set_new(one, "program", json_string(program));
    return one;
}

/* One that goes while we look is left out. */
static void
list_clusters(char **names, size_t count, json_t *list)
{
    size_t i;

    for (i = 0; i < count; i++) {
        state cluster;

        if (state_init(&cluster, names[i], NULL) == TUTTI_OK &&
            state_read(&cluster, NULL) == TUTTI_OK) {
            (void)json_array_append_new(list, json_listed(&cluster));
        }
        state_fini(&cluster);
    }
}

int
cli_cluster_list(cli *self)
{
    char **names = NULL;
    size_t count = 0;
    tutti_error err;
    json_t *list;

    if (state_names(&names, &count, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    list = json_array();
    list_clusters(names, count, list);
    state_names_free(names, count);
    cli_print_result(self, json_pack("{s:o}", "clusters", list), "clusters", cluster_columns);
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ again */

static int
compare_cluster_ranks(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left;
    const uint32_t b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

/* Sorted ranks, each once. Returns how many are left. */
static size_t
drop_twins(uint32_t *ranks, size_t count)
{
    size_t used = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        if (used == 0 || ranks[used - 1] != ranks[i]) {
            ranks[used++] = ranks[i];
        }
    }
    return used;
}

/* The ranks that were named, else those whose agents are gone. [out, owned] ret_ranks */
static tutti_code
choose_ranks(const cli *self, const state *cluster, uint32_t **ret_ranks, size_t *ret_count,
             tutti_error *err)
{
    size_t i;

    if (self->argument_count > 0) {
        if (!cli_parse_ranks(self->arguments[0], ret_ranks, ret_count)) {
            (void)cli_fail(err, TUTTI_INVALID_ARGUMENT,
                           "\"%.200s\": need a list of ranks: 1, 0-3 or 1,5", self->arguments[0]);
            (void)strcpy(err->reason, "USAGE");
            return err->code;
        }
        qsort(*ret_ranks, *ret_count, sizeof(**ret_ranks), compare_cluster_ranks);
        *ret_count = drop_twins(*ret_ranks, *ret_count);
        for (i = 0; i < *ret_count; i++) {
            if ((*ret_ranks)[i] >= cluster->rank_count) {
                return cli_fail(err, TUTTI_NOT_FOUND,
                                "there is no rank %" PRIu32 " in cluster %s of %" PRIu32,
                                (*ret_ranks)[i], cluster->name, cluster->rank_count);
            }
        }
        return TUTTI_OK;
    }
    *ret_ranks = calloc((size_t)cluster->rank_count + 1, sizeof(**ret_ranks));
    for (i = 0; *ret_ranks != NULL && i < cluster->rank_count; i++) {
        if (!cluster_process_is_alive(&cluster->ranks[i])) {
            (*ret_ranks)[(*ret_count)++] = (uint32_t)i;
        }
    }
    return *ret_count > 0
               ? TUTTI_OK
               : cli_fail(err, TUTTI_FAILED_PRECONDITION,
                          "all agents of cluster %s run: name the ranks to restart", cluster->name);
}

static void
say_restarted(const cli *self, const state *cluster, const uint32_t *ranks, size_t count)
{
    json_t *document = json_cluster(cluster);
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_integer(ranks[i]));
    }
    (void)json_object_set_new(document, "restarted", list);
    if (!cli_print_json(self, document)) {
        for (i = 0; i < count; i++) {
            cli_say(self, "agent %" PRIu32 " runs again: %s", ranks[i],
                    cluster->ranks[ranks[i]].address);
        }
    }
}

int
cli_cluster_restart(cli *self)
{
    const uint32_t timeout_ms = self->timeout_ms != 0 ? self->timeout_ms : START_TIMEOUT_MS;
    uint32_t *ranks = NULL;
    size_t count = 0;
    state cluster;
    tutti_error err;
    tutti_code code = open_cluster(self, true, &cluster, &err);

    if (code == TUTTI_OK) {
        code = choose_ranks(self, &cluster, &ranks, &count, &err);
    }
    if (code == TUTTI_OK) {
        code = cluster_restart(self, &cluster, ranks, count, timeout_ms, &err);
    }
    if (code == TUTTI_OK) {
        say_restarted(self, &cluster, ranks, count);
    }
    free(ranks);
    state_fini(&cluster);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
