/*
 * Goal: every op gives every rank the right bytes, on every transport, for every number of ranks.
 * Method: one list of sentences, built once per transport; results are compared with what the
 * inputs alone say.
 */
#include "support/testing.h"

#include <unistd.h>

#include "coll/reduce/reduce.h"
#include "support/world.h"

#define LONG_MS 15000

static const uint32_t sizes[] = {1, 2, 3, 4, 5, 8};

/* Bytes that differ between ranks and places, small enough that sums of 8-bit numbers mean
 * something. */
static void
fill(unsigned char *data, size_t bytes, uint32_t rank)
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 7 + rank * 31 + 1);
    }
}

static unsigned char *
new_filled(size_t bytes, uint32_t rank)
{
    unsigned char *data = malloc(bytes + 1);

    assert_non_null(data);
    fill(data, bytes, rank);
    return data;
}

/* One all_reduce on all ranks, in place or not, compared with a reduction of all inputs here. */
static void
check_all_reduce(world *w, tutti_reduce reduce, tutti_dtype dtype, int64_t count, bool in_place)
{
    const size_t bytes = (size_t)count * tutti_dtype_bytes(dtype);
    unsigned char *inputs[WORLD_MAX];
    unsigned char *outputs[WORLD_MAX];
    const void *copies[WORLD_MAX];
    unsigned char *wanted = malloc(bytes + 1);
    double factors[WORLD_MAX];
    run *runs[WORLD_MAX];
    uint32_t i;

    for (i = 0; i < w->size; i++) {
        inputs[i] = new_filled(bytes, i);
        copies[i] = new_filled(bytes, i);
        outputs[i] = in_place ? inputs[i] : malloc(bytes + 1);
        factors[i] = 0.5 * (i + 1);
        runs[i] = run_new(TUTTI_COLL_ALL_REDUCE);
        run_give(runs[i], dtype, count, inputs[i], outputs[i]);
        runs[i]->op.args.reduce = reduce;
        runs[i]->op.args.factor = factors[i];
        run_post(runs[i], w->groups[i], LONG_MS);
    }
    tutti_reduce_run(reduce, dtype, copies, w->size,
                     reduce == TUTTI_REDUCE_PREMUL_SUM ? factors : NULL, (size_t)count, wanted);
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) != TUTTI_OK) {
            fail_msg("%s", runs[i]->err.text);
        }
        assert_memory_equal(outputs[i], wanted, bytes);
        if (!in_place) {
            assert_memory_equal(inputs[i], copies[i], bytes);
            free(outputs[i]);
        }
        free(inputs[i]);
        free((void *)(uintptr_t)copies[i]);
        run_free(runs[i]);
    }
    free(wanted);
}

static void
test_all_reduce__of_any_length_is_the_same_everywhere(void **state)
{
    static const int64_t counts[] = {0, 1, 7, 1000, 2048, 2049, 5000, 131072, 131073, 700001};
    world w;
    size_t s;
    size_t c;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        world_open(&w, WIRE, sizes[s]);
        for (c = 0; c < COUNT_OF(counts); c++) {
            check_all_reduce(&w, TUTTI_REDUCE_SUM, TUTTI_DTYPE_INT32, counts[c], c % 2 == 0);
        }
        world_close(&w);
    }
}

static void
test_all_reduce__knows_every_reduce_op_and_dtype(void **state)
{
    world w;
    int reduce;
    int dtype;
    int tried = 0;

    (void)state;
    world_open(&w, WIRE, 3);
    for (reduce = 1; reduce <= TUTTI_REDUCE_PREMUL_SUM; reduce++) {
        for (dtype = 1; dtype <= TUTTI_DTYPE_FP8_E5M2; dtype++) {
            if (tutti_reduce_check((tutti_reduce)reduce, (tutti_dtype)dtype, NULL) == TUTTI_OK) {
                check_all_reduce(&w, (tutti_reduce)reduce, (tutti_dtype)dtype, 33, false);
                check_all_reduce(&w, (tutti_reduce)reduce, (tutti_dtype)dtype, 9001, true);
                tried++;
            }
        }
    }
    assert_in_range(tried, 80, 153);
    world_close(&w);
}

