/*
 * Goal: wherever a message is cut, and however its fields are ordered, the payload and the rest are
 * found; what is no message is refused; nothing is read behind the end.
 * Method: messages written byte by byte, cut at every pair of borders, each run in memory of its
 * own so that the sanitizer sees every byte too far.
 */
#include "support/testing.h"

#include "rpc/message/check.h"
#include "rpc/message/message.h"
#include "rpc/message/scan.h"

#define FIELD 100
#define RUNS_MAX 8

typedef struct cut_message {
    tutti_bytes runs[RUNS_MAX];
    size_t count;
} cut_message;

static void
add_run(cut_message *cut, const unsigned char *from, size_t size)
{
    unsigned char *copy = malloc(size == 0 ? 1 : size);

    assert_non_null(copy);
    memcpy(copy, from, size);
    cut->runs[cut->count++] = (tutti_bytes){copy, size};
}

/* In three runs, cut at `first` and `second`. */
static cut_message
cut_at(const unsigned char *wire, size_t size, size_t first, size_t second)
{
    cut_message cut = {.count = 0};

    add_run(&cut, wire, first);
    add_run(&cut, wire + first, second - first);
    add_run(&cut, wire + second, size - second);
    return cut;
}

static void
free_cut(cut_message *cut)
{
    size_t i;

    for (i = 0; i < cut->count; i++) {
        free((void *)(uintptr_t)cut->runs[i].data);
    }
}

static void
assert_payload(const rpc_scan *scan, const char *wanted)
{
    rpc_cursor at = scan->payload;
    size_t done = 0;

    assert_int_equal(at.left, strlen(wanted));
    while (at.left > 0) {
        const tutti_bytes run = rpc_cursor_take(&at, SIZE_MAX);

        assert_true(run.size > 0);
        assert_memory_equal(run.data, wanted + done, run.size);
        done += run.size;
    }
}

/* Cut the message everywhere; each time payload and rest are as they should be. */
static void
check_everywhere(const char *wire, size_t size, const char *payload, const char *rest,
                 size_t rest_bytes)
{
    size_t first;
    size_t second;

    for (first = 0; first <= size; first++) {
        for (second = first; second <= size; second++) {
            cut_message cut = cut_at((const unsigned char *)wire, size, first, second);
            tutti_buf gather;
            rpc_scan scan;
            tutti_error err;

            tutti_buf_init(&gather, TUTTI_RPC_CONTROL_MAX);
            assert_ok(rpc_scan_message(cut.runs, cut.count, FIELD, &gather, &scan, &err));
            assert_payload(&scan, payload);
            assert_int_equal(scan.rest.size, rest_bytes);
            assert_memory_equal(scan.rest.data, rest, rest_bytes);
            tutti_buf_fini(&gather);
            free_cut(&cut);
        }
    }
}

#define HEAD "\x0a\x02hi\x10\x96\x01" /* text 1 = "hi", varint 2 = 150 */
#define TAIL "\x4d\x01\x02\x03\x04\x51\x01\x02\x03\x04\x05\x06\x07\x08" /* fixed 9 and 10 */
#define PAYLOAD(n) "\xa2\x06" n /* field 100, length-delimited */

static void
test_scan__finds_the_payload_at_the_end_with_a_border_anywhere(void **state)
{
    static const char wire[] = HEAD TAIL PAYLOAD("\x05") "bytes";

    (void)state;
    check_everywhere(wire, sizeof(wire) - 1, "bytes", HEAD TAIL, sizeof(HEAD TAIL) - 1);
}

static void
test_scan__finds_the_payload_first_and_between(void **state)
{
    static const char first[] = PAYLOAD("\x05") "bytes" HEAD TAIL;
    static const char between[] = HEAD PAYLOAD("\x05") "bytes" TAIL;

    (void)state;
    check_everywhere(first, sizeof(first) - 1, "bytes", HEAD TAIL, sizeof(HEAD TAIL) - 1);
    check_everywhere(between, sizeof(between) - 1, "bytes", HEAD TAIL, sizeof(HEAD TAIL) - 1);
}

static void
test_scan__takes_the_last_of_several_payloads(void **state)
{
    static const char wire[] = PAYLOAD("\x03") "old" HEAD PAYLOAD("\x03") "new" TAIL;
    static const char emptied[] = PAYLOAD("\x03") "old" HEAD PAYLOAD("\x00");

    (void)state;
    check_everywhere(wire, sizeof(wire) - 1, "new", HEAD TAIL, sizeof(HEAD TAIL) - 1);
    check_everywhere(emptied, sizeof(emptied) - 1, "", HEAD, sizeof(HEAD) - 1);
}

