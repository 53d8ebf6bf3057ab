/* The results of an op on all ranks: into files, and in words. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "client/cli/collective/collective.h"
#include "client/cli/collective/collective_run.h"
#include "client/cli/npy/npy.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/values.h"

static bool
names_ranks(const char *path)
{
    return strstr(path, CLI_RANK_MARK) != NULL;
}

/* Does this rank have something that is to be saved? What is the same everywhere is saved once,
 * unless the name asks for a file of each rank. */
static bool
is_saved(const collective_run *run, uint32_t index, const char *path)
{
    switch (run->what->result) {
    case COLLECTIVE_AT_ROOT:
        return index == run->root;
    case COLLECTIVE_EACH:
        return true;
    default:
        return index == 0 || names_ranks(path);
    }
}

/* The file appears only when all of it is there. */
static tutti_code
save_one(const collective_run *run, uint32_t index, const char *path, tutti_error *err)
{
    const tutti_handle *handle = &run->ranks[index].result.output;
    npy_output output = {0};
    tutti_transfer transfer;
    cli_bar_part part;
    tutti_code code = npy_create(path, &handle->spec, &output, err);

    if (code != TUTTI_OK) {
        return code;
    }
    part = (cli_bar_part){.bar = cli_bar_new(run->what->self, path, output.bytes)};
    tutti_transfer_init(&transfer);
    transfer.on_progress = cli_bar_moved;
    transfer.arg = &part;
    code = tutti_tensor_read(run->world.clients[index], handle->text, output.data, output.bytes,
                             &transfer, err);
    cli_bar_free(part.bar);
    if (code != TUTTI_OK) {
        npy_discard(&output);
        return code;
    }
    return npy_commit(&output, err);
}

tutti_code
collective_save(const collective_run *run, const char *path, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    char name[PATH_MAX];
    uint32_t i;

    for (i = 0; i < run->world.count && code == TUTTI_OK; i++) {
        if (!is_saved(run, i, path)) {
            continue;
        }
        code = cli_name_file(path, i, name) ? save_one(run, i, name, err)
                                            : cli_fail(err, TUTTI_INVALID_ARGUMENT,
                                                       "-o: a path of %d bytes or more", PATH_MAX);
    }
    return code;
}

/* ------------------------------------------------------------------------------ words */

/* One rank's entry: a handle, or the file that has taken its place. */
static json_t *
json_saved_rank(const collective_run *run, uint32_t index, const char *path)
{
    json_t *one = collective_json_result(run->world.ranks[index], &run->ranks[index].result);
    char name[PATH_MAX];

    if (path != NULL) {
        (void)json_object_del(one, "handle"); /* it is gone */
    }
    if (path != NULL && names_ranks(path) && is_saved(run, index, path) &&
        cli_name_file(path, index, name)) {
        (void)json_object_set_new(one, "file", json_string(name));
    }
    return one;
}

/* "-" is standard output, which has the bytes and not words. */
static void
say_file(const collective_run *run, uint32_t index, const char *path)
{
    const tutti_spec *spec = &run->ranks[index].result.output.spec;
    char shape[CLI_WORD_SIZE];
    char name[PATH_MAX];

    if (is_saved(run, index, path) && cli_name_file(path, index, name) && strcmp(name, "-") != 0) {
        cli_say(run->what->self, "%s  %s%s", name, tutti_dtype_name(spec->dtype),
                cli_format_shape(spec, shape));
    }
}

void
collective_print(const collective_run *run, const char *path)
{
    const collective *what = run->what;
    json_t *results = json_array();
    json_t *document;
    uint32_t i;

    for (i = 0; i < run->world.count; i++) {
        (void)json_array_append_new(results, json_saved_rank(run, i, path));
    }
    document = collective_json(what, &run->ranks[0].result, results);
    if (path != NULL && !names_ranks(path)) {
        (void)json_object_set_new(document, "file", json_string(path));
    }
    if (cli_print_json(what->self, document)) {
        return;
    }
    for (i = 0; i < run->world.count; i++) {
        if (path != NULL) {
            say_file(run, i, path);
        } else {
            collective_say(what->self, &run->ranks[i].result);
        }
    }
}
