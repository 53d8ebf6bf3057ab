/*
 * Value: what a call brings, as TVM-FFI has it, and what its function returns, as Tutti has it.
 */
#ifndef PLUGINS_TVM_VALUE_H
#define PLUGINS_TVM_VALUE_H

#include "ffi.h"

/* The arguments of a call. */
typedef struct tvm_args {
    const tutti_any *from;
    int32_t count;
    tvm_any *anys;     /* `count`; they own shapes, and borrow the rest from `from` */
    DLTensor *tensors; /* as `from` has them, with strides, which TVM-FFI wants */
    int64_t *strides;  /* of all tensors */
} tvm_args;

/* False after env->fail. Then there is nothing to close. */
bool tvm_args_open(tvm_args *args, const tutti_env *env, const tutti_any *from, int32_t count);
void tvm_args_close(tvm_args *args);

/*
 * Copy the tensors among open arguments, so that the function may keep them. False after env->fail; close
 * the arguments in either case.
 */
bool tvm_args_own(tvm_args *args, const tutti_env *env);

/*
 * What a function has returned. The content of `returned` is the thread's afterwards, and stays until
 * its next call: the agent copies it before. Returns 0, or what env->fail does.
 */
int tvm_value_return(const tutti_env *env, const tvm_args *args, tvm_any *returned, tutti_any *ret);

#endif
