/*
 * Function: one of TVM-FFI that clients may call. What is added stays until the process ends.
 */
#ifndef PLUGINS_TVM_FUNCTION_H
#define PLUGINS_TVM_FUNCTION_H

#include "value.h"

/* Call it, as a tutti_function does. [in, borrowed] function */
int tvm_function_run(tvm_object *function, const tutti_env *env, const tutti_any *args,
                     int32_t count, tutti_any *ret);

/*
 * Add a function under a name. Returns 0, or not 0: then the file is refused.
 *
 * [in, owned] function  given up if it was not added
 */
int tvm_function_add(const tutti_registry *registry, const char *name, tvm_object *function);

/* Call it with arguments that are open, and take what it returns. */
int tvm_function_call(tvm_object *function, const tutti_env *env, const tvm_args *args,
                      tutti_any *ret);

#endif
