/*
 * Goal: groups of one rank run on coll/self, every collective there gives what its definition says
 * for one rank, and a large op keeps no other one waiting.
 * Method: one engine. Results are compared with the input, or with what the reduction kernels make
 * of it. What runs beside each other is posted in one callback, so that its order is known.
 */
#include "support/testing.h"

#include "coll/engine/device_pending.h"
#include "coll/host/host.h"
#include "coll/reduce/reduce.h"
#include "coll/self/self.h"
#include "support/world.h"

#define LONG_MS 15000
#define TURNS_BYTES ((5 << 20) + 64) /* more than two calls of advance */

/* Every byte there is: of floats also NaNs, of BOOL also what is not 1. */
static unsigned char *
new_filled(size_t bytes)
{
    unsigned char *data = malloc(bytes + 1);
    size_t i;

    assert_non_null(data);
    for (i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 7 + i / 251);
    }
    return data;
}

static void
succeeds(world *w, run *self)
{
    run_post(self, w->groups[0], LONG_MS);
    if (run_wait(self) != TUTTI_OK) {
        fail_msg("%s: %s", tutti_coll_kind_name(self->op.args.kind), self->err.text);
    }
}

/* ------------------------------------------------------------------------------ who runs it */

static void
test_groups_of_one__run_on_self_and_larger_ones_on_host(void **state)
{
    const uint32_t alone[] = {1};
    tutti_coll_group *group = NULL;
    world w;
    run *runs[3];
    int64_t numbers[3] = {1, 2, 3};
    uint32_t i;

    (void)state;
    world_open(&w, WIRE, 2);
    world_group(&w, "alone", alone, 1, &group);
    for (i = 0; i < 3; i++) {
        runs[i] = run_new(TUTTI_COLL_ALL_REDUCE);
        run_give(runs[i], TUTTI_DTYPE_INT64, 1, &numbers[i], &numbers[i]);
        run_post(runs[i], i < 2 ? w.groups[i] : group, LONG_MS);
    }
    for (i = 0; i < 3; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        assert_int_equal(numbers[i], 3);
        assert_ptr_equal(tutti_coll_backend_of(&runs[i]->op),
                         i < 2 ? &tutti_coll_host : &tutti_coll_self);
        run_free(runs[i]);
    }
    assert_true(tutti_coll_host_look(w.groups[0]).known);
    assert_false(tutti_coll_host_look(group).known); /* the host backend has not seen it */
    world_close(&w);
}

/* ------------------------------------------------------------------------------ what comes out */

static const tutti_coll_kind copies[] = {TUTTI_COLL_BROADCAST, TUTTI_COLL_ALL_GATHER,
                                         TUTTI_COLL_GATHER,    TUTTI_COLL_SCATTER,
                                         TUTTI_COLL_PERMUTE,   TUTTI_COLL_ALL_TO_ALL};
static const tutti_coll_kind reductions[] = {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_REDUCE,
                                             TUTTI_COLL_REDUCE_SCATTER};

/* One op; the output is compared with `wanted`, and an input that is not the output with itself. */
static void
check(world *w, const tutti_coll_args *args, int64_t count, const void *wanted, bool in_place)
{
    static const uint32_t to[] = {0};
    const size_t bytes = (size_t)count * tutti_dtype_bytes(args->spec.dtype);
    unsigned char *input = new_filled(bytes);
    unsigned char *before = new_filled(bytes);
    unsigned char *output = in_place ? input : calloc(1, bytes + 1);
    run *self = run_new(args->kind);

    self->op.args = *args;
    self->op.args.to = to;
    self->op.args.to_count = 1;
    self->op.on_spec = NULL;
    run_give(self, args->spec.dtype, count, input, output);
    succeeds(w, self);
    assert_memory_equal(output, wanted != NULL ? wanted : before, bytes);
    if (!in_place) {
        assert_memory_equal(input, before, bytes);
        free(output);
    }
    free(input);
    free(before);
    run_free(self);
}

