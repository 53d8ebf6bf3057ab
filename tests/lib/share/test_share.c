/*
 * Goal: memory goes to who shows the token, once, as it was offered, and every share has an end.
 * Method: both sides in one process.
 */
#include "share_rig.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/os/clock.h"

static void
test_share__lets_both_see_the_same_bytes(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    assert_ok(share_rig_take(&self, token, &view, &err));
    assert_true(view.writable);
    assert_int_equal(view.bytes, RIG_BYTES);
    assert_memory_equal(view.data, self.memory, RIG_BYTES);
    ((unsigned char *)view.data)[RIG_BYTES - 1] = 9;
    assert_int_equal(self.memory[RIG_BYTES - 1], 9);
    assert_int_equal(tutti_share_count(self.share), 1);
    assert_int_equal(atomic_load(&self.over), 0);
    tutti_share_drop(&view);
    share_rig_wait_over(&self, 1);
    assert_int_equal(tutti_share_count(self.share), 0);
    share_rig_close(&self);
}

static void
test_share__for_reading_can_never_be_written(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, false, token, &err));
    assert_ok(share_rig_take(&self, token, &view, &err));
    assert_false(view.writable);
    assert_int_equal(((unsigned char *)view.data)[5], 7);
    assert_int_equal(mprotect(view.data, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    tutti_share_drop(&view);
    share_rig_close(&self);
    assert_int_equal(atomic_load(&self.over), 1);
}

static void
test_share__token_is_good_once(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_share_view other;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    assert_ok(share_rig_take(&self, token, &view, &err));
    assert_fails(share_rig_take(&self, token, &other, &err), TUTTI_PERMISSION_DENIED);
    assert_string_equal(err.reason, "SHARE_TOKEN");
    assert_false(tutti_share_is_revoked(&view)); /* the first one is not touched by that */
    tutti_share_drop(&view);
    share_rig_close(&self);
}

static void
test_share__wrong_token_gets_nothing_and_spoils_nothing(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    unsigned char wrong[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    memcpy(wrong, token, sizeof(wrong));
    wrong[15] ^= 1;
    assert_fails(share_rig_take(&self, wrong, &view, &err), TUTTI_PERMISSION_DENIED);
    assert_string_equal(err.reason, "SHARE_TOKEN");
    assert_ok(share_rig_take(&self, token, &view, &err));
    tutti_share_drop(&view);
    share_rig_close(&self);
}

static void
test_share__offer_that_nobody_takes_ends(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 1);
    assert_ok(share_rig_offer(&self, true, token, &err));
    share_rig_wait_over(&self, 1);
    assert_fails(share_rig_take(&self, token, &view, &err), TUTTI_PERMISSION_DENIED);
    share_rig_close(&self);
    assert_int_equal(atomic_load(&self.over), 1);
}

static void
test_share__has_a_limit_and_room_again(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    unsigned char other[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 1, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    assert_fails(share_rig_offer(&self, true, other, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "SHARE_LIMIT");
    assert_ok(share_rig_take(&self, token, &view, &err));
    assert_fails(share_rig_offer(&self, true, other, &err), TUTTI_RESOURCE_EXHAUSTED);
    tutti_share_drop(&view);
    share_rig_wait_over(&self, 1);
    assert_ok(share_rig_offer(&self, true, other, &err));
    share_rig_close(&self);
    assert_int_equal(atomic_load(&self.over), 2);
}

static void
test_share_revoke__tells_who_has_it_and_keeps_the_bytes(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    unsigned char unused[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_share_view other;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    assert_ok(share_rig_offer(&self, true, unused, &err));
    assert_ok(share_rig_take(&self, token, &view, &err));
    assert_false(tutti_share_is_revoked(&view));
    tutti_share_revoke(self.share, &self); /* somebody else's */
    assert_false(tutti_share_is_revoked(&view));
    tutti_share_revoke(self.share, &self.over);
    assert_true(tutti_share_is_revoked(&view));
    assert_int_equal(atomic_load(&self.over), 1); /* the token that nobody took */
    assert_fails(share_rig_take(&self, unused, &other, &err), TUTTI_PERMISSION_DENIED);
    assert_int_equal(((unsigned char *)view.data)[1], 7);
    tutti_share_drop(&view);
    share_rig_wait_over(&self, 2);
    share_rig_close(&self);
}

typedef struct revoker {
    share_rig *rig;
    atomic_int turn; /* the one it shall revoke, and has; -1 = no more */
    atomic_int done;
} revoker;

/* Each a little later behind its call than the one before. */
static void *
revoke_each(void *arg)
{
    revoker *self = arg;
    int turn = 0;

    while (turn >= 0) {
        turn = atomic_load(&self->turn);
        if (turn > atomic_load(&self->done)) {
            const uint64_t until = tutti_clock_ns() + (uint64_t)turn * 250;

            while (tutti_clock_ns() < until) {
            }
            tutti_share_revoke(self->rig->share, &self->rig->over);
            atomic_store(&self->done, turn);
        }
    }
    return NULL;
}

/* Whoever shows a token that is revoked at that moment gets it and hears so, or gets nothing. */
static void
test_share_revoke__never_comes_before_the_memory(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;
    revoker other = {.rig = &self};
    pthread_t thread;
    int i;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_int_equal(pthread_create(&thread, NULL, revoke_each, &other), 0);
    for (i = 1; i <= 400; i++) {
        assert_ok(share_rig_offer(&self, true, token, &err));
        atomic_store(&other.turn, i);
        if (share_rig_take(&self, token, &view, &err) == TUTTI_OK) {
            tutti_share_drop(&view);
        } else {
            assert_int_equal(err.code, TUTTI_PERMISSION_DENIED);
        }
        while (atomic_load(&other.done) < i) {
        }
        share_rig_wait_over(&self, i);
    }
    atomic_store(&other.turn, -1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    share_rig_close(&self);
}

static void
test_share_close__ends_leases_and_they_see_it(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    assert_ok(share_rig_take(&self, token, &view, &err));
    share_rig_close(&self);
    assert_int_equal(atomic_load(&self.over), 1);
    assert_true(tutti_share_is_revoked(&view));
    assert_int_equal(((unsigned char *)view.data)[1], 7);
    tutti_share_drop(&view);
    tutti_share_drop(&view); /* again is fine */
}

static void
test_share_take__without_a_socket_says_so(void **state)
{
    const unsigned char token[TUTTI_SHARE_TOKEN_BYTES] = {1};
    tutti_share_view view;
    tutti_error err;

    (void)state;
    assert_fails(tutti_share_take("tutti-nobody", (tutti_bytes){token, sizeof(token)}, RIG_WAIT_MS,
                                  &view, &err),
                 TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "NO_SHARE_SOCKET");
    assert_fails(
        tutti_share_take("", (tutti_bytes){token, sizeof(token)}, RIG_WAIT_MS, &view, &err),
        TUTTI_DATA_LOSS);
    assert_fails(tutti_share_take("x", (tutti_bytes){token, 3}, RIG_WAIT_MS, &view, &err),
                 TUTTI_DATA_LOSS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share__lets_both_see_the_same_bytes),
        cmocka_unit_test(test_share__for_reading_can_never_be_written),
        cmocka_unit_test(test_share__token_is_good_once),
        cmocka_unit_test(test_share__wrong_token_gets_nothing_and_spoils_nothing),
        cmocka_unit_test(test_share__offer_that_nobody_takes_ends),
        cmocka_unit_test(test_share__has_a_limit_and_room_again),
        cmocka_unit_test(test_share_revoke__tells_who_has_it_and_keeps_the_bytes),
        cmocka_unit_test(test_share_revoke__never_comes_before_the_memory),
        cmocka_unit_test(test_share_close__ends_leases_and_they_see_it),
        cmocka_unit_test(test_share_take__without_a_socket_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
