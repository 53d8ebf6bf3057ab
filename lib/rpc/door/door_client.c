#include "base/os/clock.h"
#include "rpc/channel.h"
#include "rpc/door/door.h"
#include "tutti-rpc/client.h"

static tutti_rpc_call_options
call_options(uint64_t timeout_ms)
{
    const uint64_t wait_ns = rpc_door_ns(timeout_ms);

    return (tutti_rpc_call_options){
        .deadline_ns = timeout_ms == 0 ? 0 : tutti_clock_add(tutti_clock_ns(), wait_ns)};
}

tuttirpc_code
tuttirpc_channel_open(const char *target, const tuttirpc_channel_options *options,
                      tuttirpc_channel **ret_channel, tuttirpc_status *status)
{
    const tuttirpc_channel_options none = {0};
    const tuttirpc_channel_options *from = options == NULL ? &none : options;
    const tutti_rpc_channel_options inside = {.tls_ca = from->tls_ca,
                                              .tls_cert = from->tls_cert,
                                              .tls_key = from->tls_key,
                                              .tls_name = from->tls_name,
                                              .token = from->token,
                                              .token_file = from->token_file,
                                              .receive_bytes_max = from->receive_bytes_max};
    tutti_error err;

    rpc_door_begin();
    return rpc_door_status(tutti_rpc_channel_open(target, &inside, ret_channel, &err), &err,
                           status);
}

void
tuttirpc_channel_close(tuttirpc_channel *channel)
{
    tutti_rpc_channel_close(channel);
}

tuttirpc_code
tuttirpc_call(tuttirpc_channel *channel, const tuttirpc_stub *stub,
              const struct ProtobufCMessage *request, uint64_t timeout_ms,
              tuttirpc_message **ret_response, tuttirpc_status *status)
{
    const tutti_rpc_call_options options = call_options(timeout_ms);
    tutti_error err;

    return rpc_door_status(
        tutti_rpc_invoke(channel, stub, request, NULL, &options, ret_response, &err), &err, status);
}

tuttirpc_code
tuttirpc_stream_open(tuttirpc_channel *channel, const tuttirpc_stub *stub, uint64_t timeout_ms,
                     tuttirpc_stream **ret_stream, tuttirpc_status *status)
{
    const tutti_rpc_call_options options = call_options(timeout_ms);
    tutti_error err;

    return rpc_door_status(tutti_rpc_stream_open(channel, stub, &options, ret_stream, &err), &err,
                           status);
}

tuttirpc_code
tuttirpc_stream_write(tuttirpc_stream *stream, const struct ProtobufCMessage *message,
                      tuttirpc_status *status)
{
    tutti_error err;

    return rpc_door_status(tutti_rpc_stream_write(stream, message, NULL, &err), &err, status);
}

tuttirpc_code
tuttirpc_stream_writes_done(tuttirpc_stream *stream, tuttirpc_status *status)
{
    tutti_error err;

    return rpc_door_status(tutti_rpc_stream_writes_done(stream, &err), &err, status);
}

tuttirpc_code
tuttirpc_stream_read(tuttirpc_stream *stream, tuttirpc_message **ret_message,
                     tuttirpc_status *status)
{
    tutti_error err;

    return rpc_door_status(tutti_rpc_stream_read(stream, ret_message, &err), &err, status);
}

void
tuttirpc_stream_cancel(tuttirpc_stream *stream)
{
    tutti_rpc_stream_cancel(stream);
}

tuttirpc_code
tuttirpc_stream_finish(tuttirpc_stream *stream, tuttirpc_status *status)
{
    tutti_error err;

    return rpc_door_status(tutti_rpc_stream_finish(stream, &err), &err, status);
}
