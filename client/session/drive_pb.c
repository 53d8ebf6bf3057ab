/* SessionService: commands. Each is a message of its own in the oneof of a request. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/options.h"
#include "client/conn/types_pb.h"
#include "client/function/value_pb.h"
#include "client/session/session.h"
#include "tutti/v1/session_service.pb-c.h"

#define COMMAND(NAME) TUTTI__V1__DRIVE_REQUEST__COMMAND_##NAME

/* ------------------------------------------------------------------------------ giving */

static tutti_code
send_request(tutti_session *session, const Tutti__V1__DriveRequest *request, size_t bytes,
             tutti_error *err)
{
    tutti_rpc_packed *packed = NULL;

    TUTTI_TRY(session_make_room(session, bytes, err));
    TUTTI_TRY(tutti_rpc_pack(&request->base, NULL, &packed, err));
    return session_write(session, packed, err);
}

/* [out] ret_id  NULL = nobody will ask how it ended */
static tutti_code
give_command(tutti_session *session, Tutti__V1__DriveRequest__CommandCase which,
             const ProtobufCMessage *part, uint64_t *ret_id, tutti_error *err)
{
    Tutti__V1__DriveRequest request = TUTTI__V1__DRIVE_REQUEST__INIT;
    session_command *command = calloc(1, sizeof(*command));
    tutti_code code;

    if (command == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a command");
    }
    tutti_list_init(&command->done);
    command->id = session->last_id + 1;
    command->quiet = ret_id == NULL;
    command->bytes = protobuf_c_message_get_packed_size(part);
    request.id = command->id;
    request.command_case = which;
    request.open = (void *)(uintptr_t)part; /* all of it share their place */
    code = send_request(session, &request, command->bytes, err);
    if (code != TUTTI_OK) {
        free(command);
        return code;
    }
    session->last_id = command->id;
    session_given(session, command);
    if (ret_id != NULL) {
        *ret_id = command->id;
    }
    return TUTTI_OK;
}

/* Workers of a message; NULL = all. */
static uint32_t *
write_workers(const tutti_workers *on, size_t *ret_count)
{
    *ret_count = on == NULL || on->workers == NULL ? 0 : on->count;
    return *ret_count == 0 ? NULL : (uint32_t *)(uintptr_t)on->workers;
}

/* The commands that have workers alone. */
#define DEFINE_WAIT(name, NAME, TYPE)                                                              \
    tutti_code session_give_##name(tutti_session *session, const tutti_workers *on,                \
                                   uint64_t *ret_id, tutti_error *err)                             \
    {                                                                                              \
        TYPE message = TUTTI__V1__DRIVE_##NAME##__INIT;                                            \
                                                                                                   \
        message.workers = write_workers(on, &message.n_workers);                                   \
        return give_command(session, COMMAND(NAME), &message.base, ret_id, err);                   \
    }
DEFINE_WAIT(sync, SYNC, Tutti__V1__DriveSync)
DEFINE_WAIT(flush, FLUSH, Tutti__V1__DriveFlush)

/* ------------------------------------------------------------------------------ registers */

void
tutti_session_empty_init(tutti_session_empty_options *options)
{
    *options = (tutti_session_empty_options){.size = sizeof(*options)};
}

tutti_code
tutti_session_empty(tutti_session *session, uint32_t into, const tutti_spec *spec,
                    const tutti_session_empty_options *options, uint64_t *ret_ticket,
                    tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(spec, err);

    Tutti__V1__DriveEmpty message = TUTTI__V1__DRIVE_EMPTY__INIT;
    tutti_session_empty_options own;
    wire_spec wire;

    tutti_session_empty_init(&own);
    if (options != NULL) {
        TUTTI_TRY(
            client_take_struct(&own, sizeof(own), options, options->size, "empty options", err));
    }
    TUTTI_TRY(tutti_spec_size(spec, NULL, NULL, err));
    client_write_spec(spec, &wire);
    message.into = into;
    message.spec = &wire.message;
    message.device =
        own.device != NULL ? client_write_text(own.device) : client_device(session->client, NULL);
    message.worker0_only = own.worker0_only;
    message.in_group = own.in_group;
    message.workers = write_workers(&own.on, &message.n_workers);
    session_registers_mark(&session->registers, into);
    return give_command(session, COMMAND(EMPTY), &message.base, ret_ticket, err);
}

