/*
 * Visitors: programs without an agent, that use the store by libtutti. What they were answered is a history, which has
 * to be linearizable (linear.h). A call that fails may have been done, or be done later: it stays open.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster/cluster_private.h"
#include "sim/linear.h"

#define CALLS_MAX 40 /* of a visitor */
#define HISTORY_MAX 512
#define CALL_MS 5000
#define WORDS_MAX 4096

static struct {
    linear_op ops[HISTORY_MAX];
    size_t count;
    int64_t drawn; /* values, each once */
} history;

/* Two keys that are set, two that are counters. */
static const char *const keys[] = {"red", "blue", "apples", "pears"};

static void
write_number(char ret_text[24], int64_t number)
{
    (void)snprintf(ret_text, 24, "%" PRId64, number);
}

static int64_t
read_number(const void *value)
{
    return value == NULL ? LINEAR_ABSENT : strtoll(value, NULL, 10);
}

static linear_op *
begin_op(const cluster_user *user, linear_kind kind, uint32_t key)
{
    linear_op *op = &history.ops[history.count++];

    *op = (linear_op){.kind = kind,
                      .client = user->who,
                      .keys = {key},
                      .key_count = 1,
                      .begin = sim_now_ns(),
                      .end = LINEAR_OPEN};
    return op;
}

static bool
call_get(tutti_client *client, linear_op *op, const char *key, tutti_error *err)
{
    void *value = NULL;
    const tutti_code code = tutti_kv_get(client, key, strlen(key), &value, NULL, err);

    op->results[0] = read_number(value);
    tutti_free(value);
    return code == TUTTI_OK || (code == TUTTI_NOT_FOUND && strcmp(err->reason, "NO_KEY") == 0);
}

static bool
call_set(tutti_client *client, linear_op *op, const char *key, tutti_error *err)
{
    char text[24];

    op->values[0] = ++history.drawn;
    write_number(text, op->values[0]);
    return tutti_kv_set(client, key, strlen(key), text, strlen(text), err) == TUTTI_OK;
}

static bool
call_add(tutti_client *client, linear_op *op, const char *key, tutti_error *err)
{
    op->values[0] = 1 + (int64_t)sim_draw(9);
    return tutti_kv_add(client, key, strlen(key), op->values[0], &op->results[0], err) == TUTTI_OK;
}

/* Of what was set last, often enough. */
static bool
call_swap(tutti_client *client, linear_op *op, const char *key, tutti_error *err)
{
    char expected[24];
    char text[24];
    void *value = NULL;
    bool swapped = false;
    tutti_code code;

    op->expected = history.drawn - (int64_t)sim_draw(3);
    op->values[0] = ++history.drawn;
    write_number(expected, op->expected);
    write_number(text, op->values[0]);
    code = tutti_kv_compare_and_set(client, key, strlen(key), expected, strlen(expected), text,
                                    strlen(text), &swapped, &value, NULL, err);
    op->refused = !swapped;
    op->results[0] = read_number(value);
    tutti_free(value);
    return code == TUTTI_OK;
}

static bool
run_call(tutti_client *client, linear_op *op, const char *key, tutti_error *err)
{
    switch (op->kind) {
    case LINEAR_GET:
        return call_get(client, op, key, err);
    case LINEAR_SET:
        return call_set(client, op, key, err);
    case LINEAR_ADD:
        return call_add(client, op, key, err);
    default:
        return call_swap(client, op, key, err);
    }
}

static void
run_one(cluster_user *self, tutti_client *client)
{
    static const linear_kind of_set[] = {LINEAR_GET, LINEAR_SET, LINEAR_SET, LINEAR_SWAP};
    const uint32_t key = (uint32_t)sim_draw(4);
    const linear_kind kind =
        key >= 2 ? (sim_chance(4) ? LINEAR_GET : LINEAR_ADD) : of_set[sim_draw(4)];
    linear_op *op = begin_op(self, kind, key);
    const size_t number = history.count - 1;
    const uint64_t begun_ns = sim_now_ns();
    const uint64_t stopped_ns = self->stopped_ns;
    tutti_error err;
    bool well;

    cluster.counts.calls++;
    well = run_call(client, op, keys[key], &err);
    sim_note("visitor %u: call %zu of %s ends: %s", self->who, number, keys[key],
             well ? "well" : err.text);
    if (self->killed) {
        return;
    }
    if (well) {
        op->end = sim_now_ns();
    } else if (err.reason[0] == '\0' || cluster.plan.kind == PLAN_GENTLE) {
        sim_fail("visitor %u: call %zu failed, reason \"%s\": %s", self->who, number, err.reason,
                 err.text);
    }
    if (sim_now_ns() - begun_ns >
        (CALL_MS + 2500) * TUTTI_NS_PER_MS + self->stopped_ns - stopped_ns) {
        sim_fail("visitor %u: call %zu took %.3f s", self->who, number,
                 (double)(sim_now_ns() - begun_ns) / 1e9);
    }
    cluster.counts.failed += well ? 0 : 1;
}

static bool
is_served(void *arg)
{
    (void)arg;
    return cluster.programs[CLUSTER_COORDINATOR] != NULL &&
           program_runs(cluster.programs[CLUSTER_COORDINATOR]);
}

void *
cluster_run_visitor(void *arg)
{
    cluster_user *self = arg;
    tutti_client *client = NULL;
    tutti_client_options options;
    tutti_error err;

    (void)sim_wait(is_served, NULL, sim_now_ns() + 30 * TUTTI_NS_PER_S);
    tutti_client_options_init(&options);
    options.agent = "";
    options.coordinator = COORDINATOR_ADDRESS;
    options.job = "default";
    options.timeout_ms = CALL_MS;
    if (tutti_connect_with(&options, &client, &err) != TUTTI_OK) {
        sim_fail("a visitor cannot connect: %s", err.text);
    }
    for (; self->next < CALLS_MAX && !self->killed && history.count < HISTORY_MAX; self->next++) {
        sim_sleep(sim_draw(40 * TUTTI_NS_PER_MS));
        run_one(self, client);
    }
    tutti_close(client);
    self->through = true;
    return NULL;
}

void
cluster_store_open(void)
{
    memset(&history, 0, sizeof(history));
}

void
cluster_judge_store(void)
{
    static char words[WORDS_MAX];

    if (!cluster.store_is_new &&
        linear_check(history.ops, history.count, words, sizeof(words)) == LINEAR_BROKEN) {
        sim_fail("what the store answered is not linearizable: %s", words);
    }
}
