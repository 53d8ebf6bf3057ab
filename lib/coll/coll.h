/*
 * Coll: collectives over memory we can touch.
 *
 * An engine is one thread that runs the ops of one agent, any number of them at once, against the
 * engines of the other ranks. An op is posted on a group and ends by itself: with a result, or with
 * an error that every rank of the group gets. Nothing waits for ever: each op has a deadline.
 *
 * What happens to an op: its arguments become a signature; the ranks of the group exchange
 * signatures (agree.h); when they fit, a backend moves the data; else nobody's data is touched and
 * all get the same error. The words of an error name the ranks and what each of them called.
 *
 * Threads: functions here may be called from any thread. Callbacks run on the engine's thread, or
 * inside a post that finds the engine asleep and does its work; they must not block, and may post.
 */
#ifndef TUTTI_COLL_COLL_H
#define TUTTI_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "base/data/list.h"
#include "base/data/map.h"
#include "base/os/timers.h"
#include "tensor/spec.h"
#include "tutti/error.h"

typedef struct tutti_coll_engine tutti_coll_engine;
typedef struct tutti_coll_group tutti_coll_group;
typedef struct tutti_coll_op tutti_coll_op;
struct tutti_transport;
struct tutti_transport_key;
struct tutti_coll_backend;

/* Private: something to do on the engine's thread. */
typedef struct tutti_coll_item tutti_coll_item;
struct tutti_coll_item {
    tutti_list_node link;
    void (*run)(tutti_coll_engine *engine, tutti_coll_item *item);
};

/* ------------------------------------------------------------------------------ ops */

typedef enum tutti_coll_kind {
    TUTTI_COLL_ALL_REDUCE = 1,
    TUTTI_COLL_BROADCAST = 2,
    TUTTI_COLL_ALL_GATHER = 3,
    TUTTI_COLL_BARRIER = 4,
    TUTTI_COLL_SEND = 5,
    TUTTI_COLL_RECV = 6,
    TUTTI_COLL_REDUCE = 7,
    TUTTI_COLL_GATHER = 8,
    TUTTI_COLL_SCATTER = 9,
    TUTTI_COLL_REDUCE_SCATTER = 10,
    TUTTI_COLL_ALL_TO_ALL = 11,
    TUTTI_COLL_PERMUTE = 12,
} tutti_coll_kind;

#define TUTTI_COLL_ANY_SOURCE UINT32_MAX
#define TUTTI_COLL_DEVICES_MAX 8
#define TUTTI_COLL_LIST_MAX 1024  /* tensors that one rank gives in one op */
#define TUTTI_COLL_META_MAX 24576 /* bytes beside a tensor: a caller's, and an agent's */

/* One tensor of a list. */
typedef struct tutti_coll_tensor {
    tutti_spec spec;
    uint32_t axis; /* of a coalesced op: as tutti_coll_args.axis, for this one */
    void *data;    /* that of inputs is not written */
} tutti_coll_tensor;

/* Where a device leaves copies beside an op, in its own memory; NULL = none. */
typedef struct tutti_coll_kept {
    void *input;  /* as it was before */
    void *output; /* as it is behind */
} tutti_coll_kept;

/* What is asked. Plain data. */
typedef struct tutti_coll_args {
    tutti_coll_kind kind;
    bool on_device;  /* input and output are a device's memory: on all ranks, or on none */
    bool has_spec;   /* `spec` is what this rank gives (or, for a receiver, insists on) */
    bool count_only; /* a receiver's destination: dtype and element count matter, not the shape */
    tutti_spec spec; /* checked with tutti_spec_check */
    tutti_reduce reduce; /* all_reduce, reduce, reduce_scatter */
    double factor;       /* ... with PREMUL_SUM */
    uint32_t root;       /* broadcast, reduce, gather, scatter: a group rank */
    uint32_t peer;       /* send: group rank; recv: group rank or TUTTI_COLL_ANY_SOURCE */
    uint32_t tag;        /* send, recv */
    uint64_t step;       /* the caller's own count: alike on all ranks; not of send and recv */
    bool monitored;      /* barrier: who is late gets MISSING_RANKS, not TIMEOUT */
    /*
     * all_gather, gather, scatter, reduce_scatter, and where all_to_all cuts. An index, but for a
     * scatter: there as given, negative from the end, since receivers do not know the dimensions.
     */
    uint32_t axis;
    uint32_t concat_axis; /* all_to_all: where it joins */
    tutti_form form;
    /*
     * all_to_all along dimension 0 in parts of any length: rows for, and from, each group rank.
     * Both have split_count of them, and what one rank sends another has to expect.
     */
    bool has_splits;
    uint32_t split_count;
    const int64_t *send_splits;
    const int64_t *recv_splits;
    /*
     * What this rank gives when that is a list, in the order of group ranks: one tensor for each
     * rank (TUTTI_FORM_LIST of scatter, reduce_scatter, all_to_all). Or, coalesced, any tensors:
     * as many ops in one. `spec` is that of the first.
     */
    bool coalesced;
    uint32_t list_count;
    const tutti_coll_tensor *list;
    /* scatter: rows of dimension 0 for each group rank; the root says it. split_count of them. */
    const int64_t *root_splits;
    tutti_bytes meta;   /* broadcast, scatter: of the root; send: for the receiver */
    uint32_t dtype_sum; /* private: checksums of the list, as they travel */
    uint32_t shape_sum;
    const tutti_spec *flat; /* the shape that a flat result takes here; NULL = one dimension */
    const uint32_t *to;     /* permute: [to_count] group ranks, by sender; all ranks say the same */
    uint32_t to_count;
} tutti_coll_args;

