/* tutti put and get of .safetensors files: many tensors at once, all of them or none. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/safetensors/safetensors.h"
#include "client/cli/tensor/files.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

static bool
ends_with(const char *text, const char *ending)
{
    const size_t size = strlen(text);
    const size_t ending_size = strlen(ending);

    return size >= ending_size && strcmp(text + size - ending_size, ending) == 0;
}

tutti_code
cli_refuse_pickle(const char *path, tutti_error *err)
{
    if (!ends_with(path, ".pt") && !ends_with(path, ".pth")) {
        return TUTTI_OK;
    }
    return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                    "files of torch.save are Python's pickles: python3 -m tutti.torch put|get "
                    "FILE.pt takes them, by torch; this command takes .safetensors and .npy");
}

/* ------------------------------------------------------------------------------ put */

/* A bar counts from zero for each tensor. */
static void
begin_bar(cli *self, cli_bar_part *part, tutti_transfer *transfer, const char *name, uint64_t bytes)
{
    *part = (cli_bar_part){.bar = cli_bar_new(self, name, bytes)};
    tutti_transfer_init(transfer);
    transfer->on_progress = cli_bar_moved;
    transfer->arg = part;
}

/* Its name: that of the file, behind the prefix of --name. [out, owned] NULL = no memory */
static char *
name_tensor(const char *prefix, const char *name)
{
    char *text;

    return asprintf(&text, "%s%s%s", prefix == NULL ? "" : prefix, prefix == NULL ? "" : "/",
                    name) < 0
               ? NULL
               : text;
}

static tutti_code
put_entry(cli *self, tutti_client *client, const safetensors *file, const safetensors_entry *entry,
          tutti_handle *ret_handle, tutti_error *err)
{
    char *name = name_tensor(cli_value(self, "name"), entry->name);
    tutti_transfer transfer;
    cli_bar_part part;
    tutti_code code;

    if (name == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a name");
    }
    begin_bar(self, &part, &transfer, name, entry->bytes);
    code = tutti_tensor_put(client, &entry->spec, file->data + entry->offset, name, &transfer,
                            ret_handle, err);
    cli_bar_free(part.bar);
    free(name);
    return code;
}

/* After a failure none of them stays. */
static tutti_code
put_entries(cli *self, tutti_client *client, const safetensors *file, tutti_handle *handles,
            tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < file->count && code == TUTTI_OK; i++) {
        code = put_entry(self, client, file, &file->entries[i], &handles[i], err);
    }
    while (code != TUTTI_OK && --i > 0) {
        (void)tutti_tensor_delete(client, handles[i - 1].text, NULL);
    }
    return code;
}

static void
say_put(const cli *self, const safetensors *file, const tutti_handle *handles, uint32_t rank)
{
    const char *prefix = cli_value(self, "name");
    json_t *tensors = json_array();
    size_t i;

    for (i = 0; i < file->count; i++) {
        char *name = name_tensor(prefix, file->entries[i].name);
        json_t *object =
            json_pack("{s:s, s:s}", "handle", handles[i].text, "name", name == NULL ? "" : name);

        free(name);
        cli_json_spec(object, &handles[i].spec);
        (void)json_array_append_new(tensors, object);
    }
    if (!cli_print_json(self,
                        json_pack("{s:I, s:o}", "rank", (json_int_t)rank, "tensors", tensors))) {
        for (i = 0; i < file->count; i++) {
            cli_say_tensor(self, &handles[i]);
        }
    }
}

int
cli_put_safetensors(cli *self, const char *path)
{
    tutti_client *client = NULL;
    tutti_handle *handles = NULL;
    safetensors file = {0};
    tutti_error err;
    tutti_code code;

    if (cli_value(self, "into") != NULL || cli_value(self, "dtype") != NULL) {
        return cli_usage(self, "--into and --dtype are for a file of one tensor, not %s", path);
    }
    code = safetensors_open(path, &file, &err);
    if (code == TUTTI_OK) {
        handles = calloc(file.count + 1, sizeof(*handles));
        code = handles != NULL ? cli_connect(self, NULL, &client, &err)
                               : cli_fail(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory");
    }
    if (code == TUTTI_OK) {
        code = tutti_set_device(client, cli_value(self, "device"), &err);
    }
    if (code == TUTTI_OK) {
        code = put_entries(self, client, &file, handles, &err);
    }
    if (code == TUTTI_OK) {
        say_put(self, &file, handles, tutti_whoami(client)->rank);
    }
    tutti_close(client);
    free(handles);
    safetensors_close(&file);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, path, &err);
}

/* ------------------------------------------------------------------------------ get */

static tutti_code
find_entry(tutti_client *client, const char *name, safetensors_entry *entry, tutti_error *err)
{
    tutti_tensor_info info;
    tutti_code code = tutti_tensor_stat(client, name, &info, err);

    if (code == TUTTI_OK && info.failed) {
        *err = info.error;
        return info.error.code;
    }
    if (code == TUTTI_OK && !info.handle.known) {
        return cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "the op that makes \"%s\" has not ended, so its shape is not known yet: "
                        "tutti wait",
                        name);
    }
    if (code == TUTTI_OK) {
        *entry = (safetensors_entry){.name = name, .spec = info.handle.spec};
    }
    return code;
}

static tutti_code
read_tensors(cli *self, tutti_client *client, const safetensors_entry *entries, size_t count,
             const npy_output *output, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        tutti_transfer transfer;
        cli_bar_part part;

        begin_bar(self, &part, &transfer, entries[i].name, entries[i].bytes);
        code = tutti_tensor_read(client, entries[i].name, (char *)output->data + entries[i].offset,
                                 entries[i].bytes, &transfer, err);
        cli_bar_free(part.bar);
    }
    return code;
}

static tutti_code
get_entries(cli *self, tutti_client *client, const char *path, safetensors_entry *entries,
            tutti_error *err)
{
    const size_t count = (size_t)self->argument_count;
    npy_output output = {0};
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = find_entry(client, self->arguments[i], &entries[i], err);
    }
    if (code == TUTTI_OK) {
        code = safetensors_create(path, entries, count, &output, err);
    }
    if (code == TUTTI_OK) {
        code = read_tensors(self, client, entries, count, &output, err);
    }
    if (code != TUTTI_OK) {
        npy_discard(&output);
        return code;
    }
    return npy_commit(&output, err);
}

int
cli_get_safetensors(cli *self, const char *path)
{
    safetensors_entry *entries = calloc((size_t)self->argument_count, sizeof(*entries));
    tutti_client *client = NULL;
    char name[PATH_MAX];
    tutti_error err;
    tutti_code code = entries != NULL ? cli_connect(self, self->arguments[0], &client, &err)
                                      : cli_fail(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory");

    if (code == TUTTI_OK && !cli_name_file(path, tutti_whoami(client)->rank, name)) {
        code = cli_fail(&err, TUTTI_INVALID_ARGUMENT, "-o: a path of %d bytes or more", PATH_MAX);
    }
    if (code == TUTTI_OK) {
        code = get_entries(self, client, name, entries, &err);
    }
    tutti_close(client);
    free(entries);
    if (code != TUTTI_OK) {
        return cli_failed(self, path, &err);
    }
    if (!cli_print_json(self,
                        json_pack("{s:s, s:i}", "file", name, "tensors", self->argument_count))) {
        cli_say(self, "%s  %d tensors", name, self->argument_count);
    }
    return CLI_FINE;
}
