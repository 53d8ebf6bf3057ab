/*
 * Works: async ops by their ids, and the calls (Wait, Test, Cancel) for them. Control loop.
 *
 * A work lives while its op runs, and is remembered afterwards until --works-max newer ones have
 * finished, so a caller may wait for the same work again. Work numbers are never given twice, and
 * the id has the incarnation, so an id of a former process is told apart from one that was
 * forgotten.
 *
 * A call that waits is an agent_wait with one link in the list of each work that it names. It pins
 * these works: a pinned work is not forgotten, since the answer will read it. A work named twice in
 * one call has two links and two pins. Whatever ends a wait (the last work, the timer, the caller's
 * going, the drain) runs on this thread and unlinks all of them at once in free_wait.
 */
#include "server/agent/op/works.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/ref.h"
#include "base/error/fail.h"
#include "base/error/text.h"
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
        return TUTTI_FAIL_MEMORY(err, "no memory for works");
    }
    tutti_map_init(&works->by_number);
    tutti_list_init(&works->finished);
    tutti_list_init(&works->waits);
    agent->works = works;
    return TUTTI_OK;
}

/* `finished` is initialised for each work, so removing one that runs (at close) is fine. */
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
agent_work_new(tutti_agent *agent, agent_cancel_fn cancel, void *owner, agent_work **ret_work,
               tutti_error *err)
{
    agent_work *work = calloc(1, sizeof(*work));
    tutti_ref ref;

    if (work == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a work");
    }
    work->cancel = cancel;
    work->owner = owner;
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

/* The incarnation decides first: a number of another process may by chance be one of ours. */
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
                              "there is no work %s: it never existed, or is forgotten; the agent "
                              "remembers the last %" PRIu64 " finished ones (--works-max)",
                              name, agent->options->works_max);
    }
    *ret = tutti_container_of(node, agent_work, by_number);
    return TUTTI_OK;
}

agent_work *
agent_work_pinned(const tutti_agent *agent, uint64_t number)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&agent->works->by_number, tutti_map_key_u64(key, number));

    assert(node != NULL);
    return tutti_container_of(node, agent_work, by_number);
}

/* ------------------------------------------------------------------------------ finishing */

/*
 * Moved, not copied: the op is about to be freed. A failed op tells no outputs; its `meta` may be
 * what it was to send, so that stays with the op, which frees it.
 */
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

/*
 * First all waits that this work completes are answered, then old works are forgotten: the answers
 * read the works, this one included. Pinned works are skipped, so more than --works-max may be
 * remembered while calls wait for them.
 */
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

/* ------------------------------------------------------------------------------ works wait */

static tutti_code
check_works_count(size_t count, tutti_error *err)
{
    if (count == 0 || count > AGENT_WAIT_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORK_COUNT", "%zu works, need 1 to %d",
                              count, AGENT_WAIT_MAX);
    }
    return TUTTI_OK;
}

/*
 * Copies of the structs, not of what they point to: the answer is packed before this thread does
 * anything else.
 */
static agent_work_status *
gather_works(const tutti_agent *agent, const uint64_t *numbers, size_t count)
{
    agent_work_status *statuses = calloc(count, sizeof(*statuses));
    size_t i;

    for (i = 0; i < count && statuses != NULL; i++) {
        statuses[i] = agent_work_pinned(agent, numbers[i])->status;
    }
    return statuses;
}

/* The user pointer is cleared, since on_cancel may still come for the call. */
static void
free_wait(agent_wait *wait)
{
    size_t i;

    tutti_list_remove(&wait->link);
    tutti_rpc_loop_timer_stop(wait->agent->control, &wait->timer);
    for (i = 0; i < wait->count; i++) {
        tutti_list_remove(&wait->links[i].of_work);
        agent_work_pinned(wait->agent, wait->numbers[i])->pins--;
    }
    tutti_rpc_call_set_user(wait->call, NULL);
    tutti_rpc_call_unref(wait->call);
    free(wait->numbers);
    free(wait);
}

void
agent_wait_end(agent_wait *wait, const tutti_error *err)
{
    agent_work_status *statuses = NULL;
    tutti_error none;

    if (err == NULL) {
        statuses = gather_works(wait->agent, wait->numbers, wait->count);
    }
    if (statuses != NULL) {
        wait->answer(wait->call, statuses, wait->count);
    } else {
        (void)TUTTI_FAIL_MEMORY(&none, "no memory to answer");
        tutti_rpc_call_fail(wait->call, err != NULL ? err : &none);
    }
    free(statuses);
    free_wait(wait);
}

/* Name up to 8 works that still run: a caller that waits for 1000 needs to know which. */
static void
on_expiry(tutti_timer *timer)
{
    agent_wait *wait = tutti_container_of(timer, agent_wait, timer);
    char words[512];
    tutti_text text = tutti_text_in(words, sizeof(words));
    agent_work_status *statuses = gather_works(wait->agent, wait->numbers, wait->count);
    size_t named = 0;
    tutti_error err;
    size_t i;

    for (i = 0; i < wait->count && statuses != NULL && named < 8; i++) {
        if (!statuses[i].done) {
            tutti_text_add(&text, "%s%s", named == 0 ? "" : ", ", statuses[i].work);
            named++;
        }
    }
    if (wait->missing > named) {
        tutti_text_add(&text, ", and %zu more", wait->missing - named);
    }
    free(statuses);
    (void)TUTTI_FAIL_FOR(
        &err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT", "waited %.3g s, still running: %s",
        (double)(tutti_clock_ns() - wait->began_ns) / (double)TUTTI_NS_PER_S, words);
    agent_wait_end(wait, &err);
}

