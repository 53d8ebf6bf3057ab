/*
 * Goal: calls on different ranges of a tensor run side by side, calls on the same bytes in their order;
 * a range is what its text says, and nothing outside of its tensor. Method: by hand on one thread; then
 * drawn ranges of one tensor against a model that compares bytes one by one.
 */
#include "server/agent/tensor/range.h"
#include "support/testing.h"
#include "table_rig.h"

#define TEXT_SIZE (TUTTI_TABLE_HANDLE_SIZE + 64)

static int
start(void **state)
{
    static table_rig one;

    rig_start(&one, 16);
    *state = &one;
    return 0;
}

static int
stop(void **state)
{
    rig_stop(*state);
    return 0;
}

/* ------------------------------------------------------------------------------ texts */

static void
test_range__is_an_offset_a_dtype_and_a_shape(void **state)
{
    char name[TUTTI_TABLE_HANDLE_SIZE];
    tutti_tensor_range *range = NULL;
    tutti_error err;

    (void)state;
    assert_ok(agent_range_parse("w.1/x@256:FP32[2,8]", name, &range, &err));
    assert_string_equal(name, "w.1/x");
    assert_int_equal(range->offset, 256);
    assert_int_equal(range->spec.dtype, TUTTI_DTYPE_FP32);
    assert_int_equal(range->spec.dim_count, 2);
    assert_int_equal(range->spec.dims[0], 2);
    assert_int_equal(range->spec.dims[1], 8);
    agent_range_free(range);
    assert_ok(agent_range_parse("w@0:BOOL[]", name, &range, &err));
    assert_int_equal(range->spec.dim_count, 0);
    agent_range_free(range);
    assert_ok(agent_range_parse("w@9223372036854775807:UINT8[0]", name, &range, &err));
    assert_int_equal(range->offset, INT64_MAX);
    agent_range_free(range);
}