/* Do all ranks but the root give nothing, and learn the shape from it? */
bool tutti_coll_is_from_root(tutti_coll_kind kind);

/* Does the root alone get the result? */
bool tutti_coll_is_to_root(tutti_coll_kind kind);

/* Is the result a list: coalesced, or what was joined, tensor by tensor? */
bool tutti_coll_makes_list(const tutti_coll_args *args);

/* "all_reduce"; "op_<?>" for a number that is none. Static. */
const char *tutti_coll_kind_name(tutti_coll_kind kind);

/* "all_reduce(sum, FP32[1024])" */
void tutti_coll_describe(const tutti_coll_args *args, tutti_text *text);

/*
 * Are these arguments ones that some group of `size` could run? What it makes: the shape of the
 * result on this rank (ret_result->dtype TUTTI_DTYPE_NONE where there is none, or where only the
 * root or the sender knows it).
 *
 * TUTTI_INVALID_ARGUMENT  BAD_SHAPE, BAD_DTYPE, BAD_REDUCE_OP, DTYPE_UNSUPPORTED, BAD_ROOT,
 * BAD_AXIS, RANK_NOT_IN_GROUP, SELF_PEER, INDIVISIBLE, SCALAR_INPUT, OUT_SHAPE, BAD_PERMUTATION,
 * SPLITS_MISMATCH
 */
tutti_code tutti_coll_infer(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                            tutti_spec *ret_result, tutti_error *err);

/*
 * The same of an op that makes a list, if all ranks called it alike: [tensor][rank] where both are
 * lists.
 *
 * [out] ret_results  *ret_count of them; free()
 *
 * Also EMPTY_LIST, LIST_SIZE, SHAPE_MISMATCH, DTYPE_MISMATCH: within the list
 */
tutti_code tutti_coll_infer_list(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                                 tutti_spec **ret_results, uint32_t *ret_count, tutti_error *err);

/*
 * An op. The caller embeds it, zeroes it, fills the first part, posts it, and leaves it alone until
 * on_released; the memory it points to must stay until then too.
 */
struct tutti_coll_op {
    tutti_coll_args args;
    /* args.on_device: which of the engine's; alike in all collectives of a group's epoch here */
    uint32_t device;
    const void *input;    /* NULL where the rank gives nothing */
    void *output;         /* may be the input; NULL where there is none, or until on_spec */
    uint64_t deadline_ns; /* on tutti_clock_ns() */
    /*
     * The shape of what will be received is known now: set `output`. For broadcast receivers and
     * Recv; also when the output was given. An error refuses the op for the whole group. May be
     * NULL when output is given.
     */
    tutti_code (*on_spec)(tutti_coll_op *op, const tutti_spec *spec, tutti_error *err);
    /*
     * The same of an op that makes a list, when its shapes are known from others: set `outputs`.
     * May be NULL where they are known at the post: coalesced, and not from a root.
     */
    tutti_code (*on_list)(tutti_coll_op *op, const tutti_spec *specs, uint32_t count,
                          tutti_error *err);
    const tutti_coll_tensor *outputs; /* of a list: where its tensors go */
    /* On a device, but for sends and receives: one, or one for each of a coalesced op's tensors.
     * NULL = none. Memory of the host is copied by who wants that. */
    const tutti_coll_kept *kept;
    /* How it ended; NULL = well. Once; inside the post, too. */
    void (*on_done)(tutti_coll_op *op, const tutti_error *err);
    /* Nothing touches the op or its memory any more: after on_done, mostly at once. */
    void (*on_released)(tutti_coll_op *op);

