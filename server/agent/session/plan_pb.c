/*
 * What a command of a controller comes to on each worker: one call. A call that is the same for
 * several workers is packed once.
 *
 * A result gets its register's name when its call begins, and takes it over from what had it; if
 * the call fails the register holds the error (server/agent/tensor). Order is kept by the workers:
 * each begins the calls of its stream one by one, and the locks of a call are taken when it begins.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/session/plan_pb.h"
#include "server/agent/state/state.h"

#define DROP_MAX 1024 /* names of one Delete */
#define ARGS_MAX 64   /* of one call */
#define TAG_NEIGHBOUR 0
#define TAG_TRANSFER 1 /* a transfer never meets what goes to the next group */

static char *
text_of(const char *text)
{
    return (char *)(uintptr_t)text; /* packed at once, never written */
}

/* ------------------------------------------------------------------------------ sending */

/* The command tells what the workers answer. */
static void
keep_answers(plan *self)
{
    if (agent_plan_is_going_on(self)) {
        (void)agent_drive_keep(self->command, &self->err);
    }
}

/* [in, moved] packed */
static void
give_call(plan *self, agent_worker *worker, tutti_rpc_packed *packed)
{
    if (worker->lost) {
        tutti_rpc_packed_free(packed);
        agent_drive_fail(self->command, worker, &worker->gone);
    } else {
        agent_drive_add(self->command, worker, packed);
    }
}

/* The call for the workers that are chosen. [in] request  `id` is written here */
static void
send_call(plan *self, Tutti__V1__RunRequest *request)
{
    agent_session *session = self->session;
    agent_worker *last = NULL;
    tutti_rpc_packed *packed = NULL;
    uint32_t i;

    if (!agent_plan_is_going_on(self) ||
        memchr(session->chosen, 1, session->worker_count) == NULL) {
        return;
    }
    request->id = self->command->slot;
    if (tutti_rpc_pack(&request->base, NULL, &packed, &self->err) != TUTTI_OK) {
        return;
    }
    for (i = 0; i < session->worker_count; i++) {
        if (session->chosen[i] != 0 && last != NULL) {
            give_call(self, last, tutti_rpc_packed_copy(packed));
        }
        last = session->chosen[i] != 0 ? &session->workers[i] : last;
    }
    give_call(self, last, packed);
}

static void
send_delete_all(plan *self, char **names, size_t count)
{
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__DeleteRequest message = TUTTI__V1__DELETE_REQUEST__INIT;

    message.handles = names;
    message.n_handles = count;
    message.missing_ok = true;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_DELETE;
    request.delete_ = &message;
    send_call(self, &request);
}

/* A register becomes null, on the workers that are chosen. */
static void
send_delete(plan *self, uint32_t number)
{
    char name[AGENT_SESSION_NAME_SIZE];
    char *names[1] = {name};

    agent_session_register(self->session, number, name);
    send_delete_all(self, names, 1);
}

static void
send_copy(plan *self, uint32_t src, uint32_t dst, uint32_t into)
{
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__CopyRequest message = TUTTI__V1__COPY_REQUEST__INIT;
    char from[AGENT_SESSION_NAME_SIZE];
    char to[AGENT_SESSION_NAME_SIZE];

    agent_session_register(self->session, src, from);
    agent_session_register(self->session, dst != 0 ? dst : into, to);
    message.handle = from;
    message.into = dst != 0 ? to : message.into;
    message.name = dst != 0 ? message.name : to;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_COPY;
    request.copy = &message;
    send_call(self, &request);
}

/* ------------------------------------------------------------------------------ values */

static void
plan_empty(plan *self, const void *arg)
{
    const Tutti__V1__DriveEmpty *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__CreateRequest create = TUTTI__V1__CREATE_REQUEST__INIT;
    char name[AGENT_SESSION_NAME_SIZE];

    agent_plan_check_register(self, message->into);
    agent_plan_choose_workers(self, message->workers, message->n_workers);
    if (message->n_workers == 0 && message->worker0_only) {
        agent_plan_choose_firsts(self, message->in_group, false);
        send_delete(self, message->into);
        agent_plan_choose_others(self);
    }
    agent_session_register(self->session, message->into, name);
    create.spec = message->spec;
    create.device = message->device;
    create.name = name;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_CREATE;
    request.create = &create;
    send_call(self, &request);
}

