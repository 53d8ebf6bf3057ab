/* Values of functions: typed, and shown in the same words. */
#include "client/cli/util/typed.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/utf8.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

/* ------------------------------------------------------------------------------ typed */

static bool
read_integer(const char *word, int64_t *ret)
{
    char *end = NULL;
    long long number;

    errno = 0;
    number = strtoll(word, &end, 10);
    if (errno != 0 || end == word || *end != '\0' || *word == ' ') {
        return false;
    }
    *ret = number;
    return true;
}

/* "nan" and "inf" are numbers only where the word before says so: they may be words, too. */
static bool
read_real(const char *word, bool any, double *ret)
{
    char *end = NULL;

    if (word[0] == '\0' || (!any && strspn(word, "+-.0123456789eE") != strlen(word))) {
        return false;
    }
    *ret = strtod(word, &end);
    return end != word && *end == '\0' && (any || isfinite(*ret));
}

/* "2,3" of "[2,3]"; "" is a scalar's. */
static bool
read_dims(const char *text, size_t size, int64_t *dims, size_t *ret_count)
{
    const char *end = text + size;
    char *after = NULL;
    size_t count = 0;

    while (text < end && count < TUTTI_VALUE_DIMS_MAX) {
        errno = 0;
        dims[count++] = strtoll(text, &after, 10);
        if (after == text || errno != 0 || (after < end && *after != ',')) {
            return false;
        }
        text = after < end ? after + 1 : after;
    }
    *ret_count = count;
    return text == end;
}

static tutti_code
parse_typed_shape(const char *word, cli_typed *ret, tutti_error *err)
{
    const size_t size = strlen(word);
    size_t count = 0;

    if (size < 2 || word[0] != '[' || word[size - 1] != ']' ||
        !read_dims(word + 1, size - 2, ret->dims, &count)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%.60s\": need a shape: [2,3], of at most %d dimensions; or "
                        "text:%.60s if it is a text",
                        word, TUTTI_VALUE_DIMS_MAX, word);
    }
    ret->value = tutti_value_dims(ret->dims, count);
    return TUTTI_OK;
}

static tutti_code
parse_typed_hex(const char *digits, cli_typed *ret, tutti_error *err)
{
    const size_t size = strlen(digits) / 2;
    unsigned int byte;
    size_t i;

    if (strlen(digits) % 2 != 0 || strspn(digits, "0123456789abcdefABCDEF") != strlen(digits)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%.60s\" are no bytes: write two hex digits for each, hex:00ff", digits);
    }
    ret->bytes = malloc(size + 1);
    if (ret->bytes == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %zu bytes", size);
    }
    for (i = 0; i < size; i++) {
        (void)sscanf(digits + 2 * i, "%2x", &byte);
        ret->bytes[i] = (unsigned char)byte;
    }
    ret->value = tutti_value_data(ret->bytes, size);
    return TUTTI_OK;
}

static tutti_code
parse_typed_dtype(const char *name, cli_typed *ret, tutti_error *err)
{
    const tutti_dtype dtype = tutti_dtype_parse(name);

    if (dtype == TUTTI_DTYPE_NONE) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%.60s\": need a dtype: FP32, int64, bfloat16", name);
    }
    ret->value = tutti_value_dtype(dtype);
    return TUTTI_OK;
}

static tutti_code
parse_typed_number(const char *word, bool real, cli_typed *ret, tutti_error *err)
{
    int64_t integer = 0;
    double number = 0;

    if (!real && read_integer(word, &integer)) {
        ret->value = tutti_value_int(integer);
    } else if (real && read_real(word, true, &number)) {
        ret->value = tutti_value_float(number);
    } else {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "\"%.60s\" is no %s", word,
                        real ? "number" : "whole number of 64 bits");
    }
    return TUTTI_OK;
}

/* What is behind a word that says the kind; NULL: that word is not in front. */
static const char *
behind(const char *word, const char *kind)
{
    const size_t size = strlen(kind);

    return strncmp(word, kind, size) == 0 && word[size] == ':' ? word + size + 1 : NULL;
}

