/*
 * Machine: the program of a module that Relax has compiled, which TVM's virtual machine runs.
 */
#ifndef PLUGINS_TVM_MACHINE_H
#define PLUGINS_TVM_MACHINE_H

#include "ffi.h"

/*
 * Make a virtual machine of the module on the CPU, and add each function of its program. A module that is
 * not of Relax has none, and a program that this TVM-FFI cannot run adds none. Returns 0, or what
 * registry->fail does.
 *
 * [in] find  ffi.ModuleGetFunction
 */
int tvm_machine_add(const tutti_registry *registry, const tvm_any *module, tvm_object *find);

#endif
