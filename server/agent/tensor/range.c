/*
 * Ranges of tensors: parsing and comparing. Why a text and no message of its own: an op request has
 * four places for tensors, each command of a stream has them again, and what is a handle there can be
 * a range without a new field (docs/decisions/0030-ranges.md).
 */
#include "server/agent/tensor/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "tensor/spec.h"

#define DTYPE_SIZE 24 /* more than the longest name of a dtype */

/* Digits alone: strtoull would take blanks and signs. False: none, or too large. */
static bool
parse_digits(const char **text, uint64_t most, uint64_t *ret)
{
    char *end;

    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    *ret = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && *ret <= most;
}

static bool
parse_dtype(const char **text, tutti_dtype *ret)
{
    const size_t size = strcspn(*text, "[");
    char name[DTYPE_SIZE];

    if (size >= sizeof(name)) {
        return false;
    }
    memcpy(name, *text, size);
    name[size] = '\0';
    *text += size;
    *ret = tutti_dtype_parse(name);
    return *ret != TUTTI_DTYPE_NONE;
}

/* "[2,8]" to the end of the text. */
static bool
parse_range_dims(const char *text, tutti_spec *ret)
{
    uint64_t dim = 0;

    if (strcmp(text, "[]") == 0) {
        return true;
    }
    do {
        text++; /* '[' or ',' */
        if (ret->dim_count == TUTTI_DIMS_MAX || !parse_digits(&text, INT64_MAX, &dim)) {
            return false;
        }
        ret->dims[ret->dim_count++] = (int64_t)dim;
    } while (*text == ',');
    return strcmp(text, "]") == 0;
}

static bool
parse_range(const char *text, tutti_tensor_range *ret)
{
    if (!parse_digits(&text, INT64_MAX, &ret->offset) || *text != ':') {
        return false;
    }
    text++;
    return parse_dtype(&text, &ret->spec.dtype) && *text == '[' &&
           parse_range_dims(text, &ret->spec);
}

tutti_code
agent_range_parse(const char *text, char ret_name[TUTTI_TABLE_HANDLE_SIZE],
                  tutti_tensor_range **ret_range, tutti_error *err)
{
    const char *sign = strchr(text, AGENT_RANGE_SIGN);
    const size_t size = (size_t)(sign - text);
    tutti_tensor_range range = {0};

    if (size >= TUTTI_TABLE_HANDLE_SIZE) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "%zu bytes before the @, at most %d", size, TUTTI_HANDLE_MAX);
    }
    if (!parse_range(sign + 1, &range)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_RANGE",
            "\"%.80s\" is no range of a tensor: need NAME@OFFSET:DTYPE[DIM,DIM], such "
            "as w@256:FP32[2,8], with the offset in bytes",
            text);
    }
    TUTTI_TRY(tutti_spec_check(&range.spec, NULL, NULL, err));
    *ret_range = malloc(sizeof(range));
    if (*ret_range == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a range of a tensor");
    }
    **ret_range = range;
    memcpy(ret_name, text, size);
    ret_name[size] = '\0';
    return TUTTI_OK;
}

void
agent_range_free(tutti_tensor_range *range)
{
    if (range != NULL) {
        tutti_tensor_unref(range->view);
        free(range);
    }
}

bool
agent_ranges_meet(const tutti_tensor_range *left, const tutti_tensor_range *right)
{
    const uint64_t left_bytes = left == NULL ? UINT64_MAX : tutti_spec_bytes(&left->spec);
    const uint64_t right_bytes = right == NULL ? UINT64_MAX : tutti_spec_bytes(&right->spec);

    if (left == NULL || right == NULL) { /* offsets and bytes are below 2^63: no sum overflows */
        return left_bytes > 0 && right_bytes > 0;
    }
    return left_bytes > 0 && right_bytes > 0 && left->offset < right->offset + right_bytes &&
           right->offset < left->offset + left_bytes;
}

bool
agent_ranges_equal(const tutti_tensor_range *left, const tutti_tensor_range *right)
{
    if (left == NULL || right == NULL) {
        return left == right;
    }
    return left->offset == right->offset && left->spec.dtype == right->spec.dtype &&
           tutti_spec_bytes(&left->spec) == tutti_spec_bytes(&right->spec);
}
