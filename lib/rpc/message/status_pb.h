/*
 * Status: a tutti_error on its way through gRPC: a code, a text, and google.rpc.Status with one
 * ErrorInfo in the trailer grpc-status-details-bin. Any thread.
 */
#ifndef TUTTI_RPC_MESSAGE_STATUS_PB_H
#define TUTTI_RPC_MESSAGE_STATUS_PB_H

#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

/* Text and details together, as they travel (percent-encoded, base64): below half of the 8 KiB that
 * gRPC takes as metadata. */
#define TUTTI_RPC_STATUS_MAX 4096

/* A status to send. Slices are owned. */
typedef struct rpc_status {
    grpc_status_code code;
    grpc_slice text;
    grpc_metadata details; /* of `detail_count` 0 or 1 */
    size_t detail_count;
} rpc_status;

/* [in] err  NULL = OK. Without memory the details are left out. */
void rpc_status_init(rpc_status *status, const tutti_error *err);
void rpc_status_fini(rpc_status *status);

/*
 * The error that a call ended with.
 *
 * [in] text     from gRPC or the server; may be hostile
 * [in] details  the trailer's bytes; size 0 = none. What does not parse is ignored
 *
 * Returns the code, TUTTI_UNKNOWN for a number that is none of ours; err is written unless that is
 * TUTTI_OK. *ret_from_peer: the peer's application said it, not gRPC.
 */
tutti_code rpc_status_decode(grpc_status_code status, tutti_bytes text, tutti_bytes details,
                             bool *ret_from_peer, tutti_error *err);

/*
 * The bytes of the trailer for an error, into a buffer; the count, 0 when it does not fit. What
 * rpc_status_init sends and rpc_status_decode reads.
 */
size_t rpc_status_pack(const tutti_error *err, unsigned char *ret_bytes, size_t size);

/*
 * Copy text into a buffer so that it may travel and be shown: valid UTF-8, no control characters,
 * cut at a character's border when it does not fit, or would take more than `encoded_max` bytes
 * percent-encoded.
 */
void rpc_status_clean(char *ret_text, size_t size, tutti_bytes from, size_t encoded_max);

#endif
