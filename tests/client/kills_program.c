/*
 * Calls the store without a pause while somebody kills the coordinator, and compares each answer.
 *
 * usage: kills_program AGENT load ID | wait ID | gaps ID | watch ID
 *
 * load: the calls that must not count twice, in turn, until standard input ends. "turns N" at the
 *       end, "popped VALUE" for each value of the queue that all clients share.
 * wait: one value of the queue "wait ID", however often the coordinator goes meanwhile.
 * gaps: adds in turn until standard input ends; "gap MS" for each that took longer than GAP_MS.
 * watch: tells what the loads do: each change of a key "count ..." is one more than the last, and each
 *       "tag ..." is set and deleted by turns. "stands", then until the key "stop" is set; "told KEY VALUE" at the end.
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

/* ------------------------------------------------------------------------------ watch */

typedef struct watched_key {
    char key[64];
    uint64_t last; /* value of "count ...", turn of "tag ..." */
    bool is_set;
} watched_key;

typedef struct watching {
    watched_key keys[64];
    size_t count;
    uint64_t version;
    uint64_t changes;
    int failed;
} watching;

static watched_key *
find_watched(watching *self, const tutti_kv_entry *entry)
{
    watched_key *one = self->keys;

    while (one < self->keys + self->count && (strlen(one->key) != entry->key_size ||
                                              memcmp(one->key, entry->key, entry->key_size) != 0)) {
        one++;
    }
    if (one == self->keys + self->count) {
        if (self->count == sizeof(self->keys) / sizeof(self->keys[0]) ||
            entry->key_size >= sizeof(one->key)) {
            return NULL;
        }
        memcpy(one->key, entry->key, entry->key_size);
        self->count++;
    }
    return one;
}

/* Is this the change to come behind the last one of its key? */
static bool
is_next(watched_key *one, const tutti_kv_entry *entry)
{
    char text[64] = "";
    const char *slash;
    uint64_t number;

    if (entry->deleted) {
        one->is_set = !one->is_set;
        return !one->is_set;
    }
    memcpy(text, entry->value, entry->value_size < 63 ? entry->value_size : 63);
    slash = strrchr(text, '/');
    number = strtoull(slash == NULL ? text : slash + 1, NULL, 10);
    if (number != ++one->last || (slash != NULL && one->is_set)) {
        return false;
    }
    one->is_set = true;
    return true;
}

static bool
on_watched(void *arg, const tutti_kv_entry *entry)
{
    watching *self = arg;
    watched_key *one;
    char text[128];

    if (entry->key == NULL) {
        (void)printf("stands\n");
        (void)fflush(stdout);
        return true;
    }
    if (entry->key_size == 4 && memcmp(entry->key, "stop", 4) == 0) {
        return false;
    }
    self->changes++;
    if (entry->version < self->version) {
        self->failed = fail("watch", "an older version");
    }
    self->version = entry->version;
    if (entry->key_size < 4 ||
        (memcmp(entry->key, "coun", 4) != 0 && memcmp(entry->key, "tag ", 4) != 0)) {
        return self->failed == 0;
    }
    one = find_watched(self, entry);
    if (one == NULL || !is_next(one, entry)) {
        (void)snprintf(text, sizeof(text), "%.*s %s %.*s of version %" PRIu64 " behind %" PRIu64,
                       (int)entry->key_size, (const char *)entry->key,
                       entry->deleted ? "deleted" : "set", (int)entry->value_size,
                       entry->deleted ? "" : (const char *)entry->value, entry->version,
                       one == NULL ? 0 : one->last);
        self->failed = fail("watch", text);
    }
    return self->failed == 0;
}

static int
watch_all(tutti_client *client)
{
    static watching self;
    size_t i;
    const tutti_code code = tutti_kv_watch(client, "", 0, 0, on_watched, &self, &failure);

    if (code != TUTTI_OK) {
        return fail("watch", failure.text);
    }
    for (i = 0; i < self.count; i++) {
        (void)printf("told %s %" PRIu64 "\n", self.keys[i].key, self.keys[i].last);
    }
    (void)printf("changes %" PRIu64 "\n", self.changes);
    return self.failed;
}

int
main(int argc, char **argv)
{
    tutti_client *client = NULL;
    int failed;

    if (argc != 4 || tutti_connect(argv[1], &client, &failure) != TUTTI_OK) {
        (void)printf("usage: kills_program AGENT load|wait|gaps|watch ID; %s\n", failure.text);
        return 1;
    }
    failed = strcmp(argv[2], "load") == 0    ? load(client, argv[3])
             : strcmp(argv[2], "gaps") == 0  ? note_gaps(client, argv[3])
             : strcmp(argv[2], "watch") == 0 ? watch_all(client)
                                             : wait_for_one(client, argv[3]);
    tutti_close(client);
    return failed;
}
