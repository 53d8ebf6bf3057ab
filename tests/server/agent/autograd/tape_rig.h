/* Tapes with memory for gradients, and ops that are put on them. */
#ifndef TUTTI_TESTS_TAPE_RIG_H
#define TUTTI_TESTS_TAPE_RIG_H

#include "server/agent/autograd/tape.h"
#include "server/agent/autograd/tape_private.h"

typedef struct tape_rig {
    tutti_tapes *tapes;
    tutti_tape *tape; /* "t" */
    tutti_space *space;
    uint64_t number; /* of the last op */
} tape_rig;

void tape_rig_start(tape_rig *self, uint32_t items_max);
void tape_rig_stop(tape_rig *self); /* checks that no memory is left */

extern const tutti_spec tape_rig_spec; /* FP64[2] */

/* A leaf of that spec. */
void tape_rig_attach(tape_rig *self, uint64_t tensor);

/* An all_reduce from one tensor to another, begun; 0 = none. */
tutti_tape_record *tape_rig_begin(tape_rig *self, uint64_t in, uint64_t out);
/* ... and ended. */
tutti_tape_record *tape_rig_record(tape_rig *self, uint64_t in, uint64_t out);

/* FP64[2] with these values. */
tutti_tensor *tape_rig_tensor(tape_rig *self, double first, double second);

#endif
