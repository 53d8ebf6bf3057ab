/* FunctionsService.Serve: what a host hears and says. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/types_pb.h"
#include "client/function/host_pb.h"

static const tutti_rpc_stub stub_serve = {&tutti__v1__functions_service__descriptor, "Serve"};

/* ------------------------------------------------------------------------------ the stream */

tutti_code
host_end_stream(tutti_host *host, tutti_error *err)
{
    tutti_rpc_stream *stream = host->stream;

    host->stream = NULL;
    return tutti_rpc_stream_finish(stream, err);
}

static tutti_code
write_start(const tutti_host *host, tutti_error *err)
{
    Tutti__V1__ServeRequest message = TUTTI__V1__SERVE_REQUEST__INIT;
    Tutti__V1__HostStart start = TUTTI__V1__HOST_START__INIT;
    Tutti__V1__FunctionInfo *infos = calloc(host->function_count + 1, sizeof(*infos));
    Tutti__V1__FunctionInfo **list = calloc(host->function_count + 1, sizeof(*list));
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; infos != NULL && list != NULL && i < host->function_count; i++) {
        tutti__v1__function_info__init(&infos[i]);
        infos[i].name = client_write_text(host->functions[i].name);
        infos[i].signature = client_write_text(host->functions[i].signature);
        list[i] = &infos[i];
    }
    if (infos == NULL || list == NULL) {
        code = TUTTI_FAIL_MEMORY(err, "no memory for functions");
    } else {
        start.name = client_write_text(host->name);
        start.calls_max = host->calls_max;
        start.n_functions = host->function_count;
        start.functions = list;
        message.kind_case = TUTTI__V1__SERVE_REQUEST__KIND_START;
        message.start = &start;
        (void)tutti_rpc_stream_write(host->stream, &message.base, NULL, NULL);
    }
    free(list);
    free(infos);
    return code;
}

/* The first answer; when there is none, how the stream ended. */
static tutti_code
read_started(tutti_host *host, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    const Tutti__V1__ServeResponse *response;
    bool started;

    if (!tutti_rpc_stream_wait(host->stream, client_deadline(host->client, 0))) {
        return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                              "%s has not taken the functions within %" PRIu32 " ms",
                              host->client->settings.agent, host->client->settings.timeout_ms);
    }
    TUTTI_TRY(tutti_rpc_stream_read(host->stream, &message, err));
    if (message == NULL) {
        TUTTI_TRY(host_end_stream(host, err));
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING",
                              "the agent has ended the stream of functions: it stops");
    }
    response = tutti_rpc_message_get(message);
    started = response->kind_case == TUTTI__V1__SERVE_RESPONSE__KIND_STARTED;
    tutti_rpc_message_free(message);
    return started ? TUTTI_OK
                   : TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                                    "the agent sent message %u to a host that has not started",
                                    (unsigned)response->kind_case);
}

tutti_code
host_open_stream(tutti_host *host, tutti_error *err)
{
    tutti_code code;

    TUTTI_TRY(tutti_rpc_stream_open(host->conn->channel, &stub_serve, NULL, &host->stream, err));
    code = write_start(host, err);
    if (code == TUTTI_OK) {
        code = read_started(host, err);
    }
    if (code != TUTTI_OK && host->stream != NULL) {
        tutti_rpc_stream_cancel(host->stream);
        (void)host_end_stream(host, NULL);
    }
    return code;
}

/* ------------------------------------------------------------------------------ what comes */

static const host_function *
find_host_function(const tutti_host *host, const char *name)
{
    size_t i;

    for (i = 0; i < host->function_count; i++) {
        if (strcmp(host->functions[i].name, name) == 0) {
            return &host->functions[i];
        }
    }
    return NULL;
}

