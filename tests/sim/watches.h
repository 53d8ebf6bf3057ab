/*
 * Watches: has a watch been told what it should, by etcd's list of guarantees?
 *
 *   ordered     changes come in the order of their versions, those of one version in the order of the call that made them
 *   unique      none comes twice
 *   reliable    of the changes behind the first one none is left out
 *   atomic      of a version all is told before the next one
 *   resumable   a watch that goes on where another one has ended leaves out nothing, and repeats nothing
 *   true        what is told has been changed so
 *
 * Together: what is told is the changes under its prefix, from where it has begun; at the end all of them.
 */
#ifndef TUTTI_TESTS_SIM_WATCHES_H
#define TUTTI_TESTS_SIM_WATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WATCHES_KEY_MAX 24

typedef enum watches_kind {
    WATCHES_SET,
    WATCHES_DELETED,
    WATCHES_BEGUN,   /* anew: what has `version` or less is not told */
    WATCHES_RESUMED, /* where it was */
} watches_kind;

/* A change, or what a watch was told. */
typedef struct watches_change {
    watches_kind kind;
    uint64_t version;
    uint64_t at_ns;
    uint64_t
        floor; /* of BEGUN: the highest version that had been answered before the watch was called */
    char key[WATCHES_KEY_MAX];
    int64_t value; /* of SET */
} watches_change;

/*
 * [in] changes   of the store, in their order
 * [in] told      to one watch, over all its streams
 * [in] complete  it had the time to be told of all
 *
 * False: broken, and ret_words says why.
 */
bool watches_check(const watches_change *changes, size_t change_count, const watches_change *told,
                   size_t told_count, const char *prefix, bool complete, char *ret_words,
                   size_t size);

#endif
