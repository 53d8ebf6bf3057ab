/*
 * Private to lib/coll: what a group is made of.
 *
 * fixed from the open on     engine, id, size, rank, ranks, name; any thread
 * under the engine's lock    sequence, epoch, last: what posters count
 * atomic                     refs; facts (relaxed: a number that orders nothing)
 * engine's thread            all else
 *
 * A group is in engine->groups from run_open until it is dropped (closed). live_epoch follows
 * epoch, and begun follows sequence, as the engine works through its inbox.
 */
#ifndef TUTTI_COLL_STATE_GROUP_H
#define TUTTI_COLL_STATE_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"

#define LEAVE_REASON_MAX 160
#define PENDING_ABORTS_MAX 1024 /* per group: ops that ended before we called them */
#define NO_RANK UINT32_MAX
#define NO_GROUP 0                         /* coordinators count from 1 */
#define LOSS_GRACE_NS (300 * 1000000ULL)   /* for ops that may not need the lost rank any more */
#define CLOSE_GRACE_NS (1000 * 1000000ULL) /* for ranks that have not heard of a deletion yet */

struct tutti_coll_group {
    tutti_coll_engine *engine;
    uint64_t id;
    uint32_t size;
    uint32_t rank; /* ours */
    uint32_t *ranks;
    char name[TUTTI_NAME_MAX + 1];

    /* under the engine's lock */
    uint64_t sequence; /* of the last op posted */
    uint64_t epoch;
    tutti_coll_args last;
    tutti_error *orphaned; /* [owned] why nobody calls ops here any more; NULL = somebody may */

    /* the engine's thread only */
    tutti_coll_item open_item;
    tutti_coll_item close_item;
    tutti_map_node node;
    unsigned char key[8];
    uint64_t live_epoch;
    /* Ranks may count apart: after a return or a resync, until an op succeeds (abort.c). */
    bool needs_resync;
    uint64_t resynced_by; /* the op whose success ended the last resync; 0 = none of this epoch */
    /* The last op that has succeeded here and failed elsewhere, by its time or its caller; 0 = none
     * of this epoch. What follows from it fails with that error. */
    uint64_t parted;
    tutti_error parted_err;
    uint64_t begun; /* the newest sequence of this epoch that an op or a refusal has had */
    tutti_coll_args begun_args;
    tutti_map ops; /* collectives by sequence */
    /* Ends of ops that were not called here yet, by sequence. */
    tutti_map pending_aborts;
    atomic_bool has_ends; /* there may be some: also until it is open. Any thread reads */
    atomic_uint_fast64_t orphaned_ns; /* since when `orphaned` is not NULL; 0 = it is */
    tutti_list_node unexpected;       /* packets for ops not begun, or of newer epochs */
    tutti_list_node sends;            /* SEND packets nobody has received */
    tutti_list_node metas;            /* META packets whose SEND nobody has received */
    /* [owned] Sends that were given up before their SEND has come (p2p.c); NULL = none of this
     * epoch. */
    struct coll_retracted *retracted;
    /* Recv ops nobody has sent to: by their items. None of them fits a packet in `sends`. */
    tutti_list_node receives;
    tutti_list_node silent; /* members at which nobody sends or receives (p2p.c) */
    tutti_timer loss_timer;
    tutti_timer close_timer;
    uint32_t lost_rank; /* a member that is gone, of the job; NO_RANK = all there */
    /* A member that begins no op behind `last_op`; NO_RANK = none. Of several, the one with the
     * lowest last_op. Ends with the epoch. */
    uint32_t leaver;
    uint64_t last_op;
    char leave_reason[LEAVE_REASON_MAX];
    tutti_error *aborted; /* [owned] what ends its ops; NULL = it was not aborted in this epoch */
    /* One for engine->groups, one for each op that is not released, one for each item under way.
     * The last one frees the group, on whichever thread. */
    atomic_uint refs;
    /* Deleted by the coordinator, ops still run: it is dropped when none does. */
    bool closing;
    /* Dropped: in no map. Only references keep it; items that come now do nothing. */
    bool closed;
    void *backend_note;         /* backend.h */
    atomic_uint_fast64_t facts; /* any thread reads */
};

#endif
