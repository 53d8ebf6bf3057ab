/* The inside of a duplex stream (channel.h), which duplex.c and duplex_lane.c share. */
#ifndef TUTTI_RPC_CHANNEL_DUPLEX_PRIVATE_H
#define TUTTI_RPC_CHANNEL_DUPLEX_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"

/* The part of a stream whose messages go through a lane. duplex_lane.c says what guards what. */
typedef struct rpc_duplex_lane {
    tutti_rpc_lane_end end;    /* `lane` NULL = messages go by gRPC */
    pthread_mutex_t lock;      /* guards the ring's writing side, and `pending` */
    grpc_byte_buffer *pending; /* [ref] what found no room; NULL with `blocked`: the half-close */
    atomic_bool blocked;       /* something has found no room */
    atomic_bool cancelled;
    atomic_bool woken;
    atomic_bool in_grpc; /* who polls sleeps in gRPC, or is about to */
    /* All below belongs to who polls. */
    bool answered;     /* something has come by the lane */
    bool elsewhere;    /* the next message comes by gRPC */
    bool gone;         /* the server's process has ended */
    uint64_t look_ns;  /* when to look at gRPC and at the lease again */
    uint64_t slice_ns; /* between two such looks */
} rpc_duplex_lane;

struct tutti_rpc_duplex {
    tutti_rpc_channel *channel;
    const rpc_known *known;
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_channel *lame; /* for the mailbox: it never connects */
    grpc_call *mailbox; /* its empty batches wake the poller */
    rpc_outcome outcome;
    grpc_byte_buffer *received; /* by gRPC, once `arrived` */
    bool arrived;               /* a read of gRPC's is back, and was not taken */
    unsigned under_way;         /* of opened, status and read: how many have not come back */
    bool told;                  /* that it has ended */
    atomic_bool writing;        /* WRITTEN is still to come */
    atomic_bool sending;        /* gRPC has a write, or the half-close, under way */
    atomic_bool waking;
    rpc_duplex_lane lane;
    /* Only their addresses count. */
    char opened_tag;
    char status_tag;
    char read_tag;
    char write_tag;
    char wake_tag;
};

/* ------------------------------------------------------------------ duplex.c */

/* Write by gRPC: WRITTEN comes when it has left. */
void rpc_duplex_send(tutti_rpc_duplex *duplex, grpc_byte_buffer *message, bool more);

/* Half-close gRPC's stream: likewise. */
void rpc_duplex_send_close(tutti_rpc_duplex *duplex);

/* Wake who sleeps in gRPC. */
void rpc_duplex_ring(tutti_rpc_duplex *duplex);

/*
 * One event of gRPC's: WRITTEN, or NOTHING; then a read may have come, which is `arrived`.
 *
 * [out] ret_passed  the time is over, or the mailbox has rung
 */
tutti_rpc_event rpc_duplex_step(tutti_rpc_duplex *duplex, uint64_t until_ns, bool *ret_passed);

/* What has arrived: MESSAGE, and the next read is under way; or ENDED. */
tutti_rpc_event rpc_duplex_take(tutti_rpc_duplex *duplex, tutti_rpc_message **ret_message,
                                tutti_error *err);

/* Bytes of a message of the server's: MESSAGE; ENDED, and cancelled, if they are none. [in, moved] */
tutti_rpc_event rpc_duplex_unpack(tutti_rpc_duplex *duplex, grpc_byte_buffer *received,
                                  tutti_rpc_message **ret_message, tutti_error *err);

/* ------------------------------------------------------------------ duplex_lane.c */

/* [in] end  NULL = there is no lane; then none of what follows is called, but fini */
void rpc_duplex_lane_init(rpc_duplex_lane *self, const tutti_rpc_lane_end *end);
void rpc_duplex_lane_fini(rpc_duplex_lane *self);

/* [in] message  borrowed; NULL = the half-close. True: it has left; false: WRITTEN will say so. */
bool rpc_duplex_lane_write(tutti_rpc_duplex *duplex, grpc_byte_buffer *message);

tutti_rpc_event rpc_duplex_lane_poll(tutti_rpc_duplex *duplex, uint64_t deadline_ns,
                                     tutti_rpc_message **ret_message, tutti_error *err);

void rpc_duplex_lane_wake(tutti_rpc_duplex *duplex);
void rpc_duplex_lane_cancel(tutti_rpc_duplex *duplex);

#endif
