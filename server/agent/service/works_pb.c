/* Wait, Test, Cancel and Sync: how works and ops stand, as messages. Control loop. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/agent/op/sync.h"
#include "server/agent/op/works.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/op_pb.h"
#include "server/agent/service/types_pb.h"

/* One status out, with the memory it points to. */
typedef struct wire_status {
    Tutti__V1__WorkStatus message;
    Tutti__V1__Error error;
    Tutti__V1__TensorRef output;
    wire_spec spec;
} wire_status;

static void
write_status(const agent_work_status *status, wire_status *ret)
{
    tutti__v1__work_status__init(&ret->message);
    ret->message.work = (char *)(uintptr_t)status->work;
    ret->message.done = status->done;
    ret->message.elapsed_us = status->elapsed_us;
    ret->message.source = status->source;
    ret->message.source_global = status->source_global;
    if (status->failed) {
        agent_write_error(&status->err, &ret->error);
        ret->message.error = &ret->error;
    } else if (status->handle[0] != '\0') {
        if (status->has_spec) {
            agent_write_spec(&status->spec, &ret->spec);
        }
        agent_write_ref(status->handle, status->has_spec ? &ret->spec : NULL, &ret->output);
        ret->message.output = &ret->output;
    }
    ret->message.outputs = agent_write_outputs(status->outputs, status->output_count);
    ret->message.n_outputs = ret->message.outputs == NULL ? 0 : status->output_count;
    ret->message.user_meta.data = (uint8_t *)(uintptr_t)status->meta.data;
    ret->message.user_meta.len = status->meta.size;
}

static void
free_statuses(Tutti__V1__WorkStatus **messages, wire_status *memory, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        free(memory[i].message.outputs);
    }
    free(messages);
    free(memory);
}

/* All statuses out; NULL: no memory. Both arrays are to be freed. */
static Tutti__V1__WorkStatus **
write_statuses(const agent_work_status *statuses, size_t count, wire_status **ret_memory)
{
    wire_status *memory = calloc(count, sizeof(*memory));
    Tutti__V1__WorkStatus **messages = calloc(count, sizeof(Tutti__V1__WorkStatus *));
    size_t i;

    if (memory == NULL || messages == NULL) {
        free(memory);
        free(messages);
        return NULL;
    }
    for (i = 0; i < count; i++) {
        write_status(&statuses[i], &memory[i]);
        messages[i] = &memory[i].message;
    }
    *ret_memory = memory;
    return messages;
}

/* `ret_works` is the field of the response, whose count is set. */
static void
answer_with(tutti_rpc_call *call, const ProtobufCMessage *response,
            Tutti__V1__WorkStatus ***ret_works, const agent_work_status *statuses, size_t count)
{
    wire_status *memory = NULL;

    *ret_works = write_statuses(statuses, count, &memory);
    if (*ret_works == NULL) {
        agent_fail_answer(call);
        return;
    }
    tutti_rpc_call_reply(call, response, NULL);
    free_statuses(*ret_works, memory, count);
}

static void
answer_wait(tutti_rpc_call *call, const agent_work_status *statuses, size_t count)
{
    Tutti__V1__WaitResponse response = TUTTI__V1__WAIT_RESPONSE__INIT;

    response.n_works = count;
    answer_with(call, &response.base, &response.works, statuses, count);
}

static void
answer_test(tutti_rpc_call *call, const agent_work_status *statuses, size_t count)
{
    Tutti__V1__TestResponse response = TUTTI__V1__TEST_RESPONSE__INIT;

    response.n_works = count;
    answer_with(call, &response.base, &response.works, statuses, count);
}

static void
answer_cancel(tutti_rpc_call *call, const agent_work_status *statuses, size_t count)
{
    Tutti__V1__CancelResponse response = TUTTI__V1__CANCEL_RESPONSE__INIT;

    response.n_works = count;
    answer_with(call, &response.base, &response.works, statuses, count);
}

void
agent_on_wait(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__WaitRequest *message = tutti_rpc_call_request(call);

    agent_works_wait(self, call, message->works, message->n_works, message->timeout_ms,
                     answer_wait);
}

void
agent_on_test(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__TestRequest *message = tutti_rpc_call_request(call);

    agent_works_test(self, call, message->works, message->n_works, answer_test);
}

void
agent_on_cancel(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__CancelRequest *message = tutti_rpc_call_request(call);

    agent_works_cancel(self, call, message->works, message->n_works, answer_cancel);
}

static void
answer_sync(tutti_rpc_call *call, const agent_sync_result *result)
{
    Tutti__V1__SyncResponse response = TUTTI__V1__SYNC_RESPONSE__INIT;
    Tutti__V1__Error error;

    response.waited_count = result->waited;
    response.failed_count = result->failed;
    if (result->failed > 0) {
        agent_write_error(&result->err, &error);
        response.error = &error;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

void
agent_on_sync(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__SyncRequest *message = tutti_rpc_call_request(call);

    agent_sync(self, call, message->group, message->timeout_ms, answer_sync);
}
