/* FunctionsService.Serve: the stream of a host, in messages. Control loop. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/function/host.h"
#include "server/agent/function/python.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/value_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

#define HOST_CALLS_MAX 1024
#define HOST_KEY "tutti-host-key"

/* A stream of a host. */
typedef struct serving {
    tutti_agent *agent;
    tutti_rpc_call *call;
    agent_host *host; /* NULL: before its first message, and behind its end */
    bool began;
    bool writing;
    bool finished;
    tutti_list_node waiting; /* outgoing.link: packed, to be written */
} serving;

typedef struct outgoing {
    tutti_list_node link;
    tutti_rpc_packed *packed; /* [owned] */
} outgoing;

/* ------------------------------------------------------------------------------ writing */

static void
drop_waiting(serving *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->waiting)) != NULL) {
        outgoing *one = tutti_container_of(link, outgoing, link);

        tutti_rpc_packed_free(one->packed);
        free(one);
    }
}

/* Nothing is said any more; its host is told by who has the stream's next event. */
static void
end_serving(serving *self, const tutti_error *err)
{
    if (!self->finished) {
        self->finished = true;
        drop_waiting(self);
        tutti_rpc_call_finish(self->call, err);
    }
}

/* In an event of the stream: not inside of what the host has called. */
static void
close_host(serving *self)
{
    agent_host *host = self->host;

    self->host = NULL;
    if (host != NULL) {
        agent_host_close(host);
    }
}

static void
finish_serving(serving *self, const tutti_error *err)
{
    end_serving(self, err);
    close_host(self);
}

static void
write_next(serving *self)
{
    tutti_list_node *link = self->writing || self->finished ? NULL : tutti_list_pop(&self->waiting);
    tutti_rpc_packed *packed;
    outgoing *one;

    if (link == NULL) {
        return;
    }
    one = tutti_container_of(link, outgoing, link);
    packed = one->packed;
    free(one);
    self->writing = true;
    if (!tutti_rpc_call_write_packed(self->call, packed, !tutti_list_empty(&self->waiting))) {
        end_serving(self, NULL); /* it is gone */
    }
}

static void
send_message(serving *self, const Tutti__V1__ServeResponse *message)
{
    outgoing *one = self == NULL || self->finished ? NULL : calloc(1, sizeof(*one));
    tutti_error err;

    if (self == NULL || self->finished) {
        return;
    }
    if (one == NULL || tutti_rpc_pack(&message->base, NULL, &one->packed, &err) != TUTTI_OK) {
        free(one);
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a message to a host");
        end_serving(self, &err);
        return;
    }
    tutti_list_init(&one->link);
    tutti_list_add(&self->waiting, &one->link);
    write_next(self);
}

/* ------------------------------------------------------------------------------ to the host */

/* A tensor's memory as a message, with what it points to. */
typedef struct wire_memory {
    Tutti__V1__TensorMemory message;
    wire_spec spec;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
} wire_memory;

static void
write_tensor_memory(const tutti_agent *agent, const agent_host_memory *memory, wire_memory *ret)
{
    const tutti_tensor *tensor = tutti_table_tensor(agent->table, memory->tensor->lock);

    tutti__v1__tensor_memory__init(&ret->message);
    tutti_table_handle(memory->tensor->lock, ret->handle);
    agent_write_spec(&tensor->spec, &ret->spec);
    ret->message.handle = ret->handle;
    ret->message.spec = &ret->spec.message;
    ret->message.byte_count = memory->byte_count;
    if (memory->gpu_uuid != NULL) {
        ret->message.ipc_handle.data = (uint8_t *)(uintptr_t)memory->ipc_handle;
        ret->message.ipc_handle.len = sizeof(memory->ipc_handle);
        ret->message.gpu_uuid = (char *)(uintptr_t)memory->gpu_uuid;
    } else if (memory->byte_count > 0) {
        ret->message.token.data = (uint8_t *)(uintptr_t)memory->shared.token;
        ret->message.token.len = sizeof(memory->shared.token);
        ret->message.socket = (char *)(uintptr_t)memory->shared.socket;
    }
}