    uint64_t id;       /* [out] of the post: unique in the engine; for tutti_coll_cancel */
    uint64_t sequence; /* [out] of the post: its number in the group from 1; 0 for send and recv */
    uint32_t source;   /* [out] of a Recv: the sender's group rank */
    tutti_bytes meta;  /* [out] what came with the tensor, or was sent with it; until on_released */

    /* private to lib/coll */
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
    tutti_map_node by_sequence;
    unsigned char sequence_key[8];
    tutti_map_node by_id;
    unsigned char id_key[8];
    tutti_timer timer;
    tutti_list_node ios;      /* sends and receives in flight */
    tutti_list_node expected; /* receives without a packet yet */
    uint64_t *counts;         /* all_to_all with splits: what each rank sends us */
    tutti_spec *shapes;       /* of a list: what comes from each rank, [tensor][rank] */
    struct tutti_coll_announced *announced; /* memory of what was told */
    uint8_t announces;
    uint32_t part;          /* of a coalesced op: the one that runs */
    tutti_list_node stored; /* packets without a receive yet */
    tutti_list_node views;  /* memory of others that we have mapped */
    tutti_list_node turn;   /* in the engine's list of ops that go on without a packet */
    /* What all ranks say yes to, as far as heard. Bit 0: every other's memory can be touched;
     * above: what the backend asked. */
    uint64_t same_host;
    uint64_t same_host_known;
    uint32_t lent;  /* of the pending: exposed regions that others have of us */
    bool returning; /* ... which are waited for now */
    struct tutti_coll_agree *agree;
    struct tutti_coll_inquiry *inquiry;
    void *backend_state;
    void *device_stage;  /* host memory of a device's tensor on its way */
    void *backend_stage; /* the backend's, for it */
    size_t stage_size;
    const void *backend_pin; /* the backend's, from its vote on; NULL before */
    uint64_t started_ns;
    uint32_t pending;
    uint32_t round;
    uint8_t phase;
    bool launched; /* on a device */
    bool held;
    bool failed;
    bool ended;
};

/* ------------------------------------------------------------------------------ engine */

typedef struct tutti_coll_engine_options {
    struct tutti_transport *transport;        /* moved: the engine closes it */
    const struct tutti_coll_backend *backend; /* static */
    /* moved: for ops with args.on_device, by their `device`; NULL = none there */
    struct tutti_coll_backend *devices[TUTTI_COLL_DEVICES_MAX];
    void *backend_arg; /* the backend knows what it is; borrowed; NULL is fine */
    /*
     * The engine wants to reach ranks it does not know: look them up and answer each with
     * tutti_coll_set_peer. Engine's thread.
     */
    void (*on_need_peers)(void *arg, const uint32_t *ranks, size_t count);
    void *arg;
} tutti_coll_engine_options;

/*
 * Open the engine and start its thread; on failure the transport is closed too.
 *
 * TUTTI_RESOURCE_EXHAUSTED, TUTTI_INTERNAL  no memory, no thread, no descriptor
 */
tutti_code tutti_coll_engine_start(const tutti_coll_engine_options *options,
                                   tutti_coll_engine **ret_engine, tutti_error *err);

/* Where other engines reach this one: opaque. Borrowed for the engine's life. */
tutti_bytes tutti_coll_engine_address(const tutti_coll_engine *engine);

/*
 * Who this is. Before the first group is opened, and before each key of a job
 * (tutti_coll_engine_rekey): a key opens packets that members have sent already, and packets of a
 * job without a seat are dropped.
 */
void tutti_coll_engine_sit(tutti_coll_engine *engine, uint64_t job_id, uint32_t rank,
                           uint64_t incarnation);

/* The key of an epoch, as members are told it (transport.h). Before ranks that it knows, or does
 * not. */
void tutti_coll_engine_rekey(tutti_coll_engine *engine, const struct tutti_transport_key *key);

/*
 * Where a rank is. A new incarnation replaces the old one; the same again is harmless.
 * [in] address  copied; at most 4096 bytes
 */
void tutti_coll_set_peer(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation,
                         tutti_bytes address);

/*
 * A rank is gone: ops that need it fail, now and later, with UNAVAILABLE and `reason`. A rank whose
 * incarnation is known to be another is not touched; 0 means whoever is there.
 */
void tutti_coll_lose_peer(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation,
                          const char *reason);

/* Something outside may have changed: the engine looks around once. Any thread. */
void tutti_coll_engine_wake(tutti_coll_engine *engine);

/* Fail what runs, on all ranks, and take no more ops. Before stop, when others have to hear of the
 * end of their ops first. Any thread. */
void tutti_coll_engine_refuse(tutti_coll_engine *engine);

