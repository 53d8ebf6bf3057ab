/*
 * Goal: every rank of a group finds the same verdict, in the same words, whatever was called.
 * Method: the rounds are played by hand for every size up to 33, without engines.
 */
#include "coll/agree/agree_private.h"
#include "support/testing.h"

#include "coll/agree/agree.h"

#define SIZE_MAX_ 33

static tutti_coll_agree *members[SIZE_MAX_];
static uint32_t ranks[SIZE_MAX_];

static tutti_coll_args
all_reduce(tutti_dtype dtype, int64_t count)
{
    return (tutti_coll_args){
        .kind = TUTTI_COLL_ALL_REDUCE,
        .reduce = TUTTI_REDUCE_SUM,
        .has_spec = true,
        .spec = {.dtype = dtype, .dim_count = 1, .dims = {count}},
    };
}

static void
exchange(uint32_t size)
{
    static unsigned char words[SIZE_MAX_][8192];
    size_t sizes[SIZE_MAX_];
    tutti_bytes known;
    tutti_error err;
    uint32_t round;
    uint32_t i;

    for (round = 0; round < tutti_agree_rounds(size); round++) {
        for (i = 0; i < size; i++) {
            assert_ok(tutti_agree_write(members[i], &known, &err));
            assert_true(known.size <= sizeof(words[0]));
            memcpy(words[tutti_agree_to(size, i, round)], known.data, known.size);
            sizes[tutti_agree_to(size, i, round)] = known.size;
        }
        for (i = 0; i < size; i++) {
            assert_int_equal(tutti_agree_to(size, tutti_agree_from(size, i, round), round), i);
            assert_ok(tutti_agree_read(members[i], words[i], sizes[i], &err));
        }
    }
}

static void
begin(uint32_t size, const tutti_coll_args *args)
{
    uint32_t i;

    for (i = 0; i < size; i++) {
        members[i] = tutti_agree_new(size, i, &args[i]);
        ranks[i] = 100 + i;
    }
}

/* All rounds: in each, everybody's words are written before anybody reads. */
static void
play(uint32_t size, const tutti_coll_args *args)
{
    begin(size, args);
    exchange(size);
}

static void
end(uint32_t size)
{
    uint32_t i;

    for (i = 0; i < size; i++) {
        tutti_agree_free(members[i]);
        members[i] = NULL;
    }
}

/* All verdicts are `code`; returns their common text. */
static const char *
verdicts(uint32_t size, tutti_code code)
{
    static tutti_error first;
    tutti_error err = {0};
    tutti_coll_args spec;
    bool open = false;
    uint32_t i;

    for (i = 0; i < size; i++) {
        assert_int_equal(tutti_agree_verdict(members[i], "world", 41, ranks, &spec, &open, &err),
                         code);
        if (i == 0) {
            first = err;
        }
        assert_string_equal(err.text, first.text);
        assert_string_equal(err.reason, first.reason);
        assert_int_equal(err.rank, first.rank);
    }
    return first.text;
}

static void
test_agree__on_equal_calls_stands_for_every_size(void **state)
{
    tutti_coll_args args[SIZE_MAX_];
    uint32_t size;
    uint32_t i;

    (void)state;
    for (size = 1; size <= SIZE_MAX_; size++) {
        for (i = 0; i < size; i++) {
            args[i] = all_reduce(TUTTI_DTYPE_FP32, 1024);
        }
        play(size, args);
        (void)verdicts(size, TUTTI_OK);
        end(size);
    }
}

static void
test_agree__names_the_one_that_differs(void **state)
{
    tutti_coll_args args[4];
    uint32_t i;

    (void)state;
    for (i = 0; i < 4; i++) {
        args[i] = all_reduce(i == 3 ? TUTTI_DTYPE_FP16 : TUTTI_DTYPE_FP32, 1024);
    }
    play(4, args);
    assert_string_equal(verdicts(4, TUTTI_INVALID_ARGUMENT),
                        "group world op 41: dtype differs: rank 103 called all_reduce(sum, "
                        "FP16[1024]), ranks 100-102 all_reduce(sum, FP32[1024])");
    end(4);
}

