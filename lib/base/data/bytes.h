/*
 * Bytes: a borrowed run of memory, and a buffer that owns one and knows its limit.
 */
#ifndef TUTTI_BASE_DATA_BYTES_H
#define TUTTI_BASE_DATA_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"

#define tutti_container_of(pointer, type, member)                                                  \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Borrowed: whoever made it says until when it is good. */
typedef struct tutti_bytes {
    const void *data;
    size_t size;
} tutti_bytes;

tutti_bytes tutti_bytes_of(const char *text);
bool tutti_bytes_equal(tutti_bytes left, tutti_bytes right);
int tutti_bytes_compare(tutti_bytes left, tutti_bytes right); /* as memcmp, the shorter first */

/* A growing buffer, with its limit given at birth. One thread at a time. */
typedef struct tutti_buf {
    unsigned char *data;
    size_t size;
    size_t room;
    size_t most;
} tutti_buf;

/* `most`: bytes it may ever hold. Nothing is allocated yet. */
void tutti_buf_init(tutti_buf *buf, size_t most);
void tutti_buf_fini(tutti_buf *buf);

/* TUTTI_RESOURCE_EXHAUSTED  the limit or memory is reached; the buffer is unchanged */
tutti_code tutti_buf_add(tutti_buf *buf, const void *data, size_t size, tutti_error *err);

/* Room for `size` more bytes at buf->data + buf->size, not counted yet. Same code as add. */
tutti_code tutti_buf_reserve(tutti_buf *buf, size_t size, tutti_error *err);

#endif
