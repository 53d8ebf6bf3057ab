/* SessionService: what a controller is answered. Nothing is copied: messages point to what is kept. */
#include <stdlib.h>

#include "base/error/text.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/session/session.h"
#include "server/agent/state/state.h"
#include "tutti/v1/commands_service.pb-c.h"
#include "tutti/v1/session_service.pb-c.h"

/* ------------------------------------------------------------------------------ failures */

/* The failures of a command as messages, with the memory that they point to. */
typedef struct failed_list {
    Tutti__V1__WorkerStatus **list; /* [owned] */
    Tutti__V1__WorkerStatus *statuses;
    Tutti__V1__Error *errors;
    size_t count;
} failed_list;

static size_t
count_failures(const agent_drive *command)
{
    const agent_failure *failure;
    size_t count = 0;

    for (failure = command->failures; failure != NULL; failure = failure->next) {
        count++;
    }
    return count;
}

static bool
write_failures(const agent_drive *command, failed_list *ret)
{
    const agent_failure *failure;
    size_t i = 0;

    ret->count = count_failures(command);
    ret->list = calloc(ret->count + 1, sizeof(Tutti__V1__WorkerStatus *) + sizeof(*ret->statuses) +
                                           sizeof(*ret->errors));
    if (ret->list == NULL) {
        return false;
    }
    ret->statuses = (Tutti__V1__WorkerStatus *)(void *)(ret->list + ret->count + 1);
    ret->errors = (Tutti__V1__Error *)(void *)(ret->statuses + ret->count);
    for (failure = command->failures; failure != NULL; failure = failure->next, i++) {
        tutti__v1__worker_status__init(&ret->statuses[i]);
        agent_write_error(&failure->err, &ret->errors[i]);
        ret->statuses[i].worker = failure->worker;
        ret->statuses[i].rank = command->session->workers[failure->worker].rank;
        ret->statuses[i].error = &ret->errors[i];
        ret->list[i] = &ret->statuses[i];
    }
    return true;
}

static int
compare_ranks(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left;
    const uint32_t b = *(const uint32_t *)right;

    return a < b ? -1 : a > b;
}

/* "ranks 0-2, 5: " in front of the first failure; a lost rank is named by its own words. */
static void
sum_up(const agent_drive *command, const failed_list *failed, tutti_error *ret_err)
{
    uint32_t ranks[AGENT_SESSION_WORKERS_MAX];
    tutti_text text;
    size_t i;

    *ret_err = command->failures->err;
    for (i = 0; i < failed->count; i++) {
        ranks[i] = failed->statuses[i].rank;
    }
    qsort(ranks, failed->count, sizeof(ranks[0]), compare_ranks);
    text = tutti_text_in(ret_err->text, sizeof(ret_err->text));
    tutti_text_add(&text, failed->count == 1 ? "rank " : "ranks ");
    tutti_text_add_ranks(&text, ranks, failed->count, 8);
    tutti_text_add(&text, ": %s", command->failures->err.text);
}

/* ------------------------------------------------------------------------------ values */

static const Tutti__V1__Value null_value = {PROTOBUF_C_MESSAGE_INIT(&tutti__v1__value__descriptor),
                                            .kind_case = TUTTI__V1__VALUE__KIND_NULL, .null = true};

/* NULL: the answer has none. */
static const Tutti__V1__Value *
value_in(const Tutti__V1__RunResponse *response)
{
    const Tutti__V1__Value *value = NULL;

    switch (response->result_case) {
    case TUTTI__V1__RUN_RESPONSE__RESULT_GET_VALUE:
        value = response->get_value->value;
        return value == NULL ? &null_value : value;
    case TUTTI__V1__RUN_RESPONSE__RESULT_CALL:
        value = response->call->result;
        return value == NULL ? &null_value : value;
    case TUTTI__V1__RUN_RESPONSE__RESULT_ERROR: /* NO_VALUE: the register is null there */
        return &null_value;
    default:
        return NULL;
    }
}

typedef struct value_list {
    Tutti__V1__WorkerValue **list; /* [owned] */
    size_t count;
} value_list;

static bool
write_values(const agent_drive *command, value_list *ret)
{
    const uint32_t most = command->kept == NULL ? 0 : command->session->worker_count;
    Tutti__V1__WorkerValue *values;
    uint32_t i;

    ret->count = 0;
    ret->list = calloc(most + 1u, sizeof(Tutti__V1__WorkerValue *) + sizeof(*values));
    values = (Tutti__V1__WorkerValue *)(void *)(ret->list + most + 1);
    for (i = 0; i < most && ret->list != NULL; i++) {
        const Tutti__V1__Value *value =
            command->kept[i] == NULL ? NULL : value_in(tutti_rpc_message_get(command->kept[i]));

        if (value != NULL) {
            tutti__v1__worker_value__init(&values[i]);
            values[i].worker = i;
            values[i].value = (Tutti__V1__Value *)(uintptr_t)value;
            ret->list[ret->count++] = &values[i];
        }
    }
    return ret->list != NULL;
}

/* As the first worker that answered well told them. */
static void
write_functions(const agent_drive *command, Tutti__V1__DriveResponse *message)
{
    const Tutti__V1__RunResponse *response = NULL;
    uint32_t i;

    for (i = 0; i < command->session->worker_count && response == NULL; i++) {
        response = command->kept[i] == NULL ? NULL : tutti_rpc_message_get(command->kept[i]);
    }
    if (response == NULL) {
        return;
    }
    if (response->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_LOAD_MODULE) {
        message->functions = response->load_module->functions;
        message->n_functions = response->load_module->n_functions;
    } else if (response->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_IMPORT_MODULE) {
        message->functions = response->import_module->functions;
        message->n_functions = response->import_module->n_functions;
    }
}

