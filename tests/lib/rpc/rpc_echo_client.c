/* rpc_echo_client ADDRESS: our client against an echo service in another language. 0 = all well. */
#include <stdio.h>
#include <string.h>

#include "base/os/clock.h"
#include "echo_pb.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, err.text);    \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int
check_unary(tutti_rpc_channel *channel)
{
    static const char data[] = "0123456789";
    const tutti_rpc_blob blob = {.data = data, .size = 10};
    const echo_fields request = {.text = "caf\xc3\xa9"};
    tutti_rpc_message *response = NULL;
    echo_storage storage;
    tutti_error err = {0};
    char payload[3];
    echo_fields got;

    CHECK(tutti_rpc_invoke(channel, &echo_unary, echo_request(&storage, &request), &blob, NULL,
                           &response, &err) == TUTTI_OK);
    got = echo_response_fields(tutti_rpc_message_get(response));
    CHECK(strcmp(got.text, "caf\xc3\xa9") == 0 && got.number == 10);
    CHECK(tutti_rpc_message_payload_bytes(response) == 3);
    tutti_rpc_message_read(response, payload, 3);
    CHECK(memcmp(payload, "abc", 3) == 0);
    tutti_rpc_message_free(response);
    return 0;
}

static int
check_errors(tutti_rpc_channel *channel)
{
    echo_fields request = {.text = "details", .fail = TUTTI_FAILED_PRECONDITION};
    echo_storage storage;
    tutti_error err = {0};

    CHECK(tutti_rpc_invoke(channel, &echo_unary, echo_request(&storage, &request), NULL, NULL, NULL,
                           &err) == TUTTI_FAILED_PRECONDITION);
    CHECK(strcmp(err.text, "ranks differ") == 0 && strcmp(err.reason, "SHAPE_MISMATCH") == 0);
    CHECK(strcmp(err.group, "world") == 0 && err.rank == 3 && err.sequence == 41);
    request.text = "bare";
    CHECK(tutti_rpc_invoke(channel, &echo_unary, echo_request(&storage, &request), NULL, NULL, NULL,
                           &err) == TUTTI_FAILED_PRECONDITION);
    CHECK(strcmp(err.text, "just text") == 0 && strcmp(err.reason, "GRPC_STATUS") == 0);
    CHECK(tutti_rpc_invoke(channel, &echo_missing, echo_request(&storage, &request), NULL, NULL,
                           NULL, &err) == TUTTI_UNIMPLEMENTED);
    return 0;
}

static int
check_upload(tutti_rpc_channel *channel)
{
    const echo_fields request = {.text = "hi"};
    tutti_rpc_stream *stream = NULL;
    tutti_rpc_message *response = NULL;
    echo_storage storage;
    tutti_error err = {0};
    int i;

    CHECK(tutti_rpc_stream_open(channel, &echo_upload, NULL, &stream, &err) == TUTTI_OK);
    for (i = 0; i < 10; i++) {
        CHECK(tutti_rpc_stream_write(stream, echo_request(&storage, &request), NULL, &err) ==
              TUTTI_OK);
    }
    CHECK(tutti_rpc_stream_writes_done(stream, &err) == TUTTI_OK);
    CHECK(tutti_rpc_stream_read(stream, &response, &err) == TUTTI_OK && response != NULL);
    CHECK(echo_response_fields(tutti_rpc_message_get(response)).count == 10);
    tutti_rpc_message_free(response);
    CHECK(tutti_rpc_stream_finish(stream, &err) == TUTTI_OK);
    return 0;
}

/* `count` messages back: for one request (download), or each for one (chat). */
static int
check_answers(tutti_rpc_channel *channel, const tutti_rpc_stub *stub, unsigned count)
{
    const echo_fields request = {.text = "hi", .count = count};
    tutti_rpc_stream *stream = NULL;
    tutti_rpc_message *response = NULL;
    echo_storage storage;
    tutti_error err = {0};
    unsigned i;

    CHECK(tutti_rpc_stream_open(channel, stub, NULL, &stream, &err) == TUTTI_OK);
    for (i = 0; i < count; i++) {
        if (i == 0 || stub == &echo_chat) {
            CHECK(tutti_rpc_stream_write(stream, echo_request(&storage, &request), NULL, &err) ==
                  TUTTI_OK);
        }
        CHECK(tutti_rpc_stream_read(stream, &response, &err) == TUTTI_OK && response != NULL);
        tutti_rpc_message_free(response);
    }
    CHECK(tutti_rpc_stream_writes_done(stream, &err) == TUTTI_OK);
    CHECK(tutti_rpc_stream_read(stream, &response, &err) == TUTTI_OK && response == NULL);
    CHECK(tutti_rpc_stream_finish(stream, &err) == TUTTI_OK);
    return 0;
}

int
main(int argc, char **argv)
{
    tutti_rpc_channel *channel = NULL;
    tutti_error err = {0};
    int failed;

    if (argc != 2) {
        return 2;
    }
    tutti_rpc_init();
    CHECK(tutti_rpc_channel_open(argv[1], NULL, &channel, &err) == TUTTI_OK);
    failed = check_unary(channel) + check_errors(channel) + check_upload(channel) +
             check_answers(channel, &echo_download, 20) + check_answers(channel, &echo_chat, 20);
    tutti_rpc_channel_close(channel);
    tutti_rpc_fini();
    return failed;
}
