#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/conn/conn_pool.h"
#include "core.h"
#include "kernel.h"
#include "program.h"
#include "tutti/tutti.h"
#include "wire.h"

typedef struct job_client {
    uint32_t rank;
    sim_task *task;
    bool is_through;
} job_client;

static struct {
    uint32_t size;
    program *coordinator;
    program *agents[RANKS_MAX];
    job_client clients[RANKS_MAX];
    play_counts counts;
} our;

static void
run_ops(tutti_client *client, uint32_t rank)
{
    tutti_error err;
    uint32_t n;

    for (n = 0; n < 20; n++) {
        int64_t x[3] = {rank, n, 1};
        const tutti_spec spec = {TUTTI_DTYPE_INT64, 1, {3}};
        tutti_op op;

        tutti_op_init(&op);
        our.counts.calls++;
        if (tutti_all_reduce_data(client, &op, &spec, x, x, &err) != TUTTI_OK) {
            sim_fail("op %u on rank %u: %s", n, rank, err.text);
        }
        sim_note("rank %u: op %u is well", rank, n);
        if (x[1] != (int64_t)n * our.size || x[2] != our.size) {
            sim_fail("op %u on rank %u: %lld %lld %lld", n, rank, (long long)x[0], (long long)x[1],
                     (long long)x[2]);
        }
    }
}

static void *
run_client(void *arg)
{
    job_client *self = arg;
    tutti_client *client = NULL;
    tutti_client_options options;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = program_address(our.agents[self->rank]);
    options.wait = true;
    if (tutti_connect_with(&options, &client, &err) != TUTTI_OK) {
        sim_fail("client %u: %s", self->rank, err.text);
    }
    run_ops(client, self->rank);
    tutti_close(client);
    self->is_through = true;
    return NULL;
}

static void *
run_all(void *arg)
{
    uint32_t i;

    (void)arg;
    our.coordinator = program_coordinator();
    for (i = 0; i < our.size; i++) {
        our.agents[i] = program_agent(i, our.size, 0);
    }
    for (i = 0; i < our.size; i++) {
        our.clients[i].rank = i;
        our.clients[i].task = sim_task_new(program_number(), run_client, &our.clients[i]);
    }
    for (i = 0; i < our.size; i++) {
        sim_task_join(our.clients[i].task);
    }
    for (i = 0; i < our.size; i++) {
        program_stop(our.agents[i]);
    }
    for (i = 0; i < our.size; i++) {
        program_free(our.agents[i]);
    }
    program_free(our.coordinator);
    sim_sleep(30 * TUTTI_NS_PER_S);
    return NULL;
}

void
job_play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts)
{
    tutti_error err;

    (void)ops;
    (void)faults;
    memset(&our, 0, sizeof(our));
    sim_open(seed, print);
    wire_open();
    core_open();
    program_open();
    if (client_library_enter(&err) != TUTTI_OK) { /* it stays begun while clients come and go */
        sim_fail("%s", err.text);
    }
    our.size = 2 + (uint32_t)sim_draw(3);
    sim_run(sim_task_new(SIM_DRIVER, run_all, NULL));
    client_library_leave();
    our.counts.virtual_ns = sim_now_ns() - TUTTI_NS_PER_S;
    our.counts.hash = sim_hash();
    *ret_counts = our.counts;
    core_close();
    sim_close();
}