tutti_code
tutti_session_drop(tutti_session *session, const uint32_t *registers, size_t count,
                   uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED_LIST(registers, count, err);

    Tutti__V1__DriveDrop message = TUTTI__V1__DRIVE_DROP__INIT;
    size_t i;

    message.registers = (uint32_t *)(uintptr_t)registers; /* protobuf-c has no const */
    message.n_registers = count;
    TUTTI_TRY(give_command(session, COMMAND(DROP), &message.base, ret_ticket, err));
    for (i = 0; i < count; i++) {
        session_registers_drop(&session->registers, registers[i]);
    }
    return TUTTI_OK;
}

static tutti_code
check_plain(const tutti_value *value, const char *what, tutti_error *err)
{
    if (value->kind == TUTTI_VALUE_TENSOR || value->kind == TUTTI_VALUE_NAME) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%s is a %s, which is each agent's own: use a register", what,
                              tutti_value_kind_name(value->kind));
    }
    return TUTTI_OK;
}

tutti_code
tutti_session_set(tutti_session *session, uint32_t into, const tutti_value *value,
                  const tutti_workers *on, uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(value, err);

    Tutti__V1__DriveSet message = TUTTI__V1__DRIVE_SET__INIT;
    wire_value wire;

    TUTTI_TRY(check_plain(value, "the value", err));
    TUTTI_TRY(client_write_plain(value, "the value", &wire, err));
    message.into = into;
    message.value = &wire.message;
    message.workers = write_workers(on, &message.n_workers);
    session_registers_mark(&session->registers, into);
    return give_command(session, COMMAND(SET), &message.base, ret_ticket, err);
}

tutti_code
tutti_session_get(tutti_session *session, uint32_t src, const tutti_workers *on,
                  uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);

    Tutti__V1__DriveGet message = TUTTI__V1__DRIVE_GET__INIT;

    message.src = src;
    message.workers = write_workers(on, &message.n_workers);
    return give_command(session, COMMAND(GET), &message.base, ret_ticket, err);
}

/* ------------------------------------------------------------------------------ moving */

void
tutti_session_move_init(tutti_session_move *move)
{
    *move = (tutti_session_move){.size = sizeof(*move)};
}

/* [out] ret  the move, of whichever version its caller is */
static tutti_code
take_move(tutti_session *session, const tutti_session_move *move, tutti_session_move *ret,
          tutti_error *err)
{
    TUTTI_NEED(move, err);

    tutti_session_move_init(ret);
    TUTTI_TRY(client_take_struct(ret, sizeof(*ret), move, move->size, "session move", err));
    session_registers_mark(&session->registers, ret->into);
    return TUTTI_OK;
}

tutti_code
tutti_session_copy(tutti_session *session, const tutti_session_move *move, const tutti_workers *on,
                   uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);

    Tutti__V1__DriveCopy message = TUTTI__V1__DRIVE_COPY__INIT;
    tutti_session_move own;

    TUTTI_TRY(take_move(session, move, &own, err));
    message.src = own.src;
    message.dst = own.dst;
    message.into = own.into;
    message.workers = write_workers(on, &message.n_workers);
    return give_command(session, COMMAND(COPY), &message.base, ret_ticket, err);
}

