/*
 * Goal: store/etcd lives on the simulated etcd as it does on etcd: the contract of every store, the election, what is found
 * again, a leader that is lost, and an etcd that goes back.
 * Method: the simulated etcd behind a server of lib/rpc in this process, over the loopback.
 */
#include "support/testing.h"

#include <semaphore.h>

#include "base/os/clock.h"
#include "rpc/loop.h"
#include "sim/etcd/etcd_server.h"
#include "store/contract.h"
#include "store/etcd/etcd.h"

static sim_etcd *etcd;
static sim_etcd_server *server;
static int prefix_count;

static void
on_lost(void *arg, const tutti_error *why)
{
    assert_string_equal(why->reason, "STORE_WENT_BACK");
    (void)sem_post(arg);
}

/* [in] lost  told when it leads no more; NULL = nobody is */
static tutti_etcd *
lead_telling(int prefix, sem_t *lost)
{
    const tutti_etcd_events none = {0};
    char where[80];
    const tutti_etcd_options options = {.where = where, .lease_ns = 2 * TUTTI_NS_PER_S};
    tutti_etcd *one = NULL;
    tutti_error err;

    (void)snprintf(where, sizeof(where), "%s/test/%d", sim_etcd_server_address(server), prefix);
    assert_ok(tutti_etcd_open(&options, &one, &err));
    if (lost != NULL) {
        tutti_etcd_on_lost(one, on_lost, lost);
    }
    assert_ok(tutti_etcd_lead(one, "here:1", &none, &err));
    return one;
}

static tutti_etcd *
lead(int prefix)
{
    return lead_telling(prefix, NULL);
}

static tutti_store *
open_store(tutti_etcd *one)
{
    const tutti_store_etcd_options options = {.etcd = one};
    tutti_store *store = NULL;
    tutti_error err;

    assert_ok(tutti_store_etcd_open(&options, &store, &err));
    return store;
}

static void
set(tutti_store *store, const char *key, const char *value)
{
    tutti_error err;

    assert_ok(tutti_store_set(store, tutti_bytes_of(key), tutti_bytes_of(value), NULL, &err));
}

static bool
has(tutti_store *store, const char *key, const char *value)
{
    tutti_store_entry entry;

    return tutti_store_get(store, tutti_bytes_of(key), &entry, NULL) == TUTTI_OK &&
           tutti_bytes_equal(entry.value, tutti_bytes_of(value));
}

/* ------------------------------------------------------------------------------ the contract */

static tutti_etcd *contract_etcd;

static tutti_code
open_contract(tutti_store **ret_store, tutti_error *err)
{
    tutti_store_etcd_options options = {.bytes_max = STORE_CONTRACT_BYTES_MAX,
                                        .keys_max = STORE_CONTRACT_KEYS_MAX};

    tutti_etcd_close(contract_etcd);
    contract_etcd = lead(++prefix_count);
    options.etcd = contract_etcd;
    return tutti_store_etcd_open(&options, ret_store, err);
}

static const store_contract_backend backends[] = {
    {"store/etcd on the simulated etcd", open_contract, false}};

/* ------------------------------------------------------------------------------ more than that */

static void
test_store_etcd_on_sim__finds_again_what_was_durable(void **state)
{
    const int prefix = ++prefix_count;
    tutti_etcd *one = lead(prefix);
    tutti_store *store = open_store(one);
    tutti_error err;

    (void)state;
    set(store, "a", "1");
    set(store, "b", "2");
    assert_ok(tutti_store_settle(store, &err));
    set(store, "a", "3");
    assert_ok(tutti_store_delete(store, tutti_bytes_of("b"), NULL, NULL, &err));
    tutti_store_close(store);
    tutti_etcd_close(one);
    one = lead(prefix); /* the lease was given back, and the key with it */
    store = open_store(one);
    assert_true(has(store, "a", "3"));
    assert_false(has(store, "b", "2"));
    assert_int_equal(tutti_store_version(store), 4);
    tutti_store_close(store);
    tutti_etcd_close(one);
}

static void
test_store_etcd_on_sim__hears_that_it_went_back(void **state)
{
    sim_etcd_snapshot *snapshot;
    tutti_store *store;
    tutti_etcd *one;
    sem_t lost;
    tutti_error err;

    (void)state;
    (void)sem_init(&lost, 0, 0);
    one = lead_telling(++prefix_count, &lost);
    store = open_store(one);
    set(store, "a", "1");
    assert_ok(tutti_store_settle(store, &err));
    sim_etcd_server_enter(server);
    snapshot = sim_etcd_snapshot_take(etcd);
    sim_etcd_server_leave(server);
    set(store, "a", "2");
    assert_ok(tutti_store_settle(store, &err));
    sim_etcd_server_enter(server);
    sim_etcd_restore(etcd, snapshot, tutti_clock_ns());
    sim_etcd_server_leave(server);
    set(store, "a", "3");
    assert_fails(tutti_store_settle(store, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "STORE_WENT_BACK");
    (void)sem_wait(&lost); /* who keeps the lease finds it, too */
    sim_etcd_snapshot_free(snapshot);
    tutti_store_close(store);
    tutti_etcd_close(one);
    (void)sem_destroy(&lost);
}

static void
test_store_etcd_on_sim__waits_for_a_leader_of_etcd(void **state)
{
    tutti_etcd *one = lead(++prefix_count);
    tutti_store *store = open_store(one);
    tutti_error err;

    (void)state;
    sim_etcd_server_enter(server);
    sim_etcd_lose_leader(etcd, tutti_clock_ns(), tutti_clock_ns() + 300 * TUTTI_NS_PER_MS);
    sim_etcd_server_leave(server);
    set(store, "a", "1");
    assert_ok(tutti_store_settle(store, &err));
    tutti_store_close(store);
    tutti_etcd_close(one);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_etcd_on_sim__finds_again_what_was_durable),
        cmocka_unit_test(test_store_etcd_on_sim__hears_that_it_went_back),
        cmocka_unit_test(test_store_etcd_on_sim__waits_for_a_leader_of_etcd),
    };
    tutti_error err;
    int failed;

    tutti_rpc_init();
    etcd = sim_etcd_new(tutti_clock_ns());
    assert_ok(sim_etcd_server_start(etcd, "127.0.0.1:0", &server, &err));
    failed = store_contract_run(backends, COUNT_OF(backends));
    failed += cmocka_run_group_tests_name("store/etcd on a simulated etcd", tests, NULL, NULL);
    tutti_etcd_close(contract_etcd);
    sim_etcd_server_stop(server);
    sim_etcd_free(etcd);
    tutti_rpc_fini();
    return failed;
}
