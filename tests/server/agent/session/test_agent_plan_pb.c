/*
 * Goal: each command of a controller comes to the right calls on the right workers, is answered once,
 * when its last part has ended, and a command that makes no sense reaches nobody.
 * Method: a session of four workers in two groups, with fakes in the place of lib/rpc: streams that
 * keep what is written to them.
 */
#include "support/testing.h"

#include "base/error/fail.h"
#include "server/agent/function/value.h"
#include "server/agent/record/metrics.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/session/local.h"
#include "server/agent/session/session.h"
#include "server/agent/state/coordinator_channel.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "tutti/v1/commands_service.pb-c.h"
#include "tutti/v1/session_service.pb-c.h"

#define WORKERS 4
#define CALLS_MAX 16
#define COMMAND(NAME) TUTTI__V1__DRIVE_REQUEST__COMMAND_##NAME
#define CALL(NAME) TUTTI__V1__RUN_REQUEST__COMMAND_##NAME

struct tutti_rpc_packed {
    unsigned refs;
    size_t size;
    unsigned char bytes[];
};

struct tutti_rpc_flow {
    Tutti__V1__RunRequest *calls[CALLS_MAX]; /* [owned] */
    unsigned count;
};

static tutti_rpc_flow flows[WORKERS];
static Tutti__V1__DriveResponse *answers[CALLS_MAX]; /* [owned] */
static unsigned answer_count;
static tutti_agent_options options;
static tutti_agent agent;
static agent_session *session;

/* ------------------------------------------------------------------------------ in the place of rpc */

tutti_code
tutti_rpc_pack(const struct ProtobufCMessage *message, const tutti_rpc_blob *payload,
               tutti_rpc_packed **ret_packed, tutti_error *err)
{
    const size_t size = protobuf_c_message_get_packed_size(message);

    (void)payload;
    (void)err;
    *ret_packed = malloc(sizeof(**ret_packed) + size);
    (*ret_packed)->refs = 1;
    (*ret_packed)->size = protobuf_c_message_pack(message, (*ret_packed)->bytes);
    return TUTTI_OK;
}

tutti_rpc_packed *
tutti_rpc_packed_copy(tutti_rpc_packed *packed)
{
    packed->refs++;
    return packed;
}

void
tutti_rpc_packed_free(tutti_rpc_packed *packed)
{
    if (packed != NULL && --packed->refs == 0) {
        free(packed);
    }
}

size_t
tutti_rpc_packed_bytes(tutti_rpc_packed *packed)
{
    return packed->size;
}

bool
tutti_rpc_flow_writable(const tutti_rpc_flow *flow)
{
    return flow->count < CALLS_MAX;
}

void
tutti_rpc_flow_write_packed(tutti_rpc_flow *flow, tutti_rpc_packed *packed, bool more)
{
    (void)more;
    flow->calls[flow->count] = tutti__v1__run_request__unpack(NULL, packed->size, packed->bytes);
    assert_non_null(flow->calls[flow->count++]);
    tutti_rpc_packed_free(packed);
}

bool
tutti_rpc_call_write_packed(tutti_rpc_call *call, tutti_rpc_packed *packed, bool more)
{
    (void)call;
    (void)more;
    answers[answer_count] = tutti__v1__drive_response__unpack(NULL, packed->size, packed->bytes);
    assert_non_null(answers[answer_count++]);
    tutti_rpc_packed_free(packed);
    return true;
}

