/*
 * Goal: libtutti's lists, what travels with a tensor, and objects do between three ranks what their
 * headers say, and leave no tensor behind.
 * Method: three ranks against real agents, run by tests/system/test_lists.py:
 * `tutti run -n 3 -- lists_program`. All ranks run the same tests in the same order.
 */
#include "support/testing.h"

#include "tutti/list.h"
#include "tutti/object.h"
#include "tutti/op_data.h"

#define RANKS 3

typedef struct rig {
    tutti_client *client;
    uint32_t rank;
} rig;

static int
set_up(void **state)
{
    static rig self;
    tutti_error err;

    assert_ok(tutti_connect(NULL, &self.client, &err));
    self.rank = tutti_whoami(self.client)->rank;
    assert_int_equal(tutti_whoami(self.client)->world_size, RANKS);
    assert_ok(tutti_barrier(self.client, NULL, NULL, &err));
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;
    tutti_agent_stats stats;
    tutti_error err;

    assert_ok(tutti_agent_stat(self->client, &stats, &err));
    assert_int_equal(stats.tensor_count, 0);
    tutti_close(self->client);
    return 0;
}

/* A tensor of `count` numbers: rank * 100 + first, ... */
static void
put(rig *self, const char *name, int64_t count, int32_t first)
{
    const tutti_spec spec = {TUTTI_DTYPE_INT32, 1, {count}};
    int32_t data[16];
    tutti_handle handle;
    tutti_error err;
    int64_t i;

    for (i = 0; i < count; i++) {
        data[i] = (int32_t)self->rank * 100 + first + (int32_t)i;
    }
    assert_ok(tutti_tensor_put(self->client, &spec, data, name, NULL, &handle, &err));
}

static int32_t
last_of(rig *self, const tutti_handle *handle)
{
    const int64_t count = handle->spec.dims[0];
    int32_t data[48];
    tutti_error err;

    assert_true(handle->known && count > 0 && count <= 48);
    assert_ok(tutti_tensor_read(self->client, handle->text, data, (uint64_t)count * 4, NULL, &err));
    return data[count - 1];
}

static void
drop_all(rig *self, const tutti_op_more *more)
{
    tutti_error err;
    size_t i;

    for (i = 0; i < more->output_count; i++) {
        assert_ok(tutti_tensor_delete(self->client, more->outputs[i].text, &err));
    }
}

static void
drop(rig *self, const char *name)
{
    tutti_error err;

    assert_ok(tutti_tensor_delete(self->client, name, &err));
}

static void
test_list__is_reduced_in_one_op(void **state)
{
    static const char *const names[] = {"a", "b"};
    rig *self = *state;
    tutti_op_result result;
    tutti_op_more more;
    tutti_error err;
    tutti_op op;

    put(self, "a", 2, 0);
    put(self, "b", 5, 10);
    tutti_op_init(&op);
    op.inputs = names;
    op.input_count = 2;
    op.more = &more;
    assert_ok(tutti_all_reduce(self->client, &op, &result, &err));
    assert_string_equal(result.output.text, "");
    assert_int_equal(more.output_count, 2);
    assert_int_equal(last_of(self, &more.outputs[0]), 300 + 3 * 1);
    assert_int_equal(last_of(self, &more.outputs[1]), 300 + 3 * 14);
    drop_all(self, &more);
    tutti_op_more_free(&more);
    op.more = NULL; /* in place, and nobody wants to hear of it */
    op.outputs = names;
    op.output_count = 2;
    assert_ok(tutti_all_reduce(self->client, &op, NULL, &err));
    drop(self, "a");
    drop(self, "b");
}

static void
test_list__of_unequal_tensors_is_gathered_and_heard_of_by_wait(void **state)
{
    rig *self = *state;
    tutti_work_status status;
    tutti_op_result result;
    tutti_op_more more;
    tutti_error err;
    tutti_op op;

    put(self, "mine", 1 + self->rank, 0);
    tutti_op_init(&op);
    op.input = "mine";
    op.form = TUTTI_FORM_LIST;
    op.async = true;
    assert_ok(tutti_all_gather(self->client, &op, &result, &err));
    assert_ok(tutti_wait_more(self->client, result.work, 0, &status, &more, &err));
    assert_int_equal(status.error.code, TUTTI_OK);
    assert_int_equal(more.output_count, RANKS);
    assert_int_equal(more.outputs[2].spec.dims[0], 3);
    assert_int_equal(last_of(self, &more.outputs[2]), 202);
    drop_all(self, &more);
    tutti_op_more_free(&more);
    drop(self, "mine");
}

static void
test_scatter__in_splits_brings_the_roots_bytes_along(void **state)
{
    static const int64_t splits[] = {1, 0, 4};
    rig *self = *state;
    tutti_op_result result;
    tutti_op_more more;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.root = 1;
    op.more = &more;
    if (self->rank == 1) {
        put(self, "all", 5, 0);
        op.input = "all";
        op.splits = splits;
        op.split_count = RANKS;
        op.user_meta = "scale 2";
        op.user_meta_size = 7;
    }
    assert_ok(tutti_scatter(self->client, &op, &result, &err));
    assert_int_equal(result.output.spec.dims[0], splits[self->rank]);
    assert_int_equal(more.user_meta_size, 7);
    assert_memory_equal(more.user_meta, "scale 2", 7);
    tutti_op_more_free(&more);
    drop(self, result.output.text);
    if (self->rank == 1) {
        drop(self, "all");
    }
}

