/* tutti cluster ... */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cluster.h"

#define START_TIMEOUT_MS 60000
#define STOP_TIMEOUT_MS 10000

static const char *
cluster_name(const cli *self)
{
    const char *name = cli_value(self, "name");

    name = name != NULL ? name : cli_value(self, "cluster");
    return name != NULL ? name : "default";
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
    tutti_code code = state_init(&cluster, cluster_name(self), &err);

    if (code == TUTTI_OK) {
        code = state_read(&cluster, &err);
    }
    if (code == TUTTI_OK) {
        code = state_lock(&cluster, &err);
    }
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

static void
add_row(cli_table *table, const char *name, const state_process *process)
{
    const bool alive = cluster_process_is_alive(process);

    cli_table_add(table, "%s", name);
    cli_table_add_styled(table, alive ? CLI_GREEN : CLI_RED, alive ? "runs" : "is gone");
    cli_table_add(table, "%ld", (long)process->pid);
    cli_table_add(table, "%s", process->address);
    cli_table_add(table, "%s", process->log);
}

static void
print_cluster(const cli *self, const state *cluster)
{
    cli_table *table = cli_table_new("PROCESS|STATE|>PID|ADDRESS|LOG");
    char name[32];
    uint32_t i;

    add_row(table, "coordinator", &cluster->coordinator);
    for (i = 0; i < cluster->rank_count; i++) {
        (void)snprintf(name, sizeof(name), "agent %" PRIu32, i);
        add_row(table, name, &cluster->ranks[i]);
    }
    cli_table_print(self, table);
    cli_table_free(table);
}

int
cli_cluster_status(cli *self)
{
    state cluster;
    tutti_error err;
    bool alive = false;
    tutti_code code = state_init(&cluster, cluster_name(self), &err);

    if (code == TUTTI_OK) {
        code = state_read(&cluster, &err);
    }
    if (code == TUTTI_OK) {
        alive = cluster_is_alive(&cluster);
        if (!cli_print_json(self, json_cluster(&cluster))) {
            print_cluster(self, &cluster);
        }
    }
    state_fini(&cluster);
    return code != TUTTI_OK ? cli_failed(self, NULL, &err) : alive ? CLI_FINE : CLI_FAILED;
}
