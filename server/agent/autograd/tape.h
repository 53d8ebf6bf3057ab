/*
 * Tape: what ops did to tensors, in the order in which they came, so that gradients can go back.
 *
 * A tape knows tensors by numbers, which are never used twice. A variable is what a tensor holds
 * between two ops that write it; it is a leaf when somebody attached the tensor. A record is one
 * op: which variable it read and which it made. Nothing here knows gRPC, groups or handles; no
 * tensor is kept, only masks.
 *
 * One thread: the agent's control loop.
 */
#ifndef TUTTI_SERVER_AGENT_AUTOGRAD_TAPE_H
#define TUTTI_SERVER_AGENT_AUTOGRAD_TAPE_H

#include <stdatomic.h>

#include "base/data/list.h"
#include "base/data/map.h"
#include "coll/coll.h"
#include "tensor/tensor.h"

#define TUTTI_TAPE_KEY_SIZE 16

typedef struct tutti_tapes tutti_tapes; /* all tapes of an agent */
typedef struct tutti_tape tutti_tape;
typedef struct tutti_tape_var tutti_tape_var;
typedef struct tutti_tape_record tutti_tape_record;

/*
 * What a tensor holds between two ops that write it. At most one of a tensor on a tape is `mapped`.
 */
struct tutti_tape_var {
    tutti_map_node by_tensor; /* while it is what its tensor holds */
    unsigned char key[TUTTI_TAPE_KEY_SIZE];
    tutti_list_node leaf; /* in the tape's leaves */
    tutti_tape *tape;
    uint64_t tensor;
    bool mapped;
    bool has_spec;
    tutti_spec spec;
    tutti_space *space;       /* where its gradients are */
    tutti_tape_record *maker; /* [borrowed] the op that made it; NULL = none on this tape */
    uint32_t refs;            /* records, the map, the leaves */
    tutti_tensor *gradient;   /* [owned] of the Backward that reads the tape; NULL = none */
    bool shared;              /* ... which somebody else has too: not to be written */
};

/*
 * One op on one tape. pending: the op runs, `before` may be put back and a reference to the tape is
 * held; it ends by tutti_tape_record_end or _drop. For max and min exactly one of these: `mask`
 * (and `kept` in place, while pending) in host memory, or `kept` and `made` on a device until a
 * Backward has made the mask of them.
 *
 */
struct tutti_tape_record {
    tutti_list_node link;     /* on the tape, by number */
    tutti_tape_record *of_op; /* the next record of the same op, on another tape */
    tutti_tape *tape;         /* [ref] while pending */
    uint64_t number;          /* counts ops as they came */
    bool pending;             /* its op has not ended, as far as the control loop knows */
    const atomic_bool *told;  /* pending: may its caller know of the end? NULL = no */
    bool cleared;             /* pending, and forgotten when its op has ended */
    tutti_tape_var *in;       /* [ref] NULL = what it read is not on the tape */
    tutti_tape_var *out;      /* [ref] NULL = it made nothing here */
    tutti_tape_var *before;   /* [ref] what the output's tensor held, until the op has ended */
    bool local;               /* gradients go back without communication */
    char group[TUTTI_NAME_MAX + 1];
    uint64_t group_id;
    uint64_t epoch;
    uint64_t sequence;    /* of the op in its group */
    uint32_t part;        /* of a coalesced op: which of its tensors */
    uint32_t size;        /* of the group */
    uint32_t rank;        /* ours in the group */
    tutti_coll_args args; /* lists are the record's own; of a recv, `peer` is the sender */
    tutti_spec flat;
    void *lists;        /* [owned] */
    tutti_spec result;  /* what the op makes here (a given output may have another shape); dtype
                           NONE = nothing */
    tutti_tensor *mask; /* [owned] where the input is the result, for max and min; BOOL */
    tutti_tensor *kept; /* [owned] the input, for the mask, where the op overwrites it */
    tutti_tensor *made; /* [owned] of an op on a device: its result, for the mask, which a Backward
                           makes of this and `kept`; NULL = none, or it has */
    tutti_space *space; /* where the op ran */
    void *node;         /* of the Backward that reads the tape */
};

struct tutti_tape {
    tutti_map_node by_name;
    char name[TUTTI_NAME_MAX + 1];
    tutti_tapes *tapes;
    uint64_t id;
    tutti_list_node records;
    tutti_list_node leaves;
    uint32_t record_count;
    uint32_t cleared_count; /* of them, which are only there until their ops have ended */
    uint64_t cleared_ns;    /* the last time of tutti_tape_clear, of all; 0 = never */
    uint32_t leaf_count;
    uint32_t backward_count; /* Backwards, under way or waiting */
    uint32_t refs;
    bool deleted;
    bool lossy; /* an op should have been recorded, and could not */
};

/*
 * [in] tapes_max  tapes at once
 * [in] items_max  records and attached tensors of all tapes
 */
tutti_code tutti_tapes_new(uint32_t tapes_max, uint32_t items_max, tutti_tapes **ret_tapes,
                           tutti_error *err);
void tutti_tapes_free(tutti_tapes *tapes); /* NULL is fine; references to tapes must be gone */

bool tutti_tapes_empty(const tutti_tapes *tapes);

/* The tape whose name comes after that of `tape` (NULL = the first); NULL at the end. */
tutti_tape *tutti_tapes_next(const tutti_tapes *tapes, tutti_tape *tape);

