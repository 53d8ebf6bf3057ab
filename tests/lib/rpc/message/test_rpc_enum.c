/*
 * Goal: enum numbers that a .proto does not know are refused before the handler runs, or reach it
 * when its service wants to hear of them.
 * Method: our own client, which sends any number.
 */
#include "rig.h"

static void
begin_with_enums(rig *self, bool open)
{
    echo_server_init(&self->server, "127.0.0.1:0");
    self->server.open_enums = open;
    rig_start(self, 1, NULL);
}

static tutti_code
upload_one(tutti_rpc_channel *channel, const echo_fields *request, tutti_error *ret_err)
{
    tutti_rpc_stream *stream = NULL;
    echo_storage storage;
    tutti_error err;

    assert_ok(tutti_rpc_stream_open(channel, &echo_upload, NULL, &stream, &err));
    assert_ok(tutti_rpc_stream_write(stream, echo_request(&storage, request), NULL, &err));
    return tutti_rpc_stream_finish(stream, ret_err);
}

static void
test_call__with_an_unknown_enum_number_is_refused(void **state)
{
    const echo_fields request = {.text = "/colour", .colour = 99};
    rig self = {0};
    tutti_error err;

    (void)state;
    begin_with_enums(&self, false);
    assert_fails(rig_call(self.channel, &echo_unary, &request, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_ENUM");
    assert_text_has(err.text, "99 is no value of rpctest.v1.Colour");
    assert_fails(upload_one(self.channel, &request, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_ENUM");
    rig_stop(&self);
}

static void
test_call__with_an_unknown_enum_number_reaches_a_service_that_wants_it(void **state)
{
    const echo_fields request = {.text = "/colour", .colour = 99};
    rig self = {0};
    tutti_rpc_message *response = NULL;
    tutti_error err;
    rig_bare bad_text;

    (void)state;
    begin_with_enums(&self, true);
    assert_ok(rig_call(self.channel, &echo_unary, &request, &response, &err));
    assert_string_equal(echo_response_fields(tutti_rpc_message_get(response)).text, "colour 99");
    tutti_rpc_message_free(response);
    assert_ok(upload_one(self.channel, &request, &err));
    bad_text =
        rig_call_bare(self.channel, "/rpctest.v1.EchoService/Unary", "\x0a\x01\xff", 3, NULL, NULL);
    assert_int_equal(bad_text.status, TUTTI_INVALID_ARGUMENT); /* all else is still looked at */
    rig_stop(&self);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call__with_an_unknown_enum_number_is_refused),
        cmocka_unit_test(test_call__with_an_unknown_enum_number_reaches_a_service_that_wants_it),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
