#include "sim/cluster/program.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/config.h"
#include "base/error/fail.h"
#include "coll/tcp/tcp.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "server/agent/agent.h"
#include "server/agent/state/state.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/service/service_loop.h"
#include "sim/core/core.h"
#include "sim/kernel.h"
#include "sim/wire.h"
#include "store/memory/memory.h"

#define ARGS_MAX 40

extern const unsigned char tutti_descriptor_set[];
extern const size_t tutti_descriptor_set_size;

tutti_code __wrap_tutti_transport_tcp_open(const tutti_transport_tcp_options *options,
                                           tutti_transport **ret_transport, tutti_error *err);

struct program {
    int process;
    sim_task *task;
    uint32_t rank;
    uint32_t size;
    bool is_agent;
    char address[32];
    char words[ARGS_MAX][48];
    const char *argv[ARGS_MAX];
    int argc;
    bool runs;
    bool wished; /* to stop */
    bool killed;
    bool ended; /* by itself */
    bool over;
    tutti_error why;

    tutti_config *config;
    tutti_rpc_server_options serving;
    tutti_rpc_loop *loop;
    /* of a coordinator */
    tutti_coordinator_options coordinating;
    tutti_store *store;
    tutti_service_loop *service_loop;
    tutti_rpc_server *server;
    /* of an agent */
    tutti_agent_options options;
    tutti_rpc_loop *bulk;
    tutti_agent *agent;
};

static int last;

void
program_open(void)
{
    last = 0;
}

int
program_number(void)
{
    assert(last + 1 < SIM_PROCESSES_MAX);
    return ++last;
}

/* The data plane of an agent: the wire whose number is that of its process. */
tutti_code
__wrap_tutti_transport_tcp_open(const tutti_transport_tcp_options *options,
                                tutti_transport **ret_transport, tutti_error *err)
{
    (void)options;
    (void)err;
    *ret_transport = wire_new((uint32_t)sim_process(), 0, false);
    return TUTTI_OK;
}

static void
add_word(program *self, const char *word)
{
    assert(self->argc < ARGS_MAX);
    (void)snprintf(self->words[self->argc], sizeof(self->words[0]), "%s", word);
    self->argv[self->argc] = self->words[self->argc];
    self->argc++;
}

static void
add_number(program *self, const char *word, uint32_t number)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%u", number);
    add_word(self, word);
    add_word(self, text);
}

static void
load_options(program *self, const tutti_option_set *sets, size_t count)
{
    tutti_config_wish wish;
    tutti_error err;

    if (tutti_config_load(sets, count, self->argc, (char **)(uintptr_t)self->argv, &self->config,
                          &wish, &err) != TUTTI_OK) {
        sim_fail("options of process %d: %s", self->process, err.text);
    }
}

static bool
is_wished(void *arg)
{
    const program *self = arg;

    return self->wished || self->ended;
}

static bool
has_ended(void *arg)
{
    return ((const program *)arg)->ended;
}

/* ------------------------------------------------------------------------------ coordinators */

static tutti_code
build_coordinator(program *self, tutti_error *err)
{
    const tutti_bytes descriptors = {tutti_descriptor_set, tutti_descriptor_set_size};
    const tutti_store_memory_options memory = {.bytes_max = self->coordinating.store_bytes_limit,
                                               .keys_max = self->coordinating.store_keys_limit};

    TUTTI_TRY(tutti_store_memory_open(&memory, &self->store, err));
    TUTTI_TRY(tutti_rpc_loop_new("coordinator", &self->loop, err));
    TUTTI_TRY(tutti_service_loop_new(&self->coordinating, self->store, self->loop,
                                     &self->service_loop, err));
    TUTTI_TRY(tutti_rpc_loop_start(self->loop, err));
    TUTTI_TRY(tutti_rpc_server_new(&self->serving, descriptors, self->loop, &self->server, err));
    tutti_service_loop_serve(self->service_loop, self->server);
    TUTTI_TRY(tutti_rpc_server_start(self->server, err));
    tutti_service_loop_set_health(self->server, true);
    return TUTTI_OK;
}

static void
on_stopped(void *arg)
{
    ((program *)arg)->ended = true;
}

static void *
run_coordinator(void *arg)
{
    program *self = arg;
    const tutti_option_set sets[] = {
        tutti_coordinator_option_set(&self->coordinating),
        tutti_rpc_server_option_set(&self->serving, COORDINATOR_ADDRESS),
    };
    tutti_error err;

    load_options(self, sets, sizeof(sets) / sizeof(sets[0]));
    if (build_coordinator(self, &err) != TUTTI_OK) {
        sim_fail("the coordinator does not start: %s", err.text);
    }
    self->runs = true;
    (void)sim_wait(is_wished, self, SIM_NEVER);
    tutti_rpc_server_stop(self->server, on_stopped, self);
    (void)sim_wait(has_ended, self, SIM_NEVER);
    tutti_rpc_server_free(self->server);
    tutti_service_loop_end(self->service_loop);
    tutti_rpc_loop_stop(self->loop);
    tutti_service_loop_free(self->service_loop);
    tutti_rpc_loop_free(self->loop);
    tutti_store_close(self->store);
    tutti_config_free(self->config);
    self->over = true;
    return NULL;
}

/* ------------------------------------------------------------------------------ agents */

