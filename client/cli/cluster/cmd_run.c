/*
 * tutti run: a program for each rank, beside its agent. Without --cluster a private cluster is
 * started for it and ended with it. The programs find their agent by variables of the
 * environment, those of torchrun as well.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster.h"
#include "client/cli/cluster/commands.h"
#include "client/cli/cluster/programs.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/process.h"
#include "client/cli/util/state.h"
#include "client/cli/util/values.h"

#define START_TIMEOUT_MS 60000
#define STOP_TIMEOUT_MS 10000
#define PORT_FIRST 29500 /* PyTorch's own default */
#define PORT_TRIES 500
#define WORD_COUNT 17    /* of a program's environment that are ours */
#define GONE_COUNT 3     /* of what a program must not inherit */
#define EXIT_LATE 124    /* as timeout(1) says it */
#define EXIT_REFUSED 126 /* these two as shells say them */
#define EXIT_NOT_FOUND 127

/* One `tutti run`. */
typedef struct running {
    cli *cli;                 /* borrowed */
    int64_t count;            /* of programs; 0 = as many as ranks */
    const char *memory_limit; /* of agents we start; NULL = theirs */
    state cluster;
    bool ours; /* the cluster is private */
    programs programs;
    uint16_t port; /* for the programs' own use */
    int refused;   /* errno of a program that could not be started; 0 = none */
} running;

static bool
read_program_options(running *self)
{
    const char *memory = cli_value(self->cli, "memory-limit");
    uint64_t bytes;

    if (!cli_number(self->cli, "count", 1, STATE_RANKS_MAX, &self->count)) {
        return false;
    }
    if (memory != NULL && !cli_parse_size(memory, &bytes)) {
        (void)cli_usage(self->cli, "--memory-limit \"%s\": write 512MiB, 4GiB ...", memory);
        return false;
    }
    self->memory_limit = memory;
    return true;
}

/* ------------------------------------------------------------------------------ the cluster */

/*
 * A cluster that lacks some processes is used all the same: the programs themselves will say what
 * is missing.
 */
static tutti_code
use_cluster(running *self, const char *name, tutti_error *err)
{
    tutti_code code = state_init(&self->cluster, name, err);

    if (code == TUTTI_OK) {
        code = state_read(&self->cluster, err);
    }
    if (code == TUTTI_OK && (!self->cluster.ready || !cluster_is_alive(&self->cluster))) {
        code =
            cli_fail(err, TUTTI_FAILED_PRECONDITION,
                     "cluster %s does not run completely: tutti cluster stop --name %s, then start",
                     name, name);
    }
    if (code == TUTTI_OK && self->count > self->cluster.rank_count) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%" PRId64 " programs, but cluster %s has %" PRIu32
                        " ranks, need one program for each rank",
                        self->count, name, self->cluster.rank_count);
    }
    return code;
}

/* The name contains our pid, so that runs side by side do not meet. */
static tutti_code
start_cluster(running *self, tutti_error *err)
{
    char name[32];
    const cluster_plan plan = {.name = name,
                               .rank_count = self->count > 0 ? (uint32_t)self->count : 2,
                               .memory_limit = self->memory_limit,
                               .timeout_ms = START_TIMEOUT_MS};
    tutti_code code;

    (void)snprintf(name, sizeof(name), "run-%ld", (long)getpid());
    code = cluster_start(self->cli, &plan, &self->cluster, err);
    self->ours = code == TUTTI_OK;
    return code;
}

/*
 * Bind to a port of all addresses of this host, of IPv4 and of IPv6; 0 is any port. PyTorch's store
 * listens so, and a port that is free on 127.0.0.1 alone does not do for it. Returns the port; 0:
 * it is in use.
 */
static uint16_t
try_port(uint16_t port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof(six);
    const int off = 0;
    int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t found = 0;

    if (descriptor >= 0) {
        (void)setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (bind(descriptor, (const struct sockaddr *)&six, size) == 0 &&
            getsockname(descriptor, (struct sockaddr *)&six, &size) == 0) {
            found = ntohs(six.sin6_port);
        }
    } else { /* a host without IPv6 */
        size = sizeof(four);
        descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (descriptor >= 0 && bind(descriptor, (const struct sockaddr *)&four, size) == 0 &&
            getsockname(descriptor, (struct sockaddr *)&four, &size) == 0) {
            found = ntohs(four.sin_port);
        }
    }
    if (descriptor >= 0) {
        (void)close(descriptor);
    }
    return found;
}

