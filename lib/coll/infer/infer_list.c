/*
 * What lists of tensors come to: coalesced ops, and forms in which each rank gets a list. Pure, any
 * thread. Results are [tensor][rank]; a list of the root is checked by its receivers too, as it
 * comes from another process.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "coll/infer/infer.h"
#include "coll/infer/signature.h"

uint32_t
tutti_coll_parts(const tutti_coll_args *args)
{
    return args->coalesced ? args->list_count : 1;
}

bool
tutti_coll_makes_list(const tutti_coll_args *args)
{
    return args->coalesced || tutti_signature_is_open(args);
}

static tutti_code
fail_unlike(const char *reason, const tutti_coll_args *args, uint32_t i, tutti_error *err)
{
    char words[2 * 200];
    tutti_text text = tutti_text_in(words, sizeof(words));

    tutti_spec_describe(&args->list[i].spec, &text);
    tutti_text_add(&text, ", tensor 0 ");
    tutti_spec_describe(&args->list[0].spec, &text);
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, reason,
                          "tensor %" PRIu32 " of the list is %s", i, words);
}

/* A tensor for each rank, of one data type; for a scatter of one shape. */
static tutti_code
check_list(const tutti_coll_args *args, uint32_t size, tutti_error *err)
{
    uint32_t i;

    if (args->list_count != size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                              "%" PRIu32 " tensors for %" PRIu32
                              " ranks: give a list of one for each",
                              args->list_count, size);
    }
    for (i = 1; i < size; i++) {
        if (args->list[i].spec.dtype != args->list[0].spec.dtype) {
            return fail_unlike("DTYPE_MISMATCH", args, i, err);
        }
        if (args->kind == TUTTI_COLL_SCATTER &&
            !tutti_spec_same_shape(&args->list[i].spec, &args->list[0].spec)) {
            return fail_unlike("SHAPE_MISMATCH", args, i, err);
        }
    }
    return TUTTI_OK;
}

tutti_code
tutti_coll_infer_pick(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                      tutti_spec *ret_result, tutti_error *err)
{
    const bool learns = args->kind == TUTTI_COLL_SCATTER && group_rank != args->root;

    TUTTI_TRY(learns ? TUTTI_OK : check_list(args, size, err));

    *ret_result = args->list_count == size ? args->list[group_rank].spec : args->spec;
    return TUTTI_OK;
}

/* Tensors that each one of the list becomes here. */
static uint32_t
results_of_each(const tutti_coll_args *args, uint32_t size)
{
    return args->form == TUTTI_FORM_LIST ? size : 1;
}

static tutti_code
check_coalesced(const tutti_coll_args *args, uint32_t group_rank, tutti_error *err)
{
    const bool learns = tutti_coll_is_from_root(args->kind) && group_rank != args->root;

    if (args->coalesced && args->list_count == 0 && !learns) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "EMPTY_LIST",
                              "an empty list of tensors, need at least one");
    }
    if (args->coalesced && args->form == TUTTI_FORM_LIST && args->kind != TUTTI_COLL_ALL_GATHER &&
        args->kind != TUTTI_COLL_GATHER) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_FORM",
                              "form \"list\" takes one list with a tensor for each rank in this "
                              "op, not several such lists: call the op once for each list");
    }
    if (args->coalesced && (args->has_splits || args->root_splits != NULL)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                              "splits are for one tensor, but the call gives a list of tensors");
    }
    if (args->kind == TUTTI_COLL_ALL_TO_ALL && args->form == TUTTI_FORM_LIST && args->has_splits) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                              "splits are for one tensor, but the call gives a list with one "
                              "tensor for each rank: leave the splits out");
    }
    return TUTTI_OK;
}

/* What the i-th tensor of a coalesced op becomes, as if it were alone. */
static tutti_code
infer_one(const tutti_coll_args *args, uint32_t i, uint32_t size, uint32_t group_rank,
          tutti_spec *result, tutti_error *err)
{
    tutti_coll_args one = *args;

    one.coalesced = false;
    if (args->coalesced) {
        one.list_count = 0;
        one.list = NULL;
        one.spec = args->list[i].spec;
        one.axis = args->list[i].axis;
        one.has_spec = true;
    }
    if (args->form == TUTTI_FORM_LIST) { /* as it is given */
        one.form = TUTTI_FORM_FLAT;
        one.flat = NULL;
    }
    return tutti_coll_infer(&one, size, group_rank, result, err);
}

static tutti_code
infer_each(const tutti_coll_args *args, uint32_t size, uint32_t group_rank, tutti_spec *results,
           tutti_error *err)
{
    const uint32_t each = results_of_each(args, size);
    const uint32_t count = tutti_coll_parts(args);
    tutti_code code = TUTTI_OK;
    uint32_t i;
    uint32_t k;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        tutti_spec *result = &results[(size_t)i * each];

        code = infer_one(args, i, size, group_rank, result, err);
        for (k = 0; k < each && args->form == TUTTI_FORM_LIST; k++) {
            result[k] = args->coalesced ? args->list[i].spec : args->spec;
        }
    }
    return code;
}

static tutti_code
infer_all_to_all(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                 tutti_spec *results, tutti_error *err)
{
    uint32_t i;

    TUTTI_TRY(check_list(args, size, err));

    for (i = 0; i < size; i++) {
        results[i] = args->list[group_rank].spec;
    }
    return TUTTI_OK;
}

tutti_code
tutti_coll_infer_list(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                      tutti_spec **ret_results, uint32_t *ret_count, tutti_error *err)
{
    const bool swaps = args->kind == TUTTI_COLL_ALL_TO_ALL && args->form == TUTTI_FORM_LIST;
    const uint32_t count = tutti_coll_parts(args) * results_of_each(args, size);
    tutti_spec *results = calloc((size_t)count + 1, sizeof(*results));
    tutti_code code = check_coalesced(args, group_rank, err);

    if (results == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the shapes of a list");
    }
    if (code == TUTTI_OK) {
        code = swaps ? infer_all_to_all(args, size, group_rank, results, err)
                     : infer_each(args, size, group_rank, results, err);
    }
    if (code != TUTTI_OK) {
        free(results);
        return code;
    }
    *ret_results = results;
    *ret_count = tutti_coll_is_to_root(args->kind) && group_rank != args->root ? 0 : count;
    return TUTTI_OK;
}
