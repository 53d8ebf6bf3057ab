/*
 * Goal: who joins gets its seat when it should, is told who is missing, and nobody gets two.
 * Method: a coordinator with a clock we turn; callers that write down what they are told.
 */
#include "support/testing.h"

#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "tutti/types.h"

static tutti_coordinator_job
job_of(const char *name)
{
    tutti_coordinator_job job = {0};
    tutti_error err;

    assert_ok(tutti_coordinator_job_get(fix.self, name, &job, &err));
    return job;
}

static void
lose(uint32_t rank)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, NULL, &err));
}

static void
assert_refused(const tutti_coordinator_join_request *request, tutti_code code, const char *reason,
               const char *text)
{
    joiner one;
    tutti_error err;

    assert_fails(joiner_start(&fix, &one, request, &err), code);
    assert_string_equal(err.reason, reason);
    assert_text_has(err.text, text);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 0);
}

static void
test_join__answers_all_when_the_world_is_complete(void **state)
{
    joiner joiners[3];
    uint32_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        fixture_settle(&fix);
        assert_int_equal(i == 0 ? 0 : joiners[0].answer_count, 0);
        joiner_must_start(&fix, &joiners[i], 3, i, 100 + i);
        assert_int_equal(joiners[i].answer_count, 0); /* never inside the call */
    }
    fixture_settle(&fix);
    for (i = 0; i < 3; i++) {
        assert_int_equal(joiners[i].answer_count, 1);
        assert_false(joiners[i].failed);
        assert_int_equal(joiners[i].seat.rank, i);
        assert_int_equal(joiners[i].seat.world_size, 3);
        assert_int_equal(joiners[i].seat.epoch, 1);
        assert_int_equal(joiners[i].seat.heartbeat_interval_ms, 2000);
        assert_int_equal(joiners[i].seat.heartbeat_timeout_ms, 10000);
    }
    assert_true(joiners[0].seat.job_id != 0 && joiners[0].seat.job_id == joiners[2].seat.job_id);
    assert_int_equal(tutti_coordinator_parked(fix.self), 0);
    assert_int_equal(job_of(NULL).alive_count, 3);
}

static void
test_join__assigns_by_host_then_local_rank_then_pid_then_arrival(void **state)
{
    static const struct {
        const char *host;
        uint32_t local_rank;
        uint32_t pid;
        uint32_t wanted;
    } agents[] = {
        {"host-10", 0, 1, 6}, {"host-2", 1, 9, 4}, {"host-2", 0, 30, 3}, {"host-2", 0, 7, 1},
        {"host-1", 5, 1, 0},  {"host-2", 0, 7, 2}, {"host-2", 1, 10, 5},
    };
    joiner joiners[COUNT_OF(agents)];
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(agents); i++) {
        tutti_coordinator_join_request request =
            join_request(NULL, COUNT_OF(agents), ANY_RANK, 100 + i);

        request.agent.host = agents[i].host;
        request.agent.local_rank = agents[i].local_rank;
        request.agent.pid = agents[i].pid;
        assert_ok(joiner_start(&fix, &joiners[i], &request, &err));
    }
    fixture_settle(&fix);
    for (i = 0; i < COUNT_OF(agents); i++) {
        assert_int_equal(joiners[i].answer_count, 1);
        assert_int_equal(joiners[i].seat.rank, agents[i].wanted);
    }
}

static void
test_join__gives_the_ranks_that_nobody_asked_for(void **state)
{
    joiner joiners[4];

    (void)state;
    joiner_must_start(&fix, &joiners[0], 4, ANY_RANK, 1);
    joiner_must_start(&fix, &joiners[1], 4, 0, 2);
    joiner_must_start(&fix, &joiners[2], 4, ANY_RANK, 3);
    joiner_must_start(&fix, &joiners[3], 4, 2, 4);
    fixture_settle(&fix);
    assert_int_equal(joiners[0].seat.rank, 1);
    assert_int_equal(joiners[1].seat.rank, 0);
    assert_int_equal(joiners[2].seat.rank, 3);
    assert_int_equal(joiners[3].seat.rank, 2);
}