static void
plan_drop(plan *self, const void *arg)
{
    const Tutti__V1__DriveDrop *message = arg;
    char names[DROP_MAX][AGENT_SESSION_NAME_SIZE];
    char *handles[DROP_MAX];
    size_t i;

    if (message->n_registers == 0 || message->n_registers > DROP_MAX) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "BAD_REGISTER",
                             "%zu registers to drop, need 1 to %d", message->n_registers, DROP_MAX);
    }
    for (i = 0; i < message->n_registers && agent_plan_is_going_on(self); i++) {
        agent_plan_check_register(self, message->registers[i]);
        agent_session_register(self->session, message->registers[i], names[i]);
        handles[i] = names[i];
    }
    agent_plan_choose_living(self);
    send_delete_all(self, handles, message->n_registers);
}

static void
plan_set(plan *self, const void *arg)
{
    const Tutti__V1__DriveSet *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__SetValueRequest set = TUTTI__V1__SET_VALUE_REQUEST__INIT;
    char name[AGENT_SESSION_NAME_SIZE];

    agent_plan_check_register(self, message->into);
    agent_plan_check_plain_value(self, message->value);
    agent_plan_choose_workers(self, message->workers, message->n_workers);
    agent_session_register(self->session, message->into, name);
    set.name = name;
    set.value = message->value;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_SET_VALUE;
    request.set_value = &set;
    send_call(self, &request);
}

static void
plan_get(plan *self, const void *arg)
{
    const Tutti__V1__DriveGet *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__GetValueRequest get = TUTTI__V1__GET_VALUE_REQUEST__INIT;
    char name[AGENT_SESSION_NAME_SIZE];

    agent_plan_check_register(self, message->src);
    agent_plan_choose_workers(self, message->workers, message->n_workers);
    keep_answers(self);
    agent_session_register(self->session, message->src, name);
    get.name = name;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_GET_VALUE;
    request.get_value = &get;
    send_call(self, &request);
}

static void
plan_copy(plan *self, const void *arg)
{
    const Tutti__V1__DriveCopy *message = arg;

    agent_plan_check_register(self, message->src);
    agent_plan_check_target(self, message->dst, message->into);
    agent_plan_choose_workers(self, message->workers, message->n_workers);
    send_copy(self, message->src, message->dst, message->into);
}

/* ------------------------------------------------------------------------------ ops */

/* What the messages of all ops have, with the memory that they point to. */
typedef struct op_parts {
    char src[AGENT_SESSION_NAME_SIZE];
    char to[AGENT_SESSION_NAME_SIZE];
    Tutti__V1__TensorArg input;
    Tutti__V1__OpOptions options;
    char *output;
} op_parts;

static void
fill_parts(const plan *self, uint32_t src, uint32_t dst, uint32_t into, op_parts *ret_parts)
{
    tutti__v1__tensor_arg__init(&ret_parts->input);
    tutti__v1__op_options__init(&ret_parts->options);
    agent_session_register(self->session, src, ret_parts->src);
    agent_session_register(self->session, dst != 0 ? dst : into, ret_parts->to);
    ret_parts->input.kind_case = TUTTI__V1__TENSOR_ARG__KIND_HANDLE;
    ret_parts->input.handle = ret_parts->src;
    ret_parts->output = dst != 0 ? ret_parts->to : text_of("");
    if (into != 0) {
        ret_parts->options.result = ret_parts->to;
    }
}

static char *
group_of(const plan *self, bool in_group)
{
    return text_of(in_group ? self->session->each : self->session->all);
}

/* What the messages of all collectives have, which have no type in common. */
#define FILL_OP(op, parts, within)                                                                 \
    do {                                                                                           \
        (op).group = group_of(self, within);                                                       \
        (op).input = &(parts).input;                                                               \
        (op).output = (parts).output;                                                              \
        (op).options = &(parts).options;                                                           \
    } while (0)

