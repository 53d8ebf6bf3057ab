/*
 * Goal: a call runs when its tensors are its own and its scope's calls before it are over, its
 * result is there for who named it early, and however it ends nothing of it stays. Method: agents
 * of one process (op/agent_rig.h) with functions of the test, some of which wait until it lets them
 * go on; the clock is the test's.
 */
#include <pthread.h>
#include <sched.h>

#include "server/agent/function/functions.h"
#include "server/agent/op/agent_rig.h"
#include "support/testing.h"

#define ANSWERS_MAX 64

/* What a call was told, by its rpc call. */
typedef struct answer {
    const tutti_rpc_call *rpc;
    tutti_any any; /* of a plain value without memory */
    char handle[RIG_HANDLE_SIZE];
} answer;

typedef struct trial {
    agent_rig rig;
    answer answers[ANSWERS_MAX];
    size_t answer_count;
} trial;

static trial *trial_now;

/* ------------------------------------------------------------------------------ functions */

/* Functions of the test stop here while it is shut. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut;
    unsigned inside;
    unsigned came;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, 0};

static void
gate_shut(bool shut)
{
    (void)pthread_mutex_lock(&gate.lock);
    gate.shut = shut;
    (void)pthread_cond_broadcast(&gate.changed);
    (void)pthread_mutex_unlock(&gate.lock);
}

static void
gate_wait(unsigned came)
{
    (void)pthread_mutex_lock(&gate.lock);
    while (gate.came < came) {
        (void)pthread_cond_wait(&gate.changed, &gate.lock);
    }
    (void)pthread_mutex_unlock(&gate.lock);
}

/* Returns how many are inside with it, and whether somebody still waits for it. */
static int
stop_here(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    (void)count;
    (void)pthread_mutex_lock(&gate.lock);
    gate.inside++;
    gate.came++;
    *ret = tutti_any_int(gate.inside);
    (void)pthread_cond_broadcast(&gate.changed);
    while (gate.shut) {
        (void)pthread_cond_wait(&gate.changed, &gate.lock);
    }
    gate.inside--;
    (void)pthread_mutex_unlock(&gate.lock);
    return *env->cancelled != 0 ? (env->fail)(env, "GIVEN_UP", "nobody waits") : 0;
}

static int
add_one(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1 || args[0].kind != TUTTI_ANY_INT) {
        return (env->fail)(env, "BAD_ARGS", "add_one takes an int");
    }
    *ret = tutti_any_int(args[0].u.integer + 1);
    return 0;
}

/* Each element of its arguments once more, and how many arguments there are. */
static int
twice(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    int32_t i;
    int64_t k;

    (void)env;
    for (i = 0; i < count; i++) {
        for (k = 0; k < args[i].u.tensor->shape[0]; k++) {
            ((double *)args[i].u.tensor->data)[k] *= 2;
        }
    }
    *ret = tutti_any_int(count);
    return 0;
}

static int
give_first(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)env;
    *ret = count > 0 ? args[0] : tutti_any_null();
    return 0;
}

static int
make_three(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const DLDataType fp64 = {2, 64, 1};
    const int64_t shape[] = {3};
    DLTensor *made = env->make(env, fp64, shape, 1, NULL);

    (void)args;
    (void)count;
    if (made == NULL) {
        return -1;
    }
    ((double *)made->data)[0] = 1;
    ((double *)made->data)[1] = 2;
    ((double *)made->data)[2] = 3;
    *ret = tutti_any_tensor(made);
    return 0;
}

static int
sum_all(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const tutti_env_op op = {.size = sizeof(op),
                             .op = "all_reduce",
                             .input = args[0].u.tensor,
                             .output = args[0].u.tensor};

    (void)count;
    *ret = tutti_any_null();
    return env->op(env, &op);
}

/* It fails without an op, and goes on. */
static int
shrug(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const tutti_env_op op = {.size = sizeof(op), .op = "barrier"};

    (void)args;
    (void)count;
    *ret = tutti_any_int(env->op(env, &op) != 0);
    return 0;
}

