/*
 * Any bytes as one line of valid UTF-8, for error texts and names of peers: control characters
 * and invalid bytes must not reach a terminal, a log or a trailer. Pure.
 */
#include <assert.h>
#include <string.h>

#include "rpc/message.h"
#include "rpc/message/check.h"
#include "rpc/message/status_pb.h"

/* Bytes of the character at the start: 1 to 4 when it is whole and valid, else 0. */
static size_t
take_character(tutti_bytes from)
{
    size_t size;

    for (size = 1; size <= 4 && size <= from.size; size++) {
        if (rpc_check_text((tutti_bytes){from.data, size})) {
            return size;
        }
    }
    return 0;
}

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
        const size_t whole = take_character(from);
        const size_t step = whole == 0 ? 1 : whole;
        const bool control = whole == 1 && ((unsigned char)at[0] < ' ' || at[0] == 0x7f);
        const char *put = whole == 0 ? "?" : control ? " " : at;

        encoded += encoded_bytes(put, step);
        if (used + step >= size || encoded > encoded_max) {
            break;
        }
        memcpy(ret_text + used, put, step);
        used += step;
        from = (tutti_bytes){at + step, from.size - step};
    }
    ret_text[used] = '\0';
}

void
tutti_rpc_text_clean(char *ret_text, size_t size, const char *text)
{
    rpc_status_clean(ret_text, size, tutti_bytes_of(text), SIZE_MAX);
}
