/*
 * Goal: the simulated etcd answers by etcd's rules.
 * Method: its messages by hand, and time as a number. test_sim_etcd_real compares it with a real one.
 */
#include "support/testing.h"

#include "base/os/clock.h"
#include "sim/etcd/etcd.h"

#define SECOND TUTTI_NS_PER_S
#define LEASE 77

static sim_etcd *etcd;
static uint64_t now_ns;
static ProtobufCMessage *answer;
static tutti_error err;

static int
begin(void **state)
{
    (void)state;
    now_ns = SECOND;
    etcd = sim_etcd_new(now_ns);
    return 0;
}

static void
forget_answer(void)
{
    if (answer != NULL) {
        protobuf_c_message_free_unpacked(answer, NULL);
        answer = NULL;
    }
}

static int
end(void **state)
{
    (void)state;
    forget_answer();
    sim_etcd_free(etcd);
    return 0;
}

/* ------------------------------------------------------------------------------ messages */

static ProtobufCBinaryData
binary(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

static tutti_code
call(const char *method, const ProtobufCMessage *request)
{
    forget_answer();
    return sim_etcd_handle(etcd, method, request, now_ns, &answer, &err);
}

static tutti_code
grant(int64_t id, int64_t ttl)
{
    Etcdserverpb__LeaseGrantRequest request = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

    request.id = id;
    request.ttl = ttl;
    return call("LeaseGrant", &request.base);
}

static int64_t
keep(int64_t id)
{
    Etcdserverpb__LeaseKeepAliveRequest request = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;

    request.id = id;
    assert_ok(call("LeaseKeepAlive", &request.base));
    return ((const Etcdserverpb__LeaseKeepAliveResponse *)(const void *)answer)->ttl;
}

/* A transaction of at most one comparison, one op if it holds and one if not. */
typedef struct txn {
    Etcdserverpb__TxnRequest request;
    Etcdserverpb__Compare compare;
    Etcdserverpb__Compare *compares[1];
    Etcdserverpb__RequestOp ops[3];
    Etcdserverpb__RequestOp *done[2];
    Etcdserverpb__RequestOp *otherwise[1];
    Etcdserverpb__PutRequest puts[3];
    Etcdserverpb__DeleteRangeRequest remove;
} txn;

static void
begin_txn(txn *self)
{
    memset(self, 0, sizeof(*self));
    etcdserverpb__txn_request__init(&self->request);
    self->request.compare = self->compares;
    self->request.success = self->done;
    self->request.failure = self->otherwise;
}

static void
add_put(txn *self, const char *key, const char *value, int64_t lease)
{
    const size_t at = self->request.n_success++;

    etcdserverpb__request_op__init(&self->ops[at]);
    etcdserverpb__put_request__init(&self->puts[at]);
    self->puts[at].key = binary(key);
    self->puts[at].value = binary(value);
    self->puts[at].lease = lease;
    self->ops[at].request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
    self->ops[at].request_put = &self->puts[at];
    self->done[at] = &self->ops[at];
}

static void
add_delete(txn *self, const char *key, const char *range_end)
{
    const size_t at = self->request.n_success++;

    etcdserverpb__request_op__init(&self->ops[at]);
    etcdserverpb__delete_range_request__init(&self->remove);
    self->remove.key = binary(key);
    self->remove.range_end = binary(range_end);
    self->ops[at].request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
    self->ops[at].request_delete_range = &self->remove;
    self->done[at] = &self->ops[at];
}

static void
compare_create(txn *self, const char *key, int64_t revision)
{
    etcdserverpb__compare__init(&self->compare);
    self->compare.key = binary(key);
    self->compare.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE;
    self->compare.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION;
    self->compare.create_revision = revision;
    self->compares[0] = &self->compare;
    self->request.n_compare = 1;
}

static void
compare_value(txn *self, const char *key, const char *value)
{
    etcdserverpb__compare__init(&self->compare);
    self->compare.key = binary(key);
    self->compare.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE;
    self->compare.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE;
    self->compare.value = binary(value);
    self->compares[0] = &self->compare;
    self->request.n_compare = 1;
}

static bool
run(txn *self)
{
    assert_ok(call("Txn", &self->request.base));
    return ((const Etcdserverpb__TxnResponse *)(const void *)answer)->succeeded;
}

static void
put(const char *key, const char *value, int64_t lease)
{
    txn one;

    begin_txn(&one);
    add_put(&one, key, value, lease);
    assert_true(run(&one));
}

static void
delete_all(const char *key, const char *range_end)
{
    txn one;

    begin_txn(&one);
    add_delete(&one, key, range_end);
    assert_true(run(&one));
}

static tutti_code
range(const char *key, const char *range_end, int64_t limit, int64_t revision)
{
    Etcdserverpb__RangeRequest request = ETCDSERVERPB__RANGE_REQUEST__INIT;

    request.key = binary(key);
    request.range_end = binary(range_end);
    request.limit = limit;
    request.revision = revision;
    return call("Range", &request.base);
}

static const Etcdserverpb__RangeResponse *
rows(void)
{
    return (const void *)answer;
}

/* "key=value@create.mod.version", with a space between two. */
static void
assert_rows(const char *key, const char *range_end, int64_t revision, const char *wanted)
{
    char text[400] = "";
    size_t i;

    assert_ok(range(key, range_end, 0, revision));
    for (i = 0; i < rows()->n_kvs; i++) {
        const Etcdserverpb__KeyValue *kv = rows()->kvs[i];
        const size_t at = strlen(text);

        (void)snprintf(text + at, sizeof(text) - at, "%s%.*s=%.*s@%d.%d.%d", i > 0 ? " " : "",
                       (int)kv->key.len, (const char *)kv->key.data, (int)kv->value.len,
                       (const char *)kv->value.data, (int)kv->create_revision,
                       (int)kv->mod_revision, (int)kv->version);
    }
    assert_string_equal(text, wanted);
}

/* ------------------------------------------------------------------------------ keys */

static void
test_sim_etcd__counts_revisions(void **state)
{
    (void)state;
    assert_int_equal(sim_etcd_revision(etcd), 1);
    put("a", "1", 0);
    put("b", "1", 0);
    put("a", "2", 0);
    assert_rows("a", "z", 0, "a=2@2.4.2 b=1@3.3.1");
    assert_rows("a", "z", 3, "a=1@2.2.1 b=1@3.3.1");
    assert_rows("a", "z", 2, "a=1@2.2.1");
    delete_all("a", "");
    assert_int_equal(sim_etcd_revision(etcd), 5);
    delete_all("a", ""); /* of nothing: no revision */
    assert_int_equal(sim_etcd_revision(etcd), 5);
    put("a", "3", 0);
    assert_rows("a", "", 0, "a=3@6.6.1"); /* it begins anew */
    assert_rows("a", "", 5, "");
    assert_ok(range("a", "z", 1, 0));
    assert_true(rows()->more && rows()->n_kvs == 1 && rows()->count == 2);
    assert_fails(range("a", "", 0, 7), TUTTI_OUT_OF_RANGE);
    assert_fails(range("", "", 0, 0), TUTTI_INVALID_ARGUMENT);
}

static void
test_sim_etcd__does_a_transaction_if_its_comparisons_hold(void **state)
{
    txn one;

    (void)state;
    begin_txn(&one);
    compare_create(&one, "a", 0);
    add_put(&one, "a", "1", 0);
    add_put(&one, "b", "1", 0);
    assert_true(run(&one));
    assert_false(run(&one)); /* it is there now */
    assert_rows("a", "z", 0, "a=1@2.2.1 b=1@2.2.1");
    compare_create(&one, "a", 2);
    assert_true(run(&one));
    begin_txn(&one);
    compare_value(&one, "c", "");
    add_put(&one, "c", "1", 0);
    assert_false(run(&one)); /* what is not there has no value */
    begin_txn(&one);
    add_put(&one, "c", "1", 0);
    add_put(&one, "c", "2", 0);
    assert_fails(call("Txn", &one.request.base), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "duplicate key");
    begin_txn(&one);
    add_put(&one, "c", "1", 0);
    add_delete(&one, "a", "z");
    assert_fails(call("Txn", &one.request.base), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(sim_etcd_revision(etcd), 3);
}

static void
test_sim_etcd__cannot_read_what_is_compacted(void **state)
{
    (void)state;
    put("a", "1", 0);
    put("a", "2", 0);
    put("a", "3", 0);
    sim_etcd_compact(etcd, 3);
    assert_fails(range("a", "", 0, 2), TUTTI_OUT_OF_RANGE);
    assert_text_has(err.text, "has been compacted");
    assert_rows("a", "", 3, "a=2@2.3.2");
    assert_rows("a", "", 0, "a=3@2.4.3");
}

/* ------------------------------------------------------------------------------ leases */

static void
test_sim_etcd__ends_a_lease_that_is_not_kept(void **state)
{
    (void)state;
    assert_ok(grant(LEASE, 5));
    assert_fails(grant(LEASE, 5), TUTTI_FAILED_PRECONDITION);
    put("a", "1", LEASE);
    put("b", "1", LEASE);
    put("c", "1", LEASE);
    put("c", "2", 0); /* not any more */
    now_ns += 4 * SECOND;
    assert_int_equal(keep(LEASE), 5);
    now_ns += 4900 * TUTTI_NS_PER_MS;
    assert_rows("a", "z", 0, "a=1@2.2.1 b=1@3.3.1 c=2@4.5.2");
    now_ns += 700 * TUTTI_NS_PER_MS;
    assert_rows("a", "z", 0, "c=2@4.5.2");
    assert_int_equal(sim_etcd_revision(etcd), 6); /* both in one */
    assert_int_equal(keep(LEASE), 0);
}

static void
test_sim_etcd__refuses_a_lease_that_is_not_there(void **state)
{
    Etcdserverpb__LeaseRevokeRequest request = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
    txn one;

    (void)state;
    begin_txn(&one);
    add_put(&one, "a", "1", LEASE);
    assert_fails(call("Txn", &one.request.base), TUTTI_NOT_FOUND);
    request.id = LEASE;
    assert_fails(call("LeaseRevoke", &request.base), TUTTI_NOT_FOUND);
    assert_ok(grant(LEASE, 1));
    assert_int_equal(((const Etcdserverpb__LeaseGrantResponse *)(const void *)answer)->ttl, 2);
    assert_true(run(&one));
    assert_ok(call("LeaseRevoke", &request.base));
    assert_rows("a", "", 0, "");
}

static void
test_sim_etcd__gives_leases_their_time_again_by_a_new_leader(void **state)
{
    (void)state;
    assert_ok(grant(LEASE, 5));
    put("a", "1", LEASE);
    now_ns += 4 * SECOND;
    sim_etcd_lose_leader(etcd, now_ns, now_ns + 3 * SECOND);
    assert_fails(range("a", "", 0, 0), TUTTI_UNAVAILABLE);
    now_ns += 3 * SECOND;
    assert_rows("a", "", 0, "a=1@2.2.1");
    now_ns += 5900 * TUTTI_NS_PER_MS; /* and a second */
    assert_rows("a", "", 0, "a=1@2.2.1");
    now_ns += 700 * TUTTI_NS_PER_MS;
    assert_rows("a", "", 0, "");
}

/* ------------------------------------------------------------------------------ watches */

static sim_etcd_watch *
watch_from(const char *key, const char *range_end, int64_t revision)
{
    Etcdserverpb__WatchCreateRequest request = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

    request.key = binary(key);
    request.range_end = binary(range_end);
    request.start_revision = revision;
    return sim_etcd_watch_open(etcd, &request);
}

/* "created", "a=2@4 b-@4", "canceled 3"; "" = nothing. */
static void
assert_told(sim_etcd_watch *watch, const char *wanted)
{
    Etcdserverpb__WatchResponse *told = sim_etcd_watch_next(watch);
    char text[200] = "";
    size_t i;

    if (told != NULL && told->created) {
        (void)snprintf(text, sizeof(text), "created");
    } else if (told != NULL && told->canceled) {
        (void)snprintf(text, sizeof(text), "canceled %d", (int)told->compact_revision);
    }
    for (i = 0; told != NULL && i < told->n_events; i++) {
        const Etcdserverpb__KeyValue *kv = told->events[i]->kv;
        const bool deleted = told->events[i]->type == ETCDSERVERPB__EVENT__EVENT_TYPE__DELETE;
        const size_t at = strlen(text);

        (void)snprintf(text + at, sizeof(text) - at, "%s%.*s%s%.*s@%d", i > 0 ? " " : "",
                       (int)kv->key.len, (const char *)kv->key.data, deleted ? "-" : "=",
                       (int)kv->value.len, (const char *)kv->value.data, (int)kv->mod_revision);
    }
    assert_string_equal(text, wanted);
    if (told != NULL) {
        protobuf_c_message_free_unpacked(&told->base, NULL);
    }
}

static void
test_sim_etcd__tells_watches_of_each_revision(void **state)
{
    sim_etcd_watch *from_now;
    sim_etcd_watch *from_before;
    txn both;

    (void)state;
    put("a", "1", 0);
    from_now = watch_from("a", "c", 0);
    from_before = watch_from("a", "", 2);
    begin_txn(&both);
    add_put(&both, "a", "2", 0);
    add_put(&both, "b", "2", 0);
    assert_true(run(&both));
    put("c", "1", 0);
    delete_all("a", "z");
    assert_told(from_now, "created");
    assert_told(from_now, "a=2@3 b=2@3");
    assert_told(from_now, "a-@5 b-@5");
    assert_told(from_now, "");
    assert_told(from_before, "created");
    assert_told(from_before, "a=1@2");
    assert_told(from_before, "a=2@3");
    assert_told(from_before, "a-@5");
    assert_told(from_before, "");
    sim_etcd_watch_close(from_now);
    sim_etcd_watch_close(from_before);
}

static void
test_sim_etcd__cancels_a_watch_of_what_is_compacted(void **state)
{
    sim_etcd_watch *watch;

    (void)state;
    put("a", "1", 0);
    put("a", "2", 0);
    put("a", "3", 0);
    sim_etcd_compact(etcd, 4);
    watch = watch_from("a", "", 2);
    assert_told(watch, "created");
    assert_told(watch, "canceled 4");
    assert_told(watch, "");
    sim_etcd_watch_close(watch);
}

/* ------------------------------------------------------------------------------ what befalls it */

static void
test_sim_etcd__goes_back_to_a_snapshot(void **state)
{
    sim_etcd_watch *watch = watch_from("a", "", 0);
    sim_etcd_snapshot *snapshot;

    (void)state;
    assert_ok(grant(LEASE, 5));
    put("a", "1", LEASE);
    put("a", "2", 0);
    snapshot = sim_etcd_snapshot_take(etcd);
    put("a", "3", 0);
    put("b", "1", 0);
    delete_all("a", "");
    sim_etcd_restore(etcd, snapshot, now_ns);
    assert_true(sim_etcd_watch_is_broken(watch));
    assert_rows("a", "z", 0, "a=2@2.3.2");
    put("b", "2", 0);
    assert_rows("b", "", 0, "b=2@4.4.1"); /* this revision was another one */
    assert_int_equal(keep(LEASE), 5);
    sim_etcd_snapshot_free(snapshot);
    sim_etcd_watch_close(watch);
}

static void
test_sim_etcd__takes_nothing_when_it_is_full(void **state)
{
    txn one;

    (void)state;
    put("a", "1", 0);
    sim_etcd_fill(etcd, true);
    begin_txn(&one);
    add_put(&one, "a", "2", 0);
    assert_fails(call("Txn", &one.request.base), TUTTI_RESOURCE_EXHAUSTED);
    assert_fails(grant(0, 5), TUTTI_RESOURCE_EXHAUSTED);
    delete_all("a", "");
    assert_rows("a", "", 0, "");
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_sim_etcd__counts_revisions),
        SENTENCE(test_sim_etcd__does_a_transaction_if_its_comparisons_hold),
        SENTENCE(test_sim_etcd__cannot_read_what_is_compacted),
        SENTENCE(test_sim_etcd__ends_a_lease_that_is_not_kept),
        SENTENCE(test_sim_etcd__refuses_a_lease_that_is_not_there),
        SENTENCE(test_sim_etcd__gives_leases_their_time_again_by_a_new_leader),
        SENTENCE(test_sim_etcd__tells_watches_of_each_revision),
        SENTENCE(test_sim_etcd__cancels_a_watch_of_what_is_compacted),
        SENTENCE(test_sim_etcd__goes_back_to_a_snapshot),
        SENTENCE(test_sim_etcd__takes_nothing_when_it_is_full),
    };

    return cmocka_run_group_tests_name("sim/etcd", tests, NULL, NULL);
}
