/*
 * Goal: handles and names mean one tensor each, a tensor lives as long as somebody uses it, and
 * what failed says so.
 * Method: a table over host memory, without a network; every text a person may send instead of a
 * handle; each allocation failing in turn.
 */
#include "support/sweep.h"
#include "support/testing.h"
#include "table_rig.h"

#define HANDLES_MAX 8

static int
start(void **state)
{
    static table_rig one;

    rig_start(&one, HANDLES_MAX);
    *state = &one;
    return 0;
}

static int
stop(void **state)
{
    rig_stop(*state);
    return 0;
}

/* ------------------------------------------------------------------------------ plain values */

static unsigned values_freed;

static void
on_value_free(tutti_table_value *value)
{
    values_freed++;
    free(value);
}

static tutti_table_value *
new_value(void)
{
    tutti_table_value *value = calloc(1, sizeof(*value));

    assert_non_null(value);
    *value = (tutti_table_value){.refs = 1, .noun = "an int", .on_free = on_value_free};
    return value;
}

/* The name holds a plain value, and nobody uses it. */
static void
put_value(table_rig *self, const char *name)
{
    table_call writer;
    tutti_error err;

    call_init(&writer, self);
    assert_ok(tutti_table_create_instead(self->table, &writer.lock_set, name, &err));
    assert_true(call_claim(&writer));
    tutti_table_set_value(self->table, &writer.lock_set.locks[0], new_value());
    call_release(&writer);
}

