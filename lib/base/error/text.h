/*
 * Text: writing into a buffer of fixed size, and reading what people type.
 * Nothing here allocates; any thread.
 */
#ifndef TUTTI_BASE_ERROR_TEXT_H
#define TUTTI_BASE_ERROR_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"

/* A writer over the caller's buffer. What does not fit is cut; the result always ends in NUL. */
typedef struct tutti_text {
    char *start;
    size_t size; /* bytes of the buffer, the NUL included */
    size_t used; /* bytes written, without the NUL */
    bool cut;    /* something did not fit */
} tutti_text;

/* Begin an empty text in `buffer` of `size` >= 1 bytes [borrowed]. */
tutti_text tutti_text_in(char *buffer, size_t size);

void tutti_text_add(tutti_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tutti_text_add_args(tutti_text *text, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* "2 ranks" / "1 rank": the plural is the word with an s. */
void tutti_text_add_count(tutti_text *text, uint64_t count, const char *word);

/* Sorted numbers as "0-2, 5, 7-9". At most `most` runs, then ", and N more". */
void tutti_text_add_ranks(tutti_text *text, const uint32_t *ranks, size_t count, size_t most);

/* Dimensions as "[2, 3]". */
void tutti_text_add_shape(tutti_text *text, const int64_t *dims, size_t count);

/* Bytes as "64 MiB" or "1.5 GiB". */
void tutti_text_add_bytes(tutti_text *text, uint64_t bytes);

/*
 * Parse what people type. Each writes its output on success only.
 *
 * TUTTI_INVALID_ARGUMENT  not of that form, or out of range; the text says what is wanted
 */
tutti_code tutti_parse_bytes(const char *text, uint64_t *ret_bytes, tutti_error *err); /* "64MiB" */
tutti_code tutti_parse_ns(const char *text, uint64_t *ret_ns, tutti_error *err);       /* "250ms" */
tutti_code tutti_parse_uint(const char *text, uint64_t most, uint64_t *ret_number,
                            tutti_error *err);
tutti_code tutti_parse_bool(const char *text, bool *ret_value, tutti_error *err);

/* Ranks as "0-3,7" into at most `most` numbers. */
tutti_code tutti_parse_ranks(const char *text, uint32_t *ret_ranks, size_t most, size_t *ret_count,
                             tutti_error *err);

/*
 * Order two names the way people do: "host-2" before "host-10". <0, 0, >0 as strcmp.
 * 0 only for equal bytes.
 */
int tutti_compare_numeric(const char *left, const char *right);

/*
 * Is `name` 1 to TUTTI_NAME_MAX of [A-Za-z0-9._/-], not beginning with '.', '/' or '-'?
 * `what` says in the error what was named: "job", "group", "tensor".
 */
tutti_code tutti_check_name(const char *name, const char *what, tutti_error *err);

/* The same for where a group is named: also "mesh:NAME/DIM+DIM", the group of a mesh's dimensions.
 * Whether there is such a mesh, the coordinator knows. */
#define TUTTI_MESH_PREFIX "mesh:"
tutti_code tutti_check_group_name(const char *name, tutti_error *err);

#endif
