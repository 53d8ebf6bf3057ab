/* Starting a local cluster: the coordinator, then the agents, then until all serve. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cluster.h"
#include "client/cli/connect.h"
#include "client/cli/process.h"

#define LOG_LINES 12
#define LOG_TAIL_BYTES 4096
#define POLL_MS 10
#define ASK_MS 500 /* one try to connect, so that a dead process is noticed meanwhile */
#define JOB "default"

/* Set by SIGINT and SIGTERM while a cluster is started. */
static volatile sig_atomic_t interrupted;

static void
on_signal(int number)
{
    interrupted = number;
}

/* ------------------------------------------------------------------------------ starting one */

/* What `tutti cluster start` is doing. */
typedef struct starting {
    const cli *self;
    const cluster_plan *plan;
    state *cluster;
    char coordinator[PROCESS_PATH_MAX];
    char agent[PROCESS_PATH_MAX];
    char **environment;
    uint64_t until_ms;
} starting;

static void
pause_shortly(void)
{
    const struct timespec shortly = {.tv_nsec = POLL_MS * 1000000};

    (void)nanosleep(&shortly, NULL);
}

static tutti_code
launch(starting *self, char *const *words, state_process *process, tutti_error *err)
{
    const int log = open(process->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const process_plan plan = {.arguments = words,
                               .environment = self->environment,
                               .input = -1,
                               .output = log,
                               .error = log,
                               .session = true};
    tutti_code code;

    if (log < 0) {
        return cli_fail_errno(err, errno, "could not open %s", process->log);
    }
    code = process_start(&plan, &process->pid, err);
    (void)close(log);
    if (code == TUTTI_OK) {
        process->started = process_started(process->pid);
        code = state_write(self->cluster, err); /* from now on `cluster stop` finds it */
    }
    return code;
}

/* The last lines of a log, for who wants to know why. */
static void
show_log(const cli *self, const char *name, const char *path)
{
    char bytes[LOG_TAIL_BYTES + 1];
    FILE *file = fopen(path, "re");
    size_t size;
    size_t lines = 0;
    const char *at;

    if (file == NULL) {
        return;
    }
    (void)fseek(file, 0, SEEK_END);
    (void)fseek(file, ftell(file) > LOG_TAIL_BYTES ? -LOG_TAIL_BYTES : -ftell(file), SEEK_CUR);
    size = fread(bytes, 1, LOG_TAIL_BYTES, file);
    (void)fclose(file);
    bytes[size] = '\0';
    at = bytes + size;
    while (at > bytes && lines <= LOG_LINES) {
        at--;
        lines += *at == '\n' && at + 1 < bytes + size ? 1 : 0;
    }
    at += at > bytes ? 1 : 0;
    (void)fprintf(self->err, "last words of the %s:\n%s%s", name, at,
                  size > 0 && bytes[size - 1] != '\n' ? "\n" : "");
}

/* A process that should be there: is it? */
static tutti_code
check_alive(const starting *self, const state_process *process, const char *name, tutti_error *err)
{
    int status = 0;

    if (interrupted != 0) {
        return cli_fail(err, TUTTI_CANCELLED, "interrupted");
    }
    if (waitpid(process->pid, &status, WNOHANG) == process->pid ||
        !cluster_process_is_alive(process)) {
        cli_status_clear(self->self);
        show_log(self->self, name, process->log);
        return cli_fail(err, TUTTI_UNAVAILABLE, "the %s ended with %s %d", name,
                        WIFSIGNALED(status) ? "signal" : "exit code",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    if (cli_now_ms() > self->until_ms) {
        cli_status_clear(self->self);
        show_log(self->self, name, process->log);
        return cli_fail(err, TUTTI_DEADLINE_EXCEEDED, "the %s does not serve in %" PRIu32 " ms",
                        name, self->plan->timeout_ms);
    }
    return TUTTI_OK;
}

/* Wait for the port file, and read its TCP address, or its socket when it has no other. */
static tutti_code
wait_for_port(const starting *self, state_process *process, const char *port_file, const char *name,
              tutti_error *err)
{
    char line[STATE_PATH_MAX];
    tutti_code code;

    for (;;) {
        FILE *file = fopen(port_file, "re");
        bool found = false;

        while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            found = line[0] != '\0' && (!self->plan->tcp || strncmp(line, "unix:", 5) != 0);
        }
        if (file != NULL) {
            (void)fclose(file);
        }
        if (found) {
            (void)snprintf(process->address, sizeof(process->address), "%s", line);
            return TUTTI_OK;
        }
        code = check_alive(self, process, name, err);
        if (code != TUTTI_OK) {
            return code;
        }
        pause_shortly();
    }
}

#define LISTEN_MAX (STATE_PATH_MAX + 32)

/*
 * A socket in the cluster's folder, which is its user's alone: on a port every user of this machine
 * could call.
 */
static void
plan_listening(const starting *self, const char *format, uint32_t rank, uint16_t port,
               state_process *process, char ret_listen[LISTEN_MAX])
{
    char path[STATE_PATH_MAX];

    state_path(self->cluster, format, rank, path);
    (void)snprintf(process->socket, sizeof(process->socket), "unix:%.200s", path);
    if (self->plan->tcp) {
        (void)snprintf(ret_listen, LISTEN_MAX, "127.0.0.1:%u,%s", port, process->socket);
    } else {
        (void)snprintf(ret_listen, LISTEN_MAX, "%s", process->socket);
    }
}

static tutti_code
start_coordinator(starting *self, tutti_error *err)
{
    state_process *process = &self->cluster->coordinator;
    char listen[LISTEN_MAX];
    char port_file[STATE_PATH_MAX];
    char *words[] = {self->coordinator, "--listen", listen, "--port-file", port_file, NULL};
    tutti_code code;

    plan_listening(self, "coordinator.sock", 0, self->plan->port, process, listen);
    state_path(self->cluster, "coordinator.port", 0, port_file);
    state_path(self->cluster, "coordinator.log", 0, process->log);
    cli_status_line(self->self, "starting the coordinator");
    code = launch(self, words, process, err);
    if (code == TUTTI_OK) {
        code = wait_for_port(self, process, port_file, "coordinator", err);
    }
    return code;
}

#define AGENT_WORDS 32 /* that we say, at most */

static tutti_code
start_agent(starting *self, uint32_t rank, tutti_error *err)
{
    state_process *process = &self->cluster->ranks[rank];
    char **words = calloc(AGENT_WORDS + (size_t)self->plan->more_count, sizeof(*words));
    char listen[LISTEN_MAX];
    char port_file[STATE_PATH_MAX];
    char number[16];
    char size[16];
    size_t n = 0;
    tutti_code code;
    int i;

    if (words == NULL) {
        abort();
    }
    plan_listening(self, "agent-%u.sock", rank, 0, process, listen);
    state_path(self->cluster, "agent-%u.port", rank, port_file);
    state_path(self->cluster, "agent-%u.log", rank, process->log);
    (void)snprintf(number, sizeof(number), "%" PRIu32, rank);
    (void)snprintf(size, sizeof(size), "%" PRIu32, self->cluster->rank_count);
    words[n++] = self->agent;
    words[n++] = "--coordinator", words[n++] = self->cluster->coordinator.socket;
    words[n++] = "--job", words[n++] = JOB;
    words[n++] = "--rank", words[n++] = number;
    words[n++] = "--local-rank", words[n++] = number;
    words[n++] = "--world-size", words[n++] = size;
    words[n++] = "--listen", words[n++] = listen;
    words[n++] = "--port-file", words[n++] = port_file;
    if (self->plan->memory_limit != NULL) {
        words[n++] = "--memory-limit";
        words[n++] = (char *)(uintptr_t)self->plan->memory_limit;
    }
    for (i = 0; i < self->plan->more_count; i++) {
        words[n++] = self->plan->more[i];
    }
    code = launch(self, words, process, err);
    free(words);
    return code;
}

/* ------------------------------------------------------------------------------ starting all */

static tutti_code
wait_for_agent(starting *self, uint32_t rank, tutti_error *err)
{
    state_process *process = &self->cluster->ranks[rank];
    char port_file[STATE_PATH_MAX];
    tutti_client_options options;
    tutti_client *client = NULL;
    char name[32];
    tutti_code code;

    (void)snprintf(name, sizeof(name), "agent of rank %" PRIu32, rank);
    state_path(self->cluster, "agent-%u.port", rank, port_file);
    code = wait_for_port(self, process, port_file, name, err);
    tutti_client_options_init(&options);
    options.agent = process->socket;
    options.coordinator = self->cluster->coordinator.socket;
    options.timeout_ms = ASK_MS;
    cli_options_local(&options);
    while (code == TUTTI_OK && tutti_connect_with(&options, &client, NULL) != TUTTI_OK) {
        uint32_t i;

        /* Another one that ended is why this one waits. */
        for (i = 0; i < self->cluster->rank_count && code == TUTTI_OK; i++) {
            (void)snprintf(name, sizeof(name), "agent of rank %" PRIu32, i);
            code = check_alive(self, &self->cluster->ranks[i], name, err);
        }
    }
    tutti_close(client);
    return code;
}

static tutti_code
start_all(starting *self, tutti_error *err)
{
    const uint32_t count = self->cluster->rank_count;
    tutti_code code = start_coordinator(self, err);
    uint32_t i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        cli_status_line(self->self, "starting agent %" PRIu32 " of %" PRIu32, i + 1, count);
        code = start_agent(self, i, err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        cli_status_line(self->self, "%" PRIu32 " of %" PRIu32 " agents serve", i, count);
        code = wait_for_agent(self, i, err);
    }
    if (code == TUTTI_OK) {
        self->cluster->ready = true;
        code = state_write(self->cluster, err);
    }
    cli_status_clear(self->self);
    return code;
}

/* What is left of a former cluster of that name is swept away when nothing of it lives. */
static tutti_code
make_room(const cluster_plan *plan, state *cluster, tutti_error *err)
{
    tutti_code code = state_init(cluster, plan->name, err);

    if (code == TUTTI_OK) {
        code = state_lock(cluster, err);
    }
    if (code == TUTTI_OK && state_read(cluster, NULL) == TUTTI_OK && cluster_is_alive(cluster)) {
        code = cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "cluster %s runs already: tutti cluster stop --cluster %s", plan->name,
                        plan->name);
    }
    if (code == TUTTI_OK) {
        free(cluster->ranks);
        cluster->ranks = NULL;
        cluster->coordinator = (state_process){0};
        code = state_make(cluster, plan->rank_count, err);
    }
    return code;
}

/* The user's settings for clients are not meant for servers; of the others what says how they log,
 * and where their modules are. */
static char **
make_environment(void)
{
    static const char *const kept[] = {"TUTTI_LOG", "TUTTI_MODULES"};
    char words[2][PATH_MAX + 32];
    const char *changes[3] = {"TUTTI_*"};
    size_t count = 1;
    size_t i;

    for (i = 0; i < 2; i++) {
        const char *value = getenv(kept[i]);

        if (value != NULL) {
            (void)snprintf(words[i], sizeof(words[i]), "%s=%.*s", kept[i], PATH_MAX, value);
            changes[count++] = words[i];
        }
    }
    return process_environment(changes, count);
}

static tutti_code
find_programs(starting *self, tutti_error *err)
{
    const tutti_code code = process_find("tutti-coordinator", self->coordinator, err);

    return code == TUTTI_OK ? process_find("tutti-agent", self->agent, err) : code;
}

tutti_code
cluster_start(const cli *self, const cluster_plan *plan, state *ret_state, tutti_error *err)
{
    const struct sigaction catch = {.sa_handler = on_signal};
    struct sigaction before[2];
    starting all = {.self = self, .plan = plan, .cluster = ret_state};
    tutti_code code;

    all.until_ms = cli_now_ms() + plan->timeout_ms;
    code = find_programs(&all, err);
    if (code != TUTTI_OK) {
        return code;
    }
    code = make_room(plan, ret_state, err);
    if (code != TUTTI_OK) {
        state_fini(ret_state);
        return code;
    }
    (void)snprintf(ret_state->job, sizeof(ret_state->job), "%s", JOB);
    interrupted = 0;
    (void)sigaction(SIGINT, &catch, &before[0]);
    (void)sigaction(SIGTERM, &catch, &before[1]);
    all.environment = make_environment();
    code = start_all(&all, err);
    process_environment_free(all.environment);
    if (code != TUTTI_OK) {
        (void)cluster_stop(ret_state, 2000, NULL);
    }
    (void)sigaction(SIGINT, &before[0], NULL);
    (void)sigaction(SIGTERM, &before[1], NULL);
    if (code != TUTTI_OK) {
        state_fini(ret_state);
    } else {
        (void)close(ret_state->lock);
        ret_state->lock = -1;
    }
    return code;
}
