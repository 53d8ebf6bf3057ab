/*
 * The backend interface of coll: who moves the data of an op once its ranks have agreed.
 *
 * The engine agrees on an op, finds shapes and memory, watches the deadline and tells the caller
 * how the op ended. A backend does one thing in between: it fills the output. docs/backend.md says
 * how to write one, with lib/coll/self as the example.
 *
 * Life of an op. start is called once, then advance until it says that all is done, then finish,
 * once. A backend is a state machine of rounds: advance is called with nothing in flight, posts the
 * sends and receives of the next round, returns, and is called again when all of them are over. It
 * computes between rounds. A coalesced op is such a life for each of its tensors, one after the
 * other (tutti_coll_take_part).
 *
 * Threads. All functions of a backend, and all functions of this header, run on the engine's
 * thread: that is whichever thread holds the engine's lock, so it may be another one at each call,
 * but there is never more than one. A process may have several engines. So a backend keeps what
 * belongs to an op in op->backend_state, and what belongs to a device in its own struct; it has no
 * variables of its own, and no locks.
 *
 * Blocking. No function may wait: not for another rank, not for a device, not for a lock that
 * somebody holds for long. All ops of the agent stand still meanwhile. Work of more than about a
 * millisecond is cut: see tutti_coll_again.
 *
 * Failures. A function that fails fills err (TUTTI_FAIL of base/error/fail.h) and returns its code.
 * The engine then fails the op on all ranks with these words; the first failure of any rank counts.
 * An op can also fail between two calls, or inside tutti_coll_send: by its deadline, a cancel, the
 * loss of a rank, or another rank's failure. The backend is asked nothing about that. What it has
 * posted is ended by the engine, advance is not called any more, and finish is called when nothing
 * points to the op's memory. What else a backend has to do then is the work of abandon.
 *
 * Ownership. The backend owns op->backend_state. It reads op->args, op->input, op->output,
 * op->outputs, op->shapes, op->part and op->round, and tutti_coll_group_size, _rank and _ranks of
 * op->group. It writes what op->output and op->outputs point to; op->round it may set back to 0.
 * The caller keeps that memory as it is until the op is released, which is after finish. The input
 * may be the output, and is else not written; the two do not overlap otherwise.
 */
#ifndef TUTTI_COLL_BACKEND_H
#define TUTTI_COLL_BACKEND_H

#include "coll/coll.h"
#include "coll/transport.h"

/*
 * Three places of tutti_coll_engine_options take one:
 *
 *   backend       groups of two ranks and more, tensors in host memory, barriers. Static; may have
 *                 vote and piggyback. coll/host
 *   self_backend  groups of one rank, the same tensors. Static. coll/self
 *   devices[i]    tensors of device i, in groups of any size; its memory is not touched by the
 *                 engine. Opened by the caller, closed by the engine; has poll, stage, fetch,
 *                 store, unstage, forget and close. coll/nccl
 *
 * A function may be NULL where its comment says so.
 */
typedef struct tutti_coll_backend tutti_coll_backend;
struct tutti_coll_backend {
    size_t size;      /* sizeof(tutti_coll_backend) */
    const char *name; /* "host"; static */

    /* ---------------------------------------------------------------------- an op; never NULL */

    /*
     * Prepare an op. All ranks have called it alike, and op->args.spec is the agreed one, also on
     * ranks that gave none. Input and output are there. Posts nothing.
     *
     * [out] op->backend_state  whatever start makes; the engine does not clear it before
     *
     * Any code: the op fails for the whole group, and finish is not called: start has freed what it
     * made. TUTTI_RESOURCE_EXHAUSTED for memory; TUTTI_UNIMPLEMENTED for a kind that the backend
     * does not know.
     */
    tutti_code (*start)(tutti_coll_op *op, tutti_error *err);

    /*
     * Go on. Called with nothing in flight; op->round counts the calls from 0.
     *
     * If it posts something (sends, receives, exposed regions, tutti_coll_again,
     * tutti_coll_device_submit: any number of them), it is called again when all of these are over.
     *
     * If it sets *ret_done, with nothing posted in this call, the output is complete. The caller is
     * told so before finish is called.
     *
     * If it does neither, it is called again at once.
     *
     * A send or receive may fail the op while advance posts: then all further ones do nothing, and
     * abandon has been called already. advance need not ask; it returns as if nothing had happened.
     *
     * Any code: as start, but finish is called.
     */
    tutti_code (*advance)(tutti_coll_op *op, bool *ret_done, tutti_error *err);

    /*
     * Free op->backend_state. Once for each start that succeeded: after the op is done, or has
     * failed and nothing of it is in flight any more.
     */
    void (*finish)(tutti_coll_op *op);

    /* ---------------------------------------------------------------------- may be NULL */

    /*
     * The op has failed between start and finish, and its caller has heard of it. Sends and
     * receives are ended by the engine; this is for work that the engine does not know, such as
     * that of a device. Each tutti_coll_device_submit still needs its tutti_coll_device_complete,
     * here or later: only then come finish and the release of the op's memory. It frees nothing
     * that a message in flight may still read or write: finish does. NULL: there is no such work.
     */
    void (*abandon)(tutti_coll_op *op);

