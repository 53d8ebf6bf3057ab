/*
 * Goal: a coordinator that is started again on the same store knows what the one before it knew.
 * Method: a clock we turn; a second core on the store of the first; records that somebody spoiled.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/meshes.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/member/members.h"
#include "support/testing.h"

#define WORLD 4

static const int32_t pair[] = {2, 0};

static tutti_coordinator_job
job_of(const char *name)
{
    tutti_coordinator_job job = {0};
    tutti_error err;

    assert_ok(tutti_coordinator_job_get(fix.self, name, &job, &err));
    return job;
}

static tutti_coordinator_rank
rank_of(uint32_t rank)
{
    static tutti_coordinator_rank ranks[TUTTI_COORDINATOR_LOOKUP_MAX];
    size_t count = 0;
    tutti_error err;

    assert_ok(tutti_coordinator_lookup(fix.self, NULL, &rank, 1, ranks, &count, &err));
    return ranks[0];
}

static void
lose(uint32_t rank)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, "done", &err));
    fixture_settle(&fix);
}

static void
come_back(uint32_t rank, uint64_t incarnation)
{
    joiner one;

    joiner_must_start(&fix, &one, WORLD, rank, incarnation);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_false(one.failed);
}

static tutti_coordinator_group
make(uint32_t caller, const char *name, const char *tag, bool expect_created)
{
    const tutti_coordinator_group_request request = {
        .member = member_of(caller), .name = name, .tag = tag, .ranks = pair, .count = 2};
    tutti_coordinator_group group;
    bool created = false;
    tutti_error err;

    assert_ok(tutti_coordinator_group_create(fix.self, &request, &group, &created, &err));
    assert_int_equal(created, expect_created);
    return group;
}

static void
test_restore__keeps_seats_epochs_and_ids(void **state)
{
    tutti_coordinator_job before;
    tutti_coordinator_job after;

    (void)state;
    form_world(&fix, WORLD);
    lose(3);
    lose(1);
    come_back(3, 903);
    before = job_of(NULL);
    fixture_restart(&fix);
    after = job_of(NULL);
    assert_int_equal(after.id, before.id);
    assert_int_equal(after.epoch, 4);
    assert_int_equal(after.since_ms, before.since_ms);
    assert_int_equal(after.alive_count, 3);
    assert_int_equal(after.lost_count, 1);
    assert_int_equal(rank_of(3).incarnation, 903);
    assert_int_equal(rank_of(3).joined_epoch, 4);
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_LOST);
    assert_string_equal(rank_of(1).reason, "left: done");
    assert_string_equal(rank_of(0).agent->host, "host");
    assert_int_equal(rank_of(0).agent->pid, 100);
}

static void
test_restore__lets_ranks_go_on_under_their_incarnation(void **state)
{
    static line lines[WORLD];
    uint32_t rank;

    (void)state;
    form_world(&fix, WORLD);
    for (rank = 0; rank < WORLD; rank++) {
        line_must_open(&fix, &lines[rank], rank);
    }
    fixture_restart(&fix);
    fixture_advance(&fix, 5 * SECOND);
    for (rank = 0; rank < WORLD; rank++) {
        line_must_open(&fix, &lines[rank], rank);
        assert_int_equal(lines[rank].epoch, 1);
        assert_int_equal(lines[rank].lost_count, 0);
        assert_int_equal(lines[rank].event_count, 0);
    }
    fixture_advance(&fix, 8 * SECOND);
    assert_int_equal(job_of(NULL).alive_count, WORLD);
}

static void
test_restore__tells_what_was_missed(void **state)
{
    static line lines[WORLD];

    (void)state;
    form_world(&fix, WORLD);
    line_must_open(&fix, &lines[0], 0);
    lines[0].stuck = true; /* it hears nothing of what follows */
    lose(1);
    lose(2);
    come_back(1, 901);
    fixture_restart(&fix);
    line_must_open(&fix, &lines[0], 0);
    assert_int_equal(lines[0].lost_count, 1);
    assert_int_equal(lines[0].lost_rank, 2);
    assert_int_equal(lines[0].events[lines[0].event_count - 1].kind, TUTTI_COORDINATOR_RANK_JOINED);
    assert_int_equal(lines[0].events[lines[0].event_count - 1].rank, 1);
    assert_int_equal(lines[0].events[lines[0].event_count - 1].incarnation, 901);
}

static void
test_restore__loses_who_does_not_come_back(void **state)
{
    static line lines[WORLD];
    uint32_t rank;

    (void)state;
    form_world(&fix, WORLD);
    fixture_restart(&fix);
    for (rank = 0; rank < WORLD - 1; rank++) {
        line_must_open(&fix, &lines[rank], rank);
    }
    fixture_advance(&fix, 9 * SECOND);
    assert_int_equal(job_of(NULL).lost_count, 0);
    for (rank = 0; rank < WORLD - 1; rank++) {
        line_beat(&lines[rank]);
    }
    fixture_advance(&fix, SECOND + 1);
    assert_int_equal(job_of(NULL).lost_count, 1);
    assert_string_equal(lines[0].reason,
                        "it did not connect again after the coordinator was started again");
    fixture_restart(&fix);
    assert_int_equal(rank_of(3).state, TUTTI_COORDINATOR_LOST);
}

