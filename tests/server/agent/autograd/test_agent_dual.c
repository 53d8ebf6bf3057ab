/*
 * Goal: what tutti_grad_op_args says, run by the ranks, is the adjoint of the op: with L the op and
 * D its gradient op, <L x, g> = <x, D g> summed over all ranks. The local gradient op is that of a
 * rank's own part. Method: random linear ops on random shapes and groups, on engines of one
 * process, from a seed that is printed and can be given, TUTTI_TEST_SEED.
 */
#include <inttypes.h>
#include <math.h>
#include <time.h>

#include "server/agent/autograd/grad_op.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/autograd/tape_rig.h"
#include "support/testing.h"
#include "support/world.h"

#define LONG_MS 15000
#define ROUNDS 80
#define SIZE_MAX_ 5
#define X 1U /* the tensors of each tape */
#define Y 2U

static uint64_t first_seed;
static uint64_t in_grad;

/* SplitMix64: Steele, Lea, Flood 2014. */
static uint64_t
draw(void)
{
    uint64_t z = in_grad += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t
below(uint32_t limit)
{
    return (uint32_t)(draw() % limit);
}

static double
number(void)
{
    return (double)(draw() >> 11) / (double)(1ULL << 52) - 1;
}

/* ------------------------------------------------------------------------------ one rank */

typedef struct seat {
    tape_rig rig;
    tutti_coll_group *group;
    tutti_coll_args args;
    tutti_spec in;
    tutti_spec out; /* dtype NONE: no result here */
    tutti_tensor *x;
    tutti_tensor *y;
    tutti_tensor *g;
    tutti_tensor *d;
    tutti_tape_record *record;
    int64_t splits[2 * SIZE_MAX_];
    uint32_t to[SIZE_MAX_];
    run *run;
} seat;

static tutti_tensor *
new_tensor(const seat *self, const tutti_spec *spec, bool random)
{
    tutti_tensor *tensor = NULL;
    tutti_error err;
    uint64_t i;

    assert_ok(tutti_tensor_new(self->rig.space, spec, true, &tensor, &err));
    for (i = 0; random && i < tutti_spec_count(spec); i++) {
        ((double *)tensor->data)[i] = number();
    }
    return tensor;
}

static double
product(const tutti_tensor *left, const tutti_tensor *right)
{
    double sum = 0;
    uint64_t i;

    if (left == NULL || right == NULL) {
        return 0;
    }
    assert_int_equal(left->bytes, right->bytes);
    for (i = 0; i < left->bytes / sizeof(double); i++) {
        sum += ((double *)left->data)[i] * ((double *)right->data)[i];
    }
    return sum;
}

/* ------------------------------------------------------------------------------ one op */

typedef struct trial {
    world w;
    uint32_t size;
    seat seats[SIZE_MAX_];
} trial;

static bool
gives(const seat *self, uint32_t rank)
{
    return !tutti_coll_is_from_root(self->args.kind) || self->args.root == rank;
}

static void
post(seat *self, const tutti_coll_args *args, const tutti_tensor *input, tutti_tensor *output)
{
    self->run = run_new(args->kind);
    self->run->op.args = *args;
    self->run->op.args.has_spec = input != NULL;
    self->run->op.input = input == NULL ? NULL : input->data;
    self->run->op.output = output == NULL ? NULL : output->data;
    run_post(self->run, self->group, LONG_MS);
}

static void
wait_all(trial *t)
{
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        run *it = t->seats[i].run;

        if (run_wait(it) != TUTTI_OK) {
            fail_msg("%s", it->err.text);
        }
        run_free(it);
    }
}

static void
run_forward(trial *t)
{
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        seat *self = &t->seats[i];
        tutti_coll_args args = self->args;

        args.spec = self->in;
        post(self, &args, gives(self, i) ? self->x : NULL, self->y);
    }
    wait_all(t);
}

static void
record(seat *self, uint32_t size, uint32_t rank, bool local)
{
    tutti_coll_args args = self->args;
    tutti_tape_entry entry = {.number = 1,
                              .group = "some",
                              .size = size,
                              .rank = rank,
                              .local = local,
                              .args = &args,
                              .result = self->out,
                              .in_tensor = gives(self, rank) ? X : 0,
                              .out_tensor = self->y == NULL ? 0 : Y,
                              .out_spec = self->out};
    tutti_error err;