/* [in, moved] message */
static tutti_code
take_call(tutti_host *host, tutti_rpc_message *message, const Tutti__V1__HostCall *said,
          tutti_error *err)
{
    const host_function *function = find_host_function(host, said->function);
    host_call *call;

    if (function == NULL || said->n_args > TUTTI_ARGUMENTS_MAX) {
        tutti_rpc_message_free(message);
        return TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "BAD_ANSWER",
            "the agent sent a call that no host can run: a function that it does not "
            "have, or too many arguments");
    }
    call = calloc(1, sizeof(*call));
    if (call == NULL) {
        tutti_rpc_message_free(message);
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    tutti_list_init(&call->link);
    tutti_list_init(&call->tensors);
    call->host = host;
    call->message = message;
    call->said = said;
    call->function = function;
    host_queue_call(host, call);
    return TUTTI_OK;
}

tutti_code
host_take_message(tutti_host *host, tutti_rpc_message *message, tutti_error *err)
{
    const Tutti__V1__ServeResponse *response = tutti_rpc_message_get(message);

    switch (response->kind_case) {
    case TUTTI__V1__SERVE_RESPONSE__KIND_CALL:
        return take_call(host, message, response->call, err);
    case TUTTI__V1__SERVE_RESPONSE__KIND_DONE:
        host_take_done(host, response->done->call, response->done->request, message);
        return TUTTI_OK;
    case TUTTI__V1__SERVE_RESPONSE__KIND_CANCEL:
        host_cancel_call(host, response->cancel);
        break;
    default: /* of a newer agent */
        break;
    }
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ what goes */

/* A call that failed: what it said, or what its environment did. */
static void
write_failure(host_call *call, Tutti__V1__Error *ret)
{
    tutti_error *failure = &call->failure;

    if (failure->code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(failure, TUTTI_ABORTED, "FUNCTION_FAILED", "%s failed",
                             call->function->name);
    }
    tutti__v1__error__init(ret);
    ret->code = (uint32_t)failure->code;
    ret->reason = failure->reason;
    ret->text = failure->text;
    ret->rank = (int32_t)call->said->rank;
}

/* A message that cannot be packed is one whose text nobody may send: then this is said instead. */
static tutti_rpc_packed *
pack_return(host_call *call, int status, const tutti_any *any)
{
    Tutti__V1__ServeRequest message = TUTTI__V1__SERVE_REQUEST__INIT;
    Tutti__V1__HostReturn returned = TUTTI__V1__HOST_RETURN__INIT;
    Tutti__V1__Value value = TUTTI__V1__VALUE__INIT;
    Tutti__V1__Shape shape = TUTTI__V1__SHAPE__INIT;
    Tutti__V1__Error error;
    char device[TUTTI_DEVICE_MAX + 1];
    tutti_rpc_packed *packed = NULL;

    returned.call = call->said->call;
    message.kind_case = TUTTI__V1__SERVE_REQUEST__KIND_RETURNED;
    message.returned = &returned;
    if (status == 0 &&
        host_write_value(call, any, &value, &shape, device, &call->failure) == TUTTI_OK) {
        returned.result = &value;
    } else {
        write_failure(call, &error);
        returned.error = &error;
    }
    return tutti_rpc_pack(&message.base, NULL, &packed, NULL) == TUTTI_OK ? packed : NULL;
}

static tutti_rpc_packed *
pack_stopped(const host_call *call)
{
    Tutti__V1__ServeRequest message = TUTTI__V1__SERVE_REQUEST__INIT;
    tutti_rpc_packed *packed = NULL;

    message.kind_case = TUTTI__V1__SERVE_REQUEST__KIND_STOPPED;
    message.stopped = call->said->call;
    return tutti_rpc_pack(&message.base, NULL, &packed, NULL) == TUTTI_OK ? packed : NULL;
}

/* The tensors are unmapped before the agent hears of it: then its shares are over, too. */
void
host_answer_call(host_call *call, int status, const tutti_any *ret)
{
    tutti_host *host = call->host;
    tutti_rpc_packed *packed =
        call->cancelled != 0 ? pack_stopped(call) : pack_return(call, status, ret);

    host_close_tensors(call);
    if (packed == NULL) { /* no memory: the agent must not wait for an answer that never comes */
        tutti_rpc_stream_cancel(host->stream);
        return;
    }
    (void)pthread_mutex_lock(&host->writing);
    (void)tutti_rpc_stream_write_packed(host->stream, packed, false, NULL);
    (void)pthread_mutex_unlock(&host->writing);
}