static void
check_broadcast(world *w, uint32_t root, int64_t count, bool given, bool in_place)
{
    const size_t bytes = (size_t)count * 2;
    unsigned char *source = new_filled(bytes, root);
    unsigned char *outputs[WORLD_MAX] = {NULL};
    run *runs[WORLD_MAX];
    uint32_t i;

    for (i = 0; i < w->size; i++) {
        runs[i] = run_new(TUTTI_COLL_BROADCAST);
        runs[i]->op.args.root = root;
        if (i == root) {
            outputs[i] = in_place ? source : malloc(bytes + 1);
            run_give(runs[i], TUTTI_DTYPE_BF16, count, source, outputs[i]);
        } else if (given) {
            outputs[i] = malloc(bytes + 1);
            run_give(runs[i], TUTTI_DTYPE_BF16, count, NULL, outputs[i]);
            runs[i]->op.args.count_only = true;
        }
        run_post(runs[i], w->groups[i], LONG_MS);
    }
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) != TUTTI_OK) {
            fail_msg("%s", runs[i]->err.text);
        }
        assert_memory_equal(runs[i]->op.output, source, bytes);
        assert_int_equal(runs[i]->spec.dims[0], count);
        if (outputs[i] != source) {
            free(outputs[i]);
        }
        run_free(runs[i]);
    }
    free(source);
}

static void
test_broadcast__reaches_everybody_from_any_root(void **state)
{
    static const int64_t counts[] = {0, 1, 4096, 4097, 65535, 65536, 524288, 1600001};
    world w;
    uint32_t root;
    size_t s;
    size_t c;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        world_open(&w, WIRE, sizes[s]);
        for (root = 0; root<sizes[s]; root += sizes[s]> 4 ? 3 : 1) {
            for (c = 0; c < COUNT_OF(counts); c++) {
                check_broadcast(&w, root, counts[c], c % 2 == 0, c % 3 == 0);
            }
        }
        world_close(&w);
    }
}

/* Of tensors [outer, inner], joined along `axis`, or stacked. */
static void
check_all_gather(world *w, int64_t outer, int64_t inner, uint32_t axis, bool stack)
{
    const size_t bytes = (size_t)(outer * inner) * 8;
    const size_t row = axis == 0 ? bytes : axis == 1 ? (size_t)inner * 8 : 8;
    unsigned char *inputs[WORLD_MAX];
    unsigned char *outputs[WORLD_MAX];
    unsigned char *wanted = malloc(bytes * w->size + 1);
    run *runs[WORLD_MAX];
    size_t at;
    uint32_t i;

    for (i = 0; i < w->size; i++) {
        inputs[i] = new_filled(bytes, i);
        outputs[i] = malloc(bytes * w->size + 1);
        for (at = 0; at < bytes; at += row) {
            memcpy(wanted + at * w->size + i * row, inputs[i] + at, row);
        }
        runs[i] = run_new(TUTTI_COLL_ALL_GATHER);
        runs[i]->op.args.has_spec = true;
        runs[i]->op.args.spec = (tutti_spec){TUTTI_DTYPE_FP64, 2, {outer, inner}};
        runs[i]->op.args.axis = axis;
        runs[i]->op.args.form = stack ? TUTTI_FORM_STACK : TUTTI_FORM_CONCAT;
        runs[i]->op.input = inputs[i];
        runs[i]->op.output = outputs[i];
        run_post(runs[i], w->groups[i], LONG_MS);
    }
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) != TUTTI_OK) {
            fail_msg("%s", runs[i]->err.text);
        }
        assert_memory_equal(outputs[i], wanted, bytes * w->size);
        free(inputs[i]);
        free(outputs[i]);
        run_free(runs[i]);
    }
    free(wanted);
}

static void
test_all_gather__joins_in_group_order_along_any_axis(void **state)
{
    world w;
    size_t s;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        world_open(&w, WIRE, sizes[s]);
        check_all_gather(&w, 1, 1, 0, false);
        check_all_gather(&w, 3, 5, 0, false);
        check_all_gather(&w, 3, 5, 1, false);
        check_all_gather(&w, 3, 5, 1, true);
        check_all_gather(&w, 3, 5, 2, true);
        check_all_gather(&w, 0, 5, 1, false);
        check_all_gather(&w, 3, 50001, 0, false); /* more than a chunk */
        check_all_gather(&w, 3, 50001, 1, false); /* rows cut by chunks */
        if (sizes[s] == 2) {                      /* more than caches hold */
            check_all_gather(&w, 3, 400001, 0, false);
            check_all_gather(&w, 3, 400001, 1, false);
        }
        world_close(&w);
    }
}

