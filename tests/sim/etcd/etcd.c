/*
 * All records that a key has ever had are kept, also compacted ones, so a snapshot is a revision: to go back to it is to
 * drop what is behind it.
 */
#include "sim/etcd/etcd.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/list.h"
#include "base/data/map.h"
#include "base/error/fail.h"
#include "base/os/clock.h"

#define OPS_MAX 128
#define REQUEST_BYTES_MAX 1572864u
#define TTL_MIN 2
#define LOOK_NS (500 * TUTTI_NS_PER_MS) /* how often etcd looks for leases that are over */
#define ELECTION_NS TUTTI_NS_PER_S
#define CLUSTER_ID 0xcdf818194e3a8c32ULL
#define MEMBER_ID 0x8e9e05c52164694dULL

/* What a key was, from a revision on. */
typedef struct record {
    int64_t mod;
    int64_t create; /* 0 = deleted */
    int64_t version;
    int64_t lease;
    unsigned char *value; /* [owned] */
    size_t size;
} record;

typedef struct entry {
    tutti_map_node node;
    record *records; /* [owned] */
    size_t count;
    unsigned char key[];
} entry;

typedef struct lease {
    tutti_list_node link;
    int64_t id;
    int64_t ttl;
    uint64_t ends_ns;
} lease;

/* A change, in the order in which they were made. */
typedef struct change {
    int64_t mod;
    entry *entry;
    size_t record; /* of the entry */
} change;

struct sim_etcd {
    tutti_map entries;
    change *changes; /* [owned] */
    size_t change_count;
    tutti_list_node leases;
    tutti_list_node watches;
    int64_t revision;
    int64_t compacted;
    int64_t next_id;
    uint64_t began_ns;
    uint64_t leads_from_ns;
    bool leads;
    bool is_full;
};

struct sim_etcd_watch {
    tutti_list_node link;
    sim_etcd *etcd;
    unsigned char *key; /* [owned] and the range's end behind it */
    size_t key_size;
    size_t end_size;
    int64_t next; /* revision */
    bool told_begin;
    bool is_over;
    bool is_broken;
};

struct sim_etcd_snapshot {
    int64_t revision;
    int64_t compacted;
    size_t lease_count;
    lease leases[];
};

/* ------------------------------------------------------------------------------ memory, words */

static void *
take(size_t size)
{
    void *memory = calloc(1, size == 0 ? 1 : size);

    assert(memory != NULL);
    return memory;
}

static tutti_code
fail(tutti_error *err, tutti_code code, const char *text)
{
    return TUTTI_FAIL_FOR(err, code, "", "%s", text);
}

static Etcdserverpb__ResponseHeader *
header_of(const sim_etcd *self)
{
    Etcdserverpb__ResponseHeader *header = take(sizeof(*header));

    etcdserverpb__response_header__init(header);
    header->cluster_id = CLUSTER_ID;
    header->member_id = MEMBER_ID;
    header->revision = self->revision;
    header->raft_term = 2;
    return header;
}

static ProtobufCBinaryData
copy_of(const void *data, size_t size)
{
    ProtobufCBinaryData copy = {.len = size};

    if (size > 0) {
        copy.data = take(size);
        memcpy(copy.data, data, size);
    }
    return copy;
}

/* ------------------------------------------------------------------------------ keys */

static entry *
entry_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, entry, node);
}

static entry *
need_entry(sim_etcd *self, ProtobufCBinaryData key)
{
    const tutti_bytes bytes = {key.data, key.len};
    entry *one = entry_from(tutti_map_find(&self->entries, bytes));

    if (one == NULL) {
        one = take(sizeof(*one) + key.len);
        memcpy(one->key, key.data, key.len);
        one->node.key = (tutti_bytes){one->key, key.len};
        (void)tutti_map_add(&self->entries, &one->node);
    }
    return one;
}

/* NULL: it was not there at this revision. */
static const record *
record_at(const entry *one, int64_t revision)
{
    size_t i = one == NULL ? 0 : one->count;

    while (i > 0 && one->records[i - 1].mod > revision) {
        i--;
    }
    return i == 0 || one->records[i - 1].create == 0 ? NULL : &one->records[i - 1];
}

