/*
 * Goal: a channel takes more calls at once than a server takes on one connection, none of them waits for another one, and
 * connections are used again.
 * Method: calls that the echo server keeps until it is told to answer; --streams-max has its default, 100.
 */
#include "rig.h"

#include "rpc/channel/channel_private.h"

#define MANY 450

static atomic_size_t replies;
static atomic_size_t failures;

static void
on_reply(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    (void)arg;
    (void)response;
    (void)atomic_fetch_add(err == NULL ? &replies : &failures, 1);
}

static void
park(rig *self, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        const echo_fields fields = {.text = "parked"};
        echo_storage storage;
        tutti_error err;

        assert_ok(tutti_rpc_request_start(self->channel, self->server.loops[0], &echo_park,
                                          echo_request(&storage, &fields), NULL, on_reply, NULL,
                                          NULL, &err));
    }
}

static void
test_connections__take_what_one_does_not(void **state)
{
    rig *self = *state;
    char text[256];
    tutti_error err;

    replies = 0;
    failures = 0;
    park(self, MANY);
    rig_await(self->server.parked_count, MANY);
    assert_ok(rig_ask(self->channel, "beside them", text, &err));
    assert_string_equal(text, "beside them");
    echo_server_release(&self->server);
    rig_await(replies + failures, MANY);
    assert_int_equal(failures, 0);
}

static void
test_connections__are_used_again(void **state)
{
    rig *self = *state;
    size_t round;
    size_t before = 0;

    replies = 0;
    failures = 0;
    for (round = 1; round <= 5; round++) {
        park(self, MANY);
        rig_await(self->server.parked_count, MANY);
        before = round == 1 ? rig_descriptors() : before;
        echo_server_release(&self->server);
        rig_await(replies, round * MANY);
    }
    rig_await(self->channel->calls, 0);
    assert_true(rig_descriptors() < before + MANY / TUTTI_RPC_CONNECTION_CALLS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_connections__take_what_one_does_not, rig_begin,
                                        rig_end),
        cmocka_unit_test_setup_teardown(test_connections__are_used_again, rig_begin, rig_end),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
