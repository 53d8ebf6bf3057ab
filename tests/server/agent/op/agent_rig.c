#include "server/agent/op/agent_rig.h"

#include "coll/backend.h"
#include "coll/host/host.h"
#include "coll/self/self.h"
#include "server/agent/autograd/recording.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/op/answers.h"
#include "server/agent/op/coordinator_request.h"
#include "server/agent/op/deadline.h"
#include "server/agent/op/group.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/algorithms.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/op.h"
#include "server/agent/tensor/table.h"
#include "support/testing.h"
#include "tensor/host/host.h"

#define MEMORY (32U << 20)

/* The rig of the test that runs, for callbacks without one. */
static agent_rig *rig_now;

/* Guards agents[].engine: engines ask for each other while they are stopped one by one. */
static pthread_mutex_t seats = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------------------ engines */

static void
on_need_peers(void *arg, const uint32_t *ranks, size_t count)
{
    const tutti_agent *agent = arg;
    size_t i;

    (void)pthread_mutex_lock(&seats);
    for (i = 0; i < count && agent->engine != NULL; i++) {
        const tutti_agent *other = rig_now->agents[ranks[i]];

        if (other->engine != NULL) {
            tutti_coll_set_peer(agent->engine, ranks[i], other->incarnation,
                                tutti_coll_engine_address(other->engine));
        }
    }
    (void)pthread_mutex_unlock(&seats);
}

static void
open_engine(agent_rig *self, tutti_agent *agent)
{
    tutti_coll_engine_options options = {.backend = &tutti_coll_host,
                                         .self_backend = &tutti_coll_self,
                                         .on_need_peers = on_need_peers,
                                         .arg = agent};
    tutti_transport_key key = {.job_id = RIG_JOB, .epoch = 1};
    tutti_coll_engine *engine = NULL;
    tutti_error err;

    assert_ok(agent_algorithms_open(agent, &err));
    self->transports[agent->rank] = fake_transport_new(self->network);
    options.transport = self->transports[agent->rank];
    options.backend_arg = agent->selector;
    assert_ok(tutti_coll_engine_start(&options, &engine, &err));
    (void)pthread_mutex_lock(&seats);
    agent->engine = engine;
    (void)pthread_mutex_unlock(&seats);
    tutti_coll_engine_sit(engine, RIG_JOB, agent->rank, agent->incarnation);
    tutti_coll_engine_rekey(engine, &key);
}

static void
stop_engine(tutti_agent *agent)
{
    tutti_coll_engine *engine;

    (void)pthread_mutex_lock(&seats);
    engine = agent->engine;
    agent->engine = NULL;
    (void)pthread_mutex_unlock(&seats);
    tutti_coll_engine_stop(engine);
}

/* ------------------------------------------------------------------------------ hooks */

static tutti_code
check_begin(const tutti_agent *agent, tutti_error *err)
{
    if (rig_now->closed.code != TUTTI_OK) {
        return tutti_error_pass(err, &rig_now->closed);
    }
    return agent_check_open(agent, err);
}

static void
on_op_over(tutti_agent *agent)
{
    (void)agent;
    rig_now->ops_over++;
}

static void
on_give_up(tutti_agent *agent, const tutti_error *err)
{
    fail_msg("rank %u gives up: %s", (unsigned)agent->rank, err->text);
}

static const struct agent_hooks hooks_of_rooms = {
    .check_begin = check_begin,
    .launch = agent_op_launch,
    .end_early = agent_op_end_early,
    .record_take = agent_recording_take,
    .record_begin = agent_recording_begin,
    .record_list = agent_recording_list,
    .record_pack = agent_recording_pack,
    .record_unpack = agent_recording_unpack,
    .record_computed = agent_recording_computed,
    .record_end = agent_recording_end,
    .op_ended = agent_walks_op_ended,
    .place_reached = agent_backward_on_slot_reached,
    .give_up = on_give_up,
    .op_over = on_op_over,
};