static void
on_cancel(tutti_rpc_call *call, void *self)
{
    agent_wait *wait = tutti_rpc_call_user(call);
    tutti_error err;

    (void)self;
    if (wait != NULL) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE", "the wait was given up");
        agent_wait_end(wait, &err);
    }
}

static agent_wait *
new_wait(tutti_agent *agent, tutti_rpc_call *call, size_t count, agent_statuses_fn answer)
{
    agent_wait *wait = calloc(1, sizeof(*wait) + count * sizeof(wait->links[0]));

    if (wait == NULL) {
        return NULL;
    }
    wait->numbers = calloc(count, sizeof(*wait->numbers));
    if (wait->numbers == NULL) {
        free(wait);
        return NULL;
    }
    wait->agent = agent;
    wait->call = call;
    wait->answer = answer;
    wait->timer.on_expiry = on_expiry;
    wait->began_ns = tutti_clock_ns();
    tutti_rpc_call_ref(call);
    tutti_list_init(&wait->link);
    tutti_list_add(&agent->works->waits, &wait->link);
    return wait;
}

/* Hang the call on every work it waits for. */
static tutti_code
join_works(agent_wait *wait, char *const *works, size_t count, tutti_error *err)
{
    agent_work *work = NULL;
    size_t i;

    for (i = 0; i < count; i++) {
        TUTTI_TRY(agent_work_find(wait->agent, works[i], &work, err));
        wait->links[i].wait = wait;
        wait->numbers[i] = work->number;
        tutti_list_init(&wait->links[i].of_work);
        tutti_list_add(&work->waits, &wait->links[i].of_work);
        /*
         * Also a link in a work that is done: agent_work_done will not look at it again, and
         * free_wait removes it with the others.
         */
        work->pins++;
        wait->missing += work->status.done ? 0 : 1;
        /*
         * Behind the link, so that free_wait undoes exactly what was done when the next id is bad.
         */
        wait->count++;
    }
    return TUTTI_OK;
}

void
agent_works_wait(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                 uint32_t timeout_ms, agent_statuses_fn answer)
{
    agent_wait *wait = NULL;
    tutti_error err;
    tutti_code code = check_works_count(count, &err);

    if (code == TUTTI_OK) {
        wait = new_wait(agent, call, count, answer);
        code = wait != NULL ? join_works(wait, works, count, &err)
                            : TUTTI_FAIL_MEMORY(&err, "no memory to wait");
    }
    if (wait == NULL) {
        tutti_rpc_call_fail(call, &err);
    } else if (code != TUTTI_OK || wait->missing == 0) {
        agent_wait_end(wait, code == TUTTI_OK ? NULL : &err);
    } else {
        tutti_rpc_call_set_user(call, wait);
        tutti_rpc_call_on_cancel(call, on_cancel);
        tutti_rpc_loop_timer_start(agent->control, &wait->timer,
                                   tutti_clock_deadline(wait->began_ns, timeout_ms,
                                                        tutti_rpc_call_deadline(call),
                                                        agent->options->op_timeout_ns));
    }
}

/* As a Wait that ends at once, done or not. */
void
agent_works_test(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                 agent_statuses_fn answer)
{
    agent_wait *wait = NULL;
    tutti_error err;
    tutti_code code = check_works_count(count, &err);

    if (code == TUTTI_OK) {
        wait = new_wait(agent, call, count, answer);
        code = wait != NULL ? join_works(wait, works, count, &err)
                            : TUTTI_FAIL_MEMORY(&err, "no memory to look");
    }
    if (wait == NULL) {
        tutti_rpc_call_fail(call, &err);
    } else {
        agent_wait_end(wait, code == TUTTI_OK ? NULL : &err);
    }
}

/*
 * All ids are looked up before any work is cancelled. A work that is forgotten as it ends (with a
 * --works-max of 0) has its NO_WORK from the Test.
 */
void
agent_works_cancel(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                   agent_statuses_fn answer)
{
    agent_work *work = NULL;
    tutti_error why;
    tutti_error err;
    tutti_code code = check_works_count(count, &err);
    size_t i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = agent_work_find(agent, works[i], &work, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE",
                         "the caller of rank %" PRIu32 " has cancelled it", agent->rank);
    tutti_error_set_op(&why, NULL, 0, (int32_t)agent->rank);
    for (i = 0; i < count; i++) {
        if (agent_work_find(agent, works[i], &work, &err) == TUTTI_OK && !work->status.done) {
            work->cancel(work->owner, &why);
        }
    }
    agent_works_test(agent, call, works, count, answer);
}

void
agent_works_drain(tutti_agent *agent)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                         agent->rank);
    while (!tutti_list_empty(&agent->works->waits)) {
        agent_wait_end(tutti_container_of(agent->works->waits.next, agent_wait, link), &err);
    }
}
