/* CollectivesService: how async ops stand. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "client/op/op_pb.h"
#include "tutti/list.h"
#include "tutti/work.h"

#define SERVICE (&tutti__v1__collectives_service__descriptor)
#define WORKS_MAX 1024

static const tutti_rpc_stub stub_wait = {SERVICE, "Wait"};
static const tutti_rpc_stub stub_test = {SERVICE, "Test"};
static const tutti_rpc_stub stub_cancel = {SERVICE, "Cancel"};
static const tutti_rpc_stub stub_sync = {SERVICE, "Sync"};

static tutti_code
check_works_count(size_t count, tutti_error *err)
{
    if (count == 0 || count > WORKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORK_COUNT", "%zu works, need 1 to %d",
                              count, WORKS_MAX);
    }
    return TUTTI_OK;
}

static tutti_code
read_status(const Tutti__V1__WorkStatus *message, tutti_work_status *ret, tutti_error *err)
{
    tutti_work_status status = {.done = message->done,
                                .source = message->source,
                                .source_global = message->source_global,
                                .elapsed_us = message->elapsed_us};

    TUTTI_TRY(client_read_id(message->work, status.work, err));
    TUTTI_TRY(client_read_handle(message->output, false, &status.output, err));
    client_read_error(message->error, &status.error);
    *ret = status;
    return TUTTI_OK;
}

/*
 * All statuses can be read. If the caller wants none (`wanted`), the first work that has failed
 * becomes the call's error.
 */
static tutti_code
check_statuses(Tutti__V1__WorkStatus *const *messages, size_t got, size_t count, bool wanted,
               tutti_error *err)
{
    tutti_work_status status;
    tutti_code code = TUTTI_OK;
    size_t i;

    if (got != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent was asked for %zu works, answered %zu", count, got);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = read_status(messages[i], &status, err);
        if (code == TUTTI_OK && !wanted && status.error.code != TUTTI_OK) {
            code = tutti_error_pass(err, &status.error);
        }
    }
    return code;
}

/* Behind check_statuses, so that nothing is written when one of them cannot be read. */
static void
read_statuses(Tutti__V1__WorkStatus *const *messages, size_t count, tutti_work_status *ret_statuses)
{
    size_t i;

    for (i = 0; i < count && ret_statuses != NULL; i++) {
        (void)read_status(messages[i], &ret_statuses[i], NULL);
    }
}

/* [out] ret_more  of the only work; NULL = not wanted */
static tutti_code
wait_for_works(tutti_client *client, const char *const *works, size_t count, uint32_t timeout_ms,
               tutti_work_status *ret_statuses, tutti_op_more *ret_more, tutti_error *err)
{
    Tutti__V1__WaitRequest request = TUTTI__V1__WAIT_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_wait, .kind = CLIENT_CONTROL, .deadline_ns = client_op_deadline(timeout_ms)};
    const Tutti__V1__WaitResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(check_works_count(count, err));
    request.n_works = count;
    request.works = (char **)(uintptr_t)works;
    request.timeout_ms = timeout_ms;
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = check_statuses(response->works, response->n_works, count, ret_statuses != NULL, err);
        if (code == TUTTI_OK && ret_more != NULL) {
            code = client_read_more(response->works[0]->outputs, response->works[0]->n_outputs,
                                    response->works[0]->user_meta, ret_more, err);
        }
        if (code == TUTTI_OK) {
            read_statuses(response->works, count, ret_statuses);
        }
    }
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_wait(tutti_client *client, const char *const *works, size_t count, uint32_t timeout_ms,
           tutti_work_status *ret_statuses, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(works, count, err);

    return wait_for_works(client, works, count, timeout_ms, ret_statuses, NULL, err);
}

tutti_code
tutti_wait_more(tutti_client *client, const char *work, uint32_t timeout_ms,
                tutti_work_status *ret_status, tutti_op_more *ret_more, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_more, err);

    *ret_more = (tutti_op_more){0};
    return wait_for_works(client, &work, 1, timeout_ms, ret_status, ret_more, err);
}

static tutti_code
take_statuses(Tutti__V1__WorkStatus **works, size_t works_count, size_t count,
              tutti_work_status *ret_statuses, tutti_error *err)
{
    TUTTI_TRY(check_statuses(works, works_count, count, ret_statuses != NULL, err));

    read_statuses(works, count, ret_statuses);
    return TUTTI_OK;
}

tutti_code
tutti_test(tutti_client *client, const char *const *works, size_t count,
           tutti_work_status *ret_statuses, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(works, count, err);

    Tutti__V1__TestRequest request = TUTTI__V1__TEST_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_test, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};
    const Tutti__V1__TestResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(check_works_count(count, err));
    request.n_works = count;
    request.works = (char **)(uintptr_t)works;
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = take_statuses(response->works, response->n_works, count, ret_statuses, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_cancel(tutti_client *client, const char *const *works, size_t count,
             tutti_work_status *ret_statuses, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(works, count, err);

    Tutti__V1__CancelRequest request = TUTTI__V1__CANCEL_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_cancel, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};
    const Tutti__V1__CancelResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(check_works_count(count, err));
    request.n_works = count;
    request.works = (char **)(uintptr_t)works;
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = take_statuses(response->works, response->n_works, count, ret_statuses, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_sync(tutti_client *client, const char *group, uint32_t timeout_ms,
           tutti_sync_result *ret_result, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__SyncRequest request = TUTTI__V1__SYNC_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_sync, .kind = CLIENT_CONTROL, .deadline_ns = client_op_deadline(timeout_ms)};
    const Tutti__V1__SyncResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_sync_result result;
    tutti_code code;

    request.group = client_write_text(group);
    request.timeout_ms = timeout_ms;
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code != TUTTI_OK) {
        return code;
    }
    response = tutti_rpc_message_get(message);
    result.waited_count = response->waited_count;
    result.failed_count = response->failed_count;
    client_read_error(response->error, &result.error);
    tutti_rpc_message_free(message);
    if (ret_result != NULL) {
        *ret_result = result;
    }
    return ret_result != NULL || result.error.code == TUTTI_OK
               ? TUTTI_OK
               : tutti_error_pass(err, &result.error);
}
