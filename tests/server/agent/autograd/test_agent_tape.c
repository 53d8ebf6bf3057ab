/*
 * Goal: a tape knows which op made what a tensor holds, in the order in which ops came, and forgets
 * all of it when told to.
 * Method: tapes alone, without agent or gRPC; every allocation fails once.
 */
#include "server/agent/autograd/tape_rig.h"
#include "support/sweep.h"
#include "support/testing.h"

#define X 7U /* tensors */
#define Y 8U
#define Z 9U
#define W 10U

static void
test_tape__knows_what_ops_made(void **state)
{
    tutti_tape_record *record;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    assert_null(tutti_tape_var_of(rig.tape, X));
    tape_rig_attach(&rig, X);
    record = tape_rig_record(&rig, X, Y);
    assert_ptr_equal(record->in, tutti_tape_var_of(rig.tape, X));
    assert_ptr_equal(record->out, tutti_tape_var_of(rig.tape, Y));
    assert_ptr_equal(record->out->maker, record);
    assert_null(record->in->maker);
    assert_null(tutti_tape_var_of(rig.tape, Z));
    tape_rig_stop(&rig);
}

static void
test_tape__an_op_in_place_makes_a_new_variable(void **state)
{
    tutti_tape_record *first;
    tutti_tape_record *second;
    tutti_tape_var *leaf;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    tape_rig_attach(&rig, X);
    leaf = tutti_tape_var_of(rig.tape, X);
    first = tape_rig_record(&rig, X, X);
    second = tape_rig_record(&rig, X, X);
    assert_ptr_equal(first->in, leaf);
    assert_ptr_equal(second->in, first->out);
    assert_ptr_equal(tutti_tape_var_of(rig.tape, X), second->out);
    assert_ptr_equal(tutti_tape_leaf_of(rig.tape, X), leaf);
    tutti_tape_clear(rig.tape, false);
    assert_ptr_equal(tutti_tape_var_of(rig.tape, X), leaf);
    tape_rig_stop(&rig);
}

static void
test_tape__a_failed_op_never_was(void **state)
{
    tutti_tape_record *first;
    tutti_tape_record *second;
    tutti_tape_var *before;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    tape_rig_attach(&rig, X);
    before = tutti_tape_var_of(rig.tape, X);
    first = tape_rig_begin(&rig, X, X);
    second = tape_rig_begin(&rig, X, Y);
    tutti_tape_record_drop(first);
    assert_ptr_equal(tutti_tape_var_of(rig.tape, X), before);
    tutti_tape_record_drop(second);
    assert_null(tutti_tape_var_of(rig.tape, Y));
    assert_int_equal(rig.tape->record_count, 0);
    tape_rig_stop(&rig);
}

/* A receiver is recorded when it has ended, at the place at which it came. */
static void
test_tape__records_are_in_the_order_in_which_ops_came(void **state)
{
    uint64_t last = 0;
    tutti_list_node *link;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    tape_rig_attach(&rig, X);
    rig.number = 4;
    (void)tape_rig_record(&rig, X, Y); /* 5 */
    rig.number = 2;
    (void)tape_rig_record(&rig, X, Z); /* 3 */
    rig.number = 0;
    (void)tape_rig_record(&rig, X, Z); /* 1 */
    rig.number = 3;
    (void)tape_rig_record(&rig, X, 0); /* 4 */
    for (link = rig.tape->records.next; link != &rig.tape->records; link = link->next) {
        const tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);

        assert_true(record->number > last);
        last = record->number;
    }
    assert_int_equal(last, 5);
    tape_rig_stop(&rig);
}

static void
test_tape__clearing_leaves_what_was_attached_and_what_is_pending(void **state)
{
    tutti_tape_record *walked;
    tutti_tape_record *pending;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    tape_rig_attach(&rig, X);
    walked = tape_rig_record(&rig, X, Y);
    (void)tape_rig_record(&rig, X, Z);
    pending = tape_rig_begin(&rig, Z, Z);
    tape_rig_attach(&rig, Y); /* a result that somebody wants the gradient of */
    walked->node = &rig;
    tutti_tape_clear(rig.tape, true);
    assert_int_equal(rig.tape->record_count, 2);
    assert_null(tutti_tape_leaf_of(rig.tape, Y)->maker);
    tutti_tape_clear(rig.tape, false);
    assert_int_equal(rig.tape->record_count, 1);
    assert_non_null(tutti_tape_var_of(rig.tape, Z)); /* made by the one that is pending */
    tutti_tape_record_drop(pending);
    assert_int_equal(rig.tape->leaf_count, 2);
    tape_rig_stop(&rig);
}

