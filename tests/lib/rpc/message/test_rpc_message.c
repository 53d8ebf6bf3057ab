/*
 * Goal: messages get through gRPC's slices whole, without needless copies and without harm from
 * hostile ones; a payload is released exactly once, whatever happens.
 * Method: byte buffers made by hand, cut at every byte; counters on what is released.
 */
#include "support/testing.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <limits.h>

#include "echo_pb.h"
#include "rpc/message/message.h"
#include "rpc/message/scan.h"

static size_t released;

static void
on_release(void *arg)
{
    assert_ptr_equal(arg, &released);
    released++;
}

/* A byte buffer of copies of the pieces between borders. */
static grpc_byte_buffer *
make_buffer(const void *wire, size_t size, size_t piece)
{
    grpc_slice slices[4096];
    grpc_byte_buffer *buffer;
    size_t count = 0;
    size_t at;

    for (at = 0; at < size; at += piece) {
        const size_t left = size - at < piece ? size - at : piece;

        assert_true(count < COUNT_OF(slices));
        slices[count++] = grpc_slice_from_copied_buffer((const char *)wire + at, left);
    }
    buffer = grpc_raw_byte_buffer_create(slices, count);
    while (count > 0) {
        grpc_slice_unref(slices[--count]);
    }
    return buffer;
}

static tutti_code
unpack(const void *wire, size_t size, bool strict, tutti_rpc_message **ret, tutti_error *err)
{
    return rpc_unpack(echo_request_type(), make_buffer(wire, size, size == 0 ? 1 : size), strict,
                      ret, err);
}

