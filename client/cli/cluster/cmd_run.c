/*
 * tutti run: a program for each rank, beside its agent. Without --cluster a private cluster is
 * started for it and ended with it. With --nnodes or --rank-start the agents join a job whose other
 * ranks are started on other hosts. The programs find their agent by variables of the environment,
 * those of torchrun as well.
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
#include "client/cli/cluster/guard.h"
#include "client/cli/cluster/nodes.h"
#include "client/cli/cluster/programs.h"
#include "client/cli/cluster/run_options.h"
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
    cli *cli; /* borrowed */
    run_options options;
    nodes nodes;         /* with options.spread */
    cluster_place place; /* likewise */
    state cluster;
    bool ours; /* the cluster is private */
    guard guard;
    programs programs;
    uint16_t port; /* for the programs' own use */
    int refused;   /* errno of a program that could not be started; 0 = none */
} running;

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
    if (code == TUTTI_OK && self->options.count > self->cluster.rank_count) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%" PRIu32 " programs, but cluster %s has %" PRIu32
                        " ranks, need one program for each rank",
                        self->options.count, name, self->cluster.rank_count);
    }
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

#define NAME_MAX_BYTES 32

/* It contains our pid, so that runs side by side do not meet. */
static void
format_name(char ret_name[NAME_MAX_BYTES])
{
    (void)snprintf(ret_name, NAME_MAX_BYTES, "run-%ld", (long)getpid());
}

static tutti_code
start_cluster(running *self, const cluster_place *place, tutti_error *err)
{
    char name[NAME_MAX_BYTES];
    const cluster_plan plan = {.name = name,
                               .rank_count = self->options.count,
                               .memory_limit = self->options.memory_limit,
                               .devices = self->options.devices,
                               .place = place,
                               .bound = !cli_flag(self->cli, "keep"),
                               .timeout_ms = START_TIMEOUT_MS};
    tutti_code code;

    format_name(name);
    code = cluster_start(self->cli, &plan, &self->cluster, err);
    self->ours = code == TUTTI_OK;
    return code;
}

/* ------------------------------------------------------------------------------ several hosts */

/* The coordinator serves: where are our ranks? */
static tutti_code
meet_nodes(void *arg, tutti_error *err)
{
    running *self = arg;
    const tutti_code code = nodes_meet(&self->nodes, err);

    self->place.rank_start = self->nodes.rank_start;
    self->place.world_size = self->nodes.world_size;
    return code;
}

static bool
start_is_over(void *arg)
{
    (void)arg;
    return programs_must_end();
}

/* While a coordinator of ours still serves, so that the others hear it before our agents end. */
static void
tell_not_started(void *arg, const tutti_error *why)
{
    running *self = arg;
    char text[NODES_TEXT_MAX];

    (void)snprintf(text, sizeof(text), "node %" PRIu32 " (%.100s) did not start: %.300s",
                   self->nodes.rank, self->nodes.here.host, why->text);
    nodes_tell(&self->nodes, text);
    nodes_leave(&self->nodes, self->place.serve);
}

static tutti_code
start_spread(running *self, tutti_error *err)
{
    const run_options *options = &self->options;
    char listen[NODES_HOST_MAX + 8];
    char text[NODES_TEXT_MAX];
    tutti_code code;

    self->nodes.cli = self->cli;
    self->nodes.coordinator = options->coordinator;
    self->nodes.job = options->job;
    self->nodes.count = options->node_count;
    self->nodes.rank = options->node_rank;
    self->nodes.rank_count = options->count;
    self->nodes.rank_start = options->rank_start;
    self->nodes.world_size = options->world_size;
    self->nodes.here.port = free_port();
    code = nodes_init(&self->nodes, err);
    if (code != TUTTI_OK) {
        return code;
    }
    (void)snprintf(listen, sizeof(listen),
                   strchr(self->nodes.here.address, ':') != NULL ? "[%s]:0" : "%s:0",
                   self->nodes.here.address);
    self->place = (cluster_place){.coordinator = options->coordinator,
                                  .serve = options->node_count > 0 && options->node_rank == 0 &&
                                           nodes_can_serve(options->coordinator),
                                  .insecure = options->insecure,
                                  .listen = options->listen != NULL ? options->listen : listen,
                                  .job = options->job,
                                  .meet = meet_nodes,
                                  .is_over = start_is_over,
                                  .fail = tell_not_started,
                                  .arg = self};
    code = start_cluster(self, &self->place, err);
    if (code == TUTTI_OK) {
        code = nodes_watch(&self->nodes, err);
    } else if (nodes_have_failed(&self->nodes, text)) { /* it explains more */
        code = cli_fail(err, TUTTI_ABORTED, "%s", text);
    }
    return code;
}

/* ------------------------------------------------------------------------------ the programs */

/* Where the programs' own rendezvous is, and what torchrun says about nodes. */
typedef struct layout {
    uint32_t rank_start;
    uint32_t world_size;
    uint32_t local_count;
    uint32_t node_rank;
    uint32_t node_count;
    const char *master_address;
    const char *run_id;
    uint16_t master_port;
} layout;

