/* The environment of a call in a host: what it asks the agent for, one thing at a time. */
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/types_pb.h"
#include "client/function/host_pb.h"
#include "tensor/dlpack.h"
#include "tutti/types.h"

#define SAID_BYTES_MAX 1000 /* as agents keep them */

/* ------------------------------------------------------------------------------ fail */

static bool
is_host_reason(const char *reason)
{
    const size_t size = strnlen(reason, TUTTI_ERROR_REASON_MAX);

    return size > 0 && size < TUTTI_ERROR_REASON_MAX &&
           strspn(reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == size;
}

static int
fail_host_call(const tutti_env *env, const char *reason, const char *text)
{
    host_call *call = env->self;
    char words[SAID_BYTES_MAX + 1];

    tutti_rpc_text_clean(words, sizeof(words), text == NULL ? "" : text);
    (void)TUTTI_FAIL_FOR(&call->failure, TUTTI_ABORTED,
                         reason != NULL && is_host_reason(reason) ? reason : "FUNCTION_FAILED",
                         "%s%s%s", words[0] == '\0' ? call->function->name : "",
                         words[0] == '\0' ? " failed" : "", words);
    return -1;
}

/* ------------------------------------------------------------------------------ asking */

/* The number of what is asked next. */
static uint64_t
begin_request(host_call *call)
{
    uint64_t request;

    (void)pthread_mutex_lock(&call->host->lock);
    request = ++call->request;
    (void)pthread_mutex_unlock(&call->host->lock);
    return request;
}

/* [out, owned] ret_message  the answer, without an error */
static tutti_code
ask_agent(host_call *call, const Tutti__V1__ServeRequest *request, tutti_rpc_message **ret_message,
          tutti_error *err)
{
    const Tutti__V1__ServeResponse *response;
    tutti_rpc_message *message;
    tutti_error said;

    host_send(call->host, &request->base);
    message = host_wait_done(call);
    if (message == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_CANCELLED, "GIVEN_UP",
                              "nobody waits for the call any more");
    }
    response = tutti_rpc_message_get(message);
    client_read_error(response->done->error, &said);
    if (said.code != TUTTI_OK) {
        tutti_rpc_message_free(message);
        return tutti_error_pass(err, &said);
    }
    *ret_message = message;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ make */

static tutti_code
read_make(DLDataType dtype, const int64_t *shape, int32_t ndim, const DLDevice *device,
          tutti_spec *ret_spec, tutti_error *err)
{
    tutti_spec spec = {.dtype = tutti_dlpack_dtype(dtype)};
    int32_t i;

    if (device != NULL && device->device_type != 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "CANNOT_SHARE",
                              "a host of libtutti makes tensors in host memory alone");
    }
    if (ndim < 0 || ndim > TUTTI_DIMS_MAX || (shape == NULL && ndim > 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE", "%d dimensions, at most %d",
                              (int)ndim, TUTTI_DIMS_MAX);
    }
    spec.dim_count = (uint32_t)ndim;
    for (i = 0; i < ndim; i++) {
        spec.dims[i] = shape[i];
    }
    *ret_spec = spec;
    return tutti_spec_size(&spec, NULL, NULL, err);
}

static tutti_code
make_host_tensor(host_call *call, const tutti_spec *spec, host_tensor **ret_tensor,
                 tutti_error *err)
{
    Tutti__V1__ServeRequest request = TUTTI__V1__SERVE_REQUEST__INIT;
    Tutti__V1__HostMake make = TUTTI__V1__HOST_MAKE__INIT;
    const Tutti__V1__ServeResponse *response;
    tutti_rpc_message *message = NULL;
    wire_spec wire;
    tutti_code code;

    client_write_spec(spec, &wire);
    make.call = call->said->call;
    make.request = begin_request(call);
    make.spec = &wire.message;
    make.device = client_write_text("cpu");
    request.kind_case = TUTTI__V1__SERVE_REQUEST__KIND_MAKE;
    request.make = &make;
    TUTTI_TRY(ask_agent(call, &request, &message, err));
    response = tutti_rpc_message_get(message);
    code = response->done->memory == NULL
               ? TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                                "the agent made a tensor without memory")
               : host_open_tensor(call, response->done->memory, ret_tensor, err);
    tutti_rpc_message_free(message);
    return code;
}

