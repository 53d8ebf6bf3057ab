/*
 * Goal: what the simulated etcd answers is what etcd answers.
 * Method: a real etcd of one member, started here; the same random requests to both, and their answers and errors compared:
 * revisions, rows of former revisions, transactions of both branches, leases, and at the end what a watch is told. Skipped
 * where there is no etcd. Not compared: times, compaction, what befalls it.
 */
#include "support/testing.h"

#include <unistd.h>

#include "base/os/clock.h"
#include "rpc/channel.h"
#include "rpc/loop.h"
#include "sim/etcd/etcd.h"
#include "support/etcd_process.h"

#define SKIPPED 77
#define REQUESTS 4000
#define KEYS 6
#define LEASES 4
#define OPS 4

static const tutti_rpc_stub stub_range = {&etcdserverpb__kv__descriptor, "Range"};
static const tutti_rpc_stub stub_txn = {&etcdserverpb__kv__descriptor, "Txn"};
static const tutti_rpc_stub stub_grant = {&etcdserverpb__lease__descriptor, "LeaseGrant"};
static const tutti_rpc_stub stub_revoke = {&etcdserverpb__lease__descriptor, "LeaseRevoke"};
static const tutti_rpc_stub stub_keep = {&etcdserverpb__lease__descriptor, "LeaseKeepAlive"};
static const tutti_rpc_stub stub_watch = {&etcdserverpb__watch__descriptor, "Watch"};

static etcd_process process;
static tutti_rpc_channel *channel;
static sim_etcd *simulated;
static int64_t revision = 1; /* of both */

/* ------------------------------------------------------------------------------ chance */

static uint64_t seed = 1;

static uint64_t
draw(uint64_t below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % below;
}

static ProtobufCBinaryData
draw_key(void)
{
    static char names[KEYS][4] = {"a", "a/", "a/b", "b", "c", "\xff"};
    char *name = names[draw(KEYS)];

    if (draw(60) == 0) {
        return (ProtobufCBinaryData){0};
    }
    return (ProtobufCBinaryData){.len = strlen(name), .data = (uint8_t *)name};
}

static ProtobufCBinaryData
draw_end(void)
{
    static uint8_t all[1] = {0};

    return draw(2) == 0   ? (ProtobufCBinaryData){0}
           : draw(3) == 0 ? (ProtobufCBinaryData){.len = 1, .data = all}
                          : draw_key();
}

static ProtobufCBinaryData
draw_value(void)
{
    static char values[3][4] = {"", "1", "22"};
    char *value = values[draw(3)];

    return (ProtobufCBinaryData){.len = strlen(value), .data = (uint8_t *)value};
}

/* ------------------------------------------------------------------------------ comparing */

/* Who answers, and its terms: they are another one's. */
static void
strip_header(Etcdserverpb__ResponseHeader **header)
{
    assert_non_null(*header);
    (*header)->cluster_id = 0;
    (*header)->member_id = 0;
    (*header)->raft_term = 0;
}

static void
drop_header(Etcdserverpb__ResponseHeader **header)
{
    if (*header != NULL) {
        protobuf_c_message_free_unpacked(&(*header)->base, NULL);
        *header = NULL;
    }
}

/* Answers of a transaction's ops have headers that say nothing. */
static void
strip_txn(Etcdserverpb__TxnResponse *response)
{
    size_t i;

    for (i = 0; i < response->n_responses; i++) {
        Etcdserverpb__ResponseOp *op = response->responses[i];

        if (op->response_case == ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE) {
            drop_header(&op->response_range->header);
        } else if (op->response_case == ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT) {
            drop_header(&op->response_put->header);
        } else {
            drop_header(&op->response_delete_range->header);
        }
    }
}

/* All responses have the header first. */
static void
strip(ProtobufCMessage *response)
{
    Etcdserverpb__RangeResponse *any = (void *)response;

    strip_header(&any->header);
    if (response->descriptor == &etcdserverpb__txn_response__descriptor) {
        strip_txn((void *)response);
    }
}