/* Nodes that do not meet agree on PyTorch's own port, and count as nodes of one size. */
static layout
lay_out(const running *self)
{
    const nodes *all = &self->nodes;
    const uint32_t each = self->options.count;
    layout found = {.world_size = self->cluster.rank_count,
                    .local_count = self->cluster.rank_count,
                    .node_count = 1,
                    .master_address = "127.0.0.1",
                    .run_id = self->cluster.name,
                    .master_port = self->port};

    if (self->options.spread) {
        found.rank_start = all->rank_start;
        found.world_size = all->world_size;
        found.run_id = all->run;
        found.node_rank = all->count > 0 ? all->rank : all->rank_start / each;
        found.node_count = all->count > 0 ? all->count : (all->world_size + each - 1) / each;
        found.master_address =
            all->all != NULL ? all->all[0].address : self->options.coordinator_host;
        found.master_port = all->all != NULL ? all->all[0].port : PORT_FIRST;
    }
    return found;
}

/*
 * Local clusters speak without TLS, whatever the user's own settings say. Programs that were
 * written for torchrun find its variables, as of nodes whose programs are never started again;
 * those of a torchrun that started us are gone, because its store is not ours.
 */
static char **
make_environment(const running *self, const layout *where, uint32_t place)
{
    char words[WORD_COUNT][STATE_PATH_MAX + 32];
    const char *changes[WORD_COUNT + GONE_COUNT] = {
        "TORCHELASTIC_*", self->options.spread ? "TORCHELASTIC_*" : "TUTTI_TLS_*",
        self->options.spread ? "TORCHELASTIC_*" : "TUTTI_TOKEN_FILE"};
    const uint32_t rank = where->rank_start + place;
    size_t i;

    (void)snprintf(words[0], sizeof(words[0]), "RANK=%" PRIu32, rank);
    (void)snprintf(words[1], sizeof(words[1]), "WORLD_SIZE=%" PRIu32, where->world_size);
    (void)snprintf(words[2], sizeof(words[2]), "LOCAL_RANK=%" PRIu32, place);
    (void)snprintf(words[3], sizeof(words[3]), "LOCAL_WORLD_SIZE=%" PRIu32, where->local_count);
    (void)snprintf(words[4], sizeof(words[4]), "TUTTI_AGENT=%s", self->cluster.ranks[place].socket);
    (void)snprintf(words[5], sizeof(words[5]), "TUTTI_COORDINATOR=%s",
                   self->cluster.coordinator.socket);
    (void)snprintf(words[6], sizeof(words[6]), "TUTTI_JOB=%s", self->cluster.job);
    (void)snprintf(words[7], sizeof(words[7]), "MASTER_ADDR=%s", where->master_address);
    (void)snprintf(words[8], sizeof(words[8]), "MASTER_PORT=%u", where->master_port);
    (void)snprintf(words[9], sizeof(words[9]), "GROUP_RANK=%" PRIu32, where->node_rank);
    (void)snprintf(words[10], sizeof(words[10]), "GROUP_WORLD_SIZE=%" PRIu32, where->node_count);
    (void)snprintf(words[11], sizeof(words[11]), "ROLE_NAME=default");
    (void)snprintf(words[12], sizeof(words[12]), "ROLE_RANK=%" PRIu32, rank);
    (void)snprintf(words[13], sizeof(words[13]), "ROLE_WORLD_SIZE=%" PRIu32, where->world_size);
    (void)snprintf(words[14], sizeof(words[14]), "TORCHELASTIC_RUN_ID=%s", where->run_id);
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
    const uint32_t count = self->options.count > 0 ? self->options.count : self->cluster.rank_count;
    const layout where = lay_out(self);
    tutti_code code = TUTTI_OK;
    uint32_t i;

    self->programs.rank_start = where.rank_start;
    programs_init(&self->programs, count);
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        char **environment = make_environment(self, &where, i);

        code = programs_start(&self->programs, i, self->cli->arguments, environment, err);
        process_environment_free(environment);
        if (code == TUTTI_OK) {
            guard_tell(&self->guard, self->programs.all[i].pid);
        }
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

        (void)json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:I}", "rank", (json_int_t)set->rank_start + i, "pid",
                            (json_int_t)one->pid, "exit_code", (json_int_t)programs_exit_code(one),
                            "elapsed_ms", (json_int_t)one->elapsed_ms));
    }
    return json_pack("{s:I, s:o}", "exit_code", (json_int_t)exit_code, "programs", list);
}

static void
tell_others(running *self, const char *text)
{
    if (self->options.spread) {
        nodes_tell(&self->nodes, text);
    }
}

/*
 * Only the first one that failed is named: the others were ended by us, and their exit codes say
 * nothing.
 */