/* All that the message of a call points to. */
typedef struct wire_args {
    Tutti__V1__HostArg args[AGENT_CALL_ARGS_MAX];
    Tutti__V1__HostArg *list[AGENT_CALL_ARGS_MAX];
    wire_value values[AGENT_CALL_ARGS_MAX];
    wire_memory memories[AGENT_CALL_ARGS_MAX];
} wire_args;

static void
write_arg(const agent_host_call *host_call, size_t i, wire_args *wire)
{
    const agent_function_call *call = host_call->call;
    const agent_call_arg *arg = &call->args[i];

    wire->list[i] = &wire->args[i];
    tutti__v1__host_arg__init(&wire->args[i]);
    if (arg->value != NULL) {
        agent_write_value(arg->value, &wire->values[i]);
    } else {
        write_tensor_memory(call->agent, &host_call->memory[i], &wire->memories[i]);
        agent_write_tensor_value(wire->memories[i].handle,
                                 &tutti_table_tensor(call->agent->table, arg->tensor.lock)->spec,
                                 &wire->values[i]);
        wire->args[i].memory = &wire->memories[i].message;
    }
    wire->args[i].value = &wire->values[i].message;
}

/* What is left of its time: at least 1, since 0 is no limit. */
static uint64_t
time_left_ms(const agent_function_call *call)
{
    const uint64_t now = tutti_clock_ns();

    return call->deadline_ns <= now ? 1 : (call->deadline_ns - now) / TUTTI_NS_PER_MS + 1;
}

static void
send_call(agent_host *host, const agent_host_call *host_call)
{
    const agent_function_call *call = host_call->call;
    Tutti__V1__ServeResponse message = TUTTI__V1__SERVE_RESPONSE__INIT;
    Tutti__V1__HostCall out = TUTTI__V1__HOST_CALL__INIT;
    wire_args *wire = malloc(sizeof(*wire));
    tutti_error err;
    size_t i;

    if (wire == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a message to a host");
        end_serving(host->stream, &err);
        return;
    }
    for (i = 0; i < call->arg_count; i++) {
        write_arg(host_call, i, wire);
    }
    out.call = host_call->number;
    out.function = (char *)(uintptr_t)call->function_name;
    out.n_args = call->arg_count;
    out.args = wire->list;
    out.timeout_ms = time_left_ms(call);
    out.worker = call->env.worker;
    out.worker_count = call->env.worker_count;
    out.group_size = call->env.group_size;
    out.rank = call->env.rank;
    out.world_size = call->env.world_size;
    message.kind_case = TUTTI__V1__SERVE_RESPONSE__KIND_CALL;
    message.call = &out;
    send_message(host->stream, &message);
    free(wire);
}

static void
send_done(agent_host *host, uint64_t call, uint64_t request, const agent_host_memory *memory,
          const tutti_error *err)
{
    Tutti__V1__ServeResponse message = TUTTI__V1__SERVE_RESPONSE__INIT;
    Tutti__V1__HostDone done = TUTTI__V1__HOST_DONE__INIT;
    Tutti__V1__Error error;
    wire_memory wire;

    done.call = call;
    done.request = request;
    if (memory != NULL) {
        write_tensor_memory(host->agent, memory, &wire);
        done.memory = &wire.message;
    }
    if (err != NULL) {
        agent_write_error(err, &error);
        done.error = &error;
    }
    message.kind_case = TUTTI__V1__SERVE_RESPONSE__KIND_DONE;
    message.done = &done;
    send_message(host->stream, &message);
}

