/*
 * Goal: a mapped tensor is the agent's memory, a copy passes for it, and each says what it is.
 * Method: two ranks against real agents, run by tests/system/test_share.py: `tutti run -n 2 --
 * share_program [copy]`. With "copy" nothing can be mapped, and all that holds for both is the
 * same.
 */
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutti/tutti.h"

#define COUNT 100000

static bool copies;

typedef struct rig {
    tutti_client *client;
    tutti_handle handle;
    float *values;
} rig;

static int
set_up(void **state)
{
    static rig self;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {COUNT / 2, 2}};
    tutti_error err;
    size_t i;

    self = (rig){0};
    assert_ok(tutti_connect(NULL, &self.client, &err));
    self.values = malloc(COUNT * sizeof(float));
    assert_non_null(self.values);
    for (i = 0; i < COUNT; i++) {
        self.values[i] = (float)i;
    }
    assert_ok(tutti_tensor_put(self.client, &spec, self.values, NULL, NULL, &self.handle, &err));
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;

    (void)tutti_tensor_delete(self->client, self->handle.text, NULL);
    tutti_close(self->client);
    free(self->values);
    return 0;
}

static tutti_view *
map(rig *self, uint32_t flags)
{
    tutti_view *view = NULL;
    tutti_error err;

    assert_ok(
        tutti_tensor_map(self->client, self->handle.text, flags | TUTTI_MAP_OR_COPY, &view, &err));
    assert_int_equal(tutti_view_is_shared(view), !copies);
    assert_int_equal(tutti_view_why(view) != NULL, copies);
    assert_int_equal(tutti_view_bytes(view), COUNT * sizeof(float));
    assert_int_equal((uintptr_t)tutti_view_data(view) % 64, 0);
    return view;
}

static void
test_map__shows_the_tensor_and_what_it_is(void **state)
{
    rig *self = *state;
    tutti_view *view = map(self, 0);
    const tutti_handle *handle = tutti_view_handle(view);

    assert_string_equal(handle->text, self->handle.text);
    assert_int_equal(handle->spec.dim_count, 2);
    assert_int_equal(handle->spec.dims[1], 2);
    assert_memory_equal(tutti_view_data(view), self->values, COUNT * sizeof(float));
    assert_false(tutti_view_is_revoked(view));
    tutti_tensor_unmap(view);
}

static void
test_map__is_a_tensor_for_ops_in_place(void **state)
{
    rig *self = *state;
    tutti_view *view = map(self, TUTTI_MAP_WRITE);
    float *values = tutti_view_data(view);
    tutti_op_result result;
    tutti_error err;
    tutti_op op;
    size_t i;

    tutti_op_init(&op);
    op.input = self->handle.text;
    op.output = self->handle.text;
    for (i = 0; i < COUNT; i++) {
        values[i] = (float)(i % 7);
    }
    assert_ok(tutti_view_push(view, &err));
    assert_ok(tutti_all_reduce(self->client, &op, &result, &err));
    assert_ok(tutti_view_pull(view, &err));
    for (i = 0; i < COUNT; i++) {
        assert_true(values[i] == 2 * (float)(i % 7));
    }
    tutti_tensor_unmap(view);
    assert_ok(tutti_tensor_read(self->client, self->handle.text, self->values,
                                COUNT * sizeof(float), NULL, &err));
    assert_true(self->values[6] == 12);
}