    args.has_spec = gives(self, rank);
    args.spec = self->in;
    if (entry.in_tensor != 0) {
        assert_ok(tutti_tape_attach(self->rig.tape, X, &self->in, self->rig.space, &err));
    }
    assert_ok(tutti_grad_op_check(&args, local, &err));
    assert_ok(tutti_tape_record_new(self->rig.tape, &entry, &self->record, &err));
    tutti_tape_record_end(self->record, 1, self->y == NULL ? NULL : &self->out);
}

static void
run_grad_op(trial *t)
{
    bool given;
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        seat *self = &t->seats[i];
        tutti_coll_args args;

        tutti_grad_op_args(self->record, &args, &given);
        assert_int_equal(given, self->g != NULL);
        args.spec = self->out;
        self->d = gives(self, i) ? new_tensor(self, &self->in, false) : NULL;
        post(self, &args, given ? self->g : NULL, self->d);
    }
    wait_all(t);
    for (i = 0; i < t->size; i++) {
        if (t->seats[i].d != NULL) {
            tutti_grad_op_finish(t->seats[i].record, t->seats[i].d);
        }
    }
}

/* ------------------------------------------------------------------------------ drawing */

static void
draw_form(tutti_coll_args *args, tutti_spec *spec, uint32_t size, bool cuts)
{
    static const tutti_form forms[] = {TUTTI_FORM_CONCAT, TUTTI_FORM_STACK, TUTTI_FORM_FLAT};

    args->form = forms[below(3)];
    args->axis = below(spec->dim_count);
    if (cuts && args->form == TUTTI_FORM_STACK) {
        spec->dims[args->axis] = size;
    } else if (cuts) {
        spec->dims[args->axis] *= size;
    }
    if (args->form == TUTTI_FORM_FLAT) {
        args->axis = 0;
    }
}

static void
draw_op(tutti_coll_args *args, tutti_spec *spec, uint32_t size)
{
    static const tutti_coll_kind kinds[] = {
        TUTTI_COLL_ALL_REDUCE,     TUTTI_COLL_REDUCE,     TUTTI_COLL_BROADCAST,
        TUTTI_COLL_ALL_GATHER,     TUTTI_COLL_GATHER,     TUTTI_COLL_SCATTER,
        TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_ALL_TO_ALL, TUTTI_COLL_PERMUTE,
    };
    static const tutti_reduce reductions[] = {TUTTI_REDUCE_SUM, TUTTI_REDUCE_AVG,
                                              TUTTI_REDUCE_PREMUL_SUM};

    *args = (tutti_coll_args){.kind = kinds[below(COUNT_OF(kinds))], .root = below(size)};
    args->reduce = reductions[below(3)];
    switch (args->kind) {
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_GATHER:
        draw_form(args, spec, size, false);
        break;
    case TUTTI_COLL_SCATTER:
    case TUTTI_COLL_REDUCE_SCATTER:
        draw_form(args, spec, size, true);
        break;
    case TUTTI_COLL_ALL_TO_ALL:
        args->axis = below(spec->dim_count);
        args->concat_axis = below(spec->dim_count);
        args->has_splits = below(2) == 0;
        spec->dims[args->axis] *= size;
        break;
    default:
        break;
    }
}

/* Rows from each rank to each, and a permutation. */
static void
draw_lists(trial *t)
{
    int64_t rows[SIZE_MAX_][SIZE_MAX_];
    const uint32_t shift = below(t->size);
    uint32_t from;
    uint32_t to;

    for (from = 0; from < t->size; from++) {
        for (to = 0; to < t->size; to++) {
            rows[from][to] = below(4);
        }
    }
    for (from = 0; from < t->size; from++) {
        seat *self = &t->seats[from];
        int64_t sum = 0;

        for (to = 0; to < t->size; to++) {
            self->splits[to] = rows[from][to];
            self->splits[t->size + to] = rows[to][from];
            self->to[to] = (to + shift) % t->size;
            sum += rows[from][to];
        }
        self->args.to = self->to;
        self->args.to_count = t->size;
        if (self->args.has_splits) {
            self->args.split_count = t->size;
            self->args.send_splits = self->splits;
            self->args.recv_splits = self->splits + t->size;
            self->in.dims[0] = sum;
        }
    }
}