static void
send_cancel(agent_host *host, uint64_t call)
{
    Tutti__V1__ServeResponse message = TUTTI__V1__SERVE_RESPONSE__INIT;

    message.kind_case = TUTTI__V1__SERVE_RESPONSE__KIND_CANCEL;
    message.cancel = call;
    send_message(host->stream, &message);
}

static void
send_import(agent_host *host, uint64_t request, const char *module)
{
    Tutti__V1__ServeResponse message = TUTTI__V1__SERVE_RESPONSE__INIT;
    Tutti__V1__HostImport import = TUTTI__V1__HOST_IMPORT__INIT;

    import.request = request;
    import.module = (char *)(uintptr_t)module;
    message.kind_case = TUTTI__V1__SERVE_RESPONSE__KIND_IMPORT;
    message.import = &import;
    send_message(host->stream, &message);
}

static const agent_host_wire wire_of_hosts = {
    .call = send_call,
    .done = send_done,
    .cancel = send_cancel,
    .import = send_import,
};

/* ------------------------------------------------------------------------------ from the host */

/* NULL: no memory. */
static agent_host_function *
read_functions(Tutti__V1__FunctionInfo *const *infos, size_t count)
{
    agent_host_function *functions = calloc(count + 1, sizeof(*functions));
    size_t i;

    for (i = 0; i < count && functions != NULL; i++) {
        functions[i] = (agent_host_function){infos[i]->name, infos[i]->signature};
    }
    return functions;
}

static tutti_error
read_failure(const Tutti__V1__Error *message)
{
    const bool known = message->code > TUTTI_OK && message->code <= TUTTI_UNAUTHENTICATED;
    tutti_error err;

    (void)tutti_fail(&err, known ? (tutti_code)message->code : TUTTI_ABORTED, message->reason,
                     TUTTI_HERE, "%s", message->text);
    return err;
}

static tutti_code
start_host(serving *self, const Tutti__V1__HostStart *start, tutti_error *err)
{
    const bool own =
        agent_python_has_key(self->agent, tutti_rpc_call_metadata(self->call, HOST_KEY));
    Tutti__V1__ServeResponse message = TUTTI__V1__SERVE_RESPONSE__INIT;
    agent_host_function *functions = read_functions(start->functions, start->n_functions);
    char name[AGENT_HOST_NAME_MAX + 1];
    tutti_code code;

    if (functions == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for functions");
    }
    tutti_rpc_text_clean(name, sizeof(name), start->name);
    code = agent_host_open(self->agent, name, own, start->imports,
                           start->calls_max > HOST_CALLS_MAX ? HOST_CALLS_MAX : start->calls_max,
                           &wire_of_hosts, self, &self->host, err);
    if (code == TUTTI_OK) {
        code = agent_host_offer(self->host, functions, start->n_functions, err);
    }
    free(functions);
    if (code == TUTTI_OK) {
        agent_host_start(self->host);
        message.kind_case = TUTTI__V1__SERVE_RESPONSE__KIND_STARTED;
        message.started = true;
        send_message(self, &message);
    }
    return code;
}

static tutti_code
take_return(serving *self, const Tutti__V1__HostReturn *message, tutti_error *err)
{
    agent_value *value = NULL;
    tutti_error failure;

    if (message->error != NULL) {
        failure = read_failure(message->error);
        return agent_host_returned(self->host, message->call, NULL, NULL, &failure, err);
    }
    if (message->result == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "call %llu returned neither a result nor an error",
                              (unsigned long long)message->call);
    }
    if (agent_read_value(message->result, &value, &failure) != TUTTI_OK) {
        return agent_host_returned(self->host, message->call, NULL, NULL, &failure, err);
    }
    if (value == NULL && message->result->kind_case == TUTTI__V1__VALUE__KIND_NAME) {
        (void)TUTTI_FAIL_FOR(&failure, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                             "a function returned the name of something: return what it holds");
        return agent_host_returned(self->host, message->call, NULL, NULL, &failure, err);
    }
    return agent_host_returned(self->host, message->call, value,
                               value == NULL ? message->result->tensor : NULL, NULL, err);
}

