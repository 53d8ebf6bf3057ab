/*
 * Starting a local cluster: the coordinator, then the agents, then waiting until all serve.
 * Starting some of its agents again is the same without the coordinator.
 *
 * The state is written after each process that was started. So whatever happens to this command,
 * `tutti cluster stop` finds all processes that there are.
 */
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

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"
#include "client/cli/util/process.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/state.h"

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

/* What `tutti cluster start` is doing, and `tutti cluster restart`. */
typedef struct starting {
    const cli *self;
    state *cluster;
    const cluster_place *place; /* of agents of a larger job; NULL = all are here */
    bool bound;                 /* to us */
    const uint32_t *ranks;      /* of the agents to be started; NULL = all */
    uint32_t rank_count;
    uint16_t port; /* of the coordinator; 0 = any */
    uint32_t timeout_ms;
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

/*
 * The coordinator, or an agent. Processes get a session of their own, so that Ctrl-C in this
 * terminal, or closing it, does not end them. Their output goes to their log.
 */
static tutti_code
launch_process(starting *self, char *const *words, state_process *process, tutti_error *err)
{
    const int log = open(process->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const process_plan plan = {.arguments = words,
                               .environment = self->environment,
                               .input = -1,
                               .output = log,
                               .error = log,
                               .session = true,
                               .bound = self->bound};
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

/*
 * Is a process that should be there still alive, and is there time left? Otherwise the end of its
 * log is shown, as that nearly always says why.
 */
static tutti_code
check_alive(const starting *self, const state_process *process, const char *name, tutti_error *err)
{
    int status = 0;

    if (interrupted != 0 || (self->place != NULL && self->place->is_over(self->place->arg))) {
        return cli_fail(err, TUTTI_CANCELLED, "interrupted");
    }
    if (!cluster_process_is_alive(process)) {
        (void)waitpid(process->pid, &status, 0); /* it has ended: a child's status is there */
        cli_status_clear(self->self);
        show_log(self->self, name, process->log);
        return cli_fail(err, TUTTI_UNAVAILABLE, "the %s ended with %s %d", name,
                        WIFSIGNALED(status) ? "signal" : "exit code",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    if (cli_now_ms() > self->until_ms) {
        cli_status_clear(self->self);
        show_log(self->self, name, process->log);
        return cli_fail(err, TUTTI_DEADLINE_EXCEEDED, "the %s did not serve within %" PRIu32 " ms",
                        name, self->timeout_ms);
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
            found = line[0] != '\0' && (!self->cluster->tcp || strncmp(line, "unix:", 5) != 0);
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

#define LISTEN_MAX (STATE_PATH_MAX + 224)

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
    if (self->place != NULL) {
        (void)snprintf(ret_listen, LISTEN_MAX, "%.200s,%s", self->place->listen, process->socket);
    } else if (self->cluster->tcp) {
        (void)snprintf(ret_listen, LISTEN_MAX, "127.0.0.1:%u,%s", port, process->socket);
    } else {
        (void)snprintf(ret_listen, LISTEN_MAX, "%s", process->socket);
    }
}

/*
 * With --tcp the address for people is that on loopback, but agents and clients of this cluster
 * use the socket.
 */
static tutti_code
start_coordinator(starting *self, tutti_error *err)
{
    state_process *process = &self->cluster->coordinator;
    char listen[LISTEN_MAX];
    char port_file[STATE_PATH_MAX];
    char *words[] = {self->coordinator, "--listen", listen, "--port-file", port_file, NULL, NULL};
    tutti_code code;

    if (self->place != NULL) {
        (void)snprintf(listen, sizeof(listen), "%s", self->place->coordinator);
        (void)snprintf(process->socket, sizeof(process->socket), "%s", self->place->coordinator);
        words[5] = self->place->insecure ? "--insecure" : NULL;
    } else {
        plan_listening(self, "coordinator.sock", 0, self->port, process, listen);
    }
    state_path(self->cluster, "coordinator.port", 0, port_file);
    state_path(self->cluster, "coordinator.log", 0, process->log);
    cli_status_line(self->self, "starting the coordinator");
    code = launch_process(self, words, process, err);
    if (code == TUTTI_OK) {
        code = wait_for_port(self, process, port_file, "coordinator", err);
    }
    return code;
}

#define AGENT_WORDS 32 /* that we say, at most */

/* Room for all words of an agent; the words themselves are borrowed. */
static char **
make_words(const state *cluster)
{
    size_t count = AGENT_WORDS;
    size_t i;
    char **words;

    for (i = 0; cluster->options != NULL && cluster->options[i] != NULL; i++) {
        count++;
    }
    words = calloc(count, sizeof(*words));
    if (words == NULL) {
        abort();
    }
    return words;
}

/* [in] rank  of those here; it gets the seat of that rank, behind rank_start, or none */
static tutti_code
start_agent(starting *self, uint32_t rank, tutti_error *err)
{
    const cluster_place *place = self->place;
    state_process *process = &self->cluster->ranks[rank];
    char **words = make_words(self->cluster);
    char listen[LISTEN_MAX];
    char port_file[STATE_PATH_MAX];
    char number[16];
    char local[16];
    char size[16];
    size_t n = 0;
    tutti_code code;
    size_t i;

    plan_listening(self, "agent-%u.sock", rank, 0, process, listen);
    state_path(self->cluster, "agent-%u.port", rank, port_file);
    state_path(self->cluster, "agent-%u.log", rank, process->log);
    (void)snprintf(number, sizeof(number), "%" PRIu32,
                   place != NULL ? place->rank_start + rank : rank);
    (void)snprintf(local, sizeof(local), "%" PRIu32, rank);
    (void)snprintf(size, sizeof(size), "%" PRIu32,
                   place != NULL ? place->world_size : self->cluster->rank_count);
    words[n++] = self->agent;
    words[n++] = "--coordinator", words[n++] = self->cluster->coordinator.socket;
    words[n++] = "--job", words[n++] = self->cluster->job;
    words[n++] = "--rank", words[n++] = number;
    words[n++] = "--local-rank", words[n++] = local;
    words[n++] = "--world-size", words[n++] = size;
    words[n++] = "--listen", words[n++] = listen;
    words[n++] = "--port-file", words[n++] = port_file;
    if (process->device[0] != '\0') {
        words[n++] = "--device", words[n++] = process->device;
    }
    if (place != NULL && place->insecure) {
        words[n++] = "--insecure";
    }
    for (i = 0; self->cluster->options != NULL && self->cluster->options[i] != NULL; i++) {
        words[n++] = self->cluster->options[i];
    }
    (void)unlink(port_file); /* of a process before this one */
    code = launch_process(self, words, process, err);
    free(words);
    return code;
}

/* ------------------------------------------------------------------------------ starting all */

static uint32_t
rank_at(const starting *self, uint32_t i)
{
    return self->ranks != NULL ? self->ranks[i] : i;
}

/* The rank in its job of one of ours. */
static uint32_t
job_rank(const starting *self, uint32_t rank)
{
    return self->place != NULL ? self->place->rank_start + rank : rank;
}

/*
 * The port file says that it listens; only a connection says that it serves, as it does that
 * after all ranks have joined.
 */
static tutti_code
wait_for_agent(starting *self, uint32_t rank, tutti_error *err)
{
    state_process *process = &self->cluster->ranks[rank];
    char port_file[STATE_PATH_MAX];
    tutti_client_options options;
    tutti_client *client = NULL;
    char name[32];
    tutti_code code;

    (void)snprintf(name, sizeof(name), "agent of rank %" PRIu32, job_rank(self, rank));
    state_path(self->cluster, "agent-%u.port", rank, port_file);
    code = wait_for_port(self, process, port_file, name, err);
    tutti_client_options_init(&options);
    options.agent = process->socket;
    options.coordinator = self->cluster->coordinator.socket;
    options.timeout_ms = ASK_MS;
    if (self->place != NULL) {
        cli_options_secure(self->self, &options);
    } else {
        cli_options_local(&options);
    }
    while (code == TUTTI_OK && tutti_connect_with(&options, &client, NULL) != TUTTI_OK) {
        uint32_t i;

        /* Another one that ended is why this one waits. */
        for (i = 0; i < self->rank_count && code == TUTTI_OK; i++) {
            const uint32_t other = rank_at(self, i);

            (void)snprintf(name, sizeof(name), "agent of rank %" PRIu32, job_rank(self, other));
            code = check_alive(self, &self->cluster->ranks[other], name, err);
        }
    }
    tutti_close(client);
    return code;
}

/* All are started before the first is waited for, since none serves before all have joined. */
static tutti_code
start_agents(starting *self, tutti_error *err)
{
    const uint32_t count = self->rank_count;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        cli_status_line(self->self, "starting agent %" PRIu32 " of %" PRIu32, i + 1, count);
        code = start_agent(self, rank_at(self, i), err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        cli_status_line(self->self, "%" PRIu32 " of %" PRIu32 " agents serve", i, count);
        code = wait_for_agent(self, rank_at(self, i), err);
    }
    return code;
}

static tutti_code
start_all(starting *self, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (self->place == NULL || self->place->serve) {
        code = start_coordinator(self, err);
    }
    if (code == TUTTI_OK && self->place != NULL) {
        cli_status_line(self->self, "waiting for the other nodes");
        code = self->place->meet(self->place->arg, err);
    }
    if (code == TUTTI_OK) {
        self->until_ms = cli_now_ms() + self->timeout_ms; /* others may have come late */
        code = start_agents(self, err);
    }
    if (code == TUTTI_OK) {
        self->cluster->ready = self->place == NULL; /* other commands take it for a whole job */
        code = state_write(self->cluster, err);
    }
    cli_status_clear(self->self);
    return code;
}

/*
 * What an agent is started with besides what we say. It is kept in the state, so that a restart
 * uses the same.
 */
static void
set_options(state *cluster, const cluster_plan *plan)
{
    char **words = calloc((size_t)plan->more_count + 2, sizeof(*words));
    size_t count = 0;
    int i;

    if (words == NULL) {
        abort();
    }
    if (plan->memory_limit != NULL) {
        words[count++] = "--memory-limit";
        words[count++] = (char *)(uintptr_t)plan->memory_limit;
    }
    for (i = 0; i < plan->more_count; i++) {
        words[count++] = plan->more[i];
    }
    state_set_options(cluster, words, count);
    free(words);
}

static void
set_place(state *cluster, const cluster_plan *plan)
{
    const cluster_place *place = plan->place;
    uint32_t i;

    (void)snprintf(cluster->job, sizeof(cluster->job), "%s", place != NULL ? place->job : JOB);
    if (place != NULL) {
        (void)snprintf(cluster->coordinator.socket, sizeof(cluster->coordinator.socket), "%s",
                       place->coordinator);
        (void)snprintf(cluster->coordinator.address, sizeof(cluster->coordinator.address), "%s",
                       place->coordinator);
    }
    for (i = 0; i < plan->rank_count && plan->devices != NULL; i++) {
        (void)snprintf(cluster->ranks[i].device, sizeof(cluster->ranks[i].device), "%s",
                       plan->devices[i]);
    }
}

/* It runs already: all of it, or what is left of it. */
static tutti_code
fail_running(const state *cluster, tutti_error *err)
{
    uint32_t i;

    for (i = 0; i < cluster->rank_count; i++) {
        if (cluster_process_is_alive(&cluster->coordinator) &&
            !cluster_process_is_alive(&cluster->ranks[i])) {
            return cli_fail(err, TUTTI_FAILED_PRECONDITION,
                            "cluster %s runs already, but agent %" PRIu32
                            " is gone: tutti cluster restart --name %s, or tutti cluster stop "
                            "--name %s",
                            cluster->name, i, cluster->name, cluster->name);
        }
    }
    return cli_fail(err, TUTTI_FAILED_PRECONDITION,
                    "cluster %s runs already: tutti cluster stop --name %s, or take another --name",
                    cluster->name, cluster->name);
}

/* What is left of a former cluster of that name is swept away when nothing of it lives. */
static tutti_code
make_room_cluster_agents(const cluster_plan *plan, state *cluster, tutti_error *err)
{
    tutti_code code = state_init(cluster, plan->name, err);

    if (code == TUTTI_OK) {
        code = state_lock(cluster, err);
    }
    if (code == TUTTI_OK && state_read(cluster, NULL) == TUTTI_OK && cluster_is_alive(cluster)) {
        code = fail_running(cluster, err);
    }
    if (code == TUTTI_OK) {
        code = state_make(cluster, plan->rank_count, err);
    }
    if (code == TUTTI_OK) {
        cluster->tcp = plan->tcp;
        set_options(cluster, plan);
        set_place(cluster, plan);
    }
    return code;
}

#define KEPT 4 /* variables */

/* The user's settings for clients are not meant for servers; of the others what says how they log,
 * where their modules are, and what tutti-tvm.so reads. Servers of a larger job get all: their
 * certificates are there. */
static char **
make_environment(const cluster_place *place)
{
    static const char *const kept[KEPT] = {"TUTTI_LOG", "TUTTI_MODULES", "TUTTI_TVM_LIBRARIES",
                                           "TUTTI_TVM_FUNCTIONS"};
    char words[KEPT][4 * PATH_MAX + 32];
    const char *changes[KEPT + 1] = {"TUTTI_*"};
    size_t count = 1;
    size_t i;

    if (place != NULL) {
        return process_environment(NULL, 0);
    }
    for (i = 0; i < KEPT; i++) {
        const char *value = getenv(kept[i]);

        if (value != NULL) {
            (void)snprintf(words[i], sizeof(words[i]), "%s=%.*s", kept[i], 4 * PATH_MAX, value);
            changes[count++] = words[i];
        }
    }
    return process_environment(changes, count);
}

/* The programs are looked for before anything is made, so a missing one leaves nothing behind. */
static tutti_code
find_programs(starting *self, tutti_error *err)
{
    const tutti_code code = process_find("tutti-coordinator", self->coordinator, err);

    return code == TUTTI_OK ? process_find("tutti-agent", self->agent, err) : code;
}

/* Ctrl-C and SIGTERM end what is being started, until they mean again what they did `before`. */
static void
catch_signals(struct sigaction before[2])
{
    const struct sigaction catch = {.sa_handler = on_signal};

    interrupted = 0;
    (void)sigaction(SIGINT, &catch, &before[0]);
    (void)sigaction(SIGTERM, &catch, &before[1]);
}

static void
let_signals(const struct sigaction before[2])
{
    (void)sigaction(SIGINT, &before[0], NULL);
    (void)sigaction(SIGTERM, &before[1], NULL);
}

/*
 * The lock is held until all serve, so that nobody stops or restarts what is just being started.
 */
tutti_code
cluster_start(const cli *self, const cluster_plan *plan, state *ret_state, tutti_error *err)
{
    struct sigaction before[2];
    starting all = {.self = self,
                    .cluster = ret_state,
                    .place = plan->place,
                    .bound = plan->bound || plan->place != NULL,
                    .rank_count = plan->rank_count,
                    .port = plan->port,
                    .timeout_ms = plan->timeout_ms};
    tutti_code code;

    all.until_ms = cli_now_ms() + plan->timeout_ms;
    code = find_programs(&all, err);
    if (code != TUTTI_OK) {
        return code;
    }
    code = make_room_cluster_agents(plan, ret_state, err);
    if (code != TUTTI_OK) {
        state_fini(ret_state);
        return code;
    }
    if (plan->place == NULL) {
        catch_signals(before);
    } /* else place->is_over looks for signals */
    all.environment = make_environment(plan->place);
    code = start_all(&all, err);
    process_environment_free(all.environment);
    if (code != TUTTI_OK && plan->place != NULL) {
        plan->place->fail(plan->place->arg, err);
    }
    if (code != TUTTI_OK) {
        (void)cluster_stop(ret_state, 2000, NULL);
    }
    if (plan->place == NULL) {
        let_signals(before);
    }
    if (code != TUTTI_OK) {
        state_fini(ret_state);
    } else {
        (void)close(ret_state->lock);
        ret_state->lock = -1;
    }
    return code;
}

/* The coordinator must live: the job is gone with it. */
tutti_code
cluster_restart(const cli *self, state *cluster, const uint32_t *ranks, size_t count,
                uint32_t timeout_ms, tutti_error *err)
{
    state_process *processes[STATE_RANKS_MAX];
    struct sigaction before[2];
    starting all = {.self = self,
                    .cluster = cluster,
                    .ranks = ranks,
                    .rank_count = (uint32_t)count,
                    .timeout_ms = timeout_ms,
                    .until_ms = cli_now_ms() + timeout_ms};
    tutti_code code = find_programs(&all, err);
    size_t i;

    if (code == TUTTI_OK && !cluster_process_is_alive(&cluster->coordinator)) {
        return cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "the coordinator of cluster %s is gone, and with it the job: tutti cluster "
                        "stop --name %s, then start",
                        cluster->name, cluster->name);
    }
    for (i = 0; i < count; i++) {
        processes[i] = &cluster->ranks[ranks[i]];
    }
    if (code == TUTTI_OK) {
        code = cluster_end(cluster, processes, count, timeout_ms, err);
    }
    if (code == TUTTI_OK) {
        catch_signals(before);
        all.environment = make_environment(NULL);
        code = start_agents(&all, err);
        if (code == TUTTI_OK) {
            code = state_write(cluster, err); /* the addresses are others */
        }
        cli_status_clear(self);
        process_environment_free(all.environment);
        let_signals(before);
    }
    return code;
}
