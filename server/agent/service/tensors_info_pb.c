/*
 * Stat and List: what a person sees of tensors, as messages. Bulk loop. Nothing is locked: an entry
 * is read at one moment under the table's mutex.
 *
 * A page goes on behind the number of the last tensor of the page before, so tensors that come or
 * go meanwhile neither repeat nor hide others.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000

/* A TensorInfo out, with the memory it points to. */
typedef struct wire_info {
    Tutti__V1__TensorInfo message;
    Tutti__V1__TensorRef ref;
    Tutti__V1__Error error;
    wire_spec spec;
    tutti_table_info info;
} wire_info;

static void
write_info(wire_info *ret)
{
    const tutti_table_info *info = &ret->info;

    tutti__v1__tensor_info__init(&ret->message);
    if (info->has_spec) {
        agent_write_spec(&info->spec, &ret->spec);
    }
    agent_write_ref(info->handle, info->has_spec ? &ret->spec : NULL, &ret->ref);
    ret->message.tensor = &ret->ref;
    ret->message.name = (char *)(uintptr_t)info->name;
    ret->message.byte_count = info->bytes;
    ret->message.pending = info->pending;
    ret->message.device = (char *)(uintptr_t)info->device;
    ret->message.owner = (char *)(uintptr_t)info->owner;
    ret->message.ephemeral = info->ephemeral;
    ret->message.age_ms = (tutti_clock_ns() - info->made_ns) / TUTTI_NS_PER_MS;
    if (info->failed) {
        agent_write_error(&info->err, &ret->error);
        ret->message.error = &ret->error;
    }
}

void
agent_on_stat(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__StatRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__StatResponse response = TUTTI__V1__STAT_RESPONSE__INIT;
    tutti_agent *agent = self;
    wire_info info;
    tutti_error err;

    if (tutti_table_stat(agent->table, request->handle, &info.info, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    write_info(&info);
    response.info = &info.message;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static tutti_code
read_page(const Tutti__V1__ListRequest *request, uint32_t *ret_size, uint64_t *ret_after,
          tutti_error *err)
{
    *ret_size = request->page_size == 0 ? PAGE_DEFAULT : request->page_size;
    *ret_after = 0;
    if (*ret_size > PAGE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "PAGE_LIMIT",
                              "pages of %" PRIu32 ", at most %d", *ret_size, PAGE_MAX);
    }
    if (request->page_token[0] != '\0') {
        TUTTI_TRY(tutti_parse_uint(request->page_token, UINT64_MAX - 1, ret_after, err));
    }
    return TUTTI_OK;
}

static uint32_t
gather_page(tutti_agent *agent, uint64_t *after, uint32_t size, wire_info *infos,
            Tutti__V1__TensorInfo **messages)
{
    uint32_t count = 0;
    uint64_t number;

    while (count < size &&
           (number = tutti_table_next(agent->table, *after, &infos[count].info)) != 0) {
        write_info(&infos[count]);
        messages[count] = &infos[count].message;
        *after = number;
        count++;
    }
    return count;
}

void
agent_on_list(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__ListRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__ListResponse response = TUTTI__V1__LIST_RESPONSE__INIT;
    Tutti__V1__TensorInfo **messages = NULL;
    wire_info *infos = NULL;
    char token[32] = "";
    uint64_t after = 0;
    uint32_t size = 0;
    tutti_error err;
    tutti_code code = read_page(request, &size, &after, &err);

    if (code == TUTTI_OK) {
        infos = calloc(size, sizeof(*infos));
        messages = calloc(size, sizeof(Tutti__V1__TensorInfo *));
        if (infos == NULL || messages == NULL) {
            code = TUTTI_FAIL_MEMORY(&err, "no memory for a page");
        }
    }
    if (code == TUTTI_OK) {
        response.n_tensors = gather_page(self, &after, size, infos, messages);
        response.tensors = messages;
        if (response.n_tensors == size) {
            (void)snprintf(token, sizeof(token), "%" PRIu64, after);
        }
        response.next_page_token = token;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    free(infos);
    free(messages);
}
