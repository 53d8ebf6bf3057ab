/*
 * tutti-coordinator: options, start, signals, end.
 *
 * One loop has all state; main only waits for signals, which are blocked in every thread and taken
 * by sigwait. The first SIGTERM or SIGINT drains: waiting calls are told, and the server ends when
 * all calls are over. A second one ends the process at once, without writing anything: records are
 * in the store before anybody is told of them, so the next process reads what the world has heard
 * (docs/decisions/ 0014, 0017).
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config/config.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/launch.h"
#include "base/os/log.h"
#include "base/os/process.h"
#include "metrics/metrics.h"
#include "rpc/server.h"
#include "server/abseil.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/service/service_loop.h"
#include "server/fair_reads.h"
#include "server/fill.h"
#include "server/guard.h"
#include "server/leader.h"
#include "store/lmdb/lmdb.h"
#include "store/memory/memory.h"
#include "tutti/version.h"
#include "tutti_descriptor_set.h"
#include "tutti_status_html.h"

#define NAME "tutti-coordinator"
#define DEFAULT_LISTEN "127.0.0.1:29600"
#define FILES_MIN 1024

enum {
    EXIT_FINE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
};

typedef struct log_options {
    const char *levels;
    const char *format;
} log_options;

static const tutti_option log_table[] = {
    {"log", TUTTI_OPTION_LIST, offsetof(log_options, levels), "info", 0, 0, NULL,
     "what to log: \"info\", \"warn,rpc=debug\""},
    {"log-format", TUTTI_OPTION_WORD, offsetof(log_options, format), "people", 0, 0, NULL,
     "\"people\", \"machine\" for key=value lines, or \"json\" for an object a line"},
};

static const tutti_option parent_table[] = {
    {"parent-pid", TUTTI_OPTION_UINT, 0, "0", 0, INT32_MAX, NULL,
     "end when this process has ended: once no agent is there any more, and a second later at "
     "most; "
     "0 = none"},
};

typedef struct store_options {
    const char *where;
    const char *sync;
} store_options;

static const tutti_option store_table[] = {
    {"store", TUTTI_OPTION_WORD, offsetof(store_options, where), "memory", 0, 0, NULL,
     "where jobs and keys are kept: \"memory\"; \"lmdb:FOLDER\" to have them after a restart; or "
     "\"etcd:HOST:PORT,HOST:PORT/PREFIX\" for several coordinators, of which one leads"},
    {"store-sync", TUTTI_OPTION_WORD, offsetof(store_options, sync), "none", 0, 0, NULL,
     "what may be lost when the machine dies: \"none\" = the last seconds or the whole store (and "
     "watches of keys may miss the last change of a process that is killed), "
     "\"order\" = the last changes that shared a transaction (it waits once for the disk), "
     "\"full\" = nothing that was answered (it waits once)"},
};

/* All that the process is made of, in the order in which it is made. */
typedef struct program {
    tutti_rpc_server_options serving;
    tutti_coordinator_options coordinating;
    tutti_auth_options guarding;
    log_options logging;
    store_options storing;
    server_leader_options leading;
    server_fill_options filling;
    uint64_t parent;
    tutti_metrics_options showing;
    tutti_config *config;
    tutti_store *store; /* NULL with etcd: it is the leader's */
    server_leader *leader;
    tutti_auth *auth;
    tutti_rpc_loop *loop;
    tutti_service_loop *service_loop;
    tutti_rpc_server *server;
    tutti_metrics *metrics;
    atomic_bool stopped;
    pthread_t main_thread;
} program;

/* ------------------------------------------------------------------------------ configuration */

static tutti_code
set_up_log(const log_options *options, tutti_error *err)
{
    TUTTI_TRY(tutti_log_set_format(options->format, err));

    return tutti_log_set_levels(options->levels, err);
}

/*
 * *ret_done is set when there is nothing to run: help, man page, version or the options were asked
 * for.
 */