static void
check_reduce_op(plan *self, Tutti__V1__ReduceOp op)
{
    if (op < TUTTI__V1__REDUCE_OP__REDUCE_OP_SUM || op > TUTTI__V1__REDUCE_OP__REDUCE_OP_AVG) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "BAD_REDUCE_OP",
                             "reduce op %d: a session has sum, prod, min, max and avg", (int)op);
    }
}

static void
plan_all_reduce(plan *self, const void *arg)
{
    const Tutti__V1__DriveReduce *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__AllReduceRequest op = TUTTI__V1__ALL_REDUCE_REQUEST__INIT;
    op_parts parts;

    check_reduce_op(self, message->reduce_op);
    agent_plan_check_register(self, message->src);
    agent_plan_check_target(self, message->dst, message->into);
    agent_plan_choose_for_op(self, message->in_group);
    fill_parts(self, message->src, message->dst, message->into, &parts);
    FILL_OP(op, parts, message->in_group);
    op.reduce_op = message->reduce_op;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_ALL_REDUCE;
    request.all_reduce = &op;
    send_call(self, &request);
}

static void
begin_move(plan *self, const Tutti__V1__DriveMove *message, op_parts *ret_parts)
{
    agent_plan_check_register(self, message->src);
    agent_plan_check_target(self, message->dst, message->into);
    agent_plan_choose_for_op(self, message->in_group);
    fill_parts(self, message->src, message->dst, message->into, ret_parts);
}

static void
plan_all_gather(plan *self, const void *arg)
{
    const Tutti__V1__DriveMove *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__AllGatherRequest op = TUTTI__V1__ALL_GATHER_REQUEST__INIT;
    op_parts parts;

    begin_move(self, message, &parts);
    FILL_OP(op, parts, message->in_group);
    op.form = message->dst != 0 ? TUTTI__V1__FORM__FORM_FLAT : TUTTI__V1__FORM__FORM_CONCAT;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_ALL_GATHER;
    request.all_gather = &op;
    send_call(self, &request);
}

/* The first worker's register is a copy: two registers are never one tensor. */
static void
plan_broadcast(plan *self, const void *arg)
{
    const Tutti__V1__DriveMove *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__BroadcastRequest op = TUTTI__V1__BROADCAST_REQUEST__INIT;
    op_parts parts;

    begin_move(self, message, &parts);
    FILL_OP(op, parts, message->in_group);
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_BROADCAST;
    request.broadcast = &op;
    agent_plan_choose_firsts_for_op(self, message->in_group, true);
    send_call(self, &request);
    agent_plan_choose_firsts_for_op(self, message->in_group, false);
    op.input = NULL;
    send_call(self, &request);
}

static void
plan_scatter(plan *self, const void *arg)
{
    const Tutti__V1__DriveMove *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__ScatterRequest op = TUTTI__V1__SCATTER_REQUEST__INIT;
    op_parts parts;

    begin_move(self, message, &parts);
    FILL_OP(op, parts, message->in_group);
    op.form = TUTTI__V1__FORM__FORM_FLAT;
    op.keep_shape = message->into != 0;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_SCATTER;
    request.scatter = &op;
    agent_plan_choose_firsts_for_op(self, message->in_group, true);
    send_call(self, &request);
    agent_plan_choose_firsts_for_op(self, message->in_group, false);
    op.input = NULL;
    send_call(self, &request);
}

static void
plan_gather(plan *self, const void *arg)
{
    const Tutti__V1__DriveMove *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__GatherRequest op = TUTTI__V1__GATHER_REQUEST__INIT;
    op_parts parts;

    begin_move(self, message, &parts);
    FILL_OP(op, parts, message->in_group);
    op.form = message->dst != 0 ? TUTTI__V1__FORM__FORM_FLAT : TUTTI__V1__FORM__FORM_CONCAT;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_GATHER;
    request.gather = &op;
    agent_plan_choose_firsts_for_op(self, message->in_group, true);
    send_call(self, &request);
    agent_plan_choose_firsts_for_op(self, message->in_group, false);
    op.output = text_of("");
    op.options = NULL;
    send_call(self, &request);
}