static void
test_agree__finds_one_stray_at_any_place_of_any_size(void **state)
{
    tutti_coll_args args[SIZE_MAX_];
    char wanted[64];
    uint32_t size;
    uint32_t stray;
    uint32_t i;

    (void)state;
    for (size = 3; size <= SIZE_MAX_; size += 5) {
        for (stray = 0; stray < size; stray++) {
            for (i = 0; i < size; i++) {
                args[i] = all_reduce(TUTTI_DTYPE_FP32, i == stray ? 5 : 4);
            }
            play(size, args);
            (void)snprintf(wanted, sizeof(wanted), "shape differs: rank %u called", 100 + stray);
            assert_text_has(verdicts(size, TUTTI_INVALID_ARGUMENT), wanted);
            end(size);
        }
    }
}

static void
test_agree__tells_the_fields_apart(void **state)
{
    static const struct {
        tutti_coll_args left;
        tutti_coll_args right;
        tutti_code code;
        const char *words;
    } cases[] = {
        {{.kind = TUTTI_COLL_BARRIER},
         {.kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_SUM},
         TUTTI_FAILED_PRECONDITION,
         "op differs: rank 100 called barrier(), rank 101 all_reduce(sum)"},
        {{.kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_MAX},
         {.kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_SUM},
         TUTTI_FAILED_PRECONDITION,
         "reduce op differs: rank 100 called all_reduce(max), rank 101 all_reduce(sum)"},
        {{.kind = TUTTI_COLL_BROADCAST, .root = 1},
         {.kind = TUTTI_COLL_BROADCAST, .root = 0},
         TUTTI_FAILED_PRECONDITION,
         "root differs: rank 100 called broadcast(root 1), rank 101 broadcast(root 0)"},
        {{.kind = TUTTI_COLL_ALL_GATHER, .axis = 1},
         {.kind = TUTTI_COLL_ALL_GATHER, .axis = 0},
         TUTTI_FAILED_PRECONDITION,
         "axis differs: rank 100 called all_gather(axis 1), rank 101 all_gather(axis 0)"},
        {{.kind = TUTTI_COLL_ALL_GATHER, .form = TUTTI_FORM_STACK},
         {.kind = TUTTI_COLL_ALL_GATHER, .form = TUTTI_FORM_CONCAT},
         TUTTI_FAILED_PRECONDITION,
         "form differs: rank 100 called all_gather(stack 0), rank 101 all_gather(axis 0)"},
        {{.kind = TUTTI_COLL_ALL_TO_ALL, .has_splits = true},
         {.kind = TUTTI_COLL_ALL_TO_ALL},
         TUTTI_FAILED_PRECONDITION,
         "form differs: rank 100 called all_to_all("},
        {{.kind = TUTTI_COLL_PERMUTE, .concat_axis = 1},
         {.kind = TUTTI_COLL_PERMUTE, .concat_axis = 2},
         TUTTI_FAILED_PRECONDITION,
         "permutation differs: rank 100 called permute("},
        {{.kind = TUTTI_COLL_ALL_GATHER, .has_spec = true, .spec = {TUTTI_DTYPE_INT8, 2, {2, 3}}},
         {.kind = TUTTI_COLL_ALL_GATHER, .has_spec = true, .spec = {TUTTI_DTYPE_INT8, 2, {3, 2}}},
         TUTTI_INVALID_ARGUMENT,
         "shape differs: rank 100 called all_gather(axis 0, INT8[2, 3]), rank 101 all_gather(axis "
         "0, INT8[3, 2])"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const tutti_coll_args args[2] = {cases[i].left, cases[i].right};

        play(2, args);
        assert_text_has(verdicts(2, cases[i].code), cases[i].words);
        end(2);
    }
}

static void
test_agree__lets_receivers_of_a_broadcast_know_less_than_the_root(void **state)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {2, 3}};
    tutti_coll_args args[4] = {
        {.kind = TUTTI_COLL_BROADCAST, .root = 2},
        {.kind = TUTTI_COLL_BROADCAST,
         .root = 2,
         .has_spec = true,
         .count_only = true,
         .spec = {TUTTI_DTYPE_FP32, 1, {6}}},
        {.kind = TUTTI_COLL_BROADCAST, .root = 2, .has_spec = true, .spec = spec},
        {.kind = TUTTI_COLL_BROADCAST, .root = 2},
    };
    tutti_coll_args found;
    tutti_error err;
    bool open = false;
    uint32_t i;

    (void)state;
    play(4, args);
    for (i = 0; i < 4; i++) {
        assert_ok(tutti_agree_verdict(members[i], "g", 1, ranks, &found, &open, &err));
        assert_true(open); /* ranks 0 and 3 learn it only now */
        assert_true(tutti_spec_equal(&found.spec, &spec));
    }
    end(4);
    args[1].spec.dims[0] = 7;
    play(4, args);
    assert_text_has(verdicts(4, TUTTI_INVALID_ARGUMENT),
                    "shape differs: rank 101 called broadcast(root 2, into 7 FP32)");
    end(4);
}

