/*
 * Goal: an error crosses the wire with all it says, and hostile ones do no harm.
 * Method: pack and decode without a call; texts of every kind.
 */
#include "support/testing.h"

#include "rpc/loop/loop_private.h"
#include "rpc/message/check.h"
#include "rpc/message/status_pb.h"

static tutti_error
make_error(const char *text)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_FAILED_PRECONDITION, "SHAPE_MISMATCH", "%s", text);
    tutti_error_set_op(&err, "tp/0", UINT64_MAX, 65535);
    err.scope = TUTTI_SCOPE_GROUP;
    return err;
}

static tutti_code
decode(const tutti_error *from, bool *ret_from_peer, tutti_error *ret)
{
    unsigned char details[4096];
    const size_t size = rpc_status_pack(from, details, sizeof(details));

    assert_true(size > 0);
    return rpc_status_decode((grpc_status_code)from->code, tutti_bytes_of("short"),
                             (tutti_bytes){details, size}, ret_from_peer, ret);
}

static void
test_status__brings_everything_an_error_says(void **state)
{
    const tutti_error from = make_error("rank 3 called FP16[1024]");
    bool from_peer = false;
    tutti_error to;

    (void)state;
    assert_int_equal(decode(&from, &from_peer, &to), TUTTI_FAILED_PRECONDITION);
    assert_true(from_peer);
    assert_int_equal(to.code, from.code);
    assert_int_equal(to.scope, TUTTI_SCOPE_GROUP);
    assert_string_equal(to.text, from.text);
    assert_string_equal(to.reason, from.reason);
    assert_string_equal(to.group, "tp/0");
    assert_true(to.sequence == UINT64_MAX);
    assert_int_equal(to.rank, 65535);
}

static void
test_status__of_a_bare_error_brings_nothing_more(void **state)
{
    tutti_error from;
    bool from_peer = false;
    tutti_error to;

    (void)state;
    (void)TUTTI_FAIL(&from, TUTTI_NOT_FOUND, "no key");
    assert_int_equal(decode(&from, &from_peer, &to), TUTTI_NOT_FOUND);
    assert_string_equal(to.reason, "GRPC_STATUS"); /* its server should have had one */
    assert_string_equal(to.group, "");
    assert_int_equal(to.rank, TUTTI_ERROR_RANK_NONE);
    assert_int_equal(to.sequence, 0);
    assert_int_equal(to.scope, TUTTI_SCOPE_CALL);
}

static void
test_status__without_details_takes_the_text_of_grpc(void **state)
{
    bool from_peer = true;
    tutti_error to;

    (void)state;
    assert_int_equal(rpc_status_decode(GRPC_STATUS_ABORTED, tutti_bytes_of("a\tb\xff"),
                                       (tutti_bytes){NULL, 0}, &from_peer, &to),
                     TUTTI_ABORTED);
    assert_false(from_peer);
    assert_string_equal(to.text, "a b?");
    assert_string_equal(to.domain, "grpc");
    assert_int_equal(rpc_status_decode((grpc_status_code)99, tutti_bytes_of(""),
                                       (tutti_bytes){NULL, 0}, &from_peer, &to),
                     TUTTI_UNKNOWN);
    assert_text_has(to.text, "UNKNOWN");
    assert_int_equal(rpc_status_decode(GRPC_STATUS_OK, tutti_bytes_of(""), (tutti_bytes){NULL, 0},
                                       &from_peer, &to),
                     TUTTI_OK);
}

static void
test_status__ignores_details_that_are_none(void **state)
{
    static const char garbage[] = "\xff\xff\xff\xff";
    const tutti_error from = make_error("text");
    unsigned char details[4096];
    const size_t size = rpc_status_pack(&from, details, sizeof(details));
    bool from_peer = true;
    tutti_error to;
    size_t cut;

    (void)state;
    assert_int_equal(rpc_status_decode(GRPC_STATUS_ABORTED, tutti_bytes_of("short"),
                                       tutti_bytes_of(garbage), &from_peer, &to),
                     TUTTI_ABORTED);
    assert_string_equal(to.text, "short");
    /* Details that speak of another code are not believed. */
    assert_int_equal(rpc_status_decode(GRPC_STATUS_ABORTED, tutti_bytes_of("short"),
                                       (tutti_bytes){details, size}, &from_peer, &to),
                     TUTTI_ABORTED);
    assert_false(from_peer);
    assert_string_equal(to.text, "short");
    for (cut = 0; cut < size; cut++) {
        assert_int_equal(rpc_status_decode(GRPC_STATUS_FAILED_PRECONDITION, tutti_bytes_of("short"),
                                           (tutti_bytes){details, cut}, &from_peer, &to),
                         TUTTI_FAILED_PRECONDITION);
    }
}

