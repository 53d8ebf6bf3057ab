/* Model: what a rank gives in an op, and what it gets. Pure, but for model_break. */
#ifndef TUTTI_TESTS_SIM_MODEL_H
#define TUTTI_TESTS_SIM_MODEL_H

#include "plan.h"

#define LIST_MAX (TENSORS_MAX * RANKS_MAX)

/* A rank's part in an op. */
typedef struct model_call {
    const plan_op *what;
    uint32_t number; /* of the op in the plan */
    uint32_t size;   /* of the group */
    uint32_t group_rank;
} model_call;

/* How many parts of plan_op.count elements it gives, and gets, of SHAPE_PLAIN. */
int64_t model_parts_given(const model_call *self);
int64_t model_parts_got(const model_call *self);

/* Tensors of a rank, one behind the other, by their elements. */
typedef struct model_tensors {
    uint32_t count;
    int64_t lengths[LIST_MAX];
} model_tensors;

/* What it gives. An op that is no list has one tensor, or none. */
void model_given(const model_call *self, model_tensors *ret);

/* What it gets: of a list, [tensor][rank]. */
void model_got(const model_call *self, model_tensors *ret);

int64_t model_sum(const model_tensors *self); /* of all lengths */

/* Rows that group rank `from` has for group rank `to`, of splits and lists of an all-to-all. */
int64_t model_rows(const model_call *self, uint32_t from, uint32_t to);

/* An element of all that a group rank gives. */
int64_t model_value(uint32_t number, uint32_t group_rank, int64_t index);

/* What an element of all that it gets has to be. */
int64_t model_element(const model_call *self, int64_t index);

/* Bytes that go with an op of SHAPE_META. */
uint64_t model_meta_size(uint32_t number);
unsigned char model_meta(uint32_t number, uint64_t index);

/* From now on what the model says of this op is wrong: so that a test sees a judge at work. */
void model_break(uint32_t number);

#endif