static void
test_join__repeated_by_one_incarnation_is_harmless(void **state)
{
    joiner first;
    joiner second;
    joiner other;
    joiner late;

    (void)state;
    joiner_must_start(&fix, &first, 2, ANY_RANK, 7);
    joiner_must_start(&fix, &second, 2, ANY_RANK, 7);
    fixture_settle(&fix);
    assert_int_equal(first.answer_count + second.answer_count, 0);
    joiner_must_start(&fix, &other, 2, 0, 8);
    fixture_settle(&fix);
    assert_int_equal(first.answer_count, 1);
    assert_int_equal(second.answer_count, 1);
    assert_int_equal(first.seat.rank, 1);
    assert_int_equal(second.seat.rank, 1);
    joiner_must_start(&fix, &late, 2, 1, 7); /* it knows its rank by now */
    fixture_settle(&fix);
    assert_int_equal(late.answer_count, 1);
    assert_int_equal(late.seat.rank, 1);
    assert_int_equal(late.seat.epoch, 1);
}

static void
test_join__says_what_is_wrong_with_the_request(void **state)
{
    tutti_coordinator_join_request request = join_request(NULL, 4, 1, 5);
    char longest[300];
    const char *addresses[9] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};

    (void)state;
    request.world_size = 0;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE", "world size 0, need 1 to 65536");
    request.world_size = TUTTI_RANKS_MAX + 1;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE", "65537");
    request = join_request(NULL, 4, 4, 5);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "RANK_RANGE", "rank 4 in a world of 4");
    request = join_request(NULL, 4, 1, 0);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_INCARNATION", "incarnation 0");
    request = join_request("bad name", 4, 1, 5);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_NAME", "bad name");
    request = join_request(NULL, 4, 1, 5);
    request.agent.host = "two\nlines";
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_AGENT", "0x0a");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    request.agent.host = longest;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_AGENT",
                   "host has 299 bytes, at most 255");
    request.agent.host = "host";
    request.agent.addresses = addresses;
    request.agent.address_count = 9;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_AGENT", "9 addresses, at most 8");
    request.agent.address_count = 0;
    request.agent.data_address.size = 4097;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_AGENT", "4097");
}

static void
test_join__with_another_world_size_hears_both_numbers(void **state)
{
    const tutti_coordinator_join_request request = join_request(NULL, 8, 1, 6);
    joiner one;

    (void)state;
    joiner_must_start(&fix, &one, 4, 0, 5);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE", "world size 4, not 8");
    tutti_coordinator_join_withdraw(&one.join);
}

static void
test_join__for_a_taken_rank_hears_by_whom(void **state)
{
    tutti_coordinator_join_request request = join_request(NULL, 2, 1, 6);
    joiner one;
    tutti_error err;

    (void)state;
    request.agent.host = "gpu-17";
    request.agent.pid = 4711;
    assert_ok(joiner_start(&fix, &one, &request, &err));
    request.incarnation = 7;
    assert_refused(&request, TUTTI_ALREADY_EXISTS, "ALREADY_JOINED",
                   "rank 1 of job default is taken by host gpu-17, pid 4711");
    tutti_coordinator_join_withdraw(&one.join);
}

/* A joiner that asks once more is told the same seat. */
static uint32_t
interval_of_world(uint32_t world_size)
{
    joiner again;

    form_world(&fix, world_size);
    joiner_must_start(&fix, &again, world_size, 0, 100);
    fixture_settle(&fix);
    assert_int_equal(again.answer_count, 1);
    return again.seat.heartbeat_interval_ms;
}

static void
test_heartbeats__of_a_large_job_are_fewer(void **state)
{
    (void)state;
    assert_int_equal(interval_of_world(7500), 3000);
}

static void
test_heartbeats__come_three_times_within_the_timeout(void **state)
{
    (void)state;
    assert_int_equal(interval_of_world(20000), 3333);
}

static tutti_coordinator_join_request
join_with_gpus(uint32_t rank, uint64_t incarnation, const char *gpus)
{
    tutti_coordinator_join_request request = join_request(NULL, 4, rank, incarnation);

    request.agent.gpus = gpus;
    return request;
}