/* A barrier, and what was posted before it. */
typedef struct pair {
    run *earlier;
    run *barrier;
    void (*on_done)(tutti_coll_op *op, const tutti_error *err); /* the world's */
    bool unexpected;
} pair;

static pair pairs[WORLD_MAX];

/* Who hears of the barrier's end finds that the op before it is over, in every sense. */
static void
look_back(tutti_coll_op *op, const tutti_error *err)
{
    uint32_t i;

    for (i = 0; i < WORLD_MAX; i++) {
        if (pairs[i].barrier != NULL && &pairs[i].barrier->op == op) {
            (void)pthread_mutex_lock(&pairs[i].earlier->lock);
            pairs[i].unexpected = !pairs[i].earlier->released;
            (void)pthread_mutex_unlock(&pairs[i].earlier->lock);
            pairs[i].on_done(op, err);
            return;
        }
    }
}

static void
post_pair(pair *self, tutti_coll_group *group, int64_t *data)
{
    self->earlier = run_new(TUTTI_COLL_ALL_REDUCE);
    run_give(self->earlier, TUTTI_DTYPE_INT64, 1, data, data);
    self->barrier = run_new(TUTTI_COLL_BARRIER);
    self->on_done = self->barrier->op.on_done;
    self->barrier->op.on_done = look_back;
    run_post(self->earlier, group, LONG_MS);
    run_post(self->barrier, group, LONG_MS);
}

static void
test_barrier__ends_after_what_was_posted_before_has_been_let_go(void **state)
{
    static int64_t data[WORLD_MAX];
    const uint32_t size = 2;
    world w;
    uint32_t i;
    int k;

    (void)state;
    world_open(&w, WIRE, size);
    for (k = 0; k < 1000; k++) {
        for (i = 0; i < size; i++) {
            post_pair(&pairs[i], w.groups[i], &data[i]);
        }
        for (i = 0; i < size; i++) {
            assert_int_equal(run_wait(pairs[i].barrier), TUTTI_OK);
            assert_int_equal(run_wait(pairs[i].earlier), TUTTI_OK);
            assert_false(pairs[i].unexpected);
        }
        for (i = 0; i < size; i++) {
            run_free(pairs[i].barrier);
            run_free(pairs[i].earlier);
            pairs[i] = (pair){0};
        }
    }
    world_close(&w);
}

static void
test_barrier__waits_for_all_and_for_what_was_posted_before(void **state)
{
    enum {
        EARLIER = 5
    };
    static int64_t data[WORLD_MAX][EARLIER];
    run *earlier[WORLD_MAX][EARLIER];
    run *barriers[WORLD_MAX];
    world w;
    uint32_t i;
    int k;

    (void)state;
    world_open(&w, WIRE, 4);
    for (i = 0; i < w.size; i++) {
        for (k = 0; k < EARLIER; k++) {
            earlier[i][k] = run_new(TUTTI_COLL_ALL_REDUCE);
            data[i][k] = k;
            run_give(earlier[i][k], TUTTI_DTYPE_INT64, 1, &data[i][k], &data[i][k]);
        }
        barriers[i] = run_new(TUTTI_COLL_BARRIER);
    }
    for (i = 0; i < w.size; i++) {
        for (k = 0; k < EARLIER; k++) {
            run_post(earlier[i][k], w.groups[i], LONG_MS);
        }
        assert_false(run_is_done(barriers[0]));
        run_post(barriers[i], w.groups[i], LONG_MS);
    }
    for (i = 0; i < w.size; i++) {
        assert_int_equal(run_wait(barriers[i]), TUTTI_OK);
        for (k = 0; k < EARLIER; k++) {
            assert_true(run_is_done(earlier[i][k]));
            assert_int_equal(run_wait(earlier[i][k]), TUTTI_OK);
            assert_int_equal(data[i][k], 4 * k);
            run_free(earlier[i][k]);
        }
        run_free(barriers[i]);
    }
    world_close(&w);
}