static void
test_scan__of_a_message_without_payload_gives_all_of_it(void **state)
{
    (void)state;
    check_everywhere(HEAD TAIL, sizeof(HEAD TAIL) - 1, "", HEAD TAIL, sizeof(HEAD TAIL) - 1);
    check_everywhere("", 0, "", "", 0);
}

static void
test_scan__reads_longer_lengths(void **state)
{
    char wire[400] = HEAD "\xa2\x06\xac\x02"; /* 300 bytes */
    char payload[301];
    const size_t head = sizeof(HEAD "\xa2\x06\xac\x02") - 1;

    (void)state;
    memset(payload, 'x', 300);
    payload[300] = '\0';
    memcpy(wire + head, payload, 300);
    check_everywhere(wire, head + 300, payload, HEAD, sizeof(HEAD) - 1);
}

static void
test_scan__copies_nothing_when_the_rest_lies_together(void **state)
{
    static const char wire[] = HEAD TAIL PAYLOAD("\x05") "bytes";
    const tutti_bytes run = {wire, sizeof(wire) - 1};
    tutti_buf gather;
    rpc_scan scan;
    tutti_error err;

    (void)state;
    tutti_buf_init(&gather, TUTTI_RPC_CONTROL_MAX);
    assert_ok(rpc_scan_message(&run, 1, FIELD, &gather, &scan, &err));
    assert_ptr_equal(scan.rest.data, wire);
    assert_null(gather.data);
}

static void
test_scan__of_a_type_without_payload_takes_field_100_as_any_other(void **state)
{
    static const char wire[] = HEAD PAYLOAD("\x05") "bytes";
    const tutti_bytes runs[] = {{wire, 4}, {wire + 4, sizeof(wire) - 5}};
    tutti_buf gather;
    rpc_scan scan;
    tutti_error err;

    (void)state;
    tutti_buf_init(&gather, TUTTI_RPC_CONTROL_MAX);
    assert_ok(rpc_scan_message(runs, 2, 0, &gather, &scan, &err));
    assert_int_equal(scan.payload.left, 0);
    assert_int_equal(scan.rest.size, sizeof(wire) - 1);
    assert_memory_equal(scan.rest.data, wire, sizeof(wire) - 1);
    tutti_buf_fini(&gather);
}