/* All bytes of a byte buffer. */
static size_t
flatten(grpc_byte_buffer *buffer, unsigned char *ret, size_t room)
{
    grpc_byte_buffer_reader reader;
    grpc_slice slice;
    size_t size = 0;

    assert_true(grpc_byte_buffer_reader_init(&reader, buffer));
    while (grpc_byte_buffer_reader_next(&reader, &slice)) {
        assert_true(size + GRPC_SLICE_LENGTH(slice) <= room);
        memcpy(ret + size, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
        size += GRPC_SLICE_LENGTH(slice);
        grpc_slice_unref(slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return size;
}

static void
test_pack__references_the_payload_and_releases_it_once(void **state)
{
    static const char data[] = "0123456789";
    const tutti_rpc_blob blob = {data, 10, on_release, &released};
    const echo_fields fields = {.text = "hi", .number = 150};
    echo_storage storage;
    grpc_byte_buffer *buffer = NULL;
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    tutti_error err;

    (void)state;
    released = 0;
    assert_ok(rpc_pack(echo_request(&storage, &fields), &blob, &buffer, &err));
    assert_true(grpc_byte_buffer_reader_init(&reader, buffer));
    assert_true(grpc_byte_buffer_reader_peek(&reader, &slice));
    assert_memory_equal(GRPC_SLICE_START_PTR(*slice), "\x0a\x02hi\x10\x96\x01\xa2\x06\x0a", 10);
    assert_true(grpc_byte_buffer_reader_peek(&reader, &slice));
    assert_ptr_equal(GRPC_SLICE_START_PTR(*slice), data);
    grpc_byte_buffer_reader_destroy(&reader);
    assert_int_equal(released, 0);
    grpc_byte_buffer_destroy(buffer);
    assert_int_equal(released, 1);
}

static void
test_pack__copies_a_payload_that_is_not_released(void **state)
{
    char data[10] = "012345678";
    const tutti_rpc_blob blob = {.data = data, .size = 10};
    const echo_fields fields = {.text = NULL};
    unsigned char wire[64];
    echo_storage storage;
    grpc_byte_buffer *buffer = NULL;
    tutti_error err;

    (void)state;
    assert_ok(rpc_pack(echo_request(&storage, &fields), &blob, &buffer, &err));
    memset(data, 'x', sizeof(data));
    assert_int_equal(flatten(buffer, wire, sizeof(wire)), 13);
    assert_memory_equal(wire,
                        "\xa2\x06\x0a"
                        "012345678",
                        13);
    grpc_byte_buffer_destroy(buffer);
}

static void
test_pack__releases_an_empty_payload_and_one_that_is_too_large(void **state)
{
    const tutti_rpc_blob empty = {"", 0, on_release, &released};
    const tutti_rpc_blob huge = {"", (size_t)INT_MAX, on_release, &released};
    const echo_fields fields = {.text = "hi"};
    echo_storage storage;
    grpc_byte_buffer *buffer = NULL;
    tutti_error err;

    (void)state;
    released = 0;
    assert_ok(rpc_pack(echo_request(&storage, &fields), &empty, &buffer, &err));
    assert_int_equal(released, 1);
    assert_int_equal(grpc_byte_buffer_length(buffer), 4);
    grpc_byte_buffer_destroy(buffer);
    assert_fails(rpc_pack(echo_request(&storage, &fields), &huge, &buffer, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "2147483647");
    assert_int_equal(released, 2);
}

static void
test_unpack__gives_back_what_was_packed_with_slices_of_any_size(void **state)
{
    unsigned char payload[300];
    const tutti_rpc_blob blob = {.data = payload, .size = sizeof(payload)};
    const echo_fields fields = {.text = "hello", .number = 7, .count = 8, .depth = 3};
    unsigned char wire[512];
    unsigned char got[300];
    echo_storage storage;
    grpc_byte_buffer *buffer = NULL;
    tutti_error err;
    size_t size;
    size_t piece;

    (void)state;
    for (size = 0; size < sizeof(payload); size++) {
        payload[size] = (unsigned char)size;
    }
    assert_ok(rpc_pack(echo_request(&storage, &fields), &blob, &buffer, &err));
    size = flatten(buffer, wire, sizeof(wire));
    grpc_byte_buffer_destroy(buffer);
    for (piece = 1; piece <= size; piece++) {
        tutti_rpc_message *message = NULL;
        echo_fields read;

        assert_ok(
            rpc_unpack(echo_request_type(), make_buffer(wire, size, piece), true, &message, &err));
        read = echo_request_fields(tutti_rpc_message_get(message));
        assert_string_equal(read.text, "hello");
        assert_int_equal(read.number, 7);
        assert_int_equal(read.count, 8);
        assert_int_equal(tutti_rpc_message_payload_bytes(message), 300);
        tutti_rpc_message_read(message, got, 100);
        assert_int_equal(tutti_rpc_message_peek(message, 1).size, 1);
        tutti_rpc_message_read(message, got + 101, 199);
        got[100] = payload[100];
        assert_memory_equal(got, payload, 300);
        assert_int_equal(tutti_rpc_message_payload_bytes(message), 0);
        assert_int_equal(tutti_rpc_message_peek(message, 1).size, 0);
        tutti_rpc_message_free(message);
    }
}

static void
test_unpack__does_not_copy_the_payload(void **state)
{
    static char payload[100000];
    const tutti_rpc_blob blob = {payload, sizeof(payload), on_release, &released};
    const echo_fields fields = {.text = "hello"};
    echo_storage storage;
    grpc_byte_buffer *buffer = NULL;
    tutti_rpc_message *message = NULL;
    tutti_bytes run;
    tutti_error err;

    (void)state;
    released = 0;
    assert_ok(rpc_pack(echo_request(&storage, &fields), &blob, &buffer, &err));
    assert_ok(rpc_unpack(echo_request_type(), buffer, true, &message, &err));
    run = tutti_rpc_message_peek(message, SIZE_MAX);
    assert_ptr_equal(run.data, payload);
    assert_int_equal(run.size, sizeof(payload));
    assert_int_equal(released, 0);
    tutti_rpc_message_free(message);
    assert_int_equal(released, 1);
}

static void
test_unpack__of_nothing_is_the_message_of_defaults(void **state)
{
    tutti_rpc_message *message = NULL;
    tutti_error err;

    (void)state;
    assert_ok(unpack("", 0, true, &message, &err));
    assert_string_equal(echo_request_fields(tutti_rpc_message_get(message)).text, "");
    tutti_rpc_message_free(message);
}

static const struct refused {
    const char *what;
    const char *wire;
    size_t size;
    const char *says;
} refused[] = {
    {"a cut message", "\x0a\x05hi", 4, "malformed"},
    {"text with a NUL",
     "\x0a\x03"
     "a\0b",
     5, "EchoRequest.text"},
    {"text that is no UTF-8", "\x0a\x01\xff", 3, "EchoRequest.text"},
    {"text of a wrong wire type", "\x08\x01", 2, "malformed"},
    {"an unknown enum number", "\x20\x63", 2, "99 is no value of rpctest.v1.Colour"},
    {"an unknown packed enum number", "\x2a\x02\x01\x63", 4, "99 is no value"},
    {"a cut packed enum", "\x2a\x01\x80", 3, "malformed"},
    {"text inside that is no UTF-8", "\x3a\x03\x0a\x01\xff", 5, "Inner.text"},
    {"a cut message inside", "\x32\x02\x0a\x05", 4, "malformed"},
    {"a payload of a wrong wire type", "\xa0\x06\x01", 3, "malformed"},
};

static void
test_unpack__refuses_with_words(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(refused); i++) {
        tutti_rpc_message *message = NULL;
        tutti_error err;

        if (unpack(refused[i].wire, refused[i].size, true, &message, &err) !=
            TUTTI_INVALID_ARGUMENT) {
            fail_msg("%s was taken", refused[i].what);
        }
        assert_null(message);
        assert_text_has(err.text, refused[i].says);
    }
}

static void
test_unpack__takes_enum_numbers_of_newer_servers_in_responses(void **state)
{
    tutti_rpc_message *message = NULL;
    tutti_error err;

    (void)state;
    assert_ok(unpack("\x20\x63", 2, false, &message, &err));
    tutti_rpc_message_free(message);
}

/* `depth` messages inside each other: 2 or more bytes of head each, written from the inside. */
static size_t
nest(unsigned char *end, size_t depth)
{
    size_t size = 0;

    while (depth-- > 0) {
        unsigned char head[8] = {0x12};
        size_t used = 1;
        size_t length;

        for (length = size; length >= 0x80; length >>= 7) {
            head[used++] = (unsigned char)(length | 0x80);
        }
        head[used++] = (unsigned char)length;
        size += used;
        memcpy(end - size, head, used);
    }
    end[-(ptrdiff_t)size] = 0x32; /* the outermost is field 6 of the request */
    return size;
}

static void
test_unpack__refuses_messages_that_are_nested_too_deep(void **state)
{
    static unsigned char wire[100000];
    unsigned char *end = wire + sizeof(wire);
    tutti_rpc_message *message = NULL;
    tutti_error err;
    size_t size = nest(end, 31);

    (void)state;
    assert_ok(unpack(end - size, size, true, &message, &err));
    tutti_rpc_message_free(message);
    size = nest(end, 32);
    assert_fails(unpack(end - size, size, true, &message, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "TOO_DEEP");
    size = nest(end, 20000); /* unpacked by protobuf-c it would overflow the stack */
    assert_fails(unpack(end - size, size, true, &message, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_unpack__refuses_text_that_is_none(void **state)
{
    static const struct {
        const char *wire;
        size_t size;
    } cases[] = {{"\x0a\x01\xff", 3},
                 {"\x0a\x02\xc0\x80", 4},
                 {"\x0a\x03"
                  "a\0b",
                  5}};
    tutti_rpc_message *message = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_fails(unpack(cases[i].wire, cases[i].size, true, &message, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_TEXT");
        assert_text_has(err.text, "bytes that are not UTF-8, or hold a NUL");
    }
}

static void
test_unpack__refuses_what_would_grow_a_hundredfold(void **state)
{
    const size_t size = 4u << 20;
    unsigned char *wire = malloc(size);
    tutti_rpc_message *message = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    assert_non_null(wire);
    for (i = 0; i < size; i += 2) {
        memcpy(wire + i, "\x3a\x00", 2); /* an empty message in a list of them */
    }
    assert_fails(unpack(wire, size, true, &message, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "too much memory");
    for (i = 0; i < size; i += 2) {
        memcpy(wire + i, "\x78\x00", 2); /* a field nobody knows */
    }
    assert_fails(unpack(wire, size, true, &message, &err), TUTTI_RESOURCE_EXHAUSTED);
    free(wire);
}

static void
test_unpack__takes_a_list_of_ordinary_size(void **state)
{
    unsigned char wire[2000];
    tutti_rpc_message *message = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(wire); i += 2) {
        memcpy(wire + i, "\x3a\x00", 2);
    }
    assert_ok(unpack(wire, sizeof(wire), true, &message, &err));
    tutti_rpc_message_free(message);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__references_the_payload_and_releases_it_once),
        cmocka_unit_test(test_pack__copies_a_payload_that_is_not_released),
        cmocka_unit_test(test_pack__releases_an_empty_payload_and_one_that_is_too_large),
        cmocka_unit_test(test_unpack__gives_back_what_was_packed_with_slices_of_any_size),
        cmocka_unit_test(test_unpack__does_not_copy_the_payload),
        cmocka_unit_test(test_unpack__of_nothing_is_the_message_of_defaults),
        cmocka_unit_test(test_unpack__refuses_with_words),
        cmocka_unit_test(test_unpack__takes_enum_numbers_of_newer_servers_in_responses),
        cmocka_unit_test(test_unpack__refuses_messages_that_are_nested_too_deep),
        cmocka_unit_test(test_unpack__refuses_text_that_is_none),
        cmocka_unit_test(test_unpack__refuses_what_would_grow_a_hundredfold),
        cmocka_unit_test(test_unpack__takes_a_list_of_ordinary_size),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