/* What is called and does not matter here, and what no test comes to. */
void
tutti_rpc_flow_cancel(tutti_rpc_flow *flow)
{
    (void)flow;
}
void
tutti_rpc_call_read(tutti_rpc_call *call)
{
    (void)call;
}
void
tutti_rpc_call_finish(tutti_rpc_call *call, const tutti_error *err)
{
    (void)call;
    (void)err;
}
const char *
tutti_rpc_call_peer(const tutti_rpc_call *call)
{
    (void)call;
    return "";
}
const void *
tutti_rpc_message_get(const tutti_rpc_message *message)
{
    return message;
}
void
tutti_rpc_message_free(tutti_rpc_message *message)
{
    assert_null(message);
}
void
tutti_rpc_channel_close(tutti_rpc_channel *channel)
{
    assert_null(channel);
}
void
tutti_rpc_loop_post(tutti_rpc_loop *loop, tutti_rpc_task *task)
{
    (void)loop;
    task->on_run(task);
}
void
tutti_rpc_loop_timer_start(tutti_rpc_loop *loop, tutti_timer *timer, uint64_t at)
{
    (void)loop;
    (void)timer;
    (void)at;
}
void
tutti_rpc_loop_timer_stop(tutti_rpc_loop *loop, tutti_timer *timer)
{
    (void)loop;
    (void)timer;
}
void
agent_session_ask_group(agent_session *self, const char *group)
{
    (void)self;
    (void)group;
    fail();
}
void
agent_session_stop_asking(agent_session *self)
{
    (void)self;
}
void
agent_session_forget_mesh(agent_session *self)
{
    (void)self;
}
void
agent_local_put(agent_local *local, tutti_rpc_packed *packed)
{
    (void)local;
    (void)packed;
    fail();
}
void
agent_local_cancel(agent_local *local)
{
    (void)local;
    fail();
}
bool
agent_local_is_idle(agent_local *local)
{
    return local == NULL;
}
void
agent_local_free(agent_local *local)
{
    assert_null(local);
}
void
agent_note_command(tutti_agent *self, tutti_code code)
{
    (void)self;
    (void)code;
}
tutti_code
agent_wire_lease(agent_worker *worker, bool first, tutti_error *err)
{
    (void)worker;
    (void)first;
    return TUTTI_FAIL(err, TUTTI_INTERNAL, "no lease here");
}
tutti_code
agent_open_peer_channel(const tutti_agent *self, const char *address, const char *token,
                        tutti_rpc_channel **ret, tutti_error *err)
{
    (void)self;
    (void)address;
    (void)token;
    (void)ret;
    return TUTTI_FAIL(err, TUTTI_INTERNAL, "no channel here");
}
tutti_code
tutti_table_lock_by_name(tutti_table *table, tutti_lock_set *lock_set, const char *handle,
                         bool exclusive, tutti_error *err)
{
    (void)table;
    (void)lock_set;
    (void)handle;
    (void)exclusive;
    return TUTTI_FAIL(err, TUTTI_NOT_FOUND, "none");
}
bool
tutti_table_acquire(tutti_table *table, tutti_lock_set *lock_set)
{
    (void)table;
    (void)lock_set;
    return true;
}
void
tutti_table_release(tutti_table *table, tutti_lock_set *lock_set)
{
    (void)table;
    (void)lock_set;
}
tutti_table_value *
tutti_table_value_of(tutti_table *table, const tutti_lock *lock)
{
    (void)table;
    (void)lock;
    return NULL;
}

void
agent_write_error(const tutti_error *err, Tutti__V1__Error *ret_message)
{
    tutti__v1__error__init(ret_message);
    ret_message->code = (uint32_t)err->code;
    ret_message->reason = (char *)(uintptr_t)err->reason;
    ret_message->text = (char *)(uintptr_t)err->text;
}

/* ------------------------------------------------------------------------------ the session */

static int
set_up(void **state)
{
    const uint32_t ranks[WORKERS] = {0, 1, 2, 3};
    tutti_error err;
    uint32_t i;

    (void)state;
    memset(flows, 0, sizeof(flows));
    answer_count = 0;
    options = (tutti_agent_options){.commands_max = 8, .registers_max = 100};
    agent = (tutti_agent){.options = &options};
    tutti_list_init(&agent.sessions);
    session = agent_session_new(&agent, (tutti_rpc_call *)&agent);
    session->group_count = 2;
    assert_ok(agent_session_hire(session, ranks, WORKERS, &err));
    for (i = 0; i < WORKERS; i++) {
        session->workers[i].run_flow = &flows[i];
    }
    (void)snprintf(session->all, sizeof(session->all), "all");
    (void)snprintf(session->each, sizeof(session->each), "each");
    session->state = AGENT_SESSION_OPEN;
    return 0;
}

static int
tear_down(void **state)
{
    unsigned i;
    unsigned k;

    (void)state;
    for (i = 0; i < WORKERS; i++) {
        for (k = 0; k < flows[i].count; k++) {
            tutti__v1__run_request__free_unpacked(flows[i].calls[k], NULL);
        }
        session->workers[i].run_flow = NULL;
    }
    for (k = 0; k < answer_count; k++) {
        tutti__v1__drive_response__free_unpacked(answers[k], NULL);
    }
    session->call = NULL;
    agent_session_close(session, NULL); /* and frees it */
    return 0;
}