static void
test_join__with_a_gpu_that_another_agent_has_is_refused(void **state)
{
    static joiner joiners[4];
    tutti_coordinator_join_request request = join_with_gpus(0, 1, "GPU-a GPU-b GPU-a");
    tutti_error err;
    size_t i;

    (void)state;
    request.agent.host = "gpu-17";
    request.agent.pid = 4711;
    assert_ok(joiner_start(&fix, &joiners[0], &request, &err));
    request = join_with_gpus(1, 2, "GPU-c GPU-b");
    assert_refused(&request, TUTTI_FAILED_PRECONDITION, "SHARED_GPU",
                   "GPU-b has an agent already: the one of pid 4711 on host gpu-17");
    request = join_with_gpus(1, 3, "GPU-");
    assert_ok(joiner_start(&fix, &joiners[1], &request, &err));
    request = join_with_gpus(2, 4, "GPU-a");
    request.agent.allow_shared_gpu = true;
    assert_ok(joiner_start(&fix, &joiners[2], &request, &err));
    tutti_coordinator_join_withdraw(&joiners[0].join); /* its seat is given up: one is left */
    fixture_advance(&fix, 60 * SECOND);
    request = join_with_gpus(3, 5, "GPU-a");
    assert_refused(&request, TUTTI_FAILED_PRECONDITION, "SHARED_GPU", "GPU-a has an agent already");
    request = join_with_gpus(3, 6, "GPU-b");
    assert_ok(joiner_start(&fix, &joiners[3], &request, &err));
    for (i = 1; i < 4; i++) {
        tutti_coordinator_join_withdraw(&joiners[i].join);
    }
}

static void
test_join__of_a_process_started_again_has_the_gpu_of_the_one_before(void **state)
{
    static line session;
    static joiner again;
    joiner joiners[2];
    tutti_coordinator_join_request request = join_with_gpus(0, 100, "GPU-a");
    tutti_error err;

    (void)state;
    request.world_size = 2;
    assert_ok(joiner_start(&fix, &joiners[0], &request, &err));
    tutti_coordinator_join_withdraw(&joiners[0].join); /* it dies, waits no more */
    request.incarnation = 101;
    assert_ok(joiner_start(&fix, &joiners[0], &request, &err));
    joiner_must_start(&fix, &joiners[1], 2, 1, 9);
    fixture_settle(&fix);
    assert_ok(line_open(&fix, &session,
                        &(tutti_coordinator_member){.job = "default", .incarnation = 101}, &err));
    tutti_coordinator_session_withdraw(&session.session); /* it dies again, at work */
    request.incarnation = 102;
    assert_ok(joiner_start(&fix, &again, &request, &err));
    fixture_settle(&fix);
    assert_int_equal(again.seat.rank, 0);
}

static void
test_join__of_one_incarnation_for_two_ranks_is_refused(void **state)
{
    const tutti_coordinator_join_request request = join_request(NULL, 3, 2, 6);
    joiner one;

    (void)state;
    joiner_must_start(&fix, &one, 3, 1, 6);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_INCARNATION", "rank 2");
    tutti_coordinator_join_withdraw(&one.join);
}

static void
test_join__tells_progress_when_something_changed_or_after_five_seconds(void **state)
{
    joiner first;
    joiner second;

    (void)state;
    joiner_must_start(&fix, &first, 4, 1, 5);
    fixture_advance(&fix, 999 * MS);
    assert_int_equal(first.progress_count, 0);
    fixture_advance(&fix, 1 * MS);
    assert_int_equal(first.progress_count, 1);
    assert_int_equal(first.progress.joined_count, 1);
    assert_int_equal(first.progress.world_size, 4);
    assert_int_equal(first.progress.missing_count, 3);
    assert_int_equal(first.progress.missing_ranks[0], 0);
    assert_int_equal(first.progress.missing_ranks[2], 3);
    fixture_advance(&fix, 4 * SECOND);
    assert_int_equal(first.progress_count, 1); /* nothing new */
    fixture_advance(&fix, 1 * SECOND);
    assert_int_equal(first.progress_count, 2);
    joiner_must_start(&fix, &second, 4, ANY_RANK, 6);
    fixture_advance(&fix, 1 * SECOND);
    assert_int_equal(first.progress_count, 3);
    assert_int_equal(second.progress_count, 1);
    assert_int_equal(second.progress.joined_count, 2);
    assert_int_equal(second.progress.missing_count, 3); /* nobody asked for them by number */
    tutti_coordinator_join_withdraw(&first.join);
    tutti_coordinator_join_withdraw(&second.join);
}

static void
test_join__of_many_is_told_less_often_how_many_there_are(void **state)
{
    enum {
        WAITING = 10000
    };
    static joiner many[WAITING + 10];
    uint32_t i;

    (void)state;
    for (i = 0; i < WAITING; i++) {
        joiner_must_start(&fix, &many[i], 2 * WAITING, ANY_RANK, 1 + i);
    }
    for (i = 0; i < 10; i++) { /* somebody comes each second: four seconds for 10 000 messages */
        fixture_advance(&fix, SECOND);
        joiner_must_start(&fix, &many[WAITING + i], 2 * WAITING, ANY_RANK, 1 + WAITING + i);
    }
    assert_in_range(many[0].progress_count, 2, 3);
    assert_int_equal(many[0].progress.world_size, 2 * WAITING);
    for (i = 0; i < WAITING + 10; i++) {
        tutti_coordinator_join_withdraw(&many[i].join);
    }
}

