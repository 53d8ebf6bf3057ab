/*
 * Goal: bytes arrive as they were, by the way that fits their number; what an agent does wrong ends
 * in words, without a leak, a hang or a byte outside the caller's memory.
 * Method: a fake agent that keeps what it gets and misbehaves on demand.
 */
#include "client_rig.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/os/clock.h"

#define MIB ((size_t)1 << 20)

/* Bytes that say where they are. */
static unsigned char *
make_bytes(size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    size_t i;

    assert_non_null(bytes);
    for (i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    return bytes;
}

static tutti_spec
bytes_spec(size_t size)
{
    return (tutti_spec){TUTTI_DTYPE_UINT8, 1, {(int64_t)size}};
}

static tutti_code
put(client_rig *rig, const void *data, size_t size, const tutti_transfer *transfer,
    tutti_error *err)
{
    const tutti_spec spec = bytes_spec(size);
    tutti_handle handle;

    rig->agent.script.spec = spec;
    return tutti_tensor_put(rig->client, &spec, data, NULL, transfer, &handle, err);
}

static void
test_spec_size__counts_elements_and_bytes(void **state)
{
    const tutti_spec scalar = {TUTTI_DTYPE_FP64, 0, {0}};
    const tutti_spec matrix = {TUTTI_DTYPE_BF16, 3, {2, 3, 5}};
    const tutti_spec empty = {TUTTI_DTYPE_FP32, 2, {0, 7}};
    const tutti_spec huge = {TUTTI_DTYPE_FP32, 2, {INT64_MAX, 2}};
    const tutti_spec negative = {TUTTI_DTYPE_FP32, 1, {-1}};
    const tutti_spec nothing = {TUTTI_DTYPE_NONE, 1, {1}};
    uint64_t count = 99;
    uint64_t bytes = 99;
    tutti_error err;

    (void)state;
    assert_ok(tutti_spec_size(&scalar, &count, &bytes, &err));
    assert_true(count == 1 && bytes == 8);
    assert_ok(tutti_spec_size(&matrix, &count, &bytes, &err));
    assert_true(count == 30 && bytes == 60);
    assert_ok(tutti_spec_size(&empty, &count, &bytes, &err));
    assert_true(count == 0 && bytes == 0);
    assert_fails(tutti_spec_size(&huge, &count, &bytes, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_SHAPE");
    assert_fails(tutti_spec_size(&negative, &count, &bytes, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_spec_size(&nothing, &count, &bytes, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_DTYPE");
    assert_true(count == 0 && bytes == 0); /* failures touched nothing */
    assert_ok(tutti_spec_size(&matrix, NULL, NULL, &err));
}

static void
test_range_format__writes_what_ops_take_and_refuses_what_they_would(void **state)
{
    const tutti_spec matrix = {TUTTI_DTYPE_FP32, 2, {2, 8}};
    const tutti_spec scalar = {TUTTI_DTYPE_BF16, 0, {0}};
    const tutti_spec negative = {TUTTI_DTYPE_FP32, 1, {-1}};
    const tutti_spec nothing = {TUTTI_DTYPE_NONE, 1, {1}};
    tutti_spec most = {TUTTI_DTYPE_COMPLEX128, TUTTI_DIMS_MAX, {0}};
    char name[TUTTI_NAME_MAX + 2];
    char text[TUTTI_RANGE_MAX + 1];
    tutti_error err;
    uint32_t i;

    (void)state;
    assert_ok(tutti_range_format("weights", 256, &matrix, text, &err));
    assert_string_equal(text, "weights@256:FP32[2,8]");
    assert_ok(tutti_range_format("w", 0, &scalar, text, &err));
    assert_string_equal(text, "w@0:BF16[]");
    assert_fails(tutti_range_format("w", 2, &matrix, text, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANGE_ALIGN");
    assert_string_equal(err.text,
                        "a range of FP32 from byte 2 on: need a multiple of the 4 bytes of "
                        "an element");
    assert_fails(tutti_range_format("w", 0, &negative, text, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_SHAPE");
    assert_fails(tutti_range_format("w", 0, &nothing, text, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_DTYPE");
    assert_fails(tutti_range_format("w@0:FP32[1]", 0, &matrix, text, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_HANDLE");
    assert_fails(tutti_range_format("", 0, &matrix, text, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_range_format(NULL, 0, &matrix, text, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(text, "w@0:BF16[]"); /* failures touched nothing */

    memset(name, 'n', sizeof(name)); /* the longest there is */
    name[TUTTI_NAME_MAX + 1] = '\0';
    assert_fails(tutti_range_format(name, 0, &matrix, text, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_HANDLE");
    name[TUTTI_NAME_MAX] = '\0';
    most.dims[1] = INT64_MAX / 16;
    for (i = 2; i < TUTTI_DIMS_MAX; i++) {
        most.dims[i] = 1;
    }
    assert_ok(tutti_range_format(name, UINT64_MAX - 15, &most, text, &err));
    assert_true(strlen(text) < TUTTI_RANGE_MAX && text[strlen(text) - 1] == ']');
}

/* All sizes where something changes: copied or lent, one message or a stream, one chunk or two. */
static void
test_put_read__bring_bytes_back_at_every_border(void **state)
{
    static const size_t sizes[] = {0,           1,           65536,       65537,
                                   3 * MIB - 1, 3 * MIB,     3 * MIB + 1, 4 * MIB - 1,
                                   4 * MIB,     4 * MIB + 1, 9 * MIB,     16 * MIB + 7};
    client_rig *rig = *state;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(sizes); i++) {
        const size_t size = sizes[i];
        const bool streamed = size > TUTTI_INLINE_BYTES_MAX;
        unsigned char *bytes = make_bytes(size);
        unsigned char *back = calloc(1, size + 1);
        const unsigned uploads = atomic_load(&rig->agent.upload_count);
        const unsigned downloads = atomic_load(&rig->agent.download_count);

        assert_non_null(back);
        assert_ok(put(rig, bytes, size, NULL, &err));
        assert_int_equal(rig->agent.size, size);
        assert_memory_equal(rig->agent.bytes, bytes, size);
        assert_int_equal(atomic_load(&rig->agent.upload_count) - uploads, streamed ? 1 : 0);
        if (streamed) {
            assert_int_equal(atomic_load(&rig->agent.chunk_count),
                             (size + 2 * MIB - 1) / (2 * MIB));
        }
        assert_ok(tutti_tensor_read(rig->client, "t", back, size, NULL, &err));
        assert_memory_equal(back, bytes, size);
        assert_int_equal(atomic_load(&rig->agent.download_count) - downloads, streamed ? 1 : 0);
        free(back);
        free(bytes);
    }
}

/* The memory is gone the moment put returns: whoever still looked at it would crash. */
static void
test_put__looks_at_nothing_after_it_has_returned(void **state)
{
    static const size_t sizes[] = {1 * MIB, 20 * MIB};
    client_rig *rig = *state;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(sizes); i++) {
        void *memory =
            mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_true(memory != MAP_FAILED);
        memset(memory, 7, sizes[i]);
        assert_ok(put(rig, memory, sizes[i], NULL, &err));
        assert_int_equal(munmap(memory, sizes[i]), 0);
        memory = mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        rig->agent.script.mischief = FAKE_BREAK_OFF;
        rig->agent.script.mischief_chunks = 2;
        (void)TUTTI_FAIL(&rig->agent.script.error, TUTTI_DATA_LOSS, "broken off");
        rig->agent.script.fail_method = "Put";
        assert_fails(put(rig, memory, sizes[i], NULL, &err), TUTTI_DATA_LOSS);
        assert_int_equal(munmap(memory, sizes[i]), 0);
        rig->agent.script.mischief = FAKE_WELL;
        rig->agent.script.fail_method = NULL;
    }
    assert_ok(tutti_tensor_delete(rig->client, "t", &err)); /* the connection has survived */
}

static void
test_put__gives_the_handle_that_the_agent_made(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {2, 3}};
    const float values[6] = {1, 2, 3, 4, 5, 6};
    tutti_handle handle;
    tutti_error err;

    assert_ok(tutti_tensor_put(rig->client, &spec, values, "weights", NULL, &handle, &err));
    assert_string_equal(handle.text, "tensor:0.0000000000000001.1");
    assert_true(handle.known);
    assert_int_equal(handle.spec.dtype, TUTTI_DTYPE_FP32);
    assert_int_equal(handle.spec.dim_count, 2);
    assert_int_equal(handle.spec.dims[1], 3);
    assert_string_equal(rig->agent.made[0], "weights");
}

static void
test_put__passes_the_servers_error_whole(void **state)
{
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(8 * MIB);
    tutti_error *error = &rig->agent.script.error;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(error, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT",
                         "8 MiB asked, 60 MiB of 64 MiB used (--memory-limit)");
    rig->agent.script.fail_method = "Put";
    assert_fails(put(rig, bytes, 100, NULL, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MEMORY_LIMIT");
    assert_string_equal(err.text, error->text);
    rig->agent.script.mischief = FAKE_BREAK_OFF;
    for (rig->agent.script.mischief_chunks = 1; rig->agent.script.mischief_chunks < 5;
         rig->agent.script.mischief_chunks++) {
        assert_fails(put(rig, bytes, 8 * MIB, NULL, &err), TUTTI_RESOURCE_EXHAUSTED);
        assert_string_equal(err.reason, "MEMORY_LIMIT");
    }
    free(bytes);
}

static void
test_put__that_was_not_taken_whole_is_data_loss(void **state)
{
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(4 * MIB);
    tutti_error err;

    rig->agent.script.mischief = FAKE_COUNT_LESS;
    assert_fails(put(rig, bytes, 4 * MIB, NULL, &err), TUTTI_DATA_LOSS);
    assert_text_has(err.text, "4194304 bytes were sent, the agent took 4194303");
    free(bytes);
}

static void
test_transfer__that_does_not_move_is_given_up(void **state)
{
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(40 * MIB);
    tutti_transfer transfer;
    uint64_t began;
    tutti_error err;

    tutti_transfer_init(&transfer);
    assert_ok(put(rig, bytes, 8 * MIB, &transfer, &err));
    transfer.timeout_ms = 150;
    rig->agent.script.mischief = FAKE_STALL;
    rig->agent.script.mischief_chunks = 2;
    began = tutti_clock_ns();
    assert_fails(tutti_tensor_read(rig->client, "t", bytes, 8 * MIB, &transfer, &err),
                 TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(err.reason, "STALLED");
    assert_text_has(err.text, "nothing moved for 150 ms");
    assert_text_has(err.text, "of 8 MiB");
    assert_true(tutti_clock_ns() - began >= 150 * TUTTI_NS_PER_MS);
    assert_fails(put(rig, bytes, 40 * MIB, &transfer, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(err.reason, "STALLED");
    fake_agent_settle(&rig->agent);
    rig->agent.script.mischief = FAKE_WELL;
    transfer.timeout_ms = 0;
    assert_ok(put(rig, bytes, 8 * MIB, &transfer, &err));
    free(bytes);
}

/* A progress callback's diary. */
typedef struct diary {
    uint64_t done;
    uint64_t total;
    unsigned calls;
    unsigned stop_at;
} diary;

static bool
on_progress(void *arg, uint64_t done, uint64_t total)
{
    diary *self = arg;

    assert_true(done >= self->done);
    self->done = done;
    self->total = total;
    return ++self->calls != self->stop_at;
}

static void
test_transfer__tells_how_far_it_is(void **state)
{
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(5 * MIB);
    diary told = {0};
    tutti_transfer transfer;
    tutti_error err;

    tutti_transfer_init(&transfer);
    transfer.on_progress = on_progress;
    transfer.arg = &told;
    transfer.chunk_bytes = MIB;
    assert_ok(put(rig, bytes, 5 * MIB, &transfer, &err));
    assert_true(told.calls == 5 && told.done == 5 * MIB && told.total == 5 * MIB);
    told = (diary){0};
    assert_ok(tutti_tensor_read(rig->client, "t", bytes, 5 * MIB, &transfer, &err));
    assert_true(told.calls >= 5 && told.done == 5 * MIB);
    told = (diary){0};
    assert_ok(put(rig, bytes, 10, &transfer, &err));
    assert_true(told.calls == 1 && told.done == 10);
    free(bytes);
}

static void
test_transfer__can_be_given_up(void **state)
{
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(8 * MIB);
    diary told = {.stop_at = 2};
    tutti_transfer transfer;
    tutti_error err;

    assert_ok(put(rig, bytes, 8 * MIB, NULL, &err));
    tutti_transfer_init(&transfer);
    transfer.on_progress = on_progress;
    transfer.arg = &told;
    assert_fails(put(rig, bytes, 8 * MIB, &transfer, &err), TUTTI_CANCELLED);
    assert_text_has(err.text, "given up after 4194304 of 8388608 bytes");
    assert_int_equal(told.calls, 2);
    fake_agent_settle(&rig->agent);
    assert_ok(put(rig, bytes, 8 * MIB, NULL, &err));
    told = (diary){.stop_at = 1};
    assert_fails(tutti_tensor_read(rig->client, "t", bytes, 8 * MIB, &transfer, &err),
                 TUTTI_CANCELLED);
    free(bytes);
}

/* The others would wait for ever: whoever fails cancels them, and its words are those that count.
 */
static void
test_transfer__of_which_one_stream_fails_fails_with_its_words(void **state)
{
    static const unsigned borders[] = {4 * MIB, 8 * MIB, 12 * MIB};
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(12 * MIB);
    tutti_transfer transfer;
    tutti_error err;
    char words[32];
    size_t i;

    tutti_transfer_init(&transfer);
    transfer.streams = 3;
    assert_ok(put(rig, bytes, 12 * MIB, &transfer, &err)); /* an agent that knows of one alone */
    tutti_close(rig->client);
    rig->agent.script.streams_max = 16;
    rig->agent.script.mischief = FAKE_BREAK_PART;
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT",
                         "no room");
    assert_ok(tutti_connect(fake_agent_address(&rig->agent), &rig->client, &err));
    for (i = 0; i < COUNT_OF(borders); i++) {
        rig->agent.script.mischief_chunks = borders[i];
        assert_fails(put(rig, bytes, 12 * MIB, &transfer, &err), TUTTI_RESOURCE_EXHAUSTED);
        assert_string_equal(err.reason, "MEMORY_LIMIT");
        (void)snprintf(words, sizeof(words), "stream %zu of 3: no room", i + 1);
        assert_text_has(err.text, words);
        fake_agent_settle(&rig->agent);
    }
    transfer.timeout_ms = 300; /* nobody answers, for no part is bad */
    rig->agent.script.mischief = FAKE_WELL;
    assert_fails(put(rig, bytes, 12 * MIB, &transfer, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(err.reason, "STALLED");
    fake_agent_settle(&rig->agent);
    free(bytes);
}

static void
test_transfer__checks_its_chunks(void **state)
{
    client_rig *rig = *state;
    tutti_transfer transfer;
    tutti_error err;

    tutti_transfer_init(&transfer);
    transfer.chunk_bytes = 4095;
    assert_fails(put(rig, "x", 1, &transfer, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "CHUNK_LIMIT");
    transfer.chunk_bytes = TUTTI_CHUNK_BYTES_MAX + 1;
    assert_fails(put(rig, "x", 1, &transfer, &err), TUTTI_INVALID_ARGUMENT);
    transfer.size = 0;
    assert_fails(put(rig, "x", 1, &transfer, &err), TUTTI_INVALID_ARGUMENT);
}

/* A download that lies. */
static void
read_with(client_rig *rig, fake_mischief mischief, unsigned chunks, tutti_code wanted,
          const char *words)
{
    const size_t guard = 64;
    unsigned char *back = malloc(8 * MIB + guard);
    tutti_error err;
    size_t i;

    assert_non_null(back);
    memset(back, 0x5a, 8 * MIB + guard);
    rig->agent.script.mischief = mischief;
    rig->agent.script.mischief_chunks = chunks;
    assert_fails(tutti_tensor_read(rig->client, "t", back, 8 * MIB, NULL, &err), wanted);
    assert_text_has(err.text, words);
    for (i = 0; i < guard; i++) {
        assert_int_equal(back[8 * MIB + i], 0x5a);
    }
    free(back);
}

static void
test_read__of_an_agent_that_lies_is_data_loss(void **state)
{
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(8 * MIB);
    tutti_error err;

    assert_ok(put(rig, bytes, 8 * MIB, NULL, &err));
    free(bytes);
    read_with(rig, FAKE_END_EARLY, 3, TUTTI_DATA_LOSS, "after 2097152 of 8388608 bytes");
    read_with(rig, FAKE_END_EARLY, 1, TUTTI_DATA_LOSS, "after 0 of 8388608 bytes");
    read_with(rig, FAKE_TOO_MUCH, 0, TUTTI_DATA_LOSS, "8388608 of 8388608 were next");
    read_with(rig, FAKE_WRONG_OFFSET, 3, TUTTI_DATA_LOSS, "for offset 2097153, 2097152 of");
    read_with(rig, FAKE_WRONG_SPEC, 0, TUTTI_DATA_LOSS, "17 dimensions");
    read_with(rig, FAKE_NO_HANDLE, 0, TUTTI_DATA_LOSS, "without a handle");
    (void)TUTTI_FAIL(&rig->agent.script.error, TUTTI_UNAVAILABLE, "rank 3 is lost");
    read_with(rig, FAKE_BREAK_OFF, 3, TUTTI_UNAVAILABLE, "rank 3 is lost");
}

static void
test_read__into_memory_of_another_size_is_refused(void **state)
{
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(8 * MIB);
    tutti_error err;

    assert_ok(put(rig, bytes, 8 * MIB, NULL, &err));
    assert_fails(tutti_tensor_read(rig->client, "t", bytes, 8 * MIB - 1, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    assert_text_has(err.text, "t has 8388608 bytes, not the 8388607 to read");
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_FAILED_PRECONDITION, "INLINE_LIMIT", "-");
    rig->agent.script.fail_method = "Get";
    assert_fails(tutti_tensor_read(rig->client, "t", bytes, 10, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    assert_text_has(err.text, "larger than the 10 bytes");
    rig->agent.script.fail_method = NULL;
    assert_ok(put(rig, bytes, 11, NULL, &err));
    assert_fails(tutti_tensor_read(rig->client, "t", bytes, 10, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    free(bytes);
}

static void
test_answers__without_sense_are_data_loss(void **state)
{
    static const fake_mischief mischiefs[] = {FAKE_WRONG_SPEC, FAKE_NO_HANDLE, FAKE_LONG_HANDLE};
    client_rig *rig = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 0, {0}};
    const float value = 1;
    tutti_tensor_info info;
    tutti_handle handle;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(mischiefs); i++) {
        rig->agent.script.mischief = mischiefs[i];
        assert_fails(tutti_tensor_create(rig->client, &spec, NULL, &handle, &err), TUTTI_DATA_LOSS);
        assert_fails(tutti_tensor_put(rig->client, &spec, &value, NULL, NULL, &handle, &err),
                     TUTTI_DATA_LOSS);
        assert_fails(tutti_tensor_copy(rig->client, "t", NULL, NULL, &handle, &err),
                     TUTTI_DATA_LOSS);
        assert_fails(tutti_tensor_stat(rig->client, "t", &info, &err), TUTTI_DATA_LOSS);
    }
}

static void
test_handles__are_checked_before_they_travel(void **state)
{
    client_rig *rig = *state;
    char endless[200];
    char byte;
    tutti_handle handle;
    tutti_error err;

    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_fails(tutti_tensor_delete(rig->client, "", &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_HANDLE");
    assert_fails(tutti_tensor_delete(rig->client, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_tensor_read(rig->client, endless, &byte, 1, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "199 bytes");
    assert_fails(tutti_tensor_copy(rig->client, NULL, NULL, NULL, &handle, &err),
                 TUTTI_INVALID_ARGUMENT);
}

static void
test_stat__tells_which_op_failed(void **state)
{
    client_rig *rig = *state;
    tutti_tensor_info info;
    tutti_error err;

    assert_ok(tutti_tensor_stat(rig->client, "weights", &info, &err));
    assert_string_equal(info.name, "weights");
    assert_int_equal(info.bytes, 24);
    assert_true(info.failed && !info.pending);
    assert_int_equal(info.error.code, TUTTI_UNAVAILABLE);
    assert_string_equal(info.error.reason, "RANK_LOST");
    assert_string_equal(info.error.text, "rank 3 is lost");
    assert_string_equal(info.error.group, "world");
    assert_int_equal(info.error.sequence, 41);
    assert_int_equal(info.error.rank, 3);
}

static void
test_list__goes_through_all_pages(void **state)
{
    static const unsigned counts[] = {0, 1, 3, 4, 10};
    client_rig *rig = *state;
    tutti_tensor_info *infos = NULL;
    size_t count = 0;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(counts); i++) {
        rig->agent.script.list_count = counts[i];
        assert_ok(tutti_tensor_list(rig->client, &infos, &count, &err));
        assert_int_equal(count, counts[i]);
        if (count > 0) {
            char last[32];

            (void)snprintf(last, sizeof(last), "t%zu", count - 1);
            assert_string_equal(infos[count - 1].name, last);
        }
        tutti_free(infos);
    }
    rig->agent.script.mischief = FAKE_LONG_HANDLE;
    assert_fails(tutti_tensor_list(rig->client, &infos, &count, &err), TUTTI_DATA_LOSS);
}

static bool
on_entry(void *arg, const tutti_kv_entry *entry)
{
    (void)entry;
    ++*(unsigned *)arg;
    return true;
}

static void
test_kv_list__of_a_store_that_lies_is_data_loss(void **state)
{
    client_rig *rig = *state;
    unsigned count = 0;
    tutti_error err;

    assert_fails(tutti_kv_list(rig->client, "", 0, on_entry, &count, &err), TUTTI_DATA_LOSS);
    assert_text_has(err.text, "page token of 8192 bytes");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec_size__counts_elements_and_bytes),
        cmocka_unit_test(test_range_format__writes_what_ops_take_and_refuses_what_they_would),
        client_test(test_put_read__bring_bytes_back_at_every_border),
        client_test(test_put__looks_at_nothing_after_it_has_returned),
        client_test(test_put__gives_the_handle_that_the_agent_made),
        client_test(test_put__passes_the_servers_error_whole),
        client_test(test_put__that_was_not_taken_whole_is_data_loss),
        client_test(test_transfer__that_does_not_move_is_given_up),
        client_test(test_transfer__tells_how_far_it_is),
        client_test(test_transfer__can_be_given_up),
        client_test(test_transfer__of_which_one_stream_fails_fails_with_its_words),
        client_test(test_transfer__checks_its_chunks),
        client_test(test_read__of_an_agent_that_lies_is_data_loss),
        client_test(test_read__into_memory_of_another_size_is_refused),
        client_test(test_answers__without_sense_are_data_loss),
        client_test(test_handles__are_checked_before_they_travel),
        client_test(test_stat__tells_which_op_failed),
        client_test(test_list__goes_through_all_pages),
        client_test(test_kv_list__of_a_store_that_lies_is_data_loss),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
