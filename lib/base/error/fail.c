/*
 * Filling errors. All of these take NULL for an error that nobody wants; the code comes back all
 * the same. None of them needs memory, so they work when there is none.
 */
#include "base/error/fail.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error/text.h"

const char *
tutti_code_name(tutti_code code)
{
    switch (code) {
#define NAME_CASE(name, number)                                                                    \
    case TUTTI_##name:                                                                             \
        return #name;
        TUTTI_CODE_MAP(NAME_CASE)
#undef NAME_CASE
    }
    return "CODE_<?>";
}

/*
 * Each member is set on its own. Clearing the whole struct would write its long text for nothing.
 */
static void
begin_error(tutti_error *err, tutti_code code, const char *reason, const char *where)
{
    err->code = code;
    err->scope = TUTTI_SCOPE_CALL;
    err->cause = 0;
    err->domain = NULL;
    err->where = where;
    err->sequence = 0;
    err->rank = TUTTI_ERROR_RANK_NONE;
    err->group[0] = '\0';
    (void)snprintf(err->reason, sizeof(err->reason), "%s", reason);
}

tutti_code
tutti_fail(tutti_error *err, tutti_code code, const char *reason, const char *where,
           const char *format, ...)
{
    va_list args;

    assert(code != TUTTI_OK);
    if (err == NULL) {
        return code;
    }
    begin_error(err, code, reason, where);
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return code;
}

/* The one place where errno's numbers become ours. */
static tutti_code
code_from_errno(int number)
{
    switch (number) {
    case ENOENT:
        return TUTTI_NOT_FOUND;
    case EEXIST:
        return TUTTI_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
        return TUTTI_PERMISSION_DENIED;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
        return TUTTI_RESOURCE_EXHAUSTED;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
        return TUTTI_INVALID_ARGUMENT;
    case EADDRINUSE:
        return TUTTI_FAILED_PRECONDITION;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
        return TUTTI_UNAVAILABLE;
    default:
        return TUTTI_INTERNAL;
    }
}

/*
 * The number is an argument and not read from errno here, since the arguments' evaluation may
 * have changed errno.
 */
static const char *
reason_from_errno(int number)
{
    if (number == ENOMEM) {
        return "NO_MEMORY";
    }
    if (number == EADDRINUSE) {
        return "ADDRESS_IN_USE";
    }
    return number == EMFILE || number == ENFILE ? "SYSTEM_LIMIT" : "SYSTEM_ERROR";
}

tutti_code
tutti_fail_errno(tutti_error *err, int number, const char *where, const char *format, ...)
{
    const tutti_code code = code_from_errno(number);
    char reason[128];
    tutti_text text;
    va_list args;

    if (err == NULL) {
        return code;
    }
    begin_error(err, code, reason_from_errno(number), where);
    text = tutti_text_in(err->text, sizeof(err->text));
    va_start(args, format);
    tutti_text_add_args(&text, format, args);
    va_end(args);
    /* glibc's strerror_r writes into the buffer or returns a static string: thread safe. */
    tutti_text_add(&text, ": %s", strerror_r(number, reason, sizeof(reason)));
    tutti_error_set_cause(err, "errno", number);
    return code;
}

void
tutti_error_set_cause(tutti_error *err, const char *domain, int cause)
{
    if (err != NULL) {
        err->domain = domain;
        err->cause = cause;
    }
}

void
tutti_error_set_op(tutti_error *err, const char *group, uint64_t sequence, int32_t rank)
{
    if (err != NULL) {
        (void)snprintf(err->group, sizeof(err->group), "%s", group == NULL ? "" : group);
        err->sequence = sequence;
        err->rank = rank;
    }
}

/* A whole error is copied: reason, cause and op belong to the text. */
tutti_code
tutti_error_pass(tutti_error *err, const tutti_error *from)
{
    assert(from->code != TUTTI_OK);
    if (err != NULL) {
        *err = *from;
    }
    return from->code;
}