/* ------------------------------------------------------------------------------ agents */

static const tutti_agent_options few = {
    .coordinator = "none",
    .job = "rig",
    .device = "cpu",
    .tune_table = "",
    .algorithm = "",
    .flight_dir = "",
    .memory_limit = MEMORY,
    .handles_max = 64,
    .retry_window_ns = 30 * TUTTI_NS_PER_S,
    .retry_bytes_limit = 1U << 20,
    .ops_max = 64,
    .client_ops_max = 32,
    .works_max = 16,
    .tracers_max = 8,
    .tape_max = 64,
    .op_timeout_ns = 300 * TUTTI_NS_PER_S,
    .plugin = "",
    .module_path = "",
    .functions = "",
    .python = "",
    .calls_max = 8,
    .function_threads = 2,
    .hosts_max = 2,
};

void
agent_rig_init(agent_rig *self, uint32_t size)
{
    assert_true(size <= RIG_AGENTS_MAX);
    *self = (agent_rig){.size = size, .options = few, .hooks = hooks_of_rooms};
}

static void
open_memory(tutti_agent *agent)
{
    const tutti_agent_options *options = agent->options;
    const tutti_space_host_options host = {.limit_bytes = options->memory_limit};
    tutti_error err;

    assert_ok(tutti_space_host_open(&host, &agent->space, &err));
    assert_ok(agent_devices_open(agent, &err));
    assert_ok(
        tutti_table_new(agent->incarnation, (uint32_t)options->handles_max, &agent->table, &err));
    tutti_table_set_rank(agent->table, agent->rank);
    assert_ok(tutti_tapes_new((uint32_t)options->tracers_max, (uint32_t)options->tape_max,
                              &agent->tapes, &err));
    assert_ok(agent_dump_open(agent, &err));
    assert_ok(agent_works_open(agent, &err));
}

static void
open_agent(agent_rig *self, uint32_t rank)
{
    tutti_agent *agent = calloc(1, sizeof(*agent));

    assert_non_null(agent);
    self->agents[rank] = agent;
    agent->options = &self->options;
    agent->hooks = &self->hooks;
    agent->control = &self->loop;
    agent->bulk = &self->loop;
    agent->coordinator = &self->coordinator.channel;
    agent->incarnation = 0x100 + rank;
    agent->rank = rank;
    agent->world_size = self->size;
    agent->state = AGENT_JOINED;
    agent->epoch = 1;
    agent->job_id = RIG_JOB;
    tutti_map_init(&agent->groups);
    agent_answers_init(agent);
    agent_clients_init(&agent->clients, self->options.client_ops_max);
    tutti_list_init(&agent->coordinator_requests);
    tutti_list_init(&agent->ops);
    tutti_list_init(&agent->syncs);
    tutti_list_init(&agent->backwards);
    open_memory(agent);
    open_engine(self, agent);
}

void
agent_rig_open(agent_rig *self)
{
    uint32_t ranks[RIG_AGENTS_MAX];
    uint32_t i;

    rig_now = self;
    self->network = fake_network_new();
    tutti_list_init(&self->calls);
    fake_loop_init(&self->loop);
    fake_coordinator_init(&self->coordinator);
    for (i = 0; i < self->size; i++) {
        ranks[i] = i;
    }
    (void)fake_coordinator_group(&self->coordinator, "world", ranks, self->size);
    for (i = 0; i < self->size; i++) {
        open_agent(self, i);
    }
}

void
agent_rig_start(agent_rig *self, uint32_t size)
{
    agent_rig_init(self, size);
    agent_rig_open(self);
}

