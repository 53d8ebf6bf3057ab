/*
 * Goal: a tensor has bytes of its own, zero at first, and everything is there again when it goes.
 * Method: one list of sentences for all kinds of memory; random takes and gives with patterns.
 */
#include "space_contract.h"

#include <pthread.h>

#include "support/testing.h"

#define KIB 1024ULL
#define MIB (1024ULL * KIB)
#define PIECE (64 * KIB)

static tutti_spec
bytes_spec(uint64_t bytes)
{
    return (tutti_spec){TUTTI_DTYPE_UINT8, 1, {(int64_t)bytes}};
}

/* NULL when there is no room. */
static tutti_tensor *
try_tensor(tutti_space *space, uint64_t bytes, bool zeroed)
{
    const tutti_spec spec = bytes_spec(bytes);
    tutti_tensor *tensor = NULL;

    (void)tutti_tensor_new(space, &spec, zeroed, &tensor, NULL);
    return tensor;
}

static tutti_tensor *
make_tensor(tutti_space *space, uint64_t bytes, bool zeroed)
{
    const tutti_spec spec = bytes_spec(bytes);
    tutti_tensor *tensor = NULL;
    tutti_error err;

    assert_ok(tutti_tensor_new(space, &spec, zeroed, &tensor, &err));
    return tensor;
}

static void
fill(const space_kind *kind, tutti_tensor *tensor, unsigned char value)
{
    unsigned char bytes[PIECE];
    uint64_t at;

    memset(bytes, value, sizeof(bytes));
    for (at = 0; at < tensor->bytes; at += sizeof(bytes)) {
        const uint64_t left = tensor->bytes - at;

        kind->write(tensor, at, bytes, left < sizeof(bytes) ? (size_t)left : sizeof(bytes));
    }
}

static bool
holds(const space_kind *kind, tutti_tensor *tensor, unsigned char value)
{
    unsigned char wanted[PIECE];
    unsigned char bytes[PIECE];
    uint64_t at;

    memset(wanted, value, sizeof(wanted));
    for (at = 0; at < tensor->bytes; at += sizeof(bytes)) {
        const uint64_t left = tensor->bytes - at;
        const size_t size = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);

        kind->read(tensor, at, bytes, size);
        if (memcmp(bytes, wanted, size) != 0) {
            return false;
        }
    }
    return true;
}

static void
assert_unused(tutti_space *space)
{
    tutti_space_stats stats;

    tutti_space_stat(space, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(stats.tensor_count, 0);
    assert_int_equal(stats.hole_bytes_max, stats.limit_bytes);
}

static void
test_tensor__has_what_its_spec_says_aligned_and_zero(void **state)
{
    const space_kind *kind = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {5, 7}};
    tutti_space *space = kind->open(MIB);
    tutti_tensor *tensor = NULL;
    tutti_space_stats stats;
    tutti_error err;

    assert_ok(tutti_tensor_new(space, &spec, true, &tensor, &err));
    assert_true(tutti_spec_equal(&tensor->spec, &spec));
    assert_int_equal(tensor->bytes, 140);
    assert_int_equal((uintptr_t)tensor->data % 64, 0);
    assert_true(holds(kind, tensor, 0));
    tutti_space_stat(space, &stats);
    assert_in_range(stats.used_bytes, 140, MIB);
    assert_int_equal(stats.limit_bytes, MIB);
    assert_int_equal(stats.tensor_count, 1);
    tutti_tensor_unref(tensor);
    assert_unused(space);
    tutti_space_close(space);
}

static void
test_tensor__lives_until_its_last_reference_goes(void **state)
{
    const space_kind *kind = *state;
    tutti_space *space = kind->open(MIB);
    tutti_tensor *tensor = make_tensor(space, 100, false);

    tutti_tensor_ref(tensor);
    tutti_tensor_unref(tensor);
    fill(kind, tensor, 7);
    assert_true(holds(kind, tensor, 7));
    tutti_tensor_unref(tensor);
    tutti_tensor_unref(NULL);
    assert_unused(space);
    tutti_space_close(space);
    tutti_space_close(NULL);
}

