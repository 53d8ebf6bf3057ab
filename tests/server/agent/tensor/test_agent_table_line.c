/*
 * Goal: readers share, writers are alone, everybody gets its turn in the order of the lock sets,
 * and no two calls wait for each other. Method: by hand on one thread; then drawn lock sets against
 * a model of the line; then threads that would race for plain memory if the table granted what it
 * must not.
 */
#include "support/testing.h"
#include "table_rig.h"

static int
start(void **state)
{
    static table_rig one;

    rig_start(&one, 16);
    *state = &one;
    return 0;
}

static int
stop(void **state)
{
    rig_stop(*state);
    return 0;
}

/* ------------------------------------------------------------------------------ one tensor */

static void
test_table_claim__lets_readers_share(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call readers[3];
    int i;

    rig_make(self, "", x);
    for (i = 0; i < 3; i++) {
        call_read(&readers[i], self, x);
        assert_true(readers[i].ready);
    }
    for (i = 0; i < 3; i++) {
        call_release(&readers[i]);
    }
}

static void
test_table_claim__makes_a_writer_wait_for_all_readers_before_it(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call readers[3];
    table_call writer;
    int i;

    rig_make(self, "", x);
    for (i = 0; i < 3; i++) {
        call_read(&readers[i], self, x);
    }
    call_write(&writer, self, x);
    assert_false(writer.ready);
    call_release(&readers[1]); /* in any order */
    call_release(&readers[0]);
    assert_int_equal(rig_run(self), 0);
    call_release(&readers[2]);
    assert_false(writer.ready); /* told on its loop, never from release */
    assert_int_equal(rig_run(self), 1);
    assert_true(writer.ready);
    call_release(&writer);
}

static void
test_table_claim__lets_no_reader_pass_a_writer_that_waits(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call early;
    table_call writer;
    table_call late[2];

    rig_make(self, "", x);
    call_read(&early, self, x);
    call_write(&writer, self, x);
    call_read(&late[0], self, x);
    call_read(&late[1], self, x);
    assert_false(late[0].ready);
    call_release(&early);
    assert_int_equal(rig_run(self), 1);
    assert_true(writer.ready);
    call_release(&writer);
    assert_int_equal(rig_run(self), 2); /* both at once */
    assert_true(late[0].ready && late[1].ready);
    assert_int_equal(late[0].turn, 2);
    assert_int_equal(late[1].turn, 3);
    call_release(&late[0]);
    call_release(&late[1]);
}

static void
test_table_claim__serves_writers_in_the_order_they_came(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call writers[4];
    unsigned i;

    rig_make(self, "", x);
    for (i = 0; i < 4; i++) {
        call_write(&writers[i], self, x);
        assert_true(writers[i].ready == (i == 0));
    }
    for (i = 0; i < 4; i++) {
        assert_true(writers[i].ready);
        assert_int_equal(writers[i].turn, i);
        call_release(&writers[i]);
        assert_int_equal(rig_run(self), i < 3 ? 1 : 0);
    }
}

static void
test_table_claim__of_nothing_is_ready(void **state)
{
    table_rig *self = *state;
    table_call one;

    call_init(&one, self);
    assert_true(call_claim(&one));
    call_release(&one);
}

static void
test_table_release__of_what_was_never_claimed_tells_nobody(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call writer;
    table_call waiting;
    table_call wishing;

    rig_make(self, "", x);
    call_init(&wishing, self);
    call_want(&wishing, x, true);
    call_write(&writer, self, x); /* a wish is no place in the line */
    assert_true(writer.ready);
    call_read(&waiting, self, x);
    call_release(&wishing);
    assert_int_equal(rig_run(self), 0);
    assert_false(waiting.ready);
    call_release(&writer);
    assert_int_equal(rig_run(self), 1);
    call_release(&waiting);
}

static void
test_table_claim__may_be_used_again_after_its_release(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call writer;
    table_call one;

    rig_make(self, "", x);
    call_init(&one, self);
    call_want(&one, x, false);
    assert_true(call_claim(&one));
    call_release(&one);
    call_write(&writer, self, x);
    call_want(&one, x, false);
    assert_false(call_claim(&one));
    call_release(&writer);
    assert_int_equal(rig_run(self), 1);
    assert_true(one.ready);
    call_release(&one);
}

