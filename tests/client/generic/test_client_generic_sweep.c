/*
 * Goal: whichever allocation fails, a generic call says RESOURCE_EXHAUSTED, and nothing is leaked.
 * Method: each allocation of our own code fails in turn, in calls to an address where nobody is.
 */
#include "support/sweep.h"
#include "support/testing.h"

#include "tutti/generic.h"

#define METHOD "/tutti.v1.AgentService/DescribeAgent"
#define MOST 200

static char large[100000]; /* gRPC allocates small ones itself, and aborts without memory */

static tutti_generic *nobody;

static int
set_up(void **state)
{
    (void)state;
    return (int)tutti_generic_open("unix:/nobody/there", NULL, &nobody, NULL);
}

static int
tear_down(void **state)
{
    (void)state;
    tutti_generic_close(nobody);
    return 0;
}

static tutti_code
open_another(tutti_error *err)
{
    tutti_generic *other = NULL;
    tutti_code code = tutti_generic_open("unix:/nobody/here", NULL, &other, err);

    if (code == TUTTI_OK) {
        tutti_generic_close(other);
    }
    return code;
}

/* The error of a call that had its memory is that nobody is there. */
static tutti_code
call_unary(tutti_error *err)
{
    tutti_generic_message *message = NULL;
    const tutti_code code =
        tutti_generic_unary(nobody, METHOD, large, sizeof(large), NULL, &message, NULL, err);

    return code == TUTTI_UNAVAILABLE ? TUTTI_OK : code;
}

static tutti_code
start_and_send(tutti_error *err)
{
    tutti_generic_call *call = NULL;
    tutti_code code =
        tutti_generic_start(nobody, METHOD, large, sizeof(large), false, NULL, &call, err);

    if (code == TUTTI_OK) {
        code = tutti_generic_send(call, large, sizeof(large), true, err);
    }
    tutti_generic_free(call);
    return code;
}

/* How many allocations a step has; each of them has failed once. */
static size_t
sweep(tutti_code (*step)(tutti_error *err))
{
    bool failed = true;
    size_t number;

    for (number = 0; failed && number < MOST; number++) {
        tutti_error err;
        tutti_code code;

        sweep_fail_at(number);
        code = step(&err);
        failed = sweep_stop();
        /* An allocation of the connection's thread may have failed instead, which ends the call. */
        if (code != TUTTI_OK && (!failed || code != TUTTI_RESOURCE_EXHAUSTED)) {
            fail_msg("allocation %zu: %s", number, tutti_code_name(code));
        }
    }
    assert_false(failed);
    return number - 1;
}

static void
test_generic__without_memory_fails(void **state)
{
    tutti_error err;

    (void)state;
    assert_ok(start_and_send(&err)); /* its thread runs, and the method is known */
    assert_true(sweep(open_another) > 1);
    assert_true(sweep(call_unary) > 0);
    assert_true(sweep(start_and_send) > 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_generic__without_memory_fails, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
