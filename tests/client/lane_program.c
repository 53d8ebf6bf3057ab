/*
 * Ops of 8 bytes by libtutti, as the words on standard input ask for them:
 *
 *   ops N     N all-reduces with the other ranks; "ok", or the error
 *   wait S    one more, which ends after S seconds at the latest; "ok", or milliseconds, reason and text of the error
 *   send R    the tensor to rank R; answers as "wait" does
 *   recv R    one from rank R; 1000 = from any
 *   within S  how long the next ones take at most; "ok"
 *   queue N   N all-reduces by a completion queue that is opened for it and left open, 100 at a time; "ok", or the error
 *   fd N      the same one by one, by a queue whose descriptor is waited for
 *   line N    the same by a pipeline that is opened for it
 *   hang S    one more by the queue, as "wait"
 *   flood N   N all-reduces by the queue that make a tensor each; no completion is taken; "ok", or the error
 *   leave N   N all-reduces of 2 MiB that make a tensor, each by a queue that is shut down as soon as its completion is
 *             there; then the tensor is deleted; "ok", or the error
 *   lease N   opens a lease, or closes it (0); "ok", or the error
 *   shrink S  shrinks "world" within S seconds: milliseconds, and how many ranks are left; or the error
 *   many N    N further clients, of which each puts, stats and deletes one tensor; "ok"
 *   again 0   each of them once more
 *   turns N   N times: the first of them makes many calls, then each of them some; "ok"
 *   fork      an op in a child of fork: its reason
 *
 * Run by tests/system/test_lanes.py.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tutti/tutti.h"

#define MANY_MAX 1000
#define LARGE ((size_t)256 << 10) /* elements, of "leave" */

static tutti_client *client;
static tutti_handle tensor;
static tutti_queue *queue; /* of "queue" and "hang"; NULL = not opened yet */
static tutti_queue *fd_queue;
static tutti_client *others[MANY_MAX];

static uint64_t
now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static tutti_op
op_within(uint32_t timeout_ms)
{
    tutti_op op;

    tutti_op_init(&op);
    op.input = tensor.text;
    op.output = tensor.text;
    op.reduce = TUTTI_REDUCE_MAX;
    op.timeout_ms = timeout_ms;
    return op;
}