/* By all that is written so far, a transaction under way included. */
static const record *
record_now(const entry *one)
{
    return record_at(one, INT64_MAX);
}

static record *
add_record(sim_etcd *self, entry *one, int64_t mod)
{
    one->records = realloc(one->records, (one->count + 1) * sizeof(record));
    self->changes = realloc(self->changes, (self->change_count + 1) * sizeof(change));
    assert(one->records != NULL && self->changes != NULL);
    self->changes[self->change_count++] = (change){.mod = mod, .entry = one, .record = one->count};
    one->records[one->count] = (record){.mod = mod};
    return &one->records[one->count++];
}

static void
put(sim_etcd *self, const Etcdserverpb__PutRequest *request, int64_t mod)
{
    entry *one = need_entry(self, request->key);
    const record *before = record_now(one);
    record now = {.mod = mod,
                  .create = before == NULL ? mod : before->create,
                  .version = before == NULL ? 1 : before->version + 1,
                  .lease = request->lease,
                  .size = request->value.len};

    now.value = copy_of(request->value.data, request->value.len).data;
    *add_record(self, one, mod) = now;
}

/* An end of one zero byte: all keys from the first on. */
static bool
is_all(tutti_bytes end)
{
    return end.size == 1 && *(const unsigned char *)end.data == 0;
}

static bool
is_in(tutti_bytes key, tutti_bytes from, tutti_bytes end)
{
    if (end.size == 0) {
        return tutti_bytes_equal(key, from);
    }
    return tutti_bytes_compare(key, from) >= 0 &&
           (is_all(end) || tutti_bytes_compare(key, end) < 0);
}

static tutti_bytes
bytes_of(ProtobufCBinaryData data)
{
    return (tutti_bytes){data.data, data.len};
}

static int64_t
delete_range(sim_etcd *self, tutti_bytes from, tutti_bytes end, int64_t mod)
{
    tutti_map_node *node = tutti_map_from(&self->entries, from);
    int64_t count = 0;

    for (; node != NULL && is_in(node->key, from, end); node = tutti_map_next(node)) {
        entry *one = entry_from(node);

        if (record_now(one) != NULL) {
            (void)add_record(self, one, mod);
            count++;
        }
    }
    return count;
}

/* ------------------------------------------------------------------------------ range */

static Etcdserverpb__KeyValue *
key_value(const entry *one, const record *now)
{
    Etcdserverpb__KeyValue *kv = take(sizeof(*kv));

    etcdserverpb__key_value__init(kv);
    kv->key = copy_of(one->key, one->node.key.size);
    kv->mod_revision = now->mod;
    kv->create_revision = now->create;
    kv->version = now->version;
    kv->lease = now->lease;
    kv->value = copy_of(now->value, now->size);
    return kv;
}

static tutti_code
check_revision(const sim_etcd *self, int64_t revision, tutti_error *err)
{
    if (revision > self->revision) {
        return fail(err, TUTTI_OUT_OF_RANGE,
                    "etcdserver: mvcc: required revision is a future revision");
    }
    if (revision > 0 && revision < self->compacted) {
        return fail(err, TUTTI_OUT_OF_RANGE,
                    "etcdserver: mvcc: required revision has been compacted");
    }
    return TUTTI_OK;
}

static Etcdserverpb__RangeResponse *
read_range(sim_etcd *self, const Etcdserverpb__RangeRequest *request)
{
    Etcdserverpb__RangeResponse *response = take(sizeof(*response));
    const tutti_bytes from = bytes_of(request->key);
    const tutti_bytes end = bytes_of(request->range_end);
    const int64_t revision = request->revision > 0 ? request->revision : INT64_MAX;
    tutti_map_node *node = tutti_map_from(&self->entries, from);

    etcdserverpb__range_response__init(response);
    response->header = header_of(self);
    response->kvs = take((self->entries.count + 1) * sizeof(response->kvs[0]));
    for (; node != NULL && is_in(node->key, from, end); node = tutti_map_next(node)) {
        const entry *one = entry_from(node);
        const record *then = record_at(one, revision);

        if (then == NULL) {
            continue;
        }
        response->count++;
        if (request->limit <= 0 || (int64_t)response->n_kvs < request->limit) {
            response->kvs[response->n_kvs++] = key_value(one, then);
        }
    }
    response->more = (int64_t)response->n_kvs < response->count;
    return response;
}

