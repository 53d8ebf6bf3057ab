/* Group: ranks that call collectives together, and the ops that this rank posts in it. See coll.h;
 * any thread. */
#ifndef TUTTI_COLL_GROUP_H
#define TUTTI_COLL_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/list.h"
#include "base/data/map.h"
#include "base/os/timers.h"
#include "coll/args.h"
#include "coll/engine.h"

typedef struct tutti_coll_group tutti_coll_group;
typedef struct tutti_coll_op tutti_coll_op;

/*
 * Events of the device between an op and somebody else's work there: cudaEvent_t, for coll/nccl.
 * NULL = none. Of collectives on a device alone.
 */
typedef struct tutti_coll_events {
    void *after; /* the op's work waits for its last record as of the op's launch */
    void *done;  /* recorded behind the op's work */
    /* Who records `after` is gone: what has not been recorded will not be. Set once, by any thread.
     */
    const atomic_bool *left;
} tutti_coll_events;

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
    /* When the program came that calls it; 0 = not known. A program that came behind the death of
     * another rank's (tutti_coll_group_orphan) waits for the next one there. */
    uint64_t caller_ns;
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
    /*
     * On a device, but not for sends and receives: one, or one for each of a coalesced op's
     * tensors. NULL = none. Copies of host memory are made by the caller itself.
     */
    const tutti_coll_kept *kept;
    /* This op is called because the group's op before it has succeeded here. If that one has failed
     * on another rank (by its deadline, or its caller is gone), this one fails, too: that rank will
     * not call it. */
    bool follows;
    const tutti_coll_events *events; /* [borrowed] until on_released; NULL = none */
    /*
     * A device has all of the op, and its `done` is recorded: what waits for that event from now on
     * waits for the op. Once at most, before on_done; not if the op fails before, nor if the device
     * has nothing to do. NULL = nobody asks. Engine's thread; must not end or post ops.
     */
    void (*on_launched)(tutti_coll_op *op);
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
    /* The yes-word (net/expose.h): what all ranks say yes to, as far as heard. Bit 0: this rank can
     * map every other's memory; above: the backend's vote. _known: what the last round brought. */
    uint64_t same_host;
    uint64_t same_host_known;
    uint32_t lent;  /* of the pending: exposed regions that others have of us */
    bool returning; /* the op waits for these regions now: this rank's part is done */
    struct tutti_coll_agree *agree;
    struct tutti_coll_inquiry *inquiry;
    void *backend_state;
    tutti_error
        *late; /* [owned] on_done is told this when the memory is back; NULL = it was told */
    void *device_stage;  /* host memory of a device's tensor on its way */
    void *backend_stage; /* the backend's, for it */
    size_t stage_size;
    const void *backend_pin; /* the backend's, from its vote on; NULL before */
    uint64_t started_ns;
    uint32_t pending; /* all in flight: messages, regions, work of a device, a turn */
    uint32_t round;
    uint8_t phase;
    bool launched; /* on a device */
    bool held;     /* a frame works on it: nobody else runs or releases it (engine/op.c) */
    bool failed;   /* ended by a failure: posting more does nothing */
    bool ended;    /* done or failed: its number finds it no more */
};

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

/*
 * A member came back: ops that run fail with EPOCH_CHANGED, and ops count from 1 again. Does
 * nothing if the epoch is no newer. The change counts for posts at once, and reaches the engine in
 * its turn.
 */
void tutti_coll_group_renew(tutti_coll_group *group, uint64_t epoch);

/*
 * Say that ranks may have begun different numbers of ops of the group. From now on until one of its
 * ops succeeds: if an op times out that this rank has not called, this rank skips the op's number,
 * and its next call gets the number behind it. After that all ranks count alike again. Nothing for
 * an engine that stops.
 */
void tutti_coll_group_resync(tutti_coll_group *group);

