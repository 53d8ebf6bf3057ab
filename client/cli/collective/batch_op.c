/*
 * What the members of a batch's line say of an op. Tables say which member goes where in a
 * tutti_op, so that a new member is one more row. Texts are borrowed from the JSON, which must
 * live as long; lists of numbers are copied.
 */
#include "client/cli/collective/batch.h"
#include "client/cli/util/output.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum member_kind {
    MEMBER_TEXT,
    MEMBER_INT,   /* int32_t */
    MEMBER_COUNT, /* uint32_t */
    MEMBER_LONG,  /* uint64_t */
    MEMBER_FLAG,
    MEMBER_REAL,
} member_kind;

static const struct member {
    const char *name;
    member_kind kind;
    size_t at;
} members[] = {
    {"input", MEMBER_TEXT, offsetof(tutti_op, input)},
    {"output", MEMBER_TEXT, offsetof(tutti_op, output)},
    {"group", MEMBER_TEXT, offsetof(tutti_op, group)},
    {"factor", MEMBER_REAL, offsetof(tutti_op, factor)},
    {"root", MEMBER_INT, offsetof(tutti_op, root)},
    {"peer", MEMBER_INT, offsetof(tutti_op, peer)},
    {"global", MEMBER_FLAG, offsetof(tutti_op, global)},
    {"tag", MEMBER_COUNT, offsetof(tutti_op, tag)},
    {"axis", MEMBER_INT, offsetof(tutti_op, axis)},
    {"split_axis", MEMBER_INT, offsetof(tutti_op, split_axis)},
    {"concat_axis", MEMBER_INT, offsetof(tutti_op, concat_axis)},
    {"async", MEMBER_FLAG, offsetof(tutti_op, async)},
    {"coalesced", MEMBER_FLAG, offsetof(tutti_op, coalesced)},
    {"monitored", MEMBER_FLAG, offsetof(tutti_op, monitored)},
    {"group_offset", MEMBER_INT, offsetof(tutti_op, group_offset)},
    {"group_count", MEMBER_COUNT, offsetof(tutti_op, group_count)},
    {"timeout_ms", MEMBER_COUNT, offsetof(tutti_op, timeout_ms)},
    {"step", MEMBER_LONG, offsetof(tutti_op, step)},
};

static const struct list {
    const char *name;
    size_t at;
    size_t count_at;
} lists[4] = {
    {"shape", offsetof(tutti_op, out_shape), offsetof(tutti_op, out_shape_count)},
    {"input_splits", offsetof(tutti_op, input_splits), offsetof(tutti_op, input_split_count)},
    {"output_splits", offsetof(tutti_op, output_splits), offsetof(tutti_op, output_split_count)},
    {"splits", offsetof(tutti_op, splits), offsetof(tutti_op, split_count)},
};

static const struct list texts[2] = {
    {"inputs", offsetof(tutti_op, inputs), offsetof(tutti_op, input_count)},
    {"outputs", offsetof(tutti_op, outputs), offsetof(tutti_op, output_count)},
};

static const struct list ranks[2] = {
    {"to", offsetof(tutti_op, src_dst), offsetof(tutti_op, src_dst_count)},
    {"axes", offsetof(tutti_op, axes), offsetof(tutti_op, axis_count)},
};

static tutti_code
refuse_batch_op(const char *name, const char *need, tutti_error *err)
{
    return cli_fail(err, TUTTI_INVALID_ARGUMENT, "member \"%.60s\": need %s", name, need);
}

/* A number that does not fit its member is refused, and not cut. */
static tutti_code
read_integer(const json_t *value, const struct member *member, void *at, tutti_error *err)
{
    const json_int_t number = json_integer_value(value);

    if (member->kind == MEMBER_INT && json_is_integer(value) && number >= INT32_MIN &&
        number <= INT32_MAX) {
        *(int32_t *)at = (int32_t)number;
        return TUTTI_OK;
    }
    if (member->kind == MEMBER_COUNT && json_is_integer(value) && number >= 0 &&
        number <= UINT32_MAX) {
        *(uint32_t *)at = (uint32_t)number;
        return TUTTI_OK;
    }
    if (member->kind == MEMBER_LONG && json_is_integer(value) && number >= 0) {
        *(uint64_t *)at = (uint64_t)number;
        return TUTTI_OK;
    }
    return refuse_batch_op(
        member->name, member->kind == MEMBER_INT ? "a number of 32 bits" : "a number of at least 0",
        err);
}

