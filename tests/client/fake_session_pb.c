/*
 * The fake agent's sessions and functions. A session has `session_workers` workers, whose agents are
 * this one; it keeps no registers and does nothing: each command is noted and answered.
 */
#include "fake_pb.h"

#include "tutti/v1/functions_service.pb-c.h"
#include "tutti/v1/session_service.pb-c.h"

#define HELD_MAX 64

typedef struct fake_drive {
    fake_agent *self;
    tutti_rpc_call *call;
    tutti_rpc_packed *held[HELD_MAX]; /* answers that wait, the last one goes first */
    unsigned held_count;
    bool writing;
    bool leaving; /* all that are held leave, one after the other */
    bool closed;  /* by the client */
    bool ended;
} fake_drive;

static char *
text_of(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* ------------------------------------------------------------------------------ answers */

static void
end_drive(fake_drive *drive, const tutti_error *err)
{
    while (drive->held_count > 0) {
        tutti_rpc_packed_free(drive->held[--drive->held_count]);
    }
    if (!drive->ended) {
        drive->ended = true;
        tutti_rpc_call_finish(drive->call, err);
    }
}

/* Answers leave when as many are there as the script holds back, or nothing more will come. Also asked when an
 * answer has been written, which may be after the client has given its next commands. */
static void
write_next(fake_drive *drive)
{
    const bool enough = drive->closed || drive->held_count > drive->self->script.session_hold;

    if (drive->writing || drive->ended) {
        return;
    }
    drive->leaving = drive->held_count > 0 && (drive->leaving || enough);
    if (drive->leaving) {
        drive->writing = true;
        (void)tutti_rpc_call_write_packed(drive->call, drive->held[--drive->held_count], false);
    } else if (drive->held_count == 0 && drive->closed) {
        end_drive(drive, NULL);
    }
}

static void
answer(fake_drive *drive, const Tutti__V1__DriveResponse *response)
{
    assert_true(drive->held_count < HELD_MAX);
    assert_int_equal(tutti_rpc_pack(&response->base, NULL, &drive->held[drive->held_count], NULL),
                     TUTTI_OK);
    drive->held_count++;
    write_next(drive);
}

static void
write_error(const tutti_error *err, Tutti__V1__Error *ret)
{
    tutti__v1__error__init(ret);
    ret->code = (uint32_t)err->code;
    ret->reason = text_of(err->reason);
    ret->text = text_of(err->text);
    ret->rank = err->rank;
}

/* ------------------------------------------------------------------------------ commands */

static void
on_open_command(fake_drive *drive, const Tutti__V1__DriveRequest *request)
{
    static uint8_t secret[16] = "0123456789abcde";
    static uint32_t registers[] = {2, 4};
    Tutti__V1__DriveResponse response = TUTTI__V1__DRIVE_RESPONSE__INIT;
    Tutti__V1__DriveOpened opened = TUTTI__V1__DRIVE_OPENED__INIT;
    const fake_script *script = &drive->self->script;
    char *addresses[] = {text_of(fake_agent_address(drive->self))};
    Tutti__V1__DriveWorker workers[8];
    Tutti__V1__DriveWorker *pointers[8];
    unsigned i;

    for (i = 0; i < script->session_workers; i++) {
        tutti__v1__drive_worker__init(&workers[i]);
        workers[i].worker = script->session_disorder ? i + 1 : i;
        workers[i].rank = i;
        workers[i].addresses = addresses;
        workers[i].n_addresses = 1;
        workers[i].host = text_of("host-1");
        workers[i].device = text_of("cpu");
        pointers[i] = &workers[i];
    }
    opened.session = text_of("7f3a");
    opened.workers = pointers;
    opened.n_workers = script->session_workers;
    opened.num_groups = request->open->num_groups;
    opened.registers_max = 6;
    if (request->open->linger) {
        opened.secret = (ProtobufCBinaryData){.data = secret, .len = sizeof(secret)};
    }
    if (request->open->resume[0] != '\0') {
        opened.registers = registers;
        opened.n_registers = 2;
    }
    response.id = request->id;
    response.opened = &opened;
    answer(drive, &response);
}

/* Fails on the second worker, in its own words. */
static void
answer_failed(fake_drive *drive, uint64_t id)
{
    Tutti__V1__DriveResponse response = TUTTI__V1__DRIVE_RESPONSE__INIT;
    Tutti__V1__WorkerStatus status = TUTTI__V1__WORKER_STATUS__INIT;
    Tutti__V1__WorkerStatus *statuses[] = {&status};
    Tutti__V1__Error error;

    write_error(&drive->self->script.error, &error);
    status.worker = 1;
    status.rank = 1;
    status.error = &error;
    response.id = id;
    response.failed = statuses;
    response.n_failed = 1;
    answer(drive, &response);
}

/* A value of each worker: its number, and of worker 1 a tensor. */
static void
answer_values(fake_drive *drive, uint64_t id)
{
    Tutti__V1__DriveResponse response = TUTTI__V1__DRIVE_RESPONSE__INIT;
    Tutti__V1__WorkerValue values[2] = {TUTTI__V1__WORKER_VALUE__INIT,
                                        TUTTI__V1__WORKER_VALUE__INIT};
    Tutti__V1__WorkerValue *pointers[] = {&values[0], &values[1]};
    Tutti__V1__Value plain[2] = {TUTTI__V1__VALUE__INIT, TUTTI__V1__VALUE__INIT};
    wire_tensor tensor;

    plain[0].kind_case = TUTTI__V1__VALUE__KIND_INTEGER;
    plain[0].integer = -5;
    plain[1].kind_case = TUTTI__V1__VALUE__KIND_TENSOR;
    plain[1].tensor = fake_describe(drive->self, &tensor)->handle;
    plain[1].spec = &tensor.spec;
    values[0].value = &plain[0];
    values[1].worker = 1;
    values[1].value = &plain[1];
    response.id = id;
    response.values = pointers;
    response.n_values = 2;
    answer(drive, &response);
}

static void
answer_functions(fake_drive *drive, uint64_t id)
{
    Tutti__V1__DriveResponse response = TUTTI__V1__DRIVE_RESPONSE__INIT;
    Tutti__V1__FunctionInfo info = TUTTI__V1__FUNCTION_INFO__INIT;
    Tutti__V1__FunctionInfo *pointers[] = {&info};

    info.name = text_of("mlp.forward");
    response.id = id;
    response.functions = pointers;
    response.n_functions = 1;
    answer(drive, &response);
}

static void
note_command(fake_agent *self, const Tutti__V1__DriveRequest *request)
{
    const unsigned number = atomic_fetch_add(&self->drive_count, 1);
    fake_command *note = &self->drives[number % FAKE_NAMES_MAX];

    *note = (fake_command){.which = (int)request->command_case};
    switch (request->command_case) {
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_EMPTY:
        note->into = request->empty->into;
        note->worker_count = request->empty->n_workers;
        note->worker = note->worker_count > 0 ? request->empty->workers[0] : 0;
        break;
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_ALL_REDUCE:
        note->src = request->all_reduce->src;
        note->dst = request->all_reduce->dst;
        note->into = request->all_reduce->into;
        note->in_group = request->all_reduce->in_group;
        note->reduce = (tutti_reduce)request->all_reduce->reduce_op;
        break;
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_ALL_GATHER:
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_BROADCAST_FROM_WORKER0:
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_SCATTER_FROM_WORKER0:
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_GATHER_TO_WORKER0:
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_SEND_TO_NEXT_GROUP:
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_RECV_FROM_PREV_GROUP:
        note->src = request->all_gather->src;
        note->dst = request->all_gather->dst;
        note->into = request->all_gather->into;
        note->in_group = request->all_gather->in_group;
        break;
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_CALL:
        note->into = request->call->into;
        note->worker_count = request->call->n_args;
        (void)snprintf(note->name, sizeof(note->name), "%s",
                       request->call->callee_case == TUTTI__V1__DRIVE_CALL__CALLEE_FUNCTION
                           ? request->call->function
                           : "register");
        break;
    case TUTTI__V1__DRIVE_REQUEST__COMMAND_DROP:
        note->src = request->drop->registers[0];
        break;
    default:
        break;
    }
}

static void
answer_command(fake_drive *drive, const Tutti__V1__DriveRequest *request)
{
    Tutti__V1__DriveResponse response = TUTTI__V1__DRIVE_RESPONSE__INIT;
    const fake_script *script = &drive->self->script;

    note_command(drive->self, request);
    if (script->session_fail != 0 && (int)request->command_case == script->session_fail) {
        answer_failed(drive, request->id);
    } else if (request->command_case == TUTTI__V1__DRIVE_REQUEST__COMMAND_GET ||
               request->command_case == TUTTI__V1__DRIVE_REQUEST__COMMAND_CALL) {
        answer_values(drive, request->id);
    } else if (request->command_case == TUTTI__V1__DRIVE_REQUEST__COMMAND_LOAD_MODULE) {
        answer_functions(drive, request->id);
    } else {
        response.id = request->id + (script->session_stranger ? 1000 : 0);
        answer(drive, &response);
    }
}

/* ------------------------------------------------------------------------------ the stream */

static void
on_open(tutti_rpc_call *call, void *arg)
{
    fake_drive *drive = calloc(1, sizeof(*drive));

    assert_non_null(drive);
    drive->self = arg;
    drive->call = call;
    (void)atomic_fetch_add(&drive->self->stream_count, 1);
    tutti_rpc_call_set_user(call, drive);
    tutti_rpc_call_read(call);
}

static void
on_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    const Tutti__V1__DriveRequest *request = tutti_rpc_message_get(message);
    fake_drive *drive = tutti_rpc_call_user(call);
    fake_agent *self = arg;

    if (self->script.fail_method != NULL && strcmp(self->script.fail_method, "Drive") == 0) {
        end_drive(drive, &self->script.error);
        return;
    }
    if (self->script.park_method != NULL && strcmp(self->script.park_method, "Drive") == 0) {
        return; /* nothing is answered, until the client has enough */
    }
    if (request->command_case == TUTTI__V1__DRIVE_REQUEST__COMMAND_OPEN) {
        on_open_command(drive, request);
    } else if (self->script.session_end != 0 &&
               (int)request->command_case == self->script.session_end) {
        end_drive(drive, &self->script.error);
        return;
    } else {
        answer_command(drive, request);
    }
    tutti_rpc_call_read(call);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    fake_drive *drive = tutti_rpc_call_user(call);

    (void)arg;
    drive->writing = false;
    write_next(drive);
}

