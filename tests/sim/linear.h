/*
 * Linear: is there an order of a history's ops, each at one moment between its call and its answer, in which a store
 * with one caller would have answered the same?
 *
 * The search is that of Wing, Gong and Lowe ("Testing for linearizability", 2016): ops are put in order one at a time,
 * and of what was tried, the set of ops and the state that they lead to are remembered. Keys that no op has in common are
 * searched apart (linearizability is local). An op without an answer may have happened at any time since its call, or
 * never. Calls with one token are one op, from its first call to its first answer.
 */
#ifndef TUTTI_TESTS_SIM_LINEAR_H
#define TUTTI_TESTS_SIM_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINEAR_KEYS_MAX 8
#define LINEAR_ABSENT INT64_MIN /* as a value: there is no key */
#define LINEAR_OPEN UINT64_MAX  /* as a time: there was no answer */

typedef enum linear_kind {
    LINEAR_GET,
    LINEAR_SET,
    LINEAR_ADD,    /* values[0] to a counter */
    LINEAR_APPEND, /* a digit, values[0], to the digits of a number */
    LINEAR_SWAP,   /* `expected` by values[0]; `refused` = it was another */
    LINEAR_DELETE, /* results[0]: 1 = there was one */
    LINEAR_TAKE,   /* get and delete */
    LINEAR_EXPIRE, /* the lease ends: delete, if the key goes with it still. Never answered */
    LINEAR_PUSH,   /* results[0]: the new length */
    LINEAR_POP,    /* ABSENT = it was empty */
    LINEAR_LENGTH,
    LINEAR_SET_ALL,
    LINEAR_GET_ALL, /* `refused` = one is not there */
    LINEAR_LOOK,    /* the same, and what is not there is ABSENT */
    LINEAR_KINDS,
} linear_kind;

typedef struct linear_op {
    linear_kind kind;
    uint32_t client;                /* for words alone */
    uint32_t keys[LINEAR_KEYS_MAX]; /* numbers; a queue has one that is no key's */
    uint32_t key_count;
    int64_t values[LINEAR_KEYS_MAX]; /* what the caller gives */
    int64_t expected;
    uint64_t lease; /* with which the key goes; 0 = none */
    uint64_t token; /* 0 = none */
    uint64_t begin;
    uint64_t end;
    /* the answer: */
    int64_t results[LINEAR_KEYS_MAX];   /* what was read, or is there now */
    uint64_t versions[LINEAR_KEYS_MAX]; /* of the change that wrote it; 0 = not told */
    bool refused;
} linear_op;

typedef enum linear_verdict {
    LINEAR_HOLDS,
    LINEAR_BROKEN,
    LINEAR_TOO_HARD, /* given up: too many ops at the same time */
} linear_verdict;

/*
 * [out] ret_words  why it is broken, NUL at its end; untouched otherwise
 */
linear_verdict linear_check(const linear_op *ops, size_t count, char *ret_words, size_t size);

/*
 * Versions of the whole store: no two changes have one, and a change has a higher one than all that was answered before
 * it was called. False: broken.
 */
bool linear_check_versions(const linear_op *ops, size_t count, char *ret_words, size_t size);

void linear_say(const linear_op *op, char *ret_words, size_t size);

#endif
