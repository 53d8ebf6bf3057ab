/*
 * One op on all ranks of a group at once. Inputs are files, which are uploaded first, or a name
 * that all ranks have. What was made only for the op is deleted afterwards, also when it failed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/collective/collective.h"
#include "client/cli/collective/collective_run.h"
#include "client/cli/connect/connect.h"
#include "client/cli/npy/npy.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"

/* ------------------------------------------------------------------------------ all ranks */

/* By its name only: a tensor's name may not be told otherwise from a file that is missing. */
static bool
is_file(const char *argument)
{
    const size_t size = strlen(argument);

    return size > 4 && strcmp(argument + size - 4, ".npy") == 0;
}

/* Ranks that give something: all, or the root alone. */
static bool
has_output(const collective_run *run, uint32_t index)
{
    return !run->what->from_root || index == run->root;
}

/*
 * The group rank of the root, also when it was given as a rank of the job. world.count: it is not
 * in the group, which the op will say.
 */
static uint32_t
find_root(const collective_run *run)
{
    const uint32_t root = (uint32_t)run->what->op.root;
    uint32_t i = 0;

    if (!run->what->op.global) {
        return root;
    }
    while (i < run->world.count && run->world.ranks[i] != root) {
        i++;
    }
    return i;
}

static void
put_outputs_text(char ret[TUTTI_NAME_MAX + 1], const char *text)
{
    (void)snprintf(ret, TUTTI_NAME_MAX + 1, "%s", text);
}

/* A pattern that no file fits: the shell hands it to us as it stands. NULL = all fit. */
static const char *
find_pattern(const cli *tool)
{
    int i;

    for (i = 0; i < tool->argument_count; i++) {
        if (strpbrk(tool->arguments[i], "*?[") != NULL && access(tool->arguments[i], F_OK) != 0) {
            return tool->arguments[i];
        }
    }
    return NULL;
}

/* Files are opened before anything is sent, so a bad one costs no upload. */
static tutti_code
open_files(collective_run *run, tutti_error *err)
{
    const cli *tool = run->what->self;
    const uint32_t wanted = run->what->from_root ? 1 : run->world.count;
    tutti_code code = TUTTI_OK;
    tutti_error inner;
    uint32_t i;

    if (find_pattern(tool) != NULL) {
        return cli_fail(err, TUTTI_NOT_FOUND, "no file matches %.200s", find_pattern(tool));
    }
    if ((uint32_t)tool->argument_count != wanted) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%d file%s for %" PRIu32 " ranks: need %s",
                        tool->argument_count, tool->argument_count == 1 ? "" : "s",
                        run->world.count, run->what->from_root ? "the root's alone" : "one each");
    }
    for (i = 0; i < run->world.count && code == TUTTI_OK; i++) {
        const char *path = tool->arguments[wanted == 1 ? 0 : i];

        if (has_output(run, i)) {
            code = npy_open(path, TUTTI_DTYPE_NONE, &run->ranks[i].array, &inner);
            run->spec = run->ranks[i].array.spec;
        }
        if (code != TUTTI_OK) {
            code = cli_fail(err, code, "%.200s: %.800s", path, inner.text);
        }
    }
    return code;
}

/* For broadcast the root's tensor is looked at: the others need its shape, to make theirs. */
static tutti_code
name_inputs(collective_run *run, tutti_error *err)
{
    const cli *tool = run->what->self;
    tutti_tensor_info info;
    tutti_code code;
    uint32_t i;

    if (tool->argument_count != 1 || strlen(tool->arguments[0]) > TUTTI_NAME_MAX) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "give one .npy file for each rank, or the name of a tensor on all ranks");
    }
    for (i = 0; i < run->world.count; i++) {
        if (has_output(run, i)) {
            put_outputs_text(run->ranks[i].input, tool->arguments[0]);
        }
    }
    if (run->what->fn != tutti_broadcast || run->root >= run->world.count) {
        return TUTTI_OK;
    }
    code = tutti_tensor_stat(run->world.clients[run->root], tool->arguments[0], &info, err);
    if (code == TUTTI_OK) {
        run->spec = info.handle.spec;
        /* What has a name on the root has it everywhere afterwards. */
        run->label = run->label == NULL && info.handle.known && info.name[0] != '\0'
                         ? tool->arguments[0]
                         : run->label;
    }
    return code;
}

/* The name's tensor on a rank that receives: what is called so already is written into. */
static tutti_code
make_labelled(collective_run *run, collective_rank *rank, tutti_client *client, tutti_error *err)
{
    tutti_handle handle;
    tutti_code code = tutti_tensor_create(client, &run->spec, run->label, &handle, err);

    rank->created = code == TUTTI_OK;
    if (code == TUTTI_OK || code == TUTTI_ALREADY_EXISTS) {
        put_outputs_text(rank->output, run->label);
        return TUTTI_OK;
    }
    return code;
}