static void
test_restore__keeps_the_key_of_the_epoch(void **state)
{
    static line before;
    static line after;

    (void)state;
    form_world(&fix, WORLD);
    line_must_open(&fix, &before, 0);
    lose(3);
    assert_int_equal(before.key.epoch, 2);
    fixture_restart(&fix);
    line_must_open(&fix, &after, 0);
    assert_int_equal(after.key.epoch, 2);
    assert_memory_equal(after.key.bytes, before.key.bytes, sizeof(before.key.bytes));
    lose(2);
    assert_int_equal(after.key.epoch, 3);
    assert_memory_not_equal(after.key.bytes, before.key.bytes, sizeof(before.key.bytes));
}

static void
test_restore__gives_a_seat_to_a_fresh_process_and_refuses_the_old_one(void **state)
{
    const tutti_coordinator_member old = member_of(2);
    static line one;
    tutti_error err;

    (void)state;
    form_world(&fix, WORLD);
    fixture_restart(&fix);
    come_back(2, 902);
    assert_fails(line_open(&fix, &one, &old, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "STALE_INCARNATION");
    assert_int_equal(job_of(NULL).epoch, 3);
}

static void
test_restore__keeps_groups_by_name_tag_and_turn(void **state)
{
    uint64_t named;
    uint64_t tagged;
    uint64_t first;

    (void)state;
    form_world(&fix, WORLD);
    named = make(0, "tp", NULL, true).id;
    tagged = make(0, NULL, "optimizer", true).id;
    first = make(0, NULL, NULL, true).id;
    assert_int_equal(make(2, NULL, NULL, false).id, first);
    (void)make(0, NULL, NULL, true); /* rank 0 is one turn ahead */
    fixture_restart(&fix);
    assert_int_equal(make(2, "tp", NULL, false).id, named);
    assert_int_equal(make(2, NULL, "optimizer", false).id, tagged);
    assert_int_equal(make(2, NULL, NULL, false).id, first + 1);
    assert_int_equal(make(2, NULL, NULL, true).id, first + 2);
    assert_int_equal(make(0, NULL, NULL, false).id, first + 2);
    assert_int_equal(make(0, "fresh", NULL, true).id, first + 3);
}

static void
test_restore__keeps_the_time_limit_of_a_group(void **state)
{
    const tutti_coordinator_group_request request = {
        .member = member_of(0), .name = "hasty", .ranks = pair, .count = 2, .timeout_ms = 1500};
    tutti_coordinator_group group;
    bool created = false;
    tutti_error err;

    (void)state;
    form_world(&fix, WORLD);
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &group, &created, &err));
    assert_int_equal(group.timeout_ms, 1500);
    fixture_restart(&fix);
    assert_int_equal(make(2, "hasty", NULL, false).timeout_ms, 1500); /* it asks for none */
    assert_int_equal(make(0, "patient", NULL, true).timeout_ms, 0);
}

static void
test_restore__forgets_what_was_deleted(void **state)
{
    const tutti_coordinator_group_end end_it = {.member = member_of(0), .name = "tp"};
    tutti_coordinator_group group;
    bool deleted = false;
    uint64_t id;
    tutti_error err;

    (void)state;
    form_world(&fix, WORLD);
    id = make(0, "tp", NULL, true).id;
    assert_ok(tutti_coordinator_group_delete(fix.self, &end_it, &deleted, &err));
    fixture_restart(&fix);
    assert_fails(tutti_coordinator_group_get(fix.self, NULL, "tp", -1, &group, &err),
                 TUTTI_NOT_FOUND);
    assert_int_equal(make(0, "tp", NULL, true).id, id + 1);
}

static void
test_restore__keeps_meshes_and_the_ids_of_their_groups(void **state)
{
    static const int32_t shape[] = {2, 2};
    static const char *const dims[] = {"dp", "tp"};
    const tutti_coordinator_mesh_request request = {.member = member_of(0),
                                                    .name = "m",
                                                    .shape = shape,
                                                    .dim_count = 2,
                                                    .dims = dims,
                                                    .name_count = 2};
    const tutti_coordinator_member member = member_of(0);
    tutti_coordinator_mesh mesh;
    tutti_coordinator_group row;
    tutti_coordinator_group again;
    bool flag = false;
    tutti_error err;

    (void)state;
    form_world(&fix, WORLD);
    assert_ok(tutti_coordinator_mesh_create(fix.self, &request, &mesh, &flag, &err));
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "mesh:m/tp", 3, &row, &err));
    fixture_restart(&fix);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "mesh:m/tp", 2, &again, &err));
    assert_int_equal(again.id, row.id);
    assert_int_equal(again.ranks[0], 2);
    assert_int_equal(again.ranks[1], 3);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "mesh:m/tp", 0, &again, &err));
    assert_int_equal(again.id, row.id + 1);
    assert_ok(tutti_coordinator_mesh_delete(fix.self, &member, "m", false, &flag, &err));
    fixture_restart(&fix);
    assert_fails(tutti_coordinator_mesh_get(fix.self, NULL, "m", -1, &mesh, &err), TUTTI_NOT_FOUND);
}

