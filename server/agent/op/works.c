/*
 * Works: async ops by their ids, and the calls that wait for them. All on the control loop.
 *
 * A work lives while its op runs, and is remembered afterwards until --works-max newer ones have
 * finished: waiting again is fine.
 */
#include "server/agent/op/works.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/ref.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/op/works_private.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

tutti_code
agent_works_open(tutti_agent *agent, tutti_error *err)
{
    struct agent_works *works = calloc(1, sizeof(*works));

    if (works == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for works");
    }
    tutti_map_init(&works->by_number);
    tutti_list_init(&works->finished);
    tutti_list_init(&works->waits);
    agent->works = works;
    return TUTTI_OK;
}

static void
forget_work(struct agent_works *works, agent_work *work)
{
    assert(tutti_list_empty(&work->waits) && work->pins == 0);
    tutti_list_remove(&work->finished);
    works->finished_count -= work->status.done ? 1 : 0;
    tutti_map_remove(&works->by_number, &work->by_number);
    free(work->status.outputs);
    free((void *)(uintptr_t)work->status.meta.data);
    free(work);
}

void
agent_works_close(tutti_agent *agent)
{
    tutti_map_node *node;

    if (agent->works == NULL) {
        return;
    }
    while ((node = tutti_map_first(&agent->works->by_number)) != NULL) {
        forget_work(agent->works, tutti_container_of(node, agent_work, by_number));
    }
    free(agent->works);
    agent->works = NULL;
}

tutti_code
agent_work_new(tutti_agent *agent, agent_work **ret_work, tutti_error *err)
{
    agent_work *work = calloc(1, sizeof(*work));
    tutti_ref ref;

    if (work == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a work");
    }
    work->number = ++agent->works->last_number;
    work->by_number.key = tutti_map_key_u64(work->key, work->number);
    tutti_list_init(&work->finished);
    tutti_list_init(&work->waits);
    ref = (tutti_ref){agent->rank, agent->incarnation, work->number};
    tutti_ref_format(&ref, "work", work->status.work, AGENT_WORK_SIZE);
    (void)tutti_map_add(&agent->works->by_number, &work->by_number);
    *ret_work = work;
    return TUTTI_OK;
}

void
agent_work_name(const agent_work *work, char ret_name[AGENT_WORK_SIZE])
{
    memcpy(ret_name, work->status.work, AGENT_WORK_SIZE);
}

uint64_t
agent_works_count(const tutti_agent *agent)
{
    return agent->works->by_number.count;
}

/* ------------------------------------------------------------------------------ finding */

tutti_code
agent_work_find(const tutti_agent *agent, const char *name, agent_work **ret, tutti_error *err)
{
    unsigned char key[8];
    tutti_map_node *node;
    tutti_ref ref;

    if (!tutti_ref_parse(name, "work", &ref)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "\"%.80s\" is no id of a work, they look like "
                              "work:0.0123456789abcdef.1",
                              name);
    }
    if (ref.incarnation != agent->incarnation) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION,
                              ref.rank == agent->rank ? "STALE_HANDLE" : "FOREIGN_HANDLE",
                              "%s belongs to %s rank %" PRIu32, name,
                              ref.rank == agent->rank ? "a former process of" : "", ref.rank);
    }
    node = tutti_map_find(&agent->works->by_number, tutti_map_key_u64(key, ref.number));
    if (node == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_WORK",
                              "%s never was, or is forgotten: the last %" PRIu64
                              " finished ones are remembered (--works-max)",
                              name, agent->options->works_max);
    }
    *ret = tutti_container_of(node, agent_work, by_number);
    return TUTTI_OK;
}

agent_work *
agent_work_is_pinned(const tutti_agent *agent, uint64_t number)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&agent->works->by_number, tutti_map_key_u64(key, number));

    assert(node != NULL);
    return tutti_container_of(node, agent_work, by_number);
}

/* ------------------------------------------------------------------------------ finishing */

static void
take_work_list(agent_work_status *status, agent_op *op)
{
    if (op->failed) {
        return;
    }
    status->outputs = op->outputs;
    status->output_count = op->output_count;
    op->outputs = NULL;
    status->meta = (tutti_bytes){op->meta, op->meta_size};
    op->meta = NULL;
}

static void
fill_status(agent_work_status *status, agent_op *op)
{
    const tutti_tensor *tensor = NULL;

    status->done = true;
    status->failed = op->failed;
    status->err = op->err;
    status->elapsed_us = (op->ended_ns - op->enqueued_ns) / TUTTI_NS_PER_US;
    if (op->out != NULL && !op->no_result) {
        tutti_table_handle(op->out, status->handle);
        tensor = tutti_table_tensor(op->agent->table, op->out);
    }
    if (tensor != NULL) {
        status->has_spec = true;
        status->spec = tensor->spec;
    }
    take_work_list(status, op);
    if (op->op.args.kind == TUTTI_COLL_RECV && !op->failed) {
        status->source = op->op.source;
        status->source_global = op->source_global;
    }
}

void
agent_work_done(agent_work *work, agent_op *op)
{
    struct agent_works *works = op->agent->works;
    tutti_list_node *link;

    fill_status(&work->status, op);
    tutti_list_add(&works->finished, &work->finished);
    works->finished_count++;
    while ((link = tutti_list_pop(&work->waits)) != NULL) {
        agent_wait *wait = tutti_container_of(link, agent_wait_link, of_work)->wait;

        wait->missing--;
        if (wait->missing == 0) {
            agent_wait_end(wait, NULL);
        }
    }
    link = works->finished.next;
    while (works->finished_count > op->agent->options->works_max && link != &works->finished) {
        agent_work *oldest = tutti_container_of(link, agent_work, finished);

        link = link->next;
        if (oldest->pins == 0) {
            forget_work(works, oldest);
        }
    }
}