/* The caller of an op is answered before the control loop hears of the end. */
static void
test_tape__clearing_forgets_what_its_caller_knows_to_have_ended(void **state)
{
    tutti_tape_record *pending;
    tutti_tape_var *leaf;
    atomic_bool told = false;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    tape_rig_attach(&rig, X);
    leaf = tutti_tape_var_of(rig.tape, X);
    pending = tape_rig_begin(&rig, X, X);
    pending->told = &told;
    tutti_tape_clear(rig.tape, false);
    assert_int_equal(rig.tape->cleared_count, 0);
    atomic_store(&told, true);
    tutti_tape_clear(rig.tape, false);
    tutti_tape_clear(rig.tape, false);
    assert_int_equal(rig.tape->record_count, 1);
    assert_int_equal(rig.tape->cleared_count, 1);
    tutti_tape_record_end(pending, 1, &tape_rig_spec);
    assert_int_equal(rig.tape->record_count, 0);
    assert_int_equal(rig.tape->cleared_count, 0);
    assert_ptr_equal(tutti_tape_var_of(rig.tape, X), leaf);
    pending = tape_rig_begin(&rig, X, Y);
    pending->told = &told;
    tutti_tape_clear(rig.tape, false);
    tutti_tape_record_drop(pending);
    assert_int_equal(rig.tape->cleared_count, 0);
    tape_rig_stop(&rig);
}

static void
test_tape__one_tensor_may_be_on_several(void **state)
{
    tutti_tape *other = NULL;
    tutti_tape_var *var;
    tutti_error err;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    assert_ok(tutti_tape_new(rig.tapes, "u", &other, &err));
    tape_rig_attach(&rig, X);
    assert_ok(tutti_tape_attach(other, X, &tape_rig_spec, rig.space, &err));
    tape_rig_attach(&rig, Y);
    var = tutti_tapes_first_var(rig.tapes, X);
    assert_ptr_equal(var->tape, rig.tape);
    var = tutti_tapes_next_var(var);
    assert_ptr_equal(var->tape, other);
    assert_null(tutti_tapes_next_var(var));
    tutti_tapes_overwrite(rig.tapes, X);
    assert_null(tutti_tapes_first_var(rig.tapes, X));
    assert_non_null(tutti_tapes_first_var(rig.tapes, Y));
    tape_rig_stop(&rig);
}

static void
test_tape__a_deleted_one_stays_for_who_has_it(void **state)
{
    tutti_tape_record *pending;
    tutti_tape *same = NULL;
    tutti_error err;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    tape_rig_attach(&rig, X);
    (void)tape_rig_record(&rig, X, Y);
    pending = tape_rig_begin(&rig, Y, Y);
    tutti_tape_ref(rig.tape);
    tutti_tape_delete(rig.tape);
    assert_fails(tutti_tape_find(rig.tapes, "t", &same, &err), TUTTI_NOT_FOUND);
    assert_null(tutti_tapes_first_var(rig.tapes, X));
    assert_int_equal(rig.tape->record_count, 2);
    tutti_tape_record_end(pending, 1, &tape_rig_spec);
    tutti_tape_unref(rig.tape);
    tape_rig_stop(&rig);
}