static void
test_agree__survives_a_different_call_on_every_rank(void **state)
{
    tutti_coll_args args[SIZE_MAX_];
    uint32_t i;

    (void)state;
    for (i = 0; i < SIZE_MAX_; i++) {
        args[i] = all_reduce(TUTTI_DTYPE_FP32, i);
    }
    play(SIZE_MAX_, args);
    for (i = 0; i < SIZE_MAX_; i++) {
        tutti_coll_args spec;
        tutti_error err;
        bool open;

        assert_int_equal(tutti_agree_verdict(members[i], "g", 1, ranks, &spec, &open, &err),
                         TUTTI_INVALID_ARGUMENT);
        assert_text_has(err.text, "shape differs");
    }
    end(SIZE_MAX_);
}

static void
test_agree__refuses_bytes_that_are_no_signatures(void **state)
{
    const tutti_coll_args args = all_reduce(TUTTI_DTYPE_FP32, 3);
    static const unsigned char part[64] = {1};
    tutti_coll_agree *self = tutti_agree_new(4, 1, &args);
    unsigned char bytes[600];
    tutti_bytes known;
    tutti_error err;
    size_t i;
    unsigned seed = 7;

    (void)state;
    assert_ok(tutti_agree_write(self, &known, &err));
    memcpy(bytes, known.data, known.size);
    for (i = 0; i < known.size; i++) {
        if (tutti_agree_read(self, bytes, i, &err) == TUTTI_OK) {
            fail_msg("%zu of %zu bytes were taken", i, known.size);
        }
    }
    tutti_agree_piggyback(self, part, sizeof(part));
    for (i = 0; i < 20000; i++) { /* nothing breaks, whatever comes */
        const size_t size = 1 + i % sizeof(bytes);
        size_t k;

        for (k = 0; k < size; k++) {
            seed = seed * 1103515245u + 12345u;
            bytes[k] = (unsigned char)(seed >> 16);
        }
        (void)tutti_agree_read(self, bytes, size, &err);
    }
    tutti_agree_free(self);
}

/* [in] walker  the rank that has no rider; `size` = none */
static void
piggyback(uint32_t size, uint32_t walker, size_t piggyback_size)
{
    unsigned char bytes[TUTTI_AGREE_PIGGYBACK_MAX];
    tutti_coll_args args[SIZE_MAX_];
    uint32_t i;

    for (i = 0; i < size; i++) {
        args[i] = all_reduce(TUTTI_DTYPE_FP32, 2);
    }
    begin(size, args);
    for (i = 0; i < size; i++) {
        memset(bytes, (int)i + 1, sizeof(bytes));
        if (i != walker) {
            tutti_agree_piggyback(members[i], bytes, piggyback_size);
        }
    }
    exchange(size);
}