static void
on_half_close(tutti_rpc_call *call, void *arg)
{
    fake_drive *drive = tutti_rpc_call_user(call);

    (void)arg;
    drive->closed = true;
    write_next(drive);
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    tutti_error err;

    (void)arg;
    (void)TUTTI_FAIL(&err, TUTTI_CANCELLED, "given up");
    end_drive(tutti_rpc_call_user(call), &err);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    fake_agent *self = arg;

    free(tutti_rpc_call_user(call));
    (void)atomic_fetch_sub(&self->stream_count, 1);
}

static const tutti_rpc_stream_ops drive_ops = {.on_open = on_open,
                                               .on_message = on_message,
                                               .on_half_close = on_half_close,
                                               .on_written = on_written,
                                               .on_cancel = on_cancel,
                                               .on_end = on_end};

const tutti_rpc_method fake_sessions[FAKE_SESSIONS_COUNT] = {TUTTI_RPC_STREAM("Drive", &drive_ops)};

/* ------------------------------------------------------------------------------ functions */

/* What a function returns is its first argument, and without any nothing. */
static void
on_call(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__CallResponse response = TUTTI__V1__CALL_RESPONSE__INIT;
    const Tutti__V1__CallRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;

    (void)snprintf(self->called, sizeof(self->called), "%s>%s", request->function, request->result);
    if (fake_scripted(self, call, "Call")) {
        return;
    }
    response.result = request->n_args > 0 ? request->args[0] : NULL;
    response.elapsed_us = 12;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_get_value(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__GetValueResponse response = TUTTI__V1__GET_VALUE_RESPONSE__INIT;
    const Tutti__V1__GetValueRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__Value value = TUTTI__V1__VALUE__INIT;
    wire_tensor tensor;

    value.kind_case = TUTTI__V1__VALUE__KIND_TEXT;
    value.text = request->name;
    if (strcmp(request->name, "tensor") == 0) {
        value.kind_case = TUTTI__V1__VALUE__KIND_TENSOR;
        value.tensor = fake_describe(arg, &tensor)->handle;
        value.spec = &tensor.spec;
    }
    response.value = &value;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_set_value(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__SetValueResponse response = TUTTI__V1__SET_VALUE_RESPONSE__INIT;
    const Tutti__V1__SetValueRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;

    (void)snprintf(self->called, sizeof(self->called), "%s=%d", request->name,
                   (int)request->value->kind_case);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
write_functions(Tutti__V1__FunctionInfo infos[2], Tutti__V1__FunctionInfo *pointers[2])
{
    static const char *const names[2] = {"demo.scale", "runtime.disco.worker_id"};
    int i;

    for (i = 0; i < 2; i++) {
        tutti__v1__function_info__init(&infos[i]);
        infos[i].name = text_of(names[i]);
        infos[i].source = text_of(i == 0 ? "plugin demo.so" : "builtin");
        infos[i].signature = text_of("tensor, float -> tensor");
        infos[i].calls = (uint32_t)i;
        pointers[i] = &infos[i];
    }
}

static void
on_list_functions(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__ListFunctionsResponse response = TUTTI__V1__LIST_FUNCTIONS_RESPONSE__INIT;
    Tutti__V1__FunctionInfo infos[2];
    Tutti__V1__FunctionInfo *pointers[2];

    if (fake_scripted(arg, call, "ListFunctions")) {
        return;
    }
    write_functions(infos, pointers);
    response.functions = pointers;
    response.n_functions = 2;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_get_function(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__GetFunctionResponse response = TUTTI__V1__GET_FUNCTION_RESPONSE__INIT;
    Tutti__V1__FunctionInfo infos[2];
    Tutti__V1__FunctionInfo *pointers[2];

    if (fake_scripted(arg, call, "GetFunction")) {
        return;
    }
    write_functions(infos, pointers);
    response.function = pointers[0];
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_load_module(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__LoadModuleResponse response = TUTTI__V1__LOAD_MODULE_RESPONSE__INIT;
    Tutti__V1__FunctionInfo infos[2];
    Tutti__V1__FunctionInfo *pointers[2];

    (void)arg;
    write_functions(infos, pointers);
    response.module = text_of("mlp");
    response.functions = pointers;
    response.n_functions = 2;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_import_module(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__ImportModuleResponse response = TUTTI__V1__IMPORT_MODULE_RESPONSE__INIT;

    (void)arg;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

const tutti_rpc_method fake_functions[FAKE_FUNCTIONS_COUNT] = {
    TUTTI_RPC_UNARY("Call", on_call),
    TUTTI_RPC_UNARY("GetValue", on_get_value),
    TUTTI_RPC_UNARY("SetValue", on_set_value),
    TUTTI_RPC_UNARY("ListFunctions", on_list_functions),
    TUTTI_RPC_UNARY("GetFunction", on_get_function),
    TUTTI_RPC_UNARY("LoadModule", on_load_module),
    TUTTI_RPC_UNARY("ImportModule", on_import_module)};
