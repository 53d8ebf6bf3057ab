/*
 * Calls of the store by libtutti, as the words on standard input ask for them. The client has no agent.
 *
 *   adds N    N adds of 1 to the counter, each of which gives one more than the last; "ok VALUE", or the error
 *   sets N    N times a set, a get that gives it, and a get of what is not there; "ok", or what was wrong
 *   calls 0   each call that a stream may carry, several times; "ok", or which one was wrong
 *   large N   a value of N KiB, set and got; "ok", or the error
 *   comes N   a key that another client sets is waited for, N ms; "ok", or the error
 *   put 0     ... by this one
 *   many N    N further clients, of which each makes five calls; "ok"
 *   turns N   N times: the first of them makes many calls, then each of them some; "ok"
 *   threads N N threads add 1000 times 1, by this client; "ok"
 *
 * usage: store_program COORDINATOR [TOKEN-FILE]; run by tests/system/test_store_stream.py.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/tutti.h"

#define MANY_MAX 256
#define THREADS_MAX 32
#define EACH 1000

static tutti_client *client;
static tutti_client *others[MANY_MAX];
static tutti_client_options options;
static int64_t last;

static void
say(tutti_code code, const tutti_error *err)
{
    if (code == TUTTI_OK) {
        (void)printf("ok\n");
    } else {
        (void)printf("%s %s\n", err->reason[0] == '\0' ? tutti_code_name(code) : err->reason,
                     err->text);
    }
}

static void
do_adds(unsigned long count)
{
    tutti_error err = {0};
    tutti_code code = TUTTI_OK;
    int64_t value = last;
    bool follows = true;

    while (count-- > 0 && code == TUTTI_OK && follows) {
        code = tutti_kv_add(client, "count", 5, 1, &value, &err);
        follows = code != TUTTI_OK || value == last + 1;
        last = value;
    }
    if (code != TUTTI_OK || !follows) {
        say(code == TUTTI_OK ? TUTTI_DATA_LOSS : code, &err);
    } else {
        (void)printf("ok %" PRId64 "\n", value);
    }
}

static bool
is_text(const void *value, size_t size, const char *text)
{
    return size == strlen(text) && memcmp(value, text, size) == 0;
}

static bool
set_and_get(tutti_client *with, const char *text, tutti_error *err)
{
    void *value = NULL;
    size_t size = 0;
    bool good;

    if (tutti_kv_set(with, "key", 3, text, strlen(text), err) != TUTTI_OK ||
        tutti_kv_get(with, "key", 3, &value, &size, err) != TUTTI_OK) {
        return false;
    }
    good = is_text(value, size, text);
    tutti_free(value);
    return good && tutti_kv_get(with, "nothing", 7, &value, &size, err) == TUTTI_NOT_FOUND &&
           strcmp(err->reason, "NO_KEY") == 0;
}

static void
do_sets(unsigned long count)
{
    tutti_error err = {0};
    bool good = true;
    char text[32];

    while (count-- > 0 && good) {
        (void)snprintf(text, sizeof(text), "value %lu", count);
        good = set_and_get(client, text, &err);
    }
    (void)printf("%s\n", good ? "ok" : err.text);
}

/* ------------------------------------------------------------------ each call */

#define CHECK(good)                                                                                \
    do {                                                                                           \
        if (!(good)) {                                                                             \
            return #good;                                                                          \
        }                                                                                          \
    } while (0)

static const char *
call_single(tutti_error *err)
{
    void *value = NULL;
    size_t size = 0;
    uint64_t number = 0;
    bool is_so = false;

    CHECK(tutti_kv_delete(client, "one", 3, NULL, err) == TUTTI_OK);
    CHECK(tutti_kv_append(client, "one", 3, "ab", 2, &number, err) == TUTTI_OK && number == 2);
    CHECK(tutti_kv_append(client, "one", 3, "c", 1, &number, err) == TUTTI_OK && number == 3);
    CHECK(tutti_kv_compare_and_set(client, "one", 3, "abc", 3, "d", 1, &is_so, NULL, NULL, err) ==
              TUTTI_OK &&
          is_so);
    CHECK(tutti_kv_compare_and_set(client, "one", 3, "abc", 3, "e", 1, &is_so, &value, &size,
                                   err) == TUTTI_OK &&
          !is_so && is_text(value, size, "d"));
    tutti_free(value);
    CHECK(tutti_kv_take(client, "one", 3, TUTTI_KV_AT_ONCE, &value, &size, err) == TUTTI_OK &&
          is_text(value, size, "d"));
    tutti_free(value);
    CHECK(tutti_kv_delete(client, "one", 3, &is_so, err) == TUTTI_OK && !is_so);
    return NULL;
}

