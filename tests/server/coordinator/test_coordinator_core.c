/*
 * Goal: the coordinator as a whole: options, limits, drain, 10 000 agents, and no memory.
 * Method: a clock we turn; storms are timed and printed, not judged; each allocation fails once.
 */
#include <inttypes.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/meshes.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/queue.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/metadata/metadata.h"
#include "server/coordinator/rendezvous/rendezvous.h"
#include "support/sweep.h"
#include "support/testing.h"

#define STORM 10000

static void
test_options__that_do_not_fit_together_are_refused(void **state)
{
    tutti_coordinator_options options;
    tutti_error err;

    (void)state;
    fixture_options(&options);
    assert_int_equal(options.heartbeat_timeout_ns, 10 * SECOND);
    assert_int_equal(options.lost_grace_ns, 500 * MS);
    assert_int_equal(options.job_linger_ns, 60 * SECOND);
    options.heartbeat_timeout_ns = 3 * SECOND;
    assert_fails(tutti_coordinator_options_check(&options, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "--heartbeat-timeout is 3000 ms");
}

/* One of everything that can be parked. */
typedef struct parked {
    joiner join;
    line session;
    meeter meet;
    waiter wait;
    counter count;
    watcher watch;
} parked;

static void
park_all(parked *all)
{
    const tutti_coordinator_join_request join = join_request("other", 2, 0, 5);
    tutti_coordinator_meet_request meet = {.kind = TUTTI_COORDINATOR_ALL_GATHER,
                                           .member = member_of(0),
                                           .deadline_ns = TUTTI_TIMERS_NEVER};
    const tutti_bytes keys[] = {BYTES("absent")};
    const tutti_coordinator_wait_request wait = {
        .keys = keys, .count = 1, .deadline_ns = TUTTI_TIMERS_NEVER};
    tutti_error err;

    assert_ok(joiner_start(&fix, &all->join, &join, &err));
    line_must_open(&fix, &all->session, 1);
    assert_ok(meeter_start(&fix, &all->meet, &meet, &err));
    assert_ok(waiter_start(&fix, &all->wait, &wait, &err));
    assert_ok(watcher_start(&fix, &all->watch, NULL, "", &err));
}

static void
test_drain__answers_all_that_is_parked_and_refuses_what_comes(void **state)
{
    const tutti_coordinator_key prefix = {NULL, BYTES("")};
    static parked all;
    static parked late;
    const tutti_coordinator_join_request join = join_request("third", 2, 0, 5);
    tutti_error err;

    (void)state;
    fixture_open(&fix, NULL);
    form_world(&fix, 2);
    park_all(&all);
    fixture_settle(&fix);
    assert_ok(counter_start(&fix, &all.count, &prefix, &err));
    assert_int_equal(tutti_coordinator_parked(fix.self), 6);
    tutti_coordinator_drain(fix.self);
    assert_int_equal(all.join.answer_count, 0);
    fixture_settle(&fix);
    assert_int_equal(tutti_coordinator_parked(fix.self), 0);
    assert_int_equal(all.join.answer_count, 1);
    assert_string_equal(all.join.err.reason, "DRAINING");
    assert_string_equal(all.session.err.reason, "DRAINING");
    assert_string_equal(all.meet.err.reason, "DRAINING");
    assert_string_equal(all.wait.err.reason, "DRAINING");
    assert_string_equal(all.watch.err.reason, "DRAINING");
    assert_int_equal(all.count.answer_count, 1);
    assert_fails(joiner_start(&fix, &late.join, &join, &err), TUTTI_UNAVAILABLE);
    assert_fails(watcher_start(&fix, &late.watch, NULL, "", &err), TUTTI_UNAVAILABLE);
    assert_fails(counter_start(&fix, &late.count, &prefix, &err), TUTTI_UNAVAILABLE);
    fixture_close(&fix);
}

static void
test_drain__of_a_thousand_calls_goes_in_slices(void **state)
{
    static waiter waiters[1000];
    const tutti_bytes keys[] = {BYTES("absent")};
    const tutti_coordinator_wait_request request = {
        .keys = keys, .count = 1, .deadline_ns = TUTTI_TIMERS_NEVER};
    int answered = 0;
    size_t i;
    tutti_error err;

    (void)state;
    fixture_open(&fix, NULL);
    for (i = 0; i < COUNT_OF(waiters); i++) {
        assert_ok(waiter_start(&fix, &waiters[i], &request, &err));
    }
    tutti_coordinator_drain(fix.self);
    fixture_run(&fix, false);
    for (i = 0; i < COUNT_OF(waiters); i++) {
        answered += waiters[i].answer_count;
    }
    assert_in_range(answered, 1, 64);
    fixture_close(&fix);
}

static void
test_waiters__beyond_the_limit_are_refused(void **state)
{
    tutti_coordinator_options options;
    static waiter waiters[3];
    const tutti_bytes keys[] = {BYTES("absent")};
    const tutti_coordinator_wait_request request = {
        .keys = keys, .count = 1, .deadline_ns = TUTTI_TIMERS_NEVER};
    tutti_error err;

    (void)state;
    fixture_options(&options);
    options.waiter_limit = 2;
    fixture_open(&fix, &options);
    assert_ok(waiter_start(&fix, &waiters[0], &request, &err));
    assert_ok(waiter_start(&fix, &waiters[1], &request, &err));
    assert_fails(waiter_start(&fix, &waiters[2], &request, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "WAITER_LIMIT");
    tutti_coordinator_key_wait_withdraw(&waiters[0].wait);
    assert_ok(waiter_start(&fix, &waiters[2], &request, &err));
    fixture_close(&fix);
}

/* ------------------------------------------------------------------------------ storms */

static double
ms_since(uint64_t begin_ns)
{
    return (double)(tutti_clock_ns() - begin_ns) / 1e6;
}

static void
join_storm(joiner *joiners, uint32_t count)
{
    uint64_t begin_ns = tutti_clock_ns();
    uint32_t i;

    for (i = 0; i < count; i++) {
        tutti_coordinator_join_request request = join_request(NULL, count, ANY_RANK, 100 + i);
        char host[32];

        (void)snprintf(host, sizeof(host), "host-%u", (unsigned)(count - i) / 8);
        request.agent.host = host;
        assert_int_equal(joiner_start(&fix, &joiners[i], &request, NULL), TUTTI_OK);
    }
    fixture_settle(&fix);
    print_message("# %u joins and answers: %.1f ms\n", (unsigned)count, ms_since(begin_ns));
    for (i = 0; i < count; i++) {
        assert_int_equal(joiners[i].answer_count, 1);
    }
    for (i = 8; i < count - 8; i += 97) { /* of two hosts, the one with the lower number */
        assert_true(joiners[i].seat.rank < joiners[i - 8].seat.rank);
    }
}

static void
session_storm(line *lines, const joiner *joiners, uint32_t count)
{
    uint64_t begin_ns = tutti_clock_ns();
    uint32_t i;

    for (i = 0; i < count; i++) {
        const tutti_coordinator_member member = {.rank = joiners[i].seat.rank,
                                                 .incarnation = 100 + i};

        lines[i] = (line){.session = {.on_accepted = lines[0].session.on_accepted,
                                      .on_changes = lines[0].session.on_changes,
                                      .on_heartbeat_ack = lines[0].session.on_heartbeat_ack,
                                      .on_end = lines[0].session.on_end}};
        tutti_list_add(&fix.lines, &lines[i].link);
        tutti_coordinator_session_start(fix.self, &lines[i].session);
        assert_int_equal(tutti_coordinator_session_open(&lines[i].session, &member, NULL),
                         TUTTI_OK);
    }
    fixture_settle(&fix);
    print_message("# %u sessions accepted: %.1f ms\n", (unsigned)count, ms_since(begin_ns));
}

static void
loss_storm(line *lines, uint32_t count, uint32_t lost)
{
    uint64_t begin_ns = tutti_clock_ns();
    size_t events = 0;
    uint32_t i;

    for (i = 0; i < lost; i++) {
        tutti_coordinator_session_withdraw(&lines[i].session);
    }
    fix.now_ns += 600 * MS;
    tutti_coordinator_set_time(fix.self, fix.now_ns, fix.now_ns);
    fixture_run(&fix, false);
    print_message("# first slice of %u losses: %.2f ms\n", (unsigned)lost, ms_since(begin_ns));
    fixture_settle(&fix);
    print_message("# told to the others: %.1f ms\n", ms_since(begin_ns));
    for (i = lost; i < count; i++) {
        events += lines[i].event_count;
    }
    assert_int_equal(events, (size_t)lost * (count - lost));
}

static void
test_storm__of_ten_thousand_agents_is_survived(void **state)
{
    joiner *joiners = calloc(STORM, sizeof(*joiners));
    line *lines = calloc(STORM, sizeof(*lines));
    static line prototype;

    (void)state;
    assert_true(joiners != NULL && lines != NULL);
    fixture_open(&fix, NULL);
    join_storm(joiners, STORM);
    (void)line_open(&fix, &prototype, &(tutti_coordinator_member){.job = "none"}, NULL);
    lines[0].session = prototype.session;
    session_storm(lines, joiners, STORM);
    loss_storm(lines, STORM, 10);
    fixture_close(&fix);
    free(joiners);
    free(lines);
}

static void
test_storm__of_joins_costs_the_same_per_agent(void **state)
{
    static const uint32_t counts[] = {1000, 4000, 16000, 64000};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(counts); i++) {
        joiner *joiners = calloc(counts[i], sizeof(*joiners));
        uint64_t begin_ns;
        uint32_t rank;

        assert_non_null(joiners);
        fixture_open(&fix, NULL);
        begin_ns = tutti_clock_ns();
        for (rank = 0; rank < counts[i]; rank++) {
            joiner_must_start(&fix, &joiners[rank], counts[i], rank, 100 + rank);
        }
        fixture_settle(&fix);
        print_message("# %u agents: %.2f us each\n", (unsigned)counts[i],
                      ms_since(begin_ns) * 1000.0 / counts[i]);
        assert_int_equal(joiners[counts[i] - 1].answer_count, 1);
        fixture_close(&fix);
        free(joiners);
    }
}

/* ------------------------------------------------------------------------------ no memory */

/* What failed for want of memory works the second time: nothing was left half done. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        tutti_code code_ = (call);                                                                 \
        if (code_ != TUTTI_OK) {                                                                   \
            assert_int_equal(code_, TUTTI_RESOURCE_EXHAUSTED);                                     \
            code_ = (call);                                                                        \
        }                                                                                          \
        assert_int_equal(code_, TUTTI_OK);                                                         \
    } while (0)

static void
live_members(parked *all)
{
    const tutti_coordinator_join_request first = join_request(NULL, 2, 0, 100);
    const tutti_coordinator_join_request second = join_request(NULL, 2, ANY_RANK, 101);
    const tutti_coordinator_join_request again = join_request(NULL, 2, 1, 201);
    const tutti_coordinator_member member = member_of(1);
    static joiner joiners[3];
    tutti_coordinator_job job;

    if (joiner_start(&fix, &joiners[0], &first, NULL) != TUTTI_OK) {
        assert_false(tutti_coordinator_job_next(fix.self, "", &job)); /* it began for nothing */
        assert_int_equal(joiner_start(&fix, &joiners[0], &first, NULL), TUTTI_OK);
    }
    TRY(joiner_start(&fix, &joiners[1], &second, NULL));
    fixture_settle(&fix);
    assert_true(joiners[0].answer_count == 1 && joiners[1].answer_count == 1);
    line_must_open(&fix, &all->session, 0);
    TRY(tutti_coordinator_leave(fix.self, &member, "x", NULL));
    TRY(joiner_start(&fix, &joiners[2], &again, NULL));
    fixture_settle(&fix);
    assert_int_equal(joiners[2].answer_count, 1);
}

