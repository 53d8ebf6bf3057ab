/*
 * Nested calls: unary methods that are called by a message of a stream (nested.h).
 *
 * A nested call is a tutti_rpc_call that gRPC does not know. It borrows its caller from the
 * stream, which it holds by a ref; it has its own request, deadline (the stream's) and answer. It
 * is made on the stream's loop, runs on the loop of its method, is answered on any thread, and is
 * ended by its maker (tutti_rpc_nested_end), which knows when the answer has gone out.
 *
 * `tell` and `end` are tasks on the method's loop, so a handler hears of a cancel and of the end
 * on the same thread as for a call of its own. A nested call holds a life of the server, as any
 * call.
 */
#include <assert.h>
#include <inttypes.h>
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/loop.h"
#include "rpc/message.h"
#include "rpc/nested.h"
#include "rpc/server.h"
#include "rpc/server/call.h"
#include "rpc/server/server_private.h"

/*
 * The route of a request type. It is unambiguous because every method has a request type of its
 * own. NULL: no unary method of this server takes such a request.
 */
static rpc_route *
find_route(tutti_rpc_server *server, const ProtobufCMessageDescriptor *type)
{
    size_t i;

    for (i = 0; i < server->route_count; i++) {
        if (server->routes[i].input == type && server->routes[i].method->stream == NULL) {
            return &server->routes[i];
        }
    }
    return NULL;
}

/* A tensor's bytes belong to the outermost message, where nobody copies them. */
static tutti_code
check_payload(const ProtobufCMessage *request, tutti_error *err)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(request->descriptor, TUTTI_RPC_PAYLOAD_FIELD);
    const ProtobufCBinaryData *bytes;

    if (field == NULL || field->type != PROTOBUF_C_TYPE_BYTES) {
        return TUTTI_OK;
    }
    bytes = (const ProtobufCBinaryData *)(const void *)((const char *)request + field->offset);
    if (bytes->len > 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "COMMAND_PAYLOAD",
                              "%zu bytes in the payload of %s inside a command: put them into the "
                              "payload of the message around it",
                              bytes->len, request->descriptor->short_name);
    }
    return TUTTI_OK;
}

static tutti_code
check_nested(const tutti_rpc_nested *nested, const rpc_route *route, tutti_error *err)
{
    if (route == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNIMPLEMENTED, "NO_METHOD", "no method here takes a %s",
                              nested->request->descriptor->short_name);
    }
    TUTTI_TRY(check_payload(nested->request, err));
    TUTTI_TRY(rpc_call_authorize_nested(nested->stream, route, nested->request, err));
    return route->admit == NULL ? TUTTI_OK : route->admit(route->self, err);
}

static void on_tell(tutti_rpc_task *task);
static void on_end(tutti_rpc_task *task);

tutti_code
tutti_rpc_nested_new(const tutti_rpc_nested *nested, tutti_rpc_call **ret_call, tutti_error *err)
{
    rpc_route *route = find_route(nested->stream->server_loop->server, nested->request->descriptor);
    tutti_code code = check_nested(nested, route, err);
    tutti_rpc_call *call = code == TUTTI_OK ? rpc_call_new(route->server_loop, route) : NULL;

    if (call == NULL) {
        tutti_rpc_message_free(nested->message);
        return code != TUTTI_OK ? code : TUTTI_FAIL_MEMORY(err, "no memory for a command");
    }
    /*
     * The caller's metadata, identity and deadline are read through the stream until the nested
     * call is freed.
     */
    tutti_rpc_call_ref(nested->stream);
    call->stream = nested->stream;
    call->came_ns = tutti_clock_ns();
    call->on_answer = nested->on_answer;
    call->on_answer_arg = nested->arg;
    if (nested->lease != 0) {
        (void)snprintf(call->lease, sizeof(call->lease), "%" PRIu64, nested->lease);
    }
    call->deadline = nested->stream->deadline;
    call->tell.on_run = on_tell;
    call->end.on_run = on_end;
    call->request = nested->message;
    tutti_rpc_message_narrow(call->request, nested->request);
    *ret_call = call;
    return TUTTI_OK;
}

tutti_rpc_loop *
tutti_rpc_nested_loop(const tutti_rpc_call *call)
{
    return call->server_loop->loop;
}

void
tutti_rpc_nested_start(tutti_rpc_call *call)
{
    const rpc_route *route = call->route;

    assert(tutti_rpc_loop_is_current(call->server_loop->loop) && !call->handed);
    call->handed = true;
    tutti_rpc_call_ref(call); /* it may be answered and ended before the handler returns */
    route->method->on_call(call, route->self);
    tutti_rpc_call_unref(call);
}

void
rpc_nested_answer(tutti_rpc_call *call, const ProtobufCMessage *response,
                  const tutti_rpc_blob *payload, const tutti_error *err)
{
    /* `answered` is read by rpc_call_tell on the loop while this may be any thread. */
    (void)pthread_mutex_lock(&call->lock);
    assert(!call->answered); /* a call is answered once */
    call->answered = true;
    call->status.code = err == NULL ? GRPC_STATUS_OK : (grpc_status_code)err->code;
    (void)pthread_mutex_unlock(&call->lock);
    call->on_answer(call->on_answer_arg, response, payload, err);
}

static void
on_tell(tutti_rpc_task *task)
{
    tutti_rpc_call *call = tutti_container_of(task, tutti_rpc_call, tell);

    rpc_call_tell(call);
    tutti_rpc_call_unref(call);
}

void
tutti_rpc_nested_cancel(tutti_rpc_call *call, bool gone)
{
    if (gone) {
        atomic_store(&call->cancelled, true);
    }
    /* Until on_tell has run: the call may be ended in between. */
    tutti_rpc_call_ref(call);
    tutti_rpc_loop_post(call->server_loop->loop, &call->tell);
}

static void
end_call(tutti_rpc_call *call)
{
    tutti_rpc_server *server = call->server_loop->server;

    if (call->handed) { /* counted as a call of its own */
        rpc_server_note(server, call->route, (int)call->status.code,
                        tutti_clock_ns() - call->came_ns);
    }
    if (call->handed && call->on_end != NULL) {
        call->on_end(call, call->route->self);
    }
    tutti_rpc_message_free(call->request);
    call->request = NULL;
    tutti_rpc_call_unref(call);
    rpc_server_release(server);
}

static void
on_end(tutti_rpc_task *task)
{
    end_call(tutti_container_of(task, tutti_rpc_call, end));
}

void
tutti_rpc_nested_end(tutti_rpc_call *call, bool delivered)
{
    atomic_store(&call->cancelled, !delivered);
    /*
     * On its loop, and its handler is not running (an answer that was delivered has come from the
     * stream's on_written): end at once, which saves a task for each command. In all other cases
     * the handler may be in the middle of its answer on this or another thread.
     */
    if (delivered &&
        tutti_rpc_loop_is_current(call->server_loop->loop)) { /* else perhaps in its answer */
        end_call(call);
    } else {
        tutti_rpc_loop_post(call->server_loop->loop, &call->end);
    }
}
