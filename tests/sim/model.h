/* Model: what a rank gives in an op, and what it gets. Pure, but for model_break. */
#ifndef TUTTI_TESTS_SIM_MODEL_H
#define TUTTI_TESTS_SIM_MODEL_H

#include "plan.h"

/* A rank's part in an op. */
typedef struct model_call {
    const plan_op *what;
    uint32_t number; /* of the op in the plan */
    uint32_t size;   /* of the group */
    uint32_t group_rank;
} model_call;

/* How many parts of plan_op.count elements it gives, and gets. */
int64_t model_parts_given(const model_call *self);
int64_t model_parts_got(const model_call *self);

/* An element of what a group rank gives. */
int64_t model_value(uint32_t number, uint32_t group_rank, int64_t index);

/* What an element of the result has to be. */
int64_t model_element(const model_call *self, int64_t index);

/* From now on what the model says of this op is wrong: so that a test sees a judge at work. */
void model_break(uint32_t number);

#endif
