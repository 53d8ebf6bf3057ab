/*
 * Scan: where the payload lies in a message that arrived in pieces, and everything else in one
 * piece. No gRPC and no protobuf here: bytes in, positions out. One thread.
 */
#ifndef TUTTI_RPC_MESSAGE_SCAN_H
#define TUTTI_RPC_MESSAGE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

/* Bytes of a message besides its payload: what may be gathered and given to protobuf-c. */
#define TUTTI_RPC_CONTROL_MAX (4u << 20)

/* A place in a list of runs, which it borrows. */
typedef struct rpc_cursor {
    const tutti_bytes *runs;
    size_t run;    /* the one it is in */
    size_t offset; /* in that run; never its end, unless nothing is left */
    size_t left;   /* bytes to the end */
} rpc_cursor;

/* At the first byte; all runs together are `size` bytes. Empty runs are fine. */
void rpc_cursor_init(rpc_cursor *cursor, const tutti_bytes *runs, size_t size);

/* The next run of at most `most` bytes that lie together, and move behind it; size 0 at the end. */
tutti_bytes rpc_cursor_take(rpc_cursor *cursor, size_t most);

/* Move on; `size` bytes must be left. */
void rpc_cursor_skip(rpc_cursor *cursor, size_t size);

/*
 * Read a varint of at most `most_bytes` (up to 10). False: there is none, and the cursor is
 * anywhere.
 */
bool rpc_cursor_varint(rpc_cursor *cursor, size_t most_bytes, uint64_t *ret_number);

typedef struct rpc_scan {
    tutti_bytes rest;   /* all but payloads; in the runs when it lay together, else in `gather` */
    rpc_cursor payload; /* `left` bytes of it; 0 when there is none */
} rpc_scan;

/*
 * Walk the top level of a protobuf message.
 *
 * [in]  runs     what the message consists of; borrowed as long as ret_scan
 * [in]  field    the payload's number; 0 = this message has none
 * [in]  gather   an empty buffer for the rest, when it did not lie together
 *
 * Fields may come in any order; of several payloads the last one counts.
 *
 * TUTTI_INVALID_ARGUMENT    not a protobuf message: the text says at which byte
 * TUTTI_RESOURCE_EXHAUSTED  more than TUTTI_RPC_CONTROL_MAX bytes besides the payload; no memory
 */
tutti_code rpc_scan_message(const tutti_bytes *runs, size_t run_count, uint32_t field,
                            tutti_buf *gather, rpc_scan *ret_scan, tutti_error *err);

#endif
