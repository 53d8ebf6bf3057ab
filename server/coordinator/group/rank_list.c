/*
 * Lists of ranks in requests: checked, and turned from group ranks of the parent into ranks of
 * the job. `owner` has for each position of the parent the list that it is in, so duplicates and
 * overlaps are found in one pass. The errors say which list and which rank.
 */
#include "server/coordinator/group/rank_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/groups.h"

void
coord_rank_lists_fini(coord_rank_lists *rank_lists)
{
    free(rank_lists->ranks);
    free(rank_lists->ends);
    *rank_lists = (coord_rank_lists){0};
}

static tutti_code
layout_init(coord_rank_lists *rank_lists, uint32_t rank_count, size_t list_count, tutti_error *err)
{
    *rank_lists = (coord_rank_lists){.ranks = malloc(rank_count * sizeof(uint32_t)),
                                     .ends = malloc(list_count * sizeof(uint32_t))};
    if (rank_lists->ranks == NULL || rank_lists->ends == NULL) {
        coord_rank_lists_fini(rank_lists);
        return coord_fail_memory(err, "lists of ranks");
    }
    return TUTTI_OK;
}

/* Lists on their way into a rank lists. */
typedef struct reading {
    const coord_group *parent;
    const char *what;
    size_t list_total;
    coord_rank_lists rank_lists;
    uint32_t *owner; /* by position in the parent: 1 + the list it is in; 0 = in none. NULL = not
                        needed so far */
    uint32_t used;
} reading;

/* "group tp", "sub-groups: list 3" */
static const char *
say_list(const reading *self, char *ret, size_t size)
{
    if (self->list_total == 1) {
        (void)snprintf(ret, size, "%s", self->what);
    } else {
        (void)snprintf(ret, size, "%s: list %" PRIu32, self->what, self->rank_lists.list_count);
    }
    return ret;
}

static tutti_code
fail_twice(const reading *self, uint32_t rank, uint32_t owner, tutti_error *err)
{
    const uint32_t list = self->rank_lists.list_count;
    char what[256];

    if (owner == list + 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK",
                              "%s lists rank %" PRIu32 " twice", say_list(self, what, sizeof(what)),
                              rank);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "OVERLAP",
                          "%s: rank %" PRIu32 " is in list %" PRIu32 " and in list %" PRIu32
                          ", need lists that do not overlap",
                          self->what, rank, owner - 1, list);
}

static tutti_code
fail_range(const reading *self, int32_t rank, tutti_error *err)
{
    const bool world = self->parent->ranks == NULL;
    char what[256];

    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                          "%s lists rank %" PRId32 " in %s%s of %" PRIu32,
                          say_list(self, what, sizeof(what)), rank, world ? "a " : "group ",
                          self->parent->name, self->parent->count);
}

static tutti_code
check_rank_list_count(const reading *self, const tutti_coordinator_list *list, tutti_error *err)
{
    char what[256];

    if (list->count == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "EMPTY_GROUP",
                              "%s has no ranks, need at least one",
                              say_list(self, what, sizeof(what)));
    }
    if (list->count > self->parent->count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK",
                              "%s lists %zu ranks, but there are only %" PRIu32,
                              say_list(self, what, sizeof(what)), list->count, self->parent->count);
    }
    return TUTTI_OK;
}

static tutti_code
check_ranges(const reading *self, const tutti_coordinator_list *list, tutti_error *err)
{
    size_t i;

    for (i = 0; i < list->count; i++) {
        if (list->ranks[i] < 0 || (uint32_t)list->ranks[i] >= self->parent->count) {
            return fail_range(self, list->ranks[i], err);
        }
    }
    return TUTTI_OK;
}

#define BLOCK 16 /* without a branch in it the compiler does them at once */

/* No rank of it comes twice. */
static bool
is_rising(const tutti_coordinator_list *list)
{
    const int32_t *ranks = list->ranks;
    bool rising = true;
    size_t i;
    size_t k;

    for (i = 1; i + BLOCK <= list->count; i += BLOCK) {
        for (k = i; k < i + BLOCK; k++) {
            rising &= ranks[k - 1] < ranks[k];
        }
    }
    for (; i < list->count; i++) {
        rising &= ranks[i - 1] < ranks[i];
    }
    return rising;
}

/*
 * The only list, in order, of ranks of the world: as it is. When all of a world of 10 000 ask for a
 * group of all, it is read 10 000 times.
 */