static const struct malformed {
    const char *what;
    const char *wire;
    size_t size;
} malformed[] = {
    {"a tag that ends", "\x80", 1},
    {"a tag of six bytes", "\x80\x80\x80\x80\x80\x01", 6},
    {"a tag beyond 32 bits", "\xff\xff\xff\xff\x7f", 5},
    {"field number 0", "\x02\x00", 2},
    {"a varint that ends", "\x08\x80", 2},
    {"a varint of eleven bytes", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12},
    {"text longer than what is left", "\x0a\x03hi", 4},
    {"a payload longer than what is left", "\xa2\x06\x03hi", 5},
    {"a payload of 2^64-1 bytes", "\xa2\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
    {"a length that ends", "\xa2\x06\x80", 3},
    {"a fixed32 that ends", "\x0d\x01\x02\x03", 4},
    {"a fixed64 that ends", "\x09\x01\x02\x03\x04\x05\x06\x07", 8},
    {"a group", "\x0b\x0c", 2},
    {"wire type 6", "\x0e\x01", 2},
    {"wire type 7", "\x0f\x01", 2},
};

static void
test_scan__refuses_what_is_no_message_wherever_it_is_cut(void **state)
{
    size_t i;
    size_t at;

    (void)state;
    for (i = 0; i < COUNT_OF(malformed); i++) {
        for (at = 0; at <= malformed[i].size; at++) {
            cut_message cut =
                cut_at((const unsigned char *)malformed[i].wire, malformed[i].size, at, at);
            tutti_buf gather;
            rpc_scan scan;
            tutti_error err;

            tutti_buf_init(&gather, TUTTI_RPC_CONTROL_MAX);
            if (rpc_scan_message(cut.runs, cut.count, FIELD, &gather, &scan, &err) !=
                TUTTI_INVALID_ARGUMENT) {
                fail_msg("%s was taken", malformed[i].what);
            }
            assert_text_has(err.text, "malformed message");
            tutti_buf_fini(&gather);
            free_cut(&cut);
        }
    }
}

static void
test_scan__refuses_more_than_the_limit_besides_the_payload(void **state)
{
    const size_t size = TUTTI_RPC_CONTROL_MAX + 1;
    unsigned char *wire = calloc(1, size);
    tutti_bytes run = {wire, size};
    tutti_buf gather;
    rpc_scan scan;
    tutti_error err;
    size_t i;

    (void)state;
    assert_non_null(wire);
    for (i = 0; i + 1 < size; i += 2) {
        wire[i] = 0x08;
    }
    tutti_buf_init(&gather, TUTTI_RPC_CONTROL_MAX);
    run.size = TUTTI_RPC_CONTROL_MAX;
    assert_ok(rpc_scan_message(&run, 1, FIELD, &gather, &scan, &err));
    run.size = size;
    assert_fails(rpc_scan_message(&run, 1, 0, &gather, &scan, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "4194304");
    free(wire);
}

static const struct text_case {
    const char *bytes;
    bool good;
} texts[] = {
    {"", true},
    {"plain", true},
    {"caf\xc3\xa9", true},
    {"\xe2\x82\xac", true},
    {"\xf0\x9f\x98\x80", true},
    {"\xf4\x8f\xbf\xbf", true},
    {"\xc3", false},             /* cut */
    {"\xe2\x82", false},         /* cut */
    {"\xc0\xaf", false},         /* overlong */
    {"\xe0\x80\xaf", false},     /* overlong */
    {"\xf0\x80\x80\xaf", false}, /* overlong */
    {"\xed\xa0\x80", false},     /* surrogate */
    {"\xf4\x90\x80\x80", false}, /* beyond Unicode */
    {"\xf5\x80\x80\x80", false},
    {"\xff", false},
    {"\x80", false},
    {"a\xc3z", false},
};

static void
test_check_text__knows_utf8(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(texts); i++) {
        const size_t size = strlen(texts[i].bytes);
        char *copy = malloc(size + 1);

        assert_non_null(copy);
        memcpy(copy, texts[i].bytes, size);
        if (rpc_check_text((tutti_bytes){copy, size}) != texts[i].good) {
            fail_msg("text %zu", i);
        }
        free(copy);
    }
    assert_false(rpc_check_text((tutti_bytes){"a\0b", 3}));
}

static void
test_arena__gives_aligned_memory_up_to_its_limit(void **state)
{
    max_align_t first[4];
    rpc_arena arena;
    size_t taken = 0;
    void *memory;

    (void)state;
    rpc_arena_init(&arena, 10, first, sizeof(first));
    assert_ptr_equal(rpc_arena_take(&arena, 1), first);
    while ((memory = rpc_arena_take(&arena, 1000)) != NULL) {
        assert_int_equal((uintptr_t)memory % sizeof(max_align_t) % 16, 0);
        memset(memory, 1, 1000);
        taken += 1000;
    }
    assert_true(arena.refused);
    assert_in_range(taken, 60000, TUTTI_RPC_ARENA_BASE + TUTTI_RPC_ARENA_FACTOR * 10);
    rpc_arena_fini(&arena);
}

static void
test_arena__never_gives_more_than_the_most(void **state)
{
    rpc_arena arena;

    (void)state;
    rpc_arena_init(&arena, SIZE_MAX / 2, NULL, 0);
    assert_null(rpc_arena_take(&arena, TUTTI_RPC_ARENA_MAX + 1));
    assert_true(arena.refused);
    arena.refused = false;
    assert_null(rpc_arena_take(&arena, SIZE_MAX));
    assert_true(arena.refused);
    assert_non_null(rpc_arena_take(&arena, TUTTI_RPC_ARENA_MAX));
    assert_null(rpc_arena_take(&arena, 1));
    rpc_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan__finds_the_payload_at_the_end_with_a_border_anywhere),
        cmocka_unit_test(test_scan__finds_the_payload_first_and_between),
        cmocka_unit_test(test_scan__takes_the_last_of_several_payloads),
        cmocka_unit_test(test_scan__of_a_message_without_payload_gives_all_of_it),
        cmocka_unit_test(test_scan__reads_longer_lengths),
        cmocka_unit_test(test_scan__copies_nothing_when_the_rest_lies_together),
        cmocka_unit_test(test_scan__of_a_type_without_payload_takes_field_100_as_any_other),
        cmocka_unit_test(test_scan__refuses_what_is_no_message_wherever_it_is_cut),
        cmocka_unit_test(test_scan__refuses_more_than_the_limit_besides_the_payload),
        cmocka_unit_test(test_check_text__knows_utf8),
        cmocka_unit_test(test_arena__gives_aligned_memory_up_to_its_limit),
        cmocka_unit_test(test_arena__never_gives_more_than_the_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
