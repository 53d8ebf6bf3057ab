/*
 * Plug-ins: functions in C (or C++, Rust, CUDA ...) that run inside of agents, called by name.
 *
 *     #include "tutti/plugin.h"
 *
 *     static int
 *     add_one(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
 *     {
 *         if (count != 1 || args[0].kind != TUTTI_ANY_INT) {
 *             return env->fail(env, "BAD_ARGS", "add_one takes one int");
 *         }
 *         *ret = tutti_any_int(args[0].u.integer + 1);
 *         return 0;
 *     }
 *
 *     TUTTI_PLUGIN_EXPORT int
 *     tutti_plugin_1(const tutti_registry *registry)
 *     {
 *         return registry->add(registry, "demo.add_one", add_one, NULL, "int -> int");
 *     }
 *
 *     cc -shared -fPIC -o demo.so demo.c          # links nothing of Tutti
 *     tutti-agent --plugin ./demo.so ...
 *
 * An agent loads the files of --plugin when it starts, and those of --module-path when a client
 * asks for one by its name (FunctionsService.LoadModule). A plug-in runs in the agent's process
 * with all of its rights: it is the operator's code. Code that may crash, or is not C, is better a
 * host (FunctionsService.Serve), a process of its own.
 *
 * Values are 16 bytes: a kind, and 8 bytes of content. Kinds 0 to 9 have the numbers, and the
 * layout, that TVM-FFI has for them (tvm/ffi/c_api.h), and tensors are DLTensor of DLPack, so
 * wrappers of either pass them on without a copy.
 *
 * Threads. Functions run on threads of the agent's function pool (--function-threads), several at
 * once; calls of one session on one agent run one at a time. What `env` offers may be called on the
 * function's thread alone, and only until the function returns.
 *
 * Ownership. Arguments, and what they point to, are borrowed for the call. What a function returns
 * in `ret` is copied before the function's thread runs another one: texts, bytes and shapes may lie
 * in memory of the function (static, or the thread's), and stay its own. A tensor that is returned
 * is one of the arguments, or one that env->make has given.
 *
 * Caveats
 *
 * - A function that does not return keeps its tensors locked, and its session's later calls
 *   waiting. How it looks: `tutti stall`, and a warning in the agent's log, name the function; callers
 *   get TIMEOUT. What to do: give each wait inside of it an end, and look at env->cancelled now and
 *   then.
 * - A collective inside of a function (env->op) needs the same call on every rank of the group. If
 *   one rank's function leaves before it, the others wait until the op's time is over.
 * - Tensors on a GPU: work on env->stream need not be waited for, the agent does that when the
 *   function returns, and when it calls env->op. All work on other streams must have ended by then.
 *   CUDA's default stream does not wait for env->stream, nor env->stream for it.
 * - A function that returns one of its arguments gives a copy of it: both have names of their own,
 *   and other calls may use them at the same time.
 */
#ifndef TUTTI_PLUGIN_H
#define TUTTI_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ tensors: DLPack */

/*
 * DLPack's structs, with its names and layout, for those who have not included dlpack.h before.
 */
#ifndef DLPACK_VERSION
#ifndef DLPACK_MAJOR_VERSION

/* Where a tensor's memory is. */
typedef struct DLDevice {
    /* 1 = host memory, 2 = CUDA. */
    int32_t device_type;
    /* Which GPU; 0 for host memory. */
    int32_t device_id;
} DLDevice;