static tutti_code
take_make(serving *self, const Tutti__V1__HostMake *message, tutti_error *err)
{
    tutti_spec spec;

    TUTTI_TRY(agent_read_spec(message->spec, &spec, err));
    return agent_host_make(self->host, message->call, message->request, &spec, message->device,
                           err);
}

static tutti_code
take_op(serving *self, const Tutti__V1__HostOp *message, tutti_error *err)
{
    return agent_host_op(self->host, message->call, message->request, message->op, message->input,
                         message->output, (tutti_reduce)message->reduce_op, message->peer, err);
}

static tutti_code
take_imported(serving *self, const Tutti__V1__HostImported *message, tutti_error *err)
{
    agent_host_function *functions = read_functions(message->functions, message->n_functions);
    tutti_error failure;
    tutti_code code;

    if (functions == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for functions");
    }
    if (message->error != NULL) {
        failure = read_failure(message->error);
    }
    code = agent_host_imported(self->host, message->request, functions, message->n_functions,
                               message->error == NULL ? NULL : &failure, err);
    free(functions);
    return code;
}

static tutti_code
take_host_message(serving *self, const Tutti__V1__ServeRequest *message, tutti_error *err)
{
    const bool starts = message->kind_case == TUTTI__V1__SERVE_REQUEST__KIND_START;

    if (starts != !self->began) {
        return starts ? TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER",
                                       "a second start on a stream of a host")
                      : TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_START",
                                       "the first message of a host says what it has: start");
    }
    self->began = true;
    switch (message->kind_case) {
    case TUTTI__V1__SERVE_REQUEST__KIND_START:
        return start_host(self, message->start, err);
    case TUTTI__V1__SERVE_REQUEST__KIND_RETURNED:
        return take_return(self, message->returned, err);
    case TUTTI__V1__SERVE_REQUEST__KIND_MAKE:
        return take_make(self, message->make, err);
    case TUTTI__V1__SERVE_REQUEST__KIND_OP:
        return take_op(self, message->op, err);
    case TUTTI__V1__SERVE_REQUEST__KIND_IMPORTED:
        return take_imported(self, message->imported, err);
    case TUTTI__V1__SERVE_REQUEST__KIND_STOPPED:
        return agent_host_stopped(self->host, message->stopped, err);
    default:
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER",
                              "a message of a host that this agent does not know");
    }
}

/* ------------------------------------------------------------------------------ the stream */

static void
on_open(tutti_rpc_call *call, void *agent)
{
    serving *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a host");
        tutti_rpc_call_finish(call, &err);
        return;
    }
    self->agent = agent;
    self->call = call;
    tutti_list_init(&self->waiting);
    tutti_rpc_call_set_user(call, self);
    tutti_rpc_call_read(call);
}

static void
on_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    serving *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)arg;
    if (self->finished) {
        close_host(self);
        return;
    }
    if (take_host_message(self, tutti_rpc_message_get(message), &err) != TUTTI_OK) {
        finish_serving(self, &err);
    } else if (!self->finished) {
        tutti_rpc_call_read(call);
    }
}

static void
on_half_close(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    finish_serving(tutti_rpc_call_user(call), NULL);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    serving *self = tutti_rpc_call_user(call);

    (void)arg;
    self->writing = false;
    write_next(self);
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    const tutti_agent *agent = arg;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %u is stopping",
                         (unsigned)agent->rank);
    finish_serving(tutti_rpc_call_user(call), &err);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    serving *self = tutti_rpc_call_user(call);

    (void)arg;
    if (self != NULL) {
        close_host(self);
        drop_waiting(self);
        free(self);
    }
}

const tutti_rpc_stream_ops agent_serve_ops = {
    .on_open = on_open,
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_written = on_written,
    .on_cancel = on_cancel,
    .on_end = on_end,
};