/* A caller of this rank, which came at a time, is about to call the group for the first time. */
typedef struct tutti_coll_pass {
    uint64_t caller_ns; /* when it came, on tutti_clock_ns() */
    /* Once; the engine's thread. The struct is the caller's again. */
    void (*on_passed)(struct tutti_coll_pass *self);

    /* private to lib/coll */
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
} tutti_coll_pass;

/*
 * May there be ops that have ended on other ranks and that this rank has not called? Any thread; a
 * hint.
 */
bool tutti_coll_group_has_ends(const tutti_coll_group *group);

/*
 * Pass over ops that other ranks' callers had called, and that had ended, before this caller came:
 * the next post gets the number behind them. Those whose time was over or whose caller went away;
 * others (refusals) if their caller had gone, too (tutti_coll_group_over), or if they are older than
 * what a program takes to start. Behind the first op that this rank has to hear of nothing is passed
 * over. Not while ops are posted.
 *
 * False: the engine stops, and on_passed does not run.
 */
bool tutti_coll_group_pass(tutti_coll_group *group, tutti_coll_pass *pass);

/*
 * The caller of this rank's ops so far has gone: the other ranks' callers that come from now on pass
 * over those of its ops that failed. Nothing for an engine that stops.
 */
void tutti_coll_group_over(tutti_coll_group *group);

/*
 * Forget the group when the ops that run in it have ended. Those that not every rank has called
 * within a second fail with NOT_FOUND NO_GROUP. Nothing is posted to it any more.
 */
void tutti_coll_group_close(tutti_coll_group *group);

/*
 * The coordinator has deleted a group, which may never have been open here: what its members have
 * sent for it is dropped, and what they still send. A group that is open does this when it closes.
 */
void tutti_coll_group_gone(tutti_coll_engine *engine, uint64_t id);

/*
 * End all ops of the group on this rank with `why`, and refuse what is posted later with the same
 * words, until the next renewal. An op that moves data is reported when nothing touches its memory
 * any more; if a peer does not give the memory back, one second later, and the text says so.
 *
 * [in] tell  the other members, too: for the rank that asked, as they may hear of it late
 */
void tutti_coll_group_abort(tutti_coll_group *group, const tutti_error *why, bool tell);

#define TUTTI_COLL_ABORTED "GROUP_ABORTED" /* the reason of `why`: it makes ops end as said above */

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
 * A thread that posts to an engine that sleeps runs the engine itself, and waits some time for the
 * other ranks: good for one op, as no other thread has to wake. While this thread hurries, its posts
 * wake the engine's thread instead: for who has more ops to post at once. It is off in a new thread.
 */
void tutti_coll_hurry(bool hurry);

/*
 * This rank's call had to be refused before it became an op: it counts as one, and the others get
 * `why` for it. Returns the number it had; 0 when `expect` (as in tutti_coll_post) does not hold.
 */
uint64_t tutti_coll_refuse(tutti_coll_group *group, uint64_t expect, const tutti_error *why);

/* Ask now for the addresses of members that are not known yet. The first ops would ask, and the
 * coordinator may be gone by then. */
void tutti_coll_group_meet(tutti_coll_group *group);

/*
 * The program that called this rank's ops has ended between two of them: each op in which a program
 * of another member that was there already waits for this rank is refused with `why`, now and later,
 * until tutti_coll_group_adopt.
 */
void tutti_coll_group_orphan(tutti_coll_group *group, const tutti_error *why);

/* Somebody calls again. When this returns, no number is taken by a refusal any more. */
void tutti_coll_group_adopt(tutti_coll_group *group);

/*
 * The same for sends and receives: those of the other members that were called by programs that were
 * there already fail with `why`, now and later. NULL: somebody calls again.
 */
void tutti_coll_group_silence(tutti_coll_group *group, const tutti_error *why);

/*
 * This rank's Send had to be refused before it became an op: the Recv that it would have met fails
 * with `why`, in the order in which sends are matched.
 *
 * [in] peer  a group rank, not this one
 */
void tutti_coll_refuse_send(tutti_coll_group *group, uint32_t peer, uint32_t tag,
                            const tutti_error *why);

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