static tutti_code
read_member(const json_t *value, const struct member *member, tutti_op *op, tutti_error *err)
{
    void *at = (char *)op + member->at;

    switch (member->kind) {
    case MEMBER_TEXT:
        *(const char **)at = json_string_value(value);
        return json_is_string(value) ? TUTTI_OK : refuse_batch_op(member->name, "a text", err);
    case MEMBER_FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value) ? TUTTI_OK
                                      : refuse_batch_op(member->name, "true or false", err);
    case MEMBER_REAL:
        *(double *)at = json_number_value(value);
        return json_is_number(value) ? TUTTI_OK : refuse_batch_op(member->name, "a number", err);
    default:
        return read_integer(value, member, at, err);
    }
}

/* Numbers of an array, in memory of their own; NULL = it is none. */
static int64_t *
read_numbers(const json_t *value)
{
    const size_t count = json_array_size(value);
    int64_t *numbers;
    size_t i;

    if (!json_is_array(value) || count > BATCH_NUMBERS_MAX) {
        return NULL;
    }
    numbers = calloc(count + 1, sizeof(*numbers));
    if (numbers == NULL) {
        abort();
    }
    for (i = 0; i < count; i++) {
        if (!json_is_integer(json_array_get(value, i))) {
            free(numbers);
            return NULL;
        }
        numbers[i] = json_integer_value(json_array_get(value, i));
    }
    return numbers;
}

/* [out, owned] ret_owned  in batch_op, which frees it; the op only borrows it */
static tutti_code
read_list(const json_t *value, const struct list *list, int64_t **ret_owned, tutti_op *op,
          tutti_error *err)
{
    *ret_owned = read_numbers(value);
    if (*ret_owned == NULL) {
        return refuse_batch_op(list->name, "a list of numbers", err);
    }
    *(const int64_t **)(void *)((char *)op + list->at) = *ret_owned;
    *(size_t *)(void *)((char *)op + list->count_at) = json_array_size(value);
    return TUTTI_OK;
}

/* Small numbers of an array; what does not fit is refused by the agent, as -1. */
static tutti_code
read_batch_op_ranks(const json_t *value, const struct list *list, int32_t **ret_owned, tutti_op *op,
                    tutti_error *err)
{
    int64_t *numbers = read_numbers(value);
    const size_t count = json_array_size(value);
    int32_t *small = numbers == NULL ? NULL : calloc(count + 1, sizeof(*small));
    size_t i;

    for (i = 0; i < count && small != NULL; i++) {
        small[i] = numbers[i] > INT32_MAX || numbers[i] < INT32_MIN ? -1 : (int32_t)numbers[i];
    }
    free(numbers);
    *ret_owned = small;
    *(const int32_t **)(void *)((char *)op + list->at) = small;
    *(size_t *)(void *)((char *)op + list->count_at) = count;
    return small != NULL ? TUTTI_OK : refuse_batch_op(list->name, "a list of numbers", err);
}

/* Texts of an array, borrowed from it. */
static tutti_code
read_texts(const json_t *value, const struct list *list, const char ***ret_owned, tutti_op *op,
           tutti_error *err)
{
    const size_t count = json_array_size(value);
    const char **words = calloc(count + 1, sizeof(char *));
    bool good = json_is_array(value) && words != NULL;
    size_t i;

    for (i = 0; i < count && good; i++) {
        words[i] = json_string_value(json_array_get(value, i));
        good = words[i] != NULL;
    }
    *ret_owned = words;
    *(const char *const **)(void *)((char *)op + list->at) = words;
    *(size_t *)(void *)((char *)op + list->count_at) = count;
    return good ? TUTTI_OK : refuse_batch_op(list->name, "a list of texts", err);
}

