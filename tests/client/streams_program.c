/*
 * Transfers over several streams, through libtutti, to the agent of $TUTTI_AGENT. With `measure
 * BYTES ROUNDS` it prints GB/s of one stream and of N instead, alternating.
 * Run by tests/system/test_streams.py.
 */
#include "support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "tutti/tutti.h"

#define MIB (1u << 20)

static tutti_client *client;

static tutti_spec
spec_of(size_t size)
{
    return (tutti_spec){TUTTI_DTYPE_UINT8, 1, {(int64_t)size}};
}

static unsigned char *
make_bytes(size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size);
    size_t i;

    assert_non_null(bytes);
    for (i = 0; i < size; i++) {
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
    }
    return bytes;
}

static tutti_transfer
over(uint32_t streams)
{
    tutti_transfer transfer;

    tutti_transfer_init(&transfer);
    transfer.streams = streams;
    return transfer;
}

/* How often it was called, and with what at last. */
typedef struct heard {
    unsigned calls;
    uint64_t done_bytes;
    uint64_t stop_at;
} heard;

static bool
on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    heard *self = arg;

    self->calls++;
    assert_true(done_bytes >= self->done_bytes && done_bytes <= total_bytes);
    self->done_bytes = done_bytes;
    return done_bytes < self->stop_at;
}

static void
test_transfer__brings_the_same_bytes_over_any_number_of_streams(void **state)
{
    static const size_t sizes[] = {3 * MIB + 1, 4 * MIB, 9 * MIB + 5, 64 * MIB + 4097};
    static const uint32_t streams[] = {0, 1, 2, 3, TUTTI_STREAMS_MAX};
    tutti_error err;
    size_t i;
    size_t j;

    (void)state;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        const tutti_spec spec = spec_of(sizes[i]);
        unsigned char *bytes = make_bytes(sizes[i], 1);
        unsigned char *back = malloc(sizes[i]);

        assert_non_null(back);
        for (j = 0; j < COUNT_OF(streams); j++) {
            tutti_transfer transfer = over(streams[j]);
            heard told = {.stop_at = UINT64_MAX};
            tutti_handle made;

            transfer.on_progress = on_progress;
            transfer.arg = &told;
            bytes[sizes[i] - 1] = (unsigned char)j;
            memset(back, 0xee, sizes[i]);
            assert_ok(tutti_tensor_put(client, &spec, bytes, "t", &transfer, &made, &err));
            assert_true(told.calls > 0 && told.done_bytes == sizes[i]);
            told.done_bytes = 0;
            assert_ok(tutti_tensor_read(client, "t", back, sizes[i], &transfer, &err));
            assert_true(told.done_bytes == sizes[i]);
            assert_memory_equal(back, bytes, sizes[i]);
            assert_ok(tutti_tensor_delete(client, made.text, &err));
        }
        free(bytes);
        free(back);
    }
}

static void
test_write__over_several_streams_overwrites_in_place(void **state)
{
    const size_t size = 16 * MIB + 3;
    const tutti_spec spec = spec_of(size);
    const tutti_transfer transfer = over(4);
    unsigned char *bytes = make_bytes(size, 7);
    unsigned char *back = malloc(size);
    tutti_handle made;
    tutti_error err;

    (void)state;
    assert_non_null(back);
    assert_ok(tutti_tensor_create(client, &spec, NULL, &made, &err));
    assert_ok(tutti_tensor_write(client, made.text, &spec, bytes, &transfer, &err));
    assert_ok(tutti_tensor_read(client, made.text, back, size, &transfer, &err));
    assert_memory_equal(back, bytes, size);
    assert_ok(tutti_tensor_delete(client, made.text, &err));
    free(bytes);
    free(back);
}

static void
test_transfer__that_is_given_up_leaves_nothing(void **state)
{
    const size_t size = 64 * MIB;
    const tutti_spec spec = spec_of(size);
    unsigned char *bytes = make_bytes(size, 3);
    tutti_transfer transfer = over(3);
    heard told = {.stop_at = 1};
    tutti_handle made;
    tutti_tensor_info info;
    tutti_error err;

    (void)state;
    transfer.on_progress = on_progress;
    transfer.arg = &told;
    assert_fails(tutti_tensor_put(client, &spec, bytes, "half", &transfer, &made, &err),
                 TUTTI_CANCELLED);
    assert_non_null(strstr(err.text, "stream 1 of 3: the transfer was given up"));
    do { /* the agent may hear of it a moment later */
        (void)usleep(10000);
    } while (tutti_tensor_stat(client, "half", &info, &err) == TUTTI_OK);
    assert_string_equal(err.reason, "NO_TENSOR");
    free(bytes);
}

