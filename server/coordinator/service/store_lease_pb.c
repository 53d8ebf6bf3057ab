/* StoreService: leases. None of these calls waits. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/service/service_loop.h"
#include "server/coordinator/service/store_pb.h"

/* Rounded up, so that a lease which has not ended does not say 0; what does not fit is cut. */
static uint32_t
ms_to_wire(uint64_t ns)
{
    const uint64_t ms = ns / TUTTI_NS_PER_MS + (ns % TUTTI_NS_PER_MS != 0 ? 1 : 0);

    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static void
lease_to_wire(const tutti_coordinator_lease *lease, Tutti__V1__KeyLease *ret_wire)
{
    tutti__v1__key_lease__init(ret_wire);
    ret_wire->lease = lease->id;
    ret_wire->ttl_ms = ms_to_wire(lease->ttl_ns);
    ret_wire->left_ms = ms_to_wire(lease->left_ns);
    ret_wire->key_count = lease->key_count;
}

void
coord_on_grant(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceGrantRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceGrantResponse response = TUTTI__V1__STORE_SERVICE_GRANT_RESPONSE__INIT;
    tutti_coordinator_lease lease = {0};
    Tutti__V1__KeyLease told;
    tutti_error err;
    const tutti_code code =
        tutti_coordinator_lease_grant(service_loop_enter(arg), wire->job, wire->lease,
                                      wire->ttl_ms * TUTTI_NS_PER_MS, &lease, &err);

    lease_to_wire(&lease, &told);
    response.lease = &told;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

void
coord_on_keep_alive(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceKeepAliveRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceKeepAliveResponse response =
        TUTTI__V1__STORE_SERVICE_KEEP_ALIVE_RESPONSE__INIT;
    tutti_coordinator_lease lease = {0};
    Tutti__V1__KeyLease told;
    tutti_error err;
    const tutti_code code =
        tutti_coordinator_lease_keep(service_loop_enter(arg), wire->job, wire->lease, &lease, &err);

    lease_to_wire(&lease, &told);
    response.lease = &told;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

void
coord_on_revoke(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceRevokeRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceRevokeResponse response = TUTTI__V1__STORE_SERVICE_REVOKE_RESPONSE__INIT;
    bool existed = false;
    tutti_error err;
    const tutti_code code = tutti_coordinator_lease_revoke(
        service_loop_enter(arg), wire->job, wire->lease, &existed, &response.key_count, &err);

    response.existed = existed;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

static void
reply_leases(tutti_rpc_call *call, const tutti_coordinator_lease *leases, size_t count, bool more)
{
    Tutti__V1__StoreServiceLeasesResponse response = TUTTI__V1__STORE_SERVICE_LEASES_RESPONSE__INIT;
    Tutti__V1__KeyLease wire[TUTTI_COORDINATOR_LEASE_PAGE];
    Tutti__V1__KeyLease *pointers[TUTTI_COORDINATOR_LEASE_PAGE];
    size_t i;

    for (i = 0; i < count; i++) {
        lease_to_wire(&leases[i], &wire[i]);
        pointers[i] = &wire[i];
    }
    response.n_leases = count;
    response.leases = pointers;
    response.more = more;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

void
coord_on_leases(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceLeasesRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator_lease leases[TUTTI_COORDINATOR_LEASE_PAGE];
    size_t count = 0;
    bool more = false;
    tutti_error err;

    if (tutti_coordinator_lease_list(service_loop_enter(arg), wire->job, wire->after, leases,
                                     &count, &more, &err) == TUTTI_OK) {
        reply_leases(call, leases, count, more);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}
