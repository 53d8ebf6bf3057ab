/*
 * Goal: changes are collected while a batch is written, a key is written once in a batch, and after
 * a failure nothing more is.
 * Method: a writer whose `write` waits until the test lets it go, and notes what it was given.
 */
#include "support/testing.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/error/fail.h"
#include "store/commit/writer.h"

#define BYTES(text) ((tutti_bytes){(text), sizeof(text) - 1})

typedef struct place {
    sem_t begun;
    sem_t go;
    sem_t told;
    char words[256]; /* "a=1 b- |" for each batch */
    bool fails;
    tutti_store_writer *writer;
} place;

static tutti_code
write_place(void *context, const tutti_store_batch *batch, tutti_error *err)
{
    place *self = context;
    const tutti_store_record *one = NULL;

    (void)sem_post(&self->begun);
    (void)sem_wait(&self->go);
    if (self->fails) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_FULL", "the disk is full");
    }
    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        const size_t have = strlen(self->words);

        (void)snprintf(self->words + have, sizeof(self->words) - have, "%.*s%s%.*s@%d ",
                       (int)one->entry.key.size, (const char *)one->entry.key.data,
                       one->remove ? "-" : "=", (int)one->entry.value.size,
                       (const char *)one->entry.value.data, (int)one->entry.version);
    }
    (void)strcat(self->words, "|");
    return TUTTI_OK;
}

static void
on_durable(void *arg)
{
    (void)sem_post(&((place *)arg)->told);
}

static const tutti_store_writer_ops ops = {.write = write_place};

static tutti_store_writer *
open_writer(place *self)
{
    tutti_store_writer *writer = NULL;
    tutti_error err;

    memset(self, 0, sizeof(*self));
    assert_int_equal(sem_init(&self->begun, 0, 0) | sem_init(&self->go, 0, 0), 0);
    assert_int_equal(sem_init(&self->told, 0, 0), 0);
    assert_ok(tutti_store_writer_new(&ops, self, 0, &writer, &err));
    tutti_store_writer_on_durable(writer, on_durable, self);
    return writer;
}

static void
change(tutti_store_writer *writer, const char *key, const char *value, uint64_t version)
{
    const tutti_store_change one = {.key = tutti_bytes_of(key),
                                    .value =
                                        value == NULL ? (tutti_bytes){0} : tutti_bytes_of(value),
                                    .remove = value == NULL};
    tutti_store_batch *batch = tutti_store_writer_batch(writer);
    tutti_error err;

    assert_ok(tutti_store_batch_stage(batch, &one, 1, &err));
    tutti_store_batch_keep(batch, version);
}

static void
test_store_writer__collects_while_it_writes(void **state)
{
    place self;
    tutti_store_writer *writer = open_writer(&self);
    tutti_error err;

    (void)state;
    assert_ok(tutti_store_writer_flush(writer, &err)); /* of nothing */
    change(writer, "a", "1", 1);
    assert_ok(tutti_store_writer_flush(writer, &err));
    (void)sem_wait(&self.begun);
    change(writer, "b", "1", 2);
    assert_ok(tutti_store_writer_flush(writer, &err)); /* not now */
    change(writer, "c", "1", 3);
    change(writer, "b", NULL, 4);
    change(writer, "c", "22", 5);
    assert_int_equal(tutti_store_writer_durable(writer), 0);
    (void)sem_post(&self.go);
    (void)sem_wait(&self.told);
    assert_int_equal(tutti_store_writer_durable(writer), 1);
    assert_string_equal(self.words, "a=1@1 |");
    assert_ok(tutti_store_writer_flush(writer, &err));
    (void)sem_post(&self.go);
    (void)sem_wait(&self.told);
    assert_int_equal(tutti_store_writer_durable(writer), 5);
    assert_string_equal(self.words, "a=1@1 |b-@4 c=22@5 |");
    tutti_store_writer_free(writer);
}

static void
test_store_writer__writes_what_is_left_at_its_end(void **state)
{
    place self;
    tutti_store_writer *writer = open_writer(&self);
    tutti_error err;

    (void)state;
    change(writer, "a", "1", 1);
    assert_ok(tutti_store_writer_flush(writer, &err));
    change(writer, "b", "2", 2);
    (void)sem_post(&self.go);
    (void)sem_post(&self.go);
    tutti_store_writer_free(writer);
    assert_string_equal(self.words, "a=1@1 |b=2@2 |");
}

static void
test_store_writer__writes_nothing_behind_a_failure(void **state)
{
    place self;
    tutti_store_writer *writer = open_writer(&self);
    tutti_error err;

    (void)state;
    self.fails = true;
    change(writer, "a", "1", 1);
    assert_ok(tutti_store_writer_flush(writer, &err));
    change(writer, "b", "2", 2);
    (void)sem_post(&self.go);
    (void)sem_wait(&self.told);
    self.fails = false;
    assert_int_equal(tutti_store_writer_durable(writer), 0);
    assert_fails(tutti_store_writer_flush(writer, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "STORE_FULL");
    (void)sem_post(&self.go); /* for a write that must not come */
    tutti_store_writer_free(writer);
    assert_string_equal(self.words, "");
}

static void
flush_at_once(void *arg)
{
    place *self = arg;
    tutti_error err;

    assert_ok(tutti_store_writer_flush(self->writer, &err));
    (void)sem_post(&self->told);
}

/* The coordinator does so, with its loop kept out meanwhile. */
static void
test_store_writer__lets_those_who_are_told_flush_again(void **state)
{
    place self;
    tutti_store_writer *writer = open_writer(&self);
    tutti_error err;

    (void)state;
    self.writer = writer;
    tutti_store_writer_on_durable(self.writer, flush_at_once, &self);
    change(self.writer, "a", "1", 1);
    assert_ok(tutti_store_writer_flush(self.writer, &err));
    (void)sem_wait(&self.begun);
    change(self.writer, "b", "2", 2);
    (void)sem_post(&self.go);
    (void)sem_wait(&self.told);
    (void)sem_wait(&self.begun); /* without a flush of the store's thread */
    (void)sem_post(&self.go);
    (void)sem_wait(&self.told);
    tutti_store_writer_on_durable(self.writer, NULL, NULL);
    assert_int_equal(tutti_store_writer_durable(self.writer), 2);
    tutti_store_writer_free(self.writer);
    assert_string_equal(self.words, "a=1@1 |b=2@2 |");
}

static void
test_store_batch__forgets_a_change_that_is_dropped(void **state)
{
    place self;
    tutti_store_writer *writer = open_writer(&self);
    const tutti_store_change one = {.key = BYTES("a"), .value = BYTES("1")};
    tutti_store_batch *batch = tutti_store_writer_batch(writer);
    tutti_error err;

    (void)state;
    assert_ok(tutti_store_batch_stage(batch, &one, 1, &err));
    tutti_store_batch_drop(batch);
    tutti_store_batch_keep(batch, 0);
    assert_null(tutti_store_batch_next(batch, NULL));
    tutti_store_writer_free(writer);
    assert_string_equal(self.words, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_writer__collects_while_it_writes),
        cmocka_unit_test(test_store_writer__writes_what_is_left_at_its_end),
        cmocka_unit_test(test_store_writer__writes_nothing_behind_a_failure),
        cmocka_unit_test(test_store_writer__lets_those_who_are_told_flush_again),
        cmocka_unit_test(test_store_batch__forgets_a_change_that_is_dropped),
    };

    return cmocka_run_group_tests_name("store/commit", tests, NULL, NULL);
}