static const struct {
    const char *name;
    tutti_function run;
} functions_of_test[] = {
    {"t.stop", stop_here},   {"t.add_one", add_one}, {"t.twice", twice}, {"t.first", give_first},
    {"t.three", make_three}, {"t.sum", sum_all},     {"t.shrug", shrug},
};

/* ------------------------------------------------------------------------------ the trial */

static void
open_functions(tutti_agent *agent)
{
    agent_function *function = NULL;
    tutti_error err;
    size_t i;

    assert_ok(agent_functions_open(agent, &err));
    for (i = 0; i < COUNT_OF(functions_of_test); i++) {
        assert_ok(agent_registry_add(&agent->functions->registry, functions_of_test[i].name, "test",
                                     NULL, &function, &err));
        function->run = functions_of_test[i].run;
    }
}

static int
set_up(void **state, uint32_t size)
{
    trial *self = calloc(1, sizeof(*self));
    uint32_t i;

    assert_non_null(self);
    trial_now = self;
    gate_shut(false);
    gate.came = 0;
    agent_rig_start(&self->rig, size);
    for (i = 0; i < size; i++) {
        open_functions(self->rig.agents[i]);
    }
    *state = self;
    return 0;
}

static int
set_up_1(void **state)
{
    return set_up(state, 1);
}

static int
set_up_2(void **state)
{
    return set_up(state, 2);
}

static void
settle(trial *self)
{
    uint32_t i;

    for (i = 0; i < self->rig.size; i++) {
        while (agent_functions_live(self->rig.agents[i]) > 0) {
            (void)agent_rig_run(&self->rig);
            (void)sched_yield();
        }
    }
}

static int
tear_down(void **state)
{
    trial *self = *state;
    uint32_t i;

    gate_shut(false);
    settle(self);
    for (i = 0; i < self->rig.size; i++) {
        assert_int_equal(self->rig.agents[i]->functions->scopes.count, 0);
        while (!agent_functions_close(self->rig.agents[i])) {
            (void)sched_yield(); /* its threads end */
        }
    }
    agent_rig_stop(&self->rig);
    free(self);
    return 0;
}

static void
answer_call(tutti_rpc_call *rpc, const agent_call_result *result)
{
    answer *one = &trial_now->answers[trial_now->answer_count++];

    assert_true(trial_now->answer_count <= ANSWERS_MAX);
    one->rpc = rpc;
    one->any = result->value == NULL ? tutti_any_null() : result->value->any;
    memcpy(one->handle, result->handle, sizeof(one->handle));
    fake_call_answered(rpc);
}

static const answer *
find_answer(const trial *self, const rig_call *call)
{
    size_t i;

    for (i = 0; i < self->answer_count; i++) {
        if (self->answers[i].rpc == &call->call) {
            return &self->answers[i];
        }
    }
    fail_msg("the call was not answered");
    return NULL;
}

static int64_t
int_of(const trial *self, const rig_call *call)
{
    const answer *one = find_answer(self, call);

    assert_int_equal(one->any.kind, TUTTI_ANY_INT);
    return one->any.u.integer;
}

/* ------------------------------------------------------------------------------ calls */

/* "t.add_one" with no arguments. */
static agent_call_request
call_of(const char *function)
{
    return (agent_call_request){.function = function, .result = "", .scope = "", .group = ""};
}

static agent_call_input *
add_input(agent_call_request *request)
{
    if (request->args == NULL) {
        request->args = calloc(AGENT_CALL_ARGS_MAX, sizeof(*request->args));
    }
    assert_non_null(request->args);
    return &request->args[request->arg_count++];
}

static void
add_int(agent_call_request *request, int64_t integer)
{
    const tutti_any any = tutti_any_int(integer);
    tutti_error err;

    assert_ok(agent_value_new(&any, &add_input(request)->value, &err));
}

static void
add_name(agent_call_request *request, const char *name)
{
    add_input(request)->name = name;
}

