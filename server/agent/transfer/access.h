/*
 * Access: calls that read or write the bytes of tensors, one struct each. They wait for their turn
 * in the table, and keep it until gRPC has let go of the memory. Bulk loop, where nothing else is
 * said.
 *
 * access.c has the call and its locks, upload.c and upload_parts.c uploads, gpu.c and gpu_upload.c
 * the way through pinned memory, stall.c the timer. service/transfer_pb.c reads and writes the
 * messages.
 */
#ifndef TUTTI_SERVER_AGENT_TRANSFER_ACCESS_H
#define TUTTI_SERVER_AGENT_TRANSFER_ACCESS_H

#include <stdatomic.h>

#include "server/agent/agent.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/table.h"

#define AGENT_SAY_INTO                                                                             \
    "a tensor that is overwritten keeps its name and its device: give either `into`, or `name` "   \
    "and `device`"
#define AGENT_TRANSFER_BYTES 16
#define AGENT_UPLOAD_PARTS_MAX 16 /* streams that bring one tensor */
#define AGENT_PIECES_AHEAD 3      /* of a download: copied before they are sent */

/*
 * A call's turn has come: answer it, or begin to move bytes. Bulk loop, once, and only while the
 * call is open.
 */
typedef void (*agent_access_fn)(agent_access *access);

/* The byte ranges of an upload that its parts have taken, in no order; no two overlap. */
typedef struct agent_ranges {
    uint64_t begins[AGENT_UPLOAD_PARTS_MAX];
    uint64_t ends[AGENT_UPLOAD_PARTS_MAX];
    size_t count;
} agent_ranges;

/*
 * Whether it may touch its tensors. Only forward:
 *
 *   NONE     its lock set is not asked for. A part of an upload has none: it follows its leader
 *   QUEUED   asked for; on_ready will come
 *   GRANTED  its own lock set, or its leader's
 */
typedef enum agent_turn {
    AGENT_TURN_NONE,
    AGENT_TURN_QUEUED,
    AGENT_TURN_GRANTED,
} agent_turn;

/*
 * How far the call is. Only forward; OPEN to ENDED when the caller ends it.
 *
 *   OPEN      its messages are read and written
 *   ANSWERED  its status is said: nothing more is read or written
 *   ENDED     gRPC is done with the call. The access ends with it, or, where it is QUEUED, with
 *             its turn: on_ready is on its way to it
 */
typedef enum agent_call_state {
    AGENT_CALL_OPEN,
    AGENT_CALL_ANSWERED,
    AGENT_CALL_ENDED,
} agent_call_state;

/* The entry of its last lock: what a call that fails leaves. NEW is dropped then. */
typedef enum agent_entry_state {
    AGENT_ENTRY_FOUND, /* it was there before */
    AGENT_ENTRY_NEW,
    AGENT_ENTRY_WRITTEN,
} agent_entry_state;

/*
 * Fields below `stall` belong to streams. Of an upload, `offset` is where the next byte goes and
 * end_offset where its last one ends; of a download, `offset` is the next byte to be sent. A part
 * that follows has `leader`, an empty lock set and total_bytes 0.
 */
struct agent_access {
    tutti_agent *agent;
    tutti_rpc_call *call;
    tutti_lock_set lock_set;
    agent_access_fn on_turn;
    tutti_rpc_task end;
    atomic_uint refs; /* the call, and each piece of memory that gRPC holds */
    agent_turn turn;
    agent_call_state call_state;
    agent_entry_state entry;
    tutti_timer stall; /* a transfer that does not move */
    uint64_t moved_ns;
    /* uploads, downloads */
    uint64_t offset;
    uint64_t end_offset;
    uint64_t length; /* that a download asks for; 0 = to the end */
    uint32_t chunk_bytes;
    bool first; /* the next message of a download is its first */
    bool half_closed;
    bool reads;           /* a download */
    unsigned char *early; /* bytes that came before the turn: agent_upload_drop_early frees them */
    size_t early_size;
    /* ... an upload in parts */
    bool parted;
    unsigned char transfer[AGENT_TRANSFER_BYTES];
    tutti_list_node part; /* in the agent's uploads */
    agent_access *leader; /* [ref] which brings the first byte; NULL: it does, or is not here yet */
    uint64_t begin_offset;  /* of its part, which ends at end_offset */
    uint64_t total_bytes;   /* of the tensor; a part's: 0 */
    uint64_t arrived_bytes; /* of a leader: in parts that are whole */
    agent_ranges *taken;    /* [owned] of a leader */
    bool whole;             /* all of its part is here */
    /* ... of tensors in a device's memory: gpu.h */
    tutti_list_node pieces; /* of a download, in order; not sent yet */
    uint32_t piece_count;   /* these, or those of an upload that are under way */
    uint64_t ahead;         /* where the next piece of a download begins */
    bool sending;           /* of a download: a message leaves */
    bool waits_for_slot;    /* of an upload: no message is read until there is one */
};