static void
give(uint64_t id, Tutti__V1__DriveRequest__CommandCase which, void *message)
{
    Tutti__V1__DriveRequest request = TUTTI__V1__DRIVE_REQUEST__INIT;
    agent_drive *command = NULL;
    tutti_error err;

    request.id = id;
    request.command_case = which;
    request.open = message; /* all of it share their place */
    assert_ok(agent_drive_begin(session, id, (uint32_t)which, &command, &err));
    agent_session_plan(session, command, &request);
}

/* The worker has answered its call of that number. */
static void
end_call(uint32_t worker, unsigned number)
{
    agent_part_end(&session->workers[worker].by_slot[flows[worker].calls[number]->id]);
}

static void
let_answers_leave(void)
{
    while (session->writing != NULL) {
        agent_session_written(session);
    }
}

/* A command that is refused: one answer, and no worker has seen it. */
static void
refused(Tutti__V1__DriveRequest__CommandCase which, void *message, const char *reason)
{
    const unsigned before = answer_count;
    uint32_t i;

    give(100 + before, which, message);
    assert_int_equal(answer_count, before + 1);
    assert_non_null(answers[before]->error);
    assert_string_equal(answers[before]->error->reason, reason);
    for (i = 0; i < WORKERS; i++) {
        assert_int_equal(flows[i].count, 0);
    }
    let_answers_leave();
}

static void
lose(uint32_t number)
{
    agent_worker *worker = &session->workers[number];

    worker->lost = true;
    (void)TUTTI_FAIL_FOR(&worker->gone, TUTTI_UNAVAILABLE, "RANK_LOST", "rank %u is gone", number);
}

static char *
name_of(uint32_t number)
{
    static char name[AGENT_SESSION_NAME_SIZE];

    agent_session_register(session, number, name);
    return name;
}

/* ------------------------------------------------------------------------------ tests */

static void
test_all_reduce__is_one_call_on_each_and_one_answer(void **state)
{
    Tutti__V1__DriveReduce reduce = TUTTI__V1__DRIVE_REDUCE__INIT;
    uint32_t i;

    (void)state;
    reduce.src = 3;
    reduce.into = 4;
    reduce.reduce_op = TUTTI__V1__REDUCE_OP__REDUCE_OP_MAX;
    give(7, COMMAND(ALL_REDUCE), &reduce);
    for (i = 0; i < WORKERS; i++) {
        const Tutti__V1__RunRequest *call = flows[i].calls[0];

        assert_int_equal(flows[i].count, 1);
        assert_int_equal(call->command_case, CALL(ALL_REDUCE));
        assert_string_equal(call->all_reduce->group, "all");
        assert_string_equal(call->all_reduce->input->handle, name_of(3));
        assert_string_equal(call->all_reduce->options->result, name_of(4));
        assert_string_equal(call->all_reduce->output, "");
        assert_int_equal(answer_count, 0);
        end_call(i, 0);
    }
    assert_int_equal(answer_count, 1);
    assert_int_equal(answers[0]->id, 7);
    assert_null(answers[0]->error);
}

static void
test_broadcast__reads_the_first_of_each_group(void **state)
{
    Tutti__V1__DriveMove move = TUTTI__V1__DRIVE_MOVE__INIT;
    uint32_t i;

    (void)state;
    move.src = 1;
    move.dst = 2;
    move.in_group = true;
    give(1, COMMAND(BROADCAST_FROM_WORKER0), &move);
    for (i = 0; i < WORKERS; i++) {
        const Tutti__V1__BroadcastRequest *op = flows[i].calls[0]->broadcast;

        assert_string_equal(op->group, "each");
        assert_string_equal(op->output, name_of(2));
        assert_int_equal(op->input != NULL, i % 2 == 0);
    }
}