/* The members whose words stand for a number. */
static tutti_code
read_word(const char *name, const json_t *value, tutti_op *op, tutti_error *err)
{
    static const char *const forms[] = {"concat", "stack", "list", "flat"};
    static const tutti_form numbers[] = {TUTTI_FORM_CONCAT, TUTTI_FORM_STACK, TUTTI_FORM_LIST,
                                         TUTTI_FORM_FLAT};
    const char *word = json_string_value(value);
    size_t i;

    if (strcmp(name, "op") == 0) {
        op->reduce = word == NULL ? TUTTI_REDUCE_NONE : tutti_reduce_parse(word);
        return op->reduce != TUTTI_REDUCE_NONE ? TUTTI_OK
                                               : refuse_batch_op("op", "sum, max, ...", err);
    }
    for (i = 0; word != NULL && i < 4; i++) {
        if (strcmp(word, forms[i]) == 0) {
            op->form = numbers[i];
            return TUTTI_OK;
        }
    }
    return refuse_batch_op("form", "concat, stack, list or flat", err);
}

/* *ret_known: it is the name of a list. The same name twice: jansson keeps the last. */
static tutti_code
read_array(const char *name, const json_t *value, batch_op *ret, bool *ret_known, tutti_error *err)
{
    size_t i;

    *ret_known = true;
    for (i = 0; i < 4; i++) {
        if (strcmp(name, lists[i].name) == 0) {
            return read_list(value, &lists[i], &ret->lists[i], &ret->op, err);
        }
    }
    for (i = 0; i < 2; i++) {
        if (strcmp(name, texts[i].name) == 0) {
            return read_texts(value, &texts[i], &ret->texts[i], &ret->op, err);
        }
        if (strcmp(name, ranks[i].name) == 0) {
            return read_batch_op_ranks(value, &ranks[i], &ret->ranks[i], &ret->op, err);
        }
    }
    *ret_known = false;
    return TUTTI_OK;
}

/* A member that nobody knows is an error: it is nearly always one that was misspelt. */
static tutti_code
read_one_batch_op(const char *name, const json_t *value, batch_op *ret, tutti_error *err)
{
    bool known;
    tutti_code code;
    size_t i;

    for (i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (strcmp(name, members[i].name) == 0) {
            return read_member(value, &members[i], &ret->op, err);
        }
    }
    code = read_array(name, value, ret, &known, err);
    if (known) {
        return code;
    }
    if (strcmp(name, "op") == 0 || strcmp(name, "form") == 0) {
        return read_word(name, value, &ret->op, err);
    }
    if (strcmp(name, "user_meta") == 0) {
        ret->op.user_meta = json_string_value(value);
        ret->op.user_meta_size = json_string_length(value);
        return json_is_string(value) ? TUTTI_OK : refuse_batch_op(name, "a text", err);
    }
    return cli_fail(err, TUTTI_INVALID_ARGUMENT, "no op has a member \"%.60s\"", name);
}

tutti_code
batch_op_read(const json_t *line, batch_op *ret_op, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    const char *name;
    json_t *value;

    *ret_op = (batch_op){0};
    tutti_op_init(&ret_op->op);
    json_object_foreach((json_t *)(uintptr_t)line, name, value)
    {
        if (code == TUTTI_OK && strcmp(name, "call") != 0) {
            code = read_one_batch_op(name, value, ret_op, err);
        }
    }
    return code;
}

/* Good for an op that was only read in part. */
void
batch_op_fini(batch_op *op)
{
    size_t i;

    for (i = 0; i < 4; i++) {
        free(op->lists[i]);
    }
    for (i = 0; i < 2; i++) {
        free(op->ranks[i]);
        free((void *)(uintptr_t)op->texts[i]);
    }
}

const char *
batch_text(const json_t *line, const char *name)
{
    return json_string_value(json_object_get(line, name));
}

tutti_code
batch_check_members(const json_t *line, const char *const *names, tutti_error *err)
{
    const char *name;
    json_t *value;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)line, name, value)
    {
        for (i = 0; names[i] != NULL && strcmp(name, names[i]) != 0; i++) {
        }
        if (names[i] == NULL && strcmp(name, "call") != 0) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "this call has no member \"%.60s\"", name);
        }
        if (strcmp(name, "timeout_ms") == 0 ? !json_is_integer(value) : !json_is_string(value)) {
            return refuse_batch_op(name, json_is_string(value) ? "a number" : "a text", err);
        }
    }
    return TUTTI_OK;
}
