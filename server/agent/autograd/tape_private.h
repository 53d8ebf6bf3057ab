/* Private to tape*.c. Control loop. */
#ifndef TUTTI_SERVER_AGENT_AUTOGRAD_TAPE_PRIVATE_H
#define TUTTI_SERVER_AGENT_AUTOGRAD_TAPE_PRIVATE_H

#include "server/agent/autograd/tape.h"

struct tutti_tapes {
    tutti_map by_name;
    tutti_map by_tensor; /* variables: tensor, then tape */
    uint64_t last_id;
    uint32_t tapes_max;
    uint32_t items_max;
    uint32_t item_count;
};

/* TUTTI_RESOURCE_EXHAUSTED  TAPE_LIMIT */
tutti_code agent_tape_room(const tutti_tape *tape, tutti_error *err);

/*
 * tape_record.c: take it off its tape and free it with its references. It does not unref the tape.
 */
void agent_tape_free_record(tutti_tape_record *record);

/* tape.c: leaves that no op on the tape has overwritten are what their tensors hold again. */
void agent_tape_remap_leaves(tutti_tape *tape);

/* tape_var.c */
tutti_tape_var *agent_tape_var_new(tutti_tape *tape,
                                   uint64_t tensor); /* one reference; NULL: no memory */
void agent_tape_var_ref(tutti_tape_var *var);
void agent_tape_var_unref(tutti_tape_var *var); /* NULL is fine */
/* It is what its tensor holds on its tape, instead of what was; a reference for the map. */
void agent_tape_map(tutti_tape_var *var);
/* Its tensor holds nothing that the tape knows; fine when it is not mapped. May free it. */
void agent_tape_unmap(tutti_tape_var *var);
/* It is no leaf any more; may free it. */
void agent_tape_unleaf(tutti_tape_var *var);

#endif