static void
test_what_moves_data__copies_the_input(void **state)
{
    static const int64_t counts[] = {0, 1, 7, (2 << 20) - 1, 2 << 20, TURNS_BYTES};
    world w;
    size_t k;
    size_t c;

    (void)state;
    world_open(&w, WIRE, 1);
    for (k = 0; k < COUNT_OF(copies); k++) {
        for (c = 0; c < COUNT_OF(counts); c++) {
            const tutti_coll_args args = {.kind = copies[k], .spec.dtype = TUTTI_DTYPE_UINT8};

            check(&w, &args, counts[c], NULL, false);
            check(&w, &args, counts[c], NULL, true);
        }
    }
    world_close(&w);
}

static void
check_reduction(world *w, const tutti_coll_args *args, int64_t count)
{
    const size_t bytes = (size_t)count * tutti_dtype_bytes(args->spec.dtype);
    unsigned char *input = new_filled(bytes);
    unsigned char *wanted = malloc(bytes + 1);
    const void *const inputs[] = {input};
    const bool is_scaled = args->reduce == TUTTI_REDUCE_PREMUL_SUM;

    assert_non_null(wanted);
    tutti_reduce_run(args->reduce, args->spec.dtype, inputs, 1, is_scaled ? &args->factor : NULL,
                     (size_t)count, wanted);
    check(w, args, count, wanted, false);
    check(w, args, count, wanted, true);
    free(input);
    free(wanted);
}

static void
test_what_reduces__gives_the_bits_of_the_kernels(void **state)
{
    world w;
    size_t k;
    int reduce;
    int dtype;

    (void)state;
    world_open(&w, WIRE, 1);
    for (k = 0; k < COUNT_OF(reductions); k++) {
        for (reduce = 1; reduce <= TUTTI_REDUCE_PREMUL_SUM; reduce++) {
            for (dtype = 1; dtype <= TUTTI_DTYPE_FP8_E5M2; dtype++) {
                const tutti_coll_args args = {.kind = reductions[k],
                                              .reduce = (tutti_reduce)reduce,
                                              .factor = 0.3,
                                              .spec.dtype = (tutti_dtype)dtype};

                if (tutti_reduce_check(args.reduce, args.spec.dtype, NULL) == TUTTI_OK) {
                    check_reduction(&w, &args, 33);
                }
            }
        }
        check_reduction(&w,
                        &(tutti_coll_args){.kind = reductions[k],
                                           .reduce = TUTTI_REDUCE_PREMUL_SUM,
                                           .factor = 0.3,
                                           .spec.dtype = TUTTI_DTYPE_BF16},
                        TURNS_BYTES / 2);
    }
    world_close(&w);
}

/* A list has a tensor for each rank, so one; or it is coalesced, and has any number. */
static tutti_coll_tensor placed[2];

static tutti_code
on_list(tutti_coll_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    (void)err;
    assert_in_range(count, 1, COUNT_OF(placed));
    placed[0].spec = specs[0];
    placed[count - 1].spec = specs[count - 1];
    op->outputs = placed;
    return TUTTI_OK;
}

static void
check_list(world *w, const tutti_coll_args *args, uint32_t count)
{
    char input[2][8] = {"one", "seven.."};
    char output[2][8] = {"", ""};
    const tutti_coll_tensor list[] = {
        {.spec = {TUTTI_DTYPE_INT8, 1, {4}}, .data = input[0]},
        {.spec = {TUTTI_DTYPE_INT8, 1, {8}}, .data = input[1]},
    };
    run *self = run_new(args->kind);
    uint32_t i;

    self->op.args = *args;
    self->op.args.has_spec = true;
    self->op.args.spec = list[0].spec;
    self->op.args.list = list;
    self->op.args.list_count = count;
    self->op.input = input[0];
    self->op.output = output[0];
    self->op.on_spec = NULL;
    self->op.on_list = on_list;
    placed[0].data = output[0];
    placed[1].data = output[1];
    self->op.outputs = placed;
    succeeds(w, self);
    for (i = 0; i < count; i++) {
        assert_string_equal(output[i], input[i]);
    }
    run_free(self);
}