/*
 * Some port that is free just now: what PyTorch and others want for a rendezvous of theirs. When
 * connections hold all ports that the system gives away, one below them is looked for. Somebody
 * else may take the port before the programs do; there is no way to keep it for them.
 */
static uint16_t
free_port(void)
{
    uint16_t found = try_port(0);
    uint16_t port;

    for (port = PORT_FIRST; found == 0 && port < PORT_FIRST + PORT_TRIES; port++) {
        found = try_port(port);
    }
    return found != 0 ? found : PORT_FIRST;
}

/* ------------------------------------------------------------------------------ the programs */

/*
 * Local clusters speak without TLS, whatever the user's own settings say. Programs that were
 * written for torchrun find its variables, as of one node whose programs are never started again;
 * those of a torchrun that started us are gone, because its store is not ours.
 */
static char **
make_environment(const running *self, uint32_t rank)
{
    char words[WORD_COUNT][STATE_PATH_MAX + 32];
    const char *changes[WORD_COUNT + GONE_COUNT] = {"TUTTI_TLS_*", "TUTTI_TOKEN_FILE",
                                                    "TORCHELASTIC_*"};
    size_t i;

    (void)snprintf(words[0], sizeof(words[0]), "RANK=%" PRIu32, rank);
    (void)snprintf(words[1], sizeof(words[1]), "WORLD_SIZE=%" PRIu32, self->cluster.rank_count);
    (void)snprintf(words[2], sizeof(words[2]), "LOCAL_RANK=%" PRIu32, rank);
    (void)snprintf(words[3], sizeof(words[3]), "LOCAL_WORLD_SIZE=%" PRIu32,
                   self->cluster.rank_count);
    (void)snprintf(words[4], sizeof(words[4]), "TUTTI_AGENT=%s", self->cluster.ranks[rank].socket);
    (void)snprintf(words[5], sizeof(words[5]), "TUTTI_COORDINATOR=%s",
                   self->cluster.coordinator.socket);
    (void)snprintf(words[6], sizeof(words[6]), "TUTTI_JOB=%s", self->cluster.job);
    (void)snprintf(words[7], sizeof(words[7]), "MASTER_ADDR=127.0.0.1");
    (void)snprintf(words[8], sizeof(words[8]), "MASTER_PORT=%u", self->port);
    (void)snprintf(words[9], sizeof(words[9]), "GROUP_RANK=0");
    (void)snprintf(words[10], sizeof(words[10]), "GROUP_WORLD_SIZE=1");
    (void)snprintf(words[11], sizeof(words[11]), "ROLE_NAME=default");
    (void)snprintf(words[12], sizeof(words[12]), "ROLE_RANK=%" PRIu32, rank);
    (void)snprintf(words[13], sizeof(words[13]), "ROLE_WORLD_SIZE=%" PRIu32,
                   self->cluster.rank_count);
    (void)snprintf(words[14], sizeof(words[14]), "TORCHELASTIC_RUN_ID=%s", self->cluster.name);
    (void)snprintf(words[15], sizeof(words[15]), "TORCHELASTIC_RESTART_COUNT=0");
    (void)snprintf(words[16], sizeof(words[16]), "TORCHELASTIC_MAX_RESTARTS=0");
    for (i = 0; i < WORD_COUNT; i++) {
        changes[i + GONE_COUNT] = words[i];
    }
    return process_environment(changes, WORD_COUNT + GONE_COUNT);
}

/* When one cannot be started, the caller ends those that could. */
static tutti_code
start_programs(running *self, tutti_error *err)
{
    const uint32_t count = self->count > 0 ? (uint32_t)self->count : self->cluster.rank_count;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    self->port = free_port();
    programs_init(&self->programs, count);
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        char **environment = make_environment(self, i);

        code = programs_start(&self->programs, i, self->cli->arguments, environment, err);
        process_environment_free(environment);
        self->refused = code == TUTTI_OK ? 0 : (int)err->cause;
    }
    return code;
}

/* ------------------------------------------------------------------------------ telling */