static void
test_ops__of_many_groups_run_beside_each_other(void **state)
{
    enum {
        ROUNDS = 40
    };
    static const uint32_t lists[3][4] = {{3, 1, 0, 2}, {0, 2, 0, 0}, {2, 3, 1, 0}};
    static const uint32_t counts[3] = {4, 2, 3};
    static int32_t data[3][4][ROUNDS];
    tutti_coll_group *groups[3][4];
    run *runs[3][4][ROUNDS];
    world w;
    uint32_t i;
    size_t g;
    int k;

    (void)state;
    world_open(&w, WIRE, 4);
    if (w.network != NULL) {
        fake_network_shuffle(w.network, 3, 99);
    }
    for (g = 0; g < 3; g++) {
        world_group(&w, "g", lists[g], counts[g], groups[g]);
    }
    for (k = 0; k < ROUNDS; k++) {
        for (g = 0; g < 3; g++) {
            for (i = 0; i < counts[g]; i++) {
                data[g][i][k] = (int32_t)(k * 100 + (int)i);
                runs[g][i][k] = run_new(TUTTI_COLL_ALL_REDUCE);
                run_give(runs[g][i][k], TUTTI_DTYPE_INT32, 1, &data[g][i][k], &data[g][i][k]);
                run_post(runs[g][i][k], groups[g][i], LONG_MS);
                assert_int_equal(runs[g][i][k]->op.sequence, k + 1);
            }
        }
    }
    for (g = 0; g < 3; g++) {
        for (i = 0; i < counts[g]; i++) {
            for (k = 0; k < ROUNDS; k++) {
                const int n = (int)counts[g];

                assert_int_equal(run_wait(runs[g][i][k]), TUTTI_OK);
                assert_int_equal(data[g][i][k], n * k * 100 + n * (n - 1) / 2);
                run_free(runs[g][i][k]);
            }
        }
    }
    world_close(&w);
}

/* ------------------------------------------------------------------------------ send, receive */

static run *
send_bytes(world *w, uint32_t from, uint32_t to, uint32_t tag, const void *data, int64_t count)
{
    run *self = run_new(TUTTI_COLL_SEND);

    run_give(self, TUTTI_DTYPE_UINT8, count, data, NULL);
    self->op.args.peer = to;
    self->op.args.tag = tag;
    run_post(self, w->groups[from], LONG_MS);
    return self;
}

static run *
recv_bytes(world *w, uint32_t at, uint32_t from, uint32_t tag)
{
    run *self = run_new(TUTTI_COLL_RECV);

    self->op.args.peer = from;
    self->op.args.tag = tag;
    run_post(self, w->groups[at], LONG_MS);
    return self;
}

static void
check_received(run *self, const void *wanted, int64_t count, uint32_t source)
{
    if (run_wait(self) != TUTTI_OK) {
        fail_msg("%s", self->err.text);
    }
    assert_int_equal(self->spec.dims[0], count);
    assert_int_equal(self->op.source, source);
    assert_memory_equal(self->op.output, wanted, (size_t)count);
    run_free(self);
}

static void
test_send__meets_its_receive_whoever_comes_first(void **state)
{
    static const int64_t counts[] = {0, 1, 8192, 8193, 3000000};
    world w;
    size_t c;

    (void)state;
    world_open(&w, WIRE, 3);
    for (c = 0; c < COUNT_OF(counts); c++) {
        unsigned char *data = new_filled((size_t)counts[c], 1);
        run *sent = send_bytes(&w, 1, 2, 5, data, counts[c]);
        run *got;

        got = recv_bytes(&w, 2, 1, 5);
        check_received(got, data, counts[c], 1);
        assert_int_equal(run_wait(sent), TUTTI_OK);
        run_free(sent);
        got = recv_bytes(&w, 0, 1, 6);
        sent = send_bytes(&w, 1, 0, 6, data, counts[c]);
        check_received(got, data, counts[c], 1);
        assert_int_equal(run_wait(sent), TUTTI_OK);
        run_free(sent);
        free(data);
    }
    world_close(&w);
}

static void
test_send__matches_by_tag_and_in_order(void **state)
{
    world w;
    run *sends[4];
    run *gets[4];
    int i;

    (void)state;
    world_open(&w, WIRE, 2);
    sends[0] = send_bytes(&w, 0, 1, 1, "a", 1);
    assert_false(run_is_done(sends[0]));
    gets[3] = recv_bytes(&w, 1, 0, 9);
    gets[0] = recv_bytes(&w, 1, 0, 1);
    check_received(gets[0], "a", 1, 0);
    gets[1] = recv_bytes(&w, 1, 0, 1);
    gets[2] = recv_bytes(&w, 1, TUTTI_COLL_ANY_SOURCE, 1);
    sends[1] = send_bytes(&w, 0, 1, 1, "b", 1);
    assert_int_equal(run_wait(sends[1]), TUTTI_OK);
    sends[2] = send_bytes(&w, 0, 1, 1, "c", 1);
    sends[3] = send_bytes(&w, 0, 1, 9, "d", 1);
    check_received(gets[1], "b", 1, 0);
    check_received(gets[2], "c", 1, 0);
    check_received(gets[3], "d", 1, 0);
    for (i = 0; i < 4; i++) {
        assert_int_equal(run_wait(sends[i]), TUTTI_OK);
        run_free(sends[i]);
    }
    world_close(&w);
}

