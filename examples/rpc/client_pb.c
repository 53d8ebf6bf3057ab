/* greeter-client ADDRESS NAME ...: greets the first one by a call, all of them by a stream. */
#include <stdio.h>
#include <tutti-rpc/rpc.h>

#include "greeter.pb-c.h"

static const tuttirpc_stub say_hello = {&greeter__greeter__descriptor, "SayHello"};
static const tuttirpc_stub greet_all = {&greeter__greeter__descriptor, "GreetAll"};

static void
print(const char *from, tuttirpc_message *message)
{
    const Greeter__HelloReply *reply = tuttirpc_message_get(message);

    (void)printf("%s: %s\n", from, reply->text);
    tuttirpc_message_free(message);
}

static tuttirpc_code
call_once(tuttirpc_channel *channel, char *name, tuttirpc_status *status)
{
    Greeter__HelloRequest request = GREETER__HELLO_REQUEST__INIT;
    tuttirpc_message *reply = NULL;
    tuttirpc_code code;

    request.name = name;
    code = tuttirpc_call(channel, &say_hello, &request.base, 5000, &reply, status);
    if (code == TUTTIRPC_OK) {
        print("call", reply);
    }
    return code;
}

static tuttirpc_code
stream_all(tuttirpc_channel *channel, char **names, tuttirpc_status *status)
{
    Greeter__HelloRequest request = GREETER__HELLO_REQUEST__INIT;
    tuttirpc_stream *stream = NULL;
    tuttirpc_message *reply = NULL;
    tuttirpc_code code = tuttirpc_stream_open(channel, &greet_all, 5000, &stream, status);

    if (code != TUTTIRPC_OK) {
        return code;
    }
    /* A write fails if the stream has ended: what came before is read, and finish says why. */
    for (; *names != NULL && code == TUTTIRPC_OK; names++) {
        request.name = *names;
        code = tuttirpc_stream_write(stream, &request.base, NULL);
    }
    (void)tuttirpc_stream_writes_done(stream, NULL);
    while (tuttirpc_stream_read(stream, &reply, NULL) == TUTTIRPC_OK && reply != NULL) {
        print("stream", reply);
    }
    return tuttirpc_stream_finish(stream, status);
}

int
main(int argc, char **argv)
{
    tuttirpc_channel *channel = NULL;
    tuttirpc_status status;

    if (argc < 3) {
        (void)fprintf(stderr, "usage: greeter-client ADDRESS NAME ...\n");
        return 2;
    }
    if (tuttirpc_channel_open(argv[1], NULL, &channel, &status) != TUTTIRPC_OK ||
        call_once(channel, argv[2], &status) != TUTTIRPC_OK ||
        stream_all(channel, argv + 2, &status) != TUTTIRPC_OK) {
        (void)fprintf(stderr, "greeter-client: %s %s: %s\n", tuttirpc_code_name(status.code),
                      status.reason, status.text);
    } else {
        status.code = TUTTIRPC_OK;
    }
    tuttirpc_channel_close(channel);
    return status.code == TUTTIRPC_OK ? 0 : 1;
}
