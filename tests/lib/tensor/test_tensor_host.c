/*
 * Goal: host memory keeps the contract, can be shared, and goes back to the kernel when it should.
 * Method: the contract list with three sizes of kept memory; the memfd's own block count.
 */
#include "space_contract.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/sweep.h"
#include "support/testing.h"

#include "tensor/host/host.h"

#define KIB 1024ULL
#define MIB (1024ULL * KIB)

static tutti_space *
open_space(uint64_t limit_bytes, uint64_t kept_bytes_max)
{
    const tutti_space_host_options options = {limit_bytes, kept_bytes_max};
    tutti_space *space = NULL;
    tutti_error err;

    assert_ok(tutti_space_host_open(&options, &space, &err));
    return space;
}

static tutti_tensor *
make_tensor(tutti_space *space, uint64_t bytes)
{
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {(int64_t)bytes}};
    tutti_tensor *tensor = NULL;
    tutti_error err;

    assert_ok(tutti_tensor_new(space, &spec, false, &tensor, &err));
    return tensor;
}

/* What the kernel has given for the memfd. */
static uint64_t
backed_bytes(tutti_space *space)
{
    struct stat file;

    assert_int_equal(fstat(tutti_space_host_descriptor(space), &file), 0);
    return (uint64_t)file.st_blocks * 512;
}

static uint64_t
kept_bytes(tutti_space *space)
{
    tutti_space_stats stats;

    tutti_space_stat(space, &stats);
    return stats.kept_bytes;
}

static void
test_space_host__can_be_mapped_a_second_time(void **state)
{
    tutti_space *space = open_space(MIB, 0);
    tutti_tensor *other = make_tensor(space, 5000);
    tutti_tensor *tensor = make_tensor(space, 100 * KIB);
    unsigned char *window;

    (void)state;
    window =
        mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, tutti_space_host_descriptor(space), 0);
    assert_ptr_not_equal(window, MAP_FAILED);
    memset(tensor->data, 0xab, tensor->bytes);
    assert_memory_equal(window + tensor->offset, tensor->data, tensor->bytes);
    window[tensor->offset + 77] = 1;
    assert_int_equal(((unsigned char *)tensor->data)[77], 1);
    assert_int_equal(munmap(window, MIB), 0);
    tutti_tensor_unref(tensor);
    tutti_tensor_unref(other);
    tutti_space_close(space);
}

/* Whoever has the descriptor may scribble over everything; blocks stay where they are. */
static void
test_space_host__survives_scribbling_over_all_of_it(void **state)
{
    tutti_space *space = open_space(MIB, 0);
    tutti_tensor *first = make_tensor(space, 1000);
    tutti_tensor *second = make_tensor(space, 200 * KIB);
    unsigned char *window;

    (void)state;
    window =
        mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, tutti_space_host_descriptor(space), 0);
    assert_ptr_not_equal(window, MAP_FAILED);
    memset(window, 0xff, MIB);
    tutti_tensor_unref(first);
    first = make_tensor(space, 300 * KIB);
    tutti_tensor_unref(second);
    tutti_tensor_unref(first);
    first = make_tensor(space, MIB);
    tutti_tensor_unref(first);
    assert_int_equal(munmap(window, MIB), 0);
    tutti_space_close(space);
}

/* Raw memory is left as it was, clean memory never is, whatever was taken raw in between. */
static void
test_tensor_new_raw__clears_nothing_and_hides_nothing_from_clean_ones(void **state)
{
    static const uint64_t sizes[] = {1, 64, 4096, 65536, 200000};
    tutti_error err;
    size_t i;
    size_t k;

    (void)state;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {(int64_t)sizes[i]}};
        tutti_space *space = open_space(1 << 20, 1 << 20);
        tutti_tensor *neighbour = make_tensor(space, 64);
        tutti_tensor *raw = NULL;
        tutti_tensor *clean;

        assert_ok(tutti_tensor_new_raw(space, &spec, &raw, &err));
        memset(raw->data, 0xa5, sizes[i]);
        tutti_tensor_unref(raw);
        assert_ok(tutti_tensor_new_raw(space, &spec, &raw, &err));
        assert_int_equal(((const unsigned char *)raw->data)[sizes[i] - 1], 0xa5);
        tutti_tensor_unref(raw);
        clean = make_tensor(space, sizes[i]);
        for (k = 0; k < sizes[i]; k++) {
            assert_int_equal(((const unsigned char *)clean->data)[k], 0);
        }
        tutti_tensor_unref(clean);
        tutti_tensor_unref(neighbour);
        tutti_space_close(space);
    }
}