static tutti_code
meet(meeter *one, uint32_t rank, uint64_t incarnation)
{
    tutti_coordinator_meet_request request = {.kind = TUTTI_COORDINATOR_ALL_GATHER,
                                              .member = {NULL, rank, incarnation},
                                              .key = BYTES("key"),
                                              .token = 1,
                                              .deadline_ns = TUTTI_TIMERS_NEVER};
    return meeter_start(&fix, one, &request, NULL);
}

static void
live_groups(void)
{
    const int32_t ranks[] = {1, 0};
    const tutti_coordinator_group_request request = {
        .member = member_of(0), .name = "g", .ranks = ranks, .count = 2};
    const tutti_coordinator_group_end end = {.member = member_of(0), .name = "g"};
    tutti_coordinator_group group;
    static meeter meeters[2];
    bool created;
    bool deleted;

    TRY(tutti_coordinator_group_create(fix.self, &request, &group, &created, NULL));
    TRY(meet(&meeters[0], 0, 100));
    TRY(meet(&meeters[1], 1, 201));
    fixture_settle(&fix);
    assert_int_equal(meeters[0].value_count, 2);
    assert_int_equal(meeters[1].value_count, 2);
    TRY(tutti_coordinator_group_delete(fix.self, &end, &deleted, NULL));
}

