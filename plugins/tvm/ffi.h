/*
 * Ffi: TVM-FFI's C ABI as far as this plug-in uses it, in words of our own, and the library that has it. The
 * layouts are those of apache-tvm-ffi 0.1.0 and later; names of TVM-FFI's own are in comments.
 */
#ifndef PLUGINS_TVM_FFI_H
#define PLUGINS_TVM_FFI_H

#include <stdbool.h>

#include "tutti/plugin.h"

/* What a tvm_any holds, beyond the kinds 0 to 9 of tutti_any_kind, which have the same numbers. */
typedef enum tvm_kind {
    TVM_SMALL_TEXT = 11,  /* in u.small */
    TVM_SMALL_BYTES = 12, /* likewise */
    TVM_OBJECT = 64,      /* from here on in u.object */
    TVM_TEXT = 65,
    TVM_BYTES = 66,
    TVM_SHAPE = 69,
    TVM_TENSOR = 70
} tvm_kind;

/* TVMFFIObject: what every object begins with. Its content is behind it. */
typedef struct tvm_object {
    uint64_t references;
    int32_t kind;
    uint32_t zero;
    void (*free)(void *object, int flags);
} tvm_object;

/* TVMFFIAny. */
typedef struct tvm_any {
    int32_t kind;
    uint32_t small_size; /* of u.small; else 0 */
    union {
        int64_t integer;
        double real;
        void *pointer;
        DLDataType dtype;
        DLDevice device;
        const DLTensor *tensor;
        const char *text;
        const tutti_span *bytes; /* TVMFFIByteArray, which has the same layout */
        tvm_object *object;
        char small[8];
    } u;
} tvm_any;

/* What is behind the tvm_object of an error: the beginning of TVMFFIErrorCell. */
typedef struct tvm_error {
    tutti_span kind; /* "ValueError" */
    tutti_span message;
} tvm_error;

/* The beginning of TVMFFITypeInfo. */
typedef struct tvm_type {
    int32_t kind;
    int32_t depth;
    tutti_span name; /* "ffi.Array" */
} tvm_type;

/* DLManagedTensor: a tensor that has an owner. */
typedef struct tvm_managed {
    DLTensor tensor;
    void *owner;
    void (*free)(struct tvm_managed *self);
} tvm_managed;

/* The functions that we call; comments say what is not plain. All return 0, or not 0: `take_error`. */
typedef struct tvm_ffi {
    /* TVMFFIFunctionGetGlobal: NULL in ret_function if there is none. */
    int (*find)(const tutti_span *name, tvm_object **ret_function);
    /* TVMFFIFunctionCall: `ret` is a tvm_any of nothing before. */
    int (*call)(tvm_object *function, const tvm_any *args, int32_t count, tvm_any *ret);
    /* TVMFFIObjectDecRef */
    int (*unref)(tvm_object *object);
    /* TVMFFIErrorMoveFromRaised: the error of this thread, NULL if there is none. */
    void (*take_error)(tvm_object **ret_error);
    /* TVMFFIGetTypeInfo */
    const tvm_type *(*type)(int32_t kind);
    /* TVMFFITensorFromDLPack: `managed` belongs to the tensor; 0 or the alignment, whether it is to be
     * row-major. NULL where TVM-FFI lacks it. */
    int (*from_dlpack)(struct tvm_managed *managed, int32_t alignment, int32_t row_major,
                       tvm_object **ret_tensor);
} tvm_ffi;

/* Good as soon as tvm_ffi_open has succeeded, until the process ends. */
extern tvm_ffi tvm_library;

/*
 * Load the libraries of TUTTI_TVM_LIBRARIES, which are separated by commas; without it libtvm_ffi.so,
 * and libtvm_runtime.so if that is there. Once; a second call changes nothing.
 *
 * [out] ret_text  why it failed: for people
 */
bool tvm_ffi_open(char *ret_text, size_t size);

/* What is behind an object's head. */
static inline void *
tvm_object_content(tvm_object *object)
{
    return object + 1;
}

static inline tvm_any
tvm_any_of(int32_t kind)
{
    return (tvm_any){.kind = kind};
}

/* Give up what a value refers to. */
void tvm_any_free(tvm_any *any);

/* A global function by its name, owned; NULL if there is none. */
tvm_object *tvm_function_find(const char *name);

/* What has just failed on this thread: "ValueError: it is odd". */
void tvm_error_take(char *ret_text, size_t size);

/* The same, which nobody is told. */
void tvm_error_drop(void);

#endif