static void
test_op_in_group__goes_on_in_groups_that_are_whole(void **state)
{
    Tutti__V1__DriveReduce reduce = TUTTI__V1__DRIVE_REDUCE__INIT;
    const Tutti__V1__DriveResponse *answer;

    (void)state;
    reduce.src = reduce.dst = 1;
    reduce.reduce_op = TUTTI__V1__REDUCE_OP__REDUCE_OP_SUM;
    reduce.in_group = true;
    lose(2);
    give(1, COMMAND(ALL_REDUCE), &reduce);
    assert_int_equal(flows[0].count + flows[1].count, 2);
    assert_int_equal(flows[2].count + flows[3].count, 0);
    end_call(0, 0);
    end_call(1, 0);
    assert_int_equal(answer_count, 1);
    answer = answers[0];
    assert_string_equal(answer->error->text, "ranks 2, 3: rank 2 is gone");
    assert_int_equal(answer->n_failed, 2);
    assert_int_equal(answer->failed[0]->worker, 2);
    assert_int_equal(answer->failed[1]->worker, 3);
}

static void
test_op_of_all__is_not_begun_without_a_worker(void **state)
{
    Tutti__V1__DriveMove move = TUTTI__V1__DRIVE_MOVE__INIT;

    (void)state;
    lose(3);
    move.src = 1;
    move.into = 2;
    refused(COMMAND(ALL_GATHER), &move, "RANK_LOST");
}

static void
test_message_to_the_next_group__fails_where_a_worker_is_lost(void **state)
{
    Tutti__V1__DriveMove move = TUTTI__V1__DRIVE_MOVE__INIT;

    (void)state;
    lose(3);
    move.src = 1;
    give(1, COMMAND(SEND_TO_NEXT_GROUP), &move);
    assert_int_equal(flows[0].count, 1);
    assert_int_equal(flows[0].calls[0]->command_case, CALL(SEND));
    assert_int_equal(flows[1].count + flows[2].count + flows[3].count, 0);
    end_call(0, 0);
    assert_int_equal(answers[0]->n_failed, 1);
    assert_int_equal(answers[0]->failed[0]->worker, 1); /* its receiver is worker 3 */
    let_answers_leave();
    move.src = 0;
    move.into = 2;
    give(2, COMMAND(RECV_FROM_PREV_GROUP), &move);
    assert_int_equal(flows[2].count, 1);
    assert_int_equal(flows[2].calls[0]->command_case, CALL(RECV));
    assert_int_equal(flows[0].count + flows[1].count + flows[3].count, 1);
    end_call(2, 0);
    assert_int_equal(answers[1]->n_failed, 1);
    assert_int_equal(answers[1]->failed[0]->worker, 3);
}

static void
test_nonsense__reaches_no_worker(void **state)
{
    Tutti__V1__DriveMove move = TUTTI__V1__DRIVE_MOVE__INIT;
    Tutti__V1__DriveDrop drop = TUTTI__V1__DRIVE_DROP__INIT;
    Tutti__V1__DriveGet get = TUTTI__V1__DRIVE_GET__INIT;
    Tutti__V1__DriveSet set = TUTTI__V1__DRIVE_SET__INIT;
    Tutti__V1__DriveReduce reduce = TUTTI__V1__DRIVE_REDUCE__INIT;
    Tutti__V1__Value value = TUTTI__V1__VALUE__INIT;
    uint32_t workers[] = {4};

    (void)state;
    refused(COMMAND(_NOT_SET), NULL, "NO_COMMAND");
    refused((Tutti__V1__DriveRequest__CommandCase)99, &move, "NO_COMMAND");
    refused((Tutti__V1__DriveRequest__CommandCase)15, &move, "NO_COMMAND"); /* between two */
    refused(COMMAND(ALL_GATHER), &move, "BAD_REGISTER");
    move.src = 1;
    refused(COMMAND(ALL_GATHER), &move, "BAD_REGISTER");
    move.dst = move.into = 2;
    refused(COMMAND(ALL_GATHER), &move, "BAD_REGISTER");
    move.dst = 0;
    move.into = 101;
    refused(COMMAND(ALL_GATHER), &move, "REGISTER_LIMIT");
    refused(COMMAND(DROP), &drop, "BAD_REGISTER");
    get.src = 1;
    get.workers = workers;
    get.n_workers = 1;
    refused(COMMAND(GET), &get, "BAD_WORKER");
    set.into = 1;
    refused(COMMAND(SET), &set, "BAD_VALUE");
    value.kind_case = TUTTI__V1__VALUE__KIND_NAME;
    value.name = (char *)(uintptr_t) "w";
    set.value = &value;
    refused(COMMAND(SET), &set, "BAD_VALUE");
    refused(COMMAND(ALL_REDUCE), &reduce, "BAD_REDUCE_OP");
    session->group_count = 1;
    move.into = 2;
    refused(COMMAND(SEND_TO_NEXT_GROUP), &move, "LAST_GROUP");
}