static void
test_range__that_is_none_is_refused_with_its_text(void **state)
{
    static const char *const bad[] = {
        "w@",
        "w@1",
        "w@:FP32[1]",
        "w@-4:FP32[1]",
        "w@ 4:FP32[1]",
        "w@4:",
        "w@4:FP32",
        "w@4:FP32[",
        "w@4:FP32[1",
        "w@4:FP32[1,]",
        "w@4:FP32[,]",
        "w@4:FP32[1]x",
        "w@4:FP32[1]]",
        "w@4:FP3[1]",
        "w@4:[1]",
        "w@4:FP32[-]",
        "w@4:FP32[1;2]",
        "w@4:FP32[+1]",
        "w@4:FP32[1, 2]",
        "w@4@4:FP32[1]",
        "@",
        "w@0x4:FP32[1]",
        "w@4:FP32[1,2[",
        "w@9223372036854775808:UINT8[1]",
        "w@0:UINT8[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
        "w@0:UINT8[99999999999999999999]",
        "w@0:a-name-of-a-dtype-that-is-longer-than-any-other[1]",
    };
    char name[TUTTI_TABLE_HANDLE_SIZE];
    tutti_tensor_range *range = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(agent_range_parse(bad[i], name, &range, &err), TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_RANGE");
        assert_text_has(err.text, "w@256:FP32[2,8]");
    }
    assert_fails(agent_range_parse("w@0:FP64[4294967296,4294967296]", name, &range, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_SHAPE");
    assert_null(range);
}

static void
test_range__with_a_long_name_is_no_handle(void **state)
{
    char text[2 * TUTTI_TABLE_HANDLE_SIZE];
    char name[TUTTI_TABLE_HANDLE_SIZE];
    tutti_tensor_range *range = NULL;
    tutti_error err;

    (void)state;
    memset(text, 'a', sizeof(text));
    (void)snprintf(text + TUTTI_TABLE_HANDLE_SIZE, 20, "@0:FP32[1]");
    assert_fails(agent_range_parse(text, name, &range, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_HANDLE");
}

/* ------------------------------------------------------------------------------ one tensor */

/* A range of the rig's tensor of RIG_TENSOR_BYTES bytes. */
static void
call_part(table_call *call, table_rig *rig, const char *handle, const char *range, bool exclusive)
{
    char text[TEXT_SIZE];

    (void)snprintf(text, sizeof(text), "%s@%s", handle, range);
    call_init(call, rig);
    call_want(call, text, exclusive);
    (void)call_claim(call);
}

static void
test_range__shows_the_bytes_of_its_tensor(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call whole;
    table_call range;
    unsigned char *bytes;
    tutti_tensor *view;
    tutti_error err;

    rig_make(self, "", x);
    call_write(&whole, self, x);
    bytes = tutti_table_tensor(self->table, &whole.lock_set.locks[0])->data;
    call_release(&whole);
    call_part(&range, self, x, "8:INT16[3,2]", true);
    assert_ok(tutti_table_check(self->table, &range.lock_set.locks[0], &err));
    view = tutti_table_tensor(self->table, &range.lock_set.locks[0]);
    assert_ptr_equal(view->data, bytes + 8);
    assert_int_equal(view->bytes, 12);
    assert_int_equal(view->spec.dtype, TUTTI_DTYPE_INT16);
    assert_ptr_equal(view, tutti_table_tensor(self->table, &range.lock_set.locks[0]));
    call_release(&range);
}

static void
test_range__outside_of_its_tensor_is_refused(void **state)
{
    static const struct {
        const char *range;
        const char *reason;
    } rows[] = {
        {"64:UINT8[1]", "RANGE_OUTSIDE"}, {"0:UINT8[65]", "RANGE_OUTSIDE"},
        {"60:FP64[1]", "RANGE_OUTSIDE"},  {"9223372036854775807:UINT8[1]", "RANGE_OUTSIDE"},
        {"2:FP32[1]", "RANGE_ALIGN"},     {"63:INT16[0]", "RANGE_ALIGN"},
    };
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call call;
    tutti_error err;
    size_t i;

    rig_make(self, "", x);
    for (i = 0; i < COUNT_OF(rows); i++) {
        call_part(&call, self, x, rows[i].range, false);
        assert_fails(tutti_table_check(self->table, &call.lock_set.locks[0], &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, rows[i].reason);
        assert_null(tutti_table_tensor(self->table, &call.lock_set.locks[0]));
        call_release(&call);
    }
    call_part(&call, self, x, "64:UINT8[0]", false); /* at the end, and without bytes */
    assert_ok(tutti_table_check(self->table, &call.lock_set.locks[0], &err));
    call_release(&call);
}

static void
test_range__apart_from_another_is_written_beside_it(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call first;
    table_call second;
    table_call both;
    table_call whole;

    rig_make(self, "", x);
    call_part(&first, self, x, "0:UINT8[32]", true);
    call_part(&second, self, x, "32:UINT8[32]", true);
    assert_true(first.ready && second.ready);
    call_part(&both, self, x, "31:UINT8[2]", false);
    call_read(&whole, self, x);
    assert_false(both.ready || whole.ready);
    call_release(&first);
    assert_int_equal(rig_run(self), 0);
    call_release(&second);
    assert_int_equal(rig_run(self), 2); /* readers share */
    call_release(&both);
    call_release(&whole);
}

static void
test_range__of_a_result_that_is_still_written_waits_for_it(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call maker;
    table_call range;
    tutti_error err;

    call_init(&maker, self);
    assert_ok(tutti_table_create_locked(self->table, &maker.lock_set, "", &err));
    assert_true(call_claim(&maker));
    tutti_table_handle(&maker.lock_set.locks[0], x);
    call_part(&range, self, x, "0:UINT8[1]", false);
    assert_false(range.ready);
    assert_null(tutti_table_tensor(self->table, &range.lock_set.locks[0]));
    call_fill(&maker, 0);
    call_release(&maker);
    assert_int_equal(rig_run(self), 1);
    assert_ok(tutti_table_check(self->table, &range.lock_set.locks[0], &err));
    call_release(&range);
    rig_delete(self, x);
}

static void
test_range__keeps_a_deleted_tensor_till_its_release(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    table_call range;

    rig_make(self, "", x);
    call_part(&range, self, x, "8:UINT8[8]", true);
    assert_non_null(tutti_table_tensor(self->table, &range.lock_set.locks[0]));
    rig_delete(self, x);
    memset(tutti_table_tensor(self->table, &range.lock_set.locks[0])->data, 7, 8);
    call_release(&range);
    assert_int_equal(rig_tensor_count(self), 0);
}

static void
test_range__is_refused_where_whole_tensors_are_wanted(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    char text[TEXT_SIZE];
    tutti_lock_set lock_set = {0};
    tutti_error err;

    rig_make(self, "x", x);
    (void)snprintf(text, sizeof(text), "%s@0:UINT8[1]", x);
    assert_fails(tutti_table_lock_by_name(self->table, &lock_set, text, false, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_table_lock_by_name(self->table, &lock_set, "x@0:UINT8[1]", false, &err),
                 TUTTI_INVALID_ARGUMENT);
}

/* ------------------------------------------------------------------------------ drawn */

#define DRAWN 24
#define STEPS 4000

typedef struct drawn {
    table_call call;
    uint64_t born; /* 0 = not in line */
    bool exclusive;
    unsigned char bytes[RIG_TENSOR_BYTES]; /* 1 = it wants this one */
} drawn;

static unsigned
draw(unsigned below)
{
    static uint64_t seed = 88172645463325252U;

    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed % below);
}

static void
begin_drawn(drawn *self, table_rig *rig, const char *handle, uint64_t born)
{
    const unsigned from = draw(RIG_TENSOR_BYTES + 1);
    const unsigned count = draw(RIG_TENSOR_BYTES + 1 - from);
    char range[64];

    self->born = born;
    self->exclusive = draw(2) == 1;
    memset(self->bytes, 0, sizeof(self->bytes));
    if (draw(8) == 0) {
        memset(self->bytes, 1, sizeof(self->bytes));
        call_init(&self->call, rig);
        call_want(&self->call, handle, self->exclusive);
        (void)call_claim(&self->call);
        return;
    }
    memset(self->bytes + from, 1, count);
    (void)snprintf(range, sizeof(range), "%u:UINT8[%u]", from, count);
    call_part(&self->call, rig, handle, range, self->exclusive);
}

static bool
must_stand(const drawn *self, const drawn *other)
{
    unsigned i;

    if (other->born == 0 || other->born >= self->born || !(self->exclusive || other->exclusive)) {
        return false;
    }
    for (i = 0; i < RIG_TENSOR_BYTES; i++) {
        if (self->bytes[i] && other->bytes[i]) {
            return true;
        }
    }
    return false;
}

static void
check_drawn(const drawn *calls)
{
    unsigned i;
    unsigned k;

    for (i = 0; i < DRAWN; i++) {
        bool stands = false;

        for (k = 0; calls[i].born != 0 && k < DRAWN; k++) {
            stands = stands || must_stand(&calls[i], &calls[k]);
        }
        if (calls[i].born != 0) {
            assert_int_equal(calls[i].call.ready, !stands);
        }
    }
}

static void
test_range__drawn_at_random_follows_the_rule_and_ends(void **state)
{
    static drawn calls[DRAWN];
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    uint64_t step;
    unsigned i;

    memset(calls, 0, sizeof(calls));
    rig_make(self, "", x);
    for (step = 1; step <= STEPS; step++) {
        drawn *one = &calls[draw(DRAWN)];

        if (one->born == 0) {
            begin_drawn(one, self, x, step);
        } else if (one->call.ready) {
            call_release(&one->call);
            one->born = 0;
        }
        (void)rig_run(self);
        check_drawn(calls);
    }
    for (step = 0; step < DRAWN; step++) { /* at least the first in line is ready */
        for (i = 0; i < DRAWN; i++) {
            if (calls[i].born != 0 && calls[i].call.ready) {
                call_release(&calls[i].call);
                calls[i].born = 0;
            }
        }
        (void)rig_run(self);
    }
    for (i = 0; i < DRAWN; i++) {
        assert_int_equal(calls[i].born, 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_range__is_an_offset_a_dtype_and_a_shape),
        TEST(test_range__that_is_none_is_refused_with_its_text),
        TEST(test_range__with_a_long_name_is_no_handle),
        TEST(test_range__shows_the_bytes_of_its_tensor),
        TEST(test_range__outside_of_its_tensor_is_refused),
        TEST(test_range__apart_from_another_is_written_beside_it),
        TEST(test_range__of_a_result_that_is_still_written_waits_for_it),
        TEST(test_range__keeps_a_deleted_tensor_till_its_release),
        TEST(test_range__is_refused_where_whole_tensors_are_wanted),
        TEST(test_range__drawn_at_random_follows_the_rule_and_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