/* What an element is. */
typedef struct DLDataType {
    /* 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool, 7 to 17 floats of 8 bits. */
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

/* A tensor in somebody's memory. */
typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    /* In elements. NULL = row-major, which tensors of an agent always are. */
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

#endif
#endif

/* ------------------------------------------------------------------ values */

/* What a tutti_any holds. 0 to 9 are TVM-FFI's numbers. */
typedef enum tutti_any_kind {
    TUTTI_ANY_NULL = 0,
    TUTTI_ANY_INT = 1,
    TUTTI_ANY_BOOL = 2, /* in u.integer: 0 or 1 */
    TUTTI_ANY_FLOAT = 3,
    TUTTI_ANY_POINTER = 4, /* never made by an agent */
    TUTTI_ANY_DTYPE = 5,
    TUTTI_ANY_DEVICE = 6,
    TUTTI_ANY_TENSOR = 7,
    TUTTI_ANY_TEXT = 8, /* UTF-8, with a NUL behind it */
    TUTTI_ANY_BYTES = 9,
    TUTTI_ANY_SHAPE = 100
} tutti_any_kind;

/* Bytes that somebody else owns. */
typedef struct tutti_span {
    const char *data;
    size_t size;
} tutti_span;

/* The dimensions of a shape, owned by somebody else. */
typedef struct tutti_dims {
    const int64_t *data;
    size_t size;
} tutti_dims;

/* A value. */
typedef struct tutti_any {
    /* A tutti_any_kind. */
    int32_t kind;
    /* 0. */
    uint32_t zero;
    union {
        int64_t integer;
        double real;
        void *pointer;
        DLDataType dtype;
        DLDevice device;
        DLTensor *tensor;
        const char *text;
        const tutti_span *bytes;
        const tutti_dims *shape;
    } u;
} tutti_any;

/* Nothing: NULL, None. */
static inline tutti_any
tutti_any_null(void)
{
    tutti_any any;
    any.kind = TUTTI_ANY_NULL;
    any.zero = 0;
    any.u.integer = 0;
    return any;
}

/* A whole number. */
static inline tutti_any
tutti_any_int(int64_t integer)
{
    tutti_any any = tutti_any_null();
    any.kind = TUTTI_ANY_INT;
    any.u.integer = integer;
    return any;
}

/* A floating-point number. */
static inline tutti_any
tutti_any_float(double real)
{
    tutti_any any = tutti_any_null();
    any.kind = TUTTI_ANY_FLOAT;
    any.u.real = real;
    return any;
}

/* [in, borrowed] text  UTF-8, ends with a zero byte; not NULL */
static inline tutti_any
tutti_any_text(const char *text)
{
    tutti_any any = tutti_any_null();
    any.kind = TUTTI_ANY_TEXT;
    any.u.text = text;
    return any;
}

/* [in, borrowed] tensor  must live as long as the value is used */
static inline tutti_any
tutti_any_tensor(DLTensor *tensor)
{
    tutti_any any = tutti_any_null();
    any.kind = TUTTI_ANY_TENSOR;
    any.u.tensor = tensor;
    return any;
}

/* ------------------------------------------------------------------ the environment of a call */

/* Options of a collective that a function calls. Zero it, set what is wanted. */
typedef struct tutti_env_op {
    /* Bytes of this struct. */
    size_t size;
    /* "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter",
     * "all_to_all", "barrier", "send", "recv". */
    const char *op;
    /* The tensor that goes in, an argument or one of `make`; NULL where the op takes none here. */
    const DLTensor *input;
    /* The tensor that the result goes to; may be the input. NULL where the op gives none here. */
    DLTensor *output;
    /* "sum" (NULL is the same), "prod", "min", "max", "avg", "band", "bor", "bxor". */
    const char *reduce;
    /* A group rank: the root, or the other end of a message. */
    int32_t peer;
    /* Milliseconds until it fails on every rank; 0 = what is left of the call's time. */
    uint32_t timeout_ms;
} tutti_env_op;

/* Where a function is called. Made by the agent, one for each call. */
typedef struct tutti_env tutti_env;
struct tutti_env {
    /* Bytes of this struct: a field beyond it is not there. */
    size_t size;
    /* The agent's rank in its job, and how many there are. */
    uint32_t rank;
    uint32_t world_size;
    /* The worker's number in its session, 0 to worker_count - 1; without a session as above. */
    uint32_t worker;
    uint32_t worker_count;
    /* Workers in a group of the session; worker / group_size is the number of the group. */
    uint32_t group_size;
    /* Of the agent's first --device. */
    DLDevice device;
    /*
     * A cudaStream_t of the call's own: on the GPU of its first tensor that is on one, else of the
     * agent's first --device. cudaSetDevice was called for it. What is put on it comes after all
     * that the call's tensors were written by. NULL: no GPU is concerned; it changes when `make` has
     * made the call's first tensor on one.
     */
    void *stream;
    /* Not 0 as soon as nobody waits for the result any more. Changes while the function runs. */
    const volatile int *cancelled;
    /* The agent's own. */
    void *self;
    /* What the function was added with. */
    void *context;

    /*
     * Make a tensor, not filled. It belongs to the call: it is freed when the function has
     * returned, unless it is the result.
     *
     * [in] shape   of `ndim` dimensions; copied
     * [in] device  where; NULL = env->device
     *
     * Returns NULL after it has called `fail`: no memory, or a dtype that agents do not know.
     */
    DLTensor *(*make)(const tutti_env *env, DLDataType dtype, const int64_t *shape, int32_t ndim,
                      const DLDevice *device);

    /*
     * A collective with the same function on the other ranks of the call's group. Blocks until it
     * has ended. Every rank calls the same ops in the same order.
     *
     * Returns 0, or not 0 after it has called `fail` with what was wrong: the function then returns
     * that, or goes on.
     */
    int (*op)(const tutti_env *env, const tutti_env_op *op);

    /*
     * Say why the call fails: copied, the last one counts. Returns -1, so that a function can
     * return what this returns.
     *
     * [in] reason  for programs: upper-case letters, digits and _, at most 39; NULL = FUNCTION_FAILED
     * [in] text    for people; at most 1000 bytes are kept
     */
    int (*fail)(const tutti_env *env, const char *reason, const char *text);
};

/*
 * A function.
 *
 * [in]  args   `count` of them, borrowed
 * [out] ret    TUTTI_ANY_NULL before the call
 *
 * Returns 0, or another number if it has failed: env->fail has said why.
 */
typedef int (*tutti_function)(const tutti_env *env, const tutti_any *args, int32_t count,
                              tutti_any *ret);

/* ------------------------------------------------------------------ the plug-in */

/* Where a plug-in puts its functions. Good until the function that got it returns. */
typedef struct tutti_registry tutti_registry;

/*
 * A loader: a plug-in has it for files of --module-path that are no plug-ins, because another system
 * has made them. It adds the file's functions. The file is loaded, and never unloaded.
 *
 * [in] path     of the file; only root and the agent's own user can change it
 * [in] library  what dlopen has given for it
 *
 * Called once for a file, on any thread, for several files at once. Returns 0; 1 if it is no file of
 * this kind; or less than 0: registry->fail has said what is wrong with it.
 */
typedef int (*tutti_loader)(const tutti_registry *registry, const char *path, void *library);

struct tutti_registry {
    /* Bytes of this struct. */
    size_t size;
    /* The agent's own. */
    void *self;
    /* The device that LoadModule named; "" = the agent's first. */
    const char *device;

    /*
     * Add a function.
     *
     * [in] name       1 to 127 of letters, digits and . _ / - ; copied. Those of a module are
     *                 called "MODULE.name"
     * [in] function   called until the process ends
     * [in] context    env->context of its calls; stays until the process ends; NULL is fine
     * [in] signature  for people, "tensor, float -> tensor"; copied; NULL = nothing
     *
     * Returns 0; not 0 if the name is bad or taken, which the agent reports.
     */
    int (*add)(const tutti_registry *registry, const char *name, tutti_function function,
               void *context, const char *signature);

    /*
     * Add a loader. It is asked about files that are loaded from now on; from inside of a loader this
     * fails.
     *
     * Returns 0; not 0 if there are 8 already, which the agent reports.
     */
    int (*add_loader)(const tutti_registry *registry, tutti_loader loader);

    /*
     * Say why the file is refused: copied, the first one counts, at most 500 bytes are kept. Returns
     * -1, so that a function can return what this returns.
     */
    int (*fail)(const tutti_registry *registry, const char *text);
};

/*
 * What a plug-in exports; the 1 is the version of this interface. Called once, while the file is
 * loaded, on one thread. Returns 0, or another number: then the file is refused.
 */
typedef int (*tutti_plugin_fn)(const tutti_registry *registry);

#if defined(__GNUC__)
#define TUTTI_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define TUTTI_PLUGIN_EXPORT
#endif

/* Written by the plug-in. */
TUTTI_PLUGIN_EXPORT int tutti_plugin_1(const tutti_registry *registry);

#ifdef __cplusplus
}
#endif

#endif