static rig_call *
begin(trial *self, uint32_t rank, agent_call_request *request)
{
    rig_call *call = agent_rig_call(&self->rig, rank);

    agent_function_start(self->rig.agents[rank], &call->call, request, answer_call);
    return call;
}

static rig_call *
begin_simple(trial *self, const char *function, const char *scope, const char *result)
{
    agent_call_request request = call_of(function);

    request.scope = scope;
    request.result = result;
    return begin(self, 0, &request);
}

static rig_call *
begin_on(trial *self, uint32_t rank, const char *function, const char *name)
{
    agent_call_request request = call_of(function);

    add_name(&request, name);
    request.group = "world";
    return begin(self, rank, &request);
}

static rig_call *
begin_add_one(trial *self, const char *name, const char *result)
{
    agent_call_request request = call_of("t.add_one");

    add_name(&request, name);
    request.result = result;
    return begin(self, 0, &request);
}

/* ------------------------------------------------------------------------------ order */

static void
test_call__answers_with_what_the_function_returns(void **state)
{
    trial *self = *state;
    agent_call_request request = call_of("t.add_one");
    rig_call *call;

    add_int(&request, 41);
    call = begin(self, 0, &request);
    agent_rig_end_well(&self->rig, call);
    assert_int_equal(int_of(self, call), 42);
    assert_int_equal(tutti_table_count(self->rig.agents[0]->table), 0);
}

static void
test_call__waits_for_who_writes_its_tensor_and_is_waited_for(void **state)
{
    trial *self = *state;
    const double values[] = {1, 2};
    const double wanted[] = {4, 8};
    char handle[RIG_HANDLE_SIZE];
    rig_lock before;
    rig_lock behind;
    rig_call *call;

    agent_rig_put(&self->rig, 0, values, 2, handle);
    agent_rig_write(&self->rig, 0, handle, &before);
    call = begin_on(self, 0, "t.twice", handle);
    agent_rig_read(&self->rig, 0, handle, &behind);
    (void)agent_rig_run(&self->rig);
    assert_false(call->call.over);
    ((double *)tutti_table_tensor(before.table, &before.lock_set.locks[0])->data)[0] = 2;
    ((double *)tutti_table_tensor(before.table, &before.lock_set.locks[0])->data)[1] = 4;
    assert_false(behind.ready);
    rig_lock_end(&before);
    agent_rig_end_well(&self->rig, call);
    rig_lock_wait(&behind);
    rig_lock_end(&behind);
    agent_rig_check(&self->rig, 0, handle, wanted, 2);
    agent_rig_delete(&self->rig, 0, handle);
}

static void
test_call__that_names_a_tensor_twice_wants_it_once(void **state)
{
    trial *self = *state;
    const double values[] = {1};
    const double wanted[] = {4};
    char handle[RIG_HANDLE_SIZE];
    agent_call_request request = call_of("t.twice");
    rig_call *call;

    agent_rig_put(&self->rig, 0, values, 1, handle);
    add_name(&request, handle);
    add_name(&request, handle);
    call = begin(self, 0, &request);
    agent_rig_end_well(&self->rig, call);
    assert_int_equal(int_of(self, call), 2);
    agent_rig_check(&self->rig, 0, handle, wanted, 1);
    agent_rig_delete(&self->rig, 0, handle);
}

static void
test_scope__runs_its_calls_one_at_a_time_and_others_beside(void **state)
{
    trial *self = *state;
    rig_call *first;
    rig_call *second;
    rig_call *other;

    gate_shut(true);
    first = begin_simple(self, "t.stop", "s", "");
    second = begin_simple(self, "t.stop", "s", "");
    gate_wait(1);
    other = begin_simple(self, "t.stop", "u", "");
    gate_wait(2);
    assert_int_equal(gate.inside, 2);
    gate_shut(false);
    agent_rig_end_well(&self->rig, first);
    agent_rig_end_well(&self->rig, other);
    agent_rig_end_well(&self->rig, second);
    assert_int_equal(int_of(self, other), 2);
    assert_true(int_of(self, second) <= 2);
}

