/*
 * etcd by its own messages, over lib/rpc as Tutti's own calls: the same client library on both sides. An Add
 * is a transaction that compares the revision of the counter's last change: one round trip, as nobody else
 * changes it. Gets are linearizable, as etcd has them by default.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/store/peer.h"
#include "etcd/rpc.pb-c.h"
#include "rpc/channel.h"

typedef struct etcd_peer {
    tutti_rpc_channel *channel;
    char key[64];
    char counter[72];
    int64_t revision; /* of the counter's last change; 0 = it is not there */
    int64_t number;
} etcd_peer;

static const tutti_rpc_stub stub_range = {&etcdserverpb__kv__descriptor, "Range"};
static const tutti_rpc_stub stub_txn = {&etcdserverpb__kv__descriptor, "Txn"};
static const tutti_rpc_call_options none = {.wait_for_ready = true};

static ProtobufCBinaryData
bytes_for(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = (unsigned char *)(uintptr_t)text};
}

/* A transaction of one put, with the comparison or without: store/etcd's protos have no other put.
 * [out] ret_revision  of the put; 0 = the comparison did not hold */
static tutti_code
run_put(const etcd_peer *self, const char *key, const char *value, Etcdserverpb__Compare *compare,
        int64_t *ret_revision, tutti_error *err)
{
    Etcdserverpb__TxnRequest request = ETCDSERVERPB__TXN_REQUEST__INIT;
    Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT;
    Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
    Etcdserverpb__RequestOp *ops[] = {&op};
    const Etcdserverpb__TxnResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    put.key = bytes_for(key);
    put.value = bytes_for(value);
    op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
    op.request_put = &put;
    request.n_compare = compare == NULL ? 0 : 1;
    request.compare = &compare;
    request.n_success = 1;
    request.success = ops;
    code = tutti_rpc_invoke(self->channel, &stub_txn, &request.base, NULL, &none, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        *ret_revision = response->succeeded ? response->header->revision : 0;
        tutti_rpc_message_free(message);
    }
    return code;
}

static tutti_code
put_key(const etcd_peer *self, tutti_error *err)
{
    int64_t revision = 0;

    return run_put(self, self->key, PEER_VALUE, NULL, &revision, err);
}

static tutti_code
get_key(const etcd_peer *self, tutti_error *err)
{
    Etcdserverpb__RangeRequest request = ETCDSERVERPB__RANGE_REQUEST__INIT;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.key = bytes_for(self->key);
    code = tutti_rpc_invoke(self->channel, &stub_range, &request.base, NULL, &none, &message, err);
    if (code == TUTTI_OK) {
        tutti_rpc_message_free(message);
    }
    return code;
}

static tutti_code
add_one(etcd_peer *self, tutti_error *err)
{
    Etcdserverpb__Compare compare = ETCDSERVERPB__COMPARE__INIT;
    char value[24];
    tutti_code code;

    (void)snprintf(value, sizeof(value), "%lld", (long long)self->number + 1);
    compare.result = ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL;
    compare.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD;
    compare.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION;
    compare.mod_revision = self->revision;
    compare.key = bytes_for(self->counter);
    code = run_put(self, self->counter, value, &compare, &self->revision, err);
    if (code == TUTTI_OK && self->revision == 0) {
        (void)fprintf(stderr, "bench_store: somebody else has changed %s\n", self->counter);
        exit(1);
    }
    self->number++;
    return code;
}

static tutti_code
call_etcd(void *client, peer_op op, tutti_error *err)
{
    etcd_peer *self = client;

    switch (op) {
    case PEER_SET:
        return put_key(self, err);
    case PEER_GET:
        return get_key(self, err);
    case PEER_ADD:
        break;
    }
    return add_one(self, err);
}

static tutti_code
open_etcd_peer(const char *address, const char *key, void **ret_client, tutti_error *err)
{
    static const tutti_rpc_channel_options own = {.bulk = true}; /* a connection of its own */
    etcd_peer *self = calloc(1, sizeof(*self));
    tutti_code code;

    (void)snprintf(self->key, sizeof(self->key), "%s", key);
    (void)snprintf(self->counter, sizeof(self->counter), "%s.%d.n", key, rand());
    code = tutti_rpc_channel_open(address, &own, &self->channel, err);
    if (code == TUTTI_OK) {
        code = put_key(self, err);
    }
    *ret_client = self;
    return code;
}

static void
close_etcd_peer(void *client)
{
    etcd_peer *self = client;

    tutti_rpc_channel_close(self->channel);
    free(self);
}

const peer peer_etcd = {
    .name = "etcd", .open = open_etcd_peer, .call = call_etcd, .close = close_etcd_peer};
