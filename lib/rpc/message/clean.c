/*
 * Any bytes as one line of valid UTF-8, for error texts and names of peers: control characters
 * and invalid bytes must not reach a terminal, a log or a trailer. Pure.
 */
#include <assert.h>
#include <string.h>

#include "base/data/utf8.h"
#include "rpc/message.h"
#include "rpc/message/status_pb.h"

/* What gRPC sends as it is: printable ASCII but '%'. All else becomes three bytes each. */
static size_t
encoded_bytes(const char *character, size_t size)
{
    return size == 1 && character[0] >= ' ' && character[0] <= '~' && character[0] != '%'
               ? 1
               : 3 * size;
}

void
rpc_status_clean(char *ret_text, size_t size, tutti_bytes from, size_t encoded_max)
{
    size_t used = 0;
    size_t encoded = 0;

    assert(size > 0);
    while (from.size > 0) {
        const char *at = from.data;
        const size_t whole = tutti_utf8_size(at, from.size);
        const size_t step = whole == 0 ? 1 : whole;
        const bool steers = whole > 0 && tutti_utf8_steers(at, whole);
        const char *put = whole == 0 ? "?" : steers ? " " : at;
        const size_t put_bytes = steers ? 1 : step;

        encoded += encoded_bytes(put, put_bytes);
        if (used + put_bytes >= size || encoded > encoded_max) {
            break;
        }
        memcpy(ret_text + used, put, put_bytes);
        used += put_bytes;
        from = (tutti_bytes){at + step, from.size - step};
    }
    ret_text[used] = '\0';
}

void
tutti_rpc_text_clean(char *ret_text, size_t size, const char *text)
{
    rpc_status_clean(ret_text, size, tutti_bytes_of(text), SIZE_MAX);
}