static void
test_result__may_be_named_before_it_is_there(void **state)
{
    trial *self = *state;
    agent_call_request request = call_of("t.first");
    rig_call *first;
    rig_call *second;
    rig_call *third;

    gate_shut(true);
    first = begin_simple(self, "t.stop", "", "n");
    second = begin_add_one(self, "n", "n");
    add_name(&request, "n");
    third = begin(self, 0, &request);
    gate_wait(1);
    assert_false(second->call.over);
    gate_shut(false);
    agent_rig_end_well(&self->rig, first);
    agent_rig_end_well(&self->rig, second);
    agent_rig_end_well(&self->rig, third);
    assert_int_equal(int_of(self, third), 2);
    assert_int_equal(tutti_table_count(self->rig.agents[0]->table), 1);
    agent_rig_delete(&self->rig, 0, "n");
}

/* ------------------------------------------------------------------------------ results */

static void
test_result__that_is_made_has_a_handle(void **state)
{
    trial *self = *state;
    const double wanted[] = {1, 2, 3};
    char handle[RIG_HANDLE_SIZE];
    rig_call *call = begin_simple(self, "t.three", "", "");

    agent_rig_end_well(&self->rig, call);
    memcpy(handle, find_answer(self, call)->handle, sizeof(handle));
    agent_rig_check(&self->rig, 0, handle, wanted, 3);
    assert_int_equal(tutti_table_count(self->rig.agents[0]->table), 1);
    agent_rig_delete(&self->rig, 0, handle);
}

static void
test_result__of_a_caller_that_has_gone_is_gone(void **state)
{
    trial *self = *state;
    rig_call *call = begin_simple(self, "t.three", "", "");

    atomic_store(&call->call.cancelled, true); /* before the answer has gone out */
    (void)agent_rig_end(&self->rig, call);
    assert_int_equal(tutti_table_count(self->rig.agents[0]->table), 0);
}

static void
test_result__that_is_an_argument_is_a_copy(void **state)
{
    trial *self = *state;
    const double values[] = {5};
    const double wanted[] = {10};
    char handle[RIG_HANDLE_SIZE];
    agent_call_request request = call_of("t.first");

    agent_rig_put(&self->rig, 0, values, 1, handle);
    add_name(&request, handle);
    request.result = "same";
    agent_rig_end_well(&self->rig, begin(self, 0, &request));
    agent_rig_end_well(&self->rig, begin_on(self, 0, "t.twice", handle));
    agent_rig_check(&self->rig, 0, handle, wanted, 1);
    agent_rig_check(&self->rig, 0, "same", values, 1);
    agent_rig_delete(&self->rig, 0, handle);
    agent_rig_delete(&self->rig, 0, "same");
}

static void
test_result__that_takes_its_arguments_name_is_the_argument(void **state)
{
    trial *self = *state;
    const double values[] = {5};
    tutti_space_stats stats;
    char handle[RIG_HANDLE_SIZE];
    agent_call_request request = call_of("t.first");

    agent_rig_put(&self->rig, 0, values, 1, handle);
    add_name(&request, handle);
    request.result = "x";
    agent_rig_end_well(&self->rig, begin(self, 0, &request));
    agent_rig_delete(&self->rig, 0, handle);
    request = call_of("t.first");
    add_name(&request, "x");
    request.result = "x";
    agent_rig_end_well(&self->rig, begin(self, 0, &request));
    agent_rig_check(&self->rig, 0, "x", values, 1);
    tutti_space_stat(self->rig.agents[0]->space, &stats);
    assert_int_equal(stats.tensor_count, 1);
    agent_rig_delete(&self->rig, 0, "x");
}

/* ------------------------------------------------------------------------------ failing */