/* ------------------------------------------------------------------------------ two tensors */

static void
use_both(table_call *self, table_rig *rig, const char *from, const char *to)
{
    call_init(self, rig);
    call_want(self, from, false);
    call_want(self, to, true);
    (void)call_claim(self);
}

static void
test_table_claim__of_two_is_ready_once_when_both_are_granted(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    char y[TUTTI_TABLE_HANDLE_SIZE];
    table_call of_x;
    table_call of_y;
    table_call both;

    rig_make(self, "", x);
    rig_make(self, "", y);
    call_write(&of_x, self, x);
    call_write(&of_y, self, y);
    use_both(&both, self, x, y);
    call_release(&of_y);
    assert_int_equal(rig_run(self), 0);
    assert_false(both.ready);
    call_release(&of_x);
    assert_int_equal(rig_run(self), 1);
    assert_true(both.ready);
    call_release(&both);
}

static void
test_table_claim__of_two_crosswise_never_deadlocks(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    char y[TUTTI_TABLE_HANDLE_SIZE];
    table_call there;
    table_call back;
    table_call again;

    rig_make(self, "", x);
    rig_make(self, "", y);
    use_both(&there, self, x, y);
    use_both(&back, self, y, x);
    use_both(&again, self, x, y);
    assert_true(there.ready);
    call_release(&there);
    assert_int_equal(rig_run(self), 1);
    assert_true(back.ready && !again.ready);
    call_release(&back);
    assert_int_equal(rig_run(self), 1);
    assert_true(again.ready);
    call_release(&again);
}

static void
test_table_claim__of_a_result_that_is_still_written_waits_for_it(void **state)
{
    table_rig *self = *state;
    tutti_error err;
    table_call maker;
    table_call reader;

    call_init(&maker, self);
    assert_ok(tutti_table_create_locked(self->table, &maker.lock_set, "x", &err));
    assert_true(call_claim(&maker));
    call_read(&reader, self, "x");
    assert_false(reader.ready);
    call_fill(&maker, 0);
    call_release(&maker);
    assert_int_equal(rig_run(self), 1);
    assert_ok(tutti_table_check(self->table, &reader.lock_set.locks[0], &err));
    call_release(&reader);
}

/* ------------------------------------------------------------------------------ drawn */

#define DRAWN_TENSORS 3
#define DRAWN_CALLS 24
#define DRAWN_ROUNDS 300

typedef struct drawn {
    table_call call;
    uint32_t tensors[2];
    bool exclusive[2];
    uint32_t count;
    bool over;
} drawn;

static uint32_t
draw(uint32_t *grads_in, uint32_t below)
{
    *grads_in ^= *grads_in << 13;
    *grads_in ^= *grads_in >> 17;
    *grads_in ^= *grads_in << 5;
    return *grads_in % below;
}

/* By the rule alone: nobody before it, of those not over, stands against one of its uses. */
static bool
may_go(const drawn *calls, size_t which)
{
    const drawn *self = &calls[which];
    size_t before;
    uint32_t a;
    uint32_t b;

    for (before = 0; before < which; before++) {
        const drawn *other = &calls[before];

        for (a = 0; !other->over && a < self->count; a++) {
            for (b = 0; b < other->count; b++) {
                if (self->tensors[a] == other->tensors[b] &&
                    (self->exclusive[a] || other->exclusive[b])) {
                    return false;
                }
            }
        }
    }
    return true;
}

static void
draw_call(drawn *self, table_rig *rig, char handles[][TUTTI_TABLE_HANDLE_SIZE], uint32_t *grads_in)
{
    uint32_t i;

    self->over = false;
    self->count = 1 + draw(grads_in, 2);
    self->tensors[0] = draw(grads_in, DRAWN_TENSORS);
    self->tensors[1] = (self->tensors[0] + 1 + draw(grads_in, DRAWN_TENSORS - 1)) % DRAWN_TENSORS;
    call_init(&self->call, rig);
    for (i = 0; i < self->count; i++) {
        self->exclusive[i] = draw(grads_in, 2) == 0;
        call_want(&self->call, handles[self->tensors[i]], self->exclusive[i]);
    }
    (void)call_claim(&self->call);
}