static void
test_space_host__cannot_be_shrunk_by_who_has_the_descriptor(void **state)
{
    tutti_space *space = open_space(MIB, 0);
    const int fd = tutti_space_host_descriptor(space);

    (void)state;
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, (off_t)(2 * MIB)), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    tutti_space_close(space);
}

static void
test_space_host__takes_no_memory_before_it_is_touched(void **state)
{
    tutti_space *space = open_space(64ULL << 30, 0);
    tutti_tensor *tensor = make_tensor(space, 32ULL << 30);

    (void)state;
    assert_int_equal(backed_bytes(space), 0);
    ((unsigned char *)tensor->data)[17 * MIB] = 1;
    assert_in_range(backed_bytes(space), 1, 2 * MIB);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

static void
test_space_host__gives_back_what_was_free_between_two_trims(void **state)
{
    tutti_space *space = open_space(64 * MIB, 64 * MIB);
    tutti_tensor *used = make_tensor(space, MIB);
    tutti_tensor *first = make_tensor(space, 8 * MIB);
    tutti_tensor *second = make_tensor(space, 4 * MIB);

    (void)state;
    memset(used->data, 7, used->bytes);
    memset(first->data, 1, first->bytes);
    memset(second->data, 1, second->bytes);
    tutti_tensor_unref(first);
    assert_false(tutti_space_host_trim(space, 64 * MIB));
    assert_int_equal(backed_bytes(space), 13 * MIB); /* it was free for no time */
    tutti_tensor_unref(second);
    first = make_tensor(space, 2 * MIB);          /* of the first hole, used again */
    assert_true(tutti_space_host_trim(space, 1)); /* in steps */
    while (tutti_space_host_trim(space, 1)) {
    }
    assert_int_equal(backed_bytes(space), 7 * MIB); /* 6 of 8 MiB, and none of the second */
    assert_int_equal(kept_bytes(space), 4 * MIB);
    assert_false(tutti_space_host_trim(space, 64 * MIB));
    assert_int_equal(backed_bytes(space), 3 * MIB);
    assert_int_equal(kept_bytes(space), 0);
    assert_int_equal(((unsigned char *)used->data)[MIB - 1], 7);
    tutti_tensor_unref(first);
    first = make_tensor(space, 8 * MIB);
    assert_int_equal(((unsigned char *)first->data)[8 * MIB - 1], 0);
    tutti_tensor_unref(first);
    tutti_tensor_unref(used);
    tutti_space_close(space);
}

static void
test_space_host__gives_back_what_is_over_what_it_keeps(void **state)
{
    tutti_space *space = open_space(16 * MIB, 2 * MIB);
    tutti_tensor *kept = make_tensor(space, MIB);
    tutti_tensor *large = make_tensor(space, 8 * MIB);

    (void)state;
    memset(kept->data, 1, kept->bytes);
    memset(large->data, 1, large->bytes);
    assert_int_equal(backed_bytes(space), 9 * MIB);
    assert_int_equal(kept_bytes(space), 0);
    tutti_tensor_unref(kept);
    assert_int_equal(backed_bytes(space), 9 * MIB);
    assert_int_equal(kept_bytes(space), MIB);
    tutti_tensor_unref(large);
    assert_int_equal(backed_bytes(space), MIB);
    assert_int_equal(kept_bytes(space), MIB);
    kept = make_tensor(space, MIB);
    assert_int_equal(kept_bytes(space), 0);
    tutti_tensor_unref(kept);
    tutti_space_close(space);
}

/* Each alone has no whole page, and yet all of it goes back. */
static void
test_space_host__gives_back_what_many_small_tensors_had(void **state)
{
    tutti_tensor *tensors[3000];
    tutti_space *space = open_space(4 * MIB, 64 * KIB);
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(tensors); i++) {
        tensors[i] = make_tensor(space, 1000);
        memset(tensors[i]->data, 1, tensors[i]->bytes);
    }
    assert_in_range(backed_bytes(space), 3000 * 1000, 4 * MIB);
    for (i = 0; i < COUNT_OF(tensors); i++) {
        tutti_tensor_unref(tensors[i * 7 % COUNT_OF(tensors)]); /* 7 and 3000: each once */
    }
    assert_in_range(backed_bytes(space), 0, 128 * KIB);
    assert_in_range(kept_bytes(space), 0, 64 * KIB);
    tutti_space_close(space);
}

