/* Tutti's side: a client of one agent, through gRPC, on tensors that are there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "bench/peers/peers_worker.h"

typedef struct tutti_side {
    tutti_client *client;
    uint32_t ranks;
    size_t prepared; /* bytes; 0 = nothing */
    char prepared_op[32];
    tutti_handle input;
    tutti_handle output;
    bool has_output;
} tutti_side;

typedef tutti_code (*op_fn)(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                            tutti_error *err);

static tutti_code unary(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                        tutti_error *err);

static op_fn
op_of(const char *name)
{
    static const struct {
        const char *name;
        op_fn fn;
    } ops[] = {{"all_reduce", tutti_all_reduce},
               {"broadcast", tutti_broadcast},
               {"all_gather", tutti_all_gather},
               {"all_to_all", tutti_all_to_all},
               {"reduce_scatter", tutti_reduce_scatter},
               {"barrier", tutti_barrier},
               {"unary", unary}};
    size_t i;

    for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].name, name) == 0) {
            return ops[i].fn;
        }
    }
    return NULL;
}

/* The least call: what an op costs beyond it is the op's. */
static tutti_code
unary(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result, tutti_error *err)
{
    tutti_agent_stats stats;

    (void)op;
    (void)ret_result;
    return tutti_agent_stat(client, &stats, err);
}

static bool
say(tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_OK) {
        (void)fprintf(stderr, "tutti: %s\n", err->text);
    }
    return code == TUTTI_OK;
}

static bool
create(tutti_side *self, size_t bytes, tutti_handle *ret)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {(int64_t)(bytes / 4)}};
    tutti_error err;

    return say(tutti_tensor_create(self->client, &spec, NULL, ret, &err), &err);
}

static void
forget(tutti_side *self)
{
    tutti_error err;

    if (self->prepared > 0) {
        (void)tutti_tensor_delete(self->client, self->input.text, &err);
    }
    if (self->prepared > 0 && self->has_output) {
        (void)tutti_tensor_delete(self->client, self->output.text, &err);
    }
    self->prepared = 0;
}

static bool
once(void *side, const peers_burst *burst)
{
    tutti_side *self = side;
    const op_fn fn = op_of(burst->op);
    tutti_op_result result;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    if (strcmp(burst->op, "barrier") != 0) {
        op.input = self->input.text;
        op.output = self->has_output ? self->output.text : self->input.text;
    }
    return say(fn(self->client, &op, &result, &err), &err);
}

static bool
prepare(void *side, const peers_burst *burst)
{
    tutti_side *self = side;
    const bool gathers = strcmp(burst->op, "all_gather") == 0;
    const bool scatters = strcmp(burst->op, "reduce_scatter") == 0;

    if (op_of(burst->op) == NULL) {
        return false;
    }
    if (self->prepared == burst->bytes && strcmp(self->prepared_op, burst->op) == 0) {
        return true;
    }
    forget(self);
    self->has_output = gathers || scatters || strcmp(burst->op, "all_to_all") == 0;
    if (!create(self, gathers ? burst->bytes / self->ranks : burst->bytes, &self->input) ||
        (self->has_output &&
         !create(self, scatters ? burst->bytes / self->ranks : burst->bytes, &self->output))) {
        return false;
    }
    self->prepared = burst->bytes;
    (void)snprintf(self->prepared_op, sizeof(self->prepared_op), "%s", burst->op);
    return once(self, burst) && once(self, burst);
}

static void
barrier(void *side)
{
    static const peers_burst burst = {.op = "barrier"};

    (void)once(side, &burst);
}

static bool
connect_to(tutti_side *self, const char *agent)
{
    tutti_client_options options;
    tutti_error err;
    bool serving = false;

    tutti_client_options_init(&options);
    options.agent = agent;
    options.wait = true;
    while (!serving) { /* it has not joined yet */
        if (!say(tutti_health_check(&options, "", &serving, &err), &err)) {
            return false;
        }
        (void)usleep(10000);
    }
    return say(tutti_connect_with(&options, &self->client, &err), &err);
}

int
main(int argc, char **argv)
{
    static const peers_side side = {prepare, barrier, once};
    tutti_side self = {0};
    int code;

    if (argc != 4) {
        (void)fprintf(stderr, "usage: bench_peers_tutti FOLDER RANK AGENT\n");
        return 2;
    }
    if (!connect_to(&self, argv[3])) {
        return 1;
    }
    self.ranks = tutti_whoami(self.client)->world_size;
    code = peers_serve(argv[1], (unsigned)strtoul(argv[2], NULL, 10), &side, &self);
    forget(&self);
    tutti_close(self.client);
    return code;
}
