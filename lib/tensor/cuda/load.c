/* The one file of this room that programs link: it finds the module tutti-cuda.so, and checks that
 * its table is the one that this program knows. */
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/module.h"
#include "tensor/cuda/cuda.h"

tutti_code
tutti_cuda_load(const tutti_cuda_module **ret_module, tutti_error *err)
{
    const void *symbol = NULL;
    tutti_code code = tutti_module_load("cuda", TUTTI_CUDA_SYMBOL, &symbol, err);
    const tutti_cuda_module *module = symbol;

    if (code == TUTTI_OK && module->size != sizeof(*module)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_MODULE",
                              "tutti-cuda.so has a table of %zu bytes, this program knows one of "
                              "%zu: they are of different versions",
                              module->size, sizeof(*module));
    }
    if (code == TUTTI_OK) {
        *ret_module = module;
    }
    return code;
}

int
tutti_cuda_parse(const char *device)
{
    uint64_t number = 0;

    if (strncmp(device, "cuda:", 5) != 0 ||
        tutti_parse_uint(device + 5, 1023, &number, NULL) != TUTTI_OK) {
        return -1;
    }
    return (int)number;
}

/* What is wrong is wrong with this device. */
static tutti_code
name_device(int number, tutti_error *err)
{
    char text[sizeof(err->text)];

    if (err == NULL) {
        return TUTTI_FAILED_PRECONDITION;
    }
    memcpy(text, err->text, sizeof(text));
    (void)snprintf(err->text, sizeof(err->text), "cuda:%d: %.*s", number,
                   (int)sizeof(err->text) - 20, text);
    return err->code;
}

tutti_code
tutti_cuda_find(int number, const tutti_cuda_module **ret_module, tutti_cuda_device *ret_device,
                tutti_error *err)
{
    const tutti_cuda_module *module = NULL;
    tutti_code code = tutti_cuda_load(&module, err);

    if (code == TUTTI_OK) {
        code = module->look(number, ret_device, err);
    }
    if (code != TUTTI_OK) {
        return name_device(number, err);
    }
    *ret_module = module;
    return TUTTI_OK;
}
