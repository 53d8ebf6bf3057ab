/* Private to client: values as messages and back, and what there is to say of functions. */
#ifndef TUTTI_CLIENT_FUNCTION_VALUE_PB_H
#define TUTTI_CLIENT_FUNCTION_VALUE_PB_H

#include "tutti/function.h"
#include "tutti/v1/functions_service.pb-c.h"

/* A value on its way out. It borrows from the value, and must stay where it is. */
typedef struct wire_value {
    Tutti__V1__Value message;
    Tutti__V1__Shape shape;
} wire_value;

/*
 * [in] what  the value, for an error: "argument 2"
 *
 * TUTTI_INVALID_ARGUMENT  BAD_VALUE: no kind that a message has, NULL, or too long
 */
tutti_code client_write_plain(const tutti_value *value, const char *what, wire_value *ret,
                              tutti_error *err);

/*
 * [in]         message    NULL = null
 * [out, owned] ret_value  tutti_value_free it
 *
 * TUTTI_DATA_LOSS           it is nothing that an agent says
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code client_read_plain(const Tutti__V1__Value *message, tutti_value *ret_value,
                             tutti_error *err);

/* [out, owned] ret_infos  free it; NULL: they are not wanted */
tutti_code client_read_functions(Tutti__V1__FunctionInfo *const *messages, size_t count,
                                 tutti_function_info **ret_infos, size_t *ret_count,
                                 tutti_error *err);

/* TUTTI_INVALID_ARGUMENT  ARGUMENT_LIMIT */
tutti_code client_check_arguments(size_t count, tutti_error *err);

#endif