static void
test_sync__ends_with_what_is_before_it_on_its_workers(void **state)
{
    Tutti__V1__DriveSync sync = TUTTI__V1__DRIVE_SYNC__INIT;
    Tutti__V1__DriveCopy copy = TUTTI__V1__DRIVE_COPY__INIT;
    uint32_t workers[] = {1};

    (void)state;
    copy.src = 1;
    copy.into = 2;
    give(1, COMMAND(COPY), &copy);
    sync.workers = workers;
    sync.n_workers = 1;
    give(2, COMMAND(SYNC), &sync);
    end_call(0, 0);
    assert_int_equal(answer_count, 0);
    end_call(1, 0);
    assert_int_equal(answer_count, 1);
    assert_int_equal(answers[0]->id, 2);
    assert_int_equal(flows[1].count, 1); /* a sync is no call */
}

static void
test_worker_that_is_lost__fails_what_it_has_not_answered(void **state)
{
    Tutti__V1__DriveCopy copy = TUTTI__V1__DRIVE_COPY__INIT;
    uint32_t i;

    (void)state;
    copy.src = 1;
    copy.into = 2;
    give(1, COMMAND(COPY), &copy);
    for (i = 0; i < 3; i++) {
        end_call(i, 0);
    }
    lose(3);
    agent_parts_fail(&session->workers[3], &session->workers[3].gone);
    assert_int_equal(answer_count, 1);
    assert_int_equal(answers[0]->n_failed, 1);
    assert_int_equal(answers[0]->failed[0]->rank, 3);
}

static void
test_drop__spares_the_workers_that_are_lost(void **state)
{
    Tutti__V1__DriveDrop drop = TUTTI__V1__DRIVE_DROP__INIT;
    uint32_t registers[] = {5, 6};

    (void)state;
    lose(0);
    drop.registers = registers;
    drop.n_registers = 2;
    give(1, COMMAND(DROP), &drop);
    assert_int_equal(flows[0].count, 0);
    assert_int_equal(flows[1].calls[0]->command_case, CALL(DELETE));
    assert_int_equal(flows[1].calls[0]->delete_->n_handles, 2);
    assert_string_equal(flows[1].calls[0]->delete_->handles[1], name_of(6));
    assert_true(flows[1].calls[0]->delete_->missing_ok);
}

static void
test_empty__is_a_tensor_where_it_is_wanted_and_null_elsewhere(void **state)
{
    Tutti__V1__TensorSpec spec = TUTTI__V1__TENSOR_SPEC__INIT;
    Tutti__V1__DriveEmpty empty = TUTTI__V1__DRIVE_EMPTY__INIT;
    uint32_t one[] = {1};
    uint32_t i;

    (void)state;
    empty.spec = &spec;
    empty.into = 4;
    empty.worker0_only = true;
    empty.in_group = true;
    give(1, COMMAND(EMPTY), &empty);
    for (i = 0; i < WORKERS; i++) {
        assert_int_equal(flows[i].count, 1);
        assert_int_equal(flows[i].calls[0]->command_case, i % 2 == 0 ? CALL(CREATE) : CALL(DELETE));
    }
    assert_string_equal(flows[2].calls[0]->create->name, name_of(4));
    empty.workers = one; /* the others keep what they have */
    empty.n_workers = 1;
    give(2, COMMAND(EMPTY), &empty);
    assert_int_equal(flows[1].calls[1]->command_case, CALL(CREATE));
    assert_int_equal(flows[0].count + flows[1].count + flows[2].count + flows[3].count, 5);
}