static void
close_agent(tutti_agent *agent)
{
    tutti_space_stats stats;

    assert_int_equal(agent->ops_live, 0);
    assert_true(tutti_list_empty(&agent->ops));
    assert_true(tutti_list_empty(&agent->syncs));
    assert_true(tutti_list_empty(&agent->backwards));
    assert_true(tutti_list_empty(&agent->coordinator_requests));
    assert_int_equal(agent->clients.by_key.count, agent->clients.idle_count);
    agent_groups_free(agent);
    agent_clients_fini(&agent->clients);
    agent_works_close(agent);
    agent_answers_fini(agent);
    tutti_tapes_free(agent->tapes);
    agent_dump_close(agent);
    tutti_table_free(agent->table);
    agent_devices_close(agent);
    tutti_space_stat(agent->space, &stats);
    assert_int_equal(stats.tensor_count, 0);
    tutti_space_close(agent->space);
    tutti_selector_free(agent->selector);
    free(agent);
}

static void
free_calls(agent_rig *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->calls)) != NULL) {
        rig_call *call = tutti_container_of(link, rig_call, link);

        assert_true(call->call.over);
        assert_int_equal(atomic_load(&call->call.refs), 0);
        tutti_tensor_unref(call->result.payload);
        free(call);
    }
}

void
agent_rig_stop(agent_rig *self)
{
    uint32_t i;

    fake_clock_release();
    for (i = 0; i < self->size; i++) {
        agent_works_drain(self->agents[i]);
        agent_sync_drain(self->agents[i]);
        agent_coordinator_requests_cancel(self->agents[i]);
    }
    for (i = 0; i < self->size; i++) {
        stop_engine(self->agents[i]);
    }
    fake_clock_hold();
    agent_rig_settle(self);
    free_calls(self);
    for (i = 0; i < self->size; i++) {
        close_agent(self->agents[i]);
    }
    fake_loop_fini(&self->loop);
    fake_network_free(self->network);
}

static int
set_up(void **state, uint32_t size)
{
    agent_rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    agent_rig_start(rig, size);
    *state = rig;
    return 0;
}

int
agent_rig_setup_1(void **state)
{
    return set_up(state, 1);
}

int
agent_rig_setup_2(void **state)
{
    return set_up(state, 2);
}

int
agent_rig_setup_3(void **state)
{
    return set_up(state, 3);
}

int
agent_rig_teardown(void **state)
{
    agent_rig_stop(*state);
    free(*state);
    return 0;
}

/* ------------------------------------------------------------------------------ going on */

unsigned
agent_rig_run(agent_rig *self)
{
    unsigned total = 0;
    unsigned did;

    do {
        did = fake_loop_run(&self->loop);
        did += fake_coordinator_run(&self->coordinator);
        total += did;
    } while (did > 0);
    return total;
}

void
agent_rig_step(agent_rig *self, uint64_t ns)
{
    uint32_t i;

    fake_clock_step(ns);
    for (i = 0; i < self->size; i++) {
        tutti_coll_engine_wake(self->agents[i]->engine);
    }
    (void)agent_rig_run(self);
}

static bool
is_settled(const agent_rig *self)
{
    uint32_t i;

    for (i = 0; i < self->size; i++) {
        if (self->agents[i]->ops_live > 0) {
            return false;
        }
    }
    return true;
}

void
agent_rig_settle(agent_rig *self)
{
    while (agent_rig_run(self) > 0 || !is_settled(self)) {
        if (!is_settled(self)) {
            fake_loop_wait(&self->loop, "the end of all ops");
        }
    }
}

tutti_code
agent_rig_end(agent_rig *self, rig_call *call)
{
    while (agent_rig_run(self) > 0 || !call->call.over) {
        if (!call->call.over) {
            fake_loop_wait(&self->loop, "a call");
        }
    }
    return call->call.code;
}

void
agent_rig_end_in_time(agent_rig *self, rig_call *call)
{
    while (!call->call.over) {
        agent_rig_step(self, 100 * TUTTI_NS_PER_MS);
        if (!call->call.over) {
            fake_loop_wait_briefly(&self->loop);
        }
    }
}