/* Groups of which nobody says the name, and a mesh with its own. */
static void
live_parts(void)
{
    const int32_t shape[] = {2};
    const tutti_coordinator_split_request split = {
        .member = member_of(0), .kind = TUTTI_COORDINATOR_SPLIT_COUNT, .number = 1};
    const tutti_coordinator_mesh_request mesh = {
        .member = member_of(0), .name = "m", .shape = shape, .dim_count = 1};
    const tutti_coordinator_mesh_dim dim = {0};
    tutti_coordinator_split part;
    tutti_coordinator_mesh made;
    tutti_coordinator_mesh_groups groups;
    tutti_coordinator_group group;
    bool created;

    TRY(tutti_coordinator_group_split(fix.self, &split, &part, NULL));
    tutti_coordinator_split_fini(&part);
    TRY(tutti_coordinator_mesh_create(fix.self, &mesh, &made, &created, NULL));
    TRY(tutti_coordinator_group_get(fix.self, NULL, "mesh:m/0", 1, &group, NULL));
    TRY(tutti_coordinator_mesh_list(fix.self, NULL, "m", &dim, &groups, NULL));
    free(groups.ranks);
}

static void
live_keys(parked *all)
{
    const tutti_coordinator_key key = {NULL, BYTES("k")};
    const tutti_bytes keys[] = {BYTES("k"), BYTES("l")};
    const tutti_coordinator_wait_request wait = {
        .keys = keys, .count = 2, .deadline_ns = TUTTI_TIMERS_NEVER};
    const tutti_coordinator_key other = {NULL, BYTES("l")};
    tutti_coordinator_list_request list = {.prefix = {NULL, BYTES("")}};
    tutti_coordinator_page page = {0};
    uint64_t version;
    tutti_code code;

    TRY(watcher_start(&fix, &all->watch, NULL, "", NULL));
    TRY(waiter_start(&fix, &all->wait, &wait, NULL));
    fixture_settle(&fix);
    TRY(tutti_coordinator_key_set(fix.self, &key, BYTES("value"), &version, NULL));
    TRY(tutti_coordinator_key_set(fix.self, &other, BYTES("value"), &version, NULL));
    fixture_settle(&fix);
    assert_int_equal(all->wait.answer_count, 1);
    if (all->watch.end_count > 0) { /* there was no memory to keep a change for it */
        assert_string_equal(all->watch.err.reason, "SLOW_WATCHER");
    } else {
        assert_string_equal(all->watch.text, "begun,set k=value,set l=value,");
    }
    code = tutti_coordinator_key_list(fix.self, &list, &page, NULL);
    tutti_coordinator_page_fini(&page);
    if (code != TUTTI_OK) {
        assert_int_equal(code, TUTTI_RESOURCE_EXHAUSTED);
        code = tutti_coordinator_key_list(fix.self, &list, &page, NULL);
        tutti_coordinator_page_fini(&page);
    }
    assert_int_equal(code, TUTTI_OK);
}

