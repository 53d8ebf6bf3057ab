/*
 * The backend door of coll: who moves the data of an op once its ranks have agreed.
 *
 * A backend is a state machine of rounds: advance is called with nothing in flight, posts the sends
 * and receives of the next round, and is called again when all of them are over. It computes
 * between rounds. All on the engine's thread.
 */
#ifndef TUTTI_COLL_BACKEND_H
#define TUTTI_COLL_BACKEND_H

#include "coll/coll.h"
#include "coll/transport.h"

typedef struct tutti_coll_backend tutti_coll_backend;
struct tutti_coll_backend {
    size_t size;
    const char *name;
    /*
     * Prepare. op->args.spec is the agreed one, input and output are there. op->backend_state is
     * the backend's. An error fails the op for the whole group.
     */
    tutti_code (*start)(tutti_coll_op *op, tutti_error *err);
    /* Post round op->round (counted up by the engine from 0), or say that all is done. */
    tutti_code (*advance)(tutti_coll_op *op, bool *ret_done, tutti_error *err);
    /* Free what start made. Also after a failure, when nothing is in flight any more. */
    void (*finish)(tutti_coll_op *op);
    /*
     * What follows is for work that is not the transport's, and NULL elsewhere (coll/host).
     *
     * The op failed after start: its memory comes back when all that was taken off has landed.
     */
    void (*abandon)(tutti_coll_op *op);
    /*
     * Look after what was taken off; with each turn of the engine. How much was done.
     * [out] ret_next_ns  when it is to be asked again, at the latest
     */
    unsigned (*poll)(tutti_coll_backend *backend, uint64_t now_ns, uint64_t *ret_next_ns);
    /*
     * A send or receive moves its tensor over the transport, by way of host memory: `stage` finds
     * some for op->device_stage. fetch copies input there, store copies it to output; both take the
     * op off. unstage when nothing is in flight any more.
     */
    tutti_code (*stage)(tutti_coll_op *op, size_t bytes, tutti_error *err);
    tutti_code (*fetch)(tutti_coll_op *op, size_t bytes, tutti_error *err);
    tutti_code (*store)(tutti_coll_op *op, size_t bytes, tutti_error *err);
    void (*unstage)(tutti_coll_op *op);
    /* The group is gone, or begins a new epoch: its ops have failed. */
    void (*forget)(tutti_coll_backend *backend, uint64_t group_id);
    /* The engine ends; all ops are over, or were given up. */
    void (*close)(tutti_coll_backend *backend);
    /*
     * 63 bits that this rank says yes to; may be NULL. They travel with the signatures of an op:
     * from start on, tutti_coll_votes has those that all ranks say yes to, alike on all of them.
     */
    uint64_t (*vote)(tutti_coll_op *op);
    /*
     * A small op may travel whole with its signature: write at most TUTTI_COLL_PIGGYBACK_MAX bytes
     * of this rank's, say how many; 0 = none. May be NULL. After vote.
     */
    size_t (*piggyback)(tutti_coll_op *op, unsigned char *ret_bytes);
};

#define TUTTI_COLL_PIGGYBACK_MAX 128
#define TUTTI_COLL_PIGGYBACK_RANKS_MAX 32 /* in larger groups nobody is piggybacked */

/* From start on: what all ranks wrote in ride, by group rank, each of *ret_size bytes, on a
 * boundary of 16 when that is; NULL when one of them wrote nothing. Alike on all ranks. */
const unsigned char *tutti_coll_riders(const tutti_coll_op *op, size_t *ret_size);

uint64_t tutti_coll_votes(const tutti_coll_op *op);

/* tutti_coll_engine_options.backend_arg */
void *tutti_coll_backend_arg(const tutti_coll_op *op);

/* What the backend knows of a group: NULL at first, its own, free()d with the group. It outlives
 * epochs: compare op->epoch. */
void **tutti_coll_group_note(const tutti_coll_op *op);

/* For those who ask what the backend does in a group (tutti_coll_group_facts). Any number. */
void tutti_coll_group_tell(const tutti_coll_op *op, uint64_t facts);

/* The same for all ranks of a host; one of its own for a rank that does not say. Never 0. */
uint64_t tutti_coll_host_number(const tutti_coll_op *op);

/*
 * For advance: one message to, or from, a group rank. The memory must stay as it is until the next
 * advance. `step` tells messages between the same two ranks apart: the receiver names the same
 * step. `extra` travels with it.
 */
void tutti_coll_send(tutti_coll_op *op, uint32_t step, uint32_t to, const void *data, size_t size,
                     uint64_t extra);

/* [out] ret_extra  written when it has come; NULL = not wanted. Lives until the next advance */
void tutti_coll_recv(tutti_coll_op *op, uint32_t step, uint32_t from, void *dest, size_t size,
                     uint64_t *ret_extra);

/* ------------------------------------------------------------------------------ exposed regions
 *
 * Where all ranks are processes of one host, they can work in each other's memory: expose ours to
 * each other rank, borrow theirs, and from the next advance on (when all have come) read and write.
 * tutti_coll_unmap says that our part is done; the next advance after that comes when all others
 * have done theirs. An op that fails on the way gives back what it borrowed, and is let go when
 * what it exposed is back, or the borrower is dead.
 */

/* Memory of another rank. Embedded in the backend's state; zeroed before it is borrowed. */
typedef struct tutti_coll_mapping {
    tutti_transport_region memory; /* all 0: it could not be exposed */
    uint64_t extra;
    tutti_list_node link;
    struct tutti_transport_rndv *rndv;
} tutti_coll_mapping;

/* Can all ranks of the group touch each other's memory? All of them answer alike. */
bool tutti_coll_is_same_host(const tutti_coll_op *op);

/* Is this memory that can be exposed? */
bool tutti_coll_can_expose(const tutti_coll_op *op, const tutti_transport_region *region);

/* For advance. An exposed region that cannot be exposed must be empty: its borrowers see that. */
void tutti_coll_expose(tutti_coll_op *op, uint32_t step, uint32_t to,
                       const tutti_transport_region *region, uint64_t extra);
void tutti_coll_map(tutti_coll_op *op, uint32_t step, uint32_t from, tutti_coll_mapping *view);
void tutti_coll_unmap(tutti_coll_op *op);

/* For advance, instead of messages: call it again soon; others have their turn before. */
void tutti_coll_again(tutti_coll_op *op);

/* ------------------------------------------------------------------------------ other work
 *
 * A device works by itself. An op of which it has something is taken off, in advance, and lands
 * later, in poll: then advance is called again, or the failed op is let go.
 */
void tutti_coll_device_submit(tutti_coll_op *op);
void tutti_coll_device_complete(tutti_coll_op *op);

/* The op cannot go on: all ranks hear of it. In poll. */
void tutti_coll_device_fail(tutti_coll_op *op, const tutti_error *err);

/*
 * Ops of one group reach a device in the order of their numbers: is everything before this one
 * launched, or over? From tutti_coll_mark_launched on the next one may follow.
 */
bool tutti_coll_is_next(const tutti_coll_op *op);
void tutti_coll_mark_launched(tutti_coll_op *op);

/* In start: make tensor `part` of a coalesced op the one that args, input and output speak of. Who
 * does all of them at once ends with the last. */
uint32_t tutti_coll_part_count(const tutti_coll_op *op);
void tutti_coll_take_part(tutti_coll_op *op, uint32_t part);

/* Of what this room is made, as numbers in one: a module has code of this room too, and works only
 * with a program that was built alike. */
uint64_t tutti_coll_layout(void);

tutti_coll_backend *tutti_coll_device_of(const tutti_coll_op *op);

#endif
