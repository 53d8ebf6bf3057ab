/* Calls that wait for works, or look how they stand. All on the control loop. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/agent/op/works.h"
#include "server/agent/op/works_private.h"
#include "server/agent/state/state.h"

static tutti_code
check_works_count(size_t count, tutti_error *err)
{
    if (count == 0 || count > AGENT_WAIT_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORK_COUNT", "%zu works, need 1 to %d",
                              count, AGENT_WAIT_MAX);
    }
    return TUTTI_OK;
}

/* How they stand, as one array. NULL: no memory. */
static agent_work_status *
gather_works(const tutti_agent *agent, const uint64_t *numbers, size_t count)
{
    agent_work_status *statuses = calloc(count, sizeof(*statuses));
    size_t i;

    for (i = 0; i < count && statuses != NULL; i++) {
        statuses[i] = agent_work_is_pinned(agent, numbers[i])->status;
    }
    return statuses;
}

static void
free_wait(agent_wait *wait)
{
    size_t i;

    tutti_list_remove(&wait->link);
    tutti_rpc_loop_timer_stop(wait->agent->control, &wait->timer);
    for (i = 0; i < wait->count; i++) {
        tutti_list_remove(&wait->links[i].of_work);
        agent_work_is_pinned(wait->agent, wait->numbers[i])->pins--;
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
        (void)TUTTI_FAIL(&none, TUTTI_RESOURCE_EXHAUSTED, "no memory to answer");
        tutti_rpc_call_fail(wait->call, err != NULL ? err : &none);
    }
    free(statuses);
    free_wait(wait);
}

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
        (void)TUTTI_FAIL(&err, TUTTI_CANCELLED, "the wait was given up");
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
        work->pins++;
        wait->missing += work->status.done ? 0 : 1;
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
                            : TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory to wait");
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
                            : TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory to look");
    }
    if (wait == NULL) {
        tutti_rpc_call_fail(call, &err);
    } else {
        agent_wait_end(wait, code == TUTTI_OK ? NULL : &err);
    }
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