static void
test_lists__arrive_tensor_by_tensor(void **state)
{
    static const tutti_coll_args by_rank[] = {
        {.kind = TUTTI_COLL_ALL_GATHER},
        {.kind = TUTTI_COLL_GATHER},
        {.kind = TUTTI_COLL_SCATTER},
        {.kind = TUTTI_COLL_ALL_TO_ALL},
        {.kind = TUTTI_COLL_REDUCE_SCATTER, .reduce = TUTTI_REDUCE_SUM},
    };
    static const tutti_coll_args coalesced[] = {
        {.kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_SUM},
        {.kind = TUTTI_COLL_BROADCAST},
        {.kind = TUTTI_COLL_ALL_GATHER, .form = TUTTI_FORM_LIST},
        {.kind = TUTTI_COLL_ALL_GATHER},
    };
    tutti_coll_args args;
    world w;
    size_t i;

    (void)state;
    world_open(&w, WIRE, 1);
    for (i = 0; i < COUNT_OF(by_rank); i++) {
        args = by_rank[i];
        args.form = TUTTI_FORM_LIST;
        check_list(&w, &args, 1);
    }
    for (i = 0; i < COUNT_OF(coalesced); i++) {
        args = coalesced[i];
        args.coalesced = true;
        check_list(&w, &args, 2);
    }
    world_close(&w);
}

static void
test_all_to_all_with_splits__copies_the_rows(void **state)
{
    static const int64_t rows[] = {3};
    static const int64_t fewer[] = {2};
    int32_t input[] = {1, 2, 3};
    int32_t output[] = {0, 0, 0};
    world w;
    int wrong;

    (void)state;
    world_open(&w, WIRE, 1);
    for (wrong = 0; wrong < 2; wrong++) {
        run *self = run_new(TUTTI_COLL_ALL_TO_ALL);

        self->op.args.has_splits = true;
        self->op.args.split_count = 1;
        self->op.args.send_splits = rows;
        self->op.args.recv_splits = wrong != 0 ? fewer : rows;
        run_give(self, TUTTI_DTYPE_INT32, 3, input, output);
        run_post(self, w.groups[0], LONG_MS);
        assert_int_equal(run_wait(self), wrong != 0 ? TUTTI_INVALID_ARGUMENT : TUTTI_OK);
        assert_memory_equal(output, input, sizeof(input));
        run_free(self);
    }
    world_close(&w);
}

static void
test_barrier__is_over_at_once(void **state)
{
    world w;
    run *self = run_new(TUTTI_COLL_BARRIER);

    (void)state;
    world_open(&w, WIRE, 1);
    succeeds(&w, self);
    run_free(self);
    world_close(&w);
}

/* ------------------------------------------------------------------------------ taking turns */

/* A large op and a small one, both posted by the callback of a first one: so both are there before
 * the engine goes on. */
typedef struct crowd {
    world w;
    tutti_coll_op first;
    run *large;
    run *small;
    bool cancels; /* the end of the small one cancels the large one */
    bool large_was_done;
    void (*small_on_done)(tutti_coll_op *op, const tutti_error *err);
} crowd;

static crowd *the_crowd;

static void
on_first_done(tutti_coll_op *op, const tutti_error *err)
{
    (void)op;
    (void)err;
    run_post(the_crowd->large, the_crowd->w.groups[0], LONG_MS);
    run_post(the_crowd->small, the_crowd->w.groups[0], LONG_MS);
}

static void
on_first_released(tutti_coll_op *op)
{
    (void)op;
}

static void
on_small_done(tutti_coll_op *op, const tutti_error *err)
{
    the_crowd->large_was_done = run_is_done(the_crowd->large);
    if (the_crowd->cancels) {
        tutti_error why;

        (void)TUTTI_FAIL(&why, TUTTI_CANCELLED, "this test has seen enough");
        tutti_coll_cancel(the_crowd->w.engines[0], the_crowd->large->op.id, &why);
    }
    the_crowd->small_on_done(op, err);
}