static void
test_functions_and_modules__are_asked_for_on_all_workers(void **state)
{
    static char name[] = "some.name";
    static char device[] = "cuda:1";
    Tutti__V1__DriveFunction function = TUTTI__V1__DRIVE_FUNCTION__INIT;
    Tutti__V1__DriveModule module = TUTTI__V1__DRIVE_MODULE__INIT;
    Tutti__V1__DriveImport import = TUTTI__V1__DRIVE_IMPORT__INIT;
    uint32_t i;

    (void)state;
    function.function = module.path = import.module = name;
    function.into = module.into = 8;
    module.device = device;
    give(1, COMMAND(GET_FUNCTION), &function);
    give(2, COMMAND(LOAD_MODULE), &module);
    give(3, COMMAND(IMPORT_MODULE), &import);
    for (i = 0; i < WORKERS; i++) {
        assert_int_equal(flows[i].count, 3);
        assert_string_equal(flows[i].calls[0]->get_function->function, name);
        assert_string_equal(flows[i].calls[0]->get_function->result, name_of(8));
        assert_string_equal(flows[i].calls[1]->load_module->path, name);
        assert_string_equal(flows[i].calls[1]->load_module->device, device);
        assert_string_equal(flows[i].calls[1]->load_module->result, name_of(8));
        assert_string_equal(flows[i].calls[2]->import_module->module, name);
    }
}

static void
test_call__tells_each_worker_its_number_and_is_null_on_the_others(void **state)
{
    Tutti__V1__DriveCall call = TUTTI__V1__DRIVE_CALL__INIT;
    uint32_t workers[] = {1, 3};
    uint32_t i;

    (void)state;
    call.callee_case = TUTTI__V1__DRIVE_CALL__CALLEE_FUNCTION;
    call.function = (char *)(uintptr_t) "f";
    call.into = 9;
    call.workers = workers;
    call.n_workers = 2;
    give(1, COMMAND(CALL), &call);
    for (i = 0; i < WORKERS; i++) {
        const Tutti__V1__RunRequest *one = flows[i].calls[0];

        assert_int_equal(flows[i].count, 1);
        assert_int_equal(one->command_case, i % 2 == 1 ? CALL(CALL) : CALL(DELETE));
        if (i % 2 == 1) {
            assert_int_equal(one->call->worker, i);
            assert_string_equal(one->call->result, name_of(9));
        }
    }
}

static void
test_transfer__is_a_send_and_a_receive_or_a_copy(void **state)
{
    Tutti__V1__DriveTransfer transfer = TUTTI__V1__DRIVE_TRANSFER__INIT;

    (void)state;
    transfer.src = 1;
    transfer.into = 2;
    transfer.from = 3;
    transfer.to = 1;
    give(1, COMMAND(TRANSFER), &transfer);
    assert_int_equal(flows[3].calls[0]->command_case, CALL(SEND));
    assert_int_equal(flows[3].calls[0]->send->destination, 1);
    assert_int_equal(flows[1].calls[0]->command_case, CALL(RECV));
    assert_int_equal(flows[1].calls[0]->recv->source, 3);
    assert_int_equal(flows[0].count + flows[2].count, 0);
    transfer.to = 3;
    give(2, COMMAND(TRANSFER), &transfer);
    assert_int_equal(flows[3].calls[1]->command_case, CALL(COPY));
}

static void
test_command__with_the_id_of_another_one_is_refused(void **state)
{
    Tutti__V1__DriveCopy copy = TUTTI__V1__DRIVE_COPY__INIT;
    agent_drive *command = NULL;
    tutti_error err;

    (void)state;
    copy.src = 1;
    copy.into = 2;
    give(1, COMMAND(COPY), &copy);
    assert_fails(agent_drive_begin(session, 1, 0, &command, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "DUPLICATE_ID");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_reduce__is_one_call_on_each_and_one_answer),
        TEST(test_broadcast__reads_the_first_of_each_group),
        TEST(test_op_in_group__goes_on_in_groups_that_are_whole),
        TEST(test_op_of_all__is_not_begun_without_a_worker),
        TEST(test_message_to_the_next_group__fails_where_a_worker_is_lost),
        TEST(test_nonsense__reaches_no_worker),
        TEST(test_sync__ends_with_what_is_before_it_on_its_workers),
        TEST(test_worker_that_is_lost__fails_what_it_has_not_answered),
        TEST(test_call__tells_each_worker_its_number_and_is_null_on_the_others),
        TEST(test_empty__is_a_tensor_where_it_is_wanted_and_null_elsewhere),
        TEST(test_functions_and_modules__are_asked_for_on_all_workers),
        TEST(test_transfer__is_a_send_and_a_receive_or_a_copy),
        TEST(test_command__with_the_id_of_another_one_is_refused),
        TEST(test_drop__spares_the_workers_that_are_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
