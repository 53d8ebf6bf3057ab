/*
 * Private to transfer*.c: a tensor on its way, over one stream or several. Each stream brings a
 * part, on a connection and, but for the first, a thread of its own; when one fails all others are
 * cancelled, and its error is that of the transfer.
 */
#ifndef TUTTI_CLIENT_TENSOR_TRANSFER_H
#define TUTTI_CLIENT_TENSOR_TRANSFER_H

#include "client/conn/stall_timer.h"
#include "client/tensor/tensors.h"

#define CLIENT_SPLIT_BYTES (64u << 20) /* from here on more than one stream, over TCP */
#define CLIENT_STREAMS 2               /* ... that many */
#define CLIENT_STREAMS_CPUS 4          /* ... where there are as many */
#define CLIENT_TRANSFER_TOKEN 16       /* bytes by which the agent knows what belongs together */

typedef struct client_parallel_transfer client_parallel_transfer;

/* Moves part `index`. The first one runs on the caller's thread. */
typedef tutti_code (*client_part_fn)(client_parallel_transfer *parallel, size_t index,
                                     tutti_error *err);

struct client_parallel_transfer {
    tutti_client *client;
    const tutti_transfer *transfer;
    client_part_fn move;
    uint64_t total_bytes;
    uint64_t part_bytes; /* of all but the last */
    size_t count;
    atomic_uint_fast64_t done_bytes;

    pthread_mutex_t lock; /* guards what follows */
    tutti_rpc_stream *streams[TUTTI_STREAMS_MAX];
    bool failed;
    tutti_error err; /* failed: the first one's */

    size_t started;                       /* threads; the first part's */
    pthread_t threads[TUTTI_STREAMS_MAX]; /* ... 1 to started */
    _Atomic size_t next;                  /* the part that the next thread takes */
    client_watched watched[TUTTI_STREAMS_MAX];

    /* upload */
    const client_put *put;
    tutti_handle made;
    unsigned char token[CLIENT_TRANSFER_TOKEN]; /* of several parts */
    /* download */
    const char *handle;
    void *data;
    tutti_handle found; /* what the first stream reads */
    uint64_t version;
    atomic_bool again; /* the tensor was written between */
};

/* Into how many parts: what the transfer says, or the default, and what client and agent can do. */
size_t client_parallel_transfer_count(const tutti_client *client, const tutti_transfer *transfer,
                                      uint64_t bytes);

/* [in] count  wanted; fewer when there are not as many pages */
void client_parallel_transfer_init(client_parallel_transfer *self, tutti_client *client,
                                   const tutti_transfer *transfer, uint64_t bytes, size_t count);

uint64_t client_parallel_transfer_offset(const client_parallel_transfer *self, size_t index);
uint64_t client_parallel_transfer_bytes(const client_parallel_transfer *self, size_t index);

/* Move it all: the first part here. Returns how it went; the parallel transfer is gone. */
tutti_code client_parallel_transfer_run(client_parallel_transfer *self, tutti_error *err);

/*
 * By the first part: the others may begin.
 * TUTTI_RESOURCE_EXHAUSTED  no thread
 */
tutti_code client_parallel_transfer_start_others(client_parallel_transfer *self, tutti_error *err);

/* A part's stream is open; it is about to be finished. Others that fail cancel it between. */
void client_parallel_transfer_add(client_parallel_transfer *self, size_t index,
                                  tutti_rpc_stream *stream);
void client_parallel_transfer_remove(client_parallel_transfer *self, size_t index);

/* ------------------------------------------------------------------ upload_pb.c, download_pb.c
 */

/* `transfer` has its defaults filled in. */
tutti_code client_wire_upload(tutti_client *client, const client_put *put,
                              const tutti_transfer *transfer, tutti_handle *ret_handle,
                              tutti_error *err);
tutti_code client_wire_download(tutti_client *client, const char *handle, void *data,
                                uint64_t bytes, const tutti_transfer *transfer, tutti_error *err);

#endif
