/* Private to client: one stream of a transfer. */
#ifndef TUTTI_CLIENT_TENSOR_TRANSFER_STREAM_H
#define TUTTI_CLIENT_TENSOR_TRANSFER_STREAM_H

#include "client/conn/conn_pool.h"
#include "client/conn/stall_timer.h"
#include "client/conn/zero_copy.h"
#include "client/tensor/transfer.h"

/* A part under way, which may be all. */
typedef struct client_transfer_stream {
    client_parallel_transfer *parallel;
    size_t index;
    tutti_client *client;
    const tutti_transfer *transfer;
    client_conn *conn;
    tutti_rpc_stream *stream;
    client_watched *watched;
    client_zero_copy_ref ref;
    uint64_t offset; /* of the part */
    uint64_t done_bytes;
    uint64_t total_bytes; /* of the part */
    bool given_up;
} client_transfer_stream;

client_transfer_stream client_part_of(client_parallel_transfer *parallel, size_t index);

/* On failure nothing is owed. */
tutti_code client_part_begin(client_transfer_stream *self, const tutti_rpc_stub *stub,
                             tutti_error *err);

/* More bytes are over; false: the caller has had enough. Of several streams the first one asks. */
bool client_part_moved(client_transfer_stream *self, uint64_t bytes);

/*
 * End it in any case. `code` and `err` say what this side has found wrong; the server's word, and
 * what made us give up, say it better.
 */
tutti_code client_part_end(client_transfer_stream *self, tutti_code code, tutti_error *err);

#endif
