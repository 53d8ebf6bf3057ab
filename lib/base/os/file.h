/* File: whole files in and out. Any thread. */
#ifndef TUTTI_BASE_OS_FILE_H
#define TUTTI_BASE_OS_FILE_H

#include <stddef.h>

#include "tutti/error.h"

/*
 * Read a whole file.
 *
 * [out, owned]  ret_data  its bytes and a NUL behind them; free() it
 * [out]         ret_size  without that NUL; NULL is fine
 *
 * TUTTI_NOT_FOUND, TUTTI_PERMISSION_DENIED, ...  from the system, with the path
 * TUTTI_RESOURCE_EXHAUSTED                       larger than `most`, or no memory
 */
tutti_code tutti_file_read(const char *path, size_t most, char **ret_data, size_t *ret_size,
                           tutti_error *err);

/*
 * Replace a file as a whole: readers see the old bytes or the new ones, never a part.
 * Codes come from the system, with the path.
 */
tutti_code tutti_file_write(const char *path, const void *data, size_t size, unsigned mode,
                            tutti_error *err);

#endif
