#include "base/data/bytes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"

tutti_bytes
tutti_bytes_of(const char *text)
{
    return (tutti_bytes){text, strlen(text)};
}

bool
tutti_bytes_equal(tutti_bytes left, tutti_bytes right)
{
    return left.size == right.size &&
           (left.size == 0 || memcmp(left.data, right.data, left.size) == 0);
}

/* memcmp with a size of 0 must not get a NULL pointer, hence the tests for empty. */
int
tutti_bytes_compare(tutti_bytes left, tutti_bytes right)
{
    const size_t common = left.size < right.size ? left.size : right.size;
    const int order = common == 0 ? 0 : memcmp(left.data, right.data, common);

    if (order != 0 || left.size == right.size) {
        return order;
    }
    return left.size < right.size ? -1 : 1;
}

void
tutti_buf_init(tutti_buf *buf, size_t most)
{
    *buf = (tutti_buf){.most = most};
}

void
tutti_buf_fini(tutti_buf *buf)
{
    free(buf->data);
    *buf = (tutti_buf){.most = buf->most};
}

/*
 * The room doubles, so adding byte by byte stays linear in all. `most` is the protection against
 * what a stranger sends.
 */
tutti_code
tutti_buf_reserve(tutti_buf *buf, size_t size, tutti_error *err)
{
    size_t room = buf->room < 64 ? 64 : buf->room;
    unsigned char *data;

    if (size > buf->most - buf->size) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "MESSAGE_LIMIT",
                              "%zu bytes, at most %zu are allowed here", buf->size + size,
                              buf->most);
    }
    if (buf->size + size <= buf->room) {
        return TUTTI_OK;
    }
    while (room < buf->size + size) {
        room *= 2;
    }
    data = realloc(buf->data, room);
    if (data == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a buffer of %zu bytes", room);
    }
    buf->data = data;
    buf->room = room;
    return TUTTI_OK;
}

tutti_code
tutti_buf_add(tutti_buf *buf, const void *data, size_t size, tutti_error *err)
{
    TUTTI_TRY(tutti_buf_reserve(buf, size, err));

    if (size > 0) {
        memcpy(buf->data + buf->size, data, size);
        buf->size += size;
    }
    return TUTTI_OK;
}