/* ------------------------------------------------------------------------------ opened */

typedef struct opened_parts {
    Tutti__V1__DriveOpened message;
    Tutti__V1__DriveWorker **list; /* [owned] */
    uint32_t *registers;           /* [owned] */
} opened_parts;

/* Of a resume. */
static bool
write_registers(const agent_session *session, opened_parts *ret)
{
    uint32_t number;

    ret->registers = session->found == NULL ? NULL : calloc(session->registers_max, sizeof(number));
    if (ret->registers == NULL) {
        return session->found == NULL;
    }
    for (number = 1; number <= session->registers_max; number++) {
        if ((session->found[number / 8] >> number % 8 & 1) != 0) {
            ret->registers[ret->message.n_registers++] = number;
        }
    }
    ret->message.registers = ret->registers;
    return true;
}

static void
write_worker(agent_worker *worker, Tutti__V1__DriveWorker *ret_message, char **ret_addresses)
{
    uint32_t i;

    tutti__v1__drive_worker__init(ret_message);
    ret_message->worker = worker->number;
    ret_message->rank = worker->rank;
    ret_message->host = worker->host;
    ret_message->device = worker->device;
    ret_message->addresses = ret_addresses;
    ret_message->n_addresses = worker->address_count;
    for (i = 0; i < worker->address_count; i++) {
        ret_addresses[i] = worker->addresses[i];
    }
}

static bool
write_opened(agent_session *session, opened_parts *ret)
{
    const size_t count = session->worker_count;
    Tutti__V1__DriveWorker *workers;
    char **addresses;
    uint32_t i;

    ret->list = calloc(count, sizeof(Tutti__V1__DriveWorker *) + sizeof(*workers) +
                                  TUTTI_ADDRESSES_MAX * sizeof(char *));
    if (ret->list == NULL) {
        return false;
    }
    workers = (Tutti__V1__DriveWorker *)(void *)(ret->list + count);
    addresses = (char **)(void *)(workers + count);
    for (i = 0; i < count; i++) {
        write_worker(&session->workers[i], &workers[i], addresses + i * TUTTI_ADDRESSES_MAX);
        ret->list[i] = &workers[i];
    }
    tutti__v1__drive_opened__init(&ret->message);
    ret->message.session = session->id;
    ret->message.workers = ret->list;
    ret->message.n_workers = count;
    ret->message.num_groups = session->group_count;
    ret->message.registers_max = session->registers_max;
    ret->message.leader = session->leader;
    if (session->linger) {
        ret->message.secret.data = session->secret;
        ret->message.secret.len = sizeof(session->secret);
    }
    return true;
}

/* ------------------------------------------------------------------------------ answers */

static tutti_rpc_packed *
pack_message(const Tutti__V1__DriveResponse *message)
{
    tutti_rpc_packed *packed = NULL;

    return tutti_rpc_pack(&message->base, NULL, &packed, NULL) == TUTTI_OK ? packed : NULL;
}

static void
set_error(const tutti_error *err, Tutti__V1__Error *memory, Tutti__V1__DriveResponse *message)
{
    agent_write_error(err, memory);
    message->error = memory;
}

static tutti_rpc_packed *
pack_failed(const agent_drive *command, Tutti__V1__DriveResponse *message)
{
    failed_list failed;
    tutti_rpc_packed *packed;
    Tutti__V1__Error error;
    tutti_error err;

    if (!write_failures(command, &failed)) {
        return NULL;
    }
    if (command->refused != NULL) {
        set_error(command->refused, &error, message);
    } else {
        sum_up(command, &failed, &err);
        set_error(&err, &error, message);
    }
    message->failed = failed.list;
    message->n_failed = failed.count;
    packed = pack_message(message);
    free(failed.list);
    return packed;
}

static tutti_rpc_packed *
pack_opened(const agent_drive *command, Tutti__V1__DriveResponse *message)
{
    opened_parts opened;
    tutti_rpc_packed *packed;

    if (!write_opened(command->session, &opened)) {
        return NULL;
    }
    message->opened = &opened.message;
    packed = write_registers(command->session, &opened) ? pack_message(message) : NULL;
    free(opened.registers);
    free(opened.list);
    return packed;
}

static tutti_rpc_packed *
pack_kept(const agent_drive *command, Tutti__V1__DriveResponse *message)
{
    value_list values;
    tutti_rpc_packed *packed;

    if (!write_values(command, &values)) {
        return NULL;
    }
    message->values = values.list;
    message->n_values = values.count;
    write_functions(command, message);
    packed = command->failures != NULL || command->refused != NULL ? pack_failed(command, message)
                                                                   : pack_message(message);
    free(values.list);
    return packed;
}

tutti_rpc_packed *
agent_drive_pack(const agent_drive *command)
{
    Tutti__V1__DriveResponse message = TUTTI__V1__DRIVE_RESPONSE__INIT;

    message.id = command->id;
    if (command->kept != NULL) {
        return pack_kept(command, &message);
    }
    if (command->failures != NULL || command->refused != NULL) {
        return pack_failed(command, &message);
    }
    return command->method == TUTTI__V1__DRIVE_REQUEST__COMMAND_OPEN
               ? pack_opened(command, &message)
               : pack_message(&message);
}
