/*
 * The one file of this room that programs link: it finds the module tutti-nccl.so. The module reads
 * structs of the engine (tutti_coll_op and others), so a module of another build is refused before
 * it is used.
 */
#include "base/error/fail.h"
#include "base/os/module.h"
#include "coll/nccl/nccl.h"

tutti_code
tutti_coll_nccl_load(const tutti_nccl_module **ret_module, tutti_error *err)
{
    const void *symbol = NULL;
    tutti_code code = tutti_module_load("nccl", TUTTI_NCCL_SYMBOL, &symbol, err);
    const tutti_nccl_module *module = symbol;

    if (code == TUTTI_OK && module->size != sizeof(*module)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_MODULE",
                              "tutti-nccl.so has a table of %zu bytes, this program knows one of "
                              "%zu: they are of different versions",
                              module->size, sizeof(*module));
    }
    if (code == TUTTI_OK && module->layout() != tutti_coll_layout()) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_MODULE",
                              "tutti-nccl.so and this program were not built from the same source: "
                              "build or install both together");
    }
    if (code == TUTTI_OK) {
        *ret_module = module;
    }
    return code;
}
