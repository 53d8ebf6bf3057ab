/* W3C Trace Context: "00-<32 digits of the trace>-<16 digits of the span>-<2 digits of flags>". */
#include <string.h>

#include "rpc/server.h"
#include "rpc/server/call.h"

#define PARENT_BYTES 55
#define TRACE_AT 3
#define TRACE_DIGITS (TUTTI_RPC_TRACE_SIZE - 1)

static bool
are_digits(const char *text, size_t count)
{
    return strspn(text, "0123456789abcdef") >= count;
}

/* Later versions may be longer behind a dash; "ff", and a trace or span of zeros, are none. */
static bool
is_parent(const char *text, size_t size)
{
    return (size == PARENT_BYTES ||
            (size > PARENT_BYTES && text[PARENT_BYTES] == '-' && memcmp(text, "00", 2) != 0)) &&
           are_digits(text, 2) && memcmp(text, "ff", 2) != 0 && text[2] == '-' &&
           are_digits(text + TRACE_AT, TRACE_DIGITS) && text[35] == '-' &&
           are_digits(text + 36, 16) && text[52] == '-' && are_digits(text + 53, 2) &&
           strspn(text + TRACE_AT, "0") < TRACE_DIGITS && strspn(text + 36, "0") < 16;
}

void
tutti_rpc_call_trace(const tutti_rpc_call *call, char ret_trace[TUTTI_RPC_TRACE_SIZE])
{
    const tutti_bytes parent = tutti_rpc_call_metadata(call, "traceparent");
    char text[PARENT_BYTES + 2];
    const size_t size = parent.size <= PARENT_BYTES ? parent.size : PARENT_BYTES + 1;

    ret_trace[0] = '\0';
    if (size < PARENT_BYTES) {
        return;
    }
    memcpy(text, parent.data, size);
    text[size] = '\0';
    if (is_parent(text, size)) {
        memcpy(ret_trace, text + TRACE_AT, TRACE_DIGITS);
        ret_trace[TRACE_DIGITS] = '\0';
    }
}