static const char *
call_several(tutti_error *err)
{
    const tutti_kv_bytes keys[] = {{"k1", 2}, {"k2", 2}};
    const tutti_kv_bytes values[] = {{"v1", 2}, {"", 0}};
    void *got[2] = {NULL};
    size_t sizes[2] = {0};
    bool all = false;

    CHECK(tutti_kv_multi_set(client, keys, values, 2, err) == TUTTI_OK);
    CHECK(tutti_kv_check(client, keys, 2, NULL, &all, err) == TUTTI_OK && all);
    CHECK(tutti_kv_multi_get(client, keys, 2, 1000, got, sizes, err) == TUTTI_OK);
    CHECK(is_text(got[0], sizes[0], "v1") && is_text(got[1], sizes[1], ""));
    tutti_free(got[0]);
    tutti_free(got[1]);
    CHECK(tutti_kv_delete(client, "k2", 2, NULL, err) == TUTTI_OK);
    CHECK(tutti_kv_multi_get(client, keys, 2, TUTTI_KV_AT_ONCE, got, sizes, err) ==
          TUTTI_NOT_FOUND);
    CHECK(tutti_kv_multi_get(client, keys, 2, 10, got, sizes, err) == TUTTI_DEADLINE_EXCEEDED);
    return NULL;
}

static const char *
call_queue(tutti_error *err)
{
    void *value = NULL;
    size_t size = 0;
    uint64_t length = 0;

    CHECK(tutti_kv_push(client, "q", 1, "1", 1, &length, err) == TUTTI_OK && length == 1);
    CHECK(tutti_kv_push(client, "q", 1, "2", 1, &length, err) == TUTTI_OK && length == 2);
    CHECK(tutti_kv_pop(client, "q", 1, TUTTI_KV_AT_ONCE, &value, &size, err) == TUTTI_OK &&
          is_text(value, size, "1"));
    tutti_free(value);
    CHECK(tutti_kv_length(client, "q", 1, &length, err) == TUTTI_OK && length == 1);
    CHECK(tutti_kv_pop(client, "q", 1, 1000, &value, &size, err) == TUTTI_OK &&
          is_text(value, size, "2"));
    tutti_free(value);
    CHECK(tutti_kv_pop(client, "q", 1, TUTTI_KV_AT_ONCE, &value, &size, err) == TUTTI_NOT_FOUND);
    return NULL;
}

static void
do_calls(void)
{
    const char *wrong = NULL;
    tutti_error err = {0};
    int i;

    for (i = 0; i < 3 && wrong == NULL; i++) {
        wrong = call_single(&err);
        wrong = wrong != NULL ? wrong : call_several(&err);
        wrong = wrong != NULL ? wrong : call_queue(&err);
    }
    (void)printf("%s%s%s\n", wrong == NULL ? "ok" : wrong, wrong == NULL ? "" : ": ",
                 wrong == NULL ? "" : err.text);
}

/* ------------------------------------------------------------------ others */

static void
do_large(unsigned long kib)
{
    const size_t bytes = kib << 10;
    unsigned char *sent = malloc(bytes);
    void *value = NULL;
    size_t size = 0;
    tutti_error err = {0};
    tutti_code code;

    memset(sent, 'x', bytes);
    code = tutti_kv_set(client, "large", 5, sent, bytes, &err);
    if (code == TUTTI_OK) {
        code = tutti_kv_get(client, "large", 5, &value, &size, &err);
    }
    if (code == TUTTI_OK && (size != bytes || memcmp(value, sent, bytes) != 0)) {
        code = TUTTI_DATA_LOSS;
    }
    tutti_free(value);
    free(sent);
    say(code, &err);
}