static void
test_tape__names_and_numbers_have_limits(void **state)
{
    tutti_tape_record *record = NULL;
    const tutti_coll_args args = {.kind = TUTTI_COLL_ALL_REDUCE};
    const tutti_tape_entry entry = {.group = "world", .args = &args};
    const tutti_spec whole = {.dtype = TUTTI_DTYPE_INT32};
    tutti_tape *tape = NULL;
    tutti_error err;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 2);
    assert_fails(tutti_tape_new(rig.tapes, "t", &tape, &err), TUTTI_ALREADY_EXISTS);
    assert_fails(tutti_tape_new(rig.tapes, "/t", &tape, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_tape_attach(rig.tape, X, &whole, rig.space, &err), TUTTI_INVALID_ARGUMENT);
    tape_rig_attach(&rig, X);
    tape_rig_attach(&rig, X);
    (void)tape_rig_record(&rig, X, Y);
    assert_fails(tutti_tape_attach(rig.tape, Z, &tape_rig_spec, rig.space, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_fails(tutti_tape_record_new(rig.tape, &entry, &record, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "TAPE_LIMIT");
    assert_ok(tutti_tape_new(rig.tapes, "1", &tape, &err));
    assert_ok(tutti_tape_new(rig.tapes, "2", &tape, &err));
    assert_ok(tutti_tape_new(rig.tapes, "3", &tape, &err));
    assert_fails(tutti_tape_new(rig.tapes, "4", &tape, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "TRACER_LIMIT");
    tape_rig_stop(&rig);
}

static void
test_tape__attaches_all_or_none(void **state)
{
    tutti_error err;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 4);
    tape_rig_attach(&rig, X);
    (void)tape_rig_record(&rig, X, Y);
    {
        const tutti_tape_leaf leaves[] = {{X, &tape_rig_spec, rig.space},
                                          {Y, &tape_rig_spec, rig.space},
                                          {Z, &tape_rig_spec, rig.space},
                                          {W, &tape_rig_spec, rig.space}};

        assert_fails(tutti_tape_attach_all(rig.tape, leaves, 4, &err), TUTTI_RESOURCE_EXHAUSTED);
        assert_string_equal(err.reason, "TAPE_LIMIT");
        assert_int_equal(rig.tape->leaf_count, 1);
        assert_non_null(tutti_tape_leaf_of(rig.tape, X));
        assert_non_null(tutti_tape_var_of(rig.tape, Y)->maker);
        assert_null(tutti_tape_var_of(rig.tape, Z));
        assert_ok(tutti_tape_attach_all(rig.tape, leaves, 3, &err));
        assert_int_equal(rig.tape->leaf_count, 3);
    }
    tape_rig_stop(&rig);
}

static void
test_tape__adds_gradients_and_leaves_shared_ones_alone(void **state)
{
    tutti_tensor *given;
    const double *sum;
    tutti_tape_var *var;
    tutti_error err;
    tape_rig rig;

    (void)state;
    tape_rig_start(&rig, 100);
    tape_rig_attach(&rig, X);
    var = tutti_tape_var_of(rig.tape, X);
    given = tape_rig_tensor(&rig, 1, 2);
    tutti_tensor_ref(given);
    assert_ok(tutti_tape_add_gradient(var, given, true, &err));
    assert_ok(tutti_tape_add_gradient(var, tape_rig_tensor(&rig, 10, 20), false, &err));
    assert_ok(tutti_tape_add_gradient(var, tape_rig_tensor(&rig, 100, 200), false, &err));
    sum = var->gradient->data;
    assert_true(sum[0] == 111 && sum[1] == 222);
    assert_true(((double *)given->data)[0] == 1);
    tutti_tensor_unref(given);
    tutti_tape_drop_gradients(rig.tape);
    assert_null(var->gradient);
    tape_rig_stop(&rig);
}

static void
try_all(tape_rig *rig, bool *ret_done)
{
    const uint32_t to[2] = {1, 0};
    const tutti_coll_args args = {.kind = TUTTI_COLL_PERMUTE, .to = to, .to_count = 2};
    const tutti_tape_entry entry = {
        .number = 1, .group = "world", .args = &args, .in_tensor = X, .out_tensor = Y};
    tutti_tape_record *record = NULL;
    tutti_tape *tape = NULL;
    tutti_error err;
    tutti_code code = tutti_tape_new(rig->tapes, "u", &tape, &err);

    if (code == TUTTI_OK) {
        code = tutti_tape_attach(tape, X, &tape_rig_spec, NULL, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tape_record_new(tape, &entry, &record, &err);
    }
    *ret_done = !sweep_stop();
    assert_int_equal(code, *ret_done ? TUTTI_OK : TUTTI_RESOURCE_EXHAUSTED);
    if (record != NULL) {
        assert_int_equal(record->args.to[0], 1);
        tutti_tape_record_drop(record);
    }
    if (tape != NULL) {
        tutti_tape_delete(tape);
    }
}

static void
test_tape__survives_every_failed_allocation(void **state)
{
    bool done = false;
    size_t n;

    (void)state;
    for (n = 0; !done; n++) {
        tape_rig rig;

        tape_rig_start(&rig, 100);
        sweep_fail_at(n);
        try_all(&rig, &done);
        tape_rig_stop(&rig);
    }
    assert_true(n > 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tape__knows_what_ops_made),
        cmocka_unit_test(test_tape__an_op_in_place_makes_a_new_variable),
        cmocka_unit_test(test_tape__a_failed_op_never_was),
        cmocka_unit_test(test_tape__records_are_in_the_order_in_which_ops_came),
        cmocka_unit_test(test_tape__clearing_leaves_what_was_attached_and_what_is_pending),
        cmocka_unit_test(test_tape__clearing_forgets_what_its_caller_knows_to_have_ended),
        cmocka_unit_test(test_tape__one_tensor_may_be_on_several),
        cmocka_unit_test(test_tape__a_deleted_one_stays_for_who_has_it),
        cmocka_unit_test(test_tape__names_and_numbers_have_limits),
        cmocka_unit_test(test_tape__attaches_all_or_none),
        cmocka_unit_test(test_tape__adds_gradients_and_leaves_shared_ones_alone),
        cmocka_unit_test(test_tape__survives_every_failed_allocation),
    };

    return cmocka_run_group_tests_name("agent_tape", tests, NULL, NULL);
}