static DLTensor *
make_host_dl(const tutti_env *env, DLDataType dtype, const int64_t *shape, int32_t ndim,
             const DLDevice *device)
{
    host_call *call = env->self;
    host_tensor *tensor = NULL;
    tutti_error err;
    tutti_spec spec;

    if (read_make(dtype, shape, ndim, device, &spec, &err) != TUTTI_OK ||
        make_host_tensor(call, &spec, &tensor, &err) != TUTTI_OK) {
        call->failure = err;
        return NULL;
    }
    return &tensor->dl;
}

/* ------------------------------------------------------------------------------ collectives */

static tutti_code
read_reduce_word(const char *word, Tutti__V1__ReduceOp *ret_reduce, tutti_error *err)
{
    const char *name = word == NULL ? "sum" : word;
    const tutti_reduce reduce = tutti_reduce_parse(name);

    /* Other names for them ("mean") are not known to functions in agents, and so not here. */
    if (reduce != TUTTI_REDUCE_NONE && reduce != TUTTI_REDUCE_PREMUL_SUM &&
        strcmp(tutti_reduce_name(reduce), name) == 0) {
        *ret_reduce = (Tutti__V1__ReduceOp)reduce;
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(
        err, TUTTI_INVALID_ARGUMENT, "BAD_REDUCE_OP",
        "\"%.40s\" is no reduce op here: sum, prod, min, max, avg, band, bor, bxor", name);
}

static tutti_code
write_handle(const host_call *call, const DLTensor *dl, const char *what, char **ret_handle,
             tutti_error *err)
{
    const host_tensor *tensor = dl == NULL ? NULL : host_find_tensor(call, dl);

    if (dl != NULL && tensor == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "the %s of an op is neither an argument nor of env->make", what);
    }
    if (tensor != NULL) {
        *ret_handle = client_write_text(tensor->handle);
    }
    return TUTTI_OK;
}

static tutti_code
run_host_op(host_call *call, const tutti_env_op *op, tutti_error *err)
{
    Tutti__V1__ServeRequest request = TUTTI__V1__SERVE_REQUEST__INIT;
    Tutti__V1__HostOp out = TUTTI__V1__HOST_OP__INIT;
    tutti_rpc_message *message = NULL;

    TUTTI_TRY(write_handle(call, op->input, "input", &out.input, err));
    TUTTI_TRY(write_handle(call, op->output, "output", &out.output, err));
    TUTTI_TRY(read_reduce_word(op->reduce, &out.reduce_op, err));
    out.call = call->said->call;
    out.request = begin_request(call);
    out.op = client_write_text(op->op);
    out.peer = op->peer;
    request.kind_case = TUTTI__V1__SERVE_REQUEST__KIND_OP;
    request.op = &out;
    TUTTI_TRY(ask_agent(call, &request, &message, err));
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

static int
run_host_env_op(const tutti_env *env, const tutti_env_op *op)
{
    host_call *call = env->self;
    tutti_error err;

    if (run_host_op(call, op, &err) != TUTTI_OK) {
        call->failure = err;
        return -1;
    }
    return 0;
}

void
host_fill_env(host_call *call)
{
    const Tutti__V1__HostCall *said = call->said;

    call->env = (tutti_env){.size = sizeof(call->env),
                            .rank = said->rank,
                            .world_size = said->world_size,
                            .worker = said->worker,
                            .worker_count = said->worker_count,
                            .group_size = said->group_size,
                            .device = {1, 0},
                            .cancelled = &call->cancelled,
                            .self = call,
                            .context = call->function->context,
                            .make = make_host_dl,
                            .op = run_host_env_op,
                            .fail = fail_host_call};
}
