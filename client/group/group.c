/* Groups: options taken and checked before the coordinator is asked, and what the caller frees. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/conn/options.h"
#include "client/group/groups.h"
#include "tutti/group.h"

void
tutti_group_info_free(tutti_group_info *info)
{
    if (info != NULL) {
        free(info->ranks);
        info->ranks = NULL;
        info->rank_count = 0;
    }
}

void
tutti_rank_lists_free(tutti_rank_lists *lists)
{
    if (lists != NULL) {
        free(lists->starts);
        free(lists->ranks);
        *lists = (tutti_rank_lists){0};
    }
}

void
tutti_group_options_init(tutti_group_options *options)
{
    *options = (tutti_group_options){.size = sizeof(*options)};
}

void
tutti_split_init(tutti_split *split)
{
    *split = (tutti_split){.size = sizeof(*split), .kind = TUTTI_SPLIT_SIZE, .number = 1};
}

/* NULL = as init says. */
static tutti_code
take_group_options(const tutti_group_options *given, tutti_group_options *ret, tutti_error *err)
{
    tutti_group_options_init(ret);
    return given == NULL ? TUTTI_OK
                         : client_take_struct(ret, sizeof(*ret), given, given->size,
                                              "tutti_group_options", err);
}

static int
compare_group_ranks(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left;
    const uint32_t b = *(const uint32_t *)right;

    return a == b ? 0 : a < b ? -1 : 1;
}

static tutti_code
create_sorted(tutti_client *client, const tutti_group_options *options, const uint32_t *ranks,
              size_t count, tutti_group_info *ret_info, tutti_error *err)
{
    uint32_t *sorted = calloc(count + 1, sizeof(*sorted));
    tutti_code code;

    if (sorted == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu ranks", count);
    }
    if (count > 0) {
        memcpy(sorted, ranks, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_group_ranks);
    }
    code = client_wire_group_create(client, options, sorted, count, ret_info, err);
    free(sorted);
    return code;
}

tutti_code
tutti_group_create_with(tutti_client *client, const tutti_group_options *options,
                        const uint32_t *ranks, size_t count, tutti_group_info *ret_info,
                        tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(ranks, count, err);

    tutti_group_options own;
    tutti_code code = client_check_member(client, err);

    if (code == TUTTI_OK) {
        code = take_group_options(options, &own, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (count > TUTTI_RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                              "group of %zu ranks, at most %d", count, TUTTI_RANKS_MAX);
    }
    return own.sort ? create_sorted(client, &own, ranks, count, ret_info, err)
                    : client_wire_group_create(client, &own, ranks, count, ret_info, err);
}

tutti_code
tutti_group_create(tutti_client *client, const char *name, const uint32_t *ranks, size_t count,
                   tutti_group_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(ranks, count, err);

    tutti_group_options options;

    if (name == NULL || name[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                              "a group without a name: give one, or call tutti_group_create_with");
    }
    tutti_group_options_init(&options);
    options.name = name;
    return tutti_group_create_with(client, &options, ranks, count, ret_info, err);
}

tutti_code
tutti_group_abort(tutti_client *client, const char *group, const char *reason, tutti_error *err)
{
    TUTTI_NEED(client, err);

    return client_wire_group_abort(client, group, 0, reason, err);
}

tutti_code
tutti_group_shrink(tutti_client *client, const char *group, uint32_t timeout_ms,
                   tutti_group_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_info, err);

    return client_wire_group_shrink(client, group, timeout_ms, ret_info, err);
}

tutti_code
tutti_group_delete(tutti_client *client, const char *name, tutti_error *err)
{
    TUTTI_NEED(client, err);

    return client_wire_group_delete(client, name, 0, false, err);
}

tutti_code
tutti_group_destroy(tutti_client *client, const tutti_group_info *group, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(group, err);

    return client_wire_group_delete(client, group->name, group->id, true, err);
}

tutti_code
tutti_group_split(tutti_client *client, const tutti_group_options *options,
                  const tutti_split *split, tutti_group_info *ret_info, tutti_rank_lists *ret_lists,
                  tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(split, err);

    tutti_group_options own;
    tutti_split own_split;
    tutti_code code = client_check_member(client, err);

    tutti_split_init(&own_split);
    if (code == TUTTI_OK) {
        code = take_group_options(options, &own, err);
    }
    if (code == TUTTI_OK) {
        code = client_take_struct(&own_split, sizeof(own_split), split, split->size, "tutti_split",
                                  err);
    }
    return code == TUTTI_OK
               ? client_wire_group_split(client, &own, &own_split, ret_info, ret_lists, err)
               : code;
}
