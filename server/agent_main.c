/*
 * tutti-agent, one per rank: options, start, signals, end.
 *
 * Threads. main blocks all signals before any thread exists, so that all inherit that, and takes
 * them by sigwait: no code of ours runs in a signal handler. Two loops are started, control and
 * bulk. on_end runs on the control loop and wakes main by SIGUSR1; main then stops the loops and
 * frees the agent.
 *
 * The order of the start matters: descriptors are raised before fair_reads makes its table of that
 * size; memory is hidden before keys are read; gRPC starts after fair_reads and abseil are set,
 * since it reads sockets and takes locks from its first moment.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/config/init_url.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/launch.h"
#include "base/os/log.h"
#include "base/os/process.h"
#include "metrics/metrics.h"
#include "server/abseil.h"
#include "server/agent/agent.h"
#include "server/fair_reads.h"
#include "server/guard.h"
#include "tutti/version.h"

#define FILES_MIN 256
#define START_MS 30000   /* until a coordinator of ours listens */
#define PATIENCE_MS 1500 /* until it is killed; by then it has no agent */
#define LOOK_AGAIN_NS (50 * TUTTI_NS_PER_MS)

typedef struct log_options {
    const char *levels;
    const char *format;
} log_options;

typedef struct parent_options {
    uint64_t pid;
    bool with_coordinator;
} parent_options;

typedef struct program {
    parent_options parent;
    tutti_agent_options options;
    tutti_rpc_server_options server;
    tutti_auth_options auth;
    log_options logs;
} program;

static const tutti_option log_table[] = {
    {"log", TUTTI_OPTION_LIST, offsetof(log_options, levels), "info", 0, 0, NULL,
     "what to log: info, or info,rpc=debug,coll=trace"},
    {"log-format", TUTTI_OPTION_WORD, offsetof(log_options, format), "people", 0, 0, NULL,
     "\"people\", \"machine\" for key=value lines, or \"json\" for an object a line"},
};

static const tutti_option parent_table[] = {
    {"parent-pid", TUTTI_OPTION_UINT, offsetof(parent_options, pid), "0", 0, INT32_MAX, NULL,
     "end when this process has ended, within two seconds; 0 = none"},
    {"with-coordinator", TUTTI_OPTION_BOOL, offsetof(parent_options, with_coordinator), "false", 0,
     0, NULL,
     "start a coordinator for this agent, which listens on --coordinator if that is given, else on "
     "a free port of this machine, and ends with the agent"},
};

/* How the agent has ended, for main, which waits for a signal. */
static struct {
    tutti_metrics_options showing;
    tutti_metrics *metrics;
    int ended; /* signal number that tells main about the end */
    bool failed;
    tutti_error why;
} state;

/* Control loop. `state` is written before the signal is sent and read by main behind sigwait. */
static void
on_end(void *arg, const tutti_error *err)
{
    (void)arg;
    if (err != NULL) {
        state.failed = true;
        state.why = *err;
    }
    (void)kill(getpid(), SIGUSR1);
}

/* MASTER_ADDR and MASTER_PORT, as launchers of PyTorch set them, where no coordinator was named. */
static void
look_at_launcher(const tutti_config *config, tutti_agent_options *options)
{
    static char address[300];
    const char *host = getenv("MASTER_ADDR");
    const char *port = getenv("MASTER_PORT");

    if (host != NULL && !tutti_config_given(config, "coordinator")) {
        (void)snprintf(address, sizeof(address), "%.200s:%.10s", host,
                       port != NULL ? port : "29600");
        options->coordinator = address;
    }
}

/* The file of an init address may be written later, by another process: it is waited for as long as
 * joining may take. main's thread, before any other exists. */
static tutti_code
wait_for_address(const tutti_init_url *url, uint64_t timeout_ns, char *ret_address,
                 tutti_error *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_NS};
    const uint64_t deadline_ns =
        timeout_ns == 0 ? UINT64_MAX : tutti_clock_add(tutti_clock_ns(), timeout_ns);
    tutti_code code = tutti_init_url_resolve(url, ret_address, err);

    while (code == TUTTI_NOT_FOUND && tutti_clock_ns() < deadline_ns) {
        (void)nanosleep(&pause, NULL);
        code = tutti_init_url_resolve(url, ret_address, err);
    }
    return code;
}

/*
 * An init address has coordinator, rank and world size in one; it wins over the options. The texts
 * are static, as the options borrow them for the life of the process.
 */
static tutti_code
take_init_url(tutti_agent_options *options, tutti_error *err)
{
    static char address[TUTTI_ADDRESS_MAX];
    static char rank[16];
    tutti_init_url url;

    if (!tutti_init_url_is(options->coordinator)) {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_init_url_parse(options->coordinator, getenv, &url, err));
    TUTTI_TRY(wait_for_address(&url, options->join_timeout_ns, address, err));
    (void)snprintf(rank, sizeof(rank), "%u", (unsigned)url.rank);
    options->coordinator = address;
    options->rank = rank;
    options->world_size = url.world_size;
    return TUTTI_OK;
}