tutti_code
tutti_session_all_reduce(tutti_session *session, const tutti_session_move *move,
                         tutti_reduce reduce, uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);

    Tutti__V1__DriveReduce message = TUTTI__V1__DRIVE_REDUCE__INIT;
    tutti_session_move own;

    TUTTI_TRY(take_move(session, move, &own, err));
    message.src = own.src;
    message.dst = own.dst;
    message.into = own.into;
    message.in_group = own.in_group;
    message.reduce_op = (Tutti__V1__ReduceOp)reduce;
    return give_command(session, COMMAND(ALL_REDUCE), &message.base, ret_ticket, err);
}

static tutti_code
give_move(tutti_session *session, Tutti__V1__DriveRequest__CommandCase which,
          const tutti_session_move *move, uint64_t *ret_ticket, tutti_error *err)
{
    Tutti__V1__DriveMove message = TUTTI__V1__DRIVE_MOVE__INIT;
    tutti_session_move own;

    TUTTI_TRY(take_move(session, move, &own, err));
    message.src = own.src;
    message.dst = own.dst;
    message.into = own.into;
    message.in_group = own.in_group;
    return give_command(session, which, &message.base, ret_ticket, err);
}

/* The commands that have a DriveMove: their functions differ in the name alone. */
#define SESSION_MOVE_MAP(X)                                                                        \
    X(all_gather, ALL_GATHER)                                                                      \
    X(broadcast_from_worker0, BROADCAST_FROM_WORKER0)                                              \
    X(scatter_from_worker0, SCATTER_FROM_WORKER0)                                                  \
    X(gather_to_worker0, GATHER_TO_WORKER0)                                                        \
    X(send_to_next_group, SEND_TO_NEXT_GROUP)                                                      \
    X(recv_from_prev_group, RECV_FROM_PREV_GROUP)

#define DEFINE_MOVE(name, NAME)                                                                    \
    tutti_code tutti_session_##name(tutti_session *session, const tutti_session_move *move,        \
                                    uint64_t *ret_ticket, tutti_error *err)                        \
    {                                                                                              \
        TUTTI_NEED(session, err);                                                                  \
        return give_move(session, COMMAND(NAME), move, ret_ticket, err);                           \
    }
SESSION_MOVE_MAP(DEFINE_MOVE)

tutti_code
tutti_session_transfer(tutti_session *session, const tutti_session_move *move, uint32_t from,
                       uint32_t to, uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);

    Tutti__V1__DriveTransfer message = TUTTI__V1__DRIVE_TRANSFER__INIT;
    tutti_session_move own;

    TUTTI_TRY(take_move(session, move, &own, err));
    message.src = own.src;
    message.dst = own.dst;
    message.into = own.into;
    message.from = from;
    message.to = to;
    return give_command(session, COMMAND(TRANSFER), &message.base, ret_ticket, err);
}

/* ------------------------------------------------------------------------------ functions */

void
tutti_session_call_init(tutti_session_call_options *options)
{
    *options = (tutti_session_call_options){.size = sizeof(*options)};
}

/* The arguments of a call, with the memory that their messages point to. */
typedef struct drive_arguments {
    Tutti__V1__DriveArg messages[TUTTI_ARGUMENTS_MAX];
    Tutti__V1__DriveArg *pointers[TUTTI_ARGUMENTS_MAX];
    wire_value values[TUTTI_ARGUMENTS_MAX];
} drive_arguments;

static tutti_code
write_argument(const tutti_value *value, size_t index, drive_arguments *ret, tutti_error *err)
{
    Tutti__V1__DriveArg *message = &ret->messages[index];
    char what[32];

    tutti__v1__drive_arg__init(message);
    ret->pointers[index] = message;
    if (value->kind == TUTTI_VALUE_REGISTER) {
        message->kind_case = TUTTI__V1__DRIVE_ARG__KIND_REGISTER;
        message->register_ = value->u.reg;
        return TUTTI_OK;
    }
    (void)snprintf(what, sizeof(what), "argument %zu", index + 1);
    TUTTI_TRY(check_plain(value, what, err));
    TUTTI_TRY(client_write_plain(value, what, &ret->values[index], err));
    message->kind_case = TUTTI__V1__DRIVE_ARG__KIND_VALUE;
    message->value = &ret->values[index].message;
    return TUTTI_OK;
}