static void
test_space_host_open__rounds_the_limit_up_to_pages(void **state)
{
    static const uint64_t limits[][2] = {{0, 4096}, {1, 4096}, {4096, 4096}, {4097, 8192}};
    tutti_space_stats stats;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(limits); i++) {
        tutti_space *space = open_space(limits[i][0], 0);

        tutti_space_stat(space, &stats);
        assert_int_equal(stats.limit_bytes, limits[i][1]);
        assert_int_equal(stats.hole_bytes_max, limits[i][1]);
        tutti_tensor_unref(make_tensor(space, limits[i][1]));
        tutti_space_close(space);
    }
}

static void
test_space_host_open__of_more_than_can_be_mapped_says_how_much(void **state)
{
    static const uint64_t limits[] = {1ULL << 50, INT64_MAX - 4096ULL, INT64_MAX, UINT64_MAX};
    tutti_space *space = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(limits); i++) {
        const tutti_space_host_options options = {.limit_bytes = limits[i]};

        assert_fails(tutti_space_host_open(&options, &space, &err), TUTTI_RESOURCE_EXHAUSTED);
        assert_text_has(err.text, "map");
        assert_null(space);
    }
}

/* Open a space, take, give, close: every allocation on the way may fail. */
static tutti_code
use_once(tutti_error *err)
{
    const tutti_space_host_options options = {.limit_bytes = 8 * MIB};
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {2 * MIB}};
    tutti_tensor *small = NULL;
    tutti_tensor *large = NULL;
    tutti_space *space = NULL;
    tutti_code code = tutti_space_host_open(&options, &space, err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = tutti_tensor_new(space, &(tutti_spec){TUTTI_DTYPE_FP32, 0, {0}}, true, &small, err);
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(space, &spec, true, &large, err);
    }
    tutti_tensor_unref(large);
    tutti_tensor_unref(small);
    tutti_space_close(space);
    return code;
}

static void
test_space_host__survives_every_refused_allocation(void **state)
{
    tutti_code code = TUTTI_INTERNAL;
    tutti_error err;
    size_t n;

    (void)state;
    for (n = 0; code != TUTTI_OK; n++) {
        sweep_fail_at(n);
        code = use_once(&err);
        assert_int_equal(sweep_stop(), code != TUTTI_OK);
        assert_true(code == TUTTI_OK || code == TUTTI_RESOURCE_EXHAUSTED);
        if (code != TUTTI_OK) {
            assert_text_has(err.text, "no memory for");
        }
    }
    assert_in_range(n, 7, 20);
}

static void
host_write(tutti_tensor *tensor, uint64_t offset, const void *bytes, size_t size)
{
    memcpy((unsigned char *)tensor->data + offset, bytes, size);
}

static void
host_read(tutti_tensor *tensor, uint64_t offset, void *ret_bytes, size_t size)
{
    memcpy(ret_bytes, (unsigned char *)tensor->data + offset, size);
}

static tutti_space *
open_keeping_some(uint64_t limit_bytes)
{
    return open_space(limit_bytes, 0);
}