/* Taking, exchange round and answers that are kept. */
typedef struct told {
    tutti_coordinator_take take;
    tutti_coordinator_caller caller;
    int answer_count;
    tutti_code code;
} told;

static void
on_taken(tutti_coordinator_take *take, const tutti_store_entry *entry, const tutti_error *err)
{
    told *one = tutti_container_of(take, told, take);

    (void)entry;
    one->answer_count++;
    one->code = err == NULL ? TUTTI_OK : err->code;
}

static void
on_met(tutti_coordinator_caller *caller, const tutti_coordinator_met *met, const tutti_error *err)
{
    told *one = tutti_container_of(caller, told, caller);

    (void)met;
    one->answer_count++;
    one->code = err == NULL ? TUTTI_OK : err->code;
}

static void
live_taking(void)
{
    const tutti_coordinator_key key = {NULL, BYTES("q")};
    const tutti_coordinator_take_request pop = {
        .key = key, .from_queue = true, .token = 1, .deadline_ns = TUTTI_TIMERS_NEVER};
    const tutti_coordinator_caller_request meet = {
        .key = key, .count = 2, .rank = UINT32_MAX, .token = 1, .deadline_ns = TUTTI_TIMERS_NEVER};
    tutti_coordinator_caller_request other = meet;
    const tutti_coordinator_change push = {key, 2};
    tutti_coordinator_changed changed;
    static told taker;
    static told callers[2];

    other.token = 0;
    taker = (told){.take = {.on_answer = on_taken}};
    callers[0] = (told){.caller = {.on_answer = on_met}};
    callers[1] = (told){.caller = {.on_answer = on_met}};
    TRY(tutti_coordinator_take_start(fix.self, &pop, &taker.take, NULL));
    TRY(tutti_coordinator_queue_push(fix.self, &push, BYTES("value"), &changed, NULL));
    TRY(tutti_coordinator_caller_start(fix.self, &meet, &callers[0].caller, NULL));
    TRY(tutti_coordinator_caller_start(fix.self, &other, &callers[1].caller, NULL));
    fixture_settle(&fix);
    assert_int_equal(taker.answer_count, 1); /* the value stays when there is no memory for it */
    assert_true(taker.code == TUTTI_OK || taker.code == TUTTI_RESOURCE_EXHAUSTED);
    assert_int_equal(callers[0].answer_count + callers[1].answer_count, 2);
    assert_true(callers[0].code == TUTTI_OK && callers[1].code == TUTTI_OK);
}

