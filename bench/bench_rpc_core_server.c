/*
 * The peer with gRPC alone: registered methods, one completion queue, one thread, and nothing else
 * that a server needs (no deadlines, limits, errors, health).
 */
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench_rpc.h"
#include "bench_rpc_core.h"

#define WAITING 16 /* requests posted for each method */

typedef struct core_call core_call;

typedef struct core_tag {
    void (*on_done)(core_call *call, int ok);
    core_call *call;
} core_tag;

typedef struct core_method {
    const char *path;
    grpc_server_register_method_payload_handling payload;
    void (*on_begin)(core_call *call, int ok);
    void *handle;
} core_method;

struct core_call {
    core_method *method;
    grpc_call *call;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_byte_buffer *message;
    core_order order; /* what is left of a download */
    uint64_t bytes;
    int cancelled;
    core_tag tag;
};

static grpc_server *server;
static grpc_completion_queue *queue;

static void
post(core_method *method)
{
    core_call *call = calloc(1, sizeof(*call));

    if (call == NULL) {
        bench_die("core", "no memory");
    }
    call->method = method;
    call->tag = (core_tag){method->on_begin, call};
    grpc_metadata_array_init(&call->metadata);
    (void)grpc_server_request_registered_call(
        server, method->handle, &call->call, &call->deadline, &call->metadata,
        method->payload == GRPC_SRM_PAYLOAD_NONE ? NULL : &call->message, queue, queue, &call->tag);
}

static void
on_end(core_call *call, int ok)
{
    (void)ok;
    if (call->call != NULL) {
        grpc_call_unref(call->call);
    }
    if (call->message != NULL) {
        grpc_byte_buffer_destroy(call->message);
    }
    grpc_metadata_array_destroy(&call->metadata);
    free(call);
}

/* The last batch: with a first and last message when `message` is there, and the status. */
static void
finish(core_call *call, grpc_byte_buffer *message)
{
    grpc_slice text = grpc_empty_slice();
    grpc_op ops[4] = {0};
    size_t count = 0;

    if (message != NULL) {
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = message;
    }
    ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[count++].data.send_status_from_server.status_details = &text;
    ops[count].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    ops[count++].data.recv_close_on_server.cancelled = &call->cancelled;
    call->tag.on_done = on_end;
    core_start(call->call, ops, count, &call->tag);
}

/* A request has come, and the next one may. */
static int
begins(core_call *call, int ok)
{
    if (ok == 0) { /* the server shuts down */
        on_end(call, ok);
        return 0;
    }
    post(call->method);
    return 1;
}

static void
on_echo(core_call *call, int ok)
{
    if (begins(call, ok) != 0) {
        finish(call, call->message);
    }
}

static void
read_next(core_call *call)
{
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE,
                        .data.recv_message.recv_message = &call->message};

    core_start(call->call, &op, 1, &call->tag);
}

static void
on_read(core_call *call, int ok)
{
    grpc_byte_buffer *message = call->message;

    (void)ok;
    call->message = NULL;
    if (message == NULL) {
        call->message = core_message(&call->bytes, sizeof(call->bytes));
        finish(call, call->message);
        return;
    }
    read_next(call);
    call->bytes += core_take(message, bench_sink, BENCH_CHUNK_BYTES_MAX);
}

static void
on_upload(core_call *call, int ok)
{
    if (begins(call, ok) != 0) {
        call->tag.on_done = on_read;
        read_next(call);
    }
}

static void
write_next(core_call *call, grpc_op *ops, size_t count)
{
    grpc_byte_buffer *message = core_message(bench_source, call->order.chunk_bytes);

    call->order.count--;
    ops[count].op = GRPC_OP_SEND_MESSAGE;
    ops[count++].data.send_message.send_message = message;
    core_start(call->call, ops, count, &call->tag);
    grpc_byte_buffer_destroy(message);
}

static void
on_written(core_call *call, int ok)
{
    grpc_op ops[1] = {0};

    if (ok == 0 || call->order.count == 0) {
        finish(call, NULL);
    } else {
        write_next(call, ops, 0);
    }
}

static void
on_download(core_call *call, int ok)
{
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};

    if (begins(call, ok) != 0) {
        (void)core_take(call->message, &call->order, sizeof(call->order));
        call->message = NULL;
        call->tag.on_done = on_written;
        write_next(call, ops, 1);
    }
}

static void *
serve(void *arg)
{
    for (;;) {
        const grpc_event event =
            grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        core_tag *tag = event.tag;

        if (event.type == GRPC_QUEUE_SHUTDOWN) {
            return arg;
        }
        if (tag == NULL) { /* the server has shut down */
            grpc_completion_queue_shutdown(queue);
        } else {
            tag->on_done(tag->call, event.success);
        }
    }
}

static void
start(core_method *methods, size_t count, FILE *report)
{
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    int port;
    size_t i;
    size_t k;

    queue = grpc_completion_queue_create_for_next(NULL);
    server = grpc_server_create(core_args(), NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    for (i = 0; i < count; i++) {
        methods[i].handle =
            grpc_server_register_method(server, methods[i].path, NULL, methods[i].payload, 0);
    }
    port = grpc_server_add_http2_port(server, "127.0.0.1:0", plain);
    grpc_server_credentials_release(plain);
    grpc_server_start(server);
    for (i = 0; i < count; i++) {
        for (k = 0; k < WAITING; k++) {
            post(&methods[i]);
        }
    }
    (void)fprintf(report, "127.0.0.1:%d\n", port);
    (void)fclose(report);
}

void
bench_core_serve(FILE *report, int stop, const char *folder)
{
    core_method methods[] = {
        {CORE_ECHO, GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, on_echo, NULL},
        {CORE_UPLOAD, GRPC_SRM_PAYLOAD_NONE, on_upload, NULL},
        {CORE_DOWNLOAD, GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, on_download, NULL},
    };
    pthread_t thread;
    char byte;

    (void)folder;
    grpc_init();
    start(methods, sizeof(methods) / sizeof(methods[0]), report);
    if (pthread_create(&thread, NULL, serve, NULL) != 0) {
        bench_die("core", "no thread");
    }
    (void)!read(stop, &byte, 1);
    grpc_server_shutdown_and_notify(server, queue, NULL);
    grpc_server_cancel_all_calls(server);
    (void)pthread_join(thread, NULL);
    grpc_server_destroy(server);
    grpc_completion_queue_destroy(queue);
    grpc_shutdown();
}