static tutti_code
configure_coordinator(program *self, int argc, char *const *argv, bool *ret_done, tutti_error *err)
{
    const tutti_option_set sets[] = {
        tutti_rpc_server_option_set(&self->serving, DEFAULT_LISTEN),
        tutti_auth_option_set(&self->guarding),
        tutti_coordinator_option_set(&self->coordinating),
        {"store", store_table, sizeof(store_table) / sizeof(store_table[0]), &self->storing},
        server_leader_option_set(&self->leading),
        server_fill_option_set(&self->filling),
        tutti_metrics_option_set(&self->showing),
        {"log", log_table, sizeof(log_table) / sizeof(log_table[0]), &self->logging},
        {"process", parent_table, 1, &self->parent},
    };
    const size_t count = sizeof(sets) / sizeof(sets[0]);
    static const tutti_program_words words = {
        NAME, "Who takes part: jobs, ranks, groups and keys.",
        "  tutti-coordinator\n"
        "  tutti-coordinator --listen unix:/run/tutti.sock --store lmdb:/var/lib/tutti"};
    tutti_config_wish wish = TUTTI_CONFIG_RUN;
    tutti_code code;

    code = tutti_config_load(sets, count, argc, argv, &self->config, &wish, err);
    if (code == TUTTI_OK) {
        code = tutti_coordinator_options_check(&self->coordinating, err);
    }
    if (code == TUTTI_OK) {
        code = set_up_log(&self->logging, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    *ret_done = wish != TUTTI_CONFIG_RUN;
    if (wish == TUTTI_CONFIG_HELP) {
        tutti_config_help(sets, count, &words, stdout);
    } else if (wish == TUTTI_CONFIG_MAN) {
        tutti_config_man(sets, count, &words, stdout);
    } else if (wish == TUTTI_CONFIG_VERSION) {
        (void)printf("%s %s\n", NAME, TUTTI_VERSION);
    } else if (wish == TUTTI_CONFIG_PRINT) {
        tutti_config_print(self->config, stdout);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ signals */

static void
make_signal_set(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGUSR2); /* from ourselves: the server has stopped */
}

/* Before any thread is made, so that all of them inherit it. */
static void
block_signals(void)
{
    sigset_t set;

    make_signal_set(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* The number of the next signal of the set; sigwait is asked again when it fails. */
static int
wait_for_signal(void)
{
    sigset_t set;
    int number = 0;

    make_signal_set(&set);
    while (sigwait(&set, &number) != 0) {
    }
    return number;
}

/*
 * The loop's thread. The store of `stopped` comes before the signal, so main sees it when sigwait
 * returns.
 */
static void
on_stopped(void *arg)
{
    program *self = arg;

    atomic_store(&self->stopped, true);
    (void)pthread_kill(self->main_thread, SIGUSR2);
}

/* Until the first SIGTERM or SIGINT, and then until all calls are over. A second one is urgent. */
static int
serve_until_signal(program *self)
{
    bool stopping = false;

    while (!atomic_load(&self->stopped)) {
        const int number = wait_for_signal();

        if (number == SIGUSR2) {
            continue;
        }
        if (stopping) {
            TUTTI_LOG("coordinator", WARN, "second signal: stopping at once");
            _exit(EXIT_FAILED);
        }
        stopping = true;
        TUTTI_LOG("coordinator", INFO, "%s: draining %zu calls", strsignal(number),
                  tutti_rpc_server_call_count(self->server));
        tutti_rpc_server_stop(self->server, on_stopped, self);
    }
    return EXIT_FINE;
}

/* ------------------------------------------------------------------------------ start and end */

static void
on_page(void *arg, tutti_page *page)
{
    const program *self = arg;

    tutti_service_loop_expose(self->service_loop, page);
    tutti_rpc_server_expose(self->server, page);
}

static void
on_wish(void *arg, const tutti_metrics_wish *wish, tutti_page *page)
{
    const program *self = arg;

    tutti_service_loop_show(self->service_loop, wish->job, wish->ranks, wish->first, page);
}

static bool
on_ready(void *arg, tutti_text *why)
{
    const program *self = arg;

    if (tutti_rpc_server_is_serving(self->server)) {
        return true;
    }
    tutti_text_add(why, "shutting down");
    return false;
}

static tutti_code
show_coordinator(program *self, tutti_error *err)
{
    const tutti_metrics_source source = {.loop = self->loop,
                                         .program = NAME,
                                         .on_page = on_page,
                                         .on_ready = on_ready,
                                         .html = tutti_status_html,
                                         .html_size = tutti_status_html_size,
                                         .on_wish = on_wish,
                                         .arg = self};

    return tutti_metrics_start(&self->showing, &source, &self->metrics, err);
}

static tutti_code
read_sync(const char *text, tutti_store_lmdb_sync *ret_sync, tutti_error *err)
{
    static const char *const names[] = {"none", "order", "full"};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret_sync = (tutti_store_lmdb_sync)i;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                          "option --store-sync: \"%s\", need none, order or full", text);
}

/*
 * A store that is full or on a failed disk can still be read; the log says so once, and once when
 * it can be written again.
 */
static void
tell_of_store(void *context, const tutti_error *why)
{
    (void)context;
    if (why == NULL) {
        TUTTI_LOG("coordinator", INFO, "the store can be written again");
    } else {
        TUTTI_LOG(
            "coordinator", ERROR,
            "the store cannot be written: changes are refused, and what is stored can be read: "
            "%s%s%s",
            why->reason, why->reason[0] == '\0' ? "" : ": ", why->text);
    }
}

static tutti_code
open_store(program *self, tutti_error *err)
{
    static const char prefix[] = "lmdb:";
    static const char etcd[] = "etcd:";
    const char *where = self->storing.where;
    const uint64_t bytes_max = self->coordinating.store_bytes_limit;
    const uint64_t keys_max = self->coordinating.store_keys_limit;
    const tutti_store_memory_options memory = {.bytes_max = bytes_max, .keys_max = keys_max};
    tutti_store_lmdb_options lmdb = {
        .bytes_max = bytes_max, .keys_max = keys_max, .on_write = tell_of_store};
    tutti_code code;

    if (strcmp(where, "memory") == 0) {
        return tutti_store_memory_open(&memory, &self->store, err);
    }
    if (strncmp(where, etcd, sizeof(etcd) - 1) == 0) {
        self->leading.etcd.where = where + sizeof(etcd) - 1;
        self->coordinating.durable = true;
        return TUTTI_OK; /* opened when this process leads */
    }
    if (strncmp(where, prefix, sizeof(prefix) - 1) != 0 || where[sizeof(prefix) - 1] == '\0') {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
            "option --store: \"%s\", need memory, lmdb:FOLDER or etcd:HOST:PORT,.../PREFIX", where);
    }
    lmdb.path = where + sizeof(prefix) - 1;
    code = read_sync(self->storing.sync, &lmdb.sync, err);
    lmdb.deferred = lmdb.sync != TUTTI_STORE_LMDB_NONE; /* else there is nothing to wait for */
    if (code == TUTTI_OK) {
        code = tutti_store_lmdb_open(&lmdb, &self->store, err);
    }
    if (code == TUTTI_OK && tutti_store_lmdb_was_cut(self->store)) {
        TUTTI_LOG("coordinator", WARN,
                  "the store %s was left open by a machine that has gone since, with --store-sync "
                  "none: its last changes may be missing",
                  lmdb.path);
    }
    if (code == TUTTI_OK && tutti_store_lmdb_went_back(self->store)) {
        TUTTI_LOG(
            "coordinator", WARN,
            "the last change of the store %s was not whole: it was left out, as a change that "
            "nobody had been answered",
            lmdb.path);
    }
    self->coordinating.durable = true;
    return code;
}

/* With a store in etcd. */
static tutti_code
stand_by(program *self, tutti_error *err)
{
    const server_leader_parts parts = {.options = &self->leading,
                                       .coordinating = &self->coordinating,
                                       .loop = self->loop,
                                       .server = self->server,
                                       .service_loop = self->service_loop};

    tutti_rpc_server_set_health(self->server, "", true);
    return server_leader_start(&parts, &self->leader, err);
}

/*
 * In the order of use. The loop runs before the server exists, so that it serves from its first
 * call; the guard and the services are in place before the server starts. On failure tear_down
 * frees what was made: everything else is NULL.
 */
static tutti_code
build_coordinator(program *self, tutti_error *err)
{
    const tutti_bytes descriptors = {tutti_descriptor_set, tutti_descriptor_set_size};

    TUTTI_TRY(open_store(self, err));
    TUTTI_TRY(tutti_auth_open(&self->guarding, &self->auth, err));
    TUTTI_TRY(tutti_rpc_loop_new("coordinator", &self->loop, err));
    TUTTI_TRY(tutti_service_loop_new(&self->coordinating, self->store, self->loop,
                                     &self->service_loop, err));
    TUTTI_TRY(tutti_rpc_loop_start(self->loop, err));
    TUTTI_TRY(tutti_rpc_server_new(&self->serving, descriptors, self->loop, &self->server, err));
    tutti_service_loop_serve(self->service_loop, self->server);
    tutti_service_loop_open_lanes(self->service_loop, self->server);
    tutti_guard_serve(self->auth, &self->guarding, self->server);
    TUTTI_TRY(show_coordinator(self, err));
    TUTTI_TRY(tutti_rpc_server_start(self->server, err));
    return self->store == NULL ? stand_by(self, err) : TUTTI_OK;
}

/*
 * On stdout as well, at once: programs that start a coordinator on port 0 read its address there.
 */
static void
say_where(const program *self)
{
    char words[1024];
    tutti_text text = tutti_text_in(words, sizeof(words));
    size_t count = 0;
    const tutti_address *addresses = tutti_rpc_server_addresses(self->server, &count);
    size_t i;

    for (i = 0; i < count; i++) {
        tutti_text_add(&text, "%s%s", i == 0 ? "" : ", ", addresses[i].text);
    }
    TUTTI_LOG("coordinator", INFO, "version %s listens on %s", TUTTI_VERSION, words);
    if (self->parent == 0) { /* else the parent was told by --port-file, and stdout is not ours */
        (void)printf("%s listens on %s\n", NAME, words);
        (void)fflush(stdout);
    }
}

/*
 * Against the order of making: metrics use the loop, the server's calls end on the loop, the core
 * is freed when the loop has stopped, and the store when nothing can write to it any more.
 */
static void
tear_down(program *self)
{
    tutti_metrics_stop(self->metrics);
    server_leader_stop(self->leader);
    if (self->loop != NULL) {
        tutti_rpc_server_free(self->server);
        tutti_service_loop_close_lanes(self->service_loop);
        tutti_service_loop_end(self->service_loop);
        tutti_rpc_loop_stop(self->loop);
        tutti_service_loop_free(self->service_loop);
        tutti_rpc_loop_free(self->loop);
    }
    tutti_auth_close(self->auth);
    server_leader_free(self->leader);
    tutti_store_close(self->store);
}

static int
exit_code_for(tutti_code code)
{
    return code == TUTTI_OK ? EXIT_FINE : code == TUTTI_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

/* The agents of a program that has gone are going, too: they are to lose no coordinator. */
static bool
is_alone(void *arg)
{
    const program *self = arg;

    return tutti_rpc_server_call_count(self->server) == 0;
}

static tutti_code
follow_parent(program *self, tutti_error *err)
{
    return self->parent == 0 ? TUTTI_OK
                             : tutti_launch_follow((pid_t)self->parent, is_alone, self, err);
}

/* Nobody waits for signals: they end the process, which leaves the store as it was. */
static int
fill_store_and_end(program *self, tutti_error *err)
{
    sigset_t set;
    tutti_code code;

    make_signal_set(&set);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    server_abseil_init();
    tutti_rpc_init();
    code = server_fill_run(&self->filling, self->storing.where, &self->leading.etcd, err);
    tutti_rpc_fini();
    if (code != TUTTI_OK) {
        (void)printf("failed: %s %s\n", tutti_code_name(code), err->reason);
    }
    return exit_code_for(code);
}

static int
run_coordinator(program *self, tutti_error *err)
{
    int exit_code = EXIT_FINE;
    const char *const more[] = {self->leading.etcd.password_file, self->leading.etcd.tls_key, NULL};
    tutti_code code = tutti_process_raise_files(FILES_MIN, err);

    if (code == TUTTI_OK) {
        code = server_fair_reads_start(self->serving.keepalive_timeout_ns, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_guard_hide_keys(&self->guarding, &self->serving, more, err);
    }
    if (code != TUTTI_OK) {
        return exit_code_for(code);
    }
    if (server_fill_wanted(&self->filling)) {
        return fill_store_and_end(self, err);
    }
    tutti_process_tune_malloc();
    server_abseil_init();
    tutti_rpc_init();
    tutti_rpc_limit_first_calls(self->serving.streams_max);
    code = build_coordinator(self, err);
    if (code == TUTTI_OK) {
        code = follow_parent(self, err);
    }
    if (code == TUTTI_OK) {
        if (self->leader == NULL) {
            tutti_service_loop_set_health(self->server, true);
        }
        say_where(self);
        exit_code = serve_until_signal(self);
        TUTTI_LOG("coordinator", INFO, "stopped");
    }
    tear_down(self);
    tutti_rpc_fini();
    return code == TUTTI_OK ? exit_code : exit_code_for(code);
}

int
main(int argc, char **argv)
{
    static program self;
    bool done = false;
    int exit_code;
    tutti_error err = {0};
    tutti_code code;

    block_signals();
    self.main_thread = pthread_self();
    atomic_init(&self.stopped, false);
    code = configure_coordinator(&self, argc, argv, &done, &err);
    if (code != TUTTI_OK) {
        exit_code = EXIT_USAGE;
    } else {
        exit_code = done ? EXIT_FINE : run_coordinator(&self, &err);
    }
    if (exit_code != EXIT_FINE) {
        (void)fprintf(stderr, "%s: %s\n", NAME, err.text);
    }
    tutti_config_free(self.config);
    return exit_code;
}
