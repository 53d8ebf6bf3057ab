/*
 * Two batches change places: the store's thread collects in one, the writer's thread writes the
 * other. `lock` guards the state that both look at; the batch that is being written belongs to the
 * writer's thread while `busy` is set, and so is read without the lock.
 *
 * A failed write is the end: changes behind it would be durable without those before it.
 */
#include "store/commit/writer.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/thread.h"

struct tutti_store_writer {
    const tutti_store_writer_ops *ops;
    void *context;
    pthread_t thread;
    bool started;
    tutti_store_batch batches[2];
    unsigned collecting; /* which of them the store's thread fills */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    bool busy;    /* the other batch is being written */
    bool telling; /* on_durable runs */
    bool ending;
    uint64_t durable;
    tutti_error why; /* code TUTTI_OK = nothing has failed */
    void (*on_durable)(void *arg);
    void *arg;
};

static tutti_store_batch *
get_written(tutti_store_writer *self)
{
    return &self->batches[1 - self->collecting];
}

/* Tell of it without the lock, since who is told may flush again. `telling` is for who takes the
 * callback away. */
static void
tell_unlocked(tutti_store_writer *self)
{
    void (*const on_durable)(void *arg) = self->on_durable;
    void *const arg = self->arg;

    if (on_durable != NULL) {
        self->telling = true;
        (void)pthread_mutex_unlock(&self->lock);
        on_durable(arg);
        (void)pthread_mutex_lock(&self->lock);
        self->telling = false;
    }
    (void)pthread_cond_broadcast(&self->changed);
}

static void
write_batch_unlocked(tutti_store_writer *self)
{
    const tutti_store_batch *batch = get_written(self);
    tutti_error err = {0};
    tutti_code code;

    (void)pthread_mutex_unlock(&self->lock);
    code = self->ops->write(self->context, batch, &err);
    (void)pthread_mutex_lock(&self->lock);
    if (code == TUTTI_OK) {
        self->durable = batch->version;
    } else {
        self->why = err;
    }
    self->busy = false;
    tell_unlocked(self);
}

static void *
run_writer(void *arg)
{
    tutti_store_writer *self = arg;

    (void)pthread_mutex_lock(&self->lock);
    while (self->busy || !self->ending) {
        if (self->busy) {
            write_batch_unlocked(self);
        } else {
            (void)pthread_cond_wait(&self->changed, &self->lock);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

tutti_code
tutti_store_writer_new(const tutti_store_writer_ops *ops, void *context, uint64_t version,
                       tutti_store_writer **ret_writer, tutti_error *err)
{
    tutti_store_writer *self = calloc(1, sizeof(*self));
    int failed;

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a store");
    }
    self->ops = ops;
    self->context = context;
    self->durable = version;
    tutti_store_batch_init(&self->batches[0]);
    tutti_store_batch_init(&self->batches[1]);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    failed = tutti_thread_start(&self->thread, run_writer, self);
    self->started = failed == 0;
    if (failed != 0) {
        tutti_store_writer_free(self);
        return TUTTI_FAIL_ERRNO(err, failed, "could not start the thread of a store");
    }
    *ret_writer = self;
    return TUTTI_OK;
}

static void
wait_until_idle(tutti_store_writer *self)
{
    (void)pthread_mutex_lock(&self->lock);
    while (self->busy) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

void
tutti_store_writer_free(tutti_store_writer *self)
{
    if (self == NULL) {
        return;
    }
    if (self->started) {
        wait_until_idle(self);
        (void)tutti_store_writer_flush(self, NULL);
        (void)pthread_mutex_lock(&self->lock);
        self->ending = true;
        (void)pthread_cond_broadcast(&self->changed);
        (void)pthread_mutex_unlock(&self->lock);
        (void)pthread_join(self->thread, NULL);
    }
    tutti_store_batch_fini(&self->batches[0]);
    tutti_store_batch_fini(&self->batches[1]);
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

tutti_store_batch *
tutti_store_writer_batch(tutti_store_writer *self)
{
    return &self->batches[self->collecting];
}

/* The batch that was written is emptied here, on the store's thread, which is the one that took the
 * memory for it. */
tutti_code
tutti_store_writer_flush(tutti_store_writer *self, tutti_error *err)
{
    tutti_code code;

    (void)pthread_mutex_lock(&self->lock);
    code = self->why.code;
    if (code == TUTTI_OK && !self->busy) {
        tutti_store_batch_fini(get_written(self));
        if (tutti_store_writer_batch(self)->version != 0) {
            self->collecting = 1 - self->collecting;
            self->busy = true;
            (void)pthread_cond_broadcast(&self->changed);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    return code == TUTTI_OK ? TUTTI_OK : tutti_error_pass(err, &self->why);
}

uint64_t
tutti_store_writer_durable(tutti_store_writer *self)
{
    uint64_t version;

    (void)pthread_mutex_lock(&self->lock);
    version = self->durable;
    (void)pthread_mutex_unlock(&self->lock);
    return version;
}

void
tutti_store_writer_on_durable(tutti_store_writer *self, void (*on_durable)(void *arg), void *arg)
{
    (void)pthread_mutex_lock(&self->lock);
    self->on_durable = on_durable;
    self->arg = arg;
    while (self->telling) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
}
