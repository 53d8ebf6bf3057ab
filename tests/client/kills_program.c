/*
 * Calls the store without a pause while somebody kills the coordinator, and compares each answer.
 *
 * usage: kills_program AGENT load ID | wait ID | gaps ID
 *
 * load: the calls that must not count twice, in turn, until standard input ends. "turns N" at the
 *       end, "popped VALUE" for each value of the queue that all clients share.
 * wait: one value of the queue "wait ID", however often the coordinator goes meanwhile.
 * gaps: adds in turn until standard input ends; "gap MS" for each that took longer than GAP_MS.
 * Exit code 1: a call failed, or its answer was not the one to come.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tutti/store.h"
#include "tutti/tutti.h"

#define CALL_MS 60000
#define GAP_MS 300

static tutti_error failure;

static int
fail(const char *what, const char *why)
{
    (void)printf("failed %s: %s %s\n", what, failure.reason, why);
    return 1;
}

static bool
is_over(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

    return poll(&input, 1, 0) != 0;
}

/* [in] wanted  NULL = whatever comes is printed */
static int
compare_value(tutti_code code, const char *what, void *value, const char *wanted)
{
    int failed = 0;

    if (code != TUTTI_OK) {
        return fail(what, failure.text);
    }
    if (wanted == NULL) {
        (void)printf("popped %s\n", (const char *)value);
    } else if (strcmp(value, wanted) != 0) {
        failed = fail(what, "another value");
    }
    tutti_free(value);
    return failed;
}

static int
compare_number(tutti_code code, const char *what, uint64_t number, uint64_t wanted)
{
    char text[64];

    if (code != TUTTI_OK) {
        return fail(what, failure.text);
    }
    if (number != wanted) {
        (void)snprintf(text, sizeof(text), "%" PRIu64 ", not %" PRIu64, number, wanted);
        return fail(what, text);
    }
    return 0;
}

static int
take_turn(tutti_client *client, const char *id, uint64_t turn)
{
    char key[64];
    char queue[64];
    char tag[64];
    char value[64];
    void *got = NULL;
    int64_t count = 0;
    uint64_t size = 0;
    size_t got_size = 0;
    int failed = 0;
    tutti_code code;

    (void)snprintf(key, sizeof(key), "count %s", id);
    (void)snprintf(queue, sizeof(queue), "queue %s", id);
    (void)snprintf(tag, sizeof(tag), "tag %s", id);
    (void)snprintf(value, sizeof(value), "%s/%" PRIu64, id, turn);
    code = tutti_kv_add(client, key, strlen(key), 1, &count, &failure);
    failed |= compare_number(code, "add", (uint64_t)count, turn);
    code = tutti_kv_add(client, "all", 3, 1, NULL, &failure);
    failed |= compare_number(code, "add", 0, 0);
    code = tutti_kv_push(client, queue, strlen(queue), value, strlen(value), &size, &failure);
    failed |= compare_number(code, "push", size, 1);
    code = tutti_kv_pop(client, queue, strlen(queue), CALL_MS, &got, &got_size, &failure);
    failed |= compare_value(code, "pop", got, value);
    code = tutti_kv_append(client, tag, strlen(tag), value, strlen(value), &size, &failure);
    failed |= compare_number(code, "append", size, strlen(value));
    code = tutti_kv_take(client, tag, strlen(tag), CALL_MS, &got, &got_size, &failure);
    failed |= compare_value(code, "take", got, value);
    code = tutti_kv_push(client, "shared", 6, value, strlen(value), NULL, &failure);
    failed |= compare_number(code, "push", 0, 0);
    code = tutti_kv_pop(client, "shared", 6, CALL_MS, &got, &got_size, &failure);
    return failed | compare_value(code, "pop", got, NULL);
}

static int
load(tutti_client *client, const char *id)
{
    uint64_t turn = 0;
    int failed = 0;

    while (!failed && !is_over()) {
        failed = take_turn(client, id, ++turn);
    }
    (void)printf("turns %" PRIu64 "\n", turn);
    return failed;
}

static uint64_t
now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int
note_gaps(tutti_client *client, const char *id)
{
    char key[64];
    uint64_t turn = 0;
    int failed = 0;

    (void)snprintf(key, sizeof(key), "count %s", id);
    while (!failed && !is_over()) {
        const uint64_t begun_ms = now_ms();
        int64_t count = 0;
        const tutti_code code = tutti_kv_add(client, key, strlen(key), 1, &count, &failure);

        failed = compare_number(code, "add", (uint64_t)count, ++turn);
        if (now_ms() - begun_ms > GAP_MS) {
            (void)printf("gap %" PRIu64 "\n", now_ms() - begun_ms);
        }
    }
    (void)printf("turns %" PRIu64 "\n", turn);
    return failed;
}

static int
wait_for_one(tutti_client *client, const char *id)
{
    char queue[64];
    char there[64];
    void *got = NULL;
    size_t size = 0;
    tutti_code code;

    (void)snprintf(queue, sizeof(queue), "wait %s", id);
    (void)snprintf(there, sizeof(there), "waits %s", id);
    code = tutti_kv_add(client, there, strlen(there), 1, NULL, &failure);
    if (compare_number(code, "add", 0, 0) != 0) {
        return 1;
    }
    code = tutti_kv_pop(client, queue, strlen(queue), 10 * CALL_MS, &got, &size, &failure);
    return compare_value(code, "pop", got, NULL);
}

int
main(int argc, char **argv)
{
    tutti_client *client = NULL;
    int failed;

    if (argc != 4 || tutti_connect(argv[1], &client, &failure) != TUTTI_OK) {
        (void)printf("usage: kills_program AGENT load|wait|gaps ID; %s\n", failure.text);
        return 1;
    }
    failed = strcmp(argv[2], "load") == 0   ? load(client, argv[3])
             : strcmp(argv[2], "gaps") == 0 ? note_gaps(client, argv[3])
                                            : wait_for_one(client, argv[3]);
    tutti_close(client);
    return failed;
}