/* ------------------------------------------------------------------------------ messages */

static void
check_next_group(plan *self)
{
    if (agent_plan_is_going_on(self) && self->session->group_count == 1) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "LAST_GROUP",
                             "the session has one group, so there is no next one");
    }
}

static void
plan_send_next(plan *self, const void *arg)
{
    const Tutti__V1__DriveMove *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__SendRequest op = TUTTI__V1__SEND_REQUEST__INIT;
    op_parts parts;

    check_next_group(self);
    agent_plan_check_register(self, message->src);
    agent_plan_choose_pairs(self, true);
    fill_parts(self, message->src, 0, 0, &parts);
    op.group = group_of(self, false);
    op.input = &parts.input;
    op.opt_destination_case = TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_GROUP_OFFSET;
    op.group_offset = 1;
    op.group_count = self->session->group_count;
    op.tag = TAG_NEIGHBOUR;
    op.tell_refusal = true;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_SEND;
    request.send = &op;
    send_call(self, &request);
}

static void
plan_recv_prev(plan *self, const void *arg)
{
    const Tutti__V1__DriveMove *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__RecvRequest op = TUTTI__V1__RECV_REQUEST__INIT;
    op_parts parts;

    check_next_group(self);
    agent_plan_check_target(self, message->dst, message->into);
    agent_plan_choose_pairs(self, false);
    fill_parts(self, 0, message->dst, message->into, &parts);
    op.group = group_of(self, false);
    op.output = parts.output;
    op.options = &parts.options;
    op.opt_source_case = TUTTI__V1__RECV_REQUEST__OPT_SOURCE_GROUP_OFFSET;
    op.group_offset = -1;
    op.group_count = self->session->group_count;
    op.tag = TAG_NEIGHBOUR;
    op.tell_refusal = true;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_RECV;
    request.recv = &op;
    send_call(self, &request);
}

static void
send_transfer(plan *self, const Tutti__V1__DriveTransfer *message)
{
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__SendRequest give = TUTTI__V1__SEND_REQUEST__INIT;
    Tutti__V1__RecvRequest take = TUTTI__V1__RECV_REQUEST__INIT;
    op_parts parts;

    fill_parts(self, message->src, message->dst, message->into, &parts);
    give.group = take.group = group_of(self, false);
    give.input = &parts.input;
    give.opt_destination_case = TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_DESTINATION;
    give.destination = (int32_t)message->to;
    take.opt_source_case = TUTTI__V1__RECV_REQUEST__OPT_SOURCE_SOURCE;
    take.source = (int32_t)message->from;
    take.output = parts.output;
    take.options = &parts.options;
    give.tag = take.tag = TAG_TRANSFER;
    give.tell_refusal = take.tell_refusal = true;
    agent_plan_choose_one(self, message->from);
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_SEND;
    request.send = &give;
    send_call(self, &request);
    agent_plan_choose_one(self, message->to);
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_RECV;
    request.recv = &take;
    send_call(self, &request);
}

static void
plan_transfer(plan *self, const void *arg)
{
    const Tutti__V1__DriveTransfer *message = arg;
    const uint32_t ends[] = {message->from, message->to};

    agent_plan_check_register(self, message->src);
    agent_plan_check_target(self, message->dst, message->into);
    agent_plan_choose_workers(self, ends, 2);
    agent_plan_need_chosen(self);
    if (!agent_plan_is_going_on(self)) {
        return; /* no such worker */
    }
    if (message->from == message->to) {
        send_copy(self, message->src, message->dst, message->into);
    } else {
        send_transfer(self, message);
    }
}

/* ------------------------------------------------------------------------------ functions */

/* The arguments of a call, with the memory that they point to. */
typedef struct call_args {
    char function[AGENT_SESSION_NAME_SIZE];
    char names[ARGS_MAX][AGENT_SESSION_NAME_SIZE];
    Tutti__V1__Value values[ARGS_MAX];
    Tutti__V1__Value *list[ARGS_MAX];
} call_args;