static tutti_code
write_callee(const tutti_value *function, Tutti__V1__DriveCall *message, tutti_error *err)
{
    if (function->kind == TUTTI_VALUE_REGISTER) {
        message->callee_case = TUTTI__V1__DRIVE_CALL__CALLEE_FUNCTION_REGISTER;
        message->function_register = function->u.reg;
        return TUTTI_OK;
    }
    if (function->kind != TUTTI_VALUE_FUNCTION || function->u.text == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "what is to be called is a %s: need a function or a register",
                              tutti_value_kind_name(function->kind));
    }
    message->callee_case = TUTTI__V1__DRIVE_CALL__CALLEE_FUNCTION;
    message->function = client_write_text(function->u.text);
    return TUTTI_OK;
}

static tutti_code
write_call(const tutti_value *function, const tutti_value *args, size_t count,
           Tutti__V1__DriveCall *message, drive_arguments *memory, tutti_error *err)
{
    size_t i;

    TUTTI_TRY(write_callee(function, message, err));
    TUTTI_TRY(client_check_arguments(count, err));
    for (i = 0; i < count; i++) {
        TUTTI_TRY(write_argument(&args[i], i, memory, err));
    }
    message->args = memory->pointers;
    message->n_args = count;
    return TUTTI_OK;
}

tutti_code
tutti_session_call(tutti_session *session, const tutti_value *function, const tutti_value *args,
                   size_t count, const tutti_session_call_options *options, uint64_t *ret_ticket,
                   tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(function, err);
    TUTTI_NEED_LIST(args, count, err);

    Tutti__V1__DriveCall message = TUTTI__V1__DRIVE_CALL__INIT;
    tutti_session_call_options own;
    drive_arguments memory;

    tutti_session_call_init(&own);
    if (options != NULL) {
        TUTTI_TRY(client_take_struct(&own, sizeof(own), options, options->size,
                                     "session call options", err));
    }
    TUTTI_TRY(write_call(function, args, count, &message, &memory, err));
    message.into = own.into;
    message.timeout_ms = own.timeout_ms;
    message.workers = write_workers(&own.on, &message.n_workers);
    session_registers_mark(&session->registers, own.into);
    return give_command(session, COMMAND(CALL), &message.base, ret_ticket, err);
}

tutti_code
tutti_session_get_function(tutti_session *session, uint32_t into, const char *function,
                           uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);

    Tutti__V1__DriveFunction message = TUTTI__V1__DRIVE_FUNCTION__INIT;

    message.function = client_write_text(function);
    message.into = into;
    session_registers_mark(&session->registers, into);
    return give_command(session, COMMAND(GET_FUNCTION), &message.base, ret_ticket, err);
}

tutti_code
tutti_session_load_module(tutti_session *session, uint32_t into, const char *path,
                          const char *device, uint64_t *ret_ticket, tutti_error *err)
{
    TUTTI_NEED(session, err);

    Tutti__V1__DriveModule message = TUTTI__V1__DRIVE_MODULE__INIT;

    message.path = client_write_text(path);
    message.device = client_write_text(device);
    message.into = into;
    session_registers_mark(&session->registers, into);
    return give_command(session, COMMAND(LOAD_MODULE), &message.base, ret_ticket, err);
}

tutti_code
tutti_session_import_module(tutti_session *session, const char *module, uint64_t *ret_ticket,
                            tutti_error *err)
{
    TUTTI_NEED(session, err);

    Tutti__V1__DriveImport message = TUTTI__V1__DRIVE_IMPORT__INIT;

    message.module = client_write_text(module);
    return give_command(session, COMMAND(IMPORT_MODULE), &message.base, ret_ticket, err);
}
