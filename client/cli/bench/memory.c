/* What a row's calls work on: tensors in the agents, or memory of ours. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/cli/bench/bench.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"

/* How much of a row's bytes one rank has. Roles of the root are in the table of ops. */
static uint64_t
share_of(const bench_run *run, bench_share share, uint32_t index)
{
    switch (share) {
    case BENCH_WHOLE:
        return run->bytes;
    case BENCH_PART:
        return run->part * tutti_dtype_bytes(run->plan->dtype);
    case BENCH_WHOLE_AT_ROOT:
        return index == (uint32_t)run->plan->root ? run->bytes : 0;
    default:
        return 0;
    }
}

/* No bytes means no tensor, and the handle stays "". */
static tutti_code
create_memory(const bench_run *run, tutti_client *client, uint64_t bytes,
              char ret[TUTTI_HANDLE_MAX + 1], tutti_error *err)
{
    const tutti_dtype dtype = run->plan->dtype;
    const tutti_spec spec = {dtype, 1, {(int64_t)(bytes / tutti_dtype_bytes(dtype))}};
    tutti_handle handle;
    tutti_code code = TUTTI_OK;

    if (bytes > 0) {
        code = tutti_tensor_create(client, &spec, NULL, &handle, err);
    }
    if (bytes > 0 && code == TUTTI_OK) {
        (void)snprintf(ret, TUTTI_HANDLE_MAX + 1, "%s", handle.text);
    }
    return code;
}

/* [out] ret_data  NULL for no bytes */
static tutti_code
allocate_memory(uint64_t bytes, void **ret_data, tutti_error *err)
{
    *ret_data = bytes == 0 ? NULL : calloc(1, bytes);
    return bytes == 0 || *ret_data != NULL
               ? TUTTI_OK
               : cli_fail(err, TUTTI_RESOURCE_EXHAUSTED,
                          "no memory for %" PRIu64 " bytes of --inline: give a smaller --end",
                          bytes);
}

/* The mapping and its bytes; a copy where there can be none, which libtutti says once. */
static tutti_code
map_memory(tutti_client *client, const char *handle, tutti_view **ret_view, void **ret_data,
           tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (handle[0] != '\0') {
        code = tutti_tensor_map(client, handle, TUTTI_MAP_WRITE | TUTTI_MAP_OR_COPY, ret_view, err);
    }
    if (handle[0] != '\0' && code == TUTTI_OK) {
        *ret_data = tutti_view_data(*ret_view);
    }
    return code;
}

static tutti_code
map_both(tutti_client *client, bench_rank *rank, tutti_error *err)
{
    const tutti_code code = map_memory(client, rank->input, &rank->in_view, &rank->in_data, err);

    return code == TUTTI_OK
               ? map_memory(client, rank->output, &rank->out_view, &rank->out_data, err)
               : code;
}

/*
 * Runs on the rank's own thread. In place there is no memory for the result, as it goes into that
 * of the input.
 */
static tutti_code
make_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    bench_run *run = arg;
    bench_rank *rank = &run->ranks[index];
    const bool shared = run->in_place && rank->in_bytes > 0;
    const uint64_t out_bytes = shared ? 0 : rank->out_bytes;
    tutti_code code;

    if (run->plan->way == BENCH_INLINE) {
        code = allocate_memory(rank->in_bytes, &rank->in_data, err);
        return code == TUTTI_OK ? allocate_memory(out_bytes, &rank->out_data, err) : code;
    }
    code = tutti_set_device(client, run->plan->device, err);
    if (code == TUTTI_OK) {
        code = create_memory(run, client, rank->in_bytes, rank->input, err);
    }
    if (code == TUTTI_OK) {
        code = create_memory(run, client, out_bytes, rank->output, err);
    }
    return code == TUTTI_OK && run->plan->way == BENCH_SHARE ? map_both(client, rank, err) : code;
}

/* Said once per run: what is measured is then a copy, and not what --share asks for. */
static void
say_copied(bench_run *run)
{
    const bench_rank *rank = &run->ranks[0];
    const tutti_view *view = rank->in_view != NULL ? rank->in_view : rank->out_view;

    if (view == NULL || tutti_view_is_shared(view) || run->said_copied) {
        return;
    }
    run->said_copied = true;
    (void)fprintf(
        run->self->err,
        "tutti: bench: --share: tensors could not be mapped, so their data is copied: %s\n",
        tutti_view_why(view)->text);
}

/* Times are kept for each call, so their number decides how much memory this needs. */
tutti_code
bench_memory_make(bench_run *run, tutti_error *err)
{
    const bench_op *op = run->plan->op;
    const size_t times = (size_t)run->plan->iterations;
    tutti_code code;
    uint32_t i;

    for (i = 0; i < run->world.count; i++) {
        bench_rank *rank = &run->ranks[i];

        *rank = (bench_rank){.in_bytes = share_of(run, op->gives, i),
                             .out_bytes = share_of(run, op->gets, i),
                             .took_us = calloc(times, sizeof(*rank->took_us))};
        if (rank->took_us == NULL) {
            abort();
        }
    }
    code = cli_all_ranks_run(&run->world, make_one, run, err);
    if (code == TUTTI_OK) {
        say_copied(run);
    }
    return code;
}

/* Both, whatever becomes of the first. */
static tutti_code
forget_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const bench_rank *rank = &((const bench_run *)arg)->ranks[index];

    if (rank->input[0] != '\0') {
        (void)tutti_tensor_delete(client, rank->input, err);
    }
    if (rank->output[0] != '\0') {
        (void)tutti_tensor_delete(client, rank->output, err);
    }
    return TUTTI_OK;
}

/*
 * Good for any state, also after only some ranks got their memory. Views go first, as they hold
 * their tensors.
 */
void
bench_memory_forget(bench_run *run)
{
    tutti_error ignored;
    uint32_t i;

    for (i = 0; i < run->world.count; i++) {
        tutti_tensor_unmap(run->ranks[i].in_view);
        tutti_tensor_unmap(run->ranks[i].out_view);
    }
    (void)cli_all_ranks_run(&run->world, forget_one, run, &ignored);
    for (i = 0; i < run->world.count; i++) {
        if (run->plan->way == BENCH_INLINE) {
            free(run->ranks[i].in_data);
            free(run->ranks[i].out_data);
        }
        free(run->ranks[i].took_us);
        run->ranks[i] = (bench_rank){0};
    }
}