static void
check_model(const drawn *calls, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (!calls[i].over) {
            assert_true(calls[i].call.ready == may_go(calls, i));
        }
    }
}

static void
test_table_claim__drawn_at_random_follows_the_rule_and_ends(void **state)
{
    table_rig *self = *state;
    char handles[DRAWN_TENSORS][TUTTI_TABLE_HANDLE_SIZE];
    static drawn calls[DRAWN_CALLS];
    uint32_t grads_in = 20260701;
    size_t round;
    size_t i;

    for (i = 0; i < DRAWN_TENSORS; i++) {
        rig_make(self, "", handles[i]);
    }
    for (round = 0; round < DRAWN_ROUNDS; round++) {
        size_t left = DRAWN_CALLS;

        for (i = 0; i < DRAWN_CALLS; i++) {
            draw_call(&calls[i], self, handles, &grads_in);
            check_model(calls, i + 1);
        }
        while (left > 0) {
            i = draw(&grads_in, DRAWN_CALLS);
            while (calls[i].over || !calls[i].call.ready) { /* there is always one that can end */
                i = (i + 1) % DRAWN_CALLS;
            }
            call_release(&calls[i].call);
            calls[i].over = true;
            left--;
            (void)rig_run(self);
            check_model(calls, DRAWN_CALLS);
        }
    }
}

/* ------------------------------------------------------------------------------ threads */

#define THREADS 4
#define THREAD_TENSORS 3
#define THREAD_ROUNDS 400

/* One thread that makes calls, one after the other, and waits for each turn. */
typedef struct worker {
    table_rig *rig;
    tutti_lock_set lock_set;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t told;
    bool ready;
    uint32_t grads_in;
    uint64_t written[THREAD_TENSORS];
    char (*handles)[TUTTI_TABLE_HANDLE_SIZE];
} worker;

static void
on_worker_ready(tutti_lock_set *lock_set)
{
    worker *self = tutti_container_of(lock_set, worker, lock_set);

    (void)pthread_mutex_lock(&self->mutex);
    self->ready = true;
    (void)pthread_cond_signal(&self->told);
    (void)pthread_mutex_unlock(&self->mutex);
}

static void
wait_turn(worker *self)
{
    if (tutti_table_acquire(self->rig->table, &self->lock_set)) {
        return;
    }
    (void)pthread_mutex_lock(&self->mutex);
    while (!self->ready) {
        (void)pthread_cond_wait(&self->told, &self->mutex);
    }
    self->ready = false;
    (void)pthread_mutex_unlock(&self->mutex);
}

/* Plain memory: two at once would lose counts, or show as a race. Returns false for a torn one. */
static bool
touch(tutti_tensor *tensor, bool write)
{
    uint64_t *numbers = tensor->data;
    bool whole = numbers[0] == numbers[1];

    if (write) {
        numbers[0]++;
        numbers[1]++;
    }
    return whole;
}

static bool
work_once(worker *self)
{
    tutti_table *table = self->rig->table;
    const uint32_t first = draw(&self->grads_in, THREAD_TENSORS);
    const uint32_t which[2] = {first, (first + 1) % THREAD_TENSORS};
    const uint32_t count = 1 + draw(&self->grads_in, 2);
    bool good = true;
    uint32_t i;

    for (i = 0; i < count; i++) {
        good = tutti_table_lock_by_name(table, &self->lock_set, self->handles[which[i]],
                                        draw(&self->grads_in, 2) == 0, NULL) == TUTTI_OK &&
               good;
    }
    wait_turn(self);
    for (i = 0; i < count; i++) {
        const tutti_lock *lock = &self->lock_set.locks[i];

        good = touch(tutti_table_tensor(table, lock), lock->exclusive) && good;
        self->written[which[i]] += lock->exclusive ? 1 : 0;
    }
    tutti_table_release(table, &self->lock_set);
    return good;
}

static void *
run_worker(void *arg)
{
    worker *self = arg;
    bool good = true;
    int i;

    for (i = 0; i < THREAD_ROUNDS; i++) {
        good = work_once(self) && good;
    }
    return good ? self : NULL;
}