/* Fail what runs, close the transport, join the thread, free all groups. NULL is fine. */
void tutti_coll_engine_stop(tutti_coll_engine *engine);

typedef struct tutti_coll_stats {
    uint64_t running; /* ops */
    uint64_t done;
    uint64_t failed;
} tutti_coll_stats;

void tutti_coll_stat(tutti_coll_engine *engine, tutti_coll_stats *ret_stats);

/* Whether a packet went to a rank and back. */
typedef struct tutti_coll_reach {
    uint32_t rank;
    bool reached;
    uint64_t trip_ns; /* reached: with what connecting took */
    char why[192];    /* not reached */
} tutti_coll_reach;

/* Once, on the engine's thread. Borrowed until it returns. */
typedef void (*tutti_coll_probe_fn)(void *arg, const tutti_coll_reach *reaches, size_t count);

/*
 * Try the ways to other ranks, as ops would take them: on_done is told when all have answered, or
 * `wait_ns` are over. Our own rank is no other.
 *
 * TUTTI_UNAVAILABLE         STOPPING
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_coll_probe(tutti_coll_engine *engine, const uint32_t *ranks, size_t count,
                            uint64_t wait_ns, tutti_coll_probe_fn on_done, void *arg,
                            tutti_error *err);

/* ------------------------------------------------------------------------------ groups */

/*
 * A group this rank is a member of.
 *
 * [in] epoch  that all members agree on; ops of other epochs do not meet
 * [in] ranks  of the job, in the order of group ranks; copied
 *
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: our rank is not in the list
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 */
tutti_code tutti_coll_group_open(tutti_coll_engine *engine, uint64_t id, const char *name,
                                 uint64_t epoch, const uint32_t *ranks, uint32_t count,
                                 tutti_coll_group **ret_group, tutti_error *err);

/* A member came back: fail what runs, count ops from 1 again. Nothing when it is no newer epoch. */
void tutti_coll_group_renew(tutti_coll_group *group, uint64_t epoch);

/* One rank may have begun more ops than another. Until one succeeds, who has not come to an op that
 * timed out goes on behind it: then all count alike again. */
void tutti_coll_group_resync(tutti_coll_group *group);

/*
 * Forget the group when the ops that run in it have ended. Those that not every rank has called
 * within a second fail with NOT_FOUND NO_GROUP. Nothing is posted to it any more.
 */
void tutti_coll_group_close(tutti_coll_group *group);

/* Fixed for the group's life; any thread. */
uint32_t tutti_coll_group_size(const tutti_coll_group *group);
uint32_t tutti_coll_group_rank(const tutti_coll_group *group); /* our own */
const uint32_t *tutti_coll_group_ranks(const tutti_coll_group *group);
const char *tutti_coll_group_name(const tutti_coll_group *group);
uint64_t tutti_coll_group_id(const tutti_coll_group *group);

/* What the backend said last of its work here: it says what that means; 0 = nothing yet. */
uint64_t tutti_coll_group_facts(const tutti_coll_group *group);

/* The number of the last op that was posted here, and its words. */
uint64_t tutti_coll_group_last(tutti_coll_group *group, char *ret_text, size_t size);

/*
 * Begin an op; ops of one group are numbered in the order of the posts.
 *
 * [in] expect  the number it must get; 0 = whatever comes next
 *
 * TUTTI_FAILED_PRECONDITION  OUT_OF_SEQUENCE: it would get another number; nothing was posted
 * TUTTI_RESOURCE_EXHAUSTED   OP_LIMIT: TUTTI_COLL_OPS_MAX are in flight; nothing was posted
 */
tutti_code tutti_coll_post(tutti_coll_group *group, tutti_coll_op *op, uint64_t expect,
                           tutti_error *err);

#define TUTTI_COLL_OPS_MAX 8192

/*
 * This rank's call had to be refused before it became an op: it counts as one, and the others get
 * `why` for it. Returns the number it had; 0 when `expect` (as in tutti_coll_post) does not hold.
 */
uint64_t tutti_coll_refuse(tutti_coll_group *group, uint64_t expect, const tutti_error *why);

/*
 * This rank is about to leave: it begins no op of the group behind those that were posted. All
 * members hear of it from us: their later ops, and those that they have begun, fail with
 * UNAVAILABLE, RANK_LEAVING and `reason`; the ops up to the last one go on. Good for this epoch:
 * say it again after a renewal.
 */
void tutti_coll_group_leave(tutti_coll_group *group, const char *reason);

/* Fail an op for the whole group; nothing when it has ended. */
void tutti_coll_cancel(tutti_coll_engine *engine, uint64_t id, const tutti_error *why);

#endif