static void
do_comes(unsigned long wait_ms)
{
    const tutti_kv_bytes key = {"comes", 5};
    void *value = NULL;
    tutti_error err = {0};
    const tutti_code code =
        tutti_kv_multi_get(client, &key, 1, (uint32_t)wait_ms, &value, NULL, &err);

    tutti_free(value);
    say(code, &err);
}

static void
do_many(unsigned long count)
{
    tutti_error err = {0};
    bool good = true;
    unsigned long i;

    for (i = 0; i < count && i < MANY_MAX && good; i++) {
        good = tutti_connect_with(&options, &others[i], &err) == TUTTI_OK &&
               set_and_get(others[i], "many", &err) && set_and_get(others[i], "many", &err);
    }
    (void)printf("%s\n", good ? "ok" : err.text);
}

/* The first one's calls make the coordinator forget that it has heard of the others. */
static void
do_turns(unsigned long count)
{
    tutti_error err = {0};
    bool good = others[0] != NULL;
    unsigned long i;

    while (count-- > 0 && good) {
        for (i = 0; i < 20 && good; i++) {
            good = set_and_get(others[0], "turns", &err);
        }
        for (i = 0; i < MANY_MAX && others[i] != NULL && good; i++) {
            good = set_and_get(others[i], "turns", &err);
        }
    }
    (void)printf("%s\n", good ? "ok" : err.text);
}

static void *
run_adds(void *arg)
{
    tutti_error err;
    int i;

    for (i = 0; i < EACH; i++) {
        if (tutti_kv_add(client, "threads", 7, 1, NULL, &err) != TUTTI_OK) {
            return arg;
        }
    }
    return NULL;
}

static void
do_threads(unsigned long count)
{
    pthread_t threads[THREADS_MAX];
    int64_t before = 0;
    int64_t after = 0;
    bool good = true;
    void *failed;
    tutti_error err = {0};
    unsigned long i;

    good = count <= THREADS_MAX && tutti_kv_add(client, "threads", 7, 0, &before, &err) == TUTTI_OK;
    for (i = 0; i < count && good; i++) {
        good = pthread_create(&threads[i], NULL, run_adds, &before) == 0;
    }
    while (i-- > 0) {
        (void)pthread_join(threads[i], &failed);
        good = good && failed == NULL;
    }
    good = good && tutti_kv_add(client, "threads", 7, 0, &after, &err) == TUTTI_OK &&
           after - before == (int64_t)count * EACH;
    (void)printf("%s\n", good ? "ok" : "wrong");
}

static void
do_words(const char *words)
{
    char name[16] = "";
    unsigned long number = 0;
    tutti_error err = {0};

    (void)sscanf(words, "%15s %lu", name, &number);
    if (strcmp(name, "adds") == 0) {
        do_adds(number);
    } else if (strcmp(name, "sets") == 0) {
        do_sets(number);
    } else if (strcmp(name, "calls") == 0) {
        do_calls();
    } else if (strcmp(name, "large") == 0) {
        do_large(number);
    } else if (strcmp(name, "comes") == 0) {
        do_comes(number);
    } else if (strcmp(name, "put") == 0) {
        say(tutti_kv_set(client, "comes", 5, "1", 1, &err), &err);
    } else if (strcmp(name, "many") == 0) {
        do_many(number);
    } else if (strcmp(name, "turns") == 0) {
        do_turns(number);
    } else {
        do_threads(number);
    }
    (void)fflush(stdout);
}

int
main(int argc, char **argv)
{
    char line[64];
    tutti_error err;
    size_t i;

    tutti_client_options_init(&options);
    options.agent = "";
    options.coordinator = argc > 1 ? argv[1] : "";
    options.token_file = argc > 2 ? argv[2] : NULL;
    if (tutti_connect_with(&options, &client, &err) != TUTTI_OK) {
        (void)printf("%s\n", err.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        do_words(line);
    }
    for (i = 0; i < MANY_MAX; i++) {
        tutti_close(others[i]);
    }
    tutti_close(client);
    return 0;
}
