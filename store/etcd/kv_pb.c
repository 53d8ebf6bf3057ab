/* Transactions and ranges as etcd's messages. A transaction's structs are built in arrays of the
 * largest size, since etcd takes 128 operations at most. */
#include <assert.h>

#include "base/error/fail.h"
#include "store/etcd/call_pb.h"

#define OPS_MAX 128

static const tutti_rpc_stub kv_txn = {&etcdserverpb__kv__descriptor, "Txn"};
static const tutti_rpc_stub kv_range = {&etcdserverpb__kv__descriptor, "Range"};

typedef struct txn_parts {
    Etcdserverpb__Compare compares[2];
    Etcdserverpb__Compare *compare_list[2];
    Etcdserverpb__RequestOp ops[OPS_MAX];
    Etcdserverpb__RequestOp *op_list[OPS_MAX];
    union {
        Etcdserverpb__PutRequest put;
        Etcdserverpb__DeleteRangeRequest remove;
    } requests[OPS_MAX];
    unsigned char end[ETCD_KEY_MAX]; /* of the one prefix that may be deleted */
} txn_parts;

static void
fill_compare(const etcd_compare *from, Etcdserverpb__Compare *to)
{
    etcdserverpb__compare__init(to);
    to->result = ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL;
    to->key = etcd_binary(from->key);
    if (from->value.size == 0) {
        to->target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE;
        to->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION;
        to->create_revision = from->revision;
    } else {
        to->target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE;
        to->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE;
        to->value = etcd_binary(from->value);
    }
}

static void
fill_put(const etcd_op *from, Etcdserverpb__PutRequest *put, Etcdserverpb__RequestOp *to)
{
    etcdserverpb__put_request__init(put);
    put->key = etcd_binary(from->key);
    put->value = etcd_binary(from->value);
    put->lease = from->lease;
    to->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
    to->request_put = put;
}

static void
fill_delete(const etcd_op *from, Etcdserverpb__DeleteRangeRequest *remove, unsigned char *end,
            Etcdserverpb__RequestOp *to)
{
    etcdserverpb__delete_range_request__init(remove);
    remove->key = etcd_binary(from->key);
    if (from->kind == ETCD_DELETE_PREFIX) {
        remove->range_end = etcd_binary(etcd_key_end(end, from->key));
    }
    to->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
    to->request_delete_range = remove;
}

static void
fill_txn_message(const etcd_txn *txn, txn_parts *parts, Etcdserverpb__TxnRequest *request)
{
    size_t i;

    assert(txn->op_count <= OPS_MAX);
    etcdserverpb__txn_request__init(request);
    for (i = 0; i < txn->compare_count; i++) {
        fill_compare(&txn->compares[i], &parts->compares[i]);
        parts->compare_list[i] = &parts->compares[i];
    }
    for (i = 0; i < txn->op_count; i++) {
        etcdserverpb__request_op__init(&parts->ops[i]);
        parts->op_list[i] = &parts->ops[i];
        if (txn->ops[i].kind == ETCD_PUT) {
            fill_put(&txn->ops[i], &parts->requests[i].put, &parts->ops[i]);
        } else {
            fill_delete(&txn->ops[i], &parts->requests[i].remove, parts->end, &parts->ops[i]);
        }
    }
    request->n_compare = txn->compare_count;
    request->compare = parts->compare_list;
    request->n_success = txn->op_count;
    request->success = parts->op_list;
}

static tutti_code
fail_header(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                          "etcd answered without a revision: is it etcd?");
}

tutti_code
etcd_txn_run(tutti_etcd *etcd, const etcd_txn *txn, uint64_t until_ns, bool *ret_done,
             int64_t *ret_revision, tutti_error *err)
{
    Etcdserverpb__TxnRequest request;
    const Etcdserverpb__TxnResponse *response;
    tutti_rpc_message *message = NULL;
    txn_parts parts;
    tutti_code code = TUTTI_OK;

    fill_txn_message(txn, &parts, &request);
    TUTTI_TRY(etcd_invoke(etcd, &kv_txn, &request.base, until_ns, &message, err));
    response = tutti_rpc_message_get(message);
    if (response->header == NULL) {
        code = fail_header(err);
    } else {
        *ret_done = response->succeeded;
        *ret_revision = response->header->revision;
    }
    tutti_rpc_message_free(message);
    return code;
}

static tutti_code
give_rows(const Etcdserverpb__RangeResponse *response,
          tutti_code (*on_row)(void *arg, const etcd_row *row, tutti_error *err), void *arg,
          tutti_error *err)
{
    size_t i;

    for (i = 0; i < response->n_kvs; i++) {
        const Etcdserverpb__KeyValue *kv = response->kvs[i];
        const etcd_row row = {.key = etcd_bytes(kv->key),
                              .value = etcd_bytes(kv->value),
                              .create_revision = kv->create_revision};

        TUTTI_TRY(on_row(arg, &row, err));
    }
    return TUTTI_OK;
}

tutti_code
etcd_range_run(tutti_etcd *etcd, const etcd_range *range, uint64_t until_ns,
               tutti_code (*on_row)(void *arg, const etcd_row *row, tutti_error *err), void *arg,
               bool *ret_more, int64_t *ret_revision, tutti_error *err)
{
    Etcdserverpb__RangeRequest request = ETCDSERVERPB__RANGE_REQUEST__INIT;
    const Etcdserverpb__RangeResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.key = etcd_binary(range->from);
    request.range_end = etcd_binary(range->end);
    request.limit = range->limit;
    request.revision = range->revision;
    TUTTI_TRY(etcd_invoke(etcd, &kv_range, &request.base, until_ns, &message, err));
    response = tutti_rpc_message_get(message);
    code = response->header == NULL ? fail_header(err) : give_rows(response, on_row, arg, err);
    if (code == TUTTI_OK && ret_more != NULL) {
        *ret_more = response->more;
    }
    if (code == TUTTI_OK && ret_revision != NULL) {
        *ret_revision = response->header->revision;
    }
    tutti_rpc_message_free(message);
    return code;
}