static void
is_held_by(tutti_space *space, tutti_holder wanted)
{
    tutti_space_stats stats;
    int i;

    tutti_space_stat(space, &stats);
    assert_true(stats.used_bytes > 0);
    for (i = 0; i < TUTTI_HOLDERS; i++) {
        assert_int_equal(stats.held_bytes[i], i == (int)wanted ? stats.used_bytes : 0);
    }
}

static void
test_space__says_for_whom_its_memory_is_there(void **state)
{
    const space_kind *kind = *state;
    tutti_space *space = kind->open(MIB);
    tutti_tensor *tensor = make_tensor(space, 140, false);
    tutti_space_stats stats;

    is_held_by(space, TUTTI_HOLDER_NONE);
    tutti_tensor_mark(tensor, TUTTI_HOLDER_STAGED);
    is_held_by(space, TUTTI_HOLDER_STAGED);
    tutti_tensor_mark(tensor, TUTTI_HOLDER_RESULT);
    is_held_by(space, TUTTI_HOLDER_RESULT);
    tutti_tensor_hold(tensor, TUTTI_HOLDER_TENSOR);
    tutti_tensor_hold(tensor, TUTTI_HOLDER_MAPPING);
    is_held_by(space, TUTTI_HOLDER_TENSOR);
    tutti_tensor_let_go(tensor, TUTTI_HOLDER_TENSOR);
    is_held_by(space, TUTTI_HOLDER_MAPPING);
    tutti_tensor_hold(tensor, TUTTI_HOLDER_REGISTER);
    tutti_tensor_hold(tensor, TUTTI_HOLDER_REGISTER);
    tutti_tensor_let_go(tensor, TUTTI_HOLDER_REGISTER);
    is_held_by(space, TUTTI_HOLDER_REGISTER);
    tutti_tensor_let_go(tensor, TUTTI_HOLDER_REGISTER);
    tutti_tensor_let_go(tensor, TUTTI_HOLDER_MAPPING);
    is_held_by(space, TUTTI_HOLDER_LENT);
    tutti_tensor_unref(tensor);
    tutti_space_stat(space, &stats);
    assert_int_equal(stats.held_bytes[TUTTI_HOLDER_LENT], 0);
    tutti_space_close(space);
}

static void
test_tensor__of_zero_bytes_takes_no_memory(void **state)
{
    const space_kind *kind = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP64, 2, {0, 5}};
    tutti_space *space = kind->open(64 * KIB);
    tutti_tensor *full = make_tensor(space, 64 * KIB, false);
    tutti_tensor *tensor = NULL;
    tutti_space_stats stats;
    tutti_error err;

    assert_ok(tutti_tensor_new(space, &spec, true, &tensor, &err));
    assert_non_null(tensor->data);
    assert_int_equal((uintptr_t)tensor->data % 64, 0);
    assert_int_equal(tensor->bytes, 0);
    tutti_space_stat(space, &stats);
    assert_int_equal(stats.used_bytes, 64 * KIB);
    assert_int_equal(stats.hole_bytes_max, 0);
    assert_int_equal(stats.tensor_count, 2);
    tutti_tensor_unref(tensor);
    tutti_tensor_unref(full);
    assert_unused(space);
    tutti_space_close(space);
}

