/*
 * Refs: names that an agent gives to what it has, "KIND:RANK.INCARNATION.NUMBER":
 * "tensor:3.8f3a9c12e4b07d55.17". Every op brings some, so neither way goes through printf or
 * scanf. Any thread.
 */
#ifndef TUTTI_BASE_DATA_REF_H
#define TUTTI_BASE_DATA_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUTTI_REF_KIND_MAX 15                                              /* bytes of a kind */
#define TUTTI_REF_SIZE (TUTTI_REF_KIND_MAX + 1 + 10 + 1 + 16 + 1 + 20 + 1) /* with the NUL */

typedef struct tutti_ref {
    uint32_t rank;
    uint64_t incarnation; /* of the agent's process; never 0 */
    uint64_t number;
} tutti_ref;

/*
 * There is one way to write each: decimals without signs, blanks or leading zeros, an incarnation
 * of 16 lower-case hex digits, and nothing behind the number. False: it is none of that kind.
 */
bool tutti_ref_parse(const char *text, const char *kind, tutti_ref *ret_ref);

/* `size` bytes hold it and its NUL, or it is cut. */
void tutti_ref_format(const tutti_ref *ref, const char *kind, char *ret_text, size_t size);

#endif
