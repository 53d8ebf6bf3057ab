/* tutti put, get, list, stat, copy, delete: tensors of one agent. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/npy/npy.h"
#include "client/cli/parse/parse.h"
#include "client/cli/safetensors/safetensors.h"
#include "client/cli/tensor/commands.h"
#include "client/cli/tensor/files.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

/* The shape is there only when it is known. */
static json_t *
json_handle(const tutti_handle *handle)
{
    json_t *object = json_pack("{s:s}", "handle", handle->text);

    if (handle->known) {
        cli_json_spec(object, &handle->spec);
    }
    return object;
}

/* ------------------------------------------------------------------------------ put */

static bool
read_dtype(const cli *self, tutti_dtype *ret)
{
    const char *name = cli_value(self, "dtype");

    *ret = name == NULL ? TUTTI_DTYPE_NONE : tutti_dtype_parse(name);
    if (name != NULL && *ret == TUTTI_DTYPE_NONE) {
        (void)cli_usage(self, "--dtype \"%s\": need BF16, FP8_E4M3 or FP8_E5M2", name);
        return false;
    }
    return true;
}

/* [out] ret_handle  with --into the tensor that was written into */
static tutti_code
put_array(cli *self, tutti_client *client, const char *path, const npy_array *array,
          tutti_handle *ret_handle, tutti_error *err)
{
    cli_bar_part part = {.bar = cli_bar_new(self, path, array->bytes)};
    const char *into = cli_value(self, "into");
    tutti_transfer transfer;
    tutti_code code;

    tutti_transfer_init(&transfer);
    transfer.on_progress = cli_bar_moved;
    transfer.arg = &part;
    if (into == NULL) {
        code = tutti_tensor_put(client, &array->spec, array->data, cli_value(self, "name"),
                                &transfer, ret_handle, err);
    } else {
        code = tutti_tensor_write(client, into, &array->spec, array->data, &transfer, err);
        *ret_handle = (tutti_handle){.known = true, .spec = array->spec};
        (void)snprintf(ret_handle->text, sizeof(ret_handle->text), "%s", into);
    }
    cli_bar_free(part.bar);
    return code;
}

int
cli_put(cli *self)
{
    const char *path = self->arguments[0];
    tutti_client *client = NULL;
    npy_array array = {0};
    tutti_handle handle;
    tutti_dtype dtype;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!read_dtype(self, &dtype) || !cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    if (cli_value(self, "into") != NULL && cli_value(self, "name") != NULL) {
        return cli_usage(
            self, "--into names a tensor that exists, --name a new one: give only one of them");
    }
    if (safetensors_is(path)) {
        return cli_put_safetensors(self, path);
    }
    code = cli_refuse_pickle(path, &err);
    if (code == TUTTI_OK) {
        code = npy_open(path, dtype, &array, &err);
    }
    if (code == TUTTI_OK) {
        code = cli_connect(self, cli_value(self, "into"), &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_set_device(client, cli_value(self, "device"), &err);
    }
    if (code == TUTTI_OK) {
        code = put_array(self, client, path, &array, &handle, &err);
    }
    if (code == TUTTI_OK) {
        json_t *document = json_handle(&handle);

        (void)json_object_set_new(document, "rank", json_integer(tutti_whoami(client)->rank));
        if (!cli_print_json(self, document)) {
            cli_say_tensor(self, &handle);
        }
    }
    tutti_close(client);
    npy_close(&array);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, path, &err);
}

/* ------------------------------------------------------------------------------ get */

static tutti_code
get_into_file(cli *self, tutti_client *client, const char *handle, const tutti_spec *spec,
              const char *path, tutti_error *err)
{
    npy_output output = {0};
    cli_bar_part part;
    tutti_transfer transfer;
    tutti_code code = npy_create(path, spec, &output, err);

    if (code != TUTTI_OK) {
        return code;
    }
    part = (cli_bar_part){.bar = cli_bar_new(self, handle, output.bytes)};
    tutti_transfer_init(&transfer);
    transfer.on_progress = cli_bar_moved;
    transfer.arg = &part;
    code = tutti_tensor_read(client, handle, output.data, output.bytes, &transfer, err);
    cli_bar_free(part.bar);
    if (code != TUTTI_OK) {
        npy_discard(&output);
        return code;
    }
    return npy_commit(&output, err);
}