/*
 * Before any thread exists. It follows this process and not our parent: so it is there until this
 * agent has left.
 */
static tutti_code
start_coordinator(program *self, const tutti_config *config, tutti_launched_process *ret_process,
                  tutti_error *err)
{
    static char address[TUTTI_ADDRESS_MAX];
    char path[TUTTI_LAUNCH_PATH_MAX];
    char pid[16];
    const bool given = tutti_config_given(config, "coordinator");
    const char *const arguments[] = {path,
                                     "--listen",
                                     given ? self->options.coordinator : "127.0.0.1:0",
                                     "--parent-pid",
                                     pid,
                                     "--log",
                                     self->logs.levels,
                                     NULL};

    (void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    TUTTI_TRY(tutti_launch_find("tutti-coordinator", NULL, NULL, path, err));
    TUTTI_TRY(tutti_launch_start(arguments, START_MS, ret_process, address, sizeof(address), err));
    self->options.coordinator = address;
    return TUTTI_OK;
}

static tutti_code
hide_keys(const program *self, tutti_error *err)
{
    const char *const more[] = {self->options.tls_key, self->options.token_file, NULL};

    return tutti_guard_hide_keys(&self->auth, &self->server, more, err);
}

/* A signal of our own is tutti_launch_follow's: the program has ended for which this agent is there. */
static void
note_signal(const program *self, tutti_agent *agent, const siginfo_t *info)
{
    char why[TUTTI_AGENT_LEAVE_MAX];

    if (self->parent.pid != 0 && info->si_pid == getpid()) {
        (void)snprintf(why, sizeof(why), "its program (pid %" PRIu64 ") has ended",
                       self->parent.pid);
        TUTTI_LOG("agent", INFO, "%s", why);
        tutti_agent_stop(agent, why);
    } else {
        TUTTI_LOG("agent", INFO, "%s", strsignal(info->si_signo));
        tutti_agent_stop(agent, "stopped");
    }
}

/*
 * Each SIGTERM or SIGINT is one tutti_agent_stop: the second one skips the first phase
 * (shutdown.c).
 */
static void
wait_for_end(const program *self, tutti_agent *agent, const sigset_t *signals)
{
    siginfo_t info = {0};

    while (info.si_signo != SIGUSR1) {
        if (sigwaitinfo(signals, &info) >= 0 && info.si_signo != SIGUSR1) {
            note_signal(self, agent, &info);
        }
    }
}

static int
fail_agent(const tutti_error *err, int status)
{
    (void)fprintf(stderr, "tutti-agent: %s\n", err->text);
    return status;
}

/* Grants name ranks; the agent's own is known when it has joined. */
static void
on_joined(void *arg, uint32_t rank)
{
    tutti_auth_set_rank(arg, rank);
}

/* Before the server starts. With --rank, grants for that rank hold while the agent still joins. */
static void
put_guard(const program *self, tutti_auth *auth, tutti_agent *agent)
{
    uint64_t rank = 0;

    tutti_auth_set_job(auth, self->options.job);
    if (self->options.rank[0] != '\0' &&
        tutti_parse_uint(self->options.rank, TUTTI_RANKS_MAX - 1, &rank, NULL) == TUTTI_OK) {
        tutti_auth_set_rank(auth, (uint32_t)rank);
    }
    tutti_guard_serve(auth, &self->auth, tutti_agent_server(agent));
    tutti_agent_on_joined(agent, on_joined, auth);
}

static void
on_page(void *arg, tutti_page *page)
{
    tutti_agent_expose(arg, page);
}

static bool
on_ready(void *arg, tutti_text *why)
{
    return tutti_agent_ready(arg, why);
}

static tutti_code
show_agent(tutti_agent *agent, tutti_rpc_loop *control, tutti_error *err)
{
    const tutti_metrics_source source = {.loop = control,
                                         .program = "tutti-agent",
                                         .on_page = on_page,
                                         .on_ready = on_ready,
                                         .arg = agent};

    return tutti_metrics_start(&state.showing, &source, &state.metrics, err);
}

static int
serve_agent(const program *self, tutti_agent *agent, tutti_rpc_loop *control, tutti_rpc_loop *bulk,
            const sigset_t *signals)
{
    tutti_error err;
    tutti_code code = show_agent(agent, control, &err);

    tutti_agent_on_end(agent, on_end, NULL);
    if (code == TUTTI_OK) {
        code = tutti_agent_start(agent, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_rpc_loop_start(control, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_rpc_loop_start(bulk, &err);
    }
    if (code == TUTTI_OK) {
        wait_for_end(self, agent, signals);
    }
    tutti_metrics_stop(state.metrics);
    if (code != TUTTI_OK) {
        return fail_agent(&err, 1);
    }
    return state.failed ? fail_agent(&state.why, 1) : 0;
}

static int
run_agent(const program *self, const sigset_t *signals)
{
    tutti_auth *auth = NULL;
    tutti_rpc_loop *control = NULL;
    tutti_rpc_loop *bulk = NULL;
    tutti_agent *agent = NULL;
    tutti_error err;
    int status = 1;
    tutti_code code = tutti_auth_open(&self->auth, &auth, &err);

    if (code == TUTTI_OK) {
        code = tutti_rpc_loop_new("tutti-control", &control, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_rpc_loop_new("tutti-bulk", &bulk, &err);
    }
    if (code == TUTTI_OK) {
        tutti_rpc_loop_idle(bulk);
    }
    if (code == TUTTI_OK) {
        code = tutti_agent_new(&self->options, &self->server, control, bulk, &agent, &err);
    }
    if (code == TUTTI_OK) {
        put_guard(self, auth, agent);
        status = serve_agent(self, agent, control, bulk, signals);
    } else {
        (void)fail_agent(&err, 1);
    }
    if (bulk != NULL) {
        tutti_rpc_loop_stop(bulk);
    }
    if (control != NULL) {
        tutti_rpc_loop_stop(control);
    }
    tutti_agent_free(agent);
    tutti_rpc_loop_free(bulk);
    tutti_rpc_loop_free(control);
    tutti_auth_close(auth);
    return status;
}

/*
 * Before any thread is made, so that all of them inherit it. SIGPIPE: writes to broken sockets fail
 * with EPIPE instead.
 */
static void
block_signals(sigset_t *signals)
{
    (void)sigemptyset(signals);
    (void)sigaddset(signals, SIGTERM);
    (void)sigaddset(signals, SIGINT);
    (void)sigaddset(signals, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

int
main(int argc, char **argv)
{
    program self = {.logs = {0}};
    const tutti_option_set sets[] = {
        tutti_agent_option_set(&self.options),
        tutti_rpc_server_option_set(&self.server, "127.0.0.1:0"),
        tutti_auth_option_set(&self.auth),
        tutti_metrics_option_set(&state.showing),
        {"log", log_table, sizeof(log_table) / sizeof(log_table[0]), &self.logs},
        {"process", parent_table, sizeof(parent_table) / sizeof(parent_table[0]), &self.parent},
    };
    const size_t set_count = sizeof(sets) / sizeof(sets[0]);
    tutti_config *config = NULL;
    static const tutti_program_words words = {
        "tutti-agent", "Runs beside the memory of one rank: owns tensors, runs collectives.",
        "  tutti-agent --world-size 2 --memory-limit 8GiB\n"
        "  tutti-agent --coordinator unix:/run/tutti.sock --world-size 4 --rank 0"};
    tutti_launched_process coordinator = {0};
    tutti_config_wish wish;
    sigset_t signals;
    tutti_error err;
    tutti_code code;
    int status = 0;

    if (tutti_config_load(sets, set_count, argc, argv, &config, &wish, &err) != TUTTI_OK ||
        tutti_log_set_format(self.logs.format, &err) != TUTTI_OK ||
        tutti_log_set_levels(self.logs.levels, &err) != TUTTI_OK) {
        tutti_config_free(config);
        return fail_agent(&err, 2);
    }
    look_at_launcher(config, &self.options);
    if (wish == TUTTI_CONFIG_HELP) {
        tutti_config_help(sets, set_count, &words, stdout);
    } else if (wish == TUTTI_CONFIG_MAN) {
        tutti_config_man(sets, set_count, &words, stdout);
    } else if (wish == TUTTI_CONFIG_VERSION) {
        (void)printf("tutti-agent %s\n", TUTTI_VERSION);
    } else if (wish == TUTTI_CONFIG_PRINT) {
        tutti_config_print(config, stdout);
    } else {
        block_signals(&signals);
        tutti_process_tune_malloc();
        code = tutti_process_raise_files(FILES_MIN, &err);
        if (code == TUTTI_OK) {
            code = server_fair_reads_start(self.server.keepalive_timeout_ns, &err);
        }
        if (code == TUTTI_OK) {
            code = hide_keys(&self, &err);
        }
        if (code == TUTTI_OK) {
            code = take_init_url(&self.options, &err);
        }
        if (code == TUTTI_OK && self.parent.pid != 0) {
            code = tutti_launch_follow((pid_t)self.parent.pid, NULL, NULL, &err);
        }
        if (code == TUTTI_OK && self.parent.with_coordinator) {
            code = start_coordinator(&self, config, &coordinator, &err);
        }
        if (code != TUTTI_OK) {
            status = fail_agent(&err, code == TUTTI_INVALID_ARGUMENT ? 2 : 1);
        } else {
            server_abseil_init();
            tutti_rpc_init();
            tutti_rpc_limit_first_calls(self.server.streams_max);
            status = run_agent(&self, &signals);
            tutti_rpc_fini();
        }
        tutti_launch_stop(&coordinator, PATIENCE_MS);
    }
    tutti_config_free(config);
    return status;
}