static void
test_recv__from_anybody_says_who_it_was(void **state)
{
    world w;
    bool seen[4] = {false};
    run *sends[4];
    uint32_t i;

    (void)state;
    world_open(&w, WIRE, 4);
    for (i = 1; i < 4; i++) {

        sends[i] = send_bytes(&w, i, 0, 0, &"0123"[i], 1);
    }
    for (i = 1; i < 4; i++) {
        run *got = recv_bytes(&w, 0, TUTTI_COLL_ANY_SOURCE, 0);

        assert_int_equal(run_wait(got), TUTTI_OK);
        assert_int_equal(*(char *)got->op.output, '0' + (int)got->op.source);
        assert_false(seen[got->op.source]);
        seen[got->op.source] = true;
        run_free(got);
    }
    for (i = 1; i < 4; i++) {
        assert_int_equal(run_wait(sends[i]), TUTTI_OK);
        run_free(sends[i]);
    }
    world_close(&w);
}

static void
test_recv__that_wants_something_else_fails_on_both_sides(void **state)
{
    world w;
    run *sent;
    run *got;

    (void)state;
    world_open(&w, WIRE, 2);
    sent = send_bytes(&w, 0, 1, 0, "abc", 3);
    got = run_new(TUTTI_COLL_RECV);
    got->op.args.peer = 0;
    run_give(got, TUTTI_DTYPE_UINT8, 4, NULL, NULL);
    run_post(got, w.groups[1], LONG_MS);
    assert_int_equal(run_wait(got), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(got->err.reason, "SHAPE_MISMATCH");
    assert_text_has(got->err.text, "rank 0 sent UINT8[3], rank 1 expects UINT8[4]");
    assert_int_equal(run_wait(sent), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(sent->err.reason, "SHAPE_MISMATCH");
    assert_string_equal(sent->err.text, got->err.text);
    run_free(sent);
    run_free(got);
    sent = send_bytes(&w, 0, 1, 0, "again", 5);
    got = recv_bytes(&w, 1, 0, 0);
    check_received(got, "again", 5, 0);
    assert_int_equal(run_wait(sent), TUTTI_OK);
    run_free(sent);
    world_close(&w);
}

/* For the thread sanitizer: the engine's thread reads what another thread writes here. */
static void
test_seats__may_be_told_again_while_ops_run(void **state)
{
    const int64_t count = 1 << 18;
    world w;
    float *data[4];
    run *runs[4];
    uint32_t i;

    (void)state;
    world_open(&w, WIRE, 4);
    for (i = 0; i < 4; i++) {
        data[i] = calloc((size_t)count, sizeof(float));
        runs[i] = run_new(TUTTI_COLL_ALL_REDUCE);
        run_give(runs[i], TUTTI_DTYPE_FP32, count, data[i], data[i]);
        run_post(runs[i], w.groups[i], LONG_MS);
    }
    for (i = 0; !run_is_done(runs[i % 4]); i++) {
        world_sit(&w, i % 4);
    }
    for (i = 0; i < 4; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        run_free(runs[i]);
        free(data[i]);
    }
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce__of_any_length_is_the_same_everywhere),
        cmocka_unit_test(test_all_reduce__knows_every_reduce_op_and_dtype),
        cmocka_unit_test(test_broadcast__reaches_everybody_from_any_root),
        cmocka_unit_test(test_all_gather__joins_in_group_order_along_any_axis),
        cmocka_unit_test(test_barrier__waits_for_all_and_for_what_was_posted_before),
        cmocka_unit_test(test_barrier__ends_after_what_was_posted_before_has_been_let_go),
        cmocka_unit_test(test_ops__of_many_groups_run_beside_each_other),
        cmocka_unit_test(test_send__meets_its_receive_whoever_comes_first),
        cmocka_unit_test(test_send__matches_by_tag_and_in_order),
        cmocka_unit_test(test_recv__from_anybody_says_who_it_was),
        cmocka_unit_test(test_recv__that_wants_something_else_fails_on_both_sides),
        cmocka_unit_test(test_seats__may_be_told_again_while_ops_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
