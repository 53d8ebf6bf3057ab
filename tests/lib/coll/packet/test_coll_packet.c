/*
 * Goal: what one engine writes another reads, and nothing else is taken for it; shapes of results.
 * Method: round trips, and every cut of the bytes.
 */
#include "support/testing.h"

#include "coll/coll.h"
#include "coll/packet/packet.h"

static void
test_packet__survives_its_bytes(void **state)
{
    const tutti_packet packet = {TUTTI_PACKET_SEND, 7, 8, 9, 1ULL << 63, 2, 3, 4, 5, UINT64_MAX, 0};
    unsigned char bytes[TUTTI_PACKET_BYTES];
    tutti_packet back = {0};
    size_t i;

    (void)state;
    tutti_packet_write(&packet, bytes);
    assert_true(tutti_packet_read(bytes, sizeof(bytes), &back));
    assert_memory_equal(&back, &packet, sizeof(packet));
    for (i = 0; i < sizeof(bytes); i++) {
        assert_false(tutti_packet_read(bytes, i, &back));
    }
    bytes[0] = 99;
    assert_false(tutti_packet_read(bytes, sizeof(bytes), &back));
    bytes[0] = TUTTI_PACKET_VERSION;
    bytes[4] = 99;
    assert_false(tutti_packet_read(bytes, sizeof(bytes), &back));
}

static void
test_packet_spec__survives_or_is_refused(void **state)
{
    const tutti_spec spec = {TUTTI_DTYPE_BF16, 3, {2, 0, 5}};
    tutti_spec evil = {TUTTI_DTYPE_FP64, 2, {INT64_MAX, 2}};
    unsigned char bytes[TUTTI_PACKET_SPEC_BYTES];
    tutti_spec back;
    size_t used = tutti_packet_write_spec(&spec, bytes);
    size_t i;

    (void)state;
    assert_int_equal(tutti_packet_read_spec(bytes, used, &back), used);
    assert_true(tutti_spec_equal(&spec, &back));
    for (i = 0; i < used; i++) {
        assert_int_equal(tutti_packet_read_spec(bytes, i, &back), 0);
    }
    used = tutti_packet_write_spec(&evil, bytes);
    assert_int_equal(tutti_packet_read_spec(bytes, used, &back), 0);
    evil = (tutti_spec){(tutti_dtype)99, 0, {0}};
    used = tutti_packet_write_spec(&evil, bytes);
    assert_int_equal(tutti_packet_read_spec(bytes, used, &back), 0);
}

static void
test_packet_error__survives_or_becomes_one(void **state)
{
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];
    tutti_error err;
    tutti_error back;
    size_t used;
    size_t i;

    (void)state;
    (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_KEY", "nothing under \"x\"");
    err.rank = 3;
    err.scope = TUTTI_SCOPE_GROUP;
    used = tutti_packet_write_error(&err, bytes);
    tutti_packet_read_error(bytes, used, &back);
    assert_int_equal(back.code, TUTTI_NOT_FOUND);
    assert_string_equal(back.reason, "NO_KEY");
    assert_string_equal(back.text, "nothing under \"x\"");
    assert_int_equal(back.rank, 3);
    assert_int_equal(back.scope, TUTTI_SCOPE_GROUP);
    for (i = 0; i < 22; i++) {
        tutti_packet_read_error(bytes, i, &back);
        assert_int_equal(back.code, i < 22 ? TUTTI_INTERNAL : TUTTI_NOT_FOUND);
    }
    memset(bytes, 0, 16);
    tutti_packet_read_error(bytes, 3, &back);
    assert_string_equal(back.reason, "BAD_PACKET");
    tutti_packet_read_error(bytes, 16, &back);
    assert_int_equal(back.code, TUTTI_INTERNAL); /* an error of code OK is none */
}

