#include "server/agent/function/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/function/functions.h"
#include "server/agent/function/gpu.h"
#include "server/agent/function/python.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

#define LAST_WORDS_NS TUTTI_NS_PER_S /* that a process of ours has to say them, and to end */

/* ------------------------------------------------------------------------------ the end of a call */

static void pump_host(agent_host *host);

/* Not behind a make or an op that runs: those use the call. */
static void
end_host_call(agent_host_call *self, const tutti_error *err)
{
    if (self->over || self->state == AGENT_HOST_CALL_RETURNED) {
        return;
    }
    self->over = true;
    self->err = *err;
    if (self->busy) {
        agent_env_op_cancel(self->call, err);
    } else {
        agent_call_failed(self->call, err);
    }
}

static void
leave_host(agent_host_call *self)
{
    agent_host *host = self->host;

    if (self->state == AGENT_HOST_CALL_SENT && host != NULL) {
        host->sent_count--;
        pump_host(host);
    }
}

void
agent_host_end(agent_function_call *call)
{
    agent_host_call *self = call->host_call;

    if (self != NULL) {
        tutti_list_remove(&self->link);
        agent_value_unref(self->value);
        free(self->memory);
        free(self);
        call->host_call = NULL;
    }
}

static void
fail_lost(agent_host_call *self, const char *host, const char *words)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "HOST_LOST",
                         "function %s on rank %" PRIu32 ": its host (%s) is gone%s%s",
                         self->call->function_name, self->call->agent->rank, host,
                         words[0] == '\0' ? "" : ", its last words: ", words);
    tutti_error_set_op(&err, NULL, 0, (int32_t)self->call->agent->rank);
    end_host_call(self, &err);
}

/* ------------------------------------------------------------------------------ beginning */

/* Memory of its own for each tensor, which a host can map. A thread of the pool: bytes may move. */
static tutti_code
share_tensor(agent_function_call *call, agent_call_tensor *tensor, agent_host_memory *memory,
             tutti_error *err)
{
    tutti_agent *agent = call->agent;
    tutti_tensor *inner = tutti_table_tensor(agent->table, tensor->lock);

    memory->tensor = tensor;
    memory->byte_count = inner->bytes;
    if (inner->bytes == 0) {
        return TUTTI_OK;
    }
    if (!tutti_tensor_is_host(inner)) {
        TUTTI_TRY(agent_gpu_share(agent, inner, memory->ipc_handle, &memory->gpu_uuid, err));
        agent_call_tensor_open(tensor, inner, tensor->lock);
        return TUTTI_OK;
    }
    if (agent->share == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "SHARE_OFF",
                              "function %s is of a host, which cannot have tensors: this agent "
                              "shares no memory (--no-share)",
                              call->function_name);
    }
    TUTTI_TRY(agent_share_tensor(agent, tensor->lock, true, &memory->shared, err));
    agent_call_tensor_open(tensor, tutti_table_tensor(agent->table, tensor->lock), tensor->lock);
    return TUTTI_OK;
}

static void
run_prepare(agent_pool_job *job)
{
    agent_host_call *self = tutti_container_of(job, agent_host_call, job);
    agent_function_call *call = self->call;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < call->arg_count && code == TUTTI_OK; i++) {
        if (call->args[i].value == NULL) {
            code = share_tensor(call, &call->args[i].tensor, &self->memory[i], &self->op.err);
        }
    }
    self->op.err.code = code;
    tutti_rpc_loop_post(call->agent->control, &self->prepared);
}

static void
run_prepared(tutti_rpc_task *task)
{
    agent_host_call *self = tutti_container_of(task, agent_host_call, prepared);
    agent_host *host = self->host;

    self->busy = false;
    if (self->over) {
        agent_call_failed(self->call, &self->err);
    } else if (self->op.err.code != TUTTI_OK) {
        end_host_call(self, &self->op.err);
    } else if (host == NULL) {
        fail_lost(self, "a process", "");
    } else {
        self->state = AGENT_HOST_CALL_QUEUED;
        pump_host(host);
    }
}