static void
test_join__lists_at_most_64_missing_ranks(void **state)
{
    joiner one;
    uint32_t i;

    (void)state;
    joiner_must_start(&fix, &one, 1000, 3, 5);
    fixture_advance(&fix, 1 * SECOND);
    assert_int_equal(one.progress.missing_count, 64);
    for (i = 0; i < 64; i++) {
        assert_int_equal(one.progress.missing_ranks[i], i < 3 ? i : i + 1);
    }
    tutti_coordinator_join_withdraw(&one.join);
}

static void
test_join__that_times_out_names_the_missing(void **state)
{
    tutti_coordinator_join_request request = join_request(NULL, 8, 2, 5);
    joiner first;
    joiner second;
    tutti_error err;

    (void)state;
    request.deadline_ns = fix.now_ns + 3 * SECOND;
    assert_ok(joiner_start(&fix, &first, &request, &err));
    joiner_must_start(&fix, &second, 8, ANY_RANK, 6);
    fixture_advance(&fix, 3 * SECOND);
    assert_int_equal(first.answer_count, 1);
    assert_true(first.failed);
    assert_int_equal(first.err.code, TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(first.err.reason, "JOIN_TIMEOUT");
    assert_text_has(first.err.text, "2 of 8 agents joined job default in time");
    assert_text_has(first.err.text, "1 of them without asking for a rank");
    assert_text_has(first.err.text, "nobody asked for ranks 0, 1, 3-7");
    assert_int_equal(second.answer_count, 0);
    tutti_coordinator_join_withdraw(&second.join);
}

static void
test_seat__of_a_caller_that_went_is_kept_for_a_grace(void **state)
{
    joiner gone;
    joiner other;
    joiner again;
    joiner more;

    (void)state;
    joiner_must_start(&fix, &gone, 3, 1, 5);
    joiner_must_start(&fix, &other, 3, 0, 6);
    tutti_coordinator_join_withdraw(&gone.join);
    assert_int_equal(gone.answer_count, 0);
    fixture_advance(&fix, 499 * MS);
    joiner_must_start(&fix, &again, 3, 1, 5);
    fixture_advance(&fix, 10 * SECOND);
    assert_int_equal(again.progress.joined_count, 2);
    assert_int_equal(again.progress.missing_ranks[0], 2);
    joiner_must_start(&fix, &more, 3, 1, 5); /* something new, so that the next tick tells */
    fixture_advance(&fix, SECOND);
    tutti_coordinator_join_withdraw(&more.join);
    tutti_coordinator_join_withdraw(&again.join);
    fixture_advance(&fix, SECOND);
    assert_int_equal(other.progress.joined_count, 1);
    assert_int_equal(other.progress.missing_count, 2);
    tutti_coordinator_join_withdraw(&other.join);
}

static void
test_seat__of_a_caller_that_went_may_be_taken_at_once(void **state)
{
    joiner gone;
    joiner taker;
    joiner other;

    (void)state;
    joiner_must_start(&fix, &gone, 2, 1, 5);
    tutti_coordinator_join_withdraw(&gone.join);
    joiner_must_start(&fix, &taker, 2, 1, 6);
    joiner_must_start(&fix, &other, 2, 0, 7);
    fixture_settle(&fix);
    assert_int_equal(taker.seat.rank, 1);
    assert_int_equal(other.answer_count, 1);
}

static void
test_world__is_not_complete_while_a_seat_has_no_caller(void **state)
{
    joiner gone;
    joiner other;
    joiner again;

    (void)state;
    joiner_must_start(&fix, &gone, 2, ANY_RANK, 5);
    tutti_coordinator_join_withdraw(&gone.join);
    joiner_must_start(&fix, &other, 2, ANY_RANK, 6);
    fixture_settle(&fix);
    assert_int_equal(other.answer_count, 0);
    joiner_must_start(&fix, &again, 2, ANY_RANK, 5);
    fixture_settle(&fix);
    assert_int_equal(other.answer_count, 1);
    assert_int_equal(again.answer_count, 1);
}

static void
test_job__that_was_never_complete_ends_with_its_last_caller(void **state)
{
    tutti_coordinator_job job;
    joiner one;
    tutti_error err;

    (void)state;
    joiner_must_start(&fix, &one, 4, 1, 5);
    assert_int_equal(job_of(NULL).epoch, 0);
    tutti_coordinator_join_withdraw(&one.join);
    fixture_advance(&fix, 500 * MS);
    assert_fails(tutti_coordinator_job_get(fix.self, NULL, &job, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_JOB");
    joiner_must_start(&fix, &one, 2, 1, 5); /* with another world size */
    tutti_coordinator_join_withdraw(&one.join);
}

static void
test_job__of_a_refused_join_does_not_stay(void **state)
{
    tutti_coordinator_options options;
    tutti_coordinator_job job;
    joiner one;
    tutti_error err;
    tutti_coordinator_join_request request = join_request("other", 2, 0, 1);

    (void)state;
    fixture_close(&fix);
    fixture_options(&options);
    options.waiter_limit = 1;
    fixture_open(&fix, &options);
    joiner_must_start(&fix, &one, 2, 1, 5);
    assert_refused(&request, TUTTI_RESOURCE_EXHAUSTED, "WAITER_LIMIT", "--waiter-limit");
    assert_fails(tutti_coordinator_job_get(fix.self, "other", &job, &err), TUTTI_NOT_FOUND);
    tutti_coordinator_join_withdraw(&one.join);
}

static void
test_lost_seat__is_taken_at_once_in_a_new_epoch(void **state)
{
    joiner back;

    (void)state;
    form_world(&fix, 3);
    lose(1);
    assert_int_equal(job_of(NULL).epoch, 2);
    assert_int_equal(job_of(NULL).lost_count, 1);
    joiner_must_start(&fix, &back, 3, 1, 201);
    fixture_settle(&fix);
    assert_int_equal(back.answer_count, 1);
    assert_int_equal(back.seat.rank, 1);
    assert_int_equal(back.seat.epoch, 3);
    assert_int_equal(job_of(NULL).lost_count, 0);
    assert_int_equal(job_of(NULL).alive_count, 3);
}

static void
test_lost_seat__is_the_lowest_one_for_who_does_not_ask(void **state)
{
    joiner first;
    joiner second;
    const tutti_coordinator_join_request third = join_request(NULL, 4, ANY_RANK, 203);

    (void)state;
    form_world(&fix, 4);
    lose(3);
    lose(1);
    joiner_must_start(&fix, &first, 4, ANY_RANK, 201);
    joiner_must_start(&fix, &second, 4, ANY_RANK, 202);
    fixture_settle(&fix);
    assert_int_equal(first.seat.rank, 1);
    assert_int_equal(second.seat.rank, 3);
    assert_int_equal(second.seat.epoch, 5);
    assert_refused(&third, TUTTI_RESOURCE_EXHAUSTED, "WORLD_FULL", "all 4 seats");
}

static void
test_lost_incarnation__has_to_draw_a_new_number(void **state)
{
    const tutti_coordinator_join_request request = join_request(NULL, 2, 1, 101);

    (void)state;
    form_world(&fix, 2);
    lose(1);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_INCARNATION", "start the agent again");
}

static void
test_job__without_anybody_lingers_and_then_is_gone(void **state)
{
    tutti_coordinator_job job;
    tutti_error err;

    (void)state;
    form_world(&fix, 2);
    lose(0);
    lose(1);
    fixture_advance(&fix, 59 * SECOND);
    assert_int_equal(job_of(NULL).lost_count, 2);
    fixture_advance(&fix, 1 * SECOND);
    assert_fails(tutti_coordinator_job_get(fix.self, NULL, &job, &err), TUTTI_NOT_FOUND);
}

static void
test_job__without_anybody_begins_anew_with_the_next_join(void **state)
{
    joiner first;
    joiner second;
    uint64_t id;

    (void)state;
    form_world(&fix, 2);
    id = job_of(NULL).id;
    lose(0);
    lose(1);
    joiner_must_start(&fix, &first, 3, 2, 101); /* even an incarnation of before, another size */
    fixture_settle(&fix);
    assert_int_equal(first.answer_count, 0);
    assert_int_equal(job_of(NULL).epoch, 0);
    assert_true(job_of(NULL).id != id);
    joiner_must_start(&fix, &second, 3, 1, 102);
    tutti_coordinator_join_withdraw(&first.join);
    tutti_coordinator_join_withdraw(&second.join);
    fixture_advance(&fix, 30 * SECOND);
    assert_int_equal(job_of(NULL).world_size, 3); /* its name was in use before: it lingers */
    fixture_advance(&fix, 31 * SECOND);
    assert_false(tutti_coordinator_job_next(fix.self, "", &(tutti_coordinator_job){0}));
}

static void
test_job__with_a_survivor_goes_on(void **state)
{
    joiner back;

    (void)state;
    form_world(&fix, 2);
    lose(0);
    fixture_advance(&fix, 5 * SECOND);
    joiner_must_start(&fix, &back, 2, 0, 200);
    fixture_settle(&fix);
    assert_int_equal(back.seat.epoch, 3);
}

/* Three agents join a coordinator that was started again without a store; one of them may have another past. */
static void
join_with_pasts(const tutti_coordinator_former pasts[3], joiner ret_joiners[3])
{
    uint32_t rank;
    tutti_error err;

    for (rank = 0; rank < 3; rank++) {
        tutti_coordinator_join_request request = join_request(NULL, 3, rank, 100 + rank);

        request.former = pasts[rank];
        assert_ok(joiner_start(&fix, &ret_joiners[rank], &request, &err));
    }
    fixture_settle(&fix);
    for (rank = 0; rank < 3; rank++) {
        assert_int_equal(ret_joiners[rank].answer_count, 1);
        assert_false(ret_joiners[rank].failed);
    }
}

/* Its members count ops on, so the job has to be the same one, and "world" to have the epoch that they know. */
static void
test_job__whose_processes_all_come_back_goes_on(void **state)
{
    static const tutti_coordinator_former pasts[3] = {{77, 5, 1}, {77, 5, 4}, {77, 5, 1}};
    joiner joiners[3];
    tutti_coordinator_group world;
    tutti_error err;

    (void)state;
    join_with_pasts(pasts, joiners);
    assert_int_equal(joiners[1].seat.job_id, 77);
    assert_int_equal(joiners[1].seat.epoch, 6);
    assert_int_equal(joiners[1].seat.joined_epoch, 4);
    assert_int_equal(joiners[0].seat.joined_epoch, 1);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "world", (tutti_coordinator_asker){0},
                                          &world, &err));
    assert_int_equal(world.epoch, 4);
    lose(2);
    joiner_must_start(&fix, &joiners[2], 3, 2, 900);
    fixture_settle(&fix);
    assert_int_equal(joiners[2].seat.epoch, 8); /* above all that the members know */
}

static void
test_job__of_which_one_is_new_or_has_missed_a_change_is_another(void **state)
{
    static const tutti_coordinator_former cases[][3] = {{{77, 5, 1}, {0}, {77, 5, 1}},
                                                        {{77, 5, 1}, {77, 4, 1}, {77, 5, 1}},
                                                        {{77, 5, 1}, {78, 5, 1}, {77, 5, 1}}};
    joiner joiners[3];
    size_t i;

    for (i = 0; i < COUNT_OF(cases); i++) {
        join_with_pasts(cases[i], joiners);
        assert_int_not_equal(joiners[0].seat.job_id, 77);
        assert_int_equal(joiners[0].seat.epoch, 1);
        assert_int_equal(joiners[0].seat.joined_epoch, 1);
        (void)fixture_end(state);
        (void)fixture_begin(state);
    }
}

static void
test_observer__hears_of_the_life_of_jobs(void **state)
{
    joiner back;

    (void)state;
    form_world(&fix, 2);
    lose(1);
    joiner_must_start(&fix, &back, 2, 1, 201);
    fixture_settle(&fix);
    lose(0);
    assert_int_equal(
        tutti_coordinator_leave(
            fix.self, &(tutti_coordinator_member){.rank = 1, .incarnation = 201}, "done", NULL),
        TUTTI_OK);
    fixture_advance(&fix, 60 * SECOND);
    assert_string_equal(fix.notes, "job default: formed with 2 ranks;"
                                   "job default: rank 1 on host host is lost: left, epoch 2;"
                                   "job default: rank 1 is back on host host, epoch 3;"
                                   "job default: rank 0 on host host is lost: left, epoch 4;"
                                   "job default: rank 1 on host host is lost: left: done, epoch 5;"
                                   "job default: ended, nobody is left;");
}

static void
test_jobs__do_not_know_each_other_and_are_listed_in_order(void **state)
{
    static const char *const names[] = {"b", "a/1", "default"};
    tutti_coordinator_job job = {.name = ""};
    joiner joiners[3];
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        const tutti_coordinator_join_request request = join_request(names[i], 2, 0, 5);

        assert_ok(joiner_start(&fix, &joiners[i], &request, &err));
    }
    assert_true(tutti_coordinator_job_next(fix.self, job.name, &job));
    assert_string_equal(job.name, "a/1");
    assert_true(tutti_coordinator_job_next(fix.self, job.name, &job));
    assert_string_equal(job.name, "b");
    assert_true(tutti_coordinator_job_next(fix.self, job.name, &job));
    assert_string_equal(job.name, "default");
    assert_false(tutti_coordinator_job_next(fix.self, job.name, &job));
    for (i = 0; i < 3; i++) {
        tutti_coordinator_join_withdraw(&joiners[i].join);
    }
}

