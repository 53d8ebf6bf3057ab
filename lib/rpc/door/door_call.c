#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/server.h"
#include "tutti-rpc/server.h"

const void *
tuttirpc_call_request(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_request(call);
}

tuttirpc_message *
tuttirpc_call_message(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_message(call);
}

uint64_t
tuttirpc_call_time_left_ms(const tuttirpc_server_call *call)
{
    const uint64_t at_ns = tutti_rpc_call_deadline(call);
    const uint64_t now_ns = tutti_clock_ns();

    if (at_ns == TUTTI_TIMERS_NEVER) {
        return UINT64_MAX;
    }
    return at_ns <= now_ns ? 0 : (at_ns - now_ns + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS;
}

bool
tuttirpc_call_cancelled(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_cancelled(call);
}

const char *
tuttirpc_call_method(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_method(call);
}

const char *
tuttirpc_call_peer(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_peer(call);
}

const char *
tuttirpc_call_identity(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_identity(call);
}

const void *
tuttirpc_call_metadata(const tuttirpc_server_call *call, const char *key, size_t *ret_size)
{
    const tutti_bytes value = tutti_rpc_call_metadata(call, key);

    *ret_size = value.size;
    return value.size == 0 ? NULL : value.data;
}

void
tuttirpc_call_set_user(tuttirpc_server_call *call, void *user)
{
    tutti_rpc_call_set_user(call, user);
}

void *
tuttirpc_call_user(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_user(call);
}

void
tuttirpc_call_on_cancel(tuttirpc_server_call *call, tuttirpc_unary_fn on_cancel)
{
    tutti_rpc_call_on_cancel(call, on_cancel);
}

void
tuttirpc_call_ref(tuttirpc_server_call *call)
{
    tutti_rpc_call_ref(call);
}

void
tuttirpc_call_unref(tuttirpc_server_call *call)
{
    tutti_rpc_call_unref(call);
}

void
tuttirpc_call_reply(tuttirpc_server_call *call, const struct ProtobufCMessage *response)
{
    tutti_rpc_call_reply(call, response, NULL);
}

void
tuttirpc_call_fail(tuttirpc_server_call *call, tuttirpc_code code, const char *reason,
                   const char *format, ...)
{
    char text[TUTTIRPC_TEXT_MAX];
    tutti_error err;
    va_list values;

    assert(code != TUTTIRPC_OK);
    va_start(values, format);
    (void)vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    (void)TUTTI_FAIL_FOR(&err, (tutti_code)code, reason == NULL ? "" : reason, "%s", text);
    tutti_rpc_call_fail(call, &err);
}

void
tuttirpc_call_read(tuttirpc_server_call *call)
{
    tutti_rpc_call_read(call);
}

void
tuttirpc_call_write(tuttirpc_server_call *call, const struct ProtobufCMessage *message)
{
    tutti_rpc_call_write(call, message, NULL);
}

bool
tuttirpc_call_writable(const tuttirpc_server_call *call)
{
    return tutti_rpc_call_writable(call);
}

void
tuttirpc_call_finish(tuttirpc_server_call *call)
{
    tutti_rpc_call_finish(call, NULL);
}