static void
test_failure__is_found_by_who_needs_the_result(void **state)
{
    trial *self = *state;
    rig_call *first = begin_simple(self, "t.add_one", "", "bad");
    rig_call *second = begin_add_one(self, "bad", "worse");

    agent_rig_end_failed(&self->rig, first, TUTTI_ABORTED, "BAD_ARGS");
    agent_rig_end_failed(&self->rig, second, TUTTI_ABORTED, "BAD_ARGS");
    agent_rig_end_failed(&self->rig, begin_simple(self, "t.no_such", "", "bad"), TUTTI_NOT_FOUND,
                         "UNKNOWN_FUNC");
    agent_rig_check_failed(&self->rig, 0, "bad", TUTTI_NOT_FOUND);
    agent_rig_check_failed(&self->rig, 0, "worse", TUTTI_ABORTED);
    agent_rig_delete(&self->rig, 0, "bad");
    agent_rig_delete(&self->rig, 0, "worse");
}

static void
test_failure__of_many_in_one_scope_ends_them_all(void **state)
{
    trial *self = *state;
    rig_call *calls[8];
    size_t i;

    gate_shut(true);
    calls[0] = begin_simple(self, "t.stop", "s", "bad");
    gate_wait(1);
    for (i = 1; i < COUNT_OF(calls); i++) {
        agent_call_request request = call_of("t.add_one");

        add_name(&request, "missing");
        request.scope = "s";
        calls[i] = begin(self, 0, &request);
    }
    agent_rig_end_failed(&self->rig, begin_simple(self, "t.add_one", "", ""),
                         TUTTI_RESOURCE_EXHAUSTED, "CALL_LIMIT");
    gate_shut(false);
    agent_rig_end_well(&self->rig, calls[0]);
    for (i = 1; i < COUNT_OF(calls); i++) {
        agent_rig_end_failed(&self->rig, calls[i], TUTTI_ABORTED, "BAD_ARGS");
    }
    agent_rig_delete(&self->rig, 0, "bad");
}

