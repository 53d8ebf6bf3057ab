/* Values: made, named and freed. */
#include "tutti/value.h"

#include <stdlib.h>
#include <string.h>

tutti_value
tutti_value_null(void)
{
    return (tutti_value){.kind = TUTTI_VALUE_NULL};
}

tutti_value
tutti_value_int(int64_t integer)
{
    return (tutti_value){.kind = TUTTI_VALUE_INT, .u.integer = integer};
}

tutti_value
tutti_value_float(double real)
{
    return (tutti_value){.kind = TUTTI_VALUE_FLOAT, .u.real = real};
}

tutti_value
tutti_value_text(const char *text)
{
    return (tutti_value){.kind = TUTTI_VALUE_TEXT, .u.text = text};
}

tutti_value
tutti_value_data(const void *data, size_t size)
{
    return (tutti_value){.kind = TUTTI_VALUE_BYTES, .u.bytes = {data, size}};
}

tutti_value
tutti_value_dtype(tutti_dtype dtype)
{
    return (tutti_value){.kind = TUTTI_VALUE_DTYPE, .u.dtype = dtype};
}

tutti_value
tutti_value_device(const char *device)
{
    return (tutti_value){.kind = TUTTI_VALUE_DEVICE, .u.text = device};
}

tutti_value
tutti_value_dims(const int64_t *dims, size_t count)
{
    return (tutti_value){.kind = TUTTI_VALUE_SHAPE, .u.shape = {dims, count}};
}

tutti_value
tutti_value_tensor(const char *handle)
{
    return (tutti_value){.kind = TUTTI_VALUE_TENSOR, .u.text = handle};
}

tutti_value
tutti_value_named(const char *name)
{
    return (tutti_value){.kind = TUTTI_VALUE_NAME, .u.text = name};
}

tutti_value
tutti_value_function(const char *function)
{
    return (tutti_value){.kind = TUTTI_VALUE_FUNCTION, .u.text = function};
}

tutti_value
tutti_value_register(uint32_t reg)
{
    return (tutti_value){.kind = TUTTI_VALUE_REGISTER, .u.reg = reg};
}

void
tutti_value_free(tutti_value *value)
{
    if (value != NULL) {
        free(value->memory);
        *value = tutti_value_null();
    }
}

const char *
tutti_value_kind_name(tutti_value_kind kind)
{
    static const char *const names[] = {"null",   "int",   "float",    "text",
                                        "bytes",  "dtype", "device",   "shape",
                                        "tensor", "name",  "function", "register"};

    if (kind < TUTTI_VALUE_NULL || kind > TUTTI_VALUE_REGISTER) {
        return "kind_<?>";
    }
    return names[kind];
}