static void
test_push__of_what_is_read_only_is_refused(void **state)
{
    rig *self = *state;
    tutti_view *view = map(self, 0);
    tutti_error err;

    assert_fails(tutti_view_push(view, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "READ_ONLY");
    assert_ok(tutti_view_pull(view, &err));
    tutti_tensor_unmap(view);
}

static void
test_map__for_reading_is_not_written(void **state)
{
    rig *self = *state;
    tutti_view *view;

    if (copies) {
        return; /* a copy is the caller's own */
    }
    view = map(self, 0);
    assert_int_equal(mprotect(tutti_view_data(view), 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    tutti_tensor_unmap(view);
}

static void
test_delete__is_told_and_leaves_the_bytes(void **state)
{
    rig *self = *state;
    tutti_view *view = map(self, 0);
    int turns = 60000;
    tutti_error err;

    assert_ok(tutti_tensor_delete(self->client, self->handle.text, &err));
    while (!copies && !tutti_view_is_revoked(view) && turns-- > 0) {
        (void)usleep(1000);
    }
    assert_int_equal(tutti_view_is_revoked(view), !copies);
    assert_memory_equal(tutti_view_data(view), self->values, COUNT * sizeof(float));
    tutti_tensor_unmap(view);
}

static void
test_map__without_copies_says_why(void **state)
{
    rig *self = *state;
    tutti_view *view = NULL;
    tutti_error err;
    tutti_code code = tutti_tensor_map(self->client, self->handle.text, 0, &view, &err);

    if (!copies) {
        assert_int_equal(code, TUTTI_OK);
        tutti_tensor_unmap(view);
        return;
    }
    assert_int_equal(code, TUTTI_FAILED_PRECONDITION);
    assert_true(strcmp(err.reason, "SHARE_OFF") == 0 || strcmp(err.reason, "OTHER_HOST") == 0);
    assert_null(view);
}

static void
test_map__of_bad_handles_and_flags_is_refused(void **state)
{
    rig *self = *state;
    tutti_view *view = NULL;
    tutti_error err;

    assert_fails(tutti_tensor_map(self->client, "", 0, &view, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_tensor_map(self->client, "x", 64, &view, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_FLAGS");
    assert_fails(tutti_tensor_map(self->client, "nobody", TUTTI_MAP_OR_COPY, &view, &err),
                 copies ? err.code : TUTTI_NOT_FOUND);
    assert_null(view);
    tutti_tensor_unmap(NULL);
}

/* Nothing to map, and nothing to warn of. */
static void
test_map__of_no_bytes_is_a_copy_of_none(void **state)
{
    rig *self = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {0}};
    tutti_handle empty;
    tutti_view *view = NULL;
    tutti_error err;

    assert_ok(tutti_tensor_create(self->client, &spec, NULL, &empty, &err));
    assert_ok(tutti_tensor_map(self->client, empty.text, TUTTI_MAP_OR_COPY | TUTTI_MAP_WRITE, &view,
                               &err));
    assert_false(tutti_view_is_shared(view));
    assert_int_equal(tutti_view_bytes(view), 0);
    assert_ok(tutti_view_push(view, &err));
    tutti_tensor_unmap(view);
    assert_ok(tutti_tensor_delete(self->client, empty.text, &err));
}

static void
test_share_gpu__is_for_tensors_on_a_gpu(void **state)
{
    rig *self = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {3}};
    tutti_gpu_share *share = NULL;
    tutti_handle made;
    tutti_error err;

    assert_ok(tutti_tensor_create(self->client, &spec, NULL, &made, &err));
    assert_fails(tutti_tensor_share_gpu(self->client, made.text, &share, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "CANNOT_SHARE");
    assert_fails(tutti_tensor_share_gpu(self->client, "nobody", &share, &err), TUTTI_NOT_FOUND);
    assert_fails(tutti_tensor_share_gpu(self->client, "", &share, &err), TUTTI_INVALID_ARGUMENT);
    assert_null(share);
    tutti_gpu_share_end(NULL);
    assert_ok(tutti_tensor_delete(self->client, made.text, &err));
}

int
main(int argc, char **argv)
{
#define PAIR(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PAIR(test_map__shows_the_tensor_and_what_it_is),
        PAIR(test_map__is_a_tensor_for_ops_in_place),
        PAIR(test_push__of_what_is_read_only_is_refused),
        PAIR(test_map__for_reading_is_not_written),
        PAIR(test_delete__is_told_and_leaves_the_bytes),
        PAIR(test_map__without_copies_says_why),
        PAIR(test_map__of_bad_handles_and_flags_is_refused),
        PAIR(test_map__of_no_bytes_is_a_copy_of_none),
        PAIR(test_share_gpu__is_for_tensors_on_a_gpu),
    };

    copies = argc > 1 && strcmp(argv[1], "copy") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
