/*
 * Goal: the flight recorder holds the last ops, whole, whoever writes while somebody reads.
 * Method: the ring alone; more ops than it holds; two threads; its cost is printed.
 */
#include <pthread.h>

#include "base/os/clock.h"
#include "server/agent/record/flight.h"
#include "support/testing.h"

#define OPS 200000

static uint64_t
record(agent_flight *flight, uint64_t sequence)
{
    agent_flight_entry *entry = agent_flight_begin(flight);
    const uint64_t record_id = entry->record_id;

    entry->sequence = sequence;
    agent_flight_unlock(flight);
    return record_id;
}

static void
finish(agent_flight *flight, uint64_t record_id, uint64_t at_ns)
{
    agent_flight_entry *entry = agent_flight_change(flight, record_id);

    if (entry != NULL) {
        entry->state = AGENT_FLIGHT_COMPLETED;
        entry->completed_ns = at_ns;
        agent_flight_unlock(flight);
    }
}

static void
test_flight_read__gives_ops_in_order_a_page_at_a_time(void **state)
{
    agent_flight *flight = agent_flight_new();
    agent_flight_entry page[2];
    uint64_t i;

    (void)state;
    for (i = 0; i < 5; i++) {
        assert_int_equal(record(flight, 10 + i), i);
    }
    assert_int_equal(agent_flight_read(flight, 0, page, 2), 2);
    assert_int_equal(page[1].record_id, 1);
    assert_int_equal(page[1].sequence, 11);
    assert_int_equal(agent_flight_read(flight, 4, page, 2), 1);
    assert_int_equal(page[0].sequence, 14);
    assert_int_equal(agent_flight_read(flight, 5, page, 2), 0);
    assert_int_equal(agent_flight_read(flight, UINT64_MAX, page, 2), 0);
    assert_int_equal(agent_flight_next(flight), 5);
    agent_flight_free(flight);
}

static void
test_flight_begin__takes_the_place_of_the_oldest(void **state)
{
    agent_flight *flight = agent_flight_new();
    agent_flight_entry one;
    uint64_t i;

    (void)state;
    for (i = 0; i < AGENT_FLIGHT_OPS + 3; i++) {
        (void)record(flight, i + 1);
    }
    assert_int_equal(agent_flight_read(flight, 0, &one, 1), 1);
    assert_int_equal(one.record_id, 3);
    assert_int_equal(one.sequence, 4);
    finish(flight, 2, 9); /* has gone: nobody else's entry is touched */
    assert_null(agent_flight_change(flight, 2));
    assert_null(agent_flight_change(flight, AGENT_FLIGHT_OPS + 3));
    assert_int_equal(agent_flight_read(flight, AGENT_FLIGHT_OPS + 2, &one, 1), 1);
    assert_int_equal(one.completed_ns, 0);
    agent_flight_free(flight);
}

static void
test_flight_name__is_what_readers_expect(void **state)
{
    agent_flight_entry entry = {.kind = TUTTI_COLL_ALL_REDUCE};
    char name[AGENT_FLIGHT_NAME_SIZE];

    (void)state;
    agent_flight_name(&entry, name);
    assert_string_equal(name, "nccl:all_reduce");
    entry = (agent_flight_entry){.kind = TUTTI_COLL_SEND, .group_rank = 3, .peer = 1};
    agent_flight_name(&entry, name);
    assert_string_equal(name, "nccl:send 3->1");
    entry.kind = TUTTI_COLL_RECV;
    agent_flight_name(&entry, name);
    assert_string_equal(name, "nccl:recv 3<-1");
    entry.peer = TUTTI_COLL_ANY_SOURCE;
    agent_flight_name(&entry, name);
    assert_string_equal(name, "nccl:recvAnySource");
    assert_string_equal(agent_flight_state_name(AGENT_FLIGHT_FAILED), "failed");
}

static void *
write_many(void *arg)
{
    agent_flight *flight = arg;
    uint64_t i;

    for (i = 0; i < OPS / 10; i++) {
        const uint64_t record_id = record(flight, i);

        finish(flight, record_id, i + 1);
    }
    return NULL;
}

static void
test_flight_read__beside_writers_sees_whole_entries(void **state)
{
    agent_flight *flight = agent_flight_new();
    agent_flight_entry *page = calloc(64, sizeof(*page));
    pthread_t thread;
    uint64_t from = 0;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, write_many, flight), 0);
    while (from < OPS / 10) {
        const size_t count = agent_flight_read(flight, from, page, 64);
        size_t i;

        for (i = 0; i < count; i++) {
            assert_int_equal(page[i].sequence, page[i].record_id);
            assert_true(page[i].completed_ns == 0 || page[i].completed_ns == page[i].sequence + 1);
        }
        from = count > 0 ? page[count - 1].record_id + 1 : from;
    }
    (void)pthread_join(thread, NULL);
    free(page);
    agent_flight_free(flight);
}

/* As an op does: one begin, three changes. No limit is set: machines differ. */
static void
test_flight__costs_little(void **state)
{
    agent_flight *flight = agent_flight_new();
    const uint64_t began_ns = tutti_clock_ns();
    uint64_t i;

    (void)state;
    for (i = 0; i < OPS; i++) {
        const uint64_t record_id = record(flight, i);

        finish(flight, record_id, 1);
        finish(flight, record_id, 2);
        finish(flight, record_id, 3);
    }
    print_message("# one op in the flight recorder: %.0f ns\n",
                  (double)(tutti_clock_ns() - began_ns) / OPS);
    agent_flight_free(flight);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flight_read__gives_ops_in_order_a_page_at_a_time),
        cmocka_unit_test(test_flight_begin__takes_the_place_of_the_oldest),
        cmocka_unit_test(test_flight_name__is_what_readers_expect),
        cmocka_unit_test(test_flight_read__beside_writers_sees_whole_entries),
        cmocka_unit_test(test_flight__costs_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