static void
fill_arg(plan *self, const Tutti__V1__DriveArg *arg, size_t i, call_args *args)
{
    if (arg->kind_case != TUTTI__V1__DRIVE_ARG__KIND_REGISTER) {
        agent_plan_check_plain_value(
            self, arg->kind_case == TUTTI__V1__DRIVE_ARG__KIND_VALUE ? arg->value : NULL);
        args->list[i] = arg->value;
        return;
    }
    agent_plan_check_register(self, arg->register_);
    agent_session_register(self->session, arg->register_, args->names[i]);
    tutti__v1__value__init(&args->values[i]);
    args->values[i].kind_case = TUTTI__V1__VALUE__KIND_NAME;
    args->values[i].name = args->names[i];
    args->list[i] = &args->values[i];
}

static void
fill_call_args(plan *self, const Tutti__V1__DriveCall *message, call_args *args)
{
    size_t i;

    if (message->n_args > ARGS_MAX) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "ARGUMENT_LIMIT",
                             "%zu arguments, at most %d", message->n_args, ARGS_MAX);
    }
    for (i = 0; i < message->n_args && agent_plan_is_going_on(self); i++) {
        fill_arg(self, message->args[i], i, args);
    }
}

static char *
function_of(plan *self, const Tutti__V1__DriveCall *message, call_args *args)
{
    if (message->callee_case == TUTTI__V1__DRIVE_CALL__CALLEE_FUNCTION) {
        return message->function;
    }
    agent_plan_check_register(self, message->callee_case ==
                                            TUTTI__V1__DRIVE_CALL__CALLEE_FUNCTION_REGISTER
                                        ? message->function_register
                                        : 0);
    agent_session_register(self->session, message->function_register, args->function);
    return args->function;
}

/* Each worker is told its number, so the call is packed for each. */
static void
send_to_each(plan *self, Tutti__V1__RunRequest *request)
{
    agent_session *session = self->session;
    tutti_rpc_packed *packed = NULL;
    uint32_t i;

    request->id = self->command->slot;
    for (i = 0; i < session->worker_count && agent_plan_is_going_on(self); i++) {
        request->call->worker = i;
        if (session->chosen[i] != 0 &&
            tutti_rpc_pack(&request->base, NULL, &packed, &self->err) == TUTTI_OK) {
            give_call(self, &session->workers[i], packed);
        }
    }
}

static void
plan_call(plan *self, const void *arg)
{
    const Tutti__V1__DriveCall *message = arg;
    agent_session *session = self->session;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__CallRequest call = TUTTI__V1__CALL_REQUEST__INIT;
    char result[AGENT_SESSION_NAME_SIZE];
    call_args args;

    call.function = function_of(self, message, &args);
    fill_call_args(self, message, &args);
    agent_plan_choose_workers(self, message->workers, message->n_workers);
    agent_plan_name_result(self, message->into, result);
    if (message->into != 0) {
        agent_plan_choose_others(self);
        send_delete(self, message->into);
        agent_plan_choose_others(self);
    }
    keep_answers(self);
    call.args = args.list;
    call.n_args = message->n_args;
    call.result = result;
    call.timeout_ms = message->timeout_ms;
    call.scope = session->id;
    call.group = session->own;
    call.worker_count = session->worker_count;
    call.group_size = session->group_size;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_CALL;
    request.call = &call;
    send_to_each(self, &request);
}

static void
plan_function(plan *self, const void *arg)
{
    const Tutti__V1__DriveFunction *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__GetFunctionRequest get = TUTTI__V1__GET_FUNCTION_REQUEST__INIT;
    char result[AGENT_SESSION_NAME_SIZE];

    agent_plan_name_result(self, message->into, result);
    agent_plan_choose_all(self);
    get.function = message->function;
    get.result = result;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_GET_FUNCTION;
    request.get_function = &get;
    send_call(self, &request);
}

static void
plan_module(plan *self, const void *arg)
{
    const Tutti__V1__DriveModule *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__LoadModuleRequest load = TUTTI__V1__LOAD_MODULE_REQUEST__INIT;
    char result[AGENT_SESSION_NAME_SIZE];

    agent_plan_name_result(self, message->into, result);
    agent_plan_choose_all(self);
    keep_answers(self);
    load.path = message->path;
    load.device = message->device;
    load.result = result;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_LOAD_MODULE;
    request.load_module = &load;
    send_call(self, &request);
}

