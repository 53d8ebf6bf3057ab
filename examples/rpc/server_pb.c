/* greeter-server [ADDRESS]: greets until it gets SIGINT or SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <tutti-rpc/rpc.h>

#include "greeter.pb-c.h"
#include "greeter_set.h"

static void
say_hello(tuttirpc_server_call *call, void *self)
{
    const Greeter__HelloRequest *request = tuttirpc_call_request(call);
    Greeter__HelloReply reply = GREETER__HELLO_REPLY__INIT;
    char text[256];

    (void)self;
    if (request->name[0] == '\0') {
        tuttirpc_call_fail(call, TUTTIRPC_INVALID_ARGUMENT, "NO_NAME", "name is empty: give one");
        return;
    }
    (void)snprintf(text, sizeof(text), "hello %.200s", request->name);
    reply.text = text;
    tuttirpc_call_reply(call, &reply.base);
}

/* The stream: a name is read, greeted, and the next one is read when the greeting has left. */
static void
read_next(tuttirpc_server_call *call, void *self)
{
    (void)self;
    tuttirpc_call_read(call);
}

static void
greet(tuttirpc_server_call *call, void *self, tuttirpc_message *message)
{
    const Greeter__HelloRequest *request = tuttirpc_message_get(message);
    Greeter__HelloReply reply = GREETER__HELLO_REPLY__INIT;
    char text[256];

    (void)self;
    (void)snprintf(text, sizeof(text), "hello %.200s", request->name);
    reply.text = text;
    tuttirpc_call_write(call, &reply.base);
}

static void
end(tuttirpc_server_call *call, void *self)
{
    (void)self;
    tuttirpc_call_finish(call);
}

static const tuttirpc_stream_ops greet_all = {.on_open = read_next,
                                              .on_message = greet,
                                              .on_written = read_next,
                                              .on_half_close = end,
                                              .on_cancel = end};
static const tuttirpc_method methods[] = {{.name = "SayHello", .on_call = say_hello},
                                          {.name = "GreetAll", .stream = &greet_all}};

int
main(int argc, char **argv)
{
    const tuttirpc_server_options options = {.listen = argc > 1 ? argv[1] : "127.0.0.1:50051"};
    tuttirpc_server *server = NULL;
    tuttirpc_status status;
    sigset_t signals;
    int number = 0;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    if (tuttirpc_server_new(&options, greeter_set, greeter_set_size, &server, &status) != 0 ||
        tuttirpc_server_add(server, &greeter__greeter__descriptor, methods, 2, NULL, &status) !=
            0 ||
        tuttirpc_server_start(server, &status) != 0) {
        (void)fprintf(stderr, "greeter-server: %s\n", status.text);
        return 1;
    }
    (void)printf("%s\n", tuttirpc_server_address(server, 0));
    (void)fflush(stdout);
    (void)sigwait(&signals, &number);
    tuttirpc_server_free(server);
    return 0;
}
