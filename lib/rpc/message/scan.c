/*
 * Where the payload lies in a message that came in pieces (scan.h). Pure: bytes in, positions
 * out. One pass; the payload is skipped by its length and not touched.
 *
 * The rest stays in the runs where it lies together, and is gathered in a buffer only if it does
 * not. The invariant of add_rest: `rest` is either one stretch of a run, with `gather` empty, or
 * all of `gather`.
 */
#include "rpc/message/scan.h"

#include <assert.h>

#include "base/error/fail.h"

#define TAG_BYTES_MAX 5 /* a tag has 32 bits */
#define VARINT_BYTES_MAX 10

typedef enum wire_type {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5,
} wire_type;

/* Step over runs that are used up, so that the byte at the cursor can be read. */
static void
settle_field(rpc_cursor *cursor)
{
    while (cursor->left > 0 && cursor->offset == cursor->runs[cursor->run].size) {
        cursor->run++;
        cursor->offset = 0;
    }
}

void
rpc_cursor_init(rpc_cursor *cursor, const tutti_bytes *runs, size_t size)
{
    *cursor = (rpc_cursor){.runs = runs, .left = size};
    settle_field(cursor);
}

tutti_bytes
rpc_cursor_take(rpc_cursor *cursor, size_t most)
{
    tutti_bytes taken = {NULL, 0};
    size_t room;

    if (cursor->left == 0 || most == 0) {
        return taken;
    }
    room = cursor->runs[cursor->run].size - cursor->offset;
    room = room < cursor->left ? room : cursor->left;
    taken.data = (const unsigned char *)cursor->runs[cursor->run].data + cursor->offset;
    taken.size = room < most ? room : most;
    cursor->offset += taken.size;
    cursor->left -= taken.size;
    settle_field(cursor);
    return taken;
}

void
rpc_cursor_skip(rpc_cursor *cursor, size_t size)
{
    assert(size <= cursor->left);
    while (size > 0) {
        size -= rpc_cursor_take(cursor, size).size;
    }
}

bool
rpc_cursor_varint(rpc_cursor *cursor, size_t most_bytes, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t i;

    for (i = 0; i < most_bytes; i++) {
        const tutti_bytes one = rpc_cursor_take(cursor, 1);
        unsigned char byte;

        if (one.size == 0) {
            return false;
        }
        byte = *(const unsigned char *)one.data;
        number |= (uint64_t)(byte & 0x7f) << (7 * i);
        if ((byte & 0x80) == 0) {
            *ret_number = number;
            return true;
        }
    }
    return false;
}

/* Behind the value of a field. For WIRE_BYTES the cursor stands at its first byte before. */
static bool
skip_value(rpc_cursor *cursor, unsigned wire, uint64_t size)
{
    uint64_t ignored;

    switch (wire) {
    case WIRE_VARINT:
        return rpc_cursor_varint(cursor, VARINT_BYTES_MAX, &ignored);
    case WIRE_FIXED64:
        size = 8;
        break;
    case WIRE_FIXED32:
        size = 4;
        break;
    case WIRE_BYTES:
        break;
    default: /* groups are gone since proto3; 6 and 7 never were */
        return false;
    }
    if (size > cursor->left) {
        return false;
    }
    rpc_cursor_skip(cursor, (size_t)size);
    return true;
}

/*
 * One field. *ret_payload is where its bytes begin, with `left` set to their number, when it is the
 * payload.
 */
static bool
scan_field(rpc_cursor *cursor, uint32_t field, bool *ret_is_payload, rpc_cursor *ret_payload)
{
    uint64_t tag = 0;
    uint64_t size = 0;

    /* Field number 0 does not exist; a tag has 32 bits. */
    if (!rpc_cursor_varint(cursor, TAG_BYTES_MAX, &tag) || tag > UINT32_MAX || tag >> 3 == 0) {
        return false;
    }
    if ((tag & 7) == WIRE_BYTES) {
        if (!rpc_cursor_varint(cursor, VARINT_BYTES_MAX, &size) || size > cursor->left) {
            return false;
        }
    }
    *ret_is_payload = tag >> 3 == field && (tag & 7) == WIRE_BYTES;
    if (*ret_is_payload) {
        *ret_payload = *cursor;
        ret_payload->left = (size_t)size;
    }
    return skip_value(cursor, (unsigned)(tag & 7), size);
}

/*
 * What lay together so far goes into the buffer, and from then on everything does. `rest` is set
 * anew each time, because the buffer may move.
 */
static tutti_code
spill_field(tutti_bytes *rest, tutti_buf *gather, tutti_bytes more, tutti_error *err)
{
    if (gather->size == 0) {
        TUTTI_TRY(tutti_buf_add(gather, rest->data, rest->size, err));
    }
    TUTTI_TRY(tutti_buf_add(gather, more.data, more.size, err));
    *rest = (tutti_bytes){gather->data, gather->size};
    return TUTTI_OK;
}

/* Add the `size` bytes at `from` to the rest. */
static tutti_code
add_rest(tutti_bytes *rest, tutti_buf *gather, rpc_cursor from, size_t size, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (size > TUTTI_RPC_CONTROL_MAX - rest->size) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "MESSAGE_LIMIT",
                              "message of more than %u bytes besides its payload",
                              TUTTI_RPC_CONTROL_MAX);
    }
    while (size > 0 && code == TUTTI_OK) {
        const tutti_bytes piece = rpc_cursor_take(&from, size);

        size -= piece.size;
        if (rest->size == 0) {
            *rest = piece;
        } else if (gather->size == 0 &&
                   (const unsigned char *)rest->data + rest->size == piece.data) {
            rest->size += piece.size;
        } else {
            code = spill_field(rest, gather, piece, err);
        }
    }
    return code;
}

/*
 * Walk the fields. Stretches between payloads are added to the rest as a whole, not field by
 * field. Of several payloads the last counts, as protobuf has it for a field that is not
 * repeated.
 */
static tutti_code
scan_fields(rpc_cursor cursor, uint32_t field, tutti_buf *gather, rpc_scan *scan, tutti_error *err)
{
    const size_t total = cursor.left;
    rpc_cursor stretch = cursor; /* where the rest that is not added yet begins */
    tutti_code code = TUTTI_OK;

    while (cursor.left > 0 && code == TUTTI_OK) {
        const rpc_cursor start = cursor;
        bool is_payload = false;

        if (!scan_field(&cursor, field, &is_payload, &scan->payload)) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MALFORMED_MESSAGE",
                                  "malformed message: no field at byte %zu of %zu",
                                  total - start.left, total);
        }
        if (is_payload) {
            code = add_rest(&scan->rest, gather, stretch, stretch.left - start.left, err);
            stretch = cursor;
        }
    }
    if (code == TUTTI_OK) {
        code = add_rest(&scan->rest, gather, stretch, stretch.left - cursor.left, err);
    }
    return code;
}

tutti_code
rpc_scan_message(const tutti_bytes *runs, size_t run_count, uint32_t field, tutti_buf *gather,
                 rpc_scan *ret_scan, tutti_error *err)
{
    rpc_scan scan = {.rest = {"", 0}, .payload = {.runs = runs}};
    rpc_cursor cursor;
    size_t size = 0;
    size_t i;

    assert(gather->size == 0);
    for (i = 0; i < run_count; i++) {
        size += runs[i].size;
    }
    rpc_cursor_init(&cursor, runs, size);
    TUTTI_TRY(field == 0 ? add_rest(&scan.rest, gather, cursor, size, err)
                         : scan_fields(cursor, field, gather, &scan, err));
    *ret_scan = scan;
    return TUTTI_OK;
}