/* Beside them: tensors come and go, and somebody looks. NULL: something was wrong. */
static void *
run_visitor(void *arg)
{
    table_rig *self = arg;
    bool good = true;
    int i;

    for (i = 0; i < THREAD_ROUNDS; i++) {
        tutti_lock_set lock_set = {.loop = &self->loop};
        char name[] = "passing";
        char *names[] = {name};
        tutti_table_info info;
        uint64_t number = 0;

        good = tutti_table_create_locked(self->table, &lock_set, name, NULL) == TUTTI_OK && good;
        good = tutti_table_acquire(self->table, &lock_set) && good;
        while ((number = tutti_table_next(self->table, number, &info)) != 0) {
            good = tutti_table_stat(self->table, info.handle, &info, NULL) == TUTTI_OK && good;
        }
        good = tutti_table_delete(self->table, names, 1, false, NULL) == TUTTI_OK && good;
        tutti_table_release(self->table, &lock_set);
    }
    return good ? self : NULL;
}

static void *
run_loop(void *arg)
{
    rig_serve_loop(arg);
    return NULL;
}

static void
start_worker(worker *self, table_rig *rig, char (*handles)[TUTTI_TABLE_HANDLE_SIZE],
             uint32_t grads_in)
{
    *self = (worker){.rig = rig, .handles = handles, .grads_in = grads_in};
    self->lock_set.loop = &rig->loop;
    self->lock_set.on_ready = on_worker_ready;
    (void)pthread_mutex_init(&self->mutex, NULL);
    (void)pthread_cond_init(&self->told, NULL);
    assert_int_equal(pthread_create(&self->thread, NULL, run_worker, self), 0);
}

static void
join_good(pthread_t thread)
{
    void *good = NULL;

    assert_int_equal(pthread_join(thread, &good), 0);
    assert_non_null(good);
}

static void
check_sum(table_rig *self, const worker *workers, char (*handles)[TUTTI_TABLE_HANDLE_SIZE],
          uint32_t which)
{
    uint64_t sum = 0;
    table_call reader;
    int i;

    for (i = 0; i < THREADS; i++) {
        sum += workers[i].written[which];
    }
    call_read(&reader, self, handles[which]);
    assert_true(reader.ready); /* everybody has let go */
    assert_int_equal(*(uint64_t *)tutti_table_tensor(self->table, &reader.lock_set.locks[0])->data,
                     sum);
    assert_true(sum > 0);
    call_release(&reader);
}

static void
test_table__keeps_threads_apart(void **state)
{
    table_rig *self = *state;
    char handles[THREAD_TENSORS][TUTTI_TABLE_HANDLE_SIZE];
    worker workers[THREADS];
    pthread_t visitor;
    pthread_t loop;
    uint32_t i;

    for (i = 0; i < THREAD_TENSORS; i++) {
        rig_make(self, "", handles[i]);
    }
    assert_int_equal(pthread_create(&loop, NULL, run_loop, &self->loop), 0);
    assert_int_equal(pthread_create(&visitor, NULL, run_visitor, self), 0);
    for (i = 0; i < THREADS; i++) {
        start_worker(&workers[i], self, handles, 77 + i);
    }
    for (i = 0; i < THREADS; i++) {
        join_good(workers[i].thread);
        (void)pthread_cond_destroy(&workers[i].told);
        (void)pthread_mutex_destroy(&workers[i].mutex);
    }
    join_good(visitor);
    rig_end_loop(&self->loop);
    assert_int_equal(pthread_join(loop, NULL), 0);
    for (i = 0; i < THREAD_TENSORS; i++) {
        check_sum(self, workers, handles, i);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_table_claim__lets_readers_share),
        TEST(test_table_claim__makes_a_writer_wait_for_all_readers_before_it),
        TEST(test_table_claim__lets_no_reader_pass_a_writer_that_waits),
        TEST(test_table_claim__serves_writers_in_the_order_they_came),
        TEST(test_table_claim__of_nothing_is_ready),
        TEST(test_table_release__of_what_was_never_claimed_tells_nobody),
        TEST(test_table_claim__may_be_used_again_after_its_release),
        TEST(test_table_claim__of_two_is_ready_once_when_both_are_granted),
        TEST(test_table_claim__of_two_crosswise_never_deadlocks),
        TEST(test_table_claim__of_a_result_that_is_still_written_waits_for_it),
        TEST(test_table_claim__drawn_at_random_follows_the_rule_and_ends),
        TEST(test_table__keeps_threads_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