static void
test_list__that_differs_is_refused_on_all_ranks(void **state)
{
    static const char *const names[] = {"a", "a"};
    rig *self = *state;
    tutti_op_more more;
    tutti_error err;
    tutti_op op;

    put(self, "a", 2, 0);
    tutti_op_init(&op);
    op.inputs = names;
    op.input_count = self->rank == 2 ? 1 : 2;
    op.more = &more;
    assert_fails(tutti_all_reduce(self->client, &op, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "LIST_SIZE");
    assert_int_equal(err.rank, 2);
    assert_null(more.outputs);
    drop(self, "a");
}

/* ------------------------------------------------------------------------------ objects */

static tutti_object
object_of(const rig *self, char *buffer, size_t size)
{
    const int length =
        snprintf(buffer, size, "{\"rank\": %u, \"name\": \"%.*s\"}", (unsigned)self->rank,
                 (int)self->rank * 9, "oboe, violins, timpani");

    return (tutti_object){
        .content_type = "application/json", .data = buffer, .size = (size_t)length};
}

static void
assert_object(const tutti_object *object, uint32_t rank)
{
    const rig other = {.rank = rank};
    char buffer[96];
    const tutti_object wanted = object_of(&other, buffer, sizeof(buffer));

    assert_string_equal(object->content_type, "application/json");
    assert_int_equal(object->size, wanted.size);
    assert_memory_equal(object->data, wanted.data, wanted.size);
}

static void
test_objects__go_to_all_and_to_one(void **state)
{
    rig *self = *state;
    char buffer[96];
    const tutti_object mine = object_of(self, buffer, sizeof(buffer));
    tutti_object *all = NULL;
    tutti_object one;
    size_t count = 9;
    tutti_error err;
    tutti_op op;
    uint32_t i;

    tutti_op_init(&op);
    op.root = 1;
    assert_ok(
        tutti_object_broadcast(self->client, &op, self->rank == 1 ? &mine : NULL, &one, &err));
    assert_object(&one, 1);
    tutti_object_clear(&one);
    assert_ok(tutti_object_all_gather(self->client, NULL, &mine, &all, &count, &err));
    assert_int_equal(count, RANKS);
    for (i = 0; i < RANKS; i++) {
        assert_object(&all[i], i);
    }
    assert_ok(
        tutti_object_scatter(self->client, &op, self->rank == 1 ? all : NULL, RANKS, &one, &err));
    assert_object(&one, self->rank);
    tutti_object_clear(&one);
    tutti_objects_free(all, count);
    assert_ok(tutti_object_gather(self->client, &op, &mine, &all, &count, &err));
    assert_int_equal(count, self->rank == 1 ? RANKS : 0);
    for (i = 0; i < count; i++) {
        assert_object(&all[i], i);
    }
    tutti_objects_free(all, count);
}

static void
test_objects__are_sent(void **state)
{
    rig *self = *state;
    char buffer[96];
    const tutti_object mine = object_of(self, buffer, sizeof(buffer));
    const tutti_object nothing = {.content_type = ""};
    uint32_t source = 9;
    tutti_object one;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    if (self->rank == 0) {
        op.peer = 2;
        assert_ok(tutti_object_send(self->client, &op, &mine, &err));
        assert_ok(tutti_object_send(self->client, &op, &nothing, &err));
    } else if (self->rank == 2) {
        assert_ok(tutti_object_recv(self->client, &op, &one, &source, &err));
        assert_int_equal(source, 0);
        assert_object(&one, 0);
        tutti_object_clear(&one);
        assert_ok(tutti_object_recv(self->client, NULL, &one, NULL, &err));
        assert_int_equal(one.size, 0);
        tutti_object_clear(&one);
    }
}

static void
test_objects__are_not_read_from_arrays(void **state)
{
    static const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {6}};
    rig *self = *state;
    tutti_object one;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    if (self->rank == 0) {
        op.peer = 2;
        assert_ok(tutti_send_data(self->client, &op, &spec, "\xff\xff\xff\xff\xff\xff", &err));
    } else if (self->rank == 2) {
        assert_fails(tutti_object_recv(self->client, NULL, &one, NULL, &err), TUTTI_DATA_LOSS);
        assert_string_equal(err.reason, "NOT_AN_OBJECT");
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_list__is_reduced_in_one_op, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_list__of_unequal_tensors_is_gathered_and_heard_of_by_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_scatter__in_splits_brings_the_roots_bytes_along,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_list__that_differs_is_refused_on_all_ranks, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_objects__go_to_all_and_to_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_objects__are_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_objects__are_not_read_from_arrays, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