static void
test_coordinator__without_memory_fails_and_stays_whole(void **state)
{
    tutti_coordinator_options options;
    static parked all;
    bool failed = true;
    size_t n;

    (void)state;
    fixture_options(&options);
    for (n = 0; failed; n++) {
        memset(&all, 0, sizeof(all));
        fixture_open(&fix, &options);
        sweep_fail_once(n);
        live_members(&all);
        live_groups();
        live_parts();
        live_keys(&all);
        live_taking();
        fixture_advance(&fix, 100 * SECOND); /* sessions, retries, the job and its keys end */
        failed = sweep_stop();
        fixture_close(&fix);
    }
    print_message("# %zu allocations failed in turn\n", n - 1);
    assert_true(n > 20);
}

static void
test_coordinator_new__without_memory_owes_nothing(void **state)
{
    tutti_coordinator *self = NULL;
    tutti_coordinator_options options;
    tutti_error err;

    (void)state;
    fixture_open(&fix, NULL);
    fixture_options(&options);
    sweep_fail_at(0);
    assert_int_equal(tutti_coordinator_new(&options, fix.store, &self, &err),
                     TUTTI_RESOURCE_EXHAUSTED);
    assert_true(sweep_stop());
    assert_null(self);
    tutti_coordinator_free(NULL);
    fixture_close(&fix);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options__that_do_not_fit_together_are_refused),
        cmocka_unit_test(test_drain__answers_all_that_is_parked_and_refuses_what_comes),
        cmocka_unit_test(test_drain__of_a_thousand_calls_goes_in_slices),
        cmocka_unit_test(test_waiters__beyond_the_limit_are_refused),
        cmocka_unit_test(test_storm__of_ten_thousand_agents_is_survived),
        cmocka_unit_test(test_storm__of_joins_costs_the_same_per_agent),
        cmocka_unit_test(test_coordinator__without_memory_fails_and_stays_whole),
        cmocka_unit_test(test_coordinator_new__without_memory_owes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