void
agent_rig_end_well(agent_rig *self, rig_call *call)
{
    if (agent_rig_end(self, call) != TUTTI_OK) {
        fail_msg("a call fails: %s", call->call.err.text);
    }
}

void
agent_rig_end_failed(agent_rig *self, rig_call *call, tutti_code code, const char *reason)
{
    assert_fails(agent_rig_end(self, call), code);
    assert_string_equal(call->call.err.reason, reason);
}

/* ------------------------------------------------------------------------------ tensors */

tutti_spec
rig_vector(int64_t count)
{
    return (tutti_spec){.dtype = TUTTI_DTYPE_FP64, .dim_count = 1, .dims = {count}};
}

tutti_spec
rig_matrix(int64_t rows, int64_t columns)
{
    return (tutti_spec){.dtype = TUTTI_DTYPE_FP64, .dim_count = 2, .dims = {rows, columns}};
}

void
agent_rig_put_spec(agent_rig *self, uint32_t rank, const tutti_spec *spec, const void *data,
                   char ret_handle[RIG_HANDLE_SIZE])
{
    tutti_agent *agent = self->agents[rank];
    tutti_lock_set lock_set = {.loop = &self->loop};
    tutti_tensor *tensor = NULL;
    tutti_error err;

    assert_ok(tutti_table_create_locked(agent->table, &lock_set, "", &err));
    assert_true(tutti_table_acquire(agent->table, &lock_set));
    assert_ok(tutti_tensor_new(agent->space, spec, false, &tensor, &err));
    if (tensor->bytes > 0) {
        memcpy(tensor->data, data, (size_t)tensor->bytes);
    }
    tutti_table_fill(agent->table, &lock_set.locks[0], tensor);
    tutti_table_handle(&lock_set.locks[0], ret_handle);
    tutti_table_release(agent->table, &lock_set);
}

void
agent_rig_put(agent_rig *self, uint32_t rank, const double *values, int64_t count,
              char ret_handle[RIG_HANDLE_SIZE])
{
    const tutti_spec spec = rig_vector(count);

    agent_rig_put_spec(self, rank, &spec, values, ret_handle);
}

void
agent_rig_put_all(agent_rig *self, const double *values, int64_t count,
                  char ret_handles[][RIG_HANDLE_SIZE])
{
    uint32_t i;

    for (i = 0; i < self->size; i++) {
        agent_rig_put(self, i, values + i * count, count, ret_handles[i]);
    }
}

static void
on_lock_ready(tutti_lock_set *lock_set)
{
    tutti_container_of(lock_set, rig_lock, lock_set)->ready = true;
}

static void
lock_tensor(agent_rig *self, uint32_t rank, const char *handle, bool exclusive, rig_lock *ret)
{
    tutti_error err;

    *ret = (rig_lock){.rig = self, .table = self->agents[rank]->table};
    ret->lock_set.loop = &self->loop;
    ret->lock_set.on_ready = on_lock_ready;
    assert_ok(tutti_table_lock_by_name(ret->table, &ret->lock_set, handle, exclusive, &err));
    ret->ready = tutti_table_acquire(ret->table, &ret->lock_set);
}

void
agent_rig_read(agent_rig *self, uint32_t rank, const char *handle, rig_lock *ret_lock)
{
    lock_tensor(self, rank, handle, false, ret_lock);
}

void
agent_rig_write(agent_rig *self, uint32_t rank, const char *handle, rig_lock *ret_lock)
{
    lock_tensor(self, rank, handle, true, ret_lock);
}

void
rig_lock_wait(rig_lock *self)
{
    while (agent_rig_run(self->rig) > 0 || !self->ready) {
        if (!self->ready) {
            fake_loop_wait(&self->rig->loop, "the turn of a reader or writer");
        }
    }
}

void
rig_lock_end(rig_lock *self)
{
    assert_true(self->ready);
    tutti_table_release(self->table, &self->lock_set);
}

