/*
 * Global: functions of TVM-FFI's table of global functions. Many of them are not meant for clients (one
 * loads any file), so only those are callable whose first part the operator has named in
 * TUTTI_TVM_FUNCTIONS: "demo,test" is demo, demo.x, test and test.y; * is all of them.
 */
#ifndef PLUGINS_TVM_GLOBAL_H
#define PLUGINS_TVM_GLOBAL_H

#include "ffi.h"

/*
 * Add tvm.call(name, arguments ...), which finds its function when it is called, and tvm.NAME for those
 * that are in the table now. Without TUTTI_TVM_FUNCTIONS: nothing. Returns 0, or not 0: the file is
 * refused.
 */
int tvm_globals_add(const tutti_registry *registry);

#endif
