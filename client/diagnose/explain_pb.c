/* DiagnosticsService.Explain and SetAlgorithms. */
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/coordinator.h"
#include "client/conn/types_pb.h"
#include "tutti/algorithms.h"
#include "tutti/v1/diagnostics_service.pb-c.h"

#define SERVICE (&tutti__v1__diagnostics_service__descriptor)
#define HOSTS_TIMEOUT_MS 2000

static const tutti_rpc_stub stub_explain = {SERVICE, "Explain"};
static const tutti_rpc_stub stub_set = {SERVICE, "SetAlgorithms"};

static void
read_alternatives(const Tutti__V1__ExplainResponse *response, tutti_explanation *ret)
{
    size_t i;

    for (i = 0; i < response->n_alternatives && i < TUTTI_ALGORITHMS_MAX; i++) {
        const Tutti__V1__Alternative *message = response->alternatives[i];
        tutti_alternative *one = &ret->alternatives[i];

        client_read_text(message->algorithm, one->algorithm, sizeof(one->algorithm));
        client_read_text(message->why_not, one->why_not, sizeof(one->why_not));
        one->possible = message->possible;
        one->predicted_ns = message->predicted_ns;
        one->keeps_order = message->keeps_order;
    }
    ret->alternative_count = i;
}

static void
read_explanation(const Tutti__V1__ExplainResponse *response, tutti_explanation *ret)
{
    *ret = (tutti_explanation){.rule_number = response->rule_number,
                               .rule_count = response->rule_count,
                               .rank_count = response->rank_count,
                               .host_count = response->host_count,
                               .settled = response->settled,
                               .same_host = response->same_host,
                               .alike = response->alike};
    client_read_text(response->algorithm, ret->algorithm, sizeof(ret->algorithm));
    client_read_text(response->why, ret->why, sizeof(ret->why));
    client_read_text(response->rule, ret->rule, sizeof(ret->rule));
    client_read_text(response->table, ret->table, sizeof(ret->table));
    client_read_text(response->order_class, ret->order_class, sizeof(ret->order_class));
    client_read_text(response->passed_over, ret->passed_over, sizeof(ret->passed_over));
    read_alternatives(response, ret);
}

/* [in] host_count  0 = the agent is to take what it knows itself */
static tutti_code
ask_explanation(tutti_client *client, const tutti_explain_question *question, uint32_t host_count,
                tutti_explanation *ret_explanation, tutti_error *err)
{
    Tutti__V1__ExplainRequest request = TUTTI__V1__EXPLAIN_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_explain, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};
    tutti_rpc_message *message = NULL;

    request.op = client_write_text(question->op);
    request.group = client_write_text(question->group);
    request.bytes = question->bytes;
    request.dtype = (Tutti__V1__Dtype)question->dtype;
    request.reduce_op = (Tutti__V1__ReduceOp)question->reduce;
    request.host_count = host_count;
    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    read_explanation(tutti_rpc_message_get(message), ret_explanation);
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

/* Agents learn hosts with the first op of a group; the coordinator knows them before. When it does
 * not answer, the first answer stands: it says that hosts are not known. */
tutti_code
tutti_explain(tutti_client *client, const tutti_explain_question *question,
              tutti_explanation *ret_explanation, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_explanation, err);
    TUTTI_NEED(question, err);

    const bool world = question->group == NULL || question->group[0] == '\0' ||
                       strcmp(question->group, "world") == 0;
    tutti_explanation why;
    uint32_t hosts = 0;

    TUTTI_TRY(ask_explanation(client, question, 0, &why, err));

    if (world && !why.settled && why.rank_count > 1 &&
        client_wire_host_count(client, why.rank_count, client_deadline(client, HOSTS_TIMEOUT_MS),
                               &hosts, NULL) == TUTTI_OK) {
        TUTTI_TRY(ask_explanation(client, question, hosts, &why, err));
    }
    *ret_explanation = why;
    return TUTTI_OK;
}

tutti_code
tutti_algorithms_set(tutti_client *client, const char *table, const char *forced, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__SetAlgorithmsRequest request = TUTTI__V1__SET_ALGORITHMS_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_set, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};
    tutti_rpc_message *message = NULL;

    request.table = client_write_text(table);
    request.forced = client_write_text(forced);
    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}