static tutti_space *
open_keeping_all(uint64_t limit_bytes)
{
    return open_space(limit_bytes, limit_bytes);
}

static tutti_space *
open_keeping_nothing(uint64_t limit_bytes)
{
    return open_space(limit_bytes, 1);
}

/* ------------------------------------------------------------------------------ own memory */

static void
test_tensor_own__moves_the_bytes_to_a_file_of_their_own(void **state)
{
    tutti_space *space = open_space(MIB, 0);
    tutti_tensor *other = make_tensor(space, 5000);
    tutti_tensor *tensor = make_tensor(space, 100 * KIB + 3);
    const void *before = tensor->data;
    unsigned char *window;
    tutti_error err;

    (void)state;
    memset(other->data, 0x11, other->bytes);
    memset(tensor->data, 0xab, tensor->bytes);
    assert_ok(tutti_tensor_own(tensor, &err));
    assert_true(tutti_tensor_is_own(tensor));
    assert_ptr_not_equal(tensor->data, before);
    window = mmap(NULL, tensor->bytes, PROT_READ, MAP_SHARED, tutti_tensor_descriptor(tensor), 0);
    assert_ptr_not_equal(window, MAP_FAILED);
    assert_int_equal(window[0], 0xab);
    assert_memory_equal(window, tensor->data, tensor->bytes);
    memset(tensor->data, 0xcd, tensor->bytes);
    assert_int_equal(window[tensor->bytes - 1], 0xcd);
    assert_int_equal(((unsigned char *)other->data)[4999], 0x11);
    assert_ok(tutti_tensor_own(tensor, &err)); /* once is enough */
    assert_int_equal(munmap(window, tensor->bytes), 0);
    tutti_tensor_unref(tensor);
    tutti_tensor_unref(other);
    tutti_space_close(space);
}