/* A handle has its rank behind "tensor:", and is kept whole; a name of a tensor has not. */
static tutti_value
tensor_value(const char *word, const char *rest)
{
    uint32_t rank;

    return tutti_value_tensor(cli_rank_of(word, &rank) ? word : rest);
}

/* [out] ret_known  a word in front has said what it is */
static tutti_code
parse_prefixed(const char *word, cli_typed *ret, bool *ret_known, tutti_error *err)
{
    const char *rest;

    *ret_known = true;
    if ((rest = behind(word, "text")) != NULL) {
        ret->value = tutti_value_text(rest);
    } else if ((rest = behind(word, "int")) != NULL) {
        return parse_typed_number(rest, false, ret, err);
    } else if ((rest = behind(word, "float")) != NULL) {
        return parse_typed_number(rest, true, ret, err);
    } else if ((rest = behind(word, "hex")) != NULL) {
        return parse_typed_hex(rest, ret, err);
    } else if ((rest = behind(word, "dtype")) != NULL) {
        return parse_typed_dtype(rest, ret, err);
    } else if ((rest = behind(word, "device")) != NULL) {
        ret->value = tutti_value_device(rest);
    } else if ((rest = behind(word, "shape")) != NULL) {
        return parse_typed_shape(rest, ret, err);
    } else if ((rest = behind(word, "function")) != NULL) {
        ret->value = tutti_value_function(rest);
    } else if ((rest = behind(word, "name")) != NULL) {
        ret->value = tutti_value_named(rest);
    } else if ((rest = behind(word, "tensor")) != NULL) {
        ret->value = tensor_value(word, rest);
    } else {
        *ret_known = false;
    }
    return TUTTI_OK;
}

tutti_code
cli_typed_parse(const char *word, cli_typed *ret, tutti_error *err)
{
    bool known = false;
    int64_t integer = 0;
    double real = 0;
    tutti_code code;

    *ret = (cli_typed){0};
    code = parse_prefixed(word, ret, &known, err);
    if (code != TUTTI_OK || known) {
        return code;
    }
    if (word[0] == '[') {
        return parse_typed_shape(word, ret, err);
    }
    if (strcmp(word, "null") == 0) {
        ret->value = tutti_value_null();
    } else if (read_integer(word, &integer)) {
        ret->value = tutti_value_int(integer);
    } else if (read_real(word, false, &real)) {
        ret->value = tutti_value_float(real);
    } else {
        ret->value = tutti_value_text(word);
    }
    return TUTTI_OK;
}

void
cli_typed_free(cli_typed *typed)
{
    free(typed->bytes);
    *typed = (cli_typed){0};
}

/* ------------------------------------------------------------------------------ shown */

static void
print_dims(FILE *out, const tutti_value_shape *shape)
{
    size_t i;

    (void)fputc('[', out);
    for (i = 0; i < shape->count; i++) {
        (void)fprintf(out, "%s%" PRId64, i == 0 ? "" : ",", shape->dims[i]);
    }
    (void)fputc(']', out);
}

static void
print_hex(FILE *out, const tutti_value_bytes *bytes)
{
    const unsigned char *data = bytes->data;
    size_t i;

    (void)fputs("hex:", out);
    for (i = 0; i < bytes->size; i++) {
        (void)fprintf(out, "%02x", data[i]);
    }
}

/* A text comes from elsewhere: what a terminal would act on is shown as \xNN. */
static void
print_text(FILE *out, const char *text)
{
    size_t left = strlen(text);
    size_t step;

    (void)fputc('"', out);
    for (; left > 0; left -= step, text += step) {
        const size_t whole = tutti_utf8_size(text, left);
        size_t i;

        step = whole == 0 ? 1 : whole;
        for (i = 0; i < step && (whole == 0 || tutti_utf8_steers(text, whole)); i++) {
            (void)fprintf(out, "\\x%02x", (unsigned char)text[i]);
        }
        if (i == 0) {
            (void)fputs(*text == '"' || *text == '\\' ? "\\" : "", out);
            (void)fwrite(text, 1, whole, out);
        }
    }
    (void)fputc('"', out);
}