/*
 * TUTTI_ALREADY_EXISTS      NAME_TAKEN
 * TUTTI_INVALID_ARGUMENT    BAD_NAME
 * TUTTI_RESOURCE_EXHAUSTED  TRACER_LIMIT, or no memory
 */
tutti_code tutti_tape_new(tutti_tapes *tapes, const char *name, tutti_tape **ret_tape,
                          tutti_error *err);

/* TUTTI_NOT_FOUND  NO_TRACER */
tutti_code tutti_tape_find(const tutti_tapes *tapes, const char *name, tutti_tape **ret_tape,
                           tutti_error *err);

void tutti_tape_ref(tutti_tape *tape);
void tutti_tape_unref(tutti_tape *tape);

/* Its name is gone and ops are not recorded any more; the rest goes with the last reference. */
void tutti_tape_delete(tutti_tape *tape);

/*
 * Forget records of ops that have ended: all, or (`walked`) those that have a node. Leaves stay,
 * and are what their tensors hold again. Of an op whose caller may know of the end, but the control loop
 * does not yet, the record goes when it does, and is in cleared_count until then.
 */
void tutti_tape_clear(tutti_tape *tape, bool walked);

/* ------------------------------------------------------------------------------ variables */

/* What the tensor holds on this tape; NULL: nothing that is traced. */
tutti_tape_var *tutti_tape_var_of(const tutti_tape *tape, uint64_t tensor);

/* The same on any tape: the first, and the next one behind it. NULL at the end. */
tutti_tape_var *tutti_tapes_first_var(const tutti_tapes *tapes, uint64_t tensor);
tutti_tape_var *tutti_tapes_next_var(tutti_tape_var *var);

/* The leaf that was made of the tensor, also when ops have overwritten it since; NULL: none. */
tutti_tape_var *tutti_tape_leaf_of(const tutti_tape *tape, uint64_t tensor);

/* TUTTI_INVALID_ARGUMENT  DTYPE_UNSUPPORTED: nothing that has gradients */
tutti_code tutti_tape_check_dtype(tutti_dtype dtype, tutti_error *err);

/*
 * The tensor becomes a leaf, what an op made included.
 *
 * [in] space  where it is
 *
 * TUTTI_INVALID_ARGUMENT    DTYPE_UNSUPPORTED
 * TUTTI_RESOURCE_EXHAUSTED  TAPE_LIMIT, or no memory
 */
tutti_code tutti_tape_attach(tutti_tape *tape, uint64_t tensor, const tutti_spec *spec,
                             tutti_space *space, tutti_error *err);

/* A tensor that becomes a leaf. Borrowed for the call. */
typedef struct tutti_tape_leaf {
    uint64_t tensor;
    const tutti_spec *spec;
    tutti_space *space;
} tutti_tape_leaf;

/* The same with all of these or, when one fails, with none. */
tutti_code tutti_tape_attach_all(tutti_tape *tape, const tutti_tape_leaf *leaves, size_t count,
                                 tutti_error *err);

/* An op that is not recorded writes the tensor: on no tape does it hold anything any more. */
void tutti_tapes_overwrite(tutti_tapes *tapes, uint64_t tensor);

/* Add a gradient [moved, also on failure]; `shared`: it must not be written. One of a device only
 * where there is none yet. */
tutti_code tutti_tape_add_gradient(tutti_tape_var *var, tutti_tensor *gradient, bool shared,
                                   tutti_error *err);

/* Let go of all gradients. */
void tutti_tape_drop_gradients(tutti_tape *tape);

/* ------------------------------------------------------------------------------ records */

/* An op that is about to be recorded. Borrowed for the call. */
typedef struct tutti_tape_entry {
    uint64_t number;
    const char *group;
    uint64_t group_id;
    uint64_t epoch;
    uint32_t size;
    uint32_t rank;
    bool local;
    const atomic_bool *told; /* as the record's */
    const tutti_coll_args *args;
    uint32_t part;
    tutti_spec result;   /* dtype NONE = nothing, or not known yet */
    uint64_t in_tensor;  /* 0 = none */
    uint64_t out_tensor; /* 0 = none */
    tutti_spec out_spec; /* dtype NONE = not known yet */
    tutti_tensor *mask;  /* [moved] NULL = none */
    tutti_tensor *kept;  /* [moved] NULL = none */
    tutti_tensor *made;  /* [moved] NULL = none */
    tutti_space *space;
    bool late; /* the op has ended: a leaf attached to its result since then is its result */
} tutti_tape_entry;

/*
 * Put an op on the tape, in its place by number. What it writes is its result from now on.
 *
 * [out, borrowed]  ret_record  until it is dropped, or ended and cleared
 *
 * TUTTI_RESOURCE_EXHAUSTED  TAPE_LIMIT, or no memory
 */
tutti_code tutti_tape_record_new(tutti_tape *tape, const tutti_tape_entry *entry,
                                 tutti_tape_record **ret_record, tutti_error *err);

/* The op has ended well. [in] out_spec  of what it made; NULL = nothing */
void tutti_tape_record_end(tutti_tape_record *record, uint64_t sequence,
                           const tutti_spec *out_spec);

/* The op failed, or was refused: as if it had never been. */
void tutti_tape_record_drop(tutti_tape_record *record);

#endif