static void
test_tensor_own__counts_as_before_and_gives_all_back(void **state)
{
    tutti_space *space = open_space(8 * MIB, 8 * MIB);
    tutti_tensor *tensor = make_tensor(space, 4 * MIB);
    tutti_space_stats before;
    tutti_space_stats after;
    tutti_error err;

    (void)state;
    memset(tensor->data, 1, tensor->bytes);
    tutti_space_stat(space, &before);
    assert_int_equal(backed_bytes(space), 4 * MIB);
    assert_ok(tutti_tensor_own(tensor, &err));
    assert_int_equal(backed_bytes(space), 0);
    tutti_space_stat(space, &after);
    assert_int_equal(after.used_bytes, before.used_bytes);
    tutti_tensor_unref(tensor);
    assert_int_equal(kept_bytes(space), 0);
    tensor = make_tensor(space, 8 * MIB); /* all of it, and zero again */
    assert_int_equal(((unsigned char *)tensor->data)[MIB], 0);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

static void
test_tensor_own__of_what_was_never_written_costs_nothing(void **state)
{
    tutti_space *space = open_space(64ULL << 30, 0);
    tutti_tensor *tensor = make_tensor(space, 32ULL << 30);
    struct stat file;
    tutti_error err;

    (void)state;
    ((unsigned char *)tensor->data)[5ULL << 30] = 1;
    assert_ok(tutti_tensor_own(tensor, &err));
    assert_int_equal(((unsigned char *)tensor->data)[5ULL << 30], 1);
    assert_int_equal(fstat(tutti_tensor_descriptor(tensor), &file), 0);
    assert_in_range(file.st_blocks * 512, 1, 4 * MIB);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

static void
test_tensor_own__cannot_shrink_and_is_not_opened_anew_for_writing(void **state)
{
    tutti_space *space = open_space(MIB, 0);
    tutti_tensor *tensor = make_tensor(space, 10);
    struct stat file;
    tutti_error err;

    (void)state;
    assert_ok(tutti_tensor_own(tensor, &err));
    assert_int_equal(ftruncate(tutti_tensor_descriptor(tensor), 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fstat(tutti_tensor_descriptor(tensor), &file), 0);
    assert_int_equal(file.st_mode & 0777, 0400);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

static void
test_space_find__knows_whose_memory_it_is_until_it_goes(void **state)
{
    tutti_space *space = open_space(MIB, 0);
    tutti_tensor *tensors[3];
    tutti_space_host_region region;
    uint32_t ids[3];
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        tensors[i] = make_tensor(space, 10000 * (i + 1));
        assert_false(tutti_space_host_find(space, tensors[i]->data, 1, &region));
        assert_ok(tutti_tensor_own(tensors[i], &err));
    }
    for (i = 0; i < 3; i++) {
        unsigned char *data = tensors[i]->data;

        assert_true(tutti_space_host_find(space, data + 5, tensors[i]->bytes - 5, &region));
        assert_ptr_equal(region.base, data);
        assert_int_equal(region.fd, tutti_tensor_descriptor(tensors[i]));
        assert_false(tutti_space_host_find(space, data + 5, region.size, &region));
        ids[i] = region.id;
    }
    assert_true(ids[0] != 0 && ids[0] != ids[1] && ids[1] != ids[2]);
    assert_int_equal(tutti_space_host_gone(space), 0);
    assert_int_equal(tutti_space_host_owned(space), 3);
    for (i = 0; i < 3; i++) {
        const void *data = tensors[i]->data;

        tutti_tensor_unref(tensors[i]);
        assert_false(tutti_space_host_find(space, data, 1, &region));
        assert_int_equal(tutti_space_host_gone(space), i + 1);
        assert_int_equal(tutti_space_host_owned(space), 2 - i);
    }
    tutti_space_close(space);
}

static void
test_tensor_own__of_no_bytes_is_refused(void **state)
{
    tutti_space *space = open_space(MIB, 0);
    tutti_tensor *tensor = make_tensor(space, 0);
    tutti_error err;

    (void)state;
    assert_fails(tutti_tensor_own(tensor, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "CANNOT_SHARE");
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

int
main(void)
{
    static const space_kind kinds[] = {
        {"tensor/host", open_keeping_some, host_write, host_read, false, 0},
        {"tensor/host keeping all", open_keeping_all, host_write, host_read, false, 0},
        {"tensor/host keeping nothing", open_keeping_nothing, host_write, host_read, false, 0},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_space_host__can_be_mapped_a_second_time),
        cmocka_unit_test(test_space_host__survives_scribbling_over_all_of_it),
        cmocka_unit_test(test_tensor_new_raw__clears_nothing_and_hides_nothing_from_clean_ones),
        cmocka_unit_test(test_space_host__cannot_be_shrunk_by_who_has_the_descriptor),
        cmocka_unit_test(test_space_host__takes_no_memory_before_it_is_touched),
        cmocka_unit_test(test_space_host__gives_back_what_was_free_between_two_trims),
        cmocka_unit_test(test_space_host__gives_back_what_is_over_what_it_keeps),
        cmocka_unit_test(test_space_host__gives_back_what_many_small_tensors_had),
        cmocka_unit_test(test_space_host_open__rounds_the_limit_up_to_pages),
        cmocka_unit_test(test_space_host_open__of_more_than_can_be_mapped_says_how_much),
        cmocka_unit_test(test_space_host__survives_every_refused_allocation),
        cmocka_unit_test(test_tensor_own__moves_the_bytes_to_a_file_of_their_own),
        cmocka_unit_test(test_tensor_own__counts_as_before_and_gives_all_back),
        cmocka_unit_test(test_tensor_own__of_what_was_never_written_costs_nothing),
        cmocka_unit_test(test_tensor_own__cannot_shrink_and_is_not_opened_anew_for_writing),
        cmocka_unit_test(test_tensor_own__of_no_bytes_is_refused),
        cmocka_unit_test(test_space_find__knows_whose_memory_it_is_until_it_goes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    size_t i;

    for (i = 0; i < COUNT_OF(kinds); i++) {
        failed += space_contract_run(&kinds[i]);
    }
    return failed;
}
