/*
 * Goal: CUDA memory keeps the contract; bytes move in, out and between; failures are errors and
 * leave nothing behind.
 * Method: the module over a stand-in for the runtime, whose memory nobody can touch without a copy
 * and whose streams run by themselves; every call fails once. With the real module and a GPU, the
 * same but for the failures.
 */
#include "space_contract.h"

#include <dlfcn.h>
#include <pthread.h>

#include "support/testing.h"

#include "tensor/cuda/cuda.h"
#include "tensor/host/host.h"
#include "tensor/move.h"

#define KIB 1024ULL
#define MIB (1024ULL * KIB)

static const tutti_cuda_module *module;
static tutti_cuda_device devices[2];

/* Of the stand-in; NULL with a real device. */
static void (*fail_call)(const char *call, uint64_t at);
static void (*break_device)(uint64_t at);
static int64_t (*left)(void);

/* ------------------------------------------------------------------------------ waiting */

typedef struct waited {
    tutti_move move;
    tutti_slot_wish wish;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    tutti_slot *slot;
    tutti_code code;
    tutti_error err;
} waited;

static void
on_done(tutti_move *move, const tutti_error *err)
{
    waited *self = tutti_container_of(move, waited, move);

    (void)pthread_mutex_lock(&self->lock);
    self->done = true;
    if (err != NULL) {
        self->code = err->code;
        self->err = *err;
    }
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
on_slot(tutti_slot_wish *wish, tutti_slot *slot)
{
    waited *self = tutti_container_of(wish, waited, wish);

    (void)pthread_mutex_lock(&self->lock);
    self->slot = slot;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
begin(waited *self)
{
    *self = (waited){.move.on_done = on_done, .wish.on_slot = on_slot};
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->changed, NULL);
}

static tutti_code
end(waited *self)
{
    (void)pthread_mutex_lock(&self->lock);
    while (!self->done) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return self->code;
}

static tutti_slot *
get_slot(tutti_space *space)
{
    tutti_slot *slot = tutti_slot_take(space);
    waited self;

    if (slot != NULL) {
        return slot;
    }
    begin(&self);
    tutti_slot_wait(space, &self.wish);
    (void)pthread_mutex_lock(&self.lock);
    while (self.slot == NULL) {
        (void)pthread_cond_wait(&self.changed, &self.lock);
    }
    (void)pthread_mutex_unlock(&self.lock);
    return self.slot;
}

static tutti_code
try_write(tutti_tensor *tensor, uint64_t offset, const void *bytes, size_t size)
{
    tutti_slot *slot = get_slot(tensor->space);
    tutti_code code;
    waited self;

    begin(&self);
    memcpy(slot->data, bytes, size);
    tutti_move_in(&self.move, tensor, offset, slot, size);
    code = end(&self);
    tutti_slot_give(slot);
    return code;
}

static tutti_code
try_read(tutti_tensor *tensor, uint64_t offset, void *ret_bytes, size_t size)
{
    tutti_slot *slot = get_slot(tensor->space);
    tutti_code code;
    waited self;

    begin(&self);
    tutti_move_out(&self.move, tensor, offset, slot, size);
    code = end(&self);
    memcpy(ret_bytes, slot->data, size);
    tutti_slot_give(slot);
    return code;
}

static void
cuda_write(tutti_tensor *tensor, uint64_t offset, const void *bytes, size_t size)
{
    assert_int_equal(try_write(tensor, offset, bytes, size), TUTTI_OK);
}

static void
cuda_read(tutti_tensor *tensor, uint64_t offset, void *ret_bytes, size_t size)
{
    assert_int_equal(try_read(tensor, offset, ret_bytes, size), TUTTI_OK);
}

static tutti_code
try_copy(tutti_tensor *from, tutti_tensor *to)
{
    waited self;

    begin(&self);
    tutti_move_copy(&self.move, from, to);
    return end(&self);
}

/* ------------------------------------------------------------------------------ spaces */

static tutti_space *
open_device(int number, uint64_t limit_bytes, uint32_t slots)
{
    const tutti_space_cuda_options options = {
        .number = number, .limit_bytes = limit_bytes, .slot_count = slots};
    tutti_space *space = NULL;
    tutti_error err;

    assert_ok(module->open(&options, &space, &err));
    return space;
}

static tutti_space *
open_first(uint64_t limit_bytes)
{
    return open_device(0, limit_bytes, 0);
}

static tutti_space *
open_host(uint64_t limit_bytes)
{
    const tutti_space_host_options options = {limit_bytes, 0};
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

/* ------------------------------------------------------------------------------ tests */

static void
test_device__is_named_and_has_a_uuid(void **state)
{
    tutti_space *space = open_first(MIB);
    tutti_cuda_device same;
    tutti_error err;

    (void)state;
    assert_string_equal(tutti_space_device(space), "cuda:0");
    assert_int_equal(module->number(space), 0);
    assert_int_equal(strlen(devices[0].uuid), TUTTI_CUDA_UUID_SIZE - 1);
    assert_memory_equal(devices[0].uuid, "GPU-", 4);
    assert_in_range(devices[0].free_bytes, 1, devices[0].total_bytes);
    assert_ok(module->look(0, &same, &err));
    assert_string_equal(same.uuid, devices[0].uuid);
    tutti_space_close(space);
}

static void
test_device__that_is_not_there_is_refused_with_how_many_are(void **state)
{
    tutti_cuda_device device;
    const tutti_cuda_module *found = NULL;
    tutti_error err;

    (void)state;
    assert_fails(tutti_cuda_find(64, &found, &device, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_DEVICE");
    assert_text_has(err.text, "cuda:64: no such device: this process sees ");
    assert_null(found);
}

static void
test_device__names_are_read_as_people_write_them(void **state)
{
    (void)state;
    assert_int_equal(tutti_cuda_parse("cuda:0"), 0);
    assert_int_equal(tutti_cuda_parse("cuda:17"), 17);
    assert_int_equal(tutti_cuda_parse("cuda"), -1);
    assert_int_equal(tutti_cuda_parse("cuda:"), -1);
    assert_int_equal(tutti_cuda_parse("cuda:-1"), -1);
    assert_int_equal(tutti_cuda_parse("cuda:1x"), -1);
    assert_int_equal(tutti_cuda_parse("cpu"), -1);
}

static void
fill_pattern(tutti_tensor *host, unsigned char seed)
{
    unsigned char *bytes = host->data;
    uint64_t i;

    for (i = 0; i < host->bytes; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
    }
}

/* Host to the first device, to the second when there is one, and back. */
static void
test_copy__between_host_and_devices_keeps_every_byte(void **state)
{
    static const uint64_t sizes[] = {1, 4095, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB + 3};
    const int other = devices[1].uuid[0] == '\0' ? 0 : 1;
    tutti_space *host = open_host(64 * MIB);
    tutti_space *first = open_device(0, 64 * MIB, 2);
    tutti_space *second = open_device(other, 64 * MIB, 2);
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        tutti_tensor *from = make_tensor(host, sizes[i]);
        tutti_tensor *there = make_tensor(first, sizes[i]);
        tutti_tensor *beside = make_tensor(first, sizes[i]);
        tutti_tensor *further = make_tensor(second, sizes[i]);
        tutti_tensor *back = make_tensor(host, sizes[i]);

        fill_pattern(from, (unsigned char)i);
        assert_int_equal(try_copy(from, there), TUTTI_OK);
        assert_int_equal(try_copy(there, beside), TUTTI_OK);
        assert_int_equal(try_copy(beside, further), TUTTI_OK);
        assert_int_equal(try_copy(further, back), TUTTI_OK);
        assert_memory_equal(from->data, back->data, sizes[i]);
        tutti_tensor_unref(from);
        tutti_tensor_unref(there);
        tutti_tensor_unref(beside);
        tutti_tensor_unref(further);
        tutti_tensor_unref(back);
    }
    tutti_space_close(first);
    tutti_space_close(second);
    tutti_space_close(host);
}

/* Many moves at once, in and out of two tensors, none of which waits for another. */
static void
test_moves__run_beside_each_other(void **state)
{
    tutti_space *space = open_device(0, 16 * MIB, 4);
    tutti_tensor *tensors[2] = {make_tensor(space, 4 * MIB), make_tensor(space, 4 * MIB)};
    tutti_slot *slots[4];
    waited moves[4];
    size_t round;
    size_t i;

    (void)state;
    for (i = 0; i < 4; i++) {
        slots[i] = get_slot(space);
    }
    for (round = 0; round < 20; round++) {
        for (i = 0; i < 2; i++) { /* into one tensor, out of the other */
            begin(&moves[i]);
            memset(slots[i]->data, (int)(1 + round), 2 * MIB);
            tutti_move_in(&moves[i].move, tensors[round % 2], i * 2 * MIB, slots[i], 2 * MIB);
            begin(&moves[2 + i]);
            tutti_move_out(&moves[2 + i].move, tensors[1 - round % 2], i * 2 * MIB, slots[2 + i],
                           2 * MIB);
        }
        for (i = 0; i < 4; i++) {
            assert_int_equal(end(&moves[i]), TUTTI_OK);
        }
        for (i = 2; i < 4; i++) {
            const unsigned char *bytes = slots[i]->data;

            assert_int_equal(bytes[0], round);
            assert_int_equal(bytes[2 * MIB - 1], round);
        }
    }
    for (i = 0; i < 4; i++) {
        tutti_slot_give(slots[i]);
    }
    tutti_tensor_unref(tensors[0]);
    tutti_tensor_unref(tensors[1]);
    tutti_space_close(space);
}

static void
test_slots__are_lent_in_the_order_of_the_wishes(void **state)
{
    tutti_space *space = open_device(0, MIB, 2);
    tutti_slot *one = tutti_slot_take(space);
    tutti_slot *two;
    waited first;
    waited second;

    (void)state;
    assert_non_null(one);
    assert_false(tutti_slot_is_scarce(one));
    two = tutti_slot_take(space);
    assert_true(tutti_slot_is_scarce(one));
    assert_null(tutti_slot_take(space));
    begin(&first);
    begin(&second);
    tutti_slot_wait(space, &first.wish);
    tutti_slot_wait(space, &second.wish);
    tutti_slot_give(two);
    assert_ptr_equal(first.slot, two);
    assert_null(second.slot);
    tutti_slot_give(one);
    assert_ptr_equal(second.slot, one);
    tutti_slot_give(one);
    tutti_slot_give(two);
    tutti_space_close(space);
}

/* As often as it is wanted, with other memory around it; what is behind its end is nobody's. */
static void
test_tensor__moves_once_to_memory_of_its_own(void **state)
{
    unsigned char handles[2][TUTTI_CUDA_IPC_SIZE] = {{0}, {1}};
    tutti_space *space = open_first(8 * MIB);
    tutti_tensor *tensor = make_tensor(space, 300);
    unsigned char wanted[300];
    unsigned char bytes[300];
    tutti_space_stats stats;
    waited self;
    size_t i;

    (void)state;
    memset(wanted, 0x5c, sizeof(wanted));
    cuda_write(tensor, 0, wanted, sizeof(wanted));
    for (i = 0; i < 2; i++) {
        begin(&self);
        module->own(&self.move, tensor, handles[i]);
        assert_int_equal(end(&self), TUTTI_OK);
        cuda_read(tensor, 0, bytes, sizeof(bytes));
        assert_memory_equal(bytes, wanted, sizeof(bytes));
    }
    assert_memory_equal(handles[0], handles[1], TUTTI_CUDA_IPC_SIZE);
    tutti_space_stat(space, &stats);
    assert_int_equal(stats.used_bytes, 2 * MIB);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

static void
test_tensor__that_has_no_room_for_memory_of_its_own_stays_where_it_is(void **state)
{
    unsigned char handle[TUTTI_CUDA_IPC_SIZE];
    tutti_space *space = open_first(MIB);
    tutti_tensor *tensor = make_tensor(space, 300);
    unsigned char byte = 7;
    waited self;

    (void)state;
    begin(&self);
    module->own(&self.move, tensor, handle);
    assert_int_equal(end(&self), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(self.err.reason, "MEMORY_LIMIT");
    cuda_write(tensor, 299, &byte, 1);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

/* The lane works in order: what was put on it before is done then. */
static uint64_t
make_own_and_count(tutti_tensor *tensor)
{
    unsigned char handle[TUTTI_CUDA_IPC_SIZE];
    tutti_space_stats stats;
    waited self;

    begin(&self);
    module->own(&self.move, tensor, handle);
    assert_int_equal(end(&self), TUTTI_OK);
    tutti_space_stat(tensor->space, &stats);
    return stats.used_bytes;
}

/* Giving it back waits for all that the device runs, so it happens when nothing can wait for other
 * processes; everything else goes on. */
static void
test_tensor__of_its_own_memory_is_given_back_when_nobody_occupies_the_device(void **state)
{
    tutti_space *space = open_first(8 * MIB);
    tutti_tensor *tensor = make_tensor(space, 300);
    tutti_tensor *other = make_tensor(space, 300);
    unsigned char byte = 9;

    (void)state;
    assert_in_range(make_own_and_count(tensor), 2 * MIB, 3 * MIB);
    assert_true(module->occupy(space));
    tutti_tensor_unref(tensor);
    assert_in_range(make_own_and_count(other), 3 * MIB,
                    4 * MIB); /* that of `tensor` is there yet */
    cuda_write(other, 7, &byte, 1);
    module->vacate(space);
    assert_int_equal(make_own_and_count(other), 2 * MIB);
    tutti_tensor_unref(other);
    tutti_space_close(space);
}

/* What tensors gave back is kept for the next ones, up to the whole device. */
static void
test_tensor__of_its_own_memory_takes_what_the_pool_has_kept(void **state)
{
    const tutti_space_cuda_options options = {.limit_bytes = 1000 * MIB,
                                              .kept_bytes_max = 1000 * MIB};
    const tutti_spec large = {TUTTI_DTYPE_UINT8, 1, {600 * MIB}};
    unsigned char handle[TUTTI_CUDA_IPC_SIZE];
    tutti_space *space = NULL;
    tutti_tensor *tensor = NULL;
    tutti_error err;
    waited self;

    (void)state;
    assert_ok(module->open(&options, &space, &err));
    assert_ok(tutti_tensor_new(space, &large, false, &tensor, &err));
    tutti_tensor_unref(tensor);
    tensor = make_tensor(space, 450 * MIB);
    begin(&self);
    module->own(&self.move, tensor, handle);
    assert_int_equal(end(&self), TUTTI_OK);
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

/* ------------------------------------------------------------------------------ failures */

/* All that is done with a space, as far as it goes. */
static tutti_code
use_all(tutti_space *host, tutti_error *err)
{
    const tutti_space_cuda_options options = {.limit_bytes = 16 * MIB, .slot_count = 2};
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {5 * MIB}};
    tutti_tensor *from = make_tensor(host, 5 * MIB);
    tutti_space *space = NULL;
    tutti_tensor *tensor = NULL;
    unsigned char bytes[100] = {1};
    unsigned char handle[TUTTI_CUDA_IPC_SIZE];
    waited self;
    tutti_code code = module->open(&options, &space, err);

    if (code == TUTTI_OK) {
        code = tutti_tensor_new(space, &spec, false, &tensor, err);
    }
    if (code == TUTTI_OK) {
        code = try_write(tensor, 5, bytes, sizeof(bytes));
    }
    if (code == TUTTI_OK) {
        code = try_read(tensor, 5, bytes, sizeof(bytes));
    }
    if (code == TUTTI_OK) {
        code = try_copy(from, tensor);
    }
    if (code == TUTTI_OK) {
        code = try_copy(tensor, from);
    }
    if (code == TUTTI_OK) {
        begin(&self);
        module->own(&self.move, tensor, handle);
        code = end(&self);
    }
    tutti_tensor_unref(tensor);
    tutti_tensor_unref(from);
    tutti_space_close(space);
    return code;
}

static void
test_space__survives_every_call_that_fails(void **state)
{
    static const char *const calls[] = {"cudaGetDeviceCount",
                                        "cudaGetDeviceProperties",
                                        "cudaSetDevice",
                                        "cudaMemGetInfo",
                                        "cudaMemPoolCreate",
                                        "cudaMemPoolSetAttribute",
                                        "cudaStreamCreateWithFlags",
                                        "cudaEventCreateWithFlags",
                                        "cudaEventRecord",
                                        "cudaHostAlloc",
                                        "cudaMallocFromPoolAsync",
                                        "cudaMemsetAsync",
                                        "cudaMemcpyAsync",
                                        "cudaStreamWaitEvent",
                                        "cudaEventSynchronize",
                                        "cudaMalloc",
                                        "cudaIpcGetMemHandle"};
    tutti_space *host;
    tutti_error err;
    uint64_t at;
    size_t i;

    (void)state;
    if (fail_call == NULL) {
        SKIP("a real GPU does not fail when it is told to");
    }
    host = open_host(16 * MIB);
    for (i = 0; i < COUNT_OF(calls); i++) {
        uint64_t failures = 0;

        for (at = 1; at < 100; at++) {
            fail_call(calls[i], at);
            if (use_all(host, &err) != TUTTI_OK) {
                failures++;
            } else if (failures > 0 && at > failures + 2) {
                break; /* it is called no more often */
            }
            assert_int_equal(left(), 0);
        }
        fail_call(NULL, 0);
        assert_in_range(failures, strcmp(calls[i], "cudaMalloc") == 0 ? 0 : 1, 60); /* once more */
    }
    tutti_space_close(host);
}

static void
test_device__that_breaks_ends_every_move_with_an_error(void **state)
{
    tutti_space *host;
    tutti_error err;
    uint64_t at;

    (void)state;
    if (break_device == NULL) {
        SKIP("a real GPU does not fail when it is told to");
    }
    host = open_host(16 * MIB);
    for (at = 1; at < 200; at++) {
        break_device(at);
        if (use_all(host, &err) == TUTTI_OK) {
            break; /* all was over by then */
        }
        break_device(0);
        assert_int_equal(left(), 0);
    }
    break_device(0);
    assert_in_range(at, 8, 60);
    tutti_space_close(host);
}

static void
test_tensor__that_the_device_has_no_memory_for_says_who_may_have_it(void **state)
{
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {MIB}};
    tutti_space *space;
    tutti_tensor *tensor = NULL;
    tutti_error err;

    (void)state;
    if (fail_call == NULL) {
        SKIP("a real GPU does not fail when it is told to");
    }
    space = open_first(4 * MIB);
    fail_call("cudaMallocFromPoolAsync", 1);
    assert_fails(tutti_tensor_new(space, &spec, true, &tensor, &err), TUTTI_RESOURCE_EXHAUSTED);
    fail_call(NULL, 0);
    assert_string_equal(err.reason, "DEVICE_MEMORY");
    assert_text_has(err.text, "no 1 MiB left");
    assert_ok(tutti_tensor_new(space, &spec, true, &tensor, &err));
    tutti_tensor_unref(tensor);
    tutti_space_close(space);
}

/* ------------------------------------------------------------------------------ what there is */

static void
find_standin(void)
{
    char path[4096];
    void *library;

    (void)snprintf(path, sizeof(path), "%.4000s/libtutti_cuda_standin.so", getenv("TUTTI_MODULES"));
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL) {
        *(void **)&fail_call = dlsym(library, "tutti_standin_cuda_fail");
        *(void **)&break_device = dlsym(library, "tutti_standin_cuda_break");
        *(void **)&left = dlsym(library, "tutti_standin_cuda_left");
    }
}

int
main(void)
{
    static const space_kind kind = {"tensor/cuda", open_first, cuda_write, cuda_read, true, 3000};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device__is_named_and_has_a_uuid),
        cmocka_unit_test(test_device__that_is_not_there_is_refused_with_how_many_are),
        cmocka_unit_test(test_device__names_are_read_as_people_write_them),
        cmocka_unit_test(test_copy__between_host_and_devices_keeps_every_byte),
        cmocka_unit_test(test_moves__run_beside_each_other),
        cmocka_unit_test(test_tensor__moves_once_to_memory_of_its_own),
        cmocka_unit_test(test_tensor__that_has_no_room_for_memory_of_its_own_stays_where_it_is),
        cmocka_unit_test(
            test_tensor__of_its_own_memory_is_given_back_when_nobody_occupies_the_device),
        cmocka_unit_test(test_tensor__of_its_own_memory_takes_what_the_pool_has_kept),
        cmocka_unit_test(test_slots__are_lent_in_the_order_of_the_wishes),
        cmocka_unit_test(test_tensor__that_the_device_has_no_memory_for_says_who_may_have_it),
        cmocka_unit_test(test_space__survives_every_call_that_fails),
        cmocka_unit_test(test_device__that_breaks_ends_every_move_with_an_error),
    };
    tutti_error err;
    int failed;

    if (tutti_cuda_find(0, &module, &devices[0], &err) != TUTTI_OK) {
        (void)printf("1..1\nok 1 - test_tensor_cuda # SKIP %s\n", err.text);
        return 0;
    }
    (void)module->look(1, &devices[1], NULL);
    find_standin();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + space_contract_run(&kind);
}
