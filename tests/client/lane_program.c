/*
 * Ops of 8 bytes by libtutti, as its words on standard input ask for them:
 *
 *   ops N     N all-reduces with the other ranks; "ok", or the error
 *   wait S    one more, which ends after S seconds at the latest; "ok", or milliseconds, reason and text of the error
 *   many N    N further clients, of which each puts, stats and deletes one tensor; "ok"
 *   fork      an op in a child of fork: its reason
 *
 * Run by tests/system/test_lane.py.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tutti/tutti.h"

#define MANY_MAX 1000

static tutti_client *client;
static tutti_handle tensor;
static tutti_client *others[MANY_MAX];

static uint64_t
now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static tutti_code
reduce_once(uint32_t timeout_ms, tutti_error *err)
{
    tutti_op op;

    tutti_op_init(&op);
    op.input = tensor.text;
    op.output = tensor.text;
    op.reduce = TUTTI_REDUCE_MAX;
    op.timeout_ms = timeout_ms;
    return tutti_all_reduce(client, &op, NULL, err);
}

static void
do_ops(unsigned long count)
{
    tutti_error err = {0};
    tutti_code code = TUTTI_OK;

    while (count-- > 0 && code == TUTTI_OK) {
        code = reduce_once(0, &err);
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
}

static void
do_wait(unsigned long seconds)
{
    const uint64_t before = now_ms();
    tutti_error err = {0};

    if (reduce_once((uint32_t)seconds * 1000, &err) == TUTTI_OK) {
        (void)printf("ok\n");
    } else {
        (void)printf("%" PRIu64 " %s %s\n", now_ms() - before, err.reason, err.text);
    }
}

/* The third call of a client opens its stream. */
static tutti_code
use_other(tutti_client *other, tutti_error *err)
{
    const tutti_spec spec = {TUTTI_DTYPE_INT64, 1, {1}};
    const int64_t one = 1;
    tutti_code code = TUTTI_OK;
    tutti_handle made;
    unsigned i;

    for (i = 0; i < 4 && code == TUTTI_OK; i++) {
        code = tutti_tensor_put(other, &spec, &one, NULL, NULL, &made, err);
        if (code == TUTTI_OK) {
            code = tutti_tensor_delete(other, made.text, err);
        }
    }
    return code;
}

static void
do_many(const char *agent, unsigned long count)
{
    tutti_error err = {0};
    tutti_code code = TUTTI_OK;
    unsigned long i;

    for (i = 0; i < count && i < MANY_MAX && code == TUTTI_OK; i++) {
        code = tutti_connect(agent, &others[i], &err);
        if (code == TUTTI_OK) {
            code = use_other(others[i], &err);
        }
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
}

static void
do_fork(void)
{
    int status = 0;
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        tutti_error err = {0};

        (void)reduce_once(1000, &err);
        (void)printf("%s\n", err.reason);
        (void)fflush(stdout);
        _exit(0);
    }
    (void)waitpid(child, &status, 0);
}

static void
do_line(const char *agent, const char *word, unsigned long number)
{
    if (strcmp(word, "ops") == 0) {
        do_ops(number);
    } else if (strcmp(word, "wait") == 0) {
        do_wait(number);
    } else if (strcmp(word, "many") == 0) {
        do_many(agent, number);
    } else {
        do_fork();
    }
    (void)fflush(stdout);
}

int
main(int argc, char **argv)
{
    const tutti_spec spec = {TUTTI_DTYPE_INT64, 1, {1}};
    const int64_t one = 1;
    char line[64];
    tutti_error err;
    size_t i;

    if (argc != 2 || tutti_connect(argv[1], &client, &err) != TUTTI_OK ||
        tutti_tensor_put(client, &spec, &one, NULL, NULL, &tensor, &err) != TUTTI_OK) {
        (void)printf("%s\n", argc != 2 ? "usage: lane_program AGENT" : err.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char word[16] = "";
        unsigned long number = 0;

        (void)sscanf(line, "%15s %lu", word, &number);
        do_line(argv[1], word, number);
    }
    for (i = 0; i < MANY_MAX; i++) {
        tutti_close(others[i]);
    }
    (void)tutti_tensor_delete(client, tensor.text, NULL);
    tutti_close(client);
    return 0;
}