static void
test_deadline__of_a_running_call_is_told_and_its_tensor_stays_locked(void **state)
{
    trial *self = *state;
    const double values[] = {1};
    char handle[RIG_HANDLE_SIZE];
    agent_call_request request = call_of("t.stop");
    rig_lock reader;
    rig_call *call;

    agent_rig_put(&self->rig, 0, values, 1, handle);
    gate_shut(true);
    add_name(&request, handle);
    request.result = "late";
    request.timeout_ms = 100;
    call = begin(self, 0, &request);
    gate_wait(1);
    agent_rig_step(&self->rig, 200 * TUTTI_NS_PER_MS);
    agent_rig_end_failed(&self->rig, call, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    agent_rig_read(&self->rig, 0, handle, &reader);
    assert_false(reader.ready);
    gate_shut(false);
    rig_lock_wait(&reader);
    rig_lock_end(&reader);
    agent_rig_check_failed(&self->rig, 0, "late", TUTTI_DEADLINE_EXCEEDED);
    agent_rig_delete(&self->rig, 0, handle);
    agent_rig_delete(&self->rig, 0, "late");
}

static void
test_deadline__of_a_call_that_waits_frees_its_place(void **state)
{
    trial *self = *state;
    const double values[] = {1};
    char handle[RIG_HANDLE_SIZE];
    agent_call_request request = call_of("t.twice");
    rig_lock writer;
    rig_call *blocked;
    rig_call *behind;

    agent_rig_put(&self->rig, 0, values, 1, handle);
    agent_rig_write(&self->rig, 0, handle, &writer);
    add_name(&request, handle);
    request.scope = "s";
    request.timeout_ms = 100;
    blocked = begin(self, 0, &request);
    behind = begin_simple(self, "t.stop", "s", "");
    agent_rig_step(&self->rig, 200 * TUTTI_NS_PER_MS);
    agent_rig_end_failed(&self->rig, blocked, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    agent_rig_end_well(&self->rig, behind);
    rig_lock_end(&writer);
    settle(self);
    agent_rig_check(&self->rig, 0, handle, values, 1);
    agent_rig_delete(&self->rig, 0, handle);
}

static void
test_cancel__tells_the_function(void **state)
{
    trial *self = *state;
    rig_call *call;
    rig_call *waits;

    gate_shut(true);
    call = begin_simple(self, "t.stop", "s", "");
    waits = begin_simple(self, "t.stop", "s", "");
    gate_wait(1);
    fake_call_cancel(&waits->call, false);
    agent_rig_end_failed(&self->rig, waits, TUTTI_CANCELLED, "CALLER_GONE");
    fake_call_cancel(&call->call, false);
    agent_rig_end_failed(&self->rig, call, TUTTI_CANCELLED, "CALLER_GONE");
    gate_shut(false);
    settle(self);
    assert_int_equal(gate.came, 1);
}

/* ------------------------------------------------------------------------------ collectives */

static void
test_op__inside_of_functions_sums_over_the_group(void **state)
{
    trial *self = *state;
    const double values[] = {1, 10};
    const double sums[] = {11, 11};
    char handles[2][RIG_HANDLE_SIZE];
    rig_call *calls[2];
    uint32_t i;

    agent_rig_put_all(&self->rig, values, 1, handles);
    for (i = 0; i < 2; i++) {
        calls[i] = begin_on(self, i, "t.sum", handles[i]);
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(&self->rig, calls[i]);
    }
    agent_rig_check_all(&self->rig, handles, sums, 1);
    for (i = 0; i < 2; i++) {
        agent_rig_delete(&self->rig, i, handles[i]);
    }
}

static void
test_op__of_a_call_that_is_cancelled_fails_on_all_ranks(void **state)
{
    trial *self = *state;
    const double values[] = {1, 10};
    char handles[2][RIG_HANDLE_SIZE];
    rig_call *call;
    uint32_t i;

    agent_rig_put_all(&self->rig, values, 1, handles);
    call = begin_on(self, 0, "t.sum", handles[0]);
    while (self->rig.agents[0]->ops_live == 0) {
        (void)agent_rig_run(&self->rig);
        (void)sched_yield();
    }
    fake_call_cancel(&call->call, false);
    agent_rig_end_failed(&self->rig, call, TUTTI_CANCELLED, "CALLER_GONE");
    settle(self);
    agent_rig_end_failed(&self->rig, begin_on(self, 1, "t.sum", handles[1]), TUTTI_CANCELLED,
                         "CALLER_GONE");
    for (i = 0; i < 2; i++) {
        agent_rig_delete(&self->rig, i, handles[i]);
    }
}

static void
test_op__that_fails_does_not_fail_a_function_that_goes_on(void **state)
{
    trial *self = *state;
    rig_call *call = begin_simple(self, "t.shrug", "", ""); /* without a group */

    agent_rig_end_well(&self->rig, call);
    assert_int_equal(int_of(self, call), 1);
}

#define TEST_1(name) cmocka_unit_test_setup_teardown(name, set_up_1, tear_down)
#define TEST_2(name) cmocka_unit_test_setup_teardown(name, set_up_2, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_1(test_call__answers_with_what_the_function_returns),
        TEST_1(test_call__waits_for_who_writes_its_tensor_and_is_waited_for),
        TEST_1(test_call__that_names_a_tensor_twice_wants_it_once),
        TEST_1(test_scope__runs_its_calls_one_at_a_time_and_others_beside),
        TEST_1(test_result__may_be_named_before_it_is_there),
        TEST_1(test_result__that_is_made_has_a_handle),
        TEST_1(test_result__of_a_caller_that_has_gone_is_gone),
        TEST_1(test_result__that_is_an_argument_is_a_copy),
        TEST_1(test_result__that_takes_its_arguments_name_is_the_argument),
        TEST_1(test_failure__is_found_by_who_needs_the_result),
        TEST_1(test_failure__of_many_in_one_scope_ends_them_all),
        TEST_1(test_deadline__of_a_running_call_is_told_and_its_tensor_stays_locked),
        TEST_1(test_deadline__of_a_call_that_waits_frees_its_place),
        TEST_1(test_cancel__tells_the_function),
        TEST_2(test_op__inside_of_functions_sums_over_the_group),
        TEST_2(test_op__of_a_call_that_is_cancelled_fails_on_all_ranks),
        TEST_1(test_op__that_fails_does_not_fail_a_function_that_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