static json_t *
json_programs(const programs *set, int exit_code)
{
    json_t *list = json_array();
    uint32_t i;

    for (i = 0; i < set->count; i++) {
        const program *one = &set->all[i];

        (void)json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:I}", "rank", (json_int_t)i,
                                                    "pid", (json_int_t)one->pid, "exit_code",
                                                    (json_int_t)programs_exit_code(one),
                                                    "elapsed_ms", (json_int_t)one->elapsed_ms));
    }
    return json_pack("{s:I, s:o}", "exit_code", (json_int_t)exit_code, "programs", list);
}

/*
 * Only the first one that failed is named: the others were ended by us, and their exit codes say
 * nothing.
 */
static void
say_failed(const cli *self, const programs *set)
{
    const program *one = &set->all[set->failed];
    const char *others = set->count == 1 ? "" : "; the others were ended";

    if (WIFSIGNALED(one->status)) {
        (void)fprintf(self->err, "tutti: run: rank %" PRId64 " died of signal %d (%s)%s\n",
                      set->failed, WTERMSIG(one->status), strsignal(WTERMSIG(one->status)), others);
    } else {
        (void)fprintf(self->err, "tutti: run: rank %" PRId64 " failed with exit code %d%s\n",
                      set->failed, WEXITSTATUS(one->status), others);
    }
}

/* Why it ended, and what to exit with. */
static int
conclude_program(const running *self)
{
    const programs *set = &self->programs;

    if (set->failed >= 0) {
        say_failed(self->cli, set);
        return programs_exit_code(&set->all[set->failed]);
    }
    if (set->late) {
        (void)fprintf(self->cli->err,
                      "tutti: run: the programs were ended: --timeout of %" PRIu32 " ms\n",
                      set->limit_ms);
        return EXIT_LATE;
    }
    return set->signal != 0 ? 128 + set->signal : CLI_FINE;
}

/* After a program that did not start: the codes that shells have for it. */
static int
refused_code(int number)
{
    switch (number) {
    case ENOENT:
        return EXIT_NOT_FOUND;
    case EACCES:
    case EISDIR:
    case ELOOP:
    case ENOEXEC:
    case ENOTDIR:
    case EPERM:
        return EXIT_REFUSED;
    default:
        return CLI_FAILED;
    }
}

/* ------------------------------------------------------------------------------ all of it */

static tutti_code
run_all_program(running *self, int *ret_exit, tutti_error *err)
{
    const char *name = cli_value(self->cli, "cluster");
    tutti_code code = name != NULL ? use_cluster(self, name, err) : start_cluster(self, err);

    if (code == TUTTI_OK) {
        code = start_programs(self, err);
    }
    if (code == TUTTI_OK) {
        programs_wait(&self->programs);
        *ret_exit = conclude_program(self);
        (void)cli_print_json(self->cli, json_programs(&self->programs, *ret_exit));
    }
    programs_fini(&self->programs);
    return code;
}

/*
 * Runs after a failure as well, so that no private cluster is left behind, unless --keep asks for
 * that.
 */
static void
leave_cluster(running *self)
{
    tutti_error err;

    if (self->ours && cli_flag(self->cli, "keep")) {
        (void)fprintf(self->cli->err,
                      "tutti: run: cluster %s runs on: tutti cluster stop --name %s\n",
                      self->cluster.name, self->cluster.name);
    } else if (self->ours && cluster_stop(&self->cluster, STOP_TIMEOUT_MS, &err) != TUTTI_OK) {
        (void)cli_failed(self->cli, NULL, &err);
    }
    state_fini(&self->cluster);
}

/*
 * With --json the programs' output goes to the standard error, so that the document stands alone.
 */
int
cli_run(cli *self)
{
    running all = {.cli = self, .cluster = {.lock = -1}};
    int exit_code = CLI_FINE;
    tutti_error err;
    tutti_code code;

    all.programs = (programs){.out = self->json ? self->err : self->out,
                              .err = self->err,
                              .prefix = !cli_flag(self, "no-prefix"),
                              .limit_ms = self->timeout_ms};
    if (!read_program_options(&all)) {
        return CLI_USAGE;
    }
    code = programs_catch_signals(&err);
    if (code == TUTTI_OK) {
        code = run_all_program(&all, &exit_code, &err);
        leave_cluster(&all);
        programs_release_signals();
    }
    if (code == TUTTI_OK) {
        return exit_code;
    }
    (void)cli_failed(self, NULL, &err);
    return refused_code(all.refused);
}