static tutti_code
on_range(sim_etcd *self, const Etcdserverpb__RangeRequest *request, ProtobufCMessage **ret_response,
         tutti_error *err)
{
    if (request->key.len == 0) {
        return fail(err, TUTTI_INVALID_ARGUMENT, "etcdserver: key is not provided");
    }
    TUTTI_TRY(check_revision(self, request->revision, err));
    *ret_response = &read_range(self, request)->base;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ leases */

static lease *
find_lease(const sim_etcd *self, int64_t id)
{
    tutti_list_node *at;

    for (at = self->leases.next; at != &self->leases; at = at->next) {
        lease *one = tutti_container_of(at, lease, link);

        if (one->id == id) {
            return one;
        }
    }
    return NULL;
}

static void
begin_time(lease *one, uint64_t now_ns)
{
    one->ends_ns = now_ns + (uint64_t)one->ttl * TUTTI_NS_PER_S;
}

/* All keys of it go in one revision. */
static void
end_lease(sim_etcd *self, lease *one)
{
    tutti_map_node *node = tutti_map_first(&self->entries);
    const size_t before = self->change_count;

    for (; node != NULL; node = tutti_map_next(node)) {
        const record *now = record_now(entry_from(node));

        if (now != NULL && now->lease == one->id) {
            (void)add_record(self, entry_from(node), self->revision + 1);
        }
    }
    self->revision += self->change_count > before ? 1 : 0;
    tutti_list_remove(&one->link);
    free(one);
}

/* When it is looked at, behind its end. */
static uint64_t
seen_over_ns(const sim_etcd *self, const lease *one)
{
    return self->began_ns + ((one->ends_ns - self->began_ns) / LOOK_NS + 1) * LOOK_NS;
}

static void
begin_leading(sim_etcd *self)
{
    tutti_list_node *at;

    self->leads = true;
    for (at = self->leases.next; at != &self->leases; at = at->next) {
        begin_time(tutti_container_of(at, lease, link), self->leads_from_ns + ELECTION_NS);
    }
}

void
sim_etcd_tick(sim_etcd *self, uint64_t now_ns)
{
    tutti_list_node *at;
    tutti_list_node *spare;

    if (!self->leads && now_ns >= self->leads_from_ns) {
        begin_leading(self);
    }
    tutti_list_each(at, spare, &self->leases)
    {
        lease *one = tutti_container_of(at, lease, link);

        if (self->leads && seen_over_ns(self, one) <= now_ns) {
            end_lease(self, one);
        }
    }
}

uint64_t
sim_etcd_next(const sim_etcd *self)
{
    uint64_t next_ns = self->leads ? UINT64_MAX : self->leads_from_ns;
    tutti_list_node *at;

    for (at = self->leases.next; self->leads && at != &self->leases; at = at->next) {
        const uint64_t over_ns = seen_over_ns(self, tutti_container_of(at, lease, link));

        next_ns = over_ns < next_ns ? over_ns : next_ns;
    }
    return next_ns;
}

static tutti_code
on_grant(sim_etcd *self, const Etcdserverpb__LeaseGrantRequest *request, uint64_t now_ns,
         ProtobufCMessage **ret_response, tutti_error *err)
{
    Etcdserverpb__LeaseGrantResponse *response;
    lease *one;

    if (self->is_full) {
        return fail(err, TUTTI_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded");
    }
    if (request->id != 0 && find_lease(self, request->id) != NULL) {
        return fail(err, TUTTI_FAILED_PRECONDITION, "etcdserver: lease already exists");
    }
    one = take(sizeof(*one));
    one->id = request->id != 0 ? request->id : ++self->next_id;
    one->ttl = request->ttl < TTL_MIN ? TTL_MIN : request->ttl;
    begin_time(one, now_ns);
    tutti_list_add(&self->leases, &one->link);
    response = take(sizeof(*response));
    etcdserverpb__lease_grant_response__init(response);
    response->header = header_of(self);
    response->id = one->id;
    response->ttl = one->ttl;
    *ret_response = &response->base;
    return TUTTI_OK;
}

static tutti_code
on_revoke(sim_etcd *self, const Etcdserverpb__LeaseRevokeRequest *request,
          ProtobufCMessage **ret_response, tutti_error *err)
{
    Etcdserverpb__LeaseRevokeResponse *response;
    lease *one = find_lease(self, request->id);

    if (one == NULL) {
        return fail(err, TUTTI_NOT_FOUND, "etcdserver: requested lease not found");
    }
    end_lease(self, one);
    response = take(sizeof(*response));
    etcdserverpb__lease_revoke_response__init(response);
    response->header = header_of(self);
    *ret_response = &response->base;
    return TUTTI_OK;
}

/* A lease that is not there, or whose time is over, has none. */
static tutti_code
on_keep_alive(sim_etcd *self, const Etcdserverpb__LeaseKeepAliveRequest *request, uint64_t now_ns,
              ProtobufCMessage **ret_response)
{
    Etcdserverpb__LeaseKeepAliveResponse *response = take(sizeof(*response));
    lease *one = find_lease(self, request->id);

    etcdserverpb__lease_keep_alive_response__init(response);
    response->header = header_of(self);
    response->id = request->id;
    if (one != NULL && one->ends_ns > now_ns) {
        begin_time(one, now_ns);
        response->ttl = one->ttl;
    }
    *ret_response = &response->base;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ transactions */

static int
compare_bytes(tutti_bytes a, tutti_bytes b)
{
    const int order = tutti_bytes_compare(a, b);

    return order < 0 ? -1 : order > 0;
}

static int
compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static bool
holds(const sim_etcd *self, const Etcdserverpb__Compare *compare)
{
    const record *now =
        record_now(entry_from(tutti_map_find(&self->entries, bytes_of(compare->key))));
    int order = 0;

    switch (compare->target) {
    case ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE:
        if (now == NULL) {
            return false; /* a key that is not there has no value */
        }
        order = compare_bytes((tutti_bytes){now->value, now->size}, bytes_of(compare->value));
        break;
    case ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE:
        order = compare_numbers(now == NULL ? 0 : now->create, compare->create_revision);
        break;
    case ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD:
        order = compare_numbers(now == NULL ? 0 : now->mod, compare->mod_revision);
        break;
    default:
        order = compare_numbers(now == NULL ? 0 : now->version, compare->version);
        break;
    }
    switch (compare->result) {
    case ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL:
        return order == 0;
    case ETCDSERVERPB__COMPARE__COMPARE_RESULT__GREATER:
        return order > 0;
    case ETCDSERVERPB__COMPARE__COMPARE_RESULT__LESS:
        return order < 0;
    default:
        return order != 0;
    }
}

static ProtobufCBinaryData
key_of_op(const Etcdserverpb__RequestOp *op)
{
    switch (op->request_case) {
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE:
        return op->request_range->key;
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT:
        return op->request_put->key;
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
        return op->request_delete_range->key;
    default:
        return (ProtobufCBinaryData){0};
    }
}

static bool
is_put(const Etcdserverpb__RequestOp *op)
{
    return op->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
}

/* Does `op` change the key that `other` puts? etcd does not see that "all from here on" may. */
static bool
overlaps(const Etcdserverpb__RequestOp *op, const Etcdserverpb__RequestOp *other)
{
    const tutti_bytes key = bytes_of(other->request_put->key);

    return (is_put(op) && tutti_bytes_equal(key, bytes_of(op->request_put->key))) ||
           (op->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE &&
            !is_all(bytes_of(op->request_delete_range->range_end)) &&
            is_in(key, bytes_of(op->request_delete_range->key),
                  bytes_of(op->request_delete_range->range_end)));
}

static tutti_code
check_keys(Etcdserverpb__RequestOp *const *ops, size_t count, tutti_error *err)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (key_of_op(ops[i]).len == 0) {
            return fail(err, TUTTI_INVALID_ARGUMENT, "etcdserver: key is not provided");
        }
    }
    return TUTTI_OK;
}

static tutti_code
check_twice(Etcdserverpb__RequestOp *const *ops, size_t count, tutti_error *err)
{
    size_t i;
    size_t k;

    for (i = 0; i < count; i++) {
        for (k = 0; k < count; k++) {
            if (i != k && is_put(ops[i]) && overlaps(ops[k], ops[i])) {
                return fail(err, TUTTI_INVALID_ARGUMENT,
                            "etcdserver: duplicate key given in txn request");
            }
        }
    }
    return TUTTI_OK;
}

static tutti_code
check_txn(const Etcdserverpb__TxnRequest *request, tutti_error *err)
{
    size_t i;

    if (request->n_compare > OPS_MAX || request->n_success > OPS_MAX ||
        request->n_failure > OPS_MAX) {
        return fail(err, TUTTI_INVALID_ARGUMENT, "etcdserver: too many operations in txn request");
    }
    for (i = 0; i < request->n_compare; i++) {
        if (request->compare[i]->key.len == 0) {
            return fail(err, TUTTI_INVALID_ARGUMENT, "etcdserver: key is not provided");
        }
    }
    TUTTI_TRY(check_keys(request->success, request->n_success, err));
    TUTTI_TRY(check_keys(request->failure, request->n_failure, err));
    TUTTI_TRY(check_twice(request->success, request->n_success, err));
    TUTTI_TRY(check_twice(request->failure, request->n_failure, err));
    return etcdserverpb__txn_request__get_packed_size(request) > REQUEST_BYTES_MAX
               ? fail(err, TUTTI_INVALID_ARGUMENT, "etcdserver: request is too large")
               : TUTTI_OK;
}

/* Of the branch that is taken, before any of it is done. */
static tutti_code
check_taken(const sim_etcd *self, Etcdserverpb__RequestOp *const *ops, size_t count,
            tutti_error *err)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (is_put(ops[i]) && ops[i]->request_put->lease != 0 &&
            find_lease(self, ops[i]->request_put->lease) == NULL) {
            return fail(err, TUTTI_NOT_FOUND, "etcdserver: requested lease not found");
        }
        if (ops[i]->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE) {
            TUTTI_TRY(check_revision(self, ops[i]->request_range->revision, err));
        }
    }
    return TUTTI_OK;
}

