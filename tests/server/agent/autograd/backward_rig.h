/* Backwards of agents of a test (op/agent_rig.h): tracers, and what is attached to them. */
#ifndef TUTTI_TESTS_BACKWARD_RIG_H
#define TUTTI_TESTS_BACKWARD_RIG_H

#include "server/agent/autograd/tape.h"
#include "server/agent/op/agent_rig.h"

#define RIG_GRADIENTS_MAX 4

typedef struct rig_backward {
    const char *tracer;
    const char *tensors[RIG_GRADIENTS_MAX]; /* NULL behind the last one, ... */
    const char *gradients[RIG_GRADIENTS_MAX];
    char *wanted[RIG_GRADIENTS_MAX]; /* ... as here; none = all that are attached */
    bool keep;
    bool async;
    uint32_t timeout_ms;
} rig_backward;

/* A tracer of that name on the rank. [out, borrowed] until it is deleted */
tutti_tape *agent_rig_trace(agent_rig *self, uint32_t rank, const char *tracer);
tutti_code agent_rig_attach(agent_rig *self, uint32_t rank, const char *tracer, const char *handle,
                            tutti_error *err);

/* Its answer is in `gradients`, and in `work` when it is async. */
rig_call *agent_rig_backward(agent_rig *self, uint32_t rank, const rig_backward *request);

/* The n-th gradient of the answer, when it is there, or that there is none. */
void rig_check_gradient(agent_rig *self, uint32_t rank, const rig_call *call, size_t n,
                        const double *values, int64_t count);
void rig_check_no_gradient(const rig_call *call, size_t n);

#endif
