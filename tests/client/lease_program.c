/*
 * Tensors under a lease, for tests/system/test_lease_program.py. Each line of its input is a word:
 *
 *     open     a lease
 *     small NAME, large NAME    make a tensor of this name, by a message or by a stream
 *     alloc                     memory of the arena
 *     result, queue             make one without a name, as the result of an op on "x"
 *     group NAME, split NAME    make an ephemeral group of all ranks
 *     close    the lease
 *
 * It answers each with "ok", or with the code and reason of what failed. At the end of its input it
 * ends without closing anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/tutti.h"

#define LARGE (1 << 21) /* floats: more than a message takes */

static float data[LARGE];

static tutti_code
put(tutti_client *client, const char *name, int64_t count, tutti_error *err)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {count}};
    tutti_handle handle;

    return tutti_tensor_put(client, &spec, data, name, NULL, &handle, err);
}

/* The result of an op on "x". */
static tutti_code
reduce(tutti_client *client, tutti_error *err)
{
    tutti_op op;

    tutti_op_init(&op);
    op.input = "x";
    return tutti_all_reduce(client, &op, NULL, err);
}

static tutti_code
reduce_queued(tutti_client *client, tutti_error *err)
{
    tutti_queue_completion done = {0};
    tutti_queue *queue = NULL;
    tutti_error ignored;
    tutti_code code = tutti_queue_open(client, NULL, &queue, err);
    tutti_op op;

    if (code != TUTTI_OK) {
        return code;
    }
    tutti_op_init(&op);
    op.input = "x";
    code = tutti_queue_submit(queue, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, err);
    if (code == TUTTI_OK) {
        code = tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, err);
    }
    if (code == TUTTI_OK && done.error.code != TUTTI_OK) {
        *err = done.error;
        code = done.error.code;
    }
    (void)tutti_queue_close(queue, &ignored);
    return code;
}

static tutti_code
make_group(tutti_client *client, const char *name, bool split, tutti_error *err)
{
    static const uint32_t all[1] = {0};
    tutti_group_options options;
    tutti_split one;

    tutti_group_options_init(&options);
    options.name = name;
    options.ephemeral = true;
    if (split) {
        tutti_split_init(&one);
        one.kind = TUTTI_SPLIT_COUNT;
        one.number = 1;
        return tutti_group_split(client, &options, &one, NULL, NULL, err);
    }
    return tutti_group_create_with(client, &options, all, 1, NULL, err);
}

static tutti_code
obey(tutti_client *client, tutti_lease **lease, const char *word, const char *name,
     tutti_error *err)
{
    void *memory;

    if (strcmp(word, "open") == 0) {
        return tutti_lease_open(client, lease, err);
    }
    if (strcmp(word, "close") == 0) {
        tutti_lease_close(*lease);
        *lease = NULL;
        return TUTTI_OK;
    }
    if (strcmp(word, "alloc") == 0) {
        return tutti_alloc(client, sizeof(data), &memory, err);
    }
    if (strcmp(word, "result") == 0) {
        return reduce(client, err);
    }
    if (strcmp(word, "queue") == 0) {
        return reduce_queued(client, err);
    }
    if (strcmp(word, "group") == 0 || strcmp(word, "split") == 0) {
        return make_group(client, name, strcmp(word, "split") == 0, err);
    }
    return put(client, name, strcmp(word, "large") == 0 ? LARGE : 3, err);
}

int
main(void)
{
    tutti_client *client = NULL;
    tutti_lease *lease = NULL;
    char word[16] = "";
    char name[16] = "";
    char line[64];
    tutti_error err;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (tutti_connect(NULL, &client, &err) != TUTTI_OK) {
        printf("%s\n", err.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL && sscanf(line, "%15s %15s", word, name) > 0) {
        if (obey(client, &lease, word, name, &err) == TUTTI_OK) {
            printf("ok\n");
        } else {
            printf("%s %s\n", tutti_code_name(err.code), err.reason);
        }
    }
    return 0; /* as a program that was killed */
}