static void
test_transfer__fails_with_the_words_of_one_stream(void **state)
{
    const size_t size = 16 * MIB;
    const tutti_spec spec = spec_of(size);
    const tutti_transfer transfer = over(2);
    const tutti_transfer many = over(TUTTI_STREAMS_MAX + 1);
    unsigned char *bytes = make_bytes(size, 3);
    tutti_handle made;
    tutti_error err;

    (void)state;
    assert_fails(tutti_tensor_read(client, "nobody", bytes, size, &transfer, &err),
                 TUTTI_NOT_FOUND);
    assert_non_null(strstr(err.text, "stream 1 of 2: "));
    assert_ok(tutti_tensor_put(client, &spec, bytes, "t", &transfer, &made, &err));
    assert_fails(tutti_tensor_put(client, &spec, bytes, "t", &transfer, &made, &err),
                 TUTTI_ALREADY_EXISTS);
    assert_string_equal(err.reason, "NAME_TAKEN");
    assert_fails(tutti_tensor_read(client, "t", bytes, size - 1, &transfer, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    assert_fails(tutti_tensor_read(client, "t", bytes, size, &many, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "STREAM_LIMIT");
    assert_ok(tutti_tensor_delete(client, "t", &err));
    free(bytes);
}

/* Writes a tensor of one value after the other, over and over. */
typedef struct writer {
    const char *handle;
    size_t size;
    atomic_bool stop;
    unsigned count;
} writer;

static void *
write_on(void *arg)
{
    writer *self = arg;
    const tutti_spec spec = spec_of(self->size);
    unsigned char *bytes = malloc(self->size);
    tutti_error err;

    assert_non_null(bytes);
    while (!atomic_load(&self->stop)) {
        memset(bytes, (int)(++self->count % 256), self->size);
        assert_ok(tutti_tensor_write(client, self->handle, &spec, bytes, NULL, &err));
    }
    free(bytes);
    return NULL;
}

static void
test_read__over_several_streams_never_mixes_two_writes(void **state)
{
    const size_t size = 8 * MIB;
    const tutti_spec spec = spec_of(size);
    const tutti_transfer transfer = over(4);
    unsigned char *bytes = calloc(1, size);
    writer other = {.size = size};
    pthread_t thread;
    tutti_handle made;
    tutti_error err;
    unsigned i;

    (void)state;
    assert_non_null(bytes);
    assert_ok(tutti_tensor_create(client, &spec, NULL, &made, &err));
    other.handle = made.text;
    assert_int_equal(pthread_create(&thread, NULL, write_on, &other), 0);
    for (i = 0; i < 40; i++) {
        bytes[size - 1] = (unsigned char)~bytes[0];
        assert_ok(tutti_tensor_read(client, made.text, bytes, size, &transfer, &err));
        assert_memory_equal(bytes, bytes + 1, size - 1);
    }
    atomic_store(&other.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(other.count > 0);
    assert_ok(tutti_tensor_delete(client, made.text, &err));
    free(bytes);
}

/* ------------------------------------------------------------------ measure */

static double
gigabytes_per_s(size_t size, uint64_t from_ns)
{
    return (double)size / (double)(tutti_clock_ns() - from_ns);
}

static int
measure(size_t size, int rounds)
{
    static const uint32_t streams[] = {1, 2, 4};
    const tutti_spec spec = spec_of(size);
    unsigned char *bytes = make_bytes(size, 1);
    tutti_handle made;
    tutti_error err;
    int round;
    size_t i;

    assert_ok(tutti_tensor_put(client, &spec, bytes, NULL, NULL, &made, &err));
    for (round = 0; round < rounds; round++) {
        for (i = 0; i < COUNT_OF(streams); i++) {
            const tutti_transfer transfer = over(streams[i]);
            uint64_t from_ns = tutti_clock_ns();

            assert_ok(tutti_tensor_write(client, made.text, &spec, bytes, &transfer, &err));
            printf("upload %u %.2f\n", streams[i], gigabytes_per_s(size, from_ns));
            from_ns = tutti_clock_ns();
            assert_ok(tutti_tensor_read(client, made.text, bytes, size, &transfer, &err));
            printf("download %u %.2f\n", streams[i], gigabytes_per_s(size, from_ns));
        }
    }
    assert_ok(tutti_tensor_delete(client, made.text, &err));
    free(bytes);
    return 0;
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer__brings_the_same_bytes_over_any_number_of_streams),
        cmocka_unit_test(test_write__over_several_streams_overwrites_in_place),
        cmocka_unit_test(test_transfer__that_is_given_up_leaves_nothing),
        cmocka_unit_test(test_transfer__fails_with_the_words_of_one_stream),
        cmocka_unit_test(test_read__over_several_streams_never_mixes_two_writes),
    };
    tutti_error err;
    int failed;

    if (tutti_connect(NULL, &client, &err) != TUTTI_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    failed = argc == 4 ? measure(strtoull(argv[2], NULL, 10), atoi(argv[3]))
                       : cmocka_run_group_tests(tests, NULL, NULL);
    tutti_close(client);
    return failed;
}
