/*
 * Module: code that is loaded when it is asked for, so that a program starts where what the code
 * needs (a driver, a vendor's library) is not there. At start; one thread.
 *
 * A module "cuda" is the file tutti-cuda.so: in the folder that TUTTI_MODULES names, or else beside
 * the program, or in lib/tutti beside the program's bin. It stays loaded until the process ends.
 */
#ifndef TUTTI_BASE_OS_MODULE_H
#define TUTTI_BASE_OS_MODULE_H

#include <limits.h>

#include "tutti/error.h"

/*
 * Load it and find `symbol`, whose name carries its version.
 *
 * [out, borrowed]  ret_symbol  for the life of the process
 *
 * TUTTI_FAILED_PRECONDITION  NO_MODULE: no such file, or it cannot be loaded (the text has the
 *                            loader's words), or it is of another version than the program
 */
tutti_code tutti_module_load(const char *name, const char *symbol, const void **ret_symbol,
                             tutti_error *err);

/* A file that was loaded. */
typedef struct tutti_module_file {
    char path[PATH_MAX]; /* without links */
    void *library;       /* what dlopen has given */
    const void *symbol;  /* NULL: it has none of that name */
} tutti_module_file;

/*
 * The same of a file that somebody has named: it is loaded only if nobody but root and this user may
 * change it or put another one in its place. What is judged is what is loaded: file and folder are
 * opened before. Any thread; takes as long as the disk does. A loaded file keeps one descriptor.
 *
 * [out] ret_file  its content stays for the life of the process
 *
 * TUTTI_NOT_FOUND            NO_MODULE: no such file
 * TUTTI_FAILED_PRECONDITION  BAD_MODULE: no regular file; it or its folder is owned by another user
 *                            than root and the process's, or writable by others (with the sticky
 *                            bit, too); or not to be loaded (the text has the loader's words)
 */
tutti_code tutti_module_open(const char *path, const char *symbol, tutti_module_file *ret_file,
                             tutti_error *err);

#endif
