/*
 * Values: what functions beside the tensors take and return, and what registers of a session hold.
 *
 *     tutti_value args[3] = {tutti_value_tensor("weights"), tutti_value_int(3),
 *                            tutti_value_text("mean")};
 *
 *     code = tutti_call(client, "demo.scale", args, 3, NULL, &result, &err);   // tutti/function.h
 *     if (code == TUTTI_OK && result.value.kind == TUTTI_VALUE_FLOAT) {
 *         printf("%g\n", result.value.u.real);
 *     }
 *
 * A value is a kind and its content. A program makes one with the functions below, each of which
 * borrows the memory that it is given: the value may be used as long as that memory is as it was.
 * Nothing of such a value has to be freed. A value that libtutti gives owns its memory, and is
 * freed with tutti_value_free, or with the result that it is part of.
 *
 * Threads: a value is plain data. The functions here may run on any thread, without a client.
 *
 * Caveats
 *
 * - A copy by assignment shares the memory of the original. The trap: a value is copied out of a
 *   result, and the result is freed. How it looks: garbage. What to do: copy the text itself.
 * - Limits are those of the wire: a text or bytes of at most 1 MiB. Data belong into a tensor.
 */
#ifndef TUTTI_VALUE_H
#define TUTTI_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/code.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a text or of bytes in a value: 1 MiB. More is BAD_VALUE. */
#define TUTTI_VALUE_BYTES_MAX (1u << 20)
/* Dimensions of a shape that is a value; more than a tensor may have. More is BAD_VALUE. */
#define TUTTI_VALUE_DIMS_MAX 64

/* What a value is, and which member of `u` has it. The numbers are libtutti's own. */
typedef enum tutti_value_kind {
    TUTTI_VALUE_NULL = 0,      /* nothing */
    TUTTI_VALUE_INT = 1,       /* integer */
    TUTTI_VALUE_FLOAT = 2,     /* real */
    TUTTI_VALUE_TEXT = 3,      /* text: UTF-8 */
    TUTTI_VALUE_BYTES = 4,     /* bytes */
    TUTTI_VALUE_DTYPE = 5,     /* dtype */
    TUTTI_VALUE_DEVICE = 6,    /* text: "cpu", "cuda:0" */
    TUTTI_VALUE_SHAPE = 7,     /* shape */
    TUTTI_VALUE_TENSOR = 8,    /* text: a handle or name of a tensor of the agent */
    TUTTI_VALUE_NAME = 9,      /* text: whatever the agent has under that name */
    TUTTI_VALUE_FUNCTION = 10, /* text: the name of a function */
    TUTTI_VALUE_REGISTER = 11, /* reg: of a session; in arguments of its calls alone */
} tutti_value_kind;

/* Bytes that somebody else owns. */
typedef struct tutti_value_bytes {
    const void *data;
    size_t size;
} tutti_value_bytes;

/* Dimensions that somebody else owns. */
typedef struct tutti_value_shape {
    const int64_t *dims;
    size_t count;
} tutti_value_shape;

/* A value. Zeros are TUTTI_VALUE_NULL. */
typedef struct tutti_value {
    tutti_value_kind kind;
    union {
        int64_t integer;
        double real;
        const char *text;
        tutti_value_bytes bytes;
        tutti_dtype dtype;
        tutti_value_shape shape;
        uint32_t reg;
    } u;
    /*
     * Of a TUTTI_VALUE_TENSOR in an answer: what the tensor is. Elsewhere a spec of
     * TUTTI_DTYPE_NONE.
     */
    tutti_spec spec;
    /* [owned] libtutti's: what `u` points to. NULL in a value that a program has made. */
    void *memory;
} tutti_value;

/* Nothing. Each of these functions returns a value that borrows what it is given. */
TUTTI_API tutti_value tutti_value_null(void);
/* A whole number. */
TUTTI_API tutti_value tutti_value_int(int64_t integer);
/* A floating-point number. */
TUTTI_API tutti_value tutti_value_float(double real);
/* [in, borrowed] text  UTF-8, not NULL */
TUTTI_API tutti_value tutti_value_text(const char *text);
/* [in, borrowed] data  `size` bytes; may be NULL for 0 */
TUTTI_API tutti_value tutti_value_data(const void *data, size_t size);
/* A dtype, as an argument of a function. */
TUTTI_API tutti_value tutti_value_dtype(tutti_dtype dtype);
/* [in, borrowed] device  "cpu", "cuda:0"; not NULL */
TUTTI_API tutti_value tutti_value_device(const char *device);
/* [in, borrowed] dims  `count` dimensions, at most TUTTI_VALUE_DIMS_MAX */
TUTTI_API tutti_value tutti_value_dims(const int64_t *dims, size_t count);
/* [in, borrowed] handle  or name of a tensor; not NULL */
TUTTI_API tutti_value tutti_value_tensor(const char *handle);
/* [in, borrowed] name  of a value, tensor or function in the agent; not NULL */
TUTTI_API tutti_value tutti_value_named(const char *name);
/* [in, borrowed] function  its name; not NULL */
TUTTI_API tutti_value tutti_value_function(const char *function);
/* A register of a session (tutti/session.h). */
TUTTI_API tutti_value tutti_value_register(uint32_t reg);

/*
 * Free what a value owns, and make it TUTTI_VALUE_NULL. Of a value that a program has made there
 * is nothing to free.
 *
 * [in, out] value  NULL is fine
 */
TUTTI_API void tutti_value_free(tutti_value *value);

/*
 * The name of a kind, "int", "tensor".
 *
 * Returns a static string, never NULL; "kind_<?>" for a number that is none.
 */
TUTTI_API const char *tutti_value_kind_name(tutti_value_kind kind);

#ifdef __cplusplus
}
#endif

#endif
