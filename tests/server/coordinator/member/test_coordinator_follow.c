/*
 * Goal: who follows the members of a job hears every rank's last change once, in the order of
 * epochs. Method: a coordinator with a clock we turn; followers that write down what they are told.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "server/coordinator/fixture.h"

#define FOLLOWERS_MAX 4

typedef struct follower {
    tutti_coordinator_member_watch watch;
    char text[1024]; /* "now 1 4/4,leaving 2 r3 stopped," */
    bool stuck;
    bool in_flight;
    int end_count;
    tutti_error err;
} follower;

static follower followers[FOLLOWERS_MAX];

static follower *
follower_of(tutti_coordinator_member_watch *watch)
{
    return tutti_container_of(watch, follower, watch);
}

static void
on_now(tutti_coordinator_member_watch *watch, const tutti_coordinator_job *job)
{
    follower *self = follower_of(watch);
    const size_t used = strlen(self->text);

    assert_false(self->in_flight);
    self->in_flight = true;
    (void)snprintf(self->text + used, sizeof(self->text) - used, "now %u %u/%u,",
                   (unsigned)job->epoch, job->alive_count, job->world_size);
}

static void
on_event(tutti_coordinator_member_watch *watch, const tutti_coordinator_event *event)
{
    static const char *const names[] = {"lost", "joined", "deleted", "leaving"};
    follower *self = follower_of(watch);
    const size_t used = strlen(self->text);

    assert_false(self->in_flight);
    self->in_flight = true;
    (void)snprintf(self->text + used, sizeof(self->text) - used, "%s %u r%u %s,",
                   names[event->kind], (unsigned)event->epoch, event->rank, event->reason);
}

static void
on_end(tutti_coordinator_member_watch *watch, const tutti_error *err)
{
    follower *self = follower_of(watch);

    self->end_count++;
    self->err = *err;
}

/* Messages leave, but those of who is stuck. */
static void
settle(void)
{
    bool more = true;
    size_t i;

    while (more) {
        more = false;
        fixture_settle(&fix);
        for (i = 0; i < FOLLOWERS_MAX; i++) {
            if (followers[i].in_flight && !followers[i].stuck) {
                followers[i].in_flight = false;
                tutti_coordinator_member_watch_written(&followers[i].watch);
                more = true;
            }
        }
    }
}

static tutti_code
follow(size_t i, uint64_t job_id, uint64_t after_epoch, tutti_error *err)
{
    follower *self = &followers[i];
    tutti_code code;

    tutti_coordinator_member_watch_withdraw(&self->watch);
    *self = (follower){.watch = {.on_now = on_now, .on_event = on_event, .on_end = on_end}};
    code = tutti_coordinator_member_watch_start(fix.self, NULL, job_id, after_epoch, &self->watch,
                                                err);
    settle();
    return code;
}

static void
expect(size_t i, const char *text)
{
    settle();
    assert_string_equal(followers[i].text, text);
    followers[i].text[0] = '\0';
}

static void
leave(uint32_t rank, bool announce)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_coordinator_epoch_key key;
    tutti_error err;

    assert_ok(announce ? tutti_coordinator_announce_leave(fix.self, &member, "stopped", &key, &err)
                       : tutti_coordinator_leave(fix.self, &member, "stopped", &err));
}

static void
come_back(uint32_t rank, uint64_t incarnation)
{
    static joiner one;

    joiner_must_start(&fix, &one, 4, rank, incarnation);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
}

static uint64_t
job_id(void)
{
    tutti_coordinator_job job;
    tutti_error err;

    assert_ok(tutti_coordinator_job_get(fix.self, NULL, &job, &err));
    return job.id;
}

static int
begin(void **state)
{
    tutti_coordinator_options options;

    (void)state;
    memset(followers, 0, sizeof(followers));
    fixture_options(&options);
    options.durable = true;
    options.watcher_limit = FOLLOWERS_MAX - 1;
    fixture_open(&fix, &options);
    return 0;
}

