/*
 * Tracers: gradients of collectives. A tracer is a tape in one rank's agent: ops on tensors that
 * are attached to it are recorded, what they make is attached too, and tutti_backward runs the dual
 * ops from the tape's end, together with the other ranks.
 *
 *     const char *weights[] = {x};
 *     tutti_backward_options backward;
 *     tutti_gradient *found;
 *     size_t count;
 *
 *     tutti_tracer_create(client, "step", &err);
 *     tutti_tracer_attach(client, "step", weights, 1, &err);
 *     op.input = x;
 *     tutti_all_reduce(client, &op, &result, &err);              // y
 *     ...                                                       // the caller finds dy
 *     tutti_backward_options_init(&backward);
 *     backward.tensors = &y, backward.gradients = &dy, backward.given_count = 1;
 *     code = tutti_backward(client, "step", &backward, &found, &count, NULL, &err);
 *     tutti_free(found);
 *
 * Every rank of a group records the same ops of it, and calls tutti_backward; who has no gradient
 * gives none. Ops on inline memory (tutti_..._data) are on no tape.
 * proto/tutti/v1/tracers_service.proto has the rules, docs/errors.md the reasons.
 */
#ifndef TUTTI_TRACER_H
#define TUTTI_TRACER_H

#include <stddef.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * TUTTI_ALREADY_EXISTS      NAME_TAKEN
 * TUTTI_INVALID_ARGUMENT    BAD_NAME
 * TUTTI_RESOURCE_EXHAUSTED  TRACER_LIMIT
 */
TUTTI_API tutti_code tutti_tracer_create(tutti_client *client, const char *name, tutti_error *err);

/*
 * Record ops on these tensors (handles or names, 1 to 1024) from now on, and give their gradients.
 *
 * TUTTI_NOT_FOUND           NO_TRACER, NO_TENSOR
 * TUTTI_INVALID_ARGUMENT    DTYPE_UNSUPPORTED: neither float nor complex
 * TUTTI_RESOURCE_EXHAUSTED  TAPE_LIMIT
 */
TUTTI_API tutti_code tutti_tracer_attach(tutti_client *client, const char *name,
                                         const char *const *tensors, size_t count,
                                         tutti_error *err);

/* Forget what is recorded. TUTTI_NOT_FOUND NO_TRACER; TUTTI_FAILED_PRECONDITION TRACER_BUSY */
TUTTI_API tutti_code tutti_tracer_clear(tutti_client *client, const char *name, tutti_error *err);

/* TUTTI_NOT_FOUND NO_TRACER */
TUTTI_API tutti_code tutti_tracer_delete(tutti_client *client, const char *name, tutti_error *err);

typedef struct tutti_tracer_info {
    char name[TUTTI_NAME_MAX + 1];
    uint32_t op_count;       /* recorded */
    uint32_t attached_count; /* by tutti_tracer_attach */
    bool walking;            /* a tutti_backward is under way */
} tutti_tracer_info;

/* By name. [out, owned] ret_infos  tutti_free it */
TUTTI_API tutti_code tutti_tracer_list(tutti_client *client, tutti_tracer_info **ret_infos,
                                       size_t *ret_count, tutti_error *err);

/* Begin with tutti_backward_options_init. */
typedef struct tutti_backward_options {
    size_t size;                  /* of this struct: set by init */
    const char *const *tensors;   /* whose gradients are given: handles or names */
    const char *const *gradients; /* one for each of these: of the same dtype and shape */
    size_t given_count;           /* 0 = this rank only takes part */
    const char *const *wanted;    /* whose gradients are wanted */
    size_t wanted_count;          /* 0 = of all that were attached */
    bool keep;                    /* leave the tape as it is, for another tutti_backward */
    bool async;                   /* return at once; tutti_wait for the work */
    uint32_t timeout_ms;          /* as tutti_op.timeout_ms */
} tutti_backward_options;

TUTTI_API void tutti_backward_options_init(tutti_backward_options *options);

typedef struct tutti_gradient {
    char tensor[TUTTI_HANDLE_MAX + 1];
    tutti_handle
        gradient; /* text "": there is none. Async: gone after the end, when there is none */
} tutti_gradient;

/*
 * [in]          options    NULL = as init: nothing given, all wanted
 * [out, owned]  ret_found  one for each wanted tensor; tutti_free it
 * [out]         ret_work   TUTTI_HANDLE_MAX + 1 bytes, of an async one; NULL = not wanted
 *
 * TUTTI_FAILED_PRECONDITION  NOT_ON_TAPE, TAPE_MISMATCH, TAPE_STALE
 * TUTTI_INVALID_ARGUMENT     DTYPE_MISMATCH, SHAPE_MISMATCH: a gradient is not like its tensor
 * and what ops fail with
 */
TUTTI_API tutti_code tutti_backward(tutti_client *client, const char *name,
                                    const tutti_backward_options *options,
                                    tutti_gradient **ret_found, size_t *ret_count, char *ret_work,
                                    tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