static bool
read_rising(reading *self, const tutti_coordinator_list *list)
{
    if (self->list_total != 1 || self->parent->ranks != NULL || !is_rising(list) ||
        list->ranks[0] < 0 || (uint32_t)list->ranks[list->count - 1] >= self->parent->count) {
        return false;
    }
    memcpy(self->rank_lists.ranks, list->ranks, list->count * sizeof(*list->ranks));
    self->used = (uint32_t)list->count;
    self->rank_lists.ends[0] = self->used;
    self->rank_lists.list_count = 1;
    return true;
}

static tutti_code
read_list(reading *self, const tutti_coordinator_list *list, tutti_error *err)
{
    tutti_code code = check_rank_list_count(self, list, err);
    size_t i;

    if (code == TUTTI_OK && read_rising(self, list)) {
        return TUTTI_OK;
    }
    if (code == TUTTI_OK) {
        code = check_ranges(self, list, err);
    }
    if (code == TUTTI_OK && self->owner == NULL) {
        self->owner = calloc(self->parent->count, sizeof(uint32_t));
        code = self->owner == NULL ? coord_fail_memory(err, "lists of ranks") : TUTTI_OK;
    }
    for (i = 0; i < list->count && code == TUTTI_OK; i++) {
        const uint32_t position = (uint32_t)list->ranks[i];

        if (self->owner[position] != 0) {
            code = fail_twice(self, position, self->owner[position], err);
        } else {
            self->owner[position] = self->rank_lists.list_count + 1;
            self->rank_lists.ranks[self->used++] = coord_group_rank(self->parent, position);
        }
    }
    self->rank_lists.ends[self->rank_lists.list_count] = self->used;
    self->rank_lists.list_count++;
    return code;
}

static tutti_code
read_lists(reading *self, const tutti_coordinator_list *lists, tutti_error *err)
{
    size_t i;

    for (i = 0; i < self->list_total; i++) {
        TUTTI_TRY(read_list(self, &lists[i], err));
    }
    return TUTTI_OK;
}

tutti_code
coord_rank_lists_take(const coord_group *parent, const char *what,
                      const tutti_coordinator_list *lists, size_t count,
                      coord_rank_lists *ret_layout, tutti_error *err)
{
    reading self = {.parent = parent, .what = what, .list_total = count};
    tutti_code code;

    if (count == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "EMPTY_GROUP",
                              "%s: no lists, need at least one", what);
    }
    TUTTI_TRY(layout_init(&self.rank_lists, parent->count, count, err));
    code = read_lists(&self, lists, err);
    free(self.owner);
    if (code == TUTTI_OK) {
        *ret_layout = self.rank_lists;
    } else {
        coord_rank_lists_fini(&self.rank_lists);
    }
    return code;
}

tutti_code
coord_rank_lists_blocks(const coord_group *parent, uint32_t size, coord_rank_lists *ret_layout,
                        tutti_error *err)
{
    const uint32_t lists = parent->count / size;
    uint32_t i;

    TUTTI_TRY(layout_init(ret_layout, parent->count, lists, err));
    for (i = 0; i < parent->count; i++) {
        ret_layout->ranks[i] = coord_group_rank(parent, i);
    }
    for (i = 0; i < lists; i++) {
        ret_layout->ends[i] = (i + 1) * size;
    }
    ret_layout->list_count = lists;
    return TUTTI_OK;
}

bool
coord_rank_lists_find(const coord_rank_lists *rank_lists, uint32_t rank, uint32_t *ret_list,
                      uint32_t *ret_position)
{
    uint32_t list;
    uint32_t i = 0;

    if (rank < rank_lists->ends[0] && rank_lists->ranks[rank] == rank) { /* all in their order */
        *ret_list = 0;
        *ret_position = rank;
        return true;
    }
    for (list = 0; list < rank_lists->list_count; list++) {
        const uint32_t begin = i;

        for (; i < rank_lists->ends[list]; i++) {
            if (rank_lists->ranks[i] == rank) {
                *ret_list = list;
                *ret_position = i - begin;
                return true;
            }
        }
    }
    return false;
}

uint32_t
coord_rank_lists_size(const coord_rank_lists *rank_lists)
{
    const uint32_t size = rank_lists->ends[0];
    uint32_t list;

    for (list = 1; list < rank_lists->list_count; list++) {
        if (rank_lists->ends[list] - rank_lists->ends[list - 1] != size) {
            return 0;
        }
    }
    return size;
}