/* Before the op: everything that one rank needs for it. */
static tutti_code
prepare_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    collective_run *run = arg;
    collective_rank *rank = &run->ranks[index];
    cli_bar_part part = {.bar = run->bar};
    tutti_transfer transfer;
    tutti_handle handle;
    tutti_code code;

    if (!has_output(run, index) && run->label != NULL) {
        return make_labelled(run, rank, client, err);
    }
    if (rank->array.spec.dtype == TUTTI_DTYPE_NONE) {
        return TUTTI_OK;
    }
    tutti_transfer_init(&transfer);
    transfer.on_progress = cli_bar_moved;
    transfer.arg = &part;
    code = tutti_tensor_put(client, &rank->array.spec, rank->array.data,
                            run->what->grows ? NULL : run->label, &transfer, &handle, err);
    if (code == TUTTI_OK) {
        rank->uploaded = true;
        put_outputs_text(rank->input, handle.text);
    }
    return code;
}

/* A tensor that was uploaded for an op that keeps the shape is its own output. */
static tutti_code
call_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    collective_run *run = arg;
    collective_rank *rank = &run->ranks[index];
    tutti_op op = run->what->op;

    op.input = rank->input[0] != '\0' ? rank->input : NULL;
    op.output = rank->output[0] != '\0' ? rank->output : NULL;
    if (rank->uploaded && !run->what->grows) {
        op.output = rank->input; /* one tensor is enough */
    }
    (void)collective_set_splits(run->what, index, &op, NULL); /* there are as many: see run_op */
    return run->what->fn(client, &op, &rank->result, err);
}

/* What was made for an op that failed, or whose result is a tensor of its own. */
static tutti_code
clean_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const collective_rank *rank = &((const collective_run *)arg)->ranks[index];
    tutti_code code = TUTTI_OK;

    if (rank->uploaded) {
        code = tutti_tensor_delete(client, rank->input, err);
    }
    return rank->created ? tutti_tensor_delete(client, rank->output, err) : code;
}

static tutti_code
delete_result(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const tutti_op_result *result = &((const collective_run *)arg)->ranks[index].result;

    return result->output.text[0] != '\0' ? tutti_tensor_delete(client, result->output.text, err)
                                          : TUTTI_OK;
}

/* One bar for all uploads together. */
static tutti_code
prepare_all(collective_run *run, tutti_error *err)
{
    uint64_t bytes = 0;
    tutti_code code;
    uint32_t i;

    for (i = 0; i < run->world.count; i++) {
        bytes += run->ranks[i].array.bytes;
    }
    run->bar = cli_bar_new(run->what->self, "uploading", bytes);
    code = cli_all_ranks_run(&run->world, prepare_one, run, err);
    cli_bar_free(run->bar);
    return code;
}

/* With the world open. What was made for the op alone is deleted, whatever happens. */
static tutti_code
run_op(collective_run *run, tutti_error *err)
{
    const cli *tool = run->what->self;
    const char *path = cli_has_option(tool, "output") ? cli_value(tool, "output") : NULL;
    tutti_error ignored;
    tutti_code code = TUTTI_OK;

    if (run->what->splits != NULL && run->what->split_count != run->world.count) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "--splits has %zu rows for %" PRIu32 " ranks",
                        run->what->split_count, run->world.count);
    }
    run->label = cli_has_option(tool, "name") ? cli_value(tool, "name") : NULL;
    if (tool->argument_count > 0) {
        code = is_file(tool->arguments[0]) ? open_files(run, err) : name_inputs(run, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    /* before the uploads, as it can fail */
    code = collective_catch_up(&run->world, run->what->op.group, err);
    if (code == TUTTI_OK) {
        code = prepare_all(run, err);
    }
    if (code == TUTTI_OK) {
        code = cli_all_ranks_run(&run->world, call_one, run, err);
    }
    if (code != TUTTI_OK || run->what->grows) {
        (void)cli_all_ranks_run(&run->world, clean_one, run, &ignored);
    }
    if (code == TUTTI_OK && path != NULL) {
        code = collective_save(run, path, err);
        (void)cli_all_ranks_run(&run->world, delete_result, run, &ignored);
    }
    if (code == TUTTI_OK) {
        collective_print(run, path);
    }
    return code;
}

int
collective_on_all(collective *self)
{
    collective_run run = {.what = self};
    tutti_error err;
    tutti_code code = cli_all_ranks_open(self->self, self->op.group, &run.world, &err);
    uint32_t i;

    if (code == TUTTI_OK) {
        run.ranks = calloc(run.world.count, sizeof(*run.ranks));
        if (run.ranks == NULL) {
            abort();
        }
        run.root = find_root(&run);
        code = run_op(&run, &err);
    }
    for (i = 0; i < run.world.count && run.ranks != NULL; i++) {
        npy_close(&run.ranks[i].array);
    }
    free(run.ranks);
    cli_all_ranks_close(&run.world);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self->self, NULL, &err);
}