static void
test_tensor__that_cannot_exist_is_refused(void **state)
{
    const space_kind *kind = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP64, 1, {-1}};
    tutti_space *space = kind->open(MIB);
    tutti_tensor *tensor = NULL;
    tutti_error err;

    assert_fails(tutti_tensor_new(space, &spec, true, &tensor, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_SHAPE");
    assert_null(tensor);
    assert_unused(space);
    tutti_space_close(space);
}

static void
test_tensor__over_the_limit_is_refused_with_asked_used_and_limit(void **state)
{
    const space_kind *kind = *state;
    const tutti_spec spec = bytes_spec(3 * MIB);
    const tutti_spec largest = bytes_spec(INT64_MAX);
    tutti_space *space = kind->open(4 * MIB);
    tutti_tensor *first = make_tensor(space, 2 * MIB, false);
    tutti_tensor *tensor = NULL;
    tutti_error err;

    assert_fails(tutti_tensor_new(space, &spec, true, &tensor, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MEMORY_LIMIT");
    assert_text_has(err.text, "no room for a tensor of 3 MiB");
    assert_text_has(err.text, "2 MiB of 4 MiB are used; delete tensors or raise --");
    assert_fails(tutti_tensor_new(space, &largest, true, &tensor, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MEMORY_LIMIT");
    assert_null(tensor);
    tutti_tensor_unref(first);
    assert_unused(space);
    tensor = make_tensor(space, 3 * MIB, false);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

static void
test_tensor__that_fits_only_in_pieces_is_told_of_fragments(void **state)
{
    const space_kind *kind = *state;
    const tutti_spec spec = bytes_spec(MIB);
    tutti_space *space = kind->open(4 * MIB);
    tutti_tensor *tensors[8];
    tutti_tensor *tensor = NULL;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(tensors); i++) {
        tensors[i] = make_tensor(space, MIB / 2, false);
    }
    for (i = 0; i < COUNT_OF(tensors); i += 2) {
        tutti_tensor_unref(tensors[i]);
    }
    assert_fails(tutti_tensor_new(space, &spec, true, &tensor, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MEMORY_LIMIT");
    assert_text_has(err.text, "2 MiB of 4 MiB are used, and what is free is fragmented: the "
                              "longest run has 512 KiB;");
    for (i = 1; i < COUNT_OF(tensors); i += 2) {
        tutti_tensor_unref(tensors[i]);
    }
    assert_unused(space);
    tutti_space_close(space);
}

static void
test_space__that_was_emptied_in_any_order_is_one_hole_again(void **state)
{
    static const size_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    const space_kind *kind = *state;
    tutti_space *space = kind->open(MIB);
    tutti_tensor *tensors[4];
    size_t round;
    size_t i;

    for (round = 0; round < COUNT_OF(orders); round++) {
        for (i = 0; i < 4; i++) {
            tensors[i] = make_tensor(space, 100 * KIB, false);
        }
        for (i = 0; i < 4; i++) {
            tutti_tensor_unref(tensors[orders[round][i]]);
        }
        assert_unused(space);
        tensors[0] = make_tensor(space, MIB, false);
        tutti_tensor_unref(tensors[0]);
    }
    tutti_space_close(space);
}

/* From one byte to the whole space: what was used before is never seen, zeroed or not. */
static void
test_tensor__never_shows_the_bytes_of_another(void **state)
{
    static const uint64_t sizes[] = {
        1, 63, 64, 65, 4095, 4096, 70 * KIB, 64 * KIB, 333 * KIB + 1, 2 * MIB, 7 * MIB, 8 * MIB};
    const space_kind *kind = *state;
    tutti_space *space = kind->open(8 * MIB);
    tutti_tensor *tensor;
    size_t dirty;
    size_t i;

    for (dirty = 0; dirty < COUNT_OF(sizes); dirty++) {
        for (i = 0; i < COUNT_OF(sizes); i++) {
            tensor = make_tensor(space, sizes[dirty], false);
            fill(kind, tensor, 0xee);
            tutti_tensor_unref(tensor);
            tensor = make_tensor(space, sizes[i], i % 2 == 0);
            assert_true(holds(kind, tensor, 0));
            tutti_tensor_unref(tensor);
        }
    }
    assert_unused(space);
    tutti_space_close(space);
}

static uint64_t
draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Many small ones, some middling, a few large. */
static uint64_t
draw_bytes(uint64_t *seed)
{
    static const uint64_t most[] = {64, 300, 5000, 5000, 70 * KIB, 70 * KIB, 600 * KIB, MIB};

    return 1 + draw(seed) % most[draw(seed) % COUNT_OF(most)];
}

typedef struct held {
    tutti_tensor *tensor;
    unsigned char pattern;
} held;

/* Whether a tensor was made; it was all zero and now holds the pattern. */
static bool
take_slot(const space_kind *kind, tutti_space *space, held *slot, uint64_t *seed)
{
    slot->tensor = try_tensor(space, draw_bytes(seed), draw(seed) % 2 == 0);
    if (slot->tensor == NULL) {
        return false;
    }
    if (!holds(kind, slot->tensor, 0)) {
        fail_msg("a new tensor shows old bytes");
    }
    slot->pattern = (unsigned char)(1 + draw(seed) % 255);
    fill(kind, slot->tensor, slot->pattern);
    return true;
}

static void
give_slot(const space_kind *kind, held *slot)
{
    if (!holds(kind, slot->tensor, slot->pattern)) {
        fail_msg("somebody wrote into a tensor");
    }
    tutti_tensor_unref(slot->tensor);
    slot->tensor = NULL;
}

static void
give_all(const space_kind *kind, held *slots, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (slots[i].tensor != NULL) {
            give_slot(kind, &slots[i]);
        }
    }
}

static void
test_space__keeps_tensors_apart_over_many_random_steps(void **state)
{
    const space_kind *kind = *state;
    tutti_space *space = kind->open(10 * MIB);
    held slots[200] = {0};
    tutti_space_stats stats;
    uint64_t seed = 20240607;
    uint64_t count = 0;
    uint64_t bytes = 0;
    const size_t steps = kind->steps == 0 ? 30000 : kind->steps;
    uint64_t refused = 0;
    size_t step;

    for (step = 0; step < steps; step++) {
        held *slot = &slots[draw(&seed) % COUNT_OF(slots)];

        if (slot->tensor != NULL) {
            count -= 1;
            bytes -= slot->tensor->bytes;
            give_slot(kind, slot);
        } else if (take_slot(kind, space, slot, &seed)) {
            count += 1;
            bytes += slot->tensor->bytes;
        } else {
            refused += 1;
        }
        tutti_space_stat(space, &stats);
        assert_int_equal(stats.tensor_count, count);
        assert_in_range(stats.used_bytes, bytes, bytes + 63 * count);
    }
    assert_in_range(refused, 1, steps / 2);
    give_all(kind, slots, COUNT_OF(slots));
    assert_unused(space);
    tutti_space_close(space);
}

typedef struct worker {
    const space_kind *kind;
    tutti_space *space;
    uint64_t seed;
    pthread_t thread;
} worker;

static void *
work(void *arg)
{
    worker *self = arg;
    held slots[8] = {0};
    size_t step;

    for (step = 0; step < 600; step++) {
        held *slot = &slots[draw(&self->seed) % COUNT_OF(slots)];

        if (slot->tensor != NULL) {
            give_slot(self->kind, slot);
        } else {
            (void)take_slot(self->kind, self->space, slot, &self->seed);
        }
    }
    give_all(self->kind, slots, COUNT_OF(slots));
    return NULL;
}

static void
test_space__serves_many_threads(void **state)
{
    const space_kind *kind = *state;
    tutti_space *space = kind->open(4 * MIB);
    worker workers[4];
    size_t i;

    for (i = 0; i < COUNT_OF(workers); i++) {
        workers[i] = (worker){.kind = kind, .space = space, .seed = 77 + i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < COUNT_OF(workers); i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    assert_unused(space);
    tutti_space_close(space);
}

int
space_contract_run(const space_kind *kind)
{
    /* The last one is not for memory that has no fragments. */
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor__has_what_its_spec_says_aligned_and_zero),
        cmocka_unit_test(test_tensor__lives_until_its_last_reference_goes),
        cmocka_unit_test(test_space__says_for_whom_its_memory_is_there),
        cmocka_unit_test(test_tensor__of_zero_bytes_takes_no_memory),
        cmocka_unit_test(test_tensor__that_cannot_exist_is_refused),
        cmocka_unit_test(test_tensor__over_the_limit_is_refused_with_asked_used_and_limit),
        cmocka_unit_test(test_space__that_was_emptied_in_any_order_is_one_hole_again),
        cmocka_unit_test(test_tensor__never_shows_the_bytes_of_another),
        cmocka_unit_test(test_space__keeps_tensors_apart_over_many_random_steps),
        cmocka_unit_test(test_space__serves_many_threads),
        cmocka_unit_test(test_tensor__that_fits_only_in_pieces_is_told_of_fragments),
    };
    size_t i;

    for (i = 0; i < COUNT_OF(tests); i++) {
        tests[i].initial_state = (void *)(uintptr_t)kind;
    }
    return _cmocka_run_group_tests(kind->name, tests, COUNT_OF(tests) - (kind->pieced ? 1 : 0),
                                   NULL, NULL);
}