static void
pump_host(agent_host *host)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &host->calls)
    {
        agent_host_call *self = tutti_container_of(link, agent_host_call, link);

        if (host->closed || host->sent_count >= host->calls_max) {
            return;
        }
        if (self->state == AGENT_HOST_CALL_QUEUED && !self->over) {
            self->state = AGENT_HOST_CALL_SENT;
            host->sent_count++;
            host->wire->call(host, self);
        }
    }
}

static bool
has_tensors(const agent_function_call *call)
{
    size_t i;

    for (i = 0; i < call->arg_count; i++) {
        if (call->args[i].value == NULL) {
            return true;
        }
    }
    return false;
}

static agent_host_call *
new_host_call(agent_function_call *call, agent_host *host)
{
    agent_host_call *self = calloc(1, sizeof(*self));

    if (self != NULL) {
        self->memory = calloc(call->arg_count + 1, sizeof(*self->memory));
    }
    if (self == NULL || self->memory == NULL) {
        free(self);
        return NULL;
    }
    self->call = call;
    self->host = host;
    self->number = ++host->last_number;
    self->job.on_run = run_prepare;
    self->prepared.on_run = run_prepared;
    tutti_list_init(&self->link);
    tutti_list_add(&host->calls, &self->link);
    return self;
}

void
agent_host_begin(agent_function_call *call)
{
    agent_host *host = call->function->host;
    agent_host_call *self = host == NULL ? NULL : new_host_call(call, host);
    tutti_error err;

    if (self == NULL) {
        (void)(host == NULL ? TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "HOST_LOST",
                                             "function %s: its host is gone", call->function_name)
                            : TUTTI_FAIL_MEMORY(&err, "no memory for a call"));
        agent_call_failed(call, &err);
        return;
    }
    call->host_call = self;
    self->busy = true;
    if (has_tensors(call)) {
        agent_pool_add(call->agent->functions->pool, &self->job);
    } else {
        run_prepared(&self->prepared);
    }
}

void
agent_host_cancel(agent_function_call *call)
{
    agent_host_call *self = call->host_call;

    if (self == NULL) {
        return;
    }
    if (self->state == AGENT_HOST_CALL_SENT && self->host != NULL && !self->host->closed) {
        self->host->wire->cancel(self->host, self->number);
    } else if (self->state != AGENT_HOST_CALL_SENT) {
        end_host_call(self, &call->err);
    }
}

/* ------------------------------------------------------------------------------ the host's words */

