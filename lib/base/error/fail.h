/*
 * Failing: how a tutti_error gets its words, once, where the failure is first seen.
 * On the way up it is passed unchanged. Any thread; nothing here allocates.
 */
#ifndef TUTTI_BASE_ERROR_FAIL_H
#define TUTTI_BASE_ERROR_FAIL_H

#include <stdarg.h>

#include "tutti/error.h"

#define TUTTI_STRING_(x) #x
#define TUTTI_STRING(x) TUTTI_STRING_(x)
#define TUTTI_HERE __FILE__ ":" TUTTI_STRING(__LINE__)

/* An error without a reason: for tests, and where the reason follows. cmake/check_errors.py. */
#define TUTTI_FAIL(err, code, ...) tutti_fail((err), (code), "", TUTTI_HERE, __VA_ARGS__)

/*
 * Write `err` (NULL is fine) and return `code`: `return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, ...)`.
 * The reason is for programs ("SHAPE_MISMATCH"; docs/errors.md). The text is lower case, says the
 * value and the limit, and reads well after a colon.
 */
#define TUTTI_FAIL_FOR(err, code, reason, ...)                                                     \
    tutti_fail((err), (code), (reason), TUTTI_HERE, __VA_ARGS__)

/* malloc has failed: "no memory for an op". */
#define TUTTI_FAIL_MEMORY(err, ...)                                                                \
    TUTTI_FAIL_FOR((err), TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", __VA_ARGS__)

/* A failed system call: `could not open /x: no such file or directory`; cause, code and reason from
 * errno. */
#define TUTTI_FAIL_ERRNO(err, number, ...)                                                         \
    tutti_fail_errno((err), (number), TUTTI_HERE, __VA_ARGS__)

/*
 * Return the code of a call that has failed, from a function that owes nothing at that point: no
 * memory, no lock, no state to undo. Where something is owed, `code` and one label at the end.
 */
#define TUTTI_TRY(call)                                                                            \
    do {                                                                                           \
        const tutti_code try_code_ = (call);                                                       \
                                                                                                   \
        if (try_code_ != TUTTI_OK) {                                                               \
            return try_code_;                                                                      \
        }                                                                                          \
    } while (0)

/* The first statement of a public function: an argument that must not be NULL. */
#define TUTTI_NEED(argument, err)                                                                  \
    do {                                                                                           \
        if ((argument) == NULL) {                                                                  \
            return TUTTI_FAIL_FOR((err), TUTTI_INVALID_ARGUMENT, "NULL_ARGUMENT",                  \
                                  "`" #argument "` is NULL");                                      \
        }                                                                                          \
    } while (0)

/* Likewise, of `count` things, or bytes. */
#define TUTTI_NEED_LIST(argument, count, err)                                                      \
    do {                                                                                           \
        if ((count) > 0) {                                                                         \
            TUTTI_NEED(argument, err);                                                             \
        }                                                                                          \
    } while (0)

tutti_code tutti_fail(tutti_error *err, tutti_code code, const char *reason, const char *where,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));

tutti_code tutti_fail_errno(tutti_error *err, int number, const char *where, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

/* Attach the foreign number; `domain` is static. */
void tutti_error_set_cause(tutti_error *err, const char *domain, int cause);

/* Attach the op: `group` may be NULL, `sequence` 0, `rank` TUTTI_ERROR_RANK_NONE. */
void tutti_error_set_op(tutti_error *err, const char *group, uint64_t sequence, int32_t rank);

/* Copy `from` to `err` (NULL is fine) and return its code. */
tutti_code tutti_error_pass(tutti_error *err, const tutti_error *from);

#endif
