/* Builtins are written as plug-ins are: what they need of the agent is in `env`. */
#include "server/agent/function/builtins.h"

#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/function/value.h"

#define BAD_ARGS "BAD_ARGS"

static bool
is_tensor(const tutti_any *args, int32_t count, int32_t i)
{
    return i < count && args[i].kind == TUTTI_ANY_TENSOR;
}

static bool
is_absent(const tutti_any *args, int32_t count, int32_t i)
{
    return i >= count || args[i].kind == TUTTI_ANY_NULL;
}

/* ------------------------------------------------------------------------------ who and where */

static int
no_args(const tutti_env *env, int32_t count)
{
    return count == 0 ? 0 : env->fail(env, BAD_ARGS, "this function takes no arguments");
}

static int
give_worker(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    *ret = tutti_any_int(env->worker);
    return no_args(env, count);
}

static int
give_worker_count(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    *ret = tutti_any_int(env->worker_count);
    return no_args(env, count);
}

static int
give_group_size(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    *ret = tutti_any_int(env->group_size);
    return no_args(env, count);
}

static int
give_group_count(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    *ret = tutti_any_int(env->worker_count / env->group_size);
    return no_args(env, count);
}

static int
give_group_id(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    *ret = tutti_any_int(env->worker / env->group_size);
    return no_args(env, count);
}

static int
give_device(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    ret->kind = TUTTI_ANY_DEVICE;
    ret->u.device = env->device;
    return no_args(env, count);
}

/* ------------------------------------------------------------------------------ tensors */

/* A dtype, or its name as numpy has it. */
static bool
read_dtype(const tutti_any *any, DLDataType *ret_dtype)
{
    static const struct {
        const char *name;
        tutti_dtype dtype;
    } rows[] = {
#define ROW(upper, number, bytes, numpy) {numpy, TUTTI_DTYPE_##upper},
        TUTTI_DTYPE_MAP(ROW)
#undef ROW
    };
    size_t i;

    if (any->kind == TUTTI_ANY_DTYPE) {
        *ret_dtype = any->u.dtype;
        return true;
    }
    for (i = 0; any->kind == TUTTI_ANY_TEXT && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, any->u.text) == 0) {
            *ret_dtype = tutti_dlpack_of_dtype(rows[i].dtype);
            return true;
        }
    }
    return false;
}

static bool
read_device(const tutti_env *env, const tutti_any *args, int32_t count, int32_t i,
            DLDevice *ret_device)
{
    if (is_absent(args, count, i)) {
        *ret_device = env->device;
        return true;
    }
    if (args[i].kind == TUTTI_ANY_DEVICE) {
        *ret_device = args[i].u.device;
        return true;
    }
    return args[i].kind == TUTTI_ANY_TEXT && tutti_dlpack_parse_device(args[i].u.text, ret_device);
}

static int
make_empty(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    DLDataType dtype = {2, 32, 1};
    DLDevice device;
    DLTensor *made;

    if (count < 1 || count > 3 || args[0].kind != TUTTI_ANY_SHAPE ||
        args[0].u.shape->size > TUTTI_DIMS_MAX ||
        (!is_absent(args, count, 1) && !read_dtype(&args[1], &dtype)) ||
        !read_device(env, args, count, 2, &device)) {
        return env->fail(env, BAD_ARGS,
                         "empty takes a shape, a dtype or its name (float32), and a device (the "
                         "first of the agent)");
    }
    made = env->make(env, dtype, args[0].u.shape->data, (int32_t)args[0].u.shape->size, &device);
    if (made == NULL) {
        return -1;
    }
    *ret = tutti_any_tensor(made);
    return 0;
}

/* The agent copies an argument that is returned. */
static int
copy(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1) {
        return env->fail(env, BAD_ARGS, "copy takes one argument");
    }
    *ret = args[0];
    return 0;
}

/* ------------------------------------------------------------------------------ collectives */

static int
run_collective(const tutti_env *env, const char *op, const char *reduce, const tutti_any *input,
               DLTensor *output, tutti_any *ret)
{
    tutti_env_op asked = {.size = sizeof(asked),
                          .op = op,
                          .reduce = reduce,
                          .input = input->u.tensor,
                          .output = output};
    const int status = env->op(env, &asked);

    *ret = status == 0 ? tutti_any_tensor(output) : tutti_any_null();
    return status;
}

/* allreduce(src, "sum", dst): the result goes to dst, or to a new tensor. */
static int
all_reduce(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const bool has_dst = is_tensor(args, count, 2);
    const DLTensor *src;
    DLTensor *dst;

    if (count > 3 || !is_tensor(args, count, 0) ||
        (!is_absent(args, count, 1) && args[1].kind != TUTTI_ANY_TEXT) ||
        (!is_absent(args, count, 2) && !has_dst)) {
        return env->fail(env, BAD_ARGS,
                         "allreduce takes a tensor, a reduce op (\"sum\") and a "
                         "tensor for the result");
    }
    src = args[0].u.tensor;
    dst = has_dst ? args[2].u.tensor
                  : env->make(env, src->dtype, src->shape, src->ndim, &src->device);
    return dst == NULL ? -1
                       : run_collective(env, "all_reduce",
                                        is_absent(args, count, 1) ? NULL : args[1].u.text, &args[0],
                                        dst, ret);
}

/* allgather(src, dst): `dst` has as many elements as all inputs together. */
static int
all_gather(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 2 || !is_tensor(args, count, 0) || !is_tensor(args, count, 1)) {
        return env->fail(env, BAD_ARGS, "allgather takes a tensor, and one for the result");
    }
    return run_collective(env, "all_gather", NULL, &args[0], args[1].u.tensor, ret);
}

static int
broadcast(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1 || !is_tensor(args, count, 0)) {
        return env->fail(env, BAD_ARGS,
                         "broadcast_from_worker0 takes a tensor, which is overwritten");
    }
    return run_collective(env, "broadcast", NULL, &args[0], args[0].u.tensor, ret);
}

/* ------------------------------------------------------------------------------ all of them */

typedef struct builtin {
    const char *name;
    tutti_function run;
    const char *signature;
} builtin;

static const builtin builtins[] = {
    {"runtime.disco.worker_id", give_worker, "-> int"},
    {"runtime.disco.worker_rank", give_worker, "-> int"},
    {"runtime.disco.world_size", give_worker_count, "-> int"},
    {"runtime.disco.num_workers", give_worker_count, "-> int"},
    {"runtime.disco.num_groups", give_group_count, "-> int"},
    {"runtime.disco.group_size", give_group_size, "-> int"},
    {"runtime.disco.group_id", give_group_id, "-> int"},
    {"runtime.disco.device", give_device, "-> device"},
    {"runtime.disco.empty", make_empty, "shape, dtype, device -> tensor"},
    {"runtime.disco.copy", copy, "any -> any"},
    {"runtime.disco.allreduce", all_reduce, "tensor, text, tensor -> tensor"},
    {"runtime.disco.allgather", all_gather, "tensor, tensor -> tensor"},
    {"runtime.disco.broadcast_from_worker0", broadcast, "tensor -> tensor"},
};

tutti_code
agent_builtins_add(agent_registry *registry, tutti_error *err)
{
    agent_function *function = NULL;
    size_t i;

    for (i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++) {
        TUTTI_TRY(agent_registry_add(registry, builtins[i].name, "builtin", builtins[i].signature,
                                     &function, err));
        function->run = builtins[i].run;
    }
    return TUTTI_OK;
}
