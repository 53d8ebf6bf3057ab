/* What lines of a session say: values of each worker, and what has failed where. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/number.h"
#include "client/cli/session/shell.h"
#include "client/cli/util/output.h"
#include "client/cli/util/typed.h"
#include "client/cli/util/values.h"

#define ELEMENTS_SHOWN 16

void
shell_print_json(const shell *self, json_t *object)
{
    (void)json_dumpf(object, self->tool->out, JSON_COMPACT);
    (void)fputc('\n', self->tool->out);
    (void)fflush(self->tool->out);
    json_decref(object);
}

/* ------------------------------------------------------------------------------ values */

static json_t *
json_values(const tutti_session_result *result)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; i < result->value_count; i++) {
        json_t *one = cli_typed_json(&result->values[i].value);

        (void)json_object_set_new(one, "worker", json_integer(result->values[i].worker));
        (void)json_array_append_new(array, one);
    }
    return array;
}

static json_t *
json_function_names(const tutti_session_result *result)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; i < result->function_count; i++) {
        (void)json_array_append_new(array, json_string(result->functions[i].name));
    }
    return array;
}

static void
print_values_of_workers(const shell *self, const tutti_session_result *result)
{
    size_t i;

    for (i = 0; i < result->value_count; i++) {
        (void)fprintf(self->tool->out, "worker %" PRIu32 "  ", result->values[i].worker);
        cli_typed_print(self->tool->out, &result->values[i].value);
        (void)fputc('\n', self->tool->out);
    }
    for (i = 0; i < result->function_count; i++) {
        (void)fprintf(self->tool->out, "%s\n", result->functions[i].name);
    }
}

void
shell_print_result(const shell_call *call, const tutti_session_result *result)
{
    const shell *self = call->shell;
    json_t *object;

    if (!self->tool->json) {
        if (call->into == 0 || result->function_count > 0) {
            print_values_of_workers(self, result);
        }
        return;
    }
    object =
        json_pack("{s:I, s:s}", "line", (json_int_t)self->number, "command", call->command->name);
    if (call->into != 0) {
        (void)json_object_set_new(object, "register", json_integer(call->into));
    }
    if (result->value_count > 0) {
        (void)json_object_set_new(object, "values", json_values(result));
    }
    if (result->function_count > 0) {
        (void)json_object_set_new(object, "functions", json_function_names(result));
    }
    shell_print_json(self, object);
}

/* ------------------------------------------------------------------------------ failures */

static json_t *
json_failed(const tutti_session_result *result)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; i < result->failed_count; i++) {
        (void)json_array_append_new(array, json_pack("{s:I, s:I, s:o}", "worker",
                                                     (json_int_t)result->failed[i].worker, "rank",
                                                     (json_int_t)result->failed[i].rank, "error",
                                                     cli_json_error(&result->failed[i].error)));
    }
    return array;
}

/* " (on workers 1-2)"; nothing where it failed on all, or the leader has refused it. */
static void
format_workers(const shell *self, const tutti_session_result *result, char *ret, size_t size)
{
    const uint32_t count = tutti_session_describe(self->session)->worker_count;
    uint32_t *workers;
    char list[256];
    size_t i;

    ret[0] = '\0';
    if (result == NULL || result->failed_count == 0 || result->failed_count == count) {
        return;
    }
    workers = calloc(result->failed_count, sizeof(*workers));
    for (i = 0; workers != NULL && i < result->failed_count; i++) {
        workers[i] = result->failed[i].worker;
    }
    if (workers != NULL) {
        cli_format_ranks(workers, result->failed_count, list, sizeof(list));
        (void)snprintf(ret, size, " (on worker%s %s)", result->failed_count == 1 ? "" : "s", list);
    }
    free(workers);
}

void
shell_print_failed(shell *self, uint64_t number, const char *command, const tutti_error *err,
                   const tutti_session_result *result)
{
    char workers[320];
    char where[48] = "";
    json_t *object;

    self->failed = true;
    if (self->script) {
        (void)snprintf(where, sizeof(where), "line %" PRIu64 ": ", number);
    }
    format_workers(self, result, workers, sizeof(workers));
    (void)fflush(self->tool->out);
    (void)fprintf(self->tool->err, "tutti: session: %s%s%s%s%s\n", where, command,
                  command[0] == '\0' ? "" : ": ", err->text, workers);
    if (self->tool->json) {
        object = json_pack("{s:I, s:s, s:o}", "line", (json_int_t)number, "command", command,
                           "error", cli_json_error(err));
        if (result != NULL && result->failed_count > 0) {
            (void)json_object_set_new(object, "failed", json_failed(result));
        }
        shell_print_json(self, object);
    }
}

/* ------------------------------------------------------------------------------ elements */

static int
format_element(tutti_dtype dtype, const void *element, char *ret, size_t size)
{
    double number[2] = {0, 0};
    int64_t whole;

    if (dtype == TUTTI_DTYPE_INT64 || dtype == TUTTI_DTYPE_UINT64) { /* more digits than a double */
        memcpy(&whole, element, sizeof(whole));
        return dtype == TUTTI_DTYPE_INT64 ? snprintf(ret, size, "%" PRId64, whole)
                                          : snprintf(ret, size, "%" PRIu64, (uint64_t)whole);
    }
    bench_number_load(dtype, element, number);
    if (dtype == TUTTI_DTYPE_COMPLEX64 || dtype == TUTTI_DTYPE_COMPLEX128) {
        return snprintf(ret, size, "%.9g%+.9gi", number[0], number[1]);
    }
    return snprintf(ret, size, "%.9g", number[0]);
}

void
shell_format_elements(const tutti_spec *spec, const void *data, char *ret, size_t size)
{
    const size_t element_bytes = tutti_dtype_bytes(spec->dtype);
    const unsigned char *element = data;
    uint64_t count = 0;
    size_t used = 0;
    uint64_t i;

    ret[0] = '\0';
    (void)tutti_spec_size(spec, &count, NULL, NULL);
    for (i = 0; i < count && i < ELEMENTS_SHOWN && used + 64 < size; i++) {
        used += (size_t)snprintf(ret + used, size - used, "%s", i == 0 ? "" : " ");
        used += (size_t)format_element(spec->dtype, element, ret + used, size - used);
        element += element_bytes;
    }
    if (i < count) {
        (void)snprintf(ret + used, size - used, " ... %" PRIu64 " more", count - i);
    }
}
