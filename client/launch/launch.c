/* Agent and coordinator as children of this program: their options, and the order of their ends. */
#include "tutti/launch.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config/address.h"
#include "base/error/fail.h"
#include "base/os/launch.h"
#include "client/conn/options.h"

#define ARGUMENTS_MAX 250
#define PATIENCE_MS 3000 /* the agent may wait 1 s for its ops, the coordinator 1 s for agents */
#define TIMEOUT_MS 30000

struct tutti_launched {
    tutti_launched_process coordinator; /* pid 0: it is somebody else's */
    tutti_launched_process agent;
    pid_t owner;
    char coordinator_address[TUTTI_ADDRESS_MAX];
    char agent_address[TUTTI_ADDRESS_MAX];
};

void
tutti_launch_options_init(tutti_launch_options *options)
{
    *options = (tutti_launch_options){
        .size = sizeof(*options), .world_size = 1, .rank = -1, .timeout_ms = TIMEOUT_MS};
}

/* ------------------------------------------------------------------------------ words */

/* A command line that grows. */
typedef struct command {
    const char *words[ARGUMENTS_MAX + 1];
    size_t count;
    bool full;
} command;

static void
add_word(command *self, const char *word)
{
    if (self->count == ARGUMENTS_MAX) {
        self->full = true;
    } else {
        self->words[self->count++] = word;
    }
}

static void
add_option(command *self, const char *name, const char *value)
{
    add_word(self, name);
    add_word(self, value);
}

static void
add_all(command *self, const char *const *words)
{
    while (words != NULL && *words != NULL) {
        add_word(self, *words++);
    }
}

/* The file of the library that has this function, or of the program that it is linked into. */
static const char *
own_file(void)
{
    Dl_info info;

    return dladdr((const void *)(uintptr_t)tutti_launch_options_init, &info) != 0 ? info.dli_fname
                                                                                  : NULL;
}

/* ------------------------------------------------------------------------------ starting */

/* What both have. The caller's options come last, so they win. */
static tutti_code
launch_server(command *self, const char *name, const tutti_launch_options *options,
              const char *const *more, tutti_launched_process *ret_process, char *ret_address,
              tutti_error *err)
{
    char path[TUTTI_LAUNCH_PATH_MAX];
    char pid[16];

    (void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    TUTTI_TRY(tutti_launch_find(name, options->programs, own_file(), path, err));
    self->words[0] = path;
    add_option(self, "--listen", options->listen == NULL ? "127.0.0.1:0" : options->listen);
    add_option(self, "--log", options->log == NULL ? "error" : options->log);
    add_option(self, "--parent-pid", pid);
    add_all(self, more);
    if (self->full) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "more than %d options for %s", ARGUMENTS_MAX, name);
    }
    return tutti_launch_start(self->words, options->timeout_ms, ret_process, ret_address,
                              TUTTI_ADDRESS_MAX, err);
}

static tutti_code
launch_coordinator(tutti_launched *self, const tutti_launch_options *options, tutti_error *err)
{
    command line = {.count = 1};

    if (options->coordinator != NULL) {
        (void)snprintf(self->coordinator_address, sizeof(self->coordinator_address), "%s",
                       options->coordinator);
        return TUTTI_OK;
    }
    return launch_server(&line, "tutti-coordinator", options, options->coordinator_options,
                         &self->coordinator, self->coordinator_address, err);
}

static tutti_code
launch_agent(tutti_launched *self, const tutti_launch_options *options, tutti_error *err)
{
    command line = {.count = 1};
    char world_size[16];
    char rank[16];

    (void)snprintf(world_size, sizeof(world_size), "%" PRIu32, options->world_size);
    (void)snprintf(rank, sizeof(rank), "%" PRId32, options->rank);
    add_option(&line, "--coordinator", self->coordinator_address);
    add_option(&line, "--world-size", world_size);
    if (options->rank >= 0) {
        add_option(&line, "--rank", rank);
    }
    if (options->job != NULL) {
        add_option(&line, "--job", options->job);
    }
    return launch_server(&line, "tutti-agent", options, options->agent_options, &self->agent,
                         self->agent_address, err);
}

static tutti_code
take_launch_options(const tutti_launch_options *given, tutti_launch_options *ret, tutti_error *err)
{
    tutti_launch_options_init(ret);
    if (given != NULL) {
        TUTTI_TRY(
            client_take_struct(ret, sizeof(*ret), given, given->size, "tutti_launch_options", err));
    }
    if (ret->world_size == 0 || ret->world_size > TUTTI_RANKS_MAX || ret->rank < -1 ||
        ret->rank >= (int32_t)ret->world_size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                              "rank %" PRId32 " in a world of %" PRIu32
                              ", need 1 to %d ranks, and a rank below their number or -1",
                              ret->rank, ret->world_size, TUTTI_RANKS_MAX);
    }
    return TUTTI_OK;
}

tutti_code
tutti_launch(const tutti_launch_options *options, tutti_launched **ret_launched, tutti_error *err)
{
    TUTTI_NEED(ret_launched, err);

    tutti_launch_options own;
    tutti_launched *self;
    tutti_code code;

    TUTTI_TRY(take_launch_options(options, &own, err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to launch an agent");
    }
    self->owner = getpid();
    code = launch_coordinator(self, &own, err);
    if (code == TUTTI_OK) {
        code = launch_agent(self, &own, err);
    }
    if (code == TUTTI_OK) {
        *ret_launched = self;
    } else {
        tutti_launched_stop(self);
    }
    return code;
}

/* ------------------------------------------------------------------------------ afterwards */

const char *
tutti_launched_agent(const tutti_launched *launched)
{
    return launched->agent_address;
}

const char *
tutti_launched_coordinator(const tutti_launched *launched)
{
    return launched->coordinator_address;
}

/* A forked child only forgets them: they are the parent's. */
void
tutti_launched_stop(tutti_launched *launched)
{
    if (launched == NULL) {
        return;
    }
    if (launched->owner == getpid()) {
        tutti_launch_stop(&launched->agent, PATIENCE_MS);
        tutti_launch_stop(&launched->coordinator, PATIENCE_MS);
    }
    free(launched);
}