/* The tensor of a reader whose turn has come, and its error. */
static const tutti_tensor *
open_tensor(agent_rig *self, uint32_t rank, const char *handle, rig_lock *lock,
            tutti_error *ret_err)
{
    agent_rig_read(self, rank, handle, lock);
    rig_lock_wait(lock);
    ret_err->code = TUTTI_OK;
    (void)tutti_table_check(lock->table, &lock->lock_set.locks[0], ret_err);
    return tutti_table_tensor(lock->table, &lock->lock_set.locks[0]);
}

void
agent_rig_check_bytes(agent_rig *self, uint32_t rank, const char *handle, const void *data,
                      size_t size)
{
    rig_lock lock;
    tutti_error err;
    const tutti_tensor *tensor = open_tensor(self, rank, handle, &lock, &err);

    if (err.code != TUTTI_OK) {
        fail_msg("%s has an error: %s", handle, err.text);
    }
    assert_int_equal(tensor->bytes, size);
    assert_memory_equal(tensor->data, data, size);
    rig_lock_end(&lock);
}

static void
check_values(const char *handle, const double *found, const double *values, int64_t count)
{
    int64_t i;

    for (i = 0; i < count; i++) {
        if (found[i] != values[i]) {
            fail_msg("%s[%d] is %g, wanted %g", handle, (int)i, found[i], values[i]);
        }
    }
}

void
agent_rig_check(agent_rig *self, uint32_t rank, const char *handle, const double *values,
                int64_t count)
{
    rig_lock lock;
    tutti_error err;
    const tutti_tensor *tensor = open_tensor(self, rank, handle, &lock, &err);

    if (err.code != TUTTI_OK) {
        fail_msg("%s has an error: %s", handle, err.text);
    }
    assert_int_equal(tensor->spec.dtype, TUTTI_DTYPE_FP64);
    assert_int_equal(tutti_spec_count(&tensor->spec), count);
    check_values(handle, tensor->data, values, count);
    rig_lock_end(&lock);
}

void
agent_rig_check_all(agent_rig *self, char handles[][RIG_HANDLE_SIZE], const double *values,
                    int64_t count)
{
    uint32_t i;

    for (i = 0; i < self->size; i++) {
        agent_rig_check(self, i, handles[i], values + i * count, count);
    }
}

void
agent_rig_check_failed(agent_rig *self, uint32_t rank, const char *handle, tutti_code code)
{
    rig_lock lock;
    tutti_error err;

    (void)open_tensor(self, rank, handle, &lock, &err);
    assert_int_equal(err.code, code);
    rig_lock_end(&lock);
}

bool
agent_rig_has(agent_rig *self, uint32_t rank, const char *handle)
{
    tutti_table_info info;

    return tutti_table_stat(self->agents[rank]->table, handle, &info, NULL) == TUTTI_OK;
}

void
agent_rig_delete(agent_rig *self, uint32_t rank, const char *handle)
{
    char *handles[] = {(char *)(uintptr_t)handle};
    tutti_error err;

    assert_ok(tutti_table_delete(self->agents[rank]->table, handles, 1, false, &err));
}

/* ------------------------------------------------------------------------------ calls */

agent_request
rig_request(tutti_coll_kind kind, const char *input)
{
    return (agent_request){.group = "", .output = "", .input = input, .args = {.kind = kind}};
}

agent_request
rig_all_reduce(const char *input)
{
    agent_request request = rig_request(TUTTI_COLL_ALL_REDUCE, input);

    request.args.reduce = TUTTI_REDUCE_SUM;
    return request;
}

rig_call *
agent_rig_call(agent_rig *self, uint32_t rank)
{
    rig_call *call = calloc(1, sizeof(*call));

    assert_non_null(call);
    call->call.loop = &self->loop;
    call->call.self = self->agents[rank];
    call->call.deadline_ns = TUTTI_TIMERS_NEVER;
    tutti_list_init(&call->link);
    tutti_list_add(&self->calls, &call->link);
    fake_call_begin(&call->call);
    return call;
}

