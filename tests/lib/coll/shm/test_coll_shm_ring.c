/*
 * Goal: a ring gives what was put, in order, whatever the sizes; a peer that writes nonsense breaks
 * it, and nothing else.
 * Method: two ends in one thread and in two, up to many times around; heads and tails that lie.
 */
#include "support/testing.h"

#include <pthread.h>
#include <sched.h>

#include "coll/shm/ring.h"

#define MESSAGES 20000

typedef struct pair {
    shm_ring *ring;
    shm_end in; /* of who takes */
    shm_end out;
} pair;

static void
open_pair(pair *self)
{
    self->ring = aligned_alloc(64, sizeof(*self->ring));
    assert_non_null(self->ring);
    memset(self->ring, 0, sizeof(*self->ring));
    self->in = (shm_end){.ring = self->ring};
    self->out = (shm_end){.ring = self->ring};
}

static size_t
size_of(unsigned i)
{
    return (size_t)i * 37 % 8193;
}

/* Header and data of message i. False: no room. */
static bool
put(shm_end *end, unsigned i)
{
    static const unsigned char zeros[8193];
    const uint32_t header = i;
    shm_record record = {
        .kind = 1, .header_size = sizeof(header), .id = i, .data_size = size_of(i)};
    unsigned char data[8193];

    memcpy(data, zeros, sizeof(data));
    memset(data, (int)(i & 0xff), size_of(i));
    return tutti_shm_put(end, &record, &header, data);
}

/* False: nothing there. */
static bool
take(shm_end *end, unsigned i)
{
    const unsigned char *bytes;
    shm_record record;
    uint32_t header;
    size_t k;

    if (!tutti_shm_peek(end, &record, &bytes)) {
        return false;
    }
    assert_int_equal(record.id, i);
    assert_int_equal(record.data_size, size_of(i));
    memcpy(&header, bytes, sizeof(header));
    assert_int_equal(header, i);
    for (k = 0; k < size_of(i); k++) {
        assert_int_equal(bytes[sizeof(header) + k], i & 0xff);
    }
    tutti_shm_took(end, &record);
    return true;
}

static void
test_ring__gives_what_was_put_in_order_around_its_end(void **state)
{
    unsigned taken = 0;
    unsigned given = 0;
    pair p;

    (void)state;
    open_pair(&p);
    assert_true(tutti_shm_is_empty(&p.in));
    while (taken < 2000) {
        while (given < 2000 && put(&p.out, given)) {
            given++;
        }
        assert_true(taken < given);
        assert_false(tutti_shm_is_empty(&p.in));
        assert_true(take(&p.in, taken++));
    }
    assert_false(take(&p.in, taken));
    assert_false(p.in.broken || p.out.broken);
    free(p.ring);
}

static void
test_ring__that_was_full_says_once_when_there_is_room(void **state)
{
    unsigned given = 0;
    pair p;

    (void)state;
    open_pair(&p);
    assert_false(tutti_shm_unblocks(&p.in));
    while (put(&p.out, given)) {
        given++;
    }
    assert_false(tutti_shm_was_unblocked(&p.out));
    assert_true(take(&p.in, 0));
    assert_false(tutti_shm_was_unblocked(&p.out)); /* nobody has looked who waits */
    assert_true(tutti_shm_unblocks(&p.in));
    assert_false(tutti_shm_unblocks(&p.in));
    assert_true(tutti_shm_was_unblocked(&p.out)); /* who is about to sleep finds it */
    free(p.ring);
}

static void *
give_all(void *arg)
{
    pair *p = arg;
    unsigned i = 0;

    while (i < MESSAGES) {
        if (put(&p->out, i)) {
            i++;
        } else {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void
test_ring__carries_between_threads(void **state)
{
    pthread_t thread;
    unsigned i = 0;
    pair p;

    (void)state;
    open_pair(&p);
    assert_int_equal(pthread_create(&thread, NULL, give_all, &p), 0);
    while (i < MESSAGES) {
        if (take(&p.in, i)) {
            i++;
        } else {
            (void)sched_yield();
        }
    }
    (void)pthread_join(thread, NULL);
    assert_true(tutti_shm_is_empty(&p.in));
    free(p.ring);
}

/* ------------------------------------------------------------------------------ lies */

static void
check_lie(uint64_t tail, shm_record lie)
{
    const unsigned char *bytes;
    shm_record record;
    pair p;

    open_pair(&p);
    memcpy(p.ring->bytes, &lie, sizeof(lie));
    atomic_store(&p.ring->tail, tail);
    assert_false(tutti_shm_peek(&p.in, &record, &bytes));
    assert_true(p.in.broken);
    assert_true(tutti_shm_is_empty(&p.in));
    free(p.ring);
}

static void
test_ring__is_broken_by_a_record_that_cannot_be(void **state)
{
    (void)state;
    check_lie(SHM_RING_BYTES + 64, (shm_record){.bytes = 64, .kind = 1});
    check_lie(UINT64_MAX, (shm_record){.bytes = 64, .kind = 1});
    check_lie(65, (shm_record){.bytes = 64, .kind = 1});
    check_lie(64, (shm_record){.bytes = 0, .kind = 1});
    check_lie(64, (shm_record){.bytes = 128, .kind = 1});
    check_lie(128, (shm_record){.bytes = 100, .kind = 1});
    check_lie(64, (shm_record){.bytes = 64, .kind = 1, .header_size = 1});
    check_lie(64, (shm_record){.bytes = 64, .kind = 1, .data_size = UINT64_MAX});
    check_lie(SHM_RING_BYTES, (shm_record){.bytes = SHM_RECORD_MAX + 64, .kind = 1});
}

static void
test_ring__is_broken_by_a_taker_that_took_what_was_not_put(void **state)
{
    pair p;
    unsigned i = 0;

    (void)state;
    open_pair(&p);
    while (put(&p.out, i)) {
        i++;
    }
    atomic_store(&p.ring->head, SHM_RING_BYTES * 4);
    assert_false(put(&p.out, i));
    assert_true(p.out.broken);
    free(p.ring);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring__gives_what_was_put_in_order_around_its_end),
        cmocka_unit_test(test_ring__that_was_full_says_once_when_there_is_room),
        cmocka_unit_test(test_ring__carries_between_threads),
        cmocka_unit_test(test_ring__is_broken_by_a_record_that_cannot_be),
        cmocka_unit_test(test_ring__is_broken_by_a_taker_that_took_what_was_not_put),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