static void
test_riders__of_all_ranks_are_everywhere_in_their_order(void **state)
{
    unsigned char wanted[TUTTI_AGREE_PIGGYBACK_MAX];
    const unsigned char *riders;
    uint32_t size;
    uint32_t i;
    uint32_t k;
    size_t bytes;

    (void)state;
    for (size = 2; size <= TUTTI_AGREE_RIDING_RANKS_MAX; size++) {
        piggyback(size, size, 16 * (1 + size % 8));
        for (i = 0; i < size; i++) {
            riders = tutti_agree_riders(members[i], &bytes);
            assert_non_null(riders);
            assert_int_equal(bytes, 16 * (1 + size % 8));
            for (k = 0; k < size; k++) {
                memset(wanted, (int)k + 1, bytes);
                assert_memory_equal(riders + k * bytes, wanted, bytes);
            }
        }
        end(size);
    }
}

static void
test_riders__are_nowhere_when_one_rank_has_none(void **state)
{
    uint32_t size;
    uint32_t walker;
    uint32_t i;
    size_t bytes;

    (void)state;
    for (size = 2; size <= SIZE_MAX_; size++) { /* of the last, nobody is piggybacked */
        for (walker = 0; walker < size; walker++) {
            piggyback(size, walker, 16);
            for (i = 0; i < size; i++) {
                assert_null(tutti_agree_riders(members[i], &bytes));
            }
            end(size);
        }
    }
}

/* What is cut off, or of another length, is not taken; nothing breaks. */
static void
test_riders__that_are_malformed_do_not_ride(void **state)
{
    const tutti_coll_args args = all_reduce(TUTTI_DTYPE_FP32, 3);
    const unsigned char own[32] = {7};
    unsigned char bytes[600];
    tutti_bytes known;
    tutti_error err;
    size_t length;
    size_t unused;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bytes); i++) {
        tutti_coll_agree *one = tutti_agree_new(2, 1, &args);
        tutti_coll_agree *other = tutti_agree_new(2, 0, &args);

        tutti_agree_piggyback(one, own, sizeof(own));
        tutti_agree_piggyback(other, own, i % 2 == 0 ? sizeof(own) : sizeof(own) / 2);
        assert_ok(tutti_agree_write(other, &known, &err));
        length = known.size;
        memset(bytes, 0, sizeof(bytes));
        memcpy(bytes, known.data, length);
        if (tutti_agree_read(one, bytes, i, &err) == TUTTI_OK && (i != length || i % 2 == 1)) {
            assert_null(tutti_agree_riders(one, &unused));
        }
        tutti_agree_free(one);
        tutti_agree_free(other);
    }
}

/* A peer that leaves somebody out must not bring us down. */
static void
test_agree__without_word_of_some_rank_has_no_verdict(void **state)
{
    const tutti_coll_args own = {.kind = TUTTI_COLL_BARRIER};
    tutti_coll_args spec;
    tutti_error err;
    bool open;
    uint32_t me;

    (void)state;
    for (me = 0; me < 3; me++) {
        tutti_coll_agree *agree = tutti_agree_new(3, me, &own);

        assert_fails(tutti_agree_verdict(agree, "world", 1, ranks, &spec, &open, &err),
                     TUTTI_INTERNAL);
        assert_text_has(err.text, "did not arrive");
        tutti_agree_free(agree);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agree__on_equal_calls_stands_for_every_size),
        cmocka_unit_test(test_agree__without_word_of_some_rank_has_no_verdict),
        cmocka_unit_test(test_agree__names_the_one_that_differs),
        cmocka_unit_test(test_agree__finds_one_stray_at_any_place_of_any_size),
        cmocka_unit_test(test_agree__tells_the_fields_apart),
        cmocka_unit_test(test_agree__lets_receivers_of_a_broadcast_know_less_than_the_root),
        cmocka_unit_test(test_agree__survives_a_different_call_on_every_rank),
        cmocka_unit_test(test_agree__refuses_bytes_that_are_no_signatures),
        cmocka_unit_test(test_riders__of_all_ranks_are_everywhere_in_their_order),
        cmocka_unit_test(test_riders__are_nowhere_when_one_rank_has_none),
        cmocka_unit_test(test_riders__that_are_malformed_do_not_ride),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