static void
run_crowd(crowd *self)
{
    const size_t bytes = 64 << 20;
    unsigned char *input = calloc(1, bytes);
    unsigned char *output = calloc(1, bytes);
    int32_t number = 5;
    tutti_error err;

    assert_true(input != NULL && output != NULL);
    the_crowd = self;
    world_open(&self->w, WIRE, 1);
    self->large = run_new(TUTTI_COLL_ALL_GATHER);
    run_give(self->large, TUTTI_DTYPE_UINT8, (int64_t)bytes, input, output);
    self->small = run_new(TUTTI_COLL_ALL_REDUCE);
    run_give(self->small, TUTTI_DTYPE_INT32, 1, &number, &number);
    self->small_on_done = self->small->op.on_done;
    self->small->op.on_done = on_small_done;
    self->first = (tutti_coll_op){.args.kind = TUTTI_COLL_BARRIER,
                                  .deadline_ns = UINT64_MAX / 2,
                                  .on_done = on_first_done,
                                  .on_released = on_first_released};
    assert_ok(tutti_coll_post(self->w.groups[0], &self->first, 0, &err));
    assert_int_equal(run_wait(self->small), TUTTI_OK);
    (void)run_wait(self->large);
    world_close(&self->w);
    free(input);
    free(output);
}

static void
test_large_op__keeps_no_small_one_waiting(void **state)
{
    crowd self = {.cancels = false};

    (void)state;
    run_crowd(&self);
    assert_false(self.large_was_done);
    assert_int_equal(self.large->code, TUTTI_OK);
    run_free(self.large);
    run_free(self.small);
}

static void
test_large_op__can_be_cancelled_between_two_turns(void **state)
{
    crowd self = {.cancels = true};

    (void)state;
    run_crowd(&self);
    assert_int_equal(self.large->code, TUTTI_CANCELLED);
    assert_true(self.large->released);
    run_free(self.large);
    run_free(self.small);
}

/* ------------------------------------------------------------------------------ a hurry */

static void (*tell_run)(tutti_coll_op *op, const tutti_error *err);
static pthread_t done_on;

static void
note_thread(tutti_coll_op *op, const tutti_error *err)
{
    done_on = pthread_self();
    tell_run(op, err);
}

/* How many of so many ops were done by this thread, which posts them. */
static int
count_own(world *w, int count)
{
    int own = 0;
    int i;

    for (i = 0; i < count; i++) {
        run *one = run_new(TUTTI_COLL_BARRIER);

        tell_run = one->op.on_done;
        one->op.on_done = note_thread;
        succeeds(w, one);
        own += pthread_equal(done_on, pthread_self()) ? 1 : 0;
        run_free(one);
    }
    return own;
}

static void
test_thread_in_a_hurry__leaves_its_ops_to_the_engine(void **state)
{
    world w;

    (void)state;
    world_open(&w, WIRE, 1);
    tutti_coll_hurry(true);
    assert_int_equal(count_own(&w, 100), 0);
    tutti_coll_hurry(false);
    while (count_own(&w, 100) == 0) { /* none, if the engine never slept */
    }
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_one__run_on_self_and_larger_ones_on_host),
        cmocka_unit_test(test_what_moves_data__copies_the_input),
        cmocka_unit_test(test_what_reduces__gives_the_bits_of_the_kernels),
        cmocka_unit_test(test_lists__arrive_tensor_by_tensor),
        cmocka_unit_test(test_all_to_all_with_splits__copies_the_rows),
        cmocka_unit_test(test_barrier__is_over_at_once),
        cmocka_unit_test(test_large_op__keeps_no_small_one_waiting),
        cmocka_unit_test(test_large_op__can_be_cancelled_between_two_turns),
        cmocka_unit_test(test_thread_in_a_hurry__leaves_its_ops_to_the_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