static void
assert_alike(ProtobufCMessage *real, ProtobufCMessage *ours, const char *method)
{
    const size_t size = protobuf_c_message_get_packed_size(real);
    uint8_t *first;
    uint8_t *second;

    strip(real);
    strip(ours);
    first = malloc(size + 1);
    second = malloc(protobuf_c_message_get_packed_size(ours) + 1);
    assert_true(first != NULL && second != NULL);
    if (protobuf_c_message_pack(real, first) != protobuf_c_message_pack(ours, second) ||
        memcmp(first, second, protobuf_c_message_get_packed_size(real)) != 0) {
        fail_msg("%s: the answers differ, at revision %lld", method, (long long)revision);
    }
    free(first);
    free(second);
}

/* An unpacked copy, as what lib/rpc lends must not be changed. */
static ProtobufCMessage *
copy_of(const ProtobufCMessage *message)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(size + 1);
    ProtobufCMessage *copy;

    assert_non_null(bytes);
    (void)protobuf_c_message_pack(message, bytes);
    copy = protobuf_c_message_unpack(message->descriptor, NULL, size, bytes);
    assert_non_null(copy);
    free(bytes);
    return copy;
}

static void
ask_both(const tutti_rpc_stub *stub, const ProtobufCMessage *request)
{
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + 60 * TUTTI_NS_PER_S,
                                            .wait_for_ready = true};
    tutti_rpc_message *message = NULL;
    ProtobufCMessage *ours = NULL;
    tutti_error real_err = {0};
    tutti_error err = {0};
    const tutti_code real =
        tutti_rpc_invoke(channel, stub, request, NULL, &options, &message, &real_err);
    const tutti_code code =
        sim_etcd_handle(simulated, stub->method, request, tutti_clock_ns(), &ours, &err);

    if (real != code) {
        fail_msg("%s: etcd says %s (%s), and the simulated one %s (%s)", stub->method,
                 tutti_code_name(real), real_err.text, tutti_code_name(code), err.text);
    }
    if (code == TUTTI_OK) {
        ProtobufCMessage *theirs = copy_of(tutti_rpc_message_get(message));

        assert_alike(theirs, ours, stub->method);
        protobuf_c_message_free_unpacked(theirs, NULL);
        protobuf_c_message_free_unpacked(ours, NULL);
        tutti_rpc_message_free(message);
    } else {
        assert_text_has(real_err.text, err.text);
    }
    revision = sim_etcd_revision(simulated);
}

/* ------------------------------------------------------------------------------ requests */

static void
ask_range(void)
{
    Etcdserverpb__RangeRequest request = ETCDSERVERPB__RANGE_REQUEST__INIT;

    request.key = draw_key();
    request.range_end = draw_end();
    request.limit = (int64_t)draw(4);
    request.revision = draw(2) == 0 ? 0 : (int64_t)draw((uint64_t)revision + 2);
    ask_both(&stub_range, &request.base);
}

typedef struct parts {
    Etcdserverpb__Compare compares[2];
    Etcdserverpb__Compare *compare_list[2];
    Etcdserverpb__RequestOp ops[2][OPS];
    Etcdserverpb__RequestOp *lists[2][OPS];
    Etcdserverpb__PutRequest puts[2][OPS];
    Etcdserverpb__DeleteRangeRequest removes[2][OPS];
    Etcdserverpb__RangeRequest ranges[2][OPS];
} parts;

static void
draw_compare(Etcdserverpb__Compare *compare)
{
    etcdserverpb__compare__init(compare);
    compare->key = draw_key();
    compare->result = (Etcdserverpb__Compare__CompareResult)draw(4);
    compare->target = (Etcdserverpb__Compare__CompareTarget)draw(4);
    switch (compare->target) {
    case ETCDSERVERPB__COMPARE__COMPARE_TARGET__VERSION:
        compare->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION;
        compare->version = (int64_t)draw(4);
        break;
    case ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE:
        compare->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION;
        compare->create_revision = draw(2) == 0 ? 0 : (int64_t)draw((uint64_t)revision);
        break;
    case ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD:
        compare->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION;
        compare->mod_revision = draw(2) == 0 ? 0 : (int64_t)draw((uint64_t)revision);
        break;
    default:
        compare->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE;
        compare->value = draw_value();
        break;
    }
}