static Etcdserverpb__ResponseOp *
do_op(sim_etcd *self, const Etcdserverpb__RequestOp *op, int64_t mod)
{
    Etcdserverpb__ResponseOp *response = take(sizeof(*response));
    Etcdserverpb__DeleteRangeResponse *deleted;

    etcdserverpb__response_op__init(response);
    switch (op->request_case) {
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE:
        response->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
        response->response_range = read_range(self, op->request_range);
        break;
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT:
        put(self, op->request_put, mod);
        response->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
        response->response_put = take(sizeof(*response->response_put));
        etcdserverpb__put_response__init(response->response_put);
        break;
    default:
        deleted = take(sizeof(*deleted));
        etcdserverpb__delete_range_response__init(deleted);
        deleted->deleted = delete_range(self, bytes_of(op->request_delete_range->key),
                                        bytes_of(op->request_delete_range->range_end), mod);
        response->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE;
        response->response_delete_range = deleted;
        break;
    }
    return response;
}

static bool
has_puts(const Etcdserverpb__TxnRequest *request)
{
    bool any = false;
    size_t i;

    for (i = 0; i < request->n_success; i++) {
        any = any || is_put(request->success[i]);
    }
    for (i = 0; i < request->n_failure; i++) {
        any = any || is_put(request->failure[i]);
    }
    return any;
}