/*
 * What the tensor is. This does not wait: the file needs the shape, and where an op still makes
 * the tensor and the shape is not known yet, that is an error. The data itself is waited for when
 * it is read.
 */
static tutti_code
find_spec(tutti_client *client, const char *handle, tutti_spec *ret_spec, tutti_error *err)
{
    tutti_tensor_info info;
    tutti_code code = tutti_tensor_stat(client, handle, &info, err);

    if (code == TUTTI_OK && info.failed) {
        *err = info.error;
        return info.error.code;
    }
    if (code == TUTTI_OK && !info.handle.known) {
        code = cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "the op that makes the tensor has not ended, so its shape is not known "
                        "yet: tutti wait");
    }
    if (code == TUTTI_OK) {
        *ret_spec = info.handle.spec;
    }
    return code;
}

/* The file is made with its whole size before a byte is read. */
int
cli_get(cli *self)
{
    const char *handle = self->arguments[0];
    const char *path = cli_value(self, "output");
    tutti_client *client = NULL;
    tutti_spec spec;
    char name[PATH_MAX];
    char shape[CLI_WORD_SIZE];
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    if (path == NULL) {
        return cli_usage(self, "no file: say -o FILE.npy, or -o - for standard output");
    }
    if (self->json && strcmp(path, "-") == 0) {
        return cli_usage(self, "--json and -o - both want standard output");
    }
    if (safetensors_is(path)) {
        return cli_get_safetensors(self, path);
    }
    if (self->argument_count > 1) {
        return cli_usage(self, "several tensors go into a .safetensors file alone, not %s", path);
    }
    code = cli_refuse_pickle(path, &err);
    if (code == TUTTI_OK) {
        code = cli_connect(self, handle, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = find_spec(client, handle, &spec, &err);
    }
    if (code == TUTTI_OK && !cli_name_file(path, tutti_whoami(client)->rank, name)) {
        code = cli_fail(&err, TUTTI_INVALID_ARGUMENT, "-o: a path of %d bytes or more", PATH_MAX);
    }
    path = name;
    if (code == TUTTI_OK) {
        code = get_into_file(self, client, handle, &spec, path, &err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        return cli_failed(self, handle, &err);
    }
    if (self->json) {
        json_t *document = json_pack("{s:s}", "file", path);

        cli_json_spec(document, &spec);
        (void)cli_print_json(self, document);
    } else if (strcmp(path, "-") != 0) {
        cli_say(self, "%s  %s%s", path, tutti_dtype_name(spec.dtype),
                cli_format_shape(&spec, shape));
    }
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ list, stat */

static const char *
state_word(const tutti_tensor_info *info)
{
    return info->failed ? "failed" : info->pending ? "pending" : "ready";
}

static json_t *
json_info(const tutti_tensor_info *info)
{
    json_t *object = json_handle(&info->handle);

    (void)json_object_set_new(object, "name", json_string(info->name));
    (void)json_object_set_new(object, "bytes", json_integer((json_int_t)info->bytes));
    (void)json_object_set_new(object, "state", json_string(state_word(info)));
    (void)json_object_set_new(object, "device", json_string(info->device));
    (void)json_object_set_new(object, "owner", json_string(info->owner));
    (void)json_object_set_new(object, "ephemeral", json_boolean(info->ephemeral));
    (void)json_object_set_new(object, "age_ms", json_integer((json_int_t)info->age_ms));
    if (info->failed) {
        (void)json_object_set_new(object, "error", cli_json_error(&info->error));
    }
    return object;
}

static cli_style
write_state(FILE *out, const json_t *row, const char *key)
{
    const char *state = cli_row_text(row, key);

    (void)fputs(state, out);
    return strcmp(state, "failed") == 0    ? CLI_RED
           : strcmp(state, "pending") == 0 ? CLI_YELLOW
                                           : CLI_PLAIN;
}

static cli_style
write_owner(FILE *out, const json_t *row, const char *key)
{
    const char *owner = json_string_value(json_object_get(row, key));

    if (owner != NULL && strcmp(owner, "unix:") == 0) {
        (void)fputs("local", out); /* a client of this host, without a token */
    } else {
        (void)cli_cell_value(out, row, key);
    }
    (void)fputs(json_is_true(json_object_get(row, "ephemeral")) ? " (ephemeral)" : "", out);
    return CLI_PLAIN;
}

/* The size of a tensor that an op still makes is not known. */
static cli_style
write_bytes(FILE *out, const json_t *row, const char *key)
{
    return json_object_get(row, "dtype") == NULL ? cli_cell_value(out, NULL, key)
                                                 : cli_cell_bytes(out, row, key);
}

static const cli_column tensor_columns[] = {
    {"HANDLE", "handle", NULL},
    {"NAME", "name", NULL},
    {"DTYPE", "dtype", NULL},
    {"SHAPE", "shape", cli_cell_shape},
    {">SIZE", "bytes", write_bytes},
    {"STATE", "state", write_state},
    {">AGE", "age_ms", cli_cell_age},
    {"OWNER", "owner", write_owner},
    {0},
};

int
cli_list(cli *self)
{
    tutti_client *client = NULL;
    tutti_tensor_info *infos = NULL;
    json_t *tensors = json_array();
    size_t count = 0;
    int64_t rank;
    tutti_error err;
    tutti_code code;
    size_t i;

    if (!cli_rank_option(self, &rank)) {
        json_decref(tensors);
        return CLI_USAGE;
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_tensor_list(client, &infos, &count, &err);
    }
    for (i = 0; i < count; i++) {
        (void)json_array_append_new(tensors, json_info(&infos[i]));
    }
    if (code == TUTTI_OK) {
        cli_print_result(self,
                         json_pack("{s:I, s:O}", "rank", (json_int_t)tutti_whoami(client)->rank,
                                   "tensors", tensors),
                         "tensors", tensor_columns);
    }
    json_decref(tensors);
    tutti_free(infos);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

int
cli_stat(cli *self)
{
    const char *handle = self->arguments[0];
    tutti_client *client = NULL;
    tutti_tensor_info info;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = cli_connect(self, handle, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_tensor_stat(client, handle, &info, &err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        return cli_failed(self, handle, &err);
    }
    cli_print_result(self, json_info(&info), NULL, tensor_columns);
    if (info.failed && !self->json) {
        cli_say(self, "%s", info.error.text);
    }
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ copy, delete */

int
cli_copy(cli *self)
{
    const char *handle = self->arguments[0];
    tutti_client *client = NULL;
    tutti_handle copy;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = cli_connect(self, handle, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_set_device(client, cli_value(self, "device"), &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tensor_copy(client, handle, cli_value(self, "into"), cli_value(self, "name"),
                                 &copy, &err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        return cli_failed(self, handle, &err);
    }
    if (!cli_print_json(self, json_handle(&copy))) {
        cli_say_tensor(self, &copy);
    }
    return CLI_FINE;
}

/*
 * Tensors may be on several ranks: each is deleted by the agent that its handle names. The first
 * failure ends it.
 */
int
cli_delete(cli *self)
{
    json_t *deleted = json_array();
    tutti_error err;
    tutti_code code = TUTTI_OK;
    int64_t rank;
    int i;

    if (!cli_rank_option(self, &rank)) {
        json_decref(deleted);
        return CLI_USAGE;
    }
    for (i = 0; i < self->argument_count && code == TUTTI_OK; i++) {
        tutti_client *client = NULL;

        code = cli_connect(self, self->arguments[i], &client, &err);
        if (code == TUTTI_OK) {
            code = tutti_tensor_delete(client, self->arguments[i], &err);
        }
        if (code == TUTTI_OK) {
            (void)json_array_append_new(deleted, json_string(self->arguments[i]));
        }
        tutti_close(client);
    }
    if (code != TUTTI_OK) {
        json_decref(deleted);
        return cli_failed(self, self->arguments[i - 1], &err);
    }
    (void)cli_print_json(self, json_pack("{s:o}", "deleted", deleted));
    return CLI_FINE;
}
