/*
 * tutti-tvm.so: functions of TVM-FFI, called by clients of Tutti. It is built without TVM, and looks for
 * its library when it is loaded.
 */
#include "tutti/plugin.h"

#include "ffi.h"
#include "global.h"
#include "module.h"

#define WORDS_MAX 512

TUTTI_PLUGIN_EXPORT int
tutti_plugin_1(const tutti_registry *registry)
{
    char text[WORDS_MAX];

    if (registry->size < sizeof(*registry)) {
        return -1; /* an agent older than loaders */
    }
    if (!tvm_ffi_open(text, sizeof(text))) {
        return registry->fail(registry, text);
    }
    return tvm_globals_add(registry) != 0 ? -1 : registry->add_loader(registry, tvm_module_load);
}