    /*
     * Options.backend only, and asked for every collective of a group of two ranks and more, also
     * for one on a device; before the agreement. 63 bits that this rank says yes to. They travel
     * with the signatures: from start on, tutti_coll_votes has those that all ranks say yes to,
     * alike on all of them. So ranks can decide alike without a message more. What the backend has
     * to remember until then goes to op->backend_pin, borrowed. NULL: 0.
     */
    uint64_t (*vote)(tutti_coll_op *op);

    /*
     * A small op may travel whole with its signature: write at most TUTTI_COLL_PIGGYBACK_MAX bytes
     * of this rank's, and return how many; 0 = none. After vote, in groups of two ranks and more;
     * nothing is agreed yet, so op->args are this rank's own. tutti_coll_riders has the result.
     * NULL: never.
     */
    size_t (*piggyback)(tutti_coll_op *op, unsigned char *ret_bytes);

    /* ---------------------------------------------------------------------- devices only
     *
     * All of these, and only for an entry of devices[]; NULL elsewhere.
     */

    /*
     * Look after the ops that a device works on, with each turn of the engine: that is often, so it
     * asks the device and returns. Calls tutti_coll_device_complete for what is complete, and
     * tutti_coll_device_fail for what failed.
     *
     * [out] ret_next_ns  when to be asked again at the latest, on tutti_clock_ns();
     *                    TUTTI_TIMERS_NEVER when nothing is pending
     *
     * Returns how much was done: the engine does not sleep right after a turn that did something.
     */
    unsigned (*poll)(tutti_coll_backend *backend, uint64_t now_ns, uint64_t *ret_next_ns);

    /*
     * Send and Recv of a device's tensor go over the transport by way of host memory; start and
     * advance are not called for them.
     *
     * stage:   set op->device_stage to `bytes` of host memory, the backend's; op->backend_stage is
     *          for its own use. On failure it leaves op->device_stage NULL
     * fetch:   begin to copy `bytes` from op->input to op->device_stage
     * store:   begin to copy `bytes` from op->device_stage to op->output
     * unstage: take the memory back; nothing is in flight any more
     *
     * A fetch or store that succeeds has called tutti_coll_device_submit, and its
     * tutti_coll_device_complete comes from poll. Any code of the three: the op fails on this rank
     * and at its partner.
     */
    tutti_code (*stage)(tutti_coll_op *op, size_t bytes, tutti_error *err);
    tutti_code (*fetch)(tutti_coll_op *op, size_t bytes, tutti_error *err);
    tutti_code (*store)(tutti_coll_op *op, size_t bytes, tutti_error *err);
    void (*unstage)(tutti_coll_op *op);

    /* The group is gone, or begins a new epoch: its ops have failed, and nothing that was made for
     * it together with other ranks can be used again. Ops may still be on the device. */
    void (*forget)(tutti_coll_backend *backend, uint64_t group_id);

    /* The engine ends, or could not start: free the backend. All its ops are released, or will
     * never be. This is the one function that may wait. */
    void (*close)(tutti_coll_backend *backend);
};

/* ------------------------------------------------------------------------------ what ranks know
 *
 * From start on, unless it says otherwise.
 */

#define TUTTI_COLL_PIGGYBACK_MAX 128
#define TUTTI_COLL_PIGGYBACK_RANKS_MAX 32 /* in larger groups no op's data travels so */

/*
 * What all ranks wrote in piggyback, by group rank, each of *ret_size bytes, one behind the other; on a
 * boundary of 16 when *ret_size is a multiple of 16. NULL when a rank wrote nothing, or another
 * size. Alike on all ranks. [out, borrowed] until finish
 */
const unsigned char *tutti_coll_riders(const tutti_coll_op *op, size_t *ret_size);

/* The AND of what vote returned on each rank. */
uint64_t tutti_coll_votes(const tutti_coll_op *op);

/* tutti_coll_engine_options.backend_arg: for options.backend. At any time, vote too. */
void *tutti_coll_backend_arg(const tutti_coll_op *op);

/*
 * What options.backend knows of a group; no other backend uses it. NULL at first; memory of malloc,
 * which the engine frees with the group. It outlives epochs, and in a new one a rank
 * may be on another host: compare op->epoch.
 */
void **tutti_coll_group_note(const tutti_coll_op *op);

/* Note what options.backend does in a group, for tutti_coll_group_facts. Any number. */
void tutti_coll_group_tell(const tutti_coll_op *op, uint64_t facts);

/* The same for all ranks of a host; one of its own for a rank that does not say. Never 0. */
uint64_t tutti_coll_host_number(const tutti_coll_op *op);