static void
on_agent_end(void *arg, const tutti_error *err)
{
    program *self = arg;

    self->ended = true;
    if (err != NULL) {
        self->why = *err;
        sim_note("agent %u ends: %s", self->rank, err->text);
    }
}

static void
on_joined(void *arg, uint32_t rank)
{
    (void)rank;
    ((program *)arg)->runs = true;
}

static tutti_code
build_agent(program *self, tutti_error *err)
{
    TUTTI_TRY(tutti_rpc_loop_new("tutti-control", &self->loop, err));
    TUTTI_TRY(tutti_rpc_loop_new("tutti-bulk", &self->bulk, err));
    tutti_rpc_loop_idle(self->bulk);
    TUTTI_TRY(
        tutti_agent_new(&self->options, &self->serving, self->loop, self->bulk, &self->agent, err));
    tutti_agent_on_joined(self->agent, on_joined, self);
    tutti_agent_on_end(self->agent, on_agent_end, self);
    TUTTI_TRY(tutti_agent_start(self->agent, err));
    TUTTI_TRY(tutti_rpc_loop_start(self->loop, err));
    return tutti_rpc_loop_start(self->bulk, err);
}

static void *
run_agent(void *arg)
{
    program *self = arg;
    const tutti_option_set sets[] = {
        tutti_agent_option_set(&self->options),
        tutti_rpc_server_option_set(&self->serving, self->address),
    };
    tutti_error err;

    load_options(self, sets, sizeof(sets) / sizeof(sets[0]));
    if (build_agent(self, &err) != TUTTI_OK) {
        sim_fail("agent %u does not start: %s", self->rank, err.text);
    }
    (void)sim_wait(is_wished, self, SIM_NEVER);
    if (!self->ended) {
        tutti_agent_stop(self->agent, "stopped");
        (void)sim_wait(has_ended, self, SIM_NEVER);
    }
    tutti_rpc_loop_stop(self->bulk);
    tutti_rpc_loop_stop(self->loop);
    tutti_agent_free(self->agent);
    tutti_rpc_loop_free(self->bulk);
    tutti_rpc_loop_free(self->loop);
    tutti_config_free(self->config);
    self->over = true;
    return NULL;
}

/* ------------------------------------------------------------------------------ all of them */

static program *
new_program(bool is_agent)
{
    program *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->process = program_number();
    self->is_agent = is_agent;
    add_word(self, is_agent ? "tutti-agent" : "tutti-coordinator");
    add_word(self, "--self-check");
    add_word(self, "0");
    add_word(self, "--reflection=false");
    add_word(self, "--memory-quota");
    add_word(self, "1GiB");
    return self;
}

program *
program_coordinator(void)
{
    program *self = new_program(false);

    (void)snprintf(self->address, sizeof(self->address), "%s", COORDINATOR_ADDRESS);
    add_word(self, "--no-lane");
    self->task = sim_task_new(self->process, run_coordinator, self);
    return self;
}

static void
add_agent_words(program *self)
{
    static const char *const plain[] = {"--coordinator",
                                        COORDINATOR_ADDRESS,
                                        "--no-shm",
                                        "--no-share",
                                        "--no-lane",
                                        "--transports",
                                        "tcp",
                                        "--memory-limit",
                                        "64MiB",
                                        "--op-timeout",
                                        "20s",
                                        "--function-threads",
                                        "1",
                                        "--net-devices",
                                        "lo",
                                        NULL};
    size_t i;

    for (i = 0; plain[i] != NULL; i++) {
        add_word(self, plain[i]);
    }
    add_number(self, "--rank", self->rank);
    add_number(self, "--world-size", self->size);
}

program *
program_agent(uint32_t rank, uint32_t size)
{
    program *self = new_program(true);
    char host[16];

    self->rank = rank;
    self->size = size;
    (void)snprintf(self->address, sizeof(self->address), "127.0.0.1:%u", 7100 + rank);
    (void)snprintf(host, sizeof(host), "host%u", rank);
    add_word(self, "--host");
    add_word(self, host);
    add_word(self, "--host-id");
    add_word(self, host);
    add_agent_words(self);
    self->task = sim_task_new(self->process, run_agent, self);
    return self;
}

const char *
program_address(const program *self)
{
    return self->address;
}

int
program_process(const program *self)
{
    return self->process;
}

bool
program_runs(const program *self)
{
    return self->runs && !self->ended;
}

bool
program_failed(const program *self, tutti_error *ret_why)
{
    *ret_why = self->why;
    return self->ended && !self->wished;
}

void
program_engine_counts(const program *self, uint64_t *ret_parked, uint64_t *ret_running)
{
    tutti_coll_stats stats;

    tutti_coll_stat(self->agent->engine, &stats);
    *ret_parked = stats.parked;
    *ret_running = stats.running;
}

void
program_stop(program *self)
{
    self->wished = true;
}

void
program_kill(program *self, bool silent)
{
    if (self->killed || self->over) {
        return;
    }
    sim_note("process %d is killed%s", self->process, silent ? ", silently" : "");
    self->killed = true;
    sim_freeze(self->process, true);
    core_kill(self->process, silent);
    if (self->is_agent && self->agent != NULL) {
        wire_kill((uint32_t)self->process, silent);
    }
}

void
program_free(program *self)
{
    sim_freeze(self->process, false);
    self->wished = true;
    sim_task_join(self->task);
    free(self);
}
