#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "coll/select/select.h"

static bool
is_word(const char *name, const char *word, size_t size)
{
    return strlen(name) == size && memcmp(name, word, size) == 0;
}

tutti_coll_kind
tutti_selection_kind_of(const char *word, size_t size)
{
    int kind;

    for (kind = 1; kind < TUTTI_COLL_KIND_COUNT; kind++) {
        if (is_word(tutti_coll_kind_name((tutti_coll_kind)kind), word, size) &&
            kind != TUTTI_COLL_SEND && kind != TUTTI_COLL_RECV) {
            return (tutti_coll_kind)kind;
        }
    }
    return (tutti_coll_kind)0;
}

tutti_algorithm
tutti_selection_algorithm_of(const char *word, size_t size)
{
    int algorithm;

    for (algorithm = 1; algorithm < TUTTI_ALGORITHM_COUNT; algorithm++) {
        if (is_word(tutti_algorithm_name((tutti_algorithm)algorithm), word, size)) {
            return (tutti_algorithm)algorithm;
        }
    }
    return TUTTI_ALGORITHM_NONE;
}

tutti_code
tutti_selection_check_pair(const char *kind_word, size_t kind_size, const char *word, size_t size,
                           tutti_coll_kind *ret_kind, tutti_algorithm *ret_algorithm,
                           tutti_error *err)
{
    const tutti_coll_kind kind = tutti_selection_kind_of(kind_word, kind_size);
    const tutti_algorithm algorithm = tutti_selection_algorithm_of(word, size);
    char list[256];
    tutti_text text = tutti_text_in(list, sizeof(list));
    int i;

    for (i = 1; kind == 0 && i < TUTTI_COLL_KIND_COUNT; i++) {
        if (i != TUTTI_COLL_SEND && i != TUTTI_COLL_RECV) {
            tutti_text_add(&text, " %s", tutti_coll_kind_name((tutti_coll_kind)i));
        }
    }
    if (kind == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ALGORITHM",
                              "%.*s is no op with algorithms: there are%s",
                              (int)(kind_size < 64 ? kind_size : 64), kind_word, list);
    }
    for (i = 1; i < TUTTI_ALGORITHM_COUNT; i++) {
        if (tutti_algorithm_does((tutti_algorithm)i, kind)) {
            tutti_text_add(&text, " %s", tutti_algorithm_name((tutti_algorithm)i));
        }
    }
    if (!tutti_algorithm_does(algorithm, kind)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ALGORITHM",
                              "%.*s is no algorithm of %s: there are%s",
                              (int)(size < 64 ? size : 64), word, tutti_coll_kind_name(kind), list);
    }
    *ret_kind = kind;
    *ret_algorithm = algorithm;
    return TUTTI_OK;
}

tutti_code
tutti_selection_force(tutti_selection *selection, const char *text, tutti_error *err)
{
    const char *at = text;

    while (*at != '\0') {
        const size_t size = strcspn(at, ",");
        const char *equals = memchr(at, '=', size);
        tutti_coll_kind kind;
        tutti_algorithm algorithm;
        tutti_code code;

        if (equals == NULL) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ALGORITHM",
                                  "%.*s says no algorithm: write it as all_reduce=ring",
                                  (int)(size < 64 ? size : 64), at);
        }
        code = tutti_selection_check_pair(at, (size_t)(equals - at), equals + 1,
                                          size - (size_t)(equals + 1 - at), &kind, &algorithm, err);
        if (code != TUTTI_OK) {
            return code;
        }
        selection->forced[kind] = algorithm;
        at += size + (at[size] == ',' ? 1 : 0);
    }
    tutti_selection_seal(selection);
    return TUTTI_OK;
}