static tutti_code
on_txn(sim_etcd *self, const Etcdserverpb__TxnRequest *request, ProtobufCMessage **ret_response,
       tutti_error *err)
{
    Etcdserverpb__TxnResponse *response;
    const size_t before = self->change_count;
    Etcdserverpb__RequestOp **ops;
    bool succeeded = true;
    size_t count;
    size_t i;

    TUTTI_TRY(check_txn(request, err));
    if (self->is_full && has_puts(request)) {
        return fail(err, TUTTI_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded");
    }
    for (i = 0; i < request->n_compare; i++) {
        succeeded = succeeded && holds(self, request->compare[i]);
    }
    ops = succeeded ? request->success : request->failure;
    count = succeeded ? request->n_success : request->n_failure;
    TUTTI_TRY(check_taken(self, ops, count, err));
    response = take(sizeof(*response));
    etcdserverpb__txn_response__init(response);
    response->succeeded = succeeded;
    response->responses = take((count + 1) * sizeof(response->responses[0]));
    for (i = 0; i < count; i++) {
        response->responses[response->n_responses++] = do_op(self, ops[i], self->revision + 1);
    }
    self->revision += self->change_count > before ? 1 : 0;
    response->header = header_of(self);
    *ret_response = &response->base;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ calls */

tutti_code
sim_etcd_handle(sim_etcd *self, const char *method, const ProtobufCMessage *request,
                uint64_t now_ns, ProtobufCMessage **ret_response, tutti_error *err)
{
    sim_etcd_tick(self, now_ns);
    if (!self->leads) {
        return fail(err, TUTTI_UNAVAILABLE, "etcdserver: no leader");
    }
    if (strcmp(method, "Range") == 0) {
        return on_range(self, (const void *)request, ret_response, err);
    }
    if (strcmp(method, "Txn") == 0) {
        return on_txn(self, (const void *)request, ret_response, err);
    }
    if (strcmp(method, "LeaseGrant") == 0) {
        return on_grant(self, (const void *)request, now_ns, ret_response, err);
    }
    if (strcmp(method, "LeaseRevoke") == 0) {
        return on_revoke(self, (const void *)request, ret_response, err);
    }
    if (strcmp(method, "LeaseKeepAlive") == 0) {
        return on_keep_alive(self, (const void *)request, now_ns, ret_response);
    }
    return fail(err, TUTTI_FAILED_PRECONDITION, "etcdserver: authentication is not enabled");
}

int64_t
sim_etcd_revision(const sim_etcd *self)
{
    return self->revision;
}

/* ------------------------------------------------------------------------------ watches */

sim_etcd_watch *
sim_etcd_watch_open(sim_etcd *self, const Etcdserverpb__WatchCreateRequest *request)
{
    sim_etcd_watch *watch = take(sizeof(*watch));

    watch->etcd = self;
    watch->key_size = request->key.len;
    watch->end_size = request->range_end.len;
    watch->key = take(watch->key_size + watch->end_size);
    memcpy(watch->key, request->key.data, watch->key_size);
    if (watch->end_size > 0) {
        memcpy(watch->key + watch->key_size, request->range_end.data, watch->end_size);
    }
    watch->next = request->start_revision > 0 ? request->start_revision : self->revision + 1;
    tutti_list_add(&self->watches, &watch->link);
    return watch;
}

static Etcdserverpb__WatchResponse *
new_told(const sim_etcd *self)
{
    Etcdserverpb__WatchResponse *told = take(sizeof(*told));

    etcdserverpb__watch_response__init(told);
    told->header = header_of(self);
    return told;
}

static bool
watches(const sim_etcd_watch *self, const entry *one)
{
    return is_in(one->node.key, (tutti_bytes){self->key, self->key_size},
                 (tutti_bytes){self->key + self->key_size, self->end_size});
}

static Etcdserverpb__Event *
new_event(const change *made)
{
    Etcdserverpb__Event *event = take(sizeof(*event));
    const record *now = &made->entry->records[made->record];

    etcdserverpb__event__init(event);
    event->type = now->create == 0 ? ETCDSERVERPB__EVENT__EVENT_TYPE__DELETE
                                   : ETCDSERVERPB__EVENT__EVENT_TYPE__PUT;
    event->kv = key_value(made->entry, now);
    return event;
}

/* All of one revision. */
static Etcdserverpb__WatchResponse *
tell_changes(sim_etcd_watch *self, size_t at)
{
    const sim_etcd *etcd = self->etcd;
    const int64_t mod = etcd->changes[at].mod;
    Etcdserverpb__WatchResponse *told = new_told(etcd);

    told->events = take((etcd->change_count - at) * sizeof(told->events[0]));
    for (; at < etcd->change_count && etcd->changes[at].mod == mod; at++) {
        if (watches(self, etcd->changes[at].entry)) {
            told->events[told->n_events++] = new_event(&etcd->changes[at]);
        }
    }
    self->next = mod + 1;
    return told;
}

Etcdserverpb__WatchResponse *
sim_etcd_watch_next(sim_etcd_watch *watch)
{
    const sim_etcd *etcd = watch->etcd;
    Etcdserverpb__WatchResponse *told;
    size_t i;

    if (watch->is_over || watch->is_broken) {
        return NULL;
    }
    if (!watch->told_begin) {
        watch->told_begin = true;
        told = new_told(etcd);
        told->created = true;
        return told;
    }
    if (watch->next < etcd->compacted) {
        watch->is_over = true;
        told = new_told(etcd);
        told->canceled = true;
        told->compact_revision = etcd->compacted;
        return told;
    }
    for (i = 0; i < etcd->change_count; i++) {
        if (etcd->changes[i].mod >= watch->next && watches(watch, etcd->changes[i].entry)) {
            return tell_changes(watch, i);
        }
    }
    return NULL;
}

bool
sim_etcd_watch_is_broken(const sim_etcd_watch *watch)
{
    return watch->is_broken;
}

void
sim_etcd_watch_close(sim_etcd_watch *watch)
{
    tutti_list_remove(&watch->link);
    free(watch->key);
    free(watch);
}

/* ------------------------------------------------------------------------------ what befalls it */

void
sim_etcd_lose_leader(sim_etcd *self, uint64_t now_ns, uint64_t until_ns)
{
    sim_etcd_tick(self, now_ns);
    self->leads = false;
    self->leads_from_ns = until_ns;
}

void
sim_etcd_compact(sim_etcd *self, int64_t revision)
{
    if (revision > self->compacted && revision <= self->revision) {
        self->compacted = revision;
    }
}

void
sim_etcd_fill(sim_etcd *self, bool is_full)
{
    self->is_full = is_full;
}

sim_etcd_snapshot *
sim_etcd_snapshot_take(const sim_etcd *self)
{
    sim_etcd_snapshot *snapshot;
    tutti_list_node *at;
    size_t count = 0;

    for (at = self->leases.next; at != &self->leases; at = at->next) {
        count++;
    }
    snapshot = take(sizeof(*snapshot) + count * sizeof(lease));
    snapshot->revision = self->revision;
    snapshot->compacted = self->compacted;
    for (at = self->leases.next; at != &self->leases; at = at->next) {
        snapshot->leases[snapshot->lease_count++] = *tutti_container_of(at, lease, link);
    }
    return snapshot;
}

void
sim_etcd_snapshot_free(sim_etcd_snapshot *snapshot)
{
    free(snapshot);
}

static void
drop_leases(sim_etcd *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->leases)) != NULL) {
        free(tutti_container_of(link, lease, link));
    }
}

