/*
 * StoreService: leases. All of these calls may be made again: the number of a lease is drawn here, so
 * a repeated Grant finds the lease of the first one.
 */
#include "base/data/id.h"
#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/coordinator.h"
#include "client/conn/types_pb.h"
#include "tutti/store.h"
#include "tutti/v1/store_service.pb-c.h"

#define SERVICE (&tutti__v1__store_service__descriptor)

static const tutti_rpc_stub stub_grant = {SERVICE, "Grant"};
static const tutti_rpc_stub stub_keep = {SERVICE, "KeepAlive"};
static const tutti_rpc_stub stub_revoke = {SERVICE, "Revoke"};
static const tutti_rpc_stub stub_leases = {SERVICE, "Leases"};

static tutti_kv_lease
read_key_lease(const Tutti__V1__KeyLease *wire)
{
    if (wire == NULL) {
        return (tutti_kv_lease){0};
    }
    return (tutti_kv_lease){.id = wire->lease,
                            .ttl_ms = wire->ttl_ms,
                            .left_ms = wire->left_ms,
                            .key_count = wire->key_count};
}

tutti_code
tutti_kv_lease_grant(tutti_client *client, uint32_t ttl_ms, tutti_kv_lease *ret_lease,
                     tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_lease, err);

    Tutti__V1__StoreServiceGrantRequest request = TUTTI__V1__STORE_SERVICE_GRANT_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_grant);
    const Tutti__V1__StoreServiceGrantResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.lease = tutti_id_draw();
    request.ttl_ms = ttl_ms;
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    *ret_lease = read_key_lease(response->lease);
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

tutti_code
tutti_kv_lease_keep(tutti_client *client, uint64_t lease, tutti_kv_lease *ret_lease,
                    tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__StoreServiceKeepAliveRequest request =
        TUTTI__V1__STORE_SERVICE_KEEP_ALIVE_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_keep);
    const Tutti__V1__StoreServiceKeepAliveResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.lease = lease;
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    if (ret_lease != NULL) {
        *ret_lease = read_key_lease(response->lease);
    }
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

tutti_code
tutti_kv_lease_revoke(tutti_client *client, uint64_t lease, bool *ret_existed,
                      uint64_t *ret_key_count, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__StoreServiceRevokeRequest request = TUTTI__V1__STORE_SERVICE_REVOKE_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_revoke);
    const Tutti__V1__StoreServiceRevokeResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.lease = lease;
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    if (ret_existed != NULL) {
        *ret_existed = response->existed;
    }
    if (ret_key_count != NULL) {
        *ret_key_count = response->key_count;
    }
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

/* One page; *ret_after is the last lease of it, 0 when there is no more to ask for. */
static tutti_code
list_leases_page(tutti_client *client, uint64_t *ret_after, tutti_kv_lease_fn on_lease, void *arg,
                 tutti_error *err)
{
    Tutti__V1__StoreServiceLeasesRequest request = TUTTI__V1__STORE_SERVICE_LEASES_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_leases);
    const Tutti__V1__StoreServiceLeasesResponse *page;
    tutti_rpc_message *message = NULL;
    bool enough = false;
    size_t i;

    request.job = client_write_text(client_job(client));
    request.after = *ret_after;
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    page = tutti_rpc_message_get(message);
    *ret_after = page->more && page->n_leases > 0 ? page->leases[page->n_leases - 1]->lease : 0;
    for (i = 0; i < page->n_leases && !enough; i++) {
        const tutti_kv_lease lease = read_key_lease(page->leases[i]);

        enough = !on_lease(arg, &lease);
    }
    *ret_after = enough ? 0 : *ret_after;
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

tutti_code
tutti_kv_lease_list(tutti_client *client, tutti_kv_lease_fn on_lease, void *arg, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(on_lease, err);

    uint64_t after = 0;

    do {
        TUTTI_TRY(list_leases_page(client, &after, on_lease, arg, err));
    } while (after != 0);
    return TUTTI_OK;
}