static void
test_lookup__shows_every_state(void **state)
{
    tutti_coordinator_rank ranks[TUTTI_COORDINATOR_LOOKUP_MAX];
    const uint32_t asked[] = {2, 0, 1};
    const uint32_t beyond[] = {1, 4};
    joiner one;
    joiner two;
    size_t count = 0;
    tutti_error err;

    (void)state;
    joiner_must_start(&fix, &one, 4, 0, 5);
    assert_ok(tutti_coordinator_lookup(fix.self, NULL, asked, 3, ranks, &count, &err));
    assert_int_equal(count, 3);
    assert_int_equal(ranks[0].rank, 2);
    assert_int_equal(ranks[0].state, TUTTI_COORDINATOR_FREE);
    assert_null(ranks[0].agent);
    assert_int_equal(ranks[1].state, TUTTI_COORDINATOR_WAITING);
    assert_int_equal(ranks[1].incarnation, 5);
    assert_string_equal(ranks[1].agent->host, "host");
    assert_string_equal(ranks[1].agent->device, "");
    assert_fails(tutti_coordinator_lookup(fix.self, NULL, beyond, 2, ranks, &count, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANK_RANGE");
    assert_fails(tutti_coordinator_lookup(fix.self, NULL, asked, 1025, ranks, &count, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "LOOKUP_LIMIT");
    assert_fails(tutti_coordinator_lookup(fix.self, "no", asked, 1, ranks, &count, &err),
                 TUTTI_NOT_FOUND);
    tutti_coordinator_join_withdraw(&one.join);
    fixture_advance(&fix, 1 * SECOND);
    form_world(&fix, 4);
    lose(2);
    assert_ok(tutti_coordinator_lookup(fix.self, NULL, NULL, 0, ranks, &count, &err));
    assert_int_equal(count, 4);
    assert_int_equal(ranks[1].state, TUTTI_COORDINATOR_ALIVE);
    assert_int_equal(ranks[1].joined_epoch, 1);
    assert_int_equal(ranks[2].state, TUTTI_COORDINATOR_LOST);
    assert_string_equal(ranks[2].reason, "left");
    assert_true(ranks[2].since_ms > 1700000000000ULL);
    joiner_must_start(&fix, &two, 4, 2, 300);
    fixture_settle(&fix);
    assert_ok(tutti_coordinator_lookup(fix.self, NULL, asked, 1, ranks, &count, &err));
    assert_int_equal(ranks[0].joined_epoch, 3);
    assert_string_equal(ranks[0].reason, "");
}

static void
test_agent__is_shown_as_it_said(void **state)
{
    const char *const addresses[] = {"10.0.0.7:29601", "unix:/run/tutti/1.sock"};
    tutti_coordinator_join_request request = join_request(NULL, 2, 1, 5);
    tutti_coordinator_rank rank[TUTTI_COORDINATOR_LOOKUP_MAX];
    const uint32_t one = 1;
    size_t count = 0;
    joiner joining;
    tutti_error err;

    (void)state;
    request.agent.addresses = addresses;
    request.agent.address_count = 2;
    request.agent.host_id = "boot-1";
    request.agent.device = "cuda:1";
    request.agent.version = "0.1.0";
    request.agent.local_rank = 3;
    request.agent.data_address = BYTES("\0ucx\xff");
    assert_ok(joiner_start(&fix, &joining, &request, &err));
    assert_ok(tutti_coordinator_lookup(fix.self, NULL, &one, 1, rank, &count, &err));
    assert_int_equal(rank[0].agent->address_count, 2);
    assert_string_equal(rank[0].agent->addresses[0], addresses[0]);
    assert_string_equal(rank[0].agent->addresses[1], addresses[1]);
    assert_string_equal(rank[0].agent->host_id, "boot-1");
    assert_string_equal(rank[0].agent->device, "cuda:1");
    assert_string_equal(rank[0].agent->version, "0.1.0");
    assert_int_equal(rank[0].agent->local_rank, 3);
    assert_true(tutti_bytes_equal(rank[0].agent->data_address, BYTES("\0ucx\xff")));
    tutti_coordinator_join_withdraw(&joining.join);
}

static void
test_limits__of_jobs_and_seats_name_themselves(void **state)
{
    tutti_coordinator_join_request second = join_request("second", 6, 0, 1);
    tutti_coordinator_join_request third = join_request("third", 1, 0, 1);
    tutti_coordinator_options options;
    joiner joiners[2];
    tutti_error err;

    (void)state;
    fixture_close(&fix);
    fixture_options(&options);
    options.job_limit = 2;
    options.seat_limit = 10;
    fixture_open(&fix, &options);
    joiner_must_start(&fix, &joiners[0], 5, 0, 1);
    assert_refused(&second, TUTTI_RESOURCE_EXHAUSTED, "JOB_LIMIT", "--seat-limit");
    second.world_size = 5;
    assert_ok(joiner_start(&fix, &joiners[1], &second, &err));
    assert_refused(&third, TUTTI_RESOURCE_EXHAUSTED, "JOB_LIMIT", "--job-limit");
    tutti_coordinator_join_withdraw(&joiners[0].join);
    fixture_advance(&fix, 1 * SECOND); /* that job is gone, and makes room for another */
    third.world_size = 5;
    assert_ok(joiner_start(&fix, &joiners[0], &third, &err));
    tutti_coordinator_join_withdraw(&joiners[0].join);
    tutti_coordinator_join_withdraw(&joiners[1].join);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_join__of_many_is_told_less_often_how_many_there_are),
        SENTENCE(test_join__answers_all_when_the_world_is_complete),
        SENTENCE(test_join__assigns_by_host_then_local_rank_then_pid_then_arrival),
        SENTENCE(test_join__gives_the_ranks_that_nobody_asked_for),
        SENTENCE(test_join__repeated_by_one_incarnation_is_harmless),
        SENTENCE(test_join__says_what_is_wrong_with_the_request),
        SENTENCE(test_join__with_another_world_size_hears_both_numbers),
        SENTENCE(test_join__for_a_taken_rank_hears_by_whom),
        SENTENCE(test_heartbeats__of_a_large_job_are_fewer),
        SENTENCE(test_heartbeats__come_three_times_within_the_timeout),
        SENTENCE(test_join__with_a_gpu_that_another_agent_has_is_refused),
        SENTENCE(test_join__of_a_process_started_again_has_the_gpu_of_the_one_before),
        SENTENCE(test_join__of_one_incarnation_for_two_ranks_is_refused),
        SENTENCE(test_join__tells_progress_when_something_changed_or_after_five_seconds),
        SENTENCE(test_join__lists_at_most_64_missing_ranks),
        SENTENCE(test_join__that_times_out_names_the_missing),
        SENTENCE(test_seat__of_a_caller_that_went_is_kept_for_a_grace),
        SENTENCE(test_seat__of_a_caller_that_went_may_be_taken_at_once),
        SENTENCE(test_world__is_not_complete_while_a_seat_has_no_caller),
        SENTENCE(test_job__that_was_never_complete_ends_with_its_last_caller),
        SENTENCE(test_job__of_a_refused_join_does_not_stay),
        SENTENCE(test_lost_seat__is_taken_at_once_in_a_new_epoch),
        SENTENCE(test_lost_seat__is_the_lowest_one_for_who_does_not_ask),
        SENTENCE(test_lost_incarnation__has_to_draw_a_new_number),
        SENTENCE(test_job__without_anybody_lingers_and_then_is_gone),
        SENTENCE(test_job__without_anybody_begins_anew_with_the_next_join),
        SENTENCE(test_job__with_a_survivor_goes_on),
        SENTENCE(test_job__whose_processes_all_come_back_goes_on),
        SENTENCE(test_job__of_which_one_is_new_or_has_missed_a_change_is_another),
        SENTENCE(test_observer__hears_of_the_life_of_jobs),
        SENTENCE(test_jobs__do_not_know_each_other_and_are_listed_in_order),
        SENTENCE(test_lookup__shows_every_state),
        SENTENCE(test_agent__is_shown_as_it_said),
        SENTENCE(test_limits__of_jobs_and_seats_name_themselves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
