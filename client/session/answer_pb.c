/* SessionService: what the answer to a command says. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/types_pb.h"
#include "client/function/value_pb.h"
#include "client/session/session.h"
#include "tutti/v1/session_service.pb-c.h"

static tutti_code
read_failed_workers(const Tutti__V1__DriveResponse *answer, tutti_session_result *result,
                    tutti_error *err)
{
    size_t i;

    if (answer->n_failed == 0) {
        return TUTTI_OK;
    }
    result->failed = calloc(answer->n_failed, sizeof(*result->failed));
    if (result->failed == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu errors", answer->n_failed);
    }
    for (i = 0; i < answer->n_failed; i++) {
        result->failed[i].worker = answer->failed[i]->worker;
        result->failed[i].rank = answer->failed[i]->rank;
        client_read_error(answer->failed[i]->error, &result->failed[i].error);
    }
    result->failed_count = answer->n_failed;
    if (result->error.code == TUTTI_OK) {
        result->error = result->failed[0].error;
    }
    return TUTTI_OK;
}

static tutti_code
read_worker_values(const Tutti__V1__DriveResponse *answer, tutti_session_result *result,
                   tutti_error *err)
{
    size_t i;

    if (answer->n_values == 0) {
        return TUTTI_OK;
    }
    result->values = calloc(answer->n_values, sizeof(*result->values));
    if (result->values == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu values", answer->n_values);
    }
    for (i = 0; i < answer->n_values; i++) {
        result->values[i].worker = answer->values[i]->worker;
        TUTTI_TRY(client_read_plain(answer->values[i]->value, &result->values[i].value, err));
        result->value_count = i + 1;
    }
    return TUTTI_OK;
}

/* What a quiet command has made is wanted by nobody. */
static tutti_code
read_command_result(const Tutti__V1__DriveResponse *answer, session_command *command,
                    tutti_error *err)
{
    tutti_session_result *result = &command->result;

    result->ticket = command->id;
    client_read_error(answer->error, &result->error);
    TUTTI_TRY(read_failed_workers(answer, result, err));
    if (command->quiet) {
        return TUTTI_OK;
    }
    TUTTI_TRY(read_worker_values(answer, result, err));
    return answer->n_functions == 0
               ? TUTTI_OK
               : client_read_functions(answer->functions, answer->n_functions, &result->functions,
                                       &result->function_count, err);
}

tutti_code
session_read_answer(tutti_session *session, tutti_rpc_message *message, tutti_error *err)
{
    const Tutti__V1__DriveResponse *answer = tutti_rpc_message_get(message);
    session_command *command = session_find(session, answer->id);
    tutti_code code;

    if (command == NULL || command->answered) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered command %" PRIu64 ", which %s", answer->id,
                              command == NULL ? "was not given" : "it had answered already");
    } else {
        code = read_command_result(answer, command, err);
    }
    tutti_rpc_message_free(message);
    if (code == TUTTI_OK) {
        session_answered(session, command);
    }
    return code;
}