static void
draw_spec(tutti_spec *spec)
{
    uint32_t i;

    *spec = (tutti_spec){.dtype = TUTTI_DTYPE_FP64, .dim_count = 1 + below(4)};
    for (i = 0; i < spec->dim_count; i++) {
        spec->dims[i] = below(12) == 0 ? 0 : 1 + below(4);
    }
}

static void
fill_seat(seat *self, uint32_t size, uint32_t rank)
{
    tutti_coll_args args = self->args;
    tutti_error err;

    args.has_spec = true;
    args.spec = self->in;
    args.factor = self->args.factor = 2 * number();
    assert_ok(tutti_coll_infer(&args, size, rank, &self->out, &err));
    self->x = new_tensor(self, &self->in, true);
    if (self->out.dtype != TUTTI_DTYPE_NONE) {
        self->y = new_tensor(self, &self->out, false);
        self->g = new_tensor(self, &self->out, true);
    }
}

static void
open_trial(trial *t)
{
    tutti_coll_group *groups[SIZE_MAX_];
    uint32_t ranks[SIZE_MAX_];
    tutti_coll_args args;
    tutti_spec spec;
    uint32_t i;

    *t = (trial){.size = 1 + below(SIZE_MAX_)};
    world_open(&t->w, world_transport_fake, t->size);
    for (i = 0; i < t->size; i++) {
        ranks[i] = (i + 1) % t->size;
    }
    world_group(&t->w, "some", ranks, t->size, groups);
    draw_spec(&spec);
    draw_op(&args, &spec, t->size);
    for (i = 0; i < t->size; i++) {
        tape_rig_start(&t->seats[i].rig, 10);
        t->seats[i].group = groups[i];
        t->seats[i].args = args;
        t->seats[i].in = spec;
    }
    draw_lists(t);
    for (i = 0; i < t->size; i++) {
        fill_seat(&t->seats[i], t->size, i);
    }
}

static void
close_trial(trial *t)
{
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        tutti_tensor_unref(t->seats[i].x);
        tutti_tensor_unref(t->seats[i].y);
        tutti_tensor_unref(t->seats[i].g);
        tutti_tensor_unref(t->seats[i].d);
        tape_rig_stop(&t->seats[i].rig);
    }
    world_close(&t->w);
}

/* ------------------------------------------------------------------------------ tests */

static void
assert_near(double left, double right, const trial *t)
{
    char words[512] = "";
    tutti_text text = tutti_text_in(words, sizeof(words));

    if (fabs(left - right) > 1e-9 * (1 + fabs(left))) {
        tutti_coll_describe(&t->seats[0].args, &text);
        fail_msg("%.17g and %.17g: %s on %" PRIu32 " ranks, TUTTI_TEST_SEED=%" PRIu64, left, right,
                 words, t->size, first_seed);
    }
}

static void
test_dual__is_the_adjoint(void **state)
{
    int round;

    (void)state;
    in_grad = first_seed;
    for (round = 0; round < ROUNDS; round++) {
        double left = 0;
        double right = 0;
        uint32_t i;
        trial t;

        open_trial(&t);
        run_forward(&t);
        for (i = 0; i < t.size; i++) {
            record(&t.seats[i], t.size, i, false);
        }
        run_grad_op(&t);
        for (i = 0; i < t.size; i++) {
            left += product(t.seats[i].y, t.seats[i].g);
            right += product(gives(&t.seats[i], i) ? t.seats[i].x : NULL, t.seats[i].d);
        }
        assert_near(left, right, &t);
        close_trial(&t);
    }
}