static void
print_tensor(FILE *out, const tutti_value *value)
{
    char shape[CLI_WORD_SIZE];

    (void)fputs(value->u.text, out);
    if (value->spec.dtype != TUTTI_DTYPE_NONE) {
        (void)fprintf(out, "  %s%s", tutti_dtype_name(value->spec.dtype),
                      cli_format_shape(&value->spec, shape));
    }
}

void
cli_typed_print(FILE *out, const tutti_value *value)
{
    switch (value->kind) {
    case TUTTI_VALUE_INT:
        (void)fprintf(out, "%" PRId64, value->u.integer);
        return;
    case TUTTI_VALUE_FLOAT:
        (void)fprintf(out, "%.17g", value->u.real);
        return;
    case TUTTI_VALUE_TEXT:
        print_text(out, value->u.text);
        return;
    case TUTTI_VALUE_BYTES:
        print_hex(out, &value->u.bytes);
        return;
    case TUTTI_VALUE_DTYPE:
        (void)fprintf(out, "dtype:%s", tutti_dtype_name(value->u.dtype));
        return;
    case TUTTI_VALUE_SHAPE:
        print_dims(out, &value->u.shape);
        return;
    case TUTTI_VALUE_TENSOR:
        print_tensor(out, value);
        return;
    case TUTTI_VALUE_DEVICE:
    case TUTTI_VALUE_NAME:
    case TUTTI_VALUE_FUNCTION:
        (void)fprintf(out, "%s:%s", tutti_value_kind_name(value->kind), value->u.text);
        return;
    case TUTTI_VALUE_NULL:
    case TUTTI_VALUE_REGISTER:
    default:
        (void)fputs("null", out);
        return;
    }
}

static json_t *
json_dims(const tutti_value_shape *shape)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; i < shape->count; i++) {
        (void)json_array_append_new(array, json_integer(shape->dims[i]));
    }
    return array;
}

static json_t *
json_hex(const tutti_value_bytes *bytes)
{
    const unsigned char *data = bytes->data;
    char *text = calloc(2 * bytes->size + 1, 1);
    json_t *string;
    size_t i;

    for (i = 0; text != NULL && i < bytes->size; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", data[i]);
    }
    string = json_string(text == NULL ? "" : text);
    free(text);
    return string;
}

static json_t *
json_content(const tutti_value *value)
{
    switch (value->kind) {
    case TUTTI_VALUE_INT:
        return json_integer(value->u.integer);
    case TUTTI_VALUE_FLOAT: /* JSON has no word for what is not finite */
        return isfinite(value->u.real) ? json_real(value->u.real)
                                       : json_sprintf("%g", value->u.real);
    case TUTTI_VALUE_BYTES:
        return json_hex(&value->u.bytes);
    case TUTTI_VALUE_DTYPE:
        return json_string(tutti_dtype_name(value->u.dtype));
    case TUTTI_VALUE_SHAPE:
        return json_dims(&value->u.shape);
    case TUTTI_VALUE_TEXT:
    case TUTTI_VALUE_DEVICE:
    case TUTTI_VALUE_TENSOR:
    case TUTTI_VALUE_NAME:
    case TUTTI_VALUE_FUNCTION:
        return json_string(value->u.text);
    case TUTTI_VALUE_NULL:
    case TUTTI_VALUE_REGISTER:
    default:
        return json_null();
    }
}

json_t *
cli_typed_json(const tutti_value *value)
{
    const bool tensor = value->kind == TUTTI_VALUE_TENSOR;
    json_t *object = json_pack("{s:s, s:o}", "kind", tutti_value_kind_name(value->kind),
                               tensor ? "handle" : "value", json_content(value));

    if (tensor && value->spec.dtype != TUTTI_DTYPE_NONE) {
        cli_json_spec(object, &value->spec);
    }
    return object;
}
