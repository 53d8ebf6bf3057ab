#include "base/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data/bytes.h"
#include "base/error/fail.h"

#define READ_BYTES 65536

/* Everything from the descriptor behind what the buffer holds, and a NUL. */
static tutti_code
read_all(int descriptor, const char *path, tutti_buf *buf, tutti_error *err)
{
    tutti_code code;
    ssize_t got = 1;

    while (got > 0) {
        code = tutti_buf_reserve(buf, 1, err);
        if (code != TUTTI_OK) {
            return code;
        }
        got = read(descriptor, buf->data + buf->size,
                   buf->room - buf->size < READ_BYTES ? buf->room - buf->size : READ_BYTES);
        if (got < 0 && errno != EINTR) {
            return TUTTI_FAIL_ERRNO(err, errno, "could not read %s", path);
        }
        buf->size += got > 0 ? (size_t)got : 0;
        got = got < 0 ? 1 : got;
    }
    return tutti_buf_add(buf, "", 1, err);
}

/*
 * The size is not asked for before: files of /proc say 0, and others may grow meanwhile. `most`
 * is the limit.
 */
tutti_code
tutti_file_read(const char *path, size_t most, char **ret_data, size_t *ret_size, tutti_error *err)
{
    tutti_buf buf;
    tutti_error inner;
    tutti_code code;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);

    if (descriptor < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not open %s", path);
    }
    tutti_buf_init(&buf, most + 1);
    code = read_all(descriptor, path, &buf, &inner);
    (void)close(descriptor);
    if (code != TUTTI_OK) {
        tutti_buf_fini(&buf);
        return inner.domain != NULL
                   ? tutti_error_pass(err, &inner)
                   : TUTTI_FAIL_FOR(err, code, inner.reason, "%s: %s", path, inner.text);
    }
    *ret_data = (char *)buf.data;
    if (ret_size != NULL) {
        *ret_size = buf.size - 1;
    }
    return TUTTI_OK;
}

static int
write_all_file(int descriptor, const char *data, size_t size)
{
    while (size > 0) {
        const ssize_t put = write(descriptor, data, size);

        if (put < 0 && errno != EINTR) {
            return errno;
        }
        data += put > 0 ? put : 0;
        size -= put > 0 ? (size_t)put : 0;
    }
    return 0;
}

/*
 * Written aside and renamed, so a reader sees the old file or the whole new one. This is not
 * synced to the disk: what is written this way is of use only while the machine runs.
 */
tutti_code
tutti_file_write(const char *path, const void *data, size_t size, unsigned mode, tutti_error *err)
{
    char aside[PATH_MAX];
    int descriptor;
    int number = 0;

    if (snprintf(aside, sizeof(aside), "%s.%ld.part", path, (long)getpid()) >= (int)sizeof(aside)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PATH", "path of more than %d bytes",
                              PATH_MAX);
    }
    descriptor = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (descriptor < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not write %s", path);
    }
    number = write_all_file(descriptor, data, size);
    if (close(descriptor) != 0 && number == 0) {
        number = errno;
    }
    if (number == 0 && rename(aside, path) != 0) {
        number = errno;
    }
    if (number != 0) {
        (void)unlink(aside);
        return TUTTI_FAIL_ERRNO(err, number, "could not write %s", path);
    }
    return TUTTI_OK;
}
