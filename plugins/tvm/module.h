/*
 * Module: a library that was made for TVM-FFI: by TVM, or by any compiler whose functions are exported as
 * __tvm_ffi_NAME. Its functions are added as NAME.
 */
#ifndef PLUGINS_TVM_MODULE_H
#define PLUGINS_TVM_MODULE_H

#include "tutti/plugin.h"

/* A tutti_loader. */
int tvm_module_load(const tutti_registry *registry, const char *path, void *library);

#endif