static void
draw_op(parts *self, int branch, size_t i)
{
    Etcdserverpb__RequestOp *op = &self->ops[branch][i];

    etcdserverpb__request_op__init(op);
    self->lists[branch][i] = op;
    switch (draw(4)) {
    case 0:
        etcdserverpb__range_request__init(&self->ranges[branch][i]);
        self->ranges[branch][i].key = draw_key();
        self->ranges[branch][i].range_end = draw_end();
        op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op->request_range = &self->ranges[branch][i];
        break;
    case 1:
        etcdserverpb__delete_range_request__init(&self->removes[branch][i]);
        self->removes[branch][i].key = draw_key();
        self->removes[branch][i].range_end = draw_end();
        op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op->request_delete_range = &self->removes[branch][i];
        break;
    default:
        etcdserverpb__put_request__init(&self->puts[branch][i]);
        self->puts[branch][i].key = draw_key();
        self->puts[branch][i].value = draw_value();
        self->puts[branch][i].lease = draw(3) == 0 ? 1 + (int64_t)draw(LEASES) : 0;
        op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op->request_put = &self->puts[branch][i];
        break;
    }
}

static void
ask_txn(void)
{
    Etcdserverpb__TxnRequest request = ETCDSERVERPB__TXN_REQUEST__INIT;
    static parts own;
    size_t i;

    request.n_compare = draw(3);
    request.n_success = draw(OPS);
    request.n_failure = draw(OPS);
    for (i = 0; i < request.n_compare; i++) {
        draw_compare(&own.compares[i]);
        own.compare_list[i] = &own.compares[i];
    }
    for (i = 0; i < request.n_success; i++) {
        draw_op(&own, 0, i);
    }
    for (i = 0; i < request.n_failure; i++) {
        draw_op(&own, 1, i);
    }
    request.compare = own.compare_list;
    request.success = own.lists[0];
    request.failure = own.lists[1];
    ask_both(&stub_txn, &request.base);
}

static void
ask_grant(void)
{
    Etcdserverpb__LeaseGrantRequest request = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

    request.id = 1 + (int64_t)draw(LEASES);
    request.ttl = 1000 + (int64_t)draw(10);
    ask_both(&stub_grant, &request.base);
}

static void
ask_revoke(void)
{
    Etcdserverpb__LeaseRevokeRequest request = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;

    request.id = 1 + (int64_t)draw(LEASES);
    ask_both(&stub_revoke, &request.base);
}

static tutti_rpc_stream *
open_stream(const tutti_rpc_stub *stub, const ProtobufCMessage *first)
{
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + 60 * TUTTI_NS_PER_S,
                                            .wait_for_ready = true};
    tutti_rpc_stream *stream = NULL;
    tutti_error err;

    assert_ok(tutti_rpc_stream_open(channel, stub, &options, &stream, &err));
    assert_ok(tutti_rpc_stream_write(stream, first, NULL, &err));
    return stream;
}

static void
close_stream(tutti_rpc_stream *stream)
{
    tutti_rpc_stream_cancel(stream);
    (void)tutti_rpc_stream_finish(stream, NULL);
}

static void
ask_keep(void)
{
    Etcdserverpb__LeaseKeepAliveRequest request = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    tutti_rpc_message *message = NULL;
    ProtobufCMessage *ours = NULL;
    ProtobufCMessage *theirs;
    tutti_rpc_stream *stream;
    tutti_error err;

    request.id = 1 + (int64_t)draw(LEASES);
    stream = open_stream(&stub_keep, &request.base);
    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    assert_ok(
        sim_etcd_handle(simulated, "LeaseKeepAlive", &request.base, tutti_clock_ns(), &ours, &err));
    theirs = copy_of(tutti_rpc_message_get(message));
    assert_alike(theirs, ours, "LeaseKeepAlive");
    protobuf_c_message_free_unpacked(theirs, NULL);
    protobuf_c_message_free_unpacked(ours, NULL);
    tutti_rpc_message_free(message);
    close_stream(stream);
}

static void
test_sim_etcd__answers_as_etcd_does(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < REQUESTS; i++) {
        switch (draw(10)) {
        case 0:
        case 1:
        case 2:
            ask_range();
            break;
        case 3:
            ask_grant();
            break;
        case 4:
            (draw(2) == 0 ? ask_revoke : ask_keep)();
            break;
        default:
            ask_txn();
            break;
        }
    }
    print_message("# %d requests, revision %lld\n", REQUESTS, (long long)revision);
    assert_true(revision > REQUESTS / 10);
}