static void
test_follow__tells_what_is_and_then_each_change_once(void **state)
{
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    assert_ok(follow(0, 0, 1, &err));
    expect(0, "now 1 4/4,");
    leave(3, true);
    leave(3, true); /* said twice is said once */
    expect(0, "leaving 2 r3 stopped,");
    leave(3, false);
    expect(0, "lost 3 r3 left: stopped,");
    come_back(3, 903);
    expect(0, "joined 4 r3 ,");
    assert_int_equal(followers[0].end_count, 0);
}

static void
test_follow__goes_on_behind_an_epoch(void **state)
{
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    leave(1, false);
    leave(2, false);
    leave(3, true);
    assert_ok(follow(0, job_id(), 2, &err));
    expect(0, "now 4 2/4,lost 3 r2 left: stopped,leaving 4 r3 stopped,");
    assert_ok(follow(1, job_id() + 1, 4, &err)); /* what it knows is of another job */
    expect(1, "now 4 2/4,lost 2 r1 left: stopped,lost 3 r2 left: stopped,leaving 4 r3 stopped,");
    assert_ok(follow(2, job_id(), 4, &err));
    expect(2, "now 4 2/4,");
}

static void
test_follow__of_who_reads_slowly_hears_the_last_change(void **state)
{
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    assert_ok(follow(0, 0, 1, &err));
    followers[0].stuck = true;
    leave(2, true);
    settle();
    leave(2, false);
    leave(1, true);
    come_back(2, 902);
    followers[0].stuck = false;
    expect(0, "now 1 4/4,leaving 2 r2 stopped,leaving 4 r1 stopped,joined 5 r2 ,");
}

/* The same store, another process: nothing twice, nothing left out. */
static void
test_follow__goes_on_after_a_restart(void **state)
{
    uint64_t id;
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    assert_ok(follow(0, 0, 1, &err));
    leave(1, false);
    expect(0, "now 1 4/4,lost 2 r1 left: stopped,");
    leave(3, true); /* told to nobody */
    id = job_id();
    tutti_coordinator_member_watch_withdraw(&followers[0].watch);
    fixture_restart(&fix);
    assert_ok(follow(0, id, 2, &err));
    expect(0, "now 3 3/4,leaving 3 r3 stopped,");
    assert_ok(follow(1, id, 3, &err));
    expect(1, "now 3 3/4,");
}

static void
test_follow__of_a_job_that_is_not_formed_hears_when_it_is(void **state)
{
    static joiner one;
    static joiner two;
    tutti_error err;

    (void)state;
    assert_fails(follow(0, 0, 0, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_JOB");
    joiner_must_start(&fix, &one, 2, 0, 100);
    assert_ok(follow(0, 0, 0, &err));
    expect(0, "now 0 0/2,");
    joiner_must_start(&fix, &two, 2, 1, 101);
    expect(0, "now 1 2/2,");
}

static void
test_follow__ends_with_the_job_and_is_limited(void **state)
{
    uint32_t rank;
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    assert_ok(follow(0, 0, 1, &err));
    assert_ok(follow(1, 0, 1, &err));
    assert_ok(follow(2, 0, 1, &err));
    assert_fails(follow(3, 0, 1, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "WAITER_LIMIT");
    tutti_coordinator_member_watch_withdraw(&followers[2].watch);
    assert_ok(follow(3, 0, 1, &err));
    for (rank = 0; rank < 4; rank++) {
        leave(rank, false);
    }
    settle();
    assert_int_equal(followers[0].end_count, 0);
    fixture_advance(&fix, fix.options.job_linger_ns + SECOND);
    assert_int_equal(followers[0].end_count, 1);
    assert_string_equal(followers[0].err.reason, "NO_JOB");
    assert_int_equal(followers[3].end_count, 1);
    assert_fails(follow(0, 0, 1, &err), TUTTI_NOT_FOUND);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_follow__tells_what_is_and_then_each_change_once),
        SENTENCE(test_follow__goes_on_behind_an_epoch),
        SENTENCE(test_follow__of_who_reads_slowly_hears_the_last_change),
        SENTENCE(test_follow__goes_on_after_a_restart),
        SENTENCE(test_follow__of_a_job_that_is_not_formed_hears_when_it_is),
        SENTENCE(test_follow__ends_with_the_job_and_is_limited),
    };

    return cmocka_run_group_tests_name("coordinator/follow", tests, NULL, NULL);
}
