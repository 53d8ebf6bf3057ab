/* Leases and the watch of one key. Each renewal is a stream of one message to and fro: a stream that
 * stayed open would have to be watched for silence as well. */
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "store/etcd/call_pb.h"

#define REVOKE_NS TUTTI_NS_PER_S
#define LOOK_NS (100 * TUTTI_NS_PER_MS)

static const tutti_rpc_stub lease_grant = {&etcdserverpb__lease__descriptor, "LeaseGrant"};
static const tutti_rpc_stub lease_revoke = {&etcdserverpb__lease__descriptor, "LeaseRevoke"};
static const tutti_rpc_stub lease_keep = {&etcdserverpb__lease__descriptor, "LeaseKeepAlive"};
static const tutti_rpc_stub watch = {&etcdserverpb__watch__descriptor, "Watch"};

tutti_code
etcd_lease_grant(tutti_etcd *etcd, uint64_t until_ns, int64_t *ret_lease, uint64_t *ret_ttl_ns,
                 tutti_error *err)
{
    Etcdserverpb__LeaseGrantRequest request = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
    const Etcdserverpb__LeaseGrantResponse *response;
    tutti_rpc_message *message = NULL;

    request.ttl = (int64_t)(etcd->lease_ns / TUTTI_NS_PER_S);
    TUTTI_TRY(etcd_invoke(etcd, &lease_grant, &request.base, until_ns, &message, err));
    response = tutti_rpc_message_get(message);
    *ret_lease = response->id;
    *ret_ttl_ns = response->ttl <= 0 ? 0 : (uint64_t)response->ttl * TUTTI_NS_PER_S;
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

void
etcd_lease_revoke(tutti_etcd *etcd, int64_t lease)
{
    Etcdserverpb__LeaseRevokeRequest request = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
    tutti_rpc_message *message = NULL;

    request.id = lease;
    if (lease != 0 &&
        etcd_invoke(etcd, &lease_revoke, &request.base,
                    tutti_clock_add(tutti_clock_ns(), REVOKE_NS), &message, NULL) == TUTTI_OK) {
        tutti_rpc_message_free(message);
    }
}

/* A stream at the present member, with its first message. */
static tutti_code
open_lease_stream(tutti_etcd *etcd, const tutti_rpc_stub *stub,
                  const struct ProtobufCMessage *first, uint64_t until_ns,
                  tutti_rpc_stream **ret_stream, size_t *ret_number, tutti_error *err)
{
    tutti_rpc_channel *member = etcd_member(etcd, ret_number);
    tutti_rpc_call_options options = {.deadline_ns = until_ns, .wait_for_ready = true};
    char token[ETCD_TOKEN_MAX];
    tutti_code code;

    TUTTI_TRY(etcd_show_user(etcd, member, token, &options, err));
    TUTTI_TRY(tutti_rpc_stream_open(member, stub, &options, ret_stream, err));
    code = tutti_rpc_stream_write(*ret_stream, first, NULL, err);
    if (code != TUTTI_OK) {
        (void)tutti_rpc_stream_finish(*ret_stream, err);
    }
    return code;
}

static tutti_code
keep_once(tutti_etcd *etcd, int64_t lease, uint64_t until_ns, uint64_t *ret_ttl_ns,
          size_t *ret_number, tutti_error *err)
{
    Etcdserverpb__LeaseKeepAliveRequest request = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    tutti_rpc_stream *stream = NULL;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.id = lease;
    TUTTI_TRY(
        open_lease_stream(etcd, &lease_keep, &request.base, until_ns, &stream, ret_number, err));
    code = tutti_rpc_stream_read(stream, &message, err);
    if (code == TUTTI_OK && message != NULL) {
        const Etcdserverpb__LeaseKeepAliveResponse *response = tutti_rpc_message_get(message);

        *ret_ttl_ns = response->ttl <= 0 ? 0 : (uint64_t)response->ttl * TUTTI_NS_PER_S;
        tutti_rpc_message_free(message);
        tutti_rpc_stream_cancel(stream);
        (void)tutti_rpc_stream_finish(stream, NULL);
        return TUTTI_OK;
    }
    code = tutti_rpc_stream_finish(stream, err);
    return code != TUTTI_OK ? code
                            : TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                                             "the lease's stream has ended");
}

tutti_code
etcd_lease_keep(tutti_etcd *etcd, int64_t lease, uint64_t until_ns, uint64_t *ret_ttl_ns,
                tutti_error *err)
{
    tutti_error said = {0};
    size_t number = 0;
    tutti_code code;

    if (keep_once(etcd, lease, until_ns, ret_ttl_ns, &number, &said) == TUTTI_OK) {
        return TUTTI_OK;
    }
    code = etcd_explain(&said, err);
    if (code == TUTTI_UNAUTHENTICATED) {
        etcd_token_set(etcd, "");
    } else {
        etcd_member_failed(etcd, number);
    }
    return code;
}

/* Is the wait over: the key was deleted, or the watch has ended? */
static bool
is_deleted(const Etcdserverpb__WatchResponse *response)
{
    size_t i;

    for (i = 0; i < response->n_events; i++) {
        if (response->events[i]->type == ETCDSERVERPB__EVENT__EVENT_TYPE__DELETE) {
            return true;
        }
    }
    return response->canceled;
}

/* One message, or the time is up, or we stop. False: nothing more will come. */
static bool
wait_for_event(tutti_etcd *etcd, tutti_rpc_stream *stream, uint64_t until_ns)
{
    tutti_rpc_message *message = NULL;
    bool over;

    for (;;) {
        const uint64_t now_ns = tutti_clock_ns();

        if (now_ns >= until_ns || atomic_load(&etcd->stopping)) {
            return false;
        }
        if (tutti_rpc_stream_wait(stream, tutti_clock_add(now_ns, LOOK_NS))) {
            break;
        }
    }
    if (tutti_rpc_stream_read(stream, &message, NULL) != TUTTI_OK || message == NULL) {
        return false;
    }
    over = is_deleted(tutti_rpc_message_get(message));
    tutti_rpc_message_free(message);
    return !over;
}

void
etcd_watch_deleted(tutti_etcd *etcd, tutti_bytes key, int64_t revision, uint64_t until_ns)
{
    Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
    Etcdserverpb__WatchRequest request = ETCDSERVERPB__WATCH_REQUEST__INIT;
    tutti_rpc_stream *stream = NULL;
    size_t number = 0;

    create.key = etcd_binary(key);
    create.start_revision = revision;
    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
    request.create_request = &create;
    if (open_lease_stream(etcd, &watch, &request.base, until_ns, &stream, &number, NULL) !=
        TUTTI_OK) {
        return;
    }
    while (wait_for_event(etcd, stream, until_ns)) {
    }
    tutti_rpc_stream_cancel(stream);
    (void)tutti_rpc_stream_finish(stream, NULL);
}
