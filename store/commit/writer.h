/*
 * Writer: a thread that makes the changes of a store durable, one batch at a time. While a batch is
 * being written the next one is collected, so the more there is to do, the more one wait for the
 * disk is good for (group commit).
 *
 * All functions are for the thread of the store; only `write` and `on_durable` run on the writer's.
 */
#ifndef TUTTI_STORE_COMMIT_WRITER_H
#define TUTTI_STORE_COMMIT_WRITER_H

#include "store/commit/batch.h"

typedef struct tutti_store_writer tutti_store_writer;

typedef struct tutti_store_writer_ops {
    /* Make all of the batch durable, or none of it; the writer's thread, and it may block. After a
     * failure it is not called any more. */
    tutti_code (*write)(void *context, const tutti_store_batch *batch, tutti_error *err);
} tutti_store_writer_ops;

/*
 * [in] context  for `write`; borrowed until the writer is freed
 * [in] version  that is durable already
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory, no thread
 */
tutti_code tutti_store_writer_new(const tutti_store_writer_ops *ops, void *context,
                                  uint64_t version, tutti_store_writer **ret_writer,
                                  tutti_error *err);

/* Writes what is left, and waits for it. NULL is fine. */
void tutti_store_writer_free(tutti_store_writer *writer);

/* The batch that is being collected. Borrowed; it is another one after a flush. */
tutti_store_batch *tutti_store_writer_batch(tutti_store_writer *writer);

/* As tutti_store_flush, tutti_store_durable and tutti_store_on_durable. */
tutti_code tutti_store_writer_flush(tutti_store_writer *writer, tutti_error *err);
uint64_t tutti_store_writer_durable(tutti_store_writer *writer);
void tutti_store_writer_on_durable(tutti_store_writer *writer, void (*on_durable)(void *arg),
                                   void *arg);

#endif