/* With zeros from all others, what a rank gets is its own part. */
static void
test_dual_local__is_the_adjoint_of_a_ranks_own_part(void **state)
{
    int round;

    (void)state;
    in_grad = first_seed;
    for (round = 0; round < ROUNDS; round++) {
        uint32_t me;
        uint32_t i;
        trial t;
        seat *self;

        open_trial(&t);
        me = below(t.size);
        self = &t.seats[me];
        for (i = 0; i < t.size; i++) {
            if (i != me) {
                memset(t.seats[i].x->data, 0, t.seats[i].x->bytes);
            }
        }
        if (tutti_grad_op_check(&self->args, true, NULL) == TUTTI_OK) {
            run_forward(&t);
            record(self, t.size, me, true);
            self->d = new_tensor(self, &self->in, false);
            tutti_grad_op_local(self->record, self->g, self->d);
            assert_near(product(self->y, self->g), product(self->x, self->d), &t);
        }
        close_trial(&t);
    }
}

static void
test_dual_check__refuses_what_has_no_gradient(void **state)
{
    tutti_coll_args args = {.kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_MAX};
    tutti_error err;

    (void)state;
    assert_ok(tutti_grad_op_check(&args, true, &err));
    assert_true(tutti_grad_op_masks(&args));
    args.kind = TUTTI_COLL_REDUCE_SCATTER;
    assert_fails(tutti_grad_op_check(&args, false, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_REDUCE_OP");
    args.kind = TUTTI_COLL_ALL_REDUCE;
    for (args.reduce = TUTTI_REDUCE_PROD; args.reduce <= TUTTI_REDUCE_BXOR; args.reduce++) {
        const bool good = args.reduce == TUTTI_REDUCE_MIN || args.reduce == TUTTI_REDUCE_MAX ||
                          args.reduce == TUTTI_REDUCE_AVG;

        assert_int_equal(tutti_grad_op_check(&args, false, &err),
                         good ? TUTTI_OK : TUTTI_INVALID_ARGUMENT);
    }
    args = (tutti_coll_args){.kind = TUTTI_COLL_KIND_COUNT}; /* an op that is new */
    assert_fails(tutti_grad_op_check(&args, false, &err), TUTTI_UNIMPLEMENTED);
    assert_string_equal(err.reason, "NO_GRADIENT");
    args = (tutti_coll_args){.kind = TUTTI_COLL_BROADCAST};
    assert_fails(tutti_grad_op_check(&args, true, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_LOCAL_GRAD");
    args.has_spec = true;
    args.spec.dtype = TUTTI_DTYPE_FP8_E5M2;
    assert_fails(tutti_grad_op_check(&args, false, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "DTYPE_UNSUPPORTED");
}

static void
test_dual_mask__is_where_the_input_is_the_result(void **state)
{
    const tutti_spec halves = {.dtype = TUTTI_DTYPE_FP16, .dim_count = 1, .dims = {4}};
    const tutti_spec singles = {.dtype = TUTTI_DTYPE_FP32, .dim_count = 1, .dims = {4}};
    const tutti_spec doubles = {.dtype = TUTTI_DTYPE_FP64, .dim_count = 1, .dims = {4}};
    const uint16_t half[2][4] = {{0x3c00, 0x8000, 0x0001, 0}, {0x3c00, 0, 0x0002, 0}};
    const float single[2][4] = {{1, -0.0F, 3, 0}, {1, 0, 4, 0}};
    const double wide[2][4] = {{1, -0.0, 3, 0}, {1, 0, 4, 0}};
    const unsigned char expected[4] = {1, 1, 0, 1};
    unsigned char mask[4];

    (void)state;
    tutti_grad_op_mask(&halves, half[0], half[1], mask);
    assert_memory_equal(mask, expected, 4);
    tutti_grad_op_mask(&singles, single[0], single[1], mask);
    assert_memory_equal(mask, expected, 4);
    tutti_grad_op_mask(&doubles, wide[0], wide[1], mask);
    assert_memory_equal(mask, expected, 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dual__is_the_adjoint),
        cmocka_unit_test(test_dual_local__is_the_adjoint_of_a_ranks_own_part),
        cmocka_unit_test(test_dual_check__refuses_what_has_no_gradient),
        cmocka_unit_test(test_dual_mask__is_where_the_input_is_the_result),
    };
    const char *given = getenv("TUTTI_TEST_SEED");

    first_seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("# TUTTI_TEST_SEED=%" PRIu64 "\n", first_seed);
    return cmocka_run_group_tests_name("agent_dual", tests, NULL, NULL);
}