/*
 * An access with one reference, that of its call, which agent_access_fail, agent_access_end_call or
 * a plain agent_access_drop gives up. NULL: no memory, and the call has been failed.
 */
agent_access *agent_access_new(tutti_agent *agent, tutti_rpc_call *call, agent_access_fn on_turn);

/* Ask for its lock set, once. True: it is granted, and on_turn does not run; else on_turn runs when
 * it is granted, unless the call has ended by then. */
bool agent_access_acquire(agent_access *access);

/* Ask for its lock set, and run on_turn now or when it is granted. */
void agent_access_go(agent_access *access);

/* Its turn has come: its own lock set's, or its leader's. */
void agent_access_grant(agent_access *access);

/*
 * The caller went away, or the agent stops, before its turn: it counts as answered, and the caller
 * of this answers with what is in `err` (CALLER_GONE, STOPPING).
 */
void agent_access_stop_waiting(agent_access *access, tutti_error *err);

/* Its status is said, or is about to be. */
void agent_access_answered(agent_access *access);

/* gRPC is done with its call: give up the call's reference, now or when on_ready has come. Once, as
 * the last that is done for the call. */
void agent_access_end_call(agent_access *access);

static inline bool
agent_access_is_open(const agent_access *access)
{
    return access->call_state == AGENT_CALL_OPEN;
}

static inline bool
agent_access_is_granted(const agent_access *access)
{
    return access->turn == AGENT_TURN_GRANTED;
}

/* Let go of one reference; the last one gives up the turn and frees it. Any thread. */
void agent_access_drop(agent_access *access);

/*
 * Answer with an error and drop. Not for streams. If the call has made a tensor under a register's
 * name, the register keeps the error.
 */
void agent_access_fail(agent_access *access, const tutti_error *err);

/*
 * The same for a call that may have failed before it made the tensor that it was to make.
 *
 * [in] name  of that tensor, as the request has it; "" = none
 */
void agent_access_refuse(agent_access *access, const char *name, const tutti_error *err);

/*
 * The tensor of a granted lock, or the error of the op that was to write it. Borrowed while the
 * lock is held.
 */
tutti_code agent_access_tensor(agent_access *access, uint32_t lock, tutti_tensor **ret_tensor,
                               tutti_error *err);

/*
 * The tensor of the last lock, or of its leader's, which is where bytes go: granted, and checked.
 */
tutti_tensor *agent_access_last(const agent_access *access);

/* A new entry in the caller's name and lease, the last lock of the lock set, which is not asked for
 * yet. Codes as tutti_table_create_locked; BAD_LEASE. */
tutti_code agent_access_make(agent_access *access, const char *name, tutti_error *err);

/*
 * Where bytes of `spec` go: the existing tensor `into` (checked at its turn), or a new one named
 * `name` ("" = none) on `device` ("" = the first), whose memory is made now.
 */
tutti_code agent_access_destination(agent_access *access, const tutti_spec *spec, const char *into,
                                    const char *name, const char *device, bool zeroed,
                                    tutti_error *err);

/* Does the tensor of that lock, named by `into`, have the dtype and element count of `spec`?
 * DTYPE_MISMATCH, SHAPE_MISMATCH, or the error of an entry without tensor */