static void
say_failed(running *self)
{
    const programs *set = &self->programs;
    const program *one = &set->all[set->failed];
    const bool alone = set->count == 1 && self->nodes.count <= 1;
    char where[NODES_HOST_MAX + 32] = "";
    char text[NODES_TEXT_MAX];

    if (self->options.spread && self->nodes.count > 0) {
        (void)snprintf(where, sizeof(where), " of node %" PRIu32 " (%s)", self->nodes.rank,
                       self->nodes.here.host);
    }
    if (WIFSIGNALED(one->status)) {
        (void)snprintf(text, sizeof(text), "rank %" PRId64 "%s died of signal %d (%s)",
                       set->rank_start + set->failed, where, WTERMSIG(one->status),
                       strsignal(WTERMSIG(one->status)));
    } else {
        (void)snprintf(text, sizeof(text), "rank %" PRId64 "%s failed with exit code %d",
                       set->rank_start + set->failed, where, WEXITSTATUS(one->status));
    }
    tell_others(self, text);
    (void)fprintf(self->cli->err, "tutti: run: %s%s\n", text,
                  alone ? "" : "; the others were ended");
}

/* Ended by somebody here: the other nodes end, too. */
static int
conclude_ended(running *self)
{
    const programs *set = &self->programs;
    char text[NODES_TEXT_MAX];

    (void)snprintf(text, sizeof(text),
                   set->late ? "the --timeout of node %" PRIu32 " (%s) was over"
                             : "node %" PRIu32 " (%s) was interrupted",
                   self->nodes.rank, self->nodes.here.host);
    tell_others(self, text);
    if (set->late) {
        (void)fprintf(self->cli->err, "tutti: run: the programs were ended: --timeout of %.6g s\n",
                      set->limit_ms / 1000.0);
    }
    return set->late ? EXIT_LATE : 128 + set->signal;
}

/* Why it ended, and what to exit with. */
static int
conclude_program(running *self)
{
    const programs *set = &self->programs;
    char text[NODES_TEXT_MAX];

    if (set->failed >= 0) {
        say_failed(self);
        return programs_exit_code(&set->all[set->failed]);
    }
    if (set->late || set->signal != 0) {
        return conclude_ended(self);
    }
    if (self->options.spread) {
        nodes_wait(&self->nodes);
        if (nodes_have_failed(&self->nodes, text)) {
            (void)fprintf(self->cli->err, "tutti: run: %s; the others were ended\n", text);
            return CLI_FAILED;
        }
    }
    return CLI_FINE;
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

/* A cluster that is used, or kept, is not the guard's. */
static tutti_code
start_guard(running *self, tutti_error *err)
{
    const bool sweeps = cli_value(self->cli, "cluster") == NULL && !cli_flag(self->cli, "keep");
    char name[NAME_MAX_BYTES];

    format_name(name);
    return guard_start(&self->guard, sweeps ? name : NULL, err);
}

static tutti_code
run_all_program(running *self, int *ret_exit, tutti_error *err)
{
    const char *name = cli_value(self->cli, "cluster");
    tutti_code code = name != NULL           ? use_cluster(self, name, err)
                      : self->options.spread ? start_spread(self, err)
                                             : start_cluster(self, NULL, err);

    self->port = free_port();
    if (code == TUTTI_OK) {
        code = start_programs(self, err);
        if (code != TUTTI_OK && self->options.spread) {
            tell_not_started(self, err);
        }
    }
    if (code == TUTTI_OK) {
        programs_wait(&self->programs);
        *ret_exit = conclude_program(self);
        (void)cli_print_json(self->cli, json_programs(&self->programs, *ret_exit));
    }
    programs_fini(&self->programs);
    return code;
}

/* A coordinator of ours lives until the agents of the other nodes have ended. */
static tutti_code
stop_ours(running *self, uint32_t timeout_ms, tutti_error *err)
{
    const tutti_code code = cluster_end_agents(&self->cluster, timeout_ms, err);

    if (code == TUTTI_OK && self->options.spread) {
        nodes_leave(&self->nodes, self->place.serve);
    }
    return code == TUTTI_OK ? cluster_stop(&self->cluster, timeout_ms, err) : code;
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
    } else if (self->ours && stop_ours(self, STOP_TIMEOUT_MS, &err) != TUTTI_OK) {
        (void)cli_failed(self->cli, NULL, &err);
    }
    if (self->options.spread) {
        nodes_fini(&self->nodes);
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
    if (!run_options_read(self, &all.options)) {
        return CLI_USAGE;
    }
    code = start_guard(&all, &err);
    if (code == TUTTI_OK) {
        code = programs_catch_signals(&err);
    }
    if (code == TUTTI_OK) {
        code = run_all_program(&all, &exit_code, &err);
        leave_cluster(&all);
        programs_release_signals();
    }
    guard_end(&all.guard);
    if (code == TUTTI_OK) {
        run_options_free(&all.options);
        return exit_code;
    }
    run_options_free(&all.options);
    (void)cli_failed(self, NULL, &err);
    return refused_code(all.refused);
}