static void
test_infer__knows_the_shapes_of_all_gather(void **state)
{
    static const struct {
        tutti_spec spec;
        uint32_t axis;
        bool stack;
        tutti_code code;
        tutti_spec wanted;
    } cases[] = {
        {{TUTTI_DTYPE_FP32, 1, {5}}, 0, false, TUTTI_OK, {TUTTI_DTYPE_FP32, 1, {15}}},
        {{TUTTI_DTYPE_FP32, 2, {2, 3}}, 1, false, TUTTI_OK, {TUTTI_DTYPE_FP32, 2, {2, 9}}},
        {{TUTTI_DTYPE_FP32, 2, {2, 3}}, 2, true, TUTTI_OK, {TUTTI_DTYPE_FP32, 3, {2, 3, 3}}},
        {{TUTTI_DTYPE_FP32, 2, {2, 4}}, 0, true, TUTTI_OK, {TUTTI_DTYPE_FP32, 3, {3, 2, 4}}},
        {{TUTTI_DTYPE_FP32, 0, {0}}, 0, false, TUTTI_OK, {TUTTI_DTYPE_FP32, 1, {3}}},
        {{TUTTI_DTYPE_FP32, 1, {5}}, 1, false, TUTTI_INVALID_ARGUMENT, {0}},
        {{TUTTI_DTYPE_INT8, 1, {INT64_MAX}}, 0, false, TUTTI_INVALID_ARGUMENT, {0}},
        {{TUTTI_DTYPE_INT8, 16, {0}}, 0, true, TUTTI_INVALID_ARGUMENT, {0}},
    };
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const tutti_coll_args args = {.kind = TUTTI_COLL_ALL_GATHER,
                                      .has_spec = true,
                                      .spec = cases[i].spec,
                                      .axis = cases[i].axis,
                                      .form =
                                          cases[i].stack ? TUTTI_FORM_STACK : TUTTI_FORM_CONCAT};
        tutti_spec result;
        tutti_error err;

        assert_int_equal(tutti_coll_infer(&args, 3, 0, &result, &err), cases[i].code);
        if (cases[i].code == TUTTI_OK) {
            assert_true(tutti_spec_equal(&result, &cases[i].wanted));
        }
    }
}

static void
test_infer__refuses_roots_peers_and_ops_that_cannot_be(void **state)
{
    tutti_coll_args args = {.kind = TUTTI_COLL_BROADCAST, .root = 2};
    tutti_spec result;
    tutti_error err;

    (void)state;
    assert_fails(tutti_coll_infer(&args, 2, 0, &result, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_ROOT");
    args.root = (uint32_t)-1;
    assert_fails(tutti_coll_infer(&args, 2, 0, &result, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "root -1 of a group of 2: need 0 to 1");
    args.root = 0;
    assert_fails(tutti_coll_infer(&args, 2, 0, &result, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "ROOT_INPUT_MISSING");
    assert_ok(tutti_coll_infer(&args, 2, 1, &result, &err));
    args = (tutti_coll_args){.kind = TUTTI_COLL_SEND, .peer = 1};
    assert_fails(tutti_coll_infer(&args, 2, 1, &result, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SELF_PEER");
    args.peer = 2;
    assert_fails(tutti_coll_infer(&args, 2, 1, &result, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANK_NOT_IN_GROUP");
    args.peer = TUTTI_COLL_ANY_SOURCE;
    assert_fails(tutti_coll_infer(&args, 2, 1, &result, &err), TUTTI_INVALID_ARGUMENT);
    args.kind = TUTTI_COLL_RECV;
    assert_ok(tutti_coll_infer(&args, 2, 1, &result, &err));
    args = (tutti_coll_args){.kind = TUTTI_COLL_ALL_REDUCE,
                             .reduce = TUTTI_REDUCE_BAND,
                             .has_spec = true,
                             .spec = {TUTTI_DTYPE_FP32, 1, {4}}};
    assert_fails(tutti_coll_infer(&args, 2, 1, &result, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_REDUCE_OP");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packet__survives_its_bytes),
        cmocka_unit_test(test_packet_spec__survives_or_is_refused),
        cmocka_unit_test(test_packet_error__survives_or_becomes_one),
        cmocka_unit_test(test_infer__knows_the_shapes_of_all_gather),
        cmocka_unit_test(test_infer__refuses_roots_peers_and_ops_that_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