tutti_code agent_access_check(agent_access *access, uint32_t lock, const tutti_spec *spec,
                              tutti_tensor **ret_tensor, tutti_error *err);

/* The tensor of that lock is written: a new entry stays, and an old error on it is gone. */
void agent_access_written(agent_access *access, uint32_t lock);

/* A blob over part of a tensor, which keeps the access alive until gRPC has let go of it. */
tutti_rpc_blob agent_access_blob(agent_access *access, const tutti_tensor *tensor, uint64_t offset,
                                 size_t size);

/*
 * stall.c. A transfer whose client does nothing for --op-timeout is ended: others wait for
 * the tensor. Watch it once, say each move; it ends with the call. What waits for its turn is not
 * its client's fault, and the ops before it have deadlines.
 */
void agent_access_watch(agent_access *access, bool reads);
void agent_access_moved(agent_access *access);
void agent_access_unwatch(agent_access *access);

tutti_code agent_parts_open(tutti_agent *agent, tutti_error *err);
void agent_parts_close(tutti_agent *agent);

/*
 * upload_parts.c. One tensor over several streams: the leader brings the first byte and has the
 * lock set, and its call is answered when all parts are here. Parts hold on to the leader; when one
 * of them ends early all do. Those that come before their leader wait for it, --op-timeout at most.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_PART
 * TUTTI_ALREADY_EXISTS    TRANSFER_TAKEN
 * TUTTI_ABORTED           PART_FAILED: it follows a stream that has ended
 */
tutti_code agent_parts_lead(agent_access *access, tutti_bytes transfer, uint64_t bytes,
                            tutti_error *err);
tutti_code agent_parts_follow(agent_access *access, tutti_bytes transfer, uint64_t offset,
                              uint64_t bytes, tutti_error *err);
void agent_parts_turn(agent_access *access); /* the leader's turn is that of its parts */
bool agent_parts_arrived(
    agent_access *access); /* its part is whole. True: it is a leader, and all are */
void agent_parts_end(agent_access *access);         /* its call has ended, well or not */
bool agent_parts_waits(const agent_access *access); /* for its leader's turn */
void agent_parts_say_stalled(const agent_access *access, double seconds, tutti_error *err);

/* Streams: transfer_pb.c reads and writes the messages. */

/* End the stream of an open access: NULL = well. The access lives until the end of its call. */
void agent_stream_finish(agent_access *access, const tutti_error *err);
/*
 * The payload of one message goes to its place; before the turn it is kept. Finishes the stream
 * with CHUNK_LIMIT, BAD_OFFSET, SIZE_MISMATCH or MEMORY_LIMIT.
 */
void agent_upload_chunk(agent_access *access, uint64_t offset, tutti_rpc_message *message);
/*
 * The client has half-closed: commit, or finish with SIZE_MISMATCH, now or when copies have ended.
 */
void agent_upload_end(agent_access *access);
/* Its turn has come: that of its parts too. False: its tensor is not the one that it was for any
 * more, and the stream is finished with SHAPE_MISMATCH. */
bool agent_upload_open(agent_access *access);
/* agent_upload_open, then take what was kept, and read on. */
void agent_upload_turn(agent_access *access);
/*
 * `early` is over and not counted any more. take: it belongs to the caller now; else it is freed.
 */
void agent_upload_drop_early(agent_access *access, bool take);
/* All bytes of the tensor are here: answer the call. Not of a part that follows. */
void agent_upload_commit(agent_access *access);
/* The turn of a download: check its range and send the first message. */
void agent_download_turn(agent_access *access);
/* Send the next message, or finish. Behind on_written. */
void agent_download_next(agent_access *access);
extern const tutti_rpc_stream_ops agent_upload_ops;
extern const tutti_rpc_stream_ops agent_download_ops;
extern const tutti_rpc_stream_ops agent_share_gpu_ops; /* share_gpu_pb.c */
/*
 * Write owner and lease of a call into a lock set, before the first entry is made with it. Any
 * loop. BAD_LEASE
 */
tutti_code agent_lock_own(tutti_lock_set *lock_set, const tutti_rpc_call *call, tutti_error *err);

#endif
