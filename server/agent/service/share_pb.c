/*
 * TensorsService.Share: lets a client of this machine map a tensor. Bulk loop. docs/decisions/0015.
 */
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/share.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"
#include "tutti/v1/tensors_service.pb-c.h"

static void
turn_share(agent_access *access)
{
    const Tutti__V1__ShareRequest *request = tutti_rpc_call_request(access->call);
    Tutti__V1__ShareResponse response = TUTTI__V1__SHARE_RESPONSE__INIT;
    tutti_agent *agent = access->agent;
    const tutti_lock *lock = &access->lock_set.locks[0];
    const tutti_tensor *tensor;
    agent_shared shared;
    tutti_error err;
    wire_use ref;

    if (agent_share_tensor(agent, lock, request->writable, &shared, &err) != TUTTI_OK) {
        agent_access_fail(access, &err);
        return;
    }
    tensor = tutti_table_tensor(agent->table, lock);
    agent_write_use(access, 0, &tensor->spec, &ref);
    response.tensor = &ref.message;
    response.token = (ProtobufCBinaryData){sizeof(shared.token), shared.token};
    response.socket = (char *)(uintptr_t)shared.socket;
    response.byte_count = tensor->bytes;
    response.host_id = agent->host_id;
    tutti_rpc_call_reply(access->call, &response.base, NULL);
    agent_access_drop(access);
}

static tutti_code
check_share(const tutti_agent *agent, const Tutti__V1__ShareRequest *request, tutti_error *err)
{
    if (agent->share == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "SHARE_OFF",
                              "this agent shares no memory with clients%s",
                              agent->options->no_share ? " (--no-share)" : ": see its log");
    }
    return agent_share_check_host(agent, request->host_id, err);
}

/*
 * An exclusive lock: all calls before this one have ended at its turn, so the bytes may move to
 * memory of their own. The lock ends with the answer; the client keeps its reads apart from ops by
 * itself.
 */
void
agent_on_share(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__ShareRequest *request = tutti_rpc_call_request(call);
    agent_access *access = agent_access_new(self, call, turn_share);
    tutti_error err;
    tutti_code code;

    if (access == NULL) {
        return;
    }
    code = check_share(access->agent, request, &err);
    if (code == TUTTI_OK) {
        code = tutti_table_lock_by_name(access->agent->table, &access->lock_set, request->handle,
                                        true, &err);
    }
    if (code != TUTTI_OK) {
        agent_access_fail(access, &err);
        return;
    }
    agent_access_go(access);
}