static void
plan_import(plan *self, const void *arg)
{
    const Tutti__V1__DriveImport *message = arg;
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__ImportModuleRequest import = TUTTI__V1__IMPORT_MODULE_REQUEST__INIT;

    agent_plan_choose_all(self);
    keep_answers(self);
    import.module = message->module;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_IMPORT_MODULE;
    request.import_module = &import;
    send_call(self, &request);
}

/* ------------------------------------------------------------------------------ waiting */

/* The leader knows what is answered, so nothing goes to the workers. */
static void
plan_sync(plan *self, const void *arg)
{
    const Tutti__V1__DriveSync *message = arg;
    agent_session *session = self->session;
    uint32_t i;

    agent_plan_choose_workers(self, message->workers, message->n_workers);
    for (i = 0; i < session->worker_count && agent_plan_is_going_on(self); i++) {
        if (session->chosen[i] != 0) {
            give_call(self, &session->workers[i], NULL);
        }
    }
}

/* A name that nothing has is deleted: calls begin in their order, so all before it have begun. */
static void
plan_flush(plan *self, const void *arg)
{
    const Tutti__V1__DriveFlush *message = arg;

    agent_plan_choose_workers(self, message->workers, message->n_workers);
    send_delete(self, UINT32_MAX); /* 0 is the session's own */
}

/* ------------------------------------------------------------------------------ all of them */

/* By the number of the command; all of the oneof have one place in the request. */
typedef void (*plan_fn)(plan *self, const void *message);

#define COMMAND(NAME) [TUTTI__V1__DRIVE_REQUEST__COMMAND_##NAME]

static const plan_fn plans[] = {
    COMMAND(EMPTY) = plan_empty,
    COMMAND(DROP) = plan_drop,
    COMMAND(SET) = plan_set,
    COMMAND(GET) = plan_get,
    COMMAND(COPY) = plan_copy,
    COMMAND(ALL_REDUCE) = plan_all_reduce,
    COMMAND(ALL_GATHER) = plan_all_gather,
    COMMAND(BROADCAST_FROM_WORKER0) = plan_broadcast,
    COMMAND(SCATTER_FROM_WORKER0) = plan_scatter,
    COMMAND(GATHER_TO_WORKER0) = plan_gather,
    COMMAND(SEND_TO_NEXT_GROUP) = plan_send_next,
    COMMAND(RECV_FROM_PREV_GROUP) = plan_recv_prev,
    COMMAND(TRANSFER) = plan_transfer,
    COMMAND(CALL) = plan_call,
    COMMAND(GET_FUNCTION) = plan_function,
    COMMAND(LOAD_MODULE) = plan_module,
    COMMAND(IMPORT_MODULE) = plan_import,
    COMMAND(SYNC) = plan_sync,
    COMMAND(FLUSH) = plan_flush,
};

static void
plan_any(plan *self, const Tutti__V1__DriveRequest *message)
{
    const size_t number = (size_t)message->command_case;
    const plan_fn one = number < sizeof(plans) / sizeof(plans[0]) ? plans[number] : NULL;

    if (one != NULL) {
        one(self, message->open);
    } else {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "NO_COMMAND",
                             "no command, or one that this agent does not know");
    }
}

void
agent_session_plan(agent_session *session, agent_drive *command, const void *message)
{
    plan self = {.session = session, .command = command, .err.code = TUTTI_OK};
    uint32_t i;

    plan_any(&self, message);
    if (!agent_plan_is_going_on(&self)) {
        agent_drive_refuse(command, &self.err);
    }
    for (i = 0; i < session->worker_count && session->state == AGENT_SESSION_OPEN; i++) {
        if (i != session->leader) {
            agent_worker_pump(&session->workers[i]);
        }
    }
    if (session->state == AGENT_SESSION_OPEN) { /* last: it begins here and now */
        agent_worker_pump(&session->workers[session->leader]);
    }
    if (session->state == AGENT_SESSION_OPEN) {
        agent_drive_sent(command);
    }
}