static tutti_code
find_call(agent_host *host, uint64_t number, bool asks, agent_host_call **ret_call,
          tutti_error *err)
{
    tutti_list_node *link;

    for (link = host->calls.next; link != &host->calls; link = link->next) {
        agent_host_call *self = tutti_container_of(link, agent_host_call, link);

        if (self->number == number && self->state == AGENT_HOST_CALL_SENT && !self->over) {
            if (asks && self->busy) {
                break;
            }
            *ret_call = self;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER", "call %" PRIu64 ": %s", number,
                          link == &host->calls ? "this host does not have it"
                                               : "it asks for one thing at a time");
}

static agent_call_tensor *
find_tensor(agent_host_call *self, const char *handle)
{
    agent_function_call *call = self->call;
    char own[TUTTI_TABLE_HANDLE_SIZE];
    tutti_list_node *link;
    size_t i;

    for (i = 0; i < call->arg_count; i++) {
        if (call->args[i].value == NULL) {
            tutti_table_handle(call->args[i].tensor.lock, own);
            if (strcmp(own, handle) == 0) {
                return &call->args[i].tensor;
            }
        }
    }
    for (link = call->made.next; link != &call->made; link = link->next) {
        agent_made_tensor *made = tutti_container_of(link, agent_made_tensor, link);

        tutti_table_handle(made->tensor.lock, own);
        if (strcmp(own, handle) == 0) {
            return &made->tensor;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------ returning */

static void
run_return(agent_pool_job *job)
{
    agent_host_call *self = tutti_container_of(job, agent_host_call, job);

    agent_call_returned(self->call, self->status, &self->ret);
}

static void
say_failure(agent_host_call *self, const tutti_error *failure)
{
    agent_env_say(self->call, failure->reason[0] == '\0' ? NULL : failure->reason, failure->text);
    self->call->said.code = failure->code;
    self->status = -1;
}

static void
take_host_tensor(agent_host_call *self, const char *handle)
{
    agent_call_tensor *tensor = find_tensor(self, handle);

    if (tensor != NULL) {
        self->ret = tutti_any_tensor(&tensor->dl);
        return;
    }
    (void)TUTTI_FAIL_FOR(&self->call->said, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                         "%s returned tensor %.63s, which is no argument of it, and none that it "
                         "has made",
                         self->call->function_name, handle);
    self->status = -1;
}

tutti_code
agent_host_returned(agent_host *host, uint64_t number, agent_value *value, const char *handle,
                    const tutti_error *failure, tutti_error *err)
{
    agent_host_call *self = NULL;
    const tutti_code code = find_call(host, number, true, &self, err);

    if (code != TUTTI_OK) {
        agent_value_unref(value);
        return code;
    }
    self->ret = tutti_any_null();
    if (value != NULL) {
        self->value = value;
        self->ret = value->any;
    } else if (handle != NULL) {
        take_host_tensor(self, handle);
    } else {
        say_failure(self, failure);
    }
    leave_host(self);
    self->state = AGENT_HOST_CALL_RETURNED;
    self->job.on_run = run_return;
    if (handle != NULL) { /* it may be copied */
        agent_pool_add(self->call->agent->functions->pool, &self->job);
    } else {
        run_return(&self->job);
    }
    return TUTTI_OK;
}

tutti_code
agent_host_stopped(agent_host *host, uint64_t number, tutti_error *err)
{
    agent_host_call *self = NULL;
    tutti_error why;

    TUTTI_TRY(find_call(host, number, true, &self, err));

    if (self->call->failed) {
        why = self->call->err;
    } else {
        (void)TUTTI_FAIL_FOR(&why, TUTTI_ABORTED, "FUNCTION_FAILED",
                             "%s was stopped by its host, though it was not cancelled",
                             self->call->function_name);
    }
    leave_host(self);
    end_host_call(self, &why);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ what it asks for */

/* The answer to what it asked for, or the end that came meanwhile. */
static void
answer_request(agent_host_call *self, const agent_host_memory *memory, const tutti_error *err)
{
    self->busy = false;
    if (self->over) {
        agent_call_failed(self->call, &self->err);
    } else if (self->host != NULL && !self->host->closed) {
        self->host->wire->done(self->host, self->number, self->request, memory, err);
    }
}

static void
run_make(agent_pool_job *job)
{
    agent_host_call *self = tutti_container_of(job, agent_host_call, job);
    agent_made_tensor *made = NULL;
    tutti_space *space = NULL;
    tutti_code code = agent_devices_find(self->call->agent, self->device, &space, &self->op.err);

    self->made = (agent_host_memory){0};
    if (code == TUTTI_OK) {
        code = agent_env_make(self->call, &self->spec, space, &made, &self->op.err);
    }
    if (code == TUTTI_OK) {
        code = share_tensor(self->call, &made->tensor, &self->made, &self->op.err);
    }
    self->op.err.code = code;
    tutti_rpc_loop_post(self->call->agent->control, &self->prepared);
}

static void
run_made(tutti_rpc_task *task)
{
    agent_host_call *self = tutti_container_of(task, agent_host_call, prepared);
    const bool well = self->op.err.code == TUTTI_OK;

    answer_request(self, well ? &self->made : NULL, well ? NULL : &self->op.err);
}

tutti_code
agent_host_make(agent_host *host, uint64_t number, uint64_t request, const tutti_spec *spec,
                const char *device, tutti_error *err)
{
    agent_host_call *self = NULL;

    TUTTI_TRY(find_call(host, number, true, &self, err));

    self->busy = true;
    self->request = request;
    self->spec = *spec;
    (void)snprintf(self->device, sizeof(self->device), "%s", device[0] == '\0' ? "cpu" : device);
    self->job.on_run = run_make;
    self->prepared.on_run = run_made;
    agent_pool_add(host->agent->functions->pool, &self->job);
    return TUTTI_OK;
}

static void
on_op_end(agent_env_op *op)
{
    agent_host_call *self = tutti_container_of(op, agent_host_call, op);

    answer_request(self, NULL, op->err.code == TUTTI_OK ? NULL : &op->err);
}

static tutti_code
find_op_tensors(agent_host_call *self, const char *input, const char *output, tutti_error *err)
{
    self->op.input = input[0] == '\0' ? NULL : find_tensor(self, input);
    self->op.output = output[0] == '\0' ? NULL : find_tensor(self, output);
    if ((input[0] != '\0' && self->op.input == NULL) ||
        (output[0] != '\0' && self->op.output == NULL)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%s: a tensor that is no argument of the call, and none that it has "
                              "made",
                              self->call->function_name);
    }
    return TUTTI_OK;
}

tutti_code
agent_host_op(agent_host *host, uint64_t number, uint64_t request, const char *name,
              const char *input, const char *output, tutti_reduce reduce, int32_t peer,
              tutti_error *err)
{
    agent_host_call *self = NULL;
    tutti_error why;
    tutti_code code;

    TUTTI_TRY(find_call(host, number, true, &self, err));

    self->busy = true;
    self->request = request;
    self->op = (agent_env_op){.call = self->call, .on_end = on_op_end, .peer = peer};
    code = agent_env_op_read(&self->op, name, NULL, &why);
    self->op.reduce = reduce == 0 ? self->op.reduce : reduce;
    code = code == TUTTI_OK ? find_op_tensors(self, input, output, &why) : code;
    if (code != TUTTI_OK) {
        answer_request(self, NULL, &why);
    } else {
        agent_env_op_start(&self->op);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ names */

/* "demo" and "demo." allow demo and demo.x, and not demolish. */
static bool
is_under(const char *name, const char *prefix, size_t size)
{
    if (size > 0 && prefix[size - 1] == '.') {
        size--;
    }
    return strncmp(name, prefix, size) == 0 && (name[size] == '\0' || name[size] == '.');
}

bool
agent_host_allows(const tutti_agent *agent, const char *name)
{
    const char *rest = agent->options->functions;

    while (rest[0] != '\0') {
        const size_t size = strcspn(rest, ",");

        if ((size == 1 && rest[0] == '*') || (size > 0 && is_under(name, rest, size))) {
            return true;
        }
        rest += size + (rest[size] == ',' ? 1 : 0);
    }
    return false;
}

static tutti_code
check_offer(const agent_host *host, const agent_host_function *functions, size_t count,
            tutti_error *err)
{
    size_t i;

    if (count > AGENT_HOST_FUNCTIONS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "%zu functions, at most %d",
                              count, AGENT_HOST_FUNCTIONS_MAX);
    }
    for (i = 0; i < count; i++) {
        if (!host->own && !agent_host_allows(host->agent, functions[i].name)) {
            return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "NOT_ALLOWED",
                                  "function \"%.100s\" of a host: its name is not under one of "
                                  "--functions (%.200s)",
                                  functions[i].name,
                                  host->agent->options->functions[0] == '\0'
                                      ? "none are allowed"
                                      : host->agent->options->functions);
        }
    }
    return TUTTI_OK;
}

/* All or none. */
tutti_code
agent_host_offer(agent_host *host, const agent_host_function *functions, size_t count,
                 tutti_error *err)
{
    agent_registry *registry = &host->agent->functions->registry;
    char source[AGENT_FUNCTION_SOURCE_MAX + 1];
    size_t i;

    TUTTI_TRY(check_offer(host, functions, count, err));

    (void)snprintf(source, sizeof(source), "host %s", host->name);
    for (i = 0; i < count; i++) {
        agent_function *function = NULL;
        const tutti_code code = agent_registry_add(registry, functions[i].name, source,
                                                   functions[i].signature, &function, err);

        if (code != TUTTI_OK) {
            while (i-- > 0) {
                agent_registry_remove(registry, agent_registry_find(registry, functions[i].name));
            }
            return code;
        }
        function->host = host;
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ its life */

tutti_code
agent_host_open(tutti_agent *agent, const char *name, bool own, bool imports, uint32_t calls_max,
                const agent_host_wire *wire, void *stream, agent_host **ret_host, tutti_error *err)
{
    agent_functions *functions = agent->functions;
    agent_host *self;

    if (functions->host_count >= agent->options->hosts_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "HOST_LIMIT",
                              "%" PRIu32 " hosts are connected, the limit (--hosts-max)",
                              functions->host_count);
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a host");
    }
    self->agent = agent;
    self->wire = wire;
    self->stream = stream;
    self->own = own;
    self->imports = imports;
    self->calls_max = calls_max == 0 ? 1 : calls_max;
    (void)snprintf(self->name, sizeof(self->name), "%s", name);
    tutti_list_init(&self->calls);
    tutti_list_init(&self->link);
    tutti_list_add(&functions->hosts, &self->link);
    functions->host_count++;
    tutti_count(&agent->numbers.hosts, 1);
    *ret_host = self;
    return TUTTI_OK;
}

static void
drop_functions(agent_host *host)
{
    agent_registry *registry = &host->agent->functions->registry;
    agent_function *function = agent_registry_next(registry, NULL);

    while (function != NULL) {
        agent_function *next = agent_registry_next(registry, function);

        if (function->host == host) {
            agent_registry_remove(registry, function);
        }
        function = next;
    }
}

/* Its calls are told, and it is gone. */
static void
bury_host(agent_host *host)
{
    char words[AGENT_PYTHON_WORDS_MAX] = "";
    tutti_list_node *link;

    tutti_rpc_loop_timer_stop(host->agent->control, &host->timer);
    if (host->own) {
        agent_python_words(host->agent, words);
    }
    while ((link = tutti_list_pop(&host->calls)) != NULL) {
        agent_host_call *self = tutti_container_of(link, agent_host_call, link);

        self->host = NULL;
        fail_lost(self, host->name, words);
    }
    tutti_list_remove(&host->link);
    host->agent->functions->host_count--;
    free(host);
}

static void
on_words_timer(tutti_timer *timer)
{
    bury_host(tutti_container_of(timer, agent_host, timer));
}

void
agent_host_start(agent_host *host)
{
    TUTTI_LOG("agent", INFO, "host %s offers its functions%s", host->name,
              host->own ? " (--python)" : "");
}

/* What a process of ours has said last comes by another way than the end of its stream. */
void
agent_host_close(agent_host *host)
{
    tutti_error err;

    host->closed = true;
    host->stream = NULL;
    TUTTI_LOG("agent", INFO, "host %s is gone", host->name);
    drop_functions(host);
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "HOST_LOST", "host %s is gone", host->name);
    agent_host_imports_fail(host, &err);
    if (!host->own || tutti_list_empty(&host->calls) || !agent_python_runs(host->agent)) {
        bury_host(host);
        return;
    }
    host->timer.on_expiry = on_words_timer;
    tutti_rpc_loop_timer_start(host->agent->control, &host->timer,
                               tutti_clock_ns() + LAST_WORDS_NS);
}

void
agent_hosts_tell(tutti_agent *agent)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &agent->functions->hosts)
    {
        agent_host *host = tutti_container_of(link, agent_host, link);

        if (host->closed && host->own) {
            bury_host(host);
        }
    }
}