static void
drop_changes_behind(sim_etcd *self, int64_t revision)
{
    while (self->change_count > 0 && self->changes[self->change_count - 1].mod > revision) {
        entry *one = self->changes[--self->change_count].entry;

        free(one->records[--one->count].value);
    }
}

void
sim_etcd_restore(sim_etcd *self, const sim_etcd_snapshot *snapshot, uint64_t now_ns)
{
    tutti_list_node *at;
    size_t i;

    drop_changes_behind(self, snapshot->revision);
    drop_leases(self);
    self->revision = snapshot->revision;
    self->compacted = snapshot->compacted;
    for (i = 0; i < snapshot->lease_count; i++) {
        lease *one = take(sizeof(*one));

        one->id = snapshot->leases[i].id;
        one->ttl = snapshot->leases[i].ttl;
        tutti_list_add(&self->leases, &one->link);
    }
    for (at = self->watches.next; at != &self->watches; at = at->next) {
        tutti_container_of(at, sim_etcd_watch, link)->is_broken = true;
    }
    self->leads_from_ns = now_ns;
    begin_leading(self);
}

sim_etcd *
sim_etcd_new(uint64_t now_ns)
{
    sim_etcd *self = take(sizeof(*self));

    tutti_map_init(&self->entries);
    tutti_list_init(&self->leases);
    tutti_list_init(&self->watches);
    self->revision = 1;
    self->next_id = 7587000000000000000;
    self->began_ns = now_ns;
    self->leads = true;
    return self;
}

void
sim_etcd_free(sim_etcd *self)
{
    tutti_map_node *node;

    assert(tutti_list_empty(&self->watches));
    drop_changes_behind(self, 0);
    drop_leases(self);
    while ((node = tutti_map_first(&self->entries)) != NULL) {
        entry *one = entry_from(node);

        tutti_map_remove(&self->entries, node);
        free(one->records);
        free(one);
    }
    free(self->changes);
    free(self);
}