static void
test_table_value__is_there_for_readers_and_is_no_tensor(void **state)
{
    table_rig *self = *state;
    table_call reader;
    tutti_table_info info;
    tutti_error err;

    values_freed = 0;
    put_value(self, "lr");
    call_read(&reader, self, "lr");
    assert_non_null(tutti_table_value_of(self->table, &reader.lock_set.locks[0]));
    assert_ok(tutti_table_check_any(self->table, &reader.lock_set.locks[0], &err));
    assert_fails(tutti_table_check(self->table, &reader.lock_set.locks[0], &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NOT_A_TENSOR");
    assert_string_equal(err.text, "lr holds an int, not a tensor");
    assert_ok(tutti_table_stat(self->table, "lr", &info, &err));
    assert_string_equal(info.holds, "an int");
    rig_delete(self, "lr");
    assert_int_equal(values_freed, 0); /* in use */
    call_release(&reader);
    assert_int_equal(values_freed, 1);
}

static void
test_table_value__of_an_unnamed_entry_is_told_by_its_handle(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    table_call writer;
    tutti_error err;

    call_init(&writer, self);
    assert_ok(tutti_table_create_locked(self->table, &writer.lock_set, "", &err));
    assert_true(call_claim(&writer));
    tutti_table_set_value(self->table, &writer.lock_set.locks[0], new_value());
    tutti_table_handle(&writer.lock_set.locks[0], handle);
    assert_fails(tutti_table_check(self->table, &writer.lock_set.locks[0], &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, handle));
    call_release(&writer);
}

static void
test_table_create_instead__takes_the_name_at_once_and_leaves_readers_alone(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    table_call reader;
    table_call writer;
    table_call late;
    tutti_error err;

    rig_make(self, "w", handle);
    call_read(&reader, self, "w");
    call_init(&writer, self);
    assert_ok(tutti_table_create_instead(self->table, &writer.lock_set, "w", &err));
    assert_true(call_claim(&writer)); /* another entry: nobody to wait for */
    assert_non_null(tutti_table_tensor(self->table, &reader.lock_set.locks[0]));
    call_read(&late, self, "w");
    assert_false(late.ready); /* it gets what is written */
    tutti_table_set_value(self->table, &writer.lock_set.locks[0], new_value());
    call_release(&writer);
    (void)rig_run(self);
    assert_non_null(tutti_table_value_of(self->table, &late.lock_set.locks[0]));
    call_release(&late);
    assert_int_equal(rig_tensor_count(self), 1);
    call_release(&reader);
    assert_int_equal(rig_tensor_count(self), 0);
}

static void
test_table_create_instead__of_a_full_table_needs_a_name_that_is_taken(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    char name[16];
    table_call one;
    tutti_error err;
    unsigned i;

    for (i = 0; i < HANDLES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "t%u", i);
        rig_make(self, name, handle);
    }
    put_value(self, "t3");
    assert_int_equal(tutti_table_count(self->table), HANDLES_MAX);
    call_init(&one, self);
    assert_fails(tutti_table_create_instead(self->table, &one.lock_set, "more", &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "HANDLE_LIMIT");
}

/* ------------------------------------------------------------------------------ handles */

static void
test_table_handle__says_rank_process_and_number(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];

    tutti_table_set_rank(self->table, 3);
    rig_make(self, "", handle);
    assert_string_equal(handle, "tensor:3.0123456789abcdef.1");
    rig_make(self, "weights", handle);
    assert_string_equal(handle, "tensor:3.0123456789abcdef.2");
}

static void
test_table_handle__of_the_time_before_joining_stays_good(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    table_call reader;

    rig_make(self, "", handle);
    tutti_table_set_rank(self->table, 5);
    call_read(&reader, self, handle);
    assert_non_null(tutti_table_tensor(self->table, &reader.lock_set.locks[0]));
    call_release(&reader);
}

/* What want says of a text: the reason, and that the lock set is as it was. */
static void
check_want(table_rig *self, const char *text, tutti_code code, const char *reason)
{
    tutti_error err;
    table_call one;

    call_init(&one, self);
    assert_fails(tutti_table_lock_by_name(self->table, &one.lock_set, text, false, &err), code);
    if (strcmp(err.reason, reason) != 0) {
        fail_msg("\"%.100s\": %s, wanted %s", text, err.reason, reason);
    }
    assert_int_equal(one.lock_set.count, 0);
}

static void
test_table_want__refuses_what_is_no_handle(void **state)
{
    static const char *const texts[] = {
        "",
        "tensor:",
        "tensor:0",
        "tensor:0.0123456789abcdef",
        "tensor:0.0123456789abcdef.",
        "tensor:0.0123456789abcdef.1x",
        "tensor:0.0123456789abcdef.1 ",
        "tensor:0.0123456789abcdef.1.1",
        "tensor: 0.0123456789abcdef.1",
        "tensor:-1.0123456789abcdef.1",
        "tensor:+0.0123456789abcdef.1",
        "tensor:00.0123456789abcdef.1",
        "tensor:0.0123456789abcdef.01",
        "tensor:0.0123456789abcdef.-1",
        "tensor:0.0123456789abcdef. 1",
        "tensor:0.0123456789ABCDEF.1",
        "tensor:0.0123456789abcde.1",
        "tensor:0.0123456789abcdef0.1",
        "tensor:0.0000000000000000.1",
        "tensor:4294967296.0123456789abcdef.1",
        "tensor:0.0123456789abcdef.18446744073709551616",
        "tensor:0.0123456789abcdef.99999999999999999999999999",
        "tensor:%s%n.0123456789abcdef.1",
    };
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    char long_one[5000];
    size_t i;

    rig_make(self, "", handle);
    for (i = 0; i < COUNT_OF(texts); i++) {
        check_want(self, texts[i], TUTTI_INVALID_ARGUMENT, "BAD_HANDLE");
    }
    memset(long_one, '1', sizeof(long_one) - 1);
    long_one[sizeof(long_one) - 1] = '\0';
    memcpy(long_one, "tensor:", 7);
    check_want(self, long_one, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE");
    memcpy(long_one, "tensors", 7);
    check_want(self, long_one, TUTTI_INVALID_ARGUMENT, "BAD_NAME");
}

static void
test_table_want__tells_foreign_stale_and_unknown_handles_apart(void **state)
{
    table_rig *self = *state;
    tutti_error err;
    table_call one;

    tutti_table_set_rank(self->table, 2);
    call_init(&one, self);
    assert_fails(tutti_table_lock_by_name(self->table, &one.lock_set, "tensor:1.fedcba9876543210.7",
                                          false, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "FOREIGN_HANDLE");
    assert_text_has(err.text, "belongs to rank 1, this is rank 2");
    check_want(self, "tensor:2.fedcba9876543210.7", TUTTI_FAILED_PRECONDITION, "STALE_HANDLE");
    check_want(self, "tensor:2.0123456789abcdef.7", TUTTI_NOT_FOUND, "NO_TENSOR");
    check_want(self, "tensor:2.0123456789abcdef.0", TUTTI_NOT_FOUND, "NO_TENSOR");
    check_want(self, "nobody", TUTTI_NOT_FOUND, "NO_TENSOR");
}

static void
test_table_want__finds_by_name_what_it_finds_by_handle(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    table_call by_name;
    table_call by_handle;

    rig_make(self, "layers/0.weight", handle);
    call_read(&by_name, self, "layers/0.weight");
    call_read(&by_handle, self, handle);
    assert_ptr_equal(by_name.lock_set.locks[0].entry, by_handle.lock_set.locks[0].entry);
    call_release(&by_name);
    call_release(&by_handle);
}

/* ------------------------------------------------------------------------------ making */

static void
check_make(table_rig *self, const char *name, tutti_code code, const char *reason)
{
    tutti_error err;
    table_call one;

    call_init(&one, self);
    assert_fails(tutti_table_create_locked(self->table, &one.lock_set, name, &err), code);
    assert_string_equal(err.reason, reason);
    assert_int_equal(one.lock_set.count, 0);
}

static void
test_table_make__takes_a_name_once(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    char again[TUTTI_TABLE_HANDLE_SIZE];

    rig_make(self, "weights", handle);
    check_make(self, "weights", TUTTI_ALREADY_EXISTS, "NAME_TAKEN");
    rig_delete(self, handle);
    rig_make(self, "weights", again);
    assert_string_not_equal(handle, again); /* numbers are not used twice */
}

static void
test_table_make__checks_names(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    char name[TUTTI_NAME_MAX + 2];

    check_make(self, "-x", TUTTI_INVALID_ARGUMENT, "BAD_NAME");
    check_make(self, "a b", TUTTI_INVALID_ARGUMENT, "BAD_NAME");
    check_make(self, "tensor:1", TUTTI_INVALID_ARGUMENT, "BAD_NAME"); /* never like a handle */
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    check_make(self, name, TUTTI_INVALID_ARGUMENT, "BAD_NAME");
    name[TUTTI_NAME_MAX] = '\0';
    rig_make(self, name, handle);
    assert_int_equal(tutti_table_count(self->table), 1);
}

static void
test_table_make__stops_at_the_limit(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    table_call reader;
    int i;

    for (i = 0; i < HANDLES_MAX; i++) {
        rig_make(self, "", handle);
    }
    assert_int_equal(tutti_table_count(self->table), HANDLES_MAX);
    check_make(self, "", TUTTI_RESOURCE_EXHAUSTED, "HANDLE_LIMIT");
    call_read(&reader, self, handle);
    rig_delete(self, handle); /* its handle is free, though somebody still reads it */
    rig_make(self, "", handle);
    check_make(self, "", TUTTI_RESOURCE_EXHAUSTED, "HANDLE_LIMIT");
    call_release(&reader);
}

static void
test_table_drop_new__leaves_nothing_behind(void **state)
{
    table_rig *self = *state;
    tutti_error err;
    table_call writer;
    table_call reader;

    call_init(&writer, self);
    assert_ok(tutti_table_create_locked(self->table, &writer.lock_set, "half", &err));
    assert_true(call_claim(&writer));
    call_read(&reader, self, "half");
    tutti_table_drop_new(self->table, &writer.lock_set.locks[0]);
    tutti_table_drop_new(self->table, &writer.lock_set.locks[0]); /* twice is once */
    check_want(self, "half", TUTTI_NOT_FOUND, "NO_TENSOR");
    assert_int_equal(tutti_table_count(self->table), 0);
    call_release(&writer);
    assert_int_equal(rig_run(self), 1);
    assert_fails(tutti_table_check(self->table, &reader.lock_set.locks[0], &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_text_has(err.text, "never written");
    call_release(&reader);
}

static void
test_table_unwant__takes_the_last_wish_back(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    tutti_error err;
    table_call one;
    table_call other;

    rig_make(self, "x", handle);
    call_init(&one, self);
    call_want(&one, handle, false);
    call_want(&one, "x", true); /* the same by its other name */
    assert_ptr_equal(one.lock_set.locks[0].entry, one.lock_set.locks[1].entry);
    tutti_table_unwant(self->table, &one.lock_set);
    one.lock_set.locks[0].exclusive = true;
    assert_true(call_claim(&one));
    call_init(&other, self);
    assert_ok(tutti_table_create_locked(self->table, &other.lock_set, "y", &err));
    tutti_table_drop_new(self->table, &other.lock_set.locks[0]);
    tutti_table_unwant(self->table, &other.lock_set); /* the entry goes with it */
    assert_true(call_claim(&other));
    call_release(&other);
    call_release(&one);
}

/* ------------------------------------------------------------------------------ deleting */

static void
test_table_delete__of_a_tensor_in_use_waits_for_the_last_use(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    table_call reader;
    table_call writer;
    tutti_tensor *tensor;

    rig_make(self, "x", handle);
    call_read(&reader, self, handle);
    call_write(&writer, self, handle);
    rig_delete(self, handle);
    check_want(self, handle, TUTTI_NOT_FOUND, "NO_TENSOR");
    check_want(self, "x", TUTTI_NOT_FOUND, "NO_TENSOR");
    tensor = tutti_table_tensor(self->table, &reader.lock_set.locks[0]);
    memset(tensor->data, 7, RIG_TENSOR_BYTES);
    call_release(&reader);
    assert_int_equal(rig_run(self), 1);
    assert_true(writer.ready); /* who stood in line gets its turn all the same */
    assert_ptr_equal(tutti_table_tensor(self->table, &writer.lock_set.locks[0]), tensor);
    assert_int_equal(rig_tensor_count(self), 1);
    call_release(&writer);
    assert_int_equal(rig_tensor_count(self), 0);
}

static void
test_table_delete__takes_all_or_none(void **state)
{
    table_rig *self = *state;
    char x[TUTTI_TABLE_HANDLE_SIZE];
    char y[TUTTI_TABLE_HANDLE_SIZE];
    char gone[] = "tensor:0.0123456789abcdef.99";
    char name[] = "x";
    char *wrong[] = {x, y, gone};
    char *right[] = {x, name, y, y}; /* named twice is deleted once */
    tutti_error err;

    rig_make(self, "x", x);
    rig_make(self, "", y);
    assert_fails(tutti_table_delete(self->table, wrong, 3, false, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_TENSOR");
    assert_int_equal(tutti_table_count(self->table), 2);
    assert_ok(tutti_table_delete(self->table, right, 4, false, &err));
    assert_int_equal(tutti_table_count(self->table), 0);
    assert_int_equal(rig_tensor_count(self), 0);
}

static void
test_table_free__takes_all_tensors_with_it(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];

    rig_make(self, "", handle);
    rig_make(self, "x", handle); /* rig_stop sees that no memory is left */
    tutti_table_free(NULL);
}

/* ------------------------------------------------------------------------------ failures */

static void
test_table_check__tells_what_the_writer_came_to(void **state)
{
    table_rig *self = *state;
    tutti_error err;
    tutti_error why;
    tutti_lock *lock;
    table_call writer;

    call_init(&writer, self);
    assert_ok(tutti_table_create_locked(self->table, &writer.lock_set, "", &err));
    assert_true(call_claim(&writer));
    lock = &writer.lock_set.locks[0];
    assert_null(tutti_table_tensor(self->table, lock));
    assert_fails(tutti_table_check(self->table, lock, &err), TUTTI_FAILED_PRECONDITION);
    call_fill(&writer, 0);
    assert_ok(tutti_table_check(self->table, lock, &err));
    (void)TUTTI_FAIL_FOR(&why, TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3 is gone");
    tutti_table_mark(self->table, lock, &why);
    assert_fails(tutti_table_check(self->table, lock, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "RANK_LOST");
    assert_string_equal(err.text, "rank 3 is gone");
    (void)TUTTI_FAIL(&why, TUTTI_ABORTED, "something newer");
    tutti_table_mark(self->table, lock, &why);
    assert_fails(tutti_table_check(self->table, lock, NULL), TUTTI_ABORTED);
    tutti_table_mark(self->table, lock, NULL);
    assert_ok(tutti_table_check(self->table, lock, &err));
    call_release(&writer);
}

static void
test_table_mark__without_memory_is_a_failure_all_the_same(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    tutti_table_info info;
    tutti_error err;
    tutti_error why;
    table_call writer;

    rig_make(self, "", handle);
    call_write(&writer, self, handle);
    (void)TUTTI_FAIL(&why, TUTTI_UNAVAILABLE, "rank 3 is gone");
    sweep_fail_at(0);
    tutti_table_mark(self->table, &writer.lock_set.locks[0], &why);
    assert_true(sweep_stop());
    assert_fails(tutti_table_check(self->table, &writer.lock_set.locks[0], &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "no memory");
    assert_int_equal(err.rank, TUTTI_ERROR_RANK_NONE);
    assert_ok(tutti_table_stat(self->table, handle, &info, &err));
    assert_true(info.failed);
    tutti_table_mark(self->table, &writer.lock_set.locks[0], &why);
    assert_fails(tutti_table_check(self->table, &writer.lock_set.locks[0], &err),
                 TUTTI_UNAVAILABLE);
    call_release(&writer);
}

/* ------------------------------------------------------------------------------ what a person sees
 */

static void
test_table_stat__shows_a_tensor_without_waiting(void **state)
{
    table_rig *self = *state;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    tutti_table_info info;
    tutti_error err;
    table_call writer;
    table_call reader;

    call_init(&writer, self);
    assert_ok(tutti_table_create_locked(self->table, &writer.lock_set, "x", &err));
    assert_true(call_claim(&writer));
    assert_ok(tutti_table_stat(self->table, "x", &info, &err));
    assert_true(info.pending);
    assert_false(info.has_spec);
    assert_false(info.failed);
    tutti_table_handle(&writer.lock_set.locks[0], handle);
    assert_string_equal(info.handle, handle);
    call_fill(&writer, 0);
    call_release(&writer);
    call_read(&reader, self, handle);
    assert_ok(tutti_table_stat(self->table, handle, &info, &err));
    assert_false(info.pending); /* readers do not count */
    assert_true(info.has_spec);
    assert_int_equal(info.spec.dtype, TUTTI_DTYPE_UINT8);
    assert_int_equal(info.bytes, RIG_TENSOR_BYTES);
    assert_string_equal(info.name, "x");
    call_write(&writer, self, handle);
    assert_ok(tutti_table_stat(self->table, handle, &info, &err));
    assert_true(info.pending); /* somebody waits to write it */
    call_release(&reader);
    (void)rig_run(self);
    call_release(&writer);
    assert_fails(tutti_table_stat(self->table, "y", &info, &err), TUTTI_NOT_FOUND);
}

static void
test_table_next__walks_in_the_order_of_making(void **state)
{
    table_rig *self = *state;
    char handles[4][TUTTI_TABLE_HANDLE_SIZE];
    tutti_table_info info;
    uint64_t number = 0;
    int i;

    assert_int_equal(tutti_table_next(self->table, 0, &info), 0);
    for (i = 0; i < 4; i++) {
        rig_make(self, "", handles[i]);
    }
    rig_delete(self, handles[1]);
    for (i = 0; i < 4; i += i == 0 ? 2 : 1) { /* 0, 2, 3 */
        number = tutti_table_next(self->table, number, &info);
        assert_int_equal(number, i + 1);
        assert_string_equal(info.handle, handles[i]);
    }
    assert_int_equal(tutti_table_next(self->table, number, &info), 0);
    rig_delete(self, handles[3]); /* a backward pass goes on behind what was deleted meanwhile */
    assert_int_equal(tutti_table_next(self->table, 3, &info), 0);
    assert_int_equal(tutti_table_next(self->table, 1, &info), 3);
}

/* ------------------------------------------------------------------------------ leases */

static tutti_code
make_with_lease(table_rig *self, uint64_t lease, const char *name, tutti_error *err)
{
    tutti_lock_set lock_set = {.loop = &self->loop, .lease = lease};
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {RIG_TENSOR_BYTES}};
    tutti_tensor *tensor = NULL;
    const tutti_code code = tutti_table_create_locked(self->table, &lock_set, name, err);

    if (code == TUTTI_OK) {
        assert_int_equal(tutti_tensor_new(self->space, &spec, false, &tensor, err), TUTTI_OK);
        tutti_table_fill(self->table, &lock_set.locks[0], tensor);
        tutti_table_release(self->table, &lock_set);
    }
    return code;
}

static void
test_table_lease__takes_its_tensors_with_it(void **state)
{
    table_rig *self = *state;
    tutti_table_info info;
    uint64_t lease = 0;
    uint64_t other = 0;
    tutti_error err;

    assert_ok(tutti_table_open_lease(self->table, 2, &lease, &err));
    assert_ok(tutti_table_open_lease(self->table, 2, &other, &err));
    assert_ok(make_with_lease(self, lease, "a", &err));
    assert_ok(make_with_lease(self, 0, "b", &err));
    assert_ok(make_with_lease(self, other, "c", &err));
    assert_ok(make_with_lease(self, lease, "d", &err));
    assert_ok(tutti_table_stat(self->table, "a", &info, &err));
    assert_true(info.ephemeral);
    assert_ok(tutti_table_stat(self->table, "b", &info, &err));
    assert_false(info.ephemeral);
    assert_int_equal(tutti_table_close_lease(self->table, lease), 2);
    assert_fails(tutti_table_stat(self->table, "a", &info, &err), TUTTI_NOT_FOUND);
    assert_ok(tutti_table_stat(self->table, "b", &info, &err));
    assert_ok(tutti_table_stat(self->table, "c", &info, &err));
    assert_int_equal(rig_tensor_count(self), 2);
    assert_int_equal(tutti_table_close_lease(self->table, lease), 0); /* once */
    assert_int_equal(tutti_table_close_lease(self->table, other), 1);
}

/* ------------------------------------------------------------------------------ registers */

static void
test_table_register__gives_its_name_to_the_next_value_of_its_session(void **state)
{
    static char name[] = "reg:7f3a/12";
    static char bad[][48] = {"reg:",
                             "reg:7f3a",
                             "reg:7f3a/",
                             "reg:/1",
                             "reg:7F/1",
                             "reg:7f3a/1x",
                             "reg:7f3a/1/2",
                             "reg:7f3a/-1",
                             "reg:a/12345678901",
                             "reg:0123456789012345678901234567890123/1"};
    table_rig *self = *state;
    tutti_table_info first;
    tutti_table_info second;
    uint64_t lease = 0;
    uint64_t other = 0;
    tutti_error err;
    size_t i;

    assert_ok(tutti_table_open_lease(self->table, 2, &lease, &err));
    assert_ok(tutti_table_open_lease(self->table, 2, &other, &err));
    assert_ok(make_with_lease(self, lease, name, &err));
    assert_ok(tutti_table_stat(self->table, name, &first, &err));
    assert_ok(make_with_lease(self, lease, name, &err));
    assert_ok(tutti_table_stat(self->table, name, &second, &err));
    assert_true(second.number > first.number);
    assert_int_equal(tutti_table_count(self->table), 1);
    assert_fails(make_with_lease(self, other, name, &err), TUTTI_ALREADY_EXISTS);
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(make_with_lease(self, lease, bad[i], &err), TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_NAME");
    }
    (void)tutti_table_close_lease(self->table, lease);
    assert_fails(tutti_table_stat(self->table, name, &second, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.text, "register 12 of session 7f3a is null on rank 0");
    (void)tutti_table_close_lease(self->table, other);
}

static void
test_table_register__keeps_why_its_writer_failed(void **state)
{
    static char name[] = "reg:7f3a/12";
    char *names[] = {name};
    table_rig *self = *state;
    tutti_table_info info;
    tutti_lock_set lock_set = {.loop = &self->loop};
    tutti_error cause;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&cause, TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3 is gone");
    assert_ok(tutti_table_create_locked(self->table, &lock_set, name, &err));
    tutti_table_fail_new(self->table, &lock_set.locks[0], &cause);
    tutti_table_release(self->table, &lock_set);
    assert_ok(tutti_table_stat(self->table, name, &info, &err));
    assert_true(info.failed);
    assert_string_equal(info.err.text, "rank 3 is gone");

    (void)TUTTI_FAIL(&cause, TUTTI_INVALID_ARGUMENT, "another");
    tutti_table_fail_register(self->table, name, "me", 0, &cause);
    assert_ok(tutti_table_stat(self->table, name, &info, &err));
    assert_string_equal(info.err.text, "another");
    assert_string_equal(info.owner, "me");
    tutti_table_fail_register(self->table, "plain", "me", 0, &cause);
    assert_int_equal(tutti_table_count(self->table), 1);
    assert_ok(tutti_table_delete(self->table, names, 1, false, &err));
    assert_fails(tutti_table_delete(self->table, names, 1, false, &err), TUTTI_NOT_FOUND);
    assert_ok(tutti_table_delete(self->table, names, 1, true, &err));
}

static void
test_table_lease__that_is_over_makes_nothing(void **state)
{
    table_rig *self = *state;
    uint64_t lease = 0;
    uint64_t other = 0;
    tutti_error err;

    assert_fails(make_with_lease(self, 7, "a", &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "LEASE_OVER");
    assert_ok(tutti_table_open_lease(self->table, 1, &lease, &err));
    assert_fails(tutti_table_open_lease(self->table, 1, &other, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "LEASE_LIMIT");
    assert_int_equal(tutti_table_close_lease(self->table, lease), 0);
    assert_fails(make_with_lease(self, lease, "a", &err), TUTTI_FAILED_PRECONDITION);
    assert_ok(tutti_table_open_lease(self->table, 1, &lease, &err));
    assert_ok(make_with_lease(self, lease, "a", &err)); /* and the table ends before the lease */
}

/* ------------------------------------------------------------------------------ no memory */

/* A life of a tensor; what it made is gone again, however far it came. */
static tutti_code
live(table_rig *self, tutti_table **ret_table, tutti_error *err)
{
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {RIG_TENSOR_BYTES}};
    tutti_tensor *tensor = NULL;
    tutti_table *table = NULL;
    tutti_lock_set lock_set = {.loop = &self->loop};
    tutti_code code = tutti_table_new(1, 4, &table, err);

    if (code == TUTTI_OK) {
        *ret_table = table;
        code = tutti_table_create_locked(table, &lock_set, "x", err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(self->space, &spec, false, &tensor, err);
        if (code == TUTTI_OK) {
            tutti_table_fill(table, &lock_set.locks[0], tensor);
        } else {
            tutti_table_drop_new(table, &lock_set.locks[0]);
        }
        tutti_table_release(table, &lock_set);
    }
    if (code == TUTTI_OK) {
        code = tutti_table_lock_by_name(table, &lock_set, "x", true, err);
        assert_int_equal(code, TUTTI_OK); /* takes no memory */
        tutti_table_release(table, &lock_set);
    }
    return code;
}

static void
test_table__survives_every_allocation_that_fails(void **state)
{
    table_rig *self = *state;
    bool done = false;
    tutti_error err;
    size_t n;

    for (n = 0; !done; n++) {
        tutti_table *table = NULL;
        tutti_code code;

        sweep_fail_at(n);
        code = live(self, &table, &err);
        done = !sweep_stop();
        assert_int_equal(code, done ? TUTTI_OK : TUTTI_RESOURCE_EXHAUSTED);
        if (!done && table != NULL) {
            assert_int_equal(tutti_table_count(table), 0);
        }
        tutti_table_free(table);
        assert_int_equal(rig_tensor_count(self), 0);
    }
    assert_true(n > 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_table_handle__says_rank_process_and_number),
        TEST(test_table_handle__of_the_time_before_joining_stays_good),
        TEST(test_table_want__refuses_what_is_no_handle),
        TEST(test_table_want__tells_foreign_stale_and_unknown_handles_apart),
        TEST(test_table_want__finds_by_name_what_it_finds_by_handle),
        TEST(test_table_make__takes_a_name_once),
        TEST(test_table_make__checks_names),
        TEST(test_table_make__stops_at_the_limit),
        TEST(test_table_drop_new__leaves_nothing_behind),
        TEST(test_table_unwant__takes_the_last_wish_back),
        TEST(test_table_delete__of_a_tensor_in_use_waits_for_the_last_use),
        TEST(test_table_delete__takes_all_or_none),
        TEST(test_table_free__takes_all_tensors_with_it),
        TEST(test_table_check__tells_what_the_writer_came_to),
        TEST(test_table_mark__without_memory_is_a_failure_all_the_same),
        TEST(test_table_stat__shows_a_tensor_without_waiting),
        TEST(test_table_next__walks_in_the_order_of_making),
        TEST(test_table_lease__takes_its_tensors_with_it),
        TEST(test_table_lease__that_is_over_makes_nothing),
        TEST(test_table_register__gives_its_name_to_the_next_value_of_its_session),
        TEST(test_table_register__keeps_why_its_writer_failed),
        TEST(test_table_value__is_there_for_readers_and_is_no_tensor),
        TEST(test_table_value__of_an_unnamed_entry_is_told_by_its_handle),
        TEST(test_table_create_instead__takes_the_name_at_once_and_leaves_readers_alone),
        TEST(test_table_create_instead__of_a_full_table_needs_a_name_that_is_taken),
        TEST(test_table__survives_every_allocation_that_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