static tutti_code
reduce_once(uint32_t timeout_ms, tutti_error *err)
{
    const tutti_op op = op_within(timeout_ms);

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
tell_end(uint64_t before, tutti_code code, const tutti_error *err)
{
    if (code == TUTTI_OK) {
        (void)printf("ok\n");
    } else {
        (void)printf("%" PRIu64 " %s %s\n", now_ms() - before, err->reason, err->text);
    }
}

static void
do_wait(unsigned long seconds)
{
    const uint64_t before = now_ms();
    tutti_error err = {0};

    tell_end(before, reduce_once((uint32_t)seconds * 1000, &err), &err);
}

static uint32_t message_ms = 60000;

static void
do_within(unsigned long seconds)
{
    message_ms = (uint32_t)seconds * 1000;
    (void)printf("ok\n");
}

static tutti_op
message_with(unsigned long rank)
{
    tutti_op op = op_within(message_ms);

    op.peer = rank == 1000 ? TUTTI_ANY_SOURCE : (int32_t)rank;
    return op;
}

static void
do_send(unsigned long rank)
{
    const tutti_op op = message_with(rank);
    const uint64_t before = now_ms();
    tutti_error err = {0};

    tell_end(before, tutti_send(client, &op, NULL, &err), &err);
}

static void
do_recv(unsigned long rank)
{
    const tutti_op op = message_with(rank);
    const uint64_t before = now_ms();
    tutti_error err = {0};

    tell_end(before, tutti_recv(client, &op, NULL, &err), &err);
}

/* How the next op of the queue has ended. */
static tutti_code
take_one(tutti_queue *from, tutti_error *err)
{
    tutti_queue_completion done;
    const tutti_code code = tutti_queue_next(from, TUTTI_QUEUE_FOREVER, &done, err);

    if (code != TUTTI_OK) {
        return code;
    }
    *err = done.error;
    tutti_op_more_free(&done.more);
    return done.error.code;
}

static tutti_code
open_once(tutti_queue **opened, tutti_error *err)
{
    return *opened != NULL ? TUTTI_OK : tutti_queue_open(client, NULL, opened, err);
}

static tutti_code
submit_some(unsigned long count, tutti_error *err)
{
    const tutti_op op = op_within(0);
    tutti_code code = TUTTI_OK;
    unsigned long i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = tutti_queue_submit(queue, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = take_one(queue, err);
    }
    return code;
}

static void
do_queue(unsigned long count)
{
    tutti_error err = {0};
    tutti_code code = open_once(&queue, &err);

    while (count > 0 && code == TUTTI_OK) {
        const unsigned long now = count < 100 ? count : 100;

        code = submit_some(now, &err);
        count -= now;
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
}

static tutti_code
reduce_by_descriptor(tutti_error *err)
{
    const tutti_op op = op_within(0);
    struct pollfd look = {.events = POLLIN};
    tutti_code code = tutti_queue_fd(fd_queue, &look.fd, err);

    if (code == TUTTI_OK) {
        code = tutti_queue_submit(fd_queue, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, err);
    }
    while (code == TUTTI_OK && poll(&look, 1, -1) != 1) {
    }
    return code == TUTTI_OK ? take_one(fd_queue, err) : code;
}

static void
do_fd(unsigned long count)
{
    tutti_error err = {0};
    tutti_code code = open_once(&fd_queue, &err);

    while (count-- > 0 && code == TUTTI_OK) {
        code = reduce_by_descriptor(&err);
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
}

static tutti_code
run_line(tutti_pipeline *pipeline, unsigned long count, tutti_error *err)
{
    const tutti_op op = op_within(0);
    tutti_pipeline_result result;
    tutti_code code = TUTTI_OK;
    unsigned long i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = tutti_pipeline_submit(pipeline, TUTTI_OP_ALL_REDUCE, &op, NULL, err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = tutti_pipeline_next(pipeline, &result, err);
        if (code == TUTTI_OK) {
            *err = result.error;
            code = result.error.code;
            tutti_op_more_free(&result.more);
        }
    }
    return code;
}

static void
do_line_of_ops(unsigned long count)
{
    tutti_pipeline *pipeline = NULL;
    tutti_error err = {0};
    tutti_code code = tutti_pipeline_open(client, NULL, &pipeline, &err);

    if (code == TUTTI_OK) {
        code = run_line(pipeline, count, &err);
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
    (void)tutti_pipeline_close(pipeline, NULL);
}

static void
do_hang(unsigned long seconds)
{
    const tutti_op op = op_within((uint32_t)seconds * 1000);
    const uint64_t before = now_ms();
    tutti_error err = {0};
    tutti_code code = open_once(&queue, &err);

    if (code == TUTTI_OK) {
        code = tutti_queue_submit(queue, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, &err);
    }
    if (code == TUTTI_OK && take_one(queue, &err) == TUTTI_OK) {
        (void)printf("ok\n");
    } else {
        (void)printf("%" PRIu64 " %s %s\n", now_ms() - before, err.reason, err.text);
    }
}

static void
do_flood(unsigned long count)
{
    tutti_op op = op_within(0);
    tutti_error err = {0};
    tutti_code code = open_once(&queue, &err);

    op.output = NULL; /* an answer with a handle is longer */
    while (count-- > 0 && code == TUTTI_OK) {
        code = tutti_queue_submit(queue, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, &err);
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
}

/* A completion says that the tensor is there, whatever becomes of the queue. */
static tutti_code
leave_once(const tutti_handle *large, tutti_error *err)
{
    tutti_op op = op_within(20000);
    tutti_queue_completion done = {0};
    tutti_queue *once = NULL;
    tutti_code code = tutti_queue_open(client, NULL, &once, err);

    op.input = large->text;
    op.output = NULL;
    if (code == TUTTI_OK) {
        code = tutti_queue_submit(once, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_queue_next(once, TUTTI_QUEUE_FOREVER, &done, err);
    }
    if (code == TUTTI_OK && done.error.code != TUTTI_OK) {
        *err = done.error;
        code = done.error.code;
    }
    if (once != NULL) {
        tutti_queue_shutdown(once);
        (void)tutti_queue_close(once, NULL);
    }
    tutti_op_more_free(&done.more);
    return code == TUTTI_OK ? tutti_tensor_delete(client, done.op.output.text, err) : code;
}

static void
do_leave(unsigned long count)
{
    const tutti_spec spec = {TUTTI_DTYPE_INT64, 1, {(int64_t)LARGE}};
    static const int64_t zeros[LARGE];
    tutti_handle large;
    tutti_error err = {0};
    tutti_code code = tutti_tensor_put(client, &spec, zeros, NULL, NULL, &large, &err);

    while (count-- > 0 && code == TUTTI_OK) {
        code = leave_once(&large, &err);
    }
    (void)tutti_tensor_delete(client, large.text, NULL);
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
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
do_again(unsigned long unused)
{
    tutti_error err = {0};
    tutti_code code = TUTTI_OK;
    size_t i;

    (void)unused;
    for (i = 0; i < MANY_MAX && others[i] != NULL && code == TUTTI_OK; i++) {
        code = use_other(others[i], &err);
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
}

/* The first one's calls make the agent forget that it has heard of the others. */
static void
do_turns(unsigned long count)
{
    tutti_error err = {0};
    tutti_code code = TUTTI_OK;
    size_t i;

    while (count-- > 0 && code == TUTTI_OK) {
        for (i = 0; i < 20 && code == TUTTI_OK; i++) {
            code = use_other(others[0], &err);
        }
        for (i = 0; i < MANY_MAX && others[i] != NULL && code == TUTTI_OK; i++) {
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
do_lease(unsigned long number)
{
    static tutti_lease *lease;
    tutti_error err = {0};
    tutti_code code = TUTTI_OK;

    if (number > 0) {
        code = tutti_lease_open(client, &lease, &err);
    } else {
        tutti_lease_close(lease);
    }
    (void)printf("%s\n", code == TUTTI_OK ? "ok" : err.text);
}

static void
do_shrink(unsigned long seconds)
{
    const uint64_t before = now_ms();
    tutti_group_info info = {0};
    tutti_error err = {0};

    if (tutti_group_shrink(client, "world", (uint32_t)seconds * 1000, &info, &err) == TUTTI_OK) {
        (void)printf("%" PRIu64 " %" PRIu32 "\n", now_ms() - before, info.rank_count);
    } else {
        (void)printf("%s\n", err.text);
    }
}

static void
do_line(const char *agent, const char *word, unsigned long number)
{
    static const struct {
        const char *word;
        void (*run)(unsigned long number);
    } words[] = {{"ops", do_ops},     {"wait", do_wait},        {"queue", do_queue},
                 {"fd", do_fd},       {"line", do_line_of_ops}, {"hang", do_hang},
                 {"flood", do_flood}, {"leave", do_leave},      {"again", do_again},
                 {"turns", do_turns}, {"lease", do_lease},      {"shrink", do_shrink},
                 {"send", do_send},   {"recv", do_recv},        {"within", do_within}};
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i].word) == 0) {
            words[i].run(number);
        }
    }
    if (strcmp(word, "many") == 0) {
        do_many(agent, number);
    } else if (strcmp(word, "fork") == 0) {
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
    (void)tutti_queue_close(queue, NULL);
    (void)tutti_queue_close(fd_queue, NULL);
    (void)tutti_tensor_delete(client, tensor.text, NULL);
    tutti_close(client);
    return 0;
}