static rig_call *
rig_call_of(tutti_rpc_call *call)
{
    return tutti_container_of(call, rig_call, call);
}

static void
answer_op(tutti_rpc_call *call, const agent_op_result *result)
{
    rig_call *self = rig_call_of(call);

    assert_true(result->output_count <= RIG_ANSWERS_MAX);
    assert_true(result->meta.size <= sizeof(self->meta));
    self->result = *result;
    self->result.outputs = self->outputs;
    self->result.meta.data = self->meta;
    if (result->output_count > 0) {
        memcpy(self->outputs, result->outputs, result->output_count * sizeof(self->outputs[0]));
    }
    if (result->meta.size > 0) {
        memcpy(self->meta, result->meta.data, result->meta.size);
    }
    if (result->payload != NULL) {
        tutti_tensor_ref(result->payload);
    }
    fake_call_answered(call);
}

void
agent_rig_make(agent_rig *self, uint32_t rank, rig_call *call, const agent_request *request)
{
    agent_request mine = *request;

    agent_op_start(self->agents[rank], &call->call, &mine, answer_op);
}

rig_call *
agent_rig_begin(agent_rig *self, uint32_t rank, const agent_request *request)
{
    rig_call *call = agent_rig_call(self, rank);

    agent_rig_make(self, rank, call, request);
    return call;
}

rig_call *
agent_rig_begin_inline(agent_rig *self, uint32_t rank, const agent_request *request,
                       const void *data, size_t size)
{
    rig_call *call = agent_rig_call(self, rank);
    agent_request mine = *request;

    call->payload = (tutti_rpc_message){.payload = data, .size = size};
    mine.inline_input = true;
    mine.args.has_spec = true;
    mine.payload = &call->payload;
    agent_rig_make(self, rank, call, &mine);
    return call;
}

static void
answer_works(tutti_rpc_call *call, const agent_work_status *statuses, size_t count)
{
    rig_call *self = rig_call_of(call);

    assert_true(count <= RIG_ANSWERS_MAX);
    memcpy(self->statuses, statuses, count * sizeof(self->statuses[0]));
    self->status_count = count;
    fake_call_answered(call);
}

rig_call *
agent_rig_wait(agent_rig *self, uint32_t rank, char *const *works, size_t count,
               uint32_t timeout_ms)
{
    rig_call *call = agent_rig_call(self, rank);

    agent_works_wait(self->agents[rank], &call->call, works, count, timeout_ms, answer_works);
    return call;
}

rig_call *
agent_rig_test(agent_rig *self, uint32_t rank, char *const *works, size_t count)
{
    rig_call *call = agent_rig_call(self, rank);

    agent_works_test(self->agents[rank], &call->call, works, count, answer_works);
    return call;
}

static void
answer_sync(tutti_rpc_call *call, const agent_sync_result *result)
{
    rig_call_of(call)->sync = *result;
    fake_call_answered(call);
}

rig_call *
agent_rig_sync(agent_rig *self, uint32_t rank, const char *group, uint32_t timeout_ms)
{
    rig_call *call = agent_rig_call(self, rank);

    agent_sync(self->agents[rank], &call->call, group, timeout_ms, answer_sync);
    return call;
}

void
agent_rig_run_all(agent_rig *self, agent_request *requests, char ret_handles[][RIG_HANDLE_SIZE])
{
    rig_call *calls[RIG_AGENTS_MAX];
    uint32_t i;

    for (i = 0; i < self->size; i++) {
        calls[i] = agent_rig_begin(self, i, &requests[i]);
    }
    for (i = 0; i < self->size; i++) {
        agent_rig_end_well(self, calls[i]);
        if (ret_handles != NULL) {
            memcpy(ret_handles[i], calls[i]->result.handle, RIG_HANDLE_SIZE);
        }
    }
    agent_rig_settle(self);
}