static void
check_sent(const tutti_error *from)
{
    rpc_status status;
    bool from_peer = false;
    tutti_error to;
    size_t encoded = 0;
    size_t i;

    rpc_status_init(&status, from);
    assert_int_equal(status.detail_count, 1);
    for (i = 0; i < GRPC_SLICE_LENGTH(status.text); i++) {
        const unsigned char byte = GRPC_SLICE_START_PTR(status.text)[i];

        encoded += byte >= ' ' && byte <= '~' && byte != '%' ? 1 : 3;
    }
    encoded += (GRPC_SLICE_LENGTH(status.details.value) + 2) / 3 * 4;
    assert_in_range(encoded, 1, TUTTI_RPC_STATUS_MAX);
    assert_true(rpc_check_text(
        (tutti_bytes){GRPC_SLICE_START_PTR(status.text), GRPC_SLICE_LENGTH(status.text)}));
    assert_int_equal(rpc_status_decode(status.code,
                                       (tutti_bytes){GRPC_SLICE_START_PTR(status.text),
                                                     GRPC_SLICE_LENGTH(status.text)},
                                       (tutti_bytes){GRPC_SLICE_START_PTR(status.details.value),
                                                     GRPC_SLICE_LENGTH(status.details.value)},
                                       &from_peer, &to),
                     from->code);
    assert_true(from_peer);
    assert_true(rpc_check_text(tutti_bytes_of(to.text)));
    rpc_status_fini(&status);
}

static void
test_status__of_the_longest_error_fits(void **state)
{
    tutti_error from = make_error("");

    (void)state;
    memset(from.text, 'x', sizeof(from.text) - 1);
    memset(from.group, 'g', sizeof(from.group) - 1);
    memset(from.reason, 'R', sizeof(from.reason) - 1);
    from.text[sizeof(from.text) - 1] = '\0';
    from.group[sizeof(from.group) - 1] = '\0';
    from.reason[sizeof(from.reason) - 1] = '\0';
    check_sent(&from);
    memset(from.text, '\xff', sizeof(from.text) - 1); /* becomes '?' */
    memset(from.group, '\xff', sizeof(from.group) - 1);
    check_sent(&from);
    memset(from.text, '%', sizeof(from.text) - 1); /* three bytes each on the wire */
    check_sent(&from);
    memset(from.text, '\n', sizeof(from.text) - 1);
    check_sent(&from);
}

static void
test_status__cuts_text_between_characters(void **state)
{
    char text[8];

    (void)state;
    rpc_status_clean(text, sizeof(text), tutti_bytes_of("123456\xc3\xa9"), SIZE_MAX);
    assert_string_equal(text, "123456");
    rpc_status_clean(text, sizeof(text), tutti_bytes_of("12345\xc3\xa9"), SIZE_MAX);
    assert_string_equal(text, "12345\xc3\xa9");
    rpc_status_clean(text, sizeof(text), tutti_bytes_of("a%b"), 4);
    assert_string_equal(text, "a%");
    rpc_status_clean(text, sizeof(text), tutti_bytes_of("\xc3"), SIZE_MAX);
    assert_string_equal(text, "?");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status__brings_everything_an_error_says),
        cmocka_unit_test(test_status__of_a_bare_error_brings_nothing_more),
        cmocka_unit_test(test_status__without_details_takes_the_text_of_grpc),
        cmocka_unit_test(test_status__ignores_details_that_are_none),
        cmocka_unit_test(test_status__of_the_longest_error_fits),
        cmocka_unit_test(test_status__cuts_text_between_characters),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