static void
test_restore__keeps_keys_and_nothing_of_a_job_that_ended(void **state)
{
    const tutti_coordinator_key key = {NULL, BYTES("k")};
    tutti_coordinator_job job;
    tutti_store_entry entry;
    uint64_t version = 0;
    uint32_t rank;
    tutti_error err;

    (void)state;
    form_world(&fix, WORLD);
    assert_ok(tutti_coordinator_key_set(fix.self, &key, BYTES("v"), &version, &err));
    fixture_restart(&fix);
    assert_ok(tutti_coordinator_key_get(fix.self, &key, &entry, &err));
    for (rank = 0; rank < WORLD; rank++) {
        lose(rank);
    }
    fixture_restart(&fix);
    assert_int_equal(job_of(NULL).lost_count, WORLD);
    fixture_advance(&fix, 61 * SECOND);
    assert_fails(tutti_coordinator_job_get(fix.self, NULL, &job, &err), TUTTI_NOT_FOUND);
    fixture_restart(&fix);
    assert_fails(tutti_coordinator_job_get(fix.self, NULL, &job, &err), TUTTI_NOT_FOUND);
    assert_fails(tutti_store_next(fix.store, BYTES("!"), BYTES(""), &entry, &err), TUTTI_NOT_FOUND);
}

/* Cut each record at each length, and turn each of its bytes: a clear error, or a job that lives.
 */
static void
test_restore__of_spoiled_records_fails_or_goes_on(void **state)
{
    static unsigned char key[TUTTI_STORE_KEY_MAX];
    static unsigned char value[4096];
    tutti_store_entry entry = {0};
    tutti_coordinator *other = NULL;
    tutti_error err;
    size_t tried = 0;
    size_t refused = 0;

    (void)state;
    form_world(&fix, 2);
    while (tutti_store_next(fix.store, BYTES("!"), entry.key, &entry, NULL) == TUTTI_OK) {
        const size_t key_size = entry.key.size;
        const size_t size = entry.value.size;
        size_t i;

        memcpy(key, entry.key.data, key_size);
        memcpy(value, entry.value.data, size);
        for (i = 0; i < 2 * size; i++) {
            const size_t at = i % size;

            value[at] = (unsigned char)~value[at];
            assert_ok(tutti_store_set(fix.store, (tutti_bytes){key, key_size},
                                      (tutti_bytes){value, i < size ? size : at}, NULL, &err));
            value[at] = (unsigned char)~value[at];
            assert_ok(tutti_coordinator_new(&fix.options, fix.store, &other, &err));
            tutti_coordinator_set_time(other, fix.now_ns, fix.now_ns);
            tried++;
            if (tutti_coordinator_restore(other, &err) != TUTTI_OK) {
                assert_true(err.code == TUTTI_DATA_LOSS || err.code == TUTTI_RESOURCE_EXHAUSTED ||
                            err.code == TUTTI_INVALID_ARGUMENT);
                refused++;
            }
            tutti_coordinator_free(other);
        }
        assert_ok(tutti_store_set(fix.store, (tutti_bytes){key, key_size},
                                  (tutti_bytes){value, size}, NULL, &err));
        entry.key = (tutti_bytes){key, key_size};
    }
    assert_true(tried > 300 && refused > 100 && refused < tried);
}

#define SENTENCE(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, fixture_begin_durable, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_restore__keeps_seats_epochs_and_ids),
        SENTENCE(test_restore__keeps_the_key_of_the_epoch),
        SENTENCE(test_restore__lets_ranks_go_on_under_their_incarnation),
        SENTENCE(test_restore__tells_what_was_missed),
        SENTENCE(test_restore__loses_who_does_not_come_back),
        SENTENCE(test_restore__gives_a_seat_to_a_fresh_process_and_refuses_the_old_one),
        SENTENCE(test_restore__keeps_groups_by_name_tag_and_turn),
        SENTENCE(test_restore__keeps_the_time_limit_of_a_group),
        SENTENCE(test_restore__forgets_what_was_deleted),
        SENTENCE(test_restore__keeps_meshes_and_the_ids_of_their_groups),
        SENTENCE(test_restore__keeps_keys_and_nothing_of_a_job_that_ended),
        SENTENCE(test_restore__of_spoiled_records_fails_or_goes_on),
    };

    return cmocka_run_group_tests_name("coordinator/restore", tests, NULL, NULL);
}