/* ------------------------------------------------------------------------------ messages
 *
 * For advance. One message to, or from, a group rank other than this one. Messages between two
 * ranks are told apart by `step`, which sender and receiver count alike: below 2^20, and each once
 * in a life of an op. Sizes must be alike too, else the op fails. The memory, of the caller or of
 * the backend's state, must stay as it is until the next advance; when the op fails, until finish.
 */

/* [in] extra  travels with the message */
void tutti_coll_send(tutti_coll_op *op, uint32_t step, uint32_t to, const void *data, size_t size,
                     uint64_t extra);

/* [out] ret_extra  written when the message has come; NULL = not wanted */
void tutti_coll_recv(tutti_coll_op *op, uint32_t step, uint32_t from, void *dest, size_t size,
                     uint64_t *ret_extra);

/* Instead of messages: call advance again soon. Other ops, and what has come for them, have their
 * turn before. A backend with much to compute does a few MiB, and calls this. */
void tutti_coll_again(tutti_coll_op *op);

/* ------------------------------------------------------------------------------ exposed regions
 *
 * Where all ranks are processes of one host, they can work in each other's memory. In one call of
 * advance each rank exposes what the others may use, and maps theirs. From the next call on (when
 * all exposed regions have come) it reads and writes there. tutti_coll_unmap says that this rank's
 * part is done; the call of advance after that comes when all others have done theirs. When the op
 * fails on the way, the engine gives back what this rank borrowed, and finish waits until what it
 * exposed is back, or the borrower is dead.
 */

/* Memory of another rank. Part of the backend's state, until finish; zeroed before it is borrowed.
 */
typedef struct tutti_coll_mapping {
    tutti_transport_region memory; /* all 0: it could not be exposed */
    uint64_t extra;
    tutti_list_node link;
    struct tutti_transport_rndv *rndv;
} tutti_coll_mapping;

/* Can all ranks of the group touch each other's memory? Alike on all ranks. */
bool tutti_coll_is_same_host(const tutti_coll_op *op);

/* Is this memory that can be exposed? Each rank answers for its own. */
bool tutti_coll_can_expose(const tutti_coll_op *op, const tutti_transport_region *region);

/* For advance. `step` as above. An exposed region that cannot be exposed must be empty: its
 * borrowers see that.
 */
void tutti_coll_expose(tutti_coll_op *op, uint32_t step, uint32_t to,
                       const tutti_transport_region *region, uint64_t extra);
void tutti_coll_map(tutti_coll_op *op, uint32_t step, uint32_t from, tutti_coll_mapping *view);
void tutti_coll_unmap(tutti_coll_op *op);

/* ------------------------------------------------------------------------------ devices
 *
 * A device, such as a GPU with its streams, works while the engine does other things. The engine
 * counts what is in flight for an op; a backend adds to that count what it has given to the device,
 * and takes it off again when poll finds it complete.
 */

/*
 * The device has work of this op from now on. advance, fetch or store calls it, once for whatever
 * poll will find complete: a copy, a kernel, a turn in a queue. While one is pending, advance is
 * not called, and the op's memory is not released, even when the op has failed.
 */
void tutti_coll_device_submit(tutti_coll_op *op);

/*
 * That is complete; the device does not touch the op's memory for it any more. In poll or abandon.
 * When poll calls it and nothing else is pending, the op goes on inside this call: advance is
 * called again, or finish, if the op has failed. So poll does not touch the op's state afterwards.
 */
void tutti_coll_device_complete(tutti_coll_op *op);

/*
 * The device has failed: the op fails on all ranks with these words. In poll; abandon is called
 * inside. The op is not released by it before its work is complete.
 */
void tutti_coll_device_fail(tutti_coll_op *op, const tutti_error *err);

/*
 * For libraries that want the ops of a group in one order on all ranks: does the device have every
 * op of the group with a lower number already, as far as they are ops on a device and not over?
 * After tutti_coll_mark_launched the next one may follow. That is said once, when op->events->done
 * is recorded, too: the caller hears it by on_launched.
 */
bool tutti_coll_is_next(const tutti_coll_op *op);
void tutti_coll_mark_launched(tutti_coll_op *op);

/* The backend that devices[op->device] has; for an op on a device. */
tutti_coll_backend *tutti_coll_device_of(const tutti_coll_op *op);

/* ------------------------------------------------------------------------------ coalesced ops
 *
 * The engine starts, advances and finishes the tensors of a coalesced op one by one: a backend sees
 * each as an op of its own, with args.spec, args.axis, input and output set. A backend that would
 * rather do all of them at once takes them one after the other in start, and ends with the last:
 * after the last one nothing is left for the engine.
 */

/* 1 for an op that is not coalesced. */
uint32_t tutti_coll_part_count(const tutti_coll_op *op);

/* In start: make tensor `part` the one that op->args, op->input, op->output and op->part speak of.
 */
void tutti_coll_take_part(tutti_coll_op *op, uint32_t part);

/* A hash of the structs of coll that the engine and a backend share. A backend that is loaded as a
 * module returns its own, and the loader compares: it works only with a program that was built
 * alike. */
uint64_t tutti_coll_layout(void);

#endif