/* ------------------------------------------------------------------------------ watches */

/* Events one after the other, however they are put into messages. */
typedef struct events {
    Etcdserverpb__WatchResponse *told; /* [owned] NULL = the next one is needed */
    size_t at;
} events;

static const Etcdserverpb__Event *
next_of(events *self, Etcdserverpb__WatchResponse *(*next)(void *arg), void *arg)
{
    while (self->told == NULL || self->at == self->told->n_events) {
        if (self->told != NULL) {
            protobuf_c_message_free_unpacked(&self->told->base, NULL);
        }
        self->told = next(arg);
        self->at = 0;
        if (self->told == NULL) {
            return NULL;
        }
    }
    return self->told->events[self->at++];
}

static Etcdserverpb__WatchResponse *
next_real(void *arg)
{
    tutti_rpc_message *message = NULL;
    Etcdserverpb__WatchResponse *told;
    tutti_error err;

    assert_ok(tutti_rpc_stream_read(arg, &message, &err));
    assert_non_null(message);
    told = (void *)copy_of(tutti_rpc_message_get(message));
    tutti_rpc_message_free(message);
    return told;
}

static Etcdserverpb__WatchResponse *
next_ours(void *arg)
{
    return sim_etcd_watch_next(arg);
}

static void
compare_watch(Etcdserverpb__WatchCreateRequest *create)
{
    Etcdserverpb__WatchRequest request = ETCDSERVERPB__WATCH_REQUEST__INIT;
    sim_etcd_watch *watch = sim_etcd_watch_open(simulated, create);
    const Etcdserverpb__Event *ours;
    tutti_rpc_stream *stream;
    events real = {0};
    events own = {0};
    int count = 0;

    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
    request.create_request = create;
    stream = open_stream(&stub_watch, &request.base);
    while ((ours = next_of(&own, next_ours, watch)) != NULL) {
        const Etcdserverpb__Event *theirs = next_of(&real, next_real, stream);

        assert_int_equal(theirs->type, ours->type);
        assert_int_equal(theirs->kv->mod_revision, ours->kv->mod_revision);
        assert_int_equal(theirs->kv->create_revision, ours->kv->create_revision);
        assert_int_equal(theirs->kv->version, ours->kv->version);
        assert_int_equal(theirs->kv->lease, ours->kv->lease);
        assert_int_equal(theirs->kv->key.len, ours->kv->key.len);
        assert_memory_equal(theirs->kv->key.data, ours->kv->key.data, ours->kv->key.len);
        assert_int_equal(theirs->kv->value.len, ours->kv->value.len);
        count++;
    }
    print_message("# %d events\n", count);
    assert_true(count > 0);
    protobuf_c_message_free_unpacked(&real.told->base, NULL);
    sim_etcd_watch_close(watch);
    close_stream(stream);
}

static void
test_sim_etcd__tells_watches_what_etcd_does(void **state)
{
    static uint8_t from[] = "a";
    static uint8_t to[] = "b";
    Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

    (void)state;
    create.key = (ProtobufCBinaryData){.len = 1, .data = from};
    create.start_revision = 1;
    compare_watch(&create);
    create.range_end = (ProtobufCBinaryData){.len = 1, .data = to};
    create.start_revision = revision / 2;
    compare_watch(&create);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_etcd__answers_as_etcd_does),
        cmocka_unit_test(test_sim_etcd__tells_watches_what_etcd_does),
    };
    char where[32];
    tutti_error err;
    int failed;

    if (!etcd_process_exists()) {
        (void)printf("1..0 # SKIP there is no etcd in PATH\n");
        return SKIPPED;
    }
    tutti_rpc_init();
    etcd_process_start(&process, 0);
    (void)snprintf(where, sizeof(where), "127.0.0.1:%u", process.port);
    assert_ok(tutti_rpc_channel_open(where, NULL, &channel, &err));
    simulated = sim_etcd_new(tutti_clock_ns());
    failed = cmocka_run_group_tests_name("sim/etcd, and etcd", tests, NULL, NULL);
    sim_etcd_free(simulated);
    tutti_rpc_channel_close(channel);
    etcd_process_stop(&process);
    tutti_rpc_fini();
    return failed;
}
